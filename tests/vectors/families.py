"""The forward passes of the families that hokku runs, in NumPy and double precision: each from its paper or its makers'
own code, stated as what is special in it. Nothing here knows of hokku's tables. And small random models of each, with
numbers that are unusual, so that a number which is not read shows.

Plain is what they have in common (Touvron et al. 2023): x += attention(norm(x)); x += down(silu(gate) * up), RMS norms."""
import math

import numpy as np

import make_gguf
from numpy_model import File


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


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
        self.past, self.cache = 0, [None] * self.layers

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

    def divisors(self):
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
        dim = self.get("rope.dimension_count", self.head_dim)
        freq, m = self.base(l) ** (-2.0 * np.arange(dim // 2) / dim) / self.divisors(), 1.0
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
        return [self.linear(x, p + "attn_" + c) for c in "qkv"]

    def heads_norm(self, x, name):  # (n, heads, head_dim)
        return self.norm(x, name) if name + ".weight" in self.w else x

    def positioned(self, x, name, at, l):
        x = self.heads_norm(x, name)
        return self.rotate(x, at, l) if self.rotated(l) else x

    def whole_norm(self, x, name):  # (n, heads * head_dim)
        return x

    def scale(self):
        return 1 / math.sqrt(self.head_dim)

    def scores(self, s):
        return s

    def shares(self, s, p, head):
        return softmax(s)

    def sees_from(self, at, l):
        return at - self.window(l) + 1 if self.window(l) else 0 * at

    def temper(self, q, at, l):
        return q

    def attention(self, x, l):
        p, d, (heads, kv) = f"blk.{l}.", self.head_dim, self.heads(l)
        n, at = len(x), np.arange(self.past, self.past + len(x))
        q, k, v = self.project(x, p)
        q = self.whole_norm(q, p + "attn_q_norm").reshape(n, heads, d)
        k = self.whole_norm(k, p + "attn_k_norm").reshape(n, kv, d)
        q = self.temper(self.positioned(q, p + "attn_q_norm", at, l), at, l)
        k, v = self.positioned(k, p + "attn_k_norm", at, l), v.reshape(n, kv, d)
        if self.past:
            k, v = (np.concatenate(c) for c in zip(self.cache[l], (k, v)))
        self.cache[l] = k, v
        pos = np.arange(self.past + n)
        hidden = (pos[None, :] > at[:, None]) | (pos[None, :] < self.sees_from(at, l)[:, None])
        out = np.zeros((n, heads, d))
        for h in range(heads):
            s = self.scores(q[:, h] @ k[:, h // (heads // kv)].T * self.scale())
            s[hidden] = -np.inf
            out[:, h] = self.shares(s, p, h) @ v[:, h // (heads // kv)]
        return self.linear(out.reshape(n, heads * d), p + "attn_output")

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

    def forward(self, ids):
        x = self.embed(ids)
        for l in range(self.layers):
            x = self.block(x, l)
        self.past += len(ids)
        x = self.norm(x, "output_norm")
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
        return logits


class Phi3(Neox):
    def project(self, x, p):
        heads, kv = self.heads(0)
        return np.split(self.linear(x, p + "attn_qkv"), [heads * self.head_dim, (heads + kv) * self.head_dim], -1)

    def ffn(self, x, l):
        gate, up = np.split(self.linear(x, f"blk.{l}.ffn_up"), 2, -1)
        return self.linear(self.act(gate) * up, f"blk.{l}.ffn_down")

    def divisors(self):
        short = self.n_ctx <= self.get("rope.scaling.original_context_length")
        return self.w["rope_factors_short.weight" if short else "rope_factors_long.weight"]


class Granite(Plain):
    def embed(self, ids):
        return super().embed(ids) * self.get("embedding_scale")

    def scale(self):
        return self.get("attention.scale")

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
        return l % 4 != 3


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


class Deci(Plain):
    def block(self, x, l):
        p, (heads, kv) = f"blk.{l}.", self.heads(l)
        if heads:
            n = self.norm(x, p + "attn_norm")
            x = x + (self.attention(n, l) if kv else self.linear(n, p + "attn_output"))
        return x + self.ffn(self.norm(x, p + "ffn_norm"), l) if self.at("feed_forward_length", l) else x


# --- mixtures of experts (Shazeer et al. 2017) ------------------------------------------------

class Experts(Plain):
    """Where a layer has a router: the best by softmax of its logits, their shares divided by their sum; and what is shared."""
    gate, normed = staticmethod(softmax), True

    def part(self, x, name, e):  # (n, columns) -> (n, rows) by expert e
        bias = self.w.get(name + ".bias")
        return x @ self.w[name + ".weight"][e].T + (0 if bias is None else bias[e])

    def expert(self, x, p, e):
        return self.part(self.act(self.part(x, p + "ffn_gate_exps", e)) * self.part(x, p + "ffn_up_exps", e), p + "ffn_down_exps", e)

    def shared(self, x, p):
        if p + "ffn_up_shexp.weight" not in self.w:
            return 0 * x
        y = self.act(self.linear(x, p + "ffn_gate_shexp")) * self.linear(x, p + "ffn_up_shexp")
        return self.linear(y, p + "ffn_down_shexp")

    def choose(self, score):  # of one token
        order, n = np.argsort(-score, kind="stable"), self.get("expert_used_count")
        self.closest = min(self.closest, score[order[n - 1]] - score[order[n]])
        return order[:n]

    def ffn(self, x, l):
        p = f"blk.{l}."
        if p + "ffn_gate_inp.weight" not in self.w:
            return super().ffn(x, l)
        share = self.gate(self.linear(x, p + "ffn_gate_inp"))
        chosen = np.array([self.choose(s) for s in share + self.w.get(p + "exp_probs_b.bias", 0)])
        weight = np.take_along_axis(share, chosen, 1)
        if self.get("expert_weights_norm", self.normed):
            weight = weight / weight.sum(-1, keepdims=True)
        weight = weight * self.get("expert_weights_scale", 1.0)
        out = self.shared(x, p)
        for e in range(share.shape[1]):
            rows, which = np.nonzero(chosen == e)
            out[rows] += self.weighed(x[rows], weight[rows, which][:, None], p, e)
        return out

    def weighed(self, x, w, p, e):
        return w * self.expert(x, p, e)


class Mixtral(Experts):
    pass


class Qwen3Moe(Experts, Neox):
    pass


class Qwen2Moe(Experts, Neox):
    normed = False

    def shared(self, x, p):
        return super().shared(x, p) * sigmoid(x @ self.w[p + "ffn_gate_inp_shexp.weight"])[:, None]


class GptOss(Experts, Neox):
    """A logit of no position in the softmax; the experts' activation is clamped."""

    def window(self, l):
        return self.every(2, l)

    def shares(self, s, p, head):
        return softmax(np.c_[s, np.full(len(s), self.w[p + "attn_sinks.weight"][head])])[:, :-1]

    def expert(self, x, p, e):
        g = np.minimum(self.part(x, p + "ffn_gate_exps", e), 7)
        u = np.clip(self.part(x, p + "ffn_up_exps", e), -7, 7)
        return self.part(g * sigmoid(1.702 * g) * (u + 1), p + "ffn_down_exps", e)

    block = SeedOss.block


class OlMoe(Experts, Neox):
    normed, heads_norm, whole_norm = False, Olmo2.heads_norm, Olmo2.whole_norm


class GraniteMoe(Experts, Granite):
    pass


class PhiMoe(Experts, Neox):
    divisors = Phi3.divisors


class HunyuanMoe(Experts, Hunyuan):
    pass


class Sigmoids(Experts, Neox):
    """DeepSeek-AI 2024: sigmoids; a bias of the choice alone; of groups those with the best two together."""
    gate, normed = staticmethod(sigmoid), False

    def choose(self, score):
        groups = score.reshape(self.get("expert_group_count", 1), -1)
        best = np.sort(groups, 1)[:, -2:].sum(1)
        order, n = np.argsort(-best), self.get("expert_group_used_count", 1)
        closed = order[n:]
        self.closest = min([self.closest, *(best[order[n - 1]] - best[closed[:1]])])
        groups = groups.copy()
        groups[closed] = -np.inf
        return super().choose(groups.ravel())


class Glm4Moe(Sigmoids):
    block = SeedOss.block

    def __init__(self, path, n_ctx=2048):
        super().__init__(path, n_ctx)
        self.layers -= self.get("nextn_predict_layers", 0)


class Bailing(Sigmoids):
    def project(self, x, p):
        return Phi3.project(self, x, p) if p + "attn_qkv.weight" in self.w else super().project(x, p)


class MiniMax(Sigmoids):
    normed, heads_norm, whole_norm = True, Olmo2.heads_norm, Olmo2.whole_norm


class Llama4(Experts):
    """Chunks in place of windows; what is rotated is normed without weights; the share multiplies what an expert is given."""
    gate, normed = staticmethod(sigmoid), False

    def rotated(self, l):
        return l % 4 != 3

    def sees_from(self, at, l):
        chunk = self.get("attention.sliding_window", 8192)
        return at // chunk * chunk if self.rotated(l) else 0 * at

    def positioned(self, x, name, at, l):
        if not self.rotated(l):
            return x
        x = self.rotate(x, at, l)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.get("attention.layer_norm_rms_epsilon"))

    def temper(self, q, at, l):
        t, length = self.get("attention.temperature_scale", 0.1), self.get("attention.temperature_length", 8192)
        return q if self.rotated(l) else q * (1 + t * np.log(1 + np.floor((at + 1) / length)))[:, None, None]

    def weighed(self, x, w, p, e):
        return self.expert(w * x, p, e)


# --- random models --------------------------------------------------------------------------

QKV, OUT, FFN = ("attn_q", "attn_k", "attn_v"), ("attn_output",), ("ffn_up", "ffn_down")
PRE, POST = ("attn_norm", "ffn_norm"), ("post_attention_norm", "post_ffw_norm")
EPS, LAYER_EPS = {"attention.layer_norm_rms_epsilon": 0.03}, {"attention.layer_norm_epsilon": 0.03}


def model(arch, meta, layers=3, embd=48, heads=6, kv=3, head_dim=0, ff=80, norms=PRE, biases=(), qk=None, gate=True,
          fused=(), tied=True, vectors=(), experts=None, sinks=False, seed=1, bos=False):
    """-> (kvs, tensors). qk: shape of the norms of queries and keys: head, heads, whole. heads, kv, ff: a number, or a list
    of one for each layer. vectors: more of them, (name, n, lowest, highest). experts: see mixture()."""
    each = lambda v, l: v[l] if isinstance(v, list) else v
    d, rng, tensors, vocab = head_dim or embd // heads, np.random.default_rng([seed, 77]), [], 640

    def matrix(name, rows, cols, *stacked, gain=1.2, kind="F16"):
        data = rng.normal(0, gain / math.sqrt(cols), (*stacked, rows, cols)).astype(np.float16 if kind == "F16" else np.float32)
        tensors.append(make_gguf.Tensor(name + ".weight", [cols, rows, *stacked], kind, data.tobytes()))
        if name.split(".")[-1] in biases:
            data = rng.normal(0, 0.5, (*stacked, rows)).astype(np.float32)
            tensors.append(make_gguf.Tensor(name + ".bias", [rows, *stacked], "F32", data.tobytes()))

    def mixture(b, n, ff=ff, shared=0, router=False, choice=False, **_):
        """n experts, ff wide, and a shared one, which may have a router; choice: a bias of the choice."""
        matrix(b + "ffn_gate_inp", n, embd, gain=2, kind="F32")
        for name, rows, cols in (("gate", ff, embd), ("up", ff, embd), ("down", embd, ff)):
            matrix(b + f"ffn_{name}_exps", rows, cols, n)
            if shared:
                matrix(b + f"ffn_{name}_shexp", *(shared if d == ff else d for d in (rows, cols)))
        if choice:
            vector(b + "exp_probs_b.bias", n, -0.3, 0.3)
        if router:
            vector(b + "ffn_gate_inp_shexp.weight", embd, -0.3, 0.3)

    def vector(name, shape, low=0.5, high=1.5):
        shape = shape if isinstance(shape, list) else [shape]
        data = rng.uniform(low, high, int(np.prod(shape))).astype(np.float32)
        tensors.append(make_gguf.Tensor(name, shape, "F32", data.tobytes()))

    def norm(name):
        vector(name + ".weight", embd)
        if "norm" in biases:
            vector(name + ".bias", embd, -0.5, 0.5)

    matrix("token_embd", vocab, embd)
    if not tied:
        matrix("output", vocab, embd)
    norm("output_norm")
    for name, n, low, high in vectors:
        vector(name, n, low, high)
    for l in range(layers):
        b, h, k, width = f"blk.{l}.", each(heads, l), each(kv, l), each(ff, l)
        mixed = experts and l in experts.get("layers", range(layers))
        if mixed:
            mixture(b, **experts)
            width = 0
        for name in norms:
            if h if name == "attn_norm" else width or mixed or name != "ffn_norm":
                norm(b + name)
        if h and not k:
            matrix(b + "attn_output", embd, embd)
        elif h:
            if "qkv" in fused:
                matrix(b + "attn_qkv", (h + 2 * k) * d, embd)
            else:
                for name, rows in zip(QKV, (h * d, k * d, k * d)):
                    matrix(b + name, rows, embd)
            for name, n in (("q", h), ("k", k)):
                if qk:
                    vector(b + f"attn_{name}_norm.weight", {"head": d, "heads": [d, n], "whole": n * d}[qk])
            if sinks:
                vector(b + "attn_sinks.weight", h, -1, 2)
            matrix(b + "attn_output", embd, h * d)
        if width and gate and "ffn" not in fused:
            matrix(b + "ffn_gate", width, embd)
        if width:
            matrix(b + "ffn_up", width * (2 if "ffn" in fused else 1), embd)
            matrix(b + "ffn_down", embd, width)
    kvs = [("general.architecture", arch), ("general.name", "random"), ("general.file_type", 1),
           (f"{arch}.context_length", 4096), (f"{arch}.embedding_length", embd), (f"{arch}.block_count", layers),
           (f"{arch}.feed_forward_length", ff), (f"{arch}.attention.head_count", heads),
           (f"{arch}.attention.head_count_kv", kv), (f"{arch}.vocab_size", vocab)]
    if head_dim:
        kvs += [(f"{arch}.attention.key_length", d), (f"{arch}.attention.value_length", d)]
    if experts:
        kvs += [(f"{arch}.expert_count", experts["n"]), (f"{arch}.expert_used_count", experts["used"])]
        if "ff" in experts:
            kvs.append((f"{arch}.expert_feed_forward_length", experts["ff"]))
    kvs += [(k if k.startswith("xielu") else f"{arch}.{k}", v) for k, v in meta.items()]
    return kvs + make_gguf.vocabulary(vocab, "qwen2", bos), tensors


def xielu(layers):
    return {"xielu.alpha_p": [0.3 + 0.4 * l for l in range(layers)], "xielu.alpha_n": [0.9 - 0.3 * l for l in range(layers)],
            "xielu.beta": [0.5 + 0.1 * l for l in range(layers)], "xielu.eps": [-1e-6] * layers}


def factors(n, *names):
    return [(f"rope_factors_{name}.weight", n, low, low + 2) for name, low in zip(names, (1, 3))]


YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 100}
# name: (class, arguments of model)
FAMILIES = {
    "gemma2": (Gemma2, dict(arch="gemma2", layers=5, head_dim=20, norms=PRE + POST, meta=EPS | {
        "attention.sliding_window": 29, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0})),
    "gemma2-deep": (Gemma2Of27B, dict(arch="gemma2", layers=46, embd=64, heads=4, kv=2, head_dim=24, ff=48, norms=PRE + POST, meta=EPS | {
        "attention.sliding_window": 29, "attn_logit_softcapping": 9.0, "final_logit_softcapping": 4.0})),
    "gemma3-pattern": (Gemma3, dict(arch="gemma3", layers=4, head_dim=12, norms=PRE + POST, qk="head", meta=EPS | {
        "attention.sliding_window": 33, "attention.sliding_window_pattern": 3, "rope.freq_base": 3e5})),
    "gemma3": (Gemma3, dict(arch="gemma3", layers=8, heads=4, kv=1, head_dim=28, norms=PRE + POST, qk="head", meta=EPS | {
        "attention.sliding_window": 21, "rope.freq_base": 3e5, "rope.freq_base_swa": 2e4, "rope.scaling.type": "linear",
        "rope.scaling.factor": 3.0})),
    "phi3-short": (Phi3, dict(arch="phi3", fused=("qkv", "ffn"), tied=False, vectors=factors(3, "short", "long"), meta=EPS | {
        "rope.dimension_count": 6, "rope.scaling.original_context_length": 3000, "rope.scaling.attn_factor": 1.3})),
    "phi3-long": (Phi3, dict(arch="phi3", fused=("qkv", "ffn"), kv=2, vectors=factors(4, "short", "long"), meta=EPS | {
        "rope.scaling.original_context_length": 300, "rope.scaling.attn_factor": 1.3, "attention.sliding_window": 90})),
    "granite": (Granite, dict(arch="granite", meta=EPS | {
        "embedding_scale": 3.0, "residual_scale": 0.3, "attention.scale": 0.15, "logit_scale": 1.7})),
    "smollm3": (SmolLM3, dict(arch="smollm3", layers=6, meta=EPS | {"rope.freq_base": 4e4})),
    "mistral3": (Mistral3, dict(arch="mistral3", head_dim=24, tied=False, meta=EPS | YARN | {
        "attention.temperature_scale": 0.4, "rope.scaling.yarn_log_multiplier": 0.6, "rope.scaling.yarn_beta_fast": 6.0,
        "rope.scaling.yarn_beta_slow": 0.7})),
    "olmo2": (Olmo2, dict(arch="olmo2", norms=POST, qk="whole", tied=False, meta=EPS)),
    "olmo3": (Olmo3, dict(arch="olmo2", layers=5, norms=POST, qk="whole", meta=EPS | YARN | {
        "attention.sliding_window": 19, "rope.scaling.attn_factor": 1.2})),
    "olmo3-pattern": (Olmo3, dict(arch="olmo2", layers=4, norms=POST, qk="whole", meta=EPS | YARN | {
        "attention.sliding_window": 19, "attention.sliding_window_pattern": [False, True, True, False]})),
    "exaone4": (Exaone4, dict(arch="exaone4", norms=POST, qk="head", vectors=[("rope_freqs.weight", 4, 1, 4)], meta=EPS | {
        "attention.sliding_window": 19})),
    "exaone4-deep": (Exaone4, dict(arch="exaone4", layers=64, embd=64, heads=4, kv=2, ff=48, norms=POST, qk="head", meta=EPS | {
        "attention.sliding_window": 19})),
    "glm4": (Glm4, dict(arch="glm4", head_dim=12, norms=PRE + POST, biases=QKV, fused=("ffn",), meta=EPS | {
        "rope.dimension_count": 6})),
    "seed_oss": (SeedOss, dict(arch="seed_oss", head_dim=20, norms=("attn_norm", "post_attention_norm"), biases=QKV, meta=EPS)),
    "command-r": (CommandR, dict(arch="command-r", norms=PRE[:1], qk="heads", meta=LAYER_EPS | {
        "logit_scale": 0.4, "rope.scaling.type": "none"})),
    "cohere2": (Cohere2, dict(arch="cohere2", layers=6, norms=PRE[:1], meta=LAYER_EPS | {
        "logit_scale": 1.3, "attention.sliding_window": 26})),
    "starcoder2": (StarCoder2, dict(arch="starcoder2", biases=("norm", *QKV, *OUT, *FFN), gate=False, meta=LAYER_EPS)),
    "stablelm": (StableLM, dict(arch="stablelm", biases=("norm", *QKV), qk="heads", meta=LAYER_EPS | {"rope.dimension_count": 2})),
    "stablelm-parallel": (StableLM, dict(arch="stablelm", biases=("norm",), norms=PRE[:1], meta=LAYER_EPS | {
        "rope.dimension_count": 4, "use_parallel_residual": False})),
    "nemotron": (Nemotron, dict(arch="nemotron", biases=("norm",), gate=False, tied=False, meta=LAYER_EPS | {
        "rope.dimension_count": 4})),
    "arcee": (Arcee, dict(arch="arcee", gate=False, meta=EPS)),
    "apertus": (Apertus, dict(arch="apertus", gate=False, qk="head", vectors=[("rope_freqs.weight", 4, 1, 4)],
                              meta=EPS | xielu(3))),
    "internlm2": (Plain, dict(arch="internlm2", meta=EPS | {"rope.freq_base": 5e5})),
    "ernie4_5": (Plain, dict(arch="ernie4_5", head_dim=20, meta=EPS)),
    "hunyuan-dense": (Hunyuan, dict(arch="hunyuan-dense", qk="head", meta=EPS)),
    "deci": (Deci, dict(arch="deci", layers=5, heads=[6, 6, 0, 4, 6], kv=[3, 0, 0, 4, 1], head_dim=20, ff=[80, 40, 64, 0, 96],
                        vectors=[("rope_freqs.weight", 10, 1, 4)], meta=EPS)),
    "qwen2vl": (Neox, dict(arch="qwen2vl", biases=QKV, meta=EPS | {"rope.dimension_sections": [1, 1, 2, 0]})),
    "qwen3vl": (Neox, dict(arch="qwen3vl", qk="head", head_dim=12, meta=EPS | {
        "rope.dimension_sections": [2, 2, 2, 0], "n_deepstack_layers": 3})),
    "mixtral": (Mixtral, dict(arch="llama", seed=2, ff=40, experts=dict(n=5, used=2), tied=False, meta=EPS)),
    "qwen3moe": (Qwen3Moe, dict(arch="qwen3moe", seed=6, qk="head", head_dim=12, experts=dict(n=9, used=3, ff=40), meta=EPS)),
    "qwen2moe": (Qwen2Moe, dict(arch="qwen2moe", seed=1, biases=QKV, experts=dict(n=7, used=2, ff=24, shared=56, router=True), meta=EPS | {
        "expert_shared_feed_forward_length": 56})),
    "gpt-oss": (GptOss, dict(arch="gpt-oss", seed=3, layers=4, norms=("attn_norm", "post_attention_norm"), sinks=True,
                             biases=(*QKV, *OUT, "ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"),
                             experts=dict(n=6, used=2, ff=40), meta=EPS | YARN | {"attention.sliding_window": 17})),
    "olmoe": (OlMoe, dict(arch="olmoe", seed=2, qk="whole", ff=24, experts=dict(n=10, used=3), meta=EPS)),
    "granitemoe": (GraniteMoe, dict(arch="granitemoe", seed=2, ff=40, experts=dict(n=7, used=3, shared=24), meta=EPS | {
        "embedding_scale": 3.0, "residual_scale": 0.3, "attention.scale": 0.15, "logit_scale": 1.7,
        "expert_shared_feed_forward_length": 24})),
    "phimoe": (PhiMoe, dict(arch="phimoe", seed=1, ff=24, biases=("norm", *QKV, *OUT, "output"), tied=False, experts=dict(n=6, used=2),
                            vectors=factors(3, "short", "long"), meta=EPS | {
        "rope.dimension_count": 6, "rope.scaling.original_context_length": 300, "rope.scaling.attn_factor": 1.3,
        "attention.sliding_window": 90})),
    "glm4moe": (Glm4Moe, dict(arch="glm4moe", seed=1, layers=4, norms=("attn_norm", "post_attention_norm"), biases=QKV, qk="head", head_dim=12,
                              experts=dict(n=8, used=2, ff=24, shared=48, choice=True, layers=(1, 2, 3)), meta=EPS | {
        "rope.dimension_count": 6, "leading_dense_block_count": 1, "expert_shared_count": 2, "expert_gating_func": 2,
        "expert_weights_norm": True, "expert_weights_scale": 1.7, "nextn_predict_layers": 1})),
    "dots1": (Sigmoids, dict(arch="dots1", seed=2, qk="head", kv=6, experts=dict(n=8, used=3, ff=24, shared=24, choice=True, layers=(1, 2)), meta=EPS | {
        "leading_dense_block_count": 1, "expert_shared_count": 1, "expert_weights_scale": 0.7, "expert_gating_func": 2})),
    "bailingmoe2": (Bailing, dict(arch="bailingmoe2", seed=2, qk="head", fused=("qkv",),
                                  experts=dict(n=12, used=3, ff=24, shared=40, choice=True, layers=(1, 2)), meta=EPS | {
        "rope.dimension_count": 4, "leading_dense_block_count": 1, "expert_shared_feed_forward_length": 40, "expert_shared_count": 1,
        "expert_group_count": 4, "expert_group_used_count": 2, "expert_weights_norm": True, "expert_weights_scale": 1.6,
        "expert_gating_func": 2})),
    "ernie4_5-moe": (Experts, dict(arch="ernie4_5-moe", seed=1, layers=5, experts=dict(n=8, used=3, ff=24, shared=40, choice=True, layers=(1, 3)), meta=EPS | {
        "leading_dense_block_count": 1, "interleave_moe_layer_step": 2, "expert_shared_feed_forward_length": 40,
        "expert_shared_count": 1})),
    "hunyuan-moe": (HunyuanMoe, dict(arch="hunyuan-moe", seed=1, qk="head", experts=dict(n=6, used=2, ff=24, shared=40), meta=EPS | {
        "expert_shared_feed_forward_length": 40})),
    "minimax-m2": (MiniMax, dict(arch="minimax-m2", seed=1, qk="whole", ff=24, experts=dict(n=8, used=2, ff=24, choice=True), meta=EPS | {
        "rope.dimension_count": 4, "expert_gating_func": 2})),
    "llama4": (Llama4, dict(arch="llama4", seed=1, layers=5, head_dim=12, experts=dict(n=5, used=2, ff=40, shared=40, layers=(1, 3)), meta=EPS | {
        "interleave_moe_layer_step": 2, "attention.sliding_window": 13, "attention.temperature_scale": 0.4,
        "attention.temperature_length": 20})),
}
