// Commands that bring a text in or take one out: files, the clipboard, an editor.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/decimal.h"
#include "base/file.h"
#include "base/format.h"
#include "base/out.h"
#include "base/place.h"
#include "editor/terminal.h"
#include "term/actions.h"
#include "term/fence.h"

// ------------------------------------------------------------------------------------------- files

bool action_read(struct repl *r, char *arg, struct error *err)
{
    struct buf path = {0};
    bool ok = attach_path(arg, r->o->home, &path, err) &&
              attach_file(&r->attached, buf_str(&path), r->c->tmpl != NULL, r->o->cancel, err);
    if (ok) {
        char size[FORMAT_NUMBER];
        size_t n = r->attached.files[r->attached.n - 1].text.len;
        view_say(&r->view, "(%s byte%s of %s %s before your next message)\n",
                 format_number(size, n), n == 1 ? "" : "s", path.data, n == 1 ? "goes" : "go");
    }
    buf_release(&path);
    return ok;
}

bool action_detach(struct repl *r, char *arg, struct error *err)
{
    size_t n = r->attached.n;
    if (n == 0)
        return error_set(err, ERR_FAIL, "no file is attached");
    if (!*arg) {
        attached_clear(&r->attached);
        view_say(&r->view, "(no file is attached any more)\n");
        return true;
    }
    unsigned long i = strtoul(arg, NULL, 10);
    if (!decimal_whole(arg) || i < 1 || i > n)
        return error_set(err, ERR_USAGE,
                         "/detach: found \"%.40s\", expected a number from 1 to %zu", arg, n);
    view_say(&r->view, "(%s is no longer attached)\n", buf_str(&r->attached.files[i - 1].name));
    attached_drop(&r->attached, i - 1);
    return true;
}

// The answer of turn N, or the last one: without its thinking.
static bool answer_text(struct repl *r, const char *arg, const char **text, size_t *n,
                        struct error *err)
{
    size_t turns = conversation_n_turns(r->c);
    const struct message *m = conversation_last_answer(r->c);
    if (!m)
        return error_set(err, ERR_FAIL, "there is no answer yet");
    if (*arg) {
        unsigned long i = strtoul(arg, NULL, 10);
        if (!decimal_whole(arg) || i < 1 || i > turns)
            return error_set(err, ERR_USAGE, "found \"%.40s\", expected a turn from 1 to %zu", arg,
                             turns);
        m = conversation_turn(r->c, i - 1) + 1;
    }
    *text = message_answer(m, n);
    return *n > 0 || error_set(err, ERR_FAIL, "the answer has no text%s",
                               m->text.len > 0 ? " (what a model thinks is none)" : "");
}

// The last block of code; its lines alone, also when it was cut before its end.
static bool last_code(const char **text, size_t *n)
{
    const char *at = *text, *end = *text + *n, *line = at, *begin = NULL;
    struct fence f = {0};
    *text = NULL;
    for (; at < end; at++) {
        bool open = f.n > 0;
        fence_push(&f, *at);
        if (*at != '\n')
            continue;
        if (f.n > 0 && !open) {
            begin = at + 1;
        } else if (f.n == 0 && open) {
            *text = begin;
            *n = (size_t)(line - begin);
        }
        line = at + 1;
    }
    if (f.n > 0) {
        *text = begin;
        *n = (size_t)((fence_line(&f) ? line : end) - begin);
    }
    return *text != NULL;
}

bool action_copy(struct repl *r, char *arg, struct error *err)
{
    bool code = strcmp(arg, "code") == 0;
    const char *text = "";
    size_t n = 0;
    if (!answer_text(r, code ? "" : arg, &text, &n, err))
        return false;
    if (code && !last_code(&text, &n))
        return error_set(err, ERR_FAIL, "the last answer has no block of code");
    if (n == 0) // which a terminal would take for: empty the clipboard
        return error_set(err, ERR_FAIL, "the last block of code is empty");
    if (!r->view.o.err_tty || r->view.o.dumb)
        return error_set(err, ERR_FAIL,
                         "/copy needs a terminal with a clipboard; /write FILE keeps "
                         "the answer");
    if (!out_clipboard(OUT_STDERR, text, n, err))
        return false;
    char size[FORMAT_NUMBER];
    view_say(&r->view, "(%s byte%s given to the terminal's clipboard, if it takes them)\n",
             format_number(size, n), n == 1 ? "" : "s");
    return true;
}

// Where to write. "-" is standard output elsewhere (hokku sessions export), which the chat has.
static bool path_to_write(const struct repl *r, const char *arg, struct buf *path,
                          struct error *err)
{
    if (strcmp(arg, "-") == 0)
        return error_set(err, ERR_USAGE,
                         "found -, expected a file (/copy gives the answer to the clipboard); ./- "
                         "is one of that name");
    return attach_path(arg, r->o->home, path, err);
}

bool action_write(struct repl *r, char *arg, struct error *err)
{
    struct buf path = {0}, out = {0};
    const char *text = "";
    size_t n = 0;
    bool ok = answer_text(r, "", &text, &n, err) && path_to_write(r, arg, &path, err);
    if (ok) {
        buf_append(&out, text, n);
        if (n == 0 || text[n - 1] != '\n')
            buf_putc(&out, '\n');
        ok = !out.failed || error_oom(err, "the answer", n);
    }
    ok = ok && file_write_new(path.data, out.data, out.len, err);
    if (ok) {
        char size[FORMAT_NUMBER];
        view_say(&r->view, "(%s bytes written to %s)\n", format_number(size, out.len), path.data);
    }
    buf_release(&path);
    buf_release(&out);
    return ok;
}

// -------------------------------------------------------------------------------------------
// editor

static bool run_editor(const struct repl *r, const char *path, struct error *err)
{
    terminal_set_mode(TERMINAL_COOKED);
    const int status = terminal_run(r->o->editor, path);
    if (status == -1)
        return error_set(err, ERR_FAIL, "no process for the editor: %s", strerror(errno));
    return (WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
           error_set(err, ERR_FAIL, "the editor \"%.100s\" failed: the message is as it was",
                     r->o->editor);
}

bool repl_edit(struct repl *r, const char *text, struct error *err)
{
    struct buf base = {0}, path = {0}, got = {0};
    bool found = false, ok = true, written = false;
    buf_printf(&base, "%s/hokku-%ld", r->o->temp_dir, (long)getpid());
    int fd = base.failed ? -1 : place_create_temp(base.data, &path, err);
    ok = fd >= 0 && fd_write_all(fd, buf_str(&path), text, strlen(text), err);
    if (fd >= 0)
        close(fd);
    written = ok && run_editor(r, path.data, err);
    ok = written && place_read(path.data, 64 << 20, &got, &found, err) &&
         (!found || attach_is_text(path.data, &got, err));
    if (written && !ok)
        error_prefix(err, "the message is as it was, what the editor wrote stays where it is");
    if (ok && !found)
        ok =
            error_set(err, ERR_FAIL, "the editor \"%.100s\" left no file: the message is as it was",
                      r->o->editor);
    if (fd >= 0 && (ok || !written))
        unlink(path.data);
    file_drop_ends(&got);
    free(r->edit);
    r->edit = strdup(ok ? buf_str(&got) : text);
    buf_release(&base);
    buf_release(&path);
    buf_release(&got);
    return ok;
}

bool action_editor(struct repl *r, char *arg, struct error *err)
{
    return repl_edit(r, arg, err);
}

bool action_export(struct repl *r, char *arg, struct error *err)
{
    struct buf path = {0}, text = {0};
    bool ok = conversation_n_turns(r->c) > 0 ||
              error_set(err, ERR_FAIL, "there is nothing to export yet");
    ok = ok && path_to_write(r, arg, &path, err) &&
         (session_markdown(r->c, &text) || error_oom(err, "the conversation", text.len)) &&
         file_write_new(path.data, buf_str(&text), text.len, err);
    if (ok)
        view_say(&r->view, "(the conversation is written to %s)\n", path.data);
    buf_release(&path);
    buf_release(&text);
    return ok;
}
