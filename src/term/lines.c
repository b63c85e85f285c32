#include "term/lines.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/beside.h"
#include "base/clock.h"
#include "base/format.h"
#include "base/json_text.h"
#include "base/mapped.h"
#include "base/out.h"
#include "cli/shipped.h"
#include "dialog/answering.h"
#include "engine/schedule.h"
#include "term/answer_options.h"
#include "term/line_reader.h"
#include "term/request.h"
#include "term/sink.h"

// Lines that are answered and wait for one before them, and their bytes, beyond which no more are
// read.
enum { MOST_HELD = 1024, MOST_HELD_BYTES = 64 << 20 };
// Bytes of text that are made tokens between two passes, which takes some 10 ms: a line for which
// that is not enough is prepared beside the passes.
enum { MOST_BETWEEN = 256 << 10 };

// A line from when it is read until its answer is written.
struct line {
    size_t number;
    uint64_t end; // bytes of the input up to and with it
    struct line *next;
    struct answer_params p;
    struct sampler_settings sampler;
    struct constraint *constraint; // owned; NULL: free
    struct message m;
    struct answering a;
    struct task task;
    struct sink sink;
    bool prepared; // it is known what is to be evaluated
    bool scheduled, done;
    // Done:
    bool complete; // the answer is written, also where it does not obey
    enum finish finish;
    size_t n_bytes;   // that it holds until then
    struct error err; // why it failed
};

struct lines {
    struct batch *b;
    const char *before;
    struct schedule s;
    struct line_reader in;
    struct line *first;  // in the order of the input
    struct line *coming; // the last of these, which is being prepared; NULL: none
    const char *text;    // its, n_text bytes, borrowed from in
    size_t n_text;
    struct beside beside; // who prepares it: the conversation is this one's until then
    size_t n_held, held_bytes;
    size_t n_answers, n_failed, n_blank;
    // What every line begins with: a system prompt, or a whole conversation (--base).
    size_t n_base, first_kept;
    size_t n_around;         // bytes of text, of that and of what is put around each prompt
    uint64_t size, answered; // bytes: of the input if it is known, of lines whose answers are there
    double began, told;
};

static void line_free(struct line *l)
{
    answering_release(&l->a);
    constraint_free(l->constraint);
    message_release(&l->m);
    sink_release(&l->sink);
    ids_release(&l->task.rest);
    free(l);
}

// It is done: all that it does not need for what it has to say goes.
static void finish_line(struct lines *x, struct line *l)
{
    const struct shape shape = {.constraint = l->constraint};
    l->done = true;
    l->complete = l->err.code == ERR_NONE;
    l->finish = l->a.g.finish;
    if (l->complete)
        shape_obeyed(&shape, l->finish, &l->err); // (it is written nevertheless)
    constraint_free(l->constraint);
    l->constraint = NULL;
    answering_release(&l->a);
    buf_release(&l->m.text);
    l->n_bytes = sizeof *l + l->m.ids.cap * sizeof *l->m.ids.data + sink_bytes(&l->sink);
    x->held_bytes += l->n_bytes;
}

// ---- from a line to a task

static bool add_messages(struct lines *x, const struct request *r, struct error *err)
{
    struct conversation *c = x->b->conv;
    if (!c->tmpl)
        return error_set(err, ERR_USAGE,
                         "messages need a chat template, and there is none: give \"prompt\"");
    if (x->before || x->b->frame)
        return error_set(err, ERR_USAGE,
                         "messages stand alone: a prompt on the command line, or one with "
                         "{{input}} (of -sys or --base), cannot be put around them");
    for (size_t i = 0; i < request_n_messages(r); i++) {
        size_t n;
        const char *role = request_role(r, i), *text = request_content(r, i, &n);
        bool ok;
        if (strcmp(role, "system") != 0)
            ok = conversation_add(c, role[0] == 'u' ? ROLE_USER : ROLE_ASSISTANT, text, n, err);
        else if (x->n_base > 0)
            ok = error_set(err, ERR_USAGE,
                           "a system message, and -sys or --base: expected one of them");
        else
            ok = conversation_set_system(c, text, n, err);
        if (!ok)
            return error_prefix(err, "message %zu", i + 1);
    }
    return true;
}

// The conversation becomes that of the line.
static bool add_prompt(struct lines *x, const struct request *r, const char *text, size_t n,
                       struct error *err)
{
    const struct batch *b = x->b;
    struct buf prompt = {0}, framed = {0};
    if (r->messages)
        return add_messages(x, r, err);
    bool ok = r->prompt ? batch_prompt(x->before, r->prompt, r->n_prompt, &prompt, err)
                        : batch_prompt(x->before, text, n, &prompt, err);
    if (ok && b->frame)
        ok = prompt_fill(b->frame, buf_str(&prompt), prompt.len, &framed) ||
             error_oom(err, "the prompt", prompt.len);
    const struct buf *use = b->frame ? &framed : &prompt;
    ok = ok && conversation_add(b->conv, ROLE_USER, buf_str(use), use->len, err);
    buf_release(&prompt);
    buf_release(&framed);
    return ok;
}

static void set(struct lines *x, struct line *l, const struct request *r)
{
    const struct options *o = x->b->opt;
    l->p = answer_options(o);
    l->sampler = o->sampler;
    if (r->has_seed)
        l->sampler.seed = r->seed;
    if (r->has_temp)
        l->sampler.temp = r->temp;
    if (r->has_n_predict)
        l->p.n_predict = r->n_predict;
    l->p.sampler = &l->sampler;
    l->p.prefill = o->prefill;
    l->p.n_prefill = o->prefill ? strlen(o->prefill) : 0;
    sink_take(&l->sink, &l->p);
}

// What takes long for a long line: from its text to what is to be evaluated. Of all else it changes
// the conversation alone.
static void prepare(void *lines)
{
    struct lines *x = lines;
    struct line *l = x->coming;
    struct conversation *c = x->b->conv;
    struct error *err = &l->err;
    struct request r;
    bool ok = request_parse(&r, x->text, x->n_text, err);
    if (ok) {
        set(x, l, &r);
        ok = sampler_check(&l->sampler, c->model->hp.n_vocab, err) &&
             add_prompt(x, &r, x->text, x->n_text, err) &&
             answering_prefill(c, &l->p, &l->m, err) &&
             answering_prepare(&l->a, c, c->n_messages, &l->p, &l->m, err);
    }
    const bool own_system = x->n_base == 0 && c->has_system;
    conversation_restart_at(c, x->n_base + own_system, x->first_kept);
    if (own_system)
        conversation_set_system(c, NULL, 0, NULL);
    request_release(&r);
    l->prepared = ok;
}

// (Those that share a constraint share what a pass changes.)
static bool constrain(struct lines *x, struct line *l, struct error *err)
{
    struct constraint *shape = x->b->shape->constraint;
    if (!shape)
        return true;
    l->p.constraint = l->constraint = constraint_share(shape, err);
    return l->constraint && answering_constrain(&l->a, &l->m, err);
}

static bool schedule_line(struct lines *x, struct line *l, struct error *err)
{
    if (!l->prepared || !constrain(x, l, err) || !answering_begin(&l->a, &l->m, err))
        return false;
    l->task = (struct task){.prompt = &l->a.prefix, .p = &l->a.gp, .g = &l->a.g};
    l->scheduled = schedule_add(&x->s, &l->task, err);
    l->task.session.stats.n_dropped = l->a.n_dropped;
    return l->scheduled;
}

// The line that was just read, behind the others.
static struct line *new_line(struct lines *x, struct error *err)
{
    struct line *l = calloc(1, sizeof *l), **p = &x->first;
    if (!l) {
        error_oom(err, "a line", sizeof *l);
        return NULL;
    }
    l->number = x->in.number;
    l->end = x->in.n_bytes;
    sink_init(&l->sink, x->b);
    l->sink.line = l->number;
    l->sink.held = true;
    while (*p)
        p = &(*p)->next;
    *p = l;
    x->n_held++;
    x->n_answers++;
    return l;
}

static bool add_failed(struct lines *x, const struct error *why, struct error *err)
{
    struct line *l = new_line(x, err);
    if (!l)
        return false;
    l->err = *why;
    finish_line(x, l);
    return true;
}

// Begins with a line; n_left: bytes that may still be prepared between two passes. Where nothing
// runs, nothing waits for it.
static bool add_line(struct lines *x, const char *text, size_t n, size_t *n_left, struct error *err)
{
    const size_t size = n + x->n_around;
    x->coming = new_line(x, err);
    if (!x->coming)
        return false;
    x->text = text;
    x->n_text = n;
    x->coming->sink.beside = size > *n_left && !schedule_idle(&x->s);
    if (x->coming->sink.beside) {
        beside_begin(&x->beside, prepare, x);
    } else {
        prepare(x);
        *n_left -= size < *n_left ? size : *n_left;
    }
    return true;
}

// The next line goes to those that are answered, as soon as it is prepared. Errors:
// ERR_INTERRUPTED.
static bool take_prepared(struct lines *x, struct error *err)
{
    struct line *l = x->coming;
    if (l && schedule_idle(&x->s)) // nothing else to do
        beside_wait(&x->beside);
    if (!l || !beside_has_ended(&x->beside))
        return true;
    x->coming = NULL;
    sink_say_notices(&l->sink);
    if (schedule_line(x, l, &l->err))
        return true;
    if (l->err.code == ERR_INTERRUPTED) {
        *err = l->err;
        return false;
    }
    finish_line(x, l);
    return true;
}

// ---- from a task to an answer

static bool report(const struct lines *x, const struct line *l, bool written, struct error *err)
{
    const struct batch *b = x->b;
    const struct view_options vo = {.err_tty = b->stderr_tty};
    struct view view;
    batch_clear_progress(x->b);
    view_init(&view, &vo);
    view_say(&view, "hokku: line %zu: %s\n", l->number, l->err.text);
    view_release(&view);
    if (written)
        return true;
    if (!b->opt->json) // answers stay in order
        return b->opt->null ? out_nul(OUT_STDOUT, err) : out_text(OUT_STDOUT, "\n", 1, err);
    return sink_json(json_pack("{s:I, s:{s:i, s:o}}", "line", (json_int_t)l->number, "error",
                               "code", (int)l->err.code, "message",
                               json_text(l->err.text, strlen(l->err.text))),
                     b->opt->null, err);
}

// Writes what came of a line that is done, and forgets it.
static bool write_line(struct lines *x, struct line *l, struct error *err)
{
    const struct sink_result r = {.finish = l->finish,
                                  .answer = &l->m,
                                  .stats = &l->task.stats,
                                  .n_tokens = l->task.n_tokens,
                                  .seed = l->sampler.seed};
    bool ok = sink_end(&l->sink, &r, l->complete, true, l->complete ? err : NULL) || !l->complete;
    if (ok && l->err.code != ERR_NONE) {
        x->n_failed++;
        ok = report(x, l, l->complete, err);
    }
    struct line **p = &x->first;
    while (*p != l)
        p = &(*p)->next;
    *p = l->next;
    x->n_held--;
    x->held_bytes -= l->n_bytes;
    x->answered = l->end > x->answered ? l->end : x->answered;
    line_free(l);
    return ok;
}

// The tasks that are done since the last look.
static void collect(struct lines *x)
{
    for (struct line *l = x->first; l; l = l->next) {
        if (l->done || !l->scheduled || !l->task.done)
            continue;
        l->err = l->task.error;
        const bool ok = l->err.code == ERR_NONE;
        answering_end(&l->a, &l->m, ok, ok ? &l->err : NULL);
        finish_line(x, l);
    }
}

// Writes all that may be written now.
static bool write_lines(struct lines *x, struct error *err)
{
    const bool ordered = !x->b->opt->unordered;
    for (struct line *l = x->first, *next; l; l = next) {
        next = l->next;
        if (l->done) {
            if (!write_line(x, l, err))
                return false;
        } else if (ordered) { // and what is to come of it, as it comes
            return sink_show(&l->sink, err);
        }
    }
    return true;
}

// Ends what there is of the first line, which was shown as it grew, or says that there is nothing
// of this one: answers stay in order. any: something follows.
static bool write_open(const struct lines *x, struct line *l, bool any, struct error *err)
{
    struct error none;
    const struct options *o = x->b->opt;
    const bool begun = !l->sink.held && l->sink.text.len > 0;
    if (!l->sink.held)
        sink_end(&l->sink, NULL, false, true, &none);
    if (o->json || o->unordered || !(any || begun))
        return true;
    if (o->null)
        return out_nul(OUT_STDOUT, err);
    return (begun && l->sink.ends_with_newline) || out_text(OUT_STDOUT, "\n", 1, err);
}

// Whether there is, or may come, another line.
static bool more_to_read(struct lines *x)
{
    const char *text;
    size_t n;
    struct error none;
    return line_reader_next(&x->in, false, &text, &n, &none) != LINE_END;
}

// Interrupted: what is complete is written.
static bool write_rest(struct lines *x, struct error *err)
{
    size_t n_open = 0, n_done = 0;
    for (struct line *l = x->first; l; l = l->next) {
        n_open += !l->done;
        n_done += l->done;
    }
    for (struct line *l = x->first, *next; l; l = next) {
        next = l->next;
        const bool done = l->done;
        if (!(done ? write_line(x, l, err) : write_open(x, l, n_done > 0, err)))
            return false;
        n_done -= done;
    }
    const bool more = more_to_read(x);
    if (x->b->opt->quiet || mapped_failed())
        return true;
    if (n_open > 0)
        out_say("hokku: interrupted: %zu of the %zu lines read are not answered%s", n_open,
                x->n_answers, more ? ", and " LINES_LEFT : "");
    else if (more)
        out_say("hokku: interrupted: " LINES_LEFT);
    return true;
}

// ---- the whole

static size_t bytes_around(const struct batch *b, const char *before)
{
    size_t n = (before ? strlen(before) : 0) + (b->frame ? strlen(b->frame) : 0);
    for (size_t i = 0; i < b->conv->n_messages; i++)
        n += b->conv->messages[i].text.len;
    return n;
}

// "120 of 1,000 lines · 3.2/s · 275 s left", on a terminal that nothing else is written to.
static void tell(struct lines *x)
{
    enum { EVERY_MS = 250, AFTER_MS = 1000 };
    struct batch *b = x->b;
    char done[FORMAT_NUMBER], all[FORMAT_NUMBER], of[FORMAT_NUMBER + 8] = "", left[40] = "";
    const double now = clock_now(), spent = now - x->began;
    if (!b->stderr_tty || b->stdout_tty || b->dumb || b->opt->quiet || spent * 1e3 < AFTER_MS ||
        (now - x->told) * 1e3 < EVERY_MS || (x->first && x->first->sink.wrote_thinking))
        return;
    x->told = now;
    const size_t n_done = x->n_answers - x->n_held;
    const uint64_t size = x->in.eof ? x->in.n_bytes + x->in.in.len - x->in.at : x->size;
    if (x->in.eof && x->in.at == x->in.in.len)
        snprintf(of, sizeof of, " of %s", format_number(all, x->n_answers));
    if (size > x->answered && x->answered > 0)
        snprintf(left, sizeof left, " · %.0f s left",
                 spent * (double)(size - x->answered) / (double)x->answered);
    out_progress("%s%s lines · %.1f/s%s", format_number(done, n_done), of, (double)n_done / spent,
                 left);
    b->progress = true;
}

static bool is_ours(const struct options *o, size_t number)
{
    return o->n_shards == 0 || number % o->n_shards == o->shard;
}

// A line was read; why: it is none that can be answered.
static bool take(struct lines *x, const char *text, size_t n, const struct error *why,
                 size_t *n_left, struct error *err)
{
    if (!is_ours(x->b->opt, x->in.number))
        return true;
    if (why)
        return add_failed(x, why, err);
    if (!batch_is_blank(text, n))
        return add_line(x, text, n, n_left, err);
    x->n_blank++;
    return true;
}

static bool wants_line(const struct lines *x)
{
    return schedule_wants(&x->s) && x->n_held < x->s.n_parallel + MOST_HELD &&
           x->held_bytes < MOST_HELD_BYTES;
}

// Reads lines as long as there is use for them. It waits for one only while there is nothing else
// to do.
static enum line_next feed(struct lines *x, struct error *err)
{
    size_t n_left = MOST_BETWEEN;
    for (;;) {
        const char *text;
        size_t n;
        struct error why;
        if (!take_prepared(x, err))
            return LINE_FAILED;
        if (x->coming || !wants_line(x))
            return LINE_NOT_YET;
        if (!x->first)
            batch_clear_progress(x->b);
        enum line_next next = line_reader_next(&x->in, !x->first, &text, &n, &why);
        if (next == LINE_FAILED)
            *err = why;
        if (next != LINE_THERE && next != LINE_TOO_LONG)
            return next;
        if (!take(x, text, n, next == LINE_TOO_LONG ? &why : NULL, &n_left, err))
            return LINE_FAILED;
    }
}

static bool run(struct lines *x, struct error *err)
{
    enum line_next next = LINE_NOT_YET;
    struct error reading = {0}; // what is read before it is answered nevertheless
    for (;;) {
        if (next == LINE_NOT_YET)
            next = feed(x, &reading);
        if (reading.code == ERR_INTERRUPTED || !schedule_step(&x->s, err)) {
            error_set(err, ERR_INTERRUPTED, "interrupted");
            return false;
        }
        collect(x);
        if (!write_lines(x, err))
            return false;
        if (!x->first && next != LINE_NOT_YET)
            break;
        tell(x);
    }
    if (next == LINE_FAILED && err)
        *err = reading;
    return next == LINE_END;
}

bool lines_run(struct batch *b, int fd, const char *before, struct error *err)
{
    struct conversation *c = b->conv;
    struct lines x = {.b = b,
                      .before = before,
                      .in = {.fd = fd, .cancel = b->cancel},
                      .n_base = c->n_messages,
                      .first_kept = c->first_kept,
                      .n_around = bytes_around(b, before),
                      .began = clock_now()};
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        x.size = (uint64_t)st.st_size;
    if (!schedule_init(&x.s, c->session.engine, b->opt->n_parallel, c->session.seq, b->cancel, err))
        return false;
    enum spec spec = b->opt->spec;
    struct engine *from;
    if (!session_guesser(&c->session, &spec, &from, err) ||
        (spec != SPEC_OFF && !schedule_speculate(&x.s, from, err))) {
        schedule_release(&x.s);
        return false;
    }
    if (b->opt->n_parallel > x.s.n_parallel && !b->opt->quiet)
        out_say("hokku: -np %u: %s evaluates %zu together", b->opt->n_parallel,
                c->session.engine->device, x.s.n_parallel);
    struct error mine = {0}, none;
    bool ok = run(&x, &mine);
    beside_wait(&x.beside);
    batch_clear_progress(b);
    if (!ok && mine.code == ERR_INTERRUPTED)
        write_rest(&x, &none);
    if (!ok && err)
        *err = mine;
    schedule_release(&x.s);
    for (struct line *l = x.first, *next; l; l = next) {
        next = l->next;
        line_free(l);
    }
    line_reader_release(&x.in);
    if (ok)
        batch_say_blank(b, x.n_blank);
    if (ok && x.n_failed)
        ok = error_set(err, ERR_FAIL, "%zu of %zu lines failed", x.n_failed, x.n_answers);
    return ok;
}

uint32_t lines_together(const struct options *o)
{
    enum { USUAL = 64 };
    if (!o->lines)
        return 0;
    return o->n_parallel == 0 ? USUAL : o->n_parallel == 1 ? 2 : o->n_parallel;
}
