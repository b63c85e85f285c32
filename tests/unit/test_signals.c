// Who hears the first signal, and whom the second one kills: in children, which tell by how they
// end.
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/signals.h"
#include "editor/terminal.h"

// Runs f in a child; its result as a shell shows it: what it returns, or 128 + the signal.
static int result_of(int (*f)(void))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGINT, SIG_DFL); // a background job has them ignored
        signal(SIGTERM, SIG_DFL);
        _exit(f());
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int first(void)
{
    const struct cancel *c = signals_begin();
    if (cancel_asked(c) || signals_caught())
        return 1;
    raise(SIGTERM);
    return !cancel_asked(c) || signals_caught() != SIGTERM;
}

static int second(void)
{
    signals_begin();
    raise(SIGTERM);
    raise(SIGINT);
    return 1;
}

static int ignored(void)
{
    signal(SIGINT, SIG_IGN);
    const struct cancel *c = signals_begin();
    raise(SIGINT);
    raise(SIGINT);
    return cancel_asked(c);
}

static void the_first_asks_and_the_second_kills(void **state)
{
    (void)state;
    assert_int_equal(result_of(first), 0);
    assert_int_equal(result_of(second), 128 + SIGINT);
    assert_int_equal(result_of(ignored), 0);
}

static void what_a_process_sends_twice_at_once_is_one_signal(void **state)
{
    (void)state;
    const double later = 1 + SIGNALS_ECHO_S * 1.1;
    assert_false(signals_echoes(SIGTERM, SI_USER, 7, 1));
    assert_true(signals_echoes(SIGTERM, SI_USER, 7, 1.01));
    assert_true(signals_echoes(SIGTERM, SI_USER, 7, 1.02));
    assert_false(signals_echoes(SIGTERM, SI_USER, 8, 1.03)); // another process
    assert_false(signals_echoes(SIGINT, SI_USER, 8, 1.03));  // another signal
    assert_false(signals_echoes(SIGTERM, SI_USER, 7, 1));
    assert_false(signals_echoes(SIGTERM, SI_USER, 7, later));
    assert_false(signals_echoes(SIGTERM, SI_TKILL, 7, later)); // handed on, by a thread
    assert_false(signals_echoes(SIGWINCH, SI_USER, 7, 1));     // each may tell of another size
    assert_false(signals_echoes(SIGWINCH, SI_USER, 7, 1));
    assert_false(signals_echoes(SIGINT, SI_KERNEL, 0, later)); // keys
    assert_false(signals_echoes(SIGINT, SI_KERNEL, 0, later));
}

// What a slow machine has between them says whether that is one signal.
static int twice(bool (*begin)(void), int sig)
{
    if (!begin())
        return 1;
    const double at = clock_now();
    kill(getpid(), sig);
    if (clock_now() - at > SIGNALS_ECHO_S / 2)
        return 2;
    kill(getpid(), sig);
    return 0;
}

static bool begin_program(void)
{
    return signals_begin() != NULL;
}

static int program_twice(void)
{
    return twice(begin_program, SIGTERM);
}

static struct cancel flag;

static bool begin_chat(void)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0)
        return false;
    int fd = open(ptsname(master), O_RDWR | O_NOCTTY);
    return fd >= 0 && terminal_begin(fd, fd, false, &flag);
}

static int chat_unheard(void)
{
    if (!begin_chat())
        return 1;
    raise(SIGINT);
    if (!cancel_asked(&flag))
        return 2;
    raise(SIGINT);
    return 3;
}

static int chat_heard(void)
{
    if (!begin_chat())
        return 1;
    for (int i = 0; i < 3; i++) {
        raise(SIGINT);
        if (!terminal_events().interrupt)
            return 2;
    }
    return 0;
}

static int chat_reading(void)
{
    if (!begin_chat())
        return 1;
    terminal_set_reading(true);
    raise(SIGINT);
    raise(SIGINT);
    return !terminal_events().interrupt;
}

static int chat_twice(void)
{
    return twice(begin_chat, SIGTERM);
}

static int chat_interrupted_twice(void)
{
    return twice(begin_chat, SIGINT);
}

static void one_signal_that_comes_twice_does_not_kill(void **state)
{
    (void)state;
    int (*const tries[])(void) = {program_twice, chat_twice, chat_interrupted_twice};
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        int result;
        do
            result = result_of(tries[i]);
        while (result == 2);
        assert_int_equal(result, 0);
    }
}

static void in_the_chat_what_was_heard_is_forgiven(void **state)
{
    (void)state;
    assert_int_equal(result_of(chat_unheard), 128 + SIGINT);
    assert_int_equal(result_of(chat_heard), 0);
    assert_int_equal(result_of(chat_reading), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_asks_and_the_second_kills),
        cmocka_unit_test(what_a_process_sends_twice_at_once_is_one_signal),
        cmocka_unit_test(one_signal_that_comes_twice_does_not_kill),
        cmocka_unit_test(in_the_chat_what_was_heard_is_forgiven),
    };
    return RUN_TESTS("signals", tests);
}
