// GBNF: grammars as llama.cpp's users write them.
#ifndef HOKKU_GRAMMAR_GBNF_H
#define HOKKU_GRAMMAR_GBNF_H

#include "grammar/expr.h"

// Reads text[0..n) into b; *root is the rule of that name. Errors: ERR_USAGE with line, column and
// what was expected; ERR_MEMORY.
bool gbnf_read(struct builder *b, const char *text, size_t n, uint32_t *root, struct error *err);

#endif
