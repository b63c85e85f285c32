#include "serve/http.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "serve/door.h"
#include "serve/mhd.h"
#include "serve/routes.h"

enum {
    THREADS = 4,
    STACK_BYTES = 1 << 20,
    MOST_CONNECTIONS = 4096,
    OTHER_FILES = 64,            // that the program has open
    CONNECTION_BYTES = 32 << 10, // for a request's head, and a piece of its answer
    PIECE_BYTES = 16 << 10,      // of a stream
    READ_BYTES = 1 << 20,        // of an answer, for which its client has the time of a request
};

// A connection, from when it is there.
struct conn {
    int fd;
    double until; // closed then; 0: a request has come whole, whose answer has not
    struct conn *prev, *next;
};

struct http {
    struct http_params p;
    struct MHD_Daemon *daemon;
    struct door *door;
    pthread_mutex_t lock; // of all below
    struct conn *conns;
    size_t n_conns, n_open;
};

struct frame { // headers that say where a request ends, and whom it is for
    int hosts, lengths, encodings;
    bool chunked;
    bool unclear;      // a line of them could be another header to someone else
    unsigned singles;  // bits of those of `singles` that have come
    const char *again; // one of them that came twice; NULL: none
};

// A request, from its head to the end of its answer.
struct call {
    struct http *h;
    const struct route *route;
    struct conn *conn;
    struct refusal refusal;
    bool refused, answered;
    bool closes; // its connection ends with it
    struct buf body;
    uint64_t n_bytes; // taken at the desk
    struct job *job;
};

// ---- answers

// A client has n bytes to send or read, and so long for them. The lock is held.
static void wait_for_client(const struct http *h, struct conn *c, size_t n)
{
    c->until = clock_now() + h->p.timeout * (1 + (double)n / READ_BYTES);
}

// The answer is there, but for n bytes: else whoever reads it a little at a time would keep them.
static void is_to_read(struct call *call, size_t n)
{
    pthread_mutex_lock(&call->h->lock);
    if (call->conn->until == 0)
        wait_for_client(call->h, call->conn, n);
    pthread_mutex_unlock(&call->h->lock);
}

// HEAD is answered there, too.
static bool is_got(const struct call *call)
{
    return strcmp(call->route->method, "GET") == 0;
}

// Takes r. NULL: there was no memory for it.
static enum MHD_Result queue(struct MHD_Connection *c, struct call *call, unsigned status,
                             struct MHD_Response *r, const char *type)
{
    if (!r)
        return MHD_NO;
    mhd.add_response_header(r, "Content-Type", type);
    mhd.add_response_header(r, "Cache-Control", "no-store");
    mhd.add_response_header(r, "X-Content-Type-Options", "nosniff");
    if (status == 401)
        mhd.add_response_header(r, "WWW-Authenticate", "Bearer");
    if (status == 405 && call->route)
        mhd.add_response_header(r, "Allow", is_got(call) ? "GET, HEAD" : call->route->method);
    if (status == 429 || status == 503)
        mhd.add_response_header(r, "Retry-After", "1");
    if (call->closes)
        mhd.add_response_header(r, "Connection", "close");
    call->answered = true;
    const enum MHD_Result ok = mhd.queue_response(c, status, r);
    mhd.destroy_response(r);
    return ok;
}

static enum MHD_Result respond(struct MHD_Connection *c, struct call *call, unsigned status,
                               struct buf *body, const char *type)
{
    struct MHD_Response *r =
        mhd.create_response_from_buffer(body->len, body->data, MHD_RESPMEM_MUST_FREE);
    is_to_read(call, body->len);
    if (r)
        *body = (struct buf){0};
    buf_release(body);
    return queue(c, call, status, r, type);
}

static enum MHD_Result respond_refused(struct MHD_Connection *c, struct call *call)
{
    struct buf body = {0};
    pthread_mutex_lock(&call->h->p.desk->lock);
    call->h->p.desk->metrics.n_refused++;
    pthread_mutex_unlock(&call->h->p.desk->lock);
    if (!refusal_json(&call->refusal, false, &body)) {
        buf_release(&body);
        return MHD_NO;
    }
    return respond(c, call, call->refusal.status, &body, "application/json");
}

static ssize_t read_stream(void *cls, uint64_t pos, char *to, size_t most)
{
    struct call *call = cls;
    size_t n_left;
    (void)pos;
    const ssize_t n = job_read(call->job, to, most, &n_left);
    if (n_left > 0)
        is_to_read(call, n_left);
    return n >= 0    ? n
           : n == -1 ? MHD_CONTENT_READER_END_OF_STREAM
                     : MHD_CONTENT_READER_END_WITH_ERROR;
}

static enum MHD_Result respond_stream(struct MHD_Connection *c, struct call *call)
{
    struct MHD_Response *r =
        mhd.create_response_from_callback(MHD_SIZE_UNKNOWN, PIECE_BYTES, read_stream, call, NULL);
    return queue(c, call, 200, r, "text/event-stream");
}

// What the engine's thread made of it.
static enum MHD_Result respond_job(struct MHD_Connection *c, struct call *call)
{
    struct job *j = call->job;
    switch (job_came(j)) {
    case JOB_NOTHING:
        return MHD_YES;
    case JOB_EVENTS:
        return respond_stream(c, call);
    case JOB_ANSWER:
        break;
    }
    if (j->status == 0) // its client has gone
        return MHD_NO;
    return respond(c, call, j->status, &j->out, "application/json");
}

// ---- requests

static bool is_loopback(const char *host, size_t n)
{
    static const char *const own[] = {"localhost", "127.0.0.1", "[::1]"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (n == strlen(own[i]) && strncasecmp(host, own[i], n) == 0)
            return true;
    return false;
}

// Whom a request is for, and what of it.
struct target {
    const char *path, *host;
    size_t n_host;
};

// "http://localhost:8080/health", as to a proxy, is /health of the host in it, whatever the header
// Host says (RFC 9112, 3.2.2).
static struct target target_of(struct MHD_Connection *c, const char *url)
{
    static const char scheme[] = "http://";
    const char *host = mhd.lookup_connection_value(c, MHD_HEADER_KIND, "Host");
    if (strncasecmp(url, scheme, sizeof scheme - 1) != 0)
        return (struct target){url, host, host ? strlen(host) : 0};
    host = url + sizeof scheme - 1;
    const size_t n = strcspn(host, "/");
    return (struct target){host[n] ? host + n : "/", host, n};
}

// Of a host without its port.
static size_t name_length(const char *host, size_t n)
{
    size_t at = n;
    while (at > 0 && host[at - 1] >= '0' && host[at - 1] <= '9')
        at--;
    return at > 0 && host[at - 1] == ':' ? at - 1 : n;
}

// A page of some other site, open in this machine's browser, must not reach a server that asks for
// no key: neither as itself (Origin), nor by a name that it has given this address (Host).
static bool check_site(const struct http *h, struct MHD_Connection *c, const struct target *to,
                       struct refusal *r)
{
    const char *origin = mhd.lookup_connection_value(c, MHD_HEADER_KIND, "Origin");
    const char *host = to->host;
    if (origin)
        return refuse(r, 403, NULL, "origin_refused",
                      "found the header Origin: %.100s, expected none: no web page is served",
                      origin);
    if (!h->p.check_host || !host)
        return true;
    const size_t n = name_length(host, to->n_host);
    const char *mine = h->p.own_host;
    if (is_loopback(host, n) || (n == strlen(mine) && strncasecmp(host, mine, n) == 0))
        return true;
    if (is_loopback(mine, strlen(mine)))
        mine = "";
    return refuse(r, 403, NULL, "host_refused",
                  "found the host \"%.*s\", expected localhost, 127.0.0.1 or [::1]%s%s",
                  (int)(to->n_host < 100 ? to->n_host : 100), host, *mine ? ", or " : "", mine);
}

// "Content-Length : 5" is no Content-Length here, and one to a proxy that is not strict; so is what
// follows a carriage return, with which a line ends for some, and a line that begins with a blank:
// libmicrohttpd 0.9.75 puts its text behind the name of the header before, which is then not where
// it came, in front of its value. (RFC 9112, 2.2, 5.1 and 5.2; a NUL and what is behind it
// libmicrohttpd drops.)
static bool is_clear(const char *name, const char *value)
{
    static const char token[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "!#$%&'*+-.^_`|~";
    const size_t n = strspn(name, token);
    if (value && (uintptr_t)value < (uintptr_t)name)
        return false;
    for (; value && *value; value++)
        if ((unsigned char)*value < ' ' && *value != '\t')
            return false;
    return n > 0 && !name[n];
}

// Of these whoever is asked for one takes the first, or the last.
static const char *const singles[] = {"Authorization", "Content-Encoding", "Expect"};

static enum MHD_Result count_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                    const char *value)
{
    struct frame *f = cls;
    (void)kind;
    f->unclear |= !is_clear(name, value);
    f->hosts += strcasecmp(name, "Host") == 0;
    f->lengths += strcasecmp(name, "Content-Length") == 0;
    for (size_t i = 0; i < sizeof singles / sizeof *singles; i++)
        if (strcasecmp(name, singles[i]) == 0) {
            f->again = f->singles >> i & 1 ? singles[i] : f->again;
            f->singles |= 1u << i;
        }
    if (strcasecmp(name, "Transfer-Encoding") == 0) {
        f->encodings++;
        f->chunked = value && strcasecmp(value, "chunked") == 0;
    }
    return MHD_YES;
}

// Where a request ends, and whom it is for, must be the same for whatever stands before the server:
// else one of its clients could put words into the request of another.
static bool check_frame(struct MHD_Connection *c, const char *version, struct refusal *r)
{
    struct frame f = {0};
    mhd.get_connection_values(c, MHD_HEADER_KIND, count_header, &f);
    if (f.unclear)
        return refuse(r, 400, NULL, "ambiguous_request",
                      "found a header whose name is none, or a control character in its value, "
                      "expected \"Name: value\" on one line, without a blank before the colon");
    if (f.again)
        return refuse(r, 400, NULL, "ambiguous_request",
                      "found more than one header %s, expected one at most", f.again);
    if (f.hosts > 1 || (f.hosts == 0 && strcmp(version, MHD_HTTP_VERSION_1_1) == 0))
        return refuse(r, 400, NULL, "ambiguous_request", "found %d headers Host, expected one",
                      f.hosts);
    if (f.lengths + f.encodings > 1)
        return refuse(r, 400, NULL, "ambiguous_request",
                      "found %d headers Content-Length and %d Transfer-Encoding, expected one of "
                      "them",
                      f.lengths, f.encodings);
    if (f.encodings > 0 && strcmp(version, MHD_HTTP_VERSION_1_0) == 0)
        return refuse(r, 400, NULL, "ambiguous_request",
                      "found a Transfer-Encoding in HTTP/1.0, which has none, expected a "
                      "Content-Length");
    return f.encodings == 0 || f.chunked ||
           refuse(r, 400, NULL, "ambiguous_request",
                  "found another Transfer-Encoding, expected chunked");
}

static bool check_head(struct call *call, struct MHD_Connection *c, const char *target,
                       const char *method)
{
    const struct target to = target_of(c, target);
    const char *url = to.path;
    const struct http *h = call->h;
    struct refusal *r = &call->refusal;
    const char *length = mhd.lookup_connection_value(c, MHD_HEADER_KIND, "Content-Length");
    const char *key = mhd.lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");
    call->route = route_find(url, h->p.defaults->model);
    if (!check_site(h, c, &to, r))
        return false;
    if ((!call->route || !call->route->open) && h->p.keys->n > 0 &&
        !api_keys_accept(h->p.keys, key))
        return refuse(r, 401, NULL, "invalid_api_key",
                      "%s, expected a header Authorization: Bearer "
                      "with a key of this server's",
                      key ? "found a key that it does not know" : "found no key");
    if (!call->route && strncmp(url, ROUTES_ONE_MODEL, strlen(ROUTES_ONE_MODEL)) == 0)
        return refuse(r, 404, "model", "model_not_found",
                      "found the model \"%.80s\", expected \"%.200s\", the one that is served",
                      url + strlen(ROUTES_ONE_MODEL), h->p.defaults->model);
    if (!call->route)
        return refuse(r, 404, NULL, "unknown_path", "%.100s is nothing here: expected %s", url,
                      routes_known());
    const bool head = strcmp(method, "HEAD") == 0 && is_got(call);
    if (!head && strcmp(method, call->route->method) != 0)
        return refuse(r, 405, NULL, NULL, "found %.20s %.100s, expected %s", method, url,
                      call->route->method);
    const char *coding = mhd.lookup_connection_value(c, MHD_HEADER_KIND, "Content-Encoding");
    const char *expect = mhd.lookup_connection_value(c, MHD_HEADER_KIND, "Expect");
    if (coding && strcasecmp(coding, "identity") != 0)
        return refuse(
            r, 415, NULL, "unsupported",
            "found the header Content-Encoding: %.100s, expected none: bodies are read as "
            "they come",
            coding);
    if (expect && strcasecmp(expect, "100-continue") != 0)
        return refuse(r, 417, NULL, "unsupported",
                      "found the header Expect: %.100s, expected 100-continue or none", expect);
    if (length && strtoull(length, NULL, 10) > ASK_MAX_BODY)
        return refuse(r, 413, NULL, "body_too_large",
                      "the body has %.20s bytes, expected at most %d", length, ASK_MAX_BODY);
    return true;
}

static bool take_bytes(struct call *call, size_t n)
{
    if (!desk_take_bytes(call->h->p.desk, n))
        return refuse(&call->refusal, 503, NULL, "out_of_memory",
                      "the requests on their way take too much memory: try again later");
    call->n_bytes += n;
    return true;
}

static bool add_body(struct call *call, const char *data, size_t n)
{
    struct refusal *r = &call->refusal;
    if (call->body.len + n > ASK_MAX_BODY)
        return refuse(r, 413, NULL, "body_too_large", "the body has more than %d bytes",
                      ASK_MAX_BODY);
    return take_bytes(call, n) &&
           (buf_append(&call->body, data, n) ||
            refuse(r, 503, NULL, "out_of_memory", "no memory for the request's body"));
}

// What is there once the JSON is read takes more than its bytes.
static bool parse(struct call *call, struct ask *a)
{
    const struct http *h = call->h;
    struct refusal *r = &call->refusal;
    size_t cost;
    const size_t mark = utf8_mark(buf_str(&call->body), call->body.len);
    const char *text = buf_str(&call->body) + mark;
    if (!ask_cost(text, call->body.len - mark, &cost, r) || !take_bytes(call, cost))
        return false;
    const bool ok = ask_parse(a, call->route->kind, h->p.defaults, text, call->body.len - mark, r);
    desk_give_bytes(h->p.desk, call->body.len);
    call->n_bytes -= call->body.len;
    buf_release(&call->body);
    return ok;
}

// The request has come whole.
static enum MHD_Result answer(struct MHD_Connection *c, struct call *call)
{
    const struct http *h = call->h;
    struct ask a = {0};
    struct buf body = {0};
    const struct route_facts facts = {h->p.defaults->model, h->p.tok, h->p.n_ctx, h->p.desk};
    call->refused = call->refused || (call->route->with_body && !parse(call, &a));
    if (!call->refused && call->route->most_text > 0 && a.n_prompt > call->route->most_text)
        call->refused = !refuse(&call->refusal, 413, "content", "text_too_large",
                                "\"content\": found %zu bytes, expected at most %zu: split it",
                                a.n_prompt, call->route->most_text);
    if (!call->refused && call->route->reply &&
        !call->route->reply(&facts, &a, &body, &call->refusal))
        call->refused = true;
    if (!call->refused && !call->route->reply) {
        call->job = job_create(h->p.desk, &a, call->n_bytes, c, call->conn->fd);
        call->n_bytes = call->job ? 0 : call->n_bytes;
        call->refused = call->job ? !desk_offer(h->p.desk, call->job, &call->refusal)
                                  : !refuse(&call->refusal, 503, NULL, NULL, "no memory");
        if (call->job && !call->refused)
            return MHD_YES;
    }
    ask_release(&a);
    if (!call->refused)
        return respond(c, call, 200, &body, call->route->type);
    buf_release(&body);
    return respond_refused(c, call);
}

static struct call *call_begin(struct http *h, struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *i =
        mhd.get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct call *call = calloc(1, sizeof *call);
    if (!call || !i || !i->socket_context) {
        free(call);
        return NULL;
    }
    call->h = h;
    call->conn = i->socket_context;
    pthread_mutex_lock(&h->lock);
    h->n_open++;
    pthread_mutex_unlock(&h->lock);
    return call;
}

// Nothing here has parameters. Where libmicrohttpd 0.9.75 reads so many (some 500) that a
// connection's memory has no room for them it forgets that it was to answer 431, and waits. Thus it
// reads none: uri stands in what it has received, of which it writes over itself what is behind the
// path. (NULL: what on_request then finds as the state of a new request.)
static void *drop_parameters(void *cls, const char *uri, struct MHD_Connection *c)
{
    char *parameters = (char *)(uintptr_t)(uri ? strchr(uri, '?') : NULL);
    (void)cls, (void)c;
    if (parameters && parameters[1])
        parameters[1] = '\0';
    return NULL;
}

// A path with a NUL would be the text before it: it stays as it came, and is none that is here.
static size_t unescape(void *cls, struct MHD_Connection *c, char *text)
{
    (void)cls, (void)c;
    return strstr(text, "%00") ? strlen(text) : mhd.http_unescape(text);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *n_data, void **state)
{
    struct call *call = *state;
    if (!call) {
        if (!(call = call_begin(cls, c)))
            return MHD_NO;
        *state = call;
        if (!check_frame(c, version, &call->refusal)) {
            call->refused = call->closes = true;
            return respond_refused(c, call);
        }
        call->refused = !check_head(call, c, url, method);
        // Others are told once their body has come: whoever is not read may not read either.
        return call->refusal.status == 413 ? respond_refused(c, call) : MHD_YES;
    }
    if (call->answered)
        return MHD_YES;
    if (*n_data > 0) {
        const size_t n = *n_data;
        *n_data = 0;
        if (!call->refused)
            call->refused = !add_body(call, data, n); // else it is read, and told at its end
        return MHD_YES;
    }
    if (call->job)
        return respond_job(c, call);
    pthread_mutex_lock(&call->h->lock);
    call->conn->until = 0;
    pthread_mutex_unlock(&call->h->lock);
    return answer(c, call);
}

static void on_completed(void *cls, struct MHD_Connection *c, void **state,
                         enum MHD_RequestTerminationCode why)
{
    struct http *h = cls;
    struct call *call = *state;
    (void)c, (void)why;
    if (!call)
        return;
    pthread_mutex_lock(&h->lock);
    wait_for_client(h, call->conn, 0);
    h->n_open--;
    pthread_mutex_unlock(&h->lock);
    if (call->job)
        job_leave(call->job);
    desk_give_bytes(h->p.desk, call->n_bytes);
    buf_release(&call->body);
    free(call);
    *state = NULL;
}

// ---- connections

static void on_connection(void *cls, struct MHD_Connection *c, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct http *h = cls;
    struct conn *conn = *context;
    const bool begins = what == MHD_CONNECTION_NOTIFY_STARTED;
    if (begins) {
        const union MHD_ConnectionInfo *i =
            mhd.get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        conn = i ? calloc(1, sizeof *conn) : NULL; // NULL: its requests are not taken
        if (conn)
            *conn = (struct conn){.fd = i->connect_fd};
    }
    *context = begins ? conn : NULL;
    pthread_mutex_lock(&h->lock);
    h->n_conns += begins ? 1 : -(size_t)1;
    if (conn && begins) {
        wait_for_client(h, conn, 0);
        conn->next = h->conns;
        if (h->conns)
            h->conns->prev = conn;
        h->conns = conn;
    } else if (conn) {
        if (conn->prev)
            conn->prev->next = conn->next;
        else
            h->conns = conn->next;
        if (conn->next)
            conn->next->prev = conn->prev;
    }
    pthread_mutex_unlock(&h->lock);
    if (!begins)
        free(conn);
}

void http_sweep(struct http *h)
{
    const double now = clock_now();
    pthread_mutex_lock(&h->lock);
    for (struct conn *c = h->conns; c; c = c->next)
        if (c->until > 0 && now > c->until)
            shutdown(c->fd, SHUT_RDWR); // its thread closes it
    pthread_mutex_unlock(&h->lock);
}

size_t http_n_open(struct http *h)
{
    pthread_mutex_lock(&h->lock);
    const size_t n = h->n_open;
    pthread_mutex_unlock(&h->lock);
    return n;
}

static size_t n_conns(void *user)
{
    struct http *h = user;
    pthread_mutex_lock(&h->lock);
    const size_t n = h->n_conns;
    pthread_mutex_unlock(&h->lock);
    return n;
}

static void enter(void *user, int fd, const struct sockaddr *from, socklen_t n)
{
    const struct http *h = user;
    mhd.add_connection(h->daemon, fd, from, n); // closes fd when it fails
}

static unsigned most_connections(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return MOST_CONNECTIONS / 8;
    const rlim_t wanted = MOST_CONNECTIONS + OTHER_FILES;
    if (files.rlim_cur < wanted) {
        files.rlim_cur = files.rlim_max < wanted ? files.rlim_max : wanted;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    return files.rlim_cur >= wanted                         ? MOST_CONNECTIONS
           : files.rlim_cur > OTHER_FILES + (rlim_t)THREADS ? (unsigned)files.rlim_cur - OTHER_FILES
                                                            : THREADS;
}

struct http *http_start(const struct http_params *p, struct listening *l, struct error *err)
{
    struct http *h = calloc(1, sizeof *h);
    if (!h) {
        error_oom(err, "the server", sizeof *h);
        return NULL;
    }
    h->p = *p;
    pthread_mutex_init(&h->lock, NULL);
    // (The door keeps the limit. One of libmicrohttpd's own would be met by those who come at once,
    // which a thread of it has not counted yet, and there 0.9.75 keeps a lock for ever.)
    const struct door_params door = {n_conns, most_connections(), enter, h};
    // libmicrohttpd 1.0 joins the lines of a header before it can be seen that there were two: told
    // to be strict it refuses them. (0.9.75 then writes the head of one more answer twice.)
    const int strict = mhd.get_version()[0] != '0';
    h->daemon = mhd.start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET, 0,
        NULL, NULL, on_request, h, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)THREADS,
        MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)INT_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)p->timeout, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
        MHD_OPTION_STRICT_FOR_CLIENT, strict, MHD_OPTION_UNESCAPE_CALLBACK, unescape, h,
        MHD_OPTION_URI_LOG_CALLBACK, drop_parameters, h, MHD_OPTION_END);
    if (h->daemon && (h->door = door_open(l->fd, &door, err))) {
        l->fd = -1;
        return h;
    }
    if (!h->daemon)
        error_set(err, ERR_FAIL,
                  "the server on %s cannot be started: its %d threads, each with its event queue, "
                  "take more than the limits leave: raise them (ulimit -n, -u, -v)",
                  buf_str(&l->name), THREADS);
    http_stop(h);
    return NULL;
}

void http_close_door(struct http *h)
{
    door_close(h->door);
    h->door = NULL;
}

void http_stop(struct http *h)
{
    if (!h)
        return;
    http_close_door(h);
    if (h->daemon)
        mhd.stop_daemon(h->daemon);
    pthread_mutex_destroy(&h->lock);
    free(h);
}
