// The KV cache: layout (see struct cpu_kv_layer), memory, and its exchange format.
#include "cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "engine/windows.h"
#include "gguf/quant.h"

enum cpu_kv cpu_kv_key_type(const struct model *m, enum kv_type type)
{
    if (type == KV_Q8_0)
        return CPU_KV_I8;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        for (enum layer_weight w = ATTN_K; w <= ATTN_KV_A; w += ATTN_KV_A - ATTN_K)
            if (m->layers[i].w[w].data)
                return quant_info(m->layers[i].w[w].type)->block_elems > 1 ? CPU_KV_I16
                                                                           : CPU_KV_F32;
    return CPU_KV_F32;
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

static struct cpu_kv_layer layer_layout(const struct model *m, uint32_t il, enum cpu_kv k,
                                        enum cpu_kv v, uint32_t n_far, uint32_t n_near)
{
    const struct layer *layer = &m->layers[il];
    const bool near = windows_layer(m, il);
    const size_t d = layer->head_dim, value_dim = layer_value_dim(layer);
    const size_t per_block = CPU_ATTN_SPLIT / CPU_KV_BLOCK;
    const size_t n_blocks = (near ? n_near : n_far) * per_block;
    struct cpu_kv_layer l = {.type_k = k,
                             .type_v = v,
                             .n_head = layer->n_head_kv,
                             .head_dim = layer->head_dim,
                             .value_dim = (uint32_t)value_dim,
                             .one = layer->latent.n_kv > 0,
                             .near = near};
    if (layer->kv_back > 0)
        l.n_head = 0; // they are in another layer's
    l.k_block_bytes = row_bytes(d, d, k) * CPU_KV_BLOCK;
    l.v_row_bytes = l.one ? 0 : row_bytes(value_dim, (value_dim + 15) / 16 * 16, v);
    l.k_head_bytes = (l.k_block_bytes * n_blocks + 63) / 64 * 64;
    l.v_head_bytes = (l.v_row_bytes * n_blocks * CPU_KV_BLOCK + 63) / 64 * 64;
    return l;
}

// Heads are at most 4096 wide and contexts below 2^32, so one head cannot overflow.
static size_t layer_bytes(const struct cpu_kv_layer *l)
{
    size_t n;
    return __builtin_mul_overflow(l->k_head_bytes + l->v_head_bytes, l->n_head, &n) ? SIZE_MAX : n;
}

size_t kv_cache_bytes(const struct model *m, enum kv_type k, enum kv_type v, uint32_t n_blocks,
                      uint32_t n_near)
{
    const enum cpu_kv type_k = cpu_kv_key_type(m, k), type_v = cpu_kv_value_type(v);
    size_t n = 0;
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct cpu_kv_layer l = layer_layout(m, i, type_k, type_v, n_blocks, n_near);
        if (__builtin_add_overflow(n, layer_bytes(&l), &n))
            return SIZE_MAX;
    }
    return n;
}

size_t kv_position_bytes(const struct cpu_kv_layer *l)
{
    const size_t d = l->head_dim, v = l->value_dim;
    return l->n_head * (row_bytes(d, d, l->type_k) + (l->one ? 0 : row_bytes(v, v, l->type_v)));
}

bool kv_cache_init(struct kv_cache *kv, const struct model *m, enum kv_type k, enum kv_type v,
                   uint32_t n_blocks, uint32_t n_near, struct error *err)
{
    const enum cpu_kv type_k = cpu_kv_key_type(m, k), type_v = cpu_kv_value_type(v);
    *kv = (struct kv_cache){.n_layer = m->hp.n_layer, .apart = n_near < n_blocks};
    kv->n_bytes = kv_cache_bytes(m, k, v, n_blocks, n_near);
    kv->layers = calloc(kv->n_layer, sizeof *kv->layers);
    kv->memory = kv->n_bytes == SIZE_MAX ? NULL : memory_map(kv->n_bytes);
    if (!kv->layers || !kv->memory)
        return error_oom(err, "the KV cache", kv->n_bytes);
    uint8_t *p = kv->memory;
    for (uint32_t i = 0; i < kv->n_layer; i++) {
        struct cpu_kv_layer *l = &kv->layers[i];
        *l = layer_layout(m, i, type_k, type_v, n_blocks, n_near);
        l->k = p;
        l->v = p + l->k_head_bytes * l->n_head;
        p += layer_bytes(l);
        kv->position_bytes[l->near] += kv_position_bytes(l);
    }
    return true;
}

void kv_cache_release(struct kv_cache *kv)
{
    memory_unmap(kv->memory, kv->n_bytes);
    free(kv->layers);
    *kv = (struct kv_cache){0};
}

size_t kv_cache_export_bytes(const struct kv_cache *kv, bool near, size_t begin, size_t end)
{
    return (end - begin) * kv->position_bytes[near];
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
static uint8_t *move_key(const struct cpu_kv_layer *l, size_t head, size_t at, uint8_t *row,
                         bool out)
{
    const size_t lane = at % CPU_KV_BLOCK, elem = elem_bytes(l->type_k);
    uint8_t *p = l->k + head * l->k_head_bytes + at / CPU_KV_BLOCK * l->k_block_bytes;
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

static uint8_t *move_value(const struct cpu_kv_layer *l, size_t head, size_t at, uint8_t *row,
                           bool out)
{
    uint8_t *p = l->v + head * l->v_head_bytes + at * l->v_row_bytes;
    const size_t n = l->one ? 0 : row_bytes(l->value_dim, l->value_dim, l->type_v);
    move(p, row, n, out);
    return row + n;
}

static void move_all(const struct kv_cache *kv, const uint32_t *blocks, bool near, size_t begin,
                     size_t end, uint8_t *row, bool out)
{
    for (size_t pos = begin; pos < end; pos++) {
        const size_t at = kv_cache_at(blocks, pos);
        for (size_t i = 0; i < kv->n_layer; i++) {
            const struct cpu_kv_layer *l = &kv->layers[i];
            for (size_t h = 0; l->near == near && h < l->n_head; h++)
                row = move_key(l, h, at, row, out);
            for (size_t h = 0; l->near == near && h < l->n_head; h++)
                row = move_value(l, h, at, row, out);
        }
    }
}

void kv_cache_export(const struct kv_cache *kv, const uint32_t *blocks, bool near, size_t begin,
                     size_t end, void *dst)
{
    move_all(kv, blocks, near, begin, end, dst, true);
}

void kv_cache_import(const struct kv_cache *kv, const uint32_t *blocks, bool near, size_t begin,
                     size_t end, const void *src)
{
    move_all(kv, blocks, near, begin, end, (uint8_t *)(uintptr_t)src, false); // only read from
}

// Keys of positions that lie side by side are copied as a whole: what is behind the n is not read.
void kv_cache_copy(const struct kv_cache *kv, bool near, uint32_t from, uint32_t to, size_t n)
{
    const size_t n_lanes = (n + CPU_KV_BLOCK - 1) / CPU_KV_BLOCK;
    for (size_t i = 0; i < kv->n_layer; i++) {
        const struct cpu_kv_layer *l = &kv->layers[i];
        const size_t k_bytes = l->k_block_bytes * (CPU_ATTN_SPLIT / CPU_KV_BLOCK);
        const size_t v_bytes = l->v_row_bytes * CPU_ATTN_SPLIT;
        if (kv->apart && l->near != near)
            continue;
        for (size_t h = 0; h < l->n_head; h++) {
            uint8_t *k = l->k + h * l->k_head_bytes, *v = l->v + h * l->v_head_bytes;
            memcpy(k + to * k_bytes, k + from * k_bytes, n_lanes * l->k_block_bytes);
            memcpy(v + to * v_bytes, v + from * v_bytes, n * l->v_row_bytes);
        }
    }
}
