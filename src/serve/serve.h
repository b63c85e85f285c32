// hokku serve: the conversations behind a socket, for many at once.
#ifndef HOKKU_SERVE_SERVE_H
#define HOKKU_SERVE_SERVE_H

#include "cli/program.h"

// Serves until it is interrupted. Errors: those of the model, the engine and the address;
// ERR_USAGE: an address that others reach without a key file.
bool serve_run(const struct program *p, struct error *err);

#endif
