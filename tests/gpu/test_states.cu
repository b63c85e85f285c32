// Layers with a recurrent state, against plain loops in double that read like the comments of
// model/model.h; and that a state has the same bits however its tokens were cut.
#include <algorithm>

#include "states_case.h"

static const uint32_t NOBODY = 7; // slots

static bool near(double got, double want, double size)
{
    return fabs(got - want) <= 2e-5 * (size + fabs(want));
}

// The inputs before a span, then its own: x of token t (from -kept on) and channel c.
struct inputs {
    const float *before; // (kept, n), NULL: zeros
    std::vector<double> own;
    uint32_t n, kept;
    double at(int t, uint32_t c) const
    {
        if (t >= 0)
            return own[(size_t)t * n + c];
        return before ? before[(size_t)(t + (int)kept) * n + c] : 0.0;
    }
    double mixed(const std::vector<float> &w, int t, uint32_t c, double sum = 0.0) const
    {
        for (uint32_t tap = 0; tap <= kept; tap++)
            sum += w[(size_t)c * (kept + 1) + tap] * at(t + (int)tap - (int)kept, c);
        return sum;
    }
    void check_kept(const float *got, uint32_t n_row) const
    {
        for (uint32_t k = 0; k < kept; k++)
            for (uint32_t c = 0; c < n; c++) {
                const double want = at((int)(n_row + k) - (int)kept, c);
                check(near(got[(size_t)k * n + c], want, 1e-3), "kept %u, channel %u: %g, not %g",
                      k, c, got[(size_t)k * n + c], want);
            }
    }
};

// ---- short convolutions

static void short_convolutions_agree(void)
{
    struct random_stream r = {51};
    for (struct short_conv conv : {short_conv{5, 2}, {256, 3}, {300, 4}, {33, 6}}) {
        const uint32_t kept = conv.n_taps - 1;
        const size_t stride = (size_t)kept * conv.n + 9;
        struct test_pass pass;
        pass.add(1, 0, 1);
        pass.add(7, NO_STATE, 2);
        pass.add(2, 3, 4);
        pass.add(conv.n_taps, 0, 5);
        const std::vector<float> w = r.floats((size_t)conv.n * conv.n_taps);
        const std::vector<float> in = r.floats(pass.rows.size() * 3 * conv.n);
        const std::vector<float> before = r.floats(NOBODY * stride);
        device_array<float> states(before);
        const std::vector<float> y = convolve(conv, w, in, pass, states, stride);
        const std::vector<float> after = states.get();
        for (const struct state_span &span : pass.spans) {
            struct inputs x = {span.from == NO_STATE ? nullptr : &before[span.from * stride + 3],
                               {},
                               conv.n,
                               kept};
            const float *row = &in[(size_t)span.row0 * 3 * conv.n];
            for (uint32_t i = 0; i < span.n; i++, row += 3 * conv.n)
                for (uint32_t c = 0; c < conv.n; c++)
                    x.own.push_back((double)row[c] * row[2 * conv.n + c]);
            for (uint32_t t = 0; t < span.n; t++)
                for (uint32_t c = 0; c < conv.n; c++) {
                    const double want = in[(size_t)(span.row0 + t) * 3 * conv.n + conv.n + c] *
                                        x.mixed(w, (int)t, c);
                    const double got = y[(size_t)(span.row0 + t) * conv.n + c];
                    check(near(got, want, 0.1), "%u taps, row %u of %u, channel %u: %g, not %g",
                          conv.n_taps, t, span.n, c, got, want);
                }
            x.check_kept(&after[span.to * stride + 3], span.n);
        }
        check(std::equal(before.data(), before.data() + stride, after.data()) &&
                  std::equal(before.data() + 6 * stride, before.data() + 7 * stride,
                             after.data() + 6 * stride),
              "other slots were written");
    }
}

// ---- gated delta nets

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

static void to_length(double *x, uint32_t n, double eps, double scale)
{
    double squares = 0;
    for (uint32_t i = 0; i < n; i++)
        squares += x[i] * x[i];
    for (uint32_t i = 0; i < n; i++)
        x[i] *= scale / fmax(sqrt(squares), eps);
}

// One span's results (n, n_out), and of each head its matrix (keys, values).
static std::vector<double> reference(const net &net, const net_rows &all,
                                     const struct state_span &span, const float *before,
                                     std::vector<double> &matrices)
{
    const struct delta &d = net.delta;
    const uint32_t n = d.n_state, channels = net.channels(), shared = d.n_head / d.n_key_head;
    struct inputs x = {before, {}, channels, d.n_conv - 1};
    std::vector<double> out, mixed(channels), m((size_t)net.n_out() * n);
    for (size_t h = 0; before && h < d.n_head; h++)
        for (size_t i = 0; i < n; i++)
            for (size_t c = 0; c < n; c++)
                m[(h * n + i) * n + c] = before[delta_inputs(&d) + (h * n + c) * n + i];
    x.own.assign(all.in.begin() + (size_t)span.row0 * channels,
                 all.in.begin() + (size_t)(span.row0 + span.n) * channels);
    for (uint32_t t = 0; t < span.n; t++) {
        const size_t row = span.row0 + t;
        for (uint32_t c = 0; c < channels; c++) {
            mixed[c] = x.mixed(net.w, (int)t, c);
            mixed[c] *= logistic(mixed[c]);
        }
        for (uint32_t h = 0; h < 2 * d.n_key_head; h++)
            to_length(&mixed[h * n], n, net.eps, h < d.n_key_head ? 1 / sqrt(n) : 1);
        for (uint32_t h = 0; h < d.n_head; h++) {
            const uint32_t key = d.in_order ? h / shared : h % d.n_key_head;
            const size_t of_pair = row * 2 * d.n_head + key * 2 * shared + h % shared;
            const double b = net.paired ? all.beta[of_pair] : all.beta[row * d.n_head + h];
            const double al =
                net.paired ? all.beta[of_pair + shared] : all.alpha[row * d.n_head + h];
            const double decay = exp(net.a[h] * log1p(exp(al + net.dt[h])));
            const double *q = &mixed[key * n], *k = &mixed[(d.n_key_head + key) * n],
                         *v = &mixed[(2 * d.n_key_head + h) * n];
            double *mh = &m[(size_t)h * n * n], squares = 0;
            std::vector<double> o(n), news(n);
            for (uint32_t c = 0; c < n; c++) {
                double old = 0;
                for (uint32_t i = 0; i < n; i++)
                    old += k[i] * (mh[i * n + c] *= decay);
                news[c] = logistic(b) * (v[c] - old);
                for (uint32_t i = 0; i < n; i++)
                    o[c] += q[i] * (mh[i * n + c] += k[i] * news[c]);
                squares += o[c] * o[c];
            }
            for (uint32_t c = 0; c < n; c++) {
                const double z = all.gate[row * net.n_out() + h * n + c];
                out.push_back(o[c] / sqrt(squares / n + net.eps) * net.norm[c] * z * logistic(z));
            }
        }
    }
    matrices = m;
    return out;
}

// What a span gives, the rows of y from its first on, and the state that it leaves in a slot.
static void check_span(const net &net, const net_rows &rows, const struct state_span &span,
                       const std::vector<float> &before, const std::vector<float> &y,
                       const std::vector<float> &after, uint32_t slot, double tolerance)
{
    const size_t stride = net.stride();
    const float *from = span.from == NO_STATE ? nullptr : &before[span.from * stride + 4];
    std::vector<double> m;
    const std::vector<double> want = reference(net, rows, span, from, m);
    double off = 0; // by how much of what is allowed
    auto compare = [&](double got, double w, double size) {
        off = further(off, fabs(got - w) / (tolerance * (size + fabs(w))));
    };
    for (size_t i = 0; i < want.size(); i++)
        compare(y[span.row0 * net.n_out() + i], want[i], 1.0);
    const uint32_t n = net.delta.n_state;
    const float *to = &after[slot * stride + 4 + delta_inputs(&net.delta)];
    for (size_t i = 0; i < m.size(); i++)
        compare(to[i / (n * n) * n * n + i % n * n + i / n % n], m[i], 0.5);
    struct inputs x = {from, {}, net.channels(), net.delta.n_conv - 1};
    x.own.assign(rows.in.begin() + (size_t)span.row0 * x.n,
                 rows.in.begin() + (size_t)(span.row0 + span.n) * x.n);
    x.check_kept(&after[slot * stride + 4], span.n);
    check(off <= 1, "heads of %u, span of %u rows: off by %g of what is allowed", n, span.n, off);
}

static void delta_nets_agree(void)
{
    struct random_stream r = {52};
    static const struct {
        struct delta delta;
        bool paired;
    } cases[] = {
        {{4, 2, 16, 4, false}, false},  {{4, 2, 16, 4, true}, true},
        {{3, 1, 5, 2, false}, false},   {{2, 2, 40, 3, true}, true},
        {{4, 2, 128, 4, false}, false}, {{1, 1, 200, 4, false}, false},
        {{1, 1, 256, 3, true}, true},
    };
    for (const auto &one : cases) {
        const net net(r, one.delta, one.paired);
        const size_t stride = net.stride();
        struct test_pass pass;
        pass.add(1, 0, 1);
        pass.add(19, NO_STATE, 2);
        pass.add(2, 3, 4);
        const net_rows rows(r, net, pass.rows.size());
        const std::vector<float> before = r.floats(NOBODY * stride, 0.5);
        device_array<float> states(before);
        const std::vector<float> y = run(net, rows, 0, pass, states), after = states.get();
        for (const struct state_span &span : pass.spans)
            check_span(net, rows, span, before, y, after, span.to, 2e-5);
        check(std::equal(before.data(), before.data() + stride, after.data()) &&
                  std::equal(before.data() + 5 * stride, before.data() + 7 * stride,
                             after.data() + 5 * stride),
              "heads of %u: other slots were written", one.delta.n_state);
    }
}

// Of every eighth row next to nothing is left of what was before it.
enum { RESET_EVERY = 8 };
static const float RESET_DECAY = -1000.0f; // a layer's a

static float reset_step(size_t row) // before its function
{
    return row % RESET_EVERY == 5 ? 30.0f : -9.0f;
}

// A layer, net or space, in chunks: what the rows of the pass's only span give and leave in slot 1,
// with the states within it, of which each is that behind a shorter one; and that nothing else is
// written.
template <typename LAYER, typename ROWS>
static void check_in_chunks(struct random_stream &r, const LAYER &layer, const ROWS &rows,
                            const struct test_pass &pass, double tolerance, const char *what,
                            uint32_t n_state)
{
    const struct state_span &span = pass.spans[0];
    const size_t stride = layer.stride();
    const std::vector<float> before = r.floats(NOBODY * stride, 0.5);
    device_array<float> states(before);
    const std::vector<float> y = run(layer, rows, 0, pass, states, {}, true), after = states.get();
    check_span(layer, rows, span, before, y, after, 1, tolerance);
    for (uint32_t i = 0; i < span.n_within; i++) {
        struct state_span shorter = span;
        shorter.n = (i + 1) * STATES_EVERY;
        check_span(layer, rows, shorter, before, y, after, span.within[i], tolerance);
    }
    check(std::equal(before.data(), before.data() + stride, after.data()) &&
              std::equal(before.data() + 2 * stride, before.data() + 3 * stride,
                         after.data() + 2 * stride) &&
              std::equal(before.data() + 5 * stride, before.data() + 7 * stride,
                         after.data() + 5 * stride),
          "%s of %u: other slots were written", what, n_state);
}

static void delta_nets_in_chunks_agree(void)
{
    struct random_stream r = {58};
    static const struct {
        struct delta delta;
        bool paired;
        uint32_t n;
        bool resets;
    } cases[] = {
        {{4, 2, 32, 4, false}, false, 1},
        {{6, 2, 32, 4, true}, true, 31},
        {{2, 1, 64, 3, false}, false, 32},
        {{5, 5, 32, 2, true}, true, 33},
        {{2, 2, 64, 4, false}, true, 95},
        {{4, 2, 128, 4, false}, false, 97},
        {{12, 2, 32, 4, true}, false, 160},
        {{2, 1, 32, 4, false}, false, 2 * STATES_EVERY + 9},
        {{2, 2, 64, 4, false}, false, 90, true},
    };
    for (const auto &one : cases)
        for (uint32_t from : {(uint32_t)NO_STATE, 0u}) {
            net net(r, one.delta, one.paired);
            struct test_pass pass;
            pass.add(one.n, from, 1);
            struct state_span &span = pass.spans[0];
            for (uint32_t n = STATES_EVERY; n < one.n; n += STATES_EVERY)
                span.within[span.n_within++] = 2 + n / STATES_EVERY;
            net_rows rows(r, net, one.n);
            if (one.resets) {
                std::fill(net.a.begin(), net.a.end(), RESET_DECAY);
                for (size_t i = 0; i < (size_t)one.n * one.delta.n_head; i++)
                    rows.alpha[i] = reset_step(i / one.delta.n_head);
            }
            check_in_chunks(r, net, rows, pass, 1e-4, "heads", one.delta.n_state);
        }
}

// ---- selective state spaces

// Numbers, and the sums of the magnitudes of what each was added up from: how far off rounding may
// leave it.
struct sums {
    std::vector<double> value, size;
};

// One span's results (n, n_inner), and the state of each head (n_inner / n_head, n_state).
static struct sums reference(const space &space, const std::vector<float> &all,
                             const struct state_span &span, const float *before, struct sums &state)
{
    const struct ssm &f = space.ssm;
    const uint32_t channels = ssm_channels(&f), n = f.n_state, width = f.n_inner / f.n_head;
    struct inputs x = {before, {}, channels, f.n_conv - 1};
    struct sums out;
    std::vector<double> mixed(channels);
    state.value.assign((size_t)f.n_inner * n, 0.0);
    if (before)
        state.value.assign(before + ssm_inputs(&f),
                           before + ssm_inputs(&f) + (size_t)f.n_inner * n);
    state.size = state.value;
    for (double &v : state.size)
        v = fabs(v);
    for (uint32_t t = 0; t < span.n; t++) {
        const float *in = &all[(size_t)(span.row0 + t) * space.width() + f.n_inner];
        x.own.insert(x.own.end(), in, in + channels);
    }
    for (uint32_t t = 0; t < span.n; t++) {
        const float *z = &all[(size_t)(span.row0 + t) * space.width()];
        const float *dt = z + f.n_inner + channels;
        std::vector<double> y(f.n_inner), size(f.n_inner);
        for (uint32_t c = 0; c < channels; c++) {
            mixed[c] = x.mixed(space.w, (int)t, c, space.bias.empty() ? 0.0 : space.bias[c]);
            mixed[c] *= logistic(mixed[c]);
        }
        for (uint32_t i = 0; i < f.n_inner; i++) {
            const uint32_t head = i / width, group = head / (f.n_head / f.n_group);
            const double *b = &mixed[f.n_inner + group * n], *c = b + f.n_group * n;
            const double step = log1p(exp((double)dt[head] + space.dt[head]));
            const double decay = exp(step * space.a[head]), gate = z[i] * logistic(z[i]);
            for (uint32_t k = 0; k < n; k++) {
                double &s = state.value[(size_t)i * n + k], &l = state.size[(size_t)i * n + k];
                s = decay * s + b[k] * step * mixed[i];
                l = decay * l + fabs(b[k] * step * mixed[i]);
                y[i] += s * c[k];
                size[i] += l * fabs(c[k]);
            }
            y[i] = (y[i] + space.d[head] * mixed[i]) * gate;
            size[i] = (size[i] + fabs(space.d[head] * mixed[i])) * fabs(gate);
        }
        for (uint32_t i = 0; i < f.n_inner; i++) {
            const uint32_t of_group = f.n_inner / f.n_group, first = i / of_group * of_group;
            double squares = 0;
            for (uint32_t k = first; k < first + of_group; k++)
                squares += y[k] * y[k];
            const double scale =
                space.norm.empty() ? 1 : space.norm[i] / sqrt(squares / of_group + space.eps);
            out.value.push_back(y[i] * scale);
            out.size.push_back(size[i] * fabs(scale));
        }
    }
    return out;
}

// As check_span above.
static void check_span(const space &space, const std::vector<float> &in,
                       const struct state_span &span, const std::vector<float> &before,
                       const std::vector<float> &y, const std::vector<float> &after, uint32_t slot,
                       double tolerance)
{
    const size_t stride = space.stride(), n_inner = space.ssm.n_inner;
    const float *from = span.from == NO_STATE ? nullptr : &before[span.from * stride + 4];
    const float *to = &after[slot * stride + 4];
    struct sums state, want = reference(space, in, span, from, state);
    double off = 0;
    auto compare = [&](const float *got, const struct sums &w) {
        for (size_t i = 0; i < w.value.size(); i++)
            off = further(off, fabs(got[i] - w.value[i]) / (tolerance * (w.size[i] + 1e-3)));
    };
    compare(&y[span.row0 * n_inner], want);
    compare(to + ssm_inputs(&space.ssm), state);
    struct inputs x = {from, {}, ssm_channels(&space.ssm), space.ssm.n_conv - 1};
    for (uint32_t t = 0; t < span.n; t++) {
        const float *row = &in[(size_t)(span.row0 + t) * space.width() + n_inner];
        x.own.insert(x.own.end(), row, row + x.n);
    }
    x.check_kept(to, span.n);
    check(off <= 1, "states of %u, span of %u rows: off by %g of what is allowed",
          space.ssm.n_state, span.n, off);
}

static void state_spaces_agree(void)
{
    struct random_stream r = {55};
    static const struct {
        struct ssm ssm; // n_inner, n_head, n_group, n_state, n_conv
        bool biased, normed;
    } cases[] = {
        {{24, 4, 2, 16, 4}, true, true},    {{5, 5, 1, 1, 2}, false, true},
        {{66, 2, 1, 5, 3}, true, false},    {{62, 2, 2, 32, 4}, false, false},
        {{64, 2, 2, 33, 2}, true, true},    {{12, 6, 3, 64, 5}, true, true},
        {{40, 4, 4, 65, 4}, true, false},   {{36, 1, 1, 128, 4}, false, true},
        {{8, 2, 1, 129, 21}, true, true},   {{3, 1, 1, 255, 4}, true, true},
        {{1030, 5, 1, 256, 4}, true, true}, {{4160, 4, 1, 2, 2}, false, true}, // gated by fours
    };
    for (const auto &one : cases) {
        const space space(r, one.ssm, one.biased, one.normed);
        const size_t stride = space.stride();
        struct test_pass pass;
        pass.add(1, 0, 1);
        pass.add(19, NO_STATE, 2);
        pass.add(2, 3, 4);
        const std::vector<float> in = r.floats(pass.rows.size() * space.width(), 2.0);
        const std::vector<float> before = r.floats(NOBODY * stride, 0.5);
        device_array<float> states(before);
        const std::vector<float> y = run(space, in, 0, pass, states), after = states.get();
        for (const struct state_span &span : pass.spans)
            check_span(space, in, span, before, y, after, span.to, 2e-5);
        check(std::equal(before.data(), before.data() + stride, after.data()) &&
                  std::equal(before.data() + 5 * stride, before.data() + 7 * stride,
                             after.data() + 5 * stride),
              "states of %u: other slots were written", one.ssm.n_state);
    }
}

static void state_spaces_in_chunks_agree(void)
{
    struct random_stream r = {59};
    static const struct {
        struct ssm ssm;
        bool biased, normed;
        uint32_t n;
        bool wide; // as if there were few multiprocessors: 16 columns a warp
        bool resets;
    } cases[] = {
        {{64, 2, 1, 64, 4}, true, true, 1},
        {{128, 4, 2, 128, 4}, true, true, 31},
        {{128, 2, 1, 64, 3}, false, false, 32},
        {{96, 1, 1, 128, 4}, false, true, 33},
        {{128, 1, 1, 256, 4}, true, false, 95},
        {{64, 2, 2, 64, 4}, true, true, 2 * STATES_EVERY + 9},
        {{256, 4, 2, 64, 4}, true, true, 41, true},
        {{128, 2, 1, 128, 4}, true, true, 70, true},
        {{128, 1, 1, 64, 4}, true, true, STATES_EVERY + 3, true},
        {{128, 2, 1, 64, 4}, true, true, 90, false, true},
    };
    const int n_sm = Q.n_sm;
    for (const auto &one : cases)
        for (uint32_t from : {(uint32_t)NO_STATE, 0u}) {
            Q.n_sm = one.wide ? 1 : n_sm;
            space space(r, one.ssm, one.biased, one.normed);
            if (!ssm_can_chunk(&Q, &one.ssm)) {
                check(one.ssm.n_state == 256 && Q.smem_max < 128 << 10,
                      "states of %u are none for chunks", one.ssm.n_state);
                continue;
            }
            struct test_pass pass;
            pass.add(one.n, from, 1);
            struct state_span &span = pass.spans[0];
            for (uint32_t n = STATES_EVERY; n < one.n; n += STATES_EVERY)
                span.within[span.n_within++] = 2 + n / STATES_EVERY;
            std::vector<float> in = r.floats((size_t)one.n * space.width(), 2.0);
            if (one.resets) {
                std::fill(space.a.begin(), space.a.end(), RESET_DECAY);
                for (uint32_t t = 0; t < one.n; t++)
                    for (uint32_t h = 1; h <= one.ssm.n_head; h++)
                        in[(size_t)(t + 1) * space.width() - h] = reset_step(t);
            }
            check_in_chunks(r, space, in, pass, 6e-5, "states", one.ssm.n_state);
        }
    Q.n_sm = n_sm;
}

// A number that is none is in what its token gives; of x, b and t, in what later ones give, too. In
// chunks earlier rows may have it, of those that a matrix instruction multiplies at once.
static void what_is_not_finite_stays_visible(void)
{
    struct random_stream r = {56};
    for (bool in_chunks : {false, true}) {
        const space space(r, in_chunks ? ssm{32, 1, 1, 64, 4} : ssm{24, 4, 2, 16, 4}, true, true);
        const uint32_t n = in_chunks ? 70 : 11, bad = in_chunks ? 52 : 4, ld = space.width();
        const uint32_t first = in_chunks ? bad / 16 * 16 : bad, n_inner = space.ssm.n_inner;
        const uint32_t c = 2 * n_inner + space.ssm.n_group * space.ssm.n_state; // they begin there
        const uint32_t t = ld - space.ssm.n_head;
        const std::vector<float> in = r.floats((size_t)n * ld);
        struct test_pass pass;
        pass.add(n, NO_STATE, 0);
        for (float none : {NAN, INFINITY, -INFINITY})
            for (uint32_t at = 0; at < ld; at += in_chunks && at + 7 < t ? 7 : 1) {
                if (none < 0 && at >= t) // there it means a step of 0
                    continue;
                std::vector<float> with = in;
                with[bad * ld + at] = none;
                device_array<float> states(std::vector<float>(space.stride()));
                const std::vector<float> y = run(space, with, 0, pass, states, {}, in_chunks);
                auto visible = [&](uint32_t row) {
                    return std::any_of(y.data() + row * n_inner, y.data() + (row + 1) * n_inner,
                                       [](float v) { return !std::isfinite(v); });
                };
                const bool kept = (at >= n_inner && at < c) || at >= t;
                check(!visible(first - 1) && visible(bad), "%g in column %u is not seen", none, at);
                check(visible(n - 1) == kept, "%g in column %u: seen later or not", none, at);
            }
    }
}

// 37 tokens at once, one by one, and otherwise: the same results and states, in all bits.
static void however_tokens_are_cut_bits_are_the_same(void)
{
    struct random_stream r = {53};
    const uint32_t n = 37;
    const net net(r, {4, 2, 64, 4, false}, false);
    const net_rows rows(r, net, n);
    const struct short_conv conv = {70, 3};
    const std::vector<float> w = r.floats((size_t)conv.n * conv.n_taps);
    const std::vector<float> in = r.floats((size_t)n * 3 * conv.n);
    const space space(r, {72, 6, 3, 40, 4}, true, true);
    const std::vector<float> space_in = r.floats((size_t)n * space.width());
    std::vector<float> want[6];
    for (uint32_t step : {37u, 1u, 2u, 5u, 8u, 16u}) {
        device_array<float> states(std::vector<float>(2 * net.stride()));
        device_array<float> conv_states(std::vector<float>(2 * 256));
        device_array<float> space_states(std::vector<float>(2 * space.stride()));
        std::vector<float> y, conv_y, space_y;
        uint32_t from = NO_STATE, to = 0;
        for (uint32_t i = 0; i < n; i += step) {
            struct test_pass pass;
            pass.add(lesser(step, n - i), from, to);
            const uint32_t m = pass.spans[0].n;
            const std::vector<float> some = run(net, rows, i, pass, states);
            const std::vector<float> part(in.begin() + (size_t)i * 3 * conv.n,
                                          in.begin() + (size_t)(i + m) * 3 * conv.n);
            const std::vector<float> more = convolve(conv, w, part, pass, conv_states, 256);
            const std::vector<float> most = run(space, space_in, i, pass, space_states);
            y.insert(y.end(), some.begin(), some.end());
            conv_y.insert(conv_y.end(), more.begin(), more.end());
            space_y.insert(space_y.end(), most.begin(), most.end());
            from = to;
            to = 1 - to;
        }
        auto slot = [&](const std::vector<float> &v, size_t size) {
            return std::vector<float>(v.begin() + from * size, v.begin() + (from + 1) * size);
        };
        const std::vector<float> got[] = {y,
                                          conv_y,
                                          space_y,
                                          slot(states.get(), net.stride()),
                                          slot(conv_states.get(), 256),
                                          slot(space_states.get(), space.stride())};
        for (int k = 0; k < 6; k++)
            if (step == n)
                want[k] = got[k];
            else
                check(got[k] == want[k], "in steps of %u, %d: other bits", step, k);
    }
}

int main(void)
{
    static const tap_test tests[] = {
        {"short convolutions agree", short_convolutions_agree},
        {"delta nets agree", delta_nets_agree},
        {"delta nets agree in chunks", delta_nets_in_chunks_agree},
        {"state spaces agree", state_spaces_agree},
        {"state spaces agree in chunks", state_spaces_in_chunks_agree},
        {"what is not finite stays visible", what_is_not_finite_stays_visible},
        {"however tokens are cut, bits are the same", however_tokens_are_cut_bits_are_the_same},
    };
    return gpu_test_main(tests);
}
