// A saved conversation: one file that holds everything to go on as if nothing had happened. The
// format is described in docs/session-format.md. A file is untrusted: every length is checked,
// every section has a checksum, and nothing of the conversation changes unless the whole file is
// good.
#ifndef HOKKU_CHAT_SESSION_FILE_H
#define HOKKU_CHAT_SESSION_FILE_H

#include <jansson.h>

#include "dialog/conversation.h"

enum { SESSION_VERSION = 1 };

// Writes path by way of a temporary file beside it: synced, then renamed. On any failure the file
// that was there is as it was. settings: a JSON object, stored as it is. Errors: ERR_FAIL.
bool session_file_write(const char *path, const struct conversation *c, const json_t *settings,
                        struct error *err);

enum session_kv {
    SESSION_KV_NONE,     // nothing was evaluated yet
    SESSION_KV_RESTORED, // the model's memory is what it was
    SESSION_KV_STALE,    // from another device, cache type or context size: read again when needed
};

struct session_loaded {
    enum session_kv kv;
    char kv_reason[160];   // why it is stale
    bool template_changed; // saved with another chat template
    double seconds;        // that it took
};

// Replaces the messages and the memory of c (which keeps its model, engine and template) by those
// of the file. accept: judges its settings (a JSON object or NULL) before anything changes; may be
// NULL. On failure c is as it was. Errors: ERR_FAIL: not a session, another version, damaged (which
// part), made with another model (both names); those of accept.
typedef bool session_accept(void *user, const json_t *settings, struct error *err);
bool session_file_read(const char *path, struct conversation *c, session_accept *accept, void *user,
                       struct session_loaded *out, struct error *err);

struct session_info { // what a list shows and what is needed to open the right model
    char model[128], device[128], kv_format[64];
    size_t turns, tokens;
    uint32_t n_ctx;
    int64_t saved_at;
    char *model_path;    // owned; where the model was; NULL: not known
    char *template_text; // owned; NULL: plain completion
};
// Only the header and the descriptive part.
bool session_file_info(const char *path, struct session_info *out, struct error *err);
void session_info_release(struct session_info *i); // zeroed is fine

#endif
