// Matrix times many columns: the weights are dequantised to float16, a tile that fits in the L2
// cache at a time, and multiplied by cuBLAS with float32 sums.
#include "kernels.h"


bool gemm_launch(const struct queue *q, const struct wmat *w, const __half *x, uint32_t x_ld,
                 uint32_t n, float *y, uint32_t ld, float beta, __half *tile, size_t tile_elems,
                 struct error *err)
{
    uint32_t k = gemm_ld(w->n_cols);
    uint32_t rows_max = (uint32_t)(tile_elems / k / TILE_ROWS * TILE_ROWS);
    float alpha = ACT_F16_SCALE;
    for (uint32_t row0 = 0; row0 < w->rows; row0 += rows_max) {
        uint32_t rows = w->rows - row0 < rows_max ? w->rows - row0 : rows_max;
        if (!dequant_launch(q, w, row0, rows, tile, k, err))
            return false;
        // cuBLAS counts by columns: there y^T (rows, n) = W^T^T (rows, k) x^T (k, n)
        cublasStatus_t s = cublasGemmEx(q->blas, CUBLAS_OP_T, CUBLAS_OP_N, (int)rows, (int)n,
                                        (int)k, &alpha, tile, CUDA_R_16F, (int)k, x, CUDA_R_16F,
                                        (int)x_ld, &beta, y + row0, CUDA_R_32F, (int)ld,
                                        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
        if (s != CUBLAS_STATUS_SUCCESS)
            return error_set(err, ERR_FAIL, "cuBLAS: matrix product (%u x %u) x %u failed: %s",
                             rows, k, n, cublasGetStatusString(s));
    }
    return true;
}
