// The KV cache in and out of the device. On the host, per layer (near ones, or the others) the
// keys, then the values; of each the pieces of [begin, end) that lie in one block, as they lie
// there: per head the rows, and after all pieces (Q8_0) the same of their scales.
#include <string.h>

#include "engine_impl.h"

static size_t position_bytes(const struct kv_plane *p)
{
    return p->n_head * (p->row_bytes + (p->scales ? p->n_group * sizeof(uint16_t) : 0));
}

size_t cuda_kv_bytes(const struct cuda_engine *e, bool near, size_t begin, size_t end)
{
    size_t n = 0;
    for (uint32_t i = 0; i < e->hp.n_layer; i++)
        if (e->layers[i].near == near)
            n += position_bytes(&e->layers[i].k_cache) + position_bytes(&e->layers[i].v_cache);
    return (end - begin) * n;
}

// Rows of `row` bytes. Whole blocks that follow each other in the pool, too, are one copy.
static bool copy_rows(struct cuda_engine *e, const uint32_t *table, uint8_t *plane,
                      uint32_t n_head_kv, size_t row, size_t begin, size_t end, uint8_t **host,
                      bool out, struct error *err)
{
    for (size_t at = begin; at < end;) {
        const size_t i = at / KV_BLOCK, n = lesser(KV_BLOCK - at % KV_BLOCK, end - at);
        size_t n_block = 1;
        while (n == KV_BLOCK && at + (n_block + 1) * KV_BLOCK <= end &&
               table[i + n_block] == table[i] + n_block)
            n_block++;
        uint8_t *device = plane + kv_row(table[i], n_head_kv, 0, (uint32_t)at) * row;
        const size_t stride = KV_BLOCK * row, width = n * row, n_head = n_head_kv * n_block;
        cudaError_t s = out ? cudaMemcpy2DAsync(*host, width, device, stride, width, n_head,
                                                cudaMemcpyDeviceToHost, e->q.stream)
                            : cudaMemcpy2DAsync(device, stride, *host, width, width, n_head,
                                                cudaMemcpyHostToDevice, e->q.stream);
        if (!cuda_check(s, "copying the KV cache", err))
            return false;
        *host += width * n_head;
        at += n * n_block;
    }
    return true;
}

bool cuda_kv_copy(struct cuda_engine *e, const uint32_t *table, bool near, size_t begin, size_t end,
                  uint8_t *host, bool out, struct error *err)
{
    for (uint32_t i = 0; i < e->hp.n_layer; i++) {
        const struct kv_plane *planes[] = {&e->layers[i].k_cache, &e->layers[i].v_cache};
        for (int j = 0; j < 2; j++) {
            const struct kv_plane *p = planes[j];
            // in another layer's, or the layer keeps a state instead
            if (p->n_head == 0 || e->layers[i].near != near)
                continue;
            if (!copy_rows(e, table, p->data, p->n_head, p->row_bytes, begin, end, &host, out, err))
                return false;
            if (p->scales && !copy_rows(e, table, (uint8_t *)p->scales, p->n_head,
                                        p->n_group * sizeof(uint16_t), begin, end, &host, out, err))
                return false;
        }
    }
    return cuda_wait(e, err);
}

// The first n rows of every head of a block.
static bool copy_block(struct cuda_engine *e, uint8_t *plane, uint32_t n_head, size_t row,
                       uint32_t from, uint32_t to, size_t n, struct error *err)
{
    const size_t stride = KV_BLOCK * row;
    return CHECK_CUDA(cudaMemcpy2DAsync(plane + kv_row(to, n_head, 0, 0) * row, stride,
                                        plane + kv_row(from, n_head, 0, 0) * row, stride, n * row,
                                        n_head, cudaMemcpyDeviceToDevice, e->q.stream),
                      err);
}

bool cuda_kv_copy_block(struct cuda_engine *e, bool near, uint32_t from, uint32_t to, size_t n,
                        struct error *err)
{
    const bool apart = e->s.near_tables != e->s.kv_tables;
    for (uint32_t i = 0; i < e->hp.n_layer; i++) {
        const struct kv_plane *planes[] = {&e->layers[i].k_cache, &e->layers[i].v_cache};
        for (int j = 0; j < 2; j++) {
            const struct kv_plane *p = planes[j];
            if (p->n_head == 0 || (apart && e->layers[i].near != near))
                continue;
            if (!copy_block(e, p->data, p->n_head, p->row_bytes, from, to, n, err) ||
                (p->scales && !copy_block(e, (uint8_t *)p->scales, p->n_head,
                                          p->n_group * sizeof(uint16_t), from, to, n, err)))
                return false;
        }
    }
    return true;
}

// The first n entries of a table of slot 0; there: what it holds.
static bool use_table(struct cuda_engine *e, uint32_t *table, uint32_t *there, const uint32_t *want,
                      size_t n, struct error *err)
{
    size_t i = 0;
    while (i < n && there[i] == want[i])
        i++;
    if (i == n)
        return true;
    memcpy(there + i, want + i, (n - i) * sizeof *there);
    return CHECK_CUDA(cudaMemcpyAsync(table + i, there + i, (n - i) * sizeof *there,
                                      cudaMemcpyHostToDevice, e->q.stream),
                      err);
}

bool cuda_kv_use(struct cuda_engine *e, const struct seq *s, struct error *err)
{
    uint32_t *near = e->kv_table + kv_blocks(e->base.n_ctx);
    if (e->kv_version == s->version)
        return true;
    if (!use_table(e, e->s.kv_tables, e->kv_table, s->blocks, s->n_blocks, err) ||
        (s->near != s->blocks && !use_table(e, e->s.near_tables, near, s->near, s->n_blocks, err)))
        return false;
    e->kv_version = s->version;
    return true;
}

const uint32_t *cuda_tables(const struct cuda_engine *e, const struct gpu_layer *l)
{
    return l->near ? e->s.near_tables : e->s.kv_tables;
}
