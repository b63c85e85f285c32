// GET over libcurl as a suspicious client does it: redirects are followed here, one by one, so that
// the token goes to the endpoint alone; TLS is always verified; a silent server is given up on.
#ifndef HOKKU_HUB_HTTP_H
#define HOKKU_HUB_HTTP_H

#include "base/sha256.h"
#include "hub/hub.h"

struct http; // one connection cache; the token and the endpoint it belongs to

// endpoint: the only origin that gets the token, and if it is http:// the reason to allow that.
struct http *http_create(const struct hub_options *o, const char *endpoint, struct error *err);
void http_free(struct http *h);

struct http_response {
    long status; // of the last hop
    uint64_t length, range_start, range_total;
    bool has_length, has_range, has_range_total;
    char etag[128];                 // with its quotes; "" = none, or a weak one
    char linked_sha256[SHA256_HEX]; // X-Linked-Etag of the first hop that has one
    unsigned retry_after_s;         // 0 = not said
    struct buf link;                // Link
    struct buf message;             // what the server says about an error
    char host[256];                 // that answered
};

void http_response_release(struct http_response *r);

struct http_request {
    const char *url;
    uint64_t from;        // > 0: ask for the bytes from here on ...
    const char *if_range; // ... if the file is still this one; NULL: ask anyway
    bool head;
    // Called with a 2xx answer before its body (also an empty one), and with the body.
    bool (*begin)(void *user, const struct http_response *r, struct error *err);
    bool (*body)(void *user, const void *bytes, size_t n, struct error *err);
    void *user;
};

enum http_result {
    HTTP_ANSWERED, // r->status says what; the body of a 2xx was complete
    HTTP_BROKEN,   // *err says why; asking again may help
    HTTP_FAILED,   // *err says why; asking again does not help
};

enum http_result http_get(struct http *h, const struct http_request *q, struct http_response *r,
                          struct error *err);

// Whether a status may go away by itself: 408, 429, 5xx.
bool http_is_transient(long status);

// Sets *err to a line about an answer that is not 2xx. what: "USER/REPO" or the address.
bool http_status_error(const struct http_response *r, const char *what, bool with_token,
                       struct error *err);

// Whether url has the endpoint's scheme, host and port.
bool http_is_endpoint(const struct http *h, const char *url);

#endif
