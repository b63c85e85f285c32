// What happens to rows between the matrices, against plain references in double.
#include "gpu_test.h"

static void gates_and_biases_agree(void)
{
    struct random_stream r = {23};
    const uint32_t n = 300, rows = 3;
    const std::vector<float> g = r.floats(n * rows, 12.0), u = r.floats(n * rows), b = r.floats(n);
    const std::vector<float> undo = r.floats(rows);
    for (enum activation act : {ACT_SILU, ACT_GELU_TANH}) {
        device_array<float> dg(g), du(u), db(b), dundo(undo);
        must(gate_launch(&Q, act, dg.p, du.p, n * rows, &ERR));
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
    for (enum activation act : {ACT_SILU, ACT_GELU_TANH}) {
        device_array<float> g(x), one(std::vector<float>(x.size(), 1.0f));
        must(gate_launch(&Q, act, g.p, one.p, x.size(), &ERR));
        std::vector<float> got = g.get();
        for (size_t i = 0; i < x.size(); i++) {
            double want = activated(act, x[i]);
            if (x[i] < -20) // the reference's exponentials end, too
                want = 0;
            if (!isfinite(x[i]))
                check(!isfinite(got[i]), "%d of %g: %g", act, x[i], got[i]);
            else
                check(fabs(got[i] - want) <= 4e-6 * fabs(want) + 1e-7 &&
                          fabsf(got[i]) <= fabsf(x[i]),
                      "%d of %g: %g, expected %g", act, x[i], got[i], want);
        }
    }
}

static void normed_rows_are_added(void)
{
    struct random_stream r = {31};
    for (uint32_t n : {1u, 7u, 256u, 896u, 3585u})
        for (float scale : {0.0f, 0.22f}) {
            const uint32_t rows = 3;
            std::vector<float> x = r.floats(n * rows, 5.0), y = r.floats(n * rows, 0.3);
            const std::vector<float> norm = r.floats(n, 2.0);
            for (uint32_t i = 0; i < n; i++)
                y[n + i] = 0.0f; // eps alone under the root
            device_array<float> dx(x), dy(y), dn(norm);
            must(add_normed_launch(&Q, dy.p, dn.p, 0.02f, scale, dx.p, rows, n, nullptr, &ERR));
            std::vector<float> got = dx.get();
            for (uint32_t i = 0; i < rows; i++) {
                double sum = 0;
                for (uint32_t k = 0; k < n; k++)
                    sum += (double)y[i * n + k] * y[i * n + k];
                for (uint32_t k = 0; k < n; k++) {
                    double add = y[i * n + k] / sqrt(sum / n + (double)0.02f) * norm[k];
                    double want = x[i * n + k] + (scale ? (double)scale : 1.0) * add;
                    check(fabs(got[i * n + k] - want) <= 2e-6 * (fabs(want) + fabs(add)) + 1e-6,
                          "%u columns, row %u column %u: %g, expected %g", n, i, k, got[i * n + k],
                          want);
                }
            }
            check(dy.get() == y, "%u columns: what is added was changed", n);
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

static const struct tap_test tests[] = {
    {"gates and biases agree", gates_and_biases_agree},
    {"activations agree at the ends", activations_agree_at_the_ends},
    {"normed rows are added", normed_rows_are_added},
    {"logits are scaled and limited", logits_are_scaled_and_limited},
};

int main(void)
{
    return gpu_test_main(tests);
}
