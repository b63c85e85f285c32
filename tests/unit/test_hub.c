// Names, lists and choices of the Hub, as its repositories have them.
#include "test.h"

#include <unistd.h>

#include "hub/fetch.h"
#include "hub/listing.h"

static void quantisations_are_read_off_file_names(void **state)
{
    (void)state;
    static const struct {
        const char *path, *tag;
    } rows[] = {
        {"qwen2.5-0.5b-instruct-q4_k_m.gguf", "Q4_K_M"},
        {"Llama-3.2-1B-Instruct-Q8_0.gguf", "Q8_0"},
        {"tinyllama-1.1b-chat-v1.0.Q5_K_S.gguf", "Q5_K_S"},
        {"SmolLM2_135M_Q6_K.gguf", "Q6_K"},
        {"Phi-3-mini-4k-instruct-q4.gguf", "Q4"},
        {"Phi-3-mini-4k-instruct-fp16.gguf", "F16"},
        {"gemma-2b-it.F32.gguf", "F32"},
        {"Qwen3-8B-BF16.gguf", "BF16"},
        {"Qwen3-8B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"},
        {"DeepSeek-R1-IQ2_XXS.gguf", "IQ2_XXS"},
        {"model-IQ4_NL.gguf", "IQ4_NL"},
        {"model-Q4_0_4_8.gguf", "Q4_0_4_8"},
        {"Q4_K_M/model-00001-of-00002.gguf", "Q4_K_M"},
        {"Q4_K_M/model-Q5_K_M-00001-of-00002.gguf", "Q5_K_M"},
        {"Q6_K.gguf", "Q6_K"},
        {"model-q4_k_m-imat.gguf", "Q4_K_M"},
        {"gpt-oss-20b-MXFP4.gguf", "MXFP4"},
        {"model-NVFP4.gguf", "NVFP4"},
        {"qwen2-7b.gguf", ""},
        {"aq4_k_m.gguf", ""},
        {"model-q9_0.gguf", ""},
        {"model-q4x.gguf", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char tag[HUB_TAG];
        hub_tag(rows[i].path, tag);
        if (strcmp(tag, rows[i].tag) != 0)
            fail_msg("%s: found \"%s\", expected \"%s\"", rows[i].path, tag, rows[i].tag);
    }
}

// A list of names -> the chosen one, or the words of the refusal.
static void check(const char *names, const char *quant, const char *chosen, const char *refusal)
{
    struct hub_listing l = {0};
    struct hub_choice c;
    struct error err = {0};
    char copy[1024], *save = NULL;
    snprintf(copy, sizeof copy, "%s", names);
    for (char *p = strtok_r(copy, " ", &save); p; p = strtok_r(NULL, " ", &save))
        assert_true(hub_listing_add(&l, p, 10, NULL, &err));
    bool ok = hub_choose(&l, "u/r", quant, &c, &err);
    if (ok != (chosen != NULL))
        fail_msg("%s : %s -> %s", names, quant, ok ? l.files[c.first].path : err.text);
    if (ok)
        assert_string_equal(l.files[c.first].path, chosen);
    else if (!strstr(err.text, refusal))
        fail_msg("%s : %s -> \"%s\" without \"%s\"", names, quant, err.text, refusal);
    hub_listing_release(&l);
}

static void the_file_meant_is_chosen_or_the_choices_are_listed(void **state)
{
    (void)state;
    check("m-q8_0.gguf m-q4_k_m.gguf m-q2_k.gguf", "", "m-q4_k_m.gguf", NULL);
    check("m-q8_0.gguf m-q4_k_m.gguf", "q8_0", "m-q8_0.gguf", NULL);
    check("m.gguf", "", "m.gguf", NULL);
    check("m-f16.gguf", "", "m-f16.gguf", NULL); // the only one there is
    check("m-f16.gguf m-q8_0.gguf", "", NULL, "F16, Q8_0");
    check("m-f16.gguf m-q5_k_m.gguf m-q2_k.gguf", "", "m-q5_k_m.gguf", NULL);
    check("m-q5_k_m.gguf m-iq4_xs.gguf", "", "m-iq4_xs.gguf", NULL);
    check("m-iq3_s.gguf m-q8_0.gguf", "", "m-iq3_s.gguf", NULL);
    check("m-mxfp4.gguf m-q8_0.gguf", "", "m-mxfp4.gguf", NULL);
    check("m-iq5_k.gguf m-q8_0.gguf", "", NULL, "IQ5_K, Q8_0"); // hokku does not run IQ5_K
    check("m-iq5_k.gguf m-q8_0.gguf", "iq5_k", "m-iq5_k.gguf", NULL);
    check("m-UD-Q4_K_M.gguf m-Q4_K_M.gguf", "", "m-Q4_K_M.gguf", NULL);
    check("m-UD-Q4_K_XL.gguf m-Q8_0.gguf", "q4_k_xl", "m-UD-Q4_K_XL.gguf", NULL);
    check("m-UD-Q4_K_XL.gguf m-Q8_0.gguf", "ud-q4_k_xl", "m-UD-Q4_K_XL.gguf", NULL);
    check("a-q4_k_m.gguf b-q4_k_m.gguf b-q8_0.gguf", "", NULL, "a-q4_k_m.gguf, b-q4_k_m.gguf");
    check("a-q4_k_m.gguf b-q4_k_m.gguf", "b-q4_k_m.gguf", "b-q4_k_m.gguf", NULL);
    check("x/a.gguf y/a.gguf", "y/a.gguf", "y/a.gguf", NULL);
    check("x/a.gguf y/a.gguf", "a.gguf", NULL, "x/a.gguf, y/a.gguf");
    check("m-q4_k_m.gguf", "q5_k_m", NULL, "Q4_K_M");
    check("m-fp16.gguf m-q8_0.gguf", "fp16", "m-fp16.gguf", NULL);
    check("mmproj-m-f16.gguf m-q4_k_m.gguf imatrix.gguf", "f16", NULL, "there are Q4_K_M");
    check("mmproj-f16.gguf", "", NULL, "no GGUF");
    check("", "", NULL, "no GGUF");
    check("m-q4_k_m-00002-of-00002.gguf m-q4_k_m-00001-of-00002.gguf", "",
          "m-q4_k_m-00001-of-00002.gguf", NULL);
    check("m-q4_k_m-00001-of-00003.gguf m-q4_k_m-00002-of-00003.gguf", "", NULL, "part 3 of 3");
    check("m-00001-of-99999.gguf", "", NULL, "99999");
    check("m-00001-of-01000.gguf", "", NULL, "part 2 of 1000"); // as many as there may be
    check("m-00001-of-01001.gguf", "", NULL, "1001 files, expected at most 1000");
    check("m-f16.gguf m-q8_0.gguf m-iq5_k.gguf", "", NULL, "F16, Q8_0, IQ5_K");
    check("m-00001-of-00002.gguf m-00003-of-00002.gguf", "m-00001-of-00002.gguf", NULL,
          "part 2 of 2");
}

// A part of a model is numbered 1 to N of N. Any other number is refused by name, never taken for
// the whole model and never as no file at all.
static void impossible_numbers_of_parts_are_refused(void **state)
{
    (void)state;
    check("m-00000-of-00000.gguf", "", NULL, "m-00000-of-00000.gguf is numbered 0 of 0");
    check("m-00003-of-00002.gguf", "", NULL, "m-00003-of-00002.gguf is numbered 3 of 2");
    check("m-00000-of-00002.gguf", "", NULL, "0 of 2, expected 1 to 2 of 2");
    check("m-00001-of-00000.gguf", "", NULL, "1 of 0, expected 1 to N of N");
    check("Q8_0/m-00002-of-00002.gguf Q8_0/m-00000-of-00000.gguf", "", NULL, "0 of 0");
    check("Q8_0/m-00002-of-00002.gguf Q8_0/m-00000-of-00000.gguf", "q8_0", NULL, "0 of 0");
    check("m-q8_0.gguf m-00000-of-00000.gguf", "m-00000-of-00000.gguf", NULL, "0 of 0");
    check("m-q8_0.gguf m-00000-of-00000.gguf", "q8_0", "m-q8_0.gguf", NULL); // not the one meant
}

static void a_file_listed_twice_is_refused(void **state)
{
    (void)state;
    static const char list[] = "[{\"type\": \"file\", \"path\": \"m.gguf\", \"size\": 1},"
                               " {\"type\": \"file\", \"path\": \"n.gguf\", \"size\": 1},"
                               " {\"type\": \"file\", \"path\": \"m.gguf\", \"size\": 2}]";
    struct hub_listing l = {0};
    struct error err = {0};
    assert_false(hub_listing_parse(&l, list, sizeof list - 1, &err));
    assert_int_equal(err.code, ERR_FAIL);
    assert_non_null(strstr(err.text, "lists m.gguf twice"));
    hub_listing_release(&l);
}

static void names_of_models_are_checked(void **state)
{
    (void)state;
    static const char *const bad[] = {"",     "a",        "a/",    "/b",     "a/b/c",
                                      "../b", "a/..",     ".a/b",  "a/.b",   "a b/c",
                                      "a/b:", "a/b:x y",  "a\n/b", "-a/b",   "a/b:\\",
                                      "a//b", "http://x", "a/b?x", "a/b%2e", "\xC3\xA9/b"};
    struct hub_spec s;
    struct error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (hub_spec_parse(bad[i], &s, &err) || err.code != ERR_USAGE)
            fail_msg("\"%s\" was taken", bad[i]);
    assert_true(hub_spec_parse("Qwen/Qwen2.5-0.5B_GGUF:Q4_K_M", &s, &err));
    assert_string_equal(s.user, "Qwen");
    assert_string_equal(s.repo, "Qwen2.5-0.5B_GGUF");
    assert_string_equal(s.label, "Qwen/Qwen2.5-0.5B_GGUF");
    assert_string_equal(s.quant, "q4_k_m");
    char longest[400];
    memset(longest, 'a', sizeof longest);
    longest[HUB_NAME] = '/';
    longest[sizeof longest - 1] = '\0';
    assert_false(hub_spec_parse(longest, &s, &err));
}

static void paths_stay_below_their_directory(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",          "a",        "../a.gguf", "/a.gguf",       "a/../b.gguf",
        "a//b.gguf", "./a.gguf", ".a.gguf",   "a/.b.gguf",     "a\\b.gguf",
        "a\nb.gguf", "a/..",     "a.gguf/",   "\xC3\xA9.gguf", "a\x7F.gguf",
        ".gguf"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (hub_path_ok(bad[i]))
            fail_msg("\"%s\" was taken", bad[i]);
    assert_true(hub_path_ok("a.gguf"));
    assert_true(hub_path_ok("Q4_K_M/a b-00001-of-00002.GGUF"));
    char longest[HUB_MAX_PATH + 1];
    memset(longest, 'a', sizeof longest);
    strcpy(longest + sizeof longest - 6, ".gguf");
    assert_false(hub_path_ok(longest));
}

static void checksums_are_64_digits_and_nothing_else(void **state)
{
    (void)state;
    static const char hex[] = "0123456789abcdef0123456789ABCDEF0123456789abcdef0123456789abcdef";
    char text[100], out[SHA256_HEX];
    assert_true(hub_sha256_text(hex, out));
    assert_string_equal(out, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    snprintf(text, sizeof text, "\"%s\"", hex);
    assert_true(hub_sha256_text(text, out));
    snprintf(text, sizeof text, "\"%s", hex);
    assert_false(hub_sha256_text(text, out));
    assert_string_equal(out, "");
    snprintf(text, sizeof text, "%s0", hex);
    assert_false(hub_sha256_text(text, out));
    assert_false(hub_sha256_text("\"d41d8cd98f00b204e9800998ecf8427e-5\"", out));
    assert_false(hub_sha256_text("", out));
}

static void the_next_page_is_found(void **state)
{
    (void)state;
    static const struct {
        const char *header, *url;
    } rows[] = {
        {"<https://h/x?cursor=a&b=c>; rel=\"next\"", "https://h/x?cursor=a&b=c"},
        {"<https://h/1>; rel=\"first\", <https://h/2>; rel=\"next\"", "https://h/2"},
        {"<https://h/1>; rel=\"prev\"", NULL},
        {"<https://h/1", NULL},
        {"<>; rel=\"next\"", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf url = {0};
        assert_int_equal(hub_link_next(rows[i].header, &url), rows[i].url != NULL);
        if (rows[i].url)
            assert_string_equal(url.data, rows[i].url);
        buf_release(&url);
    }
}

static void parts_of_a_split_model_have_each_others_names(void **state)
{
    (void)state;
    size_t stem;
    unsigned no, count;
    struct buf b = {0};
    assert_true(hub_split_name("d/m-00002-of-00012.gguf", &stem, &no, &count));
    assert_int_equal(stem, 3);
    assert_int_equal(no, 2);
    assert_int_equal(count, 12);
    assert_true(hub_split_part("d/m-00002-of-00012.gguf", 11, &b));
    assert_string_equal(b.data, "d/m-00011-of-00012.gguf");
    buf_release(&b);
    static const char *const none[] = {"m.gguf",
                                       "m-00000-of-00002.gguf",
                                       "m-00003-of-00002.gguf",
                                       "m-0001-of-00002.gguf",
                                       "-00001-of-00002.gguf",
                                       "m-00001-of-00002.bin"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        stem = no = count = 1; // what a caller set for a whole model stays
        assert_false(hub_split_name(none[i], &stem, &no, &count));
        assert_true(stem == 1 && no == 1 && count == 1);
    }
}

// What is not made yet will be on the disk of the nearest directory that there is.
static void room_is_looked_for_on_the_disk_of_a_directory_that_will_be_made(void **state)
{
    (void)state;
    char dir[] = "/tmp/hokku-room-XXXXXX", deep[64], want[64];
    struct error err = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(deep, sizeof deep, "%s/not/yet/made", dir);
    snprintf(want, sizeof want, "on the disk of %s, which has", dir);
    assert_true(fetch_check_space(deep, 1, "m.gguf", &err));
    assert_false(fetch_check_space(deep, UINT64_MAX, "m.gguf", &err));
    if (!strstr(err.text, want))
        fail_msg("\"%s\" without \"%s\"", err.text, want);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantisations_are_read_off_file_names),
        cmocka_unit_test(the_file_meant_is_chosen_or_the_choices_are_listed),
        cmocka_unit_test(impossible_numbers_of_parts_are_refused),
        cmocka_unit_test(a_file_listed_twice_is_refused),
        cmocka_unit_test(names_of_models_are_checked),
        cmocka_unit_test(paths_stay_below_their_directory),
        cmocka_unit_test(checksums_are_64_digits_and_nothing_else),
        cmocka_unit_test(the_next_page_is_found),
        cmocka_unit_test(parts_of_a_split_model_have_each_others_names),
        cmocka_unit_test(room_is_looked_for_on_the_disk_of_a_directory_that_will_be_made),
    };
    return RUN_TESTS("hub", tests);
}
