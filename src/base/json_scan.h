// JSON as text: where its values are, for what is handed on as it was written.
#ifndef HOKKU_BASE_JSON_SCAN_H
#define HOKKU_BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>

struct json_span { // of the text
    const char *s; // NULL: none
    size_t n;
};

// What JSON's grammar (RFC 8259) takes for a value at the beginning of *rest, without the white
// space around it, which rest is moved behind. Numbers may have any number of digits. False: there
// is none (or more than 1,000 in each other), and nothing is changed.
bool json_scan_value(struct json_span *rest, struct json_span *value);

// How json_scan_members goes: key has its quotes. False ends it.
typedef bool json_member_fn(void *user, struct json_span key, struct json_span value);
// Tells each member of an object that json_scan_value has found. False: it is no object, or fn said
// so.
bool json_scan_members(struct json_span object, json_member_fn *fn, void *user);

#endif
