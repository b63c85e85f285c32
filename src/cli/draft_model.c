#include "cli/draft_model.h"

#include <stdlib.h>

#include "base/out.h"
#include "cli/model_file.h"
#include "engine/drafter.h"

uint64_t plan_bytes(const struct engine_plan *plan)
{
    uint64_t most = plan->n_ranks > 0 ? 0 : plan->weights + plan->kv + plan->scratch + plan->other;
    for (uint32_t i = 0; i < plan->n_ranks; i++) {
        const struct rank_plan *r = &plan->ranks[i];
        const uint64_t n = r->weights + r->kv + r->scratch + r->other;
        most = n > most ? n : most;
    }
    return most;
}

bool draft_no_room(struct error *err)
{
    return error_set(err, ERR_MEMORY,
                     "the plan does not fit beside the draft model: try a smaller -c, or no "
                     "--model-draft");
}

static bool answers(const struct options *o)
{
    return o->tool == TOOL_NONE || o->tool == TOOL_SERVE;
}

bool draft_wanted(const struct program *p)
{
    const struct options *o = p->opt;
    // (In a chat /set spec may ask for it later.)
    const bool may = o->spec == SPEC_AUTO || o->spec == SPEC_DRAFT || program_is_chat(p);
    return o->model_draft && answers(o) && may;
}

bool draft_check(const struct program *p, struct error *err)
{
    const struct options *o = p->opt;
    struct buf found = {0};
    if (draft_wanted(p) || !options_named(o, "--model-draft") || !options_named(o, "--spec"))
        return true;
    options_get(o, "spec", &found);
    error_set(err, ERR_USAGE,
              "--model-draft is for --spec auto or draft, found --spec %s: leave one of them out",
              buf_str(&found));
    buf_release(&found);
    return false;
}

bool predictor_wanted(const struct program *p, const struct opened *m)
{
    const struct options *o = p->opt;
    const bool has = m->model->hp.n_layer_predict > 0;
    if (!answers(o))
        return false;
    return o->spec == SPEC_MTP || (has && (o->spec == SPEC_AUTO || program_is_chat(p)));
}

static bool load(const struct program *p, struct opened *m, struct error *err)
{
    struct opened_draft *d = &m->draft;
    if (d->model)
        return true;
    d->path = model_named(p->opt, p->opt->model_draft, p->cancel, err);
    d->model = d->path ? model_load(d->path, err) : NULL;
    if (!d->model)
        return error_prefix(err, "--model-draft");
    return drafter_fits(d->model, m->model, err) ||
           error_prefix(err,
                        "--model-draft: %s has another vocabulary than %s, expected the same: name "
                        "a small model of the same family, or none",
                        d->path, m->path);
}

// As far as the main model's context goes, and no further than the draft model was trained; where
// several answers share it, for each.
static struct engine_params params_for(const struct engine_params *params,
                                       const struct model *draft, uint32_t n_ctx)
{
    const uint64_t n_seqs = params->n_seqs > 0 ? params->n_seqs : 1;
    // (no engine has more positions than there are rows of them)
    const uint64_t trained = (draft->pos_embd.data ? 1 : n_seqs) * draft->hp.n_ctx_train;
    struct engine_params mine = *params;
    mine.n_ctx = trained > 0 && trained < n_ctx ? (uint32_t)trained : n_ctx;
    mine.exact = false; // no text depends on a guess
    mine.devices = 0;   // it is small: on the first
    return mine;
}

// How a model and its draft model share the memory.
struct share {
    uint32_t n_ctx;           // of both; the draft model's may end before
    bool alone, both;         // whether there is room for the model, and for both
    struct engine_plan draft; // what the draft model takes
};

static bool both_fit(const struct engine_backend *backend, const struct model *m,
                     const struct model *draft, const struct engine_params *params, uint32_t n_ctx,
                     struct share *s, struct error *err)
{
    const struct engine_params beside = params_for(params, draft, n_ctx);
    struct engine_params mine = *params;
    struct engine_plan plan;
    if (!backend->plan(draft, &beside, &s->draft, err))
        return error_prefix(err, "--model-draft");
    mine.n_ctx = s->n_ctx = n_ctx;
    mine.set_aside += plan_bytes(&s->draft);
    mine.n_aside++;
    if (!backend->plan(m, &mine, &plan, err))
        return false;
    s->both = plan.fits;
    return true;
}

// The context that was asked for, else the largest for which both have room: all that the model
// alone has room for would leave none for it beside a draft model with as large keys and values.
static bool share(const struct engine_backend *backend, const struct model *m,
                  const struct model *draft, const struct engine_params *params, struct share *s,
                  struct error *err)
{
    enum { STEP = 256 };
    struct engine_plan plan;
    if (!backend->plan(m, params, &plan, err) ||
        !both_fit(backend, m, draft, params, plan.n_ctx, s, err))
        return false;
    s->alone = plan.fits;
    if (s->both || !s->alone || params->n_ctx > 0)
        return true;
    uint32_t least = 0, most = (plan.n_ctx - 1) / STEP + 1; // steps that fit, and too many
    while (least + 1 < most) {
        const uint32_t middle = least + (most - least) / 2;
        if (!both_fit(backend, m, draft, params, middle * STEP, s, err))
            return false;
        if (s->both)
            least = middle;
        else
            most = middle;
    }
    return least == 0 || both_fit(backend, m, draft, params, least * STEP, s, err);
}

bool draft_plan(const struct program *p, const struct opened *m, const struct device_choice *d,
                struct engine_params *params, struct engine_plan *plan, struct error *err)
{
    struct opened mine = {.path = m->path, .model = m->model};
    struct share s;
    bool ok = load(p, &mine, err) && share(d->backend, m->model, mine.draft.model, params, &s, err);
    if (ok) {
        *plan = s.draft;
        params->n_ctx = s.both ? s.n_ctx : params->n_ctx;
    }
    draft_release(&mine.draft);
    return ok;
}

bool draft_open(const struct program *p, struct opened *m, const struct device_choice *d,
                struct engine_params *params, struct error *err)
{
    struct opened_draft *draft = &m->draft;
    struct share s;
    if (!load(p, m, err) || !share(d->backend, m->model, draft->model, params, &s, err))
        return false;
    const bool less = params->n_ctx == 0 && s.n_ctx < m->model->hp.n_ctx_train;
    if ((!s.both || less) && p->make_room && p->make_room(p, !s.both) &&
        !share(d->backend, m->model, draft->model, params, &s, err))
        return false;
    if (!s.alone)
        return true; // the model says what it needs
    if (!s.both)
        return draft_no_room(err);
    params->n_ctx = s.n_ctx;
    const struct engine_params mine = params_for(params, draft->model, s.n_ctx);
    draft->engine = d->backend->open(draft->model, &mine, err);
    return draft->engine || error_prefix(err, "--model-draft");
}

// The same of m's prediction layer, which has some of its weights from m's engine.
static struct engine_params params_of_layer(const struct engine_params *params,
                                            const struct opened *m, uint32_t n_ctx)
{
    struct engine_params mine = params_for(params, m->model, n_ctx);
    mine.exact = params->exact; // whether guesses are checked
    mine.devices = params->devices;
    mine.shares = m->engine;
    mine.set_aside = mine.n_aside = 0;
    return mine;
}

// err is the reason why there is no prediction layer to use, where --spec does not name it.
static bool goes_without(const struct program *p, const struct error *why, struct error *err)
{
    if (p->opt->spec == SPEC_MTP) {
        if (err)
            *err = *why;
        return error_prefix(err, "--spec mtp");
    }
    if (p->opt->verbose && why->code != ERR_INTERRUPTED)
        out_say("hokku: the model's prediction layer is not used: %s", why->text);
    return true;
}

static bool no_room_beside(struct error *err)
{
    return error_set(err, ERR_MEMORY,
                     "it does not fit beside the model: a smaller -c leaves room for it");
}

bool predictor_give_up(const struct program *p, struct error *err)
{
    struct error why;
    no_room_beside(&why);
    return goes_without(p, &why, err);
}

// Whether m, which fits alone, fits beside what guesses for it.
static bool fits_beside(const struct opened *m, const struct device_choice *d,
                        const struct engine_params *params, const struct engine_plan *alone,
                        const struct engine_plan *layer, struct error *err)
{
    struct engine_params with = *params;
    struct engine_plan left;
    with.set_aside += plan_bytes(layer);
    with.n_aside++;
    return !alone->fits ||
           (d->backend->plan(m->model, &with, &left, err) && (left.fits || no_room_beside(err)));
}

bool predictor_plan(const struct program *p, const struct opened *m, const struct device_choice *d,
                    const struct engine_params *params, const struct engine_plan *beside,
                    struct engine_plan *plan, struct error *err)
{
    struct error why = {0};
    struct model *layer = model_predictor(m->model, &why);
    const struct engine_params q = params_of_layer(params, m, beside->n_ctx);
    const bool ok = layer && d->backend->plan(layer, &q, plan, &why) &&
                    // (A model that is kept may be in that memory already, or others make room:
                    // where neither is so predictor_give_up.)
                    (p->kept || fits_beside(m, d, params, beside, plan, &why));
    model_free(layer);
    if (ok)
        return true;
    *plan = (struct engine_plan){0};
    return goes_without(p, &why, err);
}

bool predictor_open(const struct program *p, struct opened *m, const struct device_choice *d,
                    const struct engine_params *params, struct error *err)
{
    struct opened_draft *q = &m->predictor;
    struct error why = {0};
    const struct engine_params mine = params_of_layer(params, m, m->engine->n_ctx);
    q->model = model_predictor(m->model, &why);
    q->engine = q->model ? d->backend->open(q->model, &mine, &why) : NULL;
    if (q->engine)
        return true;
    draft_release(q);
    return goes_without(p, &why, err);
}

bool drafts_check(const struct program *p, struct opened *m, struct error *err)
{
    const struct options *o = p->opt;
    const bool takes = engine_takes_drafts(m->engine);
    const bool predicted = m->predictor.engine && takes && engine_gives_hidden(m->engine);
    struct error why = {0};
    if (m->predictor.engine && !predicted) {
        draft_release(&m->predictor);
        error_set(&why, ERR_MODEL, "no guesses can be checked for this model on %s",
                  m->engine->device);
        if (!goes_without(p, &why, err))
            return false;
    }
    if (m->draft.engine && !takes) {
        if (!o->quiet)
            out_say("hokku: the draft model %s is not used: no guesses can be checked for this "
                    "model on %s",
                    m->draft.path, m->engine->device);
        draft_release(&m->draft);
    }
    return true;
}

void draft_release(struct opened_draft *d)
{
    engine_free(d->engine);
    model_free(d->model);
    free(d->path);
    *d = (struct opened_draft){0};
}
