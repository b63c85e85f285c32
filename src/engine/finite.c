#include "engine/finite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

size_t finite_until(const float *v, size_t n)
{
    size_t i = 0;
    while (i < n && isfinite(v[i]))
        i++;
    return i;
}

void finite_step(struct finite_search *s, const float *x, size_t n, const char *what)
{
    const bool embedding = strcmp(what, "token_embd") == 0,
               last = strcmp(what, "ffn_down") == 0 || strcmp(what, "ffn_down_exps") == 0;
    if (!embedding && !last && strcmp(what, "attn_output") != 0)
        return;
    if (!s->found && finite_until(x, n) < n) {
        s->found = true;
        if (embedding)
            snprintf(s->where, sizeof s->where, "%s", what);
        else
            snprintf(s->where, sizeof s->where, "blk.%u.%s", s->layer, what);
    }
    s->layer += last;
}

bool finite_error(const struct finite_search *s, uint32_t id, float logit, struct error *err)
{
    char where[96] = "";
    if (s)
        snprintf(where, sizeof where, "; the first that is not finite comes out of %s",
                 s->found ? s->where : "output");
    return error_set(err, ERR_FAIL,
                     "the logit of token %u is %s, expected a finite number%s: the model's weights "
                     "are damaged, or overflow; download the file again, or use another "
                     "quantisation",
                     id,
                     isnan(logit) ? "nan"
                     : logit > 0  ? "inf"
                                  : "-inf",
                     where);
}
