// The draft model that --model-draft names, opened beside the model that it guesses for.
#ifndef HOKKU_CLI_DRAFT_MODEL_H
#define HOKKU_CLI_DRAFT_MODEL_H

#include "cli/program.h"

// Whether the options ask for one: named, and guesses may come from it.
bool draft_wanted(const struct program *p);
// What its engine would take beside one with the plan that is given. Errors: as draft_open.
bool draft_plan(const struct program *p, const struct opened *m, const struct device_choice *d,
                const struct engine_params *params, const struct engine_plan *beside,
                struct engine_plan *plan, struct error *err);
// Opens it on the same device, before the engine of m is: with the context that that one will have,
// or what fits. Errors: ERR_MODEL: its vocabulary is another one; those of model_load and of the
// device.
bool draft_open(const struct program *p, struct opened *m, const struct device_choice *d,
                const struct engine_params *params, struct error *err);
void draft_release(struct opened_draft *d); // zeroed is fine

#endif
