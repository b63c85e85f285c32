#include "test.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf/gguf.h"
#include "image.h"

// The image, moved to a block of exactly its size so that ASan sees any read beyond it.
static struct gguf *open_image(struct buf *b, void **block, struct error *err)
{
    assert_false(b->failed);
    *block = malloc(b->len ? b->len : 1);
    assert_non_null(*block);
    memcpy(*block, buf_str(b), b->len);
    struct gguf *g = gguf_open_memory(*block, b->len, "image", err);
    buf_release(b);
    return g;
}

// The image must be refused as a model that cannot be loaded, with this text in the message.
static void refuse(struct buf *b, const char *text)
{
    struct error err = {0};
    void *block;
    struct gguf *g = open_image(b, &block, &err);
    assert_null(g);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" does not say \"%s\"", err.text, text);
    assert_int_equal(err.code, ERR_MODEL);
    assert_int_equal(strncmp(err.text, "image: ", 7), 0);
    free(block);
}

static void all_value_types_are_read(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        struct buf b = {0};
        put_header(&b, version, 0, 13);
        static const struct {
            const char *key;
            enum gguf_value_type type;
            uint64_t raw;
            int n_bytes;
        } plain[] = {
            {"u8", GGUF_UINT8, 0xFE, 1},
            {"i8", GGUF_INT8, 0xFE, 1},
            {"u16", GGUF_UINT16, 0xFFFE, 2},
            {"i16", GGUF_INT16, 0xFFFE, 2},
            {"u32", GGUF_UINT32, 0xFFFFFFFE, 4},
            {"i32", GGUF_INT32, 0xFFFFFFFE, 4},
            {"u64", GGUF_UINT64, 0xFFFFFFFFFFFFFFFE, 8},
            {"i64", GGUF_INT64, 0xFFFFFFFFFFFFFFFE, 8},
            {"f32", GGUF_FLOAT32, 0x3FC00000, 4},         // 1.5
            {"f64", GGUF_FLOAT64, 0xC004000000000000, 8}, // -2.5
            {"bool", GGUF_BOOL, 1, 1},
        };
        for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
            put_str(&b, plain[i].key);
            put_u32(&b, plain[i].type);
            put_uint(&b, plain[i].raw, plain[i].n_bytes);
        }
        put_kv_str(&b, "str", "caf\xC3\xA9");
        put_str(&b, "nested"); // [["a", ""], [7, -1] as int16, []]
        put_u32(&b, GGUF_ARRAY);
        put_u32(&b, GGUF_ARRAY);
        put_u64(&b, 3);
        put_u32(&b, GGUF_STRING);
        put_u64(&b, 2);
        put_str(&b, "a");
        put_str(&b, "");
        put_u32(&b, GGUF_INT16);
        put_u64(&b, 2);
        put_uint(&b, 7, 2);
        put_uint(&b, 0xFFFF, 2);
        put_u32(&b, GGUF_UINT8);
        put_u64(&b, 0);

        struct error err = {0};
        void *block;
        struct gguf *g = open_image(&b, &block, &err);
        if (!g)
            fail_msg("%s", err.text);
        assert_int_equal(gguf_version(g), version);
        assert_int_equal(gguf_n_kv(g), 13);
        assert_int_equal(gguf_alignment(g), 32);
        assert_int_equal(gguf_find(g, "u8")->v.u, 254);
        assert_int_equal(gguf_find(g, "i8")->v.i, -2);
        assert_int_equal(gguf_find(g, "u16")->v.u, 65534);
        assert_int_equal(gguf_find(g, "i16")->v.i, -2);
        assert_int_equal(gguf_find(g, "u32")->v.u, 0xFFFFFFFE);
        assert_int_equal(gguf_find(g, "i32")->v.i, -2);
        assert_true(gguf_find(g, "u64")->v.u == UINT64_MAX - 1);
        assert_int_equal(gguf_find(g, "i64")->v.i, -2);
        assert_true(gguf_find(g, "f32")->v.f == 1.5);
        assert_true(gguf_find(g, "f64")->v.f == -2.5);
        assert_int_equal(gguf_find(g, "bool")->v.u, 1);
        assert_null(gguf_find(g, "absent"));
        assert_null(gguf_find(g, "u"));

        struct gguf_str s;
        assert_true(gguf_get_str(g, "str", true, &s, &err));
        assert_int_equal(s.len, 5);
        assert_memory_equal(s.data, "caf\xC3\xA9", 5);
        struct gguf_array a;
        assert_true(gguf_get_array(g, "nested", GGUF_ARRAY, &a, &err));
        assert_int_equal(a.count, 3);
        assert_int_equal(a.n_bytes, 12 + 9 + 8 + 12 + 4 + 12);

        // Getters: ranges, kinds, absence.
        uint32_t u = 77;
        float f = 77;
        bool t = false;
        assert_true(gguf_get_u32(g, "u8", true, &u, &err) && u == 254);
        assert_false(gguf_get_u32(g, "i8", true, &u, &err));
        assert_string_equal(err.text, "metadata key i8 is -2, expected 0-4294967295");
        assert_false(gguf_get_u32(g, "u64", true, &u, &err));
        assert_false(gguf_get_u32(g, "f32", true, &u, &err));
        assert_string_equal(err.text, "metadata key f32 is of type float32, expected an integer");
        assert_false(gguf_get_u32(g, "absent", true, &u, &err));
        assert_string_equal(err.text, "metadata key absent is missing");
        assert_true(gguf_get_u32(g, "absent", false, &u, &err) && u == 254);
        assert_true(gguf_get_f32(g, "f64", true, &f, &err) && f == -2.5f);
        assert_true(gguf_get_f32(g, "i16", true, &f, &err) && f == -2);
        assert_false(gguf_get_f32(g, "str", true, &f, &err));
        assert_true(gguf_get_bool(g, "bool", true, &t, &err) && t);
        assert_false(gguf_get_bool(g, "u8", true, &t, &err));
        assert_false(gguf_get_str(g, "u8", true, &s, &err));
        assert_false(gguf_get_array(g, "nested", GGUF_STRING, &a, &err));
        assert_false(gguf_get_array(g, "u8", GGUF_STRING, &a, &err));
        gguf_free(g);
        free(block);
    }
}

static void put_array_head(struct buf *b, const char *key, enum gguf_value_type type, uint64_t n)
{
    put_str(b, key);
    put_u32(b, GGUF_ARRAY);
    put_u32(b, type);
    put_u64(b, n);
}

static void array_elements_are_read(void **state)
{
    (void)state;
    struct buf b = {0};
    put_header(&b, 3, 0, 4);
    put_array_head(&b, "strings", GGUF_STRING, 3);
    put_str(&b, "one");
    put_str(&b, "");
    put_str(&b, "three");
    put_array_head(&b, "i8", GGUF_INT8, 2);
    put_uint(&b, 0x80, 1);
    put_uint(&b, 0x7F, 1);
    put_array_head(&b, "f32", GGUF_FLOAT32, 2);
    put_f32(&b, 0.5f);
    put_f32(&b, -1e30f);
    put_array_head(&b, "u64", GGUF_UINT64, 1);
    put_u64(&b, UINT64_MAX);
    struct error err = {0};
    void *block;
    struct gguf *g = open_image(&b, &block, &err);
    assert_non_null(g);
    struct gguf_array a;
    struct gguf_str s;
    size_t cursor = 0, n = 0;
    static const char *const want[] = {"one", "", "three"};
    assert_true(gguf_get_array(g, "strings", GGUF_STRING, &a, &err));
    for (; gguf_array_next_str(&a, &cursor, &s); n++) {
        assert_int_equal(s.len, strlen(want[n]));
        assert_memory_equal(s.data, want[n], s.len);
    }
    assert_int_equal(n, 3);
    assert_true(gguf_get_array(g, "i8", GGUF_INT8, &a, &err));
    assert_int_equal(gguf_array_i64(&a, 0), -128);
    assert_int_equal(gguf_array_i64(&a, 1), 127);
    assert_true(gguf_array_f64(&a, 0) == -128);
    assert_true(gguf_get_array(g, "f32", GGUF_FLOAT32, &a, &err));
    assert_true(gguf_array_f64(&a, 0) == 0.5);
    assert_int_equal(gguf_array_i64(&a, 1), 0); // out of range: not undefined
    assert_true(gguf_get_array(g, "u64", GGUF_UINT64, &a, &err));
    assert_true(gguf_array_f64(&a, 0) == 0x1p64);
    gguf_free(g);
    free(block);
}

static void headers_that_are_not_gguf_say_what_they_are(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *text;
    } v[] = {
        {"", 0, "has 0 bytes, too few"},
        {"GGUF\x03\0\0", 7, "has 7 bytes, too few"},
        {"GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 19, "8 bytes are wanted at byte 16"},
        {"GGUF\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24, "big-endian"},
        {"FUGG\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24, "big-endian"},
        {"GGUF\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24, "version 1, expected 2 or 3"},
        {"GGUF\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24, "version 4, expected 2 or 3"},
        {"tjgg\3\0\0\0", 8, "GGJT file of before GGUF"},
        {"<!DOCTYPE html>", 15, "web page"},
        {"version https://git-lfs", 23, "Git LFS pointer"},
        {"\x1F\x8B\x08\0\0\0\0\0\2\3", 10, "expected \"GGUF\" (packed by gzip; unpack it first)"},
        {"\x28\xB5\x2F\xFD\4\0\1\2", 8, "(packed by zstd; unpack it first)"},
        {"\x3D\0\0\0\0\0\0\0{\"a\":", 13, "(a safetensors file; convert it to GGUF)"},
        {"\x3D\0\0\0\0\0\0\0{", 9, "begins with \"=\\x00\\x00\\x00\", expected \"GGUF\""},
        {"\x1B[2J\n\n\n\n", 8, "begins with \"\\x1B[2J\", expected \"GGUF\""},
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct buf b = {0};
        buf_append(&b, v[i].bytes, v[i].n);
        refuse(&b, v[i].text);
    }
}

static void absurd_counts_and_lengths_are_refused(void **state)
{
    (void)state;
    struct buf b = {0};
    put_header(&b, 3, 0, UINT64_MAX);
    put_bytes(&b, 0, 100);
    refuse(&b, "18,446,744,073,709,551,615 metadata keys, but only 100 bytes follow");

    put_header(&b, 3, 1ull << 61, 0);
    put_bytes(&b, 0, 100);
    refuse(&b, "2,305,843,009,213,693,952 tensors, but only 100 bytes follow");

    put_header(&b, 3, 0, 1);
    put_u64(&b, UINT64_MAX - 3); // the key's length
    put_bytes(&b, 'x', 100);
    refuse(&b, "metadata key 1 of 1: 18,446,744,073,709,551,612 bytes are wanted");

    put_header(&b, 3, 0, 1);
    put_str(&b, "");
    put_bytes(&b, 0, 100);
    refuse(&b, "0 bytes long, expected 1-65535");

    put_header(&b, 3, 0, 1);
    put_str(&b, "tokens");
    put_u32(&b, GGUF_STRING);
    put_u64(&b, 1ull << 40);
    put_bytes(&b, 0, 10);
    refuse(&b, "metadata key tokens: 1,099,511,627,776 bytes are wanted");

    static const enum gguf_value_type types[] = {GGUF_UINT8, GGUF_FLOAT64, GGUF_STRING, GGUF_ARRAY};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        put_header(&b, 3, 0, 1);
        put_array_head(&b, "many", types[i], UINT64_MAX / 8 + 2); // times 8 it would wrap
        put_bytes(&b, 0, 64);
        refuse(&b, "metadata key many: array of 2,305,843,009,213,693,953 elements");
    }

    put_header(&b, 3, 0, 1);
    put_str(&b, "odd");
    put_u32(&b, 13);
    put_bytes(&b, 0, 64);
    refuse(&b, "metadata key odd: value type 13, expected 0-12");

    put_header(&b, 3, 0, 1);
    put_array_head(&b, "odd", 99, 1);
    put_bytes(&b, 0, 64);
    refuse(&b, "metadata key odd: array of value type 99");

    put_header(&b, 3, 0, 1);
    put_str(&b, "maybe");
    put_u32(&b, GGUF_BOOL);
    put_bytes(&b, 2, 1);
    refuse(&b, "metadata key maybe: a bool has the value 2, expected 0 or 1");

    put_header(&b, 3, 0, 1);
    put_str(&b, "deep");
    put_u32(&b, GGUF_ARRAY);
    for (int i = 0; i < 1000; i++) {
        put_u32(&b, GGUF_ARRAY);
        put_u64(&b, 1);
    }
    put_bytes(&b, 0, 64);
    refuse(&b, "arrays nested more than 8 deep");
}

static void a_key_given_twice_is_refused(void **state)
{
    (void)state;
    struct buf b = {0};
    put_header(&b, 3, 0, 3);
    put_kv_u32(&b, "llama.block_count", 1);
    put_kv_u32(&b, "llama", 1);
    put_kv_u32(&b, "llama.block_count", 2);
    refuse(&b, "metadata key llama.block_count appears twice, expected once");
}

struct tensor_case {
    const char *name;
    uint32_t type, n_dims;
    uint64_t ne[4], offset;
};

static void put_tensor_image(struct buf *b, const struct tensor_case *t, size_t n, size_t n_data)
{
    put_header(b, 3, n, 0);
    for (size_t i = 0; i < n; i++)
        put_tensor(b, t[i].name, t[i].type, t[i].n_dims, t[i].ne, t[i].offset);
    put_padding(b, 32);
    put_bytes(b, 0x11, n_data);
}

static void tensors_that_do_not_fit_their_file_are_refused(void **state)
{
    (void)state;
    static const struct {
        struct tensor_case t;
        const char *text;
    } v[] = {
        {{"a", QUANT_F32, 2, {8, 5}, 0}, "tensor a ends at byte 256 but the file has 224"},
        {{"a", QUANT_F32, 2, {8, 4}, 32}, "tensor a ends at byte 256 but the file has 224"},
        {{"a", QUANT_F32, 1, {1}, 1ull << 40}, "truncated download?"},
        {{"a", QUANT_F32, 1, {1}, UINT64_MAX - 31}, "beyond any file"},
        {{"a", QUANT_F32, 1, {1}, 4}, "offset 4, expected a multiple of the alignment, 32"},
        {{"a", QUANT_F32, 0, {1}, 0}, "tensor a has 0 dimensions, expected 1-4"},
        {{"a", QUANT_F32, 2, {8, 0}, 0}, "tensor a has 0 as its dimension 1"},
        {{"a", QUANT_F32, 2, {1ull << 32, 1ull << 32}, 0}, "more weights than any file holds"},
        {{"a", QUANT_F32, 1, {1ull << 63}, 0}, "more weights than any file holds"},
        {{"a", QUANT_F32, 1, {1ull << 62}, 0}, "more than any file holds"},
        {{"a", QUANT_Q4_0, 1, {33}, 0}, "rows of 33 weights, expected a multiple of 32 (Q4_0)"},
        {{"a", QUANT_Q6_K, 2, {128, 2}, 0}, "rows of 128 weights, expected a multiple of 256"},
        {{"a", 15, 1, {256}, 0}, "has weight type Q8_K, which is not supported; these are: F32"},
        {{"a", 4, 1, {256}, 0}, "has weight type number 4, which is unknown; these work: F32, F16"},
        {{"a", 1000, 1, {256}, 0}, "has weight type number 1000"},
        {{"", QUANT_F32, 1, {8}, 0}, "tensor 1 of 1: has a name of 0 bytes, expected 1-64"},
        {{"\x1B]0;x\a%s%n", QUANT_F32, 1, {8}, 1}, "tensor \\x1B]0;x\\x07%s%n has offset 1"},
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct buf b = {0};
        put_tensor_image(&b, &v[i].t, 1, 128);
        refuse(&b, v[i].text);
    }
    struct buf b = {0};
    const struct tensor_case five = {"a", QUANT_F32, 5, {1, 1, 1, 1}, 0};
    put_header(&b, 3, 1, 0);
    put_str(&b, five.name);
    put_u32(&b, 5);
    put_bytes(&b, 1, 100);
    refuse(&b, "has 5 dimensions, expected 1-4");
}

static void overlapping_and_duplicate_tensors_are_refused(void **state)
{
    (void)state;
    struct buf b = {0};
    const struct tensor_case overlap[] = {
        {"b", QUANT_F32, 1, {8}, 32},
        {"a", QUANT_F32, 1, {9}, 0},
    };
    put_tensor_image(&b, overlap, 2, 128);
    refuse(&b, "tensor b begins at byte 128, inside tensor a, which ends at byte 132");
    const struct tensor_case twice[] = {
        {"a", QUANT_F32, 1, {8}, 32},
        {"a", QUANT_F32, 1, {8}, 0},
    };
    put_tensor_image(&b, twice, 2, 128);
    refuse(&b, "tensor a appears twice, expected once");
    const struct tensor_case fine[] = {
        {"b", QUANT_F32, 1, {8}, 32},
        {"a", QUANT_F32, 1, {8}, 0},
        {"c", QUANT_Q4_0, 3, {32, 1, 2}, 64},
    };
    struct error err = {0};
    void *block;
    put_tensor_image(&b, fine, 3, 128);
    struct gguf *g = open_image(&b, &block, &err);
    assert_non_null(g);
    const struct gguf_tensor *t = gguf_find_tensor(g, "c");
    assert_int_equal(t->n_bytes, 36);
    assert_int_equal(t->ne[2], 2);
    assert_int_equal(t->ne[3], 1);
    assert_true((const char *)t->data == (const char *)block + t->offset);
    assert_true(gguf_header_bytes(g, 0) <= gguf_data_offset(g, 0));
    assert_null(gguf_find_tensor(g, "d"));
    gguf_free(g);
    free(block);
}

static void alignment_is_any_multiple_of_eight(void **state)
{
    (void)state;
    static const struct {
        uint32_t alignment;
        bool ok;
    } v[] = {{8, true},  {40, true},  {4096, true}, {0, false},
             {4, false}, {12, false}, {33, false},  {UINT32_MAX, false}};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct buf b = {0};
        put_header(&b, 3, 1, 1);
        put_kv_u32(&b, "general.alignment", v[i].alignment);
        const uint64_t ne[] = {4};
        put_tensor(&b, "a", QUANT_F32, 1, ne, v[i].ok ? v[i].alignment : 0);
        if (!v[i].ok) {
            put_bytes(&b, 0, 100);
            refuse(&b, "expected a multiple of 8");
            continue;
        }
        put_padding(&b, v[i].alignment);
        put_bytes(&b, 0, v[i].alignment);
        size_t at = b.len;
        put_bytes(&b, 0x22, 16);
        struct error err = {0};
        void *block;
        struct gguf *g = open_image(&b, &block, &err);
        if (!g)
            fail_msg("%s", err.text);
        assert_int_equal(gguf_tensor_at(g, 0)->offset, at);
        assert_int_equal(((const unsigned char *)gguf_tensor_at(g, 0)->data)[0], 0x22);
        gguf_free(g);
        free(block);
    }
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    struct buf b = {0};
    put_header(&b, 3, 1, 3);
    put_kv_str(&b, "general.architecture", "llama");
    put_array_head(&b, "tokens", GGUF_STRING, 2);
    put_str(&b, "a");
    put_str(&b, "b");
    put_kv_f32(&b, "f", 1);
    const uint64_t ne[] = {32};
    put_tensor(&b, "t", QUANT_Q8_0, 1, ne, 0);
    put_padding(&b, 32);
    put_bytes(&b, 1, 34);
    for (size_t n = 0; n < b.len; n++) {
        struct error err = {0};
        void *block = malloc(n + 1);
        memcpy((char *)block + 1, b.data, n); // unaligned as well
        assert_null(gguf_open_memory((char *)block + 1, n, "image", &err));
        assert_int_equal(err.code, ERR_MODEL);
        free(block);
    }
    buf_release(&b);
}

// A directory of its own for files of the tests below.
static char dir[] = "/tmp/hokku-test-gguf-XXXXXX";

static const char *file(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void write_file(const char *name, struct buf *b)
{
    FILE *f = fopen(file(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(buf_str(b), 1, b->len, f), b->len);
    assert_int_equal(fclose(f), 0);
    buf_release(b);
}

static void refuse_file(const char *name, const char *text)
{
    struct error err = {0};
    assert_null(gguf_open(file(name), &err));
    assert_int_equal(err.code, ERR_MODEL);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" does not say \"%s\"", err.text, text);
}

static void what_is_no_regular_file_is_refused(void **state)
{
    (void)state;
    refuse_file("absent", "absent: cannot open: No such file or directory");
    refuse_file(".", "is a directory, expected a GGUF file");
    assert_int_equal(mkfifo(file("fifo"), 0600), 0);
    refuse_file("fifo", "is a pipe"); // and does not wait for a writer
    struct buf b = {0};
    write_file("empty", &b);
    refuse_file("empty", "empty: is empty");
    if (geteuid() != 0) {
        write_file("secret", &b);
        chmod(file("secret"), 0);
        refuse_file("secret", "Permission denied");
        unlink(file("secret"));
    }
    unlink(file("fifo"));
    unlink(file("empty"));
}

static void put_part(struct buf *b, uint32_t no, uint32_t count, uint32_t n_tensors,
                     const char *tensor)
{
    put_header(b, 3, 1, no == 0 ? 4 : 3);
    put_kv_u32(b, "split.no", no);
    put_kv_u32(b, "split.count", count);
    put_kv_u32(b, "split.tensors.count", n_tensors);
    if (no == 0)
        put_kv_str(b, "general.name", "whole");
    const uint64_t ne[] = {4};
    put_tensor(b, tensor, QUANT_F32, 1, ne, 0);
    put_padding(b, 32);
    put_bytes(b, (int)no + 1, 16);
}

static void split_files_open_from_any_part(void **state)
{
    (void)state;
    struct buf b = {0};
    char name[64];
    for (uint32_t i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "m-%05u-of-00003.gguf", i + 1);
        put_part(&b, i, 3, 3, (const char *[]){"c", "b", "a"}[i]);
        write_file(name, &b);
    }
    for (uint32_t i = 0; i < 3; i++) {
        struct error err = {0};
        snprintf(name, sizeof name, "m-%05u-of-00003.gguf", i + 1);
        struct gguf *g = gguf_open(file(name), &err);
        if (!g)
            fail_msg("%s", err.text);
        assert_int_equal(gguf_n_files(g), 3);
        assert_int_equal(gguf_n_tensors(g), 3);
        assert_non_null(strstr(gguf_file_path(g, 2), "m-00003-of-00003.gguf"));
        const struct gguf_tensor *t = gguf_find_tensor(g, "a");
        assert_int_equal(t->file, 2);
        assert_int_equal(*(const unsigned char *)t->data, 3);
        struct gguf_str s;
        assert_true(gguf_get_str(g, "general.name", true, &s, &err));
        gguf_free(g);
    }
    put_part(&b, 1, 3, 3, "c");
    write_file("m-00002-of-00003.gguf", &b);
    refuse_file("m-00001-of-00003.gguf", "tensor c appears twice");
    put_part(&b, 2, 3, 3, "b");
    write_file("m-00002-of-00003.gguf", &b);
    refuse_file("m-00001-of-00003.gguf", "m-00002-of-00003.gguf: split.no is 2, expected 1");
    put_part(&b, 1, 4, 3, "b");
    write_file("m-00002-of-00003.gguf", &b);
    refuse_file("m-00001-of-00003.gguf", "split.count is 4, expected 3");
    unlink(file("m-00002-of-00003.gguf"));
    refuse_file("m-00003-of-00003.gguf",
                "m-00002-of-00003.gguf: part 2 of 3: cannot open: No such");
    put_part(&b, 1, 3, 3, "b");
    write_file("m-00002-of-00003.gguf", &b);
    put_header(&b, 3, 1, 2);
    put_kv_u32(&b, "split.no", 1);
    put_kv_u32(&b, "split.count", 3);
    put_tensor(&b, "b", QUANT_F32, 1, (const uint64_t[]){4}, 0);
    put_padding(&b, 32);
    put_bytes(&b, 2, 16);
    write_file("m-00002-of-00003.gguf", &b); // a part need not say of how many tensors it is one
    struct error err = {0};
    struct gguf *g = gguf_open(file("m-00001-of-00003.gguf"), &err);
    assert_non_null(g);
    gguf_free(g);
    put_part(&b, 1, 3, 5, "b");
    write_file("m-00002-of-00003.gguf", &b);
    refuse_file("m-00001-of-00003.gguf",
                "m-00002-of-00003.gguf: split.tensors.count is 5, expected 3 as in part 1");
    for (uint32_t i = 0; i < 2; i++) {
        put_header(&b, 3, 0, 4);
        put_kv_u32(&b, "split.no", i);
        put_kv_u32(&b, "split.count", 2);
        put_kv_u32(&b, "split.tensors.count", 0);
        put_kv_str(&b, "general.architecture", i == 0 ? "llama" : "qwen2");
        write_file(i == 0 ? "n-00001-of-00002.gguf" : "n-00002-of-00002.gguf", &b);
    }
    refuse_file("n-00002-of-00002.gguf",
                "general.architecture is \"qwen2\", expected \"llama\" as in part 1");
    for (uint32_t i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "m-%05u-of-00003.gguf", i + 1);
        put_part(&b, i, 3, 4, (const char *[]){"a2", "b", "a"}[i]);
        write_file(name, &b);
    }
    refuse_file("m-00003-of-00003.gguf", "split.tensors.count is 4, but the parts have 3");
    put_part(&b, 0, 3, 4, "a2");
    write_file("renamed.gguf", &b);
    refuse_file("renamed.gguf", "not named NAME-00001-of-00003.gguf");
    put_header(&b, 3, 0, 0);
    write_file("cut-00001-of-00002.gguf", &b);
    refuse_file("cut-00001-of-00002.gguf", "must be joined with cat first");
    put_header(&b, 3, 0, 0);
    write_file("cut-00003-of-00002.gguf", &b);
    refuse_file("cut-00003-of-00002.gguf", "the name says part 3 of 2");
    static const char *const all[] = {"m-00001-of-00003.gguf",   "m-00002-of-00003.gguf",
                                      "m-00003-of-00003.gguf",   "renamed.gguf",
                                      "cut-00001-of-00002.gguf", "cut-00003-of-00002.gguf"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        unlink(file(all[i]));
}

static void unsupported_types_can_be_looked_at(void **state)
{
    (void)state;
    struct buf b = {0};
    const struct tensor_case t[] = {
        {"known", 15, 1, {256}, 0},
        {"unknown", 77, 1, {256}, 320},
    };
    put_tensor_image(&b, t, 2, 352);
    write_file("odd.gguf", &b);
    refuse_file("odd.gguf", "tensor known has weight type Q8_K");
    struct error err = {0};
    struct gguf *g = gguf_open_any_type(file("odd.gguf"), &err);
    assert_non_null(g);
    assert_int_equal(gguf_find_tensor(g, "known")->n_bytes, 292);
    assert_int_equal(gguf_find_tensor(g, "unknown")->n_bytes, 0);
    gguf_free(g);
    unlink(file("odd.gguf"));
}

// Block geometry of every type the format numbers; the weights are compared with another
// implementation in tests/conformance/test_dequant.py.
static void row_sizes_follow_the_blocks(void **state)
{
    (void)state;
    assert_int_equal(quant_row_bytes(QUANT_Q4_K, 512), 288);
    assert_int_equal(quant_row_bytes(QUANT_Q4_K, 128), 0);
    assert_int_equal(quant_row_bytes(QUANT_F16, 7), 14);
    assert_int_equal(quant_row_bytes(QUANT_F32, UINT64_MAX), 0);
    assert_int_equal(quant_row_bytes(5, 32), 0);
    assert_int_equal(quant_row_bytes(1u << 31, 32), 0);
    assert_null(quant_info(UINT32_MAX)->name);
    // The list in messages and the table say the same.
    for (uint32_t type = 0; type < QUANT_TYPE_MAX; type++) {
        const struct quant_info *qi = quant_info(type);
        char padded[256], wanted[32];
        if (!qi->name)
            continue;
        snprintf(padded, sizeof padded, " %s,", quant_supported_list());
        snprintf(wanted, sizeof wanted, " %s,", qi->name);
        assert_int_equal(qi->supported, strstr(padded, wanted) != NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_value_types_are_read),
        cmocka_unit_test(array_elements_are_read),
        cmocka_unit_test(headers_that_are_not_gguf_say_what_they_are),
        cmocka_unit_test(absurd_counts_and_lengths_are_refused),
        cmocka_unit_test(a_key_given_twice_is_refused),
        cmocka_unit_test(tensors_that_do_not_fit_their_file_are_refused),
        cmocka_unit_test(overlapping_and_duplicate_tensors_are_refused),
        cmocka_unit_test(alignment_is_any_multiple_of_eight),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(what_is_no_regular_file_is_refused),
        cmocka_unit_test(split_files_open_from_any_part),
        cmocka_unit_test(unsupported_types_can_be_looked_at),
        cmocka_unit_test(row_sizes_follow_the_blocks),
    };
    if (!mkdtemp(dir))
        return 1;
    int rc = RUN_TESTS("gguf", tests);
    rmdir(dir);
    return rc;
}
