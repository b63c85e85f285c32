// Named sessions in a directory: their files, and the lock that keeps a second writer out.
#ifndef HOKKU_DIALOG_SESSION_STORE_H
#define HOKKU_DIALOG_SESSION_STORE_H

#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"
#include "dialog/session_file.h"

struct session_lock {
    int fd;                        // holds the lock; -1: none
    char *name;                    // owned
    struct buf path;               // of the session's file
    bool unnamed;                  // a chat that nobody gave a name
    struct session_writer *writer; // owned; NULL: nothing was loaded or saved yet
};

#define SESSION_LOCK_NONE                                                                          \
    (struct session_lock)                                                                          \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

// A name is one of place_is_name.
bool session_path(const char *state_dir, const char *name, struct buf *out, struct error *err);

// Takes the name for writing. The directory is made when missing. Errors: ERR_FAIL: another process
// has it (says so), names that cannot be.
bool session_lock_take(struct session_lock *l, const char *state_dir, const char *name,
                       struct error *err);
// Waits until what was saved is on the disk. Accepts an empty one.
void session_lock_release(struct session_lock *l);
bool session_exists(const struct session_lock *l);
// Whether its file is not protected from being written, which saving by rename would undo. Errors:
// ERR_FAIL.
bool session_may_change(const struct session_lock *l, struct error *err);
// Waits until its file is what was saved last, so that it can be looked at, or removed for good.
void session_lock_wait(const struct session_lock *l);

// Which file a session has, and which of its states counts, as its first bytes say.
struct session_mark {
    dev_t dev;
    ino_t ino; // 0: there is none
    unsigned char head[64];
};
// Waits as session_lock_wait does.
struct session_mark session_mark(const struct session_lock *l);
// Whether what is kept in memory of a session that was left may be saved over its file: that is as
// it was left, or gone, and not protected. Errors: ERR_FAIL.
bool session_is_as_left(const struct session_lock *l, const struct session_mark *left,
                        struct error *err);

// Chats that nobody named are called chat-YYYYMMDD-HHMMSS; the newest SESSION_UNNAMED_MAX are kept.
enum { SESSION_UNNAMED_MAX = 20 };
bool session_is_unnamed(const char *name);
// Errors: ERR_USAGE: what nobody may call a session of his own, as it would not be kept.
bool session_name_check_new(const char *name, struct error *err);
// Takes a name for such a chat. now: seconds since the epoch.
bool session_lock_take_unnamed(struct session_lock *l, const char *state_dir, int64_t now,
                               struct error *err);
// Where such a chat is saved for the first time: there may be one too many, the oldest goes.
void session_remove_old(const struct session_lock *l, const char *state_dir);
// The session that was saved last; owned by the caller. NULL: there is none. Errors: those of
// session_names.
bool session_latest(const char *state_dir, char **name, struct error *err);
// The file that a person means: a session's name, else a file. With a '/' it is a file: what lies
// in a folder that others fill is no session of one's own. Errors: ERR_FAIL: there is neither.
bool session_find(const char *state_dir, const char *name, struct buf *path, struct error *err);
// Errors: ERR_FAIL: there is none of that name, it is in use; to be removed also: a folder, or its
// mode protects it; for mv also: the new name is taken.
bool session_removable(const char *state_dir, const char *name, struct error *err); // now
bool session_remove(const char *state_dir, const char *name, struct error *err);
bool session_rename(const char *state_dir, const char *from, const char *to, struct error *err);

// Names of the saved sessions in state_dir, sorted. Owned by the caller: session_names_free. Errors
// (none are given then): ERR_FAIL: the folder cannot be read; ERR_MEMORY.
bool session_names(const char *state_dir, char ***names, size_t *n, struct error *err);
void session_names_free(char **names, size_t n);

#endif
