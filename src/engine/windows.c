#include "engine/windows.h"

// Positions that are kept behind a window, at most: an answer that is no longer is taken back
// without evaluating anything again.
enum { MOST_BEHIND = 1024 };

// ---- how much

// The layer whose keys and values layer i attends with.
static uint32_t owner(const struct model *m, uint32_t i)
{
    while (m->layers[i].kv_back > 0)
        i -= m->layers[i].kv_back;
    return i;
}

bool windows_layer(const struct model *m, uint32_t i)
{
    const uint32_t of = owner(m, i);
    for (uint32_t j = 0; j < m->hp.n_layer; j++)
        if (layer_state_size(&m->layers[j]) > 0 || (owner(m, j) == of && m->layers[j].window == 0))
            return false;
    return true;
}

uint32_t windows_reach(const struct model *m)
{
    uint32_t reach = 0;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        if (m->layers[i].window > reach && windows_layer(m, i))
            reach = m->layers[i].window;
    return reach;
}

uint32_t windows_seqs(uint32_t n_seqs)
{
    return n_seqs > 1 ? 2 * n_seqs : 1;
}

static uint64_t blocks_of(uint64_t n, uint32_t kv_block)
{
    return (n + kv_block - 1) / kv_block;
}

// A pass of so many sequences has n_batch rows in all, and a piece of a saved one ENGINE_KV_PIECE.
// What a sequence sees and what its turn began with are apart when a turn is long, and either
// begins and ends within a block: two more.
uint32_t windows_blocks(const struct model *m, uint32_t n_ctx, uint32_t n_batch, uint32_t n_seqs,
                        uint32_t kv_block)
{
    const uint64_t reach = windows_reach(m), behind = reach < MOST_BEHIND ? reach : MOST_BEHIND;
    const uint64_t all = blocks_of(n_ctx, kv_block);
    const uint64_t each = blocks_of(reach, kv_block) + blocks_of(behind, kv_block) + 2;
    const uint64_t most = n_batch > ENGINE_KV_PIECE ? n_batch : ENGINE_KV_PIECE;
    const uint64_t rows = most < n_ctx ? most : n_ctx;
    const uint64_t n = windows_seqs(n_seqs) * each + blocks_of(rows, kv_block);
    return (uint32_t)(reach == 0 || n > all ? all : n);
}

void windows_plan(const struct model *m, uint32_t n_batch, uint32_t n_seqs, uint32_t kv_block,
                  struct engine_plan *plan)
{
    const uint64_t n =
        (uint64_t)windows_blocks(m, plan->n_ctx, n_batch, n_seqs, kv_block) * kv_block;
    plan->n_near = 0;
    plan->near_ctx = (uint32_t)(n < plan->n_ctx ? n : 0);
    for (uint32_t i = 0; plan->near_ctx > 0 && i < m->hp.n_layer; i++)
        plan->n_near += windows_layer(m, i) && m->layers[i].kv_back == 0;
}

// ---- which

static size_t blocks_for(const struct seq *s, size_t n)
{
    return blocks_of(n, s->engine->core->backend->kv_block);
}

// The first block that the token at pos sees, or a later one.
static size_t first_seen(const struct seq *s, size_t pos)
{
    const struct engine_core *c = s->engine->core;
    return (pos + 1 > c->reach ? pos + 1 - c->reach : 0) / c->backend->kv_block;
}

void windows_give(struct seq *s, size_t i)
{
    if (s->near[i] == NO_BLOCK)
        return;
    kv_pool_give(&s->engine->core->near, s->near[i]);
    s->near[i] = NO_BLOCK;
    seq_new_version(s);
}

// Drops a block of any sequence that no token to come sees; of a turn's beginning only when asked
// to. (Somebody else may still have it.)
static bool drop_one(struct engine_core *c, bool beginnings)
{
    for (struct seq *q = c->seqs; q; q = q->next) {
        const size_t n = q->n_imported > q->n_past ? q->n_imported : q->n_past;
        const size_t from = first_seen(q, q->turn), to = blocks_for(q, q->turn);
        for (size_t i = 0; i < q->n_blocks && i < first_seen(q, n); i++) {
            if (q->near[i] == NO_BLOCK || (i >= from && i < to && !beginnings))
                continue;
            windows_give(q, i);
            return true;
        }
    }
    return false;
}

bool windows_block(struct engine_core *c, uint32_t *block)
{
    while (!kv_pool_take(&c->near, block))
        if (!drop_one(c, false) && !drop_one(c, true))
            return false;
    return true;
}

bool windows_take(struct seq *s, size_t begin, size_t end)
{
    const size_t size = s->engine->core->backend->kv_block;
    for (size_t i = begin / size; i < blocks_for(s, end); i++) {
        uint32_t block;
        if (s->near[i] != NO_BLOCK)
            continue;
        if (!windows_block(s->engine->core, &block))
            return false;
        s->near[i] = block;
        seq_new_version(s);
    }
    return true;
}

size_t windows_back(const struct seq *s, size_t n)
{
    for (size_t i = blocks_for(s, n); i > first_seen(s, n); i--)
        if (s->near[i - 1] == NO_BLOCK)
            n = (i - 1) * s->engine->core->backend->kv_block;
    return n;
}

void windows_fork(struct seq *f, const struct seq *s)
{
    for (size_t i = 0; i < f->n_blocks; i++) {
        f->near[i] = s->near[i];
        if (f->near[i] != NO_BLOCK)
            kv_pool_share(&s->engine->core->near, f->near[i]);
    }
    f->turn = s->turn;
    f->given = s->given;
}

void windows_turn(struct seq *s)
{
    if (s->n_past > s->given || s->n_past < s->turn)
        s->turn = s->n_past;
}
