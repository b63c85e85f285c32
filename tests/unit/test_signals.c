// Who hears the first signal, and whom the second one kills: in children, which tell by how they
// end.
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

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
        cmocka_unit_test(in_the_chat_what_was_heard_is_forgiven),
    };
    return RUN_TESTS("signals", tests);
}
