// The variables of a template as JSON.
#ifndef HOKKU_JINJA_FROM_JSON_H
#define HOKKU_JINJA_FROM_JSON_H

#include <jansson.h>

#include "jinja/template.h"

// One value of a rendering under way, which must stay until it ends.
void template_put_json(struct template_slot to, const json_t *value);

// template_render with the variables of context, a JSON object. Not changed.
bool template_render_json(const struct template *t, const json_t *context, int64_t now,
                          const struct template_limits *limits, struct template_output *out,
                          bool *raised, struct error *err);

#endif
