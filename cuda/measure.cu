// engine_measure: the bandwidth of copies and the rate of matrix products, by events around them.
#include <stdio.h>

#include "engine_impl.h"

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
           CHECK_CUDA(cudaEventRecord(m->end, e->q.stream), err) && cuda_wait(e, err) &&
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
    return CHECK_CUDA(cudaEventRecord(m->end, e->q.stream), err) && cuda_wait(e, err) &&
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
    return cuda_wait(e, err);
}

// The operands are filled with the bits of weights: zeros would run faster than real data.
bool cuda_measure(struct engine *base, struct engine_peaks *out, struct error *err)
{
    enum { RUNS = 7 };
    struct cuda_engine *e = (struct cuda_engine *)base;
    struct peak_buffers m = {};
    struct error no_blas = {};
    size_t mem_free = 0, mem_total = 0, weights = e->weights.size;
    const struct wmat *first = &e->tok_embd; // lies at the arena's beginning
    size_t bits = cuda_layout_bytes(first->type, first->rows, first->n_cols);
    float ms[RUNS];
    int n = 256;
    bool ok = false;
    if (!cuda_begin(e, err) || !CHECK_CUDA(cudaMemGetInfo(&mem_free, &mem_total), err))
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
