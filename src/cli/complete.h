// What Tab may offer: asked by the shells' completion scripts (manual.c) through
// `hokku --complete`, so that no name is ever expanded, split or run by a shell.
#ifndef HOKKU_CLI_COMPLETE_H
#define HOKKU_CLI_COMPLETE_H

#include "cli/options.h"

// The names that a value of an option may have beside its choices.
enum complete_kind {
    COMPLETE_ANY, // nothing to offer
    COMPLETE_FILES,
    COMPLETE_SESSIONS,
    COMPLETE_PROMPTS,
    COMPLETE_TEMPLATES,
    COMPLETE_MODELS,
    COMPLETE_DEVICES,
};

// Names that the caller knows.
struct complete_names {
    const char *const *sessions;
    size_t n_sessions;
    const char *templates; // "alpaca, chatml"
};

enum complete_kind complete_kind_of(const struct option_def *d);
bool complete_or_file(const struct option_def *d);    // a file's name may stand there, too
bool complete_at_file(const struct option_def *d);    // one behind @ may
const char *complete_kind_name(enum complete_kind k); // "sessions"

// o->complete is one of
//   KIND              the names of that kind, each ended by NUL
//   SHELL WORD LINE   for bash or fish: what the end of LINE, a command line up to the cursor, may
//                     become. First "files" (let the shell complete the name of a file),
//                     "at-files" (one behind the @ of the word), or "words", then the candidates,
//                     each ended by NUL. WORD is what they replace: the shell's idea of the last
//                     word, which may begin after a ':', '=' or '@'. For fish, which replaces whole
//                     words, they are whole, and have behind a tab what they are for, where that is
//                     known.
// Names that a terminal should not see, or that a shell would have to quote, are left out.
// Errors: ERR_USAGE, ERR_MEMORY.
bool complete_print(const struct options *o, const struct complete_names *names, struct buf *out,
                    struct error *err);

#endif
