// Where things are: the model that the options name, shipped templates and system prompts.
#ifndef HOKKU_PATHS_H
#define HOKKU_PATHS_H

#include "base/buf.h"
#include "gguf/gguf.h"
#include "cli/options.h"

// The file to load: -m, -hf (downloaded if need be), or the built-in model. Owned by the caller;
// NULL on error.
char *paths_model(const struct options *o, const struct cancel *cancel, struct error *err);

// A file shipped with hokku, found in the source tree or where it is installed, e.g.
// "prompts/haiku.txt". Owned by the caller; NULL when there is none.
char *paths_data(const char *relative);

// --chat-template NAME: one of the model's own named templates (tokenizer.chat_template.NAME), else
// a shipped one (g NULL: shipped ones only). name NULL: the model's own template. Errors: ERR_USAGE
// with the names there are.
bool paths_template(const struct gguf *g, const char *name, struct buf *out, struct error *err);

// -sys @NAME: prompts/NAME.txt beside the configuration, else a shipped one. Errors: ERR_USAGE with
// the names there are.
bool paths_system_prompt(const struct options *o, const char *name, struct buf *out,
                         struct error *err);
// Appends "@coder, @haiku, ..." for messages.
bool paths_system_prompt_names(const struct options *o, struct buf *out);

#endif
