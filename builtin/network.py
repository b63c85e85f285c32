"""The network: Qwen2 as its report describes it, small. Names follow the GGUF tensors."""
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Shape:
    n_vocab: int = 4096
    n_embd: int = 256
    n_layer: int = 7
    n_head: int = 4
    n_head_kv: int = 2
    n_ff: int = 768
    n_ctx: int = 1024
    rope_theta: float = 10000.0
    rms_eps: float = 1e-6

    @property
    def head_dim(self):
        return self.n_embd // self.n_head


def rms_norm(x, weight, eps):
    # in float32, like the program that will run the weights
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return (y * weight.float()).to(x.dtype)


def rope_tables(shape, n, device):
    half = shape.head_dim // 2
    freq = shape.rope_theta ** (-torch.arange(half, device=device).float() / half)
    angle = torch.arange(n, device=device).float()[:, None] * freq[None]
    return angle.cos(), angle.sin()


def rope(x, cos, sin):
    # "NEOX" pairing: element i turns with element i + head_dim / 2
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        d, kv = s.n_embd, s.n_head_kv * s.head_dim
        self.attn_norm = nn.Parameter(torch.ones(d))
        self.ffn_norm = nn.Parameter(torch.ones(d))
        self.attn_q = nn.Linear(d, d)
        self.attn_k = nn.Linear(d, kv)
        self.attn_v = nn.Linear(d, kv)
        self.attn_output = nn.Linear(d, d, bias=False)
        self.ffn_gate = nn.Linear(d, s.n_ff, bias=False)
        self.ffn_up = nn.Linear(d, s.n_ff, bias=False)
        self.ffn_down = nn.Linear(s.n_ff, d, bias=False)

    def forward(self, x, cos, sin, cache=None):
        s, (b, t, d) = self.s, x.shape
        h = rms_norm(x, self.attn_norm, s.rms_eps)
        q = rope(self.attn_q(h).view(b, t, s.n_head, s.head_dim).transpose(1, 2), cos, sin)
        k = rope(self.attn_k(h).view(b, t, s.n_head_kv, s.head_dim).transpose(1, 2), cos, sin)
        v = self.attn_v(h).view(b, t, s.n_head_kv, s.head_dim).transpose(1, 2)
        causal = True
        if cache is not None:
            if "k" in cache:
                k, v = torch.cat((cache["k"], k), 2), torch.cat((cache["v"], v), 2)
            cache["k"], cache["v"] = k, v
            causal = t > 1
            assert t == 1 or k.shape[2] == t, "a prompt is read in one piece"
        group = s.n_head // s.n_head_kv
        y = F.scaled_dot_product_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), is_causal=causal)
        x = x + self.attn_output(y.transpose(1, 2).reshape(b, t, d))
        h = rms_norm(x, self.ffn_norm, s.rms_eps)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))


class Network(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.token_embd = nn.Embedding(s.n_vocab, s.n_embd)
        self.blk = nn.ModuleList(Block(s) for _ in range(s.n_layer))
        self.output_norm = nn.Parameter(torch.ones(s.n_embd))
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(p)
            elif name.startswith("token_embd"):
                nn.init.normal_(p, std=0.1)
            elif p.ndim == 2:
                # branches begin nearly silent, so that deep and shallow begin alike
                nn.init.normal_(p, std=p.shape[1] ** -0.5)
                if "attn_output" in name or "ffn_down" in name:
                    p.data.mul_((2 * s.n_layer) ** -0.5)

    def hidden(self, ids, start=0, cache=None):
        cos, sin = rope_tables(self.s, start + ids.shape[1], ids.device)
        x = self.token_embd(ids)
        for i, block in enumerate(self.blk):
            x = block(x, cos[start:], sin[start:], None if cache is None else cache[i])
        return rms_norm(x, self.output_norm, self.s.rms_eps)

    def loss_sum(self, ids, answered):
        """Summed cross-entropy of the answered tokens (what an assistant says), and how many they are."""
        h = self.hidden(ids[:, :-1])
        want = ids[:, 1:].masked_fill(~answered[:, 1:], -100)
        logits = (h @ self.token_embd.weight.t()).float()
        return F.cross_entropy(logits.flatten(0, 1), want.flatten(), reduction="sum", ignore_index=-100), answered[:, 1:].sum()

    @torch.no_grad()
    def generate(self, ids, n, stop, temperature=0.0, generator=None, min_p=0.05):
        device = self.token_embd.weight.device
        cache, out = [{} for _ in self.blk], []
        step, start = torch.tensor([ids], device=device), 0
        while len(out) < n:
            h = self.hidden(step, start, cache)[0, -1]
            logits = (h @ self.token_embd.weight.t()).float()
            start += step.shape[1]
            if temperature > 0:
                p = torch.softmax(logits / temperature, -1)
                p[p < min_p * p.max()] = 0
                token = int(torch.multinomial(p / p.sum(), 1, generator=generator))
            else:
                token = int(logits.argmax())
            if token in stop:
                break
            out.append(token)
            step = torch.tensor([[token]], device=device)
        return out
