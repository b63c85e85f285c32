// Matrix times many columns: the weights are dequantised to float16, a tile that fits in the L2
// cache at a time, and multiplied by cuBLAS with float32 sums. Float32 weights stay float32.
#include "kernels.h"

bool gemm_launch(const struct queue *q, const struct wmat *w, const void *x, uint32_t n, float *y,
                 uint32_t ld, float alpha, float beta, void *tile, size_t tile_bytes,
                 struct error *err)
{
    bool f32 = w->type == QUANT_F32;
    cudaDataType_t type = f32 ? CUDA_R_32F : CUDA_R_16F;
    if (!f32)
        alpha *= half_range_undo(w->half_scale);
    uint32_t k = gemm_ld(w->n_cols);
    uint32_t rows_max =
        (uint32_t)(tile_bytes / (f32 ? 4 : 2) / k / TILE_ROWS) * (uint32_t)TILE_ROWS;
    for (uint32_t row0 = 0; row0 < w->rows; row0 += rows_max) {
        uint32_t rows = lesser(w->rows - row0, rows_max);
        if (!dequant_launch(q, w, row0, rows, tile, k, err))
            return false;
        // cuBLAS counts by columns: to it this is y^T (rows, n) = W (rows, k) x^T (k, n), with W
        // stored transposed
        if (!CHECK_CUDA(recorder_before(q->recorder, "cublas", q->stream), err))
            return false;
        cublasStatus_t s =
            cublasGemmEx(q->blas, CUBLAS_OP_T, CUBLAS_OP_N, (int)rows, (int)n, (int)k, &alpha, tile,
                         type, (int)k, x, type, (int)k, &beta, y + row0, CUDA_R_32F, (int)ld,
                         CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
        if (s != CUBLAS_STATUS_SUCCESS)
            return error_set(err, ERR_FAIL, "cuBLAS: matrix product (%u x %u) x %u failed: %s",
                             rows, k, n, cublasGetStatusString(s));
        if (!CHECK_CUDA(recorder_after(q->recorder, q->stream), err))
            return false;
    }
    return true;
}
