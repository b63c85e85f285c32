#include "jinja/named.h"

#include <string.h>

const char *named_template(const char *name, size_t *n_text)
{
    for (size_t i = 0; i < named_templates_n; i++)
        if (strcmp(named_templates[i].name, name) == 0) {
            *n_text = named_templates[i].n;
            return named_templates[i].text;
        }
    return NULL;
}

bool named_template_list(struct buf *out)
{
    for (size_t i = 0; i < named_templates_n; i++)
        buf_printf(out, "%s%s", i ? ", " : "", named_templates[i].name);
    return !out->failed;
}
