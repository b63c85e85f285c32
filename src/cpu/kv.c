// The KV cache: layout (see struct cpu_kv_layer), memory, and its exchange format.
#include "cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/memory.h"
#include "gguf/quant.h"

enum cpu_kv cpu_kv_key_type(const struct model *m, enum kv_type type)
{
    const uint32_t w = m->hp.n_layer > 0 ? m->layers[0].w[ATTN_K].type : QUANT_F32;
    if (type == KV_Q8_0)
        return CPU_KV_I8;
    return quant_info(w)->block_elems > 1 ? CPU_KV_I16 : CPU_KV_F32;
}

enum cpu_kv cpu_kv_value_type(enum kv_type type)
{
    return type == KV_Q8_0 ? CPU_KV_I8 : CPU_KV_I16;
}

static size_t elem_bytes(enum cpu_kv type)
{
    return type == CPU_KV_F32 ? 4 : type == CPU_KV_I16 ? 2 : 1;
}

// Bytes of n values with the scales of their groups.
static size_t row_bytes(size_t head_dim, size_t n, enum cpu_kv type)
{
    return (head_dim + 31) / 32 * sizeof(float) + n * elem_bytes(type);
}

static struct cpu_kv_layer layer_layout(const struct model *m, enum kv_type type_k,
                                        enum kv_type type_v, uint32_t n_ctx)
{
    const struct hparams *hp = &m->hp;
    const enum cpu_kv k = cpu_kv_key_type(m, type_k), v = cpu_kv_value_type(type_v);
    const size_t d = hp->head_dim, pad = (d + 15) / 16 * 16;
    const size_t n_blocks = ((size_t)n_ctx + CPU_KV_BLOCK - 1) / CPU_KV_BLOCK;
    struct cpu_kv_layer l = {.type_k = k, .type_v = v, .head_dim = hp->head_dim};
    l.k_block_bytes = row_bytes(d, d, k) * CPU_KV_BLOCK;
    l.v_row_bytes = row_bytes(d, pad, v);
    l.k_head_bytes = (l.k_block_bytes * n_blocks + 63) / 64 * 64;
    l.v_head_bytes = (l.v_row_bytes * n_blocks * CPU_KV_BLOCK + 63) / 64 * 64;
    return l;
}

size_t kv_cache_bytes(const struct model *m, enum kv_type k, enum kv_type v, uint32_t n_ctx)
{
    const struct hparams *hp = &m->hp;
    // head_dim is below 2^32 and n_ctx too: one head cannot overflow with 64-bit sizes unless both
    // are absurd, which the product check below also meets.
    const struct cpu_kv_layer l = layer_layout(m, k, v, n_ctx);
    size_t n, heads;
    if (hp->head_dim > 1 << 20 || __builtin_mul_overflow(hp->n_layer, hp->n_head_kv, &heads) ||
        __builtin_mul_overflow(l.k_head_bytes + l.v_head_bytes, heads, &n))
        return SIZE_MAX;
    return n;
}

bool kv_cache_init(struct kv_cache *kv, const struct model *m, enum kv_type k, enum kv_type v,
                   uint32_t n_ctx, struct error *err)
{
    const struct hparams *hp = &m->hp;
    *kv = (struct kv_cache){.n_layer = hp->n_layer, .n_head_kv = hp->n_head_kv};
    kv->n_bytes = kv_cache_bytes(m, k, v, n_ctx);
    kv->row_bytes_k = row_bytes(hp->head_dim, hp->head_dim, cpu_kv_key_type(m, k));
    kv->row_bytes_v = row_bytes(hp->head_dim, hp->head_dim, cpu_kv_value_type(v));
    kv->layers = calloc(kv->n_layer, sizeof *kv->layers);
    kv->memory = kv->n_bytes == SIZE_MAX ? NULL : memory_map(kv->n_bytes);
    if (!kv->layers || !kv->memory)
        return error_oom(err, "the KV cache", kv->n_bytes);
    uint8_t *p = kv->memory;
    for (size_t i = 0; i < kv->n_layer; i++) {
        struct cpu_kv_layer *l = &kv->layers[i];
        *l = layer_layout(m, k, v, n_ctx);
        l->k = p;
        l->v = p + l->k_head_bytes * kv->n_head_kv;
        p += (l->k_head_bytes + l->v_head_bytes) * kv->n_head_kv;
    }
    return true;
}

void kv_cache_release(struct kv_cache *kv)
{
    memory_unmap(kv->memory, kv->n_bytes);
    free(kv->layers);
    *kv = (struct kv_cache){0};
}

size_t kv_cache_export_bytes(const struct kv_cache *kv, size_t begin, size_t end)
{
    return (end - begin) * kv->n_layer * kv->n_head_kv * (kv->row_bytes_k + kv->row_bytes_v);
}

// Copies between the cache and an exported row: out of the cache when out, else into it.
static void move(void *cached, uint8_t *row, size_t n, bool out)
{
    if (out)
        memcpy(row, cached, n);
    else
        memcpy(cached, row, n);
}

// One head's key: per group of 32 dimensions its scale, then the dimensions.
static uint8_t *move_key(const struct cpu_kv_layer *l, size_t head, size_t pos, uint8_t *row,
                         bool out)
{
    const size_t lane = pos % CPU_KV_BLOCK, elem = elem_bytes(l->type_k);
    uint8_t *p = l->k + head * l->k_head_bytes + pos / CPU_KV_BLOCK * l->k_block_bytes;
    for (size_t d = 0; d < l->head_dim; d++) {
        if (d % 32 == 0) {
            move(p + sizeof(float) * lane, row, sizeof(float), out);
            p += sizeof(float) * CPU_KV_BLOCK;
            row += sizeof(float);
        }
        move(p + elem * lane, row, elem, out);
        p += elem * CPU_KV_BLOCK;
        row += elem;
    }
    return row;
}

static uint8_t *move_value(const struct cpu_kv_layer *l, size_t head, size_t pos, uint8_t *row,
                           bool out)
{
    uint8_t *p = l->v + head * l->v_head_bytes + pos * l->v_row_bytes;
    const size_t n = row_bytes(l->head_dim, l->head_dim, l->type_v);
    move(p, row, n, out);
    return row + n;
}

static void move_all(const struct kv_cache *kv, size_t begin, size_t end, uint8_t *row, bool out)
{
    for (size_t pos = begin; pos < end; pos++)
        for (size_t i = 0; i < kv->n_layer; i++) {
            for (size_t h = 0; h < kv->n_head_kv; h++)
                row = move_key(&kv->layers[i], h, pos, row, out);
            for (size_t h = 0; h < kv->n_head_kv; h++)
                row = move_value(&kv->layers[i], h, pos, row, out);
        }
}

void kv_cache_export(const struct kv_cache *kv, size_t begin, size_t end, void *dst)
{
    move_all(kv, begin, end, dst, true);
}

void kv_cache_import(const struct kv_cache *kv, size_t begin, size_t end, const void *src)
{
    move_all(kv, begin, end, (uint8_t *)(uintptr_t)src, false); // only read from
}
