// What a device does for engine.c and work.c, and what all hold of an engine and a sequence. Nobody
// but engine/, cpu/ and cuda/ includes this. engine.c checks every call before it asks a backend.
#ifndef HOKKU_ENGINE_BACKEND_H
#define HOKKU_ENGINE_BACKEND_H

#include "base/buf.h"
#include "engine/engine.h"
#include "engine/hidden.h"
#include "engine/kv_pool.h"
#include "engine/measure.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { NO_STATE = UINT32_MAX };
enum { NO_BLOCK = UINT32_MAX };

// A recurrent state is kept for each STATES_EVERY tokens of a long text: more need not be evaluated
// again. So tokens that are evaluated at once lead to several, STATES_AT_ONCE at most.
enum { STATES_EVERY = 512, STATES_AT_ONCE = 8 };

// A state in host memory, behind the slots (engine/states.h).
struct state_copy {
    size_t n_users; // marks
    void *bytes;    // as backend.state_export gives them; behind this
};

struct seq {
    struct engine *engine;
    struct seq *next; // of the engine's, youngest first
    struct ids ids;   // with room for n_max + 1: nothing is allocated while it grows
    size_t n_past;    // evaluated
    uint32_t n_max;
    struct sampler_settings sampler;
    struct ids stop_ids;
    uint32_t n_probs;
    bool (*mask)(void *user, const int32_t *drafts, size_t n, uint32_t *allow, struct error *err);
    void *mask_user;
    // Position p lies in block blocks[p / kv_block], at p % kv_block of it. (n_blocks), with room
    // for n_max positions.
    uint32_t *blocks;
    size_t n_blocks;
    // The same of near layers (engine/windows.h), as long: NO_BLOCK where they have none. It is
    // blocks itself where they keep all positions.
    uint32_t *near;
    size_t turn, given; // where the last turn begins, and ends what was given in it
    bool goes_on;       // of which there is more to come
    bool once;          // see seq_answers_once
    uint64_t version;   // of both: no two tables that differ have the same in one engine
    // Slots of recurrent states (engine/states.h). NO_STATE: that of no tokens, zeros; while there
    // is no work for the sequence, also one that lies in host memory.
    uint32_t state;
    uint32_t next_states[STATES_AT_ONCE]; // (n_next) of evaluations under way and the next
    size_t n_next;
    struct state_mark {
        size_t pos;
        uint32_t slot; // NO_STATE: it is in host memory
        struct state_copy *copy;
    } * marks; // owned (n_marks) ascending, of max_marks
    size_t n_marks, max_marks;
    size_t n_imported; // positions whose keys and values there are; from n_past on without a state
    bool at_work;      // in the submit under way: not to be paused
    struct hidden hidden;
    // Of a model that predicts, for the work under way: hidden states (n_embd each) of the tokens
    // before those from position given_at on.
    const float *given_hidden;
    size_t given_at;
};

// A sample that was asked for and not yet waited for.
struct ask {
    uint64_t ticket;
    struct seq *seq; // NULL: freed or trimmed
    bool evaluate;   // the token before it, first
    bool done;       // d or, with its code set, error says what came
    struct decoded d;
    struct error error;
    size_t n_void; // so many after it were not made: drafts in vain
};

enum { ENGINE_MAX_ASKS = 2 * ENGINE_MAX_PARTS };

// Rows of one sequence in a pass that has several sequences'.
struct engine_part {
    const struct seq *seq;
    const int32_t *ids; // (n) at seq->n_past, for which seq has blocks that are its own
    size_t n;
    bool given; // ids came with the work: not what was sampled
    bool pick;  // sample after the last row: d or, with its code set, error says what came
    struct decoded d;
    struct error error;
    // The last rows are so many drafts, behind one that is none. pick: sample after that one, then
    // after each draft as long as engine_accepts. Where one of these fails no more is sampled.
    size_t n_drafts;
    struct decoded *more; // (n_drafts) what came after drafts; n_more of them
    size_t n_more;
};

struct engine_core {
    const struct backend *backend;
    size_t max_parts;  // see engine_max_parts
    bool alike;        // a pass of one sequence is made as one of several are
    bool gives_hidden; // backend.hidden can be asked after every pass
    // Rows of one sequence that eval_parts can sample after, each with the bits that it has alone,
    // but for the first; and all rows of a pass in which any sequence has some, at most.
    size_t max_drafts, max_draft_rows;
    struct decoded drafted[ENGINE_MAX_PASS_DRAFTS]; // of the pass under way
    struct kv_pool pool;
    struct kv_pool near;   // blocks of near layers, where they keep fewer positions than others
    uint32_t reach;        // then the longest window of theirs, else 0
    size_t n_windows;      // then the sequences whose windows there is room for
    struct kv_pool states; // slots of e->n_states; empty without
    size_t n_copies, most_copies; // states in host memory, and as many as there may be
    bool spares_copies; // of marks without which no more than STATES_EVERY tokens are read again
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
    struct engine_part parts[ENGINE_MAX_PARTS];       // of the pass under way
    struct engine_part again[ENGINE_MAX_PASS_DRAFTS]; // of one after it, see work.c
    uint64_t tickets;                                 // given so far
    // Who wants to know how much of a pass is done, which may take long: a backend that can tell
    // calls it, from the thread that has asked for the pass, with the share (above 0, to 1); NULL:
    // nobody.
    void (*under_way)(void *user, double share);
    void *under_way_user;
};

enum engine_logits {
    LOGITS_NONE, // only extend the KV cache
    LOGITS_LAST, // logits of the last row
    LOGITS_ALL,  // logits of every row
};

struct backend {
    uint32_t kv_block; // positions of a block; a power of two
    // Evaluates ids (n, 1 to n_batch) at s->n_past, for which s has blocks that are its own, from
    // the recurrent state s->state to those of s->next_states that states_written says (where it
    // has states); ended when it returns.
    // Errors: ERR_INTERRUPTED, ERR_FAIL.
    bool (*eval)(struct engine *e, const struct seq *s, const int32_t *ids, size_t n,
                 enum engine_logits want, const struct cancel *cancel, struct error *err);
    // Evaluates the parts (1 to ENGINE_MAX_PARTS; n_batch rows together) in one pass and makes
    // their picks; each has the bits that it has alone. Ended when it returns; leaves no logits.
    // Errors: ERR_INTERRUPTED, ERR_FAIL. NULL: a pass has one sequence.
    bool (*eval_parts)(struct engine *e, struct engine_part *parts, size_t n_parts,
                       const struct cancel *cancel, struct error *err);
    // Row i of the last eval's, s's, to out (n_vocab).
    bool (*logits)(struct engine *e, const struct seq *s, size_t i, const struct cancel *cancel,
                   float *out, struct error *err);
    // Hidden states (struct hparams) of n rows of the last pass, from `row` on, to out (n, n_embd).
    // Errors: ERR_FAIL.
    bool (*hidden)(struct engine *e, size_t row, size_t n, float *out, struct error *err);
    // Where s->mask is not NULL, take asks it (engine_mask) once the device is at work, and only
    // then is the token sampled, and evaluated if next was called before. A run of picks: start
    // makes the first from the last eval's logits, with s's settings; each next one evaluates what
    // the one before has sampled, from the state that the last but one of s->next_states gets (if
    // it is the first: s->state) to the last. Both only ask. take waits for the oldest asked for,
    // and may do then what was asked: evaluate says whether it was by next, and s->ids ends with
    // the sample before it. stop: nothing is under way any more.
    bool (*pick_start)(struct engine *e, const struct seq *s, struct error *err);
    bool (*pick_next)(struct engine *e, const struct seq *s, struct error *err);
    bool (*pick_take)(struct engine *e, const struct seq *s, bool evaluate,
                      const struct cancel *cancel, struct decoded *out, struct error *err);
    void (*pick_stop)(struct engine *e);
    // Of near layers, or of the others.
    size_t (*kv_bytes)(const struct engine *e, bool near, size_t begin, size_t end);
    bool (*kv_export)(struct engine *e, const struct seq *s, bool near, size_t begin, size_t end,
                      void *dst, struct error *err);
    bool (*kv_import)(struct engine *e, const struct seq *s, bool near, size_t begin, size_t end,
                      const void *src, struct error *err);
    // The recurrent state of a slot; not called where n_states is 0.
    size_t (*state_bytes)(const struct engine *e);
    bool (*state_export)(struct engine *e, uint32_t slot, void *dst, struct error *err);
    bool (*state_import)(struct engine *e, uint32_t slot, const void *src, struct error *err);
    // The state that the first n rows of part i of the last pass, s's, lead to from s->state, to
    // s->next_states[0]: a pass with drafts, from that state. NULL: they are evaluated again.
    bool (*state_advance)(struct engine *e, const struct seq *s, size_t i, size_t n,
                          struct error *err);
    // The first n positions of block `from` to block `to`: of near layers, where these have blocks
    // of their own, or of all that have not.
    bool (*kv_copy)(struct engine *e, bool near, uint32_t from, uint32_t to, size_t n,
                    struct error *err);
    // As engine/measure.h has them; may be NULL, the last two together. The sequences have blocks,
    // and a state to come, for what is evaluated.
    bool (*measure)(struct engine *e, struct engine_peaks *out, struct error *err);
    bool (*profile)(struct engine *e, const struct seq *s, const int32_t *tokens, size_t n,
                    uint32_t n_run, const struct cancel *cancel, struct engine_profile *out,
                    struct error *err);
    bool (*profile_parts)(struct engine *e, struct engine_part *parts, size_t n_parts,
                          uint32_t n_run, const struct cancel *cancel, struct engine_profile *out,
                          struct error *err);
    void (*free)(struct engine *e); // and engine_release
};

// Whether the model has as many positions. For all that plans and opens engines. Errors: ERR_USAGE.
bool engine_has_positions(const struct model *m, uint32_t n_ctx, struct error *err);

// For a backend that opens and frees an engine: core is the backend's, model, n_ctx, n_batch and
// n_states are set. max_parts: see engine_max_parts; n_seqs: as in engine_params. Errors:
// ERR_MEMORY.
bool engine_init(struct engine *e, struct engine_core *core, const struct backend *b,
                 size_t max_parts, uint32_t n_seqs, struct error *err);
void engine_release(struct engine *e); // zeroed is fine
void seq_new_version(struct seq *s);   // its tables have changed
// Ends what is sampled ahead of its being waited for. Errors: ERR_INTERRUPTED.
bool engine_settle(struct engine *e, const struct cancel *cancel, struct error *err);
// Whether n tokens can be appended to s now. Errors: ERR_CONTEXT; ERR_FAIL.
bool seq_check_ids(const struct seq *s, const int32_t *ids, size_t n, struct error *err);
// Whether row i + 1 of p, a draft, is what was sampled after row i, and more may follow.
bool engine_accepts(const struct engine_part *p, size_t i, int32_t sampled);
// What s->mask allows behind n drafts, and how many tokens that is. Errors: its own; ERR_FAIL:
// none.
bool engine_mask(const struct seq *s, const int32_t *drafts, size_t n, uint32_t *allow,
                 uint32_t *n_allowed, struct error *err);

#ifdef __cplusplus
}
#endif
#endif
