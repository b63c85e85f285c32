// Tensor parallelism (Shoeybi et al. 2019, "Megatron-LM", sec. 3): a model cut into slices, one for
// each of several devices, its ranks. A slice is a model of the same layers with fewer heads and
// narrower feed-forward networks:
//
//   attention           whole KV heads with the heads that use them: rows of attn_q, attn_k,
//   attn_v;
//                       of latent attention, and where there is one KV head, heads: rows of attn_q,
//                       matrices of attn_k_b and attn_v_b
//   delta nets          whole keys with the heads that share them: rows of qkv, gate, beta, alpha
//   state spaces        whole groups with their heads, or heads of the only group, whose b and c
//                       all ranks have: rows of ssm_in
//   short convolutions  channels: rows of each third of conv_in
//   feed-forward        rows of ffn_gate, ffn_up; of experts, shared ones too, the same of each one
//   behind each         the columns of those, whole blocks of the type of attn_output, ssm_out or
//                       ffn_down: what the ranks' products give adds up to the layer's
//   output              some rows: logits of a run of the vocabulary
//   all else            all of it, on each rank: norms, routers, the embedding, the only KV head,
//   what layers are told
//                       of the token, a matrix in place of attention, what is kept of a token by
//                       latent attention, biases that are added to such a sum
//
// So an engine that knows slices does nothing else, but for adding up behind each of those, and
// before norms of more than a rank has: of all heads at once (QK_NORM_WHOLE), of a group's channels
// where its heads are on several (ssm_norm).
#ifndef HOKKU_MODEL_SLICE_H
#define HOKKU_MODEL_SLICE_H

#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MODEL_MAX_RANKS = 8 };

// How much of a model each of n_rank (1 to MODEL_MAX_RANKS) devices has, in proportion to share, of
// which none is 0.
struct model_split {
    uint32_t n_rank;
    uint64_t share[MODEL_MAX_RANKS];
};

// Whether m can be cut for that many ranks. Errors: ERR_MODEL, by the name of what cannot, with how
// many units there are.
bool model_can_split(const struct model *m, uint32_t n_rank, struct error *err);

// Cuts n >= n_rank units into runs in proportion to share, none empty, the same for the same
// shares: rank r has [begin[r], begin[r + 1]).
void split_units(uint32_t n, const struct model_split *s, uint32_t *begin /* (n_rank + 1) */);

// The rows of the output matrix that rank r has: [begin[r], begin[r + 1]).
void split_head(const struct model *m, const struct model_split *s, uint32_t *begin);

// What rank r has of m, which can be split, outlives the slice and lends it everything but the
// layers' facts. A tied head becomes a matrix of its own. Errors: ERR_MEMORY.
struct model *model_slice(const struct model *m, const struct model_split *s, uint32_t rank,
                          struct error *err);
void model_slice_free(struct model *slice); // NULL is fine

#ifdef __cplusplus
}
#endif
#endif
