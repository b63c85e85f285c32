#include "test.h"

#include "dialog/think.h"

struct seen {
    struct buf part[2];
};

static bool sink(void *user, enum answer_part part, const char *text, size_t n, struct error *err)
{
    (void)err;
    return buf_append(&((struct seen *)user)->part[part], text, n);
}

// Every way to cut the text in two and every single byte on its own must give the same parts.
static void check(const char *open_tag, const char *text, const char *thinking, const char *answer)
{
    size_t n = strlen(text);
    for (size_t cut = 0; cut <= n + 1; cut++) {
        struct seen s = {0};
        struct think_split t;
        think_init(&t, open_tag);
        if (cut <= n) {
            assert_true(think_push(&t, text, cut, sink, &s, NULL));
            assert_true(think_push(&t, text + cut, n - cut, sink, &s, NULL));
        } else {
            for (size_t i = 0; i < n; i++)
                assert_true(think_push(&t, text + i, 1, sink, &s, NULL));
        }
        assert_true(think_flush(&t, sink, &s, NULL));
        assert_string_equal(buf_str(&s.part[PART_THINKING]), thinking);
        assert_string_equal(buf_str(&s.part[PART_ANSWER]), answer);
        assert_string_equal(text + t.answer_at, answer);
        assert_int_equal(t.thinking_end - t.thinking_at, strlen(thinking));
        assert_memory_equal(text + t.thinking_at, thinking, strlen(thinking));
        think_release(&t);
        buf_release(&s.part[0]);
        buf_release(&s.part[1]);
    }
}

static void thinking_is_separated_however_the_text_is_cut(void **state)
{
    (void)state;
    check(NULL, "<think>\nhm, 2 < 3\n</think>\n\nYes.", "hm, 2 < 3", "Yes.");
    check(NULL, "\n<think>a</thin k></think>b </think>", "a</thin k>", "b </think>");
    check("<think>", "\nwhy\n\nnot</think>so", "why\n\nnot", "so");
    check(NULL, "<think>\n\n</think>\n\nplain", "", "plain");
    check(NULL, "[THINK]x[/THINK]y", "x", "y");
    check(NULL, "<thinking>x</thinking>y", "x", "y");
}

static void text_without_thinking_passes_unchanged(void **state)
{
    (void)state;
    check(NULL, "  two spaces <think>no</think>", "", "  two spaces <think>no</think>");
    check(NULL, "<thin", "", "<thin");
    check(NULL, "", "", "");
    check(NULL, " \n", "", " \n");
}

static void an_unfinished_thought_is_still_a_thought(void **state)
{
    (void)state;
    check(NULL, "<think>half a </thi", "half a </thi", "");
}

static void the_prompt_may_leave_the_tag_open(void **state)
{
    (void)state;
    assert_string_equal(think_open_tag_at_end("x<think>\n", 9), "<think>");
    assert_null(think_open_tag_at_end("<think>\n\n</think>\n\n", 19));
    assert_null(think_open_tag_at_end("", 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thinking_is_separated_however_the_text_is_cut),
        cmocka_unit_test(text_without_thinking_passes_unchanged),
        cmocka_unit_test(an_unfinished_thought_is_still_a_thought),
        cmocka_unit_test(the_prompt_may_leave_the_tag_open),
    };
    return RUN_TESTS("think", tests);
}
