// Steps that the files of the forward pass share.
#ifndef HOKKU_CPU_FORWARD_H
#define HOKKU_CPU_FORWARD_H

#include "cpu/cpu.h"

// Runs fn for every token of the chunk. One token is not worth waking a thread.
bool cpu_each_token(struct cpu_engine *e, size_t n, void (*fn)(void *, size_t, int), void *arg);
// m[i].y = m[i].w * m[i].x (+ bias) for n tokens, of at most four matrices that share their input.
bool cpu_multiply(struct cpu_engine *e, const struct cpu_matmul *m, int n_products);
// How many rows of a matrix a thread takes at a time, of n_rows in all that are shared out.
uint32_t cpu_rows_per_item(const struct cpu_engine *e, const struct weight *w, size_t n_rows,
                           size_t n_tok);
// Makes n_groups times n rows ready for products with quantised weights, each of which takes one of
// these groups.
bool cpu_quantize(struct cpu_engine *e, const struct cpu_act *x, size_t n_groups, size_t n);
// Whether products with it take their input in fixed point (struct cpu_act).
bool cpu_is_quantized(const struct weight *w);
// The first n rows of an input of products, as wide as this layer has it.
struct cpu_act cpu_as_wide_as(const struct cpu_act *a, uint32_t n_cols, size_t n);
// The rows from this one on.
struct cpu_act cpu_rows_from(const struct cpu_act *a, size_t row);
// gate = act(gate) * e->up, or act(gate) where up has no gate; what: of the profile
bool cpu_activate(struct cpu_engine *e, const struct layer *l, const struct cpu_act *gate,
                  bool gated, const char *what, size_t n);

// Row t of the chunk: its position in its sequence, and the token there.
size_t cpu_position_of(const struct cpu_engine *e, size_t t);
int32_t cpu_token_of(const struct cpu_engine *e, size_t t);

// Of n numbers, with the model's kind of norm. w NULL: y = x
void cpu_norm_row(const struct cpu_engine *e, const float *x, const float *w, const float *b,
                  size_t n, float *y);
// x += residual_scale * post_norm(W in + bias), of layer il
bool cpu_add_product(struct cpu_engine *e, size_t il, enum layer_weight w, const float *bias,
                     enum layer_weight post_norm, const struct cpu_act *in, size_t n);

// The softmax of all heads' scores of e->q, times the values: out + t * token + head * between (the
// values' width), in floats.
struct cpu_heads {
    float *out;
    size_t token, between;
};
bool cpu_attention(struct cpu_engine *e, size_t il, const struct cpu_heads *to, size_t n);
// By how much queries of row t are longer for its position.
float cpu_query_scale(const struct cpu_engine *e, const struct layer *l, size_t t);
// The part that row t of the chunk is of.
const struct cpu_part *cpu_part_of(const struct cpu_engine *e, size_t t);
// Where the state of layer il begins in a slot; there, the state before the part's first token
// (NULL: zeros), and where the i-th of those goes that are after its first tokens: *end of them,
// all after the last. Where there are no more: NULL.
size_t cpu_state_of(const struct cpu_engine *e, size_t il);
const float *cpu_state_before(const struct cpu_engine *e, const struct cpu_part *p, size_t state);
float *cpu_state_after(const struct cpu_engine *e, const struct cpu_part *p, size_t state, size_t i,
                       size_t *end);
// Causal convolutions of channels, each by itself, and silu.
struct cpu_mixing {
    const float *in; // (tokens, n), stride apart
    size_t stride, n, n_taps;
    const float *w, *bias; // (n, n_taps), this token's last; (n) or NULL
    size_t state;          // where the inputs of the n_taps - 1 tokens before are in a slot
    float *out;            // (tokens, n)
};
bool cpu_mix(struct cpu_engine *e, const struct cpu_mixing *m, size_t n);
// x += a short convolution of normed
bool cpu_convolve(struct cpu_engine *e, size_t il, size_t n);
// x += a gated delta net of normed
bool cpu_delta(struct cpu_engine *e, size_t il, size_t n);
// x += a selective state space of normed
bool cpu_ssm(struct cpu_engine *e, size_t il, size_t n);
// x += latent attention of normed
bool cpu_attend_latent(struct cpu_engine *e, size_t il, size_t n);
// Where row t of the chunk lies in the cache of a layer.
size_t cpu_place_of(const struct cpu_engine *e, const struct cpu_kv_layer *l, size_t t);

// Looks at the residual stream after what layer il did with the weights of that name, where
// somebody searches for what is not finite. Always true.
bool cpu_look(struct cpu_engine *e, size_t il, const char *what);

// Streams beside the residual one (struct layer): what they begin with; predicted before layer il,
// and corrected after it; += norm(e->branch), which the weights `what` gave; and x = the mean.
bool cpu_altup_begin(struct cpu_engine *e, size_t n);
bool cpu_altup_predict(struct cpu_engine *e, size_t il, size_t n);
bool cpu_altup_correct(struct cpu_engine *e, size_t il, size_t n);
bool cpu_altup_add(struct cpu_engine *e, size_t il, enum layer_weight norm, const char *what,
                   size_t n);
bool cpu_altup_end(struct cpu_engine *e, size_t n);
// What a layer with n_laurel adds, of normed.
bool cpu_laurel(struct cpu_engine *e, size_t il, size_t n);
// normed = from (n, n_embd), each row times scale (NULL: 1), as the input of products
bool cpu_copy_to_normed(struct cpu_engine *e, const float *from, const float *scale, size_t n);

// x = what a prediction layer is given, of the embeddings in x and the hidden states of the work.
bool cpu_join(struct cpu_engine *e, size_t n);
// What layers are told of each token of the chunk, of which e->x has the embeddings.
bool cpu_tell(struct cpu_engine *e, size_t n);
// What layer il makes of that in the end.
bool cpu_told(struct cpu_engine *e, size_t il, size_t n);

// Routes the rows of e->normed to the experts of the layer.
bool cpu_route(struct cpu_engine *e, const struct layer *l, size_t n);
// e->branch = what the experts that rows are routed to make of e->normed.
bool cpu_experts(struct cpu_engine *e, const struct layer *l, size_t n);

#endif
