// Engines and sequences on top of a backend: every call is checked here, once for both devices.
#include <assert.h>
#include <stdlib.h>

#include "engine/asks.h"
#include "engine/room.h"
#include "engine/states.h"
#include "engine/windows.h"

bool engine_has_positions(const struct model *m, uint32_t n_ctx, struct error *err)
{
    const struct weight *w = &m->pos_embd;
    return !w->data || n_ctx <= w->rows ||
           error_set(err, ERR_USAGE,
                     "a context of %u tokens: the model has %u positions (position_embd.weight), "
                     "expected -c %u or less",
                     n_ctx, w->rows, w->rows);
}

bool engine_is_longest(const struct engine *e)
{
    const struct weight *w = &e->model->pos_embd;
    return w->data && e->n_ctx == w->rows;
}

bool engine_init(struct engine *e, struct engine_core *core, const struct backend *b,
                 size_t max_parts, uint32_t n_seqs, struct error *err)
{
    const uint32_t n = (e->n_ctx - 1) / b->kv_block + 1;
    const uint32_t n_near = windows_blocks(e->model, e->n_ctx, e->n_batch, n_seqs, b->kv_block);
    *core = (struct engine_core){.backend = b, .max_parts = max_parts, .max_draft_rows = SIZE_MAX};
    e->core = core;
    core->reach = n_near < n ? windows_reach(e->model) : 0;
    core->n_windows = windows_seqs(n_seqs);
    return kv_pool_init(&core->pool, n, err) &&
           (core->reach == 0 || kv_pool_init(&core->near, n_near, err)) &&
           (e->n_states == 0 || kv_pool_init(&core->states, e->n_states, err));
}

void engine_release(struct engine *e)
{
    if (!e->core)
        return;
    assert(!e->core->seqs && e->core->n_copies == 0); // they are freed before
    kv_pool_release(&e->core->pool);
    kv_pool_release(&e->core->near);
    kv_pool_release(&e->core->states);
}

bool engine_mask(const struct seq *s, const int32_t *drafts, size_t n, uint32_t *allow,
                 uint32_t *n_allowed, struct error *err)
{
    const uint32_t n_vocab = s->engine->model->hp.n_vocab, n_words = (n_vocab + 31) / 32;
    if (!s->mask(s->mask_user, drafts, n, allow, err))
        return false;
    if (n_vocab % 32)
        allow[n_words - 1] &= (1u << (n_vocab % 32)) - 1;
    *n_allowed = 0;
    for (uint32_t i = 0; i < n_words; i++)
        *n_allowed += (uint32_t)__builtin_popcount(allow[i]);
    return *n_allowed || error_set(err, ERR_FAIL, "no token is allowed: there is none to choose");
}

void engine_free(struct engine *e)
{
    if (e)
        e->core->backend->free(e);
}

// ---- sequences

// Room for s->n_max tokens, so that nothing is allocated while it grows.
static bool reserve(struct seq *s)
{
    const struct engine_core *c = s->engine->core;
    const size_t n_blocks = (s->n_max - 1) / c->backend->kv_block + 1;
    s->blocks = malloc((c->reach > 0 ? 2 : 1) * n_blocks * sizeof *s->blocks);
    s->near = s->blocks && c->reach > 0 ? s->blocks + n_blocks : s->blocks;
    return s->blocks && ids_reserve(&s->ids, (size_t)s->n_max + 1) && states_reserve(s);
}

static void release(struct seq *s)
{
    ids_release(&s->ids);
    ids_release(&s->stop_ids);
    hidden_release(&s->hidden);
    free(s->marks);
    free(s->blocks);
    free(s);
}

struct seq *seq_open(struct engine *e, uint32_t n_ctx_max, struct error *err)
{
    struct engine_core *c = e->core;
    uint32_t n_max = n_ctx_max ? n_ctx_max : e->n_ctx;
    if (n_max > e->n_ctx) {
        error_set(err, ERR_CONTEXT, "a sequence of %u tokens: the engine's memory holds %u", n_max,
                  e->n_ctx);
        return NULL;
    }
    struct seq *s = calloc(1, sizeof *s);
    if (s) {
        s->engine = e;
        s->n_max = n_max;
    }
    if (!s || !reserve(s)) {
        error_oom(err, "a sequence", ((size_t)n_max + 1) * sizeof(int32_t));
        if (s)
            release(s);
        return NULL;
    }
    s->sampler = sampler_defaults;
    s->state = NO_STATE;
    s->next = c->seqs;
    c->seqs = s;
    seq_new_version(s);
    return s;
}

void seq_answers_once(struct seq *s)
{
    s->once = true;
}

struct seq *seq_fork(struct seq *s, size_t n, struct error *err)
{
    struct engine_core *c = s->engine->core;
    if (n > seq_len(s)) {
        error_set(err, ERR_FAIL, "a fork after %zu tokens: the sequence has %zu", n, seq_len(s));
        return NULL;
    }
    // A run may be writing to the block that both would have.
    if (c->run == s && !engine_settle(s->engine, NULL, err))
        return NULL;
    struct seq *f = seq_open(s->engine, s->n_max, err);
    if (!f)
        return NULL;
    if (!ids_append(&f->stop_ids, s->stop_ids.data, s->stop_ids.len)) {
        error_oom(err, "the stop ids", s->stop_ids.len * sizeof(int32_t));
        seq_free(f);
        return NULL;
    }
    f->sampler = s->sampler;
    f->n_probs = s->n_probs;
    f->mask = s->mask;
    f->mask_user = s->mask_user;
    ids_append(&f->ids, s->ids.data, n); // there is room
    f->n_past = n < s->n_past ? n : s->n_past;
    states_fork(f, s);
    if (c->reach > 0)
        f->n_past = windows_back(s, f->n_past);
    for (; f->n_blocks * c->backend->kv_block < f->n_past; f->n_blocks++) {
        f->blocks[f->n_blocks] = s->blocks[f->n_blocks];
        kv_pool_share(&c->pool, f->blocks[f->n_blocks]);
    }
    if (c->reach > 0)
        windows_fork(f, s);
    return f;
}

void seq_free(struct seq *s)
{
    if (!s)
        return;
    struct engine_core *c = s->engine->core;
    seq_trim(s, 0);
    struct seq **p = &c->seqs;
    while (*p != s)
        p = &(*p)->next;
    *p = s->next;
    release(s);
}

struct engine *seq_engine(const struct seq *s)
{
    return s->engine;
}

const int32_t *seq_ids(const struct seq *s)
{
    return s->ids.data;
}

size_t seq_len(const struct seq *s)
{
    return s->ids.len - asks_count(s, true);
}

size_t seq_n_past(const struct seq *s)
{
    size_t n = seq_len(s);
    return s->n_past < n ? s->n_past : n;
}

size_t engine_free_blocks(const struct engine *e)
{
    return kv_pool_free(&e->core->pool);
}

size_t engine_blocks(const struct engine *e, size_t n)
{
    const size_t size = e->core->backend->kv_block;
    return (n + size - 1) / size;
}

size_t seq_needs_blocks(const struct seq *s, size_t n)
{
    const struct engine_core *c = s->engine->core;
    const size_t size = c->backend->kv_block, want = engine_blocks(s->engine, n);
    const bool copies = n > s->n_past && s->n_past % size > 0 &&
                        kv_pool_shared(&c->pool, s->blocks[s->n_past / size]);
    return copies + (want > s->n_blocks ? want - s->n_blocks : 0);
}

void seq_trim(struct seq *s, size_t n)
{
    struct engine_core *c = s->engine->core;
    size_t len = seq_len(s);
    if (c->run == s) {
        c->backend->pick_stop(s->engine);
        c->run = NULL;
    }
    for (size_t i = c->n_asks; i-- > 0;)
        if (c->asks[i].seq == s)
            asks_remove(c, i);
    s->ids.len = n < len ? n : len;
    room_go_back(s, s->ids.len);
    room_forget_logits(c, s);
}

bool seq_check_ids(const struct seq *s, const int32_t *ids, size_t n, struct error *err)
{
    const uint32_t n_vocab = s->engine->model->hp.n_vocab;
    size_t n_asks = asks_count(s, false);
    if (n_asks)
        return error_set(err, ERR_FAIL,
                         "%zu tokens for a sequence with %zu picks that nobody has waited for: "
                         "expected engine_wait or seq_trim first",
                         n, n_asks);
    if (n > s->n_max || s->ids.len > s->n_max - n)
        return error_set(err, ERR_CONTEXT,
                         "%zu tokens after %zu do not fit the context of %u tokens", n, s->ids.len,
                         s->n_max);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= n_vocab)
            return error_set(err, ERR_FAIL, "token id %d, expected 0 to %u", ids[i], n_vocab - 1);
    return true;
}

bool seq_append(struct seq *s, const int32_t *ids, size_t n, struct error *err)
{
    if (!seq_check_ids(s, ids, n, err))
        return false;
    // A run goes on after what was sampled, and not after these.
    if (s->engine->core->run == s && !engine_settle(s->engine, NULL, err))
        return false;
    ids_append(&s->ids, ids, n); // there is room
    return true;
}

bool seq_sampling(struct seq *s, const struct sampling *p, struct error *err)
{
    if (!sampler_check(p->sampler, s->engine->model->hp.n_vocab, err))
        return false;
    if (p->n_probs > ENGINE_MAX_PROBS)
        return error_set(err, ERR_FAIL, "%u alternatives wanted, expected at most %d", p->n_probs,
                         ENGINE_MAX_PROBS);
    if (asks_count(s, false))
        return error_set(err, ERR_FAIL,
                         "other sampling settings while picks are not waited for: expected "
                         "engine_wait or seq_trim first");
    if (s->engine->core->run == s && !engine_settle(s->engine, NULL, err))
        return false;
    ids_clear(&s->stop_ids);
    if (!ids_append(&s->stop_ids, p->stop_ids, p->n_stop_ids))
        return error_oom(err, "the stop ids", p->n_stop_ids * sizeof *p->stop_ids);
    s->sampler = *p->sampler;
    s->n_probs = p->n_probs;
    s->mask = p->mask;
    s->mask_user = p->mask_user;
    return true;
}
