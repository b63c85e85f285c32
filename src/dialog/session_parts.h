// What a session's file holds, checked and taken apart, before anything of it becomes a
// conversation: the same for every version of the format.
#ifndef HOKKU_DIALOG_SESSION_PARTS_H
#define HOKKU_DIALOG_SESSION_PARTS_H

#include <jansson.h>

#include "base/buf.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

// Positions of a piece of the KV cache; recurrent states that a file has room for, and that are
// read: the newest.
enum { SESSION_STATES = 4 };
// Bytes of a description, at most.
enum { SESSION_META = 4 << 20 };

struct kv_piece { // of the KV cache: positions [begin, end) as exported, of which [begin, use)
                  // count
    uint64_t begin, end, use, offset, length;
    uint32_t crc;
    bool checked; // the checksum is known to be right
};

struct state_piece { // a recurrent state, after pos tokens
    uint64_t pos, offset, length;
    uint32_t crc;
};

struct session_parts {
    int version;
    uint64_t size;   // of the file
    bool cut;        // an older state than the one saved last
    json_t *meta;    // owned; an object
    struct buf tmpl; // the chat template
    struct buf messages;
    struct ids timeline; // not checked against a vocabulary
    struct kv_piece *pieces;
    size_t n_pieces;
    struct state_piece *states; // ascending
    size_t n_states;
    uint64_t length, generation; // to go on writing (version 2)
    int slot;
};

enum session_want { // what is read; the rest stays empty
    WANT_META,      // what describes the session: meta, tmpl
    WANT_MESSAGES,  // and the messages
    WANT_ALL,
};
// e: whose KV cache it would be (WANT_ALL). Errors: ERR_FAIL: not a session, another version,
// damaged (which part).
bool session_parts_read(struct session_parts *p, int fd, const char *path, enum session_want want,
                        const struct engine *e, struct error *err);
void session_parts_release(struct session_parts *p); // zeroed is fine

// The first version (session_v1.c), after magic and version were seen.
bool session_v1_read(struct session_parts *p, int fd, const char *path, enum session_want want,
                     const struct engine *e, struct error *err);
// Parses META. Errors: ERR_FAIL.
bool session_parts_meta(struct session_parts *p, const char *path, const char *text, size_t n,
                        struct error *err);

#endif
