// Layers with a recurrent state as launches (struct delta, struct short_conv and struct ssm in
// model/model.h).
#include "engine_impl.h"

// ---- memory

static void raise(uint64_t *most, uint64_t n)
{
    *most = n > *most ? n : *most;
}

void cuda_place_mixers(struct cuda_engine *e, const struct model *m)
{
    struct state_scratch *s = &e->mixers;
    uint64_t in = 0, mixed = 0, z = 0, ba = 0;
    *s = {};
    for (uint32_t i = 0; i < m->hp.n_layer; i++) {
        const struct layer *l = &m->layers[i];
        raise(&in, l->w[CONV_IN].rows);
        if (l->mixer == MIXER_DELTA) {
            raise(&in, layer_n_channels(l));
            raise(&mixed, layer_n_channels(l));
            raise(&z, layer_n_out(l));
            raise(&ba, 2ull * l->delta.n_head);
        }
        if (l->ssm.n_head > 0) {
            raise(&in, l->w[SSM_IN].rows);
            raise(&mixed, layer_ssm_channels(l));
        }
    }
    float **const to[] = {&s->in, &s->mixed, &s->z, &s->beta, &s->alpha};
    const uint64_t n[] = {in, mixed, z, ba, ba};
    for (int i = 0; i < 5; i++)
        if (n[i] > 0)
            *to[i] = (float *)cuda_take(&e->work, n[i] * e->base.n_batch * sizeof(float));
}

// ---- one token (n = 0) or many

static bool convolve(struct cuda_engine *e, const struct gpu_layer *l, struct input in, uint32_t n,
                     struct error *err)
{
    static const enum layer_weight w[] = {CONV_IN};
    float *const y[] = {e->mixers.in};
    struct short_conv_rows c = {};
    c.conv = l->facts->conv;
    c.state = cuda_state_slots(e, l);
    c.w = l->v[CONV];
    c.in = e->mixers.in;
    c.y = e->s.att;
    c.skip = n ? NULL : &e->s.step->done;
    return cuda_project(e, l, in, n, w, y, 1, err) &&
           short_conv_launch(cuda_queue(e, name_of(l, CONV)), &c, n ? n : 1, err) &&
           cuda_add_mixed(e, l, ATTN_OUTPUT, e->s.att, n, err);
}

static bool delta(struct cuda_engine *e, const struct gpu_layer *l, struct input in, uint32_t n,
                  struct error *err)
{
    static const enum layer_weight wide[] = {DELTA_QKV, DELTA_GATE},
                                   narrow[] = {DELTA_BETA, DELTA_ALPHA},
                                   paired[] = {DELTA_BETA_ALPHA};
    const struct state_scratch *s = &e->mixers;
    float *const wide_y[] = {s->in, s->z}, *const narrow_y[] = {s->beta, s->alpha};
    const uint32_t n_row = n ? n : 1;
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
    d.skip = n ? NULL : &e->s.step->done;
    return cuda_project(e, l, in, n, wide, wide_y, 2, err) &&
           (d.paired ? cuda_project(e, l, in, n, paired, narrow_y, 1, err)
                     : cuda_project(e, l, in, n, narrow, narrow_y, 2, err)) &&
           delta_conv_launch(cuda_queue(e, name_of(l, DELTA_CONV)), &d, n_row, err) &&
           delta_launch(cuda_queue(e, "state"), &d, err) &&
           delta_gate_launch(cuda_queue(e, name_of(l, DELTA_NORM)), &d, n_row, err) &&
           cuda_add_mixed(e, l, ATTN_OUTPUT, e->s.att, n, err);
}

static bool state_space(struct cuda_engine *e, const struct gpu_layer *l, struct input in,
                        uint32_t n, struct error *err)
{
    static const enum layer_weight w[] = {SSM_IN};
    float *const y[] = {e->mixers.in};
    const uint32_t n_row = n ? n : 1;
    struct ssm_rows s = {};
    s.ssm = l->facts->ssm;
    s.eps = e->hp.norm_eps;
    s.state = cuda_state_slots(e, l);
    s.in = e->mixers.in;
    s.ld = l->w[SSM_IN].rows;
    s.w = l->v[SSM_CONV];
    s.bias = l->v[SSM_CONV_BIAS];
    s.mixed = e->mixers.mixed;
    s.a = l->v[SSM_A];
    s.d = l->v[SSM_D];
    s.dt = l->v[SSM_DT];
    s.norm = l->v[SSM_NORM];
    s.y = e->s.att;
    s.skip = n ? NULL : &e->s.step->done;
    return cuda_project(e, l, in, n, w, y, 1, err) &&
           ssm_conv_launch(cuda_queue(e, name_of(l, SSM_CONV)), &s, n_row, err) &&
           ssm_launch(cuda_queue(e, "state"), &s, err) &&
           ssm_gate_launch(cuda_queue(e, name_of(l, SSM_NORM)), &s, n_row, err) &&
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
