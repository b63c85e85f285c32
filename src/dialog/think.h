// Separates a reasoning model's thinking from its answer while the text streams: a <think> block at
// the very start of an answer (or one that the prompt already opened). Tags may arrive in pieces.
#ifndef HOKKU_DIALOG_THINK_H
#define HOKKU_DIALOG_THINK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"

// on, off: the template is told so; hide: it thinks but the text is not shown. The default leaves
// the choice to the template.
enum think { THINK_DEFAULT, THINK_ON, THINK_OFF, THINK_HIDE };
const char *think_name(enum think t);

enum answer_part { PART_ANSWER, PART_THINKING };

typedef bool (*think_sink)(void *user, enum answer_part part, const char *text, size_t n,
                           struct error *err);

struct think_split {
    enum { THINK_START, THINK_INSIDE, THINK_GAP, THINK_DONE } state;
    const char *close; // the tag that ends the block, while inside
    struct buf held;   // bytes that may be the beginning of a tag, or white space around one
    size_t n_seen;     // bytes pushed so far
    size_t answer_at;  // where in the pushed text the answer proper begins (while DONE)
    size_t thinking_at, thinking_end; // the thinking, white space around it left out; equal: none
};

// open_tag: the tag that the prompt ends with, or NULL when the answer starts outside.
void think_init(struct think_split *t, const char *open_tag);
void think_release(struct think_split *t); // zeroed is fine
// Gives what is certain to sink, tags and the white space around the block left out.
bool think_push(struct think_split *t, const char *text, size_t n, think_sink sink, void *user,
                struct error *err);
// Gives what was held. Call once, at the end of the answer.
bool think_flush(struct think_split *t, think_sink sink, void *user, struct error *err);

// The tags of thinking that a template (its source) knows, or that open_tag is one of (NULL: any).
// False: it knows none.
bool think_tags(const char *source, size_t n, const char *open_tag, const char **open,
                const char **close);

// The opening tag with which text[0..n) ends (white space after it ignored), or NULL.
const char *think_open_tag_at_end(const char *text, size_t n);

#endif
