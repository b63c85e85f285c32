// What a person or a pipe sees of an answer: the answer itself on standard output and nothing else
// there; thinking, progress and notices on standard error. Each stream is judged by itself: a
// terminal gets safe, wrapped, styled text, anything else the exact bytes.
#ifndef HOKKU_TERM_VIEW_H
#define HOKKU_TERM_VIEW_H

#include "term/termout.h"
#include "dialog/think.h"
#include "engine/session.h"

struct view_options {
    bool out_tty, err_tty;     // the streams are terminals
    bool out_color, err_color; // styles may be used there
    bool dumb;                 // the terminal knows no escape sequences: no wrapping either
    bool quiet;
    enum think think;
};

struct view {
    struct view_options o;
    struct termout out, err;
    struct buf scratch;
    bool thinking;     // thinking is on the screen and not yet ended
    bool progress;     // a progress line is on the screen
    bool any, newline; // the answer has begun; its last byte was a newline
    double started;    // of the prefill
    double told;       // when the progress line was last written, and of how many tokens
    size_t told_of;
};

void view_init(struct view *v, const struct view_options *o);
void view_release(struct view *v);
// Measures the terminals again; begins an answer.
void view_begin(struct view *v);
bool view_text(struct view *v, enum answer_part part, const char *text, size_t n,
               struct error *err);
// Ends the answer: styles off, and a newline on standard output unless it ends with one.
bool view_end(struct view *v, struct error *err);
// "reading 512 of 4,096 tokens · 3 s left", on a terminal only; gone when done == total.
void view_prefill(struct view *v, size_t done, size_t total);
void view_clear_progress(struct view *v);
// One line or more on standard error: made safe on a terminal. No newline is added.
void view_say(struct view *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Untrusted text of any length on standard error, wrapped at words on a terminal, with a newline.
void view_show(struct view *v, const char *text, size_t n);

// "prefill 24 tokens 4.1 ms (5,853/s) · decode 19 tokens ... · reused 0 · context 43 of 32768"
// n_used: tokens of the context of n_ctx
bool view_stats_line(const struct session_stats *t, size_t n_used, size_t n_ctx, struct buf *out);

#endif
