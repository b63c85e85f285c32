// The values of options: text to numbers, choices and what has a form of its own, and back.
#include "cli/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/decimal.h"
#include "base/format.h"
#include "engine/settings.h"

static bool bad_value(const struct option_def *d, const char *value, const char *expected,
                      struct error *err)
{
    return error_set(err, ERR_USAGE, "%s: found \"%.60s\", expected %s", d->long_name, value,
                     expected);
}

static bool set_choice(const struct option_def *d, const char *value, int32_t *out,
                       struct error *err)
{
    size_t len = strlen(value);
    int32_t i = 0;
    for (const char *p = d->choices; *p; i++) {
        size_t n = strcspn(p, "|");
        if (n == len && memcmp(p, value, n) == 0) {
            *out = i;
            return true;
        }
        p += n + (p[n] == '|');
    }
    char expected[128];
    snprintf(expected, sizeof expected, "one of %s", d->choices);
    return bad_value(d, value, expected, err);
}

// Of the sampling settings that are numbers: its row of sampler_numbers, else SAMPLER_N_NUMBERS.
static size_t sampler_row(const struct option_def *d)
{
    size_t i = 0;
    while (i < SAMPLER_N_NUMBERS &&
           d->offset != offsetof(struct options, sampler) + sampler_numbers[i].offset)
        i++;
    return i;
}

// value: what was found, as text.
static bool check_range(const struct option_def *d, double x, const char *value, struct error *err)
{
    const size_t row = sampler_row(d);
    char range[FORMAT_TEXT];
    const char *expected = NULL;
    if (row < SAMPLER_N_NUMBERS)
        expected = sampler_number_expects(&sampler_numbers[row], x, range);
    else if ((d->least != 0 || d->most != 0) && !(x >= d->least && x <= d->most)) // NaN is in none
        expected = format_range(range, d->least, d->most);
    return !expected || bad_value(d, value, expected, err);
}

static bool store_flag(struct options *o, const struct option_def *d, const char *value,
                       struct error *err)
{
    bool on = d->kind == OPT_FLAG;
    if (value) { // configuration file, environment, /set: an explicit value
        if (!strcmp(value, "off") || !strcmp(value, "false") || !strcmp(value, "0") ||
            !strcmp(value, "no"))
            on = !on;
        else if (strcmp(value, "on") && strcmp(value, "true") && strcmp(value, "1") &&
                 strcmp(value, "yes") && *value)
            return bad_value(d, value, "on or off", err);
    }
    if (d->offset == offsetof(struct options, conversation))
        o->conversation = on;
    else
        *(bool *)((char *)o + d->offset) = on;
    return true;
}

static bool store_real(const struct option_def *d, const char *value, float *to, struct error *err)
{
    char *end;
    errno = 0;
    const double x = strtod(value, &end);
    const float f = (float)x;
    if (!decimal_real(value) || end == value || *end)
        return bad_value(d, value, "a number", err);
    if (f == 0 && (x != 0 || errno)) // it would mean something else
        return bad_value(d, value, "0, or a number that is not so near to it", err);
    if (!check_range(d, (double)f, value, err))
        return false;
    if (!isfinite(f))
        return bad_value(d, value, "a number of at most 32 bits", err);
    *to = f;
    return true;
}

static bool store_seed(struct options *o, const struct option_def *d, const char *value,
                       struct error *err)
{
    const bool random = strcmp(value, "random") == 0;
    errno = 0;
    const unsigned long long u = random ? 0 : strtoull(value, NULL, 10);
    if (!random && (!decimal_whole(value) || errno || *value == '-'))
        return bad_value(d, value, "0 to 18446744073709551615, or random", err);
    o->sampler.seed = u;
    o->seed_given = !random;
    return !random || sampler_random_seed(&o->sampler.seed, err);
}

const char *option_tilde(const struct option_def *d, const char *value)
{
    const char *file = d->kind == OPT_STR && d->arg ? strstr(d->arg, "FILE") : NULL;
    if (file && file > d->arg && file[-1] == '@') { // TEXT|@FILE
        if (*value != '@')
            return NULL;
        value++;
    }
    return file && value[0] == '~' && (value[1] == '/' || !value[1]) ? value : NULL;
}

bool option_store(struct options *o, const struct option_def *d, const char *value,
                  struct error *err)
{
    void *target = (char *)o + d->offset;
    const char *tilde;
    errno = 0;
    long long i = 0;
    if (d->kind == OPT_I32 || d->kind == OPT_I64 || d->kind == OPT_U32) {
        i = strtoll(value, NULL, 10);
        if (!decimal_whole(value))
            return bad_value(d, value, "a whole number", err);
        if (!check_range(d, (double)i, value, err)) // what is too large for i is its largest value
            return false;
    }
    switch (d->kind) {
    case OPT_FLAG:
    case OPT_FLAG_OFF:
        return store_flag(o, d, value, err);
    case OPT_STR:
        // A model's name is checked where it is opened: it may be an address, too.
        if (!*value && d->arg && strcmp(d->arg, "FILE") == 0 &&
            d->offset != offsetof(struct options, model) &&
            d->offset != offsetof(struct options, model_draft))
            return bad_value(d, value, "a file's name", err);
        if ((tilde = option_tilde(d, value)) && access(tilde, F_OK) != 0)
            return bad_value(d, value,
                             "a file (a shell takes ~ for the home only where a word begins with "
                             "it: write $HOME)",
                             err);
        if (d->choices) {
            int32_t ignored;
            if (!set_choice(d, value, &ignored, err))
                return false;
        }
        *(const char **)target = value;
        break;
    case OPT_LIST: {
        struct str_list *list = target;
        if (!*value)
            return bad_value(d, value, "a text", err);
        if (list->n == OPTIONS_MAX_LIST)
            return error_set(err, ERR_USAGE, "%s: given more than %d times", d->long_name,
                             OPTIONS_MAX_LIST);
        list->items[list->n++] = value;
        break;
    }
    case OPT_I32:
        if (i < INT32_MIN || i > INT32_MAX)
            return bad_value(d, value, "a number of at most 32 bits", err);
        *(int32_t *)target = (int32_t)i;
        break;
    case OPT_I64:
        if (errno)
            return bad_value(d, value, "a number of at most 64 bits", err);
        *(int64_t *)target = i;
        break;
    case OPT_U32:
        if (i < 0 || i > INT32_MAX)
            return bad_value(d, value, "a number from 0 to 2147483647", err);
        *(uint32_t *)target = (uint32_t)i;
        break;
    case OPT_U64:
        return store_seed(o, d, value, err);
    case OPT_F32:
        if (!store_real(d, value, target, err))
            return false;
        break;
    case OPT_CHOICE:
        return set_choice(d, value, target, err);
    case OPT_CUSTOM:
        return d->parse(o, value, err);
    }
    if (sampler_row(d) < SAMPLER_N_NUMBERS)
        o->sampler_given |= 1u << sampler_row(d);
    return true;
}

void option_forget(struct options *o, const struct option_def *d)
{
    if (d->kind == OPT_LIST)
        ((struct str_list *)((char *)o + d->offset))->n = 0;
    else if (d->kind == OPT_CUSTOM && d->parse == options_parse_bias)
        o->sampler.n_bias = 0;
}

bool options_parse_bias(struct options *o, const char *value, struct error *err)
{
    char *end;
    errno = 0;
    long id = strtol(value, &end, 10);
    struct sampler_settings *s = &o->sampler;
    if (end == value || *value < '0' || *value > '9' || errno || id < 0 || id > INT32_MAX ||
        (*end != '+' && *end != '-'))
        return error_set(
            err, ERR_USAGE,
            "--logit-bias: found \"%.60s\", expected TOKEN_ID(+|-)NUMBER, as in 15043+1.5 or 2-inf",
            value);
    char *number = end;
    float bias = strtof(number, &end);
    const bool forbids = strcmp(number, "-inf") == 0;
    if (!(forbids || decimal_real(number)) || end == number || *end || !(forbids || isfinite(bias)))
        return error_set(err, ERR_USAGE,
                         "--logit-bias: found \"%.60s\", expected a number after the token id",
                         value);
    if (s->n_bias == SAMPLER_MAX_BIAS)
        return error_set(err, ERR_USAGE, "--logit-bias: given more than %d times",
                         SAMPLER_MAX_BIAS);
    s->bias[s->n_bias++] = (struct logit_bias){(int32_t)id, bias};
    return true;
}

bool options_parse_chain(struct options *o, const char *value, struct error *err)
{
    o->sampler_given |= SAMPLER_CHAIN_GIVEN;
    return sampler_parse_chain(value, o->sampler.chain, err);
}

// Bytes, or with k, M, G, T behind in powers of ten, as sizes are shown.
bool options_parse_max_size(struct options *o, const char *value, struct error *err)
{
    static const char units[] = "kMGT";
    char *end;
    double v = strtod(value, &end), unit = 1;
    const char *u = *end ? strchr(units, *end) : NULL;
    for (size_t i = 0; u && i <= (size_t)(u - units); i++)
        unit *= 1000;
    end += u != NULL;
    end += *end == 'B';
    v *= unit;
    bool number = strspn(value, "0123456789.") > 0 && !strpbrk(value, "xXeEpP");
    if (!number || *end || !(v >= 1 && v < 1e18))
        return error_set(err, ERR_USAGE,
                         "--max-size: found \"%.60s\", expected a number of bytes, as in 500M or "
                         "4.7GB",
                         value);
    o->max_bytes = (uint64_t)v;
    return true;
}

// With s, m, h or d behind. A number alone is 0, or else refused: llama-cli has a --keep of tokens.
bool options_parse_keep(struct options *o, const char *value, struct error *err)
{
    enum { DAY = 86400, MOST = 30 * DAY };
    char *end = NULL;
    const bool digits = *value >= '0' && *value <= '9';
    errno = 0;
    unsigned long n = digits ? strtoul(value, &end, 10) : 0, unit = 1;
    if (digits && (*end || n > 0)) {
        unit = *end == 's' ? 1 : *end == 'm' ? 60 : *end == 'h' ? 3600 : *end == 'd' ? DAY : 0;
        end += *end != '\0';
    }
    if (!digits || *end || unit == 0 || errno || n > MOST / unit)
        return error_set(err, ERR_USAGE,
                         "--keep: found \"%.60s\", expected a time of at most 30d, as in 90s, 10m "
                         "or 2h; 0 keeps nothing",
                         value);
    o->keep = (uint32_t)(n * unit);
    return true;
}

bool option_show(const struct options *o, const struct option_def *d, struct buf *out)
{
    const void *at = (const char *)o + d->offset;
    switch (d->kind) {
    case OPT_FLAG:
    case OPT_FLAG_OFF:
        if (d->offset == offsetof(struct options, conversation))
            return buf_puts(out, o->conversation ? "on" : "off");
        return buf_puts(out, *(const bool *)at ? "on" : "off");
    case OPT_STR:
        return buf_puts(out, *(const char *const *)at ? *(const char *const *)at : "");
    case OPT_LIST: {
        const struct str_list *list = at;
        for (size_t i = 0; i < list->n; i++)
            buf_printf(out, "%s\"%s\"", i ? " " : "", list->items[i]);
        return !out->failed;
    }
    case OPT_I32:
        return buf_printf(out, "%d", *(const int32_t *)at);
    case OPT_I64:
        return buf_printf(out, "%lld", (long long)*(const int64_t *)at);
    case OPT_U32:
        return buf_printf(out, "%u", *(const uint32_t *)at);
    case OPT_U64:
        return buf_printf(out, "%llu", (unsigned long long)*(const uint64_t *)at);
    case OPT_F32:
        return buf_printf(out, "%.9g", format_float(*(const float *)at)); // of which no bit is lost
    case OPT_CHOICE: {
        const char *p = d->choices;
        for (int32_t i = *(const int32_t *)at; i > 0; i--)
            p += strcspn(p, "|") + 1;
        return buf_append(out, p, strcspn(p, "|"));
    }
    case OPT_CUSTOM:
        break;
    }
    if (!strcmp(d->long_name, "--samplers")) {
        char text[256];
        sampler_format_chain(o->sampler.chain, text, sizeof text);
        return buf_puts(out, text);
    }
    if (!strcmp(d->long_name, "--keep"))
        return buf_printf(out, "%u", o->keep);
    if (!strcmp(d->long_name, "--max-size"))
        return buf_printf(out, "%llu", (unsigned long long)o->max_bytes);
    for (uint32_t i = 0; i < o->sampler.n_bias; i++)
        buf_printf(out, "%s%d%+.9g", i ? " " : "", o->sampler.bias[i].id,
                   format_float(o->sampler.bias[i].bias));
    return !out->failed;
}
