// engine/backend.h on a CUDA device: open, evaluating, sampling ahead of the host, the KV cache in
// and out.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "engine/states.h"
#include "engine/windows.h"
#include "engine_impl.h"

// ---- memory

static uint64_t plan_total(const struct memory_plan *p)
{
    return p->weights + p->kv + p->scratch + p->other;
}

// The largest context, up to limit and a multiple of 64 unless it is the limit, that fits in free
// bytes; 0 when none does.
static uint32_t largest_context(const struct model *m, const struct engine_params *p,
                                const struct device *d, uint32_t limit)
{
    struct memory_plan plan;
    cuda_memory_plan(m, p, limit, d, &plan);
    if (plan_total(&plan) <= d->free)
        return limit;
    uint32_t low = 0, high = limit / 64 + 1; // in units of 64: low fits, high does not
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        cuda_memory_plan(m, p, mid * 64, d, &plan);
        *(plan_total(&plan) <= d->free ? &low : &high) = mid;
    }
    return low * 64;
}

static bool make_plan(const struct model *m, const struct engine_params *p,
                      const struct device *device, struct engine_plan *out)
{
    struct device ours = *device, *d = &ours;
    d->free -= lesser(p->set_aside, d->free);
    struct engine_params known = *p;
    known.n_batch = cuda_n_batch(m, p, d);
    p = &known;
    struct engine_params q8 = *p;
    struct memory_plan plan;
    q8.type_k = q8.type_v = KV_Q8_0;
    *out = {};
    out->available = d->free;
    const uint32_t trained = m->hp.n_ctx_train;
    const bool refused = p->n_ctx > trained && largest_context(m, p, d, p->n_ctx) < p->n_ctx;
    const uint32_t most = refused ? p->n_ctx : trained;
    out->n_ctx_max = largest_context(m, p, d, most);
    out->n_ctx_max_q8 = largest_context(m, &q8, d, most);
    out->n_ctx = p->n_ctx ? p->n_ctx : out->n_ctx_max ? out->n_ctx_max : m->hp.n_ctx_train;
    cuda_memory_plan(m, p, out->n_ctx, d, &plan);
    windows_plan(m, p->n_batch, cuda_n_seq(p), KV_BLOCK, out);
    out->weights = plan.weights;
    out->kv = plan.kv;
    out->scratch = plan.scratch;
    out->other = plan.other;
    out->fits = plan_total(&plan) <= d->free;
    if (!out->fits && known.n_batch > CUDA_LEAST_BATCH) {
        known.n_batch = CUDA_LEAST_BATCH;
        cuda_memory_plan(m, &known, out->n_ctx, d, &plan);
        out->fits_by_less = plan_total(&plan) <= d->free;
    }
    if (cuda_n_states(m, cuda_n_seq(p), d->total) > 0)
        out->host_states = states_host_bytes(memory_available(0));
    return true;
}

bool cuda_does_not_fit(const struct engine_plan *p, const char *device, struct error *err)
{
    char fit[160], less[24] = "";
    if (p->fits_by_less) // (then fewer positions fit, too)
        snprintf(less, sizeof less, "-b %d would fit; ", CUDA_LEAST_BATCH);
    if (p->n_ctx_max)
        snprintf(fit, sizeof fit, "%s-c %u would fit (-c %u with -ctk q8_0 -ctv q8_0)", less,
                 p->n_ctx_max, p->n_ctx_max_q8);
    else if (p->n_ctx_max_q8)
        snprintf(fit, sizeof fit, "-c %u with -ctk q8_0 -ctv q8_0 would fit", p->n_ctx_max_q8);
    else
        snprintf(fit, sizeof fit, "no context fits; a smaller model or --device cpu may");
    return error_set(
        err, ERR_MEMORY,
        "%s: a context of %u tokens needs %llu bytes (weights %llu, KV cache %llu, "
        "scratch %llu, other %llu) and %llu are free: %s",
        device, p->n_ctx, (unsigned long long)(p->weights + p->kv + p->scratch + p->other),
        (unsigned long long)p->weights, (unsigned long long)p->kv, (unsigned long long)p->scratch,
        (unsigned long long)p->other, (unsigned long long)p->available, fit);
}

static bool check_shape(const struct model *m, const struct engine_params *p,
                        const struct device *d, struct error *err)
{
    if (m->predicts_for && !p->exact)
        return error_set(err, ERR_USAGE,
                         "no guesses are checked on a GPU without --exact: expected --exact, or "
                         "--device cpu");
    if (!cuda_check_facts(m, err) || !engine_has_positions(m, p->n_ctx, err))
        return false;
    uint32_t head_dim = 1, widest = 0; // of all layers; which has it
    size_t smem = 0;
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer *l = &m->layers[i];
        struct attention_wide_scratch wide = {};
        if (l->latent.n_kv > 0)
            attention_wide_scratch(l->n_head, l->head_dim, l->latent.n_kv, true, 1, &wide);
        else if (l->head_dim > head_dim)
            head_dim = l->head_dim, widest = i;
        smem = wide.smem > smem ? wide.smem : smem;
    }
    if (attention_smem(head_dim) == 0)
        return error_set(err, ERR_MODEL,
                         "layer %u: heads of %u numbers (attention.key_length), expected 1 to %d "
                         "on a GPU; --device cpu takes wider ones",
                         widest, head_dim, ATTENTION_MAX_HEAD_DIM);
    smem = attention_smem(head_dim) > smem ? attention_smem(head_dim) : smem;
    smem += 4096; // what the kernels declare themselves is less
    if (smem > d->smem_max)
        return error_set(err, ERR_MODEL,
                         "%s: a block has %zu bytes of shared memory, this model needs %zu",
                         d->name, d->smem_max, smem);
    return true;
}

bool cuda_slice_plan(const struct model *slice, const struct engine_params *p,
                     const struct device *d, struct engine_plan *plan, struct error *err)
{
    return check_shape(slice, p, d, err) && make_plan(slice, p, d, plan);
}

extern "C" bool cuda_engine_plan(const struct model *m, const struct engine_params *p,
                                 struct engine_plan *plan, struct error *err)
{
    struct device d;
    if (cuda_n_rank(p) > 1)
        return cuda_ranks_plan(m, p, plan, err);
    return cuda_device_select(p->device_index, &d, err) && cuda_slice_plan(m, p, &d, plan, err);
}

// ---- evaluation

static struct cuda_engine *self(struct engine *e)
{
    return (struct cuda_engine *)e;
}

// CUDA's current device is the calling thread's, and whoever uses another engine changes it.
static bool enter(const struct cuda_engine *e, struct error *err)
{
    return CHECK_CUDA(cudaSetDevice(e->params.device_index), err);
}

bool cuda_begin(struct cuda_engine *e, struct error *err)
{
    if (e->failure.code != ERR_NONE) {
        *err = e->failure;
        return false;
    }
    return enter(e, err);
}

bool cuda_work_on(struct cuda_engine *e, const struct seq *s, const struct cancel *cancel,
                  struct error *err)
{
    e->seq = s;
    e->n_past = s->n_past;
    e->cancel = cancel;
    return cuda_begin(e, err) && cuda_kv_use(e, s, err);
}

bool cuda_wait(struct cuda_engine *e, struct error *err)
{
    return e->rank ? cuda_rank_wait(e, NULL, err)
                   : CHECK_CUDA(cudaStreamSynchronize(e->q.stream), err);
}

// Tells the device where it stands; the pinned copies must not be in use by an earlier transfer.
bool cuda_set_step(struct cuda_engine *e, int32_t token, size_t pos, struct error *err)
{
    *e->host_step = {{0, (uint32_t)pos}, token, 0, 0};
    return CHECK_CUDA(cudaMemcpyAsync(e->s.step, e->host_step, sizeof *e->host_step,
                                      cudaMemcpyHostToDevice, e->q.stream),
                      err);
}

// Up to three shares are queued: the one that waited for the first of them has just begun.
bool cuda_pace(struct cuda_engine *e, uint32_t n, uint32_t i, struct error *err)
{
    const double attended = 2.0 * e->largest.n_q * (double)(e->n_past + n);
    const double layer = 2.0 * n * (e->layer_weights + attended); // operations
    const uint32_t share =
        layer < PACE_OPERATIONS ? (uint32_t)(PACE_OPERATIONS / layer) : 1; // layers
    if (!e->paced || i % share != 0)
        return true;
    cudaEvent_t mark = e->pace[i / share % 2];
    return (i < 2 * share || (e->rank ? cuda_rank_wait(e, mark, err)
                                      : CHECK_CUDA(cudaEventSynchronize(mark), err))) &&
           CHECK_CUDA(cudaEventRecord(mark, e->q.stream), err);
}

bool cuda_enqueue_chunk(struct cuda_engine *e, const int32_t *tokens, size_t n, bool logits,
                        struct error *err)
{
    if (!cuda_state_use_chunk(e, e->seq, n, err) || !cuda_set_step(e, tokens[0], e->n_past, err))
        return false;
    if (n == 1 && !e->any_pieces) {
        if (!cuda_forward_one(e, err))
            return false;
    } else {
        memcpy(e->host_tokens, tokens, n * sizeof *tokens);
        if (!CHECK_CUDA(cudaMemcpyAsync(e->s.tokens, e->host_tokens, n * sizeof *tokens,
                                        cudaMemcpyHostToDevice, e->q.stream),
                        err) ||
            !cuda_forward_many(e, (uint32_t)n, err))
            return false;
    }
    return !logits || cuda_head(e, n - 1, 1, NULL, err);
}

// The logits of n rows of what was evaluated last.
static bool head(struct cuda_engine *e, size_t row0, size_t n, struct error *err)
{
    return e->params.exact ? cuda_head_of_pass(e, row0, (uint32_t)n, err)
                           : cuda_head(e, row0, n, NULL, err);
}

// As a pass.
static bool eval_exactly(struct cuda_engine *e, const struct seq *s, const int32_t *ids, size_t n,
                         enum engine_logits want, const struct cancel *cancel, struct error *err)
{
    struct engine_part p = {};
    p.seq = s;
    p.ids = ids;
    p.n = n;
    p.given = true;
    return cuda_eval_parts(&e->base, &p, 1, cancel, err) &&
           (want != LOGITS_LAST || (head(e, n - 1, 1, err) && cuda_wait(e, err)));
}

static bool eval_chunk(struct cuda_engine *e, const struct seq *s, const int32_t *ids, size_t n,
                       enum engine_logits want, const struct cancel *cancel, struct error *err)
{
    if (!cuda_work_on(e, s, cancel, err))
        return false;
    e->part_rows[0] = {0, (uint32_t)n};
    e->n_part_rows = 1;
    e->paced = true;
    bool ok = !interrupted_alike(e, err) && cuda_enqueue_chunk(e, ids, n, want == LOGITS_LAST, err);
    e->paced = false;
    // Also after a failure: nothing may still be running when the sequence is used again.
    struct error mine = {};
    return cuda_wait(e, ok ? err : &mine) && ok;
}

static bool engine_eval(struct engine *base, const struct seq *s, const int32_t *ids, size_t n,
                        enum engine_logits want, const struct cancel *cancel, struct error *err)
{
    struct cuda_engine *e = self(base);
    if (!(e->params.exact ? eval_exactly : eval_chunk)(e, s, ids, n, want, cancel, err))
        return false;
    e->last_token = ids[n - 1];
    e->last_row = (uint32_t)n - 1;
    e->n_rows = n;
    e->logits_want = want;
    e->logits_row0 = 0;
    e->logits_n = want == LOGITS_LAST ? 1 : 0;
    return true;
}

static bool engine_logits(struct engine *base, const struct seq *s, size_t i,
                          const struct cancel *cancel, float *out, struct error *err)
{
    struct cuda_engine *e = self(base);
    if (!cuda_work_on(e, s, cancel, err))
        return false;
    size_t n = e->logits_want == LOGITS_ALL ? e->n_rows : 1;
    if (i < e->logits_row0 || i >= e->logits_row0 + e->logits_n) {
        // only LOGITS_ALL comes here: a block of rows is made when its first row is asked for
        e->logits_row0 = i / LOGITS_ROWS * LOGITS_ROWS;
        e->logits_n = lesser(n - e->logits_row0, (size_t)LOGITS_ROWS);
        if (!head(e, e->logits_row0, e->logits_n, err)) {
            e->logits_n = 0;
            return false;
        }
    }
    const float *row = e->s.logits + (i - e->logits_row0) * e->hp.n_vocab;
    if (!CHECK_CUDA(cudaMemcpyAsync(out, row, e->hp.n_vocab * sizeof *out, cudaMemcpyDeviceToHost,
                                    e->q.stream),
                    err) ||
        !cuda_wait(e, err))
        return false;
    size_t bad = finite_until(out, e->hp.n_vocab);
    return bad == e->hp.n_vocab ||
           cuda_not_finite(e, s->n_past - 1, i == n - 1, (uint32_t)bad, out[bad], err);
}

// ---- decoding

// One step of decoding, as the graph holds it.
bool cuda_enqueue_step(struct cuda_engine *e, struct error *err)
{
    return cuda_forward_one(e, err) && cuda_head(e, 0, 1, &e->s.step->done, err) &&
           gpu_sampler_launch(cuda_queue(e, "logits"), &e->sampler, e->s.logits, e->hp.n_vocab,
                              e->s.step, err);
}

static bool capture_step(struct cuda_engine *e, bool waits, struct error *err)
{
    e->sampler.waits = waits;
    return cuda_capture_exec(
        e, &e->graph[waits], [&] { return cuda_enqueue_step(e, err); }, err);
}

// What only masked picks need: an answer is not to wait for it.
static bool prepare_masks(struct cuda_engine *e, struct error *err)
{
    const size_t bytes = (1 + ((size_t)e->hp.n_vocab + 31) / 32) * sizeof *e->mask;
    auto step = [&] {
        return cuda_forward_one(e, err) && cuda_head(e, 0, 1, &e->s.step->done, err);
    };
    return CHECK_CUDA(cudaMallocHost(&e->mask, bytes), err) &&
           cuda_capture_exec(e, &e->masked_graph, step, err);
}

static bool engine_pick_start(struct engine *base, const struct seq *s, struct error *err)
{
    struct cuda_engine *e = self(base);
    if (!cuda_work_on(e, s, NULL, err))
        return false;
    if (e->logits_want == LOGITS_ALL) { // the sampler reads row 0
        if (!head(e, e->n_rows - 1, 1, err))
            return false;
        e->logits_want = LOGITS_LAST;
        e->logits_row0 = 0;
        e->logits_n = 1;
    }
    const struct decode_params p = {&s->sampler,      s->ids.data,     s->ids.len,     s->n_probs,
                                    s->stop_ids.data, s->stop_ids.len, s->mask != NULL};
    e->sampler.mask = s->mask ? e->mask : NULL;
    if (!gpu_sampler_begin(&e->q, &e->sampler, &p, err))
        return false;
    for (int i = 0; i < RING; i++)
        e->sampler.ring[i].seq = 0;
    e->n_asked = 1;
    e->n_masked = e->n_picked = 0;
    e->step_held = false;
    return cuda_set_step(e, 0, s->n_past - 1, err) &&
           (s->mask ||
            gpu_sampler_launch(&e->q, &e->sampler, e->s.logits, e->hp.n_vocab, e->s.step, err));
}

static_assert(ENGINE_RUN_AHEAD + 1 < RING, "a slot is read before it is written again");

// The evaluation that was asked for last, of what the pick before it samples.
static bool launch_step(struct cuda_engine *e, const struct seq *s, struct error *err)
{
    const uint32_t *next = s->next_states;
    return (s->n_next == 0 || cuda_state_use(e, s->n_next > 1 ? next[s->n_next - 2] : s->state,
                                             next[s->n_next - 1], 1, err)) &&
           CHECK_CUDA(
               cudaGraphLaunch(s->mask ? e->masked_graph : e->graph[e->sampler.waits], e->q.stream),
               err);
}

// The device works ahead while the caller looks at what it has. Past a stop id its kernels return
// at once (step_state.done). Behind a pick that waits for its mask the step is held until that is
// launched.
static bool engine_pick_next(struct engine *base, const struct seq *s, struct error *err)
{
    struct cuda_engine *e = self(base);
    e->step_began = clock_now();
    if (!cuda_work_on(e, s, NULL, err))
        return false;
    e->step_held = s->mask && e->n_masked < e->n_asked;
    e->n_asked++;
    return e->step_held || launch_step(e, s, err);
}

// While the device evaluates, the host makes the mask. The sampler is enqueued behind both, and the
// next step behind that: while it runs the host is told the token, and makes the next mask.
static bool launch_masked(struct cuda_engine *e, const struct seq *s, struct error *err)
{
    if (!engine_mask(s, NULL, 0, e->mask + 1, e->mask, err) ||
        !gpu_sampler_launch(cuda_queue(e, "logits"), &e->sampler, e->s.logits, e->hp.n_vocab,
                            e->s.step, err) ||
        (e->step_held && !launch_step(e, s, err)))
        return false;
    e->n_masked++;
    e->step_held = false;
    return true;
}

// Seconds to sleep before the next look at a sample. Behind a masked one no more is enqueued than a
// step, in which the host is to have the next mask: from shortly before it is due there is no
// sleep, unless it is overdue.
static double pause_before_look(const struct cuda_engine *e, bool masked)
{
    static const double pause = 20e-6, longest = 1e-3, slack = 60e-6; // by which a sleep is longer
    if (!masked)
        return pause;
    const double took = clock_now() - e->step_began, left = 0.875 * e->step_took - took - slack;
    if (took > 2 * e->step_took)
        return pause;
    return left < longest ? left : longest;
}

// A host that was late once does not sleep longer the next times: what a step takes is known by the
// quickest, and grows slowly, as the context does.
static void step_ended(struct cuda_engine *e)
{
    const double took = clock_now() - e->step_began, known = e->step_took;
    if (e->n_picked > 0) // (behind a prompt there was no step)
        e->step_took = known > 0 ? lesser(took, known * 17 / 16) : took;
}

// Waits for sample number n (from 1) without burning a core: a step of a small model takes some
// hundred microseconds, so look a few times, then sleep for a fraction of that.
static bool wait_sample(struct cuda_engine *e, const struct ring_slot *slot, uint32_t n,
                        bool masked, struct error *err)
{
    struct rank_watch watch = {};
    for (unsigned look = 0;; look++) {
        if (host_load_acquire(&slot->seq) == n) {
            step_ended(e);
            return true;
        }
        if (interrupted(e, err))
            return false;
        if (look < 64)
            continue;
        if (look % 64 == 0 && e->rank && !cuda_ranks_alive(e, &watch, err))
            return false;
        if (look % 64 == 0) { // a failed kernel never writes the slot
            cudaError_t s = cudaStreamQuery(e->q.stream);
            if (s != cudaErrorNotReady) {
                if (host_load_acquire(&slot->seq) == n)
                    return true;
                return s == cudaSuccess
                           ? error_set(err, ERR_FAIL, "the device ended a step without a token")
                           : cuda_check(s, "decoding", err);
            }
        }
        const double pause = pause_before_look(e, masked);
        const struct timespec t = {0, (long)(pause * 1e9)};
        if (pause > 0)
            nanosleep(&t, NULL);
    }
}

static bool engine_pick_take(struct engine *base, const struct seq *s, bool evaluate,
                             const struct cancel *cancel, struct decoded *out, struct error *err)
{
    (void)evaluate; // the device does so by itself
    struct cuda_engine *e = self(base);
    if (!cuda_work_on(e, s, cancel, err) || interrupted(e, err))
        return false;
    if (s->mask && e->n_masked == e->n_picked && !launch_masked(e, s, err))
        return false;
    const struct ring_slot *slot = &e->sampler.ring[e->n_picked % RING];
    if (!wait_sample(e, slot, (uint32_t)(e->n_picked + 1), s->mask != NULL, err))
        return false;
    e->last_token = s->ids.data[s->ids.len - 1];
    if (slot->failed == SAMPLER_NOT_FINITE)
        return cuda_not_finite(e, s->ids.len - 1, true, (uint32_t)slot->d.id, slot->d.logprob, err);
    if (!gpu_sampler_result(slot, err)) {
        e->pick_failed = true;
        return false;
    }
    *out = slot->d;
    e->n_picked++;
    return true;
}

bool cuda_pick_wait(struct cuda_engine *e, const struct seq *s, const struct cancel *cancel,
                    bool *finite, struct error *err)
{
    const struct ring_slot *slot = &e->sampler.ring[e->n_picked % RING];
    if (!cuda_work_on(e, s, cancel, err) || interrupted(e, err) ||
        !wait_sample(e, slot, (uint32_t)(e->n_picked + 1), false, err))
        return false;
    *finite = slot->failed != SAMPLER_NOT_FINITE;
    return true;
}

void cuda_pick_taken(struct cuda_engine *e, const struct seq *s)
{
    e->last_token = s->ids.data[s->ids.len - 1];
    e->n_picked++;
}

static void engine_pick_stop(struct engine *base)
{
    struct cuda_engine *e = self(base);
    if (enter(e, &e->failure)) // what fails here the next call tells
        cuda_wait(e, &e->failure);
}

// ---- the KV cache in and out

static size_t backend_kv_bytes(const struct engine *base, bool near, size_t begin, size_t end)
{
    return cuda_kv_bytes((const struct cuda_engine *)base, near, begin, end);
}

static bool engine_kv_export(struct engine *base, const struct seq *s, bool near, size_t begin,
                             size_t end, void *dst, struct error *err)
{
    return cuda_work_on(self(base), s, NULL, err) &&
           cuda_kv_copy(self(base), near ? s->near : s->blocks, near, begin, end, (uint8_t *)dst,
                        true, err);
}

static bool engine_kv_import(struct engine *base, const struct seq *s, bool near, size_t begin,
                             size_t end, const void *src, struct error *err)
{
    return cuda_work_on(self(base), s, NULL, err) &&
           cuda_kv_copy(self(base), near ? s->near : s->blocks, near, begin, end, (uint8_t *)src,
                        false, err);
}

static size_t backend_state_bytes(const struct engine *base)
{
    return ((const struct cuda_engine *)base)->states.stride * sizeof(float);
}

static bool engine_state_export(struct engine *base, uint32_t slot, void *dst, struct error *err)
{
    return cuda_begin(self(base), err) &&
           cuda_state_copy(self(base), slot, (float *)dst, true, err);
}

static bool engine_state_import(struct engine *base, uint32_t slot, const void *src,
                                struct error *err)
{
    return cuda_begin(self(base), err) &&
           cuda_state_copy(self(base), slot, (float *)src, false, err);
}

static bool engine_state_advance(struct engine *base, const struct seq *s, size_t i, size_t n,
                                 struct error *err)
{
    struct cuda_engine *e = self(base);
    return cuda_begin(e, err) &&
           cuda_state_advance(e, {e->part_rows[i].row, (uint32_t)n, s->state, s->next_states[0]},
                              err);
}

static bool engine_kv_copy(struct engine *base, bool near, uint32_t from, uint32_t to, size_t n,
                           struct error *err)
{
    return cuda_begin(self(base), err) && cuda_kv_copy_block(self(base), near, from, to, n, err);
}

// ---- cuBLAS

bool cuda_blas_open(struct cuda_engine *e, struct error *err)
{
    if (e->q.blas)
        return true;
    cublasStatus_t s = cublasCreate(&e->q.blas);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasSetStream(e->q.blas, e->q.stream);
    // a workspace of its own on one stream: the same sums in the same order every time
    if (s == CUBLAS_STATUS_SUCCESS && e->s.blas_workspace)
        s = cublasSetWorkspace(e->q.blas, e->s.blas_workspace, e->s.blas_workspace_bytes);
    if (s == CUBLAS_STATUS_SUCCESS)
        return true;
    error_set(err, ERR_FAIL, "cuBLAS could not be started: %s", cublasGetStatusString(s));
    if (e->q.blas)
        cublasDestroy(e->q.blas);
    e->q.blas = NULL;
    return false;
}

// ---- open and close

static void engine_free_cuda(struct engine *base)
{
    struct cuda_engine *e = self(base);
    if (!e)
        return;
    struct error ignored = {}; // what it would say, the calls below meet, too
    enter(e, &ignored);
    if (e->q.stream)
        cudaStreamSynchronize(e->q.stream);
    for (int i = 0; i < 2; i++) {
        if (e->graph[i])
            cudaGraphExecDestroy(e->graph[i]);
        if (e->pace[i])
            cudaEventDestroy(e->pace[i]);
    }
    if (e->masked_graph)
        cudaGraphExecDestroy(e->masked_graph);
    if (e->q.blas)
        cublasDestroy(e->q.blas);
    cudaFree(e->weights.base);
    cudaFree(e->kv.base);
    cudaFree(e->work.base);
    cudaFreeHost(e->host_step);
    cudaFreeHost(e->host_tokens);
    cudaFreeHost(e->mask);
    cudaFreeHost(e->kv_table);
    cudaFreeHost(e->host_spans);
    cudaFreeHost(e->sampler.ring);
    cuda_parts_close(e);
    cuda_side_close(e);
    if (e->q.stream)
        cudaStreamDestroy(e->q.stream);
    engine_release(base);
    free(e->layers);
    free(e);
}

static bool take_memory(struct cuda_engine *e, const struct model *m, struct error *err)
{
    cuda_place(e, m); // measures
    struct arena *arenas[] = {&e->weights, &e->kv, &e->work};
    for (int i = 0; i < 3; i++) {
        struct arena *a = arenas[i];
        a->size = a->used;
        a->used = 0;
        if (!CHECK_CUDA(cudaMalloc(&a->base, a->size), err))
            return false;
    }
    cuda_place(e, m);
    const size_t table_bytes = kv_blocks(e->base.n_ctx) * sizeof *e->kv_table;
    if (!CHECK_CUDA(cudaMallocHost(&e->kv_table, 2 * table_bytes), err))
        return false;
    memset(e->kv_table, 0, 2 * table_bytes); // as on the device: cuda_kv_use compares
    return CHECK_CUDA(cudaMemsetAsync(e->s.kv_tables, 0, table_bytes, e->q.stream), err) &&
           CHECK_CUDA(cudaMemsetAsync(e->s.near_tables, 0, table_bytes, e->q.stream), err) &&
           CHECK_CUDA(cudaMallocHost(&e->host_step, sizeof *e->host_step), err) &&
           CHECK_CUDA(cudaMallocHost(&e->host_tokens, e->base.n_batch * sizeof(int32_t)), err) &&
           CHECK_CUDA(cudaMallocHost(&e->sampler.ring, RING * sizeof *e->sampler.ring), err) &&
           CHECK_CUDA(cudaMemsetAsync(e->s.counters, 0, e->s.counter_bytes, e->q.stream), err) &&
           (!e->s.undo ||
            CHECK_CUDA(cudaMemsetAsync(e->s.undo, 0,
                                       2 * gemm_undo_room(e->base.n_batch) * sizeof *e->s.undo,
                                       e->q.stream),
                       err));
}

static bool open_queue(struct cuda_engine *e, const struct device *d, struct error *err)
{
    e->q.n_sm = d->n_sm;
    e->q.smem_max = d->smem_max;
    e->q.smem_sm = d->smem_sm;
    e->q.dependent = d->major >= 9;
    e->q.hopper = d->major == 9;
    return CHECK_CUDA(cudaStreamCreateWithFlags(&e->q.stream, cudaStreamNonBlocking), err) &&
           CHECK_CUDA(cudaEventCreateWithFlags(&e->pace[0], cudaEventDisableTiming), err) &&
           CHECK_CUDA(cudaEventCreateWithFlags(&e->pace[1], cudaEventDisableTiming), err) &&
           cuda_side_open(e, err) && cuda_ahead_open(e, err);
}

const struct backend cuda_backend = {
    KV_BLOCK,
    engine_eval,
    cuda_eval_parts,
    engine_logits,
    cuda_hidden,
    engine_pick_start,
    engine_pick_next,
    engine_pick_take,
    engine_pick_stop,
    backend_kv_bytes,
    engine_kv_export,
    engine_kv_import,
    backend_state_bytes,
    engine_state_export,
    engine_state_import,
    engine_state_advance,
    engine_kv_copy,
    cuda_measure,
    cuda_profile,
    cuda_profile_parts,
    engine_free_cuda,
};

extern "C" struct engine *cuda_engine_open(const struct model *m, const struct engine_params *p,
                                           struct error *err)
{
    struct device d;
    struct engine_plan plan;
    if (cuda_n_rank(p) > 1)
        return cuda_ranks_open(m, p, err);
    if (!cuda_device_select(p->device_index, &d, err) || !cuda_slice_plan(m, p, &d, &plan, err))
        return NULL;
    if (m->predicts_for &&
        (!p->shares || p->shares->model != m->predicts_for ||
         p->shares->core->backend != &cuda_backend ||
         ((const struct cuda_engine *)p->shares)->params.device_index != p->device_index)) {
        error_set(err, ERR_FAIL,
                  "a prediction layer without the engine of its model on the same device");
        return NULL;
    }
    if (!plan.fits && !cuda_does_not_fit(&plan, d.name, err))
        return NULL;
    struct cuda_engine *e = cuda_slice_open(m, p, &d, plan.n_ctx, NULL, err);
    if (!e)
        return NULL;
    states_may_take(&e->base, plan.host_states);
    return &e->base;
}

struct cuda_engine *cuda_slice_open(const struct model *m, const struct engine_params *p,
                                    const struct device *d, uint32_t n_ctx, struct rank *rank,
                                    struct error *err)
{
    struct cuda_engine *e = (struct cuda_engine *)calloc(1, sizeof *e);
    if (!e || !(e->layers = (struct gpu_layer *)calloc(m->hp.n_layer, sizeof *e->layers))) {
        free(e);
        error_oom(err, "the engine", m->hp.n_layer * sizeof *e->layers);
        return NULL;
    }
    e->rank = rank;
    e->base.model = m;
    e->base.n_ctx = n_ctx;
    e->base.n_batch = cuda_n_batch(m, p, d);
    if (e->base.n_batch > e->base.n_ctx)
        e->base.n_batch = e->base.n_ctx;
    snprintf(e->base.device, sizeof e->base.device, "%.*s", (int)sizeof e->base.device - 1,
             d->name);
    e->hp = m->hp;
    e->largest = model_largest(m);
    e->params = *p;
    e->n_seq = cuda_n_seq(p);
    e->passes = cuda_has_passes(p, e->n_seq);
    e->base.n_states = cuda_n_states(m, e->n_seq, d->total);
    e->base.type_k = p->type_k;
    e->base.exact = p->exact;
    e->base.type_v = p->type_v;
    snprintf(e->base.kv_format, sizeof e->base.kv_format, "cuda3 k=%s v=%s%s%s%s",
             p->type_k == KV_F16 ? "f16" : "q8_0", p->type_v == KV_F16 ? "f16" : "q8_0",
             e->base.n_states > 0 ? " states:1" : "", windows_reach(m) > 0 ? " windows:1" : "",
             p->exact ? " exact:1" : "");
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        double n = 0;
        for (int k = 0; k < N_LAYER_WEIGHTS; k++)
            n += (double)m->layers[i].w[k].rows * m->layers[i].w[k].n_cols;
        e->layer_weights = n > e->layer_weights ? n : e->layer_weights;
    }
    e->cancel = p->cancel;
    if (!engine_init(&e->base, &e->core, &cuda_backend, e->n_seq, e->n_seq, err) ||
        !open_queue(e, d, err) || !take_memory(e, m, err) || (rank && !cuda_rank_join(e, err)) ||
        !cuda_parts_open(e, err) || !cuda_states_open(e, err) || !cuda_state_advance_open(e, err) ||
        !cuda_load(e, m, err) || (rank && e->s.blas_workspace_bytes && !cuda_blas_open(e, err)) ||
        !capture_step(e, false, err) || !capture_step(e, true, err) || !prepare_masks(e, err) ||
        !cuda_load_kernels(e, err) || !cuda_wait(e, err)) {
        engine_free_cuda(&e->base);
        return NULL;
    }
    e->no_pass_graphs = rank; // made while others compute, which waits for them on some drivers
    e->core.alike = e->passes;
    e->base.any_pieces = e->passes || e->any_pieces;
    e->core.spares_copies = e->n_seq > 1; // all would wait for each one's
    // Else several rows have other bits; a row of a prediction layer needs more than its guess.
    e->core.max_drafts = p->exact && !m->predicts_for ? ENGINE_MAX_DRAFTS : 0;
    if (e->base.n_states > 0)
        e->core.max_draft_rows = cuda_kept_rows(e->n_seq);
    e->core.gives_hidden = e->passes; // others have evaluated more than is known
    size_t mem_free = 0, mem_total = 0;
    cudaMemGetInfo(&mem_free, &mem_total);
    e->base.mem_total = d->total;
    e->base.mem_used = d->free > mem_free ? d->free - mem_free : 0;
    return e;
}
