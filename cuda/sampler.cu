// The sampler on the device: engine/sampler.c once more, for a grid of blocks. Sums are sums of
// integers (engine/sampler_math.h) and candidates are strictly ordered, so any way of adding and
// searching makes the CPU sampler's choice. This file is compiled without contraction.
//
// Dense stage: every block holds a slice of the logits in shared memory. Filters edit it or mark
// tokens as removed; a filter that keeps the first so many of the order (top-k, top-p, typical)
// finds its last one digit by digit, by histograms over the grid. Small stage: as soon as few
// enough candidates are left, or it is clear that the next filter leaves few, block 0 collects,
// sorts, and goes on alone. With the default settings that takes three barriers over the grid.
#include "sampler_small.cuh"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- the chain ------------------------------------------------------------------------------

static __device__ bool xtc_on(const struct run *r)
{
    const struct sampler_settings *set = &r->c->set;
    return set->xtc_probability > 0 && set->xtc_threshold <= 0.5f &&
           sampler_xtc_acts(set->seed, r->n_history, set->xtc_probability);
}

// Block 0 goes on from filter i of the chain. from: filter i has begun as this cut (else NULL).
// Returns the chosen id.
static __device__ NOINLINE uint32_t finish_small(struct run *r, struct small *w, uint32_t i,
                                                 const struct cut *from, uint32_t *failed)
{
    const struct sampler_settings *set = &r->c->set;
    for (; i < SAMPLER_MAX_CHAIN && set->chain[i] != SAMPLER_END; i++, from = NULL)
        switch (set->chain[i]) {
        case SAMPLER_PENALTIES:
            edit_small(r, w, false);
            break;
        case SAMPLER_DRY:
            edit_small(r, w, true);
            break;
        case SAMPLER_TOP_N_SIGMA:
            if (set->top_n_sigma > 0 && w->n > 1)
                top_n_sigma_small(r, w);
            break;
        case SAMPLER_TOP_K:
            sort_small(w);
            if (set->top_k > 0 && (uint32_t)set->top_k < w->n)
                w->n = (uint32_t)set->top_k;
            break;
        case SAMPLER_TYPICAL:
            if (set->typical < 1 && w->n > 1)
                typical_small(r, w, from);
            break;
        case SAMPLER_TOP_P:
            if (set->top_p < 1 && w->n > 1)
                top_p_small(r, w, from);
            break;
        case SAMPLER_MIN_P:
            if (set->min_p > 0 && w->n > 1)
                min_p_small(r, w);
            break;
        case SAMPLER_XTC:
            if (xtc_on(r) && w->n > 1)
                xtc_small(r, w);
            break;
        case SAMPLER_TEMPERATURE: {
            float temp = set->temp;
            map_small(w, [=](uint64_t key) { return key_of(key_logit(key) / temp, key_id(key)); });
            break;
        }
        default:
            break;
        }
    uint64_t *keys = w->keys, best = 0;
    for (uint32_t k = threadIdx.x; k < w->n; k += THREADS)
        best = larger(best, keys[k]);
    float max = key_logit(block_reduce(best, &r->m->sums, LARGEST));
    if (max == -INFINITY) {
        *failed = SAMPLER_NONE_LEFT;
        return 0;
    }
    // The draw walks the survivors in ascending id order.
    map_small(w, [](uint64_t key) { return key_by_id(key); });
    block_sort_descending<THREADS>(keys, w->n);
    auto weight = [=](uint32_t k) { return sampler_weight(key_logit(key_by_id(keys[k])), max); };
    uint64_t total = sum_small(
        r, w, [=](uint64_t key) { return sampler_weight(key_logit(key_by_id(key)), max); });
    uint64_t x = sampler_scale_random(rng_u64(set->seed, r->n_history, SAMPLER_DRAW_PICK), total);
    uint32_t at = first_small(r, w->n, weight, [=](uint64_t sum) { return sum > x; });
    *failed = at < w->n ? SAMPLER_OK : SAMPLER_NONE_LEFT;
    return at < w->n ? key_id(key_by_id(keys[at])) : 0;
}

// The dense draw, when many candidates are left: the block in whose slice it falls returns true and
// the id.
static __device__ bool draw_dense(struct run *r, uint32_t *id)
{
    struct block_memory *m = r->m;
    uint32_t per = (r->len + THREADS - 1) / THREADS, begin = threadIdx.x * per;
    uint32_t end = begin + per < r->len ? begin + per : r->len;
    uint64_t sum = 0, mine, before = 0, total = 0;
    for (uint32_t i = begin; i < end; i++)
        sum += present(r->slice[i]) ? sampler_weight(r->slice[i], r->max) : 0;
    uint64_t upto = block_scan(sum, &m->sums, &mine);
    uint64_t(*part)[MAX_PARTS] = r->a->s->part[r->n_barriers & 1];
    if (threadIdx.x == 0)
        part[blockIdx.x][0] = mine;
    grid_barrier(r);
    for (uint32_t b = 0; b < gridDim.x; b++) {
        uint64_t v = load_other(&part[b][0]);
        before += b < blockIdx.x ? v : 0;
        total += v;
    }
    uint64_t x =
        sampler_scale_random(rng_u64(r->c->set.seed, r->n_history, SAMPLER_DRAW_PICK), total);
    if (x < before || x >= before + mine)
        return false;
    uint64_t at = before + upto - sum;
    if (x >= at && x < at + sum) // one thread of the block
        for (uint32_t i = begin; i < end; i++) {
            at += present(r->slice[i]) ? sampler_weight(r->slice[i], r->max) : 0;
            if (at > x) {
                m->index = r->first + i;
                break;
            }
        }
    __syncthreads();
    *id = m->index;
    return true;
}

// What remains to be done after the dense stage.
enum outcome {
    GO_ON,  // the next filter
    PICKED, // this block has the id
    LEAVE,  // another block has it
    FAILED, // all blocks know
};

// Few candidates are left: block 0 picks.
template <typename TAKE>
static __device__ enum outcome go_small(struct run *r, uint32_t i, const struct cut *from,
                                        TAKE take, uint32_t *id, uint32_t *failed)
{
    struct small w = {r->m->keys, collect(r, true, take), false};
    if (blockIdx.x != 0)
        return LEAVE;
    *id = finish_small(r, &w, i, from, failed);
    return PICKED;
}

static __device__ bool take_all(float, uint32_t)
{
    return true;
}

// Makes a cut over the dense candidates at filter i.
static __device__ enum outcome cut_dense(struct run *r, uint32_t i, struct cut *c, uint32_t *id,
                                         uint32_t *failed)
{
    for (;;) {
        bool exact;
        uint32_t n = refine(r, c, &exact);
        auto kept = [=](float l, uint32_t token) {
            return compare_place(place_of(r, c, l, token), c) <= 0;
        };
        if (n <= SMALL)
            return go_small(r, i, c, kept, id, failed);
        if (exact) {
            filter_dense(r, kept);
            return GO_ON;
        }
    }
}

// Filter i of the chain on the dense candidates.
static __device__ enum outcome filter_step(struct run *r, uint32_t i, uint32_t *id,
                                           uint32_t *failed)
{
    const struct sampler_settings *set = &r->c->set;
    uint8_t kind = set->chain[i];
    if (kind == SAMPLER_PENALTIES || kind == SAMPLER_DRY) {
        edit_dense(r, kind == SAMPLER_DRY);
        return GO_ON;
    }
    const bool off = (kind == SAMPLER_TOP_N_SIGMA && set->top_n_sigma <= 0) ||
                     (kind == SAMPLER_TOP_K && (set->top_k <= 0 || (uint32_t)set->top_k >= r->n)) ||
                     (kind == SAMPLER_TYPICAL && set->typical >= 1) ||
                     (kind == SAMPLER_TOP_P && set->top_p >= 1) ||
                     (kind == SAMPLER_MIN_P && set->min_p <= 0) ||
                     (kind == SAMPLER_XTC && !xtc_on(r));
    if (off)
        return GO_ON;
    *failed = find_max(r, id);
    if (*failed)
        return FAILED;
    struct cut c = {};
    switch (kind) {
    case SAMPLER_TEMPERATURE: {
        float temp = set->temp;
        __syncthreads();
        for (uint32_t k = threadIdx.x; k < r->len; k += THREADS)
            r->slice[k] = r->slice[k] / temp;
        r->max = r->max / temp;
        __syncthreads();
        return GO_ON;
    }
    case SAMPLER_TOP_N_SIGMA: {
        uint64_t v[3] = {0, 0, 0};
        for (uint32_t k = threadIdx.x; k < r->len; k += THREADS) {
            float l = r->slice[k];
            if (!present(l) || l == -INFINITY)
                continue;
            uint64_t t = sampler_sigma_term(l, r->max);
            v[0] += t;
            v[1] += t * t;
            v[2]++;
        }
        grid_reduce(r, v, {SUM, SUM, SUM});
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
        for (uint32_t k = threadIdx.x; k < r->len; k += THREADS)
            if (present(r->slice[k]) && reaches(r->slice[k])) {
                v[0]++;
                v[1] = larger(v[1], ~key_of(r->slice[k], r->first + k));
            }
        grid_reduce(r, v, {SUM, LARGEST});
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
        return cut_dense(r, i, &c, id, failed);
    case SAMPLER_TOP_P:
        c.by_weight = true;
        c.p = set->top_p;
        c.total = sum_weights(r);
        return cut_dense(r, i, &c, id, failed);
    case SAMPLER_TYPICAL: {
        uint64_t v[2] = {0, 0};
        for (uint32_t k = threadIdx.x; k < r->len; k += THREADS) {
            float l = r->slice[k];
            if (!present(l))
                continue;
            uint64_t weight = sampler_weight(l, r->max);
            v[0] += weight;
            v[1] += sampler_typical_term(weight, l, r->max);
        }
        grid_reduce(r, v, {SUM, SUM});
        c.by_distance = c.by_weight = true;
        c.p = set->typical;
        c.total = v[0];
        c.terms = v[1];
        enum outcome o = cut_dense(r, i, &c, id, failed);
        r->max_known = false; // the best may be gone
        return o;
    }
    default:
        return GO_ON;
    }
    if (r->n <= SMALL)
        return go_small(r, i + 1, NULL, take_all, id, failed);
    return GO_ON;
}

// Runs the chain and the draw. The block that has the id (or the failure) returns true.
static __device__ bool pick(struct run *r, uint32_t *id, uint32_t *failed)
{
    const struct sampler_settings *set = &r->c->set;
    *failed = SAMPLER_OK;
    if (r->n <= SMALL && !r->c->greedy) {
        *failed = find_max(r, id);
        if (*failed)
            return blockIdx.x == 0;
        return go_small(r, 0, NULL, take_all, id, failed) == PICKED;
    }
    for (uint32_t i = 0; i < SAMPLER_MAX_CHAIN && set->chain[i] != SAMPLER_END; i++) {
        if (r->c->greedy && set->chain[i] != SAMPLER_PENALTIES && set->chain[i] != SAMPLER_DRY)
            continue;
        enum outcome o = filter_step(r, i, id, failed);
        if (o != GO_ON)
            return o == PICKED || (o == FAILED && blockIdx.x == 0);
    }
    if (r->c->greedy)
        r->max_known = false; // the id is wanted too
    *failed = find_max(r, id);
    if (*failed || r->c->greedy)
        return blockIdx.x == 0;
    return draw_dense(r, id);
}

// ---- the kernel -----------------------------------------------------------------------------

// The n_probs most likely tokens of the logits as they come, and ln sum exp, to scratch.
static __device__ uint32_t report_alternatives(struct run *r, uint32_t *id)
{
    struct sampler_scratch *s = r->a->s;
    uint32_t failed = find_max(r, id);
    if (failed)
        return failed;
    double sum = 0;
    for (uint32_t i = threadIdx.x; i < r->len; i += THREADS)
        sum += exp((double)r->slice[i] - (double)r->max);
    uint64_t bits = grid_reduce_one(r, (uint64_t)__double_as_longlong(sum), SUM_DOUBLE);
    struct cut c = {};
    c.k = r->c->n_probs < r->n ? r->c->n_probs : r->n;
    uint32_t n = r->n;
    for (bool exact = n <= SMALL; n > SMALL && !exact;)
        n = refine(r, &c, &exact);
    n = collect(r, false, [=](float l, uint32_t token) {
        return compare_place(place_of(r, &c, l, token), &c) <= 0;
    });
    if (blockIdx.x == 0) {
        block_sort_descending<THREADS>(r->m->keys, n);
        double lse = (double)r->max + log(__longlong_as_double((long long)bits));
        for (uint32_t i = threadIdx.x; i < c.k; i += THREADS) {
            uint64_t key = r->m->keys[i];
            s->top[i].id = (int32_t)key_id(key);
            s->top[i].logprob = (float)((double)key_logit(key) - lse);
        }
        if (threadIdx.x == 0) {
            s->n_top = c.k;
            s->log_sum_exp = lse;
        }
        __syncthreads();
    }
    return SAMPLER_OK;
}

// Writes the pick where the next step and the host look for it. One block.
static __device__ void publish(struct run *r, uint32_t id, uint32_t failed)
{
    const struct sampler_args *a = r->a;
    struct sampler_scratch *s = a->s;
    struct step_state *step = a->step;
    struct ring_slot *slot = &a->ring[step->n_sampled % RING];
    bool probs = r->c->n_probs && !failed;
    if (probs)
        for (uint32_t i = threadIdx.x; i < s->n_top; i += THREADS)
            slot->d.top[i] = s->top[i];
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    slot->d.id = (int32_t)id;
    slot->d.n_top = probs ? s->n_top : 0;
    slot->d.logprob = probs ? (float)((double)a->logits[id] - s->log_sum_exp) : 0;
    slot->failed = failed;
    if (!failed) {
        a->history[r->n_history] = (int32_t)id;
        step->token = (int32_t)id;
        step->pos++;
    }
    if (failed || (a->flags[id] & TOKEN_STOP))
        step->done = 1;
    uint32_t n = ++step->n_sampled;
    s->epoch = r->epoch + (gridDim.x > 1 ? r->n_barriers * gridDim.x : 0);
    s->n_pass = r->n_pass;
    __threadfence_system();
    st_release_sys(&slot->seq, n);
}

static __global__ void __launch_bounds__(THREADS, 1) sampler_kernel(struct sampler_args a)
{
    __shared__ struct block_memory m;
    griddep_launch_dependents();
    griddep_wait();
    if (a.step->done)
        return;
    struct run r = {};
    r.a = &a;
    r.c = a.c;
    r.m = &m;
    r.slice = dynamic_smem<float>();
    r.first = blockIdx.x * a.slice_len;
    r.len = r.first >= a.n_vocab                ? 0
            : a.n_vocab - r.first < a.slice_len ? a.n_vocab - r.first
                                                : a.slice_len;
    r.n = a.n_vocab;
    r.n_history = a.step->pos + 1;
    r.epoch = a.s->epoch;
    r.n_pass = a.s->n_pass;
    for (uint32_t i = threadIdx.x; i < r.len; i += THREADS) {
        float l = a.logits[r.first + i];
        if (!(fabsf(l) < INFINITY))
            r.not_finite =
                larger(r.not_finite, (uint64_t)0xFFFFFFFFu << 32 | (uint32_t) ~(r.first + i));
        r.slice[i] = l;
    }
    __syncthreads();
    uint32_t id = 0, failed = SAMPLER_OK;
    if (r.c->n_probs)
        failed = report_alternatives(&r, &id);
    bool mine = failed && blockIdx.x == 0;
    if (!failed) {
        const struct sampler_settings *set = &r.c->set;
        uint32_t j = threadIdx.x;
        if (set->n_bias) {
            __syncthreads();
            if (j < set->n_bias) { // the first mention of an id adds them all, in order
                uint32_t at = (uint32_t)set->bias[j].id - r.first;
                bool first = at < r.len;
                for (uint32_t k = 0; k < j; k++)
                    first = first && set->bias[k].id != set->bias[j].id;
                for (uint32_t k = j; first && k < set->n_bias; k++)
                    if (set->bias[k].id == set->bias[j].id)
                        r.slice[at] += set->bias[k].bias;
            }
            __syncthreads();
            r.max_known = false;
        }
        mine = pick(&r, &id, &failed);
    }
    if (mine)
        publish(&r, id, failed);
}

// ---- the host's side ------------------------------------------------------------------------

static size_t rounded(size_t n)
{
    return (n + 255) / 256 * 256 + DEVICE_RED_ZONE;
}

static uint8_t *take(uint8_t **at, size_t n)
{
    uint8_t *p = *at;
    *at += rounded(n);
    if (p)
        device_red_zone(p + (n + 255) / 256 * 256, DEVICE_RED_ZONE);
    return p;
}

static size_t place(struct gpu_sampler *s, uint32_t n_vocab, uint32_t n_ctx, void *base)
{
    // Offsets from NULL when only the size is wanted.
    size_t n = rounded(sizeof *s->config) + rounded(sizeof *s->scratch) +
               rounded(((size_t)n_ctx + 1) * sizeof *s->history) +
               rounded((size_t)n_vocab * sizeof *s->count) + rounded(n_vocab);
    if (!base)
        return n;
    uint8_t *at = (uint8_t *)base;
    s->config = (struct sampler_config *)take(&at, sizeof *s->config);
    s->scratch = (struct sampler_scratch *)take(&at, sizeof *s->scratch);
    s->history = (int32_t *)take(&at, ((size_t)n_ctx + 1) * sizeof *s->history);
    s->count = (uint32_t *)take(&at, (size_t)n_vocab * sizeof *s->count);
    s->flags = take(&at, n_vocab);
    s->n_vocab = n_vocab;
    s->n_ctx = n_ctx;
    return n;
}

size_t gpu_sampler_bytes(uint32_t n_vocab, uint32_t n_ctx)
{
    struct gpu_sampler none = {};
    return place(&none, n_vocab, n_ctx, NULL);
}

void gpu_sampler_place(struct gpu_sampler *s, uint32_t n_vocab, uint32_t n_ctx, void *base)
{
    place(s, n_vocab, n_ctx, base);
}

// The match length from which on the DRY penalty no longer changes.
static uint32_t dry_cap(const struct sampler_settings *set, uint32_t n_ctx)
{
    float p = set->dry_multiplier;
    uint32_t k = (uint32_t)set->dry_allowed_length;
    while (k < n_ctx && p < 1e30f && p * set->dry_base != p) {
        p *= set->dry_base;
        k++;
    }
    return k;
}

bool gpu_sampler_begin(const struct queue *q, struct gpu_sampler *s, const struct decode_params *p,
                       struct error *err)
{
    const struct sampler_settings *set = p->sampler;
    if (p->n_history > s->n_ctx)
        return error_set(err, ERR_FAIL, "a history of %zu tokens, expected at most %u",
                         p->n_history, s->n_ctx);
    for (size_t i = 0; i < p->n_history; i++)
        if (p->history[i] < 0 || (uint32_t)p->history[i] >= s->n_vocab)
            return error_set(err, ERR_FAIL,
                             "token id %d at position %zu is outside the vocabulary of %u",
                             p->history[i], i, s->n_vocab);
    uint8_t *flags = (uint8_t *)calloc(s->n_vocab, 1);
    if (!flags)
        return error_oom(err, "the sampler's token flags", s->n_vocab);
    if (set->dry_breakers)
        for (uint32_t i = 0; i < s->n_vocab; i++)
            flags[i] = set->dry_breakers[i] ? TOKEN_BREAKER : 0;
    for (size_t i = 0; i < p->n_stop_ids; i++)
        if (p->stop_ids[i] >= 0 && (uint32_t)p->stop_ids[i] < s->n_vocab)
            flags[p->stop_ids[i]] |= TOKEN_STOP;
    struct sampler_config c = {};
    c.set = *set;
    c.set.dry_breakers = NULL;
    c.log_min_p = set->min_p > 0 ? logf(set->min_p) : 0;
    c.n_probs = p->n_probs < ENGINE_MAX_PROBS ? p->n_probs : (uint32_t)ENGINE_MAX_PROBS;
    c.greedy = set->temp <= 0;
    c.penalties =
        set->repeat_penalty != 1 || set->presence_penalty != 0 || set->frequency_penalty != 0;
    c.dry = set->dry_multiplier != 0;
    c.dry_cap = dry_cap(set, s->n_ctx);
    // All from pageable memory: read before the call returns.
    bool ok =
        CHECK_CUDA(cudaMemcpyAsync(s->config, &c, sizeof c, cudaMemcpyHostToDevice, q->stream),
                   err) &&
        CHECK_CUDA(cudaMemcpyAsync(s->flags, flags, s->n_vocab, cudaMemcpyHostToDevice, q->stream),
                   err) &&
        CHECK_CUDA(cudaMemsetAsync(s->scratch, 0, sizeof *s->scratch, q->stream), err) &&
        CHECK_CUDA(cudaMemsetAsync(s->count, 0, (size_t)s->n_vocab * sizeof *s->count, q->stream),
                   err);
    if (ok && p->n_history)
        ok = CHECK_CUDA(cudaMemcpyAsync(s->history, p->history, p->n_history * sizeof *s->history,
                                        cudaMemcpyHostToDevice, q->stream),
                        err);
    free(flags);
    return ok;
}

bool gpu_sampler_launch_blocks(const struct queue *q, struct gpu_sampler *s, const float *logits,
                               uint32_t n_vocab, struct step_state *step, uint32_t n_blocks,
                               struct error *err)
{
    // All blocks must be resident at once, because they wait for each other.
    uint32_t most = q->n_sm < MAX_BLOCKS ? (uint32_t)q->n_sm : (uint32_t)MAX_BLOCKS;
    if (n_blocks == 0) {
        n_blocks = div_up(n_vocab, 2048u);
        n_blocks = n_blocks < most ? n_blocks : most;
    }
    uint32_t slice = div_up(n_vocab, n_blocks);
    if (n_blocks > MAX_BLOCKS || slice > SLICE_MAX)
        return error_set(err, ERR_FAIL,
                         "a vocabulary of %u over %u blocks, expected at most %d tokens per block",
                         n_vocab, n_blocks, SLICE_MAX);
    struct sampler_args a = {logits,     n_vocab,  slice,    s->config, s->scratch,
                             s->history, s->count, s->flags, step,      s->ring};
    struct launch l = {};
    l.name = "sampler";
    l.grid = dim3(n_blocks);
    l.block = dim3(THREADS);
    l.smem = slice * sizeof(float);
    l.stream = q->stream;
    l.dependent = q->dependent;
    return launch_kernel(err, l, sampler_kernel, a);
}

bool gpu_sampler_launch(const struct queue *q, struct gpu_sampler *s, const float *logits,
                        uint32_t n_vocab, struct step_state *step, struct error *err)
{
    return gpu_sampler_launch_blocks(q, s, logits, n_vocab, step, 0, err);
}

const char *gpu_sampler_failure(uint32_t failed)
{
    switch (failed) {
    case SAMPLER_NOT_FINITE:
        return "a logit is not a finite number: the model's weights are damaged or overflow";
    case SAMPLER_NONE_LEFT:
        return "no token is left to choose: --logit-bias forbids all of them";
    default:
        return "the sampler succeeded";
    }
}
