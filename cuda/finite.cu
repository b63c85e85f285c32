// Finding the weights that a number comes from which is not finite (engine/finite.h).
#include <stdlib.h>

#include "engine_impl.h"

bool cuda_look(struct cuda_engine *e, const struct gpu_layer *l, const char *what,
               struct error *err)
{
    if (!e->search)
        return true;
    const size_t n = e->hp.n_embd;
    float *x = (float *)malloc(n * sizeof *x);
    bool ok = x || error_oom(err, "a token's values", n * sizeof *x);
    for (uint32_t i = 0; ok && i <= (l ? e->hp.n_side : 0); i++) { // streams
        const float *from = i == 0 ? e->s.x : e->s.side + (i - 1) * e->base.n_batch * n;
        ok =
            CHECK_CUDA(cudaMemcpyAsync(x, from, n * sizeof *x, cudaMemcpyDeviceToHost, e->q.stream),
                       err) &&
            CHECK_CUDA(cudaStreamSynchronize(e->q.stream), err);
        if (ok)
            finite_step(e->search, l ? (uint32_t)(l - e->layers) : 0, x, n, what);
    }
    free(x);
    return ok;
}

bool cuda_not_finite(struct cuda_engine *e, size_t pos, bool last, uint32_t id, float logit,
                     struct error *err)
{
    struct finite_search search = {};
    search.first_layer = model_first_layer(e->base.model);
    e->logits_want = LOGITS_NONE;
    e->logits_n = 0;
    // steps that were asked for ahead of it have found the same and end at once
    bool ok = CHECK_CUDA(cudaStreamSynchronize(e->q.stream), err);
    e->search = &search;
    ok = ok && cuda_give_again(e, err) && cuda_state_use(e, e->seq->state, NO_STATE, 1, err) &&
         cuda_set_step(e, e->last_token, pos, err) && cuda_forward_one(e, err);
    e->search = NULL;
    e->pick_failed = ok;
    return ok && finite_error(search.found || last ? &search : NULL, id, logit, err);
}
