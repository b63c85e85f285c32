// Sampling on the device: the filters, their order, the random numbers and the choice of
// engine/sampler.h, made by one kernel per token. Settings lie in device memory, so one CUDA graph
// serves all of them; only the chosen id (and the alternatives, when asked for) leaves the device.
#ifndef HOKKU_CUDA_SAMPLER_CUH
#define HOKKU_CUDA_SAMPLER_CUH

#include "engine/engine.h"
#include "kernels.h"

enum { RING = 8 };

// What ring_slot.failed says.
enum sampler_failure {
    SAMPLER_OK,
    SAMPLER_NOT_FINITE, // d.id is the first token with such a logit, d.logprob that logit
    SAMPLER_NONE_LEFT,  // --logit-bias forbids every token that there is to choose from
    SAMPLER_OVERFLOW,   // the largest logit that is left is infinite, by no bias alone
};

// One sampled token, in pinned memory. seq is written last: the number of the sample, from 1.
struct ring_slot {
    struct decoded d;
    uint32_t failed; // enum sampler_failure; step->done is set then
    uint32_t seq;
};

struct sampler_config;
struct sampler_scratch;

struct gpu_sampler {
    struct ring_slot *ring; // (RING), pinned; the caller's
    // (1 + (n_vocab + 31) / 32) how many tokens may be picked, a bit for each; the caller's, for
    // masked picks: pinned, or device memory, NULL for others. It stays as it is until the
    // pick is read.
    const uint32_t *mask;
    // device memory, placed
    struct sampler_config *config;
    struct sampler_scratch *scratch;
    int32_t *history; // (n_ctx + 1) every token of the timeline; each pick appends
    uint32_t *count;  // (n_vocab) all zero between picks
    uint8_t *flags;   // (n_vocab) TOKEN_BREAKER | TOKEN_STOP
    float *values;    // (n_vocab, rounded up to groups) logits after the edits
    // The largest logit of each group: after the edits; as they came.
    float *maxima, *raw_maxima;
    uint32_t n_vocab, n_ctx;
    bool waits; // with these settings blocks wait for each other: the launch is cooperative
};

// Bytes of device memory; place carves them at base (256-byte aligned; NULL: only counts).
size_t gpu_sampler_bytes(uint32_t n_vocab, uint32_t n_ctx);
void gpu_sampler_place(struct gpu_sampler *s, uint32_t n_vocab, uint32_t n_ctx, void *base);

// What a run of picks begins with; all borrowed for the call.
struct decode_params {
    const struct sampler_settings *sampler;
    const int32_t *history; // (n_history) every token before the first pick
    size_t n_history;
    uint32_t n_probs;
    const int32_t *stop_ids; // (n_stop_ids)
    size_t n_stop_ids;
    bool masked; // gpu_sampler.mask is set before each launch
};

// Takes over settings, history and stop ids for the picks that follow; sets s->waits. Enqueued on
// the stream.
bool gpu_sampler_begin(const struct queue *q, struct gpu_sampler *s, const struct decode_params *p,
                       struct error *err);

// Enqueues one pick: from logits (n_vocab) the token for position step->at.pos + 1, whose history
// is the timeline up to and with step->at.pos. Sets step->token, adds 1 to step->at.pos and
// step->n_sampled, sets step->done after a stop id or a failure, fills ring[n_sampled % RING]. Does
// nothing when step->done.
bool gpu_sampler_launch(const struct queue *q, struct gpu_sampler *s, const float *logits,
                        uint32_t n_vocab, struct step_state *step, struct error *err);

// ---- picks of several sequences in one launch: without DRY, with penalties over up to
// ROWS_HISTORY tokens, and only where no blocks wait for each other; each is what
// gpu_sampler_launch picks

enum { ROWS_HISTORY = 256 };

struct sampler_args;

struct sampler_rows {
    uint32_t n, n_vocab; // picks at a time
    // device memory, placed: (n) of each
    struct sampler_config *config;
    struct sampler_args *args;
    struct step_state *steps;
    struct sampler_scratch *scratch;
    uint32_t *mask;         // as gpu_sampler.mask
    float *values, *maxima; // as in gpu_sampler; two maxima after each other
    uint32_t *count;        // as gpu_sampler.count
    int32_t *history;       // (ROWS_HISTORY + 1): the end of it, and what is picked
    // pinned
    struct sampler_config *host_config;
    struct sampler_args *host_args;
    struct step_state *host_steps;
    struct ring_slot *ring;
    uint32_t *host_mask;
    int32_t *host_history;
    bool masked, penalties; // one of those set
};

size_t sampler_rows_bytes(uint32_t n, uint32_t n_vocab);
void sampler_rows_place(struct sampler_rows *r, uint32_t n, uint32_t n_vocab, void *base);
bool sampler_rows_open(const struct queue *q, struct sampler_rows *r, struct error *err);
void sampler_rows_close(struct sampler_rows *r); // zeroed is fine
bool sampler_rows_can(const struct decode_params *p, uint32_t n_vocab);
// Pick number i (0 first, without gaps) of the next launch, from logits (n_vocab) aligned to 16
// bytes, for position p->n_history. With p->masked sampler_rows_mask is filled before.
void sampler_rows_set(struct sampler_rows *r, uint32_t i, const struct decode_params *p,
                      const float *logits);
uint32_t *sampler_rows_mask(struct sampler_rows *r, uint32_t i);
// What the device is to know of the n picks that are set, before the launch.
void sampler_rows_upload(const struct sampler_rows *r, uint32_t n, struct upload *u);
bool sampler_rows_launch(const struct queue *q, const struct sampler_rows *r, uint32_t n,
                         struct error *err);
// After the stream has ended. False without an error: out->id is the first token whose logit,
// out->logprob, is not finite.
bool sampler_rows_result(const struct queue *q, struct sampler_rows *r, uint32_t i,
                         struct decoded *out, struct error *err);

// Whether the slot holds a token; otherwise *err says why not.
bool gpu_sampler_result(const struct ring_slot *slot, struct error *err);

// For tests: as gpu_sampler_launch with a given number of blocks (0: chosen).
bool gpu_sampler_launch_blocks(const struct queue *q, struct gpu_sampler *s, const float *logits,
                               uint32_t n_vocab, struct step_state *step, uint32_t n_blocks,
                               struct error *err);

#endif
