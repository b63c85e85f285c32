// Which file is the model that the options name.
#ifndef HOKKU_CLI_MODEL_FILE_H
#define HOKKU_CLI_MODEL_FILE_H

#include "cli/options.h"

// -m, -hf (downloaded if need be), or the built-in model. Owned by the caller; NULL on error.
char *model_file(const struct options *o, const struct cancel *cancel, struct error *err);
// --model-draft, which is given. The same; the caller says the name of the option.
char *draft_file(const struct options *o, const struct cancel *cancel, struct error *err);

#endif
