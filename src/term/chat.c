#include "term/chat.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/format.h"
#include "base/mapped.h"
#include "base/out.h"
#include "base/place.h"
#include "cli/draft_model.h"
#include "cli/model_file.h"
#include "cli/shipped.h"
#include "dialog/chat_template.h"
#include "editor/terminal.h"
#include "term/batch.h"
#include "term/lines.h"
#include "term/repl.h"
#include "term/shape.h"

enum { MAX_PROMPT_BYTES = 256 << 20 };

// What is open.
struct chat {
    const struct program *p;
    struct opened opened;
    struct conversation conv;
    bool conv_open;
    struct grammar *grammar; // until it is part of the shape
    struct shape shape;      // what answers are held to
    struct session_lock session;
    char *session_name; // owned; --session, or what --continue goes on with; NULL: none
    struct buf gone;    // what is said of its model's file where that is gone; empty: it is not
    struct buf prompt, system;
};

static bool read_system(struct chat *c, struct error *err)
{
    struct options *o = c->p->opt;
    if (o->system_file &&
        !file_read_waiting(o->system_file, MAX_PROMPT_BYTES, c->p->cancel, &c->system, err))
        return false;
    file_drop_ends(&c->system);
    if (!o->system || o->system[0] != '@')
        return !o->system || buf_puts(&c->system, o->system) ||
               error_oom(err, "the system prompt", strlen(o->system));
    struct buf text = {0};
    bool ok = shipped_prompt(o, o->system + 1, &text, err);
    if (ok)
        ok = (prompt_takes_input(buf_str(&text))
                  ? (o->frame = options_own(o, buf_str(&text))) != NULL
                  : buf_append(&c->system, buf_str(&text), text.len)) ||
             error_oom(err, "the system prompt", text.len);
    buf_release(&text);
    return ok;
}

// A script that has a pipe for its input, to which nobody writes, looks like a program that hangs.
static void say_waiting(const struct program *p)
{
    enum { PATIENCE = 2 }; // seconds
    if (p->stderr_tty && !p->stdin_tty && !p->opt->quiet &&
        !fd_wait_for(STDIN_FILENO, PATIENCE, p->cancel) && !cancel_asked(p->cancel))
        out_say("hokku: waiting for standard input, which is part of the prompt, to end (with "
                "</dev/null there is none)");
}

// Argument, then -f FILE, then standard input, a blank line between. "-f -" asks for the input,
// also where it is a terminal.
static bool read_prompt(struct chat *c, bool with_stdin, struct error *err)
{
    const struct options *o = c->p->opt;
    if (o->prompt)
        buf_puts(&c->prompt, o->prompt);
    struct buf part = {0};
    bool ok = true, dash = o->file && strcmp(o->file, "-") == 0;
    with_stdin |= dash && !o->lines && !o->turns && !o->dry_run;
    for (int source = 0; ok && source < 2; source++) {
        buf_clear(&part);
        if (source == 0 && o->file && !dash)
            ok = file_read_waiting(o->file, MAX_PROMPT_BYTES, c->p->cancel, &part, err);
        if (source == 1 && with_stdin) {
            say_waiting(c->p);
            ok = fd_read_all(STDIN_FILENO, "standard input", MAX_PROMPT_BYTES, c->p->cancel, &part,
                             err);
        }
        file_drop_ends(&part);
        if (ok && part.len) {
            if (c->prompt.len)
                buf_puts(&c->prompt, "\n\n");
            buf_append(&c->prompt, part.data, part.len);
        }
    }
    buf_release(&part);
    if (ok && c->prompt.failed)
        ok = error_oom(err, "the prompt", c->prompt.len);
    return ok;
}

// The text of the chat template to use; empty: none, plain completion.
static bool choose_template(const struct program *p, const struct opened *m, struct buf *out,
                            struct error *err)
{
    const struct options *o = p->opt;
    if (o->conversation == 0)
        return true;
    if (!chat_template_choose(m->model->gguf, o->chat_template, o->chat_template_file, p->cancel,
                              out, err))
        return false;
    bool named = o->chat_template || o->chat_template_file;
    if (out->len > 0 || named)
        return true;
    if (o->conversation == 1)
        return error_set(err, ERR_USAGE,
                         "-cnv: the model has no chat template; name one with --chat-template or "
                         "--chat-template-file");
    if (p->stderr_tty && !o->quiet)
        out_say("hokku: a base model without a chat template: plain completion");
    return true;
}

static bool open_conversation(struct chat *c, const struct buf *template_text, struct error *err)
{
    bool ok = conversation_init(&c->conv, c->opened.model, c->opened.engine,
                                template_text->len ? buf_str(template_text) : NULL,
                                template_text->len, (int64_t)time(NULL), err);
    c->conv.cancel = c->p->cancel;
    c->conv.no_larger = opened_no_larger(&c->opened, c->p->opt->n_ctx);
    c->conv.special = c->p->opt->special && template_text->len == 0;
    c->conv.session.draft = c->opened.draft.engine;
    c->conv.session.predictor = c->opened.predictor.engine;
    return ok;
}

static bool begin_conversation(struct chat *c, const struct buf *template_text, struct error *err)
{
    c->conv_open = true;
    return open_conversation(c, template_text, err) &&
           (!c->system.len ||
            conversation_set_system(&c->conv, c->system.data, c->system.len, err));
}

static bool set_shape(struct chat *c, struct error *err)
{
    struct grammar *g = c->grammar;
    c->grammar = NULL;
    return !g || shape_set(&c->shape, g, shape_name(c->p->opt), c->opened.model,
                           c->p->opt->json_close, err);
}

// What is to be resumed. A session opens with its own model unless the command line names one: that
// of the environment is for what has none, and for one whose own is gone.
static bool find_session(struct chat *c, struct error *err)
{
    const struct options *o = c->p->opt;
    struct buf path = {0};
    struct session_info info = {0};
    if (o->session && !(c->session_name = strdup(o->session)))
        return error_oom(err, "a session's name", strlen(o->session));
    if (o->resume && !place_need(o->state_dir, "sessions", "XDG_STATE_HOME", err))
        return false;
    if (o->resume && !session_latest(o->state_dir, &c->session_name, err))
        return error_prefix(err, "--continue");
    if (o->resume && !c->session_name)
        return error_set(err, ERR_FAIL, "--continue: found no chat in %s/sessions", o->state_dir);
    const char *name = o->base ? o->base : c->session_name;
    // (A damaged file is reported when it is opened.)
    const bool named = options_named(o, "--model") || options_named(o, "--hf-repo");
    if (name && !named && session_find(o->state_dir, name, &path, NULL) &&
        session_file_info(path.data, &info, NULL) && info.model_path && info.model_path[0] == '/') {
        if (access(info.model_path, R_OK) == 0) {
            c->opened.path = info.model_path;
            info.model_path = NULL;
        } else {
            buf_printf(&c->gone, "session %s: its model %s cannot be read (%s)", name,
                       info.model_path, strerror(errno));
        }
    }
    session_info_release(&info);
    buf_release(&path);
    return true;
}

static bool open_its_model(struct chat *c, struct error *err)
{
    if (!open_model_and_settings(c->p, &c->opened, err))
        return c->gone.len > 0 ? error_prefix(err, "%s", c->gone.data) : false;
    if (c->gone.len > 0 && !c->p->opt->quiet)
        out_say("hokku: %s: %s is taken in its place", c->gone.data, c->opened.path);
    return true;
}

// Whoever has typed a name knows of which option it is; else that leads to where it is from.
static bool session_error(const struct options *o, const char *option, struct error *err)
{
    return options_named(o, option) ? false : error_prefix(err, "%s", option);
}

static bool resume(struct chat *c, bool chat, struct error *err)
{
    struct options *o = c->p->opt;
    struct buf note = {0}, warning = {0};
    bool ok = true;
    if (o->base)
        ok = session_open_base(o->base, &c->conv, o, &note, &warning, err) ||
             session_error(o, "--base", err);
    if (ok && c->session_name)
        ok = session_open(&c->session, c->session_name, &c->conv, o, true, &note, &warning, err) ||
             (o->resume ? error_prefix(err, "--continue: the last chat cannot be gone on with")
                        : session_error(o, "--session", err));
    else if (ok && chat)
        session_open_unnamed(&c->session, o, &warning);
    if (ok && note.len && c->p->stderr_tty && !o->quiet)
        out_say("%s", buf_str(&note));
    if (ok && o->verbose && program_resumes(c->p)) // what was saved may have brought it
        out_say("hokku: seed %llu", (unsigned long long)o->sampler.seed);
    if (ok && warning.len && !o->quiet)
        for (char *rest = warning.data, *line; (line = strsep(&rest, "\n"));)
            out_say("hokku: %s", line);
    buf_release(&note);
    buf_release(&warning);
    return ok;
}

static bool save_session(void *user, struct error *err)
{
    struct chat *c = user;
    return session_save(&c->session, &c->conv, c->p->opt, -1, err); // nobody waits for a prompt
}

// "Qwen2.5 7B Instruct · Q4_K_M · NVIDIA H200, 5.1 of 140 GB · context 32768"
static void describe(const struct program *p, const struct opened *m, struct buf *out)
{
    const struct engine *e = m->engine;
    char used[FORMAT_NUMBER], context[CONTEXT_TEXT];
    if (e->mem_used < 100 * 1000 * 1000)
        snprintf(used, sizeof used, "%s", format_bytes((char[FORMAT_NUMBER]){0}, e->mem_used));
    else
        snprintf(used, sizeof used, "%.1f", (double)e->mem_used * 1e-9);
    buf_printf(out, "%s · %s · %s, %s of %.0f GB · %s", m->model->name, m->model->quant, e->device,
               used, (double)e->mem_total * 1e-9, opened_context(m, p->opt->n_ctx, context));
}

// The engine of m, and the messages of `held` on it.
static bool move_to(struct chat *c, const struct program *p, struct opened *m, uint32_t n_ctx,
                    const struct buf *template_text, struct conversation *held, bool anew,
                    struct error *err)
{
    if (!open_engine(p, m, n_ctx, false, err))
        return false;
    struct opened was = c->opened;
    c->opened = *m;
    if (open_conversation(c, template_text, err) &&
        (!anew || conversation_read_anew(held, &c->conv, err))) {
        conversation_take_messages(&c->conv, held);
        return true;
    }
    conversation_release(&c->conv);
    c->opened = was;
    opened_close_engines(m);
    return false;
}

// What can be known before is checked before; then the engine that was open makes room, since two
// may not fit, and comes back if the other one cannot be opened.
static bool change_model(void *user, const char *name, struct buf *note, struct error *err)
{
    struct chat *c = user;
    struct options o = *c->p->opt;
    struct program p = *c->p;
    struct opened other = {0};
    struct buf text = {0}, old_text = {0};
    p.opt = &o;
    p.began = clock_now();
    o.seed_given = true; // whoever chose it: /retry SEED stays
    model_choose(&o, name);
    if (o.sampler.n_bias > 0)
        return error_set(err, ERR_USAGE,
                         "logit-bias names tokens of this model: /set logit-bias off first");
    if (c->shape.constraint)
        return error_set(err, ERR_USAGE,
                         "the schema or grammar is prepared for this model's tokens: /set schema "
                         "off first");
    struct template *tmpl = NULL;
    bool ok = open_model_and_settings(&p, &other, err) && choose_template(&p, &other, &text, err);
    if (ok && text.len > 0 && !(tmpl = template_parse(buf_str(&text), text.len, err)))
        ok = error_prefix(err, "the chat template");
    template_free(tmpl);
    size_t n_old = 0;
    const char *old = c->conv.tmpl ? template_source(c->conv.tmpl, &n_old) : "";
    ok = ok && (buf_append(&old_text, old, n_old) || error_oom(err, "the chat template", n_old));
    if (ok) {
        struct conversation held = {0};
        struct error again = {0};
        uint32_t n_ctx = c->opened.engine->n_ctx;
        conversation_take_messages(&held, &c->conv);
        conversation_release(&c->conv);
        opened_close_engines(&c->opened);
        struct opened was = c->opened;
        ok = move_to(c, &p, &other, o.n_ctx, &text, &held, true, err);
        if (ok) {
            opened_release(&was);
            other = (struct opened){0};
            o.model = c->p->opt->model;
            o.hf_repo = c->p->opt->hf_repo;
            *c->p->opt = o;
        } else {
            opened_release(&other);
            cancel_clear(c->p->cancel);
            if (!move_to(c, c->p, &was, n_ctx, &old_text, &held, false, &again))
                error_prefix(err, "the model cannot be opened again (%s), after", again.text);
        }
        conversation_release(&held);
    }
    opened_release(&other);
    buf_release(&text);
    buf_release(&old_text);
    if (ok) {
        open_say_trained(c->p, &c->opened, c->p->opt->n_ctx);
        describe(c->p, &c->opened, note);
    }
    return ok;
}

static bool run_repl(struct chat *c, const char *version, int *death, struct error *err)
{
    const struct program *p = c->p;
    struct buf banner = {0};
    const char *patch = strrchr(version, '.');
    buf_printf(&banner, "hokku %.*s · ", (int)(patch ? (size_t)(patch - version) : strlen(version)),
               version);
    describe(p, &c->opened, &banner);
    buf_puts(&banner, " · /help");
    struct repl_options r = {
        .conv = &c->conv,
        .opt = p->opt,
        .shape = &c->shape,
        .cancel = p->cancel,
        .out_tty = p->stdout_tty,
        .err_tty = p->stderr_tty,
        .out_color = program_color(p, p->stdout_tty),
        .err_color = program_color(p, p->stderr_tty),
        .dumb = p->opt->dumb,
        .banner = p->opt->quiet ? NULL : buf_str(&banner),
        .session = &c->session,
        .resumed = p->opt->base || c->session_name,
        .change_model = change_model,
        .user = c,
        .home = p->opt->home,
        .editor = p->opt->editor,
        .temp_dir = p->opt->temp_dir,
        .first_prompt = &c->prompt,
    };
    bool ok = repl_run(&r, death, err);
    buf_release(&banner);
    return ok;
}

static bool run_batch(struct chat *c, bool many, struct error *err)
{
    const struct program *p = c->p;
    struct batch b = {
        .conv = &c->conv,
        .opt = p->opt,
        .shape = &c->shape,
        .cancel = p->cancel,
        .stdout_tty = p->stdout_tty,
        .stderr_tty = p->stderr_tty,
        .color = program_color(p, p->stdout_tty) && p->stdout_tty,
        .dumb = p->opt->dumb,
        .frame = p->opt->frame,
        .after_turn = c->session.fd >= 0 ? save_session : NULL,
        .user = c,
    };
    const char *before = c->prompt.len ? buf_str(&c->prompt) : NULL;
    if (many)
        return p->opt->lines ? lines_run(&b, STDIN_FILENO, before, err)
                             : batch_turns(&b, STDIN_FILENO, before, err);
    return batch_one(&b, &c->prompt, err);
}

static bool print_plan(const struct chat *c, struct error *err)
{
    struct buf text = {0};
    struct error failed = {0};
    open_say_trained(c->p, &c->opened, c->p->opt->n_ctx);
    bool ok = open_plan(c->p, &c->opened, &text, &failed);
    bool printed = !text.len || out_text(OUT_STDOUT, buf_str(&text), text.len, err);
    buf_release(&text);
    if (!ok && printed && err)
        *err = failed;
    return ok && printed;
}

// From here on a chat has the terminal: what is typed or pasted while the model loads waits for the
// first prompt as it was typed, each line a message, each paste one.
static bool take_terminal(const struct program *p, struct error *err)
{
    if (!terminal_begin(STDIN_FILENO, OUT_STDERR, p->stderr_tty && !p->opt->dumb, p->cancel))
        return error_set(err, ERR_FAIL, "standard input is no terminal: %s", strerror(errno));
    terminal_set_mode(TERMINAL_ANSWERING);
    return true;
}

// Without a shape these two say nothing; in a chat it may come later, by /set.
static bool check_shape(const struct options *o, struct error *err)
{
    if (options_named(o, "--json-indent") && !o->json_schema)
        return error_set(err, ERR_USAGE, "--json-indent is for --json-schema, which is not there");
    if (options_named(o, "--json-close") && !o->json_schema && !o->grammar && !o->grammar_file)
        return error_set(err, ERR_USAGE,
                         "--json-close is for --json-schema, --grammar or --grammar-file, none of "
                         "which is there");
    return true;
}

// (A chat is saved, or may be.)
static bool check_saving(const struct options *o, struct error *err)
{
    return !options_named(o, "--no-kv") || o->session || o->resume ||
           error_set(err, ERR_USAGE,
                     "--no-kv is for what is saved, and nothing is: --session NAME saves it");
}

static bool check_chat(const struct options *o, struct error *err)
{
    return !options_named(o, "--json") ||
           error_set(err, ERR_USAGE,
                     "--json is for a prompt, a pipe, --lines or --turns, none of which is there: "
                     "in a chat answers are text");
}

// In a chat no text of a message becomes a control token; and a session stays as it was begun.
static bool check_special(const struct chat *c, struct error *err)
{
    if (!options_named(c->p->opt, "--special") || c->conv.special)
        return true;
    return c->conv.tmpl ? error_set(err, ERR_USAGE,
                                    "--special is for -no-cnv: by the chat template no text of a "
                                    "message is a control token")
                        : error_set(err, ERR_USAGE,
                                    "--special: the session was begun without it: leave it out, or "
                                    "begin another session");
}

// Whether to think is told to a template. (Without one thinking is told apart, and can be hidden.)
static bool check_think(const struct chat *c, struct error *err)
{
    const struct options *o = c->p->opt;
    const bool told = o->think == THINK_ON || o->think == THINK_OFF;
    return !told || c->conv.tmpl || o->conversation != 0 || !options_named(o, "--think") ||
           !options_named(o, "--no-conversation") ||
           error_set(err, ERR_USAGE,
                     "--think %s is told to the chat template, which -no-cnv does not use: leave "
                     "one of them out",
                     think_name((enum think)o->think));
}

// (An answer that has to have a shape is held to it without thinking, if that is off.)
static void say_unheard(const struct chat *c)
{
    const enum think think = (enum think)c->p->opt->think;
    if (!c->shape.constraint)
        open_say_unheard(c->p, think_name(think), conversation_unheard(&c->conv, think),
                         think == THINK_OFF ? "shows no thinking" : NULL);
}

static bool run(struct chat *c, const char *version, int *death, struct error *err)
{
    const struct program *p = c->p;
    const struct options *o = p->opt;
    bool many = o->lines || o->turns, chat = program_is_chat(p), one = !chat && !many;
    if (many && p->stdin_tty)
        return error_set(err, ERR_USAGE,
                         "%s reads standard input, which is a terminal: pipe the prompts in",
                         o->lines ? "--lines" : "--turns");
    if (!(chat ? check_chat(o, err) : check_shape(o, err) && check_saving(o, err)) ||
        !draft_check(p, err))
        return false;
    // Read before the model is loaded: a wrong file costs nothing, and waiting for a pipe overlaps
    // with nothing else.
    if (!shape_read(o, p->cancel, &c->grammar, err) || !read_system(c, err) ||
        !read_prompt(c, !p->stdin_tty && !many && !o->dry_run, err))
        return false;
    if (one && c->prompt.len == 0 && !o->dry_run)
        return error_set(err, ERR_USAGE, "no prompt: %s empty; hokku --help shows the ways in",
                         o->file && strcmp(o->file, "-") != 0 ? "the file is"
                         : o->prompt                          ? "it is"
                                                              : "standard input is");
    if (!find_session(c, err) || !open_its_model(c, err))
        return false;
    c->opened.n_seqs = lines_together(o);
    // Before a context takes what memory there is: the vocabulary's tree needs some.
    if (!set_shape(c, err))
        return false;
    if (o->dry_run)
        return print_plan(c, err);
    if (chat && !take_terminal(p, err))
        return false;
    struct buf template_text = {0};
    bool ok = choose_template(c->p, &c->opened, &template_text, err) &&
              open_engine(p, &c->opened, o->n_ctx, chat, err) &&
              begin_conversation(c, &template_text, err);
    buf_release(&template_text);
    if (ok) {
        open_say_trained(c->p, &c->opened, o->n_ctx);
        ok = resume(c, chat, err) && check_special(c, err) && check_think(c, err);
        if (ok)
            say_unheard(c);
    }
    if (!ok && chat)
        *death = terminal_death() ? terminal_death() : terminal_events().interrupt ? SIGINT : 0;
    if (!ok)
        return false;
    return chat ? run_repl(c, version, death, err) : run_batch(c, many, err);
}

bool chat_run(const struct program *p, const char *version, int *death, struct error *err)
{
    struct chat c = {.p = p, .session = SESSION_LOCK_NONE};
    bool ok = run(&c, version, death, err);
    terminal_end();
    if (mapped_failed())
        ok = mapped_error(c.session.fd >= 0, err);
    if (c.conv_open)
        conversation_release(&c.conv);
    shape_release(&c.shape);
    grammar_free(c.grammar);
    session_lock_release(&c.session);
    opened_leave(p, &c.opened);
    free(c.session_name);
    buf_release(&c.gone);
    buf_release(&c.prompt);
    buf_release(&c.system);
    return ok;
}
