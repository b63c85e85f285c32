// Parsing: configuration file, environment, command line, in that order.
#include "cli/options.h"

#include <ctype.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/place.h"
#include "base/utf8.h"
#include "engine/settings.h"
#include "hub/listing.h"

enum {
    MAX_CONFIG_BYTES = 1 << 20,
    MOST_SLIPS = 3, // further away is no typing mistake
};

static const struct {
    const char *name, *usage, *what;
} tools[N_TOOLS] = {
    [TOOL_NONE] = {"", "[options] [PROMPT]", ""},
    [TOOL_INSPECT] = {"inspect", "MODEL [--json]",
                      "what is in a GGUF file and what hokku would do with it"},
    [TOOL_TOKENIZE] = {"tokenize", "-m MODEL [options] [FILE|-]",
                       "text to token ids, a JSON array per input"},
    [TOOL_RENDER] = {"render", "[-m MODEL | --chat-template-file T] CONTEXT.json",
                     "a chat template to its prompt"},
    [TOOL_SCORE] = {"score", "-m MODEL [options] FILE",
                    "log-probabilities of every token of a text, JSON"},
    [TOOL_PERPLEXITY] = {"perplexity", "-m MODEL -f FILE [options]",
                         "how well a model predicts a text"},
    [TOOL_BENCH] = {"bench", "-m MODEL [options]",
                    "prefill and decode speed beside the memory bandwidth"},
    [TOOL_REPLAY] = {"replay", "NAME|FILE.session",
                     "re-generate a recorded conversation and compare"},
    [TOOL_PULL] = {"pull", "USER/REPO[:QUANT] ...", "download a model from the Hugging Face Hub"},
    [TOOL_MODELS] = {"models", "[list | rm NAME ...]", "list or remove downloaded models"},
    [TOOL_SESSIONS] = {"sessions",
                       "[list | rm NAME ... | mv NAME NEW | export NAME FILE.md | search TEXT]",
                       "list, remove, rename, export or search saved conversations"},
    [TOOL_SERVE] = {"serve", "-m MODEL [options]", "answer over HTTP, as OpenAI's interface does"},
};

const char *tool_name(enum tool t)
{
    return tools[t].name;
}

const char *tool_usage(enum tool t)
{
    return tools[t].usage;
}

const char *tool_what(enum tool t)
{
    return tools[t].what;
}

enum tool tool_named(const char *name)
{
    int t = N_TOOLS - 1;
    while (t > 0 && strcmp(name, tools[t].name) != 0)
        t--;
    return (enum tool)t;
}

bool option_has_tool(const struct option_def *d, enum tool t)
{
    return d->tools >> t & 1;
}

size_t option_row(const struct option_def *d)
{
    size_t n;
    return (size_t)(d - options_table(&n));
}

const struct option_def *option_find(enum tool t, const char *name, size_t len)
{
    size_t n;
    const struct option_def *d = options_table(&n);
    for (size_t i = 0; i < n; i++) {
        if (!option_has_tool(&d[i], t))
            continue;
        const char *names[] = {d[i].short_name, d[i].long_name};
        for (int k = 0; k < 2; k++)
            if (names[k] && strlen(names[k]) == len && memcmp(names[k], name, len) == 0)
                return &d[i];
    }
    return NULL;
}

static const char *nearest(enum tool t, const char *name, unsigned slips)
{
    size_t n;
    const struct option_def *d = options_table(&n);
    const char *best = NULL;
    unsigned best_distance = slips + 1;
    size_t letters = strlen(name + strspn(name, "-"));
    for (size_t i = 0; i < n; i++) {
        if (!option_has_tool(&d[i], t))
            continue;
        const char *names[] = {d[i].long_name, d[i].short_name};
        for (int k = 0; k < 2; k++) {
            if (!names[k])
                continue;
            unsigned distance = edit_distance(name, names[k]);
            if (distance < best_distance && 2 * distance <= letters && letters > 2) {
                best_distance = distance;
                best = names[k];
            }
        }
    }
    return best;
}

// At most so many slips away; a short name is near to too much.
static const char *nearest_tool(const char *name, unsigned slips)
{
    enum { SHORT = 4 };
    const char *best = NULL;
    unsigned best_distance = slips + 1;
    for (int t = 1; t < N_TOOLS; t++) {
        unsigned distance = edit_distance(name, tools[t].name);
        if (distance < best_distance && (distance < slips || strlen(tools[t].name) > SHORT)) {
            best_distance = distance;
            best = tools[t].name;
        }
    }
    return best;
}

// A setting by its name without dashes, '_' or '-' inside: "top_k", "no-cnv". full receives the
// long form.
static const struct option_def *find_bare(const char *name, char *full, size_t n)
{
    while (*name == '-')
        name++;
    snprintf(full, n, "--%s", name);
    for (char *p = full; *p; p++)
        *p = *p == '_' ? '-' : *p;
    const struct option_def *d = option_find(TOOL_NONE, full, strlen(full));
    return d ? d : option_find(TOOL_NONE, full + 1, strlen(full) - 1);
}

// The first tool that has an option, which the program alone has not; TOOL_NONE: none has.
static enum tool tool_alone_with(const char *long_name)
{
    for (int t = 1; t < N_TOOLS; t++)
        if (option_find((enum tool)t, long_name, strlen(long_name)))
            return (enum tool)t;
    return TOOL_NONE;
}

static const struct option_def *find_setting(const char *name, struct error *err)
{
    char full[80];
    const struct option_def *d = find_bare(name, full, sizeof full);
    const char *near = d ? NULL : option_synonym(full);
    enum tool t = d || near ? TOOL_NONE : tool_alone_with(full);
    if (d)
        return d;
    if (t) {
        error_set(err, ERR_USAGE, "%s is an option of hokku %s, on its command line", full,
                  tool_name(t));
        return NULL;
    }
    near = near ? near : nearest(TOOL_NONE, full, MOST_SLIPS);
    error_set(err, ERR_USAGE, "unknown setting \"%.60s\"%s%s", name, near ? ", did you mean " : "",
              near ? near + strspn(near, "-") : "");
    return NULL;
}

bool options_set(struct options *o, const char *name, const char *value, struct error *err)
{
    const struct option_def *d = find_setting(name, err);
    return d && option_store(o, d, value, err);
}

static void note_origin(struct options *o, const struct option_def *d, struct option_origin from)
{
    o->origin[option_row(d)] = from;
}

bool options_get(const struct options *o, const char *name, struct buf *out)
{
    char full[80];
    const struct option_def *d = find_bare(name, full, sizeof full);
    return d && option_show(o, d, out);
}

// $HOME, else what the system has on record of the user; NULL: no home. A relative one would mean
// another place in every directory.
static const char *home_directory(void)
{
    const char *home = getenv("HOME");
    if (home && *home == '/')
        return home;
    struct passwd *pw = getpwuid(geteuid());
    return pw && pw->pw_dir && *pw->pw_dir == '/' ? pw->pw_dir : NULL;
}

// $XDG_x_HOME/hokku, or its default below the home. *out stays NULL when there is neither.
static bool place(const char *home, const char *xdg, const char *below_home, const char *tail,
                  char **out)
{
    const char *base = getenv(xdg);
    struct buf b = {0};
    if (base && base[0] == '/')
        buf_printf(&b, "%s/hokku%s", base, tail);
    else if (home)
        buf_printf(&b, "%s/%s/hokku%s", home, below_home, tail);
    *out = b.data;
    return !b.failed;
}

static bool hub_environment(const char *user_home, struct hub_environment *h)
{
    const char *home = getenv("HF_HOME"), *cache = getenv("XDG_CACHE_HOME");
    struct buf b = {0};
    *h = (struct hub_environment){
        .endpoint = getenv("HF_ENDPOINT"),
        .token = getenv("HF_TOKEN"),
        .token_path = getenv("HF_TOKEN_PATH"),
        .cache = getenv("HF_HUB_CACHE"),
        .timeout = getenv("HF_HUB_DOWNLOAD_TIMEOUT"),
        .ca_file = getenv("SSL_CERT_FILE"),
    };
    if (home && *home)
        buf_puts(&b, home);
    else if (cache && *cache == '/')
        buf_printf(&b, "%s/huggingface", cache);
    else if (user_home)
        buf_printf(&b, "%s/.cache/huggingface", user_home);
    h->home = b.data;
    return !b.failed;
}

static bool find_places(struct options *o, struct error *err)
{
    const char *home = home_directory();
    o->homeless = !home;
    return (place(home, "XDG_CACHE_HOME", ".cache", "", &o->cache_dir) &&
            place(home, "XDG_STATE_HOME", ".local/state", "", &o->state_dir) &&
            place(home, "XDG_CONFIG_HOME", ".config", "/config", &o->config_file) &&
            hub_environment(home, &o->hub)) ||
           error_oom(err, "the options", 4096);
}

// What asks for something else than an answer is asked for each time: as a default no call would
// answer.
static bool is_setting(const struct option_def *d)
{
    return d->group && strcmp(d->group, "help") != 0 &&
           d->offset != offsetof(struct options, dry_run);
}

// A path below ~, which no shell has read here, as the shell would have it; NULL: no memory.
static const char *below_home(struct options *o, const struct option_def *d, const char *value)
{
    const char *tilde = option_tilde(d, value), *home = tilde ? home_directory() : NULL;
    struct buf path = {0};
    if (!home)
        return value;
    const char *own = buf_printf(&path, "%.*s%s%s", (int)(tilde - value), value, home, tilde + 1)
                          ? options_own(o, path.data)
                          : NULL;
    buf_release(&path);
    return own;
}

// One option per line by its long name, "temp 0.7", "temp = 0.7" or "--temp 0.7"; # begins a
// comment.
bool options_read_config(struct options *o, char *text, size_t n, const char *label,
                         struct error *err)
{
    int number = 1;
    for (char *line = text + utf8_mark(text, n), *end = text + n; line < end; number++) {
        char *nl = memchr(line, '\n', (size_t)(end - line)), *next = nl ? nl + 1 : end;
        if (memchr(line, '\0', (size_t)(next - line)))
            return error_set(err, ERR_USAGE, "%s:%d: found a NUL byte, expected text", label,
                             number);
        if (nl)
            *nl = '\0';
        char *name = line + strspn(line, " \t-");
        name[strcspn(name, "\r")] = '\0';
        line = next;
        if (!*name || *name == '#')
            continue;
        char *value = name + strcspn(name, " \t=");
        if (*value)
            *value++ = '\0';
        value += strspn(value, " \t=");
        for (size_t k = strlen(value); k && isspace((unsigned char)value[k - 1]); k--)
            value[k - 1] = '\0';
        const struct option_def *d = find_setting(name, err);
        if (d && !is_setting(d)) {
            error_set(err, ERR_USAGE, "%s is for the command line alone, expected a setting",
                      d->long_name);
            d = NULL;
        }
        const char *path = d ? below_home(o, d, value) : value;
        if (!d || !(path || error_oom(err, "the options", 4096)) || !option_store(o, d, path, err))
            return error_prefix(err, "%s:%d", label, number);
        note_origin(o, d, (struct option_origin){.line = number});
    }
    return true;
}

static bool read_config(struct options *o, struct error *err)
{
    struct error e = {0};
    bool found;
    if (o->config_file &&
        !place_read_linked(o->config_file, MAX_CONFIG_BYTES, &o->config, &found, &e))
        return error_set(err, ERR_USAGE,
                         "%s; each call reads it: mend it, or move it away (XDG_CONFIG_HOME names "
                         "another place)",
                         e.text);
    return o->config.len == 0 ||
           options_read_config(o, o->config.data, o->config.len, o->config_file, err);
}

// HOKKU_TMEP, HOKKU_TEMPERATURE, HOKKU_LISTEN and HOKKU_DRY_RUN are hardly another program's.
// option: "--tmep".
static void note_slip(struct options *o, const char *variable, const char *option)
{
    const struct option_def *d = option_find(TOOL_NONE, option, strlen(option));
    const char *meant = option_synonym(option);
    enum tool other = d ? TOOL_NONE : tool_alone_with(option);
    if (!meant)
        meant = nearest(TOOL_NONE, option, 1);
    const struct option_def *m = meant ? option_find(TOOL_NONE, meant, strlen(meant)) : NULL;
    if (!d && !other && !(m && is_setting(m)))
        return;
    buf_printf(&o->notice, "%s%.*s is not read: ", o->notice.len > 0 ? "; " : "",
               (int)strcspn(variable, "="), variable);
    if (d) {
        buf_printf(&o->notice, "%s is for the command line alone", option);
        return;
    }
    if (other) {
        buf_printf(&o->notice, "%s is an option of hokku %s, on its command line", option,
                   tool_name(other));
        return;
    }
    buf_puts(&o->notice, "did you mean HOKKU_"); // a short name has no variable
    for (const char *p = m->long_name + 2; *p; p++)
        buf_putc(&o->notice, *p == '-' ? '_' : (char)toupper((unsigned char)*p));
    buf_putc(&o->notice, '?');
}

// HOKKU_TOP_K=20 is --top-k 20. Other names are left alone (HOKKU_TEST_..., other programs') unless
// they look like a slip.
static bool read_environment(struct options *o, char **envp, struct error *err)
{
    for (; envp && *envp; envp++) {
        if (strncmp(*envp, "HOKKU_", 6) != 0)
            continue;
        char name[64] = "--";
        size_t len = 2;
        const char *p = *envp + 6;
        for (; *p && *p != '=' && len < sizeof name - 1; p++)
            name[len++] = *p == '_' ? '-' : (char)tolower((unsigned char)*p);
        if (*p != '=' || p[1] == '\0')
            continue;
        const struct option_def *d = option_find(TOOL_NONE, name, len);
        name[len] = '\0';
        if (d && !is_setting(d) && d->offset != offsetof(struct options, dry_run))
            continue; // HOKKU_VERSION may say which one is installed
        if (!d || !is_setting(d)) {
            note_slip(o, *envp, name);
            continue;
        }
        option_forget(o, d);
        if (!option_store(o, d, p + 1, err))
            return error_prefix(err, "environment variable %.*s", (int)(p - *envp), *envp);
        note_origin(o, d, (struct option_origin){.variable = *envp});
    }
    return true;
}

// Whether the text is one about `what`: "WHAT: ..." or, of an option with its value, "WHAT VALUE:
// ...".
static bool speaks_of(const char *text, const char *what)
{
    const size_t n = what ? strlen(what) : 0;
    if (n == 0 || strncmp(text, what, n) != 0)
        return false;
    if (what[0] == '-' && text[n] == ' ')
        text += 1 + strcspn(text + n + 1, " :");
    return text[n] == ':';
}

void options_say_origin(const struct options *o, struct error *err)
{
    size_t n;
    const struct option_def *table = options_table(&n);
    for (size_t i = 0; i < n; i++) {
        const struct option_def *d = &table[i];
        const struct option_origin *from = &o->origin[i];
        if (o->given[i] || (!from->variable && from->line == 0))
            continue;
        const char *value =
            d->kind == OPT_STR ? *(char *const *)((const char *)o + d->offset) : NULL;
        if (!speaks_of(err->text, d->long_name) && !speaks_of(err->text, d->short_name) &&
            !speaks_of(err->text, value))
            continue;
        if (from->variable)
            error_prefix(err, "environment variable %.*s", (int)strcspn(from->variable, "="),
                         from->variable);
        else
            error_prefix(err, "%s:%d", o->config_file, from->line);
        return;
    }
}

static bool unknown_option(const struct options *o, const char *name, struct error *err)
{
    const char *ours = option_synonym(name), *why = option_not_there(name), *near, *space;
    near = ours && option_find(o->tool, ours, strlen(ours)) ? ours : NULL;
    if (!near && why)
        return error_set(err, ERR_USAGE, "%s is not needed, or not there: %s; leave it out", name,
                         why);
    space = o->tool ? " " : "";
    for (int t = 0; t < N_TOOLS && !near; t++)
        if (option_find((enum tool)t, name, strlen(name)))
            return error_set(err, ERR_USAGE,
                             "%s is no option of hokku %s%s%s; hokku %s%s--help lists them", name,
                             o->tool ? tool_name(o->tool) : "alone", t ? ", but of hokku " : "",
                             t ? tool_name((enum tool)t) : "", tool_name(o->tool), space);
    const size_t n = strcspn(name, " \t\n"); // one argument of several words was quoted
    if (name[n] && option_find(o->tool, name, n))
        return error_set(err, ERR_USAGE,
                         "unknown option \"%s\": %.*s and its value are two arguments", name,
                         (int)n, name);
    near = near ? near : nearest(o->tool, name, MOST_SLIPS);
    return error_set(err, ERR_USAGE, "unknown option %s%s%s; hokku %s%s--help lists them%s", name,
                     near ? ", did you mean " : "", near ? near : "", tool_name(o->tool), space,
                     name[n] && !o->tool ? " (a prompt that begins with - is -p TEXT)" : "");
}

// -n5 and -n=5: a short name with its value. *len becomes the name's.
static const struct option_def *find_joined(enum tool t, const char *arg, size_t *len)
{
    for (size_t n = strlen(arg) - 1; n >= 2; n--) {
        const struct option_def *d = option_find(t, arg, n);
        bool number = d && (d->kind == OPT_I32 || d->kind == OPT_I64 || d->kind == OPT_U32 ||
                            d->kind == OPT_U64 || d->kind == OPT_F32);
        if (d && d->arg &&
            (arg[n] == '=' || (number && (isdigit((unsigned char)arg[n]) || arg[n] == '-')))) {
            *len = n;
            return d;
        }
    }
    return NULL;
}

// The later of two values wins; but a prompt, or a file with one, is nothing to lose without a
// word.
static bool set_argument(struct options *o, const struct option_def *d, const char *value,
                         struct error *err)
{
    bool *given = &o->given[option_row(d)];
    bool text = d->offset == offsetof(struct options, prompt) ||
                d->offset == offsetof(struct options, file);
    const char *before = text ? *(const char **)((char *)o + d->offset) : NULL;
    if (*given && before && value)
        return error_set(
            err, ERR_USAGE,
            "%s: given twice (\"%.40s\", then \"%.40s\"), expected once: make them one",
            d->long_name, before, value);
    if (!*given)
        option_forget(o, d);
    *given = true;
    return option_store(o, d, value, err);
}

bool options_named(const struct options *o, const char *long_name)
{
    const struct option_def *d = option_find(o->tool, long_name, strlen(long_name));
    return d && o->given[option_row(d)];
}

// What is an option's name was hardly meant for a text, a name or a file.
static bool is_no_option(const struct options *o, const struct option_def *d, const char *arg,
                         const char *value, struct error *err)
{
    const bool text = d->kind == OPT_STR || d->kind == OPT_LIST;
    return !text || !option_find(o->tool, value, strlen(value)) ||
           error_set(err, ERR_USAGE,
                     "%s needs a value, found the option %s: if that is the value, %s=%s", arg,
                     value, arg, value);
}

static bool parse_argument(struct options *o, int argc, char **argv, int *at, struct error *err)
{
    const char *arg = argv[*at];
    const char *eq = strncmp(arg, "--", 2) == 0 ? strchr(arg, '=') : NULL;
    size_t len = eq ? (size_t)(eq - arg) : strlen(arg);
    const struct option_def *d = option_find(o->tool, arg, len);
    const char *joined = NULL;
    if (!d && arg[1] != '-' && (d = find_joined(o->tool, arg, &len)))
        joined = arg + len + (arg[len] == '=');
    if (!d) {
        char name[80];
        const size_t n = strcspn(arg, "= \t\n");
        len = arg[n] == '=' ? n : len; // -ngl=99, too, is -ngl
        snprintf(name, sizeof name, "%.*s", (int)(len < 60 ? len : 60), arg);
        return unknown_option(o, name, err);
    }
    if (d->kind == OPT_FLAG || d->kind == OPT_FLAG_OFF) {
        if (eq)
            return error_set(err, ERR_USAGE, "%s takes no value, found \"%.60s\"", d->long_name,
                             eq + 1);
        return set_argument(o, d, NULL, err);
    }
    if (joined)
        return set_argument(o, d, joined, err);
    if (!eq && *at + 1 >= argc)
        return error_set(err, ERR_USAGE, "%s needs a value: %s %s", d->long_name, d->long_name,
                         d->arg);
    return eq ? set_argument(o, d, eq + 1, err)
              : is_no_option(o, d, arg, argv[*at + 1], err) && set_argument(o, d, argv[++*at], err);
}

static const char *first_set(const char *const values[])
{
    while (!*values || !**values)
        values++;
    return *values;
}

// systemd opens the sockets of a unit and says so in the environment (sd_listen_fds(3)): the first
// is descriptor 3.
static int inherited_socket(void)
{
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    return pid && n && strtol(pid, NULL, 10) == getpid() && strtol(n, NULL, 10) > 0 ? 3 : -1;
}

// model.gguf: nobody asks that.
static bool is_models_name(const char *word)
{
    return hub_is_gguf(word) && !word[strcspn(word, " \t\n")];
}

// What stands without an option is the prompt; but where it is one word, or more than one prompt,
// the first may be a tool that is not where it should be, a slip, or another program's command.
static bool is_no_command(const struct options *o, struct error *err)
{
    const bool alone = o->args.n == 1;
    const char *word = o->args.items[0], *other = tool_synonym(word);
    const char *tool = nearest_tool(word, alone ? 1 : 2);
    char hint[100] = "a prompt of several words needs quotes";
    if (alone)
        snprintf(hint, sizeof hint, "hokku -p %.40s makes a prompt of it", word);
    if (other)
        return error_set(err, ERR_USAGE, "hokku has no \"%.40s\": %s (%s)", word, other, hint);
    if (is_models_name(word))
        return error_set(err, ERR_USAGE,
                         "%.200s is a model's name, found where the prompt is: "
                         "hokku -m %.200s (%s)",
                         word, word, hint);
    return !tool || error_set(err, ERR_USAGE,
                              strcmp(tool, word) == 0
                                  ? "%.40s is a tool, which stands first: hokku %s (%s)"
                                  : "unknown tool \"%.40s\", did you mean hokku %s? (%s)",
                              word, tool, hint);
}

// quoted: behind --, which makes a prompt of any word.
static bool take_prompt(struct options *o, bool quoted, struct error *err)
{
    if (o->args.n == 0)
        return true;
    if ((o->args.n > 1 || !quoted) && !is_no_command(o, err))
        return false;
    if (o->args.n > 1)
        return error_set(err, ERR_USAGE,
                         "%zu prompts given (\"%.40s\", \"%.40s\"%s): expected one; "
                         "quote it",
                         o->args.n, o->args.items[0], o->args.items[1], o->args.n > 2 ? "..." : "");
    if (o->prompt && options_named(o, "--prompt"))
        return error_set(err, ERR_USAGE,
                         "a prompt as an argument and with -p: expected one of them");
    o->prompt = o->args.items[0];
    return true;
}

bool options_check_draft(const struct options *o, struct error *err)
{
    if (o->spec == SPEC_DRAFT && !o->model_draft)
        return error_set(err, ERR_USAGE,
                         "--spec draft: found no draft model, expected -md FILE with it");
    return true;
}

// What belongs to --lines or --turns is there with them.
static bool check_lines(const struct options *o, struct error *err)
{
    static const char *const of_lines[] = {"--unordered", "--shard", "--parallel"};
    for (size_t i = 0; i < sizeof of_lines / sizeof *of_lines && !o->lines; i++)
        if (options_named(o, of_lines[i])) // (in a configuration it waits for --lines)
            return error_set(err, ERR_USAGE, "%s is for --lines, which is not there", of_lines[i]);
    if (options_named(o, "--null") && !o->lines && !o->turns)
        return error_set(err, ERR_USAGE,
                         "--null is for --lines or --turns, neither of which is there");
    return true;
}

// What stands behind the tool's name. only_positional: of a --, behind which is no option.
static bool read_arguments(struct options *o, int argc, char **argv, bool *only_positional,
                           struct error *err)
{
    for (int at = o->tool ? 2 : 1; at < argc; at++) {
        const char *arg = argv[at];
        if (!*only_positional && strcmp(arg, "--") == 0) {
            *only_positional = true;
        } else if (!*only_positional && o->tool == TOOL_NONE && strcmp(arg, "-") == 0) {
            o->file = o->file ? o->file : arg; // (a pipe is read beside a file anyway)
        } else if (!*only_positional && arg[0] == '-' && arg[1] != '\0') {
            if (!parse_argument(o, argc, argv, &at, err))
                return false;
        } else {
            if (o->args.n == OPTIONS_MAX_LIST)
                return error_set(err, ERR_USAGE, "more than %d arguments", OPTIONS_MAX_LIST);
            o->args.items[o->args.n++] = arg;
        }
    }
    if (o->help && o->tool == TOOL_NONE && o->args.n > 0)
        o->tool = tool_named(o->args.items[0]);
    return true;
}

// Copies share them, so the first has no text, and stays where it is.
struct own_text {
    struct own_text *next;
    char text[];
};

bool options_parse(struct options *o, int argc, char **argv, char **envp, struct error *err)
{
    *o = (struct options){
        .device = "auto",
        .conversation = -1,
        .n_predict = -1,
        .spec_max = ENGINE_MAX_DRAFTS,
        .sampler = sampler_defaults,
        .top = 10,
        .bench_prompt = 512,
        .bench_gen = 128,
        .bench_repeat = 5,
        .output = "md",
        .queue = 64,
        .grace = 10,
        .timeout = 30,
        .inherited_socket = inherited_socket(),
    };
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    o->dumb = !term || !*term || strcmp(term, "dumb") == 0;
    o->no_color = no_color && *no_color;
    o->home = getenv("HOME");
    o->editor = first_set((const char *[]){getenv("VISUAL"), getenv("EDITOR"), "vi"});
    o->temp_dir = first_set((const char *[]){getenv("TMPDIR"), P_tmpdir});
    o->runtime_dir = getenv("XDG_RUNTIME_DIR");
    if (o->runtime_dir && o->runtime_dir[0] != '/') // (as the specification of these places has it)
        o->runtime_dir = NULL;
    if (!find_places(o, err))
        return false;
    if (!(o->own = calloc(1, sizeof *o->own)))
        return error_oom(err, "the options", sizeof *o->own);
    if (argc > 1 && strcmp(argv[1], "--complete") == 0) {
        // A mistake in the configuration must not stop the Tab key.
        o->complete = argv + 2;
        o->n_complete = (size_t)argc - 2;
        return true;
    }
    o->tool = argc > 1 ? tool_named(argv[1]) : TOOL_NONE;
    struct error mine = {0};
    bool only_positional = false;
    const bool settled = read_config(o, &mine) && read_environment(o, envp, &mine);
    const bool read = read_arguments(o, argc, argv, &only_positional, settled ? err : NULL);
    // What is only printed depends on no configuration, and helps to mend one.
    if (read && (o->help || o->version || o->print_completion))
        return true;
    if (!settled && err)
        *err = mine;
    if (!settled || !read)
        return false;
    const bool alone = o->tool == TOOL_NONE;
    const bool answers = option_find(o->tool, "--spec", strlen("--spec")) && !o->stop_keepers;
    return (!alone || take_prompt(o, only_positional, err)) && options_exclude(o, err) &&
           (!alone || check_lines(o, err)) && (!answers || options_check_draft(o, err));
}

const char *options_own(struct options *o, const char *text)
{
    const size_t n = strlen(text) + 1;
    for (struct own_text *t = o->own->next; t; t = t->next)
        if (strcmp(t->text, text) == 0)
            return t->text;
    struct own_text *t = malloc(sizeof *t + n);
    if (!t)
        return NULL;
    memcpy(t->text, text, n);
    t->next = o->own->next;
    o->own->next = t;
    return t->text;
}

void options_release(struct options *o)
{
    if (!o)
        return;
    for (struct own_text *t = o->own, *next; t; t = next) {
        next = t->next;
        free(t);
    }
    free(o->cache_dir);
    free(o->state_dir);
    free(o->config_file);
    free(o->hub.home);
    buf_release(&o->config);
    buf_release(&o->notice);
    *o = (struct options){0};
}
