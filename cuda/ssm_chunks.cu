// Selective state spaces through many rows of a sequence, in matrix products over chunks of them.
//
// With a chunk's state M before it, (n_state, channels of a head), steps s_t, decays exp(s_t a) and
// their products G_t from the chunk's first row on, the state behind row t is (ssm.cu)
//     M_t = G_t M + sum_{i <= t} (G_t / G_i) b_i (s_i x_i)^T,
// so with U = diag(s) X what rows give, c_t M_t + d x_t, is diag(G) C M + S U + d X with S_ti =
// (G_t / G_i) (c_t b_i), i <= t, and behind the chunk M is G_C M + sum_i (G_C / G_i) b_i u_i^T (Dao
// and Gu 2024, section 6).
//
// The products c_t b_i, which the heads of a group share, depend on no state: ssm_prepare makes
// them, ssm_chunks goes from state to state (chunks.cuh). A warp of that has 8 columns or 16.
//
// Every factor is a high and a low bfloat16, whose three larger products are added in float: some
// 16 bits, and the range of a float.
#include "chunks.cuh"
#include "mix.cuh"

// ---- what depends on no state

// Of a group and a chunk; what is above the diagonal means nothing.
typedef float chunk_products[C][C];

// Grid (chunks, n_group). The vectors b and c are in two parts behind that, where they were.
template <int N>
static __global__ void __launch_bounds__(PREPARE_WARPS *WARP)
    ssm_prepare_kernel(const struct ssm_rows s, chunk_products *to)
{
    chunk_vectors<N> &x = *dynamic_smem<chunk_vectors<N>>();
    const struct state_span &span = s.state.spans[0];
    const uint32_t ld = ssm_channels(&s.ssm), warp = threadIdx.x / WARP, n_group = s.ssm.n_group;
    const uint32_t t0 = blockIdx.x * C, n_row = span.n > t0 ? lesser(span.n - t0, (uint32_t)C) : 0;
    float *const b = s.mixed + (size_t)(span.row0 + t0) * ld + s.ssm.n_inner + blockIdx.y * N;
    griddep_wait();
    split_rows<N>(b + n_group * N, b, ld, n_row, x);
    griddep_launch_dependents(); // not before, see delta_prepare
    if (warp >= C / M)
        return;
    chunk_products &mine = to[blockIdx.x * n_group + blockIdx.y];
    multiply_rows<N>(x, x.q, warp * M, [&](uint32_t row, uint32_t column, float2 products) {
        *reinterpret_cast<float2 *>(&mine[row][column]) = products;
    });
}

// ---- the states

// N numbers a column, T eights of columns a warp.
template <int N, int T> struct space_stage {
    static constexpr uint32_t COLS = CHUNK_WARPS * T * OWN; // of a block
    chunk_vectors<N> cb;                                    // q: c, k: b
    chunk_products products;
    float x[C][COLS + 8]; // lanes of a warp read from different banks
};

template <int N, int T> struct space_room {
    space_stage<N, T> stages[2];
    chunk_matrix s; // of the head
};

// A block asks for a chunk: nothing that is not there.
template <int N, int T>
static __device__ __forceinline__ void
request(const struct ssm_rows &s, uint32_t row0, uint32_t n_row, uint32_t group, uint32_t col0,
        const chunk_products &products, space_stage<N, T> &to)
{
    constexpr uint32_t THREADS = CHUNK_WARPS * WARP, FOURS = space_stage<N, T>::COLS / 4;
    const uint32_t ld = ssm_channels(&s.ssm);
    const float *const rows = s.mixed + (size_t)row0 * ld, *const x = rows + col0,
                       *const b = rows + s.ssm.n_inner + group * N;
    request_rows<N>(b + s.ssm.n_group * N, b, ld, n_row, to.cb);
#pragma unroll
    for (uint32_t k = 0; k < C * C / 4 / THREADS; k++) {
        const uint32_t i = k * THREADS + threadIdx.x;
        cp_async16(&to.products[i / (C / 4)][i % (C / 4) * 4],
                   &products[i / (C / 4)][i % (C / 4) * 4]);
    }
#pragma unroll
    for (uint32_t k = 0; k < C * FOURS / THREADS; k++) {
        const uint32_t i = k * THREADS + threadIdx.x;
        const uint32_t row = i / FOURS, at = i % FOURS * 4;
        const float *const from = x + at + (row < n_row ? (size_t)row * ld : 0);
        cp_async16_or_zero(&to.x[row][at], from, row < n_row);
    }
}

// A block: S, of the products and the lanes' rows' decays so far. A thread makes a piece.
static __device__ __forceinline__ void make_factor(const chunk_products &products, float log_decay,
                                                   chunk_matrix &s)
{
    static_assert(CHUNK_WARPS * WARP == C * C / 8, "a thread for a piece");
    const uint32_t t = threadIdx.x / (C / 8), first = threadIdx.x % (C / 8) * 8;
    const float of_row = __shfl_sync(0xFFFFFFFFu, log_decay, t);
    auto of = [&](uint32_t i, float product) {
        const float of_earlier = __shfl_sync(0xFFFFFFFFu, log_decay, i);
        const float left = expf(i <= t ? of_row - of_earlier : 0.0f) * product;
        return i <= t ? left : 0.0f;
    };
    float4 four[2];
#pragma unroll
    for (uint32_t k = 0; k < 2; k++) {
        const uint32_t i = first + 4 * k;
        const float4 p = load_four(&products[t][i]);
        four[k].x = of(i, p.x);
        four[k].y = of(i + 1, p.y);
        four[k].z = of(i + 2, p.z);
        four[k].w = of(i + 3, p.w);
    }
    store_piece(s, t, first / 8, four[0], four[1]);
}

// A warp's columns, T times the sums (N, OWN), of which a lane has two from the block's `mine`-th
// on, go through a chunk. step, log_decay: of the row that is the lane's. direct: the head's d.
// give(row, eight, values of two columns) is told what rows give.
template <int N, int T, typename F>
static __device__ __forceinline__ void go_on(space_room<N, T> &room, const space_stage<N, T> &stage,
                                             uint32_t mine, float step, float log_decay,
                                             float direct, float (&m)[T][N / M][4], F give)
{
    const uint32_t own = threadIdx.x % WARP / 4; // of sums: the row
    const float decay = expf(log_decay), last = __shfl_sync(0xFFFFFFFFu, decay, C - 1),
                rest = expf(__shfl_sync(0xFFFFFFFFu, log_decay, C - 1) - log_decay);
    float y[T][C / M][4] = {}, y_low[T][C / M][4] = {}, u[T][C / M][4];
#pragma unroll
    for (uint32_t i = 0; i < N / M; i++) {
        right b[T];
#pragma unroll
        for (uint32_t k = 0; k < T; k++)
            b[k] = right_of(m[k][i]);
#pragma unroll
        for (uint32_t j = 0; j < C / M; j++) {
            left c;
            load_rows<N>(c, stage.cb.q, j, i);
#pragma unroll
            for (uint32_t k = 0; k < T; k++)
                multiply(y[k][j], y_low[k][j], c, b[k]);
        }
    }
    make_factor(stage.products, log_decay, room.s);
    // of each row and eight, which two of a lane's sums are
    auto each = [&](auto f) {
#pragma unroll
        for (uint32_t j = 0; j < C / 8; j++)
#pragma unroll
            for (uint32_t k = 0; k < T; k++)
                f(j * 8 + own, k, j / 2, j % 2 * 2);
    };
    each([&](uint32_t t, uint32_t k, uint32_t j, uint32_t i) {
        const float2 x = *reinterpret_cast<const float2 *>(&stage.x[t][mine + k * OWN]);
        const float of_row = __shfl_sync(0xFFFFFFFFu, decay, t),
                    gain = __shfl_sync(0xFFFFFFFFu, step, t);
        y[k][j][i] = fmaf(of_row, y[k][j][i] + y_low[k][j][i], direct * x.x);
        y[k][j][i + 1] = fmaf(of_row, y[k][j][i + 1] + y_low[k][j][i + 1], direct * x.y);
        u[k][j][i] = gain * x.x;
        u[k][j][i + 1] = gain * x.y;
    });
    __syncthreads(); // S is whole
    multiply_lower<T>(room.s, u, y);
    each([&](uint32_t t, uint32_t k, uint32_t j, uint32_t i) {
        const float remains = __shfl_sync(0xFFFFFFFFu, rest, t);
        give(t, k, make_float2(y[k][j][i], y[k][j][i + 1]));
        u[k][j][i] *= remains;
        u[k][j][i + 1] *= remains;
    });
    write_state<N, T>(stage.cb.k, last, u, m);
}

// Grid (width of a head / space_stage::COLS, n_head).
template <int N, int T>
static __global__ void __launch_bounds__(CHUNK_WARPS *WARP, 2)
    ssm_chunks_kernel(const struct ssm_rows s, const chunk_products *products)
{
    space_room<N, T> &room = *dynamic_smem<space_room<N, T>>();
    griddep_launch_dependents();
    const struct state_span &span = s.state.spans[0];
    const struct ssm &f = s.ssm;
    const uint32_t head = blockIdx.y, group = head / (f.n_head / f.n_group);
    const uint32_t n = span.n, row0 = span.row0, n_within = span.n_within; // not asked for again
    const uint32_t lane = threadIdx.x % WARP, mine = threadIdx.x / WARP * T * OWN + lane % 4 * 2;
    const uint32_t col0 = head * (f.n_inner / f.n_head) + blockIdx.x * space_stage<N, T>::COLS;
    const size_t at = ssm_inputs(&f) + (size_t)(col0 + mine) * N + lane / 4;
    const float a = s.a[head], direct = s.d[head], dt = s.dt[head];
    float m[T][N / M][4] = {};
    auto sums_of = [&](uint32_t slot, uint32_t eight) {
        return s.state.base + slot * s.state.stride + at + (size_t)eight * OWN * N;
    };
    auto store = [&](uint32_t slot) {
#pragma unroll
        for (uint32_t k = 0; k < T; k++)
            store_sums<N>(sums_of(slot, k), m[k]);
    };
    if (span.from != NO_STATE)
#pragma unroll
        for (uint32_t k = 0; k < T; k++)
            load_sums<N>(sums_of(span.from, k), m[k]);
    griddep_wait();
    if (n == 0)
        return;
    auto ask = [&](uint32_t t0) {
        if (t0 < n)
            request<N, T>(s, row0 + t0, lesser(n - t0, (uint32_t)C), group, col0,
                          products[t0 / C * f.n_group + group], room.stages[t0 / C % 2]);
        cp_async_commit();
    };
    auto step_of = [&](uint32_t row) { // before its function
        return row < n ? s.in[(size_t)(row0 + row) * s.ld + s.ld - f.n_head + head] : 0.0f;
    };
    ask(0);
    float next_step = step_of(lane);
#pragma unroll 1
    for (uint32_t t0 = 0; t0 < n; t0 += C) {
        // a row that is not there leaves all as it is
        const float step = t0 + lane < n ? softplus(next_step + dt) : 0.0f;
        cp_async_wait<0>();
        __syncthreads(); // all has come, and nobody reads the other stage any more
        ask(t0 + C);
        next_step = step_of(t0 + C + lane);
        float *const y = s.y + (size_t)(row0 + t0) * f.n_inner + col0 + mine;
        go_on<N, T>(room, room.stages[t0 / C % 2], mine, step, decay_so_far(step * a), direct, m,
                    [&](uint32_t t, uint32_t eight, float2 values) {
                        if (t0 + t < n)
                            *reinterpret_cast<float2 *>(&y[(size_t)t * f.n_inner + eight * OWN]) =
                                values;
                    });
        const uint32_t done = t0 + C;
        if (done % STATES_EVERY == 0 && done / STATES_EVERY <= n_within)
            store(span.within[done / STATES_EVERY - 1]);
    }
    store(span.to);
}

// ---- the convolution

static __global__ void __launch_bounds__(MIX_WARPS *WARP, 5) ssm_mix_kernel(const struct ssm_rows s)
{
    griddep_launch_dependents();
    const uint32_t channel = mix_channel(), n_all = ssm_channels(&s.ssm);
    const float4 start = s.bias && channel < n_all ? load_four(s.bias + channel) : float4{};
    mix_rows(s.state, s.in + s.ssm.n_inner, s.ld, s.w, n_all, channel, mix_row(), start, s.mixed,
             [](float(&)[4]) {});
}

// ---- launchers

// f of the integral constants N and T: numbers of a column, and eights of columns of a warp, if
// chunks are for such states and there is shared memory for them.
template <typename F> static bool with_space(const struct queue *q, const struct ssm *d, F f)
{
    const uint32_t width = d->n_inner / d->n_head, one = CHUNK_WARPS * OWN;
    // of 16 columns if those of 8 have no multiprocessor each
    const bool wide = width % (2 * one) == 0 && (int)(d->n_inner / one) > q->n_sm;
    auto of = [&](auto n) {
        if constexpr (n() <= 128) // more have no room in the registers
            if (wide && sizeof(space_room<n(), 2>) <= q->smem_max)
                return f(n, std::integral_constant<int, 2>());
        return sizeof(space_room<n(), 1>) <= q->smem_max && f(n, std::integral_constant<int, 1>());
    };
    return width % one != 0    ? false
           : d->n_state == 64  ? of(std::integral_constant<int, 64>())
           : d->n_state == 128 ? of(std::integral_constant<int, 128>())
           : d->n_state == 256 ? of(std::integral_constant<int, 256>())
                               : false;
}

bool ssm_can_chunk(const struct queue *q, const struct ssm *d)
{
    return with_space(q, d, [](auto, auto) { return true; });
}

size_t ssm_chunk_bytes(const struct queue *q, const struct ssm *d, uint32_t n)
{
    return ssm_can_chunk(q, d)
               ? div_up(n, (uint32_t)C) * (size_t)d->n_group * sizeof(chunk_products)
               : 0;
}

bool ssm_mix_launch(const struct queue *q, const struct ssm_rows *s, uint32_t n, struct error *err)
{
    // rows of fours, too
    if (s->ssm.n_conv != MIX_TAPS || s->ld % 4 != 0)
        return ssm_conv_launch(q, s, n, err);
    return launch_kernel(err, mix_launch(q, "ssm_mix", n, ssm_channels(&s->ssm)), ssm_mix_kernel,
                         *s);
}

bool ssm_chunks_launch(const struct queue *q, const struct ssm_rows *s, void *scratch, uint32_t n,
                       struct error *err)
{
    const uint32_t width = s->ssm.n_inner / s->ssm.n_head;
    chunk_products *const products = (chunk_products *)scratch;
    return with_space(q, &s->ssm, [&](auto numbers, auto eights) {
        typedef space_stage<numbers(), eights()> stage;
        struct launch first =
                          launch_of(q, "ssm_prepare", dim3(div_up(n, (uint32_t)C), s->ssm.n_group),
                                    PREPARE_WARPS * WARP),
                      second = launch_of(q, "ssm_chunks", dim3(width / stage::COLS, s->ssm.n_head),
                                         CHUNK_WARPS * WARP);
        first.smem = sizeof(chunk_vectors<numbers()>);
        second.smem = sizeof(space_room<numbers(), eights()>);
        set_apart(q, &second);
        return launch_kernel(err, first, ssm_prepare_kernel<numbers()>, *s, products) &&
               launch_kernel(err, second, ssm_chunks_kernel<numbers(), eights()>, *s, products);
    });
}
