// The small stage of sampling: the filters once more, for one block with its few candidates in
// shared memory.
#ifndef HOKKU_CUDA_SAMPLER_SMALL_CUH
#define HOKKU_CUDA_SAMPLER_SMALL_CUH

#include "sampler_dense.cuh"

// The candidates: keys[0 .. n).
struct small {
    uint64_t *keys;
    uint32_t n;
    bool sorted;
};

static __device__ void sort_small(struct small *w)
{
    if (!w->sorted)
        block_sort_descending<THREADS>(w->keys, w->n);
    w->sorted = true;
}

// Replaces every key by f(key); the order is then unknown.
template <typename F> static __device__ void map_small(struct small *w, F f)
{
    for (uint32_t i = threadIdx.x; i < w->n; i += THREADS)
        w->keys[i] = f(w->keys[i]);
    w->sorted = false;
    __syncthreads();
}

// The sum of f(key) over all candidates.
template <typename F> static __device__ uint64_t sum_small(struct run *r, struct small *w, F f)
{
    uint64_t sum = 0;
    for (uint32_t i = threadIdx.x; i < w->n; i += THREADS)
        sum += f(w->keys[i]);
    return block_reduce(sum, &r->m->sums, SUM);
}

// The first index at which done(sum of f(0 .. index)) holds; n when at none.
template <typename F, typename D>
static __device__ uint32_t first_small(struct run *r, uint32_t n, F f, D done)
{
    static_assert(SMALL == 2 * THREADS, "two candidates per thread");
    uint32_t i = threadIdx.x * 2;
    uint64_t a = i < n ? f(i) : 0, b = i + 1 < n ? f(i + 1) : 0, total;
    uint64_t sum = block_scan(a + b, &r->m->sums, &total);
    uint32_t at = i < n && done(sum - b) ? i : i + 1 < n && done(sum) ? i + 1 : n;
    // the smallest: the largest complement
    return n - (uint32_t)block_reduce((uint64_t)(n - at), &r->m->sums, LARGEST);
}

static __device__ NOINLINE void edit_small(struct run *r, struct small *w, bool is_dry)
{
    if (!(is_dry ? count_repetitions(r, 0, r->a->n_vocab) : count_window(r, 0, r->a->n_vocab)))
        return;
    map_small(w, [=](uint64_t key) {
        uint32_t count = __ldcg(&r->a->count[key_id(key)]);
        return count ? key_of(edited(r, is_dry, key_logit(key), count), key_id(key)) : key;
    });
    clear_counts(r, is_dry);
    __syncthreads();
}

static __device__ NOINLINE void top_n_sigma_small(struct run *r, struct small *w)
{
    sort_small(w);
    float max = key_logit(w->keys[0]);
    auto term = [=](uint64_t key) {
        float l = key_logit(key);
        return l == -INFINITY ? 0 : sampler_sigma_term(l, max);
    };
    uint64_t n =
        sum_small(r, w, [](uint64_t key) { return (uint64_t)(key_logit(key) != -INFINITY); });
    uint64_t sum = sum_small(r, w, term);
    uint64_t sum_sq = sum_small(r, w, [=](uint64_t key) { return term(key) * term(key); });
    float limit = sampler_sigma_limit(max, r->c->set.top_n_sigma, sum, sum_sq, n);
    w->n = (uint32_t)sum_small(r, w,
                               [=](uint64_t key) { return (uint64_t)(key_logit(key) >= limit); });
}

// The sums that a cut of typical sampling needs.
static __device__ void typical_sums_small(struct run *r, struct small *w, uint64_t *total,
                                          uint64_t *terms)
{
    float max = key_logit(w->keys[0]);
    *total = sum_small(r, w, [=](uint64_t key) { return sampler_weight(key_logit(key), max); });
    *terms = sum_small(r, w, [=](uint64_t key) {
        return sampler_typical_term(sampler_weight(key_logit(key), max), key_logit(key), max);
    });
}

// from: the cut found in the dense stage, whose sums are over more candidates than these.
static __device__ NOINLINE void typical_small(struct run *r, struct small *w,
                                              const struct cut *from)
{
    uint64_t total, terms, *distance = r->m->mass; // (SMALL)
    sort_small(w);
    float max = from ? r->max : key_logit(w->keys[0]);
    if (from) {
        total = from->total;
        terms = from->terms;
    } else {
        typical_sums_small(r, w, &total, &terms);
    }
    // Sorting 64-bit distances and 10-bit ranks at once: find each candidate's place by counting
    // those before it.
    for (uint32_t i = threadIdx.x; i < w->n; i += THREADS)
        distance[i] = (uint64_t)__double_as_longlong(
            sampler_typical_distance(key_logit(w->keys[i]), max, terms, total));
    __syncthreads();
    uint64_t key[SMALL / THREADS];
    uint32_t place[SMALL / THREADS] = {};
    for (uint32_t j = 0, i = threadIdx.x; i < w->n; i += THREADS, j++) {
        key[j] = w->keys[i];
        for (uint32_t k = 0; k < w->n; k++)
            place[j] += distance[k] < distance[i] || (distance[k] == distance[i] && k < i);
    }
    __syncthreads();
    for (uint32_t j = 0, i = threadIdx.x; i < w->n; i += THREADS, j++)
        w->keys[place[j]] = key[j];
    __syncthreads();
    uint64_t *keys = w->keys;
    float p = r->c->set.typical;
    uint32_t last = first_small(
        r, w->n, [=](uint32_t i) { return sampler_weight(key_logit(keys[i]), max); },
        [=](uint64_t sum) { return sampler_reaches(sum, total, p); });
    w->n = last < w->n ? last + 1 : w->n;
    w->sorted = false;
}

static __device__ NOINLINE void top_p_small(struct run *r, struct small *w, const struct cut *from)
{
    sort_small(w);
    uint64_t *keys = w->keys;
    float max = key_logit(keys[0]), p = r->c->set.top_p;
    uint64_t total =
        from ? from->total
             : sum_small(r, w, [=](uint64_t key) { return sampler_weight(key_logit(key), max); });
    uint32_t last = first_small(
        r, w->n, [=](uint32_t i) { return sampler_weight(key_logit(keys[i]), max); },
        [=](uint64_t sum) { return sampler_reaches(sum, total, p); });
    w->n = last < w->n ? last + 1 : w->n;
}

static __device__ NOINLINE void min_p_small(struct run *r, struct small *w)
{
    sort_small(w);
    float limit = key_logit(w->keys[0]) + r->c->log_min_p;
    uint32_t n = (uint32_t)sum_small(
        r, w, [=](uint64_t key) { return (uint64_t)(key_logit(key) >= limit); });
    w->n = n ? n : 1;
}

static __device__ NOINLINE void xtc_small(struct run *r, struct small *w)
{
    sort_small(w);
    float max = key_logit(w->keys[0]), threshold = r->c->set.xtc_threshold;
    uint64_t total =
        sum_small(r, w, [=](uint64_t key) { return sampler_weight(key_logit(key), max); });
    uint32_t n_above = (uint32_t)sum_small(r, w, [=](uint64_t key) {
        return (uint64_t)sampler_reaches(sampler_weight(key_logit(key), max), total, threshold);
    });
    if (n_above < 2)
        return;
    uint32_t drop = n_above - 1;
    uint64_t key[SMALL / THREADS];
    for (uint32_t j = 0, i = threadIdx.x; i < w->n; i += THREADS, j++)
        key[j] = w->keys[i];
    __syncthreads();
    for (uint32_t j = 0, i = threadIdx.x; i < w->n; i += THREADS, j++)
        if (i >= drop)
            w->keys[i - drop] = key[j];
    __syncthreads();
    w->n -= drop;
}

#endif
