// The launchers of mixtures of experts (struct experts in model/model.h): who is chosen, products
// with the matrices of those, and the sum of what they give. What is chosen stays in device memory.
// As in kernels.h, pointers are device addresses.
//
// Stacked matrices lie one behind the other, each from a tile of its own on: tile t of matrix i is
// tile i * w.n_tile + t of the planes, and w.rows, w.n_tile are those of one.
#ifndef HOKKU_CUDA_EXPERTS_H
#define HOKKU_CUDA_EXPERTS_H

#include "kernels.h"

// What the products with one of the matrices of w are times.
static __device__ __forceinline__ float product_scale(const struct wmat &w, uint32_t matrix)
{
    return w.scales ? w.scales[matrix] : w.scale;
}

// ---- experts.cu: routing, and the sum

// For each of n rows: which experts, in the order of their numbers, and what they weigh.
struct choice {
    struct experts facts;
    const float *logits; // (n, facts.n)
    const float *bias;   // (facts.n) of the choice, NULL: none
    uint32_t *chosen;    // (n, n_used)
    float *weight;       // (n, n_used)
    const float *scale;  // (experts) multiplies the weight of a chosen one, NULL: ones
    // The gate of the shared expert, shared[i] = sigmoid(router . x[i] normed); router NULL: none.
    const float *router; // (n_cols)
    const float *x;      // (n, n_cols)
    const float *norm;   // (n_cols) weights of RMSNorm, NULL: x is normed
    float eps;
    uint32_t n_cols;
    float *shared; // (n)
    const uint32_t *skip;
};
bool choose_launch(const struct queue *q, const struct choice *c, uint32_t n, struct error *err);

// Whether products of one row can choose themselves, see expert_row.chooses.
static inline __host__ __device__ bool choice_is_plain(const struct experts &x)
{
    return x.n <= 256 && x.n_group_used >= x.n_group;
}

// One row: the router and, where it chooses, the choice in one launch.
struct route {
    struct choice choice;
    bool chooses;
    struct wmat w;     // (choice.facts.n, n_cols), see is_routed
    const float *bias; // (n), NULL: none
    const float *norm; // (n_cols) as choice.norm, of the router
    float *logits;     // (n) choice.logits
    uint32_t *counter; // zero before the first use; left zero
};
bool route_launch(const struct queue *q, const struct route *r, struct error *err);
// Whether that is for such a router; others have a product and choose_launch.
static inline bool is_routed(uint32_t type, uint32_t n_cols)
{
    return type == QUANT_F32 && n_cols % 4 == 0;
}

// Rows of one expert that are multiplied together: those at places [first, first + n).
struct expert_item {
    uint32_t expert, first, n;
};

// Rows of x (n, n_cols), ld floats apart, as expert_few_launch takes them.
struct few_pack {
    const float *x; // NULL: none are made
    uint32_t n, ld, n_cols;
    __half *out; // expert_pack_bytes
    float *undo; // (n) 1 / the power of two
};

// Orders the pairs of a row and an expert of its (n_pair of them, numbered as in `chosen`) by
// expert, then by number: pair i gets place[i], pair_at[place[i]] = i, and rank[i], its place among
// those of the expert. Each expert's places are cut into items of at most per_item.
struct grouping {
    const uint32_t *chosen;           // (n_pair)
    uint32_t *place, *pair_at, *rank; // (n_pair)
    struct expert_item *items;        // (expert_items), in the order of places
    uint32_t *n_item;                 // those that have places; the others are zeros
    uint32_t n_expert, n_pair, per_item;
    const uint32_t *skip;
    // Beside that, for expert_few.cu:
    struct few_pack few;
    uint32_t *top; // (n_pair) become 0; NULL: none
};
bool group_launch(const struct queue *q, const struct grouping *g, struct error *err);

// Both, one after the other: of few rows in one launch.
bool choose_group_launch(const struct queue *q, const struct choice *c, const struct grouping *g,
                         uint32_t n, struct error *err);

// Slots for items; those that are left over have n = 0.
static inline __host__ __device__ uint32_t expert_items(uint32_t n_expert, uint32_t n_pair,
                                                        uint32_t per_item)
{
    const uint32_t n = n_pair / per_item + n_expert;
    return n < n_pair ? n : n_pair;
}

// What the experts give together, for one row or several: in that order, beginning with the shared
// one.
struct expert_sum {
    const float *weight;        // of the pairs; NULL: ones
    const float *shared;        // (n, n_cols) what the shared one gives, NULL: there is none
    const float *shared_weight; // (n), NULL: ones
    bool add;                   // y += scale * sum, else y = sum
    float scale;
    float *y; // (n, n_cols)
};
// out (n * n_used, n_cols) by place; place NULL: by pair.
bool expert_sum_launch(const struct queue *q, const struct expert_sum *s, const float *out,
                       const uint32_t *place, uint32_t n, uint32_t n_used, uint32_t n_cols,
                       const uint32_t *skip, struct error *err);

// ---- expert_products.cu

enum expert_mode {
    EXPERT_STORE, // y (n_slot, rows) = W x + bias
    EXPERT_GATED, // y (n_slot, rows) = act(w[0] x + bias[0]) * (w[1] x + bias[1])
    EXPERT_SUM,   // sum.y (rows): the weighted sum of W x + bias over the slots
};

// One row times the matrices of several experts, a slot each.
struct expert_row {
    enum expert_mode mode;
    // Stacked, of the same shape and type; [1]: EXPERT_GATED. shared: the last slot has [2] and
    // [3], which nobody chooses and which are single matrices of that shape and type without a
    // bias.
    struct wmat w[4];
    bool shared;
    const float *bias[2];   // (matrices, rows), NULL: none
    const uint32_t *chosen; // matrices, of the slots but for the shared one; NULL: the first ones
    // For a choice that is plain, whose logits are there: every block makes it, and finds what
    // those chosen weigh where they are summed up; `chosen` and sum.weight then only say that there
    // is such a thing, and there is no `weight`.
    bool chooses;
    struct choice choice; // its facts also where others choose
    uint32_t n_slot;
    // The launch before this one neither writes x nor runs beside one that does: it is choose,
    // route, or a product of these. choice_ready: the same of `chosen` or logits and what `sum`
    // has.
    bool input_ready, choice_ready;
    const float *x;      // (n_cols), or with own_rows (n_slot, n_cols)
    bool own_rows;       // each slot has a row of x
    const float *norm;   // (n_cols) weights of RMSNorm, not with own_rows; NULL: none
    const float *weight; // multiplies the input of a chosen slot; NULL: ones
    float eps;
    enum activation act; // EXPERT_GATED
    struct xielu xielu;
    float *y;
    struct expert_sum sum; // EXPERT_SUM; sum.shared is NULL where a slot is
    const uint32_t *skip;
};
bool expert_row_launch(const struct queue *q, const struct expert_row *m, struct error *err);
// Whether a block has room for it; if not, expert_rows_launch serves.
bool expert_row_fits(const struct queue *q, const struct expert_row *m);

// Several rows, grouped: y[i] (places, rows) = W x + bias, by place.
struct expert_rows {
    struct wmat w[2];     // n_part, of the same shape and type
    const float *bias[2]; // (matrices, rows), NULL: none
    float *y[2];
    uint32_t n_part;
    // Items of at most per_item rows. NULL: all of n_row rows with the first matrix, in order.
    const struct expert_item *items;
    uint32_t n_item, n_row, per_item;
    // The row of x of a place is pair_at[place] / n_used; NULL: the place.
    const uint32_t *pair_at;
    uint32_t n_used;
    const float *weight;         // by pair: multiplies the input; NULL: ones
    const void *act32, *act_f32; // rows of x by act_launch, as the type of w takes them
    // Quantised weights and items of more than EXPERT_FEW: y[0] = act(w[0] x + bias[0]) * (w[1] x +
    // bias[1]) by place; or, where out32 is not NULL and w.rows a multiple of 32, the same as
    // act_launch prepares it.
    bool gated;
    enum activation act;
    struct xielu xielu;
    void *out32;
    const uint32_t *skip;
    bool split;    // floats may be multiplied by expert_split.cu,
    bool any_bits; // and their bits depend on n_row
    bool scaled;   // any of w, set by expert_tiles_launch
};
bool expert_rows_launch(const struct queue *q, const struct expert_rows *m, struct error *err);

// ---- expert_tiles.cu: the same for quantised weights, where items have more than a few rows

enum {
    EXPERT_FEW = 2,   // rows of an item; beyond that, quantised weights go to expert_tiles
    EXPERT_ITEM = 32, // what that takes at most
};
bool expert_tiles_launch(const struct queue *q, const struct expert_rows *m, struct error *err);
// The most rows of an item that mostly has n_row at most: the fewer, the less memory it needs.
static inline uint32_t expert_tiles_width(uint32_t n_row)
{
    return n_row <= 8 ? 8 : n_row <= 16 ? 16 : EXPERT_ITEM;
}

// ---- expert_hopper.cu: the same on devices of compute capability 9.0, in float16, for all types
// but float32 and many rows

// So many rows are faster here however many experts there are: with fewer, one expert rarely has
// two of them (measured with 32, 128 and 256 experts, 4 and 8 of them chosen).
enum { EXPERT_HOPPER_ROWS = 8 };

// Rows of x (n, n_cols), n_used pairs each, packed by place: of each half step of 64 elements (see
// gemm_pack_at) the places one behind the other, swizzled by their rank.
struct expert_pack {
    const float *x;
    uint32_t n_cols;
    const float *norm; // (n_cols) weights of RMSNorm, NULL: none
    float eps;
    const uint32_t *place, *rank; // (n, n_used), see grouping; NULL: pair i is at place i
    const float *weight;          // (n, n_used) multiplies the input, NULL: ones
    uint32_t n_used, n_place;     // n_place = n * n_used
    bool by_place;                // rows of x are by place, n_used is 1
    uint32_t ld;                  // floats from row to row, 0: n_cols
    __half *out;                  // expert_pack_bytes
    float *undo;                  // (n_place) 1 / the power of two, times the weight
};
bool expert_pack_launch(const struct queue *q, const struct expert_pack *p, uint32_t n,
                        struct error *err);

static inline size_t expert_pack_bytes(uint32_t n_place, uint32_t n_cols)
{
    return (size_t)n_place * ((n_cols + GEMM_PACK_COLS - 1) / GEMM_PACK_COLS) * GEMM_PACK_COLS * 2;
}

// y (n_place, rows) = W x + bias, or gated as EXPERT_GATED, by place.
struct expert_gemm {
    struct wmat w[2];     // of the same shape and type; [1]: gated
    const float *bias[2]; // (matrices, rows), NULL: none
    float *y;
    bool gated;
    enum activation act;             // gated: one that expert_act_is_fused
    const struct expert_item *items; // n_item of them; NULL: all places with the first matrix
    const uint32_t *n_item;          // see grouping
    uint32_t n_slot, n_place;        // at most so many items
    uint32_t per_item;               // expert_hopper_width
    const __half *x;                 // (n_place, n_cols) by expert_pack_launch
    const float *undo;               // (n_place)
    // For expert_few: x and undo are rows, see few_pack; or x is NULL, and rows are floats, ld
    // apart. A place has row pair_at[place] / n_used; pair_at NULL: the place.
    const float *rows;
    uint32_t ld, n_used;
    const uint32_t *pair_at;
    const float *weight; // by pair: multiplies the input; NULL: ones
    // (n_place) of floats whose row is the place: bits of a number with the exponent of the
    // largest; NULL: not known.
    const uint32_t *top;
    uint32_t *y_top; // gated: raised to that of the place's y; NULL: not wanted
};
bool expert_hopper_launch(const struct queue *q, const struct expert_gemm *m, struct error *err);
bool expert_act_is_fused(enum activation act);
// The most rows of an item: 32, 64 or 128, as many pairs of a row and an expert make best.
uint32_t expert_hopper_width(uint32_t n_expert, uint32_t n_pair);

// ---- expert_few.cu: the same bits for items of a few rows, which are not packed by place

enum {
    EXPERT_FEW_ROWS = 8,   // of an item at most
    EXPERT_FEW_PASS = 12,  // of a pass that is faster here, however few experts there are
    EXPERT_FEW_MOST = 192, // however many: more were not measured
};
// Whether n rows, each with n_used of n_expert experts, in items of per_item, are faster here.
bool expert_few_suits(uint32_t type, uint32_t n, uint32_t n_used, uint32_t n_expert,
                      uint32_t per_item);
// How many rows of n_cols an item has best, at most n; 0: it has no room for one. likely: an expert
// has seldom more.
uint32_t expert_few_rows(const struct queue *q, uint32_t n_cols, uint32_t n, uint32_t likely);
bool expert_few_launch(const struct queue *q, const struct expert_gemm *m, struct error *err);

// ---- expert_plain.cu: the same for weights that are not quantised, without items

bool expert_plain_launch(const struct queue *q, const struct expert_rows *m, struct error *err);

// ---- expert_split.cu: the same of floats, where 16 bits of each will do; unless a row has to have
// the same bits beside any others, of many rows

enum { EXPERT_SPLIT_ROWS = 64 };
bool expert_split_takes(const struct queue *q, const struct expert_rows *m);
bool expert_split_launch(const struct queue *q, const struct expert_rows *m, struct error *err);

#endif
