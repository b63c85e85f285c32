// The dense stage of sampling: every block edits and filters its slice of the logits, and the
// blocks add up what they find. Also what both stages use: the counts of tokens that penalties
// need, and the search for the first so many candidates of an order.
#ifndef HOKKU_CUDA_SAMPLER_DENSE_CUH
#define HOKKU_CUDA_SAMPLER_DENSE_CUH

#include "engine/sampler_math.h"
#include "sampler_grid.cuh"

// ---- penalties: counts per token over the end of the history --------------------------------

// The last n tokens of the history (n < 0: all of it).
static __device__ const int32_t *window(const struct run *r, int32_t last_n, uint32_t *n)
{
    *n = last_n < 0 || (uint32_t)last_n > r->n_history ? r->n_history : (uint32_t)last_n;
    return r->a->g.history + (r->n_history - *n);
}

// Counts the tokens of the window in [lo, hi); false when the penalties are off.
template <int T> static __device__ bool count_window(struct run *r, uint32_t lo, uint32_t hi)
{
    uint32_t n;
    const int32_t *h = window(r, r->c->set.repeat_last_n, &n);
    if (n == 0 || !r->c->penalties)
        return false;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < n; i += T)
        if ((uint32_t)h[i] >= lo && (uint32_t)h[i] < hi)
            atomicAdd(&r->a->g.count[h[i]], 1u);
    team_sync<T>();
    return true;
}

// DRY: for the tokens of [lo, hi) that followed an earlier occurrence of the window's end: 1 + the
// length of the longest such occurrence, at most dry_cap. False when DRY has nothing to do.
template <int T> static __device__ bool count_repetitions(struct run *r, uint32_t lo, uint32_t hi)
{
    const struct sampler_settings *set = &r->c->set;
    uint32_t n, cap = r->c->dry_cap, allowed = (uint32_t)set->dry_allowed_length;
    const int32_t *h = window(r, set->dry_penalty_last_n, &n);
    if (!r->c->dry || n < 2)
        return false;
    // The run at the end without a breaker, as far as it matters.
    uint64_t nearest = 0; // cap - distance of a breaker from the end
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < n && i < cap; i += T)
        if (r->a->g.flags[h[n - 1 - i]] & TOKEN_BREAKER)
            nearest = larger(nearest, cap - i);
    uint32_t limit = cap - (uint32_t)team_reduce<T>(nearest, &r->m->sums, LARGEST);
    limit = limit < n ? limit : n;
    if (limit < allowed)
        return false;
#pragma unroll 1
    for (uint32_t i = 1 + threadIdx.x; i < n; i += T) {
        uint32_t next = (uint32_t)h[n - i], len = 0;
        if (next < lo || next >= hi)
            continue;
        while (len < limit && i + len < n && h[n - 1 - len] == h[n - 1 - i - len])
            len++;
        if (len >= allowed)
            atomicMax(&r->a->g.count[next], len + 1);
    }
    team_sync<T>();
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
template <int T> static __device__ void clear_counts(struct run *r, bool is_dry)
{
    uint32_t n;
    const int32_t *h =
        window(r, is_dry ? r->c->set.dry_penalty_last_n : r->c->set.repeat_last_n, &n);
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < n; i += T)
        r->a->g.count[h[i]] = 0;
}

static __device__ NOINLINE void edit_dense(struct run *r, bool is_dry)
{
    uint32_t lo = r->first, hi = r->first + r->len, n;
    if (!(is_dry ? count_repetitions<THREADS>(r, lo, hi) : count_window<THREADS>(r, lo, hi)))
        return;
    const int32_t *h =
        window(r, is_dry ? r->c->set.dry_penalty_last_n : r->c->set.repeat_last_n, &n);
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        uint32_t id = (uint32_t)h[i];
        if (id < lo || id >= hi)
            continue;
        uint32_t count = atomicExch(&r->a->g.count[id], 0u); // the first to come edits
        if (count)
            r->slice[id - lo] = edited(r, is_dry, r->slice[id - lo], count);
    }
    __syncthreads();
    r->max_known = false;
    r->touched = true;
}

// ---- the dense stage ------------------------------------------------------------------------

// Calls f(logit, id) for the candidates of the block's slice. These loops turn once or thrice per
// thread, and fetching unrolled instructions would take longer than it saves.
template <typename F> static __device__ __forceinline__ void each_present(const struct run *r, F f)
{
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < r->len; i += THREADS)
        if (present(r->slice[i]))
            f(r->slice[i], r->first + i);
}

// The first candidate, as this thread sees it: the largest key.
static __device__ uint64_t first_of_thread(const struct run *r)
{
    uint64_t best = 0;
    each_present(r, [&](float l, uint32_t id) { best = larger(best, key_of(l, id)); });
    return best;
}

// Why the largest logit that is left is none to pick, if so: as sampler_pick has it.
static __device__ uint32_t failure_of(const struct run *r, float max)
{
    const struct sampler_settings *set = &r->c->set;
    if (max != INFINITY && max != -INFINITY)
        return SAMPLER_OK;
    bool forbids = false;
#pragma unroll 1
    for (uint32_t i = 0; i < set->n_bias; i++)
        forbids = forbids || set->bias[i].bias == -INFINITY;
    if (max < 0 && forbids)
        return SAMPLER_NONE_LEFT;
    return SAMPLER_OVERFLOW;
}

// What all blocks know after they met: why there is nothing to pick, if so.
static __device__ uint32_t failure(struct run *r, float max)
{
    return __ldcg(&r->s->not_finite) ? (uint32_t)SAMPLER_NOT_FINITE : failure_of(r, max);
}

// The largest logit.
static __device__ NOINLINE uint32_t find_max(struct run *r)
{
    if (r->max_known)
        return SAMPLER_OK;
    uint64_t v[1] = {first_of_thread(r)};
    grid_reduce<false, LARGEST>(r, v);
    r->max = key_logit(v[0]);
    r->max_known = true;
    return failure(r, r->max);
}

static __device__ uint64_t sum_weights(struct run *r)
{
    uint64_t total = 0;
    each_present(r, [&](float l, uint32_t) { total += sampler_weight(l, r->max); });
    return grid_sum(r, total);
}

// Removes what keep(logit, id) does not hold for.
template <typename KEEP> static __device__ uint32_t remove_dense(struct run *r, KEEP keep)
{
    uint32_t n = 0;
    each_present(r, [&](float l, uint32_t id) {
        if (keep(l, id))
            n++;
        else
            r->slice[id - r->first] = NAN;
    });
    r->touched = true;
    return n;
}

// The same; r->n becomes what is left.
template <typename KEEP> static __device__ NOINLINE void filter_dense(struct run *r, KEEP keep)
{
    r->n = (uint32_t)grid_sum(r, remove_dense(r, keep));
}

// The first index at which done(sum of f(0 .. index), sum of all) holds; n when at none.
// At most two per thread of the team.
template <int T, typename F, typename D>
static __device__ uint32_t first_that_suffices(struct run *r, uint32_t n, F f, D done)
{
    uint32_t i = threadIdx.x * 2;
    uint64_t a = i < n ? f(i) : 0, b = i + 1 < n ? f(i + 1) : 0, total;
    uint64_t sum = team_scan<T>(a + b, &r->m->sums, &total);
    return team_count<T>(i < n && !done(sum - b, total)) +
           team_count<T>(i + 1 < n && !done(sum, total));
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

// Of BINS values, one that grows with the distance from the best.
static __device__ __forceinline__ uint32_t coarse_place(float best, float v)
{
    float x = (best - v) * 64;
    return x < BINS - 1 ? (uint32_t)x : BINS - 1;
}

static __device__ __forceinline__ struct place place_of(const struct run *r, const struct cut *c,
                                                        float logit, uint32_t id)
{
    struct place p;
    uint64_t by_logit = (uint64_t)~order_of(logit) << 32 | id;
    if (c->by_distance) {
        double d = sampler_typical_distance(logit, r->max, c->terms, c->total);
        p.coarse = coarse_place(0, (float)-d);
        p.high = (uint64_t)__double_as_longlong(d);
        p.low = by_logit;
    } else {
        p.coarse = coarse_place(r->max, logit);
        p.high = by_logit;
        p.low = 0;
    }
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
    auto &bins = r->m->bins;
    struct sampler_scratch *s = r->s;
    static_assert(BINS == 4 * THREADS, "four bins per thread");
    __syncthreads();
#pragma unroll 1
    for (uint32_t b = threadIdx.x; b < BINS; b += THREADS)
        bins.count[b] = bins.mass_low[b] = bins.mass_high[b] = 0;
    __syncthreads();
    each_present(r, [&](float l, uint32_t id) {
        struct place p = place_of(r, c, l, id);
        if (compare_place(p, c) != 0)
            return;
        uint32_t d = digit_of(p, c->digits);
        atomicAdd(&bins.count[d], 1u);
        if (c->by_weight) { // shared memory adds 32 bits at once
            uint64_t weight = sampler_weight(l, r->max);
            atomicAdd(&bins.mass_low[d], (uint32_t)weight & 0xFFFFu);
            atomicAdd(&bins.mass_high[d], (uint32_t)(weight >> 16));
        }
    });
    __syncthreads();
    auto mass_of = [&](uint32_t b) {
        return ((uint64_t)bins.mass_high[b] << 16) + bins.mass_low[b];
    };
    if (r->n_blocks == 1) {
        for (uint32_t j = 0, b = threadIdx.x * 4; j < 4; j++, b++) {
            n[j] = bins.count[b];
            w[j] = mass_of(b);
        }
        return;
    }
    uint32_t now = r->n_pass % 3, old = (r->n_pass + 2) % 3;
#pragma unroll 1
    for (uint32_t b = threadIdx.x; b < BINS; b += THREADS)
        if (bins.count[b]) {
            atomicAdd(&s->bin_count[now][b], bins.count[b]);
            if (c->by_weight)
                atomicAdd((unsigned long long *)&s->bin_mass[now][b],
                          (unsigned long long)mass_of(b));
        }
    grid_barrier(r);
    for (uint32_t j = 0, b = threadIdx.x * 4; j < 4; j++, b++) {
        n[j] = __ldcg(&s->bin_count[now][b]);
        w[j] = c->by_weight ? load_other(&s->bin_mass[now][b]) : 0;
    }
    // Everyone has read the bins of the pass before: they serve again two passes from now.
#pragma unroll 1
    for (uint32_t b = blockIdx.x * THREADS + threadIdx.x; b < BINS; b += r->n_blocks * THREADS) {
        s->bin_count[old][b] = 0;
        s->bin_mass[old][b] = 0;
    }
    r->n_pass++;
}

// Finds the next digit of the cut's place. Returns how many candidates are kept if everything at
// the place known so far is kept; *exact: that is the cut.
static __device__ NOINLINE uint32_t refine(struct run *r, struct cut *c, bool *exact)
{
    struct block_memory *m = r->m;
    uint32_t n[4];
    uint64_t w[4], count, mass, all_count, all_mass;
    histogram(r, c, n, w);
    count = team_scan<THREADS>((uint64_t)n[0] + n[1] + n[2] + n[3], &m->sums, &all_count);
    mass = count;
    all_mass = all_count;
    if (c->by_weight)
        mass = team_scan<THREADS>(w[0] + w[1] + w[2] + w[3], &m->sums, &all_mass);
    else
        for (int j = 0; j < 4; j++)
            w[j] = n[j];
    if (c->digits == 0)
        c->total = all_mass;
    mass += c->mass_above;
    count += c->n_above;
    uint64_t before = mass - w[0] - w[1] - w[2] - w[3];
    uint64_t n_before = count - n[0] - n[1] - n[2] - n[3];
    bool mine = (n[0] || n[1] || n[2] || n[3]) && suffices(c, mass) &&
                !(n_before > c->n_above && suffices(c, before));
    for (uint32_t j = 0; mine && j < 4; j++) {
        if (n[j] && suffices(c, before + w[j])) {
            m->found = {threadIdx.x * 4 + j, (uint32_t)n_before, n[j], before};
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

// Appends the candidates for which take(logit, id) holds, over all blocks at most SMALL, to
// scratch.list. The blocks have met after it was last read, and meet before it is read.
template <typename TAKE> static __device__ void list_candidates(struct run *r, TAKE take)
{
    each_present(r, [=](float l, uint32_t id) {
        if (take(l, id))
            r->s->list[atomicAdd(&r->s->n_list, 1u)] = key_of(l, id);
    });
}

// Copies n of them to m->keys. `clear`: one block empties the list.
static __device__ void take_list(struct run *r, uint32_t n, bool clear)
{
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        r->m->keys[i] = load_other(&r->s->list[i]);
    if (clear && threadIdx.x == 0)
        r->s->n_list = 0;
    __syncthreads();
}

static __device__ bool at_cut(const struct run *r, const struct cut *c, float logit, uint32_t id)
{
    return compare_place(place_of(r, c, logit, id), c) == 0;
}

static __device__ bool not_after(const struct run *r, const struct cut *c, float logit, uint32_t id)
{
    return compare_place(place_of(r, c, logit, id), c) <= 0;
}

// Makes a cut by logit exact when at most SMALL candidates share its place as far as it is known:
// every block sorts them and sees which is the last one kept. Returns how many are kept in all.
static __device__ NOINLINE uint32_t settle(struct run *r, struct cut *c, uint32_t n)
{
    uint64_t *keys = r->m->keys;
    list_candidates(r, [=](float l, uint32_t id) { return at_cut(r, c, l, id); });
    grid_barrier(r);
    take_list(r, n, blockIdx.x == 0);
    team_sort_descending<THREADS>(keys, n);
    uint32_t last = first_that_suffices<THREADS>(
        r, n,
        [=](uint32_t i) { return c->by_weight ? sampler_weight(key_logit(keys[i]), r->max) : 1; },
        [=](uint64_t sum, uint64_t) { return suffices(c, c->mass_above + sum); });
    last = last < n ? last : n - 1;
    struct place p = place_of(r, c, key_logit(keys[last]), key_id(keys[last]));
    __syncthreads();
    c->high = p.high;
    c->digits = 7;
    return c->n_above + last + 1;
}

// ---- the first k of all logits, by one block --------------------------------------------------

// The largest present value of each group of the block's slice, to maxima (all groups).
static __device__ void write_maxima(const struct run *r, float *maxima)
{
    const float4 *slice = reinterpret_cast<const float4 *>(r->slice);
    uint32_t n = div_up(r->len, (uint32_t)GROUP) * (GROUP / 4);
#pragma unroll 1
    for (uint32_t q = threadIdx.x; q - threadIdx.x % WARP < n; q += THREADS) {
        float4 l = q < n ? slice[q] : make_float4(NAN, NAN, NAN, NAN);
        float max = fmaxf(fmaxf(l.x, l.y), fmaxf(l.z, l.w)); // NaN only when all are
        max = lane_max<GROUP / 8, 1>(max);
        if (q < n && q % (GROUP / 4) == 0)
            maxima[r->first / GROUP + q / (GROUP / 4)] = max;
    }
}

// Puts the candidates among values (n_vocab) whose keys are at least `least` in m->keys, unordered.
// Returns their number; those past SMALL are only counted. maxima: of the groups of values.
static __device__ NOINLINE uint32_t gather(struct block_memory *m, uint64_t least, uint32_t n_vocab,
                                           const float *values, const float *maxima)
{
    uint32_t n_groups = div_up(n_vocab, (uint32_t)GROUP);
#pragma unroll 1
    for (uint32_t begin = 0; begin < n_groups; begin += LISTED) {
        uint32_t end = lesser(begin + LISTED, n_groups);
        __syncthreads();
        if (threadIdx.x == 0) {
            m->n_listed = 0;
            m->n_found = begin ? m->n_found : 0;
        }
        __syncthreads();
#pragma unroll 4
        for (uint32_t g = begin + threadIdx.x; g < end; g += THREADS)
            if (present(maxima[g]) && key_of(maxima[g], g * GROUP) >= least)
                m->group[atomicAdd(&m->n_listed, 1u)] = g;
        __syncthreads();
        uint32_t n = m->n_listed * (GROUP / 4);
#pragma unroll 2
        for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
            uint32_t q = m->group[i / (GROUP / 4)] * (GROUP / 4) + i % (GROUP / 4);
            float4 l = load_quad(values, n_vocab, q);
            const float v[4] = {l.x, l.y, l.z, l.w};
            for (uint32_t j = 0; j < 4; j++) {
                uint64_t key = key_of(v[j], q * 4 + j);
                if (!present(v[j]) || key < least)
                    continue;
                uint32_t at = atomicAdd(&m->n_found, 1u);
                if (at < SMALL)
                    m->keys[at] = key;
            }
        }
    }
    __syncthreads();
    return m->n_found;
}

// A key that at least k of the groups' maxima reach, and few more if it can be helped; one block.
static __device__ uint64_t reached_by(struct block_memory *m, const float *maxima,
                                      uint32_t n_groups, uint32_t k)
{
    static_assert(BINS == 4 * THREADS, "four bins per thread");
    uint32_t *count = m->bins.count;
    uint64_t best = 0, total;
    __syncthreads();
#pragma unroll 1
    for (uint32_t b = threadIdx.x; b < BINS; b += THREADS)
        count[b] = 0;
#pragma unroll 4
    for (uint32_t g = threadIdx.x; g < n_groups; g += THREADS)
        if (present(maxima[g]))
            best = larger(best, key_of(maxima[g], 0));
    float max = key_logit(team_reduce<THREADS>(best, &m->sums, LARGEST));
#pragma unroll 4
    for (uint32_t g = threadIdx.x; g < n_groups; g += THREADS)
        if (present(maxima[g]))
            atomicAdd(&count[coarse_place(max, maxima[g])], 1u);
    __syncthreads();
    uint32_t n[4], sum = 0;
    for (uint32_t j = 0; j < 4; j++)
        n[j] = sum += count[threadIdx.x * 4 + j];
    uint32_t before = (uint32_t)team_scan<THREADS>(sum, &m->sums, &total) - sum;
    if (threadIdx.x == 0)
        m->found.digit = BINS - 1; // too few
    __syncthreads();
    for (uint32_t j = 0; j < 4; j++)
        if (before + n[j] >= k && (j ? before + n[j - 1] : before) < k)
            m->found.digit = threadIdx.x * 4 + j;
    __syncthreads();
    // All in that bin have max - logit <= (bin + 1) / 64.
    uint32_t bin = m->found.digit;
    return bin < BINS - 1 ? key_of(max - (float)(bin + 1) / 64, ~0u) : 0;
}

// Puts the first k <= SMALL candidates among values (n_vocab; NaN: removed; more than k are not) in
// m->keys, and perhaps some that follow, unordered; one block. Returns their number, at most SMALL.
// Whatever has one of the first k is a group whose maximum is among the first k maxima, so few
// logits need to be looked at.
static __device__ NOINLINE uint32_t gather_first(struct run *r, const float *values,
                                                 const float *maxima, uint32_t k)
{
    uint32_t n_vocab = r->a->n_vocab, n_groups = div_up(n_vocab, (uint32_t)GROUP);
    uint64_t low = n_vocab <= SMALL ? 0 : reached_by(r->m, maxima, n_groups, k), high = ~0ull;
    uint32_t n = gather(r->m, low, n_vocab, values, maxima);
    while (n > SMALL || n < k) { // too many are alike: look for a key in between
        uint64_t middle = low + (high - low) / 2;
        n = gather(r->m, middle, n_vocab, values, maxima);
        if (n < k)
            high = middle;
        else
            low = middle;
    }
    return n;
}

#endif
