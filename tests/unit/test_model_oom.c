// Every allocation of opening a model fails once. Linked with --wrap for malloc and its kin.
#include "test.h"

#include "failing_allocations.h"
#include "model/model.h"
#include "tiny_model.h"

static void a_failed_allocation_is_out_of_memory_and_leaks_nothing(void **state)
{
    (void)state;
    struct tiny t;
    struct buf b = {0};
    tiny_init(&t, "qwen3");
    tiny_tensor(&t, "output_norm.weight", QUANT_F16, TINY_EMBD, 0); // converted
    tiny_write(&t, &b);
    tiny_release(&t);
    assert_false(b.failed);
    struct model *m = NULL;
    long n_failed = 0;
    for (; !m && n_failed < 100000; n_failed++) {
        struct error err = {0};
        allowed = n_failed;
        struct gguf *g = gguf_open_memory(b.data, b.len, "tiny", &err);
        m = g ? model_from_gguf(g, "tiny", &err) : NULL;
        allowed = -1;
        if (!m && err.code != ERR_MEMORY)
            fail_msg("allocation %ld: code %d, \"%s\"", n_failed, (int)err.code, err.text);
    }
    assert_non_null(m);
    assert_true(n_failed > 10);
    model_free(m);
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_allocation_is_out_of_memory_and_leaks_nothing),
    };
    return RUN_TESTS("model_oom", tests);
}
