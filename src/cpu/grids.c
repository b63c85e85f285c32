#include "cpu/grids.h"

#include <pthread.h>

#include "gguf/quant.h"

struct cpu_grids cpu_grids;

static void expand8(uint32_t type, uint64_t *entries, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        entries[i] = quant_grid(type, i);
}

static void expand4(uint32_t type, uint32_t *entries, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        entries[i] = (uint32_t)quant_grid(type, i);
}

static void expand(void)
{
    struct cpu_grids *g = &cpu_grids;
    expand8(QUANT_IQ2_XXS, g->iq2_xxs, sizeof g->iq2_xxs / sizeof *g->iq2_xxs);
    expand8(QUANT_IQ2_XS, g->iq2_xs, sizeof g->iq2_xs / sizeof *g->iq2_xs);
    expand8(QUANT_IQ2_S, g->iq2_s, sizeof g->iq2_s / sizeof *g->iq2_s);
    expand8(QUANT_IQ1_S, g->iq1, sizeof g->iq1 / sizeof *g->iq1);
    expand4(QUANT_IQ3_XXS, g->iq3_xxs, sizeof g->iq3_xxs / sizeof *g->iq3_xxs);
    expand4(QUANT_IQ3_S, g->iq3_s, sizeof g->iq3_s / sizeof *g->iq3_s);
    expand4(QUANT_Q2_0, g->q2_0, sizeof g->q2_0 / sizeof *g->q2_0);
}

void cpu_grids_expand(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, expand);
}
