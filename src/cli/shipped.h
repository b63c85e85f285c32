// What is shipped with hokku, found in the source tree or where it is installed.
#ifndef HOKKU_CLI_SHIPPED_H
#define HOKKU_CLI_SHIPPED_H

#include "base/buf.h"
#include "base/error.h"
#include "cli/options.h"

// The file of the built-in model. Owned by the caller. Errors: ERR_MODEL.
char *shipped_model(struct error *err);

// -sys @NAME: prompts/NAME.txt beside the configuration, else a shipped one. Errors: ERR_USAGE with
// the names there are.
bool shipped_prompt(const struct options *o, const char *name, struct buf *out, struct error *err);
// Whether a prompt holds {{input}}: then it is no system prompt, but what stands around a message.
bool prompt_takes_input(const char *prompt);
// Appends the prompt, with input wherever it says {{input}}.
bool prompt_fill(const char *prompt, const char *input, size_t n, struct buf *out);
// Appends "@coder, @haiku, ..." for messages.
bool shipped_prompt_names(const struct options *o, struct buf *out);

#endif
