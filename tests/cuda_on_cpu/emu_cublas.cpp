// cuBLAS as plain loops.
#include "cublas_v2.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "emu_internal.h"

struct emu_cublas {
    cudaStream_t stream = nullptr;
};

namespace
{

size_t element_bytes(cudaDataType_t t)
{
    return t == CUDA_R_32F || t == CUDA_R_32I ? 4 : t == CUDA_R_8I ? 1 : 2;
}

double load(const void *p, cudaDataType_t t, size_t i)
{
    switch (t) {
    case CUDA_R_32F:
        return ((const float *)p)[i];
    case CUDA_R_16F:
        return emu_binary16::widen(((const uint16_t *)p)[i]);
    case CUDA_R_16BF:
        return emu_bfloat16::widen(((const uint16_t *)p)[i]);
    case CUDA_R_8I:
        return ((const int8_t *)p)[i];
    default:
        return ((const int32_t *)p)[i];
    }
}

void store(void *p, cudaDataType_t t, size_t i, double v)
{
    switch (t) {
    case CUDA_R_32F:
        ((float *)p)[i] = (float)v;
        break;
    case CUDA_R_16F:
        ((uint16_t *)p)[i] = emu_binary16::narrow((float)v);
        break;
    case CUDA_R_16BF:
        ((uint16_t *)p)[i] = emu_bfloat16::narrow((float)v);
        break;
    default:
        ((int32_t *)p)[i] = (int32_t)v;
    }
}

struct matrix {
    const void *p;
    cudaDataType_t type;
    bool transposed;
    int ld;
    double at(int row, int col) const
    {
        return load(p, type, transposed ? (size_t)row * ld + col : (size_t)col * ld + row);
    }
};

void gemm(int m, int n, int k, double alpha, matrix a, matrix b, double beta, void *c,
          cudaDataType_t type_c, int ldc)
{
    std::vector<float> row((size_t)k); // one row of op(A) at a time, widened once
    for (int i = 0; i < m; i++) {
        for (int l = 0; l < k; l++)
            row[(size_t)l] = (float)a.at(i, l);
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int l = 0; l < k; l++)
                sum += (double)row[(size_t)l] * b.at(l, j);
            size_t at = (size_t)j * ldc + i;
            double old = beta == 0 ? 0 : beta * load(c, type_c, at);
            store(c, type_c, at, alpha * sum + old);
        }
    }
}

} // namespace

cublasStatus_t cublasCreate(cublasHandle_t *h)
{
    *h = nullptr;
    if (emu_machine_has("no-cublas"))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *h = new emu_cublas();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t h)
{
    delete h;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t h, cudaStream_t s)
{
    h->stream = s;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t, void *, size_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t, cublasAtomicsMode_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode(cublasHandle_t, cublasPointerMode_t mode)
{
    return mode == CUBLAS_POINTER_MODE_HOST ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

const char *cublasGetStatusString(cublasStatus_t s)
{
    return s == CUBLAS_STATUS_SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
           : s == CUBLAS_STATUS_NOT_INITIALIZED ? "libcublas.so cannot be loaded"
           : s == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
           : s == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                              : "CUBLAS_STATUS_EXECUTION_FAILED";
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta,
                                          cublasOperation_t tb, int m, int n, int k,
                                          const void *alpha, const void *a, cudaDataType_t type_a,
                                          int lda, long long stride_a, const void *b,
                                          cudaDataType_t type_b, int ldb, long long stride_b,
                                          const void *beta, void *c, cudaDataType_t type_c, int ldc,
                                          long long stride_c, int n_batch,
                                          cublasComputeType_t compute, cublasGemmAlgo_t)
{
    if (!h)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    bool ints = compute == CUBLAS_COMPUTE_32I;
    if (m < 0 || n < 0 || k < 0 || n_batch < 0 || lda < (ta == CUBLAS_OP_N ? m : k) ||
        ldb < (tb == CUBLAS_OP_N ? k : n) || ldc < m)
        return CUBLAS_STATUS_INVALID_VALUE;
    // The combinations that cuda/ may use on every GPU: equal input types.
    if (type_a != type_b || compute == CUBLAS_COMPUTE_16F ||
        ints != (type_a == CUDA_R_8I && type_c == CUDA_R_32I))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (ints && (k % 4 || lda % 4 || ldb % 4)) // alignment that the int8 path of cuBLAS demands
        return CUBLAS_STATUS_NOT_SUPPORTED;
    double al = ints ? *(const int32_t *)alpha : *(const float *)alpha;
    double be = ints ? *(const int32_t *)beta : *(const float *)beta;
    cudaError_t e = emu_enqueue(h->stream, [=] {
        for (int i = 0; i < n_batch; i++) {
            matrix ma = {(const char *)a + (size_t)(i * stride_a) * element_bytes(type_a), type_a,
                         ta == CUBLAS_OP_T, lda};
            matrix mb = {(const char *)b + (size_t)(i * stride_b) * element_bytes(type_b), type_b,
                         tb == CUBLAS_OP_T, ldb};
            gemm(m, n, k, al, ma, mb, be,
                 (char *)c + (size_t)(i * stride_c) * element_bytes(type_c), type_c, ldc);
        }
    });
    return e == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,
                            int n, int k, const void *alpha, const void *a, cudaDataType_t type_a,
                            int lda, const void *b, cudaDataType_t type_b, int ldb,
                            const void *beta, void *c, cudaDataType_t type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
    return cublasGemmStridedBatchedEx(h, ta, tb, m, n, k, alpha, a, type_a, lda, 0, b, type_b, ldb,
                                      0, beta, c, type_c, ldc, 0, 1, compute, algo);
}

cublasStatus_t cublasSgemm(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,
                           int n, int k, const float *alpha, const float *a, int lda,
                           const float *b, int ldb, const float *beta, float *c, int ldc)
{
    return cublasGemmEx(h, ta, tb, m, n, k, alpha, a, CUDA_R_32F, lda, b, CUDA_R_32F, ldb, beta, c,
                        CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}
