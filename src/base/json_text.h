// Bytes that a model or a user wrote, as a JSON string.
#ifndef HOKKU_BASE_JSON_TEXT_H
#define HOKKU_BASE_JSON_TEXT_H

#include <jansson.h>

// What is no UTF-8 becomes U+FFFD. NULL: no memory.
json_t *json_text(const char *s, size_t n);

#endif
