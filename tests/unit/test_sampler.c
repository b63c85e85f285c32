// The sampler's promises that need no statistics. The filters are compared with NumPy in
// tests/conformance.
#include "test.h"

#include <math.h>

#include "engine/sampler.h"
#include "engine/sampler_math.h"

static int32_t pick(const struct sampler_settings *set, const float *logits, uint32_t n,
                    const int32_t *h, size_t n_h)
{
    struct sampler s;
    struct error err = {0};
    int32_t id = -1;
    assert_true(sampler_init(&s, set, n, &err));
    if (!sampler_pick(&s, logits, h, n_h, &id, &err))
        id = -1;
    sampler_release(&s);
    return id;
}

static void temperature_zero_is_argmax_and_ties_go_to_the_lowest_id(void **state)
{
    (void)state;
    struct sampler_settings set = sampler_defaults;
    set.temp = 0;
    float l[1000];
    for (int i = 0; i < 1000; i++)
        l[i] = (float)(i * 37 % 101);
    assert_int_equal(pick(&set, l, 1000, NULL, 0), 30); // 30 * 37 % 101 == 100, the first of ten
    l[999] = 101;
    assert_int_equal(pick(&set, l, 1000, NULL, 0), 999);
    set.xtc_probability = 1; // filters do not change an argmax
    set.typical = 0.1f;
    assert_int_equal(pick(&set, l, 1000, NULL, 0), 999);
}

// So many that most are put aside before any is sorted.
static void of_many_tokens_the_k_greatest_are_kept_and_of_equal_ones_the_lowest_ids(void **state)
{
    (void)state;
    enum { N_VOCAB = 20000 };
    static float logits[N_VOCAB];
    static const struct {
        size_t n_values, k;
    } runs[] = {{3, 100},    {251, 100}, {251, 512},   {251, 513},
                {251, 1500}, {251, 1},   {N_VOCAB, 2}, {N_VOCAB, 512}};
    struct sampler_settings set = sampler_defaults;
    memset(set.chain, SAMPLER_END, sizeof set.chain);
    set.chain[0] = SAMPLER_TOP_K;
    for (size_t run = 0; run < sizeof runs / sizeof *runs; run++) {
        const size_t k = runs[run].k;
        static size_t rank[N_VOCAB]; // of the next token with this logit
        memset(rank, 0, sizeof rank);
        for (size_t i = 0; i < N_VOCAB; i++) {
            const size_t value = i * 7919 % runs[run].n_values;
            logits[i] = (float)value;
            rank[value]++;
        }
        for (size_t value = N_VOCAB, greater = 0; value-- > 0;) {
            const size_t n = rank[value];
            rank[value] = greater;
            greater += n;
        }
        struct sampler s;
        struct error err = {0};
        int32_t id;
        set.top_k = (int32_t)k;
        assert_true(sampler_init(&s, &set, N_VOCAB, &err));
        assert_true(sampler_pick(&s, logits, NULL, 0, &id, &err));
        assert_int_equal(s.n_cand, k);
        for (size_t i = 0, kept = 0; i < N_VOCAB && kept < k; i++)
            if (rank[(size_t)logits[i]]++ < k)
                assert_int_equal(s.cand[kept++].id, i);
        sampler_release(&s);
    }
}

static void nan_and_infinity_are_errors(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        float l[4] = {1, 2, 3, 4};
        l[2] = bad[i];
        assert_int_equal(pick(&sampler_defaults, l, 4, NULL, 0), -1);
    }
}

static void the_same_seed_and_position_give_the_same_token(void **state)
{
    (void)state;
    struct sampler_settings set = sampler_defaults;
    set.temp = 5;
    float l[300];
    int32_t h[64] = {0};
    for (int i = 0; i < 300; i++)
        l[i] = (float)(i * 31 % 17) / 4;
    int differ_seed = 0, differ_position = 0;
    for (size_t pos = 0; pos < 64; pos++) {
        set.seed = 7;
        int32_t a = pick(&set, l, 300, h, pos);
        assert_int_equal(a, pick(&set, l, 300, h, pos));
        differ_position += a != pick(&set, l, 300, h, (pos + 1) % 64);
        set.seed = 8;
        differ_seed += a != pick(&set, l, 300, h, pos);
    }
    assert_in_range(differ_seed, 40, 64);
    assert_in_range(differ_position, 40, 64);
}

static void bias_forbids_and_forces(void **state)
{
    (void)state;
    struct sampler_settings set = sampler_defaults;
    set.temp = 0;
    const float l[4] = {1, 9, 3, 4};
    set.n_bias = 1;
    set.bias[0] = (struct logit_bias){1, -INFINITY};
    assert_int_equal(pick(&set, l, 4, NULL, 0), 3);
    set.bias[0] = (struct logit_bias){0, 100};
    assert_int_equal(pick(&set, l, 4, NULL, 0), 0);
    set.bias[0].id = 4;
    struct error err = {0};
    assert_false(sampler_check(&set, 4, &err));
    assert_int_equal(err.code, ERR_USAGE);
}

// A sampler adds to memory at the ids it is given: it takes none that is not there.
// Of 1000 tokens two are allowed, far below what every filter would keep.
static void a_mask_comes_before_every_filter(void **state)
{
    (void)state;
    float l[1000];
    uint32_t allow[32] = {0};
    struct error err = {0};
    for (int i = 0; i < 1000; i++)
        l[i] = (float)(i % 50);
    l[997] = -20;
    l[64] = -20.5f;
    allow[997 / 32] |= 1u << (997 % 32);
    allow[64 / 32] |= 1u << (64 % 32);
    struct sampler_settings set = sampler_defaults;
    set.top_k = 2;
    set.top_p = 0.99f;
    set.top_n_sigma = 3;
    set.typical = 0.99f;
    for (int greedy = 0; greedy < 2; greedy++) {
        struct sampler s;
        int n[2] = {0}, id;
        set.temp = greedy ? 0 : 1;
        assert_true(sampler_init(&s, &set, 1000, &err));
        s.allow = allow;
        for (int32_t at = 0, history[100] = {0}; at < 100; at++) {
            assert_true(sampler_pick(&s, l, history, (size_t)at, &id, &err));
            assert_true(id == 997 || id == 64);
            n[id == 64]++;
        }
        assert_true(n[0] > n[1]);
        assert_true(greedy ? n[1] == 0 : n[1] > 0);
        memset(allow, 0, greedy ? sizeof allow : 0);
        if (greedy)
            assert_false(sampler_pick(&s, l, NULL, 0, &id, &err));
        sampler_release(&s);
    }
}

static void a_sampler_begins_only_with_what_it_can_rely_on(void **state)
{
    (void)state;
    struct sampler s;
    for (int wrong = 0; wrong < 7; wrong++) {
        struct sampler_settings set = sampler_defaults;
        struct error err = {0};
        set.n_bias = 1;
        set.bias[0] = (struct logit_bias){3, -INFINITY};
        assert_true(sampler_init(&s, &set, 4, &err));
        sampler_release(&s);
        switch (wrong) {
        case 0:
            set.bias[0].id = 4;
            break;
        case 1:
            set.bias[0].id = -1;
            break;
        case 2:
            set.bias[0].bias = NAN;
            break;
        case 3:
            set.n_bias = SAMPLER_MAX_BIAS + 1;
            break;
        case 4:
            set.chain[2] = SAMPLER_TEMPERATURE + 1;
            break;
        case 5:
            memset(set.chain, SAMPLER_TOP_K, sizeof set.chain);
            break;
        default:
            set.repeat_penalty = NAN;
            break;
        }
        assert_false(sampler_init(&s, &set, 4, &err));
        assert_int_equal(err.code, ERR_USAGE);
        if (wrong < 2)
            assert_non_null(strstr(err.text, "expected 0 to 3"));
    }
}

static void exponential_is_accurate(void **state)
{
    (void)state;
    for (double x = 0; x > -80; x -= 0.00317) {
        double want = exp((double)(float)x), got = sampler_exp((float)x);
        assert_true(fabs(got - want) <= 4e-7 * want);
    }
    assert_int_equal(sampler_weight(3.5f, 3.5f), (uint64_t)1 << 32);
    assert_int_equal(sampler_weight(-INFINITY, 3.5f), 0);
    assert_true(sampler_scale_random(UINT64_MAX, 12345678901234567ull) == 12345678901234566ull);
}

static void chain_parses_and_names_what_it_does_not_know(void **state)
{
    (void)state;
    uint8_t chain[SAMPLER_MAX_CHAIN];
    char text[256];
    struct error err = {0};
    assert_true(sampler_parse_chain("top-k;typ_p,temperature", chain, &err));
    sampler_format_chain(chain, text, sizeof text);
    assert_string_equal(text, "top_k;typical;temperature");
    assert_false(sampler_parse_chain("top_k;tap_p", chain, &err));
    assert_int_equal(err.code, ERR_USAGE);
    assert_non_null(strstr(err.text, "tap_p"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(temperature_zero_is_argmax_and_ties_go_to_the_lowest_id),
        cmocka_unit_test(of_many_tokens_the_k_greatest_are_kept_and_of_equal_ones_the_lowest_ids),
        cmocka_unit_test(nan_and_infinity_are_errors),
        cmocka_unit_test(the_same_seed_and_position_give_the_same_token),
        cmocka_unit_test(bias_forbids_and_forces),
        cmocka_unit_test(a_mask_comes_before_every_filter),
        cmocka_unit_test(a_sampler_begins_only_with_what_it_can_rely_on),
        cmocka_unit_test(exponential_is_accurate),
        cmocka_unit_test(chain_parses_and_names_what_it_does_not_know),
    };
    return RUN_TESTS("sampler", tests);
}
