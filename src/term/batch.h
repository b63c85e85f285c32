// The two ways in that ask nothing: one prompt, and many prompts from a pipe. The answer goes to
// standard output as it is sampled, everything else to standard error.
#ifndef HOKKU_TERM_BATCH_H
#define HOKKU_TERM_BATCH_H

#include "dialog/conversation.h"
#include "cli/options.h"
#include "term/shape.h"

struct batch {
    struct conversation *conv;
    const struct options *opt;
    const struct shape *shape; // what answers are held to
    const struct cancel *cancel;
    bool stdout_tty, stderr_tty;
    bool dumb;         // TERM=dumb: no escape sequences
    bool color;        // styles on a standard output that is a terminal
    const char *frame; // each prompt is put into it (prompt_fill); NULL: none
    bool progress;     // a progress line is on standard error
    bool not_obeyed;   // the last answer is written, but does not obey
    // Called after every complete turn (a named session is saved); may be NULL.
    bool (*after_turn)(void *user, struct error *err);
    void *user;
};

// Answers one prompt, which is released as soon as it is part of the conversation.
bool batch_one(struct batch *b, struct buf *prompt, struct error *err);

// Answers each line of input (a descriptor) as the next turn. before: text put in front of each
// line with a blank line between, NULL: none.
bool batch_turns(struct batch *b, int fd, const char *before, struct error *err);

// What --turns and --lines (term/lines.h) share: which lines are skipped, and what is said of that;
// the prompt of a line that is not.
bool batch_is_blank(const char *text, size_t n);
void batch_say_blank(const struct batch *b, size_t n_blank);
bool batch_prompt(const char *before, const char *text, size_t n, struct buf *out,
                  struct error *err);
void batch_clear_progress(struct batch *b);

#endif
