// options -> device -> model -> session -> one of the three ways in. The only place that exits, and
// the only one that reads the environment (through options.c) and prints errors.
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/format.h"
#include "base/mapped.h"
#include "base/out.h"
#include "base/signals.h"
#include "term/batch.h"
#include "term/repl.h"
#include "main_complete.h"
#include "main_manual.h"
#include "cli/options.h"
#include "cli/paths.h"
#include "text/tokenizer.h"
#include "tools/run.h"

enum { MAX_PROMPT_BYTES = 256 << 20 };

struct program {
    struct options opt;
    char *model_path;      // owned
    char *session_name;    // owned; --session, or what --continue goes on with; NULL: none
    struct model *model;   // owned
    struct engine *engine; // owned
    struct conversation conv;
    bool conv_open;
    struct session_lock session;
    struct buf prompt, system, template_text;
    bool stdin_tty, stdout_tty, stderr_tty;
    bool chat;             // the REPL
    int death;             // the signal that ended the REPL; 0: none
    struct cancel *cancel; // what work polls
    double began;          // clock_now() when main began
};

static void load_progress(void *user, uint64_t done, uint64_t total)
{
    const struct program *p = user;
    if (!p->stderr_tty || p->opt.quiet || total < 1u << 30)
        return;
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER], rate[FORMAT_NUMBER];
    double spent = clock_now() - p->began;
    if (done < total)
        out_progress("loading %s of %s%s%s%s", format_bytes(a, done), format_bytes(b, total),
                     spent > 0.2 ? " · " : "",
                     spent > 0.2 ? format_bytes(rate, (uint64_t)((double)done / spent)) : "",
                     spent > 0.2 ? "/s" : "");
    else
        out_progress_clear();
}

static const struct engine_backend cpu_backend = {.plan = cpu_engine_plan, .open = cpu_engine_open};
#ifdef HOKKU_CUDA
static const struct engine_backend cuda_engine = {
    cuda_device_count, cuda_device_usable, cuda_engine_plan, cuda_engine_open, cuda_plan_traffic};
static const struct engine_backend *const cuda_backend = &cuda_engine;
#else
static const struct engine_backend *const cuda_backend = NULL;
#endif

static bool choose_device(struct program *p, struct device_choice *d, struct engine_params *params,
                          struct error *err)
{
    if (!device_choose(p->opt.device, &cpu_backend, cuda_backend, d, err))
        return false;
    if (device_note_due(d, p->chat, p->opt.verbose) && !p->opt.quiet)
        out_say("hokku: %s", d->note);
    *params = options_engine_params(&p->opt);
    params->device_index = d->index;
    params->progress = load_progress;
    params->progress_user = p;
    params->cancel = p->cancel;
    return true;
}

static bool print_plan(struct program *p, struct error *err)
{
    struct engine_params params;
    struct engine_plan plan;
    struct device_choice d;
    if (!choose_device(p, &d, &params, err) || !d.backend->plan(p->model, &params, &plan, err))
        return false;
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER], c[FORMAT_NUMBER], o[FORMAT_NUMBER], e[FORMAT_NUMBER];
    struct buf text = {0};
    buf_printf(
        &text,
        "weights %s + KV %s + scratch %s + other %s bytes for a context of %u tokens; free %s "
        "bytes: %s\n",
        format_number(a, plan.weights), format_number(b, plan.kv), format_number(c, plan.scratch),
        format_number(o, plan.other), plan.n_ctx, format_number(e, plan.available),
        plan.fits ? "fits" : "does not fit");
    buf_printf(&text, "largest context that fits: %u tokens, with -ctk q8_0 -ctv q8_0: %u\n",
               plan.n_ctx_max, plan.n_ctx_max_q8);
    bool ok = !text.failed || error_oom(err, "the plan", text.len);
    ok = ok && out_text(OUT_STDOUT, buf_str(&text), text.len, err);
    buf_release(&text);
    if (!ok)
        return false;
    return plan.fits ||
           error_set(err, ERR_MEMORY, "the plan does not fit: try -c %u", plan.n_ctx_max);
}

static bool random_seed(uint64_t *seed, struct error *err)
{
    // 53 bits: JSON readers keep it exact.
    if (getrandom(seed, sizeof *seed, 0) != sizeof *seed)
        return error_set(err, ERR_FAIL, "no random seed: getrandom: %s", strerror(errno));
    *seed &= (1ull << 53) - 1;
    return true;
}

// What a model's metadata recommends holds where the user said nothing.
static bool recommended_sampling(struct program *p, struct error *err)
{
    struct options *o = &p->opt;
    const struct gguf *g = p->model->gguf;
    uint32_t k = o->sampler.top_k > 0 ? (uint32_t)o->sampler.top_k : 0;
    bool ok =
        (o->temp_given || gguf_get_f32(g, "general.sampling.temp", false, &o->sampler.temp, err)) &&
        (o->top_p_given ||
         gguf_get_f32(g, "general.sampling.top_p", false, &o->sampler.top_p, err)) &&
        (o->min_p_given ||
         gguf_get_f32(g, "general.sampling.min_p", false, &o->sampler.min_p, err)) &&
        (o->repeat_penalty_given || gguf_get_f32(g, "general.sampling.penalty_repeat", false,
                                                 &o->sampler.repeat_penalty, err)) &&
        (o->top_k_given || gguf_get_u32(g, "general.sampling.top_k", false, &k, err));
    // A number that no option could be is out of range below, too.
    if (ok && !o->top_k_given)
        o->sampler.top_k = k > INT32_MAX ? -1 : (int32_t)k;
    if (ok && !options_check_sampler(&o->sampler, err)) {
        err->code = ERR_MODEL;
        ok = error_prefix(err, "%s recommends what is no setting (the option given overrides it)",
                          p->model_path);
    }
    return ok;
}

static bool open_model(struct program *p, struct error *err)
{
    if (!p->model_path)
        p->model_path = paths_model(&p->opt, p->cancel, err);
    if (!p->model_path)
        return false;
    p->model = model_load(p->model_path, err);
    return p->model != NULL;
}

// What is to be resumed. A session opens with its own model unless another one is named.
static bool find_session(struct program *p, struct error *err)
{
    struct options *o = &p->opt;
    struct buf path = {0};
    struct session_info info = {0};
    if (o->session)
        p->session_name = strdup(o->session);
    if (o->resume && !options_need_place(o->state_dir, "sessions", "XDG_STATE_HOME", err))
        return false;
    if (o->resume && !(p->session_name = session_latest(o->state_dir)))
        return error_set(err, ERR_FAIL, "--continue: found no chat in %s/sessions", o->state_dir);
    const char *name = o->base ? o->base : p->session_name;
    // (A damaged file is reported when it is opened.)
    if (name && !o->model && !o->hf_repo && session_find(o->state_dir, name, &path, NULL) &&
        session_file_info(path.data, &info, NULL) && info.model_path && info.model_path[0] == '/' &&
        access(info.model_path, R_OK) == 0) {
        p->model_path = info.model_path;
        info.model_path = NULL;
    }
    session_info_release(&info);
    buf_release(&path);
    return true;
}

// The text of the chat template to use; empty: none, plain completion.
static bool choose_template(struct program *p, struct error *err)
{
    const struct options *o = &p->opt;
    if (o->conversation == 0)
        return true;
    if (o->chat_template_file)
        return file_read_waiting(o->chat_template_file, 16 << 20, p->cancel, &p->template_text,
                                 err);
    if (o->chat_template)
        return paths_template(p->model->gguf, o->chat_template, &p->template_text, err);
    if (p->model->chat_template.data)
        return buf_append(&p->template_text, p->model->chat_template.data,
                          p->model->chat_template.len) ||
               error_oom(err, "the chat template", p->model->chat_template.len);
    if (o->conversation == 1)
        return error_set(err, ERR_USAGE,
                         "-cnv: the model has no chat template; name one with --chat-template or "
                         "--chat-template-file");
    if (p->stderr_tty && !o->quiet)
        out_say("hokku: a base model without a chat template: plain completion");
    return true;
}

static bool read_system(struct program *p, struct error *err)
{
    const struct options *o = &p->opt;
    if (o->system_file &&
        !file_read_waiting(o->system_file, MAX_PROMPT_BYTES, p->cancel, &p->system, err))
        return false;
    if (o->system && o->system[0] == '@')
        return paths_system_prompt(o, o->system + 1, &p->system, err);
    if (o->system)
        buf_puts(&p->system, o->system);
    return true;
}

static void strip_last_newline(struct buf *b)
{
    if (b->len > 0 && b->data[b->len - 1] == '\n')
        b->data[--b->len] = '\0';
    if (b->len > 0 && b->data[b->len - 1] == '\r')
        b->data[--b->len] = '\0';
}

// Argument, then -f FILE, then standard input, a blank line between; of files and input one final
// newline is left out.
static bool read_prompt(struct program *p, bool with_stdin, struct error *err)
{
    const struct options *o = &p->opt;
    if (o->prompt)
        buf_puts(&p->prompt, o->prompt);
    struct buf part = {0};
    bool ok = true;
    for (int source = 0; ok && source < 2; source++) {
        buf_clear(&part);
        if (source == 0 && o->file)
            ok = file_read_waiting(o->file, MAX_PROMPT_BYTES, p->cancel, &part, err);
        if (source == 1 && with_stdin)
            ok = fd_read_all(STDIN_FILENO, "standard input", MAX_PROMPT_BYTES, p->cancel, &part,
                             err);
        strip_last_newline(&part);
        if (ok && part.len) {
            if (p->prompt.len)
                buf_puts(&p->prompt, "\n\n");
            buf_append(&p->prompt, part.data, part.len);
        }
    }
    buf_release(&part);
    if (ok && p->prompt.failed)
        ok = error_oom(err, "the prompt", p->prompt.len);
    return ok;
}

static bool resume(struct program *p, struct error *err)
{
    struct buf note = {0}, warning = {0};
    const struct options *o = &p->opt;
    bool ok = true;
    if (o->base)
        ok = session_open_base(o->base, &p->conv, &p->opt, &note, &warning, err);
    if (ok && p->session_name)
        ok = session_open(&p->session, p->session_name, &p->conv, &p->opt, true, &note, &warning,
                          err);
    else if (ok && p->chat)
        session_open_unnamed(&p->session, &p->opt, &warning);
    if (ok && note.len && p->stderr_tty && !p->opt.quiet)
        out_say("%s", buf_str(&note));
    if (ok && warning.len && !p->opt.quiet)
        for (char *rest = warning.data, *line; (line = strsep(&rest, "\n"));)
            out_say("hokku: %s", line);
    buf_release(&note);
    buf_release(&warning);
    return ok;
}

static bool save_session(void *user, struct error *err)
{
    struct program *p = user;
    return session_save(&p->session, &p->conv, &p->opt, err) &&
           session_settle(&p->session, -1, err); // nobody waits for a prompt here
}

// "hokku 0.1 · Qwen2.5 7B Instruct · Q4_K_M · NVIDIA H200, 5.1 of 140 GB · context 32768 · /help"
static void make_banner(const struct program *p, char *out, size_t n)
{
    const struct engine *e = p->engine;
    char version[16] = HOKKU_VERSION;
    char *dot = strrchr(version, '.');
    if (dot)
        *dot = '\0';
    char used[FORMAT_NUMBER];
    if (e->mem_used < 100 * 1000 * 1000)
        snprintf(used, sizeof used, "%s", format_bytes((char[FORMAT_NUMBER]){0}, e->mem_used));
    else
        snprintf(used, sizeof used, "%.1f", (double)e->mem_used * 1e-9);
    snprintf(out, n, "hokku %s · %s · %s · %s, %s of %.0f GB · context %u · /help", version,
             p->model->name, p->model->quant, e->device, used, (double)e->mem_total * 1e-9,
             e->n_ctx);
}

static const char *first_set(const char *const values[])
{
    while (!*values || !**values)
        values++;
    return *values;
}

static bool run_chat(struct program *p, struct error *err)
{
    struct options *o = &p->opt;
    bool many = o->lines || o->turns;
    // -cnv, given by name, keeps a chat open that begins with a prompt.
    bool stays =
        o->conversation == 1 && !o->single_turn && !o->json && p->stdin_tty && p->stdout_tty;
    bool one = ((o->prompt || o->file) && !stays) || o->dry_run || (!p->stdin_tty && !many);
    p->chat = !one && !many;
    if (many && p->stdin_tty)
        return error_set(err, ERR_USAGE,
                         "%s reads standard input, which is a terminal: pipe the prompts in",
                         o->lines ? "--lines" : "--turns");
    // Read before the model is loaded: a wrong file costs nothing, and waiting for a pipe overlaps
    // with nothing else.
    if (!read_system(p, err) || !read_prompt(p, !p->stdin_tty && !many && !o->dry_run, err))
        return false;
    if (one && !many && p->prompt.len == 0 && !o->dry_run)
        return error_set(err, ERR_USAGE, "no prompt: %s empty; hokku --help shows the ways in",
                         o->file     ? "the file is"
                         : o->prompt ? "it is"
                                     : "standard input is");
    if (!find_session(p, err) || !open_model(p, err) || !recommended_sampling(p, err) ||
        !sampler_check(&o->sampler, p->model->hp.n_vocab, err))
        return false;
    if (!o->seed_given && !random_seed(&o->sampler.seed, err))
        return false;
    if (o->dry_run)
        return print_plan(p, err);
    struct engine_params params;
    struct device_choice d;
    if (!choose_template(p, err) || !choose_device(p, &d, &params, err))
        return false;
    p->engine = d.backend->open(p->model, &params, err);
    if (!p->engine)
        return false;
    if (o->verbose) {
        char used[FORMAT_NUMBER];
        out_say("hokku: %s · %s · %s on %s · context %u · seed %llu", p->model_path,
                p->model->quant, format_bytes(used, p->engine->mem_used), p->engine->device,
                p->engine->n_ctx, (unsigned long long)o->sampler.seed);
    }
    if (o->n_ctx > p->model->hp.n_ctx_train && p->model->hp.n_ctx_train > 0 && !o->quiet)
        out_say("hokku: a context of %u tokens: the model was trained on %u, what is further on it "
                "may not make sense of",
                o->n_ctx, p->model->hp.n_ctx_train);
    p->conv_open = true;
    if (!conversation_init(&p->conv, p->model, p->engine,
                           p->template_text.len ? buf_str(&p->template_text) : NULL,
                           p->template_text.len, (int64_t)time(NULL), err))
        return false;
    p->conv.cancel = p->cancel;
    if (p->system.len && !conversation_set_system(&p->conv, p->system.data, p->system.len, err))
        return false;
    if (!resume(p, err))
        return false;
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    bool dumb = term && strcmp(term, "dumb") == 0, plain = dumb || (no_color && *no_color);
    bool out_color = o->color == WHEN_ALWAYS || (o->color == WHEN_AUTO && !plain && p->stdout_tty);
    bool err_color = o->color == WHEN_ALWAYS || (o->color == WHEN_AUTO && !plain && p->stderr_tty);
    if (p->chat) {
        char banner[512];
        // The line editor takes the character set from the environment; the chat is always UTF-8.
        setlocale(LC_CTYPE, "");
        if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
            setenv("LC_ALL", "C.UTF-8", 1);
        make_banner(p, banner, sizeof banner);
        struct repl_options r = {
            .conv = &p->conv,
            .opt = o,
            .cancel = p->cancel,
            .out_tty = p->stdout_tty,
            .err_tty = p->stderr_tty,
            .out_color = out_color,
            .err_color = err_color,
            .dumb = dumb,
            .banner = o->quiet ? NULL : banner,
            .session = &p->session,
            .resumed = o->base || p->session_name,
            .named_system = paths_system_prompt,
            .prompt_names = paths_system_prompt_names,
            .home = getenv("HOME"),
            .editor = first_set((const char *[]){getenv("VISUAL"), getenv("EDITOR"), "vi"}),
            .temp_dir = first_set((const char *[]){getenv("TMPDIR"), P_tmpdir}),
            .first_prompt = p->prompt.len ? buf_str(&p->prompt) : NULL,
        };
        return repl_run(&r, &p->death, err);
    }
    struct batch b = {
        .conv = &p->conv,
        .opt = o,
        .cancel = p->cancel,
        .stdout_tty = p->stdout_tty,
        .stderr_tty = p->stderr_tty,
        .color = out_color && p->stdout_tty,
        .dumb = dumb,
        .after_turn = p->session.fd >= 0 ? save_session : NULL,
        .user = p,
    };
    if (many)
        return batch_lines(&b, STDIN_FILENO, p->prompt.len ? buf_str(&p->prompt) : NULL, err);
    return batch_one(&b, &p->prompt, err);
}

static bool run(struct program *p, struct error *err)
{
    struct options *o = &p->opt;
    struct buf out = {0};
    bool ok = true;
    struct tool_context tool = {.opt = o,
                                .cpu = &cpu_backend,
                                .cuda = cuda_backend,
                                .cancel = p->cancel,
                                .stderr_tty = p->stderr_tty,
                                .began = p->began};
    if (o->complete)
        ok = complete_print(o, &out, err);
    else if (o->help)
        ok = options_help(o->tool, &out);
    else if (o->print_completion)
        ok = manual_print(o->print_completion, HOKKU_VERSION, &out, err);
    else if (o->version)
        ok = buf_puts(&out, "hokku " HOKKU_VERSION "\n");
    else if (o->tool == TOOL_NONE)
        return run_chat(p, err);
    else
        ok = tool_run(&tool, &out, err);
    bool (*print)(enum out_stream s, const char *text, size_t n, struct error *err) =
        tool_prints_json(o) ? out_json : out_text;
    if (!ok && o->tool == TOOL_REPLAY) // the difference found is the result
        print(OUT_STDOUT, buf_str(&out), out.len, NULL);
    if (ok)
        ok = print(OUT_STDOUT, buf_str(&out), out.len, err);
    buf_release(&out);
    return ok;
}

static void program_release(struct program *p)
{
    if (p->conv_open)
        conversation_release(&p->conv);
    session_lock_release(&p->session);
    engine_free(p->engine);
    model_free(p->model);
    free(p->model_path);
    free(p->session_name);
    buf_release(&p->prompt);
    buf_release(&p->system);
    buf_release(&p->template_text);
    options_release(&p->opt);
}

static void say_places(const struct options *o)
{
    if (!o->quiet && !o->complete && o->homeless &&
        !(o->cache_dir && o->state_dir && o->config_file))
        out_say(
            "hokku: HOME is not set and the system knows no home of this user: no configuration "
            "is read, no history, session or download kept");
}

extern char **environ;

int main(int argc, char **argv)
{
    struct program p = {.session = SESSION_LOCK_NONE, .began = clock_now()};
    struct error err = {0};
    fd_fill_standard(); // before anything else is opened
    p.cancel = signals_begin();
    signal(SIGPIPE, SIG_DFL); // a closed pipe ends the program quietly, whatever the parent had set
    signal(SIGXFSZ, SIG_IGN); // a file size limit is an error of write, like a full disk
    p.stdin_tty = isatty(STDIN_FILENO);
    p.stdout_tty = out_is_terminal(OUT_STDOUT);
    p.stderr_tty = out_is_terminal(OUT_STDERR);
    bool ok = options_parse(&p.opt, argc, argv, environ, &err);
    if (ok)
        say_places(&p.opt);
    ok = ok && run(&p, &err);
    if (mapped_failed())
        ok = error_set(&err, ERR_MODEL,
                       "%s: a part of it can no longer be read: the file was cut while it was in "
                       "use, or its disk fails%s; restore it, and begin again",
                       mapped_failed(), p.session.fd >= 0 ? " (the conversation is saved)" : "");
    program_release(&p);
    // Whoever waits must see that it was a signal; what was asked to end is no success either.
    if (p.death || signals_caught())
        signals_die(p.death ? p.death : signals_caught());
    if (ok)
        return 0;
    out_say("hokku: %s", err.text);
    return err.code == ERR_NONE ? ERR_FAIL : (int)err.code;
}
