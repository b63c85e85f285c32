// GGUF at its borders: nesting as deep as allowed and one deeper, numbers at the ends of their
// ranges, and a dequantiser that writes what it was asked for and not one value more.
#include "test.h"

#include <math.h>

#include "gguf/gguf.h"
#include "gguf/quant.h"
#include "image.h"

// The file's bytes at *block (to be freed after the file), as long as they are and no longer.
static struct gguf *open_image(struct buf *b, void **block, struct error *err)
{
    assert_false(b->failed);
    *block = malloc(b->len);
    assert_non_null(*block);
    memcpy(*block, b->data, b->len);
    struct gguf *g = gguf_open_memory(*block, b->len, "m.gguf", err);
    buf_release(b);
    return g;
}

// [[[...[7]...]]] with so many brackets.
static bool nested(int depth, struct error *err)
{
    struct buf b = {0};
    void *block;
    put_header(&b, 3, 0, 1);
    put_str(&b, "deep");
    put_u32(&b, GGUF_ARRAY);
    for (int i = 1; i < depth; i++) {
        put_u32(&b, GGUF_ARRAY);
        put_u64(&b, 1);
    }
    put_u32(&b, GGUF_UINT8);
    put_u64(&b, 1);
    buf_putc(&b, 7);
    put_padding(&b, 32);
    struct gguf *g = open_image(&b, &block, err);
    bool ok = g != NULL;
    gguf_free(g);
    free(block);
    return ok;
}

static void arrays_nest_as_deep_as_the_message_says(void **state)
{
    (void)state;
    struct error err = {0};
    int depth = 1;
    while (depth < 100 && nested(depth + 1, &err))
        depth++;
    int said = 0;
    const char *words = strstr(err.text, "nested more than ");
    assert_non_null(words);
    assert_int_equal(sscanf(words, "nested more than %d deep", &said), 1);
    assert_int_equal(depth, said);
}

static void numbers_at_the_ends_of_their_ranges(void **state)
{
    (void)state;
    static const double values[] = {0x1p63, -0x1p63, 0x1p62, -0x1.8p63, 1.9, -1.9};
    static const int64_t want[] = {0, INT64_MIN, (int64_t)1 << 62, 0, 1, -1};
    struct buf b = {0};
    void *block;
    struct error err = {0};
    put_header(&b, 3, 0, 4);
    put_str(&b, "doubles");
    put_u32(&b, GGUF_ARRAY);
    put_u32(&b, GGUF_FLOAT64);
    put_u64(&b, 6);
    for (int i = 0; i < 6; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        put_u64(&b, bits);
    }
    put_kv_u32(&b, "most", UINT32_MAX);
    put_str(&b, "more");
    put_u32(&b, GGUF_UINT64);
    put_u64(&b, (uint64_t)UINT32_MAX + 1);
    put_str(&b, "minus");
    put_u32(&b, GGUF_INT64);
    put_u64(&b, (uint64_t)-1);
    put_padding(&b, 32);
    struct gguf *g = open_image(&b, &block, &err);
    if (!g)
        fail_msg("%s", err.text);
    struct gguf_array a;
    assert_true(gguf_get_array(g, "doubles", GGUF_FLOAT64, &a, &err));
    for (uint64_t i = 0; i < 6; i++)
        assert_true(gguf_array_i64(&a, i) == want[i]);
    uint32_t u = 5;
    assert_true(gguf_get_u32(g, "most", true, &u, &err) && u == UINT32_MAX);
    u = 5;
    assert_false(gguf_get_u32(g, "more", true, &u, &err));
    assert_non_null(strstr(err.text, "4294967296"));
    assert_false(gguf_get_u32(g, "minus", true, &u, &err));
    assert_int_equal(u, 5);
    float f = 5;
    assert_false(gguf_get_f32(g, "absent", true, &f, &err));
    assert_true(gguf_get_f32(g, "absent", false, &f, &err));
    assert_true(f == 5);
    gguf_free(g);
    free(block);
}

static void half_floats_round_to_nearest_up_to_infinity(void **state)
{
    (void)state;
    static const struct {
        float f;
        uint16_t h;
    } cases[] = {
        {65504, 0x7BFF},  {65519.996f, 0x7BFF},  {65520, 0x7C00},       {-65520, 0xFC00},
        {1, 0x3C00},      {1.00048828f, 0x3C00}, {1.00048840f, 0x3C01}, {1.00146484f, 0x3C02},
        {0x1p-24f, 1},    {0x1p-25f, 0},         {0x1.000002p-25f, 1},  {0x1.8p-24f, 2},
        {0x1p-14f, 1024}, {INFINITY, 0x7C00},    {0x1.ff8p-15f, 0x3FF}, {-0.0f, 0x8000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (quant_f32_to_f16(cases[i].f) != cases[i].h)
            fail_msg("%a is %#x, expected %#x", (double)cases[i].f, quant_f32_to_f16(cases[i].f),
                     cases[i].h);
}

static void dequantising_writes_so_many_values(void **state)
{
    (void)state;
    unsigned char src[2 * 512];
    memset(src, 0x21, sizeof src);
    for (uint32_t type = 0; type < QUANT_TYPE_MAX; type++) {
        const struct quant_info *q = quant_info(type);
        if (!q->name || !q->supported)
            continue;
        for (size_t n_blocks = 1; n_blocks <= 2; n_blocks++) {
            const size_t n = n_blocks * q->block_elems;
            float dst[2 * 256 + 64];
            const uint32_t guard = 0x7FC01234; // a NaN of its own
            for (size_t i = 0; i < sizeof dst / sizeof *dst; i++)
                memcpy(&dst[i], &guard, sizeof guard);
            quant_dequantize(type, src, dst, n);
            for (size_t i = 0; i < sizeof dst / sizeof *dst; i++) {
                bool untouched = memcmp(&dst[i], &guard, sizeof guard) == 0;
                if (untouched != (i >= n))
                    fail_msg("%s: of %zu values number %zu", q->name, n, i);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_nest_as_deep_as_the_message_says),
        cmocka_unit_test(numbers_at_the_ends_of_their_ranges),
        cmocka_unit_test(half_floats_round_to_nearest_up_to_infinity),
        cmocka_unit_test(dequantising_writes_so_many_values),
    };
    return RUN_TESTS("gguf_edges", tests);
}
