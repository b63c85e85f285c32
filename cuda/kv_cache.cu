// The KV cache in and out of the device. On the host, per layer the keys, then the values; of each
// the pieces of [begin, end) that lie in one block, as they lie there: per head the rows, and after
// all pieces (Q8_0) the same of their scales.
#include <stdlib.h>

#include "engine_impl.h"

static size_t position_bytes(const struct kv_plane *p)
{
    return p->n_head * (p->row_bytes + (p->scales ? p->n_group * sizeof(uint16_t) : 0));
}

size_t cuda_kv_bytes(const struct cuda_engine *e, size_t begin, size_t end)
{
    size_t n = 0;
    for (uint32_t i = 0; i < e->hp.n_layer; i++)
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

bool cuda_kv_copy(struct cuda_engine *e, const uint32_t *table, size_t begin, size_t end,
                  uint8_t *host, bool out, struct error *err)
{
    for (uint32_t i = 0; i < e->hp.n_layer; i++) {
        const struct kv_plane *planes[] = {&e->layers[i].k_cache, &e->layers[i].v_cache};
        for (int j = 0; j < 2; j++) {
            const struct kv_plane *p = planes[j];
            if (!copy_rows(e, table, p->data, p->n_head, p->row_bytes, begin, end, &host, out, err))
                return false;
            if (p->scales && !copy_rows(e, table, (uint8_t *)p->scales, p->n_head,
                                        p->n_group * sizeof(uint16_t), begin, end, &host, out, err))
                return false;
        }
    }
    return CHECK_CUDA(cudaStreamSynchronize(e->q.stream), err);
}

bool cuda_kv_open(struct cuda_engine *e, struct error *err)
{
    const uint32_t n = kv_blocks(e->base.n_ctx);
    const size_t n_bytes = n * sizeof *e->kv_table;
    e->kv_table = (uint32_t *)malloc(n_bytes);
    if (!e->kv_table)
        return error_oom(err, "the table of the KV cache", n_bytes);
    for (uint32_t i = 0; i < n; i++)
        e->kv_table[i] = i;
    return CHECK_CUDA(
        cudaMemcpyAsync(e->s.kv_tables, e->kv_table, n_bytes, cudaMemcpyHostToDevice, e->q.stream),
        err);
}
