// Products of a tile of quantised weights and many tokens. Weights are unpacked and stay in the
// order of their row; the lanes of a register are tokens, whose activations are packed for that, so
// that one load of either meets several of the other.
#ifndef HOKKU_CPU_TILES_H
#define HOKKU_CPU_TILES_H

#include "cpu/kernels.h"
#include "cpu/simd.h"

// The activations of VF_LANES tokens are packed so: for each lane of a v16 (see matmul.c) and each
// block of CPU_PAD the 16 elements of that lane in pairs, q[16][n_blocks][8][VF_LANES][2]; then
// scale[n_blocks][VF_LANES] and sum[16][n_blocks][VF_LANES].

// So many rows by so many columns of a matrix are unpacked at a time, for up to so many tokens.
enum { TILE_ROWS = 12, TILE_COLS = 1024, TILE_TOKENS = 128 };
enum { TILE_TOTALS = 16 }; // TILE_ROWS, rounded up to whole registers

// Weights that are needed next: asked for in small parts while others are multiplied.
struct next {
    const uint8_t *at; // may lie beyond what there is
    size_t step;
};

// n_bytes at p, in n parts
INLINE struct next next_of(const uint8_t *p, size_t n_bytes, size_t n)
{
    return (struct next){p, (n_bytes / n + 63) / 64 * 64};
}

INLINE void fetch_next(struct next *next)
{
    for (size_t i = 0; i < next->step; i += 64)
        __builtin_prefetch(next->at + i, 0, 2);
    next->at += next->step;
}

struct tile {
    int16_t q[TILE_ROWS][TILE_COLS];        // 32 even ones, then 32 odd ones of each 64
    float scale[TILE_ROWS][TILE_COLS / 16]; // weight = scale * q + min
    float min[TILE_ROWS][TILE_COLS / 16];
    struct next next;
};

// The lanes of a v16, for VF_LANES tokens each.
struct tile_sums {
    _Alignas(64) float sum[TILE_TOKENS / VF_LANES][16][TILE_ROWS][VF_LANES];
};

// Adds the tile's first n_rows rows, n_groups times 16 elements of each, times the activations
// packed at x, of whose n_blocks the tile begins with first_block, to the sums of n_tok tokens, a
// multiple of VF_LANES; first_block 0 begins the sums. Rows up to the next even number are
// computed, too.
void CPU_NAME(tile_product)(struct tile *t, size_t n_rows, size_t n_groups, bool has_min,
                            const uint8_t *x, size_t n_blocks, size_t first_block, size_t n_tok,
                            struct tile_sums *s);
// How often that fetches from t->next for n_tok tokens and TILE_ROWS rows.
size_t CPU_NAME(tile_fetches)(size_t n_tok);
// The sums of n_rows rows for VF_LANES tokens, as v16_sum adds them.
void CPU_NAME(tile_totals)(const struct tile_sums *s, size_t tokens, size_t n_rows,
                           float out[VF_LANES][TILE_TOTALS]);

#endif
