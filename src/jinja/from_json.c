#include "jinja/from_json.h"

void template_put_json(struct template_slot to, const json_t *value)
{
    struct template_object object;
    struct template_list list;
    switch (json_typeof(value)) {
    case JSON_OBJECT: {
        object = template_put_object(to);
        // jansson's iterators do not change the object; its interface lacks the const.
        json_t *o = (json_t *)(uintptr_t)value;
        for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it))
            template_put_json(template_at(object, json_object_iter_key(it)),
                              json_object_iter_value(it));
        break;
    }
    case JSON_ARRAY:
        list = template_put_list(to);
        for (size_t i = 0; i < json_array_size(value); i++)
            template_put_json(template_next(list), json_array_get(value, i));
        break;
    case JSON_STRING:
        template_put_str(to, json_string_value(value), json_string_length(value));
        break;
    case JSON_INTEGER:
        template_put_int(to, json_integer_value(value));
        break;
    case JSON_REAL:
        template_put_float(to, json_real_value(value));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        template_put_bool(to, json_is_true(value));
        break;
    case JSON_NULL:
        template_put_none(to);
        break;
    }
}

static void fill(void *user, struct template_object variables)
{
    json_t *context = user;
    for (void *it = json_object_iter(context); it; it = json_object_iter_next(context, it))
        template_put_json(template_at(variables, json_object_iter_key(it)),
                          json_object_iter_value(it));
}

bool template_render_json(const struct template *t, const json_t *context, int64_t now,
                          const struct template_limits *limits, struct template_output *out,
                          bool *raised, struct error *err)
{
    if (raised)
        *raised = false;
    *out = (struct template_output){0};
    if (!json_is_object(context))
        return error_set(err, ERR_FAIL, "the template's variables must be a JSON object");
    return template_render(t, fill, (json_t *)(uintptr_t)context, now, limits, out, raised, err);
}
