// cuBLAS, loaded when a CUDA engine is opened and not before: its libraries map hundreds of
// megabytes, which a program that runs on the CPU, inspects a file or works under a memory limit
// must not pay for. The functions have cuBLAS's own names and only forward, so that callers and the
// host emulation read alike.
#include <cublas_v2.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)
#define SONAME   "libcublas.so." TEXT(CUBLAS_VER_MAJOR)

static void *library(void)
{
    static void *handle; // the only state: the library stays loaded once it was needed
    if (!handle)
        handle = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        handle = dlopen(HOKKU_CUBLAS_DIR "/" SONAME, RTLD_NOW | RTLD_LOCAL);
    return handle;
}

#define FORWARD(name, args)                                                                        \
    void *handle = library();                                                                      \
    __typeof__(&name) function = handle ? (__typeof__(&name))dlsym(handle, TEXT(name)) : NULL;     \
    return function ? function args : CUBLAS_STATUS_NOT_INITIALIZED

cublasStatus_t cublasCreate_v2(cublasHandle_t *h)
{
    FORWARD(cublasCreate_v2, (h));
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t h)
{
    FORWARD(cublasDestroy_v2, (h));
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t stream)
{
    FORWARD(cublasSetStream_v2, (h, stream));
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void *workspace, size_t n_bytes)
{
    FORWARD(cublasSetWorkspace_v2, (h, workspace, n_bytes));
}

cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,
                            int n, int k, const void *alpha, const void *a, cudaDataType at,
                            int lda, const void *b, cudaDataType bt, int ldb, const void *beta,
                            void *c, cudaDataType ct, int ldc, cublasComputeType_t compute,
                            cublasGemmAlgo_t algo)
{
    FORWARD(cublasGemmEx,
            (h, ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc, compute, algo));
}

const char *cublasGetStatusString(cublasStatus_t status)
{
    void *handle = library();
    const char *(*function)(cublasStatus_t) = NULL;
    if (!handle)
        return SONAME
            " cannot be loaded: install the CUDA toolkit's cuBLAS, or run with --device cpu";
    *(void **)&function = dlsym(handle, "cublasGetStatusString");
    return function ? function(status) : "unknown status";
}
