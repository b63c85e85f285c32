// One directory of the cache: the files of one repository (or address) and .hokku.json, which says
// what they are. A file is under its own name only when it is complete and verified.
#ifndef HOKKU_HUB_CACHE_H
#define HOKKU_HUB_CACHE_H

#include <dirent.h>
#include <jansson.h>
#include <sys/stat.h>

#include "hub/hub.h"
#include "hub/listing.h"

// .hokku.json: {"version": 1, "url": "https://..." (of an address),
//  "files": {PATH: {"size": N, "sha256": "..."}},
//  "choices": {QUANT as it was asked for, lower case, "" = none: PATH of the first file}}
struct cache {
    const struct hub_options *o; // borrowed
    struct buf dir, record;      // the latter: its path
    json_t *root; // owned; a damaged or missing file reads as an empty one: its files are hashed
                  // again
};

// dir: CACHE/hub/USER/REPO or CACHE/url/HASH; taken over.
// Errors: ERR_FAIL: the record could have been written by somebody else; ERR_MEMORY.
bool cache_open(struct cache *c, const struct hub_options *o, struct buf *dir, struct error *err);
void cache_release(struct cache *c);

// Appends DIR/PATH.
bool cache_path(const struct cache *c, const char *path, struct buf *out);

// The verified file `path` as it was recorded, if it is still there in its size. NULL: not so.
const char *cache_sha256(const struct cache *c, const char *path, uint64_t *size);
// All files that are there.
bool cache_files(const struct cache *c, struct hub_listing *out, struct error *err);
// The first file chosen for `quant` if all its parts are there; NULL: not so.
const char *cache_choice(const struct cache *c, const char *quant);

// Change the record, on disk and in *c; other processes may do so at the same time: the last one
// that does waits, see hub_lock.
bool cache_set_file(struct cache *c, const char *path, uint64_t size, const char *sha256,
                    struct error *err);
bool cache_set_choice(struct cache *c, const char *quant, const char *path, struct error *err);
bool cache_set_url(struct cache *c, const char *url, struct error *err); // see hub_url_public
bool cache_remove_record(const struct cache *c); // with its lock; of a directory without files
bool cache_forget(struct cache *c, const char *path, struct error *err); // and its choices

// True: *d lists the directory, which the caller closes; NULL: it is not there, or not for us.
bool cache_list(const char *path, DIR **d, struct error *err);
// lstat, of links stat if told so. True: *st.st_mode is 0 if it is not there, or not for us.
bool cache_look(const char *path, bool links, struct stat *st, struct error *err);

// Adds all files below dir, as deep as repositories are, whose names end in suffix, in
// whatever case; links are followed only if told so. A directory that is not there has none.
bool cache_walk(const char *dir, const char *suffix, bool links, struct hub_listing *out,
                struct error *err);

// A JSON object of a file of this program's own: what is missing or damaged is an empty one. NULL,
// and *err: somebody else could write it (ERR_FAIL), ERR_MEMORY.
json_t *record_read(const char *path, struct error *err);
bool record_write(const char *path, const json_t *root, struct error *err);
// Hashes a whole file. Errors: ERR_FAIL, ERR_INTERRUPTED.
bool cache_hash(const struct hub_options *o, const char *path, char out[SHA256_HEX],
                struct error *err);

// Notes the use of a file: its access time, set by hand because most disks are mounted relatime.
void cache_touch(const char *path);
void cache_set_use(const char *path, int64_t seconds); // since 1970

#endif
