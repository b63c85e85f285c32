// A call that would have a kept model do its work: finds its keeper, or begins one, and is then no
// more than its signals and its exit code.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/out.h"
#include "base/signals.h"
#include "cli/model_file.h"
#include "editor/terminal.h"
#include "keep/keep.h"
#include "keep/name.h"
#include "keep/wire.h"

// Who is well answers at once; who has said that it is our turn may be at its last breath, and is
// given longer, since two would write if it were not.
static const double PATIENCE_S = 1, TURN_S = 10;
// Why a call runs by itself.
static const char silent[] = "the process that keeps it does not answer",
                  ended[] = "the process that kept it has ended, or wants no more calls";

static bool wanted(const struct options *o)
{
    return o->keep > 0 && o->tool == TOOL_NONE && !o->help && !o->version && !o->complete &&
           !o->print_completion;
}

// A name of what this process alone has: descriptors, as <(...) of a shell makes them, and its
// terminal.
static bool names_own(const char *word)
{
    static const char dir[] = "/dev/";
    const char *device = strstr(word, dir);
    const char *name = device ? device + sizeof dir - 1 : "";
    return !strchr(word, ' ') &&
           (strncmp(name, "fd/", 3) == 0 || strncmp(name, "tty", 3) == 0 || strstr(word, "/proc/"));
}

static bool is_limited(int what)
{
    struct rlimit limit;
    return getrlimit(what, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

// What a process has of its own and cannot hand over. NULL: nothing that matters.
static const char *not_to_be_given(const struct program *p, char **argv, char **envp)
{
    static const int heard[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGPIPE};
    static const char variable[] = "HOKKU_";
    sigset_t mask;
    if (program_is_chat(p) && !(p->stdout_tty && p->stderr_tty))
        return "a chat is done by another process only where all its streams are terminals";
    if (p->opt->dry_run)
        return "--dry-run loads no model";
    if (p->opt->model_draft)
        return "a draft model is beside it, and one model is kept";
    for (char **a = argv; *a; a++)
        if (names_own(*a))
            return "a descriptor, the terminal or /proc is named, which another process has not";
    for (char **e = envp; *e; e++)
        if (strncmp(*e, variable, sizeof variable - 1) == 0 && names_own(*e))
            return "a descriptor, the terminal or /proc is named, which another process has not";
    if (is_limited(RLIMIT_CPU))
        return "its processor time is limited";
    if (is_limited(RLIMIT_AS) || is_limited(RLIMIT_DATA))
        return "its memory is limited"; // of which keeping takes some
    sigprocmask(SIG_BLOCK, NULL, &mask);
    for (size_t i = 0; i < sizeof heard / sizeof *heard; i++)
        if (sigismember(&mask, heard[i]) == 1)
            return "its signals are blocked";
    return NULL;
}

// Words and environment, each with a NUL behind it, in memory that is handed over.
static int pack(int argc, char **argv, char **envp)
{
    struct buf b = {0};
    int n_env = 0;
    while (envp[n_env])
        n_env++;
    buf_printf(&b, "%d %d%c", argc, n_env, '\0');
    for (int i = 0; i < argc; i++)
        buf_append(&b, argv[i], strlen(argv[i]) + 1);
    for (int i = 0; i < n_env; i++)
        buf_append(&b, envp[i], strlen(envp[i]) + 1);
    int fd = b.failed ? -1 : memfd_create("hokku call", MFD_CLOEXEC);
    if (fd >= 0 && !fd_write_all(fd, "a call", b.data, b.len, NULL)) {
        close(fd);
        fd = -1;
    }
    buf_release(&b);
    return fd;
}

static bool ask(int fd, const struct program *p)
{
    const mode_t mask = umask(0);
    umask(mask);
    struct keep_message m = {.word = KEEP_RUN,
                             .seconds = p->opt->keep,
                             .began = p->began,
                             .umask = mask,
                             .number = program_is_chat(p)};
    return keep_send(fd, &m, NULL, 0);
}

// Streams are given to whoever answers alone: a process that does not would hold them open.
static bool go(int fd, int words)
{
    struct keep_message m = {.word = KEEP_GO};
    const int cwd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    const int fds[KEEP_FDS] = {0, 1, 2, cwd, words};
    const bool ok = cwd >= 0 && keep_send(fd, &m, fds, KEEP_FDS);
    if (cwd >= 0)
        close(cwd);
    return ok;
}

// SIGTSTP, from before the streams are given away: whoever has them is to stop, not the call alone.
static void hold_stops(int how)
{
    sigset_t stops;
    sigemptyset(&stops);
    sigaddset(&stops, SIGTSTP);
    sigprocmask(how, &stops, NULL);
}

// Until the keeper, which was given the streams, has begun: NULL, or why it has not. A signal is
// waited with, for what was begun must hear of it, and says something yet.
static const char *wait_begin(int fd, const struct cancel *cancel, int *pid)
{
    double until = clock_now() + TURN_S;
    bool asked = false;
    struct keep_message m;
    for (int n = -1; n != 0; n = keep_await(fd, until)) {
        const int k = n > 0 ? keep_receive(fd, &m, NULL, NULL) : 0;
        if (k < 0)
            return ended;
        if (k > 0 && m.word == KEEP_BEGUN) {
            *pid = m.pid;
            return NULL;
        }
        if (!asked && cancel_asked(cancel)) {
            asked = true;
            until = clock_now() + PATIENCE_S;
        }
    }
    shutdown(fd, SHUT_RDWR); // from here on it cannot begin; it may have
    while (keep_receive(fd, &m, NULL, NULL) > 0)
        if (m.word == KEEP_BEGUN)
            *pid = m.pid;
    return *pid ? NULL : silent;
}

static const char *take_turn(int fd, int words, const struct cancel *cancel, int *pid)
{
    hold_stops(SIG_BLOCK);
    const char *why = go(fd, words) ? wait_begin(fd, cancel, pid) : "it cannot be called";
    if (why)
        hold_stops(SIG_UNBLOCK);
    return why;
}

// Until the keeper has begun. NULL, or why the call runs by itself: nothing was done for it then.
static const char *wait_turn(const struct program *p, int fd, int words, int *pid)
{
    const struct cancel *cancel = p->cancel;
    double until = clock_now() + PATIENCE_S;
    const char *why = silent;
    while (!cancel_asked(cancel)) {
        struct keep_message m;
        const int n = keep_await(fd, until);
        const int k = n > 0 ? keep_receive(fd, &m, NULL, NULL) : 0;
        if (n == 0)
            return why;
        if (k < 0)
            return ended;
        if (k > 0 && m.word == KEEP_WAIT) {
            until = clock_now() + m.seconds;
            why = "it is busy, and loading another time takes no longer";
        } else if (k > 0 && m.word == KEEP_TAKEN) {
            if (p->opt->verbose) // before the keeper says anything
                out_say("hokku: the model is kept by process %d", m.pid);
            return take_turn(fd, words, cancel, pid);
        }
    }
    return "it is interrupted";
}

static void tell(int fd, int sig)
{
    struct keep_message m = {.word = KEEP_SIGNAL, .number = sig};
    keep_send(fd, &m, NULL, 0);
}

// ---- a call that has begun

struct attended {
    const struct program *p;
    int fd, pid; // keeper
    int signals;
    int stops; // SIGTSTP alone, which is seen there and stays pending
    int first; // that ends the call: the first of those handed on; 0: none
    bool chat;
    bool stopping; // SIGTSTP was handed on a moment ago: the keeper will say that it has stopped
};

// From here on they come there, but those that the parent chose to ignore.
static int take_signals(const int *handed, size_t n)
{
    sigset_t set;
    struct sigaction sa;
    sigemptyset(&set);
    for (size_t i = 0; i < n; i++)
        if (sigaction(handed[i], NULL, &sa) == 0 && sa.sa_handler != SIG_IGN)
            sigaddset(&set, handed[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void take_all_signals(struct attended *a)
{
    static const int handed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH}, stops[] = {SIGTSTP};
    a->signals = take_signals(handed, a->chat ? sizeof handed / sizeof *handed : 3);
    a->stops = take_signals(stops, 1);
}

// Where the keeper cannot do it any more.
static void restore_terminal(const struct attended *a)
{
    if (a->chat)
        terminal_put_back();
}

// Whoever reads a terminal from another session is not stopped there while others have it: the call
// is. Told to end it goes at once: the keeper hears of it, and leaves the terminal as it is.
static void wait_for_foreground(void)
{
    sigset_t pending;
    if (terminal_wait(STDIN_FILENO))
        return;
    sigpending(&pending);
    if (sigismember(&pending, SIGTERM) || sigismember(&pending, SIGHUP))
        signals_die(sigismember(&pending, SIGTERM) ? SIGTERM : SIGHUP);
}

static void on_signal(struct attended *a, int sig)
{
    if (sig == SIGWINCH || (sig == SIGINT && a->chat)) {
        tell(a->fd, sig);
        return;
    }
    if (a->first || sig == SIGQUIT) {
        restore_terminal(a);
        signals_die(sig);
    }
    a->first = sig;
    tell(a->fd, sig == SIGHUP ? SIGTERM : sig);
}

static void on_taken(struct attended *a, const struct signalfd_siginfo *s)
{
    if (!signals_echoes((int)s->ssi_signo, s->ssi_code, (pid_t)s->ssi_pid, clock_now()))
        on_signal(a, (int)s->ssi_signo);
}

static void on_stop(struct attended *a)
{
    a->stopping = true;
    tell(a->fd, SIGTSTP);
}

// Here, by the SIGTSTP that is pending: the system itself takes it back where SIGCONT came behind
// it. (To raise one would take back a SIGCONT that came a moment before, and that nobody saw.)
static void stop(struct attended *a)
{
    hold_stops(SIG_UNBLOCK);
    hold_stops(SIG_BLOCK);
    a->stopping = false;
    if (a->chat)
        wait_for_foreground();
    tell(a->fd, SIGCONT);
}

// What came of the terminal's keys meanwhile was the editor's.
static void edit(struct attended *a, const char *path)
{
    struct keep_message m = {.word = KEEP_EDITED};
    struct signalfd_siginfo s;
    m.number = terminal_run(a->p->opt->editor, path);
    m.death = errno;
    while (read(a->signals, &s, sizeof s) == sizeof s)
        if (s.ssi_signo == SIGTERM || s.ssi_signo == SIGHUP || s.ssi_signo == SIGWINCH)
            on_taken(a, &s);
    while (!a->stopping && read(a->stops, &s, sizeof s) == sizeof s)
        continue;
    keep_send(a->fd, &m, NULL, 0);
}

static void say_gone(const struct attended *a)
{
    restore_terminal(a);
    if (a->chat)
        out_say("hokku: --keep: process %d, which had the model and this chat, is gone (killed?): "
                "--continue, or its --session, goes on with what was saved",
                a->pid);
    else if (!a->first)
        out_say("hokku: --keep: process %d, which had the model and did this call, is gone "
                "(killed?): the answer is not whole; call again",
                a->pid);
}

// Hands signals on until the call is done.
static void attend(struct attended *a, struct keep_result *r)
{
    take_all_signals(a);
    if (signals_caught()) // before they were taken
        on_signal(a, signals_caught());
    for (;;) {
        struct pollfd p[3] = {{.fd = a->fd, .events = POLLIN},
                              {.fd = a->signals, .events = POLLIN},
                              {.fd = a->stopping ? -1 : a->stops, .events = POLLIN}};
        struct signalfd_siginfo s;
        struct keep_message m;
        // A chat may forget it, with a Ctrl-C: it is told again as long as the signal is pending.
        if (poll(p, 3, a->stopping ? (int)(PATIENCE_S * 1000) : -1) == 0)
            a->stopping = false;
        while (p[1].revents && read(a->signals, &s, sizeof s) == sizeof s)
            on_taken(a, &s);
        if (p[2].revents)
            on_stop(a);
        const int k = p[0].revents ? keep_receive(a->fd, &m, NULL, NULL) : 0;
        if (k < 0) {
            *r = (struct keep_result){.code = ERR_FAIL, .death = a->first};
            say_gone(a);
            return;
        }
        if (k == 0)
            continue;
        if (m.word == KEEP_DONE) {
            *r = (struct keep_result){.code = m.number,
                                      .death = m.death && a->first ? a->first : m.death};
            return;
        }
        if (m.word == KEEP_STOPPED)
            stop(a);
        else if (m.word == KEEP_EDIT)
            edit(a, m.path);
        else if (m.word == KEEP_RAISE && (m.number == SIGTSTP || m.number == SIGQUIT))
            kill(0, m.number);
    }
}

// Whoever looks for a keeper and begins one does both before another call does either. -1: some
// call does not come to an end with that.
static int lock_place(const char *socket)
{
    const double until = clock_now() + PATIENCE_S;
    const char *slash = strrchr(socket, '/');
    char *dir = strndup(socket, (size_t)(slash - socket));
    const int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(dir);
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (clock_now() > until) {
            close(fd);
            return -1;
        }
        poll(NULL, 0, 1);
    }
    return fd;
}

// A connection to the keeper; one begins if there is none: in the new process *is_keeper.
static int connect_or_begin(struct keeper_place *place, const char *socket, const char *model,
                            bool *is_keeper)
{
    int fd = keep_connect(socket);
    if (fd >= 0 || (errno != ENOENT && errno != ECONNREFUSED))
        return fd;
    const int lock = lock_place(socket);
    if (lock < 0) {
        errno = EBUSY;
        return -1;
    }
    fd = keep_connect(socket); // another call may have begun one
    if (fd < 0 && (errno == ENOENT || errno == ECONNREFUSED) && buf_puts(&place->socket, socket) &&
        buf_puts(&place->model, model) && (place->fd = keep_listen(socket)) >= 0) {
        const pid_t child = lstat(socket, &place->id) == 0 ? fork() : -1;
        *is_keeper = child == 0;
        if (!*is_keeper) {
            close(place->fd);
            place->fd = -1;
        }
        if (child < 0)
            unlink(socket);
        fd = *is_keeper ? -1 : keep_connect(socket);
    }
    const int why = errno;
    close(lock);
    errno = why;
    return fd;
}

static bool find(const struct program *p, char **envp, const char *model, struct buf *socket,
                 struct error *err)
{
    bool there;
    return keep_place(p->opt, true, socket, &there, err) && keep_name(model, envp, socket, err);
}

enum keep_outcome keep_call(const struct program *p, int argc, char **argv, char **envp,
                            struct keep_result *r, struct keeper_place *place)
{
    if (!wanted(p->opt))
        return KEEP_ALONE;
    struct buf socket = {0};
    struct error err = {0};
    const char *why = NULL, *nowhere = NULL; // nowhere: why nothing can be kept at all
    char *model = NULL;
    int words = -1;
    struct attended a = {.p = p, .fd = -1, .chat = program_is_chat(p)};
    bool is_keeper = false;
    *place = (struct keeper_place){.fd = -1};
    why = not_to_be_given(p, argv, envp);
    if (!why && a.chat) {
        wait_for_foreground();
        if (!terminal_remember(STDIN_FILENO, OUT_STDERR, !p->opt->dumb))
            why = strerror(errno);
    }
    if (!why && !(model = model_file(p->opt, p->cancel, &err)))
        why = err.text;
    else if (!why && !find(p, envp, model, &socket, &err))
        why = nowhere = err.text;
    if (!why) {
        a.fd = connect_or_begin(place, socket.data, model, &is_keeper);
        if (a.fd < 0 && errno == ENAMETOOLONG)
            why = nowhere = "XDG_RUNTIME_DIR is too long for the name of a socket";
        else if (a.fd < 0)
            why = strerror(errno);
        else if ((words = pack(argc, argv, envp)) < 0 || !ask(a.fd, p))
            why = "it cannot be called";
        else
            why = wait_turn(p, a.fd, words, &a.pid);
    }
    if (!is_keeper && p->opt->verbose && why)
        out_say("hokku: --keep: %s: this call runs by itself", why);
    else if (nowhere && options_named(p->opt, "--keep") && !p->opt->quiet)
        out_say("hokku: --keep: %s: nothing is kept", nowhere);
    if (!is_keeper && !why)
        attend(&a, r);
    if (a.fd >= 0)
        close(a.fd);
    if (words >= 0)
        close(words);
    free(model);
    buf_release(&socket);
    if (!is_keeper) {
        buf_release(&place->socket);
        buf_release(&place->model);
    }
    return is_keeper ? KEEP_KEEPER : why ? KEEP_ALONE : KEEP_ANSWERED;
}
