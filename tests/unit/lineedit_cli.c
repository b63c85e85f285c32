// The line editor alone, for tests on a pseudo-terminal: reads messages until Ctrl-D and writes
// what it got to the file named first, a line each. The second argument is the prompt, a third the
// text that stands on the first line, a fourth "plain" leaves the history empty.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "editor/lineedit.h"
#include "editor/terminal.h"

static void complete(void *user, const char *line, size_t begin, struct completions *out)
{
    (void)user;
    if (begin > 0) {
        completions_add_files(out, NULL);
        return;
    }
    static const char *const names[] = {"/continue", "/context", "/read"};
    for (size_t i = 0; i < 3 && *line == '/'; i++)
        completions_add(out, names[i], strlen(names[i]));
}

int main(int argc, char **argv)
{
    static const char *const what[] = {"text", "editor", "end", "interrupt", "death"};
    struct cancel cancel = {0};
    FILE *log = argc > 2 ? fopen(argv[1], "w") : NULL;
    if (!log || !terminal_begin(STDIN_FILENO, STDERR_FILENO, true, &cancel))
        return 2;
    struct line_editor *e = lineedit_create(STDIN_FILENO, STDERR_FILENO, complete, NULL);
    const char *initial = argc > 3 && *argv[3] ? argv[3] : NULL;
    struct buf text = {0};
    enum line_result result;
    bool was_empty;
    if (argc <= 4) {
        lineedit_add_history(e, "the oldest entry");
        lineedit_add_history(e, "two\nlines");
        lineedit_add_history(e, "the newest entry");
    }
    do {
        result = lineedit_read(e, argv[2], initial, &text, &was_empty);
        initial = NULL;
        fprintf(log, "%s %d ", what[result], was_empty);
        for (size_t i = 0; i < text.len; i++)
            fprintf(log, "%02x", (unsigned char)text.data[i]);
        fputc('\n', log);
        fflush(log);
        if (result == LINE_TEXT)
            lineedit_add_history(e, buf_str(&text));
    } while (result == LINE_TEXT || result == LINE_INTERRUPT);
    buf_release(&text);
    lineedit_free(e);
    terminal_end();
    fclose(log);
    return 0;
}
