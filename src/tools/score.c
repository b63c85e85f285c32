#include "tools/score.h"

#include <math.h>
#include <stdlib.h>

#include "text/tokenizer.h"

bool tool_score(const struct model *m, struct engine *e, const char *text, size_t n, uint32_t top_k,
                const struct cancel *cancel, struct buf *out, struct error *err)
{
    struct ids ids = {0};
    struct tokenize_options opt = {.bos = true, .eos = false, .special = true, .cancel = cancel};
    uint32_t n_vocab = m->hp.n_vocab;
    struct token_prob top[ENGINE_MAX_PROBS];
    float *logits = malloc(n_vocab * sizeof *logits);
    struct seq *s = seq_open(e, 0, err);
    bool ok = s && (logits || error_oom(err, "the logits", n_vocab * sizeof *logits));
    ok = ok && tokenizer_encode(m->tokenizer, text, n, &opt, &ids, err);
    if (ok && ids.len == 0)
        ok = error_set(err, ERR_USAGE, "the text is empty: nothing to score");
    if (ok && ids.len > e->n_ctx)
        ok = error_set(err, ERR_CONTEXT,
                       "the text has %zu tokens but the context holds %u: use -c %zu", ids.len,
                       e->n_ctx, ids.len);
    if (top_k > n_vocab)
        top_k = n_vocab;
    double nll = 0;
    if (ok) {
        buf_puts(out, "{\"tokens\":[");
        for (size_t i = 0; i < ids.len; i++)
            buf_printf(out, "%s%d", i ? "," : "", ids.data[i]);
        buf_puts(out, "],\"positions\":[");
    }
    for (size_t at = 0; ok && at < ids.len;) {
        size_t chunk = ids.len - at < e->n_batch ? ids.len - at : e->n_batch;
        struct work w = {s, ids.data + at, chunk, .n_logits = (uint32_t)chunk};
        ok = engine_submit(e, &w, 1, cancel, NULL, err);
        for (size_t i = 0; ok && i < chunk; i++, at++) {
            ok = seq_logits(s, i, cancel, logits, err) &&
                 sampler_top_logprobs(logits, n_vocab, top, top_k, err);
            if (!ok)
                break;
            buf_puts(out, at ? ",{\"top\":[" : "{\"top\":[");
            for (uint32_t k = 0; k < top_k; k++)
                buf_printf(out, "%s[%d,%.6f]", k ? "," : "", top[k].id, (double)top[k].logprob);
            buf_puts(out, "]");
            if (at + 1 < ids.len) {
                double next = sampler_logprob(logits, n_vocab, ids.data[at + 1]);
                nll -= next;
                buf_printf(out, ",\"next\":%.6f", next);
            }
            buf_puts(out, "}");
        }
    }
    if (ok) {
        buf_puts(out, "],\"nll_per_token\":");
        if (ids.len > 1)
            buf_printf(out, "%.6f}\n", nll / (double)(ids.len - 1));
        else // nothing came before its token: none is scored
            buf_puts(out, "null}\n");
        ok = !out->failed || error_oom(err, "the scores", out->len);
    }
    seq_free(s);
    free(logits);
    ids_release(&ids);
    return ok;
}

bool tool_perplexity(const struct model *m, struct engine *e, const char *text, size_t n,
                     uint32_t n_window, const struct cancel *cancel,
                     void (*progress)(void *user, size_t done, size_t total, double ppl),
                     void *user, struct perplexity *out, struct error *err)
{
    struct ids ids = {0};
    struct tokenize_options opt = {.bos = true, .special = false, .cancel = cancel};
    uint32_t n_vocab = m->hp.n_vocab;
    *out = (struct perplexity){.window = n_window};
    float *logits = malloc(n_vocab * sizeof *logits);
    struct seq *s = seq_open(e, 0, err);
    bool ok = s && (logits || error_oom(err, "the logits", n_vocab * sizeof *logits));
    ok = ok && tokenizer_encode(m->tokenizer, text, n, &opt, &ids, err);
    if (ok && n_window < 4)
        ok = error_set(err, ERR_USAGE, "a window of %u tokens: expected at least 4 (-c)", n_window);
    if (ok && ids.len < 2 * (size_t)n_window)
        ok = error_set(err, ERR_USAGE,
                       "the text has %zu token%s: expected at least two windows of %u; give a "
                       "longer text or a smaller -c",
                       ids.len, ids.len == 1 ? "" : "s", n_window);
    size_t n_windows = ok ? ids.len / n_window : 0;
    int32_t bos = tokenizer_add_bos(m->tokenizer) ? tokenizer_bos(m->tokenizer) : -1;
    double sum = 0, sum_sq = 0;
    for (size_t w = 0; ok && w < n_windows; w++) {
        int32_t *window = ids.data + w * n_window;
        if (bos >= 0)
            window[0] = bos;
        seq_trim(s, 0);
        for (size_t at = 0; ok && at < n_window;) {
            size_t chunk = n_window - at < e->n_batch ? n_window - at : e->n_batch;
            bool scored = at + chunk > n_window / 2;
            struct work work = {s, window + at, chunk, .n_logits = scored ? (uint32_t)chunk : 0};
            ok = engine_submit(e, &work, 1, cancel, NULL, err);
            for (size_t i = 0; ok && scored && i < chunk; i++) {
                size_t pos = at + i;
                if (pos < n_window / 2 || pos + 1 >= n_window)
                    continue;
                ok = seq_logits(s, i, cancel, logits, err);
                if (!ok)
                    break;
                double nll = -sampler_logprob(logits, n_vocab, window[pos + 1]);
                if (!isfinite(nll)) {
                    ok = error_set(
                        err, ERR_FAIL,
                        "the log-probability of token %zu is %g, expected a finite number",
                        w * n_window + pos + 1, -nll);
                    break;
                }
                sum += nll;
                sum_sq += nll * nll;
                out->n_scored++;
            }
            at += chunk;
        }
        out->n_windows = w + 1;
        if (ok && progress)
            progress(user, w + 1, n_windows, exp(sum / (double)out->n_scored));
    }
    if (!ok && progress && out->n_windows > 0)
        progress(user, n_windows, n_windows, 0);
    if (ok) {
        double count = (double)out->n_scored;
        out->nll = sum / count;
        double var = sum_sq / count - out->nll * out->nll;
        out->ppl = exp(out->nll);
        out->ppl_error = count > 1 && var > 0 ? sqrt(var / (count - 1)) * out->ppl : 0;
        if (!isfinite(out->ppl) || !isfinite(out->ppl_error))
            ok = error_set(
                err, ERR_FAIL,
                "the perplexity, e to the %g, is more than a number holds, expected 1e308 "
                "at most: the model's weights are damaged, or the text is not of its "
                "kind; score tells the logarithms",
                out->nll);
    }
    seq_free(s);
    free(logits);
    ids_release(&ids);
    return ok;
}
