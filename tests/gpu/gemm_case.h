// A product of many columns on matrix units: inputs, packed, and scratch.
#ifndef HOKKU_TESTS_GPU_GEMM_CASE_H
#define HOKKU_TESTS_GPU_GEMM_CASE_H

#include <algorithm>

#include "products.h"

static inline struct weight_range range_of(const test_matrix &m, const float *norm = nullptr,
                                           const float *bias = nullptr)
{
    device_array<float> out(std::vector<float>{0.0f, 0.0f});
    must(weight_range_launch(&Q, &m.w, norm, bias, (struct weight_range *)out.p, &ERR));
    std::vector<float> v = out.get();
    return {v[0], v[1]};
}

// As the engine has it for these products: else tiny weights lose their bits.
static inline struct wmat with_half_scale(const test_matrix &m)
{
    struct wmat w = m.w;
    w.half_scale = w.type == QUANT_F16 ? 1.0f : half_range(range_of(m).top);
    return w;
}

// What the products of gemm_hopper.cu, gemm_few.cu and gemm_wide.cu share: a matrix, inputs,
// scratch.
enum {
    BY_WIDE = 2,  // packed as GEMM_PACKED
    FEW_LONG = 3, // as GEMM_FEW_PACKED, with long chunks
};

struct gemm_case {
    uint32_t n, n_cols, form; // GEMM_PACKED, GEMM_FEW_PACKED, BY_WIDE or FEW_LONG
    struct gemm_scratch sizes;
    std::vector<float> x;
    device_array<float> dx, undo, undo_gated;
    device_array<uint8_t> packed, partial, counters;

    static struct gemm_scratch scratch(void)
    {
        struct gemm_scratch s;
        gemm_scratch(Q.n_sm, &s);
        s.partial = std::max(s.partial, gemm_wide_partial(Q.n_sm));
        return s;
    }
    gemm_case(const std::vector<float> &x_, uint32_t n_, uint32_t n_cols_, uint32_t form_)
        : n(n_), n_cols(n_cols_), form(form_), sizes(scratch()), x(x_), dx(x.size()),
          undo(std::vector<float>(gemm_undo_room(n_))),
          undo_gated(std::vector<float>(gemm_undo_room(n_))), packed(gemm_few_bytes(n_, n_cols_)),
          partial(sizes.partial), counters(sizes.counters)
    {
        must(CHECK_CUDA(cudaMemsetAsync(counters.p, 0, counters.n, Q.stream), &ERR));
        pack(0.0f);
    }
    gemm_case(struct random_stream &r, uint32_t n_, uint32_t n_cols_, uint32_t form_ = GEMM_PACKED)
        : gemm_case(spread(r.floats((size_t)n_ * n_cols_), n_cols_), n_, n_cols_, form_)
    {
    }
    // From x; bound: of the row's results of MATVEC_GATED, were its values' mean square 1.
    void pack(float bound)
    {
        const uint32_t ld = is_few() ? (uint32_t)GEMM_FEW_PACKED : (uint32_t)GEMM_PACKED;
        struct act_f16 f16 = {(__half *)packed.p, ld, undo.p, bound, undo_gated.p};
        dx.put(x);
        packed.spoil(); // nothing may come of the rows beyond n
        must(act_launch(&Q, dx.p, n, n_cols, nullptr, 0, nullptr, nullptr, &f16, &ERR));
    }
    void launch(const struct gemm &g)
    {
        must(is_few()          ? gemm_few_launch(&Q, &g, &ERR)
             : form == BY_WIDE ? gemm_wide_launch(&Q, &g, &ERR)
                               : gemm_hopper_launch(&Q, &g, &ERR));
    }
    bool is_few(void) const
    {
        return form == GEMM_FEW_PACKED || form == FEW_LONG;
    }
    // Of a packed matrix.
    size_t at(uint32_t i, uint32_t k, uint32_t cols)
    {
        return is_few() ? gemm_few_at(n, i, k, cols) : gemm_pack_at(n, i, k);
    }
    // Whether there is such a product on this device.
    static bool can(bool few)
    {
        return few || Q.hopper;
    }
    struct gemm args(enum matvec_mode mode)
    {
        struct gemm g = {};
        g.mode = mode;
        g.n = n;
        g.long_chunks = form == FEW_LONG;
        g.x = (const __half *)packed.p;
        g.undo = undo.p;
        g.partial = (float *)partial.p;
        g.counters = (uint32_t *)counters.p;
        return g;
    }
    // Nothing is left for the next launch.
    void check_counters(void)
    {
        for (uint8_t b : counters.get())
            if (b) {
                check(false, "counters are not zero afterwards");
                break;
            }
    }
};

#endif
