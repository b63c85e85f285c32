// --lines: each line of input is its own prompt, many of them under way at once. Answers come in
// the order of the lines, the first of those under way as it grows; or as they are done.
#ifndef HOKKU_TERM_LINES_H
#define HOKKU_TERM_LINES_H

#include "term/batch.h"

// before: text put in front of each prompt with a blank line between, NULL: none. A line that fails
// does not stop the others; the result is then an ERR_FAIL that counts them. ERR_INTERRUPTED: what
// was complete is written, and how many are not is said.
bool lines_run(struct batch *b, int fd, const char *before, struct error *err);

// The sequences that an engine is to be opened for (engine_params.n_seqs): with --lines several,
// also where one is asked for, so that an answer does not depend on how many there are.
uint32_t lines_together(const struct options *o);

#endif
