// cmocka with what it needs included first, and a main that prints TAP for Meson.
#ifndef HOKKU_TESTS_UNIT_TEST_H
#define HOKKU_TESTS_UNIT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

// HOKKU_TEST=PATTERN runs those tests alone whose name it matches (* and ?), for a tool that slows
// a program down a hundred times.
// (What does not apply returns: what cmocka prints of skip() counts as a failure.)
#define RUN_TESTS(name, tests)                                                                     \
    (cmocka_set_message_output(CM_OUTPUT_TAP), cmocka_set_test_filter(getenv("HOKKU_TEST")),       \
     cmocka_run_group_tests_name(name, tests, NULL, NULL))

// HOKKU_QUICK=1, as the build's default tests have it: fewer cases of a kind. Suite slow has them
// all.
static inline bool quick(void)
{
    return getenv("HOKKU_QUICK") != NULL;
}

#endif
