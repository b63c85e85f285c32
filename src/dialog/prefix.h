// The inner side of conversation.h: what to render and how to turn it into tokens.
#ifndef HOKKU_DIALOG_PREFIX_H
#define HOKKU_DIALOG_PREFIX_H

#include "dialog/conversation.h"

struct prefix_request {
    size_t n_messages; // the first so many of the conversation
    size_t first_kept; // messages before it are left out, the system prompt excepted
    enum think think;
    bool generation; // end with what opens an answer
    // Counting only, NULL otherwise: tokens up to and with each message (answers exactly), and
    // those before the first user's message.
    size_t *ends; // [n_messages]
    size_t *head;
};

bool prefix_build(struct conversation *c, const struct prefix_request *q, struct ids *out,
                  const char **open_tag, struct error *err);

#endif
