// Values of the template language, as Python has them, with provenance: every string knows where
// each of its bytes comes from, every other value where it comes from as a whole.
#ifndef HOKKU_JINJA_VALUE_H
#define HOKKU_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct run; // one rendering: runtime.h
struct args;
struct node;
struct frame;

enum kind {
    V_MISSING, // internal: a variable that was never set, an argument that was not given
    V_UNDEF,
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_STR,
    V_LIST,
    V_TUPLE,
    V_DICT,
    V_RANGE,
    V_VIEW, // dict.keys(), .values(), .items()
    V_ITER, // what map, select, reverse, ... give: can be walked once
    V_NAMESPACE,
    V_MACRO,
    V_NATIVE, // a global function, or a method bound to its object
    V_LOOP,
};

struct val {
    uint8_t kind;
    uint8_t safe;    // V_STR: markup that must not be escaped again
    uint32_t origin; // of every kind but V_STR, whose bytes each have their own
    union {
        bool b;
        int64_t i;
        double f;
        struct str *s;
        struct list *l; // V_LIST, V_TUPLE
        struct dict *d; // V_DICT, V_NAMESPACE
        struct range *range;
        struct view *view;
        struct iter *iter;
        struct undef *undef; // NULL: nothing known about it
        struct macro *macro;
        struct bound *bound;
        struct loop *loop;
    };
};

struct seg {
    size_t end; // first byte after the segment; the last one's may lie beyond the string's end
    uint32_t origin;
};

struct str {
    const char *p; // UTF-8, not NUL-terminated
    size_t n;
    size_t n_chars;         // SIZE_MAX: not counted yet
    const struct seg *segs; // n_segs of them; n_segs == 0: all bytes are of `origin`
    size_t n_segs;
    uint32_t origin;
    struct sb *grow; // the builder whose content this is, for appending in place; may be NULL
};

// A string under construction. Zeroed is empty.
struct sb {
    char *p;
    size_t n, cap;
    struct seg *segs;
    size_t n_segs, cap_segs;
    uint32_t origin;
};

struct list {
    struct val *v;
    size_t n, cap;
};

struct entry {
    struct val key, value;
    uint64_t hash;
    bool live;
};

struct dict { // insertion order
    struct entry *e;
    size_t n_used, n_live, cap;
    uint32_t *index; // open addressing, entry number + 1; NULL while small
    size_t n_index;
};

struct range {
    int64_t start, stop, step;
    int64_t n;
};

// The k-th item, also where k steps alone are no number of 64 bits.
static inline int64_t range_item(const struct range *g, int64_t k)
{
    return (int64_t)((uint64_t)g->start + (uint64_t)k * (uint64_t)g->step);
}

enum view_kind { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

struct view {
    enum view_kind what;
    struct dict *d;
    uint32_t origin; // of the dict value
};

struct iter {        // a walk over any iterable; also the payload of V_ITER
    struct val over; // V_LIST, V_TUPLE, V_STR, V_RANGE, V_DICT, V_VIEW
    size_t at;       // item number, byte offset (V_STR) or entry number (V_DICT, V_VIEW)
    size_t left;     // items still to come
    bool backwards;
    const char *type; // V_ITER: Python's name for it
};

struct undef {
    const char *hint;   // a whole message, or NULL
    const char *object; // Python's name of the type that had no such attribute, or NULL
    struct val name;
};

struct bound {
    const struct native *fn;
    struct val self;
};

// Provenance of something made from two sources.
uint32_t str_origin_merge(uint32_t a, uint32_t b);

// Constructors. All memory comes from the run's arena; running out leaves by run_fail().
struct val val_none(void);
struct val val_bool(bool b);
struct val val_int(int64_t i);
struct val val_float(double f);
struct val val_with_origin(struct val v, uint32_t origin); // numbers, booleans, containers
struct val val_undef(struct run *r, const char *hint, const char *object, struct val name);
struct val val_str(struct run *r, const char *p, size_t n, uint32_t origin); // copies
// The same without copying: the bytes stay where they are until the rendering ends.
struct val val_borrowed(struct run *r, const char *p, size_t n, uint32_t origin);
struct val val_cstr(struct run *r, const char *s); // a literal of this program; not copied
struct val val_list(struct run *r, size_t cap);
struct val val_tuple(struct run *r, size_t cap);
struct val val_pair(struct run *r, struct val a, struct val b);
struct val val_dict(struct run *r);
struct val val_iter(struct run *r, struct val list, const char *type);

void list_push(struct run *r, struct list *l, struct val v);
struct val *dict_get(struct run *r, const struct dict *d, struct val key); // NULL: not there
struct val *dict_get_name(struct run *r, const struct dict *d, const char *p, size_t n);
void dict_set(struct run *r, struct dict *d, struct val key, struct val value);
bool dict_remove(struct run *r, struct dict *d, struct val key, struct val *value);

// Python's rules.
bool val_truth(const struct val *v);
bool val_equal(struct run *r, struct val a, struct val b);
bool val_same(struct run *r, struct val a, struct val b);                   // `is`
int val_compare(struct run *r, struct val a, struct val b, const char *op); // <0 0 >0; 2: unordered
bool val_contains(struct run *r, struct val item, struct val in);
size_t val_length(struct run *r, struct val v);   // fails for what has no len()
const char *val_type(struct val v);               // Python's type name
uint32_t val_origin(struct run *r, struct val v); // merged over everything inside

// Iteration. iter_begin fails for what cannot be iterated.
bool val_iterable(struct val v);
struct iter *iter_begin(struct run *r, struct val v, struct iter *storage);
bool iter_next(struct run *r, struct iter *it, struct val *item);
struct val iter_list(struct run *r, struct val v); // list(v)

// Strings.
struct val str_val(struct str *s);
size_t str_chars(struct run *r, struct str *s);                  // code points
size_t str_offset(struct run *r, struct str *s, size_t n_chars); // byte offset of a code point
struct val str_sub(struct run *r, struct str *s, size_t begin, size_t end); // bytes
struct val str_concat(struct run *r, struct val a, struct val b);
uint32_t str_origin_at(const struct str *s, size_t byte);
uint32_t str_origin(const struct str *s); // merged
bool str_is(const struct str *s, const char *text);
bool str_equal(const struct str *a, const struct str *b);
int str_compare(const struct str *a, const struct str *b); // by code point

void sb_add(struct run *r, struct sb *b, const char *p, size_t n, uint32_t origin);
void sb_cp(struct run *r, struct sb *b, uint32_t cp, uint32_t origin);
void sb_sub(struct run *r, struct sb *b, const struct str *s, size_t begin, size_t end);
void sb_str(struct run *r, struct sb *b, const struct str *s);
void sb_fill(struct run *r, struct sb *b, const struct str *s, size_t times);
struct val sb_val(struct run *r, struct sb *b);

#endif
