"""As forward_passes.py: mixtures of experts (Shazeer et al. 2017), and latent attention, which only they have."""
import math

import numpy as np

from forward_passes import *  # noqa: F403


class Experts(Plain):
    """Where a layer has a router: the best by softmax of its logits, their shares divided by their sum; and what is shared."""
    gate, normed = staticmethod(softmax), True

    def part(self, x, name, e):  # (n, columns) -> (n, rows) by expert e
        bias = self.w.get(name + ".bias")
        return x @ self.w[name + ".weight"][e].T + (0 if bias is None else bias[e])

    def wide(self, x, p, e):  # gate, up
        if p + "ffn_gate_up_exps.weight" in self.w:
            return np.split(self.part(x, p + "ffn_gate_up_exps", e), 2, -1)
        return self.part(x, p + "ffn_gate_exps", e), self.part(x, p + "ffn_up_exps", e)

    def expert(self, x, p, e):
        gate, up = self.wide(x, p, e)
        return self.part(self.act(gate) * up, p + "ffn_down_exps", e)

    def shared(self, x, p):
        if p + "ffn_up_shexp.weight" not in self.w:
            return 0 * x
        y = self.act(self.linear(x, p + "ffn_gate_shexp")) * self.linear(x, p + "ffn_up_shexp")
        return self.linear(y, p + "ffn_down_shexp")

    def choose_of(self, score):  # of one token; how close the choice was is kept
        before, self.closest = self.closest, math.inf
        chosen = self.choose(score)
        self.close.append(self.closest)
        self.closest = min(self.closest, before)
        return chosen

    def choose(self, score):
        order, n = np.argsort(-score, kind="stable"), self.get("expert_used_count")
        self.closest = min(self.closest, score[order[n - 1]] - score[order[n]])
        return order[:n]

    def ffn(self, x, l):
        p = f"blk.{l}."
        if p + "ffn_gate_inp.weight" not in self.w:
            return super().ffn(x, l)
        share = self.gate(self.linear(x, p + "ffn_gate_inp"))
        bias = next((self.w[n] for n in (p + "exp_probs_b.bias", p + "exp_probs_b") if n in self.w), 0)
        chosen = np.array([self.choose_of(s) for s in share + bias])
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


class Gemma4(Experts, Gemma3):
    """Heads of windowed layers have a width of their own; values are normed without weights, or keys are values; the last
    layers use keys and values of earlier ones; each layer is told of the token; experts beside a plain network."""

    def window(self, l):
        return self.get("attention.sliding_window") if self.get("attention.sliding_window_pattern")[l] else 0

    def of_kind(self, key, l):
        return self.get(key + "_swa" if self.window(l) else key)

    def width(self, l):
        return self.of_kind("attention.key_length", l)

    def rope_dim(self, l):
        return self.of_kind("rope.dimension_count", l)

    def divisors(self, l):
        return 1.0 if self.window(l) else super().divisors(l)

    def scale(self):
        return 1.0

    def bare(self, x):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.get("attention.layer_norm_rms_epsilon"))

    def own(self):  # how many layers have keys and values
        return self.layers - int(self.get("attention.shared_kv_layers", 0))  # (a float in early files)

    def project(self, x, p):
        own = int(p.split(".")[1]) < self.own()
        k = self.linear(x, p + "attn_k") if own else None
        return self.linear(x, p + "attn_q"), k, self.linear(x, p + "attn_v") if own and p + "attn_v.weight" in self.w else k

    def keys_and_values(self, k, v, at, l):
        if k is None:
            return next(self.cache[i] for i in range(self.own() - 1, -1, -1) if bool(self.window(i)) == bool(self.window(l)))
        return super().keys_and_values(k, self.bare(v.reshape(len(v), -1, self.width(l))), at, l)

    def ffn(self, x, l):  # x is not normed yet
        p = f"blk.{l}."
        dense = Plain.ffn(self, self.norm(x, p + "ffn_norm"), l)
        if p + "ffn_gate_inp.weight" not in self.w:
            return dense
        routed = self.bare(x) / math.sqrt(x.shape[1]) * self.w[p + "ffn_gate_inp.scale"]
        share, out, n = softmax(self.linear(routed, p + "ffn_gate_inp")), 0 * x, self.norm(x, p + "pre_ffw_norm_2")
        for t, s in enumerate(share):
            chosen = self.choose_of(s)
            for e in chosen:
                gate, up = np.split(self.w[p + "ffn_gate_up_exps.weight"][e] @ n[t], 2)
                y = self.w[p + "ffn_down_exps.weight"][e] @ (self.act(gate) * up)
                out[t] += s[e] / s[chosen].sum() * self.w[p + "ffn_down_exps.scale"][e] * y
        return self.norm(dense, p + "post_ffw_norm_1") + self.norm(out, p + "post_ffw_norm_2")

    def block(self, x, l):
        p, e = f"blk.{l}.", self.get("embedding_length_per_layer_input", 0)
        x = x + self.norm(self.attention(self.norm(x, p + "attn_norm"), l), p + "post_attention_norm")
        x = x + self.norm(self.ffn(x, l), p + "post_ffw_norm")
        if e:
            told = self.told[:, l * e:(l + 1) * e]
            x = x + self.norm(self.linear(self.act(self.linear(x, p + "inp_gate")) * told, p + "proj"), p + "post_norm")
        return x * self.w.get(p + "layer_output_scale.weight", 1.0)

    def embed(self, ids):
        x, e = super().embed(ids), self.get("embedding_length_per_layer_input", 0)
        if e:
            about = self.linear(x, "per_layer_model_proj").reshape(len(x), -1, e) / math.sqrt(x.shape[1])
            own = self.w["per_layer_token_embd.weight"][ids] * math.sqrt(e)
            self.told = (self.norm(about, "per_layer_proj_norm").reshape(len(x), -1) + own) / math.sqrt(2)
        return x

    def head(self, logits):
        return cap(logits, self.get("final_logit_softcapping"))


class Gemma3n(Gemma4):
    """Streams beside the one that layers work on (AltUp, Baykal et al. 2023), of low rank what is added beside attention
    (LAuReL, Menghani et al. 2024), and of some layers' gates only what is far above their mean."""
    width, rope_dim, divisors = Plain.width, Plain.rope_dim, Plain.divisors

    def window(self, l):
        return self.every(5, l)

    def head(self, logits):
        return cap(logits, self.get("final_logit_softcapping", 30.0))

    def ffn(self, x, l):
        p, far = f"blk.{l}.", self.get("activation_sparsity_scale")[l]
        gate = self.linear(x, p + "ffn_gate")
        if far > -math.inf:
            gate = np.maximum(gate - gate.mean(-1, keepdims=True) - far * gate.std(-1, keepdims=True), 0)
        return self.linear(gelu(gate) * self.linear(x, p + "ffn_up"), p + "ffn_down")

    def modes(self, x, p):
        return np.tanh(self.linear(self.norm(x, p + "altup_router_norm") / x.shape[-1], p + "altup_router"))

    def block(self, streams, l):  # (streams, n, width)
        p, e, n = f"blk.{l}.", self.get("embedding_length_per_layer_input"), len(streams)
        mix = self.linear(self.modes(streams[0], p), p + "altup_predict_coef").reshape(-1, n, n)
        predicted = streams + np.einsum("tik,ktd->itd", mix, streams)
        n1 = self.norm(predicted[0], p + "attn_norm")
        low = self.norm(self.linear(self.linear(n1, p + "laurel_l"), p + "laurel_r"), p + "laurel_post_norm")
        x = predicted[0] + self.norm(self.attention(n1, l), p + "post_attention_norm")
        x = (x + n1 + low) / math.sqrt(2)
        x = x + self.norm(self.ffn(self.norm(x, p + "ffn_norm"), l), p + "post_ffw_norm")
        share = 1 + self.linear(self.modes(x, p), p + "altup_correct_coef")
        streams = predicted + share.T[:, :, None] * (x - predicted[0])
        gate = gelu(self.linear(streams[0] * self.w[p + "altup_correct_scale.weight"], p + "inp_gate"))
        streams[1:] += self.norm(self.linear(gate * self.told[:, l * e:(l + 1) * e], p + "proj"), p + "post_norm")
        return streams

    def as_long(self, x, first):
        mean = lambda v: (v * v).mean(-1, keepdims=True)
        return x * np.sqrt(mean(first) / np.maximum(mean(x), 1e-5))

    def embed(self, ids):
        x = super().embed(ids)
        return np.array([x] + [self.as_long(x @ w.T, x) for w in self.w["altup_proj.weight"]])

    def leave(self, x):
        rest = [self.as_long(s @ w.T, x[0]) for s, w in zip(x[1:], self.w["altup_unembd_proj.weight"])]
        return np.mean([x[0]] + rest, 0)


class Qwen3Moe(Experts, Neox):
    pass


class Mellum(Qwen3Moe):
    """Of windowed layers rotations are not scaled, and may have a base of their own."""
    def window(self, l):
        return self.every(4, l)

    def scaling(self, l):
        return ("none", 1) if self.window(l) else super().scaling(l)

    def base(self, l):
        return self.get("rope.freq_base_swa", super().base(l)) if self.window(l) else super().base(l)

    def magnitude(self, l):
        return 1.0 if self.window(l) else super().magnitude(l)


class Qwen2Moe(Experts, Neox):
    normed = False

    def shared(self, x, p):
        return Experts.shared(self, x, p) * sigmoid(x @ self.w[p + "ffn_gate_inp_shexp.weight"])[:, None]


class GptOss(Experts, Neox):
    """A logit of no position in the softmax; the experts' activation is clamped."""

    def window(self, l):
        return self.every(2, l)

    def shares(self, s, p, head):
        return softmax(np.c_[s, np.full(len(s), self.w[p + "attn_sinks.weight"][head])])[:, :-1]

    def expert(self, x, p, e):
        g, u = self.wide(x, p, e)
        g, u = np.minimum(g, 7), np.clip(u, -7, 7)
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


class Bailing1(Experts):
    normed = False


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


class Cohere2Moe(Experts, Cohere2):
    """As Cohere2; layers without experts are rotated, too; the experts and the shared one are averaged; perhaps RMS norms."""
    gate, normed = staticmethod(sigmoid), False

    def norm(self, x, name):
        return (Plain if self.get("attention.layer_norm_rms_epsilon") else Layer).norm(self, x, name)

    def rotated(self, l):
        return self.window(l) > 0 or f"blk.{l}.ffn_gate_inp.weight" not in self.w

    def ffn(self, x, l):
        y = super().ffn(x, l)
        return y / 2 if f"blk.{l}.ffn_up_shexp.weight" in self.w else y


class HyV3(Glm4Moe):
    block = Plain.block


class ExaoneMoe(Glm4Moe):
    """Layers without a window are not rotated (LG AI Research 2026)."""
    block = Plain.block

    def window(self, l):
        return self.every(4, l)

    def rotated(self, l):
        return self.window(l) > 0


class Afmoe(Sigmoids):
    """Arcee Trinity: heads are silenced by gates; layers without a window are not rotated; norms before and after."""
    block, window, rotated = BothNorms.block, ExaoneMoe.window, ExaoneMoe.rotated

    def embed(self, ids):
        return super().embed(ids) * math.sqrt(self.get("embedding_length"))

    def attention(self, x, l):
        self.gate_of = sigmoid(self.linear(x, f"blk.{l}.attn_gate"))
        return super().attention(x, l)

    def gated(self, out):
        return out * self.gate_of


class Bailing(Sigmoids):
    pass


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


class DeepSeek(Sigmoids):
    """Latent attention (DeepSeek-AI 2024), written out: each head's keys and values are made of what is kept of a token."""
    neox = False

    def __init__(self, path, n_ctx=2048):
        super().__init__(path, n_ctx)
        self.gate = sigmoid if self.get("expert_gating_func", 1) == 2 else softmax

    def yarn(self, freq, dim, base, f):
        return super().yarn(freq, dim, base, f)[0], 1.0

    def expand(self, c, p, heads):  # (n, latent) -> keys, values of each head
        if p + "attn_kv_b.weight" in self.w:
            both = self.linear(c, p + "attn_kv_b").reshape(len(c), heads, -1)
            return np.split(both, [both.shape[2] - self.get("attention.value_length")], 2)
        return np.einsum("nl,hlk->nhk", c, self.w[p + "attn_k_b.weight"]), np.einsum("nl,hvl->nhv", c, self.w[p + "attn_v_b.weight"])

    def temper(self, q, at, l):
        t, length = self.get("attention.temperature_scale", 0.0), self.get("attention.temperature_length", 1)
        return q * (1 + t * np.log(1 + np.floor(at / length)))[:, None, None]

    def attention(self, x, l):
        p, heads, n, dim = f"blk.{l}.", self.heads(l)[0], len(x), self.get("rope.dimension_count")
        at = np.arange(self.past, self.past + n)
        q = self.linear(x, p + "attn_q") if p + "attn_q.weight" in self.w else self.linear(
            self.norm(self.linear(x, p + "attn_q_a"), p + "attn_q_a_norm"), p + "attn_q_b")
        q = q.reshape(n, heads, -1)
        q = self.temper(np.concatenate([q[..., :-dim], self.rotate(q[..., -dim:], at, l)], 2), at, l)
        c, r = np.split(self.linear(x, p + "attn_kv_a_mqa"), [self.get("attention.kv_lora_rank")], 1)
        c, r = self.remember(l, self.norm(c, p + "attn_kv_a_norm"), self.rotate(r[:, None], at, l))
        k, v = self.expand(c, p, heads)
        k = np.concatenate([k, np.broadcast_to(r, (len(r), heads, dim))], 2)
        longer = 1 + self.get("rope.scaling.yarn_log_multiplier", 0.0) * math.log(self.get("rope.scaling.factor", 1.0))
        s = np.einsum("nhd,mhd->hnm", q, k) * longer ** 2 / math.sqrt(q.shape[2])
        s[:, np.arange(len(c))[None, :] > at[:, None]] = -np.inf
        return self.linear(np.einsum("hnm,mhv->nhv", softmax(s), v).reshape(n, -1), p + "attn_output")


class Mistral4(DeepSeek):
    normed = True

    def yarn(self, freq, dim, base, f):
        log = math.log(f)
        return Plain.yarn(self, freq, dim, base, f)[0], (1 + 0.1 * log) / (1 + self.get("rope.scaling.yarn_log_multiplier", 0.0) * log)


class MiniCpm3(MiniCpm, DeepSeek):
    neox = True

    def implied(self, key):
        if key == "attention.value_length":
            return self.get("embedding_length") // self.get("attention.head_count")
        return super().implied(key)


class Plm(DeepSeek):
    act = staticmethod(relu2)
