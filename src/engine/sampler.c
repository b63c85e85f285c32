// The CPU sampler: one function per filter, a table that names them, and the draw.
#include "engine/sampler.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/finite.h"
#include "engine/sampler_failure.h"
#include "engine/sampler_math.h"
#include "engine/settings.h"

const struct sampler_settings sampler_defaults = {
    .temp = 0.8f,
    .top_k = 40,
    .top_p = 0.95f,
    .min_p = 0.05f,
    .typical = 1.0f,
    .top_n_sigma = -1.0f,
    .xtc_probability = 0.0f,
    .xtc_threshold = 0.1f,
    .repeat_penalty = 1.0f,
    .repeat_last_n = 64,
    .dry_multiplier = 0.0f,
    .dry_base = 1.75f,
    .dry_allowed_length = 2,
    .dry_penalty_last_n = -1,
    .chain = {SAMPLER_PENALTIES, SAMPLER_DRY, SAMPLER_TOP_N_SIGMA, SAMPLER_TOP_K, SAMPLER_TYPICAL,
              SAMPLER_TOP_P, SAMPLER_MIN_P, SAMPLER_XTC, SAMPLER_TEMPERATURE},
};

// The working set of one pick: c[0..n), of which the first n_sorted are in order and not below any
// later one.
struct work {
    struct sampler *s;
    struct sampler_candidate *c;
    size_t n, n_sorted;
    const int32_t *history;
    size_t n_history;
};

// The order of candidates everywhere: higher logit first, lower id on ties.
static int by_logit(const void *a, const void *b)
{
    const struct sampler_candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int by_id(const void *a, const void *b)
{
    const struct sampler_candidate *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static void swap(struct sampler_candidate *a, struct sampler_candidate *b)
{
    struct sampler_candidate t = *a;
    *a = *b;
    *b = t;
}

static void sort_top(struct work *w, size_t k);

enum { GROUPS = 1024 };

// Brings those of many candidates from `lo` on that can be among the k first to the front: at least
// k reach the k-th of the greatest logits of groups. Returns where they end.
static size_t bring_forward(struct work *w, size_t lo, size_t k)
{
    struct sampler_candidate most[GROUPS];
    for (size_t i = 0; i < GROUPS; i++)
        most[i] = w->c[lo + i];
    for (size_t i = lo + GROUPS; i < w->n; i++)
        if (w->c[i].logit > most[(i - lo) % GROUPS].logit)
            most[(i - lo) % GROUPS] = w->c[i];
    struct work groups = {.c = most, .n = GROUPS};
    sort_top(&groups, k);
    const float least = most[k - 1].logit;
    size_t end = lo;
    for (size_t i = lo; i < w->n; i++)
        if (w->c[i].logit >= least)
            swap(&w->c[i], &w->c[end++]);
    return end;
}

// Sorts the k first candidates of the order to the front (quickselect, then a sort of those k).
static void sort_top(struct work *w, size_t k)
{
    if (k > w->n)
        k = w->n;
    if (k <= w->n_sorted)
        return;
    size_t lo = w->n_sorted, hi = w->n;
    const size_t n_more = k - lo;
    if (n_more <= GROUPS / 2 && hi - lo >= 8 * GROUPS)
        hi = bring_forward(w, lo, n_more);
    while (hi - lo > 32 && k > lo && k < hi) {
        swap(&w->c[lo + (hi - lo) / 2], &w->c[hi - 1]);
        const struct sampler_candidate pivot = w->c[hi - 1];
        size_t m = lo;
        for (size_t i = lo; i < hi - 1; i++)
            if (by_logit(&w->c[i], &pivot) < 0)
                swap(&w->c[i], &w->c[m++]);
        swap(&w->c[m], &w->c[hi - 1]);
        if (k <= m)
            hi = m;
        else
            lo = m + 1;
    }
    size_t end = hi > k ? hi : k;
    qsort(w->c + w->n_sorted, end - w->n_sorted, sizeof *w->c, by_logit);
    w->n_sorted = end;
}

static void keep_first(struct work *w, size_t n)
{
    w->n = n;
    if (w->n_sorted > n)
        w->n_sorted = n;
}

static uint64_t total_weight(const struct work *w, float max)
{
    uint64_t total = 0;
    for (size_t i = 0; i < w->n; i++)
        total += sampler_weight(w->c[i].logit, max);
    return total;
}

// The last n tokens of the history (n < 0: all of it).
static const int32_t *window(const struct work *w, int32_t last_n, size_t *n)
{
    *n = last_n < 0 || (size_t)last_n > w->n_history ? w->n_history : (size_t)last_n;
    return *n < w->n_history ? w->history + (w->n_history - *n) : w->history;
}

static bool penalties(struct work *w, struct error *err)
{
    (void)err;
    const struct sampler_settings *set = &w->s->set;
    size_t n;
    const int32_t *h = window(w, set->repeat_last_n, &n);
    if (n == 0 ||
        (set->repeat_penalty == 1 && set->presence_penalty == 0 && set->frequency_penalty == 0))
        return true;
    for (size_t i = 0; i < n; i++)
        w->s->count[h[i]]++;
    for (size_t i = 0; i < w->n; i++) {
        uint32_t count = w->s->count[w->c[i].id];
        if (count)
            w->c[i].logit = sampler_penalize(w->c[i].logit, count, set->repeat_penalty,
                                             set->frequency_penalty, set->presence_penalty);
    }
    for (size_t i = 0; i < n; i++)
        w->s->count[h[i]] = 0;
    w->n_sorted = 0;
    return true;
}

// DRY ("don't repeat yourself"): if the text ends with a run that occurred before, the token that
// followed that run is made less likely, the more so the longer the run. A run never reaches over a
// sequence breaker. The lengths of all earlier runs come from the Z function of the reversed window
// (Gusfield 1997, sec. 1.3), in linear time.
static bool dry(struct work *w, struct error *err)
{
    struct sampler *s = w->s;
    const struct sampler_settings *set = &s->set;
    size_t n;
    const int32_t *h = window(w, set->dry_penalty_last_n, &n);
    if (set->dry_multiplier == 0 || n < 2)
        return true;
    size_t limit = 0; // longest run at the end without a breaker
    while (limit < n && !(set->dry_breakers && set->dry_breakers[h[n - 1 - limit]]))
        limit++;
    if (limit < (size_t)set->dry_allowed_length)
        return true;
    if (s->n_z < n) {
        uint32_t *z = realloc(s->z, n * 2 * sizeof *z);
        if (!z)
            return error_oom(err, "the DRY sampler", n * 2 * sizeof *z);
        s->z = z;
        s->n_z = n * 2;
    }
    // z[i]: how many tokens before position n - i equal those at the end of the window.
    uint32_t *z = s->z;
    z[0] = (uint32_t)n;
    for (size_t i = 1, lo = 0, hi = 0; i < n; i++) {
        size_t k = i < hi ? (z[i - lo] < hi - i ? z[i - lo] : hi - i) : 0;
        while (i + k < n && h[n - 1 - k] == h[n - 1 - i - k])
            k++;
        z[i] = (uint32_t)k;
        if (i + k > hi) {
            lo = i;
            hi = i + k;
        }
    }
    for (size_t i = 1; i < n; i++) {
        uint32_t len = z[i] < limit ? z[i] : (uint32_t)limit;
        int32_t next = h[n - i];
        if (len >= (uint32_t)set->dry_allowed_length && s->count[next] < len + 1)
            s->count[next] = len + 1;
    }
    for (size_t i = 0; i < w->n; i++) {
        uint32_t len = s->count[w->c[i].id];
        if (len)
            w->c[i].logit -= sampler_dry_penalty(len - 1, set->dry_allowed_length,
                                                 set->dry_multiplier, set->dry_base);
    }
    for (size_t i = 0; i < n; i++)
        s->count[h[i]] = 0;
    w->n_sorted = 0;
    return true;
}

// Keeps logits within n standard deviations of the maximum (Tang et al. 2024, "Top-n-sigma").
static bool top_n_sigma(struct work *w, struct error *err)
{
    (void)err;
    if (w->s->set.top_n_sigma <= 0 || w->n < 2)
        return true;
    sort_top(w, 1);
    float max = w->c[0].logit;
    uint64_t sum = 0, sum_sq = 0, n = 0;
    for (size_t i = 0; i < w->n; i++) {
        if (w->c[i].logit == -INFINITY)
            continue;
        uint64_t t = sampler_sigma_term(w->c[i].logit, max);
        sum += t;
        sum_sq += t * t;
        n++;
    }
    float limit = sampler_sigma_limit(max, w->s->set.top_n_sigma, sum, sum_sq, n);
    size_t m = 0;
    for (size_t i = 0; i < w->n; i++)
        if (w->c[i].logit >= limit)
            w->c[m++] = w->c[i];
    keep_first(w, m);
    return true;
}

static bool top_k(struct work *w, struct error *err)
{
    (void)err;
    size_t k = w->s->set.top_k > 0 ? (size_t)w->s->set.top_k : w->n;
    if (k < w->n) {
        sort_top(w, k);
        keep_first(w, k);
    }
    return true;
}

// Locally typical sampling (Meister et al. 2022): the smallest set of tokens whose surprise is
// nearest the entropy and whose probability exceeds the setting.
struct by_distance {
    double distance;
    size_t rank;
};

static int compare_distance(const void *a, const void *b)
{
    const struct by_distance *x = a, *y = b;
    if (x->distance != y->distance)
        return x->distance < y->distance ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static bool typical(struct work *w, struct error *err)
{
    float p = w->s->set.typical;
    if (p >= 1 || w->n < 2)
        return true;
    sort_top(w, w->n);
    float max = w->c[0].logit;
    uint64_t total = 0, terms = 0;
    for (size_t i = 0; i < w->n; i++) {
        uint64_t weight = sampler_weight(w->c[i].logit, max);
        total += weight;
        terms += sampler_typical_term(weight, w->c[i].logit, max);
    }
    struct by_distance *d = malloc(w->n * sizeof *d);
    if (!d)
        return error_oom(err, "the typical sampler", w->n * sizeof *d);
    for (size_t i = 0; i < w->n; i++)
        d[i] = (struct by_distance){sampler_typical_distance(w->c[i].logit, max, terms, total), i};
    qsort(d, w->n, sizeof *d, compare_distance);
    uint64_t sum = 0;
    size_t n = 0;
    while (n < w->n) {
        struct sampler_candidate c = w->c[d[n].rank];
        w->s->copy[n++] = c;
        sum += sampler_weight(c.logit, max);
        if (sampler_reaches(sum, total, p))
            break;
    }
    free(d);
    memcpy(w->c, w->s->copy, n * sizeof *w->c);
    w->n = n;
    w->n_sorted = 0;
    return true;
}

// Nucleus sampling (Holtzman et al. 2019): the fewest most likely tokens whose probability reaches
// p.
static bool top_p(struct work *w, struct error *err)
{
    (void)err;
    float p = w->s->set.top_p;
    if (p >= 1 || w->n < 2)
        return true;
    sort_top(w, 1);
    float max = w->c[0].logit;
    uint64_t total = total_weight(w, max), sum = 0;
    for (size_t i = 0; i < w->n; i++) {
        if (i >= w->n_sorted)
            sort_top(w, i < 64 ? 256 : i * 4); // sorts only as far as it must look
        sum += sampler_weight(w->c[i].logit, max);
        if (sampler_reaches(sum, total, p)) {
            keep_first(w, i + 1);
            break;
        }
    }
    return true;
}

// Keeps tokens at least min_p times as likely as the most likely one (Nguyen et al. 2024).
static bool min_p(struct work *w, struct error *err)
{
    (void)err;
    if (w->s->set.min_p <= 0 || w->n < 2)
        return true;
    sort_top(w, 1);
    float limit = w->c[0].logit + logf(w->s->set.min_p);
    size_t m = 0, sorted = 0;
    for (size_t i = 0; i < w->n; i++)
        if (i == 0 || w->c[i].logit >= limit) {
            w->c[m++] = w->c[i];
            sorted += i < w->n_sorted;
        }
    w->n = m;
    w->n_sorted = sorted;
    return true;
}

// Exclude top choices: sometimes removes all tokens above the threshold but the least likely of
// them.
static bool xtc(struct work *w, struct error *err)
{
    (void)err;
    const struct sampler_settings *set = &w->s->set;
    if (set->xtc_probability <= 0 || set->xtc_threshold > 0.5f || w->n < 2 ||
        !sampler_xtc_acts(set->seed, set->first + w->n_history, set->xtc_probability))
        return true;
    sort_top(w, 1);
    float max = w->c[0].logit;
    uint64_t total = total_weight(w, max);
    size_t n_above = 0;
    for (size_t i = 0; i < w->n; i++) {
        sort_top(w, i + 1 > w->n_sorted ? (i + 1) * 4 : i + 1);
        if (!sampler_reaches(sampler_weight(w->c[i].logit, max), total, set->xtc_threshold))
            break;
        n_above++;
    }
    if (n_above > 1) {
        memmove(w->c, w->c + n_above - 1, (w->n - n_above + 1) * sizeof *w->c);
        w->n -= n_above - 1;
        w->n_sorted -= n_above - 1;
    }
    return true;
}

static bool temperature(struct work *w, struct error *err)
{
    (void)err;
    for (size_t i = 0; i < w->n; i++)
        w->c[i].logit = w->c[i].logit / w->s->set.temp;
    w->n_sorted = 0; // the division can make two logits equal: then the lower id comes first
    return true;
}

static const struct {
    const char *name, *alias;
    bool (*apply)(struct work *w, struct error *err);
    bool edits_logits; // still applied when temp <= 0: argmax is over the edited logits
} stages[] = {
    [SAMPLER_PENALTIES] = {"penalties", "penalty", penalties, true},
    [SAMPLER_DRY] = {"dry", NULL, dry, true},
    [SAMPLER_TOP_N_SIGMA] = {"top_n_sigma", "top-n-sigma", top_n_sigma, false},
    [SAMPLER_TOP_K] = {"top_k", "top-k", top_k, false},
    [SAMPLER_TYPICAL] = {"typical", "typ_p", typical, false},
    [SAMPLER_TOP_P] = {"top_p", "top-p", top_p, false},
    [SAMPLER_MIN_P] = {"min_p", "min-p", min_p, false},
    [SAMPLER_XTC] = {"xtc", NULL, xtc, false},
    [SAMPLER_TEMPERATURE] = {"temperature", "temp", temperature, false},
};
enum { N_STAGES = sizeof stages / sizeof *stages };

bool sampler_parse_chain(const char *text, uint8_t chain[SAMPLER_MAX_CHAIN], struct error *err)
{
    uint8_t out[SAMPLER_MAX_CHAIN] = {0};
    size_t n = 0;
    for (const char *p = text; *p;) {
        size_t len = strcspn(p, ";, ");
        if (len) {
            int kind = 0;
            for (int k = 1; k < N_STAGES; k++) {
                const char *names[] = {stages[k].name, stages[k].alias};
                for (int a = 0; a < 2; a++)
                    if (names[a] && strlen(names[a]) == len && strncasecmp(names[a], p, len) == 0)
                        kind = k;
            }
            if (!kind) {
                char all[256];
                sampler_format_chain(sampler_defaults.chain, all, sizeof all);
                return error_set(err, ERR_USAGE,
                                 "--samplers: unknown sampler \"%.*s\", expected any of %s",
                                 (int)(len < 40 ? len : 40), p, all);
            }
            if (n + 1 >= SAMPLER_MAX_CHAIN)
                return error_set(err, ERR_USAGE, "--samplers: more than %d samplers",
                                 SAMPLER_MAX_CHAIN - 1);
            out[n++] = (uint8_t)kind;
        }
        p += len + (p[len] != '\0');
    }
    memcpy(chain, out, sizeof out);
    return true;
}

void sampler_format_chain(const uint8_t *chain, char *out, size_t n)
{
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < SAMPLER_MAX_CHAIN && chain[i] != SAMPLER_END && len < n; i++)
        len += (size_t)snprintf(out + len, n - len, "%s%s", i ? ";" : "", stages[chain[i]].name);
}

bool sampler_check(const struct sampler_settings *s, uint32_t n_vocab, struct error *err)
{
    for (size_t i = 0; i < SAMPLER_N_NUMBERS; i++)
        if (!isfinite(sampler_number_get(s, &sampler_numbers[i])))
            return error_set(err, ERR_USAGE, "--%s: found %g, expected a finite number",
                             sampler_numbers[i].name, sampler_number_get(s, &sampler_numbers[i]));
    if (s->temp > 0 && s->temp < SAMPLER_LEAST_TEMP)
        return error_set(err, ERR_USAGE,
                         "--temp: found %g, expected 0 (the most likely token), or %g at least",
                         (double)s->temp, (double)SAMPLER_LEAST_TEMP);
    size_t n = 0;
    while (n < SAMPLER_MAX_CHAIN && s->chain[n] != SAMPLER_END && s->chain[n] < N_STAGES)
        n++;
    if (n == SAMPLER_MAX_CHAIN || s->chain[n] != SAMPLER_END)
        return error_set(err, ERR_USAGE, "--samplers: the list has no end within %d",
                         SAMPLER_MAX_CHAIN);
    if (s->n_bias > SAMPLER_MAX_BIAS)
        return error_set(err, ERR_USAGE, "--logit-bias: %u of them, expected at most %d", s->n_bias,
                         SAMPLER_MAX_BIAS);
    for (uint32_t i = 0; i < s->n_bias; i++) {
        const struct logit_bias *b = &s->bias[i];
        if (b->id < 0 || (uint32_t)b->id >= n_vocab)
            return error_set(err, ERR_USAGE,
                             "--logit-bias: token id %d, expected 0 to %u (the model's vocabulary)",
                             b->id, n_vocab - 1);
        if (isnan(b->bias) || b->bias == INFINITY)
            return error_set(err, ERR_USAGE,
                             "--logit-bias: %g for token %d, expected a number or -inf",
                             (double)b->bias, b->id);
    }
    return true;
}

bool sampler_init(struct sampler *s, const struct sampler_settings *set, uint32_t n_vocab,
                  struct error *err)
{
    *s = (struct sampler){0};
    if (!sampler_check(set, n_vocab, err))
        return false;
    *s = (struct sampler){.set = *set, .n_vocab = n_vocab};
    s->cand = malloc(n_vocab * sizeof *s->cand);
    s->copy = malloc(n_vocab * sizeof *s->copy);
    s->count = calloc(n_vocab, sizeof *s->count);
    if (!s->cand || !s->copy || !s->count) {
        sampler_release(s);
        return error_oom(err, "the sampler", n_vocab * (2 * sizeof *s->cand + sizeof *s->count));
    }
    return true;
}

void sampler_release(struct sampler *s)
{
    if (!s)
        return;
    free(s->cand);
    free(s->copy);
    free(s->count);
    free(s->z);
    *s = (struct sampler){0};
}

// The draw walks the survivors in ascending id order.
static void order_by_id(struct work *w)
{
    struct sampler *s = w->s;
    if (w->n < s->n_vocab / 32) {
        qsort(w->c, w->n, sizeof *w->c, by_id);
        return;
    }
    for (uint32_t i = 0; i < s->n_vocab; i++)
        s->copy[i].id = -1;
    for (size_t i = 0; i < w->n; i++)
        s->copy[w->c[i].id] = w->c[i];
    w->n = 0;
    for (uint32_t i = 0; i < s->n_vocab; i++)
        if (s->copy[i].id >= 0)
            w->c[w->n++] = s->copy[i];
}

static bool check_finite(const float *logits, uint32_t n, struct error *err)
{
    size_t i = finite_until(logits, n);
    return i == n || finite_error(NULL, (uint32_t)i, logits[i], err);
}

bool sampler_none_left(struct error *err)
{
    return error_set(err, ERR_FAIL, "no token is left to choose: --logit-bias forbids all of them");
}

bool sampler_overflow(struct error *err)
{
    return error_set(
        err, ERR_FAIL,
        "the model's logits are too large to sample: with biases and penalties, and "
        "divided by the temperature, the largest is not finite: use a smaller "
        "--logit-bias, weaker penalties or a larger --temp; where none of them is set, "
        "the model's weights are damaged, or overflow: download the file again, or "
        "use another quantisation");
}

static bool forbids(const struct sampler_settings *set)
{
    uint32_t i = 0;
    while (i < set->n_bias && set->bias[i].bias != -INFINITY)
        i++;
    return i < set->n_bias;
}

bool sampler_pick(struct sampler *s, const float *logits, const int32_t *history, size_t n_history,
                  int32_t *id, struct error *err)
{
    const struct sampler_settings *set = &s->set;
    s->n_cand = 0;
    if (!check_finite(logits, s->n_vocab, err))
        return false;
    for (size_t i = 0; i < n_history; i++)
        if (history[i] < 0 || (uint32_t)history[i] >= s->n_vocab)
            return error_set(err, ERR_FAIL,
                             "token id %d at position %zu is outside the vocabulary of %u",
                             history[i], i, s->n_vocab);
    struct work w = {
        .s = s, .c = s->cand, .n = s->n_vocab, .history = history, .n_history = n_history};
    for (uint32_t i = 0; i < s->n_vocab; i++)
        w.c[i] = (struct sampler_candidate){(int32_t)i, logits[i]};
    for (uint32_t i = 0; i < set->n_bias; i++)
        w.c[set->bias[i].id].logit += set->bias[i].bias;
    if (s->allow) {
        w.n = 0;
        for (uint32_t i = 0; i < s->n_vocab; i++)
            if (s->allow[i / 32] >> (i % 32) & 1)
                w.c[w.n++] = w.c[i];
        if (w.n == 0)
            return error_set(err, ERR_FAIL, "no token is allowed: there is none to choose");
    }

    bool greedy = set->temp <= 0;
    for (size_t i = 0; i < SAMPLER_MAX_CHAIN && set->chain[i] != SAMPLER_END; i++)
        if ((!greedy || stages[set->chain[i]].edits_logits) &&
            !stages[set->chain[i]].apply(&w, err))
            return false;

    size_t best = 0;
    for (size_t i = 1; i < w.n; i++)
        if (by_logit(&w.c[i], &w.c[best]) < 0)
            best = i;
    float max = w.c[best].logit;
    if (isinf(max))
        return max < 0 && forbids(set) ? sampler_none_left(err) : sampler_overflow(err);
    if (greedy) {
        w.c[0] = w.c[best];
        w.n = 1;
    } else {
        order_by_id(&w);
    }
    s->n_cand = w.n;
    uint64_t total = total_weight(&w, max), sum = 0;
    uint64_t r =
        sampler_scale_random(rng_u64(set->seed, set->first + n_history, SAMPLER_DRAW_PICK), total);
    for (size_t i = 0; i < w.n; i++) {
        sum += sampler_weight(w.c[i].logit, max);
        if (sum > r) {
            *id = w.c[i].id;
            return true;
        }
    }
    return error_set(err, ERR_FAIL,
                     "the sampler found no candidate"); // cannot happen: sum ends at total > r
}

static double log_sum_exp(const float *logits, uint32_t n)
{
    float max = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        max = logits[i] > max ? logits[i] : max;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - max);
    return max + log(sum);
}

double sampler_logprob(const float *logits, uint32_t n_vocab, int32_t id)
{
    return logits[id] - log_sum_exp(logits, n_vocab);
}

bool sampler_top_logprobs(const float *logits, uint32_t n_vocab, struct token_prob *top, uint32_t n,
                          struct error *err)
{
    if (!check_finite(logits, n_vocab, err))
        return false;
    double lse = log_sum_exp(logits, n_vocab);
    uint32_t len = 0;
    for (uint32_t i = 0; i < n_vocab; i++) { // insertion into a short sorted list; n is small
        if (len == n && (n == 0 || logits[i] <= top[n - 1].logprob))
            continue;
        uint32_t at = len < n ? len++ : n - 1;
        for (; at > 0 && top[at - 1].logprob < logits[i]; at--)
            top[at] = top[at - 1];
        top[at] = (struct token_prob){(int32_t)i, logits[i]};
    }
    for (uint32_t i = 0; i < len; i++)
        top[i].logprob = (float)(top[i].logprob - lse);
    return true;
}
