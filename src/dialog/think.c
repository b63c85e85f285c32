#include "dialog/think.h"

#include <string.h>

const char *think_name(enum think t)
{
    static const char *const names[] = {"default", "on", "off", "hide"};
    return names[t];
}

// One row per notation seen in chat templates: <think> of most, <thinking>, Seed-OSS, Magistral,
// Command A, Apertus, Gemma 4, gpt-oss.
static const struct {
    const char *open, *close;
} tags[] = {
    {"<think>", "</think>"},
    {"<thinking>", "</thinking>"},
    {"<seed:think>", "</seed:think>"},
    {"[THINK]", "[/THINK]"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<|inner_prefix|>", "<|inner_suffix|>"},
    {"<|channel>thought", "<channel|>"},
    {"<|channel|>", "<|end|>"}, // CHANNELS
};
enum { N_TAGS = sizeof tags / sizeof *tags, CHANNELS = N_TAGS - 1 };

// gpt-oss writes messages: a header with the channel's name, MESSAGE, the text. All channels but
// the final one are thinking.
#define START   "<|start|>"
#define CHANNEL "<|channel|>"
#define MESSAGE "<|message|>"
enum { HEADER_MAX = 256 };

// What some models put around the answer after their thinking (Granite, ERNIE; Hunyuan; Command A,
// without thinking, too).
static const struct {
    const char *open, *close;
    bool first; // may begin a text
} wraps[] = {
    {"<response>", "</response>", false},
    {"<answer>", "</answer>", false},
    {"<|START_RESPONSE|>", "<|END_RESPONSE|>", true},
};
enum { N_WRAPS = sizeof wraps / sizeof *wraps };

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static bool begins(const char *s, size_t n, const char *mark)
{
    return n >= strlen(mark) && memcmp(s, mark, strlen(mark)) == 0;
}

static bool may_begin(const char *s, size_t n, const char *mark)
{
    return n < strlen(mark) && memcmp(s, mark, n) == 0;
}

static bool ends(const char *s, size_t n, const char *mark)
{
    size_t k = strlen(mark);
    return n >= k && memcmp(s + n - k, mark, k) == 0;
}

static size_t count_space(const char *s, size_t n)
{
    size_t k = 0;
    while (k < n && is_space(s[k]))
        k++;
    return k;
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
        bool next = !t->begun && t->thinking_end > t->thinking_at; // another message
        if (next && sink && !sink(user, part, "\n\n", 2, err))
            return false;
        if (t->thinking_end == t->thinking_at)
            t->thinking_at = at;
        t->thinking_end = at + n;
        t->begun = true;
    }
    if (sink && !sink(user, part, t->held.data, n, err))
        return false;
    drop_held(t, n);
    return true;
}

static void go_inside(struct think_split *t, const char *close)
{
    t->state = THINK_INSIDE;
    t->close = close;
    t->begun = false;
}

// close: the mark that ends the answer, NULL: none.
static void go_to_answer(struct think_split *t, const char *close)
{
    t->state = THINK_DONE;
    t->close = close;
    t->answer_at = t->n_seen - t->held.len;
}

// A mark around the answer at s[0..n), which may begin a text or follows thinking.
static bool step_wrap(struct think_split *t, size_t space, bool first, bool *wait)
{
    const char *s = t->held.data + space;
    size_t n = t->held.len - space;
    for (size_t i = 0; i < N_WRAPS; i++) {
        if (first && !wraps[i].first)
            continue;
        if (begins(s, n, wraps[i].open)) {
            drop_held(t, space + strlen(wraps[i].open));
            t->state = THINK_GAP;
            t->close = wraps[i].close;
            t->wrapped = true;
            return true;
        }
        *wait = *wait || may_begin(s, n, wraps[i].open);
    }
    return false;
}

// At the start: an opening tag, something that may become one, or neither.
static void step_start(struct think_split *t, bool *wait)
{
    size_t space = count_space(t->held.data, t->held.len);
    const char *s = t->held.data + space;
    size_t n = t->held.len - space;
    for (size_t i = 0; i < N_TAGS; i++) {
        if (begins(s, n, tags[i].open)) {
            if (i == CHANNELS) {
                drop_held(t, space);
                t->state = THINK_HEADER;
            } else {
                drop_held(t, space + strlen(tags[i].open));
                go_inside(t, tags[i].close);
            }
            return;
        }
        *wait = *wait || may_begin(s, n, tags[i].open);
    }
    if (!step_wrap(t, space, true, wait) && !*wait)
        go_to_answer(t, NULL);
}

// Before the text of a message: the header, up to MESSAGE.
static void step_header(struct think_split *t, bool *wait)
{
    const char *s = buf_str(&t->held), *end = memmem(s, t->held.len, MESSAGE, strlen(MESSAGE));
    if (!end) {
        *wait = t->held.len <= HEADER_MAX;
        if (!*wait) // no header
            go_to_answer(t, NULL);
        return;
    }
    size_t n = (size_t)(end - s);
    const char *name = memmem(s, n, CHANNEL, strlen(CHANNEL));
    size_t at = name ? (size_t)(name - s) + strlen(CHANNEL) : n;
    bool final = at == n || begins(s + at, n - at, "final");
    drop_held(t, n + strlen(MESSAGE));
    if (final)
        go_to_answer(t, NULL);
    else
        go_inside(t, tags[CHANNELS].close);
}

// Gives what is certain to stand before t->close, without the white space before that. *found: the
// mark came, and is left out.
static bool give_up_to_close(struct think_split *t, enum answer_part part, think_sink sink,
                             void *user, bool *found, struct error *err)
{
    size_t n_close = strlen(t->close);
    const char *mark = memmem(t->held.data, t->held.len, t->close, n_close);
    *found = mark != NULL;
    if (mark) {
        size_t n = (size_t)(mark - t->held.data), keep = n;
        while (keep > 0 && is_space(t->held.data[keep - 1]))
            keep--;
        if (!give(t, part, keep, sink, user, err))
            return false;
        drop_held(t, n - keep + n_close);
        return true;
    }
    // Keep back what may begin the closing tag, and white space that may precede it.
    size_t keep = t->held.len < n_close - 1 ? t->held.len : n_close - 1;
    while (keep > 0 && memcmp(t->held.data + t->held.len - keep, t->close, keep) != 0)
        keep--;
    size_t n = t->held.len - keep;
    while (n > 0 && is_space(t->held.data[n - 1]))
        n--;
    return give(t, part, n, sink, user, err);
}

static bool step_inside(struct think_split *t, think_sink sink, void *user, bool *wait,
                        struct error *err)
{
    bool found;
    if (!t->begun) // white space before the thinking is not shown
        drop_held(t, count_space(t->held.data, t->held.len));
    if (!give_up_to_close(t, PART_THINKING, sink, user, &found, err))
        return false;
    if (found)
        t->state = THINK_GAP;
    *wait = !found;
    return true;
}

static void step_gap(struct think_split *t, bool *wait)
{
    drop_held(t, count_space(t->held.data, t->held.len));
    bool channels = t->close == tags[CHANNELS].close;
    *wait = t->held.len == 0 || (channels && may_begin(t->held.data, t->held.len, START));
    if (*wait)
        return;
    if (channels && begins(t->held.data, t->held.len, START)) {
        t->state = THINK_HEADER;
        return;
    }
    if (t->wrapped)
        go_to_answer(t, t->close);
    else if (!step_wrap(t, 0, false, wait) && !*wait)
        go_to_answer(t, NULL);
}

static bool step_answer(struct think_split *t, think_sink sink, void *user, bool *wait,
                        struct error *err)
{
    bool found = false;
    if (!t->close)
        return give(t, PART_ANSWER, t->held.len, sink, user, err);
    if (!give_up_to_close(t, PART_ANSWER, sink, user, &found, err))
        return false;
    if (found) // and white space is all that follows, if the model is what it seems
        t->close = NULL;
    *wait = !found;
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
            step_start(t, &wait);
            break;
        case THINK_HEADER:
            step_header(t, &wait);
            break;
        case THINK_INSIDE:
            ok = step_inside(t, sink, user, &wait, err);
            break;
        case THINK_GAP:
            step_gap(t, &wait);
            break;
        case THINK_DONE:
            ok = step_answer(t, sink, user, &wait, err);
            break;
        }
    }
    return ok;
}

bool think_flush(struct think_split *t, think_sink sink, void *user, struct error *err)
{
    // What might have become a mark is none now. (Half a header is neither thinking nor answer.)
    if (t->state == THINK_START || (t->state == THINK_GAP && t->held.len > 0))
        go_to_answer(t, NULL);
    if (t->state == THINK_DONE)
        return give(t, PART_ANSWER, t->held.len, sink, user, err);
    bool ok = t->state != THINK_INSIDE || give(t, PART_THINKING, t->held.len, sink, user, err);
    t->answer_at = t->n_seen;
    return ok;
}

bool think_marks(const char *source, size_t n, const char *open_tag, bool off,
                 struct thinking_marks *marks)
{
    static const char header[] = "<|end|>" START "assistant";
    *marks = (struct thinking_marks){0};
    for (size_t i = 0; i < N_TAGS; i++) {
        const char *known = i == CHANNELS ? tags[i].open : tags[i].close;
        if (!(open_tag ? strcmp(open_tag, tags[i].open) == 0
                       : n > 0 && memmem(source, n, known, strlen(known))))
            continue;
        if (i == CHANNELS) // every message has a header, also where nothing was thought
            *marks = (struct thinking_marks){
                .open = CHANNEL,
                .close = "<|end|>" START "assistant" CHANNEL "final" MESSAGE,
                .again = off ? NULL : "<|end|>" START "assistant" CHANNEL "analysis" MESSAGE,
                .header = sizeof header - 1,
                .sure = strlen(tags[i].close)};
        else if (open_tag || !off) // a model that was told not to think may not begin to
            *marks = (struct thinking_marks){.open = tags[i].open, .close = tags[i].close};
        return marks->open != NULL;
    }
    return false;
}

const char *think_open_tag_at_end(const char *text, size_t n)
{
    static const char analysis[] = CHANNEL "analysis" MESSAGE;
    while (n > 0 && is_space(text[n - 1]))
        n--;
    for (size_t i = 0; i < N_TAGS; i++) {
        const char *mark = i == CHANNELS ? analysis : tags[i].open;
        if (ends(text, n, mark))
            return tags[i].open;
    }
    return NULL;
}

size_t think_answer_end(const char *text, size_t n, size_t answer_at)
{
    size_t before = answer_at, end = n;
    while (before > 0 && is_space(text[before - 1]))
        before--;
    while (end > answer_at && is_space(text[end - 1]))
        end--;
    for (size_t i = 0; i < N_WRAPS; i++) {
        if (!ends(text, before, wraps[i].open) ||
            !ends(text + answer_at, end - answer_at, wraps[i].close))
            continue;
        end -= strlen(wraps[i].close);
        while (end > answer_at && is_space(text[end - 1]))
            end--;
        return end;
    }
    return n;
}

bool think_append(struct buf *out, const char *text, size_t begin, size_t end)
{
    while (begin < end) {
        const char *close = memmem(text + begin, end - begin, "<|end|>", 7), *next = NULL;
        if (close)
            next = memmem(close, (size_t)(text + end - close), MESSAGE, strlen(MESSAGE));
        if (!next)
            return buf_append(out, text + begin, end - begin);
        size_t n = (size_t)(close - text) - begin;
        while (n > 0 && is_space(text[begin + n - 1]))
            n--;
        if (!buf_append(out, text + begin, n) || !buf_puts(out, "\n\n"))
            return false;
        begin = (size_t)(next - text) + strlen(MESSAGE);
        begin += count_space(text + begin, end - begin);
    }
    return true;
}

// How templates name the thinking of a message. (Those that only cut it out of the content are
// served by the content.)
static const struct {
    const char *name, *uses[8];
} fields[THINK_FIELDS] = {
    {"reasoning_content", {"reasoning_content"}},
    {"thinking",
     {".thinking", "'thinking' in ", "\"thinking\" in ", "['thinking']", "[\"thinking\"]",
      "get('thinking'", "get(\"thinking\""}},
    {"reasoning",
     {".reasoning ", ".reasoning)", "['reasoning']", "[\"reasoning\"]", "get('reasoning')",
      "get(\"reasoning\")", "'reasoning' in ", "\"reasoning\" in "}},
};

unsigned think_fields(const char *source, size_t n)
{
    unsigned found = 0;
    for (unsigned i = 0; i < THINK_FIELDS; i++)
        for (size_t k = 0; k < 8 && fields[i].uses[k]; k++)
            if (memmem(source, n, fields[i].uses[k], strlen(fields[i].uses[k])))
                found |= 1u << i;
    return found;
}

const char *think_field_name(int i)
{
    return fields[i].name;
}
