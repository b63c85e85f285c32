// engine_profile: the times of one evaluation's kernels, measured by events around each launch.
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/profile.h"
#include "engine_impl.h"

// Keeps the device waiting, so that the launches behind it are queued before the first of them
// runs: else the time of a short kernel would be that of its launch.
static __global__ void hold_kernel(long long cycles)
{
    long long begin = clock64();
    while (clock64() - begin < cycles)
        ;
}

static bool hold(struct cuda_engine *e, double seconds, struct error *err)
{
    int khz = 0;
    if (!CHECK_CUDA(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, e->params.device_index),
                    err))
        return false;
    struct launch l = {.name = "hold", .grid = dim3(1), .block = dim3(1), .stream = e->q.stream};
    return launch_kernel(err, l, hold_kernel, (long long)(seconds * khz * 1e3));
}

// What is timed: a decoded token (n = 1, the one whose logits are at hand), a chunk, or a pass of
// parts.
struct timed {
    const int32_t *tokens;
    size_t n;
    struct engine_part *parts; // (n_parts) NULL: none
    size_t n_parts;
    const struct cancel *cancel;
};

static bool enqueue(struct cuda_engine *e, const struct timed *t, struct error *err)
{
    if (t->parts)
        return cuda_eval_parts(&e->base, t->parts, t->n_parts, t->cancel, err) &&
               profile_parts_ended(t->parts, t->n_parts, err);
    if (t->n > 1)
        return cuda_enqueue_chunk(e, t->tokens, t->n, true, err);
    return cuda_state_use(e, e->seq->state, e->seq->next_states[0], 1, err) &&
           cuda_set_step(e, t->tokens[0], e->n_past, err) && cuda_enqueue_step(e, err);
}

static bool is_token(const struct timed *t)
{
    return !t->parts && t->n == 1;
}

static bool elapsed(const struct recorded *m, double *seconds, struct error *err)
{
    float ms = 0;
    if (!CHECK_CUDA(cudaEventElapsedTime(&ms, m->begin, m->end), err))
        return false;
    *seconds = (double)ms * 1e-3;
    return true;
}

// One evaluation with events, behind a hold of that length: seconds (n).
static bool time_launches(struct cuda_engine *e, const struct timed *t, double hold_s,
                          double *seconds, struct error *err)
{
    struct recorder *r = e->q.recorder;
    r->n = 0;
    if (!hold(e, hold_s, err) || !enqueue(e, t, err) || !cuda_wait(e, err))
        return false;
    if (r->n != r->max)
        return error_set(err, ERR_FAIL, "%zu launches, and %zu the time before", r->n, r->max);
    for (size_t i = 0; i < r->n; i++)
        if (!elapsed(&r->marks[i], &seconds[i], err))
            return false;
    return !is_token(t) || gpu_sampler_result(&e->sampler.ring[0], err);
}

// The same events in the same order with nothing between them; their median.
static bool time_nothing(struct cuda_engine *e, double hold_s, double *seconds, struct error *err)
{
    struct recorder *r = e->q.recorder;
    struct engine_profile p;
    struct profile_launch *all = (struct profile_launch *)malloc(r->max * sizeof *all);
    bool ok = all || error_oom(err, "the times", r->max * sizeof *all);
    ok = ok && hold(e, hold_s, err);
    for (size_t i = 0; ok && i < r->max; i++) {
        all[i] = {"nothing", ""};
        ok = CHECK_CUDA(cudaEventRecord(r->marks[i].begin, e->q.stream), err) &&
             CHECK_CUDA(cudaEventRecord(r->marks[i].end, e->q.stream), err);
    }
    struct error mine = {};
    ok = cuda_wait(e, ok ? err : &mine) && ok;
    for (size_t i = 0; ok && i < r->max; i++)
        ok = elapsed(&r->marks[i], &seconds[i], err);
    ok = ok && profile_rows(all, r->max, 1, seconds, &p, err);
    free(all);
    return ok ? (*seconds = p.rows[0].each, true) : false;
}

static bool create_events(struct recorder *r, struct error *err)
{
    r->max = r->n;
    r->marks = (struct recorded *)calloc(r->max, sizeof *r->marks);
    if (!r->marks)
        return error_oom(err, "the events", r->max * sizeof *r->marks);
    for (size_t i = 0; i < r->max; i++)
        if (!CHECK_CUDA(cudaEventCreate(&r->marks[i].begin), err) ||
            !CHECK_CUDA(cudaEventCreate(&r->marks[i].end), err))
            return false;
    return true;
}

static void destroy_events(struct recorder *r)
{
    for (size_t i = 0; r->marks && i < r->max; i++) {
        if (r->marks[i].begin)
            cudaEventDestroy(r->marks[i].begin);
        if (r->marks[i].end)
            cudaEventDestroy(r->marks[i].end);
    }
    free(r->marks);
}

// Kernels that prepare or finish what another one reads the weights for.
static const char *const beside[] = {"act",
                                     "add_normed",
                                     "altup_add",
                                     "altup_correct",
                                     "altup_mean",
                                     "altup_predict",
                                     "altup_set",
                                     "choose",
                                     "choose_group",
                                     "clamp",
                                     "delta_conv",
                                     "delta_gate",
                                     "delta_mix",
                                     "delta_prepare",
                                     "dequant",
                                     "expert_pack",
                                     "expert_sum",
                                     "finish_logits",
                                     "finish_product",
                                     "gate",
                                     "gate_cut",
                                     "gate_told",
                                     "gather_ranks",
                                     "gather_rows",
                                     "group",
                                     "heads_query",
                                     "heads_to_rows",
                                     "join_normed",
                                     "latent_part",
                                     "latent_query",
                                     "laurel_add",
                                     "norm",
                                     "norm_ranks",
                                     "norm_whole",
                                     "rotate_store",
                                     "ssm_prepare",
                                     "sum_ranks",
                                     "sum_spans",
                                     "tell",
                                     "wide_merge",
                                     "wide_store",
                                     NULL};

// A token and a pass are bound by bytes, a chunk by operations: each is filled in where it is
// known.
static bool add_work(const struct cuda_engine *e, const struct timed *t,
                     const struct profile_launch *launches, size_t n_launch,
                     struct engine_profile *out, struct error *err)
{
    const struct model *m = e->base.model;
    const enum kv_type tk = e->params.type_k, tv = e->params.type_v;
    const uint32_t n_past = (uint32_t)(t->parts ? t->parts[0].seq->n_past : e->n_past);
    if (t->n > 1) {
        profile_operations(out, m, n_past, t->n, beside);
        return true;
    }
    size_t n_row = cuda_plan_traffic(m, tk, tv, n_past, NULL, 0);
    struct engine_traffic *rows = (struct engine_traffic *)malloc(n_row * sizeof *rows);
    if (!rows)
        return error_oom(err, "the plan of a token's bytes", n_row * sizeof *rows);
    cuda_plan_traffic(m, tk, tv, n_past, rows, n_row);
    if (t->parts)
        profile_pass_traffic(rows, n_row, m, t->n_parts);
    bool ok = profile_bytes(out, launches, n_launch, beside, rows, n_row, err);
    free(rows);
    return ok;
}

// Runs with r as the queue's recorder, events not created yet.
static bool profile(struct cuda_engine *e, struct recorder *r, const struct timed *t,
                    uint32_t n_run, struct engine_profile *out, struct error *err)
{
    const struct decode_params d = {.sampler = &sampler_defaults};
    double *seconds = NULL, begin = 0, hold_s = 0;
    struct profile_launch *launches = NULL;
    bool ok = !is_token(t) || gpu_sampler_begin(&e->q, &e->sampler, &d, err);
    for (int i = 0; ok && i < 2; i++) { // warms up, counts, and measures how long queueing takes
        begin = clock_now();
        r->n = 0;
        ok = enqueue(e, t, err);
        hold_s = 3 * (clock_now() - begin) + 1e-3; // with its events thrice as many calls
        ok = ok && cuda_wait(e, err);
    }
    if (!ok || !create_events(r, err))
        return false;
    hold_s = hold_s < 0.2 ? hold_s : 0.2;
    seconds = (double *)malloc((n_run + 1) * r->max * sizeof *seconds);
    launches = (struct profile_launch *)malloc(r->max * sizeof *launches);
    ok = (seconds && launches) ||
         error_oom(err, "the times", (n_run + 1) * r->max * sizeof *seconds);
    for (uint32_t i = 0; ok && i <= n_run; i++) // run 0 meets new events: the next overwrites it
        ok = !interrupted_alike(e, err) &&
             time_launches(e, t, hold_s, seconds + (i ? i - 1 : 0) * r->max, err);
    for (size_t i = 0; ok && i < r->max; i++)
        launches[i] = {r->marks[i].kernel, r->marks[i].what};
    ok = ok && profile_rows(launches, r->max, n_run, seconds, out, err) &&
         add_work(e, t, launches, r->max, out, err) && time_nothing(e, hold_s, seconds, err);
    if (ok)
        out->nothing = seconds[0];
    free(seconds);
    free(launches);
    return ok;
}

static bool profile_with_recorder(struct cuda_engine *e, const struct timed *t, uint32_t n_run,
                                  struct engine_profile *out, struct error *err)
{
    struct recorder r = {.what = ""};
    e->q.recorder = &r;
    bool ok = profile(e, &r, t, n_run, out, err);
    e->q.recorder = NULL;
    struct error mine = {};
    ok = cuda_wait(e, ok ? err : &mine) && ok; // also after a failure: nothing may still be running
    destroy_events(&r);
    snprintf(out->how, sizeof out->how,
             "CUDA events around every launch, outside the graph, so that no kernel begins before "
             "the one before it has ended");
    return ok;
}

bool cuda_profile(struct engine *base, const struct seq *seq, const int32_t *tokens, size_t n,
                  uint32_t n_run, const struct cancel *cancel, struct engine_profile *out,
                  struct error *err)
{
    struct cuda_engine *e = (struct cuda_engine *)base;
    const struct timed t = {tokens, n, NULL, 0, cancel};
    if (!cuda_work_on(e, seq, cancel, err))
        return false;
    e->logits_want = LOGITS_NONE;
    return profile_with_recorder(e, &t, n_run, out, err);
}

bool cuda_profile_parts(struct engine *base, struct engine_part *parts, size_t n_parts,
                        uint32_t n_run, const struct cancel *cancel, struct engine_profile *out,
                        struct error *err)
{
    struct cuda_engine *e = (struct cuda_engine *)base;
    const struct timed t = {NULL, n_parts > 1 ? 1 : parts[0].n, parts, n_parts, cancel};
    if (!cuda_begin(e, err))
        return false;
    e->cancel = cancel;
    e->logits_want = LOGITS_NONE;
    return profile_with_recorder(e, &t, n_run, out, err);
}
