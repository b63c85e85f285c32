#include "term/actions.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/decimal.h"
#include "base/format.h"
#include "base/out.h"
#include "base/termsafe.h"
#include "cli/shipped.h"

static bool whole_number(const char *arg, const char *what, uint64_t least, uint64_t most,
                         uint64_t *out, struct error *err)
{
    errno = 0;
    unsigned long long v = strtoull(arg, NULL, 10);
    if (!decimal_whole(arg) || errno || *arg == '-' || v < least || v > most)
        return error_set(err, ERR_USAGE, "found \"%.40s\", expected %s", arg, what);
    *out = v;
    return true;
}

static const char *plural(size_t n)
{
    return n == 1 ? "" : "s";
}

bool action_bye(struct repl *r, char *arg, struct error *err)
{
    (void)arg, (void)err;
    r->leave = true;
    return true;
}

// The tokens of the conversation. The memory holds others: fewer, until it reads again what /undo
// brought back, or those that are left of a conversation longer than the context, which count.
static size_t tokens_used(struct repl *r)
{
    size_t turns = conversation_n_turns(r->c), n = 0;
    size_t *counts = calloc(turns + 1, sizeof *counts);
    bool ok = counts &&
              conversation_count(r->c, (enum think)r->opt->think, &n, counts, &(struct error){0});
    for (size_t i = 0; ok && i < turns; i++)
        n += counts[i];
    free(counts);
    return ok && n <= r->c->session.engine->n_ctx ? n : seq_len(r->c->session.seq);
}

bool action_clear(struct repl *r, char *arg, struct error *err)
{
    (void)arg, (void)err;
    size_t before = tokens_used(r);
    bool something = conversation_n_turns(r->c) > 0, named = something && repl_is_named(r);
    struct buf warning = {0};
    if (something) {
        // An empty conversation must not overwrite the saved one.
        if (!shelf_put(&r->shelf, r->c, err))
            return false;
        shelf_left(&r->shelf, r->session);
        session_open_unnamed(r->session, r->opt, &warning);
    }
    conversation_clear(r->c);
    if (something)
        shelf_replaced(&r->shelf, r->c);
    char freed[FORMAT_NUMBER];
    view_say(&r->view, "(cleared; %s token%s freed%s)\n", format_number(freed, before),
             plural(before), something ? "; /undo brings it back" : "");
    if (named)
        view_say(&r->view, "(session %s stays as it was saved; this is a new one without a name)\n",
                 r->shelf.before[r->shelf.n_before - 1].session);
    if (warning.len > 0)
        view_say(&r->view, "hokku: %s\n", buf_str(&warning));
    buf_release(&warning);
    return true;
}

// A named session on disk follows what /undo and its like changed.
static bool save_named(struct repl *r, struct error *err)
{
    return r->session->fd < 0 || session_save(r->session, r->c, r->opt, 0.05, err);
}

// What came back has a session again, if its own cannot be had, which `alone` says: a new one. (And
// what of its settings could not come back is said.)
static void keep_somewhere(struct repl *r, const struct error *alone)
{
    struct buf warning = {0};
    if (r->session->fd < 0)
        session_open_unnamed(r->session, r->opt, &warning);
    if (alone->code != ERR_NONE)
        view_say(&r->view, "hokku: %s; what is back is a chat without a name now\n", alone->text);
    if (r->shelf.biases_gone)
        view_say(&r->view, "(logit-bias is off: it named tokens of another model)\n");
    buf_release(&warning);
}

bool action_undo(struct repl *r, char *arg, struct error *err)
{
    uint64_t n = 1;
    size_t before = tokens_used(r);
    if (*arg && !whole_number(arg, "a number of turns, 1 or more", 1, UINT32_MAX, &n, err))
        return false;
    if (!*arg && shelf_can_undo(&r->shelf, r->c)) {
        struct error alone = {0};
        if (!shelf_undo(&r->shelf, r->c, r->session, &alone, err))
            return false;
        keep_somewhere(r, &alone);
        size_t turns = conversation_n_turns(r->c);
        view_say(&r->view, "(what was replaced is back: %zu turn%s; /redo undoes that)\n", turns,
                 plural(turns));
        return save_named(r, err);
    }
    size_t undone = conversation_undo(r->c, n);
    if (undone == 0)
        return error_set(err, ERR_FAIL, "nothing to undo%s",
                         r->shelf.n_before > 0 ? ": /undo alone brings back what was replaced"
                                               : "");
    size_t left = conversation_n_turns(r->c);
    size_t after = tokens_used(r); // more, where one that the context had no room for is left
    const size_t n_freed = before > after ? before - after : 0;
    char freed[FORMAT_NUMBER];
    format_number(freed, n_freed);
    if (left == 0)
        view_say(&r->view, "(back to the start; %s token%s freed)\n", freed, plural(n_freed));
    else
        view_say(&r->view, "(back to turn %zu; %s token%s freed)\n", left, freed, plural(n_freed));
    return save_named(r, err);
}

bool action_redo(struct repl *r, char *arg, struct error *err)
{
    uint64_t n = 1;
    if (*arg && !whole_number(arg, "a number of turns, 1 or more", 1, UINT32_MAX, &n, err))
        return false;
    if (shelf_can_redo(&r->shelf, r->c)) {
        struct error alone = {0};
        if (!shelf_redo(&r->shelf, r->c, r->session, &alone, err))
            return false;
        keep_somewhere(r, &alone);
        size_t turns = conversation_n_turns(r->c);
        view_say(&r->view, "(what replaced it is back: %zu turn%s)\n", turns, plural(turns));
        return save_named(r, err);
    }
    size_t redone = conversation_redo(r->c, n);
    if (redone == 0)
        return error_set(err, ERR_FAIL, "nothing to redo");
    view_say(&r->view, "(%zu turn%s brought back)\n", redone, plural(redone));
    return save_named(r, err);
}

bool action_retry(struct repl *r, char *arg, struct error *err)
{
    uint64_t seed = r->opt->sampler.seed + 1;
    if (*arg && !whole_number(arg, "a seed", 0, UINT64_MAX, &seed, err))
        return false;
    if (!conversation_last_answer(r->c))
        return error_set(err, ERR_FAIL, "there is no answer to try again");
    if (!*arg)
        view_say(&r->view, "(seed %llu)\n", (unsigned long long)seed);
    return repl_answer_again(r, seed, err);
}

bool action_edit(struct repl *r, char *arg, struct error *err)
{
    size_t turns = conversation_n_turns(r->c);
    uint64_t n = turns;
    if (turns == 0)
        return error_set(err, ERR_FAIL, "there is no message to edit");
    if (*arg) {
        char what[64];
        snprintf(what, sizeof what, "a turn from 1 to %zu", turns);
        if (!whole_number(arg, what, 1, turns, &n, err))
            return false;
    }
    const struct message *m = conversation_turn(r->c, (size_t)n - 1);
    if (memchr(buf_str(&m->text), '\0', m->text.len)) // of a file or a pipe: half of it is no edit
        return error_set(err, ERR_FAIL,
                         "the message of turn %zu has a NUL byte, which a line cannot have",
                         (size_t)n);
    char *text = strndup(buf_str(&m->text), m->text.len);
    if (!text)
        return error_oom(err, "the message", m->text.len);
    free(r->edit);
    r->edit = text;
    r->edit_turn = (size_t)n;
    return true;
}

bool action_continue(struct repl *r, char *arg, struct error *err)
{
    (void)arg;
    const struct message *m = conversation_last_answer(r->c);
    if (m && !m->partial)
        return error_set(err, ERR_FAIL, "the answer is finished: there is nothing to go on with");
    const bool was_held = m && m->n_runs > 0 && m->runs[m->n_runs - 1].constrained;
    if (was_held && !r->o->shape->constraint &&
        r->opt->n_predict != 0) // a session does not keep to what
        view_say(&r->view, "(the answer was held to a grammar or schema, and none is set now: it "
                           "goes on freely)\n");
    return repl_answer(r, ANSWER_CONTINUE, err);
}

// What clears a setting that may be without a value.
static bool is_off(const char *value)
{
    return strcmp(value, "off") == 0 || strcmp(value, "none") == 0;
}

bool action_prefill(struct repl *r, char *arg, struct error *err)
{
    if (*arg)
        buf_clear(&r->prefill);
    if (!is_off(arg) && !buf_puts(&r->prefill, arg))
        return error_oom(err, "the start of the answer", strlen(arg));
    if (r->prefill.len == 0)
        view_say(&r->view, "(the next answer begins as the model begins it)\n");
    else if (*arg)
        view_say(&r->view, "(the next answer begins with it)\n");
    else
        view_show(&r->view, r->prefill.data, r->prefill.len);
    return true;
}

static bool show_system(struct repl *r)
{
    if (r->c->has_system)
        view_show(&r->view, r->c->messages[0].text.data, r->c->messages[0].text.len);
    if (r->opt->frame) {
        view_say(&r->view, "(each message takes the place of {{input}} in this:)\n");
        view_show(&r->view, r->opt->frame, strlen(r->opt->frame));
    } else if (!r->c->has_system)
        view_say(&r->view, "(no system prompt)\n");
    return true;
}

bool action_system(struct repl *r, char *arg, struct error *err)
{
    struct buf text = {0};
    if (!*arg)
        return show_system(r);
    bool ok = true;
    if (arg[0] == '@')
        ok = shipped_prompt(r->opt, arg + 1, &text, err);
    else if (!is_off(arg))
        ok = buf_puts(&text, arg) || error_oom(err, "the system prompt", strlen(arg));
    const char *frame = NULL;
    if (ok && arg[0] == '@' && prompt_takes_input(buf_str(&text)))
        ok = (frame = options_own(r->opt, buf_str(&text))) ||
             error_oom(err, "the system prompt", text.len);
    ok = ok && conversation_set_system(r->c, buf_str(&text), frame ? 0 : text.len, err);
    if (ok) { // what was set before it is replaced, whichever of the two it was
        r->opt->frame = frame;
        if (frame)
            view_say(&r->view, "(each message is put into %s; /system off ends that)\n", arg);
        else
            view_say(&r->view, text.len > 0 ? "(system prompt set)\n" : "(no system prompt)\n");
    }
    buf_release(&text);
    return ok && (conversation_n_turns(r->c) == 0 || save_named(r, err));
}

// ---------------------------------------------------------------------------------------- settings

// In a chat settings have no dashes, and are called as /set does.
static bool as_setting(struct error *err)
{
    static const char *const fronts[] = {"--json-", "--"};
    for (size_t i = 0; err && i < sizeof fronts / sizeof *fronts; i++) {
        size_t n = strlen(fronts[i]);
        if (strncmp(err->text, fronts[i], n) == 0)
            memmove(err->text, err->text + n, strlen(err->text) + 1 - n);
    }
    static const char option[] = "--json-schema @", here[] = "/set schema @";
    char *at = err ? strstr(err->text, option) : NULL; // what a file would be named by
    if (at) {
        memcpy(at, here, sizeof here - 1);
        memmove(at + sizeof here - 1, at + sizeof option - 1, strlen(at + sizeof option - 1) + 1);
    }
    return false;
}

static bool says_off(struct error *err, const char *name, const char *what)
{
    const size_t n = err ? strlen(err->text) : 0;
    if (err)
        snprintf(err->text + n, sizeof err->text - n, "; /set %s off %s", name, what);
    return false;
}

static void say_schema(struct repl *r)
{
    const struct shape *s = r->o->shape;
    view_say(&r->view, "%-20s %s\n", "schema", s->constraint ? s->name : "off");
}

// A JSON Schema, or the file that has it, for the answers to come; off also forgets a grammar.
static bool set_schema(struct repl *r, const char *value, struct error *err)
{
    struct options o = {.json_schema = value, .json_indent = r->opt->json_indent};
    struct grammar *g = NULL;
    struct buf path = {0}, file = {0}; // as it is typed in a chat, with ~ and backslashes
    bool ok = true;
    if (value[0] == '@') {
        ok = attach_path(value + 1, r->o->home, &path, err);
        if (ok)
            ok = buf_printf(&file, "@%s", buf_str(&path)) ||
                 error_oom(err, "the name of a file", path.len);
        o.json_schema = buf_str(&file);
    }
    if (ok && *value && !is_off(value))
        ok = shape_read(&o, r->c->cancel, &g, err) || as_setting(err) ||
             (!strchr("{@", *value) && says_off(err, "schema", "leaves answers free"));
    if (ok && *value)
        ok = shape_set(r->o->shape, g, value, r->c->model, r->opt->json_close, err);
    if (ok)
        say_schema(r);
    buf_release(&path);
    buf_release(&file);
    return ok;
}

static bool say_setting(struct repl *r, int width, const char *label, const char *name)
{
    struct buf now = {0};
    options_get(r->opt, name, &now);
    view_say(&r->view, "%-*s %s\n", width, label, now.len ? buf_str(&now) : "off");
    buf_release(&now);
    return true;
}

static bool show_settings(struct repl *r)
{
    size_t n;
    const struct option_def *d = options_table(&n);
    for (size_t i = 0; i < n; i++)
        if (d[i].in_chat)
            say_setting(r, 20, d[i].long_name + 2, d[i].long_name);
    say_setting(r, 20, "stop", "reverse-prompt");
    say_schema(r);
    return true;
}

static const struct option_def *setting(const char *name, const char **near)
{
    size_t n;
    const struct option_def *d = options_table(&n);
    unsigned best = 4;
    char dashed[80];
    snprintf(dashed, sizeof dashed, "--%s", name);
    const char *synonym = option_synonym(dashed);
    *near = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!d[i].in_chat)
            continue;
        unsigned distance = edit_distance(name, d[i].long_name + 2);
        if (distance == 0)
            return &d[i];
        if (synonym && strcmp(synonym, d[i].long_name) == 0)
            distance = 1;
        if (distance < best && distance < strlen(name)) {
            best = distance;
            *near = d[i].long_name + 2;
        }
    }
    return NULL;
}

static bool add_stop(struct repl *r, const char *text, struct error *err)
{
    struct str_list *stop = &r->opt->stop;
    if (stop->n == OPTIONS_MAX_LIST)
        return error_set(err, ERR_FAIL, "no more than %d stop texts; /set stop off forgets them",
                         OPTIONS_MAX_LIST);
    const char *mine = options_own(r->opt, text);
    if (!mine)
        return error_oom(err, "a stop text", strlen(text));
    stop->items[stop->n++] = mine;
    return true;
}

// Of "a" "b" the quotes outside are gone: ends a where b begins, which is returned; NULL: no other.
static char *cut_quoted(char *text)
{
    for (char *p = text; (p = strchr(p, '"')); p++) {
        const size_t blanks = strspn(p + 1, " \t");
        if (blanks > 0 && p[1 + blanks] == '"') {
            *p = '\0';
            return p + 2 + blanks;
        }
    }
    return NULL;
}

// Stop texts are added: one, or in quotes one or more. off (without) forgets all.
static bool set_stop(struct repl *r, char *value, struct error *err)
{
    const size_t n = strlen(value), n_before = r->opt->stop.n;
    const bool quoted = n >= 2 && value[0] == '"' && value[n - 1] == '"';
    if (is_off(value)) {
        r->opt->stop.n = 0;
        *value = '\0';
    }
    if (quoted) {
        value[n - 1] = '\0';
        value++;
    }
    for (char *next = quoted || *value ? value : NULL; next;) {
        const char *text = next;
        next = quoted ? cut_quoted(next) : NULL;
        const bool ok =
            *text || error_set(err, ERR_USAGE,
                               "stop: found \"\", expected a text; /set stop off forgets all");
        if (!ok || !add_stop(r, text, err)) {
            r->opt->stop.n = n_before;
            return false;
        }
    }
    return say_setting(r, 0, "stop", "reverse-prompt");
}

static bool unknown_setting(const char *name, const char *near, struct error *err)
{
    char full[80];
    snprintf(full, sizeof full, "set %s", name);
    const char *command = chat_synonym(full);
    snprintf(full, sizeof full, "--%s", name);
    const char *option = option_synonym(full);
    option = option ? option : full;
    size_t n;
    const struct option_def *d = options_table(&n);
    for (size_t i = 0; i < n && !near && !command; i++)
        if (option_has_tool(&d[i], TOOL_NONE) && strcmp(d[i].long_name, option) == 0)
            return error_set(err, ERR_USAGE,
                             "%s is for the command line, where hokku starts; /set lists what the "
                             "chat can change",
                             option);
    near = command ? command : near;
    return error_set(err, ERR_USAGE, "unknown setting \"%.60s\"%s%s; /set lists them", name,
                     near ? ", did you mean " : "", near ? near : "");
}

bool action_think(struct repl *r, char *arg, struct error *err)
{
    if (*arg && !options_set(r->opt, "think", arg, err))
        return as_setting(err);
    const enum think think = (enum think)r->opt->think;
    const char *unheard = conversation_unheard(r->c, think);
    view_say(&r->view, "think %s%s%s%s\n", think_name(think), unheard ? " (" : "",
             unheard ? unheard : "", unheard ? ")" : "");
    return true;
}

bool action_set(struct repl *r, char *arg, struct error *err)
{
    if (!*arg)
        return show_settings(r);
    while (*arg == '-')
        arg++;
    char *value = arg + strcspn(arg, " \t=");
    if (*value) {
        *value++ = '\0';
        value += strspn(value, " \t=");
    }
    for (char *p = arg; *p; p++)
        *p = *p == '_' ? '-' : *p;
    if (strcmp(arg, "stop") == 0 || strcmp(arg, "reverse-prompt") == 0)
        return set_stop(r, value, err);
    if (strcmp(arg, "schema") == 0 || strcmp(arg, "json-schema") == 0)
        return set_schema(r, value, err);
    const char *near;
    const struct option_def *d = setting(arg, &near);
    if (!d)
        return unknown_setting(arg, near, err);
    if (strcmp(d->long_name, "--think") == 0)
        return action_think(r, value, err);
    if (!*value && d->kind != OPT_FLAG)
        return say_setting(r, 0, arg, arg);
    struct options before = *r->opt;
    const bool biases = strcmp(d->long_name, "--logit-bias") == 0;
    if (biases && is_off(value)) {
        r->opt->sampler.n_bias = 0;
    } else if (!options_set(r->opt, arg, value, err) || !options_check_draft(r->opt, err) ||
               (r->opt->spec == SPEC_MTP && !session_speculate(&r->c->session, SPEC_MTP, err)) ||
               !sampler_check(&r->opt->sampler, r->c->model->hp.n_vocab, err)) {
        *r->opt = before;
        return as_setting(err) || (biases && says_off(err, "logit-bias", "forgets all"));
    }
    return say_setting(r, 0, arg, arg);
}

// -------------------------------------------------------------------------------------------- show

static bool show_model(struct repl *r)
{
    const struct model *m = r->c->model;
    const struct engine *e = r->c->session.engine;
    char params[FORMAT_NUMBER], bytes[FORMAT_NUMBER], used[FORMAT_NUMBER];
    char n_ctx[FORMAT_NUMBER], trained[FORMAT_NUMBER];
    view_say(&r->view, "model     %s\n", m->name);
    view_say(&r->view, "kind      %s, %s parameters, %s (%s)\n", m->arch,
             format_number(params, m->n_params), m->quant, format_bytes(bytes, m->weight_bytes));
    view_say(&r->view, "context   %s tokens, the model was trained on %s\n",
             format_number(n_ctx, e->n_ctx), format_number(trained, m->hp.n_ctx_train));
    view_say(&r->view, "device    %s, %s in use\n", e->device, format_bytes(used, e->mem_used));
    view_say(&r->view, "template  %s\n", r->c->tmpl ? "yes" : "none: plain completion");
    view_say(&r->view, "session   %s%s\n", r->session->fd >= 0 ? r->session->name : "-",
             r->session->unnamed ? " (unnamed)" : "");
    return true;
}

bool action_model(struct repl *r, char *arg, struct error *err)
{
    struct buf name = {0}, note = {0};
    if (!*arg)
        return show_model(r);
    bool ok = attach_path(arg, r->o->home, &name, err) &&
              r->o->change_model(r->o->user, name.data, &note, err);
    if (ok) {
        shelf_model_changed(&r->shelf);
        r->why.n = 0;
        // What the session's file holds is another model's: it is written anew.
        session_writer_free(r->session->writer);
        r->session->writer = NULL;
        view_say(&r->view, "(now %s%s)\n", buf_str(&note),
                 r->c->n_messages > 0 ? "; it reads the conversation with your next message" : "");
        ok = conversation_n_turns(r->c) == 0 || save_named(r, err);
    } else {
        r->fatal = r->c->session.seq == NULL;
    }
    buf_release(&name);
    buf_release(&note);
    return ok;
}

bool action_stats(struct repl *r, char *arg, struct error *err)
{
    (void)arg, (void)err;
    struct buf line = {0};
    view_stats_line(&r->c->session.stats, tokens_used(r), r->c->session.engine->n_ctx, &line);
    view_say(&r->view, "%s\n", buf_str(&line));
    buf_release(&line);
    return true;
}

bool action_context(struct repl *r, char *arg, struct error *err)
{
    (void)arg;
    size_t turns = conversation_n_turns(r->c), head = 0, used = 0;
    size_t *counts = calloc(turns + 1, sizeof *counts);
    if (!counts)
        return error_oom(err, "the counts of tokens", turns * sizeof *counts);
    if (!conversation_count(r->c, (enum think)r->opt->think, &head, counts, err)) {
        free(counts);
        return false;
    }
    size_t width = r->view.o.err_tty ? out_columns(OUT_STDERR) : 80;
    struct buf line = {0};
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER], rest[FORMAT_NUMBER];
    if (head > 0)
        view_say(&r->view, "%7s %7s\n", "start", format_number(a, head));
    used = head;
    for (size_t i = 0; i < turns; i++) {
        const struct message *m = conversation_turn(r->c, i);
        buf_clear(&line);
        termsafe_excerpt(buf_str(&m->text), m->text.len, width > 30 ? width - 19 : 11, &line);
        bool dropped = (size_t)(m - r->c->messages) < r->c->first_kept;
        if (dropped)
            view_say(&r->view, "%7zu dropped %s\n", i + 1, buf_str(&line));
        else
            view_say(&r->view, "%7zu %7s  %s\n", i + 1, format_number(a, counts[i]),
                     buf_str(&line));
        used += counts[i];
    }
    size_t n_ctx = r->c->session.engine->n_ctx;
    if (used > n_ctx)
        view_say(&r->view, "%s tokens, the context holds %s\n", format_number(a, used),
                 format_number(b, n_ctx));
    else
        view_say(&r->view, "%s of %s tokens used, %s left\n", format_number(a, used),
                 format_number(b, n_ctx), format_number(rest, n_ctx - used));
    free(counts);
    buf_release(&line);
    return true;
}

bool action_show(struct repl *r, char *arg, struct error *err)
{
    if (!*arg || strcmp(arg, "model") == 0)
        return show_model(r);
    if (strcmp(arg, "settings") == 0)
        return show_settings(r);
    if (strcmp(arg, "system") == 0)
        return show_system(r);
    if (strcmp(arg, "context") == 0)
        return action_context(r, arg, err);
    if (strcmp(arg, "stats") == 0)
        return action_stats(r, arg, err);
    if (strcmp(arg, "template") == 0) {
        size_t n = 0;
        const char *text = r->c->tmpl ? template_source(r->c->tmpl, &n) : NULL;
        if (n > 0)
            view_show(&r->view, text, n);
        else
            view_say(&r->view, "(no chat template: plain completion)\n");
        return true;
    }
    return error_set(err, ERR_USAGE,
                     "/show %.40s: expected model, settings, system, context, template or stats",
                     arg);
}

bool action_why(struct repl *r, char *arg, struct error *err)
{
    uint64_t n = 3;
    struct why why = {0};
    struct buf text = {0};
    if (*arg &&
        !whole_number(arg, "a number of alternatives from 1 to 64", 1, ENGINE_MAX_PROBS, &n, err))
        return false;
    // One more than asked for: the token itself is mostly among them.
    uint32_t n_top = (uint32_t)n < ENGINE_MAX_PROBS ? (uint32_t)n + 1 : ENGINE_MAX_PROBS;
    size_t width = r->view.o.err_tty && !r->view.o.dumb ? out_columns(OUT_STDERR) : 0;
    bool ok = why_last_answer(r->c, n_top, &why, err);
    if (ok) {
        why_format(&why, r->c->model->tokenizer, (uint32_t)n, width, r->view.o.err_color, &text);
        out_painted(OUT_STDERR, buf_str(&text), text.len, NULL);
    }
    why_release(&why);
    buf_release(&text);
    return ok;
}
