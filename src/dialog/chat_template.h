// The text of the chat template to use.
#ifndef HOKKU_DIALOG_CHAT_TEMPLATE_H
#define HOKKU_DIALOG_CHAT_TEMPLATE_H

#include "base/buf.h"
#include "base/cancel.h"
#include "base/error.h"

struct gguf;

// Appends to out: the file's text, else the template called name, which is one of the model's own
// (tokenizer.chat_template.NAME) or a shipped one, else the model's; nothing when it has none. Each
// may be NULL. Errors: ERR_USAGE with the names there are, those of reading the file.
bool chat_template_find(const struct gguf *g, const char *name, const char *file,
                        const struct cancel *cancel, struct buf *out, struct error *err);
// For conversations: also ERR_USAGE where the file has only blanks, of which no message would be a
// part, and those of template_parse of what else the file has.
bool chat_template_choose(const struct gguf *g, const char *name, const char *file,
                          const struct cancel *cancel, struct buf *out, struct error *err);

#endif
