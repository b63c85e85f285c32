#include "editor/edit.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "editor/layout.h"

static void forget_changes(struct edit *e)
{
    while (e->n_undo > 0)
        buf_release(&e->undo[--e->n_undo].removed);
    e->typing = false;
}

void edit_release(struct edit *e)
{
    if (!e)
        return;
    forget_changes(e);
    free(e->undo);
    buf_release(&e->text);
    buf_release(&e->killed);
    *e = (struct edit){0};
}

// Without a trace in the undo.
static bool splice(struct edit *e, size_t begin, size_t end, const char *with, size_t n)
{
    if (!buf_reserve(&e->text, n + 1)) {
        e->text.failed = false;
        return false;
    }
    memmove(e->text.data + begin + n, e->text.data + end, e->text.len - end);
    if (n > 0)
        memcpy(e->text.data + begin, with, n);
    e->text.len += n - (end - begin);
    e->text.data[e->text.len] = '\0';
    e->at = begin + n;
    return true;
}

bool edit_set(struct edit *e, const char *text, size_t n)
{
    if (!splice(e, 0, e->text.len, text, n))
        return false;
    forget_changes(e);
    return true;
}

static bool record(struct edit *e, size_t begin, size_t end, size_t n)
{
    if (!array_grow(NULL, &e->undo, e->n_undo, &e->cap_undo, sizeof *e->undo))
        return false;
    struct change *c = &e->undo[e->n_undo];
    *c = (struct change){.at = begin, .n_inserted = n, .cursor = e->at};
    if (!buf_append(&c->removed, buf_str(&e->text) + begin, end - begin)) {
        buf_release(&c->removed);
        return false;
    }
    e->n_undo++;
    return true;
}

static bool edit_replace(struct edit *e, size_t begin, size_t end, const char *with, size_t n)
{
    e->typing = false;
    if (begin == end && n == 0)
        return true;
    if (!record(e, begin, end, n))
        return false;
    if (splice(e, begin, end, with, n))
        return true;
    buf_release(&e->undo[--e->n_undo].removed);
    return false;
}

bool edit_insert(struct edit *e, const char *s, size_t n)
{
    return edit_replace(e, e->at, e->at, s, n);
}

bool edit_type(struct edit *e, const char *s, size_t n)
{
    struct change *last = e->n_undo > 0 ? &e->undo[e->n_undo - 1] : NULL;
    if (e->typing && last && last->at + last->n_inserted == e->at) {
        if (!splice(e, e->at, e->at, s, n))
            return false;
        last->n_inserted += n;
        return true;
    }
    bool ok = edit_insert(e, s, n);
    e->typing = ok;
    return ok;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || (unsigned char)c >= 0x80;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n';
}

size_t edit_find(const struct edit *e, enum where where)
{
    const char *s = buf_str(&e->text), *p;
    size_t i = e->at, n = e->text.len;
    switch (where) {
    case WHERE_LEFT:
        return i > 0 ? cluster_before(s, i) : 0;
    case WHERE_RIGHT:
        return i < n ? i + cluster_at(s + i, n - i).n : n;
    case WHERE_WORD_LEFT:
        while (i > 0 && !is_word(s[i - 1]))
            i--;
        while (i > 0 && is_word(s[i - 1]))
            i--;
        return i;
    case WHERE_WORD_RIGHT:
        while (i < n && !is_word(s[i]))
            i++;
        while (i < n && is_word(s[i]))
            i++;
        return i;
    case WHERE_BLANK_LEFT:
        while (i > 0 && is_blank(s[i - 1]))
            i--;
        while (i > 0 && !is_blank(s[i - 1]))
            i--;
        return i;
    case WHERE_LINE_BEGIN:
        p = i > 0 ? memrchr(s, '\n', i) : NULL;
        return p ? (size_t)(p - s) + 1 : 0;
    case WHERE_LINE_END:
        p = memchr(s + i, '\n', n - i);
        return p ? (size_t)(p - s) : n;
    case WHERE_TEXT_BEGIN:
        return 0;
    case WHERE_TEXT_END:
        break;
    }
    return n;
}

bool edit_delete(struct edit *e, enum where to)
{
    size_t other = edit_find(e, to);
    return other < e->at ? edit_replace(e, other, e->at, NULL, 0)
                         : edit_replace(e, e->at, other, NULL, 0);
}

bool edit_kill(struct edit *e, enum where to, bool join)
{
    size_t other = edit_find(e, to);
    if (other == e->at && to == WHERE_LINE_END && other < e->text.len)
        other++;
    if (other == e->at && to == WHERE_LINE_BEGIN && other > 0)
        other--;
    bool left = other < e->at;
    size_t begin = left ? other : e->at, end = left ? e->at : other;
    if (begin == end)
        return true;
    struct buf all = {0};
    const char *cut = buf_str(&e->text) + begin;
    if (left)
        buf_append(&all, cut, end - begin);
    if (join)
        buf_append(&all, buf_str(&e->killed), e->killed.len);
    if (!left)
        buf_append(&all, cut, end - begin);
    if (all.failed || !edit_replace(e, begin, end, NULL, 0)) {
        buf_release(&all);
        return false;
    }
    buf_release(&e->killed);
    e->killed = all;
    return true;
}

bool edit_transpose(struct edit *e)
{
    size_t n = e->text.len;
    const char *s = buf_str(&e->text);
    size_t middle = e->at;
    if (middle == n || s[middle] == '\n') // at the end of a line: the last two
        middle = edit_find(e, WHERE_LEFT);
    if (middle == 0 || middle == n)
        return true;
    size_t begin = cluster_before(s, middle), end = middle + cluster_at(s + middle, n - middle).n;
    if (memchr(s + begin, '\n', end - begin))
        return true;
    struct buf swapped = {0};
    buf_append(&swapped, s + middle, end - middle);
    buf_append(&swapped, s + begin, middle - begin);
    bool ok = !swapped.failed && edit_replace(e, begin, end, swapped.data, swapped.len);
    buf_release(&swapped);
    return ok;
}

bool edit_undo(struct edit *e)
{
    if (e->n_undo == 0)
        return false;
    struct change *c = &e->undo[e->n_undo - 1];
    if (!splice(e, c->at, c->at + c->n_inserted, buf_str(&c->removed), c->removed.len))
        return false;
    e->at = c->cursor;
    buf_release(&c->removed);
    e->n_undo--;
    e->typing = false;
    return true;
}
