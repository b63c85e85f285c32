#include "base/json_text.h"

#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"

// jansson 2.14 goes on where it has no memory for the next byte of a string: with a text that lacks
// it, or beyond the end of what it has. So the first allocation that fails while a text is read
// ends that here, and what there is of it by then, which is in a list, goes.
struct block {
    struct block *next, *prev; // NULL: in no list
};

struct reading {
    struct block blocks; // the list: it begins and ends here
    jmp_buf escape;
};

static _Thread_local struct reading *reading;
static _Thread_local bool no_memory;

static void *allocate(size_t n)
{
    struct block *b = n < SIZE_MAX - sizeof *b ? malloc(sizeof *b + n) : NULL;
    no_memory |= !b;
    if (!b && reading)
        longjmp(reading->escape, 1);
    if (!b)
        return NULL;
    struct block *last = reading ? reading->blocks.prev : NULL;
    *b = (struct block){reading ? &reading->blocks : NULL, last};
    if (reading)
        last->next = reading->blocks.prev = b;
    return b + 1;
}

static void release(void *p)
{
    struct block *b = p ? (struct block *)p - 1 : NULL;
    if (b && b->next) {
        b->prev->next = b->next;
        b->next->prev = b->prev;
    }
    free(b);
}

// (Before there is anything of jansson's.)
__attribute__((constructor)) static void allocate_for_jansson(void)
{
    json_set_alloc_funcs(allocate, release);
}

bool json_lost(void)
{
    const bool lost = no_memory;
    no_memory = false;
    return lost;
}

void json_lose(void)
{
    no_memory = true;
}

static int put_bytes(const char *s, size_t n, void *out)
{
    return buf_append(out, s, n) ? 0 : -1;
}

char *json_written(const json_t *j, size_t flags)
{
    struct buf out = {0};
    const bool ok = json_dump_callback(j, put_bytes, &out, flags) == 0;
    if (!json_lost() && ok)
        return out.data;
    buf_release(&out);
    return NULL;
}

// (A function of its own: longjmp changes none of its caller's variables.)
static json_t *load(struct reading *r, const char *text, size_t n, size_t flags, json_error_t *why)
{
    if (setjmp(r->escape))
        return NULL;
    return json_loadb(text, n, flags, why);
}

json_t *json_read(const char *text, size_t n, size_t flags, json_error_t *why)
{
    struct reading r = {.blocks = {&r.blocks, &r.blocks}};
    const bool before = json_lost();
    reading = &r;
    json_t *j = load(&r, text, n, flags, why);
    reading = NULL;
    const bool lost = json_lost();
    no_memory = before;
    for (struct block *b = r.blocks.next, *next; b != &r.blocks; b = next) {
        next = b->next;
        if (lost)
            free(b);
        else
            *b = (struct block){0};
    }
    if (!lost)
        return j;
    snprintf(why->text, sizeof why->text, "out of memory");
    why->text[sizeof why->text - 1] = (char)json_error_out_of_memory; // as jansson has it
    return NULL;
}

bool json_no_memory(const json_error_t *why)
{
    return json_error_code(why) == json_error_out_of_memory;
}

json_t *json_text(const char *s, size_t n)
{
    struct buf b = {0};
    buf_append_utf8(&b, s, n);
    if (b.failed)
        json_lose();
    json_t *j = b.failed ? NULL : json_stringn(buf_str(&b), b.len);
    buf_release(&b);
    return j;
}

bool json_text_is(const json_t *v, const char *text)
{
    const size_t n = strlen(text);
    return json_is_string(v) && json_string_length(v) == n &&
           memcmp(json_string_value(v), text, n) == 0;
}

void json_drop_nulls(json_t *v)
{
    const char *key;
    json_t *field;
    void *next;
    json_object_foreach_safe(v, next, key, field)
    {
        if (json_is_null(field))
            json_object_del(v, key);
        else if (strcmp(key, "schema") != 0 && strcmp(key, "parameters") != 0)
            json_drop_nulls(field);
    }
    for (size_t i = 0; i < json_array_size(v); i++)
        json_drop_nulls(json_array_get(v, i));
}

static bool put_leaf(struct buf *out, const json_t *v, size_t flags)
{
    char *text = json_written(v, flags | JSON_COMPACT | JSON_ENCODE_ANY);
    const bool ok = text && buf_puts(out, text);
    free(text);
    return ok;
}

// (jansson has all numbers written with as many digits.)
static bool put_line(struct buf *out, const json_t *v, size_t flags)
{
    char number[FORMAT_NUMBER];
    bool ok = true;
    if (json_is_array(v)) {
        for (size_t i = 0; ok && i < json_array_size(v); i++)
            ok = buf_putc(out, i ? ',' : '[') && put_line(out, json_array_get(v, i), flags);
        return ok && buf_puts(out, json_array_size(v) ? "]" : "[]");
    }
    if (json_is_object(v)) {
        // jansson's iterators do not change the object; its interface lacks the const.
        json_t *o = (json_t *)(uintptr_t)v;
        char before = '{';
        for (void *it = json_object_iter(o); ok && it; it = json_object_iter_next(o, it)) {
            json_t *key = json_string(json_object_iter_key(it));
            ok = key && buf_putc(out, before) && put_leaf(out, key, flags) && buf_putc(out, ':') &&
                 put_line(out, json_object_iter_value(it), flags);
            json_decref(key);
            before = ',';
        }
        return ok && buf_puts(out, before == ',' ? "}" : "{}");
    }
    return json_is_real(v) ? buf_puts(out, format_real(number, json_real_value(v)))
                           : put_leaf(out, v, flags);
}

char *json_line(const json_t *v, size_t flags)
{
    struct buf out = {0};
    if (v && put_line(&out, v, flags))
        return out.data;
    buf_release(&out);
    return NULL;
}

bool json_put(json_t *j, size_t flags, struct buf *out)
{
    char *text = json_written(j, flags);
    if (text)
        buf_printf(out, "%s\n", text);
    else
        out->failed = true;
    free(text);
    json_decref(j);
    return !out->failed;
}

const char *json_expected(const json_error_t *why)
{
    return json_error_code(why) == json_error_numeric_overflow
               ? ", expected whole numbers from -2^63 to 2^63 - 1, others up to 1.8e308"
               : "";
}

json_t *json_u64(uint64_t v)
{
    char digits[24];
    if (v <= INT64_MAX)
        return json_integer((json_int_t)v);
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)v);
    return json_string(digits);
}

bool json_read_u64(const json_t *v, uint64_t *out)
{
    if (json_is_integer(v) && json_integer_value(v) >= 0) {
        *out = (uint64_t)json_integer_value(v);
        return true;
    }
    const char *s = json_string_value(v);
    const size_t n = s ? json_string_length(v) : 0;
    if (n == 0 || strspn(s, "0123456789") != n)
        return false;
    errno = 0;
    const unsigned long long u = strtoull(s, NULL, 10);
    if (errno)
        return false;
    *out = u;
    return true;
}
