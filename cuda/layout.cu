// Sizes and addresses of the planes of layout.h. Host code only.
#include "layout.h"

static const struct {
    uint32_t type;
    struct quant_planes planes;
} table[] = {
    // type: weights per chunk, bytes in Q, H, S, D, chunks per D
    {QUANT_F32, {4, 16, 0, 0, 0, 0}},     {QUANT_F16, {8, 16, 0, 0, 0, 0}},
    {QUANT_BF16, {8, 16, 0, 0, 0, 0}},    {QUANT_Q4_0, {32, 16, 0, 0, 2, 1}},
    {QUANT_Q4_1, {32, 16, 0, 0, 4, 1}},   {QUANT_Q5_0, {32, 16, 4, 0, 2, 1}},
    {QUANT_Q5_1, {32, 16, 4, 0, 4, 1}},   {QUANT_Q8_0, {32, 32, 0, 0, 2, 1}},
    {QUANT_Q2_K, {32, 8, 0, 2, 4, 8}},    {QUANT_Q3_K, {32, 8, 4, 2, 2, 8}},
    {QUANT_Q4_K, {32, 16, 0, 2, 4, 8}},   {QUANT_Q5_K, {32, 16, 4, 2, 4, 8}},
    {QUANT_Q6_K, {32, 16, 8, 2, 2, 8}},   {QUANT_IQ4_NL, {32, 16, 0, 0, 2, 1}},
    {QUANT_IQ4_XS, {32, 16, 0, 1, 2, 8}},
};

extern "C" const struct quant_planes *cuda_quant_planes(uint32_t type)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].type == type)
            return &table[i].planes;
    return NULL;
}

static uint64_t align_up(uint64_t n)
{
    return (n + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN;
}

extern "C" uint64_t cuda_layout(uint32_t type, uint64_t rows, uint64_t n_cols, uint8_t *base,
                                struct wmat *w)
{
    const struct quant_planes *p = cuda_quant_planes(type);
    // 2^31 in either direction keeps every product below 2^64
    if (!p || rows == 0 || n_cols == 0 || rows >= 1u << 31 || n_cols >= 1u << 31)
        return 0;
    if (p->chunk_elems == 32 && n_cols % (p->d_chunks * 32) != 0)
        return 0;
    uint64_t n_chunk = (n_cols + p->chunk_elems - 1) / p->chunk_elems;
    uint64_t n_tile = (rows + TILE_ROWS - 1) / TILE_ROWS;
    uint64_t units = n_tile * TILE_ROWS * n_chunk;
    uint64_t q = align_up(units * p->q), h = align_up(units * p->h), s = align_up(units * p->s);
    uint64_t d = p->d_chunks ? align_up(units / p->d_chunks * p->d) : 0;
    if (w) {
        w->type = type;
        w->rows = (uint32_t)rows;
        w->n_cols = (uint32_t)n_cols;
        w->n_chunk = (uint32_t)n_chunk;
        w->n_tile = (uint32_t)n_tile;
        w->half_scale = 1.0f;
        w->q = base;
        w->h = base && h ? base + q : NULL;
        w->s = base && s ? base + q + h : NULL;
        w->d = base && d ? base + q + h + s : NULL;
    }
    return q + h + s + d;
}

extern "C" uint64_t cuda_layout_bytes(uint32_t type, uint64_t rows, uint64_t n_cols)
{
    const struct quant_planes *p = cuda_quant_planes(type);
    struct wmat w;
    if (!p || !cuda_layout(type, rows, n_cols, NULL, &w))
        return 0;
    uint64_t units = (uint64_t)w.n_tile * TILE_ROWS * w.n_chunk;
    return units * (p->q + p->h + p->s) + (p->d_chunks ? units / p->d_chunks * p->d : 0);
}
