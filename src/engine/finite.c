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

void finite_step(struct finite_search *s, uint32_t layer, const float *x, size_t n,
                 const char *what)
{
    if (s->found || finite_until(x, n) == n)
        return;
    s->found = true;
    if (strcmp(what, "token_embd") == 0)
        snprintf(s->where, sizeof s->where, "%s", what);
    else
        snprintf(s->where, sizeof s->where, "blk.%u.%s", s->first_layer + layer, what);
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
