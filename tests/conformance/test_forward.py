"""The whole forward pass against a straightforward NumPy transformer in double precision, over odd shapes: what the reference
models of shared/conformance do not have (MQA, biases on llama, head_dim 80, linear and YaRN scaling, sliding windows ...)."""
import json
import math
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HOKKU_BUILD", ROOT / "build"))
gguf = pytest.importorskip("gguf")

TEXT = "The quick brown fox jumps over the lazy dog 1234567890 times; then 東京 and München. " * 2


class Model:
    """Everything from the file, in float64."""

    def __init__(self, path):
        r = gguf.GGUFReader(path)
        self.w = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64) for t in r.tensors}
        self.meta = {k: f.contents() for k, f in r.fields.items() if not k.startswith("tokenizer.")}
        self.arch = self.meta["general.architecture"]

    def get(self, key, default=None):
        return self.meta.get(f"{self.arch}.{key}", default)

    def rope(self, n):
        """cos and sin (n, rope_dim / 2)."""
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
        angle = np.arange(n)[:, None] * freq
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

    def logprobs(self, ids):
        w, n = self.w, len(ids)
        heads, kv = self.get("attention.head_count"), self.get("attention.head_count_kv")
        self.head_dim = hd = self.get("attention.key_length", self.get("embedding_length") // heads)
        cos, sin = self.rope(n)
        swa = self.get("attention.sliding_window", 0)
        pos = np.arange(n)
        mask = pos[None, :] > pos[:, None]
        if swa:
            mask |= pos[None, :] <= pos[:, None] - swa
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
        logits = self.norm(x, "output_norm.weight") @ w.get("output.weight", w["token_embd.weight"]).T
        m = logits.max(-1, keepdims=True)
        return logits - m - np.log(np.exp(logits - m).sum(-1, keepdims=True))


SHAPES = {
    "llama-mqa-f32": "--arch llama --layers 2 --embd 96 --heads 6 --kv-heads 1 --head-dim 16 --ff 160 --types F32 --vocab 700",
    "llama-linear": "--arch llama --layers 2 --embd 128 --heads 4 --kv-heads 2 --ff 192 --types F16 --vocab 700 --rope-scaling linear:4",
    "llama-yarn": "--arch llama --layers 2 --embd 128 --heads 2 --kv-heads 2 --ff 192 --types F32 --vocab 700 --rope-scaling yarn:4:64",
    "llama-window": "--arch llama --layers 3 --embd 64 --heads 2 --kv-heads 2 --ff 96 --types F32 --vocab 700 --swa 17",
    "llama-freqs-80": "--arch llama --layers 2 --embd 160 --heads 2 --kv-heads 1 --head-dim 80 --ff 224 --types BF16 --vocab 700 --rope-freqs",
    "llama-partial-rope": "--arch llama --layers 2 --embd 64 --heads 2 --kv-heads 2 --head-dim 32 --rope-dim 16 --ff 96 --types F32 --vocab 700",
    "qwen2-wide-heads": "--arch qwen2 --layers 2 --embd 64 --heads 4 --kv-heads 2 --head-dim 64 --ff 96 --types F32 --vocab 700",
    "qwen2-untied-q8": "--arch qwen2 --layers 2 --embd 96 --heads 3 --kv-heads 3 --ff 160 --types Q8_0,Q5_0,Q4_1 --vocab 700 --no-tied",
    "qwen3-norms": "--arch qwen3 --layers 2 --embd 128 --heads 4 --kv-heads 1 --head-dim 96 --ff 256 --types F32 --vocab 700",
    "qwen3-k-quants": "--arch qwen3 --layers 2 --embd 256 --heads 4 --kv-heads 2 --head-dim 128 --ff 512 --types Q4_K,Q6_K,Q3_K,Q2_K --vocab 700",
    "qwen2-iq": "--arch qwen2 --layers 1 --embd 512 --heads 8 --kv-heads 4 --ff 256 --types IQ4_XS,IQ4_NL,Q5_K --vocab 700",
}


@pytest.mark.parametrize("kv", ["f16", "q8_0"])
@pytest.mark.parametrize("name", SHAPES)
def test_log_probabilities_agree_with_numpy(name, kv, tmp_path):
    path = tmp_path / "m.gguf"
    subprocess.run([sys.executable, ROOT / "tests/make_gguf.py", path, *SHAPES[name].split()], check=True, capture_output=True)
    (tmp_path / "t").write_text(TEXT)
    r = subprocess.run([BUILD / "src/hokku", "score", "-m", path, "--device", "cpu", "-ctk", kv, "-ctv", kv, "-b", "33",
                        "-c", "512", tmp_path / "t"], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    got = json.loads(r.stdout)
    want = Model(path).logprobs(np.array(got["tokens"]))
    diff = []
    for i, p in enumerate(got["positions"]):
        diff += [abs(lp - want[i, t]) for t, lp in p["top"]]
        if "next" in p:
            diff.append(abs(p["next"] - want[i, got["tokens"][i + 1]]))
    quantised = "Q" in SHAPES[name].split("--types ")[1].split()[0] or kv == "q8_0"
    mean, worst = (0.03, 0.16) if quantised else (0.002, 0.012)
    assert len(got["tokens"]) > 60 and np.std(want) > 0.01
    assert np.mean(diff) <= mean and np.max(diff) <= worst, (np.mean(diff), np.max(diff))
