// How a warp chooses among experts (struct choice in experts.h): in registers where there are few
// and no groups, else in shared memory.
#ifndef HOKKU_CUDA_CHOICE_CUH
#define HOKKU_CUDA_CHOICE_CUH

#include "block.cuh"
#include "experts.h"

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

static inline size_t choosing_bytes(const struct experts &x)
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
static __device__ __forceinline__ float best_two(const float *score, uint32_t size)
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

// Of the gates of those chosen, gate(k) of the k-th.
template <typename F>
static __device__ __forceinline__ float gate_sum(const struct experts &x, F gate)
{
    float sum = 0.0f; // in a fixed order
#pragma unroll 8
    for (uint32_t k = 0; k < x.n_used; k++)
        sum += gate(k);
    return sum + 1e-20f; // of sigmoids all may be 0 (DeepSeek-AI 2024, their code)
}

// What a chosen one weighs.
static __device__ __forceinline__ float weight_of(const struct choice &c, uint32_t expert,
                                                  float gate, float score, float sum)
{
    const struct experts &x = c.facts;
    const float w = gate + 0.0f * score; // so that a bias that is no number shows
    return (x.normed ? w / sum : w) * x.scale * (c.scale ? c.scale[expert] : 1.0f);
}

// Writes who is chosen, and with which weights, as they lie in s; score: of the k-th of them.
template <typename F>
static __device__ __forceinline__ void give(const struct choice &c, uint32_t row,
                                            const struct choosing &s, uint32_t lane, F score)
{
    const struct experts &x = c.facts;
    const float sum = gate_sum(x, [&](uint32_t k) { return s.weight[k]; });
    for (uint32_t k = lane; k < x.n_used; k += WARP) {
        const uint32_t i = s.id[k];
        c.chosen[(size_t)row * x.n_used + k] = i;
        c.weight[(size_t)row * x.n_used + k] = weight_of(c, i, s.weight[k], score(k), sum);
    }
}

// Without groups, PER x 32 experts at most: lane i of a warp has i, i + 32, ... in registers.
template <uint32_t PER> struct few_experts {
    float score[PER];  // logits, then what is compared
    uint32_t key[PER]; // the bits of the bias, then of what is compared
    float *p;          // (n) in shared memory: gates but for the divisor
    float divisor;

    __device__ __forceinline__ void ask(const struct choice &c, uint32_t row, uint32_t lane)
    {
        const uint32_t n = c.facts.n;
#pragma unroll
        for (uint32_t e = 0; e < PER; e++) {
            const uint32_t i = e * WARP + lane;
            score[e] = i < n ? __ldcg(c.logits + (size_t)row * n + i) : -INFINITY;
            key[e] = c.bias && i < n ? __float_as_uint(c.bias[i]) : 0;
        }
    }

    // The operations are those of choose_any.
    __device__ __forceinline__ void find_gates(const struct experts &x, uint32_t lane, float *smem)
    {
        p = smem;
        divisor = 1.0f;
        if (x.gate == EXPERT_SIGMOID) {
#pragma unroll
            for (uint32_t e = 0; e < PER; e++)
                if (e * WARP + lane < x.n)
                    p[e * WARP + lane] = sigmoid(score[e]);
        } else {
            float top = -INFINITY, sum = 0.0f;
#pragma unroll
            for (uint32_t e = 0; e < PER; e++)
                top = fmaxf(top, score[e]);
            top = warp_max(top);
#pragma unroll
            for (uint32_t e = 0; e < PER; e++)
                if (e * WARP + lane < x.n) {
                    const float v = expf(score[e] - top);
                    p[e * WARP + lane] = v;
                    sum += v;
                }
            divisor = warp_sum(sum);
        }
    }

    // Of expert i: this lane's, or any after a __syncwarp.
    __device__ __forceinline__ float gate(uint32_t i) const
    {
        return p[i] / divisor;
    }

    // Of gates where there is a bias, else of logits, whose order they keep.
    __device__ __forceinline__ void find_keys(const struct choice &c, uint32_t lane)
    {
#pragma unroll
        for (uint32_t e = 0; e < PER; e++) {
            const uint32_t i = e * WARP + lane;
            if (c.bias)
                score[e] = (i < c.facts.n ? gate(i) : 0.0f) + __uint_as_float(key[e]);
            key[e] = i < c.facts.n ? score_key(score[e]) : CLOSED;
        }
    }

    // found(k, i, e): the k-th that is chosen is i, this lane's e-th; in the order of numbers.
    template <typename F>
    __device__ __forceinline__ void take(uint32_t n_used, uint32_t lane, F found)
    {
        for (uint32_t k = 0; k < n_used; k++) {
            uint32_t best = TAKEN, at = UINT32_MAX;
#pragma unroll
            for (uint32_t e = 0; e < PER; e++) {
                at = key[e] > best ? e * WARP + lane : at;
                best = max(best, key[e]);
            }
            bool mine = best == __reduce_max_sync(ALL_LANES, best);
            const uint32_t votes = __ballot_sync(ALL_LANES, mine);
            if (votes & (votes - 1)) // of equals the first
                mine &= at == __reduce_min_sync(ALL_LANES, mine ? at : UINT32_MAX);
#pragma unroll
            for (uint32_t e = 0; e < PER; e++)
                key[e] = mine && at == e * WARP + lane ? TAKEN : key[e];
        }
        uint32_t n_found = 0;
#pragma unroll
        for (uint32_t e = 0; e < PER; e++) {
            const bool taken = key[e] == TAKEN;
            const uint32_t votes = __ballot_sync(ALL_LANES, taken);
            const uint32_t k = n_found + (uint32_t)__popc(votes & ((1u << lane) - 1));
            if (taken)
                found(k, e * WARP + lane, e);
            n_found += (uint32_t)__popc(votes);
        }
    }
};

template <uint32_t PER>
static __device__ __forceinline__ void choose_few(const struct choice &c, uint32_t row,
                                                  const struct choosing &s, uint32_t lane)
{
    struct few_experts<PER> f;
    f.ask(c, row, lane);
    f.find_gates(c.facts, lane, s.p);
    f.find_keys(c, lane);
    f.take(c.facts.n_used, lane, [&](uint32_t k, uint32_t i, uint32_t e) {
        s.id[k] = i;
        s.score[k] = f.score[e];
    });
    __syncwarp();
    for (uint32_t k = lane; k < c.facts.n_used; k += WARP)
        s.weight[k] = f.gate(s.id[k]);
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

// For a block whose products choose: what weigh_chosen needs, in shared memory.
struct told_gates {
    float *p, *score, *divisor; // (n), (n), (1); see few_experts
};

template <uint32_t PER>
static __device__ __forceinline__ void tell_gates(const struct few_experts<PER> &f, uint32_t n,
                                                  const struct told_gates &to)
{
    const uint32_t lane = threadIdx.x % WARP;
#pragma unroll
    for (uint32_t e = 0; e < PER; e++)
        if (e * WARP + lane < n)
            to.score[e * WARP + lane] = f.score[e];
    if (lane == 0)
        *to.divisor = f.divisor;
}

// Two warps of a block, where the choice is plain: the first finds id (n_used), those chosen in the
// order of their numbers; the second, if it is not done by the first for a bias, their gates.
template <uint32_t PER>
static __device__ __forceinline__ void choose_apart(const struct choice &c, uint32_t *id,
                                                    const struct told_gates &to, bool weighs)
{
    const uint32_t lane = threadIdx.x % WARP;
    const bool first = threadIdx.x < WARP;
    struct few_experts<PER> f;
    f.ask(c, 0, lane);
    if (c.bias || !first)
        f.find_gates(c.facts, lane, to.p);
    if (first) {
        f.find_keys(c, lane);
        f.take(c.facts.n_used, lane, [&](uint32_t k, uint32_t i, uint32_t) { id[k] = i; });
    }
    if (weighs && first == (c.bias != NULL))
        tell_gates(f, c.facts.n, to);
}

// A warp: what those chosen weigh.
static __device__ __forceinline__ void weigh_chosen(const struct choice &c, const uint32_t *id,
                                                    const struct told_gates &from, float *weight)
{
    const uint32_t lane = threadIdx.x % WARP, n_used = c.facts.n_used;
    for (uint32_t k = lane; k < n_used; k += WARP)
        weight[k] = from.p[id[k]] / *from.divisor;
    __syncwarp();
    const float sum = gate_sum(c.facts, [&](uint32_t k) { return weight[k]; });
    __syncwarp();
    for (uint32_t k = lane; k < n_used; k += WARP)
        weight[k] = weight_of(c, id[k], weight[k], from.score[id[k]], sum);
}

static __device__ __forceinline__ void choose_for(const struct choice &c, uint32_t row,
                                                  const struct choosing &s, uint32_t lane)
{
    const struct experts &x = c.facts;
    if (!choice_is_plain(x))
        choose_any(c, row, s, lane);
    else if (x.n > 4 * WARP)
        choose_few<8>(c, row, s, lane);
    else
        choose_few<4>(c, row, s, lane);
}

#endif
