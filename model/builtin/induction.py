"""A head start in copying: two layers whose attention begins as an induction head.

Induction (Olsson et al. 2022) needs two heads that find each other: one that writes into every
position what the token before it was, and one that looks for the positions whose "token before"
equals the present token, and copies what stands there. Gradient descent finds the pair, but late;
a run with few tokens has no time for that. RoPE makes both easy to write down:

  layer 0  Q and K are constant (their biases). Turned by position, their product is largest at
           distance one. V takes 128 of the 256 dimensions of the token (P), O writes them into
           the other 128 (U).
  layer 1  Q reads P of the present token, K reads U, where layer 0 put P of the token before; only
           the slowly turning dimensions are used, so that distance hardly counts. V and O bring
           what stands there: a beginning, from which training goes on.

Q and K of both layers, and V and O of layer 0, stay as they are, and layer 0 has no feed-forward part
(its ffn_down is zero), so that layer 1 reads what layer 0 wrote. Everything else is trained.
"""
import math

import torch


def frozen(name):
    return name.startswith(("blk.0.", "blk.1.attn_q", "blk.1.attn_k", "blk.1.attn_norm"))


@torch.no_grad()
def prepare(model, copy=1.0):
    """Sets layers 0 and 1 of a network; layer 0 has no feed-forward part."""
    s = model.s
    d, half = s.head_dim, s.head_dim // 2
    group = s.n_head // s.n_head_kv
    basis, _ = torch.linalg.qr(torch.randn(s.n_embd, s.n_embd, generator=torch.Generator().manual_seed(5)))
    read, write = basis[:, :s.n_embd // 2].t(), basis[:, s.n_embd // 2:].t()  # P, U: (128, 256)
    theta = [s.rope_theta ** (-i / half) for i in range(half)]
    slow = [i for i in range(half) if theta[i] < 0.02]
    slow += [half + i for i in slow]
    for layer in (0, 1):
        block = model.blk[layer]
        for p in (block.attn_q, block.attn_k, block.attn_v):
            p.weight.zero_()
            p.bias.zero_()
        block.attn_output.weight.zero_()
        block.attn_norm.fill_(1.0)
    model.blk[0].ffn_down.weight.zero_()
    first, second = model.blk[0], model.blk[1]
    for kv in range(s.n_head_kv):
        head = kv * group  # one query head of each group; the others stay silent
        for i in range(10):
            first.attn_k.bias[kv * d + i] = 6.7
            first.attn_q.bias[head * d + i] = 6.7 * math.cos(-theta[i])
            first.attn_q.bias[head * d + half + i] = 6.7 * math.sin(-theta[i])
        mine = slice(kv * d, kv * d + d)
        rms = model.token_embd.weight.pow(2).mean().sqrt()
        first.attn_v.weight[mine] = read[mine]
        first.attn_output.weight[:, head * d:head * d + d] = 2.0 * rms * write[mine].t()
        for n, i in enumerate(slow):
            second.attn_q.weight[head * d + i] = 2.2 * read[kv * d + n]
            second.attn_k.weight[kv * d + i] = 2.2 * write[kv * d + n]
        second.attn_v.weight[mine] = read[mine]
        second.attn_output.weight[:, head * d:head * d + d] = copy * rms * read[mine].t()
