// Matrix times more columns than gemm_few.cu is fast for, to the same bits.
#include "gemm_hopper.cuh"

size_t gemm_wide_partial(int n_sm)
{
    size_t most = 0;
    for (int bn : {32, 64, 128}) {
        const size_t n =
            (size_t)GEMM_CHUNKS * n_sm * blocks_per_sm(bn) * BLOCK_WARPS * WARP_ROWS * bn;
        most = most > n ? most : n;
    }
    return most * sizeof(float);
}

template <int BN, int N_WARP = BLOCK_WARPS>
static bool launch(const struct queue *q, const struct gemm *g, struct error *err)
{
    struct cut c = cut_of(g, gemm_row_cut(g->w[0].n_cols), N_WARP);
    return launch_tiles<BN, true, N_WARP>(q, g, &c, false, err);
}

// Whether blocks would be so few that some multiprocessors have one and others two.
static bool is_uneven(const struct queue *q, const struct gemm *g)
{
    const struct cut c = cut_of(g, gemm_row_cut(g->w[0].n_cols));
    const uint32_t share = lesser(c.row.n_chunk, (uint32_t)MAX_SHARE);
    return c.first_row_tile[g->n_part] * share < (uint32_t)(q->n_sm * blocks_per_sm(32));
}

bool gemm_wide_launch(const struct queue *q, const struct gemm *g, struct error *err)
{
    if (g->n <= 32)
        return is_uneven(q, g) ? launch<32, FEWEST_WARPS>(q, g, err) : launch<32>(q, g, err);
    return g->n <= 64 ? launch<64>(q, g, err) : launch<128>(q, g, err);
}
