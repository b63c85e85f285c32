#include "engine/kv_pool.h"

#include <assert.h>
#include <stdlib.h>

bool kv_pool_init(struct kv_pool *p, uint32_t n_blocks, struct error *err)
{
    *p = (struct kv_pool){.n_users = calloc(n_blocks, sizeof *p->n_users), .n_blocks = n_blocks};
    return p->n_users || error_oom(err, "the table of KV blocks", n_blocks * sizeof *p->n_users);
}

void kv_pool_release(struct kv_pool *p)
{
    free(p->n_users);
    *p = (struct kv_pool){0};
}

// A walk over some thousand counters, once in as many tokens as a block holds.
bool kv_pool_take(struct kv_pool *p, uint32_t *block)
{
    for (uint32_t i = 0; i < p->n_blocks; i++)
        if (p->n_users[i] == 0) {
            p->n_users[i] = 1;
            *block = i;
            return true;
        }
    return false;
}

void kv_pool_share(struct kv_pool *p, uint32_t block)
{
    assert(p->n_users[block] > 0);
    p->n_users[block]++;
}

void kv_pool_give(struct kv_pool *p, uint32_t block)
{
    assert(p->n_users[block] > 0);
    p->n_users[block]--;
}

bool kv_pool_shared(const struct kv_pool *p, uint32_t block)
{
    return p->n_users[block] > 1;
}

uint32_t kv_pool_free(const struct kv_pool *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_blocks; i++)
        n += p->n_users[i] == 0;
    return n;
}
