// Latent attention as launches (struct latent in model/model.h). Of tokens in the order of src/cpu:
// its parts, queries brought to where the cache has the latent, attention, and what heads give of
// that. Of prompts by heads with keys and values of their own (latent_heads.cu).
#include "engine_impl.h"

static bool is_latent(const struct layer *l)
{
    return l->latent.n_kv > 0;
}

static uint32_t n_rotated(const struct layer *l)
{
    return l->head_dim - l->latent.n_kv;
}

// ---- memory

// Bytes of keys, and of values, of heads at a time.
#ifdef HOKKU_CUDA_ON_CPU // so that there are several turns
enum { PLANE_ROOM = 1 };
#else
enum { PLANE_ROOM = 256 << 20 };
#endif

bool cuda_latent_in_heads(const struct cuda_engine *e, const struct layer *l)
{
    bool takes = is_latent(l) && !e->params.exact && e->params.type_k == KV_F16 &&
                 latent_head_width(l) <= ATTENTION_NARROW_HEAD_DIM &&
                 latent_heads_fit(e->q.smem_max);
    for (enum layer_weight k : {ATTN_K_B, ATTN_V_B})
        takes &= l->w[k].type != QUANT_F32 && !l->w[k].scale_each;
    return takes;
}

// Bytes of a head's keys, or values, of one position.
static uint32_t key_bytes(const struct layer *l)
{
    return (l->latent.n_key + n_rotated(l) + 7) / 8 * 16;
}
static uint32_t value_bytes(const struct layer *l)
{
    return (l->latent.n_value + 7) / 8 * 16;
}

// Rows of a head's matrix among others.
static uint32_t rows_of_head(const struct weight *w)
{
    return div_up(w->rows, (uint32_t)TILE_ROWS) * TILE_ROWS;
}

static void place_heads(struct cuda_engine *e, const struct model *m)
{
    struct latent_scratch *s = &e->latent;
    const uint64_t n_position = (uint64_t)kv_blocks(e->base.n_ctx) * KV_BLOCK;
    uint64_t one = 0, all = 0, w = 0;
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer *l = &m->layers[i];
        if (l->mixer != MIXER_ATTENTION || !cuda_latent_in_heads(e, l))
            continue;
        const uint64_t bytes = n_position * larger(key_bytes(l), value_bytes(l));
        one = larger(one, bytes);
        all = larger(all, bytes * l->n_head);
        for (enum layer_weight k : {ATTN_K_B, ATTN_V_B})
            w = larger(w, (uint64_t)l->n_head * rows_of_head(&l->w[k]) * gemm_ld(l->w[k].n_cols));
    }
    if (one == 0)
        return;
    s->plane_bytes = lesser(all, larger(one, (uint64_t)PLANE_ROOM));
    s->keys = (uint8_t *)cuda_take(&e->work, s->plane_bytes);
    s->values = (uint8_t *)cuda_take(&e->work, s->plane_bytes);
    s->heads_w = (__half *)cuda_take(&e->work, w * sizeof(__half));
    s->in_order = (uint32_t *)cuda_take(&e->work, kv_blocks(e->base.n_ctx) * sizeof(uint32_t));
}

// The rows of a product with heads' matrices, in the forms that these take.
static void add_product(uint64_t n_row, uint32_t n_cols, uint64_t *act32, uint64_t *act_f32)
{
    *act32 = larger(*act32, n_row * act_row_bytes(QUANT_Q8_0, (n_cols + 31) / 32 * 32));
    *act_f32 = larger(*act_f32, n_row * act_row_bytes(QUANT_F32, n_cols));
}

void cuda_place_latent(struct cuda_engine *e, const struct model *m)
{
    struct latent_scratch *s = &e->latent;
    const uint64_t n = e->base.n_batch;
    uint64_t q_low = 0, q = 0, key = 0, rotated = 0, brought = 0, given = 0, rows = 0, items = 0;
    uint64_t query = 0, act32 = 0, act_f32 = 0;
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer *l = &m->layers[i];
        struct attention_wide_scratch wide;
        if (!is_latent(l) || !attention_wide_scratch(l->n_head, l->head_dim, l->latent.n_kv, true,
                                                     e->base.n_ctx, &wide))
            continue;
        const uint64_t heads = n * l->n_head;
        rows = larger(rows, heads);
        items = larger(items, l->n_head * div_up(n, (uint64_t)EXPERT_FEW));
        q_low = larger(q_low, n * l->latent.n_q);
        q = larger(q, heads * (l->latent.n_key + n_rotated(l)));
        key = larger(key, heads * l->latent.n_key);
        rotated = larger(rotated, heads * n_rotated(l));
        brought = larger(brought, heads * l->latent.n_kv);
        given = larger(given, heads * l->latent.n_value);
        query = larger(query, heads * wide.key_width);
        add_product(heads, l->latent.n_key, &act32, &act_f32);
        add_product(heads, l->latent.n_kv, &act32, &act_f32);
    }
    if (rows == 0)
        return;
    struct arena *a = &e->work;
    s->q_low = (float *)cuda_take(a, q_low * sizeof(float));
    s->q = (float *)cuda_take(a, q * sizeof(float));
    s->key = (float *)cuda_take(a, key * sizeof(float));
    s->rotated = (float *)cuda_take(a, rotated * sizeof(float));
    s->brought = (float *)cuda_take(a, brought * sizeof(float));
    s->given = (float *)cuda_take(a, given * sizeof(float));
    s->query = (__half *)cuda_take(a, query * sizeof(__half));
    s->undo = (float *)cuda_take(a, rows * sizeof(float));
    s->items = (struct expert_item *)cuda_take(a, items * sizeof(struct expert_item));
    s->act32 = cuda_take(a, act32);
    s->act_f32 = cuda_take(a, act_f32);
    place_heads(e, m);
}

// ---- products of heads

// y (n_head, n, rows) = each head's matrix of weight k times x (n_head, n, n_cols), in items as
// latent_part_launch left them.
static bool multiply_heads(const struct cuda_engine *e, const struct gpu_layer *l,
                           enum layer_weight k, const float *x, float *y, uint32_t n,
                           uint32_t per_item, const uint32_t *skip, struct error *err)
{
    const struct queue *q = cuda_queue(e, name_of(l, k));
    const struct wmat *w = &l->w[k];
    const uint32_t n_head = l->facts->n_head;
    struct expert_row one = {};
    one.mode = EXPERT_STORE;
    one.w[0] = *w;
    one.n_slot = n_head;
    one.x = x;
    one.own_rows = true;
    one.y = y;
    one.skip = skip;
    if (n == 1 && !cuda_rows_alike(e, skip) && expert_row_fits(q, &one))
        return expert_row_launch(q, &one, err);
    const bool plain = is_plain_type(w);
    struct expert_rows many = {};
    many.w[0] = *w;
    many.y[0] = y;
    many.n_part = 1;
    many.n_row = n_head * n;
    many.n_used = 1;
    many.items = e->latent.items;
    many.n_item = n_head * div_up(n, per_item);
    many.per_item = per_item;
    many.act32 = e->latent.act32;
    many.act_f32 = e->latent.act_f32;
    many.skip = skip;
    return act_launch(q, x, n_head * n, w->n_cols, NULL, 0.0f, plain ? NULL : e->latent.act32,
                      plain ? e->latent.act_f32 : NULL, NULL, err) &&
           expert_rows_launch(q, &many, err);
}

static struct latent_rows rows_of(const struct cuda_engine *e, const struct gpu_layer *l,
                                  uint32_t n, const uint32_t *skip)
{
    const struct layer *f = l->facts;
    const struct latent_scratch *s = &e->latent;
    const struct rope *rope = &e->base.model->ropes[f->rope];
    struct latent_rows r = {};
    r.n = n;
    r.n_head = f->n_head;
    r.n_kv = f->latent.n_kv;
    r.n_key = f->latent.n_key;
    r.n_rotated = n_rotated(f);
    r.n_value = f->latent.n_value;
    r.rows = e->pass ? e->s.rows : &e->s.step->at;
    r.each = e->pass != NULL;
    r.kv = e->s.k;
    r.norm = l->v[ATTN_KV_A_NORM];
    r.q = s->q;
    r.eps = e->hp.norm_eps;
    r.rope = e->ropes.t[f->rope].turns;
    r.rope_halves = rope->layout == ROPE_HALVES;
    r.temp_scale = e->hp.attn_temp_scale;
    r.temp_len = e->hp.attn_temp_len;
    r.temp_offset = e->hp.attn_temp_offset;
    r.cache = l->k_cache;
    r.tables = cuda_tables(e, l);
    r.max_blocks = kv_blocks(e->base.n_ctx);
    r.key = s->key;
    r.rotated = s->rotated;
    r.items = s->items;
    // Rows of a pass are multiplied in one way however many there are: see take_turn.
    r.per_item = cuda_rows_alike(e, skip) || n > EXPERT_FEW ? EXPERT_ITEM : EXPERT_FEW;
    r.brought = s->brought;
    r.query = s->query;
    r.undo = s->undo;
    r.score = 1.4426950408889634f * f->attn_scale;
    r.skip = skip;
    return r;
}

static struct attention attention_of(const struct cuda_engine *e, const struct gpu_layer *l,
                                     const uint32_t *skip)
{
    const struct layer *f = l->facts;
    struct attention a = {};
    a.n_head = a.n_head_out = f->n_head;
    a.n_head_kv = 1;
    a.head_dim = f->head_dim;
    a.value_dim = f->latent.n_kv;
    a.n_swa = f->window;
    a.chunked = f->window > 0 && f->chunked;
    a.softcap = f->attn_softcap;
    a.k = l->k_cache;
    a.v_undo = half_range_undo(l->k_cache.scale);
    a.rows = e->pass ? e->s.rows : &e->s.step->at;
    a.tables = cuda_tables(e, l);
    a.max_blocks = kv_blocks(e->base.n_ctx);
    a.out = e->latent.brought; // whose queries have been made of it
    a.q_f16 = e->latent.query;
    a.partial = e->s.partial;
    a.partial_bytes = e->s.partial_bytes;
    a.skip = skip;
    return a;
}

// n rows, which the cache has, over what it has before them; of a pass: its first ones.
static bool attend(const struct cuda_engine *e, const struct attention *a, uint32_t n_kv,
                   uint32_t n, struct error *err)
{
    const struct cuda_pass *p = e->pass;
    const float *undo = e->latent.undo;
    return p ? attention_latent_rows_launch(&e->q, a, undo, n_kv, n, p->chunks,
                                            n == p->n_row ? p->n_chunk : 0, p->furthest, p->reach,
                                            err)
             : attention_latent_launch(&e->q, a, undo, n_kv, n, err);
}

static bool attend_by_latent(const struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                             const uint32_t *skip, struct error *err)
{
    const struct layer *f = l->facts;
    const struct latent_scratch *s = &e->latent;
    const uint32_t n_value = f->latent.n_value;
    struct attention a = attention_of(e, l, skip);
    struct latent_rows r = rows_of(e, l, n, skip);
    struct attention_wide_scratch wide;
    if (!attention_wide_scratch(f->n_head, f->head_dim, r.n_kv, true, e->base.n_ctx, &wide))
        return error_set(err, ERR_FAIL, "a latent of %u numbers has no kernel", r.n_kv);
    r.key_width = wide.key_width;
    float *given = n == 1 ? e->s.att : s->given;
    return latent_part_launch(cuda_queue(e, "kv"), &r, err) &&
           (f->latent.expands
                ? latent_transposed_launch(cuda_queue(e, name_of(l, ATTN_K_B)), &l->w[ATTN_K_B],
                                           r.n_head, s->key, n, s->brought, skip, err)
                : multiply_heads(e, l, ATTN_K_B, s->key, s->brought, n, r.per_item, skip, err)) &&
           latent_query_launch(cuda_queue(e, "kv"), &r, err) && attend(e, &a, r.n_kv, n, err) &&
           multiply_heads(e, l, ATTN_V_B, s->brought, given, n, r.per_item, skip, err) &&
           (n == 1 || heads_to_rows_launch(&e->q, given, r.n_head, n, n_value, e->s.att, err));
}

// ---- prompts

// Keys or values that heads [head0, head0 + to->n_head) have of their own, to that plane.
static bool expand(const struct cuda_engine *e, const struct gpu_layer *l, enum layer_weight k,
                   const struct latent_rows *r, uint32_t head0, uint32_t n_position,
                   const struct kv_plane *to, struct error *err)
{
    const struct layer *f = l->facts;
    const struct wmat *w = &l->w[k];
    struct wmat all = *w; // one matrix of whole tiles
    all.n_tile *= f->n_head;
    all.rows = all.n_tile * TILE_ROWS;
    struct latent_heads h = {};
    h.cache = r->cache;
    h.to = *to;
    h.rows = r->rows;
    h.tables = r->tables;
    h.max_blocks = r->max_blocks;
    h.n_position = n_position;
    h.n_kv = r->n_kv;
    h.w = e->latent.heads_w;
    h.ld = gemm_ld(w->n_cols);
    h.rows_of_head = w->n_tile * TILE_ROWS;
    h.turned = k == ATTN_K_B && !f->latent.expands;
    h.n = k == ATTN_K_B ? r->n_key : r->n_value;
    h.n_rotated = k == ATTN_K_B ? r->n_rotated : 0;
    h.rotated_factor = to->scale * half_range_undo(r->cache.scale);
    h.factor = h.rotated_factor * (half_range_undo(w->half_scale) * w->scale);
    const struct queue *q = cuda_queue(e, name_of(l, k));
    return dequant_launch(q, &all, head0 * h.rows_of_head, to->n_head * h.rows_of_head,
                          e->latent.heads_w, h.ld, err) &&
           latent_expand_launch(q, &h, err);
}

// Rows [row0, row0 + n), which follow one another in a sequence, by heads.
static bool attend_in_heads(const struct cuda_engine *e, const struct gpu_layer *l, uint32_t row0,
                            uint32_t n, struct error *err)
{
    const struct layer *f = l->facts;
    const struct latent_scratch *s = &e->latent;
    const uint32_t past = e->pass ? (uint32_t)e->host_rows[row0].pos : (uint32_t)e->n_past;
    // (kernels are loaded by asking for more than there may be)
    const uint32_t n_position = lesser(past + n, e->base.n_ctx), n_block = kv_blocks(n_position);
    struct latent_rows r = rows_of(e, l, n, NULL);
    r.rows += row0;
    r.kv += (size_t)row0 * (r.n_kv + r.n_rotated);
    r.q += (size_t)row0 * r.n_head * (r.n_key + r.n_rotated);
    r.rope += (size_t)row0 * (r.n_rotated / 2);
    r.key = NULL;
    struct kv_plane keys = {}, values = {};
    keys.data = s->keys;
    keys.row_bytes = key_bytes(f);
    keys.scale = l->head_k_scale;
    values.data = s->values;
    values.row_bytes = value_bytes(f);
    values.scale = l->head_v_scale;
    const size_t one = (size_t)n_block * KV_BLOCK * larger(keys.row_bytes, values.row_bytes);
    const uint32_t most = (uint32_t)lesser(s->plane_bytes / one, (size_t)f->n_head);
    struct attention a = attention_of(e, l, NULL);
    a.head_dim = latent_head_width(f);
    a.value_dim = r.n_value;
    a.v_undo = half_range_undo(values.scale);
    a.score_undo = half_range_undo(l->q_scale) * half_range_undo(keys.scale);
    a.rows = r.rows;
    a.tables = s->in_order;
    a.max_blocks = 0; // of all sequences
    a.reach = n_position;
    a.out = e->s.att + (size_t)row0 * f->n_head * r.n_value;
    a.counters = e->s.counters;
    a.q_f16 = e->s.q_f16;
    const uint32_t width = attention_padded_dim(a.head_dim);
    bool ok = latent_part_launch(cuda_queue(e, "kv"), &r, err);
    for (uint32_t head = 0; ok && head < f->n_head; head += most) {
        a.n_head = a.n_head_kv = keys.n_head = values.n_head = lesser(most, f->n_head - head);
        a.out_head = head;
        a.k = keys;
        a.v = values;
        ok = expand(e, l, ATTN_K_B, &r, head, n_position, &keys, err) &&
             expand(e, l, ATTN_V_B, &r, head, n_position, &values, err) &&
             latent_heads_query_launch(cuda_queue(e, "kv"), &r, head, a.n_head,
                                       l->q_scale * 1.4426950408889634f * f->attn_scale, a.q_f16,
                                       width, err) &&
             attention_prompt_launch(cuda_queue(e, "kv"), &a, n, err);
    }
    return ok;
}

bool cuda_attend_latent(const struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                        const uint32_t *skip, struct error *err)
{
    const struct cuda_pass *p = e->pass;
    if (skip || !cuda_latent_in_heads(e, l->facts))
        return attend_by_latent(e, l, n, skip, err);
    if (!p)
        return attend_in_heads(e, l, 0, n, err);
    bool ok = p->n_single == 0 || attend_by_latent(e, l, p->n_single, NULL, err);
    for (uint32_t i = 0; ok && i < p->n_chunk; i++)
        ok = attend_in_heads(e, l, p->chunks[i].row0, p->chunks[i].n, err);
    return ok;
}
