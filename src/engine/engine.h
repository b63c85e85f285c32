// What both devices do: an engine holds one model's weights on a device, scratch, and a pool of
// memory for keys and values; it has no timeline. A sequence (struct seq) is one timeline: the only
// copy of its ids, its share of the pool, its sampling settings. Work says which rows of which
// sequences a forward pass has, and what is sampled after them.
//
// All device memory is taken at open; nothing allocates while tokens are decoded. Calls on one
// engine and its sequences come from one thread at a time. What an evaluated token leaves does not
// depend on how the tokens were chunked beyond float rounding (engine.any_pieces, and
// engine_params.exact: not at all, bit for bit), nor on what other sequences do.
#ifndef HOKKU_ENGINE_ENGINE_H
#define HOKKU_ENGINE_ENGINE_H

#include "base/cancel.h"
#include "base/error.h"
#include "engine/sampler.h"
#include "model/slice.h"

#ifdef __cplusplus
extern "C" {
#endif

enum kv_type { KV_F16, KV_Q8_0 };

struct engine_params {
    uint32_t n_ctx;   // positions to hold; 0 = the model's own, reduced to what fits
    uint32_t n_batch; // tokens per prefill chunk; 0 = 512, on a GPU up to 2048
    uint32_t n_seqs;  // sequences beside each other: of layers with a window so many are kept;
                      // CUDA engine: that one pass takes, for which it holds scratch;
                      // 0 = 1, at most ENGINE_MAX_PARTS
    // A token leaves the same bits wherever it is evaluated: as what was sampled, in a prompt,
    // however that is cut, with drafts or without, beside whatever else is in its pass. CPU engine:
    // always. CUDA engine: slower.
    bool exact;
    enum kv_type type_k, type_v;
    int n_threads;      // CPU engine; 0 = all available
    int device_index;   // CUDA engine
    uint32_t devices;   // CUDA engine: bit i stands for device i. With two or more the model is
                        // split among them (model/slice.h), instead of on device_index
    uint64_t set_aside; // bytes of free memory that are somebody else's,
    uint32_t n_aside;   // so many engines', which have as many threads
    // Of a model that predicts: the engine of the model that it predicts for, on the same device,
    // which must be freed later. CUDA engine: embedding and head that both have are there once, and
    // a plan counts them there. CPU engine: not asked for, weights stay where the file is mapped.
    const struct engine *shares;
    // Called during open while weights are loaded (bytes); may be NULL.
    void (*progress)(void *user, uint64_t done, uint64_t total);
    void *progress_user;
    // Polled at open; ERR_INTERRUPTED once asked. May be NULL.
    const struct cancel *cancel;
};

// What an engine with these parameters takes, before anything is allocated. Bytes.
struct engine_plan {
    uint64_t weights, kv, scratch, other;
    uint64_t available;    // free device (or host) memory
    uint64_t host_states;  // of host memory: what recurrent states may take besides, as needed
    uint32_t n_near;       // layers with a window that keep ...
    uint32_t near_ctx;     // ... so many positions, fewer than n_ctx; n_near 0: all keep all
    uint32_t n_ctx;        // as it would be opened
    uint32_t n_ctx_max;    // the largest that fits with these KV types, capped at the model's own
                           // or, of a larger one that is asked for and does not fit, at that
    uint32_t n_ctx_max_q8; // the same with q8_0 for both
    bool fits_by_less;     // ... n_ctx, too, where fewer tokens are evaluated together (n_batch)
    bool fits;
    // Of each device, where the model is split among several; the numbers above are sums then, and
    // the smallest contexts.
    uint32_t n_ranks; // 0: one device
    struct rank_plan {
        int device;
        uint64_t weights, kv, scratch, other, available;
    } ranks[MODEL_MAX_RANKS];
};

enum { ENGINE_MAX_PROBS = 64 };

struct decoded {
    int32_t id;
    float logprob;                           // only when n_probs > 0
    uint32_t n_top;                          // = n_probs asked for
    struct token_prob top[ENGINE_MAX_PROBS]; // most likely first, ties by lower id
};

struct engine_core; // engine/backend.h

struct engine { // read-only for callers
    struct engine_core *core;
    const struct model *model; // borrowed
    char device[128];          // "NVIDIA H200" or "CPU (AVX-512 VNNI, 8 threads)"
    char kv_format[64];        // names device family, layout and types
    enum kv_type type_k, type_v;
    bool exact; // as it was opened
    // A prompt leaves the same bits whatever pieces it comes in. CPU engine: always. CUDA engine:
    // where it is exact or for several sequences; of compute capability 9.0 but for models with
    // recurrent layers or float32 matrices.
    bool any_pieces;
    uint32_t n_ctx; // positions that the pool holds; one sequence may have them all
    uint32_t n_batch;
    uint32_t n_states;            // recurrent states that sequences can have; 0: the model has none
    uint64_t mem_used, mem_total; // bytes on the device
    char note[200]; // a line for who opens it: what is slower than it might be; "": nothing
    bool failed;    // work has, for other reasons than an interrupt or no room: open another one
    // Of one sequence, in a pass: set by who opens it and wants fewer than are possible; 0: nobody.
    size_t most_drafts;
};

void engine_free(struct engine *e); // its sequences are freed before; NULL is fine

// ---- sequences

// Whether its context is all positions of a model that learned a row for each: there is no larger.
bool engine_is_longest(const struct engine *e);

// An empty sequence of at most n_ctx_max tokens (0: the engine's n_ctx). It takes blocks of the
// pool as it grows. When the pool has none left, the youngest other sequence is paused: its blocks
// are given back, and its tokens are evaluated again with its next work. Errors: ERR_MEMORY;
// ERR_CONTEXT: n_ctx_max is more than the pool holds.
struct seq *seq_open(struct engine *e, uint32_t n_ctx_max, struct error *err);
// Nobody goes back to what comes behind what s is given, so a recurrent model keeps no states
// there.
void seq_answers_once(struct seq *s);
// Another sequence that begins with the first n tokens of s (n <= seq_len), settings included. What
// is evaluated of them is shared; each copies a block that both have before it writes to it.
// Errors: ERR_MEMORY; ERR_FAIL: n.
struct seq *seq_fork(struct seq *s, size_t n, struct error *err);
void seq_free(struct seq *s); // NULL is fine; tickets for its work are void

struct engine *seq_engine(const struct seq *s);
const int32_t *seq_ids(const struct seq *s); // (seq_len) borrowed until s changes
size_t seq_len(const struct seq *s);         // tokens: those given, those sampled and waited for
size_t seq_n_past(const struct seq *s);      // the first so many of them are evaluated

// The pool is given out in blocks: how many nobody has, how many hold n positions, and how many s
// takes from it to have its first n tokens evaluated.
size_t engine_free_blocks(const struct engine *e);
size_t engine_blocks(const struct engine *e, size_t n);
size_t seq_needs_blocks(const struct seq *s, size_t n);

// Cuts s to its first n tokens (n >= seq_len: to what it is). What was submitted for s and not
// waited for is dropped, the logits at hand are stale. With a recurrent state, or layers with a
// window, some of those tokens may have to be evaluated again: n_past goes back to where a state,
// or a whole window, was kept.
void seq_trim(struct seq *s, size_t n);
// Appends tokens that s's next work evaluates before its own. Errors: ERR_CONTEXT, ERR_FAIL: as
// engine_submit.
bool seq_append(struct seq *s, const int32_t *ids, size_t n, struct error *err);

// ---- hidden states, for a prediction layer (model_predictor): what the model's last layer, or its
// norm, has left of each token

// Whether sequences can keep them.
bool engine_gives_hidden(const struct engine *e);
// From now on s keeps those of the last n positions that are evaluated (not of imported ones), on
// the host; 0: none. What it had is gone. Errors: ERR_MEMORY; ERR_FAIL: engine_gives_hidden.
bool seq_keep_hidden(struct seq *s, size_t n, struct error *err);
// That of position pos, and of *n positions in all, (*n, n_embd); borrowed until s changes. NULL:
// it is not kept.
const float *seq_hidden(const struct seq *s, size_t pos, size_t *n);
// From which position on up to the last evaluated one they are kept; that behind it: none is.
size_t seq_hidden_begin(const struct seq *s);

// How tokens are sampled for s, from the next pick on. All is copied, but sampler->dry_breakers,
// which must stay.
struct sampling {
    const struct sampler_settings *sampler;
    uint32_t n_probs; // alternatives to report per token, 0: none, <= ENGINE_MAX_PROBS
    // Returned like any other; nothing is sampled after one by work that was submitted before it
    // was waited for.
    const int32_t *stop_ids;
    size_t n_stop_ids;
    // Which tokens may be sampled, before every filter; NULL: all. Called once for each pick, while
    // the device evaluates what comes before: allow has a bit for each token, (n_vocab + 31) / 32
    // words. It depends on the token before. So a pick that was submitted ahead (seq_run_ahead) is
    // made when it is waited for, behind that one; it is void where it is waited for earlier, or
    // the engine has other work before.
    // A pick behind drafts has the first n of them before it, behind what was waited for; whether
    // they stay is not known yet. For one work n only grows. An error of it ends the pick as one of
    // the device does.
    bool (*mask)(void *user, const int32_t *drafts, size_t n, uint32_t *allow, struct error *err);
    void *mask_user;
};
// Errors: those of sampler_check, ERR_MEMORY, ERR_FAIL: picks are not waited for.
bool seq_sampling(struct seq *s, const struct sampling *p, struct error *err);

// ---- work

// The rows that one sequence has in a forward pass: n tokens at its end.
struct work {
    struct seq *seq;
    // (n) appended. NULL and n = 1: what this sequence sampled last, waited for or not. NULL and n
    // = 0: none, the pick is made from the logits at hand.
    const int32_t *ids;
    size_t n;
    bool goes_on;      // more of the same text comes with the next: nobody goes back to between
    uint32_t n_pick;   // 1: sample after the last row; 0: only extend
    uint32_t n_logits; // of the last so many rows (<= n, <= n_batch) seq_logits can be asked
    // (n_drafts <= ENGINE_MAX_DRAFTS) guesses of what will be sampled, for work without ids that
    // picks. Each is a row more, and what is sampled before it decides whether it stays: picks go
    // on as long as each is the guess, so all of them are what would be sampled without guesses.
    // Such work ends before the call does. The engine may look at fewer (engine_fit_drafts).
    const int32_t *drafts;
    size_t n_drafts;
    // (n, n_embd) of a model that predicts, for each of the n tokens: the hidden state that the one
    // before it has in the model that is predicted for, or where that has not evaluated it, in this
    // one. Borrowed until the work has ended. All tokens before are evaluated. NULL for others.
    const float *hidden;
};

// Tokens that the device may be ahead of the host: picks of one sequence that are submitted before
// the one waited for. More would win nothing, and are refused.
enum { ENGINE_RUN_AHEAD = 2 };

// Guesses that work may bring, and that are looked at in one pass.
enum { ENGINE_MAX_DRAFTS = 7, ENGINE_MAX_PASS_DRAFTS = 64 };
// Whether any ever are: not on every device. (Recurrent states cannot go back by some tokens:
// behind drafts that do not stay, the state before goes on again through those that do, which the
// CPU engine evaluates again for that.)
bool engine_takes_drafts(const struct engine *e);
// How many of them are looked at in s's next work: 0 while picks are not waited for, fewer where
// room ends.
size_t seq_max_drafts(const struct seq *s);
// Cuts the n_drafts of n works (<= ENGINE_MAX_PARTS) that are about to be one pass to those that
// are looked at, the first ones first: as rows, and blocks of the pool, are left by all works.
void engine_fit_drafts(const struct engine *e, struct work *w, size_t n);

// Sequences whose rows one pass takes.
enum { ENGINE_MAX_PARTS = 256 };
// How many of them this engine takes in one pass: ENGINE_MAX_PARTS on the CPU, else what it was
// opened for; fewer where memory for states, or for windows, is for fewer.
size_t engine_max_parts(const struct engine *e);
// Rows that a sequence has in one pass, at most: a batch's; with recurrent states as many of those
// as end where one is kept, and no more than have slots (but for rows of which logits are asked).
size_t engine_max_rows(const struct engine *e);
// Sequences that can go on side by side before one loses what layers with a window keep of it.
size_t engine_windows(const struct engine *e);
// How many picks of s let the device work ahead when they are submitted before the one that is
// waited for: 0, 1 under a mask, which takes no more, or ENGINE_RUN_AHEAD. With more nothing is
// won, and what follows a stop id may be evaluated in vain.
size_t seq_run_ahead(const struct seq *s);

// Does, or begins, n works, one after the other; *ticket (may be NULL when nothing is picked)
// stands for their picks. Works of different sequences that together fit a batch are one pass where
// the device takes several: each has the bits that it has alone, and weights are read once. Work
// with ids ends before the call does; work without may go on after it, or wait until it is waited
// for. cancel (NULL: never): polled between chunks and layers.
// Errors: ERR_CONTEXT: a sequence would be longer than it may; ERR_FAIL: a token id, too many
// picks not waited for, ids for a sequence with such picks, no logits to pick from;
// ERR_INTERRUPTED. What was appended by the failing work and not evaluated is taken away again; the
// works before it are done.
bool engine_submit(struct engine *e, const struct work *w, size_t n, const struct cancel *cancel,
                   uint64_t *ticket, struct error *err);
// The picks of a ticket, once, in the order of its works: picks (as many as were asked for, and one
// more for each draft). Each is then a token of its sequence. Those behind a pick that was none of
// the drafts, or a stop id, were not made: their id is -1. Errors: ERR_INTERRUPTED: it may be
// waited for again; ERR_FAIL: nothing was sampled after a stop id, the ticket is void, the device
// failed; finite_error's for a logit that is NaN or infinite (engine/finite.h). When picks of
// several works fail, the first of their errors; the id of each that failed is -1, the others are
// as they should be.
bool engine_wait(struct engine *e, uint64_t ticket, const struct cancel *cancel,
                 struct decoded *picks, struct error *err);

// Logits (n_vocab) of row i of the n_logits of the engine's last work, which was s's. Errors:
// ERR_FAIL: there are none; ERR_INTERRUPTED; finite_error's.
bool seq_logits(struct seq *s, size_t i, const struct cancel *cancel, float *out,
                struct error *err);

// ---- keys, values and recurrent states as bytes, for saved sessions

// Positions that layers with a window can take over at a time, at least.
enum { ENGINE_KV_PIECE = 512 };
// Bytes of positions [begin, end), of all layers, in an order that kv_format names: another engine
// refuses it.
size_t engine_kv_bytes(const struct engine *e, size_t begin, size_t end);
// Whether positions [begin, end) of some sequence may be so many bytes: all, or, where layers with
// a window keep fewer positions than others, without what is theirs.
bool engine_kv_fits(const struct engine *e, size_t begin, size_t end, size_t n_bytes);
// Layers with a window may not have what is behind it any more: then there are fewer bytes. To
// where positions from begin on are alike in that, end at most; *n_bytes: what they are then.
size_t seq_exports(const struct seq *s, size_t begin, size_t end, size_t *n_bytes);
// Of evaluated positions (end <= seq_n_past) that are alike. Errors: ERR_FAIL.
bool seq_export(struct seq *s, size_t begin, size_t end, void *dst, struct error *err);
// Appends n tokens that are evaluated by taking over their n_bytes bytes, which were exported from
// positions seq_len .. seq_len + n; all before them are evaluated, or imported. They count as
// evaluated, before other work, up to the last state that is imported, of a model with recurrent
// states, and up to where the windows before are whole. Errors: as engine_submit; ERR_FAIL:
// n_bytes.
bool seq_import(struct seq *s, const int32_t *ids, size_t n, const void *src, size_t n_bytes,
                struct error *err);

// Bytes of a recurrent state; 0: the model has none.
size_t engine_state_bytes(const struct engine *e);
// After how many tokens s has states: the last `most` of them, ascending. Returns how many.
size_t seq_states(const struct seq *s, size_t *pos, size_t most);
// That after pos tokens. Errors: ERR_FAIL: there is none.
bool seq_export_state(struct seq *s, size_t pos, void *dst, struct error *err);
// The same for tokens that seq_import has appended and that are not evaluated: the first pos are
// then. Errors: ERR_FAIL: pos; ERR_CONTEXT: no room.
bool seq_import_state(struct seq *s, size_t pos, const void *src, struct error *err);

// ---- devices

// The CPU engine (src/cpu). Errors: ERR_MEMORY with the sizes and what would fit, ERR_MODEL.
bool cpu_engine_plan(const struct model *m, const struct engine_params *p, struct engine_plan *plan,
                     struct error *err);
struct engine *cpu_engine_open(const struct model *m, const struct engine_params *p,
                               struct error *err);

// The CUDA engine (cuda/), only where HOKKU_CUDA is built in.
// For struct engine_backend: see engine/device.h. The first starts the driver only; the second also
// the device, as opening an engine on it would.
int cuda_device_count(char *why, size_t n);
bool cuda_device_usable(int index, char *why, size_t n);
void cuda_device_begin(int index);
void cuda_device_end(void);
bool cuda_engine_plan(const struct model *m, const struct engine_params *p,
                      struct engine_plan *plan, struct error *err);
struct engine *cuda_engine_open(const struct model *m, const struct engine_params *p,
                                struct error *err);

#ifdef __cplusplus
}
#endif
#endif
