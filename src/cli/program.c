#include "cli/program.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/out.h"
#include "cli/model_file.h"
#include "model/model.h"

bool open_model(const struct program *p, struct opened *m, struct error *err)
{
    if (!m->path) // else it is known already
        m->path = model_file(p->opt, p->cancel, err);
    m->model = m->path ? model_load(m->path, err) : NULL;
    return m->model != NULL;
}

// Who has waited this long is told for what, ten times a second.
static const double PATIENCE_S = 0.3, BETWEEN_S = 0.1;

struct loading {
    double began, shown; // clock_now(); shown 0: nothing is on the screen
};

static void load_progress(void *user, uint64_t done, uint64_t total)
{
    struct loading *l = user;
    double now = clock_now(), spent = now - l->began;
    if (spent < PATIENCE_S || now - l->shown < BETWEEN_S || done >= total)
        return;
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER], rate[FORMAT_NUMBER];
    out_progress("loading %s of %s · %s/s", format_bytes(a, done), format_bytes(b, total),
                 format_bytes(rate, (uint64_t)((double)done / spent)));
    l->shown = now;
}

static bool choose_device(const struct program *p, bool chat, struct device_choice *d,
                          struct engine_params *params, struct error *err)
{
    const struct options *o = p->opt;
    if (!device_choose(o->device, p->cpu, p->cuda, d, err))
        return false;
    if (device_note_due(d, chat, o->verbose) && !o->quiet)
        out_say("hokku: %s", d->note);
    *params = (struct engine_params){
        .n_ctx = o->n_ctx,
        .n_batch = o->n_batch,
        .type_k = o->type_k,
        .type_v = o->type_v,
        .n_threads = o->n_threads,
        .device_index = d->index,
        .cancel = p->cancel,
    };
    return true;
}

bool open_engine(const struct program *p, struct opened *m, uint32_t n_ctx, bool chat,
                 struct error *err)
{
    struct device_choice d;
    struct engine_params params;
    if (!choose_device(p, chat, &d, &params, err))
        return false;
    params.n_ctx = n_ctx;
    struct loading loading = {.began = clock_now()};
    if (p->stderr_tty && !p->opt->quiet && !p->opt->dumb) {
        params.progress = load_progress;
        params.progress_user = &loading;
    }
    m->engine = d.backend->open(m->model, &params, err);
    if (loading.shown > 0)
        out_progress_clear();
    if (m->engine && p->opt->verbose) {
        char used[FORMAT_NUMBER];
        char seed[32] = "";
        if (p->opt->tool == TOOL_NONE)
            snprintf(seed, sizeof seed, " · seed %llu", (unsigned long long)p->opt->sampler.seed);
        out_say("hokku: %s · %s · %s on %s · context %u%s", m->path, m->model->quant,
                format_bytes(used, m->engine->mem_used), m->engine->device, m->engine->n_ctx, seed);
    }
    return m->engine != NULL;
}

void opened_release(struct opened *m)
{
    engine_free(m->engine);
    model_free(m->model);
    free(m->path);
    *m = (struct opened){0};
}

bool open_plan(const struct program *p, const struct opened *m, struct buf *out, struct error *err)
{
    struct engine_params params;
    struct engine_plan plan;
    struct device_choice d;
    if (!choose_device(p, false, &d, &params, err) ||
        !d.backend->plan(m->model, &params, &plan, err))
        return false;
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER], c[FORMAT_NUMBER], o[FORMAT_NUMBER], e[FORMAT_NUMBER];
    buf_printf(
        out,
        "weights %s + KV %s + scratch %s + other %s bytes for a context of %u tokens; free %s "
        "bytes: %s\n",
        format_number(a, plan.weights), format_number(b, plan.kv), format_number(c, plan.scratch),
        format_number(o, plan.other), plan.n_ctx, format_number(e, plan.available),
        plan.fits ? "fits" : "does not fit");
    const uint64_t per_token = model_bytes_per_token(m->model);
    if (model_largest(m->model).n_expert > 0)
        buf_printf(out, "of the weights a token reads %s bytes: of experts those that it uses\n",
                   format_number(a, per_token));
    if (!buf_printf(out, "largest context that fits: %u tokens, with -ctk q8_0 -ctv q8_0: %u\n",
                    plan.n_ctx_max, plan.n_ctx_max_q8))
        return error_oom(err, "the plan", out->len);
    return plan.fits ||
           error_set(err, ERR_MEMORY, "the plan does not fit: try -c %u", plan.n_ctx_max);
}

bool program_color(const struct program *p, bool tty)
{
    const struct options *o = p->opt;
    return o->color == WHEN_ALWAYS || (o->color == WHEN_AUTO && tty && !o->dumb && !o->no_color);
}
