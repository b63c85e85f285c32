// A recurrence through the rows of a sequence: a column of a head's matrix stays in the registers
// of SCAN_LANES lanes from the first row to the last. What is done for a token does not depend on
// which rows are beside it, so a prompt leaves the same bits however it was cut.
//
// A token's step waits for the one before, so nothing else may: what comes next is requested while
// a stage of tokens is computed, and a whole stage is one run of instructions.
#ifndef HOKKU_CUDA_SCAN_CUH
#define HOKKU_CUDA_SCAN_CUH

#include "butterfly.cuh"
#include "states.cuh"

enum {
    SCAN_THREADS = 256,
    SCAN_LANES = 8,                        // of a column: they have fours of it by turns
    SCAN_COLS = SCAN_THREADS / SCAN_LANES, // of a block
    SCAN_STAGE = 8,                        // tokens whose vectors are in shared memory
};

// Four numbers of a vector of n in a row of ld, from i on; zeros behind its end.
static __device__ __forceinline__ float4 load4(const float *p, uint32_t i, uint32_t n, uint32_t ld)
{
    if (n % 4 == 0 && ld % 4 == 0)
        return i < n ? *reinterpret_cast<const float4 *>(p + i) : float4{};
    return make_float4(i < n ? p[i] : 0.0f, i + 1 < n ? p[i + 1] : 0.0f,
                       i + 2 < n ? p[i + 2] : 0.0f, i + 3 < n ? p[i + 3] : 0.0f);
}

static __device__ __forceinline__ void store4(float *p, uint32_t i, uint32_t n, float4 v)
{
    if (n % 4 == 0) {
        if (i < n)
            *reinterpret_cast<float4 *>(p + i) = v;
        return;
    }
    const float each[] = {v.x, v.y, v.z, v.w};
    for (uint32_t k = 0; k < 4; k++)
        if (i + k < n)
            p[i + k] = each[k];
}

// A column of n numbers at p, of which this lane has E fours.
template <int E>
static __device__ __forceinline__ void load_column(const float *p, uint32_t lane, uint32_t n,
                                                   float4 (&m)[E])
{
#pragma unroll
    for (int e = 0; e < E; e++)
        m[e] = load4(p, 4 * (lane + SCAN_LANES * e), n, n);
}

template <int E>
static __device__ __forceinline__ void store_column(float *p, uint32_t lane, uint32_t n,
                                                    const float4 (&m)[E])
{
#pragma unroll
    for (int e = 0; e < E; e++)
        store4(p, 4 * (lane + SCAN_LANES * e), n, m[e]);
}

static __device__ __forceinline__ float of_column(float4 v) // the sum over its lanes
{
    return lane_sum<1, SCAN_LANES / 2>((v.x + v.y) + (v.z + v.w));
}

static __device__ __forceinline__ float4 fma4(float4 a, float4 b, float4 c)
{
    return make_float4(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z),
                       fmaf(a.w, b.w, c.w));
}

static __device__ __forceinline__ float4 times(float f, float4 v)
{
    return make_float4(f * v.x, f * v.y, f * v.z, f * v.w);
}

static __device__ __forceinline__ float4 all4(float f)
{
    return make_float4(f, f, f, f);
}

// Of a row: two vectors of n and n_value values, of which the block has SCAN_COLS from first on.
struct scan_rows {
    const float *a, *b, *v; // in row 0
    uint32_t ld, n, n_value, first;
};

// P: n, rounded up. both: a times b.
template <int P> struct stage {
    float4 a[SCAN_STAGE][P / 4], b[SCAN_STAGE][P / 4];
    float v[SCAN_STAGE][SCAN_COLS];
    float decay[SCAN_STAGE], gain[SCAN_STAGE], both[SCAN_STAGE];
};

// A thread's share of a stage on its way.
template <int P> struct stage_ahead {
    static constexpr int LANES = P / 4 < WARP ? P / 4 : WARP; // of a row's vector
    static constexpr int FOURS = P / 4 / LANES;               // of a lane
    static constexpr int ROWS = SCAN_THREADS / LANES;         // of a round
    static constexpr int ROUNDS = ROWS < SCAN_STAGE ? SCAN_STAGE / ROWS : 1;
    static constexpr int VALUES = SCAN_STAGE * SCAN_COLS / SCAN_THREADS;
    static_assert(ROUNDS <= 2, "two sums go through a butterfly at a time");
    float4 a[ROUNDS][FOURS], b[ROUNDS][FOURS];
    float v[VALUES], decay, gain;
};

// Requests rows row0 .. row0 + n_row; scalars(row, decay, gain).
template <int P, typename F>
static __device__ __forceinline__ void request(const struct scan_rows &r, uint32_t row0,
                                               uint32_t n_row, F scalars, stage_ahead<P> &s)
{
    using S = stage_ahead<P>;
    const uint32_t lane = threadIdx.x % S::LANES;
#pragma unroll
    for (int i = 0; i < S::ROUNDS; i++) {
        const uint32_t t = i * S::ROWS + threadIdx.x / S::LANES;
        const size_t at = (size_t)(row0 + t) * r.ld;
#pragma unroll
        for (int k = 0; k < S::FOURS; k++) {
            const uint32_t c = t < n_row ? 4 * (lane + S::LANES * k) : r.n;
            s.a[i][k] = load4(r.a + at, c, r.n, r.ld);
            s.b[i][k] = load4(r.b + at, c, r.n, r.ld);
        }
    }
#pragma unroll
    for (int i = 0; i < S::VALUES; i++) {
        const uint32_t at = threadIdx.x + i * SCAN_THREADS, t = at / SCAN_COLS;
        const uint32_t c = r.first + at % SCAN_COLS;
        s.v[i] = t < n_row && c < r.n_value ? r.v[(size_t)(row0 + t) * r.ld + c] : 0.0f;
    }
    if (threadIdx.x < n_row)
        scalars(row0 + threadIdx.x, s.decay, s.gain);
}

template <int P, bool BOTH>
static __device__ __forceinline__ void put(const stage_ahead<P> &s, stage<P> &to)
{
    using S = stage_ahead<P>;
    const uint32_t lane = threadIdx.x % S::LANES, row = threadIdx.x / S::LANES;
    float both[2] = {};
#pragma unroll
    for (int i = 0; i < S::ROUNDS; i++) {
        if (S::ROWS > SCAN_STAGE && row >= SCAN_STAGE)
            continue;
        float4 sum = {};
#pragma unroll
        for (int k = 0; k < S::FOURS; k++) {
            to.a[i * S::ROWS + row][lane + S::LANES * k] = s.a[i][k];
            to.b[i * S::ROWS + row][lane + S::LANES * k] = s.b[i][k];
            sum = fma4(s.a[i][k], s.b[i][k], sum);
        }
        both[i] = (sum.x + sum.y) + (sum.z + sum.w);
    }
    if (BOTH) {
        float2 sums = make_float2(both[0], both[1]);
        butterfly(sums, S::LANES / 2, [](float2 &v, float2 other) {
            v.x += other.x;
            v.y += other.y;
        });
        if (lane == 0 && row < SCAN_STAGE) {
            to.both[row] = sums.x;
            if (S::ROUNDS == 2)
                to.both[S::ROWS + row] = sums.y;
        }
    }
#pragma unroll
    for (int i = 0; i < S::VALUES; i++) {
        const uint32_t at = threadIdx.x + i * SCAN_THREADS;
        to.v[at / SCAN_COLS][at % SCAN_COLS] = s.v[i];
    }
    if (threadIdx.x < SCAN_STAGE) {
        to.decay[threadIdx.x] = s.decay;
        to.gain[threadIdx.x] = s.gain;
    }
}

// What a lane needs of a token.
template <int E> struct token_in {
    float4 a[E], b[E];
    float v, decay, gain, both;
};

template <int P, int E, bool B>
static __device__ __forceinline__ void read_token(const stage<P> &s, uint32_t t, token_in<E> &in)
{
    const uint32_t lane = threadIdx.x % SCAN_LANES;
#pragma unroll
    for (int e = 0; e < E; e++)
        in.a[e] = s.a[t][lane + SCAN_LANES * e];
#pragma unroll
    for (int e = 0; B && e < E; e++)
        in.b[e] = s.b[t][lane + SCAN_LANES * e];
    in.v = s.v[t][threadIdx.x / SCAN_LANES];
    in.decay = s.decay[t];
    in.gain = s.gain[t];
    in.both = s.both[t];
}

// The block's columns of a head's matrix, which is at `at` of a slot, go through a span.
// token(in, m): takes them through a token and returns what it gives; give(row, column, that), by
// one lane of each column. GIVES: what rows give is wanted, and b; BOTH: token uses both.
template <int P, bool GIVES, bool BOTH, typename SCALARS, typename TOKEN, typename GIVE>
static __device__ __forceinline__ void
scan(const struct state_slots &state, const struct state_span &span, size_t at,
     const struct scan_rows &rows, const uint32_t *skip, stage<P> (&stages)[2], SCALARS scalars,
     TOKEN token, GIVE give)
{
    constexpr int E = P / 4 / SCAN_LANES; // fours of a lane
    const uint32_t lane = threadIdx.x % SCAN_LANES;
    const uint32_t col = rows.first + threadIdx.x / SCAN_LANES;
    const bool mine = col < rows.n_value;
    float4 m[E] = {};
    if (mine && span.from != NO_STATE)
        load_column(state.base + span.from * state.stride + at + (size_t)col * rows.n, lane, rows.n,
                    m);
    griddep_wait();
    if (span.n == 0 || (skip && *skip))
        return;
    stage_ahead<P> next = {};
    request<P>(rows, span.row0, lesser(span.n, (uint32_t)SCAN_STAGE), scalars, next);
    for (uint32_t t0 = 0; t0 < span.n; t0 += SCAN_STAGE) {
        stage<P> &s = stages[t0 / SCAN_STAGE % 2];
        put<P, BOTH>(next, s);
        __syncthreads(); // the stage before is done by whoever comes here
        const uint32_t left = span.n - t0, row = span.row0 + t0;
        if (left > SCAN_STAGE)
            request<P>(rows, row + SCAN_STAGE, lesser(left - SCAN_STAGE, (uint32_t)SCAN_STAGE),
                       scalars, next);
        const bool gives = GIVES && lane == 0 && mine;
        if (left >= SCAN_STAGE) {
            token_in<E> in[2];
            float y[SCAN_STAGE]; // given at the end: no branch between the tokens
            read_token<P, E, GIVES>(s, 0, in[0]);
#pragma unroll
            for (uint32_t t = 0; t < SCAN_STAGE; t++) {
                if (t + 1 < SCAN_STAGE) // before it is its turn
                    read_token<P, E, GIVES>(s, t + 1, in[(t + 1) % 2]);
                y[t] = token(in[t % 2], m);
            }
#pragma unroll
            for (uint32_t t = 0; gives && t < SCAN_STAGE; t++)
                give(row + t, col, y[t]);
        } else {
#pragma unroll 1
            for (uint32_t t = 0; t < lesser(left, (uint32_t)SCAN_STAGE); t++) {
                token_in<E> in;
                read_token<P, E, GIVES>(s, t, in);
                const float y = token(in, m);
                if (gives)
                    give(row + t, col, y);
            }
        }
    }
    if (mine)
        store_column(state.base + span.to * state.stride + at + (size_t)col * rows.n, lane, rows.n,
                     m);
}

#endif
