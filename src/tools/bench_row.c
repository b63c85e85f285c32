#include "tools/bench_row.h"

static uint32_t sequences(const struct bench_row *r)
{
    return r->batch ? r->batch : 1;
}

static double step_s(const struct bench_row *r)
{
    return r->median_s / r->n_step;
}

static void put_share(double rate, double peak, struct buf *out)
{
    if (rate > 0 && peak > 0)
        buf_printf(out, " %.0f %% |", 100 * rate / peak);
    else
        buf_puts(out, " |");
}

static void row_md(const struct bench_row *r, const struct engine_peaks *peaks, struct buf *out)
{
    const double step = step_s(r);
    buf_printf(out, "| %s", r->name);
    if (r->batch)
        buf_printf(out, " of %u", r->batch);
    buf_printf(out, " | %u | %.1f | %.3f | %.3f | %.3f..%.3f |", r->depth,
               r->n_tokens / r->median_s, step * 1e3, r->median_s * 1e3, r->min_s * 1e3,
               r->max_s * 1e3);
    if (r->bytes > 0)
        buf_printf(out, " %.1f | %.1f |", r->bytes * 1e-6, r->bytes / step * 1e-9);
    else
        buf_puts(out, " | |");
    put_share(r->bytes / step, peaks->bandwidth, out);
    buf_printf(out, " %.3f |", r->flops / step * 1e-12);
    put_share(r->flops / step, peaks->matrix_flops, out);
    buf_putc(out, '\n');
}

void bench_rows_md(const struct bench_row *rows, size_t n, const struct model *m,
                   const struct engine_peaks *peaks, struct buf *out)
{
    const struct layer_sizes most = model_largest(m);
    uint32_t widest = 1;
    buf_puts(out, "| test | depth | tokens/s | ms per step | ms per run | least..most ms | "
                  "MB/step | GB/s | % of peak | TFLOP/s | % of matrix peak |\n"
                  "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < n; i++) {
        row_md(&rows[i], peaks, out);
        widest = sequences(&rows[i]) > widest ? sequences(&rows[i]) : widest;
    }
    if (most.n_expert && widest > 1)
        buf_printf(
            out,
            "\nMB/step of several rows: of %u experts, of which each row uses %u, as many as "
            "are expected to be different if all are chosen alike often (%.1f for %u rows), "
            "not those that were chosen.\n",
            most.n_expert, most.n_expert_used,
            experts_expected(most.n_expert, most.n_expert_used, widest), widest);
}

static json_t *share_json(double rate, double peak)
{
    return rate > 0 && peak > 0 ? json_real(rate / peak) : json_null();
}

json_t *bench_row_json(const struct bench_row *r, const struct model *m,
                       const struct engine_peaks *peaks)
{
    const struct layer_sizes most = model_largest(m);
    const double step = step_s(r), bytes_rate = r->bytes / step, flops_rate = r->flops / step;
    json_t *experts =
        r->bytes > 0 && most.n_expert
            ? json_real(experts_expected(most.n_expert, most.n_expert_used, sequences(r)))
            : json_null();
    return json_pack(
        "{s:s, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:f, s:f, s:o, s:o, s:f, s:f, "
        "s:o}",
        "test", r->name, "depth", (int)r->depth, "batch", (int)sequences(r), "tokens",
        (int)r->n_tokens, "median_ms", r->median_s * 1e3, "min_ms", r->min_s * 1e3, "max_ms",
        r->max_s * 1e3, "tokens_per_second", r->n_tokens / r->median_s, "bytes_per_token",
        r->bytes / sequences(r), "bytes_per_second", bytes_rate, "steps", (int)r->n_step, "step_ms",
        step * 1e3, "bytes_per_step", r->bytes, "share_of_peak",
        share_json(bytes_rate, peaks->bandwidth), "expected_experts", experts, "flops_per_step",
        r->flops, "flops_per_second", flops_rate, "share_of_matrix_peak",
        share_json(flops_rate, peaks->matrix_flops));
}
