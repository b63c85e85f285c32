// What tests of matrix products share: a plain product in double, and how far a kernel may be off.
#ifndef HOKKU_TESTS_GPU_PRODUCTS_H
#define HOKKU_TESTS_GPU_PRODUCTS_H

#include "gpu_test.h"

// Largest difference between got and want, relative to what rounding can explain: `unit` times the
// size of the sums that were added up.
static inline double worst(const std::vector<float> &got, const std::vector<double> &want,
                           const std::vector<double> &size)
{
    double w = 0;
    for (size_t i = 0; i < got.size(); i++) {
        double off = fabs(got[i] - want[i]) / (size[i] + 1e-30);
        if (!(off <= w))
            w = off;
    }
    return w;
}

struct product {
    std::vector<double> y, size; // (n_col, rows): the sum, and the size of a typical error of it
};

// size: sqrt(sum w^2) * max |x|, what independent errors of the activations scale with.
static inline product reference(const test_matrix &m, const std::vector<float> &x, uint32_t n_col)
{
    product p;
    uint32_t rows = m.w.rows, n = m.w.n_cols;
    for (uint32_t c = 0; c < n_col; c++) {
        double top = 0;
        for (uint32_t k = 0; k < n; k++)
            top = fmax(top, fabs(x[c * n + k]));
        for (uint32_t r = 0; r < rows; r++) {
            double y = 0, s = 0;
            for (uint32_t k = 0; k < n; k++) {
                double w = m.values[(size_t)r * n + k];
                y += w * x[c * n + k];
                s += w * w;
            }
            p.y.push_back(y);
            p.size.push_back(sqrt(s) * top);
        }
    }
    return p;
}

static inline std::vector<uint32_t> lengths(uint32_t type)
{
    uint32_t block = quant_info(type)->block_elems;
    std::vector<uint32_t> out;
    for (uint32_t n : {1u, 7u, 32u, 64u, 172u, 256u, 896u, 1536u, 3584u, 4864u, 18944u})
        if (n % block == 0 && (full_size() || n <= 896 || (n == 4864 && type == QUANT_Q6_K)))
            out.push_back(n);
    return out;
}

static const enum activation GATES[] = {ACT_SILU, ACT_GELU_TANH}; // those that are fused

#endif
