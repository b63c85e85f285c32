#include "gpu_test.h"

struct queue Q;
struct error ERR;
int tap_failures;

static void *blas_workspace; // owned

void gpu_test_begin(void)
{
    int n = 0;
    struct cudaDeviceProp prop;
    size_t bytes = BLAS_WORKSPACE;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0)
        return; // tap_main says so
    must(CHECK_CUDA(cudaGetDeviceProperties(&prop, 0), &ERR));
    Q.n_sm = prop.multiProcessorCount;
    Q.smem_max = prop.sharedMemPerBlockOptin;
    Q.smem_sm = prop.sharedMemPerMultiprocessor;
    Q.dependent = prop.major >= 9;
    Q.hopper = prop.major == 9;
    must(CHECK_CUDA(cudaStreamCreateWithFlags(&Q.stream, cudaStreamNonBlocking), &ERR));
    must(CHECK_CUDA(cudaMalloc(&blas_workspace, bytes), &ERR));
    must(cublasCreate(&Q.blas) == CUBLAS_STATUS_SUCCESS);
    must(cublasSetStream(Q.blas, Q.stream) == CUBLAS_STATUS_SUCCESS);
    must(cublasSetWorkspace(Q.blas, blas_workspace, bytes) == CUBLAS_STATUS_SUCCESS);
}

void gpu_test_end(void)
{
    if (!Q.stream)
        return;
    cublasDestroy(Q.blas);
    cudaFree(blas_workspace);
    cudaStreamDestroy(Q.stream);
}

test_matrix::test_matrix(struct random_stream &r, uint32_t type, uint32_t rows, uint32_t n_cols)
    : values((size_t)rows * n_cols), planes(cuda_layout(type, rows, n_cols, nullptr, nullptr))
{
    size_t row = quant_row_bytes(type, n_cols);
    std::vector<uint8_t> file(rows * row);
    random_blocks(type, file.data(), file.size(), 1.0, r.u64());
    for (uint32_t i = 0; i < rows; i++)
        quant_dequantize(type, &file[i * row], &values[(size_t)i * n_cols], n_cols);
    cuda_layout(type, rows, n_cols, planes.p, &w);
    // in two slices, from an odd address, as the loader may do it
    device_array<uint8_t> raw(file.size() + 1);
    must(CHECK_CUDA(
        cudaMemcpyAsync(raw.p + 1, file.data(), file.size(), cudaMemcpyHostToDevice, Q.stream),
        &ERR));
    uint32_t first = lesser(rows, (uint32_t)TILE_ROWS);
    must(repack_launch(&Q, type, raw.p + 1, &w, 0, first, &ERR));
    if (rows > first)
        must(repack_launch(&Q, type, raw.p + 1 + first * row, &w, first, rows - first, &ERR));
    must(CHECK_CUDA(cudaStreamSynchronize(Q.stream), &ERR));
}
