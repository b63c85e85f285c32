// What a device does for engine.c, and what both hold of an engine and a sequence. Nobody but
// engine/, cpu/ and cuda/ includes this. engine.c checks every call before it asks a backend.
#ifndef HOKKU_ENGINE_BACKEND_H
#define HOKKU_ENGINE_BACKEND_H

#include "base/buf.h"
#include "engine/engine.h"
#include "engine/kv_pool.h"
#include "engine/measure.h"

#ifdef __cplusplus
extern "C" {
#endif

struct seq {
    struct engine *engine;
    struct seq *next; // of the engine's, youngest first
    struct ids ids;   // with room for n_max + 1: nothing is allocated while it grows
    size_t n_past;    // evaluated
    uint32_t n_max;
    struct sampler_settings sampler;
    struct ids stop_ids;
    uint32_t n_probs;
    bool (*mask)(void *user, uint32_t *allow, struct error *err);
    void *mask_user;
    // Position p lies in block blocks[p / kv_block], at p % kv_block of it. (n_blocks), with room
    // for n_max positions.
    uint32_t *blocks;
    size_t n_blocks;
    uint64_t version; // of blocks: no two tables that differ have the same in one engine
    bool at_work;     // in the submit under way: not to be paused
};

// A sample that was asked for and not yet waited for.
struct ask {
    uint64_t ticket;
    struct seq *seq; // NULL: freed or trimmed
    bool evaluate;   // the token before it, first
    bool done;       // d or, with its code set, error says what came
    struct decoded d;
    struct error error;
};

enum { ENGINE_MAX_ASKS = 2 * ENGINE_MAX_PARTS };

// Rows of one sequence in a pass that has several sequences'.
struct engine_part {
    const struct seq *seq;
    const int32_t *ids; // (n) at seq->n_past, for which seq has blocks that are its own
    size_t n;
    bool pick; // sample after the last row: d or, with its code set, error says what came
    struct decoded d;
    struct error error;
};

struct engine_core {
    const struct backend *backend;
    struct kv_pool pool;
    struct seq *seqs;
    uint64_t versions;
    // The sequence and the number of rows of the last evaluation whose logits can be had.
    struct seq *logits_of;
    size_t n_logits;
    // The sequence that is being sampled, each pick after the one before; over: no more can follow.
    struct seq *run;
    bool over;
    struct ask asks[ENGINE_MAX_ASKS]; // in the order of asking; those not done are run's
    size_t n_asks;
    struct engine_part parts[ENGINE_MAX_PARTS]; // of the pass under way
    uint64_t tickets;                           // given so far
};

enum engine_logits {
    LOGITS_NONE, // only extend the KV cache
    LOGITS_LAST, // logits of the last row
    LOGITS_ALL,  // logits of every row
};

struct backend {
    uint32_t kv_block; // positions of a block; a power of two
    // Evaluates ids (n, 1 to n_batch) at s->n_past, for which s has blocks that are its own; ended
    // when it returns. Errors: ERR_INTERRUPTED, ERR_FAIL.
    bool (*eval)(struct engine *e, const struct seq *s, const int32_t *ids, size_t n,
                 enum engine_logits want, const struct cancel *cancel, struct error *err);
    // Evaluates the parts (2 to ENGINE_MAX_PARTS; n_batch rows together) in one pass and makes
    // their picks; each has the bits that it has alone. Ended when it returns; leaves no logits.
    // Errors: ERR_INTERRUPTED, ERR_FAIL. NULL: a pass has one sequence.
    bool (*eval_parts)(struct engine *e, struct engine_part *parts, size_t n_parts,
                       const struct cancel *cancel, struct error *err);
    // Row i of the last eval's, s's, to out (n_vocab).
    bool (*logits)(struct engine *e, const struct seq *s, size_t i, const struct cancel *cancel,
                   float *out, struct error *err);
    // Where s->mask is not NULL, take asks it (engine_mask) once the device is at work, and only
    // then is the token sampled. A run of picks: start makes the first from the last eval's logits,
    // with s's settings; each next one evaluates what the one before has sampled. Both only ask.
    // take waits for the oldest asked for, and may do then what was asked: evaluate says whether it
    // was by next, and s->ids ends with the sample before it. stop: nothing is under way any more.
    bool (*pick_start)(struct engine *e, const struct seq *s, struct error *err);
    bool (*pick_next)(struct engine *e, const struct seq *s, struct error *err);
    bool (*pick_take)(struct engine *e, const struct seq *s, bool evaluate,
                      const struct cancel *cancel, struct decoded *out, struct error *err);
    void (*pick_stop)(struct engine *e);
    size_t (*kv_bytes)(const struct engine *e, size_t begin, size_t end);
    bool (*kv_export)(struct engine *e, const struct seq *s, size_t begin, size_t end, void *dst,
                      struct error *err);
    bool (*kv_import)(struct engine *e, const struct seq *s, size_t begin, size_t end,
                      const void *src, struct error *err);
    // The first n positions of block `from` to block `to`.
    bool (*kv_copy)(struct engine *e, uint32_t from, uint32_t to, size_t n, struct error *err);
    // As engine/measure.h has them; may be NULL. profile: s has blocks for the tokens.
    bool (*measure)(struct engine *e, struct engine_peaks *out, struct error *err);
    bool (*profile)(struct engine *e, const struct seq *s, const int32_t *tokens, size_t n,
                    uint32_t n_run, const struct cancel *cancel, struct engine_profile *out,
                    struct error *err);
    void (*free)(struct engine *e); // and engine_release
};

// For a backend that opens and frees an engine: core is the backend's, n_ctx and n_batch are set.
// Errors: ERR_MEMORY.
bool engine_init(struct engine *e, struct engine_core *core, const struct backend *b,
                 struct error *err);
void engine_release(struct engine *e); // zeroed is fine
// What s->mask allows, and how many tokens that is. Errors: its own; ERR_FAIL: none.
bool engine_mask(const struct seq *s, uint32_t *allow, uint32_t *n_allowed, struct error *err);

#ifdef __cplusplus
}
#endif
#endif
