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

INLINE size_t elem_bytes(enum cpu_kv type)
{
    return type == CPU_KV_F32 ? 4 : type == CPU_KV_I16 ? 2 : 1;
}

// Rounds up to 32 values to the stored form, at out, `stride` bytes apart; returns their scale.
static float store_group(const float *x, size_t n, enum cpu_kv type, uint8_t *out, size_t stride)
{
    if (type == CPU_KV_F32) {
        for (size_t i = 0; i < n; i++)
            memcpy(out + i * stride, &x[i], sizeof *x);
        return 1.0f;
    }
    const float top = type == CPU_KV_I16 ? 32767.0f : 127.0f;
    float t[32] = {0};
    int16_t q[32];
    memcpy(t, x, n * sizeof *x);
    v16 x0 = v16_load(t), x1 = v16_load(t + 16);
    const float max = v16_hmax(v16_max(v16_abs(x0), v16_abs(x1)));
    // A NaN or infinity must not end as a number.
    const float bad = v16_sum(v16_mul(v16_add(x0, x1), v16_zero()));
    const v16 inverse = v16_set1(max > 1e-30f ? top / max : 0.0f);
    v16_store_i16(q, v16_mul(x0, inverse));
    v16_store_i16(q + 16, v16_mul(x1, inverse));
    for (size_t i = 0; i < n; i++) {
        if (type == CPU_KV_I16)
            memcpy(out + i * stride, &q[i], sizeof *q);
        else
            out[i * stride] = (uint8_t)(int8_t)q[i];
    }
    return (max > 1e-30f ? max / top : 0.0f) + bad;
}

void CPU_NAME(kv_store)(const struct cpu_kv_layer *kv, uint32_t kv_head, size_t at, const float *k,
                        const float *v)
{
    const size_t lane = at % CPU_KV_BLOCK, n = kv->head_dim, n_v = kv->one ? 0 : kv->value_dim;
    const size_t elem_k = elem_bytes(kv->type_k), elem_v = elem_bytes(kv->type_v);
    uint8_t *kp = kv->k + kv_head * kv->k_head_bytes + at / CPU_KV_BLOCK * kv->k_block_bytes;
    for (size_t g = 0; g < n; g += 32) {
        const size_t m = min_size(32, n - g);
        uint8_t *values = kp + CPU_KV_BLOCK * sizeof(float);
        const float scale =
            store_group(k + g, m, kv->type_k, values + lane * elem_k, CPU_KV_BLOCK * elem_k);
        memcpy(kp + lane * sizeof scale, &scale, sizeof scale);
        kp = values + m * CPU_KV_BLOCK * elem_k;
    }
    if (n_v == 0)
        return;
    uint8_t *scales = kv->v + kv_head * kv->v_head_bytes + at * kv->v_row_bytes;
    uint8_t *vp = scales + (n_v + 31) / 32 * sizeof(float);
    for (size_t g = 0; g < n_v; g += 32) {
        const float scale =
            store_group(v + g, min_size(32, n_v - g), kv->type_v, vp + g * elem_v, elem_v);
        memcpy(scales + g / 32 * sizeof scale, &scale, sizeof scale);
    }
}

INLINE v16 load_values(const uint8_t *p, enum cpu_kv type)
{
    return type == CPU_KV_F32 ? v16_load(p) : type == CPU_KV_I16 ? v16_load_i16(p) : v16_load_i8(p);
}

// Scores of n queries for the 16 positions of one block.
INLINE void block_scores(const uint8_t *k, enum cpu_kv type, size_t head_dim, const float *const *q,
                         int n, v16 *acc)
{
    for (int r = 0; r < n; r++)
        acc[r] = v16_zero();
    for (size_t g = 0; g < head_dim; g += 32) {
        const v16 scale = v16_load(k);
        const size_t end = min_size(g + 32, head_dim);
        v16 part[MAX_QUERIES];
        for (int r = 0; r < n; r++)
            part[r] = v16_zero();
        k += CPU_KV_BLOCK * sizeof(float);
        for (size_t d = g; d < end; d++, k += CPU_KV_BLOCK * elem_bytes(type)) {
            v16 kd = load_values(k, type);
            for (int r = 0; r < n; r++)
                part[r] = v16_fma(v16_set1(q[r][d]), kd, part[r]);
        }
        for (int r = 0; r < n; r++)
            acc[r] = v16_fma(part[r], scale, acc[r]);
    }
}

// Weighted sum of the values of positions [begin, end), 16 dimensions from d on.
INLINE void block_values(const uint8_t *v, size_t row_bytes, enum cpu_kv type, size_t head_dim,
                         size_t d, const float (*weight)[CPU_ATTN_SPLIT], size_t begin, size_t end,
                         int n, v16 *acc)
{
    const size_t scale_bytes = (head_dim + 31) / 32 * sizeof(float);
    for (int r = 0; r < n; r++)
        acc[r] = v16_zero();
    for (size_t j = begin; j < end; j++) {
        const uint8_t *row = v + j * row_bytes;
        float scale;
        memcpy(&scale, row + d / 32 * sizeof scale, sizeof scale);
        v16 vd = load_values(row + scale_bytes + d * elem_bytes(type), type);
        vd = v16_mul(vd, v16_set1(scale));
        for (int r = 0; r < n; r++)
            acc[r] = v16_fma(v16_set1(weight[r][j]), vd, acc[r]);
    }
}

// The same of values that are the first dimensions of keys, dimension d alone: k is the first block
// of the split.
INLINE void block_key_values(const uint8_t *k, size_t block_bytes, enum cpu_kv type, size_t d,
                             const float (*weight)[CPU_ATTN_SPLIT], size_t begin, size_t end, int n,
                             v16 *acc)
{
    const size_t row = CPU_KV_BLOCK * elem_bytes(type), scales = CPU_KV_BLOCK * sizeof(float);
    const size_t group = d / 32 * (scales + 32 * row);
    for (int r = 0; r < n; r++)
        acc[r] = v16_zero();
    for (size_t b = begin / 16; b < (end + 15) / 16; b++) {
        const uint8_t *p = k + b * block_bytes + group;
        v16 vd = v16_mul(load_values(p + scales + d % 32 * row, type), v16_load(p));
        vd = v16_range(vd, v16_zero(), (int)begin - (int)(16 * b), (int)end - (int)(16 * b));
        for (int r = 0; r < n; r++)
            acc[r] = v16_fma(v16_load(&weight[r][16 * b]), vd, acc[r]);
    }
}

// Turns the scores of visible positions [begin, end) of the split into weights; all others of the
// blocks [0, n_blocks) become 0.
static struct cpu_attn_part softmax_part(float *s, size_t begin, size_t end, float scale,
                                         float softcap, size_t n_blocks)
{
    const v16 none = v16_set1(-INFINITY), factor = v16_set1(scale);
    v16 max = none, sum = v16_zero();
    for (size_t b = 0; b < n_blocks; b++) {
        int from = (int)begin - (int)(16 * b), to = (int)end - (int)(16 * b);
        v16 x = v16_mul(v16_load(s + 16 * b), factor);
        if (softcap > 0)
            x = v16_mul(v16_tanh(v16_mul(x, v16_set1(1 / softcap))), v16_set1(softcap));
        x = v16_range(x, none, from, to);
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

INLINE void attend_n(struct cpu_attn_split *a, int n, enum cpu_kv type_k, enum cpu_kv type_v)
{
    const struct cpu_kv_layer *kv = a->kv;
    const size_t head_dim = kv->head_dim, value_dim = kv->value_dim;
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
    const uint8_t *v = kv->v + a->kv_head * kv->v_head_bytes + a->at * kv->v_row_bytes;
    const size_t n_blocks = (hi + 15) / 16;
    for (size_t b = lo / 16; b < n_blocks; b++) {
        v16 acc[MAX_QUERIES];
        block_scores(k + (a->at / 16 + b) * kv->k_block_bytes, type_k, head_dim, q, n, acc);
        for (int r = 0; r < n; r++)
            v16_store(&weight[r][16 * b], acc[r]);
    }
    for (int r = 0; r < n; r++) {
        memset(weight[r], 0, lo / 16 * 16 * sizeof(float));
        struct cpu_attn_part part = {0.0f, 0.0f};
        if (begin[r] < end[r])
            part = softmax_part(weight[r], begin[r], end[r], a->scale, a->softcap, n_blocks);
        else
            memset(weight[r], 0, n_blocks * 16 * sizeof(float));
        if (r < a->n_query)
            a->part[r] = part;
    }
    for (size_t d = 0; kv->one && d < value_dim; d++) {
        v16 acc[MAX_QUERIES];
        block_key_values(k + a->at / 16 * kv->k_block_bytes, kv->k_block_bytes, type_k, d,
                         (const float(*)[CPU_ATTN_SPLIT])weight, lo, hi, n, acc);
        for (int r = 0; r < n && r < a->n_query; r++)
            a->out[r][d] = v16_sum(acc[r]);
    }
    for (size_t d = 0; !kv->one && d < value_dim; d += 16) {
        v16 acc[MAX_QUERIES];
        block_values(v, kv->v_row_bytes, type_v, value_dim, d,
                     (const float(*)[CPU_ATTN_SPLIT])weight, lo, hi, n, acc);
        for (int r = 0; r < n && r < a->n_query; r++)
            v16_store(a->out[r] + d, acc[r]);
    }
}

INLINE void attend_types(struct cpu_attn_split *a, int n)
{
    const bool wide = a->kv->type_v == CPU_KV_I16;
    switch (a->kv->type_k) {
    case CPU_KV_F32:
        wide ? attend_n(a, n, CPU_KV_F32, CPU_KV_I16) : attend_n(a, n, CPU_KV_F32, CPU_KV_I8);
        break;
    case CPU_KV_I16:
        wide ? attend_n(a, n, CPU_KV_I16, CPU_KV_I16) : attend_n(a, n, CPU_KV_I16, CPU_KV_I8);
        break;
    case CPU_KV_I8:
        wide ? attend_n(a, n, CPU_KV_I8, CPU_KV_I16) : attend_n(a, n, CPU_KV_I8, CPU_KV_I8);
        break;
    }
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
