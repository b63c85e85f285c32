// Who is chosen (struct experts in model/model.h), the order of rows by expert, and the sum of what
// experts give. All of it in device memory: the host never knows.
#include "choice.cuh"
#include "few_rows.cuh"
#include "quant.cuh"

enum {
    CHOOSE_THREADS = 256, // where the shared expert has a gate
    ROUTE_THREADS = 256,
    ROUTE_ROWS = 2,  // of a block: neighbours in a tile fill a sector of 32 bytes
    ROUTE_AHEAD = 8, // chunks that a thread has under way
    GROUP_THREADS = 1024,
    CHOOSE_ROWS = 32,      // that the warps of one block choose for, one each
    GROUP_SMEM = 40 << 10, // of counts, unless a row of them is longer
    SUM_THREADS = 128,
    SUM_AT_ONCE = 4, // pairs of a row under way
};

// ---- kernels

// The gate of the shared expert for a row, by all but the first warp of CHOOSE_THREADS.
static __device__ __forceinline__ void gate_shared(const struct choice &c, uint32_t of)
{
    __shared__ float squares_of[CHOOSE_THREADS / WARP], dot_of[CHOOSE_THREADS / WARP];
    const uint32_t warp = threadIdx.x / WARP;
    const float *row = c.x + (size_t)of * c.n_cols;
    if (warp > 0) {
        float squares = 0.0f, dot = 0.0f;
#pragma unroll 4
        for (uint32_t i = threadIdx.x - WARP; i < c.n_cols; i += CHOOSE_THREADS - WARP) {
            squares = fmaf(row[i], row[i], squares);
            dot = fmaf(row[i] * (c.norm ? c.norm[i] : 1.0f), c.router[i], dot);
        }
        for (int d = WARP / 2; d > 0; d /= 2) {
            squares += __shfl_xor_sync(ALL_LANES, squares, d);
            dot += __shfl_xor_sync(ALL_LANES, dot, d);
        }
        squares_of[warp] = squares;
        dot_of[warp] = dot;
    }
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    float squares = 0.0f, dot = 0.0f;
    for (int w = 1; w < CHOOSE_THREADS / WARP; w++) {
        squares += squares_of[w];
        dot += dot_of[w];
    }
    c.shared[of] =
        sigmoid(c.norm ? dot / sqrtf(of_squares(squares / (float)c.n_cols + c.eps)) : dot);
}

// Grid (n). The first warp of a block chooses; where the shared expert has a gate, the others
// multiply that.
static __global__ void __launch_bounds__(CHOOSE_THREADS)
    choose_kernel(const __grid_constant__ struct choice c)
{
    griddep_wait();
    griddep_launch_dependents(); // not sooner: who comes next may read what was before this launch
    if (c.skip && *c.skip)
        return;
    if (threadIdx.x < WARP)
        choose_for(c, blockIdx.x, choosing_at(dynamic_smem<float>(), c.facts), threadIdx.x);
    if (c.router)
        gate_shared(c, blockIdx.x);
}

// Grid: ceil(n / ROUTE_ROWS) blocks, one more where the shared expert has a gate, which is that
// one's. Each has all of x, and asks for its weights before it waits. The last to come chooses,
// unless those do who multiply.
static __global__ void __launch_bounds__(ROUTE_THREADS)
    route_kernel(const __grid_constant__ struct route m)
{
    enum { STEP = ROUTE_THREADS / ROUTE_ROWS }; // chunks
    __shared__ float part[2][ROUTE_THREADS / WARP][ROUTE_ROWS];
    const struct choice &c = m.choice;
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t r = threadIdx.x % ROUTE_ROWS, row = blockIdx.x * ROUTE_ROWS + r;
    const bool shared = blockIdx.x * ROUTE_ROWS >= c.facts.n;
    const float *norm = shared ? c.norm : m.norm;
    const float *w =
        shared ? c.router
               : reinterpret_cast<const float *>(m.w.q) +
                     ((size_t)(row / TILE_ROWS) * m.w.n_chunk * TILE_ROWS + row % TILE_ROWS) * 4;
    const uint32_t step = shared ? 4 : 4 * TILE_ROWS; // floats from chunk to chunk
    const uint32_t n_chunk = c.n_cols / 4;
    float4 weight[ROUTE_AHEAD], scale[ROUTE_AHEAD], x[ROUTE_AHEAD];
    auto ask = [&](uint32_t first) {
#pragma unroll
        for (uint32_t k = 0; k < ROUTE_AHEAD; k++) {
            const uint32_t i = first + k * STEP;
            if (i >= n_chunk)
                continue;
            weight[k] = *reinterpret_cast<const float4 *>(w + (size_t)i * step);
            if (norm)
                scale[k] = *reinterpret_cast<const float4 *>(norm + 4 * i);
        }
    };
    float dot = 0.0f, squares = 0.0f;
    auto add = [&](float v, float by, float times) {
        squares = fmaf(v, v, squares);
        dot = fmaf(norm ? v * by : v, times, dot);
    };
    const uint32_t c0 = threadIdx.x / ROUTE_ROWS;
    ask(c0);
    griddep_wait();
    griddep_launch_dependents(); // not sooner: who comes next may read what was before this launch
    const uint32_t skip = c.skip ? *c.skip : 0;
#pragma unroll 1
    for (uint32_t first = c0; first < n_chunk; first += ROUTE_AHEAD * STEP) {
        if (first != c0)
            ask(first);
#pragma unroll
        for (uint32_t k = 0; k < ROUTE_AHEAD; k++)
            if (first + k * STEP < n_chunk)
                x[k] = *reinterpret_cast<const float4 *>(c.x + 4 * (first + k * STEP));
        if (skip) // asked only now, so that all of these are under way together
            break;
#pragma unroll
        for (uint32_t k = 0; k < ROUTE_AHEAD; k++) {
            if (first + k * STEP >= n_chunk)
                continue;
            add(x[k].x, scale[k].x, weight[k].x);
            add(x[k].y, scale[k].y, weight[k].y);
            add(x[k].z, scale[k].z, weight[k].z);
            add(x[k].w, scale[k].w, weight[k].w);
        }
    }
    if (skip)
        return;
    for (int d = WARP / 2; d >= ROUTE_ROWS; d /= 2) {
        dot += __shfl_xor_sync(ALL_LANES, dot, d);
        squares += __shfl_xor_sync(ALL_LANES, squares, d);
    }
    if (lane < ROUTE_ROWS) {
        part[0][warp][r] = dot;
        part[1][warp][r] = squares;
    }
    __syncthreads();
    if (threadIdx.x < ROUTE_ROWS) {
        dot = squares = 0.0f;
        for (int i = 0; i < ROUTE_THREADS / WARP; i++) {
            dot += part[0][i][r];
            squares += part[1][i][r];
        }
        if (norm)
            dot /= sqrtf(of_squares(squares / (float)c.n_cols + c.eps));
        if (!shared && row < c.facts.n)
            m.logits[row] = dot + (m.bias ? m.bias[row] : 0.0f);
        else if (shared && r == 0)
            c.shared[0] = sigmoid(dot);
    }
    if (m.chooses && last_to_arrive(m.counter, gridDim.x) && warp == 0)
        choose_for(c, 0, choosing_at(dynamic_smem<float>(), c.facts), lane);
}

// Row `of` for expert_few.cu, by a block for which nobody here waits.
template <int N_THREAD>
static __device__ __forceinline__ void pack_few(const struct few_pack &p, uint32_t of)
{
    constexpr int N_PART = N_THREAD / WARP;
    __shared__ float tops[N_PART];
    const uint32_t n_piece = div_up(p.n_cols, (uint32_t)GEMM_PACK_COLS) * FEW_STEP_PIECES;
    const float *row = p.x + (size_t)of * p.ld;
    float v[8], top = 0.0f;
    for (uint32_t i = threadIdx.x; 8 * i < p.n_cols; i += N_THREAD) {
        load8<true>(row, i, p.n_cols, v);
        for (int e = 0; e < 8; e++)
            top = max_nan(top, fabsf(v[e]));
    }
    top = warp_max_nan(top);
    if (threadIdx.x % WARP == 0)
        tops[threadIdx.x / WARP] = top;
    __syncthreads();
    const float scale = half_range(lane_max_nan<N_PART / 2, 1>(tops[threadIdx.x % N_PART]));
    uint4 *const to = reinterpret_cast<uint4 *>(p.out) + (size_t)of * n_piece;
    for (uint32_t i = threadIdx.x; i < n_piece; i += N_THREAD) {
        for (int e = 0; e < 8; e++)
            v[e] = 0.0f;
        if (8 * i < p.n_cols)
            load8<true>(row, i, p.n_cols, v);
        to[few_piece_at(i)] = few_piece(v, scale);
    }
    if (threadIdx.x == 0)
        p.undo[of] = half_range_undo(scale);
}

// What goes on beside grouping: the first block, which groups, clears what expert_few.cu is to
// raise, the others make a row each ready for it. Returns whether this is one of the others.
template <int N_THREAD> static __device__ __forceinline__ bool is_beside(const struct grouping &g)
{
    if (blockIdx.x > 0) {
        pack_few<N_THREAD>(g.few, blockIdx.x - 1);
        return true;
    }
    for (uint32_t i = threadIdx.x; g.top && i < g.n_pair; i += blockDim.x)
        g.top[i] = 0;
    return false;
}

// By one block. Warp w counts the experts of the w-th of n_part stretches of pairs; sums over
// stretches and experts turn counts into first places; then it gives those out, 32 pairs at a time
// in order. counts (1 + n_part, n_expert); row 0: where an expert's places begin.
static __device__ __forceinline__ void group_pairs(const struct grouping &g, uint32_t n_part)
{
    __shared__ uint64_t sums[GROUP_THREADS / WARP];
    uint32_t *const begin = dynamic_smem<uint32_t>(), *const counts = begin + g.n_expert;
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (uint32_t i = threadIdx.x; i < n_part * g.n_expert; i += GROUP_THREADS)
        counts[i] = 0;
    __syncthreads();
    uint32_t *const mine = counts + warp * g.n_expert;
    const uint32_t first = (uint32_t)((uint64_t)g.n_pair * min(warp, n_part) / n_part);
    const uint32_t end = (uint32_t)((uint64_t)g.n_pair * min(warp + 1, n_part) / n_part);
#pragma unroll 4
    for (uint32_t i = first + lane; i < end; i += WARP)
        atomicAdd(&mine[g.chosen[i]], 1u);
    __syncthreads();

    uint64_t before = 0; // of the experts before: places, and items << 32
    for (uint32_t base = 0; base < g.n_expert; base += GROUP_THREADS) {
        const uint32_t expert = base + threadIdx.x;
        uint32_t n = 0;
        for (uint32_t p = 0; p < n_part && expert < g.n_expert; p++)
            n += counts[p * g.n_expert + expert];
        const uint32_t n_item = (n + g.per_item - 1) / g.per_item;
        const uint64_t own = (uint64_t)n_item << 32 | n, upto = warp_scan(own);
        if (lane == WARP - 1)
            sums[warp] = upto;
        __syncthreads();
        uint64_t at = before + upto - own;
        for (uint32_t w = 0; w < GROUP_THREADS / WARP; w++) {
            at += w < warp ? sums[w] : 0;
            before += sums[w];
        }
        __syncthreads();
        if (expert >= g.n_expert)
            continue;
        uint32_t place = (uint32_t)at;
        begin[expert] = place;
        for (uint32_t i = 0; i < n_item; i++)
            g.items[(at >> 32) + i] = {expert, place + i * g.per_item,
                                       lesser(n - i * g.per_item, g.per_item)};
        for (uint32_t p = 0; p < n_part; p++) {
            uint32_t *const c = &counts[p * g.n_expert + expert];
            const uint32_t n_here = *c;
            *c = place;
            place += n_here;
        }
    }
    const uint32_t n_item = (uint32_t)(before >> 32);
    const uint32_t n_slot = expert_items(g.n_expert, g.n_pair, g.per_item);
    for (uint32_t i = n_item + threadIdx.x; i < n_slot; i += GROUP_THREADS)
        g.items[i] = {};
    if (threadIdx.x == 0)
        *g.n_item = n_item;
    __syncthreads();

    for (uint32_t i0 = first; i0 < end; i0 += WARP) {
        const uint32_t i = i0 + lane, expert = i < end ? g.chosen[i] : g.n_expert;
        const uint32_t peers = __match_any_sync(ALL_LANES, expert);
        const uint32_t at = i < end ? mine[expert] : 0;
        __syncwarp();
        if (i < end) {
            const uint32_t place = at + (uint32_t)__popc(peers & ((1u << lane) - 1));
            if (peers >> lane == 1) // the last of them
                mine[expert] = place + 1;
            g.place[i] = place;
            g.pair_at[place] = i;
            g.rank[i] = place - begin[expert];
        }
        __syncwarp();
    }
}

enum { GROUP_FEW = 64 }; // pairs

// The same of a few pairs, whose experts lie in shared memory: each is compared with all others.
static __device__ __forceinline__ void group_few(const struct grouping &g, const uint32_t *expert)
{
    __shared__ bool first[GROUP_FEW]; // of an item
    const uint32_t i = threadIdx.x;
    const bool valid = i < g.n_pair;
    const uint32_t own = valid ? expert[i] : 0;
    uint32_t before = 0, rank = 0, n = 0; // pairs of experts before; of this one, and in all
    if (valid) {
#pragma unroll 8
        for (uint32_t k = 0; k < g.n_pair; k++) {
            const uint32_t other = expert[k];
            before += other < own;
            rank += other == own && k < i;
            n += other == own;
        }
        first[i] = rank % g.per_item == 0;
        g.place[i] = before + rank;
        g.pair_at[before + rank] = i;
        g.rank[i] = rank;
    }
    const bool begins = valid && first[i];
    const uint32_t n_item = (uint32_t)__syncthreads_count(begins);
    if (begins) {
        uint32_t at = rank / g.per_item;
#pragma unroll 8
        for (uint32_t k = 0; k < g.n_pair; k++)
            at += expert[k] < own && first[k];
        g.items[at] = {own, before + rank, lesser(n - rank, g.per_item)};
    }
    const uint32_t n_slot = expert_items(g.n_expert, g.n_pair, g.per_item);
    for (uint32_t k = n_item + i; k < n_slot; k += blockDim.x)
        g.items[k] = {};
    if (i == 0)
        *g.n_item = n_item;
}

static __global__ void __launch_bounds__(GROUP_THREADS)
    group_kernel(const __grid_constant__ struct grouping g, uint32_t n_part)
{
    griddep_launch_dependents();
    griddep_wait();
    if (g.skip && *g.skip)
        return;
    if (is_beside<GROUP_THREADS>(g))
        return;
    group_pairs(g, n_part);
}

// A warp of the block chooses for each of n rows; expert, in shared memory: who is chosen, NULL:
// nobody asks.
static __device__ __forceinline__ void choose_rows(const struct choice &c, uint32_t n,
                                                   uint32_t *expert)
{
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, n_used = c.facts.n_used;
    const struct choosing s =
        choosing_at(dynamic_smem<float>() + warp * choosing_words(c.facts), c.facts);
    if (warp < n) {
        choose_for(c, warp, s, lane);
        for (uint32_t k = lane; expert && k < n_used; k += WARP)
            expert[warp * n_used + k] = s.id[k];
    }
    __syncthreads();
}

// The first block: a warp chooses for each of n <= CHOOSE_ROWS rows, then all group what is chosen.
static __global__ void __launch_bounds__(GROUP_THREADS)
    choose_group_kernel(const __grid_constant__ struct choice c,
                        const __grid_constant__ struct grouping g, uint32_t n, uint32_t n_part)
{
    griddep_wait();
    griddep_launch_dependents();
    if (c.skip && *c.skip)
        return;
    if (is_beside<GROUP_THREADS>(g))
        return;
    __shared__ uint32_t expert[GROUP_FEW];
    const bool few = g.n_pair <= GROUP_FEW;
    choose_rows(c, n, few ? expert : NULL);
    if (few)
        group_few(g, expert);
    else
        group_pairs(g, n_part);
}

// The same of so few rows that smaller blocks do it; where the shared expert has a gate, there is
// one more for each row.
static __global__ void __launch_bounds__(CHOOSE_THREADS)
    choose_group_few_kernel(const __grid_constant__ struct choice c,
                            const __grid_constant__ struct grouping g, uint32_t n)
{
    griddep_wait();
    griddep_launch_dependents();
    if (c.skip && *c.skip)
        return;
    if (blockIdx.x > g.few.n) {
        gate_shared(c, blockIdx.x - 1 - g.few.n);
        return;
    }
    if (is_beside<CHOOSE_THREADS>(g))
        return;
    __shared__ uint32_t expert[GROUP_FEW];
    choose_rows(c, n, expert);
    group_few(g, expert);
}

static __device__ __forceinline__ float sum_of(float f, float x, float sum)
{
    return fmaf(f, x, sum);
}
static __device__ __forceinline__ float4 sum_of(float f, float4 x, float4 sum)
{
    return make_float4(fmaf(f, x.x, sum.x), fmaf(f, x.y, sum.y), fmaf(f, x.z, sum.z),
                       fmaf(f, x.w, sum.w));
}
// Grid (n, ceil(n_cols / columns of a block)). V: a thread's columns, one or four.
template <typename V>
static __global__ void __launch_bounds__(SUM_THREADS)
    expert_sum_kernel(const __grid_constant__ struct expert_sum s, const float *out,
                      const uint32_t *place, uint32_t n_used, uint32_t n_cols, const uint32_t *skip)
{
    constexpr uint32_t N = sizeof(V) / sizeof(float);
    const uint32_t row = blockIdx.x, i = (blockIdx.y * SUM_THREADS + threadIdx.x) * N;
    griddep_launch_dependents();
    griddep_wait();
    if (i >= n_cols || (skip && *skip))
        return;
    const size_t at = (size_t)row * n_cols + i;
    const auto load = [](const float *p) { return *reinterpret_cast<const V *>(p); };
    const V old = s.add ? load(&s.y[at]) : V{};
    V sum = {};
    if (s.shared)
        sum = sum_of(s.shared_weight ? s.shared_weight[row] : 1.0f, load(&s.shared[at]), sum);
    for (uint32_t k0 = 0; k0 < n_used; k0 += SUM_AT_ONCE) {
        V given[SUM_AT_ONCE] = {};
        float weight[SUM_AT_ONCE] = {};
#pragma unroll
        for (uint32_t k = 0; k < SUM_AT_ONCE; k++) {
            const size_t pair = (size_t)row * n_used + k0 + k;
            if (k0 + k >= n_used)
                break;
            given[k] = load(&out[(place ? (size_t)place[pair] : pair) * n_cols + i]);
            weight[k] = s.weight ? s.weight[pair] : 1.0f;
        }
#pragma unroll
        for (uint32_t k = 0; k < SUM_AT_ONCE; k++)
            if (k0 + k < n_used)
                sum = sum_of(weight[k], given[k], sum);
    }
    *reinterpret_cast<V *>(&s.y[at]) = s.add ? sum_of(s.scale, sum, old) : sum;
}

// ---- launchers

bool choose_launch(const struct queue *q, const struct choice *c, uint32_t n, struct error *err)
{
    struct launch l = {.name = "choose",
                       .grid = dim3(n),
                       .block = dim3(c->router ? (unsigned)CHOOSE_THREADS : (unsigned)WARP),
                       .smem = choosing_bytes(c->facts),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return launch_kernel(err, l, choose_kernel, *c);
}

bool route_launch(const struct queue *q, const struct route *r, struct error *err)
{
    const struct choice *c = &r->choice;
    struct launch l = {.name = "route",
                       .grid = dim3(div_up(c->facts.n, (uint32_t)ROUTE_ROWS) + (c->router ? 1 : 0)),
                       .block = dim3(ROUTE_THREADS),
                       .smem = choosing_bytes(c->facts),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return launch_kernel(err, l, route_kernel, *r);
}

// How counts of group_pairs lie in shared memory.
struct count_rows {
    uint32_t n_part;
    size_t bytes;
};

static struct count_rows count_rows_of(const struct grouping *g)
{
    const uint32_t row = g->n_expert * (uint32_t)sizeof(uint32_t);
    const uint32_t rows = lesser((uint32_t)GROUP_SMEM / row, 1u + GROUP_THREADS / WARP);
    // each adds to what all experts wait for, so there are no more than have pairs for all lanes
    const uint32_t n_part = rows > 2 ? lesser(rows - 1, div_up(g->n_pair, (uint32_t)WARP)) : 1;
    return {n_part, (size_t)(1 + n_part) * row};
}

static struct launch group_blocks(const struct queue *q, const char *name, const struct grouping *g,
                                  size_t smem)
{
    struct launch l = {.name = name,
                       .grid = dim3(1 + g->few.n),
                       .block = dim3(GROUP_THREADS),
                       .smem = smem,
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return l;
}

bool group_launch(const struct queue *q, const struct grouping *g, struct error *err)
{
    const struct count_rows r = count_rows_of(g);
    return launch_kernel(err, group_blocks(q, "group", g, r.bytes), group_kernel, *g, r.n_part);
}

bool choose_group_launch(const struct queue *q, const struct choice *c, const struct grouping *g,
                         uint32_t n, struct error *err)
{
    const struct count_rows r = count_rows_of(g);
    const size_t choosing = lesser(n, (uint32_t)CHOOSE_ROWS) * choosing_bytes(c->facts);
    if (n <= CHOOSE_THREADS / WARP && g->n_pair <= GROUP_FEW && choosing + 1024 <= q->smem_max) {
        struct launch l = group_blocks(q, "choose_group", g, choosing);
        l.grid.x += c->router ? n : 0;
        l.block = dim3(CHOOSE_THREADS);
        return launch_kernel(err, l, choose_group_few_kernel, *c, *g, n);
    }
    const size_t smem = choosing > r.bytes ? choosing : r.bytes;
    if (c->router || n > CHOOSE_ROWS || smem + 1024 > q->smem_max) // there is static memory, too
        return choose_launch(q, c, n, err) && group_launch(q, g, err);
    return launch_kernel(err, group_blocks(q, "choose_group", g, smem), choose_group_kernel, *c, *g,
                         n, r.n_part);
}

bool expert_sum_launch(const struct queue *q, const struct expert_sum *s, const float *out,
                       const uint32_t *place, uint32_t n, uint32_t n_used, uint32_t n_cols,
                       const uint32_t *skip, struct error *err)
{
    struct launch l = {.name = "expert_sum",
                       .block = dim3(SUM_THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    const auto by = [&](auto v) {
        using V = decltype(v);
        l.grid = dim3(n, div_up(n_cols, (uint32_t)(SUM_THREADS * sizeof(V) / sizeof(float))));
        return launch_kernel(err, l, expert_sum_kernel<V>, *s, out, place, n_used, n_cols, skip);
    };
    return n_cols % 4 == 0 ? by(float4{}) : by(0.0f);
}
