// Sequences and work on top of a backend: every call is checked here, once for both devices. What
// the device is asked for and has not told yet is kept in core->asks.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend.h"

bool engine_init(struct engine *e, struct engine_core *core, const struct backend *b,
                 struct error *err)
{
    *core = (struct engine_core){.backend = b};
    e->core = core;
    return kv_pool_init(&core->pool, (e->n_ctx - 1) / b->kv_block + 1, err);
}

void engine_release(struct engine *e)
{
    if (!e->core)
        return;
    assert(!e->core->seqs); // they are freed before
    kv_pool_release(&e->core->pool);
}

bool engine_mask(const struct seq *s, uint32_t *allow, uint32_t *n_allowed, struct error *err)
{
    const uint32_t n_vocab = s->engine->model->hp.n_vocab, n_words = (n_vocab + 31) / 32;
    if (!s->mask(s->mask_user, allow, err))
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

// ---- picks asked for

static size_t count_asks(const struct seq *s, bool only_done)
{
    const struct engine_core *c = s->engine->core;
    size_t n = 0;
    for (size_t i = 0; i < c->n_asks; i++)
        n += c->asks[i].seq == s && (!only_done || (c->asks[i].done && !c->asks[i].error.code));
    return n;
}

static void remove_ask(struct engine_core *c, size_t i)
{
    c->n_asks--;
    memmove(&c->asks[i], &c->asks[i + 1], (c->n_asks - i) * sizeof *c->asks);
}

static bool is_stop(const struct seq *s, int32_t id)
{
    for (size_t i = 0; i < s->stop_ids.len; i++)
        if (s->stop_ids.data[i] == id)
            return true;
    return false;
}

static struct ask *oldest_undone(struct engine_core *c)
{
    for (size_t i = 0; i < c->n_asks; i++)
        if (!c->asks[i].done)
            return &c->asks[i];
    return NULL;
}

// No more picks of this run will come: those asked for get this error.
static void end_run(struct engine_core *c, const struct error *why)
{
    c->over = true;
    for (struct ask *a; (a = oldest_undone(c)) != NULL; a->done = true)
        a->error = *why;
}

// Takes the result of the oldest pick under way; false only when interrupted.
static bool take(struct engine *e, struct ask *a, const struct cancel *cancel, struct error *err)
{
    struct engine_core *c = e->core;
    struct seq *s = a->seq;
    struct error mine = {0};
    if (!c->backend->pick_take(e, s, a->evaluate, cancel, &a->d, &mine)) {
        if (mine.code == ERR_INTERRUPTED) {
            if (err)
                *err = mine;
            return false;
        }
        end_run(c, &mine);
        return true;
    }
    s->n_past += a->evaluate;
    a->done = true;
    ids_push(&s->ids, a->d.id); // there is room
    if (is_stop(s, a->d.id)) {
        error_set(&mine, ERR_FAIL, "nothing was sampled after the stop id %d", a->d.id);
        end_run(c, &mine);
    }
    return true;
}

// Ends the run of picks: what was asked for is known then.
static bool settle(struct engine *e, const struct cancel *cancel, struct error *err)
{
    struct engine_core *c = e->core;
    for (struct ask *a; (a = oldest_undone(c)) != NULL;)
        if (!take(e, a, cancel, err))
            return false;
    if (c->run)
        c->backend->pick_stop(e);
    c->run = NULL;
    return true;
}

static void add_ask(struct engine_core *c, struct seq *s, uint64_t ticket, bool evaluate)
{
    struct ask *a = &c->asks[c->n_asks++];
    a->ticket = ticket;
    a->seq = s;
    a->evaluate = evaluate;
    a->done = false;
    a->error.code = ERR_NONE;
}

// ---- memory

static void new_version(struct seq *s)
{
    s->version = ++s->engine->core->versions;
}

// Gives back what is not needed for the evaluated positions.
static void give_blocks(struct seq *s)
{
    struct engine_core *c = s->engine->core;
    size_t keep = (s->n_past + c->backend->kv_block - 1) / c->backend->kv_block;
    while (s->n_blocks > keep)
        kv_pool_give(&c->pool, s->blocks[--s->n_blocks]);
}

static void forget_logits(struct engine_core *c, const struct seq *s)
{
    if (c->logits_of == s)
        c->logits_of = NULL;
}

// Gives back the memory of the youngest sequence but s and those of the same submit.
static bool pause_another(const struct seq *s, struct error *err)
{
    struct engine_core *c = s->engine->core;
    for (struct seq *q = c->seqs; q; q = q->next) {
        if (q == s || q->at_work || q->n_blocks == 0)
            continue;
        assert(c->run != q); // whoever needs memory is the one that runs, or nobody does
        forget_logits(c, q);
        q->n_past = 0;
        give_blocks(q);
        return true;
    }
    return error_set(err, ERR_CONTEXT,
                     "the memory for %u tokens is full, and what has it is needed for this work: "
                     "use a larger -c",
                     s->engine->n_ctx);
}

// The block that s is in the midst of becomes its own.
static bool own_block(struct seq *s, struct error *err)
{
    struct engine_core *c = s->engine->core;
    const size_t used = s->n_past % c->backend->kv_block;
    uint32_t *own = &s->blocks[s->n_past / c->backend->kv_block], block;
    while (used && kv_pool_shared(&c->pool, *own)) {
        if (!kv_pool_take(&c->pool, &block)) {
            if (!pause_another(s, err))
                return false;
            continue; // perhaps who shared it
        }
        if (!c->backend->kv_copy(s->engine, *own, block, used, err)) {
            kv_pool_give(&c->pool, block);
            return false;
        }
        kv_pool_give(&c->pool, *own);
        *own = block;
        new_version(s);
    }
    return true;
}

// Blocks for positions [n_past, end), that s alone writes to.
static bool make_room(struct seq *s, size_t end, struct error *err)
{
    struct engine_core *c = s->engine->core;
    if (!own_block(s, err))
        return false;
    while (s->n_blocks * (uint64_t)c->backend->kv_block < end) {
        if (kv_pool_take(&c->pool, &s->blocks[s->n_blocks])) {
            s->n_blocks++;
            new_version(s);
        } else if (!pause_another(s, err)) {
            return false;
        }
    }
    return true;
}

// ---- sequences

struct seq *seq_open(struct engine *e, uint32_t n_ctx_max, struct error *err)
{
    struct engine_core *c = e->core;
    uint32_t n_max = n_ctx_max ? n_ctx_max : e->n_ctx;
    if (n_max > e->n_ctx) {
        error_set(err, ERR_CONTEXT, "a sequence of %u tokens: the engine's memory holds %u", n_max,
                  e->n_ctx);
        return NULL;
    }
    size_t n_blocks = (n_max - 1) / c->backend->kv_block + 1;
    struct seq *s = calloc(1, sizeof *s);
    uint32_t *blocks = s ? malloc(n_blocks * sizeof *blocks) : NULL;
    if (!blocks || !ids_reserve(&s->ids, (size_t)n_max + 1)) {
        error_oom(err, "a sequence", ((size_t)n_max + 1) * sizeof(int32_t));
        free(blocks);
        free(s);
        return NULL;
    }
    s->engine = e;
    s->n_max = n_max;
    s->sampler = sampler_defaults;
    s->blocks = blocks;
    s->next = c->seqs;
    c->seqs = s;
    new_version(s);
    return s;
}

struct seq *seq_fork(struct seq *s, size_t n, struct error *err)
{
    struct engine_core *c = s->engine->core;
    if (n > seq_len(s)) {
        error_set(err, ERR_FAIL, "a fork after %zu tokens: the sequence has %zu", n, seq_len(s));
        return NULL;
    }
    // A run may be writing to the block that both would have.
    if (c->run == s && !settle(s->engine, NULL, err))
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
    for (; f->n_blocks * c->backend->kv_block < f->n_past; f->n_blocks++) {
        f->blocks[f->n_blocks] = s->blocks[f->n_blocks];
        kv_pool_share(&c->pool, f->blocks[f->n_blocks]);
    }
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
    ids_release(&s->ids);
    ids_release(&s->stop_ids);
    free(s->blocks);
    free(s);
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
    return s->ids.len - count_asks(s, true);
}

size_t seq_n_past(const struct seq *s)
{
    size_t n = seq_len(s);
    return s->n_past < n ? s->n_past : n;
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
            remove_ask(c, i);
    s->ids.len = n < len ? n : len;
    if (s->n_past > s->ids.len)
        s->n_past = s->ids.len;
    give_blocks(s);
    forget_logits(c, s);
}

// Whether n tokens can be appended now.
static bool check_ids(const struct seq *s, const int32_t *ids, size_t n, struct error *err)
{
    const uint32_t n_vocab = s->engine->model->hp.n_vocab;
    size_t n_asks = count_asks(s, false);
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
    if (!check_ids(s, ids, n, err))
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
    if (count_asks(s, false))
        return error_set(err, ERR_FAIL,
                         "other sampling settings while picks are not waited for: expected "
                         "engine_wait or seq_trim first");
    if (s->engine->core->run == s && !settle(s->engine, NULL, err))
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

// ---- work

// Evaluates all of s that is not yet, in chunks; of the last n_logits rows the logits can be had.
static bool evaluate(struct seq *s, size_t n_logits, const struct cancel *cancel, struct error *err)
{
    struct engine *e = s->engine;
    struct engine_core *c = e->core;
    c->logits_of = NULL;
    if (!make_room(s, s->ids.len, err))
        return false;
    while (s->n_past < s->ids.len) {
        size_t rest = s->ids.len - s->n_past, n = rest < e->n_batch ? rest : e->n_batch;
        enum engine_logits want = LOGITS_NONE;
        if (n_logits > 1 && rest > n_logits)
            n = n < rest - n_logits ? n : rest - n_logits; // those rows come in one chunk
        else if (n == rest && n_logits > 0)
            want = n_logits > 1 ? LOGITS_ALL : LOGITS_LAST;
        if (cancel_asked(cancel))
            return error_set(err, ERR_INTERRUPTED, "interrupted");
        if (!c->backend->eval(e, s, s->ids.data + s->n_past, n, want, cancel, err))
            return false;
        s->n_past += n;
    }
    c->logits_of = n_logits ? s : NULL;
    c->n_logits = n_logits;
    return true;
}

static bool check_work(const struct work *w, const struct engine *e, struct error *err)
{
    if (w->seq->engine != e)
        return error_set(err, ERR_FAIL, "work for a sequence of another engine");
    if (!w->ids && w->n > 1)
        return error_set(err, ERR_FAIL, "work of %zu rows without ids: expected 0 or 1", w->n);
    if (w->n_pick > 1 || (w->n == 0 && w->n_pick == 0))
        return error_set(err, ERR_FAIL, "work of %zu rows with %u picks: expected %s", w->n,
                         w->n_pick, w->n ? "0 or 1" : "1");
    if (w->n_logits > w->n || w->n_logits > e->n_batch)
        return error_set(err, ERR_FAIL, "logits of %u rows of %zu wanted: a batch has %u",
                         w->n_logits, w->n, e->n_batch);
    if (w->n_pick && w->seq->mask && count_asks(w->seq, false))
        return error_set(err, ERR_FAIL,
                         "a pick under a mask depends on the one before: expected engine_wait "
                         "first");
    if (e->core->n_asks + w->n_pick > ENGINE_MAX_ASKS)
        return error_set(err, ERR_FAIL, "more than %d picks that nobody has waited for",
                         ENGINE_MAX_ASKS);
    return true;
}

// The token that the device has just sampled, or is about to, and the pick after it.
static bool go_on(struct seq *s, uint64_t ticket, struct error *err)
{
    struct engine_core *c = s->engine->core;
    size_t ahead = count_asks(s, false) - count_asks(s, true), end = s->ids.len + ahead;
    if (ahead > ENGINE_RUN_AHEAD)
        return error_set(err, ERR_FAIL,
                         "%zu picks of a sequence are under way: expected %d at most", ahead,
                         ENGINE_RUN_AHEAD);
    if (end > s->n_max)
        return error_set(err, ERR_CONTEXT,
                         "another token after %zu does not fit the context of %u tokens", end,
                         s->n_max);
    c->logits_of = NULL;
    if (!make_room(s, end, err) || !c->backend->pick_next(s->engine, s, err))
        return false;
    add_ask(c, s, ticket, true);
    return true;
}

// Whether s has a token that was sampled and is not evaluated, and room for another.
static bool check_sampled(const struct seq *s, struct error *err)
{
    if (s->n_past == s->ids.len)
        return error_set(err, ERR_FAIL, "nothing was sampled that is not evaluated yet");
    if (s->ids.len > s->n_max)
        return error_set(err, ERR_CONTEXT,
                         "another token after %u does not fit the context of %u tokens", s->n_max,
                         s->n_max);
    return true;
}

static bool submit(struct engine *e, const struct work *w, uint64_t ticket,
                   const struct cancel *cancel, struct error *err)
{
    struct engine_core *c = e->core;
    struct seq *s = w->seq;
    if (!w->ids && w->n == 1 && w->n_pick == 1 && w->n_logits == 0 && c->run == s && !c->over)
        return go_on(s, ticket, err);
    if (!settle(e, cancel, err))
        return false;
    const size_t before = s->ids.len;
    if (w->ids && !seq_append(s, w->ids, w->n, err))
        return false;
    if (w->n > 0) {
        if (!check_sampled(s, err))
            return false;
        size_t n_logits = w->n_logits > w->n_pick ? w->n_logits : w->n_pick;
        if (!evaluate(s, n_logits, cancel, err)) {
            s->ids.len = s->n_past > before ? s->n_past : before;
            give_blocks(s);
            return false;
        }
    }
    if (w->n_pick == 0)
        return true;
    if (c->logits_of != s || s->n_past != s->ids.len)
        return error_set(err, ERR_FAIL,
                         "a pick needs the logits of the sequence's last token: evaluate it first");
    if (!c->backend->pick_start(e, s, err))
        return false;
    c->run = s;
    c->over = false;
    add_ask(c, s, ticket, false);
    return true;
}

size_t engine_max_parts(const struct engine *e)
{
    return e->core->backend->eval_parts ? ENGINE_MAX_PARTS : 1;
}

// How many of the n works, from the first on, can be one pass: of different sequences, with rows
// of which no logits are asked for, that fit a batch.
static size_t count_parts(const struct engine *e, const struct work *w, size_t n)
{
    size_t n_parts = 0, n_rows = 0;
    for (; n_parts < n && n_parts < engine_max_parts(e); n_parts++) {
        const struct work *p = &w[n_parts];
        if (p->seq->engine != e || p->n == 0 || p->n_logits > 0 || count_asks(p->seq, false))
            break;
        for (size_t i = 0; i < n_parts; i++)
            if (w[i].seq == p->seq)
                return n_parts;
        n_rows += p->seq->ids.len + (p->ids ? p->n : 0) - p->seq->n_past;
        if (n_rows > e->n_batch)
            break;
    }
    return n_parts;
}

// Evaluates what parts' sequences have that is not yet; what it is then stays.
static bool eval_parts(struct engine *e, const struct work *w, size_t n,
                       const struct cancel *cancel, struct error *err)
{
    struct engine_core *c = e->core;
    c->logits_of = NULL;
    for (size_t i = 0; i < n; i++) {
        struct seq *s = w[i].seq;
        if (!make_room(s, s->ids.len, err))
            return false;
        c->parts[i].ids = s->ids.data + s->n_past;
        c->parts[i].n = s->ids.len - s->n_past;
    }
    if (cancel_asked(cancel))
        return error_set(err, ERR_INTERRUPTED, "interrupted");
    if (!c->backend->eval_parts(e, c->parts, n, cancel, err))
        return false;
    for (size_t i = 0; i < n; i++)
        w[i].seq->n_past = w[i].seq->ids.len;
    return true;
}

// Works that count_parts has counted. All of them are done, or none.
static bool submit_parts(struct engine *e, const struct work *w, size_t n, uint64_t ticket,
                         const struct cancel *cancel, struct error *err)
{
    struct engine_core *c = e->core;
    size_t n_appended = 0;
    bool ok = settle(e, cancel, err);
    for (size_t i = 0; ok && i < n; i++) {
        struct seq *s = w[i].seq;
        c->parts[i] = (struct engine_part){.seq = s, .pick = w[i].n_pick == 1};
        ok = check_work(&w[i], e, err) &&
             (w[i].ids ? seq_append(s, w[i].ids, w[i].n, err) : check_sampled(s, err));
        n_appended += ok;
    }
    ok = ok && eval_parts(e, w, n, cancel, err);
    for (size_t i = 0; !ok && i < n_appended; i++) {
        struct seq *s = w[i].seq;
        s->ids.len -= w[i].ids ? w[i].n : 0;
        give_blocks(s);
    }
    for (size_t i = 0; ok && i < n; i++) {
        const struct engine_part *p = &c->parts[i];
        if (!p->pick)
            continue;
        add_ask(c, w[i].seq, ticket, true);
        struct ask *a = &c->asks[c->n_asks - 1];
        a->done = true;
        a->d = p->d;
        a->error = p->error;
        if (p->error.code == ERR_NONE)
            ids_push(&w[i].seq->ids, p->d.id); // there is room
    }
    return ok;
}

bool engine_submit(struct engine *e, const struct work *w, size_t n, const struct cancel *cancel,
                   uint64_t *ticket, struct error *err)
{
    const uint64_t number = ++e->core->tickets;
    bool ok = true;
    if (ticket)
        *ticket = number;
    for (size_t i = 0; i < n; i++)
        w[i].seq->at_work = true;
    for (size_t i = 0; ok && i < n;) {
        const size_t n_parts = count_parts(e, w + i, n - i);
        if (n_parts > 1)
            ok = submit_parts(e, w + i, n_parts, number, cancel, err);
        else
            ok = check_work(&w[i], e, err) && submit(e, &w[i], number, cancel, err);
        i += n_parts > 1 ? n_parts : 1;
    }
    for (size_t i = 0; i < n; i++)
        w[i].seq->at_work = false;
    return ok;
}

bool engine_wait(struct engine *e, uint64_t ticket, const struct cancel *cancel,
                 struct decoded *picks, struct error *err)
{
    struct engine_core *c = e->core;
    size_t n = 0;
    bool ok = true;
    for (size_t i = 0; i < c->n_asks; i++) {
        if (c->asks[i].ticket != ticket)
            continue;
        n++;
        while (!c->asks[i].done)
            if (!take(e, oldest_undone(c), cancel, err))
                return false;
    }
    if (n == 0)
        return error_set(err, ERR_FAIL,
                         "ticket %llu: nothing is to come (waited for before, or cut off)",
                         (unsigned long long)ticket);
    for (size_t i = 0; i < c->n_asks;) {
        const struct ask *a = &c->asks[i];
        if (a->ticket != ticket) {
            i++;
            continue;
        }
        if (ok && a->error.code != ERR_NONE && err)
            *err = a->error;
        *picks = a->d;
        if (a->error.code != ERR_NONE)
            *picks = (struct decoded){.id = -1};
        picks++;
        ok = ok && a->error.code == ERR_NONE;
        remove_ask(c, i);
    }
    return ok;
}

bool seq_logits(struct seq *s, size_t i, const struct cancel *cancel, float *out, struct error *err)
{
    struct engine_core *c = s->engine->core;
    size_t n = c->logits_of == s ? c->n_logits : 0;
    if (i >= n)
        return error_set(err, ERR_FAIL, "logits of row %zu: the last work left %zu", i, n);
    struct error mine = {0};
    if (settle(s->engine, cancel, &mine) && c->backend->logits(s->engine, s, i, cancel, out, &mine))
        return true;
    if (mine.code != ERR_INTERRUPTED)
        c->logits_of = NULL;
    if (err)
        *err = mine;
    return false;
}

// ---- keys and values as bytes

size_t engine_kv_bytes(const struct engine *e, size_t begin, size_t end)
{
    return begin < end ? e->core->backend->kv_bytes(e, begin, end) : 0;
}

bool seq_export(struct seq *s, size_t begin, size_t end, void *dst, struct error *err)
{
    if (begin > end || end > seq_n_past(s))
        return error_set(err, ERR_FAIL, "KV cache of positions %zu to %zu: %zu are evaluated",
                         begin, end, seq_n_past(s));
    return settle(s->engine, NULL, err) &&
           (begin == end ||
            s->engine->core->backend->kv_export(s->engine, s, begin, end, dst, err));
}

bool seq_import(struct seq *s, const int32_t *ids, size_t n, const void *src, struct error *err)
{
    struct engine_core *c = s->engine->core;
    if (!check_ids(s, ids, n, err))
        return false;
    if (s->n_past != s->ids.len)
        return error_set(err, ERR_FAIL,
                         "KV cache of positions %zu to %zu: expected to go on at %zu", s->ids.len,
                         s->ids.len + n, s->n_past);
    if (!settle(s->engine, NULL, err))
        return false;
    ids_append(&s->ids, ids, n); // there is room
    forget_logits(c, s);
    s->at_work = true;
    bool ok = n == 0 || (make_room(s, s->ids.len, err) &&
                         c->backend->kv_import(s->engine, s, s->n_past, s->ids.len, src, err));
    s->at_work = false;
    if (ok)
        s->n_past = s->ids.len;
    else
        s->ids.len = s->n_past;
    give_blocks(s);
    return ok;
}

// ---- engine/measure.h

bool engine_measure(struct engine *e, struct engine_peaks *out, struct error *err)
{
    *out = (struct engine_peaks){0};
    if (!e->core->backend->measure)
        return true;
    e->core->logits_of = NULL;
    return settle(e, NULL, err) && e->core->backend->measure(e, out, err);
}

bool engine_can_profile(const struct engine *e)
{
    return e->core->backend->profile != NULL;
}

bool engine_profile(struct seq *s, const int32_t *tokens, size_t n, uint32_t n_run,
                    const struct cancel *cancel, struct engine_profile *out, struct error *err)
{
    struct engine *e = s->engine;
    struct engine_core *c = e->core;
    *out = (struct engine_profile){0};
    if (!engine_can_profile(e))
        return error_set(err, ERR_FAIL, "%s cannot time its kernels one by one", e->device);
    if (n == 0 || n > e->n_batch || n_run == 0)
        return error_set(err, ERR_FAIL, "a profile of %zu tokens in %u runs: expected 1 to %u", n,
                         n_run, e->n_batch);
    if (s->n_past != s->ids.len)
        return error_set(err, ERR_FAIL, "a profile after %zu tokens, of which %zu are evaluated",
                         s->ids.len, s->n_past);
    if (!settle(e, cancel, err) || !check_ids(s, tokens, n, err))
        return false;
    c->logits_of = NULL;
    bool ok = make_room(s, s->n_past + n, err) &&
              c->backend->profile(e, s, tokens, n, n_run, cancel, out, err);
    give_blocks(s);
    return ok;
}
