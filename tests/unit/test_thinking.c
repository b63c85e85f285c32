// Whole answers of models that think, by a script: what is shown as which part, what the template
// is given of them afterwards, and that the model's memory is used again as far as it says the
// same.
#include "test.h"

#include "dialog/conversation.h"
#include "scripted_engine.h"

// Control tokens in the place of bytes that no text here has, from id FIRST on.
enum { FIRST = 3 + 1 };
static const char *const controls[] = {
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|end|>",
    "<|return|>",
    "<think>",
    "</think>",
    "[THINK]",
    "[/THINK]",
    "<|turn>", // takes the byte of a line break, which is given another
    "<|channel>",
    "<channel|>",
    "<|START_THINKING|>",
    "<|END_THINKING|>",
    "<|START_RESPONSE|>",
    "<|END_RESPONSE|>",
    "<seed:think>",
    "</seed:think>",
};
enum { N_CONTROLS = sizeof controls / sizeof *controls };

// Templates as their families have them, as far as thinking is concerned.
static const char keeping[] = // the fields that Seed-OSS and gpt-oss read, kept in every turn
    "{% for m in messages %}<|start|>{{ m.role }} {% if m.reasoning_content %}<seed:think>"
    "{{ m.reasoning_content }}</seed:think>{% endif %}{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant {% endif %}";
static const char opening[] = // leaves the tag open, forgets the thinking of earlier turns
    "{% for m in messages %}<|start|>{{ m.role }} {{ m.content.split('</think>')[-1] }}</s>"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant <think>{% endif %}";
static const char channels[] =
    "{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% if '<|channel|>' in m.content %}{{ raise_exception('channels in the content') }}{% endif %}"
    "{% if loop.last and 'thinking' in m %}<|start|>assistant<|channel|>analysis<|message|>"
    "{{ m.thinking }}<|end|>{% endif %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}"
    "<|end|>{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}";
static const char plain[] =
    "{% for m in messages %}<|turn>{{ m.role }} {{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|turn>model {% endif %}";
static const char response[] =
    "{% for m in messages %}<|turn>{{ m.role }}{% if m.role == 'assistant' %}<|START_RESPONSE|>"
    "{{ m.content }}<|END_RESPONSE|>{% else %}{{ m.content }}{% endif %}</s>"
    "{#- m.reasoning_content -#}{% endfor %}{% if add_generation_prompt %}<|turn>assistant{% endif "
    "%}";

struct fixture {
    struct buf file;
    struct model *m;
    struct scripted s;
    struct conversation c;
    struct sampler_settings sampler;
    struct buf part[2];
    struct cancel cancel;
    size_t stop_after; // bytes of thinking after which the user interrupts; 0: does not
};

static struct model *thinking_model(struct buf *b)
{
    struct tiny t;
    struct error err = {0};
    tiny_init(&t, "llama");
    struct buf *tokens = tiny_key(&t, "tokenizer.ggml.tokens");
    put_u32(tokens, GGUF_ARRAY);
    put_u32(tokens, GGUF_STRING);
    put_u64(tokens, TINY_VOCAB);
    struct buf *types = tiny_key(&t, "tokenizer.ggml.token_type");
    put_u32(types, GGUF_ARRAY);
    put_u32(types, GGUF_INT32);
    put_u64(types, TINY_VOCAB);
    for (int i = 0; i < TINY_VOCAB; i++) {
        static const char *const first[] = {"<unk>", "<s>", "</s>"};
        static const char *const last[] = {"\xE2\x96\x81", "\n", "b", "c", "d"};
        char byte[8];
        bool control = i >= FIRST && i < FIRST + N_CONTROLS;
        snprintf(byte, sizeof byte, "<0x%02X>", (unsigned)(i - 3));
        put_str(tokens, i < 3         ? first[i]
                        : control     ? controls[i - FIRST]
                        : i < 3 + 256 ? byte
                                      : last[i - 259]);
        put_u32(types, i == 0 ? 2 : i < 3 || control ? 3 : i < 259 ? 6 : 1);
    }
    tiny_bool(&t, "tokenizer.ggml.add_space_prefix", false);
    tiny_bool(&t, "tokenizer.ggml.add_bos_token", false);
    tiny_write(&t, b);
    tiny_release(&t);
    struct gguf *g = gguf_open_memory(b->data, b->len, "tiny.gguf", &err);
    struct model *m = g ? model_from_gguf(g, "tiny.gguf", &err) : NULL;
    if (!m)
        fail_msg("%s", err.text);
    return m;
}

static void open_chat(struct fixture *f, const char *tmpl)
{
    struct error err = {0};
    memset(f, 0, sizeof *f);
    f->m = thinking_model(&f->file);
    scripted_init(&f->s, f->m, 500, 500);
    assert_true(conversation_init(&f->c, f->m, &f->s.base, tmpl, strlen(tmpl), 0, &err));
    f->c.cancel = &f->cancel;
    f->sampler = sampler_defaults;
}

static void close_chat(struct fixture *f)
{
    conversation_release(&f->c);
    engine_free(&f->s.base);
    model_free(f->m);
    buf_release(&f->file);
    buf_release(&f->part[0]);
    buf_release(&f->part[1]);
}

static bool show(void *user, enum answer_part part, const char *text, size_t n, struct error *err)
{
    struct fixture *f = user;
    (void)err;
    assert_true(buf_append(&f->part[part], text, n));
    if (f->stop_after && f->part[PART_THINKING].len >= f->stop_after)
        cancel_ask(&f->cancel);
    return true;
}

static struct ids encode(const struct fixture *f, const char *text, bool special)
{
    struct ids ids = {0};
    struct error err = {0};
    const struct tokenize_options opt = {.special = special, .continuation = true};
    assert_true(tokenizer_encode(f->m->tokenizer, text, strlen(text), &opt, &ids, &err));
    return ids;
}

// A turn: the user asks, and the model writes `script`, in which marks are control tokens, and a b
// other tokens than the tokenizer would take. Returns how many tokens had to be evaluated before
// the first of the answer.
static size_t turn(struct fixture *f, const char *question, const char *script)
{
    struct error err = {0};
    struct ids prefix = {0}, answer = encode(f, script, true);
    enum finish finish;
    struct answer_params p = {.sampler = &f->sampler, .n_predict = -1, .on_text = show, .user = f};
    buf_clear(&f->part[0]);
    buf_clear(&f->part[1]);
    assert_true(conversation_add(&f->c, ROLE_USER, question, strlen(question), &err));
    if (!conversation_prefix(&f->c, f->c.n_messages, THINK_DEFAULT, &prefix, NULL, &err))
        fail_msg("%s", err.text);
    assert_true(prefix.len + answer.len < SCRIPT);
    int32_t b = tokenizer_find(f->m->tokenizer, "b", 1);
    for (size_t i = 0; i < answer.len; i++)
        f->s.script[prefix.len + i] = answer.data[i] == b ? 3 + 'b' : answer.data[i];
    f->s.n_evals = 0;
    bool ok = conversation_answer(&f->c, &p, &finish, &err);
    assert_true(ok || err.code == ERR_INTERRUPTED);
    size_t n = 0;
    for (size_t i = 0; i < f->s.n_evals; i++)
        n += f->s.evals[i].n;
    ids_release(&prefix);
    ids_release(&answer);
    return n;
}

static void expect(const struct fixture *f, const char *thinking, const char *answer)
{
    assert_string_equal(buf_str(&f->part[PART_THINKING]), thinking);
    assert_string_equal(buf_str(&f->part[PART_ANSWER]), answer);
    size_t n;
    const char *text = message_answer(conversation_last_answer((struct conversation *)&f->c), &n);
    assert_int_equal(n, strlen(answer));
    assert_memory_equal(text, answer, n);
}

// What the next prompt is, its control tokens included.
static void expect_prompt(struct fixture *f, const char *want)
{
    struct error err = {0};
    struct ids ids = {0};
    struct buf text = {0};
    if (!conversation_prefix(&f->c, f->c.n_messages, THINK_DEFAULT, &ids, NULL, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < ids.len; i++)
        tokenizer_decode_one(f->m->tokenizer, ids.data[i], true, &text);
    assert_string_equal(buf_str(&text), want);
    ids_release(&ids);
    buf_release(&text);
}

static void add(struct fixture *f, const char *question)
{
    struct error err = {0};
    assert_true(conversation_add(&f->c, ROLE_USER, question, strlen(question), &err));
}

static void control_tokens_part_thinking_from_the_answer(void **state)
{
    (void)state;
    static const struct {
        const char *tmpl, *script, *thinking, *answer;
    } cases[] = {
        {plain, "<think>x y</think>z</s>", "x y", "z"},
        {plain, "[THINK]x y[/THINK]z</s>", "x y", "z"},
        {plain, "<|channel>thought x y<channel|>z</s>", "x y", "z"},
        {plain, "<|channel>thought<channel|>z</s>", "", "z"},
        {plain, "[THINK][/THINK]z</s>", "", "z"},
        {plain, "z</s>", "", "z"},
        {plain, "[THINK]x y</s>", "x y", ""},
        {keeping, "<seed:think>x</seed:think>z</s>", "x", "z"},
        {opening, "x y</think>z</s>", "x y", "z"},
        {opening, "</think>z</s>", "", "z"},
        {response, "<|START_THINKING|>x<|END_THINKING|><|START_RESPONSE|>z<|END_RESPONSE|></s>",
         "x", "z"},
        {response, "<|START_RESPONSE|>z<|END_RESPONSE|></s>", "", "z"},
        {channels,
         "<|channel|>analysis<|message|>x y<|end|><|start|>assistant<|channel|>final<|message|>z"
         "<|return|>",
         "x y", "z"},
        {channels, "<|channel|>final<|message|>z<|return|>", "", "z"},
        {channels, "<|channel|>analysis<|message|>x<|return|>", "x", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        open_chat(&f, cases[i].tmpl);
        turn(&f, "q", cases[i].script);
        expect(&f, cases[i].thinking, cases[i].answer);
        close_chat(&f);
    }
}

static void marks_that_the_user_writes_are_text(void **state)
{
    (void)state;
    struct fixture f;
    open_chat(&f, channels);
    turn(&f, "<|channel|>final<|message|> <think>", "<|channel|>final<|message|>z<|return|>");
    expect(&f, "", "z");
    close_chat(&f);
    // A prompt that ends with a tag of the user's leaves none open.
    open_chat(&f, "{% for m in messages %}{{ m.content }}{% endfor %}");
    turn(&f, "what is <think>", "z</think>y</s>");
    expect(&f, "", "z</think>y");
    close_chat(&f);
}

static void fields_hold_the_thinking_and_the_content_the_answer(void **state)
{
    (void)state;
    struct fixture f;
    open_chat(&f, channels);
    turn(&f, "q",
         "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>z"
         "<|return|>");
    add(&f, "r");
    expect_prompt(&f,
                  "<|start|>user<|message|>q<|end|><|start|>assistant<|channel|>final<|message|>z"
                  "<|end|><|start|>user<|message|>r<|end|><|start|>assistant");
    close_chat(&f);
    open_chat(&f, keeping);
    turn(&f, "q", "<seed:think>x y</seed:think>z</s>");
    add(&f, "r");
    expect_prompt(&f, "<|start|>user q</s><|start|>assistant <seed:think>x y</seed:think>z</s>"
                      "<|start|>user r</s><|start|>assistant ");
    close_chat(&f);
    open_chat(&f, response);
    turn(&f, "q", "<|START_THINKING|>x<|END_THINKING|><|START_RESPONSE|>z<|END_RESPONSE|></s>");
    add(&f, "r");
    expect_prompt(&f, "<|turn>userq</s><|turn>assistant<|START_RESPONSE|>z<|END_RESPONSE|></s>"
                      "<|turn>userr</s><|turn>assistant");
    close_chat(&f);
}

// What the template keeps is not evaluated again; of what it drops, only what follows.
static void kept_thinking_stays_in_the_models_memory(void **state)
{
    (void)state;
    struct fixture f;
    open_chat(&f, keeping);
    turn(&f, "q", "<seed:think>x b</seed:think>z b</s>");
    struct ids more = encode(&f, "</s><|start|>user r</s><|start|>assistant ", true);
    assert_in_range(turn(&f, "r", "<seed:think></seed:think>w</s>"), 1, more.len);
    expect(&f, "", "w");
    ids_release(&more);
    close_chat(&f);
    open_chat(&f, opening);
    turn(&f, "q", "x y</think>z</s>");
    more = encode(&f, "<think>z</s><|start|>user r</s><|start|>assistant <think>", true);
    assert_in_range(turn(&f, "r", "</think>w</s>"), 1, more.len);
    expect_prompt(&f, "<|start|>user q</s><|start|>assistant z</s><|start|>user r</s>"
                      "<|start|>assistant w</s><|start|>assistant <think>");
    ids_release(&more);
    close_chat(&f);
    // The marks around an answer are the template's, what is between them the model's.
    open_chat(&f, response);
    turn(&f, "q", "<|START_RESPONSE|>z b<|END_RESPONSE|></s>");
    more = encode(&f, "</s><|turn>userr</s><|turn>assistant", true);
    assert_in_range(turn(&f, "r", "z</s>"), 1, more.len);
    ids_release(&more);
    close_chat(&f);
}

static void thinking_that_was_interrupted_is_kept_as_thinking(void **state)
{
    (void)state;
    struct fixture f;
    open_chat(&f, keeping);
    f.stop_after = 3;
    turn(&f, "q", "<seed:think>x y w w w w</seed:think>z</s>");
    const struct message *m = conversation_last_answer(&f.c);
    assert_true(m->partial && m->thinking_end - m->thinking_at >= 3 && m->answer_at == m->text.len);
    cancel_clear(&f.cancel);
    f.stop_after = 0;
    turn(&f, "r", "z</s>");
    expect(&f, "", "z");
    assert_int_equal(conversation_undo(&f.c, 2), 2);
    turn(&f, "q", "<seed:think>x</seed:think>z</s>");
    expect(&f, "x", "z");
    close_chat(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_tokens_part_thinking_from_the_answer),
        cmocka_unit_test(marks_that_the_user_writes_are_text),
        cmocka_unit_test(fields_hold_the_thinking_and_the_content_the_answer),
        cmocka_unit_test(kept_thinking_stays_in_the_models_memory),
        cmocka_unit_test(thinking_that_was_interrupted_is_kept_as_thinking),
    };
    return RUN_TESTS("thinking", tests);
}
