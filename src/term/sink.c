#include "term/sink.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "base/out.h"

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

static bool show_thinking(const struct sink *s)
{
    const struct options *o = s->b->opt;
    return o->think != THINK_HIDE && !o->quiet && !o->json;
}

static bool write_thinking(struct sink *s, const char *text, size_t n, struct error *err)
{
    batch_clear_progress(s->b);
    s->wrote_thinking = true;
    return emit(s, false, text, n, err);
}

// The style of thinking ends, and its last line.
static void end_thinking(struct sink *s)
{
    if (!s->wrote_thinking)
        return;
    s->wrote_thinking = false;
    emit(s, false, NULL, 0, NULL);
    out_text(OUT_STDERR, "\n", 1, NULL);
}

// Where a NUL byte ends an answer, none is in it.
static bool emit_without_nul(struct sink *s, const char *text, size_t n, struct error *err)
{
    static const char instead[] = "\xEF\xBF\xBD"; // U+FFFD
    const char *nul;
    for (; (nul = memchr(text, '\0', n)); n -= (size_t)(nul + 1 - text), text = nul + 1)
        if ((nul > text && !emit(s, true, text, (size_t)(nul - text), err)) ||
            !emit(s, true, instead, sizeof instead - 1, err))
            return false;
    return n == 0 || emit(s, true, text, n, err);
}

static bool write_text(struct sink *s, const char *text, size_t n, struct error *err)
{
    view_clear_progress(&s->view);
    end_thinking(s);
    if (n)
        s->ends_with_newline = text[n - 1] == '\n';
    return s->b->opt->json ||
           (s->b->opt->null ? emit_without_nul(s, text, n, err) : emit(s, true, text, n, err));
}

static bool on_text(void *user, enum answer_part part, const char *text, size_t n,
                    struct error *err)
{
    struct sink *s = user;
    const struct options *o = s->b->opt;
    if (!buf_append(part == PART_THINKING ? &s->thinking : &s->text, text, n))
        return error_oom(err, "the answer", s->text.len + n);
    if (s->held)
        return true;
    if (part != PART_THINKING)
        return write_text(s, text, n, err);
    if (o->think == THINK_HIDE && !o->json)
        return view_text(&s->view, part, text, n, err);
    return !show_thinking(s) || write_thinking(s, text, n, err);
}

bool sink_show(struct sink *s, struct error *err)
{
    if (!s->held)
        return true;
    s->held = false;
    if (s->thinking.len && show_thinking(s) &&
        !write_thinking(s, s->thinking.data, s->thinking.len, err))
        return false;
    return s->text.len == 0 || write_text(s, s->text.data, s->text.len, err);
}

static json_t *token_object(const struct tokenizer *t, int32_t id, double logprob)
{
    struct buf text = {0};
    if (!tokenizer_decode_one(t, id, true, &text))
        json_lose();
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
    struct sink *s = user;
    if (s->b->opt->quiet)
        return;
    if (s->beside) {
        buf_append(&s->notices, line, strlen(line) + 1);
        return;
    }
    batch_clear_progress(s->b);
    if (s->line)
        out_say("hokku: line %zu: %s", s->line, line);
    else
        out_say("hokku: %s", line);
}

void sink_say_notices(struct sink *s)
{
    s->beside = false;
    for (size_t at = 0; at < s->notices.len; at += strlen(s->notices.data + at) + 1)
        on_notice(s, s->notices.data + at);
    buf_release(&s->notices);
}

static void on_prefill(void *user, size_t done, size_t total)
{
    struct sink *s = user;
    view_prefill(&s->view, done, total);
}

void sink_init(struct sink *s, struct batch *b)
{
    const struct options *o = b->opt;
    *s = (struct sink){.b = b};
    if (o->json && o->logprobs)
        s->logprobs = json_array();
    termout_init(&s->term, b->color, b->color);
    termout_init(&s->term_err, b->color, false);
    if (b->color)
        termout_dim(&s->term_err, true, &s->shown);
    const struct view_options vo = {.err_tty = b->stderr_tty,
                                    .dumb = b->dumb,
                                    .quiet = o->quiet,
                                    .think = (enum think)o->think};
    view_init(&s->view, &vo);
    view_begin(&s->view);
}

void sink_release(struct sink *s)
{
    json_decref(s->logprobs);
    buf_release(&s->text);
    buf_release(&s->thinking);
    buf_release(&s->shown);
    buf_release(&s->notices);
    termout_release(&s->term);
    termout_release(&s->term_err);
    view_release(&s->view);
    why_release(&s->why);
}

size_t sink_bytes(const struct sink *s)
{
    enum { TOKEN_OBJECT = 600 }; // of one from token_object(), about
    const size_t n_objects = json_array_size(s->logprobs) * (1 + s->b->opt->logprobs);
    return s->text.cap + s->thinking.cap + s->shown.cap + s->why.cap * sizeof *s->why.tokens +
           n_objects * TOKEN_OBJECT;
}

void sink_take(struct sink *s, struct answer_params *p)
{
    p->on_text = on_text;
    p->on_token = on_token;
    p->on_prefill = on_prefill;
    p->on_notice = on_notice;
    p->user = s;
}

static void print_stats(const struct batch *b, const struct sink_result *r)
{
    const struct engine *e = b->conv->session.engine;
    struct buf line = {0};
    if (view_stats_line(r->stats, r->n_tokens, e->n_ctx, &line))
        out_say("%s · %s · %s", buf_str(&line), finish_name(r->finish), e->device);
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

static json_t *result_object(const struct sink *s, const struct sink_result *r)
{
    const struct session_stats *t = r->stats;
    const struct message *m = r->answer;
    const struct conversation *c = s->b->conv;
    json_t *ids = json_array();
    for (size_t i = 0; m && i < m->ids.len; i++)
        json_array_append_new(ids, json_integer(m->ids.data[i]));
    json_t *j = json_pack(
        "{s:o, s:o, s:s, s:I, s:I, s:I, s:{s:f, s:f, s:f, s:I, s:I, s:f}, s:o, s:o, s:s}", "text",
        json_text(buf_str(&s->text), s->text.len), "tokens", ids, "finish_reason",
        finish_name(r->finish), "prompt_tokens", (json_int_t)t->n_prompt, "cached_tokens",
        (json_int_t)t->n_reused, "generated_tokens", (json_int_t)t->n_generated, "timings",
        "prefill_ms", t->prefill_s * 1e3, "first_token_ms", t->first_token_s * 1e3, "decode_ms",
        t->decode_s * 1e3, "drafted_tokens", (json_int_t)t->n_drafted, "accepted_tokens",
        (json_int_t)t->n_accepted, "tokens_per_step",
        t->n_steps > 0 ? (double)t->n_generated / (double)t->n_steps : 1.0, "seed",
        json_u64(r->seed), "model", json_text(c->model->name, strlen(c->model->name)), "device",
        c->session.engine->device);
    if (s->line)
        json_object_set_new(j, "line", json_integer((json_int_t)s->line));
    if (s->thinking.len)
        json_object_set_new(j, "thinking", json_text(s->thinking.data, s->thinking.len));
    if (s->logprobs)
        json_object_set(j, "logprobs", s->logprobs);
    return j;
}

bool sink_json(json_t *j, bool nul, struct error *err)
{
    const bool lost = json_lost(), made = j != NULL;
    char *text = json_written(j, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(j);
    if (lost || !text) {
        free(text);
        return lost || made ? error_oom(err, "the result as JSON", 0)
                            : error_set(err, ERR_FAIL, "the result cannot be written as JSON");
    }
    bool ok = out_json(OUT_STDOUT, text, strlen(text), err) &&
              (nul ? out_nul(OUT_STDOUT, err) : out_text(OUT_STDOUT, "\n", 1, err));
    free(text);
    return ok;
}

static void say_cut(struct sink *s)
{
    char line[120];
    snprintf(line, sizeof line,
             "the context of %u tokens is full: the answer is cut (%s--overflow shift)",
             s->b->conv->session.engine->n_ctx, s->b->conv->no_larger ? "" : "-c, or ");
    on_notice(s, line);
}

bool sink_end(struct sink *s, const struct sink_result *r, bool ok, bool line_mode,
              struct error *err)
{
    struct batch *b = s->b;
    const struct options *o = b->opt;
    ok = sink_show(s, ok ? err : NULL) && ok;
    view_clear_progress(&s->view);
    end_thinking(s);               // where the answer never came: leave no style behind
    if (!o->json && b->stdout_tty) // what the filter holds, styles off; also after a failure
        ok = emit(s, true, NULL, 0, ok ? err : NULL) && ok;
    if (ok && o->json)
        ok = sink_json(result_object(s, r), line_mode && o->null, err);
    else if (ok && line_mode && o->null)
        ok = out_nul(OUT_STDOUT, err);
    else if (ok && (line_mode || b->stdout_tty) && !s->ends_with_newline)
        ok = out_text(OUT_STDOUT, "\n", 1, err);
    // A pipe gets the exact answer; on the terminal behind it the shell's prompt should still begin
    // a line.
    if (ok && !o->json && !line_mode && !b->stdout_tty && b->stderr_tty && !s->ends_with_newline &&
        !o->quiet && out_is_pipe(OUT_STDOUT)) {
        out_await_reader(OUT_STDOUT); // else what `cat` shows would come behind
        out_text(OUT_STDERR, "\n", 1, NULL);
    }
    if (ok && (s->why.n > 0 || o->stats))
        batch_clear_progress(b);
    if (ok && o->null && !o->json && memchr(buf_str(&s->text), '\0', s->text.len))
        on_notice(s, "a NUL byte of the answer is written as U+FFFD, since one ends it (-0); with "
                     "--json it is kept");
    if (ok && r->finish == FINISH_CONTEXT)
        say_cut(s);
    if (ok && s->why.n > 0)
        print_why(s);
    if (ok && o->stats)
        print_stats(b, r);
    return ok;
}
