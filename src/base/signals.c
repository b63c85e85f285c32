#include "base/signals.h"

#include <stddef.h>

#include "base/clock.h"
#include "base/mapped.h"

// A handler can only reach static storage.
static struct cancel cancel;
static volatile sig_atomic_t caught;
static void (*leave)(int sig);

void signals_die(int sig)
{
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigset_t one;
    sigaction(sig, &dfl, NULL);
    sigemptyset(&one);
    sigaddset(&one, sig);
    raise(sig);
    sigprocmask(SIG_UNBLOCK, &one, NULL); // in a handler the signal waits until here
}

void signals_let_leave(void (*f)(int sig))
{
    leave = f;
}

bool signals_leave_by(int sig, const siginfo_t *info)
{
    if (!leave || info->si_code != SI_TKILL)
        return false;
    leave(sig);
    return true;
}

static struct {
    int sig;
    pid_t from;
    double at;
} last; // that a process sent

bool signals_echoes(int sig, int code, pid_t from, double now)
{
    if (code != SI_USER || (sig != SIGINT && sig != SIGTERM && sig != SIGHUP))
        return false;
    const bool same = sig == last.sig && from == last.from && now - last.at <= SIGNALS_ECHO_S;
    if (!same) {
        last.sig = sig;
        last.from = from;
        last.at = now;
    }
    return same;
}

static void on_signal(int sig, siginfo_t *info, void *context)
{
    (void)context;
    if (signals_echoes(sig, info->si_code, info->si_pid, clock_now()))
        return;
    if (caught && !signals_leave_by(sig, info))
        signals_die(sig);
    if (!caught)
        caught = sig;
    cancel_ask(&cancel);
}

static void on_bus(int sig, siginfo_t *info, void *context)
{
    (void)context;
    if (!mapped_fault(info->si_addr))
        signals_die(sig);
}

struct cancel *signals_begin(void)
{
    static const int handled[] = {SIGINT, SIGTERM, SIGHUP};
    // no SA_RESTART: reads must return
    struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO}, before;
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++)
        sigaddset(&sa.sa_mask, handled[i]);
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++)
        if (sigaction(handled[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(handled[i], &sa, NULL);
    struct sigaction bus = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGBUS, &bus, NULL);
    mapped_watch(&cancel);
    return &cancel;
}

int signals_caught(void)
{
    return caught;
}

int signals_forget(void)
{
    cancel_clear(&cancel); // first: what comes in between is told
    return __atomic_exchange_n(&caught, 0, __ATOMIC_SEQ_CST);
}
