// Products with the matrices of chosen experts, which are known in device memory alone.
//
// One row, what decoding waits for: as in matvec.cu a block has equal shares of the work, and its
// warps equal shares of the steps along the rows of weights; but a piece of work is a tile (of gate
// and up: two) of one of the chosen experts. Where experts are summed up a block has all of them of
// its tiles, and adds them in their order.
//
// A warp has few steps, and asks for the first of them all at once. Gate and up cannot ask for
// weights before it is known of whom, which the launch before them finds; so they prepare their
// input meanwhile (input_ready). That relies on launches that let the next one begin only after
// their own griddep_wait: choose, route, and these. The next one then finds complete what was
// before: down knows of whom (choice_ready), and asks for weights before it waits. Where the choice
// is plain every block makes it from the router's logits: one warp does in less time than it takes
// blocks to meet and one of them to tell the others.
//
// What is executed once is paid for by fetching it: some 5 ns for an instruction (clocks of a whole
// layer, H200). So where weights are is one number and no division is left that the host can do.
//
// Several rows: those of an expert are multiplied together, up to per_item at a time. Whatever else
// is in a chunk, a row's product is the same sum in the same order.
#include "activation.cuh"
#include "choice.cuh"
#include "divide.cuh"
#include "quant.cuh"

enum {
    ROW_WARPS = SHARES, // of a block for one row: one per multiprocessor
    SUMS_BYTES = 24576, // of a block's pieces, at most: then there are more blocks
    ROWS_WARPS = 8,     // of a block for several rows: a tile each
    MANY = 8,           // rows of an item that are multiplied at once
    KEEP = 2,           // groups of 8 inputs that a thread has under way at once
};

// ---- one row

// Chunks that a lane asks for at a time per matrix.
static constexpr __host__ __device__ int n_ahead(uint32_t type)
{
    return is_plain(type) ? 4 : 2;
}

// Steps of a warp that are under way at once. T: tiles of a piece.
static constexpr __host__ __device__ uint32_t n_deep(int T)
{
    return 4 / T;
}

// How a launch is cut up; made by the launcher.
struct row_grid {
    uint32_t sums_at, bias_at, rest_at, warps_at; // in dynamic shared memory, see pieces
    struct shares blocks;                         // of what stays together
    struct divisor slots, steps;
    uint32_t n_step; // of a piece
    uint32_t n_unit; // chunks of a matrix's tiles
};

// This block's pieces, numbered from `first` on: piece i is tile i / n_slot of slot i % n_slot.
template <int T> struct pieces {
    uint32_t first, n, n_step; // steps of a piece
    // Of each piece: the sums of the warp in whose steps it begins, that warp, and the one in whose
    // steps it ends; what the warps after the first have of it is in their heads.
    float (*sums)[T][TILE_ROWS];  // (n)
    float (*heads)[T][TILE_ROWS]; // (warps)
    uint8_t (*warps)[2];          // (n)
    // What the sums are finished with, brought here before the product.
    float (*bias)[T][TILE_ROWS]; // (n), where there is any
    uint32_t *id;                // (n_slot) the matrix of a slot; of the shared one 0
    float *weight;               // (n_slot)
    float *before, *y;           // EXPERT_SUM, of rows: the shared part, y
    struct told_gates gates;     // of experts

    // The first step of warp w: the warps have equal parts, or nearly.
    __device__ __forceinline__ uint32_t begin(uint32_t w) const
    {
        const uint32_t total = n * n_step;
        return total >= ROW_WARPS ? w * total / ROW_WARPS : min(w, total);
    }

    // The sum of row r, of all warps that have steps of it.
    __device__ __forceinline__ float row_sum(uint32_t piece, uint32_t t, uint32_t r) const
    {
        float v = sums[piece][t][r];
        const uint32_t last = warps[piece][1];
        for (uint32_t w = warps[piece][0] + 1; w <= last; w++)
            v += heads[w][t][r];
        return v;
    }
};

// Slots that are chosen.
static __device__ __forceinline__ uint32_t n_chosen(const struct expert_row &m)
{
    return m.n_slot - (m.shared ? 1 : 0);
}

static __host__ __device__ __forceinline__ bool has_bias(const struct expert_row &m)
{
    return m.bias[0] || (m.mode == EXPERT_GATED && m.bias[1]);
}

// Whether a warp finds what slots weigh. (Where weights multiply what experts are given, others
// do.)
template <int T> static __device__ __forceinline__ bool weighs(const struct expert_row &m)
{
    return T == 1 && m.chooses && m.mode == EXPERT_SUM;
}

// Finds the matrices of chosen slots; there after a barrier. FEW: code for few experts of its own,
// which costs registers.
template <bool FEW, int T>
static __device__ __forceinline__ void find_chosen(const struct expert_row &m,
                                                   const struct pieces<T> &s)
{
    const uint32_t n_warp = weighs<T>(m) && !m.choice.bias ? 2 : 1;
    if (m.shared && threadIdx.x == ROW_WARPS * WARP - 1)
        s.id[n_chosen(m)] = 0;
    if (!m.chooses) {
        for (uint32_t i = threadIdx.x; i < n_chosen(m); i += ROW_WARPS * WARP)
            s.id[i] = m.chosen ? __ldcg(m.chosen + i) : i;
    } else if (threadIdx.x < n_warp * WARP) {
        if (FEW && m.choice.facts.n <= 4 * WARP)
            choose_apart<4>(m.choice, s.id, s.gates, weighs<T>(m));
        else
            choose_apart<8>(m.choice, s.id, s.gates, weighs<T>(m));
    }
}

// The rows of x, times the norm's weights, in the form that TYPE multiplies with, into shared
// memory. What is left to multiply products with is norm_factor's to say. `more` is called by every
// thread when the rows have been asked for, to ask for what else is needed.
template <uint32_t TYPE, typename F>
static __device__ __forceinline__ void prepare_rows(const struct expert_row &m, uint8_t *act,
                                                    float squares[ROW_WARPS], F more)
{
    constexpr uint32_t THREADS = ROW_WARPS * WARP;
    const uint32_t n = m.w[0].n_cols, n_row = m.own_rows ? m.n_slot : 1;
    const uint32_t per_row = (is_plain(TYPE) ? act_f32_ld(n) : n) / 8;
    const uint32_t n_group = n_row * per_row;
    float sum = 0.0f, v[KEEP][8], weight[8];
#pragma unroll 1
    for (uint32_t base = 0; base < n_group; base += KEEP * THREADS) {
#pragma unroll
        for (int k = 0; k < KEEP; k++) {
            const uint32_t i = base + k * THREADS + threadIdx.x;
            const uint32_t row = is_plain(TYPE) ? i / per_row : 0; // quantised: without gaps
#pragma unroll
            for (int e = 0; e < 8; e++)
                v[k][e] = 0.0f;
            if (i < n_group)
                load8<is_plain(TYPE), true>(m.x + (size_t)row * n, i - row * per_row, n, v[k]);
        }
        if (base == 0)
            more();
#pragma unroll
        for (int k = 0; k < KEEP; k++) {
            const uint32_t i = base + k * THREADS + threadIdx.x;
            const bool valid = i < n_group;
            if (!__any_sync(ALL_LANES, valid)) // this warp has none
                break;
            if (m.norm && valid) {
                load8<is_plain(TYPE)>(m.norm, i, n, weight);
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    sum = fmaf(v[k][e], v[k][e], sum);
                    v[k][e] *= weight[e];
                }
            }
            if constexpr (is_plain(TYPE)) {
                float4 *out = reinterpret_cast<float4 *>(act) + 2 * i;
                if (valid) {
                    out[0] = make_float4(v[k][0], v[k][1], v[k][2], v[k][3]);
                    out[1] = make_float4(v[k][4], v[k][5], v[k][6], v[k][7]);
                }
            } else { // four lanes per chunk, eight values each
                quantize_act<(quant_traits<TYPE>::LIFT > 0)>(
                    v[k], reinterpret_cast<act32 *>(act) + (valid ? i / 4 : 0), valid);
            }
        }
    }
    if (m.norm) {
        sum = warp_sum(sum);
        if (threadIdx.x % WARP == 0)
            squares[threadIdx.x / WARP] = sum;
    }
    __syncthreads();
}

// RMSNorm's factor, the same in every thread.
static __device__ __forceinline__ float norm_factor(const struct expert_row &m,
                                                    const float squares[ROW_WARPS])
{
    float sum = 0.0f;
    if (!m.norm)
        return 1.0f;
#pragma unroll
    for (int i = 0; i < ROW_WARPS; i++)
        sum += squares[i];
    return rsqrtf(of_squares(sum / (float)m.w[0].n_cols + m.eps));
}

template <uint32_t TYPE, int T> struct row_batch {
    chunk<TYPE> k[T][n_ahead(TYPE)];
};

// Where a warp is in its pieces: the next step that is asked for, or multiplied.
struct walk {
    uint32_t piece, tile, slot, step, c;

    template <int T>
    __device__ __forceinline__ walk(const struct pieces<T> &s, const struct row_grid &g,
                                    uint32_t n_slot, uint32_t warp, uint32_t per_step, uint32_t c0)
    {
        const uint32_t first = s.begin(warp);
        piece = g.steps.divide(first);
        step = first - piece * s.n_step;
        tile = g.slots.divide(s.first + piece);
        slot = s.first + piece - tile * n_slot;
        c = step * per_step + c0;
    }
    // True: to another piece.
    template <int T>
    __device__ __forceinline__ bool go_on(const struct pieces<T> &s, uint32_t n_slot,
                                          uint32_t per_step, uint32_t c0)
    {
        c += per_step;
        if (++step < s.n_step)
            return false;
        step = 0;
        c = c0;
        piece++;
        if (++slot == n_slot)
            slot = 0, tile++;
        return true;
    }
};

// Where a step's chunks are in the matrix of a slot: its first one's number, and place in the row.
struct step_place {
    uint32_t unit, c, slot;
};

// This warp's steps. plan() finds where the first of its weights are, as far as that does not
// depend on who is chosen; ask() asks for them, run() multiplies.
template <uint32_t TYPE, int T> struct multiplier {
    static constexpr int N = n_ahead(TYPE);
    static constexpr uint32_t DEEP = n_deep(T);
    static constexpr uint32_t X = act_chunk_bytes(TYPE), STEP = 4 * N; // chunks
    const struct expert_row &m;
    const struct row_grid &g;
    const struct pieces<T> &s;
    const uint32_t warp, lane, r, c0, n;
    struct walk ahead;
    struct step_place first[DEEP];
    row_batch<TYPE, T> batch[DEEP];

    __device__ __forceinline__ multiplier(const struct expert_row &row, const struct row_grid &grid,
                                          const struct pieces<T> &p)
        : m(row), g(grid), s(p), warp(share_of_warp(uniform(threadIdx.x / WARP))),
          lane(threadIdx.x % WARP), r(lane % TILE_ROWS), c0(lane / TILE_ROWS),
          n(p.begin(warp + 1) - p.begin(warp)), ahead(p, grid, row.n_slot, warp, STEP, c0)
    {
    }

    __device__ __forceinline__ struct step_place next()
    {
        const struct step_place p = {ahead.tile * m.w[0].n_chunk + ahead.c, ahead.c, ahead.slot};
        ahead.go_on(s, m.n_slot, STEP, c0);
        return p;
    }

    // Asks for a step's chunks c, c + 4, ..., as far as rows go.
    __device__ __forceinline__ void request(const struct step_place &p, row_batch<TYPE, T> &b)
    {
        const uint32_t unit = s.id[p.slot] * g.n_unit + p.unit;
        const uint32_t first_w = m.shared && p.slot == n_chosen(m) ? 2 : 0;
        struct tile_row rows[T]; // made again for each step: kept, they would need the registers
#pragma unroll
        for (int k = 0; k < T; k++)
            rows[k] = tile_at<TYPE>(m.w[first_w + k], unit, r);
#pragma unroll
        for (int u = 0; u < N; u++)
            if (p.c + 4 * u < m.w[0].n_chunk) {
#pragma unroll
                for (int k = 0; k < T; k++)
                    load_chunk<TYPE>(rows[k], 4 * u, b.k[k][u]);
            }
    }

    __device__ __forceinline__ void plan()
    {
#pragma unroll
        for (uint32_t d = 0; d < DEEP; d++)
            if (d < n)
                first[d] = next();
    }

    __device__ __forceinline__ void ask()
    {
#pragma unroll
        for (uint32_t d = 0; d < DEEP; d++)
            if (d < n)
                request(first[d], batch[d]);
    }

    __device__ __forceinline__ void run(const uint8_t *act)
    {
        const uint32_t n_chunk = m.w[0].n_chunk;
        const uint32_t act_row = !m.own_rows ? 0
                                 : is_plain(TYPE)
                                     ? act_f32_ld(m.w[0].n_cols) * (uint32_t)sizeof(float)
                                     : n_chunk * (uint32_t)sizeof(act32);
        struct walk at(s, g, m.n_slot, warp, STEP, c0);
        float acc[T] = {};
        float(*to)[TILE_ROWS] = at.step ? s.heads[warp] : s.sums[at.piece];
        uint32_t left = n;
        while (left > 0) {
#pragma unroll
            for (uint32_t d = 0; d < DEEP; d++) {
                if (left == 0)
                    break;
                const uint8_t *x = act + at.slot * act_row + at.c * X;
#pragma unroll
                for (int u = 0; u < N; u++)
                    if (at.c + 4 * u < n_chunk) {
#pragma unroll
                        for (int k = 0; k < T; k++)
                            dot_chunk<TYPE, 1>(batch[d].k[k][u], x + 4 * u * X, 0, 1, &acc[k]);
                    }
                if (left > DEEP)
                    request(next(), batch[d]);
                left--;
                const uint32_t piece = at.piece;
                if (at.step == 0 && lane == 0)
                    s.warps[piece][0] = (uint8_t)warp;
                const bool ends = at.go_on(s, m.n_slot, STEP, c0);
                if (!ends && left > 0)
                    continue;
                if (ends && lane == 0)
                    s.warps[piece][1] = (uint8_t)warp;
                lane_sums<8, 16>(acc); // lanes with the same row: the four chunk positions
#pragma unroll
                for (int k = 0; k < T; k++) {
                    if (lane < TILE_ROWS)
                        to[k][r] = acc[k];
                    acc[k] = 0.0f;
                }
                to = s.sums[at.piece];
            }
        }
    }
};

// Brings what the sums are finished with; visible after the next barrier.
template <int T>
static __device__ __forceinline__ void
bring_rest(const struct expert_row &m, const struct row_grid &g, const struct pieces<T> &s)
{
    constexpr uint32_t THREADS = ROW_WARPS * WARP;
    const uint32_t rows = m.w[0].rows;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; has_bias(m) && i < s.n * TILE_ROWS; i += THREADS) {
        const uint32_t piece = i / TILE_ROWS, at = s.first + piece, r = i % TILE_ROWS;
        const uint32_t tile = g.slots.divide(at), row = tile * TILE_ROWS + r;
        const uint32_t slot = at - tile * m.n_slot;
        const bool any = row < rows && slot < n_chosen(m);
        const size_t first = any ? (size_t)s.id[slot] * rows : 0;
#pragma unroll
        for (int k = 0; k < T; k++)
            s.bias[piece][k][r] = m.bias[k] && any ? m.bias[k][first + row] : 0.0f;
    }
    const bool sums = T == 1 && m.mode == EXPERT_SUM;
    const struct expert_sum &to = m.sum;
    const float *from = sums ? to.weight : m.weight;
    for (uint32_t i = threadIdx.x; (sums || from) && i < m.n_slot; i += THREADS)
        if (i == n_chosen(m))
            s.weight[i] = sums && to.shared_weight ? __ldcg(to.shared_weight) : 1.0f;
        else if (!weighs<T>(m))
            s.weight[i] = from ? __ldcg(from + i) : 1.0f;
    if (!sums)
        return;
    const uint32_t first = g.slots.divide(s.first) * TILE_ROWS;
    for (uint32_t i = threadIdx.x; i < g.slots.divide(s.n) * TILE_ROWS; i += THREADS) {
        const uint32_t row = first + i;
        if (row >= rows)
            continue;
        const float before = to.shared ? __ldcg(to.shared + row) : 0.0f;
        s.before[i] = to.shared_weight ? before * __ldcg(to.shared_weight) : before;
        s.y[i] = to.add ? __ldcg(to.y + row) : 0.0f;
    }
}

// What the product with matrix i of a slot is times.
template <int T>
static __device__ __forceinline__ float slot_scale(const struct expert_row &m,
                                                   const struct pieces<T> &s, uint32_t slot, int i)
{
    return slot < n_chosen(m) ? product_scale(m.w[i], m.w[i].scales ? s.id[slot] : 0)
                              : m.w[2 + i].scale;
}

// W x + bias of row r of a piece of a slot and its matrix i.
template <int T>
static __device__ __forceinline__ float finished(const struct expert_row &m,
                                                 const struct pieces<T> &s, uint32_t piece,
                                                 uint32_t slot, int i, uint32_t r, float norm)
{
    const float v = norm * slot_scale(m, s, slot, i) * s.row_sum(piece, i, r);
    return m.bias[i] ? v + s.bias[piece][i][r] : v;
}

// Every piece's rows by themselves.
template <int T>
static __device__ __forceinline__ void finish_each(const struct expert_row &m,
                                                   const struct row_grid &g,
                                                   const struct pieces<T> &s, float norm)
{
    for (uint32_t i = threadIdx.x; i < s.n * TILE_ROWS; i += ROW_WARPS * WARP) {
        const uint32_t piece = i / TILE_ROWS, at = s.first + piece, r = i % TILE_ROWS;
        const uint32_t tile = g.slots.divide(at), slot = at - tile * m.n_slot;
        const uint32_t row = tile * TILE_ROWS + r;
        if (row >= m.w[0].rows)
            continue;
        const float f = m.weight && slot < n_chosen(m) ? norm * s.weight[slot] : norm;
        float v = finished<T>(m, s, piece, slot, 0, r, f);
        if constexpr (T == 2)
            v = gated(m.act, m.xielu, v, finished<T>(m, s, piece, slot, 1, r, f));
        m.y[(size_t)slot * m.w[0].rows + row] = v;
    }
}

// The rows of the tiles, summed over the slots.
static __device__ __forceinline__ void finish_sums(const struct expert_row &m,
                                                   const struct row_grid &g,
                                                   const struct pieces<1> &s, float norm)
{
    const struct expert_sum &to = m.sum;
    for (uint32_t i = threadIdx.x; i < s.n * TILE_ROWS; i += ROW_WARPS * WARP) {
        const uint32_t piece = i / TILE_ROWS, r = i % TILE_ROWS;
        const uint32_t slot = piece - g.slots.divide(piece) * m.n_slot; // blocks have whole tiles
        s.sums[piece][0][r] = finished<1>(m, s, piece, slot, 0, r, norm);
    }
    __syncthreads();
    const uint32_t first = g.slots.divide(s.first) * TILE_ROWS;
    for (uint32_t i = threadIdx.x; i < g.slots.divide(s.n) * TILE_ROWS; i += ROW_WARPS * WARP) {
        const uint32_t tile = i / TILE_ROWS, r = i % TILE_ROWS;
        const uint32_t row = first + i;
        if (row >= m.w[0].rows)
            continue;
        const uint32_t n = n_chosen(m);
        float sum = s.before[i];
        if (m.shared)
            sum = s.weight[n] * s.sums[tile * m.n_slot + n][0][r];
#pragma unroll 4
        for (uint32_t slot = 0; slot < n; slot++)
            sum = fmaf(s.weight[slot], s.sums[tile * m.n_slot + slot][0][r], sum);
        to.y[row] = to.add ? fmaf(to.scale, sum, s.y[i]) : sum;
    }
}

// Grid: a block per multiprocessor, fewer where there is less to do. Dynamic shared memory: the
// input, then what pieces points to.
template <uint32_t TYPE, int T>
static __global__ void __launch_bounds__(ROW_WARPS *WARP, 1)
    expert_row_kernel(const __grid_constant__ struct expert_row m, const struct row_grid g)
{
    __shared__ float squares[ROW_WARPS];
    __shared__ float heads[ROW_WARPS][T][TILE_ROWS];
    uint8_t *smem = dynamic_smem<uint8_t>();
    const uint32_t of = T == 1 && m.mode == EXPERT_SUM ? m.n_slot : 1; // pieces that stay together
    struct pieces<T> s;
    s.first = g.blocks.begin(blockIdx.x) * of;
    s.n = g.blocks.begin(blockIdx.x + 1) * of - s.first;
    s.n_step = g.n_step;
    s.sums = reinterpret_cast<float(*)[T][TILE_ROWS]>(smem + g.sums_at);
    s.bias = reinterpret_cast<float(*)[T][TILE_ROWS]>(smem + g.bias_at);
    s.id = reinterpret_cast<uint32_t *>(smem + g.rest_at);
    s.weight = reinterpret_cast<float *>(s.id + m.n_slot);
    s.gates.divisor = s.weight + m.n_slot;
    s.gates.p = s.gates.divisor + 1;
    s.gates.score = s.gates.p + m.choice.facts.n;
    s.before = s.weight + m.n_slot + (m.chooses ? 2 * m.choice.facts.n + 1 : 0);
    s.y = s.before + g.slots.divide(s.n) * TILE_ROWS; // (of EXPERT_SUM)
    s.warps = reinterpret_cast<uint8_t(*)[2]>(smem + g.warps_at);
    s.heads = heads;
    struct multiplier<TYPE, T> product(m, g, s);
    const bool x_first = T == 2 && m.input_ready;
    const bool w_first = T == 1 && (m.choice_ready || !m.chosen); // asks before it waits
    if (x_first)
        prepare_rows<TYPE>(m, smem, squares, [] {});
    if (!w_first)
        griddep_wait();
    // What is asked is looked at where it is asked for: the compiler makes all who look at it later
    // wait for the weights, too.
    bool skip = false;
    if (m.skip && (!w_first || m.choice_ready))
        skip = __ldcg(m.skip) != 0;
    find_chosen<!is_plain(TYPE)>(m, s);
    product.plan(); // while others choose
    __syncthreads();
    if (!skip) // else nobody may be chosen
        product.ask();
    const bool weigher = weighs<T>(m) && threadIdx.x / WARP == ROW_WARPS - 1;
    constexpr bool SOON = sizeof product.batch <= 256; // it has the registers
    if (SOON && weigher)                               // while weights are on their way
        weigh_chosen(m.choice, s.id, s.gates, s.weight);
    if (w_first)
        griddep_wait();
    griddep_launch_dependents(); // not sooner: see above
    if (w_first && !m.choice_ready && m.skip)
        skip = __ldcg(m.skip) != 0;
    if (skip)
        return;
    if (x_first)
        bring_rest<T>(m, g, s);
    else
        prepare_rows<TYPE>(m, smem, squares, [&] { bring_rest<T>(m, g, s); });
    if (!SOON && weigher)
        weigh_chosen(m.choice, s.id, s.gates, s.weight);
    product.run(smem);
    const float norm = norm_factor(m, squares);
    __syncthreads();
    if constexpr (T == 1) {
        if (m.mode == EXPERT_SUM) {
            finish_sums(m, g, s, norm);
            return;
        }
    }
    finish_each<T>(m, g, s, norm);
}

// ---- several rows

// Grid (ceil(tiles / ROWS_WARPS), items, parts).
template <uint32_t TYPE, int N>
static __global__ void __launch_bounds__(ROWS_WARPS *WARP)
    expert_rows_kernel(const __grid_constant__ struct expert_rows m)
{
    constexpr uint32_t X = act_chunk_bytes(TYPE) / 16;
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t r = lane % TILE_ROWS, part = blockIdx.z;
    const struct wmat &w = m.w[part];
    const uint32_t tile = blockIdx.x * ROWS_WARPS + warp, n_chunk = w.n_chunk;
    griddep_launch_dependents();
    griddep_wait();
    if (m.skip && *m.skip)
        return;
    const uint32_t first = blockIdx.y * m.per_item;
    const struct expert_item item =
        m.items ? m.items[blockIdx.y] : expert_item{0, first, min(m.n_row - first, m.per_item)};
    if (tile >= w.n_tile)
        return;
    const uint32_t act_row =
        is_plain(TYPE) ? act_f32_ld(w.n_cols) / 4 : n_chunk * (uint32_t)(sizeof(act32) / 16);
    const uint8_t *act = static_cast<const uint8_t *>(is_plain(TYPE) ? m.act_f32 : m.act32);
    const uint32_t row = tile * TILE_ROWS + r;
    const float *bias = m.bias[part];
    const float add = bias && row < w.rows ? bias[(size_t)item.expert * w.rows + row] : 0.0f;
    const float scale = product_scale(w, item.expert);
#pragma unroll 1
    for (uint32_t done = 0; done < item.n; done += N) {
        const uint32_t place0 = item.first + done, n = min(item.n - done, (uint32_t)N);
        uint32_t x[N]; // of the rows of activations, in units of 16 bytes
#pragma unroll
        for (int i = 0; i < N; i++) { // the sums beyond n repeat the last
            const uint32_t place = place0 + min((uint32_t)i, n - 1);
            x[i] = (m.pair_at ? m.pair_at[place] / m.n_used : place) * act_row;
        }
        struct tile_row t = tile_begin<TYPE>(w, item.expert * w.n_tile + tile, r);
        uint32_t c = lane / TILE_ROWS;
        tile_move<TYPE>(t, 0, c);
        chunk<TYPE> now, next;
        float acc[N] = {};
        if (c < n_chunk)
            load_chunk<TYPE>(t, 0, now);
#pragma unroll 1
        for (; c < n_chunk; c += 4) {
            if (c + 4 < n_chunk) {
                tile_move<TYPE>(t, c, c + 4);
                load_chunk<TYPE>(t, 0, next);
            }
#pragma unroll
            for (int i = 0; i < N; i++)
                dot_chunk<TYPE, 1>(now, act + (size_t)(x[i] + c * X) * 16, 0, 1, &acc[i]);
            now = next;
        }
        lane_sums<8, 16>(acc);
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (lane < TILE_ROWS && row < w.rows && i < (int)n) {
                const uint32_t place = place0 + i;
                const float f = m.weight ? m.weight[m.pair_at[place]] : 1.0f;
                m.y[part][(size_t)place * w.rows + row] = fmaf(f * scale, acc[i], add);
            }
        }
    }
}

// ---- launchers

struct row_blocks {
    uint32_t n;
    struct row_grid at;
    size_t smem; // bytes
};

static struct row_blocks blocks_for(const struct queue *q, const struct expert_row *m)
{
    const struct wmat *w = &m->w[0];
    const bool sums = m->mode == EXPERT_SUM;
    const uint64_t whole = sums ? w->n_tile : (uint64_t)w->n_tile * m->n_slot;
    const uint64_t of = sums ? m->n_slot : 1;
    const uint64_t bytes = (m->mode == EXPERT_GATED ? 2 : 1) * TILE_ROWS * sizeof(float);
    const uint64_t at_least = div_up(whole * of * bytes, (uint64_t)SUMS_BYTES);
    const uint64_t at_once = lesser(whole, (uint64_t)q->n_sm);
    struct row_blocks b;
    b.n = (uint32_t)lesser(at_once > at_least ? at_once : at_least, whole);
    const uint64_t n_piece = div_up(whole, (uint64_t)b.n) * of;
    const size_t act = (m->own_rows ? m->n_slot : 1) * act_row_bytes(w->type, w->n_cols);
    const uint64_t n_rest = 2 * m->n_slot + (m->chooses ? 2 * m->choice.facts.n + 1 : 0) +
                            (sums ? 2 * n_piece / of * TILE_ROWS : 0);
    b.at.sums_at = (uint32_t)act;
    b.at.bias_at = (uint32_t)(act + (n_piece + 1) * bytes);
    b.at.rest_at = (uint32_t)(b.at.bias_at + (has_bias(*m) ? n_piece * bytes : 0));
    b.at.warps_at = (uint32_t)(b.at.rest_at + n_rest * sizeof(float));
    b.smem = b.at.warps_at + n_piece * sizeof(uint8_t[2]);
    b.at.n_unit = w->n_tile * w->n_chunk;
    b.at.n_step = div_up(w->n_chunk, 4u * n_ahead(w->type));
    b.at.blocks = shares_of((uint32_t)whole, b.n);
    b.at.slots = divisor_of(m->n_slot);
    b.at.steps = divisor_of(b.at.n_step);
    return b;
}

static bool blocks_fit(const struct queue *q, const struct expert_row *m,
                       const struct row_blocks *b)
{
    // What the kernel itself declares: heads, squares, alignment.
    const size_t declared = sizeof(float[ROW_WARPS][2][TILE_ROWS]) + 1024;
    const struct wmat *w = &m->w[0];
    const uint64_t n_matrix = m->choice.facts.n > m->n_slot ? m->choice.facts.n : m->n_slot;
    return b->smem + declared <= q->smem_max && b->n <= SHARES_MOST &&
           n_matrix * w->n_tile * w->n_chunk < UINT32_MAX / TILE_ROWS;
}

bool expert_row_fits(const struct queue *q, const struct expert_row *m)
{
    const struct row_blocks b = blocks_for(q, m);
    return blocks_fit(q, m, &b);
}

bool expert_row_launch(const struct queue *q, const struct expert_row *m, struct error *err)
{
    const struct row_blocks b = blocks_for(q, m);
    if (!blocks_fit(q, m, &b))
        return error_set(err, ERR_FAIL, "CUDA: experts too large for one row's products");
    struct launch l = {.name = "expert_row",
                       .grid = dim3(b.n),
                       .block = dim3(ROW_WARPS * WARP),
                       .smem = b.smem,
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return with_type(m->w[0].type, [&](auto tag) {
        constexpr uint32_t TYPE = decltype(tag)::value;
        return m->mode == EXPERT_GATED
                   ? launch_kernel(err, l, expert_row_kernel<TYPE, 2>, *m, b.at)
                   : launch_kernel(err, l, expert_row_kernel<TYPE, 1>, *m, b.at);
    });
}

bool expert_rows_launch(const struct queue *q, const struct expert_rows *m, struct error *err)
{
    struct launch l = {.name = "expert_rows",
                       .grid =
                           dim3(div_up(m->w[0].n_tile, (uint32_t)ROWS_WARPS), m->n_item, m->n_part),
                       .block = dim3(ROWS_WARPS * WARP),
                       .stream = q->stream,
                       .dependent = q->dependent,
                       .recorder = q->recorder};
    return with_type(m->w[0].type, [&](auto tag) {
        constexpr uint32_t TYPE = decltype(tag)::value;
        if (m->gated && (is_plain(TYPE) || m->per_item <= EXPERT_FEW))
            return error_set(err, ERR_FAIL, "CUDA: gates of such experts have their own launch");
        if (m->per_item <= EXPERT_FEW)
            return launch_kernel(err, l, expert_rows_kernel<TYPE, EXPERT_FEW>, *m);
        if constexpr (is_plain(TYPE))
            return m->items ? launch_kernel(err, l, expert_rows_kernel<TYPE, MANY>, *m)
                   : expert_split_takes(q, m) ? expert_split_launch(q, m, err)
                                              : expert_plain_launch(q, m, err);
        return expert_tiles_launch(q, m, err);
    });
}
