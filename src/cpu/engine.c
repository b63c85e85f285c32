// The CPU engine behind engine.h: opening, evaluating, logits, sampling.
#include "cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "cpu/bandwidth.h"
#include "cpu/plan.h"
#include "engine/states.h"
#include "engine/windows.h"

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
    memory_unmap(e->states.base, e->states.n_bytes);
    memory_unmap(e->scratch, e->scratch_bytes);
    sampler_release(&e->sampler);
    free(e->allow);
    engine_release(base);
    free(e);
}

static bool interrupted(struct error *err)
{
    return error_set(err, ERR_INTERRUPTED, "interrupted");
}

static bool cpu_eval(struct engine *base, const struct seq *s, const int32_t *ids, size_t n,
                     enum engine_logits want, const struct cancel *cancel, struct error *err)
{
    struct cpu_engine *e = self(base);
    cpu_work_on(e, s, s->n_past, ids, n, cancel);
    e->n_logits = 0;
    e->n_hidden = 0;
    if (!cpu_forward(e, want))
        return interrupted(err);
    // The head belongs to the token: cancelled here, the token counts as not evaluated.
    if (want == LOGITS_LAST && !cpu_head(e, 0, 1))
        return interrupted(err);
    return true;
}

// Row i of the last eval (n_vocab); NULL with err set.
static const float *logits_row(struct cpu_engine *e, size_t i, struct error *err)
{
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

// The part of hidden row i of a pass of several.
static const struct cpu_part *part_of_hidden(const struct cpu_engine *e, size_t i)
{
    const struct cpu_part *p = e->parts;
    while (i >= p->first_last + p->n_last)
        p++;
    return p;
}

// False, with the weights that it comes from in *err, when a logit of row i is not finite: the last
// token of its part of the chunk is evaluated once more, and every step looked at.
static bool check_finite(struct cpu_engine *e, size_t i, const float *logits, struct error *err)
{
    const size_t n_vocab = e->base.model->hp.n_vocab, at = finite_until(logits, n_vocab);
    if (at == n_vocab)
        return true;
    const float logit = logits[at];
    struct finite_search search = {.first_layer = model_first_layer(e->base.model)};
    const bool last = e->n_parts > 1 || i + 1 == e->n_hidden;
    const struct cpu_part p = e->n_parts > 1 ? *part_of_hidden(e, i) : e->parts[0];
    cpu_work_on(e, p.seq, p.pos + p.n - 1, p.ids + p.n - 1, 1, e->cancel);
    e->search = &search;
    const bool ok = cpu_forward(e, LOGITS_NONE);
    e->search = NULL;
    if (!ok)
        return interrupted(err);
    return finite_error(search.found || last ? &search : NULL, (uint32_t)at, logit, err);
}

static bool cpu_logits(struct engine *base, const struct seq *s, size_t i,
                       const struct cancel *cancel, float *out, struct error *err)
{
    struct cpu_engine *e = self(base);
    (void)s; // the last eval's
    e->cancel = cancel;
    const float *row = logits_row(e, i, err);
    if (!row || !check_finite(e, i, row, err))
        return false;
    memcpy(out, row, base->model->hp.n_vocab * sizeof *out);
    return true;
}

static bool cpu_pick_start(struct engine *base, const struct seq *s, struct error *err)
{
    (void)base, (void)s, (void)err;
    return true;
}

// What the logits of s's n-th token, the last n_drafts of which are drafts, have s say next.
static bool sample(struct cpu_engine *e, const struct seq *s, size_t n, size_t n_drafts,
                   const float *logits, struct decoded *out, struct error *err)
{
    const uint32_t n_vocab = e->base.model->hp.n_vocab;
    const size_t n_words = (n_vocab + 31) / 32;
    uint32_t n_allowed;
    if (s->mask && !e->allow && !(e->allow = malloc(n_words * sizeof *e->allow)))
        return error_oom(err, "a mask of tokens", n_words * sizeof *e->allow);
    if (s->mask && !engine_mask(s, s->ids.data + n - n_drafts, n_drafts, e->allow, &n_allowed, err))
        return false;
    e->sampler.set = s->sampler;
    e->sampler.allow = s->mask ? e->allow : NULL;
    if (!sampler_pick(&e->sampler, logits, s->ids.data, n, &out->id, err))
        return false;
    cpu_mark(e, "sampler", "logits");
    if (s->n_probs > 0) {
        out->n_top = s->n_probs < n_vocab ? s->n_probs : n_vocab;
        if (!sampler_top_logprobs(logits, n_vocab, out->top, out->n_top, err))
            return false;
        out->logprob = (float)sampler_logprob(logits, n_vocab, out->id);
    }
    return true;
}

// The same of hidden row i, the last token's of s.
static bool pick(struct cpu_engine *e, const struct seq *s, size_t i, struct decoded *out,
                 struct error *err)
{
    const float *logits = logits_row(e, i, err);
    return logits && (sample(e, s, s->ids.len, 0, logits, out, err) ||
                      (check_finite(e, i, logits, err) && false));
}

// After a row and its drafts, from hidden row `first` on. False only when interrupted.
static bool pick_drafts(struct cpu_engine *e, struct engine_part *p, size_t first,
                        struct error *err)
{
    struct error mine = {0};
    for (size_t i = 0; i < p->n; i++) {
        struct decoded *d = i == 0 ? &p->d : &p->more[i - 1];
        const float *logits = logits_row(e, first + i, err);
        *d = (struct decoded){0};
        if (!logits)
            return false;
        if (!sample(e, p->seq, p->seq->n_past + 1 + i, i, logits, d, i == 0 ? &p->error : &mine))
            break;
        p->n_more = i;
        if (!engine_accepts(p, i, d->id))
            break;
    }
    return true;
}

// The head is read for LOGIT_ROWS rows at a time.
bool cpu_eval_parts(struct engine *base, struct engine_part *parts, size_t n_parts,
                    const struct cancel *cancel, struct error *err)
{
    struct cpu_engine *e = self(base);
    cpu_work_on_parts(e, parts, n_parts, cancel);
    e->n_logits = 0;
    e->n_hidden = 0;
    if (!cpu_forward(e, LOGITS_LAST))
        return interrupted(err);
    for (size_t i = 0; i < n_parts; i++) {
        struct engine_part *p = &parts[i];
        const size_t first = e->parts[i].first_last;
        if (!p->pick)
            continue;
        if (p->n_drafts > 0) {
            if (!pick_drafts(e, p, first, err))
                return false;
        } else if (!pick(e, p->seq, first, &p->d, &p->error)) {
            if (p->error.code == ERR_INTERRUPTED) {
                if (err)
                    *err = p->error;
                return false;
            }
            // Its search for the cause has left another chunk here.
            cpu_work_on_parts(e, parts, n_parts, cancel);
        }
    }
    e->n_logits = 0;
    e->n_hidden = 0;
    return true;
}

// A token is evaluated when somebody waits for the next one: the first is shown sooner, and none
// is evaluated in vain.
static bool cpu_pick_next(struct engine *base, const struct seq *s, struct error *err)
{
    (void)base, (void)s, (void)err;
    return true;
}

static bool cpu_pick_take(struct engine *base, const struct seq *s, bool evaluate,
                          const struct cancel *cancel, struct decoded *out, struct error *err)
{
    struct cpu_engine *e = self(base);
    *out = (struct decoded){0};
    if (cancel_asked(cancel))
        return interrupted(err);
    if (evaluate && !cpu_eval(base, s, &s->ids.data[s->ids.len - 1], 1, LOGITS_LAST, cancel, err))
        return false;
    e->cancel = cancel;
    return pick(e, s, e->n_hidden - 1, out, err);
}

static void cpu_pick_stop(struct engine *base)
{
    (void)base;
}

static size_t cpu_kv_bytes(const struct engine *base, bool near, size_t begin, size_t end)
{
    return kv_cache_export_bytes(&((const struct cpu_engine *)base)->kv, near, begin, end);
}

static bool cpu_kv_export(struct engine *base, const struct seq *s, bool near, size_t begin,
                          size_t end, void *dst, struct error *err)
{
    (void)err;
    kv_cache_export(&self(base)->kv, near ? s->near : s->blocks, near, begin, end, dst);
    return true;
}

static bool cpu_kv_import(struct engine *base, const struct seq *s, bool near, size_t begin,
                          size_t end, const void *src, struct error *err)
{
    (void)err;
    kv_cache_import(&self(base)->kv, near ? s->near : s->blocks, near, begin, end, src);
    return true;
}

static size_t cpu_state_bytes(const struct engine *base)
{
    return ((const struct cpu_engine *)base)->states.stride * sizeof(float);
}

static bool cpu_state_export(struct engine *base, uint32_t slot, void *dst, struct error *err)
{
    (void)err;
    const struct cpu_states *s = &self(base)->states;
    memcpy(dst, s->base + slot * s->stride, s->stride * sizeof *s->base);
    return true;
}

static bool cpu_state_import(struct engine *base, uint32_t slot, const void *src, struct error *err)
{
    (void)err;
    const struct cpu_states *s = &self(base)->states;
    memcpy(s->base + slot * s->stride, src, s->stride * sizeof *s->base);
    return true;
}

static bool cpu_kv_copy(struct engine *base, bool near, uint32_t from, uint32_t to, size_t n,
                        struct error *err)
{
    (void)err;
    kv_cache_copy(&self(base)->kv, near, from, to, n);
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

static const struct backend cpu_backend = {
    .kv_block = CPU_ATTN_SPLIT,
    .eval = cpu_eval,
    .eval_parts = cpu_eval_parts,
    .logits = cpu_logits,
    .hidden = cpu_hidden,
    .pick_start = cpu_pick_start,
    .pick_next = cpu_pick_next,
    .pick_take = cpu_pick_take,
    .pick_stop = cpu_pick_stop,
    .kv_bytes = cpu_kv_bytes,
    .kv_export = cpu_kv_export,
    .kv_import = cpu_kv_import,
    .state_bytes = cpu_state_bytes,
    .state_export = cpu_state_export,
    .state_import = cpu_state_import,
    .kv_copy = cpu_kv_copy,
    .measure = cpu_measure,
    .profile = cpu_profile,
    .profile_parts = cpu_profile_parts,
    .free = cpu_free,
};

enum { READ_PIECE = 4 << 20, MIN_PAGE = 4096 };

// Waits for those of the pages that are not in memory yet.
static void read_piece(uintptr_t begin, size_t n, size_t page)
{
    unsigned char there[READ_PIECE / MIN_PAGE];
    if (mincore((void *)begin, n, there) != 0)
        return; // they are read when they are used, then
    for (size_t i = 0; i * page < n; i++)
        if (!(there[i] & 1))
            (void)*(const volatile char *)(begin + i * page);
}

// Has the weights read into memory, which stay mapped where the file is: the first token would have
// to wait for that, with nobody to say why it takes so long.
static bool read_ahead(const struct model *m, const struct engine_params *p, struct error *err)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uint64_t total = m->weight_bytes - m->shared_bytes;
    uint64_t done = 0;
    for (size_t i = 0; i < gguf_n_tensors(m->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->gguf, i);
        if (!model_has_tensor(m, t))
            continue;
        uintptr_t begin = (uintptr_t)t->data / page * page, end = (uintptr_t)t->data + t->n_bytes;
        (void)madvise((void *)begin, end - begin, MADV_WILLNEED); // advice only: may be refused
        for (size_t n; begin < end; begin += n) {
            if (cancel_asked(p->cancel))
                return interrupted(err);
            n = end - begin < READ_PIECE ? end - begin : READ_PIECE;
            read_piece(begin, n, page);
            done = done + n < total ? done + n : total;
            if (p->progress)
                p->progress(p->progress_user, done, total);
        }
    }
    return true;
}

static bool init_states(struct cpu_states *s, const struct model *m, struct error *err)
{
    *s = (struct cpu_states){.n = cpu_n_states(m), .n_bytes = cpu_states_bytes(m)};
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        s->stride += layer_state_size(&m->layers[i]);
    s->base = s->n > 0 ? memory_map(s->n_bytes) : NULL;
    return s->n == 0 || s->base || error_oom(err, "recurrent states", s->n_bytes);
}

struct engine *cpu_engine_open_isa(const struct model *m, const struct engine_params *p,
                                   enum cpu_isa isa, struct error *err)
{
    struct engine_plan plan;
    if (!cpu_plan(m, p, cpu_available(p), &plan, err) || !engine_has_positions(m, plan.n_ctx, err))
        return NULL;
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
    e->base = (struct engine){.model = m, .n_ctx = plan.n_ctx, .n_batch = cpu_n_batch(p)};
    e->base.n_states = cpu_n_states(m);
    e->base.mem_used = plan.kv + plan.scratch + plan.other + plan.weights;
    e->base.mem_total = memory_total();
    if (!engine_init(&e->base, &e->core, &cpu_backend, ENGINE_MAX_PARTS, p->n_seqs, err))
        goto fail;
    e->kernels = cpu_kernels_get(isa);
    if (!e->kernels) {
        error_set(err, ERR_FAIL, "this machine or build lacks the instruction set asked for");
        goto fail;
    }
    // (A row of a prediction layer needs more than its guess.)
    e->core.max_drafts = m->predicts_for ? 0 : ENGINE_MAX_DRAFTS;
    e->core.gives_hidden = true;
    snprintf(e->base.device, sizeof e->base.device, "CPU (%s, %d thread%s)", e->kernels->name,
             n_threads, n_threads == 1 ? "" : "s");
    static const char *const kv_names[] = {
        [CPU_KV_F32] = "f32", [CPU_KV_I16] = "i16", [CPU_KV_I8] = "i8"};
    e->base.type_k = p->type_k;
    e->base.exact = p->exact;
    e->base.any_pieces = true;
    e->base.type_v = p->type_v;
    snprintf(e->base.kv_format, sizeof e->base.kv_format, "cpu-1 k:%s v:%s%s%s",
             kv_names[cpu_kv_key_type(m, p->type_k)], kv_names[cpu_kv_value_type(p->type_v)],
             e->base.n_states > 0 ? " states:1" : "", windows_reach(m) > 0 ? " windows:1" : "");
    if (!kv_cache_init(&e->kv, m, p->type_k, p->type_v, cpu_n_blocks(plan.n_ctx),
                       cpu_n_near(m, p, plan.n_ctx), err) ||
        !init_states(&e->states, m, err))
        goto fail;
    states_may_take(&e->base, plan.host_states);
    e->scratch_bytes = cpu_scratch_layout(m, plan.n_ctx, e->base.n_batch, n_threads, e, NULL);
    e->scratch = memory_map(e->scratch_bytes);
    if (!e->scratch) {
        error_oom(err, "scratch memory", e->scratch_bytes);
        goto fail;
    }
    cpu_scratch_layout(m, plan.n_ctx, e->base.n_batch, n_threads, e, e->scratch);
    for (uint32_t i = 0; i < m->n_rope; i++)
        model_rope_freqs(&m->ropes[i], plan.n_ctx, e->ropes[i].freq, &e->ropes[i].magnitude);
    e->pool = pool_create(n_threads, err);
    if (!e->pool || !sampler_init(&e->sampler, &sampler_defaults, m->hp.n_vocab, err) ||
        !read_ahead(m, p, err))
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
