// The Jinja interpreter that renders a model's own chat template, with provenance: every byte of
// the result is known to come from the template's own text or from the data it was given, so that
// only the template's own markup can become control tokens. A template is untrusted: steps, time,
// depth, output and memory are bounded.
#ifndef HOKKU_JINJA_TEMPLATE_H
#define HOKKU_JINJA_TEMPLATE_H

#include "base/buf.h"
#include "base/cancel.h"
#include "base/error.h"

struct template; // a parsed template; immutable

// Parses src[0..n) (copied). Options of Jinja2 as Hugging Face sets them: trim_blocks,
// lstrip_blocks, loop controls. Errors: ERR_FAIL with line, column and the line quoted; ERR_MEMORY.
struct template *template_parse(const char *src, size_t n, struct error *err);
void template_free(struct template *t); // NULL is fine
// What was parsed, byte for byte. Borrowed.
const char *template_source(const struct template *t, size_t *n);
// Whether the variable of that name is taken from what a rendering is given, anywhere.
bool template_reads(const struct template *t, const char *name);

// Where bytes of the output come from.
enum {
    ORIGIN_TEMPLATE = 0, // the template's text and literals, and context strings named *_token
    ORIGIN_MESSAGE = 1,  // ORIGIN_MESSAGE + i: a string anywhere inside messages[i]
    ORIGIN_DATA =
        0x7FFFFFFF, // any other string of the context, or a mixture that cannot be told apart
};

struct template_span {
    size_t begin, end; // bytes of the text
    uint32_t origin;
};

struct template_output {
    struct buf text;
    struct template_span
        *spans; // owned; consecutive, cover the text exactly, neighbours differ in origin
    size_t n_spans;
};

void template_output_release(struct template_output *o); // NULL and zeroed are fine

struct template_limits { // 0 = the default
    uint64_t max_steps;
    size_t max_output;
    size_t max_memory;
    uint32_t max_depth;
    double max_seconds;          // of processor time
    const struct cancel *cancel; // ends the rendering with ERR_INTERRUPTED; NULL: nothing does
};

// The variables are made while the template is rendered, in its memory, by a function of the
// caller's. What exceeds a limit there ends the rendering, and that function with it (longjmp): it
// must own nothing. Strings are borrowed until the rendering ends; where they are no UTF-8 they get
// U+FFFD.
struct template_object { // opaque, as the next two
    struct run *run;
    struct dict *dict;
    uint32_t origin, depth;
};
struct template_list {
    struct run *run;
    struct list *list;
    uint32_t origin, depth;
    bool of_messages; // item i is message i, see above
};
struct template_slot { // where one value goes
    struct run *run;
    struct dict *dict;
    const char *key; // of dict
    struct list *list;
    uint32_t origin, depth;
};
struct template_slot template_at(struct template_object o, const char *key);
struct template_slot template_next(struct template_list l);

void template_put_none(struct template_slot to);
void template_put_bool(struct template_slot to, bool value);
void template_put_int(struct template_slot to, int64_t value);
void template_put_float(struct template_slot to, double value);
void template_put_str(struct template_slot to, const char *s, size_t n);
struct template_object template_put_object(struct template_slot to);
struct template_list template_put_list(struct template_slot to);

typedef void (*template_fill)(void *user, struct template_object variables);

// Renders with the variables that fill sets. strftime_now uses `now` (seconds since the epoch,
// local time). Errors: ERR_FAIL: the template's own raise_exception (text exactly as raised,
// *raised = true), any other error with line, column and the line quoted; ERR_MEMORY;
// ERR_INTERRUPTED. raised may be NULL.
bool template_render(const struct template *t, template_fill fill, void *user, int64_t now,
                     const struct template_limits *limits, struct template_output *out,
                     bool *raised, struct error *err);

#endif
