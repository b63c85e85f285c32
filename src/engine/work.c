// What is asked of an engine, checked here once for both devices: cut into passes, or a run of
// picks, and waited for.
#include "engine/asks.h"
#include "engine/room.h"
#include "engine/states.h"
#include "engine/windows.h"

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t engine_max_rows(const struct engine *e)
{
    if (e->n_states == 0 || e->n_batch < STATES_EVERY)
        return e->n_batch;
    return STATES_EVERY * least(e->n_batch / STATES_EVERY, STATES_AT_ONCE);
}

// How many tokens of s the next chunk has. Rows of which logits are wanted come in one.
static size_t next_chunk(struct seq *s, size_t n_logits)
{
    const size_t rest = s->ids.len - s->n_past, most = engine_max_rows(s->engine);
    size_t n = least(rest, most);
    if (n_logits > 1)
        n = rest > n_logits ? least(n, rest - n_logits) : rest;
    states_mark_before(s, n);
    return n;
}

// A turn begins, and ends, where a sequence is likely to go back to, but not between the pieces of
// a text. Whether what w is about to evaluate ends so, too.
static bool begin_text(const struct work *w)
{
    struct seq *s = w->seq;
    const bool is_text = s->ids.len - s->n_past > 1;
    const bool follows = s->goes_on && w->ids && s->n_past == s->given;
    if (is_text && !follows)
        states_mark(s);
    if (w->ids)
        s->given = s->ids.len; // also while it is read
    return (is_text || follows) && !w->goes_on;
}

static void end_given(const struct work *w)
{
    w->seq->goes_on = w->goes_on;
}

// w has failed, before which s had `len` tokens and was given `given`: what is evaluated stays.
static void fail_given(struct seq *s, size_t len, size_t given)
{
    s->ids.len = s->n_past > len ? s->n_past : len;
    s->given = s->n_past > len ? s->n_past : given;
    room_give(s);
}

// Evaluates all of w's sequence that is not yet, in chunks; of the last n_logits rows the logits
// can be had.
static bool evaluate(const struct work *w, size_t n_logits, const struct cancel *cancel,
                     struct error *err)
{
    struct seq *s = w->seq;
    struct engine *e = s->engine;
    struct engine_core *c = e->core;
    c->logits_of = NULL;
    const bool marks = begin_text(w);
    if (!room_take(s, s->ids.len, 1, err))
        return false;
    while (s->n_past < s->ids.len) {
        size_t n = next_chunk(s, n_logits);
        const size_t rest = s->ids.len - s->n_past;
        if (cancel_asked(cancel))
            return error_set(err, ERR_INTERRUPTED, "interrupted");
        if (!room_take_piece(s, &n, n_logits > 1 && n == rest, err))
            return false;
        enum engine_logits want = LOGITS_NONE;
        if (n == rest && n_logits > 0)
            want = n_logits > 1 ? LOGITS_ALL : LOGITS_LAST;
        if (!room_take_near(s, s->n_past, s->n_past + n, err) ||
            !c->backend->eval(e, s, s->ids.data + s->n_past, n, want, cancel, err) ||
            !hidden_keep(s, 0, n, err))
            return false;
        states_advance_all(s, n);
    }
    if (marks)
        states_mark(s);
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
    if (w->n_pick && w->seq->mask && asks_count(w->seq, false) > seq_run_ahead(w->seq))
        return error_set(err, ERR_FAIL,
                         "a pick under a mask with %zu before it that are not waited for: expected "
                         "%zu at most",
                         asks_count(w->seq, false), seq_run_ahead(w->seq));
    if (w->n_drafts > 0 && (w->ids || w->n != 1 || w->n_pick != 1 || w->n_logits > 0))
        return error_set(err, ERR_FAIL,
                         "drafts with %zu rows, %u picks and %u logits: expected 1 row without "
                         "ids, 1 and 0",
                         w->n, w->n_pick, w->n_logits);
    if (w->n_drafts > ENGINE_MAX_DRAFTS)
        return error_set(err, ERR_FAIL, "%zu drafts, expected at most %d", w->n_drafts,
                         ENGINE_MAX_DRAFTS);
    for (size_t i = 0; i < w->n_drafts; i++)
        if (w->drafts[i] < 0 || (uint32_t)w->drafts[i] >= e->model->hp.n_vocab)
            return error_set(err, ERR_FAIL, "token id %d as a draft, expected 0 to %u",
                             w->drafts[i], e->model->hp.n_vocab - 1);
    return true;
}

static bool check_asks(const struct engine_core *c, size_t n, struct error *err)
{
    return c->n_asks + n <= ENGINE_MAX_ASKS ||
           error_set(err, ERR_FAIL, "more than %d picks that nobody has waited for",
                     ENGINE_MAX_ASKS);
}

// The token that the device has just sampled, or is about to, and the pick after it.
static bool go_on(struct seq *s, uint64_t ticket, struct error *err)
{
    struct engine_core *c = s->engine->core;
    size_t ahead = asks_count(s, false) - asks_count(s, true), end = s->ids.len + ahead;
    const struct ask *first = asks_oldest(c);
    // The first pick of a run evaluates nothing.
    const size_t n_evaluations = 1 + ahead - (first && !first->evaluate);
    if (ahead > ENGINE_RUN_AHEAD)
        return error_set(err, ERR_FAIL,
                         "%zu picks of a sequence are under way: expected %d at most", ahead,
                         ENGINE_RUN_AHEAD);
    if (end > s->n_max)
        return error_set(err, ERR_CONTEXT,
                         "another token after %zu does not fit the context of %u tokens", end,
                         s->n_max);
    c->logits_of = NULL;
    if (!room_take(s, end, n_evaluations, err) || !room_take_near(s, s->n_past, end, err) ||
        !c->backend->pick_next(s->engine, s, err))
        return false;
    asks_add(c, s, ticket, true);
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
    if (!engine_settle(e, cancel, err))
        return false;
    const size_t before = s->ids.len, given = s->given;
    if (w->ids && !seq_append(s, w->ids, w->n, err))
        return false;
    if (w->n > 0) {
        if (!check_sampled(s, err))
            return false;
        size_t n_logits = w->n_logits > w->n_pick ? w->n_logits : w->n_pick;
        if (w->ids)
            windows_turn(s);
        if (!evaluate(w, n_logits, cancel, err)) {
            fail_given(s, before, given);
            return false;
        }
        if (w->ids)
            end_given(w);
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
    asks_add(c, s, ticket, false);
    return !c->alike || engine_settle(e, cancel, err); // what comes next is a pass
}

size_t engine_max_parts(const struct engine *e)
{
    // Each part's sequence has a state, and needs one more while it is evaluated.
    const size_t states = e->n_states ? e->n_states / 2 : ENGINE_MAX_PARTS;
    const size_t windows = engine_windows(e);
    const size_t most = states < windows ? states : windows;
    return most < e->core->max_parts ? most : e->core->max_parts;
}

size_t engine_windows(const struct engine *e)
{
    return e->core->reach > 0 ? e->core->n_windows : SIZE_MAX;
}

size_t seq_run_ahead(const struct seq *s)
{
    return s->engine->core->alike ? 0 : s->mask ? 1 : ENGINE_RUN_AHEAD;
}

// Whether something was asked for that depends on what is not sampled yet. In passes that are alike
// everything is known when a submit returns.
static bool is_under_way(const struct seq *s)
{
    return asks_count(s, false) > (s->engine->core->alike ? asks_count(s, true) : 0);
}

// Whether a pass of n_parts sequences may lead to so many states and nobody is paused for it: each
// sequence has one. (Those of one each are not looked at, as their number is bounded.)
static bool has_slots(const struct engine *e, size_t n_parts, size_t n_states)
{
    if (e->n_states == 0 || n_states == n_parts)
        return true;
    for (const struct seq *s = e->core->seqs; s; s = s->next)
        n_states += s->at_work || s->n_past > 0;
    return n_states <= e->n_states;
}

// How many of the n works, from the first on, can be one pass: of different sequences, with rows
// of which no logits are asked for, that fit a batch, and lead to no more states than there is room
// for.
static size_t count_parts(const struct engine *e, const struct work *w, size_t n)
{
    size_t n_parts = 0, n_rows = 0, n_states = 0;
    for (; n_parts < n && n_parts < engine_max_parts(e); n_parts++) {
        const struct work *p = &w[n_parts];
        if (p->seq->engine != e || p->n == 0 || p->n_logits > 0 || is_under_way(p->seq))
            break;
        for (size_t i = 0; i < n_parts; i++)
            if (w[i].seq == p->seq)
                return n_parts;
        const size_t n_its = p->seq->ids.len + (p->ids ? p->n : 0) - p->seq->n_past;
        n_rows += n_its;
        n_states += states_wanted(p->seq, n_its, p->ids);
        if (n_rows > e->n_batch || n_its > engine_max_rows(e) ||
            !has_slots(e, n_parts + 1, n_states))
            return n_parts == 0 && e->core->alike ? 1 : n_parts; // eval_parts cuts it
    }
    return n_parts;
}

// Evaluates what parts' sequences, those of n works, have that is not yet; what it is then stays.
// One alone may be longer than a batch.
static bool eval_parts(struct engine *e, const struct work *w, struct engine_part *parts, size_t n,
                       const struct cancel *cancel, struct error *err)
{
    struct engine_core *c = e->core;
    bool marks[ENGINE_MAX_PARTS];
    c->logits_of = NULL;
    for (size_t i = 0; i < n; i++) {
        struct seq *s = w[i].seq;
        marks[i] = begin_text(&w[i]);
        if (w[i].ids)
            windows_turn(s);
        parts[i].ids = s->ids.data + s->n_past;
        parts[i].n = s->ids.len - s->n_past;
        if (!room_take(s, s->ids.len, n > 1 ? states_wanted(s, parts[i].n, false) : 1, err))
            return false;
    }
    const struct engine_part last = parts[0];
    for (bool ends = false; !ends;) {
        size_t n_first = n > 1 ? parts[0].n : least(parts[0].n, engine_max_rows(e));
        for (size_t i = 0; i < n; i++)
            states_mark_before(w[i].seq, i == 0 ? n_first : parts[i].n);
        if (cancel_asked(cancel))
            return error_set(err, ERR_INTERRUPTED, "interrupted");
        if (n == 1 && !room_take_piece(w[0].seq, &n_first, false, err))
            return false;
        ends = n_first == parts[0].n;
        if (!ends) {
            parts[0].n = n_first;
            parts[0].given = true;
            parts[0].pick = false;
        }
        for (size_t i = 0; i < n; i++) {
            const size_t begin = w[i].seq->n_past;
            if (!room_take_near(w[i].seq, begin, begin + parts[i].n, err))
                return false;
        }
        if (!c->backend->eval_parts(e, parts, n, cancel, err))
            return false;
        for (size_t i = 0, row = 0; i < n; row += parts[i++].n) {
            if (!hidden_keep(w[i].seq, row, parts[i].n, err))
                return false;
            states_advance_all(w[i].seq, parts[i].n);
            if (ends && marks[i])
                states_mark(w[i].seq);
            if (ends && w[i].ids)
                end_given(&w[i]);
        }
        if (!ends) {
            struct seq *s = w[0].seq;
            parts[0] = last;
            parts[0].given = true;
            parts[0].ids = s->ids.data + s->n_past;
            parts[0].n = s->ids.len - s->n_past;
        }
    }
    return true;
}

// ---- drafts

bool engine_takes_drafts(const struct engine *e)
{
    // The state before the drafts, that behind them, and that of those which stay.
    enum { LEAST_STATES = 3 };
    return e->core->max_drafts > 0 && (e->n_states == 0 || e->n_states >= LEAST_STATES);
}

size_t seq_max_drafts(const struct seq *s)
{
    const struct engine *e = s->engine;
    const struct engine_core *c = e->core;
    const size_t len = s->ids.len;
    // Who has not evaluated more than the last token (it was paused) reads a prompt first.
    if (!engine_takes_drafts(e) || asks_count(s, false) > 0 || s->n_past + 1 != len ||
        len > s->n_max)
        return 0;
    const size_t rows = least(c->max_draft_rows, e->n_batch) - 1;
    const size_t wanted = e->most_drafts > 0 ? e->most_drafts : c->max_drafts;
    const size_t n = least(least(least(c->max_drafts, wanted), rows), s->n_max - len);
    // Nobody is paused for a guess.
    return seq_needs_blocks(s, len + n) <= engine_free_blocks(e) ? n : 0;
}

// The tokens that its sequence has when w is about to be evaluated, but for drafts.
static size_t len_with(const struct work *w)
{
    return w->seq->ids.len + (w->ids ? w->n : 0);
}

// Of each of n works of one pass, to n_drafts (n): how many are looked at.
static void fit_drafts(const struct engine *e, const struct work *w, size_t n, size_t *n_drafts)
{
    const size_t most = least(e->core->max_draft_rows, e->n_batch);
    const size_t n_free = engine_free_blocks(e);
    size_t n_rows = 0, n_blocks = 0, n_left = ENGINE_MAX_PASS_DRAFTS;
    for (size_t i = 0; i < n; i++) {
        const size_t len = len_with(&w[i]);
        n_rows += len - w[i].seq->n_past;
        n_blocks += seq_needs_blocks(w[i].seq, len);
    }
    for (size_t i = 0; i < n; i++) {
        const struct seq *s = w[i].seq;
        const size_t len = s->ids.len;
        n_drafts[i] = 0;
        if (w[i].n_drafts == 0 || n_rows >= most)
            continue;
        const size_t k =
            least(least(w[i].n_drafts, seq_max_drafts(s)), least(n_left, most - n_rows));
        const size_t more = seq_needs_blocks(s, len + k) - seq_needs_blocks(s, len);
        if (n_blocks + more > n_free)
            continue;
        n_drafts[i] = k;
        n_rows += k;
        n_blocks += more;
        n_left -= k;
    }
}

void engine_fit_drafts(const struct engine *e, struct work *w, size_t n)
{
    size_t n_drafts[ENGINE_MAX_PARTS];
    fit_drafts(e, w, n, n_drafts);
    for (size_t i = 0; i < n; i++)
        w[i].n_drafts = n_drafts[i];
}

bool engine_accepts(const struct engine_part *p, size_t i, int32_t sampled)
{
    return i + 1 < p->n && p->ids[i + 1] == sampled && !seq_stops_at(p->seq, sampled);
}

// s goes back to len tokens, of which n are evaluated.
static void go_back(struct seq *s, size_t len, size_t n)
{
    s->ids.len = len;
    room_go_back(s, n);
}

// What a sequence was before a pass in which it has drafts. No state can be cut: it goes on from
// the one before the drafts, which is held.
struct before {
    size_t len, given; // given: before the pass's own
    uint32_t held;
    bool marked;
};

// Of the drafts of w, which are evaluated as part i of the pass, those stay that were sampled; none
// where the first pick has failed.
static bool keep_drafts(const struct work *w, size_t i, struct before *b, struct error *err)
{
    struct seq *s = w->seq;
    const struct engine_part *p = &s->engine->core->parts[i];
    const bool failed = p->error.code != ERR_NONE;
    const size_t n = failed ? b->len - 1 : b->len + p->n_more; // stay evaluated
    bool ok = true;
    if (s->n_past > n) {
        states_return(s, b->len - 1, b->held);
        ok = failed || room_advance_state(s, i, p->n_more + 1, err);
    } else {
        states_let_go(s, b->held);
    }
    b->held = NO_STATE;
    go_back(s, failed ? b->len : n, n);
    return ok;
}

// What is not evaluated of sequences that had drafts goes through passes once more: rows that stay,
// where the device cannot go on through them; and those whose pick has failed, so that it is told
// as it is without drafts. Interrupted, it is left to their next work.
static bool evaluate_again(struct engine *e, const struct work *w, size_t n,
                           const struct cancel *cancel, struct error *err)
{
    struct engine_core *c = e->core;
    struct work works[ENGINE_MAX_PASS_DRAFTS];
    struct engine_part *of[ENGINE_MAX_PASS_DRAFTS];
    struct error mine = {0};
    size_t n_again = 0;
    bool ok = true;
    for (size_t i = 0; i < n; i++) {
        struct engine_part *p = &c->parts[i];
        const bool failed = p->error.code != ERR_NONE;
        if (p->n_drafts == 0 || w[i].seq->n_past == w[i].seq->ids.len)
            continue;
        works[n_again] = (struct work){.seq = w[i].seq, .n = 1};
        c->again[n_again] = (struct engine_part){
            .seq = w[i].seq, .pick = failed, .n_drafts = failed ? 0 : p->n_more};
        of[n_again++] = p;
    }
    for (size_t i = 0, k; ok && i < n_again; i = k) {
        size_t n_rows = 0;
        for (k = i; k < n_again; k++) {
            n_rows += works[k].seq->ids.len - works[k].seq->n_past;
            if (k > i && n_rows > e->n_batch)
                break;
        }
        ok = eval_parts(e, works + i, c->again + i, k - i, cancel, &mine);
        for (size_t j = i; ok && j < k; j++)
            if (c->again[j].pick) {
                of[j]->d = c->again[j].d;
                of[j]->error = c->again[j].error;
            }
    }
    for (size_t i = 0; !ok && i < n_again; i++)
        room_go_back(works[i].seq, works[i].seq->n_past);
    return ok || mine.code == ERR_INTERRUPTED || error_set(err, mine.code, "%s", mine.text);
}

// ---- passes

// Checks n works that are to be one pass, appends what they bring, and makes their parts; *n_begun:
// so many have been.
static bool begin_parts(struct engine *e, const struct work *w, size_t n, struct before *b,
                        size_t *n_begun, struct error *err)
{
    struct engine_core *c = e->core;
    size_t n_drafts[ENGINE_MAX_PARTS], n_asks = 0, n_drafted = 0;
    for (size_t i = 0; i < n; i++)
        if (!check_work(&w[i], e, err))
            return false;
    fit_drafts(e, w, n, n_drafts);
    for (size_t i = 0; i < n; i++)
        n_asks += w[i].n_pick + n_drafts[i];
    if (!check_asks(c, n_asks, err))
        return false;
    for (size_t i = 0; i < n; i++) {
        struct seq *s = w[i].seq;
        if (!(w[i].ids ? seq_append(s, w[i].ids, w[i].n, err) : check_sampled(s, err)))
            return false;
        const size_t len = s->ids.len;
        b[i] = (struct before){len, s->given, NO_STATE, false};
        struct engine_part *p = &c->parts[i]; // by fields: it has room for much text
        p->seq = s;
        p->given = w[i].ids;
        p->pick = w[i].n_pick == 1;
        p->error.code = ERR_NONE;
        p->error.text[0] = '\0';
        p->n_drafts = n_drafts[i];
        p->more = c->drafted + n_drafted;
        p->n_more = 0;
        n_drafted += n_drafts[i];
        if (n_drafts[i] > 0) {
            if (!room_take_states(s, 0, err))
                return false;
            states_mark_before(s, 1 + n_drafts[i]);
            b[i].held = states_hold(s);
            b[i].marked = states_marked(s, len - 1);
            ids_append(&s->ids, w[i].drafts, n_drafts[i]); // there is room
        }
        ++*n_begun;
    }
    return true;
}

// Those of the first n works whose pass has not come to its end go back.
static void undo_parts(struct engine *e, const struct work *w, size_t n, const struct before *b)
{
    for (size_t i = 0; i < n; i++) {
        struct seq *s = w[i].seq;
        const size_t before = b[i].len - (w[i].ids ? w[i].n : 0);
        states_let_go(s, b[i].held);
        if (e->core->parts[i].n_drafts > 0) {
            go_back(s, before, before - 1);
            continue;
        }
        fail_given(s, before, b[i].given);
    }
}

// What was sampled in the pass of a part becomes its sequence's, and waits to be waited for.
static void add_picks(const struct work *w, const struct engine_part *p, const struct before *b,
                      uint64_t ticket)
{
    struct seq *s = w->seq;
    struct engine_core *c = s->engine->core;
    const bool failed = p->error.code != ERR_NONE;
    const size_t n = failed ? 0 : p->n_more;
    if (p->n_drafts > 0) {
        states_unmark(s, b->len - 1, b->marked);
        states_mark_due(s);
        s->ids.len = b->len;
    }
    for (size_t i = 0; i <= n; i++) {
        asks_add(c, s, ticket, true);
        struct ask *a = &c->asks[c->n_asks - 1];
        a->done = true;
        a->d = i == 0 ? p->d : p->more[i - 1];
        if (failed)
            a->error = p->error;
        else
            ids_push(&s->ids, a->d.id); // there is room
    }
    c->asks[c->n_asks - 1].n_void = w->n_drafts - n;
}

// Works that are one pass: those that count_parts has counted, or one. All of them are done, or
// none.
static bool submit_parts(struct engine *e, const struct work *w, size_t n, uint64_t ticket,
                         const struct cancel *cancel, struct error *err)
{
    struct engine_core *c = e->core;
    struct before before[ENGINE_MAX_PARTS];
    size_t n_begun = 0;
    bool ok = engine_settle(e, cancel, err) && begin_parts(e, w, n, before, &n_begun, err) &&
              eval_parts(e, w, c->parts, n, cancel, err);
    for (size_t i = 0; ok && i < n; i++)
        ok = c->parts[i].n_drafts == 0 || keep_drafts(&w[i], i, &before[i], err);
    ok = ok && evaluate_again(e, w, n, cancel, err);
    if (!ok)
        undo_parts(e, w, n_begun, before);
    for (size_t i = 0; ok && i < n; i++)
        if (c->parts[i].pick)
            add_picks(&w[i], &c->parts[i], &before[i], ticket);
    return ok;
}

// One work alone, without the drafts that it may bring.
static bool submit_plain(struct engine *e, const struct work *w, uint64_t number,
                         const struct cancel *cancel, struct error *err)
{
    if (count_parts(e, w, 1) > (e->core->alike ? 0 : 1))
        return submit_parts(e, w, 1, number, cancel, err);
    if (!check_work(w, e, err) || !check_asks(e->core, w->n_pick, err) ||
        !submit(e, w, number, cancel, err))
        return false;
    if (w->n_pick > 0)
        e->core->asks[e->core->n_asks - 1].n_void = w->n_drafts;
    return true;
}

static bool fail(struct engine *e, const struct error *why, struct error *err)
{
    e->failed |= why->code != ERR_INTERRUPTED && why->code != ERR_CONTEXT;
    if (err)
        *err = *why;
    return false;
}

bool engine_submit(struct engine *e, const struct work *w, size_t n, const struct cancel *cancel,
                   uint64_t *ticket, struct error *err)
{
    const uint64_t number = ++e->core->tickets;
    struct error why = {0};
    bool ok = true;
    if (ticket)
        *ticket = number;
    for (size_t i = 0; i < n; i++)
        w[i].seq->at_work = true;
    for (size_t i = 0; ok && i < n;) {
        const size_t n_parts = count_parts(e, w + i, n - i);
        for (size_t k = 0; ok && k < (n_parts > 1 ? n_parts : 1); k++)
            ok = hidden_give(&w[i + k], &why);
        if (!ok)
            break;
        if (n_parts > 1)
            ok = submit_parts(e, w + i, n_parts, number, cancel, &why);
        else if (w[i].n_drafts > 0 && seq_max_drafts(w[i].seq) > 0)
            ok = submit_parts(e, w + i, 1, number, cancel, &why);
        else
            ok = submit_plain(e, &w[i], number, cancel, &why);
        i += n_parts > 1 ? n_parts : 1;
    }
    for (size_t i = 0; i < n; i++)
        w[i].seq->at_work = false;
    return ok || fail(e, &why, err);
}

bool engine_wait(struct engine *e, uint64_t ticket, const struct cancel *cancel,
                 struct decoded *picks, struct error *err)
{
    struct engine_core *c = e->core;
    struct error why = {0};
    size_t n = 0;
    bool ok = true;
    for (size_t i = 0; i < c->n_asks; i++) {
        if (c->asks[i].ticket != ticket)
            continue;
        n++;
        while (!c->asks[i].done)
            if (!asks_take(e, asks_oldest(c), cancel, &why))
                return fail(e, &why, err);
    }
    if (n == 0)
        return error_set(err, ERR_FAIL,
                         "ticket %llu: nothing is to come (waited for before, or cut off)",
                         (unsigned long long)ticket);
    size_t n_kept = 0;
    for (size_t i = 0; i < c->n_asks; i++) {
        const struct ask *a = &c->asks[i];
        if (a->ticket != ticket) {
            if (i != n_kept)
                c->asks[n_kept] = *a;
            n_kept++;
            continue;
        }
        if (ok && a->error.code != ERR_NONE)
            why = a->error;
        *picks = a->d;
        if (a->error.code != ERR_NONE)
            *picks = (struct decoded){.id = -1};
        picks++;
        for (size_t k = 0; k < a->n_void; k++)
            *picks++ = (struct decoded){.id = -1};
        ok = ok && a->error.code == ERR_NONE;
    }
    c->n_asks = n_kept;
    return ok || fail(e, &why, err);
}

bool seq_logits(struct seq *s, size_t i, const struct cancel *cancel, float *out, struct error *err)
{
    struct engine_core *c = s->engine->core;
    size_t n = c->logits_of == s ? c->n_logits : 0;
    if (i >= n)
        return error_set(err, ERR_FAIL, "logits of row %zu: the last work left %zu", i, n);
    struct error mine = {0};
    if (engine_settle(s->engine, cancel, &mine) &&
        c->backend->logits(s->engine, s, i, cancel, out, &mine))
        return true;
    if (mine.code != ERR_INTERRUPTED)
        c->logits_of = NULL;
    if (err)
        *err = mine;
    return false;
}
