// What is in a GGUF file, and what hokku would do with it.
#ifndef HOKKU_TOOLS_INSPECT_H
#define HOKKU_TOOLS_INSPECT_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"

struct inspect_options {
    bool json;        // one JSON object; else text for people
    bool tensors;     // also a line for each
    uint32_t devices; // how it is split among these (bit i: device i), which need not be there
};

// Appends a description of the file at path to out. A file that can be read but not run (its
// architecture, weight types, tensors or tokenizer) is described too, with the reason, and is no
// error. Errors: ERR_MODEL when the file is no readable GGUF file, ERR_MEMORY.
bool tool_inspect(const char *path, const struct inspect_options *o, struct buf *out,
                  struct error *err);

#endif
