#include "tools/bench_kernels.h"

static double share(const struct bench_kernels *k, double seconds)
{
    return k->p.sum > 0 ? seconds / k->p.sum : 0;
}

static double per_second(double amount, double seconds)
{
    return seconds > 0 ? amount / seconds : 0;
}

void bench_kernels_md(const struct bench_kernels *k, struct buf *out)
{
    const bool token = k->n_seqs > 0 || k->n_tokens == 1; // bound by bytes
    const char *unit = k->n_seqs ? "pass" : token ? "token" : "chunk";
    uint32_t n_launch = 0;
    double work = 0; // bytes or operations
    if (k->n_seqs)
        buf_printf(out, "\nkernels of a pass of %u sequences at position %u\n\n", k->n_seqs,
                   k->n_past);
    else if (token)
        buf_printf(out, "\nkernels of a decoded token at position %u\n\n", k->n_past);
    else
        buf_printf(out, "\nkernels of a chunk of %u tokens of a prompt at position %u\n\n",
                   k->n_tokens, k->n_past);
    buf_printf(out,
               "| kernel | of | launches | us each | us per %s | %% | %s | %s |\n"
               "|---|---|---:|---:|---:|---:|---:|---:|\n",
               unit, token ? "MB it must move" : "GFLOP", token ? "GB/s" : "TFLOP/s");
    for (size_t i = 0; i < k->p.n; i++) {
        const struct engine_kernel *r = &k->p.rows[i];
        double amount = token ? (double)r->bytes : r->flops;
        buf_printf(out, "| %s | %s | %u | %.2f | %.1f | %.1f |", r->kernel, r->what, r->n_launch,
                   r->each * 1e6, r->total * 1e6, 100 * share(k, r->total));
        if (amount > 0)
            buf_printf(out, " %.3f | %.*f |\n", amount * (token ? 1e-6 : 1e-9), token ? 1 : 3,
                       per_second(amount, r->total) * (token ? 1e-9 : 1e-12));
        else
            buf_puts(out, " | |\n");
        n_launch += r->n_launch;
        work += amount;
    }
    buf_printf(out, "| sum | | %u | | %.1f | %.1f | %.3f | %.*f |\n\n", n_launch, k->p.sum * 1e6,
               k->p.sum > 0 ? 100.0 : 0.0, work * (token ? 1e-6 : 1e-9), token ? 1 : 3,
               per_second(work, k->p.sum) * (token ? 1e-9 : 1e-12));
    buf_printf(out,
               "Measured by %s, median of %u runs; each time contains the %.2f us that are "
               "measured when nothing runs.\n"
               "Real time of a %s, its share of the %s row above",
               k->p.how, k->n_run, k->p.nothing * 1e6, unit, token ? "decode" : "prefill");
    if (k->n_seqs)
        buf_printf(out, " of %u", k->n_seqs);
    buf_printf(out, ": %.1f us (%.1f..%.1f); the sum is %.2f times that.\n", k->real_s * 1e6,
               k->real_min_s * 1e6, k->real_max_s * 1e6, per_second(k->p.sum, k->real_s));
}

json_t *bench_kernels_json(const struct bench_kernels *k)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < k->p.n; i++) {
        const struct engine_kernel *r = &k->p.rows[i];
        json_array_append_new(
            rows,
            json_pack("{s:s, s:s, s:i, s:f, s:f, s:f, s:I, s:f, s:f, s:f}", "kernel", r->kernel,
                      "of", r->what, "launches", (int)r->n_launch, "us_each", r->each * 1e6, "us",
                      r->total * 1e6, "share", share(k, r->total), "bytes", (json_int_t)r->bytes,
                      "bytes_per_second", per_second((double)r->bytes, r->total), "flops", r->flops,
                      "flops_per_second", per_second(r->flops, r->total)));
    }
    const bool token = k->n_seqs > 0 || k->n_tokens == 1;
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:f, s:f, s:s, s:f, s:f, s:f, s:o}", "of",
                     token ? "decode" : "prefill", "position", (int)k->n_past, "batch",
                     k->n_seqs ? (int)k->n_seqs : 1, "tokens", (int)k->n_tokens, "runs",
                     (int)k->n_run, "sum_us", k->p.sum * 1e6, "nothing_us", k->p.nothing * 1e6,
                     "how", k->p.how, "real_us", k->real_s * 1e6, "real_min_us",
                     k->real_min_s * 1e6, "real_max_us", k->real_max_s * 1e6, "kernels", rows);
}
