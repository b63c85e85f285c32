// The lines typed, kept across runs in a file of mode 0600: one entry per line, line breaks and
// backslashes written as \n and \\. Entries are appended at once, so that several runs may share
// the file and a crash loses nothing.
#ifndef HOKKU_TERM_HISTORY_H
#define HOKKU_TERM_HISTORY_H

#include "base/error.h"

enum { HISTORY_MAX = 2000 }; // entries kept when the file is read

// Gives every entry to add, oldest first. A file that does not exist is empty.
bool history_load(const char *path, void (*add)(void *user, const char *entry), void *user,
                  struct error *err);
bool history_append(const char *path, const char *entry, struct error *err);

#endif
