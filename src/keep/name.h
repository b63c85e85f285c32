// Where the sockets of keepers are, and which of them a call wants.
#ifndef HOKKU_KEEP_NAME_H
#define HOKKU_KEEP_NAME_H

#include "base/buf.h"
#include "base/error.h"
#include "cli/options.h"

// Appends "DIR/", of this user alone, made if it is to be. *there: it is. Errors: ERR_FAIL: there
// is no such place.
bool keep_place(const struct options *o, bool make, struct buf *dir, bool *there,
                struct error *err);
// Whether a file of that directory is a keeper's socket.
bool keep_is_name(const char *name);
// Appends the name of this process's socket beside `name`, as long as calls are not to find it.
bool keep_aside(const char *name, struct buf *out);

// Appends the name of the socket for a model's file: another one for each program, version, file
// and surroundings, so that a call finds only a keeper in which it would go as it goes by itself.
bool keep_name(const char *model, char **envp, struct buf *out, struct error *err);

#endif
