// Mixtures of experts: who is chosen, by a launch of its own, by the router's or by products, and
// the order of rows by expert.
#include "expert_case.h"

// ---- the choice

// The definition, one step after the other (src/cpu/experts.c).
static bool is_better(float a, float b)
{
    return !std::isnan(b) && !(a <= b);
}

static std::vector<uint32_t> chosen_of(const struct experts &x, const std::vector<float> &score)
{
    const uint32_t size = x.n / x.n_group;
    std::vector<int> state(x.n, x.n_group_used == x.n_group);
    for (uint32_t k = 0; x.n_group_used < x.n_group && k < x.n_group_used; k++) {
        int best = -1;
        float best_sum = 0;
        for (uint32_t g = 0; g < x.n_group; g++) {
            std::vector<float> s(score.begin() + g * size, score.begin() + (g + 1) * size);
            std::sort(s.begin(), s.end(), std::greater<float>());
            const float sum = size > 1 ? s[0] + s[1] : s[0];
            if (!state[g * size] && (best < 0 || is_better(sum, best_sum)))
                best = (int)g, best_sum = sum;
        }
        for (uint32_t i = 0; i < size; i++)
            state[best * size + i] = 1;
    }
    for (uint32_t k = 0; k < x.n_used; k++) {
        int best = -1;
        for (uint32_t i = 0; i < x.n; i++)
            if (state[i] == 1 && (best < 0 || is_better(score[i], score[best])))
                best = (int)i;
        state[best] = 2;
    }
    std::vector<uint32_t> chosen;
    for (uint32_t i = 0; i < x.n; i++)
        if (state[i] == 2)
            chosen.push_back(i);
    return chosen;
}

static struct choice choice_from(const struct experts &x, const device_array<float> &logits,
                                 const float *bias, const device_array<uint32_t> &chosen,
                                 const device_array<float> &weight)
{
    struct choice c = {};
    c.facts = x;
    c.logits = logits.p;
    c.bias = bias;
    c.chosen = chosen.p;
    c.weight = weight.p;
    return c;
}

static void check_choice(struct random_stream &r, struct experts x, bool biased, bool ties,
                         bool nan, bool alike)
{
    const uint32_t n = 3, n_cols = 40;
    std::vector<float> logits = r.floats(n * x.n, 3.0), bias = r.floats(x.n, 0.3);
    for (float &v : logits)
        v = ties ? std::round(v) : v;
    for (uint32_t i = 0; alike && i < n * x.n; i++)
        logits[i] = logits[i / x.n * x.n + i % x.n % (x.n / x.n_group)];
    for (float &v : bias)
        v = ties ? 0.0f : v;
    if (nan)
        logits[x.n + x.n / 2] = NAN;
    const std::vector<float> in = r.floats(n * n_cols), norm = r.floats(n_cols);
    const std::vector<float> router = r.floats(n_cols);
    device_array<float> dl(logits), db(bias), dx(in), dn(norm), dr(router), weight(n * x.n_used),
        shared(n);
    device_array<uint32_t> chosen(n * x.n_used);
    struct choice c = choice_from(x, dl, biased ? db.p : nullptr, chosen, weight);
    c.router = dr.p;
    c.x = dx.p;
    c.norm = dn.p;
    c.eps = 0.01f;
    c.n_cols = n_cols;
    c.shared = shared.p;
    must(choose_launch(&Q, &c, n, &ERR));
    const std::vector<uint32_t> got = chosen.get();
    const std::vector<float> weights = weight.get(), gates = shared.get();
    for (uint32_t t = 0; t < n; t++) {
        const float *l = &logits[t * x.n];
        std::vector<float> p(x.n), score(x.n);
        double sum = 0, taken = 0, squares = 0, dot = 0;
        for (uint32_t i = 0; i < x.n; i++)
            sum += exp((double)l[i]);
        for (uint32_t i = 0; i < x.n; i++) {
            p[i] = (float)(x.gate == EXPERT_SOFTMAX ? exp((double)l[i]) / sum
                                                    : 1 / (1 + exp(-(double)l[i])));
            // without a bias and groups the logits themselves are compared
            score[i] = biased || x.n_group_used < x.n_group ? p[i] + (biased ? bias[i] : 0) : l[i];
        }
        const std::vector<uint32_t> want = chosen_of(x, score);
        for (uint32_t i : want)
            taken += p[i];
        for (uint32_t k = 0; k < x.n_used; k++) {
            const double w = p[want[k]] / (x.normed ? taken : 1) * x.scale;
            const size_t at = t * x.n_used + k;
            check(got[at] == want[k], "%u of %u, row %u: expert %u, expected %u", k, x.n, t,
                  got[at], want[k]);
            check(nan && std::isnan(w) ? std::isnan(weights[at])
                                       : fabs(weights[at] - w) <= 1e-6 + 1e-5 * fabs(w),
                  "%u of %u, row %u: weighs %g, expected %g", k, x.n, t, weights[at], w);
        }
        for (uint32_t i = 0; i < n_cols; i++) {
            squares += (double)in[t * n_cols + i] * in[t * n_cols + i];
            dot += (double)in[t * n_cols + i] * norm[i] * router[i];
        }
        const double gate = 1 / (1 + exp(-dot / sqrt(squares / n_cols + (double)0.01f)));
        check(fabs(gates[t] - gate) <= 1e-5, "row %u: shared gate %g, expected %g", t, gates[t],
              gate);
    }
}

static void the_best_are_chosen_and_the_first_of_equals(void)
{
    struct random_stream r = {41};
    for (enum expert_gate gate : {EXPERT_SOFTMAX, EXPERT_SIGMOID})
        for (uint32_t n : {1u, 6u, 60u, 128u, 200u, 1200u})
            for (int kind = 0; kind < 7; kind++) {
                struct experts x = {};
                x.n = n;
                x.n_used = kind == 3 ? n : lesser(n, 1u + (uint32_t)kind * 3);
                x.gate = gate;
                x.normed = kind % 2;
                x.scale = kind == 2 ? 2.5f : 1.0f;
                x.n_group = x.n_group_used = 1;
                if (kind >= 4 && n % 4 == 0) { // kind 6: groups that are equally good
                    x.n_group = kind == 5 ? n / 2 : 4;
                    x.n_group_used = kind == 5 ? n / 4 : kind == 4 ? 3 : 2;
                    x.n_used = lesser(x.n_used, n / x.n_group * x.n_group_used);
                }
                const bool nan = kind == 2 && gate == EXPERT_SIGMOID && n > 1;
                check_choice(r, x, kind == 1 || kind == 4, kind != 1 && kind != 4 && kind != 5, nan,
                             kind == 6);
            }
}

// The router's product and the choice in one launch, twice: the counter is left as it was.
static void check_route(struct random_stream &r, uint32_t n, uint32_t n_used, uint32_t n_cols,
                        bool normed, bool shared, device_array<uint32_t> &counter)
{
    test_stack w(r, QUANT_F32, 1, n, n_cols);
    const std::vector<float> in = r.floats(n_cols), norm = r.floats(n_cols), bias = r.floats(n);
    const std::vector<float> router = r.floats(n_cols);
    device_array<float> dx(in), dn(norm), db(bias), dr(router), logits(n), weight(n_used), gate(1);
    device_array<uint32_t> chosen(n_used);
    struct route m = {};
    m.choice.facts.n = n;
    m.choice.facts.n_used = n_used;
    m.choice.facts.n_group = m.choice.facts.n_group_used = 1;
    m.choice.facts.scale = 1.0f;
    m.choice.logits = m.logits = logits.p;
    m.choice.chosen = chosen.p;
    m.choice.weight = weight.p;
    m.choice.router = shared ? dr.p : nullptr;
    m.choice.x = dx.p;
    m.choice.norm = m.norm = normed ? dn.p : nullptr;
    m.choice.eps = 0.01f;
    m.choice.n_cols = n_cols;
    m.choice.shared = gate.p;
    m.w = w.w;
    m.bias = db.p;
    m.chooses = true;
    m.counter = counter.p;
    for (int i = 0; i < 2; i++)
        must(route_launch(&Q, &m, &ERR));
    double squares = 0, dot = 0, sum = 0;
    std::vector<float> x(n_cols);
    for (uint32_t i = 0; i < n_cols; i++)
        squares += (double)in[i] * in[i];
    for (uint32_t i = 0; i < n_cols; i++) {
        x[i] = normed ? (float)(in[i] * norm[i] / sqrt(squares / n_cols + (double)0.01f)) : in[i];
        dot += (double)x[i] * router[i];
    }
    const std::vector<float> got = logits.get(), weights = weight.get();
    for (uint32_t i = 0; i < n; i++) {
        double size;
        const double want = w.product(0, i, x.data(), &size) + bias[i];
        check(fabs(got[i] - want) <= 1e-5 * size + 1e-6, "%u of %u columns: logit %g, expected %g",
              i, n_cols, got[i], want);
        sum += exp((double)got[i] - got[0]);
    }
    const std::vector<uint32_t> ids = chosen.get(), want = chosen_of(m.choice.facts, got);
    check(ids == want, "%u experts, %u columns: others are chosen", n, n_cols);
    for (uint32_t k = 0; k < n_used; k++) {
        const double p = exp((double)got[want[k]] - got[0]) / sum;
        check(fabs(weights[k] - p) <= 1e-6 + 1e-5 * p, "%u: weighs %g, expected %g", k, weights[k],
              p);
    }
    const double open = 1 / (1 + exp(-dot));
    check(!shared || fabs(gate.get()[0] - open) <= 1e-5, "shared gate %g, expected %g",
          gate.get()[0], open);
    check(counter.get()[0] == 0, "the counter is left %u", counter.get()[0]);
}

static void a_router_is_multiplied_and_chooses(void)
{
    struct random_stream r = {48};
    device_array<uint32_t> counter(std::vector<uint32_t>{0});
    for (uint32_t n : {1u, 5u, 32u, 60u})
        for (uint32_t n_cols : {40u, 516u, 4100u})
            check_route(r, n, lesser(n, 4u), n_cols, n_cols > 40, n % 2 == 0, counter);
    check_route(r, 5, 2, 64, false, true, counter);
}

// ---- the order of rows

static void rows_are_grouped_in_order(void)
{
    struct random_stream r = {42};
    for (uint32_t n_expert : {1u, 5u, 32u, 128u, 1500u, 7000u})
        for (uint32_t n : {1u, 2u, 33u, 200u, 700u})
            for (uint32_t per_item : {2u, 8u, 32u}) {
                const uint32_t n_used = n_expert > 4 ? 3 : 1, n_pair = n * n_used;
                std::vector<uint32_t> chosen(n_pair);
                for (uint32_t t = 0; t < n; t++) // distinct, ascending; the last experts get none
                    for (uint32_t k = 0; k < n_used; k++)
                        chosen[t * n_used + k] =
                            k * (n_expert / 4) +
                            (uint32_t)(r.u64() % (n_expert > 4 ? n_expert / 4 : 1));
                const uint32_t n_item = expert_items(n_expert, n_pair, per_item);
                device_array<uint32_t> dc(chosen), place(n_pair), pair_at(n_pair), rank(n_pair),
                    used(1);
                device_array<struct expert_item> items(n_item);
                const struct grouping g = {dc.p,   place.p,  pair_at.p, rank.p,   items.p,
                                           used.p, n_expert, n_pair,    per_item, nullptr};
                must(group_launch(&Q, &g, &ERR));
                std::vector<uint32_t> order(n_pair);
                for (uint32_t i = 0; i < n_pair; i++)
                    order[i] = i;
                std::stable_sort(order.begin(), order.end(),
                                 [&](uint32_t a, uint32_t b) { return chosen[a] < chosen[b]; });
                check(pair_at.get() == order, "%u rows, %u experts: another order", n, n_expert);
                const std::vector<uint32_t> places = place.get(), ranks = rank.get();
                for (uint32_t i = 0, nth = 0; i < n_pair; i++) {
                    check(places[order[i]] == i, "pair %u is at %u, expected %u", order[i],
                          places[order[i]], i);
                    nth = i > 0 && chosen[order[i]] == chosen[order[i - 1]] ? nth + 1 : 0;
                    check(ranks[order[i]] == nth, "pair %u is number %u of its expert's, not %u",
                          order[i], ranks[order[i]], nth);
                }
                uint32_t next = 0, n_used_items = 0; // the items have all places, in order
                for (const struct expert_item &item : items.get()) {
                    check((item.n > 0) == (n_used_items < used.get()[0]),
                          "item %u of %u has %u rows", n_used_items, used.get()[0], item.n);
                    n_used_items += item.n > 0;
                    check(item.n <= per_item, "%u rows in an item of %u", item.n, per_item);
                    check(item.n == 0 || item.first == next, "an item at %u, expected %u",
                          item.first, next);
                    for (uint32_t i = 0; i < item.n && next + i < n_pair; i++)
                        check(chosen[order[next + i]] == item.expert,
                              "place %u: expert %u, "
                              "expected %u",
                              next + i, item.expert, chosen[order[next + i]]);
                    next += item.n;
                }
                check(next == n_pair, "%u pairs in items, expected %u", next, n_pair);
            }
}

// Choosing and grouping of few rows in one launch leaves what two launches do; gated: with the gate
// of a shared expert.
static void check_at_once(struct random_stream &r, uint32_t n_expert, uint32_t n, uint32_t per_item,
                          bool gated)
{
    const uint32_t n_cols = 68;
    const uint32_t n_used = lesser(n_expert, 6u), n_pair = n * n_used;
    const uint32_t n_item = expert_items(n_expert, n_pair, per_item);
    device_array<float> logits(r.floats(n * n_expert, 3.0)), in(r.floats(n * n_cols)),
        norm(r.floats(n_cols)), gate(r.floats(n_cols));
    std::vector<uint32_t> numbers[2];
    std::vector<float> weights[2], shared[2];
    for (int i = 0; i < 2; i++) {
        device_array<uint32_t> chosen(n_pair), all(3 * n_pair + 1);
        device_array<float> weight(n_pair), gates(std::vector<float>(n, 0.0f));
        device_array<struct expert_item> items(n_item);
        struct experts x = {};
        x.n = n_expert;
        x.n_used = n_used;
        x.n_group = x.n_group_used = 1;
        struct choice c = choice_from(x, logits, nullptr, chosen, weight);
        c.router = gated ? gate.p : nullptr;
        c.x = in.p;
        c.norm = norm.p;
        c.eps = 0.01f;
        c.n_cols = n_cols;
        c.shared = gates.p;
        const struct grouping g = {
            chosen.p,           all.p,    all.p + n_pair, all.p + 2 * n_pair, items.p,
            all.p + 3 * n_pair, n_expert, n_pair,         per_item,           nullptr};
        must(i ? choose_group_launch(&Q, &c, &g, n, &ERR)
               : choose_launch(&Q, &c, n, &ERR) && group_launch(&Q, &g, &ERR));
        numbers[i] = all.get();
        for (uint32_t v : chosen.get())
            numbers[i].push_back(v);
        for (const struct expert_item &v : items.get())
            numbers[i].insert(numbers[i].end(), {v.expert, v.first, v.n});
        weights[i] = weight.get();
        shared[i] = gates.get();
    }
    check(numbers[0] == numbers[1] && weights[0] == weights[1] && shared[0] == shared[1],
          "%u rows, %u experts, items of %u: another way", n, n_expert, per_item);
}

static void few_rows_are_chosen_for_and_grouped_at_once(void)
{
    struct random_stream r = {47};
    for (uint32_t n_expert : {5u, 128u, 200u, 300u})
        for (uint32_t n : {1u, 7u, 10u, 11u, 32u, 33u})
            for (uint32_t per_item : {2u, 8u})
                check_at_once(r, n_expert, n, per_item, (n + per_item / 8) % 2 == 0);
}

// ---- products

// Experts chosen by the products themselves, as a launch before them chooses.
static void check_own_choice(struct random_stream &r, struct experts x, uint32_t type, bool biased,
                             bool ties, bool nan, bool shared)
{
    enum { ROWS = 64, COLS = 96 };
    const uint32_t n_slot = x.n_used + shared;
    test_stack gate(r, type, x.n, ROWS, COLS), up(r, type, x.n, ROWS, COLS);
    test_stack down(r, type, x.n, COLS, ROWS);
    test_stack sg(r, type, 1, ROWS, COLS), su(r, type, 1, ROWS, COLS), sd(r, type, 1, COLS, ROWS);
    std::vector<float> logits = r.floats(x.n, 3.0);
    for (float &v : logits)
        v = ties ? std::round(v) : v;
    if (nan)
        logits[x.n / 2] = NAN;
    device_array<float> dl(logits), db(r.floats(x.n, 0.3)), scale(r.floats(x.n)),
        in(r.floats(COLS)), norm(r.floats(COLS)), weight(x.n_used), mid(n_slot * ROWS), y(COLS),
        by(r.floats(1));
    const std::vector<uint32_t> others(x.n_used, 1u << 20); // there are no such experts
    device_array<uint32_t> chosen(others);
    struct choice c = choice_from(x, dl, biased ? db.p : nullptr, chosen, weight);
    c.scale = scale.p;
    struct expert_row a = {};
    a.mode = EXPERT_GATED;
    a.w[0] = gate.w, a.w[1] = up.w, a.w[2] = sg.w, a.w[3] = su.w;
    a.shared = shared;
    a.chosen = chosen.p;
    a.choice = c;
    a.n_slot = n_slot;
    a.x = in.p;
    a.norm = norm.p;
    a.eps = 0.01f;
    a.y = mid.p;
    struct expert_row b = a;
    b.mode = EXPERT_SUM;
    b.w[0] = down.w, b.w[2] = sd.w;
    b.x = mid.p;
    b.own_rows = true;
    b.norm = nullptr;
    b.y = nullptr;
    b.sum = {weight.p, nullptr, shared ? by.p : nullptr, false, 1.0f, y.p};
    std::vector<float> mids[3], sums[3];
    for (int i = 0; i < 3; i++) { // chosen before; by themselves, after their wait, and before it
        a.chooses = b.chooses = i > 0;
        b.choice_ready = i > 1;
        if (i > 0) {
            chosen.put(others);
            weight.spoil();
        } else {
            must(choose_launch(&Q, &c, 1, &ERR));
        }
        must(expert_row_launch(&Q, &a, &ERR));
        must(expert_row_launch(&Q, &b, &ERR));
        mids[i] = mid.get();
        sums[i] = y.get();
        const auto same = [](const std::vector<float> &p, const std::vector<float> &q) {
            return memcmp(p.data(), q.data(), p.size() * sizeof p[0]) == 0;
        };
        check(same(mids[0], mids[i]), "%u of %u, type %u: others are multiplied", x.n_used, x.n,
              type);
        check(nan || same(sums[0], sums[i]), "%u of %u, type %u: they weigh otherwise", x.n_used,
              x.n, type);
        for (uint32_t k = 0; nan && k < COLS; k++)
            check(std::isnan(sums[i][k]) == std::isnan(sums[0][k]), "a NaN is lost");
    }
}

static void products_choose_as_a_launch_before_them(void)
{
    struct random_stream r = {48};
    const uint32_t types[] = {QUANT_Q4_0, QUANT_Q8_0, QUANT_F16};
    int i = 0;
    for (uint32_t n : {1u, 6u, 33u, 128u, 129u, 256u})
        for (enum expert_gate gate : {EXPERT_SOFTMAX, EXPERT_SIGMOID})
            for (int kind = 0; kind < 4; kind++, i++) {
                struct experts x = {};
                x.n = n;
                x.n_used = lesser(n, kind == 3 ? 40u : 1u + (uint32_t)kind * 3);
                x.gate = gate;
                x.normed = kind % 2;
                x.scale = kind == 2 ? 2.5f : 1.0f;
                x.n_group = x.n_group_used = 1;
                check(choice_is_plain(x), "%u experts are too many", n);
                check_own_choice(r, x, types[i % 3], kind % 2 == (i / 8) % 2, kind == 1,
                                 kind == 2 && i % 5 == 0, i % 3 == 1);
            }
}

int main(void)
{
    static const tap_test tests[] = {
        {"the best are chosen, and the first of equals",
         the_best_are_chosen_and_the_first_of_equals},
        {"a router is multiplied and chooses", a_router_is_multiplied_and_chooses},
        {"rows are grouped in order", rows_are_grouped_in_order},
        {"few rows are chosen for and grouped at once",
         few_rows_are_chosen_for_and_grouped_at_once},
        {"products choose as a launch before them", products_choose_as_a_launch_before_them},
    };
    return gpu_test_main(tests);
}
