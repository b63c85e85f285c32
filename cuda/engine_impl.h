// The CUDA engine from the inside: what the files of its host code do for each other.
#ifndef HOKKU_CUDA_ENGINE_IMPL_H
#define HOKKU_CUDA_ENGINE_IMPL_H

#include "cuda_engine.h"

// ---- device.cu

// Makes device `index` the current one, after checking that this program can run on it. Errors:
// ERR_USAGE: there is no such device; ERR_FAIL.
bool cuda_device_select(int index, struct device *d, struct error *err);

// ---- facts.cu

// Refuses, by the fact's name, a model that asks for what the kernels do not compute: ERR_MODEL.
bool cuda_check_facts(const struct model *m, struct error *err);

// ---- parts.cu: several sequences in one pass

// backend.eval_parts
bool cuda_eval_parts(struct engine *base, struct engine_part *parts, size_t n_parts,
                     const struct cancel *cancel, struct error *err);
// The logits of n (<= s.n_logits) rows of the last pass, from row0 on, to s.logits.
bool cuda_head_of_pass(struct cuda_engine *e, size_t row0, uint32_t n, struct error *err);
// The launches of a pass of n >= 4 rows of whatever is there, to be captured.
bool cuda_enqueue_parts(struct cuda_engine *e, uint32_t n, struct error *err);
bool cuda_parts_open(struct cuda_engine *e, struct error *err); // where there are passes
void cuda_parts_close(struct cuda_engine *e);

// ---- plan.cu

// Picks that one pass makes at most: one of each sequence, and those after drafts.
static inline uint32_t cuda_n_picks(const struct engine_params *p, uint32_t n_seq)
{
    const uint32_t most = ENGINE_MAX_PASS_DRAFTS;
    return n_seq + (p->exact ? lesser(n_seq * ENGINE_MAX_DRAFTS, most) : 0);
}

// Whether one sequence is evaluated in passes, too.
static inline bool cuda_has_passes(const struct engine_params *p, uint32_t n_seq)
{
    return n_seq > 1 || p->exact;
}

// The sequences that a pass takes.
static inline uint32_t cuda_n_seq(const struct engine_params *p)
{
    return p->n_seqs > 1 ? lesser(p->n_seqs, (uint32_t)ENGINE_MAX_PARTS) : 1;
}

enum { CUDA_LEAST_BATCH = 512 };
// Tokens of a chunk: what was asked for, else 2,048, which are faster than fewer; but 1,024 or 512
// where that takes a twentieth of the device's memory less (all of it, whatever else is there, so
// that texts are the same).
uint32_t cuda_n_batch(const struct model *m, const struct engine_params *p, const struct device *d);

// What the engine would take with n_ctx positions.
void cuda_memory_plan(const struct model *m, const struct engine_params *p, uint32_t n_ctx,
                      const struct device *d, struct memory_plan *out);
// Places the weights, vectors, cache and scratch of e (hp, largest, params, base.n_ctx,
// base.n_batch set) in the three arenas; with NULL bases only their sizes result. layers: may be
// scratch of the caller.
void cuda_place(struct cuda_engine *e, const struct model *m);
void *cuda_take(struct arena *a, uint64_t n_bytes); // the next place
// Of what several layers need in one place.
static inline uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

// ---- states.cu

// Spans of a pass of several sequences: a graph has as many as rows.
static inline uint32_t cuda_n_spans(uint32_t n_seq)
{
    return n_seq > GRAPH_ROWS ? n_seq : (uint32_t)GRAPH_ROWS;
}

// Rows of a pass that states go on from again.
static inline uint32_t cuda_kept_rows(uint32_t n_seq)
{
    return lesser(n_seq * DRAFT_ROWS, (uint32_t)KEPT_ROWS);
}

// Tokens of a chunk that go through the matrix-vector kernel.
static inline uint32_t cuda_rows_by_vector(const struct cuda_engine *e)
{
    return e->q.hopper ? MATVEC_MAX_ROWS_HOPPER : MATVEC_MAX_ROWS;
}

// The slots of an engine for n_seq sequences in one pass, on a device of so much memory in all; 0:
// the model has no states.
uint32_t cuda_n_states(const struct model *m, uint32_t n_seq, uint64_t device_bytes);
void cuda_place_states(struct cuda_engine *e, const struct model *m);
bool cuda_states_open(struct cuda_engine *e, struct error *err);
// The floats of a slot, to or from the host's memory.
bool cuda_state_copy(struct cuda_engine *e, uint32_t slot, float *host, bool out,
                     struct error *err);
// The n rows that are enqueued next, of one sequence, go on from this slot (NO_STATE: zeros), and
// leave their state in `to` (NO_STATE: where nobody reads it).
bool cuda_state_use(struct cuda_engine *e, uint32_t from, uint32_t to, uint32_t n,
                    struct error *err);
bool cuda_span_use(struct cuda_engine *e, struct state_span span, struct error *err);
// The n rows of a chunk of s lead to its next states.
bool cuda_state_use_chunk(struct cuda_engine *e, const struct seq *s, size_t n, struct error *err);
// The same of parts, whose rows follow each other.
bool cuda_states_use(struct cuda_engine *e, struct engine_part *const *parts, size_t n_parts,
                     struct error *err);
// The layer's states in the pass under way.
struct state_slots cuda_state_slots(const struct cuda_engine *e, const struct gpu_layer *l);

// ---- load.cu

// Copies and repacks every weight; e is placed. Errors: ERR_FAIL, ERR_MEMORY, ERR_INTERRUPTED.
bool cuda_load(struct cuda_engine *e, const struct model *m, struct error *err);
// Bytes of device memory that it takes and gives back.
uint64_t cuda_load_bytes(const struct model *m);

// ---- range.cu

// Fills what wmat, kv_plane and gpu_layer hold of scales and bounds; the weights are loaded.
bool cuda_measure_ranges(struct cuda_engine *e, const struct model *m, struct error *err);

// ---- engine.cu

// Tells the device where it stands; what was enqueued before must have ended.
bool cuda_set_step(struct cuda_engine *e, int32_t token, size_t pos, struct error *err);
// n tokens of seq at n_past, and the logits of the last if wanted.
bool cuda_enqueue_chunk(struct cuda_engine *e, const int32_t *tokens, size_t n, bool logits,
                        struct error *err);
// Called before the launches of layer i of a chunk of n tokens: waits until the device is near, so
// that little is queued when the chunk is cancelled.
bool cuda_pace(struct cuda_engine *e, uint32_t n, uint32_t i, struct error *err);
// Makes the engine's device the calling thread's current one; fails for ever after a failure that
// could not be told.
bool cuda_begin(struct cuda_engine *e, struct error *err);
// And the sequence the one at work, from its evaluated end on.
bool cuda_work_on(struct cuda_engine *e, const struct seq *s, const struct cancel *cancel,
                  struct error *err);
bool cuda_wait(struct cuda_engine *e, struct error *err); // for all that is enqueued
// One step of decoding, as the graph holds it.
bool cuda_enqueue_step(struct cuda_engine *e, struct error *err);
// Has the driver load the kernels of prompts and passes.
bool cuda_load_kernels(struct cuda_engine *e, struct error *err);

// Starts cuBLAS, once: only when something is to be multiplied with it, so that nobody else needs
// its library or waits for it.
bool cuda_blas_open(struct cuda_engine *e, struct error *err);

// ---- kv_cache.cu

// Makes the tables of s those that kernels read from now on. While steps run, s has only grown, and
// dropped what they do not see: what they read of the tables stays.
bool cuda_kv_use(struct cuda_engine *e, const struct seq *s, struct error *err);
// Those of all sequences that a layer looks at.
const uint32_t *cuda_tables(const struct cuda_engine *e, const struct gpu_layer *l);
// The first n positions of a block to another, as backend.kv_copy.
bool cuda_kv_copy_block(struct cuda_engine *e, bool near, uint32_t from, uint32_t to, size_t n,
                        struct error *err);
// Copies positions [begin, end) of near layers, or of the others, of the sequence of this table
// (host memory) out of the cache or into it, and waits; the host has cuda_kv_bytes of them.
size_t cuda_kv_bytes(const struct cuda_engine *e, bool near, size_t begin, size_t end);
bool cuda_kv_copy(struct cuda_engine *e, const uint32_t *table, bool near, size_t begin, size_t end,
                  uint8_t *host, bool out, struct error *err);

// ---- finite.cu

// True, or with e->search a look at the residual stream of one token after a step (finite_step); l
// NULL: before all layers.
bool cuda_look(struct cuda_engine *e, const struct gpu_layer *l, const char *what,
               struct error *err);
// The error of a logit that is not finite: evaluates last_token, at position pos, once more and
// looks after every step. last: the logit is of that token. Nothing is left in x and the logits.
bool cuda_not_finite(struct cuda_engine *e, size_t pos, bool last, uint32_t id, float logit,
                     struct error *err);

// ---- measure.cu, profile.cu, clocks.cu

// backend.measure, backend.profile
bool cuda_measure(struct engine *base, struct engine_peaks *out, struct error *err);
bool cuda_profile(struct engine *base, const struct seq *s, const int32_t *tokens, size_t n,
                  uint32_t n_run, const struct cancel *cancel, struct engine_profile *out,
                  struct error *err);
bool cuda_profile_parts(struct engine *base, struct engine_part *parts, size_t n_parts,
                        uint32_t n_run, const struct cancel *cancel, struct engine_profile *out,
                        struct error *err); // backend.profile_parts
// Fills the clocks of *out.
void cuda_clocks(int device, struct engine_peaks *out);

// The queue, for launches that work on these weights: a recorder of their times keeps the name.
static inline const struct queue *cuda_queue(const struct cuda_engine *e, const char *what)
{
    if (e->q.recorder)
        e->q.recorder->what = what;
    return &e->q;
}

// The weights that something is launched for, as cuda_queue takes it: a matrix alone, or all that
// have the same input.
static inline const char *name_of(const struct gpu_layer *l, enum layer_weight w)
{
    return l->facts->w[w].name;
}

static inline const char *group_of(const struct gpu_layer *l, enum layer_weight w)
{
    return l->facts->w[w].group;
}

static inline bool is_plain_type(const struct wmat *w)
{
    return w->type == QUANT_F32 || w->type == QUANT_F16 || w->type == QUANT_BF16;
}

// Whether a norm with these biases is a launch of its own: the kernels of products know RMSNorm
// alone.
static inline bool norm_is_apart(const struct hparams *hp, const struct weight *bias)
{
    return hp->norm != NORM_RMS || bias->data;
}

// Whether the mixer reads its normed input when it has begun to add to x: so that is kept, by a
// norm of its own.
static inline bool input_is_kept(const struct layer *l)
{
    return l->mixer == MIXER_LINEAR || l->n_laurel > 0 ||
           (l->mixer == MIXER_ATTENTION && l->ssm.n_head > 0);
}

// Whether the layer has a feed-forward network beside its experts.
static inline bool is_beside(const struct layer *l)
{
    return l->experts.n > 0 && l->n_ff > 0;
}

// Whether gate and up can be multiplied in one launch that leaves act(gate) * up.
static inline bool gate_is_fused(const struct layer *l)
{
    return l->w[FFN_GATE].data && !l->sparse && !l->w[FFN_GATE_BIAS].data &&
           !l->w[FFN_UP_BIAS].data && (l->act == ACT_SILU || l->act == ACT_GELU_TANH);
}

// ---- side.cu

bool cuda_side_open(struct cuda_engine *e, struct error *err); // behind e->q
void cuda_side_close(struct cuda_engine *e);
// What is launched there from now on comes behind what has been launched in e->q.
bool cuda_side_begin(const struct cuda_engine *e, struct error *err);
// And what is launched in e->q behind what has been launched there.
bool cuda_side_end(const struct cuda_engine *e, struct error *err);
// The same where that is captured, too: before a capture ends.
bool cuda_side_join(const struct cuda_engine *e, struct error *err);
bool cuda_is_captured(cudaStream_t stream, bool *is, struct error *err);

// ---- ahead.cu

bool cuda_ahead_open(struct cuda_engine *e, struct error *err);
// n pieces of n_bytes each, `stride` bytes apart, all multiples of 16.
struct span {
    const uint8_t *p;
    uint32_t n, stride, n_bytes;
};
struct spans {
    struct span at[3 * 4]; // planes
    uint32_t n;
};
// Of what the products behind attention read, in that order: attn_output, and what the feed-forward
// network begins with, where that comes next.
struct spans cuda_spans_ahead(const struct cuda_engine *e, const struct gpu_layer *l);
// Where a graph is captured: asks for that, when the last launch has ended, beside what follows it.
bool cuda_ask_ahead(const struct cuda_engine *e, const struct gpu_layer *l, struct error *err);

// ---- graphs: what enqueue() launches becomes one instead

template <typename F>
static inline bool cuda_capture(struct cuda_engine *e, cudaGraph_t *graph, F enqueue,
                                struct error *err)
{
    struct error mine = {};
    *graph = NULL;
    if (!CHECK_CUDA(cudaStreamBeginCapture(e->q.stream, cudaStreamCaptureModeRelaxed), err))
        return false;
    bool ok = enqueue();
    ok = cuda_side_join(e, ok ? err : &mine) && ok;
    return CHECK_CUDA(cudaStreamEndCapture(e->q.stream, graph), ok ? err : &mine) && ok;
}

// A graph that can be launched.
template <typename F>
static inline bool cuda_capture_exec(struct cuda_engine *e, cudaGraphExec_t *exec, F enqueue,
                                     struct error *err)
{
    cudaGraph_t graph;
    bool ok = cuda_capture(e, &graph, enqueue, err) &&
              CHECK_CUDA(cudaGraphInstantiate(exec, graph), err) &&
              CHECK_CUDA(cudaGraphUpload(*exec, e->q.stream), err);
    if (graph)
        cudaGraphDestroy(graph);
    return ok;
}

// ---- forward.cu

// Whether a row's bits depend on nothing but the row, and so not on how many there are; skip: see
// step_state.done, of a token alone.
static inline bool cuda_rows_alike(const struct cuda_engine *e, const uint32_t *skip)
{
    return e->pass || (e->any_pieces && !skip);
}

// One token: reads token and position from s.step, leaves the hidden state in x.
bool cuda_forward_one(struct cuda_engine *e, struct error *err);
// The logits of n (<= LOGITS_ROWS) rows of x from row0 on, to s.logits.
bool cuda_head(struct cuda_engine *e, size_t row0, size_t n, const uint32_t *skip,
               struct error *err);
// n tokens from s.tokens at position s.step->pos, or at s.rows as e->pass says; one alone only
// where rows are alike.
bool cuda_forward_many(struct cuda_engine *e, uint32_t n, struct error *err);
// The logits of n (<= s.n_logits) rows of x (any, n_embd), hidden states, to s.logits: the first
// n, or, of an RMSNorm without biases, those that `rows` names.
bool cuda_head_of(struct cuda_engine *e, const float *x, const uint32_t *rows, uint32_t n,
                  struct error *err);

// n = 0, below: the one token of a step. The rows of it:
static inline uint32_t rows_of_step(uint32_t n)
{
    return n ? n : 1;
}

// Whether rows for products with w are packed.
bool cuda_takes_packed(const struct cuda_engine *e, const struct wmat *w, uint32_t n);

// y (n, rows) = w in + bias (rows; NULL: none); what: as cuda_queue takes it.
bool cuda_multiply(const struct cuda_engine *e, const char *what, const struct wmat *w,
                   const float *bias, struct input in, uint32_t n, float *y, struct error *err);
// y[i] (n, rows) = w[i] in, of up to MATVEC_MAX_PARTS matrices.
bool cuda_project(const struct cuda_engine *e, const struct gpu_layer *l, struct input in,
                  uint32_t n, const enum layer_weight *w, float *const *y, uint32_t n_part,
                  struct error *err);
// x += residual_scale * W(in) (n, n_embd), normed if the layer says so; W: ATTN_OUTPUT or SSM_OUT.
bool cuda_add_mixed(struct cuda_engine *e, const struct gpu_layer *l, enum layer_weight w,
                    const float *in, uint32_t n, struct error *err);

// ---- predict.cu

// Whether w, m's embedding or head, is in the engine of the model that m predicts for.
static inline bool cuda_shares(const struct model *m, const struct weight *w)
{
    const struct model *other = m->predicts_for;
    return other && (w->data == other->tok_embd.data || w->data == other->output.data);
}

// The hidden states that the rows of the next pass are given, of a model that predicts: those of
// the parts, in the order of their rows.
bool cuda_give_hidden(struct cuda_engine *e, struct engine_part *const *parts, size_t n_parts,
                      struct error *err);
// The one row that is evaluated next is given what last_row was.
bool cuda_give_again(struct cuda_engine *e, struct error *err);
// x (n, n_embd) = joint (x normed, what was given normed) of a model that predicts; else nothing.
bool cuda_join(struct cuda_engine *e, uint32_t n, struct error *err);
// backend.hidden
bool cuda_hidden(struct engine *base, size_t row, size_t n, float *out, struct error *err);

// ---- forward_states.cu

// Of the layers with a recurrent state, what they need in the arena `work`.
void cuda_place_mixers(struct cuda_engine *e, const struct model *m);
// x += what such a layer makes of in; of attention with a state space beside it, what the latter
// does.
bool cuda_recur(struct cuda_engine *e, const struct gpu_layer *l, struct input in, uint32_t n,
                struct error *err);
// What the pass last enqueued, of at most cuda_kept_rows, has done to the states of these layers:
// once more, through the rows of the span alone. Only where drafts are taken.
bool cuda_state_advance(struct cuda_engine *e, struct state_span span, struct error *err);
// Fills e->states.advance, once everything is placed.
bool cuda_state_advance_open(struct cuda_engine *e, struct error *err);
// The launches of cuda_state_advance.
bool cuda_enqueue_advance(struct cuda_engine *e, struct error *err);
// What reads the norm of its input, as cuda_queue takes it.
const char *cuda_recurrent_group(const struct gpu_layer *l);

// ---- expert_scratch.cu

static inline bool has_experts(const struct layer *l)
{
    return l->experts.n > 0;
}

// Rows of a chunk that are multiplied at a time: bounds what their pairs with experts need.
static inline uint32_t expert_rows_at_once(uint32_t n_batch, uint32_t n_used)
{
    const uint32_t n = lesser(n_batch, (uint32_t)EXPERT_PAIRS / n_used);
    return n ? n : 1;
}

// Of the layers that have experts, what they need in the arena `work`.
void cuda_place_experts(struct cuda_engine *e, const struct model *m);

// ---- forward_experts.cu

// x += residual_scale * what the experts of the layer give, normed if it says so, with what is
// beside them. in (n, n_embd), to be normed with weights norm (NULL: it is). s.up is scratch.
bool cuda_experts_one(const struct cuda_engine *e, const struct gpu_layer *l, const float *in,
                      const float *norm, struct error *err);
bool cuda_experts_many(const struct cuda_engine *e, const struct gpu_layer *l, const float *in,
                       const float *norm, uint32_t n, struct error *err);
// Whether float16 products (expert_hopper.cu, expert_few.cu) take all matrices of the experts.
bool cuda_experts_can_be_half(const struct cuda_engine *e, const struct gpu_layer *l);

// ---- forward_attention.cu

// Of layers that clamp them, n rows of s.q, s.k and s.v.
bool cuda_clamp(const struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                struct error *err);

// s.att (n, n_head * head_dim) = attention of the one token of a step (n = 0), of n tokens, or of
// the rows of e->pass, from s.q, s.k and s.v; or, of these rows, packed (NULL: not) instead.
bool cuda_attend(const struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                 const struct packed_rows *packed, struct error *err);

// ---- forward_latent.cu

void cuda_place_latent(struct cuda_engine *e, const struct model *m); // as cuda_place_experts
// Whether prompts make keys and values for each head, see latent_heads.
bool cuda_latent_in_heads(const struct cuda_engine *e, const struct layer *l);
// The wider of a head's keys and values.
static inline uint32_t latent_head_width(const struct layer *l)
{
    const uint32_t n_key = l->latent.n_key + l->head_dim - l->latent.n_kv;
    return n_key > l->latent.n_value ? n_key : l->latent.n_value;
}
// s.att (n, n_head * n_value) = latent attention of n tokens, or the rows of e->pass, from latent.q
// and what attn_kv_a gave in s.k.
bool cuda_attend_latent(const struct cuda_engine *e, const struct gpu_layer *l, uint32_t n,
                        const uint32_t *skip, struct error *err);

static inline bool interrupted(const struct cuda_engine *e, struct error *err)
{
    if (!cancel_asked(e->cancel))
        return false;
    error_set(err, ERR_INTERRUPTED, "interrupted");
    return true;
}

// The same before launches that all ranks make or none.
static inline bool interrupted_alike(struct cuda_engine *e, struct error *err)
{
    if (!e->rank)
        return interrupted(e, err);
    return cuda_rank_interrupted(e) && !error_set(err, ERR_INTERRUPTED, "interrupted");
}

#endif
