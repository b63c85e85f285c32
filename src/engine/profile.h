// From the times of single launches to the table of engine_profile.
#ifndef HOKKU_ENGINE_PROFILE_H
#define HOKKU_ENGINE_PROFILE_H

#include "engine/measure.h"

#ifdef __cplusplus
extern "C" {
#endif

struct profile_launch {
    const char *kernel, *what;
};

// Sorts v. 0 of none.
double profile_median(double *v, size_t n);

// Fills rows, n and sum of *out from the n launches of an evaluation that ran n_run times: seconds
// (n_run, n). Errors: ERR_FAIL (more kinds of launches than
// ENGINE_MAX_KERNELS), ERR_MEMORY.
bool profile_rows(const struct profile_launch *launches, size_t n, uint32_t n_run,
                  const double *seconds, struct engine_profile *out, struct error *err);

// Whether a weight is among those that what names ("attn_q+attn_k").
bool profile_names(const char *what, const char *weight);

// Fills in the bytes that each row must move: every piece of the token's traffic goes to the next
// launch that names it, so both are in the order of the forward pass. Launches of the kernels in
// beside (ends with NULL) read no weights. A product made in several launches of one row takes a
// piece early for each; the row's sum is right.
bool profile_bytes(struct engine_profile *p, const struct profile_launch *launches, size_t n,
                   const char *const *beside, const struct engine_traffic *traffic,
                   size_t n_traffic, struct error *err);

// Makes of a token's traffic that of a pass of n sequences: matrices are read once, what is a
// token's own n times; of experts, of which a token uses some, it is not known.
void profile_pass_traffic(struct engine_traffic *traffic, size_t n_traffic, const struct model *m,
                          size_t n);

// The row that reads the weights of `what`: the only one of that what whose kernel is not among
// beside (ends with NULL); NULL when there is no such row, or several.
struct engine_kernel *profile_reader(struct engine_profile *p, const char *what,
                                     const char *const *beside);

// Fills in the operations of each row for a chunk of n tokens after n_past others, of which the
// last reaches the head: of the products with the model's matrices, and of attention. beside: see
// profile_reader.
void profile_operations(struct engine_profile *p, const struct model *m, size_t n_past, size_t n,
                        const char *const *beside);

// Operations of all products with the model's matrices and of attention (not of recurrent states):
// of a chunk as above; of a pass of n sequences, each with a token after n_past others, and logits.
double profile_chunk_flops(const struct model *m, size_t n_past, size_t n);
double profile_pass_flops(const struct model *m, size_t n_past, size_t n);

struct engine_part;

// Whether no part of a pass that was timed has failed. Errors: the first part's that has.
bool profile_parts_ended(const struct engine_part *parts, size_t n, struct error *err);

#ifdef __cplusplus
}
#endif
#endif
