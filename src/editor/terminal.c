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
    int pipe[2];
} T = {.pipe = {-1, -1}};

static const int handled[] = {SIGINT,  SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH,
                              SIGSEGV, SIGBUS,  SIGFPE, SIGILL,  SIGABRT, SIGPIPE};
enum { N_HANDLED = sizeof handled / sizeof *handled };
static struct sigaction before[N_HANDLED];

static const char undo[] = "\x1b[?2004l\x1b[0m"; // bracketed paste, colours

void terminal_put_back(void)
{
    tcsetattr(T.fd, TCSADRAIN, &T.found);
    if (T.ansi) {
        ssize_t ignored = write(T.fd_out, undo, sizeof undo - 1);
        (void)ignored;
    }
}

// Only calls that are safe in a handler.
static void restore_modes(void)
{
    if (T.mode != TERMINAL_COOKED)
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
    // A paste that comes during an answer must still be one message for the line editor.
    tell_terminal("\x1b[?2004h", 8);
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
        if (T.mode == TERMINAL_ANSWERING) {
            restore_modes();
            terminal_suspend();
            set_modes(TERMINAL_ANSWERING);
        } else {
            T.stop = 1;
        }
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
    T.interrupt = T.stop = T.resize = T.death = 0;
    T.active = true;
    for (size_t i = 0; i < N_HANDLED; i++) {
        struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_RESTART | SA_SIGINFO};
        sigfillset(&sa.sa_mask);
        sigaction(handled[i], NULL, &before[i]);
        // A signal that the parent chose to ignore (nohup, a background job) stays ignored.
        if (before[i].sa_handler != SIG_IGN)
            sigaction(handled[i], &sa, NULL);
    }
    return true;
}

void terminal_end(void)
{
    if (!T.active)
        return;
    terminal_set_mode(TERMINAL_COOKED);
    for (size_t i = 0; i < N_HANDLED; i++)
        sigaction(handled[i], &before[i], NULL);
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
        set_modes(mode);
    } else {
        tell_terminal("\x1b[?2004l", 8);
        tcsetattr(T.fd, TCSADRAIN, &T.found);
    }
    T.mode = mode;
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

static bool same_modes(const struct termios *a, const struct termios *b)
{
    return a->c_iflag == b->c_iflag && a->c_oflag == b->c_oflag && a->c_cflag == b->c_cflag &&
           a->c_lflag == b->c_lflag && memcmp(a->c_cc, b->c_cc, sizeof a->c_cc) == 0;
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

void terminal_suspend(void)
{
    if (T.holder) {
        T.holder->stop();
        return;
    }
    struct sigaction dfl = {.sa_handler = SIG_DFL}, mine;
    sigset_t one, old;
    sigaction(SIGTSTP, &dfl, &mine);
    sigemptyset(&one);
    sigaddset(&one, SIGTSTP);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &one, &old); // stops here, goes on here
    sigprocmask(SIG_SETMASK, &old, NULL);
    sigaction(SIGTSTP, &mine, NULL);
}

void terminal_size(int fd, size_t *cols, size_t *rows)
{
    struct winsize w = {0};
    ioctl(fd, TIOCGWINSZ, &w);
    *cols = w.ws_col > 0 ? w.ws_col : 80;
    *rows = w.ws_row > 0 ? w.ws_row : 24;
}
