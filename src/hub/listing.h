// What a repository holds and which file of it is meant: everything that reads the Hub's JSON and
// names, without any network.
#ifndef HOKKU_HUB_LISTING_H
#define HOKKU_HUB_LISTING_H

#include "base/buf.h"
#include "base/error.h"
#include "base/format.h"
#include "base/sha256.h"

enum {
    HUB_MAX_FILES = 10000, // GGUF files of one repository
    HUB_MAX_PARTS = 1000,  // of one split model
    HUB_MAX_PATH = 512,
    HUB_TAG = 24,
    HUB_NAME = 97,
};

struct hub_file {
    char *path; // owned; relative to the repository, checked by hub_path_ok
    uint64_t size;
    char sha256[SHA256_HEX]; // lower case; "" = unknown
};

struct hub_listing {
    struct hub_file *files;
    size_t n, cap;
    char left_out[FORMAT_TEXT]; // a GGUF file with a name that is not taken, to be told; "" = none
};

bool hub_is_gguf(const char *path); // its name ends in .gguf, in whatever case

void hub_listing_release(struct hub_listing *l);
bool hub_listing_add(struct hub_listing *l, const char *path, uint64_t size, const char *sha256,
                     struct error *err);
const struct hub_file *hub_listing_find(const struct hub_listing *l, const char *path);

// Adds the GGUF files of one page of GET /api/models/USER/REPO/tree/REV?recursive=true. Errors:
// ERR_FAIL for anything but such a page, and for a name that would leave the cache.
bool hub_listing_parse(struct hub_listing *l, const char *json, size_t n, struct error *err);

// The architecture that an answer to GET /api/models/USER/REPO?expand[]=gguf tells; false: none.
bool hub_architecture(const char *json, size_t n, struct buf *out);

// The address of rel="next" in a Link header; false: there is none.
bool hub_link_next(const char *header, struct buf *url);

// Relative, no empty, hidden or ".." component, printable ASCII without '\', ends in .gguf.
bool hub_path_ok(const char *path);

// 64 lower-case hexadecimal digits of `text` (quotes around, W/ before and upper case are
// accepted).
bool hub_sha256_text(const char *text, char out[SHA256_HEX]);

// Appends the address without user, password, query and fragment, which may be secrets: what may be
// kept and shown of it.
bool hub_url_public(const char *url, struct buf *out);

struct hub_spec {
    char user[HUB_NAME], repo[HUB_NAME];
    char label[2 * HUB_NAME]; // USER/REPO
    char quant[HUB_MAX_PATH]; // lower case; "" = not given
};

// USER/REPO[:QUANT]; QUANT may also be a file's name. Errors: ERR_USAGE.
bool hub_spec_parse(const char *text, struct hub_spec *s, struct error *err);

// STEM-00002-of-00005.gguf: length of STEM, 2, 5. False, and nothing is written: a whole model.
bool hub_split_name(const char *path, size_t *stem, unsigned *no, unsigned *count);
// Errors: ERR_FAIL for a name like that whose numbers no part has, as 0 of 0 or 3 of 2.
bool hub_split_check(const char *path, struct error *err);
// The name of another part of the same model.
bool hub_split_part(const char *path, unsigned no, struct buf *out);

// The quantisation that a file's name tells, upper case: "Q4_K_M", "UD-Q2_K_XL"; "" = none.
void hub_tag(const char *path, char out[HUB_TAG]);

struct hub_choice {
    size_t first; // index of the only or first file
    unsigned n;   // parts
    char tag[HUB_TAG];
};

// The file that `quant` (lower case, "" = Q4_K_M or the nearest below 8 bits) means. Errors:
// ERR_FAIL when there is none, several, or a part is missing; the text lists the choices.
bool hub_choose(const struct hub_listing *l, const char *label, const char *quant,
                struct hub_choice *c, struct error *err);

#endif
