// What the kernels of gated delta nets share.
#ifndef HOKKU_CUDA_DELTA_CUH
#define HOKKU_CUDA_DELTA_CUH

#include "states.cuh"

// Where the inputs of a head are.
struct head_inputs {
    uint32_t key;             // of its queries and keys
    uint32_t beta, alpha, ld; // in a row of betas and alphas
};

static __device__ __forceinline__ struct head_inputs inputs_of(const struct delta_rows &d,
                                                               uint32_t head)
{
    const uint32_t shared = d.delta.n_head / d.delta.n_key_head;
    struct head_inputs h = {d.delta.in_order ? head / shared : head % d.delta.n_key_head, head,
                            head, d.delta.n_head};
    if (d.paired) {
        h.beta = h.key * 2 * shared + head % shared;
        h.alpha = h.beta + shared;
        h.ld = 2 * d.delta.n_head;
    }
    return h;
}

static __device__ __forceinline__ float2 load_gates(const struct delta_rows &d,
                                                    const struct head_inputs &h, uint32_t row)
{
    return make_float2(d.beta[(size_t)row * h.ld + h.beta], d.alpha[(size_t)row * h.ld + h.alpha]);
}

// f of the integral constant n, of the widths of heads that chunks are for (delta_can_chunk).
template <typename F> static bool with_chunk_width(uint32_t n, F f)
{
    return n == 32    ? f(std::integral_constant<int, 32>())
           : n == 64  ? f(std::integral_constant<int, 64>())
           : n == 128 ? f(std::integral_constant<int, 128>())
                      : false;
}

#endif
