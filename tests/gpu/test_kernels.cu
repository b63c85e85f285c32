// Every kernel against a plain reference in double, over odd shapes; products on matrix units are
// in test_gemm.cu.
#include "products.h"
#include "model/model.h"

// ---- matrices

// A matrix times one input, which is not normed.
static struct matvec times_one(const test_matrix &m, uint32_t rows, const float *x, float *y)
{
    struct matvec v = {};
    v.w[0] = m.w;
    v.y[0] = y;
    v.ld[0] = rows;
    v.n_part = v.n_col = 1;
    v.x = x;
    return v;
}

static void matvec_agrees_for_every_type_and_shape(void)
{
    struct random_stream r = {11};
    for (uint32_t type : ALL_TYPES)
        for (uint32_t n : lengths(type))
            for (uint32_t rows : {1u, 7u, 8u, 9u, 40u, full_size() ? 1000u : 17u}) {
                if (!full_size() && n > 256 && rows != 9 && rows != 17)
                    continue;
                test_matrix m(r, type, rows, n);
                std::vector<float> x = r.floats(n, 3.0);
                device_array<float> dx(x), y(rows);
                const struct matvec v = times_one(m, rows, dx.p, y.p);
                must(matvec_launch(&Q, &v, &ERR));
                product p = reference(m, x, 1);
                double w = worst(y.get(), p.y, p.size);
                check(w <= tolerance(type), "%s %u x %u: off by %g", quant_info(type)->name, rows,
                      n, w);
            }
}

static void matvec_agrees_for_two_to_eight_columns(void)
{
    struct random_stream r = {12};
    for (uint32_t type : ALL_TYPES)
        for (uint32_t n_col : {1u, 2u, 3u, 5u, 8u}) {
            const uint32_t rows = 27, n = 256;
            test_matrix m(r, type, rows, n);
            std::vector<float> x = r.floats(n * n_col, 2.0);
            device_array<float> dx(x), y(n_col * rows);
            prepared_rows prepared(dx, n_col, n);
            struct matvec v = {};
            v.w[0] = m.w;
            v.y[0] = y.p;
            v.ld[0] = rows;
            v.n_part = 1;
            v.n_col = n_col;
            v.act32 = prepared.act32.p;
            v.act_f32 = prepared.act_f32.p;
            must(matvec_launch(&Q, &v, &ERR));
            product p = reference(m, x, n_col);
            double w = worst(y.get(), p.y, p.size);
            check(w <= tolerance(type), "%s, %u columns: off by %g", quant_info(type)->name, n_col,
                  w);
        }
}

// Q, K and V of one layer in one launch, also where the quantiser mixed types; norm and biases.
static void fused_parts_agree_with_separate_ones(void)
{
    struct random_stream r = {13};
    static const uint32_t mixes[][3] = {
        {QUANT_Q4_K, QUANT_Q4_K, QUANT_Q6_K}, {QUANT_Q5_0, QUANT_Q5_0, QUANT_Q8_0},
        {QUANT_Q3_K, QUANT_Q3_K, QUANT_Q5_K}, {QUANT_Q2_K, QUANT_Q3_K, QUANT_Q3_K},
        {QUANT_F16, QUANT_F16, QUANT_F16},    {QUANT_Q6_K, QUANT_F32, QUANT_Q4_0},
        {QUANT_Q4_K, QUANT_Q6_K, QUANT_Q4_K},
    };
    for (const auto &mix : mixes) {
        const uint32_t n = 256, rows[3] = {72, 24, 23};
        test_matrix a(r, mix[0], rows[0], n), b(r, mix[1], rows[1], n), c(r, mix[2], rows[2], n);
        const test_matrix *m[3] = {&a, &b, &c};
        std::vector<float> x = r.floats(n, 5.0), norm = r.floats(n), scaled(n);
        std::vector<float> bias[3] = {r.floats(rows[0]), r.floats(rows[1]), r.floats(rows[2])};
        double sum = 0;
        for (float f : x)
            sum += (double)f * f;
        for (uint32_t i = 0; i < n; i++)
            scaled[i] = (float)(x[i] / sqrt(sum / n + 1e-6) * norm[i]);
        device_array<float> dx(x), dn(norm), y0(rows[0]), y1(rows[1]), y2(rows[2]);
        device_array<float> b0(bias[0]), b1(bias[1]), b2(bias[2]);
        const device_array<float> *y[3] = {&y0, &y1, &y2}, *db[3] = {&b0, &b1, &b2};
        struct matvec v = {};
        for (int i = 0; i < 3; i++) {
            v.w[i] = m[i]->w;
            v.y[i] = y[i]->p;
            v.bias[i] = db[i]->p;
            v.ld[i] = rows[i];
        }
        v.n_part = 3;
        v.n_col = 1;
        v.x = dx.p;
        v.norm = dn.p;
        v.eps = 1e-6f;
        must(matvec_launch(&Q, &v, &ERR));
        for (int i = 0; i < 3; i++) {
            product p = reference(*m[i], scaled, 1);
            for (uint32_t k = 0; k < rows[i]; k++)
                p.y[k] += bias[i][k];
            double w = worst(y[i]->get(), p.y, p.size);
            check(w <= tolerance(mix[i]), "%s of %s/%s/%s: off by %g", quant_info(mix[i])->name,
                  quant_info(mix[0])->name, quant_info(mix[1])->name, quant_info(mix[2])->name, w);
        }
    }
}

static void residuals_and_gates_agree(void)
{
    struct random_stream r = {14};
    for (uint32_t type : {(uint32_t)QUANT_Q4_K, (uint32_t)QUANT_F16, (uint32_t)QUANT_Q8_0}) {
        const uint32_t n = 256, rows = 88;
        test_matrix gate(r, type, rows, n), up(r, type, rows, n);
        std::vector<float> x = r.floats(n, 0.2), old = r.floats(rows, 10.0);
        std::vector<float> bias = r.floats(rows);
        device_array<float> dx(x), y(old), h(rows), db(bias);
        struct matvec v = times_one(gate, rows, dx.p, y.p);
        v.mode = MATVEC_ADD;
        must(matvec_launch(&Q, &v, &ERR));
        product g = reference(gate, x, 1), u = reference(up, x, 1), p = g;
        for (uint32_t i = 0; i < rows; i++)
            p.y[i] += old[i], p.size[i] += 1;
        double w = worst(y.get(), p.y, p.size);
        check(w <= tolerance(type), "%s added: off by %g", quant_info(type)->name, w);

        y.put(old);
        v.scale = 0.22f;
        v.bias[0] = db.p;
        must(matvec_launch(&Q, &v, &ERR));
        for (uint32_t i = 0; i < rows; i++)
            p.y[i] = old[i] + (double)v.scale * g.y[i] + bias[i];
        w = worst(y.get(), p.y, p.size);
        check(w <= tolerance(type), "%s added in part: off by %g", quant_info(type)->name, w);

        v.w[1] = up.w;
        v.y[0] = h.p;
        v.bias[0] = NULL;
        v.n_part = 2;
        v.mode = MATVEC_GATED; // whose products have no scale
        for (enum activation act : GATES) {
            v.act = act;
            must(matvec_launch(&Q, &v, &ERR));
            for (uint32_t i = 0; i < rows; i++) {
                p.y[i] = activated(act, g.y[i]) * u.y[i];
                p.size[i] = g.size[i] * fabs(u.y[i]) + u.size[i] * fabs(g.y[i]) + 1e-3;
            }
            w = worst(h.get(), p.y, p.size);
            check(w <= 2 * tolerance(type), "%s gated, %d: off by %g", quant_info(type)->name, act,
                  w);
        }
    }
}

// What is still to be added to the input is added by the product's blocks: the same bits as by a
// launch of its own before, and the sum is there for others.
static void inputs_that_are_owed_something_are_made(void)
{
    struct random_stream r = {16};
    const device_array<float> times(std::vector<float>{0.75f});
    const device_array<uint32_t> skip(std::vector<uint32_t>{1});
    for (uint32_t type : ALL_TYPES)
        for (uint32_t n : {256u, 4608u}) { // one group for a thread, and two
            const uint32_t rows = 24, second = type == QUANT_Q4_K ? (uint32_t)QUANT_Q6_K : type;
            if (n > 256 && type != QUANT_Q4_K && type != QUANT_F16)
                continue;
            test_matrix a(r, type, rows, n), b(r, second, rows, n);
            const std::vector<float> old(n, 7.0f);
            const device_array<float> from(r.floats(n, 5.0)), y(r.floats(n, 0.3)),
                post(r.floats(n, 2.0)), norm(r.floats(n, 2.0));
            const std::vector<float> nothing(2 * rows, 7.0f);
            device_array<float> x(old), made(old), want(nothing), got(nothing);
            struct add_normed add = {y.p, post.p, 0.02f, 0.3f, times.p, x.p, nullptr, from.p};
            must(add_normed_launch(&Q, &add, 1, n, &ERR));
            check(x.get() != old, "%u columns: nothing was added", n);
            struct matvec v = {};
            v.w[0] = a.w, v.w[1] = b.w;
            v.ld[0] = v.ld[1] = rows;
            v.y[0] = want.p, v.y[1] = want.p + rows;
            v.n_part = 2;
            v.n_col = 1;
            v.norm = norm.p;
            v.eps = 0.02f;
            v.x = x.p;
            must(matvec_launch(&Q, &v, &ERR));
            v.y[0] = got.p, v.y[1] = got.p + rows;
            v.x = from.p;
            v.add = add;
            v.add.x = made.p;
            v.skip = skip.p;
            must(matvec_launch(&Q, &v, &ERR));
            check(made.get() == old && got.get() == nothing,
                  "something was made although the step was to be skipped");
            v.skip = nullptr;
            must(matvec_launch(&Q, &v, &ERR));
            check(made.get() == x.get() && got.get() == want.get(),
                  "%s, %u columns: other bits than by a launch of its own", quant_info(type)->name,
                  n);

            const std::vector<float> told = r.floats(rows), product = want.get();
            const device_array<float> dt(told);
            v.n_part = 1;
            v.mode = MATVEC_TIMES;
            v.bias[0] = dt.p;
            for (enum activation act : GATES) {
                v.act = act;
                must(matvec_launch(&Q, &v, &ERR));
                const std::vector<float> times_told = got.get();
                for (uint32_t i = 0; i < rows; i++) {
                    const double w = activated(act, product[i]) * told[i];
                    check(fabs(times_told[i] - w) <= 1e-5 * (fabs(w) + fabs(product[i])),
                          "row %u times what it is told: %g, expected %g", i, times_told[i], w);
                }
            }
        }
}

// Few multiprocessors: a block has many pairs of tiles, and of both types where a launch has two;
// and so many rows that there must be more blocks than run at once.
static void matvec_of_few_blocks_agrees(void)
{
    struct random_stream r = {16};
    const int n_sm = Q.n_sm;
    for (int few : {1, 2}) {
        Q.n_sm = few;
        fused_parts_agree_with_separate_ones();
        residuals_and_gates_agree();
        matvec_agrees_for_two_to_eight_columns();
        for (uint32_t n_col : {1u, 8u}) {
            const uint32_t n = 64, rows = n_col == 1 ? 13000 : 2500;
            test_matrix m(r, QUANT_Q8_0, rows, n);
            std::vector<float> x = r.floats(n * n_col, 2.0);
            std::vector<float> bias = r.floats(rows), old = r.floats(n_col * rows, 10.0);
            device_array<float> dx(x), db(bias), y(old);
            device_array<uint8_t> a32(n_col * act_row_bytes(QUANT_Q8_0, n));
            must(act_launch(&Q, dx.p, n_col, n, nullptr, 0, a32.p, nullptr, nullptr, &ERR));
            struct matvec v = {};
            v.mode = MATVEC_ADD;
            v.w[0] = m.w;
            v.bias[0] = db.p;
            v.y[0] = y.p;
            v.ld[0] = rows;
            v.n_part = 1;
            v.n_col = n_col;
            v.x = n_col == 1 ? dx.p : nullptr;
            v.act32 = a32.p;
            must(matvec_launch(&Q, &v, &ERR));
            product p = reference(m, x, n_col);
            for (size_t i = 0; i < p.y.size(); i++)
                p.y[i] += old[i] + bias[i % rows], p.size[i] += 1;
            double w = worst(y.get(), p.y, p.size);
            check(w <= tolerance(QUANT_Q8_0), "%u rows, %u columns, %d multiprocessors: off by %g",
                  rows, n_col, few, w);
        }
        Q.n_sm = n_sm;
    }
}

// Nothing may be written when the step is to be skipped.
// A matrix alone has fewer blocks than there are multiprocessors where none has more to do by that.
static void matvec_of_enough_blocks_agrees(void)
{
    struct random_stream r = {17};
    const int n_sm = Q.n_sm;
    const struct {
        uint32_t type, n;
    } cases[] = {{QUANT_Q8_0, 2048}, {QUANT_Q4_K, 2560}, {QUANT_F16, 96}};
    Q.n_sm = 4;
    for (const auto &c : cases) // 5 pairs: 3 blocks, 2, and 4 still
        for (enum matvec_mode mode : {MATVEC_STORE, MATVEC_ADD}) {
            const uint32_t rows = 77;
            test_matrix m(r, c.type, rows, c.n);
            const std::vector<float> x = r.floats(c.n, 2.0), old = r.floats(rows, 10.0);
            const device_array<float> dx(x);
            device_array<float> y(old);
            struct matvec v = times_one(m, rows, dx.p, y.p);
            v.mode = mode;
            must(matvec_launch(&Q, &v, &ERR));
            product p = reference(m, x, 1);
            for (uint32_t i = 0; i < rows && mode == MATVEC_ADD; i++)
                p.y[i] += old[i], p.size[i] += 1;
            const double w = worst(y.get(), p.y, p.size);
            check(w <= tolerance(c.type), "%s, %u columns: off by %g", quant_info(c.type)->name,
                  c.n, w);
        }
    Q.n_sm = n_sm;
}

static void a_finished_decode_leaves_memory_alone(void)
{
    struct random_stream r = {15};
    test_matrix m(r, QUANT_Q4_0, 40, 64);
    std::vector<float> x = r.floats(64), old = r.floats(40);
    device_array<float> dx(x), y(old);
    device_array<uint32_t> skip(std::vector<uint32_t>{1});
    struct matvec v = times_one(m, 40, dx.p, y.p);
    v.skip = skip.p;
    must(matvec_launch(&Q, &v, &ERR));
    check(y.get() == old, "matvec wrote although the step was to be skipped");

    const std::vector<float> row(64, 7.0f), turns(4, 7.0f);
    device_array<float> e(row), turned(turns), freqs(r.floats(2));
    device_array<int32_t> token(std::vector<int32_t>{3});
    device_array<struct seq_row> pos(std::vector<struct seq_row>{{0, 5}});
    const struct rope_tables ropes = {{{freqs.p, 2, 1.0f, (float2 *)turned.p}}, 1};
    must(embed_launch(&Q, &m.w, token.p, 1, e.p, 1.0f, nullptr, &ropes, pos.p, true, skip.p, &ERR));
    const struct add_normed add = {dx.p, dx.p, 1e-5f, 1.0f, nullptr, e.p, skip.p};
    must(add_normed_launch(&Q, &add, 1, 64, &ERR));
    must(finish_logits_launch(&Q, e.p, 64, 0.5f, 30.0f, skip.p, &ERR));
    check(e.get() == row && turned.get() == turns,
          "a row was written although the step was to be skipped");
}

static void matvec_gives_the_same_bits_again(void)
{
    struct random_stream r = {16};
    test_matrix m(r, QUANT_Q6_K, 200, 1536);
    device_array<float> dx(r.floats(1536)), y(200);
    const struct matvec v = times_one(m, 200, dx.p, y.p);
    must(matvec_launch(&Q, &v, &ERR));
    std::vector<float> first = y.get();
    for (int i = 0; i < (full_size() ? 50 : 2); i++) {
        must(matvec_launch(&Q, &v, &ERR));
        check(y.get() == first, "run %d differs", i);
    }
}

static void dequantised_rows_are_those_of_the_reference(void)
{
    struct random_stream r = {17};
    for (uint32_t type : ALL_TYPES) {
        const uint32_t n = quant_info(type)->block_elems == 1 ? 172 : 512, rows = 21;
        const uint32_t ld = gemm_ld(n), row0 = 8, n_row = 13;
        test_matrix m(r, type, rows, n);
        device_array<float> dst(n_row * ld);
        must(dequant_launch(&Q, &m.w, row0, n_row, dst.p, ld, &ERR));
        must(CHECK_CUDA(cudaStreamSynchronize(Q.stream), &ERR));
        bool f32 = type == QUANT_F32;
        std::vector<uint8_t> raw(n_row * ld * (f32 ? 4 : 2));
        must(CHECK_CUDA(cudaMemcpy(raw.data(), dst.p, raw.size(), cudaMemcpyDeviceToHost), &ERR));
        for (uint32_t i = 0; i < n_row; i++)
            for (uint32_t k = 0; k < ld; k++) {
                float want = k < n ? m.values[(size_t)(row0 + i) * n + k] : 0.0f, got;
                if (f32)
                    memcpy(&got, &raw[(i * ld + k) * 4], 4);
                else {
                    uint16_t h;
                    memcpy(&h, &raw[(i * ld + k) * 2], 2);
                    got = quant_f16_to_f32(h);
                }
                // scale * quant - minimum rounds twice before the float16
                check(fabs(got - want) <= (f32 ? 0 : 6e-4 * fabs(want) + 1e-5),
                      "%s row %u column %u: %g, expected %g", quant_info(type)->name, i, k, got,
                      want);
            }
    }
}

// ---- rows

static void embedding_rows_and_rotations_agree(void)
{
    struct random_stream r = {21};
    for (uint32_t type : ALL_TYPES) {
        const uint32_t n = quant_info(type)->block_elems == 1 ? 173 : 256; // a tail, too
        const uint32_t n_vocab = 37, n_pair = 5, pos0 = 1000;
        test_matrix m(r, type, n_vocab, n);
        std::vector<int32_t> tokens = {36, 0, 9, 9};
        std::vector<float> freqs = {1.0f, 0.3f, 0.01f, 1e-4f, 1e-6f};
        device_array<int32_t> dt(tokens);
        device_array<float> x(tokens.size() * n), df(freqs);
        device_array<float2> rope(tokens.size() * n_pair), other(tokens.size() * 2);
        device_array<struct seq_row> dp(std::vector<struct seq_row>{{0, pos0}});
        // a model with two kinds of rotation: the second has the pairs 1 and 2 of the first
        const struct rope_tables ropes = {
            {{df.p, n_pair, 1.25f, rope.p}, {df.p + 1, 2, 1.0f, other.p}}, 2};
        const float scale = type == QUANT_F16 ? 5.5f : 1.0f;
        // of its position each has a row, with some types
        const bool placed = type == QUANT_F16 || type == QUANT_Q8_0;
        const std::vector<float> places = r.floats(placed ? (pos0 + tokens.size()) * n : 0);
        device_array<float> dplaces(places);
        must(embed_launch(&Q, &m.w, dt.p, (uint32_t)tokens.size(), x.p, scale,
                          placed ? dplaces.p : nullptr, &ropes, dp.p, true, nullptr, &ERR));
        std::vector<float> got = x.get();
        std::vector<float2> turned = rope.get(), turned2 = other.get();
        for (size_t i = 0; i < tokens.size(); i++) {
            for (uint32_t k = 0; k < n; k++) {
                float want = scale * m.values[(size_t)tokens[i] * n + k];
                want += placed ? places[(pos0 + i) * n + k] : 0.0f;
                check(fabs(got[i * n + k] - want) <= 1e-6 * (fabs(want) + 1), "%s token %d: %g, %g",
                      quant_info(type)->name, tokens[i], got[i * n + k], want);
            }
            for (uint32_t p = 0; p < n_pair; p++) {
                double angle = (double)(pos0 + i) * (double)freqs[p];
                float2 t = turned[i * n_pair + p];
                check(fabs(t.x - 1.25 * cos(angle)) < 1e-5 && fabs(t.y - 1.25 * sin(angle)) < 1e-5,
                      "rotation of pair %u at %zu", p, pos0 + i);
            }
            for (uint32_t p = 0; p < 2; p++) {
                double angle = (double)(pos0 + i) * (double)freqs[p + 1];
                float2 t = turned2[i * 2 + p];
                check(fabs(t.x - cos(angle)) < 1e-5 && fabs(t.y - sin(angle)) < 1e-5,
                      "second rotation of pair %u at %zu", p, pos0 + i);
            }
        }
    }
}

// Angles of a million radians: a float holds them to a few hundredths. The frequencies are those of
// models with every kind of scaling.
static void rotations_agree_at_depth(void)
{
    enum { N_PAIR = 64, N = 3 };
    struct random_stream r = {28};
    std::vector<float> factors(N_PAIR);
    for (uint32_t p = 0; p < N_PAIR; p++)
        factors[p] = p < 20 ? 1.0f : 1.0f + 0.17f * (float)p;
    for (int kind = 0; kind < 4; kind++) {
        struct rope rotation = {};
        rotation.n_dim = 2 * N_PAIR;
        rotation.theta = kind == 3 ? 500000.0f : 10000.0f;
        rotation.factor = kind == 1 ? 4.0f : 8.0f;
        rotation.scaling = kind == 1   ? ROPE_SCALING_LINEAR
                           : kind == 2 ? ROPE_SCALING_YARN
                                       : ROPE_SCALING_NONE;
        rotation.orig_ctx = 4096;
        rotation.attn_factor = 1;
        rotation.beta_fast = 32;
        rotation.beta_slow = 1;
        rotation.factors = kind == 3 ? factors.data() : NULL;
        std::vector<float> freqs(N_PAIR);
        float magnitude;
        model_rope_freqs(&rotation, 4096, freqs.data(), &magnitude);
        test_matrix m(r, QUANT_F32, 4, 8);
        device_array<int32_t> tokens(std::vector<int32_t>{0, 1, 2});
        device_array<float> x(N * 8), df(freqs);
        device_array<float2> rope(N * N_PAIR);
        for (uint32_t pos0 : {0u, 99999u, 999999u, (1u << 24) - 1}) {
            device_array<struct seq_row> dp(std::vector<struct seq_row>{{0, pos0}});
            const struct rope_tables ropes = {{{df.p, N_PAIR, magnitude, rope.p}}, 1};
            must(embed_launch(&Q, &m.w, tokens.p, N, x.p, 1.0f, nullptr, &ropes, dp.p, true,
                              nullptr, &ERR));
            double off = 0;
            std::vector<float2> turned = rope.get();
            for (uint32_t i = 0; i < N; i++)
                for (uint32_t p = 0; p < N_PAIR; p++) {
                    double angle = (double)(pos0 + i) * (double)freqs[p];
                    float2 t = turned[i * N_PAIR + p];
                    off = further(off, fabs(t.x - magnitude * cos(angle)));
                    off = further(off, fabs(t.y - magnitude * sin(angle)));
                }
            check(off <= 1e-6, "scaling %d, position %u: off by %g", kind, pos0, off);
        }
    }
}

static void activations_are_exact_to_sixteen_bits(void)
{
    struct random_stream r = {22};
    for (uint32_t n : {32u, 96u, 512u, 544u, 896u, 4864u}) { // to 512: by fewer threads
        const uint32_t n_row = 2;
        std::vector<float> x = r.floats(n * n_row, 7.0), norm = r.floats(n);
        for (uint32_t i = 0; i < 32; i++)
            x[i] = 0.0f; // a group of zeros
        device_array<float> dx(x), dn(norm), f32(n_row * act_f32_ld(n));
        device_array<uint8_t> a32(n_row * act_row_bytes(QUANT_Q8_0, n));
        device_array<__half> x16(n_row * gemm_ld(n));
        device_array<float> undo(n_row);
        struct act_f16 f16 = {x16.p, gemm_ld(n), undo.p, 0.0f, nullptr};
        must(act_launch(&Q, dx.p, n_row, n, dn.p, 1e-5f, a32.p, f32.p, &f16, &ERR));
        std::vector<uint8_t> fixed = a32.get();
        std::vector<float> plain = f32.get();
        for (uint32_t i = 0; i < n_row; i++) {
            double sum = 0;
            for (uint32_t k = 0; k < n; k++)
                sum += (double)x[i * n + k] * x[i * n + k];
            for (uint32_t g = 0; g < n / 32; g++) {
                const uint8_t *a = &fixed[i * act_row_bytes(QUANT_Q8_0, n) + g * 80];
                float scale, total[2], top = 0;
                memcpy(&scale, a + 64, 4);
                memcpy(total, a + 68, 8);
                double sums[2] = {0, 0};
                for (uint32_t k = 0; k < 32; k++) {
                    uint32_t at = i * n + g * 32 + k;
                    double want = x[at] / sqrt(sum / n + 1e-5) * norm[g * 32 + k];
                    double got = scale * (256.0 * (int8_t)a[k] + (int8_t)a[32 + k]);
                    top = fmaxf(top, (float)fabs(want));
                    sums[k / 16] += got;
                    check(fabs(got - want) <= scale * 0.51 + 2e-6 * fabs(want),
                          "row %u value %u: %g, expected %g (scale %g)", i, g * 32 + k, got, want,
                          scale);
                    check(fabs(plain[i * n + g * 32 + k] - want) <= 2e-6 * fabs(want) + 1e-9,
                          "plain value %u: %g, expected %g", k, plain[i * n + g * 32 + k], want);
                }
                check(scale <= top / 32512 * 1.001, "scale %g for a largest value of %g", scale,
                      top);
                for (int half = 0; half < 2; half++)
                    check(fabs(total[half] - sums[half]) <= 1e-6 * 16 * top,
                          "sum of half %d: %g, %g", half, total[half], sums[half]);
            }
        }
    }
}

static void repacked_bytes_stay_within_bounds(void)
{
    for (uint32_t type : ALL_TYPES) {
        double file = (double)(3584 * quant_row_bytes(type, 3584));
        double laid = (double)cuda_layout_bytes(type, 3584, 3584);
        check(laid >= file * 0.999 && laid <= file * most_moved(type), "%s: %.4f",
              quant_info(type)->name, laid / file);
    }
}

static const struct tap_test tests[] = {
    {"a matrix times a vector agrees for every weight type and shape",
     matvec_agrees_for_every_type_and_shape},
    {"a matrix times two to eight columns agrees", matvec_agrees_for_two_to_eight_columns},
    {"fused Q, K, V with norm and biases agree, mixed types too",
     fused_parts_agree_with_separate_ones},
    {"residuals and gates agree", residuals_and_gates_agree},
    {"inputs that are owed something are made", inputs_that_are_owed_something_are_made},
    {"a matrix times vectors agrees on few blocks", matvec_of_few_blocks_agrees},
    {"a matrix times vectors agrees on enough blocks", matvec_of_enough_blocks_agrees},
    {"a finished decode leaves memory alone", a_finished_decode_leaves_memory_alone},
    {"a matrix-vector product gives the same bits again", matvec_gives_the_same_bits_again},
    {"dequantised rows are those of the reference", dequantised_rows_are_those_of_the_reference},
    {"embedding rows and rotations agree", embedding_rows_and_rotations_agree},
    {"rotations agree at depth", rotations_agree_at_depth},
    {"activations are exact to sixteen bits", activations_are_exact_to_sixteen_bits},
    {"repacked weights take at most 5 % more bytes, widened types what is said",
     repacked_bytes_stay_within_bounds},
};

int main(void)
{
    return gpu_test_main(tests);
}
