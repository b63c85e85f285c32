#include "dialog/conversation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "dialog/answering.h"
#include "dialog/crc32.h"
#include "dialog/prefix.h"

const char *role_name(enum role r)
{
    static const char *const names[] = {"system", "user", "assistant"};
    return names[r];
}

void message_release(struct message *m)
{
    buf_release(&m->text);
    ids_release(&m->ids);
    free(m->runs);
    memset(m, 0, sizeof *m);
}

const char *conversation_make_fit(const struct conversation *c)
{
    if (engine_is_longest(c->session.engine))
        return "shorten it: the model has no more positions (position_embd.weight)";
    return c->no_larger ? "shorten it: the context is all that memory has room for, as things are"
                        : "shorten it or open a larger context with -c";
}

bool conversation_init(struct conversation *c, const struct model *m, struct engine *e,
                       const char *template_text, size_t n_template, int64_t now, struct error *err)
{
    memset(c, 0, sizeof *c);
    c->model = m;
    c->now = now;
    if (!session_init(&c->session, e, err))
        return false;
    if (template_text) {
        c->tmpl = template_parse(template_text, n_template, err);
        if (!c->tmpl)
            return error_prefix(err, "the chat template");
        c->think_fields = think_fields(template_text, n_template);
        struct crc32 *crc = malloc(sizeof *crc);
        if (!crc)
            return error_oom(err, "a checksum", sizeof *crc);
        crc32_init(crc);
        crc32_add(crc, template_text, n_template);
        c->template_crc = crc32_take(crc);
        free(crc);
    }
    return true;
}

bool conversation_set_breakers(struct conversation *c, struct sampler_settings *s,
                               struct error *err)
{
    uint32_t n = c->model->hp.n_vocab, n_tokens = tokenizer_n_vocab(c->model->tokenizer);
    struct buf text = {0};
    s->dry_breakers = c->dry_breakers;
    if (s->dry_multiplier == 0 || c->dry_breakers)
        return true;
    s->dry_breakers = c->dry_breakers = calloc(n, 1);
    if (!c->dry_breakers)
        return error_oom(err, "the DRY sequence breakers", n);
    bool ok = true;
    for (uint32_t i = 0; ok && i < n && i < n_tokens; i++) {
        buf_clear(&text);
        ok = tokenizer_decode_one(c->model->tokenizer, (int32_t)i, true, &text);
        c->dry_breakers[i] = text.len && strpbrk(text.data, "\n:\"*") != NULL;
    }
    buf_release(&text);
    if (ok)
        return true;
    free(c->dry_breakers);
    s->dry_breakers = c->dry_breakers = NULL;
    return error_oom(err, "the DRY sequence breakers", n);
}

static void release_messages(struct conversation *c, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        message_release(&c->messages[i]);
}

static void drop_stash(struct conversation *c)
{
    for (size_t i = 0; i < c->n_stash; i++)
        message_release(&c->stash[i]);
    free(c->stash);
    c->stash = NULL;
    c->n_stash = 0;
}

void conversation_release(struct conversation *c)
{
    release_messages(c, 0, c->n_messages + c->n_undone);
    free(c->messages);
    drop_stash(c);
    template_free(c->tmpl);
    free(c->dry_breakers);
    session_release(&c->session);
    memset(c, 0, sizeof *c);
}

static size_t head_messages(const struct conversation *c)
{
    return c->has_system ? 1 : 0;
}

static void forget_undone(struct conversation *c)
{
    drop_stash(c);
    release_messages(c, c->n_messages, c->n_messages + c->n_undone);
    c->n_undone = 0;
}

void conversation_restart_at(struct conversation *c, size_t n, size_t first_kept)
{
    release_messages(c, n, c->n_messages + c->n_undone);
    drop_stash(c);
    c->n_messages = n;
    c->n_undone = 0;
    c->first_kept = first_kept;
}

void conversation_restart(struct conversation *c)
{
    conversation_restart_at(c, head_messages(c), 0);
}

void conversation_clear(struct conversation *c)
{
    conversation_restart(c);
    c->session.stats = (struct session_stats){0};
    conversation_rewind(c, 0);
}

void conversation_rewind(struct conversation *c, size_t n)
{
    seq_trim(c->session.seq, n);
}

// Makes room for one more message at the end of the live ones.
static bool reserve_message(struct conversation *c, struct error *err)
{
    const size_t n = c->n_messages + c->n_undone;
    return array_grow(NULL, &c->messages, n, &c->cap, sizeof *c->messages) ||
           error_oom(err, "the list of messages", (n + 1) * sizeof *c->messages);
}

bool conversation_check(const struct conversation *c, const char *what, const char *text, size_t n,
                        struct error *err)
{
    if (!c->tmpl || utf8_valid(text, n))
        return true;
    uint32_t cp;
    size_t at = 0;
    for (size_t used; at < n && (used = utf8_decode(text + at, n - at, &cp)) > 0;)
        at += used;
    return error_set(err, ERR_USAGE,
                     "%s is not UTF-8: byte %zu is 0x%02X; convert it (iconv -t UTF-8), or "
                     "use -no-cnv to give the model raw bytes",
                     what, at + 1, (unsigned char)text[at]);
}

bool conversation_set_system(struct conversation *c, const char *text, size_t n, struct error *err)
{
    if (!conversation_check(c, "the system prompt", text, n, err))
        return false;
    if (n == 0) {
        if (c->has_system) {
            size_t rest = c->n_messages + c->n_undone - 1;
            message_release(&c->messages[0]);
            memmove(c->messages, c->messages + 1, rest * sizeof *c->messages);
            c->n_messages--;
            c->has_system = false;
            if (c->first_kept > 0)
                c->first_kept--;
            for (size_t i = 0; i < rest; i++) {
                for (size_t k = 0; k < c->messages[i].n_runs; k++) {
                    if (c->messages[i].runs[k].first_kept > 0)
                        c->messages[i].runs[k].first_kept--;
                }
            }
        }
        return true;
    }
    struct buf copy = {0};
    if (!buf_append(&copy, text, n))
        return error_oom(err, "the system prompt", n);
    if (!c->has_system) {
        if (!reserve_message(c, err)) {
            buf_release(&copy);
            return false;
        }
        size_t rest = c->n_messages + c->n_undone;
        memmove(c->messages + 1, c->messages, rest * sizeof *c->messages);
        memset(&c->messages[0], 0, sizeof c->messages[0]);
        c->messages[0].role = ROLE_SYSTEM;
        c->has_system = true;
        c->n_messages++;
        if (c->first_kept > 0)
            c->first_kept++;
        for (size_t i = 1; i <= rest; i++) {
            for (size_t k = 0; k < c->messages[i].n_runs; k++) {
                if (c->messages[i].runs[k].first_kept > 0)
                    c->messages[i].runs[k].first_kept++;
            }
        }
    }
    buf_release(&c->messages[0].text);
    c->messages[0].text = copy;
    return true;
}

// There may come no answer: then what could be redone must not be lost.
static bool put_undone_by(struct conversation *c, struct error *err)
{
    const size_t bytes = c->n_undone * sizeof *c->stash;
    struct message *stash = bytes ? malloc(bytes) : NULL;
    if (bytes && !stash)
        return error_oom(err, "what was taken back", bytes);
    drop_stash(c);
    if (stash)
        memcpy(stash, c->messages + c->n_messages, bytes);
    c->stash = stash;
    c->n_stash = c->n_undone;
    c->n_undone = 0;
    return true;
}

// The list had room for them before, and never shrinks.
static void bring_undone(struct conversation *c)
{
    if (c->n_stash > 0 && c->n_messages + c->n_stash <= c->cap) {
        memcpy(c->messages + c->n_messages, c->stash, c->n_stash * sizeof *c->stash);
        c->n_undone = c->n_stash;
        c->n_stash = 0;
    }
    drop_stash(c);
}

bool conversation_add(struct conversation *c, enum role role, const char *text, size_t n,
                      struct error *err)
{
    if (!conversation_check(c, "the message", text, n, err) || !reserve_message(c, err))
        return false;
    struct message m = {.role = role};
    if ((!buf_append(&m.text, text, n) && !error_oom(err, "the message", n)) ||
        !put_undone_by(c, err)) {
        buf_release(&m.text);
        return false;
    }
    c->messages[c->n_messages++] = m;
    return true;
}

size_t conversation_n_turns(const struct conversation *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_messages; i++)
        n += c->messages[i].role == ROLE_USER;
    return n;
}

struct message *conversation_turn(const struct conversation *c, size_t i)
{
    for (size_t k = 0; k < c->n_messages; k++) {
        if (c->messages[k].role == ROLE_USER && i-- == 0)
            return &c->messages[k];
    }
    return NULL;
}

struct message *conversation_last_answer(const struct conversation *c)
{
    if (c->n_messages == 0 || c->messages[c->n_messages - 1].role != ROLE_ASSISTANT)
        return NULL;
    return &c->messages[c->n_messages - 1];
}

bool conversation_prefix(struct conversation *c, size_t n_messages, enum think think,
                         struct ids *out, const char **open_tag, struct error *err)
{
    struct prefix_request q = {
        .n_messages = n_messages,
        .first_kept = c->first_kept,
        .think = think,
        .generation = true,
    };
    return prefix_build(c, &q, out, open_tag, err);
}

bool conversation_count(struct conversation *c, enum think think, size_t *head, size_t *counts,
                        struct error *err)
{
    struct ids ids = {0};
    size_t *ends = calloc(c->n_messages + 1, sizeof *ends);
    struct prefix_request q = {
        .n_messages = c->n_messages,
        .first_kept = c->first_kept,
        .think = think,
        .ends = ends,
        .head = head,
    };
    *head = 0;
    if (!ends)
        return error_oom(err, "the counts of tokens", c->n_messages * sizeof *ends);
    bool ok = c->n_messages == head_messages(c) || prefix_build(c, &q, &ids, NULL, err);
    size_t turn = 0, last = *head;
    for (size_t i = head_messages(c); ok && i < c->n_messages; i++) {
        if (c->messages[i].role == ROLE_USER) {
            counts[turn++] = 0;
            continue;
        }
        if (i < c->first_kept || turn == 0 || c->messages[i].role != ROLE_ASSISTANT)
            continue;
        counts[turn - 1] = ends[i] > last ? ends[i] - last : 0;
        last = ends[i] > last ? ends[i] : last;
    }
    // What a template writes behind the last answer is evaluated with the next turn; but for the
    // end token, if the model sampled it.
    const struct message *answer = conversation_last_answer(c);
    if (ok && turn > 0 && answer)
        counts[turn - 1] += answer->has_end_token;
    free(ends);
    ids_release(&ids);
    return ok;
}

// ----------------------------------------------------------------------------------------- answers

static void prefill_progress(void *user, size_t done, size_t total)
{
    const struct answering *a = user;
    a->p->on_prefill(a->p->user, done, total);
}

// Decodes. Numbers that a session's file had for keys, values and states may be any, so that no
// token comes of them: then all is evaluated here.
static bool decode(struct conversation *c, struct answering *a, struct error *err)
{
    struct session *s = &c->session;
    const bool ok = generate(s, &a->gp, &a->g, err), begun = ok || a->g.ids.len > 0;
    const bool again =
        !begun && s->restored && s->stats.n_reused > 0 && err && err->code == ERR_FAIL;
    s->restored &= !begun && !again;
    if (!again)
        return ok;
    if (a->p->on_notice)
        a->p->on_notice(a->p->user, "no token comes of the session's memory: it is read again");
    generated_release(&a->g);
    seq_trim(s->seq, 0);
    return session_sync(s, a->prefix.data, a->prefix.len, c->cancel, err) &&
           generate(s, &a->gp, &a->g, err);
}

// Evaluates what a prepared answer begins with, decodes, and appends to m what came.
static bool run_answer(struct conversation *c, struct answering *a, struct message *m,
                       enum finish *finish, struct error *err)
{
    struct session *s = &c->session;
    s->progress = a->p->on_prefill ? prefill_progress : NULL;
    s->progress_user = a;
    s->stats.n_dropped = a->n_dropped;
    bool ok = session_speculate(s, a->p->spec, err) &&
              session_sync(s, a->prefix.data, a->prefix.len, c->cancel, err);
    s->progress = NULL;
    // The start that the user gave is shown only now: a progress line may have been there.
    if (!ok || !answering_begin(a, m, err))
        return false;
    ok = answering_end(a, m, decode(c, a, err), err);
    *finish = a->g.finish;
    return ok;
}

bool conversation_answer(struct conversation *c, const struct answer_params *p, enum finish *finish,
                         struct error *err)
{
    struct message m = {.role = ROLE_ASSISTANT};
    struct answering a = {0};
    *finish = FINISH_INTERRUPTED;
    bool ok = reserve_message(c, err) && answering_prefill(c, p, &m, err) &&
              answering_prepare(&a, c, c->n_messages, p, &m, err) &&
              run_answer(c, &a, &m, finish, err);
    if (ok && m.n_runs == 0 && *finish == FINISH_INTERRUPTED)
        ok = error_set(err, ERR_INTERRUPTED, "interrupted before the first token");
    if (m.n_runs > 0 || ok) {
        forget_undone(c);
        c->messages[c->n_messages++] = m;
        c->behind = false;
    } else {
        message_release(&m);
    }
    answering_release(&a);
    return ok;
}

const char *message_answer(const struct message *m, size_t *n)
{
    *n = think_answer_end(buf_str(&m->text), m->text.len, m->answer_at) - m->answer_at;
    return buf_str(&m->text) + m->answer_at;
}

bool conversation_continue(struct conversation *c, const struct answer_params *p,
                           enum finish *finish, struct error *err)
{
    struct message *m = conversation_last_answer(c);
    struct answering a = {0};
    *finish = FINISH_INTERRUPTED;
    if (!m)
        return error_set(err, ERR_FAIL, "there is no answer to continue");
    const bool had_end = m->has_end_token, was_partial = m->partial;
    const size_t n_runs = m->n_runs, n_ids = m->ids.len - had_end;
    const int32_t end = had_end ? m->ids.data[n_ids] : 0;
    m->ids.len = n_ids;
    m->has_end_token = false;
    bool ok =
        answering_prepare(&a, c, c->n_messages - 1, p, m, err) && run_answer(c, &a, m, finish, err);
    if (m->n_runs == n_runs && had_end && ids_push(&m->ids, end)) {
        m->has_end_token = true;
        m->partial = was_partial;
    }
    if (m->n_runs > n_runs) {
        forget_undone(c);
        c->behind = false;
    }
    answering_release(&a);
    return ok;
}

uint64_t conversation_hash(const int32_t *ids, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) {
        for (int shift = 0; shift < 32; shift += 8)
            h = (h ^ ((uint32_t)ids[i] >> shift & 0xFF)) * 0x100000001b3u;
    }
    return h;
}

bool conversation_run_prefix(struct conversation *c, size_t answer_index, size_t run,
                             struct ids *out, struct error *err)
{
    const struct message *m = &c->messages[answer_index];
    const struct answer_run *r = &m->runs[run];
    struct prefix_request q = {
        .n_messages = answer_index,
        .first_kept = r->first_kept,
        .think = r->think,
        .generation = true,
    };
    if (!prefix_build(c, &q, out, NULL, err))
        return false;
    if (!ids_append(out, m->ids.data, r->first_id))
        return error_oom(err, "the prompt's tokens", out->len);
    if (r->overflow == OVERFLOW_SHIFT)
        overflow_shift(out, r->n_ctx > 0 ? r->n_ctx : c->session.engine->n_ctx, r->n_keep);
    return true;
}

// -------------------------------------------------------------------------------------------- undo

// Rewinds the memory to what the live messages explain: the tokens that the last answer left, or
// nothing before the first.
static void rewind_to_messages(struct conversation *c)
{
    const struct message *m = conversation_last_answer(c);
    struct ids ids = {0};
    struct error ignored;
    size_t n = 0;
    if (m && m->n_runs > 0) {
        size_t run = m->n_runs - 1;
        if (conversation_run_prefix(c, c->n_messages - 1, run, &ids, &ignored)) {
            size_t from = m->runs[run].first_id;
            ids_append(&ids, m->ids.data + from, m->ids.len - from);
        }
        const int32_t *memory = seq_ids(c->session.seq);
        while (n < ids.len && n < seq_len(c->session.seq) && ids.data[n] == memory[n])
            n++;
    }
    c->behind = n < ids.len;
    ids_release(&ids);
    conversation_rewind(c, n);
}

// What is dropped is the last answer's to say: a turn that is taken back takes back what it dropped
// for room.
static void keep_as_last_answer(struct conversation *c)
{
    size_t n = c->n_messages;
    while (n > 0 && c->messages[n - 1].n_runs == 0)
        n--;
    const struct message *m = n > 0 ? &c->messages[n - 1] : NULL;
    c->first_kept = m ? m->runs[m->n_runs - 1].first_kept : 0;
}

size_t conversation_undo(struct conversation *c, size_t n_turns)
{
    size_t undone = 0, n = c->n_messages;
    while (undone < n_turns && n > head_messages(c)) {
        do
            n--;
        while (n > head_messages(c) && c->messages[n].role != ROLE_USER);
        undone++;
    }
    c->n_undone += c->n_messages - n;
    c->n_messages = n;
    keep_as_last_answer(c);
    rewind_to_messages(c);
    return undone;
}

size_t conversation_redo(struct conversation *c, size_t n_turns)
{
    size_t redone = 0;
    while (redone < n_turns && c->n_undone > 0) {
        do {
            c->n_messages++;
            c->n_undone--;
        } while (c->n_undone > 0 && c->messages[c->n_messages].role != ROLE_USER);
        redone++;
    }
    c->behind |= redone > 0;
    keep_as_last_answer(c);
    return redone;
}

bool conversation_take_answer(struct conversation *c, struct message *answer, struct error *err)
{
    if (!put_undone_by(c, err))
        return false;
    *answer = c->messages[--c->n_messages];
    keep_as_last_answer(c);
    return true;
}

void conversation_put_answer(struct conversation *c, struct message *answer)
{
    c->messages[c->n_messages++] = *answer;
    *answer = (struct message){.role = ROLE_ASSISTANT};
    c->behind = true; // (what was to come in its place may have been read)
    bring_undone(c);
    keep_as_last_answer(c);
}

void conversation_take_back(struct conversation *c)
{
    if (c->n_messages == head_messages(c) || c->messages[c->n_messages - 1].role != ROLE_USER)
        return;
    message_release(&c->messages[--c->n_messages]);
    bring_undone(c);
}

void conversation_take_messages(struct conversation *c, struct conversation *from)
{
    release_messages(c, 0, c->n_messages + c->n_undone);
    drop_stash(c);
    free(c->messages);
    c->messages = from->messages;
    c->n_messages = from->n_messages;
    c->n_undone = from->n_undone;
    c->cap = from->cap;
    c->has_system = from->has_system;
    c->first_kept = from->first_kept;
    c->system_merged = from->system_merged;
    c->special = from->special;
    c->now = from->now;
    c->behind = true;
    from->messages = NULL;
    from->n_messages = from->n_undone = from->cap = 0;
}

bool conversation_read_anew(struct conversation *c, const struct conversation *model_of,
                            struct error *err)
{
    const struct tokenize_options opt = {.continuation = true, .cancel = model_of->cancel};
    size_t n = c->n_messages + c->n_undone, done = 0;
    struct ids *fresh = calloc(n + 1, sizeof *fresh);
    bool ok = fresh || error_oom(err, "the tokens of the answers", n * sizeof *fresh);
    for (; ok && done < n; done++) {
        const struct message *m = &c->messages[done];
        ok = m->role == ROLE_ASSISTANT
                 ? tokenizer_encode(model_of->model->tokenizer, buf_str(&m->text), m->text.len,
                                    &opt, &fresh[done], err)
                 : conversation_check(model_of, "the message", buf_str(&m->text), m->text.len, err);
    }
    for (size_t i = 0; i < done; i++) {
        struct message *m = &c->messages[i];
        if (ok && m->role == ROLE_ASSISTANT) {
            ids_release(&m->ids);
            free(m->runs);
            m->runs = NULL;
            m->n_runs = 0;
            m->ids = fresh[i];
            m->n_prefill = fresh[i].len; // nobody sampled them here
            m->has_end_token = false;
        } else if (fresh) {
            ids_release(&fresh[i]);
        }
    }
    free(fresh);
    if (ok) {
        drop_stash(c);
        c->system_merged = false;
    }
    return ok;
}
