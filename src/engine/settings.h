// What the numbers among the sampling settings may be: one table, which the options, the record of
// an answer and a model's recommendations refer to.
#ifndef HOKKU_ENGINE_SETTINGS_H
#define HOKKU_ENGINE_SETTINGS_H

#include "base/format.h"
#include "engine/sampler.h"

struct gguf;

struct sampler_number {
    const char *name;         // of the option, as in "top-p"
    size_t offset;            // in struct sampler_settings
    bool whole;               // an int32_t, else a float
    double least, most;       // what it may be
    const char *metadata_key; // with which a model recommends a value; NULL: none does
};

// In the order of struct sampler_settings, in which answers are recorded.
enum { SAMPLER_TEMP, SAMPLER_N_NUMBERS = 16 };
extern const struct sampler_number sampler_numbers[SAMPLER_N_NUMBERS];

// Which settings are the user's, whatever a model recommends: bit i for sampler_numbers[i], and for
// the order of samplers this.
#define SAMPLER_CHAIN_GIVEN (1u << SAMPLER_N_NUMBERS)

// What x would have to be to be taken for this setting: a constant, or text in out; NULL: it is
// that.
const char *sampler_number_expects(const struct sampler_number *d, double x, char out[FORMAT_TEXT]);
double sampler_number_get(const struct sampler_settings *s, const struct sampler_number *d);

// Every number is in its range. Errors: ERR_USAGE naming the setting, the value, the expectation.
bool sampler_check_numbers(const struct sampler_settings *s, struct error *err);

// Takes what the model recommends, or the default where it says nothing, for all but what is
// `given`. Errors: ERR_MODEL naming the key, the value, the expectation.
bool sampler_recommended(struct sampler_settings *s, const struct gguf *g, uint32_t given,
                         struct error *err);

// Of 53 bits: JSON readers keep it exact. Errors: ERR_FAIL.
bool sampler_random_seed(uint64_t *seed, struct error *err);

#endif
