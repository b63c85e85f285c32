#include "tools/replay_company.h"

#include "engine/schedule.h"

enum { N_MATES = COMPANY_SEQS - 1 };

// One of those beside it, and who follows it.
struct mate {
    struct task task;
    struct ids prompt;
    struct sampler_settings sampler;
    struct generate_params p;
    struct generated g;
    bool added;
};

struct company {
    struct schedule schedule;
    struct task answer;
    struct mate mates[N_MATES];
};

// Prompts of other tokens than the answer's, which are read backwards, and of other lengths; the
// last begins as the answer's does, so that something is shared.
static bool prepare(struct mate *m, size_t i, const struct ids *prompt,
                    const struct generate_params *p, struct error *err)
{
    const size_t n = 1 + i * (prompt->len - 1) / N_MATES;
    m->sampler = *p->sampler;
    m->p = (struct generate_params){
        .sampler = &m->sampler, .tok = p->tok, .n_predict = 5 + 9 * (int64_t)i, .ignore_eos = true};
    for (size_t k = 0; k < n; k++)
        if (!ids_push(&m->prompt, prompt->data[i + 1 == N_MATES ? k : prompt->len - 1 - k]))
            return error_oom(err, "a prompt", n * sizeof(int32_t));
    return true;
}

// The next one of this kind, where there is none. One that fails is not missed.
static void enter(struct company *c, struct mate *m)
{
    struct error its = {0};
    if (m->added && !m->task.done)
        return;
    generated_release(&m->g);
    m->sampler.seed++;
    m->task = (struct task){.prompt = &m->prompt, .p = &m->p, .g = &m->g};
    m->added = schedule_add(&c->schedule, &m->task, &its);
}

static bool is_beside(const struct company *c)
{
    size_t n = c->schedule.n_running;
    for (size_t i = 0; i < c->schedule.n_running; i++)
        n -= c->schedule.running[i] == &c->answer;
    return c->answer.entered > 0 && n > 0;
}

static bool run(struct company *c, bool *met, struct error *err)
{
    enter(c, &c->mates[0]); // so that the answer's prompt is read beside one that is decoded
    if (!schedule_step(&c->schedule, err) || !schedule_add(&c->schedule, &c->answer, err))
        return false;
    while (!c->answer.done) {
        for (size_t i = 0; i < N_MATES; i++)
            enter(c, &c->mates[i]);
        if (!schedule_step(&c->schedule, err))
            return false;
        *met = *met || is_beside(c);
    }
    if (c->answer.error.code != ERR_NONE)
        *err = c->answer.error;
    return c->answer.error.code == ERR_NONE;
}

bool company_generate(struct session *s, const struct ids *prompt, const struct generate_params *p,
                      struct generated *g, bool *met, struct error *err)
{
    struct company c = {.answer = {.prompt = prompt, .p = p, .g = g}};
    *met = false;
    seq_trim(s->seq, 0);
    bool ok = schedule_init(&c.schedule, s->engine, COMPANY_SEQS, NULL, p->cancel, err);
    for (size_t i = 0; ok && i < N_MATES; i++)
        ok = prepare(&c.mates[i], i, prompt, p, err);
    ok = ok && run(&c, met, err);
    schedule_release(&c.schedule);
    for (size_t i = 0; i < N_MATES; i++) {
        ids_release(&c.mates[i].prompt);
        generated_release(&c.mates[i].g);
    }
    return ok;
}
