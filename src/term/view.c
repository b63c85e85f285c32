#include "term/view.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/out.h"

// Prompts shorter than this are read before a progress line could be.
enum { PROGRESS_MIN_TOKENS = 64 };

void view_init(struct view *v, const struct view_options *o)
{
    *v = (struct view){.o = *o};
}

void view_release(struct view *v)
{
    termout_release(&v->out);
    termout_release(&v->err);
    buf_release(&v->scratch);
}

static size_t width_of(const struct view *v, bool tty, enum out_stream s)
{
    return tty && !v->o.dumb ? out_columns(s) : 0;
}

void view_begin(struct view *v)
{
    termout_release(&v->out);
    termout_release(&v->err);
    termout_init(&v->out, width_of(v, v->o.out_tty, OUT_STDOUT), v->o.out_color, true);
    termout_init(&v->err, width_of(v, v->o.err_tty, OUT_STDERR), v->o.err_color, false);
    v->thinking = v->any = v->newline = false;
    v->started = clock_now();
}

static void write_err(struct view *v)
{
    // Standard error may be closed; there is nobody left to tell.
    out_painted(OUT_STDERR, buf_str(&v->scratch), v->scratch.len, NULL);
    buf_clear(&v->scratch);
}

static void end_thinking(struct view *v)
{
    if (!v->thinking)
        return;
    v->thinking = false;
    if (v->o.err_tty) {
        termout_dim(&v->err, false, &v->scratch);
        termout_end(&v->err, &v->scratch);
    }
    buf_puts(&v->scratch, "\n\n");
    write_err(v);
}

bool view_text(struct view *v, enum answer_part part, const char *text, size_t n, struct error *err)
{
    if (part == PART_THINKING && (v->o.think == THINK_HIDE || v->o.quiet)) {
        // Hidden, but a person who waits should see that something is going on.
        if (!v->progress && v->o.err_tty && !v->o.dumb && !v->o.quiet) {
            out_progress("thinking ...");
            v->progress = true;
        }
        return true;
    }
    view_clear_progress(v);
    buf_clear(&v->scratch);
    if (part == PART_THINKING) {
        if (v->o.err_tty) {
            termout_dim(&v->err, true, &v->scratch);
            termout_push(&v->err, text, n, &v->scratch);
        } else {
            buf_append(&v->scratch, text, n);
        }
        v->thinking = true;
        write_err(v);
        return true;
    }
    end_thinking(v);
    v->any = true;
    if (n > 0)
        v->newline = text[n - 1] == '\n';
    if (!v->o.out_tty)
        return out_text(OUT_STDOUT, text, n, err);
    size_t width = width_of(v, true, OUT_STDOUT);
    if (width != v->out.width && width >= 8)
        termout_resize(&v->out, width);
    if (!termout_push(&v->out, text, n, &v->scratch))
        return error_oom(err, "the text of the answer", n);
    return out_painted(OUT_STDOUT, buf_str(&v->scratch), v->scratch.len, err);
}

bool view_end(struct view *v, struct error *err)
{
    view_clear_progress(v);
    end_thinking(v);
    buf_clear(&v->scratch);
    if (v->o.out_tty)
        termout_end(&v->out, &v->scratch);
    if (v->any && !v->newline)
        buf_putc(&v->scratch, '\n');
    return out_painted(OUT_STDOUT, buf_str(&v->scratch), v->scratch.len, err);
}

void view_clear_progress(struct view *v)
{
    if (!v->progress)
        return;
    v->progress = false;
    out_progress_clear();
}

void view_prefill(struct view *v, size_t done, size_t total)
{
    if (!v->o.err_tty || v->o.quiet || v->o.dumb || total < PROGRESS_MIN_TOKENS)
        return;
    if (done >= total) {
        view_clear_progress(v);
        return;
    }
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER], line[160];
    char left[40] = "";
    double spent = clock_now() - v->started;
    if (done > 0)
        snprintf(left, sizeof left, " · %.0f s left",
                 spent * (double)(total - done) / (double)done);
    format_number(a, done);
    format_number(b, total);
    int n = snprintf(line, sizeof line, "reading %s of %s tokens%s", a, b, left);
    size_t width = out_columns(OUT_STDERR);
    if (width > 0 && termsafe_width(line, (size_t)n) >= width)
        n = snprintf(line, sizeof line, "%s/%s%s", a, b, left);
    if (width > 0 && termsafe_width(line, (size_t)n) >= width)
        n = snprintf(line, sizeof line, "%.0f %%", 100.0 * (double)done / (double)total);
    out_progress("%.*s", n, line);
    v->progress = true;
}

static void put_err(struct view *v, const char *text, size_t n, bool end_line)
{
    struct buf out = {0};
    view_clear_progress(v);
    if (v->o.err_tty) {
        struct termout t;
        termout_init(&t, width_of(v, true, OUT_STDERR), false, false);
        termout_push(&t, text, n, &out);
        termout_end(&t, &out);
        termout_release(&t);
    } else {
        buf_append(&out, text, n);
    }
    if (end_line && (n == 0 || text[n - 1] != '\n'))
        buf_putc(&out, '\n');
    out_painted(OUT_STDERR, buf_str(&out), out.len, NULL);
    buf_release(&out);
}

void view_say(struct view *v, const char *fmt, ...)
{
    char text[4096];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n > 0)
        put_err(v, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1, false);
}

void view_show(struct view *v, const char *text, size_t n)
{
    put_err(v, text, n, true);
}

// " (5,853/s)"; slow ones with a decimal.
static void put_rate(struct buf *out, size_t n, double seconds)
{
    char number[FORMAT_NUMBER];
    double rate = seconds > 0 ? (double)n / seconds : 0;
    if (rate >= 100)
        buf_printf(out, " (%s/s)", format_number(number, (uint64_t)rate));
    else if (seconds > 0)
        buf_printf(out, " (%.1f/s)", rate);
}

bool view_stats_line(const struct session *s, struct buf *out)
{
    const struct session_stats *t = &s->stats;
    buf_printf(out, "prefill %zu tokens %.1f ms", t->n_evaluated, t->prefill_s * 1e3);
    put_rate(out, t->n_evaluated, t->prefill_s);
    buf_printf(out, " · decode %zu tokens %.1f ms", t->n_generated, t->decode_s * 1e3);
    put_rate(out, t->n_generated, t->decode_s);
    buf_printf(out, " · first token %.1f ms · reused %zu", t->first_token_s * 1e3, t->n_reused);
    if (t->n_dropped > 0)
        buf_printf(out, " · dropped %zu", t->n_dropped);
    return buf_printf(out, " · context %zu of %u", seq_len(s->seq), s->engine->n_ctx);
}
