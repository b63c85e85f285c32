// Layers with a recurrent state as launches (struct delta, struct short_conv and struct ssm in
// model/model.h).
#include <stdlib.h>

#include "engine_impl.h"

// ---- memory

static void raise(uint64_t *most, uint64_t n)
{
    *most = n > *most ? n : *most;
}

static bool is_delta(const struct layer *l)
{
    return l->mixer == MIXER_DELTA;
}

static bool is_conv(const struct layer *l)
{
    return l->mixer == MIXER_CONV;
}

static bool has_ssm(const struct layer *l)
{
    return l->ssm.n_head > 0;
}

// Whether so many rows of one sequence go through layers' states in chunks: fewer are sooner done
// one by one.
static bool goes_in_chunks(const struct cuda_engine *e, uint32_t n)
{
    enum { CHUNKED_ROWS = 192 };
    return e->chunks && !e->pass && n >= CHUNKED_ROWS;
}

// What a layer, or the largest of several, has of a row: floats.
struct widths {
    uint64_t in, mixed, z, ba;
};

static void raise_widths(struct widths *w, const struct layer *l)
{
    raise(&w->in, l->w[CONV_IN].rows);
    if (l->mixer == MIXER_DELTA) {
        raise(&w->in, layer_n_channels(l));
        raise(&w->mixed, layer_n_channels(l));
        raise(&w->z, layer_n_out(l));
        raise(&w->ba, 2ull * l->delta.n_head);
    }
    if (l->ssm.n_head > 0) {
        raise(&w->in, l->w[SSM_IN].rows);
        raise(&w->mixed, layer_ssm_channels(l));
    }
}

static struct state_scratch take_rows(struct arena *a, const struct widths *w, uint64_t n_row)
{
    struct state_scratch s = {};
    float **const to[] = {&s.in, &s.mixed, &s.z, &s.beta, &s.alpha};
    const uint64_t n[] = {w->in, w->mixed, w->z, w->ba, w->ba};
    for (int i = 0; i < 5; i++)
        if (n[i] > 0)
            *to[i] = (float *)cuda_take(a, n[i] * n_row * sizeof(float));
    return s;
}

void cuda_place_mixers(struct cuda_engine *e, const struct model *m)
{
    struct widths largest = {};
    uint64_t chunks = 0;
    struct state_advance *a = &e->states.advance;
    *a = {};
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer *l = &m->layers[i];
        struct widths w = {};
        raise_widths(&largest, l);
        raise_widths(&w, l);
        if (is_delta(l))
            raise(&chunks, delta_chunk_bytes(&l->delta, e->base.n_batch));
        if (has_ssm(l))
            raise(&chunks, ssm_chunk_bytes(&e->q, &l->ssm, e->base.n_batch));
        w.z = 0; // no state depends on it
        const bool keeps = e->params.exact && layer_state_size(l) > 0;
        const struct state_scratch kept =
            keeps ? take_rows(&e->work, &w, cuda_kept_rows(e->n_seq)) : state_scratch{};
        if (e->layers)
            e->layers[i].kept = kept;
        a->n_delta += keeps && is_delta(l);
        a->n_conv += keeps && is_conv(l);
        a->n_ssm += keeps && has_ssm(l);
    }
    e->mixers = take_rows(&e->work, &largest, e->base.n_batch);
    e->chunks = chunks > 0 && !e->passes ? cuda_take(&e->work, chunks) : NULL;
    if (a->n_delta > 0)
        a->delta = (struct delta_rows *)cuda_take(&e->work, a->n_delta * sizeof *a->delta);
    if (a->n_conv > 0)
        a->conv = (struct short_conv_rows *)cuda_take(&e->work, a->n_conv * sizeof *a->conv);
    if (a->n_ssm > 0)
        a->ssm = (struct ssm_rows *)cuda_take(&e->work, a->n_ssm * sizeof *a->ssm);
}

// Where n rows of a layer go: those of a pass that may be taken back have places of their own.
static struct state_scratch rows_of(const struct cuda_engine *e, const struct gpu_layer *l,
                                    uint32_t n)
{
    const bool keeps = l->kept.in && e->pass && n <= cuda_kept_rows(e->n_seq);
    struct state_scratch s = keeps ? l->kept : e->mixers;
    s.z = e->mixers.z;
    return s;
}

// ---- one token (n = 0) or many

static struct short_conv_rows conv_args(const struct cuda_engine *e, const struct gpu_layer *l,
                                        const struct state_scratch *s)
{
    struct short_conv_rows c = {};
    c.conv = l->facts->conv;
    c.state = cuda_state_slots(e, l);
    c.w = l->v[CONV];
    c.in = s->in;
    c.y = e->s.att;
    return c;
}

static bool convolve(struct cuda_engine *e, const struct gpu_layer *l, struct input in, uint32_t n,
                     struct error *err)
{
    static const enum layer_weight w[] = {CONV_IN};
    const struct state_scratch s = rows_of(e, l, n);
    float *const y[] = {s.in};
    struct short_conv_rows c = conv_args(e, l, &s);
    c.skip = n ? NULL : &e->s.step->done;
    return cuda_project(e, l, in, n, w, y, 1, err) &&
           short_conv_launch(cuda_queue(e, name_of(l, CONV)), &c, rows_of_step(n), err) &&
           cuda_add_mixed(e, l, ATTN_OUTPUT, e->s.att, n, err);
}

static struct delta_rows delta_args(const struct cuda_engine *e, const struct gpu_layer *l,
                                    const struct state_scratch *s)
{
    struct delta_rows d = {};
    d.delta = l->facts->delta;
    d.eps = e->hp.norm_eps;
    d.state = cuda_state_slots(e, l);
    d.in = s->in;
    d.w = l->v[DELTA_CONV];
    d.mixed = s->mixed;
    d.paired = l->facts->w[DELTA_BETA_ALPHA].data;
    d.beta = s->beta;
    d.alpha = d.paired ? s->beta : s->alpha;
    d.a = l->v[DELTA_A];
    d.dt = l->v[DELTA_DT];
    d.gate = s->z;
    d.norm = l->v[DELTA_NORM];
    d.y = e->s.att;
    return d;
}

static bool delta(struct cuda_engine *e, const struct gpu_layer *l, struct input in, uint32_t n,
                  struct error *err)
{
    static const enum layer_weight apart[] = {DELTA_QKV, DELTA_GATE, DELTA_BETA, DELTA_ALPHA},
                                   paired[] = {DELTA_QKV, DELTA_GATE, DELTA_BETA_ALPHA};
    const struct state_scratch s = rows_of(e, l, n);
    float *const y[] = {s.in, s.z, s.beta, s.alpha};
    const uint32_t n_row = rows_of_step(n);
    struct delta_rows d = delta_args(e, l, &s);
    d.skip = n ? NULL : &e->s.step->done;
    // Next tokens and their drafts alone: what a token waits for are launches.
    const bool few = n == 0 || (e->pass && e->pass->n_chunk == 0);
    const bool steps = few && delta_can_step(&d.delta);
    const bool chunks = goes_in_chunks(e, n) && delta_can_chunk(&d.delta);
    if (steps && n == 0)
        d.mixed = NULL; // nothing goes back behind that
    return cuda_project(e, l, in, n, d.paired ? paired : apart, y, d.paired ? 3 : 4, err) &&
           (steps ? delta_step_launch(cuda_queue(e, "state"), &d, err)
                  : (chunks ? delta_mix_launch : delta_conv_launch)(
                        cuda_queue(e, name_of(l, DELTA_CONV)), &d, n_row, err) &&
                        (chunks ? delta_chunks_launch(cuda_queue(e, "state"), &d, e->chunks, n, err)
                                : delta_launch(cuda_queue(e, "state"), &d, err)) &&
                        delta_gate_launch(cuda_queue(e, name_of(l, DELTA_NORM)), &d, n_row, err)) &&
           cuda_add_mixed(e, l, ATTN_OUTPUT, e->s.att, n, err);
}

static struct ssm_rows ssm_args(const struct cuda_engine *e, const struct gpu_layer *l,
                                const struct state_scratch *rows)
{
    struct ssm_rows s = {};
    s.ssm = l->facts->ssm;
    s.eps = e->hp.norm_eps;
    s.state = cuda_state_slots(e, l);
    s.in = rows->in;
    s.ld = l->w[SSM_IN].rows;
    s.w = l->v[SSM_CONV];
    s.bias = l->v[SSM_CONV_BIAS];
    s.mixed = rows->mixed;
    s.a = l->v[SSM_A];
    s.d = l->v[SSM_D];
    s.dt = l->v[SSM_DT];
    s.norm = cuda_norms_group_across(e, l->facts) ? NULL : l->v[SSM_NORM];
    s.y = e->s.att;
    return s;
}

static bool state_space(struct cuda_engine *e, const struct gpu_layer *l, struct input in,
                        uint32_t n, struct error *err)
{
    static const enum layer_weight w[] = {SSM_IN};
    const struct state_scratch rows = rows_of(e, l, n);
    float *const y[] = {rows.in};
    const uint32_t n_row = rows_of_step(n);
    struct ssm_rows s = ssm_args(e, l, &rows);
    s.skip = n ? NULL : &e->s.step->done;
    const bool chunks = goes_in_chunks(e, n) && ssm_can_chunk(&e->q, &s.ssm);
    return cuda_project(e, l, in, n, w, y, 1, err) &&
           (chunks ? ssm_mix_launch : ssm_conv_launch)(cuda_queue(e, name_of(l, SSM_CONV)), &s,
                                                       n_row, err) &&
           (chunks ? ssm_chunks_launch(cuda_queue(e, "state"), &s, e->chunks, n, err)
                   : ssm_launch(cuda_queue(e, "state"), &s, err)) &&
           ssm_gate_launch(cuda_queue(e, name_of(l, SSM_NORM)), &s, n_row, err) &&
           cuda_norm_group(e, l, s.y, n_row, s.skip, err) &&
           cuda_add_mixed(e, l, SSM_OUT, e->s.att, n, err);
}

const char *cuda_recurrent_group(const struct gpu_layer *l)
{
    return group_of(l, l->facts->mixer == MIXER_DELTA  ? DELTA_QKV
                       : l->facts->mixer == MIXER_CONV ? CONV_IN
                                                       : SSM_IN);
}

bool cuda_recur(struct cuda_engine *e, const struct gpu_layer *l, struct input in, uint32_t n,
                struct error *err)
{
    return l->facts->mixer == MIXER_DELTA  ? delta(e, l, in, n, err)
           : l->facts->mixer == MIXER_CONV ? convolve(e, l, in, n, err)
                                           : state_space(e, l, in, n, err);
}

// ---- the states alone, again

// Copies the n of a table, made by args(layer), of the layers of that kind.
template <typename T, typename A>
static bool up_table(struct cuda_engine *e, T *to, uint32_t n,
                     bool (*is_kind)(const struct layer *), A args, struct error *err)
{
    if (n == 0)
        return true;
    T *table = (T *)malloc(n * sizeof *table);
    if (!table)
        return error_oom(err, "the layers with states", n * sizeof *table);
    uint32_t k = 0;
    for (uint32_t i = 0; i < e->hp.n_layer; i++)
        if (is_kind(e->layers[i].facts))
            table[k++] = args(e, &e->layers[i], &e->layers[i].kept);
    const bool ok = CHECK_CUDA(
        cudaMemcpyAsync(to, table, n * sizeof *table, cudaMemcpyHostToDevice, e->q.stream), err);
    struct error mine = {};
    const bool ended = cuda_wait(e, ok ? err : &mine);
    free(table);
    return ok && ended;
}

bool cuda_state_advance_open(struct cuda_engine *e, struct error *err)
{
    const struct state_advance *a = &e->states.advance;
    return up_table(e, a->delta, a->n_delta, is_delta, delta_args, err) &&
           up_table(e, a->conv, a->n_conv, is_conv, conv_args, err) &&
           up_table(e, a->ssm, a->n_ssm, has_ssm, ssm_args, err);
}

// A model's layers of a kind have one shape.
static const struct layer *first_of(const struct cuda_engine *e,
                                    bool (*is_kind)(const struct layer *))
{
    const struct gpu_layer *l = e->layers;
    while (!is_kind(l->facts))
        l++;
    return l->facts;
}

bool cuda_enqueue_advance(struct cuda_engine *e, struct error *err)
{
    const struct state_advance *a = &e->states.advance;
    const struct queue *q = cuda_queue(e, "state");
    return (a->n_delta == 0 ||
            delta_advance_launch(q, a->delta, &first_of(e, is_delta)->delta, a->n_delta, err)) &&
           (a->n_conv == 0 ||
            short_conv_advance_launch(q, a->conv, &first_of(e, is_conv)->conv, a->n_conv, err)) &&
           (a->n_ssm == 0 ||
            ssm_advance_launch(q, a->ssm, &first_of(e, has_ssm)->ssm, a->n_ssm, err));
}

bool cuda_state_advance(struct cuda_engine *e, struct state_span span, struct error *err)
{
    return cuda_span_use(e, span, err) && cuda_enqueue_advance(e, err);
}
