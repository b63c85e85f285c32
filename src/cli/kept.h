// A model and its engine that stay open from one call of a process to the next, while both want the
// same: the file as it was, and an engine opened in the same way.
#ifndef HOKKU_CLI_KEPT_H
#define HOKKU_CLI_KEPT_H

#include "cli/program.h"

struct kept { // zeroed: nothing
    // The model, its engine and the name that it was opened by; while a call has them, it owns
    // them.
    struct opened opened;
    // Of what was opened last, also while a call has it.
    struct buf identity; // of the files: device, inode, size, times of the last change
    const struct engine_backend *backend;
    struct engine_params params;
    double began, load_s; // opening it, and what that took
};

// Gives m the model of the file m->path, if that is what is kept; else lets go of what is kept.
bool kept_take_model(struct kept *k, struct opened *m);
void kept_note_model(struct kept *k, const struct opened *m); // that it was opened anew
// The same of the engine of m->model.
bool kept_take_engine(struct kept *k, struct opened *m, const struct engine_backend *backend,
                      const struct engine_params *params);
void kept_note_engine(struct kept *k, const struct engine_backend *backend,
                      const struct engine_params *params);
// Takes back what a call has no more use for; m is empty then. What has no engine is not kept.
void kept_give(struct kept *k, struct opened *m);
void kept_release(struct kept *k);

#endif
