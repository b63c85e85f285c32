// Several sequences in one pass: their next tokens as rows of one batch, so that weights are read
// once for all, and chunks of prompts beside them. Their picks are made from logits of PICK_ROWS
// rows at a time.
#include <stdlib.h>
#include <string.h>

#include "engine_impl.h"

bool cuda_parts_open(struct cuda_engine *e, struct error *err)
{
    if (!e->passes)
        return true;
    const size_t table = kv_blocks(e->base.n_ctx) * sizeof *e->host_tables;
    e->table_versions = (uint64_t *)calloc(e->n_seq, sizeof *e->table_versions);
    if (!e->table_versions)
        return error_oom(err, "the tables of sequences", e->n_seq * sizeof *e->table_versions);
    if (e->params.exact) {
        e->after = (struct engine_part *)calloc(2 * ENGINE_MAX_PASS_DRAFTS, sizeof *e->after);
        if (!e->after)
            return error_oom(err, "picks", 2 * ENGINE_MAX_PASS_DRAFTS * sizeof *e->after);
    }
    const size_t n_picks = cuda_n_picks(&e->params, e->n_seq);
    return CHECK_CUDA(cudaMallocHost(&e->host_tables, 2 * e->n_seq * table), err) &&
           CHECK_CUDA(cudaMallocHost(&e->host_rows, e->base.n_batch * sizeof *e->host_rows), err) &&
           CHECK_CUDA(cudaMallocHost(&e->host_picks, n_picks * sizeof *e->host_picks), err) &&
           sampler_rows_open(&e->q, &e->rows, err);
}

void cuda_parts_close(struct cuda_engine *e)
{
    cudaFreeHost(e->host_tables);
    cudaFreeHost(e->host_rows);
    cudaFreeHost(e->host_picks);
    sampler_rows_close(&e->rows);
    for (uint32_t n = 0; n <= GRAPH_ROWS; n++)
        if (e->pass_graphs[n].exec)
            cudaGraphExecDestroy(e->pass_graphs[n].exec);
    free(e->table_versions);
    free(e->after);
}

// Of the tables of slots 1 and up, those of slots 1 + begin to end become what the host has.
static bool up_tables(struct cuda_engine *e, uint32_t *tables, const uint32_t *from, size_t begin,
                      size_t end, size_t width, struct error *err)
{
    const size_t ld = kv_blocks(e->base.n_ctx);
    return CHECK_CUDA(cudaMemcpy2DAsync(tables + (1 + begin) * ld, ld * sizeof *tables,
                                        from + begin * ld, ld * sizeof *tables,
                                        width * sizeof *tables, end - begin, cudaMemcpyHostToDevice,
                                        e->q.stream),
                      err);
}

// The tables of slots 1 and up become those of these parts.
static bool use_tables(struct cuda_engine *e, struct engine_part *const *parts, size_t n,
                       struct error *err)
{
    const size_t ld = kv_blocks(e->base.n_ctx);
    const bool apart = e->s.near_tables != e->s.kv_tables;
    uint32_t *near = e->host_tables + e->n_seq * ld;
    size_t begin = n, end = 0, width = 0; // slots that change, and the longest of these tables
    for (size_t i = 0; i < n; i++) {
        const struct seq *s = parts[i]->seq;
        if (e->table_versions[i] != s->version) {
            e->table_versions[i] = s->version;
            memcpy(e->host_tables + i * ld, s->blocks, s->n_blocks * sizeof *s->blocks);
            if (apart)
                memcpy(near + i * ld, s->near, s->n_blocks * sizeof *s->near);
            begin = lesser(begin, i);
            end = i + 1;
        }
    }
    for (size_t i = begin; i < end; i++)
        if (parts[i]->seq->n_blocks > width)
            width = parts[i]->seq->n_blocks;
    return begin >= end ||
           (up_tables(e, e->s.kv_tables, e->host_tables, begin, end, width, err) &&
            (!apart || up_tables(e, e->s.near_tables, near, begin, end, width, err)));
}

// Whether it is the token that its sequence sampled last, and drafts of what is next. A prompt's
// rows are a chunk, even when there is one, so that their bits do not depend on how the prompt was
// cut.
static bool is_next(const struct engine_part *p)
{
    return p->n == 1 + p->n_drafts && !p->given;
}

// What the rows are, in the order of parts: sampled tokens first. given: the parts as they were.
static bool use_rows(struct cuda_engine *e, struct engine_part *const *parts, size_t n,
                     const struct engine_part *given, struct cuda_pass *pass, struct upload *u,
                     struct error *err)
{
    *pass = {};
    pass->n_span = (uint32_t)n;
    e->n_part_rows = n;
    for (size_t i = 0; i < n; i++) {
        const struct engine_part *p = parts[i];
        e->part_rows[p - given] = {pass->n_row, (uint32_t)p->n};
        const uint32_t pos = (uint32_t)p->seq->n_past, last = pos + (uint32_t)p->n - 1;
        if (last > pass->reach)
            pass->reach = last;
        if (last > pass->furthest && (is_next(p) || e->params.exact))
            pass->furthest = last;
        if (is_next(p))
            pass->n_single += (uint32_t)p->n;
        else
            pass->chunks[pass->n_chunk++] = {pass->n_row, (uint32_t)p->n};
        for (uint32_t k = 0; k < p->n; k++) {
            e->host_rows[pass->n_row] = {(uint32_t)(1 + i), pos + k};
            e->host_tokens[pass->n_row++] = p->ids[k];
        }
    }
    upload_add(u, e->s.rows, e->host_rows, pass->n_row);
    upload_add(u, e->s.tokens, e->host_tokens, pass->n_row);
    return cuda_give_hidden(e, parts, n, err);
}

// ---- picks

static struct decode_params params_of(const struct engine_part *p)
{
    const struct seq *s = p->seq; // what is evaluated now is a part of its ids
    return {&s->sampler, s->ids.data, s->n_past + p->n, s->n_probs, NULL, 0, s->mask != NULL};
}

// What the pick may be, to mask: the number of tokens, and a bit for each.
static bool mask_of(const struct engine_part *p, uint32_t *mask, struct error *err)
{
    const size_t n = p->n_drafts > 0 ? p->n - 1 : 0;
    return engine_mask(p->seq, p->ids + 1, n, mask + 1, mask, err);
}

// One pick by itself, from row i of the logits: with settings for which rows cannot be picked from
// together.
static bool pick_alone(struct cuda_engine *e, struct engine_part *p, const float *logits,
                       struct error *err)
{
    const struct decode_params d = params_of(p);
    struct ring_slot *slot = &e->sampler.ring[0];
    slot->seq = 0;
    if (!gpu_sampler_begin(&e->q, &e->sampler, &d, &p->error))
        return true; // its own error
    if (d.masked) {
        uint32_t *mask = sampler_rows_mask(&e->rows, 0);
        if (!mask_of(p, mask, &p->error))
            return true;
        e->sampler.mask = mask;
    }
    if (!cuda_set_step(e, 0, d.n_history - 1, err) ||
        !gpu_sampler_launch(cuda_queue(e, "logits"), &e->sampler, logits, e->hp.n_vocab, e->s.step,
                            err) ||
        !cuda_wait(e, err))
        return false;
    p->d = slot->d;
    if (slot->failed == SAMPLER_NOT_FINITE)
        p->error.code = ERR_FAIL; // see look_for_causes
    else
        gpu_sampler_result(slot, &p->error);
    return true;
}

// From where picks are made: rows of logits that begin at multiples of 16 bytes.
static uint32_t pick_ld(const struct cuda_engine *e)
{
    return (e->hp.n_vocab + 3) / 4 * 4;
}

static const float *pick_from(const struct cuda_engine *e, uint32_t i)
{
    return (e->s.pick_logits ? e->s.pick_logits : e->s.logits) + (size_t)i * pick_ld(e);
}

// Sets n picks before there are logits; false: some cannot be made with the others, or have masks,
// which are best made while the device works.
static bool set_ahead(struct cuda_engine *e, struct engine_part *const *parts, uint32_t n)
{
    if (n > e->s.n_logits)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const struct decode_params d = params_of(parts[i]);
        if (d.masked || !sampler_rows_can(&d, e->hp.n_vocab))
            return false;
        sampler_rows_set(&e->rows, i, &d, pick_from(e, i));
    }
    return n > 0;
}

// The picks of n parts that are set, and whose settings the device has.
static bool pick_together(struct cuda_engine *e, struct engine_part *const *parts, uint32_t n,
                          struct error *err)
{
    if (!sampler_rows_launch(cuda_queue(e, "logits"), &e->rows, n, err) || !cuda_wait(e, err))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct engine_part *p = parts[i];
        if (!sampler_rows_result(&e->q, &e->rows, i, &p->d, &p->error) && p->error.code == ERR_NONE)
            p->error.code = ERR_FAIL; // see look_for_causes
    }
    return true;
}

// The picks of n parts from n rows of logits. ahead: all are set, and uploaded.
static bool pick_rows(struct cuda_engine *e, struct engine_part *const *parts, uint32_t n,
                      bool ahead, struct error *err)
{
    const uint32_t n_vocab = e->hp.n_vocab;
    struct engine_part *together[PICK_ROWS];
    uint32_t n_together = 0;
    if (e->s.pick_logits &&
        !CHECK_CUDA(cudaMemcpy2DAsync(e->s.pick_logits, pick_ld(e) * sizeof(float), e->s.logits,
                                      n_vocab * sizeof(float), n_vocab * sizeof(float), n,
                                      cudaMemcpyDeviceToDevice, e->q.stream),
                    err))
        return false;
    if (ahead)
        return pick_together(e, parts, n, err);
    for (uint32_t i = 0; i < n; i++) {
        struct engine_part *p = parts[i];
        const struct decode_params d = params_of(p);
        if (!sampler_rows_can(&d, n_vocab))
            continue;
        uint32_t *mask = sampler_rows_mask(&e->rows, n_together);
        if (d.masked && !mask_of(p, mask, &p->error))
            continue;
        sampler_rows_set(&e->rows, n_together, &d, pick_from(e, i));
        together[n_together++] = p;
    }
    if (n_together > 0) {
        struct upload settings = {};
        sampler_rows_upload(&e->rows, n_together, &settings);
        if (!upload_launch(cuda_queue(e, "logits"), &settings, err) ||
            !pick_together(e, together, n_together, err))
            return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct decode_params d = params_of(parts[i]);
        if (!sampler_rows_can(&d, n_vocab) && !pick_alone(e, parts[i], pick_from(e, i), err))
            return false;
    }
    return true;
}

// Whether the rows of picks are brought together first, for a norm that no other kernel knows.
static bool picks_gathered(const struct cuda_engine *e)
{
    return e->hp.norm != NORM_RMS || e->output_norm_bias;
}

// The logits of n <= s.n_logits picks, from the i-th on.
static bool head_of_picks(struct cuda_engine *e, uint32_t i, uint32_t n, struct error *err)
{
    if (!picks_gathered(e))
        return cuda_head_of(e, e->s.x, e->s.picks + i, n, err);
    return cuda_head_of(e, e->s.up + (size_t)i * e->hp.n_embd, NULL, n, err);
}

bool cuda_head_of_pass(struct cuda_engine *e, size_t row0, uint32_t n, struct error *err)
{
    const struct cuda_pass any = {};
    e->pass = &any;
    const bool ok = cuda_head_of(e, e->s.x + row0 * e->hp.n_embd, NULL, n, err);
    e->pass = NULL;
    return ok;
}

static bool gather_picks(struct cuda_engine *e, uint32_t n, struct error *err)
{
    return !picks_gathered(e) ||
           gather_rows_launch(cuda_queue(e, "output"), e->s.x, e->s.picks, n, e->hp.n_embd,
                              e->s.up /* nobody else reads that any more */, err);
}

// ---- sampled tokens, then prompts

// The pass of the first n rows, which are next tokens, and of those behind them, which are prompts.
static struct cuda_pass next_of(const struct cuda_pass *p)
{
    struct cuda_pass next = *p;
    next.n_row = p->n_single;
    next.n_chunk = 0;
    return next;
}

static struct cuda_pass prompts_of(const struct cuda_pass *p)
{
    struct cuda_pass prompts = *p;
    prompts.n_row = p->n_row - p->n_single;
    prompts.n_single = 0;
    for (uint32_t i = 0; i < p->n_chunk; i++)
        prompts.chunks[i].row0 -= p->n_single;
    return prompts;
}

// Leaves the hidden states of all rows of e->pass in x. Prompts with products of their own follow
// next tokens: each row is multiplied in one way, whatever is beside it.
static bool forward_pass(struct cuda_engine *e, struct error *err)
{
    const struct cuda_pass *const all = e->pass;
    const uint32_t n = all->n_single;
    if (!e->any_pieces || n == 0 || all->n_chunk == 0)
        return cuda_forward_many(e, all->n_row, err);
    const struct cuda_pass next = next_of(all), prompts = prompts_of(all);
    e->pass = &next;
    bool ok = cuda_forward_many(e, n, err);
    const struct scratch s = e->s;
    struct seq_row *const host_rows = e->host_rows;
    e->s.x += (size_t)n * e->hp.n_embd;
    e->s.rows += n;
    e->s.tokens += n;
    e->host_rows += n;
    e->pass = &prompts;
    ok = ok && cuda_forward_many(e, all->n_row - n, err);
    e->s = s;
    e->host_rows = host_rows;
    e->pass = all;
    return ok;
}

// ---- passes that repeat

// Whether the pass is next tokens alone that are all picked from, at once.
static bool may_be_graph(const struct cuda_engine *e, const struct cuda_pass *pass, uint32_t n_pick)
{
    return !e->no_pass_graphs && !e->q.recorder && pass->n_chunk == 0 && n_pick == pass->n_row &&
           n_pick <= lesser((uint32_t)GRAPH_ROWS, e->s.n_logits);
}

// Launches the graph of such a pass, up to the logits of all rows. *done: there is one; it is made
// when the pass has been launched a few times. Attention has room for twice as many positions as
// there are, so that a graph lasts: blocks that find nothing to do end.
static bool launch_graph(struct cuda_engine *e, struct cuda_pass *pass, bool *done,
                         struct error *err)
{
    enum { FIRST_ROOM = 256 };
    struct pass_graph *g = &e->pass_graphs[pass->n_row];
    *done = false;
    if (g->n_seen == 0 || pass->furthest > g->furthest) {
        g->furthest = FIRST_ROOM - 1;
        while (g->furthest < pass->furthest)
            g->furthest = 2 * g->furthest + 1;
        if (g->exec)
            cudaGraphExecDestroy(g->exec);
        g->exec = NULL;
        g->n_seen = 0;
    }
    if (!g->exec && ++g->n_seen <= GRAPH_AFTER)
        return true;
    pass->furthest = g->furthest;
    pass->n_span = pass->n_row; // at most, and the graph is that of any drafts
    struct error mine = {};
    if (!g->exec && !cuda_capture_exec(
                        e, &g->exec,
                        [&] {
                            return cuda_forward_many(e, pass->n_row, &mine) &&
                                   gather_picks(e, pass->n_row, &mine) &&
                                   head_of_picks(e, 0, pass->n_row, &mine);
                        },
                        &mine)) {
        cudaGetLastError(); // as it was before
        g->exec = NULL;
        e->no_pass_graphs = true;
        return true;
    }
    *done = true;
    return CHECK_CUDA(cudaGraphLaunch(g->exec, e->q.stream), err);
}

// The parts that want a pick, in the order of their rows, which the device is told. For each of the
// picks behind a row and its drafts, which are all made at once, there is a part that ends with it.
static void use_picks(struct cuda_engine *e, struct engine_part *const *parts, size_t n,
                      struct engine_part **picks, uint32_t *n_pick, struct upload *u)
{
    struct engine_part *after = e->after;
    uint32_t row = 0;
    *n_pick = 0;
    for (size_t i = 0; i < n; i++) {
        struct engine_part *p = parts[i];
        row += (uint32_t)p->n;
        for (size_t k = p->pick ? p->n_drafts + 1 : 0; k > 0; k--) {
            e->host_picks[*n_pick] = row - (uint32_t)k;
            if (p->n_drafts > 0) {
                *after = *p;
                after->n = p->n + 1 - k;
            }
            picks[(*n_pick)++] = p->n_drafts > 0 ? after++ : p;
        }
    }
    upload_add(u, e->s.picks, e->host_picks, *n_pick);
}

// there: the logits of all are; ahead: see pick_rows.
static bool pick_all(struct cuda_engine *e, struct engine_part *const *picks, uint32_t n_pick,
                     bool there, bool ahead, struct error *err)
{
    if (n_pick > 0 && !there && !gather_picks(e, n_pick, err))
        return false;
    for (uint32_t i = 0; i < n_pick; i += e->s.n_logits) {
        const uint32_t now = lesser(n_pick - i, e->s.n_logits);
        if ((!there && !head_of_picks(e, i, now, err)) || !pick_rows(e, picks + i, now, ahead, err))
            return false;
    }
    return true;
}

// Of the picks behind rows and their drafts, those that stay.
static void take_drafts(struct engine_part *const *parts, size_t n,
                        struct engine_part *const *picks)
{
    for (size_t i = 0; i < n; i++) {
        struct engine_part *p = parts[i];
        if (!p->pick)
            continue;
        if (p->n_drafts > 0) {
            p->d = picks[0]->d;
            p->error = picks[0]->error;
        }
        for (size_t k = 0; k < p->n_drafts && engine_accepts(p, k, picks[k]->d.id); k++) {
            if (picks[k]->error.code != ERR_NONE || picks[k + 1]->error.code != ERR_NONE)
                break;
            p->more[k] = picks[k + 1]->d;
            p->n_more = k + 1;
        }
        picks += 1 + p->n_drafts;
    }
}

// Where a logit was not finite: evaluates that token once more, alone, and looks after every step.
static bool look_for_causes(struct cuda_engine *e, struct engine_part *const *parts, size_t n,
                            const struct cancel *cancel, struct error *err)
{
    for (size_t i = 0, row = 0; i < n; i++) {
        struct engine_part *p = parts[i];
        row += p->n;
        // (What fails beside drafts is done again without them.)
        if (!p->pick || p->n_drafts > 0 || p->error.code == ERR_NONE || p->error.text[0])
            continue;
        e->last_token = p->ids[p->n - 1];
        e->last_row = (uint32_t)row - 1;
        if (!cuda_work_on(e, p->seq, cancel, err))
            return false;
        cuda_not_finite(e, p->seq->n_past + p->n - 1, true, (uint32_t)p->d.id, p->d.logprob,
                        &p->error);
    }
    return true;
}

bool cuda_enqueue_parts(struct cuda_engine *e, uint32_t n, struct error *err)
{
    struct cuda_pass pass = {n, n - 2, n - 1, n - 1, n - 1, 1, {{n - 2, 2}}};
    const struct decode_params d = {&sampler_defaults, NULL, 1, 0, NULL, 0, false};
    const uint32_t n_pick = lesser(lesser(n, e->n_seq), e->s.n_logits);
    struct upload u = {};
    e->host_rows[n - 2] = {}; // where the chunk begins
    e->pass = &pass;
    sampler_rows_set(&e->rows, 0, &d, e->s.logits);
    sampler_rows_upload(&e->rows, 1, &u);
    bool ok = upload_launch(cuda_queue(e, "pass"), &u, err) && forward_pass(e, err);
    const struct cuda_pass picks = next_of(&pass);
    e->pass = &picks;
    ok = ok && gather_picks(e, n_pick, err) && head_of_picks(e, 0, n_pick, err) &&
         sampler_rows_launch(&e->q, &e->rows, 1, err);
    e->pass = NULL;
    return ok;
}

bool cuda_eval_parts(struct engine *base, struct engine_part *given, size_t n_parts,
                     const struct cancel *cancel, struct error *err)
{
    struct cuda_engine *e = (struct cuda_engine *)base;
    struct engine_part *parts[ENGINE_MAX_PARTS];
    struct cuda_pass pass;
    size_t n = 0;
    for (int many = 0; many < 2; many++)
        for (size_t i = 0; i < n_parts; i++)
            if (is_next(&given[i]) == !many)
                parts[n++] = &given[i];
    e->cancel = cancel;
    e->logits_n = e->n_rows = 0;
    struct engine_part *picks[ENGINE_MAX_PARTS + ENGINE_MAX_PASS_DRAFTS];
    uint32_t n_pick = 0;
    struct upload u = {};
    bool done = false, ahead = false;
    bool ok = cuda_begin(e, err) && use_tables(e, parts, n, err) &&
              use_rows(e, parts, n, given, &pass, &u, err) && cuda_states_use(e, parts, n, err);
    if (ok) {
        use_picks(e, parts, n, picks, &n_pick, &u);
        // Of more, which takes the host a while, when the device is at work.
        ahead = n_pick <= GRAPH_ROWS && set_ahead(e, picks, n_pick);
        if (ahead)
            sampler_rows_upload(&e->rows, n_pick, &u);
        ok = upload_launch(cuda_queue(e, "pass"), &u, err) && !interrupted_alike(e, err);
    }
    e->n_past = pass.reach;
    e->pass = &pass;
    if (ok && may_be_graph(e, &pass, n_pick))
        ok = launch_graph(e, &pass, &done, err);
    e->paced = true;
    ok = ok && (done || forward_pass(e, err));
    e->paced = false;
    const struct cuda_pass rows = next_of(&pass); // the head has one way for all
    e->pass = &rows;
    ok = ok && pick_all(e, picks, n_pick, done, ahead, err);
    if (ok)
        take_drafts(parts, n, picks);
    e->pass = NULL;
    // Also after a failure: nothing may still be running when the sequences are used again.
    struct error mine = {};
    return cuda_wait(e, ok ? err : &mine) && ok && look_for_causes(e, parts, n, cancel, err);
}
