// Layers with a recurrent state: the rows of a pass, and what the kernels make of them.
#ifndef HOKKU_TESTS_GPU_STATES_CASE_H
#define HOKKU_TESTS_GPU_STATES_CASE_H

#include "late_inputs.h"
#include "states.h"

// Rows of sequences one behind the other, as a pass has them.
struct test_pass {
    std::vector<struct state_span> spans;
    std::vector<struct seq_row> rows;
    void add(uint32_t n, uint32_t from, uint32_t to)
    {
        const uint32_t row0 = (uint32_t)rows.size();
        spans.push_back({row0, n, from, to});
        for (uint32_t i = 0; i < n; i++)
            rows.push_back({(uint32_t)spans.size(), 100 + i});
    }
};

static inline struct state_slots slots_of(device_array<float> &states, size_t at, size_t stride,
                                          const device_array<struct state_span> &spans,
                                          const device_array<struct seq_row> &rows)
{
    struct state_slots s = {};
    s.base = states.p + at;
    s.stride = stride;
    s.spans = spans.p;
    s.n_span = (uint32_t)spans.n;
    s.rows = spans.n > 1 ? rows.p : nullptr;
    return s;
}

// The states of these rows go on through the first rows of `again` alone, each as a layer of its
// own.
template <typename T, typename S>
static inline void advance(const T &of, const S &shape, const std::vector<struct state_span> &again,
                           bool (*launch)(const struct queue *, const T *, const S *, uint32_t,
                                          struct error *))
{
    const device_array<struct state_span> spans(again);
    std::vector<T> layers;
    for (size_t i = 0; i < again.size(); i++) {
        layers.push_back(of);
        layers[i].state.spans = spans.p + i;
        layers[i].state.rows = nullptr;
    }
    const device_array<T> table(layers);
    if (!layers.empty())
        must(launch(&Q, table.p, &shape, (uint32_t)layers.size(), &ERR));
    must(CHECK_CUDA(cudaStreamSynchronize(Q.stream), &ERR));
}

// ---- short convolutions

static inline std::vector<float> convolve(const struct short_conv &conv,
                                          const std::vector<float> &w, const std::vector<float> &in,
                                          const struct test_pass &pass, device_array<float> &states,
                                          size_t stride,
                                          const std::vector<struct state_span> &again = {})
{
    const uint32_t n = (uint32_t)pass.rows.size();
    device_array<float> dw(w), y((size_t)n * conv.n);
    late_inputs late;
    device_array<struct state_span> spans(pass.spans);
    device_array<struct seq_row> rows(pass.rows);
    struct short_conv_rows c = {};
    c.conv = conv;
    c.state = slots_of(states, 3, stride, spans, rows);
    c.w = dw.p;
    c.in = late.add(in);
    c.y = y.p;
    late.come();
    must(short_conv_launch(&Q, &c, n, &ERR));
    advance(c, conv, again, short_conv_advance_launch);
    return y.get();
}

// ---- gated delta nets

struct net {
    struct delta delta;
    bool paired;
    float eps;
    std::vector<float> w, a, dt, norm;
    net(struct random_stream &r, const struct delta &d, bool paired_)
        : delta(d), paired(paired_), eps(1e-4f)
    {
        w = r.floats((size_t)channels() * d.n_conv);
        a = r.floats(d.n_head);
        for (float &x : a)
            x = -fabsf(x) - 0.01f;
        dt = r.floats(d.n_head);
        norm = r.floats(d.n_state);
    }
    uint32_t channels() const
    {
        return (2 * delta.n_key_head + delta.n_head) * delta.n_state;
    }
    uint32_t n_out() const
    {
        return delta.n_head * delta.n_state;
    }
    size_t stride() const
    {
        return delta_inputs(&delta) + (size_t)n_out() * delta.n_state + 8;
    }
};

struct net_rows {
    std::vector<float> in, beta, alpha, gate;
    net_rows(struct random_stream &r, const net &net, size_t n)
        : in(r.floats(n * net.channels())), beta(r.floats(n * 2 * net.delta.n_head, 3.0)),
          alpha(r.floats(n * 2 * net.delta.n_head, 3.0)), gate(r.floats(n * net.n_out(), 2.0))
    {
    }
};

static inline bool same_bits(const std::vector<float> &a, const std::vector<float> &b)
{
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Rows [row0, row0 + those of the pass), by three launches, and by one: the same bits. Or in
// chunks.
static inline std::vector<float> run(const net &net, const net_rows &all, size_t row0,
                                     const struct test_pass &pass, device_array<float> &states,
                                     const std::vector<struct state_span> &again = {},
                                     bool in_chunks = false)
{
    const uint32_t n = (uint32_t)pass.rows.size(), width = net.paired ? 2 : 1;
    auto part = [&](const std::vector<float> &v, size_t ld) {
        return std::vector<float>(v.begin() + row0 * ld, v.begin() + (row0 + n) * ld);
    };
    const size_t ld = width * net.delta.n_head;
    device_array<float> w(net.w), a(net.a), dt(net.dt), norm(net.norm),
        mixed((size_t)n * net.channels()), y((size_t)n * net.n_out());
    late_inputs late;
    device_array<struct state_span> spans(pass.spans);
    device_array<struct seq_row> rows(pass.rows);
    struct delta_rows d = {};
    d.delta = net.delta;
    d.eps = net.eps;
    d.state = slots_of(states, 4, net.stride(), spans, rows);
    d.in = late.add(part(all.in, net.channels()));
    d.w = w.p;
    d.mixed = mixed.p;
    d.beta = late.add(part(all.beta, ld));
    d.alpha = net.paired ? d.beta : late.add(part(all.alpha, ld));
    d.paired = net.paired;
    d.a = a.p;
    d.dt = dt.p;
    d.gate = late.add(part(all.gate, net.n_out()));
    d.norm = norm.p;
    d.y = y.p;
    device_array<float> states_of_one(states.get()), y_of_one(y.n), mixed_by_one(mixed.n);
    late.come();
    must((in_chunks ? delta_mix_launch : delta_conv_launch)(&Q, &d, n, &ERR));
    device_array<char> scratch(in_chunks ? delta_chunk_bytes(&d.delta, n) : 0);
    if (in_chunks)
        must(delta_chunks_launch(&Q, &d, scratch.p, n, &ERR));
    else
        must(delta_launch(&Q, &d, &ERR));
    must(delta_gate_launch(&Q, &d, n, &ERR));
    advance(d, d.delta, again, delta_advance_launch);
    if (!in_chunks && delta_can_step(&d.delta) && n <= STATES_EVERY) {
        d.state.base = states_of_one.p + 4;
        d.mixed = again.empty() ? nullptr : mixed_by_one.p;
        d.y = y_of_one.p;
        late.come();
        must(delta_step_launch(&Q, &d, &ERR));
        advance(d, d.delta, again, delta_advance_launch);
        check(same_bits(y.get(), y_of_one.get()), "one launch gives other bits than three");
        check(same_bits(states.get(), states_of_one.get()), "one launch leaves other states");
    }
    return y.get();
}

// ---- selective state spaces

struct space {
    struct ssm ssm;
    float eps;
    std::vector<float> w, bias, a, d, dt, norm; // bias and norm empty: none
    space(struct random_stream &r, const struct ssm &s, bool biased, bool normed)
        : ssm(s), eps(1e-3f)
    {
        w = r.floats((size_t)ssm_channels(&s) * s.n_conv);
        bias = r.floats(biased ? ssm_channels(&s) : 0);
        a = r.floats(s.n_head);
        for (float &x : a)
            x = -fabsf(x) - 0.01f;
        d = r.floats(s.n_head);
        dt = r.floats(s.n_head);
        norm = r.floats(normed ? s.n_inner : 0);
    }
    uint32_t width() const // of a row of inputs
    {
        return ssm.n_inner + ssm_channels(&ssm) + ssm.n_head;
    }
    size_t stride() const
    {
        return ssm_inputs(&ssm) + (size_t)ssm.n_inner * ssm.n_state + 8;
    }
};

// Rows [row0, row0 + those of the pass) of in, one by one or in chunks.
static inline std::vector<float> run(const space &space, const std::vector<float> &all, size_t row0,
                                     const struct test_pass &pass, device_array<float> &states,
                                     const std::vector<struct state_span> &again = {},
                                     bool in_chunks = false)
{
    const uint32_t n = (uint32_t)pass.rows.size(), ld = space.width();
    device_array<float> w(space.w), bias(space.bias), a(space.a), d(space.d), dt(space.dt),
        norm(space.norm), mixed((size_t)n * ssm_channels(&space.ssm)),
        y((size_t)n * space.ssm.n_inner);
    late_inputs late;
    device_array<struct state_span> spans(pass.spans);
    device_array<struct seq_row> rows(pass.rows);
    struct ssm_rows s = {};
    s.ssm = space.ssm;
    s.eps = space.eps;
    s.state = slots_of(states, 4, space.stride(), spans, rows);
    s.in = late.add(std::vector<float>(all.begin() + row0 * ld, all.begin() + (row0 + n) * ld));
    s.ld = ld;
    s.w = w.p;
    s.bias = space.bias.empty() ? nullptr : bias.p;
    s.mixed = mixed.p;
    s.a = a.p;
    s.d = d.p;
    s.dt = dt.p;
    s.norm = space.norm.empty() ? nullptr : norm.p;
    s.y = y.p;
    late.come();
    must((in_chunks ? ssm_mix_launch : ssm_conv_launch)(&Q, &s, n, &ERR));
    device_array<char> scratch(in_chunks ? ssm_chunk_bytes(&Q, &s.ssm, n) : 0);
    if (in_chunks)
        must(ssm_chunks_launch(&Q, &s, scratch.p, n, &ERR));
    else
        must(ssm_launch(&Q, &s, &ERR));
    must(ssm_gate_launch(&Q, &s, n, &ERR));
    advance(s, s.ssm, again, ssm_advance_launch);
    return y.get();
}

#endif
