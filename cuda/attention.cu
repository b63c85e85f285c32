// What the two attention kernels (attention_decode.cu, attention_prefill.cu) need together.
#include "attention.cuh"

enum {
    THREADS = 256,
};

// Grid (n, 2): the queries of a row, and its keys.
static __global__ void __launch_bounds__(THREADS)
    norm_whole_kernel(const __grid_constant__ struct attention a)
{
    __shared__ float part[THREADS / WARP];
    const bool is_k = blockIdx.y == 1;
    const uint32_t n = (is_k ? a.n_head_kv : a.n_head) * a.head_dim;
    const float *norm = is_k ? a.k_norm : a.q_norm;
    float *row =
        is_k ? a.k_in + (size_t)blockIdx.x * a.ld_kv : a.q_in + (size_t)blockIdx.x * a.ld_q;
    griddep_launch_dependents();
    griddep_wait();
    if (a.skip && *a.skip)
        return;
    // queries may have gates between them
    auto at = [&](uint32_t i) {
        return is_k ? row + i : row + i / a.head_dim * query_stride(&a) + i % a.head_dim;
    };
    float sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        sum = fmaf(*at(i), *at(i), sum);
    const float rms = 1.0f / sqrtf(of_squares(block_sum(sum, part) / (float)n + a.eps));
    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        *at(i) = *at(i) * rms * norm[i];
}

bool attention_norm_whole(const struct queue *q, const struct attention *a, uint32_t n,
                          struct attention *rest, struct error *err)
{
    *rest = *a;
    if (!a->norm_whole)
        return true;
    rest->q_norm = rest->k_norm = NULL;
    struct launch l = {.name = "norm_whole",
                       .grid = dim3(n, a->cached ? 1 : 2),
                       .block = dim3(THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return launch_kernel(err, l, norm_whole_kernel, *a);
}

uint32_t attention_padded_dim(uint32_t head_dim)
{
    uint32_t padded = 0;
    with_head_dim(head_dim, [&](auto dim) {
        padded = decltype(dim)::value;
        return true;
    });
    return padded;
}

size_t attention_smem(uint32_t head_dim)
{
    struct attention_wide_scratch wide;
    if (head_dim > ATTENTION_NARROW_HEAD_DIM)
        return attention_wide_scratch(1, head_dim, head_dim, false, 1, &wide) ? wide.smem : 0;
    size_t decode = attention_decode_smem(head_dim), prefill = attention_prefill_smem(head_dim);
    return decode > prefill ? decode : prefill;
}

void attention_scratch(int n_sm, uint32_t n_head, uint32_t n_head_kv, uint32_t head_dim,
                       uint32_t n_batch, uint32_t n_seq, struct attention_scratch *out)
{
    struct attention_scratch decode = {}, prefill = {};
    attention_decode_scratch(n_sm, n_head, n_head_kv, head_dim, n_seq, &decode);
    attention_prefill_scratch(n_sm, n_head, head_dim, n_batch, &prefill);
    out->partial = decode.partial > prefill.partial ? decode.partial : prefill.partial;
    out->counters = decode.counters > prefill.counters ? decode.counters : prefill.counters;
    out->q_f16 = prefill.q_f16;
    out->n_split_rows = decode.n_split_rows;
    if (head_dim > ATTENTION_NARROW_HEAD_DIM)
        out->q_f16 = (size_t)n_batch * n_head * ATTENTION_MAX_HEAD_DIM * sizeof(__half);
}
