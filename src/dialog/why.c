#include "dialog/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/termsafe.h"

void why_release(struct why *w)
{
    free(w->tokens);
    *w = (struct why){0};
}

bool why_add(struct why *w, const struct decoded *d)
{
    if (!array_grow(NULL, &w->tokens, w->n, &w->cap, sizeof *w->tokens))
        return false;
    w->tokens[w->n++] = *d;
    return true;
}

// Log-softmax of the logits; the token's own value and the n_top best, ties by lower id.
static void judge(const float *logits, size_t n_vocab, int32_t id, uint32_t n_top,
                  struct decoded *d)
{
    double sum = 0, max = -INFINITY;
    for (size_t i = 0; i < n_vocab; i++)
        max = logits[i] > max ? (double)logits[i] : max;
    for (size_t i = 0; i < n_vocab; i++)
        sum += exp((double)logits[i] - max);
    double norm = max + log(sum);
    *d = (struct decoded){.id = id};
    if (id >= 0 && (size_t)id < n_vocab)
        d->logprob = (float)((double)logits[id] - norm);
    for (size_t i = 0; i < n_vocab; i++) {
        float p = (float)((double)logits[i] - norm);
        if (d->n_top == n_top && !(p > d->top[n_top - 1].logprob))
            continue;
        uint32_t at = d->n_top < n_top ? d->n_top++ : n_top - 1;
        for (; at > 0 && p > d->top[at - 1].logprob; at--)
            d->top[at] = d->top[at - 1];
        d->top[at] = (struct token_prob){(int32_t)i, p};
    }
}

static bool judge_row(struct conversation *c, size_t row, int32_t id, uint32_t n_top, float *logits,
                      struct why *w, struct error *err)
{
    struct decoded d;
    if (!seq_logits(c->session.seq, row, c->cancel, logits, err))
        return false;
    judge(logits, c->model->hp.n_vocab, id, n_top, &d);
    return why_add(w, &d) || error_oom(err, "the alternatives", w->n * sizeof d);
}

bool why_last_answer(struct conversation *c, uint32_t n_top, struct why *w, struct error *err)
{
    const struct message *m = conversation_last_answer(c);
    struct session *s = &c->session;
    struct engine *e = s->engine;
    struct session_stats stats = s->stats;
    struct ids prefix = {0};
    if (!m || m->ids.len == 0)
        return error_set(err, ERR_FAIL, "there is no answer yet");
    if (n_top < 1 || n_top > ENGINE_MAX_PROBS)
        return error_set(err, ERR_USAGE, "%u alternatives asked for, expected 1 to %d", n_top,
                         ENGINE_MAX_PROBS);
    enum think think = m->n_runs > 0 ? m->runs[0].think : THINK_DEFAULT;
    float *logits = malloc(e->model->hp.n_vocab * sizeof *logits);
    bool ok = logits || error_oom(err, "the logits", e->model->hp.n_vocab * sizeof *logits);
    ok = ok && conversation_prefix(c, c->n_messages - 1, think, &prefix, NULL, err);
    if (ok && prefix.len + m->ids.len > e->n_ctx)
        ok = error_set(err, ERR_CONTEXT,
                       "the answer and what came before it take %zu tokens and the context holds "
                       "%u: it cannot be looked at again",
                       prefix.len + m->ids.len, e->n_ctx);
    ok = ok && session_sync(s, prefix.data, prefix.len, c->cancel, err) &&
         judge_row(c, 0, m->ids.data[0], n_top, logits, w, err);
    for (size_t i = 0; ok && i + 1 < m->ids.len;) {
        size_t n = m->ids.len - 1 - i;
        if (n > e->n_batch)
            n = e->n_batch;
        struct work work = {.seq = s->seq, .ids = m->ids.data + i, .n = n, .n_logits = (uint32_t)n};
        ok = engine_submit(e, &work, 1, c->cancel, NULL, err);
        for (size_t k = 0; ok && k < n; k++)
            ok = judge_row(c, k, m->ids.data[i + k + 1], n_top, logits, w, err);
        i += n;
    }
    ok = ok && seq_append(s->seq, &m->ids.data[m->ids.len - 1], 1, err);
    s->stats = stats;
    free(logits);
    ids_release(&prefix);
    return ok;
}

// A token's text in quotes, safe, on one line.
static size_t put_token(const struct tokenizer *tok, int32_t id, struct buf *out)
{
    struct buf raw = {0}, safe = {0};
    tokenizer_decode_one(tok, id, true, &raw);
    buf_putc(&safe, '"');
    termsafe_text(buf_str(&raw), raw.len, true, &safe);
    buf_putc(&safe, '"');
    buf_append(out, buf_str(&safe), safe.len);
    size_t width = termsafe_width(buf_str(&safe), safe.len);
    buf_release(&raw);
    buf_release(&safe);
    return width;
}

static void put_percent(float logprob, struct buf *out)
{
    double p = 100.0 * exp((double)logprob);
    if (p >= 99.95)
        buf_puts(out, " 100%");
    else if (p >= 0.05)
        buf_printf(out, "%4.1f%%", p);
    else
        buf_puts(out, "<0.1%");
}

bool why_format(const struct why *w, const struct tokenizer *tok, uint32_t n_alternatives,
                size_t width, bool color, struct buf *out)
{
    struct buf cell = {0};
    for (size_t i = 0; i < w->n; i++) {
        const struct decoded *d = &w->tokens[i];
        double p = exp((double)d->logprob);
        // green: expected; yellow: one of several; red: a surprise
        const char *style = p >= 0.5 ? "\x1b[32m" : p >= 0.1 ? "\x1b[33m" : "\x1b[31m";
        size_t used = 0;
        if (color)
            buf_puts(out, style);
        used = put_token(tok, d->id, out);
        while (used++ < 14)
            buf_putc(out, ' ');
        put_percent(d->logprob, out);
        used += 5;
        if (color)
            buf_puts(out, "\x1b[0m");
        uint32_t shown = 0;
        for (uint32_t k = 0; k < d->n_top && shown < n_alternatives; k++) {
            if (d->top[k].id == d->id)
                continue;
            shown++;
            buf_clear(&cell);
            buf_puts(&cell, "  ");
            size_t cell_width = 2 + put_token(tok, d->top[k].id, &cell);
            buf_putc(&cell, ' ');
            put_percent(d->top[k].logprob, &cell);
            cell_width += 6;
            if (width > 0 && used + cell_width >= width)
                break;
            buf_append(out, buf_str(&cell), cell.len);
            used += cell_width;
        }
        buf_putc(out, '\n');
    }
    buf_release(&cell);
    return !out->failed;
}
