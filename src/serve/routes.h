// What there is to ask for, and the answers that need no engine.
#ifndef HOKKU_SERVE_ROUTES_H
#define HOKKU_SERVE_ROUTES_H

#include "serve/desk.h"
#include "text/tokenizer.h"

struct route_facts {
    const char *model;
    const struct tokenizer *tok;
    uint32_t n_ctx;
    struct desk *desk;
};

struct route {
    const char *method, *path;
    bool open;      // without a key
    bool with_body; // JSON of this kind
    enum ask_kind kind;
    // NULL: the engine's thread answers. Else appends the body; false: refused.
    bool (*reply)(const struct route_facts *f, const struct ask *a, struct buf *out,
                  struct refusal *r);
    const char *type; // of the body
    size_t most_text; // bytes of a text; 0: as many as a body has
};

// To be split as one piece, while all answers wait.
enum { ROUTES_MOST_TEXT = 1 << 20 };

#define ROUTES_ONE_MODEL "/v1/models/" // and its name

// model: the one that is served, which has a path of its own. NULL: there is none.
const struct route *route_find(const char *path, const char *model);
const char *routes_known(void); // "GET /health, ..."

#endif
