// The KV cache in and out of the device, whichever blocks a sequence has; how many recurrent states
// there is room for.
#include "engine_impl.h"
#include "gpu_test.h"

enum {
    N_LAYER = 2,
    N_HEAD = 3,
    N_BLOCK = 9,
    N_POSITION = 5 * KV_BLOCK,
};

// A cache of random bytes: layers of different widths, keys in Q8_0, values in float16.
struct random_cache {
    struct cuda_engine e = {};
    struct gpu_layer layers[N_LAYER] = {};
    std::vector<std::unique_ptr<device_array<uint8_t>>> arrays;
    std::vector<size_t> row_bytes; // of each
    explicit random_cache(uint64_t seed)
    {
        struct random_stream r = {seed};
        auto fill = [&](size_t row) {
            std::vector<uint8_t> bytes((size_t)N_BLOCK * N_HEAD * KV_BLOCK * row);
            for (uint8_t &b : bytes)
                b = (uint8_t)r.u64();
            arrays.push_back(std::make_unique<device_array<uint8_t>>(bytes));
            row_bytes.push_back(row);
            return arrays.back()->p;
        };
        for (uint32_t i = 0; i < N_LAYER; i++) {
            const uint32_t width = 16 * (i + 1), n_group = 2 * (i + 1);
            layers[i].k_cache = {fill(width), NULL, width, n_group, N_HEAD, 1.0f};
            layers[i].k_cache.scales = (uint16_t *)fill(n_group * sizeof(uint16_t));
            layers[i].v_cache = {fill(2 * width), NULL, 2 * width, n_group, N_HEAD, 1.0f};
        }
        e.q = Q;
        e.hp.n_layer = N_LAYER;
        e.layers = layers;
    }
};

// Where a row of the sequence with this table lies, in rows.
static size_t row_at(const std::vector<uint32_t> &table, uint32_t head, size_t position)
{
    return ((size_t)table[position / KV_BLOCK] * N_HEAD + head) * KV_BLOCK + position % KV_BLOCK;
}

static void positions_come_back_in_other_blocks(void)
{
    const std::vector<uint32_t> tables[] = {
        {0, 1, 2, 3, 4},
        {7, 2, 3, 8, 0},
        {4, 3, 2, 1, 0},
    };
    const size_t ranges[][2] = {{0, N_POSITION},
                                {0, 1},
                                {KV_BLOCK - 1, KV_BLOCK + 1},
                                {5, 9},
                                {KV_BLOCK, 3 * KV_BLOCK},
                                {17, N_POSITION - 23}};
    for (const auto &from : tables)
        for (const auto &to : tables)
            for (const auto &range : ranges) {
                random_cache a(1), b(2);
                const size_t n = cuda_kv_bytes(&a.e, false, range[0], range[1]);
                std::vector<uint8_t> host(n + 1, 0x5A);
                std::vector<std::vector<uint8_t>> expected;
                size_t per_position = 0;
                for (size_t i = 0; i < a.arrays.size(); i++) {
                    const size_t row = a.row_bytes[i];
                    std::vector<uint8_t> x = a.arrays[i]->get(), y = b.arrays[i]->get();
                    for (size_t p = range[0]; p < range[1]; p++)
                        for (uint32_t h = 0; h < N_HEAD; h++)
                            memcpy(&y[row_at(to, h, p) * row], &x[row_at(from, h, p) * row], row);
                    expected.push_back(y);
                    per_position += N_HEAD * row;
                }
                check(n == (range[1] - range[0]) * per_position, "%zu bytes of %zu to %zu", n,
                      range[0], range[1]);
                must(cuda_kv_copy(&a.e, from.data(), false, range[0], range[1], host.data(), true,
                                  &ERR));
                must(cuda_kv_copy(&b.e, to.data(), false, range[0], range[1], host.data(), false,
                                  &ERR));
                check(host[n] == 0x5A, "more than was asked for");
                for (size_t i = 0; i < a.arrays.size(); i++)
                    check(b.arrays[i]->get() == expected[i],
                          "positions %zu to %zu, array %zu: not what was there", range[0], range[1],
                          i);
            }
}

// Slots of 65 MB, as Qwen3.5-35B-A3B has them: two for each sequence where there is room.
static void sequences_have_two_states_each(void)
{
    const uint64_t gb = 1000 * 1000 * 1000, few = (UINT64_C(4) << 30) / 65000000;
    std::vector<struct layer> layers(30);
    struct model m = {};
    m.layers = layers.data();
    m.hp.n_layer = (uint32_t)layers.size();
    m.weight_bytes = 21 * gb;
    check(cuda_n_states(&m, 64, 141 * gb) == 0, "states of a model that has none");
    for (struct layer &l : layers) {
        l.mixer = MIXER_DELTA;
        l.delta.n_head = 32;
        l.delta.n_state = 128;
        l.delta.n_conv = 4;
    }
    for (uint32_t n : {33u, 64u, 200u})
        check(cuda_n_states(&m, n, 141 * gb) >= 2 * n + 2, "%u sequences have %u states", n,
              cuda_n_states(&m, n, 141 * gb));
    for (uint64_t bytes : {0 * gb, 12 * gb, 24 * gb}) {
        const uint32_t n = cuda_n_states(&m, 64, bytes);
        check(n >= few && n < few + 5, "%u states where there is no memory for more", n);
    }
    check(cuda_n_states(&m, 1, 141 * gb) <= 18, "one sequence has %u states",
          cuda_n_states(&m, 1, 141 * gb));
}

static const struct tap_test tests[] = {
    {"positions come back in other blocks", positions_come_back_in_other_blocks},
    {"sequences have two states each", sequences_have_two_states_each},
};

int main(void)
{
    return gpu_test_main(tests);
}
