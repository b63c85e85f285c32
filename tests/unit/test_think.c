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

// Every way to cut the text in two and every single byte on its own must give the same parts, which
// stand in the text where the splitter says; `marks`: with marks in the midst of the thinking.
static void check_all(const char *open_tag, const char *text, const char *thinking,
                      const char *answer, bool marks)
{
    size_t n = strlen(text);
    for (size_t cut = 0; cut <= n + 1; cut++) {
        struct seen s = {0};
        struct think_split t;
        struct buf shown = {0};
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
        size_t end = think_answer_end(text, n, t.answer_at);
        assert_int_equal(end - t.answer_at, strlen(answer));
        assert_memory_equal(text + t.answer_at, answer, strlen(answer));
        assert_true(think_append(&shown, text, t.thinking_at, t.thinking_end));
        assert_string_equal(buf_str(&shown), thinking);
        if (!marks)
            assert_int_equal(t.thinking_end - t.thinking_at, strlen(thinking));
        think_release(&t);
        buf_release(&shown);
        buf_release(&s.part[0]);
        buf_release(&s.part[1]);
    }
}

static void check(const char *open_tag, const char *text, const char *thinking, const char *answer)
{
    check_all(open_tag, text, thinking, answer, false);
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

static void every_notation_is_separated(void **state)
{
    (void)state;
    check(NULL, "<seed:think>x\n</seed:think>y", "x", "y");
    check(NULL, "<|START_THINKING|>x<|END_THINKING|>y", "x", "y");
    check("<|START_THINKING|>", "x<|END_THINKING|>y", "x", "y");
    check(NULL, "<|inner_prefix|>x<|inner_suffix|>y", "x", "y");
    check(NULL, "<|channel>thought\nx\n<channel|>y", "x", "y");
    check(NULL, "<|channel>thought\n<channel|>y", "", "y");
    check("[THINK]", "x[/THINK] y [THINK]", "x", "y [THINK]");
    // A tag of another notation is no end.
    check(NULL, "[THINK]a</think>b[/THINK]c", "a</think>b", "c");
}

static void marks_around_the_answer_are_left_out(void **state)
{
    (void)state;
    check(NULL, "<think>x</think><response>\ny\n</response>", "x", "y");
    check(NULL, "<think>x</think>\n\n<answer>y</answer>", "x", "y");
    check(NULL, "<think>x</think><response>y</respon", "x", "y</respon");
    check(NULL, "<think>x</think>y</response>", "x", "y</response>");
    check(NULL, "<|START_THINKING|>x<|END_THINKING|><|START_RESPONSE|>y<|END_RESPONSE|>", "x", "y");
    check(NULL, "<|START_RESPONSE|>y<|END_RESPONSE|>", "", "y");
    // Without thinking they are text, and so are others.
    check(NULL, "<response>y</response>", "", "<response>y</response>");
    check(NULL, "<think>x</think><resp>y", "x", "<resp>y");
}

static void channels_before_the_final_one_are_thinking(void **state)
{
    (void)state;
    check(NULL,
          "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>y",
          "x", "y");
    check(NULL, "<|channel|>final<|message|>y", "", "y");
    check(NULL,
          "<|channel|>analysis<|message|><|end|><|start|>assistant<|channel|>final<|message|>y", "",
          "y");
    check("<|channel|>", "x<|end|><|start|>assistant<|channel|>final<|message|>y", "x", "y");
    check_all(NULL,
              "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>commentary"
              "<|message|>z <|end|><|start|>assistant<|channel|>final<|message|>y <|end|> z",
              "x\n\nz", "y <|end|> z", true);
    // Cut short: within the thinking, a header, before the second message.
    check(NULL, "<|channel|>analysis<|message|>x y", "x y", "");
    check(NULL, "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>fi", "x", "");
    check(NULL, "<|channel|>analysis<|message|>x<|end|>", "x", "");
    check(NULL, "<|channel|>ana", "", "");
    // No header at all.
    char text[512] = "<|channel|>";
    memset(text + 11, 'a', 400);
    check(NULL, text, "", text);
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
    assert_string_equal(think_open_tag_at_end("[THINK]", 7), "[THINK]");
    assert_string_equal(think_open_tag_at_end("<|channel|>analysis<|message|>", 30), "<|channel|>");
    assert_null(think_open_tag_at_end("<|channel|>final<|message|>", 27));
}

static void a_template_says_which_field_it_reads(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        unsigned fields;
    } cases[] = {
        {"{{ message.content }}{% if enable_thinking %}{% elif thinking %}{% set "
         "ns.x=thinking_budget %}",
         0},
        {"{% if message.reasoning_content is string %}", 1},
        {"{%- if \"thinking\" in message %}", 2},
        {"{{ m['thinking'] }}", 2},
        {"{{ message.get('reasoning') or message.get('reasoning_content') }}", 5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(think_fields(cases[i].source, strlen(cases[i].source)), cases[i].fields);
    assert_string_equal(think_field_name(0), "reasoning_content");
    assert_string_equal(think_field_name(1), "thinking");
    assert_string_equal(think_field_name(2), "reasoning");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thinking_is_separated_however_the_text_is_cut),
        cmocka_unit_test(every_notation_is_separated),
        cmocka_unit_test(marks_around_the_answer_are_left_out),
        cmocka_unit_test(channels_before_the_final_one_are_thinking),
        cmocka_unit_test(a_template_says_which_field_it_reads),
        cmocka_unit_test(text_without_thinking_passes_unchanged),
        cmocka_unit_test(an_unfinished_thought_is_still_a_thought),
        cmocka_unit_test(the_prompt_may_leave_the_tag_open),
    };
    return RUN_TESTS("think", tests);
}
