// The public face: parse, render, errors with their place, limits.
#include "jinja/template.h"

#include <inttypes.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/utf8.h"
#include "jinja/parser.h"
#include "jinja/runtime.h"

// Templates in use have less than 64 kB. LOOK: steps between two looks at the clock, a fraction of
// a millisecond.
enum { MAX_SOURCE = 1 << 20, MAX_PARSE_MEMORY = 1 << 30, LOOK = 4096 };

static const struct template_limits default_limits = {
    .max_steps = 50000000,
    .max_output = (size_t)256 << 20,
    .max_memory = (size_t)1 << 30,
    .max_depth = 1000,
    .max_seconds = 2,
};

// ---- errors ----

// "line 3, column 7: message, in: the line", the line cut around the place when it is long.
void template_error_at(struct error *err, const char *src, size_t n_src, size_t pos,
                       const char *message)
{
    enum { BEFORE = 60, AFTER = 60 };
    if (pos > n_src)
        pos = n_src;
    size_t line = 1, begin = 0;
    for (size_t i = 0; i < pos; i++)
        if (src[i] == '\n') {
            line++;
            begin = i + 1;
        }
    size_t column = 1, end = begin;
    for (size_t i = begin; i < pos; i++)
        column += ((unsigned char)src[i] & 0xC0) != 0x80;
    while (end < n_src && src[end] != '\n')
        end++;
    const char *left = "", *right = "";
    if (pos - begin > BEFORE) {
        begin = pos - BEFORE;
        left = "...";
    }
    if (end - pos > AFTER) {
        end = pos + AFTER;
        right = "...";
    }
    while (begin < pos && ((unsigned char)src[begin] & 0xC0) == 0x80)
        begin++;
    while (end > pos && end < n_src && ((unsigned char)src[end] & 0xC0) == 0x80)
        end--;
    while (begin < end && (src[begin] == ' ' || src[begin] == '\t'))
        begin++;
    error_set(err, ERR_FAIL, "line %zu, column %zu: %s, in: %s%.*s%s", line, column, message, left,
              (int)(end - begin), src + begin, right);
}

void run_fail(struct run *r, const char *fmt, ...)
{
    char message[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    size_t n = strlen(message);
    message[n - utf8_incomplete_tail(message, n)] = '\0';
    template_error_at(r->err, r->t->src, r->t->n_src, r->at ? r->at->pos : 0, message);
    longjmp(r->escape, 1);
}

void run_raise(struct run *r, const char *text, size_t n)
{
    error_set(r->err, ERR_FAIL, "%.*s", (int)(n < 1023 ? n : 1023), text);
    r->raised = true;
    longjmp(r->escape, 1);
}

void run_fail_undef(struct run *r, const struct val *v)
{
    const struct undef *u = v->undef;
    if (u && u->hint)
        run_fail(r, "%s", u->hint);
    if (!u || u->name.kind != V_STR) {
        if (u && u->object && u->name.kind != V_MISSING) {
            struct val name = pytext_repr(r, u->name);
            run_fail(r, "%s has no element %.*s", u->object,
                     (int)(name.s->n < 100 ? name.s->n : 100), name.s->p);
        }
        run_fail(r, "value is undefined");
    }
    int n = (int)(u->name.s->n < 200 ? u->name.s->n : 200);
    if (!u->object)
        run_fail(r, "'%.*s' is undefined", n, u->name.s->p);
    run_fail(r, "'%s' has no attribute '%.*s'", u->object, n, u->name.s->p);
}

void run_fail_limit(struct run *r, const char *what, unsigned long long limit, const char *unit)
{
    run_fail(
        r,
        "the template uses too much: more %s than the limit of %llu %s; shorten the conversation, "
        "or name another template (--chat-template, --chat-template-file)",
        what, limit, unit);
}

// ---- what every part pays ----

static void fail_memory(struct run *r, size_t n)
{
    if (!r->arena.refused)
        run_fail_limit(r, "memory", r->limits.max_memory, "bytes");
    error_oom(r->err, "what the chat template makes", n);
    longjmp(r->escape, 1);
}

void *run_alloc(struct run *r, size_t n)
{
    run_step(r, n / 64);
    void *p = arena_alloc(&r->arena, n);
    if (!p)
        fail_memory(r, n);
    return p;
}

void *run_grow(struct run *r, void *p, size_t n_old, size_t n_new)
{
    run_step(r, n_new / 64);
    void *q = arena_grow(&r->arena, p, n_old, n_new);
    if (!q)
        fail_memory(r, n_new);
    return q;
}

// Of this thread: a machine with more to do, or a stopped process, does not make a template slow.
static double processor_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void run_look(struct run *r)
{
    if (r->steps > r->limits.max_steps)
        run_fail_limit(r, "work", r->limits.max_steps, "steps");
    if (cancel_asked(r->limits.cancel)) {
        error_set(r->err, ERR_INTERRUPTED, "interrupted while the template was rendered");
        longjmp(r->escape, 1);
    }
    if (processor_time() - r->began > r->limits.max_seconds)
        run_fail(r,
                 "the template takes too long: more than the limit of %g seconds; shorten the "
                 "conversation, or name another template (--chat-template, --chat-template-file)",
                 r->limits.max_seconds);
    uint64_t left = r->limits.max_steps - r->steps;
    r->next_look = r->steps + (left < LOOK ? left + 1 : LOOK);
}

bool run_equal(struct run *r, const struct str *a, const struct str *b)
{
    run_step(r, 1 + (a->n == b->n ? a->n / 64 : 0));
    return str_equal(a, b);
}

void run_enter(struct run *r)
{
    if (++r->depth > r->limits.max_depth)
        run_fail_limit(r, "nesting", r->limits.max_depth, "levels");
}

void run_leave(struct run *r)
{
    r->depth--;
}

// ---- parse ----

// Newlines become \n and one at the end is dropped, as Jinja2 does by default.
static bool copy_source(struct template *t, const char *src, size_t n, struct error *err)
{
    char *copy = arena_alloc(&t->arena, n + 1);
    if (!copy)
        return error_oom(err, "chat template", n + 1);
    memcpy(copy, src, n);
    copy[n] = '\0';
    t->source = t->src = copy;
    t->n_source = t->n_src = n;
    if (memchr(src, '\r', n)) {
        char *plain = arena_alloc(&t->arena, n);
        if (!plain)
            return error_oom(err, "chat template", n);
        size_t k = 0;
        for (size_t i = 0; i < n; i++) {
            plain[k++] = src[i] == '\r' ? '\n' : src[i];
            i += src[i] == '\r' && i + 1 < n && src[i + 1] == '\n';
        }
        t->src = plain;
        t->n_src = k;
    }
    if (t->n_src && t->src[t->n_src - 1] == '\n')
        t->n_src--;
    return true;
}

bool template_reads(const struct template *t, const char *name)
{
    for (size_t i = 0; i < t->n_read; i++)
        if (t->read[i]->n == strlen(name) && memcmp(t->read[i]->p, name, t->read[i]->n) == 0)
            return true;
    return false;
}

const char *template_source(const struct template *t, size_t *n)
{
    *n = t->n_source;
    return t->source;
}

// Numbers are written and read in the C locale whatever the program has set.
static locale_t enter_c_locale(locale_t *c)
{
    *c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return *c ? uselocale(*c) : (locale_t)0;
}

static void leave_c_locale(locale_t c, locale_t old)
{
    if (!c)
        return;
    uselocale(old);
    freelocale(c);
}

struct template *template_parse(const char *src, size_t n, struct error *err)
{
    struct template *t = NULL;
    locale_t c, old = enter_c_locale(&c);
    if (n > MAX_SOURCE) {
        error_set(err, ERR_FAIL, "chat template has %zu bytes; at most %d are accepted", n,
                  MAX_SOURCE);
        goto done;
    }
    if (!utf8_valid(src, n)) {
        error_set(err, ERR_FAIL, "chat template is not valid UTF-8");
        goto done;
    }
    t = calloc(1, sizeof *t);
    if (!t) {
        error_oom(err, "chat template", sizeof *t);
        goto done;
    }
    t->arena.max = MAX_PARSE_MEMORY;
    if (!copy_source(t, src, n, err) || !parser_run(t, err) || !scope_resolve(t, err)) {
        template_free(t);
        t = NULL;
    }
done:
    leave_c_locale(c, old);
    return t;
}

void template_free(struct template *t)
{
    if (!t)
        return;
    arena_release(&t->arena);
    free(t);
}

// ---- render ----

static bool copy_output(const struct sb *b, struct template_output *out, struct error *err)
{
    size_t n_spans = b->n_segs ? b->n_segs : b->n != 0;
    if (!buf_append(&out->text, b->p ? b->p : "", b->n))
        return error_oom(err, "rendered prompt", b->n);
    out->spans = malloc((n_spans ? n_spans : 1) * sizeof *out->spans);
    if (!out->spans)
        return error_oom(err, "rendered prompt", n_spans * sizeof *out->spans);
    out->n_spans = n_spans;
    size_t begin = 0;
    for (size_t i = 0; i < n_spans; i++) {
        size_t end = b->n_segs ? b->segs[i].end : b->n;
        out->spans[i] =
            (struct template_span){begin, end, b->n_segs ? b->segs[i].origin : b->origin};
        begin = end;
    }
    return true;
}

// The only frame that errors return to; it holds nothing that longjmp could lose.
static bool run_guarded(struct run *r, template_fill fill, void *user)
{
    if (setjmp(r->escape))
        return false;
    fill(user, variables_begin(r));
    exec_root(r);
    return true;
}

bool template_render(const struct template *t, template_fill fill, void *user, int64_t now,
                     const struct template_limits *limits, struct template_output *out,
                     bool *raised, struct error *err)
{
    if (raised)
        *raised = false;
    *out = (struct template_output){0};
    struct run *r = calloc(1, sizeof *r);
    if (!r)
        return error_oom(err, "template run", sizeof *r);
    struct template_limits l = limits ? *limits : (struct template_limits){0};
    r->t = t;
    r->limits = (struct template_limits){
        .max_steps = l.max_steps ? l.max_steps : default_limits.max_steps,
        .max_output = l.max_output ? l.max_output : default_limits.max_output,
        .max_memory = l.max_memory ? l.max_memory : default_limits.max_memory,
        .max_depth = l.max_depth ? l.max_depth : default_limits.max_depth,
        .max_seconds = l.max_seconds > 0 ? l.max_seconds : default_limits.max_seconds,
        .cancel = l.cancel,
    };
    r->began = processor_time();
    r->arena.max = r->limits.max_memory;
    r->now = now;
    r->err = err;
    struct sb text = {0};
    r->out = &text;
    locale_t c, old = enter_c_locale(&c);
    bool ok = run_guarded(r, fill, user) && copy_output(&text, out, err);
    leave_c_locale(c, old);
    if (raised)
        *raised = r->raised;
    arena_release(&r->arena);
    free(r);
    if (!ok)
        template_output_release(out);
    return ok;
}

void template_output_release(struct template_output *o)
{
    if (!o)
        return;
    buf_release(&o->text);
    free(o->spans);
    *o = (struct template_output){0};
}
