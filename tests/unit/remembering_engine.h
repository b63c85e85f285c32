// An engine whose memory can be looked at: a position holds, in the place of keys and values, a
// hash of the text up to there, a recurrent state the same, and what is sampled depends on that of
// the last token. Whatever it evaluates, it first looks whether all that the rows see is where the
// sequence's tables say, and that nobody else has what they write. It works ahead as a device does.
#ifndef HOKKU_TESTS_UNIT_REMEMBERING_ENGINE_H
#define HOKKU_TESTS_UNIT_REMEMBERING_ENGINE_H

#include "base/hash.h"
#include "engine/backend.h"
#include "engine/states.h"

enum { REM_BLOCK = 4, REM_VOCAB = 50, REM_STOP = 7, REM_NOTHING = 99, REM_TABLE = 2048 };

struct rem_state {
    uint64_t text;
    size_t n;
};

struct remembering {
    struct engine base;
    struct engine_core core;
    struct backend backend;
    struct model model;
    struct layer layers[2]; // sees all; sees a window, if there is one, or has a state
    uint64_t *kv[2];        // (n_blocks * REM_BLOCK): far, near
    struct rem_state *states;
    uint64_t rows[8192]; // of the last pass, the text up to each
    size_t part_rows[8]; // and the first of each part
    // A run of picks: what the device has evaluated, and what it has sampled and not told.
    struct rem_state run;
    int32_t sampled[1 + ENGINE_RUN_AHEAD], last;
    size_t n_sampled;
    uint32_t fails_in; // so many passes later one does not come to its end; 0: none
    enum error_code fails_how;
    bool copy_fails, export_fails, import_fails;
    size_t n_exported, n_imported; // states
    struct {                       // what the device has read of tables, and does not read again
        uint64_t version;
        uint32_t blocks[2][REM_TABLE];
        size_t n;
    } tables[8];
    size_t n_evaluated; // rows, ever
    size_t n_passes;    // of rows
};

static inline struct remembering *rem_of(const struct engine *e)
{
    return (struct remembering *)(uintptr_t)e;
}

static inline uint64_t rem_text(uint64_t before, int32_t id)
{
    return hash_u64(before + 1, (uint64_t)id + 12345);
}

static inline uint64_t rem_text_of(const int32_t *ids, size_t n)
{
    uint64_t h = 0;
    for (size_t i = 0; i < n; i++)
        h = rem_text(h, ids[i]);
    return h;
}

static inline int32_t rem_sample(uint64_t text)
{
    return (int32_t)((text >> 20) % REM_VOCAB);
}

static inline bool rem_has_windows(const struct engine *e)
{
    return rem_of(e)->layers[1].window > 0;
}

// Where layers of a kind have a position of s.
static inline uint64_t *rem_at(const struct seq *s, bool near, size_t pos)
{
    const uint32_t block = (near ? s->near : s->blocks)[pos / REM_BLOCK];
    assert_int_not_equal(block, NO_BLOCK);
    return &rem_of(s->engine)->kv[near][block * REM_BLOCK + pos % REM_BLOCK];
}

// The text before position n is where the token there sees it.
static inline void rem_check_seen(const struct seq *s, const int32_t *ids, size_t n)
{
    const uint32_t window = rem_of(s->engine)->layers[1].window;
    uint64_t h = 0;
    for (size_t i = 0; i < n; i++) {
        h = rem_text(h, ids[i]);
        assert_true(*rem_at(s, false, i) == h);
        if (window > 0 && i + window > n)
            assert_true(*rem_at(s, true, i) == h);
    }
}

// As a device that copies a table once for each of its versions sees them.
static inline void rem_check_tables(struct remembering *e, const struct seq *s)
{
    const size_t k = s->version % 8, n = s->n_blocks;
    assert_true(n <= REM_TABLE);
    if (e->tables[k].version != s->version) {
        e->tables[k].version = s->version;
        e->tables[k].n = n;
        memcpy(e->tables[k].blocks[0], s->blocks, n * sizeof *s->blocks);
        memcpy(e->tables[k].blocks[1], s->near, n * sizeof *s->near);
    }
    assert_true(n <= e->tables[k].n);
    assert_memory_equal(e->tables[k].blocks[0], s->blocks, n * sizeof *s->blocks);
    assert_memory_equal(e->tables[k].blocks[1], s->near, n * sizeof *s->near);
}

static inline void rem_check_state(const struct remembering *e, uint32_t slot, uint64_t text,
                                   size_t n)
{
    if (n == 0) {
        assert_int_equal(slot, NO_STATE);
        return;
    }
    assert_true(slot < e->base.n_states && e->core.states.n_users[slot] > 0);
    assert_true(e->states[slot].text == text && e->states[slot].n == n);
}

static inline void rem_write(const struct seq *s, size_t pos, uint64_t text)
{
    struct engine_core *c = s->engine->core;
    assert_true(pos / REM_BLOCK < s->n_blocks);
    assert_int_equal(c->pool.n_users[s->blocks[pos / REM_BLOCK]], 1);
    *rem_at(s, false, pos) = text;
    if (!rem_has_windows(s->engine))
        return;
    assert_int_equal((c->reach > 0 ? &c->near : &c->pool)->n_users[s->near[pos / REM_BLOCK]], 1);
    *rem_at(s, true, pos) = text;
}

// Rows of s from where it is, behind row0 others of the pass; to: a slot, where there are states.
static inline bool rem_rows(struct remembering *e, const struct seq *s, size_t row0,
                            const int32_t *ids, size_t n, struct error *err)
{
    uint64_t h = rem_text_of(s->ids.data, s->n_past);
    const bool fails = e->fails_in > 0 && --e->fails_in == 0;
    assert_true(n > 0 && row0 + n <= e->base.n_batch && s->engine == &e->base);
    rem_check_tables(e, s);
    rem_check_seen(s, s->ids.data, s->n_past);
    if (e->base.n_states > 0) {
        rem_check_state(e, s->state, h, s->n_past);
        assert_in_range(s->n_next, 1, STATES_AT_ONCE);
        assert_int_equal(s->n_next, states_written(s, n)); // all of them
        for (size_t i = 0; i < s->n_next; i++) {
            assert_int_equal(e->core.states.n_users[s->next_states[i]], 1);
            e->states[s->next_states[i]] = (struct rem_state){REM_NOTHING, REM_NOTHING};
        }
    }
    size_t k = 0; // states that are written
    for (size_t i = 0; i < n; i++) {
        h = rem_text(h, ids[i]);
        rem_write(s, s->n_past + i, fails ? REM_NOTHING : h);
        e->rows[row0 + i] = h;
        if (e->base.n_states > 0 && !fails && i + 1 == states_end(s, n, k))
            e->states[s->next_states[k++]] = (struct rem_state){h, s->n_past + i + 1};
    }
    e->n_evaluated += n;
    return !fails || error_set(err, e->fails_how, "the pass does not come to its end");
}

static inline bool rem_eval(struct engine *e, const struct seq *s, const int32_t *ids, size_t n,
                            enum engine_logits want, const struct cancel *cancel, struct error *err)
{
    (void)want, (void)cancel;
    rem_of(e)->n_passes++;
    return rem_rows(rem_of(e), s, 0, ids, n, err);
}

static inline bool rem_eval_parts(struct engine *base, struct engine_part *parts, size_t n_parts,
                                  const struct cancel *cancel, struct error *err)
{
    struct remembering *e = rem_of(base);
    size_t row = 0, n_drafts = 0;
    (void)cancel;
    e->n_passes++;
    for (size_t i = 0; i < n_parts; i++) {
        struct engine_part *p = &parts[i];
        const uint64_t *rows = e->rows + row;
        if (!rem_rows(e, p->seq, row, p->ids, p->n, err))
            return false;
        e->part_rows[i] = row;
        row += p->n;
        if (!p->pick)
            continue;
        p->d = (struct decoded){.id = rem_sample(rows[p->n - 1 - p->n_drafts])};
        n_drafts += p->n_drafts;
        for (p->n_more = 0; p->n_more < p->n_drafts; p->n_more++) {
            const int32_t before = p->n_more ? p->more[p->n_more - 1].id : p->d.id;
            if (!engine_accepts(p, p->n_more, before))
                break;
            p->more[p->n_more] = (struct decoded){.id = rem_sample(rows[p->n_more + 1])};
        }
    }
    assert_true(n_drafts <= ENGINE_MAX_PASS_DRAFTS);
    assert_true(n_drafts == 0 || row <= e->core.max_draft_rows);
    return true;
}

static inline bool rem_state_advance(struct engine *base, const struct seq *s, size_t i, size_t n,
                                     struct error *err)
{
    struct remembering *e = rem_of(base);
    (void)err;
    rem_check_state(e, s->state, rem_text_of(s->ids.data, s->n_past), s->n_past);
    assert_int_equal(e->core.states.n_users[s->next_states[0]], 1);
    e->states[s->next_states[0]] =
        (struct rem_state){e->rows[e->part_rows[i] + n - 1], s->n_past + n};
    return true;
}

static inline bool rem_start(struct engine *base, const struct seq *s, struct error *err)
{
    struct remembering *e = rem_of(base);
    (void)err;
    assert_int_equal(s->n_past, s->ids.len);
    e->run = (struct rem_state){rem_text_of(s->ids.data, s->n_past), s->n_past};
    rem_check_seen(s, s->ids.data, s->n_past);
    e->sampled[0] = e->last = rem_sample(e->run.text);
    e->n_sampled = 1;
    return true;
}

static inline bool rem_next(struct engine *base, const struct seq *s, struct error *err)
{
    struct remembering *e = rem_of(base);
    (void)err;
    assert_true(e->n_sampled <= ENGINE_RUN_AHEAD);
    rem_check_tables(e, s);
    if (base->n_states > 0) {
        assert_in_range(s->n_next, 1, 1 + ENGINE_RUN_AHEAD);
        const uint32_t from = s->n_next > 1 ? s->next_states[s->n_next - 2] : s->state;
        const uint32_t to = s->next_states[s->n_next - 1];
        rem_check_state(e, from, e->run.text, e->run.n);
        assert_int_equal(e->core.states.n_users[to], 1);
        e->states[to] = (struct rem_state){rem_text(e->run.text, e->last), e->run.n + 1};
    }
    e->run.text = rem_text(e->run.text, e->last);
    rem_write(s, e->run.n++, e->run.text);
    e->n_evaluated++;
    e->sampled[e->n_sampled++] = e->last = rem_sample(e->run.text);
    return true;
}

static inline bool rem_take(struct engine *base, const struct seq *s, bool evaluate,
                            const struct cancel *cancel, struct decoded *out, struct error *err)
{
    struct remembering *e = rem_of(base);
    (void)evaluate;
    if (cancel_asked(cancel))
        return error_set(err, ERR_INTERRUPTED, "interrupted");
    assert_true(e->n_sampled > 0);
    rem_check_seen(s, s->ids.data, s->n_past);
    *out = (struct decoded){.id = e->sampled[0]};
    memmove(e->sampled, e->sampled + 1, --e->n_sampled * sizeof *e->sampled);
    return true;
}

static inline void rem_stop(struct engine *e)
{
    rem_of(e)->n_sampled = 0;
}

static inline size_t rem_kv_bytes(const struct engine *e, bool near, size_t begin, size_t end)
{
    return near && !rem_has_windows(e) ? 0 : (end - begin) * (near + 1) * sizeof(uint64_t);
}

static inline bool rem_export(struct engine *e, const struct seq *s, bool near, size_t begin,
                              size_t end, void *dst, struct error *err)
{
    (void)e, (void)err;
    for (size_t i = begin; i < end; i++)
        for (size_t k = 0; k <= near; k++) // those of near layers are longer
            memcpy((uint64_t *)dst + (i - begin) * (near + 1) + k, rem_at(s, near, i),
                   sizeof(uint64_t));
    return true;
}

static inline bool rem_import(struct engine *e, const struct seq *s, bool near, size_t begin,
                              size_t end, const void *src, struct error *err)
{
    struct engine_core *c = e->core;
    (void)err;
    for (size_t i = begin; i < end; i++) {
        const uint32_t block = (near ? s->near : s->blocks)[i / REM_BLOCK];
        assert_int_equal((near && c->reach > 0 ? &c->near : &c->pool)->n_users[block], 1);
        memcpy(rem_at(s, near, i), (const uint64_t *)src + (i - begin) * (near + 1) + near,
               sizeof(uint64_t));
    }
    return true;
}

static inline size_t rem_state_bytes(const struct engine *e)
{
    (void)e;
    return sizeof(struct rem_state);
}

static inline bool rem_state_export(struct engine *e, uint32_t slot, void *dst, struct error *err)
{
    rem_of(e)->n_exported++;
    if (rem_of(e)->export_fails)
        return error_set(err, ERR_FAIL, "no export today");
    memcpy(dst, &rem_of(e)->states[slot], sizeof(struct rem_state));
    return true;
}

static inline bool rem_state_import(struct engine *e, uint32_t slot, const void *src,
                                    struct error *err)
{
    rem_of(e)->n_imported++;
    if (rem_of(e)->import_fails)
        return error_set(err, ERR_FAIL, "no import today");
    assert_int_equal(e->core->states.n_users[slot], 1);
    memcpy(&rem_of(e)->states[slot], src, sizeof(struct rem_state));
    return true;
}

static inline bool rem_copy(struct engine *e, bool near, uint32_t from, uint32_t to, size_t n,
                            struct error *err)
{
    if (rem_of(e)->copy_fails)
        return error_set(err, ERR_FAIL, "no copy today");
    for (int k = 0; k < 2; k++)
        if (k == near || e->core->reach == 0)
            memcpy(&rem_of(e)->kv[k][to * REM_BLOCK], &rem_of(e)->kv[k][from * REM_BLOCK],
                   n * sizeof(uint64_t));
    return true;
}

static inline void rem_free(struct engine *e)
{
    engine_release(e);
    for (int k = 0; k < 2; k++)
        free(rem_of(e)->kv[k]);
    free(rem_of(e)->states);
}

struct rem_params {
    uint32_t n_ctx, n_batch, n_seqs, window, n_states, n_copies;
    bool alike;          // passes of several sequences, and drafts
    uint32_t draft_rows; // see engine_core.max_draft_rows; then states advance. 0: as many as any
};

// Must stay where it is. Free with engine_free(&e->base).
static inline void rem_init(struct remembering *e, const struct rem_params *p)
{
    static const struct backend backend = {.kv_block = REM_BLOCK,
                                           .eval = rem_eval,
                                           .eval_parts = rem_eval_parts,
                                           .pick_start = rem_start,
                                           .pick_next = rem_next,
                                           .pick_take = rem_take,
                                           .pick_stop = rem_stop,
                                           .kv_bytes = rem_kv_bytes,
                                           .kv_export = rem_export,
                                           .kv_import = rem_import,
                                           .state_bytes = rem_state_bytes,
                                           .state_export = rem_state_export,
                                           .state_import = rem_state_import,
                                           .kv_copy = rem_copy,
                                           .free = rem_free};
    struct error err = {0};
    memset(e, 0, sizeof *e);
    e->layers[1].window = p->window;
    if (p->n_states > 0)
        e->layers[1].mixer = MIXER_CONV, e->layers[1].conv.n_taps = 2, e->layers[1].conv.n = 1;
    e->model = (struct model){.layers = e->layers};
    e->model.hp.n_vocab = REM_VOCAB;
    e->model.hp.n_layer = 2;
    e->base = (struct engine){.model = &e->model,
                              .device = "memory",
                              .n_ctx = p->n_ctx,
                              .n_batch = p->n_batch,
                              .n_states = p->n_states};
    e->backend = backend;
    assert_true(engine_init(&e->base, &e->core, &e->backend, p->alike ? 8 : 1, p->n_seqs, &err));
    e->core.most_copies = p->n_copies;
    e->core.alike = p->alike;
    e->core.max_drafts = p->alike ? ENGINE_MAX_DRAFTS : 0;
    if (p->draft_rows > 0) {
        e->core.max_draft_rows = p->draft_rows;
        e->backend.state_advance = rem_state_advance;
    }
    for (int k = 0; k < 2; k++)
        e->kv[k] = calloc((p->n_ctx / REM_BLOCK + 1) * REM_BLOCK, sizeof(uint64_t));
    e->states = calloc(p->n_states + 1, sizeof *e->states);
    assert_true(e->kv[0] && e->kv[1] && e->states);
}

// ---- a sequence of it

static inline struct seq *open_seq(struct remembering *e)
{
    struct error err = {0};
    struct seq *s = seq_open(&e->base, 0, &err);
    assert_non_null(s);
    return s;
}

// n tokens more, all evaluated.
static inline bool read_on(struct seq *s, size_t n, struct error *err)
{
    static const int32_t ids[REM_TABLE * REM_BLOCK] = {3, 1, 4, 1, 5};
    const struct work w = {.seq = s, .ids = ids, .n = n};
    return engine_submit(seq_engine(s), &w, 1, NULL, NULL, err);
}

static inline void read_to(struct seq *s, size_t n)
{
    struct error err = {0};
    if (!read_on(s, n - seq_len(s), &err))
        fail_msg("%s", err.text);
    assert_int_equal(seq_n_past(s), n);
}

// s has states after so many tokens (ended by 0), and no others.
static inline void rem_has_states_after(const struct seq *s, const size_t *want)
{
    enum { MOST = 1000 };
    size_t pos[MOST], n_want = 0;
    while (want[n_want] > 0)
        n_want++;
    pos[n_want] = 12345;
    assert_int_equal(seq_states(s, pos, MOST), n_want);
    assert_memory_equal(pos, want, n_want * sizeof *pos);
    for (size_t i = 1; i <= n_want; i++) { // the last of them, and no more is written
        pos[i] = 12345;
        assert_int_equal(seq_states(s, pos, i), i);
        assert_int_equal(pos[0], want[n_want - i]);
        assert_int_equal(pos[i], 12345);
    }
}

#endif
