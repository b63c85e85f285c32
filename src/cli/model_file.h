// Which file is the model that the options name.
#ifndef HOKKU_CLI_MODEL_FILE_H
#define HOKKU_CLI_MODEL_FILE_H

#include "cli/options.h"

// -m, -hf (downloaded if need be), or the built-in model. Owned by the caller; NULL on error.
char *model_file(const struct options *o, const struct cancel *cancel, struct error *err);
// The same of a name that is given elsewhere: as an argument, or with another option, whose name
// the caller says.
char *model_named(const struct options *o, const char *name, const struct cancel *cancel,
                  struct error *err);
// From here on o means the model of this name: of a file or, where there is none, of the Hub.
void model_choose(struct options *o, const char *name);

#endif
