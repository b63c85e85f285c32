// The process that keeps a model. Its first thread does calls, one after the other, as main does
// the one of a process: streams, directory, mask and environment become those of the call. A second
// thread has the sockets: it lets calls wait for their turn, hands on their signals, and hears that
// a caller is gone.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mapped.h"
#include "base/out.h"
#include "base/signals.h"
#include "base/thread.h"
#include "editor/terminal.h"
#include "keep/keep.h"
#include "keep/name.h"
#include "keep/wire.h"

extern char **environ;

enum { MOST = 64, MAX_WORDS = 64 << 20, LOOK_MS = 1000, STOPPED_MS = 20 };
static const double FIRST_S = 10; // for the first call to come
static const double ANSWER_S = 1; // for a caller to say what it wants, or still wants
// For others to wait, where loading took longer: that was perhaps from a disk that was cold.
static const double MOST_WAIT_S = 5;

enum state {
    NONE = 0, // the place is free
    FRESH,    // has said nothing
    WAITING,  // for its turn
    OFFERED,  // its turn; has not said that it still wants it
    RUNNING,
    STAYS, // until this process ends
    OVER,  // to be closed
};

struct caller {
    int fd;
    enum state state;
    double since;             // of the state
    struct keep_message call; // KEEP_RUN
    int fds[KEEP_FDS];
    size_t n_fds;
    bool told, gone;    // told: that others are before it
    unsigned signalled; // 1 << number, of SIGINT and SIGTERM
};

struct keeper {
    struct keeper_place *place;
    struct buf where;     // the model's file, as those who list are told
    pthread_t first;      // thread
    int bell[2];          // [0] wakes the thread that does calls, [1] the one that has the sockets
    int nothing[3];       // streams between calls
    int closed[3];        // and of a call whose reader is gone: nothing can be written
    pthread_mutex_t lock; // of what follows
    struct caller callers[MOST];
    struct caller *running; // one of them; the first thread's as long as it is
    struct buf aside;       // name of the socket while a chat is open; empty: its own
    bool leaving;           // no more calls
    bool over;              // the sockets are nobody's any more
    double until;           // to be kept
    double load_s;
    uint64_t n_bytes;
    char device[128];
};

static void ring(int bell)
{
    const uint64_t one = 1;
    const ssize_t ignored = write(bell, &one, sizeof one);
    (void)ignored;
}

static void hush(int bell)
{
    uint64_t n;
    const ssize_t ignored = read(bell, &n, sizeof n);
    (void)ignored;
}

// ---- the call that runs. Handlers can only reach static storage.

static struct {
    const int *nothing, *closed;
    struct cancel *cancel;
    volatile sig_atomic_t broken_pipe, stopped, went_on; // went_on: how often it was told to
    int caller;                                          // socket of the call that runs
    int pid;                                             // of it
    int bell;                                            // wakes the first thread
    volatile sig_atomic_t waits, edited, gone;           // waits: for the caller's editor
    int status, why;                                     // of edited
} H;

// A program of its own would have been killed: nothing more comes of this call. What is written to
// standard output is refused from here on; only where it was standard error that has no reader must
// somebody ask the work to end.
static void on_pipe(int sig)
{
    struct pollfd out = {.fd = OUT_STDOUT};
    (void)sig;
    H.broken_pipe = 1;
    if (poll(&out, 1, 0) <= 0 || !(out.revents & POLLERR))
        cancel_ask(H.cancel);
    out_redirect(H.closed);
}

// The caller stops when nothing more is written, and the terminal is as it was. Stopped again
// before this has seen that it was to go on, it waits to hear so again.
static void stop_caller(void)
{
    struct keep_message m = {.word = KEEP_STOPPED};
    while (H.stopped) {
        const sig_atomic_t n = H.went_on;
        keep_send(H.caller, &m, NULL, 0);
        while (H.stopped && H.went_on == n)
            poll(NULL, 0, STOPPED_MS);
    }
}

static void on_stop(int sig)
{
    (void)sig;
    stop_caller();
}

// The terminal of a chat is its caller's: signals come and go there, and who reads it is a process
// of its session.
static void signal_group(int sig)
{
    struct keep_message m = {.word = KEEP_RAISE, .number = sig};
    keep_send(H.caller, &m, NULL, 0);
}

// By SIGSTOP, of which it could not tell.
static bool caller_is_stopped(void)
{
    char path[32], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", H.pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *name_ends = strrchr(text, ')');
    return name_ends && strncmp(name_ends, ") T", 3) == 0;
}

static bool await_caller(void)
{
    bool waited = false;
    for (; !H.gone && caller_is_stopped(); waited = true)
        poll(NULL, 0, STOPPED_MS);
    return waited;
}

static void die(int sig)
{
    struct keep_message m = {.word = KEEP_DONE, .death = sig};
    keep_send(H.caller, &m, NULL, 0);
}

// The call is over for whoever waits for it. (That it is gone is heard as ever.)
static void let_go(int sig)
{
    out_redirect(H.nothing);
    die(sig);
}

static int run_editor(const char *path)
{
    struct keep_message m = {.word = KEEP_EDIT};
    const int n = snprintf(m.path, sizeof m.path, "%s", path);
    H.edited = 0;
    H.waits = 1;
    if ((size_t)n >= sizeof m.path || !keep_send(H.caller, &m, NULL, 0)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    while (!H.edited && !H.gone) {
        struct pollfd p = {.fd = H.bell, .events = POLLIN};
        if (poll(&p, 1, -1) > 0)
            hush(H.bell);
    }
    H.waits = 0;
    errno = H.edited ? H.why : ECONNRESET;
    return H.edited ? H.status : -1;
}

static const struct terminal_holder caller_holds = {.stop = stop_caller,
                                                    .await = await_caller,
                                                    .send = signal_group,
                                                    .dies = die,
                                                    .run = run_editor};

static bool is_chat(const struct caller *c)
{
    return c->call.number == 1;
}

// From before the call begins: its signals are heard from then on.
static void attend(const struct caller *c)
{
    H.broken_pipe = H.gone = 0;
    H.caller = c->fd;
    H.pid = c->call.pid;
}

static void hand_on(struct keeper *k, struct caller *c, int sig)
{
    const bool ends = sig == SIGINT || sig == SIGTERM;
    if (sig == SIGWINCH && is_chat(c))
        pthread_kill(k->first, sig);
    if (!ends && sig != SIGTSTP && sig != SIGCONT)
        return;
    H.stopped = sig == SIGTSTP;
    H.went_on += !H.stopped;
    if (sig == SIGTSTP || (ends && (!c->signalled || c->gone || is_chat(c))))
        pthread_kill(k->first, sig);
    if (ends)
        c->signalled |= 1u << sig;
}

// ---- the sockets

static void drop(struct caller *c)
{
    close(c->fd);
    for (size_t f = 0; f < c->n_fds; f++)
        close(c->fds[f]);
    *c = (struct caller){.state = NONE};
}

static void say_state(struct keeper *k, struct caller *c)
{
    const struct caller *r = k->running;
    struct keep_message m = {.word = KEEP_SAYS,
                             .busy = !r           ? KEEP_IDLE
                                     : is_chat(r) ? KEEP_CHATS
                                                  : KEEP_ANSWERS,
                             .seconds = r ? r->call.seconds : k->until - clock_now(),
                             .n_bytes = k->n_bytes};
    snprintf(m.path, sizeof m.path, "%s", buf_str(&k->where));
    snprintf(m.device, sizeof m.device, "%s", k->device);
    keep_send(c->fd, &m, NULL, 0);
}

static void enter(struct caller *c, enum state state)
{
    c->state = state;
    c->since = clock_now();
}

static const char *name_now(const struct keeper *k)
{
    return k->aside.len > 0 ? k->aside.data : k->place->socket.data;
}

// Nobody can come by this name any more: it was removed, or is another keeper's.
static bool is_orphan(const struct keeper *k)
{
    struct stat st;
    return lstat(name_now(k), &st) != 0 || st.st_dev != k->place->id.st_dev ||
           st.st_ino != k->place->id.st_ino;
}

// The next keeper may come at once.
static void leave(struct keeper *k)
{
    k->leaving = true;
    if (!is_orphan(k))
        unlink(name_now(k));
}

// A chat is open for as long as somebody likes: calls are to find no keeper meanwhile, rather than
// to wait for this one. Who waits already is told by the end of the connection.
static void step_aside(struct keeper *k)
{
    struct buf aside = {0};
    if (!is_orphan(k) && keep_aside(k->place->socket.data, &aside) &&
        rename(k->place->socket.data, aside.data) == 0)
        k->aside = aside;
    else
        buf_release(&aside);
    for (struct caller *c = k->callers; c < k->callers + MOST; c++)
        if (c->state == WAITING)
            enter(c, OVER);
}

// Where another keeper has the name by now, one of the two is enough.
static void come_back(struct keeper *k)
{
    if (k->aside.len == 0)
        return;
    if (k->leaving || is_orphan(k) || link(k->aside.data, k->place->socket.data) != 0)
        leave(k);
    else
        unlink(k->aside.data);
    buf_release(&k->aside);
}

static void hear(struct keeper *k, struct caller *c)
{
    struct keep_message m;
    int fds[KEEP_FDS];
    size_t n;
    const int what = keep_receive(c->fd, &m, fds, &n);
    if (what == 0)
        return;
    if (what < 0) {
        c->gone = true;
        if (c->state == RUNNING) { // nobody reads, or waits for, what it writes
            out_redirect(k->nothing);
            terminal_restore(c->fds[0]);
            H.gone = 1;
            ring(k->bell[0]);
            hand_on(k, c, SIGTERM);
        } else {
            enter(c, OVER);
        }
        return;
    }
    const bool chat = k->running && is_chat(k->running);
    if (m.word == KEEP_RUN && c->state == FRESH && !k->leaving && !chat) {
        c->call = m;
        enter(c, WAITING);
    } else if (m.word == KEEP_GO && c->state == OFFERED && n == KEEP_FDS && !k->leaving) {
        memcpy(c->fds, fds, sizeof fds);
        c->n_fds = n;
        n = 0;
        enter(c, RUNNING);
        attend(c);
        k->running = c;
        if (is_chat(c))
            step_aside(k);
        ring(k->bell[0]);
    } else if (m.word == KEEP_EDITED && c->state == RUNNING && H.waits) {
        H.status = m.number;
        H.why = m.death;
        H.edited = 1;
        ring(k->bell[0]);
    } else if (m.word == KEEP_SIGNAL && c->state == RUNNING) {
        hand_on(k, c, m.number);
    } else if (m.word == KEEP_STATUS && c->state == FRESH) {
        say_state(k, c);
        enter(c, OVER);
    } else if (c->state == FRESH && m.pid != getpid() &&
               (m.word == KEEP_LEAVE || (m.word == KEEP_LEAVE_IF_IDLE && !k->running))) {
        if (chat) // nobody is to wait for its end
            say_state(k, c);
        enter(c, chat ? OVER : STAYS);
        leave(k);
        ring(k->bell[0]);
    } else {
        if (m.word == KEEP_LEAVE || m.word == KEEP_LEAVE_IF_IDLE)
            say_state(k, c);
        enter(c, OVER);
    }
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
}

// Whose turn it is: one at a time, the first that came.
static void offer(struct keeper *k)
{
    struct caller *next = NULL, *at_it = NULL;
    for (struct caller *c = k->callers; c < k->callers + MOST; c++) {
        if (c->state == OFFERED || c->state == RUNNING)
            at_it = c;
        else if (c->state == WAITING && (!next || c->since < next->since))
            next = c;
    }
    struct keep_message m = {.word = KEEP_TAKEN};
    if (next && !at_it)
        enter(next, keep_send(next->fd, &m, NULL, 0) ? OFFERED : OVER);
}

static void tidy(struct keeper *k)
{
    const double now = clock_now();
    if (!k->leaving)
        offer(k);
    for (struct caller *c = k->callers; c < k->callers + MOST; c++) {
        struct keep_message wait = {.word = KEEP_WAIT, .seconds = k->load_s};
        if (((c->state == FRESH || c->state == OFFERED) && now - c->since > ANSWER_S) ||
            (c->state != NONE && c->state < RUNNING && k->leaving))
            c->state = OVER;
        if (c->state == WAITING && !c->told)
            c->told = keep_send(c->fd, &wait, NULL, 0);
        if (c->state == OVER)
            drop(c);
    }
}

static struct caller *place(struct keeper *k)
{
    for (struct caller *c = k->callers; c < k->callers + MOST; c++)
        if (c->state == NONE)
            return c;
    return NULL;
}

static void welcome(struct keeper *k)
{
    struct caller *c = place(k);
    const int fd = c ? accept4(k->place->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
    if (fd >= 0 && !keep_peer_is_me(fd)) {
        close(fd);
    } else if (fd >= 0) {
        *c = (struct caller){.fd = fd};
        enter(c, FRESH);
    }
}

static void *have_sockets(void *user)
{
    struct keeper *k = user;
    struct pollfd p[MOST + 2];
    pthread_mutex_lock(&k->lock);
    while (!k->over) {
        bool hurry = false;
        tidy(k);
        for (size_t i = 0; i < MOST; i++) {
            const struct caller *c = &k->callers[i];
            const bool heard = c->state != NONE && c->state < STAYS && !c->gone;
            hurry |= c->state == FRESH || c->state == OFFERED;
            p[i] = (struct pollfd){.fd = heard ? c->fd : -1, .events = POLLIN};
        }
        // (Who comes when there is no place waits in the socket's queue.)
        const bool open = !k->leaving && place(k);
        p[MOST] = (struct pollfd){.fd = open ? k->place->fd : -1, .events = POLLIN};
        p[MOST + 1] = (struct pollfd){.fd = k->bell[1], .events = POLLIN};
        pthread_mutex_unlock(&k->lock);
        poll(p, MOST + 2, hurry ? LOOK_MS : -1);
        pthread_mutex_lock(&k->lock);
        if (p[MOST + 1].revents)
            hush(k->bell[1]);
        for (size_t i = 0; i < MOST; i++)
            if (p[i].revents && k->callers[i].state < STAYS)
                hear(k, &k->callers[i]);
        if (p[MOST].revents)
            welcome(k);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

// ---- calls

// Words and environment of a call, in one piece of memory. False: they are not what pack() makes.
static bool unpack(int fd, struct buf *text, int *argc, char ***argv, char ***envp)
{
    int n_args = 0, n_env = 0, used = 0;
    if (lseek(fd, 0, SEEK_SET) != 0 || !fd_read_all(fd, "a call", MAX_WORDS, NULL, text, NULL) ||
        text->len == 0 || text->data[text->len - 1] != '\0' ||
        sscanf(text->data, "%d %d%n", &n_args, &n_env, &used) != 2 || text->data[used] != '\0' ||
        n_args < 1 || n_env < 0 || n_args > INT_MAX / 4 || n_env > INT_MAX / 4 ||
        (size_t)n_args + (size_t)n_env > text->len)
        return false;
    char **all = calloc((size_t)n_args + (size_t)n_env + 2, sizeof *all);
    char *at = text->data + used + 1, *end = text->data + text->len;
    int n = 0;
    for (int i = 0; all && i < n_args + n_env && at < end; i++, at += strlen(at) + 1, n++)
        all[i + (i >= n_args)] = at; // a NULL behind each
    *argc = n_args;
    *argv = all;
    *envp = all ? all + n_args + 1 : NULL;
    return all && n == n_args + n_env && at == end;
}

// What is still open is no error's: later calls may rely on it.
static bool unharmed(const struct caller *c, const struct keep_message *done)
{
    const int code = done->number;
    // (What a chat ends with is of its terminal or its session.)
    return (done->death || code == 0 || code == ERR_USAGE || code == ERR_CONTEXT || is_chat(c)) &&
           !mapped_failed();
}

static void do_call(struct keeper *k, struct caller *c, struct kept *kept, keeper_call *call,
                    void *user)
{
    struct keep_message begun = {.word = KEEP_BEGUN}, done = {.word = KEEP_DONE};
    struct buf text = {0};
    char **argv = NULL, **envp = NULL, **before = environ;
    int argc = 0, death = 0;
    bool ok = unpack(c->fds[4], &text, &argc, &argv, &envp) && fchdir(c->fds[3]) == 0 &&
              keep_send(c->fd, &begun, NULL, 0);
    pthread_mutex_lock(&k->lock);
    ok = ok && !c->gone && out_redirect(c->fds);
    pthread_mutex_unlock(&k->lock);
    if (ok) {
        umask(c->call.umask & 0777);
        environ = envp;
        tzset(); // localtime_r() looks for the zone only once
        done.number = call(user, argc, argv, envp, kept, c->call.began, &death);
        environ = before;
        done.death = H.broken_pipe ? SIGPIPE : death;
    }
    out_redirect(k->nothing);
    const int failed = chdir("/");
    (void)failed; // (there is always one)
    free(argv);
    buf_release(&text);
    pthread_mutex_lock(&k->lock);
    sched_yield(); // any system call: a signal that was handed on has come behind it
    const int caught = signals_forget(), by = caught ? caught : death;
    const bool own_signal = by && !(c->signalled >> by & 1);
    k->running = NULL;
    H.stopped = 0;
    k->until = clock_now() + c->call.seconds;
    const struct engine *e = kept->opened.engine;
    const bool same = e && strcmp(kept->opened.path, buf_str(&k->place->model)) == 0;
    if (own_signal || !same || e->failed || !unharmed(c, &done))
        leave(k);
    come_back(k); // before the caller ends, whose next call is to find it
    if (ok)
        keep_send(c->fd, &done, NULL, 0);
    enter(c, OVER);
    k->load_s = kept->load_s < MOST_WAIT_S ? kept->load_s : MOST_WAIT_S;
    k->n_bytes = e ? e->mem_used : 0;
    snprintf(k->device, sizeof k->device, "%s", e ? e->device : "");
    pthread_mutex_unlock(&k->lock);
    ring(k->bell[1]);
    malloc_trim(0);
}

static void do_calls(struct keeper *k, keeper_call *call, void *user)
{
    struct kept kept = {0};
    for (;;) {
        pthread_mutex_lock(&k->lock);
        struct caller *c = k->running;
        const double left = k->until - clock_now();
        if (!c && (signals_caught() || left <= 0 || is_orphan(k)))
            leave(k);
        const bool end = !c && k->leaving;
        pthread_mutex_unlock(&k->lock);
        if (end)
            break;
        if (c) {
            do_call(k, c, &kept, call, user);
            continue;
        }
        // (A signal between the look and the wait is seen at the next look.)
        struct pollfd p = {.fd = k->bell[0], .events = POLLIN};
        const int ms = left * 1e3 < LOOK_MS ? (int)(left * 1e3) + 1 : LOOK_MS;
        if (poll(&p, 1, ms) > 0)
            hush(k->bell[0]);
    }
    ring(k->bell[1]);
    kept_release(&kept);
}

// The model's file by a name that is right in other directories, too.
static void note_where(struct keeper *k)
{
    const char *model = buf_str(&k->place->model);
    char *here = model[0] == '/' ? NULL : getcwd(NULL, 0);
    buf_printf(&k->where, "%s%s%s", here ? here : "", here ? "/" : "", model);
    free(here);
}

// Nothing of the call that began this process stays with it.
static bool settle(struct keeper *k, int argc, char **argv)
{
    static const int own[] = {SIGINT, SIGTERM};
    note_where(k);
    setsid();
    prctl(PR_SET_NAME, "hokku keeps");
    for (int i = 1; i < argc; i++)
        memset(argv[i], 0, strlen(argv[i]));
    for (char **e = environ; *e; e++) // (each call brings its own)
        memset(*e, 0, strlen(*e));
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    const int fd = k->place->fd;
    if (fd > 3)
        close_range(3, (unsigned)fd - 1, 0);
    close_range((unsigned)fd + 1, ~0u, 0);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const int read_only = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < 3; i++) {
        k->nothing[i] = null;
        k->closed[i] = read_only;
    }
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) // also where the parent ignores them
        signal(own[i], SIG_DFL);
    signals_forget();
    H.nothing = k->nothing;
    H.closed = k->closed;
    H.cancel = signals_begin();
    terminal_held_by(&caller_holds);
    signals_let_leave(let_go);
    k->bell[0] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    k->bell[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    H.bell = k->bell[0];
    const bool ok = null >= 0 && read_only >= 0 && k->bell[0] >= 0 && k->bell[1] >= 0 &&
                    chdir("/") == 0 && out_redirect(k->nothing);
    const struct sigaction pipe = {.sa_handler = on_pipe, .sa_flags = SA_RESTART},
                           stop = {.sa_handler = on_stop, .sa_flags = SA_RESTART},
                           hang_up = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &pipe, NULL);
    sigaction(SIGTSTP, &stop, NULL);
    sigaction(SIGHUP, &hang_up, NULL);
    return ok;
}

void keeper_run(struct keeper_place *place, int argc, char **argv, keeper_call *call, void *user)
{
    pthread_t sockets;
    struct keeper k = {.place = place,
                       .first = pthread_self(),
                       .lock = PTHREAD_MUTEX_INITIALIZER,
                       .until = clock_now() + FIRST_S};
    if (settle(&k, argc, argv) && thread_start(&sockets, 0, have_sockets, &k) == 0) {
        do_calls(&k, call, user);
        pthread_mutex_lock(&k.lock);
        k.over = true;
        pthread_mutex_unlock(&k.lock);
        ring(k.bell[1]);
        pthread_join(sockets, NULL);
    }
    buf_release(&k.aside);
    buf_release(&k.where);
    buf_release(&place->socket);
    buf_release(&place->model);
}
