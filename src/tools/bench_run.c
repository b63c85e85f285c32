#include "tools/bench_run.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_text.h"
#include "base/out.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "tools/bench.h"
#include "tools/bench_grammar.h"
#include "tools/run.h"

static void traffic_md(const struct engine_traffic *rows, size_t n, uint32_t depth, struct buf *out)
{
    uint64_t moved = 0, needed = 0;
    buf_printf(out,
               "depth %u\n\n| kernel | weight | type | moved bytes | needed bytes | ratio |\n"
               "|---|---|---|---:|---:|---:|\n",
               depth);
    for (size_t i = 0; i < n; i++) {
        moved += rows[i].moved;
        needed += rows[i].needed;
        buf_printf(out, "| %s | %s | %s | %llu | %llu | %.3f |\n", rows[i].kernel, rows[i].weight,
                   rows[i].type, (unsigned long long)rows[i].moved,
                   (unsigned long long)rows[i].needed,
                   rows[i].needed ? (double)rows[i].moved / (double)rows[i].needed : 1.0);
    }
    buf_printf(out, "| token | | | %llu | %llu | %.3f |\n\n", (unsigned long long)moved,
               (unsigned long long)needed, needed ? (double)moved / (double)needed : 1.0);
}

static json_t *traffic_json(const struct engine_traffic *rows, size_t n, uint32_t depth)
{
    json_t *kernels = json_array();
    uint64_t moved = 0, needed = 0;
    for (size_t i = 0; i < n; i++) {
        moved += rows[i].moved;
        needed += rows[i].needed;
        json_array_append_new(kernels,
                              json_pack("{s:s, s:s, s:s, s:I, s:I}", "kernel", rows[i].kernel,
                                        "weight", rows[i].weight, "type", rows[i].type,
                                        "moved_bytes", (json_int_t)rows[i].moved, "needed_bytes",
                                        (json_int_t)rows[i].needed));
    }
    return json_pack("{s:I, s:I, s:I, s:o}", "depth", (json_int_t)depth, "moved_bytes",
                     (json_int_t)moved, "needed_bytes", (json_int_t)needed, "kernels", kernels);
}

// What a decoded token moves on the GPU and what it could not do without; needs no GPU, only the
// CUDA engine's layouts.
static bool print_traffic(const struct program *t, const struct model *m, const uint32_t *depths,
                          size_t n_depths, struct buf *out, struct error *err)
{
    const struct options *o = t->opt;
    const struct engine_backend *b = strcmp(o->device, "cpu") == 0 ? t->cpu : t->cuda;
    const bool json = strcmp(o->output, "json") == 0;
    if (!b || !b->traffic)
        return error_set(err, ERR_USAGE, "--plan shows the CUDA engine's traffic: %s",
                         t->cuda ? "leave out --device cpu" : "this hokku was built without CUDA");
    json_t *plan = json ? json_array() : NULL;
    for (size_t d = 0; d < n_depths; d++) {
        size_t n = b->traffic(m, o->type_k, o->type_v, depths[d], NULL, 0);
        struct engine_traffic *rows = malloc((n + 1) * sizeof *rows);
        if (!rows) {
            json_decref(plan);
            return error_oom(err, "the plan", (n + 1) * sizeof *rows);
        }
        b->traffic(m, o->type_k, o->type_v, depths[d], rows, n);
        if (json)
            json_array_append_new(plan, traffic_json(rows, n, depths[d]));
        else
            traffic_md(rows, n, depths[d], out);
        free(rows);
    }
    if (!json)
        return true;
    json_t *j = json_pack("{s:s*, s:s, s:o}", "model", m->name, "quant", m->quant, "plan", plan);
    return json_put(j, JSON_INDENT(2), out) || error_oom(err, "the plan", out->len);
}

// A list of numbers of an option: "-d 0,4096" and "-d 0 -d 4096".
struct numbers {
    const char *option, *what; // "--n-depth", "depths"
    uint32_t least, most;
    uint32_t at[OPTIONS_MAX_LIST];
    size_t n;
};

static bool read_numbers(const struct str_list *list, struct numbers *out, struct error *err)
{
    for (size_t i = 0; i < list->n; i++)
        for (const char *p = list->items[i]; p;) {
            char *end;
            unsigned long v = strtoul(p, &end, 10);
            if (*p < '0' || *p > '9' || (*end && *end != ',') || v < out->least || v > out->most)
                return error_set(err, ERR_USAGE,
                                 "%s: found \"%.60s\", expected numbers of %u to %u", out->option,
                                 p, out->least, out->most);
            if (out->n == OPTIONS_MAX_LIST)
                return error_set(err, ERR_USAGE, "%s: found more than %d %s, expected fewer",
                                 out->option, OPTIONS_MAX_LIST, out->what);
            out->at[out->n++] = (uint32_t)v;
            p = *end ? end + 1 : NULL;
        }
    return true;
}

// What is measured at once has room in a model with learned positions.
static bool has_positions(const struct model *m, uint64_t n, uint32_t widest, struct error *err)
{
    const struct weight *w = &m->pos_embd;
    return !w->data || n <= w->rows ||
           error_set(err, ERR_USAGE,
                     "this measures %llu positions%s, expected at most %u, which the model has "
                     "(position_embd.weight): %sless of -p, -n, -d",
                     (unsigned long long)n, widest > 1 ? " of all sequences together" : "", w->rows,
                     widest > 1 ? "fewer in --batch, or " : "");
}

// --plan and --grammar run nothing: what says what to run is for neither.
static bool check_runs(const struct options *o, struct error *err)
{
    static const char *const of_runs[] = {"--n-prompt", "--n-gen", "--repetitions", "--batch",
                                          "--n-depth"}; // the last is for --plan, too
    const char *shows = o->plan ? "--plan" : options_named(o, "--grammar") ? "--grammar" : NULL;
    const size_t n = sizeof of_runs / sizeof *of_runs - o->plan;
    for (size_t i = 0; shows && i < n; i++)
        if (options_named(o, of_runs[i]))
            return error_set(err, ERR_USAGE,
                             "%s runs nothing that %s is for: leave one of them out", shows,
                             of_runs[i]);
    return true;
}

static void bench_progress(void *user, const char *name, uint32_t depth, uint32_t run, uint32_t n)
{
    const struct program *t = user;
    if (!program_shows_progress(t))
        return;
    if (!name)
        out_progress_clear();
    else if (run == 0)
        out_progress("%s at depth %u: warming up", name, depth);
    else
        out_progress("%s at depth %u: run %u of %u", name, depth, run, n);
}

bool tool_bench_run(const struct program *t, struct buf *out, struct error *err)
{
    const struct options *o = t->opt;
    struct opened m = {0};
    struct numbers depths = {"--n-depth", "depths", 0, INT32_MAX};
    struct numbers batches = {"--batch", "batches", 1, ENGINE_MAX_PARTS};
    uint32_t deepest = 0, widest = 0;
    if (!tool_arguments(o, 0, 0, "none: -m FILE or -hf USER/REPO names the model", err) ||
        !check_runs(o, err))
        return false;
    if (!read_numbers(&o->bench_depth, &depths, err) ||
        !read_numbers(&o->bench_batch, &batches, err))
        return false;
    if (depths.n == 0)
        depths.n = 1; // of 0
    for (size_t i = 0; i < depths.n; i++)
        deepest = depths.at[i] > deepest ? depths.at[i] : deepest;
    for (size_t i = 0; i < batches.n; i++)
        widest = batches.at[i] > widest ? batches.at[i] : widest;
    if (o->plan) {
        bool ok =
            open_model(t, &m, err) && print_traffic(t, m.model, depths.at, depths.n, out, err);
        opened_release(&m);
        return ok;
    }
    if (options_named(o, "--grammar")) { // what a configuration says of answers is not meant
        bool ok = open_model(t, &m, err) &&
                  bench_grammar(m.model, o->grammar_file, strcmp(o->output, "json") == 0, t->cancel,
                                out, err);
        opened_release(&m);
        return ok;
    }
    uint32_t longest = o->bench_prompt > o->bench_gen ? o->bench_prompt : o->bench_gen;
    uint64_t n_ctx = (uint64_t)deepest + (longest > 64 ? longest : 64) + 1;
    const uint64_t together = widest * bench_room(deepest, o->bench_gen);
    n_ctx = o->n_ctx ? o->n_ctx : n_ctx > together ? n_ctx : together;
    if (n_ctx > INT32_MAX)
        return error_set(err, ERR_USAGE,
                         "--batch %u of %u tokens and more: found %llu positions together, "
                         "expected at most %d",
                         widest, deepest, (unsigned long long)n_ctx, INT32_MAX);
    // Before the model is opened: a context that is given is not enlarged.
    const uint64_t alone = (deepest > 0 ? deepest : 1) + (uint64_t)o->bench_gen;
    const uint64_t prefill = (uint64_t)deepest + o->bench_prompt;
    const uint64_t least = alone > prefill ? alone : prefill;
    if (o->n_ctx && least > o->n_ctx)
        return error_set(err, ERR_CONTEXT,
                         "depth %u and %u tokens do not fit the context of %u: use -c %llu",
                         deepest, (unsigned)(least - deepest), o->n_ctx, (unsigned long long)least);
    double start = clock_now();
    m.n_seqs = widest;
    bool ok = open_model(t, &m, err) && (o->n_ctx || has_positions(m.model, n_ctx, widest, err)) &&
              open_engine(t, &m, (uint32_t)n_ctx, false, err);
    struct bench_params p = {
        .n_prompt = o->bench_prompt,
        .n_gen = o->bench_gen,
        .n_repeat = o->bench_repeat,
        .depths = depths.at,
        .n_depths = depths.n,
        .batches = batches.at,
        .n_batches = batches.n,
        .json = strcmp(o->output, "json") == 0,
        .kernels = o->bench_kernels,
        .load_s = clock_now() - start,
        .began = t->began,
        .cancel = t->cancel,
        .progress = bench_progress,
        .progress_user = (void *)t,
    };
    if (ok) // of a batch each has so much, of the context that all share
        open_say_trained(t, &m, widest == 0 && o->n_ctx > least ? o->n_ctx : least);
    for (size_t i = 0; ok && i < gguf_n_files(m.model->gguf); i++)
        p.load_bytes += gguf_file_bytes(m.model->gguf, i);
    ok = ok && tool_bench(m.engine, &p, out, err);
    opened_release(&m);
    return ok;
}
