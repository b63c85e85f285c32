#include "hub/http.h"

#include <arpa/inet.h>
#include <ctype.h>
#define CURL_DISABLE_TYPECHECK // of calls by name
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/late.h"
#include "hub/listing.h"
#include "hub/wait.h"

enum {
    MAX_REDIRECTS = 10,
    MAX_ERROR_BODY = 1 << 20,
    STALL_S = 30,
    STALL_BYTES_PER_S = 100, // slower than this is silence
    SLOW_WINDOWS = 2,        // in so many times the stall ...
    SLOW_BYTES_PER_S = 1000, // ... slower than this is no download
    CONNECT_GRACE_S = 1,
    POLL_MS = 100,
};

// libcurl, see base/late.h.
#define CURL_FUNCTIONS(F)                                                                          \
    F(easy_cleanup)                                                                                \
    F(easy_getinfo) F(easy_init) F(easy_reset) F(easy_setopt) F(easy_strerror) F(free)             \
        F(global_cleanup) F(global_init) F(multi_add_handle) F(multi_cleanup) F(multi_info_read)   \
            F(multi_init) F(multi_perform) F(multi_poll) F(multi_remove_handle) F(slist_append)    \
                F(slist_free_all) F(url) F(url_cleanup) F(url_get) F(url_set)

static struct {
#define FUNCTION(name) __typeof__(&curl_##name) name;
    CURL_FUNCTIONS(FUNCTION)
#undef FUNCTION
} curl;

static bool open_curl(struct error *err)
{
#define FUNCTION(name) "curl_" #name,
    static const char *const names[] = {CURL_FUNCTIONS(FUNCTION)};
#undef FUNCTION
#define FUNCTION(name) &curl.name,
    void *const to[] = {CURL_FUNCTIONS(FUNCTION)};
#undef FUNCTION
    return curl.easy_init ||
           late_open("libcurl.so.4", "libcurl4", names, to, sizeof to / sizeof *to, err);
}

struct http {
    CURLM *multi;
    CURL *easy;
    const struct hub_options *o;
    struct buf origin; // scheme://host:port of the endpoint
    bool plain_allowed, answered_once;
    double stall_s;
};

// One exchange with one server.
struct hop {
    struct http *h;
    const struct http_request *q;
    struct http_response *r;
    struct error *err;
    struct buf location;
    bool begun, refused, plain; // refused: begin or body said no, *err is set
    uint64_t seen;              // bytes of headers and body, for the watch on silence
};

// scheme://host:port, lower case. Fails for anything but http(s), and for user:password@.
static bool origin_of(const char *url, struct buf *out, bool *plain, char *host, size_t host_cap)
{
    CURLU *u = curl.url();
    char *scheme = NULL, *name = NULL, *port = NULL;
    bool ok = u && curl.url_set(u, CURLUPART_URL, url, CURLU_DISALLOW_USER) == CURLUE_OK &&
              curl.url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
              curl.url_get(u, CURLUPART_HOST, &name, 0) == CURLUE_OK &&
              curl.url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
              (strcasecmp(scheme, "https") == 0 || strcasecmp(scheme, "http") == 0);
    if (ok) {
        size_t begin = out->len;
        buf_printf(out, "%s://%s:%s", scheme, name, port);
        for (size_t i = begin; i < out->len; i++)
            out->data[i] = (char)tolower((unsigned char)out->data[i]);
        *plain = strcasecmp(scheme, "http") == 0;
        if (host)
            format_text(host, host_cap, name, strlen(name));
        ok = !out->failed;
    }
    curl.free(scheme);
    curl.free(name);
    curl.free(port);
    curl.url_cleanup(u);
    return ok;
}

static const char *show_url(char out[FORMAT_TEXT], const char *url)
{
    struct buf b = {0};
    hub_url_public(url, &b);
    format_text(out, FORMAT_TEXT, buf_str(&b), b.len);
    buf_release(&b);
    return out;
}

// This machine itself: what is sent there crosses no network.
static bool is_loopback(const char *host)
{
    struct in_addr a;
    return strcasecmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
           (inet_pton(AF_INET, host, &a) == 1 && ntohl(a.s_addr) >> 24 == 127);
}

struct http *http_create(const struct hub_options *o, const char *endpoint, struct error *err)
{
    if (!open_curl(err))
        return NULL;
    struct http *h = calloc(1, sizeof *h);
    if (!h) {
        error_oom(err, "an HTTP client", sizeof *h);
        return NULL;
    }
    h->o = o;
    h->stall_s = o->stall_s ? o->stall_s : STALL_S;
    bool ok = true;
    if (!origin_of(endpoint, &h->origin, &h->plain_allowed, NULL, 0)) {
        char shown[FORMAT_TEXT];
        ok = error_set(err, ERR_USAGE, "HF_ENDPOINT: found \"%s\", expected https://HOST",
                       show_url(shown, endpoint));
    }
    for (const char *p = o->token; ok && p && *p; p++)
        if (*p <= ' ' || *p > '~')
            ok = error_set(err, ERR_USAGE,
                           "the Hub's token has a character that tokens do not have (byte 0x%02X): "
                           "check HF_TOKEN or the token file",
                           (unsigned char)*p);
    if (ok && curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        ok = error_set(err, ERR_FAIL, "libcurl cannot be started");
    else if (ok) {
        h->multi = curl.multi_init();
        h->easy = curl.easy_init();
        if (!h->multi || !h->easy)
            ok = error_oom(err, "an HTTP client", sizeof *h);
    }
    if (!ok) {
        http_free(h);
        return NULL;
    }
    return h;
}

void http_free(struct http *h)
{
    if (!h)
        return;
    bool started = h->multi || h->easy;
    curl.easy_cleanup(h->easy);
    curl.multi_cleanup(h->multi);
    if (started)
        curl.global_cleanup();
    buf_release(&h->origin);
    free(h);
}

void http_response_release(struct http_response *r)
{
    buf_release(&r->link);
    buf_release(&r->message);
    *r = (struct http_response){0};
}

bool http_is_endpoint(const struct http *h, const char *url)
{
    struct buf origin = {0};
    bool plain;
    bool same = origin_of(url, &origin, &plain, NULL, 0) &&
                strcmp(buf_str(&origin), buf_str(&h->origin)) == 0;
    buf_release(&origin);
    return same;
}

bool http_is_transient(long status)
{
    return status == 408 || status == 429 || (status >= 500 && status != 501 && status != 505);
}

// ----------------------------------------------------------------------------------------- headers

// A decimal number that `end_char` follows.
static bool parse_u64(const char *s, char end_char, uint64_t *out, const char **end)
{
    uint64_t v = 0;
    const char *p = s;
    for (; isdigit((unsigned char)*p); p++) {
        if (v > (UINT64_MAX - 9) / 10)
            return false;
        v = v * 10 + (uint64_t)(*p - '0');
    }
    if (p == s || *p != end_char)
        return false;
    *out = v;
    *end = p;
    return true;
}

// "bytes 100-199/200" or "bytes 100-199/*"
static void parse_content_range(struct http_response *r, const char *v)
{
    uint64_t first, last, total;
    const char *p;
    if (strncasecmp(v, "bytes ", 6) != 0 || !parse_u64(v + 6, '-', &first, &p) ||
        !parse_u64(p + 1, '/', &last, &p) || last < first)
        return;
    r->has_range = true;
    r->range_start = first;
    r->has_range_total = parse_u64(p + 1, '\0', &total, &p);
    r->range_total = r->has_range_total ? total : 0;
}

static void new_header_block(struct http_response *r)
{
    r->has_length = r->has_range = r->has_range_total = false;
    r->etag[0] = '\0';
    r->retry_after_s = 0;
    buf_clear(&r->link);
    buf_clear(&r->message);
}

static void take_header(struct hop *hop, const char *name, const char *value)
{
    struct http_response *r = hop->r;
    const char *end;
    uint64_t n;
    if (!strcasecmp(name, "content-length")) {
        r->has_length = parse_u64(value, '\0', &r->length, &end);
    } else if (!strcasecmp(name, "content-range")) {
        parse_content_range(r, value);
    } else if (!strcasecmp(name, "etag")) {
        if (value[0] == '"' && strlen(value) < sizeof r->etag)
            strcpy(r->etag, value);
    } else if (!strcasecmp(name, "x-linked-etag")) {
        if (!*r->linked_sha256)
            hub_sha256_text(value, r->linked_sha256);
    } else if (!strcasecmp(name, "retry-after")) {
        if (parse_u64(value, '\0', &n, &end))
            r->retry_after_s = n > 3600 ? 3600 : n < 1 ? 1 : (unsigned)n;
    } else if (!strcasecmp(name, "link")) {
        buf_puts(&r->link, value);
    } else if (!strcasecmp(name, "x-error-message")) {
        buf_clear(&r->message);
        buf_puts(&r->message, value);
    } else if (!strcasecmp(name, "location")) {
        buf_clear(&hop->location);
        buf_puts(&hop->location, value);
    }
}

static size_t on_header(char *bytes, size_t size, size_t n_items, void *user)
{
    struct hop *hop = user;
    size_t n_bytes = size * n_items, n = n_bytes;
    char line[8192]; // longer than any header that is of interest
    hop->seen += n;
    if (n >= 5 && memcmp(bytes, "HTTP/", 5) == 0) {
        new_header_block(hop->r); // an interim answer may have come before
        buf_clear(&hop->location);
    } else if (n < sizeof line) {
        memcpy(line, bytes, n);
        line[n] = '\0';
        while (n && isspace((unsigned char)line[n - 1]))
            line[--n] = '\0';
        char *colon = strchr(line, ':');
        if (colon) {
            *colon++ = '\0';
            take_header(hop, line, colon + strspn(colon, " \t"));
        }
    }
    return n_bytes;
}

// -------------------------------------------------------------------------------------- one server

static bool begin(struct hop *hop)
{
    if (hop->begun)
        return true;
    hop->begun = true;
    if (hop->q->begin && !hop->q->begin(hop->q->user, hop->r, hop->err))
        hop->refused = true;
    return !hop->refused;
}

static size_t on_body(char *bytes, size_t size, size_t n_items, void *user)
{
    struct hop *hop = user;
    size_t n = size * n_items;
    hop->seen += n;
    curl.easy_getinfo(hop->h->easy, CURLINFO_RESPONSE_CODE, &hop->r->status);
    if (hop->r->status < 200 || hop->r->status > 299) // a page about the error: not wanted
        return hop->seen < MAX_ERROR_BODY ? n : 0;
    if (!begin(hop))
        return 0;
    if (hop->q->body && !hop->q->body(hop->q->user, bytes, n, hop->err)) {
        hop->refused = true;
        return 0;
    }
    return n;
}

// Runs the transfer set up in h->easy until it ends, the user interrupts, or the server is silent.
static enum http_result wait_for(struct http *h, struct hop *hop, CURLcode *code, struct error *err)
{
    int running = 1;
    double window = clock_now(), slow_window = window;
    uint64_t seen = 0, slow_seen = 0;
    if (curl.multi_add_handle(h->multi, h->easy) != CURLM_OK) {
        error_oom(err, "an HTTP request", 0);
        return HTTP_FAILED;
    }
    enum http_result result = HTTP_ANSWERED;
    while (running) {
        if (curl.multi_perform(h->multi, &running) != CURLM_OK) {
            error_set(err, ERR_FAIL, "libcurl: the transfer cannot go on");
            result = HTTP_FAILED;
            break;
        }
        if (hub_cancelled(h->o, err)) {
            result = HTTP_FAILED;
            break;
        }
        double now = clock_now();
        // libcurl's own limit for connecting is the same; it comes first, because it knows more.
        if (now - window >= h->stall_s + (hop->seen ? 0 : CONNECT_GRACE_S)) {
            if ((double)(hop->seen - seen) < STALL_BYTES_PER_S * (now - window)) {
                error_set(err, ERR_FAIL, "%s sent nothing for %.0f s", hop->r->host, now - window);
                result = HTTP_BROKEN;
                break;
            }
            window = now;
            seen = hop->seen;
        }
        double slow_s = now - slow_window;
        if (slow_s >= SLOW_WINDOWS * h->stall_s) {
            if ((double)(hop->seen - slow_seen) < SLOW_BYTES_PER_S * slow_s) {
                error_set(err, ERR_FAIL,
                          "%s sent %llu bytes in %.0f s, expected at least %d a second",
                          hop->r->host, (unsigned long long)(hop->seen - slow_seen), slow_s,
                          SLOW_BYTES_PER_S);
                result = HTTP_BROKEN;
                break;
            }
            slow_window = now;
            slow_seen = hop->seen;
        }
        if (running)
            curl.multi_poll(h->multi, NULL, 0, POLL_MS, NULL);
    }
    int left;
    *code = CURLE_OK;
    for (CURLMsg *m; (m = curl.multi_info_read(h->multi, &left));)
        if (m->msg == CURLMSG_DONE)
            *code = m->data.result;
    curl.multi_remove_handle(h->multi, h->easy);
    return result;
}

static enum http_result curl_failure(struct http *h, const struct hop *hop, CURLcode code,
                                     const char *detail, struct error *err)
{
    char shown[200];
    const char *text = *detail ? detail : curl.easy_strerror(code);
    format_text(shown, sizeof shown, text, strlen(text));
    switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
        error_set(err, ERR_FAIL,
                  "%s: no trustworthy TLS connection: %s (a company's own certificates: "
                  "SSL_CERT_FILE)",
                  hop->r->host, shown);
        return HTTP_FAILED;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
        error_set(err, ERR_FAIL, "%s cannot be reached: %s (--offline uses what is there)",
                  hop->r->host, shown);
        return h->answered_once ? HTTP_BROKEN : HTTP_FAILED; // no network: say so at once
    case CURLE_OUT_OF_MEMORY:
        error_oom(err, "an HTTP request", 0);
        return HTTP_FAILED;
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
        error_set(err, ERR_FAIL, "%s: %s", hop->r->host, shown);
        return HTTP_FAILED;
    default:
        error_set(err, ERR_FAIL, "%s: the connection broke: %s", hop->r->host, shown);
        return HTTP_BROKEN;
    }
}

static bool sends_token(const struct http *h, const char *url)
{
    return h->o->token && *h->o->token && http_is_endpoint(h, url);
}

static bool set_up(struct http *h, struct hop *hop, const char *url, char *detail,
                   struct curl_slist **headers)
{
    CURL *c = h->easy;
    const struct hub_options *o = h->o;
    struct buf line = {0};
    curl.easy_reset(c);
    bool ok = curl.easy_setopt(c, CURLOPT_URL, url) == CURLE_OK;
    // Both are the default; written down so that no default decides.
    ok = ok && curl.easy_setopt(c, CURLOPT_SSL_VERIFYPEER, 1L) == CURLE_OK &&
         curl.easy_setopt(c, CURLOPT_SSL_VERIFYHOST, 2L) == CURLE_OK &&
         curl.easy_setopt(c, CURLOPT_PROTOCOLS_STR, hop->plain ? "http" : "https") == CURLE_OK &&
         curl.easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK;
    if (o->ca_file)
        ok = ok && curl.easy_setopt(c, CURLOPT_CAINFO, o->ca_file) == CURLE_OK;
    curl.easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl.easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)h->stall_s);
    curl.easy_setopt(c, CURLOPT_TCP_KEEPALIVE, 1L);
    curl.easy_setopt(c, CURLOPT_BUFFERSIZE, 256L * 1024);
    curl.easy_setopt(c, CURLOPT_USERAGENT, "hokku");
    curl.easy_setopt(c, CURLOPT_ERRORBUFFER, detail);
    curl.easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl.easy_setopt(c, CURLOPT_HEADERDATA, hop);
    curl.easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl.easy_setopt(c, CURLOPT_WRITEDATA, hop);
    curl.easy_setopt(c, CURLOPT_NOBODY, hop->q->head ? 1L : 0L);
    if (hop->plain && is_loopback(hop->r->host)) // a proxy would make it cross one
        ok = ok && curl.easy_setopt(c, CURLOPT_PROXY, "") == CURLE_OK;
    if (sends_token(h, url)) {
        buf_printf(&line, "Authorization: Bearer %s", o->token);
        struct curl_slist *more = curl.slist_append(*headers, buf_str(&line));
        ok = ok && more && !line.failed;
        *headers = more ? more : *headers;
    }
    if (hop->q->from) {
        buf_clear(&line);
        buf_printf(&line, "%llu-", (unsigned long long)hop->q->from);
        ok = ok && !line.failed && curl.easy_setopt(c, CURLOPT_RANGE, line.data) == CURLE_OK;
        if (hop->q->if_range) {
            buf_clear(&line);
            buf_printf(&line, "If-Range: %s", hop->q->if_range);
            struct curl_slist *more = curl.slist_append(*headers, buf_str(&line));
            ok = ok && more && !line.failed;
            *headers = more ? more : *headers;
        }
    }
    ok = ok && curl.easy_setopt(c, CURLOPT_HTTPHEADER, *headers) == CURLE_OK;
    buf_release(&line);
    return ok;
}

static enum http_result one_hop(struct http *h, struct hop *hop, const char *url, struct error *err)
{
    char detail[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = NULL;
    CURLcode code = CURLE_OK;
    enum http_result result = HTTP_FAILED;
    hop->r->status = 0;
    new_header_block(hop->r);
    if (!set_up(h, hop, url, detail, &headers)) {
        error_set(err, ERR_FAIL, "libcurl does not accept the request to %s", hop->r->host);
    } else {
        result = wait_for(h, hop, &code, err);
        curl.easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &hop->r->status);
        if (hop->r->status)
            h->answered_once = true;
        bool ok_status = hop->r->status >= 200 && hop->r->status <= 299;
        if (result != HTTP_ANSWERED || hop->refused)
            result = hop->refused ? HTTP_FAILED : result;
        else if (code != CURLE_OK && (ok_status || !hop->r->status))
            result = curl_failure(h, hop, code, detail, err);
        else if (ok_status && !begin(hop)) // an empty body
            result = HTTP_FAILED;
    }
    curl.easy_reset(h->easy); // forgets the pointers into this frame
    curl.slist_free_all(headers);
    return result;
}

// ------------------------------------------------------------------------------------- all of them

// The address that `location` means, seen from `url`.
static bool resolve(const char *url, const char *location, struct buf *out)
{
    CURLU *u = curl.url();
    char *full = NULL;
    bool ok = u && curl.url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
              curl.url_set(u, CURLUPART_URL, location, 0) == CURLUE_OK &&
              curl.url_get(u, CURLUPART_URL, &full, 0) == CURLUE_OK;
    buf_clear(out);
    ok = ok && buf_puts(out, full);
    curl.free(full);
    curl.url_cleanup(u);
    return ok;
}

enum http_result http_get(struct http *h, const struct http_request *q, struct http_response *r,
                          struct error *err)
{
    struct buf url = {0}, next = {0};
    struct hop hop = {.h = h, .q = q, .r = r, .err = err};
    enum http_result result = HTTP_FAILED;
    bool was_plain = h->plain_allowed;
    http_response_release(r);
    buf_puts(&url, q->url);
    for (int n = 0;; n++) {
        struct buf origin = {0};
        char shown[FORMAT_TEXT];
        bool known = origin_of(buf_str(&url), &origin, &hop.plain, r->host, sizeof r->host);
        buf_release(&origin);
        show_url(shown, buf_str(&url));
        if (!known || url.failed) {
            error_set(err, ERR_FAIL, "%s\"%s\", which is no https:// address",
                      n ? "the server redirects to " : "found ", shown);
            break;
        }
        if (hop.plain && !was_plain) {
            error_set(err, ERR_FAIL, "%s\"%s\": expected https://, plain http is not used",
                      n ? "the server redirects to " : "found ", shown);
            break;
        }
        if (hop.plain && !h->o->allow_http && !is_loopback(r->host) && sends_token(h, url.data)) {
            error_set(err, ERR_USAGE,
                      "HF_ENDPOINT is http://%s: the token (HF_TOKEN) would cross the network in "
                      "clear: use https://, do without the token, or say --allow-http",
                      r->host);
            break;
        }
        was_plain = hop.plain;
        result = one_hop(h, &hop, url.data, err);
        if (result != HTTP_ANSWERED || r->status < 300 || r->status > 399 || !hop.location.len)
            break;
        result = HTTP_FAILED;
        if (n == MAX_REDIRECTS) {
            error_set(err, ERR_FAIL, "%s: more than %d redirects", r->host, MAX_REDIRECTS);
            break;
        }
        if (!resolve(url.data, hop.location.data, &next)) {
            error_set(err, ERR_FAIL, "%s redirects to what is no address", r->host);
            break;
        }
        struct buf old = url;
        url = next;
        next = old;
        buf_clear(&hop.location);
    }
    buf_release(&hop.location);
    buf_release(&url);
    buf_release(&next);
    return result;
}

bool http_status_error(const struct http_response *r, const char *what, bool with_token,
                       struct error *err)
{
    char said[160] = "";
    if (r->message.len) {
        said[0] = ':';
        said[1] = ' ';
        format_text(said + 2, sizeof said - 2, r->message.data, r->message.len);
    }
    const char *advice = "";
    if (r->status == 401 && with_token)
        advice = ": there is no such repository, or the token does not open it";
    else if (r->status == 401)
        advice = ": there is no such repository, or it needs a token (HF_TOKEN)";
    else if (r->status == 403)
        advice = ": not allowed; a gated model's terms are accepted on its page, then HF_TOKEN is "
                 "needed";
    else if (r->status == 404 || r->status == 410)
        advice = ": there is no such repository or file";
    else if (r->status == 429)
        advice = ": too many requests; try again later";
    else if (r->status >= 500)
        advice = ": the server has a problem; try again later";
    return error_set(err, ERR_FAIL, "%s: %s answers %ld%s%s", what, r->host, r->status, advice,
                     said);
}
