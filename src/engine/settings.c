#include "engine/settings.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/format.h"
#include "gguf/gguf.h"

#define NUMBER(name, field, whole, least, most, key)                                               \
    {                                                                                              \
        name, offsetof(struct sampler_settings, field), whole, least, most, key                    \
    }

const struct sampler_number sampler_numbers[SAMPLER_N_NUMBERS] = {
    NUMBER("temp", temp, false, 0, 1e6, "general.sampling.temp"),
    NUMBER("top-k", top_k, true, 0, INT32_MAX, "general.sampling.top_k"),
    NUMBER("top-p", top_p, false, 0, 1, "general.sampling.top_p"),
    NUMBER("min-p", min_p, false, 0, 1, "general.sampling.min_p"),
    NUMBER("typical", typical, false, 0, 1, NULL),
    NUMBER("top-nsigma", top_n_sigma, false, -1, 1e6, NULL),
    NUMBER("xtc-probability", xtc_probability, false, 0, 1, "general.sampling.xtc_probability"),
    NUMBER("xtc-threshold", xtc_threshold, false, 0, 1, "general.sampling.xtc_threshold"),
    NUMBER("repeat-penalty", repeat_penalty, false, 1e-6, 1e6, "general.sampling.penalty_repeat"),
    NUMBER("repeat-last-n", repeat_last_n, true, -1, INT32_MAX, "general.sampling.penalty_last_n"),
    NUMBER("presence-penalty", presence_penalty, false, -1e6, 1e6, NULL),
    NUMBER("frequency-penalty", frequency_penalty, false, -1e6, 1e6, NULL),
    NUMBER("dry-multiplier", dry_multiplier, false, 0, 1e6, NULL),
    NUMBER("dry-base", dry_base, false, 1e-6, 1e6, NULL),
    NUMBER("dry-allowed-length", dry_allowed_length, true, 1, INT32_MAX, NULL),
    NUMBER("dry-penalty-last-n", dry_penalty_last_n, true, -1, INT32_MAX, NULL),
};

// NaN is in no range. The least is the float that its text becomes, which may be below it.
static bool in_range(const struct sampler_number *d, double x)
{
    return x >= (double)(float)d->least && x <= d->most;
}

const char *sampler_number_expects(const struct sampler_number *d, double x, char out[FORMAT_TEXT])
{
    if (!in_range(d, x))
        return format_range(out, d->least, d->most);
    if (d == &sampler_numbers[SAMPLER_TEMP] && x > 0 && (float)x < SAMPLER_LEAST_TEMP)
        return "0, or 1e-30 at least";
    return NULL;
}

double sampler_number_get(const struct sampler_settings *s, const struct sampler_number *d)
{
    const void *at = (const char *)s + d->offset;
    return d->whole ? *(const int32_t *)at : (double)*(const float *)at;
}

bool sampler_check_numbers(const struct sampler_settings *s, struct error *err)
{
    for (size_t i = 0; i < SAMPLER_N_NUMBERS; i++) {
        const struct sampler_number *d = &sampler_numbers[i];
        double x = sampler_number_get(s, d);
        char range[FORMAT_TEXT];
        if (!in_range(d, x))
            return error_set(err, ERR_USAGE, "--%s: found \"%g\", expected %s", d->name, x,
                             format_range(range, d->least, d->most));
    }
    return true;
}

// What the model recommends, in place of *x, if it does.
static bool read_recommended(const struct sampler_number *d, const struct gguf *g, double *x,
                             struct error *err)
{
    int32_t whole = (int32_t)*x;
    float number = (float)*x;
    if (d->whole ? !gguf_get_i32(g, d->metadata_key, false, &whole, err)
                 : !gguf_get_f32(g, d->metadata_key, false, &number, err))
        return false;
    *x = d->whole ? whole : (double)number;
    return true;
}

static bool is_chain(struct gguf_str list, uint8_t chain[SAMPLER_MAX_CHAIN])
{
    char text[256];
    struct error ignored = {0};
    if (list.len >= sizeof text || memchr(list.data, '\0', list.len))
        return false;
    memcpy(text, list.data, list.len);
    text[list.len] = '\0';
    return sampler_parse_chain(text, chain, &ignored);
}

static bool recommended_chain(uint8_t chain[SAMPLER_MAX_CHAIN], const struct gguf *g,
                              struct error *err)
{
    static const char other[] = "general.sampling.mirostat", key[] = "general.sampling.sequence";
    struct gguf_str list = {0};
    int32_t mirostat = 0;
    char shown[FORMAT_TEXT], all[256];
    memcpy(chain, sampler_defaults.chain, SAMPLER_MAX_CHAIN);
    if (!gguf_get_i32(g, other, false, &mirostat, err) || !gguf_get_str(g, key, false, &list, err))
        return false;
    if (mirostat != 0)
        return error_set(err, ERR_MODEL,
                         "metadata key %s is %d, expected 0: that sampler is not there, --samplers "
                         "takes those that are",
                         other, mirostat);
    if (list.len == 0 || is_chain(list, chain))
        return true;
    sampler_format_chain(sampler_defaults.chain, all, sizeof all);
    return error_set(err, ERR_MODEL,
                     "metadata key %s is \"%s\", expected any of %s, as of --samplers", key,
                     format_text(shown, sizeof shown, list.data, list.len), all);
}

bool sampler_recommended(struct sampler_settings *s, const struct gguf *g, uint32_t given,
                         struct error *err)
{
    for (size_t i = 0; i < SAMPLER_N_NUMBERS; i++) {
        const struct sampler_number *d = &sampler_numbers[i];
        char range[FORMAT_TEXT];
        if (!d->metadata_key || given >> i & 1)
            continue;
        // (Another model may have recommended something.)
        double x = sampler_number_get(&sampler_defaults, d);
        if (!read_recommended(d, g, &x, err))
            return false;
        const char *expected = sampler_number_expects(d, x, range);
        if (expected)
            return error_set(err, ERR_MODEL, "metadata key %s is %.10g, expected %s, as of --%s",
                             d->metadata_key, d->whole ? x : format_float((float)x), expected,
                             d->name);
        void *at = (char *)s + d->offset;
        if (d->whole)
            *(int32_t *)at = (int32_t)x;
        else
            *(float *)at = (float)x;
    }
    return given & SAMPLER_CHAIN_GIVEN || recommended_chain(s->chain, g, err);
}

bool sampler_random_seed(uint64_t *seed, struct error *err)
{
    if (getrandom(seed, sizeof *seed, 0) != sizeof *seed)
        return error_set(err, ERR_FAIL, "no random seed: getrandom: %s", strerror(errno));
    *seed &= (1ull << 53) - 1;
    return true;
}
