// How much preparing a grammar has taken, so that no text of a user's can make it take for ever:
// loops whose length a text may choose count their rounds here.
#ifndef HOKKU_GRAMMAR_WORK_H
#define HOKKU_GRAMMAR_WORK_H

#include <stdint.h>

#include "base/cancel.h"
#include "base/error.h"

enum { GRAMMAR_MAX_WORK = 1 << 26 }; // rounds: below a second or two

struct work {
    const struct cancel *cancel; // NULL: nothing ends it
    uint64_t done;
    bool interrupted;
};

// n more rounds. False: no more of them, as work_ok says.
static inline bool work_add(struct work *w, uint64_t n)
{
    const uint64_t before = w->done;
    if (w->done <= GRAMMAR_MAX_WORK)
        w->done += n;
    if (w->done >> 10 != before >> 10 && cancel_asked(w->cancel))
        w->interrupted = true;
    return w->done <= GRAMMAR_MAX_WORK && !w->interrupted;
}

// Errors: ERR_INTERRUPTED; ERR_USAGE: too much.
static inline bool work_ok(const struct work *w, struct error *err)
{
    if (w->interrupted)
        return error_set(err, ERR_INTERRUPTED, "interrupted while a grammar was prepared");
    if (w->done > GRAMMAR_MAX_WORK)
        return error_set(err, ERR_USAGE,
                         "preparing it takes more than %d steps: make its lists, patterns and "
                         "combinations smaller",
                         GRAMMAR_MAX_WORK);
    return true;
}

#endif
