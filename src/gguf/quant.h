// The weight types of a GGUF file: block geometry and the reference dequantisation.
// Layouts are facts of the format (GGML type numbering, all little-endian). This is the plain
// reference: the engines have their own fast paths and are tested against it.
#ifndef HOKKU_GGUF_QUANT_H
#define HOKKU_GGUF_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Numbers as stored in the file.
enum quant_type {
    QUANT_F32 = 0,
    QUANT_F16 = 1,
    QUANT_Q4_0 = 2,
    QUANT_Q4_1 = 3,
    QUANT_Q5_0 = 6,
    QUANT_Q5_1 = 7,
    QUANT_Q8_0 = 8,
    QUANT_Q2_K = 10,
    QUANT_Q3_K = 11,
    QUANT_Q4_K = 12,
    QUANT_Q5_K = 13,
    QUANT_Q6_K = 14,
    QUANT_IQ4_NL = 20,
    QUANT_IQ4_XS = 23,
    QUANT_BF16 = 30,
    QUANT_TYPE_MAX = 64, // numbers from here on are refused unnamed
};

struct quant_info {
    const char *name;     // "Q4_K"; NULL: not a type that exists
    uint32_t block_elems; // weights per block: 1, 32 or 256
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

float quant_f16_to_f32(uint16_t h);
uint16_t quant_f32_to_f16(float f); // round to nearest even, overflow to infinity
float quant_bf16_to_f32(uint16_t h);

#ifdef __cplusplus
}
#endif
#endif
