// Attention over the cache, prefill and decode, against softmax(q k^T / sqrt(d)) v in double.
#include "attention_case.h"

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
    changed(shapes[4], [](struct shape &s) { s.norms = s.norm_heads = s.norm_mean = true; }),
    changed(shapes[12], [](struct shape &s) { s.norms = s.norm_heads = s.norm_rotated = true; }),
    changed(shapes[9], [](struct shape &s) { s.norms = s.norm_mean = s.gated = true; }),
    changed(shapes[4], [](struct shape &s) { s.head_dim = 15, s.rope_dim = 8, s.norms = true; }),
    changed(shapes[9], [](struct shape &s) { s.head_dim = 35, s.rope_dim = 30, s.gated = true; }),
    // more query heads of a KV head than a tile has rows
    changed(shapes[7], [](struct shape &s) { s.norms = s.norm_heads = s.norm_mean = true; }),
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
    changed({4, 2, 273, 272, 0, true, true, false, true},
            [](struct shape &s) { s.norm_heads = s.norm_mean = true; }),
};

// Whatever is beside a row, and however its splits are shared out, it gets the same bits; a single
// token those of prompts, but of what attention_wide_hopper.cu takes.
static void wide_heads_agree(bool hopper)
{
    const bool was = Q.hopper;
    Q.hopper = hopper;
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
            const bool by_hopper = hopper && !s.k_q8 && !s.v_q8;
            const std::vector<float> got = cut.run(at, by_hopper ? m : size);
            check(std::equal(got.begin(), got.end(), want.begin() + (size_t)at * c.n_q),
                  "heads of %u, %u tokens at %u: other bits than in one chunk", s.head_dim, m, at);
            at += m;
        }
    }
    Q.hopper = was;
}

static void wide_heads_agree_and_do_not_depend_on_chunks(void)
{
    wide_heads_agree(false);
    if (Q.hopper)
        wide_heads_agree(true);
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
            must(embed_launch(&Q, &m.w, &step.p->token, 1, x.p, 1.0f, nullptr, &ropes, &step.p->at,
                              true, nullptr, &ERR));
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
            for (uint32_t i : {0u, run.n / 2, run.n - 1}) { // in a launch of its own
                d.spanned = 1;
                const std::vector<float> one = d.run(run.at + i, 1);
                check(std::equal(one.begin(), one.end(), alone.begin() + (size_t)i * c.n_q),
                      "%u/%u heads of %u, row %u of %u: other bits than in a launch of its own",
                      s.n_head, s.n_head_kv, s.head_dim, run.at + i, run.n);
            }
            d.spanned = run.n > 2 ? 2 : 1;
            check(d.run(run.at, run.n) == alone, "%u/%u heads of %u, rows %u to %u: other bits",
                  s.n_head, s.n_head_kv, s.head_dim, run.at, run.at + run.n);
        }
    }
}

// Packed for a product results are what they are as float32, times the scale of the cache's values:
// each at its place among rows of others, zeros behind it, and nothing else is written.
static void results_are_packed(device_conversation &d, uint32_t at, uint32_t n, const char *what)
{
    enum { BEFORE = 61, AFTER = 2, SPOILT = 0xFFFF }; // from a group of gemm_few on to the next
    const conversation &c = d.c;
    const uint32_t m = n ? n : 1, n_row = BEFORE + m + AFTER;
    const uint32_t n_cols = div_up(c.n_q, (uint32_t)GEMM_PACK_COLS) * GEMM_PACK_COLS;
    const std::vector<float> plain = d.run(at, n);
    for (uint32_t form : {GEMM_PACKED, GEMM_FEW_PACKED}) {
        const bool few = form == GEMM_FEW_PACKED;
        const size_t size = few ? gemm_few_bytes(n_row, c.n_q) : gemm_pack_bytes(n_row, c.n_q);
        std::vector<uint16_t> want(size / 2, SPOILT);
        std::vector<float> want_undo(n_row, 7.0f);
        for (uint32_t i = 0; i < m; i++) {
            want_undo[BEFORE + i] = 1.0f / c.v_scale;
            for (uint32_t k = 0; k < n_cols; k++)
                want[few ? gemm_few_at(n_row, BEFORE + i, k, c.n_q)
                         : gemm_pack_at(n_row, BEFORE + i, k)] =
                    k < c.n_q ? quant_f32_to_f16(plain[(size_t)i * c.n_q + k] * c.v_scale) : 0;
        }
        device_array<uint16_t> x(std::vector<uint16_t>(size / 2, SPOILT));
        device_array<float> undo(std::vector<float>(n_row, 7.0f));
        d.packed = {(__half *)x.p, form, n_row, BEFORE, undo.p};
        for (float v : d.run(at, n))
            if (v != device_conversation::UNTOUCHED) {
                check(false, "%s: float32, too", what);
                break;
            }
        d.packed = {};
        check(x.get() == want, "%s, %u/%u heads of %u, %u rows from %u on, form %u: other halves",
              what, c.s.n_head, c.s.n_head_kv, c.s.head_dim, m, at, form);
        check(undo.get() == want_undo, "%s, heads of %u, form %u: undone otherwise", what,
              c.s.head_dim, form);
    }
}

// By every kernel, with and without blocks that share a row.
static void packed_results_are_the_plain_ones(void)
{
    struct random_stream r = {46};
    for (struct shape s : {shapes[1], shapes[4], shapes[9], special_shapes[15], special_shapes[16],
                           shapes[11], wide_shapes[0], wide_shapes[2], wide_shapes[3]}) {
        const uint32_t n = 330;
        const bool wide = s.head_dim > ATTENTION_NARROW_HEAD_DIM;
        s.v_size = s.v_norms ? 0 : 300; // means are larger than float16's largest over the scale
        conversation c(r, s, n);
        c.n_together = 32;
        device_conversation d(c);
        d.run(0, n);
        results_are_packed(d, 0, wide ? 5 : 37, "prefill");
        results_are_packed(d, 0, 0, "decode");
        results_are_packed(d, n - 1, 0, "decode");
        if (wide) // too many to share splits
            results_are_packed(d, 0, quick() ? 130 : n, "prefill");
        else
            results_are_packed(d, n - 5, 5, "prefill");
        for (uint32_t spanned : {2u, 21u}) { // sharing what they read or not
            d.spanned = spanned;
            if (spanned > 2 || !wide)
                results_are_packed(d, 3, 21, "rows");
            results_are_packed(d, n - 21, 21, "rows");
        }
        d.spanned = 0;
    }
}

// Blocks of a prompt are of one height behind a short text and of another behind a long one, and
// where they are few each has a split of the cache: no bit depends on it, nor on where a prompt is
// cut.
static void a_prompt_has_the_same_bits_however_it_is_cut(void)
{
    struct random_stream r = {47};
    unsigned left_out = 0;
    const auto all = [&](const struct shape &s) {
        // several splits, which on a device are long
        const uint32_t n = full_size() ? 4500 : 210, few = 5;
        if (left_out++ % 3 && quick())
            return;
        conversation c(r, s, n);
        device_conversation d(c);
        std::vector<float> want[2];
        for (bool far : {false, true}) {
            d.far = far;
            want[far] = d.run(0, n);
            compare(c, want[far], 0, n, "prefill");
        }
        check(want[0] == want[1], "%u/%u heads of %u: other bits behind a long text", s.n_head,
              s.n_head_kv, s.head_dim);
        for (uint32_t cut : {n / 3, n - few, n - 1}) {
            d.far = true;
            std::vector<float> got = d.run(0, cut);
            d.far = false;
            const std::vector<float> rest = d.run(cut, n - cut);
            got.insert(got.end(), rest.begin(), rest.end());
            check(got == want[0], "%u/%u heads of %u: other bits when cut at %u", s.n_head,
                  s.n_head_kv, s.head_dim, cut);
        }
        // attention_few.cu wherever there are multiprocessors for its blocks, and nowhere
        const int n_sm = Q.n_sm;
        for (int many : {1, 1 << 20}) {
            Q.n_sm = many;
            for (uint32_t m : {3u, 40u, n}) {
                const std::vector<float> got = d.run(0, m);
                check(std::equal(got.begin(), got.end(), want[0].begin()),
                      "%u/%u heads of %u: other bits of %u tokens with %d multiprocessors",
                      s.n_head, s.n_head_kv, s.head_dim, m, many);
            }
        }
        Q.n_sm = n_sm;
        // attention_hopper.cu and what runs elsewhere; their tiles of wider heads differ
        const bool hopper = Q.hopper;
        Q.hopper = false;
        const std::vector<float> elsewhere = d.run(0, n);
        Q.hopper = hopper;
        compare(c, elsewhere, 0, n, "prefill by the other kernel");
        check(elsewhere == want[0] || s.head_dim > 128, "%u/%u heads of %u: other bits elsewhere",
              s.n_head, s.n_head_kv, s.head_dim);
    };
    for (const struct shape &s : shapes)
        all(s);
    for (const struct shape &s : special_shapes)
        all(s);
    struct shape window = shapes[1]; // longer than a split: several blocks share one
    window.n_swa = full_size() ? 3000 : 140;
    left_out = 0;
    all(window);
}

static const struct tap_test tests[] = {
    {"a prompt has the same bits however it is cut", a_prompt_has_the_same_bits_however_it_is_cut},
    {"packed results are the plain ones", packed_results_are_the_plain_ones},
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
