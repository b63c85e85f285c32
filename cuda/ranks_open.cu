// A model on several devices: which, how much each has, and that all are opened.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "engine/states.h"
#include "ranks_impl.h"

static bool check_devices(struct ranks *a, struct error *err)
{
    for (uint32_t i = 1; i < a->n; i++) {
        const struct rank *r = &a->rank[0], *s = &a->rank[i];
        if (r->device.major != s->device.major || r->device.minor != s->device.minor)
            return error_set(err, ERR_FAIL,
                             "device %d (%s) has compute capability %d.%d and device %d (%s) has "
                             "%d.%d: expected devices alike, which compute the same bits",
                             r->device_index, r->device.name, r->device.major, r->device.minor,
                             s->device_index, s->device.name, s->device.major, s->device.minor);
    }
    for (uint32_t i = 0; i < a->n * a->n; i++) {
        const struct rank *r = &a->rank[i / a->n], *s = &a->rank[i % a->n];
        int can = 1;
        if (r != s &&
            !CHECK_CUDA(cudaDeviceCanAccessPeer(&can, r->device_index, s->device_index), err))
            return false;
        a->through_host |= !can;
    }
    return true;
}

// Of all ranks: a's devices are filled.
static bool find_devices(struct ranks *a, const struct model *m, const struct engine_params *p,
                         struct error *err)
{
    if (cuda_n_rank(p) > MODEL_MAX_RANKS)
        return error_set(err, ERR_USAGE, "%u devices, expected at most %d", cuda_n_rank(p),
                         MODEL_MAX_RANKS);
    for (int i = 0; i < 32; i++)
        if (p->devices >> i & 1) {
            struct rank *r = &a->rank[a->n];
            r->all = a;
            r->index = a->n++;
            r->device_index = i;
            if (!cuda_device_select(i, &r->device, err))
                return false;
        }
    a->params = *p;
    a->base.model = m;
    for (uint32_t i = 0; i < a->n; i++) { // the same for all
        struct engine_params own = *p;
        own.shares = NULL; // that is no engine of one device
        const uint32_t n = cuda_n_batch(m, &own, &a->rank[i].device);
        a->params.n_batch = i == 0 ? n : lesser(a->params.n_batch, n);
    }
    return check_devices(a, err) && model_can_split(m, a->n, err);
}

static struct engine_params params_of(const struct ranks *a, const struct rank *r, uint32_t n_ctx)
{
    struct engine_params p = a->params;
    p.device_index = r->device_index;
    p.n_ctx = n_ctx;
    if (r->index > 0)
        p.progress = NULL; // rank 0's stands for all
    if (p.shares)
        p.shares = &((const struct ranks *)p.shares)->rank[r->index].engine->base;
    return p;
}

// Of a model that predicts, beside that of the model that it predicts for, which has the same of
// what both have.
static bool take_slice(struct ranks *a, struct rank *r, const struct model_split *s,
                       struct error *err)
{
    const struct model *m = a->base.model;
    if (!(r->slice = model_slice(m, s, r->index, err)))
        return false;
    if (!m->predicts_for)
        return true;
    r->slice->predicts_for = r->predicts_for = model_slice(m->predicts_for, s, r->index, err);
    return r->predicts_for;
}

static void give_slice(struct rank *r)
{
    model_slice_free(r->slice);
    model_slice_free(r->predicts_for);
    r->slice = r->predicts_for = NULL;
}

// The plans of all ranks for n_ctx positions, 0: as many as fit everywhere.
static bool plan_ranks(struct ranks *a, const struct model_split *s, uint32_t n_ctx,
                       struct engine_plan *out /* (n) */, struct error *err)
{
    bool ok = true;
    for (uint32_t i = 0; ok && i < a->n; i++) {
        struct rank *r = &a->rank[i];
        const struct engine_params p = params_of(a, r, n_ctx);
        ok = take_slice(a, r, s, err) && CHECK_CUDA(cudaSetDevice(r->device_index), err) &&
             cuda_slice_plan(r->slice, &p, &r->device, &out[i], err);
        give_slice(r);
    }
    uint32_t least = ok ? out[0].n_ctx : 0;
    for (uint32_t i = 0; ok && i < a->n; i++)
        least = lesser(least, out[i].fits ? out[i].n_ctx : 0u);
    return ok && (n_ctx > 0 || least == 0 || plan_ranks(a, s, least, out, err));
}

static struct engine_plan sum_of(const struct ranks *a, const struct engine_plan *plans)
{
    struct engine_plan sum = plans[0];
    sum.n_ranks = a->n;
    for (uint32_t i = 0; i < a->n; i++) {
        const struct engine_plan *p = &plans[i];
        sum.ranks[i] = {
            a->rank[i].device_index, p->weights, p->kv, p->scratch, p->other, p->available};
        if (i == 0)
            continue;
        sum.weights += p->weights;
        sum.kv += p->kv;
        sum.scratch += p->scratch;
        sum.other += p->other;
        sum.available += p->available;
        sum.n_ctx = lesser(sum.n_ctx, p->n_ctx);
        sum.n_ctx_max = lesser(sum.n_ctx_max, p->n_ctx_max);
        sum.n_ctx_max_q8 = lesser(sum.n_ctx_max_q8, p->n_ctx_max_q8);
        sum.fits &= p->fits;
    }
    return sum;
}

// Evenly, which is the same split, and so the same bits, whatever else is in the devices' memory;
// only where that leaves less context, in proportion to what is left of their memory beside what
// each rank has all of.
static bool choose_split(struct ranks *a, struct engine_plan *plans, struct error *err)
{
    struct model_split even = {}, other = {};
    struct engine_plan of_other[MODEL_MAX_RANKS];
    even.n_rank = other.n_rank = a->n;
    for (uint32_t i = 0; i < a->n; i++)
        even.share[i] = 1;
    if (a->params.shares) { // what it has of the head
        a->split = ((const struct ranks *)a->params.shares)->split;
        return plan_ranks(a, &a->split, a->params.n_ctx, plans, err);
    }
    if (!plan_ranks(a, &even, a->params.n_ctx, plans, err))
        return false;
    const struct weight *embd = &a->base.model->tok_embd;
    const uint64_t everywhere = cuda_layout_bytes(embd->type, embd->rows, embd->n_cols);
    for (uint32_t i = 0; i < a->n; i++) {
        const uint64_t taken = everywhere + plans[i].scratch + plans[i].other;
        other.share[i] = plans[i].available > taken ? plans[i].available - taken : 1;
    }
    a->split = even;
    const struct engine_plan one = sum_of(a, plans);
    const uint32_t wanted = a->params.n_ctx ? a->params.n_ctx : a->base.model->hp.n_ctx_train;
    if (one.fits && one.n_ctx >= wanted)
        return true;
    if (!plan_ranks(a, &other, a->params.n_ctx, of_other, err))
        return false;
    const struct engine_plan two = sum_of(a, of_other);
    if (two.fits && (!one.fits || two.n_ctx > one.n_ctx)) {
        a->split = other;
        memcpy(plans, of_other, sizeof of_other);
    }
    return true;
}

bool cuda_ranks_plan(const struct model *m, const struct engine_params *p, struct engine_plan *plan,
                     struct error *err)
{
    struct ranks a = {};
    struct engine_plan plans[MODEL_MAX_RANKS] = {};
    if (!find_devices(&a, m, p, err) || !choose_split(&a, plans, err))
        return false;
    *plan = sum_of(&a, plans);
    return true;
}

static bool one_does_not_fit(const struct ranks *a, const struct engine_plan *plans,
                             struct error *err)
{
    uint32_t i = 0;
    while (i + 1 < a->n && plans[i].fits)
        i++;
    struct engine_plan p = plans[i];
    const struct engine_plan sum = sum_of(a, plans);
    p.n_ctx_max = sum.n_ctx_max;
    p.n_ctx_max_q8 = sum.n_ctx_max_q8;
    cuda_does_not_fit(&p, a->rank[i].device.name, err);
    return error_prefix(err, "device %d", a->rank[i].device_index);
}

// ---- open

static bool make_ranks(struct ranks *a, const struct model *m, uint32_t n_ctx, struct error *err)
{
    const size_t n_bytes = a->n * exchange_inbox(exchange_between(a->n, true)) * sizeof *a->inboxes;
    if (!CHECK_CUDA(cudaMallocHost(&a->words, sizeof *a->words), err) ||
        (a->through_host && !CHECK_CUDA(cudaMallocHost(&a->inboxes, n_bytes), err)))
        return false;
    *a->words = {};
    if (a->inboxes)
        memset(a->inboxes, 0, n_bytes);
    for (uint32_t i = 0; i < a->n; i++) {
        struct rank *r = &a->rank[i];
        r->params = params_of(a, r, n_ctx);
        if (!take_slice(a, r, &a->split, err))
            return false;
        if (i == 0)
            continue;
        r->parts = (struct engine_part *)calloc(ENGINE_MAX_PARTS, sizeof *r->parts);
        r->logits = (float *)calloc(m->hp.n_vocab, sizeof *r->logits);
        r->more = (struct decoded *)calloc(ENGINE_MAX_PASS_DRAFTS, sizeof *r->more);
        if (!r->parts || !r->logits || !r->more)
            return error_oom(err, "a rank", ENGINE_MAX_PARTS * sizeof *r->parts);
        if (thread_start(&r->thread, 0, rank_work, r) != 0)
            return error_set(err, ERR_FAIL, "no thread could be started for a device");
        r->has_thread = true;
    }
    return true;
}

// Of how much each rank keeps of a token (FNV-1a): the same with the same split.
static uint32_t split_checksum(const struct ranks *a)
{
    uint32_t sum = 2166136261u;
    for (uint32_t i = 0; i < a->n; i++)
        for (uint32_t k = 0; k < a->base.model->hp.n_layer; k++) {
            const struct layer *l = &a->rank[i].slice->layers[k];
            const uint32_t of_layer[] = {l->n_head_kv, (uint32_t)layer_state_size(l)};
            for (int j = 0; j < 2; j++)
                sum = (sum ^ of_layer[j]) * 16777619u;
        }
    return sum;
}

// What callers are told of the engine, and what their sequences ask it.
static bool describe(struct ranks *a, const struct model *m, struct error *err)
{
    const struct cuda_engine *first = a->rank[0].engine;
    struct engine *e = &a->base;
    const struct engine of_rank = first->base;
    *e = of_rank;
    e->core = NULL;
    e->model = m;
    snprintf(e->device, sizeof e->device, "%u x %.100s", a->n, a->rank[0].device.name);
    if (a->through_host)
        snprintf(e->note, sizeof e->note,
                 "not all of these GPUs reach each other's memory: what they tell each other goes "
                 "through the host's, which is slower");
    const size_t used = strlen(e->kv_format);
    snprintf(e->kv_format + used, sizeof e->kv_format - used, " ranks:%u-%08x", a->n,
             split_checksum(a));
    for (uint32_t i = 0; i < a->n; i++) {
        const struct cuda_engine *r = a->rank[i].engine;
        e->n_states = lesser(e->n_states, r->base.n_states); // slots of smaller slices are more
        if (i > 0) {
            e->mem_used += r->base.mem_used;
            e->mem_total += r->base.mem_total;
        }
    }
    if (!engine_init(e, &a->core, &ranks_backend, first->n_seq, first->n_seq, err))
        return false;
    a->core.alike = first->core.alike;
    a->core.spares_copies = first->core.spares_copies;
    a->core.max_drafts = first->core.max_drafts;
    a->core.max_draft_rows = first->core.max_draft_rows;
    a->core.gives_hidden = first->core.gives_hidden;
    return true;
}

// What it shares with is split among the same devices.
static bool can_share(const struct engine_params *p, struct error *err)
{
    const struct engine *with = p->shares;
    return !with ||
           (with->core->backend == &ranks_backend &&
            ((const struct ranks *)with)->params.devices == p->devices) ||
           error_set(err, ERR_FAIL,
                     "a prediction layer without the engine of its model on the same devices");
}

struct engine *cuda_ranks_open(const struct model *m, const struct engine_params *p,
                               struct error *err)
{
    struct ranks *a = (struct ranks *)calloc(1, sizeof *a);
    struct engine_plan plans[MODEL_MAX_RANKS] = {};
    if (!a) {
        error_oom(err, "the engine", sizeof *a);
        return NULL;
    }
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    bool ok = can_share(p, err) && find_devices(a, m, p, err) && choose_split(a, plans, err);
    const struct engine_plan sum = ok ? sum_of(a, plans) : (struct engine_plan){};
    ok = ok && (sum.fits || one_does_not_fit(a, plans, err)) && make_ranks(a, m, sum.n_ctx, err) &&
         ranks_open_all(a, err) && describe(a, m, err);
    if (ok) {
        states_may_take(&a->base, sum.host_states);
        return &a->base;
    }
    ranks_free(&a->base);
    return NULL;
}
