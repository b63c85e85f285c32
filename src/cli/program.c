#include "cli/program.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/out.h"
#include "cli/draft_model.h"
#include "cli/kept.h"
#include "cli/model_file.h"
#include "engine/settings.h"
#include "model/model.h"

static bool find_model(const struct program *p, struct opened *m, struct error *err)
{
    if (!m->path) // else it is known already
        m->path = model_file(p->opt, p->cancel, err);
    return m->path != NULL;
}

bool open_model(const struct program *p, struct opened *m, struct error *err)
{
    if (find_model(p, m, err) && p->kept && kept_take_model(p->kept, m))
        return true;
    m->model = m->path ? model_load(m->path, err) : NULL;
    if (m->model && p->kept)
        kept_note_model(p->kept, m);
    return m->model != NULL;
}

bool open_model_and_settings(const struct program *p, struct opened *m, struct error *err)
{
    struct options *o = p->opt;
    if (!find_model(p, m, err))
        return false;
    if (!p->kept && !o->devices && access(m->path, R_OK) == 0)
        device_begin(o->device, p->cuda); // while the model is read
    if (!open_model(p, m, err))
        return false;
    if (!sampler_recommended(&o->sampler, m->model->gguf, o->sampler_given, err))
        return error_prefix(err, "%s recommends what is no setting (the option given overrides it)",
                            m->path);
    return sampler_check(&o->sampler, m->model->hp.n_vocab, err) &&
           (o->seed_given || sampler_random_seed(&o->sampler.seed, err));
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
    if (o->devices && options_named(o, "--devices") && options_named(o, "--device"))
        return error_set(err, ERR_USAGE, "--devices beside --device: expected one of them");
    const bool several = o->devices && !options_named(o, "--device");
    if (!(several ? devices_choose(o->devices, p->cuda, d, err)
                  : device_choose(o->device, p->cpu, p->cuda, d, err)))
        return false;
    if (device_note_due(d, chat, o->verbose) && !o->quiet)
        out_say("hokku: %s", d->note);
    *params = (struct engine_params){
        .n_ctx = o->n_ctx,
        .n_batch = o->n_batch,
        .exact = o->exact,
        .type_k = o->type_k,
        .type_v = o->type_v,
        .n_threads = o->n_threads,
        .device_index = d->index,
        .devices = d->devices,
        .cancel = p->cancel,
    };
    return true;
}

// Whether memory had room for less context than the model has. asked: open_engine's n_ctx.
static bool less_context(const struct opened *m, uint32_t asked)
{
    return asked == 0 && m->engine->n_ctx < m->model->hp.n_ctx_train;
}

// Where there is no memory, or less context than the model has, models that are kept make room: a
// call is to go as if there were none.
static bool open_with_room(const struct program *p, struct opened *m,
                           const struct engine_backend *backend, const struct engine_params *params,
                           struct error *err)
{
    struct error mine = {0};
    m->engine = backend->open(m->model, params, &mine);
    const bool full = !m->engine && mine.code == ERR_MEMORY;
    const bool less = m->engine && less_context(m, params->n_ctx);
    if ((full || less) && p->make_room && p->make_room(p, full)) {
        engine_free(m->engine);
        m->engine = backend->open(m->model, params, &mine);
    }
    if (!m->engine && err)
        *err = mine;
    return m->engine != NULL;
}

// Whether the prediction layer guesses and the draft model is not needed; a chat may go on with it.
static bool is_outdone(const struct program *p, bool predicted)
{
    const struct options *o = p->opt;
    const bool is = predicted && o->spec == SPEC_AUTO && !program_is_chat(p);
    if (is && !o->quiet && (o->verbose || options_named(o, "--model-draft")))
        out_say("hokku: the draft model %s is not used: the model has a prediction layer of its "
                "own; --spec draft uses it",
                o->model_draft);
    return is;
}

// what: with the path behind it, if it has one.
static void say_draft(const struct program *p, const char *what, const struct opened_draft *d)
{
    char used[FORMAT_NUMBER];
    if (d->engine && p->opt->verbose)
        out_say("hokku: %s%s · %s · %s · context %u", what, d->path ? d->path : "", d->model->quant,
                format_bytes(used, d->engine->mem_used), d->engine->n_ctx);
}

// The engines of m and of what guesses for it; layer: what its prediction layer takes, zeros: it is
// not used.
static bool open_beside(const struct program *p, struct opened *m, const struct device_choice *d,
                        struct engine_params params, const struct engine_plan *layer,
                        struct error *err)
{
    const bool predicted = layer->weights > 0;
    params.set_aside = plan_bytes(layer);
    params.n_aside = predicted;
    if (draft_wanted(p) && !is_outdone(p, predicted) && !draft_open(p, m, d, &params, err))
        return false;
    struct loading loading = {.began = clock_now()};
    if (program_shows_progress(p)) {
        params.progress = load_progress;
        params.progress_user = &loading;
    }
    if (!p->kept || !kept_take_engine(p->kept, m, d->backend, &params)) {
        if (open_with_room(p, m, d->backend, &params, err) && p->kept)
            kept_note_engine(p->kept, d->backend, &params);
    }
    if (loading.shown > 0)
        out_progress_clear();
    if (!m->engine)
        return false;
    m->engine->most_drafts = p->opt->spec_max;
    return (!predicted || predictor_open(p, m, d, &params, err)) && drafts_check(p, m, err);
}

bool open_engine(const struct program *p, struct opened *m, uint32_t n_ctx, bool chat,
                 struct error *err)
{
    struct device_choice d;
    struct engine_params params;
    if (!choose_device(p, chat, &d, &params, err))
        return false;
    params.n_ctx = n_ctx;
    const bool exact = params.exact || d.backend == p->cpu;
    params.n_seqs = exact && m->n_if_exact ? m->n_if_exact : m->n_seqs;
    struct engine_plan plan, layer = {0};
    if (predictor_wanted(p, m) && (!d.backend->plan(m->model, &params, &plan, err) ||
                                   !predictor_plan(p, m, &d, &params, &plan, &layer, err)))
        return false;
    struct error mine = {0};
    bool ok = open_beside(p, m, &d, params, &layer, &mine);
    if (!ok && p->kept && !m->engine && layer.weights > 0 && mine.code == ERR_MEMORY) {
        opened_close_engines(m);
        layer = (struct engine_plan){0};
        if (!predictor_give_up(p, err))
            return false;
        ok = open_beside(p, m, &d, params, &layer, &mine);
    }
    if (!ok) {
        if (err)
            *err = mine;
        return false;
    }
    if (*m->engine->note && !p->opt->quiet)
        out_say("hokku: %s", m->engine->note);
    if (p->opt->verbose) {
        char used[FORMAT_NUMBER];
        char seed[32] = "", context[CONTEXT_TEXT];
        if (p->opt->tool == TOOL_NONE && !program_resumes(p))
            snprintf(seed, sizeof seed, " · seed %llu", (unsigned long long)p->opt->sampler.seed);
        out_say("hokku: %s · %s · %s on %s · %s%s", m->path, m->model->quant,
                format_bytes(used, m->engine->mem_used), m->engine->device,
                opened_context(m, n_ctx, context), seed);
    }
    say_draft(p, "draft model ", &m->draft);
    say_draft(p, "the model's prediction layer", &m->predictor);
    return true;
}

bool opened_no_larger(const struct opened *m, uint32_t asked)
{
    return less_context(m, asked) || engine_is_longest(m->engine);
}

const char *opened_context(const struct opened *m, uint32_t asked, char out[CONTEXT_TEXT])
{
    const int n = snprintf(out, CONTEXT_TEXT, "context %u", m->engine->n_ctx);
    if (less_context(m, asked))
        snprintf(out + n, CONTEXT_TEXT - (size_t)n,
                 " of the model's %u, all that memory has room for", m->model->hp.n_ctx_train);
    return out;
}

void open_say_trained(const struct program *p, const struct opened *m, uint64_t n_ctx)
{
    const uint32_t trained = m->model->hp.n_ctx_train;
    if (n_ctx > trained && trained > 0 && !p->opt->quiet)
        out_say(
            "hokku: a context of %llu tokens: the model was trained on %u, what is further on it "
            "may not make sense of",
            (unsigned long long)n_ctx, trained);
}

void open_say_unheard(const struct program *p, const char *think, const char *unheard,
                      const char *hides)
{
    if (unheard && options_named(p->opt, "--think") && !p->opt->quiet)
        out_say("hokku: --think %s: %s%s%s", think, unheard, hides ? "; --think hide " : "",
                hides ? hides : "");
}

void opened_close_engines(struct opened *m)
{
    draft_release(&m->predictor); // has some of its weights from the engine
    engine_free(m->engine);
    m->engine = NULL;
    draft_release(&m->draft);
}

void opened_release(struct opened *m)
{
    opened_close_engines(m);
    model_free(m->model);
    free(m->path);
    *m = (struct opened){0};
}

void opened_leave(const struct program *p, struct opened *m)
{
    draft_release(&m->predictor); // of the model, which may go on without
    if (p->kept)
        kept_give(p->kept, m);
    opened_release(m);
}

static bool plan_text(const struct model *m, const struct engine_plan *plan, struct buf *out)
{
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER], c[FORMAT_NUMBER], o[FORMAT_NUMBER], e[FORMAT_NUMBER];
    buf_printf(
        out,
        "weights %s + KV %s + scratch %s + other %s bytes for a context of %u tokens; free %s "
        "bytes: %s\n",
        format_number(a, plan->weights), format_number(b, plan->kv),
        format_number(c, plan->scratch), format_number(o, plan->other), plan->n_ctx,
        format_number(e, plan->available), plan->fits ? "fits" : "does not fit");
    if (plan->n_near > 0)
        buf_printf(out,
                   "of the KV %s of %s layers keep the last %s tokens: they see no more than a "
                   "window\n",
                   format_number(a, plan->n_near), format_number(b, m->hp.n_layer),
                   format_number(c, plan->near_ctx));
    if (plan->host_states > 0)
        buf_printf(out,
                   "recurrent states to go back to may take %s bytes of the host's memory besides, "
                   "as they come\n",
                   format_number(a, plan->host_states));
    if (model_largest(m).n_expert > 0)
        buf_printf(out, "of the weights a token reads %s bytes: of experts those that it uses\n",
                   format_number(a, model_bytes_per_token(m)));
    for (uint32_t i = 0; i < plan->n_ranks; i++) {
        const struct rank_plan *r = &plan->ranks[i];
        buf_printf(out, "device %d: weights %s + KV %s + scratch %s + other %s bytes; free %s\n",
                   r->device, format_number(a, r->weights), format_number(b, r->kv),
                   format_number(c, r->scratch), format_number(o, r->other),
                   format_number(e, r->available));
    }
    const bool larger = m->hp.n_ctx_train > 0 && plan->n_ctx_max > m->hp.n_ctx_train;
    return buf_printf(out,
                      "largest context that fits, up to %s: %u tokens, with -ctk q8_0 "
                      "-ctv q8_0: %u\n",
                      larger ? "the one asked for" : "the model's own", plan->n_ctx_max,
                      plan->n_ctx_max_q8);
}

static bool draft_text(const char *what, const struct engine_plan *draft, struct buf *out)
{
    char a[FORMAT_NUMBER], b[FORMAT_NUMBER], c[FORMAT_NUMBER], o[FORMAT_NUMBER];
    return buf_printf(out,
                      "%s beside it: weights %s + KV %s + scratch %s + other %s bytes for "
                      "a context of %u tokens\n",
                      what, format_number(a, draft->weights), format_number(b, draft->kv),
                      format_number(c, draft->scratch), format_number(o, draft->other),
                      draft->n_ctx);
}

static void json_bytes(uint64_t weights, uint64_t kv, uint64_t scratch, uint64_t other,
                       struct buf *out)
{
    buf_printf(out,
               "\"weights\":%" PRIu64 ",\"kv\":%" PRIu64 ",\"scratch\":%" PRIu64
               ",\"other\":%" PRIu64,
               weights, kv, scratch, other);
}

static void json_plan(const struct engine_plan *plan, struct buf *out)
{
    json_bytes(plan->weights, plan->kv, plan->scratch, plan->other, out);
}

static void json_ranks(const struct engine_plan *plan, struct buf *out)
{
    for (uint32_t i = 0; i < plan->n_ranks; i++) {
        const struct rank_plan *r = &plan->ranks[i];
        buf_printf(out, "%s{\"device\":%d,", i == 0 ? ",\"devices\":[" : ",", r->device);
        json_bytes(r->weights, r->kv, r->scratch, r->other, out);
        buf_printf(out, ",\"available\":%" PRIu64 "}", r->available);
    }
    if (plan->n_ranks > 0)
        buf_puts(out, "]");
}

static const struct beside {
    const char *name, *text;
} beside[] = {{"draft", "draft model"}, {"predictor", "prediction layer"}};

enum { N_BESIDE = sizeof beside / sizeof *beside };

// drafts (N_BESIDE): as beside; weights 0: there is none.
static bool plan_json(const struct engine_plan *plan, const struct engine_plan *drafts,
                      struct buf *out)
{
    buf_puts(out, "{");
    json_plan(plan, out);
    buf_printf(out,
               ",\"available\":%" PRIu64
               ",\"n_ctx\":%u,\"fits\":%s,\"n_ctx_max\":%u,\"n_ctx_max_q8_0\":%u",
               plan->available, plan->n_ctx, plan->fits ? "true" : "false", plan->n_ctx_max,
               plan->n_ctx_max_q8);
    if (plan->host_states > 0)
        buf_printf(out, ",\"host_states\":%" PRIu64, plan->host_states);
    json_ranks(plan, out);
    for (size_t i = 0; i < N_BESIDE; i++) {
        if (drafts[i].weights == 0)
            continue;
        buf_printf(out, ",\"%s\":{", beside[i].name);
        json_plan(&drafts[i], out);
        buf_printf(out, ",\"n_ctx\":%u}", drafts[i].n_ctx);
    }
    return buf_puts(out, "}\n");
}

bool open_plan(const struct program *p, const struct opened *m, struct buf *out, struct error *err)
{
    struct engine_params params;
    struct engine_plan plan, drafts[N_BESIDE] = {0};
    struct device_choice d;
    bool ok = true;
    if (!choose_device(p, false, &d, &params, err))
        return false;
    params.n_seqs = m->n_seqs;
    if (!d.backend->plan(m->model, &params, &plan, err) ||
        (predictor_wanted(p, m) && !predictor_plan(p, m, &d, &params, &plan, &drafts[1], err)))
        return false;
    const bool outdone = drafts[1].weights > 0 && p->opt->spec == SPEC_AUTO;
    if (draft_wanted(p) && !outdone && !draft_plan(p, m, &d, &params, &drafts[0], err))
        return false;
    for (size_t i = 0; i < N_BESIDE; i++)
        if (drafts[i].weights > 0) {
            params.set_aside += plan_bytes(&drafts[i]);
            params.n_aside++;
        }
    const struct engine_plan alone = plan;
    if (params.n_aside > 0) {
        if (!d.backend->plan(m->model, &params, &plan, err))
            return false;
        plan.available = alone.available;
    }
    if (drafts[0].weights > 0 && p->opt->n_ctx == 0 && plan.fits)
        plan.n_ctx_max = plan.n_ctx; // more is left only where the draft model's ends
    if (p->opt->json)
        ok = plan_json(&plan, drafts, out);
    else
        ok = plan_text(m->model, &plan, out);
    for (size_t i = 0; ok && !p->opt->json && i < N_BESIDE; i++)
        ok = drafts[i].weights == 0 || draft_text(beside[i].text, &drafts[i], out);
    if (!ok)
        return error_oom(err, "the plan", out->len);
    if (alone.fits && !plan.fits && drafts[0].weights > 0)
        return draft_no_room(err);
    if (alone.fits && !plan.fits)
        return error_set(err, ERR_MEMORY,
                         "the plan does not fit beside the prediction layer: try a smaller -c, or "
                         "no guesses (--spec ngram)");
    if (!plan.fits && plan.n_ctx_max == 0)
        return error_set(err, ERR_MEMORY,
                         "the plan does not fit, whatever the context: try %s-b 64, or a smaller "
                         "model",
                         plan.n_ctx_max_q8 > 0 ? "-ctk q8_0 -ctv q8_0, " : "");
    return plan.fits ||
           error_set(err, ERR_MEMORY, "the plan does not fit: try -c %u", plan.n_ctx_max);
}

bool program_is_chat(const struct program *p)
{
    const struct options *o = p->opt;
    // -cnv, given by name, keeps a chat open that begins with a prompt.
    const bool stays =
        o->conversation == 1 && !o->single_turn && !o->json && p->stdin_tty && p->stdout_tty;
    return p->stdin_tty && !o->lines && !o->turns && !o->dry_run &&
           (stays || (!o->prompt && !o->file));
}

bool program_resumes(const struct program *p)
{
    return p->opt->session || p->opt->base || p->opt->resume;
}

bool program_shows_progress(const struct program *p)
{
    return p->stderr_tty && !p->opt->quiet && !p->opt->dumb;
}

bool program_color(const struct program *p, bool tty)
{
    const struct options *o = p->opt;
    return o->color == WHEN_ALWAYS || (o->color == WHEN_AUTO && tty && !o->dumb && !o->no_color);
}
