// What happens to rows between the matrices, against plain references in double.
#include "altup.h"
#include "butterfly.cuh"
#include "divide.cuh"
#include "gpu_test.h"

static const enum activation ACTIVATIONS[] = {ACT_SILU, ACT_GELU_TANH, ACT_GELU, ACT_RELU_SQR,
                                              ACT_XIELU};

static void gates_and_biases_agree(void)
{
    struct random_stream r = {23};
    const uint32_t n = 300, rows = 3;
    const std::vector<float> g = r.floats(n * rows, 12.0), u = r.floats(n * rows), b = r.floats(n);
    const std::vector<float> undo = r.floats(rows);
    for (enum activation act : ACTIVATIONS) {
        device_array<float> dg(g), du(u), db(b), dundo(undo);
        must(gate_launch(&Q, act, &XIELU, dg.p, du.p, n * rows, &ERR));
        must(finish_product_launch(&Q, dg.p, nullptr, db.p, 0.0f, false, dg.p, rows, n, &ERR));
        std::vector<float> got = dg.get();
        // added to that: a part of the products u, and the biases once more
        must(finish_product_launch(&Q, du.p, dundo.p, db.p, 0.22f, true, dg.p, rows, n, &ERR));
        std::vector<float> sums = dg.get();
        for (uint32_t i = 0; i < n * rows; i++) {
            double want = activated(act, g[i]) * u[i] + b[i % n];
            check(fabs(got[i] - want) <= 4e-6 * (fabs(want) + 1), "%d, %u: %g, expected %g", act, i,
                  got[i], want);
            want += 0.22f * (double)u[i] * undo[i / n] + b[i % n];
            check(fabs(sums[i] - want) <= 4e-6 * (fabs(want) + 1), "%d, %u: %g added, expected %g",
                  act, i, sums[i], want);
        }
    }
}

// At the ends of what exponentials take; and what is not finite stays that.
static void activations_agree_at_the_ends(void)
{
    const float inf = INFINITY;
    const std::vector<float> x = {0.0f,   -0.0f, 1e-30f, -1e-30f, 20.0f, -20.0f, 87.0f, -87.0f,
                                  -90.0f, 1e6f,  -1e6f,  1e15f,   3e38f, -3e38f, inf,   NAN};
    for (enum activation act : ACTIVATIONS) {
        const bool grows = act == ACT_RELU_SQR || act == ACT_XIELU;
        device_array<float> g(x);
        must(gate_launch(&Q, act, &XIELU, g.p, nullptr, x.size(), &ERR));
        std::vector<float> got = g.get();
        for (size_t i = 0; i < x.size(); i++) {
            double want = activated(act, x[i]);
            if (x[i] < -20 && !grows) // the reference's exponentials end, too
                want = 0;
            if (grows && fabsf(x[i]) > 1e15f)
                continue; // results that no float holds
            if (!isfinite(x[i]))
                check(!isfinite(got[i]), "%d of %g: %g", act, x[i], got[i]);
            else
                check(fabs(got[i] - want) <= 4e-6 * fabs(want) + 1e-7 &&
                          (grows || fabsf(got[i]) <= fabsf(x[i])),
                      "%d of %g: %g, expected %g", act, x[i], got[i], want);
        }
    }
}

// Root mean square of a row, with eps.
static double rms_of(const float *x, uint32_t n, double eps)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum / n + eps);
}

// Streams of a row: (streams, rows, n) in one array, the first of them x.
struct stream_case {
    uint32_t n_stream, n, rows = 2;
    std::vector<float> norm, router, coef;

    size_t at(uint32_t s, uint32_t row, uint32_t i) const
    {
        return ((size_t)s * rows + row) * n + i;
    }
    // coef tanh(router normed / n)
    std::vector<double> coefficients(const std::vector<float> &all, uint32_t row,
                                     uint32_t n_to) const
    {
        const double rms = rms_of(&all[at(0, row, 0)], n, 0.01);
        std::vector<double> c(n_to);
        for (uint32_t m = 0; m < n_stream; m++) {
            double sum = 0;
            for (uint32_t i = 0; i < n; i++)
                sum += (double)router[m * n + i] * norm[i] * all[at(0, row, i)] / rms;
            for (uint32_t i = 0; i < n_to; i++)
                c[i] += coef[i * n_stream + m] * tanh(sum / n);
        }
        return c;
    }
};

static void streams_are_predicted_and_corrected(void)
{
    struct random_stream r = {61};
    for (uint32_t n_stream : {2u, 3u, 4u, 5u, 6u, 7u, 8u})
        for (uint32_t n : {48u, 2048u, 2501u}) { // the last is more than threads keep
            struct stream_case s = {n_stream, n};
            s.norm = r.floats(n);
            s.router = r.floats(n_stream * n, sqrt((double)n));
            s.coef = r.floats(n_stream * n_stream * n_stream, 0.3);
            const std::vector<float> before = r.floats(n_stream * s.rows * n, 3.0),
                                     next_norm = r.floats(n), scale = r.floats(n);
            const size_t n_row = (size_t)s.rows * n;
            device_array<float> all(before), predicted(n_row), normed(n_row), norm(s.norm),
                router(s.router), coef(s.coef), after(next_norm), scales(scale);
            struct altup a = {};
            a.x = all.p;
            a.side = all.p + n_row;
            a.predicted = predicted.p;
            a.stride = n_row;
            a.n_side = n_stream - 1;
            a.n_embd = n;
            a.eps = 0.01f;
            const struct altup_weights w = {norm.p, router.p, coef.p};
            must(altup_predict_launch(&Q, &a, &w, after.p, normed.p, s.rows, &ERR));
            const std::vector<float> got = all.get(), first = predicted.get(), n1 = normed.get();
            const auto near = [&](double is, double want, const char *what, uint32_t i) {
                check(fabs(is - want) <= 2e-5 * (fabs(want) + 3),
                      "%s, %u streams of %u: %u is %g, expected %g", what, n_stream, n, i, is,
                      want);
            };
            for (uint32_t row = 0; row < s.rows; row++) {
                const std::vector<double> c = s.coefficients(before, row, n_stream * n_stream);
                const double rms = rms_of(&got[s.at(0, row, 0)], n, 0.01);
                for (uint32_t i = 0; i < n; i++) {
                    for (uint32_t k = 0; k < n_stream; k++) {
                        double want = before[s.at(k, row, i)];
                        for (uint32_t o = 0; o < n_stream; o++)
                            want += c[k * n_stream + o] * before[s.at(o, row, i)];
                        near(got[s.at(k, row, i)], want, "predicted", i);
                    }
                    near(first[row * n + i], got[s.at(0, row, i)], "kept", i);
                    near(n1[row * n + i], got[s.at(0, row, i)] / rms * next_norm[i], "normed", i);
                }
            }
            // the layer adds something to x
            const std::vector<float> x = r.floats(n_row, 3.0);
            std::vector<float> now = got;
            std::copy(x.begin(), x.end(), now.begin());
            all.put(now);
            must(altup_correct_launch(&Q, &a, &w, scales.p, normed.p, s.rows, &ERR));
            const std::vector<float> end = all.get(), scaled = normed.get();
            for (uint32_t row = 0; row < s.rows; row++) {
                const std::vector<double> c = s.coefficients(now, row, n_stream);
                for (uint32_t i = 0; i < n; i++) {
                    const double more = (double)x[row * n + i] - first[row * n + i];
                    for (uint32_t k = 0; k < n_stream; k++)
                        near(end[s.at(k, row, i)],
                             (k ? got[s.at(k, row, i)] : first[row * n + i]) + (1 + c[k]) * more,
                             "corrected", i);
                    near(scaled[row * n + i], scale[i] * end[s.at(0, row, i)], "scaled", i);
                }
            }
            // what the layer is told goes to the others; then one of them is set, and the mean
            // taken
            const std::vector<float> y = r.floats(n_row);
            device_array<float> dy(y);
            must(altup_add_launch(&Q, &a, dy.p, after.p, s.rows, &ERR));
            const std::vector<float> told = all.get();
            must(altup_set_launch(&Q, &a, 1, dy.p, s.rows, &ERR));
            must(altup_mean_launch(&Q, &a, s.rows, &ERR));
            const std::vector<float> mean = all.get();
            for (uint32_t row = 0; row < s.rows; row++) {
                const double rms = rms_of(&y[row * n], n, 0.01);
                const double times =
                    rms_of(&told[s.at(0, row, 0)], n, 0) / rms_of(&y[row * n], n, 0);
                for (uint32_t i = 0; i < n; i++) {
                    double sum = told[s.at(0, row, i)] + times * y[row * n + i];
                    near(told[s.at(0, row, i)], end[s.at(0, row, i)], "left alone", i);
                    for (uint32_t k = 1; k < n_stream; k++) {
                        near(told[s.at(k, row, i)],
                             end[s.at(k, row, i)] + y[row * n + i] / rms * next_norm[i], "told", i);
                        sum += k > 1 ? told[s.at(k, row, i)] : 0;
                    }
                    near(mean[s.at(1, row, i)], times * y[row * n + i], "set", i);
                    near(mean[s.at(0, row, i)], sum / n_stream, "mean", i);
                }
            }
            // and beside attention, of x, n1 and y
            must(laurel_add_launch(&Q, &a, normed.p, dy.p, after.p, s.rows, &ERR));
            const std::vector<float> joined = all.get();
            for (uint32_t j = 0; j < n_row; j++) {
                const double rms = rms_of(&y[j / n * n], n, 0.01);
                near(joined[j], (mean[j] + scaled[j] + y[j] / rms * next_norm[j % n]) / sqrt(2.0),
                     "joined", j);
            }
        }
}

static void gates_are_cut_off(void)
{
    struct random_stream r = {67};
    for (uint32_t n : {7u, 1024u, 16384u, 17000u}) // the last is more than threads keep
        for (float times : {-1.0f, 0.5f, 1.6448536f}) {
            const uint32_t rows = 2;
            const std::vector<float> gate = r.floats(n * rows, 2.0), up = r.floats(n * rows);
            device_array<float> dg(gate), du(up);
            must(gate_cut_launch(&Q, ACT_GELU_TANH, &XIELU, times, dg.p, du.p, rows, n, &ERR));
            const std::vector<float> got = dg.get();
            for (uint32_t row = 0; row < rows; row++) {
                double mean = 0, squares = 0;
                for (uint32_t i = 0; i < n; i++)
                    mean += (double)gate[row * n + i] / n;
                for (uint32_t i = 0; i < n; i++)
                    squares += (gate[row * n + i] - mean) * (gate[row * n + i] - mean);
                const double least = mean + times * sqrt(squares / n);
                for (uint32_t j = row * n; j < (row + 1) * n; j++) {
                    const double v = gate[j] > least ? gate[j] - least : 0;
                    const double want = activated(ACT_GELU_TANH, (float)v) * up[j];
                    check(fabs(got[j] - want) <= 2e-5 * (fabs(want) + 1),
                          "%u of %u: %g, expected %g", j, n, got[j], want);
                }
            }
        }
}

static void rows_are_clamped(void)
{
    struct random_stream r = {71};
    std::vector<float> q = r.floats(700, 4.0), v = r.floats(33, 4.0);
    q[5] = NAN;
    device_array<float> dq(q), dv(v);
    const struct clamp_rows c = {{dq.p, nullptr, dv.p}, {q.size(), 0, v.size()}, 1.5f};
    must(clamp_launch(&Q, &c, &ERR));
    const std::vector<float> got = dq.get(), also = dv.get();
    check(isnan(got[5]), "no number became %g", got[5]);
    for (size_t i = 0; i < q.size(); i++)
        check(i == 5 || got[i] == fminf(fmaxf(q[i], -1.5f), 1.5f), "%zu: %g of %g", i, got[i],
              q[i]);
    for (size_t i = 0; i < v.size(); i++)
        check(also[i] == fminf(fmaxf(v[i], -1.5f), 1.5f), "%zu: %g of %g", i, also[i], v[i]);
}

static void normed_rows_are_added(void)
{
    struct random_stream r = {31};
    const device_array<float> times(std::vector<float>{0.75f});
    for (uint32_t n : {1u, 7u, 256u, 896u, 3585u, 4608u, 6500u, 8192u, 8200u}) // more than is kept
        for (float scale : {0.0f, 0.22f}) {
            const uint32_t rows = 3;
            std::vector<float> x = r.floats(n * rows, 5.0), y = r.floats(n * rows, 0.3);
            const std::vector<float> norm = r.floats(n, 2.0);
            for (uint32_t i = 0; i < n; i++)
                y[n + i] = 0.0f; // eps alone under the root
            device_array<float> dx(x), dy(y), dn(norm);
            const bool times_it = n % 2 == (scale > 0);
            struct add_normed a = {dy.p, dn.p, 0.02f, scale, times_it ? times.p : nullptr, dx.p};
            must(add_normed_launch(&Q, &a, rows, n, &ERR));
            std::vector<float> got = dx.get();
            for (uint32_t i = 0; i < rows; i++) {
                double sum = 0;
                for (uint32_t k = 0; k < n; k++)
                    sum += (double)y[i * n + k] * y[i * n + k];
                for (uint32_t k = 0; k < n; k++) {
                    double add = y[i * n + k] / sqrt(sum / n + (double)0.02f) * norm[k];
                    double want = x[i * n + k] + (scale ? (double)scale : 1.0) * add;
                    want *= times_it ? 0.75 : 1.0;
                    check(fabs(got[i * n + k] - want) <= 2e-6 * (fabs(want) + fabs(add)) + 1e-6,
                          "%u columns, row %u column %u: %g, expected %g", n, i, k, got[i * n + k],
                          want);
                }
            }
            check(dy.get() == y, "%u columns: what is added was changed", n);
        }
}

static void rows_are_normed(void)
{
    struct random_stream r = {33};
    for (uint32_t n : {1u, 7u, 256u, 3585u})
        for (enum norm_kind kind : {NORM_RMS, NORM_LAYER})
            for (bool biased : {false, true}) {
                const uint32_t rows = 3;
                std::vector<float> x = r.floats(n * rows, 5.0), w = r.floats(n, 2.0);
                const std::vector<float> b = r.floats(n, 2.0);
                for (uint32_t i = 0; i < n; i++)
                    x[n + i] += 40.0f; // a mean that matters
                device_array<float> dx(x), dw(w), db(b), y(n * rows);
                must(norm_launch(&Q, kind, dx.p, dw.p, biased ? db.p : nullptr, 0.02f, y.p, n, rows,
                                 n, nullptr, &ERR));
                std::vector<float> got = y.get();
                for (uint32_t i = 0; i < rows; i++) {
                    double mean = 0, sum = 0;
                    for (uint32_t k = 0; kind == NORM_LAYER && k < n; k++)
                        mean += (double)x[i * n + k] / n;
                    for (uint32_t k = 0; k < n; k++)
                        sum += pow(x[i * n + k] - mean, 2);
                    for (uint32_t k = 0; k < n; k++) {
                        double want = (x[i * n + k] - mean) / sqrt(sum / n + (double)0.02f) * w[k] +
                                      (biased ? b[k] : 0);
                        check(fabs(got[i * n + k] - want) <= 2e-5 * (fabs(want) + 1),
                              "%u columns, kind %d: row %u column %u: %g, expected %g", n, kind, i,
                              k, got[i * n + k], want);
                    }
                }
            }
}

static void logits_are_scaled_and_limited(void)
{
    struct random_stream r = {32};
    const std::vector<float> x = r.floats(1000, 90.0);
    for (float scale : {1.0f, 0.125f})
        for (float cap : {0.0f, 30.0f}) {
            std::vector<float> in = x;
            in[3] = INFINITY, in[500] = -INFINITY, in[999] = NAN;
            device_array<float> d(in);
            must(finish_logits_launch(&Q, d.p, in.size(), scale, cap, nullptr, &ERR));
            std::vector<float> got = d.get();
            for (size_t i = 0; i < in.size(); i++) {
                double v = (double)scale * in[i], want = cap ? cap * tanh(v / cap) : v;
                if (isfinite(in[i]))
                    check(fabs(got[i] - want) <= 1e-6 * fabs(want) + 1e-6, "%g: %g, expected %g",
                          in[i], got[i], want);
                else
                    check(!isfinite(got[i]), "%g became %g", in[i], got[i]);
            }
        }
}

// A row of x (n), times scale, by RMSNorm with weights w (n).
static std::vector<double> normed(const float *x, const float *w, double scale, uint32_t n)
{
    std::vector<double> y(n);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += pow(scale * x[i], 2);
    for (uint32_t i = 0; i < n; i++)
        y[i] = scale * x[i] / sqrt(sum / n + (double)0.02f) * w[i];
    return y;
}

// All rows are written, and none where the step has ended before.
static void joined_rows_are_normed_and_added(void)
{
    struct random_stream r = {34};
    const uint32_t rows = 3;
    const device_array<uint32_t> ended(std::vector<uint32_t>{1});
    const device_array<float> times(std::vector<float>{0.75f});
    for (uint32_t n : {7u, 256u, 900u, 3200u}) { // the last: more than threads keep
        const std::vector<float> a = r.floats(n * rows), b = r.floats(n * rows, 3.0);
        const std::vector<float> wa = r.floats(n, 2.0), wb = r.floats(n, 2.0), w = r.floats(n, 2.0);
        const std::vector<float> x = r.floats(n * rows);
        device_array<float> da(a), db(b), dwa(wa), dwb(wb), dw(w), dx(x);
        const struct add_normed last = {nullptr, dw.p,   0.02f, 0.7f, n % 2 ? times.p : nullptr,
                                        dx.p,    ended.p};
        struct join_normed j = {da.p, dwa.p, db.p, dwb.p, last};
        must(join_normed_launch(&Q, &j, rows, n, &ERR));
        check(dx.get() == x, "%u columns: something was added after the end", n);
        j.add.skip = nullptr;
        must(join_normed_launch(&Q, &j, rows, n, &ERR));
        const std::vector<float> got = dx.get();
        for (uint32_t i = 0; i < rows; i++) {
            const std::vector<double> na = normed(&a[i * n], wa.data(), 1, n);
            const std::vector<double> nb = normed(&b[i * n], wb.data(), 1, n);
            std::vector<float> sum(n);
            for (uint32_t k = 0; k < n; k++)
                sum[k] = (float)(na[k] + nb[k]);
            const std::vector<double> add = normed(sum.data(), w.data(), 1, n);
            for (uint32_t k = 0; k < n; k++) {
                const double want = (x[i * n + k] + 0.7 * add[k]) * (n % 2 ? 0.75 : 1.0);
                check(fabs(got[i * n + k] - want) <= 2e-5 * (fabs(want) + 1),
                      "%u columns, row %u column %u: %g, expected %g", n, i, k, got[i * n + k],
                      want);
            }
        }
    }
}

static void what_layers_are_told_agrees(void)
{
    struct random_stream r = {35};
    const uint32_t n = 3, n_layer = 2, width = 300, ld = n_layer * width;
    const device_array<uint32_t> ended(std::vector<uint32_t>{1});
    const std::vector<float> proj = r.floats(n * ld), norm = r.floats(width, 2.0);
    const std::vector<float> told = r.floats(n * ld), gate = r.floats(n * width, 4.0);
    device_array<float> dproj(proj), dnorm(norm), dtold(told), dgate(gate);
    struct told t = {dproj.p, dnorm.p, dtold.p, n_layer, width, 0.3f, 0.02f, ended.p};
    must(tell_launch(&Q, &t, n, &ERR));
    check(dtold.get() == told, "something was told after the end");
    t.skip = nullptr;
    must(tell_launch(&Q, &t, n, &ERR));
    const std::vector<float> got = dtold.get();
    for (uint32_t i = 0; i < n * n_layer; i++) {
        const std::vector<double> p = normed(&proj[i * width], norm.data(), 0.3, width);
        for (uint32_t k = 0; k < width; k++) {
            const double want = (p[k] + told[i * width + k]) / sqrt(2.0);
            check(fabs(got[i * width + k] - want) <= 2e-6 * (fabs(want) + 1),
                  "row %u of %u, %u: %g, expected %g", i / n_layer, i % n_layer, k,
                  got[i * width + k], want);
        }
    }
    // the second layer's part
    must(gate_told_launch(&Q, ACT_GELU_TANH, &XIELU, dgate.p, dtold.p + width, ld, n, width, &ERR));
    const std::vector<float> gated = dgate.get();
    for (uint32_t i = 0; i < n * width; i++) {
        const double want =
            activated(ACT_GELU_TANH, gate[i]) * got[i / width * ld + width + i % width];
        check(fabs(gated[i] - want) <= 4e-6 * (fabs(want) + 1), "%u: %g, expected %g", i, gated[i],
              want);
    }
}

static void rows_are_gathered(void)
{
    struct random_stream r = {37};
    const uint32_t n_cols = 300;
    const std::vector<float> x = r.floats(4 * n_cols);
    const std::vector<uint32_t> rows = {2, 0, 2};
    const device_array<uint32_t> ended(std::vector<uint32_t>{1}), which(rows);
    device_array<float> dx(x), to(rows.size() * n_cols);
    must(finish_logits_launch(&Q, dx.p, x.size(), 3.0f, 0.5f, ended.p, &ERR));
    const struct add_normed add = {dx.p, dx.p, 0.02f, 1.0f, nullptr, dx.p, ended.p};
    must(add_normed_launch(&Q, &add, 4, n_cols, &ERR));
    must(norm_launch(&Q, NORM_RMS, dx.p, dx.p, nullptr, 0.02f, dx.p, n_cols, 4, n_cols, ended.p,
                     &ERR));
    check(dx.get() == x, "something was written after the end");
    must(gather_rows_launch(&Q, dx.p, which.p, (uint32_t)rows.size(), n_cols, to.p, &ERR));
    const std::vector<float> got = to.get();
    for (size_t i = 0; i < got.size(); i++) {
        const float want = x[rows[i / n_cols] * n_cols + i % n_cols];
        check(got[i] == want, "%zu: %g, expected %g", i, got[i], want);
    }
}

static void rows_that_are_picked_are_prepared_as_if_they_lay_together(void)
{
    struct random_stream r = {39};
    const uint32_t n_cols = 304, n = 3;
    const device_array<uint32_t> which(std::vector<uint32_t>{2, 0, 3});
    const device_array<float> x(r.floats(4 * n_cols)), norm(r.floats(n_cols));
    device_array<float> together(n * n_cols), undo(n), undo_picked(n), y(n * n_cols),
        y_picked(n * n_cols);
    device_array<__half> h(n * n_cols), h_picked(n * n_cols);
    must(gather_rows_launch(&Q, x.p, which.p, n, n_cols, together.p, &ERR));
    struct act_f16 f16 = {.x = h.p, .ld = n_cols, .undo = undo.p};
    must(act_launch(&Q, together.p, n, n_cols, norm.p, 1e-5f, nullptr, y.p, &f16, &ERR));
    f16 = {.x = h_picked.p, .ld = n_cols, .undo = undo_picked.p, .rows = which.p};
    must(act_launch(&Q, x.p, n, n_cols, norm.p, 1e-5f, nullptr, y_picked.p, &f16, &ERR));
    const auto a = h.get(), b = h_picked.get();
    check(y.get() == y_picked.get() && undo.get() == undo_picked.get() &&
              memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0,
          "rows that are picked differ");
}

// A few rows, some more, and many are prepared by different numbers of threads: of which no bit
// depends, in no form.
static void rows_have_the_same_bits_among_few_and_many(void)
{
    struct random_stream r = {41};
    const uint32_t few = 3, some = 2 * (uint32_t)Q.n_sm, many = some + 1;
    for (uint32_t n_cols : {96u, 896u, 1001u, 1040u, 2056u, 4104u, 8200u}) {
        const device_array<float> x(r.floats((size_t)many * n_cols)), norm(r.floats(n_cols));
        const uint32_t padded = div_up(n_cols, (uint32_t)GEMM_PACK_COLS) * GEMM_PACK_COLS;
        std::vector<uint16_t> want;
        std::vector<float> want_floats;
        for (uint32_t n : {few, some, many})
            for (uint32_t form : {padded, (uint32_t)GEMM_FEW_PACKED, (uint32_t)GEMM_PACKED}) {
                const size_t bytes =
                    std::max(gemm_few_bytes(n, n_cols), gemm_pack_bytes(n, n_cols));
                device_array<uint16_t> packed(std::vector<uint16_t>(bytes / 2, 0xFFFF));
                const uint32_t ld = act_f32_ld(n_cols);
                device_array<float> undo(gemm_undo_room(n)), y((size_t)n * ld);
                const struct act_f16 f16 = {.x = (__half *)packed.p, .ld = form, .undo = undo.p};
                must(act_launch(&Q, x.p, n, n_cols, norm.p, 1e-5f, nullptr, y.p, &f16, &ERR));
                const std::vector<uint16_t> all = packed.get();
                std::vector<uint16_t> got;
                for (uint32_t i = 0; i < few; i++)
                    for (uint32_t k = 0; k < padded; k++)
                        got.push_back(all[form == padded            ? (size_t)i * padded + k
                                          : form == GEMM_FEW_PACKED ? gemm_few_at(n, i, k, n_cols)
                                                                    : gemm_pack_at(n, i, k)]);
                std::vector<float> floats = y.get(); // which show more of the norm's bits
                floats.resize((size_t)few * ld);
                const std::vector<float> factors = undo.get();
                floats.insert(floats.end(), factors.begin(), factors.begin() + few);
                if (want.empty()) {
                    want = got;
                    want_floats = floats;
                }
                check(got == want && floats == want_floats,
                      "%u rows of %u columns, form %u: other bits", n, n_cols, form);
            }
    }
}

// Rows that are still to be added to, then packed, have the bits of a launch for each.
static void rows_that_are_owed_something_are_made(void)
{
    struct random_stream r = {42};
    const uint32_t n = 5;
    for (uint32_t n_cols : {96u, 896u, 1040u, 4104u, 8192u})
        for (uint32_t form : {(uint32_t)GEMM_FEW_PACKED, (uint32_t)GEMM_PACKED}) {
            const std::vector<float> x = r.floats((size_t)n * n_cols, 4.0);
            const device_array<float> y(r.floats((size_t)n * n_cols)), post(r.floats(n_cols)),
                norm(r.floats(n_cols));
            const size_t bytes = std::max(gemm_few_bytes(n, n_cols), gemm_pack_bytes(n, n_cols));
            const std::vector<uint16_t> none(bytes / 2, 0xFFFF);
            const std::vector<float> no_undo(gemm_undo_room(n), -1.0f);
            device_array<float> apart(x), at_once(x), undo(no_undo), undo_at_once(no_undo);
            device_array<uint16_t> packed(none), packed_at_once(none);
            struct add_normed add = {y.p, post.p, 0.02f, 0.3f, nullptr, apart.p};
            must(add_normed_launch(&Q, &add, n, n_cols, &ERR));
            struct act_f16 f16 = {.x = (__half *)packed.p, .ld = form, .undo = undo.p};
            must(act_launch(&Q, apart.p, n, n_cols, norm.p, 1e-5f, nullptr, nullptr, &f16, &ERR));
            add.x = at_once.p;
            f16.x = (__half *)packed_at_once.p, f16.undo = undo_at_once.p;
            must(act_added_launch(&Q, &add, n, n_cols, norm.p, 1e-5f, &f16, &ERR));
            check(apart.get() != x && apart.get() == at_once.get(),
                  "%u columns: other rows than by a launch of its own", n_cols);
            check(packed.get() == packed_at_once.get() && undo.get() == undo_at_once.get(),
                  "%u columns, form %u: packed otherwise", n_cols, form);
        }
}

// Each row by its own power of two, which its largest value decides, whichever thread has it.
static void float16_rows_have_eleven_bits_of_any_magnitude(void)
{
    struct random_stream r = {38};
    const uint32_t rows = 5, n_cols = 300, ld = 304;
    const double tops[rows] = {1e-12, 1.0, 7e4, 1e12, 1e30};
    std::vector<float> x = r.floats(rows * n_cols);
    for (uint32_t i = 0; i < rows; i++) {
        for (uint32_t k = 0; k < n_cols; k++)
            x[i * n_cols + k] *= (float)(tops[i] * 1e-3);
        x[i * n_cols + 67 * i] = (float)tops[i];
    }
    device_array<float> dx(x), undo(rows);
    device_array<__half> y(rows * ld);
    const struct act_f16 f16 = {.x = y.p, .ld = ld, .undo = undo.p};
    must(act_launch(&Q, dx.p, rows, n_cols, nullptr, 0.0f, nullptr, nullptr, &f16, &ERR));
    const std::vector<__half> got = y.get();
    const std::vector<float> back = undo.get();
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t k = 0; k < ld; k++) {
            const double want = k < n_cols ? x[i * n_cols + k] : 0.0;
            const double v = (double)__half2float(got[i * ld + k]) * back[i];
            check(fabs(v - want) <= fabs(want) / 2048 + 1e-9 * tops[i],
                  "row %u column %u: %g, expected %g", i, k, v, want);
        }
}

// in: a value of each lane of a warp. out: one after butterfly() and one after its steps.
static __global__ void butterflies(const float2 *in, int from, float2 *out)
{
    float2 one = in[threadIdx.x], other = one;
    butterfly(one, from, sum_and_top());
    butterfly_steps(other, from, sum_and_top());
    out[threadIdx.x] = one;
    out[threadIdx.x + WARP] = other;
}

// So that what the emulation does in one meeting of the lanes is what a GPU does by shuffles.
static void butterflies_are_their_steps(void)
{
    struct random_stream r = {31};
    const struct launch one_warp = {
        .name = "butterflies", .grid = dim3(1), .block = dim3(WARP), .stream = Q.stream};
    for (int from : {16, 8, 4, 1, 0}) {
        std::vector<float2> in(WARP);
        for (uint32_t i = 0; i < WARP; i++)
            in[i] = {r.floats(1)[0], i == 5 ? NAN : r.floats(1)[0]};
        device_array<float2> din(in), dout(2 * WARP);
        must(launch_kernel(&ERR, one_warp, butterflies, din.p, from, dout.p));
        const std::vector<float2> got = dout.get();
        check(memcmp(&got[0], &got[WARP], WARP * sizeof got[0]) == 0, "from %d: not the same",
              from);
        for (uint32_t i = 0; i < WARP; i++) {
            double sum = 0;
            bool nan = false;
            for (uint32_t k = 0; k < WARP; k++)
                if ((k ^ i) < 2u * (uint32_t)from || k == i) {
                    sum += (double)in[k].x;
                    nan = nan || k == 5;
                }
            check(fabs(got[i].x - sum) <= 1e-5 && !isnan(got[i].y) == !nan,
                  "from %d, lane %u: %g %g, expected the sum %g", from, i, got[i].x, got[i].y, sum);
        }
    }
}

enum { OVER_LANES = 5 };

// in: a value of each lane of a warp. out (2, OVER_LANES, WARP): in one meeting, and by shuffles.
static __global__ void groups_of_lanes(const float *in, float *out)
{
    const float v = in[threadIdx.x];
    const float one[OVER_LANES] = {lane_sum<8, 16>(v), lane_sum<1, 4>(v), warp_sum(v),
                                   lane_max<4, 2>(v), lane_max_nan<1, 2>(v)};
    float other[OVER_LANES] = {v, v, v, v, v};
    for (int d : {8, 16})
        other[0] += __shfl_xor_sync(0xFFFFFFFFu, other[0], d);
    for (int d : {1, 2, 4})
        other[1] += __shfl_xor_sync(0xFFFFFFFFu, other[1], d);
    for (int d : {16, 8, 4, 2, 1})
        other[2] += __shfl_xor_sync(0xFFFFFFFFu, other[2], d);
    for (int d : {4, 2})
        other[3] = fmaxf(other[3], __shfl_xor_sync(0xFFFFFFFFu, other[3], d));
    for (int d : {1, 2})
        other[4] = max_nan(other[4], __shfl_xor_sync(0xFFFFFFFFu, other[4], d));
    for (int i = 0; i < OVER_LANES; i++) {
        out[i * WARP + threadIdx.x] = one[i];
        out[(OVER_LANES + i) * WARP + threadIdx.x] = other[i];
    }
}

static void groups_of_lanes_are_their_steps(void)
{
    struct random_stream r = {32};
    const struct launch one_warp = {
        .name = "groups_of_lanes", .grid = dim3(1), .block = dim3(WARP), .stream = Q.stream};
    for (bool nan : {false, true}) {
        std::vector<float> in = r.floats(WARP);
        if (nan)
            in[9] = NAN;
        device_array<float> din(in), dout(2 * OVER_LANES * WARP);
        must(launch_kernel(&ERR, one_warp, groups_of_lanes, din.p, dout.p));
        const std::vector<float> got = dout.get();
        for (int i = 0; i < OVER_LANES; i++)
            for (uint32_t lane = 0; lane < WARP; lane++) {
                const float a = got[i * WARP + lane], b = got[(OVER_LANES + i) * WARP + lane];
                check(isnan(a) ? isnan(b) : a == b, "%d, lane %u: %g, %g by shuffles", i, lane, a,
                      b);
            }
    }
}

// x (n) by what a divisor was made of, and where the first n parts of `things` begin.
static __global__ void quotients(const uint32_t *x, struct divisor by, struct shares things,
                                 uint32_t *quotient, uint32_t *begin)
{
    const uint32_t i = blockIdx.x * WARP + threadIdx.x;
    quotient[i] = by.divide(x[i]);
    begin[i] = things.begin(i);
}

static void quotients_are_exact(void)
{
    enum { N = 2 * WARP };
    struct random_stream r = {33};
    const struct launch l = {
        .name = "quotients", .grid = dim3(N / WARP), .block = dim3(WARP), .stream = Q.stream};
    device_array<uint32_t> dx(N), quotient(N), begin(N);
    for (uint32_t d : {1u, 2u, 3u, 7u, 8u, 132u, 264u, 641u, 65535u, 65536u, 65537u, 1000003u,
                       0x7FFFFFFFu, 0x80000000u, 0x80000001u, UINT32_MAX}) {
        std::vector<uint32_t> x(N);
        for (uint32_t i = 0; i < N; i++) { // around multiples, of which one is the last
            const uint32_t k = i < 6 ? UINT32_MAX / d : (uint32_t)r.u64() % (UINT32_MAX / d) + 1;
            x[i] = i == 0 ? 0 : i == 1 ? UINT32_MAX : k * d - (i & 1);
        }
        dx.put(x);
        const uint32_t things = (uint32_t)(r.u64() % 1000000), parts = lesser(d, 60000u);
        must(launch_kernel(&ERR, l, quotients, dx.p, divisor_of(d), shares_of(things, parts),
                           quotient.p, begin.p));
        const std::vector<uint32_t> got = quotient.get(), at = begin.get();
        for (uint32_t i = 0; i < N; i++) {
            check(got[i] == x[i] / d, "%u / %u: %u, expected %u", x[i], d, got[i], x[i] / d);
            const uint32_t want = (uint32_t)((uint64_t)things * i / parts);
            check(i > parts || at[i] == want, "part %u of %u of %u begins at %u, expected %u", i,
                  parts, things, at[i], want);
        }
    }
}

static const struct tap_test tests[] = {
    {"divisions that the host prepares are exact", quotients_are_exact},
    {"butterflies are their steps", butterflies_are_their_steps},
    {"rows have the same bits among few and many", rows_have_the_same_bits_among_few_and_many},
    {"a group of lanes combines as its steps do", groups_of_lanes_are_their_steps},
    {"gates and biases agree", gates_and_biases_agree},
    {"activations agree at the ends", activations_agree_at_the_ends},
    {"streams are predicted and corrected", streams_are_predicted_and_corrected},
    {"gates are cut off", gates_are_cut_off},
    {"rows are clamped", rows_are_clamped},
    {"normed rows are added", normed_rows_are_added},
    {"rows that are owed something are made", rows_that_are_owed_something_are_made},
    {"rows are normed", rows_are_normed},
    {"logits are scaled and limited", logits_are_scaled_and_limited},
    {"joined rows are normed and added", joined_rows_are_normed_and_added},
    {"what layers are told agrees", what_layers_are_told_agrees},
    {"rows are scaled and gathered", rows_are_gathered},
    {"rows that are picked are prepared as if they lay together",
     rows_that_are_picked_are_prepared_as_if_they_lay_together},
    {"float16 rows have eleven bits of any magnitude",
     float16_rows_have_eleven_bits_of_any_magnitude},
};

int main(void)
{
    return gpu_test_main(tests);
}
