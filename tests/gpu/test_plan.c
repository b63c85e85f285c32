// The plan of a token's bytes (hokku bench --plan): what each matrix, the cache and the sampler
// take of the file, and what lies in memory in place of it.
#include "../unit/test.h"

#include "moved.h"
#include "tiny_engine.h"

enum { MAX_TRAFFIC = 64 };

static struct model *plan_model(struct tiny *t, struct buf *b)
{
    struct error err = {0};
    tiny_write(t, b);
    tiny_release(t);
    assert_false(b->failed);
    struct gguf *g = gguf_open_memory(b->data, b->len, "tiny.gguf", &err);
    struct model *m = g ? model_from_gguf(g, "tiny.gguf", &err) : NULL;
    if (!m)
        fail_msg("%s", err.text);
    return m;
}

// Rows whose matrices take as many bytes as in the file: whole tiles of simple types.
static void the_plan_of_a_token_is_what_a_hand_adds_up(void **state)
{
    (void)state;
    enum { E = TINY_EMBD, KV = TINY_KV * (TINY_EMBD / TINY_HEADS), F = TINY_FF, V = TINY_VOCAB };
    struct tiny t;
    struct buf b = {0};
    tiny_init(&t, "llama");
    struct model *m = plan_model(&t, &b);
    // token 9 after nine others; heads of 8 values. A row of float16 takes 16 bytes; of Q8_0 8 and
    // a scale of 2, which lie in 16 and 4.
    const uint64_t heads = 10 * TINY_KV, f16 = heads * 16, q8 = heads * 10, q8_lies = heads * 20;
    const struct {
        const char *kernel, *weight, *type;
        uint64_t needed;
    } layer[] = {
        {"matvec", "attn_q", "Q8_0", E * 34 + (E + E) * 4},
        {"matvec", "attn_k", "Q4_0", KV * 18 + (E + KV) * 4},
        {"matvec", "attn_v", "F16", KV * E * 2 + (E + KV) * 4},
        {"attention", "kv", "F16", 2 * f16},
        {"matvec", "attn_output", "Q5_1", E * 24 + (E + E) * 4},
        {"matvec", "ffn_gate", "F32", F * E * 4 + E * 4}, // its product stays in registers
        {"matvec", "ffn_up", "BF16", F * E * 2 + (E + F) * 4},
        {"matvec", "ffn_down", "IQ4_NL", E * (F / 32 * 18) + (F + E) * 4},
    };
    enum { N_LAYER_ROWS = sizeof layer / sizeof *layer };
    struct engine_traffic rows[MAX_TRAFFIC];
    size_t n = cuda_plan_traffic(m, KV_F16, KV_F16, 9, rows, MAX_TRAFFIC);
    assert_int_equal(n, 1 + TINY_LAYERS * N_LAYER_ROWS + 2);
    assert_int_equal(cuda_plan_traffic(m, KV_F16, KV_F16, 9, NULL, 0), n);
    assert_string_equal(rows[0].weight, "token_embd");
    assert_int_equal(rows[0].needed, 34 + E * 4);
    for (size_t i = 0; i < TINY_LAYERS * N_LAYER_ROWS; i++) {
        const struct engine_traffic *r = &rows[1 + i];
        assert_string_equal(r->kernel, layer[i % N_LAYER_ROWS].kernel);
        assert_string_equal(r->weight, layer[i % N_LAYER_ROWS].weight);
        assert_string_equal(r->type, layer[i % N_LAYER_ROWS].type);
        assert_int_equal(r->needed, layer[i % N_LAYER_ROWS].needed);
    }
    assert_string_equal(rows[n - 2].weight, "output"); // the embedding again, all of it
    assert_int_equal(rows[n - 2].needed, V * 34 + (E + V) * 4);
    assert_string_equal(rows[n - 1].kernel, "sampler");
    assert_int_equal(rows[n - 1].needed, V * 4);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(rows[i].moved, rows[i].needed);

    cuda_plan_traffic(m, KV_Q8_0, KV_F16, 9, rows, MAX_TRAFFIC);
    assert_string_equal(rows[4].type, "Q8_0");
    assert_int_equal(rows[4].needed, q8 + f16);
    assert_int_equal(rows[4].moved, q8_lies + f16);
    cuda_plan_traffic(m, KV_Q8_0, KV_Q8_0, 9, rows, MAX_TRAFFIC);
    assert_int_equal(rows[4].needed, 2 * q8);
    assert_int_equal(rows[4].moved, 2 * q8_lies);
    model_free(m);
    buf_release(&b);

    // a window of four
    tiny_init(&t, "llama");
    tiny_u32(&t, "llama.attention.sliding_window", 4);
    m = plan_model(&t, &b);
    cuda_plan_traffic(m, KV_F16, KV_F16, 9, rows, MAX_TRAFFIC);
    assert_int_equal(rows[4].needed, 2 * f16 / 10 * 4);
    cuda_plan_traffic(m, KV_F16, KV_F16, 2, rows, MAX_TRAFFIC);
    assert_int_equal(rows[4].needed, 2 * f16 / 10 * 3);
    model_free(m);
    buf_release(&b);
}

enum { MATRIX = TINY_EMBD * TINY_FF / 32 * 34 };
static const struct {
    enum layer_weight w;
    const char *name;
    uint32_t rows, n_cols, n_in, n_out;
} stacks[] = {{EXPERT_GATE, "ffn_gate_exps", TINY_FF, TINY_EMBD, 1, 0},
              {EXPERT_UP, "ffn_up_exps", TINY_FF, TINY_EMBD, 1, 2 * TINY_FF},
              {EXPERT_DOWN, "ffn_down_exps", TINY_EMBD, TINY_FF, 2, TINY_EMBD}};

// The second layer of a model gets n experts.
static void add_experts(struct fixture *f, uint32_t n)
{
    struct layer *l = &f->m->layers[1];
    l->experts = (struct experts){
        .n = n, .n_used = 2, .n_ff = TINY_FF, .scale = 1, .n_group = 1, .n_group_used = 1};
    l->n_ff = 0;
    l->w[ROUTER] = l->w[FFN_GATE]; // its rows do not matter here
    l->w[FFN_GATE].data = l->w[FFN_UP].data = l->w[FFN_DOWN].data = NULL;
    for (size_t i = 0; i < 3; i++)
        l->w[stacks[i].w] = (struct weight){.name = stacks[i].name,
                                            .group = stacks[i].name,
                                            .type = QUANT_Q8_0,
                                            .rows = stacks[i].rows,
                                            .n_cols = stacks[i].n_cols,
                                            .n_stacked = n,
                                            .n_used = 2,
                                            .data = f->m->tok_embd.data,
                                            .n_bytes = (size_t)n * MATRIX,
                                            .stack_bytes = MATRIX};
}

static void open_mixture(struct fixture *f, uint32_t n)
{
    open_model(f, "llama");
    add_experts(f, n);
}

static struct engine_plan plan_of(const struct fixture *f, uint32_t n_ctx, uint32_t n_batch)
{
    const struct engine_params p = {.n_ctx = n_ctx, .n_batch = n_batch};
    struct error err = {0};
    struct engine_plan plan;
    if (!cuda_engine_plan(f->m, &p, &plan, &err))
        fail_msg("%s", err.text);
    return plan;
}

// Of all experts in memory, of those that are used in traffic.
static void the_plan_knows_which_experts_are_used(void **state)
{
    (void)state;
    uint64_t weights[2];
    for (uint32_t n = 3; n <= 6; n += 3) {
        struct fixture f;
        struct engine_traffic rows[MAX_TRAFFIC];
        open_mixture(&f, n);
        weights[n / 6] = plan_of(&f, N_CTX, 32).weights;
        const size_t n_rows = cuda_plan_traffic(f.m, KV_F16, KV_F16, 9, rows, MAX_TRAFFIC);
        assert_true(n_rows > 5);
        for (size_t i = 0; i < 3; i++) {
            const struct engine_traffic *r = &rows[n_rows - 5 + i]; // before the head, the sampler
            const uint64_t io = (stacks[i].n_in * stacks[i].n_cols + stacks[i].n_out) * 4;
            assert_string_equal(r->weight, stacks[i].name);
            assert_string_equal(r->kernel, "expert_row");
            assert_int_equal(r->needed, 2 * MATRIX + io);
            assert_int_equal(r->moved, r->needed);
        }
        close_model(&f);
    }
    // but for the alignment of six planes
    const int64_t off = (int64_t)(weights[1] - weights[0]) - 9 * MATRIX;
    if (off < -6 * 256 || off > 6 * 256)
        fail_msg("three experts more take %lld bytes, expected %d", (long long)off + 9 * MATRIX,
                 9 * MATRIX);
}

// What -b is when nobody says: 2,048, and less where that takes a twentieth of the memory more than
// 512 would.
static void chunks_are_as_long_as_memory_has_them(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        const bool is_mixture = kind % 2, has_states = kind / 2;
        bool seen[3] = {false};
        struct fixture f;
        if (has_states)
            open_state_space(&f);
        else
            open_model(&f, "llama");
        if (is_mixture)
            add_experts(&f, 3);
        f.m->hp.n_ctx_train = 4096;
        for (uint32_t n_ff = 64; n_ff < 1u << 22; n_ff += n_ff / 2) {
            static const uint32_t n_batch[] = {2048, 1024, 512};
            uint64_t scratch[3], more[3];
            f.m->layers[0].n_ff = n_ff;
            for (size_t i = 0; i < 3; i++)
                scratch[i] = plan_of(&f, 4096, n_batch[i]).scratch;
            for (size_t i = 0; i < 3; i++)
                more[i] = 20 * (scratch[i] - scratch[2]);
            const struct engine_plan plan = plan_of(&f, 4096, 0);
            const uint64_t near = plan.available / 10; // something of the memory may be taken
            const size_t want = more[0] <= plan.available ? 0 : more[1] <= plan.available ? 1 : 2;
            if (more[0] - plan.available + near < 2 * near ||
                more[1] - plan.available + near < 2 * near)
                continue;
            assert_int_equal(plan.scratch, scratch[want]);
            seen[want] = true;
        }
        assert_true(seen[0] && seen[1] && seen[2]);
        close_model(&f);
    }
}

// What does not fit with 2,048 tokens at a time and would with 512: that is said.
static void a_plan_says_whether_shorter_chunks_would_fit(void **state)
{
    (void)state;
    struct fixture f;
    open_model(&f, "llama");
    f.m->hp.n_ctx_train = INT32_MAX;
    f.m->layers[0].n_ff = 4096;
    const uint32_t most = plan_of(&f, 0, 512).n_ctx_max;
    assert_in_range(most, 1000, INT32_MAX - 65);
    for (int k = 0; k < 3; k++) {
        const struct engine_plan plan = plan_of(&f, k ? most + 64 : most, k > 1 ? 512 : 0);
        assert_false(plan.fits);
        assert_int_equal(plan.fits_by_less, k == 0);
    }
    close_model(&f);
}

// Every matrix in every type: what is moved is at most 5 % more than what the file has, but for
// widened types (moved.h).
static void no_weight_type_moves_much_more_than_the_file_has(void **state)
{
    (void)state;
    static const uint32_t types[] = {
#define NUMBER(name, number, ...) number,
        BLOCK_TYPES(NUMBER)
#undef NUMBER
    };
    enum { E = 512, F = 768, HEAD = E / TINY_HEADS, KV = TINY_KV * HEAD };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (enum kv_type kv = KV_F16; kv <= KV_Q8_0; kv++) {
            const struct {
                const char *name;
                uint64_t n_cols, rows;
            } all[] = {{"attn_q", E, E},      {"attn_k", E, KV},  {"attn_v", E, KV},
                       {"attn_output", E, E}, {"ffn_gate", E, F}, {"ffn_up", E, F},
                       {"ffn_down", F, E}};
            struct tiny t;
            struct buf b = {0};
            tiny_init(&t, "llama");
            tiny_u32(&t, "llama.embedding_length", E);
            tiny_u32(&t, "llama.feed_forward_length", F);
            tiny_tensor(&t, "token_embd.weight", types[i], E, TINY_VOCAB);
            tiny_tensor(&t, "output.weight", types[i], E, TINY_VOCAB);
            tiny_tensor(&t, "output_norm.weight", QUANT_F32, E, 0);
            for (int l = 0; l < TINY_LAYERS; l++) {
                char name[96];
                for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
                    snprintf(name, sizeof name, "blk.%d.%s.weight", l, all[k].name);
                    tiny_tensor(&t, name, types[i], all[k].n_cols, all[k].rows);
                }
                snprintf(name, sizeof name, "blk.%d.attn_norm.weight", l);
                tiny_tensor(&t, name, QUANT_F32, E, 0);
                snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", l);
                tiny_tensor(&t, name, QUANT_F32, E, 0);
            }
            struct model *m = plan_model(&t, &b);
            struct engine_traffic rows[MAX_TRAFFIC];
            size_t n = cuda_plan_traffic(m, kv, kv, 100, rows, MAX_TRAFFIC);
            assert_int_equal(n, 1 + TINY_LAYERS * 8 + 2);
            uint64_t moved = 0, needed = 0;
            for (size_t k = 0; k < n; k++) {
                if (rows[k].moved < rows[k].needed ||
                    (double)rows[k].moved > most_moved(types[i]) * (double)rows[k].needed)
                    fail_msg("%s as %s: %llu bytes moved, %llu needed", rows[k].weight,
                             rows[k].type, (unsigned long long)rows[k].moved,
                             (unsigned long long)rows[k].needed);
                moved += rows[k].moved;
                needed += rows[k].needed;
            }
            if (kv == KV_F16)
                print_message("# %s: %.4f\n", quant_info(types[i])->name,
                              (double)moved / (double)needed);
            model_free(m);
            buf_release(&b);
        }
}

int main(int argc, char **argv)
{
    if (!choose_engine(argc, argv))
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_of_a_token_is_what_a_hand_adds_up),
        cmocka_unit_test(the_plan_knows_which_experts_are_used),
        cmocka_unit_test(chunks_are_as_long_as_memory_has_them),
        cmocka_unit_test(a_plan_says_whether_shorter_chunks_would_fit),
        cmocka_unit_test(no_weight_type_moves_much_more_than_the_file_has),
    };
    return RUN_TESTS("plan", tests);
}
