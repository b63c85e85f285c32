// Files that hokku keeps or obeys: configuration, history, sessions, prompts, the cache with its
// records, parts and locks. Whoever can change one of them can change what hokku does, so each is
// opened here: never through a link (but place_read_linked), never waiting (a pipe), only a regular
// file that belongs to the user or to root and that nobody else can write. What a user names on the
// command line (a model, a prompt's file) may be anything readable and does not come here.
#ifndef HOKKU_BASE_PLACE_H
#define HOKKU_BASE_PLACE_H

#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"

// What a user may call such a file (a session, a system prompt), n bytes: one word that no shell
// and no folder takes for something else.
enum { PLACE_NAME_MAX = 100 };
#define PLACE_NAME_RULE "1 to 100 bytes: letters, digits, '_', '-' or '.', not beginning with '.'"
bool place_is_name(const char *name, size_t n);

// open(2) with these checks; O_CREAT makes a file of mode 0600. -1: *err names the file, the reason
// and what to do, and errno is ENOENT exactly when there is no such file. Errors: ERR_FAIL.
int place_open(const char *path, int flags, struct error *err);

// Appends a whole file to out. *found = false, and no error, when there is none.
bool place_read(const char *path, size_t max_bytes, struct buf *out, bool *found,
                struct error *err);
// The same, and path may be a symbolic link of the user or of root to such a file: as programs make
// it that keep the files of a home in one place.
bool place_read_linked(const char *path, size_t max_bytes, struct buf *out, bool *found,
                       struct error *err);
// The same for what is installed with the program: its owner is trusted too, who can change the
// program itself.
bool place_read_shipped(const char *path, size_t max_bytes, struct buf *out, bool *found,
                        struct error *err);

// Whether a file that is opened elsewhere by its name is such a file.
bool place_check(const char *path, struct error *err);

// A new file of mode 0600 beside path, under a name that cannot be foreseen; *temp receives the
// name. What a killed process left of the same kind is removed: one process at a time writes a
// path. -1: *err.
int place_create_temp(const char *path, struct buf *temp, struct error *err);
// Syncs and closes fd, and gives the file its name in one step. On failure the new file is removed,
// and what was at path is as it was.
bool place_commit(int fd, const char *temp, const char *path, struct error *err);
// The same of a file with these n bytes.
bool place_replace(const char *path, const void *data, size_t n, struct error *err);

// Gives a file another name, which must be free: what is there is never replaced. Errors: ERR_FAIL.
bool place_move(const char *from, const char *to, struct error *err);

// Whether there is a directory for what hokku keeps; NULL: there is none. Errors: ERR_FAIL: what it
// is for, and how to name one (xdg: the variable).
bool place_need(const char *dir, const char *what, const char *xdg, struct error *err);
// mkdir -p (0700) of everything before the last '/' of path.
bool place_make_parents(const char *path, struct error *err);
// What a directory holds is on the disk, not only in memory; where that is possible.
void place_sync_parent(const char *path);

// Takes the write lock of a file opened for writing; it lasts until any descriptor of the file is
// closed in this process. Never waits: *taken tells, and *holder is who has it (0: not known).
bool place_try_lock(int fd, const char *path, bool *taken, pid_t *holder, struct error *err);

#endif
