// Sessions that somebody wrote on purpose: every checksum is right, every field may be anything.
// What is refused changes nothing; what is accepted can be gone on with.
#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json_text.h"
#include "dialog/crc32.h"
#include "dialog/session_codec.h"
#include "engine/settings.h"
#include "term/repl.h"
#include "tools/replay.h"

enum { N_SECTIONS = 4, TABLE = 24, ENTRY = 24, HEADER = TABLE + N_SECTIONS * ENTRY + 4 };
enum { META, MSGS, TIME, KVCH };
enum { FIRST_RECORD = 64, RECORD_HEAD = 36 };
static const char tags[N_SECTIONS][5] = {"META", "MSGS", "TIME", "KVCH"};

static const char tmpl[] = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                           "{% if add_generation_prompt %}assistant: {% endif %}";

struct fixture {
    char dir[64], path[128];
    struct model *m;
    struct engine *e;
    struct conversation c;
    struct options o;
    struct buf section[N_SECTIONS]; // of the good session, as version 1 has them
    size_t ends[8], n_messages;     // of its messages in section[MSGS]
    size_t n_kv;
};

static size_t below(size_t n);

static void begin(struct fixture *f)
{
    struct error err = {0};
    const struct engine_params p = {.n_ctx = 96, .n_threads = 1};
    const char *root = getenv("HOKKU_SOURCE");
    char model[4096], *argv[] = {"hokku"}, *envp[] = {NULL};
    memset(f, 0, sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/hokku-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    setenv("XDG_CONFIG_HOME", f->dir, 1);
    setenv("XDG_STATE_HOME", f->dir, 1);
    snprintf(f->path, sizeof f->path, "%s/hokku/sessions/s.session", f->dir);
    snprintf(model, sizeof model, "%s/builtin/hokku-builtin.gguf", root ? root : ".");
    assert_true(options_parse(&f->o, 1, argv, envp, &err));
    f->m = model_load(model, &err);
    assert_non_null(f->m);
    f->e = cpu_engine_open(f->m, &p, &err);
    assert_non_null(f->e);
    assert_true(conversation_init(&f->c, f->m, f->e, tmpl, strlen(tmpl), 0, &err));
}

static void end(struct fixture *f)
{
    char command[100];
    for (int i = 0; i < N_SECTIONS; i++)
        buf_release(&f->section[i]);
    conversation_release(&f->c);
    engine_free(f->e);
    model_free(f->m);
    options_release(&f->o);
    snprintf(command, sizeof command, "rm -r %s", f->dir);
    assert_int_equal(system(command), 0);
}

static bool ask(struct fixture *f, const char *text, int64_t n, struct error *err)
{
    const struct answer_params p = {
        .sampler = &f->o.sampler, .n_predict = n, .overflow = f->o.overflow};
    enum finish finish;
    if (!conversation_add(&f->c, ROLE_USER, text, strlen(text), err))
        return false;
    bool ok = conversation_answer(&f->c, &p, &finish, err);
    if (!conversation_last_answer(&f->c))
        conversation_take_back(&f->c);
    return ok;
}

static uint64_t number(const char *p, int n)
{
    uint64_t v = 0;
    while (n--)
        v = v << 8 | (unsigned char)p[n];
    return v;
}

static void put(struct buf *b, uint64_t v, int n)
{
    for (; n; n--, v >>= 8)
        buf_putc(b, (char)(v & 0xFF));
}

static uint32_t crc(const struct buf *b)
{
    static struct crc32 c;
    crc32_init(&c);
    crc32_add(&c, buf_str(b), b->len);
    return crc32_take(&c);
}

static void save_good(struct fixture *f)
{
    struct error err = {0};
    struct session_lock lock = SESSION_LOCK_NONE;
    struct buf file = {0};
    assert_true(options_set(&f->o, "logit-bias", "5-1.5", &err));
    assert_true(options_set(&f->o, "overflow", "shift", &err));
    assert_true(conversation_set_system(&f->c, "Be kind.", 8, &err));
    assert_true(ask(f, "one", 4, &err) && ask(f, "two", 4, &err));
    assert_true(session_lock_take(&lock, f->o.state_dir, "s", &err));
    assert_true(session_save(&lock, &f->c, &f->o, -1, &err));
    session_lock_release(&lock);
    assert_true(file_read(f->path, 1 << 26, &file, &err));
    put(&f->section[MSGS], 5, 8);
    for (size_t at = FIRST_RECORD; at < file.len;) {
        const char *head = file.data + at, *payload = head + RECORD_HEAD;
        size_t n = number(head + 24, 8);
        for (int i = 0; i < N_SECTIONS; i++)
            if (memcmp(head, tags[i], 4) == 0)
                buf_append(&f->section[i], payload, n);
        if (memcmp(head, "MSGS", 4) == 0)
            f->ends[f->n_messages++] = f->section[MSGS].len;
        if (memcmp(head, "KVCH", 4) == 0)
            f->n_kv += number(head + 16, 8) - number(head + 8, 8);
        at += RECORD_HEAD + n;
    }
    assert_true(f->n_messages == 5 && f->n_kv > 0 && f->n_kv < 512);
    buf_release(&file);
}

static void put_record(struct buf *b, int tag, uint64_t begin, uint64_t end, const char *p,
                       size_t n)
{
    struct buf head = {0}, payload = {0};
    buf_append(&payload, p, n);
    buf_puts(&head, tags[tag]);
    put(&head, crc(&payload), 4);
    put(&head, begin, 8);
    put(&head, end, 8);
    put(&head, n, 8);
    put(&head, crc(&head), 4);
    buf_append(b, head.data, head.len);
    buf_append(b, buf_str(&payload), n);
    buf_release(&head);
    buf_release(&payload);
}

static void write_bytes(const struct fixture *f, struct buf *b)
{
    FILE *file = fopen(f->path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(b->data, 1, b->len, file), b->len);
    fclose(file);
    buf_release(b);
}

// The same as a log; strange: a record that is somewhere else.
static void write_log(const struct fixture *f, const struct buf *section, bool strange)
{
    struct buf b = {0}, body = {0};
    const struct buf *m = &section[MSGS];
    for (size_t i = 0; i < f->n_messages; i++) {
        size_t from = i ? f->ends[i - 1] : 8, to = f->ends[i] < m->len ? f->ends[i] : m->len;
        uint64_t index = strange && below(8) == 0 ? below(7) : i;
        put_record(&body, MSGS, index, index + 1, m->data + from, to > from ? to - from : 0);
    }
    size_t n = section[TIME].len / 4, odd = strange ? below(4) : 4;
    put_record(&body, TIME, odd == 0 ? below(n + 2) : 0, n, buf_str(&section[TIME]),
               section[TIME].len);
    put_record(&body, KVCH, odd == 1, f->n_kv + (odd == 2), buf_str(&section[KVCH]),
               section[KVCH].len);
    if (odd == 3) // and cut again
        put_record(&body, TIME, n - below(n), n - below(n), "", 0);
    put_record(&body, META, 0, 0, buf_str(&section[META]), section[META].len);
    buf_puts(&b, "HOKKUSES");
    put(&b, 2, 8);
    for (uint64_t generation = 1; generation <= 2; generation++) {
        struct buf slot = {0};
        put(&slot, generation, 8);
        put(&slot, FIRST_RECORD + body.len, 8);
        put(&slot, crc(&slot), 8);
        buf_append(&b, slot.data, slot.len);
        buf_release(&slot);
    }
    buf_append(&b, body.data, body.len);
    buf_release(&body);
    write_bytes(f, &b);
}

// The file of the first version made of these sections, its checksums right.
static void write_file(const struct fixture *f, const struct buf *section)
{
    struct buf b = {0};
    uint64_t at = HEADER, size = HEADER;
    for (int i = 0; i < N_SECTIONS; i++)
        size += section[i].len;
    buf_puts(&b, "HOKKUSES");
    put(&b, 1, 4);
    put(&b, N_SECTIONS, 4);
    put(&b, size, 8);
    for (int i = 0; i < N_SECTIONS; i++) {
        buf_puts(&b, tags[i]);
        put(&b, crc(&section[i]), 4);
        put(&b, at, 8);
        put(&b, section[i].len, 8);
        at += section[i].len;
    }
    put(&b, crc(&b), 4);
    for (int i = 0; i < N_SECTIONS; i++)
        buf_append(&b, buf_str(&section[i]), section[i].len);
    write_bytes(f, &b);
}

static bool load(struct fixture *f, struct error *err)
{
    struct session_lock lock = SESSION_LOCK_NONE;
    struct buf note = {0}, warning = {0};
    bool ok = session_open(&lock, "s", &f->c, &f->o, false, &note, &warning, err);
    session_lock_release(&lock);
    buf_release(&note);
    buf_release(&warning);
    return ok;
}

static const char *const hostile_texts[] = {
    "",      "-1",          "-5",         "0",    "1e39",     "nan",
    "inf",   "-inf",        "2",          "1.5",  "1000000",  "2147483648",
    "x",     "4096-1",      "99999999+1", "-1+1", "5+inf",    "5+nan",
    "5-inf", "top_k;top_k", ";;;;",       "drop", "\xC3\xA9", "1+1 2+2 2147483647+3",
};
static const int64_t hostile_numbers[] = {
    0,
    1,
    -1,
    2,
    3,
    63,
    64,
    95,
    96,
    97,
    1000,
    INT32_MAX,
    (int64_t)INT32_MAX + 1,
    UINT32_MAX,
    (int64_t)UINT32_MAX + 1,
    INT64_MAX,
    INT64_MIN,
};

static uint64_t seed = 1;
static size_t below(size_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (size_t)((seed >> 33) % n);
}

static json_t *hostile_value(void)
{
    switch (below(6)) {
    case 0:
        return json_real(1e300);
    case 1:
        return json_null();
    case 2:
        return json_array();
    case 3:
        return json_string(hostile_texts[below(sizeof hostile_texts / sizeof *hostile_texts)]);
    default:
        return json_integer(hostile_numbers[below(sizeof hostile_numbers / sizeof(int64_t))]);
    }
}

static void mutate_description(struct buf *b)
{
    json_t *meta = json_loadb(b->data, b->len, 0, NULL), *settings;
    assert_non_null(meta);
    settings = json_object_get(meta, "settings");
    bool a_setting = below(4) > 0;
    json_t *in = a_setting ? settings : meta;
    size_t k = below(json_object_size(in));
    void *it = json_object_iter(in);
    while (k--)
        it = json_object_iter_next(in, it);
    const char *key = json_object_iter_key(it);
    if (a_setting)
        json_object_set_new(
            in, key,
            json_string(hostile_texts[below(sizeof hostile_texts / sizeof *hostile_texts)]));
    else if (strcmp(key, "fingerprint") != 0)
        json_object_set_new(in, key, hostile_value());
    char *text = json_written(meta, JSON_COMPACT);
    buf_clear(b);
    buf_puts(b, text);
    free(text);
    json_decref(meta);
}

static void mutate_numbers(struct buf *b)
{
    for (size_t n = 1 + below(2); n && b->len >= 8; n--) {
        uint64_t v = below(3) ? (uint64_t)hostile_numbers[below(sizeof hostile_numbers / 8)]
                              : (uint64_t)below(SIZE_MAX >> 33) * 0x9E3779B97F4A7C15u;
        size_t width = below(2) ? 4 : below(2) ? 8 : 1, at = below(b->len - 7);
        if (below(4))
            at -= at % 4;
        for (size_t i = 0; i < width; i++, v >>= 8)
            b->data[at + i] = (char)(v & 0xFF);
    }
    if (below(20) == 0)
        b->len -= below(b->len + 1);
}

// What a person would do next, each a user of other fields.
static void go_on(struct fixture *f, size_t i)
{
    struct error err = {0};
    size_t head, counts[8];
    struct buf report = {0};
    const struct session_info info = {.device = "?"};
    switch (i % 4) {
    case 0:
        ask(f, "and", 2, &err);
        break;
    case 1:
        if (conversation_n_turns(&f->c) <= 8)
            conversation_count(&f->c, THINK_DEFAULT, &head, counts, &err);
        conversation_undo(&f->c, 1);
        ask(f, "again", 1, &err);
        break;
    case 2: {
        const struct answer_params p = {
            .sampler = &f->o.sampler, .n_predict = 2, .overflow = f->o.overflow};
        enum finish finish;
        if (conversation_last_answer(&f->c))
            conversation_continue(&f->c, &p, &finish, &err);
        break;
    }
    default:
        tool_replay(&f->c, &info, false, true, NULL, NULL, &report, &err);
        break;
    }
    buf_release(&report);
}

static void no_field_of_a_session_is_trusted(void **state)
{
    (void)state;
    const size_t N = quick() ? 1000 : 4000;
    struct fixture f;
    struct error err = {0};
    size_t n_accepted = 0, n_refused = 0;
    begin(&f);
    save_good(&f);
    write_file(&f, f.section);
    assert_true(load(&f, &err) && seq_n_past(f.c.session.seq) == f.n_kv);
    write_log(&f, f.section, false);
    assert_true(load(&f, &err) && seq_n_past(f.c.session.seq) == f.n_kv);
    for (size_t i = 0; i < N; i++) {
        struct buf section[N_SECTIONS] = {0};
        int which = i % 8 < 3 ? META : i % 8 < 6 ? MSGS : i % 8 == 6 ? TIME : KVCH;
        for (int k = 0; k < N_SECTIONS; k++)
            buf_append(&section[k], buf_str(&f.section[k]), f.section[k].len);
        if (which == META)
            mutate_description(&section[META]);
        else
            mutate_numbers(&section[which]);
        if (i / 8 % 2)
            write_file(&f, section);
        else
            write_log(&f, section, i % 3 == 0);
        err = (struct error){0};
        if (load(&f, &err)) {
            n_accepted++;
            assert_true(sampler_check(&f.o.sampler, f.m->hp.n_vocab, &err));
            assert_true(sampler_check_numbers(&f.o.sampler, &err));
            if (n_accepted % 4 == 0)
                go_on(&f, n_accepted / 4);
        } else {
            n_refused++;
            assert_int_equal(err.code, ERR_FAIL);
            assert_true(strlen(err.text) > 0);
        }
        for (int k = 0; k < N_SECTIONS; k++)
            buf_release(&section[k]);
    }
    assert_true(n_accepted > N / 20 && n_refused > N / 5);
    end(&f);
}

// As the command line would say it, and nothing of the running conversation has changed.
static void a_setting_that_cannot_be_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *says;
    } rows[] = {
        {"logit-bias", "99999999+1", "token id 99999999, expected 0 to "},
        {"top-p", "2", "--top-p: found \"2\", expected a number from 0 to 1"},
        {"temp", "-1", "--temp: found \"-1\""},
        {"temp", "nan", "--temp: found \"nan\""},
        {"temp", "9e99", "--temp: found \"9e99\", expected a number from 0 to 1000000"},
        {"logprobs", "99999999999999999999",
         "--logprobs: found \"99999999999999999999\", expected a number from 0 to 64"},
        {"n-predict", "99999999999999999999",
         "--n-predict: found \"99999999999999999999\", expected a number of at most 64 bits"},
        {"n-predict", "-5", "--n-predict: found \"-5\", expected a whole number of at least -1"},
        {"dry-allowed-length", "0", "--dry-allowed-length: found \"0\""},
        {"logprobs", "1000", "--logprobs: found \"1000\", expected a number from 0 to 64"},
        {"overflow", "sometimes", "--overflow: found \"sometimes\""},
    };
    struct fixture f;
    struct error err = {0};
    begin(&f);
    save_good(&f);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf section[N_SECTIONS];
        memcpy(section, f.section, sizeof section);
        json_t *meta = json_loadb(section[META].data, section[META].len, 0, NULL);
        json_object_set_new(json_object_get(meta, "settings"), rows[i].name,
                            json_string(rows[i].value));
        section[META] = (struct buf){0};
        char *text = json_written(meta, 0);
        buf_puts(&section[META], text);
        free(text);
        json_decref(meta);
        if (i % 2)
            write_file(&f, section);
        else
            write_log(&f, section, false);
        buf_release(&section[META]);
        const struct options before = f.o;
        size_t n_messages = f.c.n_messages, n_past = seq_n_past(f.c.session.seq);
        assert_false(load(&f, &err));
        if (!strstr(err.text, rows[i].says) || !strstr(err.text, "s.session: a setting of"))
            fail_msg("found \"%s\", expected \"%s\"", err.text, rows[i].says);
        assert_int_equal(err.code, ERR_FAIL);
        assert_memory_equal(&before, &f.o, sizeof before);
        assert_true(f.c.n_messages == n_messages && seq_n_past(f.c.session.seq) == n_past);
    }
    end(&f);
}

static size_t n_encoded; // messages

bool __real_codec_put_message(struct buf *b, const struct message *m);
bool __wrap_codec_put_message(struct buf *b, const struct message *m);
bool __wrap_codec_put_message(struct buf *b, const struct message *m)
{
    n_encoded++;
    return __real_codec_put_message(b, m);
}

static void save(struct fixture *f, struct session_lock *lock)
{
    struct error err = {0};
    n_encoded = 0;
    assert_true(session_save(lock, &f->c, &f->o, -1, &err));
}

// Also where it has to find out whether the file holds the conversation as it was loaded.
static void a_save_encodes_each_message_once(void **state)
{
    (void)state;
    struct fixture f;
    struct session_lock lock = SESSION_LOCK_NONE;
    struct buf note = {0}, warning = {0};
    struct error err = {0};
    begin(&f);
    save_good(&f);
    assert_true(session_open(&lock, "s", &f.c, &f.o, false, &note, &warning, &err));
    save(&f, &lock); // as it was loaded: nothing is written
    assert_int_equal(n_encoded, f.c.n_messages);
    assert_true(options_set(&f.o, "temp", "0.5", &err));
    save(&f, &lock); // but for its settings
    assert_int_equal(n_encoded, f.c.n_messages);
    assert_true(ask(&f, "three", 4, &err));
    save(&f, &lock);
    assert_int_equal(n_encoded, f.c.n_messages);
    session_lock_release(&lock);
    f.o.sampler.temp = 0.25f;
    assert_true(load(&f, &err)); // what was saved last is there
    assert_int_equal(f.c.n_messages, 7);
    assert_true(f.o.sampler.temp == 0.5f);
    buf_release(&note);
    buf_release(&warning);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_save_encodes_each_message_once),
        cmocka_unit_test(a_setting_that_cannot_be_is_refused_and_changes_nothing),
        cmocka_unit_test(no_field_of_a_session_is_trusted),
    };
    return RUN_TESTS("session", tests);
}
