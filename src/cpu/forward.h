// Steps that the files of the forward pass share.
#ifndef HOKKU_CPU_FORWARD_H
#define HOKKU_CPU_FORWARD_H

#include "cpu/cpu.h"

// Runs fn for every token of the chunk. One token is not worth waking a thread.
bool cpu_each_token(struct cpu_engine *e, size_t n, void (*fn)(void *, size_t, int), void *arg);
// m[i].y = m[i].w * m[i].x (+ bias) for n tokens, of at most three matrices that share their input.
bool cpu_multiply(struct cpu_engine *e, const struct cpu_matmul *m, int n_products);
// How many rows of a matrix a thread takes at a time, of n_rows in all that are shared out.
uint32_t cpu_rows_per_item(const struct cpu_engine *e, const struct weight *w, size_t n_rows,
                           size_t n_tok);
// Whether products with it take their input in fixed point (struct cpu_act).
bool cpu_is_quantized(const struct weight *w);
// The first n rows of an input of products, as wide as this layer has it.
struct cpu_act cpu_as_wide_as(const struct cpu_act *a, uint32_t n_cols, size_t n);
// gate = act(gate) * e->up, or act(gate) where up has no gate; what: of the profile
bool cpu_activate(struct cpu_engine *e, const struct layer *l, const struct cpu_act *gate,
                  bool gated, const char *what, size_t n);

// e->branch = what the experts of the layer make of e->normed.
bool cpu_experts(struct cpu_engine *e, const struct layer *l, size_t n);

#endif
