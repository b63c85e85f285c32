// The products of gemm_hopper.cuh whose chunks are long: the fastest for a prompt.
#include "gemm_hopper.cuh"

void gemm_scratch(int n_sm, struct gemm_scratch *out)
{
    out->counters = out->partial = 0;
    for (int bn : {64, 128, 256}) {
        size_t blocks = (size_t)n_sm * blocks_per_sm(bn);
        size_t partial = N_SLOT<false> * blocks * BLOCK_ROWS * bn * sizeof(float);
        out->partial = out->partial > partial ? out->partial : partial;
        const size_t counters = blocks * N_WARP * sizeof(uint32_t);
        out->counters = out->counters > counters ? out->counters : counters;
    }
}

// What a step of a tile takes, beside another block of the same multiprocessor where it has room
// for two, and without: as measured with products of 64 to 512 columns, in hundredths of the
// widest.
struct width {
    uint32_t bn, beside, alone;
};
static const struct width widths[] = {{64, 95, 60}, {128, 72, 72}, {256, 100, 100}};

// How n_row_tile tiles of 128 rows are multiplied, and what that takes.
struct choice {
    uint32_t bn;
    uint64_t takes;
};

static struct choice by_width(const struct queue *q, const struct gemm *g,
                              const struct row_cut *row, uint32_t n_row_tile, const struct width *w)
{
    const uint32_t most = (uint32_t)(q->n_sm * blocks_per_sm((int)w->bn));
    const struct deal d = deal_sooner(n_row_tile * div_up(g->n, w->bn), *row, (int)w->bn, most);
    const uint64_t late = d.n_late * (uint64_t)w->alone;
    return {w->bn, d.n_block > (uint32_t)q->n_sm ? (d.n_step - d.n_late) * w->beside + late
                                                 : (uint64_t)d.n_step * w->alone};
}

static struct choice soonest(const struct queue *q, const struct gemm *g, const struct row_cut *row,
                             uint32_t n_row_tile)
{
    struct choice best = {};
    for (const struct width &w : widths) {
        const struct choice c = by_width(q, g, row, n_row_tile, &w);
        if (!best.bn || c.takes < best.takes)
            best = c;
    }
    return best;
}

static bool launch_rows(const struct queue *q, const struct gemm *g, struct cut c,
                        uint32_t row_tile0, uint32_t n_row_tile, uint32_t bn, struct error *err)
{
    c.row_tile0 = row_tile0;
    c.n_row_tile = n_row_tile;
    return bn == 256   ? launch_tiles<256, false>(q, g, &c, err)
           : bn == 128 ? launch_tiles<128, false>(q, g, &c, err)
                       : launch_tiles<64, false>(q, g, &c, err);
}

bool gemm_hopper_launch(const struct queue *q, const struct gemm *g, struct error *err)
{
    enum { LAUNCH = 200 }; // what another launch takes
    const struct cut c = cut_of(g, gemm_long_cut(g));
    const uint32_t all = c.n_row_tile, n_sm = (uint32_t)q->n_sm;
    // All rows at once; or as many as are whole turns of all blocks, and then the others.
    struct choice first = soonest(q, g, &c.row, all), rest = {};
    uint32_t n_first = all;
    uint64_t least = first.takes;
    for (const struct width &w : widths) {
        const uint32_t n_col_tile = div_up(g->n, w.bn), n = n_sm * blocks_per_sm((int)w.bn);
        const uint32_t whole = all * n_col_tile / n * n / n_col_tile;
        if (whole == 0 || whole == all)
            continue;
        const struct choice one = by_width(q, g, &c.row, whole, &w);
        const struct choice other = soonest(q, g, &c.row, all - whole);
        if (one.takes + other.takes + LAUNCH < least) {
            first = one, rest = other, n_first = whole;
            least = one.takes + other.takes + LAUNCH;
        }
    }
    return launch_rows(q, g, c, 0, n_first, first.bn, err) &&
           (n_first == all || launch_rows(q, g, c, n_first, all - n_first, rest.bn, err));
}
