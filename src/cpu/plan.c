// How much memory an engine takes, and the largest context that fits.
#include "cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/format.h"
#include "base/memory.h"
#include "cpu/plan.h"
#include "engine/drafter.h"
#include "engine/states.h"
#include "engine/windows.h"

struct carver {
    char *base; // NULL: only count
    size_t used;
    bool overflow;
};

// n items of size bytes each, 64-byte aligned
static void *carve(struct carver *c, size_t n, size_t size)
{
    size_t bytes, used;
    if (__builtin_mul_overflow(n, size, &bytes) || __builtin_add_overflow(c->used, bytes, &used) ||
        used > SIZE_MAX - 64) {
        c->overflow = true;
        return NULL;
    }
    void *p = c->base ? c->base + c->used : NULL;
    c->used = (used + 63) / 64 * 64;
    return p;
}

static struct cpu_act carve_act(struct carver *c, size_t n_tok, uint32_t n_cols)
{
    struct cpu_act a = {.n_cols = n_cols};
    a.n_pad = (uint32_t)(((uint64_t)n_cols + CPU_PAD - 1) / CPU_PAD * CPU_PAD);
    a.f = carve(c, n_tok * a.n_pad, sizeof *a.f);
    a.q = carve(c, n_tok * a.n_pad, sizeof *a.q);
    a.scale = carve(c, n_tok * a.n_pad / CPU_PAD, sizeof *a.scale);
    a.sum = carve(c, n_tok * a.n_pad / 16, sizeof *a.sum);
    a.packed = carve(c, n_tok * a.n_pad / CPU_PAD, CPU_PACKED_BYTES);
    return a;
}

// Whether what layers add needs nothing done to it first.
static bool adds_in_place(const struct model *m)
{
    bool in_place = m->hp.residual_scale == 1 && m->hp.n_embd_layer == 0 && m->hp.n_side == 0;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        in_place &= m->layers[i].experts.n == 0 && !m->layers[i].w[ATTN_POST_NORM].data &&
                    !m->layers[i].w[FFN_POST_NORM].data && m->layers[i].n_laurel == 0;
    return in_place;
}

static bool keeps_beside(const struct model *m)
{
    bool keeps = false;
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer *l = &m->layers[i];
        keeps |= (l->experts.n > 0 && l->n_ff > 0) || (l->parallel && l->w[FFN_NORM].data);
    }
    return keeps;
}

static struct cpu_routing carve_routing(struct carver *c, size_t n, const struct layer_sizes *most)
{
    const size_t all = n * most->n_expert, used = n * most->n_expert_used;
    struct cpu_routing r = {.logits = carve(c, all, sizeof *r.logits)};
    r.score = carve(c, all, sizeof *r.score);
    r.state = carve(c, all, sizeof *r.state);
    r.shared = carve(c, n, sizeof *r.shared);
    r.chosen = carve(c, used, sizeof *r.chosen);
    r.weight = carve(c, used, sizeof *r.weight);
    r.active = carve(c, most->n_expert, sizeof *r.active);
    r.first = carve(c, most->n_expert + 1, sizeof *r.first);
    r.place = carve(c, used, sizeof *r.place);
    r.pair = carve(c, used, sizeof *r.pair);
    return r;
}

static struct cpu_latent carve_latent(struct carver *c, const struct model *m, size_t n)
{
    struct latent most = {0};
    size_t q = 0, key_rows = 0;
    for (uint32_t i = 0; i < m->hp.n_layer; i++) { // of all layers the same, but the heads
        const struct layer *l = &m->layers[i];
        if (l->latent.n_kv == 0)
            continue;
        most = l->latent;
        const size_t width = l->latent.n_key + l->head_dim - l->latent.n_kv;
        key_rows = n * l->n_head > key_rows ? n * l->n_head : key_rows;
        q = l->n_head * width > q ? l->n_head * width : q;
    }
    struct cpu_latent x = {.q_low = carve_act(c, n, most.n_q)};
    x.q = carve(c, n * q, sizeof *x.q);
    x.key = carve_act(c, key_rows, most.n_key);
    x.sum = carve_act(c, key_rows, most.n_kv);
    return x;
}

static struct cpu_delta carve_delta(struct carver *c, const struct model *m, size_t n)
{
    struct layer most = {0}; // of all layers the same
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        if (m->layers[i].mixer == MIXER_DELTA)
            most = m->layers[i];
    const size_t channels = layer_n_channels(&most);
    const size_t n_z = (size_t)most.delta.n_head * most.delta.n_state;
    struct cpu_delta x = {.in = carve(c, n * channels, sizeof *x.in)};
    x.mixed = carve(c, n * channels, sizeof *x.mixed);
    x.z = carve(c, n * n_z, sizeof *x.z);
    x.ba = carve(c, n * 2 * most.delta.n_head, sizeof *x.ba);
    return x;
}

static struct cpu_ssm carve_ssm(struct carver *c, const struct model *m, size_t n)
{
    struct layer most = {0}; // of all layers that have one the same
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        if (m->layers[i].ssm.n_head > 0)
            most = m->layers[i];
    const size_t channels = layer_ssm_channels(&most);
    struct cpu_ssm x = {
        .in = carve(c, n * (most.ssm.n_inner + channels + most.ssm.n_head), sizeof *x.in)};
    x.mixed = carve(c, n * channels, sizeof *x.mixed);
    return x;
}

static struct cpu_altup carve_altup(struct carver *c, const struct hparams *hp, size_t n)
{
    const size_t n_side = hp->n_side;
    struct cpu_altup x = {.side = carve(c, n_side * n * hp->n_embd, sizeof *x.side)};
    x.predicted = carve(c, n_side > 0 ? n * hp->n_embd : 0, sizeof *x.predicted);
    return x;
}

static bool has_conv(const struct model *m)
{
    bool conv = false;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        conv |= m->layers[i].mixer == MIXER_CONV;
    return conv;
}

static bool is_gated(const struct model *m)
{
    bool gated = false;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        gated |= m->layers[i].gated;
    return gated;
}

static uint64_t state_bytes(const struct model *m)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        n += layer_state_size(&m->layers[i]) * sizeof(float);
    return n;
}

// As many as a gigabyte has room for: enough to go back to, and for sequences beside each other.
uint32_t cpu_n_states(const struct model *m)
{
    enum { LEAST = 8, MOST = 256 };
    const uint64_t each = state_bytes(m), n = each > 0 ? (UINT64_C(1) << 30) / each : 0;
    return each == 0 ? 0 : n < LEAST ? LEAST : n > MOST ? MOST : (uint32_t)n;
}

size_t cpu_states_bytes(const struct model *m)
{
    const uint32_t n = cpu_n_states(m);
    return n == 0 ? 0 : (n + 1) * (size_t)state_bytes(m);
}

size_t cpu_scratch_layout(const struct model *m, uint32_t n_ctx, uint32_t n_batch, int n_threads,
                          struct cpu_engine *s, void *base)
{
    const struct hparams *hp = &m->hp;
    const struct layer_sizes most = model_largest(m);
    struct carver c = {.base = base};
    s->head_dim_pad = ((size_t)most.head_dim + 15) / 16 * 16;
    const size_t n = n_batch, rows = n > most.n_expert_used ? n : most.n_expert_used;
    const size_t n_splits = (size_t)n_ctx / CPU_ATTN_SPLIT + 1;
    const size_t per_thread = (size_t)n_threads * 16, per_split = most.n_head * n_splits;
    for (uint32_t i = 0; i < m->n_rope; i++) {
        s->ropes[i].freq = carve(&c, m->ropes[i].n_dim / 2 + 1, sizeof(float));
        s->ropes[i].cos_sin = carve(&c, n * m->ropes[i].n_dim, sizeof(float));
    }
    s->part_of = carve(&c, n, sizeof *s->part_of);
    s->x = carve(&c, n * hp->n_embd, sizeof *s->x);
    s->branch = carve(&c, adds_in_place(m) ? 0 : n * hp->n_embd, sizeof *s->branch);
    s->beside = carve(&c, keeps_beside(m) ? n * hp->n_embd : 0, sizeof *s->beside);
    s->altup = carve_altup(&c, hp, n);
    s->told = carve(&c, n * hp->n_layer * hp->n_embd_layer, sizeof *s->told);
    s->q = carve(&c, n * most.n_q, sizeof *s->q);
    s->k = carve(&c, n * most.n_kv, sizeof *s->k);
    s->v = carve(&c, n * most.n_kv, sizeof *s->v);
    s->up = carve(&c, rows * most.n_ff, sizeof *s->up);
    s->joined = carve_act(&c, m->predicts_for ? n : 0, 2 * hp->n_embd);
    s->normed = carve_act(&c, n, hp->n_embd);
    s->attn_out = carve_act(&c, n, most.n_out);
    s->latent = carve_latent(&c, m, n);
    s->delta = carve_delta(&c, m, n);
    s->ssm = carve_ssm(&c, m, n);
    s->conv_in = carve(&c, has_conv(m) ? 3 * n * hp->n_embd : 0, sizeof *s->conv_in);
    s->q_gated = carve(&c, is_gated(m) ? 2 * n * most.n_q : 0, sizeof *s->q_gated);
    s->gate = carve_act(&c, rows, most.n_ff);
    if (most.n_expert > 0) {
        s->routing = carve_routing(&c, n, &most);
        const uint32_t n_io = most.n_latent > hp->n_embd ? most.n_latent : hp->n_embd;
        s->expert_latent.in = carve_act(&c, n, most.n_latent);
        s->expert_latent.sum = carve_act(&c, n, most.n_latent);
        s->expert_in = carve_act(&c, rows, n_io);
        s->expert_out = carve(&c, rows * n_io, sizeof *s->expert_out);
    }
    s->expert_rows = rows;
    s->hidden = carve_act(&c, n, hp->n_embd);
    s->attn_parts = carve(&c, per_thread > per_split ? per_thread : per_split,
                          s->head_dim_pad * sizeof *s->attn_parts);
    s->split_parts = carve(&c, per_split, sizeof *s->split_parts);
    s->logits = carve(&c, (size_t)LOGIT_ROWS * hp->n_vocab, sizeof *s->logits);
    return c.overflow ? SIZE_MAX : c.used;
}

struct request {
    const struct model *m;
    const struct engine_params *p;
    uint32_t n_batch;
    int n_threads;
    uint64_t available;
    struct cpu_engine *counts; // for cpu_scratch_layout: more than a small stack holds
};

static uint64_t add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

// The sampler's candidates and counts, the tokens of all sequences that there may be, each of which
// has room for a whole context of them, and the hidden states that are kept for a prediction layer.
static uint64_t other_bytes(const struct model *m, uint32_t n_seqs, uint32_t n_ctx)
{
    const uint64_t given = m->predicts_for ? drafter_hidden_bytes(m, n_ctx, n_seqs) : 0;
    return 4ull * (1 + windows_seqs(n_seqs)) * n_ctx + 20ull * m->hp.n_vocab + given;
}

static uint64_t kv_bytes(const struct request *r, uint32_t n_ctx, enum kv_type k, enum kv_type v)
{
    return kv_cache_bytes(r->m, k, v, cpu_n_blocks(n_ctx), cpu_n_near(r->m, r->p, n_ctx));
}

// Weights stay where the file is mapped, but for those of a wider type in memory: what two models
// share is there once.
static uint64_t weight_bytes(const struct model *m)
{
    return m->weight_bytes - m->shared_bytes + m->grown_bytes;
}

static uint64_t scratch_bytes(const struct request *r, uint32_t n_ctx)
{
    return cpu_scratch_layout(r->m, n_ctx, r->n_batch, r->n_threads, r->counts, NULL);
}

static uint64_t total_bytes(const struct request *r, uint32_t n_ctx, enum kv_type k, enum kv_type v)
{
    uint64_t n = add(weight_bytes(r->m), kv_bytes(r, n_ctx, k, v));
    n = add(n, cpu_states_bytes(r->m));
    n = add(n, scratch_bytes(r, n_ctx));
    return add(n, other_bytes(r->m, r->p->n_seqs, n_ctx));
}

// Slots are host memory, too: they count in what states may take.
static uint64_t host_states(const struct request *r, const struct engine_plan *plan)
{
    const uint64_t taken = total_bytes(r, plan->n_ctx, r->p->type_k, r->p->type_v);
    const uint64_t slots = cpu_states_bytes(r->m);
    const uint64_t n = states_host_bytes(plan->fits ? r->available - taken + slots : 0);
    return slots > 0 && n > slots ? n - slots : 0;
}

// The largest context up to `most` that fits, 0 when none does. The total grows with the context.
static uint32_t largest_context(const struct request *r, uint32_t most, enum kv_type k,
                                enum kv_type v)
{
    uint32_t fits = 0, too_many = most;
    if (total_bytes(r, most, k, v) <= r->available)
        return most;
    while (too_many - fits > 1) {
        uint32_t middle = fits + (too_many - fits) / 2;
        if (total_bytes(r, middle, k, v) <= r->available)
            fits = middle;
        else
            too_many = middle;
    }
    return fits >= 256 ? fits / 256 * 256 : fits;
}

uint32_t cpu_n_blocks(uint32_t n_ctx)
{
    return (uint32_t)(((uint64_t)n_ctx + CPU_ATTN_SPLIT - 1) / CPU_ATTN_SPLIT);
}

uint32_t cpu_n_near(const struct model *m, const struct engine_params *p, uint32_t n_ctx)
{
    return windows_blocks(m, n_ctx, cpu_n_batch(p), p->n_seqs, CPU_ATTN_SPLIT);
}

uint32_t cpu_n_batch(const struct engine_params *p)
{
    return p->n_batch == 0 ? 512 : p->n_batch;
}

int cpu_n_threads(const struct engine_params *p)
{
    int n = p->n_threads > 0 ? p->n_threads : pool_online_cpus();
    return n < POOL_MAX_THREADS ? n : POOL_MAX_THREADS;
}

uint64_t cpu_available(const struct engine_params *p)
{
    return memory_available((cpu_n_threads(p) - 1) * (1 + (int)p->n_aside));
}

bool cpu_plan(const struct model *m, const struct engine_params *p, uint64_t available,
              struct engine_plan *plan, struct error *err)
{
    available = available > p->set_aside ? available - p->set_aside : 0;
    const struct request r = {
        m, p, cpu_n_batch(p), cpu_n_threads(p), available, calloc(1, sizeof(struct cpu_engine))};
    if (!r.counts)
        return error_oom(err, "the engine", sizeof *r.counts);
    const uint32_t trained = m->hp.n_ctx_train > 0 ? m->hp.n_ctx_train : 2048;
    *plan = (struct engine_plan){.weights = weight_bytes(m), .available = available};
    const bool refused =
        p->n_ctx > trained && total_bytes(&r, p->n_ctx, p->type_k, p->type_v) > available;
    const uint32_t most = refused ? p->n_ctx : trained;
    plan->n_ctx_max = largest_context(&r, most, p->type_k, p->type_v);
    plan->n_ctx_max_q8 = largest_context(&r, most, KV_Q8_0, KV_Q8_0);
    plan->n_ctx = p->n_ctx > 0          ? p->n_ctx
                  : plan->n_ctx_max > 0 ? plan->n_ctx_max
                                        : (trained < 512 ? trained : 512); // does not fit
    plan->kv = add(kv_bytes(&r, plan->n_ctx, p->type_k, p->type_v), cpu_states_bytes(m));
    plan->scratch = scratch_bytes(&r, plan->n_ctx);
    plan->other = other_bytes(m, p->n_seqs, plan->n_ctx);
    windows_plan(m, r.n_batch, p->n_seqs, CPU_ATTN_SPLIT, plan);
    plan->fits = total_bytes(&r, plan->n_ctx, p->type_k, p->type_v) <= available;
    plan->host_states = host_states(&r, plan);
    free(r.counts);
    return true;
}

bool cpu_plan_error(const struct engine_plan *plan, const struct engine_params *p,
                    struct error *err)
{
    char need[FORMAT_NUMBER], have[FORMAT_NUMBER], w[FORMAT_NUMBER], kv[FORMAT_NUMBER];
    char s[FORMAT_NUMBER], advice[160];
    uint64_t total = add(add(plan->weights, plan->kv), add(plan->scratch, plan->other));
    const bool f16 = p->type_k == KV_F16 || p->type_v == KV_F16;
    if (plan->n_ctx_max > 0 && f16 && plan->n_ctx_max_q8 > plan->n_ctx_max)
        snprintf(advice, sizeof advice, "-c %u would fit, or -c %u with -ctk q8_0 -ctv q8_0",
                 plan->n_ctx_max, plan->n_ctx_max_q8);
    else if (plan->n_ctx_max > 0)
        snprintf(advice, sizeof advice, "-c %u would fit", plan->n_ctx_max);
    else if (f16 && plan->n_ctx_max_q8 > 0)
        snprintf(advice, sizeof advice, "-c %u with -ctk q8_0 -ctv q8_0 would fit",
                 plan->n_ctx_max_q8);
    else
        snprintf(advice, sizeof advice,
                 "no context fits: a smaller batch (-b 64) or a smaller model is needed");
    return error_set(err, ERR_MEMORY,
                     "a context of %u tokens needs %s bytes (weights %s, KV cache %s, scratch %s) "
                     "but %s are available: %s",
                     plan->n_ctx, format_number(need, total), format_bytes(w, plan->weights),
                     format_bytes(kv, plan->kv), format_bytes(s, plan->scratch + plan->other),
                     format_number(have, plan->available), advice);
}

bool cpu_engine_plan(const struct model *m, const struct engine_params *p, struct engine_plan *plan,
                     struct error *err)
{
    return cpu_plan(m, p, cpu_available(p), plan, err) && engine_has_positions(m, plan->n_ctx, err);
}
