// Matrix products: rows of weights, read in place from the file, times one or several
// (COLUMNS) columns of activations at a time. Compiled once per instruction set.
//
// Sum of one output, quantised weights: lane i of 16 takes the exact integer products of elements
// 16i to 16i + 15 of each 256, times the scale of the weights, times the scale of the activations;
// the block's minima follow; block after block; the lanes are added at the end (v16_sum). Many
// tokens are multiplied in another shape (tiles.h), and one token of most types in a third one
// (decode.h), to the same bits.
// Float weights: two sets of 16 lanes take turns.
#include "cpu/decode.h"
#include "cpu/kernels_isa.h"
#include "cpu/put.h"
#include "cpu/tiles.h"
#include "cpu/unpack_codes.h"

typedef void unpack_fn(const void *p, struct unit *u);
typedef v16 load_fn(const void *p);

// What the inlined loops below are specialised for.
struct format {
    int unit; // weights per unit, 128 or 256
    size_t unit_bytes;
    int block; // weights per block of the type
    bool has_min;
    bool x16;     // as by_16
    bool scale18; // of 18 bytes, which begin with a half float: the scale
};

INLINE struct format format_of(enum quant_type type)
{
    const struct block_facts f = block_facts(type);
    const int unit = f.weights == 256 ? 256 : 128;
    return (struct format){unit,
                           (size_t)unit / f.weights * f.bytes,
                           (int)f.weights,
                           f.minimum,
                           type == QUANT_Q4_0,
                           type == QUANT_Q4_0 || type == QUANT_IQ4_NL};
}

// 256 weights as the dot products take them.
struct block {
    w64 q[4];
    v16 scale, min; // one lane per 16 weights
};

// Unpacks n_pairs * 64 weights at p (4 pairs: a whole block).
INLINE void unpack_block(unpack_fn *unpack, struct format fmt, const uint8_t *p, int n_pairs,
                         struct block *b)
{
    const int unit_pairs = fmt.unit / 64, n_units = n_pairs / unit_pairs;
    struct unit u[2];
    unpack(p, &u[0]);
    if (n_units == 2)
        unpack(p + fmt.unit_bytes, &u[1]);
    for (int i = 0; i < n_pairs; i++)
        b->q[i] = u[i / unit_pairs].q[i % unit_pairs];
    b->scale = u[0].scale;
    if (fmt.unit == 128)
        b->scale = v16_join8(u[0].scale, n_units == 2 ? u[1].scale : v16_zero());
    if (fmt.scale18 && n_units == 2)
        b->scale = v16_load_f16x8_dup18(p);
    if (fmt.x16 && n_units == 2)
        b->scale = v16_mul(b->scale, v16_load(by_16));
    if (!fmt.has_min)
        return;
    b->min = u[0].min;
    if (fmt.unit == 128)
        b->min = v16_join8(u[0].min, n_units == 2 ? u[1].min : v16_zero());
}

// Adds the block times the activations from element `at` (which begins a block) on to the
// accumulators of n columns.
INLINE void add_block(struct format fmt, const struct block *b, int n_pairs,
                      const struct cpu_act *x, size_t tok, size_t at, int n, v16 *acc)
{
    for (int c = 0; c < n; c++) {
        const size_t first = (tok + (size_t)c) * x->n_pad + at;
        const int16_t *q = x->q + first;
        const v16 sum = n_pairs == 4 ? w64_dot_groups(b->q, q) : w64_dot_groups8(b->q, q);
        acc[c] = v16_fma(v16_mul(sum, b->scale), v16_set1(x->scale[first / CPU_PAD]), acc[c]);
        if (fmt.has_min)
            acc[c] = v16_fma(b->min, v16_load(x->sum + first / 16), acc[c]);
    }
}

// Usually for all rows of a tile: then the compiler knows how many.
INLINE void put_rows(const struct cpu_matmul *m, uint32_t row, uint32_t n, uint32_t n_tile,
                     size_t tok, float *value)
{
    if (n == n_tile)
        put_few(m, row, n_tile, tok, value);
    else
        put_few(m, row, n, tok, value);
}

enum { COLUMNS = V16_COLUMNS };

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

INLINE void store_block(const struct block *b, int n_pairs, bool has_min, struct tile *t, size_t r,
                        size_t at)
{
    for (int i = 0; i < n_pairs; i++)
        w64_store(&t->q[r][at + 64 * (size_t)i], &b->q[i]);
    v16_store(&t->scale[r][at / 16], b->scale);
    if (has_min)
        v16_store(&t->min[r][at / 16], b->min);
}

// Elements [begin, end) of a row to row r of the tile.
INLINE void fill_row(unpack_fn *unpack, struct format fmt, const uint8_t *row, size_t row_bytes,
                     size_t begin, size_t end, struct tile *t, size_t r)
{
    const size_t block_bytes = fmt.unit_bytes * (size_t)(256 / fmt.unit);
    const uint8_t *p = row + begin / 256 * block_bytes;
    struct block b;
    size_t at = begin;
    for (; at + 256 <= end; at += 256, p += block_bytes) {
        unpack_block(unpack, fmt, p, 4, &b);
        store_block(&b, 4, fmt.has_min, t, r, at - begin);
    }
    if (fmt.unit == 128 && at < end) {
        if (next_block(unpack, fmt, row, row_bytes, at, end, &b) == 4)
            store_block(&b, 4, fmt.has_min, t, r, at - begin);
        else
            store_block(&b, 2, fmt.has_min, t, r, at - begin);
    }
}

// n tokens, a multiple of VF_LANES and at most TILE_TOKENS.
INLINE void quant_tokens(const struct cpu_matmul *m, unpack_fn *unpack, struct format fmt,
                         size_t row_bytes, uint32_t first, uint32_t n_rows, size_t tok, size_t n)
{
    const size_t n_cols = m->w->n_cols, n_blocks = m->x->n_pad / CPU_PAD;
    const uint8_t *x = m->x->packed + tok * n_blocks * CPU_PACKED_BYTES;
    struct tile t;
    struct tile_sums s;
    const size_t n_tiles = (n_cols + TILE_COLS - 1) / TILE_COLS;
    if (n_rows % 2 > 0)
        memset(&t, 0, sizeof t); // a row that is only computed
    t.next = next_of((const uint8_t *)m->w->data + (first + TILE_ROWS) * row_bytes,
                     TILE_ROWS * row_bytes, n_tiles * CPU_NAME(tile_fetches)(n));
    for (size_t begin = 0; begin < n_cols; begin += TILE_COLS) {
        const size_t end = n_cols - begin < TILE_COLS ? n_cols : begin + TILE_COLS;
        for (uint32_t r = 0; r < n_rows; r++) {
            const uint8_t *row = (const uint8_t *)m->w->data + (first + r) * row_bytes;
            fill_row(unpack, fmt, row, row_bytes, begin, end, &t, r);
        }
        CPU_NAME(tile_product)
        (&t, n_rows, (end - begin + 15) / 16, fmt.has_min, x, n_blocks, begin / CPU_PAD, n, &s);
    }
    for (size_t i = 0; i < n / VF_LANES; i++) {
        float y[VF_LANES][TILE_TOTALS];
        CPU_NAME(tile_totals)(&s, i, n_rows, y);
        for (size_t k = 0; k < VF_LANES; k++)
            put_rows(m, first, n_rows, TILE_ROWS, tok + i * VF_LANES + k, y[k]);
    }
}

// One row and up to COLUMNS columns: each weight is unpacked once, straight from the file.
INLINE void quant_few(const struct cpu_matmul *m, unpack_fn *unpack, struct format fmt,
                      size_t row_bytes, uint32_t r, size_t tok, int n)
{
    const size_t n_cols = m->w->n_cols;
    const uint8_t *row = (const uint8_t *)m->w->data + r * row_bytes, *p = row;
    v16 acc[COLUMNS];
    struct block b;
    size_t at = 0;
    for (int c = 0; c < n; c++)
        acc[c] = v16_zero();
    for (; at + 256 <= n_cols; at += 256, p += fmt.unit_bytes * (size_t)(256 / fmt.unit)) {
        fetch(p + AHEAD, fmt.unit_bytes * (size_t)(256 / fmt.unit));
        unpack_block(unpack, fmt, p, 4, &b);
        add_block(fmt, &b, 4, m->x, tok, at, n, acc);
    }
    if (fmt.unit == 128 && at < n_cols) {
        if (next_block(unpack, fmt, row, row_bytes, at, n_cols, &b) == 4)
            add_block(fmt, &b, 4, m->x, tok, at, n, acc);
        else
            add_block(fmt, &b, 2, m->x, tok, at, n, acc);
    }
    for (int c = 0; c < n; c++)
        put(m, r, tok + (size_t)c, v16_sum(acc[c]));
}

INLINE void quant_rows(const struct cpu_matmul *m, unpack_fn *unpack, struct format fmt,
                       uint32_t row0, uint32_t row1)
{
    const size_t n_cols = m->w->n_cols;
    const size_t row_bytes =
        n_cols / (size_t)fmt.block * fmt.unit_bytes / (size_t)(fmt.unit / fmt.block);
    const size_t n_packed = m->n_tok < CPU_PACKED ? 0 : m->n_tok / VF_LANES * VF_LANES;
    // Whose activations stay in the second cache.
    const size_t most = m->x->n_pad <= 1536 ? TILE_TOKENS : TILE_TOKENS / 2;
    size_t tok = 0;
    for (size_t n; tok < n_packed; tok += n) {
        n = n_packed - tok < most ? n_packed - tok : most;
        for (uint32_t first = row0; first < row1; first += TILE_ROWS)
            quant_tokens(m, unpack, fmt, row_bytes, first,
                         row1 - first < TILE_ROWS ? row1 - first : TILE_ROWS, tok, n);
    }
    const size_t n_left = m->n_tok - tok;
    for (uint32_t r = row0; n_left == 1 && r < row1; r++)
        quant_few(m, unpack, fmt, row_bytes, r, tok, 1);
    for (uint32_t r = row0; n_left > 1 && r < row1; r++)
        for (size_t t = tok; t < m->n_tok; t += COLUMNS)
            quant_few(m, unpack, fmt, row_bytes, r, t,
                      m->n_tok - t < COLUMNS ? (int)(m->n_tok - t) : COLUMNS);
}

// A row and one column or two, straight from the file.
INLINE void float_few(const struct cpu_matmul *m, load_fn *load, size_t elem_bytes, uint32_t r,
                      size_t tok, int n)
{
    const size_t n_cols = m->w->n_cols;
    const uint8_t *w = (const uint8_t *)m->w->data + r * n_cols * elem_bytes;
    v16 acc[2][2];
    for (int c = 0; c < n; c++)
        acc[c][0] = acc[c][1] = v16_zero();
    for (size_t i = 0; i < n_cols; i += 32, w += 32 * elem_bytes) {
        fetch(w + AHEAD, 32 * elem_bytes);
        uint8_t last[128] = {0};
        const uint8_t *p = n_cols - i < 32 ? memcpy(last, w, (n_cols - i) * elem_bytes) : w;
        const v16 w0 = load(p), w1 = load(p + 16 * elem_bytes);
        for (int c = 0; c < n; c++) {
            const float *x = m->x->f + (tok + (size_t)c) * m->x->n_pad + i;
            acc[c][0] = v16_fma(w0, v16_load(x), acc[c][0]);
            acc[c][1] = v16_fma(w1, v16_load(x + 16), acc[c][1]);
        }
    }
    for (int c = 0; c < n; c++)
        put(m, r, tok + (size_t)c, v16_sum(v16_add(acc[c][0], acc[c][1])));
}

// Several columns: FLOAT_TILE weights of FLOAT_ROWS rows, from the file (VF_CONVERTS) or made
// floats once, meet up to FLOAT_TOKENS columns. The lanes of a sum only meet at the end, so those
// of one register can go through all of the weights before the next: the sums of VF_ROWS rows and
// VF_COLUMNS columns stay in registers, and half of the weights with half of such columns in the
// first cache. With fewer columns than FLOAT_FEW that costs more than reading a row again.
enum {
    FLOAT_ROWS = 2 * VF_ROWS,
    FLOAT_TILE = 1024,
    FLOAT_TOKENS = 48,
    FLOAT_LANES = 32,
    FLOAT_FEW = 6
};

struct float_tile { // loads across lines of the cache take twice as long
    _Alignas(64) float w[FLOAT_ROWS][FLOAT_TILE + 16]; // rows begin in different sets of the cache
    float sum[FLOAT_TOKENS][FLOAT_ROWS][FLOAT_LANES];
    struct next next;
};

// Rows of weights as the file or a tile has them.
struct float_weights {
    const uint8_t *at;
    size_t row_bytes, elem_bytes;
    load_fn *load;
};

// One register of the sums of VF_ROWS rows from `first` on times n_cols columns x (row stride
// x_stride) from column c on: n elements, a multiple of FLOAT_LANES. begin: of a row, with sums of
// zero.
INLINE void float_sums(struct float_tile *t, struct float_weights w, size_t lane, size_t first,
                       size_t c, int n_cols, const float *x, size_t x_stride, size_t n, bool begin)
{
    vf sum[VF_ROWS][VF_COLUMNS];
    fetch_next(&t->next);
    for (size_t i = 0; i < VF_ROWS; i++)
        for (size_t k = 0; k < (size_t)n_cols; k++)
            sum[i][k] = begin ? vf_set1(0.0f) : vf_load(&t->sum[c + k][first + i][lane]);
    for (size_t at = lane; at < n; at += FLOAT_LANES) {
        vf column[VF_COLUMNS];
        for (size_t k = 0; k < (size_t)n_cols; k++)
            column[k] = vf_load(x + k * x_stride + at);
        for (size_t i = 0; i < VF_ROWS; i++) {
            const vf row = vf_load_by(w.load, w.at + (first + i) * w.row_bytes + at * w.elem_bytes);
            for (size_t k = 0; k < (size_t)n_cols; k++)
                sum[i][k] = vf_fma(row, column[k], sum[i][k]);
        }
    }
    for (size_t i = 0; i < VF_ROWS; i++)
        for (size_t k = 0; k < (size_t)n_cols; k++)
            vf_store(&t->sum[c + k][first + i][lane], sum[i][k]);
}

// The same for FLOAT_ROWS rows, both registers and n_tok columns.
INLINE void float_product(struct float_tile *t, struct float_weights w, const float *x,
                          size_t x_stride, size_t n, size_t n_tok, bool begin)
{
    for (size_t lane = 0; lane < FLOAT_LANES; lane += VF_LANES)
        for (size_t c = 0, together; c < n_tok; c += together) {
            const size_t left = n_tok - c;
            together = left >= VF_COLUMNS ? VF_COLUMNS : left >= 2 ? 2 : 1;
            for (size_t r = 0; r < FLOAT_ROWS; r += VF_ROWS)
                if (together == VF_COLUMNS)
                    float_sums(t, w, lane, r, c, VF_COLUMNS, x + c * x_stride, x_stride, n, begin);
                else if (together == 2)
                    float_sums(t, w, lane, r, c, 2, x + c * x_stride, x_stride, n, begin);
                else
                    float_sums(t, w, lane, r, c, 1, x + c * x_stride, x_stride, n, begin);
        }
}

// n weights at w to row r of the tile, zeros up to n_filled.
INLINE void float_fill(struct float_tile *t, size_t r, load_fn *load, size_t elem_bytes,
                       const uint8_t *w, size_t n, size_t n_filled)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(&t->w[r][i], load(w + i * elem_bytes));
    if (i < n_filled) {
        uint8_t last[2 * 64] = {0};
        memcpy(last, w + i * elem_bytes, (n - i) * elem_bytes);
        for (size_t k = 0; i + k < n_filled; k += 16)
            v16_store(&t->w[r][i + k], load(last + k * elem_bytes));
    }
}

// The lanes' sum, as v16_sum's, for as many rows and then columns from c on as a register has
// lanes.
INLINE vf float_totals(const struct float_tile *t, size_t c, size_t n)
{
    vf v[VF_LANES];
    for (size_t i = 0; i < VF_LANES; i++) {
        const size_t column = c + i / FLOAT_ROWS;
        const float *sum = t->sum[column < n ? column : c][i % FLOAT_ROWS];
        v[i] = vf_add(vf_load(sum), vf_load(sum + 16));
        for (size_t lane = VF_LANES; lane < 16; lane += VF_LANES)
            v[i] = vf_add(v[i], vf_add(vf_load(sum + lane), vf_load(sum + 16 + lane)));
    }
    vf_transpose(v);
    for (size_t half = VF_LANES / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++)
            v[i] = vf_add(v[i], v[i + half]);
    return v[0];
}

// n columns from tok on, at most FLOAT_TOKENS.
INLINE void float_columns(const struct cpu_matmul *m, load_fn *load, size_t elem_bytes,
                          uint32_t first, uint32_t n_rows, size_t tok, size_t n)
{
    struct float_tile t;
    const size_t n_cols = m->w->n_cols, row_bytes = n_cols * elem_bytes;
    if (n_rows < FLOAT_ROWS) // rows that are only computed
        memset(t.w[n_rows], 0, (FLOAT_ROWS - n_rows) * sizeof *t.w);
    const size_t n_tiles = (n_cols + FLOAT_TILE - 1) / FLOAT_TILE;
    t.next = next_of((const uint8_t *)m->w->data + (first + FLOAT_ROWS) * row_bytes,
                     FLOAT_ROWS * row_bytes,
                     n_tiles * FLOAT_LANES / VF_LANES * (FLOAT_ROWS / VF_ROWS) *
                         ((n + VF_COLUMNS - 1) / VF_COLUMNS));
    for (size_t begin = 0; begin < n_cols; begin += FLOAT_TILE) {
        const size_t left = n_cols - begin, n_tile = left < FLOAT_TILE ? left : FLOAT_TILE;
        const size_t n_filled = (n_tile + FLOAT_LANES - 1) / FLOAT_LANES * FLOAT_LANES;
        const uint8_t *w = (const uint8_t *)m->w->data + first * row_bytes + begin * elem_bytes;
        const float *x = m->x->f + tok * m->x->n_pad + begin;
        if (VF_CONVERTS && n_rows == FLOAT_ROWS && n_filled == n_tile) {
            const struct float_weights file = {w, row_bytes, elem_bytes, load};
            float_product(&t, file, x, m->x->n_pad, n_filled, n, begin == 0);
            continue;
        }
        const struct float_weights tile = {(const uint8_t *)t.w, sizeof *t.w, sizeof **t.w,
                                           v16_load};
        for (uint32_t r = 0; r < n_rows; r++)
            float_fill(&t, r, load, elem_bytes, w + r * row_bytes, n_tile, n_filled);
        float_product(&t, tile, x, m->x->n_pad, n_filled, n, begin == 0);
    }
    const size_t together = VF_LANES / FLOAT_ROWS;
    for (size_t c = 0; c < n; c += together) {
        float y[VF_LANES];
        vf_store(y, float_totals(&t, c, n));
        for (size_t k = 0; k < together && c + k < n; k++)
            put_rows(m, first, n_rows, FLOAT_ROWS, tok + c + k, y + k * FLOAT_ROWS);
    }
}

INLINE void float_rows(const struct cpu_matmul *m, load_fn *load, size_t elem_bytes, uint32_t row0,
                       uint32_t row1)
{
    if (m->n_tok < FLOAT_FEW) {
        for (uint32_t r = row0; r < row1; r++) {
            size_t tok = 0;
            for (; tok + 2 <= m->n_tok; tok += 2)
                float_few(m, load, elem_bytes, r, tok, 2);
            if (tok < m->n_tok)
                float_few(m, load, elem_bytes, r, tok, 1);
        }
        return;
    }
    for (size_t tok = 0; tok < m->n_tok; tok += FLOAT_TOKENS) {
        const size_t left = m->n_tok - tok, n = left < FLOAT_TOKENS ? left : FLOAT_TOKENS;
        for (uint32_t r = row0; r < row1; r += FLOAT_ROWS)
            float_columns(m, load, elem_bytes, r, row1 - r < FLOAT_ROWS ? row1 - r : FLOAT_ROWS,
                          tok, n);
    }
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

// Each type, and of its unpack_fn the name.
// clang-format off
#define QUANT_TYPES(X) \
    X(Q4_0, q4_0) X(Q4_1, q4_1) X(Q5_0, q5_0) X(Q5_1, q5_1) X(Q8_0, q8_0) \
    X(Q2_K, q2_k) X(Q3_K, q3_k) X(Q4_K, q4_k) X(Q5_K, q5_k) X(Q6_K, q6_k) \
    X(IQ4_NL, iq4_nl) X(IQ4_XS, iq4_xs) X(MXFP4, mxfp4) X(NVFP4, nvfp4) \
    X(IQ1_S, iq1_s) X(IQ1_M, iq1_m) \
    X(IQ2_XXS, iq2_xxs) X(IQ2_XS, iq2_xs) X(IQ2_S, iq2_s) \
    X(IQ3_XXS, iq3_xxs) X(IQ3_S, iq3_s) \
    X(Q1_0, q1_0) X(Q2_0, q2_0) X(TQ1_0, tq1_0) X(TQ2_0, tq2_0)
// clang-format on

#define QUANT_ROWS(name, function)                                                                 \
    static void rows_##function(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)          \
    {                                                                                              \
        quant_rows(m, unpack_##function, format_of(QUANT_##name), row0, row1);                     \
    }
QUANT_TYPES(QUANT_ROWS)
#undef QUANT_ROWS

typedef void rows_fn(const struct cpu_matmul *, uint32_t, uint32_t);

// clang-format off
static rows_fn *const rows_of_type[QUANT_TYPE_MAX] = {
    [QUANT_F32] = rows_f32, [QUANT_F16] = rows_f16, [QUANT_BF16] = rows_bf16,
#define QUANT_ENTRY(name, function) [QUANT_##name] = rows_##function,
    QUANT_TYPES(QUANT_ENTRY)
#undef QUANT_ENTRY
};
// clang-format on

void CPU_NAME(matmul)(const struct cpu_matmul *m, uint32_t row0, uint32_t row1)
{
#if defined(KERNELS_AVX2) || defined(KERNELS_AVX512)
    if (m->n_tok == 1 && CPU_NAME(decode_rows)(m, row0, row1))
        return;
#endif
    rows_of_type[m->w->type](m, row0, row1);
}
