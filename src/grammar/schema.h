// JSON Schema 2020-12 as a grammar of the JSON texts that obey it.
#ifndef HOKKU_GRAMMAR_SCHEMA_H
#define HOKKU_GRAMMAR_SCHEMA_H

#include "grammar/expr.h"

// Errors: ERR_USAGE (what cannot be read as JSON: line and column; a keyword that is not enforced,
// by its name; what nothing can obey), ERR_MEMORY.
bool schema_read(struct builder *b, const char *text, size_t n, unsigned indent, uint32_t *root,
                 struct error *err);

#endif
