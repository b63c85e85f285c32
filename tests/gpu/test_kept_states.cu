// What layers with a recurrent state leave on the way: the states that a sequence goes back to have
// the bits that fewer tokens leave, and a step that is over writes none.
#include <algorithm>
#include <functional>

#include "states_case.h"

// Back behind each of eight rows: run(pass, states, again) has them in a slot or another.
template <typename R>
static void goes_back(const char *what, uint32_t n_state, size_t stride, R run)
{
    enum { ROWS = 8, SLOTS = 2 + ROWS };
    struct random_stream r = {57};
    const std::vector<float> before = r.floats(SLOTS * stride, 0.5);
    for (uint32_t from : {0u, (uint32_t)NO_STATE}) {
        device_array<float> states(before);
        struct test_pass all;
        std::vector<struct state_span> again;
        all.add(ROWS, from, 1);
        for (uint32_t n = 1; n <= ROWS; n++)
            again.push_back({0, n, from, 1 + n});
        run(all, states, again);
        const std::vector<float> got = states.get();
        check(std::equal(&before[0], &before[stride], &got[0]), "%s of %u: the state before", what,
              n_state);
        for (uint32_t n = 1; n <= ROWS; n++) {
            device_array<float> alone(before);
            struct test_pass some;
            some.add(n, from, 1 + n);
            run(some, alone, std::vector<struct state_span>{});
            const std::vector<float> want = alone.get();
            check(memcmp(&got[(1 + n) * stride], &want[(1 + n) * stride], stride * sizeof(float)) ==
                      0,
                  "%s of %u: behind %u of %d rows it has other bits", what, n_state, n, ROWS);
        }
    }
}

static void a_state_goes_back_to_any_row(void)
{
    struct random_stream r = {58};
    for (struct short_conv conv : {short_conv{5, 2}, {300, 4}, {33, 12}}) {
        const std::vector<float> w = r.floats((size_t)conv.n * conv.n_taps);
        const std::vector<float> in = r.floats((size_t)8 * 3 * conv.n);
        const size_t stride = (size_t)(conv.n_taps - 1) * conv.n + 9;
        goes_back("short convolutions", conv.n, stride,
                  [&](const struct test_pass &pass, device_array<float> &states,
                      const std::vector<struct state_span> &again) {
                      const std::vector<float> part(in.begin(),
                                                    in.begin() + pass.rows.size() * 3 * conv.n);
                      convolve(conv, w, part, pass, states, stride, again);
                  });
    }
    for (const struct delta &delta : {delta{4, 2, 16, 4, false},
                                      {3, 1, 5, 2, false},
                                      {2, 2, 40, 3, true},
                                      {2, 1, 128, 4, false},
                                      {1, 1, 200, 12, false}}) {
        const net net(r, delta, delta.in_order);
        const net_rows rows(r, net, 8);
        goes_back("delta nets", delta.n_state, net.stride(),
                  [&](const struct test_pass &pass, device_array<float> &states,
                      const std::vector<struct state_span> &again) {
                      run(net, rows, 0, pass, states, again);
                  });
    }
    for (const struct ssm &ssm : {ssm{24, 4, 2, 16, 4},
                                  {66, 2, 1, 5, 3},
                                  {64, 2, 2, 33, 2},
                                  {36, 1, 1, 128, 4},
                                  {8, 2, 1, 129, 12}}) {
        const space space(r, ssm, true, true);
        const std::vector<float> in = r.floats((size_t)8 * space.width(), 2.0);
        goes_back("state spaces", ssm.n_state, space.stride(),
                  [&](const struct test_pass &pass, device_array<float> &states,
                      const std::vector<struct state_span> &again) {
                      run(space, in, 0, pass, states, again);
                  });
    }
}

// The states on the way of a span of many rows are those that shorter ones end with, alone or
// beside others: run(pass, first row, states).
template <typename R> static void keeps_within(const char *what, size_t stride, R run)
{
    enum { ROWS = 2 * STATES_EVERY + 9, SLOTS = 6 };
    const std::vector<float> before = random_stream{59}.floats(SLOTS * stride, 0.5);
    for (uint32_t other : {0u, 3u}) {
        device_array<float> states(before), parts(before);
        struct test_pass all;
        if (other > 0)
            all.add(other, NO_STATE, 4);
        all.add(ROWS, 0, 3);
        all.spans.back() = {other, ROWS, 0, 3, 2, {1, 2}};
        run(all, 0, states);
        for (uint32_t i = 0; i < 3; i++) {
            struct test_pass part; // of 512, 512 and 9
            part.add(std::min(STATES_EVERY + 0u, ROWS - i * STATES_EVERY), i, i + 1);
            run(part, other + i * STATES_EVERY, parts);
        }
        const std::vector<float> got = states.get(), want = parts.get();
        for (uint32_t i = 0; i < SLOTS; i++)
            check(i == 4 || !memcmp(&got[i * stride], &want[i * stride], stride * sizeof(float)),
                  "%s behind %u rows: slot %u has other bits", what, other, i);
    }
}

static void states_within_a_span_are_those_of_its_parts(void)
{
    struct random_stream r = {60};
    const size_t n = 3 + 2 * STATES_EVERY + 9;
    for (struct short_conv conv : {short_conv{5, 2}, {33, 12}}) {
        const size_t ld = 3 * conv.n, stride = (size_t)conv.n_taps * conv.n + 9;
        const std::vector<float> w = r.floats(stride), in = r.floats(n * ld);
        keeps_within("short convolutions", stride, [&](auto &pass, size_t row0, auto &states) {
            const auto from = in.begin() + row0 * ld;
            convolve(conv, w, {from, from + pass.rows.size() * ld}, pass, states, stride);
        });
    }
    for (const struct delta &delta : {delta{2, 1, 16, 4, false}, {1, 1, 128, 2, false}}) {
        const net net(r, delta, false);
        const net_rows rows(r, net, n);
        keeps_within("delta nets", net.stride(), [&](auto &pass, size_t row0, auto &states) {
            run(net, rows, row0, pass, states);
        });
    }
    for (const struct ssm &ssm : {ssm{24, 4, 2, 16, 4}, {8, 2, 1, 129, 12}}) {
        const space space(r, ssm, true, true);
        const std::vector<float> in = r.floats(n * space.width(), 2.0);
        keeps_within("state spaces", space.stride(), [&](auto &pass, size_t row0, auto &states) {
            run(space, in, row0, pass, states);
        });
    }
}

static void done_leaves_everything(void)
{
    struct random_stream r = {54};
    const net net(r, {2, 1, 16, 4, false}, false);
    const net_rows rows(r, net, 1);
    const std::vector<float> before = r.floats(2 * net.stride()), nothing = r.floats(net.n_out());
    device_array<float> states(before), in(rows.in), mixed(net.channels()), y(nothing), w(net.w),
        gate(rows.gate);
    late_inputs late(0);
    const uint32_t *const done = late.add(std::vector<uint32_t>{1});
    device_array<struct state_span> spans(std::vector<struct state_span>{{0, 1, 0, 1}});
    device_array<struct seq_row> none(0);
    struct delta_rows d = {};
    d.delta = net.delta;
    d.state = slots_of(states, 0, net.stride(), spans, none);
    d.in = in.p;
    d.w = w.p;
    d.mixed = mixed.p;
    d.beta = d.alpha = d.a = d.dt = d.norm = w.p;
    d.gate = gate.p;
    d.y = y.p;
    d.skip = done;
    struct short_conv_rows c = {};
    c.conv = {16, 3};
    c.state = d.state;
    c.w = w.p;
    c.in = in.p;
    c.y = y.p;
    c.skip = done;
    struct ssm_rows s = {};
    s.ssm = {4, 2, 1, 4, 3};
    s.state = d.state;
    s.in = in.p;
    s.ld = 4 + 12 + 2;
    s.w = s.a = s.d = s.dt = w.p;
    s.mixed = mixed.p;
    s.y = y.p;
    s.skip = done;
    const std::function<bool(void)> launches[] = {
        [&] { return delta_conv_launch(&Q, &d, 1, &ERR); },
        [&] { return delta_launch(&Q, &d, &ERR); },
        [&] { return delta_gate_launch(&Q, &d, 1, &ERR); },
        [&] { return delta_step_launch(&Q, &d, &ERR); },
        [&] { return short_conv_launch(&Q, &c, 1, &ERR); },
        [&] { return ssm_conv_launch(&Q, &s, 1, &ERR); },
        [&] { return ssm_launch(&Q, &s, &ERR); },
        [&] { return ssm_gate_launch(&Q, &s, 1, &ERR); },
    };
    for (int round = 0; round < 8; round++) // one may look too early, or not
        for (const auto &launch : launches) {
            late.come();
            must(launch());
        }
    check(states.get() == before, "a step that is over has written a state");
    check(y.get() == nothing, "a step that is over has given something");
}

int main(void)
{
    static const tap_test tests[] = {
        {"a state goes back to any row", a_state_goes_back_to_any_row},
        {"states within a span are those of its parts",
         states_within_a_span_are_those_of_its_parts},
        {"done leaves everything", done_leaves_everything},
    };
    return gpu_test_main(tests);
}
