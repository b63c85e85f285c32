// Products of many columns, on matrix units and by cuBLAS, against a plain reference in double; a
// column has the same bits in any company.
#include "gemm_case.h"

static void gemm_agrees_for_odd_shapes(void)
{
    struct random_stream r = {18};
    for (uint32_t type :
         {(uint32_t)QUANT_F32, (uint32_t)QUANT_BF16, (uint32_t)QUANT_Q4_K, (uint32_t)QUANT_IQ4_NL})
        for (uint32_t n_col : {25u, 33u}) {
            const uint32_t n = quant_info(type)->block_elems == 1 ? 172 : 256, rows = 43;
            const uint32_t ld = gemm_ld(n);
            test_matrix m(r, type, rows, n);
            std::vector<float> x = spread(r.floats(n * n_col), n), bias = r.floats(rows, 1e-9);
            device_array<float> dx(x), y(r.floats(n_col * rows)), xf(n_col * ld), undo(n_col);
            device_array<float> db(bias);
            device_array<__half> xh(n_col * ld);
            device_array<uint8_t> tile(16 * ld * 4); // rows in several turns
            struct act_f16 f16 = {xh.p, ld, undo.p, 0.0f, nullptr};
            must(act_launch(&Q, dx.p, n_col, n, nullptr, 0, nullptr, xf.p, &f16, &ERR));
            const void *in = type == QUANT_F32 ? (const void *)xf.p : (const void *)xh.p;
            m.w.half_scale = type == QUANT_F32 ? 1.0f : 1024.0f;
            must(gemm_launch(&Q, &m.w, in, n_col, y.p, rows, 1.0f, 0.0f, tile.p, tile.n, &ERR));
            must(finish_product_launch(&Q, y.p, type == QUANT_F32 ? nullptr : undo.p, db.p, 0.0f,
                                       false, y.p, n_col, rows, &ERR));
            product p = reference(m, x, n_col);
            for (size_t i = 0; i < p.y.size(); i++)
                p.y[i] += bias[i % rows];
            double w = worst(y.get(), p.y, p.size);
            check(w <= (type == QUANT_F32 ? FLOAT_TOLERANCE : HALF_TOLERANCE),
                  "%s, %u columns: off by %g", quant_info(type)->name, n_col, w);
            if (type != QUANT_F32)
                continue;
            // twice what there is, and a part of the product
            must(gemm_launch(&Q, &m.w, in, n_col, y.p, rows, 0.22f, 2.0f, tile.p, tile.n, &ERR));
            for (size_t i = 0; i < p.y.size(); i++)
                p.y[i] = 2 * p.y[i] + (double)0.22f * (p.y[i] - bias[i % rows]);
            w = worst(y.get(), p.y, p.size);
            check(w <= 2 * FLOAT_TOLERANCE, "F32 added in part, %u columns: off by %g", n_col, w);
        }
}

static void ranges_of_weights_are_those_of_the_reference(void)
{
    struct random_stream r = {29};
    for (uint32_t type : ALL_TYPES) {
        const uint32_t n = quant_info(type)->block_elems == 1 ? 173 : 256, rows = 75;
        test_matrix m(r, type, rows, n);
        std::vector<float> norm = r.floats(n, 3.0), bias = r.floats(rows, 50.0);
        device_array<float> dn(norm), db(bias);
        double top = 0, bound = 0;
        for (uint32_t i = 0; i < rows; i++) {
            double sum = 0;
            for (uint32_t k = 0; k < n; k++) {
                double w = m.values[(size_t)i * n + k];
                top = fmax(top, fabs(w));
                sum += w * norm[k] * w * norm[k];
            }
            bound = fmax(bound, sqrt(sum * n) + fabs(bias[i]));
        }
        struct weight_range got = range_of(m, dn.p, db.p);
        check(fabs(got.top - top) <= 1e-5 * top && fabs(got.bound - bound) <= 1e-5 * bound,
              "%s: %g and %g, expected %g and %g", quant_info(type)->name, got.top, got.bound, top,
              bound);
    }
    for (double top = 1e-30; top < 1e38; top *= 1.9) {
        double scale = half_range((float)top);
        check(top * scale <= 32768 && top * scale > 16384, "%g times %g", top, scale);
        check(scale * half_range_undo((float)scale) == 1, "%g is not undone", scale);
    }
    check(half_range(0.0f) == 1 && isnan(half_range(INFINITY)) && isnan(half_range(NAN)) &&
              isnan(half_range_undo(NAN)),
          "zero, or no numbers");
}

static void packed_activations_are_the_plain_ones(void)
{
    struct random_stream r = {24};
    for (uint32_t n_cols : {7u, 172u, 256u, 896u, 1000u, 8u, 173u, 384u}) {
        const uint32_t n = 11, ld = gemm_ld(n_cols);
        const uint32_t forms[] = {GEMM_FEW_PACKED, GEMM_PACKED, BY_WIDE};
        gemm_case c(r, n, n_cols, forms[n_cols % 8 < 5 ? n_cols / 4 % 2 * 2 : 1]);
        const uint32_t ld32 = act_f32_ld(n_cols);
        device_array<__half> plain(n * ld);
        device_array<float> single(n * ld32);
        device_array<float> undone(n);
        struct act_f16 f16 = {plain.p, ld, undone.p, 0.0f, nullptr};
        must(act_launch(&Q, c.dx.p, n, n_cols, nullptr, 0, nullptr, single.p, &f16, &ERR));
        std::vector<__half> want = plain.get();
        std::vector<float> undo = undone.get();
        std::vector<float> packed = c.undo.get();
        packed.resize(n);
        check(undo == packed, "%u columns: other scales when packed", n_cols);
        std::vector<float> want32 = single.get();
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t k = 0; k < ld; k++) {
                float a = __half2float(want[i * ld + k]) * undo[i];
                float b = k < n_cols ? c.x[(size_t)i * n_cols + k] : 0.0f;
                check(fabs(a - b) <= 5e-4 * fabs(b), "%u columns: row %u column %u: %g, %g", n_cols,
                      i, k, a, b);
            }
            for (uint32_t k = 0; k < ld32; k++)
                check(want32[i * ld32 + k] == (k < n_cols ? c.x[(size_t)i * n_cols + k] : 0.0f),
                      "%u columns: row %u column %u is %g", n_cols, i, k, want32[i * ld32 + k]);
        }
        std::vector<uint8_t> raw = c.packed.get();
        const __half *got = (const __half *)raw.data();
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = 0; k < (n_cols + 127) / 128 * 128; k++) {
                float a = __half2float(got[c.at(i, k, n_cols)]);
                float b = k < n_cols ? __half2float(want[i * ld + k]) : 0.0f;
                check(a == b, "%u columns: row %u column %u: %g, expected %g", n_cols, i, k, a, b);
            }
    }
}

static void matrix_products_agree_for_every_type_and_shape(void)
{
    struct random_stream r = {25};
    for (uint32_t type : ALL_TYPES) {
        if (type == QUANT_F32)
            continue;
        const bool plain = quant_info(type)->block_elems == 1;
        std::vector<uint32_t> widths = {plain ? 172u : 256u, plain ? 904u : 768u};
        widths.push_back(full_size() ? 4096 : plain ? 2376u : 2304u); // chunks of several steps
        for (uint32_t width : widths)
            for (uint32_t n : {2u, 9u, 20u, 28u, 40u, 64u, 70u, 300u}) {
                if (!gemm_case::can(n <= 40) || (width > 1000 && !full_size() && n / 10 != 2))
                    continue;
                uint32_t rows = n == 300 ? (full_size() ? 2300 : 300) : n == 70 ? 300 : 43;
                // many columns and long rows, for the reference's sake, with two types only
                if (n > 64 &&
                    (width > 256) + !full_size() > (type == QUANT_Q4_K || type == QUANT_F16))
                    continue;
                gemm_case c(r, n, width, n <= 40 ? GEMM_FEW_PACKED : GEMM_PACKED);
                test_matrix m(r, type, rows, width);
                std::vector<float> old = r.floats((size_t)n * rows, 10.0), bias = r.floats(rows);
                device_array<float> y(old), db(bias);
                struct gemm g = c.args(MATVEC_ADD);
                g.w[0] = with_half_scale(m);
                g.y[0] = y.p;
                g.bias[0] = db.p;
                g.n_part = 1;
                c.launch(g);
                product p = reference(m, c.x, n);
                for (size_t i = 0; i < p.y.size(); i++)
                    p.y[i] += old[i] + bias[i % rows], p.size[i] += 1e-3;
                std::vector<float> got = y.get();
                double w = worst(got, p.y, p.size);
                check(w <= HALF_TOLERANCE, "%s %u x %u, %u columns: off by %g",
                      quant_info(type)->name, rows, width, n, w);
                if (quick() && width == widths[(type + n / 3) % 2]) { // the rest of the others
                    c.check_counters();
                    continue;
                }
                y.put(old);
                c.launch(g);
                check(y.get() == got, "%s %u x %u, %u columns: other bits the second time",
                      quant_info(type)->name, rows, width, n);
                y.put(old);
                g.scale = 0.22f;
                c.launch(g);
                for (size_t i = 0; i < p.y.size(); i++)
                    p.y[i] = old[i] + bias[i % rows] +
                             (double)g.scale * (p.y[i] - old[i] - bias[i % rows]);
                w = worst(y.get(), p.y, p.size);
                check(w <= HALF_TOLERANCE, "%s %u x %u, %u columns, in part: off by %g",
                      quant_info(type)->name, rows, width, n, w);
                c.check_counters();
            }
    }
}

// The launch again by one multiprocessor, whose warps have pairs of tiles of their own.
static void launch_on_one(gemm_case &c, const struct gemm &g)
{
    const int n_sm = Q.n_sm;
    Q.n_sm = 1;
    c.launch(g);
    Q.n_sm = n_sm;
}

// Q, K and V at once; gate and up at once.
static void matrix_products_of_several_matrices_agree(void)
{
    struct random_stream r = {26};
    for (uint32_t n : {12u, 100u}) {
        if (!gemm_case::can(n == 12))
            return;
        const uint32_t width = 256, rows[3] = {136, 40, 129};
        gemm_case c(r, n, width, n == 12 ? GEMM_FEW_PACKED : GEMM_PACKED);
        test_matrix a(r, QUANT_Q4_K, rows[0], width), b(r, QUANT_Q4_K, rows[1], width);
        test_matrix d(r, QUANT_Q4_K, rows[2], width);
        const test_matrix *m[3] = {&a, &b, &d};
        device_array<float> y0(n * rows[0]), y1(n * rows[1]), y2(n * rows[2]);
        const device_array<float> *y[3] = {&y0, &y1, &y2};
        struct gemm g = c.args(MATVEC_STORE);
        for (int i = 0; i < 3; i++) {
            g.w[i] = m[i]->w;
            g.y[i] = y[i]->p;
        }
        g.n_part = 3;
        c.launch(g);
        for (int i = 0; i < 3; i++) {
            product p = reference(*m[i], c.x, n);
            double w = worst(y[i]->get(), p.y, p.size);
            check(w <= HALF_TOLERANCE, "part %d, %u columns: off by %g", i, n, w);
        }
        for (int i = 0; i < 3 && n == 12; i++) {
            const std::vector<float> got = y[i]->get();
            launch_on_one(c, g);
            check(y[i]->get() == got, "part %d, %u columns: other bits on one multiprocessor", i,
                  n);
        }
        c.check_counters();
    }
    for (uint32_t rows : {24u, 200u, 384u, 25u, 201u}) {
        const bool few = rows % 2;
        const uint32_t width = 256, n = rows == 201 ? GEMM_FEW + 6 : 13; // a second group of few
        if (!gemm_case::can(few))
            continue;
        gemm_case c(r, n, width, few ? GEMM_FEW_PACKED : GEMM_PACKED);
        for (uint32_t i = 0; i < n; i++) // gates of every sign, not only large ones, and tiny ones
            for (uint32_t k = 0; k < width; k++)
                c.x[i * width + k] = (float)(r.uniform() * (i % 3 == 0 ? 1e-6 : 0.2));
        test_matrix gate(r, QUANT_Q5_K, rows, width), up(r, QUANT_Q5_K, rows, width);
        device_array<uint8_t> out(gemm_few_bytes(n, rows));
        gate.w.half_scale = 16.0f, up.w.half_scale = 64.0f; // the smaller one is taken
        c.pack(range_of(gate).bound * range_of(up).bound);
        struct gemm g = c.args(MATVEC_GATED);
        g.w[0] = gate.w;
        g.w[1] = up.w;
        g.n_part = 2;
        g.out = (__half *)out.p;
        g.undo_out = c.undo_gated.p;
        product pg = reference(gate, c.x, n), pu = reference(up, c.x, n);
        for (enum activation act : GATES) {
            out.spoil();
            g.act = act;
            c.launch(g);
            std::vector<uint8_t> raw = out.get();
            if (few) {
                out.spoil();
                launch_on_one(c, g);
                check(out.get() == raw, "gated, %d: other bits on one multiprocessor", act);
            }
            const __half *got = (const __half *)raw.data();
            std::vector<float> undo = c.undo_gated.get();
            for (uint32_t i = 0; i < n; i++)
                for (uint32_t k = 0; k < (rows + 127) / 128 * 128; k++) {
                    double a = __half2float(got[c.at(i, k, rows)]) * undo[i];
                    size_t at = (size_t)i * rows + k;
                    double want = 0, size = 1e-30;
                    if (k < rows) {
                        want = activated(act, pg.y[at]) * pu.y[at];
                        size = pg.size[at] * fabs(pu.y[at]) + pu.size[at] * fabs(pg.y[at]) +
                               fabs(want);
                    }
                    check(fabs(a - want) <= HALF_TOLERANCE * size,
                          "gated, %d: row %u column %u: %g, expected %g", act, i, k, a, want);
                }
        }
    }
}

// Few blocks: each takes many steps in a row, so that slots of its ring are filled again, and goes
// from one tile to the next in between. With four each has one of the tiles of 128 columns.
static void matrix_products_of_few_blocks_agree(void)
{
    struct random_stream r = {27};
    const int n_sm = Q.n_sm;
    for (uint32_t type : {(uint32_t)QUANT_Q4_K, (uint32_t)QUANT_F16})
        for (uint32_t n : {9u, 100u, 256u}) { // tiles of 64, 128 and 256 columns
            if (!Q.hopper)
                return;
            const uint32_t width = type == QUANT_F16 ? 904 : 1280, rows = 200;
            test_matrix m(r, type, rows, width);
            for (int few : {1, 3, 4}) {
                Q.n_sm = few;
                gemm_case c(r, n, width);
                device_array<float> y((size_t)n * rows);
                struct gemm g = c.args(MATVEC_STORE);
                g.w[0] = m.w;
                g.y[0] = y.p;
                g.n_part = 1;
                c.launch(g);
                std::vector<float> got = y.get();
                product p = reference(m, c.x, n);
                double w = worst(got, p.y, p.size);
                check(w <= HALF_TOLERANCE, "%s, %u columns, %d multiprocessors: off by %g",
                      quant_info(type)->name, n, few, w);
                c.launch(g);
                check(y.get() == got, "%s, %u columns, %d multiprocessors: other bits again",
                      quant_info(type)->name, n, few);
                c.check_counters();
                Q.n_sm = n_sm;
            }
        }
}

// The first column of all, as the last of each number of columns: in the order of `counts`, of
// which the first decides. Where blocks are few a warp has all chunks of some pairs of tiles.
static void same_in_any_company(struct random_stream &r, uint32_t type, uint32_t rows,
                                uint32_t width, const std::vector<uint32_t> &counts)
{
    const int n_sm = Q.n_sm;
    test_matrix m(r, type, rows, width);
    const struct wmat w = with_half_scale(m);
    const uint32_t most = *std::max_element(counts.begin(), counts.end());
    const std::vector<float> all = gemm_case(r, most, width, GEMM_FEW_PACKED).x;
    // gemm_wide has the bits of gemm_few, which with long chunks has those of gemm_hopper
    std::vector<float> of_chunks[2];
    for (uint32_t n : counts)
        for (uint32_t form : {(uint32_t)GEMM_FEW_PACKED, (uint32_t)BY_WIDE, (uint32_t)FEW_LONG,
                              (uint32_t)GEMM_PACKED}) {
            const bool few = form == GEMM_FEW_PACKED || form == FEW_LONG;
            // as the engine does, and some more for a comparison
            if ((form == BY_WIDE && n <= 32) || (form == FEW_LONG && n > GEMM_FEW) ||
                (form == GEMM_PACKED && n > 2 && n < GEMM_FEW) || !gemm_case::can(few))
                continue;
            std::vector<float> &want = of_chunks[form == FEW_LONG || form == GEMM_PACKED];
            gemm_case c(r, n, width, form);
            Q.n_sm = n % 2 ? 1 + n / 16 : n_sm;
            for (uint32_t i = 0; i < n; i++)
                memcpy(&c.x[(size_t)i * width], &all[(size_t)(n - 1 - i) * width],
                       width * sizeof(float));
            c.pack(0.0f);
            device_array<float> y((size_t)n * rows);
            struct gemm g = c.args(MATVEC_STORE);
            g.w[0] = w;
            g.y[0] = y.p;
            g.n_part = 1;
            g.alone = type % 2; // which cuts long rows otherwise
            c.launch(g);
            std::vector<float> got = y.get();
            got.erase(got.begin(), got.end() - rows);
            if (want.empty())
                want = got;
            check(got == want, "%s, %u wide, of %u columns%s: other bits", quant_info(type)->name,
                  width, n,
                  form == BY_WIDE       ? " by gemm_wide"
                  : form == GEMM_PACKED ? " by gemm_hopper"
                  : form == FEW_LONG    ? " in long chunks"
                                        : "");
            Q.n_sm = n_sm;
        }
}

// What a column gives depends neither on the others, nor on their number, nor on the blocks.
static void a_column_has_the_same_bits_in_any_company(void)
{
    struct random_stream r = {31};
    const std::vector<uint32_t> every = {1,  2,  3,  4,  5,  6,  7,  8,   9,
                                         13, 17, 25, 32, 33, 64, 65, 100, 200};
    const std::vector<uint32_t> some = {1, 2, 8, 9, 17, 25, 32, 33, 64, 65, 100};
    for (uint32_t type : {(uint32_t)QUANT_Q4_K, (uint32_t)QUANT_Q6_K, (uint32_t)QUANT_F16})
        for (uint32_t width : {256u, 1024u, 2304u, 4864u, 9472u})
            if (width <= 2304 || (type == QUANT_Q4_K && (width <= 4864 || full_size())))
                same_in_any_company(r, type, width > 2304 ? 200 : 610, width,
                                    quick() && width > 256 ? some : every);
    uint32_t turn = 0;
    for (uint32_t type : ALL_TYPES) {
        if (type == QUANT_F32) // is not multiplied on matrix units
            continue;
        turn++;
        same_in_any_company(r, type, 75, 768,
                            !quick()   ? every
                            : turn % 4 ? std::vector<uint32_t>{1, 2 + turn % 7, 13, 64}
                                       : std::vector<uint32_t>{1, 2 + turn % 7, 13, 64, 200});
    }
}

// Gate and up of prompts have chunks of their own, and where blocks or warps are chained tiles
// begin and end anywhere: the first columns of any number, by both kernels.
static void same_gated_in_any_company(struct random_stream &r, uint32_t width, uint32_t rows,
                                      const std::vector<uint32_t> &counts)
{
    const int n_sm = Q.n_sm;
    test_matrix gate(r, QUANT_Q4_K, rows, width), up(r, QUANT_Q4_K, rows, width);
    const std::vector<float> all = gemm_case(r, counts.back(), width, GEMM_PACKED).x;
    std::vector<uint16_t> want;
    for (uint32_t n : counts) {
        const std::vector<float> x(all.begin(), all.begin() + (size_t)n * width);
        gemm_case c(x, n, width, n <= 32 ? (uint32_t)FEW_LONG : (uint32_t)GEMM_PACKED);
        c.pack(range_of(gate).bound * range_of(up).bound);
        device_array<uint8_t> out(gemm_few_bytes(n, rows));
        struct gemm g = c.args(MATVEC_GATED);
        g.w[0] = with_half_scale(gate);
        g.w[1] = with_half_scale(up);
        g.n_part = 2;
        g.act = ACT_SILU;
        g.out = (__half *)out.p;
        g.undo_out = c.undo_gated.p;
        for (int few : {1, 3, n_sm}) {
            Q.n_sm = few;
            out.spoil();
            c.launch(g);
            Q.n_sm = n_sm;
            const std::vector<uint8_t> raw = out.get();
            std::vector<uint16_t> got; // of two columns
            for (uint32_t i = 0; i < 2; i++)
                for (uint32_t k = 0; k < rows; k++)
                    got.push_back(((const uint16_t *)raw.data())[c.at(i, k, rows)]);
            if (want.empty())
                want = got;
            check(got == want, "gated, %u wide, of %u columns, %d multiprocessors: other bits",
                  width, n, few);
            c.check_counters();
        }
    }
}

static void gated_columns_have_the_same_bits_in_any_company(void)
{
    if (!Q.hopper)
        return;
    struct random_stream r = {53};
    const uint32_t width = full_size() ? 3584 : 512, rows = (full_size() ? 3 : 2) * width + 128;
    same_gated_in_any_company(r, width, rows, {2, 13, 32, 33, 70, 130, 300});
    same_gated_in_any_company(r, 1280, 3848, {2, 32, 33}); // a warp's share begins within a row
}

#ifdef HOKKU_CUDA_ON_CPU
extern "C" size_t emu_last_smem(void);

// Two blocks of a multiprocessor are there at once, whatever shared memory it has.
static void two_blocks_of_few_columns_find_room(void)
{
    struct random_stream r = {48};
    const struct queue q = Q;
    test_matrix m(r, QUANT_Q4_K, 3200, 256);
    for (size_t kb : {100u, 164u, 228u}) {
        gemm_case c(r, 16, 256, GEMM_FEW_PACKED);
        device_array<float> y((size_t)16 * 3200);
        c.pack(0.0f);
        struct gemm g = c.args(MATVEC_STORE);
        g.w[0] = m.w;
        g.y[0] = y.p;
        g.n_part = 1;
        Q.n_sm = 1;
        Q.smem_sm = kb << 10;
        Q.smem_max = Q.smem_sm - 1024;
        c.launch(g);
        Q = q;
        check(2 * (emu_last_smem() + 1024) <= kb << 10, "%zu KB: blocks of %zu bytes", kb,
              emu_last_smem());
        check(emu_last_smem() > (kb == 228 ? 64 << 10 : 40 << 10), "%zu KB: only %zu bytes", kb,
              emu_last_smem());
    }
}
#endif

// Launches with one input, of which each may begin once that is complete.
static void products_beside_each_other_give_what_they_give_alone(void)
{
    enum { N = 3, COLUMNS = 5, WIDTH = 512, ROWS = 72 };
    struct random_stream r = {47};
    test_matrix m[N] = {
        {r, QUANT_Q4_K, ROWS, WIDTH}, {r, QUANT_Q6_K, ROWS, WIDTH}, {r, QUANT_Q8_0, ROWS, WIDTH}};
    std::vector<float> want[N];
    gemm_case c(r, COLUMNS, WIDTH, GEMM_FEW_PACKED);
    for (int round = 0; round < 20; round++) {
        const bool alone = round == 0;
        device_array<float> a((size_t)COLUMNS * ROWS), b(a.n), d(a.n);
        device_array<float> *const y[N] = {&a, &b, &d};
        c.pack(0.0f); // its last launch is the one before
        for (int i = 0; i < N; i++) {
            struct gemm g = c.args(MATVEC_STORE);
            g.w[0] = m[i].w;
            g.y[0] = y[i]->p;
            g.n_part = 1;
            g.leads = !alone && i + 1 < N;
            g.follows = !alone && i > 0;
            c.launch(g);
        }
        for (int i = 0; i < N; i++) {
            if (alone)
                want[i] = y[i]->get();
            check(y[i]->get() == want[i], "product %d, round %d: other bits", i, round);
        }
    }
}

// Matrices of two types, as queries and keys beside values have them.
static void two_types_in_one_launch_give_what_each_gives_alone(void)
{
    enum { N = 3, WIDTH = 1024 };
    const struct {
        uint32_t type, other, most; // columns
    } both[] = {
        {QUANT_Q4_K, QUANT_Q6_K, 32}, {QUANT_Q5_K, QUANT_Q6_K, 32}, {QUANT_Q5_0, QUANT_Q8_0, 24}};
    struct random_stream r = {48};
    for (auto &b : both)
        for (uint32_t columns : {1u, 11u, 24u, 32u, 33u}) {
            const uint32_t rows[N] = {200, 24, 72};
            test_matrix m[N] = {{r, b.type, rows[0], WIDTH},
                                {r, b.type, rows[1], WIDTH},
                                {r, b.other, rows[2], WIDTH}};
            const bool takes = gemm_few_takes_both(&m[0].w, &m[2].w, columns);
            check(takes == (columns <= b.most), "types %u and %u, %u columns: taken %d", b.type,
                  b.other, columns, takes);
            if (!takes)
                continue;
            gemm_case c(r, columns, WIDTH, GEMM_FEW_PACKED);
            device_array<float> bias(r.floats(rows[2])), y0((size_t)columns * rows[0]),
                y1((size_t)columns * rows[1]), y2((size_t)columns * rows[2]);
            device_array<float> *const y[N] = {&y0, &y1, &y2};
            const auto launch = [&](int begin, int end, int n_other) {
                struct gemm g = c.args(MATVEC_STORE);
                for (int i = begin; i < end; i++) {
                    y[i]->spoil();
                    g.w[g.n_part] = with_half_scale(m[i]);
                    g.bias[g.n_part] = i == 2 ? bias.p : nullptr;
                    g.y[g.n_part++] = y[i]->p;
                }
                g.n_other = n_other;
                c.launch(g);
            };
            std::vector<float> want[N];
            launch(0, 2, 0);
            launch(2, 3, 0);
            for (int i = 0; i < N; i++)
                want[i] = y[i]->get();
            launch(0, 3, 1);
            for (int i = 0; i < N; i++)
                check(y[i]->get() == want[i], "types %u and %u, %u columns, part %d: other bits",
                      b.type, b.other, columns, i);
        }
}

// Tiles of 128 and of 256 columns, for which weights are brought to shared memory in steps of 128;
// rows that end within a step, behind which there are other weights.
static void wide_tiles_agree_where_rows_end(void)
{
    static const struct {
        uint32_t type, width;
    } cases[] = {{QUANT_Q4_0, 352}, {QUANT_Q4_1, 416},   {QUANT_IQ4_NL, 928}, {QUANT_NVFP4, 448},
                 {QUANT_Q8_0, 352}, {QUANT_MXFP4, 352},  {QUANT_Q2_K, 768},   {QUANT_Q4_K, 768},
                 {QUANT_Q6_K, 512}, {QUANT_IQ4_XS, 512}, {QUANT_F16, 904},    {QUANT_BF16, 360}};
    struct random_stream r = {34};
    for (const auto &of : cases)
        for (uint32_t n : {100u, 200u}) {
            const uint32_t rows = 150, bad = TILE_ROWS; // the first row of a tile
            if (!gemm_case::can(false))
                continue;
            gemm_case c(r, n, of.width);
            test_matrix m(r, of.type, rows, of.width);
            device_array<float> y(std::vector<float>((size_t)n * rows));
            struct gemm g = c.args(MATVEC_STORE);
            g.w[0] = with_half_scale(m);
            g.y[0] = y.p;
            g.n_part = 1;
            c.launch(g);
            const std::vector<float> got = y.get();
            const product p = reference(m, c.x, n);
            const double w = worst(got, p.y, p.size);
            check(w <= HALF_TOLERANCE, "%s %u x %u, %u columns: off by %g",
                  quant_info(of.type)->name, rows, of.width, n, w);
            if (of.type == QUANT_Q4_0) { // scales of a tile become NaN
                const size_t bytes = of.width / 32 * TILE_ROWS * 2;
                const std::vector<uint16_t> scales(bytes / 2, 0x7E00);
                must(CHECK_CUDA(cudaMemcpyAsync((void *)(m.w.d + bytes), scales.data(), bytes,
                                                cudaMemcpyHostToDevice, Q.stream),
                                &ERR));
                c.launch(g);
                const std::vector<float> now = y.get();
                for (size_t i = 0; i < now.size(); i++)
                    if (i % rows / TILE_ROWS == bad / TILE_ROWS ? !isnan(now[i])
                                                                : now[i] != got[i]) {
                        check(false, "row %zu, %u columns: %g, without a NaN beside it %g",
                              i % rows, n, now[i], got[i]);
                        break;
                    }
            }
            c.check_counters();
        }
}

// gemm_wide and gemm_few, on one device.
static void many_columns_have_the_bits_of_few(void)
{
    struct random_stream r = {32};
    const int n_sm = Q.n_sm;
    if (!Q.hopper)
        return;
    for (uint32_t type : ALL_TYPES) {
        if (type == QUANT_F32)
            continue;
        const bool plain = quant_info(type)->block_elems == 1, one = type == QUANT_Q4_K;
        for (uint32_t width : {plain ? 904u : 768u, plain ? 2376u : 2304u, 4864u})
            for (uint32_t n : {20u, 40u, 64u, 70u, 150u}) {
                const uint32_t usual = plain ? 70u : type % 2 ? 40u : 20u;
                if (!full_size() && !one && (width == 4864 || n != usual))
                    continue;
                const uint32_t rows = n <= 40 ? 43 : 200;
                test_matrix m(r, type, rows, width);
                const struct wmat w = with_half_scale(m);
                gemm_case few(r, n, width, GEMM_FEW_PACKED), wide(r, n, width, BY_WIDE);
                wide.x = few.x;
                wide.pack(0.0f);
                const std::vector<float> old = r.floats((size_t)n * rows, 10.0);
                std::vector<float> want;
                for (int blocks : {0, 1, 5, n_sm}) { // 0: gemm_few
                    device_array<float> y(old);
                    gemm_case &c = blocks ? wide : few;
                    struct gemm g = c.args(MATVEC_ADD);
                    g.scale = 0.37f;
                    g.w[0] = w;
                    g.y[0] = y.p;
                    g.n_part = 1;
                    Q.n_sm = blocks ? blocks : n_sm;
                    c.launch(g);
                    Q.n_sm = n_sm;
                    if (blocks)
                        check(y.get() == want, "%s %u x %u, %u columns, %d blocks: other bits",
                              quant_info(type)->name, rows, width, n, blocks);
                    else
                        want = y.get();
                }
                wide.check_counters();
            }
    }
    for (uint32_t n : {20u, 40u, 70u}) { // gate and up
        const uint32_t width = 2304, rows = 200;
        gemm_case few(r, n, width, GEMM_FEW_PACKED), wide(r, n, width, BY_WIDE);
        test_matrix gate(r, QUANT_Q5_K, rows, width), up(r, QUANT_Q5_K, rows, width);
        gemm_case *const cases[] = {&few, &wide};
        std::vector<uint8_t> raw[2];
        for (int i = 0; i < 2; i++) {
            gemm_case &c = *cases[i];
            c.x = few.x;
            c.pack(range_of(gate).bound * range_of(up).bound);
            device_array<uint8_t> out(gemm_few_bytes(n, rows));
            out.spoil();
            struct gemm g = c.args(MATVEC_GATED);
            g.w[0] = gate.w;
            g.w[1] = up.w;
            g.n_part = 2;
            g.out = (__half *)out.p;
            g.undo_out = c.undo_gated.p;
            g.act = GATES[0];
            c.launch(g);
            raw[i] = out.get();
        }
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = 0; k < (rows + 127) / 128 * 128; k++)
                check(memcmp(&raw[0][2 * few.at(i, k, rows)], &raw[1][2 * wide.at(i, k, rows)],
                             2) == 0,
                      "gated, %u columns: row %u column %u has other bits", n, i, k);
    }
}

static const struct tap_test tests[] = {
    {"matrix products agree for odd shapes", gemm_agrees_for_odd_shapes},
    {"ranges of weights are those of the reference", ranges_of_weights_are_those_of_the_reference},
    {"packed activations are the plain ones", packed_activations_are_the_plain_ones},
    {"products on matrix units agree for every type and shape",
     matrix_products_agree_for_every_type_and_shape},
    {"products on matrix units of several matrices agree",
     matrix_products_of_several_matrices_agree},
    {"products on matrix units of few blocks agree", matrix_products_of_few_blocks_agree},
    {"a column has the same bits in any company", a_column_has_the_same_bits_in_any_company},
    {"gated columns have the same bits in any company",
     gated_columns_have_the_same_bits_in_any_company},
#ifdef HOKKU_CUDA_ON_CPU
    {"two blocks of few columns find room", two_blocks_of_few_columns_find_room},
#endif
    {"products beside each other give what they give alone",
     products_beside_each_other_give_what_they_give_alone},
    {"two types in one launch give what each gives alone",
     two_types_in_one_launch_give_what_each_gives_alone},
    {"wide tiles agree where rows end", wide_tiles_agree_where_rows_end},
    {"many columns have the bits of few", many_columns_have_the_bits_of_few},
};

int main(void)
{
    return gpu_test_main(tests);
}
