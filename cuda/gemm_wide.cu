// Matrix times more columns than gemm_few.cu is fast for, to the same bits.
#include "gemm_hopper.cuh"

size_t gemm_wide_partial(int n_sm)
{
    size_t most = 0;
    for (int bn : {32, 64, 128}) {
        const size_t n = (size_t)GEMM_CHUNKS * n_sm * blocks_per_sm(bn) * BLOCK_ROWS * bn;
        most = most > n ? most : n;
    }
    return most * sizeof(float);
}

template <int BN> static bool launch(const struct queue *q, const struct gemm *g, struct error *err)
{
    struct cut c = cut_of(g, gemm_row_cut(g->w[0].n_cols));
    return launch_tiles<BN, true>(q, g, &c, err);
}

bool gemm_wide_launch(const struct queue *q, const struct gemm *g, struct error *err)
{
    return g->n <= 32   ? launch<32>(q, g, err)
           : g->n <= 64 ? launch<64>(q, g, err)
                        : launch<128>(q, g, err);
}
