#include "gpu_test.h"

struct queue Q;
struct error ERR;
int tap_failures;

static void *blas_workspace; // owned

void gpu_test_begin(void)
{
    int n = 0;
    struct cudaDeviceProp prop;
    size_t bytes = 32 << 20;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0)
        return; // tap_main says so
    must(CHECK_CUDA(cudaGetDeviceProperties(&prop, 0), &ERR));
    Q.n_sm = prop.multiProcessorCount;
    Q.dependent = prop.major >= 9;
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

std::vector<uint8_t> random_weights(struct random_stream &r, uint32_t type, uint32_t rows,
                                    uint32_t n_cols)
{
    size_t n = rows * quant_row_bytes(type, n_cols);
    std::vector<uint8_t> out(n);
    if (type == QUANT_F32) {
        std::vector<float> v = r.floats((size_t)rows * n_cols);
        memcpy(out.data(), v.data(), n);
        return out;
    }
    if (type == QUANT_F16 || type == QUANT_BF16) {
        for (size_t i = 0; i < n; i += 2) {
            float f = (float)r.uniform();
            uint32_t bits;
            memcpy(&bits, &f, sizeof bits);
            uint16_t h = type == QUANT_F16 ? quant_f32_to_f16(f) : (uint16_t)(bits >> 16);
            memcpy(&out[i], &h, sizeof h);
        }
        return out;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)r.u64();
    // where the float16 scales are in a block
    static const struct {
        uint32_t type;
        int at[2];
    } scales[] = {
        {QUANT_Q4_0, {0, -1}},    {QUANT_Q4_1, {0, 2}},   {QUANT_Q5_0, {0, -1}},
        {QUANT_Q5_1, {0, 2}},     {QUANT_Q8_0, {0, -1}},  {QUANT_Q2_K, {80, 82}},
        {QUANT_Q3_K, {108, -1}},  {QUANT_Q4_K, {0, 2}},   {QUANT_Q5_K, {0, 2}},
        {QUANT_Q6_K, {208, -1}},  {QUANT_IQ4_NL, {0, -1}}, {QUANT_IQ4_XS, {0, -1}},
    };
    uint32_t block = quant_info(type)->block_bytes;
    for (const auto &s : scales)
        for (size_t b = 0; s.type == type && b < n; b += block)
            for (int j = 0; j < 2 && s.at[j] >= 0; j++) {
                uint16_t h = quant_f32_to_f16((float)(0.01 + 0.01 * r.uniform()));
                memcpy(&out[b + s.at[j]], &h, sizeof h);
            }
    return out;
}

test_matrix::test_matrix(struct random_stream &r, uint32_t type, uint32_t rows, uint32_t n_cols)
    : values((size_t)rows * n_cols), planes(cuda_layout(type, rows, n_cols, nullptr, nullptr))
{
    std::vector<uint8_t> file = random_weights(r, type, rows, n_cols);
    size_t row = quant_row_bytes(type, n_cols);
    for (uint32_t i = 0; i < rows; i++)
        quant_dequantize(type, &file[i * row], &values[(size_t)i * n_cols], n_cols);
    cuda_layout(type, rows, n_cols, planes.p, &w);
    // in two slices, from an odd address, as the loader may do it
    device_array<uint8_t> raw(file.size() + 1);
    must(CHECK_CUDA(cudaMemcpy(raw.p + 1, file.data(), file.size(), cudaMemcpyHostToDevice), &ERR));
    uint32_t first = lesser(rows, (uint32_t)TILE_ROWS);
    must(repack_launch(&Q, raw.p + 1, &w, 0, first, &ERR));
    if (rows > first)
        must(repack_launch(&Q, raw.p + 1 + first * row, &w, first, rows - first, &ERR));
    must(CHECK_CUDA(cudaStreamSynchronize(Q.stream), &ERR));
}
