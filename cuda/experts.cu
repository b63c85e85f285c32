// Who is chosen (struct experts in model/model.h), the order of rows by expert, and the sum of what
// experts give. All of it in device memory: the host never knows.
#include "block.cuh"
#include "experts.h"

enum {
    CHOOSE_THREADS = 256, // where the shared expert has a gate
    ROUTE_THREADS = 256,
    ROUTE_ROWS = 2,  // of a block: neighbours in a tile fill a sector of 32 bytes
    ROUTE_AHEAD = 8, // chunks that a thread has under way
    GROUP_THREADS = 1024,
    CHOOSE_ROWS = 32,      // that the warps of one block choose for, one each
    GROUP_SMEM = 40 << 10, // of counts, unless a row of them is longer
    SUM_THREADS = 256,
};

// ---- kernels

// What the key of an expert becomes that cannot be chosen, or is; keys of scores are larger.
static constexpr uint32_t CLOSED = 0, TAKEN = 1;

// A key with the order of scores: what is not a number is better than everything, so that it is not
// lost.
static __device__ __forceinline__ uint32_t score_key(float score)
{
    const uint32_t bits = __float_as_uint(score + 0.0f); // -0 is 0
    return score != score ? UINT32_MAX : bits >> 31 ? ~bits : bits | 0x80000000u;
}

// How many of n keys are larger than keys[at], or equal and before it.
static __device__ __forceinline__ uint32_t rank_of(const uint32_t *keys, uint32_t n, uint32_t at)
{
    const uint32_t key = keys[at];
    uint32_t rank = 0;
#pragma unroll 4
    for (uint32_t i = 0; i < n; i++)
        rank += keys[i] > key || (keys[i] == key && i < at);
    return rank;
}

static __device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

// What a warp works with to choose for a row, in shared memory.
struct choosing {
    float *p, *score;     // (n) gated logits but for the softmax's divisor, and what is compared
    uint32_t *keys;       // (n)
    uint32_t *group_keys; // (n_group)
    uint32_t *id;         // (n_used) who is chosen
    float *weight;        // (n_used) gated logits of those
};

static __host__ __device__ __forceinline__ uint32_t choosing_words(const struct experts &x)
{
    return 3 * x.n + x.n_group + 2 * x.n_used;
}

static size_t choosing_bytes(const struct experts &x)
{
    return (size_t)choosing_words(x) * sizeof(uint32_t);
}

static __device__ __forceinline__ struct choosing choosing_at(float *smem, const struct experts &x)
{
    struct choosing s;
    s.p = smem;
    s.score = s.p + x.n;
    s.keys = reinterpret_cast<uint32_t *>(s.score + x.n);
    s.group_keys = s.keys + x.n;
    s.id = s.group_keys + x.n_group;
    s.weight = reinterpret_cast<float *>(s.id + x.n_used);
    return s;
}

// For this lane's i of n: lane, lane + 32, ...
template <typename G, typename U>
static __device__ __forceinline__ void for_lane(uint32_t lane, uint32_t n, G get, U use)
{
    for_each_of<8, WARP>(lane, n, get, use);
}

// p = gate(logits) times what is returned, score = logits.
static __device__ __forceinline__ float gate_logits(const struct experts &x, const float *logits,
                                                    const struct choosing &s, uint32_t lane)
{
    float top = -INFINITY, sum = 0.0f;
    auto logit = [&](uint32_t i) { return __ldcg(logits + i); };
    auto score = [&](uint32_t i) { return s.score[i]; };
    for_lane(lane, x.n, logit, [&](uint32_t i, float v) {
        s.score[i] = v;
        top = fmaxf(top, v);
    });
    if (x.gate == EXPERT_SIGMOID) {
        for_lane(lane, x.n, score, [&](uint32_t i, float v) { s.p[i] = sigmoid(v); });
        return 1.0f;
    }
    top = warp_max(top);
    for_lane(lane, x.n, score, [&](uint32_t i, float v) {
        v = expf(v - top);
        s.p[i] = v;
        sum += v;
    });
    return warp_sum(sum);
}

// The sum of the best two of a group of `size` scores; of one alone it.
static __device__ float best_two(const float *score, uint32_t size)
{
    uint32_t best = 0, second = 1;
    if (size == 1)
        return score[0];
    if (score_key(score[1]) > score_key(score[0]))
        best = 1, second = 0;
    for (uint32_t i = 2; i < size; i++) {
        const uint32_t key = score_key(score[i]);
        if (key > score_key(score[best]))
            second = best, best = i;
        else if (key > score_key(score[second]))
            second = i;
    }
    return score[best] + score[second];
}

// Closes the experts of groups that cannot be chosen from.
static __device__ __forceinline__ void close_groups(const struct experts &x,
                                                    const struct choosing &s, uint32_t lane)
{
    const uint32_t size = x.n / x.n_group;
    for (uint32_t g = lane; g < x.n_group; g += WARP)
        s.group_keys[g] = score_key(best_two(s.score + g * size, size));
    __syncwarp();
    for (uint32_t i = lane; i < x.n; i += WARP)
        if (rank_of(s.group_keys, x.n_group, i / size) >= x.n_group_used)
            s.keys[i] = CLOSED;
    __syncwarp();
}

// The n_used largest keys are taken, one after the other; of equals the first.
static __device__ __forceinline__ void take_best(const struct experts &x, const struct choosing &s,
                                                 uint32_t lane)
{
    bool scan = true;
    uint32_t key = TAKEN, at = UINT32_MAX;
    for (uint32_t k = 0; k < x.n_used; k++) {
        if (scan) { // the best of this lane is another one now
            key = TAKEN;
            at = UINT32_MAX;
            for_lane(
                lane, x.n, [&](uint32_t i) { return s.keys[i]; },
                [&](uint32_t i, uint32_t other) {
                    at = other > key ? i : at;
                    key = max(key, other);
                });
        }
        const uint32_t top = __reduce_max_sync(ALL_LANES, key);
        scan = at == __reduce_min_sync(ALL_LANES, key == top ? at : UINT32_MAX);
        if (scan)
            s.keys[at] = TAKEN;
    }
    __syncwarp();
}

// Who is taken, in the order of their numbers.
static __device__ __forceinline__ void list_taken(const struct experts &x, const struct choosing &s,
                                                  uint32_t lane)
{
    uint32_t n_found = 0;
#pragma unroll 4
    for (uint32_t base = 0; base < x.n; base += WARP) {
        const uint32_t i = base + lane;
        const bool taken = i < x.n && s.keys[i] == TAKEN;
        const uint32_t votes = __ballot_sync(ALL_LANES, taken);
        if (taken)
            s.id[n_found + (uint32_t)__popc(votes & ((1u << lane) - 1))] = i;
        n_found += (uint32_t)__popc(votes);
    }
    __syncwarp();
}

// Writes who is chosen, and with which weights, as they lie in s; score: of the k-th of them.
template <typename F>
static __device__ __forceinline__ void give(const struct choice &c, uint32_t row,
                                            const struct choosing &s, uint32_t lane, F score)
{
    const struct experts &x = c.facts;
    float sum = 0.0f; // in a fixed order
#pragma unroll 8
    for (uint32_t k = 0; k < x.n_used; k++)
        sum += s.weight[k];
    sum += 1e-20f; // of sigmoids all may be 0 (DeepSeek-AI 2024, their code)
    for (uint32_t k = lane; k < x.n_used; k += WARP) {
        const uint32_t i = s.id[k];
        const float w = s.weight[k] + 0.0f * score(k); // so that a bias that is no number shows
        c.chosen[(size_t)row * x.n_used + k] = i;
        c.weight[(size_t)row * x.n_used + k] =
            (x.normed ? w / sum : w) * x.scale * (c.scale ? c.scale[i] : 1.0f);
    }
}

// Chooses for a row: a warp, whose lanes have all PER x 32 experts in registers. Without groups;
// the operations are those of choose_any.
template <uint32_t PER>
static __device__ __forceinline__ void choose_few(const struct choice &c, uint32_t row,
                                                  const struct choosing &s, uint32_t lane)
{
    const struct experts &x = c.facts;
    float score[PER], p[PER], bias[PER], top = -INFINITY, divisor = 1.0f;
    uint32_t key[PER];
#pragma unroll
    for (uint32_t e = 0; e < PER; e++) {
        const uint32_t i = e * WARP + lane;
        score[e] = i < x.n ? __ldcg(c.logits + (size_t)row * x.n + i) : -INFINITY;
        bias[e] = c.bias && i < x.n ? c.bias[i] : 0.0f;
    }
#pragma unroll
    for (uint32_t e = 0; e < PER; e++)
        top = fmaxf(top, score[e]);
    if (x.gate == EXPERT_SIGMOID) {
#pragma unroll
        for (uint32_t e = 0; e < PER; e++)
            p[e] = sigmoid(score[e]);
    } else {
        top = warp_max(top);
        float sum = 0.0f;
#pragma unroll
        for (uint32_t e = 0; e < PER; e++) {
            p[e] = expf(score[e] - top);
            sum = e * WARP + lane < x.n ? sum + p[e] : sum;
        }
        divisor = warp_sum(sum);
    }
#pragma unroll
    for (uint32_t e = 0; e < PER; e++) {
        if (c.bias)
            score[e] = p[e] / divisor + bias[e];
        key[e] = e * WARP + lane < x.n ? score_key(score[e]) : CLOSED;
    }
    for (uint32_t k = 0; k < x.n_used; k++) {
        uint32_t best = TAKEN, at = UINT32_MAX;
#pragma unroll
        for (uint32_t e = 0; e < PER; e++) {
            at = key[e] > best ? e * WARP + lane : at;
            best = max(best, key[e]);
        }
        const uint32_t most = __reduce_max_sync(ALL_LANES, best);
        at = __reduce_min_sync(ALL_LANES, best == most ? at : UINT32_MAX);
#pragma unroll
        for (uint32_t e = 0; e < PER; e++)
            key[e] = at == e * WARP + lane ? TAKEN : key[e];
    }
    uint32_t n_found = 0; // in the order of their numbers
#pragma unroll
    for (uint32_t e = 0; e < PER; e++) {
        const bool taken = key[e] == TAKEN;
        const uint32_t votes = __ballot_sync(ALL_LANES, taken);
        const uint32_t k = n_found + (uint32_t)__popc(votes & ((1u << lane) - 1));
        if (taken) {
            s.id[k] = e * WARP + lane;
            s.weight[k] = p[e] / divisor;
            s.score[k] = score[e];
        }
        n_found += (uint32_t)__popc(votes);
    }
    __syncwarp();
    give(c, row, s, lane, [&](uint32_t k) { return s.score[k]; });
}

// The same of any number of experts, in groups or not.
static __device__ __forceinline__ void choose_any(const struct choice &c, uint32_t row,
                                                  const struct choosing &s, uint32_t lane)
{
    const struct experts &x = c.facts;
    const bool grouped = x.n_group_used < x.n_group;
    const float divisor = gate_logits(x, c.logits + (size_t)row * x.n, s, lane);
    if (c.bias || grouped) // else the logits are compared: the gates keep their order
        for_lane(
            lane, x.n, [&](uint32_t i) { return c.bias ? c.bias[i] : 0.0f; },
            [&](uint32_t i, float bias) { s.score[i] = s.p[i] / divisor + bias; });
    for_lane(
        lane, x.n, [&](uint32_t i) { return s.score[i]; },
        [&](uint32_t i, float v) { s.keys[i] = score_key(v); });
    __syncwarp();
    if (grouped)
        close_groups(x, s, lane);
    take_best(x, s, lane);
    list_taken(x, s, lane);
    for (uint32_t k = lane; k < x.n_used; k += WARP)
        s.weight[k] = s.p[s.id[k]] / divisor;
    __syncwarp();
    give(c, row, s, lane, [&](uint32_t k) { return s.score[s.id[k]]; });
}

static __device__ __forceinline__ void choose_for(const struct choice &c, uint32_t row,
                                                  const struct choosing &s, uint32_t lane)
{
    const struct experts &x = c.facts;
    if (x.n_group_used < x.n_group || x.n > 8 * WARP)
        choose_any(c, row, s, lane);
    else if (x.n > 4 * WARP)
        choose_few<8>(c, row, s, lane);
    else
        choose_few<4>(c, row, s, lane);
}

// Grid (n). The first warp of a block chooses; where the shared expert has a gate, the others
// multiply that.
static __global__ void __launch_bounds__(CHOOSE_THREADS)
    choose_kernel(const __grid_constant__ struct choice c)
{
    __shared__ float squares_of[CHOOSE_THREADS / WARP], dot_of[CHOOSE_THREADS / WARP];
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    griddep_wait();
    griddep_launch_dependents(); // not sooner: who comes next may read what was before this launch
    if (c.skip && *c.skip)
        return;
    if (warp == 0)
        choose_for(c, blockIdx.x, choosing_at(dynamic_smem<float>(), c.facts), lane);
    if (!c.router)
        return;
    const float *row = c.x + (size_t)blockIdx.x * c.n_cols;
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
    c.shared[blockIdx.x] = sigmoid(c.norm ? dot / sqrtf(squares / (float)c.n_cols + c.eps) : dot);
}

// Grid: ceil(n / ROUTE_ROWS) blocks, one more where the shared expert has a gate, which is that
// one's. Each has all of x, and asks for its weights before it waits. The last to come chooses.
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
    if (c.skip && *c.skip)
        return;
#pragma unroll 1
    for (uint32_t first = c0; first < n_chunk; first += ROUTE_AHEAD * STEP) {
        if (first != c0)
            ask(first);
#pragma unroll
        for (uint32_t k = 0; k < ROUTE_AHEAD; k++)
            if (first + k * STEP < n_chunk)
                x[k] = *reinterpret_cast<const float4 *>(c.x + 4 * (first + k * STEP));
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
            dot /= sqrtf(squares / (float)c.n_cols + c.eps);
        if (!shared && row < c.facts.n)
            m.logits[row] = dot + (m.bias ? m.bias[row] : 0.0f);
        else if (shared && r == 0)
            c.shared[0] = sigmoid(dot);
    }
    if (last_to_arrive(m.counter, gridDim.x) && warp == 0)
        choose_for(c, 0, choosing_at(dynamic_smem<float>(), c.facts), lane);
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

static __global__ void __launch_bounds__(GROUP_THREADS)
    group_kernel(const __grid_constant__ struct grouping g, uint32_t n_part)
{
    griddep_launch_dependents();
    griddep_wait();
    if (!g.skip || !*g.skip)
        group_pairs(g, n_part);
}

// A warp chooses for each row, then the block groups what is chosen.
static __global__ void __launch_bounds__(GROUP_THREADS)
    choose_group_kernel(const __grid_constant__ struct choice c,
                        const __grid_constant__ struct grouping g, uint32_t n, uint32_t n_part)
{
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    griddep_wait();
    griddep_launch_dependents();
    if (c.skip && *c.skip)
        return;
    float *const smem = dynamic_smem<float>() + warp * choosing_words(c.facts);
    for (uint32_t row = warp; row < n; row += GROUP_THREADS / WARP)
        choose_for(c, row, choosing_at(smem, c.facts), lane);
    __syncthreads();
    group_pairs(g, n_part);
}

// Grid (n, ceil(n_cols / SUM_THREADS)).
static __global__ void __launch_bounds__(SUM_THREADS)
    expert_sum_kernel(const __grid_constant__ struct expert_sum s, const float *out,
                      const uint32_t *place, uint32_t n_used, uint32_t n_cols, const uint32_t *skip)
{
    const uint32_t row = blockIdx.x, i = blockIdx.y * SUM_THREADS + threadIdx.x;
    griddep_launch_dependents();
    griddep_wait();
    if (i >= n_cols || (skip && *skip))
        return;
    const size_t at = (size_t)row * n_cols + i;
    float sum = 0.0f;
    if (s.shared)
        sum = s.shared[at] * (s.shared_weight ? s.shared_weight[row] : 1.0f);
#pragma unroll 4
    for (uint32_t k = 0; k < n_used; k++) {
        const size_t pair = (size_t)row * n_used + k;
        const size_t at_place = place ? place[pair] : pair;
        sum = fmaf(s.weight ? s.weight[pair] : 1.0f, out[at_place * n_cols + i], sum);
    }
    s.y[at] = s.add ? fmaf(s.scale, sum, s.y[at]) : sum;
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

static struct launch one_block(const struct queue *q, const char *name, size_t smem)
{
    struct launch l = {.name = name,
                       .grid = dim3(1),
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
    return launch_kernel(err, one_block(q, "group", r.bytes), group_kernel, *g, r.n_part);
}

bool choose_group_launch(const struct queue *q, const struct choice *c, const struct grouping *g,
                         uint32_t n, struct error *err)
{
    const struct count_rows r = count_rows_of(g);
    const size_t choosing = lesser(n, (uint32_t)CHOOSE_ROWS) * choosing_bytes(c->facts);
    const size_t smem = choosing > r.bytes ? choosing : r.bytes;
    if (c->router || n > CHOOSE_ROWS || smem + 1024 > q->smem_max) // there is static memory, too
        return choose_launch(q, c, n, err) && group_launch(q, g, err);
    return launch_kernel(err, one_block(q, "choose_group", smem), choose_group_kernel, *c, *g, n,
                         r.n_part);
}

bool expert_sum_launch(const struct queue *q, const struct expert_sum *s, const float *out,
                       const uint32_t *place, uint32_t n, uint32_t n_used, uint32_t n_cols,
                       const uint32_t *skip, struct error *err)
{
    struct launch l = {.name = "expert_sum",
                       .grid = dim3(n, div_up(n_cols, (uint32_t)SUM_THREADS)),
                       .block = dim3(SUM_THREADS),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return launch_kernel(err, l, expert_sum_kernel, *s, out, place, n_used, n_cols, skip);
}
