// The CPU engine behind engine.h: opening, the timeline, logits, decoding.
#include "cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/bandwidth.h"
#include "cpu/memory.h"
#include "cpu/plan.h"

static struct cpu_engine *self(struct engine *e)
{
    return (struct cpu_engine *)e; // base is the first member
}

static void cpu_free(struct engine *base)
{
    if (!base)
        return;
    struct cpu_engine *e = self(base);
    pool_free(e->pool);
    kv_cache_release(&e->kv);
    memory_unmap(e->scratch, e->scratch_bytes);
    sampler_release(&e->sampler);
    ids_release(&e->history);
    ids_release(&e->stop_ids);
    free(e);
}

static bool interrupted(struct error *err)
{
    return error_set(err, ERR_INTERRUPTED, "interrupted");
}

// One chunk of at most n_batch tokens.
static bool eval_chunk(struct cpu_engine *e, const int32_t *tokens, size_t n,
                       enum engine_logits want, struct error *err)
{
    e->fresh = false;
    e->n_logits = 0;
    e->n_hidden = 0;
    if (!cpu_forward(e, tokens, n, want))
        return interrupted(err);
    // The head belongs to the token: cancelled here, the token counts as not evaluated.
    if (want == LOGITS_LAST && !cpu_head(e, 0, 1)) {
        e->n_hidden = 0;
        return interrupted(err);
    }
    e->base.n_past += n;
    e->last_token = tokens[n - 1];
    e->fresh = want != LOGITS_NONE;
    return true;
}

// Between decode_start and decode_stop only decode_next may be called.
static bool refused(const struct cpu_engine *e, const char *what, struct error *err)
{
    return e->decoding &&
           !error_set(err, ERR_FAIL, "%s while decoding: expected decode_stop first", what);
}

static bool eval(struct engine *base, const int32_t *tokens, size_t n, enum engine_logits want,
                 struct error *err)
{
    struct cpu_engine *e = self(base);
    if (n == 0)
        return error_set(err, ERR_FAIL, "eval: no tokens");
    if (n > base->n_ctx - base->n_past)
        return error_set(err, ERR_CONTEXT, "%zu tokens after %zu do not fit the context of %u", n,
                         base->n_past, base->n_ctx);
    if (want == LOGITS_ALL && n > base->n_batch)
        return error_set(err, ERR_FAIL,
                         "eval: logits of %zu tokens wanted at once, but a batch has %u", n,
                         base->n_batch);
    const uint32_t n_vocab = base->model->hp.n_vocab;
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= n_vocab)
            return error_set(err, ERR_FAIL, "eval: token id %d, expected 0 to %u", tokens[i],
                             n_vocab - 1);
    for (size_t done = 0; done < n;) {
        const size_t chunk = n - done < base->n_batch ? n - done : base->n_batch;
        if (cancel_asked(e->cancel))
            return interrupted(err);
        const bool last = done + chunk == n;
        if (!eval_chunk(e, tokens + done, chunk, last ? want : LOGITS_NONE, err))
            return false;
        done += chunk;
    }
    return true;
}

static bool cpu_eval(struct engine *base, const int32_t *tokens, size_t n, enum engine_logits want,
                     struct error *err)
{
    return !refused(self(base), "eval", err) && eval(base, tokens, n, want, err);
}

static void cpu_trim(struct engine *base, size_t n)
{
    struct cpu_engine *e = self(base);
    if (n >= base->n_past)
        return;
    base->n_past = n;
    e->fresh = false;
    e->n_logits = 0;
    e->n_hidden = 0;
}

// Row i of the last eval (n_vocab); NULL with err set.
static const float *logits_row(struct cpu_engine *e, size_t i, struct error *err)
{
    if (i >= e->n_hidden) {
        error_set(err, ERR_FAIL, "logits: row %zu wanted, the last eval left %zu", i, e->n_hidden);
        return NULL;
    }
    if (i < e->logits_first || i >= e->logits_first + e->n_logits) {
        const size_t first = i / LOGIT_ROWS * LOGIT_ROWS;
        const size_t rest = e->n_hidden - first;
        if (!cpu_head(e, first, rest < LOGIT_ROWS ? rest : LOGIT_ROWS)) {
            interrupted(err);
            return NULL;
        }
    }
    return e->logits + (i - e->logits_first) * e->base.model->hp.n_vocab;
}

// False, with the weights that it comes from in *err, when a logit of row i is not finite: the last
// token is evaluated once more, and every step looked at.
static bool check_finite(struct cpu_engine *e, size_t i, const float *logits, struct error *err)
{
    const size_t n_vocab = e->base.model->hp.n_vocab, at = finite_until(logits, n_vocab);
    if (at == n_vocab)
        return true;
    const float logit = logits[at];
    struct finite_search search = {0};
    const bool last = i + 1 == e->n_hidden;
    e->search = &search;
    e->base.n_past--;
    const bool ok = cpu_forward(e, &e->last_token, 1, LOGITS_NONE);
    e->base.n_past++;
    e->search = NULL;
    if (!ok)
        return interrupted(err);
    return finite_error(search.found || last ? &search : NULL, (uint32_t)at, logit, err);
}

static bool cpu_logits(struct engine *base, size_t i, float *out, struct error *err)
{
    const float *row = refused(self(base), "logits", err) ? NULL : logits_row(self(base), i, err);
    if (!row || !check_finite(self(base), i, row, err))
        return false;
    memcpy(out, row, base->model->hp.n_vocab * sizeof *out);
    return true;
}

static bool cpu_decode_start(struct engine *base, const struct decode_params *p, struct error *err)
{
    struct cpu_engine *e = self(base);
    if (refused(e, "decode_start", err))
        return false;
    if (!e->fresh)
        return error_set(err, ERR_FAIL, "decode: no logits of the last token; eval it first");
    if (p->n_probs > ENGINE_MAX_PROBS)
        return error_set(err, ERR_FAIL, "decode: %u alternatives wanted, at most %d", p->n_probs,
                         ENGINE_MAX_PROBS);
    ids_clear(&e->history);
    if (!ids_append(&e->history, p->history, p->n_history) ||
        !ids_reserve(&e->history, base->n_ctx + 1))
        return error_oom(err, "the token history", (base->n_ctx + p->n_history) * sizeof(int32_t));
    struct sampler s = {0};
    if (!sampler_init(&s, p->sampler, base->model->hp.n_vocab, err))
        return false;
    sampler_release(&e->sampler);
    e->sampler = s;
    ids_clear(&e->stop_ids);
    if (!ids_append(&e->stop_ids, p->stop_ids, p->n_stop_ids))
        return error_oom(err, "the stop ids", p->n_stop_ids * sizeof *p->stop_ids);
    e->n_probs = p->n_probs;
    e->n_left = p->max_tokens;
    e->pending = false;
    e->decoding = true;
    return true;
}

static bool cpu_decode_next(struct engine *base, struct decoded *out, struct error *err)
{
    struct cpu_engine *e = self(base);
    const uint32_t n_vocab = base->model->hp.n_vocab;
    *out = (struct decoded){0};
    if (!e->decoding)
        return error_set(err, ERR_FAIL, "decode: not started");
    if (e->n_left == 0)
        return error_set(err, ERR_FAIL,
                         "decode: more tokens wanted than announced, or after a stop id");
    if (cancel_asked(e->cancel))
        return interrupted(err);
    if (e->pending) {
        if (!eval(base, &e->history.data[e->history.len - 1], 1, LOGITS_LAST, err))
            return false;
        e->pending = false;
    }
    const float *logits = logits_row(e, e->n_hidden - 1, err);
    if (!logits)
        return false;
    if (!sampler_pick(&e->sampler, logits, e->history.data, e->history.len, &out->id, err))
        return check_finite(e, e->n_hidden - 1, logits, err) && false;
    if (e->n_probs > 0) {
        out->n_top = e->n_probs < n_vocab ? e->n_probs : n_vocab;
        if (!sampler_top_logprobs(logits, n_vocab, out->top, out->n_top, err))
            return false;
        out->logprob = (float)sampler_logprob(logits, n_vocab, out->id);
    }
    if (!ids_push(&e->history, out->id))
        return error_oom(err, "the token history", (e->history.len + 1) * sizeof(int32_t));
    e->pending = true;
    e->n_left--;
    for (size_t i = 0; i < e->stop_ids.len; i++)
        if (e->stop_ids.data[i] == out->id)
            e->n_left = 0;
    return true;
}

static void cpu_decode_stop(struct engine *base, size_t n_keep)
{
    struct cpu_engine *e = self(base);
    e->decoding = e->pending = false;
    cpu_trim(base, n_keep);
}

static size_t cpu_kv_bytes(const struct engine *base, size_t begin, size_t end)
{
    const struct cpu_engine *e = (const struct cpu_engine *)base;
    return begin < end ? kv_cache_export_bytes(&e->kv, begin, end) : 0;
}

static bool cpu_kv_export(struct engine *base, size_t begin, size_t end, void *dst,
                          struct error *err)
{
    if (refused(self(base), "kv_export", err))
        return false;
    if (begin > end || end > base->n_past)
        return error_set(err, ERR_FAIL, "KV export: positions %zu to %zu of %zu", begin, end,
                         base->n_past);
    kv_cache_export(&self(base)->kv, begin, end, dst);
    return true;
}

static bool cpu_kv_import(struct engine *base, size_t begin, size_t end, const void *src,
                          struct error *err)
{
    struct cpu_engine *e = self(base);
    if (refused(e, "kv_import", err))
        return false;
    if (begin != base->n_past || begin > end)
        return error_set(err, ERR_FAIL, "KV import: positions %zu to %zu after %zu", begin, end,
                         base->n_past);
    if (end > base->n_ctx)
        return error_set(err, ERR_CONTEXT, "%zu saved tokens do not fit the context of %u", end,
                         base->n_ctx);
    kv_cache_import(&e->kv, begin, end, src);
    if (end > begin) {
        base->n_past = end;
        e->fresh = false;
        e->n_logits = 0;
        e->n_hidden = 0;
    }
    return true;
}

static bool cpu_measure(struct engine *base, struct engine_peaks *out, struct error *err)
{
    (void)err;
    const struct cpu_engine *e = self(base);
    const struct gguf *g = base->model->gguf;
    int n_threads = pool_n_threads(e->pool);
    *out =
        (struct engine_peaks){.bandwidth = cpu_read_bandwidth(
                                  e->pool, e->kernels, gguf_file_map(g, 0), gguf_file_bytes(g, 0))};
    snprintf(out->bandwidth_how, sizeof out->bandwidth_how,
             "reading the mapped file with %d thread%s", n_threads, n_threads == 1 ? "" : "s");
    return true;
}

static const struct engine_ops cpu_ops = {
    .eval = cpu_eval,
    .trim = cpu_trim,
    .logits = cpu_logits,
    .decode_start = cpu_decode_start,
    .decode_next = cpu_decode_next,
    .decode_stop = cpu_decode_stop,
    .kv_bytes = cpu_kv_bytes,
    .kv_export = cpu_kv_export,
    .kv_import = cpu_kv_import,
    .measure = cpu_measure,
    .profile = cpu_profile,
    .free = cpu_free,
};

// Asks the system to read the files ahead: the weights stay where they are mapped.
static bool read_ahead(const struct model *m, const struct engine_params *p, struct error *err)
{
    uint64_t total = 0, done = 0;
    for (size_t i = 0; i < gguf_n_files(m->gguf); i++)
        total += gguf_file_bytes(m->gguf, i);
    for (size_t i = 0; i < gguf_n_files(m->gguf); i++) {
        if (cancel_asked(p->cancel))
            return interrupted(err);
        const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        uintptr_t begin = (uintptr_t)gguf_file_map(m->gguf, i) / page * page;
        uintptr_t end = (uintptr_t)gguf_file_map(m->gguf, i) + gguf_file_bytes(m->gguf, i);
        (void)madvise((void *)begin, end - begin, MADV_WILLNEED); // advice only: may be refused
        done += gguf_file_bytes(m->gguf, i);
        if (p->progress)
            p->progress(p->progress_user, done, total);
    }
    return true;
}

struct engine *cpu_engine_open_isa(const struct model *m, const struct engine_params *p,
                                   enum cpu_isa isa, struct error *err)
{
    struct engine_plan plan;
    cpu_plan(m, p, memory_available(), &plan);
    if (!plan.fits) {
        cpu_plan_error(&plan, p, err);
        return NULL;
    }
    struct cpu_engine *e = calloc(1, sizeof *e);
    if (!e) {
        error_oom(err, "the engine", sizeof *e);
        return NULL;
    }
    const int n_threads = cpu_n_threads(p);
    e->base = (struct engine){.ops = &cpu_ops, .model = m, .n_ctx = plan.n_ctx};
    e->base.n_batch = cpu_n_batch(p);
    e->base.mem_used = plan.kv + plan.scratch + plan.other + plan.weights;
    e->base.mem_total = memory_total();
    e->cancel = p->cancel;
    e->kernels = cpu_kernels_get(isa);
    if (!e->kernels) {
        error_set(err, ERR_FAIL, "this machine or build lacks the instruction set asked for");
        goto fail;
    }
    snprintf(e->base.device, sizeof e->base.device, "CPU (%s, %d thread%s)", e->kernels->name,
             n_threads, n_threads == 1 ? "" : "s");
    static const char *const kv_names[] = {
        [CPU_KV_F32] = "f32", [CPU_KV_I16] = "i16", [CPU_KV_I8] = "i8"};
    snprintf(e->base.kv_format, sizeof e->base.kv_format, "cpu-1 k:%s v:%s",
             kv_names[cpu_kv_key_type(m, p->type_k)], kv_names[cpu_kv_value_type(p->type_v)]);
    if (!kv_cache_init(&e->kv, m, p->type_k, p->type_v, plan.n_ctx, err))
        goto fail;
    e->scratch_bytes = cpu_scratch_layout(m, plan.n_ctx, e->base.n_batch, n_threads, NULL, NULL);
    e->scratch = memory_map(e->scratch_bytes);
    if (!e->scratch) {
        error_oom(err, "scratch memory", e->scratch_bytes);
        goto fail;
    }
    cpu_scratch_layout(m, plan.n_ctx, e->base.n_batch, n_threads, e, e->scratch);
    for (uint32_t i = 0; i < m->n_rope; i++)
        model_rope_freqs(&m->ropes[i], plan.n_ctx, e->ropes[i].freq, &e->ropes[i].magnitude);
    if (!ids_reserve(&e->history, (size_t)plan.n_ctx + 1)) {
        error_oom(err, "the token history", ((size_t)plan.n_ctx + 1) * sizeof(int32_t));
        goto fail;
    }
    e->pool = pool_create(n_threads, err);
    if (!e->pool || !read_ahead(m, p, err))
        goto fail;
    return &e->base;
fail:
    cpu_free(&e->base);
    return NULL;
}

struct engine *cpu_engine_open(const struct model *m, const struct engine_params *p,
                               struct error *err)
{
    return cpu_engine_open_isa(m, p, CPU_ISA_AUTO, err);
}
