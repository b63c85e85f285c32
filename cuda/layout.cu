// Sizes and addresses of the planes of layout.h. Host code only.
#include "layout.h"

#include "quant.cuh"

template <uint32_t TYPE> static constexpr struct quant_planes planes_of()
{
    if constexpr (is_plain(TYPE)) {
        return {chunk_elems(TYPE), 16, 0, 0, 0, 0};
    } else {
        using T = quant_traits<TYPE>;
        return {32, T::QW * 4, T::H, T::S, T::D, T::D_CHUNKS};
    }
}

extern "C" const struct quant_planes *cuda_quant_planes(uint32_t type)
{
    const struct quant_planes *found = NULL;
    if (!block_facts(type).bytes)
        return NULL;
    with_type(block_facts(type).planes, [&](auto tag) {
        static constexpr struct quant_planes planes = planes_of<decltype(tag)::value>();
        found = &planes;
        return true;
    });
    return found;
}

static uint64_t align_up(uint64_t n)
{
    return (n + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN;
}

extern "C" uint64_t cuda_layout(uint32_t type, uint64_t rows, uint64_t n_cols, uint8_t *base,
                                struct wmat *w)
{
    return cuda_layout_stack(type, 0, rows, n_cols, base, w);
}

extern "C" uint64_t cuda_layout_stack(uint32_t type, uint64_t n_stacked, uint64_t rows,
                                      uint64_t n_cols, uint8_t *base, struct wmat *w)
{
    const struct quant_planes *p = cuda_quant_planes(type);
    // 2^31 in either direction keeps every product below 2^64; what is stacked lies in a file
    if (!p || rows == 0 || n_cols == 0 || rows >= 1u << 31 || n_cols >= 1u << 31)
        return 0;
    if (p->chunk_elems == 32 && n_cols % (p->d_chunks * 32) != 0)
        return 0;
    uint64_t n_chunk = (n_cols + p->chunk_elems - 1) / p->chunk_elems;
    uint64_t n_tile = (rows + TILE_ROWS - 1) / TILE_ROWS;
    uint64_t units = (n_stacked ? n_stacked : 1) * n_tile * TILE_ROWS * n_chunk;
    uint64_t q = align_up(units * p->q), h = align_up(units * p->h), s = align_up(units * p->s);
    uint64_t d = p->d_chunks ? align_up(units / p->d_chunks * p->d) : 0;
    if (w) {
        w->type = block_facts(type).planes;
        w->rows = (uint32_t)rows;
        w->n_cols = (uint32_t)n_cols;
        w->n_chunk = (uint32_t)n_chunk;
        w->n_tile = (uint32_t)n_tile;
        w->half_scale = w->scale = 1.0f;
        w->scales = NULL;
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
