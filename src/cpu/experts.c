// A mixture of experts (struct experts in model/model.h). The rows of a chunk are grouped by
// expert, so that its weights are read once; a token's sum goes through its experts in the order of
// their numbers, whatever else is in the chunk.
#include "cpu/forward.h"

#include <math.h>
#include <string.h>

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

// ---- routing

enum { CLOSED, OPEN, TAKEN }; // what an expert is to a token

struct route_job {
    struct cpu_engine *e;
    const struct layer *l;
};

// p = gate(p), (n)
static void gate_logits(enum expert_gate gate, float *p, size_t n)
{
    float max = p[0], sum = 0;
    for (size_t i = 1; i < n; i++)
        max = p[i] > max ? p[i] : max;
    for (size_t i = 0; i < n; i++) {
        p[i] = gate == EXPERT_SIGMOID ? sigmoid(p[i]) : expf(p[i] - max);
        sum += p[i];
    }
    for (size_t i = 0; gate == EXPERT_SOFTMAX && i < n; i++)
        p[i] /= sum;
}

// What is not a number is better than everything, so that it is not lost.
static bool is_better(float a, float b)
{
    return !isnan(b) && !(a <= b);
}

// The open one with the largest score, the first of equals.
static size_t best_open(const float *score, const uint8_t *state, size_t n)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++)
        if (state[i] == OPEN && (best == n || is_better(score[i], score[best])))
            best = i;
    return best;
}

static float best_two(const float *score, size_t n)
{
    float first = score[0], second = -INFINITY;
    for (size_t i = 1; i < n; i++) {
        const bool leads = is_better(score[i], first);
        const float lower = leads ? first : score[i];
        first = leads ? score[i] : first;
        second = is_better(lower, second) ? lower : second;
    }
    return n > 1 ? first + second : first;
}

// Opens those that can be chosen from.
static void open_groups(const struct experts *x, const float *score, uint8_t *state)
{
    const size_t size = x->n / x->n_group;
    memset(state, x->n_group_used == x->n_group ? OPEN : CLOSED, x->n);
    for (uint32_t k = 0; x->n_group_used < x->n_group && k < x->n_group_used; k++) {
        size_t best = x->n;
        float best_sum = 0;
        for (size_t at = 0; at < x->n; at += size) {
            const float sum = best_two(score + at, size);
            if (state[at] == CLOSED && (best == x->n || is_better(sum, best_sum))) {
                best = at;
                best_sum = sum;
            }
        }
        memset(state + best, OPEN, size);
    }
}

static void route_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct route_job *j = arg;
    const struct experts *x = &j->l->experts;
    const struct cpu_routing *r = &j->e->routing;
    const float *bias = layer_vector(j->l, ROUTER_CHOICE_BIAS);
    const float *down_scale = layer_vector(j->l, EXPERT_DOWN_SCALE);
    float *p = r->logits + t * x->n, *score = r->score + t * x->n;
    uint32_t *chosen = r->chosen + t * x->n_used;
    float *weight = r->weight + t * x->n_used, sum = 0;
    uint8_t *state = r->state + t * x->n;
    memcpy(score, p, x->n * sizeof *score); // the gates keep the order of logits
    gate_logits(x->gate, p, x->n);
    for (size_t i = 0; (bias || x->n_group_used < x->n_group) && i < x->n; i++)
        score[i] = p[i] + (bias ? bias[i] : 0);
    open_groups(x, score, state);
    for (uint32_t k = 0; k < x->n_used; k++)
        state[best_open(score, state, x->n)] = TAKEN;
    for (uint32_t i = 0, k = 0; i < x->n; i++)
        if (state[i] == TAKEN) {
            chosen[k] = i;
            weight[k++] = p[i] + 0 * score[i]; // so that a bias that is no number shows
            sum += p[i];
        }
    for (uint32_t k = 0; k < x->n_used; k++) {
        if (x->normed)
            weight[k] /= sum + 1e-20f; // of sigmoids all may be 0 (DeepSeek-AI 2024, their code)
        weight[k] *= x->scale * (down_scale ? down_scale[chosen[k]] : 1);
    }
}

// Fills active, place and pair: which rows each expert gets.
static size_t group_rows(const struct experts *x, const struct cpu_routing *r, size_t n)
{
    const size_t n_pairs = n * x->n_used;
    size_t n_active = 0;
    memset(r->first, 0, (x->n + 1) * sizeof *r->first);
    for (size_t i = 0; i < n_pairs; i++)
        r->first[r->chosen[i] + 1]++;
    for (uint32_t i = 0; i < x->n; i++) {
        if (r->first[i + 1] > 0)
            r->active[n_active++] = i;
        r->first[i + 1] += r->first[i];
    }
    for (size_t i = 0; i < n_pairs; i++) {
        r->place[i] = r->first[r->chosen[i]]++;
        r->pair[r->place[i]] = (uint32_t)i;
    }
    memmove(r->first + 1, r->first, x->n * sizeof *r->first);
    r->first[0] = 0;
    return n_active;
}

bool cpu_route(struct cpu_engine *e, const struct layer *l, size_t n)
{
    const struct cpu_routing *r = &e->routing;
    const struct weight *shared = &l->w[SHARED_ROUTER];
    struct route_job j = {e, l};
    const struct cpu_matmul m[] = {
        {&l->w[ROUTER], &e->normed, layer_vector(l, ROUTER_BIAS), r->logits, l->experts.n, n,
         false},
        {shared, &e->normed, NULL, r->shared, 1, n, false},
    };
    return cpu_multiply(e, m, shared->data ? 2 : 1) && cpu_each_token(e, n, route_item, &j) &&
           cpu_mark(e, "route", l->w[ROUTER].name);
}

// ---- the shared expert

static void weigh_shared_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct route_job *j = arg;
    const size_t n_embd = j->e->base.model->hp.n_embd;
    float *y = j->e->branch + t * n_embd;
    const float weight = sigmoid(j->e->routing.shared[t]);
    for (size_t i = 0; i < n_embd; i++)
        y[i] *= weight;
}

// branch (n, n_embd) = what it gives, or zeros
static bool shared_expert(struct cpu_engine *e, const struct layer *l, size_t n)
{
    const size_t n_embd = e->base.model->hp.n_embd;
    const uint32_t n_ff = l->experts.n_ff_shared;
    if (n_ff == 0) {
        memset(e->branch, 0, n * n_embd * sizeof *e->branch);
        return true;
    }
    const struct cpu_act *in = &e->normed, wide = cpu_as_wide_as(&e->gate, n_ff, n);
    const struct weight *gate = &l->w[SHARED_GATE], *up = &l->w[SHARED_UP];
    const struct cpu_matmul gated[] = {
        {gate, in, NULL, wide.f, wide.n_pad, n, false}, // (n, n_ff_shared)
        {up, in, NULL, e->up, n_ff, n, false},          // (n, n_ff_shared)
    };
    const struct cpu_matmul plain = {up, in, NULL, wide.f, wide.n_pad, n, false};
    const struct cpu_matmul down = {&l->w[SHARED_DOWN], &wide, NULL, e->branch, n_embd, n, false};
    struct route_job j = {e, l};
    return (gate->data ? cpu_multiply(e, gated, 2) : cpu_multiply(e, &plain, 1)) &&
           cpu_activate(e, l, &wide, gate->data, up->group, n) && cpu_multiply(e, &down, 1) &&
           (!l->w[SHARED_ROUTER].data || cpu_each_token(e, n, weigh_shared_item, &j));
}

// ---- the chosen ones, some experts at a time, so that their rows fit

struct turn {
    struct cpu_engine *e;
    const struct layer *l;
    const uint32_t *active; // (n_active) the experts of the turn
    size_t n_active;
    size_t begin, end;          // the places of their rows
    bool one_row;               // one token, whose experts all read the same row of in
    const struct cpu_act *from; // (n, columns of in)
    struct cpu_act in, wide;
    float *to; // (n, to_stride) what they give is added to
    size_t to_stride;
};

// Products of each expert with its rows.
struct expert_products {
    const struct turn *turn;
    enum layer_weight w[2], bias[2];
    float *y[2]; // (rows of the turn, y_stride)
    size_t y_stride[2];
    int n;
    const struct cpu_act *x;
    bool one_row;
    uint32_t rows_per_item;
    size_t items_per_matrix;
};

static void product_item(void *arg, size_t item, int thread)
{
    (void)thread;
    const struct expert_products *p = arg;
    const struct turn *turn = p->turn;
    const struct cpu_routing *r = &turn->e->routing;
    const size_t block = item % p->items_per_matrix, matrix = item / p->items_per_matrix;
    const int i = (int)(matrix % (size_t)p->n);
    const uint32_t expert = turn->active[matrix / (size_t)p->n];
    const size_t row = r->first[expert] - turn->begin;
    const struct weight w = weight_of_expert(&turn->l->w[p->w[i]], expert);
    const float *bias = layer_vector(turn->l, p->bias[i]);
    const struct cpu_act x = cpu_rows_from(p->x, p->one_row ? 0 : row);
    const struct cpu_matmul m = {.w = &w,
                                 .x = &x,
                                 .bias = bias ? bias + (size_t)expert * w.rows : NULL,
                                 .y = p->y[i] + row * p->y_stride[i],
                                 .y_stride = p->y_stride[i],
                                 .n_tok = r->first[expert + 1] - r->first[expert]};
    const uint32_t row0 = (uint32_t)block * p->rows_per_item;
    const uint32_t left = w.rows - row0;
    turn->e->kernels->matmul(&m, row0, left < p->rows_per_item ? w.rows : row0 + p->rows_per_item);
}

static bool multiply(const struct turn *turn, struct expert_products *p)
{
    struct cpu_engine *e = turn->e;
    const struct weight *w = &turn->l->w[p->w[0]];
    const size_t n_matrices = turn->n_active * (size_t)p->n, n_rows = turn->end - turn->begin;
    p->turn = turn;
    p->rows_per_item = cpu_rows_per_item(e, w, n_matrices * w->rows, n_rows / turn->n_active);
    p->items_per_matrix = (w->rows + p->rows_per_item - 1) / p->rows_per_item;
    return pool_run(e->pool, n_matrices * p->items_per_matrix, product_item, p, e->cancel) &&
           cpu_mark(e, "matmul", w->group);
}

static bool quantizes(const struct layer *l, enum layer_weight a, enum layer_weight b)
{
    return (l->w[a].data && cpu_is_quantized(&l->w[a])) ||
           (l->w[b].data && cpu_is_quantized(&l->w[b]));
}

// Row `item` of what the experts of the turn are given.
static void gather_item(void *arg, size_t item, int thread)
{
    (void)thread;
    const struct turn *turn = arg;
    const struct layer *l = turn->l;
    const struct cpu_engine *e = turn->e;
    const size_t pair = turn->one_row ? 0 : e->routing.pair[turn->begin + item];
    if (!turn->one_row) {
        const float *from = turn->from->f + pair / l->experts.n_used * turn->from->n_pad;
        float *to = turn->in.f + item * turn->in.n_pad;
        const float times = l->experts.weighs_input ? e->routing.weight[pair] : 1;
        for (size_t i = 0; i < turn->in.n_cols; i++)
            to[i] = from[i] * times;
    }
    if (quantizes(l, EXPERT_GATE, EXPERT_UP))
        e->kernels->quantize(&turn->in, item);
}

static void quantize_item(void *arg, size_t item, int thread)
{
    (void)thread;
    const struct turn *turn = arg;
    turn->e->kernels->quantize(&turn->wide, item);
}

struct pack_job {
    const struct turn *turn;
    const struct cpu_act *x;
};

// The rows of one expert, if they are enough.
static void pack_item(void *arg, size_t item, int thread)
{
    (void)thread;
    const struct pack_job *j = arg;
    const struct cpu_routing *r = &j->turn->e->routing;
    const uint32_t expert = j->turn->active[item];
    const size_t n = r->first[expert + 1] - r->first[expert];
    if (n >= CPU_PACKED)
        j->turn->e->kernels->pack(j->x, r->first[expert] - j->turn->begin, n);
}

// Of n tokens an expert has n rows at most.
static bool pack(struct turn *turn, const struct cpu_act *x, size_t n)
{
    struct pack_job j = {turn, x};
    return n < CPU_PACKED ||
           pool_run(turn->e->pool, turn->n_active, pack_item, &j, turn->e->cancel);
}

// to += what the experts of the turn give, times their weights
static void add_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct turn *turn = arg;
    const struct cpu_engine *e = turn->e;
    const struct experts *x = &turn->l->experts;
    const size_t n_out = turn->in.n_cols;
    float *y = turn->to + t * turn->to_stride;
    for (size_t pair = t * x->n_used; pair < (t + 1) * x->n_used; pair++) {
        const size_t place = e->routing.place[pair];
        if (place < turn->begin || place >= turn->end)
            continue;
        const float *from = e->expert_out + (place - turn->begin) * n_out;
        const float times = x->weighs_input ? 1 : e->routing.weight[pair];
        for (size_t i = 0; i < n_out; i++)
            y[i] += times * from[i];
    }
}

static bool take_turn(struct turn *turn, size_t n)
{
    struct cpu_engine *e = turn->e;
    const struct layer *l = turn->l;
    const size_t n_rows = turn->end - turn->begin;
    const uint32_t n_ff = l->experts.n_ff, n_io = turn->from->n_cols;
    const bool gated = l->w[EXPERT_GATE].data;
    turn->one_row = n == 1 && !l->experts.weighs_input;
    turn->in = turn->one_row ? *turn->from : cpu_as_wide_as(&e->expert_in, n_io, n_rows);
    turn->wide = cpu_as_wide_as(&e->gate, n_ff, n_rows);
    struct expert_products up = {.w = {EXPERT_GATE, EXPERT_UP},
                                 .bias = {EXPERT_GATE_BIAS, EXPERT_UP_BIAS},
                                 .y = {turn->wide.f, e->up},
                                 .y_stride = {turn->wide.n_pad, n_ff},
                                 .n = 2,
                                 .x = &turn->in,
                                 .one_row = turn->one_row};
    if (!gated) {
        up.w[0] = EXPERT_UP;
        up.bias[0] = EXPERT_UP_BIAS;
        up.n = 1;
    }
    struct expert_products down = {.w = {EXPERT_DOWN},
                                   .bias = {EXPERT_DOWN_BIAS},
                                   .y = {e->expert_out},
                                   .y_stride = {n_io},
                                   .n = 1,
                                   .x = &turn->wide};
    return pool_run(e->pool, turn->one_row ? 1 : n_rows, gather_item, turn, e->cancel) &&
           (!quantizes(l, EXPERT_GATE, EXPERT_UP) || pack(turn, &turn->in, n)) &&
           cpu_mark(e, "gather", l->w[EXPERT_UP].group) && multiply(turn, &up) &&
           cpu_activate(e, l, &turn->wide, gated, l->w[EXPERT_UP].group, n_rows) &&
           (!cpu_is_quantized(&l->w[EXPERT_DOWN]) ||
            (pool_run(e->pool, n_rows, quantize_item, turn, e->cancel) &&
             pack(turn, &turn->wide, n))) &&
           multiply(turn, &down) && cpu_each_token(e, n, add_item, turn) &&
           cpu_mark(e, "gather", l->w[EXPERT_DOWN].group);
}

bool cpu_experts(struct cpu_engine *e, const struct layer *l, size_t n)
{
    const struct cpu_routing *r = &e->routing;
    const uint32_t n_latent = l->experts.n_latent, n_embd = e->base.model->hp.n_embd;
    const struct cpu_act in = cpu_as_wide_as(&e->expert_latent.in, n_latent, n);
    const struct cpu_act sum = cpu_as_wide_as(&e->expert_latent.sum, n_latent, n);
    const struct cpu_matmul narrow = {
        &l->w[EXPERT_LATENT], &e->normed, NULL, in.f, in.n_pad, n, false};
    const struct cpu_matmul widen = {
        &l->w[EXPERT_LATENT_UP], &sum, NULL, e->branch, n_embd, n, true};
    if (!shared_expert(e, l, n) || (n_latent > 0 && !cpu_multiply(e, &narrow, 1)))
        return false;
    if (n_latent > 0)
        memset(sum.f, 0, n * sum.n_pad * sizeof *sum.f);
    const size_t n_active = group_rows(&l->experts, r, n);
    for (size_t begin = 0, end; begin < n_active; begin = end) {
        const size_t first = r->first[r->active[begin]];
        // No expert has more rows than the chunk, so at least one fits.
        for (end = begin; end < n_active && r->first[r->active[end] + 1] - first <= e->expert_rows;)
            end++;
        struct turn turn = {.e = e,
                            .l = l,
                            .from = n_latent > 0 ? &in : &e->normed,
                            .to = n_latent > 0 ? sum.f : e->branch,
                            .to_stride = n_latent > 0 ? sum.n_pad : n_embd,
                            .active = r->active + begin,
                            .n_active = end - begin,
                            .begin = first,
                            .end = r->first[r->active[end - 1] + 1]};
        if (!take_turn(&turn, n))
            return false;
    }
    return n_latent == 0 || cpu_multiply(e, &widen, 1);
}
