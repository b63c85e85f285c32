#include "editor/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mapped.h"
#include "base/signals.h"

// Handlers have no argument of ours: this is the one place with state of its own.
static struct {
    bool active, ansi;
    volatile sig_atomic_t reading;
    int fd, fd_out;
    struct termios found, set; // set: as the terminal has them
    const struct terminal_holder *holder;
    struct cancel *cancel;
    volatile sig_atomic_t mode;
    volatile sig_atomic_t interrupt, stop, resize, death;
    volatile sig_atomic_t stopping; // SIGTSTP came, and no SIGCONT behind it
    int pipe[2];
} T = {.pipe = {-1, -1}};

static struct sigaction before[_NSIG];
static bool taken[_NSIG]; // by terminal_begin

static const char undo[] = "\x1b[?2004l\x1b[0m"; // bracketed paste, colours

void terminal_put_back(void)
{
    tcsetattr(T.fd, TCSADRAIN, &T.found);
    if (T.ansi) {
        ssize_t ignored = write(T.fd_out, undo, sizeof undo - 1);
        (void)ignored;
    }
}

// Whether a shell has the terminal, or another of its jobs: whose modes it has then.
static bool is_of_others(int fd)
{
    const pid_t group = tcgetpgrp(fd);
    return group >= 0 && group != getpgrp();
}

static bool is_ours(void)
{
    return T.holder || !is_of_others(T.fd);
}

// Only calls that are safe in a handler.
static void restore_modes(void)
{
    if (T.mode != TERMINAL_COOKED && is_ours())
        terminal_put_back();
}

static void tell_terminal(const char *s, size_t n)
{
    ssize_t ignored = T.ansi ? write(T.fd_out, s, n) : 0;
    (void)ignored;
}

// No echo, no line buffering. While a message is typed, Ctrl-C and Ctrl-Z are keys as well: then
// they keep their place among the others, and a paste that holds them is only text.
static void set_modes(enum terminal_mode mode)
{
    struct termios t = T.found;
    tcflag_t local = ECHO | ICANON;
    // ICRNL off: Enter typed ahead must reach the line editor as Enter, not as Ctrl-J. Where there
    // is none the terminal itself makes lines, of which a carriage return typed ahead ends none.
    if (T.ansi)
        t.c_iflag &= ~(tcflag_t)(ICRNL | INLCR | IGNCR);
    if (mode == TERMINAL_EDITING) {
        local |= ISIG | IEXTEN;
        t.c_iflag &= ~(tcflag_t)(ISTRIP | IXON);
    }
    t.c_lflag &= ~local;
    t.c_oflag |= OPOST | ONLCR; // a line break goes to the first column
    t.c_cc[VMIN] = 1;
    t.c_cc[VTIME] = 0;
    tcsetattr(T.fd, TCSADRAIN, &t);
    tcgetattr(T.fd, &T.set);
    // A paste that comes during an answer must still be one message for the line editor.
    tell_terminal("\x1b[?2004h", 8);
}

static bool same_modes(const struct termios *a, const struct termios *b)
{
    return a->c_iflag == b->c_iflag && a->c_oflag == b->c_oflag && a->c_cflag == b->c_cflag &&
           a->c_lflag == b->c_lflag && memcmp(a->c_cc, b->c_cc, sizeof a->c_cc) == 0;
}

static void block_all(sigset_t *old)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, old);
}

// Whether SIGTERM or SIGHUP waits, of blocked ones.
static bool is_to_end(void)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGTERM) || sigismember(&pending, SIGHUP);
}

bool terminal_wait(int fd)
{
    struct sigaction ign = {.sa_handler = SIG_IGN}, mine;
    sigset_t pending, one, old;
    sigemptyset(&one);
    sigaddset(&one, SIGTTOU);
    block_all(&old);
    while (is_of_others(fd) && !is_to_end()) {
        kill(0, SIGTTOU); // (it takes back a SIGCONT that waits, and one that comes takes it back)
        if (is_to_end()) {
            sigaction(SIGTTOU, &ign, &mine); // which forgets it
            sigaction(SIGTTOU, &mine, NULL);
            break;
        }
        sigprocmask(SIG_UNBLOCK, &one, NULL);
        sigprocmask(SIG_BLOCK, &one, NULL);
        sigpending(&pending);
        if (!sigismember(&pending, SIGCONT)) // nothing stops it: no shell is left
            break;
    }
    sigprocmask(SIG_SETMASK, &old, NULL);
    return !is_of_others(fd);
}

// The terminal has these modes, unless it is somebody else's: then it stays as it is.
static void take_up(enum terminal_mode mode)
{
    sigset_t old;
    block_all(&old);
    const bool ours = T.holder || (T.death ? is_ours() : terminal_wait(T.fd));
    T.mode = ours ? mode : TERMINAL_COOKED;
    if (ours)
        set_modes(mode);
    sigprocmask(SIG_SETMASK, &old, NULL);
}

// After SIGCONT: whether a shell has changed the modes behind SIGSTOP, which nobody hears, and
// they are set again.
static bool set_modes_again(void)
{
    struct termios now;
    if (T.mode == TERMINAL_COOKED || T.holder || is_of_others(T.fd) || tcgetattr(T.fd, &now) != 0 ||
        same_modes(&now, &T.set))
        return false;
    set_modes((enum terminal_mode)T.mode);
    return true;
}

static void die_by(int sig)
{
    restore_modes();
    T.mode = TERMINAL_COOKED;
    if (T.holder)
        T.holder->dies(sig);
    signals_die(sig);
}

// Asked again, before the first time was heard.
static void insist(int sig, const siginfo_t *info)
{
    restore_modes();
    T.mode = TERMINAL_COOKED;
    if (!signals_leave_by(sig, info))
        die_by(sig);
    T.death = T.death ? T.death : sig;
}

static void wake(void)
{
    ssize_t ignored = write(T.pipe[1], "", 1);
    (void)ignored;
}

static void on_signal(int sig, siginfo_t *info, void *context)
{
    int saved = errno;
    (void)context;
    if (sig == SIGBUS && mapped_fault(info->si_addr)) {
        errno = saved;
        return;
    }
    if (signals_echoes(sig, info->si_code, info->si_pid, clock_now()))
        return;
    switch (sig) {
    case SIGINT:
        if (T.interrupt && !T.reading)
            insist(sig, info);
        T.interrupt = 1;
        cancel_ask(T.cancel);
        break;
    case SIGTERM:
    case SIGHUP:
        if (T.death)
            insist(sig, info);
        else
            T.death = sig;
        cancel_ask(T.cancel);
        break;
    case SIGTSTP:
        T.stopping = 1;
        if (T.mode == TERMINAL_ANSWERING)
            terminal_suspend();
        else
            T.stop = 1;
        break;
    case SIGCONT:
        T.stop = T.stopping = 0;
        if (set_modes_again())
            T.resize = 1;
        break;
    case SIGWINCH:
        T.resize = 1;
        break;
    default: // a crash, SIGQUIT, or nobody reads the answers any more
        die_by(sig);
    }
    wake();
    errno = saved;
}

// Whether the terminal hears of a signal, and restores its modes where it ends the program. One
// that the parent chose to ignore (nohup, a background job) stays ignored.
static bool is_to_be_taken(int sig, const struct sigaction *now)
{
    static const int heard[] = {SIGINT,  SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH,
                                SIGSEGV, SIGBUS,  SIGFPE, SIGILL,  SIGABRT, SIGPIPE};
    static const int harmless[] = {SIGCHLD, SIGURG, SIGTTIN, SIGTTOU}; // or stop it as SIGSTOP does
    for (size_t i = 0; i < sizeof heard / sizeof *heard; i++)
        if (sig == heard[i])
            return now->sa_handler != SIG_IGN;
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (sig == harmless[i])
            return false;
    return now->sa_handler == SIG_DFL; // not what a library has for itself
}

bool terminal_remember(int fd, int fd_out, bool ansi)
{
    T.fd = fd;
    T.fd_out = fd_out;
    T.ansi = ansi;
    return tcgetattr(fd, &T.found) == 0;
}

bool terminal_begin(int fd, int fd_out, bool ansi, struct cancel *cancel)
{
    if (T.active || !terminal_remember(fd, fd_out, ansi) ||
        pipe2(T.pipe, O_CLOEXEC | O_NONBLOCK) != 0)
        return false;
    T.cancel = cancel;
    T.mode = TERMINAL_COOKED;
    T.reading = false;
    T.interrupt = T.stop = T.stopping = T.resize = T.death = 0;
    T.active = true;
    for (int sig = 1; sig < _NSIG; sig++) {
        struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_RESTART | SA_SIGINFO};
        sigfillset(&sa.sa_mask);
        taken[sig] = sigaction(sig, NULL, &before[sig]) == 0 && is_to_be_taken(sig, &before[sig]) &&
                     sigaction(sig, &sa, NULL) == 0;
    }
    return true;
}

void terminal_end(void)
{
    struct sigaction now;
    if (!T.active)
        return;
    terminal_set_mode(TERMINAL_COOKED);
    for (int sig = 1; sig < _NSIG; sig++)
        if (taken[sig] && sigaction(sig, NULL, &now) == 0 && now.sa_sigaction == on_signal)
            sigaction(sig, &before[sig], NULL); // else a library has taken it since
    close(T.pipe[0]);
    close(T.pipe[1]);
    T.pipe[0] = T.pipe[1] = -1;
    T.active = false;
}

void terminal_set_mode(enum terminal_mode mode)
{
    if (!T.active || T.mode == (sig_atomic_t)mode)
        return;
    if (mode != TERMINAL_COOKED) {
        take_up(mode);
        return;
    }
    sigset_t old;
    block_all(&old); // a handler would set the other modes again
    if (is_ours()) {
        tell_terminal("\x1b[?2004l", 8);
        tcsetattr(T.fd, TCSADRAIN, &T.found);
    }
    T.mode = mode;
    sigprocmask(SIG_SETMASK, &old, NULL);
}

void terminal_set_reading(bool on)
{
    T.reading = on;
}

int terminal_event_fd(void)
{
    return T.pipe[0];
}

struct terminal_events terminal_events(void)
{
    char drain[64];
    while (read(T.pipe[0], drain, sizeof drain) > 0)
        continue;
    struct terminal_events e = {T.interrupt != 0, T.stop != 0, T.resize != 0};
    T.interrupt = T.stop = T.resize = 0;
    return e;
}

int terminal_death(void)
{
    return T.death;
}

void terminal_held_by(const struct terminal_holder *h)
{
    T.holder = h;
}

bool terminal_await(void)
{
    if (!T.holder || !T.holder->await())
        return false;
    if (T.mode != TERMINAL_COOKED)
        set_modes(T.mode);
    return true;
}

void terminal_signal_group(int sig)
{
    if (T.holder)
        T.holder->send(sig);
    else
        kill(0, sig);
}

void terminal_restore(int fd)
{
    struct termios now;
    struct pollfd out = {.fd = fd, .events = POLLOUT};
    if (!T.active || T.mode == TERMINAL_COOKED || tcgetattr(fd, &now) != 0 ||
        !same_modes(&now, &T.set))
        return;
    tcsetattr(fd, TCSANOW, &T.found);
    const ssize_t ignored = T.ansi && poll(&out, 1, 0) > 0 ? write(fd, undo, sizeof undo - 1) : 0;
    (void)ignored;
}

int terminal_run(const char *command, const char *path)
{
    if (T.holder)
        return T.holder->run(path);
    const pid_t child = fork();
    if (child == 0) {
        // The variable may hold options: a shell takes it apart, the file's name is not part of it.
        struct buf b = {0};
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_UNBLOCK, &all, NULL);
        buf_printf(&b, "%s \"$1\"", command);
        execl("/bin/sh", "sh", "-c", buf_str(&b), "hokku", path, (char *)NULL);
        _exit(127);
    }
    for (int status; child > 0;) {
        const pid_t got = waitpid(child, &status, WUNTRACED);
        if (got > 0 && WIFSTOPPED(status)) { // Ctrl-Z there: the shell waits until all have stopped
            T.stopping = 1;
            terminal_suspend();
            kill(child, SIGCONT);
        } else if (got > 0) {
            return status;
        } else if (errno != EINTR) {
            break;
        }
    }
    return -1;
}

// Stops as SIGTSTP does; not where SIGCONT came behind it, which one that is raised would take
// back. From when it is raised the system itself takes it back. All signals are blocked.
static void stop_here(void)
{
    struct sigaction dfl = {.sa_handler = SIG_DFL}, mine;
    sigset_t pending, one;
    sigpending(&pending);
    if (!T.stopping || sigismember(&pending, SIGCONT))
        return;
    raise(SIGTSTP);
    restore_modes();
    sigaction(SIGTSTP, &dfl, &mine);
    sigemptyset(&one);
    sigaddset(&one, SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &one, NULL); // stops here, goes on here
    sigprocmask(SIG_BLOCK, &one, NULL);
    sigaction(SIGTSTP, &mine, NULL);
}

void terminal_suspend(void)
{
    const enum terminal_mode mode = (enum terminal_mode)T.mode;
    sigset_t old;
    if (T.holder) {
        restore_modes();
        T.mode = TERMINAL_COOKED;
        T.holder->stop();
    } else {
        block_all(&old);
        stop_here();
    }
    T.stopping = 0;
    if (mode != TERMINAL_COOKED)
        take_up(mode);
    if (!T.holder)
        sigprocmask(SIG_SETMASK, &old, NULL);
}

void terminal_size(int fd, size_t *cols, size_t *rows)
{
    struct winsize w = {0};
    ioctl(fd, TIOCGWINSZ, &w);
    *cols = w.ws_col > 0 ? w.ws_col : 80;
    *rows = w.ws_row > 0 ? w.ws_row : 24;
}
