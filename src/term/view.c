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

void view_begin(struct view *v)
{
    termout_release(&v->out);
    termout_release(&v->err);
    termout_init(&v->out, v->o.out_color, true);
    termout_init(&v->err, v->o.err_color, false);
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
    const double now = clock_now(), spent = now - v->started;
    // Of tokens that come one by one: a hundred in all, and where that is seldom twenty a second.
    if (v->progress && now - v->told < 0.05 && done - v->told_of < total / 100)
        return;
    v->told = now;
    v->told_of = done;
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER], line[160];
    char left[40] = "";
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

// Notices are dim, and what is wrong begins with a colour: neither looks like an answer.
static void put_err(struct view *v, const char *text, size_t n, bool end_line)
{
    static const char name[] = "hokku:";
    struct buf out = {0};
    view_clear_progress(v);
    if (v->o.err_tty) {
        bool notice = n > 0 && text[0] == '(', wrong = n > 6 && memcmp(text, name, 6) == 0;
        struct termout t;
        termout_init(&t, v->o.err_color, false);
        termout_dim(&t, notice, &out);
        if (wrong && v->o.err_color) {
            buf_printf(&out, "\x1b[31m%s\x1b[0m", name);
            text += 6;
            n -= 6;
        }
        size_t body = n > 0 && text[n - 1] == '\n' ? n - 1 : n; // styles end before the line does
        termout_push(&t, text, body, &out);
        termout_end(&t, &out);
        buf_append(&out, text + body, n - body);
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
bool view_stats_line(const struct session_stats *t, size_t n_used, size_t n_ctx, struct buf *out)
{
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER];
    buf_printf(out, "prefill %s tokens %.1f ms", format_number(a, t->n_evaluated),
               t->prefill_s * 1e3);
    if (t->prefill_s > 0)
        buf_printf(out, " (%s/s)",
                   format_number(a, (uint64_t)((double)t->n_evaluated / t->prefill_s)));
    buf_printf(out, " · decode %s tokens %.1f ms", format_number(a, t->n_generated),
               t->decode_s * 1e3);
    if (t->decode_s > 0)
        buf_printf(out, " (%s/s)",
                   format_number(a, (uint64_t)((double)t->n_generated / t->decode_s)));
    buf_printf(out, " · first token %.1f ms · reused %s", t->first_token_s * 1e3,
               format_number(a, t->n_reused));
    if (t->n_drafted > 0)
        buf_printf(out, " · drafted %s, accepted %s, %.1f tokens a step",
                   format_number(a, t->n_drafted), format_number(b, t->n_accepted),
                   (double)t->n_generated / (double)t->n_steps);
    if (t->n_again > 0)
        buf_printf(out, " · read again %s", format_number(a, t->n_again));
    if (t->n_dropped > 0)
        buf_printf(out, " · dropped %s", format_number(a, t->n_dropped));
    return buf_printf(out, " · context %s of %s", format_number(a, n_used),
                      format_number(b, n_ctx));
}
