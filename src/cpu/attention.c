// Storing keys and values, and attention of up to 8 queries of one KV head over one split of the
// positions (softmax(q K^T / sqrt(d)) V, Vaswani et al. 2017; parts with their own maximum are
// merged as in Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
// Compiled once per instruction set.
//
// Keys are stored with 16 positions side by side, so that one lane is one position and no score
// needs a sum across lanes. A query's arithmetic never depends on the queries beside it: positions
// that only others see have weight exactly 0.
#include "cpu/kernels_isa.h"

enum { MAX_QUERIES = 8, N_BLOCKS = CPU_ATTN_SPLIT / CPU_KV_BLOCK };

INLINE size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

// Scale of up to 32 values for 8 bits, as stored (half precision); the values are x * *inverse.
static uint16_t q8_scale(const float *x, size_t n, float *inverse)
{
    float max = 0.0f, bad = 0.0f, t[16] = {0};
    for (size_t i = 0; i < n; i++) {
        max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
        bad += x[i] * 0.0f; // a NaN or infinity must not end as a number
    }
    t[0] = max / 127.0f < 65504.0f ? max / 127.0f : 65504.0f;
    t[0] += bad;
    uint16_t h[16];
    v16_store_f16(h, v16_load(t));
    float scale = load_f16(h);
    *inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    return h[0];
}

static int8_t q8_round(float x)
{
    x = x > -127.0f ? x : -127.0f;
    x = x < 127.0f ? x : 127.0f;
    return (int8_t)((x + 12582912.0f) - 12582912.0f);
}

// 16 values to halves; what would overflow to infinity becomes the largest half.
static void f16_round(const float *x, size_t n, uint16_t h[16])
{
    float t[16] = {0};
    memcpy(t, x, n * sizeof *x);
    const v16 top = v16_set1(65504.0f), bottom = v16_set1(-65504.0f);
    v16_store_f16(h, v16_min(top, v16_max(bottom, v16_load(t))));
}

void CPU_NAME(kv_store)(const struct cpu_kv_layer *kv, uint32_t kv_head, size_t pos, const float *k,
                        const float *v)
{
    const size_t lane = pos % CPU_KV_BLOCK, n = kv->head_dim;
    uint8_t *kp = kv->k + kv_head * kv->k_head_bytes + pos / CPU_KV_BLOCK * kv->k_block_bytes;
    uint8_t *vp = kv->v + kv_head * kv->v_head_bytes + pos * kv->v_row_bytes;
    float inverse;
    uint16_t h[16];
    for (size_t g = 0; g < n; g += 32) {
        const size_t m = min_size(32, n - g);
        if (kv->type_k == KV_Q8_0) {
            h[0] = q8_scale(k + g, m, &inverse);
            memcpy(kp + 2 * lane, h, 2);
            kp += 32;
            for (size_t i = 0; i < m; i++, kp += 16)
                kp[lane] = (uint8_t)q8_round(k[g + i] * inverse);
        } else {
            for (size_t i = 0; i < m; i++, kp += 32) {
                if (i % 16 == 0)
                    f16_round(k + g + i, min_size(16, m - i), h);
                memcpy(kp + 2 * lane, &h[i % 16], 2);
            }
        }
        if (kv->type_v == KV_Q8_0) {
            h[0] = q8_scale(v + g, m, &inverse);
            memcpy(vp + g / 32 * 2, h, 2);
            uint8_t *q = vp + (n + 31) / 32 * 2 + g;
            for (size_t i = 0; i < m; i++)
                q[i] = (uint8_t)q8_round(v[g + i] * inverse);
        } else {
            for (size_t i = 0; i < m; i += 16) {
                f16_round(v + g + i, min_size(16, m - i), h);
                memcpy(vp + 2 * (g + i), h, 32);
            }
        }
    }
}

// Scores of n queries for the 16 positions of one block.
INLINE void block_scores(const uint8_t *k, enum kv_type type, size_t head_dim,
                         const float *const *q, int n, v16 *acc)
{
    for (int r = 0; r < n; r++)
        acc[r] = v16_zero();
    if (type == KV_F16) {
        for (size_t d = 0; d < head_dim; d++) {
            v16 kd = v16_load_f16(k + 32 * d);
            for (int r = 0; r < n; r++)
                acc[r] = v16_fma(v16_set1(q[r][d]), kd, acc[r]);
        }
        return;
    }
    for (size_t g = 0; g < head_dim; g += 32) {
        const v16 scale = v16_load_f16(k);
        const size_t end = min_size(g + 32, head_dim);
        v16 part[MAX_QUERIES];
        for (int r = 0; r < n; r++)
            part[r] = v16_zero();
        k += 32;
        for (size_t d = g; d < end; d++, k += 16) {
            v16 kd = v16_load_i8(k);
            for (int r = 0; r < n; r++)
                part[r] = v16_fma(v16_set1(q[r][d]), kd, part[r]);
        }
        for (int r = 0; r < n; r++)
            acc[r] = v16_fma(part[r], scale, acc[r]);
    }
}

// Weighted sum of the values of positions [begin, end), 16 dimensions from d on.
INLINE void block_values(const uint8_t *v, size_t row_bytes, enum kv_type type, size_t head_dim,
                         size_t d, const float (*weight)[CPU_ATTN_SPLIT], size_t begin, size_t end,
                         int n, v16 *acc)
{
    const size_t scale_bytes = (head_dim + 31) / 32 * 2;
    for (int r = 0; r < n; r++)
        acc[r] = v16_zero();
    for (size_t j = begin; j < end; j++) {
        const uint8_t *row = v + j * row_bytes;
        v16 vd;
        if (type == KV_F16)
            vd = v16_load_f16(row + 2 * d);
        else
            vd = v16_mul(v16_load_i8(row + scale_bytes + d), v16_set1(load_f16(row + d / 32 * 2)));
        for (int r = 0; r < n; r++)
            acc[r] = v16_fma(v16_set1(weight[r][j]), vd, acc[r]);
    }
}

// Turns the scores of visible positions [begin, end) of the split into weights; all others of the
// blocks [0, n_blocks) become 0.
static struct cpu_attn_part softmax_part(float *s, size_t begin, size_t end, float scale,
                                         size_t n_blocks)
{
    const v16 none = v16_set1(-INFINITY), factor = v16_set1(scale);
    v16 max = none, sum = v16_zero();
    for (size_t b = 0; b < n_blocks; b++) {
        int from = (int)begin - (int)(16 * b), to = (int)end - (int)(16 * b);
        v16 x = v16_range(v16_mul(v16_load(s + 16 * b), factor), none, from, to);
        v16_store(s + 16 * b, x);
        max = v16_max(max, x);
    }
    const float top = v16_hmax(max);
    for (size_t b = 0; b < n_blocks; b++) {
        int from = (int)begin - (int)(16 * b), to = (int)end - (int)(16 * b);
        v16 e = v16_exp(v16_sub(v16_load(s + 16 * b), v16_set1(top)));
        e = v16_range(e, v16_zero(), from, to);
        v16_store(s + 16 * b, e);
        sum = v16_add(sum, e);
    }
    return (struct cpu_attn_part){top, v16_sum(sum)};
}

INLINE void attend_n(struct cpu_attn_split *a, int n, enum kv_type type_k, enum kv_type type_v)
{
    const struct cpu_kv_layer *kv = a->kv;
    const size_t head_dim = kv->head_dim;
    const float *q[MAX_QUERIES];
    float weight[MAX_QUERIES][CPU_ATTN_SPLIT];
    size_t begin[MAX_QUERIES], end[MAX_QUERIES], lo = CPU_ATTN_SPLIT, hi = 0;
    for (int r = 0; r < n; r++) { // lanes without a query repeat the last one
        const int from = r < a->n_query ? r : a->n_query - 1;
        q[r] = a->q[from];
        begin[r] = a->first[from] > a->split ? a->first[from] - a->split : 0;
        end[r] = a->end[from] > a->split ? min_size(a->end[from] - a->split, CPU_ATTN_SPLIT) : 0;
        if (begin[r] < end[r]) {
            lo = min_size(lo, begin[r]);
            hi = end[r] > hi ? end[r] : hi;
        }
    }
    for (int r = 0; r < a->n_query; r++)
        a->part[r] = (struct cpu_attn_part){0.0f, 0.0f};
    if (lo >= hi)
        return;
    const uint8_t *k = kv->k + a->kv_head * kv->k_head_bytes;
    const uint8_t *v = kv->v + a->kv_head * kv->v_head_bytes + a->split * kv->v_row_bytes;
    const size_t n_blocks = (hi + 15) / 16;
    for (size_t b = lo / 16; b < n_blocks; b++) {
        v16 acc[MAX_QUERIES];
        block_scores(k + (a->split / 16 + b) * kv->k_block_bytes, type_k, head_dim, q, n, acc);
        for (int r = 0; r < n; r++)
            v16_store(&weight[r][16 * b], acc[r]);
    }
    for (int r = 0; r < n; r++) {
        memset(weight[r], 0, lo / 16 * 16 * sizeof(float));
        struct cpu_attn_part part = {0.0f, 0.0f};
        if (begin[r] < end[r])
            part = softmax_part(weight[r], begin[r], end[r], a->scale, n_blocks);
        else
            memset(weight[r], 0, n_blocks * 16 * sizeof(float));
        if (r < a->n_query)
            a->part[r] = part;
    }
    for (size_t d = 0; d < head_dim; d += 16) {
        v16 acc[MAX_QUERIES];
        block_values(v, kv->v_row_bytes, type_v, head_dim, d,
                     (const float(*)[CPU_ATTN_SPLIT])weight, lo, hi, n, acc);
        for (int r = 0; r < n && r < a->n_query; r++)
            v16_store(a->out[r] + d, acc[r]);
    }
}

INLINE void attend_types(struct cpu_attn_split *a, int n)
{
    if (a->kv->type_k == KV_F16 && a->kv->type_v == KV_F16)
        attend_n(a, n, KV_F16, KV_F16);
    else if (a->kv->type_k == KV_F16)
        attend_n(a, n, KV_F16, KV_Q8_0);
    else if (a->kv->type_v == KV_F16)
        attend_n(a, n, KV_Q8_0, KV_F16);
    else
        attend_n(a, n, KV_Q8_0, KV_Q8_0);
}

void CPU_NAME(attend)(struct cpu_attn_split *a)
{
    if (a->n_query == 1)
        attend_types(a, 1);
    else if (a->n_query <= 4)
        attend_types(a, 4);
    else
        attend_types(a, 8);
}

static float exp1(float x)
{
    float t[16];
    v16_store(t, v16_exp(v16_set1(x)));
    return t[0];
}

void CPU_NAME(attn_merge)(struct cpu_attn_part *a, float *ao, const struct cpu_attn_part *b,
                          const float *bo, size_t n)
{
    if (b->sum == 0.0f)
        return;
    if (a->sum == 0.0f) {
        *a = *b;
        memcpy(ao, bo, n * sizeof *ao);
        return;
    }
    const float max = a->max > b->max ? a->max : b->max;
    const float fa = exp1(a->max - max), fb = exp1(b->max - max);
    a->sum = a->sum * fa + b->sum * fb;
    a->max = max;
    for (size_t i = 0; i < n; i++)
        ao[i] = ao[i] * fa + bo[i] * fb;
}
