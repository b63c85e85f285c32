// Every allocation, jansson's included, of what is read and made of texts fails once: what comes
// out is whole, or "out of memory". Linked with --wrap for malloc and its kin.
#include "test.h"

#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json_text.h"
#include "base/utf8.h"
#include "dialog/conversation.h"
#include "dialog/session_file.h"
#include "failing_allocations.h"
#include "grammar/grammar.h"
#include "vectors.h"

// Runs f again and again, each time with one allocation less to come before one fails, until none
// did. f gives 0 for "out of memory", 1 for what is whole.
static void each_fails_once(int (*f)(void *user, struct error *err), void *user, long at_least)
{
    long n = 0;
    for (bool failed = true; failed; n++) {
        struct error err = {0};
        assert_true(n < 100000);
        allowed = n;
        const int whole = f(user, &err);
        failed = allowed < 0;
        allowed = -1;
        if (!whole && err.code != ERR_MEMORY)
            fail_msg("allocation %ld: code %d, \"%s\"", n, (int)err.code, err.text);
        assert_true(whole || failed);
    }
    assert_true(n > at_least);
}

// ---- JSON

static const char text[] =
    "{\"a key that is longer than what jansson begins with\":\"and a text that is longer, too\","
    "\"list\":[true,false,null,1,-2.5,\"\\u00e9\\ud83d\\ude00\",[],{}],\"b\":1,\"c\":2,\"d\":3,"
    "\"e\":4,\"f\":5,\"g\":6,\"h\":7,\"i\":8}";

static int read_text(void *user, struct error *err)
{
    json_error_t why;
    json_t *j = json_read(text, sizeof text - 1, 0, &why);
    if (!j)
        return json_no_memory(&why) && error_oom(err, "a text", 0);
    const long left = allowed;
    allowed = -1;
    assert_true(json_equal(j, user));
    allowed = left;
    json_decref(j);
    return 1;
}

static int write_text(void *user, struct error *err)
{
    char *s = json_written(user, JSON_COMPACT);
    if (!s)
        return error_oom(err, "a text", 0);
    assert_int_equal(strlen(s), sizeof text - 1 - strlen("\\u00e9\\ud83d\\ude00") + 6);
    free(s);
    return 1;
}

static void json_is_whole_or_out_of_memory(void **state)
{
    (void)state;
    json_error_t why;
    json_t *j = json_loadb(text, sizeof text - 1, 0, &why);
    each_fails_once(read_text, j, 40);
    each_fails_once(write_text, j, 5);
    assert_null(json_read("{\"a\":tru}", 9, 0, &why)); // is no want of memory
    assert_false(json_no_memory(&why));
    json_decref(j);
}

// ---- JSON Schema

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":-12},"
    "\"b\":{\"enum\":[\"x\",\"y\"]},\"c\":{\"type\":\"string\",\"pattern\":\"^a+b{2,3}$\"},"
    "\"d\":{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"maxItems\":2}},"
    "\"required\":[\"a\",\"c\"],\"additionalProperties\":false}";

static int read_schema(void *user, struct error *err)
{
    (void)user;
    struct grammar *g = grammar_from_schema(schema, sizeof schema - 1, 0, NULL, err);
    grammar_free(g);
    return g != NULL;
}

static void a_schema_is_whole_or_out_of_memory(void **state)
{
    (void)state;
    each_fails_once(read_schema, NULL, 100);
}

// ---- conversations

static const char chatml[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

struct chat {
    struct conversation c;
    struct ids want;
    char path[64]; // its session
};

static int make_prefix(void *user, struct error *err)
{
    struct chat *t = user;
    struct ids ids = {0};
    const bool ok = conversation_prefix(&t->c, t->c.n_messages, THINK_DEFAULT, &ids, NULL, err);
    if (ok) {
        assert_int_equal(ids.len, t->want.len);
        assert_memory_equal(ids.data, t->want.data, ids.len * sizeof *ids.data);
    }
    ids_release(&ids);
    return ok;
}

static int read_session(void *user, struct error *err)
{
    struct chat *t = user;
    struct conversation c = {0};
    const bool ok = session_file_text(t->path, &c, err);
    assert_true(!ok || c.n_messages == t->c.n_messages);
    conversation_release(&c);
    return ok;
}

static int read_info(void *user, struct error *err)
{
    struct chat *t = user;
    struct session_info info;
    const bool ok = session_file_info(t->path, &info, err);
    assert_true(!ok || (info.model_path && strcmp(info.template_text, chatml) == 0));
    session_info_release(&info);
    return ok;
}

static void a_conversation_goes_on_as_it_was_or_is_out_of_memory(void **state)
{
    (void)state;
    struct chat t = {.path = "/tmp/hokku-no-memory-XXXXXX"};
    struct error err = {0};
    struct engine_params p = {.n_ctx = 512, .n_threads = 1};
    char path[4096];
    snprintf(path, sizeof path, "%s/models/qwen2-tiny-q4_k_m.gguf", vectors_dir(0));
    struct model *m = model_load(path, &err);
    assert_non_null(m);
    struct engine *e = cpu_engine_open(m, &p, &err);
    assert_non_null(e);
    assert_true(conversation_init(&t.c, m, e, chatml, sizeof chatml - 1, 0, &err));
    struct sampler_settings sampler = sampler_defaults;
    struct answer_params a = {.sampler = &sampler, .n_predict = 24, .ignore_eos = true};
    enum finish finish;
    assert_true(conversation_add(&t.c, ROLE_USER, "hi", 2, &err));
    assert_true(conversation_answer(&t.c, &a, &finish, &err));
    const struct buf *said = &t.c.messages[1].text;
    assert_false(utf8_valid(said->data, said->len)); // found again only when made so
    int fd = mkstemp(t.path);
    assert_true(fd >= 0);
    close(fd);
    assert_true(session_file_write(t.path, &t.c, NULL, &err));
    each_fails_once(read_session, &t, 10);
    each_fails_once(read_info, &t, 10);
    unlink(t.path);
    assert_true(conversation_add(&t.c, ROLE_USER, "more", 4, &err));
    assert_true(conversation_prefix(&t.c, 3, THINK_DEFAULT, &t.want, NULL, &err));
    each_fails_once(make_prefix, &t, 10);
    ids_release(&t.want);
    conversation_release(&t.c);
    engine_free(e);
    model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_is_whole_or_out_of_memory),
        cmocka_unit_test(a_schema_is_whole_or_out_of_memory),
        cmocka_unit_test(a_conversation_goes_on_as_it_was_or_is_out_of_memory),
    };
    return RUN_TESTS("no_memory", tests);
}
