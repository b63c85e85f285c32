// An answer held to a grammar obeys it, whatever tokens are sampled: every token of the built-in
// model's vocabulary is as likely as any other here.
#include "test.h"

#include <stdlib.h>

#include "base/rng.h"
#include "engine/constrain.h"
#include "grammar/matcher.h"
#include "serve/shapes.h"

enum { N_SEEDS = 30, MAX_WORDS = 256 };

static struct gguf *file;
static struct tokenizer *tok;

static int open_tokenizer(void **state)
{
    (void)state;
    char path[4096];
    struct error err = {0};
    snprintf(path, sizeof path, "%s/builtin/hokku-builtin.gguf", getenv("HOKKU_SOURCE"));
    file = gguf_open(path, &err);
    tok = file ? tokenizer_create(file, &err) : NULL;
    if (!tok)
        fail_msg("%s", err.text);
    assert_true(tokenizer_n_vocab(tok) <= 32 * MAX_WORDS);
    return 0;
}

static int close_tokenizer(void **state)
{
    (void)state;
    tokenizer_free(tok);
    gguf_free(file);
    return 0;
}

static struct constraint *open_constraint(const char *schema, bool close)
{
    struct error err = {0};
    struct grammar *g = grammar_from_schema(schema, strlen(schema), 0, NULL, &err);
    struct constraint *c =
        g ? constraint_create(g, NULL, tok, tokenizer_n_vocab(tok), close, &err) : NULL;
    if (!c)
        fail_msg("%s: %s", schema, err.text);
    return c;
}

// An enum of n texts.
static void put_enum(struct buf *out, size_t n)
{
    buf_puts(out, "{\"enum\":[");
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "%s\"%05zu\"", i ? "," : "", i);
    buf_puts(out, "]}");
    assert_false(out->failed);
}

static void preparing_ends_when_it_is_asked_to(void **state)
{
    (void)state;
    struct cancel cancel = {0};
    struct buf schema = {0};
    struct error err = {0};
    cancel_ask(&cancel);
    put_enum(&schema, 20000);
    assert_null(grammar_from_schema(buf_str(&schema), schema.len, 0, &cancel, &err));
    assert_int_equal(err.code, ERR_INTERRUPTED);
    buf_release(&schema);
    buf_puts(&schema, "root ::= ");
    for (int i = 0; i < 20000; i++)
        buf_puts(&schema, "\"a\" ");
    err = (struct error){0};
    assert_null(grammar_from_gbnf(buf_str(&schema), schema.len, &cancel, &err));
    assert_int_equal(err.code, ERR_INTERRUPTED);
    buf_release(&schema);
}

static void the_first_masks_are_there_when_an_answer_begins(void **state)
{
    (void)state;
    struct error err = {0};
    struct grammar *g = grammar_from_gbnf("root ::= [a-z ]+", 16, NULL, &err);
    struct constraint *c = constraint_create(g, NULL, tok, tokenizer_n_vocab(tok), false, &err);
    assert_non_null(c);
    uint32_t allow[MAX_WORDS];
    const size_t n_masks = c->matcher->n_masks;
    constraint_begin(c, NULL, false);
    for (int i = 0; i < 3; i++) {
        assert_true(constraint_mask(c, 100, allow, &err));
        assert_int_equal(c->matcher->n_masks, n_masks);
        const int32_t id = grammar_vocab_find(c->vocab, "a", 1);
        assert_true(allow[id / 32] >> id % 32 & 1);
        assert_true(constraint_accept(c, id, &err));
    }
    constraint_free(c);
}

static void a_long_enum_takes_no_square_of_its_length(void **state)
{
    (void)state;
    struct buf schema = {0};
    struct error err = {0};
    put_enum(&schema, 40000);
    struct grammar *g = grammar_from_schema(buf_str(&schema), schema.len, 0, NULL, &err);
    if (!g)
        fail_msg("%s", err.text);
    grammar_free(g);
    buf_release(&schema);
}

// What doubles 40 times, for each value.
static void preparing_that_would_never_end_is_refused(void **state)
{
    (void)state;
    struct buf schema = {0};
    struct error err = {0};
    buf_puts(&schema, "{\"enum\":[\"x\",2],\"$ref\":\"#/$defs/a0\",\"$defs\":{");
    for (int i = 0; i < 40; i++)
        buf_printf(&schema,
                   "\"a%d\":{\"anyOf\":[{\"$ref\":\"#/$defs/a%d\"},{\"$ref\":\"#/$defs/a%d\"}]},",
                   i, i + 1, i + 1);
    buf_puts(&schema, "\"a40\":{\"type\":\"integer\"}}}");
    assert_null(grammar_from_schema(buf_str(&schema), schema.len, 0, NULL, &err));
    assert_int_equal(err.code, ERR_USAGE);
    assert_non_null(strstr(err.text, "more than 67108864 steps"));
    buf_release(&schema);
}

// At most n random tokens under c's mask, to text. Returns how many, the end token included.
static size_t walk(struct constraint *c, size_t n, uint64_t seed, struct buf *text)
{
    const uint32_t n_vocab = tokenizer_n_vocab(tok);
    uint32_t allow[MAX_WORDS];
    struct error err = {0};
    for (size_t i = 0; i < n; i++) {
        int32_t ids[32 * MAX_WORDS];
        uint32_t n_ids = 0;
        if (!constraint_mask(c, n - i, allow, &err))
            fail_msg("%s after \"%s\"", err.text, buf_str(text));
        for (uint32_t id = 0; id < n_vocab; id++)
            if (allow[id / 32] >> (id % 32) & 1)
                ids[n_ids++] = (int32_t)id;
        assert_true(n_ids > 0);
        int32_t id = ids[rng_u64(seed, i, 0) % n_ids];
        if (!constraint_accept(c, id, &err))
            fail_msg("%s after \"%s\"", err.text, buf_str(text));
        if (tokenizer_is_end(tok, id))
            return i + 1;
        assert_true(tokenizer_decode_one(tok, id, true, text));
    }
    return n;
}

// Whether text is in the grammar, by a look of its own.
static bool is_in_grammar(const struct constraint *c, const char *text, size_t n)
{
    struct grammar_state s;
    struct error err = {0};
    size_t n_taken;
    grammar_state_init(&s, c->matcher);
    bool ok = grammar_accept_bytes(&s, text, n, &n_taken, &err) && grammar_may_end(&s);
    grammar_state_release(&s);
    return ok;
}

static const char *const schemas[] = {
    "{\"type\":\"string\"}",
    "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}",
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"$ref\":\"#\"},"
    "\"c\":{\"const\":\"what takes long to be written, once it is begun, and has no shorter "
    "way\"}},"
    "\"required\":[\"a\"]}",
    "{\"type\":\"array\",\"items\":{\"enum\":[1,\"a value longer than the others\"]}}",
};

static void an_answer_comes_to_its_end_where_there_is_room(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof schemas / sizeof *schemas; k++) {
        struct constraint *c = open_constraint(schemas[k], true);
        size_t n_used = 0;
        for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
            struct buf text = {0};
            constraint_begin(c, NULL, false);
            size_t n = grammar_distance(&c->state) + 1 + rng_u64(seed, k, 1) % 90;
            n_used += walk(c, n, seed, &text) > 20;
            if (!constraint_obeyed(c) || !is_in_grammar(c, buf_str(&text), text.len))
                fail_msg("%s in %zu tokens: \"%s\"", schemas[k], n, buf_str(&text));
            buf_release(&text);
        }
        assert_true(n_used > 0); // not by answers that are as short as can be
        constraint_free(c);
    }
}

static void without_room_it_does_not_obey(void **state)
{
    (void)state;
    for (int close = 0; close < 2; close++) {
        struct constraint *c = open_constraint("{\"const\":\"one two three four five\"}", close);
        struct buf text = {0};
        constraint_begin(c, NULL, false);
        walk(c, 2, 1, &text);
        assert_false(constraint_obeyed(c));
        buf_release(&text);
        constraint_free(c);
    }
}

// Tags of which the vocabulary's ordinary tokens have parts, and go on behind them.
static void thinking_is_free_and_what_follows_its_mark_obeys(void **state)
{
    (void)state;
    static const char *const tags[] = {"e", "he", "</think>"};
    for (size_t k = 0; k < 3; k++)
        for (int close = 0; close < 2; close++) {
            struct constraint *c =
                open_constraint("{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,2]}},"
                                "\"additionalProperties\":false}",
                                close);
            size_t n_answers = 0, n_thought = 0;
            for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
                struct buf text = {0};
                constraint_begin(c, &(struct thinking_marks){.open = "<think>", .close = tags[k]},
                                 true);
                walk(c, 120, seed, &text);
                const char *mark = memmem(buf_str(&text), text.len, tags[k], strlen(tags[k]));
                size_t at = mark ? (size_t)(mark - text.data) + strlen(tags[k]) : text.len;
                n_thought += mark && at > strlen(tags[k]) + 10;
                while (at < text.len && strchr(" \t\r\n", text.data[at]))
                    at++;
                if (constraint_obeyed(c)) {
                    n_answers++;
                    if (!mark || !is_in_grammar(c, text.data + at, text.len - at))
                        fail_msg("\"%s\"", buf_str(&text));
                } else if (close) {
                    fail_msg("not to its end: \"%s\"", buf_str(&text));
                }
                buf_release(&text);
            }
            // (Whether the last tag comes by chance is chance.)
            assert_true(close ? n_answers == N_SEEDS : n_answers > 1 || k > 0);
            assert_true(n_thought > 1 || k > 0);
            constraint_free(c);
        }
}

static bool begins(const char *at, const char *end, const char *mark)
{
    return (size_t)(end - at) >= strlen(mark) && memcmp(at, mark, strlen(mark)) == 0;
}

// Messages with headers: each answer is some of "analysis", or none, and one that is final and
// obeys. No control token stands for the marks here, so that they come in pieces.
static void what_comes_before_the_last_message_is_free(void **state)
{
    (void)state;
    static const char close[] = ". @final: ", again[] = ". @analysis: ";
    for (int off = 0; off < 2; off++)
        for (int room = 0; room < 2; room++) {
            struct constraint *c = open_constraint("{\"enum\":[17, 18]}", room);
            size_t n_answers = 0, n_messages = 0;
            for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
                struct buf text = {0};
                constraint_begin(c,
                                 &(struct thinking_marks){.open = "@",
                                                          .close = close,
                                                          .again = off ? NULL : again,
                                                          .header = 2,
                                                          .sure = 1},
                                 false);
                walk(c, 120, seed, &text);
                // Read it as a header and its text, again and again. (It may have NULs.)
                const char *at = buf_str(&text), *end = at + text.len;
                bool is_final = false, whole = true;
                while (whole && !is_final) {
                    is_final = begins(at, end, close + 2);
                    whole = is_final || begins(at, end, again + 2);
                    if (!whole)
                        break;
                    at += strlen((is_final ? close : again) + 2);
                    n_messages += !is_final;
                    const char *next = memmem(at, (size_t)(end - at), ". ", 2);
                    whole = is_final || next;
                    at = !is_final && next ? next + 2 : at;
                }
                while (is_final && at < end && strchr(" \t\r\n", *at))
                    at++;
                if (constraint_obeyed(c)) {
                    n_answers++;
                    if (!is_final || !is_in_grammar(c, at, (size_t)(end - at)))
                        fail_msg("\"%s\"", buf_str(&text));
                } else if (room || off) {
                    fail_msg("not to its end: \"%s\"", buf_str(&text));
                }
                buf_release(&text);
            }
            assert_true(off || room ? n_answers == N_SEEDS : n_answers > 0);
            assert_true(off ? n_messages == 0 : n_messages > 1);
            constraint_free(c);
        }
}

// It is milliseconds and megabytes with a large vocabulary.
static void schemas_of_a_server_share_what_is_made_of_the_vocabulary(void **state)
{
    (void)state;
    struct error err = {0};
    struct shapes s;
    assert_true(shapes_init(&s, tok, tokenizer_n_vocab(tok), &err));
    assert_null(shapes_take(&s, "{\"type\": 1}", NULL, &err));
    struct constraint *a = shapes_take(&s, "{\"type\": \"null\"}", NULL, &err);
    struct constraint *b = shapes_take(&s, "{\"type\": \"boolean\"}", NULL, &err);
    struct constraint *again = shapes_take(&s, "{\"type\": \"null\"}", NULL, &err);
    assert_true(a && b && again && a->matcher == again->matcher && a->matcher != b->matcher);
    assert_ptr_equal(a->vocab, b->vocab);
    uint32_t allow[MAX_WORDS];
    constraint_begin(b, NULL, false);
    assert_true(constraint_mask(b, 100, allow, &err));
    shapes_give(&s, a);
    shapes_give(&s, b);
    shapes_give(&s, again);
    shapes_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_comes_to_its_end_where_there_is_room),
        cmocka_unit_test(without_room_it_does_not_obey),
        cmocka_unit_test(thinking_is_free_and_what_follows_its_mark_obeys),
        cmocka_unit_test(what_comes_before_the_last_message_is_free),
        cmocka_unit_test(preparing_ends_when_it_is_asked_to),
        cmocka_unit_test(the_first_masks_are_there_when_an_answer_begins),
        cmocka_unit_test(a_long_enum_takes_no_square_of_its_length),
        cmocka_unit_test(preparing_that_would_never_end_is_refused),
        cmocka_unit_test(schemas_of_a_server_share_what_is_made_of_the_vocabulary),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("constrain", tests, open_tokenizer, close_tokenizer);
}
