"""A decoder-only transformer (Touvron et al. 2023; Qwen2, Qwen3) in NumPy and double precision, straight from the papers:
what an engine is compared with. It knows a model by its GGUF file alone, read and dequantised by the gguf package."""
import math

import gguf
import numpy as np


def dequantize(data, qtype):
    """Rows of bytes -> rows of weights: by the gguf package, which has no code for Q1_0 and does not know Q2_0 (42):
    there an f16 scale d is followed by 128 bits, or 64 times two, lowest first: d (2 q - 1), or d (q - 1)."""
    if int(qtype) not in (41, 42):
        return gguf.quants.dequantize(data, qtype)
    bits = int(qtype) - 40
    blocks = np.ascontiguousarray(data).reshape(-1, 18)
    d = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    q = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little").reshape(len(blocks), -1, bits)
    q = (q << np.arange(bits, dtype=np.uint8)).sum(axis=2).astype(np.float32)
    return (d * (2 * q - 1 if bits == 1 else q - 1)).reshape(len(data), -1)


class Reader(gguf.GGUFReader):
    """With the file as an ordinary array: each of the many slices of a np.memmap takes several times as long."""

    @property
    def data(self):
        return self.bytes

    @data.setter
    def data(self, mapped):
        self.bytes = np.asarray(mapped)


class File:
    """Everything from the file, in float64. forward() of a model appends to the keys and values of the tokens before."""

    def __init__(self, path):
        r = Reader(path)
        self.w = {t.name: dequantize(t.data, t.tensor_type).astype(np.float64) for t in r.tensors}
        self.meta = {k: f.contents() for k, f in r.fields.items() if not k.startswith("tokenizer.")}
        self.arch = self.meta["general.architecture"]
        for name in [] if self.arch == "gemma4" else [n[:-len(".scale")] for n in self.w if n.endswith(".scale")]:
            matrix, scale = self.w[name + ".weight"], self.w[name + ".scale"]  # one, or one of each expert: of the product
            self.w[name + ".weight"] = matrix * (scale if scale.size == 1 else scale[:, None, None])

    def get(self, key, default=None):
        return self.meta.get(f"{self.arch}.{key}", default)

    def logprobs(self, ids):
        """Natural logarithms of the probabilities after each of the tokens, the first of a text."""
        self.forget()
        logits = self.forward(ids)
        self.last = logits[-1]
        return log_softmax(logits)

    def greedy(self, n):
        """The n likeliest tokens after those of logprobs(), and how far the second logit is behind at each."""
        ids, gaps = [], []
        logits = self.last
        for _ in range(n):
            second, first = np.argsort(logits)[-2:]
            ids.append(int(first))
            gaps.append(float(logits[first] - logits[second]))
            logits = self.forward(np.array([first]))[-1]
        return ids, gaps


class Model(File):
    def __init__(self, path):
        super().__init__(path)
        self.heads, self.kv = self.get("attention.head_count"), self.get("attention.head_count_kv")
        self.head_dim = self.get("attention.key_length", self.get("embedding_length") // self.heads)
        self.forget()

    def forget(self):
        """Back to no tokens."""
        self.keys = [np.zeros((0, self.kv, self.head_dim))] * self.get("block_count")
        self.values = list(self.keys)

    def rope(self, positions):
        """cos and sin (positions, rope_dim / 2)."""
        dim = self.get("rope.dimension_count", self.head_dim)
        base = self.get("rope.freq_base", 10000.0)
        i = np.arange(dim // 2)
        freq = base ** (-2.0 * i / dim)
        if "rope_freqs.weight" in self.w:
            freq = freq / self.w["rope_freqs.weight"]
        kind, factor, magnitude = self.get("rope.scaling.type", "none"), self.get("rope.scaling.factor", 1.0), 1.0
        if kind == "linear":
            freq = freq / factor
        elif kind == "yarn":  # Peng et al. 2023, section 3.2 (NTK by parts) and 3.4
            orig = self.get("rope.scaling.original_context_length")
            at = lambda rotations: dim * math.log(orig / (rotations * 2 * math.pi)) / (2 * math.log(base))
            low, high = max(math.floor(at(32)), 0), min(math.ceil(at(1)), dim - 1)
            ramp = np.clip((i - low) / max(high - low, 0.001), 0, 1)  # 0: keep, 1: interpolate
            freq = freq * (1 - ramp) + freq / factor * ramp
            magnitude = (1 + 0.1 * math.log(factor)) * self.get("rope.scaling.attn_factor", 1.0)
        angle = positions[:, None] * freq
        return np.cos(angle) * magnitude, np.sin(angle) * magnitude

    def norm(self, x, name):
        eps = self.get("attention.layer_norm_rms_epsilon")
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * self.w[name]

    def rotate(self, x, cos, sin):  # (n, heads, head_dim)
        d = cos.shape[1]
        cos, sin = cos[:, None], sin[:, None]
        out = x.copy()
        if self.arch == "llama":  # neighbours
            a, b = x[..., 0:2 * d:2], x[..., 1:2 * d:2]
            out[..., 0:2 * d:2], out[..., 1:2 * d:2] = a * cos - b * sin, a * sin + b * cos
        else:  # halves
            a, b = x[..., :d], x[..., d:2 * d]
            out[..., :d], out[..., d:2 * d] = a * cos - b * sin, a * sin + b * cos
        return out

    def linear(self, x, name):
        y = x @ self.w[name + ".weight"].T
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def forward(self, ids):
        """Logits (n, vocabulary) of n more tokens."""
        w, n, past = self.w, len(ids), len(self.keys[0])
        heads, kv, hd = self.heads, self.kv, self.head_dim
        pos, at = np.arange(past + n), np.arange(past, past + n)
        cos, sin = self.rope(at)
        swa = self.get("attention.sliding_window", 0)
        mask = pos[None, :] > at[:, None]
        if swa:
            mask |= pos[None, :] <= at[:, None] - swa
        x = w["token_embd.weight"][ids]
        for l in range(self.get("block_count")):
            p = f"blk.{l}."
            h = self.norm(x, p + "attn_norm.weight")
            q = self.linear(h, p + "attn_q").reshape(n, heads, hd)
            k = self.linear(h, p + "attn_k").reshape(n, kv, hd)
            v = self.linear(h, p + "attn_v").reshape(n, kv, hd)
            if p + "attn_q_norm.weight" in w:
                q, k = self.norm(q, p + "attn_q_norm.weight"), self.norm(k, p + "attn_k_norm.weight")
            q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
            k = self.keys[l] = np.concatenate([self.keys[l], k])
            v = self.values[l] = np.concatenate([self.values[l], v])
            out = np.zeros((n, heads, hd))
            for i in range(heads):
                s = q[:, i] @ k[:, i // (heads // kv)].T / math.sqrt(hd)
                s[mask] = -np.inf
                s = np.exp(s - s.max(-1, keepdims=True))
                out[:, i] = s / s.sum(-1, keepdims=True) @ v[:, i // (heads // kv)]
            x = x + self.linear(out.reshape(n, heads * hd), p + "attn_output")
            h = self.norm(x, p + "ffn_norm.weight")
            g = self.linear(h, p + "ffn_gate")
            x = x + self.linear(g / (1 + np.exp(-g)) * self.linear(h, p + "ffn_up"), p + "ffn_down")
        return self.norm(x, "output_norm.weight") @ w.get("output.weight", w["token_embd.weight"]).T


def log_softmax(logits):
    m = logits.max(-1, keepdims=True)
    return logits - m - np.log(np.exp(logits - m).sum(-1, keepdims=True))
