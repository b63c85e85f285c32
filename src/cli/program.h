// What the ways in share: the options, the terminals, the devices; and the model that is opened.
#ifndef HOKKU_CLI_PROGRAM_H
#define HOKKU_CLI_PROGRAM_H

#include "cli/options.h"
#include "engine/device.h"

struct kept; // cli/kept.h

struct program {
    struct options *opt;
    const struct engine_backend *cpu, *cuda; // cuda NULL: not built in
    struct cancel *cancel;                   // what work polls
    bool stdin_tty, stdout_tty, stderr_tty;
    double began;      // clock_now() when main began
    struct kept *kept; // what stays open between calls; NULL: nothing does
    // Asks others to give memory back, also those that are at work, or only the idle; whether any
    // did. NULL: there is nobody to ask.
    bool (*make_room)(const struct program *p, bool busy_too);
};

struct opened {
    char *path;
    struct model *model;
    struct engine *engine;
    uint32_t n_seqs;      // that the engine is opened for, see engine_params
    uint32_t n_if_exact;  // instead, where no bit depends on it: on the CPU, and with --exact
    struct opened_draft { // what guesses (cli/draft_model.h); zeroed: none
        char *path;       // NULL: the model's own prediction layer
        struct model *model;
        struct engine *engine;
    } draft, predictor;
};

// The model that the options name.
bool open_model(const struct program *p, struct opened *m, struct error *err);
// And what it recommends where the user said nothing; a seed, if none was given.
bool open_model_and_settings(const struct program *p, struct opened *m, struct error *err);
// The engine that they name, and before it those of what guesses, for a context of n_ctx tokens
// (0: what fits). chat: somebody has a conversation, and is told which device it is.
bool open_engine(const struct program *p, struct opened *m, uint32_t n_ctx, bool chat,
                 struct error *err);
// Whether a larger context than there is cannot be had: memory has no room, or the model no more
// positions. asked: open_engine's n_ctx.
bool opened_no_larger(const struct opened *m, uint32_t asked);
// "context 512", or "context 512 of the model's 1024, all that memory has room for".
enum { CONTEXT_TEXT = 96 };
const char *opened_context(const struct opened *m, uint32_t asked, char out[CONTEXT_TEXT]);
// Says that n_ctx, the context asked for, is longer than what the model was trained on, if it is.
void open_say_trained(const struct program *p, const struct opened *m, uint64_t n_ctx);
// Says that nobody is told --think, if that is on the command line, and why: unheard (NULL: the
// model is). hides: what hiding does instead, NULL: nothing.
void open_say_unheard(const struct program *p, const char *think, const char *unheard,
                      const char *hides);
void opened_release(struct opened *m);       // zeroed is fine
void opened_close_engines(struct opened *m); // the model stays
// The same, or gives it to what is kept for the next call.
void opened_leave(const struct program *p, struct opened *m);

// --dry-run: appends what the engine would take. Errors: ERR_MEMORY when it does not fit, with what
// would; the text is whole then.
bool open_plan(const struct program *p, const struct opened *m, struct buf *out, struct error *err);

// A conversation on the terminal: neither one answer nor many.
bool program_is_chat(const struct program *p);
// A saved conversation, which has settings and a seed of its own, is to be gone on with.
bool program_resumes(const struct program *p);

// Styles may be used on a stream that is (tty) a terminal.
bool program_color(const struct program *p, bool tty);
// A line that is written anew as work goes on may be on standard error.
bool program_shows_progress(const struct program *p);

#endif
