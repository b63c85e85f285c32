// The launchers of layers with a recurrent state (struct delta, struct short_conv and struct ssm in
// model/model.h). As in kernels.h, pointers are device addresses.
//
// The engine's pool has slots; a slot has the states of all such layers, one behind the other. A
// pass goes on from one slot of each of its sequences and writes another, so that whoever shares
// the first still finds it. No launch of a pass writes what an earlier one of it has read: the
// kernels read states, and where they are, before their predecessors have ended.
//
// Back by some rows: a state of megabytes a layer is not copied behind each row of a pass that may
// be taken back. The inputs of its rows are kept, kilobytes a row, and where not all rows stay the
// state before the pass goes on again through those that do (the launchers `advance`): with the
// same operations, to the same bits.
#ifndef HOKKU_CUDA_STATES_H
#define HOKKU_CUDA_STATES_H

#include "engine/backend.h" // NO_STATE
#include "kernels.h"

enum {
    DELTA_MAX_STATE = 256, // struct delta's n_state
    SSM_MAX_STATE = 256,   // struct ssm's
    STATE_ALIGN = 4,       // floats, of a layer's state in its slot
    STATE_CHUNK = 32,      // rows of a chunk, see delta_chunks_launch
};

// The rows of one sequence in a pass, and the slots of the states before and after them; and of
// those on the way, behind each STATES_EVERY rows.
struct state_span {
    uint32_t row0, n;  // n 0: there is no such sequence, and no row of it
    uint32_t from, to; // from NO_STATE: zeros
    uint32_t n_within, within[STATES_AT_ONCE - 1];
};

// What one layer keeps.
struct state_slots {
    float *base;   // in slot 0
    size_t stride; // floats from one slot to the next
    const struct state_span *spans;
    uint32_t n_span;
    const struct seq_row *rows; // row i is of span rows[i].slot - 1; NULL: of the only one
};

static __device__ __forceinline__ const struct state_span &span_of(const struct state_slots &s,
                                                                   uint32_t row)
{
    return s.spans[s.rows ? s.rows[row].slot - 1 : 0];
}

// A layer's state are the inputs of the last tokens, (n_taps - 1, channels); of a delta net and a
// state space so many floats, and behind them each head's matrix, transposed: (n_head, values,
// keys), and (n_head, n_inner / n_head, n_state).
static inline __host__ __device__ size_t state_aligned(size_t n)
{
    return (n + STATE_ALIGN - 1) / STATE_ALIGN * STATE_ALIGN;
}

static inline __host__ __device__ size_t delta_inputs(const struct delta *d)
{
    return state_aligned((size_t)(d->n_conv - 1) * (2 * d->n_key_head + d->n_head) * d->n_state);
}

static inline __host__ __device__ uint32_t ssm_channels(const struct ssm *d)
{
    return d->n_inner + 2 * d->n_group * d->n_state;
}

static inline __host__ __device__ size_t ssm_inputs(const struct ssm *d)
{
    return state_aligned((size_t)(d->n_conv - 1) * ssm_channels(d));
}

// ---- conv.cu

// y (n, conv.n), of in (n, 3 * conv.n) = b, c, x.
struct short_conv_rows {
    struct short_conv conv;
    struct state_slots state;
    const float *w; // (conv.n, n_taps)
    const float *in;
    float *y;
    const uint32_t *skip;
};
bool short_conv_launch(const struct queue *q, const struct short_conv_rows *c, uint32_t n,
                       struct error *err);
// Here and below: of n_layer layers at once, (n_layer) in device memory and of one shape, the state
// alone goes on through the first rows of what is still in their buffers, as span 0 of each says
// (state.rows NULL).
bool short_conv_advance_launch(const struct queue *q, const struct short_conv_rows *layers,
                               const struct short_conv *shape, uint32_t n_layer, struct error *err);

// ---- delta.cu

// Three launches: the convolution, the recurrence, norms and gates. Or one, of spans of few rows.
struct delta_rows {
    struct delta delta;
    float eps;
    struct state_slots state;
    const float *in; // (n, channels)
    const float *w;  // (channels, n_conv)
    float *mixed;    // (n, channels) scratch: queries, keys, values. One launch: NULL: not wanted
    // (n, n_head) before their functions; paired: both are (n, 2 * n_head), of each key head its
    // heads' betas, then their alphas
    const float *beta, *alpha;
    bool paired;
    const float *a, *dt; // (n_head)
    const float *gate;   // (n, n_head * n_state)
    const float *norm;   // (n_state)
    float *y;            // (n, n_head * n_state)
    const uint32_t *skip;
};
bool delta_conv_launch(const struct queue *q, const struct delta_rows *d, uint32_t n,
                       struct error *err);
bool delta_launch(const struct queue *q, const struct delta_rows *d, struct error *err);
bool delta_gate_launch(const struct queue *q, const struct delta_rows *d, uint32_t n,
                       struct error *err);
// In place of delta_conv_launch and delta_launch, where nothing has to have the same bits however
// its rows were cut: for the n rows of the only span; in products over chunks of STATE_CHUNK of
// them, with delta_chunk_bytes of scratch memory (16-byte aligned). d->mixed is no longer what it
// was behind that, and d->skip is not asked. What is not finite in a row may be seen in what
// earlier rows of its chunk give, too.
bool delta_can_chunk(const struct delta *d);
size_t delta_chunk_bytes(const struct delta *d, uint32_t n);
bool delta_mix_launch(const struct queue *q, const struct delta_rows *d, uint32_t n,
                      struct error *err);
bool delta_chunks_launch(const struct queue *q, const struct delta_rows *d, void *scratch,
                         uint32_t n, struct error *err);
// Whether there is that one for such a net.
bool delta_can_step(const struct delta *d);
bool delta_step_launch(const struct queue *q, const struct delta_rows *d, struct error *err);
bool delta_advance_launch(const struct queue *q, const struct delta_rows *layers,
                          const struct delta *shape, uint32_t n_layer, struct error *err);

// ---- ssm.cu

// Three launches: the convolution, the recurrence, gates and norms.
struct ssm_rows {
    struct ssm ssm;
    float eps;
    struct state_slots state;
    const float *in; // (n, ld) z, x, b, c, t
    uint32_t ld;
    const float *w, *bias;   // (channels, n_conv), (channels); bias NULL: none
    float *mixed;            // (n, channels) scratch: x, b, c
    const float *a, *d, *dt; // (n_head)
    const float *norm;       // (n_inner), NULL: none
    float *y;                // (n, n_inner)
    const uint32_t *skip;
};
bool ssm_conv_launch(const struct queue *q, const struct ssm_rows *s, uint32_t n,
                     struct error *err);
bool ssm_launch(const struct queue *q, const struct ssm_rows *s, struct error *err);
bool ssm_gate_launch(const struct queue *q, const struct ssm_rows *s, uint32_t n,
                     struct error *err);
// In place of the first two, as with delta nets, with ssm_chunk_bytes of scratch memory.
bool ssm_can_chunk(const struct queue *q, const struct ssm *d);
size_t ssm_chunk_bytes(const struct queue *q, const struct ssm *d, uint32_t n);
bool ssm_mix_launch(const struct queue *q, const struct ssm_rows *s, uint32_t n, struct error *err);
bool ssm_chunks_launch(const struct queue *q, const struct ssm_rows *s, void *scratch, uint32_t n,
                       struct error *err);
bool ssm_advance_launch(const struct queue *q, const struct ssm_rows *layers,
                        const struct ssm *shape, uint32_t n_layer, struct error *err);

#endif
