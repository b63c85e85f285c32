// What the parts of the interpreter share while a template is rendered.
#ifndef HOKKU_JINJA_RUNTIME_H
#define HOKKU_JINJA_RUNTIME_H

#include <setjmp.h>

#include "base/error.h"
#include "base/format.h"
#include "jinja/ast.h"
#include "jinja/template.h"
#include "jinja/value.h"

struct run {
    const struct template *t;
    struct arena arena;
    struct template_limits limits; // all set
    uint64_t steps;
    uint64_t next_look; // at the clock and at the cancel flag, in steps
    double began;       // processor time
    uint32_t depth;
    const struct node *at; // what is being evaluated: the place of an error
    struct dict *context;
    int64_t now;
    struct sb *out; // where output goes now
    // All memory belongs to the arena, so an error has nothing to unwind and leaves by longjmp.
    jmp_buf escape;
    struct error *err;
    bool raised;
};

// Stops the rendering: ERR_FAIL with the place and the quoted line.
_Noreturn void run_fail(struct run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void run_raise(struct run *r, const char *text, size_t n); // the template's own words
_Noreturn void run_fail_undef(struct run *r, const struct val *v);   // use of an undefined value
_Noreturn void run_fail_limit(struct run *r, const char *what, unsigned long long limit,
                              const char *unit);
void template_error_at(struct error *err, const char *src, size_t n_src, size_t pos,
                       const char *message);

void *run_alloc(struct run *r, size_t n);
void *run_grow(struct run *r, void *p, size_t n_old, size_t n_new);
// Work is paid for in steps of some 30 ns at most: one per node and per item, one per 64 bytes
// copied or compared, more for bytes that are looked at one by one. Whatever loops over something
// that a template can make long pays here, so that the number of steps bounds the time.
void run_look(struct run *r);
static inline void run_step(struct run *r, uint64_t n)
{
    r->steps += n;
    if (r->steps >= r->next_look)
        run_look(r);
}
bool run_equal(struct run *r, const struct str *a, const struct str *b); // str_equal, paid for
void run_enter(struct run *r); // one level deeper; fails at the limit
void run_leave(struct run *r);

// Arguments as given in a call.
struct args {
    const struct val *pos;
    size_t n_pos;
    const struct val *kw_name; // V_STR
    const struct val *kw;
    size_t n_kw;
};

// A function written in C. `params` names its parameters, separated by spaces; the first
// n_required must be given; v[i] is V_MISSING where an argument was not given. params "*": the
// function reads `a` itself and v is NULL.
enum { MAX_PARAMS = 8 };
typedef struct val (*native_fn)(struct run *r, struct val self, const struct val *v,
                                const struct args *a);
struct native {
    const char *name;
    native_fn fn;
    unsigned n_required;
    const char *params;
};

struct val eval_native_call(struct run *r, const struct native *fn, struct val self,
                            const struct args *a);
const struct native *eval_native_find(const struct native *table, size_t n, const char *name,
                                      size_t n_name);

// The tables. A filter's or test's `self` is the value it is applied to.
const struct native *filters_find(const struct str *name);
const struct native *predicates_find(const struct str *name);
const struct native *globals_find(const struct str *name);
const struct native *str_method_find(const struct str *name);
const struct native *list_method_find(const struct str *name);
const struct native *list_tuple_method_find(const struct str *name);
const struct native *dict_method_find(const struct str *name);
bool predicates_call(struct run *r, const struct str *name, struct val v, const struct args *a);
struct val filters_call(struct run *r, const struct str *name, struct val v, const struct args *a);

// The filter tables of the three files.
extern const struct native filters_text[], filters_seq[], filters_value[];
extern const size_t filters_text_n, filters_seq_n, filters_value_n;

// Reading arguments. `what` names the parameter in errors.
int64_t args_int(struct run *r, const struct val *v, int64_t otherwise, const char *what);
bool args_bool(const struct val *v);                                        // missing: false
struct str *args_str(struct run *r, const struct val *v, const char *what); // must be a string
bool args_given(const struct val *v);                                       // not missing

// eval.c and access.c
struct val eval_value(struct run *r, struct frame *f, const struct node *n);
struct val eval_filter(struct run *r, struct frame *f, const struct node *n, struct val in);
struct val eval_call(struct run *r, struct frame *f, const struct node *n,
                     const struct val *caller); // caller: of a call block, or NULL
struct val eval_call_value(struct run *r, struct val fn, const struct args *a);
struct val access_attr(struct run *r, struct val obj, struct str *name);
struct val access_item(struct run *r, struct val obj, struct val key);
struct val access_slice(struct run *r, struct val obj, struct val lo, struct val hi,
                        struct val step);

// exec.c
struct frame {
    struct frame *outer;
    const struct scope *scope;
    struct val slots[];
};
struct val exec_macro_call(struct run *r, struct val macro, const struct args *a);
struct val loop_attr(struct run *r, struct val loop, const struct str *name); // V_MISSING: none
struct val loop_recurse(struct run *r, struct val loop, struct val over);
size_t loop_length(struct run *r, struct loop *l);
extern const struct native loop_methods[];
void exec_root(struct run *r);

struct macro {
    const struct macro_def *def;
    const struct node *node;
    struct frame *closure;
};

// access_path: "a.b.0" or a number; `otherwise` (V_MISSING: none) replaces what is undefined.
struct val access_path(struct run *r, struct val obj, struct val path, struct val otherwise);
struct val access_method(struct run *r, struct val obj, const struct str *name); // V_MISSING: none
struct val access_undef(struct run *r, struct val obj, struct val name);

// ops.c: arithmetic and comparison.
struct val ops_binary(struct run *r, enum op op, struct val a, struct val b);
struct val ops_negate(struct run *r, struct val a, bool negative);
bool ops_compare(struct run *r, enum op op, struct val a, struct val b);

// pytext.c: Python's text forms.
struct val pytext_str(struct run *r, struct val v); // str(v)
void pytext_str_sb(struct run *r, struct sb *b, struct val v);
void pytext_repr_sb(struct run *r, struct sb *b, struct val v, uint32_t origin);
struct val pytext_repr(struct run *r, struct val v);
size_t pytext_float(struct run *r, double f, char out[FORMAT_NUMBER]);

// globals.c
struct val globals_dict(struct run *r, struct val self, const struct val *v, const struct args *a);

// variables.c
struct template_object variables_begin(struct run *r); // makes r->context

// tojson.c
struct val filters_tojson(struct run *r, struct val self, const struct val *v,
                          const struct args *a);

// sort.c: stable, by key(item). key: NULL sorts by the items themselves.
typedef struct val (*sort_key)(struct run *r, struct val item, const void *how);
void sort_values(struct run *r, struct list *l, sort_key key, const void *how, bool reverse);
struct val sort_by_first(struct run *r, struct val item, const void *how);

// pyformat.c
struct val pyformat_percent(struct run *r, struct val fmt, struct val args);
struct val pyformat_braces(struct run *r, struct val fmt, const struct args *a);
struct val pyformat_html(struct run *r, struct val v);

// text.c: what string filters and string methods share.
struct val text_case(struct run *r, struct str *s, char how); // u l c t w
struct val text_replace(struct run *r, struct str *s, struct str *old, struct str *new,
                        int64_t count);
struct val text_strip(struct run *r, struct str *s, const struct val *chars, char side); // l r b
struct val text_split(struct run *r, struct str *s, const struct val *sep, int64_t max, bool right);
struct val text_lines(struct run *r, struct str *s, bool keep_ends);
struct val text_join(struct run *r, struct str *sep, struct val items, bool convert);
struct val text_pad(struct run *r, struct str *s, int64_t width, const struct val *fill, char how);
struct val text_parse_int(struct run *r, struct str *s, int64_t base); // V_MISSING: not a number
struct val text_parse_float(struct run *r, struct str *s);             // V_MISSING likewise
size_t text_find(struct run *r, const struct str *s, size_t from, size_t to, const struct str *what,
                 bool last); // bytes; SIZE_MAX: not there

#endif
