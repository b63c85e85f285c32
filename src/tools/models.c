#include "tools/models.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/format.h"
#include "base/json_text.h"
#include "base/out.h"
#include "base/termsafe.h"
#include "cli/hub_setup.h"
#include "keep/keep.h"
#include "model/model.h"

bool tool_pull(const struct options *o, const struct cancel *cancel, struct buf *out,
               struct error *err)
{
    struct hub_setup hub = {0};
    if (o->args.n == 0)
        return error_set(err, ERR_USAGE,
                         "hokku pull: found no model, expected USER/REPO[:QUANT] or https://...");
    for (size_t i = 0; i < o->args.n; i++) // before the first download, which may take long
        if (!hub_name_check(o->args.items[i], err))
            return false;
    bool ok = hub_setup_init(&hub, o, cancel, err);
    hub.opt.refresh = true;
    for (size_t i = 0; ok && i < o->args.n; i++) {
        ok = hub_fetch(&hub.opt, o->args.items[i], out, err);
        if (ok && !buf_putc(out, '\n'))
            ok = error_oom(err, "a path", out->len);
    }
    hub_setup_release(&hub);
    return ok;
}

// "3 days ago"
static void format_age(char out[48], int64_t then, int64_t now)
{
    static const struct {
        int64_t s;
        const char *one, *many;
    } units[] = {
        {365 * 86400, "a year", "years"}, {30 * 86400, "a month", "months"},
        {7 * 86400, "a week", "weeks"},   {86400, "a day", "days"},
        {3600, "an hour", "hours"},       {60, "a minute", "minutes"},
    };
    int64_t age = now - then;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        int64_t n = age / units[i].s;
        if (n == 1)
            snprintf(out, 48, "%s ago", units[i].one);
        else if (n > 1)
            snprintf(out, 48, "%lld %s ago", (long long)n, units[i].many);
        if (n >= 1)
            return;
    }
    snprintf(out, 48, "just now");
}

// why: one line, without the path.
static bool runs(const struct hub_model *x, struct error *why)
{
    const bool ok = model_can_load(x->path, why);
    hub_keep_last_use(x);
    error_drop_prefix(why, x->path);
    return ok;
}

// What --keep keeps in memory: files of any place, each with what its process says.
static void add_kept(void *user, const struct keep_said *s)
{
    json_t *list = user;
    const char *slash = strrchr(s->path, '/');
    json_array_append_new(
        list, json_pack("{s:o, s:o, s:{s:i, s:b, s:f, s:o, s:s}}", "name",
                        json_text(slash ? slash + 1 : s->path, strlen(slash ? slash + 1 : s->path)),
                        "path", json_text(s->path, strlen(s->path)), "kept", "pid", s->pid, "busy",
                        s->busy, "seconds_left", s->seconds_left, "bytes",
                        s->n_bytes > 0 ? json_integer((json_int_t)s->n_bytes) : json_null(),
                        "device", s->device));
}

static void add_kept_row(void *user, const struct keep_said *s)
{
    struct buf *out = user;
    char size[FORMAT_NUMBER];
    const bool soon = s->seconds_left < 60;
    const long long left = (long long)(s->seconds_left / (soon ? 1 : 60)) + 1;
    buf_printf(out, "%s  ", s->path);
    if (s->n_bytes > 0)
        buf_printf(out, "%s  ", format_bytes(size, s->n_bytes));
    if (s->busy)
        buf_printf(out, "%s (process %d)\n", s->chats ? "in a chat" : "answers", s->pid);
    else
        buf_printf(out, "for %lld %s%s (process %d)\n", left, soon ? "second" : "minute",
                   left == 1 ? "" : "s", s->pid);
}

static bool list_json(const struct options *opt, const struct hub_models *m, struct buf *out,
                      struct error *err)
{
    json_t *list = json_array();
    for (size_t i = 0; i < m->n; i++) {
        const struct hub_model *x = &m->items[i];
        struct error why = {0};
        bool ok = x->complete && runs(x, &why);
        json_t *o =
            json_pack("{s:s, s:o, s:I, s:I, s:b, s:b}", "name", x->name, "path",
                      json_text(x->path, strlen(x->path)), "bytes", (json_int_t)x->n_bytes,
                      "last_use", (json_int_t)x->last_use, "complete", x->complete, "runs", ok);
        if (x->complete && !ok)
            json_object_set_new(o, "why_not", json_text(why.text, strlen(why.text)));
        json_array_append_new(list, o);
    }
    const bool all = json_array_size(list) == m->n;
    keep_list(opt, add_kept, list);
    return (json_put(list, JSON_COMPACT, out) && all) || error_oom(err, "the list of models", 4096);
}

static bool list_table(const struct options *opt, const struct hub_models *m, struct buf *out,
                       struct error *err)
{
    struct buf kept = {0};
    size_t width = 4;
    int64_t now = (int64_t)time(NULL);
    for (size_t i = 0; i < m->n; i++)
        if (termsafe_name_width(m->items[i].name) > width)
            width = termsafe_name_width(m->items[i].name);
    if (m->n)
        buf_printf(out, "%-*s  %10s  %s\n", (int)width, "name", "size", "last use");
    for (size_t i = 0; i < m->n; i++) {
        const struct hub_model *x = &m->items[i];
        char size[FORMAT_NUMBER], age[48];
        format_age(age, x->last_use, now);
        struct error why = {0};
        termsafe_name_column(x->name, width, out);
        buf_printf(out, "  %10s  %s", format_bytes(size, x->n_bytes), age);
        if (!x->complete)
            buf_puts(out, " (incomplete)");
        else if (!runs(x, &why)) // without the list of what does
            buf_printf(out, " (cannot run: %.*s)", (int)strcspn(why.text, ";"), why.text);
        buf_puts(out, "\n");
    }
    keep_list(opt, add_kept_row, &kept);
    if (kept.len > 0)
        buf_printf(out, "%skept in memory (hokku serve --stop lets go of it):\n%s",
                   m->n ? "\n" : "", buf_str(&kept));
    const bool ok = !kept.failed && !out->failed;
    if (ok && m->n == 0 && kept.len == 0 && !opt->quiet)
        out_say("no downloaded models");
    buf_release(&kept);
    return ok || error_oom(err, "the list of models", out->len);
}

// All of them or, where one of the names is wrong, none.
static bool remove_all(const struct hub_options *opt, const char *const *names, size_t n,
                       struct buf *out, struct error *err)
{
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++)
        ok = hub_has(opt, names[i], err);
    if (!ok)
        return error_prefix(err, "nothing is removed");
    for (size_t i = 0; ok && i < n; i++) {
        uint64_t freed;
        char size[FORMAT_NUMBER];
        if (i > 0 && !hub_has(opt, names[i], NULL)) // another name of what is gone
            continue;
        ok = hub_remove(opt, names[i], &freed, err);
        if (ok && !buf_printf(out, "removed %s, %s\n", names[i], format_bytes(size, freed)))
            ok = error_oom(err, "a message", 4096);
    }
    return ok;
}

bool tool_models(const struct options *o, struct buf *out, struct error *err)
{
    struct hub_setup hub = {0};
    struct hub_models m = {0};
    const size_t n = o->args.n;
    const bool list = n > 0 && strcmp(o->args.items[0], "list") == 0;
    const bool rm = n > 1 && strcmp(o->args.items[0], "rm") == 0;
    if (!rm && n > list)
        return error_set(err, ERR_USAGE,
                         "hokku models: found \"%.60s\", expected nothing, list or rm NAME",
                         o->args.items[list]);
    if (rm && options_named(o, "--json"))
        return error_set(err, ERR_USAGE,
                         "hokku models rm: found --json, which is for the list: leave it out");
    bool ok = hub_setup_init(&hub, o, NULL, err);
    if (ok && rm)
        ok = remove_all(&hub.opt, o->args.items + 1, o->args.n - 1, out, err);
    if (ok && !rm)
        ok = hub_list(&hub.opt, &m, err) &&
             (o->json ? list_json(o, &m, out, err) : list_table(o, &m, out, err));
    hub_models_release(&m);
    hub_setup_release(&hub);
    return ok;
}
