// hokku replay: generates a recorded conversation again from its settings and seeds, and compares
// every token.
#ifndef HOKKU_TOOLS_REPLAY_H
#define HOKKU_TOOLS_REPLAY_H

#include "dialog/session_file.h"

// c: the conversation as read from the file that info describes; its memory is used up. Appends a
// line (or with json an object) that says that all tokens agree, or names the first that differs.
// check: each answer also with what comes before it evaluated anew, in pieces of several lengths,
// with drafts of which most are wrong, and, where the engine takes several in a pass, beside other
// answers. Errors: ERR_FAIL with out filled when one differs, or
// when nothing could be compared; ERR_INTERRUPTED, those of the engine. progress may be NULL.
bool tool_replay(struct conversation *c, const struct session_info *info, bool json, bool check,
                 void (*progress)(void *user, size_t turn, size_t n), void *user, struct buf *out,
                 struct error *err);

#endif
