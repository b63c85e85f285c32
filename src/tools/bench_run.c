#include "tools/bench_run.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "tools/bench.h"
#include "tools/bench_grammar.h"
#include "tools/run.h"

// What a decoded token moves on the GPU and what it could not do without; needs no GPU, only the
// CUDA engine's layouts.
static bool print_traffic(const struct program *t, const struct model *m, const uint32_t *depths,
                          size_t n_depths, struct buf *out, struct error *err)
{
    const struct options *o = t->opt;
    const struct engine_backend *b = strcmp(o->device, "cpu") == 0 ? t->cpu : t->cuda;
    if (!b || !b->traffic)
        return error_set(err, ERR_USAGE, "--plan shows the CUDA engine's traffic: %s",
                         t->cuda ? "leave out --device cpu" : "this hokku was built without CUDA");
    for (size_t d = 0; d < n_depths; d++) {
        size_t n = b->traffic(m, o->type_k, o->type_v, depths[d], NULL, 0);
        struct engine_traffic *rows = malloc((n + 1) * sizeof *rows);
        if (!rows)
            return error_oom(err, "the plan", (n + 1) * sizeof *rows);
        b->traffic(m, o->type_k, o->type_v, depths[d], rows, n);
        uint64_t moved = 0, needed = 0;
        buf_printf(out,
                   "depth %u\n\n| kernel | weight | type | moved bytes | needed bytes | ratio |\n"
                   "|---|---|---|---:|---:|---:|\n",
                   depths[d]);
        for (size_t i = 0; i < n; i++) {
            moved += rows[i].moved;
            needed += rows[i].needed;
            buf_printf(out, "| %s | %s | %s | %llu | %llu | %.3f |\n", rows[i].kernel,
                       rows[i].weight, rows[i].type, (unsigned long long)rows[i].moved,
                       (unsigned long long)rows[i].needed,
                       rows[i].needed ? (double)rows[i].moved / (double)rows[i].needed : 1.0);
        }
        buf_printf(out, "| token | | | %llu | %llu | %.3f |\n\n", (unsigned long long)moved,
                   (unsigned long long)needed, needed ? (double)moved / (double)needed : 1.0);
        free(rows);
    }
    return true;
}

// "-d 0,4096" and "-d 0 -d 4096"; one depth of 0 when there is none.
static bool read_depths(const struct str_list *list, uint32_t depths[OPTIONS_MAX_LIST], size_t *n,
                        struct error *err)
{
    *n = 0;
    for (size_t i = 0; i < list->n; i++)
        for (const char *p = list->items[i]; *p;) {
            char *end;
            unsigned long d = strtoul(p, &end, 10);
            if (end == p || (*end && *end != ',') || d > INT32_MAX)
                return error_set(err, ERR_USAGE,
                                 "--n-depth: found \"%.60s\", expected numbers of tokens", p);
            if (*n == OPTIONS_MAX_LIST)
                return error_set(err, ERR_USAGE,
                                 "--n-depth: found more than %d depths, expected fewer",
                                 OPTIONS_MAX_LIST);
            depths[(*n)++] = (uint32_t)d;
            p = *end ? end + 1 : end;
        }
    if (*n == 0)
        depths[(*n)++] = 0;
    return true;
}

bool tool_bench_run(const struct program *t, struct buf *out, struct error *err)
{
    const struct options *o = t->opt;
    struct opened m = {0};
    uint32_t depths[OPTIONS_MAX_LIST] = {0};
    size_t n_depths;
    uint32_t deepest = 0;
    if (!tool_arguments(o, 0, 0, "none", err))
        return false;
    if (!read_depths(&o->bench_depth, depths, &n_depths, err))
        return false;
    for (size_t i = 0; i < n_depths; i++)
        deepest = depths[i] > deepest ? depths[i] : deepest;
    if (o->plan) {
        bool ok = open_model(t, &m, err) && print_traffic(t, m.model, depths, n_depths, out, err);
        opened_release(&m);
        return ok;
    }
    if (o->grammar_file) {
        bool ok = open_model(t, &m, err) &&
                  bench_grammar(m.model, o->grammar_file, strcmp(o->output, "json") == 0, t->cancel,
                                out, err);
        opened_release(&m);
        return ok;
    }
    uint32_t longest = o->bench_prompt > o->bench_gen ? o->bench_prompt : o->bench_gen;
    uint32_t n_ctx = o->n_ctx ? o->n_ctx : deepest + (longest > 64 ? longest : 64) + 1;
    double start = clock_now();
    bool ok = open_model(t, &m, err) && open_engine(t, &m, n_ctx, false, err);
    struct bench_params p = {
        .n_prompt = o->bench_prompt,
        .n_gen = o->bench_gen,
        .n_repeat = o->bench_repeat,
        .depths = depths,
        .n_depths = n_depths,
        .json = strcmp(o->output, "json") == 0,
        .kernels = o->bench_kernels,
        .load_s = clock_now() - start,
        .began = t->began,
        .cancel = t->cancel,
    };
    for (size_t i = 0; ok && i < gguf_n_files(m.model->gguf); i++)
        p.load_bytes += gguf_file_bytes(m.model->gguf, i);
    ok = ok && tool_bench(m.engine, &p, out, err);
    opened_release(&m);
    return ok;
}
