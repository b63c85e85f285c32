// What is in a GGUF file, and what hokku would do with it.
#ifndef HOKKU_TOOLS_INSPECT_H
#define HOKKU_TOOLS_INSPECT_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"

// Appends a description of the file at path to out: text for people (tensors: also a line for
// each), or one JSON object. A file that can be read but not run (its architecture, weight types,
// tensors or tokenizer) is described too, with the reason, and is no error. Errors: ERR_MODEL when
// the file is no readable GGUF file, ERR_MEMORY.
bool tool_inspect(const char *path, bool json, bool tensors, struct buf *out, struct error *err);

#endif
