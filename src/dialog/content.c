#include "dialog/content.h"

#include "base/json_text.h"

static bool is_part(const json_t *v)
{
    return json_text_is(json_object_get(v, "type"), "text") &&
           json_is_string(json_object_get(v, "text")) && json_object_size(v) == 2;
}

bool content_check(const json_t *content, const json_t **found, const char **expected)
{
    *found = content;
    *expected = "a text, or an array of parts";
    if (json_is_string(content))
        return true;
    for (size_t i = 0; i < json_array_size(content); i++)
        if (!is_part(json_array_get(content, i))) {
            *found = json_array_get(content, i);
            *expected = "a part {\"type\": \"text\", \"text\": ...}";
            return false;
        }
    return json_array_size(content) > 0;
}

bool content_text(const json_t *content, struct buf *out)
{
    if (json_is_string(content))
        return buf_append(out, json_string_value(content), json_string_length(content));
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *text = json_object_get(json_array_get(content, i), "text");
        if (!buf_append(out, json_string_value(text), json_string_length(text)))
            return false;
    }
    return true;
}
