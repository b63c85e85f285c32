"""As forward_passes.py: layers with a recurrent state."""
import math

import numpy as np

from forward_experts import *  # noqa: F403


class Qwen35(Neox):
    """Gated delta nets (Yang et al. 2024), token by token; every interval-th layer is attention, whose heads are silenced."""
    block = SeedOss.block

    def __init__(self, path, n_ctx=2048):
        super().__init__(path, n_ctx)
        self.layers -= self.get("nextn_predict_layers", 0)

    def project(self, x, p):
        q, k, v = super().project(x, p)
        q, self.silencer = np.split(q.reshape(len(x), -1, 2 * self.head_dim), 2, 2)
        return q.reshape(len(x), -1), k, v

    def gated(self, out):
        return out * sigmoid(self.silencer.reshape(out.shape))

    def attention(self, x, l):
        attends = (l + 1) % self.get("full_attention_interval") == 0 or l >= self.layers
        return super().attention(x, l) if attends else self.delta(x, l)

    def beta_alpha(self, x, p, keys):
        return self.linear(x, p + "ssm_beta"), self.linear(x, p + "ssm_alpha")

    def key_of(self, h, heads, keys):
        return h % keys

    def taken_in(self, x, p):  # queries, keys and values; what is for the gates
        return self.linear(x, p + "attn_qkv"), self.linear(x, p + "attn_gate")

    def delta(self, x, l):
        p, size, keys, heads = f"blk.{l}.", *(self.get("ssm." + k) for k in ("state_size", "group_count", "time_step_rank"))
        w, eps = self.w[p + "ssm_conv1d.weight"], self.get("attention.layer_norm_rms_epsilon")
        (new, gate), taps = self.taken_in(x, p), w.shape[1]
        seen, state = self.cache[l] if self.past else (np.zeros((taps - 1, new.shape[1])), np.zeros((heads, size, size)))
        all_ = np.concatenate([seen, new])
        mixed = silu(sum(w[:, i] * all_[i:i + len(x)] for i in range(taps)))
        q, k, v = (c.reshape(len(x), -1, size) for c in np.split(mixed, [keys * size, 2 * keys * size], 1))
        q, k = (c / np.maximum(np.linalg.norm(c, axis=2, keepdims=True), eps) for c in (q, k))
        beta, alpha = self.beta_alpha(x, p, keys)
        beta, g = sigmoid(beta), np.log1p(np.exp(alpha + self.w[p + "ssm_dt.bias"])) * self.w[p + "ssm_a"]
        state, out = state.copy(), np.zeros((len(x), heads, size))
        for t in range(len(x)):
            for h in range(heads):
                m, one = state[h], k[t, self.key_of(h, heads, keys)]
                m *= np.exp(g[t, h])
                m += np.outer(one, beta[t, h] * (v[t, h] - m.T @ one))
                out[t, h] = m.T @ q[t, self.key_of(h, heads, keys)] / math.sqrt(size)
        self.cache[l] = all_[len(x):], state
        return self.linear(self.norm(out, p + "ssm_norm").reshape(len(x), -1) * silu(gate), p + "ssm_out")


class Qwen35Moe(Experts, Qwen35):
    shared = Qwen2Moe.shared


class Lfm2(Neox):
    """Short convolutions in place of attention where there are no KV heads; the last norm has another name."""

    def norm(self, x, name):
        return super().norm(x, "token_embd_norm" if name == "output_norm" else name)

    def attention(self, x, l):
        p, w = f"blk.{l}.shortconv.", self.w.get(f"blk.{l}.shortconv.conv.weight")
        if w is None:
            return super().attention(x, l)
        b, c, y = np.split(self.linear(x, p + "in_proj"), 3, 1)
        seen = np.concatenate([self.cache[l] if self.past else np.zeros((w.shape[1] - 1, x.shape[1])), b * y])
        self.cache[l] = seen[len(x):]
        return self.linear(c * sum(w[:, i] * seen[i:i + len(x)] for i in range(w.shape[1])), p + "out_proj")


class StateSpace(Plain):
    """Selective state spaces (Dao and Gu 2024, Mamba-2), token by token; in place of attention where there are no KV heads."""

    def space(self, x, l):
        p, (inner, size, heads, groups) = f"blk.{l}.", (self.get("ssm." + k) for k in ("inner_size", "state_size", "time_step_rank", "group_count"))
        w, bias = self.w[p + "ssm_conv1d.weight"], self.w[p + "ssm_conv1d.bias"]
        z, new, dt = np.split(self.linear(x, p + "ssm_in"), [inner, 2 * inner + 2 * groups * size], 1)
        cache = self.spaces.get(l) if self.past else None
        seen, state = cache or (np.zeros((w.shape[1] - 1, new.shape[1])), np.zeros((heads, inner // heads, size)))
        all_ = np.concatenate([seen, new])
        mixed = silu(sum(w[:, i] * all_[i:i + len(x)] for i in range(w.shape[1])) + bias)
        u, b, c = np.split(mixed, [inner, inner + groups * size], 1)
        u, dt = u.reshape(len(x), heads, -1), np.log1p(np.exp(dt + self.w[p + "ssm_dt.bias"]))
        b, c = (np.repeat(v.reshape(len(x), groups, size), heads // groups, axis=1) for v in (b, c))
        decay, out = np.exp(dt * self.w[p + "ssm_a"].ravel()), np.zeros_like(u)
        for t in range(len(x)):
            state = decay[t][:, None, None] * state + np.einsum("hp,hn->hpn", dt[t][:, None] * u[t], b[t])
            out[t] = np.einsum("hpn,hn->hp", state, c[t]) + self.w[p + "ssm_d"].reshape(-1, 1) * u[t]
        self.spaces[l] = all_[len(x):], state
        out = out.reshape(len(x), -1) * silu(z)
        if p + "ssm_norm.weight" in self.w:
            out = out.reshape(len(x), groups, -1)
            out = out / np.sqrt((out * out).mean(-1, keepdims=True) + self.get("attention.layer_norm_rms_epsilon"))
            out = (out * self.w[p + "ssm_norm.weight"].reshape(groups, -1)).reshape(len(x), -1)
        return self.linear(out, p + "ssm_out")

    def forget(self):
        super().forget()
        self.spaces = {}

    def attention(self, x, l):
        return super().attention(x, l) if self.heads(l)[1] else self.space(x, l)


class Mamba2(StateSpace):
    def block(self, x, l):
        return x + self.space(self.norm(x, f"blk.{l}.attn_norm"), l)


class FalconH1(StateSpace, Neox):
    def block(self, x, l):
        n = self.norm(x, f"blk.{l}.attn_norm")
        x = x + self.attention(n, l) + self.space(n, l)
        w = self.w[f"blk.{l}.ffn_norm"]
        return x + self.ffn(x / np.sqrt((x * x).mean(-1, keepdims=True) + self.get("attention.layer_norm_rms_epsilon")) * w, l)


class GraniteHybrid(StateSpace, GraniteMoe):
    pass


class NemotronH(StateSpace):
    """Each layer is one thing; nothing is rotated; no gates."""
    act = staticmethod(relu2)

    def rotated(self, l):
        return False

    def block(self, x, l):
        n = self.norm(x, f"blk.{l}.attn_norm")
        return x + (self.ffn(n, l) if self.at("feed_forward_length", l) else self.attention(n, l))


class NemotronHMoe(NemotronH, Sigmoids):
    """Experts without gates, as the shared one; perhaps on a narrower input."""
    normed = True

    def expert(self, x, p, e):
        return self.part(self.act(self.part(x, p + "ffn_up_exps", e)), p + "ffn_down_exps", e)

    def shared(self, x, p):
        if p + "ffn_up_shexp.weight" not in self.w:
            return 0 * x
        return self.linear(self.act(self.linear(x, p + "ffn_up_shexp")), p + "ffn_down_shexp")

    def weighed(self, x, w, p, e):
        if p + "ffn_latent_up.weight" not in self.w:
            return super().weighed(x, w, p, e)
        return self.linear(w * self.expert(self.linear(x, p + "ffn_latent_down"), p, e), p + "ffn_latent_up")


class Lfm2Moe(Sigmoids, Lfm2):
    normed = True


class Qwen3Next(Qwen35Moe):
    def taken_in(self, x, p):
        if p + "ssm_in.weight" not in self.w:
            return super().taken_in(x, p)
        size, keys, heads = (self.get("ssm." + k) for k in ("state_size", "group_count", "time_step_rank"))
        of_keys, shared = self.linear(x, p + "ssm_in").reshape(len(x), keys, -1), heads // keys * size
        q, k, v, z = (c.reshape(len(x), -1) for c in np.split(of_keys, [size, 2 * size, 2 * size + shared], 2))
        return np.concatenate([q, k, v], 1), z

    def beta_alpha(self, x, p, keys):
        both = np.split(self.linear(x, p + "ssm_ba").reshape(len(x), keys, -1), 2, 2)
        return [c.reshape(len(x), -1) for c in both]

    def key_of(self, h, heads, keys):
        return h // (heads // keys)
