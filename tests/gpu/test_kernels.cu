// Every kernel against a plain reference in double, over odd shapes.
#include "gpu_test.h"
#include "model/model.h"

// ---- matrices

// Largest difference between got and want, relative to what rounding can explain: `unit` times the
// size of the sums that were added up.
static double worst(const std::vector<float> &got, const std::vector<double> &want,
                    const std::vector<double> &size)
{
    double w = 0;
    for (size_t i = 0; i < got.size(); i++) {
        double off = fabs(got[i] - want[i]) / (size[i] + 1e-30);
        if (!(off <= w))
            w = off;
    }
    return w;
}

struct product {
    std::vector<double> y, size; // (n_col, rows): the sum, and the size of a typical error of it
};

// size: sqrt(sum w^2) * max |x|, what independent errors of the activations scale with.
static product reference(const test_matrix &m, const std::vector<float> &x, uint32_t n_col)
{
    product p;
    uint32_t rows = m.w.rows, n = m.w.n_cols;
    for (uint32_t c = 0; c < n_col; c++) {
        double top = 0;
        for (uint32_t k = 0; k < n; k++)
            top = fmax(top, fabs(x[c * n + k]));
        for (uint32_t r = 0; r < rows; r++) {
            double y = 0, s = 0;
            for (uint32_t k = 0; k < n; k++) {
                double w = m.values[(size_t)r * n + k];
                y += w * x[c * n + k];
                s += w * w;
            }
            p.y.push_back(y);
            p.size.push_back(sqrt(s) * top);
        }
    }
    return p;
}

static std::vector<uint32_t> lengths(uint32_t type)
{
    uint32_t block = quant_info(type)->block_elems;
    std::vector<uint32_t> out;
    for (uint32_t n : {1u, 7u, 32u, 64u, 172u, 256u, 896u, 1536u, 3584u, 4864u, 18944u})
        if (n % block == 0 && (full_size() || n <= 896 || (n == 4864 && type == QUANT_Q6_K)))
            out.push_back(n);
    return out;
}

// 16-bit activations leave errors of 1e-5 of the size; plain 8-bit ones would leave 2e-3.
static const double FIXED_TOLERANCE = 4e-5, FLOAT_TOLERANCE = 4e-6;

static double tolerance(uint32_t type)
{
    return type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16 ? FLOAT_TOLERANCE
                                                                        : FIXED_TOLERANCE;
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
                struct matvec v = {};
                v.w[0] = m.w;
                v.y[0] = y.p;
                v.ld[0] = rows;
                v.n_part = v.n_col = 1;
                v.x = dx.p;
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
            device_array<uint8_t> a32(n_col * act_row_bytes(QUANT_Q8_0, n));
            device_array<uint8_t> af(n_col * act_row_bytes(QUANT_F32, n));
            must(act_launch(&Q, dx.p, n_col, n, nullptr, 0, a32.p, af.p, nullptr, &ERR));
            struct matvec v = {};
            v.w[0] = m.w;
            v.y[0] = y.p;
            v.ld[0] = rows;
            v.n_part = 1;
            v.n_col = n_col;
            v.act32 = a32.p;
            v.act_f32 = af.p;
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

static const enum activation GATES[] = {ACT_SILU, ACT_GELU_TANH};

static void residuals_and_gates_agree(void)
{
    struct random_stream r = {14};
    for (uint32_t type : {(uint32_t)QUANT_Q4_K, (uint32_t)QUANT_F16, (uint32_t)QUANT_Q8_0}) {
        const uint32_t n = 256, rows = 88;
        test_matrix gate(r, type, rows, n), up(r, type, rows, n);
        std::vector<float> x = r.floats(n, 0.2), old = r.floats(rows, 10.0);
        std::vector<float> bias = r.floats(rows);
        device_array<float> dx(x), y(old), h(rows), db(bias);
        struct matvec v = {};
        v.w[0] = gate.w;
        v.y[0] = y.p;
        v.ld[0] = rows;
        v.n_part = v.n_col = 1;
        v.mode = MATVEC_ADD;
        v.x = dx.p;
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
static void a_finished_decode_leaves_memory_alone(void)
{
    struct random_stream r = {15};
    test_matrix m(r, QUANT_Q4_0, 40, 64);
    std::vector<float> x = r.floats(64), old = r.floats(40);
    device_array<float> dx(x), y(old);
    device_array<uint32_t> skip(std::vector<uint32_t>{1});
    struct matvec v = {};
    v.w[0] = m.w;
    v.y[0] = y.p;
    v.ld[0] = 40;
    v.n_part = v.n_col = 1;
    v.x = dx.p;
    v.skip = skip.p;
    must(matvec_launch(&Q, &v, &ERR));
    check(y.get() == old, "matvec wrote although the step was to be skipped");

    const std::vector<float> row(64, 7.0f), turns(4, 7.0f);
    device_array<float> e(row), turned(turns), freqs(r.floats(2));
    device_array<int32_t> token(std::vector<int32_t>{3});
    device_array<uint32_t> pos(std::vector<uint32_t>{5});
    const struct rope_tables ropes = {{{freqs.p, 2, 1.0f, (float2 *)turned.p}}, 1};
    must(embed_launch(&Q, &m.w, token.p, 1, e.p, 1.0f, &ropes, pos.p, skip.p, &ERR));
    must(add_normed_launch(&Q, dx.p, dx.p, 1e-5f, 1.0f, e.p, 1, 64, skip.p, &ERR));
    must(finish_logits_launch(&Q, e.p, 64, 0.5f, 30.0f, skip.p, &ERR));
    check(e.get() == row && turned.get() == turns,
          "a row was written although the step was to be skipped");
}

static void matvec_gives_the_same_bits_again(void)
{
    struct random_stream r = {16};
    test_matrix m(r, QUANT_Q6_K, 200, 1536);
    device_array<float> dx(r.floats(1536)), y(200);
    struct matvec v = {};
    v.w[0] = m.w;
    v.y[0] = y.p;
    v.ld[0] = 200;
    v.n_part = v.n_col = 1;
    v.x = dx.p;
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

// Rows (n_cols) of very different magnitudes.
static void spread(std::vector<float> &x, uint32_t n_cols)
{
    static const float sizes[] = {1.0f, 1e5f, 1e-6f, 1e8f, 100.0f};
    for (size_t i = 0; i < x.size(); i++)
        x[i] *= sizes[i / n_cols % 5];
}

static void gemm_agrees_for_odd_shapes(void)
{
    struct random_stream r = {18};
    for (uint32_t type :
         {(uint32_t)QUANT_F32, (uint32_t)QUANT_BF16, (uint32_t)QUANT_Q4_K, (uint32_t)QUANT_IQ4_NL})
        for (uint32_t n_col : {25u, 33u}) {
            const uint32_t n = quant_info(type)->block_elems == 1 ? 172 : 256, rows = 43;
            const uint32_t ld = gemm_ld(n);
            test_matrix m(r, type, rows, n);
            std::vector<float> x = r.floats(n * n_col), bias = r.floats(rows, 1e-9);
            spread(x, n);
            device_array<float> dx(x), y(r.floats(n_col * rows)), xf(n_col * ld), undo(n_col);
            device_array<float> db(bias);
            device_array<__half> xh(n_col * ld);
            device_array<uint8_t> tile(16 * ld * 4); // rows in several turns
            struct act_f16 f16 = {xh.p, ld, undo.p, 0.0f, nullptr};
            must(act_launch(&Q, dx.p, n_col, n, nullptr, 0, nullptr, xf.p, &f16, &ERR));
            const void *in = type == QUANT_F32 ? (const void *)xf.p : (const void *)xh.p;
            m.w.half_scale = type == QUANT_F32 ? 1.0f : 1024.0f;
            must(gemm_launch(&Q, &m.w, in, n_col, y.p, rows, 1.0f, 0.0f, tile.p, tile.n, &ERR));
            must(finish_product_launch(&Q, y.p, type == QUANT_F32 ? nullptr : undo.p, db.p, 0.0f,
                                       false, y.p, n_col, rows, &ERR));
            product p = reference(m, x, n_col);
            for (size_t i = 0; i < p.y.size(); i++)
                p.y[i] += bias[i % rows];
            double w = worst(y.get(), p.y, p.size);
            // float16 operands: half a unit in the eleventh bit of each, errors independent
            check(w <= (type == QUANT_F32 ? 4e-6 : 1.5e-3), "%s, %u columns: off by %g",
                  quant_info(type)->name, n_col, w);
            if (type != QUANT_F32)
                continue;
            // twice what there is, and a part of the product
            must(gemm_launch(&Q, &m.w, in, n_col, y.p, rows, 0.22f, 2.0f, tile.p, tile.n, &ERR));
            for (size_t i = 0; i < p.y.size(); i++)
                p.y[i] = 2 * p.y[i] + (double)0.22f * (p.y[i] - bias[i % rows]);
            w = worst(y.get(), p.y, p.size);
            check(w <= 8e-6, "F32 added in part, %u columns: off by %g", n_col, w);
        }
}

static struct weight_range range_of(const test_matrix &m, const float *norm = nullptr,
                                    const float *bias = nullptr)
{
    device_array<float> out(std::vector<float>{0.0f, 0.0f});
    must(weight_range_launch(&Q, &m.w, norm, bias, (struct weight_range *)out.p, &ERR));
    std::vector<float> v = out.get();
    return {v[0], v[1]};
}

static void ranges_of_weights_are_those_of_the_reference(void)
{
    struct random_stream r = {29};
    for (uint32_t type : ALL_TYPES) {
        const uint32_t n = quant_info(type)->block_elems == 1 ? 173 : 256, rows = 75;
        test_matrix m(r, type, rows, n);
        std::vector<float> norm = r.floats(n, 3.0), bias = r.floats(rows, 50.0);
        device_array<float> dn(norm), db(bias);
        double top = 0, bound = 0;
        for (uint32_t i = 0; i < rows; i++) {
            double sum = 0;
            for (uint32_t k = 0; k < n; k++) {
                double w = m.values[(size_t)i * n + k];
                top = fmax(top, fabs(w));
                sum += w * norm[k] * w * norm[k];
            }
            bound = fmax(bound, sqrt(sum * n) + fabs(bias[i]));
        }
        struct weight_range got = range_of(m, dn.p, db.p);
        check(fabs(got.top - top) <= 1e-5 * top && fabs(got.bound - bound) <= 1e-5 * bound,
              "%s: %g and %g, expected %g and %g", quant_info(type)->name, got.top, got.bound, top,
              bound);
    }
    for (double top = 1e-30; top < 1e38; top *= 1.9) {
        double scale = half_range((float)top);
        check(top * scale <= 32768 && top * scale > 16384, "%g times %g", top, scale);
        check(scale * half_range_undo((float)scale) == 1, "%g is not undone", scale);
    }
    check(half_range(0.0f) == 1 && isnan(half_range(INFINITY)) && isnan(half_range(NAN)) &&
              isnan(half_range_undo(NAN)),
          "zero, or no numbers");
}

// What the products of gemm_hopper.cu share: a matrix, inputs, scratch.
struct hopper_case {
    uint32_t n, n_cols;
    struct gemm_scratch sizes;
    std::vector<float> x;
    device_array<float> dx, undo, undo_gated;
    device_array<uint8_t> packed, partial, counters;

    static struct gemm_scratch scratch(void)
    {
        struct gemm_scratch s;
        gemm_scratch(Q.n_sm, &s);
        return s;
    }
    static void spoil(const device_array<uint8_t> &a) // with NaNs
    {
        must(CHECK_CUDA(cudaMemsetAsync(a.p, 0xFF, a.n, Q.stream), &ERR));
    }
    hopper_case(struct random_stream &r, uint32_t n_, uint32_t n_cols_)
        : n(n_), n_cols(n_cols_), sizes(scratch()), x(r.floats((size_t)n_ * n_cols_)), dx(x.size()),
          undo(std::vector<float>(gemm_undo_room(n_))),
          undo_gated(std::vector<float>(gemm_undo_room(n_))), packed(gemm_pack_bytes(n_, n_cols_)),
          partial(sizes.partial), counters(sizes.counters)
    {
        must(CHECK_CUDA(cudaMemsetAsync(counters.p, 0, counters.n, Q.stream), &ERR));
        spread(x, n_cols);
        pack(0.0f);
    }
    // From x; bound: of the row's results of MATVEC_GATED, were its values' mean square 1.
    void pack(float bound)
    {
        struct act_f16 f16 = {(__half *)packed.p, GEMM_PACKED, undo.p, bound, undo_gated.p};
        dx.put(x);
        spoil(packed); // nothing may come of the rows beyond n
        must(act_launch(&Q, dx.p, n, n_cols, nullptr, 0, nullptr, nullptr, &f16, &ERR));
    }
    struct gemm args(enum matvec_mode mode)
    {
        struct gemm g = {};
        g.mode = mode;
        g.n = n;
        g.x = (const __half *)packed.p;
        g.undo = undo.p;
        g.partial = (float *)partial.p;
        g.counters = (uint32_t *)counters.p;
        return g;
    }
    // Nothing is left for the next launch.
    void check_counters(void)
    {
        for (uint8_t b : counters.get())
            if (b) {
                check(false, "counters are not zero afterwards");
                break;
            }
    }
};

static void packed_activations_are_the_plain_ones(void)
{
    struct random_stream r = {24};
    for (uint32_t n_cols : {7u, 172u, 256u, 896u, 1000u}) {
        const uint32_t n = 11, ld = gemm_ld(n_cols);
        hopper_case c(r, n, n_cols);
        const uint32_t ld32 = act_f32_ld(n_cols);
        device_array<__half> plain(n * ld);
        device_array<float> single(n * ld32);
        device_array<float> undone(n);
        struct act_f16 f16 = {plain.p, ld, undone.p, 0.0f, nullptr};
        must(act_launch(&Q, c.dx.p, n, n_cols, nullptr, 0, nullptr, single.p, &f16, &ERR));
        std::vector<__half> want = plain.get();
        std::vector<float> undo = undone.get();
        std::vector<float> packed = c.undo.get();
        packed.resize(n);
        check(undo == packed, "%u columns: other scales when packed", n_cols);
        std::vector<float> want32 = single.get();
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t k = 0; k < ld; k++) {
                float a = __half2float(want[i * ld + k]) * undo[i];
                float b = k < n_cols ? c.x[(size_t)i * n_cols + k] : 0.0f;
                check(fabs(a - b) <= 5e-4 * fabs(b), "%u columns: row %u column %u: %g, %g", n_cols,
                      i, k, a, b);
            }
            for (uint32_t k = 0; k < ld32; k++)
                check(want32[i * ld32 + k] == (k < n_cols ? c.x[(size_t)i * n_cols + k] : 0.0f),
                      "%u columns: row %u column %u is %g", n_cols, i, k, want32[i * ld32 + k]);
        }
        std::vector<uint8_t> raw = c.packed.get();
        const __half *got = (const __half *)raw.data();
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = 0; k < (n_cols + 127) / 128 * 128; k++) {
                float a = __half2float(got[gemm_pack_at(n, i, k)]);
                float b = k < n_cols ? __half2float(want[i * ld + k]) : 0.0f;
                check(a == b, "%u columns: row %u column %u: %g, expected %g", n_cols, i, k, a, b);
            }
    }
}

static void hopper_products_agree_for_every_type_and_shape(void)
{
    struct random_stream r = {25};
    for (uint32_t type : ALL_TYPES) {
        if (!Q.hopper || type == QUANT_F32)
            continue;
        const bool plain = quant_info(type)->block_elems == 1;
        const uint32_t widths[] = {plain ? 172u : 256u, plain ? 904u : 768u,
                                   full_size() ? 4096u : 256u};
        for (uint32_t width : widths)
            for (uint32_t n : {9u, 64u, 70u, 300u}) {
                uint32_t rows = n == 300 ? (full_size() ? 2300 : 300) : n == 70 ? 300 : 43;
                // many columns and long rows, for the reference's sake, with two types only
                if (n > 64 &&
                    (width > 256) + !full_size() > (type == QUANT_Q4_K || type == QUANT_F16))
                    continue;
                hopper_case c(r, n, width);
                test_matrix m(r, type, rows, width);
                std::vector<float> old = r.floats((size_t)n * rows, 10.0), bias = r.floats(rows);
                device_array<float> y(old), db(bias);
                struct gemm g = c.args(MATVEC_ADD);
                g.w[0] = m.w;
                g.y[0] = y.p;
                g.bias[0] = db.p;
                g.n_part = 1;
                must(gemm_hopper_launch(&Q, &g, &ERR));
                product p = reference(m, c.x, n);
                for (size_t i = 0; i < p.y.size(); i++)
                    p.y[i] += old[i] + bias[i % rows], p.size[i] += 1e-3;
                std::vector<float> got = y.get();
                double w = worst(got, p.y, p.size);
                check(w <= 1.5e-3, "%s %u x %u, %u columns: off by %g", quant_info(type)->name,
                      rows, width, n, w);
                y.put(old);
                must(gemm_hopper_launch(&Q, &g, &ERR));
                check(y.get() == got, "%s %u x %u, %u columns: other bits the second time",
                      quant_info(type)->name, rows, width, n);
                y.put(old);
                g.scale = 0.22f;
                must(gemm_hopper_launch(&Q, &g, &ERR));
                for (size_t i = 0; i < p.y.size(); i++)
                    p.y[i] = old[i] + bias[i % rows] +
                             (double)g.scale * (p.y[i] - old[i] - bias[i % rows]);
                w = worst(y.get(), p.y, p.size);
                check(w <= 1.5e-3, "%s %u x %u, %u columns, in part: off by %g",
                      quant_info(type)->name, rows, width, n, w);
                c.check_counters();
            }
    }
}

// Q, K and V at once; gate and up at once.
static void hopper_products_of_several_matrices_agree(void)
{
    struct random_stream r = {26};
    for (uint32_t n : {12u, 100u}) {
        if (!Q.hopper)
            return;
        const uint32_t width = 256, rows[3] = {136, 40, 129};
        hopper_case c(r, n, width);
        test_matrix a(r, QUANT_Q4_K, rows[0], width), b(r, QUANT_Q4_K, rows[1], width);
        test_matrix d(r, QUANT_Q4_K, rows[2], width);
        const test_matrix *m[3] = {&a, &b, &d};
        device_array<float> y0(n * rows[0]), y1(n * rows[1]), y2(n * rows[2]);
        const device_array<float> *y[3] = {&y0, &y1, &y2};
        struct gemm g = c.args(MATVEC_STORE);
        for (int i = 0; i < 3; i++) {
            g.w[i] = m[i]->w;
            g.y[i] = y[i]->p;
        }
        g.n_part = 3;
        must(gemm_hopper_launch(&Q, &g, &ERR));
        for (int i = 0; i < 3; i++) {
            product p = reference(*m[i], c.x, n);
            double w = worst(y[i]->get(), p.y, p.size);
            check(w <= 1.5e-3, "part %d, %u columns: off by %g", i, n, w);
        }
        c.check_counters();
    }
    for (uint32_t rows : {24u, 200u, 384u}) {
        if (!Q.hopper)
            return;
        const uint32_t width = 256, n = 13;
        hopper_case c(r, n, width);
        for (uint32_t i = 0; i < n; i++) // gates of every sign, not only large ones, and tiny ones
            for (uint32_t k = 0; k < width; k++)
                c.x[i * width + k] = (float)(r.uniform() * (i % 3 == 0 ? 1e-6 : 0.2));
        test_matrix gate(r, QUANT_Q5_K, rows, width), up(r, QUANT_Q5_K, rows, width);
        device_array<uint8_t> out(gemm_pack_bytes(n, rows));
        gate.w.half_scale = 16.0f, up.w.half_scale = 64.0f; // the smaller one is taken
        c.pack(range_of(gate).bound * range_of(up).bound);
        struct gemm g = c.args(MATVEC_GATED);
        g.w[0] = gate.w;
        g.w[1] = up.w;
        g.n_part = 2;
        g.out = (__half *)out.p;
        g.undo_out = c.undo_gated.p;
        product pg = reference(gate, c.x, n), pu = reference(up, c.x, n);
        for (enum activation act : GATES) {
            hopper_case::spoil(out);
            g.act = act;
            must(gemm_hopper_launch(&Q, &g, &ERR));
            std::vector<uint8_t> raw = out.get();
            const __half *got = (const __half *)raw.data();
            std::vector<float> undo = c.undo_gated.get();
            for (uint32_t i = 0; i < n; i++)
                for (uint32_t k = 0; k < (rows + 127) / 128 * 128; k++) {
                    double a = __half2float(got[gemm_pack_at(n, i, k)]) * undo[i];
                    size_t at = (size_t)i * rows + k;
                    double want = 0, size = 1e-30;
                    if (k < rows) {
                        want = activated(act, pg.y[at]) * pu.y[at];
                        size = pg.size[at] * fabs(pu.y[at]) + pu.size[at] * fabs(pg.y[at]) +
                               fabs(want);
                    }
                    check(fabs(a - want) <= 1.5e-3 * size,
                          "gated, %d: row %u column %u: %g, expected %g", act, i, k, a, want);
                }
        }
    }
}

// Few blocks: each takes many steps in a row, so that slots of its ring are filled again, and goes
// from one tile to the next in between.
static void hopper_products_of_few_blocks_agree(void)
{
    struct random_stream r = {27};
    const int n_sm = Q.n_sm;
    for (uint32_t type : {(uint32_t)QUANT_Q4_K, (uint32_t)QUANT_F16})
        for (uint32_t n : {9u, 100u, 256u}) { // tiles of 64, 128 and 256 columns
            if (!Q.hopper)
                return;
            const uint32_t width = type == QUANT_F16 ? 904 : 1280, rows = 200;
            test_matrix m(r, type, rows, width);
            for (int few : {1, 3}) {
                Q.n_sm = few;
                hopper_case c(r, n, width);
                device_array<float> y((size_t)n * rows);
                struct gemm g = c.args(MATVEC_STORE);
                g.w[0] = m.w;
                g.y[0] = y.p;
                g.n_part = 1;
                must(gemm_hopper_launch(&Q, &g, &ERR));
                std::vector<float> got = y.get();
                product p = reference(m, c.x, n);
                double w = worst(got, p.y, p.size);
                check(w <= 1.5e-3, "%s, %u columns, %d multiprocessors: off by %g",
                      quant_info(type)->name, n, few, w);
                must(gemm_hopper_launch(&Q, &g, &ERR));
                check(y.get() == got, "%s, %u columns, %d multiprocessors: other bits again",
                      quant_info(type)->name, n, few);
                c.check_counters();
                Q.n_sm = n_sm;
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
        device_array<uint32_t> dp(std::vector<uint32_t>{pos0});
        // a model with two kinds of rotation: the second has the pairs 1 and 2 of the first
        const struct rope_tables ropes = {
            {{df.p, n_pair, 1.25f, rope.p}, {df.p + 1, 2, 1.0f, other.p}}, 2};
        const float scale = type == QUANT_F16 ? 5.5f : 1.0f;
        must(embed_launch(&Q, &m.w, dt.p, (uint32_t)tokens.size(), x.p, scale, &ropes, dp.p,
                          nullptr, &ERR));
        std::vector<float> got = x.get();
        std::vector<float2> turned = rope.get(), turned2 = other.get();
        for (size_t i = 0; i < tokens.size(); i++) {
            for (uint32_t k = 0; k < n; k++) {
                float want = scale * m.values[(size_t)tokens[i] * n + k];
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
            device_array<uint32_t> dp(std::vector<uint32_t>{pos0});
            const struct rope_tables ropes = {{{df.p, N_PAIR, magnitude, rope.p}}, 1};
            must(embed_launch(&Q, &m.w, tokens.p, N, x.p, 1.0f, &ropes, dp.p, nullptr, &ERR));
            double off = 0;
            std::vector<float2> turned = rope.get();
            for (uint32_t i = 0; i < N; i++)
                for (uint32_t p = 0; p < N_PAIR; p++) {
                    double angle = (double)(pos0 + i) * (double)freqs[p];
                    float2 t = turned[i * N_PAIR + p];
                    off = fmax(off, fabs(t.x - magnitude * cos(angle)));
                    off = fmax(off, fabs(t.y - magnitude * sin(angle)));
                }
            check(off <= 1e-6, "scaling %d, position %u: off by %g", kind, pos0, off);
        }
    }
}

static void activations_are_exact_to_sixteen_bits(void)
{
    struct random_stream r = {22};
    for (uint32_t n : {32u, 96u, 896u, 4864u}) {
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

static void repacked_bytes_stay_within_five_percent(void)
{
    for (uint32_t type : ALL_TYPES) {
        double file = (double)(3584 * quant_row_bytes(type, 3584));
        double laid = (double)cuda_layout_bytes(type, 3584, 3584);
        check(laid >= file * 0.999 && laid <= file * 1.05, "%s: %.4f", quant_info(type)->name,
              laid / file);
    }
}

static const struct tap_test tests[] = {
    {"a matrix times a vector agrees for every weight type and shape",
     matvec_agrees_for_every_type_and_shape},
    {"a matrix times two to eight columns agrees", matvec_agrees_for_two_to_eight_columns},
    {"fused Q, K, V with norm and biases agree, mixed types too",
     fused_parts_agree_with_separate_ones},
    {"residuals and gates agree", residuals_and_gates_agree},
    {"a matrix times vectors agrees on few blocks", matvec_of_few_blocks_agrees},
    {"a finished decode leaves memory alone", a_finished_decode_leaves_memory_alone},
    {"a matrix-vector product gives the same bits again", matvec_gives_the_same_bits_again},
    {"dequantised rows are those of the reference", dequantised_rows_are_those_of_the_reference},
    {"matrix products agree for odd shapes", gemm_agrees_for_odd_shapes},
    {"ranges of weights are those of the reference", ranges_of_weights_are_those_of_the_reference},
    {"packed activations are the plain ones", packed_activations_are_the_plain_ones},
    {"products on Hopper agree for every type and shape",
     hopper_products_agree_for_every_type_and_shape},
    {"products on Hopper of several matrices agree", hopper_products_of_several_matrices_agree},
    {"products on Hopper of few blocks agree", hopper_products_of_few_blocks_agree},
    {"embedding rows and rotations agree", embedding_rows_and_rotations_agree},
    {"rotations agree at depth", rotations_agree_at_depth},
    {"activations are exact to sixteen bits", activations_are_exact_to_sixteen_bits},
    {"repacked weights take at most 5 % more bytes", repacked_bytes_stay_within_five_percent},
};

int main(void)
{
    return gpu_test_main(tests);
}
