// Models cut for several devices: what is cut how, and that the slices are the model.
#include "test.h"

#include <stdlib.h>

#include "gguf/quant.h"
#include "model/slice.h"
#include "tiny_model.h"

enum { EMBD = 64, HEAD_DIM = 64, N_FF = 1024 };

static struct model *m;
static struct buf image;

static struct model *load(struct tiny *t)
{
    struct error err = {0};
    image = (struct buf){0};
    tiny_write(t, &image);
    tiny_release(t);
    struct gguf *g = gguf_open_memory(image.data, image.len, "tiny.gguf", &err);
    struct model *loaded = g ? model_from_gguf(g, "tiny.gguf", &err) : NULL;
    if (!loaded)
        fail_msg("%s", err.text);
    return loaded;
}

static void unload(void)
{
    model_free(m);
    buf_release(&image);
}

// n_kv KV heads, each with two heads; blocks of ffn_down, attn_output of these types. Every byte of
// a matrix is another one than its neighbours.
static void open_with(uint32_t n_kv, uint32_t n_ff, uint32_t type)
{
    struct tiny t;
    char k[96];
    tiny_init(&t, "qwen2");
    tiny_u32(&t, "qwen2.embedding_length", EMBD);
    tiny_u32(&t, "qwen2.feed_forward_length", n_ff);
    tiny_u32(&t, "qwen2.attention.head_count", 2 * n_kv);
    tiny_u32(&t, "qwen2.attention.head_count_kv", n_kv);
    tiny_u32(&t, "qwen2.attention.key_length", HEAD_DIM);
    tiny_u32(&t, "qwen2.attention.value_length", HEAD_DIM);
    tiny_tensor(&t, "token_embd.weight", QUANT_Q8_0, EMBD, TINY_VOCAB);
    tiny_tensor(&t, "output_norm.weight", QUANT_F32, EMBD, 0);
    for (uint32_t i = 0; i < TINY_LAYERS; i++) {
        char b[16];
        snprintf(b, sizeof b, "blk.%u", i);
        const struct {
            const char *name;
            uint32_t type, n_cols, rows;
        } all[] = {{"attn_norm.weight", QUANT_F32, EMBD, 0},
                   {"attn_q.weight", QUANT_Q8_0, EMBD, 2 * n_kv * HEAD_DIM},
                   {"attn_k.weight", QUANT_Q4_0, EMBD, n_kv * HEAD_DIM},
                   {"attn_v.weight", QUANT_F16, EMBD, n_kv * HEAD_DIM},
                   {"attn_q.bias", QUANT_F32, 2 * n_kv * HEAD_DIM, 0},
                   {"attn_k.bias", QUANT_F32, n_kv * HEAD_DIM, 0},
                   {"attn_v.bias", QUANT_F32, n_kv * HEAD_DIM, 0},
                   {"attn_output.weight", type, 2 * n_kv * HEAD_DIM, EMBD},
                   {"ffn_norm.weight", QUANT_F32, EMBD, 0},
                   {"ffn_gate.weight", QUANT_Q8_0, EMBD, n_ff},
                   {"ffn_up.weight", QUANT_Q4_0, EMBD, n_ff},
                   {"ffn_down.weight", type, n_ff, EMBD}};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++)
            tiny_tensor(&t, tiny_name(k, b, all[j].name), all[j].type, all[j].n_cols, all[j].rows);
    }
    m = load(&t);
    for (uint32_t i = 0; i < TINY_LAYERS; i++)
        for (int w = 0; w < N_LAYER_WEIGHTS; w++) {
            const struct weight *x = &m->layers[i].w[w];
            for (size_t j = 0; x->data && !x->vector && j < x->n_bytes; j++)
                ((uint8_t *)x->data)[j] = (uint8_t)(j * 37 + j / 256 * 11 + (size_t)w);
        }
}

static struct model_split even(uint32_t n)
{
    struct model_split s = {.n_rank = n};
    for (uint32_t r = 0; r < n; r++)
        s.share[r] = 1;
    return s;
}

static struct model *slice_of(const struct model_split *s, uint32_t rank)
{
    struct error err = {0};
    struct model *slice = model_slice(m, s, rank, &err);
    if (!slice)
        fail_msg("%s", err.text);
    return slice;
}

// ---- units

static void units_are_shared_in_proportion_and_nobody_has_none(void **state)
{
    (void)state;
    static const struct {
        uint32_t n, n_rank;
        uint64_t share[MODEL_MAX_RANKS];
        uint32_t has[MODEL_MAX_RANKS];
    } cases[] = {
        {8, 1, {5}, {8}},
        {8, 2, {1, 1}, {4, 4}},
        {9, 2, {1, 1}, {5, 4}},
        {8, 2, {24000000000, 16000000000}, {5, 3}},
        {8, 2, {80000000000, 1}, {7, 1}},
        {8, 8, {1, 1, 1, 1, 1, 1, 1, 100}, {1, 1, 1, 1, 1, 1, 1, 1}},
        {64, 3, {1, 2, 1}, {16, 32, 16}},
        {112, 8, {10, 10, 10, 10, 10, 10, 10, 10}, {14, 14, 14, 14, 14, 14, 14, 14}},
        {7, 3, {2, 1, 2}, {3, 1, 3}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_split s = {.n_rank = cases[i].n_rank};
        uint32_t begin[MODEL_MAX_RANKS + 1];
        memcpy(s.share, cases[i].share, sizeof s.share);
        split_units(cases[i].n, &s, begin);
        assert_int_equal(begin[0], 0);
        for (uint32_t r = 0; r < s.n_rank; r++)
            if (begin[r + 1] - begin[r] != cases[i].has[r])
                fail_msg("case %zu: rank %u has %u of %u", i, r, begin[r + 1] - begin[r],
                         cases[i].n);
        assert_int_equal(begin[s.n_rank], cases[i].n);
    }
}

// ---- slices

static void dequantise(const struct weight *w, uint32_t row, float *out)
{
    const size_t stride = w->row_stride ? w->row_stride : quant_row_bytes(w->type, w->n_cols);
    quant_dequantize(w->type, (const char *)w->data + row * stride, out, w->n_cols);
}

// Rows [row0, ..) and columns [col0, ..) of the whole are the part.
static void assert_part(const struct weight *part, const struct weight *whole, uint32_t row0,
                        uint32_t col0)
{
    static float a[4096], b[4096];
    assert_true(row0 + part->rows <= whole->rows && col0 + part->n_cols <= whole->n_cols);
    assert_true(whole->n_cols <= 4096);
    for (uint32_t i = 0; i < part->rows; i++) {
        dequantise(part, i, a);
        dequantise(whole, row0 + i, b);
        assert_memory_equal(a, b + col0, part->n_cols * sizeof *a);
    }
    assert_int_equal(part->n_bytes, part->rows * quant_row_bytes(part->type, part->n_cols));
}

static void assert_numbers(const struct weight *part, const struct weight *whole, uint32_t first)
{
    assert_true(first + part->n_cols <= whole->n_cols);
    assert_memory_equal(part->data, (const float *)whole->data + first,
                        part->n_cols * sizeof(float));
}

// Rank after rank, each of what is cut goes on where the one before ended, up to the end.
static void check_slices(const struct model_split *s)
{
    uint32_t row = 0;
    for (uint32_t l = 0; l < TINY_LAYERS; l++) {
        const struct layer *whole = &m->layers[l];
        uint32_t head = 0, kv = 0, ff = 0;
        row = 0;
        for (uint32_t r = 0; r < s->n_rank; r++) {
            struct model *slice = slice_of(s, r);
            const struct layer *x = &slice->layers[l];
            assert_int_equal(x->n_head * whole->n_head_kv, x->n_head_kv * whole->n_head);
            assert_int_equal(x->w[ATTN_Q].rows, x->n_head * HEAD_DIM);
            assert_int_equal(x->w[ATTN_K].rows, x->n_head_kv * HEAD_DIM);
            assert_int_equal(x->w[ATTN_OUTPUT].n_cols, x->n_head * HEAD_DIM);
            assert_int_equal(x->w[FFN_GATE].rows, x->n_ff);
            assert_int_equal(x->w[FFN_UP].rows, x->n_ff);
            assert_int_equal(x->w[FFN_DOWN].n_cols, x->n_ff);
            assert_part(&x->w[ATTN_Q], &whole->w[ATTN_Q], head * HEAD_DIM, 0);
            assert_part(&x->w[ATTN_K], &whole->w[ATTN_K], kv * HEAD_DIM, 0);
            assert_part(&x->w[ATTN_V], &whole->w[ATTN_V], kv * HEAD_DIM, 0);
            assert_part(&x->w[ATTN_OUTPUT], &whole->w[ATTN_OUTPUT], 0, head * HEAD_DIM);
            assert_part(&x->w[FFN_GATE], &whole->w[FFN_GATE], ff, 0);
            assert_part(&x->w[FFN_UP], &whole->w[FFN_UP], ff, 0);
            assert_part(&x->w[FFN_DOWN], &whole->w[FFN_DOWN], 0, ff);
            assert_numbers(&x->w[ATTN_Q_BIAS], &whole->w[ATTN_Q_BIAS], head * HEAD_DIM);
            assert_numbers(&x->w[ATTN_K_BIAS], &whole->w[ATTN_K_BIAS], kv * HEAD_DIM);
            assert_numbers(&x->w[ATTN_V_BIAS], &whole->w[ATTN_V_BIAS], kv * HEAD_DIM);
            assert_part(&slice->output, &m->output, row, 0);
            assert_ptr_equal(x->w[ATTN_NORM].data, whole->w[ATTN_NORM].data);
            assert_ptr_equal(slice->tok_embd.data, m->tok_embd.data);
            assert_int_equal(slice->tok_embd.rows, m->tok_embd.rows);
            head += x->n_head;
            kv += x->n_head_kv;
            ff += x->n_ff;
            row += slice->output.rows;
            model_slice_free(slice);
        }
        assert_int_equal(head, whole->n_head);
        assert_int_equal(kv, whole->n_head_kv);
        assert_int_equal(ff, whole->n_ff);
    }
    assert_int_equal(row, m->hp.n_vocab);
}

static void slices_beside_each_other_are_the_model(void **state)
{
    (void)state;
    static const uint32_t types[] = {QUANT_F16, QUANT_Q8_0, QUANT_Q5_1, QUANT_Q4_K, QUANT_Q6_K};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const uint32_t unit = quant_info(types[i])->block_elems == 256 ? 2 : 1; // KV heads
        open_with(8 * unit, unit == 1 ? 8 * 32 : 8 * 256, types[i]);
        for (uint32_t n = 1; n <= MODEL_MAX_RANKS; n++) {
            struct model_split s = even(n);
            check_slices(&s);
            for (uint32_t r = 0; r < n; r++)
                s.share[r] = 7 + 5 * r;
            check_slices(&s);
        }
        unload();
    }
}

static void one_rank_has_all_of_it(void **state)
{
    (void)state;
    open_with(2, N_FF, QUANT_Q8_0);
    const struct model_split s = even(1);
    struct model *slice = slice_of(&s, 0);
    assert_true(slice->tied);
    assert_ptr_equal(slice->output.data, m->output.data);
    assert_memory_equal(slice->layers, m->layers, m->hp.n_layer * sizeof *m->layers);
    model_slice_free(slice);
    unload();
}

// The last unit of the vocabulary is what is left: 264 tokens are 33 units of eight, and of 260 the
// last has four.
static void rows_of_the_head_end_with_the_vocabulary(void **state)
{
    (void)state;
    open_with(2, N_FF, QUANT_Q8_0);
    const struct model_split s = even(2);
    uint32_t begin[MODEL_MAX_RANKS + 1];
    split_head(m, &s, begin);
    assert_int_equal(begin[1], 17 * 8);
    assert_int_equal(begin[2], 264);
    m->hp.n_vocab = 260;
    split_head(m, &s, begin);
    assert_int_equal(begin[1], 17 * 8);
    assert_int_equal(begin[2], 260);
    unload();
}

// ---- what cannot be split

static void assert_refused(uint32_t n_rank, const char *why)
{
    struct error err = {0};
    assert_false(model_can_split(m, n_rank, &err));
    assert_int_equal(err.code, ERR_MODEL);
    if (strcmp(err.text, why) != 0)
        fail_msg("found: %s\nexpected: %s", err.text, why);
}

static void too_few_units_are_told_with_their_number(void **state)
{
    (void)state;
    struct error err = {0};
    open_with(2, N_FF, QUANT_Q8_0);
    assert_true(model_can_split(m, 2, &err));
    assert_refused(3, "layer 0: attention of 2 KV heads, each with 128 columns of attn_output in "
                      "blocks of 32, can be split among at most 2 of 3 devices");
    unload();
    open_with(4, N_FF, QUANT_Q4_K); // of 128 columns two are a block
    assert_true(model_can_split(m, 2, &err));
    assert_refused(4, "layer 0: attention of 4 KV heads, each with 128 columns of attn_output in "
                      "blocks of 256, can be split among at most 2 of 4 devices");
    unload();
    open_with(8, 512, QUANT_Q4_K);
    assert_refused(3, "layer 0: a feed-forward network 512 wide, in units of 256, can be split "
                      "among at most 2 of 3 devices");
    m->hp.n_vocab = 8;
    assert_refused(2, "a vocabulary of 8 tokens, in units of 8, can be split among at most 1 of 2 "
                      "devices");
    unload();
}

static void too_narrow_experts_are_told_with_their_width(void **state)
{
    (void)state;
    open_with(2, N_FF, QUANT_Q8_0);
    struct layer *l = &m->layers[1], was = *l;
    l->experts.n = 8;
    l->n_ff = 0;
    l->experts.n_ff = 8;
    assert_refused(2, "layer 1: experts 8 wide, in units of 8, can be split among at most 1 of 2 "
                      "devices");
    l->experts.n_ff = 16;
    l->experts.n_ff_shared = 7;
    assert_refused(2, "layer 1: a shared expert 7 wide, in units of 8, can be split among at most "
                      "1 of 2 devices");
    struct error err = {0};
    assert_true(model_can_split(m, 1, &err)); // one device has all of it
    *l = was;
    unload();
}

// Layers that mix tokens in other ways than by attention with several KV heads: what their units
// are. attn_output and ssm_out have blocks of 32 columns.
static void units_of_other_mixers_are_told_with_their_number(void **state)
{
    (void)state;
    static const struct {
        struct layer l;
        uint32_t n_rank;
        const char *why;
    } cases[] = {
        {{.n_head = 3, .n_head_kv = 1, .head_dim = HEAD_DIM},
         4,
         "attention of 3 heads, each with 64 columns of attn_output in blocks of 32, can be split "
         "among at most 3 of 4 devices"},
        {{.n_head = 4, .n_head_kv = 4, .latent = {.n_kv = 8, .n_value = 16}},
         3,
         "latent attention of 4 heads, each with 16 columns of attn_output in blocks of 32, can be "
         "split among at most 2 of 3 devices"},
        {{.mixer = MIXER_CONV, .conv = {.n = 96}},
         4,
         "a short convolution of 96 channels, each with 1 columns of attn_output in blocks of 32, "
         "can be split among at most 3 of 4 devices"},
        {{.mixer = MIXER_DELTA,
          .delta = {.n_head = 4, .n_key_head = 2, .n_state = 16, .in_order = true}},
         3,
         "a delta net of 2 keys, each with 32 columns of attn_output in blocks of 32, can be split "
         "among at most 2 of 3 devices"},
        {{.mixer = MIXER_DELTA, .delta = {.n_head = 8, .n_key_head = 4, .n_state = 16}},
         3,
         "a delta net of 4 keys, each with 16 columns of attn_output in blocks of 32, can be split "
         "among at most 2 of 3 devices"},
        // Three keys are no whole number of units of two: all of them are one.
        {{.mixer = MIXER_DELTA, .delta = {.n_head = 6, .n_key_head = 3, .n_state = 16}},
         2,
         "a delta net of 3 keys, each with 16 columns of attn_output in blocks of 32, can be split "
         "among at most 1 of 2 devices"},
        {{.mixer = MIXER_SSM, .ssm = {.n_inner = 128, .n_head = 8, .n_group = 2}},
         3,
         "a state space of 2 groups, each with 64 columns of ssm_out in blocks of 32, can be split "
         "among at most 2 of 3 devices"},
        {{.mixer = MIXER_SSM, .ssm = {.n_inner = 128, .n_head = 8, .n_group = 1}},
         5,
         "a state space of 8 heads, each with 16 columns of ssm_out in blocks of 32, can be split "
         "among at most 4 of 5 devices"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char why[200];
        struct error err = {0};
        open_with(8, N_FF, QUANT_Q8_0);
        struct layer *l = &m->layers[1], was = *l;
        *l = cases[i].l;
        memcpy(l->w, was.w, sizeof was.w);
        l->w[SSM_OUT] = was.w[ATTN_OUTPUT];
        l->w[SSM_OUT].name = "ssm_out";
        snprintf(why, sizeof why, "layer 1: %s", cases[i].why);
        assert_refused(cases[i].n_rank, why);
        assert_true(model_can_split(m, cases[i].n_rank - 1, &err));
        *l = was;
        unload();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_are_shared_in_proportion_and_nobody_has_none),
        cmocka_unit_test(slices_beside_each_other_are_the_model),
        cmocka_unit_test(one_rank_has_all_of_it),
        cmocka_unit_test(rows_of_the_head_end_with_the_vocabulary),
        cmocka_unit_test(too_few_units_are_told_with_their_number),
        cmocka_unit_test(too_narrow_experts_are_told_with_their_width),
        cmocka_unit_test(units_of_other_mixers_are_told_with_their_number),
    };
    return RUN_TESTS("slice", tests);
}
