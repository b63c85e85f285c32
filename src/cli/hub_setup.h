// The Hub as the user set it up: environment, token file, caches; and the progress on standard
// error.
#ifndef HOKKU_CLI_HUB_SETUP_H
#define HOKKU_CLI_HUB_SETUP_H

#include "hub/hub.h"
#include "cli/options.h"

struct hub_setup {
    struct hub_options opt;
    struct buf token, hf_cache;
    bool quiet, tty, line_open; // line_open: a progress bar is on the terminal's last line
    const char *file;           // that the numbers are about, only compared
    unsigned part;
    double began, shown, rate_at; // seconds of clock_now
    uint64_t rate_bytes;          // of the file when its rate was taken
    double rate;                  // bytes per second, smoothed
};

// Fills h->opt for hub_fetch, hub_list and hub_remove; *h must stay where it is. Errors: ERR_USAGE.
bool hub_setup_init(struct hub_setup *h, const struct options *o, const struct cancel *cancel,
                    struct error *err);
void hub_setup_release(struct hub_setup *h);

#endif
