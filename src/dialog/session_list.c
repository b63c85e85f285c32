// Sessions as a person reads them.
#include <time.h>

#include "base/format.h"
#include "base/termsafe.h"
#include "dialog/session_file.h"

bool session_name_column(const char *name, struct buf *out)
{
    return termsafe_name_column(name, 20, out) && buf_putc(out, ' ');
}

bool session_info_line(const char *name, const struct session_info *i, struct buf *out)
{
    char when[32] = "?", tokens[FORMAT_NUMBER], bytes[FORMAT_NUMBER];
    time_t t = (time_t)i->saved_at;
    struct tm tm;
    if (localtime_r(&t, &tm))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M", &tm);
    session_name_column(name, out);
    buf_printf(out, "%s · %zu turn%s, ", when, i->turns, i->turns == 1 ? "" : "s");
    if (i->tokens > 0) // none: they are counted again when it is resumed
        buf_printf(out, "%s tokens, ", format_number(tokens, i->tokens));
    return buf_printf(out, "%s · %s", format_bytes(bytes, i->bytes), i->model);
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
