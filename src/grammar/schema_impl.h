// What the files that read JSON Schemas share.
//
// A *goal* is a list of schemas that a value must obey all at once: that is what allOf, $ref beside
// other keywords, and a property that several schemas describe come to. Each goal that is met
// becomes one rule.
#ifndef HOKKU_GRAMMAR_SCHEMA_IMPL_H
#define HOKKU_GRAMMAR_SCHEMA_IMPL_H

#include <jansson.h>

#include "grammar/expr.h"
#include "grammar/number.h"

enum {
    SCHEMA_MAX_GOALS = 20000,
    SCHEMA_MAX_PARTS = 2000,  // schemas in one goal
    SCHEMA_MAX_DEPTH = 200,   // $ref, allOf inside each other
    SCHEMA_INDENT_DEPTH = 32, // with --json-indent: levels of the answer
};

enum json_type {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_FRACTION = 8, // numbers that are no integers; "number" is both
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_ANY = 127,
};

struct part {
    const json_t *schema; // borrowed from the root
    // Its anyOf, its oneOf was decided: the alternative is another part.
    bool any_decided, one_decided;
    // In a shared goal: of which of the two alternatives it is a part (0: of both, or neither), and
    // whether it is that alternative itself.
    uint8_t side;
    bool is_alternative;
};

struct goal {
    struct part *parts; // owned
    size_t n, cap;
    unsigned depth; // of the value, where indentation makes that matter
    uint32_t rule;
    uint64_t hash;
    // It holds what two alternatives of a oneOf share, and must be empty. What is written out one
    // by one wherever it is written is left out of it, since there it is held against every part,
    // the oneOf too: null, true and false, and values of an enum or a const in both alternatives.
    bool shared;
};

struct property {
    const char *name; // borrowed
    bool required;
};

// What all the parts of a goal say, side by side.
struct merged {
    unsigned types;
    const json_t *values; // of the first enum; NULL: none
    const json_t *value;  // the first const
    struct number_bounds number;
    uint32_t min_length, max_length; // characters; UINT32_MAX: no bound
    const json_t *patterns[30];      // strings, and formats' patterns
    size_t n_patterns;
    uint32_t min_items, max_items;
    bool unique;
    struct property *properties; // owned; in the order in which they are met
    size_t n_properties, cap_properties;
    const json_t *choice; // the first anyOf or oneOf that is not decided; NULL: none
    size_t choice_part;
    bool choice_is_one;
};

struct disjoint { // two alternatives of a oneOf: the goal must be empty
    uint32_t rule;
    const json_t *schema;
    size_t first, second;
};

struct enum_value {
    const json_t *of; // the enum
    size_t at;        // in it
};

struct schema {
    struct builder *b;
    json_t *root;
    const char *text; // of the root
    size_t n_text;
    unsigned indent;
    struct goal *goals;
    size_t n_goals, cap_goals;
    uint32_t *slots; // goals by hash: open addressing, goal + 1, 0: free
    size_t n_slots;
    const json_t **checked; // schemas without a circle: open addressing, NULL: free
    size_t n_checked, cap_checked;
    struct disjoint *disjoints;
    size_t n_disjoints, cap_disjoints;
    // Rules that are made once; UINT32_MAX: not yet.
    uint32_t string, number, integer, plain_char, key_char;
    // The values of enums, each once, by their hash: open addressing, `of` NULL: free. What has
    // been put there has an entry for itself (at: SIZE_MAX).
    struct enum_value *enums;
    size_t n_enums, cap_enums;
    json_t *formats; // array of the patterns of formats, so that they can be borrowed
    bool one_is_any; // schema_obeys: a value may obey several alternatives of a oneOf
    struct error *err;
    bool failed;
};

// Remembers the first failure, with the place of `key` (NULL: of the schema itself) in the text.
// Always false.
bool schema_fail(struct schema *s, const json_t *schema, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
bool schema_oom(struct schema *s);
// n more rounds of work; false: a failure, also an earlier one.
bool schema_work(struct schema *s, uint64_t n);
bool schema_decimal(struct schema *s, const json_t *v); // the work of decimal_from_json
bool schema_grow(struct schema *s, void *array, size_t n, size_t *cap, size_t size);

// The schema that a $ref names; NULL: a failure.
const json_t *schema_ref(struct schema *s, const json_t *schema);
// A schema that leads back to itself by $ref, allOf, anyOf and oneOf alone says nothing: a failure.
bool schema_no_circle(struct schema *s, const json_t *schema);
// Checks the names and the kinds of a schema's keywords.
bool schema_keywords(struct schema *s, const json_t *schema);
unsigned schema_types(struct schema *s, const json_t *schema); // of "type"; TYPE_ANY without
unsigned schema_type_of(const json_t *value);
// "format" as a pattern; NULL: a failure.
const json_t *schema_format(struct schema *s, const json_t *schema);

// The rule for the values that obey all n parts.
uint32_t schema_goal(struct schema *s, const struct part *parts, size_t n, unsigned depth);
// Adds what a goal's schemas demand by way of $ref and allOf; then reads their keywords.
bool schema_flatten(struct schema *s, struct goal *g);
bool schema_merge(struct schema *s, const struct goal *g, struct merged *m);
// The values that an enum, a const or a small type leaves: a new array; NULL: not a few values.
json_t *schema_values(struct schema *s, const struct goal *g, const struct merged *m);

uint32_t schema_object(struct schema *s, const struct goal *g, const struct merged *m);
uint32_t schema_array(struct schema *s, const struct goal *g, const struct merged *m);
uint32_t schema_string(struct schema *s, const struct goal *g, const struct merged *m);
// The rest of an object's key behind its first quote, the second one included: none of names.
uint32_t schema_other_key(struct schema *s, const struct property *names, size_t n);
void schema_quote(struct buf *out, const char *text, size_t n); // as the answer writes it
uint32_t schema_value(struct schema *s, const json_t *value, unsigned depth); // that one alone

// Whether a value obeys a schema, by looking at it. False also after a failure.
bool schema_obeys(struct schema *s, const json_t *schema, const json_t *value, unsigned depth);
// Where an enum has a value first; SIZE_MAX: nowhere, or a failure.
size_t schema_enum_find(struct schema *s, const json_t *of, const json_t *value);

#endif
