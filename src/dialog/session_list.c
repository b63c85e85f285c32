// Sessions as a person reads them.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/format.h"
#include "base/termsafe.h"
#include "dialog/session_store.h"

enum { LEAST_NAME = 20, REST = 56 }; // columns: of names, and of what stands behind them usually

static int newest_first(const void *a, const void *b)
{
    const struct session_row *x = a, *y = b;
    if (x->info.saved_at != y->info.saved_at)
        return x->info.saved_at < y->info.saved_at ? 1 : -1;
    return strcmp(x->name, y->name);
}

struct session_row *session_rows(const char *state_dir, char *const *names, size_t n,
                                 struct error *err)
{
    struct session_row *rows = calloc(n + 1, sizeof *rows);
    struct buf path = {0};
    if (!rows) {
        error_oom(err, "the list of sessions", n * sizeof *rows);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        rows[i].name = names[i];
        rows[i].good = session_path(state_dir, names[i], &path, &rows[i].err) &&
                       session_file_info(path.data, &rows[i].info, &rows[i].err);
    }
    qsort(rows, n, sizeof *rows, newest_first);
    buf_release(&path);
    return rows;
}

void session_rows_free(struct session_row *rows, size_t n)
{
    for (size_t i = 0; rows && i < n; i++)
        session_info_release(&rows[i].info);
    free(rows);
}

struct session_table session_table_of(char *const *names, size_t n, size_t columns)
{
    struct session_table t = {LEAST_NAME, columns};
    const size_t most = columns > LEAST_NAME + REST ? columns - REST : LEAST_NAME;
    for (size_t i = 0; i < n; i++) {
        const size_t width = termsafe_name_width(names[i]);
        t.name = width > t.name ? width : t.name;
    }
    if (columns > 0 && t.name > most)
        t.name = most;
    return t;
}

bool session_name_column(const struct session_table *t, const char *name, struct buf *out)
{
    struct buf shown = {0};
    if (termsafe_name_width(name) > t->name)
        termsafe_excerpt(name, strlen(name), t->name, &shown);
    else
        buf_puts(&shown, name);
    const bool ok = !shown.failed && termsafe_name_column(buf_str(&shown), t->name, out);
    buf_release(&shown);
    return ok && buf_putc(out, ' ');
}

static bool put_line(const struct session_table *t, const char *name, const struct session_info *i,
                     struct buf *out)
{
    char when[32] = "?", tokens[FORMAT_NUMBER], bytes[FORMAT_NUMBER];
    const time_t saved = (time_t)i->saved_at;
    struct tm tm;
    if (localtime_r(&saved, &tm))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M", &tm);
    session_name_column(t, name, out);
    buf_printf(out, "%s · %zu turn%s, ", when, i->turns, i->turns == 1 ? "" : "s");
    if (i->tokens > 0) // none: they are counted again when it is resumed
        buf_printf(out, "%s token%s, ", format_number(tokens, i->tokens),
                   i->tokens == 1 ? "" : "s");
    return buf_printf(out, "%s · %s", format_bytes(bytes, i->bytes), i->model);
}

bool session_info_line(const struct session_table *t, const char *name,
                       const struct session_info *i, struct buf *out)
{
    struct buf line = {0};
    if (t->columns == 0)
        return put_line(t, name, i, out);
    const bool ok =
        put_line(t, name, i, &line) && termsafe_excerpt(line.data, line.len, t->columns, out);
    buf_release(&line);
    return ok;
}

bool session_markdown(const struct conversation *c, struct buf *out)
{
    static const char *const headings[] = {"System", "You", "Answer"};
    for (size_t i = 0; i < c->n_messages; i++) {
        const struct message *m = &c->messages[i];
        const char *text = buf_str(&m->text);
        size_t n = m->text.len;
        if (m->role == ROLE_ASSISTANT)
            text = message_answer(m, &n);
        buf_printf(out, "%s## %s\n\n", i > 0 ? "\n" : "", headings[m->role]);
        buf_append(out, text, n);
        if (n == 0 || text[n - 1] != '\n')
            buf_putc(out, '\n');
    }
    return !out->failed;
}
