// Attention over the cache, prefill and decode, against softmax(q k^T / sqrt(d)) v in double.
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
    bool v_norms = false; // values, without weights
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
            out[i] *= norm[s.norm_whole ? h * n + i : i] / sqrt(sum / n_normed + 1e-6);
    };
    double sum = 0;
    for (uint32_t i = 0; i < n_normed; i++)
        sum += pow(normed[i / n * stride + i % n], 2);
    for (uint32_t i = 0; i < n; i++)
        out[i] = src[i];
    if (!s.norm_rotated)
        normalise(sum);
    for (uint32_t p = 0; rope && !s.unrotated && p < s.rope_dim / 2; p++) {
        uint32_t i = s.halves ? p : 2 * p, j = s.halves ? p + s.rope_dim / 2 : 2 * p + 1;
        double x = out[i], y = out[j];
        out[i] = x * rope[p].x - y * rope[p].y;
        out[j] = x * rope[p].y + y * rope[p].x;
    }
    sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += out[i] * out[i];
    if (s.norm_rotated)
        normalise(sum);
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
        q_norm = r.floats(s.norm_whole ? n_q : s.head_dim, 1.5);
        k_norm = r.floats(s.norm_whole ? n_kv : s.head_dim, 1.5);
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
        a.n_head = c.s.n_head;
        a.n_head_kv = c.s.n_head_kv;
        a.head_dim = c.s.head_dim;
        a.n_swa = c.s.n_swa;
        a.eps = 1e-6f;
        a.q_norm = c.s.norms ? q_norm.p : nullptr;
        a.k_norm = c.s.norms ? k_norm.p : nullptr;
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
        for (uint32_t j = 0; j < c.n_q; j++) {
            double d = fabs(got[(size_t)i * c.n_q + j] - want[j]);
            if (!(d <= off))
                off = d;
        }
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

static const struct shape shapes[] = {
    {1, 1, 8, 8, 0, false, false, false, false},    {4, 2, 64, 64, 0, true, false, false, false},
    {7, 1, 64, 64, 0, true, false, false, false},   {8, 1, 128, 128, 0, true, true, false, false},
    {6, 2, 80, 40, 0, true, false, false, false},   {3, 3, 96, 96, 0, false, false, false, false},
    {2, 1, 256, 256, 0, true, false, false, false}, {20, 1, 20, 20, 0, false, false, false, false},
    {4, 4, 64, 64, 7, true, false, false, false},   {5, 1, 64, 64, 70, true, false, true, true},
    {2, 1, 80, 80, 0, false, true, true, false},    {4, 1, 128, 64, 0, true, false, false, true},
    {3, 1, 8, 8, 0, false, false, true, true},      {64, 8, 16, 16, 0, true, false, true, true},
    {2, 1, 192, 96, 0, true, true, false, false},
};

static struct shape changed(struct shape s, void (*change)(struct shape &))
{
    change(s);
    return s;
}

// What some models do to queries and scores, one by one and together.
static const struct shape special_shapes[] = {
    changed(shapes[1], [](struct shape &s) { s.scale = 0.5; }),
    changed(shapes[1], [](struct shape &s) { s.softcap = 1.5; }),
    changed(shapes[6], [](struct shape &s) { s.softcap = 2, s.n_swa = 40, s.scale = 0.02; }),
    changed(shapes[3], [](struct shape &s) { s.softcap = 3, s.k_q8 = s.v_q8 = true; }),
    changed(shapes[5], [](struct shape &s) { s.softcap = 0.5, s.unrotated = true; }),
    changed(shapes[4], [](struct shape &s) { s.unrotated = true; }),
    changed(shapes[1], [](struct shape &s) { s.norms = s.norm_whole = true; }),
    changed(shapes[4], [](struct shape &s) { s.norms = s.norm_whole = true; }),
    changed(shapes[7], [](struct shape &s) { s.norms = s.norm_whole = s.unrotated = true; }),
    changed(shapes[3], [](struct shape &s) { s.norm_rotated = true; }),
    changed(shapes[10], [](struct shape &s) { s.norm_rotated = true; }),
    changed(shapes[1], [](struct shape &s) { s.temp_scale = 0.7, s.temp_len = 9; }),
    changed(shapes[14], [](struct shape &s) { s.temp_scale = 0.3, s.softcap = 1, s.n_swa = 50; }),
    changed(shapes[1], [](struct shape &s) { s.v_norms = true; }),
    changed(shapes[9], [](struct shape &s) { s.v_norms = s.norms = true; }),
    changed(shapes[6], [](struct shape &s) { s.gated = s.norms = true; }),
    changed(shapes[7], [](struct shape &s) { s.gated = s.norms = s.norm_whole = true; }),
};

// A prompt in one chunk, in two, then tokens one by one. Quickly: every other shape, at the next
// length the others.
static void attention_agrees(uint32_t n_prompt, uint32_t split)
{
    static unsigned n_lengths;
    struct random_stream r = {31 + n_prompt};
    unsigned left_out = n_lengths++ % 2;
    for (const struct shape &s : shapes) {
        if (left_out++ % 2 && quick())
            continue;
        conversation c(r, s, n_prompt + 2);
        device_conversation d(c);
        if (split)
            compare(c, d.run(0, split), 0, split, "first chunk");
        compare(c, d.run(split, n_prompt - split), split, n_prompt - split, "prefill");
        compare(c, d.run(n_prompt, 0), n_prompt, 1, "decode");
        compare(c, d.run(n_prompt + 1, 0), n_prompt + 1, 1, "decode");
    }
}

static void attention_agrees_for_what_some_models_do(void)
{
    struct random_stream r = {37};
    for (const struct shape &s : special_shapes) {
        const uint32_t n = 300, n_first = 170; // several blocks share the last token
        conversation c(r, s, n + 1);
        device_conversation d(c);
        compare(c, d.run(0, n_first), 0, n_first, "first chunk");
        compare(c, d.run(n_first, n - n_first), n_first, n - n_first, "prefill");
        compare(c, d.run(n, 0), n, 1, "decode");
        device_conversation one_by_one(c);
        for (uint32_t i = 0; i < 3; i++)
            compare(c, one_by_one.run(i, 0), i, 1, "decode");
    }
}

// Heads for which attention_wide.cu is there; the last sees positions of several splits.
static const struct shape wide_shapes[] = {
    {2, 1, 512, 512, 0, true, true, false, false},
    {3, 3, 260, 64, 0, false, false, false, false},
    {17, 1, 400, 400, 0, true, false, true, true},
    changed({4, 2, 512, 128, 200, true, true, false, true},
            [](struct shape &s) { s.gated = s.v_norms = true, s.softcap = 2, s.scale = 0.1; }),
    changed(
        {2, 1, 288, 288, 40, true, false, false, false},
        [](struct shape &s) { s.norms = s.norm_whole = true, s.temp_scale = 0.4, s.temp_len = 9; }),
};

// Whatever is beside a row, and however its splits are shared out, it gets the same bits.
static void wide_heads_agree_and_do_not_depend_on_chunks(void)
{
    struct random_stream r = {39};
    for (const struct shape &s : wide_shapes) {
        const uint32_t n = full_size() ? 530 : 262;
        conversation c(r, s, n);
        device_conversation whole(c), cut(c);
        const std::vector<float> want = whole.run(0, n);
        for (uint32_t i : {0u, 31u, 255u, 256u, n - 1}) // the reference is slow
            compare(c,
                    std::vector<float>(want.begin() + (size_t)i * c.n_q,
                                       want.begin() + (size_t)(i + 1) * c.n_q),
                    i, 1, "wide");
        if (quick() && (&s - wide_shapes) % 2 == 0)
            continue;
        for (uint32_t at = 0, k = 0; at < n; k++) {
            static const uint32_t sizes[] = {0, 7, 245, 0, 1, 64, 0, 180, 0, 33};
            const uint32_t size = lesser(sizes[k % 10], n - at), m = size ? size : 1;
            const std::vector<float> got = cut.run(at, size);
            check(std::equal(got.begin(), got.end(), want.begin() + (size_t)at * c.n_q),
                  "heads of %u, %u tokens at %u: other bits than in one chunk", s.head_dim, m, at);
            at += m;
        }
    }
}

// A layer that attends with the keys and values of an earlier one leaves them as they are.
static void attention_with_what_is_cached_agrees(void)
{
    struct random_stream r = {40};
    for (const struct shape &s : {shapes[1], shapes[9], wide_shapes[2]}) {
        const uint32_t n = 262;
        conversation c(r, s, n);
        device_conversation d(c);
        d.run(0, n);
        for (float &v : c.k) // which nobody is to read
            v = NAN;
        const std::vector<uint8_t> k = d.cache.k.get(), v = d.cache.v.get();
        d.cached = true;
        compare(c, d.run(0, 5), 0, 5, "prefill with what is cached");
        compare(c, d.run(255, n - 255), 255, n - 255, "prefill with what is cached");
        for (uint32_t i : {0u, 15u, 16u, 200u, n - 1})
            compare(c, d.run(i, 0), i, 1, "decode with what is cached");
        check(d.cache.k.get() == k && d.cache.v.get() == v, "the cache was written");
    }
}

static void attention_agrees_from_the_first_token(void)
{
    struct random_stream r = {30};
    for (const struct shape &s : shapes) {
        conversation c(r, s, 3);
        device_conversation d(c);
        for (uint32_t i = 0; i < 3; i++)
            compare(c, d.run(i, 0), i, 1, "decode");
    }
}

static void attention_agrees_at_a_tile_s_edge(void)
{
    attention_agrees(31, 0);
    attention_agrees(33, 2);
}

static void attention_agrees_at_a_block_s_edge(void)
{
    attention_agrees(63, 0);
    attention_agrees(130, 127);
}

static void attention_agrees_over_several_blocks(void)
{
    attention_agrees(full_size() ? 1000 : 200, 129);
}

static void attention_agrees_for_a_short_prompt_after_a_long_text(void)
{
    attention_agrees(full_size() ? 3000 : 335, full_size() ? 2970 : 325);
}

static void attention_agrees_over_long_contexts(void)
{
    if (full_size()) {
        attention_agrees(4095, 1023);
        attention_agrees(32768, 32000);
    }
}

// Magnitudes that float16 does not hold: only the product of queries and keys is an ordinary one.
static void attention_agrees_for_any_magnitude(void)
{
    struct random_stream r = {35};
    for (struct shape s :
         {shapes[1], shapes[5], shapes[6], shapes[9], shapes[11], special_shapes[2]})
        for (double size : {1e-6, 1e5, 1e9}) {
            if (quick() && size == 1e5)
                continue;
            s.norms = false;
            s.k_size = size;
            s.q_size = 4 / size;
            s.v_size = size;
            conversation c(r, s, 302);
            device_conversation d(c);
            compare(c, d.run(0, 300), 0, 300, "prefill");
            compare(c, d.run(300, 0), 300, 1, "decode");
            compare(c, d.run(301, 0), 301, 1, "decode");
        }
}

// Devices with less shared memory run decoding with fewer warps.
static void attention_agrees_with_the_least_shared_memory(void)
{
    struct random_stream r = {33};
    size_t smem_max = Q.smem_max;
    for (const struct shape &s : shapes) {
        if (quick() && (&s - shapes) % 2 == 0)
            continue;
        Q.smem_max = attention_smem(s.head_dim) + 8192;
        conversation c(r, s, 302);
        device_conversation d(c);
        compare(c, d.run(0, 300), 0, 300, "prefill");
        compare(c, d.run(300, 0), 300, 1, "decode");
        compare(c, d.run(301, 0), 301, 1, "decode");
    }
    Q.smem_max = smem_max;
}

// The counters are left zero, and the merge does not depend on which block comes last: three blocks
// or more, since two sums are the same in either order.
static void attention_gives_the_same_bits_again(void)
{
    struct random_stream r = {32};
    const uint32_t n = 1000, n_last = 9;
    conversation c(r, shapes[1], n + 1);
    device_conversation d(c);
    d.run(0, n - n_last);
    std::vector<float> prompt = d.run(n - n_last, n_last), first = d.run(n, 0);
    for (int i = 0; i < (full_size() ? 50 : 5); i++) {
        check(d.run(n - n_last, n_last) == prompt, "prefill, run %d differs", i);
        check(d.run(n, 0) == first, "decode, run %d differs", i);
    }
}

// After the last token the steps that are already queued must do nothing.
static void a_finished_decode_leaves_cache_and_results_alone(void)
{
    struct random_stream r = {34};
    for (const struct shape &s : {shapes[1], shapes[9]})
        for (uint32_t at : {20u, 300u}) { // one block, several blocks
            conversation c(r, s, at + 1);
            device_conversation d(c);
            device_array<uint8_t> *bytes[] = {&d.cache.k, &d.cache.v, &d.partial};
            device_array<uint16_t> *scales[] = {&d.cache.ks, &d.cache.vs};
            for (auto *b : bytes)
                b->put(std::vector<uint8_t>(b->n, 0x33));
            for (auto *b : scales)
                b->put(std::vector<uint16_t>(b->n, 0x3333));
            d.run(0, at);
            std::vector<std::vector<uint8_t>> before;
            for (auto *b : bytes)
                before.push_back(b->get());
            std::vector<uint16_t> ks = d.cache.ks.get(), vs = d.cache.vs.get();
            for (float v : d.run(at, 0, true))
                if (v != device_conversation::UNTOUCHED) {
                    check(false, "position %u: a result was written", at);
                    break;
                }
            for (int i = 0; i < 3; i++)
                check(bytes[i]->get() == before[i], "position %u: %s changed", at,
                      i == 0   ? "keys"
                      : i == 1 ? "values"
                               : "scratch memory");
            check(d.cache.ks.get() == ks && d.cache.vs.get() == vs, "position %u: scales changed",
                  at);
            for (uint32_t n : d.counters.get())
                check(n == 0, "position %u: a counter is %u", at, n);
            compare(c, d.run(at, 0), at, 1, "decode after all");
        }
}

// Sequences that take turns in one cache get bit for bit what each gets alone.
static void sequences_leave_each_other_alone(void)
{
    struct random_stream r = {36};
    for (const struct shape &s : {shapes[1], shapes[9]}) {
        enum { N_SEQ = 3 };
        const uint32_t n_prompt[N_SEQ] = {70, 64, 301}, n_more = 2;
        device_cache cache(s, N_SEQ, 310);
        std::vector<conversation> c;
        for (uint32_t n : n_prompt)
            c.emplace_back(r, s, n + n_more);
        std::vector<std::unique_ptr<device_conversation>> shared, alone;
        for (uint32_t i = 0; i < N_SEQ; i++) {
            shared.push_back(std::make_unique<device_conversation>(c[i], cache, i));
            alone.push_back(std::make_unique<device_conversation>(c[i]));
        }
        auto both = [&](uint32_t i, uint32_t at, uint32_t n) {
            std::vector<float> got = shared[i]->run(at, n);
            compare(c[i], got, at, n ? n : 1, "one of several");
            check(got == alone[i]->run(at, n), "sequence %u, position %u: not what it gets alone",
                  i, at);
        };
        for (uint32_t i = 0; i < N_SEQ; i++)
            both(i, 0, n_prompt[i] - 20);
        for (uint32_t i = N_SEQ; i-- > 0;)
            both(i, n_prompt[i] - 20, 20);
        for (uint32_t step = 0; step < n_more; step++)
            for (uint32_t i = 0; i < N_SEQ; i++)
                both(i, n_prompt[i] + step, 0);
    }
}

// As the sampler ends a step: lets its successors begin, and writes late what the next step reads.
static __global__ void end_step(struct step_state *step, struct step_state next)
{
    griddep_launch_dependents();
    griddep_wait();
    for (int i = 0; i < 1000; i++)
        if (ptx_nanosleep(100) == 0)
            return;
    *step = next;
}

// embed is the first launch of a step, and the only one that keeps those that look at the position
// early, attention above all, behind the end of the step before.
static void a_step_begins_when_the_one_before_has_ended(void)
{
    struct random_stream r = {38};
    const struct shape &s = shapes[1];
    const uint32_t n = 100, width = 64;
    conversation c(r, s, n + 1);
    device_conversation d(c);
    d.run(0, n);
    const std::vector<float> want = d.run(n, 0);
    test_matrix m(r, QUANT_F32, 4, width);
    device_array<float> x(width), freqs(r.floats(s.rope_dim / 2));
    device_array<float2> rope(s.rope_dim / 2);
    const struct rope_tables ropes = {.t = {{freqs.p, s.rope_dim / 2, 1.0f, rope.p}}, .n = 1};
    device_array<struct step_state> step(1);
    for (int i = 0; i < 200; i++) { // on the emulation few begin early
        step.put({{{0, 5}, 1, 0, 0}});
        const struct step_state next = {{d.slot, n}, 3, 0, 0};
        auto before = [&] {
            struct launch end = {.name = "end_step",
                                 .grid = dim3(1),
                                 .block = dim3(1),
                                 .stream = Q.stream,
                                 .dependent = Q.dependent};
            must(launch_kernel(&ERR, end, end_step, step.p, next));
            must(embed_launch(&Q, &m.w, &step.p->token, 1, x.p, 1.0f, &ropes, &step.p->at, true,
                              nullptr, &ERR));
        };
        check(d.run(n, 0, false, before, &step.p->at) == want,
              "run %d: attention at another position", i);
        const std::vector<float> row = x.get();
        for (uint32_t k = 0; k < width; k++)
            if (row[k] != m.values[3 * width + k]) {
                check(false, "run %d: the embedding of another token", i);
                break;
            }
    }
}

// Rows that follow one another, on their own or sharing what they read of the cache: from the midst
// of a group on, past borders of tiles, with and without blocks that share a row.
static void neighbours_have_the_bits_of_rows_alone(void)
{
    struct random_stream r = {44};
    const struct shape some[] = {
        {7, 1, 64, 64, 0, true, true, false, false},
        {4, 2, 64, 32, 0, true, false, true, true},
        {3, 3, 32, 32, 0, false, false, false, false},
        {16, 1, 32, 32, 0, true, false, false, false},
        {4, 4, 64, 64, 40, true, false, false, false},
        {20, 1, 20, 20, 0, false, false, false, false},
        {8, 1, 128, 128, 0, true, true, false, true},
    };
    for (const struct shape &s : some) {
        conversation c(r, s, full_size() ? 900 : 330);
        c.n_together = c.n;
        device_conversation d(c);
        struct {
            uint32_t at, n;
        } const runs[] = {{0, 1}, {1, 3}, {4, 61}, {65, 200}, {265, c.n - 265}};
        for (const auto &run : runs) {
            d.spanned = run.n; // none
            const std::vector<float> alone = d.run(run.at, run.n);
            compare(c, alone, run.at, run.n, "rows alone");
            d.spanned = run.n > 2 ? 2 : 1;
            check(d.run(run.at, run.n) == alone, "%u/%u heads of %u, rows %u to %u: other bits",
                  s.n_head, s.n_head_kv, s.head_dim, run.at, run.at + run.n);
        }
    }
}

static const struct tap_test tests[] = {
    {"neighbours have the bits of rows alone", neighbours_have_the_bits_of_rows_alone},
    {"attention agrees from the first token on", attention_agrees_from_the_first_token},
    {"attention agrees for what some models do", attention_agrees_for_what_some_models_do},
    {"wide heads agree and do not depend on chunks", wide_heads_agree_and_do_not_depend_on_chunks},
    {"attention with what is cached agrees", attention_with_what_is_cached_agrees},
    {"attention agrees at a tile's edge", attention_agrees_at_a_tile_s_edge},
    {"attention agrees at a block's edge", attention_agrees_at_a_block_s_edge},
    {"attention agrees over several blocks", attention_agrees_over_several_blocks},
    {"attention agrees for a short prompt after a long text",
     attention_agrees_for_a_short_prompt_after_a_long_text},
    {"attention agrees over long contexts", attention_agrees_over_long_contexts},
    {"attention agrees for any magnitude", attention_agrees_for_any_magnitude},
    {"attention agrees with the least shared memory",
     attention_agrees_with_the_least_shared_memory},
    {"attention gives the same bits again", attention_gives_the_same_bits_again},
    {"sequences leave each other alone", sequences_leave_each_other_alone},
    {"a finished decode leaves cache and results alone",
     a_finished_decode_leaves_cache_and_results_alone},
    {"a step begins when the one before has ended", a_step_begins_when_the_one_before_has_ended},
};

int main(void)
{
    return gpu_test_main(tests);
}
