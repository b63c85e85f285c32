// The one error convention: a function that can fail returns bool and takes a struct error *.
// The message is built where the fact is known: what failed, the value found, the value expected,
// what to do. Libraries never print; only main() turns an error into text and an exit code.
#ifndef HOKKU_BASE_ERROR_H
#define HOKKU_BASE_ERROR_H

#include <stdbool.h>
#include <stdarg.h>

#ifdef __cplusplus
extern "C" {
#endif

// The values are the process exit codes of the command line contract.
enum error_code {
    ERR_NONE = 0,
    ERR_FAIL = 1,          // failure while running
    ERR_USAGE = 2,         // wrong usage
    ERR_MODEL = 3,         // the model cannot be loaded
    ERR_MEMORY = 4,        // not enough memory (host or device)
    ERR_CONTEXT = 5,       // the prompt does not fit the context
    ERR_INTERRUPTED = 130, // the caller's cancel flag was seen; not a failure
};

struct error {
    enum error_code code;
    char text[1024]; // one line, UTF-8, no trailing newline; may carry untrusted bytes: filter
                     // before a terminal
};

// Sets code and text (printf format). err may be NULL. Always returns false: `return
// error_set(...)`.
bool error_set(struct error *err, enum error_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// Puts "prefix: " in front of a text already set. err may be NULL. Always returns false.
bool error_prefix(struct error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Takes "prefix: " off, if the text begins with it.
void error_drop_prefix(struct error *err, const char *prefix);

// error_set(ERR_MEMORY) with a text that names what was being allocated and its size in bytes.
bool error_oom(struct error *err, const char *what, unsigned long long n_bytes);

#ifdef __cplusplus
}
#endif
#endif
