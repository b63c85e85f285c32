// What the two attention kernels (attention_decode.cu, attention_prefill.cu) need together.
#include "attention.cuh"

size_t attention_smem(uint32_t head_dim)
{
    size_t decode = attention_decode_smem(head_dim), prefill = attention_prefill_smem(head_dim);
    return decode > prefill ? decode : prefill;
}

void attention_scratch(int n_sm, uint32_t n_head, uint32_t n_head_kv, uint32_t head_dim,
                       uint32_t n_batch, struct attention_scratch *out)
{
    struct attention_scratch decode = {}, prefill = {};
    attention_decode_scratch(n_sm, n_head, n_head_kv, head_dim, &decode);
    attention_prefill_scratch(n_sm, n_head, head_dim, n_batch, &prefill);
    out->partial = decode.partial > prefill.partial ? decode.partial : prefill.partial;
    out->counters = decode.counters > prefill.counters ? decode.counters : prefill.counters;
    out->q_f16 = prefill.q_f16;
}
