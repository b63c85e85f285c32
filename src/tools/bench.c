#include "tools/bench.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/json_text.h"
#include "base/rng.h"
#include "engine/profile.h"
#include "tools/bench_kernels.h"
#include "tools/bench_row.h"

enum { FIRST_TOKEN_PROMPT = 32, MAX_REPEAT = 100, N_TICKET = ENGINE_RUN_AHEAD + 1 };
enum { MAX_BLOCK = 256 }; // positions: what a sequence takes of the memory is a multiple of it

struct bench {
    struct engine *e;
    struct seq *s;
    const struct bench_params *p;
    struct engine_peaks peaks;
    int32_t *tokens; // random ones, n_ctx of them
    struct bench_row *rows;
    size_t n_rows;
    struct bench_kernels *kernels;
    size_t n_kernels;
    double first_token_s; // since main began; 0: not measured
};

static bool add_row(struct bench *b, struct bench_row row, double *seconds, size_t n,
                    struct error *err)
{
    row.median_s = profile_median(seconds, n);
    row.min_s = seconds[0];
    row.max_s = seconds[n - 1];
    struct bench_row *rows = realloc(b->rows, (b->n_rows + 1) * sizeof *rows);
    if (!rows)
        return error_oom(err, "the results", (b->n_rows + 1) * sizeof *rows);
    b->rows = rows;
    b->rows[b->n_rows++] = row;
    return true;
}

static void tell(const struct bench *b, const char *name, uint32_t depth, uint32_t run)
{
    if (b->p->progress)
        b->p->progress(b->p->progress_user, name, depth, run, b->p->n_repeat);
}

// Evaluates tokens [begin, end) after the sequence's end.
static bool evaluate(struct bench *b, size_t begin, size_t end, struct error *err)
{
    struct work w = {b->s, b->tokens + begin, end - begin, .n_logits = 1};
    return engine_submit(b->e, &w, 1, b->p->cancel, NULL, err);
}

// Goes back to the first n of tokens, all of them evaluated: what a window had of them may be gone,
// and what a state had is evaluated again with the last of them.
static bool go_back(struct bench *b, struct seq *s, const int32_t *tokens, size_t n,
                    struct error *err)
{
    seq_trim(s, n > 0 ? n - 1 : 0);
    const size_t n_there = seq_len(s);
    struct work rest = {s, tokens + n_there, n - n_there, .n_logits = 1};
    return n == 0 || engine_submit(b->e, &rest, 1, b->p->cancel, NULL, err);
}

// The next token of what was just evaluated.
static bool pick(struct bench *b, struct error *err)
{
    uint64_t ticket;
    struct decoded d;
    struct work w = {b->s, .n_pick = 1};
    return engine_submit(b->e, &w, 1, b->p->cancel, &ticket, err) &&
           engine_wait(b->e, ticket, b->p->cancel, &d, err);
}

// n tokens, each sampled after the one before it was evaluated, the device ahead as in an answer.
static bool decode(struct bench *b, size_t n, struct error *err)
{
    uint64_t ticket[N_TICKET];
    struct decoded d;
    size_t asked = 0;
    for (size_t i = 0; i < n; i++) {
        for (; asked < n && asked <= i + ENGINE_RUN_AHEAD; asked++) {
            struct work w = {b->s, NULL, 1, .n_pick = 1};
            if (!engine_submit(b->e, &w, 1, b->p->cancel, &ticket[asked % N_TICKET], err))
                return false;
        }
        if (!engine_wait(b->e, ticket[i % N_TICKET], b->p->cancel, &d, err))
            return false;
    }
    return true;
}

// One kind of run, repeated: the depth is evaluated once and rewound to.
static bool measure(struct bench *b, const char *name, uint32_t depth, uint32_t n_prompt,
                    uint32_t n_gen, double bytes, struct error *err)
{
    struct engine *e = b->e;
    double seconds[MAX_REPEAT];
    // Decoding starts from the first token sampled, so the last one of the depth is evaluated and
    // the first one picked in every run, outside the time: n tokens are n passes.
    size_t base = n_prompt ? depth : depth > 0 ? depth : 1;
    if (base + n_prompt + n_gen > e->n_ctx)
        return error_set(err, ERR_CONTEXT,
                         "depth %u and %u tokens do not fit the context of %u: use -c %zu", depth,
                         n_prompt + n_gen, e->n_ctx, base + n_prompt + n_gen);
    seq_trim(b->s, 0);
    uint32_t n = b->p->n_repeat;
    for (uint32_t i = 0; i <= n; i++) { // run 0 warms up
        tell(b, name, depth, i);
        if (!go_back(b, b->s, b->tokens, base, err) || (!n_prompt && !pick(b, err)))
            return false;
        double start = clock_now();
        if (n_prompt && !evaluate(b, base, base + n_prompt, err))
            return false;
        if (n_gen && !(n_prompt ? pick(b, err) : decode(b, n_gen, err)))
            return false;
        if (i > 0)
            seconds[i - 1] = clock_now() - start;
    }
    struct bench_row row = {.name = name,
                            .depth = depth,
                            .n_tokens = n_prompt && n_gen ? 1 : n_prompt + n_gen,
                            .n_step = n_prompt ? 1 : n_gen,
                            .bytes = bytes,
                            .flops = n_prompt ? profile_chunk_flops(e->model, depth, n_prompt)
                                              : profile_pass_flops(e->model, base + n_gen / 2, 1)};
    return add_row(b, row, seconds, n, err);
}

// The next token of each of n sequences, n_step times; each begins with work of its own.
static bool decode_together(struct bench *b, struct work *w, size_t n, uint32_t n_step,
                            struct decoded *picks, struct error *err)
{
    uint64_t ticket;
    for (uint32_t i = 0; i < n_step; i++) {
        if (!engine_submit(b->e, w, n, b->p->cancel, &ticket, err) ||
            !engine_wait(b->e, ticket, b->p->cancel, picks, err))
            return false;
        for (size_t k = 0; k < n; k++)
            w[k] = (struct work){w[k].seq, NULL, 1, .n_pick = 1};
    }
    return true;
}

// One run of n sequences of base tokens, each with others. Seconds of n_gen tokens of each.
static bool run_batch(struct bench *b, struct seq **s, size_t n, size_t base, struct work *w,
                      struct decoded *picks, double *seconds, struct error *err)
{
    for (size_t k = 0; k < n; k++) {
        const int32_t *tokens = b->tokens + k;
        if (!go_back(b, s[k], tokens, base - 1, err))
            return false;
        w[k] = (struct work){s[k], tokens + base - 1, 1, .n_pick = 1};
    }
    if (!decode_together(b, w, n, 1, picks, err))
        return false;
    const double start = clock_now();
    bool ok = decode_together(b, w, n, b->p->n_gen, picks, err);
    *seconds = clock_now() - start;
    return ok;
}

uint64_t bench_room(uint32_t depth, uint32_t n_gen)
{
    return ((uint64_t)depth + n_gen + 2 + MAX_BLOCK - 1) / MAX_BLOCK * MAX_BLOCK;
}

// An entry of the kernels of what the last row measured, of which they are this part.
static struct bench_kernels *add_kernels(struct bench *b, double part, struct error *err)
{
    const struct bench_row *r = &b->rows[b->n_rows - 1];
    struct bench_kernels *all = realloc(b->kernels, (b->n_kernels + 1) * sizeof *all);
    if (!all) {
        error_oom(err, "the results", (b->n_kernels + 1) * sizeof *all);
        return NULL;
    }
    b->kernels = all;
    all[b->n_kernels] = (struct bench_kernels){.n_past = r->depth,
                                               .n_tokens = 1,
                                               .n_run = b->p->n_repeat,
                                               .real_s = r->median_s * part,
                                               .real_min_s = r->min_s * part,
                                               .real_max_s = r->max_s * part};
    return &all[b->n_kernels];
}

// The kernels of a pass in the middle of the run of the last row, which had these sequences.
static bool profile_pass(struct bench *b, struct seq **s, uint32_t n, size_t base,
                         struct error *err)
{
    struct bench_kernels *k = add_kernels(b, 1.0 / b->p->n_gen, err);
    if (!k)
        return false;
    k->n_seqs = k->n_tokens = n;
    k->n_past = (uint32_t)base + b->p->n_gen / 2;
    for (uint32_t i = 0; i < n; i++) {
        if (!go_back(b, s[i], b->tokens, k->n_past, err) ||
            !seq_append(s[i], b->tokens + i, 1, err))
            return false;
    }
    if (!engine_profile_pass(b->e, s, n, k->n_run, b->p->cancel, &k->p, err))
        return false;
    b->n_kernels++;
    return true;
}

static bool measure_batch(struct bench *b, uint32_t depth, uint32_t n, struct error *err)
{
    struct engine *e = b->e;
    const size_t base = depth > 0 ? depth : 1, n_ctx = base + b->p->n_gen + 1;
    const uint64_t room = n * bench_room(depth, b->p->n_gen);
    double seconds[MAX_REPEAT];
    if (room > e->n_ctx || base + n > e->n_ctx)
        return error_set(err, ERR_CONTEXT,
                         "%u sequences of %zu tokens do not fit the context of %u: use -c %llu", n,
                         n_ctx, e->n_ctx, (unsigned long long)room);
    struct seq **s = calloc(n, sizeof *s);
    struct work *w = calloc(n, sizeof *w);
    struct decoded *picks = calloc(n, sizeof *picks);
    struct sampler_settings sampler = sampler_defaults;
    bool ok = (s && w && picks) || error_oom(err, "a batch", n * sizeof *picks);
    seq_trim(b->s, 0);
    for (uint32_t k = 0; ok && k < n; k++) {
        s[k] = seq_open(e, (uint32_t)n_ctx, err);
        sampler.seed = 1 + k;
        if (s[k])
            seq_answers_once(s[k]);
        ok = s[k] && seq_sampling(s[k], &(struct sampling){.sampler = &sampler}, err);
    }
    for (uint32_t i = 0; ok && i <= b->p->n_repeat; i++) { // run 0 warms up
        tell(b, "decode", depth, i);
        ok = run_batch(b, s, n, base, w, picks, &seconds[i ? i - 1 : 0], err);
    }
    const double kv = (double)engine_kv_bytes(e, 0, base + b->p->n_gen / 2);
    struct bench_row row = {.name = "decode",
                            .depth = depth,
                            .batch = n,
                            .n_tokens = n * b->p->n_gen,
                            .n_step = b->p->n_gen,
                            .bytes = model_bytes_per_pass(e->model, n) + n * kv,
                            .flops = profile_pass_flops(e->model, base + b->p->n_gen / 2, n)};
    ok = ok && add_row(b, row, seconds, b->p->n_repeat, err) &&
         (!b->p->kernels || n == 1 || profile_pass(b, s, n, base, err));
    for (uint32_t k = 0; s && k < n; k++)
        seq_free(s[k]);
    free(s);
    free(w);
    free(picks);
    return ok;
}

// The kernels of what the last row measured: a token in the middle of its run, or its first chunk.
static bool profile(struct bench *b, struct error *err)
{
    struct engine *e = b->e;
    const struct bench_row *r = &b->rows[b->n_rows - 1];
    bool token = r->bytes > 0;
    const uint32_t n_tokens = token ? 1 : r->n_tokens < e->n_batch ? r->n_tokens : e->n_batch;
    // A row of several tokens or chunks: its time is shared out evenly.
    struct bench_kernels *k = add_kernels(b, (double)n_tokens / r->n_tokens, err);
    if (!k)
        return false;
    k->n_tokens = n_tokens;
    size_t base = r->depth > 0 || !token ? r->depth : 1; // as in measure
    if (token)
        k->n_past = (uint32_t)base + r->n_tokens / 2;
    if (!go_back(b, b->s, b->tokens, base, err) ||
        (base < k->n_past && !evaluate(b, base, k->n_past, err)))
        return false;
    if (!engine_profile(b->s, b->tokens + k->n_past, k->n_tokens, k->n_run, b->p->cancel, &k->p,
                        err))
        return false;
    b->n_kernels++;
    return true;
}

// What a person waits for who starts the program with a short prompt; only once, because the model
// is opened once.
static bool first_token(struct bench *b, struct error *err)
{
    if (!evaluate(b, 0, FIRST_TOKEN_PROMPT, err) || !pick(b, err))
        return false;
    b->first_token_s = clock_now() - b->p->began;
    return true;
}

static void write_md(const struct bench *b, struct buf *out)
{
    const struct model *m = b->e->model;
    char bytes[FORMAT_NUMBER];
    buf_printf(out, "%s · %s · %s · %s · batch %u\n\n", m->name, m->quant, b->e->device,
               format_bytes(bytes, m->weight_bytes), b->e->n_batch);
    if (b->p->load_s > 0)
        buf_printf(out, "open: %.2f s, %.2f GB/s of the file\n", b->p->load_s,
                   (double)b->p->load_bytes / b->p->load_s * 1e-9);
    if (b->first_token_s > 0)
        buf_printf(out,
                   "start to first token: %.3f s, once, from the beginning of main (loading the "
                   "program comes before): open, a prompt of %d tokens, the first answered\n",
                   b->first_token_s, FIRST_TOKEN_PROMPT);
    if (b->peaks.sm_mhz)
        buf_printf(out, "clocks: SM %u MHz, memory %u MHz (%s)\n", b->peaks.sm_mhz,
                   b->peaks.memory_mhz, b->peaks.clocks_how);
    if (b->peaks.bandwidth > 0)
        buf_printf(out, "measured peak of this device: %.1f GB/s (%s)", b->peaks.bandwidth * 1e-9,
                   b->peaks.bandwidth_how);
    if (b->peaks.matrix_flops > 0)
        buf_printf(out, ", %.1f TFLOP/s (%s)", b->peaks.matrix_flops * 1e-12, b->peaks.matrix_how);
    else if (*b->peaks.matrix_how)
        buf_printf(out, ", matrix rate not measured: %s", b->peaks.matrix_how);
    buf_puts(out, "\n\n");
    bench_rows_md(b->rows, b->n_rows, m, &b->peaks, out);
    for (size_t i = 0; i < b->n_kernels; i++)
        bench_kernels_md(&b->kernels[i], out);
}

static json_t *clocks_json(const struct engine_peaks *p)
{
    if (!p->sm_mhz)
        return json_null();
    return json_pack("{s:i, s:i, s:s}", "sm_mhz", (int)p->sm_mhz, "memory_mhz", (int)p->memory_mhz,
                     "how", p->clocks_how);
}

static bool write_json(const struct bench *b, struct buf *out, struct error *err)
{
    const struct model *m = b->e->model;
    json_t *rows = json_array();
    for (size_t i = 0; i < b->n_rows; i++)
        json_array_append_new(rows, bench_row_json(&b->rows[i], m, &b->peaks));
    json_t *j = json_pack(
        "{s:s*, s:s, s:s, s:I, s:f, s:f, s:o, s:o, s:f, s:f, s:o}", "model", m->name, "quant",
        m->quant, "device", b->e->device, "weight_bytes", (json_int_t)m->weight_bytes, "open_s",
        b->p->load_s, "load_bytes_per_second",
        b->p->load_s > 0 ? (double)b->p->load_bytes / b->p->load_s : 0.0, "start_to_first_token_s",
        b->first_token_s > 0 ? json_real(b->first_token_s) : json_null(), "clocks",
        clocks_json(&b->peaks), "peak_bytes_per_second", b->peaks.bandwidth, "peak_matrix_flops",
        b->peaks.matrix_flops, "results", rows);
    if (j && b->p->kernels) {
        json_t *kernels = json_array();
        for (size_t i = 0; i < b->n_kernels; i++)
            json_array_append_new(kernels, bench_kernels_json(&b->kernels[i]));
        json_object_set_new(j, "kernels", kernels);
    }
    return json_put(j, JSON_INDENT(2), out) ||
           error_set(err, ERR_FAIL, "the results cannot be written as JSON");
}

bool tool_bench(struct engine *e, const struct bench_params *p, struct buf *out, struct error *err)
{
    struct bench b = {.e = e, .p = p};
    if (p->n_repeat < 1 || p->n_repeat > MAX_REPEAT)
        return error_set(err, ERR_USAGE, "--repetitions: found %u, expected 1 to %d", p->n_repeat,
                         MAX_REPEAT);
    if (p->kernels && !engine_can_profile(e))
        return error_set(err, ERR_USAGE, "--kernels: %s cannot time its kernels one by one",
                         e->device);
    for (size_t i = 0; i < p->n_batches; i++)
        if (p->n_gen && p->batches[i] > engine_max_parts(e))
            return error_set(err, ERR_CONTEXT,
                             "--batch %u: %s evaluates %zu sequences of this model together, "
                             "expected no more",
                             p->batches[i], e->device, engine_max_parts(e));
    struct sampler_settings sampler = sampler_defaults;
    sampler.seed = 1;
    b.s = seq_open(e, 0, err);
    b.tokens = malloc(e->n_ctx * sizeof *b.tokens);
    bool ok = b.s && seq_sampling(b.s, &(struct sampling){.sampler = &sampler}, err);
    ok = ok && (b.tokens || error_oom(err, "the tokens", e->n_ctx * sizeof *b.tokens));
    for (uint32_t i = 0; ok && i < e->n_ctx; i++)
        b.tokens[i] = (int32_t)(rng_u64(1, i, 0) % e->model->hp.n_vocab);
    if (ok && p->began > 0 && FIRST_TOKEN_PROMPT + 1 <= e->n_ctx)
        ok = first_token(&b, err);
    ok = ok && engine_measure(e, &b.peaks, err);
    for (size_t i = 0; ok && i < p->n_depths; i++) {
        uint32_t depth = p->depths[i];
        if (p->n_prompt)
            ok = measure(&b, "prefill", depth, p->n_prompt, 0, 0, err) &&
                 (!p->kernels || p->n_prompt == 1 || profile(&b, err));
        if (ok && p->n_gen) {
            // The cache is read up to the middle of the run.
            double kv = (double)engine_kv_bytes(
                e, 0, depth + p->n_gen / 2 < e->n_ctx ? depth + p->n_gen / 2 : e->n_ctx);
            ok = measure(&b, "decode", depth, 0, p->n_gen,
                         (double)model_bytes_per_token(e->model) + kv, err) &&
                 (!p->kernels || profile(&b, err));
        }
        for (size_t k = 0; ok && p->n_gen && k < p->n_batches; k++)
            ok = measure_batch(&b, depth, p->batches[k], err);
    }
    if (ok && FIRST_TOKEN_PROMPT + 1 <= e->n_ctx)
        ok = measure(&b, "first token", 0, FIRST_TOKEN_PROMPT, 1, 0, err);
    tell(&b, NULL, 0, 0);
    if (ok && p->json)
        ok = write_json(&b, out, err);
    else if (ok)
        write_md(&b, out);
    seq_free(b.s);
    free(b.rows);
    free(b.kernels);
    free(b.tokens);
    return ok && (!out->failed || error_oom(err, "the results", out->len));
}
