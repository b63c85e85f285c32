#include "cpu/tiles.h"

#include "cpu/kernels_isa.h"

// Rows and registers of tokens that meet at a time: their integer sums, and what is multiplied,
// stay in 16 registers.
enum { AT_A_TIME = 6, REGISTERS = 2 };
// Lanes from one fetch to the next.
enum { FETCH_LANES = 2 };

// The sums of n_rows rows and n_registers registers of tokens.
struct whole {
    vi sum[AT_A_TIME][REGISTERS];
};

// A group of 16 elements is packed in 8 pairs.
enum { PAIR_BYTES = VF_LANES * 4, GROUP_BYTES = 8 * PAIR_BYTES };

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

// One group of the rows' elements, at w and packed at q, whole numbers.
INLINE struct whole group_product(const int16_t *w, size_t n_rows, const uint8_t *q, size_t x_bytes,
                                  size_t n_registers)
{
    struct whole a;
    for (size_t r = 0; r < n_rows; r++)
        for (size_t c = 0; c < n_registers; c++)
            a.sum[r][c] = vi_zero();
    add_pair(&a, w, n_rows, q, x_bytes, n_registers);
    add_pair(&a, w + 2, n_rows, q + PAIR_BYTES, x_bytes, n_registers);
    add_pair(&a, w + 4, n_rows, q + 2 * PAIR_BYTES, x_bytes, n_registers);
    add_pair(&a, w + 6, n_rows, q + 3 * PAIR_BYTES, x_bytes, n_registers);
    add_pair(&a, w + 32, n_rows, q + 4 * PAIR_BYTES, x_bytes, n_registers);
    add_pair(&a, w + 34, n_rows, q + 5 * PAIR_BYTES, x_bytes, n_registers);
    add_pair(&a, w + 36, n_rows, q + 6 * PAIR_BYTES, x_bytes, n_registers);
    add_pair(&a, w + 38, n_rows, q + 7 * PAIR_BYTES, x_bytes, n_registers);
    return a;
}

// A tile and the packed tokens that it meets.
struct meeting {
    struct tile *t;
    size_t n_groups;
    bool has_min, begin;
    const uint8_t *x;
    size_t n_blocks, first_block; // of a row, and of the tile in it
};

// Lane by lane, so that its sums stay in registers (if there are 32).
INLINE void multiply(const struct meeting *m, size_t row, size_t n_rows, const uint8_t *x,
                     size_t n_registers, float (*sums)[16][TILE_ROWS][VF_LANES])
{
    struct tile *t = m->t;
    const size_t n_blocks = m->n_blocks, x_bytes = n_blocks * CPU_PACKED_BYTES * VF_LANES;
    const float *x_scale =
        (const float *)(x + n_blocks * 16 * GROUP_BYTES) + m->first_block * VF_LANES;
    for (size_t lane = 0; lane < 16; lane++) {
        const uint8_t *q = x + (lane * n_blocks + m->first_block) * GROUP_BYTES;
        const float *x_sum = x_scale + (n_blocks + lane * n_blocks) * VF_LANES;
        const int16_t *w = t->q[row] + lane / 4 * 64 + lane % 4 * 8;
        vf acc[AT_A_TIME][REGISTERS];
        if (lane % FETCH_LANES == 0)
            fetch_next(&t->next);
        for (size_t r = 0; r < n_rows; r++)
            for (size_t c = 0; c < n_registers; c++)
                acc[r][c] = m->begin ? vf_set1(0.0f) : vf_load(sums[c][lane][row + r]);
        size_t b = 0;
        for (size_t g = lane; g < m->n_groups; g += 16, b++) {
            const struct whole a =
                group_product(w + b * CPU_PAD, n_rows, q + b * GROUP_BYTES, x_bytes, n_registers);
            vf own[REGISTERS];
            for (size_t c = 0; c < n_registers; c++)
                own[c] = vf_load(x_scale + c * (x_bytes / 4) + b * VF_LANES);
            for (size_t r = 0; r < n_rows; r++) {
                const vf scale = vf_set1(t->scale[row + r][g]);
                for (size_t c = 0; c < n_registers; c++)
                    acc[r][c] = vf_fma(vf_mul(vf_of_vi(a.sum[r][c]), scale), own[c], acc[r][c]);
            }
            for (size_t c = 0; m->has_min && c < n_registers; c++) {
                const vf sum = vf_load(x_sum + c * (x_bytes / 4) + b * VF_LANES);
                for (size_t r = 0; r < n_rows; r++)
                    acc[r][c] = vf_fma(vf_set1(t->min[row + r][g]), sum, acc[r][c]);
            }
        }
        for (size_t r = 0; r < n_rows; r++)
            for (size_t c = 0; c < n_registers; c++)
                vf_store(sums[c][lane][row + r], acc[r][c]);
    }
}

INLINE void rows_of(const struct meeting *m, size_t n_rows, const uint8_t *x, size_t n_registers,
                    float (*sums)[16][TILE_ROWS][VF_LANES])
{
    size_t r = 0;
    for (; r + 6 <= n_rows; r += 6)
        multiply(m, r, 6, x, n_registers, sums);
    if (r + 4 <= n_rows) {
        multiply(m, r, 4, x, n_registers, sums);
        r += 4;
    }
    for (; r < n_rows; r += 2)
        multiply(m, r, 2, x, n_registers, sums);
}

INLINE void tokens_of(const struct meeting *m, size_t n_rows, size_t n_tok, struct tile_sums *s)
{
    const size_t n = n_tok / VF_LANES, x_bytes = m->n_blocks * CPU_PACKED_BYTES * VF_LANES;
    size_t i = 0;
    for (; i + REGISTERS <= n; i += REGISTERS)
        rows_of(m, n_rows, m->x + i * x_bytes, REGISTERS, s->sum + i);
    for (; i < n; i++)
        rows_of(m, n_rows, m->x + i * x_bytes, 1, s->sum + i);
}

void CPU_NAME(tile_product)(struct tile *t, size_t n_rows, size_t n_groups, bool has_min,
                            const uint8_t *x, size_t n_blocks, size_t first_block, size_t n_tok,
                            struct tile_sums *s)
{
    struct meeting m = {t, n_groups, has_min, first_block == 0, x, n_blocks, first_block};
    if (has_min) { // so that the compiler knows
        m.has_min = true;
        tokens_of(&m, n_rows, n_tok, s);
    } else {
        m.has_min = false;
        tokens_of(&m, n_rows, n_tok, s);
    }
}

size_t CPU_NAME(tile_fetches)(size_t n_tok)
{
    const size_t n = n_tok / VF_LANES;
    return (n / REGISTERS + n % REGISTERS) * (TILE_ROWS / AT_A_TIME) * (16 / FETCH_LANES);
}

INLINE vf total_of(const struct tile_sums *s, size_t tokens, size_t row)
{
    vf v[16];
    for (size_t i = 0; i < 16; i++)
        v[i] = vf_load(s->sum[tokens][i][row]);
    for (size_t n = 8; n > 0; n /= 2)
        for (size_t i = 0; i < n; i++)
            v[i] = vf_add(v[i], v[i + n]);
    return v[0];
}

void CPU_NAME(tile_totals)(const struct tile_sums *s, size_t tokens, size_t n_rows,
                           float out[VF_LANES][TILE_TOTALS])
{
    for (size_t first = 0; first < n_rows; first += VF_LANES) {
        vf v[VF_LANES];
        for (size_t i = 0; i < VF_LANES; i++)
            v[i] = first + i < n_rows ? total_of(s, tokens, first + i) : vf_set1(0.0f);
        vf_transpose(v);
        for (size_t k = 0; k < VF_LANES; k++)
            vf_store(out[k] + first, v[k]);
    }
}

// q of VF_LANES tokens from tok on: pairs of even elements of 64, then of odd ones
static void pack_q(const struct cpu_act *a, size_t tok, uint8_t *to)
{
    const size_t n_blocks = a->n_pad / CPU_PAD;
    for (size_t at = 0; at < a->n_pad; at += 2 * VF_LANES) {
        const size_t odd = at / 32 % 2, pair = at / 2 % 16; // of 16 pairs, 4 for each of 4 lanes
        vf v[VF_LANES];
        for (size_t k = 0; k < VF_LANES; k++)
            v[k] = vf_load((const float *)(a->q + (tok + k) * a->n_pad + at));
        vf_transpose(v);
        for (size_t i = 0; i < VF_LANES; i++) {
            const size_t lane = at % CPU_PAD / 64 * 4 + (pair + i) / 4;
            const size_t group = lane * n_blocks + at / CPU_PAD;
            vf_store((float *)(to + group * GROUP_BYTES + (4 * odd + i % 4) * PAIR_BYTES), v[i]);
        }
    }
}

void CPU_NAME(pack)(const struct cpu_act *a, size_t tok, size_t n)
{
    const size_t n_blocks = a->n_pad / CPU_PAD;
    for (size_t t = tok; t + VF_LANES <= tok + n; t += VF_LANES) {
        uint8_t *to = a->packed + t * n_blocks * CPU_PACKED_BYTES;
        pack_q(a, t, to);
        float *scale = (float *)(to + n_blocks * 16 * GROUP_BYTES);
        float *sum = scale + n_blocks * VF_LANES;
        for (size_t b = 0; b < n_blocks; b++)
            for (size_t k = 0; k < VF_LANES; k++)
                *scale++ = a->scale[(t + k) * n_blocks + b];
        for (size_t lane = 0; lane < 16; lane++)
            for (size_t b = 0; b < n_blocks; b++)
                for (size_t k = 0; k < VF_LANES; k++)
                    *sum++ = a->sum[((t + k) * n_blocks + b) * 16 + lane];
    }
}
