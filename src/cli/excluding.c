// Options that exclude each other: what the command line names counts, whatever else the
// environment and the configuration file say; else it is an error that says where both are from.
#include "cli/options.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 4, NAME_BYTES = 256 };

// Of a group any two are one too many. Of two groups with the same pair the first says why.
static const struct group {
    const char *names[MOST + 1]; // NULL behind the last
    const char *why;
    bool for_tools; // also for those that have one of them
    enum tool only; // for it alone; else they go together, and may be there by default
} groups[] = {
    {{"--model", "--hf-repo"}, "expected one of them", true},
    {{"--lines", "--turns"}, "expected one of them", false},
    {{"--file", "--lines"}, "the lines are those of standard input: < FILE", false},
    {{"--file", "--turns"}, "the lines are those of standard input: < FILE", false},
    {{"--single-turn", "--lines"}, "every line has its answer: head -n 1 leaves one line", false},
    {{"--single-turn", "--turns"}, "every line has its answer: head -n 1 leaves one line", false},
    {{"--session", "--base", "--continue"}, "expected one of them", false},
    {{"--session", "--continue", "--lines"},
     "each line is a conversation of its own; --base NAME begins each with a saved session",
     false},
    {{"--json-schema", "--grammar", "--grammar-file"}, "expected one of them", false},
    {{"--ignore-eos", "--json-schema", "--grammar", "--grammar-file"},
     "the answer ends where the grammar does",
     false},
    {{"--system-prompt", "--system-prompt-file"}, "expected one of them", false},
    {{"--chat-template", "--chat-template-file"}, "expected one of them", true},
    {{"--no-conversation", "--chat-template", "--chat-template-file"},
     "plain completion has no template",
     false},
    {{"--model", "--chat-template-file"},
     "a model is read for its template alone, expected one of them",
     false,
     TOOL_RENDER},
    {{"--plan", "--kernels", "--grammar"},
     "each shows something else, expected one of them",
     false,
     TOOL_BENCH},
};
enum { N_GROUPS = sizeof groups / sizeof *groups };

// The tool's of that name, else the first.
static const struct option_def *row_of(enum tool t, const char *long_name)
{
    size_t n;
    const struct option_def *rows = options_table(&n), *first = NULL;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(rows[i].long_name, long_name) != 0)
            continue;
        if (option_has_tool(&rows[i], t))
            return &rows[i];
        first = first ? first : &rows[i];
    }
    return first;
}

static bool is_on(const struct options *o, const struct option_def *d)
{
    const void *at = (const char *)o + d->offset;
    if (d->kind == OPT_STR) {
        const char *text = *(const char *const *)at;
        const bool is_input = text && d->offset == offsetof(struct options, file) &&
                              strcmp(text, "-") == 0; // -f - is what the lines are read from
        return text && !is_input;
    }
    return d->kind == OPT_FLAG ? *(const bool *)at : o->conversation == 0;
}

static void turn_off(struct options *o, const struct option_def *d)
{
    void *at = (char *)o + d->offset;
    if (d->kind == OPT_STR)
        *(const char **)at = NULL;
    else if (d->kind == OPT_FLAG)
        *(bool *)at = false;
    else
        o->conversation = -1;
}

// As whoever is to change it finds it.
static void name(const struct options *o, const struct option_def *d, char out[NAME_BYTES])
{
    const struct option_origin *from = &o->origin[option_row(d)];
    if (from->variable && !o->given[option_row(d)])
        snprintf(out, NAME_BYTES, "%.*s", (int)strcspn(from->variable, "="), from->variable);
    else if (from->line > 0 && !o->given[option_row(d)])
        snprintf(out, NAME_BYTES, "%s (%.200s:%d)", d->long_name + 2, o->config_file, from->line);
    else
        snprintf(out, NAME_BYTES, "%s", d->short_name ? d->short_name : d->long_name);
}

static bool is_for(const struct group *g, enum tool t)
{
    if (g->only)
        return t == g->only;
    bool any = t == TOOL_NONE;
    for (size_t i = 0; g->for_tools && g->names[i]; i++)
        any |= option_has_tool(row_of(t, g->names[i]), t);
    return any;
}

static void yield_to_command_line(struct options *o, const struct group *g)
{
    bool any = false;
    for (size_t i = 0; g->names[i]; i++)
        any |= o->given[option_row(row_of(o->tool, g->names[i]))] &&
               is_on(o, row_of(o->tool, g->names[i]));
    for (size_t i = 0; any && g->names[i]; i++) {
        const struct option_def *d = row_of(o->tool, g->names[i]);
        if (!o->given[option_row(d)] && is_on(o, d))
            turn_off(o, d);
    }
}

void options_yield(struct options *o, const struct option_def *d)
{
    for (size_t i = 0; i < N_GROUPS; i++)
        for (size_t k = 0; is_for(&groups[i], o->tool) && groups[i].names[k]; k++)
            if (row_of(o->tool, groups[i].names[k]) == d)
                yield_to_command_line(o, &groups[i]);
}

static bool check(const struct options *o, const struct group *g, struct error *err)
{
    const struct option_def *first = NULL;
    char a[NAME_BYTES], b[NAME_BYTES];
    for (size_t i = 0; g->names[i]; i++) {
        const struct option_def *d = row_of(o->tool, g->names[i]);
        if (g->only && !o->given[option_row(d)])
            continue;
        if (first && is_on(o, d)) {
            name(o, first, a);
            name(o, d, b);
            return error_set(err, ERR_USAGE, "%s and %s cannot be combined: %s", a, b, g->why);
        }
        if (is_on(o, d))
            first = d;
    }
    return true;
}

// -q of the command line is no error beside what is to be said, but counts where others say that.
static void quieten(struct options *o)
{
    static const char *const said[] = {"--verbose", "--stats"};
    if (!o->quiet || !o->given[option_row(row_of(o->tool, "--quiet"))])
        return;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        if (!o->given[option_row(row_of(o->tool, said[i]))])
            turn_off(o, row_of(o->tool, said[i]));
    if (!o->json && !o->given[option_row(row_of(o->tool, "--logprobs"))])
        o->logprobs = 0;
}

bool options_exclude(struct options *o, struct error *err)
{
    quieten(o);
    for (size_t i = 0; i < N_GROUPS; i++)
        if (is_for(&groups[i], o->tool))
            yield_to_command_line(o, &groups[i]);
    for (size_t i = 0; i < N_GROUPS; i++)
        if (is_for(&groups[i], o->tool) && !check(o, &groups[i], err))
            return false;
    return true;
}
