// The table of kernels that exists once per instruction set, and the layouts they work on.
//
// Every kernel gives the same bits on every instruction set, and a token's result does not depend
// on which other tokens are computed in the same call: the order of each sum is fixed by the shape
// of the matrix alone.
#ifndef HOKKU_CPU_KERNELS_H
#define HOKKU_CPU_KERNELS_H

#include <math.h>

#include "model/model.h"

enum {
    CPU_PAD = 256,   // activations per block; rows are padded with zeros to whole blocks
    CPU_PACKED = 16, // rows from which on products with quantised weights take them packed ...
    CPU_PACKED_BYTES = CPU_PAD * 2 + 4 + CPU_PAD / 16 * 4, // ... and a block's bytes of one row
    CPU_KV_BLOCK = 16,                                     // positions whose keys are interleaved
    // Positions that one softmax part covers; parts are merged in order. A block of the KV cache,
    // too, so that a part lies in one piece.
    CPU_ATTN_SPLIT = 256
};

// The root of a sum of squares, by which numbers are divided. Squares are infinite long before what
// was squared is: then a quotient must not be 0, which would pass for a result, but NaN, which
// arrives in the logits (see engine/finite.h).
static inline float cpu_root(float squares)
{
    return isinf(squares) ? NAN : sqrtf(squares);
}

enum cpu_isa { CPU_ISA_AUTO, CPU_ISA_PLAIN, CPU_ISA_AVX2, CPU_ISA_AVX512 };

// The inputs of matrix products: n_tok rows of n_cols activations. Quantised weights are
// multiplied with a 16-bit fixed-point copy (8 bits would lose more than the accuracy promised):
// each block of CPU_PAD has its own scale, largest magnitude = CPU_ACT_TOP. Within 64 elements the
// 32 even ones come first, then the 32 odd ones (see w64 in simd.h).
enum { CPU_ACT_TOP = 127 * 256 + 127 }; // so that both bytes may be signed (decode_avx512.c)
struct cpu_act {
    uint32_t n_cols, n_pad; // n_pad = n_cols rounded up to CPU_PAD
    float *f;               // (n_tok, n_pad), zeros after n_cols
    int16_t *q;             // (n_tok, n_pad)
    float *scale;           // (n_tok, n_pad / CPU_PAD)
    float *sum;             // (n_tok, n_pad / 16): scale * sum of q, for the minima of weights
    uint8_t *packed; // (n_tok, n_pad / CPU_PAD, CPU_PACKED_BYTES): q, scale and sum, see tiles.h
};

// y = W x (+ bias) (+ y itself when accumulate), for n_tok rows of x
struct cpu_matmul {
    const struct weight *w;
    const struct cpu_act *x;
    const float *bias; // (w->rows) or NULL
    float *y;          // (n_tok, y_stride)
    size_t y_stride;
    size_t n_tok;
    bool accumulate;
};

// How keys or values are stored. KV_F16 asks for 16 bits each: whole numbers with a scale per
// group, which are some ten times as exact as half floats. Even so, keys of a model with float
// weights stay floats: scores magnify their error beyond the accuracy promised for such models.
enum cpu_kv { CPU_KV_F32, CPU_KV_I16, CPU_KV_I8 };

// One layer's keys and values as stored, with a float scale (F32: 1) per group of up to 32
// dimensions of one position. For a KV head h: keys at k + h * k_head_bytes, in blocks of
// CPU_KV_BLOCK positions; a block holds for each group 16 scales, one per position, then per
// dimension 16 values. Values at v + h * v_head_bytes, v_row_bytes per position: the scales of the
// groups, then the dimensions, padded with zeros to a multiple of 16.
struct cpu_kv_layer {
    uint8_t *k, *v;
    size_t k_head_bytes, k_block_bytes, v_head_bytes, v_row_bytes;
    enum cpu_kv type_k, type_v; // values: I16 or I8
    uint32_t n_head, head_dim, value_dim;
    bool one;  // values are the first value_dim numbers of keys: v is not there
    bool near; // see engine/windows.h
};

// The part of one query's attention over one split: softmax numerator sums relative to max.
struct cpu_attn_part {
    float max, sum; // sum 0: no position of the split is visible
};

// Up to 8 queries of the same KV head over positions [split, split + CPU_ATTN_SPLIT).
struct cpu_attn_split {
    const struct cpu_kv_layer *kv;
    uint32_t kv_head;
    int n_query;             // 1 to 8
    const float *q[8];       // (head_dim)
    size_t first[8], end[8]; // visible positions of each query
    float scale;             // of the scores, which then become ...
    float softcap;           // ... c tanh(score / c); 0: they do not
    size_t split;            // a multiple of CPU_ATTN_SPLIT
    size_t at;               // where it lies in the cache: another one
    struct cpu_attn_part part[8];
    float *out[8]; // (value_dim rounded up to 16): sum of weights * values
};

struct cpu_kernels {
    const char *name; // "AVX-512 VNNI"
    // Rows [row0, row1) of the product.
    void (*matmul)(const struct cpu_matmul *m, uint32_t row0, uint32_t row1);
    // Fills q, scale and sum of row `tok` from f.
    void (*quantize)(const struct cpu_act *a, size_t tok);
    // Packs rows [tok, tok + n), for products that begin at row tok, or a multiple of CPU_PACKED
    // before it, and have CPU_PACKED rows or more. As many as fill no register are left out.
    void (*pack)(const struct cpu_act *a, size_t tok, size_t n);
    // Both (see enum norm_kind) of x to y, (n); y may be x, b NULL, w of rms_norm too: ones
    void (*rms_norm)(const float *x, const float *w, const float *b, float eps, size_t n, float *y);
    void (*layer_norm)(const float *x, const float *w, const float *b, float eps, size_t n,
                       float *y);
    // gate = act(gate) * up, (n); up NULL: act(gate). xielu: of ACT_XIELU
    void (*activate)(enum activation act, const struct xielu *xielu, float *gate, const float *up,
                     size_t n);
    // x = c tanh(scale * x / c), (n); c = 0: scale * x
    void (*softcap)(float *x, float scale, float c, size_t n);
    // One head's state s (n_state, n) of a selective state space takes up a token x (n), and
    // answers to c: s = decay s + b x^T, y (n) += s^T c; b, c (n_state)
    void (*remember)(float *s, size_t n_state, size_t n, float decay, const float *b,
                     const float *x, const float *c, float *y);
    // Rotates one head's first 2 * n_pairs elements: cos_sin (n_pairs, 2)
    void (*rope)(float *x, const float *cos_sin, size_t n_pairs, enum rope_layout layout);
    // Stores the key and value of one KV head at a place of the cache: k (head_dim), v (value_dim)
    void (*kv_store)(const struct cpu_kv_layer *kv, uint32_t kv_head, size_t at, const float *k,
                     const float *v);
    void (*attend)(struct cpu_attn_split *a);
    // Merges part b (numerators bo) into part a (ao): n dimensions
    void (*attn_merge)(struct cpu_attn_part *a, float *ao, const struct cpu_attn_part *b,
                       const float *bo, size_t n);
    // Sum over bytes, for measuring the read bandwidth; n_bytes a multiple of 256.
    uint64_t (*read)(const void *p, size_t n_bytes);
};

// The best this machine runs, or exactly `isa`; NULL when the machine or the build lacks it.
const struct cpu_kernels *cpu_kernels_get(enum cpu_isa isa);

#endif
