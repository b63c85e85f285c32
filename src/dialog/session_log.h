// The file of a session as a log: records are appended, and two slots at its beginning say in turn
// how many of its bytes count, so that a process killed at any byte leaves what was there before.
// The format is described in docs/session-format.md; what the records mean is session_file.c's.
#ifndef HOKKU_DIALOG_SESSION_LOG_H
#define HOKKU_DIALOG_SESSION_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct codec_cursor;

enum { LOG_VERSION = 2, LOG_TAG = 4 };
extern const char log_magic[8];

struct log_record {
    char tag[LOG_TAG + 1];
    uint64_t begin, end; // what of its kind the record holds
    uint64_t offset, length;
    uint32_t crc;
};

struct log_file {
    const char *path; // borrowed, for messages
    int fd;           // borrowed
    uint64_t length, generation;
    int slot; // which of the two says so
    bool cut; // bytes that count are missing, or a slot: an older state is what is left
    struct log_record *records; // owned
    size_t n_records;
};

// Reads and checks slots and the heads of all records. Errors: ERR_FAIL: damaged (where).
bool log_file_read(struct log_file *f, int fd, const char *path, struct error *err);
void log_file_release(struct log_file *f); // zeroed is fine
// length bytes into dst; *good tells whether they have the record's checksum. Errors: ERR_FAIL.
bool log_file_payload(const struct log_file *f, const struct log_record *r, void *dst, bool *good,
                      struct error *err);
bool log_damaged(const char *path, const char *what, struct error *err); // false
// The same of what a cursor could not read, if it was not for want of memory.
bool log_unreadable(const char *path, const struct codec_cursor *c, const char *what,
                    struct error *err);
// Exactly n bytes at offset.
bool log_read_at(int fd, const char *path, uint64_t offset, void *dst, size_t n, struct error *err);

// Writes in a thread of its own. One transaction at a time: start, put ..., commit.
struct log_writer;
struct log_writer *log_writer_create(const char *path, struct error *err);
void log_writer_free(struct log_writer *w); // waits; accepts NULL
// Goes on behind the first `length` bytes of the file that is there, as this slot of it says, if
// that can be written.
bool log_writer_continue(struct log_writer *w, uint64_t length, uint64_t generation, int slot);
// Between two transactions: whether the file is the one that was written. One that is gone is
// written anew. Errors: ERR_FAIL: it is another one, which must stay.
bool log_writer_look(struct log_writer *w, struct error *err);
// Bytes of the file that count; 0: there is none to append to.
uint64_t log_writer_length(const struct log_writer *w);
// Waits for the last transaction. anew: a new file, which takes the old one's place when committed
// (so it is always, as long as there is none).
bool log_writer_start(struct log_writer *w, bool anew, struct error *err);
// data: malloc'ed, given away. Waits while too much is waiting already.
void log_writer_put(struct log_writer *w, const char *tag, uint64_t begin, uint64_t end, void *data,
                    size_t n);
void log_writer_commit(struct log_writer *w);
void log_writer_abort(struct log_writer *w); // instead of commit: nothing changes
// Waits at most `seconds` (< 0: as long as it takes) for the last transaction. *done: it is over;
// false with *err when it failed: the file is as it was.
bool log_writer_settle(struct log_writer *w, double seconds, bool *done, struct error *err);

#endif
