// What a mixture of experts (forward_experts.cu) needs of the arena `work`.
#include "engine_impl.h"

// The largest of what the layers with experts ask for.
struct needs {
    uint64_t n_row, n_pair, logits, items, wide, out, shared_wide, latent, act32, act_f32, packed,
        shared_packed;
};

static void add_needs(struct needs *most, const struct layer *l, uint32_t n_embd, uint32_t n_batch)
{
    const struct experts *x = &l->experts;
    const uint64_t n_row = expert_rows_at_once(n_batch, x->n_used), n_pair = n_row * x->n_used;
    const uint64_t rows[] = {n_row, n_pair, n_row, n_row};
    const uint32_t cols[] = {n_embd, x->n_ff, x->n_ff_shared, x->n_latent};
    most->n_row = larger(most->n_row, n_row);
    most->n_pair = larger(most->n_pair, n_pair);
    most->logits = larger(most->logits, n_row * x->n);
    most->items = larger(most->items, expert_items(x->n, (uint32_t)n_pair, EXPERT_FEW));
    most->wide = larger(most->wide, (n_pair + 1) * x->n_ff); // with a shared one, see joins
    most->out = larger(most->out, n_pair * larger(n_embd, x->n_latent));
    most->shared_wide = larger(most->shared_wide, n_row * x->n_ff_shared);
    most->latent = larger(most->latent, n_row * x->n_latent);
    for (uint32_t n_cols : {l->w[EXPERT_UP].n_cols, x->n_ff})
        most->packed = larger(most->packed, expert_pack_bytes((uint32_t)n_pair, n_cols));
    for (uint32_t n_cols : {n_embd, x->n_ff_shared})
        if (x->n_ff_shared > 0)
            most->shared_packed =
                larger(most->shared_packed, expert_pack_bytes((uint32_t)n_row, n_cols));
    for (int i = 0; i < 4; i++) {
        most->act32 =
            larger(most->act32, rows[i] * act_row_bytes(QUANT_Q8_0, (cols[i] + 31) / 32 * 32));
        most->act_f32 = larger(most->act_f32, rows[i] * act_row_bytes(QUANT_F32, cols[i]));
    }
}

void cuda_place_experts(struct cuda_engine *e, const struct model *m)
{
    struct arena *a = &e->work;
    struct expert_scratch *s = &e->experts;
    struct needs n = {};
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        if (has_experts(&m->layers[i]))
            add_needs(&n, &m->layers[i], m->hp.n_embd, e->base.n_batch);
    if (n.n_row == 0)
        return;
    s->logits = (float *)cuda_take(a, n.logits * sizeof(float));
    s->chosen = (uint32_t *)cuda_take(a, n.n_pair * sizeof(uint32_t));
    s->weight = (float *)cuda_take(a, n.n_pair * sizeof(float));
    s->place = (uint32_t *)cuda_take(a, n.n_pair * sizeof(uint32_t));
    s->pair_at = (uint32_t *)cuda_take(a, n.n_pair * sizeof(uint32_t));
    s->rank = (uint32_t *)cuda_take(a, n.n_pair * sizeof(uint32_t));
    s->n_item = (uint32_t *)cuda_take(a, sizeof(uint32_t));
    s->items = (struct expert_item *)cuda_take(a, n.items * sizeof(struct expert_item));
    s->gate = (float *)cuda_take(a, n.wide * sizeof(float));
    s->up = (float *)cuda_take(a, n.wide * sizeof(float));
    s->out = (float *)cuda_take(a, n.out * sizeof(float));
    s->shared_gate = (float *)cuda_take(a, n.shared_wide * sizeof(float));
    s->shared_up = (float *)cuda_take(a, n.shared_wide * sizeof(float));
    s->shared_out = (float *)cuda_take(a, n.n_row * m->hp.n_embd * sizeof(float));
    s->shared_weight = (float *)cuda_take(a, n.n_row * sizeof(float));
    s->latent = n.latent ? (float *)cuda_take(a, n.latent * sizeof(float)) : NULL;
    s->act32 = cuda_take(a, n.act32);
    s->act_f32 = cuda_take(a, n.act_f32);
    if (e->q.hopper) {
        s->packed = (__half *)cuda_take(a, n.packed);
        s->undo = (float *)cuda_take(a, n.n_pair * sizeof(float));
        s->shared_packed = (__half *)cuda_take(a, n.shared_packed);
        s->shared_undo = (float *)cuda_take(a, n.n_row * sizeof(float));
        const uint32_t n_few = (uint32_t)lesser(n.n_row, (uint64_t)EXPERT_FEW_MOST);
        s->few = (__half *)cuda_take(a, expert_pack_bytes(n_few, m->hp.n_embd));
        s->few_undo = (float *)cuda_take(a, n_few * sizeof(float));
        s->few_tops = (uint32_t *)cuda_take(a, n.n_pair * sizeof(uint32_t));
    }
}
