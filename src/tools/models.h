// hokku pull and hokku models: what is downloaded, and downloading.
#ifndef HOKKU_TOOLS_MODELS_H
#define HOKKU_TOOLS_MODELS_H

#include "cli/options.h"

// Downloads each argument (USER/REPO[:QUANT] or https://...) and appends the path of its (first)
// file as a line.
bool tool_pull(const struct options *o, const struct cancel *cancel, struct buf *out,
               struct error *err);

// No arguments: name, size and last use of each model, as a table or JSON; "rm" NAME...: removes.
bool tool_models(const struct options *o, struct buf *out, struct error *err);

#endif
