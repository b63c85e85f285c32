// What the sampler reports and refuses, at its borders: alternatives and their probabilities, the
// settings that are none, the ends of each filter.
#include "test.h"

#include <math.h>

#include "base/rng.h"
#include "cli/options.h"
#include "engine/settings.h"

enum { N = 1000 };

static void random_logits(float *l, uint64_t seed)
{
    for (int i = 0; i < N; i++) // steps of 1/8, so that there are ties
        l[i] = (float)(int)(rng_u64(seed, (uint64_t)i, 0) % 97) / 8;
}

static void alternatives_are_the_likeliest_in_order_with_their_log_probabilities(void **state)
{
    (void)state;
    float l[N];
    for (uint64_t seed = 0; seed < 20; seed++) {
        random_logits(l, seed);
        double sum = 0;
        for (int i = 0; i < N; i++)
            sum += exp((double)l[i]);
        const double norm = log(sum);
        for (uint32_t n = 0; n <= 64; n += seed % 3 + 1) {
            struct token_prob top[65];
            struct error err = {0};
            bool used[N] = {false};
            top[n] = (struct token_prob){-5, -5};
            assert_true(sampler_top_logprobs(l, N, top, n, &err));
            assert_true(top[n].id == -5 && top[n].logprob == -5); // nothing behind the last one
            for (uint32_t k = 0; k < n; k++) {
                int best = -1; // by looking at all of them again
                for (int i = 0; i < N; i++)
                    if (!used[i] && (best < 0 || l[i] > l[best]))
                        best = i;
                used[best] = true;
                assert_int_equal(top[k].id, best);
                assert_true(fabs((double)top[k].logprob - ((double)l[best] - norm)) < 1e-5);
                assert_true(fabs(sampler_logprob(l, N, best) - ((double)l[best] - norm)) < 1e-9);
            }
        }
        l[N - 1] = NAN;
        struct token_prob one;
        struct error err = {0};
        assert_false(sampler_top_logprobs(l, N, &one, 1, &err));
    }
}

// Finite logits near the ends of the range, which the sampler's arithmetic takes over them.
static void logits_that_overflow_while_sampling_are_told_as_such(void **state)
{
    (void)state;
    static const struct {
        float high, low, temp, bias;
        const char *message; // NULL: a token is picked
    } v[] = {
        {3e38f, 3e38f, 0.8f, 0, "too large to sample"},
        {3e38f, -3e38f, 0.8f, 0, "too large to sample"},
        {-3e38f, -3e38f, 0.8f, 0, "the model's weights are damaged"},
        {1, -3e38f, 0.8f, 0, NULL},
        {3e38f, -3e38f, 1, 0, NULL},
        {3e38f, -3e38f, 0, 0, NULL},
        {3e38f, 1, 0, 3e38f, "use a smaller --logit-bias"}, // greedy, too
        {3e38f, 1, 0.8f, -INFINITY, "--logit-bias forbids all of them"},
        {1e9f, 1e9f, 1e-30f, 0, "or a larger --temp"},
    };
    static const uint8_t chains[][SAMPLER_MAX_CHAIN] = {
        {SAMPLER_TOP_K, SAMPLER_TYPICAL, SAMPLER_TOP_P, SAMPLER_MIN_P, SAMPLER_TEMPERATURE},
        {SAMPLER_TEMPERATURE, SAMPLER_TOP_N_SIGMA, SAMPLER_TYPICAL, SAMPLER_TOP_P, SAMPLER_MIN_P},
    };
    for (size_t i = 0; i < 2 * (sizeof v / sizeof *v); i++) {
        struct sampler_settings set = sampler_defaults;
        struct sampler s;
        struct error err = {0};
        int32_t id = -1;
        float l[4];
        for (int k = 0; k < 4; k++) {
            l[k] = k % 2 ? v[i / 2].low : v[i / 2].high;
            set.bias[k] = (struct logit_bias){k, v[i / 2].bias};
        }
        set.n_bias = v[i / 2].bias != 0 ? 4 : 0;
        set.temp = v[i / 2].temp;
        set.typical = set.top_n_sigma = 0.9f;
        memcpy(set.chain, chains[i % 2], sizeof set.chain);
        assert_true(sampler_init(&s, &set, 4, &err));
        const bool picked = sampler_pick(&s, l, NULL, 0, &id, &err);
        sampler_release(&s);
        assert_int_equal(picked, !v[i / 2].message);
        if (!picked && (!strstr(err.text, v[i / 2].message) || err.code != ERR_FAIL))
            fail_msg("case %zu: \"%s\" does not say \"%s\"", i, err.text, v[i / 2].message);
        assert_true(!picked || l[id] == v[i / 2].high);
    }
}

static void every_setting_is_a_finite_number(void **state)
{
    (void)state;
    struct sampler_settings s = sampler_defaults;
    float *const numbers[] = {
        &s.temp,
        &s.top_p,
        &s.min_p,
        &s.typical,
        &s.top_n_sigma,
        &s.xtc_probability,
        &s.xtc_threshold,
        &s.repeat_penalty,
        &s.presence_penalty,
        &s.frequency_penalty,
        &s.dry_multiplier,
        &s.dry_base,
    };
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct error err = {0};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const float before = *numbers[i];
        for (int k = 0; k < 3; k++) {
            *numbers[i] = bad[k];
            err = (struct error){0};
            assert_false(sampler_check(&s, 10, &err));
            assert_int_equal(err.code, ERR_USAGE);
        }
        *numbers[i] = before;
        assert_true(sampler_check(&s, 10, &err));
    }
    static const float temps[] = {0, 1e-40f, 9e-31f, 1e-30f, 1};
    for (int i = 0; i < 5; i++) { // by what is smaller logits cannot be divided
        s.temp = temps[i];
        assert_int_equal(sampler_check(&s, 10, &err), temps[i] <= 0 || temps[i] > 9.5e-31f);
    }
    s.n_bias = 1;
    for (int32_t id = -1; id <= 10; id++) {
        s.bias[0] = (struct logit_bias){id, 1};
        assert_int_equal(sampler_check(&s, 10, &err), id >= 0 && id < 10);
    }
}

// At temp 0 a filter changes nothing, whichever it is: the choice is the argmax of the edited
// logits.
static void no_filter_acts_without_temperature(void **state)
{
    (void)state;
    float l[N];
    random_logits(l, 3);
    l[N - 7] = 14;
    static const char *const filters[] = {"top_k", "typical", "top_p",
                                          "min_p", "xtc",     "top_n_sigma"};
    for (size_t i = 0; i < 6; i++) {
        struct sampler_settings s = sampler_defaults;
        struct sampler sampler;
        struct error err = {0};
        int32_t id = -1;
        s.temp = 0;
        s.top_k = 3;
        s.typical = s.top_p = 0.3f;
        s.min_p = 0.5f;
        s.xtc_probability = 1;
        s.xtc_threshold = 0.0001f;
        s.top_n_sigma = 0.5f;
        assert_true(sampler_parse_chain(filters[i], s.chain, &err));
        assert_true(sampler_init(&sampler, &s, N, &err));
        assert_true(sampler_pick(&sampler, l, NULL, 0, &id, &err));
        assert_int_equal(id, N - 7);
        assert_int_equal(sampler.n_cand, 1);
        sampler_release(&sampler);
    }
}

static void a_history_of_tokens_that_do_not_exist_is_refused(void **state)
{
    (void)state;
    float l[4] = {1, 2, 3, 4};
    static const int32_t last[] = {-1, 0, 3, 4};
    for (int i = 0; i < 4; i++) {
        struct sampler sampler;
        struct error err = {0};
        int32_t id, history[] = {0, last[i]};
        assert_true(sampler_init(&sampler, &sampler_defaults, 4, &err));
        assert_int_equal(sampler_pick(&sampler, l, history, 2, &id, &err), i == 1 || i == 2);
        sampler_release(&sampler);
    }
}

static void each_penalty_acts_alone(void **state)
{
    (void)state;
    const float l[3] = {5, 4.9f, 1};
    const int32_t history[] = {0, 0};
    for (int i = 0; i < 4; i++) {
        struct sampler_settings s = sampler_defaults;
        struct sampler sampler;
        struct error err = {0};
        int32_t id;
        s.temp = 0;
        if (i == 1)
            s.repeat_penalty = 1.1f;
        if (i == 2)
            s.presence_penalty = 0.2f;
        if (i == 3)
            s.frequency_penalty = 0.06f; // twice
        assert_true(sampler_init(&sampler, &s, 3, &err));
        assert_true(sampler_pick(&sampler, l, history, 2, &id, &err));
        assert_int_equal(id, i > 0);
        sampler_release(&sampler);
    }
}

static void every_number_among_the_settings_has_one_row_and_one_option(void **state)
{
    (void)state;
    size_t n, at = offsetof(struct sampler_settings, temp);
    const struct option_def *d = options_table(&n);
    for (size_t i = 0; i < SAMPLER_N_NUMBERS; i++, at += 4) {
        const struct sampler_number *row = &sampler_numbers[i];
        struct error err = {0};
        size_t k = 0;
        assert_int_equal(row->offset, at); // all of them lie there, one behind the other
        while (k < n && d[k].offset != offsetof(struct options, sampler) + at)
            k++;
        assert_true(k < n);
        assert_string_equal(d[k].long_name + 2, row->name);
        assert_int_equal(d[k].kind, row->whole ? OPT_I32 : OPT_F32);
        struct sampler_settings s = sampler_defaults;
        assert_true(sampler_check_numbers(&s, &err));
        if (row->whole)
            *(int32_t *)((char *)&s + at) = (int32_t)row->least - 1;
        else
            *(float *)((char *)&s + at) = (float)(row->most * 1.001);
        assert_false(sampler_check_numbers(&s, &err));
        assert_non_null(strstr(err.text, row->name));
    }
    assert_int_equal(at, offsetof(struct sampler_settings, n_bias));
}

static void what_a_range_ends_with_is_in_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < SAMPLER_N_NUMBERS; i++)
        for (int most = 0; most < 2; most++) {
            const struct sampler_number *row = &sampler_numbers[i];
            struct options o = {.sampler = sampler_defaults};
            struct error err = {0};
            char value[64];
            snprintf(value, sizeof value, "%.10g", most ? row->most : row->least);
            if (!options_set(&o, row->name, value, &err) ||
                !sampler_check_numbers(&o.sampler, &err))
                fail_msg("%s", err.text);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alternatives_are_the_likeliest_in_order_with_their_log_probabilities),
        cmocka_unit_test(logits_that_overflow_while_sampling_are_told_as_such),
        cmocka_unit_test(every_setting_is_a_finite_number),
        cmocka_unit_test(every_number_among_the_settings_has_one_row_and_one_option),
        cmocka_unit_test(what_a_range_ends_with_is_in_it),
        cmocka_unit_test(no_filter_acts_without_temperature),
        cmocka_unit_test(each_penalty_acts_alone),
        cmocka_unit_test(a_history_of_tokens_that_do_not_exist_is_refused),
    };
    return RUN_TESTS("sampler_edges", tests);
}
