// Sequences of the model that a test is about, on the engine that it is for: what the tests of
// states, windows and drafts share.
#ifndef HOKKU_TESTS_CONFORMANCE_SEQUENCES_H
#define HOKKU_TESTS_CONFORMANCE_SEQUENCES_H

#include "../unit/test.h"
#include "../unit/vectors.h"

#include <stdlib.h>

#include "engine/backend.h"

enum { N_PROBS = ENGINE_MAX_PROBS };

static struct model *model;
static bool on_cuda;
static uint32_t n_devices = 1;      // that a model is on
static bool exact;                  // see engine_params
static int n_threads;               // of the CPU engine; 0: all
static const struct engine *shares; // see engine_params

// "cpu", "cuda", or "cuda:2": one model on two devices.
static inline void use_device(const char *name)
{
    on_cuda = strncmp(name, "cuda", 4) == 0;
    if (strchr(name, ':'))
        n_devices = (uint32_t)atoi(strchr(name, ':') + 1);
}

// False where there is no device for the test, which has been said.
static inline bool find_device(void)
{
#ifdef HOKKU_CUDA
    char why[256] = "";
    if (on_cuda && cuda_device_count(why, sizeof why) < (int)n_devices) {
        printf("1..0 # SKIP %s\n", why);
        return false;
    }
#endif
    return true;
}

// The file of a family's model, or the one so named; false as find_device.
static inline bool find_family(const char *family, char path[static 1024])
{
    if (strchr(family, '/'))
        snprintf(path, 1024, "%s", family);
    else
        snprintf(path, 1024, "%s/families/%s-f16.gguf", vectors_dir(0), family);
    return find_device();
}

static uint32_t below(uint32_t n)
{
    static uint64_t counter;
    counter = counter * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(counter >> 33) % n;
}

static inline void random_ids(int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)below(model->hp.n_vocab);
}

static struct engine *open_with(const struct model *m, const struct engine_params *p,
                                struct error *err)
{
#ifdef HOKKU_CUDA
    struct engine_params q = *p;
    q.devices = n_devices > 1 ? (1u << n_devices) - 1 : 0;
    if (on_cuda)
        return cuda_engine_open(m, &q, err);
#endif
    return cpu_engine_open(m, p, err);
}

static inline struct engine_plan plan_with(const struct engine_params *p)
{
    struct engine_plan plan;
    struct error err = {0};
#ifdef HOKKU_CUDA
    const bool ok =
        on_cuda ? cuda_engine_plan(model, p, &plan, &err) : cpu_engine_plan(model, p, &plan, &err);
#else
    const bool ok = cpu_engine_plan(model, p, &plan, &err);
#endif
    if (!ok)
        fail_msg("%s", err.text);
    return plan;
}

static struct engine *open_for(uint32_t n_seqs, uint32_t n_ctx, uint32_t n_batch)
{
    const struct engine_params p = {.n_ctx = n_ctx,
                                    .n_batch = n_batch,
                                    .n_seqs = n_seqs,
                                    .exact = exact,
                                    .n_threads = n_threads,
                                    .shares = shares};
    struct error err = {0};
    struct engine *e = open_with(model, &p, &err);
    if (!e)
        fail_msg("%s", err.text);
    return e;
}

// So many slots for recurrent states are left of an engine that has been opened.
static inline void leave_slots(struct engine *e, uint32_t n)
{
    uint32_t slot;
    while (kv_pool_free(&e->core->states) > n)
        assert_true(kv_pool_take(&e->core->states, &slot));
}

static struct seq *open_seq(struct engine *e)
{
    const struct sampling how = {.sampler = &sampler_defaults, .n_probs = N_PROBS};
    struct error err = {0};
    struct seq *s = seq_open(e, 0, &err);
    if (!s || !seq_sampling(s, &how, &err))
        fail_msg("%s", err.text);
    return s;
}

// One work, of s, and its picks.
static void pick(struct seq *s, const struct work *w, struct decoded *d)
{
    struct error err = {0};
    uint64_t ticket;
    if (!engine_submit(seq_engine(s), w, 1, NULL, &ticket, &err) ||
        !engine_wait(seq_engine(s), ticket, NULL, d, &err))
        fail_msg("%s", err.text);
}

// Appends ids and evaluates all of s; what is likely after the last.
static inline void go_on(struct seq *s, const int32_t *ids, size_t n, struct decoded *d)
{
    const struct work w = {.seq = s, .ids = ids, .n = n, .n_pick = 1};
    pick(s, &w, d);
    seq_trim(s, seq_len(s) - 1);
    assert_int_equal(seq_n_past(s), seq_len(s));
    assert_int_equal(d->n_top, N_PROBS);
}

static void assert_alike(const struct decoded *a, const struct decoded *b)
{
    for (size_t i = 0; i < N_PROBS; i++) {
        assert_int_equal(a->top[i].id, b->top[i].id);
        assert_memory_equal(&a->top[i].logprob, &b->top[i].logprob, sizeof a->top[i].logprob);
    }
}

// d is what a fresh sequence on e, which this closes, has after the tokens of s.
static inline void check_on(struct engine *e, struct seq *s, const struct decoded *d)
{
    struct decoded want;
    struct seq *fresh = open_seq(e);
    go_on(fresh, seq_ids(s), seq_len(s), &want);
    assert_alike(d, &want);
    seq_free(fresh);
    engine_free(e);
}

#endif
