"""The forward passes of the families that hokku runs, in NumPy and double precision: each from its paper or its makers'
own code, stated as what is special in it. Nothing here knows of hokku's tables.

Plain is what they have in common (Touvron et al. 2023): x += attention(norm(x)); x += down(silu(gate) * up), RMS norms."""
import math

import numpy as np

from numpy_model import File


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def exact_gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def relu2(x):
    return np.maximum(x, 0) ** 2


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def cap(x, c):
    return c * np.tanh(x / c)


class Plain(File):
    neox = False  # rotation pairs: (i, i + R/2), else neighbours
    closest = math.inf  # by how little a choice among experts was made
    act = staticmethod(silu)

    def __init__(self, path, n_ctx=2048):
        super().__init__(path)
        self.n_ctx, self.layers = n_ctx, self.get("block_count")
        self.forget()

    def forget(self):
        self.past, self.cache, self.close = 0, [None] * self.layers, []  # close: of each layer's tokens, see closest

    def at(self, key, l):
        """The value of a key at layer l: one for all, or one for each."""
        v = self.get(key)
        return v[l] if isinstance(v, list) else v

    def heads(self, l):
        return self.at("attention.head_count", l), self.at("attention.head_count_kv", l)

    @property
    def head_dim(self):
        return self.get("attention.key_length") or self.get("embedding_length") // self.get("attention.head_count")

    def vector(self, name):
        return self.w[name + ".weight"], self.w.get(name + ".bias", 0)

    def norm(self, x, name):
        w, b = self.vector(name)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.get("attention.layer_norm_rms_epsilon")) * w + b

    def linear(self, x, name):
        return x @ self.w[name + ".weight"].T + self.w.get(name + ".bias", 0)

    # --- positions

    def base(self, l):
        return self.get("rope.freq_base", 10000.0)

    def scaling(self, l):
        kind = self.get("rope.scaling.type", "linear" if self.get("rope.scaling.factor") else "none")
        return kind, self.get("rope.scaling.factor", 1.0)

    def divisors(self, l):
        return self.w.get("rope_freqs.weight", 1.0)

    def magnitude(self, l):
        return self.get("rope.scaling.attn_factor", 1.0)

    def yarn(self, freq, dim, base, f):
        """Peng et al. 2023, section 3.2 and 3.4."""
        orig, i = self.get("rope.scaling.original_context_length"), np.arange(dim // 2)
        pair = lambda turns: dim * math.log(orig / (2 * math.pi * turns)) / (2 * math.log(base))
        low = max(0, math.floor(pair(self.get("rope.scaling.yarn_beta_fast", 32.0))))
        high = min(dim - 1, math.ceil(pair(self.get("rope.scaling.yarn_beta_slow", 1.0))))
        keep = 1 - np.clip((i - low) / max(0.001, high - low), 0, 1)
        log = 1 + 0.1 * self.get("rope.scaling.yarn_log_multiplier", 0.0) * math.log(f)
        return keep * freq + (1 - keep) * freq / f, (1 + 0.1 * math.log(f)) / log

    def rotate(self, x, at, l):  # (n, heads, head_dim)
        dim = self.rope_dim(l)
        freq, m = self.base(l) ** (-2.0 * np.arange(dim // 2) / dim) / self.divisors(l), 1.0
        kind, f = self.scaling(l)
        if kind == "linear":
            freq = freq / f
        elif kind == "yarn":
            freq, m = self.yarn(freq, dim, self.base(l), f)
        m *= self.magnitude(l)
        angle = at[:, None, None] * freq
        cos, sin = np.cos(angle) * m, np.sin(angle) * m
        first, second = (slice(0, dim // 2), slice(dim // 2, dim)) if self.neox else (slice(0, dim, 2), slice(1, dim, 2))
        a, b, out = x[..., first], x[..., second], x.copy()
        out[..., first], out[..., second] = a * cos - b * sin, a * sin + b * cos
        return out

    def rope_dim(self, l):
        return self.get("rope.dimension_count", self.head_dim)

    def rotated(self, l):
        return True

    def window(self, l):
        return self.get("attention.sliding_window", 0)

    def every(self, period, l):
        """The window of a layer of which every period-th sees all; or as the metadata say of each."""
        pattern = self.get("attention.sliding_window_pattern", period)
        windowed = pattern[l] if isinstance(pattern, list) else l % pattern < pattern - 1
        return self.get("attention.sliding_window", 0) if windowed else 0

    # --- attention

    def project(self, x, p):
        if p + "attn_qkv.weight" not in self.w:
            return [self.linear(x, p + "attn_" + c) for c in "qkv"]
        l = int(p.split(".")[1])
        kv = self.heads(l)[1] * self.width(l)
        return np.split(self.linear(x, p + "attn_qkv"), [-2 * kv, -kv], -1)

    def heads_norm(self, x, name):  # (n, heads, head_dim)
        return self.norm(x, name) if name + ".weight" in self.w else x

    def positioned(self, x, name, at, l):
        x = self.heads_norm(x, name)
        return self.rotate(x, at, l) if self.rotated(l) else x

    def whole_norm(self, x, name):  # (n, heads * head_dim)
        return x

    def scale(self):
        return 1 / math.sqrt(self.head_dim)

    def gated(self, out):
        return out

    def scores(self, s):
        return s

    def shares(self, s, p, head):
        return softmax(s)

    def sees_from(self, at, l):
        return at - self.window(l) + 1 if self.window(l) else 0 * at

    def temper(self, q, at, l):
        return q

    def width(self, l):  # of a head
        return self.head_dim

    def remember(self, l, *new):
        """-> those of all tokens, with what is new of a layer's keys and values."""
        if self.past:
            new = [np.concatenate(c) for c in zip(self.cache[l], new)]
        self.cache[l] = new
        return new

    def keys_and_values(self, k, v, at, l):  # (n, kv heads * head_dim) -> (all, kv heads, head_dim)
        name, shape = f"blk.{l}.attn_k_norm", (len(k), self.heads(l)[1], self.width(l))
        k = self.whole_norm(k, name).reshape(shape)
        return self.remember(l, self.positioned(k, name, at, l), v.reshape(shape))

    def attention(self, x, l):
        p, d, (heads, kv) = f"blk.{l}.", self.width(l), self.heads(l)
        n, at = len(x), np.arange(self.past, self.past + len(x))
        q, k, v = self.project(x, p)
        q = self.whole_norm(q, p + "attn_q_norm").reshape(n, heads, d)
        q = self.temper(self.positioned(q, p + "attn_q_norm", at, l), at, l)
        k, v = self.keys_and_values(k, v, at, l)
        pos = np.arange(self.past + n)
        hidden = (pos[None, :] > at[:, None]) | (pos[None, :] < self.sees_from(at, l)[:, None])
        out = np.zeros((n, heads, d))
        for h in range(heads):
            s = self.scores(q[:, h] @ k[:, h // (heads // kv)].T * self.scale())
            s[hidden] = -np.inf
            out[:, h] = self.shares(s, p, h) @ v[:, h // (heads // kv)]
        return self.linear(self.gated(out.reshape(n, heads * d)), p + "attn_output")

    # --- the rest

    def ffn(self, x, l):
        p = f"blk.{l}."
        if p + "ffn_gate.weight" not in self.w:
            return self.linear(self.act(self.linear(x, p + "ffn_up")), p + "ffn_down")
        return self.linear(self.act(self.linear(x, p + "ffn_gate")) * self.linear(x, p + "ffn_up"), p + "ffn_down")

    def block(self, x, l):
        x = x + self.attention(self.norm(x, f"blk.{l}.attn_norm"), l)
        return x + self.ffn(self.norm(x, f"blk.{l}.ffn_norm"), l)

    def embed(self, ids):
        return self.w["token_embd.weight"][ids]

    def head(self, logits):
        return logits

    def leave(self, x):
        return x

    def forward(self, ids):
        x = self.embed(ids)
        for l in range(self.layers):
            x = self.block(x, l)
        self.past += len(ids)
        x = self.norm(self.leave(x), "output_norm")
        return self.head(x @ self.w.get("output.weight", self.w["token_embd.weight"]).T + self.w.get("output.bias", 0))


class Neox(Plain):
    neox = True


class Layer(Plain):
    """Layer norm (Ba et al. 2016) in place of RMS norm."""

    def norm(self, x, name):
        w, b = self.vector(name)
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.get("attention.layer_norm_epsilon")) * w + b


class BothNorms(Plain):
    """What attention and feed-forward add is normed, too."""

    def block(self, x, l):
        p = f"blk.{l}."
        x = x + self.norm(self.attention(self.norm(x, p + "attn_norm"), l), p + "post_attention_norm")
        return x + self.norm(self.ffn(self.norm(x, p + "ffn_norm"), l), p + "post_ffw_norm")


class PostNorms(Plain):
    """Only what is added is normed (OLMo et al. 2024)."""

    def block(self, x, l):
        x = x + self.norm(self.attention(x, l), f"blk.{l}.post_attention_norm")
        return x + self.norm(self.ffn(x, l), f"blk.{l}.post_ffw_norm")


class Parallel(Plain):
    def block(self, x, l):
        n = self.norm(x, f"blk.{l}.attn_norm")
        return x + self.attention(n, l) + self.ffn(n, l)


class Gemma2(Neox, BothNorms):
    act, period = staticmethod(gelu), 2

    def embed(self, ids):
        return super().embed(ids) * math.sqrt(self.get("embedding_length"))

    def window(self, l):
        return self.every(self.period, l)

    def scores(self, s):
        return cap(s, self.get("attn_logit_softcapping"))

    def head(self, logits):
        return cap(logits, self.get("final_logit_softcapping"))


class Gemma2Of27B(Gemma2):
    def scale(self):
        return math.sqrt(self.get("attention.head_count") / self.get("embedding_length"))


class Gemma3(Gemma2):
    period = 6

    def base(self, l):
        return self.get("rope.freq_base_swa", 10000.0) if self.window(l) else self.get("rope.freq_base")

    def scaling(self, l):
        return ("none", 1) if self.window(l) else super().scaling(l)

    def scores(self, s):
        return s

    def head(self, logits):
        c = self.get("final_logit_softcapping")
        return cap(logits, c) if c else logits


class Phi3(Neox):
    def ffn(self, x, l):
        gate, up = np.split(self.linear(x, f"blk.{l}.ffn_up"), 2, -1)
        return self.linear(self.act(gate) * up, f"blk.{l}.ffn_down")

    def divisors(self, l):
        short = self.n_ctx <= self.get("rope.scaling.original_context_length", self.get("context_length"))
        return self.w.get("rope_factors_short.weight" if short else "rope_factors_long.weight", 1.0)


class Granite(Plain):
    def embed(self, ids):
        return super().embed(ids) * self.get("embedding_scale")

    def scale(self):
        return self.get("attention.scale")

    def rotated(self, l):
        return self.get("rope.scaling.finetuned", True)

    def block(self, x, l):
        r = self.get("residual_scale")
        x = x + r * self.attention(self.norm(x, f"blk.{l}.attn_norm"), l)
        return x + r * self.ffn(self.norm(x, f"blk.{l}.ffn_norm"), l)

    def head(self, logits):
        return logits / self.get("logit_scale")


class SmolLM3(Plain):
    def rotated(self, l):
        return l % 4 != 3


class Mistral3(Plain):
    def temper(self, q, at, l):
        t, orig = self.get("attention.temperature_scale"), self.get("rope.scaling.original_context_length")
        return q * (1 + t * np.log(1 + np.floor(at / orig)))[:, None, None]


class Olmo2(Neox, PostNorms):
    def heads_norm(self, x, name):
        return x

    def whole_norm(self, x, name):
        return self.norm(x, name)


class Olmo3(Olmo2):
    def window(self, l):
        return self.every(4, l)

    def scaling(self, l):
        return ("none", 1) if self.window(l) else super().scaling(l)

    def magnitude(self, l):
        return 1.0 if self.window(l) else super().magnitude(l)


class Exaone4(Neox, PostNorms):
    def window(self, l):
        return self.every(4, l) if self.layers == 64 else 0

    def rotated(self, l):
        return self.layers != 64 or self.window(l) > 0


class Glm4(BothNorms):
    ffn = Phi3.ffn

    @property
    def neox(self):  # what also sees: its rows are in another order
        return "glm4.rope.dimension_sections" in self.meta


class SeedOss(Neox):
    def block(self, x, l):
        x = x + self.attention(self.norm(x, f"blk.{l}.attn_norm"), l)
        return x + self.ffn(self.norm(x, f"blk.{l}.post_attention_norm"), l)


class CommandR(Layer, Parallel):
    def heads_norm(self, x, name):
        return self.norm(x, name) if name + ".weight" in self.w else x  # (heads, head_dim) weights

    def head(self, logits):
        return logits * self.get("logit_scale")


class Cohere2(CommandR):
    def window(self, l):
        return self.every(4, l)

    def rotated(self, l):
        return self.window(l) > 0


class StarCoder2(Neox, Layer):
    act = staticmethod(gelu)


class StableLM(Neox, Layer):
    def block(self, x, l):
        parallel = f"blk.{l}.ffn_norm.weight" not in self.w
        return Parallel.block(self, x, l) if parallel else Plain.block(self, x, l)


class Nemotron(Neox, Layer):
    act = staticmethod(relu2)


class Arcee(Plain):
    act = staticmethod(relu2)


class Apertus(Neox):
    """xIELU (Huang and Schlag 2024)."""

    def ffn(self, x, l):
        ap, an, beta, eps = (self.meta["xielu." + k][l] for k in ("alpha_p", "alpha_n", "beta", "eps"))
        self.act = lambda u: np.where(u > 0, np.log1p(math.exp(ap)) * u * u + beta * u,
                                      (beta + np.log1p(math.exp(an))) * (np.expm1(np.minimum(u, eps)) - u) + beta * u)
        return super().ffn(x, l)


class Hunyuan(Neox):
    def positioned(self, x, name, at, l):
        return self.norm(self.rotate(x, at, l), name)


class HunyuanVl(Hunyuan):
    def base(self, l):
        return super().base(l) * self.get("rope.scaling.alpha") ** (self.head_dim / (self.head_dim - 2))


class Gemma(Neox):
    act = staticmethod(gelu)

    def embed(self, ids):
        return super().embed(ids) * math.sqrt(self.get("embedding_length"))


class ChatGlm(Plain):
    ffn = Phi3.ffn


class MiniCpm(Granite):
    """Hu et al. 2024. The scales of its first models are in no file of theirs."""
    scale, divisors = Plain.scale, Phi3.divisors

    def implied(self, key):
        layers, width = (self.meta[f"{self.arch}.{k}"] for k in ("block_count", "embedding_length"))
        return {"embedding_scale": 12, "residual_scale": 1.4 / math.sqrt(layers), "logit_scale": width / 256}.get(key)

    def get(self, key, default=None):
        return File.get(self, key, self.implied(key) if default is None else default)


class Phi2(Neox, Layer, Parallel):
    act = staticmethod(gelu)


class Orion(Neox, Layer):
    pass


class Olmo(Layer):
    """Groeneveld et al. 2024: norms without weights; queries, keys and values are clamped."""

    def vector(self, name):
        return 1.0, 0.0

    def project(self, x, p):
        most = self.get("attention.clamp_kqv", math.inf)
        return [np.clip(y, -most, most) for y in super().project(x, p)]


class GptNeoX(Neox, Layer):
    """Black et al. 2022; the activation as transformers has it of Pythia."""
    act = staticmethod(exact_gelu)

    def block(self, x, l):
        if not self.get("use_parallel_residual"):
            return super().block(x, l)
        p = f"blk.{l}."
        return x + self.attention(self.norm(x, p + "attn_norm"), l) + self.ffn(self.norm(x, p + "ffn_norm"), l)


class Falcon(Neox, Layer):
    """Almazrouei et al. 2023: attention has a norm of its own in the larger models."""
    act = staticmethod(exact_gelu)

    def block(self, x, l):
        own, n = f"blk.{l}.attn_norm_2", self.norm(x, f"blk.{l}.attn_norm")
        return x + self.attention(self.norm(x, own) if own + ".weight" in self.w else n, l) + self.ffn(n, l)


class Gpt2(Layer):
    """Radford et al. 2019: what a position adds to the embedding is learned."""
    act = staticmethod(gelu)

    def embed(self, ids):
        return super().embed(ids) + self.w["position_embd.weight"][self.past:self.past + len(ids)]

    def rotated(self, l):
        return False


class Deci(Plain):
    def block(self, x, l):
        p, (heads, kv) = f"blk.{l}.", self.heads(l)
        if heads:
            n = self.norm(x, p + "attn_norm")
            x = x + (self.attention(n, l) if kv else self.linear(n, p + "attn_output"))
        return x + self.ffn(self.norm(x, p + "ffn_norm"), l) if self.at("feed_forward_length", l) else x
