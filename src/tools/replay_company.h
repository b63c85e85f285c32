// An answer as one of several that run together, as those of --lines do.
#ifndef HOKKU_TOOLS_REPLAY_COMPANY_H
#define HOKKU_TOOLS_REPLAY_COMPANY_H

#include "engine/session.h"

enum { COMPANY_SEQS = 4 }; // an engine is best opened for so many (engine_params.n_seqs)

// generate() from a prompt, on the engine of s, whose own sequence becomes empty. Beside it others
// of other lengths are read and decoded, each of which another one follows when it ends. *met:
// whether there was any beside it: the context may have no room. Errors: as generate.
bool company_generate(struct session *s, const struct ids *prompt, const struct generate_params *p,
                      struct generated *g, bool *met, struct error *err);

#endif
