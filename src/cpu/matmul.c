// Matrix products: rows of weights, read in place from the file, times one or several
// (COLUMNS) columns of activations at a time. Compiled once per instruction set.
//
// Sum of one output, quantised weights: lane i of 16 takes the exact integer products of four
// consecutive elements out of each 64, times the scale of the weights; four such in a row, times
// the scale of the activations, make a block of 256, its minima follow; block after block; the
// lanes are added at the end (v16_sum).
// Float weights: two sets of 16 lanes take turns.
#include "cpu/kernels_isa.h"
#include "cpu/unpack.h"

typedef void unpack_fn(const void *p, struct unit *u);
typedef v16 load_fn(const void *p);

// What the inlined loops below are specialised for.
struct format {
    int unit; // weights per unit, 128 or 256
    size_t unit_bytes;
    int block; // weights per block of the type
    bool has_min;
    size_t block_bytes;
    quant_decode_fn *decode; // how blocks are unpacked that have no unpack_fn, else NULL
};

INLINE struct format format_of(enum quant_type type)
{
    const struct block_facts f = block_facts(type);
    const int unit = f.weights == 256 ? 256 : 128;
    return (struct format){
        unit, (size_t)unit / f.weights * f.bytes, (int)f.weights, f.minimum, f.bytes, NULL};
}

// 256 weights as the dot products take them: up to two units, and each pair's scales spread out.
struct block {
    struct unit u[2];
    v16 scale[4];
};

// Unpacks n_pairs * 64 weights at p (4 pairs: a whole block).
INLINE void unpack_block(unpack_fn *unpack, struct format fmt, const uint8_t *p, int n_pairs,
                         struct block *b)
{
    const int unit_pairs = fmt.unit / 64;
    for (int i = 0; i < n_pairs; i += unit_pairs) {
        const uint8_t *at = p + (size_t)(i / unit_pairs) * fmt.unit_bytes;
        struct unit *u = &b->u[i / unit_pairs];
        if (fmt.decode)
            unpack_codes(fmt.decode, fmt.unit / fmt.block, (size_t)fmt.block, fmt.block_bytes, at,
                         u);
        else
            unpack(at, u);
    }
    for (int i = 0; i < n_pairs; i++)
        b->scale[i] = v16_spread(b->u[i / unit_pairs].scale, i % unit_pairs);
}

// Adds the block times the activations from element `at` (which begins a block) on to the
// accumulators of n columns.
INLINE void add_block(struct format fmt, const struct block *b, int n_pairs,
                      const struct cpu_act *x, size_t tok, size_t at, int n, v16 *acc)
{
    const int unit_pairs = fmt.unit / 64;
    for (int c = 0; c < n; c++) {
        const size_t first = (tok + (size_t)c) * x->n_pad + at;
        const int16_t *q = x->q + first;
        v16 sum = v16_mul(w64_dot(&b->u[0].q[0], q), b->scale[0]);
        for (int i = 1; i < n_pairs; i++)
            sum = v16_fma(w64_dot(&b->u[i / unit_pairs].q[i % unit_pairs], q + 64 * i), b->scale[i],
                          sum);
        acc[c] = v16_fma(sum, v16_set1(x->scale[first / CPU_PAD]), acc[c]);
        if (!fmt.has_min)
            continue;
        const float *xs = x->sum + first / 16;
        if (fmt.unit == 256)
            acc[c] = v16_fma(b->u[0].min, v16_load(xs), acc[c]);
        for (int i = 0; fmt.unit == 128 && i < n_pairs / 2; i++)
            acc[c] = v16_fma(b->u[i].min, v16_load8(xs + 8 * i), acc[c]);
    }
}

INLINE void put(const struct cpu_matmul *m, uint32_t row, size_t tok, float value)
{
    float *y = m->y + tok * m->y_stride + row;
    if (m->bias)
        value += m->bias[row];
    *y = m->accumulate ? *y + value : value;
}

// Several columns: rows go in groups and columns of the matrix in tiles. A tile is unpacked once
// and then meets COLUMNS columns at a time, whose activations stay in the first cache while all
// rows pass over them.
enum { TILE = 768, BLOCK_ROWS = 16, COLUMNS = V16_COLUMNS, MAX_TOKENS = 64 };

// Elements [at, end) of a row, the whole row's weights being at row: unpacks the next block, at
// most 256 elements. Returns how many sets of 64 it has; a last part of a block is filled up with
// zeros.
INLINE int next_block(unpack_fn *unpack, struct format fmt, const uint8_t *row, size_t row_bytes,
                      size_t at, size_t end, struct block *b)
{
    const uint8_t *p = row + at / 256 * (fmt.unit_bytes * (size_t)(256 / fmt.unit));
    if (at + 256 <= end) {
        unpack_block(unpack, fmt, p, 4, b);
        return 4;
    }
    if (fmt.unit == 128 && at + 128 == end) {
        unpack_block(unpack, fmt, p, 2, b);
        return 2;
    }
    uint8_t last[320] = {0};
    memcpy(last, p, row_bytes - (size_t)(p - row));
    unpack_block(unpack, fmt, last, 4, b);
    return 4;
}

// n tokens, a multiple of COLUMNS and at most MAX_TOKENS.
INLINE void quant_columns(const struct cpu_matmul *m, unpack_fn *unpack, struct format fmt,
                          size_t row_bytes, uint32_t first, uint32_t n_rows, size_t tok, size_t n)
{
    const size_t n_cols = m->w->n_cols;
    v16 sums[MAX_TOKENS / COLUMNS][BLOCK_ROWS][COLUMNS];
    struct block blocks[BLOCK_ROWS][TILE / 256];
    int n_pairs[TILE / 256] = {0};
    for (size_t begin = 0; begin < n_cols; begin += TILE) {
        const size_t end = n_cols - begin < TILE ? n_cols : begin + TILE;
        for (uint32_t r = 0; r < n_rows; r++) {
            const uint8_t *row = (const uint8_t *)m->w->data + (first + r) * row_bytes;
            for (size_t at = begin, i = 0; at < end; at += 256, i++)
                n_pairs[i] = next_block(unpack, fmt, row, row_bytes, at, end, &blocks[r][i]);
        }
        for (size_t t = 0; t < n; t += COLUMNS) {
            for (uint32_t r = 0; r < n_rows; r++) {
                v16 *sum = sums[t / COLUMNS][r], acc[COLUMNS];
                for (int c = 0; c < COLUMNS; c++)
                    acc[c] = begin == 0 ? v16_zero() : sum[c];
                for (size_t at = begin, i = 0; at < end; at += 256, i++) {
                    if (n_pairs[i] == 4)
                        add_block(fmt, &blocks[r][i], 4, m->x, tok + t, at, COLUMNS, acc);
                    else
                        add_block(fmt, &blocks[r][i], 2, m->x, tok + t, at, COLUMNS, acc);
                }
                for (int c = 0; c < COLUMNS; c++)
                    sum[c] = acc[c];
            }
        }
    }
    for (size_t t = 0; t < n; t += COLUMNS)
        for (uint32_t r = 0; r < n_rows; r++)
            for (size_t c = 0; c < COLUMNS; c++)
                put(m, first + r, tok + t + c, v16_sum(sums[t / COLUMNS][r][c]));
}

INLINE void quant_rows(const struct cpu_matmul *m, unpack_fn *unpack, struct format fmt,
                       uint32_t row0, uint32_t row1)
{
    const size_t n_cols = m->w->n_cols;
    const size_t row_bytes =
        n_cols / (size_t)fmt.block * fmt.unit_bytes / (size_t)(fmt.unit / fmt.block);
    size_t tok = 0;
    while (tok + COLUMNS <= m->n_tok) {
        size_t n = m->n_tok - tok < MAX_TOKENS ? m->n_tok - tok : MAX_TOKENS;
        n -= n % COLUMNS;
        for (uint32_t first = row0; first < row1; first += BLOCK_ROWS)
            quant_columns(m, unpack, fmt, row_bytes, first,
                          row1 - first < BLOCK_ROWS ? row1 - first : BLOCK_ROWS, tok, n);
        tok += n;
    }
    // One column: straight from the file, nothing is used twice.
    for (; tok < m->n_tok; tok++) {
        for (uint32_t r = row0; r < row1; r++) {
            const uint8_t *row = (const uint8_t *)m->w->data + r * row_bytes;
            v16 acc[1] = {v16_zero()};
            const uint8_t *p = row;
            struct block b;
            size_t at = 0;
            for (; at + 256 <= n_cols; at += 256, p += fmt.unit_bytes * (size_t)(256 / fmt.unit)) {
                unpack_block(unpack, fmt, p, 4, &b);
                add_block(fmt, &b, 4, m->x, tok, at, 1, acc);
            }
            if (fmt.unit == 128 && at < n_cols) {
                if (next_block(unpack, fmt, row, row_bytes, at, n_cols, &b) == 4)
                    add_block(fmt, &b, 4, m->x, tok, at, 1, acc);
                else
                    add_block(fmt, &b, 2, m->x, tok, at, 1, acc);
            }
            put(m, r, tok, v16_sum(acc[0]));
        }
    }
}

// Adds elements [begin, end) of a row at p (the whole row's start), 32 at a time.
INLINE void add_floats(load_fn *load, size_t elem_bytes, const uint8_t *p, size_t begin, size_t end,
                       const struct cpu_matmul *m, size_t tok, int n, v16 (*acc)[2])
{
    for (size_t i = begin; i < end; i += 32) {
        uint8_t last[128] = {0};
        const uint8_t *w = p + i * elem_bytes;
        if (end - i < 32)
            w = memcpy(last, w, (end - i) * elem_bytes);
        v16 w0 = load(w), w1 = load(w + 16 * elem_bytes);
        for (int c = 0; c < n; c++) {
            const float *x = m->x->f + (tok + (size_t)c) * m->x->n_pad + i;
            acc[c][0] = v16_fma(w0, v16_load(x), acc[c][0]);
            acc[c][1] = v16_fma(w1, v16_load(x + 16), acc[c][1]);
        }
    }
}

INLINE void float_columns(const struct cpu_matmul *m, load_fn *load, size_t elem_bytes,
                          uint32_t row0, uint32_t row1, size_t tok, int n)
{
    const size_t n_cols = m->w->n_cols, tile = n > 1 ? TILE : n_cols;
    for (uint32_t first = row0; first < row1; first += BLOCK_ROWS) {
        const uint32_t n_rows = row1 - first < BLOCK_ROWS ? row1 - first : BLOCK_ROWS;
        v16 sums[BLOCK_ROWS][8][2];
        for (size_t begin = 0; begin < n_cols; begin += tile) {
            const size_t end = n_cols - begin < tile ? n_cols : begin + tile;
            for (uint32_t r = 0; r < n_rows; r++) {
                const uint8_t *p = (const uint8_t *)m->w->data + (first + r) * n_cols * elem_bytes;
                v16 acc[8][2];
                for (int c = 0; c < n; c++)
                    for (int h = 0; h < 2; h++)
                        acc[c][h] = begin == 0 ? v16_zero() : sums[r][c][h];
                add_floats(load, elem_bytes, p, begin, end, m, tok, n, acc);
                for (int c = 0; c < n; c++)
                    for (int h = 0; h < 2; h++)
                        sums[r][c][h] = acc[c][h];
            }
        }
        for (uint32_t r = 0; r < n_rows; r++)
            for (int c = 0; c < n; c++)
                put(m, first + r, tok + (size_t)c, v16_sum(v16_add(sums[r][c][0], sums[r][c][1])));
    }
}

INLINE void float_rows(const struct cpu_matmul *m, load_fn *load, size_t elem_bytes, uint32_t row0,
                       uint32_t row1)
{
    size_t tok = 0;
    for (; tok + COLUMNS <= m->n_tok; tok += COLUMNS)
        float_columns(m, load, elem_bytes, row0, row1, tok, COLUMNS);
    for (; tok < m->n_tok; tok++)
        float_columns(m, load, elem_bytes, row0, row1, tok, 1);
}

static void rows_f32(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    float_rows(m, v16_load, 4, row0, row1);
}

static void rows_f16(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    float_rows(m, v16_load_f16, 2, row0, row1);
}

static void rows_bf16(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    float_rows(m, v16_load_bf16, 2, row0, row1);
}

static void rows_q4_0(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    quant_rows(m, unpack_q4_0, format_of(QUANT_Q4_0), row0, row1);
}

static void rows_q4_1(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    quant_rows(m, unpack_q4_1, format_of(QUANT_Q4_1), row0, row1);
}

static void rows_q5_0(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    quant_rows(m, unpack_q5_0, format_of(QUANT_Q5_0), row0, row1);
}

static void rows_q5_1(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    quant_rows(m, unpack_q5_1, format_of(QUANT_Q5_1), row0, row1);
}

static void rows_q8_0(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    quant_rows(m, unpack_q8_0, format_of(QUANT_Q8_0), row0, row1);
}

static void rows_q2_k(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    quant_rows(m, unpack_q2_k, format_of(QUANT_Q2_K), row0, row1);
}

static void rows_q3_k(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    quant_rows(m, unpack_q3_k, format_of(QUANT_Q3_K), row0, row1);
}

static void rows_q4_k(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    quant_rows(m, unpack_q4_k, format_of(QUANT_Q4_K), row0, row1);
}

static void rows_q5_k(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    quant_rows(m, unpack_q5_k, format_of(QUANT_Q5_K), row0, row1);
}

static void rows_q6_k(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    quant_rows(m, unpack_q6_k, format_of(QUANT_Q6_K), row0, row1);
}

static void rows_iq4_nl(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    quant_rows(m, unpack_iq4_nl, format_of(QUANT_IQ4_NL), row0, row1);
}

static void rows_iq4_xs(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    quant_rows(m, unpack_iq4_xs, format_of(QUANT_IQ4_XS), row0, row1);
}

static void rows_mxfp4(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    quant_rows(m, unpack_mxfp4, format_of(QUANT_MXFP4), row0, row1);
}

static void rows_nvfp4(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    quant_rows(m, unpack_nvfp4, format_of(QUANT_NVFP4), row0, row1);
}

// Types that gguf/codes.c unpacks.
static void rows_codes(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    struct format fmt = format_of(m->w->type);
    fmt.decode = quant_decoder(m->w->type);
    fmt.has_min = false;
    if (fmt.unit == 256) { // so that the compiler knows
        fmt.unit = 256;
        quant_rows(m, NULL, fmt, row0, row1);
    } else {
        fmt.unit = 128;
        quant_rows(m, NULL, fmt, row0, row1);
    }
}

static void (*const rows_of_type[QUANT_TYPE_MAX])(const struct cpu_matmul *, uint32_t, uint32_t) = {
    [QUANT_F32] = rows_f32,     [QUANT_F16] = rows_f16,       [QUANT_BF16] = rows_bf16,
    [QUANT_Q4_0] = rows_q4_0,   [QUANT_Q4_1] = rows_q4_1,     [QUANT_Q5_0] = rows_q5_0,
    [QUANT_Q5_1] = rows_q5_1,   [QUANT_Q8_0] = rows_q8_0,     [QUANT_Q2_K] = rows_q2_k,
    [QUANT_Q3_K] = rows_q3_k,   [QUANT_Q4_K] = rows_q4_k,     [QUANT_Q5_K] = rows_q5_k,
    [QUANT_Q6_K] = rows_q6_k,   [QUANT_IQ4_NL] = rows_iq4_nl, [QUANT_IQ4_XS] = rows_iq4_xs,
    [QUANT_MXFP4] = rows_mxfp4, [QUANT_NVFP4] = rows_nvfp4,
};

void CPU_NAME(matmul)(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
    if (rows_of_type[m->w->type])
        rows_of_type[m->w->type](m, row0, row1);
    else
        rows_codes(m, row0, row1);
}
