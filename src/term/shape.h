// What answers are held to: a grammar, or a JSON Schema.
#ifndef HOKKU_TERM_SHAPE_H
#define HOKKU_TERM_SHAPE_H

#include "cli/options.h"
#include "engine/constrain.h"
#include "engine/session.h"

// --json-schema, --grammar or --grammar-file; *g stays NULL without. Errors: ERR_USAGE (a file that
// cannot be read, a text that is refused), ERR_MEMORY, ERR_INTERRUPTED (cancel).
bool shape_read(const struct options *o, const struct cancel *cancel, struct grammar **g,
                struct error *err);

// What the user gave for it; NULL: nothing.
static inline const char *shape_name(const struct options *o)
{
    return o->json_schema ? o->json_schema : o->grammar ? o->grammar : o->grammar_file;
}

struct shape {
    struct constraint *constraint; // owned; NULL: answers are free
    char *name;                    // owned: as the user gave it
};

// Takes g, also when it fails; NULL: answers are free. Errors: ERR_MEMORY; the shape is as before.
bool shape_set(struct shape *s, struct grammar *g, const char *name, const struct model *m,
               bool close, struct error *err);
void shape_release(struct shape *s); // zeroed is fine
// Whether the answer that has just ended obeys, or is free. Errors: ERR_FAIL; finish: how it ended.
bool shape_obeyed(const struct shape *s, enum finish finish, struct error *err);

#endif
