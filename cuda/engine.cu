// engine.h on a CUDA device: open, the timeline, decoding ahead of the host, the KV cache in and
// out.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

static bool make_plan(const struct model *m, const struct engine_params *p, const struct device *d,
                      struct engine_plan *out)
{
    struct engine_params q8 = *p;
    struct memory_plan plan;
    q8.type_k = q8.type_v = KV_Q8_0;
    *out = {};
    out->available = d->free;
    out->n_ctx_max = largest_context(m, p, d, m->hp.n_ctx_train);
    out->n_ctx_max_q8 = largest_context(m, &q8, d, m->hp.n_ctx_train);
    out->n_ctx = p->n_ctx ? p->n_ctx : out->n_ctx_max ? out->n_ctx_max : m->hp.n_ctx_train;
    cuda_memory_plan(m, p, out->n_ctx, d, &plan);
    out->weights = plan.weights;
    out->kv = plan.kv;
    out->scratch = plan.scratch;
    out->other = plan.other;
    out->fits = plan_total(&plan) <= d->free;
    return true;
}

static bool does_not_fit(const struct engine_plan *p, const char *device, struct error *err)
{
    char fit[160];
    if (p->n_ctx_max)
        snprintf(fit, sizeof fit, "-c %u would fit (-c %u with -ctk q8_0 -ctv q8_0)", p->n_ctx_max,
                 p->n_ctx_max_q8);
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

static bool check_shape(const struct model *m, const struct device *d, struct error *err)
{
    if (!cuda_check_facts(m, err))
        return false;
    const uint32_t head_dim = model_largest(m).head_dim;
    size_t smem = attention_smem(head_dim);
    if (smem == 0)
        return error_set(err, ERR_MODEL, "head dimension %u: the CUDA engine takes 1 to %d",
                         head_dim, ATTENTION_MAX_HEAD_DIM);
    smem += 8192; // what the kernels declare themselves is less
    if (smem > d->smem_max)
        return error_set(err, ERR_MODEL,
                         "%s: a block has %zu bytes of shared memory, this model needs %zu",
                         d->name, d->smem_max, smem);
    return true;
}

extern "C" bool cuda_engine_plan(const struct model *m, const struct engine_params *p,
                                 struct engine_plan *plan, struct error *err)
{
    struct device d;
    return cuda_device_select(p->device_index, &d, err) && check_shape(m, &d, err) &&
           make_plan(m, p, &d, plan);
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

bool cuda_begin(struct cuda_engine *e, const char *what, struct error *err)
{
    if (e->decoding)
        return error_set(err, ERR_FAIL, "%s while decoding: expected decode_stop first", what);
    if (e->failure.code != ERR_NONE) {
        *err = e->failure;
        return false;
    }
    return enter(e, err);
}

static bool wait_stream(struct cuda_engine *e, struct error *err)
{
    return CHECK_CUDA(cudaStreamSynchronize(e->q.stream), err);
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
    const double attended = 2.0 * e->largest.n_q * (double)(e->base.n_past + n);
    const double layer = 2.0 * n * (e->layer_weights + attended); // operations
    const uint32_t share =
        layer < PACE_OPERATIONS ? (uint32_t)(PACE_OPERATIONS / layer) : 1; // layers
    if (!e->paced || i % share != 0)
        return true;
    cudaEvent_t mark = e->pace[i / share % 2];
    return (i < 2 * share || CHECK_CUDA(cudaEventSynchronize(mark), err)) &&
           CHECK_CUDA(cudaEventRecord(mark, e->q.stream), err);
}

bool cuda_enqueue_chunk(struct cuda_engine *e, const int32_t *tokens, size_t n, bool logits,
                        struct error *err)
{
    if (!cuda_set_step(e, tokens[0], e->base.n_past, err))
        return false;
    if (n == 1) {
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

static bool engine_eval(struct engine *base, const int32_t *tokens, size_t n,
                        enum engine_logits want, struct error *err)
{
    struct cuda_engine *e = self(base);
    if (!cuda_begin(e, "eval", err))
        return false;
    if (n == 0 || (want == LOGITS_ALL && n > base->n_batch))
        return error_set(err, ERR_FAIL, "eval of %zu tokens: expected 1 to %u", n, base->n_batch);
    if (n > base->n_ctx || base->n_past > base->n_ctx - n)
        return error_set(err, ERR_CONTEXT,
                         "%zu tokens after %zu do not fit the context of %u tokens", n,
                         base->n_past, base->n_ctx);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= e->hp.n_vocab)
            return error_set(err, ERR_FAIL, "token id %d: the vocabulary has %u", tokens[i],
                             e->hp.n_vocab);
    e->logits_want = LOGITS_NONE;
    for (size_t at = 0; at < n;) {
        size_t chunk = n - at < base->n_batch ? n - at : base->n_batch;
        bool last = at + chunk == n;
        e->paced = true;
        bool ok = !interrupted(e, err) &&
                  cuda_enqueue_chunk(e, tokens + at, chunk, last && want == LOGITS_LAST, err);
        e->paced = false;
        // Also after a failure: nothing may still be running when the timeline is used again.
        struct error mine = {};
        if (!wait_stream(e, ok ? err : &mine) || !ok)
            return false;
        base->n_past += chunk;
        at += chunk;
        e->last_token = tokens[at - 1];
        e->n_rows = chunk;
    }
    e->logits_want = want;
    e->logits_row0 = 0;
    e->logits_n = want == LOGITS_LAST ? 1 : 0;
    return true;
}

static void engine_trim(struct engine *base, size_t n)
{
    struct cuda_engine *e = self(base);
    if (n < base->n_past) {
        base->n_past = n;
        e->logits_want = LOGITS_NONE;
    }
}

static bool engine_logits(struct engine *base, size_t i, float *out, struct error *err)
{
    struct cuda_engine *e = self(base);
    if (!cuda_begin(e, "logits", err))
        return false;
    size_t n = e->logits_want == LOGITS_ALL ? e->n_rows : e->logits_want == LOGITS_LAST ? 1 : 0;
    if (i >= n)
        return error_set(err, ERR_FAIL, "logits of row %zu: the last eval left %zu", i, n);
    if (i < e->logits_row0 || i >= e->logits_row0 + e->logits_n) {
        // only LOGITS_ALL comes here: a block of rows is made when its first row is asked for
        e->logits_row0 = i / LOGITS_ROWS * LOGITS_ROWS;
        e->logits_n = lesser(n - e->logits_row0, (size_t)LOGITS_ROWS);
        if (!cuda_head(e, e->logits_row0, e->logits_n, NULL, err)) {
            e->logits_n = 0;
            return false;
        }
    }
    const float *row = e->s.logits + (i - e->logits_row0) * e->hp.n_vocab;
    if (!CHECK_CUDA(cudaMemcpyAsync(out, row, e->hp.n_vocab * sizeof *out, cudaMemcpyDeviceToHost,
                                    e->q.stream),
                    err) ||
        !wait_stream(e, err))
        return false;
    size_t bad = finite_until(out, e->hp.n_vocab);
    return bad == e->hp.n_vocab ||
           cuda_not_finite(e, base->n_past - 1, i == n - 1, (uint32_t)bad, out[bad], err);
}

// ---- decoding

// One step of decoding, as the graph holds it.
bool cuda_enqueue_step(struct cuda_engine *e, struct error *err)
{
    return cuda_forward_one(e, err) && cuda_head(e, 0, 1, &e->s.step->done, err) &&
           gpu_sampler_launch(cuda_queue(e, "logits"), &e->sampler, e->s.logits, e->hp.n_vocab,
                              e->s.step, err);
}

// What enqueue() launches becomes a graph instead.
template <typename F>
static bool capture(struct cuda_engine *e, cudaGraph_t *graph, F enqueue, struct error *err)
{
    struct error mine = {};
    *graph = NULL;
    if (!CHECK_CUDA(cudaStreamBeginCapture(e->q.stream, cudaStreamCaptureModeRelaxed), err))
        return false;
    bool ok = enqueue();
    return CHECK_CUDA(cudaStreamEndCapture(e->q.stream, graph), ok ? err : &mine) && ok;
}

static bool capture_step(struct cuda_engine *e, bool waits, struct error *err)
{
    cudaGraph_t graph;
    e->sampler.waits = waits;
    bool ok = capture(
                  e, &graph, [&] { return cuda_enqueue_step(e, err); }, err) &&
              CHECK_CUDA(cudaGraphInstantiate(&e->graph[waits], graph), err) &&
              CHECK_CUDA(cudaGraphUpload(e->graph[waits], e->q.stream), err);
    if (graph)
        cudaGraphDestroy(graph);
    return ok;
}

// The driver loads a kernel when it is first launched, and takes device memory for it. Those of a
// prompt are launched here, into graphs that never run, so that what does not fit is found now and
// mem_used is all that the engine takes; but not those of products for which cuBLAS is opened when
// they are needed.
static bool load_kernels(struct cuda_engine *e, struct error *err)
{
    static const uint32_t sizes[] = {2, 4, 8, 64, 128, 256}; // all shapes of the products' tiles
    uint32_t most = e->base.n_batch;
    if (e->s.blas_workspace)
        most = lesser(most, (uint32_t)(e->q.hopper ? MATVEC_MAX_ROWS_HOPPER : MATVEC_MAX_ROWS));
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof sizes / sizeof *sizes && sizes[i] <= most; i++) {
        cudaGraph_t graph;
        uint32_t n = sizes[i], n_logits = lesser(n, (uint32_t)LOGITS_ROWS);
        auto chunk = [&] {
            return cuda_forward_many(e, n, err) && cuda_head(e, 0, n_logits, NULL, err) &&
                   cuda_head(e, 0, 1, NULL, err);
        };
        ok = capture(e, &graph, chunk, err);
        if (graph)
            cudaGraphDestroy(graph);
    }
    return ok || error_prefix(err, "making ready for prompts (a smaller -c leaves more memory)");
}

static bool engine_decode_start(struct engine *base, const struct decode_params *p,
                                struct error *err)
{
    struct cuda_engine *e = self(base);
    if (!cuda_begin(e, "decode_start", err))
        return false;
    if (e->logits_want == LOGITS_NONE || base->n_past == 0)
        return error_set(err, ERR_FAIL, "decoding needs the logits of the last token: eval first");
    size_t last = e->logits_want == LOGITS_ALL ? e->n_rows - 1 : 0;
    if (e->logits_want == LOGITS_ALL) { // the sampler reads row 0
        if (!cuda_head(e, last, 1, NULL, err))
            return false;
        e->logits_want = LOGITS_LAST;
        e->logits_row0 = 0;
        e->logits_n = 1;
    }
    if (!gpu_sampler_begin(&e->q, &e->sampler, p, err))
        return false;
    for (int i = 0; i < RING; i++)
        e->sampler.ring[i].seq = 0;
    if (!cuda_set_step(e, 0, base->n_past - 1, err) ||
        !gpu_sampler_launch(&e->q, &e->sampler, e->s.logits, e->hp.n_vocab, e->s.step, err))
        return false;
    e->decoding = true;
    e->decode_past = base->n_past;
    e->n_issued = 1;
    e->n_taken = 0;
    // the last sample may be of the position after the context's end
    size_t room = base->n_ctx - base->n_past + 1;
    e->n_wanted = p->max_tokens < room ? p->max_tokens : room;
    return true;
}

// Waits for sample number n (from 1) without burning a core: a step of a small model takes some
// hundred microseconds, so look a few times, then sleep for a fraction of that.
static bool wait_sample(struct cuda_engine *e, const struct ring_slot *slot, uint32_t n,
                        struct error *err)
{
    for (unsigned look = 0;; look++) {
        if (host_load_acquire(&slot->seq) == n)
            return true;
        if (interrupted(e, err))
            return false;
        if (look < 64)
            continue;
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
        struct timespec pause = {0, 20000};
        nanosleep(&pause, NULL);
    }
}

static bool engine_decode_next(struct engine *base, struct decoded *out, struct error *err)
{
    struct cuda_engine *e = self(base);
    if (!e->decoding)
        return error_set(err, ERR_FAIL, "decode_next without decode_start");
    if (e->n_taken >= e->n_wanted)
        return error_set(err, ERR_CONTEXT, "all %zu tokens asked for have been decoded",
                         e->n_wanted);
    if (interrupted(e, err) || !enter(e, err))
        return false;
    // The device works ahead while the caller looks at what it has. Past a stop id its kernels
    // return at once (step_state.done).
    while (e->n_issued < e->n_wanted && e->n_issued < e->n_taken + 1 + RUN_AHEAD) {
        if (!CHECK_CUDA(cudaGraphLaunch(e->graph[e->sampler.waits], e->q.stream), err))
            return false;
        e->n_issued++;
    }
    const struct ring_slot *slot = &e->sampler.ring[e->n_taken % RING];
    if (!wait_sample(e, slot, (uint32_t)(e->n_taken + 1), err))
        return false;
    if (slot->failed == SAMPLER_NOT_FINITE)
        return cuda_not_finite(e, e->decode_past + e->n_taken - 1, true, (uint32_t)slot->d.id,
                               slot->d.logprob, err);
    if (!gpu_sampler_result(slot, err))
        return false;
    *out = slot->d;
    e->last_token = out->id;
    base->n_past = e->decode_past + e->n_taken; // to sample it, those before it were evaluated
    e->n_taken++;
    return true;
}

static void engine_decode_stop(struct engine *base, size_t n_keep)
{
    struct cuda_engine *e = self(base);
    if (!e->decoding)
        return;
    if (enter(e, &e->failure)) // what fails here the next call tells
        wait_stream(e, &e->failure);
    e->decoding = false;
    base->n_past = n_keep < base->n_past ? n_keep : base->n_past;
    e->logits_want = LOGITS_NONE;
}

// ---- the KV cache in and out

static size_t engine_kv_bytes(const struct engine *base, size_t begin, size_t end)
{
    return cuda_kv_bytes((const struct cuda_engine *)base, begin, end);
}

static bool engine_kv_export(struct engine *base, size_t begin, size_t end, void *dst,
                             struct error *err)
{
    if (!cuda_begin(self(base), "kv_export", err))
        return false;
    if (begin > end || end > base->n_past)
        return error_set(err, ERR_FAIL, "KV rows %zu to %zu: the timeline has %zu", begin, end,
                         base->n_past);
    return begin == end ||
           cuda_kv_copy(self(base), self(base)->kv_table, begin, end, (uint8_t *)dst, true, err);
}

static bool engine_kv_import(struct engine *base, size_t begin, size_t end, const void *src,
                             struct error *err)
{
    if (!cuda_begin(self(base), "kv_import", err))
        return false;
    if (begin != base->n_past || end < begin || end > base->n_ctx)
        return error_set(err, ERR_FAIL, "KV rows %zu to %zu after %zu tokens in a context of %u",
                         begin, end, base->n_past, base->n_ctx);
    if (begin != end &&
        !cuda_kv_copy(self(base), self(base)->kv_table, begin, end, (uint8_t *)src, false, err))
        return false;
    base->n_past = end;
    self(base)->logits_want = LOGITS_NONE;
    return true;
}

// ---- what the device can do

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

static double median(float *v, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && v[j] < v[j - 1]; j--) {
            float t = v[j];
            v[j] = v[j - 1];
            v[j - 1] = t;
        }
    return v[n / 2];
}

struct peak_buffers {
    uint8_t *a, *b;
    size_t n_bytes; // each
    cudaEvent_t begin, end;
};

static bool time_copy(struct cuda_engine *e, const struct peak_buffers *m, float *ms,
                      struct error *err)
{
    return CHECK_CUDA(cudaEventRecord(m->begin, e->q.stream), err) &&
           CHECK_CUDA(
               cudaMemcpyAsync(m->b, m->a, m->n_bytes, cudaMemcpyDeviceToDevice, e->q.stream),
               err) &&
           CHECK_CUDA(cudaEventRecord(m->end, e->q.stream), err) && wait_stream(e, err) &&
           CHECK_CUDA(cudaEventElapsedTime(ms, m->begin, m->end), err);
}

// C (n, n) = A B in float16 with float32 sums: A and B in m->a, C in m->b.
static bool time_product(struct cuda_engine *e, const struct peak_buffers *m, int n, float *ms,
                         struct error *err)
{
    const float one = 1.0f, zero = 0.0f;
    const __half *a = (const __half *)m->a, *b = a + (size_t)n * n;
    if (!CHECK_CUDA(cudaEventRecord(m->begin, e->q.stream), err))
        return false;
    cublasStatus_t s = cublasGemmEx(e->q.blas, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &one, a,
                                    CUDA_R_16F, n, b, CUDA_R_16F, n, &zero, m->b, CUDA_R_32F, n,
                                    CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (s != CUBLAS_STATUS_SUCCESS)
        return error_set(err, ERR_FAIL, "cuBLAS: %s", cublasGetStatusString(s));
    return CHECK_CUDA(cudaEventRecord(m->end, e->q.stream), err) && wait_stream(e, err) &&
           CHECK_CUDA(cudaEventElapsedTime(ms, m->begin, m->end), err);
}

// The clocks under load: behind copies that take longer than asking.
static bool read_clocks(struct cuda_engine *e, const struct peak_buffers *m,
                        struct engine_peaks *out, struct error *err)
{
    size_t n = lesser(((size_t)1 << 37) / m->n_bytes, (size_t)200);
    for (size_t i = 0; i < n; i++)
        if (!CHECK_CUDA(
                cudaMemcpyAsync(m->b, m->a, m->n_bytes, cudaMemcpyDeviceToDevice, e->q.stream),
                err))
            return false;
    cuda_clocks(e->params.device_index, out);
    return wait_stream(e, err);
}

// The operands are filled with the bits of weights: zeros would run faster than real data.
static bool engine_measure(struct engine *base, struct engine_peaks *out, struct error *err)
{
    enum { RUNS = 7 };
    struct cuda_engine *e = self(base);
    struct peak_buffers m = {};
    struct error no_blas = {};
    size_t mem_free = 0, mem_total = 0, weights = e->weights.size;
    const struct wmat *first = &e->tok_embd; // lies at the arena's beginning
    size_t bits = cuda_layout_bytes(first->type, first->rows, first->n_cols);
    float ms[RUNS];
    int n = 256;
    bool ok = false;
    *out = {};
    if (!cuda_begin(e, "measure", err) || !CHECK_CUDA(cudaMemGetInfo(&mem_free, &mem_total), err))
        return false;
    // large, but for a small model not a thousand copies of it
    m.n_bytes = lesser(lesser(mem_free / 4, (size_t)1 << 31), weights * 64) / 4096 * 4096;
    while (n < 8192 && (size_t)n * n * 16 <= m.n_bytes)
        n *= 2;
    if (!CHECK_CUDA(cudaEventCreate(&m.begin), err) || !CHECK_CUDA(cudaEventCreate(&m.end), err) ||
        !CHECK_CUDA(cudaMalloc(&m.a, m.n_bytes), err) ||
        !CHECK_CUDA(cudaMalloc(&m.b, m.n_bytes), err))
        goto done;
    for (size_t at = 0; at < m.n_bytes; at += bits)
        if (!CHECK_CUDA(cudaMemcpyAsync(m.a + at, e->weights.base, lesser(m.n_bytes - at, bits),
                                        cudaMemcpyDeviceToDevice, e->q.stream),
                        err))
            goto done;
    for (int i = -2; i < RUNS; i++) // two to warm up
        if (!time_copy(e, &m, &ms[i < 0 ? 0 : i], err))
            goto done;
    out->bandwidth = 2.0 * (double)m.n_bytes / (median(ms, RUNS) * 1e-3);
    snprintf(out->bandwidth_how, sizeof out->bandwidth_how, "copy of %.1f GB, read + written",
             (double)m.n_bytes * 1e-9);
    if (!read_clocks(e, &m, out, err))
        goto done;
    if (!cuda_blas_open(e, &no_blas)) {
        snprintf(out->matrix_how, sizeof out->matrix_how, "%.*s", (int)sizeof out->matrix_how - 1,
                 no_blas.text);
    } else {
        for (int i = -2; i < RUNS; i++)
            if (!time_product(e, &m, n, &ms[i < 0 ? 0 : i], err))
                goto done;
        out->matrix_flops = 2.0 * n * n * n / (median(ms, RUNS) * 1e-3);
        snprintf(out->matrix_how, sizeof out->matrix_how, "float16 product of %d x %d matrices", n,
                 n);
    }
    ok = true;
done:
    cudaFree(m.a);
    cudaFree(m.b);
    if (m.begin)
        cudaEventDestroy(m.begin);
    if (m.end)
        cudaEventDestroy(m.end);
    return ok;
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
    if (e->q.blas)
        cublasDestroy(e->q.blas);
    cudaFree(e->weights.base);
    cudaFree(e->kv.base);
    cudaFree(e->work.base);
    cudaFreeHost(e->host_step);
    cudaFreeHost(e->host_tokens);
    cudaFreeHost(e->sampler.ring);
    if (e->q.stream)
        cudaStreamDestroy(e->q.stream);
    free(e->kv_table);
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
    return CHECK_CUDA(cudaMallocHost(&e->host_step, sizeof *e->host_step), err) &&
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
    e->q.dependent = d->major >= 9;
    e->q.hopper = d->major == 9;
    return CHECK_CUDA(cudaStreamCreateWithFlags(&e->q.stream, cudaStreamNonBlocking), err) &&
           CHECK_CUDA(cudaEventCreateWithFlags(&e->pace[0], cudaEventDisableTiming), err) &&
           CHECK_CUDA(cudaEventCreateWithFlags(&e->pace[1], cudaEventDisableTiming), err);
}

static const struct engine_ops ops = {
    engine_eval,        engine_trim,        engine_logits,   engine_decode_start,
    engine_decode_next, engine_decode_stop, engine_kv_bytes, engine_kv_export,
    engine_kv_import,   engine_measure,     cuda_profile,    engine_free_cuda,
};

extern "C" struct engine *cuda_engine_open(const struct model *m, const struct engine_params *p,
                                           struct error *err)
{
    struct device d;
    struct engine_plan plan;
    if (!cuda_device_select(p->device_index, &d, err) || !check_shape(m, &d, err) ||
        !make_plan(m, p, &d, &plan))
        return NULL;
    if (!plan.fits) {
        does_not_fit(&plan, d.name, err);
        return NULL;
    }
    struct cuda_engine *e = (struct cuda_engine *)calloc(1, sizeof *e);
    if (!e || !(e->layers = (struct gpu_layer *)calloc(m->hp.n_layer, sizeof *e->layers))) {
        free(e);
        error_oom(err, "the engine", m->hp.n_layer * sizeof *e->layers);
        return NULL;
    }
    e->base.ops = &ops;
    e->base.model = m;
    e->base.n_ctx = plan.n_ctx;
    e->base.n_batch = p->n_batch ? p->n_batch : 512;
    if (e->base.n_batch > e->base.n_ctx)
        e->base.n_batch = e->base.n_ctx;
    snprintf(e->base.device, sizeof e->base.device, "%.*s", (int)sizeof e->base.device - 1, d.name);
    snprintf(e->base.kv_format, sizeof e->base.kv_format, "cuda3 k=%s v=%s",
             p->type_k == KV_F16 ? "f16" : "q8_0", p->type_v == KV_F16 ? "f16" : "q8_0");
    e->hp = m->hp;
    e->largest = model_largest(m);
    e->params = *p;
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        double n = 0;
        for (int k = 0; k < N_LAYER_WEIGHTS; k++)
            n += (double)m->layers[i].w[k].rows * m->layers[i].w[k].n_cols;
        e->layer_weights = n > e->layer_weights ? n : e->layer_weights;
    }
    if (!open_queue(e, &d, err) || !take_memory(e, m, err) || !cuda_kv_open(e, err) ||
        !cuda_load(e, m, err) || !capture_step(e, false, err) || !capture_step(e, true, err) ||
        !load_kernels(e, err) || !wait_stream(e, err)) {
        engine_free_cuda(&e->base);
        return NULL;
    }
    size_t mem_free = 0, mem_total = 0;
    cudaMemGetInfo(&mem_free, &mem_total);
    e->base.mem_total = d.total;
    e->base.mem_used = d.free > mem_free ? d.free - mem_free : 0;
    return &e->base;
}
