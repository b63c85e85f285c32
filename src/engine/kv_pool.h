// The blocks of an engine's memory for keys and values: who has which. A block holds as many
// positions as the engine says, of all layers; several sequences may share one.
#ifndef HOKKU_ENGINE_KV_POOL_H
#define HOKKU_ENGINE_KV_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct kv_pool {
    uint32_t *n_users; // owned (n_blocks)
    uint32_t n_blocks;
};

bool kv_pool_init(struct kv_pool *p, uint32_t n_blocks, struct error *err);
void kv_pool_release(struct kv_pool *p); // zeroed is fine

// Takes the first free block, so that what is taken in order lies in order. False: there is none.
bool kv_pool_take(struct kv_pool *p, uint32_t *block);
void kv_pool_share(struct kv_pool *p, uint32_t block); // one more user of a taken block
void kv_pool_give(struct kv_pool *p, uint32_t block);  // one user less
bool kv_pool_shared(const struct kv_pool *p, uint32_t block);
uint32_t kv_pool_free(const struct kv_pool *p); // blocks that nobody has

#endif
