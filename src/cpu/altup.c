// Streams beside the residual one, and what is added beside attention (struct layer in
// model/model.h).
#include "cpu/forward.h"

#include <math.h>
#include <string.h>

enum { MOST = 1 + MODEL_MAX_SIDE };

struct altup_job {
    struct cpu_engine *e;
    const struct layer *layer;
    const float *from, *w;
};

static size_t n_embd(const struct cpu_engine *e)
{
    return e->base.model->hp.n_embd;
}

// Row t of stream i; 0 is the residual one.
static float *stream(const struct cpu_engine *e, size_t i, size_t t)
{
    return i == 0 ? e->x + t * n_embd(e)
                  : e->altup.side + ((i - 1) * e->base.n_batch + t) * n_embd(e);
}

static void copy_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct altup_job *j = arg;
    const size_t n = n_embd(j->e);
    float *to = j->e->normed.f + t * j->e->normed.n_pad;
    memcpy(to, j->from + t * n, n * sizeof *to);
    for (size_t i = 0; j->w && i < n; i++)
        to[i] *= j->w[i];
}

bool cpu_copy_to_normed(struct cpu_engine *e, const float *from, const float *scale, size_t n)
{
    struct altup_job j = {.e = e, .from = from, .w = scale};
    return cpu_each_token(e, n, copy_item, &j);
}

// ---- begin and end

static float mean_square(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return (float)(sum / (double)n);
}

// Makes each side stream as long as the residual one.
static void match_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct altup_job *j = arg;
    const size_t n = n_embd(j->e);
    const float length = sqrtf(mean_square(stream(j->e, 0, t), n));
    for (size_t s = 1; s <= j->e->base.model->hp.n_side; s++) {
        float *x = stream(j->e, s, t);
        const float times = length / cpu_root(fmaxf(mean_square(x, n), 1e-5f));
        for (size_t i = 0; i < n; i++)
            x[i] *= times;
    }
}

// Side stream i = the i-th of the matrices times itself, or times the residual stream.
static bool project(struct cpu_engine *e, const struct weight *w, bool itself, size_t n)
{
    struct altup_job j = {.e = e};
    for (uint32_t i = 0; i < w->n_stacked; i++) {
        const struct weight one = weight_of_expert(w, i);
        float *to = stream(e, i + 1, 0);
        const struct cpu_matmul m = {&one, &e->normed, NULL, to, one.rows, n, false};
        if (!cpu_copy_to_normed(e, itself ? to : e->x, NULL, n) || !cpu_multiply(e, &m, 1))
            return false;
    }
    return cpu_each_token(e, n, match_item, &j);
}

bool cpu_altup_begin(struct cpu_engine *e, size_t n)
{
    const struct weight *w = &e->base.model->altup_proj;
    return project(e, w, false, n) && cpu_mark(e, "add", w->name);
}

static void mean_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct altup_job *j = arg;
    const size_t n_side = j->e->base.model->hp.n_side;
    float *x = stream(j->e, 0, t);
    for (size_t s = 1; s <= n_side; s++) {
        const float *add = stream(j->e, s, t);
        for (size_t i = 0; i < n_embd(j->e); i++)
            x[i] += add[i];
    }
    for (size_t i = 0; i < n_embd(j->e); i++)
        x[i] /= (float)(1 + n_side);
}

bool cpu_altup_end(struct cpu_engine *e, size_t n)
{
    struct altup_job j = {.e = e};
    const struct weight *w = &e->base.model->altup_unembd_proj;
    return project(e, w, true, n) && cpu_each_token(e, n, mean_item, &j) &&
           cpu_mark(e, "add", w->name);
}

// ---- in a layer

// cpu_look at all streams.
static bool look(struct cpu_engine *e, size_t il, const char *what)
{
    for (size_t s = 0; e->search && s <= e->base.model->hp.n_side; s++)
        finite_step(e->search, (uint32_t)il, stream(e, s, 0), n_embd(e), what);
    return true;
}

// out (n_out) = w tanh(altup_router altup_router_norm(x) / n_embd), of row t; its normed row is
// overwritten.
static void coefficients(const struct altup_job *j, enum layer_weight weight, size_t t,
                         size_t n_out, float *out)
{
    const size_t n = 1 + j->e->base.model->hp.n_side, width = n_embd(j->e);
    const float *w = layer_vector(j->layer, weight), *router = layer_vector(j->layer, ALTUP_ROUTER);
    float *normed = j->e->normed.f + t * j->e->normed.n_pad, m[MOST];
    cpu_norm_row(j->e, stream(j->e, 0, t), layer_vector(j->layer, ALTUP_ROUTER_NORM), NULL, width,
                 normed);
    for (size_t k = 0; k < n; k++) {
        double sum = 0;
        for (size_t i = 0; i < width; i++)
            sum += (double)router[k * width + i] * (double)normed[i];
        m[k] = tanhf((float)sum / (float)width);
    }
    for (size_t i = 0; i < n_out; i++) {
        out[i] = 0;
        for (size_t k = 0; k < n; k++)
            out[i] += w[i * n + k] * m[k];
    }
}

static void predict_item(void *arg, size_t t, int thread)
{
    (void)thread;
    enum { SOME = 64 };
    const struct altup_job *j = arg;
    const size_t n = 1 + j->e->base.model->hp.n_side, width = n_embd(j->e);
    float c[MOST * MOST], old[MOST][SOME];
    coefficients(j, ALTUP_PREDICT, t, n * n, c);
    for (size_t begin = 0; begin < width; begin += SOME) {
        const size_t some = width - begin < SOME ? width - begin : SOME;
        for (size_t k = 0; k < n; k++)
            memcpy(old[k], stream(j->e, k, t) + begin, some * sizeof **old);
        for (size_t i = 0; i < n; i++) {
            float *x = stream(j->e, i, t) + begin;
            for (size_t k = 0; k < n; k++)
                for (size_t d = 0; d < some; d++)
                    x[d] += c[i * n + k] * old[k][d];
        }
    }
    memcpy(j->e->altup.predicted + t * width, stream(j->e, 0, t), width * sizeof(float));
}

static void correct_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct altup_job *j = arg;
    const size_t n = 1 + j->e->base.model->hp.n_side, width = n_embd(j->e);
    const float *predicted = j->e->altup.predicted + t * width;
    float c[MOST], *x = stream(j->e, 0, t);
    coefficients(j, ALTUP_CORRECT, t, n, c);
    for (size_t d = 0; d < width; d++)
        x[d] -= predicted[d];
    for (size_t i = 1; i < n; i++) {
        float *other = stream(j->e, i, t);
        for (size_t d = 0; d < width; d++)
            other[d] += (1 + c[i]) * x[d];
    }
    for (size_t d = 0; d < width; d++)
        x[d] = predicted[d] + (1 + c[0]) * x[d];
}

// Each row's item, with coefficients from those weights.
static bool move_streams(struct cpu_engine *e, size_t il, enum layer_weight w,
                         void (*item)(void *arg, size_t t, int thread), size_t n)
{
    const struct layer *l = &e->base.model->layers[il];
    struct altup_job j = {.e = e, .layer = l};
    const char *name = l->w[w].name;
    return cpu_each_token(e, n, item, &j) && look(e, il, name) && cpu_mark(e, "add", name);
}

bool cpu_altup_predict(struct cpu_engine *e, size_t il, size_t n)
{
    return move_streams(e, il, ALTUP_PREDICT, predict_item, n);
}

bool cpu_altup_correct(struct cpu_engine *e, size_t il, size_t n)
{
    return move_streams(e, il, ALTUP_CORRECT, correct_item, n);
}

static void add_to_side_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct altup_job *j = arg;
    const size_t n = n_embd(j->e);
    float *add = j->e->branch + t * n;
    cpu_norm_row(j->e, add, j->w, NULL, n, add);
    for (size_t s = 1; s <= j->e->base.model->hp.n_side; s++) {
        float *x = stream(j->e, s, t);
        for (size_t i = 0; i < n; i++)
            x[i] += add[i];
    }
}

bool cpu_altup_add(struct cpu_engine *e, size_t il, enum layer_weight norm, const char *what,
                   size_t n)
{
    struct altup_job j = {.e = e, .w = layer_vector(&e->base.model->layers[il], norm)};
    return cpu_each_token(e, n, add_to_side_item, &j) && look(e, il, what) &&
           cpu_mark(e, "add", what);
}

static void laurel_item(void *arg, size_t t, int thread)
{
    (void)thread;
    const struct altup_job *j = arg;
    const size_t n = n_embd(j->e);
    const float *normed = j->e->normed.f + t * j->e->normed.n_pad;
    float *x = j->e->x + t * n, *add = j->e->branch + t * n;
    cpu_norm_row(j->e, add, j->w, NULL, n, add);
    for (size_t i = 0; i < n; i++)
        x[i] = (x[i] + normed[i] + add[i]) / sqrtf(2);
}

bool cpu_laurel(struct cpu_engine *e, size_t il, size_t n)
{
    const struct layer *l = &e->base.model->layers[il];
    const struct weight *left = &l->w[LAUREL_L], *right = &l->w[LAUREL_R];
    const struct cpu_act low = cpu_as_wide_as(&e->gate, l->n_laurel, n);
    const struct cpu_matmul to_low = {left, &e->normed, NULL, low.f, low.n_pad, n, false};
    const struct cpu_matmul from_low = {right, &low, NULL, e->branch, right->rows, n, false};
    struct altup_job j = {.e = e, .w = layer_vector(l, LAUREL_POST_NORM)};
    return cpu_multiply(e, &to_low, 1) && cpu_multiply(e, &from_low, 1) &&
           cpu_each_token(e, n, laurel_item, &j) && cpu_look(e, il, right->name) &&
           cpu_mark(e, "add", right->name);
}
