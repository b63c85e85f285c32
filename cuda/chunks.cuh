// What layers whose heads have a matrix as their state share where they go through many rows of a
// sequence in matrix products over chunks of them: delta_chunks.cu, ssm_chunks.cu.
//
// A first launch makes what depends on no state of all chunks at once. The second takes each head's
// matrix through the chunks. A warp has columns of it in registers, by eights, as sums of matrix
// instructions, which with rows and columns exchanged are what the next one multiplies by: the
// warps of a block share what they read, and nothing else.
#ifndef HOKKU_CUDA_CHUNKS_CUH
#define HOKKU_CUDA_CHUNKS_CUH

#include "split.cuh"
#include "states.cuh"

enum {
    C = STATE_CHUNK, // the formulas' name for it
    M = 16,          // of a matrix instruction: rows, and numbers that are multiplied
    OWN = 8,         // of sums of matrix instructions: columns
    CHUNK_WARPS = 4, // of a block of that
    PREPARE_WARPS = 4,
};

static_assert(STATES_EVERY % C == 0, "a state within a span is one between chunks");
static_assert((int)C == (int)WARP, "a lane for a row");

// Of a matrix (C, C), high, then low parts: rows of four pieces of 16 bytes in the order of
// piece_of.
typedef uint4 chunk_matrix[2][C][C / 8];

static __device__ __forceinline__ uint32_t piece_of(uint32_t row, uint32_t piece)
{
    return piece ^ row / 2 % 4;
}

// A row of two factors of matrices, (P) as high, then low parts: so many bytes as floats, pieces by
// turns. q reads a head's matrix, k writes it.
static __device__ __forceinline__ uint32_t vector_piece(uint32_t row, uint32_t piece)
{
    return piece ^ row % 8;
}

template <int P> struct chunk_vectors {
    uint4 q[C][P / 4], k[C][P / 4];
};

// The address that a lane gives is of a row of what multiplies from the left.
static __device__ __forceinline__ void load_left(left &l, const uint4 *high, const uint4 *low)
{
    ldmatrix_x4(l.high, high);
    ldmatrix_x4(l.low, low);
}

// ---- what depends on no state

// A block's n_row rows of q and k, ld floats apart, as two parts: in shared memory, with zeros
// behind the last, and where they were.
template <int P>
static __device__ __forceinline__ void split_rows(float *q, float *k, uint32_t ld, uint32_t n_row,
                                                  chunk_vectors<P> &x)
{
    constexpr uint32_t THREADS = PREPARE_WARPS * WARP, FOURS = C * P / 4 / THREADS;
    float4 qs[FOURS], ks[FOURS];
#pragma unroll
    for (uint32_t i = 0; i < FOURS; i++) {
        const uint32_t at = i * THREADS + threadIdx.x, row = at / (P / 4), c = at % (P / 4);
        const size_t from = (size_t)row * ld + 4 * c;
        qs[i] = row < n_row ? load_four(q + from) : float4{};
        ks[i] = row < n_row ? load_four(k + from) : float4{};
    }
    __syncthreads(); // all are read
#pragma unroll
    for (uint32_t i = 0; i < FOURS; i++) {
        const uint32_t at = i * THREADS + threadIdx.x, row = at / (P / 4), c = at % (P / 4);
        auto put = [&](float4 v, uint4(&tile)[C][P / 4], float *to) {
            const two_parts a = parts_of(v.x, v.y), b = parts_of(v.z, v.w);
            const uint2 part[] = {make_uint2(a.high, b.high), make_uint2(a.low, b.low)};
#pragma unroll
            for (uint32_t j = 0; j < 2; j++) {
                const uint32_t piece = j * (P / 8) + c / 2;
                reinterpret_cast<uint2 *>(&tile[row][vector_piece(row, piece)])[c % 2] = part[j];
                if (row < n_row)
                    reinterpret_cast<uint2 *>(to + (size_t)row * ld)[j * (P / 4) + c] = part[j];
            }
        };
        put(qs[i], x.q, q);
        put(ks[i], x.k, k);
    }
    __syncthreads();
}

// A warp, of 16 rows of q or k: their products with all rows of k; give(row, column, product, that
// of the next column).
template <int P, typename F>
static __device__ __forceinline__ void
multiply_rows(const chunk_vectors<P> &x, const uint4 (&of)[C][P / 4], uint32_t row0, F give)
{
    const uint32_t lane = threadIdx.x % WARP, m = lane / 8, r = lane % 8;
    const uint32_t row = row0 + m % 2 * 8 + r; // of the left
    float sum[C / 8][4] = {};
#pragma unroll
    for (uint32_t i = 0; i < P / M; i++) {
        left l;
        load_left(l, &of[row][vector_piece(row, 2 * i + m / 2)],
                  &of[row][vector_piece(row, P / 8 + 2 * i + m / 2)]);
#pragma unroll
        for (uint32_t j = 0; j < C / M; j++) {
            const uint32_t key = j * M + m / 2 * 8 + r;
            uint32_t high[4], low[4];
            ldmatrix_x4(high, &x.k[key][vector_piece(key, 2 * i + m % 2)]);
            ldmatrix_x4(low, &x.k[key][vector_piece(key, P / 8 + 2 * i + m % 2)]);
            multiply(sum[2 * j], sum[2 * j + 1], l, high, low);
        }
    }
#pragma unroll
    for (uint32_t j = 0; j < C / 8; j++)
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            give(row0 + lane / 4 + i * 8, j * 8 + lane % 4 * 2,
                 make_float2(sum[j][2 * i], sum[j][2 * i + 1]));
}

// Of a lane's row, the logarithm of its decay and of those of the chunk's rows before it.
static __device__ __forceinline__ float decay_so_far(float log_decay)
{
    // Behind such a row nothing is left of an earlier one, with any number below -104; with a
    // larger one what later rows have of each other, differences of these sums, would be less
    // exact.
    log_decay = log_decay < -128.0f ? -128.0f : log_decay;
#pragma unroll
    for (uint32_t o = 1; o < C; o *= 2) {
        const float below = __shfl_up_sync(0xFFFFFFFFu, log_decay, o);
        log_decay += threadIdx.x % WARP >= o ? below : 0.0f;
    }
    return log_decay;
}

// Eight numbers, as a piece of a row.
static __device__ __forceinline__ void store_piece(chunk_matrix &to, uint32_t row, uint32_t piece,
                                                   float4 a, float4 b)
{
    const two_parts p[] = {parts_of(a.x, a.y), parts_of(a.z, a.w), parts_of(b.x, b.y),
                           parts_of(b.z, b.w)};
    const uint32_t at = piece_of(row, piece);
    to[0][row][at] = make_uint4(p[0].high, p[1].high, p[2].high, p[3].high);
    to[1][row][at] = make_uint4(p[0].low, p[1].low, p[2].low, p[3].low);
}

// ---- the states

// A block asks for the parts of n_row rows: nothing that is not there.
template <int P>
static __device__ __forceinline__ void request_rows(const float *q, const float *k, uint32_t ld,
                                                    uint32_t n_row, chunk_vectors<P> &to)
{
    constexpr uint32_t THREADS = CHUNK_WARPS * WARP;
#pragma unroll
    for (uint32_t x = 0; x < C * P / 4 / THREADS; x++) {
        const uint32_t i = x * THREADS + threadIdx.x;
        const uint32_t row = i / (P / 4), piece = i % (P / 4);
        const size_t at = row < n_row ? (size_t)row * ld + 4 * piece : 0;
        cp_async16_or_zero(&to.q[row][vector_piece(row, piece)], q + at, row < n_row);
        cp_async16_or_zero(&to.k[row][vector_piece(row, piece)], k + at, row < n_row);
    }
}

// A lane's rows of a left factor are those of a group of 16 rows, its pieces those of 16 numbers.
static __device__ __forceinline__ uint32_t left_row(uint32_t group)
{
    return group * M + threadIdx.x % WARP / 8 % 2 * 8 + threadIdx.x % 8;
}

template <int P>
static __device__ __forceinline__ void load_rows(left &l, const uint4 (&x)[C][P / 4],
                                                 uint32_t group, uint32_t numbers)
{
    const uint32_t row = left_row(group), piece = 2 * numbers + threadIdx.x % WARP / M;
    load_left(l, &x[row][vector_piece(row, piece)], &x[row][vector_piece(row, P / 8 + piece)]);
}

// A warp, of T times OWN columns: y += a x, where a has nothing above the diagonal.
template <int T>
static __device__ __forceinline__ void
multiply_lower(const chunk_matrix &a, const float (&x)[T][C / M][4], float (&y)[T][C / M][4])
{
#pragma unroll
    for (uint32_t i = 0; i < C / M; i++) {
        right b[T];
#pragma unroll
        for (uint32_t k = 0; k < T; k++)
            b[k] = right_of(x[k][i]);
#pragma unroll
        for (uint32_t j = i; j < C / M; j++) {
            const uint32_t row = left_row(j), at = piece_of(row, 2 * i + threadIdx.x % WARP / M);
            left l;
            load_left(l, &a[0][row][at], &a[1][row][at]);
#pragma unroll
            for (uint32_t k = 0; k < T; k++)
                multiply(y[k][j], l, b[k]);
        }
    }
}

// The same: m = decay m + the transposed rows of k times x.
template <int P, int T>
static __device__ __forceinline__ void write_state(const uint4 (&of_k)[C][P / 4], float decay,
                                                   const float (&x)[T][C / M][4],
                                                   float (&m)[T][P / M][4])
{
    const uint32_t lane = threadIdx.x % WARP;
#pragma unroll
    for (uint32_t k = 0; k < T; k++)
#pragma unroll
        for (uint32_t j = 0; j < P / M; j++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                m[k][j][i] *= decay;
#pragma unroll
    for (uint32_t i = 0; i < C / M; i++) {
        const uint32_t row = i * M + lane / M * 8 + lane % 8;
        right b[T];
#pragma unroll
        for (uint32_t k = 0; k < T; k++)
            b[k] = right_of(x[k][i]);
#pragma unroll
        for (uint32_t j = 0; j < P / M; j++) {
            const uint32_t piece = 2 * j + lane / 8 % 2;
            left l;
            ldmatrix_x4_trans(l.high, &of_k[row][vector_piece(row, piece)]);
            ldmatrix_x4_trans(l.low, &of_k[row][vector_piece(row, P / 8 + piece)]);
#pragma unroll
            for (uint32_t k = 0; k < T; k++)
                multiply(m[k][j], l, b[k]);
        }
    }
}

// Sums (P, OWN) from and to where the state has a lane's first number: columns of P numbers.
template <int P>
static __device__ __forceinline__ void load_sums(const float *p, float (&m)[P / M][4])
{
#pragma unroll
    for (uint32_t j = 0; j < P / M; j++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            m[j][i] = p[i % 2 * P + j * M + i / 2 * 8];
}

template <int P>
static __device__ __forceinline__ void store_sums(float *p, const float (&m)[P / M][4])
{
#pragma unroll
    for (uint32_t j = 0; j < P / M; j++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            p[i % 2 * P + j * M + i / 2 * 8] = m[j][i];
}

// The launch of the states: if there are enough multiprocessors, one block on each.
static inline void set_apart(const struct queue *q, struct launch *l)
{
    if ((int)(l->grid.x * l->grid.y) <= q->n_sm && l->smem < q->smem_sm / 2)
        l->smem = lesser(q->smem_sm / 2, q->smem_max);
}

#endif
