// Matrix times more columns than gemm_few.cu is fast for, to the same bits.
#include "gemm_hopper.cuh"

size_t gemm_wide_partial(int n_sm)
{
    size_t most = 0;
    for (int bn : {64, 128}) {
        const size_t n = (size_t)GEMM_CHUNKS * n_sm * blocks_per_sm(bn) * BLOCK_ROWS * bn;
        most = most > n ? most : n;
    }
    return most * sizeof(float);
}

bool gemm_wide_launch(const struct queue *q, const struct gemm *g, struct error *err)
{
    struct cut c = cut_of(g, gemm_row_cut(g->w[0].n_cols));
    return g->n <= 64 ? launch_tiles<64, true>(q, g, &c, err)
                      : launch_tiles<128, true>(q, g, &c, err);
}
