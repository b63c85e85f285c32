// A model on several devices from the inside: what its files share.
#ifndef HOKKU_CUDA_RANKS_IMPL_H
#define HOKKU_CUDA_RANKS_IMPL_H

#include <pthread.h>

#include "engine_impl.h"

struct call; // ranks.cu

struct rank {
    struct ranks *all;
    uint32_t index;
    int device_index;
    struct device device;
    struct engine_params params;
    struct model *slice;        // of a model that predicts: beside that of the other,
    struct model *predicts_for; // which its engine is another rank's of; NULL: of no such model
    struct cuda_engine *engine; // NULL: not open
    uint64_t *inbox;
    pthread_t thread; // not of rank 0
    bool has_thread;
    struct engine_part *parts; // (ENGINE_MAX_PARTS) not of rank 0: what it makes of them
    float *logits;             // (n_vocab) the same
    struct decoded *more;      // (ENGINE_MAX_PASS_DRAFTS) the same, where there are drafts
    uint64_t n_looks;          // cuda_rank_interrupted
    bool ok;                   // of the call, else
    struct error err;
};

struct ranks {
    struct engine base; // must be first
    struct engine_core core;
    uint32_t n;
    struct rank rank[MODEL_MAX_RANKS];
    struct model_split split;
    struct engine_params params;
    struct exchange_words *words; // pinned, seen by all devices
    bool through_host;            // some do not reach the memory of others: then, pinned,
    uint64_t *inboxes;            // (n, exchange_inbox)
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const struct call *call; // under way
    uint64_t n_calls;
    uint32_t n_busy;
    bool end, opening;
    uint32_t n_met;                   // in cuda_rank_join
    const struct rank *failed;        // the first one that has
    struct error failure;             // what every call ends with from then on
    uint64_t n_looks, interrupted_at; // of rank 0: atomic
    struct masked *masked;            // (ENGINE_MAX_PARTS) see ranks.cu
};

// ---- rank.cu

// Nobody waits for this rank any more, whose err says why.
void rank_give_up(struct rank *r);
bool ranks_have_failed(struct ranks *a);
// Waits for what the rank still does, for a while: false if it goes on. Nobody wants it.
bool rank_ends(struct rank *r);

// ---- ranks.cu

extern const struct backend ranks_backend;
// A rank's thread, until a->end.
void *rank_work(void *rank);
// Opens the engines of all ranks, whose slices and threads there are.
bool ranks_open_all(struct ranks *a, struct error *err);
void ranks_free(struct engine *a); // partly opened is fine

#endif
