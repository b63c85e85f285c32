#include "test.h"

#include "base/utf8.h"
#include "editor/completion.h"
#include "editor/edit.h"
#include "editor/keys.h"
#include "editor/layout.h"
#include "base/termsafe.h"

#define FAMILY "\U0001F468\u200D\U0001F469\u200D\U0001F467"
#define JAPAN  "\U0001F1EF\U0001F1F5"

// Characters that stay themselves whatever stands beside them.
static const char *const alphabet[] = {"a",
                                       "b",
                                       "Z",
                                       "7",
                                       " ",
                                       " ",
                                       "\n",
                                       "-",
                                       "\u00E9",
                                       "e\u0301",
                                       "\u53E4",
                                       "\u30AB\u3099",
                                       FAMILY,
                                       JAPAN,
                                       "\u2764\uFE0F",
                                       "\U0001F44D\U0001F3FD",
                                       "\x1b",
                                       "\u202E",
                                       "\t",
                                       "\uD55C"};
enum { N_ALPHABET = sizeof alphabet / sizeof *alphabet };

struct dice {
    uint32_t state;
};

static size_t throw(struct dice * d, size_t n)
{
    d->state = d->state * 1664525u + 1013904223u;
    return (size_t)((uint64_t)(d->state >> 4) * n >> 28);
}

// ---------------------------------------------------------------------------------- characters

static void characters_are_what_a_reader_counts(void **state)
{
    (void)state;
    static const struct {
        const char *s;
        size_t n, width;
    } known[] = {
        {"ab", 1, 1},
        {"\u00E9x", 2, 1},
        {"e\u0301x", 3, 1},
        {"\u53E4\u6C60", 3, 2},
        {"\u0E01\u0E33\u0E34", 3, 1}, // Thai: the vowel am is a letter to terminals
        {"\u1100\u1161\u11A8x", 9, 2},
        {FAMILY "x", 18, 6},
        {JAPAN JAPAN, 8, 2},
        {"\U0001F1EFx", 4, 1},
        {"\u2764\uFE0Fx", 6, 2},
        {"\U0001F44D\U0001F3FDx", 8, 4},
        {"1\uFE0F\u20E3x", 7, 2},
        {"\u0301x", 2, 8},  // a mark without a letter: <U+0301>
        {"\x1b[", 1, 1},    // its picture
        {"\u202Ex", 3, 8},  // <U+202E>
        {"\xFF\xFE", 1, 1}, // U+FFFD
        {"\u200Dx", 3, 8},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct buf shown = {0};
        size_t n = strlen(known[i].s);
        struct cluster c = cluster_at(known[i].s, n);
        if (c.n != known[i].n || c.width != known[i].width)
            fail_msg("%zu: %zu bytes of %zu columns, expected %zu of %zu", i, c.n, c.width,
                     known[i].n, known[i].width);
        cluster_show(known[i].s, &c, &shown);
        if (!c.uncertain)
            assert_int_equal(termsafe_width(shown.data, shown.len), c.width);
        for (size_t k = 0; k < shown.len; k++)
            assert_true((unsigned char)shown.data[k] >= 0x20 && shown.data[k] != 0x7F);
        assert_int_equal(cluster_before(known[i].s, c.n), 0);
        buf_release(&shown);
    }
}

// ---------------------------------------------------------------------------------- rows

static void random_text(struct dice *d, size_t n, struct buf *out)
{
    buf_clear(out);
    while (n-- > 0)
        buf_puts(out, alphabet[throw(d, N_ALPHABET)]);
}

// Every position is in one row, no row is wider than the window, and the rows above are found
// from any of them.
static void rows_hold_every_position_at_every_width(void **state)
{
    (void)state;
    struct dice d = {1};
    struct buf text = {0};
    for (size_t cols = 1; cols <= 400; cols += cols < 30 ? 1 : 37) {
        for (size_t round = 0; round < 8; round++) {
            size_t begins[2048], n_rows = 0, at = 0;
            random_text(&d, throw(&d, 120), &text);
            struct layout l = {buf_str(&text), text.len, cols, throw(&d, cols / 2 + 1)};
            for (;;) {
                struct row r = layout_row(&l, at);
                assert_true(n_rows < 2048);
                begins[n_rows++] = r.begin;
                assert_int_equal(r.begin, at);
                assert_true(r.next > at || r.kind == ROW_SOFT);
                assert_true(r.width <= cols && (r.kind == ROW_SOFT || r.width < cols));
                assert_int_equal(layout_column(&l, &r, r.end), r.width);
                for (size_t pos = r.begin; pos < r.next; pos++)
                    assert_int_equal(layout_row_of(&l, pos).begin, r.begin);
                for (size_t col = 0; col <= cols; col++) {
                    size_t pos = layout_position(&l, &r, col);
                    assert_true(pos >= r.begin && (pos < r.next || r.next == r.begin));
                    assert_true(layout_column(&l, &r, pos) <= (col > r.col ? col : r.col));
                }
                for (size_t up = 0; up <= n_rows; up++)
                    assert_int_equal(layout_above(&l, r.begin, up),
                                     begins[up < n_rows ? n_rows - 1 - up : 0]);
                if (r.kind == ROW_LAST)
                    break;
                at = r.next;
            }
            assert_int_equal(at <= text.len, 1);
        }
    }
    buf_release(&text);
}

// ---------------------------------------------------------------------------------- editing

// The plainest editor there is: an array of characters, and a copy of everything for each undo.
struct plain {
    unsigned char c[600];
    size_t n, at;
};

static bool in_word(unsigned char c)
{
    const char *s = alphabet[c];
    return (unsigned char)*s >= 0x80 || (*s >= 'a' && *s <= 'z') || *s == 'Z' || *s == '7';
}

static bool blank(unsigned char c)
{
    return strchr(" \n\t", alphabet[c][0]) != NULL;
}

static size_t plain_find(const struct plain *p, enum where where)
{
    size_t i = p->at;
    switch (where) {
    case WHERE_LEFT:
        return i > 0 ? i - 1 : 0;
    case WHERE_RIGHT:
        return i < p->n ? i + 1 : i;
    case WHERE_WORD_LEFT:
        for (; i > 0 && !in_word(p->c[i - 1]); i--)
            continue;
        for (; i > 0 && in_word(p->c[i - 1]); i--)
            continue;
        return i;
    case WHERE_WORD_RIGHT:
        for (; i < p->n && !in_word(p->c[i]); i++)
            continue;
        for (; i < p->n && in_word(p->c[i]); i++)
            continue;
        return i;
    case WHERE_BLANK_LEFT:
        for (; i > 0 && blank(p->c[i - 1]); i--)
            continue;
        for (; i > 0 && !blank(p->c[i - 1]); i--)
            continue;
        return i;
    case WHERE_LINE_BEGIN:
        for (; i > 0 && alphabet[p->c[i - 1]][0] != '\n'; i--)
            continue;
        return i;
    case WHERE_LINE_END:
        for (; i < p->n && alphabet[p->c[i]][0] != '\n'; i++)
            continue;
        return i;
    case WHERE_TEXT_BEGIN:
        return 0;
    case WHERE_TEXT_END:
        break;
    }
    return p->n;
}

static void plain_cut(struct plain *p, size_t other)
{
    size_t begin = other < p->at ? other : p->at, end = other < p->at ? p->at : other;
    memmove(p->c + begin, p->c + end, p->n - end);
    p->n -= end - begin;
    p->at = begin;
}

static void check_same(const struct plain *p, const struct edit *e, size_t step)
{
    struct buf want = {0};
    size_t at = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (i == p->at)
            at = want.len;
        buf_puts(&want, alphabet[p->c[i]]);
    }
    if (p->at == p->n)
        at = want.len;
    if (want.len != e->text.len || memcmp(buf_str(&want), buf_str(&e->text), want.len) != 0)
        fail_msg("step %zu: \"%s\", expected \"%s\"", step, buf_str(&e->text), buf_str(&want));
    if (at != e->at)
        fail_msg("step %zu: the cursor is at %zu, expected %zu", step, e->at, at);
    buf_release(&want);
}

static void random_keys_do_what_a_plain_editor_does(void **state)
{
    (void)state;
    static struct plain past[20000];
    for (uint32_t seed = 1; seed <= 20; seed++) {
        struct dice d = {seed};
        struct plain p = {0};
        struct edit e = {0};
        size_t n_past = 0;
        for (size_t step = 0; step < 1000; step++) {
            size_t what = throw(&d, 10);
            enum where where = (enum where) throw(&d, WHERE_TEXT_END + 1);
            size_t other = plain_find(&p, where);
            if (what < 4 && p.n < 500) {
                size_t c = throw(&d, N_ALPHABET);
                past[n_past++] = p;
                memmove(p.c + p.at + 1, p.c + p.at, p.n - p.at);
                p.c[p.at++] = (unsigned char)c;
                p.n++;
                assert_true(edit_insert(&e, alphabet[c], strlen(alphabet[c])));
            } else if (what < 7) {
                p.at = other;
                e.at = edit_find(&e, where);
            } else if (what == 7 && where < WHERE_TEXT_BEGIN) {
                if (other != p.at)
                    past[n_past++] = p;
                plain_cut(&p, other);
                assert_true(edit_delete(&e, where));
            } else if (what == 8 && where < WHERE_TEXT_BEGIN) {
                if (other == p.at && where == WHERE_LINE_END && other < p.n)
                    other++;
                if (other == p.at && where == WHERE_LINE_BEGIN && other > 0)
                    other--;
                if (other != p.at)
                    past[n_past++] = p;
                plain_cut(&p, other);
                assert_true(edit_kill(&e, where, false));
            } else if (what == 9) {
                assert_int_equal(edit_undo(&e), n_past > 0);
                if (n_past > 0)
                    p = past[--n_past];
            }
            check_same(&p, &e, step);
        }
        while (n_past > 0) {
            p = past[--n_past];
            assert_true(edit_undo(&e));
            check_same(&p, &e, n_past);
        }
        edit_release(&e);
    }
}

static void what_is_cut_comes_back(void **state)
{
    (void)state;
    struct edit e = {0};
    edit_set(&e, "one two\nthree", 13);
    e.at = 4;
    assert_true(edit_kill(&e, WHERE_LINE_END, false));
    assert_true(edit_kill(&e, WHERE_LINE_END, true)); // the line break
    assert_true(edit_kill(&e, WHERE_BLANK_LEFT, true));
    assert_string_equal(e.killed.data, "one two\n");
    assert_string_equal(e.text.data, "three");
    edit_insert(&e, e.killed.data, e.killed.len);
    assert_string_equal(e.text.data, "one two\nthree");
    edit_kill(&e, WHERE_TEXT_END, false);
    assert_string_equal(e.killed.data, "three");
    edit_release(&e);
}

static void one_undo_takes_back_a_run_of_typing(void **state)
{
    (void)state;
    struct edit e = {0};
    for (const char *s = "abc"; *s; s++)
        edit_type(&e, s, 1);
    edit_insert(&e, " pasted", 7);
    for (const char *s = "def"; *s; s++)
        edit_type(&e, s, 1);
    assert_true(edit_undo(&e));
    assert_string_equal(e.text.data, "abc pasted");
    assert_true(edit_undo(&e));
    assert_string_equal(e.text.data, "abc");
    assert_true(edit_undo(&e));
    assert_string_equal(e.text.data, "");
    assert_false(edit_undo(&e));
    edit_release(&e);
}

static void characters_are_exchanged(void **state)
{
    (void)state;
    static const struct {
        const char *before;
        size_t at;
        const char *after;
    } known[] = {{"ab", 2, "ba"},
                 {"ab", 1, "ba"},
                 {"ab", 0, "ab"},
                 {"a", 1, "a"},
                 {"", 0, ""},
                 {"a\nb", 2, "a\nb"},
                 {"ab\nc", 2, "ba\nc"},
                 {"x\u53E4", 4, "\u53E4x"},
                 {FAMILY "x", 18, "x" FAMILY}};
    struct edit e = {0};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        edit_set(&e, known[i].before, strlen(known[i].before));
        e.at = known[i].at;
        assert_true(edit_transpose(&e));
        assert_string_equal(e.text.data, known[i].after);
    }
    edit_release(&e);
}

// ---------------------------------------------------------------------------------- keys

// What the bytes do, in short: one letter or word per key.
static void told(struct keys *k, const char *bytes, size_t n, size_t step, struct buf *out)
{
    static const char *const verb[] = {"",        "move",  "delete", "kill",     "type",  "paste",
                                       "newline", "^J",    "yank",   "swap",     "undo",  "tab",
                                       "up",      "down",  "pageup", "pagedown", "older", "newer",
                                       "search",  "enter", "editor", "^C",       "^D",    "cancel",
                                       "clear",   "stop",  "quit",   "report"};
    for (size_t i = 0; i < n;) {
        struct key key;
        size_t part = n - i < step ? n - i : step;
        size_t used = keys_next(k, bytes + i, part, &key);
        assert_true(used <= part && (used > 0 || key.verb != KEY_NONE));
        i += used;
        if (key.verb == KEY_NONE)
            continue;
        buf_printf(out, "%s%s", out->len ? " " : "", verb[key.verb]);
        if (key.verb <= KEY_KILL)
            buf_printf(out, ":%d", key.where);
        if (key.verb == KEY_TYPE)
            buf_printf(out, ":%.*s", (int)key.n, key.text);
        if (key.verb == KEY_PASTE)
            buf_printf(out, ":%s", buf_str(&k->pasted));
        if (key.verb == KEY_REPORT)
            buf_printf(out, ":%zu:%zu", key.row, key.column);
    }
}

static void keys_are_known_however_their_bytes_come(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *want;
    } known[] = {
        {"a\u00E9\u53E4", "type:a type:\u00E9 type:\u53E4"},
        {"\x01\x05\x02\x06", "move:5 move:6 move:0 move:1"},
        {"\x1b[A\x1bOA\x1b[1;2A", "up up up"},
        {"\x1b[1;5A\x1b[1;3B", "older newer"},
        {"\x1b[1;5C\x1b[1;3D\x1b[C\x1bOc", "move:3 move:2 move:1 move:3"},
        {"\x1b[H\x1b[1~\x1b[7~\x1bOH", "move:5 move:5 move:5 move:5"},
        {"\x1b[F\x1b[4~\x1b[1;5F", "move:6 move:6 move:8"},
        {"\x1b[3~\x1b[3;5~\x7f\x08", "delete:1 kill:3 delete:0 delete:0"},
        {"\x1b"
         "b\x1b"
         "f\x1b"
         "d\x1b\x7f",
         "move:2 move:3 kill:3 kill:2"},
        {"\x0b\x15\x17\x19\x14\x1f", "kill:6 kill:5 kill:4 yank swap undo"},
        {"\r\n\x1b\r\x1b\n\x1b[13;2u", "enter ^J newline newline newline"},
        {"\x10\x0e\x1b[5~\x1b[6~", "up down pageup pagedown"},
        {"\x12\x07\x0c\x1a\x03\x04\t\x18\x15", "search cancel clear stop ^C ^D tab undo"},
        {"\x18\x05", "editor"},
        {"\x1b\x1b[Ax", "up type:x"},          // Alt-Up of some terminals
        {"\x1bqx", "type:x"},                  // unknown Alt
        {"\x1b\u00E9x", "type:\u00E9 type:x"}, // ... and beyond ASCII
        {"\x1b[[Ax\x1b[15~y\x1b[I", "type:x type:y"},
        {"\x1b[1;\x1b[Ax", "up type:x"}, // one cut short by the next
        {"\x1b[12;34R", "report:12:34"},
        {"\x1bOM\x1bO2M", "enter enter"}, // of the keypad
        // a mouse that a program before has left on sends no line, nor text, nor does what a
        // terminal says of itself move anything
        {"\x1b[<0;12;5M\x1b[<0;12;5mx\x1b[32;12;5M", "type:x"},
        {"\x1b[M ,%x\x1b[M#\xC8%", "type:x"},
        {"\x1b[M\x1b[Ax\x1b[M\r", "up type:x enter"},
        {"\x1b[?62;22c\x1b[>0;276;0cx", "type:x"},
        {"\x16\x1b\x16\r\x16\u53E4", "type:\x1b type:\r type:\u53E4"},
        {"\xFFx\xC3x\xE5\x8F\x41", "type:\uFFFD type:x type:\uFFFD type:x type:\uFFFD type:A"},
        {"\x1b[200~one\rtwo\r\nthree\nend\x1b[201~x", "paste:one\ntwo\nthree\nend type:x"},
        {"\x1b[200~\x1b[A\x03\xFF\u53E4\x1b[201\x1b[201~", "paste:\x1b[A\x03\uFFFD\u53E4\x1b[201"},
        {"\x1b[200~\x1b[201~x", "paste: type:x"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t n = strlen(known[i].bytes);
        for (size_t step = 1; step <= n; step++) {
            struct keys k = {0};
            struct buf out = {0};
            told(&k, known[i].bytes, n, step, &out);
            assert_string_equal(buf_str(&out), known[i].want);
            buf_release(&out);
            keys_release(&k);
        }
    }
    // beyond column 223 the mouse is at 0
    static const char far[] = "\x1b[M \0Ax";
    for (size_t step = 1; step < sizeof far; step++) {
        struct keys k = {0};
        struct buf out = {0};
        told(&k, far, sizeof far - 1, step, &out);
        assert_string_equal(buf_str(&out), "type:x");
        buf_release(&out);
        keys_release(&k);
    }
}

static void any_bytes_make_text_that_is_utf8(void **state)
{
    (void)state;
    struct dice d = {7};
    struct keys k = {0};
    struct edit e = {0};
    for (size_t round = 0; round < 20000; round++) {
        char bytes[16];
        size_t n = 1 + throw(&d, sizeof bytes);
        for (size_t i = 0; i < n; i++)
            bytes[i] =
                (char)(throw(&d, 3) ? throw(&d, 256) : (size_t) "\x1b[O~;2001x"[throw(&d, 10)]);
        for (size_t i = 0; i < n;) {
            struct key key;
            i += keys_next(&k, bytes + i, n - i, &key);
            if (key.verb == KEY_TYPE)
                edit_type(&e, key.text, key.n);
            if (key.verb == KEY_PASTE)
                edit_insert(&e, buf_str(&k.pasted), k.pasted.len);
            if (key.verb == KEY_MOVE)
                e.at = edit_find(&e, key.where);
            if (key.verb == KEY_DELETE)
                edit_delete(&e, key.where);
        }
        if (round % 100 == 0)
            assert_true(utf8_valid(buf_str(&e.text), e.text.len) &&
                        !memchr(buf_str(&e.text), 0, e.text.len));
    }
    assert_true(e.text.len > 1000);
    keys_release(&k);
    edit_release(&e);
}

// ---------------------------------------------------------------------------------- completion

static void candidates_share_their_beginning(void **state)
{
    (void)state;
    struct completions c = {.word = "s"};
    static const char *const names[] = {"session",   "settings", "show",
                                        "set\u00E9", "x",        "set\u00E8"};
    for (size_t i = 0; i < 6; i++)
        completions_add(&c, names[i], strlen(names[i]));
    assert_int_equal(c.n, 5);
    assert_int_equal(completions_common(&c), 1);
    completions_release(&c);
    c.word = "set";
    completions_add(&c, names[3], 5);
    completions_add(&c, names[5], 5);
    assert_int_equal(completions_common(&c), 3); // not half a character
    struct buf list = {0};
    completions_add(&c, "set\x1b[2J", 7);
    completions_list(&c, 10, &list);
    assert_string_equal(list.data, "set\u00E8\nset\u00E9\n");
    buf_release(&list);
    completions_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_are_what_a_reader_counts),
        cmocka_unit_test(rows_hold_every_position_at_every_width),
        cmocka_unit_test(random_keys_do_what_a_plain_editor_does),
        cmocka_unit_test(what_is_cut_comes_back),
        cmocka_unit_test(one_undo_takes_back_a_run_of_typing),
        cmocka_unit_test(characters_are_exchanged),
        cmocka_unit_test(keys_are_known_however_their_bytes_come),
        cmocka_unit_test(any_bytes_make_text_that_is_utf8),
        cmocka_unit_test(candidates_share_their_beginning),
    };
    return RUN_TESTS("lineedit", tests);
}
