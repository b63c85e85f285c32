// hokku bench: reads its options, opens the model, and measures (bench.h) or plans.
#ifndef HOKKU_TOOLS_BENCH_RUN_H
#define HOKKU_TOOLS_BENCH_RUN_H

#include "cli/program.h"

bool tool_bench_run(const struct program *t, struct buf *out, struct error *err);

#endif
