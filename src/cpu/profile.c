// backend.profile: the clock between the steps of one evaluation.
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cpu/cpu.h"
#include "engine/profile.h"

bool cpu_mark(struct cpu_engine *e, const char *kernel, const char *what)
{
    struct cpu_marks *m = e->marks;
    if (!m)
        return true;
    if (m->n < m->max) {
        m->launches[m->n] = (struct profile_launch){kernel, what};
        m->seconds[m->n] = clock_now() - m->last;
    }
    m->n++;
    m->last = clock_now();
    return true;
}

// What is timed: parts, or a chunk of n tokens behind one sequence, and where there is one token a
// pick after it.
struct timed {
    struct engine_part *parts; // (n_parts) NULL: a chunk
    size_t n_parts, n;
    struct sampler *s;
    const struct cancel *cancel;
};

static bool run(struct cpu_engine *e, const struct timed *t, struct error *err)
{
    int32_t id;
    if (e->marks) {
        e->marks->n = 0;
        e->marks->last = clock_now();
    }
    if (t->parts)
        return cpu_eval_parts(&e->base, t->parts, t->n_parts, t->cancel, err) &&
               profile_parts_ended(t->parts, t->n_parts, err);
    if (!cpu_forward(e, LOGITS_LAST) || !cpu_head(e, 0, 1))
        return error_set(err, ERR_INTERRUPTED, "interrupted");
    if (t->n > 1)
        return true;
    return sampler_pick(t->s, e->logits, NULL, 0, &id, err) && cpu_mark(e, "sampler", "logits");
}

static void piece(struct engine_traffic *out, size_t *n, const char *weight, uint64_t bytes)
{
    out[(*n)++] = (struct engine_traffic){"", weight, "", bytes, bytes};
}

// The weights and the cache that a token reads, in the order of the forward pass.
static size_t traffic(const struct cpu_engine *e, struct engine_traffic *out)
{
    const struct model *m = e->base.model;
    size_t n = 0;
    piece(out, &n, "token_embd", m->tok_embd.n_bytes / m->tok_embd.rows);
    if (m->pos_embd.data)
        piece(out, &n, "position_embd", m->pos_embd.n_bytes / m->pos_embd.rows);
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer *l = &m->layers[i];
        for (int k = 0; k < N_LAYER_WEIGHTS; k++) {
            const struct weight *w = &l->w[k];
            if (k == ATTN_OUTPUT && l->mixer == MIXER_ATTENTION)
                piece(out, &n, "kv",
                      layer_seen(l, e->parts[0].pos + 1) *
                          kv_position_bytes(&e->kv.layers[i - l->kv_back]));
            if ((k == ATTN_OUTPUT && l->mixer == MIXER_DELTA) ||
                (k == SSM_OUT && l->ssm.n_head > 0)) // read and written
                piece(out, &n, "state", 2 * layer_state_size(l) * sizeof(float));
            if (w->data && !w->vector)
                piece(out, &n, w->name, weight_bytes_used(w));
        }
    }
    piece(out, &n, "altup_proj", m->altup_proj.n_bytes);
    piece(out, &n, "altup_unembd_proj", m->altup_unembd_proj.n_bytes);
    piece(out, &n, "output", m->output.n_bytes);
    piece(out, &n, "logits", (uint64_t)m->hp.n_vocab * sizeof(float));
    return n;
}

enum { PIECES_PER_LAYER = N_LAYER_WEIGHTS + 2, PIECES_BESIDE = 6 };

static const char *const beside[] = {"convolve", "norm",  "rotate", "activate", "add",
                                     "softcap",  "route", "gather", NULL};

static bool add_work(const struct cpu_engine *e, const struct timed *t, const struct cpu_marks *m,
                     struct engine_profile *out, struct error *err)
{
    const struct model *model = e->base.model;
    if (!t->parts && t->n > 1) {
        profile_operations(out, model, e->parts[0].pos, t->n, beside);
        return true;
    }
    size_t max = (size_t)model->hp.n_layer * PIECES_PER_LAYER + PIECES_BESIDE;
    struct engine_traffic *rows = malloc(max * sizeof *rows);
    if (!rows)
        return error_oom(err, "the bytes of a token", max * sizeof *rows);
    const size_t n = traffic(e, rows);
    if (t->parts)
        profile_pass_traffic(rows, n, model, t->n_parts);
    bool ok = profile_bytes(out, m->launches, m->max, beside, rows, n, err);
    free(rows);
    return ok;
}

static double time_nothing(struct cpu_engine *e)
{
    struct cpu_marks *m = e->marks;
    struct profile_launch nothing[1];
    double seconds[1], all = 0;
    enum { TIMES = 100 };
    *m = (struct cpu_marks){.launches = nothing, .seconds = seconds, .max = 1, .last = clock_now()};
    for (int i = 0; i < TIMES; i++) {
        m->n = 0;
        cpu_mark(e, "nothing", "");
        all += seconds[0];
    }
    return all / TIMES;
}

static bool profile(struct cpu_engine *e, const struct timed *t, uint32_t n_run,
                    struct engine_profile *out, struct error *err)
{
    struct cpu_marks m = {0};
    double *seconds = NULL;
    e->marks = &m; // max 0: only counts
    bool ok = run(e, t, err);
    if (ok) {
        m.max = m.n;
        m.launches = malloc(m.max * sizeof *m.launches);
        seconds = malloc(m.max * n_run * sizeof *seconds);
        ok =
            (m.launches && seconds) || error_oom(err, "the times", m.max * n_run * sizeof *seconds);
    }
    for (uint32_t i = 0; ok && i < n_run; i++) {
        m.seconds = seconds + i * m.max;
        ok = run(e, t, err);
    }
    ok = ok && profile_rows(m.launches, m.max, n_run, seconds, out, err) &&
         add_work(e, t, &m, out, err);
    free(m.launches);
    if (ok)
        out->nothing = time_nothing(e);
    e->marks = NULL;
    e->n_logits = 0;
    e->n_hidden = 0;
    free(seconds);
    snprintf(out->how, sizeof out->how, "the clock between the steps of the forward pass");
    return ok;
}

bool cpu_profile(struct engine *base, const struct seq *seq, const int32_t *tokens, size_t n,
                 uint32_t n_run, const struct cancel *cancel, struct engine_profile *out,
                 struct error *err)
{
    struct cpu_engine *e = (struct cpu_engine *)base;
    struct sampler s = {0};
    if (!sampler_init(&s, &sampler_defaults, base->model->hp.n_vocab, err))
        return false;
    cpu_work_on(e, seq, seq->n_past, tokens, n, cancel);
    const struct timed t = {.n = n, .s = &s, .cancel = cancel};
    const bool ok = profile(e, &t, n_run, out, err);
    sampler_release(&s);
    return ok;
}

bool cpu_profile_parts(struct engine *base, struct engine_part *parts, size_t n_parts,
                       uint32_t n_run, const struct cancel *cancel, struct engine_profile *out,
                       struct error *err)
{
    const struct timed t = {.parts = parts, .n_parts = n_parts, .cancel = cancel};
    return profile((struct cpu_engine *)base, &t, n_run, out, err);
}
