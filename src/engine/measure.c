// engine/measure.h on top of a backend.
#include "engine/room.h"
#include "engine/states.h"

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

static bool check_profile(const struct engine *e, size_t n, uint32_t n_run,
                          struct engine_profile *out, struct error *err)
{
    *out = (struct engine_profile){0};
    if (!engine_can_profile(e))
        return error_set(err, ERR_FAIL, "%s cannot time its kernels one by one", e->device);
    if (n == 0 || n > e->n_batch || n_run == 0)
        return error_set(err, ERR_FAIL, "a profile of %zu tokens in %u runs: expected 1 to %u", n,
                         n_run, e->n_batch);
    return true;
}

// Room for n tokens more than are evaluated.
static bool take_room(struct seq *s, size_t n, struct error *err)
{
    return room_take(s, s->n_past + n, states_wanted(s, n, true), err) &&
           room_take_near(s, s->n_past, s->n_past + n, err);
}

bool engine_profile(struct seq *s, const int32_t *tokens, size_t n, uint32_t n_run,
                    const struct cancel *cancel, struct engine_profile *out, struct error *err)
{
    struct engine *e = s->engine;
    struct engine_core *c = e->core;
    if (!check_profile(e, n, n_run, out, err))
        return false;
    if (s->n_past != s->ids.len)
        return error_set(err, ERR_FAIL, "a profile after %zu tokens, of which %zu are evaluated",
                         s->ids.len, s->n_past);
    if (!engine_settle(e, cancel, err) || !seq_check_ids(s, tokens, n, err))
        return false;
    c->logits_of = NULL;
    bool ok = take_room(s, n, err);
    if (c->alike && (n == 1 || e->exact)) {
        struct engine_part part = {.seq = s, .ids = tokens, .n = n, .given = n > 1, .pick = true};
        ok = ok && c->backend->profile_parts(e, &part, 1, n_run, cancel, out, err);
    } else {
        ok = ok && c->backend->profile(e, s, tokens, n, n_run, cancel, out, err);
    }
    room_give(s);
    return ok;
}

bool engine_profile_pass(struct engine *e, struct seq *const *s, size_t n, uint32_t n_run,
                         const struct cancel *cancel, struct engine_profile *out, struct error *err)
{
    struct engine_core *c = e->core;
    if (!check_profile(e, n, n_run, out, err))
        return false;
    if (n < 2 || n > engine_max_parts(e))
        return error_set(err, ERR_FAIL, "a profile of %zu sequences: expected 2 to %zu", n,
                         engine_max_parts(e));
    for (size_t i = 0; i < n; i++)
        if (s[i]->n_past + 1 != s[i]->ids.len)
            return error_set(err, ERR_FAIL,
                             "a profile of a sequence of %zu tokens, of which %zu are evaluated: "
                             "expected all but one",
                             s[i]->ids.len, s[i]->n_past);
    if (!engine_settle(e, cancel, err))
        return false;
    c->logits_of = NULL;
    bool ok = true;
    for (size_t i = 0; i < n; i++)
        s[i]->at_work = true;
    for (size_t i = 0; ok && i < n; i++) {
        c->parts[i] = (struct engine_part){
            .seq = s[i], .ids = s[i]->ids.data + s[i]->n_past, .n = 1, .pick = true};
        ok = take_room(s[i], 1, err);
    }
    ok = ok && c->backend->profile_parts(e, c->parts, n, n_run, cancel, out, err);
    for (size_t i = 0; i < n; i++) {
        s[i]->at_work = false;
        room_give(s[i]);
    }
    return ok;
}
