// A conversation with a model that has a recurrent state, or layers with a window of which only the
// newest positions are kept: whatever was undone, edited, retried, forked, saved and resumed
// before, an answer has the text that it has in a fresh conversation, and little is evaluated
// again. `test_going_back FAMILY [cpu|cuda]`: on the emulation in fewer steps, with shorter texts.
#include "sequences.h"

#include <string.h>
#include <unistd.h>

#include "dialog/session_file.h"
#include "engine/states.h"

static const char chatml[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

enum { MOST_TURNS = 7, N_CTX = 16384, N_BATCH = 64 };

static uint32_t n_batch = N_BATCH;

struct turn { // what a turn is made of
    char text[1400];
    uint64_t seed;
};

struct talk {
    struct engine *e;
    struct conversation c;
    struct session_writer *saved; // NULL: nothing is
    struct turn turns[MOST_TURNS];
    size_t n;
    bool asked;       // the last step was a turn
    size_t n_dropped; // undone turns whose windows were not kept
};

static uint32_t n_long = 6; // one of so many turns is a long one
static char dir[] = "/tmp/hokku-going-back-XXXXXX";

static void begin(struct talk *t, struct engine *e)
{
    struct error err = {0};
    *t = (struct talk){.e = e};
    if (!conversation_init(&t->c, model, e, chatml, strlen(chatml), 0, &err))
        fail_msg("%s", err.text);
}

static struct engine *open_engine(uint32_t batch)
{
    return open_for(1, on_cuda ? 2048 : N_CTX, batch);
}

// Answers the user's message that is there.
static void answer(struct conversation *c, uint64_t seed)
{
    struct sampler_settings sampler = sampler_defaults;
    struct error err = {0};
    enum finish finish;
    sampler.seed = seed;
    const struct answer_params p = {
        .sampler = &sampler,
        .n_predict = on_cuda ? 5 : 12,
        .ignore_eos = true,
        .spec = SPEC_NGRAM, // what `auto` tries depends on the clock
    };
    if (!conversation_answer(c, &p, &finish, &err))
        fail_msg("%s", err.text);
}

static void ask(struct conversation *c, const struct turn *turn)
{
    struct error err = {0};
    const size_t n_past = seq_n_past(c->session.seq), len = seq_len(c->session.seq);
    if (!conversation_add(c, ROLE_USER, turn->text, strlen(turn->text), &err))
        fail_msg("%s", err.text);
    answer(c, turn->seed);
    const struct session_stats *said = &c->session.stats;
    assert_int_equal(said->n_reused + said->n_evaluated, said->n_prompt);
    assert_in_range(said->n_reused, 0, n_past);
    if (len > n_past + 1)
        assert_in_range(said->n_again, len - n_past - 1, said->n_evaluated);
}

static struct turn random_turn(void)
{
    static const char *const words[] = {"one ", "two ", "three ", "go back ", "again ", "so "};
    struct turn t = {.seed = below(1000)};
    const uint32_t n = below(n_long) == 0 ? (on_cuda ? 30 : 150) : 1 + below(8);
    for (uint32_t i = 0; i < n; i++)
        strcat(t.text, words[below(6)]);
    return t;
}

static void next_turn(struct talk *t)
{
    t->turns[t->n++] = random_turn();
    ask(&t->c, &t->turns[t->n - 1]);
}

static void check_text(const struct talk *t, struct engine *fresh)
{
    struct conversation c = {0};
    struct error err = {0};
    if (!conversation_init(&c, model, fresh, chatml, strlen(chatml), 0, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < t->n; i++)
        ask(&c, &t->turns[i]);
    assert_int_equal(c.n_messages, t->c.n_messages);
    for (size_t i = 0; i < c.n_messages; i++)
        assert_string_equal(buf_str(&c.messages[i].text), buf_str(&t->c.messages[i].text));
    conversation_release(&c);
}

// As a chat does after each answer.
static void save(struct talk *t)
{
    struct error err = {0};
    bool done;
    if (!session_writer_save(t->saved, &t->c, NULL, &err) ||
        !session_writer_settle(t->saved, -1, &done, &err))
        fail_msg("%s", err.text);
}

// Goes on with what was saved in another sequence.
static void resume(struct talk *t, const char *path)
{
    struct conversation c = {0};
    struct session_loaded loaded;
    struct error err = {0};
    const size_t n_past = seq_n_past(t->c.session.seq);
    if (!conversation_init(&c, model, t->e, chatml, strlen(chatml), 0, &err) ||
        !session_file_read(path, &c, NULL, NULL, &loaded, &err))
        fail_msg("%s", err.text);
    if (loaded.kv == SESSION_KV_STALE)
        fail_msg("kv %d: %s", loaded.kv, loaded.kv_reason);
    assert_in_range(seq_n_past(c.session.seq), n_past, seq_len(t->c.session.seq));
    conversation_release(&t->c);
    t->c = c;
}

// After the last n turns were undone. Of windows, that of the last turn's beginning is kept.
static void check_undone(struct talk *t, size_t n)
{
    const struct seq *s = t->c.session.seq;
    t->n_dropped += seq_n_past(s) < seq_len(s);
    if (t->e->n_states > 0 || (n == 1 && t->asked))
        assert_in_range(seq_len(s) - seq_n_past(s), 0, STATES_EVERY);
    if (t->e->n_states == 0 && n == 1 && t->asked)
        assert_int_equal(seq_len(s), seq_n_past(s));
}

static void step(struct talk *t, const char *path)
{
    const uint32_t n_ways = t->saved ? 6 : 5;
    const uint32_t how = t->n == 0 ? 0 : t->n == MOST_TURNS ? 3 + below(2) : below(n_ways);
    const size_t n = t->n == 0 ? 0 : 1 + below((uint32_t)t->n);
    struct message old;
    switch (how) {
    case 0: // the next turn
    case 1:
        next_turn(t);
        break;
    case 2: // another answer
        t->turns[t->n - 1].seed = below(1000);
        assert_true(conversation_take_answer(&t->c, &old, NULL));
        message_release(&old);
        answer(&t->c, t->turns[t->n - 1].seed);
        break;
    case 3: // other words in the place of the last n turns
        assert_int_equal(conversation_undo(&t->c, n), n);
        check_undone(t, n);
        t->n -= n;
        next_turn(t);
        break;
    case 4: // undo, perhaps redo
        assert_int_equal(conversation_undo(&t->c, n), n);
        check_undone(t, n);
        if (below(2))
            assert_int_equal(conversation_redo(&t->c, n), n);
        else
            t->n -= n;
        break;
    case 5: // as a session, perhaps twice
        resume(t, path);
        break;
    }
    t->asked = how <= 1;
}

// f becomes another conversation, of the first turns of t, which is saved at path: some of the
// tokens that t has are its own, too. It takes the place of the one that it was.
static void fork_talk(struct talk *f, struct talk *t, const char *path)
{
    struct session_loaded loaded;
    struct error err = {0};
    const size_t n_undone = below(2) ? 0 : below((uint32_t)t->n + 1);
    const size_t len = seq_len(t->c.session.seq);
    if (f->e)
        conversation_release(&f->c);
    begin(f, t->e);
    if (!session_file_read(path, &f->c, NULL, NULL, &loaded, &err))
        fail_msg("%s", err.text);
    seq_free(f->c.session.seq);
    f->c.session.seq = seq_fork(t->c.session.seq, below(3) ? len : below((uint32_t)len + 1), &err);
    if (!f->c.session.seq)
        fail_msg("%s", err.text);
    assert_int_equal(conversation_undo(&f->c, n_undone), n_undone);
    f->n = t->n - n_undone;
    memcpy(f->turns, t->turns, f->n * sizeof *f->turns);
}

static void random_steps_give_the_text_of_a_fresh_conversation(void **state)
{
    (void)state;
    enum { EACH = 5, N_SLOTS = 7 };
    const int n_steps = on_cuda ? 30 : 200;
    struct engine *e = open_engine(n_batch), *fresh = open_engine(512);
    struct talk t[2] = {0}; // the second: a fork of the first
    struct error err = {0};
    char path[64];
    const uint32_t forks = e->n_states > 0 ? 8 : 20; // one in so many steps
    size_t n_forks = 0, most_copies = 0;
    snprintf(path, sizeof path, "%s/s.session", dir);
    if (e->n_states > 0)
        leave_slots(e, N_SLOTS);
    begin(&t[0], e);
    t[0].saved = session_writer_create(path, false, &err);
    assert_non_null(t[0].saved);
    for (int i = 1; i <= n_steps; i++) {
        const uint32_t k = t[1].e ? below(2) : 0;
        step(&t[k], path);
        if (t[1].e) // windows of both have less room
            t[0].asked = t[1].asked = false;
        save(&t[0]);
        for (int j = 0; i % EACH == 0 && j < 2; j++)
            if (t[j].e)
                check_text(&t[j], fresh);
        if (t[0].n > 0 && below(forks) == 0) {
            fork_talk(&t[1], &t[0], path);
            n_forks++;
            for (int j = 1; j >= 0; j--) { // both go on
                if (t[j].n < MOST_TURNS)
                    next_turn(&t[j]);
                check_text(&t[j], fresh);
            }
            save(&t[0]);
        }
        most_copies = e->core->n_copies > most_copies ? e->core->n_copies : most_copies;
    }
    assert_in_range(n_forks, n_steps / (int)forks / 3, n_steps);
    if (e->n_states > 0)
        assert_in_range(most_copies, 1, SIZE_MAX); // slots have run out
    if (e->n_states == 0) {                        // else this says nothing of windows
        assert_in_range(engine_windows(e), 1, 1);
        assert_in_range(t[0].n_dropped + t[1].n_dropped, 5, n_steps);
    }
    session_writer_free(t[0].saved);
    for (int j = 0; j < 2; j++)
        if (t[j].e)
            conversation_release(&t[j].c);
    assert_int_equal(e->core->n_copies, 0);
    engine_free(fresh);
    engine_free(e);
}

// A turn is one piece, on whose way there may be states.
static void random_steps_in_pieces_of_2048_give_that_text(void **state)
{
    n_batch = 2048;
    random_steps_give_the_text_of_a_fresh_conversation(state);
    n_batch = N_BATCH;
}

static void flip_byte(const char *path, long at)
{
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    const int c = fgetc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    fputc(c ^ 1, f);
    fclose(f);
}

// Where the payload of the last record with this tag lies, or of the first.
static long payload_of(const char *path, const char *tag, bool first)
{
    static char bytes[1 << 22];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_in_range(n, 1, sizeof bytes - 1);
    long at = -1;
    for (size_t i = 64; i + 4 < n && !(first && at > 0); i++)
        if (memcmp(bytes + i, tag, 4) == 0)
            at = (long)i + 36;
    assert_true(at > 0);
    return at;
}

// Saves t as name, damages its last state, or its first, and loads it.
static void load_damaged(struct talk *t, const char *name, bool first,
                         struct session_loaded *loaded)
{
    struct error err = {0};
    char path[64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (!session_file_write(path, &t->c, NULL, &err))
        fail_msg("%s", err.text);
    const long at = payload_of(path, "STAT", first);
    assert_true(!first || at != payload_of(path, "STAT", false));
    flip_byte(path, at + 11);
    if (!session_file_read(path, &t->c, NULL, NULL, loaded, &err))
        fail_msg("%s", err.text);
}

static void a_damaged_state_is_said_and_the_one_before_it_taken(void **state)
{
    (void)state;
    struct engine *e = open_engine(N_BATCH);
    struct talk t;
    struct session_loaded loaded;
    begin(&t, e);
    t.turns[t.n++] = random_turn();
    ask(&t.c, &t.turns[0]);
    t.turns[t.n++] = random_turn();
    ask(&t.c, &t.turns[1]);
    const size_t n_past = seq_n_past(t.c.session.seq);
    load_damaged(&t, "damaged.session", false, &loaded);
    assert_int_equal(loaded.kv, SESSION_KV_STALE);
    assert_string_equal(loaded.kv_reason, "its recurrent state is damaged");
    assert_in_range(seq_n_past(t.c.session.seq), 1, n_past - 1);
    t.turns[t.n++] = random_turn();
    ask(&t.c, &t.turns[2]);
    struct engine *fresh = open_engine(512);
    check_text(&t, fresh);
    conversation_release(&t.c);
    engine_free(fresh);
    engine_free(e);
}

// The memory is whole all the same.
static void a_damaged_state_before_the_newest_is_left_out(void **state)
{
    (void)state;
    struct engine *e = open_engine(N_BATCH);
    struct talk t;
    struct session_loaded loaded;
    begin(&t, e);
    for (; t.n < 3; t.n++) {
        t.turns[t.n] = (struct turn){.text = "one two", .seed = t.n};
        ask(&t.c, &t.turns[t.n]);
    }
    const size_t n_past = seq_n_past(t.c.session.seq);
    load_damaged(&t, "older.session", true, &loaded);
    assert_int_equal(loaded.kv, SESSION_KV_RESTORED);
    assert_int_equal(seq_n_past(t.c.session.seq), n_past);
    t.turns[t.n++] = random_turn();
    ask(&t.c, &t.turns[3]);
    struct engine *fresh = open_engine(512);
    check_text(&t, fresh);
    assert_int_equal(conversation_undo(&t.c, 3), 3);
    t.n = 1;
    t.turns[t.n++] = random_turn();
    ask(&t.c, &t.turns[1]);
    check_text(&t, fresh);
    conversation_release(&t.c);
    engine_free(fresh);
    engine_free(e);
}

// A session that is saved after each turn: a turn costs a state, if there are any, and its own keys
// and values.
static void a_save_appends_one_state(void **state)
{
    (void)state;
    struct engine *e = open_engine(N_BATCH);
    struct talk t;
    struct error err = {0};
    struct session_info info;
    char path[64];
    bool done;
    uint64_t bytes = 0;
    snprintf(path, sizeof path, "%s/appended.session", dir);
    struct session_writer *w = session_writer_create(path, false, &err);
    assert_non_null(w);
    begin(&t, e);
    const uint64_t state_bytes = engine_state_bytes(e);
    for (int i = 0; i < 3; i++) {
        t.turns[t.n] = (struct turn){.text = "one two", .seed = (uint64_t)i};
        ask(&t.c, &t.turns[t.n++]);
        if (!session_writer_save(w, &t.c, NULL, &err) ||
            !session_writer_settle(w, -1, &done, &err) || !session_file_info(path, &info, &err))
            fail_msg("%s", err.text);
        const uint64_t kv = engine_kv_bytes(e, 0, 60);
        if (i > 0)
            assert_in_range(info.bytes - bytes, state_bytes, state_bytes + kv + 4000);
        bytes = info.bytes;
        session_info_release(&info);
    }
    // Nothing new, no state again, and no key.
    if (!session_writer_save(w, &t.c, NULL, &err) || !session_writer_settle(w, -1, &done, &err) ||
        !session_file_info(path, &info, &err))
        fail_msg("%s", err.text);
    assert_in_range(info.bytes - bytes, 0, state_bytes > 0 ? state_bytes - 1 : 4000);
    session_info_release(&info);
    session_writer_free(w);
    conversation_release(&t.c);
    engine_free(e);
}

// A file has more states than are read of it: behind one of those, nothing is saved twice.
static void what_goes_far_back_is_saved_and_read(void **state)
{
    (void)state;
    struct engine *e = open_engine(N_BATCH);
    struct talk t;
    struct error err = {0};
    char path[64];
    snprintf(path, sizeof path, "%s/far-back.session", dir);
    begin(&t, e);
    t.saved = session_writer_create(path, false, &err);
    assert_non_null(t.saved);
    for (; t.n < MOST_TURNS; t.n++) {
        t.turns[t.n] = (struct turn){.text = "two", .seed = t.n};
        ask(&t.c, &t.turns[t.n]);
        save(&t);
    }
    for (size_t n_undone = 1; n_undone < MOST_TURNS; n_undone += 3) {
        assert_int_equal(conversation_undo(&t.c, n_undone), n_undone);
        save(&t);
        resume(&t, path);
        assert_int_equal(conversation_redo(&t.c, n_undone), 0); // a file has none
        t.n -= n_undone;
        for (; t.n < MOST_TURNS; t.n++) {
            t.turns[t.n] = (struct turn){.text = "so", .seed = n_undone};
            ask(&t.c, &t.turns[t.n]);
            save(&t);
        }
    }
    session_writer_free(t.saved);
    conversation_release(&t.c);
    engine_free(e);
}

// The file has a long text without what layers with a window had given up of it. Of what was read
// again since, it gets that, too.
static void save_what_is_read_again(bool reopen)
{
    struct engine *e = open_engine(N_BATCH);
    struct talk t;
    struct error err = {0};
    char path[64];
    size_t n_bytes;
    snprintf(path, sizeof path, "%s/again%d.session", dir, reopen);
    begin(&t, e);
    t.saved = session_writer_create(path, false, &err);
    assert_non_null(t.saved);
    for (; t.n < 4; t.n++) {
        t.turns[t.n] = (struct turn){.seed = t.n};
        for (int k = 0; k < 220; k++)
            strcat(t.turns[t.n].text, k % 7 ? "again " : "one ");
        ask(&t.c, &t.turns[t.n]);
    }
    const size_t n = seq_n_past(t.c.session.seq);
    assert_in_range(seq_exports(t.c.session.seq, 0, n, &n_bytes), 1, n - 1); // not all is there
    save(&t);
    if (reopen) { // as another program finds it
        struct session_loaded loaded;
        struct conversation c = {0};
        session_writer_free(t.saved);
        t.saved = session_writer_create(path, false, &err);
        conversation_release(&t.c);
        if (!t.saved || !conversation_init(&c, model, e, chatml, strlen(chatml), 0, &err) ||
            !session_writer_load(t.saved, &c, NULL, NULL, &loaded, &err))
            fail_msg("%s", err.text);
        t.c = c;
        assert_int_equal(seq_n_past(c.session.seq), n);
    }
    assert_int_equal(conversation_undo(&t.c, 2), 2);
    t.n = 2;
    assert_int_equal(seq_n_past(t.c.session.seq), 0);
    for (int i = 0; i < 2; i++) {
        t.turns[t.n] = (struct turn){.text = "two", .seed = 7};
        ask(&t.c, &t.turns[t.n++]);
        save(&t);
        const size_t n_past = seq_n_past(t.c.session.seq);
        resume(&t, path);
        assert_int_equal(seq_n_past(t.c.session.seq), n_past);
    }
    struct engine *fresh = open_engine(512);
    check_text(&t, fresh);
    session_writer_free(t.saved);
    conversation_release(&t.c);
    engine_free(fresh);
    engine_free(e);
}

static void what_is_read_again_is_saved_with_its_windows(void **state)
{
    (void)state;
    save_what_is_read_again(false);
    save_what_is_read_again(true);
}

static int run(const char *family)
{
    char path[1024];
    struct error err = {0};
    if (!find_family(family, path))
        return 0;
    model = model_load(path, &err);
    if (!model) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    static const struct CMUnitTest all[] = {
        cmocka_unit_test(random_steps_give_the_text_of_a_fresh_conversation),
        cmocka_unit_test(random_steps_in_pieces_of_2048_give_that_text),
        cmocka_unit_test(a_save_appends_one_state),
        cmocka_unit_test(what_goes_far_back_is_saved_and_read),
        cmocka_unit_test(a_damaged_state_is_said_and_the_one_before_it_taken),
        cmocka_unit_test(a_damaged_state_before_the_newest_is_left_out),
    };
    static const struct CMUnitTest no_states[] = {
        cmocka_unit_test(random_steps_give_the_text_of_a_fresh_conversation),
        cmocka_unit_test(what_is_read_again_is_saved_with_its_windows),
        cmocka_unit_test(a_save_appends_one_state),
    };
    struct engine *e = open_engine(N_BATCH);
    const bool has_states = e->n_states > 0;
    n_long = has_states ? 6 : 2; // more than the windows of an engine hold together
    engine_free(e);
    const size_t n_tests = on_cuda      ? 1
                           : has_states ? sizeof all / sizeof *all
                                        : sizeof no_states / sizeof *no_states;
    const int failed =
        _cmocka_run_group_tests(family, has_states ? all : no_states, n_tests, NULL, NULL);
    model_free(model);
    return failed;
}

int main(int argc, char **argv)
{
    char command[64];
    use_device(argc > 2 ? argv[2] : "cpu");
    exact = on_cuda; // else nothing is guessed there
    if (!mkdtemp(dir))
        return 1;
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = run(argc > 1 ? argv[1] : "qwen35");
    snprintf(command, sizeof command, "rm -r %s", dir);
    return failed || system(command) != 0;
}
