// The pool of recurrent states on the device: its slots, and which of them a pass reads and writes.
// Who has which slot is engine/states.c's to say. Host code only.
#include <string.h>

#include "engine/states.h"
#include "engine_impl.h"

static bool has_state(const struct layer *l)
{
    return layer_state_size(l) > 0;
}

// Floats of a layer in a slot.
static uint64_t size_in_slot(const struct layer *l)
{
    const struct delta *d = &l->delta;
    if (l->ssm.n_head > 0)
        return state_aligned(ssm_inputs(&l->ssm) + (size_t)l->ssm.n_inner * l->ssm.n_state);
    if (l->mixer == MIXER_DELTA)
        return state_aligned(delta_inputs(d) + (size_t)d->n_head * d->n_state * d->n_state);
    return state_aligned(layer_state_size(l));
}

static uint64_t slot_size(const struct model *m)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        n += has_state(&m->layers[i]) ? size_in_slot(&m->layers[i]) : 0;
    return n;
}

// As many as a gigabyte has room for, four where sequences are evaluated beside each other, each of
// which has some to go back to. A piece of 2,048 tokens needs five, or is cut. A pass reads one of
// each sequence and writes another: so many there are if a quarter of what weights leave of the
// device's memory has room for them.
uint32_t cuda_n_states(const struct model *m, uint32_t n_seq, uint64_t device_bytes)
{
    const uint64_t least = 8, of_seqs = n_seq > 1 ? 2 * n_seq : 0;
    const uint64_t each = slot_size(m) * sizeof(float);
    if (each == 0)
        return 0;
    const uint64_t left = device_bytes - lesser(m->weight_bytes, device_bytes);
    const uint64_t usual = lesser((UINT64_C(1) << (n_seq > 1 ? 32 : 30)) / each, 64 + of_seqs);
    const uint64_t wanted = lesser(least + of_seqs, left / 4 / each);
    const uint64_t n = usual > wanted ? usual : wanted;
    return (uint32_t)(n < least ? least : n);
}

// The last slot is one that is never read.
void cuda_place_states(struct cuda_engine *e, const struct model *m)
{
    struct state_pool *p = &e->states;
    size_t at = 0;
    *p = {};
    p->n = e->base.n_states;
    p->stride = slot_size(m);
    if (p->n == 0)
        return;
    p->base = (float *)cuda_take(&e->kv, (p->n + 1ull) * p->stride * sizeof(float));
    p->spans = (struct state_span *)cuda_take(&e->work,
                                              (1ull + cuda_n_spans(e->n_seq)) * sizeof *p->spans);
    for (uint32_t i = 0; e->layers && i < m->hp.n_layer; i++) {
        e->layers[i].state_at = at;
        at += has_state(&m->layers[i]) ? size_in_slot(&m->layers[i]) : 0;
    }
}

bool cuda_states_open(struct cuda_engine *e, struct error *err)
{
    const size_t n = SPANS_AHEAD + cuda_n_spans(e->n_seq);
    return e->states.n == 0 ||
           CHECK_CUDA(cudaMallocHost(&e->host_spans, n * sizeof *e->host_spans), err);
}

bool cuda_state_copy(struct cuda_engine *e, uint32_t slot, float *host, bool out, struct error *err)
{
    float *state = e->states.base + slot * e->states.stride;
    const size_t n_bytes = e->states.stride * sizeof *state;
    return CHECK_CUDA(cudaMemcpyAsync(out ? host : state, out ? state : host, n_bytes,
                                      out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice,
                                      e->q.stream),
                      err) &&
           cuda_wait(e, err);
}

// Steps that are enqueued have their own until they have ended.
bool cuda_span_use(struct cuda_engine *e, struct state_span span, struct error *err)
{
    if (e->states.n == 0)
        return true;
    struct state_span *own = &e->host_spans[e->n_spans++ % SPANS_AHEAD];
    *own = span;
    return CHECK_CUDA(
        cudaMemcpyAsync(e->states.spans, own, sizeof *own, cudaMemcpyHostToDevice, e->q.stream),
        err);
}

bool cuda_state_use(struct cuda_engine *e, uint32_t from, uint32_t to, uint32_t n,
                    struct error *err)
{
    return cuda_span_use(e, {0, n, from, to == NO_STATE ? e->states.n : to}, err);
}

// n rows of s, from row0 on, and the states that they lead to.
static struct state_span span_of_seq(const struct seq *s, uint32_t row0, size_t n)
{
    const size_t last = states_written(s, n) - 1;
    struct state_span span = {row0, (uint32_t)n, s->state, s->next_states[last]};
    span.n_within = (uint32_t)last;
    memcpy(span.within, s->next_states, last * sizeof *span.within);
    return span;
}

bool cuda_state_use_chunk(struct cuda_engine *e, const struct seq *s, size_t n, struct error *err)
{
    return e->states.n == 0 || cuda_span_use(e, span_of_seq(s, 0, n), err);
}

bool cuda_states_use(struct cuda_engine *e, struct engine_part *const *parts, size_t n_parts,
                     struct error *err)
{
    if (e->states.n == 0)
        return true;
    struct state_span *spans = e->host_spans + SPANS_AHEAD;
    const size_t n = n_parts > GRAPH_ROWS ? n_parts : (size_t)GRAPH_ROWS;
    uint32_t row = 0;
    for (size_t i = 0; i < n_parts; i++) {
        const struct engine_part *p = parts[i];
        spans[i] = span_of_seq(p->seq, row, p->n);
        row += (uint32_t)p->n;
    }
    for (size_t i = n_parts; i < n; i++) // a graph's, which has one for each row
        spans[i] = {row, 0, NO_STATE, e->states.n};
    return CHECK_CUDA(cudaMemcpyAsync(e->states.spans + 1, spans, n * sizeof *spans,
                                      cudaMemcpyHostToDevice, e->q.stream),
                      err);
}

struct state_slots cuda_state_slots(const struct cuda_engine *e, const struct gpu_layer *l)
{
    struct state_slots s = {};
    s.base = e->states.base + l->state_at;
    s.stride = e->states.stride;
    s.spans = e->states.spans + (e->pass ? 1 : 0);
    s.n_span = e->pass ? e->pass->n_span : 1;
    s.rows = e->pass ? e->s.rows : NULL;
    return s;
}
