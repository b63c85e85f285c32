// hokku bench --grammar: what holding an answer to a grammar costs on a model's vocabulary.
#ifndef HOKKU_TOOLS_BENCH_GRAMMAR_H
#define HOKKU_TOOLS_BENCH_GRAMMAR_H

#include "base/buf.h"
#include "base/cancel.h"
#include "model/model.h"

// The file is GBNF, or a JSON Schema where its name ends with .json. Follows random answers, every
// allowed token as likely as any other. Errors: those of the file (ERR_USAGE), ERR_MEMORY,
// ERR_INTERRUPTED.
bool bench_grammar(const struct model *m, const char *path, bool json, const struct cancel *cancel,
                   struct buf *out, struct error *err);

#endif
