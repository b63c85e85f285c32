"""Small random models of the families that hokku runs, with numbers that are unusual, so that a number which is not read
shows; and the class that says what each computes (forward_passes.py, forward_experts.py, forward_states.py)."""
import math

import numpy as np

import make_gguf
from forward_states import *  # noqa: F403, of all three

QKV, OUT, FFN = ("attn_q", "attn_k", "attn_v"), ("attn_output",), ("ffn_up", "ffn_down")
PRE, POST = ("attn_norm", "ffn_norm"), ("post_attention_norm", "post_ffw_norm")
EPS, LAYER_EPS = {"attention.layer_norm_rms_epsilon": 0.03}, {"attention.layer_norm_epsilon": 0.03}


def join(tensors):
    """Queries, keys and values of a layer, and gates and ups of its experts, become one tensor each, rows behind rows."""
    found, kinds = {t.name: t for t in tensors}, {"F16": np.float16, "F32": np.float32}
    for whole, parts in {"attn_qkv": QKV, "ffn_gate_up_exps": ("ffn_gate_exps", "ffn_up_exps")}.items():
        for name in [n for n in found if f".{parts[0]}." in n]:
            those = [found.get(name.replace(parts[0], part)) for part in parts]
            if None in those:
                continue
            data = [np.frombuffer(t.data, kinds[t.type]).reshape(t.ne[::-1]) for t in those]
            data = np.concatenate(data, -1 if name.endswith(".bias") else -2)
            at = tensors.index(those[0])
            tensors[:] = [t for t in tensors if t not in those]
            tensors.insert(at, make_gguf.Tensor(name.replace(parts[0], whole), list(data.shape[::-1]), those[0].type, data.tobytes()))


def join_by_keys(tensors, heads=6, keys=2, size=12):
    """Delta nets as early files have them: of each key head its query, its key, the values of its heads, and their gates' rows."""
    found = {t.name: t for t in tensors}
    for name in [t.name for t in tensors if t.name.endswith("attn_gate.weight")]:
        qkv, gate = found[name.replace("gate", "qkv")], found[name]
        q, k, v, z = np.split(np.concatenate([np.frombuffer(t.data, np.float16).reshape(t.ne[::-1]) for t in (qkv, gate)]),
                              np.cumsum([keys * size, keys * size, heads * size]))
        data = np.concatenate([m.reshape(keys, -1, qkv.ne[0]) for m in (q, k, v, z)], 1).reshape(-1, qkv.ne[0])
        tensors[tensors.index(qkv)] = make_gguf.Tensor(name.replace("attn_gate", "ssm_in"), [qkv.ne[0], len(data)], "F16", data.tobytes())
        tensors.remove(gate)


def model(arch, meta, layers=3, embd=48, heads=6, kv=3, head_dim=0, ff=80, norms=PRE, biases=(), qk=None, gate=True,
          fused=(), gated=False, tied=True, vectors=(), experts=None, sinks=False, seed=1, bos=False, dims=None, own=None, no_v=(), told=0,
          layer_scale=False, latent=None, delta=None, conv=0, ssm=None, beside=False, alone=False, last="output_norm",
          predict=0, predict_own=(), scaled=False, joined=None, streams=0, positions=0):
    """-> (kvs, tensors). gated: heads have gates, in a matrix of their own. qk: shape of the norms of queries and keys: head, heads, whole. heads, kv, ff: a number, or a list
    of one for each layer. vectors: more of them, (name, n, lowest, highest). experts: see mixture(); lists as kv. dims: widths of each
    layer's heads; own: how many layers have keys and values; no_v: layers whose keys are values; told: what layers are told.
    latent: (q, kv, key, rotated, value): widths of latent attention; q 0: none; made by one matrix where kv heads are heads.
    delta: (heads, key heads, state, taps, interval, whether beta and alpha are one matrix): of delta nets; attention is gated.
    conv: tokens that convolutions see, in layers without KV heads; last: the name of the last norm; None: it has no weights.
    ssm: (inner, heads, groups, state, taps, whether it is normed): of state spaces, in layers without KV heads; beside: in all;
    alone: a layer with a feed-forward network is nothing else.
    scaled: with a scale of each product. joined: see join; a function that does so.
    positions: how many have rows that are added to the embedding.
    streams: how many there are, the one that layers work on among them; then layers have a matrix of low rank, too.
    predict: how many of the layers are prediction layers; predict_own: what these have that others share with the model."""
    each = lambda v, l: v[l] if isinstance(v, list) else v
    d, rng, tensors, vocab = head_dim or embd // (heads or 1), np.random.default_rng([seed, 77]), [], 640

    def matrix(name, rows, cols, *stacked, gain=1.2, kind="F16"):
        data = rng.normal(0, gain / math.sqrt(cols), (*stacked, rows, cols)).astype(np.float16 if kind == "F16" else np.float32)
        tensors.append(make_gguf.Tensor(name + ".weight", [cols, rows, *stacked], kind, data.tobytes()))
        if name.split(".")[-1] in biases:
            data = rng.normal(0, 0.5, (*stacked, rows)).astype(np.float32)
            tensors.append(make_gguf.Tensor(name + ".bias", [rows, *stacked], "F32", data.tobytes()))

    def mixture(b, n, ff=ff, shared=0, router=False, choice=False, beside=False, narrow=0, **_):
        """n experts, ff wide, and a shared one, which may have a router; choice: a bias of the choice, or its name; beside: ... a plain
        network; narrow: the width of what experts work on."""
        matrix(b + "ffn_gate_inp", n, embd, gain=2 * math.sqrt(embd) if beside else 2, kind="F32")
        if beside:
            matrix(b + "ffn_gate_up_exps", 2 * ff, embd, n)
            matrix(b + "ffn_down_exps", embd, ff, n)
            vector(b + "ffn_gate_inp.scale", embd)
            vector(b + "ffn_down_exps.scale", n)
            for name in ("post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2"):
                norm(b + name)
            return
        if narrow:
            matrix(b + "ffn_latent_down", narrow, embd)
            matrix(b + "ffn_latent_up", embd, narrow)
        for name, rows, cols in (("gate", ff, embd), ("up", ff, embd), ("down", embd, ff))[not gate:]:
            matrix(b + f"ffn_{name}_exps", *((narrow or embd) if d == embd else d for d in (rows, cols)), n)
            if shared:
                matrix(b + f"ffn_{name}_shexp", *(shared if d == ff else d for d in (rows, cols)))
        if choice:
            vector(b + ("exp_probs_b.bias" if choice is True else choice), n, -0.3, 0.3)
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
    if positions:
        matrix("position_embd", positions, embd, kind="F32" if tied else "F16")
    if not tied:
        matrix("output", vocab, embd)
    if last:
        norm(last)
    for name, n, low, high in vectors:
        vector(name, n, low, high)
    for l in range(layers):
        b, h, k, width = f"blk.{l}.", each(heads, l), each(kv, l), each(ff, l)
        d, owns = dims[l] if dims else head_dim or embd // (heads or 1), own is None or l < own
        mixed = experts and l in experts.get("layers", range(layers))
        if mixed:
            mixture(b, **{name: each(value, l) for name, value in experts.items()})
            width = width if experts.get("beside") else 0
        for name in norms:
            if h or ssm if name == "attn_norm" else width or mixed or name != "ffn_norm":
                norm(b + name)
        if alone and (width or mixed):
            h = 0
        elif ssm and (beside or not k):
            inner, n, groups, size, taps, normed = ssm
            channels = inner + 2 * groups * size
            matrix(b + "ssm_in", inner + channels + n, embd)
            vector(b + "ssm_conv1d.weight", [taps, channels], -0.7, 0.9)
            vector(b + "ssm_conv1d.bias", channels, -0.3, 0.3)
            vector(b + "ssm_dt.bias", n, -2, 1)
            vector(b + "ssm_a", [1, n], -1, -0.1)
            vector(b + "ssm_d", [1, n])
            if normed:
                vector(b + "ssm_norm.weight", [inner // groups, groups])
            matrix(b + "ssm_out", embd, inner)
            h = h if beside else 0
        if delta and (l + 1) % delta[4] and l < layers - predict:
            n, keys, size, taps, _, one = delta
            channels = (2 * keys + n) * size
            for name, rows in (("attn_qkv", channels), ("attn_gate", n * size), ("ssm_ba", 2 * n), ("ssm_beta", n), ("ssm_alpha", n)):
                if (name == "ssm_ba") == one or name.startswith("attn"):
                    matrix(b + name, rows, embd)
            vector(b + "ssm_conv1d.weight", [taps, channels], -0.7, 0.9)
            vector(b + "ssm_dt.bias", n, -2, 1)
            vector(b + "ssm_a", n, -1, -0.1)
            vector(b + "ssm_norm.weight", size)
            matrix(b + "ssm_out", embd, n * size)
        elif conv and not k:
            matrix(b + "shortconv.in_proj", 3 * embd, embd)
            vector(b + "shortconv.conv.weight", [conv, embd], -0.7, 0.9)
            matrix(b + "shortconv.out_proj", embd, embd)
        elif h and not k:
            matrix(b + "attn_output", embd, embd)
        elif latent:
            q, c, key, rotated, value = latent
            for name, rows, cols in ("q_a", q, embd), ("q_b", h * (key + rotated), q or embd):
                if rows and (q or name == "q_b"):
                    matrix(b + ("attn_" + name if q else "attn_q"), rows, cols)
            if q:
                vector(b + "attn_q_a_norm.weight", q)
            matrix(b + "attn_kv_a_mqa", c + rotated, embd)
            vector(b + "attn_kv_a_norm.weight", c)
            if k == h:
                matrix(b + "attn_kv_b", h * (key + value), c)
            else:
                matrix(b + "attn_k_b", c, key, h)
                matrix(b + "attn_v_b", value, c, h)
            matrix(b + "attn_output", embd, h * value)
        elif h:
            if "qkv" in fused:
                matrix(b + "attn_qkv", (h + 2 * k) * d, embd)
            else:
                for name, rows in zip(QKV, (h * d, k * d, k * d)):
                    rows *= 2 if delta and name == "attn_q" else 1
                    if name == "attn_q" or owns and not (name == "attn_v" and l in no_v):
                        matrix(b + name, rows, embd)
            if gated:
                matrix(b + "attn_gate", h * d, embd)
            for name, n in (("q", h), ("k", k)):
                if qk and (name == "q" or owns):
                    vector(b + f"attn_{name}_norm.weight", {"head": d, "heads": [d, n], "whole": n * d}[qk])
            if sinks:
                vector(b + "attn_sinks.weight", h, -1, 2)
            matrix(b + "attn_output", embd, h * d)
        if width and gate and "ffn" not in fused:
            matrix(b + "ffn_gate", width, embd)
        if width:
            matrix(b + "ffn_up", width * (2 if "ffn" in fused else 1), embd)
            matrix(b + "ffn_down", embd, width)
        if told:
            matrix(b + "inp_gate", told, embd)
            matrix(b + "proj", embd, told)
            norm(b + "post_norm")
        if layer_scale:
            vector(b + "layer_output_scale.weight", 1)
        if streams:
            matrix(b + "laurel_l", 64, embd)
            matrix(b + "laurel_r", embd, 64)
            matrix(b + "altup_router", streams, embd, gain=embd)
            for name in ("laurel_post_norm", "altup_router_norm", "altup_correct_scale"):
                norm(b + name)
            vector(b + "altup_predict_coef.weight", [streams, streams * streams], -0.15, 0.15)
            vector(b + "altup_correct_coef.weight", [streams, streams], -0.15, 0.15)
        if l >= layers - predict:
            matrix(b + "nextn.eh_proj", embd, 2 * embd)
            for name in ("enorm", "hnorm", *predict_own):
                if name.endswith("norm"):
                    norm(b + "nextn." + name)
                else:
                    matrix(b + "nextn." + name, vocab, embd)
    if told:
        matrix("per_layer_token_embd", vocab, layers * told)
        matrix("per_layer_model_proj", layers * told, embd)
        vector("per_layer_proj_norm.weight", told)
    if streams:
        matrix("altup_proj", embd, embd, streams - 1)
        matrix("altup_unembd_proj", embd, embd, streams - 1)
    for t in [t for t in tensors if scaled and t.name.endswith(".weight") and t.ne[1:] and "norm" not in t.name]:
        name = t.name[:-len(".weight")]
        if name != "token_embd" and "conv" not in name:
            vector(name + ".scale", t.ne[2] if t.ne[2:] and "exps" in name else 1, 0.4, 1.6)
    if joined:
        joined(tensors)
    kvs = [("general.architecture", arch), ("general.name", "random"), ("general.file_type", 1),
           (f"{arch}.context_length", 4096), (f"{arch}.embedding_length", embd), (f"{arch}.block_count", layers),
           (f"{arch}.feed_forward_length", ff), (f"{arch}.attention.head_count", heads),
           (f"{arch}.attention.head_count_kv", kv), (f"{arch}.vocab_size", vocab)]
    if ssm:
        kvs += [(f"{arch}.ssm.{k}", v) for k, v in zip(("inner_size", "time_step_rank", "group_count", "state_size", "conv_kernel"), ssm)]
    if head_dim:
        kvs += [(f"{arch}.attention.key_length", d), (f"{arch}.attention.value_length", d)]
    if experts:
        kvs += [(f"{arch}.expert_count", experts["n"]), (f"{arch}.expert_used_count", experts["used"])]
        if "narrow" in experts:
            kvs.append((f"{arch}.moe_latent_size", experts["narrow"]))
        if "ff" in experts:
            kvs.append((f"{arch}.expert_feed_forward_length", experts["ff"]))
    if told:
        kvs.append((f"{arch}.embedding_length_per_layer_input", told))
    if streams:
        kvs += [(f"{arch}.altup.num_inputs", streams), (f"{arch}.altup.active_idx", 0)]
    if predict:
        kvs.append((f"{arch}.nextn_predict_layers", predict))
    kvs += [(k if k.startswith("xielu") else f"{arch}.{k}", v) for k, v in meta.items()]
    return list(dict(kvs).items()) + make_gguf.vocabulary(vocab, "qwen2", bos), tensors


def xielu(layers):
    return {"xielu.alpha_p": [0.3 + 0.4 * l for l in range(layers)], "xielu.alpha_n": [0.9 - 0.3 * l for l in range(layers)],
            "xielu.beta": [0.5 + 0.1 * l for l in range(layers)], "xielu.eps": [-1e-6] * layers}


def factors(n, *names):
    return [(f"rope_factors_{name}.weight", n, low, low + 2) for name, low in zip(names, (1, 3))]


YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 100}
GEMMA4 = {"attention.key_length": 20, "attention.value_length": 20, "attention.key_length_swa": 12, "attention.value_length_swa": 12,
          "rope.dimension_count": 16, "rope.dimension_count_swa": 8, "rope.freq_base": 3e5, "rope.freq_base_swa": 2e4,
          "attention.sliding_window": 21, "final_logit_softcapping": 4.0}
LATENT = {"attention.kv_lora_rank": 42, "rope.dimension_count": 8, "attention.key_length": 50, "attention.value_length": 42,
          "attention.key_length_mla": 19, "attention.value_length_mla": 9}
DELTA = {"full_attention_interval": 3, "ssm.conv_kernel": 4, "rope.dimension_count": 8, "rope.freq_base": 2e4}
GRANITE = {"embedding_scale": 3.0, "residual_scale": 0.3, "attention.scale": 0.15, "logit_scale": 1.7}
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
    "gemma4": (Gemma4, dict(
        arch="gemma4", layers=7, heads=4, kv=[1, 2, 1, 2, 1, 1, 2], dims=[12, 20, 12, 20, 12, 12, 20], own=4,
        ff=[80, 64, 80, 64, 80, 96, 72], norms=PRE + POST, qk="head", told=18, layer_scale=True,
        vectors=[("rope_freqs.weight", 8, 1, 4)], meta=EPS | GEMMA4 | {
            "attention.sliding_window_pattern": [True, False, True, False, True, True, False],
            "attention.shared_kv_layers": 3})),
    "gemma4-moe": (Gemma4, dict(
        arch="gemma4", seed=64, layers=4, heads=4, kv=[2, 2, 1, 2], dims=[12, 12, 20, 12], no_v=(2,), norms=PRE + POST, qk="head",
        layer_scale=True, tied=False, experts=dict(n=7, used=2, ff=24, beside=True), vectors=[("rope_freqs.weight", 8, 1, 4)],
        meta=EPS | GEMMA4 | {"attention.sliding_window_pattern": [True, True, False, True]})),
    "phi3-short": (Phi3, dict(arch="phi3", fused=("qkv", "ffn"), tied=False, vectors=factors(3, "short", "long"), meta=EPS | {
        "rope.dimension_count": 6, "rope.scaling.original_context_length": 3000, "rope.scaling.attn_factor": 1.3})),
    "phi3-long": (Phi3, dict(arch="phi3", fused=("qkv", "ffn"), kv=2, vectors=factors(4, "short", "long"), meta=EPS | {
        "rope.scaling.original_context_length": 300, "rope.scaling.attn_factor": 1.3, "attention.sliding_window": 90})),
    "granite": (Granite, dict(arch="granite", meta=EPS | GRANITE)),
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
    "mixtral": (Mixtral, dict(arch="llama", seed=25, ff=40, experts=dict(n=5, used=2), tied=False, meta=EPS)),
    "qwen3moe": (Qwen3Moe, dict(arch="qwen3moe", seed=236, qk="head", head_dim=12, experts=dict(n=9, used=3, ff=40), meta=EPS)),
    "qwen3moe-odd": (Qwen3Moe, dict(arch="qwen3moe", seed=2, heads=3, kv=1, qk="head", head_dim=15, experts=dict(n=9, used=3, ff=40), meta=EPS | {
        "rope.dimension_count": 8})),
    "qwen2moe": (Qwen2Moe, dict(arch="qwen2moe", seed=1, biases=QKV, experts=dict(n=7, used=2, ff=24, shared=56, router=True), meta=EPS | {
        "expert_shared_feed_forward_length": 56})),
    "gpt-oss": (GptOss, dict(arch="gpt-oss", seed=12, layers=4, norms=("attn_norm", "post_attention_norm"), sinks=True,
                             biases=(*QKV, *OUT, "ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"),
                             experts=dict(n=6, used=2, ff=40), meta=EPS | YARN | {"attention.sliding_window": 17})),
    "olmoe": (OlMoe, dict(arch="olmoe", seed=189, qk="whole", ff=24, experts=dict(n=10, used=3), meta=EPS)),
    "granitemoe": (GraniteMoe, dict(arch="granitemoe", seed=2, ff=40, experts=dict(n=7, used=3, shared=24), meta=EPS | GRANITE | {
        "expert_shared_feed_forward_length": 24, "rope.scaling.finetuned": True})),
    "phimoe": (PhiMoe, dict(arch="phimoe", seed=1, ff=24, biases=("norm", *QKV, *OUT, "output"), tied=False, experts=dict(n=6, used=2),
                            vectors=factors(3, "short", "long"), meta=EPS | {
        "rope.dimension_count": 6, "rope.scaling.original_context_length": 300, "rope.scaling.attn_factor": 1.3,
        "attention.sliding_window": 90})),
    "glm4moe": (Glm4Moe, dict(arch="glm4moe", seed=1, layers=4, norms=("attn_norm", "post_attention_norm"), biases=QKV, qk="head", head_dim=12,
                              experts=dict(n=8, used=2, ff=24, shared=48, choice=True, layers=(1, 2, 3)), meta=EPS | {
        "rope.dimension_count": 6, "leading_dense_block_count": 1, "expert_shared_count": 2, "expert_gating_func": 2,
        "expert_weights_norm": True, "expert_weights_scale": 1.7, "nextn_predict_layers": 1})),
    "dots1": (Sigmoids, dict(arch="dots1", seed=13, qk="head", kv=6, experts=dict(n=8, used=3, ff=24, shared=24, choice=True, layers=(1, 2)), meta=EPS | {
        "leading_dense_block_count": 1, "expert_shared_count": 1, "expert_weights_scale": 0.7, "expert_gating_func": 2})),
    "bailingmoe2": (Bailing, dict(arch="bailingmoe2", seed=2, qk="head", fused=("qkv",),
                                  experts=dict(n=12, used=3, ff=24, shared=40, choice=True, layers=(1, 2)), meta=EPS | {
        "rope.dimension_count": 4, "leading_dense_block_count": 1, "expert_shared_feed_forward_length": 40, "expert_shared_count": 1,
        "expert_group_count": 4, "expert_group_used_count": 2, "expert_weights_norm": True, "expert_weights_scale": 1.6,
        "expert_gating_func": 2})),
    "ernie4_5-moe": (Experts, dict(arch="ernie4_5-moe", seed=1, layers=5, experts=dict(n=8, used=3, ff=24, shared=40, choice=True, layers=(1, 3)), meta=EPS | {
        "leading_dense_block_count": 1, "interleave_moe_layer_step": 2, "expert_shared_feed_forward_length": 40,
        "expert_shared_count": 1})),
    "deepseek2-lite": (DeepSeek, dict(
        arch="deepseek2", seed=9, heads=3, kv=3, latent=(0, 30, 10, 6, 14), experts=dict(n=7, used=2, ff=24, shared=48, layers=(1, 2)),
        meta=EPS | YARN | {"attention.kv_lora_rank": 30, "rope.dimension_count": 6, "attention.key_length": 16, "attention.value_length": 14,
                           "rope.scaling.yarn_log_multiplier": 0.06, "leading_dense_block_count": 1, "expert_shared_count": 2,
                           "expert_weights_scale": 1.4})),
    "deepseek2": (DeepSeek, dict(
        arch="deepseek2", seed=121, kv=1, latent=(20, 42, 11, 8, 9), tied=False,
        experts=dict(n=12, used=3, ff=24, shared=24, choice=True, layers=(1, 2)), meta=EPS | YARN | LATENT | {
            "attention.q_lora_rank": 20, "rope.scaling.yarn_log_multiplier": 0.08, "leading_dense_block_count": 1,
            "expert_shared_count": 1, "expert_group_count": 4, "expert_group_used_count": 2, "expert_weights_norm": True,
            "expert_weights_scale": 1.6, "expert_gating_func": 2})),
    "mistral4": (Mistral4, dict(
        arch="mistral4", seed=3, kv=1, latent=(20, 42, 11, 8, 9), experts=dict(n=6, used=2, ff=24, shared=24), meta=EPS | YARN | LATENT | {
            "attention.q_lora_rank": 20, "rope.scaling.yarn_log_multiplier": 0.07, "expert_shared_count": 1,
            "attention.temperature_scale": 0.4, "attention.temperature_length": 25})),
    "qwen35": (Qwen35, dict(
        arch="qwen35", layers=5, head_dim=20, norms=("attn_norm", "post_attention_norm"), qk="head", delta=(6, 3, 14, 4, 3, False),
        meta=EPS | DELTA | {"ssm.time_step_rank": 6, "ssm.group_count": 3, "ssm.state_size": 14, "ssm.inner_size": 84,
                            "rope.dimension_sections": [2, 1, 1, 0]})),
    "qwen35moe": (Qwen35Moe, dict(
        arch="qwen35moe", seed=1, layers=4, head_dim=20, norms=("attn_norm", "post_attention_norm"), qk="head", tied=False,
        delta=(4, 2, 10, 3, 3, False), experts=dict(n=7, used=2, ff=24, shared=40, router=True), meta=EPS | DELTA | {
            "ssm.time_step_rank": 4, "ssm.group_count": 2, "ssm.state_size": 10, "ssm.inner_size": 40, "ssm.conv_kernel": 3,
            "expert_shared_feed_forward_length": 40})),
    "qwen3next": (Qwen3Next, dict(
        arch="qwen3next", seed=21, layers=4, head_dim=20, norms=("attn_norm", "post_attention_norm"), qk="head",
        delta=(6, 2, 12, 4, 3, True), experts=dict(n=7, used=2, ff=24, shared=40, router=True), meta=EPS | DELTA | {
            "ssm.time_step_rank": 6, "ssm.group_count": 2, "ssm.state_size": 12, "ssm.inner_size": 72,
            "expert_shared_feed_forward_length": 40})),
    "lfm2": (Lfm2, dict(arch="lfm2", layers=4, kv=[0, 3, 0, 2], qk="head", conv=4, last="token_embd_norm", meta=EPS | {
        "shortconv.l_cache": 4})),
    "lfm2moe": (Lfm2Moe, dict(
        arch="lfm2moe", seed=1, layers=4, kv=[0, 3, 0, 0], qk="head", conv=3, last="token_embd_norm",
        experts=dict(n=8, used=3, ff=24, choice=True, layers=(1, 2, 3)), meta=EPS | {
            "shortconv.l_cache": 3, "leading_dense_block_count": 1, "expert_gating_func": 2})),
    "mamba2": (Mamba2, dict(arch="mamba2", heads=0, kv=0, ff=0, norms=PRE[:1], ssm=(84, 6, 2, 14, 4, True), meta=EPS)),
    "falcon-h1": (FalconH1, dict(
        arch="falcon-h1", head_dim=12, norms=PRE[:1], tied=False, ssm=(72, 4, 2, 10, 3, False), beside=True,
        vectors=[(f"blk.{l}.ffn_norm", 48, 0.5, 1.5) for l in range(3)], meta=EPS | {"rope.freq_base": 3e5, "rope.dimension_count": 8})),
    "falcon-h1-normed": (FalconH1, dict(
        arch="falcon-h1", head_dim=12, norms=PRE[:1], ssm=(72, 6, 3, 11, 4, True), beside=True,
        vectors=[(f"blk.{l}.ffn_norm", 48, 0.5, 1.5) for l in range(3)], meta=EPS)),
    "granitehybrid": (GraniteHybrid, dict(
        arch="granitehybrid", layers=4, kv=[0, 3, 0, 2], ssm=(80, 5, 1, 12, 5, True), meta=EPS | GRANITE)),
    "granitehybrid-moe": (GraniteHybrid, dict(
        arch="granitehybrid", seed=166, layers=4, kv=[0, 3, 0, 0], ff=40, ssm=(90, 6, 3, 9, 4, True), experts=dict(n=7, used=3, shared=24),
        meta=EPS | GRANITE | {"expert_shared_feed_forward_length": 24, "rope.scaling.finetuned": False, "rope.dimension_count": 8})),
    "nemotron_h": (NemotronH, dict(
        arch="nemotron_h", layers=5, heads=4, kv=[0, 0, 2, 0, 0], head_dim=20, ff=[0, 80, 0, 0, 72], norms=PRE[:1], gate=False, alone=True,
        tied=False, ssm=(96, 6, 2, 12, 4, True), meta=EPS | {"attention.layer_norm_epsilon": 0.3})),
    "nemotron_h_moe": (NemotronHMoe, dict(
        arch="nemotron_h_moe", seed=1, layers=4, heads=4, kv=[0, 0, 2, 0], head_dim=20, ff=[0, 64, 0, 64], norms=PRE[:1], gate=False,
        alone=True, ssm=(64, 4, 2, 16, 4, True), experts=dict(n=8, used=3, ff=24, shared=40, choice=True, layers=(1, 3)), meta=EPS | {
            "expert_shared_feed_forward_length": 40, "expert_shared_count": 1, "expert_weights_norm": True, "expert_weights_scale": 2.5})),
    "nemotron_h_moe-latent": (NemotronHMoe, dict(
        arch="nemotron_h_moe", seed=7, layers=4, heads=4, kv=[0, 0, 2, 0], head_dim=20, ff=[0, 64, 0, 64], norms=PRE[:1], gate=False,
        alone=True, ssm=(64, 4, 1, 16, 4, True), experts=dict(n=8, used=3, ff=24, shared=40, choice=True, layers=(1, 3), narrow=20), meta=EPS | {
            "expert_shared_feed_forward_length": 40, "expert_weights_norm": True, "expert_weights_scale": 1.5})),
    "hunyuan-moe": (HunyuanMoe, dict(arch="hunyuan-moe", seed=1, qk="head", experts=dict(n=6, used=2, ff=24, shared=40), meta=EPS | {
        "expert_shared_feed_forward_length": 40})),
    "minimax-m2": (MiniMax, dict(arch="minimax-m2", seed=1, qk="whole", ff=24, experts=dict(n=8, used=2, ff=24, choice=True), meta=EPS | {
        "rope.dimension_count": 4, "expert_gating_func": 2})),
    "llama4": (Llama4, dict(arch="llama4", seed=1, layers=5, head_dim=12, experts=dict(n=5, used=2, ff=40, shared=40, layers=(1, 3)), meta=EPS | {
        "interleave_moe_layer_step": 2, "attention.sliding_window": 13, "attention.temperature_scale": 0.4,
        "attention.temperature_length": 20})),
    # Wide enough for what a GPU does with a long prompt (cuda/delta_chunks.cu, ssm_chunks.cu).
    "qwen35-wide": (Qwen35, dict(
        arch="qwen35", seed=7, layers=4, head_dim=20, norms=("attn_norm", "post_attention_norm"), qk="head", delta=(4, 2, 32, 4, 3, False),
        meta=EPS | DELTA | {"ssm.time_step_rank": 4, "ssm.group_count": 2, "ssm.state_size": 32, "ssm.inner_size": 128})),
    "mamba2-wide": (Mamba2, dict(arch="mamba2", seed=8, heads=0, kv=0, ff=0, norms=PRE[:1], ssm=(128, 4, 2, 64, 4, True), meta=EPS)),
    # Not rotated, by a key that changes nothing elsewhere.
    "granite-unrotated": (Granite, dict(arch="granite", tied=False, meta=EPS | GRANITE | {"rope.scaling.finetuned": False})),
    "granitemoe-unrotated": (GraniteMoe, dict(arch="granitemoe", seed=5, ff=40, experts=dict(n=6, used=2), meta=EPS | GRANITE | {
        "rope.scaling.finetuned": False, "rope.dimension_count": 8})),
    # Experts of another width in each layer.
    "qwen2moe-widths": (Qwen2Moe, dict(
        arch="qwen2moe", seed=2, biases=QKV, experts=dict(n=7, used=2, ff=[24, 40, 16], shared=[56, 24, 72], router=True), meta=EPS | {
            "expert_shared_feed_forward_length": [56, 24, 72]})),
    # No layer has a window, so none is rotated.
    "cohere2-full": (Cohere2, dict(arch="cohere2", layers=2, norms=PRE[:1], meta=LAYER_EPS | {
        "logit_scale": 0.8, "attention.sliding_window": 26, "attention.sliding_window_pattern": 1})),
}
# The text parts of models that also see.
FAMILIES["qwen3vlmoe"] = (Qwen3Moe, dict(
    arch="qwen3vlmoe", seed=179, qk="head", head_dim=12, experts=dict(n=9, used=3, ff=40), meta=EPS | {
        "rope.freq_base": 5e5, "rope.dimension_sections": [2, 2, 2, 0], "n_deepstack_layers": 3}))
FAMILIES |= {f"{name}-sections": (family, options | {"meta": options["meta"] | {"rope.dimension_sections": [1, 1, 1, 0]}})
             for name, (family, options) in FAMILIES.items() if name in ("glm4", "glm4moe")}
# Products with scales: of fused matrices; of experts with biases, without gates and on a latent, whose inputs are weighed; of
# latent attention.
FAMILIES |= {f"{name}-scaled": (family, options | {"seed": 1, "scaled": True}) for name, (family, options) in FAMILIES.items()
             if name in ("phi3-short", "gpt-oss", "nemotron_h_moe-latent", "llama4", "deepseek2-lite")}
# As newer files have them: with biases; where a head of the queries has its gate beside it.
FAMILIES |= {f"{name}-joined": (family, options | {"joined": join}) for name, (family, options) in FAMILIES.items()
             if name in ("qwen2vl", "gpt-oss", "qwen35moe")}
# As early files have them.
FAMILIES["qwen3next-by_keys"] = (Qwen3Next, FAMILIES["qwen3next"][1] | {"joined": join_by_keys})
# Biases wherever a matrix is.
FAMILIES["llama-biases"] = (Plain, dict(arch="llama", biases=(*QKV, *OUT, *FFN, "ffn_gate"), tied=False, meta=EPS))
# What Mistral Large 3 says.
FAMILIES["deepseek2-temperature"] = (DeepSeek, FAMILIES["deepseek2"][1] | {"meta": FAMILIES["deepseek2"][1]["meta"] | {
    "attention.temperature_scale": 0.4, "attention.temperature_length": 25}})
# Rnj-1: no windows, and a softcap of the logits.
FAMILIES["gemma3-full"] = (Gemma3, dict(arch="gemma3", layers=7, head_dim=12, norms=PRE + POST, qk="head", meta=EPS | YARN | {
    "rope.freq_base": 2e4, "rope.scaling.yarn_beta_fast": 6.0, "final_logit_softcapping": 4.0}))
FAMILIES["exaone"] = (Neox, dict(arch="exaone", vectors=[("rope_freqs.weight", 4, 1, 4)], tied=False, meta=EPS | {"rope.freq_base": 3e5}))
FAMILIES["gemma"] = (Gemma, dict(arch="gemma", head_dim=20, kv=1, meta=EPS))
FAMILIES["chatglm"] = (ChatGlm, dict(arch="chatglm", head_dim=12, biases=("attn_qkv",), fused=("qkv", "ffn"), tied=False, meta=EPS | {
    "rope.dimension_count": 6}))
FAMILIES["minicpm"] = (MiniCpm, dict(arch="minicpm", tied=False, vectors=factors(4, "short", "long"), meta=EPS | {
    "embedding_scale": 3.0, "residual_scale": 0.3, "logit_scale": 1.7, "rope.scaling.original_context_length": 300,
    "rope.scaling.type": "longrope", "rope.scaling.attn_factor": 1.2}))
FAMILIES["bailingmoe"] = (Bailing1, dict(arch="bailingmoe", seed=1, head_dim=12, tied=False, experts=dict(n=8, used=3, ff=24, shared=48), meta=EPS | {
    "leading_dense_block_count": 0, "expert_shared_count": 2, "expert_weights_norm": True, "expert_weights_scale": 1.4}))
FAMILIES["deepseek"] = (Bailing1, dict(arch="deepseek", seed=2, kv=6, experts=dict(n=8, used=3, ff=24, shared=48, layers=(1, 2)), meta=EPS | {
    "rope.scaling.type": "none", "leading_dense_block_count": 1, "expert_shared_count": 2, "expert_weights_scale": 1.0}))
# The pattern leaves out the layer that only guesses.
FAMILIES["exaone-moe"] = (ExaoneMoe, dict(
    arch="exaone-moe", seed=128, layers=6, predict=1, predict_own=("shared_head_norm",), head_dim=12, qk="head", tied=False,
    vectors=[("rope_freqs.weight", 6, 1, 4)],
    experts=dict(n=8, used=3, ff=24, shared=24, choice=True, layers=(1, 2, 3, 4, 5)), meta=EPS | {
        "attention.sliding_window": 17, "attention.sliding_window_pattern": [True, True, True, False, True], "rope.scaling.type": "none",
        "rope.freq_base": 1e6, "leading_dense_block_count": 1, "expert_shared_count": 1, "expert_shared_feed_forward_length": 24,
        "expert_group_count": 1, "expert_group_used_count": 1, "expert_gating_func": 2, "expert_weights_norm": True,
        "expert_weights_scale": 1.7}))
FAMILIES["phi2"] = (Phi2, dict(
    arch="phi2", kv=6, norms=PRE[:1], biases=("norm", *QKV, *OUT, *FFN, "output"), gate=False, tied=False, meta=LAYER_EPS | {
        "rope.dimension_count": 4}))
# Files of before a converter wrote its scales.
FAMILIES["minicpm-implied"] = (MiniCpm, dict(arch="minicpm", embd=96, meta=EPS))
FAMILIES["minicpm3"] = (MiniCpm3, dict(
    arch="minicpm3", embd=96, kv=6, latent=(20, 30, 10, 6, 16), tied=False, vectors=factors(3, "short", "long"), meta=EPS | {
        "attention.q_lora_rank": 20, "attention.kv_lora_rank": 30, "attention.key_length": 16, "rope.dimension_count": 6}))
FAMILIES["hunyuan_vl"] = (HunyuanVl, dict(arch="hunyuan_vl", head_dim=12, qk="head", meta=EPS | {
    "rope.scaling.type": "none", "rope.scaling.factor": 1.0, "rope.scaling.alpha": 50.0, "rope.dimension_sections": [2, 2, 1, 1]}))
FAMILIES["afmoe"] = (Afmoe, dict(
    arch="afmoe", seed=68, layers=5, head_dim=12, norms=PRE + POST, qk="head", gated=True, tied=False,
    experts=dict(n=8, used=3, ff=24, shared=48, choice=True, layers=(2, 3, 4)), meta=EPS | {
        "attention.sliding_window": 17, "rope.dimension_count": 12, "leading_dense_block_count": 2, "expert_shared_count": 2,
        "expert_group_count": 1, "expert_group_used_count": 1, "expert_gating_func": 2, "expert_weights_norm": True,
        "expert_weights_scale": 2.8}))
FAMILIES["afmoe-scaled"] = (Afmoe, FAMILIES["afmoe"][1] | {"seed": 26, "scaled": True})
FAMILIES["olmo"] = (Olmo, dict(arch="olmo", kv=6, norms=(), last=None, meta=LAYER_EPS))
FAMILIES["olmo-clamped"] = (Olmo, dict(arch="olmo", norms=(), last=None, tied=False, meta=LAYER_EPS | {"attention.clamp_kqv": 0.8}))
FAMILIES["hy_v3"] = (HyV3, dict(
    arch="hy_v3", seed=53, layers=4, predict=1, predict_own=("shared_head_norm",), head_dim=12, qk="head", tied=False,
    experts=dict(n=8, used=3, ff=24, shared=24, choice="exp_probs_b", layers=(1, 2, 3)), meta=EPS | {
        "expert_shared_feed_forward_length": 24, "expert_gating_func": 2, "expert_weights_norm": True,
        "expert_weights_scale": 2.8, "rope.freq_base": 1e6}))
# As wide as a converter says half of.
FAMILIES["qwen"] = (Neox, dict(arch="qwen", kv=6, biases=("attn_qkv",), fused=("qkv",), tied=False, meta=EPS | {"feed_forward_length": 160}))
FAMILIES["baichuan"] = (Plain, dict(arch="baichuan", kv=6, tied=False, meta=EPS | {"rope.dimension_count": 8}))
FAMILIES["orion"] = (Orion, dict(arch="orion", biases=("norm",), tied=False, meta=LAYER_EPS))
FAMILIES["pangu-embedded"] = (Neox, dict(arch="pangu-embedded", head_dim=12, biases=(*QKV, *OUT), meta=EPS | {"rope.freq_base": 16e6}))
FAMILIES["plm"] = (Plm, dict(arch="plm", kv=6, latent=(0, 30, 10, 6, 14), gate=False, meta=EPS | {
    "attention.kv_lora_rank": 30, "attention.key_length": 16, "attention.value_length": 14, "rope.dimension_count": 6}))
# Counts of layers as its files have them, and nothing of the softcap.
FAMILIES["gemma3n"] = (Gemma3n, dict(
    arch="gemma3n", layers=10, heads=4, kv=2, head_dim=12, own=5, ff=[56, 48] * 5, norms=PRE + POST, qk="head", told=18, streams=4, meta=EPS | {
        "attention.sliding_window": 21, "attention.shared_kv_layers": 5.0, "rope.freq_base": 3e5,
        # (published ones have 1.64, and 800 gates that are left of 16,384; of 56 that would be three, and float16 would show)
        "activation_sparsity_scale": [1.0, 0.5, 0.0, -1.0] + [-math.inf] * 6}))
FAMILIES["gemma3n-pattern"] = (Gemma3n, dict(
    arch="gemma3n", layers=4, head_dim=20, norms=PRE + POST, qk="head", told=10, streams=3, tied=False, meta=EPS | {
        "attention.sliding_window": 17, "attention.sliding_window_pattern": [True, False, False, True], "rope.freq_base": 3e5,
        "rope.freq_base_swa": 2e4, "final_logit_softcapping": 4.0, "activation_sparsity_scale": [-math.inf, 1.0, 1.6, -math.inf]}))
COHERE2MOE = dict(
    arch="cohere2moe", seed=14, layers=5, norms=PRE[:1], head_dim=12, experts=dict(n=8, used=3, ff=24, shared=48, layers=(1, 2, 3, 4)),
    meta=LAYER_EPS | {
        "logit_scale": 1.3, "attention.sliding_window": 17, "attention.sliding_window_pattern": [False, True, True, False, True],
        "leading_dense_block_count": 1, "expert_shared_count": 2, "expert_shared_feed_forward_length": 48, "expert_gating_func": 2,
        "expert_weights_norm": True, "rope.scaling.type": "none"})
FAMILIES["cohere2moe"] = (Cohere2Moe, COHERE2MOE)
FAMILIES["cohere2moe-rms"] = (Cohere2Moe, COHERE2MOE | {
    "seed": 22, "experts": dict(n=8, used=2, ff=24, layers=(1, 2, 3, 4)), "meta": COHERE2MOE["meta"] | EPS | {
        "expert_shared_count": 0, "expert_shared_feed_forward_length": 0, "expert_weights_norm": False}})
FAMILIES["cohere2moe-scaled"] = (Cohere2Moe, COHERE2MOE | {"seed": 1, "scaled": True})
# As its makers' code has it with `bias`.
FAMILIES["internlm2-biases"] = (Plain, dict(arch="internlm2", biases=(*QKV, *OUT), tied=False, meta=EPS))
GPT_NEOX = dict(arch="gptneox", kv=6, biases=("norm", "attn_qkv", *OUT, *FFN), fused=("qkv",), gate=False, tied=False, meta=LAYER_EPS | {
    "rope.dimension_count": 2, "use_parallel_residual": True})
FAMILIES["gptneox"] = (GptNeoX, GPT_NEOX)
FAMILIES["gptneox-sequential"] = (GptNeoX, GPT_NEOX | {"biases": ("norm", *FFN), "meta": GPT_NEOX["meta"] | {"use_parallel_residual": False}})
FALCON = dict(arch="falcon", norms=PRE[:1], biases=("norm",), fused=("qkv",), gate=False, meta=LAYER_EPS | {"tensor_data_layout": "jploski"})
FAMILIES["falcon"] = (Falcon, FALCON | {"kv": 1})
FAMILIES["falcon-norms"] = (Falcon, FALCON | {"norms": ("attn_norm_2", "attn_norm"), "tied": False})
GPT2 = dict(arch="gpt2", kv=6, biases=("norm", "attn_qkv", *OUT, *FFN), fused=("qkv",), gate=False, positions=2048, meta=LAYER_EPS | {
    "context_length": 2048})
FAMILIES["gpt2"] = (Gpt2, GPT2)
FAMILIES["starcoder"] = (Gpt2, GPT2 | dict(arch="starcoder", kv=1, tied=False))
FAMILIES["jais2"] = (Nemotron, dict(arch="jais2", biases=("norm", *QKV, *OUT, *FFN), gate=False, tied=False, meta=LAYER_EPS | {
    "rope.freq_base": 5e5, "rope.dimension_count": 8}))
MELLUM = dict(arch="mellum", layers=5, qk="head", head_dim=12, tied=False, experts=dict(n=6, used=2, ff=40), meta=EPS | YARN | {
    "attention.sliding_window": 19, "attention.sliding_window_pattern": [False, True, True, True, False], "rope.freq_base": 5e5,
    "rope.scaling.attn_factor": 1.2})
FAMILIES["mellum"] = (Mellum, MELLUM | {"seed": 20})
FAMILIES["mellum-base"] = (Mellum, MELLUM | {"seed": 3, "layers": 4, "meta": EPS | YARN | {
    "attention.sliding_window": 19, "rope.freq_base": 5e5, "rope.freq_base_swa": 300.0}})
# What layers add is scaled, its bias, too.
FAMILIES["granite-biases"] = (Granite, dict(arch="granite", head_dim=12, biases=(*QKV, *OUT), meta=EPS | GRANITE))
# Heads of delta nets too wide for what a GPU does in one launch with a next token (cuda/delta.cu).
FAMILIES["qwen35-broad"] = (Qwen35, dict(
    arch="qwen35", head_dim=20, norms=("attn_norm", "post_attention_norm"), qk="head", delta=(2, 1, 136, 4, 3, False),
    meta=EPS | DELTA | {"ssm.time_step_rank": 2, "ssm.group_count": 1, "ssm.state_size": 136, "ssm.inner_size": 272}))
