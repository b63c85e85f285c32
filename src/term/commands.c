// The table, its dispatch, help and completion. What the commands do is in actions.c.
#include "term/commands.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/out.h"
#include "base/termsafe.h"
#include "cli/shipped.h"
#include "term/actions.h"

static const struct command table[] = {
    {"/help", "/?", "", "this list", COMPLETE_NONE, NULL, action_help},
    {"/bye", "/exit", "", "leave (also /quit, Ctrl-D)", COMPLETE_NONE, NULL, action_bye},
    {"/clear", NULL, "", "forget the conversation, keep the system prompt", COMPLETE_NONE, NULL,
     action_clear},
    {"/undo", NULL, "[N]", "bring back what was replaced, or take back the last turn; N: N turns",
     COMPLETE_NONE, NULL, action_undo},
    {"/redo", NULL, "[N]", "bring back what /undo took", COMPLETE_NONE, NULL, action_redo},
    {"/retry", NULL, "[SEED]", "answer again with another seed, which stays (/set seed random)",
     COMPLETE_NONE, NULL, action_retry},
    {"/edit", NULL, "[N]", "change your message of turn N (the last)", COMPLETE_NONE, NULL,
     action_edit},
    {"/continue", NULL, "", "go on with a cut or stopped answer", COMPLETE_NONE, NULL,
     action_continue},
    {"/prefill", NULL, "[TEXT|off]", "show or set how the next answer begins", COMPLETE_NONE, NULL,
     action_prefill},
    {"/read", NULL, "FILE", "put a file before your next message", COMPLETE_FILE, NULL,
     action_read},
    {"/detach", NULL, "[N]", "leave a file out again, or all", COMPLETE_NONE, NULL, action_detach},
    {"/editor", NULL, "[TEXT]", "write the message in $VISUAL or $EDITOR (Ctrl-X Ctrl-E)",
     COMPLETE_NONE, NULL, action_editor},
    {"/copy", NULL, "[N|code]", "the answer, or its last code, to the clipboard", COMPLETE_WORDS,
     "code", action_copy},
    {"/write", NULL, "FILE", "the last answer to a new file", COMPLETE_FILE, NULL, action_write},
    {"/system", NULL, "[TEXT|@NAME|off]", "show or set the system prompt", COMPLETE_PROMPT, NULL,
     action_system},
    {"/model", NULL, "[FILE|NAME]", "show the model, or go on with another one", COMPLETE_FILE,
     NULL, action_model},
    {"/set", NULL, "[NAME VALUE]", "show or change settings; stop, logit-bias, schema: off clears",
     COMPLETE_SETTING, NULL, action_set},
    {"/think", NULL, "[default|on|off|hide]", "let a model think, forbid it, or hide it",
     COMPLETE_WORDS, "default|on|off|hide", action_think},
    {"/show", NULL, "[WHAT]", "model settings system context template stats", COMPLETE_WORDS,
     "model|settings|system|context|template|stats", action_show},
    {"/context", NULL, "", "tokens per turn, used and left", COMPLETE_NONE, NULL, action_context},
    {"/stats", NULL, "", "speed and cache of the last answer", COMPLETE_NONE, NULL, action_stats},
    {"/why", NULL, "[N]", "probability and N alternatives of each token", COMPLETE_NONE, NULL,
     action_why},
    {"/save", NULL, "[NAME]", "save, from now on at every turn; the first time with a name",
     COMPLETE_SESSION, NULL, action_save},
    {"/load", NULL, "NAME", "go on with a saved session", COMPLETE_SESSION, NULL, action_load},
    {"/fork", NULL, "NAME", "go on in a copy", COMPLETE_SESSION, NULL, action_fork},
    {"/rename", NULL, "NAME NEW", "another name for a session", COMPLETE_SESSION, NULL,
     action_rename},
    {"/delete", NULL, "NAME", "remove a saved session", COMPLETE_SESSION, NULL, action_delete},
    {"/export", NULL, "FILE.md", "this conversation to a new file", COMPLETE_FILE, NULL,
     action_export},
    {"/sessions", NULL, "", "list the saved sessions, the latest first", COMPLETE_NONE, NULL,
     action_sessions},
    {"/quit", NULL, "", NULL, COMPLETE_NONE, NULL, action_bye},
};
enum { N_COMMANDS = sizeof table / sizeof *table };

const struct command *commands_table(size_t *n)
{
    *n = N_COMMANDS;
    return table;
}

static const char *const about_keys[] = {
    "Several lines: \"\"\" before and after, a \\ at a line's end, Ctrl-J, Alt-Enter, or paste.",
    "Ctrl-C stops an answer, Ctrl-R searches the history, Ctrl-D leaves.",
    "A message that begins with /: put a space before it.",
};

bool action_help(struct repl *r, char *arg, struct error *err)
{
    (void)arg;
    enum { NAMES = 31 };
    size_t width = r->view.o.err_tty ? out_columns(OUT_STDERR) : 0;
    struct buf out = {0};
    width = width ? width : 80;
    for (size_t i = 0; i < N_COMMANDS && !out.failed; i++) {
        char left[64];
        if (!table[i].help)
            continue;
        snprintf(left, sizeof left, "%s%s%s %s", table[i].name, table[i].alias ? " " : "",
                 table[i].alias ? table[i].alias : "", table[i].args);
        buf_clear(&out);
        if (width >= 72) {
            buf_printf(&out, "  %-*s", NAMES - 2, left);
            help_wrapped(&out, NAMES, NAMES, width, table[i].help);
        } else { // narrow: below each other
            buf_printf(&out, "%s\n  ", left);
            help_wrapped(&out, 2, 2, width, table[i].help);
        }
        view_say(&r->view, "%s", buf_str(&out));
    }
    buf_clear(&out);
    buf_putc(&out, '\n');
    for (size_t i = 0; i < sizeof about_keys / sizeof *about_keys; i++)
        help_wrapped(&out, 0, 0, width, about_keys[i]);
    bool ok = !out.failed || error_oom(err, "the list of commands", 4096);
    if (ok)
        view_say(&r->view, "%s", buf_str(&out));
    buf_release(&out);
    return ok;
}

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, table[i].name) == 0 ||
            (table[i].alias && strcmp(name, table[i].alias) == 0))
            return &table[i];
    }
    return NULL;
}

// Whatever the case of its letters; of a short name few may be wrong.
static const char *nearest(const char *typed)
{
    char name[64];
    const char *best = NULL;
    unsigned best_distance = 4;
    snprintf(name, sizeof name, "%s", typed);
    for (char *p = name; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    if (find(name))
        return find(name)->name;
    if (chat_synonym(name))
        return chat_synonym(name);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        unsigned d = edit_distance(name, table[i].name);
        // A beginning of a command is near, however much is missing.
        if (strlen(name) > 2 && strncmp(name, table[i].name, strlen(name)) == 0)
            d = 1;
        if (d < best_distance && 2 * d < strlen(name)) {
            best_distance = d;
            best = table[i].name;
        }
    }
    return best;
}

// Without the blanks at its end; one behind a backslash belongs to a file's name.
static void drop_blanks(char *arg)
{
    size_t n = strlen(arg);
    while (n > 0 && strchr(" \t\n", arg[n - 1])) {
        size_t slashes = 0;
        while (slashes < n - 1 && arg[n - 2 - slashes] == '\\')
            slashes++;
        if (slashes % 2 == 1)
            break;
        n--;
    }
    arg[n] = '\0';
}

bool command_run(struct repl *r, char *line, struct error *err)
{
    size_t n_name = strcspn(line, " \t\n");
    char *arg = line + n_name;
    if (*arg) {
        *arg++ = '\0';
        arg += strspn(arg, " \t\n");
    }
    drop_blanks(arg);
    const struct command *c = find(line);
    if (!c) {
        const char *near = nearest(line);
        return error_set(err, ERR_USAGE, "unknown command %.60s%s%s; /help lists them%s", line,
                         near ? ", did you mean " : "", near ? near : "",
                         near ? "" : "; a message takes a space before its /");
    }
    if (c->args[0] == '\0' && *arg)
        return error_set(err, ERR_USAGE, "%s takes no argument, found \"%.60s\"", c->name, arg);
    if (c->args[0] && c->args[0] != '[' && !*arg)
        return error_set(err, ERR_USAGE, "%s needs an argument: %s %s", c->name, c->name, c->args);
    return c->run(r, arg, err);
}

// ------------------------------------------------------------------------------------- completion

static void add(struct completions *out, const char *name)
{
    completions_add(out, name, strlen(name));
}

static void complete_words(const char *words, struct completions *out)
{
    for (const char *p = words; *p;) {
        size_t n = strcspn(p, "|");
        completions_add(out, p, n);
        p += n + (p[n] == '|');
    }
}

static void complete_setting(struct completions *out)
{
    size_t n;
    const struct option_def *d = options_table(&n);
    for (size_t i = 0; i < n; i++) {
        if (d[i].in_chat)
            add(out, d[i].long_name + 2);
    }
    add(out, "stop");
    add(out, "schema");
}

static const char *choices_of(const char *setting, size_t n_setting)
{
    size_t n;
    const struct option_def *d = options_table(&n);
    for (size_t i = 0; i < n; i++) {
        if (d[i].in_chat && strlen(d[i].long_name + 2) == n_setting &&
            strncmp(d[i].long_name + 2, setting, n_setting) == 0)
            return d[i].kind == OPT_FLAG ? "on|off" : d[i].choices;
    }
    return NULL;
}

static void complete_prompt(const struct repl *r, struct completions *out)
{
    struct buf names = {0};
    shipped_prompt_names(r->opt, &names);
    for (const char *p = buf_str(&names); *p;) {
        size_t n = strcspn(p, ", ");
        completions_add(out, p, n);
        p += n + strspn(p + n, ", ");
    }
    buf_release(&names);
}

static void complete_session(const struct repl *r, struct completions *out)
{
    size_t n;
    char **names;
    session_names(r->opt->state_dir, &names, &n, NULL);
    for (size_t i = 0; i < n; i++)
        add(out, names[i]);
    session_names_free(names, n);
}

// The files behind the @ of a schema's.
static void complete_schema(const struct repl *r, struct completions *out)
{
    struct completions files = {.word = out->word + 1};
    struct buf name = {0};
    completions_add_files(&files, r->o->home);
    for (size_t i = 0; i < files.n; i++) {
        buf_clear(&name);
        if (buf_printf(&name, "@%s", files.items[i]))
            completions_add(out, name.data, name.len);
    }
    buf_release(&name);
    completions_release(&files);
}

void command_complete(void *repl, const char *line, size_t begin, struct completions *out)
{
    const struct repl *r = repl;
    if (line[0] != '/')
        return;
    if (begin == 0) {
        for (size_t i = 0; i < N_COMMANDS; i++) {
            add(out, table[i].name);
            if (table[i].alias)
                add(out, table[i].alias);
        }
        return;
    }
    char name[32];
    size_t n_name = strcspn(line, " ");
    if (n_name >= sizeof name)
        return;
    memcpy(name, line, n_name);
    name[n_name] = '\0';
    const struct command *c = find(name);
    const char *arg = line + n_name + strspn(line + n_name, " ");
    bool first = (size_t)(arg - line) >= begin;
    if (!c)
        return;
    if (c->completes == COMPLETE_FILE)
        completions_add_files(out, r->o->home);
    else if (c->completes == COMPLETE_PROMPT && first)
        complete_prompt(r, out);
    else if (c->completes == COMPLETE_SETTING && first)
        complete_setting(out);
    else if (c->completes == COMPLETE_SETTING && strncmp(arg, "schema ", 7) == 0 &&
             out->word[0] == '@')
        complete_schema(r, out);
    else if (c->completes == COMPLETE_SETTING && choices_of(arg, strcspn(arg, " ")))
        complete_words(choices_of(arg, strcspn(arg, " ")), out);
    else if (c->completes == COMPLETE_SESSION && first)
        complete_session(r, out);
    else if (c->completes == COMPLETE_WORDS && first)
        complete_words(c->words, out);
}
