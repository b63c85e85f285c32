// The cache of Hugging Face's own programs, only read:
// DIR/models--USER--REPO/snapshots/REVISION/PATH, a link to ../../blobs/SHA256; refs/main holds the
// revision that was last asked for.
#ifndef HOKKU_HUB_HFCACHE_H
#define HOKKU_HUB_HFCACHE_H

#include "hub/hub.h"
#include "hub/listing.h"

// The model that `quant` means among what is in refs/main; exact: only if that is not a matter of
// taste. Used without the Hub's word only when it is the user's own or root's and has the SHA-256
// that its blob is named after. *found tells whether a path was appended; why one is refused is
// noted. Errors: ERR_INTERRUPTED, ERR_MEMORY.
bool hfcache_choose(const struct hub_options *o, const struct hub_spec *s, bool exact,
                    struct buf *path, bool *found, struct error *err);

// A revision that holds all parts of the choice with the sizes and checksums that the listing says.
// *found tells; errors: ERR_INTERRUPTED, ERR_MEMORY.
bool hfcache_find(const struct hub_options *o, const struct hub_spec *s,
                  const struct hub_listing *l, const struct hub_choice *c, struct buf *path,
                  bool *found, struct error *err);

#endif
