#include "dialog/session_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json_text.h"
#include "base/place.h"
#include "dialog/session_codec.h"
#include "dialog/session_log.h"
#include "dialog/session_parts.h"

static uint32_t template_crc(const struct conversation *c)
{
    return c->tmpl ? c->template_crc : 0;
}

static const char *text_of(const json_t *meta, const char *key)
{
    const char *s = json_string_value(json_object_get(meta, key));
    return s ? s : "";
}

static int64_t number_of(const json_t *meta, const char *key)
{
    return json_integer_value(json_object_get(meta, key));
}

// ----------------------------------------------------------------------------------------- reading

// Everything that a file says about messages must hang together before it replaces anything.
static bool check_conversation(const char *path, const struct conversation *c, struct error *err)
{
    size_t head = c->has_system ? 1 : 0;
    for (size_t i = head; i < c->n_messages; i++) {
        enum role want = (i - head) % 2 == 0 ? ROLE_USER : ROLE_ASSISTANT;
        if (c->messages[i].role != want)
            return log_damaged(path, "its messages are out of order", err);
    }
    if ((c->n_messages - head) % 2 != 0)
        return log_damaged(path, "its last message has no answer", err);
    if (c->first_kept > c->n_messages)
        return log_damaged(path, "it drops more messages than it has", err);
    return true;
}

static bool check_timeline(const char *path, const struct ids *timeline, uint32_t n_vocab,
                           struct error *err)
{
    for (size_t i = 0; i < timeline->len; i++)
        if ((uint32_t)timeline->data[i] >= n_vocab)
            return log_damaged(path, "its token timeline cannot be read", err);
    return true;
}

// A piece of the KV cache to the end of s; what it holds past its use is cut off again.
static bool import_piece(struct seq *s, const struct ids *timeline, const struct kv_piece *k,
                         const void *bytes, struct error *err)
{
    struct ids ids = {0};
    bool ok = true;
    for (uint64_t i = k->begin; ok && i < k->end; i++)
        ok = ids_push(&ids, i < timeline->len ? timeline->data[i] : 0);
    ok = ok ? seq_import(s, ids.data, ids.len, bytes, (size_t)k->length, err)
            : error_oom(err, "the timeline of a session", ids.len * sizeof(int32_t));
    ids_release(&ids);
    if (ok)
        seq_trim(s, (size_t)k->use);
    return ok;
}

// One state into s, with bytes for a copy of it; why: what is wrong with it.
static bool import_state(const struct state_piece *x, const struct log_file *f, struct seq *s,
                         unsigned char *bytes, char *why, size_t n_why)
{
    struct error err = {0};
    bool good = true;
    const struct log_record r = {.offset = x->offset, .length = x->length, .crc = x->crc};
    if (!bytes)
        snprintf(why, n_why, "no memory for a copy of its recurrent state");
    else if (x->length != engine_state_bytes(seq_engine(s)))
        snprintf(why, n_why, "its recurrent state has another size");
    else if (!log_file_payload(f, &r, bytes, &good, &err))
        snprintf(why, n_why, "%.150s", err.text);
    else if (!good)
        snprintf(why, n_why, "its recurrent state is damaged");
    else if (!seq_import_state(s, (size_t)x->pos, bytes, &err))
        snprintf(why, n_why, "%.150s", err.text);
    else
        return true;
    return false;
}

// The newest states of those whose tokens s has: it is evaluated up to the last of them, and can go
// back to the others.
static void import_states(const struct session_parts *p, const struct log_file *f, struct seq *s,
                          char *why, size_t n_why)
{
    unsigned char *bytes = malloc(engine_state_bytes(seq_engine(s)) + 1);
    char wrong[160] = "";
    size_t end = p->n_states;
    while (end > 0 && p->states[end - 1].pos > seq_len(s))
        end--;
    for (size_t i = end > SESSION_STATES ? end - SESSION_STATES : 0; i < end; i++)
        if (import_state(&p->states[i], f, s, bytes, wrong, sizeof wrong))
            *wrong = '\0'; // with a newer one nothing is read again for want of one before it
    if (!*why)
        snprintf(why, n_why, "%s", wrong);
    free(bytes);
}

// As far as is known: older programs did not say.
static bool has_weights_of(const json_t *meta, const struct model *m)
{
    const char *weights = text_of(meta, "weights");
    char now[65];
    return !*weights || !model_sample_weights(m, now) || strcmp(weights, now) == 0;
}

// Takes as much of the KV cache as can be used; the rest is evaluated when needed.
static void import_kv(const struct session_parts *p, int fd, const char *path, struct seq *s,
                      struct session_loaded *out)
{
    const struct engine *e = seq_engine(s);
    char *why = out->kv_reason;
    size_t n_why = sizeof out->kv_reason;
    struct error err = {0};
    seq_trim(s, 0);
    if (p->n_pieces > 0 && strcmp(text_of(p->meta, "kv_format"), e->kv_format) != 0)
        snprintf(why, n_why, "its KV cache is of %.60s, this device uses %.60s",
                 text_of(p->meta, "kv_format"), e->kv_format);
    else if (p->n_pieces > 0 && !has_weights_of(p->meta, e->model))
        snprintf(why, n_why, "the model's file has other weights now");
    const struct log_file f = {.path = path, .fd = fd};
    for (size_t i = 0; i < p->n_pieces && !*why; i++) {
        const struct kv_piece *k = &p->pieces[i];
        unsigned char *bytes = NULL;
        bool good = k->checked;
        if (k->end > e->n_ctx)
            snprintf(why, n_why, "it holds %llu tokens, the context only %u",
                     (unsigned long long)p->timeline.len, e->n_ctx);
        else if (!engine_kv_fits(e, (size_t)k->begin, (size_t)k->end, (size_t)k->length))
            snprintf(why, n_why, "its KV cache has another size");
        else if (!(bytes = malloc((size_t)k->length + 1)))
            snprintf(why, n_why, "no memory for a copy of its KV cache");
        else if (k->checked ? !log_read_at(fd, path, k->offset, bytes, (size_t)k->length, &err)
                            : !log_file_payload(&f,
                                                &(struct log_record){.offset = k->offset,
                                                                     .length = k->length,
                                                                     .crc = k->crc},
                                                bytes, &good, &err))
            snprintf(why, n_why, "%.150s", err.text);
        else if (!good)
            snprintf(why, n_why, "its KV cache is damaged");
        else if (!import_piece(s, &p->timeline, k, bytes, &err))
            snprintf(why, n_why, "%.150s", err.text);
        free(bytes);
    }
    if (e->n_states > 0)
        import_states(p, &f, s, why, n_why);
    else if (seq_n_past(s) < seq_len(s) && !*why)
        snprintf(why, n_why, "of layers with a window it holds too little to go on at its end");
    seq_trim(s, seq_n_past(s)); // what is behind it is evaluated again
    if (*why)
        out->kv = SESSION_KV_STALE;
    else
        out->kv = seq_n_past(s) > 0 ? SESSION_KV_RESTORED : SESSION_KV_NONE;
}

static bool read_parts(const char *path, int fd, struct session_parts *p, struct conversation *c,
                       session_accept *accept, void *user, struct session_loaded *out,
                       struct error *err)
{
    struct conversation fresh = {.model = c->model, .tmpl = c->tmpl};
    struct seq *s = c->session.seq;
    double start = clock_now();
    uint32_t n_vocab = c->model->hp.n_vocab;
    bool ok = false;
    *out = (struct session_loaded){
        .cut = p->cut, .n_tokens = p->timeline.len, .behind = number_of(p->meta, "tokens") == 0};
    if (strcmp(text_of(p->meta, "fingerprint"), c->model->fingerprint) != 0) {
        const char *file = text_of(p->meta, "model_path");
        const bool gone = *file && access(file, R_OK) != 0;
        return error_set(err, ERR_FAIL,
                         "%s: made with the model \"%.80s\" (fingerprint %.12s%s%.200s%s), this is "
                         "\"%.80s\" (%.12s); open it with that model, or choose another session",
                         path, text_of(p->meta, "model"), text_of(p->meta, "fingerprint"),
                         gone ? "; its file " : "", gone ? file : "", gone ? " is gone" : "",
                         c->model->name, c->model->fingerprint);
    }
    struct codec_cursor cur = {.p = (unsigned char *)buf_str(&p->messages), .n = p->messages.len};
    if (!codec_messages(&cur, &fresh, n_vocab)) {
        log_unreadable(path, &cur, "its messages cannot be read", err);
        goto done;
    }
    fresh.now = number_of(p->meta, "now");
    fresh.first_kept = (size_t)number_of(p->meta, "first_kept");
    fresh.system_merged = json_is_true(json_object_get(p->meta, "system_merged"));
    fresh.special = json_is_true(json_object_get(p->meta, "special"));
    if (!check_timeline(path, &p->timeline, n_vocab, err) || !check_conversation(path, &fresh, err))
        goto done;
    if (accept && !accept(user, json_object_get(p->meta, "settings"), err)) {
        error_prefix(err, "%s", path);
        goto done;
    }
    // From here on nothing can fail.
    out->template_changed = number_of(p->meta, "template_crc") != template_crc(c) ||
                            json_is_true(json_object_get(p->meta, "plain")) != !c->tmpl;
    import_kv(p, fd, path, s, out);
    // The last token may be sampled and not yet evaluated. (It fits, or is sampled again.)
    size_t n = seq_n_past(s);
    if (n > 0 && p->timeline.len == n + 1 && out->kv != SESSION_KV_STALE)
        seq_append(s, p->timeline.data + n, 1, NULL);
    conversation_take_messages(c, &fresh);
    c->behind = out->behind || seq_len(s) < p->timeline.len;
    c->session.stats = (struct session_stats){.n_dropped = (size_t)number_of(p->meta, "dropped")};
    c->session.restored = seq_n_past(s) > 0;
    out->seconds = clock_now() - start;
    ok = true;
done:
    fresh.tmpl = NULL;
    conversation_release(&fresh);
    return ok;
}

bool session_file_read(const char *path, struct conversation *c, session_accept *accept, void *user,
                       struct session_loaded *out, struct error *err)
{
    struct session_parts p = {0};
    int fd = place_open(path, O_RDONLY, err);
    bool ok = fd >= 0 && session_parts_read(&p, fd, path, WANT_ALL, c->session.engine, err) &&
              read_parts(path, fd, &p, c, accept, user, out, err);
    session_parts_release(&p);
    if (fd >= 0)
        close(fd);
    return ok;
}

void session_info_release(struct session_info *i)
{
    free(i->model_path);
    free(i->template_text);
    *i = (struct session_info){0};
}

static const char *const kv_type_names[] = {[KV_F16] = "f16", [KV_Q8_0] = "q8_0"};

static bool kv_type_of(const json_t *meta, const char *key, enum kv_type *out)
{
    for (enum kv_type t = KV_F16; t <= KV_Q8_0; t++)
        if (strcmp(text_of(meta, key), kv_type_names[t]) == 0) {
            *out = t;
            return true;
        }
    return false;
}

bool session_file_info(const char *path, struct session_info *out, struct error *err)
{
    struct session_parts p = {0};
    *out = (struct session_info){0};
    int fd = place_open(path, O_RDONLY, err);
    bool ok = fd >= 0 && session_parts_read(&p, fd, path, WANT_META, NULL, err);
    if (ok) {
        *out = (struct session_info){.turns = (size_t)number_of(p.meta, "turns"),
                                     .tokens = (size_t)number_of(p.meta, "tokens"),
                                     .bytes = p.size,
                                     .saved_at = number_of(p.meta, "saved_at")};
        snprintf(out->model, sizeof out->model, "%s", text_of(p.meta, "model"));
        snprintf(out->fingerprint, sizeof out->fingerprint, "%s", text_of(p.meta, "fingerprint"));
        snprintf(out->device, sizeof out->device, "%s", text_of(p.meta, "device"));
        snprintf(out->kv_format, sizeof out->kv_format, "%s", text_of(p.meta, "kv_format"));
        out->exact = json_is_true(json_object_get(p.meta, "exact"));
        out->has_types = kv_type_of(p.meta, "cache_type_k", &out->type_k) &&
                         kv_type_of(p.meta, "cache_type_v", &out->type_v);
        out->n_ctx = (uint32_t)number_of(p.meta, "n_ctx");
        const char *model_path = text_of(p.meta, "model_path");
        const bool plain = json_is_true(json_object_get(p.meta, "plain"));
        out->model_path = *model_path ? strdup(model_path) : NULL;
        out->template_text = plain ? NULL : strdup(buf_str(&p.tmpl));
        if ((*model_path && !out->model_path) || (!plain && !out->template_text)) {
            session_info_release(out);
            ok = error_oom(err, "the description of a session", p.tmpl.len);
        }
    }
    session_parts_release(&p);
    if (fd >= 0)
        close(fd);
    return ok;
}

bool session_file_text(const char *path, struct conversation *c, struct error *err)
{
    struct session_parts p = {0};
    int fd = place_open(path, O_RDONLY, err);
    bool ok = fd >= 0 && session_parts_read(&p, fd, path, WANT_MESSAGES, NULL, err);
    struct codec_cursor cur = {.p = (unsigned char *)buf_str(&p.messages), .n = p.messages.len};
    if (ok && !codec_messages(&cur, c, INT32_MAX))
        ok = log_unreadable(path, &cur, "its messages cannot be read", err);
    session_parts_release(&p);
    if (fd >= 0)
        close(fd);
    return ok;
}

// ----------------------------------------------------------------------------------------- writing

// What the file holds.
struct known {
    struct buf messages; // encoded, one after the other
    size_t *ends;        // of each in messages
    size_t n_messages;
    struct ids ids;
    size_t n_kv;
    size_t n_far;   // up to there it lacks some of what layers with a window had given up
    size_t *states; // (n_states) positions of all, room for max_states
    size_t n_states, max_states;
    bool has_template;
    uint32_t template_crc;
};

// A conversation as it was loaded.
struct loaded {
    json_t *meta; // NULL: none was, or it has changed and been saved since
    struct known c;
    bool part;   // its memory could not be restored, or not all of it
    bool has_kv; // the file has a KV cache
};

struct session_writer {
    char *path;
    bool no_kv, text_only;
    struct log_writer *log;
    struct known file, next; // next: once the save that runs has succeeded
    struct loaded loaded;
    bool saving;
    bool description_only; // the save that runs
};

static void known_release(struct known *k)
{
    buf_release(&k->messages);
    free(k->ends);
    free(k->states);
    ids_release(&k->ids);
    *k = (struct known){0};
}

static void loaded_release(struct loaded *l)
{
    json_decref(l->meta);
    known_release(&l->c);
    *l = (struct loaded){0};
}

// What the file would hold of c, but for the KV cache.
static bool known_of(struct known *k, const struct conversation *c, struct error *err)
{
    *k = (struct known){.has_template = true, .template_crc = template_crc(c)};
    k->ends = calloc(c->n_messages + 1, sizeof *k->ends);
    bool ok = k->ends && ids_append(&k->ids, seq_ids(c->session.seq), seq_len(c->session.seq));
    for (; ok && k->n_messages < c->n_messages; k->n_messages++) {
        ok = codec_put_message(&k->messages, &c->messages[k->n_messages]);
        k->ends[k->n_messages] = k->messages.len;
    }
    if (ok)
        return true;
    known_release(k);
    return error_oom(err, "the messages of a session", k->messages.len);
}

// Behind those that there are.
static bool add_state(struct known *k, size_t pos, struct error *err)
{
    if (!array_grow(NULL, &k->states, k->n_states, &k->max_states, sizeof *k->states))
        return error_oom(err, "the list of a session's states",
                         (k->n_states + 1) * sizeof *k->states);
    k->states[k->n_states++] = pos;
    return true;
}

struct session_writer *session_writer_create(const char *path, bool no_kv, struct error *err)
{
    struct session_writer *w = calloc(1, sizeof *w);
    if (w && (w->path = strdup(path)) && (w->log = log_writer_create(path, err))) {
        w->no_kv = no_kv;
        return w;
    }
    if (!w || !w->path)
        error_oom(err, "the writer of a session", sizeof *w);
    session_writer_free(w);
    return NULL;
}

void session_writer_free(struct session_writer *w)
{
    if (!w)
        return;
    log_writer_free(w->log);
    known_release(&w->file);
    known_release(&w->next);
    loaded_release(&w->loaded);
    free(w->path);
    free(w);
}

bool session_writer_load(struct session_writer *w, struct conversation *c, session_accept *accept,
                         void *user, struct session_loaded *out, struct error *err)
{
    struct session_parts p = {0};
    int fd = place_open(w->path, O_RDONLY, err);
    bool ok = fd >= 0 && session_parts_read(&p, fd, w->path, WANT_ALL, c->session.engine, err) &&
              read_parts(w->path, fd, &p, c, accept, user, out, err);
    if (fd >= 0)
        close(fd);
    loaded_release(&w->loaded);
    if (ok && known_of(&w->loaded.c, c, NULL)) {
        w->loaded.meta = json_incref(p.meta);
        w->loaded.part = out->kv == SESSION_KV_STALE;
        w->loaded.has_kv = p.n_pieces > 0;
    }
    // The older format is written anew with the next save.
    if (ok && p.version == LOG_VERSION) {
        known_release(&w->file);
        // A file that cannot be appended to is written anew, too.
        if (!log_writer_continue(w->log, p.length, p.generation, p.slot) ||
            !known_of(&w->file, c, NULL)) {
            session_parts_release(&p);
            return true;
        }
        w->file.template_crc = (uint32_t)number_of(p.meta, "template_crc");
        w->file.has_template = p.tmpl.len > 0;
        // What could not be used is replaced: the timeline ends where the good part does.
        w->file.n_kv = seq_n_past(c->session.seq);
        if (w->file.ids.len > w->file.n_kv)
            w->file.ids.len = w->file.n_kv;
        for (size_t i = 0; i < p.n_pieces; i++)
            if (p.pieces[i].length < engine_kv_bytes(c->session.engine, (size_t)p.pieces[i].begin,
                                                     (size_t)p.pieces[i].end))
                w->file.n_far = (size_t)p.pieces[i].use;
        for (size_t i = 0; ok && i < p.n_states; i++)
            if (p.states[i].pos <= w->file.n_kv)
                ok = add_state(&w->file, (size_t)p.states[i].pos, err);
    }
    session_parts_release(&p);
    return ok;
}

static size_t message_begin(const struct known *k, size_t i)
{
    return i > 0 ? k->ends[i - 1] : 0;
}

static size_t common_messages(const struct known *a, const struct known *b)
{
    size_t i = 0;
    while (i < a->n_messages && i < b->n_messages && a->ends[i] == b->ends[i] &&
           memcmp(a->messages.data + message_begin(a, i), b->messages.data + message_begin(b, i),
                  a->ends[i] - message_begin(a, i)) == 0)
        i++;
    return i;
}

static json_t *safe_string(const char *s)
{
    json_t *j = json_string(s);
    return j ? j : json_string("?");
}

// What a description says of the memory that the file holds.
static const char *const of_memory[] = {"weights",      "device",       "kv_format",
                                        "exact",        "cache_type_k", "cache_type_v",
                                        "kv_positions", "n_ctx",        "tokens"};

// memory: the description of the memory that stays in the file; NULL: it is that of c.
static char *describe(const struct conversation *c, const json_t *settings, size_t n_kv,
                      const json_t *memory)
{
    // How many there are is not known before the rest has been read again.
    const size_t n_tokens = c->behind ? 0 : seq_len(c->session.seq);
    const struct engine *e = c->session.engine;
    const struct model *m = c->model;
    json_lost(); // of what came before
    json_t *j = json_object();
    json_object_set_new(j, "program", json_string("hokku"));
    json_object_set_new(j, "model", safe_string(m->name));
    char *full = m->gguf ? realpath(gguf_file_path(m->gguf, 0), NULL) : NULL;
    const bool no_path = m->gguf && !full && errno == ENOMEM;
    if (full)
        json_object_set_new(j, "model_path", safe_string(full));
    free(full);
    json_object_set_new(j, "fingerprint", safe_string(m->fingerprint));
    char weights[65];
    if (!memory && n_kv > 0 && model_sample_weights(m, weights))
        json_object_set_new(j, "weights", json_string(weights));
    json_object_set_new(j, "device", safe_string(e->device));
    json_object_set_new(j, "kv_format", safe_string(e->kv_format));
    if (e->exact)
        json_object_set_new(j, "exact", json_true());
    json_object_set_new(j, "cache_type_k", json_string(kv_type_names[e->type_k]));
    json_object_set_new(j, "cache_type_v", json_string(kv_type_names[e->type_v]));
    json_object_set_new(j, "kv_positions", json_integer((json_int_t)n_kv));
    json_object_set_new(j, "n_ctx", json_integer(e->n_ctx));
    json_object_set_new(j, "template_crc", json_integer(template_crc(c)));
    json_object_set_new(j, "plain", json_boolean(!c->tmpl));
    if (c->special && !c->tmpl)
        json_object_set_new(j, "special", json_true());
    json_object_set_new(j, "now", json_integer(c->now));
    json_object_set_new(j, "saved_at", json_integer((json_int_t)time(NULL)));
    json_object_set_new(j, "turns", json_integer((json_int_t)conversation_n_turns(c)));
    json_object_set_new(j, "tokens", json_integer((json_int_t)n_tokens));
    json_object_set_new(j, "first_kept", json_integer((json_int_t)c->first_kept));
    json_object_set_new(j, "dropped", json_integer((json_int_t)c->session.stats.n_dropped));
    json_object_set_new(j, "system_merged", json_boolean(c->system_merged));
    if (settings)
        json_object_set_new(j, "settings", json_deep_copy(settings));
    for (size_t i = 0; memory && i < sizeof of_memory / sizeof *of_memory; i++) {
        json_object_del(j, of_memory[i]);
        json_object_set(j, of_memory[i], json_object_get(memory, of_memory[i]));
    }
    char *text = no_path ? NULL : json_written(j, JSON_COMPACT);
    json_decref(j);
    return text;
}

static bool put(struct session_writer *w, const char *tag, uint64_t begin, uint64_t end,
                const void *bytes, size_t n, struct error *err)
{
    void *copy = malloc(n + 1);
    if (!copy)
        return error_oom(err, "a part of a session", n);
    if (n > 0)
        memcpy(copy, bytes, n);
    log_writer_put(w->log, tag, begin, end, copy, n);
    return true;
}

static bool put_messages(struct session_writer *w, size_t from, struct error *err)
{
    const struct known *k = &w->next;
    bool ok = true;
    if (from == k->n_messages && from < w->file.n_messages) // fewer than there were
        ok = put(w, "MSGS", from, from, NULL, 0, err);
    for (size_t i = from; ok && i < k->n_messages; i++)
        ok = put(w, "MSGS", i, i + 1, k->messages.data + message_begin(k, i),
                 k->ends[i] - message_begin(k, i), err);
    return ok;
}

static bool put_timeline(struct session_writer *w, size_t from, struct error *err)
{
    const struct ids *v = &w->next.ids;
    struct buf b = {0};
    bool ok = codec_put_ids(&b, v->len > from ? v->data + from : NULL, v->len - from) ||
              error_oom(err, "the timeline of a session", v->len);
    ok = ok && put(w, "TIME", from, v->len, buf_str(&b), b.len, err);
    buf_release(&b);
    return ok;
}

static bool put_kv(struct session_writer *w, struct seq *s, size_t from, size_t n,
                   struct error *err)
{
    for (size_t end; from < n; from = end) {
        size_t bytes;
        end = n - from < SESSION_KV_PIECE ? n : from + SESSION_KV_PIECE;
        end = seq_exports(s, from, end, &bytes);
        if (bytes < engine_kv_bytes(seq_engine(s), from, end))
            w->next.n_far = end;
        unsigned char *p = malloc(bytes + 1);
        if (!p)
            return error_oom(err, "a copy of the KV cache", bytes);
        if (!seq_export(s, from, end, p, err)) {
            free(p);
            return false;
        }
        log_writer_put(w->log, "KVCH", from, end, p, bytes);
    }
    return true;
}

// The newest state; of a file that is written anew, as many as it has room for. What the file has
// of the first `from` tokens, which stay, is not written again.
static bool put_states(struct session_writer *w, struct seq *s, size_t from, size_t n_kv, bool anew,
                       struct error *err)
{
    const struct known *old = &w->file;
    const size_t bytes = engine_state_bytes(seq_engine(s));
    size_t pos[SESSION_STATES], last = 0;
    for (size_t i = 0; !anew && i < old->n_states && old->states[i] <= from; i++)
        if (!add_state(&w->next, last = old->states[i], err))
            return false;
    const size_t n = seq_states(s, pos, anew ? SESSION_STATES : 1);
    for (size_t i = 0; bytes > 0 && i < n; i++) {
        if (pos[i] <= last || pos[i] > n_kv)
            continue;
        unsigned char *p = malloc(bytes);
        if (!p)
            return error_oom(err, "a copy of a recurrent state", bytes);
        if (!seq_export_state(s, pos[i], p, err)) {
            free(p);
            return false;
        }
        log_writer_put(w->log, "STAT", pos[i], pos[i], p, bytes);
        if (!add_state(&w->next, pos[i], err))
            return false;
    }
    return true;
}

// Where what s has at the end of its first n tokens begins, all of it in all layers.
static size_t whole_from(const struct seq *s, size_t n)
{
    size_t begin = 0, n_bytes;
    for (size_t end; (end = seq_exports(s, begin, n, &n_bytes)) < n;)
        begin = end;
    return begin;
}

// How many tokens' keys and values the file gets.
static size_t kept_kv(const struct session_writer *w, const struct conversation *c)
{
    struct seq *s = c->session.seq;
    return w->no_kv ? 0 : seq_n_past(s);
}

// Whether the file holds c, of which it would hold w->next, as it is, but perhaps for its settings.
static bool is_as_loaded(const struct session_writer *w, const struct conversation *c)
{
    const struct known *k = &w->loaded.c, *now = &w->next;
    return w->loaded.meta && !(w->no_kv && w->loaded.has_kv) && access(w->path, F_OK) == 0 &&
           now->ids.len == k->ids.len &&
           (k->ids.len == 0 ||
            memcmp(now->ids.data, k->ids.data, k->ids.len * sizeof(int32_t)) == 0) &&
           number_of(w->loaded.meta, "first_kept") == (int64_t)c->first_kept &&
           number_of(w->loaded.meta, "now") == c->now && now->n_messages == k->n_messages &&
           common_messages(now, k) == k->n_messages;
}

// The description alone, and the template if that is another.
static bool put_description(struct session_writer *w, const struct conversation *c,
                            const char *meta, struct error *err)
{
    size_t n = 0;
    const char *source = c->tmpl ? template_source(c->tmpl, &n) : "";
    return ((w->file.has_template && w->file.template_crc == template_crc(c)) ||
            put(w, "TMPL", 0, 0, source, n, err)) &&
           put(w, "META", 0, 0, meta, strlen(meta), err);
}

static bool put_all(struct session_writer *w, const struct conversation *c, const char *meta,
                    size_t n_kv, bool anew, struct error *err)
{
    const struct known *old = &w->file, *now = &w->next;
    size_t from = 0, kv_from = 0;
    bool ok = true;
    size_t n_source = 0;
    const char *source = c->tmpl ? template_source(c->tmpl, &n_source) : "";
    if (anew || !old->has_template || old->template_crc != now->template_crc)
        ok = put(w, "TMPL", 0, 0, source, n_source, err);
    ok = ok && put_messages(w, anew ? 0 : common_messages(old, now), err);
    if (!anew && !(w->no_kv && old->n_kv > 0)) {
        while (from < old->ids.len && from < now->ids.len &&
               old->ids.data[from] == now->ids.data[from])
            from++;
        kv_from = old->n_kv < from ? old->n_kv : from;
        // What was given up, and read again since: the session shall go on at its end.
        const size_t whole = n_kv > kv_from ? whole_from(c->session.seq, n_kv) : kv_from;
        if (!w->text_only && whole < old->n_far && whole < kv_from)
            from = kv_from = whole;
        w->next.n_far = old->n_far < kv_from ? old->n_far : kv_from;
    }
    if (w->text_only)
        n_kv = kv_from;
    // It also ends the KV cache where the timelines part.
    ok = ok && put_timeline(w, from, err) && put_kv(w, c->session.seq, kv_from, n_kv, err) &&
         put_states(w, c->session.seq, from, n_kv, anew, err) &&
         put(w, "META", 0, 0, meta, strlen(meta), err);
    w->next.n_kv = n_kv > kv_from ? n_kv : kv_from;
    return ok;
}

bool session_writer_save(struct session_writer *w, const struct conversation *c,
                         const json_t *settings, struct error *err)
{
    bool done;
    session_writer_settle(w, -1, &done, NULL); // a failure there is made good here
    if (!log_writer_look(w->log, err) || !known_of(&w->next, c, err))
        return false;
    const bool as_loaded = is_as_loaded(w, c);
    if (as_loaded && json_equal(json_object_get(w->loaded.meta, "settings"), settings)) {
        known_release(&w->next);
        utimensat(AT_FDCWD, w->path, NULL, 0); // it is the session that was used last
        return true;
    }
    // A memory that could not be restored here can be elsewhere, as long as it is of this text.
    const bool keep = as_loaded && w->loaded.part && log_writer_length(w->log) > 0;
    size_t n_kv = kept_kv(w, c);
    if (w->text_only && n_kv > w->file.n_kv)
        n_kv = w->file.n_kv;
    char *meta = describe(c, settings, n_kv, keep ? w->loaded.meta : NULL);
    bool ok = meta || error_oom(err, "the description of a session", 4096);
    if (ok && strlen(meta) > SESSION_META) // (stop texts, or what stands around each message)
        ok =
            error_set(err, ERR_FAIL,
                      "its description would take %zu bytes, %d at most are read: shorten the stop "
                      "texts, or the prompt that says {{input}}",
                      strlen(meta), SESSION_META);
    if (ok) {
        // Once more than half of the file would be dead, it is written anew.
        size_t n_source = 0;
        if (c->tmpl)
            template_source(c->tmpl, &n_source);
        size_t live = w->next.messages.len + 4 * w->next.ids.len + n_source + strlen(meta) +
                      codec_kv_bytes(c->session.engine, n_kv) +
                      (n_kv > 0 ? SESSION_STATES * engine_state_bytes(c->session.engine) : 0);
        bool anew = !keep && (log_writer_length(w->log) == 0 ||
                              log_writer_length(w->log) / 2 > live + (32 << 10));
        ok = log_writer_start(w->log, anew, err);
        if (ok &&
            !(keep ? put_description(w, c, meta, err) : put_all(w, c, meta, n_kv, anew, err))) {
            log_writer_abort(w->log);
            ok = false;
        } else if (ok) {
            log_writer_commit(w->log);
        }
        w->saving = ok;
        w->description_only = keep;
    }
    if (!ok)
        known_release(&w->next);
    if (ok && !keep) {
        json_decref(w->loaded.meta);
        w->loaded.meta = NULL;
    }
    free(meta);
    return ok;
}

void session_writer_text_only(struct session_writer *w, bool on)
{
    w->text_only = on;
}

bool session_writer_settle(struct session_writer *w, double seconds, bool *done, struct error *err)
{
    bool ok = log_writer_settle(w->log, seconds, done, err);
    if (!*done || !w->saving)
        return ok || !w->saving;
    w->saving = false;
    if (ok && !w->description_only) {
        known_release(&w->file);
        w->file = w->next;
        w->next = (struct known){0};
    } else {
        known_release(&w->next);
    }
    return ok;
}

void session_writer_wait(struct session_writer *w)
{
    bool done;
    log_writer_settle(w->log, -1, &done, NULL);
}

bool session_file_write(const char *path, const struct conversation *c, const json_t *settings,
                        struct error *err)
{
    struct session_writer *w = session_writer_create(path, false, err);
    bool done, ok = w && session_writer_save(w, c, settings, err) &&
                    session_writer_settle(w, -1, &done, err);
    session_writer_free(w);
    return ok;
}
