// Products of a tile of quantised weights and many tokens. Weights are unpacked and stay in the
// order of their row; the lanes of a register are tokens, whose activations are packed for that, so
// that one load of either meets several of the other.
#ifndef HOKKU_CPU_TILES_H
#define HOKKU_CPU_TILES_H

#include "cpu/kernels.h"
#include "cpu/simd.h"

// VF_LANES tokens' activations of one block of CPU_PAD, as struct cpu_act has them: pairs of q in
// the order of their groups of 16 elements.
struct packed_block {
    int16_t q[CPU_PAD / 2][VF_LANES][2];
    float scale[VF_LANES];
    float sum[CPU_PAD / 16][VF_LANES];
};
_Static_assert(sizeof(struct packed_block) == (size_t)VF_LANES * CPU_PACKED_BYTES, "no holes");

// So many rows by so many columns of a matrix are unpacked at a time, for up to so many tokens.
enum { TILE_ROWS = 12, TILE_COLS = 512, TILE_TOKENS = 64 };

struct tile {
    int16_t q[TILE_ROWS][TILE_COLS];        // 32 even ones, then 32 odd ones of each 64
    float scale[TILE_ROWS][TILE_COLS / 16]; // weight = scale * q + min
    float min[TILE_ROWS][TILE_COLS / 16];
};

// The lanes of a v16, for VF_LANES tokens each.
struct tile_sums {
    float sum[TILE_TOKENS / VF_LANES][TILE_ROWS][16][VF_LANES];
};

// Adds the tile's first n_rows rows, n_groups times 16 elements of each, times the activations at x
// (the next VF_LANES tokens' are x_stride blocks further) to the sums of n_tok tokens, a multiple
// of VF_LANES. Rows up to the next even number are computed, too.
void CPU_NAME(tile_product)(const struct tile *t, size_t n_rows, size_t n_groups, bool has_min,
                            const struct packed_block *x, size_t x_stride, size_t n_tok,
                            struct tile_sums *s);
// The sums of a row for VF_LANES tokens, as v16_sum adds them: out (VF_LANES)
void CPU_NAME(tile_total)(const struct tile_sums *s, size_t tokens, size_t row, float *out);

#endif
