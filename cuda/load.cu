// Weights from the file to the device: reader threads fill a few pinned buffers ahead of the
// copies, the copies overlap with each other's repacking, and nothing of the file stays in host
// memory. Only the calling thread talks to CUDA.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread.h"
#include "engine_impl.h"

// Small buffers: to pin one for the device takes as long as to fill it, so who fills it first does.
enum {
    N_BUFFER = 12,
    N_READER = 8,
    BUFFER_BYTES = 4 << 20,
};

// Rows of one matrix that fit a buffer.
struct job {
    const struct weight *from;
    const struct wmat *to;
    uint64_t row0; // in the file
    uint32_t to_row, n_rows;
    uint64_t n_bytes;
};

enum buffer_state { BUFFER_FREE, BUFFER_FILLING, BUFFER_FULL, BUFFER_COPYING };

struct buffer {
    enum buffer_state state;
    size_t job;
    uint8_t *host;   // pinned; NULL: not yet
    uint8_t *device; // staging
    cudaEvent_t copied;
};

struct loader {
    const struct gguf *gguf;
    int *fds; // per file of a split model; -1: read through the mapping
    struct job *jobs;
    size_t n_jobs, next_job;
    struct buffer buffers[N_BUFFER];
    uint8_t *staging; // device memory of all buffers
    uint64_t buffer_bytes;
    int device_index;
    struct queue q; // with a stream of its own: others launch meanwhile
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    struct error err; // of a reader
};

// ---- jobs

static uint64_t buffer_bytes(const struct model *m)
{
    // at least a tile of the longest row, at most what the largest matrix needs
    uint64_t tile = 0, largest = 0;
    for (size_t i = 0; i < gguf_n_tensors(m->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->gguf, i);
        uint64_t rows = 1;
        for (uint32_t d = 1; d < t->n_dims; d++)
            rows *= t->ne[d];
        uint64_t row = rows ? t->n_bytes / rows : 0;
        tile = row * TILE_ROWS > tile ? row * TILE_ROWS : tile;
        largest = t->n_bytes > largest ? t->n_bytes : largest;
    }
    uint64_t n = lesser(largest, (uint64_t)BUFFER_BYTES);
    n = n > tile ? n : tile;
    return (n + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN;
}

uint64_t cuda_load_bytes(const struct model *m)
{
    return N_BUFFER * buffer_bytes(m);
}

// Appends the slices of one matrix, or of a stack of them; with jobs NULL only counts.
static size_t add_jobs(struct job *jobs, size_t n, const struct weight *from, const struct wmat *to,
                       uint64_t max_bytes)
{
    uint64_t row = quant_row_bytes(from->type, from->n_cols);
    uint64_t step = max_bytes / row / TILE_ROWS * TILE_ROWS;
    uint64_t n_stacked = from->n_stacked ? from->n_stacked : 1, n_rows = from->rows;
    const uint64_t file_row = from->row_stride ? from->row_stride : row;
    const uint64_t each =
        from->n_stacked ? from->stack_bytes / file_row : n_rows; // rows in the file
    if (n_rows % TILE_ROWS == 0 && each == n_rows) { // whole tiles: the stack is one matrix
        n_rows *= n_stacked;
        n_stacked = 1;
    }
    for (uint64_t i = 0; i < n_stacked; i++)
        for (uint64_t r = 0; r < n_rows; r += step) {
            uint64_t rows = n_rows - r < step ? n_rows - r : step;
            if (jobs)
                jobs[n] = {from,           to,
                           i * each + r,   (uint32_t)(i * to->n_tile * TILE_ROWS + r),
                           (uint32_t)rows, rows * row};
            n++;
        }
    return n;
}

static size_t list_jobs(const struct cuda_engine *e, const struct model *m, uint64_t max_bytes,
                        struct job *jobs)
{
    size_t n = 0;
    if (!cuda_shares(m, &m->tok_embd))
        n = add_jobs(jobs, n, &m->tok_embd, &e->tok_embd, max_bytes);
    if (!m->tied && !cuda_shares(m, &m->output))
        n = add_jobs(jobs, n, &m->output, &e->output, max_bytes);
    if (m->predicts_for)
        n = add_jobs(jobs, n, &m->joint, &e->prediction.joint, max_bytes);
    if (m->token_layers.data) {
        n = add_jobs(jobs, n, &m->token_layers, &e->token_layers, max_bytes);
        n = add_jobs(jobs, n, &m->token_layers_proj, &e->token_layers_proj, max_bytes);
    }
    if (m->hp.n_side > 0) {
        n = add_jobs(jobs, n, &m->altup_proj, &e->altup_proj, max_bytes);
        n = add_jobs(jobs, n, &m->altup_unembd_proj, &e->altup_unembd_proj, max_bytes);
    }
    for (uint32_t i = 0; i < e->hp.n_layer; i++) {
        const struct layer *from = &m->layers[i];
        const struct gpu_layer *to = &e->layers[i];
        for (int k = 0; k < N_LAYER_WEIGHTS; k++)
            if (from->w[k].data && !from->w[k].vector)
                n = add_jobs(jobs, n, &from->w[k], &to->w[k], max_bytes);
    }
    return n;
}

// ---- readers

// n bytes of the tensor from src on, its mapped bytes.
static bool read_bytes(const struct loader *l, const struct gguf_tensor *t, const uint8_t *src,
                       uint64_t n_bytes, uint8_t *dst, struct error *err)
{
    int fd = t && l->fds ? l->fds[t->file] : -1;
    if (fd < 0) {
        memcpy(dst, src, n_bytes);
        return true;
    }
    // The matrix may begin anywhere in its tensor.
    uint64_t at = t->offset + (uint64_t)(src - (const uint8_t *)t->data), done = 0;
    while (done < n_bytes) {
        ssize_t n = pread(fd, dst + done, n_bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return error_set(err, ERR_FAIL, "reading tensor %.*s: %s", (int)t->name.len,
                             t->name.data,
                             n < 0 ? strerror(errno) : "the file ended before the tensor did");
        done += (uint64_t)n;
    }
    return true;
}

// Where row i of a matrix is in the file, and how many follow it there, at most n.
static uint64_t row_in_file(const struct weight *w, uint64_t i, uint64_t *n)
{
    for (uint32_t k = 0; k < w->n_row_runs; k++) {
        const struct weight_run r = w->row_runs[k];
        if (i < r.n) {
            *n = lesser(*n, r.n - i);
            return r.begin + i;
        }
        i -= r.n;
    }
    return i;
}

// The columns that a matrix has of the row at src.
static bool read_columns(const struct loader *l, const struct weight *w, const uint8_t *src,
                         uint8_t *dst, struct error *err)
{
    bool ok = true;
    if (w->n_col_runs == 0)
        return read_bytes(l, w->tensor, src, quant_row_bytes(w->type, w->n_cols), dst, err);
    for (uint32_t i = 0; ok && i < w->n_col_runs; i++) {
        const uint64_t n = quant_row_bytes(w->type, w->col_runs[i].n);
        ok = read_bytes(l, w->tensor, src + quant_row_bytes(w->type, w->col_runs[i].begin), n, dst,
                        err);
        dst += n;
    }
    return ok;
}

static bool read_job(const struct loader *l, const struct job *j, uint8_t *dst, struct error *err)
{
    const struct weight *w = j->from;
    const uint64_t row = quant_row_bytes(w->type, w->n_cols);
    const uint8_t *src = (const uint8_t *)w->data;
    bool ok = true;
    for (uint64_t i = 0, n; ok && i < j->n_rows; i += n, dst += n * row) {
        n = w->row_stride ? 1 : j->n_rows - i; // some columns: row by row
        const uint64_t at = row_in_file(w, j->row0 + i, &n);
        ok = w->row_stride ? read_columns(l, w, src + at * w->row_stride, dst, err)
                           : read_bytes(l, w->tensor, src + at * row, n * row, dst, err);
    }
    return ok;
}

static bool pin(const struct loader *l, struct buffer *b, struct error *err)
{
    return b->host || (CHECK_CUDA(cudaSetDevice(l->device_index), err) &&
                       CHECK_CUDA(cudaMallocHost(&b->host, l->buffer_bytes), err));
}

static void *reader(void *user)
{
    struct loader *l = (struct loader *)user;
    pthread_mutex_lock(&l->lock);
    while (!l->stop && l->next_job < l->n_jobs) {
        struct buffer *b = NULL;
        for (int i = 0; i < N_BUFFER && !b; i++)
            if (l->buffers[i].state == BUFFER_FREE)
                b = &l->buffers[i];
        if (!b) {
            pthread_cond_wait(&l->changed, &l->lock);
            continue;
        }
        b->state = BUFFER_FILLING;
        b->job = l->next_job++;
        pthread_mutex_unlock(&l->lock);
        struct error err = {};
        bool ok = pin(l, b, &err) && read_job(l, &l->jobs[b->job], b->host, &err);
        pthread_mutex_lock(&l->lock);
        b->state = BUFFER_FULL;
        if (!ok && !l->stop) {
            l->err = err;
            l->stop = true;
        }
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

// ---- copies

// Waits for a full buffer (returned) or, when all are on their way to the device, frees the one
// that has been longest.
static struct buffer *next_full(struct loader *l, size_t *oldest_copy, struct error *err)
{
    for (;;) {
        pthread_mutex_lock(&l->lock);
        struct buffer *full = NULL, *copying = NULL;
        for (int i = 0; i < N_BUFFER && !full; i++)
            if (l->buffers[i].state == BUFFER_FULL)
                full = &l->buffers[i];
        for (int i = 0; i < N_BUFFER && !full && !copying; i++) {
            struct buffer *b = &l->buffers[(*oldest_copy + i) % N_BUFFER];
            if (b->state == BUFFER_COPYING)
                copying = b;
        }
        if (l->stop) {
            *err = l->err;
            full = copying = NULL;
        } else if (!full && !copying) {
            pthread_cond_wait(&l->changed, &l->lock);
            pthread_mutex_unlock(&l->lock);
            continue;
        }
        pthread_mutex_unlock(&l->lock);
        if (!copying)
            return full;
        if (!CHECK_CUDA(cudaEventSynchronize(copying->copied), err))
            return NULL;
        *oldest_copy = (size_t)(copying - l->buffers + 1) % N_BUFFER;
        pthread_mutex_lock(&l->lock);
        copying->state = BUFFER_FREE;
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
    }
}

static bool copy_all(struct cuda_engine *e, struct loader *l, struct error *err)
{
    uint64_t total = 0, done = 0;
    size_t oldest_copy = 0;
    for (size_t i = 0; i < l->n_jobs; i++)
        total += l->jobs[i].n_bytes;
    for (size_t i = 0; i < l->n_jobs; i++) {
        struct buffer *b = next_full(l, &oldest_copy, err);
        if (!b || interrupted(e, err))
            return false;
        const struct job *j = &l->jobs[b->job];
        if (!CHECK_CUDA(cudaMemcpyAsync(b->device, b->host, j->n_bytes, cudaMemcpyHostToDevice,
                                        l->q.stream),
                        err) ||
            !repack_launch(&l->q, j->from->type, b->device, j->to, j->to_row, j->n_rows, err) ||
            !CHECK_CUDA(cudaEventRecord(b->copied, l->q.stream), err))
            return false;
        pthread_mutex_lock(&l->lock);
        b->state = BUFFER_COPYING;
        pthread_mutex_unlock(&l->lock);
        done += j->n_bytes;
        if (e->params.progress)
            e->params.progress(e->params.progress_user, done, total);
    }
    return CHECK_CUDA(cudaStreamSynchronize(l->q.stream), err);
}

// In the stream, since a plain copy from pageable memory may end after the call has returned.
static bool copy_vector(const struct queue *q, const float *to, const float *from, uint32_t n,
                        struct error *err)
{
    return CHECK_CUDA(
        cudaMemcpyAsync((void *)to, from, n * sizeof(float), cudaMemcpyHostToDevice, q->stream),
        err);
}

// (n) ones.
static bool copy_ones(const struct queue *q, const float *to, uint32_t n, struct error *err)
{
    const float one = 1.0f;
    bool ok = true;
    for (uint32_t i = 0; ok && i < n; i++)
        ok = copy_vector(q, to + i, &one, 1, err);
    return ok;
}

// (n) 0, 1, 2, ...
static bool copy_order(const struct queue *q, uint32_t *to, uint32_t n, struct error *err)
{
    uint32_t *const order = (uint32_t *)malloc(n * sizeof(uint32_t));
    if (!order)
        return error_oom(err, "an order of blocks", n * sizeof(uint32_t));
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    const bool ok = CHECK_CUDA(cudaMemcpyAsync(to, order, n * sizeof(uint32_t),
                                               cudaMemcpyHostToDevice, q->stream),
                               err) &&
                    CHECK_CUDA(cudaStreamSynchronize(q->stream), err); // before it is freed
    free(order);
    return ok;
}

// What the kernels take vector w of a layer times: the router's norm by what it is divided by
// (struct experts); a bias of what is added to x by residual_scale, since they scale the product
// alone.
static float vector_scale(const struct hparams *hp, const struct layer *from, int w)
{
    const bool ends = (w == ATTN_OUTPUT_BIAS && !from->w[ATTN_POST_NORM].data) ||
                      (w == FFN_DOWN_BIAS && !from->w[FFN_POST_NORM].data);
    return w == ROUTER_NORM ? 1.0f / sqrtf((float)hp->n_embd) : ends ? hp->residual_scale : 1.0f;
}

static bool copy_layer_vector(const struct cuda_engine *e, const struct layer *from,
                              const struct gpu_layer *to, int w, struct error *err)
{
    const float scale = vector_scale(&e->hp, from, w);
    const float *v = layer_vector(from, (enum layer_weight)w);
    const uint32_t n = from->w[w].n_cols;
    if (scale == 1.0f)
        return copy_vector(&e->q, to->v[w], v, n, err);
    float *scaled = (float *)malloc(n * sizeof *scaled);
    if (!scaled)
        return error_oom(err, from->w[w].name, n * sizeof *scaled);
    for (uint32_t i = 0; i < n; i++)
        scaled[i] = v[i] * scale;
    const bool ok = copy_vector(&e->q, to->v[w], scaled, n, err) &&
                    CHECK_CUDA(cudaStreamSynchronize(e->q.stream), err); // before it is freed
    free(scaled);
    return ok;
}

static bool copy_vectors(struct cuda_engine *e, const struct model *m, struct error *err)
{
    const struct hparams *hp = &e->hp;
    const size_t n_bytes = (e->largest.rope_dim / 2 + 1) * sizeof(float);
    float *freqs = (float *)malloc(n_bytes);
    if (!freqs)
        return error_oom(err, "the rotation frequencies", n_bytes);
    bool ok =
        copy_vector(&e->q, e->output_norm, (const float *)m->output_norm.data, hp->n_embd, err) &&
        (!e->output_norm_bias ||
         copy_vector(&e->q, e->output_norm_bias, (const float *)m->output_norm_bias.data,
                     hp->n_embd, err)) &&
        (!e->output_bias || copy_vector(&e->q, e->output_bias, (const float *)m->output_bias.data,
                                        m->output_bias.n_cols, err)) &&
        (!e->positions || copy_vector(&e->q, e->positions, (const float *)m->pos_embd.data,
                                      m->pos_embd.rows * m->pos_embd.n_cols, err)) &&
        (!e->token_layers_norm ||
         copy_vector(&e->q, e->token_layers_norm, (const float *)m->token_layers_norm.data,
                     hp->n_embd_layer, err)) &&
        (!m->predicts_for ||
         (copy_vector(&e->q, e->prediction.embd_norm, (const float *)m->join_embd_norm.data,
                      hp->n_embd, err) &&
          copy_vector(&e->q, e->prediction.hidden_norm, (const float *)m->join_hidden_norm.data,
                      hp->n_embd, err))) &&
        (!e->ones || copy_ones(&e->q, e->ones, e->largest.head_dim, err)) &&
        (!e->latent.in_order ||
         copy_order(&e->q, e->latent.in_order, kv_blocks(e->base.n_ctx), err));
    for (uint32_t i = 0; ok && i < m->n_rope; i++) {
        struct rope_table *t = &e->ropes.t[i];
        model_rope_freqs(&m->ropes[i], e->base.n_ctx, freqs, &t->magnitude);
        ok = copy_vector(&e->q, t->freqs, freqs, t->n_pair, err);
    }
    for (uint32_t i = 0; ok && i < hp->n_layer; i++) {
        const struct layer *from = &m->layers[i];
        const struct gpu_layer *to = &e->layers[i];
        for (int k = 0; ok && k < N_LAYER_WEIGHTS; k++)
            if (to->v[k])
                ok = copy_layer_vector(e, from, to, k, err);
        for (int k = 0; ok && k < N_LAYER_WEIGHTS; k++)
            ok = !from->w[k].scale_each ||
                 copy_vector(&e->q, to->w[k].scales, from->w[k].scale, from->w[k].n_stacked, err);
    }
    free(freqs);
    return ok;
}

// The file that the model was opened from, for reading without mapping its pages; -1 when it cannot
// be had: an image in memory, a file that was replaced since. Then the mapping is read.
static int open_same_file(const struct gguf *g, size_t i)
{
    uint8_t head[4096];
    uint64_t size = gguf_file_bytes(g, i), n = size < sizeof head ? size : sizeof head;
    struct stat st;
    int fd = gguf_file_path(g, i) ? open(gguf_file_path(g, i), O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == size &&
        pread(fd, head, n, 0) == (ssize_t)n && memcmp(head, gguf_file_map(g, i), n) == 0)
        return fd;
    close(fd);
    return -1;
}

// The driver loads kernels when they are first launched, which takes about as long as to copy a
// small model: meanwhile. What is launched becomes a graph that is thrown away, since it lacks what
// is known of the weights afterwards.
static void *warm_up(void *user)
{
    struct cuda_engine *e = (struct cuda_engine *)user;
    struct error err = {}; // told by who launches in earnest
    bool ok = CHECK_CUDA(cudaSetDevice(e->params.device_index), &err);
    for (int waits = 0; ok && waits < 2; waits++) {
        cudaGraph_t graph;
        e->sampler.waits = waits;
        ok = cuda_capture(
            e, &graph, [&] { return cuda_enqueue_step(e, &err); }, &err);
        if (graph)
            cudaGraphDestroy(graph);
    }
    if (ok)
        cuda_load_kernels(e, &err);
    return NULL;
}

bool cuda_load(struct cuda_engine *e, const struct model *m, struct error *err)
{
    struct loader l = {};
    pthread_t readers[N_READER], warmer;
    bool warms = false;
    size_t n_files = gguf_n_files(m->gguf), n_reader = 0, n_buffer = 0;
    bool ok = false;
    l.gguf = m->gguf;
    l.buffer_bytes = buffer_bytes(m);
    l.device_index = e->params.device_index;
    l.q = e->q;
    l.q.stream = NULL;
    pthread_mutex_init(&l.lock, NULL);
    pthread_cond_init(&l.changed, NULL);

    l.n_jobs = list_jobs(e, m, l.buffer_bytes, NULL);
    l.jobs = (struct job *)calloc(l.n_jobs, sizeof *l.jobs);
    l.fds = (int *)calloc(n_files + 1, sizeof *l.fds);
    if (!l.jobs || !l.fds) {
        error_oom(err, "the list of weights", l.n_jobs * sizeof *l.jobs);
        goto done;
    }
    list_jobs(e, m, l.buffer_bytes, l.jobs);
    for (size_t i = 0; i < n_files; i++)
        l.fds[i] = open_same_file(m->gguf, i);
    warms = thread_start(&warmer, 0, warm_up, e) == 0; // takes the longest: before the buffers
    if (!CHECK_CUDA(cudaStreamCreateWithFlags(&l.q.stream, cudaStreamNonBlocking), err) ||
        !CHECK_CUDA(cudaMalloc(&l.staging, N_BUFFER * l.buffer_bytes), err))
        goto done;
    for (; n_buffer < N_BUFFER; n_buffer++) {
        struct buffer *b = &l.buffers[n_buffer];
        b->device = l.staging + n_buffer * l.buffer_bytes;
        if (!CHECK_CUDA(cudaEventCreateWithFlags(&b->copied,
                                                 cudaEventDisableTiming | cudaEventBlockingSync),
                        err))
            goto done;
    }
    for (; n_reader < N_READER; n_reader++)
        if (thread_start(&readers[n_reader], 0, reader, &l) != 0)
            break;
    if (n_reader == 0) {
        error_set(err, ERR_FAIL, "no thread could be started to read the weights");
        goto done;
    }
    ok = copy_all(e, &l, err);

done:
    if (warms)
        pthread_join(warmer, NULL);
    ok = ok && copy_vectors(e, m, err) && cuda_measure_ranges(e, m, err);
    pthread_mutex_lock(&l.lock);
    l.stop = true;
    pthread_cond_broadcast(&l.changed);
    pthread_mutex_unlock(&l.lock);
    for (size_t i = 0; i < n_reader; i++)
        pthread_join(readers[i], NULL);
    if (l.q.stream) { // copies from the buffers may still be under way
        cudaStreamSynchronize(l.q.stream);
        cudaStreamDestroy(l.q.stream);
    }
    for (size_t i = 0; i < n_buffer; i++) {
        cudaEventDestroy(l.buffers[i].copied);
        cudaFreeHost(l.buffers[i].host);
    }
    cudaFree(l.staging);
    for (size_t i = 0; l.fds && i < n_files; i++)
        if (l.fds[i] >= 0)
            close(l.fds[i]);
    pthread_cond_destroy(&l.changed);
    pthread_mutex_destroy(&l.lock);
    free(l.fds);
    free(l.jobs);
    return ok;
}
