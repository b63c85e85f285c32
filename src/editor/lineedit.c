#include "editor/lineedit.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "editor/edit.h"
#include "editor/keys.h"
#include "editor/painter.h"
#include "editor/terminal.h"

struct entry {
    char *text;   // NULL: the new message, which is the last entry
    char *edited; // changed since, until this message is done
};

struct line_editor {
    int fd_in, fd_out;
    complete_fn *complete;
    void *user;
    struct edit edit;
    struct keys keys;
    struct painter painter;
    const char *prompt;
    enum verb last; // key
    size_t goal;    // column that Up and Down try to keep
    // input
    char input[1 << 16];
    size_t at, n;
    double last_read, gap; // when bytes came last, and how long after those before
    // history
    struct entry *history;
    size_t n_history, cap_history; // and one more: the new message
    size_t place;
    // Ctrl-R
    bool searching, no_match;
    struct buf query, search_prompt;
    size_t search_from, search_at; // place and cursor where it began
    // The terminal has been asked where its cursor is, after a resize.
    unsigned asked;
    size_t asked_cols, asked_rows; // the window's size then
    double deadline;
    bool mute; // it does not answer
};

struct line_editor *lineedit_create(int fd_in, int fd_out, complete_fn *complete, void *user)
{
    struct line_editor *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    *e = (struct line_editor){
        .fd_in = fd_in, .fd_out = fd_out, .complete = complete, .user = user, .cap_history = 1};
    e->painter.fd = fd_out;
    e->history = calloc(1, sizeof *e->history);
    if (!e->history) {
        free(e);
        return NULL;
    }
    return e;
}

void lineedit_free(struct line_editor *e)
{
    if (!e)
        return;
    for (size_t i = 0; i <= e->n_history; i++) {
        free(e->history[i].text);
        free(e->history[i].edited);
    }
    free(e->history);
    edit_release(&e->edit);
    keys_release(&e->keys);
    painter_release(&e->painter);
    buf_release(&e->query);
    buf_release(&e->search_prompt);
    free(e);
}

void lineedit_discard_input(struct line_editor *e)
{
    e->at = e->n = 0;
    keys_release(&e->keys);
}

bool lineedit_interrupted(struct line_editor *e)
{
    static const char paste[] = "\033[200~";
    const char *begin = e->input + e->at;
    size_t n = e->n - e->at;
    const char *pasted = memmem(begin, n, paste, sizeof paste - 1);
    n = pasted ? (size_t)(pasted - begin) : n;
    if (!memchr(begin, '\003', n))
        return false;
    lineedit_discard_input(e);
    return true;
}

// ---------------------------------------------------------------------------------- history

void lineedit_add_history(struct line_editor *e, const char *entry)
{
    if (e->n_history > 0 && strcmp(e->history[e->n_history - 1].text, entry) == 0)
        return;
    if (!array_grow(NULL, &e->history, e->n_history + 1, &e->cap_history, sizeof *e->history))
        return; // it is not offered again, which is all
    char *copy = strdup(entry);
    if (!copy)
        return;
    e->history[e->n_history++] = (struct entry){.text = copy};
    e->history[e->n_history] = (struct entry){0};
}

// Shows another entry; what was done to this one is kept until the message is done.
static bool show_entry(struct line_editor *e, size_t i)
{
    char *copy = strdup(buf_str(&e->edit.text));
    if (!copy)
        return false;
    free(e->history[e->place].edited);
    e->history[e->place].edited = copy;
    const struct entry *h = &e->history[i];
    const char *text = h->edited ? h->edited : h->text ? h->text : "";
    e->place = i;
    return edit_set(&e->edit, text, strlen(text));
}

static void forget_edited(struct line_editor *e)
{
    for (size_t i = 0; i <= e->n_history; i++) {
        free(e->history[i].edited);
        e->history[i].edited = NULL;
    }
}

static bool older(struct line_editor *e)
{
    return e->place == 0 || show_entry(e, e->place - 1);
}

static bool newer(struct line_editor *e)
{
    return e->place == e->n_history || show_entry(e, e->place + 1);
}

// The newest entry before `before` that holds the query.
static void search(struct line_editor *e, size_t before)
{
    for (size_t i = before; i-- > 0;) {
        const char *found = strstr(e->history[i].text, buf_str(&e->query));
        if (found && show_entry(e, i)) {
            // (an edited entry may have lost it)
            found = strstr(buf_str(&e->edit.text), buf_str(&e->query));
            e->edit.at = found ? (size_t)(found - e->edit.text.data) : e->edit.text.len;
            e->no_match = false;
            return;
        }
    }
    e->no_match = true;
}

static void begin_search(struct line_editor *e)
{
    e->searching = true;
    e->no_match = false;
    e->search_from = e->place;
    e->search_at = e->edit.at;
    buf_clear(&e->query);
}

// Returns false when the key ends the search and then does what it does elsewhere.
static bool search_key(struct line_editor *e, const struct key *k)
{
    bool left = k->verb == KEY_DELETE && k->where == WHERE_LEFT;
    if (k->verb == KEY_SEARCH) {
        if (e->query.len > 0)
            search(e, e->place);
    } else if (k->verb == KEY_TYPE) {
        buf_append(&e->query, k->text, k->n);
        search(e, e->place < e->n_history ? e->place + 1 : e->n_history);
    } else if (left && e->query.len > 0) {
        e->query.len = cluster_before(e->query.data, e->query.len);
        e->query.data[e->query.len] = '\0';
        search(e, e->n_history);
    } else if (k->verb == KEY_CANCEL || k->verb == KEY_INTERRUPT || left) {
        e->searching = false;
        if (show_entry(e, e->search_from))
            e->edit.at = e->search_at < e->edit.text.len ? e->search_at : e->edit.text.len;
    } else {
        e->searching = false;
        return false;
    }
    return true;
}

// ---------------------------------------------------------------------------------- showing

static struct message message(struct line_editor *e)
{
    struct message m = {e->prompt, buf_str(&e->edit.text), e->edit.text.len, e->edit.at};
    if (e->searching) {
        struct buf safe = {0};
        struct cluster c;
        for (size_t i = 0; i < e->query.len; i += c.n) {
            c = cluster_at(e->query.data + i, e->query.len - i);
            cluster_show(e->query.data + i, &c, &safe);
        }
        buf_clear(&e->search_prompt);
        buf_printf(&e->search_prompt, "%s '%s': ", e->no_match ? "no match for" : "search",
                   buf_str(&safe));
        buf_release(&safe);
        m.prompt = buf_str(&e->search_prompt);
    }
    return m;
}

static void paint(struct line_editor *e)
{
    struct message m = message(e);
    painter_paint(&e->painter, &m);
}

static void leave(struct line_editor *e, bool whole)
{
    struct message m = message(e);
    painter_leave(&e->painter, &m, whole);
}

static void suspend(struct line_editor *e)
{
    leave(e, false);
    terminal_suspend();
    terminal_size(e->fd_out, &e->painter.cols, &e->painter.rows);
}

static void resized(struct line_editor *e, size_t row, size_t column)
{
    size_t cols, rows;
    e->asked = 0;
    terminal_size(e->fd_out, &cols, &rows);
    struct message m = message(e);
    painter_resize(&e->painter, &m, cols, rows, row, column);
}

static bool size_is(const struct line_editor *e, size_t cols, size_t rows)
{
    size_t now_cols, now_rows;
    terminal_size(e->fd_out, &now_cols, &now_rows);
    return now_cols == cols && now_rows == rows;
}

static void ask_for_cursor(struct line_editor *e)
{
    if (e->mute) {
        resized(e, 0, 0);
        return;
    }
    e->asked++;
    terminal_size(e->fd_out, &e->asked_cols, &e->asked_rows);
    e->deadline = clock_now() + 1;
    painter_put(&e->painter, "\033[6n");
    painter_flush(&e->painter);
}

// ---------------------------------------------------------------------------------- keys

static bool more_input_soon(const struct line_editor *e, int ms)
{
    struct pollfd p = {.fd = e->fd_in, .events = POLLIN};
    return e->at < e->n || poll(&p, 1, ms) > 0;
}

// A program that types for someone ("text\n" in one write) means Enter: nobody types a letter and
// Ctrl-J within a hundredth of a second and then nothing more.
static bool control_j_is_enter(struct line_editor *e)
{
    bool burst = e->edit.text.len == 0 || e->at > 1 || e->gap < 0.01;
    return burst && !more_input_soon(e, 20);
}

// One row up or down, or a page; false at the first or last.
static bool vertical(struct line_editor *e, const struct key *k)
{
    struct message m = message(e);
    struct layout l = painter_layout(&e->painter, &m);
    struct row r = layout_row_of(&l, e->edit.at);
    bool up = k->verb == KEY_UP || k->verb == KEY_PAGE_UP;
    bool page = k->verb == KEY_PAGE_UP || k->verb == KEY_PAGE_DOWN;
    size_t n = page && e->painter.rows > 2 ? e->painter.rows - 1 : 1;
    if (e->last < KEY_UP || e->last > KEY_PAGE_DOWN)
        e->goal = layout_column(&l, &r, e->edit.at);
    if (up ? r.begin == 0 : r.kind == ROW_LAST)
        return page;
    for (; n > 0 && (up ? r.begin > 0 : r.kind != ROW_LAST); n--)
        r = up ? layout_row_of(&l, r.begin - 1) : layout_row(&l, r.next);
    e->edit.at = layout_position(&l, &r, e->goal);
    return true;
}

static bool complete(struct line_editor *e)
{
    struct edit *t = &e->edit;
    struct completions c = {0};
    char *line = strndup(buf_str(&t->text), t->at);
    if (!line || !e->complete) {
        free(line);
        return line || !e->complete;
    }
    size_t begin = completions_word(line);
    c.word = line + begin;
    e->complete(e->user, line, begin, &c);
    size_t n_word = t->at - begin, common = completions_common(&c);
    bool ok = true;
    if (c.n > 0 && common > n_word)
        ok = edit_insert(t, c.items[0] + n_word, common - n_word);
    if (c.n == 1 && c.items[0][common - 1] != '/') {
        const char quote[2] = {completions_quote(&c)};
        ok = ok && edit_insert(t, quote, strlen(quote)) && edit_insert(t, " ", 1);
    }
    if (c.n > 1) {
        struct buf list = {0};
        completions_list(&c, e->painter.cols, &list);
        size_t at = t->at;
        leave(e, false);
        t->at = at;
        painter_put(&e->painter, buf_str(&list));
        buf_release(&list);
    }
    completions_release(&c);
    free(line);
    return ok;
}

// Returns true when the message is done: *result.
static bool act(struct line_editor *e, const struct key *k, enum line_result *result)
{
    struct edit *t = &e->edit;
    bool ok = true;
    if (k->verb == KEY_REPORT) {
        if (e->asked > 0 && --e->asked == 0) {
            if (size_is(e, e->asked_cols, e->asked_rows))
                resized(e, k->row, k->column);
            else
                ask_for_cursor(e); // the answer may be from before
        }
        return false;
    }
    if (e->searching && search_key(e, k))
        return false;
    switch (k->verb) {
    case KEY_NONE:
    case KEY_CANCEL:
    case KEY_REPORT:
        break;
    case KEY_MOVE:
        t->at = edit_find(t, k->where);
        break;
    case KEY_DELETE:
        ok = edit_delete(t, k->where);
        break;
    case KEY_KILL:
        ok = edit_kill(t, k->where, e->last == KEY_KILL);
        break;
    case KEY_TYPE:
        ok = edit_type(t, k->text, k->n);
        break;
    case KEY_PASTE:
        ok = !e->keys.pasted.failed && edit_insert(t, buf_str(&e->keys.pasted), e->keys.pasted.len);
        buf_release(&e->keys.pasted);
        break;
    case KEY_CONTROL_J:
        if (control_j_is_enter(e)) {
            *result = LINE_TEXT;
            return true;
        }
        ok = edit_insert(t, "\n", 1);
        break;
    case KEY_NEWLINE:
        ok = edit_insert(t, "\n", 1);
        break;
    case KEY_YANK:
        ok = edit_insert(t, buf_str(&t->killed), t->killed.len);
        break;
    case KEY_TRANSPOSE:
        ok = edit_transpose(t);
        break;
    case KEY_UNDO:
        ok = edit_undo(t);
        break;
    case KEY_COMPLETE:
        ok = complete(e);
        break;
    case KEY_UP:
    case KEY_DOWN:
    case KEY_PAGE_UP:
    case KEY_PAGE_DOWN:
        if (!vertical(e, k)) {
            struct key entry = {.verb = k->verb == KEY_UP ? KEY_OLDER : KEY_NEWER};
            return act(e, &entry, result); // Up and Down then keep another column
        }
        break;
    case KEY_OLDER:
        ok = older(e);
        break;
    case KEY_NEWER:
        ok = newer(e);
        break;
    case KEY_SEARCH:
        begin_search(e);
        break;
    case KEY_CLEAR:
        painter_clear_screen(&e->painter);
        break;
    case KEY_SUSPEND: // to all of a pipeline, as the terminal would
        terminal_signal_group(SIGTSTP);
        break;
    case KEY_QUIT:
        terminal_signal_group(SIGQUIT);
        break;
    case KEY_ENTER:
        *result = LINE_TEXT;
        return true;
    case KEY_EDITOR:
        *result = LINE_EDITOR;
        return true;
    case KEY_INTERRUPT:
        *result = LINE_INTERRUPT;
        return true;
    case KEY_END_OR_DELETE:
        *result = LINE_END;
        if (t->text.len == 0)
            return true;
        ok = edit_delete(t, WHERE_RIGHT);
        break;
    }
    e->last = k->verb;
    if (!ok) // no memory, or nothing to undo
        painter_put(&e->painter, "\a");
    return false;
}

// ---------------------------------------------------------------------------------- reading

// Returns true when the message is done: *result.
static bool take_input(struct line_editor *e, enum line_result *result)
{
    while (e->at < e->n) {
        struct key k;
        e->at += keys_next(&e->keys, e->input + e->at, e->n - e->at, &k);
        if (k.verb != KEY_NONE && act(e, &k, result))
            return true;
    }
    // A paste whose end got lost would take all keys. Ctrl-C, and nothing behind it, ends it.
    const struct buf *pasted = &e->keys.pasted;
    if (e->keys.in_paste && pasted->len > 0 && pasted->data[pasted->len - 1] == '\003' &&
        !more_input_soon(e, 50)) {
        lineedit_discard_input(e);
        *result = LINE_INTERRUPT;
        return true;
    }
    return false;
}

static bool read_input(struct line_editor *e)
{
    e->at = e->n = 0;
    if (terminal_await())
        return true;
    ssize_t n = read(e->fd_in, e->input, sizeof e->input);
    if (n < 0 && errno == EINTR)
        return true;
    double now = clock_now();
    e->gap = now - e->last_read;
    e->last_read = now;
    e->n = n > 0 ? (size_t)n : 0;
    return n > 0;
}

// Keys behind the Enter that have come by now.
static void read_ahead(struct line_editor *e)
{
    struct pollfd p = {.fd = e->fd_in, .events = POLLIN};
    memmove(e->input, e->input + e->at, e->n - e->at);
    e->n -= e->at;
    e->at = 0;
    if (e->n < sizeof e->input && poll(&p, 1, 0) > 0 && (p.revents & POLLIN)) {
        const ssize_t n = read(e->fd_in, e->input + e->n, sizeof e->input - e->n);
        e->n += n > 0 ? (size_t)n : 0;
    }
}

static enum line_result edit_message(struct line_editor *e)
{
    enum line_result result;
    while (!take_input(e, &result)) {
        if (e->asked > 0 && clock_now() >= e->deadline) {
            e->mute = true;
            resized(e, 0, 0);
        }
        if (e->asked == 0 &&
            !size_is(e, e->painter.cols, e->painter.rows)) // its signal is still on the way
            ask_for_cursor(e);
        if (e->asked == 0 && !e->keys.in_paste && !more_input_soon(e, 0))
            paint(e);
        struct pollfd p[2] = {{.fd = e->fd_in, .events = POLLIN},
                              {.fd = terminal_event_fd(), .events = POLLIN}};
        if (terminal_death())
            return LINE_DEATH;
        if (poll(p, 2, e->asked > 0 ? 50 : -1) < 0 && errno != EINTR)
            return LINE_END;
        if (p[1].revents) {
            struct terminal_events ev = terminal_events();
            if (ev.resize)
                ask_for_cursor(e);
            if (ev.stop)
                suspend(e);
            if (ev.interrupt)
                return LINE_INTERRUPT;
        }
        if (p[0].revents && !read_input(e))
            return terminal_death() ? LINE_DEATH : LINE_END;
    }
    return result;
}

void lineedit_set_color(struct line_editor *e, bool on)
{
    e->painter.color = on;
}

enum line_result lineedit_read(struct line_editor *e, const char *prompt, const char *initial,
                               struct buf *text, bool *was_empty)
{
    buf_clear(text);
    e->prompt = prompt;
    e->searching = false;
    e->last = KEY_NONE;
    e->asked = 0;
    e->place = e->n_history;
    painter_start(&e->painter);
    e->painter.top = 0;
    edit_set(&e->edit, initial ? initial : "", initial ? strlen(initial) : 0);
    terminal_events();
    terminal_set_mode(TERMINAL_EDITING);
    terminal_size(e->fd_out, &e->painter.cols, &e->painter.rows);
    enum line_result result = edit_message(e);
    if (e->asked > 0)
        resized(e, 0, 0);
    e->searching = false;
    if (result != LINE_END)
        leave(e, true);
    if (result == LINE_TEXT)
        read_ahead(e);
    terminal_set_mode(TERMINAL_ANSWERING);
    *was_empty = e->edit.text.len == 0;
    if ((result == LINE_TEXT || result == LINE_EDITOR) &&
        !buf_append(text, buf_str(&e->edit.text), e->edit.text.len))
        result = LINE_INTERRUPT; // no memory even for a copy
    edit_set(&e->edit, "", 0);
    forget_edited(e);
    return result;
}
