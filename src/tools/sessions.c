#include "tools/sessions.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json_text.h"
#include "base/out.h"
#include "base/place.h"
#include "base/unicode.h"
#include "base/utf8.h"
#include "dialog/session_file.h"
#include "dialog/session_store.h"

// An object with the name and, where JSON has no such text, its bytes: a name has no % of its own.
static json_t *named_object(const char *name)
{
    json_t *j = json_pack("{s:o}", "name", json_text(name, strlen(name)));
    if (utf8_valid(name, strlen(name)))
        return j;
    struct buf bytes = {0};
    for (const char *p = name; *p; p++)
        buf_printf(&bytes, (unsigned char)*p < 0x80 ? "%c" : "%%%02X", (unsigned char)*p);
    const bool ok =
        !bytes.failed && json_object_set_new(j, "name_bytes", json_string(buf_str(&bytes))) == 0;
    buf_release(&bytes);
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

// What j, which may be NULL, has, and then more, which is taken; NULL: no memory.
static json_t *with(json_t *j, json_t *more)
{
    const bool ok = json_object_update(j, more) == 0;
    json_decref(more);
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

static json_t *row_object(const struct session_row *r)
{
    const struct session_info *i = &r->info;
    json_t *j = named_object(r->name);
    if (!r->good)
        return with(j, json_pack("{s:o}", "error", json_text(r->err.text, strlen(r->err.text))));
    return with(j,
                json_pack("{s:I, s:I, s:I, s:I, s:s, s:s}", "saved_at", (json_int_t)i->saved_at,
                          "turns", (json_int_t)i->turns, "tokens", (json_int_t)i->tokens, "bytes",
                          (json_int_t)i->bytes, "model", i->model, "device", i->device));
}

static bool put_row(const struct session_table *t, const struct session_row *r, json_t *list,
                    struct buf *out)
{
    if (list)
        return json_array_append_new(list, row_object(r)) == 0;
    if (r->good)
        return session_info_line(t, r->name, &r->info, out) && buf_putc(out, '\n');
    return session_name_column(t, r->name, out) && buf_printf(out, "%s\n", r->err.text);
}

static bool list(const struct options *o, struct buf *out, struct error *err)
{
    size_t n;
    char **names;
    if (!session_names(o->state_dir, &names, &n, err))
        return false;
    struct session_row *rows = session_rows(o->state_dir, names, n, err);
    json_t *array = o->json ? json_array() : NULL;
    const struct session_table table = session_table_of(names, n, out_columns(OUT_STDOUT));
    bool ok = rows != NULL;
    for (size_t i = 0; ok && i < n; i++)
        ok = put_row(&table, &rows[i], array, out) || error_oom(err, "the list of sessions", n);
    if (o->json)
        ok = (json_put(array, JSON_COMPACT, out) && ok) ||
             (ok && error_oom(err, "the list of sessions", n));
    else if (ok && n == 0 && !o->quiet)
        out_say("no saved sessions");
    session_rows_free(rows, n);
    session_names_free(names, n);
    return ok;
}

static bool is_repeated(const char *const *names, size_t i)
{
    size_t k = 0;
    while (strcmp(names[k], names[i]) != 0)
        k++;
    return k < i;
}

// All of them or, where one of the names is wrong, none.
static bool remove_all(const struct options *o, const char *const *names, size_t n,
                       struct error *err)
{
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++)
        ok = session_removable(o->state_dir, names[i], err);
    if (!ok)
        return error_prefix(err, "nothing is removed");
    for (size_t i = 0; ok && i < n; i++)
        ok = is_repeated(names, i) || session_remove(o->state_dir, names[i], err);
    return ok;
}

static bool export(const struct options *o, const char *name, const char *to, struct buf *out,
                   struct error *err)
{
    struct buf path = {0}, text = {0};
    struct conversation c = {0};
    bool ok = session_find(o->state_dir, name, &path, err) &&
              session_file_text(buf_str(&path), &c, err) &&
              (session_markdown(&c, &text) || error_oom(err, "the conversation", text.len));
    if (ok && strcmp(to, "-") == 0)
        ok = buf_append(out, buf_str(&text), text.len) ||
             error_oom(err, "the conversation", text.len);
    else if (ok)
        ok = file_write_new(to, buf_str(&text), text.len, err);
    conversation_release(&c);
    buf_release(&path);
    buf_release(&text);
    return ok;
}

// The next character of a text, as all that are the same but for their case: lower case of its
// upper case, where these are single characters. A byte that begins none is itself.
static uint32_t next_folded(const char *s, size_t n, size_t *used)
{
    uint32_t cp, to[3];
    *used = utf8_decode(s, n, &cp);
    if (*used == 0) {
        *used = 1;
        return 0x110000 + (unsigned char)*s;
    }
    cp = uni_case(cp, 'u', to) == 1 ? to[0] : cp;
    return uni_case(cp, 'l', to) == 1 ? to[0] : cp;
}

// What is looked for, by next_folded.
struct folded {
    uint32_t *cp;
    size_t n;
};

static bool fold(const char *what, struct folded *f)
{
    const size_t n = strlen(what);
    f->n = 0;
    f->cp = malloc(n * sizeof *f->cp);
    for (size_t i = 0, used; f->cp && i < n; i += used)
        f->cp[f->n++] = next_folded(what + i, n - i, &used);
    return f->cp != NULL;
}

// Whether s begins with what, whatever the case: then its bytes there, else 0.
static size_t begins_with(const char *s, size_t n, const struct folded *what)
{
    size_t i = 0, used;
    for (size_t k = 0; k < what->n; k++, i += used)
        if (i == n || next_folded(s + i, n - i, &used) != what->cp[k])
            return 0;
    return i;
}

// n_found: the bytes of what is found.
static const char *find(const struct buf *text, const struct folded *what, size_t *n_found)
{
    for (size_t i = 0, used; i < text->len; i += used)
        if (next_folded(text->data + i, text->len - i, &used) == what->cp[0] &&
            (*n_found = begins_with(text->data + i, text->len - i, what)) > 0)
            return text->data + i;
    return NULL;
}

// "NAME turn 3 you: …the line around it…", or an object in list, if that is not NULL.
static bool put_match(const char *name, size_t turn, const struct message *m, const char *at,
                      size_t n_at, json_t *list, struct buf *out)
{
    enum { AROUND = 60 };
    static const char *const who[] = {"system", "you", "answer"};
    static const char *const role[] = {"system", "user", "assistant"};
    const char *begin = at, *end = at + n_at, *last = m->text.data + m->text.len;
    while (begin > m->text.data && begin[-1] != '\n' && at - begin < AROUND)
        begin--;
    while (begin < at && ((unsigned char)*begin & 0xC0) == 0x80)
        begin++;
    while (end < last && *end != '\n' && end - at < AROUND)
        end++;
    while (end < last && ((unsigned char)*end & 0xC0) == 0x80)
        end++;
    const size_t n = (size_t)(end - begin);
    if (!list)
        return buf_printf(out, "%s turn %zu %s: %s", name, turn, who[m->role],
                          begin > m->text.data && begin[-1] != '\n' ? "…" : "") &&
               buf_append(out, begin, n) && // (with a NUL byte, too)
               buf_puts(out, end < last && *end != '\n' ? "…\n" : "\n");
    return json_array_append_new(list,
                                 with(named_object(name),
                                      json_pack("{s:I, s:s, s:o}", "turn", (json_int_t)turn, "role",
                                                role[m->role], "text", json_text(begin, n)))) == 0;
}

static bool search(const struct options *o, const char *what, struct buf *out, struct error *err)
{
    size_t n, n_found = 0, n_bad = 0;
    if (!*what)
        return error_set(err, ERR_USAGE,
                         "hokku sessions search: found an empty TEXT, expected "
                         "what to look for");
    struct folded folded;
    if (!fold(what, &folded))
        return error_oom(err, "what to look for", strlen(what));
    char **names;
    if (!session_names(o->state_dir, &names, &n, err)) {
        free(folded.cp);
        return false;
    }
    json_t *found = o->json ? json_array() : NULL;
    struct buf path = {0};
    bool ok = true;
    for (size_t i = 0; i < n; i++) {
        struct conversation c = {0};
        struct error why = {0};
        size_t turn = 0;
        const bool good = session_path(o->state_dir, names[i], &path, &why) &&
                          session_file_text(path.data, &c, &why);
        if (!good) { // what is in it nobody knows
            out_say("hokku: %s", why.text);
            n_bad++;
        }
        for (size_t k = 0; good && k < c.n_messages; k++) {
            const struct message *m = &c.messages[k];
            size_t n_at;
            const char *at = find(&m->text, &folded, &n_at);
            turn += m->role == ROLE_USER;
            if (at)
                ok &= put_match(names[i], turn, m, at, n_at, found, out);
            n_found += at != NULL;
        }
        conversation_release(&c);
    }
    session_names_free(names, n);
    buf_release(&path);
    free(folded.cp);
    if (o->json)
        ok &= json_put(found, JSON_COMPACT, out);
    if (!ok)
        return error_oom(err, "what was found", out->len);
    return n_found > 0 || error_set(err, ERR_FAIL, "no saved session%s has the text \"%.60s\"",
                                    n_bad > 0 ? " that can be read" : "", what);
}

bool tool_sessions(const struct options *o, struct buf *out, struct error *err)
{
    enum { LIST, RM, MV, EXPORT, SEARCH, N_COMMANDS };
    static const struct {
        const char *name, *args;
        size_t min, max;
    } commands[N_COMMANDS] = {[LIST] = {"list", "no more", 0, 0},
                              [RM] = {"rm", "NAME, one or more", 1, OPTIONS_MAX_LIST},
                              [MV] = {"mv", "NAME NEW", 2, 2},
                              [EXPORT] = {"export", "NAME FILE.md (- for standard output)", 2, 2},
                              [SEARCH] = {"search", "TEXT", 1, 1}};
    const char *const *args = o->args.items;
    const char *what = o->args.n > 0 ? args[0] : "list";
    size_t k = 0, n = o->args.n > 0 ? o->args.n - 1 : 0;
    while (k < N_COMMANDS && strcmp(commands[k].name, what) != 0)
        k++;
    if (k == N_COMMANDS)
        return error_set(err, ERR_USAGE,
                         "hokku sessions: found \"%.60s\", expected list, rm, mv, export or search",
                         what);
    if (n < commands[k].min || n > commands[k].max)
        return error_set(err, ERR_USAGE, "hokku sessions %s: found %zu argument%s, expected %s",
                         what, n, n == 1 ? "" : "s", commands[k].args);
    if (k != LIST && k != SEARCH && options_named(o, "--json"))
        return error_set(err, ERR_USAGE,
                         "hokku sessions %s: found --json, which is for list and search: leave it "
                         "out",
                         what);
    if (!place_need(o->state_dir, "sessions", "XDG_STATE_HOME", err))
        return false;
    switch (k) {
    case LIST:
        return list(o, out, err);
    case RM:
        return remove_all(o, args + 1, n, err);
    case MV:
        return session_rename(o->state_dir, args[1], args[2], err);
    case EXPORT:
        return export(o, args[1], args[2], out, err);
    default:
        return search(o, args[1], out, err);
    }
}
