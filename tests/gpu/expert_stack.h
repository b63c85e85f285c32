// What tests of experts share: stacked matrices and their products in double.
#ifndef HOKKU_TESTS_GPU_EXPERT_STACK_H
#define HOKKU_TESTS_GPU_EXPERT_STACK_H

#include "experts.h"
#include "gpu_test.h"

// A stack of random matrices on the device; of matrix i row r is values[(i * rows + r) * n_cols].
struct test_stack {
    struct wmat w;
    std::vector<float> values;
    device_array<uint8_t> planes;
    test_stack(struct random_stream &r, uint32_t type, uint32_t n, uint32_t rows, uint32_t n_cols)
        : values((size_t)n * rows * n_cols),
          planes(cuda_layout_stack(type, n, rows, n_cols, nullptr, nullptr))
    {
        const size_t row = quant_row_bytes(type, n_cols);
        std::vector<uint8_t> file(n * rows * row);
        random_blocks(type, file.data(), file.size(), 1.0, r.u64());
        for (uint32_t i = 0; i < n * rows; i++)
            quant_dequantize(type, &file[i * row], &values[(size_t)i * n_cols], n_cols);
        cuda_layout_stack(type, n, rows, n_cols, planes.p, &w);
        device_array<uint8_t> raw(file);
        for (uint32_t i = 0; i < n; i++)
            must(repack_launch(&Q, type, raw.p + i * rows * row, &w, i * w.n_tile * TILE_ROWS, rows,
                               &ERR));
        must(CHECK_CUDA(cudaStreamSynchronize(Q.stream), &ERR));
    }
    double product(uint32_t i, uint32_t row, const float *x, double *size) const
    {
        const float *v = &values[((size_t)i * w.rows + row) * w.n_cols];
        double sum = 0;
        *size = 0;
        for (uint32_t k = 0; k < w.n_cols; k++) {
            sum += (double)v[k] * x[k];
            *size += fabs((double)v[k] * x[k]);
        }
        return sum;
    }
};

static inline double gated_by(enum activation act, double gate, double up)
{
    if (act == ACT_CLAMPED_SWIGLU) {
        const double a = fmin(gate, 7);
        return a / (1 + exp(-1.702 * a)) * (fmax(-7, fmin(7, up)) + 1);
    }
    return activated(act, gate) * up;
}

static inline uint32_t columns(uint32_t type, uint32_t about)
{
    const uint32_t block = quant_info(type)->block_elems;
    return block == 1 ? about + 3 : div_up(about, block) * block;
}

#endif
