// What the engine of a rank has from the others: each other's memory, what they add up, and on the
// host that a call is interrupted or that a device has failed.
#include <time.h>

#include "base/clock.h"
#include "ranks_impl.h"

// What a rank waits for at a time, a share of a chunk or a token, takes milliseconds, of the
// largest models and contexts seconds. A device that has ended nothing for so long hangs.
static const double PATIENCE_S = 120;
// And once a device has failed, what the others still do ends by itself: packets are waited for no
// more.
static const double GRACE_S = 10;

static void accuse(struct rank *r, const struct error *err)
{
    struct ranks *a = r->all;
    pthread_mutex_lock(&a->lock);
    if (!a->failed) {
        a->failed = r;
        a->failure = *err;
        if (err->code != ERR_INTERRUPTED)
            error_prefix(&a->failure, "device %d (%s)", r->device_index, r->device.name);
    }
    host_store_release(&a->words->stop, 1);
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

void rank_give_up(struct rank *r)
{
    accuse(r, &r->err);
}

bool ranks_have_failed(struct ranks *a)
{
    pthread_mutex_lock(&a->lock);
    const bool failed = a->failed;
    pthread_mutex_unlock(&a->lock);
    return failed;
}

static bool others_failed(struct error *err)
{
    return error_set(err, ERR_FAIL, "another device has failed");
}

static bool enable_peers(const struct ranks *a, const struct rank *r, struct error *err)
{
    for (uint32_t i = 0; i < a->n; i++) {
        if (i == r->index)
            continue;
        const cudaError_t e = cudaDeviceEnablePeerAccess(a->rank[i].device_index, 0);
        if (e != cudaErrorPeerAccessAlreadyEnabled && !cuda_check(e, "peer access", err))
            return false;
        (void)cudaGetLastError();
    }
    return true;
}

bool cuda_rank_join(struct cuda_engine *e, struct error *err)
{
    struct rank *r = e->rank;
    struct ranks *a = r->all;
    const struct exchange_state first = {1, 0};
    struct exchange x = exchange_between(a->n, a->through_host);
    const size_t n_eight = exchange_inbox(x);
    uint64_t *inbox = a->through_host ? a->inboxes + r->index * n_eight : e->s.inbox;
    if ((!a->through_host && !enable_peers(a, r, err)) ||
        (!a->through_host &&
         !CHECK_CUDA(cudaMemsetAsync(inbox, 0, n_eight * sizeof *inbox, e->q.stream), err)) ||
        !CHECK_CUDA(cudaMemcpyAsync(e->s.exchange, &first, sizeof first, cudaMemcpyHostToDevice,
                                    e->q.stream),
                    err) ||
        !cuda_wait(e, err))
        return false;
    pthread_mutex_lock(&a->lock);
    r->inbox = inbox;
    if (++a->n_met == a->n)
        pthread_cond_broadcast(&a->changed);
    while (a->n_met < a->n && !a->failed)
        pthread_cond_wait(&a->changed, &a->lock);
    const bool ok = a->n_met == a->n;
    x.rank = r->index;
    for (uint32_t i = 0; ok && i < a->n; i++)
        x.inbox[i] = a->rank[i].inbox;
    x.state = e->s.exchange;
    x.words = a->words;
    split_head(a->base.model, &a->split, x.head);
    e->exchange = x;
    pthread_mutex_unlock(&a->lock);
    return ok || others_failed(err);
}

bool cuda_rank_interrupted(struct cuda_engine *e)
{
    struct rank *r = e->rank;
    struct ranks *a = r->all;
    if (a->opening) // nobody waits for anybody
        return cancel_asked(e->cancel);
    const uint64_t look = ++r->n_looks;
    if (r->index == 0) {
        if (cancel_asked(e->cancel))
            __atomic_store_n(&a->interrupted_at, look, __ATOMIC_RELAXED);
        __atomic_store_n(&a->n_looks, look, __ATOMIC_RELEASE);
    }
    for (unsigned n = 0; __atomic_load_n(&a->n_looks, __ATOMIC_ACQUIRE) < look; n++) {
        const struct timespec t = {0, 20000}; // rank 0 is behind
        if (n >= 64)
            nanosleep(&t, NULL);
        if (n % 64 == 63 && ranks_have_failed(a))
            return true; // what this call says nobody hears
    }
    return __atomic_load_n(&a->interrupted_at, __ATOMIC_RELAXED) == look;
}

// Whom all wait for in the end: from one that waits to the one that it waits for.
static struct rank *who_hangs(struct ranks *a, struct rank *r)
{
    for (uint32_t i = 0; i < a->n; i++) {
        const uint32_t next = host_load_acquire(&a->words->waits_for[r->index]);
        if (next == 0)
            break;
        r = &a->rank[next - 1];
    }
    return r;
}

// False: it is time to leave whatever is still under way.
static bool is_patient(struct cuda_engine *e, struct rank_watch *w)
{
    struct ranks *a = e->rank->all;
    const double now = clock_now();
    if (w->last > 0)
        w->used += lesser(now - w->last, 0.1);
    w->last = now;
    if (!w->failed && w->used >= PATIENCE_S) {
        struct error err = {};
        error_set(&err, ERR_FAIL,
                  "does not answer: for %.0f seconds it has ended nothing of what it was given",
                  PATIENCE_S);
        accuse(who_hangs(a, e->rank), &err);
    }
    if (!w->failed && ranks_have_failed(a)) {
        w->failed = true;
        w->used = 0;
    }
    return !w->failed || w->used < GRACE_S;
}

bool cuda_rank_wait(struct cuda_engine *e, cudaEvent_t event, struct error *err)
{
    struct rank_watch w = {};
    cudaError_t s;
    while ((s = event ? cudaEventQuery(event) : cudaStreamQuery(e->q.stream)) ==
           cudaErrorNotReady) {
        if (!is_patient(e, &w))
            return others_failed(err);
        host_pause();
    }
    return event ? cuda_check(s, "waiting for the device", err)
                 : CHECK_CUDA(cudaStreamSynchronize(e->q.stream), err);
}

bool rank_ends(struct rank *r)
{
    struct rank_watch w = {};
    w.failed = true;
    while (cudaStreamQuery(r->engine->q.stream) == cudaErrorNotReady) {
        if (!is_patient(r->engine, &w))
            return false;
        host_pause();
    }
    return true;
}

bool cuda_ranks_alive(struct cuda_engine *e, struct rank_watch *w, struct error *err)
{
    struct ranks *a = e->rank->all;
    for (uint32_t i = 0; i < a->n; i++) {
        struct rank *r = &a->rank[i];
        if (r->engine == e)
            continue;
        const cudaError_t s = cudaStreamQuery(r->engine->q.stream);
        if (s != cudaSuccess && s != cudaErrorNotReady) {
            r->err = {};
            cuda_check(s, "decoding", &r->err);
            rank_give_up(r);
        }
    }
    is_patient(e, w);
    return !w->failed || others_failed(err);
}

// ---- in the forward pass

const struct layer *cuda_whole_layer(const struct cuda_engine *e, const struct layer *slice)
{
    return e->rank ? &e->rank->all->base.model->layers[slice - e->base.model->layers] : slice;
}

bool cuda_is_part(const struct cuda_engine *e, const struct gpu_layer *l, enum layer_weight w)
{
    return e->rank && w != TOKEN_PROJ && !(w == ATTN_OUTPUT && l->facts->mixer == MIXER_LINEAR);
}

bool cuda_sum_apart(const struct cuda_engine *e, float *y, const float *bias, uint32_t n,
                    const uint32_t *skip, struct error *err)
{
    struct rank_sum sum = {};
    sum.part = sum.y = y;
    sum.bias = bias;
    sum.n_cols = e->hp.n_embd;
    sum.skip = skip;
    return !e->rank || sum_ranks_launch(&e->q, &e->exchange, &sum, n, err);
}

bool cuda_sum_parts(const struct cuda_engine *e, uint32_t row0, const float *bias, bool normed,
                    uint32_t n, const uint32_t *skip, struct error *err)
{
    const size_t at = (size_t)row0 * e->hp.n_embd;
    struct rank_sum sum = {};
    if (normed)
        return cuda_sum_apart(e, e->s.up + at, bias, n, skip, err);
    sum.part = e->s.up + at;
    sum.bias = bias;
    sum.scale = e->hp.residual_scale;
    sum.add = true;
    sum.y = e->s.x + at;
    sum.n_cols = e->hp.n_embd;
    sum.skip = skip;
    return !e->rank || sum_ranks_launch(&e->q, &e->exchange, &sum, n, err);
}

bool cuda_enqueue_sum(const struct cuda_engine *e, struct error *err)
{
    return cuda_sum_apart(e, e->s.up, NULL, div_up((uint32_t)EXCHANGE_LINK, e->hp.n_embd), NULL,
                          err);
}

bool cuda_norms_across(const struct cuda_engine *e, const struct layer *slice)
{
    return e->rank && slice->qk_norm == QK_NORM_WHOLE;
}

// Rows without gaps: x (n, n_cols) of rows n_whole long, times w (n_cols).
static struct rank_norm rows_of_ranks(const struct cuda_engine *e, float *x, const float *w,
                                      uint32_t n_cols, uint32_t n_whole, const uint32_t *skip)
{
    struct rank_norm norm = {};
    norm.part[0] = {x, w, n_cols, n_cols, n_whole};
    norm.n_part = 1;
    norm.eps = e->hp.norm_eps;
    norm.skip = skip;
    return norm;
}

bool cuda_norm_heads(const struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                     const uint32_t *skip, struct error *err)
{
    const struct layer *f = l->facts, *whole = cuda_whole_layer(e, f);
    const uint32_t n_q = f->n_head * f->head_dim, n_kv = f->n_head_kv * f->head_dim;
    const uint32_t n_all = whole->n_head_kv == 1 ? e->exchange.n_rank : whole->n_head_kv;
    struct rank_norm norm =
        rows_of_ranks(e, e->s.q, l->v[ATTN_Q_NORM], n_q, whole->n_head * f->head_dim, skip);
    norm.part[1] = {e->s.k, l->v[ATTN_K_NORM], n_kv, n_kv, n_all * f->head_dim};
    norm.n_part = f->kv_back > 0 ? 1 : 2;
    return !cuda_norms_across(e, f) || norm_ranks_launch(&e->q, &e->exchange, &norm, n, err);
}

bool cuda_norms_group_across(const struct cuda_engine *e, const struct layer *slice)
{
    return e->rank && slice->w[SSM_NORM].data && cuda_whole_layer(e, slice)->ssm.n_group == 1;
}

bool cuda_norm_group(const struct cuda_engine *e, const struct gpu_layer *l, float *y, uint32_t n,
                     const uint32_t *skip, struct error *err)
{
    const uint32_t n_inner = l->facts->ssm.n_inner;
    const struct rank_norm norm = rows_of_ranks(e, y, l->v[SSM_NORM], n_inner,
                                                cuda_whole_layer(e, l->facts)->ssm.n_inner, skip);
    return !cuda_norms_group_across(e, l->facts) ||
           norm_ranks_launch(&e->q, &e->exchange, &norm, n, err);
}

bool cuda_gather_logits(const struct cuda_engine *e, uint32_t n, const uint32_t *skip,
                        struct error *err)
{
    return !e->rank ||
           gather_ranks_launch(&e->q, &e->exchange, e->s.part_logits, n, e->s.logits, skip, err);
}
