// What ranks exchange: sums in the order of ranks, the same bits on all of them, and the parts of a
// row of logits. As many devices as there are, up to three; with one, two ranks are on it, each
// with a stream of its own.
#include "base/clock.h"
#include "gpu_test.h"

static int n_device;

// Ranks beside each other, with memory of their own.
struct ranks_on_devices {
    uint32_t n;
    std::vector<cudaStream_t> streams;
    std::vector<struct queue> queues;
    std::vector<struct exchange> exchanges;
    std::vector<void *> memory;
    struct exchange_words *words = nullptr;

    int device_of(uint32_t rank) const
    {
        return (int)rank % n_device;
    }
    void on(uint32_t rank) const
    {
        must(CHECK_CUDA(cudaSetDevice(device_of(rank)), &ERR));
    }
    template <typename T> T *take(uint32_t rank, size_t count)
    {
        T *p = nullptr;
        on(rank);
        must(CHECK_CUDA(cudaMalloc(&p, count * sizeof *p), &ERR));
        memory.push_back(p);
        return p;
    }
    template <typename T> T *up(uint32_t rank, const std::vector<T> &v)
    {
        T *p = take<T>(rank, v.size());
        must(CHECK_CUDA(cudaMemcpyAsync(p, v.data(), v.size() * sizeof *p, cudaMemcpyHostToDevice,
                                        streams[rank]),
                        &ERR));
        return p;
    }
    template <typename T> std::vector<T> down(uint32_t rank, const T *p, size_t count)
    {
        std::vector<T> v(count);
        on(rank);
        must(CHECK_CUDA(cudaStreamSynchronize(streams[rank]), &ERR));
        must(CHECK_CUDA(cudaMemcpy(v.data(), p, count * sizeof *p, cudaMemcpyDeviceToHost), &ERR));
        return v;
    }
    void wait()
    {
        for (uint32_t r = 0; r < n; r++) {
            on(r);
            must(CHECK_CUDA(cudaStreamSynchronize(streams[r]), &ERR));
        }
    }
    // Of each inbox `room` packets; n_span: spans, and then all sums go in these.
    ranks_on_devices(uint32_t n_rank, uint32_t room, uint32_t epoch, uint32_t n_span = 0)
        : n(n_rank)
    {
        must(CHECK_CUDA(cudaMallocHost(&words, sizeof *words), &ERR));
        *words = {};
        for (uint32_t r = 0; r < n; r++) {
            on(r);
            for (int d = 0; d < n_device; d++)
                if (d != device_of(r))
                    (void)cudaDeviceEnablePeerAccess(d, 0); // or it is already
            (void)cudaGetLastError();
            struct queue q = Q;
            must(CHECK_CUDA(cudaStreamCreateWithFlags(&q.stream, cudaStreamNonBlocking), &ERR));
            streams.push_back(q.stream);
            queues.push_back(q);
            struct exchange x = {};
            x.rank = r;
            x.n_rank = n;
            x.room = room;
            x.n_span = n_span;
            x.n_link = n_span ? 1 : UINT32_MAX;
            x.words = words;
            x.state = up(r, std::vector<exchange_state>{{epoch, 0}});
            exchanges.push_back(x);
        }
        std::vector<uint64_t *> inboxes;
        for (uint32_t r = 0; r < n; r++)
            inboxes.push_back(up(r, std::vector<uint64_t>(exchange_inbox(exchanges[r]), 0)));
        for (uint32_t r = 0; r < n; r++)
            memcpy(exchanges[r].inbox, inboxes.data(), n * sizeof(uint64_t *));
        wait();
    }
    ~ranks_on_devices()
    {
        wait();
        for (uint32_t r = 0; r < n; r++) {
            on(r);
            cudaStreamDestroy(streams[r]);
        }
        for (void *p : memory)
            cudaFree(p);
        cudaFreeHost(words);
        cudaSetDevice(0);
    }
};

// Of numbers that lose others when they are added: any other order gives another sum.
static float part_of(uint32_t rank, uint32_t i)
{
    static const float parts[] = {3e8f, -3e8f, 7.0f};
    return parts[(rank + i) % 3] + (float)(i % 7);
}

static float sum_of(uint32_t n_rank, uint32_t i)
{
    volatile float sum = part_of(0, i);
    for (uint32_t r = 1; r < n_rank; r++)
        sum = sum + part_of(r, i);
    return sum;
}

struct sum_case {
    uint32_t n_rank, n_cols, rows, room, epoch;
    bool add, bias;
    float scale;
    uint32_t n_span;
};

static void check_sums(const struct sum_case &c)
{
    enum { N_TURN = 5 };
    ranks_on_devices ranks(c.n_rank, c.room, c.epoch, c.n_span);
    const uint32_t total = c.n_cols * c.rows;
    std::vector<float> before(total, 100.0f), bias(c.n_cols);
    std::vector<float *> y;
    std::vector<uint32_t *> skips;
    for (uint32_t i = 0; i < c.n_cols; i++)
        bias[i] = 0.5f * (float)i;
    std::vector<struct rank_sum> sums;
    for (uint32_t r = 0; r < c.n_rank; r++) {
        std::vector<float> part(total);
        for (uint32_t i = 0; i < total; i++)
            part[i] = part_of(r, i);
        struct rank_sum s = {};
        s.part = ranks.up(r, part);
        s.bias = c.bias ? ranks.up(r, bias) : NULL;
        s.scale = c.scale;
        s.add = c.add;
        s.n_cols = c.n_cols;
        y.push_back(s.y = ranks.up(r, before));
        skips.push_back(ranks.up(r, std::vector<uint32_t>{1}));
        sums.push_back(s);
    }
    ranks.wait();
    for (int turn = 0; turn < N_TURN; turn++) // the same slots again and again
        for (uint32_t r = 0; r < c.n_rank; r++) {
            ranks.on(r);
            struct rank_sum skipped = sums[r];
            skipped.skip = skips[r];
            must(sum_ranks_launch(&ranks.queues[r], &ranks.exchanges[r], &sums[r], c.rows, &ERR) &&
                 sum_ranks_launch(&ranks.queues[r], &ranks.exchanges[r], &skipped, c.rows, &ERR));
        }
    for (uint32_t r = 0; r < c.n_rank; r++) {
        const std::vector<float> got = ranks.down(r, y[r], total);
        for (uint32_t i = 0; i < total; i++) {
            float want = c.add ? before[i] : 0.0f;
            for (int turn = 0; turn < N_TURN; turn++) {
                const float v = fmaf(c.scale != 0.0f ? c.scale : 1.0f, sum_of(c.n_rank, i),
                                     c.bias ? bias[i % c.n_cols] : 0.0f);
                want = c.add ? want + v : v;
            }
            check(got[i] == want, "%u ranks, %u x %u: rank %u has %g at %u, expected %g", c.n_rank,
                  c.rows, c.n_cols, r, (double)got[i], i, (double)want);
        }
    }
}

static void sums_are_in_the_order_of_ranks(void)
{
    const struct sum_case cases[] = {
        {2, 48, 1, 300, 1, true, false, 0.0f},
        {2, 48, 1, 300, 2, false, true, 0.0f},
        {3, 48, 1, 300, 1, true, true, 0.25f},
        {3, 100, 7, 300, 1, true, true, 0.5f},
        {3, 301, 2, 300, 7, false, false, 0.0f},
        {2, 700, 1, 700, 1, true, false, 0.0f},
        {3, 64, 1, 64, UINT32_MAX - 4, true, true, 0.0f}, // epochs begin again
        // in spans: a part of one, several launches, more than there are blocks; rows whose ends
        // are no span's; and what cannot go in them
        {2, 12, 1, 4, 1, true, false, 0.0f, 1},
        {3, 4 * EXCHANGE_SPAN + 8, 3, 4, 1, true, true, 0.25f, 2},
        {2, EXCHANGE_SPAN, 300, 4, 1, false, true, 0.5f, 290},
        {3, 52, 31, 4, UINT32_MAX - 4, true, true, 0.0f, 7},
        {3, 51, 4, 300, 1, true, true, 0.0f, 3},
    };
    for (const struct sum_case &c : cases)
        check_sums(c);
}

// Parts of 1 to 40 numbers; as the head's rows are cut.
static void logits_are_put_together_on_all(void)
{
    static const uint32_t cuts[][4] = {{0, 40, 41, 50}, {0, 16, 32, 48}, {0, 8, 16, 47}};
    enum { ROWS = 3, TURNS = 4 };
    for (uint32_t n = 2; n <= 3; n++)
        for (const auto &cut : cuts) {
            ranks_on_devices ranks(n, 13, 1);
            std::vector<float *> y, parts;
            const uint32_t width = cut[n];
            for (uint32_t r = 0; r < n; r++) {
                const uint32_t own = cut[r + 1] - cut[r];
                std::vector<float> part(ROWS * own);
                for (uint32_t i = 0; i < ROWS * own; i++)
                    part[i] = (float)(1000 * (i / own) + cut[r] + i % own);
                memcpy(ranks.exchanges[r].head, cut, (n + 1) * sizeof *cut);
                parts.push_back(ranks.up(r, part));
                y.push_back(ranks.up(r, std::vector<float>(ROWS * width, -1.0f)));
            }
            ranks.wait();
            for (int turn = 0; turn < TURNS; turn++)
                for (uint32_t r = 0; r < n; r++) {
                    ranks.on(r);
                    must(gather_ranks_launch(&ranks.queues[r], &ranks.exchanges[r], parts[r], ROWS,
                                             y[r], NULL, &ERR));
                }
            for (uint32_t r = 0; r < n; r++) {
                const std::vector<float> got = ranks.down(r, y[r], ROWS * width);
                for (uint32_t i = 0; i < ROWS * width; i++)
                    check(got[i] == (float)(1000 * (i / width) + i % width),
                          "rank %u of %u: %g at %u", r, n, (double)got[i], i);
            }
        }
}

// Rows of two kinds, of which each rank has another part: normed over all of them, to about the
// bits of a sum of doubles, and to the same factor everywhere.
static void norms_are_over_what_all_ranks_have(void)
{
    enum { ROWS = 9, WIDTH = 260, LD = 300 };
    const float eps = 1e-5f;
    for (uint32_t n = 2; n <= 3; n++) {
        ranks_on_devices ranks(n, 8, 1); // four rows at a time
        std::vector<float *> x[2];
        const uint32_t widths[] = {WIDTH, 7};
        for (uint32_t r = 0; r < n; r++)
            for (int p = 0; p < 2; p++) {
                std::vector<float> rows(ROWS * LD, 1e9f); // between rows nobody looks
                for (uint32_t i = 0; i < ROWS; i++)
                    for (uint32_t c = 0; c < widths[p] - r; c++)
                        rows[i * LD + c] = (float)((i + 3 * c + 5 * r + p) % 17) - 8.0f;
                x[p].push_back(ranks.up(r, rows));
            }
        std::vector<struct rank_norm> norms;
        std::vector<float> w(WIDTH);
        for (uint32_t c = 0; c < WIDTH; c++)
            w[c] = 0.5f + (float)(c % 5);
        uint32_t n_whole[2] = {};
        for (int p = 0; p < 2; p++)
            for (uint32_t r = 0; r < n; r++)
                n_whole[p] += widths[p] - r;
        for (uint32_t r = 0; r < n; r++) {
            struct rank_norm s = {};
            const float *weights = ranks.up(r, w);
            for (uint32_t p = 0; p < 2; p++)
                s.part[p] = {x[p][r], weights, LD, widths[p] - r, n_whole[p]};
            s.n_part = 2;
            s.eps = eps;
            norms.push_back(s);
        }
        ranks.wait();
        for (uint32_t r = 0; r < n; r++) {
            ranks.on(r);
            must(norm_ranks_launch(&ranks.queues[r], &ranks.exchanges[r], &norms[r], ROWS, &ERR));
        }
        for (int p = 0; p < 2; p++)
            for (uint32_t i = 0; i < ROWS; i++) {
                double squares = 0;
                for (uint32_t r = 0; r < n; r++)
                    for (uint32_t c = 0; c < widths[p] - r; c++) {
                        const double v = (double)((i + 3 * c + 5 * r + p) % 17) - 8.0;
                        squares += v * v;
                    }
                const double factor = 1.0 / sqrt(squares / n_whole[p] + (double)eps);
                for (uint32_t r = 0; r < n; r++) {
                    const std::vector<float> got = ranks.down(r, x[p][r], ROWS * LD);
                    for (uint32_t c = 0; c < LD; c++) {
                        const double v = (double)((i + 3 * c + 5 * r + p) % 17) - 8.0;
                        const double want = c < widths[p] - r ? v * factor * (double)w[c] : 1e9;
                        check(fabs((double)got[i * LD + c] - want) <= 1e-6 * fabs(want) + 1e-12,
                              "rank %u of %u: %g at %u of row %u, expected %g", r, n,
                              (double)got[i * LD + c], c, i, want);
                    }
                }
            }
    }
}

// One rank never sends: the others end once they are told to.
static void wait_in_vain(uint32_t n_span)
{
    ranks_on_devices ranks(3, 300, 1, n_span);
    for (uint32_t r = 0; r < 2; r++) {
        struct rank_sum s = {};
        s.part = ranks.up(r, std::vector<float>(64, 1.0f));
        s.y = ranks.up(r, std::vector<float>(64, 0.0f));
        s.n_cols = 64;
        ranks.on(r);
        must(sum_ranks_launch(&ranks.queues[r], &ranks.exchanges[r], &s, 1, &ERR));
        check(cudaStreamQuery(ranks.streams[r]) == cudaErrorNotReady, "rank %u does not wait", r);
    }
    // It looks for a while before it tells; and for rank 0 it may wait as long, which comes.
    const double begin = clock_now();
    while (host_load_acquire(&ranks.words->waits_for[1]) != 3 && clock_now() - begin < 60)
        cudaStreamQuery(ranks.streams[1]); // on the emulation it goes on meanwhile
    check(ranks.words->waits_for[1] == 3, "rank 1 waits for %u", ranks.words->waits_for[1]);
    host_store_release(&ranks.words->stop, 1);
    ranks.wait();
}

static void who_waits_in_vain_can_be_told(void)
{
    wait_in_vain(0);
    wait_in_vain(4);
}

// What a span has are numbers, never epochs: with those that look like the next ones nobody takes
// what has not arrived.
static void numbers_are_not_taken_for_epochs(void)
{
    enum { N = 2 * EXCHANGE_SPAN, TURNS = 6 };
    ranks_on_devices ranks(2, 64, 1, 2);
    std::vector<float> part(N);
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t bits = 1 + i % (2 * TURNS);
        memcpy(&part[i], &bits, sizeof bits);
    }
    float *y[2], *parts[2];
    for (uint32_t r = 0; r < 2; r++) {
        parts[r] = ranks.up(r, part);
        y[r] = ranks.up(r, std::vector<float>(N, 0.0f));
    }
    ranks.wait();
    for (int turn = 0; turn < TURNS; turn++) // of a span and of packets by turns
        for (uint32_t r = 0; r < 2; r++) {
            struct rank_sum s = {};
            s.part = parts[r];
            s.y = y[r];
            s.n_cols = turn % 2 ? 7 : N;
            ranks.on(r);
            must(sum_ranks_launch(&ranks.queues[r], &ranks.exchanges[r], &s, 1, &ERR));
        }
    for (uint32_t r = 0; r < 2; r++) {
        const std::vector<float> got = ranks.down(r, y[r], N);
        for (uint32_t i = 0; i < N; i++)
            check(got[i] == part[i] + part[i], "rank %u has %g at %u", r, (double)got[i], i);
    }
}

int main(void)
{
    static const tap_test tests[] = {
        {"sums are in the order of ranks", sums_are_in_the_order_of_ranks},
        {"logits are put together on all", logits_are_put_together_on_all},
        {"norms are over what all ranks have", norms_are_over_what_all_ranks_have},
        {"who waits in vain can be told", who_waits_in_vain_can_be_told},
        {"numbers are not taken for epochs", numbers_are_not_taken_for_epochs},
    };
    setenv("HOKKU_EMU_DEVICES", "3", 1);
    if (cudaGetDeviceCount(&n_device) != cudaSuccess)
        n_device = 0;
    n_device = n_device > 3 ? 3 : n_device;
    return gpu_test_main(tests);
}
