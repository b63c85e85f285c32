// A conversation's attention in one layer, by the kernels and by loops in double.
#ifndef HOKKU_TESTS_GPU_ATTENTION_CASE_H
#define HOKKU_TESTS_GPU_ATTENTION_CASE_H

#include <functional>

#include "gpu_test.h"

struct shape {
    uint32_t n_head, n_head_kv, head_dim, rope_dim;
    uint32_t n_swa;
    bool halves, norms;
    bool k_q8, v_q8;
    // Magnitudes of queries, keys and values; 0: 2, scaled by nothing.
    double q_size = 0, k_size = 0, v_size = 0;
    double scale = 0; // of the scores; 0: 1 / sqrt(head_dim)
    double softcap = 0;
    double temp_scale = 0;
    uint32_t temp_len = 1;
    bool norm_whole = false, norm_rotated = false, unrotated = false;
    bool norm_heads = false, norm_mean = false; // weights of each head; layer norms
    bool v_norms = false;                       // values, without weights
    bool gated = false;

    uint32_t query_stride() const
    {
        return gated ? 2 * head_dim : head_dim;
    }
};

static double f16(double x)
{
    return quant_f16_to_f32(quant_f32_to_f16((float)x));
}

// What the cache keeps of a head's vector, times scale.
static void round_row(double *v, uint32_t n, bool q8, double scale)
{
    for (uint32_t i = 0; i < n; i++)
        v[i] *= scale;
    for (uint32_t g = 0; g < n; g += 32) {
        uint32_t end = g + 32 < n ? g + 32 : n;
        double top = 0;
        for (uint32_t i = g; i < end; i++)
            top = fmax(top, fabs(v[i]));
        double d = f16(top / 127);
        for (uint32_t i = g; i < end; i++)
            v[i] = !q8 ? f16(v[i]) : d > 0 ? fmin(fmax(nearbyint(v[i] / d), -127), 127) * d : 0;
    }
    for (uint32_t i = 0; i < n; i++)
        v[i] /= scale;
}

// Head h of a row of n_head, which are so far apart, normalised and rotated.
static void prepare(const struct shape &s, const float *row, uint32_t n_head, uint32_t stride,
                    uint32_t h, const float *norm, const float2 *rope, double *out)
{
    const uint32_t n = s.head_dim, n_normed = s.norm_whole ? n_head * n : n;
    const float *src = row + h * stride, *normed = s.norm_whole ? row : src;
    auto normalise = [&](double sum) {
        for (uint32_t i = 0; norm && i < n; i++)
            out[i] *=
                norm[s.norm_whole || s.norm_heads ? h * n + i : i] / sqrt(sum / n_normed + 1e-6);
    };
    auto centre = [&] {
        double mean = 0, squares = 0;
        for (uint32_t i = 0; i < n; i++)
            mean += out[i] / n;
        for (uint32_t i = 0; i < n; i++)
            out[i] -= norm && s.norm_mean ? mean : 0, squares += out[i] * out[i];
        return squares;
    };
    double sum = 0;
    for (uint32_t i = 0; i < n_normed; i++)
        sum += pow(normed[i / n * stride + i % n], 2);
    for (uint32_t i = 0; i < n; i++)
        out[i] = src[i];
    if (!s.norm_rotated)
        normalise(s.norm_whole ? sum : centre());
    for (uint32_t p = 0; rope && !s.unrotated && p < s.rope_dim / 2; p++) {
        uint32_t i = s.halves ? p : 2 * p, j = s.halves ? p + s.rope_dim / 2 : 2 * p + 1;
        double x = out[i], y = out[j];
        out[i] = x * rope[p].x - y * rope[p].y;
        out[j] = x * rope[p].y + y * rope[p].x;
    }
    if (s.norm_rotated)
        normalise(centre());
}

// A conversation of n tokens through the kernels and through the reference.
struct conversation {
    struct shape s;
    uint32_t n, n_q, n_kv, ld_q, n_ctx;
    uint32_t n_together = 1; // rows of a launch of single ones
    std::vector<float> q, k, v, q_norm, k_norm;
    std::vector<float2> rope;
    std::vector<double> ck, cv; // (n, n_head_kv, head_dim) as the cache holds them
    float q_scale, k_scale, v_scale;

    conversation(struct random_stream &r, const struct shape &shape_, uint32_t n_)
        : s(shape_), n(n_)
    {
        n_q = s.n_head * s.head_dim;
        n_kv = s.n_head_kv * s.head_dim;
        ld_q = s.n_head * s.query_stride();
        n_ctx = n + 3;
        q = r.floats((size_t)n * ld_q, s.q_size ? s.q_size : 2.0);
        k = r.floats((size_t)n * n_kv, s.k_size ? s.k_size : 2.0);
        v = r.floats((size_t)n * n_kv, s.v_size ? s.v_size : 2.0);
        q_scale = s.q_size ? half_range(2 * (float)s.q_size) : 1.0f;
        k_scale = s.k_size ? half_range(2 * (float)s.k_size) : 1.0f;
        v_scale = s.v_size ? half_range((float)s.v_size) : 1.0f;
        q_norm = r.floats(s.norm_whole || s.norm_heads ? n_q : s.head_dim, 1.5);
        k_norm = r.floats(s.norm_whole || s.norm_heads ? n_kv : s.head_dim, 1.5);
        for (uint32_t i = 0; i < n * (s.rope_dim / 2); i++) {
            double angle = 10 * r.uniform();
            rope.push_back(make_float2((float)cos(angle), (float)sin(angle)));
        }
        ck.resize((size_t)n * n_kv);
        cv.resize((size_t)n * n_kv);
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t h = 0; h < s.n_head_kv; h++) {
                size_t row = (size_t)i * n_kv, at = row + h * s.head_dim;
                prepare(s, &k[row], s.n_head_kv, s.head_dim, h, s.norms ? k_norm.data() : nullptr,
                        &rope[i * (s.rope_dim / 2)], &ck[at]);
                round_row(&ck[at], s.head_dim, s.k_q8, k_scale);
                prepare(s, &v[row], s.n_head_kv, s.head_dim, h, nullptr, nullptr, &cv[at]);
                double squares = 0;
                for (uint32_t d = 0; d < s.head_dim; d++)
                    squares += cv[at + d] * cv[at + d];
                for (uint32_t d = 0; s.v_norms && d < s.head_dim; d++)
                    cv[at + d] /= sqrt(squares / s.head_dim + 1e-6);
                round_row(&cv[at], s.head_dim, s.v_q8, v_scale);
            }
    }

    void expect(uint32_t i, std::vector<double> &out) const // (n_head * head_dim)
    {
        std::vector<double> qh(s.head_dim), p(i + 1);
        out.assign(n_q, 0.0);
        uint32_t first = s.n_swa && i + 1 > s.n_swa ? i + 1 - s.n_swa : 0;
        for (uint32_t h = 0; h < s.n_head; h++) {
            uint32_t kv = h / (s.n_head / s.n_head_kv);
            const float *row = &q[(size_t)i * ld_q];
            prepare(s, row, s.n_head, s.query_stride(), h, s.norms ? q_norm.data() : nullptr,
                    &rope[i * (s.rope_dim / 2)], qh.data());
            for (double &x : qh)
                x *= 1 + s.temp_scale * log(1.0 + i / s.temp_len);
            double top = -1e300, sum = 0;
            for (uint32_t t = first; t <= i; t++) {
                p[t] = 0;
                for (uint32_t d = 0; d < s.head_dim; d++)
                    p[t] += qh[d] * ck[(size_t)t * n_kv + kv * s.head_dim + d];
                p[t] *= s.scale ? s.scale : 1 / sqrt((double)s.head_dim);
                if (s.softcap)
                    p[t] = s.softcap * tanh(p[t] / s.softcap);
                top = fmax(top, p[t]);
            }
            for (uint32_t t = first; t <= i; t++)
                sum += p[t] = exp(p[t] - top);
            for (uint32_t t = first; t <= i; t++)
                for (uint32_t d = 0; d < s.head_dim; d++)
                    out[h * s.head_dim + d] +=
                        p[t] / sum * cv[(size_t)t * n_kv + kv * s.head_dim + d];
            for (uint32_t d = 0; s.gated && d < s.head_dim; d++)
                out[h * s.head_dim + d] /= 1 + exp(-row[(2 * h + 1) * s.head_dim + d]);
        }
    }
};

// One layer's cache for several sequences, whose blocks lie in it in a random order. Blocks that no
// sequence has are far outside of it.
struct device_cache {
    uint32_t k_row, v_row, n_group, n_slot, max_blocks;
    std::vector<uint32_t> blocks; // (n_slot, max_blocks)
    device_array<uint8_t> k, v;
    device_array<uint16_t> ks, vs;
    device_array<uint32_t> tables;

    static uint32_t row(const struct shape &s, bool q8)
    {
        return (s.head_dim * (q8 ? 1 : 2) + 15) / 16 * 16;
    }
    static size_t rows(const struct shape &s, uint32_t n_slot, uint32_t n_ctx)
    {
        return (size_t)n_slot * kv_blocks(n_ctx) * KV_BLOCK * s.n_head_kv;
    }
    device_cache(const struct shape &s, uint32_t n_slot_, uint32_t n_ctx)
        : k_row(row(s, s.k_q8)), v_row(row(s, s.v_q8)), n_group(kv_groups(s.head_dim)),
          n_slot(n_slot_), max_blocks(kv_blocks(n_ctx) + 1),
          blocks((size_t)n_slot_ * max_blocks, 0x01000000u), k(rows(s, n_slot_, n_ctx) * k_row),
          v(rows(s, n_slot_, n_ctx) * v_row), ks(rows(s, n_slot_, n_ctx) * n_group),
          vs(rows(s, n_slot_, n_ctx) * n_group), tables((size_t)n_slot_ * max_blocks)
    {
        struct random_stream r = {71};
        std::vector<uint32_t> ids;
        for (uint32_t i = 0; i < n_slot * (max_blocks - 1); i++)
            ids.insert(ids.begin() + (long)(r.u64() % (ids.size() + 1)), i);
        for (uint32_t i = 0; i < ids.size(); i++)
            blocks[i / (max_blocks - 1) * max_blocks + i % (max_blocks - 1)] = ids[i];
        tables.put(blocks);
    }
};

// The same on the device, as one of the sequences of a cache.
struct device_conversation {
    const conversation &c;
    struct attention_scratch sizes;
    std::unique_ptr<device_cache> own;
    device_cache &cache;
    uint32_t slot;
    device_array<uint8_t> partial, q_f16;
    device_array<uint32_t> counters;
    device_array<struct seq_row> rows;
    device_array<float> q_norm, k_norm, ones;

    static struct attention_scratch scratch(const conversation &c)
    {
        struct attention_scratch a;
        attention_scratch(Q.n_sm, c.s.n_head, c.s.n_head_kv, c.s.head_dim, c.n, c.n_together, &a);
        struct attention_wide_scratch wide;
        if (c.s.head_dim > ATTENTION_NARROW_HEAD_DIM &&
            attention_wide_scratch(c.s.n_head, c.s.head_dim, c.s.head_dim, false,
                                   c.n_ctx + KV_BLOCK, &wide))
            a.partial = wide.partial;
        const size_t prompt = attention_wide_prompt_bytes(c.s.n_head, c.n);
        if (c.s.head_dim > ATTENTION_NARROW_HEAD_DIM && a.partial < prompt)
            a.partial = prompt;
        return a;
    }
    device_conversation(const conversation &conv, device_cache &in, uint32_t slot_)
        : c(conv), sizes(scratch(conv)), cache(in), slot(slot_), partial(sizes.partial),
          q_f16(sizes.q_f16), counters(sizes.counters / 4), rows(1), q_norm(conv.q_norm),
          k_norm(conv.k_norm), ones(std::vector<float>(conv.s.head_dim, 1.0f))
    {
        counters.put(std::vector<uint32_t>(counters.n, 0));
    }
    // The second of three sequences.
    device_conversation(const conversation &conv, std::unique_ptr<device_cache> mine)
        : device_conversation(conv, *mine, 1)
    {
        own = std::move(mine);
    }
    explicit device_conversation(const conversation &conv)
        : device_conversation(conv, std::make_unique<device_cache>(conv.s, 3, conv.n_ctx))
    {
    }

    // Tokens [at, at + n): the decode kernel for n == 0 (one token), else prefill. What nobody
    // writes to the result is UNTOUCHED. skip: decoding has ended, the kernel is to do nothing.
    static constexpr float UNTOUCHED = 7.0f;
    bool cached = false; // keys and values are there, from an earlier run
    // Where not 0 prefill goes by the kernel of decoding, and rows from `spanned` on share what
    // they read.
    uint32_t spanned = 0;
    struct packed_rows packed = {}; // where results go instead
    bool far = false;               // prefill: as behind a long text
    // before: launches just before; elsewhere: where the kernels find slot and position.
    std::vector<float> run(
        uint32_t at, uint32_t n, bool skip = false, const std::function<void()> &before = [] {},
        const struct seq_row *elsewhere = nullptr)
    {
        uint32_t m = n ? n : 1, pairs = c.s.rope_dim / 2;
        auto part = [&](const std::vector<float> &from, uint32_t width) {
            return std::vector<float>(from.begin() + (size_t)at * width,
                                      from.begin() + (size_t)(at + m) * width);
        };
        device_array<float> dq(part(c.q, c.ld_q)), dk(part(c.k, c.n_kv)), dv(part(c.v, c.n_kv));
        device_array<float> out(std::vector<float>((size_t)m * c.n_q, UNTOUCHED));
        device_array<uint32_t> flag(std::vector<uint32_t>{skip});
        device_array<float2> rope(std::vector<float2>(c.rope.begin() + (size_t)at * pairs,
                                                      c.rope.begin() + (size_t)(at + m) * pairs));
        std::vector<struct seq_row> all;
        for (uint32_t i = 0; i < m; i++)
            all.push_back({slot, at + i});
        device_array<struct seq_row> each(all);
        rows.put(std::vector<struct seq_row>{{slot, at}});
        struct attention a = {};
        a.n_head = a.n_head_out = c.s.n_head;
        a.n_head_kv = c.s.n_head_kv;
        a.head_dim = a.value_dim = c.s.head_dim;
        a.n_swa = c.s.n_swa;
        a.eps = 1e-6f;
        a.q_norm = c.s.norms ? q_norm.p : nullptr;
        a.k_norm = c.s.norms ? k_norm.p : nullptr;
        a.norm_stride = c.s.norms && c.s.norm_heads ? c.s.head_dim : 0;
        a.norm_mean = c.s.norms && c.s.norm_mean;
        a.rope_halves = c.s.halves;
        a.rope_dim = c.s.rope_dim;
        a.norm_whole = c.s.norms && c.s.norm_whole;
        a.norm_rotated = c.s.norms && c.s.norm_rotated;
        a.softcap = (float)c.s.softcap;
        a.temp_scale = (float)c.s.temp_scale;
        a.temp_len = c.s.temp_len;
        a.rope = c.s.unrotated ? nullptr : rope.p;
        a.k = {cache.k.p,     c.s.k_q8 ? cache.ks.p : nullptr,
               cache.k_row,   cache.n_group,
               c.s.n_head_kv, c.k_scale};
        a.v = {cache.v.p,     c.s.v_q8 ? cache.vs.p : nullptr,
               cache.v_row,   cache.n_group,
               c.s.n_head_kv, c.v_scale};
        a.q_scale = c.q_scale * 1.4426950408889634f *
                    (c.s.scale ? (float)c.s.scale : 1.0f / sqrtf((float)c.s.head_dim));
        a.score_undo = 1.0f / (c.q_scale * c.k_scale);
        a.v_undo = 1.0f / c.v_scale;
        a.rows = spanned ? each.p : elsewhere ? elsewhere : rows.p;
        a.together = spanned > 0;
        a.n_split_rows = sizes.n_split_rows;
        a.tables = cache.tables.p;
        a.max_blocks = cache.max_blocks;
        a.q_in = dq.p;
        a.k_in = dk.p;
        a.v_in = dv.p;
        a.gated = c.s.gated;
        a.ld_q = c.ld_q;
        a.ld_kv = c.n_kv;
        a.out = out.p;
        a.packed = packed;
        a.reach = far ? 1u << 20 : at + n;
        a.skip = n ? nullptr : flag.p;
        a.v_norm = c.s.v_norms ? ones.p : nullptr;
        a.cached = cached;
        a.partial = (float *)partial.p;
        a.partial_bytes = sizes.partial;
        a.counters = counters.p;
        a.q_f16 = (__half *)q_f16.p;
        before();
        const struct row_span span = {spanned, n > spanned ? n - spanned : 0};
        must(spanned ? attention_rows_launch(&Q, &a, n, &span, spanned < n, at + n - 1, &ERR)
             : n     ? attention_prefill_launch(&Q, &a, n, &ERR)
                     : attention_decode_launch(&Q, &a, &ERR));
        return out.get();
    }
};

static void compare(const conversation &c, const std::vector<float> &got, uint32_t at, uint32_t n,
                    const char *what)
{
    std::vector<double> want;
    for (uint32_t i = 0; i < n; i++) {
        if (c.n > 1000 && i + 4 < n)
            continue; // the reference is slow: the last few tokens of a long text
        c.expect(at + i, want);
        double off = 0;
        for (uint32_t j = 0; j < c.n_q; j++)
            off = further(off, fabs(got[(size_t)i * c.n_q + j] - want[j]));
        // float16 queries and weights against values up to 2
        check(off <= 3e-3 * (c.s.v_size ? c.s.v_size : 2.0),
              "%s: %u/%u heads of %u%s%s%s%s%s%s%s%s%s%s, position %u: off by %g", what, c.s.n_head,
              c.s.n_head_kv, c.s.head_dim, c.s.k_q8 ? " q8 keys" : "", c.s.v_q8 ? " q8 values" : "",
              c.s.n_swa ? " window" : "", c.s.norms ? " norms" : "",
              c.s.norm_whole ? " of all heads" : "", c.s.norm_rotated ? " after rotation" : "",
              c.s.unrotated ? " unrotated" : "", c.s.softcap ? " softcap" : "",
              c.s.temp_scale ? " temperature" : "", c.s.gated ? " gated" : "", at + i, off);
    }
}

#endif
