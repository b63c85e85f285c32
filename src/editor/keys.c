#include "editor/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define REPLACEMENT "\xEF\xBF\xBD"

// Sequences as they are after normal_form: without modifiers, and ESC [ for ESC O. `other` is what
// the key does with Alt or Ctrl, where that differs.
static const struct binding {
    const char *seq;
    enum verb verb;
    enum where where;
    enum verb other;
    enum where other_where;
} table[] = {
    {"\x01", KEY_MOVE, WHERE_LINE_BEGIN},
    {"\x02", KEY_MOVE, WHERE_LEFT},
    {"\x03", KEY_INTERRUPT},
    {"\x04", KEY_END_OR_DELETE},
    {"\x05", KEY_MOVE, WHERE_LINE_END},
    {"\x06", KEY_MOVE, WHERE_RIGHT},
    {"\x07", KEY_CANCEL},
    {"\x08", KEY_DELETE, WHERE_LEFT},
    {"\x09", KEY_COMPLETE},
    {"\x0A", KEY_CONTROL_J},
    {"\x0B", KEY_KILL, WHERE_LINE_END},
    {"\x0C", KEY_CLEAR},
    {"\x0D", KEY_ENTER},
    {"\x0E", KEY_DOWN},
    {"\x10", KEY_UP},
    {"\x12", KEY_SEARCH},
    {"\x14", KEY_TRANSPOSE},
    {"\x15", KEY_KILL, WHERE_LINE_BEGIN},
    {"\x17", KEY_KILL, WHERE_BLANK_LEFT},
    {"\x18\x15", KEY_UNDO},
    {"\x19", KEY_YANK},
    {"\x1A", KEY_SUSPEND},
    {"\x1C", KEY_QUIT},
    {"\x1F", KEY_UNDO},
    {"\x7F", KEY_DELETE, WHERE_LEFT},
    {"\033\r", KEY_NEWLINE},
    {"\033\n", KEY_NEWLINE},
    {"\033\x08", KEY_KILL, WHERE_WORD_LEFT},
    {"\033\x7F", KEY_KILL, WHERE_WORD_LEFT},
    {"\033<", KEY_MOVE, WHERE_TEXT_BEGIN},
    {"\033>", KEY_MOVE, WHERE_TEXT_END},
    {"\033b", KEY_MOVE, WHERE_WORD_LEFT},
    {"\033d", KEY_KILL, WHERE_WORD_RIGHT},
    {"\033f", KEY_MOVE, WHERE_WORD_RIGHT},
    {"\033n", KEY_NEWER},
    {"\033p", KEY_OLDER},
    {"\033[A", KEY_UP, 0, KEY_OLDER},
    {"\033[B", KEY_DOWN, 0, KEY_NEWER},
    {"\033[C", KEY_MOVE, WHERE_RIGHT, KEY_MOVE, WHERE_WORD_RIGHT},
    {"\033[D", KEY_MOVE, WHERE_LEFT, KEY_MOVE, WHERE_WORD_LEFT},
    {"\033[F", KEY_MOVE, WHERE_LINE_END, KEY_MOVE, WHERE_TEXT_END},
    {"\033[H", KEY_MOVE, WHERE_LINE_BEGIN, KEY_MOVE, WHERE_TEXT_BEGIN},
    {"\033[1~", KEY_MOVE, WHERE_LINE_BEGIN, KEY_MOVE, WHERE_TEXT_BEGIN},
    {"\033[3~", KEY_DELETE, WHERE_RIGHT, KEY_KILL, WHERE_WORD_RIGHT},
    {"\033[4~", KEY_MOVE, WHERE_LINE_END, KEY_MOVE, WHERE_TEXT_END},
    {"\033[5~", KEY_PAGE_UP},
    {"\033[6~", KEY_PAGE_DOWN},
    {"\033[7~", KEY_MOVE, WHERE_LINE_BEGIN, KEY_MOVE, WHERE_TEXT_BEGIN},
    {"\033[8~", KEY_MOVE, WHERE_LINE_END, KEY_MOVE, WHERE_TEXT_END},
    {"\033[c", KEY_MOVE, WHERE_WORD_RIGHT}, // rxvt: Ctrl-Right, Ctrl-Left
    {"\033[d", KEY_MOVE, WHERE_WORD_LEFT},
    {"\030\005", KEY_EDITOR},  // Ctrl-X Ctrl-E
    {"\033[M", KEY_ENTER},     // of the keypad, ESC O M
    {"\033[13u", KEY_NEWLINE}, // Shift-Enter, where it has a code of its own
};

void keys_release(struct keys *k)
{
    buf_release(&k->pasted);
    *k = (struct keys){0};
}

// Whether seq ends here: ECMA-48 says so for ESC [ and ESC O, the rest is ESC or Ctrl-X and a
// character. A byte that cannot continue it begins anew: *restart.
static bool is_complete(const struct keys *k, bool *restart)
{
    const unsigned char *s = (const unsigned char *)k->seq, last = s[k->n - 1];
    *restart = false;
    if (s[0] == 0x18)
        return k->n == 2;
    if (s[0] != 0x1B)
        return true;
    if (k->n == 1)
        return false;
    if (k->n == 2) {
        *restart = last == 0x1B || last >= 0x80; // Alt and an arrow, or a letter beyond ASCII
        return last != '[' && last != 'O' && last != 0x1B;
    }
    if (s[1] == '[' && s[2] == '[') // function keys of the Linux console
        return k->n == 4;
    const bool mouse = s[1] == '[' && s[2] == 'M'; // in the oldest way: button, column, row
    // (what is too far to be said, a column of more than 223, is 0)
    *restart = (last < 0x20 && !(mouse && last == 0)) || (last >= 0x7F && !mouse);
    if (mouse)
        return *restart || k->n == 6;
    return *restart || k->n == sizeof k->seq || (last >= 0x40 && (k->n > 3 || last != '['));
}

// ESC O A and ESC [ 1 ; 5 A become ESC [ A, ESC [ 3 ; 5 ~ becomes ESC [ 3 ~. Returns the modifiers
// (xterm's: 1 Shift, 2 Alt, 4 Ctrl).
static unsigned normal_form(const char *seq, size_t n, char out[32], unsigned long p[2])
{
    char last = seq[n - 1], *end;
    p[0] = strtoul(seq + 2, &end, 10);
    p[1] = *end == ';' ? strtoul(end + 1, NULL, 10) : 0;
    if (last == '~' || last == 'u')
        snprintf(out, 32, "\033[%lu%c", p[0] % 1000, last);
    else
        snprintf(out, 32, "\033[%c", last);
    return p[1] > 0 ? (unsigned)p[1] - 1 : 0;
}

// What a terminal says of its mouse, which a program before may have asked for, or of itself.
static bool is_no_key(const char *seq, size_t n)
{
    return n >= 3 && seq[0] == 0x1B && seq[1] == '[' &&
           ((seq[2] >= '<' && seq[2] <= '?') || seq[2] == 'M' || seq[n - 1] == 'M');
}

static void look_up(struct keys *k, struct key *out)
{
    char seq[32] = {0}, raw[33] = {0};
    unsigned modifiers = 0;
    memcpy(raw, k->seq, k->n);
    if (k->n >= 3 && raw[0] == 0x1B && (raw[1] == '[' || raw[1] == 'O') && raw[2] != '[') {
        unsigned long p[2];
        modifiers = normal_form(raw, k->n, seq, p);
        if (raw[k->n - 1] == 'R' && p[1] > 0) {
            *out = (struct key){.verb = KEY_REPORT, .row = p[0], .column = p[1]};
            return;
        }
        if (strcmp(seq, "\033[200~") == 0) {
            k->in_paste = true;
            buf_clear(&k->pasted);
            return;
        }
    } else {
        memcpy(seq, raw, sizeof seq);
    }
    if (k->n > 0 && raw[0] == '\0') // Ctrl-Space
        return;
    if (is_no_key(raw, k->n))
        return;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct binding *b = &table[i];
        if (strcmp(b->seq, seq) != 0)
            continue;
        bool other = (modifiers & 6) && b->other != KEY_NONE;
        *out = (struct key){.verb = other ? b->other : b->verb,
                            .where = other ? b->other_where : b->where};
        return;
    }
}

static void type(struct keys *k, const char *s, size_t n, struct key *out)
{
    if (n == 0 || *s == '\0') {
        s = REPLACEMENT;
        n = 3;
    }
    *out = (struct key){.verb = KEY_TYPE, .n = n};
    memcpy(out->text, s, n);
    k->quoted = false;
}

// What was pasted, as text: CR and CR LF are line breaks.
static void tidy(struct buf *b)
{
    struct buf out = {0};
    for (size_t i = 0; i < b->len;) {
        uint32_t cp;
        size_t used = utf8_decode(b->data + i, b->len - i, &cp);
        if (used == 0 || cp == 0) {
            buf_puts(&out, REPLACEMENT);
        } else if (cp == '\r') {
            buf_putc(&out, '\n');
            used += i + 1 < b->len && b->data[i + 1] == '\n';
        } else {
            buf_append(&out, b->data + i, used);
        }
        i += used ? used : 1;
    }
    buf_release(b);
    *b = out;
}

static size_t take_pasted(struct keys *k, const char *bytes, size_t n, struct key *out)
{
    static const char stop[] = "\033[201~";
    enum { N_STOP = sizeof stop - 1 };
    size_t before = k->pasted.len, from = before >= N_STOP ? before - N_STOP : 0;
    if (!buf_append(&k->pasted, bytes, n)) { // too large: only its end is still looked for
        buf_release(&k->pasted);
        k->lost = true;
        before = from = 0;
        if (!buf_append(&k->pasted, bytes, n))
            return n;
    }
    char *end = memmem(k->pasted.data + from, k->pasted.len - from, stop, N_STOP);
    if (!end)
        return n;
    size_t length = (size_t)(end - k->pasted.data), used = length + N_STOP - before;
    k->pasted.len = length;
    k->in_paste = false;
    if (k->lost)
        k->pasted.failed = true;
    else
        tidy(&k->pasted);
    k->lost = false;
    *out = (struct key){.verb = KEY_PASTE};
    return used;
}

// What a terminal says of its colours and the like is no text, up to BEL, or the next key (of which
// ESC \, as it ends too, is one without a meaning).
static bool takes_report(struct keys *k, unsigned char c)
{
    if (k->report == REPORT_NONE || k->n > 0)
        return false;
    const bool inside = k->report == REPORT_IN ? c >= 0x20 : c >= '0' && c <= '9';
    k->report = inside ? REPORT_IN : REPORT_NONE;
    return inside || c == '\a';
}

size_t keys_next(struct keys *k, const char *bytes, size_t n, struct key *out)
{
    *out = (struct key){0};
    for (size_t i = 0; i < n;) {
        if (k->in_paste)
            return i + take_pasted(k, bytes + i, n - i, out);
        unsigned char c = (unsigned char)bytes[i++];
        if (takes_report(k, c))
            continue;
        k->seq[k->n++] = (char)c;
        bool text = (unsigned char)k->seq[0] >= 0x80 ||
                    ((unsigned char)k->seq[0] >= 0x20 && k->seq[0] != 0x7F) || k->quoted;
        bool restart = false;
        if (text) {
            uint32_t cp;
            if (utf8_incomplete_tail(k->seq, k->n) == k->n)
                continue;
            size_t used = utf8_decode(k->seq, k->n, &cp);
            i -= used == 0 && k->n > 1; // the last byte does not continue it: it begins anew
            k->n = 0;
            type(k, k->seq, used, out);
        } else if (c == 0x16 && k->n == 1) {
            k->quoted = true;
            k->n = 0;
        } else if (is_complete(k, &restart)) {
            i -= restart;
            if (!restart)
                look_up(k, out);
            k->report = k->n == 2 && c == ']' ? REPORT_MAY_COME : REPORT_NONE;
            k->n = 0;
        } else if (restart) {
            k->n = 1;
        }
        if (out->verb != KEY_NONE)
            return i;
    }
    return n;
}
