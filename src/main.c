// options -> devices -> one of the ways in. The only place that exits and prints errors.
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mapped.h"
#include "base/out.h"
#include "base/signals.h"
#include "base/stack.h"
#include "cli/complete.h"
#include "cli/manual.h"
#include "cli/program.h"
#include "dialog/session_store.h"
#include "jinja/named.h"
#include "keep/keep.h"
#include "serve/serve.h"
#include "term/chat.h"
#include "term/commands.h"
#include "tools/run.h"

static const struct engine_backend cpu_backend = {.plan = cpu_engine_plan, .open = cpu_engine_open};
#ifdef HOKKU_CUDA
static const struct engine_backend cuda_engine = {
    cuda_device_count, cuda_device_usable, cuda_engine_plan, cuda_engine_open,
    cuda_plan_traffic, cuda_device_begin,  cuda_device_end};
static const struct engine_backend *const cuda_backend = &cuda_engine;
#else
static const struct engine_backend *const cuda_backend = NULL;
#endif

// What Tab may offer, with the names that the rooms above the command line's know.
static bool complete(const struct options *o, struct buf *out, struct error *err)
{
    struct complete_names names = {0};
    struct buf templates = {0};
    char **sessions;
    session_names(o->state_dir, &sessions, &names.n_sessions, NULL);
    named_template_list(&templates);
    names.sessions = (const char *const *)sessions;
    names.templates = buf_str(&templates);
    bool ok = complete_print(o, &names, out, err);
    session_names_free(sessions, names.n_sessions);
    buf_release(&templates);
    return ok;
}

static bool print_manual(const struct options *o, struct buf *out, struct error *err)
{
    size_t n, n_said = 0;
    const struct command *c = commands_table(&n);
    struct manual_command *said = calloc(n, sizeof *said);
    if (!said)
        return error_oom(err, "the manual", n * sizeof *said);
    for (size_t i = 0; i < n; i++)
        if (c[i].help)
            said[n_said++] = (struct manual_command){c[i].name, c[i].alias, c[i].args, c[i].help};
    bool ok = manual_print(o->print_completion, HOKKU_VERSION, said, n_said, out, err);
    free(said);
    return ok;
}

// Models that are kept give their memory to a call that finds none.
static bool make_room(const struct program *p, bool busy_too)
{
    size_t n_ended;
    keep_dismiss(p->opt, busy_too, p->cancel, &n_ended);
    return n_ended > 0;
}

// One model alone cannot be named.
static bool stop_stands_alone(const struct options *o, struct error *err)
{
    size_t n_rows;
    const struct option_def *rows = options_table(&n_rows);
    const char *beside = o->args.n > 0 ? o->args.items[0] : NULL;
    for (size_t i = 0; i < n_rows; i++)
        if (o->given[i] && rows[i].offset != offsetof(struct options, stop_keepers) &&
            rows[i].offset != offsetof(struct options, quiet) &&
            rows[i].offset != offsetof(struct options, verbose))
            beside = rows[i].long_name;
    return !beside ||
           error_set(err, ERR_USAGE,
                     "hokku serve --stop: found \"%.60s\" beside it, expected nothing: it "
                     "lets go of all models that are kept",
                     beside);
}

static bool stop_keeping(const struct program *p, struct error *err)
{
    if (!stop_stands_alone(p->opt, err))
        return false;
    size_t n_ended, n = keep_dismiss(p->opt, true, p->cancel, &n_ended);
    if (!p->opt->quiet)
        out_say("hokku: %zu kept model%s let go", n_ended, n_ended == 1 ? "" : "s");
    return n_ended == n ||
           error_set(err, cancel_asked(p->cancel) ? ERR_INTERRUPTED : ERR_FAIL,
                     "%zu more: in a chat, still at an answer, or stuck; they end behind that",
                     n - n_ended);
}

static bool run(const struct program *p, int *death, struct error *err)
{
    const struct options *o = p->opt;
    struct buf out = {0};
    bool ok;
    if (o->complete)
        ok = complete(o, &out, err);
    else if (o->help)
        ok = options_help(o->tool, &out);
    else if (o->print_completion)
        ok = print_manual(o, &out, err);
    else if (o->version)
        ok = buf_puts(&out, "hokku " HOKKU_VERSION "\n");
    else if (o->tool == TOOL_NONE)
        return chat_run(p, HOKKU_VERSION, death, err);
    else if (o->tool == TOOL_SERVE)
        return o->stop_keepers ? stop_keeping(p, err) : serve_run(p, err);
    else
        ok = tool_run(p, &out, err);
    bool (*print)(enum out_stream s, const char *text, size_t n, struct error *err) =
        tool_prints_json(o) ? out_json : out_text;
    // The difference found is a result, and so is that nothing was found.
    if (!ok && (o->tool == TOOL_REPLAY || o->tool == TOOL_SESSIONS))
        print(OUT_STDOUT, buf_str(&out), out.len, NULL);
    if (ok)
        ok = print(OUT_STDOUT, buf_str(&out), out.len, err);
    buf_release(&out);
    return ok;
}

static void say_surroundings(const struct options *o)
{
    if (o->quiet || o->complete)
        return;
    if (o->notice.len > 0)
        out_say("hokku: %s", buf_str(&o->notice));
    if (o->homeless && !(o->cache_dir && o->state_dir && o->config_file))
        out_say(
            "hokku: HOME is not set and the system knows no home of this user: no configuration "
            "is read, no history, session or download kept");
}

static struct program program_of(struct options *o, double began)
{
    return (struct program){
        .opt = o,
        .cpu = &cpu_backend,
        .cuda = cuda_backend,
        .stdin_tty = isatty(STDIN_FILENO),
        .stdout_tty = out_is_terminal(OUT_STDOUT),
        .stderr_tty = out_is_terminal(OUT_STDERR),
        .began = began,
        .make_room = make_room,
    };
}

// What becomes of options that are parsed (ok), and releases them: the exit code. death: the signal
// that ended it, 0: none. Whoever waits must see that it was a signal; what was asked to end is no
// success either.
static int finish(const struct program *p, bool ok, int *death, struct error *err)
{
    if (ok)
        say_surroundings(p->opt);
    ok = ok && run(p, death, err);
    if (p->cuda && p->cuda->end)
        p->cuda->end();
    if (mapped_failed() && (ok || err->code != ERR_MODEL))
        ok = mapped_error(false, err);
    if (!ok)
        options_say_origin(p->opt, err);
    options_release(p->opt);
    if (!*death)
        *death = signals_caught();
    if (!ok && !*death)
        out_say("hokku: %s", err->text);
    return ok || *death ? 0 : err->code == ERR_NONE ? ERR_FAIL : (int)err->code;
}

// A call that another process has handed to this one, which keeps a model.
static int handed_call(void *user, int argc, char **argv, char **envp, struct kept *kept,
                       double began, int *death)
{
    struct options opt;
    struct error err = {0};
    struct program p = program_of(&opt, began);
    p.cancel = user;
    p.kept = kept;
    const bool ok = options_parse(&opt, argc, argv, envp, &err);
    return finish(&p, ok, death, &err);
}

extern char **environ;

static int run_program(int argc, char **argv)
{
    struct options opt;
    const double began = clock_now();
    // What is larger goes back to the system when it is freed, and grows without a copy. (Unless it
    // is told, the library takes 32 MB for that once it has seen such sizes.)
    mallopt(M_MMAP_THRESHOLD, 8 << 20);
    fd_fill_standard(); // before anything else is opened
    struct program p = program_of(&opt, began);
    p.cancel = signals_begin();
    struct error err = {0};
    struct keep_result r = {0};
    struct keeper_place place;
    signal(SIGPIPE, SIG_DFL); // a closed pipe ends the program quietly, whatever the parent had set
    signal(SIGXFSZ, SIG_IGN); // a file size limit is an error of write, like a full disk
    const bool ok = options_parse(&opt, argc, argv, environ, &err);
    switch (ok ? keep_call(&p, argc, argv, environ, &r, &place) : KEEP_ALONE) {
    case KEEP_ALONE:
        r.code = finish(&p, ok, &r.death, &err);
        break;
    case KEEP_ANSWERED:
        options_release(&opt);
        break;
    case KEEP_KEEPER:
        options_release(&opt);
        keeper_run(&place, argc, argv, handed_call, p.cancel);
        break;
    }
    if (r.death)
        signals_die(r.death);
    return r.code;
}

int main(int argc, char **argv)
{
    struct error err = {0};
    int code;
    if (stack_run(run_program, argc, argv, &code, &err))
        return code;
    out_say("hokku: %s", err.text);
    return (int)err.code;
}
