// The engine of a model on several devices: every call is made on all ranks at once, each in a
// thread of its own, rank 0's in the caller's. What one rank has of the answer all have, so rank
// 0's is the answer.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks_impl.h"

// What the calls under way are given, each what it has a use for.
struct call {
    bool (*run)(struct rank *r, const struct call *c, struct error *err);
    const struct seq *seq;
    const int32_t *ids;
    size_t n, begin, end;
    enum engine_logits want;
    const struct cancel *cancel;
    float *logits;
    struct engine_part *parts;
    struct decoded *pick;
    bool near, out;
    uint8_t *host;
    uint32_t from, to;
    uint32_t n_run;
    struct engine_profile *profile;
};

static struct ranks *self(struct engine *e)
{
    return (struct ranks *)e;
}

// ---- calls on all ranks

static void run(struct rank *r, const struct call *c)
{
    r->err = {};
    if (r->engine)
        r->engine->pick_failed = false;
    r->ok = c->run(r, c, &r->err);
    // What all have: an interrupt, but while they are opened; numbers that cannot be picked from.
    const bool alike = r->engine && (r->engine->pick_failed || r->err.code == ERR_INTERRUPTED);
    if (!r->ok && (!alike || r->all->opening))
        rank_give_up(r);
}

void *rank_work(void *user)
{
    struct rank *r = (struct rank *)user;
    struct ranks *a = r->all;
    pthread_mutex_lock(&a->lock);
    for (uint64_t n = 0; !a->end;) {
        if (a->n_calls == n) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        n = a->n_calls;
        const struct call *c = a->call;
        pthread_mutex_unlock(&a->lock);
        run(r, c);
        pthread_mutex_lock(&a->lock);
        a->n_busy--;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

static bool on_all(struct ranks *a, const struct call *c, struct error *err)
{
    if (a->failed) {
        *err = a->failure;
        return false;
    }
    pthread_mutex_lock(&a->lock);
    a->call = c;
    a->n_calls++;
    a->n_busy = a->n - 1;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    run(&a->rank[0], c);
    pthread_mutex_lock(&a->lock);
    while (a->n_busy > 0)
        pthread_cond_wait(&a->changed, &a->lock);
    pthread_mutex_unlock(&a->lock);
    if (a->failed)
        *err = a->failure;
    else if (!a->rank[0].ok)
        *err = a->rank[0].err; // the others have the same
    return !a->failed && a->rank[0].ok;
}

static struct engine *engine_of(const struct rank *r)
{
    return &r->engine->base;
}

// ---- the backend

static bool run_eval(struct rank *r, const struct call *c, struct error *err)
{
    return cuda_backend.eval(engine_of(r), c->seq, c->ids, c->n, c->want, c->cancel, err);
}

static bool ranks_eval(struct engine *e, const struct seq *s, const int32_t *ids, size_t n,
                       enum engine_logits want, const struct cancel *cancel, struct error *err)
{
    struct call c = {run_eval, s, ids, n};
    c.want = want;
    c.cancel = cancel;
    return on_all(self(e), &c, err);
}

// ---- masks

struct masked_pick {
    uint32_t *allow;
    bool ok; // else
    struct error err;
};

// A part whose picks have masks, which its caller is asked for once, for all ranks: behind the last
// row that is none of its drafts, then behind each of these.
struct masked {
    struct seq seq;  // as it was, but for who is asked
    size_t n_before; // ids that are drafts to the first, see engine_mask
    struct masked_pick picks[1 + ENGINE_MAX_DRAFTS];
    size_t n_words;
};

static bool mask_again(void *user, const int32_t *drafts, size_t n, uint32_t *allow,
                       struct error *err)
{
    const struct masked *m = (const struct masked *)user;
    const struct masked_pick *p = &m->picks[n - m->n_before];
    (void)drafts; // those that it was asked for
    if (p->ok)
        memcpy(allow, p->allow, m->n_words * sizeof *allow);
    else
        *err = p->err;
    return p->ok;
}

// The i-th of a call: n_drafts behind n_before ids of them.
static const struct seq *ask_for_masks(struct ranks *a, size_t i, const struct seq *s,
                                       const int32_t *ids, size_t n_before, size_t n_drafts)
{
    struct masked *m = &a->masked[i];
    uint32_t n_allowed;
    m->seq = *s;
    m->seq.mask = mask_again;
    m->seq.mask_user = m;
    m->n_before = n_before;
    for (size_t k = 0; k <= n_drafts; k++) {
        struct masked_pick *p = &m->picks[k];
        p->err = {};
        p->ok = engine_mask(s, ids, n_before + k, p->allow, &n_allowed, &p->err);
    }
    return &m->seq;
}

static bool open_masks(struct ranks *a, struct error *err)
{
    const size_t n_words = (a->base.model->hp.n_vocab + 31) / 32;
    const size_t n_picks = a->params.exact ? 1 + ENGINE_MAX_DRAFTS : 1;
    const size_t each = sizeof *a->masked + n_picks * n_words * sizeof(uint32_t);
    if (a->masked)
        return true;
    a->masked = (struct masked *)calloc(ENGINE_MAX_PARTS, each);
    if (!a->masked)
        return error_oom(err, "the masks of ranks", ENGINE_MAX_PARTS * each);
    uint32_t *words = (uint32_t *)(a->masked + ENGINE_MAX_PARTS);
    for (size_t i = 0; i < ENGINE_MAX_PARTS; i++) {
        a->masked[i].n_words = n_words;
        for (size_t k = 0; k < n_picks; k++, words += n_words)
            a->masked[i].picks[k].allow = words;
    }
    return true;
}

// ---- the backend, further

// For a rank that is not the first, with a place of its own for what follows drafts.
static void copy_parts(struct rank *r, const struct engine_part *parts, size_t n)
{
    struct decoded *more = r->more;
    memcpy(r->parts, parts, n * sizeof *parts);
    for (size_t i = 0; i < n; i++) {
        r->parts[i].more = more;
        more += parts[i].n_drafts;
    }
}

static bool run_parts(struct rank *r, const struct call *c, struct error *err)
{
    return cuda_backend.eval_parts(engine_of(r), r->index > 0 ? r->parts : c->parts, c->n,
                                   c->cancel, err);
}

static bool ranks_eval_parts(struct engine *e, struct engine_part *parts, size_t n,
                             const struct cancel *cancel, struct error *err)
{
    struct ranks *a = self(e);
    struct call c = {run_parts, NULL, NULL, n};
    c.parts = parts;
    c.cancel = cancel;
    const struct seq *seqs[ENGINE_MAX_PARTS];
    for (size_t i = 0; i < n; i++) {
        seqs[i] = parts[i].seq;
        if (!seqs[i]->mask || !parts[i].pick)
            continue;
        if (!open_masks(a, err))
            return false;
        const size_t n_drafts = parts[i].n_drafts; // see mask_of in parts.cu
        parts[i].seq = ask_for_masks(a, i, seqs[i], n_drafts > 0 ? parts[i].ids + 1 : NULL,
                                     n_drafts > 0 ? parts[i].n - 1 - n_drafts : 0, n_drafts);
    }
    for (uint32_t i = 1; i < a->n; i++)
        copy_parts(&a->rank[i], parts, n);
    const bool ok = on_all(a, &c, err);
    for (size_t i = 0; i < n; i++)
        parts[i].seq = seqs[i];
    return ok;
}

static bool run_logits(struct rank *r, const struct call *c, struct error *err)
{
    return cuda_backend.logits(engine_of(r), c->seq, c->n, c->cancel,
                               r->index > 0 ? r->logits : c->logits, err);
}

static bool ranks_logits(struct engine *e, const struct seq *s, size_t i,
                         const struct cancel *cancel, float *out, struct error *err)
{
    struct call c = {run_logits, s, NULL, i};
    c.cancel = cancel;
    c.logits = out;
    return on_all(self(e), &c, err);
}

static bool ranks_hidden(struct engine *e, size_t row, size_t n, float *out, struct error *err)
{
    return cuda_backend.hidden(engine_of(&self(e)->rank[0]), row, n, out, err);
}

static bool run_pick_start(struct rank *r, const struct call *c, struct error *err)
{
    return cuda_backend.pick_start(engine_of(r), c->seq, err);
}

static bool ranks_pick_start(struct engine *e, const struct seq *s, struct error *err)
{
    const struct call c = {run_pick_start, s};
    return (!s->mask || open_masks(self(e), err)) && on_all(self(e), &c, err);
}

static bool run_pick_next(struct rank *r, const struct call *c, struct error *err)
{
    return cuda_backend.pick_next(engine_of(r), c->seq, err);
}

static bool ranks_pick_next(struct engine *e, const struct seq *s, struct error *err)
{
    const struct call c = {run_pick_next, s};
    return on_all(self(e), &c, err);
}

static bool run_pick_take(struct rank *r, const struct call *c, struct error *err)
{
    struct decoded of_other;
    return cuda_backend.pick_take(engine_of(r), c->seq, false, NULL,
                                  r->index > 0 ? &of_other : c->pick, err);
}

// All do it, since what follows is enqueued then.
static bool take_masked(struct ranks *a, const struct seq *s, const struct cancel *cancel,
                        struct decoded *out, struct error *err)
{
    struct call c = {run_pick_take};
    if (cancel_asked(cancel))
        return error_set(err, ERR_INTERRUPTED, "interrupted");
    c.pick = out;
    c.seq = ask_for_masks(a, 0, s, NULL, 0, 0);
    if (!a->masked[0].picks[0].ok) {
        *err = a->masked[0].picks[0].err;
        return false;
    }
    return on_all(a, &c, err);
}

// Else rank 0 waits alone, but after a logit that is not finite: all look together for the weights
// that it comes from.
static bool ranks_pick_take(struct engine *e, const struct seq *s, bool evaluate,
                            const struct cancel *cancel, struct decoded *out, struct error *err)
{
    struct ranks *a = self(e);
    bool finite = true;
    if (s->mask && !a->failed)
        return take_masked(a, s, cancel, out, err);
    if (a->failed || !cuda_pick_wait(a->rank[0].engine, s, cancel, &finite, err)) {
        if (a->failed)
            *err = a->failure;
        return false;
    }
    if (!finite) {
        struct call c = {run_pick_take, s};
        c.pick = out;
        return on_all(a, &c, err);
    }
    if (!cuda_backend.pick_take(engine_of(&a->rank[0]), s, evaluate, cancel, out, err))
        return false;
    for (uint32_t i = 1; i < a->n; i++)
        cuda_pick_taken(a->rank[i].engine, s);
    return true;
}

static bool run_pick_stop(struct rank *r, const struct call *c, struct error *err)
{
    (void)c;
    cuda_backend.pick_stop(engine_of(r));
    if (r->engine->failure.code == ERR_NONE)
        return true;
    *err = r->engine->failure;
    return false;
}

static void ranks_pick_stop(struct engine *e)
{
    const struct call c = {run_pick_stop};
    struct error told_by_the_next_call = {};
    on_all(self(e), &c, &told_by_the_next_call);
}

// Rank after rank.
static size_t ranks_kv_bytes(const struct engine *e, bool near, size_t begin, size_t end)
{
    const struct ranks *a = (const struct ranks *)e;
    size_t n = 0;
    for (uint32_t i = 0; i < a->n; i++)
        n += cuda_kv_bytes(a->rank[i].engine, near, begin, end);
    return n;
}

static bool run_kv(struct rank *r, const struct call *c, struct error *err)
{
    uint8_t *host = c->host;
    for (uint32_t i = 0; i < r->index; i++)
        host += cuda_kv_bytes(r->all->rank[i].engine, c->near, c->begin, c->end);
    return c->out
               ? cuda_backend.kv_export(engine_of(r), c->seq, c->near, c->begin, c->end, host, err)
               : cuda_backend.kv_import(engine_of(r), c->seq, c->near, c->begin, c->end, host, err);
}

static struct call kv_call(const struct seq *s, bool near, size_t begin, size_t end, bool out,
                           const void *host)
{
    struct call c = {run_kv, s};
    c.begin = begin;
    c.end = end;
    c.near = near;
    c.out = out;
    c.host = (uint8_t *)host; // only read where it is imported
    return c;
}

static bool ranks_kv_export(struct engine *e, const struct seq *s, bool near, size_t begin,
                            size_t end, void *dst, struct error *err)
{
    const struct call c = kv_call(s, near, begin, end, true, dst);
    return on_all(self(e), &c, err);
}

static bool ranks_kv_import(struct engine *e, const struct seq *s, bool near, size_t begin,
                            size_t end, const void *src, struct error *err)
{
    const struct call c = kv_call(s, near, begin, end, false, src);
    return on_all(self(e), &c, err);
}

static bool run_kv_copy(struct rank *r, const struct call *c, struct error *err)
{
    return cuda_backend.kv_copy(engine_of(r), c->near, c->from, c->to, c->n, err);
}

static bool ranks_kv_copy(struct engine *e, bool near, uint32_t from, uint32_t to, size_t n,
                          struct error *err)
{
    struct call c = {run_kv_copy, NULL, NULL, n};
    c.near = near;
    c.from = from;
    c.to = to;
    return on_all(self(e), &c, err);
}

// Rank after rank, as keys and values are.
static size_t ranks_state_bytes(const struct engine *e)
{
    const struct ranks *a = (const struct ranks *)e;
    size_t n = 0;
    for (uint32_t i = 0; i < a->n; i++)
        n += cuda_backend.state_bytes(engine_of(&a->rank[i]));
    return n;
}

static bool run_state(struct rank *r, const struct call *c, struct error *err)
{
    uint8_t *host = c->host;
    for (uint32_t i = 0; i < r->index; i++)
        host += cuda_backend.state_bytes(engine_of(&r->all->rank[i]));
    return c->out ? cuda_backend.state_export(engine_of(r), c->from, host, err)
                  : cuda_backend.state_import(engine_of(r), c->from, host, err);
}

static bool ranks_state_export(struct engine *e, uint32_t slot, void *dst, struct error *err)
{
    struct call c = {run_state};
    c.from = slot;
    c.out = true;
    c.host = (uint8_t *)dst;
    return on_all(self(e), &c, err);
}

static bool ranks_state_import(struct engine *e, uint32_t slot, const void *src, struct error *err)
{
    struct call c = {run_state};
    c.from = slot;
    c.host = (uint8_t *)src; // only read
    return on_all(self(e), &c, err);
}

static bool run_state_advance(struct rank *r, const struct call *c, struct error *err)
{
    return cuda_backend.state_advance(engine_of(r), c->seq, c->begin, c->n, err);
}

static bool ranks_state_advance(struct engine *e, const struct seq *s, size_t i, size_t n,
                                struct error *err)
{
    struct call c = {run_state_advance, s, NULL, n};
    c.begin = i;
    return on_all(self(e), &c, err);
}

// One device after the other: the peaks of all together.
static bool ranks_measure(struct engine *e, struct engine_peaks *out, struct error *err)
{
    struct ranks *a = self(e);
    if (a->failed) {
        *err = a->failure;
        return false;
    }
    for (uint32_t i = 0; i < a->n; i++) {
        struct engine_peaks one = {};
        if (!cuda_backend.measure(engine_of(&a->rank[i]), &one, err))
            return error_prefix(err, "device %d", a->rank[i].device_index);
        if (i == 0) {
            *out = one;
            snprintf(out->bandwidth_how, sizeof out->bandwidth_how, "%.50s, %u devices",
                     one.bandwidth_how, a->n);
            if (one.matrix_flops > 0)
                snprintf(out->matrix_how, sizeof out->matrix_how, "%.100s, %u devices",
                         one.matrix_how, a->n);
            continue;
        }
        out->bandwidth += one.bandwidth;
        out->matrix_flops += one.matrix_flops;
    }
    return true;
}

static bool run_profile(struct rank *r, const struct call *c, struct error *err)
{
    struct engine_profile of_other, *out = r->index > 0 ? &of_other : c->profile;
    if (c->parts)
        return cuda_backend.profile_parts(engine_of(r), r->index > 0 ? r->parts : c->parts, c->n,
                                          c->n_run, c->cancel, out, err);
    return cuda_backend.profile(engine_of(r), c->seq, c->ids, c->n, c->n_run, c->cancel, out, err);
}

// Launches of rank 0, while all make them.
static bool profile(struct ranks *a, struct call *c, uint32_t n_run, const struct cancel *cancel,
                    struct engine_profile *out, struct error *err)
{
    c->n_run = n_run;
    c->cancel = cancel;
    c->profile = out;
    if (!on_all(a, c, err))
        return false;
    const size_t used = strlen(out->how);
    snprintf(out->how + used, sizeof out->how - used, "; device %d of %u", a->rank[0].device_index,
             a->n);
    return true;
}

static bool ranks_profile(struct engine *e, const struct seq *s, const int32_t *tokens, size_t n,
                          uint32_t n_run, const struct cancel *cancel, struct engine_profile *out,
                          struct error *err)
{
    struct call c = {run_profile, s, tokens, n};
    return profile(self(e), &c, n_run, cancel, out, err);
}

static bool ranks_profile_parts(struct engine *e, struct engine_part *parts, size_t n_parts,
                                uint32_t n_run, const struct cancel *cancel,
                                struct engine_profile *out, struct error *err)
{
    struct ranks *a = self(e);
    struct call c = {run_profile, NULL, NULL, n_parts};
    c.parts = parts;
    for (uint32_t i = 1; i < a->n; i++)
        copy_parts(&a->rank[i], parts, n_parts);
    return profile(a, &c, n_run, cancel, out, err);
}

void ranks_free(struct engine *base)
{
    struct ranks *a = self(base);
    if (!a)
        return;
    if (a->words)
        host_store_release(&a->words->stop, 1); // what is under way nobody wants
    pthread_mutex_lock(&a->lock);
    a->end = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    for (uint32_t i = 1; i < a->n; i++)
        if (a->rank[i].has_thread)
            pthread_join(a->rank[i].thread, NULL);
    bool ended = true; // all, before any memory goes that others store to
    for (uint32_t i = 0; i < a->n; i++)
        if (a->rank[i].engine && cudaSetDevice(a->rank[i].device_index) == cudaSuccess)
            ended &= rank_ends(&a->rank[i]);
    for (uint32_t i = 0; i < a->n; i++) {
        struct rank *r = &a->rank[i];
        if (r->engine && ended) // else it stays, until the process ends
            cuda_backend.free(&r->engine->base);
        model_slice_free(r->slice);
        model_slice_free(r->predicts_for);
        free(r->parts);
        free(r->more);
        free(r->logits);
    }
    if (ended) {
        cudaFreeHost(a->words);
        cudaFreeHost(a->inboxes);
    }
    free(a->masked);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    engine_release(base);
    free(a);
}

const struct backend ranks_backend = {
    KV_BLOCK,          ranks_eval,         ranks_eval_parts,   ranks_logits,
    ranks_hidden,      ranks_pick_start,   ranks_pick_next,    ranks_pick_take,
    ranks_pick_stop,   ranks_kv_bytes,     ranks_kv_export,    ranks_kv_import,
    ranks_state_bytes, ranks_state_export, ranks_state_import, ranks_state_advance,
    ranks_kv_copy,     ranks_measure,      ranks_profile,      ranks_profile_parts,
    ranks_free,
};

static bool run_open(struct rank *r, const struct call *c, struct error *err)
{
    (void)c;
    r->engine = CHECK_CUDA(cudaSetDevice(r->device_index), err)
                    ? cuda_slice_open(r->slice, &r->params, &r->device, r->params.n_ctx, r, err)
                    : NULL;
    return r->engine;
}

bool ranks_open_all(struct ranks *a, struct error *err)
{
    const struct call c = {run_open};
    a->opening = true;
    const bool ok = on_all(a, &c, err);
    a->opening = false;
    return ok;
}
