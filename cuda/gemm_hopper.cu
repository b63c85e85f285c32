// The products of gemm_hopper.cuh whose sums are not kept apart: the fastest for a prompt.
#include "gemm_hopper.cuh"

void gemm_scratch(int n_sm, struct gemm_scratch *out)
{
    out->counters = out->partial = 0;
    for (int bn : {32, 64, 128, 256}) {
        size_t blocks = (size_t)n_sm * blocks_per_sm(bn);
        size_t partial = 2 * blocks * BLOCK_ROWS * bn * sizeof(float);
        out->partial = out->partial > partial ? out->partial : partial;
        if (out->counters < blocks * sizeof(uint32_t))
            out->counters = blocks * sizeof(uint32_t);
    }
}

static const struct {
    uint32_t bn, cost; // of a column, as estimated from products of 512 columns
} widths[] = {{64, 150}, {128, 115}, {256, 100}};

// Whether tiles of 128 columns are so many that most blocks have one and none has two, and their
// rows so short that what is lost by the others is less than it takes to add shared tiles up
// (measured with 28 and 148 steps).
static bool has_one_each(const struct queue *q, const struct gemm *g, const struct cut *c)
{
    enum { MOST_STEPS = 40 };
    const uint32_t n_tile = c->first_row_tile[g->n_part] * div_up(g->n, 128u);
    return c->row.n_step <= MOST_STEPS && n_tile <= (uint32_t)q->n_sm &&
           5 * n_tile >= 4 * (uint32_t)q->n_sm;
}

bool gemm_hopper_launch(const struct queue *q, const struct gemm *g, struct error *err)
{
    const uint32_t n_step = div_up(g->w[0].n_cols, (uint32_t)GEMM_PACK_COLS);
    struct cut c = cut_of(g, {n_step, 1, n_step});
    // Wide tiles move fewer activations and widen fewer weights, but columns beyond n are wasted
    // and there must be tiles enough for all.
    uint32_t best = 0;
    uint64_t best_cost = 0;
    for (const auto &w : widths) {
        uint32_t n_col_tile = div_up(g->n, w.bn);
        uint64_t cost = (uint64_t)n_col_tile * w.bn * w.cost;
        bool enough = 4 * c.first_row_tile[g->n_part] * n_col_tile >= (uint32_t)q->n_sm;
        if (!best || (enough && cost < best_cost)) {
            best = w.bn;
            best_cost = cost;
        }
    }
    if (best == 256 && has_one_each(q, g, &c))
        return launch_tiles<128, false>(q, g, &c, err);
    if (best == 256)
        return launch_tiles<256, false>(q, g, &c, err);
    if (best == 128)
        return launch_tiles<128, false>(q, g, &c, err);
    return launch_tiles<64, false>(q, g, &c, err);
}
