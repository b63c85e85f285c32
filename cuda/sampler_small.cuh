// The small stage of sampling: the filters once more, for one team with its few candidates in
// shared memory. T: the threads of the team, each of which has two candidates: a warp for a few of
// them, which needs no barriers; the block for up to SMALL.
#ifndef HOKKU_CUDA_SAMPLER_SMALL_CUH
#define HOKKU_CUDA_SAMPLER_SMALL_CUH

#include "sampler_dense.cuh"

static_assert(SMALL == 2 * THREADS, "two candidates per thread");

// The candidates: keys[0 .. n).
struct small {
    uint64_t *keys;
    uint32_t n;
    enum { UNORDERED, BEST_FIRST, SORTED } order; // BEST_FIRST: keys[0] has the largest logit
};

template <int T> static __device__ void sort_small(struct small *w)
{
    if (w->order != small::SORTED)
        team_sort_descending<T>(w->keys, w->n);
    w->order = small::SORTED;
}

// Replaces every key by f(key).
template <int T, typename F> static __device__ void map_small(struct small *w, F f)
{
    team_sync<T>(); // the others may still read
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < w->n; i += T)
        w->keys[i] = f(w->keys[i]);
    team_sync<T>();
}

// The sum of f(key) over all candidates.
template <int T, typename F>
static __device__ uint64_t sum_small(struct run *r, struct small *w, F f)
{
    uint64_t sum = 0;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < w->n; i += T)
        sum += f(w->keys[i]);
    return team_reduce<T>(sum, &r->m->sums, SUM);
}

// The number of candidates for which f(key) holds.
template <int T, typename F> static __device__ uint32_t count_small(struct small *w, F f)
{
    uint32_t a = threadIdx.x, b = threadIdx.x + T;
    return team_count<T>(a < w->n && f(w->keys[a])) + team_count<T>(b < w->n && f(w->keys[b]));
}

template <int T>
static __device__ NOINLINE void edit_small(struct run *r, struct small *w, bool is_dry)
{
    uint32_t n_vocab = r->a->n_vocab;
    if (!(is_dry ? count_repetitions<T>(r, 0, n_vocab) : count_window<T>(r, 0, n_vocab)))
        return;
    map_small<T>(w, [=](uint64_t key) {
        uint32_t count = __ldcg(&r->a->g.count[key_id(key)]);
        return count ? key_of(edited(r, is_dry, key_logit(key), count), key_id(key)) : key;
    });
    w->order = small::UNORDERED;
    clear_counts<T>(r, is_dry);
    team_sync<T>();
}

template <int T> static __device__ NOINLINE void top_n_sigma_small(struct run *r, struct small *w)
{
    sort_small<T>(w);
    float max = key_logit(w->keys[0]);
    auto term = [=](uint64_t key) {
        float l = key_logit(key);
        return l == -INFINITY ? 0 : sampler_sigma_term(l, max);
    };
    uint64_t n = count_small<T>(w, [](uint64_t key) { return key_logit(key) != -INFINITY; });
    uint64_t sum = sum_small<T>(r, w, term);
    uint64_t sum_sq = sum_small<T>(r, w, [=](uint64_t key) { return term(key) * term(key); });
    float limit = sampler_sigma_limit(max, r->c->set.top_n_sigma, sum, sum_sq, n);
    w->n = count_small<T>(w, [=](uint64_t key) { return key_logit(key) >= limit; });
}

// from: the cut found in the dense stage, whose sums are over more candidates than these.
template <int T>
static __device__ NOINLINE void typical_small(struct run *r, struct small *w,
                                              const struct cut *from)
{
    sort_small<T>(w);
    uint64_t *keys = w->keys, *distance = r->m->distance; // (SMALL)
    float max = from ? r->max : key_logit(keys[0]), p = r->c->set.typical;
    auto weight = [=](uint64_t key) { return sampler_weight(key_logit(key), max); };
    uint64_t total = from ? from->total : sum_small<T>(r, w, weight);
    uint64_t terms = from ? from->terms : sum_small<T>(r, w, [=](uint64_t key) {
        return sampler_typical_term(weight(key), key_logit(key), max);
    });
    // Sorting 64-bit distances and 10-bit ranks at once: find each candidate's place by counting
    // those before it.
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < w->n; i += T)
        distance[i] = (uint64_t)__double_as_longlong(
            sampler_typical_distance(key_logit(keys[i]), max, terms, total));
    team_sync<T>();
    uint64_t key[2];
    uint32_t place[2] = {};
#pragma unroll 1
    for (uint32_t j = 0, i = threadIdx.x; i < w->n; i += T, j++) {
        key[j] = keys[i];
#pragma unroll 4
        for (uint32_t k = 0; k < w->n; k++)
            place[j] += distance[k] < distance[i] || (distance[k] == distance[i] && k < i);
    }
    team_sync<T>();
#pragma unroll 1
    for (uint32_t j = 0, i = threadIdx.x; i < w->n; i += T, j++)
        keys[place[j]] = key[j];
    team_sync<T>();
    uint32_t last = first_that_suffices<T>(
        r, w->n, [=](uint32_t i) { return weight(keys[i]); },
        [=](uint64_t sum, uint64_t) { return sampler_reaches(sum, total, p); });
    w->n = last < w->n ? last + 1 : w->n;
    w->order = small::UNORDERED;
}

template <int T>
static __device__ void top_p_small(struct run *r, struct small *w, const struct cut *from)
{
    sort_small<T>(w);
    uint64_t *keys = w->keys;
    float max = key_logit(keys[0]), p = r->c->set.top_p;
    uint32_t last = first_that_suffices<T>(
        r, w->n, [=](uint32_t i) { return sampler_weight(key_logit(keys[i]), max); },
        [=](uint64_t sum, uint64_t all) {
            return sampler_reaches(sum, from ? from->total : all, p);
        });
    w->n = last < w->n ? last + 1 : w->n;
}

template <int T> static __device__ void min_p_small(struct run *r, struct small *w)
{
    sort_small<T>(w);
    float limit = key_logit(w->keys[0]) + r->c->log_min_p;
    uint32_t n = count_small<T>(w, [=](uint64_t key) { return key_logit(key) >= limit; });
    w->n = n ? n : 1;
}

template <int T> static __device__ NOINLINE void xtc_small(struct run *r, struct small *w)
{
    sort_small<T>(w);
    float max = key_logit(w->keys[0]), threshold = r->c->set.xtc_threshold;
    auto weight = [=](uint64_t key) { return sampler_weight(key_logit(key), max); };
    uint64_t total = sum_small<T>(r, w, weight);
    uint32_t n_above = count_small<T>(
        w, [=](uint64_t key) { return sampler_reaches(weight(key), total, threshold) != 0; });
    if (n_above < 2)
        return;
    uint32_t drop = n_above - 1;
    uint64_t key[2];
#pragma unroll 1
    for (uint32_t j = 0, i = threadIdx.x; i < w->n; i += T, j++)
        key[j] = w->keys[i];
    team_sync<T>();
#pragma unroll 1
    for (uint32_t j = 0, i = threadIdx.x; i < w->n; i += T, j++)
        if (i >= drop)
            w->keys[i - drop] = key[j];
    team_sync<T>();
    w->n -= drop;
}

// The division can make two logits equal: then the lower id comes first.
template <int T> static __device__ void temperature_small(struct run *r, struct small *w)
{
    float temp = r->c->set.temp;
    map_small<T>(w, [=](uint64_t key) { return key_of(key_logit(key) / temp, key_id(key)); });
    if (w->order == small::SORTED)
        w->order = small::BEST_FIRST;
}

// The draw: the running sum of weights in ascending id order. Returns the id.
template <int T>
static __device__ uint32_t draw_small(struct run *r, struct small *w, uint32_t *failed)
{
    uint64_t *keys = w->keys, best = 0;
    if (w->order == small::UNORDERED) {
#pragma unroll 1
        for (uint32_t k = threadIdx.x; k < w->n; k += T)
            best = larger(best, keys[k]);
        best = team_reduce<T>(best, &r->m->sums, LARGEST);
    } else {
        best = keys[0];
    }
    float max = key_logit(best);
    *failed = failure_of(r, max);
    if (*failed)
        return 0;
    *failed = SAMPLER_NONE_LEFT;
    map_small<T>(w, [](uint64_t key) { return key_by_id(key); });
    team_sort_descending<T>(keys, w->n);
    uint64_t random = rng_u64(r->c->set.seed, r->c->set.first + r->n_history, SAMPLER_DRAW_PICK);
    uint32_t at = first_that_suffices<T>(
        r, w->n, [=](uint32_t k) { return sampler_weight(key_logit(key_by_id(keys[k])), max); },
        [=](uint64_t sum, uint64_t all) { return sum > sampler_scale_random(random, all); });
    if (at == w->n)
        return 0;
    *failed = SAMPLER_OK;
    return key_id(key_by_id(keys[at]));
}

#endif
