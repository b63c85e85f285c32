// The device's sampler makes the CPU sampler's choice: from the same logits, settings and history,
// over thousands of random ones, small and full vocabularies, one block and many. Runs on a GPU and
// on its emulation alike.
#include "sampler.cuh"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#include "base/rng.h"

int tap_failures;

namespace
{

// How many random cases to run of a kind: n on the emulation, more on a device; with HOKKU_QUICK=1
// fewer on the emulation, and few on a device (compute-sanitizer).
int cases(int n)
{
#ifdef HOKKU_CUDA_ON_CPU
    return getenv("HOKKU_QUICK") ? n / 5 + 1 : n;
#else
    return getenv("HOKKU_QUICK") ? n / 40 + 1 : n * 20;
#endif
}

struct error err;

[[noreturn]] void give_up(void)
{
    printf("Bail out! %s\n", err.text);
    exit(1);
}

struct random_numbers {
    uint64_t seed, n;
    uint32_t below(uint32_t limit)
    {
        return (uint32_t)((rng_u64(seed, n++, 0) >> 32) * limit >> 32);
    }
    float uniform(void)
    {
        return (float)below(1 << 24) / (float)(1 << 24);
    }
    float normal(void)
    {
        float r = sqrtf(-2 * logf(uniform() + 1e-9f));
        return r * cosf(6.2831853f * uniform());
    }
    template <size_t N> float one_of(const float (&v)[N])
    {
        return v[below(N)];
    }
};

// A device with one sampler.
struct fixture {
    struct queue q;
    struct gpu_sampler s;
    void *memory;
    struct step_state *step;
    float *logits;
    uint32_t *mask; // pinned
    uint32_t n_vocab;

    fixture(uint32_t n_vocab_, uint32_t n_ctx) : q(), s(), n_vocab(n_vocab_)
    {
        cudaDeviceProp prop;
        if (!CHECK_CUDA(cudaGetDeviceProperties(&prop, 0), &err) ||
            !CHECK_CUDA(cudaStreamCreateWithFlags(&q.stream, cudaStreamNonBlocking), &err) ||
            !CHECK_CUDA(cudaMalloc(&memory, gpu_sampler_bytes(n_vocab, n_ctx)), &err) ||
            !CHECK_CUDA(cudaMalloc(&step, sizeof *step), &err) ||
            !CHECK_CUDA(cudaMalloc(&logits, n_vocab * sizeof *logits), &err) ||
            !CHECK_CUDA(cudaMallocHost(&mask, (1 + (n_vocab + 31) / 32) * sizeof *mask), &err) ||
            !CHECK_CUDA(cudaMallocHost(&s.ring, RING * sizeof *s.ring), &err))
            give_up();
        q.n_sm = prop.multiProcessorCount;
        q.dependent = prop.major >= 9;
        gpu_sampler_place(&s, n_vocab, n_ctx, memory);
    }
    ~fixture()
    {
        cudaFree(memory);
        cudaFree(step);
        cudaFree(logits);
        cudaFreeHost(mask);
        cudaFreeHost(s.ring);
        cudaStreamDestroy(q.stream);
    }
    void begin(const struct decode_params *p)
    {
        struct step_state st = {};
        st.at.pos = (uint32_t)p->n_history - 1;
        if (!gpu_sampler_begin(&q, &s, p, &err) ||
            !CHECK_CUDA(cudaMemcpyAsync(step, &st, sizeof st, cudaMemcpyHostToDevice, q.stream),
                        &err))
            give_up();
        for (int i = 0; i < RING; i++)
            s.ring[i].seq = 0;
    }
    void launch(const std::vector<float> &l, uint32_t n_blocks)
    {
        if (!CHECK_CUDA(cudaMemcpyAsync(logits, l.data(), n_vocab * sizeof(float),
                                        cudaMemcpyHostToDevice, q.stream),
                        &err) ||
            !gpu_sampler_launch_blocks(&q, &s, logits, n_vocab, step, n_blocks, &err))
            give_up();
    }
    // Pick number i (from 0) since begin.
    struct ring_slot pick(const std::vector<float> &l, uint32_t i, uint32_t n_blocks)
    {
        launch(l, n_blocks);
        if (!CHECK_CUDA(cudaStreamSynchronize(q.stream), &err))
            give_up();
        struct ring_slot slot = s.ring[i % RING];
        check(slot.seq == i + 1, "pick %u: the slot says %u", i, slot.seq);
        return slot;
    }
    struct step_state state(void)
    {
        struct step_state st;
        if (!CHECK_CUDA(cudaMemcpy(&st, step, sizeof st, cudaMemcpyDeviceToHost), &err))
            give_up();
        return st;
    }
};

// ---- random cases

std::vector<float> random_logits(random_numbers &r, uint32_t n)
{
    std::vector<float> l(n);
    uint32_t style = r.below(8);
    float width = r.one_of({0.1f, 1, 2, 3, 5, 10});
    for (float &v : l)
        switch (style) {
        case 0: // ties
            v = floorf(r.normal() * 4) / 4;
            break;
        case 1: // all equal, of both signs of zero
            v = r.below(2) ? 0.0f : -0.0f;
            break;
        case 2: // far apart
            v = r.normal() * 1e4f;
            break;
        case 3: // a few stand out
            v = r.normal() + (r.below(n) < 5 ? 12 : 0);
            break;
        case 4: // few values
            v = r.below(3) ? -1.5f : 2.25f;
            break;
        default:
            v = r.normal() * width - 3;
        }
    if (style == 7) // the largest last
        l[n - 1] = 40;
    return l;
}

std::vector<int32_t> random_history(random_numbers &r, uint32_t n_vocab, uint32_t n_max)
{
    std::vector<int32_t> h(r.below(n_max));
    uint32_t variety = r.below(2) ? 5 : n_vocab;
    for (int32_t &id : h)
        id = (int32_t)r.below(variety < n_vocab ? variety : n_vocab);
    for (uint32_t copies = r.below(4); copies && h.size() > 4; copies--) { // repeated passages
        size_t len = 1 + r.below((uint32_t)h.size() / 2);
        size_t from = r.below((uint32_t)(h.size() - len + 1)),
               to = r.below((uint32_t)(h.size() - len + 1));
        memmove(&h[to], &h[from], len * sizeof h[0]);
    }
    return h;
}

void random_chain(random_numbers &r, struct sampler_settings *s)
{
    uint8_t all[9];
    for (uint8_t i = 0; i < 9; i++)
        all[i] = (uint8_t)(SAMPLER_PENALTIES + i);
    for (uint32_t i = 9; i > 1; i--) {
        uint32_t j = r.below(i);
        uint8_t t = all[i - 1];
        all[i - 1] = all[j];
        all[j] = t;
    }
    memset(s->chain, 0, sizeof s->chain);
    memcpy(s->chain, all, r.below(10));
}

struct sampler_settings random_settings(random_numbers &r, uint32_t n_vocab)
{
    struct sampler_settings s = sampler_defaults;
    s.seed = rng_u64(r.seed, r.n++, 1);
    s.temp = r.one_of({0, 0.3f, 0.7f, 0.8f, 1, 1.7f, 5});
    s.top_k = (int32_t)r.one_of({0, 0, 1, 2, 40, 100, 2000});
    s.top_p = r.one_of({1, 1, 0.95f, 0.5f, 0.1f, 0, 0.999f});
    s.min_p = r.one_of({0, 0, 0.05f, 0.3f, 1, 0.001f});
    s.typical = r.one_of({1, 1, 1, 0.9f, 0.5f, 0.2f, 0.99f});
    s.top_n_sigma = r.one_of({-1, -1, -1, 1, 2.5f, 0.1f});
    s.xtc_probability = r.one_of({0, 0, 0.5f, 1});
    s.xtc_threshold = r.one_of({0.1f, 0.01f, 0.0001f, 0.5f, 0});
    s.repeat_penalty = r.one_of({1, 1, 1.1f, 1.5f, 0.7f});
    s.repeat_last_n = (int32_t)r.one_of({64, -1, 0, 5});
    s.presence_penalty = r.one_of({0, 0, 0.5f, -0.5f});
    s.frequency_penalty = r.one_of({0, 0, 0.3f});
    s.dry_multiplier = r.one_of({0, 0, 0.8f, 3});
    s.dry_base = r.one_of({1.75f, 1, 0.5f, 4});
    s.dry_allowed_length = 1 + (int32_t)r.below(3);
    s.dry_penalty_last_n = (int32_t)r.one_of({-1, -1, 0, 30});
    s.n_bias = r.below(3) ? 0 : r.below(SAMPLER_MAX_BIAS + 1);
    for (uint32_t i = 0; i < s.n_bias; i++)
        s.bias[i] = {(int32_t)r.below(n_vocab), r.one_of({1, -2, -INFINITY, 5, 0.25f})};
    if (r.below(3))
        random_chain(r, &s);
    return s;
}

void describe(const struct sampler_settings *s, char *out, size_t n)
{
    int at =
        snprintf(out, n,
                 "temp %g top_k %d top_p %g min_p %g typical %g sigma %g xtc %g/%g penalties "
                 "%g/%g/%g last %d dry %g/%g/%d last %d bias %u chain",
                 (double)s->temp, s->top_k, (double)s->top_p, (double)s->min_p, (double)s->typical,
                 (double)s->top_n_sigma, (double)s->xtc_probability, (double)s->xtc_threshold,
                 (double)s->repeat_penalty, (double)s->presence_penalty,
                 (double)s->frequency_penalty, s->repeat_last_n, (double)s->dry_multiplier,
                 (double)s->dry_base, s->dry_allowed_length, s->dry_penalty_last_n, s->n_bias);
    for (int i = 0; s->chain[i] && (size_t)at < n; i++)
        at += snprintf(out + at, n - (size_t)at, " %d", s->chain[i]);
}

// A mask with from one token to nearly all.
void random_mask(random_numbers &r, uint32_t n_vocab, uint32_t *mask)
{
    const uint32_t style = r.below(4), one = r.below(n_vocab);
    mask[0] = 0;
    memset(mask + 1, 0, (n_vocab + 31) / 32 * sizeof *mask);
    for (uint32_t id = 0; id < n_vocab; id++)
        if (id == one || (style == 1 && r.below(n_vocab) < 50) || (style == 2 && r.below(2)) ||
            (style == 3 && r.below(30))) {
            mask[1 + id / 32] |= 1u << (id % 32);
            mask[0]++;
        }
}

// Some picks in a row, on both.
void compare(fixture &f, random_numbers &r, const struct sampler_settings *set,
             std::vector<int32_t> history, uint32_t n_blocks, uint32_t n_picks, uint32_t n_probs,
             bool masked = false)
{
    char what[512];
    describe(set, what, sizeof what);
    struct sampler cpu;
    if (!sampler_init(&cpu, set, f.n_vocab, &err))
        give_up();
    struct decode_params p = {};
    p.sampler = set;
    p.history = history.data();
    p.n_history = history.size();
    p.n_probs = n_probs;
    p.masked = masked;
    f.begin(&p);
    for (uint32_t i = 0; i < n_picks; i++) {
        std::vector<float> l = random_logits(r, f.n_vocab);
        if (masked) { // each pick has its own
            random_mask(r, f.n_vocab, f.mask);
            cpu.allow = f.mask + 1;
            f.s.mask = f.mask;
        }
        int32_t want = -1;
        struct error why = {};
        bool ok = sampler_pick(&cpu, l.data(), history.data(), history.size(), &want, &why);
        struct ring_slot got = f.pick(l, i, n_blocks);
        struct error told = {};
        gpu_sampler_result(&got, &told);
        if (!check(ok ? !got.failed && got.d.id == want : got.failed == SAMPLER_NONE_LEFT,
                   "vocabulary %u, mask of %u, %u blocks, pick %u at %zu: CPU %d %s, device %d "
                   "(%s); %s",
                   f.n_vocab, masked ? f.mask[0] : 0, n_blocks, i, history.size(), want, why.text,
                   got.d.id, told.text, what) ||
            !ok)
            break;
        history.push_back(want);
        if (!n_probs)
            continue;
        struct token_prob top[ENGINE_MAX_PROBS];
        uint32_t n = n_probs < f.n_vocab ? n_probs : f.n_vocab;
        if (!sampler_top_logprobs(l.data(), f.n_vocab, top, n, &err))
            give_up();
        check(got.d.n_top == n, "%u alternatives, expected %u", got.d.n_top, n);
        for (uint32_t k = 0; k < n; k++)
            check(got.d.top[k].id == top[k].id && fabsf(got.d.top[k].logprob - top[k].logprob) <=
                                                      1e-6f * (1 + fabsf(top[k].logprob)),
                  "alternative %u: %d %g, expected %d %g", k, got.d.top[k].id,
                  (double)got.d.top[k].logprob, top[k].id, (double)top[k].logprob);
        double lp = sampler_logprob(l.data(), f.n_vocab, want);
        check(fabs(got.d.logprob - lp) <= 1e-6 * (1 + fabs(lp)), "logprob %g, expected %g",
              (double)got.d.logprob, lp);
    }
    sampler_release(&cpu);
}

void random_cases(uint32_t n_vocab, const uint32_t (&blocks)[3], int n_cases, uint32_t n_history)
{
    fixture f(n_vocab, n_history + 100);
    random_numbers r = {n_vocab * 1000003ull, 0};
    std::vector<uint8_t> breakers(n_vocab);
    for (uint8_t &b : breakers)
        b = r.below(20) == 0;
    for (int i = 0; i < n_cases; i++) {
        struct sampler_settings set = random_settings(r, n_vocab);
        if (r.below(2))
            set.dry_breakers = breakers.data();
        compare(f, r, &set, random_history(r, n_vocab, n_history), blocks[i % 3], 3,
                r.below(6) ? 0 : 1 + r.below(ENGINE_MAX_PROBS), i % 3 == 1);
    }
}

void tiny_vocabularies(void)
{
    random_cases(1, {1, 0, 1}, cases(20), 10);
    random_cases(2, {1, 0, 1}, cases(60), 100);
    random_cases(31, {1, 0, 1}, cases(200), 40);
    random_cases(1056, {0, 1, 2}, cases(200), 300);
}

void middling_vocabularies(void)
{
    random_cases(2049, {1, 2, 3}, cases(200), 300);
    random_cases(5000, {0, 1, 4}, cases(200), 1000);
    random_cases(32000, {0, 1, 8}, cases(30), 4000);
}

void full_vocabulary(void)
{
    random_cases(151936, {0, 8, 0}, cases(10), 2000);
}

// What people use: the defaults and one filter switched at a time.
void the_common_chains(void)
{
    const uint32_t n_vocab = 32000;
    fixture f(n_vocab, 1000);
    random_numbers r = {99, 0};
    for (int i = 0; i < 14 * (cases(10) > 10 ? 10 : 1); i++) {
        struct sampler_settings s = sampler_defaults;
        s.seed = (uint64_t)i;
        switch (i % 14) {
        case 1:
            s.temp = 0;
            break;
        case 2:
            s.top_k = 0;
            break;
        case 3:
            s.top_k = 0;
            s.top_p = 0.999f;
            s.min_p = 0;
            break;
        case 4:
            s.top_k = 0;
            s.top_p = 1;
            s.min_p = 0;
            break;
        case 5:
            s.repeat_penalty = 1.1f;
            break;
        case 6:
            s.dry_multiplier = 0.8f;
            break;
        case 7:
            s.typical = 0.9f;
            break;
        case 8:
            s.top_n_sigma = 1;
            break;
        case 9:
            s.xtc_probability = 1;
            break;
        case 10:
            s.temp = 0;
            s.repeat_penalty = 1.2f;
            s.repeat_last_n = -1;
            break;
        case 11:
            s.top_k = 5000;
            s.top_p = 1;
            s.min_p = 0;
            break;
        case 12:
            s.top_k = 0;
            s.top_p = 1;
            s.min_p = 0;
            s.typical = 0.999f;
            break;
        case 13:
            s.top_k = 0;
            s.top_p = 1;
            s.min_p = 0;
            s.xtc_probability = 1;
            s.xtc_threshold = 0.00002f;
            break;
        }
        compare(f, r, &s, random_history(r, n_vocab, 500), 0, 3, i % 3 ? 0 : 5);
        // a launch that may begin early, where nobody waits
        bool waits = "..###...#..###"[i % 14] == '#';
        check(f.s.waits == waits, "chain %d: the blocks %s", i % 14,
              f.s.waits ? "wait" : "do not wait");
    }
}

// Two programs sample on one device at the same time: what waits for blocks that have no room,
// waits for ever.
void two_samplers_at_once(void)
{
    const uint32_t n_vocab = 9000;
    fixture a(n_vocab, 100), b(n_vocab, 100);
    fixture *both[] = {&a, &b};
    random_numbers r = {17, 0};
    for (int run = 0; run < cases(12); run++) {
        struct sampler_settings s = sampler_defaults;
        s.seed = (uint64_t)run;
        s.top_k = run % 4 == 3 ? 40 : 0; // with 0 the blocks wait for each other
        s.typical = run % 2 ? 0.9f : 1.0f;
        s.min_p = 0;
        struct sampler cpu;
        std::vector<float> l[2];
        const int32_t history[] = {1, 2, 3};
        struct decode_params p = {};
        p.sampler = &s;
        p.history = history;
        p.n_history = 3;
        if (!sampler_init(&cpu, &s, n_vocab, &err))
            give_up();
        for (int i = 0; i < 2; i++) {
            l[i] = random_logits(r, n_vocab);
            both[i]->begin(&p);
            both[i]->launch(l[i], 0);
        }
        for (int i = 0; i < 2; i++) {
            int32_t want = -1;
            if (!CHECK_CUDA(cudaStreamSynchronize(both[i]->q.stream), &err) ||
                !sampler_pick(&cpu, l[i].data(), history, 3, &want, &err))
                give_up();
            check(both[i]->s.ring[0].d.id == want, "run %d: %d, expected %d", run,
                  both[i]->s.ring[0].d.id, want);
        }
        sampler_release(&cpu);
    }
}

void failures_are_told(void)
{
    const uint32_t n_vocab = 3000;
    fixture f(n_vocab, 100);
    random_numbers r = {5, 0};
    struct sampler_settings s = sampler_defaults;
    struct decode_params p = {};
    p.sampler = &s;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (uint32_t blocks = 1; blocks <= 3; blocks++)
        for (int greedy = 0; greedy < 2; greedy++)
            for (float v : bad)
                for (uint32_t probs = 0; probs < 2; probs++) {
                    s.temp = greedy ? 0 : 1;
                    p.n_probs = probs;
                    f.begin(&p);
                    std::vector<float> l = random_logits(r, n_vocab);
                    l[2500] = l[1234] = v;
                    struct ring_slot slot = f.pick(l, 0, blocks);
                    check(slot.failed == SAMPLER_NOT_FINITE && slot.d.id == 1234,
                          "%u blocks, logit %g: %u at %d", blocks, (double)v, slot.failed,
                          slot.d.id);
                    struct error told = {};
                    check(!gpu_sampler_result(&slot, &told) && strstr(told.text, "token 1234 is"),
                          "%s", told.text);
                    check(f.state().done != 0, "the steps go on after a failure");
                }
    // Three tokens, all forbidden.
    fixture g(3, 10);
    s.temp = 1;
    s.n_bias = 3;
    for (int i = 0; i < 3; i++)
        s.bias[i] = {i, -INFINITY};
    p.n_probs = 0;
    g.begin(&p);
    check(g.pick({1, 2, 3}, 0, 0).failed == SAMPLER_NONE_LEFT, "all tokens forbidden");
    const int32_t outside[] = {0, 3};
    p.history = outside;
    p.n_history = 2;
    struct error e = {};
    check(!gpu_sampler_begin(&g.q, &g.s, &p, &e) && strstr(e.text, "token id 3 at position 1"),
          "%s", e.text);
}

// What few and many candidates come to, by each way to the draw, says what the CPU sampler says.
void overflows_are_told(void)
{
    static const uint8_t chains[][SAMPLER_MAX_CHAIN] = {
        {SAMPLER_TOP_K, SAMPLER_TEMPERATURE},
        {SAMPLER_TEMPERATURE, SAMPLER_TOP_K},
        {SAMPLER_TEMPERATURE},
        {SAMPLER_TEMPERATURE, SAMPLER_MIN_P},
        {SAMPLER_MIN_P, SAMPLER_TEMPERATURE},
    };
    const float pairs[][2] = {{3e38f, 3e38f}, {3e38f, -3e38f}, {-3e38f, -3e38f}};
    struct sampler_settings s = sampler_defaults;
    struct decode_params p = {};
    struct sampler cpu;
    struct error err = {};
    p.sampler = &s;
    s.temp = 0.8f;
    s.n_bias = 1;
    for (uint32_t n_vocab : {3u, 3000u}) {
        fixture f(n_vocab, 10);
        for (auto &chain : chains)
            for (auto &pair : pairs)
                for (float bias : {0.0f, -INFINITY}) {
                    memcpy(s.chain, chain, sizeof s.chain);
                    s.bias[0] = {1, bias};
                    std::vector<float> l(n_vocab);
                    for (uint32_t i = 0; i < n_vocab; i++)
                        l[i] = pair[i % 2];
                    f.begin(&p);
                    struct ring_slot slot = f.pick(l, 0, n_vocab > 3 ? 2 : 1);
                    struct error told = {}, want = {};
                    int32_t id;
                    if (!sampler_init(&cpu, &s, n_vocab, &err))
                        give_up();
                    const bool picked = sampler_pick(&cpu, l.data(), NULL, 0, &id, &want);
                    sampler_release(&cpu);
                    check(!picked && !gpu_sampler_result(&slot, &told) &&
                              strcmp(told.text, want.text) == 0,
                          "%u tokens, %g and %g, bias %g: \"%s\", expected \"%s\"", n_vocab,
                          (double)pair[0], (double)pair[1], (double)bias, told.text, want.text);
                }
    }
}

void a_stop_id_ends_the_steps(void)
{
    fixture f(500, 100);
    struct sampler_settings s = sampler_defaults;
    s.temp = 0;
    const int32_t stop[] = {7, 499}, history[] = {1, 2, 3};
    struct decode_params p = {};
    p.sampler = &s;
    p.stop_ids = stop;
    p.n_stop_ids = 2;
    p.history = history;
    p.n_history = 3;
    f.begin(&p);
    std::vector<float> l(500, 0.0f);
    l[8] = 1;
    check(f.pick(l, 0, 0).d.id == 8 && f.state().done == 0, "an ordinary token");
    check(f.state().at.pos == 3 && f.state().token == 8 && f.state().n_sampled == 1, "the state");
    l[499] = 2;
    check(f.pick(l, 1, 0).d.id == 499 && f.state().done != 0, "a stop id");
    // One more launch does nothing.
    if (!gpu_sampler_launch(&f.q, &f.s, f.logits, 500, f.step, &err) ||
        !CHECK_CUDA(cudaStreamSynchronize(f.q.stream), &err))
        give_up();
    check(f.state().n_sampled == 2 && f.state().at.pos == 4, "a step after the end");
    int32_t tail[2];
    if (!CHECK_CUDA(cudaMemcpy(tail, f.s.history + 3, sizeof tail, cudaMemcpyDeviceToHost), &err))
        give_up();
    check(tail[0] == 8 && tail[1] == 499, "the history goes on with %d %d", tail[0], tail[1]);
}

// Before anything is copied to the device, where an id is an address.
void ids_outside_the_vocabulary_are_refused(void)
{
    fixture f(100, 16);
    struct sampler_settings set = sampler_defaults;
    const int32_t history[] = {1};
    struct decode_params p = {};
    p.sampler = &set;
    p.history = history;
    p.n_history = 1;
    struct error told = {};
    set.n_bias = 1;
    for (int32_t id : {100, -1, INT32_MAX}) {
        set.bias[0] = {id, 1.0f};
        told = {};
        check(!gpu_sampler_begin(&f.q, &f.s, &p, &told) && strstr(told.text, "--logit-bias") &&
                  strstr(told.text, "0 to 99"),
              "a bias for id %d of 100: \"%s\"", id, told.text);
    }
    set.n_bias = 0;
    memset(set.chain, SAMPLER_TEMPERATURE + 1, sizeof set.chain);
    check(!gpu_sampler_begin(&f.q, &f.s, &p, &told), "a chain of what there is not");
}

} // namespace

// Picks of several sequences at once, each with settings and a history of its own, against the
// CPU's; what one launch leaves behind, the next one must not find.
void several_at_once(uint32_t n_vocab, int n_rounds)
{
    enum { N = 7 };
    const uint32_t ld = (n_vocab + 3) / 4 * 4;
    struct queue q = {};
    struct sampler_rows rows = {};
    void *memory;
    float *logits;
    random_numbers r = {n_vocab * 7ull, 0};
    if (!CHECK_CUDA(cudaStreamCreateWithFlags(&q.stream, cudaStreamNonBlocking), &err) ||
        !CHECK_CUDA(cudaMalloc(&memory, sampler_rows_bytes(N, n_vocab)), &err) ||
        !CHECK_CUDA(cudaMalloc(&logits, N * ld * sizeof *logits), &err))
        give_up();
    sampler_rows_place(&rows, N, n_vocab, memory);
    if (!sampler_rows_open(&q, &rows, &err))
        give_up();
    uint32_t n_penalties = 0;
    for (int round = 0; round < n_rounds; round++) {
        struct sampler_settings set[N];
        std::vector<int32_t> history[N];
        std::vector<float> l[N];
        std::vector<uint32_t> mask(1 + (n_vocab + 31) / 32);
        int32_t want[N];
        bool ok[N];
        for (uint32_t i = 0; i < N; i++) {
            struct decode_params p = {};
            do {
                set[i] = random_settings(r, n_vocab);
                set[i].dry_multiplier = 0;
                set[i].repeat_last_n = (int32_t)r.one_of({64, -1, 5, 256, 257});
                history[i] = random_history(r, n_vocab, r.below(2) ? 20 : 900);
                history[i].push_back(0);
                p.sampler = &set[i];
                p.history = history[i].data();
                p.n_history = history[i].size();
            } while (!sampler_rows_can(&p, n_vocab));
            n_penalties += set[i].repeat_penalty != 1;
            p.masked = r.below(3) == 0;
            l[i] = random_logits(r, n_vocab);
            if (round % 5 == 4 && i == 3)
                l[i][r.below(n_vocab)] = NAN;
            if (!CHECK_CUDA(cudaMemcpy(logits + i * ld, l[i].data(), n_vocab * sizeof(float),
                                       cudaMemcpyHostToDevice),
                            &err))
                give_up();
            struct sampler cpu;
            struct error why = {};
            if (!sampler_init(&cpu, &set[i], n_vocab, &err))
                give_up();
            if (p.masked) {
                random_mask(r, n_vocab, mask.data());
                cpu.allow = mask.data() + 1;
                memcpy(sampler_rows_mask(&rows, i), mask.data(), mask.size() * sizeof mask[0]);
            }
            ok[i] = sampler_pick(&cpu, l[i].data(), p.history, p.n_history, &want[i], &why);
            sampler_release(&cpu);
            sampler_rows_set(&rows, i, &p, logits + i * ld);
        }
        struct upload settings = {};
        sampler_rows_upload(&rows, N, &settings);
        if (!upload_launch(&q, &settings, &err) || !sampler_rows_launch(&q, &rows, N, &err) ||
            !CHECK_CUDA(cudaStreamSynchronize(q.stream), &err))
            give_up();
        for (uint32_t i = 0; i < N; i++) {
            struct decoded d;
            struct error why = {};
            char what[512];
            describe(&set[i], what, sizeof what);
            const bool got = sampler_rows_result(&q, &rows, i, &d, &why);
            check(got == ok[i] && (!got || d.id == want[i]),
                  "vocabulary %u, round %d, row %u after %zu: CPU %d, device %d (%s); %s", n_vocab,
                  round, i, history[i].size(), ok[i] ? want[i] : -1, got ? d.id : -1, why.text,
                  what);
        }
    }
    check(n_penalties > (uint32_t)n_rounds, "%u rows with penalties", n_penalties);
    sampler_rows_close(&rows);
    cudaFree(memory);
    cudaFree(logits);
    cudaStreamDestroy(q.stream);
}

void picks_of_several_sequences(void)
{
    several_at_once(31, cases(40));
    several_at_once(1056, cases(20));
    several_at_once(9001, cases(6));
}
// namespace

int main(void)
{
    static const tap_test tests[] = {
        {"the common chains choose as on the CPU", the_common_chains},
        {"random settings, tiny vocabularies", tiny_vocabularies},
        {"random settings, middling vocabularies", middling_vocabularies},
        {"random settings, a full vocabulary", full_vocabulary},
        {"picks of several sequences choose as on the CPU", picks_of_several_sequences},
        {"two samplers at once do not wait for each other", two_samplers_at_once},
        {"a logit that is not finite, and nothing left, are told", failures_are_told},
        {"logits that overflow while sampling are told", overflows_are_told},
        {"a stop id ends the steps", a_stop_id_ends_the_steps},
        {"ids outside the vocabulary are refused", ids_outside_the_vocabulary_are_refused},
    };
    return tap_main(tests);
}
