// Who is chosen (struct experts in model/model.h), the order of rows by expert, and the sum of what
// experts give. All of it in device memory: the host never knows.
#include "block.cuh"
#include "experts.h"

enum {
    CHOOSE_THREADS = 256,
    GROUP_THREADS = 1024,
    GROUP_SMEM = 40 << 10, // of counts, unless a row of them is longer
    SUM_THREADS = 256,
};

// ---- kernels

// A key with the order of scores: what is not a number is better than everything, so that it is not
// lost; of equals the first. Larger than 0.
static __device__ __forceinline__ uint64_t score_key(float score, uint32_t i)
{
    const uint32_t bits = __float_as_uint(score + 0.0f); // -0 is 0
    const uint32_t key = score != score ? UINT32_MAX : bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)key << 32 | (UINT32_MAX - i);
}

// How many of n keys are larger.
static __device__ __forceinline__ uint32_t rank_of(const uint64_t *keys, uint32_t n, uint64_t key)
{
    uint32_t rank = 0;
#pragma unroll 4
    for (uint32_t i = 0; i < n; i++)
        rank += keys[i] > key;
    return rank;
}

static __device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

// p (n) = gate(logits)
static __device__ __forceinline__ void gate_logits(enum expert_gate gate, const float *logits,
                                                   float *p, uint32_t n, float *part)
{
    float top = -INFINITY, sum = 0.0f;
    if (gate == EXPERT_SOFTMAX) {
        for (uint32_t i = threadIdx.x; i < n; i += CHOOSE_THREADS)
            top = fmaxf(top, logits[i]);
        for (int d = WARP / 2; d > 0; d /= 2)
            top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, d));
        if (threadIdx.x % WARP == 0)
            part[threadIdx.x / WARP] = top;
        __syncthreads();
        for (int i = 0; i < CHOOSE_THREADS / WARP; i++)
            top = fmaxf(top, part[i]);
    }
    for (uint32_t i = threadIdx.x; i < n; i += CHOOSE_THREADS) {
        p[i] = gate == EXPERT_SIGMOID ? sigmoid(logits[i]) : expf(logits[i] - top);
        sum += p[i];
    }
    if (gate == EXPERT_SIGMOID)
        return;
    __syncthreads(); // part may still be read
    sum = block_sum(sum, part);
    for (uint32_t i = threadIdx.x; i < n; i += CHOOSE_THREADS)
        p[i] /= sum;
}

// The sum of the best two of a group of `size` scores; of one alone it.
static __device__ float best_two(const float *score, uint32_t size, uint32_t first)
{
    uint32_t best = 0, second = 1;
    if (size == 1)
        return score[0];
    if (score_key(score[1], first + 1) > score_key(score[0], first))
        best = 1, second = 0;
    for (uint32_t i = 2; i < size; i++) {
        const uint64_t key = score_key(score[i], first + i);
        if (key > score_key(score[best], first + best))
            second = best, best = i;
        else if (key > score_key(score[second], first + second))
            second = i;
    }
    return score[best] + score[second];
}

// Keys of experts in groups that cannot be chosen from become 0.
static __device__ __forceinline__ void close_groups(const struct experts &x, const float *score,
                                                    uint64_t *keys, uint64_t *group_keys)
{
    const uint32_t size = x.n / x.n_group;
    for (uint32_t g = threadIdx.x; g < x.n_group; g += CHOOSE_THREADS)
        group_keys[g] = score_key(best_two(score + g * size, size, g * size), g);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < x.n; i += CHOOSE_THREADS)
        if (rank_of(group_keys, x.n_group, group_keys[i / size]) >= x.n_group_used)
            keys[i] = 0;
    __syncthreads();
}

// Dynamic shared memory: keys of experts and of groups, gated logits, scores.
static size_t choose_smem(const struct experts &x)
{
    return (x.n + x.n_group) * sizeof(uint64_t) + 2 * x.n * sizeof(float);
}

// Grid (n).
static __global__ void __launch_bounds__(CHOOSE_THREADS)
    choose_kernel(const __grid_constant__ struct choice c)
{
    __shared__ float part[CHOOSE_THREADS / WARP];
    __shared__ uint32_t before[CHOOSE_THREADS / WARP];
    __shared__ float weight_sum;
    const struct experts &x = c.facts;
    uint64_t *keys = dynamic_smem<uint64_t>(), *group_keys = keys + x.n;
    float *p = reinterpret_cast<float *>(group_keys + x.n_group), *score = p + x.n;
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    griddep_launch_dependents();
    griddep_wait();
    if (c.skip && *c.skip)
        return;
    const float *logits = c.logits + (size_t)blockIdx.x * x.n;
    uint32_t *chosen = c.chosen + (size_t)blockIdx.x * x.n_used;
    float *weight = c.weight + (size_t)blockIdx.x * x.n_used;
    gate_logits(x.gate, logits, p, x.n, part);
    const bool grouped = x.n_group_used < x.n_group;
    for (uint32_t i = threadIdx.x; i < x.n; i += CHOOSE_THREADS) { // p[i] is this thread's
        // the gates keep the order of logits
        score[i] = c.bias || grouped ? p[i] + (c.bias ? c.bias[i] : 0.0f) : logits[i];
        keys[i] = score_key(score[i], i);
    }
    __syncthreads();
    if (grouped)
        close_groups(x, score, keys, group_keys);

    // those with fewer than n_used better ones, in the order of their numbers
    uint32_t n_found = 0;
    for (uint32_t base = 0; base < x.n; base += CHOOSE_THREADS) {
        const uint32_t i = base + threadIdx.x;
        const bool taken = i < x.n && keys[i] > 0 && rank_of(keys, x.n, keys[i]) < x.n_used;
        const uint32_t votes = __ballot_sync(ALL_LANES, taken);
        __syncthreads();
        if (lane == 0)
            before[warp] = (uint32_t)__popc(votes);
        __syncthreads();
        uint32_t at = n_found + (uint32_t)__popc(votes & ((1u << lane) - 1));
        for (uint32_t w = 0; w < CHOOSE_THREADS / WARP; w++) {
            at += w < warp ? before[w] : 0;
            n_found += before[w];
        }
        if (taken) {
            chosen[at] = i;
            weight[at] = p[i] + 0.0f * score[i]; // so that a bias that is no number shows
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) { // in a fixed order
        float sum = 0.0f;
        for (uint32_t k = 0; k < x.n_used; k++)
            sum += p[chosen[k]];
        weight_sum = sum + 1e-20f; // of sigmoids all may be 0 (DeepSeek-AI 2024, their code)
    }
    __syncthreads();
    for (uint32_t k = threadIdx.x; k < x.n_used; k += CHOOSE_THREADS)
        weight[k] = (x.normed ? weight[k] / weight_sum : weight[k]) * x.scale *
                    (c.scale ? c.scale[chosen[k]] : 1.0f);

    if (!c.router)
        return;
    const float *row = c.x + (size_t)blockIdx.x * c.n_cols;
    float squares = 0.0f, dot = 0.0f;
    for (uint32_t i = threadIdx.x; i < c.n_cols; i += CHOOSE_THREADS) {
        squares = fmaf(row[i], row[i], squares);
        dot = fmaf(row[i] * (c.norm ? c.norm[i] : 1.0f), c.router[i], dot);
    }
    squares = block_sum(squares, part);
    __syncthreads(); // part may still be read
    dot = block_sum(dot, part);
    if (threadIdx.x == 0)
        c.shared[blockIdx.x] =
            sigmoid(c.norm ? dot / sqrtf(squares / (float)c.n_cols + c.eps) : dot);
}

// One block. Warp w counts the experts of the w-th of n_part stretches of pairs; sums over
// stretches and experts turn counts into first places; then it gives those out, 32 pairs at a time
// in order. counts (1 + n_part, n_expert); row 0: where an expert's places begin.
static __global__ void __launch_bounds__(GROUP_THREADS)
    group_kernel(const __grid_constant__ struct grouping g, uint32_t n_part)
{
    __shared__ uint64_t sums[GROUP_THREADS / WARP];
    uint32_t *const begin = dynamic_smem<uint32_t>(), *const counts = begin + g.n_expert;
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (uint32_t i = threadIdx.x; i < n_part * g.n_expert; i += GROUP_THREADS)
        counts[i] = 0;
    griddep_launch_dependents();
    griddep_wait();
    if (g.skip && *g.skip)
        return;
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
                       .block = dim3(CHOOSE_THREADS),
                       .smem = choose_smem(c->facts),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return launch_kernel(err, l, choose_kernel, *c);
}

bool group_launch(const struct queue *q, const struct grouping *g, struct error *err)
{
    const uint32_t row = g->n_expert * (uint32_t)sizeof(uint32_t); // of counts
    const uint32_t rows = lesser((uint32_t)GROUP_SMEM / row, 1u + GROUP_THREADS / WARP);
    const uint32_t n_part = rows > 2 ? rows - 1 : 1;
    struct launch l = {.name = "group",
                       .grid = dim3(1),
                       .block = dim3(GROUP_THREADS),
                       .smem = (size_t)(1 + n_part) * row,
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return launch_kernel(err, l, group_kernel, *g, n_part);
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
