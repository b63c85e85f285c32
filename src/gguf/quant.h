// The weight types of a GGUF file (blocks.h) by name and number, and the reference dequantisation:
// the engines have their own fast paths and are tested against it.
#ifndef HOKKU_GGUF_QUANT_H
#define HOKKU_GGUF_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gguf/blocks.h"

#ifdef __cplusplus
extern "C" {
#endif

struct quant_info {
    const char *name;     // "Q4_K"; NULL: not a type that exists
    uint32_t block_elems; // weights per block
    uint32_t block_bytes;
    bool supported; // false: known by name only, refused with a message
};

// Never NULL; an unknown number gives an entry with name NULL.
const struct quant_info *quant_info(uint32_t type);

// "F32, F16, ..." for error messages.
const char *quant_supported_list(void);

// Bytes of one row of n_elems weights; 0 when n_elems is not a multiple of the block or on
// overflow.
size_t quant_row_bytes(uint32_t type, uint64_t n_elems);

// Dequantises n_elems weights (a multiple of the block) from src (unaligned is fine) to dst
// (n_elems).
void quant_dequantize(uint32_t type, const void *src, float *dst, size_t n_elems);

// The weights of one block as integers, and a scale per 16 of them: weight i is scale[i / 16] *
// q[i], to the bit. q (weights of a block), scale (a 16th of that).
typedef void quant_decode_fn(const void *block, int8_t *q, float *scale);
enum { QUANT_MAX_BLOCK = 256 }; // weights

// NULL for types whose weights are no codes: they have minima, or scales apart.
quant_decode_fn *quant_decoder(uint32_t type);

// The weights that an index into the type's grid stands for, of IQ2 and IQ3 before their signs: a
// byte each, the first in the lowest. Eight (IQ2_XXS, IQ2_XS, IQ2_S, and IQ1_S: with a delta of
// +1/8, times 8) or four (IQ3_XXS, IQ3_S, and Q2_0, whose index is a byte of the file); 0 for other
// types. index: within the grid.
uint64_t quant_grid(uint32_t type, uint32_t index);

float quant_f16_to_f32(uint16_t h);
uint16_t quant_f32_to_f16(float f); // round to nearest even, overflow to infinity
float quant_bf16_to_f32(uint16_t h);

#ifdef __cplusplus
}
#endif
#endif
