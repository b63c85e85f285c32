// The kernels of the sampler (sampler_chain.cuh) and the host's side of them: one pick of a
// timeline, and picks of several sequences at once.
#include "sampler_chain.cuh"

#include "engine/finite.h"
#include "engine/sampler_failure.h"

#include <math.h>
#include <stdlib.h>

static __global__ void __launch_bounds__(THREADS, 1) sampler_kernel(struct sampler_args a)
{
    __shared__ struct block_memory m;
    griddep_launch_dependents();
    load_config(a.g.config, m); // no kernel writes the settings, so they need not wait
    griddep_wait();
    run_pick(a, m);
}

// Grid (blocks of a pick, picks).
static __global__ void __launch_bounds__(THREADS, 1)
    sampler_rows_kernel(const struct sampler_args *rows)
{
    __shared__ struct block_memory m;
    __shared__ struct sampler_args a;
    griddep_launch_dependents();
    if (threadIdx.x == 0)
        a = rows[blockIdx.y];
    load_config(rows[blockIdx.y].g.config, m);
    griddep_wait();
    __syncthreads();
    run_pick(a, m);
}

// ---- the host's side ------------------------------------------------------------------------

static size_t rounded(size_t n)
{
    return (n + 255) / 256 * 256 + DEVICE_RED_ZONE;
}

// Carves n elements; NULL at: only counts.
template <typename T> static T *take(uint8_t **at, size_t *used, size_t n)
{
    uint8_t *p = *at;
    *used += rounded(n * sizeof(T));
    if (!p)
        return NULL;
    *at += rounded(n * sizeof(T));
    device_red_zone(*at - DEVICE_RED_ZONE, DEVICE_RED_ZONE);
    return reinterpret_cast<T *>(p);
}

static size_t place(struct gpu_sampler *s, uint32_t n_vocab, uint32_t n_ctx, void *base)
{
    uint8_t *at = (uint8_t *)base;
    size_t n_groups = div_up(n_vocab, (uint32_t)GROUP), used = 0;
    s->config = take<struct sampler_config>(&at, &used, 1);
    s->scratch = take<struct sampler_scratch>(&at, &used, 1);
    s->history = take<int32_t>(&at, &used, (size_t)n_ctx + 1);
    s->count = take<uint32_t>(&at, &used, n_vocab);
    s->flags = take<uint8_t>(&at, &used, n_vocab);
    s->values = take<float>(&at, &used, n_groups * GROUP);
    s->maxima = take<float>(&at, &used, n_groups);
    s->raw_maxima = take<float>(&at, &used, n_groups);
    s->n_vocab = n_vocab;
    s->n_ctx = n_ctx;
    return used;
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

// Whether blocks wait for each other with these settings (c): what comes before the last block goes
// on alone must know of all candidates. The chain as pick() runs it.
static bool sampler_waits(const struct sampler_config *c, uint32_t n_vocab)
{
    const struct sampler_settings *set = &c->set;
    if (c->greedy || n_vocab <= SMALL)
        return false;
    for (uint32_t i = 0; i < SAMPLER_MAX_CHAIN && set->chain[i] != SAMPLER_END; i++) {
        uint8_t kind = set->chain[i];
        bool off =
            (kind == SAMPLER_TOP_N_SIGMA && set->top_n_sigma <= 0) ||
            (kind == SAMPLER_TYPICAL && set->typical >= 1) ||
            (kind == SAMPLER_TOP_P && set->top_p >= 1) ||
            (kind == SAMPLER_MIN_P && set->min_p <= 0) ||
            (kind == SAMPLER_XTC && (set->xtc_probability <= 0 || set->xtc_threshold > 0.5f));
        bool edits = kind == SAMPLER_PENALTIES || kind == SAMPLER_DRY; // a block its own logits
        if (kind == SAMPLER_TOP_K) {
            if (set->top_k > 0 && (uint32_t)set->top_k < n_vocab)
                return set->top_k > TOP_K_ALONE;
        } else if (!off && !edits) {
            return true;
        }
    }
    return true; // the draw
}

static struct sampler_config config_of(const struct decode_params *p, uint32_t n_ctx)
{
    const struct sampler_settings *set = p->sampler;
    struct sampler_config c = {};
    c.set = *set;
    c.set.dry_breakers = NULL;
    c.log_min_p = set->min_p > 0 ? logf(set->min_p) : 0;
    c.n_probs = p->n_probs < ENGINE_MAX_PROBS ? p->n_probs : (uint32_t)ENGINE_MAX_PROBS;
    c.greedy = set->temp <= 0;
    c.penalties =
        set->repeat_penalty != 1 || set->presence_penalty != 0 || set->frequency_penalty != 0;
    c.dry = set->dry_multiplier != 0;
    c.masked = p->masked;
    c.dry_cap = dry_cap(set, n_ctx);
    return c;
}

bool gpu_sampler_begin(const struct queue *q, struct gpu_sampler *s, const struct decode_params *p,
                       struct error *err)
{
    const struct sampler_settings *set = p->sampler;
    if (!sampler_check(set, s->n_vocab, err))
        return false;
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
    const struct sampler_config c = config_of(p, s->n_ctx);
    s->waits = sampler_waits(&c, s->n_vocab);
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
    // No more than a device has room for at once, where they wait for each other.
    uint32_t most = q->n_sm < MAX_BLOCKS ? (uint32_t)q->n_sm : (uint32_t)MAX_BLOCKS;
    if (n_blocks == 0) {
        n_blocks = div_up(n_vocab, 1024u);
        n_blocks = n_blocks < most ? n_blocks : most;
    }
    uint32_t slice = div_up(div_up(n_vocab, (uint32_t)GROUP), n_blocks) * GROUP;
    if (n_blocks > MAX_BLOCKS || slice > SLICE_MAX)
        return error_set(err, ERR_FAIL,
                         "a vocabulary of %u over %u blocks, expected at most %d tokens per block",
                         n_vocab, n_blocks, SLICE_MAX);
    struct sampler_args a = {logits, n_vocab, slice, *s, step};
    struct launch l = {};
    l.name = "sampler";
    l.grid = dim3(n_blocks);
    l.block = dim3(THREADS);
    l.smem = slice * sizeof(float);
    l.stream = q->stream;
    l.recorder = q->recorder;
    l.cooperative = s->waits;
    l.dependent = q->dependent && !s->waits;
    return launch_kernel(err, l, sampler_kernel, a);
}

bool gpu_sampler_launch(const struct queue *q, struct gpu_sampler *s, const float *logits,
                        uint32_t n_vocab, struct step_state *step, struct error *err)
{
    return gpu_sampler_launch_blocks(q, s, logits, n_vocab, step, 0, err);
}

// ---- picks of several sequences at once

static size_t mask_words(uint32_t n_vocab)
{
    return 1 + (n_vocab + 31) / 32;
}

// Carves the device memory of *r (n, n_vocab set) and of its slots, which are NULL when only
// counting.
static size_t place_rows(struct sampler_rows *r, void *base)
{
    uint8_t *at = (uint8_t *)base;
    const size_t n_groups = div_up(r->n_vocab, (uint32_t)GROUP);
    size_t used = 0;
    r->config = take<struct sampler_config>(&at, &used, r->n);
    r->args = take<struct sampler_args>(&at, &used, r->n);
    r->steps = take<struct step_state>(&at, &used, r->n);
    r->mask = take<uint32_t>(&at, &used, r->n * mask_words(r->n_vocab));
    r->scratch = take<struct sampler_scratch>(&at, &used, r->n);
    r->values = take<float>(&at, &used, r->n * n_groups * GROUP);
    r->maxima = take<float>(&at, &used, 2 * r->n * n_groups);
    r->count = take<uint32_t>(&at, &used, (size_t)r->n * r->n_vocab);
    r->history = take<int32_t>(&at, &used, (size_t)r->n * (ROWS_HISTORY + 1));
    return used;
}

size_t sampler_rows_bytes(uint32_t n, uint32_t n_vocab)
{
    struct sampler_rows r = {};
    r.n = n;
    r.n_vocab = n_vocab;
    return n ? place_rows(&r, NULL) : 0;
}

void sampler_rows_place(struct sampler_rows *r, uint32_t n, uint32_t n_vocab, void *base)
{
    r->n = n;
    r->n_vocab = n_vocab;
    if (n)
        place_rows(r, base);
}

bool sampler_rows_open(const struct queue *q, struct sampler_rows *r, struct error *err)
{
    return r->n == 0 ||
           (CHECK_CUDA(cudaMallocHost(&r->host_config, r->n * sizeof *r->host_config), err) &&
            CHECK_CUDA(cudaMallocHost(&r->host_args, r->n * sizeof *r->host_args), err) &&
            CHECK_CUDA(cudaMallocHost(&r->host_steps, r->n * sizeof *r->host_steps), err) &&
            CHECK_CUDA(cudaMallocHost(&r->ring, r->n * sizeof *r->ring), err) &&
            CHECK_CUDA(
                cudaMallocHost(&r->host_mask, r->n * mask_words(r->n_vocab) * sizeof *r->host_mask),
                err) &&
            CHECK_CUDA(cudaMallocHost(&r->host_history,
                                      r->n * (ROWS_HISTORY + 1) * sizeof *r->host_history),
                       err) &&
            CHECK_CUDA(cudaMemsetAsync(r->scratch, 0, r->n * sizeof *r->scratch, q->stream), err) &&
            CHECK_CUDA(cudaMemsetAsync(r->count, 0, (size_t)r->n * r->n_vocab * sizeof *r->count,
                                       q->stream),
                       err));
}

void sampler_rows_close(struct sampler_rows *r)
{
    cudaFreeHost(r->host_config);
    cudaFreeHost(r->host_args);
    cudaFreeHost(r->host_steps);
    cudaFreeHost(r->ring);
    cudaFreeHost(r->host_mask);
    cudaFreeHost(r->host_history);
}

bool sampler_rows_can(const struct decode_params *p, uint32_t n_vocab)
{
    const struct sampler_config c = config_of(p, 1);
    const int64_t last_n = p->sampler->repeat_last_n;
    const bool is_short = p->n_history <= ROWS_HISTORY || (last_n >= 0 && last_n <= ROWS_HISTORY);
    return !c.dry && (!c.penalties || is_short) && !sampler_waits(&c, n_vocab);
}

uint32_t *sampler_rows_mask(struct sampler_rows *r, uint32_t i)
{
    return r->host_mask + i * mask_words(r->n_vocab);
}

void sampler_rows_set(struct sampler_rows *r, uint32_t i, const struct decode_params *p,
                      const float *logits)
{
    enum { SLICE = 16384 }; // few blocks for each of many picks
    const size_t n_groups = div_up(r->n_vocab, (uint32_t)GROUP);
    const uint32_t n_blocks = div_up(r->n_vocab, (uint32_t)SLICE);
    struct gpu_sampler g = {};
    g.ring = &r->ring[i];
    g.config = &r->config[i];
    g.scratch = &r->scratch[i];
    g.values = r->values + i * n_groups * GROUP;
    g.mask = p->masked ? r->mask + i * mask_words(r->n_vocab) : NULL;
    g.maxima = r->maxima + 2 * i * n_groups;
    g.raw_maxima = g.maxima + n_groups;
    g.n_vocab = r->n_vocab;
    r->host_config[i] = config_of(p, 1);
    const bool penalties = r->host_config[i].penalties;
    if (penalties) { // the end of the history, where its tokens have their numbers
        const size_t n = lesser(p->n_history, (size_t)ROWS_HISTORY), at = i * (ROWS_HISTORY + 1);
        memcpy(r->host_history + at, p->history + p->n_history - n, n * sizeof *p->history);
        g.history = r->history + at - (p->n_history - n);
        g.count = r->count + (size_t)i * r->n_vocab;
    }
    r->host_args[i] = {logits, r->n_vocab, (uint32_t)(div_up(n_groups, (size_t)n_blocks) * GROUP),
                       g, &r->steps[i]};
    r->host_steps[i] = {{0, (uint32_t)p->n_history - 1}, 0, 0, 0};
    r->ring[i].seq = 0;
    r->masked = (i && r->masked) || p->masked;
    r->penalties = (i && r->penalties) || penalties;
}

void sampler_rows_upload(const struct sampler_rows *r, uint32_t n, struct upload *u)
{
    upload_add(u, r->config, r->host_config, n);
    upload_add(u, r->args, r->host_args, n);
    upload_add(u, r->steps, r->host_steps, n);
    if (r->masked)
        upload_add(u, r->mask, r->host_mask, n * mask_words(r->n_vocab));
    if (r->penalties)
        upload_add(u, r->history, r->host_history, (size_t)n * (ROWS_HISTORY + 1));
}

bool sampler_rows_launch(const struct queue *q, const struct sampler_rows *r, uint32_t n,
                         struct error *err)
{
    const uint32_t slice = r->host_args[0].slice_len;
    struct launch l = {};
    l.name = "sampler_rows";
    l.grid = dim3(div_up(r->n_vocab, slice), n);
    l.block = dim3(THREADS);
    l.smem = slice * sizeof(float);
    l.stream = q->stream;
    l.recorder = q->recorder;
    return launch_kernel(err, l, sampler_rows_kernel, r->args);
}

bool sampler_rows_result(const struct queue *q, struct sampler_rows *r, uint32_t i,
                         struct decoded *out, struct error *err)
{
    const struct ring_slot *slot = &r->ring[i];
    if (slot->seq != 1)
        return error_set(err, ERR_FAIL, "the device ended a pass without a token");
    *out = slot->d;
    struct error ignored = {};
    if (slot->failed) { // what the pick left half done
        CHECK_CUDA(cudaMemsetAsync(&r->scratch[i], 0, sizeof *r->scratch, q->stream), &ignored);
        CHECK_CUDA(cudaMemsetAsync(r->count + (size_t)i * r->n_vocab, 0,
                                   r->n_vocab * sizeof *r->count, q->stream),
                   &ignored);
    }
    return slot->failed != SAMPLER_NOT_FINITE && gpu_sampler_result(slot, err);
}

bool gpu_sampler_result(const struct ring_slot *slot, struct error *err)
{
    switch (slot->failed) {
    case SAMPLER_NOT_FINITE:
        return finite_error(NULL, (uint32_t)slot->d.id, slot->d.logprob, err);
    case SAMPLER_NONE_LEFT:
        return sampler_none_left(err);
    case SAMPLER_OVERFLOW:
        return sampler_overflow(err);
    default:
        return true;
    }
}
