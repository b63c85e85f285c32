// Every allocation, jansson's included, of what is read and made of texts fails once: what comes
// out is whole, or "out of memory". Linked with --wrap for malloc and its kin.
#include "test.h"

#include <string.h>

#include "base/error.h"
#include "base/json_text.h"
#include "grammar/grammar.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);

static long allowed = -1; // allocations until one fails; < 0: no limit

static bool fails(void)
{
    return allowed >= 0 && allowed-- == 0;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *s)
{
    return fails() ? NULL : __real_strdup(s);
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_is_whole_or_out_of_memory),
        cmocka_unit_test(a_schema_is_whole_or_out_of_memory),
    };
    return RUN_TESTS("no_memory", tests);
}
