// What becomes of one answer from a pipe: its text on standard output as it is sampled (or JSON
// when it is complete), its thinking and whatever else is said on standard error. Where several are
// under way, one has the streams and the others keep what they have until it is their turn.
#ifndef HOKKU_TERM_SINK_H
#define HOKKU_TERM_SINK_H

#include <jansson.h>

#include "dialog/why.h"
#include "term/batch.h"
#include "term/termout.h"
#include "term/view.h"

struct sink {
    struct batch *b;
    size_t line;     // of standard input, for JSON; 0: none
    bool held;       // nothing is written yet
    struct buf text; // of the answer, without thinking
    struct buf thinking;
    json_t *logprobs; // array, with --logprobs
    bool wrote_thinking;
    bool ends_with_newline;
    struct termout term,
        term_err;       // used only where standard output or standard error is a terminal
    struct buf shown;   // scratch
    struct view view;   // the progress line
    struct why why;     // --logprobs without --json
    bool beside;        // another thread prepares the answer: what is to be said waits in notices
    struct buf notices; // each with a NUL
};

void sink_init(struct sink *s, struct batch *b); // s must not move after
void sink_release(struct sink *s);
// Makes it what p's answer goes to.
void sink_take(struct sink *s, struct answer_params *p);
size_t sink_bytes(const struct sink *s); // that it holds, about
// Says what could not be said beside, and from now on all as it comes.
void sink_say_notices(struct sink *s);
// Its turn has come: what it holds is written, and what comes goes on as it comes.
bool sink_show(struct sink *s, struct error *err);

struct sink_result {
    enum finish finish;
    const struct message *answer;
    const struct session_stats *stats;
    size_t n_tokens; // of its sequence
    uint64_t seed;
};

// The answer is complete (ok), or failed: then only what it leaves on a terminal is cleared. r is
// looked at when it is complete. line_mode: something ends it. Errors: those of writing.
bool sink_end(struct sink *s, const struct sink_result *r, bool ok, bool line_mode,
              struct error *err);

// Takes j: a line on standard output; nul: with a NUL byte in the place of the line's end.
bool sink_json(json_t *j, bool nul, struct error *err);

#endif
