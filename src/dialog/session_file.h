// A saved conversation: one file that holds everything to go on as if nothing had happened. The
// format is described in docs/session-format.md. A file is untrusted: every length is checked,
// every part has a checksum, and nothing of the conversation changes unless what matters of the
// file is good.
#ifndef HOKKU_DIALOG_SESSION_FILE_H
#define HOKKU_DIALOG_SESSION_FILE_H

#include <jansson.h>

#include "dialog/conversation.h"

enum session_kv {
    SESSION_KV_NONE,     // there is none: what is needed is evaluated with the next message
    SESSION_KV_RESTORED, // the model's memory is what it was
    SESSION_KV_STALE,    // (a part is) damaged, or from another device, cache type or context size
};

struct session_loaded {
    enum session_kv kv;
    char kv_reason[160];   // why it is stale
    size_t n_tokens;       // of its timeline; the memory has those of them that could be restored
    bool behind;           // the messages go on behind them
    bool template_changed; // saved with another chat template
    bool cut;              // what was saved last is not all there: this is the state before
    double seconds;        // that it took
};

// Judges the settings of a file (a JSON object or NULL) before anything changes.
typedef bool session_accept(void *user, const json_t *settings, struct error *err);

// Replaces the messages and the memory of c (which keeps its model, engine and template) by those
// of the file. accept may be NULL. On failure c is as it was. Errors: ERR_FAIL: not a session,
// another version, damaged (which part), made with another model (both names); those of accept.
bool session_file_read(const char *path, struct conversation *c, session_accept *accept, void *user,
                       struct session_loaded *out, struct error *err);

// Who writes the session at path; knows what the file holds, so that only what is new is written,
// by a thread of its own. no_kv: the text alone.
struct session_writer;
struct session_writer *session_writer_create(const char *path, bool no_kv, struct error *err);
void session_writer_free(struct session_writer *w); // waits; accepts NULL
// session_file_read; what is saved next is appended to it.
bool session_writer_load(struct session_writer *w, struct conversation *c, session_accept *accept,
                         void *user, struct session_loaded *out, struct error *err);
// Begins to save: c may change at once. settings: a JSON object, stored as it is. Whatever fails,
// the file that was there stays as it was. What is as it was loaded is not written again, and the
// memory that the file has of it stays, also one that could not be restored here. Errors: ERR_FAIL,
// ERR_MEMORY.
bool session_writer_save(struct session_writer *w, const struct conversation *c,
                         const json_t *settings, struct error *err);
// on: no more of the KV cache than the file has; what is missing is evaluated when it is resumed.
void session_writer_text_only(struct session_writer *w, bool on);
// Waits at most `seconds` (< 0: as long as it takes) until it is saved. False with *err when that
// has failed. *done: it is known.
bool session_writer_settle(struct session_writer *w, double seconds, bool *done, struct error *err);
// Waits until nothing is being saved; how that ended is still settle's to say.
void session_writer_wait(struct session_writer *w);

// All of the above for a file of its own: written, synced, in its place.
bool session_file_write(const char *path, const struct conversation *c, const json_t *settings,
                        struct error *err);

struct session_info { // what a list shows and what is needed to open the right model
    char model[128], fingerprint[65], device[128], kv_format[64];
    size_t turns, tokens;
    uint64_t bytes; // of the file
    uint32_t n_ctx;
    bool has_types;              // earlier versions did not write them:
    enum kv_type type_k, type_v; // of the KV cache
    bool exact;                  // of the engine, see engine_params
    int64_t saved_at;
    char *model_path;    // owned; where the model was; NULL: not known
    char *template_text; // owned; NULL: plain completion
};
// The messages alone, into a zeroed conversation, which the caller releases: for reading, without a
// model.
bool session_file_text(const char *path, struct conversation *c, struct error *err);
// Only the descriptive part.
bool session_file_info(const char *path, struct session_info *out, struct error *err);
void session_info_release(struct session_info *i); // zeroed is fine

struct session_row {  // of a list of all
    const char *name; // borrowed
    bool good;
    struct session_info info; // good
    struct error err;         // not good
};
// The sessions of these names, the one that was saved last first. Owned by the caller; NULL: no
// memory.
struct session_row *session_rows(const char *state_dir, char *const *names, size_t n,
                                 struct error *err);
void session_rows_free(struct session_row *rows, size_t n);

// A list of sessions in lines: the columns of their names, as many as the longest takes, and of a
// whole line, where it is cut; 0: it is not.
struct session_table {
    size_t name, columns;
};
// columns: of the terminal, in which long names are shortened so that the rest has room; 0: none.
struct session_table session_table_of(char *const *names, size_t n, size_t columns);
// The beginning of a line: the name, and blanks up to the next column.
bool session_name_column(const struct session_table *t, const char *name, struct buf *out);
// A line: name, when, turns, tokens, size, model.
bool session_info_line(const struct session_table *t, const char *name,
                       const struct session_info *i, struct buf *out);
// The conversation as Markdown: a heading for each message, its text as it is, thinking left out.
bool session_markdown(const struct conversation *c, struct buf *out);

#endif
