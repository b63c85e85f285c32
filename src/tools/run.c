#include "tools/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/out.h"
#include "base/utf8.h"
#include "dialog/chat_template.h"
#include "dialog/session_store.h"
#include "cli/model_file.h"
#include "text/tokenizer.h"
#include "tools/bench_run.h"
#include "tools/inspect.h"
#include "tools/models.h"
#include "tools/replay.h"
#include "tools/replay_company.h"
#include "tools/render.h"
#include "tools/score.h"
#include "tools/sessions.h"
#include "tools/tokenize.h"

enum { MAX_TEXT_BYTES = 1 << 30 };

// The one input of a tool: a file, or standard input for "-".
static bool read_input(const struct program *t, const char *path, struct buf *out,
                       struct error *err)
{
    if (strcmp(path, "-") == 0)
        return fd_read_all(STDIN_FILENO, "standard input", MAX_TEXT_BYTES, t->cancel, out, err);
    return file_read_waiting(path, MAX_TEXT_BYTES, t->cancel, out, err);
}

bool tool_arguments(const struct options *o, size_t min, size_t max, const char *what,
                    struct error *err)
{
    if (o->args.n >= min && o->args.n <= max)
        return true;
    return error_set(err, ERR_USAGE, "hokku %s: found %zu argument%s, expected %s",
                     tool_name(o->tool), o->args.n, o->args.n == 1 ? "" : "s", what);
}

static bool run_score(const struct program *t, struct buf *out, struct error *err)
{
    struct opened m = {0};
    struct buf text = {0};
    bool ok = tool_arguments(t->opt, 1, 1, "one FILE (or - for standard input)", err) &&
              read_input(t, t->opt->args.items[0], &text, err) && open_model(t, &m, err) &&
              open_engine(t, &m, t->opt->n_ctx, false, err);
    if (ok)
        open_say_trained(t, &m, t->opt->n_ctx);
    ok = ok &&
         tool_score(m.model, m.engine, buf_str(&text), text.len, t->opt->top, t->cancel, out, err);
    buf_release(&text);
    opened_release(&m);
    return ok;
}

static void perplexity_progress(void *user, size_t done, size_t total, double ppl)
{
    const struct program *t = user;
    if (!program_shows_progress(t))
        return;
    if (done < total)
        out_progress("window %zu of %zu: perplexity %.4f", done, total, ppl);
    else
        out_progress_clear();
}

static bool run_perplexity(const struct program *t, struct buf *out, struct error *err)
{
    const struct options *o = t->opt;
    struct opened m = {0};
    struct buf text = {0};
    struct perplexity p;
    uint32_t window = o->n_ctx ? o->n_ctx : 512;
    const char *file = o->file ? o->file : o->args.n ? o->args.items[0] : NULL;
    bool ok = tool_arguments(o, 0, o->file ? 0 : 1, "none beside -f FILE", err);
    if (ok && !file)
        ok = error_set(err, ERR_USAGE,
                       "hokku perplexity: no text: give -f FILE (or -f - for standard input)");
    ok = ok && read_input(t, file, &text, err) && open_model(t, &m, err) &&
         open_engine(t, &m, window, false, err);
    if (ok)
        open_say_trained(t, &m, window);
    ok = ok && tool_perplexity(m.model, m.engine, buf_str(&text), text.len, window, t->cancel,
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
    opened_release(&m);
    return ok;
}

static bool run_tokenize(const struct program *t, struct buf *out, struct error *err)
{
    const struct options *o = t->opt;
    struct opened m = {0};
    struct buf text = {0};
    struct tokenize_options opt = {.bos = o->add_bos, .special = o->special, .cancel = t->cancel};
    bool ok = tool_arguments(o, 0, 1, "at most one FILE (or - for standard input)", err) &&
              read_input(t, o->args.n ? o->args.items[0] : "-", &text, err);
    // Only the metadata is needed: a vocabulary without tensors will do.
    m.path = ok ? model_file(o, t->cancel, err) : NULL;
    struct gguf *g = m.path ? gguf_open(m.path, err) : NULL;
    struct tokenizer *tok = g ? tokenizer_create(g, err) : NULL;
    if (g && !tok)
        error_prefix(err, "%s", m.path);
    ok = tok && tool_tokenize(tok, buf_str(&text), text.len, &opt, o->nul, out, err);
    tokenizer_free(tok);
    gguf_free(g);
    buf_release(&text);
    opened_release(&m);
    return ok;
}

// The template of --chat-template-file or --chat-template, or the model's own.
static bool run_render(const struct program *t, struct buf *out, struct error *err)
{
    const struct options *o = t->opt;
    struct opened m = {0};
    struct buf source = {0}, context = {0};
    struct gguf *g = NULL;
    bool ok = tool_arguments(o, 0, 1, "CONTEXT.json (or - for standard input)", err);
    // Of a model only the metadata is needed, and of a template with a name not even that.
    bool with_model = !o->chat_template_file && (!o->chat_template || o->model);
    m.path = ok && with_model ? model_file(o, t->cancel, err) : NULL;
    g = m.path ? gguf_open(m.path, err) : NULL;
    ok = ok && (g || !with_model) &&
         chat_template_find(g, o->chat_template, o->chat_template_file, t->cancel, &source, err);
    if (ok && source.len == 0 && g)
        ok = error_set(err, ERR_USAGE,
                       "the model has no chat template; name one with --chat-template or "
                       "--chat-template-file");
    const char *path = o->args.n ? o->args.items[0] : "-";
    ok = ok && read_input(t, path, &context, err);
    utf8_drop_mark(&context);
    const struct render_text tmpl = {
        .name = o->chat_template_file ? o->chat_template_file : "chat template",
        .data = buf_str(&source),
        .n = source.len,
    };
    const struct render_text variables = {
        .name = strcmp(path, "-") == 0 ? "standard input" : path,
        .data = buf_str(&context),
        .n = context.len,
    };
    ok = ok && tool_render(&tmpl, &variables, (int64_t)time(NULL), t->cancel, out, err);
    gguf_free(g);
    buf_release(&source);
    buf_release(&context);
    opened_release(&m);
    return ok;
}

static bool run_inspect(const struct program *t, struct buf *out, struct error *err)
{
    const struct options *o = t->opt;
    struct device_choice d = {0};
    struct inspect_options how = {.json = o->json, .tensors = o->verbose};
    if (!tool_arguments(o, 0, 1, "one MODEL", err) ||
        (o->devices &&
         (strcmp(o->devices, "all") == 0 ? !devices_choose(o->devices, t->cuda, &d, err)
                                         : !devices_parse(o->devices, &d.devices, err))))
        return false;
    how.devices = d.devices & (d.devices - 1) ? d.devices : 0;
    const char *name = o->args.n ? o->args.items[0] : NULL;
    if (name && options_named(o, "--model"))
        return error_set(err, ERR_USAGE,
                         "a MODEL as an argument and with -m: expected one of them");
    char *path = name ? model_named(o, name, t->cancel, err) : model_file(o, t->cancel, err);
    bool ok = path && tool_inspect(path, &how, out, err);
    free(path);
    return ok;
}

static void replay_progress(void *user, size_t turn, size_t n_turns)
{
    const struct program *t = user;
    if (!program_shows_progress(t))
        return;
    if (turn < n_turns)
        out_progress("turn %zu of %zu", turn + 1, n_turns);
    else
        out_progress_clear();
}

// A recorded conversation on the model, template, context and cache types that it names, unless the
// command line says otherwise: what a configuration says of every call is not meant for a
// recording.
static bool run_replay(const struct program *t, struct buf *out, struct error *err)
{
    struct options o = *t->opt;
    struct program mine = *t;
    struct opened m = {0};
    struct session_info info = {0};
    struct session_loaded loaded = {0};
    struct conversation c = {0};
    struct buf path = {0};
    mine.opt = &o;
    if (!tool_arguments(&o, 1, 1, "one FILE.session, or the name of a session", err))
        return false;
    const char *file = o.args.items[0];
    if (!session_find(o.state_dir, file, &path, err)) {
        buf_release(&path);
        return false;
    }
    file = path.data;
    bool ok = session_file_info(file, &info, err);
    const bool named = options_named(&o, "--model") || options_named(&o, "--hf-repo");
    // A file must not make anybody download: only a person names what is not here.
    if (ok && !named && (!info.model_path || info.model_path[0] != '/'))
        ok = error_set(err, ERR_FAIL,
                       "%s: its model \"%.200s\" is no local file; name the model with -m", file,
                       info.model_path ? info.model_path : "");
    if (ok && !named) {
        o.model = info.model_path;
        o.hf_repo = NULL;
    }
    if (info.has_types && !options_named(&o, "--cache-type-k"))
        o.type_k = info.type_k;
    if (info.has_types && !options_named(&o, "--cache-type-v"))
        o.type_v = info.type_v;
    if (!options_named(&o, "--exact"))
        o.exact = info.exact;
    if (!options_named(&o, "--ctx-size"))
        o.n_ctx = info.n_ctx;
    m.n_if_exact = o.check ? COMPANY_SEQS : 0;
    ok = ok && open_model(&mine, &m, err) && open_engine(&mine, &m, o.n_ctx, false, err);
    if (ok) {
        ok = conversation_init(&c, m.model, m.engine, info.template_text,
                               info.template_text ? strlen(info.template_text) : 0, 0, err);
        c.cancel = t->cancel;
        ok = ok && session_file_read(file, &c, NULL, NULL, &loaded, err) &&
             tool_replay(&c, &info, o.json, o.check, replay_progress, (void *)t, out, err);
    }
    conversation_release(&c);
    session_info_release(&info);
    buf_release(&path);
    opened_release(&m);
    return ok;
}

static bool run_pull(const struct program *t, struct buf *out, struct error *err)
{
    return tool_pull(t->opt, t->cancel, out, err);
}

static bool run_models(const struct program *t, struct buf *out, struct error *err)
{
    return tool_models(t->opt, out, err);
}

static bool run_sessions(const struct program *p, struct buf *out, struct error *err)
{
    return tool_sessions(p->opt, out, err);
}

bool tool_prints_json(const struct options *o)
{
    return o->json || o->tool == TOOL_TOKENIZE || o->tool == TOOL_SCORE ||
           (o->tool == TOOL_BENCH && strcmp(o->output, "json") == 0);
}

bool tool_run(const struct program *t, struct buf *out, struct error *err)
{
    static bool (*const run[N_TOOLS])(const struct program *t, struct buf *out,
                                      struct error *err) = {
        [TOOL_INSPECT] = run_inspect,       [TOOL_TOKENIZE] = run_tokenize,
        [TOOL_RENDER] = run_render,         [TOOL_SCORE] = run_score,
        [TOOL_PERPLEXITY] = run_perplexity, [TOOL_BENCH] = tool_bench_run,
        [TOOL_REPLAY] = run_replay,         [TOOL_PULL] = run_pull,
        [TOOL_MODELS] = run_models,         [TOOL_SESSIONS] = run_sessions,
    };
    return run[t->opt->tool](t, out, err);
}
