// Every product with cuBLAS as a second opinion: the weights as the reference dequantises them,
// times the same inputs, all in float32. On a GPU matrices are as large as those of real models.
#include <string>

#include "expert_case.h"
#include "gemm_case.h"

// Rows of weights w times columns x, of n_cols numbers each.
static product by_cublas(const std::vector<float> &w, const std::vector<float> &x, uint32_t n_cols)
{
    const int k = (int)n_cols, rows = (int)(w.size() / n_cols), n = (int)(x.size() / n_cols);
    const float one = 1.0f, zero = 0.0f;
    device_array<float> dw(w), dx(x), y((size_t)n * rows);
    const cublasStatus_t s = cublasGemmEx(
        Q.blas, CUBLAS_OP_T, CUBLAS_OP_N, rows, n, k, &one, dw.p, CUDA_R_32F, k, dx.p, CUDA_R_32F,
        k, &zero, y.p, CUDA_R_32F, rows, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    must(s == CUBLAS_STATUS_SUCCESS ||
         error_set(&ERR, ERR_FAIL, "cuBLAS: %s", cublasGetStatusString(s)));
    const std::vector<float> sums = y.get();
    return {{sums.begin(), sums.end()}, error_sizes(w, x, n_cols)};
}

// got: the first columns of what p has, of the weights w. Off may be half as much again as in other
// tests: there the worst of thousands is four standard errors off, here, on a GPU, that of millions
// six. And as much as cuBLAS's own sum, which rounds once per weight, independently, to 24 bits.
static void compare(const std::string &kernel, const struct wmat &w, uint32_t n,
                    const std::vector<float> &got, const product &p, double tolerance)
{
    const double off = worst(got, p.y, p.size);
    check(off <= 1.5 * tolerance + ldexp(sqrt((double)w.n_cols), -23),
          "%s, %s %u x %u, %u rows of x: off by %g", kernel.c_str(), quant_info(w.type)->name,
          w.rows, w.n_cols, n, off);
}

// ---- one matrix

static std::vector<float> by_matvec(const struct wmat &w, const std::vector<float> &x, uint32_t n,
                                    bool floats, bool alike)
{
    device_array<float> dx(x), y((size_t)n * w.rows);
    prepared_rows prepared(dx, n, w.n_cols);
    struct matvec v = {};
    v.w[0] = w;
    v.y[0] = y.p;
    v.ld[0] = w.rows;
    v.n_part = 1;
    v.n_col = n;
    v.x = floats ? dx.p : nullptr;
    v.act32 = prepared.act32.p;
    v.act_f32 = prepared.act_f32.p;
    v.alike = alike;
    y.spoil();
    if (floats && !matvec_row_fits(&Q, &v))
        v.x = nullptr; // as the engine does
    must(matvec_launch(&Q, &v, &ERR));
    return y.get();
}

// By gemm_launch, whose kernel dequantises and whose product is cuBLAS's own.
static std::vector<float> by_gemm(const struct wmat &w, const std::vector<float> &x, uint32_t n)
{
    const bool f32 = w.type == QUANT_F32;
    const uint32_t ld = gemm_ld(w.n_cols);
    device_array<float> dx(x), y((size_t)n * w.rows), xf((size_t)n * ld), undo(n);
    device_array<__half> xh((size_t)n * ld);
    device_array<uint8_t> tile((size_t)div_up(w.rows, 3u * TILE_ROWS) * TILE_ROWS * ld * 4);
    struct act_f16 f16 = {xh.p, ld, undo.p, 0.0f, nullptr};
    y.spoil();
    must(act_launch(&Q, dx.p, n, w.n_cols, nullptr, 0.0f, nullptr, xf.p, &f16, &ERR));
    must(gemm_launch(&Q, &w, f32 ? (const void *)xf.p : xh.p, n, y.p, w.rows, 1.0f, 0.0f, tile.p,
                     tile.n, &ERR));
    must(finish_product_launch(&Q, y.p, f32 ? nullptr : undo.p, nullptr, 1.0f, false, y.p, n,
                               w.rows, &ERR));
    return y.get();
}

// form: of gemm_case.
static std::vector<float> on_matrix_units(const struct wmat &w, const std::vector<float> &x,
                                          uint32_t n, uint32_t form)
{
    gemm_case c(x, n, w.n_cols, form);
    device_array<float> y((size_t)n * w.rows);
    struct gemm g = c.args(MATVEC_STORE);
    g.w[0] = w;
    g.y[0] = y.p;
    g.n_part = 1;
    y.spoil();
    c.launch(g);
    return y.get();
}

static void check_columns(const struct wmat &w, const std::vector<float> &x, uint32_t n,
                          const product &p)
{
    const double own = tolerance(w.type), half = HALF_TOLERANCE;
    if (n == 1)
        compare("matvec of floats", w, n, by_matvec(w, x, n, true, false), p, own);
    if (n <= MATVEC_MAX_COLS) {
        compare("matvec", w, n, by_matvec(w, x, n, false, false), p, own);
        compare("matvec alike", w, n, by_matvec(w, x, n, false, true), p, own);
    }
    compare("gemm", w, n, by_gemm(w, x, n), p, w.type == QUANT_F32 ? own : half);
    if (w.type == QUANT_F32)
        return;
    compare("gemm_few", w, n, on_matrix_units(w, x, n, GEMM_FEW_PACKED), p, half);
    if (!Q.hopper)
        return;
    compare("gemm_hopper", w, n, on_matrix_units(w, x, n, GEMM_PACKED), p, half);
    if (n > 32) // fewer are a matter of gemm_few
        compare("gemm_wide", w, n, on_matrix_units(w, x, n, BY_WIDE), p, half);
}

static void check_matrix(struct random_stream &r, uint32_t type, uint32_t rows, uint32_t n_cols,
                         const std::vector<uint32_t> &counts)
{
    test_matrix m(r, type, rows, n_cols);
    const struct wmat w = with_half_scale(m);
    const std::vector<float> x =
        spread(r.floats((size_t)*std::max_element(counts.begin(), counts.end()) * n_cols), n_cols);
    const product p = by_cublas(m.values, x, n_cols);
    for (uint32_t n : counts)
        check_columns(w, {x.begin(), x.begin() + (size_t)n * n_cols}, n, p);
}

static void products_agree_with_cublas(void)
{
    const std::vector<uint32_t> all = {1, 2, 3, 8, 13, 32, 64, 128, 200, 256, 512};
    struct random_stream r = {51};
    uint32_t turn = 0;
    for (uint32_t type : ALL_TYPES) {
        turn++;
        if (full_size()) {
            check_matrix(r, type, 4096, 3584, all);
            check_matrix(r, type, 515, 18944, {1, 3, 13, 64, 200});
            continue;
        }
        const std::vector<uint32_t> some[] = {{1, 3, 13, 64}, {1, 2, 8, 70}, {1, 5, 32, 130}};
        for (uint32_t i = 0; i < (quick() ? 1 : 3); i++)
            check_matrix(r, type, 43, columns(type, i ? 700 : 500), some[(turn + i) % 3]);
    }
}

// ---- matrices of experts

enum { N_EXPERT = 5, N_USED = 2 };

// Of all rows with all experts, those that chose each other, a pair after the other.
static product of_pairs(const product &all, const std::vector<uint32_t> &chosen, uint32_t n_used,
                        uint32_t rows)
{
    product p;
    for (size_t i = 0; i < chosen.size(); i++) {
        const size_t at = (i / n_used * N_EXPERT + chosen[i]) * rows;
        p.y.insert(p.y.end(), &all.y[at], &all.y[at] + rows);
        p.size.insert(p.size.end(), &all.size[at], &all.size[at] + rows);
    }
    return p;
}

static product gated_by_silu(const product &gate, const product &up)
{
    product p;
    for (size_t i = 0; i < gate.y.size(); i++) {
        p.y.push_back(gated_by(ACT_SILU, gate.y[i], up.y[i]));
        // SiLU is no steeper than 1.1
        p.size.push_back(1.1 * gate.size[i] * fabs(up.y[i]) + up.size[i] * fabs(gate.y[i]) +
                         fabs(p.y[i]));
    }
    return p;
}

// The rows of slots together.
static product summed(const product &slots, uint32_t rows)
{
    product p = {std::vector<double>(rows), std::vector<double>(rows)};
    for (size_t i = 0; i < slots.y.size(); i++) {
        p.y[i % rows] += slots.y[i];
        p.size[i % rows] += slots.size[i];
    }
    return p;
}

// Stacks of gate and up, rows of x and who chooses whom; what cuBLAS makes of all with all.
struct expert_products {
    uint32_t type, rows, n_cols;
    half_stack gate, up;
    std::vector<float> x;
    device_array<float> dx;
    product all_gate, all_up;
    hopper_case c;

    expert_products(struct random_stream &r, uint32_t type_, uint32_t rows_, uint32_t n_cols_,
                    uint32_t n)
        : type(type_), rows(rows_), n_cols(n_cols_), gate(r, type, N_EXPERT, rows, n_cols),
          up(r, type, N_EXPERT, rows, n_cols), x(spread(r.floats((size_t)n * n_cols), n_cols)),
          dx(x), all_gate(by_cublas(gate.values, x, n_cols)),
          all_up(by_cublas(up.values, x, n_cols)), c(r, n, N_EXPERT, N_USED, 0)
    {
    }
    std::vector<uint32_t> chosen(uint32_t n) const
    {
        return {c.chosen.begin(), c.chosen.begin() + n * N_USED};
    }
    void compare_pairs(const std::string &kernel, uint32_t n, const std::vector<float> &got,
                       const product &all, double allowed) const
    {
        compare(kernel, gate.w, n, got, of_pairs(all, chosen(n), N_USED, rows), allowed);
    }
};

static void check_expert_row(const expert_products &e)
{
    const std::vector<uint32_t> chosen = e.chosen(1);
    const product g = of_pairs(e.all_gate, chosen, N_USED, e.rows);
    const product u = of_pairs(e.all_up, chosen, N_USED, e.rows);
    device_array<float> y(N_USED * e.rows), sum(e.rows);
    struct expert_row m = {};
    m.mode = EXPERT_STORE;
    m.w[0] = e.gate.w;
    m.w[1] = e.up.w;
    m.chosen = e.c.dc.p;
    m.n_slot = N_USED;
    m.x = e.dx.p;
    m.y = y.p;
    y.spoil();
    must(expert_row_launch(&Q, &m, &ERR));
    compare("expert_row", e.gate.w, 1, y.get(), g, tolerance(e.type));
    m.mode = EXPERT_GATED;
    m.act = ACT_SILU;
    must(expert_row_launch(&Q, &m, &ERR));
    compare("expert_row gated", e.gate.w, 1, y.get(), gated_by_silu(g, u), tolerance(e.type));
    m.mode = EXPERT_SUM; // each expert has a row of its own
    m.own_rows = true;
    m.sum.scale = 1.0f;
    m.sum.y = sum.p;
    sum.spoil();
    must(expert_row_launch(&Q, &m, &ERR));
    compare("expert_row summed", e.gate.w, N_USED, sum.get(),
            summed(of_pairs(e.all_gate, chosen, 1, e.rows), e.rows), tolerance(e.type));
}

// By expert_rows and expert_tiles.
static void check_expert_rows(expert_products &e, uint32_t n)
{
    device_array<float> y((size_t)n * N_USED * e.rows), z(y.n);
    prepared_rows prepared(e.dx, n, e.n_cols);
    struct expert_rows m = {};
    m.w[0] = e.gate.w;
    m.w[1] = e.up.w;
    m.y[0] = y.p;
    m.y[1] = z.p;
    m.n_part = 2;
    m.n_row = n;
    m.n_used = N_USED;
    m.act32 = prepared.act32.p;
    m.act_f32 = prepared.act_f32.p;
    for (uint32_t per_item : {(uint32_t)EXPERT_FEW, 8u, 16u, (uint32_t)EXPERT_ITEM}) {
        m.per_item = per_item;
        m.n_item = expert_items(N_EXPERT, n * N_USED, per_item);
        device_array<struct expert_item> items(m.n_item);
        e.c.group(items, n, per_item);
        m.items = items.p;
        m.pair_at = e.c.pair_at.p;
        y.spoil();
        z.spoil();
        must(expert_rows_launch(&Q, &m, &ERR));
        e.compare_pairs("expert_rows by " + std::to_string(per_item), n,
                        e.c.by_pair(y.get(), n, e.rows), e.all_gate, tolerance(e.type));
        e.compare_pairs("expert_rows by " + std::to_string(per_item) + ", second", n,
                        e.c.by_pair(z.get(), n, e.rows), e.all_up, tolerance(e.type));
    }
}

// All rows with the first matrix: plain weights by both kernels of expert_plain.
static void check_ungrouped_rows(const expert_products &e, uint32_t n)
{
    device_array<float> y((size_t)n * e.rows);
    prepared_rows prepared(e.dx, n, e.n_cols);
    struct expert_rows m = {};
    m.w[0] = e.gate.w;
    m.y[0] = y.p;
    m.n_part = 1;
    m.n_row = n;
    m.n_used = 1;
    m.act32 = prepared.act32.p;
    m.act_f32 = prepared.act_f32.p;
    m.per_item = EXPERT_ITEM;
    m.n_item = div_up(n, m.per_item);
    const product p = of_pairs(e.all_gate, std::vector<uint32_t>(n), 1, e.rows);
    for (int n_sm : {1, 1 << 20}) { // which of them depends on whether there are enough blocks
        struct queue q = Q;
        q.n_sm = n_sm;
        y.spoil();
        must(expert_rows_launch(&q, &m, &ERR));
        compare("expert_rows ungrouped", e.gate.w, n, y.get(), p, tolerance(e.type));
        m.split = true;
        for (bool any : {true, false}) {
            m.any_bits = any;
            if (!expert_split_takes(&q, &m))
                continue;
            y.spoil();
            must(expert_rows_launch(&q, &m, &ERR));
            compare(any ? "expert_split" : "expert_split, row by row", e.gate.w, n, y.get(), p,
                    SPLIT_TOLERANCE);
        }
        m.split = m.any_bits = false;
    }
}

static void check_expert_hopper(expert_products &e, uint32_t n)
{
    struct expert_pack p = {};
    p.x = e.dx.p;
    p.n_cols = e.n_cols;
    struct expert_gemm m = {};
    m.w[0] = e.gate.w;
    for (uint32_t per_item : {32u, 64u, 128u})
        e.compare_pairs("expert_hopper by " + std::to_string(per_item), n,
                        e.c.run(per_item, n, p, m), e.all_gate, HALF_TOLERANCE);
    if (expert_few_rows(&Q, e.n_cols, n, n) == n)
        e.compare_pairs("expert_few", n, e.c.run_few(n, p, m), e.all_gate, HALF_TOLERANCE);
}

static void products_of_experts_agree_with_cublas(void)
{
    struct random_stream r = {52};
    for (uint32_t type : ALL_TYPES) {
        std::vector<uint32_t> counts =
            full_size() ? std::vector<uint32_t>{3, 32, 128, 512} : std::vector<uint32_t>{3, 37};
        if (type == QUANT_F32)
            counts.push_back(full_size() ? 2048 : 70);
        expert_products e(r, type, full_size() ? 771 : 43, columns(type, full_size() ? 2048 : 300),
                          counts.back());
        check_expert_row(e);
        for (uint32_t n : counts) {
            check_expert_rows(e, n);
            check_ungrouped_rows(e, n);
            if (Q.hopper && type != QUANT_F32)
                check_expert_hopper(e, n);
        }
    }
}

int main(void)
{
    static const tap_test tests[] = {
        {"products agree with cuBLAS", products_agree_with_cublas},
        {"products of experts agree with cuBLAS", products_of_experts_agree_with_cublas},
    };
    return gpu_test_main(tests);
}
