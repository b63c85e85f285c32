// Whatever of a download waits - for a server, a moment, another process - waits here, where the
// user can end it.
#ifndef HOKKU_HUB_WAIT_H
#define HOKKU_HUB_WAIT_H

#include "hub/hub.h"

void hub_note(const struct hub_options *o, const char *line);
// True and ERR_INTERRUPTED when the user has asked to stop.
bool hub_cancelled(const struct hub_options *o, struct error *err);
bool hub_pause(const struct hub_options *o, double seconds, struct error *err);

// Opens path for reading and writing (made with mode 0600, see base/place.h), locked for this
// process alone. While another one has it, says who and waits; *waited tells. The name still means
// what was opened. -1: *err.
int hub_lock(const struct hub_options *o, const char *path, bool *waited, struct error *err);

#endif
