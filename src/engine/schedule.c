#include "engine/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define MOST_WAIT 0.05 // seconds, see schedule_prompt_room

enum {
    // Tokens that most answers have: who enters finds room for as many, or for fewer where -n says
    // so. With more of them than there is room for, the youngest has to leave.
    USUAL_ANSWER = 256,
    // Of a batch, the part that prompts may have in a pass beside rows that are being decoded.
    PROMPT_PART = 4,
    FIRST_ROOM = 16, // tokens of prompts in the first such pass
    // Tokens for which a prompt waits until another one that begins so is read: these, or a quarter
    // of a short one.
    MUCH = 32,
    // Tasks that wait because the next one to enter does not fit: more would only take memory.
    MOST_WAITING = 32,
};

bool schedule_init(struct schedule *s, struct engine *e, size_t n_parallel, struct seq *base,
                   const struct cancel *cancel, struct error *err)
{
    const size_t most = engine_max_parts(e);
    const size_t n = n_parallel == 0 || n_parallel > most ? most : n_parallel;
    *s = (struct schedule){
        .engine = e, .cancel = cancel, .n_parallel = n, .prompt_room = FIRST_ROOM};
    s->running = calloc(n, sizeof(struct task *));
    s->with = calloc(n, sizeof(struct task *));
    s->works = calloc(n, sizeof *s->works);
    s->picks = calloc(n + ENGINE_MAX_PASS_DRAFTS, sizeof *s->picks);
    s->kept = calloc(n, sizeof(struct seq *));
    if (!s->running || !s->with || !s->works || !s->picks || !s->kept) {
        schedule_release(s);
        return error_oom(err, "the rows of a pass", n * sizeof *s->picks);
    }
    if (base && seq_n_past(base) > 0) {
        s->stem = seq_fork(base, seq_n_past(base), err);
        if (!s->stem) {
            schedule_release(s);
            return false;
        }
        seq_trim(base, 0);
    }
    return true;
}

// The seat of a task that runs, or n_running.
static size_t seat_of(const struct schedule *s, const struct task *t)
{
    size_t i = 0;
    while (i < s->n_running && s->running[i] != t)
        i++;
    return i;
}

static void leave_seat(struct schedule *s, const struct task *t)
{
    const size_t i = seat_of(s, t);
    if (i == s->n_running)
        return;
    s->n_running--;
    memmove(&s->running[i], &s->running[i + 1], (s->n_running - i) * sizeof(struct task *));
}

static void free_seq(struct task *t)
{
    seq_free(t->session.seq);
    t->session.seq = NULL;
    t->n_ahead = 0;
}

static void drop_kept(struct schedule *s, size_t i)
{
    seq_free(s->kept[i]);
    s->n_kept--;
    memmove(&s->kept[i], &s->kept[i + 1], (s->n_kept - i) * sizeof(struct seq *));
}

bool schedule_keep(struct schedule *s, size_t n, struct error *err)
{
    // (The states of a recurrent model are few, and each sequence has some; and who is kept needs a
    // window beside those that run.)
    const size_t windows = engine_windows(s->engine) - s->n_parallel;
    struct seq **kept = calloc(s->n_parallel + n, sizeof(struct seq *));
    if (!kept)
        return error_oom(err, "the list of answers that are kept", n * sizeof *kept);
    free(s->kept);
    s->kept = kept;
    s->most_kept = s->engine->n_states > 0 ? 0 : n < windows ? n : windows;
    return true;
}

bool schedule_speculate(struct schedule *s, struct engine *draft, struct error *err)
{
    return guesses_init(&s->guesses, s->engine, draft, s->n_parallel, err);
}

void schedule_release(struct schedule *s)
{
    while (s->n_running > 0)
        schedule_remove(s, s->running[0]);
    while (s->waiting)
        schedule_remove(s, s->waiting);
    seq_free(s->stem);
    while (s->n_kept > 0)
        drop_kept(s, 0);
    free(s->kept);
    guesses_release(&s->guesses);
    ids_release(&s->common);
    free(s->running);
    free(s->with);
    free(s->works);
    free(s->picks);
    *s = (struct schedule){0};
}

void schedule_remove(struct schedule *s, struct task *t)
{
    leave_seat(s, t);
    guesses_leave(&s->guesses, t);
    for (struct task **p = &s->waiting; *p; p = &(*p)->next)
        if (*p == t) {
            *p = t->next;
            s->n_waiting--;
            break;
        }
    free_seq(t);
    ids_release(&t->rest);
}

bool schedule_wants(const struct schedule *s)
{
    return s->n_waiting < MOST_WAITING && s->n_running + s->n_waiting <= s->n_parallel;
}

bool schedule_idle(const struct schedule *s)
{
    return s->n_running + s->n_waiting == 0;
}

// ---- what is shared

static size_t common_ids(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
    size_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n])
        n++;
    return n;
}

static size_t evaluated_of(const struct seq *q, const struct ids *ids)
{
    return q ? common_ids(ids->data, ids->len, seq_ids(q), seq_n_past(q)) : 0;
}

// The sequence that has most of t's beginning evaluated, but the last token, after which the next
// one is sampled; NULL: none has any.
static struct seq *find_donor(const struct schedule *s, const struct task *t, size_t *n)
{
    struct seq *best = s->stem;
    *n = evaluated_of(best, &t->rest);
    for (size_t i = 0; i < s->n_running; i++) {
        const size_t k = evaluated_of(s->running[i]->session.seq, &t->rest);
        if (k > *n) {
            best = s->running[i]->session.seq;
            *n = k;
        }
    }
    for (size_t i = s->n_kept; i-- > 0;) { // (of equals the latest)
        const size_t k = evaluated_of(s->kept[i], &t->rest);
        if (k > *n) {
            best = s->kept[i];
            *n = k;
        }
    }
    *n = *n < t->rest.len ? *n : t->rest.len - 1;
    return *n > 0 ? best : NULL;
}

// Whether one that runs is about to evaluate much of what t would have to beyond n tokens.
static bool is_being_read(const struct schedule *s, const struct task *t, size_t n)
{
    const size_t much = t->rest.len / 4 < MUCH ? t->rest.len / 4 : MUCH;
    for (size_t i = 0; i < s->n_running; i++) {
        const struct ids *r = &s->running[i]->rest;
        if (s->running[i]->reading &&
            common_ids(t->rest.data, t->rest.len, r->data, r->len) > n + much)
            return true;
    }
    return false;
}

// The first n tokens of q are kept, for others to begin with.
static void keep_tokens(struct seq *q, size_t n)
{
    struct error none;
    seq_trim(q, n);
    seq_keep_hidden(q, 0, &none);
}

// What t leaves is kept as a whole, for what comes next in the same conversation; what it goes on
// from is part of it, and the oldest makes room.
static void keep_answer(struct schedule *s, struct task *t)
{
    struct seq *q = t->session.seq;
    for (size_t i = 0; i < s->n_kept;) {
        struct seq *k = s->kept[i];
        if (common_ids(seq_ids(k), seq_len(k), seq_ids(q), seq_n_past(q)) == seq_len(k))
            drop_kept(s, i);
        else
            i++;
    }
    if (s->n_kept == s->most_kept)
        drop_kept(s, 0);
    keep_tokens(q, seq_n_past(q));
    s->kept[s->n_kept++] = q;
    t->session.seq = NULL;
}

// What t leaves is there until those that wait have entered, and may begin with it: others that
// end in the same pass leave something else.
static void keep_prompt(struct schedule *s, struct task *t)
{
    struct seq *q = t->session.seq;
    if (!q)
        return;
    if (s->most_kept > 0) {
        keep_answer(s, t);
        return;
    }
    keep_tokens(q, t->stats.n_prompt);
    s->kept[s->n_kept++] = q;
    t->session.seq = NULL;
}

// Of what was left the stem becomes what has most of that which all prompts begin with; of equals
// the latest.
static void choose_stem(struct schedule *s)
{
    for (; s->n_kept > s->most_kept; drop_kept(s, 0)) {
        struct seq *q = s->kept[0];
        if (evaluated_of(q, &s->common) < evaluated_of(s->stem, &s->common))
            continue;
        s->kept[0] = s->stem;
        s->stem = q;
    }
}

// ---- a task's beginning and end

bool schedule_add(struct schedule *s, struct task *t, struct error *err)
{
    const struct ids *prompt = t->prompt;
    if (prompt->len == 0)
        return error_set(err, ERR_USAGE, "the prompt is empty: nothing to continue from");
    if (prompt->len > s->engine->n_ctx)
        return error_set(
            err, ERR_CONTEXT,
            "the prompt has %zu tokens but the context holds %u: shorten it, or use -c %zu",
            prompt->len, s->engine->n_ctx, prompt->len);
    *t = (struct task){.prompt = prompt, .p = t->p, .g = t->g, .reading = true};
    if (!ids_append(&t->rest, prompt->data, prompt->len) ||
        (!s->any && !ids_append(&s->common, prompt->data, prompt->len))) {
        ids_release(&t->rest);
        return error_oom(err, "the prompt's tokens", prompt->len * sizeof *prompt->data);
    }
    s->any = true;
    s->common.len = common_ids(s->common.data, s->common.len, prompt->data, prompt->len);
    t->session.engine = s->engine;
    generation_begin(&t->gen, &t->session, t->p, t->g);
    struct task **p = &s->waiting;
    while (*p)
        p = &(*p)->next;
    *p = t;
    s->n_waiting++;
    return true;
}

// why: what failed; NULL: the answer has ended.
static void end(struct schedule *s, struct task *t, const struct error *why)
{
    struct session_stats *stats = &t->session.stats;
    if (why)
        t->error = *why;
    struct error late = {0};
    if (t->g->ids.len == 0)
        t->gen.start = clock_now();
    if (!generation_end(&t->gen, !why, &late) && !why)
        t->error = late;
    stats->n_prompt = t->prompt->len;
    t->stats = *stats;
    t->n_tokens = t->session.seq ? seq_len(t->session.seq) : t->rest.len;
    if (!why)
        keep_prompt(s, t);
    schedule_remove(s, t);
    t->done = true;
}

static void end_by(struct schedule *s, struct task *t, struct error *err)
{
    if (err->code == ERR_NONE) // a pick that failed names its cause; this one has none
        error_set(err, ERR_FAIL, "the device gave no token");
    end(s, t, err);
}

// Whether another token may be sampled after what t is; else it is done.
static bool may_go_on(struct schedule *s, struct task *t, size_t *n_left)
{
    struct error err = {0};
    struct seq *q = t->session.seq;
    bool ok = generation_room(&t->gen, t->reading ? t->rest.len : seq_len(q), n_left, &err);
    if (ok && !t->gen.done && *n_left == 0) { // the context is full: shifted, it is read again
        if (!t->reading) {
            ids_clear(&t->rest);
            ok = ids_append(&t->rest, seq_ids(q), seq_len(q)) ||
                 error_oom(&err, "the shifted context", seq_len(q) * sizeof *t->rest.data);
        }
        ok = ok && generation_shift(&t->gen, &t->rest, &err);
        t->reading = true;
        if (t->session.speculation)
            speculation_forget(t->session.speculation);
        if (ok && q) {
            const size_t n = evaluated_of(q, &t->rest);
            seq_trim(q, n < t->rest.len ? n : t->rest.len - 1);
            t->n_ahead = 0;
        }
        *n_left = ok ? generation_context(&t->gen) - t->rest.len : 0;
    }
    if (ok && !t->gen.done)
        return true;
    end(s, t, ok ? NULL : &err);
    return false;
}

// Tokens for which t should find room: what its answer may take, but no more than most answers do.
static size_t likely_tokens(const struct schedule *s, const struct task *t)
{
    const size_t n_ctx = s->engine->n_ctx, given = t->g->ids.len;
    const size_t len = t->reading ? t->rest.len : seq_len(t->session.seq);
    size_t more = USUAL_ANSWER;
    if (t->p->n_predict >= 0 && (uint64_t)t->p->n_predict < given + more)
        more = (uint64_t)t->p->n_predict > given ? (size_t)t->p->n_predict - given : 0;
    return len < n_ctx && more < n_ctx - len ? len + more : n_ctx;
}

// What was asked for beyond the tokens at hand is dropped: others are to be in the next pass.
static void drop_ahead(struct task *t)
{
    if (t->n_ahead > 0)
        seq_trim(t->session.seq, seq_len(t->session.seq));
    t->n_ahead = 0;
}

// Lets the first that waits have a seat; false: not yet.
static bool enter(struct schedule *s)
{
    struct task *t = s->waiting;
    struct error err = {0};
    size_t n_left, n_shared;
    if (!may_go_on(s, t, &n_left))
        return true;
    struct seq *donor = find_donor(s, t, &n_shared);
    if (is_being_read(s, t, n_shared))
        return false;
    size_t needed = engine_blocks(s->engine, likely_tokens(s, t)) + (n_shared > 0) -
                    engine_blocks(s->engine, n_shared);
    for (size_t i = 0; i < s->n_running; i++)
        needed += seq_needs_blocks(s->running[i]->session.seq, likely_tokens(s, s->running[i]));
    if (needed > engine_free_blocks(s->engine) && s->stem) // what not all have any more
        seq_trim(s->stem, evaluated_of(s->stem, donor == s->stem ? &t->rest : &s->common));
    for (size_t i = 0; needed > engine_free_blocks(s->engine) && i < s->n_kept;)
        if (s->kept[i] == donor)
            i++;
        else
            drop_kept(s, i);
    if (needed > engine_free_blocks(s->engine) &&
        s->n_kept > 0) // the donor: what others need of it
        seq_trim(donor, n_shared);
    if (needed > engine_free_blocks(s->engine) && s->n_running > 0)
        return false;
    for (size_t i = 0; i < s->n_running; i++)
        drop_ahead(s->running[i]); // (one, if any)
    struct seq *q = donor ? seq_fork(donor, n_shared, &err) : seq_open(s->engine, 0, &err);
    if (!q) {
        end(s, t, &err);
        return true;
    }
    s->waiting = t->next;
    s->n_waiting--;
    t->next = NULL;
    t->session.seq = q;
    if (s->most_kept == 0)
        seq_answers_once(q);
    s->running[s->n_running++] = t;
    if (t->entered == 0) {
        t->entered = clock_now();
        t->session.stats.n_reused = seq_n_past(q);
        t->session.stats.n_evaluated = t->rest.len - seq_n_past(q);
    }
    if (!guesses_enter(&s->guesses, t, &err) || !generation_sampling(&t->gen, &err))
        end(s, t, &err);
    return true;
}

// The youngest gives its memory back, and is the first to enter again.
static void pause(struct schedule *s)
{
    struct task *t = s->running[s->n_running - 1];
    struct seq *q = t->session.seq;
    struct error err = {0};
    if (!t->reading) {
        ids_clear(&t->rest);
        if (!ids_append(&t->rest, seq_ids(q), seq_len(q))) {
            error_oom(&err, "the tokens of an answer that waits", seq_len(q) * sizeof(int32_t));
            end(s, t, &err);
            return;
        }
    }
    t->reading = true;
    free_seq(t);
    guesses_pause(t);
    s->n_running--;
    t->next = s->waiting;
    s->waiting = t;
    s->n_waiting++;
}

// ---- passes

// The first token of t comes with this pass, or with what it submitted.
static void is_read(struct task *t)
{
    t->reading = false;
    if (t->g->ids.len == 0) {
        t->gen.start = clock_now();
        t->session.stats.prefill_s = t->gen.start - t->entered;
    }
}

// A recurrent state is kept where prompts part, so that others go on from there.
static struct work next_rows(const struct schedule *s, const struct task *t, size_t most)
{
    struct work w = {.seq = t->session.seq, .n = 1, .n_pick = 1};
    if (t->reading) { // behind what it has, evaluated or not: forks with a recurrent state go back
        const size_t n_given = seq_len(w.seq), rest = t->rest.len - n_given;
        w.ids = t->rest.data + n_given;
        w.n = rest < most ? rest : most;
        const size_t parting = s->engine->n_states > 0 ? s->common.len : 0;
        w.goes_on = w.n < rest;
        if (parting >= MUCH && n_given < parting && parting < n_given + w.n) {
            w.n = parting - n_given;
            w.goes_on = false;
        }
        w.n_pick = w.n == rest;
    }
    return w;
}

static bool is_interrupted(const struct schedule *s, const struct error *e, struct error *err)
{
    if (e->code != ERR_INTERRUPTED && !cancel_asked(s->cancel))
        return false;
    error_set(err, ERR_INTERRUPTED, "interrupted");
    return true;
}

// ---- guesses

// Who of those that run may go on, and how that may be; who may not, or fails, is done. Errors:
// ERR_INTERRUPTED.
static bool look_ahead(struct schedule *s, double began, struct error *err)
{
    size_t n_left;
    for (size_t i = 0; i < s->n_running;) { // (who ends leaves the seat to the next)
        struct task *t = s->running[i];
        struct error its = {0};
        if (may_go_on(s, t, &n_left) && !guesses_find(&s->guesses, t, n_left, s->cancel, &its))
            end_by(s, t, &its);
        i += !t->done;
    }
    if (!guesses_make(&s->guesses, s->running, s->n_running, began, s->cancel, err))
        return false;
    for (size_t i = s->n_running; i-- > 0;)
        if (s->running[i]->error.code != ERR_NONE)
            end_by(s, s->running[i], &s->running[i]->error);
    return true;
}

// ---- steps

// Tokens of n picks: the others were not made.
static size_t count_picks(const struct decoded *d, size_t n)
{
    size_t n_made = 0;
    for (size_t i = 0; i < n; i++)
        n_made += d[i].id >= 0;
    return n_made;
}

// One that runs alone: the device is ahead of the host, unless guesses must come between.
static bool step_alone(struct schedule *s, struct task *t, struct error *err)
{
    const size_t most = s->guesses.costs ? 1 : 1 + seq_run_ahead(t->session.seq);
    const double began = clock_now();
    struct error mine = {0};
    struct decoded d[1 + ENGINE_MAX_DRAFTS];
    size_t n_left, n_drafts = 0;
    if (!may_go_on(s, t, &n_left))
        return true;
    bool ok = guesses_find(&s->guesses, t, n_left, s->cancel, &mine) &&
              guesses_make(&s->guesses, &t, 1, began, s->cancel, &mine);
    if (ok && t->error.code != ERR_NONE) {
        mine = t->error;
        ok = false;
    }
    const bool decodes = !t->reading;
    while (ok && t->n_ahead < n_left && t->n_ahead < most) {
        struct work *w = &s->works[0];
        *w = next_rows(s, t, engine_max_rows(s->engine));
        s->with[0] = t;
        n_drafts = guesses_bring(&s->guesses, w, &t, 1);
        ok = engine_submit(s->engine, w, 1, s->cancel, &t->tickets[t->n_ahead], &mine);
        if (ok && !decodes)
            guesses_step(&s->guesses, 0, 0, 0, w->n, clock_now() - began);
        if (ok && w->n_pick == 0)
            return true;
        t->n_ahead += ok;
        if (ok && t->reading)
            is_read(t);
    }
    ok = ok && engine_wait(s->engine, t->tickets[0], s->cancel, d, &mine);
    if (is_interrupted(s, &mine, err))
        return false;
    if (ok) {
        const double seconds = clock_now() - began;
        memmove(t->tickets, t->tickets + 1, --t->n_ahead * sizeof *t->tickets);
        if (decodes)
            guesses_step(&s->guesses, 1, n_drafts, count_picks(d, 1 + n_drafts), 0, seconds);
        ok = generation_take(&t->gen, d, n_drafts, decodes ? seconds : 0, &mine);
    }
    if (!ok)
        end_by(s, t, &mine);
    else if (t->gen.done)
        end(s, t, NULL);
    return true;
}

size_t schedule_prompt_room(size_t room, size_t most, size_t n, double seconds, double plain)
{
    const double limit = 2 * plain > MOST_WAIT ? 2 * plain : MOST_WAIT;
    if (seconds > limit) {
        const double fits = (double)n * (limit - plain) / (seconds - plain);
        return fits < 1 ? 1 : (size_t)fits;
    }
    return n < room || seconds > limit / 2 ? room : 2 * room < most ? 2 * room : most;
}

static size_t most_room(const struct schedule *s)
{
    return (s->engine->n_batch - 1) / PROMPT_PART + 1;
}

// A pass of n works with so many drafts has given n_tokens and taken so long.
static void see_how_long(struct schedule *s, size_t n, size_t n_drafts, size_t n_tokens,
                         double seconds)
{
    size_t n_read = 0, n_decoded = 0;
    for (size_t i = 0; i < n; i++)
        *(s->works[i].ids ? &n_read : &n_decoded) += s->works[i].n;
    guesses_step(&s->guesses, n_decoded, n_drafts, n_tokens, n_read, seconds);
    if (n_read == 0)
        s->plain_s = seconds;
    else if (n_decoded > 0)
        s->prompt_room =
            schedule_prompt_room(s->prompt_room, most_room(s), n_read, seconds, s->plain_s);
}

// The rows of a pass, for which there is memory.
static size_t gather(struct schedule *s)
{
    size_t n_decoding = 0, n = 0, needed = 0;
    for (size_t i = 0; i < s->n_running; i++)
        n_decoding += !s->running[i]->reading;
    const size_t n_batch = s->engine->n_batch;
    size_t room = n_batch;
    if (n_decoding > 0) {
        room = s->prompt_room < most_room(s) ? s->prompt_room : most_room(s);
        if (n_decoding + room > n_batch)
            room = n_decoding < n_batch ? n_batch - n_decoding : 1;
    }
    for (size_t i = 0; i < s->n_running; i++) {
        struct task *t = s->running[i];
        if (t->reading && room == 0)
            continue;
        const size_t most = engine_max_rows(s->engine);
        const struct work w = next_rows(s, t, room < most ? room : most);
        room -= t->reading ? w.n : 0;
        needed += seq_needs_blocks(w.seq, seq_len(w.seq) + (w.ids ? w.n : 0));
        s->works[n] = w;
        s->with[n++] = t;
    }
    if (needed <= engine_free_blocks(s->engine) || s->n_running < 2)
        return n;
    if (s->n_kept > 0)
        drop_kept(s, 0);
    else if (s->stem && seq_n_past(s->stem) > 0)
        seq_trim(s->stem, 0);
    else
        pause(s);
    return gather(s);
}

// Tasks of a pass that failed as a whole.
static void end_all(struct schedule *s, size_t n, struct error *why)
{
    for (size_t i = 0; i < n; i++)
        end_by(s, s->with[i], why);
}

// Of a pass of n works what was sampled. why: something was not; NULL: all is there.
static void take_picks(struct schedule *s, size_t n, double seconds, struct error *why)
{
    const struct decoded *d = s->picks;
    for (size_t i = 0; i < n; i++) {
        const struct work *w = &s->works[i];
        struct task *t = s->with[i];
        struct error its = {0};
        if (w->n_pick == 0)
            continue;
        if (d->id < 0)
            end_by(s, t, why);
        else if (!generation_take(&t->gen, d, w->n_drafts, w->ids ? 0 : seconds, &its))
            end_by(s, t, &its);
        else if (t->gen.done)
            end(s, t, NULL);
        d += 1 + w->n_drafts;
    }
}

static bool step_together(struct schedule *s, struct error *err)
{
    struct error mine = {0};
    uint64_t ticket;
    size_t n_picks = 0;
    for (size_t i = 0; i < s->n_running; i++)
        drop_ahead(s->running[i]);
    const double began = clock_now();
    if (!look_ahead(s, began, err))
        return false;
    const size_t n = gather(s);
    if (n == 0)
        return true;
    const size_t n_drafts = guesses_bring(&s->guesses, s->works, s->with, n);
    if (!engine_submit(s->engine, s->works, n, s->cancel, &ticket, &mine)) {
        if (is_interrupted(s, &mine, err))
            return false;
        end_all(s, n, &mine);
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        n_picks += s->works[i].n_pick;
        if (s->works[i].n_pick > 0 && s->with[i]->reading)
            is_read(s->with[i]);
    }
    if (n_picks == 0)
        return true;
    for (size_t i = 0; i < n_picks + n_drafts; i++)
        s->picks[i].id = -1; // as of those that fail
    const bool ok = engine_wait(s->engine, ticket, s->cancel, s->picks, &mine);
    const double seconds = clock_now() - began;
    see_how_long(s, n, n_drafts, count_picks(s->picks, n_picks + n_drafts), seconds);
    if (is_interrupted(s, &mine, err))
        return false;
    take_picks(s, n, seconds, ok ? NULL : &mine);
    return true;
}

bool schedule_step(struct schedule *s, struct error *err)
{
    if (cancel_asked(s->cancel))
        return error_set(err, ERR_INTERRUPTED, "interrupted");
    while (s->waiting && s->n_running < s->n_parallel && enter(s))
        ;
    choose_stem(s);
    if (s->n_running == 0)
        return true;
    return s->n_running == 1 ? step_alone(s, s->running[0], err) : step_together(s, err);
}
