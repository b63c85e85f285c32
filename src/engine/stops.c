#include "engine/stops.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct stop {
    size_t matched;     // bytes of it that the text ends with
    uint32_t *shorter;  // [i]: how many of it its first i + 1 end with, but all of these
    size_t known, room; // of shorter: as far as ever was matched
};

void stops_release(struct stops *s)
{
    for (size_t i = 0; s->each && i < s->n; i++)
        free(s->each[i].shorter);
    free(s->each);
    *s = (struct stops){0};
}

static bool know_one_more(struct stop *s, const char *want, struct error *err)
{
    if (s->known == s->room) {
        const size_t room = s->room ? 2 * s->room : 16;
        uint32_t *p = realloc(s->shorter, room * sizeof *p);
        if (!p)
            return error_oom(err, "a stop text", room * sizeof *p);
        s->shorter = p;
        s->room = room;
    }
    const size_t i = s->known++;
    size_t k = i > 0 ? s->shorter[i - 1] : 0;
    while (k > 0 && want[k] != want[i])
        k = s->shorter[k - 1];
    s->shorter[i] = (uint32_t)(i > 0 && want[k] == want[i] ? k + 1 : 0);
    return true;
}

static bool take(struct stop *s, const char *want, char c, struct error *err)
{
    while (s->matched > 0 && want[s->matched] != c)
        s->matched = s->shorter[s->matched - 1];
    if (want[s->matched] != c || c == '\0')
        return true;
    s->matched++;
    return s->matched <= s->known || know_one_more(s, want, err);
}

bool stops_find(struct stops *s, const char *const *texts, size_t n_texts, const char *text,
                size_t n, size_t from, size_t *at, size_t *hold, struct error *err)
{
    *at = *hold = n;
    if (!s->each && !(s->each = calloc(n_texts, sizeof *s->each)))
        return error_oom(err, "the stop texts", n_texts * sizeof *s->each);
    if (s->n != n_texts || s->from != from) {
        for (size_t i = 0; i < n_texts; i++)
            s->each[i].matched = 0;
        s->n = n_texts;
        s->from = s->seen = from;
    }
    for (size_t i = 0; i < n_texts; i++) {
        struct stop *one = &s->each[i];
        const char *want = texts[i];
        for (size_t k = s->seen; k < n; k++) {
            if (!take(one, want, text[k], err))
                return false;
            if (one->matched > 0 && want[one->matched] == '\0') {
                const size_t begin = k + 1 - one->matched;
                *at = begin < *at ? begin : *at;
                break;
            }
        }
        if (n - one->matched < *hold)
            *hold = n - one->matched;
    }
    s->seen = n;
    return true;
}
