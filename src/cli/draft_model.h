// What guesses for a model, opened beside it: the draft model that --model-draft names, and the
// prediction layer of its own file.
#ifndef HOKKU_CLI_DRAFT_MODEL_H
#define HOKKU_CLI_DRAFT_MODEL_H

#include "cli/program.h"

// Whether the options ask for one: named, and guesses may come from it.
bool draft_wanted(const struct program *p);
// The command line names none beside a --spec that never asks it. (In a configuration either waits
// for another call.) Errors: ERR_USAGE.
bool draft_check(const struct program *p, struct error *err);
// Whether they ask for the prediction layer of m's model, which is loaded: by name, or it has one
// and guesses may come from it.
bool predictor_wanted(const struct program *p, const struct opened *m);
// All of a plan.
uint64_t plan_bytes(const struct engine_plan *plan);

// What the engine of the prediction layer would take beside one with the plan that is given.
// plan->weights 0: it cannot be used, or not beside m's engine, and need not. Errors: as
// predictor_open.
bool predictor_plan(const struct program *p, const struct opened *m, const struct device_choice *d,
                    const struct engine_params *params, const struct engine_plan *beside,
                    struct engine_plan *plan, struct error *err);
// It is not to be used: the model has no room beside it. Errors: that, where --spec names it.
bool predictor_give_up(const struct program *p, struct error *err);
// What the engine of the draft model would take beside one of m with these parameters. Of these the
// context, where it is 0, becomes the largest for which both have room, if there is any. Errors: as
// draft_open.
bool draft_plan(const struct program *p, const struct opened *m, const struct device_choice *d,
                struct engine_params *params, struct engine_plan *plan, struct error *err);
// Opens it on the same device and with the same context, before the engine of m is; not where even
// that one has no room, which says so. Errors: ERR_MODEL: its vocabulary is another one;
// ERR_MEMORY: draft_no_room; those of model_load and of the device.
bool draft_open(const struct program *p, struct opened *m, const struct device_choice *d,
                struct engine_params *params, struct error *err);
bool draft_no_room(struct error *err); // both do not fit: ERR_MEMORY
// Opens the prediction layer, when the engine of m is open, with its context. Where --spec does not
// name it, it may fail: then m has none, and -v says why. Errors: those of model_predictor and of
// the device.
bool predictor_open(const struct program *p, struct opened *m, const struct device_choice *d,
                    const struct engine_params *params, struct error *err);
// The engine of m is open: closes what cannot guess for it, and says so. Errors: ERR_MODEL: --spec
// names what cannot.
bool drafts_check(const struct program *p, struct opened *m, struct error *err);
void draft_release(struct opened_draft *d); // zeroed is fine

#endif
