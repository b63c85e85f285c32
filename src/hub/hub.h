// Models from the Hugging Face Hub (or from any https:// address), kept in a cache. Nothing that a
// server says is trusted: sizes, names and contents are checked, and what is in the cache under its
// own name is complete and verified.
#ifndef HOKKU_HUB_HUB_H
#define HOKKU_HUB_HUB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cancel.h"
#include "base/error.h"

struct hub_progress {
    const char *file;      // its name, printable ASCII
    uint64_t done, total;  // bytes; total 0: unknown
    uint64_t resumed;      // of `done`, what an earlier run had left
    unsigned part, n_part; // of a split model, from 1
    bool finished;         // verified and in its place
    bool checking;         // nothing is downloaded: a file that is there is hashed
};

// Zero means default everywhere.
struct hub_options {
    const char *endpoint;     // default https://huggingface.co; http:// only if the user says so
    const char *token;        // sent to the endpoint's scheme, host and port, to nobody else; in
                              // clear (http://) only to this machine
    const char *cache_dir;    // needed; created when something is downloaded
    const char *hf_cache_dir; // models--USER--REPO/... of Hugging Face's own programs; only read
    const char *state_dir;    // where hashes of its files are remembered; NULL: not at all
    const char *ca_file;      // certificates to trust instead of the system's
    unsigned stall_s;         // give up on a silent server after so many seconds (30), on one that
                              // sends less than 1 kB/s after twice as many
    uint64_t max_bytes;       // no file larger than this; 0: what the disk has room for
    bool allow_http;          // send the token also to an http:// endpoint of another machine
    bool offline;             // no network: only what is there
    bool refresh;             // ask the server even when the model is there
    const struct cancel *cancel;
    // Whether models of an architecture can run here, err: why not. NULL: nobody asks.
    bool (*runs)(const char *architecture, struct error *err);
    void (*progress)(void *user, const struct hub_progress *p);
    // Retries, waiting, a model that cannot run; may carry untrusted bytes.
    void (*note)(void *user, const char *line);
    void *user;
};

// "USER/REPO[:QUANT]" or "https://..." -> the path of the (first) file, appended to `path`.
// Errors: ERR_USAGE (the name), ERR_FAIL, ERR_MEMORY, ERR_INTERRUPTED (the part stays, to go on
// from).
bool hub_fetch(const struct hub_options *o, const char *name, struct buf *path, struct error *err);

// Whether it is such a name at all: ERR_USAGE.
bool hub_name_check(const char *name, struct error *err);

struct hub_model {
    char *name;       // "USER/REPO:TAG", "USER/REPO:FILE" or "https://..."
    char *path;       // of its first file
    uint64_t n_bytes; // of all its files
    int64_t last_use; // seconds since 1970
    bool complete;    // false: an interrupted download
};

struct hub_models {
    struct hub_model *items; // sorted by name
    size_t n;
};

// What is in the cache.
bool hub_list(const struct hub_options *o, struct hub_models *out, struct error *err);
void hub_models_release(struct hub_models *m);
// After a look at the model's files, which is no use of it: the last use is what it was.
void hub_keep_last_use(const struct hub_model *m);

// Removes a model by a name that hub_list gives (case does not matter), or all of USER/REPO.
// *freed: bytes. Errors: ERR_FAIL; when there is none, with the names there are.
bool hub_remove(const struct hub_options *o, const char *name, uint64_t *freed, struct error *err);
bool hub_has(const struct hub_options *o, const char *name, struct error *err); // has one to remove

#endif
