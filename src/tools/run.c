#include "tools/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/out.h"
#include "dialog/session_store.h"
#include "cli/paths.h"
#include "text/tokenizer.h"
#include "tools/bench.h"
#include "tools/inspect.h"
#include "tools/models.h"
#include "tools/replay.h"
#include "tools/render.h"
#include "tools/score.h"
#include "tools/sessions.h"
#include "tools/tokenize.h"

enum { MAX_TEXT_BYTES = 1 << 30 };

// What a tool has open.
struct open_model {
    char *path;
    struct model *model;
    struct engine *engine;
};

static void close_model(struct open_model *m)
{
    engine_free(m->engine);
    model_free(m->model);
    free(m->path);
}

static bool load(const struct tool_context *t, struct open_model *m, struct error *err)
{
    m->path = paths_model(t->opt, t->cancel, err);
    m->model = m->path ? model_load(m->path, err) : NULL;
    return m->model != NULL;
}

static bool start_engine(const struct tool_context *t, struct open_model *m, uint32_t n_ctx,
                         struct error *err)
{
    const struct options *o = t->opt;
    struct device_choice d;
    if (!device_choose(o->device, t->cpu, t->cuda, &d, err))
        return false;
    struct engine_params p = options_engine_params(o);
    p.n_ctx = n_ctx;
    p.device_index = d.index;
    p.cancel = t->cancel;
    if (device_note_due(&d, false, o->verbose) && !o->quiet)
        out_say("hokku: %s", d.note);
    m->engine = d.backend->open(m->model, &p, err);
    if (m->engine && o->verbose)
        out_say("hokku: %s on %s, context %u", m->path, m->engine->device, m->engine->n_ctx);
    return m->engine != NULL;
}

// The one input of a tool: a file, or standard input for "-".
static bool read_input(const struct tool_context *t, const char *path, struct buf *out,
                       struct error *err)
{
    if (strcmp(path, "-") == 0)
        return fd_read_all(STDIN_FILENO, "standard input", MAX_TEXT_BYTES, t->cancel, out, err);
    return file_read_waiting(path, MAX_TEXT_BYTES, t->cancel, out, err);
}

static bool arguments(const struct options *o, size_t min, size_t max, const char *what,
                      struct error *err)
{
    if (o->args.n >= min && o->args.n <= max)
        return true;
    return error_set(err, ERR_USAGE, "hokku %s: found %zu arguments, expected %s",
                     tool_name(o->tool), o->args.n, what);
}

static bool run_score(const struct tool_context *t, struct buf *out, struct error *err)
{
    struct open_model m = {0};
    struct buf text = {0};
    bool ok =
        arguments(t->opt, 1, 1, "one FILE (or - for standard input)", err) &&
        read_input(t, t->opt->args.items[0], &text, err) && load(t, &m, err) &&
        start_engine(t, &m, t->opt->n_ctx, err) &&
        tool_score(m.model, m.engine, buf_str(&text), text.len, t->opt->top, t->cancel, out, err);
    buf_release(&text);
    close_model(&m);
    return ok;
}

static void perplexity_progress(void *user, size_t done, size_t total, double ppl)
{
    const struct tool_context *t = user;
    if (!t->stderr_tty)
        return;
    if (done < total)
        out_progress("window %zu of %zu: perplexity %.4f", done, total, ppl);
    else
        out_progress_clear();
}

static bool run_perplexity(const struct tool_context *t, struct buf *out, struct error *err)
{
    const struct options *o = t->opt;
    struct open_model m = {0};
    struct buf text = {0};
    struct perplexity p;
    uint32_t window = o->n_ctx ? o->n_ctx : 512;
    const char *file = o->file ? o->file : o->args.n ? o->args.items[0] : NULL;
    bool ok = arguments(o, 0, o->file ? 0 : 1, "none beside -f FILE", err);
    if (ok && !file)
        ok = error_set(err, ERR_USAGE,
                       "hokku perplexity: no text: give -f FILE (or -f - for standard input)");
    ok = ok && read_input(t, file, &text, err) && load(t, &m, err) &&
         start_engine(t, &m, window, err) &&
         tool_perplexity(m.model, m.engine, buf_str(&text), text.len, window, t->cancel,
                         perplexity_progress, (void *)t, &p, err);
    if (ok && o->json)
        buf_printf(out,
                   "{\"perplexity\":%.6f,\"error\":%.6f,\"nll\":%.6f,\"windows\":%zu,\"window\":%u,"
                   "\"scored_tokens\":%zu}\n",
                   p.ppl, p.ppl_error, p.nll, p.n_windows, p.window, p.n_scored);
    else if (ok)
        buf_printf(out, "perplexity %.4f +/- %.4f (%zu windows of %u tokens, %zu scored)\n", p.ppl,
                   p.ppl_error, p.n_windows, p.window, p.n_scored);
    buf_release(&text);
    close_model(&m);
    return ok;
}

// What a decoded token moves on the GPU and what it could not do without; needs no GPU, only the
// CUDA engine's layouts.
static bool print_traffic(const struct tool_context *t, const struct model *m,
                          const uint32_t *depths, size_t n_depths, struct buf *out,
                          struct error *err)
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

static bool run_bench(const struct tool_context *t, struct buf *out, struct error *err)
{
    const struct options *o = t->opt;
    struct open_model m = {0};
    uint32_t depths[OPTIONS_MAX_LIST] = {0};
    size_t n_depths = 0;
    uint32_t deepest = 0;
    if (!arguments(o, 0, 0, "none", err))
        return false;
    for (size_t i = 0; i < o->bench_depth.n; i++) // "-d 0,4096" and "-d 0 -d 4096"
        for (const char *p = o->bench_depth.items[i]; *p && n_depths < OPTIONS_MAX_LIST;) {
            char *end;
            unsigned long d = strtoul(p, &end, 10);
            if (end == p || (*end && *end != ',') || d > INT32_MAX)
                return error_set(err, ERR_USAGE,
                                 "--n-depth: found \"%.60s\", expected numbers of tokens", p);
            depths[n_depths++] = (uint32_t)d;
            deepest = d > deepest ? (uint32_t)d : deepest;
            p = *end ? end + 1 : end;
        }
    if (n_depths == 0)
        n_depths = 1;
    if (o->plan) {
        bool ok = load(t, &m, err) && print_traffic(t, m.model, depths, n_depths, out, err);
        close_model(&m);
        return ok;
    }
    uint32_t longest = o->bench_prompt > o->bench_gen ? o->bench_prompt : o->bench_gen;
    uint32_t n_ctx = o->n_ctx ? o->n_ctx : deepest + (longest > 64 ? longest : 64) + 1;
    double start = clock_now();
    bool ok = load(t, &m, err) && start_engine(t, &m, n_ctx, err);
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
    };
    for (size_t i = 0; ok && i < gguf_n_files(m.model->gguf); i++)
        p.load_bytes += gguf_file_bytes(m.model->gguf, i);
    ok = ok && tool_bench(m.engine, &p, out, err);
    close_model(&m);
    return ok;
}

static bool run_tokenize(const struct tool_context *t, struct buf *out, struct error *err)
{
    const struct options *o = t->opt;
    struct open_model m = {0};
    struct buf text = {0};
    struct tokenize_options opt = {.bos = o->add_bos, .special = o->special, .cancel = t->cancel};
    bool ok = arguments(o, 0, 1, "at most one FILE (or - for standard input)", err) &&
              read_input(t, o->args.n ? o->args.items[0] : "-", &text, err);
    // Only the metadata is needed: a vocabulary without tensors will do.
    m.path = ok ? paths_model(o, t->cancel, err) : NULL;
    struct gguf *g = m.path ? gguf_open(m.path, err) : NULL;
    struct tokenizer *tok = g ? tokenizer_create(g, err) : NULL;
    ok = tok && tool_tokenize(tok, buf_str(&text), text.len, &opt, o->nul, out, err);
    tokenizer_free(tok);
    gguf_free(g);
    buf_release(&text);
    close_model(&m);
    return ok;
}

// The template of --chat-template-file or --chat-template, or the model's own.
static bool run_render(const struct tool_context *t, struct buf *out, struct error *err)
{
    const struct options *o = t->opt;
    struct open_model m = {0};
    struct buf source = {0}, context = {0};
    struct gguf *g = NULL;
    bool ok = arguments(o, 0, 1, "CONTEXT.json (or - for standard input)", err);
    if (ok && o->chat_template_file) {
        ok = file_read_waiting(o->chat_template_file, 16 << 20, t->cancel, &source, err);
    } else if (ok) {
        // Only the metadata is needed.
        m.path = o->chat_template && !o->model ? NULL : paths_model(o, t->cancel, err);
        g = m.path ? gguf_open(m.path, err) : NULL;
        ok = (g || (o->chat_template && !o->model)) &&
             paths_template(g, o->chat_template, &source, err);
    }
    ok = ok && read_input(t, o->args.n ? o->args.items[0] : "-", &context, err) &&
         tool_render(buf_str(&source), source.len, buf_str(&context), context.len,
                     (int64_t)time(NULL), t->cancel, out, err);
    gguf_free(g);
    buf_release(&source);
    buf_release(&context);
    close_model(&m);
    return ok;
}

static bool run_inspect(const struct tool_context *t, struct buf *out, struct error *err)
{
    const struct options *o = t->opt;
    if (!arguments(o, 0, 1, "one MODEL", err))
        return false;
    char *path = o->args.n ? strdup(o->args.items[0]) : paths_model(o, t->cancel, err);
    if (!path)
        return o->args.n ? error_oom(err, "path", strlen(o->args.items[0]) + 1) : false;
    bool ok = tool_inspect(path, o->json, o->verbose, out, err);
    free(path);
    return ok;
}

static void replay_progress(void *user, size_t turn, size_t n_turns)
{
    const struct tool_context *t = user;
    if (!t->stderr_tty || t->opt->quiet)
        return;
    if (turn < n_turns)
        out_progress("turn %zu of %zu", turn + 1, n_turns);
    else
        out_progress_clear();
}

// A recorded conversation on the model, template and context that it names, unless -m or -c say
// otherwise.
static bool run_replay(const struct tool_context *t, struct buf *out, struct error *err)
{
    struct options o = *t->opt;
    struct tool_context mine = *t;
    struct open_model m = {0};
    struct session_info info = {0};
    struct session_loaded loaded = {0};
    struct conversation c = {0};
    struct buf path = {0};
    bool open = false;
    mine.opt = &o;
    if (!arguments(&o, 1, 1, "one FILE.session, or the name of a session", err))
        return false;
    const char *file = o.args.items[0];
    if (!session_find(o.state_dir, file, &path, err)) {
        buf_release(&path);
        return false;
    }
    file = path.data;
    bool ok = session_file_info(file, &info, err);
    // A file must not make anybody download: only a person names what is not here.
    if (ok && !o.model && !o.hf_repo && (!info.model_path || info.model_path[0] != '/'))
        ok = error_set(err, ERR_FAIL,
                       "%s: its model \"%.200s\" is no local file; name the model with -m", file,
                       info.model_path ? info.model_path : "");
    if (ok && !o.model && !o.hf_repo)
        o.model = info.model_path;
    ok = ok && load(&mine, &m, err) && start_engine(&mine, &m, o.n_ctx ? o.n_ctx : info.n_ctx, err);
    if (ok) {
        open = true;
        ok = conversation_init(&c, m.model, m.engine, info.template_text,
                               info.template_text ? strlen(info.template_text) : 0, 0, err);
        c.cancel = t->cancel;
        ok = ok && session_file_read(file, &c, NULL, NULL, &loaded, err) &&
             tool_replay(&c, &info, o.json, replay_progress, (void *)t, out, err);
    }
    if (open)
        conversation_release(&c);
    session_info_release(&info);
    buf_release(&path);
    close_model(&m);
    return ok;
}

static bool run_pull(const struct tool_context *t, struct buf *out, struct error *err)
{
    return tool_pull(t->opt, t->cancel, out, err);
}

static bool run_models(const struct tool_context *t, struct buf *out, struct error *err)
{
    return tool_models(t->opt, out, err);
}

static bool run_sessions(const struct tool_context *t, struct buf *out, struct error *err)
{
    return tool_sessions(t->opt, out, err);
}

bool tool_prints_json(const struct options *o)
{
    return o->json || o->tool == TOOL_TOKENIZE || o->tool == TOOL_SCORE ||
           (o->tool == TOOL_BENCH && strcmp(o->output, "json") == 0);
}

bool tool_run(const struct tool_context *t, struct buf *out, struct error *err)
{
    static bool (*const run[N_TOOLS])(const struct tool_context *t, struct buf *out,
                                      struct error *err) = {
        [TOOL_INSPECT] = run_inspect,       [TOOL_TOKENIZE] = run_tokenize,
        [TOOL_RENDER] = run_render,         [TOOL_SCORE] = run_score,
        [TOOL_PERPLEXITY] = run_perplexity, [TOOL_BENCH] = run_bench,
        [TOOL_REPLAY] = run_replay,         [TOOL_PULL] = run_pull,
        [TOOL_MODELS] = run_models,         [TOOL_SESSIONS] = run_sessions,
    };
    return run[t->opt->tool](t, out, err);
}
