// What is asked for ahead lies in the layer's matrices, is as much as was allowed, and even.
#include <algorithm>

#include "engine_impl.h"
#include "gpu_test.h"

// A layer whose three matrices lie in device memory.
struct some_layer {
    struct cuda_engine e = {};
    struct layer facts = {};
    struct gpu_layer l = {};
    std::vector<std::unique_ptr<device_array<uint8_t>>> planes;
    device_array<struct step_state> step{1};
    some_layer(uint32_t type, uint32_t n_embd, uint32_t n_out, uint32_t n_ff)
    {
        const struct {
            enum layer_weight w;
            uint32_t rows, n_cols;
        } shapes[] = {
            {ATTN_OUTPUT, n_embd, n_out}, {FFN_GATE, n_ff, n_embd}, {FFN_UP, n_ff, n_embd}};
        for (const auto &s : shapes) {
            if (s.rows == 0)
                continue;
            const uint64_t n = cuda_layout(type, s.rows, s.n_cols, NULL, &l.w[s.w]);
            check(n > 0, "no layout");
            planes.push_back(std::make_unique<device_array<uint8_t>>((size_t)n));
            planes.back()->spoil();
            cuda_layout(type, s.rows, s.n_cols, planes.back()->p, &l.w[s.w]);
        }
        e.q = Q;
        l.facts = &facts;
        step.put({{}});
        e.s.step = step.p;
    }
};

struct plane {
    const uint8_t *p;
    uint64_t n_bytes;
};

static std::vector<plane> planes_of(const struct wmat &w)
{
    const struct quant_planes *pl = cuda_quant_planes(w.type);
    const uint64_t n = (uint64_t)w.n_tile * TILE_ROWS * w.n_chunk;
    std::vector<plane> all = {{w.q, n * pl->q}, {w.h, n * pl->h}, {w.s, n * pl->s}};
    all.push_back({w.d, pl->d_chunks ? n / pl->d_chunks * pl->d : 0});
    return all;
}

// Bytes asked for of a matrix, and the longest stretch of a plane without any.
struct asked {
    uint64_t n_bytes, longest_gap;
};

static struct asked asked_of(const struct spans &s, const struct wmat &w, uint32_t *n_found)
{
    struct asked a = {};
    if (!w.q)
        return a;
    for (const plane &p : planes_of(w))
        for (uint32_t i = 0; i < s.n && p.p; i++) {
            const struct span &x = s.at[i];
            if (x.p != p.p)
                continue;
            ++*n_found;
            const uint64_t end = (uint64_t)(x.n - 1) * x.stride + x.n_bytes;
            check(x.n > 0 && x.n_bytes > 0 && x.n_bytes % 16 == 0 && x.stride % 16 == 0 &&
                      x.n_bytes <= (x.n > 1 ? x.stride : p.n_bytes) && end <= p.n_bytes,
                  "%u pieces of %u, one every %u, of %llu bytes", x.n, x.n_bytes, x.stride,
                  (unsigned long long)p.n_bytes);
            a.n_bytes += (uint64_t)x.n * x.n_bytes;
            const uint64_t between = x.n > 1 ? x.stride - x.n_bytes : 0, behind = p.n_bytes - end;
            a.longest_gap = std::max({a.longest_gap, between, behind});
        }
    return a;
}

static void as_much_as_allowed_and_evenly(void)
{
    enum { N_EMBD = 1024, N_OUT = 512, N_FF = 4096 };
    for (uint32_t type : {(uint32_t)QUANT_Q4_K, (uint32_t)QUANT_Q6_K, (uint32_t)QUANT_Q5_0,
                          (uint32_t)QUANT_MXFP4, (uint32_t)QUANT_F16}) {
        some_layer l(type, N_EMBD, N_OUT, N_FF);
        l.e.q.n_sm = 132;
        const double out = (double)cuda_layout_bytes(type, N_EMBD, N_OUT),
                     feed = 2.0 * (double)cuda_layout_bytes(type, N_FF, N_EMBD);
        // attn_output has two fifths, the others what it leaves: half of them at most, or all
        for (double n_bytes :
             {0.3 * out, out, 2.5 * out, out + 0.1 * feed, out + 0.6 * feed, 2.5 * (out + feed)}) {
            l.e.ahead_bytes = n_bytes;
            const struct spans s = cuda_spans_ahead(&l.e, &l.l);
            uint32_t n_found = 0;
            const struct asked o = asked_of(s, l.l.w[ATTN_OUTPUT], &n_found),
                               g = asked_of(s, l.l.w[FFN_GATE], &n_found),
                               u = asked_of(s, l.l.w[FFN_UP], &n_found);
            const double of_out = std::min(0.4 * n_bytes, out), left = n_bytes - of_out;
            const double of_feed = left > 2 * feed ? feed : std::min(left, feed / 2);
            const double got = (double)(g.n_bytes + u.n_bytes);
            check(n_found == s.n, "%u spans, %u of the layer's planes", s.n, n_found);
            check((double)o.n_bytes <= of_out && (double)o.n_bytes >= 0.85 * of_out,
                  "type %u: %.0f of attn_output's %.0f bytes", type, (double)o.n_bytes, of_out);
            check(got <= of_feed && got >= 0.85 * of_feed && g.n_bytes == u.n_bytes,
                  "type %u: %.0f of the %.0f bytes behind it", type, got, of_feed);
            if (of_feed > 0)
                check((double)g.longest_gap <= 2 * feed / 528 + 128 * feed / of_feed,
                      "type %u: %llu bytes without any", type, (unsigned long long)g.longest_gap);
            if (of_feed >= feed)
                check(o.longest_gap < 16 * 4096 && g.longest_gap < 16 * 4096,
                      "all of them: not all");
        }
    }
}

// A layer with experts has nothing there but attention's output, a tiny one less than a piece.
static void what_a_layer_lacks_is_not_asked_for(void)
{
    some_layer experts(QUANT_Q8_0, 256, 256, 0), none(QUANT_F16, 0, 0, 0);
    experts.e.ahead_bytes = none.e.ahead_bytes = 1e6;
    check(cuda_spans_ahead(&experts.e, &experts.l).n == 2, "not the planes of one matrix");
    check(cuda_spans_ahead(&none.e, &none.l).n == 0, "something of nothing");
    // A plane of which less than a piece would be asked for has none.
    for (double n_bytes : {1.0, 40.0, 1e3, 5e3, 2e4}) {
        some_layer little(QUANT_Q4_K, 512, 512, 512);
        little.e.ahead_bytes = n_bytes;
        const struct spans s = cuda_spans_ahead(&little.e, &little.l);
        check(n_bytes > 100 || s.n == 0, "%u planes for %.0f bytes", s.n, n_bytes);
        for (uint32_t i = 0; i < s.n; i++)
            check((uint64_t)s.at[i].n * s.at[i].n_bytes >= 112, "%.0f bytes: %u pieces of %u",
                  n_bytes, s.at[i].n, s.at[i].n_bytes);
    }
    some_layer parallel(QUANT_F16, 64, 64, 64); // where gate and up come before attention
    parallel.facts.parallel = true;
    parallel.e.ahead_bytes = 1e6;
    check(cuda_spans_ahead(&parallel.e, &parallel.l).n == 1, "what has been read");
    some_layer beside(QUANT_F16, 64, 64, 64); // and where a state space comes before gate and up
    beside.facts.ssm.n_head = beside.facts.ssm.n_group = beside.facts.ssm.n_state = 2;
    beside.e.ahead_bytes = 1e6;
    check(layer_state_size(&beside.facts) > 0 && cuda_spans_ahead(&beside.e, &beside.l).n == 1,
          "what is read later");
}

// On the emulation nothing outside of allocations may be asked for; on both a graph with the branch
// runs, over and over, and a capture that fails leaves the queue as it was.
static void a_graph_has_it_beside(void)
{
    for (uint32_t type : {(uint32_t)QUANT_Q4_K, (uint32_t)QUANT_F16, (uint32_t)QUANT_IQ3_XXS}) {
        some_layer l(type, 512, 256, 768);
        must(cuda_side_open(&l.e, &ERR) && cuda_ahead_open(&l.e, &ERR));
        cudaGraphExec_t exec = NULL;
        struct error why = {};
        for (double n_bytes : {2e4, 3e5, 1e7}) {
            l.e.ahead_bytes = l.e.side.q.stream ? n_bytes : 0.0;
            size_t n_node = 0;
            cudaGraph_t graph = NULL;
            auto twice = [&] {
                return cuda_ask_ahead(&l.e, &l.l, &ERR) && cuda_ask_ahead(&l.e, &l.l, &ERR);
            };
            must(cuda_capture(&l.e, &graph, twice, &ERR));
            must(CHECK_CUDA(cudaGraphGetNodes(graph, NULL, &n_node), &ERR));
            check(n_node == (l.e.side.q.stream ? 2u : 0u), "%zu nodes", n_node);
            cudaGraphDestroy(graph);
            check(!cuda_capture(
                      &l.e, &graph,
                      [&] { return twice() && error_set(&why, ERR_FAIL, "on purpose"); }, &why),
                  "a capture that fails succeeds");
            if (graph)
                cudaGraphDestroy(graph);
            must(cuda_capture_exec(&l.e, &exec, twice, &ERR));
            for (int i = 0; i < 3; i++)
                must(CHECK_CUDA(cudaGraphLaunch(exec, l.e.q.stream), &ERR));
            must(CHECK_CUDA(cudaStreamSynchronize(l.e.q.stream), &ERR));
            cudaGraphExecDestroy(exec);
        }
        must(cuda_ask_ahead(&l.e, &l.l, &ERR)); // outside of a graph: nothing
        cuda_side_close(&l.e);
    }
}

// Behind the end of an answer only what comes before the look at it is asked for.
static void a_token_behind_the_end_asks_for_little(void)
{
    some_layer l(QUANT_Q4_K, 512, 512, 1024);
    must(cuda_side_open(&l.e, &ERR) && cuda_ahead_open(&l.e, &ERR));
    l.e.ahead_bytes = l.e.side.q.stream ? 1e7 : 0.0;
    const struct spans s = cuda_spans_ahead(&l.e, &l.l);
    for (uint32_t done : {0u, 1u}) {
        struct step_state state = {};
        state.done = done;
        l.step.put({state});
        cudaGraphExec_t exec = NULL;
        must(cuda_capture_exec(
            &l.e, &exec, [&] { return cuda_ask_ahead(&l.e, &l.l, &ERR); }, &ERR));
#ifdef HOKKU_CUDA_ON_CPU
        const uint64_t before = emu_prefetched();
#endif
        must(CHECK_CUDA(cudaGraphLaunch(exec, l.e.q.stream), &ERR));
        must(CHECK_CUDA(cudaStreamSynchronize(l.e.q.stream), &ERR));
#ifdef HOKKU_CUDA_ON_CPU
        uint64_t expected = 0, got = emu_prefetched() - before;
        for (uint32_t i = 0; i < s.n && l.e.ahead_bytes > 0.0 && (i == 0 || !done); i++)
            expected += (uint64_t)s.at[i].n * s.at[i].n_bytes;
        check(got == expected, "done %u: %llu bytes, expected %llu", done, (unsigned long long)got,
              (unsigned long long)expected);
#endif
        cudaGraphExecDestroy(exec);
    }
    cuda_side_close(&l.e);
    check(s.n > 1 || l.e.ahead_bytes == 0.0, "%u spans", s.n);
}

static const struct tap_test tests[] = {
    {"as much as allowed, and evenly", as_much_as_allowed_and_evenly},
    {"what a layer lacks is not asked for", what_a_layer_lacks_is_not_asked_for},
    {"a graph has it beside", a_graph_has_it_beside},
    {"a token behind the end asks for little", a_token_behind_the_end_asks_for_little},
};

int main(void)
{
    return gpu_test_main(tests);
}
