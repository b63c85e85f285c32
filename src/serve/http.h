// The connections: libmicrohttpd speaks HTTP on threads of its own; here a request finds its route,
// is checked, and is answered, or waits at the desk for the engine's thread. Nothing of a request
// names a file.
#ifndef HOKKU_SERVE_HTTP_H
#define HOKKU_SERVE_HTTP_H

#include "serve/desk.h"
#include "serve/api_keys.h"
#include "serve/listen.h"
#include "text/tokenizer.h"

struct http_params {
    struct desk *desk;
    const struct ask_defaults *defaults;
    const struct tokenizer *tok;
    const struct api_keys *keys; // none: everybody may come
    const char *own_host;        // "127.0.0.2": of its address; "": it has none
    bool check_host; // only requests for this machine's own names: no key, and an address
    uint32_t n_ctx;
    double timeout; // seconds within which a request must have come, or some of an answer be read
};

struct http;

// Takes l->fd. p is borrowed, but its own memory. Errors: ERR_FAIL, ERR_MEMORY.
struct http *http_start(const struct http_params *p, struct listening *l, struct error *err);
void http_close_door(struct http *h); // no new connections
void http_sweep(struct http *h);      // ends those that send or read too slowly
size_t http_n_open(struct http *h);   // requests under way
void http_stop(struct http *h);       // all jobs are ended; NULL is fine

#endif
