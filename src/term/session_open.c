// A conversation, its settings and its file brought together.
#include "term/repl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/format.h"
#include "base/out.h"
#include "base/utf8.h"
#include "cli/shipped.h"

// JSON has no bytes, which a text of the command line or a file may be: a character of each.
static json_t *bytes_json(const char *bytes)
{
    struct buf text = {0};
    char utf8[4];
    for (const char *p = bytes; *p; p++)
        buf_append(&text, utf8, utf8_encode((unsigned char)*p, utf8));
    json_t *j = text.failed ? NULL : json_string(buf_str(&text));
    buf_release(&text);
    return j;
}

// Such a text, not an empty one, which the options then have; NULL: it is none, or no memory.
static const char *own_bytes(struct options *o, const json_t *j)
{
    const char *s = json_string_value(j);
    struct buf bytes = {0};
    uint32_t cp;
    bool ok = s && *s;
    for (; ok && *s; s += utf8_decode(s, strlen(s), &cp))
        ok = utf8_decode(s, strlen(s), &cp) > 0 && cp <= 0xFF && buf_putc(&bytes, (char)cp);
    const char *own = ok ? options_own(o, buf_str(&bytes)) : NULL;
    buf_release(&bytes);
    return own;
}

static json_t *settings_json(const struct options *o, struct error *err)
{
    size_t n;
    const struct option_def *d = options_table(&n);
    json_t *j = json_object();
    bool ok = j != NULL;
    struct buf value = {0};
    for (size_t i = 0; ok && i < n; i++) {
        if (!d[i].in_chat)
            continue;
        buf_clear(&value);
        if (options_get(o, d[i].long_name, &value))
            ok = json_object_set_new(j, d[i].long_name + 2, json_string(buf_str(&value))) == 0;
        ok &= !value.failed;
    }
    json_t *stops = json_array();
    for (size_t i = 0; i < o->stop.n; i++)
        ok &= json_array_append_new(stops, bytes_json(o->stop.items[i])) == 0;
    ok &= json_object_set_new(j, "reverse-prompt", stops) == 0;
    if (o->frame)
        ok &= json_object_set_new(j, "frame", bytes_json(o->frame)) == 0;
    if (!ok) {
        error_oom(err, "the settings of a session", value.len);
        json_decref(j);
        j = NULL;
    }
    buf_release(&value);
    return j;
}

static bool need_writer(struct session_lock *l, const struct options *o, struct error *err)
{
    if (!l->writer)
        l->writer = session_writer_create(buf_str(&l->path), o->no_kv || l->unnamed, err);
    return l->writer != NULL;
}

bool session_save(struct session_lock *l, const struct conversation *c, const struct options *o,
                  double seconds, struct error *err)
{
    struct error why = {0};
    json_t *settings = settings_json(o, &why);
    const bool one_more = l->unnamed && !session_exists(l);
    bool done, ok = settings && need_writer(l, o, &why);
    if (ok) {
        ok = session_writer_settle(l->writer, -1, &done, &why) && // of the save before
             session_writer_save(l->writer, c, settings, &why) &&
             session_writer_settle(l->writer, seconds, &done, &why);
        if (!ok) { // mostly for want of room, and the text needs little
            session_writer_text_only(l->writer, true);
            ok = session_writer_save(l->writer, c, settings, NULL) &&
                 session_writer_settle(l->writer, -1, &done, NULL);
            session_writer_text_only(l->writer, ok);
            if (ok)
                out_say("hokku: %s: the text alone of session %s is saved from now on, without "
                        "the model's memory",
                        why.text, l->name);
        }
    }
    json_decref(settings);
    if (ok && one_more)
        session_remove_old(l, o->state_dir);
    if (!ok && err)
        *err = why;
    return ok || error_prefix(err, "session %s is not saved", l->name);
}

// A value is one word, except that of --logit-bias, which lists them.
static bool apply_setting(struct options *o, const struct option_def *d, const char *value,
                          struct error *err)
{
    if (strcmp(d->long_name, "--logit-bias") != 0)
        return options_set(o, d->long_name, value, err);
    o->sampler.n_bias = 0;
    char *copy = strdup(value), *rest = copy, *word;
    bool ok = copy || error_oom(err, "the biases of a session", strlen(value));
    while (ok && (word = strsep(&rest, " "))) {
        if (*word)
            ok = options_set(o, d->long_name, word, err);
    }
    free(copy);
    return ok;
}

static bool apply_stops(struct options *o, const json_t *stops, struct error *err)
{
    bool ok = json_is_array(stops) && json_array_size(stops) <= OPTIONS_MAX_LIST;
    o->stop.n = 0;
    for (size_t i = 0; ok && i < json_array_size(stops); i++)
        ok = (o->stop.items[o->stop.n++] = own_bytes(o, json_array_get(stops, i))) != NULL;
    return ok || error_set(err, ERR_FAIL,
                           "reverse-prompt: expected an array of at most %d texts, none empty, of "
                           "characters up to U+00FF",
                           OPTIONS_MAX_LIST);
}

// The command line; a system prompt of the environment or the configuration is for new sessions.
static bool names_system(const struct options *o)
{
    return options_named(o, "--system-prompt") || options_named(o, "--system-prompt-file");
}

// What the settings of a file are to become, if all of them may be set.
struct trial {
    struct options o;
    bool keep_given;
    uint32_t n_vocab;
    bool predicts; // there is a prediction layer
};

static bool try_settings(void *user, const json_t *settings, struct error *err)
{
    struct trial *t = user;
    size_t n;
    const struct option_def *d = options_table(&n);
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        const char *value = json_string_value(json_object_get(settings, d[i].long_name + 2));
        if (!d[i].in_chat || !value || (t->keep_given && t->o.given[i]))
            continue;
        assert(d[i].kind != OPT_STR && d[i].kind != OPT_LIST); // they would point into the file
        ok = apply_setting(&t->o, &d[i], value, err);
        if (t->keep_given)
            options_yield(&t->o, &d[i]);
    }
    const json_t *stops = json_object_get(settings, "reverse-prompt");
    if (ok && stops && !(t->keep_given && options_named(&t->o, "--reverse-prompt")))
        ok = apply_stops(&t->o, stops, err);
    const json_t *frame = json_object_get(settings, "frame");
    if (ok && !(t->keep_given && names_system(&t->o))) { // which is in its place
        t->o.frame = frame ? own_bytes(&t->o, frame) : NULL;
        ok = !frame || (t->o.frame && prompt_takes_input(t->o.frame)) ||
             error_set(err, ERR_FAIL,
                       "frame: expected a text that says {{input}}, of characters up to U+00FF");
    }
    // Where the text goes on there need not be who guesses, of whom it is independent.
    if ((t->o.spec == SPEC_DRAFT && !t->o.model_draft) || (t->o.spec == SPEC_MTP && !t->predicts))
        t->o.spec = SPEC_AUTO;
    ok = ok && sampler_check(&t->o.sampler, t->n_vocab, err);
    if (ok || err->code == ERR_MEMORY)
        return ok;
    err->code = ERR_FAIL; // the file is wrong, not the command line
    return error_prefix(err, "a setting of the session cannot be");
}

// Reads a session into c; lock NULL: only to begin with. note is extended by how it went.
static bool read_session(struct session_lock *l, const char *path, const char *name,
                         struct conversation *c, struct options *o, bool keep_given,
                         struct buf *note, struct buf *warning, struct error *err)
{
    struct session_loaded loaded = {0};
    struct buf system = {0};
    // A system prompt from the command line replaces the saved one, also one with {{input}}, or "".
    const bool replaces = keep_given && names_system(o);
    if (replaces && c->has_system)
        buf_append(&system, c->messages[0].text.data, c->messages[0].text.len);
    struct trial t = {.o = *o,
                      .keep_given = keep_given,
                      .n_vocab = c->model->hp.n_vocab,
                      .predicts = c->session.predictor};
    bool ok = l ? need_writer(l, o, err) &&
                      session_writer_load(l->writer, c, try_settings, &t, &loaded, err)
                : session_file_read(path, c, try_settings, &t, &loaded, err);
    if (ok)
        *o = t.o;
    if (ok && replaces)
        ok = conversation_set_system(c, buf_str(&system), system.len, err);
    buf_release(&system);
    if (!ok)
        return false;
    size_t turns = conversation_n_turns(c);
    buf_printf(note, "session %s: %zu turn%s", name, turns, turns == 1 ? "" : "s");
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER];
    const size_t restored = seq_len(c->session.seq);
    if (loaded.n_tokens > 0 && !loaded.behind)
        buf_printf(note, ", %s token%s", format_number(a, loaded.n_tokens),
                   loaded.n_tokens == 1 ? "" : "s");
    if (loaded.kv == SESSION_KV_RESTORED)
        buf_printf(note, ", restored in %.0f ms", loaded.seconds * 1e3);
    else if (loaded.kv == SESSION_KV_STALE && restored > 0)
        buf_printf(warning,
                   "of the session's memory %s of %s tokens are restored (%s): the rest is read "
                   "again with the next message",
                   format_number(a, restored), format_number(b, loaded.n_tokens), loaded.kv_reason);
    else if (loaded.kv == SESSION_KV_STALE)
        buf_printf(warning,
                   "the session's memory cannot be restored (%s): it is read again with the next "
                   "message",
                   loaded.kv_reason);
    if (loaded.cut)
        buf_printf(warning,
                   "%swhat was saved last in session %s is not all there (cut off?): this is the "
                   "state before it",
                   warning->len > 0 ? "\n" : "", name);
    if (loaded.template_changed)
        buf_printf(warning,
                   "%sthe session was saved with another chat template: what differs is read again",
                   warning->len > 0 ? "\n" : "");
    return true;
}

bool session_open(struct session_lock *l, const char *name, struct conversation *c,
                  struct options *o, bool keep_given, struct buf *note, struct buf *warning,
                  struct error *err)
{
    if (!session_lock_take(l, o->state_dir, name, err))
        return false;
    bool ok;
    if (session_exists(l)) {
        l->unnamed = session_is_unnamed(name);
        ok = session_may_change(l, err) &&
             read_session(l, NULL, name, c, o, keep_given, note, warning, err);
    } else {
        ok = session_name_check_new(name, err) &&
             (buf_printf(note, "new session %s", name) ||
              error_oom(err, "the name of a session", strlen(name)));
    }
    if (!ok)
        session_lock_release(l);
    return ok;
}

void session_remove_empty(struct session_lock *l)
{
    struct session_info info;
    if (!l->unnamed)
        return;
    session_lock_wait(l); // else it would come back
    if (session_exists(l) && session_file_info(buf_str(&l->path), &info, NULL)) {
        if (info.turns == 0)
            unlink(l->path.data);
        session_info_release(&info);
    }
}

void session_open_unnamed(struct session_lock *l, const struct options *o, struct buf *warning)
{
    struct error e = {0};
    *l = SESSION_LOCK_NONE;
    if (o->no_history || !o->state_dir)
        return;
    if (!session_lock_take_unnamed(l, o->state_dir, (int64_t)time(NULL), &e))
        buf_printf(warning, "this chat is not kept: %s", e.text);
}

bool session_open_base(const char *name, struct conversation *c, struct options *o,
                       struct buf *note, struct buf *warning, struct error *err)
{
    struct buf path = {0};
    bool ok = session_find(o->state_dir, name, &path, err) &&
              read_session(NULL, buf_str(&path), name, c, o, true, note, warning, err);
    buf_release(&path);
    return ok;
}
