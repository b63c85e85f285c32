// Rows of activations and experts that they choose: grouped, and multiplied on compute capability
// 9.0.
#ifndef HOKKU_TESTS_GPU_EXPERT_CASE_H
#define HOKKU_TESTS_GPU_EXPERT_CASE_H

#include <algorithm>

#include "expert_stack.h"
#include "products.h"

// Which experts n rows choose: any; the first ones, all of them; or the first one and another.
static inline std::vector<uint32_t> choices(struct random_stream &r, uint32_t n, uint32_t n_expert,
                                            uint32_t n_used, int kind)
{
    std::vector<uint32_t> chosen;
    for (uint32_t t = 0; t < n; t++) {
        std::vector<uint32_t> all(n_expert);
        for (uint32_t i = 0; i < n_expert; i++)
            all[i] = i;
        for (uint32_t k = kind == 2 ? 1 : 0; kind != 1 && k < n_used; k++)
            std::swap(all[k], all[k + r.u64() % (n_expert - k)]);
        std::sort(all.begin(), all.begin() + n_used);
        chosen.insert(chosen.end(), all.begin(), all.begin() + n_used);
    }
    return chosen;
}

// A stack as the engine has it for these products, and the size of a typical error of one of them.
struct half_stack : test_stack {
    half_stack(struct random_stream &r, uint32_t type, uint32_t n, uint32_t rows, uint32_t n_cols)
        : test_stack(r, type, n, rows, n_cols)
    {
        float top = 0;
        for (float v : values)
            top = std::max(top, fabsf(v));
        w.half_scale = w.type == QUANT_F16 ? 1.0f : half_range(top);
    }
    double error_of(uint32_t i, uint32_t row, double top) const
    {
        const float *v = &values[((size_t)i * w.rows + row) * w.n_cols];
        double squares = 0;
        for (uint32_t k = 0; k < w.n_cols; k++)
            squares += (double)v[k] * v[k];
        return HALF_TOLERANCE * sqrt(squares) * top + 1e-6;
    }
};

// Rows and the experts that they choose.
struct grouped_rows {
    uint32_t n, n_expert, n_used, n_pair;
    std::vector<uint32_t> chosen; // (n_pair)
    device_array<uint32_t> dc, place, pair_at, rank, n_item;
    struct few_pack few = {}; // beside that
    uint32_t *top = nullptr;

    grouped_rows(const std::vector<uint32_t> &chosen_, uint32_t n_expert_, uint32_t n_used_)
        : n((uint32_t)chosen_.size() / n_used_), n_expert(n_expert_), n_used(n_used_),
          n_pair((uint32_t)chosen_.size()), chosen(chosen_), dc(chosen), place(n_pair),
          pair_at(n_pair), rank(n_pair), n_item(1)
    {
    }
    // The first n_row rows, in items of at most per_item.
    void group(const device_array<struct expert_item> &items, uint32_t n_row, uint32_t per_item)
    {
        const struct grouping g = {dc.p,     place.p,        pair_at.p, rank.p,  items.p, n_item.p,
                                   n_expert, n_row * n_used, per_item,  nullptr, few,     top};
        must(group_launch(&Q, &g, &ERR));
    }
    // Their results (rows), by pair instead of by place.
    std::vector<float> by_pair(const std::vector<float> &by_place, uint32_t n_row, uint32_t rows)
    {
        const std::vector<uint32_t> places = place.get();
        std::vector<float> out;
        for (uint32_t i = 0; i < n_row * n_used; i++)
            out.insert(out.end(), &by_place[(size_t)places[i] * rows],
                       &by_place[(size_t)places[i] * rows] + rows);
        return out;
    }
};

// Of the largest of x, in its place among the bits of a number.
static inline uint32_t exponent_of(const float *x, uint32_t n)
{
    float top = 0;
    for (uint32_t i = 0; i < n; i++)
        top = std::max(top, fabsf(x[i]));
    uint32_t bits;
    memcpy(&bits, &top, sizeof bits);
    return bits & 0xFFu << 23;
}

static inline std::vector<float> values_of(const float *device, size_t n)
{
    std::vector<float> v(n);
    must(CHECK_CUDA(
        cudaMemcpyAsync(v.data(), device, n * sizeof v[0], cudaMemcpyDeviceToHost, Q.stream),
        &ERR));
    must(CHECK_CUDA(cudaStreamSynchronize(Q.stream), &ERR));
    return v;
}

struct hopper_case : grouped_rows {
    using grouped_rows::grouped_rows;
    hopper_case(struct random_stream &r, uint32_t n_, uint32_t n_expert_, uint32_t n_used_,
                int kind)
        : grouped_rows(choices(r, n_, n_expert_, n_used_, kind), n_expert_, n_used_)
    {
    }
    // What launch() gives of the first n_row rows, grouped, by pair.
    template <typename F>
    std::vector<float> by_items(uint32_t per_item, uint32_t n_row, struct expert_gemm m, F launch)
    {
        const uint32_t n_here = n_row * n_used, rows = m.w[0].rows;
        m.n_slot = expert_items(n_expert, n_here, per_item);
        device_array<struct expert_item> items(m.n_slot);
        device_array<float> y((size_t)n_here * rows);
        y.spoil();
        group(items, n_row, per_item);
        m.y = y.p;
        m.items = items.p;
        m.n_item = n_item.p;
        m.n_place = n_here;
        m.per_item = per_item;
        launch(m);
        return by_pair(y.get(), n_row, rows);
    }
    // The first n_row rows of x with the matrices of their experts, by pair.
    std::vector<float> run(uint32_t per_item, uint32_t n_row, struct expert_pack p,
                           const struct expert_gemm &gemm)
    {
        const uint32_t n_here = n_row * n_used;
        device_array<__half> packed(expert_pack_bytes(n_here, p.n_cols) / 2);
        device_array<float> undo(n_here);
        packed.spoil();
        p.place = place.p;
        p.rank = rank.p;
        p.n_used = p.by_place ? 1 : n_used;
        p.n_place = n_here;
        p.out = packed.p;
        p.undo = undo.p;
        return by_items(per_item, n_row, gemm, [&](struct expert_gemm m) {
            must(expert_pack_launch(&Q, &p, p.by_place ? n_here : n_row, &ERR));
            m.x = packed.p;
            m.undo = undo.p;
            must(expert_hopper_launch(&Q, &m, &ERR));
        });
    }
    // The same by expert_few.cu, of rows that need no norm: of floats, or ready, made while they
    // were grouped, or where they are by place, with the largest of each.
    std::vector<float> run_few(uint32_t n_row, const struct expert_pack &p,
                               const struct expert_gemm &gemm, bool ready = false)
    {
        device_array<__half> halves(expert_pack_bytes(n_row, p.n_cols) / 2);
        device_array<float> undo(n_row);
        device_array<uint32_t> tops(n_row * n_used);
        halves.spoil();
        tops.spoil();
        top = tops.p;
        few = {};
        if (ready && !p.by_place)
            few = {p.x, n_row, p.ld ? p.ld : p.n_cols, p.n_cols, halves.p, undo.p};
        const std::vector<float> got = by_items(n_row, n_row, gemm, [&](struct expert_gemm m) {
            m.rows = few.x ? nullptr : p.x;
            m.x = few.x ? halves.p : nullptr;
            m.undo = undo.p;
            m.ld = p.ld ? p.ld : p.n_cols;
            m.pair_at = p.by_place ? nullptr : pair_at.p;
            m.n_used = n_used;
            m.weight = p.weight;
            m.y_top = m.gated ? tops.p : nullptr;
            if (ready && p.by_place) {
                const std::vector<float> x = values_of(p.x, (size_t)m.n_place * m.ld);
                std::vector<uint32_t> of;
                for (uint32_t i = 0; i < m.n_place; i++)
                    of.push_back(exponent_of(&x[(size_t)i * m.ld], p.n_cols));
                tops.put(of);
                m.top = tops.p;
            }
            must(expert_few_launch(&Q, &m, &ERR));
        });
        const std::vector<uint32_t> places = place.get(), found = tops.get();
        for (uint32_t i = 0; gemm.gated && i < n_row * n_used; i++)
            check(found[places[i]] == exponent_of(&got[(size_t)i * gemm.w[0].rows], gemm.w[0].rows),
                  "another exponent of pair %u", i);
        few = {};
        top = nullptr;
        return got;
    }
};

#endif
