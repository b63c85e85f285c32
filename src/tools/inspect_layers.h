// What the layers of a model are, for `hokku inspect`: layers of a kind together.
#ifndef HOKKU_TOOLS_INSPECT_LAYERS_H
#define HOKKU_TOOLS_INSPECT_LAYERS_H

#include <jansson.h>

#include "base/buf.h"
#include "model/model.h"

// A line for each kind.
void inspect_layers_text(struct buf *out, const struct model *m);

// A new array, an object for each kind.
json_t *inspect_layers_json(const struct model *m);
const char *rope_scaling_name(enum rope_scaling s);

#endif
