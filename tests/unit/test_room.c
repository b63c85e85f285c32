// The memory of sequences, whatever was done with them before: who has which blocks and states,
// what is given up, what a sequence can go back to. On an engine that looks at all of its memory.
#include "test.h"

#include "engine/states.h"
#include "remembering_engine.h"

enum { N_SEQ = 5, MOST_IDS = 3000, MOST_MARKS = 256 + 1500 / STATES_EVERY };

static uint64_t counter;

static uint32_t below(size_t n)
{
    counter = counter * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((counter >> 33) % n);
}

// A sequence, and what it has to be.
struct mirror {
    struct seq *s;
    struct ids ids;
};

static void ids_set(struct ids *to, const int32_t *ids, size_t n)
{
    ids_clear(to);
    ids_append(to, ids, n);
}

static size_t count_uses(const struct engine_core *c, const struct kv_pool *pool, uint32_t block)
{
    size_t n = 0;
    for (const struct seq *s = c->seqs; s; s = s->next) {
        for (size_t i = 0; pool != &c->states && i < s->n_blocks; i++)
            n += (pool == &c->near ? s->near : s->blocks)[i] == block;
        for (size_t i = 0; pool == &c->states && i < s->n_next; i++)
            n += s->next_states[i] == block;
        for (size_t i = 0; pool == &c->states && i < s->n_marks; i++)
            n += s->marks[i].slot == block;
        n += pool == &c->states && s->state == block;
    }
    return n;
}

// Nothing is lost, and nothing has two owners who do not know of each other.
static void check_pool(const struct engine_core *c, const struct kv_pool *pool)
{
    for (uint32_t i = 0; i < pool->n_blocks; i++)
        assert_int_equal(pool->n_users[i], count_uses(c, pool, i));
}

static void check_seq(struct remembering *e, const struct mirror *m)
{
    const struct seq *s = m->s;
    const size_t kept = s->n_imported > s->n_past ? s->n_imported : s->n_past;
    assert_int_equal(seq_len(s), m->ids.len);
    assert_memory_equal(seq_ids(s), m->ids.data, m->ids.len * sizeof(int32_t));
    assert_true(s->n_past <= s->ids.len);
    if (e->core.run != s) {
        assert_int_equal(s->n_blocks, (kept + REM_BLOCK - 1) / REM_BLOCK);
        assert_true(s->n_imported <= m->ids.len);
        assert_int_equal(s->n_next, 0);
    }
    rem_check_tables(e, s);
    rem_check_seen(s, s->ids.data, s->n_past);
    bool is_last = false; // the newest state is that of the last mark
    for (size_t i = 0; i < s->n_marks; i++) {
        const struct state_mark *mark = &s->marks[i];
        const size_t n = mark->pos;
        assert_true(n > (i ? s->marks[i - 1].pos : 0) && n <= s->n_past);
        is_last = n == s->n_past && mark->copy;
        if (mark->copy) {
            const struct rem_state *x = mark->copy->bytes;
            assert_int_equal(mark->slot, NO_STATE);
            assert_int_equal(x->n, n);
            assert_int_equal(x->text, rem_text_of(s->ids.data, n));
        } else {
            rem_check_state(e, mark->slot, rem_text_of(s->ids.data, n), n);
        }
    }
    if (e->base.n_states > 0 && !(is_last && s->state == NO_STATE))
        rem_check_state(e, s->state, rem_text_of(s->ids.data, s->n_past), s->n_past);
}

// Each copy has as many users as it knows of, and no more are there than may be.
static void check_copies(const struct engine_core *c)
{
    double n = 0;
    for (const struct seq *s = c->seqs; s; s = s->next)
        for (size_t i = 0; i < s->n_marks; i++)
            if (s->marks[i].copy)
                n += 1 / (double)s->marks[i].copy->n_users;
    assert_true(n > (double)c->n_copies - 1e-6 && n < (double)c->n_copies + 1e-6);
    assert_true(c->n_copies <= c->most_copies);
}

static void check_all(struct remembering *e, struct mirror *m)
{
    check_pool(&e->core, &e->core.pool);
    check_pool(&e->core, &e->core.near);
    check_pool(&e->core, &e->core.states);
    check_copies(&e->core);
    for (int i = 0; i < N_SEQ; i++)
        if (m[i].s)
            check_seq(e, &m[i]);
    for (const struct seq *a = e->core.seqs; a; a = a->next)
        for (const struct seq *b = a->next; b; b = b->next)
            assert_true(a->version != b->version);
}

// The most tokens, n at most, that s can go back to: the last state kept, or as far as all blocks
// are there that the next token sees, or that are written on.
static size_t can_go_back(const struct seq *s, size_t n)
{
    const struct engine_core *c = s->engine->core;
    if (n >= s->n_past && s->engine->n_states > 0)
        return s->n_past;
    n = n < s->n_past ? n : s->n_past;
    for (; n > 0; n--) {
        bool ok = s->engine->n_states == 0;
        for (size_t i = 0; i < s->n_marks; i++)
            ok |= s->marks[i].pos == n;
        for (size_t i = 0; c->reach > 0 && i < n; i++)
            if ((i + c->reach > n || i / REM_BLOCK == n / REM_BLOCK) &&
                s->near[i / REM_BLOCK] == NO_BLOCK)
                ok = false;
        if (ok)
            break;
    }
    return n;
}

static int32_t next_of(const struct ids *ids)
{
    return rem_sample(rem_text_of(ids->data, ids->len));
}

static void random_ids(int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)below(REM_VOCAB);
}

static void trim(struct mirror *m, size_t n)
{
    const size_t want = can_go_back(m->s, n < m->ids.len ? n : m->ids.len);
    seq_trim(m->s, n);
    m->ids.len = n < m->ids.len ? n : m->ids.len;
    assert_int_equal(seq_n_past(m->s), want);
}

// A pass did not come to its end, as it was to.
static void failed_as_made(const struct remembering *e, const struct error *err)
{
    assert_int_not_equal(err->code, ERR_NONE);
    assert_int_equal(err->code, e->fails_how);
}

// Tokens are given to one, and a pick; a pass may fail.
static void give(struct remembering *e, struct mirror *m, const int32_t *ids, size_t n)
{
    struct error err = {0};
    struct decoded d;
    uint64_t ticket;
    const size_t before = m->ids.len;
    const struct work w = {.seq = m->s, .ids = ids, .n = n, .n_pick = 1};
    ids_append(&m->ids, ids, n);
    if (!engine_submit(&e->base, &w, 1, NULL, &ticket, &err)) {
        if (before + n <= m->s->n_max) // nobody else keeps it from having the memory
            failed_as_made(e, &err);
        else
            assert_int_equal(err.code, ERR_CONTEXT);
        assert_in_range(seq_len(m->s), before, before + n);
        assert_true(seq_len(m->s) == before || seq_len(m->s) == seq_n_past(m->s));
        m->ids.len = seq_len(m->s);
        return;
    }
    assert_true(engine_wait(&e->base, ticket, NULL, &d, &err));
    assert_int_equal(d.id, next_of(&m->ids));
    ids_push(&m->ids, d.id);
}

// Tokens one after the other, asked for ahead; those not waited for are cut off, or end themselves.
static void answer(struct remembering *e, struct mirror *m, size_t n)
{
    uint64_t tickets[64];
    struct error err = {0};
    struct decoded d;
    size_t n_asked = 0, ahead = below(1 + ENGINE_RUN_AHEAD), n_taken = 0;
    bool stopped = false;
    if (seq_n_past(m->s) + 1 > m->ids.len) // nothing was sampled
        return;
    for (; n_taken < n && !stopped; n_taken++) {
        for (; n_asked < n && n_asked <= n_taken + ahead; n_asked++) {
            const struct work w = {.seq = m->s, .n = 1, .n_pick = 1};
            if (!engine_submit(&e->base, &w, 1, NULL, &tickets[n_asked], &err)) {
                if (err.code == ERR_CONTEXT)
                    assert_true(m->ids.len + n_asked - n_taken > m->s->n_max);
                else if (e->fails_how != ERR_NONE)
                    failed_as_made(e, &err);
                else
                    assert_non_null(strstr(err.text, "not evaluated yet"));
                break;
            }
        }
        if (n_asked == n_taken)
            break;
        if (!engine_wait(&e->base, tickets[n_taken], NULL, &d, &err)) {
            assert_int_equal(err.code, ERR_FAIL);
            break;
        }
        assert_int_equal(d.id, next_of(&m->ids));
        ids_push(&m->ids, d.id);
        stopped = d.id == REM_STOP && m->s->stop_ids.len > 0;
        check_seq(e, m);
        if (below(8) == 0)
            break;
    }
    if (n_asked > n_taken || below(2)) {
        const size_t cut = m->ids.len > 2 ? below(3) : 0;
        seq_trim(m->s, m->ids.len - cut);
        m->ids.len -= cut;
    }
}

// Guesses of what comes behind ids, right up to one.
static void make_drafts(const struct ids *ids, int32_t *drafts, size_t n)
{
    struct ids text = {0};
    const size_t right = below(n + 1);
    ids_append(&text, ids->data, ids->len);
    for (size_t i = 0; i < n; i++) {
        drafts[i] = next_of(&text);
        if (i >= right)
            drafts[i] = (drafts[i] + 1) % REM_VOCAB;
        ids_push(&text, drafts[i]);
    }
    ids_release(&text);
}

// Picks of work with n drafts, of which the first n_seen were looked at, are m's next tokens, as
// many as were guessed and one more, up to a stop id.
static void take_picks(struct mirror *m, const struct work *w, size_t n_seen,
                       const struct decoded *d)
{
    bool more = true;
    for (size_t i = 0; i <= w->n_drafts; i++) {
        if (!more) {
            assert_int_equal(d[i].id, -1);
            continue;
        }
        assert_int_equal(d[i].id, next_of(&m->ids));
        ids_push(&m->ids, d[i].id);
        more = i < n_seen && d[i].id == w->drafts[i] &&
               !(d[i].id == REM_STOP && m->s->stop_ids.len > 0);
    }
}

static void give_several(struct remembering *e, struct mirror *m)
{
    struct work w[N_SEQ], seen[N_SEQ];
    struct mirror *of[N_SEQ];
    int32_t ids[N_SEQ][16], drafts[N_SEQ][ENGINE_MAX_DRAFTS];
    struct decoded d[N_SEQ * (1 + ENGINE_MAX_DRAFTS)];
    struct error err = {0};
    uint64_t ticket;
    size_t n = 0, n_picks = 0, before[N_SEQ];
    for (int i = 0; i < N_SEQ; i++) {
        if (!m[i].s || below(3) == 0)
            continue;
        random_ids(ids[n], 16);
        const bool sampled = seq_n_past(m[i].s) < m[i].ids.len && below(3);
        w[n] = (struct work){
            .seq = m[i].s, .ids = sampled ? NULL : ids[n], .n = 1, .n_pick = below(2)};
        if (!sampled)
            w[n].n = 1 + below(12);
        if (sampled && w[n].n_pick && below(4) && e->core.max_drafts > 0) {
            w[n].drafts = drafts[n];
            w[n].n_drafts = 1 + below(ENGINE_MAX_DRAFTS);
            make_drafts(&m[i].ids, drafts[n], w[n].n_drafts);
        }
        of[n] = &m[i];
        before[n] = m[i].ids.len;
        ids_append(&m[i].ids, ids[n], sampled ? 0 : w[n].n);
        n++;
    }
    memcpy(seen, w, sizeof w);
    engine_fit_drafts(&e->base, seen, n);
    const bool one_pass = engine_max_parts(&e->base) >= n;
    const uint32_t fails_in = e->fails_in;
    const bool ok = engine_submit(&e->base, w, n, NULL, &ticket, &err);
    const bool failed = fails_in > 0 && e->fails_in == 0;
    for (size_t i = 0; i < n; i++) {
        if (!ok) { // done, or as it was
            assert_true(seq_len(w[i].seq) >= before[i]);
            if (e->core.alike && one_pass)
                assert_true(seq_len(w[i].seq) == before[i] || seq_len(w[i].seq) >= of[i]->ids.len ||
                            seq_len(w[i].seq) == seq_n_past(w[i].seq));
            seq_trim(w[i].seq, of[i]->ids.len); // no picks
            of[i]->ids.len = seq_len(w[i].seq);
        }
        n_picks += w[i].n_pick;
    }
    if (!ok || n_picks == 0)
        return;
    assert_true(engine_wait(&e->base, ticket, NULL, d, &err));
    const struct decoded *next = d;
    for (size_t i = 0; i < n; i++) {
        size_t n_seen = seen[i].n_drafts;
        if (!w[i].n_pick)
            continue;
        // (Those of several passes are more than would fit one.)
        while (n_seen < w[i].n_drafts && next[1 + n_seen].id >= 0 &&
               next[n_seen].id == w[i].drafts[n_seen])
            n_seen++;
        take_picks(of[i], &w[i], n_seen, next);
        next += 1 + w[i].n_drafts;
        if (w[i].n_drafts > 0 && !failed)
            assert_int_equal(w[i].seq->n_past + 1, w[i].seq->ids.len);
    }
}

static void guess(struct remembering *e, struct mirror *m)
{
    int32_t drafts[ENGINE_MAX_DRAFTS];
    struct decoded d[1 + ENGINE_MAX_DRAFTS];
    struct error err = {0};
    uint64_t ticket;
    const size_t n = 1 + below(ENGINE_MAX_DRAFTS);
    const uint32_t fails_in = e->fails_in;
    if (seq_n_past(m->s) + 1 != m->ids.len || m->ids.len > m->s->n_max)
        return;
    make_drafts(&m->ids, drafts, n);
    const struct work w = {.seq = m->s, .n = 1, .n_pick = 1, .drafts = drafts, .n_drafts = n};
    struct work seen = w;
    engine_fit_drafts(&e->base, &seen, 1);
    if (!engine_submit(&e->base, &w, 1, NULL, &ticket, &err)) {
        failed_as_made(e, &err);
        return;
    }
    assert_true(engine_wait(&e->base, ticket, NULL, d, &err));
    take_picks(m, &w, seen.n_drafts, d);
    // An interrupted pass through what stays leaves it to the next work.
    if (fails_in == 0 || e->fails_in > 0)
        assert_int_equal(m->s->n_past + 1, m->s->ids.len);
}

// All that a has, as bytes, is b's.
static void move(struct remembering *e, const struct mirror *a, struct mirror *b)
{
    static uint64_t bytes[3 * MOST_IDS];
    size_t pos[3], n_bytes;
    struct rem_state states[3];
    struct error err = {0};
    const size_t n_past = seq_n_past(a->s), n_states = seq_states(a->s, pos, 1 + below(3));
    trim(b, 0);
    for (size_t i = 0; i < n_states; i++)
        assert_true(seq_export_state(a->s, pos[i], &states[i], &err));
    for (size_t at = 0, end; at < n_past; at = end) {
        end = at + 1 + below(40);
        end = seq_exports(a->s, at, end < n_past ? end : n_past, &n_bytes);
        assert_true(n_bytes <= sizeof bytes && seq_export(a->s, at, end, bytes, &err));
        if (!seq_import(b->s, a->ids.data + at, end - at, bytes, n_bytes, &err))
            fail_msg("%s", err.text);
        ids_append(&b->ids, a->ids.data + at, end - at);
        if (seq_n_past(a->s) < n_past) // it was paused for b
            return;
    }
    for (size_t i = 0; i < n_states; i++) {
        if (!seq_import_state(b->s, pos[i], &states[i], &err)) {
            assert_int_equal(err.code, ERR_CONTEXT);
            return;
        }
        assert_int_equal(seq_n_past(b->s), pos[i]);
    }
    if (n_states > 0)
        assert_int_equal(pos[n_states - 1], n_past);
    if (e->base.n_states == 0)
        assert_int_equal(seq_n_past(b->s), n_past);
}

static void step(struct remembering *e, struct mirror *m)
{
    struct mirror *one = &m[below(N_SEQ)], *other = &m[below(N_SEQ)];
    static int32_t ids[MOST_IDS];
    struct error err = {0};
    const uint32_t how = below(12);
    if (!one->s) {
        one->s = seq_open(&e->base, 0, &err);
        const int32_t stop = REM_STOP;
        const struct sampling set = {
            .sampler = &sampler_defaults, .stop_ids = &stop, .n_stop_ids = below(2)};
        assert_true(one->s && seq_sampling(one->s, &set, &err));
    }
    const size_t room =
        one->s->n_max - (one->ids.len < one->s->n_max ? one->ids.len : one->s->n_max);
    if (e->fails_in == 0)
        e->fails_how = ERR_NONE;
    if (below(40) == 0) {
        e->fails_in = 1 + below(3);
        e->fails_how = below(2) ? ERR_INTERRUPTED : ERR_FAIL;
    }
    const size_t longest = e->base.n_batch > STATES_EVERY ? 1800 : 300;
    random_ids(ids, longest);
    if (how == 0) {
        seq_free(one->s);
        one->s = NULL;
        ids_clear(&one->ids);
    } else if (how == 1) {
        trim(one, below(one->ids.len + 2));
    } else if (how == 2 && other != one) {
        const size_t n = below(one->ids.len + 1), want = can_go_back(one->s, n);
        struct seq *f = seq_fork(one->s, n, &err);
        assert_non_null(f);
        assert_int_equal(f->n_past, want);
        seq_free(other->s);
        other->s = f;
        ids_set(&other->ids, one->ids.data, n);
    } else if (how == 3 && room > 0) {
        const size_t n = 1 + below(room < 10 ? room : 10);
        assert_true(seq_append(one->s, ids, n, &err));
        ids_append(&one->ids, ids, n);
    } else if (how == 4 && other != one && other->s) {
        move(e, one, other);
    } else if (how == 5) {
        give_several(e, m);
    } else if (how == 6 && e->core.max_drafts > 0) {
        guess(e, one);
    } else if (how < 9) {
        answer(e, one, 1 + below(40));
    } else if (room > 0) {
        const size_t most = how == 9 ? longest : 30;
        give(e, one, ids, 1 + below(room < most ? room : most));
    } else {
        give(e, one, ids, 1);
    }
}

static void whatever_was_done_what_is_needed_is_there(void **state)
{
    static const struct rem_params kinds[] = {
        {.n_ctx = 120, .n_batch = 16, .n_seqs = 1},
        {.n_ctx = 120, .n_batch = 64, .n_seqs = 4, .alike = true},
        {.n_ctx = 121, .n_batch = 16, .n_seqs = 2, .n_states = 12},
        {.n_ctx = 300, .n_batch = 16, .n_seqs = 2, .n_states = 9, .n_copies = 11},
        {.n_ctx = 300, .n_batch = 32, .n_seqs = 4, .n_states = 14, .alike = true},
        {.n_ctx = 400, .n_batch = 48, .n_seqs = 4, .n_states = 20, .alike = true, .draft_rows = 21},
        {.n_ctx = 300, .n_batch = 32, .n_seqs = 4, .n_states = 10, .n_copies = 60, .alike = true},
        {.n_ctx = 400,
         .n_batch = 48,
         .n_seqs = 4,
         .n_states = 16,
         .n_copies = 9,
         .alike = true,
         .draft_rows = 21},
        {.n_ctx = 900, .n_batch = 40, .n_seqs = 1, .window = 11},
        {.n_ctx = 900, .n_batch = 30, .n_seqs = 1, .window = 1},
        {.n_ctx = 1000, .n_batch = 64, .n_seqs = 2, .window = 24, .alike = true},
        {.n_ctx = 200, .n_batch = 16, .n_seqs = 1, .window = 30}, // has room for all
        {.n_ctx = 3000, .n_batch = 2048, .n_seqs = 2, .n_states = 11, .n_copies = 5},
        {.n_ctx = 3000, .n_batch = 1500, .n_seqs = 4, .n_states = 13, .alike = true},
        {.n_ctx = 3000,
         .n_batch = 2048,
         .n_seqs = 4,
         .n_states = 16,
         .n_copies = 9,
         .alike = true,
         .draft_rows = 21},
    };
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct remembering e;
        struct mirror m[N_SEQ] = {0};
        counter = 17 + k;
        rem_init(&e, &kinds[k]);
        e.core.spares_copies = k % 2 == 0;
        assert_int_equal(e.core.reach, kinds[k].n_ctx > 200 ? kinds[k].window : 0);
        for (int i = 0; i < (kinds[k].n_batch > STATES_EVERY ? 300 : 1500); i++) {
            step(&e, m);
            check_all(&e, m);
        }
        for (int i = 0; i < N_SEQ; i++) {
            seq_free(m[i].s);
            ids_release(&m[i].ids);
        }
        assert_int_equal(kv_pool_free(&e.core.pool), e.core.pool.n_blocks);
        assert_int_equal(kv_pool_free(&e.core.near), e.core.near.n_blocks);
        assert_int_equal(kv_pool_free(&e.core.states), e.core.states.n_blocks);
        engine_free(&e.base);
    }
}

// ---- what is given up first

#define HAS_STATES_AFTER(s, ...) rem_has_states_after(s, (const size_t[]){__VA_ARGS__, 0})

// Of all sequences: that with the fewest tokens from the one before it to the one behind it.
static void the_state_that_is_missed_least_gives_way(void **state)
{
    struct remembering e;
    (void)state;
    rem_init(&e, &(struct rem_params){.n_ctx = 800, .n_batch = 100, .n_states = 8});
    struct seq *a = open_seq(&e), *b = open_seq(&e), *c = open_seq(&e);
    static const size_t ends[] = {10, 40, 45, 100};
    for (int i = 0; i < 4; i++)
        read_to(a, ends[i]);
    read_to(b, 20);
    read_to(b, 70);
    read_to(c, 50);
    HAS_STATES_AFTER(a, 10, 40, 45, 100);
    assert_int_equal(kv_pool_free(&e.core.states), 1);
    read_to(c, 120);
    HAS_STATES_AFTER(c, 50, 120);
    assert_int_equal(kv_pool_free(&e.core.states), 0);
    read_to(c, 180); // 45 - 10 is less than 40 - 0, than 70 - 20, than 180 - 120
    HAS_STATES_AFTER(a, 10, 45, 100);
    HAS_STATES_AFTER(b, 20, 70);
    HAS_STATES_AFTER(c, 50, 120, 180);
    read_to(c, 260);
    HAS_STATES_AFTER(a, 45, 100);
    HAS_STATES_AFTER(b, 20, 70);
    HAS_STATES_AFTER(c, 50, 120, 180, 260);
    seq_free(a);
    seq_free(b);
    seq_free(c);
    engine_free(&e.base);
}

// The newest state is not among those that are kept until it has to be.
static void what_is_gone_on_from_stays_when_all_others_have_given_way(void **state)
{
    struct remembering e;
    struct error err = {0};
    (void)state;
    rem_init(&e, &(struct rem_params){.n_ctx = 400, .n_batch = 64, .n_states = 2});
    assert_int_equal(engine_state_bytes(&e.base), sizeof(struct rem_state));
    struct seq *a = open_seq(&e), *b = open_seq(&e);
    for (size_t n = 10; n < 100; n += 10)
        read_to(a, n);
    HAS_STATES_AFTER(a, 90);
    read_to(b, 5); // a has to be read again
    assert_int_equal(seq_n_past(a), 90);
    read_to(b, 10);
    assert_int_equal(seq_n_past(a), 0);
    assert_int_equal(seq_len(a), 90);
    read_to(a, 95);
    HAS_STATES_AFTER(a, 95);
    seq_free(a);
    seq_free(b);
    engine_free(&e.base);
    // Nobody can go on without a second one.
    rem_init(&e, &(struct rem_params){.n_ctx = 400, .n_batch = 64, .n_states = 1});
    assert_int_equal(engine_state_bytes(&e.base), sizeof(struct rem_state));
    a = open_seq(&e);
    read_to(a, 10);
    assert_false(read_on(a, 5, &err));
    assert_int_equal(err.code, ERR_CONTEXT);
    assert_int_equal(seq_len(a), 10);
    seq_free(a);
    engine_free(&e.base);
    rem_init(&e, &(struct rem_params){.n_ctx = 400, .n_batch = 64});
    assert_int_equal(engine_state_bytes(&e.base), 0);
    engine_free(&e.base);
}

// Beyond those that it has room for its own give way, also where another has some that are closer
// together.
static void who_has_all_the_states_it_may_gives_up_its_own(void **state)
{
    struct remembering e;
    (void)state;
    rem_init(&e, &(struct rem_params){.n_ctx = 1500, .n_batch = 64, .n_states = 400});
    struct seq *s = open_seq(&e), *other = open_seq(&e);
    assert_int_equal(s->max_marks, MOST_MARKS);
    size_t want[MOST_MARKS + 1] = {0};
    for (size_t i = 0; i < MOST_MARKS; i++) {
        want[i] = i == 0 ? 2 : 1 + 3 * i;
        read_to(s, want[i]);
    }
    for (size_t n = 2; n <= 8; n += 2)
        read_to(other, n);
    rem_has_states_after(s, want);
    read_to(s, 1 + 3 * MOST_MARKS);
    for (size_t i = 1; i < MOST_MARKS; i++)
        want[i - 1] = 1 + 3 * i;
    want[MOST_MARKS - 1] = 1 + 3 * MOST_MARKS;
    rem_has_states_after(s, want);
    HAS_STATES_AFTER(other, 2, 4, 6, 8);
    seq_free(s);
    seq_free(other);
    engine_free(&e.base);
}

// A state that is not kept is not had as bytes; what does not follow is not taken.
static void states_as_bytes_are_those_that_are_kept(void **state)
{
    struct remembering e;
    struct rem_state x[3];
    struct error err = {0};
    uint64_t bytes[64];
    size_t n_bytes;
    (void)state;
    rem_init(&e, &(struct rem_params){.n_ctx = 200, .n_batch = 64, .n_states = 6});
    struct seq *a = open_seq(&e), *b = open_seq(&e);
    read_to(a, 20);
    read_to(a, 35);
    read_to(a, 36); // one token leaves no mark
    HAS_STATES_AFTER(a, 20, 35, 36);
    assert_false(seq_export_state(a, 21, x, &err));
    assert_true(seq_export_state(a, 20, &x[0], &err) && seq_export_state(a, 35, &x[1], &err) &&
                seq_export_state(a, 36, &x[2], &err));
    assert_int_equal(x[0].n, 20);
    assert_int_equal(x[2].n, 36);
    assert_int_equal(seq_exports(a, 0, 36, &n_bytes), 36);
    assert_true(seq_export(a, 0, 36, bytes, &err));
    assert_true(seq_import(b, seq_ids(a), 36, bytes, n_bytes, &err));
    assert_true(seq_import_state(b, 20, &x[0], &err));
    assert_false(seq_import_state(b, 20, &x[0], &err));
    assert_false(seq_import_state(b, 37, &x[2], &err));
    HAS_STATES_AFTER(b, 20);
    assert_true(seq_import_state(b, 36, &x[2], &err));
    HAS_STATES_AFTER(b, 20, 36);
    read_to(b, 40);
    seq_trim(b, 30);
    assert_int_equal(seq_n_past(b), 20);
    assert_false(seq_import_state(b, 30, &x[1], &err)); // its keys and values are gone
    seq_free(a);
    seq_free(b);
    engine_free(&e.base);
    rem_init(&e, &(struct rem_params){.n_ctx = 200, .n_batch = 64});
    a = open_seq(&e);
    assert_true(seq_import(a, (const int32_t[64]){0}, 36, bytes, n_bytes, &err));
    assert_false(seq_import_state(a, 20, &x[0], &err));
    assert_int_equal(seq_n_past(a), 36);
    seq_free(a);
    engine_free(&e.base);
}

// Whoever finds no memory has it of the youngest other one, and not of those of the same work.
static void the_youngest_other_one_is_paused(void **state)
{
    struct remembering e;
    struct error err = {0};
    (void)state;
    rem_init(&e, &(struct rem_params){.n_ctx = 40, .n_batch = 64, .n_seqs = 4, .alike = true});
    struct seq *s[3];
    for (int i = 0; i < 3; i++) {
        s[i] = open_seq(&e);
        read_to(s[i], 12);
    }
    read_to(s[0], 17); // one block is free, of two that it takes
    assert_int_equal(seq_n_past(s[2]), 0);
    assert_int_equal(seq_len(s[2]), 12);
    assert_int_equal(seq_n_past(s[1]), 12);
    read_to(s[2], 13); // itself is the youngest
    assert_int_equal(seq_n_past(s[2]), 13);
    assert_int_equal(seq_n_past(s[1]), 0);
    read_to(s[1], 13);
    assert_int_equal(seq_n_past(s[2]), 0);
    assert_int_equal(seq_n_past(s[0]), 17);
    static const int32_t ids[40] = {0};
    const struct work w[] = {{.seq = s[0], .ids = ids, .n = 8}, {.seq = s[1], .ids = ids, .n = 20}};
    assert_false(engine_submit(&e.base, w, 2, NULL, NULL, &err));
    assert_int_equal(err.code, ERR_CONTEXT);
    assert_int_equal(seq_n_past(s[0]), 17);
    assert_int_equal(seq_n_past(s[1]), 13);
    for (int i = 0; i < 3; i++)
        seq_free(s[i]);
    engine_free(&e.base);
}

// Who writes to a block that another one has, too, needs one more, or the other one's leave.
static void who_finds_no_block_for_a_copy_has_another_one_paused(void **state)
{
    struct remembering e;
    struct error err = {0};
    uint64_t bytes[8];
    (void)state;
    rem_init(&e, &(struct rem_params){.n_ctx = 40, .n_batch = 64});
    struct seq *a = open_seq(&e), *b = open_seq(&e);
    read_to(a, 10);
    read_to(b, 28);
    struct seq *f = seq_fork(a, 10, &err);
    assert_int_equal(engine_free_blocks(&e.base), 0);
    read_to(f, 11); // a copy
    assert_int_equal(seq_n_past(b), 0);
    assert_int_equal(seq_n_past(a), 10);
    seq_free(f);
    read_to(a, 38);
    f = seq_fork(a, 38, &err);
    read_to(f, 39); // in place
    assert_int_equal(seq_n_past(a), 0);
    assert_false(seq_export(f, 3, 2, bytes, &err));
    assert_false(seq_export(f, 38, 40, bytes, &err));
    assert_true(seq_export(f, 39, 39, bytes, &err));
    seq_free(f);
    seq_free(b);
    seq_free(a);
    engine_free(&e.base);
}

static void a_copy_that_fails_leaves_both_as_they_were(void **state)
{
    struct error err = {0};
    (void)state;
    for (uint32_t window = 0; window <= 11; window += 11) {
        struct remembering e;
        rem_init(&e, &(struct rem_params){.n_ctx = 900, .n_batch = 40, .window = window});
        struct seq *s = open_seq(&e);
        read_to(s, 10);
        struct seq *f = seq_fork(s, 10, &err);
        e.copy_fails = true;
        assert_false(read_on(f, 5, &err));
        assert_string_equal(err.text, "no copy today");
        assert_int_equal(seq_len(f), 10);
        e.copy_fails = false;
        read_to(f, 20);
        read_to(s, 30);
        seq_free(f);
        seq_free(s);
        assert_int_equal(kv_pool_free(&e.core.pool), e.core.pool.n_blocks);
        assert_int_equal(kv_pool_free(&e.core.near), e.core.near.n_blocks);
        engine_free(&e.base);
    }
}

// A pick is made from the logits of the last work, if they are still those of its sequence.
static void logits_are_forgotten_with_their_token(void **state)
{
    struct remembering e;
    struct error err = {0};
    static const int32_t ids[8] = {1, 2, 3, 4};
    (void)state;
    rem_init(&e, &(struct rem_params){.n_ctx = 100, .n_batch = 40});
    struct seq *a = open_seq(&e), *b = open_seq(&e);
    const struct work read = {.seq = a, .ids = ids, .n = 8, .n_logits = 1};
    const struct work pick = {.seq = a, .n_pick = 1};
    assert_true(engine_submit(&e.base, &read, 1, NULL, NULL, &err));
    seq_trim(b, 0); // another's
    assert_true(engine_submit(&e.base, &pick, 1, NULL, NULL, &err));
    seq_trim(a, 8);
    assert_false(engine_submit(&e.base, &pick, 1, NULL, NULL, &err));
    assert_non_null(strstr(err.text, "evaluate it first"));
    seq_free(a);
    seq_free(b);
    engine_free(&e.base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_was_done_what_is_needed_is_there),
        cmocka_unit_test(the_state_that_is_missed_least_gives_way),
        cmocka_unit_test(what_is_gone_on_from_stays_when_all_others_have_given_way),
        cmocka_unit_test(who_has_all_the_states_it_may_gives_up_its_own),
        cmocka_unit_test(states_as_bytes_are_those_that_are_kept),
        cmocka_unit_test(the_youngest_other_one_is_paused),
        cmocka_unit_test(who_finds_no_block_for_a_copy_has_another_one_paused),
        cmocka_unit_test(a_copy_that_fails_leaves_both_as_they_were),
        cmocka_unit_test(logits_are_forgotten_with_their_token),
    };
    return RUN_TESTS("room", tests);
}
