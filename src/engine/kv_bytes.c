// Keys and values as bytes, for saved sessions: of near layers behind those of the others, where
// there are any. (States: states.c.)
#include "engine/room.h"
#include "engine/windows.h"

static size_t bytes_of(const struct engine *e, bool near, size_t begin, size_t end)
{
    return begin < end ? e->core->backend->kv_bytes(e, near, begin, end) : 0;
}

size_t engine_kv_bytes(const struct engine *e, size_t begin, size_t end)
{
    return bytes_of(e, false, begin, end) + bytes_of(e, true, begin, end);
}

// Whether near layers have position pos of s.
static bool has_near(const struct seq *s, size_t pos)
{
    return s->near[pos / s->engine->core->backend->kv_block] != NO_BLOCK;
}

bool engine_kv_fits(const struct engine *e, size_t begin, size_t end, size_t n_bytes)
{
    return n_bytes == engine_kv_bytes(e, begin, end) ||
           (e->core->reach > 0 && n_bytes == bytes_of(e, false, begin, end));
}

size_t seq_exports(const struct seq *s, size_t begin, size_t end, size_t *n_bytes)
{
    size_t i = begin;
    while (i < end && has_near(s, i) == has_near(s, begin))
        i++;
    *n_bytes = bytes_of(s->engine, false, begin, i);
    if (begin < i && has_near(s, begin))
        *n_bytes += bytes_of(s->engine, true, begin, i);
    return i;
}

bool seq_export(struct seq *s, size_t begin, size_t end, void *dst, struct error *err)
{
    struct engine *e = s->engine;
    size_t n_bytes;
    if (begin > end || end > seq_n_past(s))
        return error_set(err, ERR_FAIL, "KV cache of positions %zu to %zu: %zu are evaluated",
                         begin, end, seq_n_past(s));
    if (seq_exports(s, begin, end, &n_bytes) < end)
        return error_set(err, ERR_FAIL,
                         "KV cache of positions %zu to %zu: expected all in all layers, or none in "
                         "those with a window",
                         begin, end);
    const size_t n_far = bytes_of(e, false, begin, end);
    return engine_settle(e, NULL, err) &&
           (begin == end || e->core->backend->kv_export(e, s, false, begin, end, dst, err)) &&
           (n_bytes == n_far ||
            e->core->backend->kv_export(e, s, true, begin, end, (char *)dst + n_far, err));
}

// The same into near layers, if they have the positions before those in the same block; src NULL:
// they have not got these.
static bool import_near(struct seq *s, size_t begin, size_t end, const void *src, struct error *err)
{
    const struct backend *b = s->engine->core->backend;
    const bool begun = begin % b->kv_block > 0;
    if (!src && begun && s->engine->core->reach > 0)
        windows_give(s, begin / b->kv_block);
    if (!src || (begun && !has_near(s, begin)))
        return true;
    return room_take_near(s, begin, end, err) &&
           b->kv_import(s->engine, s, true, begin, end, src, err);
}

bool seq_import(struct seq *s, const int32_t *ids, size_t n, const void *src, size_t n_bytes,
                struct error *err)
{
    struct engine_core *c = s->engine->core;
    if (!seq_check_ids(s, ids, n, err))
        return false;
    const size_t begin = s->n_imported > s->n_past ? s->n_imported : s->n_past, end = begin + n;
    if (begin != s->ids.len)
        return error_set(err, ERR_FAIL,
                         "KV cache of positions %zu to %zu: expected to go on at %zu", s->ids.len,
                         s->ids.len + n, begin);
    if (!engine_kv_fits(s->engine, begin, end, n_bytes))
        return error_set(err, ERR_FAIL, "KV cache of positions %zu to %zu: %zu bytes, expected %zu",
                         begin, end, n_bytes, engine_kv_bytes(s->engine, begin, end));
    const size_t n_far = bytes_of(s->engine, false, begin, end);
    const void *near = n_bytes > n_far ? (const char *)src + n_far : NULL;
    if (!engine_settle(s->engine, NULL, err))
        return false;
    ids_append(&s->ids, ids, n); // there is room
    room_forget_logits(c, s);
    s->at_work = true;
    bool ok = n == 0 || room_take(s, end, 1, err);
    s->n_imported = begin; // room_take is for what is evaluated
    ok = ok && (n == 0 || c->backend->kv_import(s->engine, s, false, begin, end, src, err)) &&
         (n == 0 || import_near(s, begin, end, near, err));
    s->at_work = false;
    if (!ok)
        s->ids.len = begin;
    s->n_imported = s->ids.len;
    if (c->reach > 0)
        s->n_past = windows_back(s, s->n_imported);
    else if (s->engine->n_states == 0) // else they are evaluated once a state follows
        s->n_past = s->ids.len;
    s->turn = s->given = s->n_past;
    room_give(s);
    return ok;
}
