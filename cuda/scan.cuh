// A recurrence through the rows of a sequence: a column of a head's matrix stays in the registers
// of SCAN_LANES lanes from the first row to the last. What is done for a token does not depend on
// which rows are beside it, so a prompt leaves the same bits however it was cut.
//
// A token's step waits for the one before, so nothing else may: what comes next is brought to
// shared memory by a warp of its own, with two columns to a lane each vector is read from there
// half as often, and what tokens give is added up and stored for four of them at a time.
#ifndef HOKKU_CUDA_SCAN_CUH
#define HOKKU_CUDA_SCAN_CUH

#include "butterfly.cuh"
#include "states.cuh"

enum {
    SCAN_LANES = 8, // of a column: they have fours of it by turns
    SCAN_WARPS = 4, // of a block, and the one that brings
    SCAN_THREADS = (SCAN_WARPS + 1) * WARP,
    SCAN_STAGE = 8, // tokens whose vectors are in shared memory
    SCAN_GIVEN = 4, // tokens whose results are added up together
};

// Of heads whose columns have n numbers, rounded up to P: fours and columns of a lane, columns of a
// block.
template <int P> static constexpr __host__ __device__ int scan_fours()
{
    return P / 4 / SCAN_LANES;
}

template <int P> static constexpr __host__ __device__ int scan_lane_cols()
{
    return P <= 128 ? 2 : 1; // more have no room in the registers
}

template <int P> static constexpr __host__ __device__ int scan_cols()
{
    return SCAN_WARPS * WARP / SCAN_LANES * scan_lane_cols<P>();
}

// f of the integral constant P, which n is rounded up to.
template <typename F> static bool with_state(uint32_t n, F f)
{
    return n <= 32    ? f(std::integral_constant<int, 32>())
           : n <= 64  ? f(std::integral_constant<int, 64>())
           : n <= 128 ? f(std::integral_constant<int, 128>())
                      : f(std::integral_constant<int, 256>());
}

// ---- columns in registers

// Four numbers of a vector of n at p, from i on; zeros behind its end.
static __device__ __forceinline__ float4 load4(const float *p, uint32_t i, uint32_t n)
{
    if (n % 4 == 0)
        return i < n ? load_four(p + i) : float4{};
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

// A lane's part of C columns of n numbers each, the first at p; n_col: those that there are.
template <int C, int E>
static __device__ __forceinline__ void load_columns(const float *p, uint32_t n, uint32_t n_col,
                                                    float4 (&m)[C][E])
{
#pragma unroll
    for (int c = 0; c < C; c++)
#pragma unroll
        for (int e = 0; e < E; e++)
            if (c < (int)n_col)
                m[c][e] = load4(p + c * n, 4 * (threadIdx.x % SCAN_LANES + SCAN_LANES * e), n);
}

template <int C, int E>
static __device__ __forceinline__ void store_columns(float *p, uint32_t n, uint32_t n_col,
                                                     const float4 (&m)[C][E])
{
#pragma unroll
    for (int c = 0; c < C; c++)
#pragma unroll
        for (int e = 0; e < E; e++)
            if (c < (int)n_col)
                store4(p + c * n, 4 * (threadIdx.x % SCAN_LANES + SCAN_LANES * e), n, m[c][e]);
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

// A lane's part of each column times a vector.
template <int C, int E>
static __device__ __forceinline__ void dot_columns(const float4 (&v)[E], const float4 (&m)[C][E],
                                                   float *sum)
{
#pragma unroll
    for (int c = 0; c < C; c++) {
        float4 s = {};
#pragma unroll
        for (int e = 0; e < E; e++)
            s = fma4(v[e], m[c][e], s);
        sum[c] = (s.x + s.y) + (s.z + s.w);
    }
}

// The sums over the lanes of their columns, in each of them.
template <int C> static __device__ __forceinline__ void add_lanes(float (&sum)[C])
{
#pragma unroll
    for (int d = 1; d < SCAN_LANES; d *= 2)
#pragma unroll
        for (int c = 0; c < C; c++)
            sum[c] += __shfl_xor_sync(0xFFFFFFFFu, sum[c], d);
}

// Of N <= SCAN_LANES sums this lane's, number lane % N, in the order that add_lanes has. D: for
// itself.
template <int N, int D = 1> static __device__ __forceinline__ float own_sum(const float (&v)[N])
{
    if constexpr (D == SCAN_LANES) {
        return v[0];
    } else {
        const bool odd = threadIdx.x & D;
        constexpr int HALF = N > 1 ? N / 2 : 1;
        float left[HALF];
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            const float mine = N > 1 && odd ? v[(2 * i + 1) % N] : v[2 * i];
            const float other = N > 1 && !odd ? v[(2 * i + 1) % N] : v[2 * i];
            left[i] = mine + __shfl_xor_sync(0xFFFFFFFFu, other, D);
        }
        return own_sum<HALF, 2 * D>(left);
    }
}

// ---- a stage of tokens

// Of a row: two vectors of n and n_value values, of which the block has some from first on.
struct scan_rows {
    const float *a, *b, *v; // in row 0
    uint32_t ld, n, n_value, first;
};

template <int P> struct stage {
    float4 a[SCAN_STAGE][P / 4], b[SCAN_STAGE][P / 4];
    float v[SCAN_STAGE][scan_cols<P>()];
    float decay[SCAN_STAGE], gain[SCAN_STAGE];
};

// A barrier of warps that do different things, each in a loop of its own.
static __device__ __forceinline__ void meet(void)
{
    __syncthreads();
}

// Whether a vector and its rows can be copied by fours.
static __device__ __forceinline__ bool in_fours(const float *p, uint32_t n, uint32_t ld)
{
    return (uintptr_t)p % sizeof(float4) == 0 && n % 4 == 0 && ld % 4 == 0;
}

// A warp brings the first n_row rows of `to`: W numbers each, from p (ld) on, zeros behind n.
template <int W>
static __device__ __forceinline__ void bring_vectors(const float *p, uint32_t n, uint32_t ld,
                                                     bool fours, uint32_t n_row, float *to)
{
    const uint32_t lane = threadIdx.x % WARP;
#pragma unroll
    for (uint32_t i = 0; i < SCAN_STAGE * W / 4 / WARP; i++) {
        const uint32_t at = i * WARP + lane, row = at / (W / 4), c = at % (W / 4) * 4;
        if (row >= n_row)
            continue;
        const float *from = p + (size_t)row * ld;
        if (fours)
            cp_async16_or_zero(to + 4 * at, c < n ? from + c : p, c < n);
        else
            for (uint32_t k = 0; k < 4; k++)
                to[4 * at + k] = c + k < n ? from[c + k] : 0.0f;
    }
}

// As that, of SCAN_STAGE whole rows that can be copied by fours; p: from where this lane's first
// four of them is.
template <int W>
static __device__ __forceinline__ void bring_whole(const float *p, uint32_t ld, float *to)
{
#pragma unroll
    for (uint32_t i = 0; i < SCAN_STAGE * W / 4 / WARP; i++) {
        const uint32_t at = 4 * WARP * i; // numbers
        cp_async16(to + at, p + at / W * ld + at % W);
    }
}

// Where a lane's first four of rows (W) is.
template <int W> static __device__ __forceinline__ size_t lane_four(uint32_t ld)
{
    const uint32_t at = 4 * (threadIdx.x % WARP);
    return (size_t)(at / W) * ld + at % W;
}

// The warp that brings n rows from row0 on, a stage ahead of the others, which it meets before
// each. What load(row) gives, make(that, decay, gain) takes.
template <int P, typename LOAD, typename MAKE>
static __device__ __forceinline__ void bring(const struct scan_rows &r, uint32_t row0, uint32_t n,
                                             stage<P> (&stages)[2], LOAD load, MAKE make)
{
    const uint32_t lane = threadIdx.x % WARP;
    const bool a_fours = in_fours(r.a, r.n, r.ld), b_fours = in_fours(r.b, r.n, r.ld);
    const uint32_t n_value = r.n_value - r.first;
    const bool v_fours = in_fours(r.v + r.first, n_value, r.ld);
    const bool whole =
        a_fours && b_fours && v_fours && r.n == P && n_value >= (uint32_t)scan_cols<P>();
    const size_t of_lane = lane_four<P>(r.ld), of_v = lane_four<scan_cols<P>()>(r.ld) + r.first;
    const uint32_t shared = 4 * lane; // numbers, in a stage
    auto request = [&](uint32_t t0) {
        stage<P> &s = stages[t0 / SCAN_STAGE % 2];
        const size_t at = (size_t)(row0 + t0) * r.ld;
        if (whole && t0 + SCAN_STAGE <= n) {
            bring_whole<P>(r.a + at + of_lane, r.ld, &s.a[0][0].x + shared);
            bring_whole<P>(r.b + at + of_lane, r.ld, &s.b[0][0].x + shared);
            bring_whole<scan_cols<P>()>(r.v + at + of_v, r.ld, s.v[0] + shared);
        } else if (t0 < n) {
            bring_vectors<P>(r.a + at, r.n, r.ld, a_fours, n - t0, &s.a[0][0].x);
            bring_vectors<P>(r.b + at, r.n, r.ld, b_fours, n - t0, &s.b[0][0].x);
            bring_vectors<scan_cols<P>()>(r.v + at + r.first, n_value, r.ld, v_fours, n - t0,
                                          s.v[0]);
        }
        cp_async_commit();
    };
    float2 raw = {};
    request(0);
    if (lane < SCAN_STAGE && lane < n)
        raw = load(row0 + lane);
    for (uint32_t t0 = 0; t0 < n; t0 += SCAN_STAGE) {
        stage<P> &s = stages[t0 / SCAN_STAGE % 2];
        if (lane < SCAN_STAGE && t0 + lane < n)
            make(raw, s.decay[lane], s.gain[lane]);
        if (lane < SCAN_STAGE && t0 + SCAN_STAGE + lane < n)
            raw = load(row0 + t0 + SCAN_STAGE + lane);
        cp_async_wait<0>();
        meet(); // the stage before is done by whoever comes here
        request(t0 + SCAN_STAGE);
    }
}

// What a lane needs of a token.
template <int C, int E> struct token_in {
    float4 a[E], b[E];
    float v[C], decay, gain;
};

template <int P, bool GIVES, int C, int E>
static __device__ __forceinline__ void read_token(const stage<P> &s, uint32_t t, token_in<C, E> &in)
{
    const uint32_t lane = threadIdx.x % SCAN_LANES;
#pragma unroll
    for (int e = 0; e < E; e++)
        in.a[e] = s.a[t][lane + SCAN_LANES * e];
#pragma unroll
    for (int e = 0; GIVES && e < E; e++)
        in.b[e] = s.b[t][lane + SCAN_LANES * e];
#pragma unroll
    for (int c = 0; c < C; c++)
        in.v[c] = s.v[t][threadIdx.x / SCAN_LANES * C + c];
    in.decay = s.decay[t];
    in.gain = s.gain[t];
}

// ---- the recurrence

// The block's columns of a head's matrix, which is at `at` of a slot, go through a span.
// token(in, m) takes a lane's part of them through a token; what that gives is b times them:
// give(row, column, sum, v), by one lane for each column. GIVES: it is wanted, and so are the
// states within the span. load and make: see bring.
template <int P, bool GIVES, typename LOAD, typename MAKE, typename TOKEN, typename GIVE>
static __device__ __forceinline__ void
scan(const struct state_slots &state, const struct state_span &where, size_t at,
     const struct scan_rows &rows, const uint32_t *skip, stage<P> (&stages)[2], LOAD load,
     MAKE make, TOKEN token, GIVE give)
{
    constexpr int E = scan_fours<P>(), C = scan_lane_cols<P>();
    constexpr int SUMS = SCAN_GIVEN * C;
    static_assert(SUMS <= SCAN_LANES, "a lane has one of them");
    static_assert(STATES_EVERY % SCAN_STAGE == 0, "a stage has rows of one state within a span");
    const struct state_span span = where; // not asked for again
    const bool brings = threadIdx.x >= SCAN_WARPS * WARP;
    const uint32_t lane = threadIdx.x % SCAN_LANES, of_block = threadIdx.x / SCAN_LANES * C;
    const uint32_t col = rows.first + of_block;
    const uint32_t n_col = brings || col >= rows.n_value ? 0 : rows.n_value - col; // from col on
    float4 m[C][E] = {};
    if (span.from != NO_STATE)
        load_columns(state.base + span.from * state.stride + at + (size_t)col * rows.n, rows.n,
                     n_col, m);
    griddep_wait();
    if (span.n == 0 || (skip && *skip))
        return;
    if (brings) {
        bring<P>(rows, span.row0, span.n, stages, load, make);
        return;
    }
    const bool gives = GIVES && lane % C < n_col;
    const uint32_t n_full = span.n / SCAN_STAGE * SCAN_STAGE;
    const uint32_t n_within = GIVES ? where.n_within : 0;
    uint32_t t0 = 0;
    for (uint32_t k = 0; t0 < n_full; k++) { // up to a state within the span, or to the end
        const uint32_t end = k < n_within ? t0 + STATES_EVERY : n_full;
#pragma unroll 1
        for (; t0 < end; t0 += SCAN_STAGE) {
            const stage<P> &s = stages[t0 / SCAN_STAGE % 2];
            meet();
            token_in<C, E> in[2];
            read_token<P, GIVES>(s, 0, in[0]);
            float sums[SUMS], y[SCAN_STAGE / SCAN_GIVEN]; // given at the end: no branch between
#pragma unroll
            for (uint32_t t = 0; t < SCAN_STAGE; t++) {
                if (t + 1 < SCAN_STAGE) // before it is its turn
                    read_token<P, GIVES>(s, t + 1, in[(t + 1) % 2]);
                token(in[t % 2], m);
                if (GIVES)
                    dot_columns(in[t % 2].b, m, sums + t % SCAN_GIVEN * C);
                if (GIVES && (t + 1) % SCAN_GIVEN == 0)
                    y[t / SCAN_GIVEN] = own_sum<SUMS>(sums);
            }
#pragma unroll
            for (uint32_t i = 0; gives && lane < SUMS && i < SCAN_STAGE / SCAN_GIVEN; i++) {
                const uint32_t t = i * SCAN_GIVEN + lane / C;
                give(span.row0 + t0 + t, col + lane % C, y[i], s.v[t][of_block + lane % C]);
            }
        }
        if (k < n_within)
            store_columns(state.base + where.within[k] * state.stride + at + (size_t)col * rows.n,
                          rows.n, n_col, m);
    }
    if (n_full < span.n) {
        const stage<P> &s = stages[n_full / SCAN_STAGE % 2];
        meet();
#pragma unroll 1
        for (uint32_t t = 0; n_full + t < span.n; t++) {
            token_in<C, E> in;
            read_token<P, GIVES>(s, t, in);
            token(in, m);
            if (!GIVES)
                continue;
            float sums[C];
            dot_columns(in.b, m, sums);
            const float sum = own_sum<C>(sums);
            if (gives && lane < C)
                give(span.row0 + n_full + t, col + lane % C, sum, s.v[t][of_block + lane % C]);
        }
    }
    store_columns(state.base + span.to * state.stride + at + (size_t)col * rows.n, rows.n, n_col,
                  m);
}

#endif
