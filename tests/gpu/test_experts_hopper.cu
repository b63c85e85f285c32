// Products of many rows with the matrices of chosen experts on compute capability 9.0, against a
// plain reference in double; a row has the same bits in any company.
#include "expert_case.h"

static double top_of(const std::vector<float> &x, size_t from, uint32_t n)
{
    double top = 0;
    for (uint32_t i = 0; i < n; i++)
        top = fmax(top, fabs(x[from + i]));
    return top;
}

// Weighed rows, of very different sizes, and biases; what a row gives, in any company and width.
static void stored_on_hopper(struct random_stream &r, uint32_t type, uint32_t n, uint32_t n_expert,
                             uint32_t n_used, uint32_t rows, uint32_t n_cols, uint32_t per_item,
                             int kind)
{
    static const float sizes[] = {1.0f, 1e5f, 1e-6f, 100.0f};
    half_stack w(r, type, n_expert, rows, n_cols);
    hopper_case c(r, n, n_expert, n_used, kind);
    std::vector<float> x = r.floats(n * n_cols);
    for (size_t i = 0; i < x.size(); i++)
        x[i] *= sizes[i / n_cols % 4];
    const std::vector<float> bias = r.floats(n_expert * rows), weight = r.floats(c.n_pair);
    device_array<float> dx(x), db(bias), dw(weight);
    struct expert_pack p = {};
    p.x = dx.p;
    p.n_cols = n_cols;
    p.weight = dw.p;
    struct expert_gemm m = {};
    m.w[0] = w.w;
    m.bias[0] = db.p;
    const std::vector<float> got = c.run(per_item, n, p, m);
    for (uint32_t i = 0; i < c.n_pair; i++) {
        const size_t from = (size_t)(i / n_used) * n_cols;
        const double top = top_of(x, from, n_cols) * fabs(weight[i]);
        for (uint32_t row = 0; row < rows; row++) {
            const uint32_t e = c.chosen[i];
            double size;
            const double want =
                weight[i] * w.product(e, row, &x[from], &size) + bias[e * rows + row];
            check(fabs(got[(size_t)i * rows + row] - want) <= w.error_of(e, row, top),
                  "%s, %u of %u: %g, expected %g", quant_info(type)->name, row, i,
                  got[(size_t)i * rows + row], want);
        }
    }
    const int n_sm = Q.n_sm;
    Q.n_sm = 1; // two blocks at most: what is brought goes on from tile to tile
    const std::vector<float> by_few = c.run(per_item, n, p, m);
    Q.n_sm = n_sm;
    check(by_few == got, "%s: other bits from blocks of several tiles", quant_info(type)->name);
    const uint32_t fewer = div_up(n, 3u);
    const std::vector<float> again = c.run(per_item == 32 ? 128 : 32, fewer, p, m);
    check(std::equal(again.begin(), again.end(), got.begin()),
          "%s: other bits among %u rows than among %u", quant_info(type)->name, fewer, n);
    for (uint32_t few : {1u, 3u, (uint32_t)EXPERT_FEW_ROWS}) {
        if (few > n)
            break;
        check(expert_few_rows(&Q, n_cols, few, few) == few, "no room for %u rows", few);
        // teams of four warps and of two, and warps alone, as there is room for
        const int n_tile = (int)(div_up(rows, 16u) * expert_items(n_expert, few * n_used, few));
        for (int sms : {n_tile, (n_tile + 7) / 8, 0}) {
            Q.n_sm = sms;
            const std::vector<float> those = c.run_few(few, p, m);
            check(std::equal(those.begin(), those.end(), got.begin()),
                  "%s: other bits by expert_few of %u rows", quant_info(type)->name, few);
        }
        Q.n_sm = n_sm;
        const std::vector<float> ready = c.run_few(few, p, m, true);
        check(std::equal(ready.begin(), ready.end(), got.begin()),
              "%s: other bits by expert_few of %u rows made before", quant_info(type)->name, few);
    }
}

// All rows with the first matrix, in order.
static void ungrouped_on_hopper(struct random_stream &r, uint32_t n, uint32_t per_item)
{
    const uint32_t rows = 75, n_cols = 160;
    half_stack w(r, QUANT_Q5_1, 1, rows, n_cols);
    const std::vector<float> x = r.floats(n * n_cols);
    device_array<float> dx(x), undo(n), y(n * rows);
    device_array<__half> packed(expert_pack_bytes(n, n_cols) / 2);
    struct expert_pack p = {};
    p.x = dx.p;
    p.n_cols = n_cols;
    p.n_used = 1;
    p.n_place = n;
    p.out = packed.p;
    p.undo = undo.p;
    must(expert_pack_launch(&Q, &p, n, &ERR));
    struct expert_gemm m = {};
    m.w[0] = w.w;
    m.y = y.p;
    m.n_slot = div_up(n, per_item);
    m.n_place = n;
    m.per_item = per_item;
    m.x = packed.p;
    m.undo = undo.p;
    must(expert_hopper_launch(&Q, &m, &ERR));
    const std::vector<float> got = y.get();
    for (uint32_t i = 0; i < n * rows; i++) {
        double size;
        const double want = w.product(0, i % rows, &x[i / rows * n_cols], &size);
        check(fabs(got[i] - want) <= w.error_of(0, i % rows, top_of(x, i / rows * n_cols, n_cols)),
              "ungrouped, %u: %g, expected %g", i, got[i], want);
    }
    m.n_place = m.per_item = lesser(n, (uint32_t)EXPERT_FEW_ROWS);
    m.n_slot = 1;
    m.x = nullptr;
    m.rows = dx.p;
    m.ld = n_cols;
    y.spoil();
    must(expert_few_launch(&Q, &m, &ERR));
    const std::vector<float> few = y.get();
    check(std::equal(few.begin(), few.begin() + m.n_place * rows, got.begin()),
          "ungrouped, %u: other bits by expert_few", n);
}

static void products_on_hopper_agree(void)
{
    if (!Q.hopper) // these kernels run nowhere else
        return;
    struct random_stream r = {47};
    const uint32_t widths[] = {64, 32, 128, 256};
    uint32_t i = 0;
    for (uint32_t type : ALL_TYPES) {
        if (type == QUANT_F32)
            continue;
        const uint32_t n_cols = columns(type, i % 2 ? 300 : 160);
        for (uint32_t k = 0; k < (quick() ? 1 : 4); k++) {
            const uint32_t width = widths[(i + k) % 4];
            stored_on_hopper(r, type, width + 13, 5, 2, 75, n_cols, width, (int)((i + k) / 4 % 3));
        }
        i++;
    }
    ungrouped_on_hopper(r, 75, 32);
    ungrouped_on_hopper(r, 75, 64);
    // on both sides of the widths of products, and more than one item
    for (uint32_t n : {1u, 33u, 64u, 65u, 96u, 97u, 128u, 160u, 161u, 192u, 224u, 255u, 256u, 300u})
        if (!quick() || n % 4 == 0)
            ungrouped_on_hopper(r, n, 256);
    stored_on_hopper(r, QUANT_Q8_0, 3, 40, 2, 200, 64, 32, 0);   // most have no rows
    stored_on_hopper(r, QUANT_MXFP4, 150, 3, 1, 136, 96, 64, 1); // one has all of them
    stored_on_hopper(r, QUANT_MXFP4, 150, 9, 2, 136, 352, 64, 0);
    stored_on_hopper(r, QUANT_Q4_K, 200, 4, 2, 264, 256, 128, 0);
}

// Gate and up of normed rows, then down of what they give, by place.
static void gated_on_hopper(struct random_stream &r, uint32_t type, uint32_t n, uint32_t n_ff,
                            uint32_t n_cols, uint32_t per_item, enum activation act, bool biased)
{
    const uint32_t n_expert = 4, n_used = 2, n_pair = n * n_used;
    half_stack gate(r, type, n_expert, n_ff, n_cols), up(r, type, n_expert, n_ff, n_cols);
    hopper_case c(r, n, n_expert, n_used, 0);
    const std::vector<float> x = r.floats(n * n_cols, 5.0), norm = r.floats(n_cols, 2.0);
    const std::vector<float> bg = r.floats(n_expert * n_ff), bu = r.floats(n_expert * n_ff);
    device_array<float> dx(x), dn(norm), dbg(bg), dbu(bu);
    struct expert_pack p = {};
    p.x = dx.p;
    p.n_cols = n_cols;
    struct expert_gemm m = {};
    m.w[0] = gate.w;
    m.w[1] = up.w;
    m.bias[0] = biased ? dbg.p : nullptr;
    m.bias[1] = biased ? dbu.p : nullptr;
    m.gated = true;
    m.act = act;
    check(expert_act_is_fused(act), "activation %d is not fused", act);
    const std::vector<float> all = c.run(per_item, n, p, m);
    for (bool ready : {false, true}) {
        const std::vector<float> few = c.run_few(5, p, m, ready);
        check(std::equal(few.begin(), few.begin() + 5 * n_used * n_ff, all.begin()),
              "%s gated: other bits by expert_few", quant_info(type)->name);
    }
    p.norm = dn.p;
    p.eps = 0.01f;
    const std::vector<float> got = c.run(per_item, n, p, m);
    for (uint32_t i = 0; i < n_pair; i++) {
        const float *in = &x[(size_t)(i / n_used) * n_cols];
        double squares = 0;
        for (uint32_t k = 0; k < n_cols; k++)
            squares += (double)in[k] * in[k];
        std::vector<float> normed(n_cols);
        for (uint32_t k = 0; k < n_cols; k++)
            normed[k] = (float)(in[k] * norm[k] / sqrt(squares / n_cols + (double)0.01f));
        const double top = top_of(normed, 0, n_cols);
        for (uint32_t row = 0; row < n_ff; row++) {
            const uint32_t e = c.chosen[i];
            double size;
            const double g =
                gate.product(e, row, normed.data(), &size) + (biased ? bg[e * n_ff + row] : 0);
            const double u =
                up.product(e, row, normed.data(), &size) + (biased ? bu[e * n_ff + row] : 0);
            const double slack =
                gate.error_of(e, row, top) * 1.2 * (fabs(u) + 1) +
                up.error_of(e, row, top) * (fabs(gated_by(act, g, 0.0)) + 1.2 * (fabs(g) + 1));
            check(fabs(got[(size_t)i * n_ff + row] - gated_by(act, g, u)) <= slack,
                  "%s gated, %u of %u: %g, expected %g", quant_info(type)->name, row, i,
                  got[(size_t)i * n_ff + row], gated_by(act, g, u));
        }
    }
    std::vector<float> by_place((size_t)n_pair * n_ff);
    const std::vector<uint32_t> places = c.place.get();
    for (uint32_t i = 0; i < n_pair; i++)
        std::copy_n(&got[(size_t)i * n_ff], n_ff, &by_place[(size_t)places[i] * n_ff]);
    half_stack down(r, QUANT_Q8_0, n_expert, n_cols, n_ff);
    device_array<float> dg(by_place);
    p = {};
    p.x = dg.p;
    p.n_cols = n_ff;
    p.by_place = true;
    m = {};
    m.w[0] = down.w;
    const std::vector<float> out = c.run(per_item, n, p, m);
    const std::vector<float> of_five = c.run(per_item, 5, p, m); // other places
    for (bool ready : {false, true})
        check(c.run_few(5, p, m, ready) == of_five, "%s down: other bits by expert_few",
              quant_info(type)->name);
    for (uint32_t i = 0; i < n_pair; i++)
        for (uint32_t row = 0; row < n_cols; row++) {
            double size;
            const double want = down.product(c.chosen[i], row, &got[(size_t)i * n_ff], &size);
            const double slack =
                down.error_of(c.chosen[i], row, top_of(got, (size_t)i * n_ff, n_ff));
            check(fabs(out[(size_t)i * n_cols + row] - want) <= slack,
                  "%s down, %u of %u: %g, expected %g", quant_info(type)->name, row, i,
                  out[(size_t)i * n_cols + row], want);
        }
}

static void gated_products_on_hopper_agree(void)
{
    if (!Q.hopper) // these kernels run nowhere else
        return;
    struct random_stream r = {48};
    gated_on_hopper(r, QUANT_MXFP4, 37, 96, 64, 32, ACT_CLAMPED_SWIGLU, true);
    gated_on_hopper(r, QUANT_Q4_K, 70, 160, 256, 64, ACT_SILU, false);
    gated_on_hopper(r, QUANT_F16, 90, 32, 172, 128, ACT_GELU_TANH, true);
}

// Of a multiprocessor's shared memory at most half: what is left is its first-level cache.
static void items_of_long_rows_have_fewer(void)
{
    struct queue q = Q;
    q.smem_sm = 228 << 10;
    q.smem_max = q.smem_sm - 1024;
    const struct {
        uint32_t n_cols, n, likely, rows;
    } cases[] = {{768, 8, 1, 8},    {768, 12, 2, 8},  {2048, 8, 1, 7},   {4096, 8, 1, 3},
                 {4096, 8, 8, 8},   {7168, 8, 1, 2},  {7168, 8, 16, 8},  {14336, 8, 4, 4},
                 {14336, 8, 16, 4}, {14336, 4, 2, 2}, {14336, 2, 1, 2},  {14336, 1, 1, 1},
                 {28672, 8, 1, 2},  {40000, 8, 8, 1}, {1 << 16, 1, 1, 0}};
    for (const auto &c : cases) {
        const uint32_t rows = expert_few_rows(&q, c.n_cols, c.n, c.likely);
        check(rows == c.rows, "%u columns, %u rows, likely %u: items of %u, expected %u", c.n_cols,
              c.n, c.likely, rows, c.rows);
    }
}

// Where experts have few rows each.
static void large_passes_are_few_where_experts_are_many(void)
{
    const struct {
        uint32_t type, n, n_used, n_expert, per_item;
        bool suits;
    } cases[] = {
        {QUANT_Q4_K, 112, 8, 128, 8, true},  {QUANT_Q4_K, 192, 8, 256, 8, true},
        {QUANT_Q4_K, 193, 8, 512, 8, false}, {QUANT_Q4_K, 56, 8, 64, 8, true},
        {QUANT_Q4_K, 57, 8, 64, 8, false},   {QUANT_Q4_K, 40, 8, 128, 4, true},
        {QUANT_Q4_K, 41, 8, 128, 5, false},  {QUANT_Q4_K, 41, 8, 128, 6, true},
        {QUANT_Q6_K, 64, 8, 256, 8, true},   {QUANT_Q4_K, 13, 2, 8, 4, false},
        {QUANT_MXFP4, 48, 4, 32, 7, true},   {QUANT_MXFP4, 49, 4, 32, 8, false},
        {QUANT_MXFP4, 16, 4, 32, 4, true},   {QUANT_MXFP4, 16, 4, 32, 3, false},
        {QUANT_F16, 40, 8, 128, 8, true},    {QUANT_F16, 41, 8, 128, 8, false},
        {QUANT_IQ3_S, 96, 8, 128, 8, true},  {QUANT_IQ3_S, 97, 8, 128, 8, false},
        {QUANT_Q8_0, 12, 2, 2, 1, true},
    };
    for (const auto &c : cases)
        check(expert_few_suits(c.type, c.n, c.n_used, c.n_expert, c.per_item) == c.suits,
              "%s, %u rows, %u of %u experts, items of %u: expected %s", quant_info(c.type)->name,
              c.n, c.n_used, c.n_expert, c.per_item, c.suits ? "few" : "many");
}

int main(void)
{
    static const tap_test tests[] = {
        {"products agree, and a row has its bits in any company", products_on_hopper_agree},
        {"gated products agree", gated_products_on_hopper_agree},
        {"items of long rows have fewer of them", items_of_long_rows_have_fewer},
        {"larger passes are of few rows where experts are many",
         large_passes_are_few_where_experts_are_many},
    };
    return gpu_test_main(tests);
}
