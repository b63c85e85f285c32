// The memory plan behind cpu_engine_plan, with the memory there is as a parameter: for tests.
#ifndef HOKKU_CPU_PLAN_H
#define HOKKU_CPU_PLAN_H

#include "engine/engine.h"

// Errors: ERR_MEMORY: none to count in.
bool cpu_plan(const struct model *m, const struct engine_params *p, uint64_t available,
              struct engine_plan *plan, struct error *err);
// ERR_MEMORY: bytes needed and available, and the options that would fit.
bool cpu_plan_error(const struct engine_plan *plan, const struct engine_params *p,
                    struct error *err);

// The blocks of the cache, and those of near layers (engine/windows.h).
uint32_t cpu_n_blocks(uint32_t n_ctx);
uint32_t cpu_n_near(const struct model *m, const struct engine_params *p, uint32_t n_ctx);

// The parameters with their defaults filled in.
uint32_t cpu_n_batch(const struct engine_params *p);
int cpu_n_threads(const struct engine_params *p);
uint64_t cpu_available(const struct engine_params *p); // bytes: memory_available

#endif
