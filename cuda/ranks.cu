// The engine of a model on several devices: every call is made on all ranks at once, each in a
// thread of its own, rank 0's in the caller's. What one rank has of the answer all have, so rank
// 0's is the answer.
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
};

static struct ranks *self(struct engine *e)
{
    return (struct ranks *)e;
}

// ---- calls on all ranks

static void run(struct rank *r, const struct call *c)
{
    r->err = {};
    r->ok = c->run(r, c, &r->err);
    // An interrupt all ranks have, but while they are opened.
    if (!r->ok && (r->err.code != ERR_INTERRUPTED || r->all->opening))
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

static bool refuse_mask(const struct seq *s, struct error *err)
{
    return s->mask && !error_set(err, ERR_USAGE,
                                 "a grammar on more than one GPU is not computed yet: expected "
                                 "one device");
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
    for (size_t i = 0; i < n; i++)
        if (refuse_mask(parts[i].seq, err))
            return false;
    for (uint32_t i = 1; i < a->n; i++)
        memcpy(a->rank[i].parts, parts, n * sizeof *parts);
    return on_all(a, &c, err);
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
    return !refuse_mask(s, err) && on_all(self(e), &c, err);
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

// After a logit that is not finite: all look together for the weights that it comes from.
static bool run_pick_take(struct rank *r, const struct call *c, struct error *err)
{
    struct decoded d;
    return cuda_backend.pick_take(engine_of(r), c->seq, false, NULL, &d, err);
}

static bool ranks_pick_take(struct engine *e, const struct seq *s, bool evaluate,
                            const struct cancel *cancel, struct decoded *out, struct error *err)
{
    struct ranks *a = self(e);
    const struct call c = {run_pick_take, s};
    bool finite = true;
    if (a->failed || !cuda_pick_wait(a->rank[0].engine, s, cancel, &finite, err)) {
        if (a->failed)
            *err = a->failure;
        return false;
    }
    if (!finite)
        return on_all(a, &c, err);
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

void ranks_free(struct engine *base)
{
    struct ranks *a = self(base);
    if (!a)
        return;
    if (a->stop)
        host_store_release(a->stop, 1); // what is under way nobody wants
    pthread_mutex_lock(&a->lock);
    a->end = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    for (uint32_t i = 1; i < a->n; i++)
        if (a->rank[i].has_thread)
            pthread_join(a->rank[i].thread, NULL);
    for (uint32_t i = 0; i < a->n; i++) // before any memory goes that others store to
        if (a->rank[i].engine && cudaSetDevice(a->rank[i].device_index) == cudaSuccess)
            cudaStreamSynchronize(a->rank[i].engine->q.stream);
    for (uint32_t i = 0; i < a->n; i++) {
        struct rank *r = &a->rank[i];
        if (r->engine)
            cuda_backend.free(&r->engine->base);
        model_slice_free(r->slice);
        free(r->parts);
        free(r->logits);
    }
    cudaFreeHost(a->stop);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    engine_release(base);
    free(a);
}

const struct backend ranks_backend = {
    KV_BLOCK,
    ranks_eval,
    ranks_eval_parts,
    ranks_logits,
    ranks_hidden,
    ranks_pick_start,
    ranks_pick_next,
    ranks_pick_take,
    ranks_pick_stop,
    ranks_kv_bytes,
    ranks_kv_export,
    ranks_kv_import,
    NULL,
    NULL,
    NULL,
    NULL,
    ranks_kv_copy,
    NULL,
    NULL,
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
