// How a model would be split among GPUs (model/slice.h), for `hokku inspect --devices`.
#ifndef HOKKU_TOOLS_INSPECT_SPLIT_H
#define HOKKU_TOOLS_INSPECT_SPLIT_H

#include <jansson.h>

#include "base/buf.h"
#include "model/model.h"

// devices: bit i stands for device i; 0: only how many there may be. Evenly, which what is free on
// them may change. Errors: ERR_MEMORY.
bool inspect_split_text(struct buf *out, const struct model *m, uint32_t devices,
                        struct error *err);

// Adds "max_devices", why there are no more as "more_devices", and of devices, where m can be split
// among them, "devices". Errors: ERR_MEMORY.
bool inspect_split_json(json_t *verdict, const struct model *m, uint32_t devices,
                        struct error *err);

#endif
