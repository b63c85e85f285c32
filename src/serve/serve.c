#include "serve/serve.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mapped.h"
#include "base/out.h"
#include "base/thread.h"
#include "cli/draft_model.h"
#include "dialog/chat_template.h"
#include "serve/http.h"
#include "serve/mhd.h"
#include "serve/worker.h"

enum {
    USUAL_PARALLEL = 64, // answers at once, on a device that holds memory for each
    IDLE_MS = 250,       // between two looks at whether the server is to end
    SWEEP_MS = 1000,
    DRAIN_MS = 2000, // for clients to read the rest of their answers
};

struct server {
    const struct program *p;
    struct opened opened;
    struct listening where;
    struct api_keys keys;
    struct ask_defaults defaults;
    char *name; // owned: the model's, for clients
    struct desk desk;
    struct shapes shapes;
    struct worker worker;
    struct http *http;
    bool has_desk, has_worker;
    size_t n_cut; // answers that the end of the server has cut off
};

// Before the model is loaded: what is wrong costs no time, and the library finds memory that a
// context would take.
static bool open_place(struct server *s, struct error *err)
{
    const struct options *o = s->p->opt;
    if (o->args.n > 0)
        return error_set(err, ERR_USAGE,
                         "hokku serve: found the argument \"%.60s\", expected none: -m FILE or -hf "
                         "USER/REPO names the model",
                         o->args.items[0]);
    if (!draft_check(s->p, err) || !mhd_open(err))
        return false;
    if (o->api_key_file && !api_keys_read(&s->keys, o->api_key_file, err))
        return false;
    if (!listen_open(&s->where, o->listen, o->inherited_socket, err))
        return false;
    if (!s->where.unix_path && !s->where.loopback && s->keys.n == 0)
        return error_set(err, ERR_USAGE,
                         "%s can be reached from other machines: expected --api-key-file FILE with "
                         "keys, or an address of this machine alone (127.0.0.1)",
                         buf_str(&s->where.name));
    return true;
}

// "model" of model.gguf.
static bool name_model(struct server *s, struct error *err)
{
    const char *path = s->opened.path, *slash = strrchr(path, '/');
    struct buf name = {0}; // a file's may be any bytes, that of a model is text
    path = slash ? slash + 1 : path;
    if (buf_append_utf8(&name, path, strlen(path)))
        s->name = strdup(buf_str(&name));
    buf_release(&name);
    if (!s->name)
        return error_oom(err, "the model's name", strlen(path));
    const size_t n = strlen(s->name);
    if (n > 5 && strcmp(s->name + n - 5, ".gguf") == 0)
        s->name[n - 5] = '\0';
    return true;
}

static bool open_worker(struct server *s, struct error *err)
{
    const struct options *o = s->p->opt;
    struct buf text = {0};
    const size_t n = o->n_parallel ? o->n_parallel : USUAL_PARALLEL;
    s->opened.n_seqs = n == 1 ? 2 : (uint32_t)n;
    bool ok = open_model_and_settings(s->p, &s->opened, err) && name_model(s, err) &&
              chat_template_choose(s->opened.model->gguf, o->chat_template, o->chat_template_file,
                                   s->p->cancel, &text, err) &&
              shapes_init(&s->shapes, s->opened.model->tokenizer, s->opened.model->hp.n_vocab,
                          err) && // before a context takes what memory there is
              open_engine(s->p, &s->opened, o->n_ctx, false, err);
    if (ok) {
        s->defaults = (struct ask_defaults){.model = s->name,
                                            .sampler = o->sampler,
                                            .seed_given = o->seed_given,
                                            .n_predict = o->n_predict};
        const size_t most = engine_max_parts(s->opened.engine);
        const size_t parallel = n > most ? most : n;
        desk_init(&s->desk, parallel + o->queue);
        s->has_desk = s->has_worker = true;
        ok = worker_init(&s->worker, &s->desk, &s->defaults, s->opened.model, s->opened.engine, n,
                         &s->shapes, &text, (enum think)o->think, s->p->cancel, o->grace, err) &&
             worker_speculate(&s->worker, o->spec, s->opened.draft.engine,
                              s->opened.predictor.engine, err);
        s->worker.plain.no_larger = s->worker.chat.no_larger =
            ok && opened_no_larger(&s->opened, o->n_ctx);
    }
    buf_release(&text);
    return ok;
}

static bool open_http(struct server *s, struct error *err)
{
    const struct options *o = s->p->opt;
    char context[CONTEXT_TEXT];
    const struct http_params hp = {
        .desk = &s->desk,
        .defaults = &s->defaults,
        .tok = s->opened.model->tokenizer,
        .keys = &s->keys,
        .own_host = s->where.host,
        .check_host = s->keys.n == 0 && !s->where.unix_path,
        .n_ctx = s->opened.engine->n_ctx,
        .timeout = o->timeout,
    };
    // A signal is this thread's: it ends its waiting.
    sigset_t before;
    thread_block_signals(&before);
    s->http = http_start(&hp, &s->where, err);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (s->http && !o->quiet)
        out_say("hokku: %s at %s · %s · %s", s->name, buf_str(&s->where.name),
                s->opened.engine->device, opened_context(&s->opened, o->n_ctx, context));
    if (s->http)
        open_say_trained(s->p, &s->opened, o->n_ctx);
    if (s->http && o->n_parallel > s->worker.schedule.n_parallel && !o->quiet)
        out_say("hokku: -np %u: %s evaluates %zu together", o->n_parallel, s->opened.engine->device,
                s->worker.schedule.n_parallel);
    const enum think think = (enum think)o->think;
    if (s->http)
        open_say_unheard(s->p, think_name(think), conversation_unheard(&s->worker.chat, think),
                         think == THINK_OFF ? "sends no thinking" : NULL);
    return s->http != NULL;
}

// Until it is interrupted and all is answered, or the time for that is over.
static bool run(struct server *s, struct error *err)
{
    double swept = 0;
    bool closed = false;
    for (;;) {
        const double now = clock_now(), until = watch_until(&s->worker.watch);
        if (mapped_failed())
            return mapped_error(false, err);
        if (until > 0 && !closed) {
            closed = true;
            listen_unlink(&s->where); // the next server may come as soon as nobody answers
            http_close_door(s->http);
            desk_close(&s->desk);
        }
        const size_t n_open = desk_n_open(&s->desk);
        if (until > 0 && (n_open == 0 || now > until)) {
            s->n_cut = n_open;
            return error_set(err, ERR_INTERRUPTED, "interrupted");
        }
        if ((now - swept) * 1e3 > SWEEP_MS) {
            http_sweep(s->http);
            swept = now;
        }
        if (!worker_step(&s->worker, IDLE_MS, err) && !mapped_failed())
            return false;
    }
}

// Clients get what there is of their answers.
static void drain(struct server *s)
{
    const double began = clock_now();
    const struct timespec pause = {.tv_nsec = 5 * 1000 * 1000};
    while (http_n_open(s->http) > 0 && (clock_now() - began) * 1e3 < DRAIN_MS)
        nanosleep(&pause, NULL);
}

bool serve_run(const struct program *p, struct error *err)
{
    struct server s = {.p = p, .where = {.fd = -1}};
    signal(SIGPIPE, SIG_IGN); // who reads what it says may go: its clients stay
    bool ok = open_place(&s, err) && open_worker(&s, err) && open_http(&s, err);
    if (ok) {
        mapped_watch(&s.worker.stop);
        ok = run(&s, err);
        mapped_watch(p->cancel);
    }
    if (s.has_desk)
        desk_close(&s.desk);
    if (s.has_worker)
        worker_release(&s.worker);
    shapes_release(&s.shapes);
    if (s.n_cut > 0)
        out_say("hokku: %zu answer%s cut off after %g s", s.n_cut, s.n_cut == 1 ? " was" : "s were",
                p->opt->grace);
    if (s.http)
        drain(&s);
    listen_unlink(&s.where);
    http_stop(s.http);
    if (s.has_desk)
        desk_release(&s.desk);
    api_keys_release(&s.keys);
    listen_release(&s.where);
    opened_release(&s.opened);
    free(s.name);
    return ok;
}
