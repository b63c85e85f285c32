// The sampler on the device: engine/sampler.c once more, for a grid of blocks. Sums are sums of
// integers (engine/sampler_math.h) and candidates are strictly ordered, so any way of adding and
// searching makes the CPU sampler's choice. What includes this is compiled without contraction.
//
// Dense stage: every block holds a slice of the logits in shared memory. Filters edit it or mark
// tokens as removed; what a filter must know of all candidates takes a barrier over the grid. Small
// stage: as soon as few enough candidates are left, or it is clear that the next filter leaves few,
// the block that comes last collects them and goes on alone. With the default settings nothing
// before top-k needs the grid, so the last block takes the first 40 of all logits, and no block
// ever waits for another. Where blocks wait (sampler_waits), the launch is cooperative: two
// programs on one GPU may otherwise each hold the room that the other's blocks wait for. Such a
// launch does not begin before its predecessor has ended.
#ifndef HOKKU_CUDA_SAMPLER_CHAIN_CUH
#define HOKKU_CUDA_SAMPLER_CHAIN_CUH

#include "sampler_small.cuh"

// top-k takes the first of all logits up to this k; beyond, it is a cut over the grid.
enum { TOP_K_ALONE = 512 };

// ---- the chain ------------------------------------------------------------------------------

static __device__ bool xtc_on(const struct run *r)
{
    const struct sampler_settings *set = &r->c->set;
    return set->xtc_probability > 0 && set->xtc_threshold <= 0.5f &&
           sampler_xtc_acts(set->seed, set->first + r->n_history, set->xtc_probability);
}

// Whether a filter leaves all candidates as they are.
static __device__ bool is_off(const struct run *r, uint8_t kind)
{
    const struct sampler_settings *set = &r->c->set;
    return (kind == SAMPLER_PENALTIES && !r->c->penalties) || (kind == SAMPLER_DRY && !r->c->dry) ||
           (kind == SAMPLER_TOP_N_SIGMA && set->top_n_sigma <= 0) ||
           (kind == SAMPLER_TOP_K && set->top_k <= 0) ||
           (kind == SAMPLER_TYPICAL && set->typical >= 1) ||
           (kind == SAMPLER_TOP_P && set->top_p >= 1) ||
           (kind == SAMPLER_MIN_P && set->min_p <= 0) || (kind == SAMPLER_XTC && !xtc_on(r));
}

// What remains to be done after a filter over the grid.
enum outcome {
    GO_ON,  // the next filter
    PICKED, // this block has the id or the failure
    LEAVE,  // another block has it
};

static __device__ enum outcome picked(struct run *r, uint32_t id, uint32_t failed)
{
    if (threadIdx.x == 0) {
        r->m->id = id;
        r->m->failed = failed;
    }
    return PICKED;
}

// All blocks know that there is nothing to pick: block 0 says so.
static __device__ enum outcome failed_all(struct run *r, uint32_t failed)
{
    return blockIdx.x == 0 ? picked(r, 0, failed) : LEAVE;
}

// The team goes on from filter i of the chain with n candidates in m->keys. from: filter i has
// begun as this cut (else NULL).
template <int T>
static __device__ NOINLINE void finish_small(struct run *r, uint32_t n, uint32_t i,
                                             const struct cut *from)
{
    const struct sampler_settings *set = &r->c->set;
    struct small w = {r->m->keys, n, small::UNORDERED};
    for (; i < SAMPLER_MAX_CHAIN && set->chain[i] != SAMPLER_END; i++, from = NULL) {
        if (is_off(r, set->chain[i]))
            continue;
        switch (set->chain[i]) {
        case SAMPLER_PENALTIES:
            edit_small<T>(r, &w, false);
            break;
        case SAMPLER_DRY:
            edit_small<T>(r, &w, true);
            break;
        case SAMPLER_TOP_N_SIGMA:
            if (w.n > 1)
                top_n_sigma_small<T>(r, &w);
            break;
        case SAMPLER_TOP_K:
            sort_small<T>(&w);
            w.n = (uint32_t)set->top_k < w.n ? (uint32_t)set->top_k : w.n;
            break;
        case SAMPLER_TYPICAL:
            if (w.n > 1)
                typical_small<T>(r, &w, from);
            break;
        case SAMPLER_TOP_P:
            if (w.n > 1)
                top_p_small<T>(r, &w, from);
            break;
        case SAMPLER_MIN_P:
            if (w.n > 1)
                min_p_small<T>(r, &w);
            break;
        case SAMPLER_XTC:
            if (w.n > 1)
                xtc_small<T>(r, &w);
            break;
        case SAMPLER_TEMPERATURE:
            temperature_small<T>(r, &w);
            break;
        default:
            break;
        }
    }
    uint32_t failed, id = draw_small<T>(r, &w, &failed);
    picked(r, id, failed);
}

// One block, which sees what all found, goes on from filter i with n candidates in m->keys.
static __device__ enum outcome go_small(struct run *r, uint32_t n, uint32_t i,
                                        const struct cut *from)
{
    uint32_t failed = failure(r, 0);
    if (failed)
        picked(r, 0, failed);
    else if (n > 2 * WARP)
        finish_small<THREADS>(r, n, i, from);
    else if (threadIdx.x < WARP)
        finish_small<WARP>(r, n, i, from);
    return PICKED;
}

// Few candidates are left, those that take(logit, id) holds for: the last block picks.
template <typename TAKE>
static __device__ enum outcome collect(struct run *r, uint32_t i, const struct cut *from, TAKE take)
{
    list_candidates(r, take);
    if (!grid_last(r))
        return LEAVE;
    uint32_t n = __ldcg(&r->s->n_list);
    __syncthreads();
    take_list(r, n, true);
    return go_small(r, n, i, from);
}

static __device__ bool take_all(float, uint32_t)
{
    return true;
}

// top-k for small k: the last block takes the first k of all logits.
static __device__ enum outcome top_k_alone(struct run *r, uint32_t i)
{
    const struct gpu_sampler *g = &r->a->g;
    const float4 *slice = reinterpret_cast<const float4 *>(r->slice);
    if (r->touched)
#pragma unroll 1
        for (uint32_t q = threadIdx.x; q * 4 < r->len; q += THREADS)
            reinterpret_cast<float4 *>(g->values + r->first)[q] = slice[q];
    write_maxima(r, g->maxima);
    if (!grid_last(r))
        return LEAVE;
    const float *values = r->touched ? g->values : r->a->logits;
    if (__ldcg(&r->s->not_finite)) // then there may be fewer than k
        return picked(r, 0, SAMPLER_NOT_FINITE);
    uint32_t n = gather_first(r, values, g->maxima, (uint32_t)r->c->set.top_k);
    return go_small(r, n, i, NULL);
}

// Makes a cut over the dense candidates at filter i.
static __device__ enum outcome cut_dense(struct run *r, uint32_t i, struct cut *c)
{
    for (;;) {
        bool exact;
        uint32_t n = refine(r, c, &exact), n_at = n - c->n_above;
        auto kept = [=](float l, uint32_t id) { return not_after(r, c, l, id); };
        if (n <= SMALL)
            return collect(r, i, c, kept);
        if (!exact && !c->by_distance && n_at <= SMALL) {
            n = settle(r, c, n_at);
            exact = true;
        }
        if (exact) {
            remove_dense(r, kept);
            __syncthreads();
            r->n = n;
            return GO_ON;
        }
    }
}

// The least logit that filter i, if it is min-p, will keep of any candidates that include the best.
static __device__ float min_p_limit(const struct run *r, uint32_t i)
{
    const struct sampler_settings *set = &r->c->set;
    while (i < SAMPLER_MAX_CHAIN && set->chain[i] != SAMPLER_END && is_off(r, set->chain[i]))
        i++;
    bool next = i < SAMPLER_MAX_CHAIN && set->chain[i] == SAMPLER_MIN_P;
    return next ? r->max + r->c->log_min_p : -INFINITY;
}

// Filter i of the chain on the dense candidates.
static __device__ enum outcome filter_step(struct run *r, uint32_t i)
{
    const struct sampler_settings *set = &r->c->set;
    uint8_t kind = set->chain[i];
    if (is_off(r, kind))
        return GO_ON;
    if (kind == SAMPLER_PENALTIES || kind == SAMPLER_DRY) {
        edit_dense(r, kind == SAMPLER_DRY);
        return GO_ON;
    }
    if (kind == SAMPLER_TOP_K && (uint32_t)set->top_k >= r->n)
        return GO_ON;
    if (kind == SAMPLER_TOP_K && set->top_k <= TOP_K_ALONE)
        return top_k_alone(r, i);
    uint32_t failed = find_max(r);
    if (failed)
        return failed_all(r, failed);
    struct cut c = {};
    switch (kind) {
    case SAMPLER_TEMPERATURE: {
        float temp = set->temp;
        each_present(r, [=](float l, uint32_t id) { r->slice[id - r->first] = l / temp; });
        r->max = r->max / temp;
        r->touched = true;
        __syncthreads();
        failed = failure_of(r, r->max);
        return failed ? failed_all(r, failed) : GO_ON;
    }
    case SAMPLER_TOP_N_SIGMA: {
        uint64_t v[3] = {0, 0, 0};
        each_present(r, [&](float l, uint32_t) {
            if (l == -INFINITY)
                return;
            uint64_t t = sampler_sigma_term(l, r->max);
            v[0] += t;
            v[1] += t * t;
            v[2]++;
        });
        grid_reduce<false, SUM, SUM, SUM>(r, v);
        float limit = sampler_sigma_limit(r->max, set->top_n_sigma, v[0], v[1], v[2]);
        filter_dense(r, [=](float l, uint32_t) { return l >= limit; });
        break;
    }
    case SAMPLER_MIN_P: {
        float limit = r->max + r->c->log_min_p;
        filter_dense(r, [=](float l, uint32_t) { return l >= limit; });
        break;
    }
    case SAMPLER_XTC: {
        uint64_t total = sum_weights(r), v[2] = {0, 0}; // how many reach it; the last one's place
        float max = r->max, threshold = set->xtc_threshold;
        auto reaches = [=](float l) {
            return sampler_reaches(sampler_weight(l, max), total, threshold) != 0;
        };
        each_present(r, [&](float l, uint32_t id) {
            if (!reaches(l))
                return;
            v[0]++;
            v[1] = larger(v[1], ~key_of(l, id));
        });
        grid_reduce<false, SUM, LARGEST>(r, v);
        uint64_t last = ~v[1];
        if (v[0] > 1) {
            filter_dense(r, [=](float l, uint32_t token) {
                return !reaches(l) || key_of(l, token) == last;
            });
            r->max_known = false;
        }
        break;
    }
    case SAMPLER_TOP_K:
        c.k = (uint32_t)set->top_k;
        return cut_dense(r, i, &c);
    case SAMPLER_TOP_P: {
        c.by_weight = true;
        c.p = set->top_p;
        // What min-p removes right after need not be told apart.
        float limit = min_p_limit(r, i + 1);
        if (limit == -INFINITY)
            return cut_dense(r, i, &c);
        uint64_t v[2] = {0, 0}; // the weights, and how many min-p keeps
        each_present(r, [&](float l, uint32_t) {
            v[0] += sampler_weight(l, r->max);
            v[1] += l >= limit;
        });
        grid_reduce<false, SUM, SUM>(r, v);
        c.total = v[0];
        return v[1] > SMALL ? cut_dense(r, i, &c)
                            : collect(r, i, &c, [=](float l, uint32_t) { return l >= limit; });
    }
    case SAMPLER_TYPICAL: {
        uint64_t v[2] = {0, 0};
        each_present(r, [&](float l, uint32_t) {
            uint64_t weight = sampler_weight(l, r->max);
            v[0] += weight;
            v[1] += sampler_typical_term(weight, l, r->max);
        });
        grid_reduce<false, SUM, SUM>(r, v);
        c.by_distance = c.by_weight = true;
        c.p = set->typical;
        c.total = v[0];
        c.terms = v[1];
        enum outcome o = cut_dense(r, i, &c);
        r->max_known = false; // the best may be gone
        return o;
    }
    default:
        return GO_ON;
    }
    return r->n <= SMALL ? collect(r, i + 1, NULL, take_all) : GO_ON;
}

// The draw, when many candidates are left: the block in whose slice it falls picks.
static __device__ enum outcome draw_dense(struct run *r)
{
    struct block_memory *m = r->m;
    uint32_t per = (r->len + THREADS - 1) / THREADS, begin = threadIdx.x * per;
    uint32_t end = begin + per < r->len ? begin + per : r->len;
    uint64_t sum = 0, mine, total;
#pragma unroll 1
    for (uint32_t i = begin; i < end; i++)
        sum += present(r->slice[i]) ? sampler_weight(r->slice[i], r->max) : 0;
    uint64_t upto = team_scan<THREADS>(sum, &m->sums, &mine);
    uint64_t(*part)[MAX_PARTS] = r->s->part[r->n_barriers & 1];
    if (threadIdx.x == 0)
        part[blockIdx.x][0] = mine;
    grid_barrier(r);
    static_assert(MAX_BLOCKS <= THREADS, "a thread per block");
    uint64_t of_block = threadIdx.x < r->n_blocks ? load_other(&part[threadIdx.x][0]) : 0;
    uint64_t upto_block = team_scan<THREADS>(of_block, &m->sums, &total);
    if (threadIdx.x == blockIdx.x)
        m->value = upto_block - of_block;
    __syncthreads();
    uint64_t x = sampler_scale_random(
        rng_u64(r->c->set.seed, r->c->set.first + r->n_history, SAMPLER_DRAW_PICK), total);
    uint64_t before = m->value, at = before + upto - sum;
    if (x < before || x >= before + mine)
        return LEAVE;
    if (x >= at && x < at + sum) // one thread of the block
#pragma unroll 1
        for (uint32_t i = begin; i < end; i++) {
            at += present(r->slice[i]) ? sampler_weight(r->slice[i], r->max) : 0;
            if (at > x) {
                m->id = r->first + i;
                m->failed = SAMPLER_OK;
                break;
            }
        }
    return PICKED;
}

// The largest logit: the last block picks.
static __device__ enum outcome draw_greedy(struct run *r)
{
    uint64_t v[1] = {first_of_thread(r)};
    if (!grid_reduce<true, LARGEST>(r, v))
        return LEAVE;
    return picked(r, key_id(v[0]), failure(r, key_logit(v[0])));
}

// Runs the chain and the draw.
static __device__ enum outcome pick(struct run *r)
{
    const struct sampler_settings *set = &r->c->set;
    if (r->n <= SMALL && !r->c->greedy)
        return collect(r, 0, NULL, take_all);
    for (uint32_t i = 0; i < SAMPLER_MAX_CHAIN && set->chain[i] != SAMPLER_END; i++) {
        if (r->c->greedy && set->chain[i] != SAMPLER_PENALTIES && set->chain[i] != SAMPLER_DRY)
            continue;
        enum outcome o = filter_step(r, i);
        if (o != GO_ON)
            return o;
    }
    if (r->c->greedy)
        return draw_greedy(r);
    uint32_t failed = find_max(r);
    return failed ? failed_all(r, failed) : draw_dense(r);
}

// ---- a pick ---------------------------------------------------------------------------------

// The block's slice, from global to shared memory.
static __device__ void load_slice(struct run *r)
{
    const float *logits = r->a->logits + r->first;
    uint32_t n = div_up(r->len, (uint32_t)GROUP) * (GROUP / 4);
#pragma unroll 1
    for (uint32_t q = threadIdx.x; q < n; q += THREADS) {
        float4 l = load_quad(logits, r->len, q);
        reinterpret_cast<float4 *>(r->slice)[q] = l;
        const float v[4] = {l.x, l.y, l.z, l.w};
        for (uint32_t j = 0; j < 4; j++)
            if (!(fabsf(v[j]) < INFINITY) && q * 4 + j < r->len)
                atomicMax(&r->s->not_finite, ~(r->first + q * 4 + j));
    }
    __syncthreads();
}

static __device__ void add_bias(struct run *r)
{
    const struct sampler_settings *set = &r->c->set;
    uint32_t j = threadIdx.x;
    if (j < set->n_bias) { // the first mention of an id adds them all, in order
        uint32_t at = (uint32_t)set->bias[j].id - r->first;
        bool first = at < r->len;
        for (uint32_t k = 0; k < j; k++)
            first = first && set->bias[k].id != set->bias[j].id;
        for (uint32_t k = j; first && k < set->n_bias; k++)
            if (set->bias[k].id == set->bias[j].id)
                r->slice[at] += set->bias[k].bias;
    }
    r->touched = true;
    __syncthreads();
}

// Word i of the block's part of the mask; behind the last one, how many tokens the mask has.
static __device__ __forceinline__ uint32_t mask_word(const struct run *r, uint32_t i)
{
    const uint32_t *mask = r->a->g.mask, n_words = div_up(r->len, 32u);
    return i > n_words ? 0 : i < n_words ? mask[1 + r->first / 32 + i] : mask[0];
}

// Takes away what the mask does not have, as a filter before all others does. It may lie in the
// host's memory, which is far: all words of a slice are fetched at once, and once. mine: this
// thread's, asked for early.
static __device__ void apply_mask(struct run *r, uint32_t mine)
{
    const uint32_t n_words = div_up(r->len, 32u);
    uint32_t *bits = r->m->bins.count; // nobody counts yet
    static_assert(GROUP % 32 == 0, "a slice begins with a word");
    static_assert(SLICE_MAX / 32 < BINS, "a slice's words and one more");
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i <= n_words; i += THREADS)
        bits[i] = i == threadIdx.x ? mine : mask_word(r, i);
    __syncthreads();
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < r->len; i += THREADS)
        if (!(bits[i / 32] >> (i % 32) & 1))
            r->slice[i] = NAN;
    r->n = bits[n_words];
    r->touched = true;
    __syncthreads();
}

// What the block knows for ln sum exp of the logits as they come, and for their first ones.
static __device__ NOINLINE void prepare_alternatives(struct run *r)
{
    write_maxima(r, r->a->g.raw_maxima);
    uint64_t best = team_reduce<THREADS>(first_of_thread(r), &r->m->sums, LARGEST);
    double max = key_logit(best), sum = 0;
    each_present(r, [&](float l, uint32_t) { sum += exp((double)l - max); });
    uint64_t bits =
        team_reduce<THREADS>((uint64_t)__double_as_longlong(sum), &r->m->sums, SUM_DOUBLE);
    if (threadIdx.x == 0) {
        r->s->largest[blockIdx.x] = r->len ? max : -INFINITY;
        r->s->sum_exp[blockIdx.x] = __longlong_as_double((long long)bits);
    }
}

// The most likely tokens of the logits as they come, and the pick's own probability. The block that
// picked.
static __device__ NOINLINE void report_alternatives(struct run *r, struct decoded *out)
{
    struct sampler_scratch *s = r->s;
    struct block_memory *m = r->m;
    uint32_t k = r->c->n_probs < r->a->n_vocab ? r->c->n_probs : r->a->n_vocab;
    uint32_t n = gather_first(r, r->a->logits, r->a->g.raw_maxima, k);
    team_sort_descending<THREADS>(m->keys, n);
    double max = key_logit(m->keys[0]), sum = 0;
    if (threadIdx.x < r->n_blocks)
        sum = __ldcg(&s->sum_exp[threadIdx.x]) * exp(__ldcg(&s->largest[threadIdx.x]) - max);
    uint64_t bits = team_reduce<THREADS>((uint64_t)__double_as_longlong(sum), &m->sums, SUM_DOUBLE);
    double log_sum_exp = max + log(__longlong_as_double((long long)bits));
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < k; i += THREADS) {
        uint64_t key = m->keys[i];
        out->top[i].id = (int32_t)key_id(key);
        out->top[i].logprob = (float)((double)key_logit(key) - log_sum_exp);
    }
    if (threadIdx.x == 0)
        out->logprob = (float)((double)r->a->logits[m->id] - log_sum_exp);
    __syncthreads();
}

// Writes the pick where the next step and the host look for it. The block that has it.
static __device__ void publish(struct run *r, struct step_state now)
{
    const struct gpu_sampler *g = &r->a->g;
    struct sampler_scratch *s = r->s;
    struct step_state *step = r->a->step;
    struct ring_slot *slot = &g->ring[now.n_sampled % RING];
    __syncthreads();
    uint32_t id = r->m->id, failed = r->m->failed;
    if (r->c->n_probs && !failed)
        report_alternatives(r, &slot->d);
    if (threadIdx.x != 0)
        return;
    if (failed == SAMPLER_NOT_FINITE) {
        id = ~__ldcg(&s->not_finite);
        slot->d.logprob = r->a->logits[id];
    }
    slot->d.id = (int32_t)id;
    slot->d.n_top = !r->c->n_probs || failed ? 0 : lesser(r->c->n_probs, r->a->n_vocab);
    slot->failed = failed;
    if (!failed) {
        if (g->history)
            g->history[r->n_history] = (int32_t)id;
        step->token = (int32_t)id;
        step->at.pos = now.at.pos + 1;
    }
    if (failed || (g->flags && (g->flags[id] & TOKEN_STOP)))
        step->done = 1;
    step->n_sampled = now.n_sampled + 1;
    s->epoch = r->epoch + (r->n_blocks > 1 ? r->n_barriers * r->n_blocks : 0);
    s->n_pass = r->n_pass;
    st_release_sys(&slot->seq, now.n_sampled + 1);
}

// A block's part of a pick. The settings are in m.
static __device__ __forceinline__ void run_pick(const struct sampler_args &a,
                                                struct block_memory &m)
{
    struct step_state step = *a.step;
    if (step.done)
        return;
    struct run r = {};
    r.a = &a;
    r.c = &m.config;
    r.s = a.g.scratch;
    r.m = &m;
    r.slice = dynamic_smem<float>();
    r.first = blockIdx.x * a.slice_len;
    r.len = r.first < a.n_vocab ? lesser(a.n_vocab - r.first, a.slice_len) : 0;
    r.n_blocks = gridDim.x;
    r.n = a.n_vocab;
    r.n_history = step.at.pos + 1;
    r.epoch = r.s->epoch;
    r.n_pass = r.s->n_pass;
    const uint32_t word = a.g.mask ? mask_word(&r, threadIdx.x) : 0; // the settings come later
    load_slice(&r);
    if (m.config.n_probs)
        prepare_alternatives(&r);
    if (m.config.set.n_bias)
        add_bias(&r);
    if (m.config.masked)
        apply_mask(&r, word);
    if (pick(&r) == PICKED)
        publish(&r, step);
}

static __device__ void load_config(const struct sampler_config *from, struct block_memory &m)
{
    const uint32_t *config = reinterpret_cast<const uint32_t *>(from);
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < sizeof m.config / sizeof *config; i += THREADS)
        reinterpret_cast<uint32_t *>(&m.config)[i] = config[i];
}

#endif
