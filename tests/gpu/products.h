// What tests of matrix products share: a plain product in double, how far a kernel may be off, and
// inputs.
#ifndef HOKKU_TESTS_GPU_PRODUCTS_H
#define HOKKU_TESTS_GPU_PRODUCTS_H

#include "gpu_test.h"

// Largest difference between got and want, relative to what rounding can explain: `unit` times the
// size of the sums that were added up.
static inline double worst(const std::vector<float> &got, const std::vector<double> &want,
                           const std::vector<double> &size)
{
    double w = 0;
    for (size_t i = 0; i < got.size(); i++)
        w = further(w, fabs(got[i] - want[i]) / (size[i] + 1e-30));
    return w;
}

struct product {
    std::vector<double> y, size; // (n_col, rows): the sum, and the size of a typical error of it
};

// sqrt(sum w^2) * max |x| for rows of weights w and columns x, of n_cols numbers each: what
// independent errors of the activations scale with.
static inline std::vector<double> error_sizes(const std::vector<float> &w,
                                              const std::vector<float> &x, uint32_t n_cols)
{
    std::vector<double> norms, sizes;
    for (size_t row = 0; row < w.size(); row += n_cols) {
        double squares = 0;
        for (uint32_t k = 0; k < n_cols; k++)
            squares += (double)w[row + k] * w[row + k];
        norms.push_back(sqrt(squares));
    }
    for (size_t col = 0; col < x.size(); col += n_cols) {
        double top = 0;
        for (uint32_t k = 0; k < n_cols; k++)
            top = fmax(top, fabs(x[col + k]));
        for (double norm : norms)
            sizes.push_back(norm * top);
    }
    return sizes;
}

static inline product reference(const test_matrix &m, const std::vector<float> &x, uint32_t n_col)
{
    product p;
    uint32_t rows = m.w.rows, n = m.w.n_cols;
    p.size = error_sizes(m.values, x, n);
    for (uint32_t c = 0; c < n_col; c++)
        for (uint32_t r = 0; r < rows; r++) {
            double y = 0;
            for (uint32_t k = 0; k < n; k++)
                y += (double)m.values[(size_t)r * n + k] * x[c * n + k];
            p.y.push_back(y);
        }
    return p;
}

// 16-bit activations leave errors of 1e-5 of the size; plain 8-bit ones would leave 2e-3. float16
// operands: half a unit in the eleventh bit of each, errors independent.
static const double FIXED_TOLERANCE = 4e-5, FLOAT_TOLERANCE = 4e-6, HALF_TOLERANCE = 1.5e-3,
                    SPLIT_TOLERANCE = 2e-5;

// Of the kernels that do not multiply in float16.
static inline double tolerance(uint32_t type)
{
    return quant_info(type)->block_elems == 1 ? FLOAT_TOLERANCE : FIXED_TOLERANCE;
}

// Rows (n_cols) of very different magnitudes.
static inline std::vector<float> spread(std::vector<float> x, uint32_t n_cols)
{
    static const float sizes[] = {1.0f, 1e5f, 1e-6f, 1e8f, 100.0f};
    for (size_t i = 0; i < x.size(); i++)
        x[i] *= sizes[i / n_cols % 5];
    return x;
}

// Rows of x (n, n_cols) as act_launch prepares them for quantised weights (n_cols a multiple of 32)
// and for others.
struct prepared_rows {
    device_array<uint8_t> act32, act_f32;
    prepared_rows(const device_array<float> &x, uint32_t n, uint32_t n_cols)
        : act32(n_cols % 32 ? 0 : n * act_row_bytes(QUANT_Q8_0, n_cols)),
          act_f32(n * act_row_bytes(QUANT_F32, n_cols))
    {
        must(act_launch(&Q, x.p, n, n_cols, nullptr, 0.0f, act32.n ? act32.p : nullptr, act_f32.p,
                        nullptr, &ERR));
    }
};

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
