// The kernels of one instruction set: the names carry its suffix (CPU_NAME). Tables of them are in
// kernels_isa.c.
#ifndef HOKKU_CPU_KERNELS_ISA_H
#define HOKKU_CPU_KERNELS_ISA_H

#include "cpu/kernels.h"
#include "cpu/simd.h"

void CPU_NAME(matmul)(const struct cpu_matmul *m, uint32_t row0, uint32_t row1);
void CPU_NAME(quantize)(const struct cpu_act *a, size_t tok);
void CPU_NAME(pack)(const struct cpu_act *a, size_t tok, size_t n);
void CPU_NAME(rms_norm)(const float *x, const float *w, const float *b, float eps, size_t n,
                        float *y);
void CPU_NAME(layer_norm)(const float *x, const float *w, const float *b, float eps, size_t n,
                          float *y);
void CPU_NAME(activate)(enum activation act, const struct xielu *xielu, float *gate,
                        const float *up, size_t n);
void CPU_NAME(softcap)(float *x, float scale, float c, size_t n);
void CPU_NAME(remember)(float *s, size_t n_state, size_t n, float decay, const float *b,
                        const float *x, const float *c, float *y);
void CPU_NAME(rope)(float *x, const float *cos_sin, size_t n_pairs, enum rope_layout layout);
void CPU_NAME(kv_store)(const struct cpu_kv_layer *kv, uint32_t kv_head, size_t pos, const float *k,
                        const float *v);
void CPU_NAME(attend)(struct cpu_attn_split *a);
void CPU_NAME(attn_merge)(struct cpu_attn_part *a, float *ao, const struct cpu_attn_part *b,
                          const float *bo, size_t n);
uint64_t CPU_NAME(read)(const void *p, size_t n_bytes);

extern const struct cpu_kernels CPU_NAME(cpu_kernels);

#endif
