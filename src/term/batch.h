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
    bool not_obeyed;   // the last answer is written, but does not obey
    // Called after every complete turn (a named session is saved); may be NULL.
    bool (*after_turn)(void *user, struct error *err);
    void *user;
};

// Answers one prompt, which is released as soon as it is part of the conversation.
bool batch_one(struct batch *b, struct buf *prompt, struct error *err);

// Answers each line of input (a descriptor), as its own prompt (--lines) or as the next turn
// (--turns). before: text put in front of each line with a blank line between, NULL: none. --lines
// goes on after a line that fails; the result is then an ERR_FAIL that counts them.
bool batch_lines(struct batch *b, int fd, const char *before, struct error *err);

#endif
