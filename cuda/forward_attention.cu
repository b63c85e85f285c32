// Attention as launches, with norms, rotations and what becomes of the cache: of one token, of the
// next ones of a sequence, and of the rows of a pass.
#include "engine_impl.h"

static struct attention attention_args(const struct cuda_engine *e, const struct gpu_layer *l)
{
    const struct layer *f = l->facts;
    const struct rope *rope = &e->base.model->ropes[f->rope];
    struct attention a = {};
    a.n_head = a.n_head_out = f->n_head;
    a.n_head_kv = f->n_head_kv;
    a.head_dim = a.value_dim = f->head_dim;
    a.n_swa = f->window;
    a.chunked = f->window > 0 && f->chunked;
    a.eps = e->hp.norm_eps;
    a.q_norm = f->qk_norm == QK_NORM_BARE ? e->ones : l->v[ATTN_Q_NORM];
    a.k_norm = f->qk_norm == QK_NORM_BARE ? e->ones : l->v[ATTN_K_NORM];
    a.v_norm = f->v_normed ? e->ones : NULL;
    a.norm_stride = f->qk_norm == QK_NORM_HEADS ? f->head_dim : 0;
    a.norm_mean = e->hp.norm == NORM_LAYER && l->v[ATTN_Q_NORM];
    a.norm_whole = f->qk_norm == QK_NORM_WHOLE;
    if (cuda_norms_across(e, f)) { // done: cuda_norm_heads
        a.norm_whole = false;
        a.q_norm = a.k_norm = NULL;
    }
    a.norm_rotated = f->qk_norm_rotated;
    a.softcap = f->attn_softcap;
    a.sinks = l->v[ATTN_SINKS];
    if (!e->hp.attn_temp_unrotated || rope->layout == ROPE_NONE)
        a.temp_scale = e->hp.attn_temp_scale;
    a.temp_len = e->hp.attn_temp_len;
    a.temp_offset = e->hp.attn_temp_offset;
    a.rope_halves = rope->layout == ROPE_HALVES;
    a.rope_dim = rope->n_dim;
    a.rope = rope->layout == ROPE_NONE ? NULL : e->ropes.t[f->rope].turns;
    a.cached = f->kv_back > 0;
    a.k = (l - f->kv_back)->k_cache;
    a.v = (l - f->kv_back)->v_cache;
    a.q_scale = l->q_scale * 1.4426950408889634f * f->attn_scale;
    a.score_undo = half_range_undo(l->q_scale) * half_range_undo(a.k.scale);
    a.v_undo = half_range_undo(a.v.scale);
    a.rows = &e->s.step->at;
    a.tables = cuda_tables(e, l - f->kv_back);
    a.max_blocks = kv_blocks(e->base.n_ctx);
    a.q_in = e->s.q;
    a.k_in = e->s.k;
    a.v_in = f->w[ATTN_V].data ? e->s.v : e->s.k;
    a.gated = f->gated;
    a.ld_q = f->n_head * query_stride(&a);
    a.ld_kv = f->n_head_kv * f->head_dim;
    a.out = e->s.att;
    a.n_split_rows = e->s.n_split_rows;
    a.partial = e->s.partial;
    a.partial_bytes = e->s.partial_bytes;
    a.counters = e->s.counters;
    a.q_f16 = e->s.q_f16;
    return a;
}

static bool attend_pass(const struct cuda_engine *e, struct attention a, struct error *err)
{
    const struct cuda_pass *p = e->pass;
    const struct queue *q = cuda_queue(e, "kv");
    a.rows = e->s.rows;
    a.together = e->params.exact;
    if (a.together)
        return attention_rows_launch(q, &a, p->n_row, p->chunks, p->n_chunk, p->furthest, err);
    bool ok =
        p->n_single == 0 || attention_rows_launch(q, &a, p->n_single, NULL, 0, p->furthest, err);
    for (uint32_t i = 0; ok && i < p->n_chunk; i++) {
        struct attention chunk = attention_from_row(a, p->chunks[i].row0);
        chunk.reach = e->host_rows[p->chunks[i].row0].pos + p->chunks[i].n;
        ok = attention_prefill_launch(q, &chunk, p->chunks[i].n, err);
    }
    return ok;
}

bool cuda_attend(const struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                 const struct packed_rows *packed, struct error *err)
{
    struct attention a = attention_args(e, l);
    if (packed)
        a.packed = *packed;
    if (n == 0)
        a.skip = &e->s.step->done;
    a.reach = (uint32_t)e->n_past + n;
    return n == 0    ? attention_decode_launch(cuda_queue(e, "kv"), &a, err)
           : e->pass ? attend_pass(e, a, err)
                     : attention_prefill_launch(cuda_queue(e, "kv"), &a, n, err);
}

bool cuda_clamp(const struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                struct error *err)
{
    const struct layer *f = l->facts;
    const size_t n_q = (size_t)n * f->n_head * f->head_dim,
                 n_kv = (size_t)n * f->n_head_kv * f->head_dim;
    const struct clamp_rows c = {{e->s.q, e->s.k, e->s.v},
                                 {n_q, f->w[ATTN_K].data ? n_kv : 0, f->w[ATTN_V].data ? n_kv : 0},
                                 f->qkv_clamp};
    return !(f->qkv_clamp > 0.0f) || clamp_launch(cuda_queue(e, group_of(l, ATTN_Q)), &c, err);
}
