#include "term/repl.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mapped.h"
#include "base/out.h"
#include "base/termsafe.h"
#include "cli/shipped.h"
#include "term/answer_options.h"
#include "term/commands.h"
#include "term/history.h"
#include "editor/keys.h"
#include "editor/terminal.h"

// ----------------------------------------------------------------------------------------
// answering

static bool on_text(void *user, enum answer_part part, const char *text, size_t n,
                    struct error *err)
{
    struct repl *r = user;
    if (view_text(&r->view, part, text, n, err))
        return true;
    r->fatal = true; // nobody reads standard output any more
    return false;
}

static void on_token(void *user, const struct decoded *d)
{
    struct repl *r = user;
    if (r->opt->logprobs > 0)
        why_add(&r->why, d);
}

static void on_prefill(void *user, size_t done, size_t total)
{
    struct repl *r = user;
    view_prefill(&r->view, done, total);
}

static void on_notice(void *user, const char *line)
{
    struct repl *r = user;
    view_say(&r->view, "(%s)\n", line);
}

static void tell_disobedience(struct repl *r)
{
    struct buf name = {0}; // of a schema it is all of its text
    const char *given = r->o->shape->name;
    termsafe_excerpt(given, strlen(given), 60, &name);
    view_say(&r->view, "(the answer does not obey %s yet)\n", buf_str(&name));
    buf_release(&name);
}

static void tell_full(struct repl *r)
{
    const unsigned n = r->c->session.engine->n_ctx;
    if (r->opt->single_turn)
        view_say(&r->view, "(cut: the context of %u tokens is full; %s--overflow shift)\n", n,
                 r->c->no_larger ? "" : "a larger -c, or ");
    else
        view_say(
            &r->view,
            "(cut: the context of %u tokens is full; /undo, /clear, %sor /set overflow %sshift)\n",
            n, r->c->no_larger ? "" : "a larger -c, ",
            r->opt->overflow == OVERFLOW_DROP ? "" : "drop or ");
}

// (Where the chat ends behind its answer, no command is named: there is no prompt for it.)
static void tell_finish(struct repl *r)
{
    struct conversation *c = r->c;
    const bool last = r->opt->single_turn;
    switch (r->finish) {
    case FINISH_INTERRUPTED:
        if (mapped_failed())
            break;
        view_say(&r->view, "(stopped%s)\n", last ? "" : "; /continue goes on");
        break;
    case FINISH_LENGTH:
        if (r->opt->n_predict == 0)
            view_say(&r->view, "(n-predict is 0%s)\n",
                     last ? "" : "; with /set n-predict N, /continue goes on");
        else
            view_say(&r->view, "(cut after %zu token%s, as n-predict says%s)\n",
                     c->session.stats.n_generated, c->session.stats.n_generated == 1 ? "" : "s",
                     last ? "" : "; /continue goes on");
        break;
    case FINISH_CONTEXT:
        tell_full(r);
        break;
    default:
        break;
    }
    if (!shape_obeyed(r->o->shape, r->finish, NULL))
        tell_disobedience(r);
}

static void show_extras(struct repl *r)
{
    struct buf text = {0};
    if (r->opt->logprobs > 0 && r->why.n > 0) {
        size_t width = r->view.o.err_tty && !r->view.o.dumb ? out_columns(OUT_STDERR) : 0;
        why_format(&r->why, r->c->model->tokenizer, r->opt->logprobs, width, r->view.o.err_color,
                   &text);
    }
    if (r->opt->stats) {
        view_stats_line(&r->c->session.stats, seq_len(r->c->session.seq),
                        r->c->session.engine->n_ctx, &text);
        buf_putc(&text, '\n');
    }
    out_painted(OUT_STDERR, buf_str(&text), text.len, NULL);
    buf_release(&text);
}

// A Ctrl-C from before means nothing to what begins now; a signal that ends the chat does.
static bool forget_interrupt(struct repl *r)
{
    bool interrupted = terminal_events().interrupt;
    cancel_clear(r->o->cancel);
    if (terminal_death() || mapped_failed())
        cancel_ask(r->o->cancel);
    return interrupted;
}

// A small save has ended before the next prompt, and its failure is told; a large one goes on.
static bool save_soon(struct repl *r, struct error *err)
{
    return session_save(r->session, r->c, r->opt, 0.05, err);
}

bool repl_answer(struct repl *r, enum answer_kind kind, struct error *err)
{
    struct answer_params p = answer_options(r->opt);
    p.makes_room = "/undo, /clear, /set overflow drop (forgets the oldest turns) or "
                   "/set overflow shift";
    p.prefill = r->prefill.data;
    p.n_prefill = r->prefill.len;
    p.constraint = r->o->shape->constraint;
    p.on_text = on_text;
    p.on_token = on_token;
    p.on_prefill = on_prefill;
    p.on_notice = on_notice;
    p.user = r;
    r->view.o.think = p.think;
    r->why.n = 0;
    size_t n_before = 0;
    if (kind == ANSWER_CONTINUE && conversation_last_answer(r->c))
        n_before = conversation_last_answer(r->c)->n_runs;
    view_begin(&r->view);
    terminal_set_mode(TERMINAL_ANSWERING);
    forget_interrupt(r);
    if (r->editor && lineedit_interrupted(r->editor))
        cancel_ask(r->o->cancel);
    bool ok = kind == ANSWER_CONTINUE ? conversation_continue(r->c, &p, &r->finish, err)
                                      : conversation_answer(r->c, &p, &r->finish, err);
    if (kind == ANSWER_CONTINUE ? ok : conversation_last_answer(r->c) != NULL)
        r->answered = true;
    struct error end = {0};
    if (!view_end(&r->view, &end)) {
        r->fatal = true;
        if (ok && err)
            *err = end;
        ok = false;
    }
    if (forget_interrupt(r) && r->editor)
        lineedit_discard_input(r->editor);
    const bool nothing =
        kind == ANSWER_CONTINUE && ok && conversation_last_answer(r->c)->n_runs == n_before;
    if (nothing && r->finish != FINISH_LENGTH)
        view_say(&r->view, "(the model has nothing to add)\n");
    else if (ok)
        tell_finish(r);
    if (ok)
        show_extras(r);
    if (ok && kind != ANSWER_CONTINUE) // which begins with what is there
        buf_clear(&r->prefill);
    struct error save = {0};
    if (conversation_last_answer(r->c) && r->session->fd >= 0 && !save_soon(r, &save))
        view_say(&r->view, "hokku: %s\n", save.text);
    return ok;
}

bool repl_answer_again(struct repl *r, uint64_t seed, struct error *err)
{
    struct conversation *c = r->c;
    const uint64_t before = r->opt->sampler.seed;
    if (!shelf_put(&r->shelf, c, err))
        return false;
    struct message old;
    if (!conversation_take_answer(c, &old, err)) {
        shelf_forget(&r->shelf);
        return false;
    }
    r->opt->sampler.seed = seed;
    bool ok = repl_answer(r, ANSWER_NEW, err);
    if (conversation_last_answer(c)) { // a new one, perhaps a partial one
        message_release(&old);
        shelf_replaced(&r->shelf, c);
        return ok;
    }
    r->opt->sampler.seed = before;
    shelf_forget(&r->shelf);
    conversation_put_answer(c, &old);
    return ok;
}

// A file that made a message fail.
static void put_aside(struct repl *r)
{
    struct buf names = {0};
    if (r->attached.n == 0)
        return;
    attached_names(&r->attached, &names);
    view_say(&r->view, "(%s is no longer attached)\n", buf_str(&names));
    attached_clear(&r->attached);
    buf_release(&names);
}

static bool send_message(struct repl *r, const char *text, size_t n, struct error *err)
{
    struct buf whole = {0};
    if (r->attached.n > 0) {
        attached_text(&r->attached, &whole);
        buf_puts(&whole, n > 0 ? "\n\n" : "");
    }
    buf_append(&whole, text, n);
    if (r->opt->frame && r->edit_turn == 0) { // (what is edited is in it already)
        struct buf framed = {0};
        prompt_fill(r->opt->frame, buf_str(&whole), whole.len, &framed);
        framed.failed |= whole.failed;
        buf_release(&whole);
        whole = framed;
    }
    bool ok = !whole.failed || error_oom(err, "the message", n);
    size_t undone = 0, turns = conversation_n_turns(r->c);
    bool replaces = r->edit_turn > 0;
    if (ok && replaces)
        replaces = ok = shelf_put(&r->shelf, r->c, err);
    if (ok && replaces)
        undone = conversation_undo(r->c, conversation_n_turns(r->c) - r->edit_turn + 1);
    ok = ok && conversation_add(r->c, ROLE_USER, buf_str(&whole), whole.len, err);
    buf_release(&whole);
    if (!ok) {
        conversation_redo(r->c, undone);
        if (replaces)
            shelf_forget(&r->shelf);
        put_aside(r);
        return false;
    }
    struct error mine = {0};
    ok = repl_answer(r, ANSWER_NEW, &mine);
    if (replaces && conversation_last_answer(r->c))
        shelf_replaced(&r->shelf, r->c);
    else if (replaces)
        shelf_forget(&r->shelf);
    else if (conversation_last_answer(r->c))
        shelf_cut(&r->shelf, turns);
    if (ok) {
        attached_clear(&r->attached);
        return true;
    }
    if (!conversation_last_answer(r->c)) {
        conversation_take_back(r->c);
        conversation_redo(r->c, undone); // an edit that failed changes nothing
        if (mine.code == ERR_INTERRUPTED && !terminal_death() && !mapped_failed())
            view_say(&r->view, "(stopped before the answer began; the message is taken back)\n");
        else
            put_aside(r);
    } else if (mine.code == ERR_INTERRUPTED && !terminal_death() && !mapped_failed()) {
        view_say(&r->view, "(stopped; /continue goes on)\n"); // (while the context shifted)
    }
    if (mine.code == ERR_INTERRUPTED)
        return true;
    if (err)
        *err = mine;
    return false;
}

void repl_show_tail(struct repl *r)
{
    const struct message *a = conversation_last_answer(r->c);
    size_t turns = conversation_n_turns(r->c);
    const struct message *u = turns > 0 ? conversation_turn(r->c, turns - 1) : NULL;
    if (!r->view.o.err_tty || r->opt->quiet || !a || !u)
        return;
    struct termout t;
    struct buf out = {0};
    termout_init(&t, r->view.o.err_color, false);
    termout_dim(&t, true, &out);
    termout_push(&t, "> ", 2, &out);
    termout_push(&t, buf_str(&u->text), u->text.len, &out);
    termout_push(&t, "\n", 1, &out);
    size_t n_answer;
    const char *answer = message_answer(a, &n_answer);
    termout_push(&t, answer, n_answer, &out);
    termout_end(&t, &out);
    if (!termout_at_line_start(&t))
        buf_putc(&out, '\n');
    out_painted(OUT_STDERR, buf_str(&out), out.len, NULL);
    termout_release(&t);
    buf_release(&out);
}

// ------------------------------------------------------------------------------------------
// reading

// Without a terminal for the prompt (standard error goes elsewhere), or with one that knows no
// escape sequences, the kernel's own line editing must do. It keeps so much of a line, and no more.
enum { PLAIN_LINE_MAX = 4095 };

// Of a line that the terminal gave as it was typed: the text, without keys that are none (arrows
// and the like), and what the terminal said of its own accord.
static void drop_keys(struct buf *line)
{
    struct keys keys = {0};
    struct buf text = {0};
    for (size_t i = 0; i < line->len;) {
        struct key k;
        i += keys_next(&keys, line->data + i, line->len - i, &k);
        if (k.verb == KEY_TYPE)
            buf_append(&text, k.text, k.n);
        else if (k.verb == KEY_COMPLETE)
            buf_putc(&text, '\t');
    }
    keys_release(&keys);
    buf_release(line);
    *line = text;
}

static enum line_result plain_line(struct repl *r, const char *prompt, const char *initial,
                                   struct buf *line)
{
    buf_clear(line);
    terminal_set_mode(TERMINAL_COOKED);
    if (r->view.o.err_tty) {
        if (initial) // cannot be put on the line: to be typed again, or copied
            view_show(&r->view, initial, strlen(initial));
        view_say(&r->view, "%s", prompt);
    }
    for (;;) {
        struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                              {.fd = terminal_event_fd(), .events = POLLIN}};
        char c;
        if (terminal_death())
            return LINE_DEATH;
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return LINE_END;
        if (p[1].revents) {
            struct terminal_events e = terminal_events();
            if (e.stop)
                terminal_suspend();
            if (e.interrupt) {
                if (r->view.o.err_tty)
                    view_say(&r->view, "\n");
                return LINE_INTERRUPT;
            }
        }
        if (!p[0].revents)
            continue;
        if (terminal_await())
            continue;
        ssize_t n = read(STDIN_FILENO, &c, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return line->len > 0 ? LINE_TEXT : LINE_END;
        if (c == '\n') {
            r->line_cut = r->line_cut || line->len >= PLAIN_LINE_MAX;
            drop_keys(line);
            return LINE_TEXT;
        }
        buf_putc(line, c);
    }
}

static enum line_result one_line(struct repl *r, const char *prompt, const char *initial,
                                 struct buf *line, bool *was_empty)
{
    enum line_result result;
    terminal_set_reading(true);
    if (r->editor) {
        result = lineedit_read(r->editor, prompt, initial, line, was_empty);
    } else {
        result = plain_line(r, prompt, initial, line);
        *was_empty = line->len == 0;
    }
    terminal_set_reading(false);
    return result;
}

static bool ends_with(const struct buf *b, const char *tail)
{
    size_t n = strlen(tail);
    return b->len >= n && memcmp(b->data + b->len - n, tail, n) == 0;
}

// Where """ begins a message, or the text of /system; SIZE_MAX: nowhere.
static size_t block_at(const struct buf *line)
{
    static const char quotes[] = "\"\"\"", command[] = "/system ";
    const char *text = buf_str(line);
    size_t at = strncmp(text, command, strlen(command)) == 0 ? strlen(command) : 0;
    at += at > 0 ? strspn(text + at, " \t") : 0;
    return strncmp(text + at, quotes, strlen(quotes)) == 0 ? at : SIZE_MAX;
}

// What is typed after """ up to the next, behind the line that begins it. The end of the input
// loses nothing at once: whoever takes it for the end of the message has another try.
static enum line_result read_block(struct repl *r, struct buf *line, size_t at, struct buf *message,
                                   bool *was_empty)
{
    enum line_result result = LINE_TEXT;
    const size_t begin = at + (line->data[at + 3] == '\n' ? 4 : 3);
    buf_append(message, line->data, at);
    buf_append(message, line->data + begin, line->len - begin);
    for (bool warned = false; result == LINE_TEXT && !ends_with(message, "\"\"\"");) {
        result = one_line(r, ". ", NULL, line, was_empty);
        if (result == LINE_END && !warned) {
            view_say(&r->view, "\n(\"\"\" ends the message, Ctrl-D once more leaves)\n");
            warned = true;
            result = LINE_TEXT;
            continue;
        }
        warned = false;
        if (message->len > at || line->len == 0)
            buf_putc(message, '\n');
        buf_append(message, buf_str(line), line->len);
    }
    if (result == LINE_TEXT) {
        message->len -= 3;
        if (ends_with(message, "\n"))
            message->len--;
        message->data[message->len] = '\0';
    }
    return result;
}

// One message: a line; lines joined by a final backslash; or what stands between """ and """, which
// is *no_command.
static enum line_result read_message(struct repl *r, const char *prompt, struct buf *message,
                                     bool *was_empty, bool *no_command)
{
    struct buf line = {0};
    buf_clear(message);
    enum line_result result = one_line(r, prompt, r->edit, &line, was_empty);
    const size_t at = block_at(&line);
    bool block = result == LINE_TEXT && at != SIZE_MAX;
    if (block && memchr(line.data, '\n', line.len)) // a paste, which is whole as it is
        block = line.len >= at + 6 && ends_with(&line, "\"\"\"");
    *no_command = block && at == 0;
    if (block) {
        result = read_block(r, &line, at, message, was_empty);
    } else {
        buf_append(message, buf_str(&line), line.len);
        while (result == LINE_TEXT && ends_with(message, "\\")) {
            message->data[message->len - 1] = '\n';
            result = one_line(r, ". ", NULL, &line, was_empty);
            buf_append(message, buf_str(&line), line.len);
        }
    }
    if (result == LINE_INTERRUPT && message->len > 0)
        *was_empty = false;
    if (result == LINE_TEXT && r->line_cut) { // half a message must not be answered
        view_say(&r->view, "hokku: the line is longer than the 4,095 bytes that this terminal "
                           "gives: nothing is sent; /read FILE or /editor takes it whole\n");
        result = LINE_INTERRUPT;
        *was_empty = false;
    }
    r->line_cut = false;
    buf_release(&line);
    return result;
}

static void keep_history(struct repl *r, const char *entry)
{
    struct buf path = {0};
    struct error e = {0};
    if (r->editor)
        lineedit_add_history(r->editor, entry);
    if (r->opt->no_history || !r->opt->state_dir)
        return;
    buf_printf(&path, "%s/history", r->opt->state_dir);
    if (!history_append(buf_str(&path), entry, &e) && !r->history_failed) {
        r->history_failed = true;
        view_say(&r->view, "hokku: the history is not kept: %s\n", e.text);
    }
    buf_release(&path);
}

// A message that only looks like a command, with the quotes that make it a message again.
static void keep_quoted(struct repl *r, const char *message)
{
    struct buf entry = {0};
    if (buf_printf(&entry, "\"\"\"%s\"\"\"", message))
        keep_history(r, entry.data);
    buf_release(&entry);
}

static void add_entry(void *user, const char *entry)
{
    struct repl *r = user;
    lineedit_add_history(r->editor, entry);
}

static void load_history(struct repl *r)
{
    struct buf path = {0};
    struct error e = {0};
    if (r->opt->no_history || !r->opt->state_dir || !r->editor)
        return;
    buf_printf(&path, "%s/history", r->opt->state_dir);
    if (!history_load(buf_str(&path), add_entry, r, &e))
        view_say(&r->view, "hokku: %s\n", e.text);
    buf_release(&path);
}

// "notes.txt session> ": what goes with the next message, and where it is saved.
static void make_prompt(struct repl *r, struct buf *out)
{
    struct buf raw = {0};
    buf_clear(out);
    if (r->attached.n > 0) {
        buf_puts(&raw, "[");
        attached_names(&r->attached, &raw);
        buf_puts(&raw, "] ");
    }
    if (repl_is_named(r))
        buf_puts(&raw, r->session->name);
    termsafe_text(buf_str(&raw), raw.len, true, out);
    buf_puts(out, "> ");
    buf_release(&raw);
}

static bool is_blank(const struct buf *b)
{
    return strspn(buf_str(b), " \t\n\r") == b->len;
}

// One round: a message or a command. Errors are said; false only when going on makes no sense.
static bool one_round(struct repl *r, int *death, struct error *err)
{
    struct buf prompt = {0}, message = {0};
    struct error e = {0};
    bool was_empty, no_command, ok = true;
    make_prompt(r, &prompt);
    enum line_result result = read_message(r, buf_str(&prompt), &message, &was_empty, &no_command);
    // A message that began with / (a file's, or a command line's) is no command when it is edited.
    no_command = no_command || r->edit_no_command || (r->edit_turn > 0 && r->edit[0] == '/');
    r->edit_no_command = no_command && result == LINE_EDITOR;
    const bool slash = message.len > 0 && message.data[0] == '/';
    free(r->edit);
    r->edit = NULL;
    switch (result) {
    case LINE_DEATH:
        *death = terminal_death();
        r->leave = true;
        break;
    case LINE_END:
        if (r->view.o.err_tty)
            view_say(&r->view, "\n");
        r->leave = true;
        break;
    case LINE_INTERRUPT:
        if (was_empty)
            view_say(&r->view, "(Ctrl-D or /bye leaves, %s/help lists the commands)\n",
                     r->attached.n > 0 ? "/detach leaves files out, " : "");
        break;
    case LINE_EDITOR:
        ok = repl_edit(r, buf_str(&message), &e);
        forget_interrupt(r);
        break;
    case LINE_TEXT:
        if (is_blank(&message) && r->attached.n == 0)
            break;
        if (is_blank(&message)) // the files alone
            buf_clear(&message);
        else
            (slash && no_command ? keep_quoted : keep_history)(r, buf_str(&message));
        forget_interrupt(r);
        if (slash && !no_command)
            ok = command_run(r, message.data, &e);
        else
            ok = send_message(r, buf_str(&message), message.len, &e);
        break;
    }
    if (r->edit == NULL)
        r->edit_turn = 0;
    if (!ok && !r->fatal && e.code == ERR_INTERRUPTED && !terminal_death() && !mapped_failed())
        view_say(&r->view, "(stopped)\n");
    else if (!ok && !r->fatal && e.code != ERR_INTERRUPTED)
        view_say(&r->view, "hokku: %s\n", e.text);
    if (result == LINE_TEXT)
        forget_interrupt(r);
    if (terminal_death()) {
        *death = terminal_death();
        r->leave = true;
    }
    r->leave = r->leave || mapped_failed(); // main says so
    if (r->fatal && err)
        *err = e;
    buf_release(&prompt);
    buf_release(&message);
    return !r->fatal;
}

bool repl_run(const struct repl_options *o, int *death, struct error *err)
{
    struct repl r = {
        .o = o, .opt = o->opt, .c = o->conv, .session = o->session, .shelf.opt = o->opt};
    const struct view_options vo = {
        .out_tty = o->out_tty,
        .err_tty = o->err_tty,
        .out_color = o->out_color,
        .err_color = o->err_color,
        .dumb = o->dumb,
        .quiet = o->opt->quiet,
        .think = (enum think)o->opt->think,
    };
    bool ok = true;
    *death = 0;
    view_init(&r.view, &vo);
    if (o->err_tty && !o->dumb) {
        r.editor = lineedit_create(STDIN_FILENO, OUT_STDERR, command_complete, &r);
        if (!r.editor) {
            view_release(&r.view);
            return error_oom(err, "the line editor", 0);
        }
        lineedit_set_color(r.editor, o->err_color);
    }
    if (o->err_tty) {
        load_history(&r);
        if (!o->opt->quiet && o->banner)
            view_say(&r.view, "%s\n", o->banner);
        if (o->resumed)
            repl_show_tail(&r);
    }
    if (o->opt->prefill)
        buf_puts(&r.prefill, o->opt->prefill);
    if (o->first_prompt->len > 0) {
        struct error e = {0};
        if (!send_message(&r, buf_str(o->first_prompt), o->first_prompt->len, &e)) {
            ok = !r.fatal;
            view_say(&r.view, "hokku: %s\n", e.text);
            if (r.fatal && err)
                *err = e;
        }
        r.leave = r.leave || o->opt->single_turn || mapped_failed();
    }
    while (ok && !r.leave) {
        ok = one_round(&r, death, err);
        if (o->opt->single_turn && r.answered)
            break;
    }
    // Settings and the system prompt may have changed since the last turn.
    struct error save = {0};
    // An unnamed chat in which nothing was said, or all of it taken back, is not kept.
    if (conversation_n_turns(r.c) == 0)
        session_remove_empty(r.session);
    if (r.session->fd >= 0 &&
        (r.session->unnamed ? conversation_n_turns(r.c) : r.c->n_messages) > 0 &&
        !session_save(r.session, r.c, r.opt, -1, &save)) {
        if (ok && !r.session->unnamed && !*death) { // it was asked for
            ok = false;
            if (err)
                *err = save;
        } else {
            view_say(&r.view, "hokku: %s\n", save.text);
        }
    }
    shelf_release(&r.shelf);
    lineedit_free(r.editor);
    free(r.edit);
    attached_clear(&r.attached);
    buf_release(&r.prefill);
    why_release(&r.why);
    view_release(&r.view);
    return ok;
}
