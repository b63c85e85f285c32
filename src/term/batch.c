#include "term/batch.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/format.h"
#include "base/out.h"
#include "cli/shipped.h"
#include "term/answer_options.h"
#include "term/termout.h"
#include "term/view.h"
#include "dialog/why.h"

enum { MAX_LINE = 16 << 20, READ_PIECE = 65536 };

// What one answer gathers while it streams.
struct sink {
    struct batch *b;
    struct buf text; // of the answer, without thinking
    struct buf thinking;
    json_t *logprobs; // array, with --logprobs
    bool wrote_thinking;
    bool ends_with_newline;
    struct termout term,
        term_err;     // used only where standard output or standard error is a terminal
    struct buf shown; // scratch
    struct view view; // the progress line
    struct why why;   // --logprobs without --json
};

// Untrusted text to one of the two streams: exact bytes to a pipe, made safe for a terminal.
static bool emit(struct sink *s, bool to_stdout, const char *text, size_t n, struct error *err)
{
    enum out_stream to = to_stdout ? OUT_STDOUT : OUT_STDERR;
    if (!(to_stdout ? s->b->stdout_tty : s->b->stderr_tty))
        return out_text(to, text, n, err);
    buf_clear(&s->shown);
    struct termout *t = to_stdout ? &s->term : &s->term_err;
    if (!(text ? termout_push(t, text, n, &s->shown) : termout_end(t, &s->shown)))
        return error_oom(err, "the answer", n);
    return out_painted(to, buf_str(&s->shown), s->shown.len, err);
}

static bool on_text(void *user, enum answer_part part, const char *text, size_t n,
                    struct error *err)
{
    struct sink *s = user;
    const struct options *o = s->b->opt;
    if (part == PART_THINKING) {
        buf_append(&s->thinking, text, n);
        if (o->think == THINK_HIDE && !o->json)
            return view_text(&s->view, part, text, n, err);
        if (o->think == THINK_HIDE || o->quiet || o->json)
            return true;
        s->wrote_thinking = true;
        return emit(s, false, text, n, err);
    }
    view_clear_progress(&s->view);
    if (s->wrote_thinking) {
        s->wrote_thinking = false;
        emit(s, false, NULL, 0, NULL);
        out_text(OUT_STDERR, "\n", 1, NULL);
    }
    if (!buf_append(&s->text, text, n))
        return error_oom(err, "the answer", s->text.len + n);
    if (n)
        s->ends_with_newline = text[n - 1] == '\n';
    return o->json || emit(s, true, text, n, err);
}

// JSON strings must be UTF-8; a token's bytes need not be.
static json_t *json_text(const char *s, size_t n)
{
    struct buf b = {0};
    buf_append_utf8(&b, s, n);
    json_t *j = b.failed ? NULL : json_stringn(buf_str(&b), b.len);
    buf_release(&b);
    return j;
}

static json_t *token_object(const struct tokenizer *t, int32_t id, double logprob)
{
    struct buf text = {0};
    tokenizer_decode_one(t, id, true, &text);
    json_t *j = json_pack("{s:i, s:o, s:f}", "id", (int)id, "text",
                          json_text(buf_str(&text), text.len), "logprob", logprob);
    buf_release(&text);
    return j;
}

static void on_token(void *user, const struct decoded *d)
{
    struct sink *s = user;
    if (s->b->opt->logprobs && !s->b->opt->json)
        why_add(&s->why, d);
    if (!s->logprobs)
        return;
    const struct tokenizer *t = s->b->conv->model->tokenizer;
    json_t *j = token_object(t, d->id, (double)d->logprob);
    json_t *top = json_array();
    for (uint32_t i = 0; i < d->n_top; i++)
        json_array_append_new(top, token_object(t, d->top[i].id, (double)d->top[i].logprob));
    json_object_set_new(j, "top", top);
    json_array_append_new(s->logprobs, j);
}

static void on_notice(void *user, const char *line)
{
    const struct sink *s = user;
    if (!s->b->opt->quiet)
        out_say("hokku: %s", line);
}

static void on_prefill(void *user, size_t done, size_t total)
{
    struct sink *s = user;
    view_prefill(&s->view, done, total);
}

static void print_stats(const struct batch *b, enum finish finish)
{
    struct buf line = {0};
    if (view_stats_line(&b->conv->session, &line))
        out_say("%s · %s · %s", buf_str(&line), finish_name(finish),
                b->conv->session.engine->device);
    buf_release(&line);
}

// The probabilities, on standard error: standard output is the answer's alone.
static void print_why(struct sink *s)
{
    struct batch *b = s->b;
    struct buf text = {0};
    size_t width = b->stderr_tty && !b->dumb ? out_columns(OUT_STDERR) : 0;
    why_format(&s->why, b->conv->model->tokenizer, b->opt->logprobs, width,
               b->color && b->stderr_tty, &text);
    out_painted(OUT_STDERR, buf_str(&text), text.len, NULL);
    buf_release(&text);
}

static json_t *result_object(struct batch *b, struct sink *s, enum finish finish)
{
    const struct session_stats *t = &b->conv->session.stats;
    const struct message *m = conversation_last_answer(b->conv);
    json_t *ids = json_array();
    for (size_t i = 0; m && i < m->ids.len; i++)
        json_array_append_new(ids, json_integer(m->ids.data[i]));
    json_t *j = json_pack("{s:o, s:o, s:s, s:I, s:I, s:I, s:{s:f, s:f, s:f}, s:o, s:o, s:s}",
                          "text", json_text(buf_str(&s->text), s->text.len), "tokens", ids,
                          "finish_reason", finish_name(finish), "prompt_tokens",
                          (json_int_t)t->n_prompt, "cached_tokens", (json_int_t)t->n_reused,
                          "generated_tokens", (json_int_t)t->n_generated, "timings", "prefill_ms",
                          t->prefill_s * 1e3, "first_token_ms", t->first_token_s * 1e3, "decode_ms",
                          t->decode_s * 1e3, "seed", json_integer((json_int_t)b->opt->sampler.seed),
                          "model", json_text(b->conv->model->name, strlen(b->conv->model->name)),
                          "device", b->conv->session.engine->device);
    if (s->thinking.len)
        json_object_set_new(j, "thinking", json_text(s->thinking.data, s->thinking.len));
    if (s->logprobs)
        json_object_set(j, "logprobs", s->logprobs);
    return j;
}

static bool write_json(json_t *j, struct error *err)
{
    char *text = j ? json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(j);
    if (!text)
        return error_set(err, ERR_FAIL, "the result cannot be written as JSON");
    bool ok = out_json(OUT_STDOUT, text, strlen(text), err) && out_text(OUT_STDOUT, "\n", 1, err);
    free(text);
    return ok;
}

// The prompt is released as soon as it is part of the conversation.
static bool answer(struct batch *b, struct buf *prompt, bool line_mode, struct error *err)
{
    const struct options *o = b->opt;
    struct sink s = {.b = b};
    if (o->json && o->logprobs)
        s.logprobs = json_array();
    termout_init(&s.term, b->color, b->color);
    termout_init(&s.term_err, b->color, false);
    if (b->color)
        termout_dim(&s.term_err, true, &s.shown);
    const struct view_options vo = {.err_tty = b->stderr_tty,
                                    .dumb = b->dumb,
                                    .quiet = o->quiet,
                                    .think = (enum think)o->think};
    view_init(&s.view, &vo);
    view_begin(&s.view);
    struct answer_params p = answer_options(o);
    p.prefill = o->prefill;
    p.n_prefill = o->prefill ? strlen(o->prefill) : 0;
    p.on_text = on_text;
    p.on_token = on_token;
    p.on_prefill = on_prefill;
    p.on_notice = on_notice;
    p.user = &s;
    p.constraint = b->shape->constraint;
    enum finish finish = FINISH_INTERRUPTED;
    b->not_obeyed = false;
    struct buf framed = {0};
    bool ok = !b->frame || prompt_fill(b->frame, buf_str(prompt), prompt->len, &framed) ||
              error_oom(err, "the prompt", prompt->len);
    const struct buf *message = b->frame ? &framed : prompt;
    ok = ok && conversation_add(b->conv, ROLE_USER, buf_str(message), message->len, err);
    buf_release(prompt);
    buf_release(&framed);
    if (ok && !conversation_answer(b->conv, &p, &finish, err)) {
        ok = false;
        if (!conversation_last_answer(b->conv))
            conversation_take_back(b->conv);
    }
    view_clear_progress(&s.view);
    if (s.wrote_thinking) { // the answer never came: leave no style behind
        emit(&s, false, NULL, 0, NULL);
        out_text(OUT_STDERR, "\n", 1, NULL);
    }
    if (!o->json && b->stdout_tty) // what the filter holds, styles off; also after a failure
        ok = emit(&s, true, NULL, 0, ok ? err : NULL) && ok;
    if (ok && o->json)
        ok = write_json(result_object(b, &s, finish), err);
    else if (ok && line_mode && o->null)
        ok = out_nul(OUT_STDOUT, err);
    else if (ok && (line_mode || b->stdout_tty) && !s.ends_with_newline)
        ok = out_text(OUT_STDOUT, "\n", 1, err);
    // A pipe gets the exact answer; on the terminal behind it the shell's prompt should still begin
    // a line.
    if (ok && !o->json && !line_mode && !b->stdout_tty && b->stderr_tty && !s.ends_with_newline &&
        !o->quiet && out_is_pipe(OUT_STDOUT))
        out_text(OUT_STDERR, "\n", 1, NULL);
    if (ok && finish == FINISH_CONTEXT && !o->quiet)
        out_say("hokku: the context of %u tokens is full: the answer is cut (-c, or --overflow "
                "shift)",
                b->conv->session.engine->n_ctx);
    if (ok && s.why.n > 0)
        print_why(&s);
    if (ok && o->stats)
        print_stats(b, finish);
    json_decref(s.logprobs);
    buf_release(&s.text);
    buf_release(&s.thinking);
    buf_release(&s.shown);
    termout_release(&s.term);
    termout_release(&s.term_err);
    view_release(&s.view);
    why_release(&s.why);
    if (ok && finish == FINISH_INTERRUPTED)
        ok = error_set(err, ERR_INTERRUPTED, "interrupted");
    else if (ok)
        b->not_obeyed = !shape_obeyed(b->shape, finish, err);
    // (It is said, and kept, nevertheless.)
    if (b->after_turn && (ok || (err && err->code == ERR_INTERRUPTED))) {
        struct error save = {0};
        if (!b->after_turn(b->user, &save) && ok) {
            ok = false;
            if (err)
                *err = save;
        }
    }
    return ok && !b->not_obeyed;
}

bool batch_one(struct batch *b, struct buf *prompt, struct error *err)
{
    return answer(b, prompt, false, err);
}

static bool report_line(const struct batch *b, size_t number, const struct error *e,
                        struct error *err)
{
    const struct view_options vo = {.err_tty = b->stderr_tty};
    struct view view;
    view_init(&view, &vo);
    view_say(&view, "hokku: line %zu: %s\n", number, e->text);
    view_release(&view);
    if (b->not_obeyed) // its answer is written
        return true;
    if (!b->opt->json) // answers stay in order
        return b->opt->null ? out_nul(OUT_STDOUT, err) : out_text(OUT_STDOUT, "\n", 1, err);
    return write_json(json_pack("{s:I, s:{s:i, s:o}}", "line", (json_int_t)number, "error", "code",
                                (int)e->code, "message", json_text(e->text, strlen(e->text))),
                      err);
}

// Appends what there is of the input; waits for it. *eof: there is no more.
static bool read_more(const struct batch *b, int fd, struct buf *in, bool *eof, struct error *err)
{
    if (!buf_reserve(in, READ_PIECE))
        return error_oom(err, "standard input", in->len + READ_PIECE);
    if (!fd_wait(fd, b->cancel))
        return error_set(err, ERR_INTERRUPTED, "interrupted");
    ssize_t n = read(fd, in->data + in->len, READ_PIECE);
    if (n < 0 && errno != EINTR && errno != EAGAIN)
        return error_set(err, ERR_FAIL, "standard input: cannot be read: %s", strerror(errno));
    in->len += n > 0 ? (size_t)n : 0;
    *eof = n == 0;
    return true;
}

bool batch_lines(struct batch *b, int fd, const char *before, struct error *err)
{
    struct buf in = {0}, prompt = {0};
    size_t at = 0, number = 0, n_failed = 0, n_blank = 0;
    // What every line begins with: a system prompt, or a whole conversation (--base).
    size_t n_base = b->conv->n_messages, first_kept = b->conv->first_kept;
    bool ok = true, eof = false;
    while (ok) {
        char *nl = in.len > at ? memchr(in.data + at, '\n', in.len - at) : NULL;
        size_t len = nl ? (size_t)(nl - in.data) - at : in.len - at;
        if (len > MAX_LINE) {
            char most[FORMAT_NUMBER];
            ok = error_set(err, ERR_FAIL,
                           "line %zu of standard input is longer than %s bytes: give one text at "
                           "a time, without %s",
                           number + 1, format_number(most, MAX_LINE),
                           b->opt->lines ? "--lines" : "--turns");
            break;
        }
        if (!nl && !eof) { // read on; each line is answered as soon as it is there
            if (at > 0) {
                memmove(in.data, in.data + at, in.len - at);
                in.len -= at;
                at = 0;
            }
            ok = read_more(b, fd, &in, &eof, err);
            continue;
        }
        if (!nl && len == 0)
            break;
        number++;
        if (strspn(in.data + at, " \t\r") >= len) { // (buf ends with a NUL byte)
            n_blank++;
            at += len + (nl != NULL);
            continue;
        }
        buf_clear(&prompt);
        if (before)
            buf_printf(&prompt, "%s\n\n", before);
        buf_append(&prompt, in.data + at, len > 0 && in.data[at + len - 1] == '\r' ? len - 1 : len);
        at += len + (nl != NULL);
        if (prompt.failed) {
            ok = error_oom(err, "a line of standard input", len);
            break;
        }
        struct error e = {0};
        if (!answer(b, &prompt, true, &e)) {
            if (e.code == ERR_INTERRUPTED || b->opt->turns) {
                if (err)
                    *err = e;
                if (e.code != ERR_INTERRUPTED)
                    error_prefix(err, "line %zu", number);
                ok = false;
                break;
            }
            n_failed++;
            ok = report_line(b, number, &e, err);
        }
        if (b->opt->lines)
            conversation_restart_at(b->conv, n_base, first_kept);
    }
    buf_release(&in);
    buf_release(&prompt);
    if (ok && n_blank > 0 && !b->opt->quiet)
        out_say("hokku: %zu blank line%s skipped", n_blank, n_blank == 1 ? "" : "s");
    if (ok && n_failed)
        ok = error_set(err, ERR_FAIL, "%zu of %zu lines failed", n_failed, number);
    return ok;
}
