// What --help prints, from the table of options.
#include "cli/options.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { COLUMN = 30 }; // where what an option is for begins

void help_wrapped(struct buf *out, size_t column, size_t indent, size_t columns, const char *text)
{
    for (bool first = true; *text; first = false) {
        size_t len = strcspn(text, " ");
        if (!first && column + 1 + len > columns) {
            buf_printf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (!first) {
            buf_putc(out, ' ');
            column++;
        }
        buf_append(out, text, len);
        column += len;
        text += len + (text[len] == ' ');
    }
    buf_putc(out, '\n');
}

bool options_help(enum tool t, struct buf *out)
{
    if (t == TOOL_NONE) {
        buf_puts(out, "Usage: hokku [options] [PROMPT]     chat, or answer one prompt, or a pipe\n"
                      "       hokku TOOL [options] ...     hokku TOOL --help\n");
        buf_puts(out, "\nTools\n");
        for (int i = 1; i < N_TOOLS; i++)
            buf_printf(out, "  %-11s %s\n", tool_name((enum tool)i), tool_what((enum tool)i));
    } else {
        buf_printf(out, "Usage: hokku %s %s\n  %s\n", tool_name(t), tool_usage(t), tool_what(t));
    }
    size_t n;
    const struct option_def *d = options_table(&n);
    const char *group = "";
    for (size_t i = 0; i < n; i++) {
        if (!option_has_tool(&d[i], t) || !d[i].group)
            continue;
        if (strcmp(group, d[i].group) != 0) {
            group = d[i].group;
            buf_printf(out, "\n%c%s\n", toupper((unsigned char)group[0]), group + 1);
        }
        char names[80];
        int len = snprintf(names, sizeof names, "  %s%s%s%s%s",
                           d[i].short_name ? d[i].short_name : "", d[i].short_name ? ", " : "",
                           d[i].long_name, d[i].arg ? " " : "", d[i].arg ? d[i].arg : "");
        buf_printf(out, "%-*s ", COLUMN - 1, names);
        help_wrapped(out, len < COLUMN ? COLUMN : (size_t)len + 1, COLUMN, 80, d[i].help);
    }
    return !out->failed;
}
