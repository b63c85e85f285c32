// The CPU sampler as a shared library, for the comparison with NumPy in test_sampler.py. Settings
// are given by the names of the command line's options, so that the names are tested too.
#include <stdlib.h>
#include <string.h>

#include "engine/sampler_math.h"
#include "cli/options.h"

__attribute__((visibility("default"))) int
hokku_sample(const char *settings, const float *logits, uint32_t n_vocab, const int32_t *history,
             size_t n_history, const uint8_t *breakers, double *prob, int32_t *picks,
             size_t n_picks, char *message, size_t n_message);

// settings: "name=value\n" lines. prob (n_vocab): the final distribution at this position, 0 for
// removed tokens. picks: the tokens drawn at positions n_history, n_history + 1, ... (with the same
// history). Returns 0, or -1 with a message.
int hokku_sample(const char *settings, const float *logits, uint32_t n_vocab,
                 const int32_t *history, size_t n_history, const uint8_t *breakers, double *prob,
                 int32_t *picks, size_t n_picks, char *message, size_t n_message)
{
    struct options o = {.sampler = sampler_defaults};
    struct error err = {0};
    struct sampler s = {0};
    char *copy = strdup(settings), *save = NULL;
    bool ok = true;
    for (char *line = strtok_r(copy, "\n", &save); ok && line; line = strtok_r(NULL, "\n", &save)) {
        char *eq = strchr(line, '=');
        *eq = '\0';
        ok = options_set(&o, line, eq + 1, &err);
    }
    o.sampler.dry_breakers = breakers;
    ok = ok && sampler_check(&o.sampler, n_vocab, &err) &&
         sampler_init(&s, &o.sampler, n_vocab, &err);
    int32_t id;
    if (ok && prob && (ok = sampler_pick(&s, logits, history, n_history, &id, &err))) {
        float max = s.cand[0].logit;
        double total = 0;
        for (size_t i = 0; i < s.n_cand; i++)
            max = s.cand[i].logit > max ? s.cand[i].logit : max;
        memset(prob, 0, n_vocab * sizeof *prob);
        for (size_t i = 0; i < s.n_cand; i++)
            total += (double)sampler_weight(s.cand[i].logit, max);
        for (size_t i = 0; i < s.n_cand; i++)
            prob[s.cand[i].id] = (double)sampler_weight(s.cand[i].logit, max) / total;
    }
    int32_t *grown = malloc((n_history + n_picks + 1) * sizeof *grown);
    if (n_history)
        memcpy(grown, history, n_history * sizeof *grown);
    for (size_t i = 0; ok && i < n_picks; i++) {
        ok = sampler_pick(&s, logits, grown, n_history + i, &picks[i], &err);
        grown[n_history + i] = 0;
    }
    free(grown);
    sampler_release(&s);
    free(copy);
    if (!ok && message)
        strncpy(message, err.text, n_message - 1);
    return ok ? 0 : -1;
}
