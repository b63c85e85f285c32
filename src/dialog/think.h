// Separates a reasoning model's thinking from its answer while the text streams: a block at the
// very start of an answer (or one that the prompt already opened), in any of the notations that
// templates use (think.c has the table), or messages on channels before the final one. Marks may
// arrive in pieces; a mark within the answer is text.
#ifndef HOKKU_DIALOG_THINK_H
#define HOKKU_DIALOG_THINK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"
#include "engine/constrain.h" // thinking_marks

// on, off: the template is told so; hide: it thinks but the text is not shown. The default leaves
// the choice to the template.
enum think { THINK_DEFAULT, THINK_ON, THINK_OFF, THINK_HIDE };
const char *think_name(enum think t);

enum answer_part { PART_ANSWER, PART_THINKING };

typedef bool (*think_sink)(void *user, enum answer_part part, const char *text, size_t n,
                           struct error *err);

struct think_split {
    enum { THINK_START, THINK_INSIDE, THINK_GAP, THINK_DONE, THINK_HEADER } state;
    const char *close; // the tag that ends the block, while inside; the answer, if it has one
    bool begun;        // some of the block was given
    bool wrapped;      // the mark that opens the answer was there
    struct buf held;   // bytes that may be the beginning of a tag, or white space around one
    size_t n_seen;     // bytes pushed so far
    size_t answer_at;  // where in the pushed text the answer proper begins (while DONE)
    // The thinking, white space around it left out; equal: none. Marks between its messages are in
    // it.
    size_t thinking_at, thinking_end;
};

// open_tag: the tag that the prompt ends with, or NULL when the answer starts outside.
void think_init(struct think_split *t, const char *open_tag);
void think_release(struct think_split *t); // zeroed is fine
// Gives what is certain to sink, tags and the white space around the block left out.
bool think_push(struct think_split *t, const char *text, size_t n, think_sink sink, void *user,
                struct error *err);
// Gives what was held. Call once, at the end of the answer.
bool think_flush(struct think_split *t, think_sink sink, void *user, struct error *err);

// How an answer's thinking begins and ends, by what a template (its source) knows, or by open_tag
// (NULL: any). off: the model was told not to think. False: there is none.
bool think_marks(const char *source, size_t n, const char *open_tag, bool off,
                 struct thinking_marks *marks);

// The opening tag with which text[0..n) ends (white space after it ignored), or NULL.
const char *think_open_tag_at_end(const char *text, size_t n);

// Of an answer's whole text and its answer_at: where the answer proper ends, since some models
// close it with a mark, too.
size_t think_answer_end(const char *text, size_t n, size_t answer_at);
// Appends the thinking text[begin..end) to out, a blank line for the marks between its messages.
bool think_append(struct buf *out, const char *text, size_t begin, size_t end);

// The fields in which a template wants the thinking of earlier answers, by its source: a bit for
// each name. None: it is given the text as the model wrote it.
enum { THINK_FIELDS = 3 };
unsigned think_fields(const char *source, size_t n);
const char *think_field_name(int i);

#endif
