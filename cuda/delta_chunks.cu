// Gated delta nets through many rows of a sequence, in matrix products over chunks of them.
//
// With a chunk's state M before it, decays g and their products G_t = g_1 .. g_t, what delta.cu
// calls news of row t is
//     u_t = beta_t (v_t - G_t M^T k_t - sum_{i < t} (G_t / G_i) (k_t k_i) u_i),
// so (1 + A) U = diag(beta) (V - diag(G) K M) with A_ti = beta_t (G_t / G_i) (k_t k_i) below the
// diagonal (Yang et al. 2024, section 3). What rows give is diag(G) Q M + S U with S_ti = (G_t /
// G_i) (q_t k_i), i <= t, and behind the chunk M is G_C M + sum_i (G_C / G_i) k_i u_i^T.
//
// N = (1 + A)^-1 diag(beta) and S depend on no state: delta_prepare makes them, delta_chunks goes
// from state to state (chunks.cuh). A warp of that has 8 columns; 16 need no exchange, but then
// half of a GPU's tensor cores have no warp.
//
// Every factor is a high and a low bfloat16, whose three larger products are added in float: some
// 16 bits, and the range of a float.
#include "chunks.cuh"
#include "delta.cuh"

enum {
    COLS = CHUNK_WARPS * OWN, // of a block
    V_LD = COLS + 8,          // floats: lanes of a warp read from different banks
    A_LD = C + 4,             // floats
};

// Of a head and a chunk.
struct chunk_factors {
    chunk_matrix n, s;
    float decay[C], rest[C]; // G_t, G_C / G_t
};

// ---- what depends on no state

typedef float4 lane_row[A_LD / 4]; // of a matrix (C, C)

template <int P> struct prepare_room {
    chunk_vectors<P> x;
    lane_row kk[C], qk[C];
    lane_row a[PREPARE_WARPS][C];
};

// A warp, of 16 rows of queries or keys: their products with all keys.
template <int P>
static __device__ __forceinline__ void multiply_keys(const chunk_vectors<P> &x,
                                                     const uint4 (&of)[C][P / 4], uint32_t row0,
                                                     lane_row (&to)[C])
{
    multiply_rows<P>(x, of, row0, [&](uint32_t row, uint32_t column, float2 products) {
        reinterpret_cast<float2 *>(to[row])[column / 2] = products;
    });
}

static __device__ __forceinline__ void store_row(const lane_row &row, uint32_t t, chunk_matrix &to)
{
#pragma unroll
    for (uint32_t piece = 0; piece < C / 8; piece++)
        store_piece(to, t, piece, row[2 * piece], row[2 * piece + 1]);
}

// A lane's row of products with keys, times f and what is left of an earlier row's news: of the
// first n rows.
static __device__ __forceinline__ void decay_row(const lane_row &products, float log_decay, float f,
                                                 uint32_t n, lane_row &to)
{
#pragma unroll
    for (uint32_t i = 0; i < C; i += 4) {
        const float4 x = products[i / 4];
        auto of = [&](uint32_t k, float product) {
            const float of_row = __shfl_sync(0xFFFFFFFFu, log_decay, i + k);
            return i + k < n ? f * expf(log_decay - of_row) * product : 0.0f;
        };
        const float a = of(0, x.x), b = of(1, x.y), c = of(2, x.z), d = of(3, x.w);
        to[i / 4] = make_float4(a, b, c, d);
    }
}

// A warp: N of the A in a, (C, C), to the same place.
static __device__ __forceinline__ void invert(float gain, lane_row (&a)[C])
{
    const uint32_t t = threadIdx.x % WARP;
    float column[C] = {}; // a lane's, of (1 + A)^-1
#pragma unroll
    for (uint32_t r = 0; r < C; r++) {
        float4 sum = {}; // A is zero from r on
#pragma unroll
        for (uint32_t i = 0; i < r; i += 4) {
            const float4 x = a[r][i / 4];
            sum.x = fmaf(x.x, column[i], sum.x);
            sum.y = fmaf(x.y, column[i + 1], sum.y);
            sum.z = fmaf(x.z, column[i + 2], sum.z);
            sum.w = fmaf(x.w, column[i + 3], sum.w);
        }
        column[r] = (r == t ? 1.0f : 0.0f) - ((sum.x + sum.y) + (sum.z + sum.w));
    }
    __syncwarp();
#pragma unroll
    for (uint32_t r = 0; r < C; r++)
        reinterpret_cast<float *>(a[r])[t] = column[r] * gain;
    __syncwarp();
}

// A warp, of one of the heads: what a chunk of n_row rows from row0 on multiplies by, S and the
// decays, or N, each through memory of its own.
static __device__ __forceinline__ void factors_of(const struct delta_rows &d, uint32_t head,
                                                  uint32_t row0, uint32_t n_row, bool for_states,
                                                  const lane_row (&products)[C], lane_row (&a)[C],
                                                  chunk_factors &to)
{
    const uint32_t t = threadIdx.x % WARP;
    float gain = 0.0f, log_decay = 0.0f; // a row that is not there leaves all as it is
    if (t < n_row) {
        const float2 raw = load_gates(d, inputs_of(d, head), row0 + t);
        gain = logistic(raw.x);
        log_decay = d.a[head] * softplus(raw.y + d.dt[head]);
    }
    log_decay = decay_so_far(log_decay);
    if (for_states) {
        decay_row(products[t], log_decay, gain, t, a[t]);
        __syncwarp();
        invert(gain, a);
        store_row(a[t], t, to.n);
        return;
    }
    const float last = __shfl_sync(0xFFFFFFFFu, log_decay, C - 1);
    to.decay[t] = expf(log_decay);
    to.rest[t] = expf(last - log_decay);
    decay_row(products[t], log_decay, 1.0f, t + 1, a[t]);
    store_row(a[t], t, to.s);
}

// Grid (chunks, n_key_head). Queries and keys are in two parts behind that, where they were.
template <int P>
static __global__ void __launch_bounds__(PREPARE_WARPS *WARP)
    delta_prepare_kernel(const struct delta_rows d, chunk_factors *to)
{
    prepare_room<P> &s = *dynamic_smem<prepare_room<P>>();
    const struct state_span &span = d.state.spans[0];
    const uint32_t key = blockIdx.y, n_key = d.delta.n_key_head, warp = threadIdx.x / WARP;
    const uint32_t ld = (2 * n_key + d.delta.n_head) * P; // floats
    const uint32_t t0 = blockIdx.x * C, n_row = span.n > t0 ? lesser(span.n - t0, (uint32_t)C) : 0;
    float *const q = d.mixed + (size_t)(span.row0 + t0) * ld + key * P, *const k = q + n_key * P;
    griddep_wait();
    split_rows<P>(q, k, ld, n_row, s.x);
    if (warp < 2)
        multiply_keys<P>(s.x, s.x.k, warp * M, s.kk);
    else
        multiply_keys<P>(s.x, s.x.q, (warp - 2) * M, s.qk);
    __syncthreads();
    // not before: while blocks wait for their turn, those of the next launch come where there is
    // room, all on a few multiprocessors
    griddep_launch_dependents();
    const uint32_t shared = d.delta.n_head / n_key;
    for (uint32_t i = warp; i < 2 * shared; i += PREPARE_WARPS) {
        const uint32_t head = d.delta.in_order ? key * shared + i / 2 : i / 2 * n_key + key;
        const bool for_states = i % 2 == 0;
        factors_of(d, head, span.row0 + t0, n_row, for_states, for_states ? s.kk : s.qk, s.a[warp],
                   to[(size_t)blockIdx.x * d.delta.n_head + head]);
        __syncwarp();
    }
}

// ---- the states

template <int P> struct chunk_stage {
    chunk_vectors<P> x;
    chunk_factors f;
    float v[C][V_LD];
};

// A block asks for a chunk: nothing that is not there.
template <int P>
static __device__ __forceinline__ void
request(const struct delta_rows &d, uint32_t row0, uint32_t n_row, uint32_t key, uint32_t head,
        uint32_t col0, const chunk_factors &f, chunk_stage<P> &to)
{
    constexpr uint32_t THREADS = CHUNK_WARPS * WARP, N = sizeof(chunk_factors) / 16;
    const uint32_t n_key = d.delta.n_key_head, ld = (2 * n_key + d.delta.n_head) * P;
    const float *const rows = d.mixed + (size_t)row0 * ld;
    request_rows<P>(rows + key * P, rows + (n_key + key) * P, ld, n_row, to.x);
    for (uint32_t i = threadIdx.x; i < N; i += THREADS)
        cp_async16(reinterpret_cast<uint4 *>(&to.f) + i, reinterpret_cast<const uint4 *>(&f) + i);
#pragma unroll
    for (uint32_t x = 0; x < C * COLS / 4 / THREADS; x++) {
        const uint32_t i = x * THREADS + threadIdx.x;
        const uint32_t row = i / (COLS / 4), at = i % (COLS / 4) * 4;
        const float *from = rows + (row < n_row ? (size_t)row * ld + (2 * n_key + head) * P : 0);
        cp_async16_or_zero(&to.v[row][at], row < n_row ? from + col0 + at : from, row < n_row);
    }
}

// A warp's columns, of which m are the sums (P, OWN), go through a chunk; give(row, column, value
// of it, of the next column) is told what rows give.
template <int P, typename GIVE>
static __device__ __forceinline__ void go_on(const chunk_stage<P> &s, uint32_t warp,
                                             float (&m)[1][P / M][4], GIVE give)
{
    const uint32_t lane = threadIdx.x % WARP;
    const uint32_t own = lane / 4, pair = lane % 4 * 2; // of sums: the row, and the column
    float of_k[1][C / M][4] = {}, y[1][C / M][4] = {}, news[1][C / M][4] = {};
#pragma unroll
    for (uint32_t i = 0; i < P / M; i++) {
        const right b = right_of(m[0][i]);
#pragma unroll
        for (uint32_t j = 0; j < C / M; j++) {
            left k, q;
            load_rows<P>(k, s.x.k, j, i);
            load_rows<P>(q, s.x.q, j, i);
            multiply(of_k[0][j], k, b);
            multiply(y[0][j], q, b);
        }
    }
#pragma unroll
    for (uint32_t j = 0; j < C / M; j++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t t = j * M + own + i / 2 * 8;
            of_k[0][j][i] = fmaf(-s.f.decay[t], of_k[0][j][i], s.v[t][warp * OWN + pair + i % 2]);
            y[0][j][i] *= s.f.decay[t];
        }
    multiply_lower<1>(s.f.n, of_k, news);
    multiply_lower<1>(s.f.s, news, y);
#pragma unroll
    for (uint32_t j = 0; j < C / M; j++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i += 2) {
            const uint32_t t = j * M + own + i / 2 * 8;
            give(t, pair, make_float2(y[0][j][i], y[0][j][i + 1]));
            news[0][j][i] *= s.f.rest[t];
            news[0][j][i + 1] *= s.f.rest[t];
        }
    write_state<P, 1>(s.x.k, s.f.decay[C - 1], news, m);
}

// Grid (P / COLS, n_head).
template <int P>
static __global__ void __launch_bounds__(CHUNK_WARPS *WARP, 2)
    delta_chunks_kernel(const struct delta_rows d, const chunk_factors *factors)
{
    chunk_stage<P> *const stages = dynamic_smem<chunk_stage<P>>(); // two
    griddep_launch_dependents();
    const struct state_span &span = d.state.spans[0];
    const uint32_t head = blockIdx.y, key = inputs_of(d, head).key;
    const uint32_t n = span.n, row0 = span.row0, n_within = span.n_within; // not asked for again
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t col0 = blockIdx.x * COLS, col = col0 + warp * OWN;
    const size_t at =
        delta_inputs(&d.delta) + ((size_t)head * P + col + lane % 4 * 2) * P + lane / 4;
    float m[1][P / M][4] = {};
    if (span.from != NO_STATE)
        load_sums<P>(d.state.base + span.from * d.state.stride + at, m[0]);
    griddep_wait();
    if (n == 0)
        return;
    auto store = [&](uint32_t slot) {
        store_sums<P>(d.state.base + slot * d.state.stride + at, m[0]);
    };
    auto ask = [&](uint32_t c) {
        if (c * C < n)
            request<P>(d, row0 + c * C, lesser(n - c * C, (uint32_t)C), key, head, col0,
                       factors[(size_t)c * d.delta.n_head + head], stages[c % 2]);
        cp_async_commit();
    };
    ask(0);
#pragma unroll 1
    for (uint32_t c = 0; c * C < n; c++) {
        cp_async_wait<0>();
        __syncthreads(); // all has come, and nobody reads the other stage any more
        ask(c + 1);
        float *const y = d.y + ((size_t)(row0 + c * C) * d.delta.n_head + head) * P + col;
        const uint32_t n_row = n - c * C;
        go_on<P>(stages[c % 2], warp, m, [&](uint32_t t, uint32_t own, float2 values) {
            if (t < n_row)
                *reinterpret_cast<float2 *>(&y[(size_t)t * d.delta.n_head * P + own]) = values;
        });
        const uint32_t done = (c + 1) * C;
        if (done % STATES_EVERY == 0 && done / STATES_EVERY <= n_within)
            store(span.within[done / STATES_EVERY - 1]);
    }
    store(span.to);
}

// ---- launchers

bool delta_can_chunk(const struct delta *d)
{
    return with_chunk_width(d->n_state, [](auto) { return true; });
}

size_t delta_chunk_bytes(const struct delta *d, uint32_t n)
{
    return delta_can_chunk(d)
               ? div_up(n, (uint32_t)C) * (size_t)d->n_head * sizeof(struct chunk_factors)
               : 0;
}

bool delta_chunks_launch(const struct queue *q, const struct delta_rows *d, void *scratch,
                         uint32_t n, struct error *err)
{
    const dim3 chunks(div_up(n, (uint32_t)C), d->delta.n_key_head);
    chunk_factors *const factors = (chunk_factors *)scratch;
    return with_chunk_width(d->delta.n_state, [&](auto p) {
        struct launch first = launch_of(q, "delta_prepare", chunks, PREPARE_WARPS * WARP),
                      second = launch_of(q, "delta_chunks", dim3(p() / COLS, d->delta.n_head),
                                         CHUNK_WARPS * WARP);
        first.smem = sizeof(prepare_room<p()>);
        second.smem = 2 * sizeof(chunk_stage<p()>);
        set_apart(q, &second);
        return launch_kernel(err, first, delta_prepare_kernel<p()>, *d, factors) &&
               launch_kernel(err, second, delta_chunks_kernel<p()>, *d, factors);
    });
}
