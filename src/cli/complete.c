#include "cli/complete.h"

#include <ctype.h>
#include <string.h>

#include "base/termsafe.h"
#include "cli/hub_setup.h"
#include "cli/shipped.h"

static const char *const kind_names[] = {
    [COMPLETE_ANY] = "",
    [COMPLETE_FILES] = "files",
    [COMPLETE_SESSIONS] = "sessions",
    [COMPLETE_PROMPTS] = "prompts",
    [COMPLETE_TEMPLATES] = "templates",
    [COMPLETE_MODELS] = "models",
    [COMPLETE_DEVICES] = "devices",
};
enum { N_KINDS = sizeof kind_names / sizeof *kind_names };

const char *complete_kind_name(enum complete_kind k)
{
    return kind_names[k];
}

enum complete_kind complete_kind_of(const struct option_def *d)
{
    static const struct {
        const char *option;
        enum complete_kind kind;
    } kinds[] = {
        {"--session", COMPLETE_SESSIONS},      {"--base", COMPLETE_SESSIONS},
        {"--system-prompt", COMPLETE_PROMPTS}, {"--chat-template", COMPLETE_TEMPLATES},
        {"--hf-repo", COMPLETE_MODELS},        {"--device", COMPLETE_DEVICES},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].option, d->long_name) == 0)
            return kinds[i].kind;
    return d->arg && strcmp(d->arg, "FILE") == 0 ? COMPLETE_FILES : COMPLETE_ANY;
}

bool complete_or_file(const struct option_def *d)
{
    return d->arg && strcmp(d->arg, "NAME|FILE") == 0;
}

bool complete_at_file(const struct option_def *d)
{
    return d->arg && strcmp(d->arg, "TEXT|@FILE") == 0;
}

// ---------------------------------------------------------------------------------------- offers

// Where candidates go: those that begin with `word`, without its first `cut` bytes, which the shell
// keeps.
struct offers {
    const struct options *o;
    const struct complete_names *names;
    struct buf *out;
    const char *word;
    size_t cut, n;
    bool tells;         // what each is for
    const char *before; // of each: the n_before bytes of --option= that the shell does not keep
    size_t n_before;
};

static bool needs_no_quotes(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("._-/:@+,%=", s[i]) &&
            (unsigned char)s[i] < 0x80)
            return false;
    return n > 0 && termsafe_all_plain(s, n);
}

// what: it is for; NULL: nothing is known.
static void offer_for(struct offers *to, const char *name, size_t n, const char *what)
{
    size_t typed = strlen(to->word);
    if (!needs_no_quotes(name, n) || typed > n || memcmp(name, to->word, typed) != 0)
        return;
    buf_append(to->out, to->before, to->n_before);
    buf_append(to->out, name + to->cut, n - to->cut);
    if (to->tells && what)
        buf_printf(to->out, "\t%s", what);
    buf_putc(to->out, '\0');
    to->n++;
}

static void offer(struct offers *to, const char *name, size_t n)
{
    offer_for(to, name, n, NULL);
}

static void offer_words(struct offers *to, const char *words, const char *separators)
{
    while (*words) {
        size_t n = strcspn(words, separators);
        offer(to, words, n);
        words += n + strspn(words + n, separators);
    }
}

static void offer_prompts(struct offers *to)
{
    struct buf names = {0};
    shipped_prompt_names(to->o, &names);
    offer_words(to, buf_str(&names), ", ");
    buf_release(&names);
}

static void offer_models(struct offers *to)
{
    struct hub_setup hub = {0};
    struct hub_models m = {0};
    if (hub_setup_init(&hub, to->o, NULL, NULL) && hub_list(&hub.opt, &m, NULL))
        for (size_t i = 0; i < m.n; i++)
            offer(to, m.items[i].name, strlen(m.items[i].name));
    hub_models_release(&m);
    hub_setup_release(&hub);
}

static void offer_kind(struct offers *to, enum complete_kind kind)
{
    switch (kind) {
    case COMPLETE_SESSIONS:
        for (size_t i = 0; i < to->names->n_sessions; i++)
            offer(to, to->names->sessions[i], strlen(to->names->sessions[i]));
        break;
    case COMPLETE_PROMPTS:
        offer_prompts(to);
        break;
    case COMPLETE_TEMPLATES:
        offer_words(to, to->names->templates, ", ");
        break;
    case COMPLETE_MODELS:
        offer_models(to);
        break;
    case COMPLETE_DEVICES:
        offer_words(to, "auto|cuda|cpu", "|");
        break;
    case COMPLETE_ANY:
    case COMPLETE_FILES:
        break;
    }
}

// ------------------------------------------------------------------------------- the command line

// What may follow a command of `hokku sessions`: names of so many, and whether then a file.
static const struct session_command {
    const char *name;
    size_t sessions;
    bool file;
} session_commands[] = {{"list", 0, false},
                        {"rm", SIZE_MAX, false},
                        {"mv", 1, false},
                        {"export", 1, true},
                        {"search", 0, false}};
enum { N_SESSION_COMMANDS = sizeof session_commands / sizeof *session_commands };

// What came before the word under the cursor.
struct before {
    size_t n_words;
    enum tool tool;
    const struct option_def *wants_value; // the last word is this option
    bool only_positional;                 // after --
    size_t n_positional;
    bool rm;                            // models rm
    const struct session_command *does; // sessions export
};

static void take_word(struct before *b, const char *word)
{
    if (b->n_words == 0 && strchr(word, '=')) // NAME=value before the command
        return;
    size_t at = b->n_words++;
    if (at == 0)
        return;
    if (at == 1 && (b->tool = tool_named(word)))
        return;
    if (b->wants_value) {
        b->wants_value = NULL;
    } else if (!b->only_positional && strcmp(word, "--") == 0) {
        b->only_positional = true;
    } else if (!b->only_positional && word[0] == '-' && word[1]) {
        const struct option_def *d = option_find(b->tool, word, strlen(word));
        b->wants_value = d && d->arg ? d : NULL;
    } else if (b->n_positional++ == 0) {
        b->rm = b->tool == TOOL_MODELS && strcmp(word, "rm") == 0;
        for (size_t i = 0; b->tool == TOOL_SESSIONS && i < N_SESSION_COMMANDS; i++)
            if (strcmp(word, session_commands[i].name) == 0)
                b->does = &session_commands[i];
    }
}

// Words as a shell would split them: quotes and backslashes are taken off, nothing is expanded. The
// last word, perhaps empty, is the one under the cursor.
static void read_line(const char *line, struct before *b, struct buf *word)
{
    char quote = 0;
    bool begun = false;
    for (const char *p = line; *p; p++) {
        if (!quote && strchr(" \t\n", *p)) {
            if (begun)
                take_word(b, buf_str(word));
            buf_clear(word);
            begun = false;
            continue;
        }
        begun = true;
        if (quote && *p == quote)
            quote = 0;
        else if (!quote && (*p == '\'' || *p == '"'))
            quote = *p;
        else if (*p == '\\' && quote != '\'' && p[1])
            buf_putc(word, *++p);
        else
            buf_putc(word, *p);
    }
}

static void offer_options(struct offers *to, enum tool t)
{
    size_t n;
    const struct option_def *d = options_table(&n);
    for (size_t i = 0; i < n; i++) {
        if (!option_has_tool(&d[i], t) || !d[i].group)
            continue;
        if (d[i].short_name)
            offer_for(to, d[i].short_name, strlen(d[i].short_name), d[i].help);
        offer_for(to, d[i].long_name, strlen(d[i].long_name), d[i].help);
    }
}

static const char words[] = "words", files[] = "files", at_files[] = "at-files";

// Returns what may stand here as well.
static const char *offer_value(struct offers *to, const struct option_def *d)
{
    enum complete_kind kind = complete_kind_of(d);
    if (d->choices)
        offer_words(to, d->choices, "|");
    else
        offer_kind(to, kind);
    if (complete_at_file(d) && to->word[0] == '@')
        return at_files;
    return kind == COMPLETE_FILES || complete_or_file(d) ? files : words;
}

// Returns whether the name of a file may stand here as well.
static bool offer_argument(struct offers *to, const struct before *b)
{
    if (b->n_words == 1)
        for (int t = 1; t < N_TOOLS; t++)
            offer_for(to, tool_name((enum tool)t), strlen(tool_name((enum tool)t)),
                      tool_what((enum tool)t));
    if (b->tool == TOOL_MODELS && b->n_positional == 0) {
        offer(to, "list", 4);
        offer(to, "rm", 2);
    }
    if (b->tool == TOOL_PULL || b->rm)
        offer_kind(to, COMPLETE_MODELS);
    for (size_t i = 0; b->tool == TOOL_SESSIONS && b->n_positional == 0 && i < N_SESSION_COMMANDS;
         i++)
        offer(to, session_commands[i].name, strlen(session_commands[i].name));
    if (b->tool == TOOL_REPLAY || (b->does && b->n_positional <= b->does->sessions))
        offer_kind(to, COMPLETE_SESSIONS);
    if (b->tool == TOOL_SESSIONS)
        return b->does && b->does->file && b->n_positional == b->does->sessions + 1;
    return b->tool != TOOL_MODELS && b->tool != TOOL_PULL;
}

static void complete_line(struct offers to, const char *replaced, const char *line, struct buf *out)
{
    struct before b = {0};
    struct buf word = {0}, found = {0};
    to.out = &found;
    read_line(line, &b, &word);
    const char *eq = strncmp(buf_str(&word), "--", 2) == 0 ? strchr(word.data, '=') : NULL;
    const struct option_def *d = b.wants_value;
    to.word = buf_str(&word);
    if (eq && !d && !b.only_positional) { // --option=value: the value alone is completed
        d = option_find(b.tool, word.data, (size_t)(eq - word.data));
        to.word = eq + 1;
        if (to.tells) {
            to.before = word.data;
            to.n_before = (size_t)(to.word - word.data);
        }
    }
    // The shell keeps what stands before the word that it wants replaced.
    size_t typed = strlen(to.word), n = strlen(replaced);
    if (!to.tells && n < typed && strcmp(to.word + typed - n, replaced) == 0)
        to.cut = typed - n;
    const char *rest = words;
    if (d)
        rest = offer_value(&to, d);
    else if (!eq && to.word[0] == '-' && !b.only_positional)
        offer_options(&to, b.tool);
    else if (!eq && offer_argument(&to, &b))
        rest = files;
    buf_puts(out, to.n == 0 ? rest : words);
    buf_putc(out, '\0');
    buf_append(out, buf_str(&found), found.len);
    out->failed |= found.failed || word.failed;
    buf_release(&word);
    buf_release(&found);
}

bool complete_print(const struct options *o, const struct complete_names *names, struct buf *out,
                    struct error *err)
{
    const char *what = o->n_complete > 0 ? o->complete[0] : "";
    struct offers to = {.o = o, .names = names, .out = out, .word = ""};
    bool known = false;
    to.tells = strcmp(what, "fish") == 0;
    if ((to.tells || strcmp(what, "bash") == 0) && o->n_complete == 3) {
        complete_line(to, o->complete[1], o->complete[2], out);
        known = true;
    }
    for (int k = COMPLETE_ANY + 1; k < N_KINDS && o->n_complete == 1; k++)
        if (strcmp(what, kind_names[k]) == 0) {
            offer_kind(&to, (enum complete_kind)k);
            known = true;
        }
    if (!known)
        return error_set(err, ERR_USAGE,
                         "--complete: found \"%.40s\" and %zu more, expected a kind of names, or "
                         "bash or fish WORD LINE",
                         what, o->n_complete > 0 ? o->n_complete - 1 : 0);
    return !out->failed || error_oom(err, "the candidates", out->len);
}
