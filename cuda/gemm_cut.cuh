// How the products of gemm_hopper.cuh are cut up: tiles of 128 rows and BN columns, steps of 128
// weights, chunks of steps; who does which.
#ifndef HOKKU_CUDA_GEMM_CUT_CUH
#define HOKKU_CUDA_GEMM_CUT_CUH

#include "block.cuh"
#include "divide.cuh"
#include "gemm.cuh"
#include "ptx_hopper.cuh"

enum {
    HALF = GEMM_PACK_COLS / 2, // what one copy brings: 128 bytes per column
    N_WARP = 8,
    N_THREAD = N_WARP * WARP,
    WARP_ROWS = 16,
    BLOCK_ROWS = N_WARP * WARP_ROWS,
};

// How the work is cut: units of one chunk of one tile, those of a tile in a row, the column tiles
// of a row tile in a row. Tiles of rows that are no more than a chunk may be chained: each block
// does about as many steps, all tiles in a row, and goes on with what the block before it has of a
// tile.
struct cut {
    struct row_cut row;
    uint32_t n_col_tile;
    uint32_t per_block, n_longer;  // steps of a chained block (0: none is); blocks with one more
    uint32_t n_whole;              // tiles that a block does alone
    uint32_t n_shared, n_sharer;   // units of the tiles behind those; blocks that share them
    struct divisor sharers, units; // by n_sharer, n_shared
    struct divisor chunks, steps, col_tiles;       // by what a name counts
    uint32_t first_row_tile[MATVEC_MAX_PARTS + 1]; // of each part
    uint32_t row_tile0, n_row_tile;                // of the launch
    uint32_t n_sm, n_twice; // multiprocessors; how many of them have two blocks
    struct widening w;
};

// ---- kernel (functions that are no templates are unused before 9.0)

// The number of this block: those that share a multiprocessor follow one another, so that it has as
// much to do as any other. (Where blocks go is the driver's: the second ones in the order of the
// first. Were it otherwise, products would take longer.)
template <int BN, bool TOTALS>
static __device__ __forceinline__ uint32_t block_number(const struct cut &c)
{
    if (BN != 64 || TOTALS)
        return blockIdx.x;
    const bool other = blockIdx.x >= c.n_sm;
    const uint32_t sm = blockIdx.x - (other ? c.n_sm : 0);
    return sm < c.n_twice ? 2 * sm + other : c.n_twice + sm;
}

// Of the shared units of a block.
[[maybe_unused]] static __device__ __forceinline__ uint32_t first_unit(const struct cut &c,
                                                                       uint32_t block)
{
    return gridDim.x * c.n_whole * c.row.n_chunk +
           c.sharers.divide(c.n_shared * min(block, c.n_sharer));
}

// Steps before a unit, of all tiles.
[[maybe_unused]] static __device__ __forceinline__ uint32_t first_step(const struct cut &c,
                                                                       uint32_t unit)
{
    const uint32_t row = c.chunks.divide(unit);
    return row * c.row.n_step + (unit - row * c.row.n_chunk) * c.row.chunk;
}

// The block that does a shared unit.
[[maybe_unused]] static __device__ __forceinline__ uint32_t block_of(const struct cut &c,
                                                                     uint32_t unit)
{
    return c.units.divide((unit - first_unit(c, 0) + 1) * c.n_sharer - 1);
}

// Where one warp's rows are: two tiles of eight, rows g and g + 8 of its sixteen. With MATVEC_GATED
// the first is gate's and the second up's, so that a lane gets both factors of an output.
struct rows16 {
    uint32_t part[2], tile[2];
};

[[maybe_unused]] static __device__ __forceinline__ struct rows16
locate(const struct gemm &g, const struct cut &c, uint32_t row_tile, uint32_t warp)
{
    const uint32_t at = c.row_tile0 + row_tile;
    if (g.mode == MATVEC_GATED)
        return {{0, 1}, {at * N_WARP + warp, at * N_WARP + warp}};
    uint32_t part = 0;
    while (part + 1 < g.n_part && at >= c.first_row_tile[part + 1])
        part++;
    uint32_t tile = 2 * ((at - c.first_row_tile[part]) * N_WARP + warp);
    return {{part, part}, {tile, tile + 1}};
}

// What a block does, one after the other: steps [begin, end) of all tiles. The shared ones, then
// its own. Or of a chain: of its last tile what it does of it, which the next block waits for; its
// own; of its first tile the rest.
struct share {
    enum { N = 3 };
    uint32_t begin[N], end[N], n_step;
};

template <int BN, bool TOTALS>
static __device__ __forceinline__ struct share share_of(const struct cut &c)
{
    const uint32_t block = block_number<BN, TOTALS>(c);
    if (c.per_block > 0) {
        const uint32_t begin = block * c.per_block + min(block, c.n_longer);
        const uint32_t end = begin + c.per_block + (block < c.n_longer);
        const uint32_t own = c.steps.divide(begin + c.row.n_step - 1) * c.row.n_step;
        const uint32_t last = c.steps.divide(end) * c.row.n_step;
        return {{last, own, begin}, {end, last, own}, end - begin};
    }
    const uint32_t n_own = c.n_whole * c.row.n_step, own = block * n_own;
    const uint32_t begin = first_step(c, first_unit(c, block));
    const uint32_t end = first_step(c, first_unit(c, block + 1));
    return {{begin, own, 0}, {end, own + n_own, 0}, end - begin + n_own};
}

// Those of one tile that a block does in a row: steps [step0, step1) of it.
struct span {
    uint32_t tile, step0, step1;
};

// From step number `done` of the block's on.
[[maybe_unused]] static __device__ __forceinline__ struct span
span_at(const struct cut &c, const struct share &of, uint32_t done)
{
    uint32_t begin = of.begin[0], end = of.end[0];
#pragma unroll
    for (int i = 1; i < share::N; i++)
        if (done >= end - begin) {
            done -= end - begin;
            begin = of.begin[i], end = of.end[i];
        }
    const uint32_t at = begin + done, tile = c.steps.divide(at), step0 = at - tile * c.row.n_step;
    return {tile, step0, lesser(c.row.n_step, step0 + end - at)};
}

// Row r of one of a warp's two tiles, i; beyond the matrix another, which nobody stores.
template <uint32_t TYPE>
static __device__ __forceinline__ struct tile_row
row_of(const struct gemm &g, const struct rows16 &rows, uint32_t i, uint32_t r)
{
    const struct wmat &w = g.w[i ? rows.part[1] : rows.part[0]];
    return tile_begin<TYPE>(w, min(i ? rows.tile[1] : rows.tile[0], w.n_tile - 1), r);
}

#endif
