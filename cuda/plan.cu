// What goes where in device memory, decided before anything is allocated; and the bytes that a
// decoded token moves. Host code only.
#include <stdlib.h>

#include "engine/windows.h"
#include "engine_impl.h"

enum {
    TILE_BYTES = 16 << 20,  // a third of the L2 cache of the devices it is meant for
    OTHER_BYTES = 16 << 20, // kernels and graphs, which the driver places: 2 MB seen on an H200
};

static void *take(struct arena *a, uint64_t n_bytes)
{
    uint64_t at = a->used;
    uint64_t n = (n_bytes + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN;
    a->used += n + DEVICE_RED_ZONE;
    if (!a->base)
        return NULL;
    device_red_zone(a->base + at + n_bytes, n - n_bytes + DEVICE_RED_ZONE);
    return a->base + at;
}

void *cuda_take(struct arena *a, uint64_t n_bytes)
{
    return take(a, n_bytes);
}

static const float *take_vector(struct arena *a, uint32_t n)
{
    return (const float *)take(a, n * sizeof(float));
}

static void take_matrix(struct arena *a, const struct weight *w, struct wmat *out)
{
    uint64_t n = cuda_layout_stack(w->type, w->n_stacked, w->rows, w->n_cols, NULL, out);
    uint8_t *base = (uint8_t *)take(a, n);
    cuda_layout_stack(w->type, w->n_stacked, w->rows, w->n_cols, base, out);
    if (w->scale_each)
        out->scales = take_vector(a, w->n_stacked);
    else if (w->scale)
        out->scale = *w->scale;
}

static struct kv_plane take_kv(struct arena *a, const struct layer *l, uint32_t n_blocks,
                               enum kv_type type, bool values)
{
    struct kv_plane p = {};
    if (l->kv_back > 0 || (values && l->latent.n_kv > 0)) // they are in another one
        return p;
    uint64_t rows = (uint64_t)l->n_head_kv * n_blocks * KV_BLOCK;
    uint32_t elem = type == KV_F16 ? 2 : 1;
    p.row_bytes = (l->head_dim * elem + 15) / 16 * 16;
    p.n_group = kv_groups(l->head_dim);
    p.n_head = l->n_head_kv;
    p.scale = 1.0f;
    p.data = (uint8_t *)take(a, rows * p.row_bytes);
    if (type == KV_Q8_0)
        p.scales = (uint16_t *)take(a, rows * p.n_group * sizeof(uint16_t));
    return p;
}

static uint32_t max3(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t m = a > b ? a : b;
    return m > c ? m : c;
}

// Of all layers: they attend one after the other.
static struct attention_scratch largest_attention(const struct cuda_engine *e,
                                                  const struct model *m)
{
    struct attention_scratch most = {};
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer *l = &m->layers[i];
        struct attention_scratch a = {};
        if (l->mixer != MIXER_ATTENTION)
            continue;
        struct attention_wide_scratch wide = {};
        const bool latent = l->latent.n_kv > 0;
        if (cuda_latent_in_heads(e, l))
            attention_scratch(e->q.n_sm, l->n_head, l->n_head, latent_head_width(l),
                              e->base.n_batch, 1, &a);
        if (!latent)
            attention_scratch(e->q.n_sm, l->n_head, l->n_head_kv, l->head_dim, e->base.n_batch,
                              e->params.exact ? e->base.n_batch : e->n_seq, &a);
        if (latent || l->head_dim > ATTENTION_NARROW_HEAD_DIM)
            attention_wide_scratch(l->n_head, l->head_dim, layer_value_dim(l), latent,
                                   e->base.n_ctx, &wide);
        a.partial = a.partial > wide.partial ? a.partial : wide.partial;
        const bool by_hopper = !latent && l->head_dim > ATTENTION_NARROW_HEAD_DIM && e->q.hopper &&
                               e->params.type_k == KV_F16 && e->params.type_v == KV_F16;
        if (by_hopper && !e->params.exact)
            a.partial = larger(a.partial, attention_wide_prompt_bytes(l->n_head, e->base.n_batch));
        most.partial = a.partial > most.partial ? a.partial : most.partial;
        most.counters = a.counters > most.counters ? a.counters : most.counters;
        most.q_f16 = a.q_f16 > most.q_f16 ? a.q_f16 : most.q_f16;
        // sums of a layer with larger ones take the room of fewer rows
        if (most.n_split_rows == 0 || a.n_split_rows < most.n_split_rows)
            most.n_split_rows = a.n_split_rows;
    }
    return most;
}

static bool any_norm_is_apart(const struct model *m)
{
    // (what is told of a token is gated by a scaled stream, where there are several)
    bool any = norm_is_apart(&m->hp, &m->output_norm_bias) || m->hp.n_side > 0;
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        any |= input_is_kept(&m->layers[i]);
        for (enum layer_weight bias : {ATTN_NORM_BIAS, FFN_NORM_BIAS})
            any |= norm_is_apart(&m->hp, &m->layers[i].w[bias]);
    }
    return any;
}

// The widest of what queries come from.
static uint32_t latent_inputs(const struct model *m)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        n = m->layers[i].latent.n_q > n ? m->layers[i].latent.n_q : n;
    return n;
}

static bool any_is_beside(const struct model *m)
{
    bool any = false;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        any |= is_beside(&m->layers[i]);
    return any;
}

static bool has_bare_norms(const struct model *m)
{
    bool any = false;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        any |= m->layers[i].qk_norm == QK_NORM_BARE || m->layers[i].v_normed;
    return any;
}

static bool is_gated(const struct model *m)
{
    bool any = false;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        any |= m->layers[i].gated;
    return any;
}

void cuda_place(struct cuda_engine *e, const struct model *m)
{
    const struct hparams *hp = &e->hp;
    const uint32_t n_ctx = e->base.n_ctx, n_batch = e->base.n_batch;
    const uint32_t n_q = e->largest.n_q, n_kv = e->largest.n_kv, n_ff = e->largest.n_ff;
    e->n_near = windows_blocks(m, n_ctx, n_batch, e->n_seq, KV_BLOCK);

    struct arena *w = &e->weights;
    bool has_f32 = false; // among the matrices that a prompt goes through
    const struct cuda_engine *other = (const struct cuda_engine *)e->params.shares;
    if (cuda_shares(m, &m->tok_embd))
        e->tok_embd = other ? other->tok_embd : (struct wmat){};
    else
        take_matrix(w, &m->tok_embd, &e->tok_embd);
    if (m->tied)
        e->output = e->tok_embd;
    else if (cuda_shares(m, &m->output))
        e->output = other ? other->output : (struct wmat){};
    else
        take_matrix(w, &m->output, &e->output);
    if (m->predicts_for) {
        take_matrix(w, &m->joint, &e->prediction.joint);
        e->prediction.embd_norm = take_vector(w, hp->n_embd);
        e->prediction.hidden_norm = take_vector(w, hp->n_embd);
        has_f32 = m->joint.type == QUANT_F32;
    }
    if (m->token_layers.data) {
        take_matrix(w, &m->token_layers, &e->token_layers);
        take_matrix(w, &m->token_layers_proj, &e->token_layers_proj);
        e->token_layers_norm = take_vector(w, hp->n_embd_layer);
        has_f32 |= m->token_layers_proj.type == QUANT_F32;
    }
    if (hp->n_side > 0) {
        take_matrix(w, &m->altup_proj, &e->altup_proj);
        take_matrix(w, &m->altup_unembd_proj, &e->altup_unembd_proj);
        has_f32 |= m->altup_proj.type == QUANT_F32 || m->altup_unembd_proj.type == QUANT_F32;
    }
    e->positions = m->pos_embd.data ? take_vector(w, m->pos_embd.rows * m->pos_embd.n_cols) : NULL;
    e->output_norm = take_vector(w, hp->n_embd);
    e->output_norm_bias = m->output_norm_bias.data ? take_vector(w, hp->n_embd) : NULL;
    e->output_bias = m->output_bias.data ? take_vector(w, m->output_bias.n_cols) : NULL;
    e->ones = has_bare_norms(m) ? take_vector(w, e->largest.head_dim) : NULL;
    e->ropes.n = m->n_rope;
    for (uint32_t i = 0; i < m->n_rope; i++) {
        e->ropes.t[i].n_pair = m->ropes[i].n_dim / 2;
        e->ropes.t[i].freqs = take_vector(w, e->ropes.t[i].n_pair);
    }
    for (uint32_t i = 0; i < hp->n_layer; i++) {
        const struct layer *from = &m->layers[i];
        struct gpu_layer unused, *l = e->layers ? &e->layers[i] : &unused;
        l->facts = from;
        for (int k = 0; k < N_LAYER_WEIGHTS; k++) {
            const struct weight *have = &from->w[k];
            l->w[k] = {};
            l->v[k] = NULL;
            if (have->data && have->vector)
                l->v[k] = take_vector(w, have->n_cols);
            else if (have->data)
                take_matrix(w, have, &l->w[k]);
            // with products of their own
            const bool of_experts = (k >= ROUTER && k <= SHARED_DOWN) || have->n_stacked;
            has_f32 |= have->data && !have->vector && !of_experts && have->type == QUANT_F32;
        }
        l->near = windows_layer(m, i);
        const uint32_t n_blocks = l->near ? e->n_near : kv_blocks(n_ctx);
        l->k_cache = take_kv(&e->kv, from, n_blocks, e->params.type_k, false);
        l->v_cache = take_kv(&e->kv, from, n_blocks, e->params.type_v, true);
    }

    e->any_pieces = e->q.hopper && !e->params.exact && !has_f32 && e->base.n_states == 0;
    struct arena *a = &e->work;
    struct scratch *s = &e->s;
    const uint32_t n_out = e->largest.n_out;
    const uint32_t n_joined = m->predicts_for ? 2 * hp->n_embd : hp->n_embd;
    const uint32_t n_wide = max3(max3(n_joined, n_q, n_ff), n_out, latent_inputs(m));
    const struct attention_scratch att = largest_attention(e, m);
    s->step = (struct step_state *)take(a, sizeof *s->step);
    const uint32_t n_slot = e->passes ? 1 + e->n_seq : 1;
    s->n_logits = e->passes ? lesser(cuda_n_picks(&e->params, e->n_seq), (uint32_t)PICK_ROWS) : 0;
    if (s->n_logits < LOGITS_ROWS)
        s->n_logits = LOGITS_ROWS;
    const uint64_t table_bytes = (uint64_t)n_slot * kv_blocks(n_ctx) * sizeof *s->kv_tables;
    s->kv_tables = s->near_tables = (uint32_t *)take(a, table_bytes);
    if (e->n_near < kv_blocks(n_ctx))
        s->near_tables = (uint32_t *)take(a, table_bytes);
    if (e->passes) {
        s->rows = (struct seq_row *)take(a, n_batch * sizeof *s->rows);
        s->picks = (uint32_t *)take(a, cuda_n_picks(&e->params, e->n_seq) * sizeof *s->picks);
        if (hp->n_vocab % 4) // rows that a pick can be made from
            s->pick_logits = (float *)take(a, (uint64_t)s->n_logits * div_up(hp->n_vocab, 4u) * 4 *
                                                  sizeof(float));
    }
    struct gemm_scratch gemm;
    gemm_scratch(e->q.n_sm, &gemm);
    if (e->passes && e->q.hopper && gemm.partial < gemm_wide_partial(e->q.n_sm))
        gemm.partial = gemm_wide_partial(e->q.n_sm);
    s->counter_bytes = att.counters + gemm.counters + sizeof *s->route_counter;
    s->counters = (uint32_t *)take(a, s->counter_bytes);
    s->gemm_counters = s->counters + att.counters / sizeof *s->counters;
    s->route_counter = s->gemm_counters + gemm.counters / sizeof *s->counters;
    s->tokens = (int32_t *)take(a, n_batch * sizeof *s->tokens);
    s->x = (float *)take(a, (uint64_t)n_batch * hp->n_embd * sizeof(float));
    s->x_away = (float *)take(a, (uint64_t)hp->n_embd * sizeof(float));
    s->q = (float *)take(a, (uint64_t)n_batch * n_q * (is_gated(m) ? 2 : 1) * sizeof(float));
    s->k = (float *)take(a, (uint64_t)n_batch * n_kv * sizeof(float));
    s->v = (float *)take(a, (uint64_t)n_batch * n_kv * sizeof(float));
    s->att = (float *)take(a, (uint64_t)n_batch * max3(n_q, n_out, 1) * sizeof(float));
    s->gate = (float *)take(a, (uint64_t)n_batch * max3(n_ff, hp->n_embd, 1) * sizeof(float));
    s->up = (float *)take(a, (uint64_t)n_batch * max3(n_ff, hp->n_embd, 1) * sizeof(float));
    if (any_norm_is_apart(m))
        s->normed = (float *)take(a, (uint64_t)n_batch * hp->n_embd * sizeof(float));
    if (any_is_beside(m))
        s->beside = (float *)take(a, (uint64_t)n_batch * hp->n_embd * sizeof(float));
    if (m->token_layers.data) {
        const uint64_t n_told = (uint64_t)n_batch * hp->n_layer * hp->n_embd_layer;
        s->told = (float *)take(a, n_told * sizeof(float));
        s->told_proj = (float *)take(a, n_told * sizeof(float));
    }
    if (hp->n_side > 0) {
        const uint64_t n_stream = (uint64_t)n_batch * hp->n_embd;
        s->side = (float *)take(a, hp->n_side * n_stream * sizeof(float));
        s->predicted = (float *)take(a, n_stream * sizeof(float));
    }
    if (m->predicts_for) {
        e->prediction.hidden = (float *)take(a, (uint64_t)n_batch * hp->n_embd * sizeof(float));
        e->prediction.joined = (float *)take(a, (uint64_t)n_batch * n_joined * sizeof(float));
    }
    s->logits = (float *)take(a, (uint64_t)s->n_logits * hp->n_vocab * sizeof(float));
    const uint32_t n_rank = cuda_n_rank(&e->params);
    if (n_rank > 1) {
        s->part_logits = (float *)take(a, (uint64_t)s->n_logits * m->output.rows * sizeof(float));
        s->inbox =
            (uint64_t *)take(a, exchange_inbox(exchange_between(n_rank, false)) * sizeof *s->inbox);
        s->exchange = (struct exchange_state *)take(a, sizeof *s->exchange);
    }
    for (uint32_t i = 0; i < m->n_rope; i++)
        e->ropes.t[i].turns =
            (float2 *)take(a, (uint64_t)n_batch * e->ropes.t[i].n_pair * sizeof(float2));
    uint32_t rows = max3(lesser(n_batch, (uint32_t)MATVEC_MAX_ROWS), LOGITS_ROWS, 1);
    s->act32 = take(a, rows * act_row_bytes(QUANT_Q8_0, (n_wide + 31) / 32 * 32));
    s->act_f32 = take(a, (uint64_t)(has_f32 && n_batch > rows ? n_batch : rows) *
                             act_row_bytes(QUANT_F32, n_wide));
    s->n_without_blas = UINT32_MAX;
    if (n_batch > 1 || e->passes || e->any_pieces) {
        uint64_t row = gemm_ld(n_wide) * (has_f32 ? sizeof(float) : sizeof(__half));
        s->act_f16 = (__half *)take(a, gemm_few_bytes(n_batch, n_wide)); // every form
        s->ff_f16 = (__half *)take(a, gemm_few_bytes(n_batch, n_ff));
        s->undo = (float *)take(a, 2 * gemm_undo_room(n_batch) * sizeof(float));
        s->undo_gated = s->undo ? s->undo + gemm_undo_room(n_batch) : NULL;
        s->tile_bytes = lesser(n_wide * row, (uint64_t)TILE_BYTES);
        if (s->tile_bytes < TILE_ROWS * row)
            s->tile_bytes = TILE_ROWS * row;
        if (s->tile_bytes < gemm.partial)
            s->tile_bytes = gemm.partial;
        s->tile = take(a, s->tile_bytes);
        if (has_f32 || !e->q.hopper) {
            s->blas_workspace_bytes = BLAS_WORKSPACE;
            s->blas_workspace = take(a, s->blas_workspace_bytes);
            s->n_without_blas = has_f32 ? cuda_rows_by_vector(e) : (uint32_t)FEW_ROWS;
        }
    }
    cuda_place_experts(e, m);
    cuda_place_latent(e, m);
    cuda_place_states(e, m);
    cuda_place_mixers(e, m);
    s->n_split_rows = att.n_split_rows;
    s->partial_bytes = att.partial;
    s->partial = (float *)take(a, att.partial);
    s->q_f16 = (__half *)take(a, att.q_f16);
    gpu_sampler_place(&e->sampler, hp->n_vocab, n_ctx,
                      take(a, gpu_sampler_bytes(hp->n_vocab, n_ctx)));
    if (e->passes)
        sampler_rows_place(&e->rows, s->n_logits, hp->n_vocab,
                           take(a, sampler_rows_bytes(s->n_logits, hp->n_vocab)));
}

uint32_t cuda_n_batch(const struct model *m, const struct engine_params *p, const struct device *d)
{
    enum { SHARE = 20 };
    struct engine_params of = *p;
    if (p->n_batch > 0)
        return p->n_batch;
    auto bytes = [&](uint32_t n) { // scratch, and what layers with windows keep beside these
        struct memory_plan plan;
        of.n_batch = n;
        cuda_memory_plan(m, &of, m->hp.n_ctx_train, d, &plan);
        return plan.scratch + plan.kv;
    };
    const uint64_t least = bytes(CUDA_LEAST_BATCH);
    uint32_t n = 2048;
    while (n > CUDA_LEAST_BATCH && bytes(n) - least > d->total / SHARE)
        n /= 2;
    return n;
}

void cuda_memory_plan(const struct model *m, const struct engine_params *p, uint32_t n_ctx,
                      const struct device *d, struct memory_plan *out)
{
    struct cuda_engine e = {};
    e.hp = m->hp;
    e.largest = model_largest(m);
    e.params = *p;
    e.q.n_sm = d->n_sm;
    e.q.hopper = d->major == 9;
    e.q.smem_max = d->smem_max;
    e.base.n_ctx = n_ctx;
    e.base.n_batch = cuda_n_batch(m, p, d);
    if (e.base.n_batch > n_ctx)
        e.base.n_batch = n_ctx;
    e.n_seq = cuda_n_seq(p);
    e.passes = cuda_has_passes(p, e.n_seq);
    e.base.n_states = cuda_n_states(m, e.n_seq, d->total);
    cuda_place(&e, m);
    *out = {};
    out->weights = e.weights.used;
    out->kv = e.kv.used;
    out->scratch = e.work.used;
    out->other = OTHER_BYTES + cuda_load_bytes(m);
    out->n_ctx = n_ctx;
}

// ---- traffic of one decoded token

struct rows {
    struct engine_traffic *out;
    size_t n, max;
};

static void add(struct rows *r, const char *kernel, const char *weight, const char *type,
                uint64_t moved, uint64_t needed)
{
    if (r->n < r->max)
        r->out[r->n] = {kernel, weight, type, moved, needed};
    r->n++;
}

// All of them, where they are stacked, as long as they are not those of experts.
static void add_matrix(struct rows *r, const struct weight *w, const char *kernel, uint64_t n_out)
{
    const uint64_t n = w->n_stacked ? w->n_stacked : 1;
    // once; other blocks find it in L2
    const uint64_t io = n * ((uint64_t)w->n_cols + n_out) * sizeof(float);
    add(r, kernel, w->name, quant_info(w->type)->name,
        n * cuda_layout_bytes(w->type, w->rows, w->n_cols) + io, w->n_bytes + io);
}

// Of the experts that a token uses; each has an input of its own, or all have the same.
static void add_experts(struct rows *r, const struct weight *w, uint32_t n_used, uint32_t n_in,
                        uint64_t n_out)
{
    const uint64_t io = ((uint64_t)n_in * w->n_cols + n_out) * sizeof(float);
    add(r, "expert_row", w->name, quant_info(w->type)->name,
        n_used * cuda_layout_bytes(w->type, w->rows, w->n_cols) + io,
        w->n_bytes / (w->n_stacked ? w->n_stacked : 1) * n_used + io);
}

// Gate's product never leaves the kernel, what down gives is summed up there.
static void add_weight(struct rows *r, const struct layer *l, int k)
{
    const struct weight *w = &l->w[k];
    const uint32_t n_used = l->experts.n_used;
    if (k == ATTN_K_B || k == ATTN_V_B) // of all heads
        add_experts(r, w, l->n_head, l->n_head, (uint64_t)l->n_head * w->rows);
    else if (k == ROUTER)
        add_matrix(r, w, is_routed(w->type, w->n_cols) ? "route" : "matvec", w->rows);
    else if (k < EXPERT_GATE || k > SHARED_DOWN || k == EXPERT_LATENT_UP)
        add_matrix(r, w, "matvec", k == FFN_GATE ? 0 : w->rows);
    else if (k == EXPERT_DOWN)
        add_experts(r, w, n_used, n_used, w->rows);
    else if (w->n_stacked)
        add_experts(r, w, n_used, 1, k == EXPERT_GATE ? 0 : (uint64_t)n_used * w->rows);
    else
        add_experts(r, w, 1, 1, k == SHARED_GATE ? 0 : w->rows);
}

// What attention reads: `seen` positions of a layer's cache.
static void add_cache(struct rows *r, const struct layer *l, enum kv_type type_k,
                      enum kv_type type_v, uint64_t seen)
{
    uint64_t moved = 0, needed = 0;
    const enum kv_type types[] = {type_k, type_v};
    for (int j = 0; j < (l->latent.n_kv > 0 ? 1 : 2); j++) {
        bool f16 = types[j] == KV_F16;
        uint64_t width = f16 ? l->head_dim * 2u : l->head_dim;
        uint64_t moved_scales = f16 ? 0 : kv_groups(l->head_dim) * sizeof(uint16_t);
        uint64_t scales = f16 ? 0 : (l->head_dim + 31) / 32 * sizeof(uint16_t);
        moved += seen * l->n_head_kv * ((width + 15) / 16 * 16 + moved_scales);
        needed += seen * l->n_head_kv * (width + scales);
    }
    add(r, "attention", "kv", type_k == KV_F16 ? "F16" : "Q8_0", moved, needed);
}

// One row of it.
static void add_embedding(struct rows *r, const struct weight *w, const char *name)
{
    const uint64_t row = quant_row_bytes(w->type, w->n_cols), out = w->n_cols * sizeof(float);
    const uint64_t tiled = cuda_layout_bytes(w->type, TILE_ROWS, w->n_cols) / TILE_ROWS;
    add(r, "embed", name, quant_info(w->type)->name, tiled + out, row + out);
}

// Read, and written elsewhere.
static void add_state(struct rows *r, const struct layer *l)
{
    const uint64_t n_bytes = 2 * layer_state_size(l) * sizeof(float);
    if (l->mixer == MIXER_CONV)
        add(r, "short_conv", l->w[CONV].name, "F32", n_bytes, n_bytes);
    else
        add(r, l->mixer == MIXER_DELTA ? "delta" : "ssm", "state", "F32", n_bytes, n_bytes);
}

extern "C" size_t cuda_plan_traffic(const struct model *m, enum kv_type type_k, enum kv_type type_v,
                                    uint32_t n_past, struct engine_traffic *out, size_t max)
{
    const struct hparams *hp = &m->hp;
    struct rows r = {out, 0, max};
    add_embedding(&r, &m->tok_embd, "token_embd");
    if (m->pos_embd.data)
        add(&r, "embed", "position_embd", "F32", hp->n_embd * sizeof(float),
            hp->n_embd * sizeof(float));
    if (m->token_layers.data) {
        add_embedding(&r, &m->token_layers, m->token_layers.name);
        add_matrix(&r, &m->token_layers_proj, "matvec", m->token_layers_proj.rows);
    }
    for (uint32_t i = 0; i < hp->n_layer; i++) {
        for (int k = 0; k < N_LAYER_WEIGHTS; k++) {
            const struct layer *l = &m->layers[i];
            if (k == ATTN_OUTPUT && l->mixer == MIXER_ATTENTION)
                add_cache(&r, l, type_k, type_v, layer_seen(l, (uint64_t)n_past + 1));
            if (k == ATTN_OUTPUT && layer_state_size(l) > 0)
                add_state(&r, l);
            if (l->w[k].data && !l->w[k].vector)
                add_weight(&r, l, k);
        }
    }
    for (const struct weight *w : {&m->altup_proj, &m->altup_unembd_proj})
        if (w->data)
            add_matrix(&r, w, "matvec", w->rows);
    add_matrix(&r, &m->output, "matvec", hp->n_vocab);
    add(&r, "sampler", "logits", "F32", (uint64_t)hp->n_vocab * 4, (uint64_t)hp->n_vocab * 4);
    return r.n;
}
