#include "dialog/think.h"

#include <string.h>

const char *think_name(enum think t)
{
    static const char *const names[] = {"default", "on", "off", "hide"};
    return names[t];
}

// One row per notation seen in chat templates.
static const struct {
    const char *open, *close;
} tags[] = {
    {"<think>", "</think>"},
    {"<thinking>", "</thinking>"},
    {"<seed:think>", "</seed:think>"},
    {"[THINK]", "[/THINK]"},
};
enum { N_TAGS = sizeof tags / sizeof *tags };

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

void think_init(struct think_split *t, const char *open_tag)
{
    memset(t, 0, sizeof *t);
    for (size_t i = 0; open_tag && i < N_TAGS; i++) {
        if (strcmp(open_tag, tags[i].open) == 0) {
            t->state = THINK_INSIDE;
            t->close = tags[i].close;
        }
    }
}

void think_release(struct think_split *t)
{
    buf_release(&t->held);
}

static void drop_held(struct think_split *t, size_t n)
{
    memmove(t->held.data, t->held.data + n, t->held.len - n);
    t->held.len -= n;
}

static bool give(struct think_split *t, enum answer_part part, size_t n, think_sink sink,
                 void *user, struct error *err)
{
    if (n == 0)
        return true;
    size_t at = t->n_seen - t->held.len;
    if (part == PART_THINKING) {
        if (t->thinking_end == t->thinking_at)
            t->thinking_at = at;
        t->thinking_end = at + n;
    }
    if (sink && !sink(user, part, t->held.data, n, err))
        return false;
    drop_held(t, n);
    return true;
}

// At the start: an opening tag, something that may become one, or neither.
static bool step_start(struct think_split *t, bool *wait)
{
    size_t space = 0;
    while (space < t->held.len && is_space(t->held.data[space]))
        space++;
    const char *s = t->held.data + space;
    size_t n = t->held.len - space;
    for (size_t i = 0; i < N_TAGS; i++) {
        size_t n_tag = strlen(tags[i].open);
        if (n >= n_tag && memcmp(s, tags[i].open, n_tag) == 0) {
            drop_held(t, space + n_tag);
            t->state = THINK_INSIDE;
            t->close = tags[i].close;
            return true;
        }
        if (n < n_tag && memcmp(s, tags[i].open, n) == 0)
            *wait = true;
    }
    if (!*wait) {
        t->state = THINK_DONE;
        t->answer_at = t->n_seen - t->held.len;
    }
    return true;
}

static bool step_inside(struct think_split *t, think_sink sink, void *user, bool *wait,
                        struct error *err)
{
    size_t n_close = strlen(t->close);
    if (t->thinking_end == t->thinking_at) { // white space before the thinking is not shown
        size_t space = 0;
        while (space < t->held.len && is_space(t->held.data[space]))
            space++;
        drop_held(t, space);
    }
    const char *found = memmem(t->held.data, t->held.len, t->close, n_close);
    if (found) {
        size_t n = (size_t)(found - t->held.data), keep = n;
        while (keep > 0 && is_space(t->held.data[keep - 1]))
            keep--;
        if (!give(t, PART_THINKING, keep, sink, user, err))
            return false;
        drop_held(t, n - keep + n_close);
        t->state = THINK_GAP;
        return true;
    }
    // Keep back what may begin the closing tag, and white space that may precede it.
    size_t keep = t->held.len < n_close - 1 ? t->held.len : n_close - 1;
    while (keep > 0 && memcmp(t->held.data + t->held.len - keep, t->close, keep) != 0)
        keep--;
    size_t n = t->held.len - keep;
    while (n > 0 && is_space(t->held.data[n - 1]))
        n--;
    *wait = true;
    return give(t, PART_THINKING, n, sink, user, err);
}

static bool step_gap(struct think_split *t, bool *wait)
{
    size_t space = 0;
    while (space < t->held.len && is_space(t->held.data[space]))
        space++;
    drop_held(t, space);
    if (t->held.len == 0) {
        *wait = true;
        return true;
    }
    t->state = THINK_DONE;
    t->answer_at = t->n_seen - t->held.len;
    return true;
}

bool think_push(struct think_split *t, const char *text, size_t n, think_sink sink, void *user,
                struct error *err)
{
    if (!buf_append(&t->held, text, n))
        return error_oom(err, "the answer's text", n);
    t->n_seen += n;
    bool wait = false, ok = true;
    while (ok && !wait && t->held.len > 0) {
        switch (t->state) {
        case THINK_START:
            ok = step_start(t, &wait);
            break;
        case THINK_INSIDE:
            ok = step_inside(t, sink, user, &wait, err);
            break;
        case THINK_GAP:
            ok = step_gap(t, &wait);
            break;
        case THINK_DONE:
            return give(t, PART_ANSWER, t->held.len, sink, user, err);
        }
    }
    return ok;
}

bool think_flush(struct think_split *t, think_sink sink, void *user, struct error *err)
{
    if (t->state == THINK_START) {
        t->answer_at = t->n_seen - t->held.len;
        t->state = THINK_DONE;
    }
    if (t->state == THINK_DONE)
        return give(t, PART_ANSWER, t->held.len, sink, user, err);
    bool ok = t->state != THINK_INSIDE || give(t, PART_THINKING, t->held.len, sink, user, err);
    t->answer_at = t->n_seen;
    return ok;
}

bool think_tags(const char *source, size_t n, const char *open_tag, const char **open,
                const char **close)
{
    for (size_t i = 0; i < N_TAGS; i++)
        if (open_tag ? strcmp(open_tag, tags[i].open) == 0
                     : n > 0 && memmem(source, n, tags[i].close, strlen(tags[i].close))) {
            *open = tags[i].open;
            *close = tags[i].close;
            return true;
        }
    *open = *close = NULL;
    return false;
}

const char *think_open_tag_at_end(const char *text, size_t n)
{
    while (n > 0 && is_space(text[n - 1]))
        n--;
    for (size_t i = 0; i < N_TAGS; i++) {
        size_t n_tag = strlen(tags[i].open);
        if (n >= n_tag && memcmp(text + n - n_tag, tags[i].open, n_tag) == 0)
            return tags[i].open;
    }
    return NULL;
}
