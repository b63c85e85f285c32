// Latent attention (struct latent in model/model.h) around its products, against the same in
// double.
#include "experts.h"
#include "gpu_test.h"

struct shape {
    uint32_t n_head, n_kv, n_rotated;
    bool halves, q8;
    double temp_scale = 0;
};

enum { N_KEY = 5 };

// n tokens: what their projections give, and the queries that those are brought to.
struct text {
    struct shape s;
    uint32_t n, n_cached;
    std::vector<float> kv, norm, q, brought; // brought (n, n_head, n_kv)
    std::vector<float2> rope;
    std::vector<double> cached; // (n, n_cached)

    double turned(const float *x, uint32_t token, uint32_t k) const
    {
        const uint32_t half = s.n_rotated / 2, p = s.halves ? k % half : k / 2;
        const bool second = s.halves ? k >= half : k % 2;
        const float2 t = rope[token * half + p];
        const double a = x[s.halves ? p : 2 * p], b = x[s.halves ? p + half : 2 * p + 1];
        return second ? a * t.y + b * t.x : a * t.x - b * t.y;
    }

    text(struct random_stream &r, const struct shape &shape_, uint32_t n_, const text *other = NULL)
        : s(shape_), n(n_), n_cached(shape_.n_kv + shape_.n_rotated)
    {
        kv = r.floats((size_t)n * n_cached, 2.0);
        norm = other ? other->norm : r.floats(s.n_kv, 1.5); // of one model
        q = r.floats((size_t)n * s.n_head * (N_KEY + s.n_rotated));
        brought = r.floats((size_t)n * s.n_head * s.n_kv);
        for (uint32_t i = 0; i < n * s.n_rotated / 2; i++) {
            const double angle = 10 * r.uniform();
            rope.push_back(make_float2((float)cos(angle), (float)sin(angle)));
        }
        cached.resize((size_t)n * n_cached);
        for (uint32_t i = 0; i < n; i++) {
            const float *row = &kv[(size_t)i * n_cached];
            double sum = 0, *to = &cached[(size_t)i * n_cached];
            for (uint32_t k = 0; k < s.n_kv; k++)
                sum += (double)row[k] * row[k];
            for (uint32_t k = 0; k < n_cached; k++)
                to[k] = k < s.n_kv ? row[k] / sqrt(sum / s.n_kv + 1e-6) * norm[k]
                                   : turned(row + s.n_kv, i, k - s.n_kv);
        }
    }

    double times(uint32_t i) const
    {
        return 1 + s.temp_scale * log(1.0 + (i + 2) / 7);
    }

    // What head h of token i gives: (n_kv)
    std::vector<double> expect(uint32_t i, uint32_t h, double scale) const
    {
        const float *b = &q[((size_t)i * s.n_head + h) * (N_KEY + s.n_rotated) + N_KEY];
        const float *a = &brought[((size_t)i * s.n_head + h) * s.n_kv];
        std::vector<double> p(i + 1), out(s.n_kv);
        double top = -1e300, sum = 0;
        for (uint32_t t = 0; t <= i; t++) {
            const double *key = &cached[(size_t)t * n_cached];
            for (uint32_t k = 0; k < s.n_kv; k++)
                p[t] += a[k] * key[k] * scale;
            for (uint32_t k = 0; k < s.n_rotated; k++)
                p[t] += turned(b, i, k) * times(i) * key[s.n_kv + k] * scale;
            top = fmax(top, p[t]);
        }
        for (uint32_t t = 0; t <= i; t++)
            sum += p[t] = exp(p[t] - top);
        for (uint32_t t = 0; t <= i; t++)
            for (uint32_t k = 0; k < s.n_kv; k++)
                out[k] += p[t] / sum * cached[(size_t)t * n_cached + k];
        return out;
    }
};

// A token of a text.
struct row {
    uint32_t text, at;
};

// A cache of texts of one shape, each in a slot of its own, whose blocks lie in reverse and among
// each other's, and the launches of some of their rows.
struct device_texts {
    const std::vector<const text *> texts;
    const text &t;
    uint32_t max_blocks, row_bytes, n_group;
    struct attention_wide_scratch sizes;
    device_array<uint8_t> cache, partial;
    device_array<uint16_t> scales;
    device_array<uint32_t> tables;
    size_t room; // of partial, that may be used

    explicit device_texts(const std::vector<const text *> &texts_)
        : texts(texts_), t(*texts_[0]), max_blocks(most_blocks(texts_)),
          row_bytes((t.n_cached * (t.s.q8 ? 1 : 2) + 15) / 16 * 16), n_group(kv_groups(t.n_cached)),
          sizes(sizes_of(t, max_blocks)), cache(texts.size() * max_blocks * KV_BLOCK * row_bytes),
          partial(sizes.partial), scales(texts.size() * max_blocks * KV_BLOCK * n_group),
          tables(texts.size() * max_blocks), room(sizes.partial)
    {
        const uint32_t n = (uint32_t)texts.size();
        std::vector<uint32_t> table;
        for (uint32_t slot = 0; slot < n; slot++)
            for (uint32_t i = 0; i < max_blocks; i++)
                table.push_back(n * max_blocks - 1 - (i * n + slot));
        tables.put(table);
    }
    static uint32_t most_blocks(const std::vector<const text *> &texts)
    {
        uint32_t n = 0;
        for (const text *t : texts)
            n = kv_blocks(t->n) > n ? kv_blocks(t->n) : n;
        return n;
    }
    static struct attention_wide_scratch sizes_of(const text &t, uint32_t n_blocks)
    {
        struct attention_wide_scratch a;
        check(
            attention_wide_scratch(t.s.n_head, t.n_cached, t.s.n_kv, true, n_blocks * KV_BLOCK, &a),
            "no kernel for a latent of %u", t.s.n_kv);
        return a;
    }

    // The tokens [at, at + n) of the first text.
    std::vector<float> run(uint32_t at, uint32_t n, double scale)
    {
        std::vector<struct row> rows;
        for (uint32_t i = 0; i < n; i++)
            rows.push_back({0, at + i});
        return run(rows, scale, NULL);
    }

    // (n_head, n, n_kv) spans: rows of several sequences, see attention_latent_rows_launch; NULL:
    // the next ones of one. attends: else they are only put into the cache.
    std::vector<float> run(const std::vector<struct row> &rows, double scale,
                           const std::vector<struct row_span> *spans, bool attends = true)
    {
        const struct shape &s = t.s;
        const uint32_t n = (uint32_t)rows.size(), half = s.n_rotated / 2, n_q = N_KEY + s.n_rotated;
        auto gather = [&](const std::vector<float> text::*from, uint32_t width) {
            std::vector<float> all;
            for (const struct row &k : rows) {
                const float *p = &(texts[k.text]->*from)[(size_t)k.at * width];
                all.insert(all.end(), p, p + width);
            }
            return all;
        };
        std::vector<float> by_head((size_t)s.n_head * n * s.n_kv);
        std::vector<float2> turns;
        std::vector<struct seq_row> places;
        uint32_t furthest = 0, reach = 0; // of those before the spans, and of all
        for (uint32_t i = 0; i < n; i++) {
            const text &of = *texts[rows[i].text];
            const uint32_t at = rows[i].at;
            for (uint32_t h = 0; h < s.n_head; h++)
                for (uint32_t k = 0; k < s.n_kv; k++)
                    by_head[((size_t)h * n + i) * s.n_kv + k] =
                        of.brought[((size_t)at * s.n_head + h) * s.n_kv + k];
            for (uint32_t p = 0; p < half; p++)
                turns.push_back(of.rope[(size_t)at * half + p]);
            places.push_back({rows[i].text, at});
            reach = at > reach ? at : reach;
            if ((!spans || spans->empty() || i < (*spans)[0].row0) && at > furthest)
                furthest = at;
        }
        device_array<float> kv(gather(&text::kv, t.n_cached)), norm(t.norm),
            q(gather(&text::q, s.n_head * n_q)), key((size_t)s.n_head * n * N_KEY),
            brought(by_head), rotated((size_t)n * s.n_head * s.n_rotated),
            undo((size_t)n * s.n_head);
        device_array<float2> rope(turns);
        device_array<uint16_t> query((size_t)n * s.n_head * sizes.key_width);
        device_array<struct seq_row> at(places);
        device_array<struct expert_item> items(s.n_head * div_up(n, 4u));
        struct latent_rows r = {};
        r.n = n;
        r.n_head = s.n_head;
        r.n_kv = s.n_kv;
        r.n_key = N_KEY;
        r.n_rotated = s.n_rotated;
        r.rows = at.p;
        r.each = spans;
        r.kv = kv.p;
        r.norm = norm.p;
        r.q = q.p;
        r.eps = 1e-6f;
        r.rope = rope.p;
        r.rope_halves = s.halves;
        r.temp_scale = (float)s.temp_scale;
        r.temp_len = 7;
        r.temp_offset = 2;
        r.cache = {cache.p, s.q8 ? scales.p : nullptr, row_bytes, n_group, 1, 512.0f};
        r.tables = tables.p;
        r.max_blocks = max_blocks;
        r.key = key.p;
        r.rotated = rotated.p;
        r.items = items.p;
        r.per_item = 4;
        r.brought = brought.p;
        r.query = (__half *)query.p;
        r.undo = undo.p;
        r.score = (float)(scale * 1.4426950408889634);
        r.key_width = sizes.key_width;
        struct attention a = {};
        a.n_head = s.n_head;
        a.n_head_kv = 1;
        a.head_dim = t.n_cached;
        a.k = r.cache;
        a.v_undo = 1.0f / 512.0f;
        a.rows = at.p;
        a.tables = tables.p;
        a.max_blocks = max_blocks;
        a.out = brought.p;
        a.q_f16 = r.query;
        a.partial = (float *)partial.p;
        a.partial_bytes = room;
        must(latent_part_launch(&Q, &r, &ERR));
        if (!attends)
            return brought.get(); // (waits)
        must(latent_query_launch(&Q, &r, &ERR));
        if (spans)
            must(attention_latent_rows_launch(&Q, &a, undo.p, s.n_kv, n, spans->data(),
                                              (uint32_t)spans->size(), furthest, reach, &ERR));
        else
            must(attention_latent_launch(&Q, &a, undo.p, s.n_kv, n, &ERR));
        const std::vector<struct expert_item> cut = items.get();
        const std::vector<float> keys = key.get();
        for (uint32_t h = 0, i = 0; h < s.n_head; h++) // a head's rows, in order
            for (uint32_t done = 0; done < n; done += 4, i++)
                check(cut[i].expert == h && cut[i].first == h * n + done &&
                          cut[i].n == lesser(n - done, 4u),
                      "item %u: %u rows of head %u from %u", i, cut[i].n, cut[i].expert,
                      cut[i].first);
        for (uint32_t i = 0; i < n; i++) {
            const text &of = *texts[rows[i].text];
            const uint32_t token = rows[i].at;
            for (uint32_t h = 0; h < s.n_head; h++)
                for (uint32_t k = 0; k < N_KEY; k++) {
                    const double want =
                        of.q[((size_t)token * s.n_head + h) * n_q + k] * of.times(token);
                    check(fabs(keys[((size_t)h * n + i) * N_KEY + k] - want) <= 1e-5, "key of %u",
                          i);
                }
        }
        return brought.get();
    }
};

static const struct shape shapes[] = {
    {5, 42, 8, false, false},        {16, 512, 64, false, false}, {20, 512, 64, true, true},
    {4, 256, 64, false, false, 0.3}, {3, 30, 6, false, true},
};

// got (n_kv): what head h of token i gives.
static void check_head(const text &t, uint32_t i, uint32_t h, double scale, const float *got)
{
    const std::vector<double> want = t.expect(i, h, scale);
    double off = 0;
    for (uint32_t k = 0; k < t.s.n_kv; k++)
        off = further(off, fabs(got[k] - want[k]));
    check(off <= (t.s.q8 ? 0.04 : 4e-3), "latent of %u, token %u, head %u: off by %g", t.s.n_kv, i,
          h, off);
}

static void latent_attention_agrees_and_does_not_depend_on_chunks(void)
{
    struct random_stream r = {51};
    for (const struct shape &s : shapes) {
        if (quick() && s.n_head == 16)
            continue;           // float16 and wide: each with another shape
        const uint32_t n = 262; // two splits
        const double scale = 2 / sqrt(s.n_kv + s.n_rotated);
        text t(r, s, n);
        device_texts whole({&t}), cut({&t});
        const std::vector<float> want = whole.run(0, n, scale);
        for (uint32_t i : {0u, 31u, 255u, n - 1}) // the reference is slow
            for (uint32_t h = 0; h < s.n_head; h += 3)
                check_head(t, i, h, scale, &want[((size_t)h * n + i) * s.n_kv]);
        for (uint32_t at = 0, k = 0; at < n; k++) {
            static const uint32_t sizes[] = {1, 7, 200, 1, 64};
            const uint32_t size = lesser(sizes[k % 5], n - at);
            const std::vector<float> got = cut.run(at, size, scale);
            bool same = true;
            for (uint32_t h = 0; h < s.n_head; h++)
                same &= std::equal(got.begin() + (size_t)h * size * s.n_kv,
                                   got.begin() + (size_t)(h + 1) * size * s.n_kv,
                                   want.begin() + ((size_t)h * n + at) * s.n_kv);
            check(same, "latent of %u, %u tokens at %u: other bits than in one chunk", s.n_kv, size,
                  at);
            at += size;
        }
    }
}

static std::vector<struct row> tokens_of(uint32_t text, uint32_t begin, uint32_t end)
{
    std::vector<struct row> rows;
    for (uint32_t at = begin; at < end; at++)
        rows.push_back({text, at});
    return rows;
}

// The next tokens of three sequences, of one of them with a draft, and chunks of two prompts; with
// room for what blocks share of all single rows, of one at a time, and of none.
static void rows_of_several_sequences_are_what_each_is_alone(void)
{
    // the prompt that is furthest over the end of a split
    static const struct {
        uint32_t begin, end;
    } now[] = {{299, 300}, {64, 66}, {3, 4}, {509, 516}, {0, 5}};
    enum { N_TEXT = 5 };
    const std::vector<struct row_span> spans = {{4, 7}, {11, 5}}, none;
    struct random_stream r = {54};
    for (const struct shape &s : shapes) {
        if (quick() && s.n_head == 16)
            continue;
        const double scale = 2 / sqrt(s.n_kv + s.n_rotated);
        std::vector<text> all;
        std::vector<const text *> texts;
        std::vector<struct row> rows;
        std::vector<std::vector<float>> want;
        for (uint32_t k = 0; k < N_TEXT; k++)
            all.push_back(text(r, s, now[k].end, k ? &all[0] : NULL));
        for (const text &t : all)
            texts.push_back(&t);
        device_texts beside(texts);
        for (uint32_t k = 0; k < N_TEXT; k++) {
            device_texts alone({texts[k]});
            const uint32_t begin = now[k].begin;
            if (begin > 0) {
                beside.run(tokens_of(k, 0, begin), scale, NULL, false);
                alone.run(tokens_of(0, 0, begin), scale, NULL, false);
            }
            for (const struct row &row : tokens_of(k, begin, now[k].end)) {
                rows.push_back(row);
                want.push_back(alone.run({{0, row.at}}, scale, &none));
                for (uint32_t h = 0; h < s.n_head; h += 3)
                    check_head(*texts[k], row.at, h, scale, &want.back()[h * s.n_kv]);
            }
        }
        struct attention_wide_scratch one;
        attention_wide_scratch(s.n_head, all[0].n_cached, s.n_kv, true, 300, &one);
        for (size_t room : {one.partial, one.partial / 16, (size_t)0}) {
            beside.room = room;
            const std::vector<float> got = beside.run(rows, scale, &spans);
            for (uint32_t i = 0; i < rows.size(); i++) {
                bool same = true;
                for (uint32_t h = 0; h < s.n_head; h++)
                    same &= memcmp(&got[((size_t)h * rows.size() + i) * s.n_kv],
                                   &want[i][h * s.n_kv], s.n_kv * sizeof(float)) == 0;
                check(same, "latent of %u, room of %zu bytes, row %u: other bits than alone",
                      s.n_kv, room, i);
            }
        }
    }
}

// Each head's matrix, of eight types, the other way round.
static void transposed_products_agree(void)
{
    struct random_stream r = {52};
    for (uint32_t type : {QUANT_F32, QUANT_F16, QUANT_BF16, QUANT_Q8_0, QUANT_Q4_0, QUANT_Q5_1,
                          QUANT_Q4_K, QUANT_Q6_K}) {
        const bool plain = type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16;
        const uint32_t n_head = 3, rows = 16, n_cols = plain ? 30 : 256, n = 5;
        test_matrix m(r, type, n_head * rows, n_cols); // whole tiles: heads follow each other
        struct wmat w = m.w;
        w.rows = rows;
        w.n_tile = rows / TILE_ROWS;
        const std::vector<float> x = r.floats((size_t)n_head * n * rows);
        device_array<float> dx(x), y((size_t)n_head * n * n_cols);
        must(latent_transposed_launch(&Q, &w, n_head, dx.p, n, y.p, nullptr, &ERR));
        const std::vector<float> got = y.get();
        for (uint32_t h = 0; h < n_head; h++)
            for (uint32_t i = 0; i < n; i++)
                for (uint32_t c = 0; c < n_cols; c++) {
                    double want = 0, size = 0;
                    for (uint32_t k = 0; k < rows; k++) {
                        const double v = (double)m.values[(size_t)(h * rows + k) * n_cols + c] *
                                         x[((size_t)h * n + i) * rows + k];
                        want += v;
                        size += fabs(v);
                    }
                    const float v = got[((size_t)h * n + i) * n_cols + c];
                    check(fabs(v - want) <= 1e-5 * size + 1e-12,
                          "type %u, head %u: %g, expected %g", type, h, v, want);
                }
    }
}

// A text, and heads that have keys and values of their own.
struct own_heads {
    uint32_t n_head, n_key, n_value;
    bool turned;      // of the matrix of keys
    uint32_t at_once; // heads whose keys and values there is room for
};

// What heads give, by planes of so many heads at a time; pieces: how many tokens come at once.
static std::vector<float> by_heads(const text &t, device_texts &d, const struct own_heads &o,
                                   const std::vector<float> &q_all, const std::vector<float> &w_k,
                                   const std::vector<float> &w_v, double scale,
                                   const std::vector<uint32_t> &pieces)
{
    const uint32_t n_q = o.n_key + t.s.n_rotated, half = t.s.n_rotated / 2;
    const uint32_t padded = attention_padded_dim(n_q > o.n_value ? n_q : o.n_value);
    const uint32_t n_block = kv_blocks(t.n);
    const float q_scale = 64.0f, k_scale = 16.0f, v_scale = 32.0f, w_scale = 4.0f;
    std::vector<float> all;
    // as dequant_launch leaves them: rows of eight numbers, heads of eight rows
    auto halves = [&](const std::vector<float> &w, uint32_t rows, uint32_t cols) {
        const uint32_t of_head = div_up(rows, 8u) * 8, ld = gemm_ld(cols);
        std::vector<uint16_t> out((size_t)o.n_head * of_head * ld);
        for (uint32_t h = 0; h < o.n_head; h++)
            for (uint32_t r = 0; r < rows; r++)
                for (uint32_t c = 0; c < cols; c++)
                    out[((size_t)h * of_head + r) * ld + c] = __half_as_ushort(
                        __float2half_rn(w[((size_t)h * rows + r) * cols + c] * w_scale));
        return out;
    };
    const uint32_t k_rows = o.turned ? t.s.n_kv : o.n_key, k_cols = o.turned ? o.n_key : t.s.n_kv;
    device_array<uint16_t> keys_w(halves(w_k, k_rows, k_cols)),
        values_w(halves(w_v, o.n_value, t.s.n_kv));
    struct kv_plane keys = {}, values = {};
    keys.row_bytes = div_up(n_q, 8u) * 16, values.row_bytes = div_up(o.n_value, 8u) * 16;
    const size_t room = (size_t)o.at_once * n_block * KV_BLOCK;
    device_array<uint8_t> k(room * keys.row_bytes), v(room * values.row_bytes);
    keys.data = k.p, values.data = v.p;
    keys.scale = k_scale, values.scale = v_scale;
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < n_block; i++)
        order.push_back(i);
    device_array<uint32_t> in_order(order);
    struct attention_scratch scratch = {};
    attention_scratch(Q.n_sm, o.n_head, o.n_head, n_q > o.n_value ? n_q : o.n_value, t.n, 1,
                      &scratch);
    device_array<uint8_t> partial(scratch.partial);
    device_array<uint32_t> counters(std::vector<uint32_t>(scratch.counters / sizeof(uint32_t)));
    uint32_t at = 0;
    for (uint32_t n : pieces) {
        device_array<float> q(
            std::vector<float>(q_all.begin() + (size_t)at * o.n_head * n_q,
                               q_all.begin() + (size_t)(at + n) * o.n_head * n_q)),
            out((size_t)n * o.n_head * o.n_value);
        device_array<float2> rope(
            std::vector<float2>(t.rope.begin() + at * half, t.rope.begin() + (at + n) * half));
        device_array<struct seq_row> row(std::vector<struct seq_row>{{0, at}});
        device_array<uint16_t> query((size_t)n * o.n_head * padded);
        struct latent_rows r = {};
        r.n = n;
        r.n_head = o.n_head;
        r.n_kv = t.s.n_kv;
        r.n_key = o.n_key;
        r.n_rotated = t.s.n_rotated;
        r.rows = row.p;
        r.q = q.p;
        r.rope = rope.p;
        r.rope_halves = t.s.halves;
        r.temp_scale = (float)t.s.temp_scale;
        r.temp_len = 7;
        r.temp_offset = 2;
        struct latent_heads h = {};
        h.cache = {d.cache.p, nullptr, d.row_bytes, d.n_group, 1, 512.0f};
        h.rows = row.p;
        h.tables = d.tables.p;
        h.max_blocks = d.max_blocks;
        h.n_position = at + n;
        h.n_kv = t.s.n_kv;
        struct attention a = {};
        a.n_head_out = o.n_head;
        a.head_dim = n_q > o.n_value ? n_q : o.n_value;
        a.value_dim = o.n_value;
        a.score_undo = 1.0f / (q_scale * k_scale);
        a.v_undo = 1.0f / v_scale;
        a.rows = row.p;
        a.tables = in_order.p;
        a.reach = at + n;
        a.out = out.p;
        a.partial = (float *)partial.p;
        a.partial_bytes = scratch.partial;
        a.counters = counters.p;
        a.q_f16 = (__half *)query.p;
        for (uint32_t head = 0; head < o.n_head; head += o.at_once) {
            const uint32_t n_now = lesser(o.at_once, o.n_head - head);
            keys.n_head = values.n_head = a.n_head = a.n_head_kv = n_now;
            a.out_head = head;
            a.k = h.to = keys;
            a.v = values;
            h.turned = o.turned;
            h.rows_of_head = div_up(k_rows, 8u) * 8;
            h.ld = gemm_ld(k_cols);
            h.w = (const __half *)keys_w.p + (size_t)head * h.rows_of_head * h.ld;
            h.n = o.n_key;
            h.n_rotated = t.s.n_rotated;
            h.rotated_factor = k_scale / 512.0f;
            h.factor = h.rotated_factor / w_scale;
            must(latent_expand_launch(&Q, &h, &ERR));
            h.to = values;
            h.turned = false;
            h.rows_of_head = div_up(o.n_value, 8u) * 8;
            h.ld = gemm_ld(t.s.n_kv);
            h.w = (const __half *)values_w.p + (size_t)head * h.rows_of_head * h.ld;
            h.n = o.n_value;
            h.n_rotated = 0;
            h.factor = v_scale / 512.0f / w_scale;
            must(latent_expand_launch(&Q, &h, &ERR));
            must(latent_heads_query_launch(&Q, &r, head, n_now,
                                           q_scale * (float)(scale * 1.4426950408889634), a.q_f16,
                                           padded, &ERR));
            must(attention_prompt_launch(&Q, &a, n, &ERR));
        }
        const std::vector<float> got = out.get();
        all.insert(all.end(), got.begin(), got.end());
        at += n;
    }
    return all;
}

static void heads_of_their_own_agree_and_do_not_depend_on_pieces(void)
{
    static const struct {
        struct shape s;
        struct own_heads o;
    } cases[] = {
        {{3, 42, 8, false, false, 0.3}, {3, 11, 9, true, 2}},
        {{3, 30, 6, true, false}, {3, 10, 14, false, 3}},
        {{2, 512, 64, false, false}, {2, 192, 256, true, 2}},
        {{2, 512, 64, true, false}, {2, 128, 128, true, 1}},
        {{2, 256, 64, false, false}, {2, 64, 128, false, 2}},
    };
    struct random_stream r = {55};
    for (const auto &c : cases) {
        const struct own_heads &o = c.o;
        const uint32_t n = full_size() ? 2300 : 150, n_q = o.n_key + c.s.n_rotated;
        const double scale = 2 / sqrt(n_q);
        const text t(r, c.s, n);
        device_texts d({&t});
        d.run(tokens_of(0, 0, n), scale, NULL, false);
        const std::vector<float> q = r.floats((size_t)n * o.n_head * n_q),
                                 w_k = r.floats((size_t)o.n_head * o.n_key * c.s.n_kv,
                                                1 / sqrt(c.s.n_kv)),
                                 w_v = r.floats((size_t)o.n_head * o.n_value * c.s.n_kv,
                                                1 / sqrt(c.s.n_kv));
        const auto check_all = [&](const std::vector<float> &got) {
            for (uint32_t i : {0u, 63u, 64u, n - 1})
                for (uint32_t h = 0; h < o.n_head; h++) {
                    std::vector<double> p(i + 1), want(o.n_value);
                    const float *own = &q[((size_t)i * o.n_head + h) * n_q];
                    double top = -1e300, sum = 0, off = 0;
                    // a key: n_key sums of the latent, which the query brings to it
                    std::vector<double> brought(c.s.n_kv);
                    for (uint32_t j = 0; j < c.s.n_kv; j++)
                        for (uint32_t k = 0; k < o.n_key; k++)
                            brought[j] +=
                                (double)own[k] *
                                (o.turned ? w_k[((size_t)h * c.s.n_kv + j) * o.n_key + k]
                                          : w_k[((size_t)h * o.n_key + k) * c.s.n_kv + j]);
                    for (uint32_t at = 0; at <= i; at++) {
                        const double *key = &t.cached[(size_t)at * t.n_cached];
                        for (uint32_t j = 0; j < c.s.n_kv; j++)
                            p[at] += brought[j] * key[j];
                        for (uint32_t k = 0; k < c.s.n_rotated; k++)
                            p[at] += t.turned(own + o.n_key, i, k) * key[c.s.n_kv + k];
                        p[at] *= t.times(i) * scale;
                        top = fmax(top, p[at]);
                    }
                    for (uint32_t at = 0; at <= i; at++)
                        sum += p[at] = exp(p[at] - top);
                    std::vector<double> mean(c.s.n_kv);
                    for (uint32_t at = 0; at <= i; at++)
                        for (uint32_t j = 0; j < c.s.n_kv; j++)
                            mean[j] += p[at] / sum * t.cached[(size_t)at * t.n_cached + j];
                    for (uint32_t k = 0; k < o.n_value; k++) {
                        for (uint32_t j = 0; j < c.s.n_kv; j++)
                            want[k] += mean[j] * w_v[((size_t)h * o.n_value + k) * c.s.n_kv + j];
                        off = further(
                            off, fabs(got[((size_t)i * o.n_head + h) * o.n_value + k] - want[k]));
                    }
                    check(off <= 4e-3, "heads of %u, token %u, head %u: off by %g", n_q, i, h, off);
                }
        };
        const std::vector<float> got = by_heads(t, d, o, q, w_k, w_v, scale, {n});
        check_all(got);
        const bool hopper = Q.hopper; // what other devices do
        Q.hopper = false;
        check_all(by_heads(t, d, o, q, w_k, w_v, scale, {n}));
        Q.hopper = hopper;
        std::vector<uint32_t> pieces;
        for (uint32_t at = 0, k = 0; at < n; k++) {
            static const uint32_t sizes[] = {1, 7, 64, 1, 70, 900};
            pieces.push_back(lesser(sizes[k % 6], n - at));
            at += pieces.back();
        }
        struct own_heads one = o;
        one.at_once = 1;
        check(by_heads(t, d, one, q, w_k, w_v, scale, pieces) == got,
              "heads of %u: other bits in pieces, head by head", n_q);
    }
}

static void heads_become_rows(void)
{
    struct random_stream r = {53};
    const uint32_t n = 5, n_head = 3, width = 150;
    const std::vector<float> x = r.floats((size_t)n * n_head * width);
    device_array<float> from(x), to(x.size());
    must(heads_to_rows_launch(&Q, from.p, n_head, n, width, to.p, &ERR));
    const std::vector<float> got = to.get();
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t h = 0; h < n_head; h++)
            for (uint32_t k = 0; k < width; k++)
                check(got[(i * n_head + h) * width + k] == x[(h * n + i) * width + k],
                      "row %u, head %u, number %u", i, h, k);
}

static const struct tap_test tests[] = {
    {"latent attention agrees and does not depend on chunks",
     latent_attention_agrees_and_does_not_depend_on_chunks},
    {"rows of several sequences are what each is alone",
     rows_of_several_sequences_are_what_each_is_alone},
    {"products with transposed matrices agree", transposed_products_agree},
    {"heads become rows", heads_become_rows},
    {"heads of their own agree and do not depend on pieces",
     heads_of_their_own_agree_and_do_not_depend_on_pieces},
};

int main(void)
{
    return gpu_test_main(tests);
}
