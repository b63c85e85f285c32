#include "tools/bench_grammar.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/json_text.h"
#include "base/rng.h"
#include "engine/profile.h"
#include "grammar/grammar.h"

enum { N_ANSWERS = 100, MAX_TOKENS = 256, MAX_FILE_BYTES = 16 << 20 };

struct grammar_bench {
    const struct model *m;
    const struct grammar_vocab *vocab;
    uint32_t *bits;
    size_t n_words;
    double *masks; // (n_masks) seconds: going on by the token before, and the mask
    size_t n_masks, n_ended;
    double prepare[N_ANSWERS]; // seconds: reading the text, automaton, tables
    double vocab_s;            // once for a model
};

// CPU time of this thread: masks are made beside the device's work, and the machine may do other
// things, too.
static double cpu_now(void) // seconds
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int32_t nth_token(const uint32_t *bits, uint64_t n)
{
    for (int32_t word = 0;; word++)
        for (uint32_t rest = bits[word]; rest; rest &= rest - 1)
            if (n-- == 0)
                return 32 * word + __builtin_ctz(rest);
}

// Answer number k, with nothing remembered of those before.
static bool follow(struct grammar_bench *b, struct grammar_matcher *m, uint64_t k,
                   struct error *err)
{
    struct grammar_state s;
    bool ok = true, ended = false;
    int32_t id = -1;
    grammar_state_init(&s, m);
    for (uint64_t i = 0; ok && !ended && i < MAX_TOKENS; i++) {
        uint32_t n = 0;
        double start = cpu_now();
        ok = (id < 0 || grammar_accept(&s, id, err)) &&
             grammar_mask(&s, b->bits, b->n_words, &n, err);
        if (!ok)
            break;
        b->masks[b->n_masks++] = cpu_now() - start;
        id = nth_token(b->bits, rng_u64(k, i, 0) % n);
        ended = tokenizer_is_end(b->m->tokenizer, id);
    }
    b->n_ended += ended;
    grammar_state_release(&s);
    return ok;
}

static bool run(struct grammar_bench *b, const char *path, const struct buf *text,
                const struct cancel *cancel, struct error *err)
{
    const size_t n_path = strlen(path);
    const bool is_schema = n_path > 5 && strcmp(path + n_path - 5, ".json") == 0;
    for (uint64_t k = 0; k < N_ANSWERS; k++) {
        if (cancel_asked(cancel))
            return error_set(err, ERR_INTERRUPTED, "interrupted");
        double start = cpu_now();
        struct grammar *g = is_schema ? grammar_from_schema(buf_str(text), text->len, 0, NULL, err)
                                      : grammar_from_gbnf(buf_str(text), text->len, NULL, err);
        struct grammar_matcher *m = g ? grammar_matcher_create(g, b->vocab, err) : NULL;
        b->prepare[k] = cpu_now() - start;
        bool ok = m && follow(b, m, k, err);
        grammar_matcher_free(m);
        grammar_free(g);
        if (!ok)
            return error_prefix(err, "%s", path);
    }
    return true;
}

static void write_result(struct grammar_bench *b, const char *path, bool json, struct buf *out)
{
    double sum = 0;
    for (size_t i = 0; i < b->n_masks; i++)
        sum += b->masks[i];
    profile_median(b->masks, b->n_masks); // in order
    const double mean = sum / (double)b->n_masks * 1e6, most = b->masks[b->n_masks - 1] * 1e6;
    const double p999 = b->masks[(b->n_masks - 1) * 999 / 1000] * 1e6;
    const double prepare = profile_median(b->prepare, N_ANSWERS) * 1e3;
    const unsigned n_vocab = tokenizer_n_vocab(b->m->tokenizer);
    if (!json) {
        buf_printf(
            out,
            "%s · %s · %u tokens · %zu masks of %d random answers, of which %zu came to "
            "their end; CPU time\n\n"
            "| mean us | p99.9 us | most us | prepare ms (least..most) | vocabulary ms, once "
            "a model |\n"
            "|---:|---:|---:|---:|---:|\n"
            "| %.1f | %.1f | %.1f | %.2f (%.2f..%.2f) | %.1f |\n",
            path, b->m->name, n_vocab, b->n_masks, N_ANSWERS, b->n_ended, mean, p999, most, prepare,
            b->prepare[0] * 1e3, b->prepare[N_ANSWERS - 1] * 1e3, b->vocab_s * 1e3);
        return;
    }
    json_t *j = json_pack("{s:s, s:s, s:I, s:I, s:i, s:I, s:f, s:f, s:f, s:f, s:f}", "grammar",
                          path, "model", b->m->name, "n_vocab", (json_int_t)n_vocab, "masks",
                          (json_int_t)b->n_masks, "answers", N_ANSWERS, "ended",
                          (json_int_t)b->n_ended, "mean_us", mean, "p99_9_us", p999, "max_us", most,
                          "prepare_ms", prepare, "vocabulary_ms", b->vocab_s * 1e3);
    json_put(j, JSON_INDENT(2), out);
}

bool bench_grammar(const struct model *m, const char *path, bool json, const struct cancel *cancel,
                   struct buf *out, struct error *err)
{
    struct grammar_bench b = {.m = m, .n_words = (m->hp.n_vocab + 31) / 32};
    struct buf text = {0};
    if (!file_read_setting(path, MAX_FILE_BYTES, cancel, &text, err))
        return error_prefix(err, "--grammar");
    double start = cpu_now();
    struct grammar_vocab *vocab = grammar_vocab_create(m->tokenizer, err);
    b.vocab = vocab;
    b.vocab_s = cpu_now() - start;
    b.bits = malloc(b.n_words * sizeof *b.bits);
    b.masks = malloc(N_ANSWERS * MAX_TOKENS * sizeof *b.masks);
    bool ok = vocab && ((b.bits && b.masks) || error_oom(err, "the times", MAX_TOKENS * N_ANSWERS));
    ok = ok && run(&b, path, &text, cancel, err);
    if (ok)
        write_result(&b, path, json, out);
    buf_release(&text);
    grammar_vocab_free(vocab);
    free(b.bits);
    free(b.masks);
    return ok && (!out->failed || error_oom(err, "the results", out->len));
}
