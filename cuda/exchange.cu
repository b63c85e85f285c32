// What ranks tell each other: packets of a number and the epoch it belongs to, stored into the
// other's memory. Eight bytes arrive at once, so nobody waits for anything but the packet itself:
// no flag, no fence. Each launch is an epoch, and ranks make the same launches in the same order. A
// rank's packets of epoch e + 2 lie where those of e were: whoever sends them has seen all of e + 1
// of everybody, who had then read all of e.
//
// A token's few numbers wait for each other, and a packet is the shortest way. Of a prompt's sums
// there are millions, which the link has to carry: they go as they are, sixteen bytes at a time, in
// spans, and behind each of them the epoch in a word of its own. These lie where no packet does, so
// that no number can be taken for an epoch.
//
// No block waits for another of its own device, and those of another device are resident at once:
// a launch has blocks for a part of the multiprocessors only.
#include "block.cuh"
#include "kernels.h"

enum { THREADS = 256 };
// Looks for a packet between two at the host's word, which is far away.
#ifdef HOKKU_CUDA_ON_CPU
enum { LOOKS = 16 };
#else
enum { LOOKS = 4096 };
#endif
enum {
    AT_ONCE = 4, // loads of a thread that are under way together
#ifdef HOKKU_CUDA_ON_CPU
    SPAN_THREADS = 32,
#else
    SPAN_THREADS = 1024,
#endif
};
static_assert(EXCHANGE_SPAN % 4 == 0, "spans are cut in sixteen bytes");

struct turn {
    uint32_t epoch;
    uint32_t begin, step; // of this thread's elements
    bool given_up;
};

static __device__ struct turn begin_turn(const struct exchange &x)
{
    return {x.state->epoch, blockIdx.x * THREADS + threadIdx.x, gridDim.x * THREADS, false};
}

// Where rank `from` puts the i-th packet of the epoch in the memory of rank `to`.
static __device__ uint64_t *place_of(const struct exchange &x, uint32_t to, uint32_t from,
                                     uint32_t epoch, uint32_t i)
{
    return x.inbox[to] + ((size_t)(epoch % 2) * x.n_rank + from) * x.room + i;
}

static __device__ uint64_t packet_of(const struct turn &t, float v)
{
    return (uint64_t)t.epoch << 32 | (uint64_t)__float_as_uint(v);
}

static __device__ void send(const struct exchange &x, const struct turn &t, uint32_t i, float v)
{
    const uint64_t packet = packet_of(t, v);
    for (uint32_t r = 0; r < x.n_rank; r++)
        if (r != x.rank)
            st_packet(place_of(x, r, x.rank, t.epoch, i), packet);
}

// Waits until `arrived` says so, or nobody is to wait any more: false.
template <typename F>
static __device__ bool await(const struct exchange &x, struct turn *t, uint32_t from, F arrived)
{
    for (uint32_t n = 1; !t->given_up; n++) {
        if (arrived()) {
            if (n > LOOKS)
                x.words->waits_for[x.rank] = 0;
            return true;
        }
        if (n % LOOKS == 0) {
            x.words->waits_for[x.rank] = 1 + from;
            t->given_up = ld_acquire_sys(&x.words->stop) != 0;
        }
    }
    return false;
}

// NaN once nobody is to wait any more.
static __device__ float receive(const struct exchange &x, struct turn *t, uint32_t from, uint32_t i)
{
    const uint64_t *place = place_of(x, x.rank, from, t->epoch, i);
    uint64_t packet = 0;
    return await(x, t, from,
                 [&] {
                     packet = ld_packet(place);
                     return (uint32_t)(packet >> 32) == t->epoch;
                 })
               ? __uint_as_float((uint32_t)packet)
               : __uint_as_float(0x7FC00000u);
}

// Where rank `from` puts the spans of the epoch in the memory of rank `to`, and the words behind
// them: the inbox has both behind its packets.
static __device__ float4 *spans_of(const struct exchange &x, uint32_t to, uint32_t from,
                                   uint32_t epoch)
{
    uint64_t *spans = x.inbox[to] + (size_t)2 * x.n_rank * x.room;
    return reinterpret_cast<float4 *>(spans +
                                      ((size_t)(epoch % 2) * x.n_rank + from) * exchange_eights(x));
}

static __device__ uint64_t *words_of(const struct exchange &x, uint32_t to, uint32_t from,
                                     uint32_t epoch)
{
    uint64_t *words = x.inbox[to] + (size_t)2 * x.n_rank * (x.room + exchange_eights(x));
    return words + ((size_t)(epoch % 2) * x.n_rank + from) * x.n_span;
}

// Called by all threads. The last block makes it the next epoch; 0 is what memory begins as.
static __device__ void end_turn(const struct exchange &x, const struct turn &t)
{
    __syncthreads(); // everybody has read the epoch
    if (threadIdx.x == 0 && atomicAdd(&x.state->n_ended, 1u) == gridDim.x - 1) {
        x.state->n_ended = 0;
        x.state->epoch = t.epoch == UINT32_MAX ? 2 : t.epoch + 1;
    }
}

static __global__ void __launch_bounds__(THREADS)
    sum_ranks_kernel(const struct exchange x, const struct rank_sum s, uint32_t at, uint32_t n)
{
    griddep_launch_dependents();
    griddep_wait();
    if (s.skip && *s.skip)
        return;
    struct turn t = begin_turn(x);
    const float *part = s.part + at;
    for (uint32_t i = t.begin; i < n; i += t.step)
        send(x, t, i, part[i]);
    for (uint32_t i = t.begin; i < n; i += t.step) {
        float sum = 0.0f;
        for (uint32_t r = 0; r < x.n_rank; r++) {
            const float v = r == x.rank ? part[i] : receive(x, &t, r, i);
            sum = r == 0 ? v : sum + v;
        }
        const float v = fmaf(s.scale, sum, s.bias ? s.bias[(at + i) % s.n_cols] : 0.0f);
        s.y[at + i] = s.add ? s.y[at + i] + v : v;
    }
    end_turn(x, t);
}

static __device__ float4 sum_of(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

struct four {
    float4 old, sum;
};

// The same as sum_ranks_kernel, of numbers that the link has to carry. A block takes spans.
static __global__ void __launch_bounds__(SPAN_THREADS)
    sum_spans_kernel(const struct exchange x, const struct rank_sum s, uint32_t at, uint32_t n)
{
    griddep_launch_dependents();
    griddep_wait();
    if (s.skip && *s.skip)
        return;
    struct turn t = begin_turn(x);
    const uint32_t n_span = div_up(n, (uint32_t)EXCHANGE_SPAN);
    const float4 *const part = reinterpret_cast<const float4 *>(s.part + at);
    float4 *const y = reinterpret_cast<float4 *>(s.y + at);
    const auto fours_of = [&](uint32_t span) {
        return min((uint32_t)EXCHANGE_SPAN, n - span * EXCHANGE_SPAN) / 4;
    };
    for (uint32_t span = blockIdx.x; span < n_span; span += gridDim.x) {
        const uint32_t first = span * (EXCHANGE_SPAN / 4);
        for_each_of<AT_ONCE, SPAN_THREADS>(
            threadIdx.x, fours_of(span), [&](uint32_t i) { return part[first + i]; },
            [&](uint32_t i, float4 v) {
                for (uint32_t r = 0; r < x.n_rank; r++)
                    if (r != x.rank)
                        spans_of(x, r, x.rank, t.epoch)[first + i] = v;
            });
        __syncthreads();
        if (threadIdx.x < x.n_rank && threadIdx.x != x.rank) // all of the block's stores before it
            st_packet_release(&words_of(x, threadIdx.x, x.rank, t.epoch)[span], t.epoch);
    }
    for (uint32_t span = blockIdx.x; span < n_span; span += gridDim.x) {
        const uint32_t first = span * (EXCHANGE_SPAN / 4), from = threadIdx.x;
        const bool waits = from < x.n_rank && from != x.rank;
        const auto arrived = [&] {
            return ld_packet_acquire(&words_of(x, x.rank, from, t.epoch)[span]) == t.epoch;
        };
        const bool lost = __syncthreads_count(waits && !await(x, &t, from, arrived)) > 0;
        for_each_of<AT_ONCE, SPAN_THREADS>(
            threadIdx.x, fours_of(span),
            [&](uint32_t i) {
                struct four f = {s.add ? y[first + i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f)};
                for (uint32_t r = 0; r < x.n_rank; r++) {
                    const float4 v = r == x.rank
                                         ? part[first + i]
                                         : __ldcg(&spans_of(x, x.rank, r, t.epoch)[first + i]);
                    f.sum = r == 0 ? v : sum_of(f.sum, v);
                }
                return f;
            },
            [&](uint32_t i, struct four f) {
                float v[4] = {f.sum.x, f.sum.y, f.sum.z, f.sum.w};
                const uint32_t col = s.bias ? (at + 4 * (first + i)) % s.n_cols : 0;
                for (int k = 0; k < 4; k++) {
                    v[k] = fmaf(s.scale, v[k], s.bias ? s.bias[col + k] : 0.0f);
                    v[k] = lost ? __uint_as_float(0x7FC00000u) : v[k];
                }
                const float4 news = make_float4(v[0], v[1], v[2], v[3]);
                y[first + i] = s.add ? sum_of(f.old, news) : news;
            });
    }
    end_turn(x, t);
}

// Every rank sends n numbers, zeros behind its own, so that everybody hears of everybody.
static __global__ void __launch_bounds__(THREADS)
    gather_ranks_kernel(const struct exchange x, const float *part, float *y, uint32_t at,
                        uint32_t n, const uint32_t *skip)
{
    griddep_launch_dependents();
    griddep_wait();
    if (skip && *skip)
        return;
    struct turn t = begin_turn(x);
    const uint32_t n_own = x.head[x.rank + 1] - x.head[x.rank];
    for (uint32_t i = t.begin; i < n; i += t.step)
        send(x, t, i, at + i < n_own ? part[at + i] : 0.0f);
    for (uint32_t i = t.begin; i < n; i += t.step)
        for (uint32_t r = 0; r < x.n_rank; r++) {
            const bool has = at + i < x.head[r + 1] - x.head[r];
            const float v = r != x.rank ? receive(x, &t, r, i) : has ? part[at + i] : 0.0f;
            if (has)
                y[x.head[r] + at + i] = v;
        }
    end_turn(x, t);
}

// A block takes rows: it tells all ranks, this one too, the sum of the squares that it has.
static __global__ void __launch_bounds__(THREADS)
    norm_ranks_kernel(const struct exchange x, const __grid_constant__ struct rank_norm s,
                      uint32_t row0, uint32_t n)
{
    __shared__ float part[THREADS / WARP], scale;
    griddep_launch_dependents();
    griddep_wait();
    if (s.skip && *s.skip)
        return;
    struct turn t = begin_turn(x);
    for (uint32_t i = blockIdx.x; i < n; i += gridDim.x) {
        const auto &of = s.part[i % s.n_part];
        const float *row = of.x + (size_t)(row0 + i / s.n_part) * of.ld;
        float squares = 0.0f;
        for (uint32_t c = threadIdx.x; c < of.n_cols; c += THREADS)
            squares = fmaf(row[c], row[c], squares);
        squares = block_sum(squares, part);
        if (threadIdx.x == 0) {
            send(x, t, i, squares);
            st_packet(place_of(x, x.rank, x.rank, t.epoch, i), packet_of(t, squares));
        }
        __syncthreads();
    }
    for (uint32_t i = blockIdx.x; i < n; i += gridDim.x) {
        const auto &of = s.part[i % s.n_part];
        float *row = of.x + (size_t)(row0 + i / s.n_part) * of.ld;
        if (threadIdx.x == 0) {
            float sum = receive(x, &t, 0, i);
            for (uint32_t r = 1; r < x.n_rank; r++)
                sum += receive(x, &t, r, i);
            scale = 1.0f / sqrtf(of_squares(sum / (float)of.n_whole + s.eps));
        }
        __syncthreads();
        for (uint32_t c = threadIdx.x; c < of.n_cols; c += THREADS)
            row[c] = row[c] * scale * of.w[c];
        __syncthreads();
    }
    end_turn(x, t);
}

// So many blocks, but for no more than the n-th part of the multiprocessors.
static struct launch launch_of(const struct queue *q, const char *name, uint32_t n_block,
                               uint32_t n_thread, uint32_t nth)
{
    const uint32_t n_sm = (uint32_t)q->n_sm;
    return {.name = name,
            .grid = dim3(lesser(n_block, n_sm >= nth ? n_sm / nth : 1u)),
            .block = dim3(n_thread),
            .stream = q->stream,
            .dependent = q->dependent,
            .recorder = q->recorder};
}

static bool is_aligned16(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

bool sum_ranks_launch(const struct queue *q, const struct exchange *x, const struct rank_sum *s,
                      uint32_t n, struct error *err)
{
    struct rank_sum sum = *s;
    sum.scale = scale_or_one(s->scale);
    const uint32_t n_total = n * s->n_cols;
    bool ok = true;
    if (n_total >= x->n_link && s->n_cols % 4 == 0 && is_aligned16(s->part) && is_aligned16(s->y)) {
        const uint32_t room = x->n_span * EXCHANGE_SPAN;
        for (uint32_t at = 0; ok && at < n_total; at += room) {
            const uint32_t now = lesser(n_total - at, room);
            const uint32_t n_span = div_up(now, (uint32_t)EXCHANGE_SPAN);
            ok = launch_kernel(err, launch_of(q, "sum_spans", n_span, SPAN_THREADS, 2),
                               sum_spans_kernel, *x, sum, at, now);
        }
        return ok;
    }
    for (uint32_t at = 0; ok && at < n_total; at += x->room) {
        const uint32_t now = lesser(n_total - at, x->room);
        ok = launch_kernel(err,
                           launch_of(q, "sum_ranks", div_up(now, (uint32_t)THREADS), THREADS, 4),
                           sum_ranks_kernel, *x, sum, at, now);
    }
    return ok;
}

bool norm_ranks_launch(const struct queue *q, const struct exchange *x, const struct rank_norm *s,
                       uint32_t n, struct error *err)
{
    const uint32_t most = x->room / s->n_part;
    bool ok = true;
    for (uint32_t row = 0; ok && row < n; row += most) {
        const uint32_t now = lesser(n - row, most) * s->n_part;
        ok = launch_kernel(err, launch_of(q, "norm_ranks", now, THREADS, 4), norm_ranks_kernel, *x,
                           *s, row, now);
    }
    return ok;
}

bool gather_ranks_launch(const struct queue *q, const struct exchange *x, const float *part,
                         uint32_t n, float *y, const uint32_t *skip, struct error *err)
{
    uint32_t most = 0;
    for (uint32_t r = 0; r < x->n_rank; r++)
        if (x->head[r + 1] - x->head[r] > most)
            most = x->head[r + 1] - x->head[r];
    const uint32_t n_own = x->head[x->rank + 1] - x->head[x->rank];
    bool ok = true;
    for (uint32_t row = 0; ok && row < n; row++)
        for (uint32_t at = 0; ok && at < most; at += x->room) {
            const uint32_t now = lesser(most - at, x->room);
            ok = launch_kernel(
                err, launch_of(q, "gather_ranks", div_up(now, (uint32_t)THREADS), THREADS, 4),
                gather_ranks_kernel, *x, part + (size_t)row * n_own,
                y + (size_t)row * x->head[x->n_rank], at, now, skip);
        }
    return ok;
}
