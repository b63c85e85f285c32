// Every allocation in reading the Hub's list of files and choosing from it fails once. Linked with
// --wrap for malloc and its kin.
#include "test.h"

#include "failing_allocations.h"
#include "hub/listing.h"

static const char page[] =
    "[{\"type\":\"directory\",\"path\":\"d\"},"
    "{\"type\":\"file\",\"path\":\"d/m-q4_k_m-00001-of-00002.gguf\",\"size\":5,\"lfs\":{\"oid\":"
    "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\",\"size\":5}},"
    "{\"type\":\"file\",\"path\":\"d/m-q4_k_m-00002-of-00002.gguf\",\"size\":6},"
    "{\"type\":\"file\",\"path\":\"m-q8_0.gguf\",\"size\":7}]";

static void a_failed_allocation_is_out_of_memory_and_leaks_nothing(void **state)
{
    (void)state;
    bool ok = false;
    long n = 0;
    for (; !ok && n < 10000; n++) {
        struct error err = {0};
        struct hub_listing l = {0};
        struct hub_choice c;
        allowed = n;
        ok = hub_listing_parse(&l, page, sizeof page - 1, &err) &&
             hub_choose(&l, "u/r", "", &c, &err);
        allowed = -1;
        if (!ok && err.code != ERR_MEMORY)
            fail_msg("allocation %ld: code %d, \"%s\"", n, (int)err.code, err.text);
        if (ok) {
            assert_int_equal(l.n, 3);
            assert_int_equal(c.n, 2);
            assert_string_equal(c.tag, "Q4_K_M");
        }
        hub_listing_release(&l);
    }
    assert_true(ok && n > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_allocation_is_out_of_memory_and_leaks_nothing),
    };
    return RUN_TESTS("hub_oom", tests);
}
