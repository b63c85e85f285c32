// Mixtures of experts: products with chosen matrices and their sum, against plain references in
// double. (Who is chosen: test_choice.cu.)
#include "expert_case.h"

static void near(const char *what, uint32_t type, uint32_t i, double got, double want, double size)
{
    check(fabs(got - want) <= 3e-5 * size + 1e-6, "%s, %s, %u: %g, expected %g", what,
          quant_info(type)->name, i, got, want);
}

// One row: gate and up, apart and together, of one input; and the sum of rows of their own.
static void one_row(struct random_stream &r, uint32_t type, uint32_t n_expert, uint32_t n_slot,
                    uint32_t rows, uint32_t n_cols, enum activation act)
{
    test_stack gate(r, type, n_expert, rows, n_cols), up(r, type, n_expert, rows, n_cols);
    std::vector<uint32_t> chosen(n_slot);
    for (uint32_t k = 0; k < n_slot; k++)
        chosen[k] = k * n_expert / n_slot;
    const std::vector<float> x = r.floats(n_slot * n_cols), norm = r.floats(n_cols, 2.0);
    const std::vector<float> bg = r.floats(n_expert * rows), bu = r.floats(n_expert * rows);
    const std::vector<float> weight = r.floats(n_slot), shared = r.floats(rows),
                             y0 = r.floats(rows);
    const std::vector<float> half = {0.5f};
    device_array<float> dx(x), dn(norm), dbg(bg), dbu(bu), dw(weight), ds(shared), dy(y0), dh(half),
        y(n_slot * rows);
    device_array<uint32_t> dc(chosen);
    double squares = 0;
    std::vector<float> normed(n_cols);
    for (uint32_t i = 0; i < n_cols; i++)
        squares += (double)x[i] * x[i];
    for (uint32_t i = 0; i < n_cols; i++)
        normed[i] = (float)(x[i] * norm[i] / sqrt(squares / n_cols + (double)0.01f));

    struct expert_row m = {};
    m.mode = EXPERT_GATED;
    m.w[0] = gate.w;
    m.w[1] = up.w;
    m.bias[0] = dbg.p;
    m.bias[1] = dbu.p;
    m.chosen = dc.p;
    m.n_slot = n_slot;
    m.x = dx.p;
    m.norm = dn.p;
    m.eps = 0.01f;
    m.act = act;
    m.xielu = XIELU;
    m.y = y.p;
    check(expert_row_fits(&Q, &m), "%u x %u does not fit", rows, n_cols);
    must(expert_row_launch(&Q, &m, &ERR));
    std::vector<float> got = y.get();
    for (uint32_t i = 0; i < n_slot * rows; i++) {
        const uint32_t e = chosen[i / rows], row = i % rows;
        double sg, su;
        const double g = gate.product(e, row, normed.data(), &sg) + bg[e * rows + row];
        const double u = up.product(e, row, normed.data(), &su) + bu[e * rows + row];
        const double slope = act == ACT_RELU_SQR ? 2 * fabs(g) + 1 : 1.2;
        near("gated", type, i, got[i], gated_by(act, g, u),
             (sg + 1) * slope * (fabs(u) + 1) +
                 (su + 1) * (fabs(gated_by(act, g, 0.0)) + slope * (fabs(g) + 1)));
    }

    m.mode = EXPERT_STORE; // weighed inputs, no norm
    m.norm = nullptr;
    m.weight = dw.p;
    must(expert_row_launch(&Q, &m, &ERR));
    got = y.get();
    for (uint32_t i = 0; i < n_slot * rows; i++) {
        const uint32_t e = chosen[i / rows], row = i % rows;
        double size;
        const double v = weight[i / rows] * gate.product(e, row, x.data(), &size);
        near("stored", type, i, got[i], v + bg[e * rows + row], size + 1);
    }

    m.mode = EXPERT_SUM;
    m.own_rows = true;
    m.weight = nullptr;
    m.sum = {dw.p, ds.p, dh.p, true, 0.25f, dy.p};
    check(expert_row_fits(&Q, &m), "%u rows of %u do not fit", n_slot, n_cols);
    must(expert_row_launch(&Q, &m, &ERR));
    got = dy.get();
    for (uint32_t row = 0; row < rows; row++) {
        double v = shared[row] * 0.5, size, all = 1;
        for (uint32_t k = 0; k < n_slot; k++) {
            v += weight[k] *
                 (gate.product(chosen[k], row, &x[k * n_cols], &size) + bg[chosen[k] * rows + row]);
            all += size;
        }
        near("summed", type, row, got[row], y0[row] + 0.25 * v, all);
    }
}

// The same with a slot more, of matrices that nobody chooses: as gate and up, and first of the sum.
static void one_row_and_shared(struct random_stream &r, uint32_t type, uint32_t n_expert,
                               uint32_t n_used, uint32_t rows, uint32_t n_cols)
{
    const uint32_t n_slot = n_used + 1;
    test_stack gate(r, type, n_expert, rows, n_cols), up(r, type, n_expert, rows, n_cols);
    test_stack shared_gate(r, type, 1, rows, n_cols), shared_up(r, type, 1, rows, n_cols);
    std::vector<uint32_t> chosen(n_used);
    for (uint32_t k = 0; k < n_used; k++)
        chosen[k] = k * n_expert / n_used;
    const std::vector<float> x = r.floats(n_slot * n_cols), bias = r.floats(n_expert * rows);
    const std::vector<float> weight = r.floats(n_used), own = {0.7f};
    device_array<float> dx(x), db(bias), dw(weight), d_own(own), y(n_slot * rows);
    device_array<uint32_t> dc(chosen);
    struct expert_row m = {};
    m.mode = EXPERT_GATED;
    m.w[0] = gate.w;
    m.w[1] = up.w;
    m.w[2] = shared_gate.w;
    m.w[3] = shared_up.w;
    m.shared = true;
    m.bias[1] = db.p;
    m.chosen = dc.p;
    m.n_slot = n_slot;
    m.x = dx.p;
    m.weight = dw.p; // of the chosen ones
    m.y = y.p;
    must(expert_row_launch(&Q, &m, &ERR));
    std::vector<float> got = y.get();
    for (uint32_t i = 0; i < n_slot * rows; i++) {
        const uint32_t k = i / rows, row = i % rows;
        const bool of_all = k == n_used;
        double sg, su;
        const double g = of_all ? shared_gate.product(0, row, x.data(), &sg)
                                : weight[k] * gate.product(chosen[k], row, x.data(), &sg);
        const double u = of_all ? shared_up.product(0, row, x.data(), &su)
                                : weight[k] * up.product(chosen[k], row, x.data(), &su) +
                                      bias[chosen[k] * rows + row];
        near("gated beside a shared one", type, i, got[i], gated_by(ACT_SILU, g, u),
             (sg + 1) * 1.2 * (fabs(u) + 1) + (su + 1) * (1.2 * (fabs(g) + 1)));
    }
    m.mode = EXPERT_SUM;
    m.w[2] = shared_up.w;
    m.bias[0] = db.p;
    m.own_rows = true;
    m.weight = nullptr;
    m.sum = {dw.p, nullptr, d_own.p, false, 1.0f, y.p};
    must(expert_row_launch(&Q, &m, &ERR));
    got = y.get();
    for (uint32_t row = 0; row < rows; row++) {
        double size, all = 1;
        double v = 0.7f * shared_up.product(0, row, &x[n_used * n_cols], &all);
        for (uint32_t k = 0; k < n_used; k++) {
            v += weight[k] * (gate.product(chosen[k], row, &x[k * n_cols], &size) +
                              bias[chosen[k] * rows + row]);
            all += size + 1;
        }
        near("summed with a shared one", type, row, got[row], v, all);
    }
}

static void products_of_one_row_agree(void)
{
    struct random_stream r = {43};
    const enum activation acts[] = {ACT_SILU, ACT_CLAMPED_SWIGLU, ACT_GELU_TANH, ACT_RELU_SQR};
    uint32_t i = 0;
    for (uint32_t type : ALL_TYPES) {
        one_row(r, type, 5, 2, 21, columns(type, 64), acts[i++ % 4]);
        one_row(r, type, 5, 4, 40, columns(type, 160), acts[i++ % 4]);
    }
    for (uint32_t type : {QUANT_Q4_K, QUANT_Q6_K, QUANT_Q8_0, QUANT_F16})
        one_row_and_shared(r, type, 9, 4, 45, columns(type, 512));
    one_row_and_shared(r, QUANT_Q8_0, 40, 33, 8, 64); // more than a warp has lanes
    one_row_and_shared(r, QUANT_Q8_0, 40, 31, 8, 64);
    one_row(r, QUANT_Q8_0, 3, 1, 8, 32, ACT_SILU);
    one_row(r, QUANT_MXFP4, 12, 12, 40, 704, ACT_CLAMPED_SWIGLU);
}

// act(gate) * up, and that quantised, in one launch are the bits that launches of their own give.
static void check_gated(struct expert_rows m, uint32_t type, uint32_t n_place, uint32_t rows)
{
    const size_t n = (size_t)n_place * rows;
    const size_t n_byte = rows % 32 == 0 ? n_place * act_row_bytes(QUANT_Q8_0, rows) : 0;
    device_array<float> want(n), up(n), got(n);
    device_array<uint8_t> want32(n_byte + 1), got32(n_byte + 1);
    m.act = type % 2 ? ACT_CLAMPED_SWIGLU : ACT_SILU;
    m.y[0] = want.p;
    m.y[1] = up.p;
    must(expert_rows_launch(&Q, &m, &ERR));
    must(gate_launch(&Q, m.act, &m.xielu, want.p, up.p, n, &ERR));
    m.gated = true;
    m.y[0] = got.p;
    m.y[1] = nullptr;
    must(expert_rows_launch(&Q, &m, &ERR));
    check(got.get() == want.get(), "type %u, gated by %u: other bits", type, m.per_item);
    if (rows % 32 != 0)
        return;
    must(act_launch(&Q, want.p, n_place, rows, nullptr, 0.0f, want32.p, nullptr, nullptr, &ERR));
    m.y[0] = nullptr;
    m.out32 = got32.p;
    must(expert_rows_launch(&Q, &m, &ERR));
    const std::vector<uint8_t> a = want32.get(), b = got32.get();
    check(std::equal(a.begin(), a.begin() + n_byte, b.begin()),
          "type %u, quantised by %u: other bits", type, m.per_item);
}

// Several rows: of all with one matrix, and grouped, to the sum.
static void rows_of(struct random_stream &r, uint32_t type, uint32_t n, uint32_t n_expert,
                    uint32_t n_used, uint32_t rows, uint32_t n_cols, uint32_t per_item)
{
    test_stack w(r, type, n_expert, rows, n_cols), v(r, type, n_expert, rows, n_cols);
    const uint32_t n_pair = n * n_used, n_item = expert_items(n_expert, n_pair, per_item);
    std::vector<uint32_t> chosen(n_pair);
    for (uint32_t t = 0; t < n; t++) // an expert in common, others not
        for (uint32_t k = 0; k < n_used; k++)
            chosen[t * n_used + k] = k == 0 ? 0 : k * (n_expert - 1) / n_used + t % 2;
    const std::vector<float> x = r.floats(n * n_cols), bias = r.floats(n_expert * rows);
    const std::vector<float> weight = r.floats(n_pair), y0 = r.floats(n * rows);
    device_array<float> dx(x), db(bias), dw(weight), dy(y0), y(n_pair * rows), z(n_pair * rows);
    device_array<struct expert_item> items(n_item);
    const bool plain = quant_info(type)->block_elems == 1;
    prepared_rows prepared(dx, n, n_cols);
    grouped_rows grouped(chosen, n_expert, n_used);
    grouped.group(items, n, per_item);
    struct expert_rows m = {};
    m.w[0] = w.w;
    m.w[1] = v.w;
    m.bias[0] = db.p;
    m.y[0] = y.p;
    m.y[1] = z.p;
    m.n_part = 2;
    m.items = items.p;
    m.n_item = n_item;
    m.n_row = n;
    m.per_item = per_item;
    m.pair_at = grouped.pair_at.p;
    m.n_used = n_used;
    m.weight = dw.p;
    m.act32 = prepared.act32.p;
    m.act_f32 = prepared.act_f32.p;
    must(expert_rows_launch(&Q, &m, &ERR));
    const struct expert_sum sum = {dw.p, nullptr, nullptr, true, 0.5f, dy.p};
    must(expert_sum_launch(&Q, &sum, y.p, grouped.place.p, n, n_used, rows, nullptr, &ERR));
    const std::vector<float> got = y.get(), second = z.get(), sums = dy.get();
    const std::vector<uint32_t> places = grouped.place.get();
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t row = 0; row < rows; row++) {
            double total = 0, all = 1;
            for (uint32_t k = 0; k < n_used; k++) {
                const uint32_t pair = t * n_used + k, e = chosen[pair];
                const size_t at = (size_t)places[pair] * rows + row;
                double size;
                double want = weight[pair] * w.product(e, row, &x[t * n_cols], &size);
                near("a row", type, pair, got[at], want + bias[e * rows + row], size + 1);
                total += weight[pair] * (want + bias[e * rows + row]);
                all += size;
                want = weight[pair] * v.product(e, row, &x[t * n_cols], &size);
                near("a row of the second", type, pair, second[at], want, size + 1);
            }
            near("a sum", type, t, sums[t * rows + row], y0[t * rows + row] + 0.5 * total, all);
        }
    if (!plain && per_item > EXPERT_FEW)
        check_gated(m, type, n_pair, rows);
    // all rows with the first matrix
    m.items = nullptr;
    m.pair_at = nullptr;
    m.weight = nullptr;
    m.n_part = 1;
    m.n_item = div_up(n, per_item);
    must(expert_rows_launch(&Q, &m, &ERR));
    const std::vector<float> first = y.get();
    for (uint32_t i = 0; i < n * rows; i++) {
        double size;
        const double want = w.product(0, i % rows, &x[i / rows * n_cols], &size);
        near("ungrouped", type, i, first[i], want + bias[i % rows], size + 1);
    }
}

static void products_of_several_rows_agree(void)
{
    struct random_stream r = {44};
    uint32_t i = 0;
    for (uint32_t type : ALL_TYPES) {
        const uint32_t n = i++ % 2 ? 37 : 5;
        rows_of(r, type, n, 5, 2, 21, columns(type, 64), n > 5 ? 32 : 2);
        rows_of(r, type, 6, 4, 2, 40, columns(type, 160), n > 5 ? 8 : 32);
        rows_of(r, type, 11, 3, 1, 64, columns(type, 352), 8u << i % 3);
    }
}

// Plain weights and all rows: in tiles, where blocks are few and where they are not, the same bits
// as by twos, with two matrices at once too.
static void plain_rows_in_tiles(struct random_stream &r, uint32_t type, uint32_t n, uint32_t rows,
                                uint32_t n_cols)
{
    test_stack w(r, type, 1, rows, n_cols), v(r, type, 1, rows, n_cols);
    const std::vector<float> x = r.floats(n * n_cols), bias = r.floats(rows);
    device_array<float> dx(x), db(bias), y(n * rows), z(n * rows);
    device_array<uint8_t> act(n * act_row_bytes(QUANT_F32, n_cols));
    must(act_launch(&Q, dx.p, n, n_cols, nullptr, 0.0f, nullptr, act.p, nullptr, &ERR));
    struct expert_rows m = {};
    m.w[0] = w.w;
    m.w[1] = v.w;
    m.bias[1] = db.p;
    m.y[0] = y.p;
    m.y[1] = z.p;
    m.n_part = 2;
    m.n_row = n;
    m.n_used = 1;
    m.act_f32 = act.p;
    std::vector<float> got[3][2];
    for (int i = 0; i < 3; i++) {
        struct queue q = Q;
        q.n_sm = i == 1 ? 1 : 1 << 20;
        m.per_item = i ? 32 : EXPERT_FEW;
        m.n_item = div_up(n, m.per_item);
        must(expert_rows_launch(&q, &m, &ERR));
        got[i][0] = y.get();
        got[i][1] = z.get();
        check(got[0][0] == got[i][0] && got[0][1] == got[i][1],
              "type %u, %u rows of %u, way %d: other bits", type, n, n_cols, i);
    }
    for (uint32_t i = 0; i < n * rows; i++) {
        double size;
        const double want = v.product(0, i % rows, &x[i / rows * n_cols], &size) + bias[i % rows];
        near("plain rows", type, i, got[1][1][i], want, size + 1);
    }
}

static void plain_rows_are_the_same_bits_in_tiles(void)
{
    struct random_stream r = {46};
    for (uint32_t type : {QUANT_F32, QUANT_F16, QUANT_BF16}) {
        plain_rows_in_tiles(r, type, 5, 21, 36);
        plain_rows_in_tiles(r, type, 16, 32, 64);
        plain_rows_in_tiles(r, type, 37, 72, 200);
        plain_rows_in_tiles(r, type, 33, 8, 130);
        plain_rows_in_tiles(r, type, 9, 12, 4700); // more than is under way at once
    }
}

// A router by matrix instructions: what a row gives is the same among few rows and among many, and
// near what it should be.
static void split_rows(struct random_stream &r, uint32_t rows, uint32_t n_cols)
{
    const uint32_t most = 70;
    test_stack w(r, QUANT_F32, 1, rows, n_cols);
    const std::vector<float> x = r.floats(most * n_cols), bias = r.floats(rows);
    device_array<float> dx(x), db(bias), y(most * rows);
    device_array<uint8_t> act(most * act_row_bytes(QUANT_F32, n_cols));
    must(act_launch(&Q, dx.p, most, n_cols, nullptr, 0.0f, nullptr, act.p, nullptr, &ERR));
    struct expert_rows m = {};
    m.w[0] = w.w;
    m.bias[0] = db.p;
    m.y[0] = y.p;
    m.n_part = m.n_used = m.n_item = 1;
    m.per_item = EXPERT_ITEM;
    m.act_f32 = act.p;
    m.split = true;
    if (!expert_split_takes(&Q, &m)) // not on every device
        return;
    std::vector<float> all;
    for (uint32_t n : {most, 1u, 8u, 11u, 32u, 33u}) {
        m.n_row = n;
        y.spoil();
        must(expert_rows_launch(&Q, &m, &ERR));
        const std::vector<float> got = y.get();
        all = n == most ? got : all;
        check(std::equal(got.begin(), got.begin() + n * rows, all.begin()),
              "router, %u rows of %u: other bits", n, n_cols);
    }
    for (uint32_t i = 0; i < most * rows; i++) {
        double size;
        const double want = w.product(0, i % rows, &x[i / rows * n_cols], &size) + bias[i % rows];
        check(fabs(all[i] - want) <= 2e-5 * (size + 1), "router, %u of %u: %g, expected %g",
              i % rows, i / rows, all[i], want);
    }
}

static void split_rows_have_the_same_bits_in_any_company(void)
{
    struct random_stream r = {49};
    split_rows(r, 21, 36);
    split_rows(r, 40, 200);
    split_rows(r, 8, 2052); // more than is under way at once
}

// x, who is chosen, gate and up, down, as a token has them. early: products may read what the
// launch before the last wrote before they wait.
static void launch_chain(const struct expert_sum &to_x, const float *from, const struct choice &c,
                         struct expert_row up, struct expert_row down, bool early)
{
    up.input_ready = down.choice_ready = early;
    must(expert_sum_launch(&Q, &to_x, from, nullptr, 1, 1, c.n_cols, nullptr, &ERR));
    must(choose_launch(&Q, &c, 1, &ERR));
    must(expert_row_launch(&Q, &up, &ERR));
    must(expert_row_launch(&Q, &down, &ERR));
}

static void products_that_begin_early_read_what_is_ready(void)
{
    enum { N = 9, USED = 3, ROWS = 64, COLS = 96, ROUNDS = 8 };
    struct random_stream r = {47};
    test_stack gate(r, QUANT_Q4_0, N, ROWS, COLS), up(r, QUANT_Q4_0, N, ROWS, COLS);
    test_stack down(r, QUANT_Q8_0, N, COLS, ROWS);
    device_array<float> in(r.floats(ROUNDS * COLS)), logits(r.floats(ROUNDS * N)),
        norm(r.floats(COLS)), x(COLS), mid(USED * ROWS), weight(USED), y(2 * ROUNDS * COLS);
    device_array<uint32_t> chosen(USED);
    struct expert_sum to_x = {};
    to_x.y = x.p;
    struct choice c = {};
    c.facts.n = N;
    c.facts.n_used = USED;
    c.facts.n_group = c.facts.n_group_used = 1;
    c.facts.scale = 1.0f;
    c.chosen = chosen.p;
    c.weight = weight.p;
    c.n_cols = COLS;
    struct expert_row both = {};
    both.mode = EXPERT_GATED;
    both.w[0] = gate.w;
    both.w[1] = up.w;
    both.chosen = chosen.p;
    both.n_slot = USED;
    both.x = x.p;
    both.norm = norm.p;
    both.y = mid.p;
    struct expert_row last = both;
    last.mode = EXPERT_SUM;
    last.w[0] = down.w;
    last.x = mid.p;
    last.own_rows = true;
    last.norm = nullptr;
    last.sum.weight = weight.p;
    for (int early = 0; early < 2; early++)
        for (int i = 0; i < ROUNDS; i++) { // every round has another x, and other experts
            c.logits = logits.p + i * N;
            last.sum.y = y.p + (early * ROUNDS + i) * COLS;
            launch_chain(to_x, in.p + i * COLS, c, both, last, early);
            if (!early)
                must(CHECK_CUDA(cudaStreamSynchronize(Q.stream), &ERR));
        }
    const std::vector<float> got = y.get();
    for (int i = 0; i < ROUNDS * COLS; i++)
        check(got[i] == got[ROUNDS * COLS + i], "round %d: %g, expected %g", i / COLS,
              got[ROUNDS * COLS + i], got[i]);
}

// A step that is not to be made leaves everything as it is.
static void a_skipped_step_writes_nothing(void)
{
    struct random_stream r = {45};
    const std::vector<uint32_t> one = {1}, ids = {77, 78};
    const std::vector<float> x = r.floats(32), out = r.floats(16);
    test_stack w(r, QUANT_Q8_0, 2, 8, 32), router(r, QUANT_F32, 1, 2, 32);
    device_array<uint32_t> skip(one), chosen(ids);
    device_array<float> dx(x), y(out), weight(out);
    struct choice c = {};
    c.facts = {};
    c.facts.n = c.facts.n_used = 2;
    c.facts.n_group = c.facts.n_group_used = 1;
    c.logits = dx.p;
    c.chosen = chosen.p;
    c.weight = weight.p;
    c.skip = skip.p;
    must(choose_launch(&Q, &c, 1, &ERR));
    const std::vector<uint32_t> none = {0};
    device_array<uint32_t> counter(none);
    struct route route = {};
    route.choice = c;
    route.choice.x = dx.p;
    route.choice.n_cols = 32;
    route.w = router.w;
    route.logits = y.p;
    route.chooses = true;
    route.counter = counter.p;
    must(route_launch(&Q, &route, &ERR));
    check(counter.get() == none, "a counter was written");
    struct expert_row m = {};
    m.w[0] = w.w;
    m.chosen = chosen.p; // there are no such experts
    m.n_slot = 2;
    m.x = dx.p;
    m.y = y.p;
    m.skip = skip.p;
    must(expert_row_launch(&Q, &m, &ERR));
    m.choice_ready = true;
    must(expert_row_launch(&Q, &m, &ERR));
    check(chosen.get() == ids && y.get() == out && weight.get() == out, "something was written");
}

int main(void)
{
    static const tap_test tests[] = {
        {"products of one row agree", products_of_one_row_agree},
        {"products of several rows agree", products_of_several_rows_agree},
        {"plain rows are the same bits in tiles", plain_rows_are_the_same_bits_in_tiles},
        {"split rows have the same bits in any company",
         split_rows_have_the_same_bits_in_any_company},
        {"products that begin early read what is ready",
         products_that_begin_early_read_what_is_ready},
        {"a skipped step writes nothing", a_skipped_step_writes_nothing},
    };
    return gpu_test_main(tests);
}
