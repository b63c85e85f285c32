#include "cpu/tiles.h"

#include "cpu/kernels_isa.h"

// Rows and registers of tokens that meet at a time: their integer sums, and what is multiplied,
// stay in 16 registers.
enum { AT_A_TIME = 6, REGISTERS = 2 };

// The sums of n_rows rows and n_registers registers of tokens.
struct whole {
    vi sum[AT_A_TIME][REGISTERS];
};

// w: the first row's pair, x: the pairs of VF_LANES tokens, x_bytes from register to register.
INLINE void add_pair(struct whole *a, const int16_t *w, size_t n_rows, const uint8_t *x,
                     size_t x_bytes, size_t n_registers)
{
    vi pair[REGISTERS];
    for (size_t c = 0; c < n_registers; c++)
        pair[c] = vi_load(x + c * x_bytes);
    for (size_t r = 0; r < n_rows; r++) {
        const vi row = vi_pair(w + r * TILE_COLS);
        for (size_t c = 0; c < n_registers; c++)
            a->sum[r][c] = vi_dot(a->sum[r][c], row, pair[c]);
    }
}

INLINE void multiply(const struct tile *t, size_t row, size_t n_rows, size_t n_groups, bool has_min,
                     const struct packed_block *x, size_t x_stride, size_t n_registers,
                     struct tile_sums *s, size_t tokens)
{
    const size_t x_bytes = x_stride * sizeof *x;
    for (size_t g = 0; g < n_groups; g++) {
        const struct packed_block *b = x + g / 16;
        const int16_t *w = t->q[row] + g / 4 * 64 + g % 4 * 8;
        const uint8_t *q = (const uint8_t *)b->q[g % 16 * 8];
        struct whole a;
        for (size_t r = 0; r < n_rows; r++)
            for (size_t c = 0; c < n_registers; c++)
                a.sum[r][c] = vi_zero();
        add_pair(&a, w, n_rows, q, x_bytes, n_registers);
        add_pair(&a, w + 2, n_rows, q + sizeof b->q[0], x_bytes, n_registers);
        add_pair(&a, w + 4, n_rows, q + 2 * sizeof b->q[0], x_bytes, n_registers);
        add_pair(&a, w + 6, n_rows, q + 3 * sizeof b->q[0], x_bytes, n_registers);
        add_pair(&a, w + 32, n_rows, q + 4 * sizeof b->q[0], x_bytes, n_registers);
        add_pair(&a, w + 34, n_rows, q + 5 * sizeof b->q[0], x_bytes, n_registers);
        add_pair(&a, w + 36, n_rows, q + 6 * sizeof b->q[0], x_bytes, n_registers);
        add_pair(&a, w + 38, n_rows, q + 7 * sizeof b->q[0], x_bytes, n_registers);
        float *sum = s->sum[tokens][row][g % 16];
        for (size_t r = 0; r < n_rows; r++) {
            const vf scale = vf_set1(t->scale[row + r][g]);
            for (size_t c = 0; c < n_registers; c++) {
                const struct packed_block *own = b + c * x_stride;
                float *at = sum + r * (16 * VF_LANES) + c * (TILE_ROWS * 16 * VF_LANES);
                vf v =
                    vf_fma(vf_mul(vf_of_vi(a.sum[r][c]), scale), vf_load(own->scale), vf_load(at));
                if (has_min)
                    v = vf_fma(vf_set1(t->min[row + r][g]), vf_load(own->sum[g % 16]), v);
                vf_store(at, v);
            }
        }
    }
}

INLINE void rows_of(const struct tile *t, size_t n_rows, size_t n_groups, bool has_min,
                    const struct packed_block *x, size_t x_stride, size_t n_registers,
                    struct tile_sums *s, size_t tokens)
{
    size_t r = 0;
    for (; r + 6 <= n_rows; r += 6)
        multiply(t, r, 6, n_groups, has_min, x, x_stride, n_registers, s, tokens);
    if (r + 4 <= n_rows) {
        multiply(t, r, 4, n_groups, has_min, x, x_stride, n_registers, s, tokens);
        r += 4;
    }
    for (; r < n_rows; r += 2)
        multiply(t, r, 2, n_groups, has_min, x, x_stride, n_registers, s, tokens);
}

INLINE void tokens_of(const struct tile *t, size_t n_rows, size_t n_groups, bool has_min,
                      const struct packed_block *x, size_t x_stride, size_t n_tok,
                      struct tile_sums *s)
{
    const size_t n = n_tok / VF_LANES;
    size_t i = 0;
    for (; i + REGISTERS <= n; i += REGISTERS)
        rows_of(t, n_rows, n_groups, has_min, x + i * x_stride, x_stride, REGISTERS, s, i);
    for (; i < n; i++)
        rows_of(t, n_rows, n_groups, has_min, x + i * x_stride, x_stride, 1, s, i);
}

void CPU_NAME(tile_product)(const struct tile *t, size_t n_rows, size_t n_groups, bool has_min,
                            const struct packed_block *x, size_t x_stride, size_t n_tok,
                            struct tile_sums *s)
{
    if (has_min)
        tokens_of(t, n_rows, n_groups, true, x, x_stride, n_tok, s);
    else
        tokens_of(t, n_rows, n_groups, false, x, x_stride, n_tok, s);
}

void CPU_NAME(tile_total)(const struct tile_sums *s, size_t tokens, size_t row, float *out)
{
    vf v[16];
    for (size_t i = 0; i < 16; i++)
        v[i] = vf_load(s->sum[tokens][row][i]);
    for (size_t n = 8; n > 0; n /= 2)
        for (size_t i = 0; i < n; i++)
            v[i] = vf_add(v[i], v[i + n]);
    vf_store(out, v[0]);
}

// A token's 16 elements from one pair of q to the next.
INLINE const int16_t *pair_of(const int16_t *q, size_t group, size_t pair)
{
    const size_t even = group / 4 * 64 + group % 4 * 8;
    return q + (pair < 4 ? even + 2 * pair : even + 32 + 2 * (pair - 4));
}

void CPU_NAME(pack)(const struct cpu_act *a, size_t tok, size_t n)
{
    const size_t n_blocks = a->n_pad / CPU_PAD;
    for (size_t t = tok; t + VF_LANES <= tok + n; t += VF_LANES)
        for (size_t b = 0; b < n_blocks; b++) {
            struct packed_block *to =
                (struct packed_block *)(a->packed + t * n_blocks * CPU_PACKED_BYTES) + b;
            const int16_t *q = a->q + t * a->n_pad + b * CPU_PAD;
            for (size_t i = 0; i < CPU_PAD / 2; i++)
                for (size_t k = 0; k < VF_LANES; k++)
                    memcpy(to->q[i][k], pair_of(q + k * a->n_pad, i / 8, i % 8),
                           sizeof to->q[i][k]);
            for (size_t k = 0; k < VF_LANES; k++)
                to->scale[k] = a->scale[(t + k) * n_blocks + b];
            for (size_t i = 0; i < CPU_PAD / 16; i++)
                for (size_t k = 0; k < VF_LANES; k++)
                    to->sum[i][k] = a->sum[(t + k) * (a->n_pad / 16) + b * (CPU_PAD / 16) + i];
        }
}
