// libFuzzer target: what a model may write, on its way to a terminal. The second byte chooses how
// the text is cut and styled; nothing may reach the terminal but text, newline, tab, and the styles
// that hokku itself writes.
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "term/termout.h"
#include "dialog/think.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct screen {
    struct termout term;
    struct buf out;
};

static bool to_screen(void *user, enum answer_part part, const char *text, size_t n,
                      struct error *err)
{
    struct screen *s = user;
    (void)err;
    if (s->term.color)
        termout_dim(&s->term, part == PART_THINKING, &s->out);
    return termout_push(&s->term, text, n, &s->out);
}

static void check(const char *s, size_t n)
{
    struct buf again = {0}; // the door leaves it as it is
    termsafe_painted(s, n, &again);
    if (again.len != n || memcmp(buf_str(&again), s, n) != 0)
        abort();
    buf_release(&again);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t used;
        if (s[i] == '\x1b') {
            size_t k = i + 2;
            if (k >= n || s[i + 1] != '[')
                abort();
            while (k < n && ((s[k] >= '0' && s[k] <= '9') || s[k] == ';'))
                k++;
            if (k >= n || (s[k] != 'm'))
                abort();
            i = k + 1;
            continue;
        }
        used = utf8_decode(s + i, n - i, &cp);
        if (used == 0 || (cp < 0x20 && cp != '\n' && cp != '\t') || (cp >= 0x7F && cp < 0xA0) ||
            (cp >= 0x202A && cp <= 0x202E) || (cp >= 0x2066 && cp <= 0x2069))
            abort();
        i += used;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct screen s = {0};
    struct think_split split;
    if (size < 2)
        return 0;
    size_t step = data[1] % 16 + 1;
    termout_init(&s.term, data[1] & 16, data[1] & 32);
    think_init(&split, data[1] & 64 ? "<think>" : NULL);
    for (size_t i = 2; i < size; i += step)
        think_push(&split, (const char *)data + i, size - i < step ? size - i : step, to_screen, &s,
                   NULL);
    think_flush(&split, to_screen, &s, NULL);
    termout_end(&s.term, &s.out);
    check(buf_str(&s.out), s.out.len);
    think_release(&split);
    termout_release(&s.term);
    buf_release(&s.out);
    return 0;
}
