// The dense stage of sampling: every block edits and filters its slice of the logits, and the
// blocks add up what they find. Also the counts of tokens that penalties need, which both stages
// use.
#ifndef HOKKU_CUDA_SAMPLER_DENSE_CUH
#define HOKKU_CUDA_SAMPLER_DENSE_CUH

#include "engine/sampler_math.h"
#include "sampler_grid.cuh"

// ---- penalties: counts per token over the end of the history --------------------------------

// The last n tokens of the history (n < 0: all of it).
static __device__ const int32_t *window(const struct run *r, int32_t last_n, uint32_t *n)
{
    *n = last_n < 0 || (uint32_t)last_n > r->n_history ? r->n_history : (uint32_t)last_n;
    return r->a->history + (r->n_history - *n);
}

// Counts the tokens of the window in [lo, hi); false when the penalties are off.
static __device__ bool count_window(struct run *r, uint32_t lo, uint32_t hi)
{
    uint32_t n;
    const int32_t *h = window(r, r->c->set.repeat_last_n, &n);
    if (n == 0 || !r->c->penalties)
        return false;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        if ((uint32_t)h[i] >= lo && (uint32_t)h[i] < hi)
            atomicAdd(&r->a->count[h[i]], 1u);
    __syncthreads();
    return true;
}

// DRY: for the tokens of [lo, hi) that followed an earlier occurrence of the window's end: 1 + the
// length of the longest such occurrence, at most dry_cap. False when DRY has nothing to do.
static __device__ bool count_repetitions(struct run *r, uint32_t lo, uint32_t hi)
{
    const struct sampler_settings *set = &r->c->set;
    uint32_t n, cap = r->c->dry_cap, allowed = (uint32_t)set->dry_allowed_length;
    const int32_t *h = window(r, set->dry_penalty_last_n, &n);
    if (!r->c->dry || n < 2)
        return false;
    // The run at the end without a breaker, as far as it matters.
    uint64_t nearest = 0; // cap - distance of a breaker from the end
    for (uint32_t i = threadIdx.x; i < n && i < cap; i += THREADS)
        if (r->a->flags[h[n - 1 - i]] & TOKEN_BREAKER)
            nearest = larger(nearest, cap - i);
    uint32_t limit = cap - (uint32_t)block_reduce(nearest, &r->m->sums, LARGEST);
    limit = limit < n ? limit : n;
    if (limit < allowed)
        return false;
    for (uint32_t i = 1 + threadIdx.x; i < n; i += THREADS) {
        uint32_t next = (uint32_t)h[n - i], len = 0;
        if (next < lo || next >= hi)
            continue;
        while (len < limit && i + len < n && h[n - 1 - len] == h[n - 1 - i - len])
            len++;
        if (len >= allowed)
            atomicMax(&r->a->count[next], len + 1);
    }
    __syncthreads();
    return true;
}

static __device__ float edited(const struct run *r, bool is_dry, float logit, uint32_t count)
{
    const struct sampler_settings *set = &r->c->set;
    if (is_dry)
        return logit - sampler_dry_penalty(count - 1, set->dry_allowed_length, set->dry_multiplier,
                                           set->dry_base);
    return sampler_penalize(logit, count, set->repeat_penalty, set->frequency_penalty,
                            set->presence_penalty);
}

// Clears the counts of the window's tokens again.
static __device__ void clear_counts(struct run *r, bool is_dry)
{
    uint32_t n;
    const int32_t *h =
        window(r, is_dry ? r->c->set.dry_penalty_last_n : r->c->set.repeat_last_n, &n);
    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        r->a->count[h[i]] = 0;
}

static __device__ NOINLINE void edit_dense(struct run *r, bool is_dry)
{
    uint32_t lo = r->first, hi = r->first + r->len, n;
    if (!(is_dry ? count_repetitions(r, lo, hi) : count_window(r, lo, hi)))
        return;
    const int32_t *h =
        window(r, is_dry ? r->c->set.dry_penalty_last_n : r->c->set.repeat_last_n, &n);
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        uint32_t id = (uint32_t)h[i];
        if (id < lo || id >= hi)
            continue;
        uint32_t count = atomicExch(&r->a->count[id], 0u); // the first to come edits
        if (count)
            r->slice[id - lo] = edited(r, is_dry, r->slice[id - lo], count);
    }
    __syncthreads();
    r->max_known = false;
}

// ---- the dense stage ------------------------------------------------------------------------

// The largest logit. SAMPLER_NOT_FINITE with *id, or SAMPLER_NONE_LEFT.
static __device__ NOINLINE uint32_t find_max(struct run *r, uint32_t *id)
{
    if (r->max_known)
        return SAMPLER_OK;
    uint64_t best = r->not_finite;
    for (uint32_t i = threadIdx.x; i < r->len; i += THREADS)
        if (present(r->slice[i]))
            best = larger(best, key_of(r->slice[i], r->first + i));
    best = grid_reduce_one(r, best, LARGEST);
    *id = key_id(best);
    if (best >> 32 == 0xFFFFFFFFu)
        return SAMPLER_NOT_FINITE;
    r->max = key_logit(best);
    r->max_known = true;
    return r->max == -INFINITY ? SAMPLER_NONE_LEFT : SAMPLER_OK;
}

static __device__ uint64_t sum_weights(struct run *r)
{
    uint64_t total = 0;
    for (uint32_t i = threadIdx.x; i < r->len; i += THREADS)
        if (present(r->slice[i]))
            total += sampler_weight(r->slice[i], r->max);
    return grid_reduce_one(r, total, SUM);
}

// Removes what keep(logit, id) does not hold for; r->n becomes what is left.
template <typename KEEP> static __device__ NOINLINE void filter_dense(struct run *r, KEEP keep)
{
    uint64_t n = 0;
    for (uint32_t i = threadIdx.x; i < r->len; i += THREADS) {
        if (!present(r->slice[i]))
            continue;
        if (keep(r->slice[i], r->first + i))
            n++;
        else
            r->slice[i] = NAN;
    }
    r->n = (uint32_t)grid_reduce_one(r, n, SUM);
}

// A cut keeps the first candidates of an order until their count, or the sum of their weights,
// suffices. Orders: by logit, or by distance from the mean surprise (typical). The place of a
// candidate is three numbers, compared one after the other: a coarse one whose 2,048 values suit
// logits (so that one pass nearly always suffices), then two of 64 bits that decide exactly.
struct cut {
    bool by_distance, by_weight;
    uint32_t k;            // !by_weight: how many
    float p;               // by_weight: the part of total
    uint64_t total, terms; // sums over the candidates (terms: by_distance)
    // The place of the last candidate kept, as far as it is known: `digits` digits of it.
    uint32_t coarse, digits;
    uint64_t high, low;
    uint32_t n_above; // candidates before that place
    uint64_t mass_above;
};

struct place {
    uint32_t coarse;
    uint64_t high, low;
};

static __device__ __forceinline__ struct place place_of(const struct run *r, const struct cut *c,
                                                        float logit, uint32_t id)
{
    struct place p;
    uint64_t by_logit = (uint64_t)~order_of(logit) << 32 | id;
    float x; // grows with the distance from the best
    if (c->by_distance) {
        double d = sampler_typical_distance(logit, r->max, c->terms, c->total);
        x = (float)(d * 64);
        p.high = (uint64_t)__double_as_longlong(d);
        p.low = by_logit;
    } else {
        x = (r->max - logit) * 64;
        p.high = by_logit;
        p.low = 0;
    }
    p.coarse = x < BINS - 1 ? (uint32_t)x : BINS - 1;
    return p;
}

// Digits 1-6 are those of `high` (11 bits each, the last one 9), 7-12 those of `low`.
static __device__ uint32_t digit_shift(uint32_t digit)
{
    uint32_t i = (digit - 1) % 6;
    return i < 5 ? 53 - 11 * i : 0;
}

static __device__ uint32_t digit_bits(uint32_t digit)
{
    return (digit - 1) % 6 < 5 ? 11 : 9;
}

static __device__ uint32_t digit_of(struct place p, uint32_t digit)
{
    if (digit == 0)
        return p.coarse;
    uint64_t v = digit <= 6 ? p.high : p.low;
    return (uint32_t)(v >> digit_shift(digit)) & ((1u << digit_bits(digit)) - 1);
}

// -1, 0, 1: before, at, after the place of the cut, by the digits known.
static __device__ int compare_place(struct place p, const struct cut *c)
{
    if (c->digits == 0)
        return 0;
    if (p.coarse != c->coarse)
        return p.coarse < c->coarse ? -1 : 1;
    if (c->digits == 1)
        return 0;
    uint64_t high = p.high >> digit_shift(c->digits <= 7 ? c->digits - 1 : 6);
    if (high != c->high)
        return high < c->high ? -1 : 1;
    if (c->digits <= 7)
        return 0;
    uint64_t low = p.low >> digit_shift(c->digits - 1);
    return low < c->low ? -1 : low > c->low;
}

static __device__ bool suffices(const struct cut *c, uint64_t mass)
{
    return c->by_weight ? sampler_reaches(mass, c->total, c->p) : mass >= c->k;
}

// One pass: how many candidates, and what mass, have which next digit, over the grid. Thread t gets
// bins [4 t, 4 t + 4).
static __device__ NOINLINE void histogram(struct run *r, const struct cut *c, uint32_t n[4],
                                          uint64_t w[4])
{
    struct block_memory *m = r->m;
    struct sampler_scratch *s = r->a->s;
    static_assert(BINS == 4 * THREADS, "four bins per thread");
    __syncthreads();
    for (uint32_t b = threadIdx.x; b < BINS; b += THREADS) {
        m->count[b] = 0;
        m->mass[b] = 0;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < r->len; i += THREADS) {
        float l = r->slice[i];
        if (!present(l))
            continue;
        struct place p = place_of(r, c, l, r->first + i);
        if (compare_place(p, c) != 0)
            continue;
        uint32_t d = digit_of(p, c->digits);
        atomicAdd(&m->count[d], 1u);
        if (c->by_weight)
            atomicAdd((unsigned long long *)&m->mass[d],
                      (unsigned long long)sampler_weight(l, r->max));
    }
    __syncthreads();
    uint32_t *count = m->count;
    uint64_t *mass = m->mass;
    if (gridDim.x > 1) {
        uint32_t now = r->n_pass % 3, old = (r->n_pass + 2) % 3;
        count = s->bin_count[now];
        mass = s->bin_mass[now];
        for (uint32_t b = threadIdx.x; b < BINS; b += THREADS) {
            if (m->count[b])
                atomicAdd(&count[b], m->count[b]);
            if (m->mass[b])
                atomicAdd((unsigned long long *)&mass[b], (unsigned long long)m->mass[b]);
        }
        grid_barrier(r);
        // Everyone has read the bins of the pass before: they serve again two passes from now.
        for (uint32_t b = blockIdx.x * THREADS + threadIdx.x; b < BINS; b += gridDim.x * THREADS) {
            s->bin_count[old][b] = 0;
            s->bin_mass[old][b] = 0;
        }
        r->n_pass++;
    }
    for (int j = 0; j < 4; j++) {
        uint32_t b = threadIdx.x * 4 + (uint32_t)j;
        n[j] = gridDim.x > 1 ? __ldcg(&count[b]) : count[b];
        w[j] = !c->by_weight ? n[j] : gridDim.x > 1 ? load_other(&mass[b]) : mass[b];
    }
}

// Finds the next digit of the cut's place. Returns how many candidates are kept if everything at
// the place known so far is kept; *exact: that is the cut.
static __device__ NOINLINE uint32_t refine(struct run *r, struct cut *c, bool *exact)
{
    struct block_memory *m = r->m;
    uint32_t n[4];
    uint64_t w[4], total, mass, count;
    histogram(r, c, n, w);
    mass = block_scan(w[0] + w[1] + w[2] + w[3], &m->sums, &total) + c->mass_above;
    count = block_scan((uint64_t)n[0] + n[1] + n[2] + n[3], &m->sums, &total) + c->n_above;
    uint64_t before = mass - w[0] - w[1] - w[2] - w[3];
    uint64_t n_before = count - n[0] - n[1] - n[2] - n[3];
    bool mine = (n[0] || n[1] || n[2] || n[3]) && suffices(c, mass) &&
                !(n_before > c->n_above && suffices(c, before));
    if (mine)
        for (uint32_t j = 0; j < 4; j++) {
            if (n[j] && suffices(c, before + w[j])) {
                m->found.digit = threadIdx.x * 4 + j;
                m->found.n_above = (uint32_t)n_before;
                m->found.n_in = n[j];
                m->found.mass_above = before;
                break;
            }
            before += w[j];
            n_before += n[j];
        }
    __syncthreads();
    uint32_t digit = m->found.digit;
    if (c->digits == 0)
        c->coarse = digit;
    else if (c->digits <= 6)
        c->high = c->high << digit_bits(c->digits) | digit;
    else
        c->low = c->low << digit_bits(c->digits) | digit;
    c->digits++;
    c->n_above = m->found.n_above;
    c->mass_above = m->found.mass_above;
    uint32_t n_kept = c->n_above + m->found.n_in;
    *exact = m->found.n_in == 1 || (!c->by_weight && n_kept == c->k) ||
             c->digits == (c->by_distance ? 13u : 7u);
    return n_kept;
}

// Collects the candidates for which take(logit, id) holds, at most SMALL, in scratch.list. Block 0
// gets them in m->keys, unordered, and their number is returned; the other blocks get 0 and, when
// `last`, may not come to another barrier.
template <typename TAKE> static __device__ uint32_t collect(struct run *r, bool last, TAKE take)
{
    struct sampler_scratch *s = r->a->s;
    for (uint32_t i = threadIdx.x; i < r->len; i += THREADS)
        if (present(r->slice[i]) && take(r->slice[i], r->first + i))
            s->list[atomicAdd(&s->n_list, 1u)] = key_of(r->slice[i], r->first + i);
    if (last && blockIdx.x != 0)
        grid_leave(r);
    else
        grid_barrier(r);
    if (blockIdx.x != 0)
        return 0;
    uint32_t n = __ldcg(&s->n_list);
    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        r->m->keys[i] = load_other(&s->list[i]);
    __syncthreads();
    if (threadIdx.x == 0)
        s->n_list = 0; // the others add to it only after the next barrier
    return n;
}

#endif
