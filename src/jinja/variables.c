// The variables of a rendering, as the caller puts them together.
#include "jinja/runtime.h"

#include <string.h>

#include "base/utf8.h"

struct template_object variables_begin(struct run *r)
{
    r->context = val_dict(r).d;
    return (struct template_object){.run = r, .dict = r->context, .origin = ORIGIN_DATA};
}

struct template_slot template_at(struct template_object o, const char *key)
{
    return (struct template_slot){
        .run = o.run, .dict = o.dict, .key = key, .origin = o.origin, .depth = o.depth};
}

struct template_slot template_next(struct template_list l)
{
    uint32_t origin = l.origin;
    if (l.of_messages && l.list->n < ORIGIN_DATA - ORIGIN_MESSAGE)
        origin = (uint32_t)l.list->n + ORIGIN_MESSAGE;
    return (struct template_slot){.run = l.run, .list = l.list, .origin = origin, .depth = l.depth};
}

// Borrowed where it is UTF-8.
static struct val text(struct run *r, const char *s, size_t n, uint32_t origin)
{
    run_step(r, n / 64);
    if (utf8_valid(s, n))
        return val_borrowed(r, s, n, origin);
    struct sb b = {0};
    const char *piece;
    for (size_t i = 0, n_piece; i < n;) {
        i += utf8_piece(s + i, n - i, &piece, &n_piece);
        sb_add(r, &b, piece, n_piece, origin);
    }
    return sb_val(r, &b);
}

static void put(struct template_slot to, struct val v)
{
    struct run *r = to.run;
    run_step(r, 1);
    if (to.dict)
        dict_set(r, to.dict, val_str(r, to.key, strlen(to.key), to.origin), v);
    else
        list_push(r, to.list, v);
}

void template_put_none(struct template_slot to)
{
    put(to, val_with_origin(val_none(), to.origin));
}

void template_put_bool(struct template_slot to, bool value)
{
    put(to, val_with_origin(val_bool(value), to.origin));
}

void template_put_int(struct template_slot to, int64_t value)
{
    put(to, val_with_origin(val_int(value), to.origin));
}

void template_put_float(struct template_slot to, double value)
{
    put(to, val_with_origin(val_float(value), to.origin));
}

void template_put_str(struct template_slot to, const char *s, size_t n)
{
    size_t n_key = to.key ? strlen(to.key) : 0;
    bool token = to.depth == 0 && n_key > 6 && strcmp(to.key + n_key - 6, "_token") == 0;
    put(to, text(to.run, s, n, token ? ORIGIN_TEMPLATE : to.origin));
}

static uint32_t deeper(struct template_slot to)
{
    if (to.depth >= to.run->limits.max_depth)
        run_fail_limit(to.run, "nesting", to.run->limits.max_depth, "levels");
    return to.depth + 1;
}

struct template_object template_put_object(struct template_slot to)
{
    struct val v = val_with_origin(val_dict(to.run), to.origin);
    put(to, v);
    return (struct template_object){
        .run = to.run, .dict = v.d, .origin = to.origin, .depth = deeper(to)};
}

struct template_list template_put_list(struct template_slot to)
{
    struct val v = val_with_origin(val_list(to.run, 0), to.origin);
    put(to, v);
    return (struct template_list){.run = to.run,
                                  .list = v.l,
                                  .origin = to.origin,
                                  .depth = deeper(to),
                                  .of_messages =
                                      to.depth == 0 && to.key && strcmp(to.key, "messages") == 0};
}
