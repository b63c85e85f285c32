// engine/measure.h on top of a backend.
#include "engine/room.h"

bool engine_measure(struct engine *e, struct engine_peaks *out, struct error *err)
{
    *out = (struct engine_peaks){0};
    if (!e->core->backend->measure)
        return true;
    e->core->logits_of = NULL;
    return engine_settle(e, NULL, err) && e->core->backend->measure(e, out, err);
}

bool engine_can_profile(const struct engine *e)
{
    return e->core->backend->profile != NULL;
}

bool engine_profile(struct seq *s, const int32_t *tokens, size_t n, uint32_t n_run,
                    const struct cancel *cancel, struct engine_profile *out, struct error *err)
{
    struct engine *e = s->engine;
    struct engine_core *c = e->core;
    *out = (struct engine_profile){0};
    if (!engine_can_profile(e))
        return error_set(err, ERR_FAIL, "%s cannot time its kernels one by one", e->device);
    if (n == 0 || n > e->n_batch || n_run == 0)
        return error_set(err, ERR_FAIL, "a profile of %zu tokens in %u runs: expected 1 to %u", n,
                         n_run, e->n_batch);
    if (s->n_past != s->ids.len)
        return error_set(err, ERR_FAIL, "a profile after %zu tokens, of which %zu are evaluated",
                         s->ids.len, s->n_past);
    if (!engine_settle(e, cancel, err) || !seq_check_ids(s, tokens, n, err))
        return false;
    c->logits_of = NULL;
    bool ok = room_take(s, s->n_past + n, 1, err) &&
              room_take_near(s, s->n_past, s->n_past + n, err) &&
              c->backend->profile(e, s, tokens, n, n_run, cancel, out, err);
    room_give(s);
    return ok;
}
