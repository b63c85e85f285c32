#!/usr/bin/env python3
"""Writes GGUF files with random weights, of any shape and mix of weight types.

    make_gguf.py OUT.gguf --shape qwen2.5-7b-q4_k_m       a real model's shape (--list names them)
    make_gguf.py OUT.gguf --shape NAME --tsv FILE         hyper-parameters of NAME, tensors of FILE
    make_gguf.py OUT.gguf --arch llama --layers 2 --embd 96 --heads 3 --ff 160 --types Q8_0,Q4_0

The weights have a standard deviation of about 0.02 (--std), so that logits stay finite, and mean zero.
A tile of a few MB per type is drawn once and repeated from a random place for every tensor, so
that even large files take seconds. The vocabulary is synthetic: byte-level BPE, with the control
tokens and the template of ChatML. The same arguments give the same file.

Needs NumPy only. Tests import it: `model()` gives metadata and tensors, `write()` writes them.
"""
import argparse
import os
import pathlib
import struct
import sys

import numpy as np
from model_shapes import SHAPES
from random_weights import STD, TYPES, Tensor, Tiles, chain, tell_tokens_apart

FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10,
              "Q3_K": 12, "Q4_K": 15, "Q4_K_M": 15, "MXFP4_MOE": 38, "Q5_K": 17, "Q6_K": 18, "IQ4_NL": 25,
              "IQ4_XS": 30, "BF16": 32, "MXFP4": 38, "NVFP4": 39, "IQ1_S": 24, "IQ1_M": 31, "IQ2_XXS": 19,
              "IQ2_XS": 20, "IQ2_S": 28, "IQ3_XXS": 23, "IQ3_S": 26, "Q1_0": 40, "TQ1_0": 36, "TQ2_0": 37}
# What a K-quant becomes where the row length is not a multiple of 256.
FALLBACK = {"Q2_K": "IQ4_NL", "Q3_K": "IQ4_NL", "IQ4_XS": "IQ4_NL", "Q4_K": "Q5_0", "Q5_K": "Q5_1",
            "Q6_K": "Q8_0", **{t: "IQ4_NL" for t in ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S",
                                                     "TQ1_0", "TQ2_0")}}

CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
          "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


# --- metadata -------------------------------------------------------------------------------

class Typed:
    """A metadata value of an explicit type: Typed("u16", 3), Typed("array", ("f32", [1, 2]))."""

    def __init__(self, kind, value):
        self.kind, self.value = kind, value


KINDS = {"u8": 0, "i8": 1, "u16": 2, "i16": 3, "u32": 4, "i32": 5, "f32": 6, "bool": 7, "str": 8,
         "array": 9, "u64": 10, "i64": 11, "f64": 12}
PACK = {"u8": "<B", "i8": "<b", "u16": "<H", "i16": "<h", "u32": "<I", "i32": "<i", "f32": "<f",
        "bool": "<?", "u64": "<Q", "i64": "<q", "f64": "<d"}


def typed(value):
    """u32, f32, bool, str and arrays of them for the Python types."""
    if isinstance(value, Typed):
        return value
    if isinstance(value, bool):
        return Typed("bool", value)
    if isinstance(value, int):
        return Typed("u32", value)
    if isinstance(value, float):
        return Typed("f32", value)
    if isinstance(value, (str, bytes)):
        return Typed("str", value)
    if isinstance(value, (list, tuple)):
        return Typed("array", (typed(value[0]).kind if value else "u32", value))
    raise TypeError(type(value))


def encode_str(s):
    b = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(b)) + b


def encode_value(t):
    """The value alone, without its type."""
    if t.kind == "str":
        return encode_str(t.value)
    if t.kind != "array":
        return struct.pack(PACK[t.kind], t.value)
    elem, values = t.value
    head = struct.pack("<IQ", KINDS[elem], len(values))
    if elem == "str":
        return head + b"".join(encode_str(v) for v in values)
    if elem == "array":
        return head + b"".join(encode_value(typed(v)) for v in values)
    return head + b"".join(struct.pack(PACK[elem], v) for v in values)


def encode_kv(key, value):
    t = typed(value)
    return encode_str(key) + struct.pack("<I", KINDS[t.kind]) + encode_value(t)


# --- files ----------------------------------------------------------------------------------

def pad(n, alignment):
    return -n % alignment


def header(kvs, tensors, alignment, version):
    """Everything before the tensor data, and the offset of each tensor in it."""
    out = [struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(kvs))]
    out += [encode_kv(k, v) for k, v in kvs]
    offsets, at = [], 0
    for t in tensors:
        out.append(encode_str(t.name) + struct.pack("<I", len(t.ne)) +
                   struct.pack(f"<{len(t.ne)}Q", *t.ne) +
                   struct.pack("<IQ", TYPES[t.type][0], at))
        offsets.append(at)
        at += t.n_bytes + pad(t.n_bytes, alignment)
    head = b"".join(out)
    return head + bytes(pad(len(head), alignment)), offsets


def write_one(path, kvs, tensors, tiles, first, alignment, version):
    if alignment != 32:
        kvs = kvs + [("general.alignment", alignment)]
    head, _ = header(kvs, tensors, alignment, version)
    with open(path, "wb", buffering=1 << 20) as f:
        f.write(head)
        for i, t in enumerate(tensors):
            if t.data is not None:
                assert len(t.data) == t.n_bytes, t.name
                f.write(t.data)
            else:
                for piece in tiles.chunks(t, first + i):
                    f.write(piece)
            f.write(bytes(pad(t.n_bytes, alignment)))


def write(path, kvs, tensors, seed=1, alignment=32, version=3, split=1, std=STD):
    """Writes the model; with split > 1 as NAME-0000i-of-0000n.gguf. -> the paths"""
    tiles = Tiles(seed, std)
    path = str(path)
    if split == 1:
        write_one(path, kvs, tensors, tiles, 0, alignment, version)
        return [path]
    stem = path[:-5] if path.endswith(".gguf") else path
    paths = []
    for i in range(split):
        lo, hi = len(tensors) * i // split, len(tensors) * (i + 1) // split
        part_kvs = (kvs if i == 0 else []) + [
            ("split.no", Typed("u16", i)), ("split.count", Typed("u16", split)),
            ("split.tensors.count", Typed("i32", len(tensors)))]
        paths.append(f"{stem}-{i + 1:05d}-of-{split:05d}.gguf")
        write_one(paths[-1], part_kvs, tensors[lo:hi], tiles, lo, alignment, version)
    return paths


# --- a vocabulary ---------------------------------------------------------------------------

def byte_alphabet():
    """The printable character that byte-level BPE writes for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, extra = {}, 0
    for b in range(256):
        if b in plain:
            table[b] = chr(b)
        else:
            table[b] = chr(256 + extra)
            extra += 1
    return [table[b] for b in range(256)]


def vocabulary(n_vocab, pre, bos):
    """tokenizer.* of n_vocab tokens: bytes, pairs of letters (with merges), words, control tokens."""
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    room = n_vocab - len(control)
    if room < 256:
        sys.exit(f"--vocab must be at least {256 + len(control)}, to hold every byte")
    tokens = byte_alphabet()
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    space = "\u0120"
    pairs = [(space, c) for c in letters] + [(a, b) for a in letters for b in letters]
    pairs = pairs[:room - 256]
    merges = [f"{a} {b}" for a, b in pairs]
    tokens += [a + b for a, b in pairs]
    syllables = [a + b for a in "bdfghklmnprstvwyz" for b in "aeiou"]
    i = 0
    while len(tokens) < room:  # words that nothing merges into: for printing only
        word, n = "", i
        for _ in range(3):
            word, n = syllables[n % len(syllables)] + word, n // len(syllables)
        tokens.append(space + word + (str(n) if n else ""))
        i += 1
    first = len(tokens)
    tokens += control
    kinds = [1] * first + [3] * len(control)
    return [
        ("tokenizer.ggml.model", "gpt2"),
        ("tokenizer.ggml.pre", pre),
        ("tokenizer.ggml.tokens", Typed("array", ("str", tokens))),
        ("tokenizer.ggml.token_type", Typed("array", ("i32", kinds))),
        ("tokenizer.ggml.merges", Typed("array", ("str", merges))),
        ("tokenizer.ggml.bos_token_id", first),
        ("tokenizer.ggml.eos_token_id", first + 2),
        ("tokenizer.ggml.padding_token_id", first),
        ("tokenizer.ggml.add_bos_token", bos),
    ]


# --- models ---------------------------------------------------------------------------------

def more_bits(i, n):
    """The layers that the _M mixes give more bits to."""
    return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2


def matrix_type(mix, name, n_cols, layer, p):
    """The weight type of a matrix in a mix: a type's name, Q4_K_M, or MXFP4_MOE (experts; Q8_0 beside)."""
    if isinstance(mix, (list, tuple)):  # by turns
        chosen = mix[p["turn"] % len(mix)]
        p["turn"] += 1
    elif name == "per_layer_model_proj.weight" and mix not in ("F32", "F16"):  # as trained in every quantised file
        chosen = "BF16"
    elif mix == "MXFP4_MOE":
        chosen = "MXFP4" if "_exps." in name else "Q8_0"
    elif mix != "Q4_K_M":
        chosen = mix
    elif name in ("output.weight", "per_layer_token_embd.weight") or (name == "token_embd.weight" and p["tied"]):
        chosen = "Q6_K"
    elif p["fused"] and ".attn_qkv." in name:
        chosen = "Q5_K"
    elif ".attn_v." in name or ".ffn_down" in name:
        those = p["with_v"] if ".attn_v." in name else range(p["layers"])
        chosen = "Q6_K" if more_bits(those.index(layer), len(those)) else "Q4_K"
    else:
        chosen = "Q4_K"
    if n_cols % TYPES[chosen][1] and chosen in FALLBACK:
        chosen = FALLBACK[chosen]
    if n_cols % TYPES[chosen][1]:
        chosen = "F16"
    return chosen


def llama3_factors(rope_dim, theta):
    """Frequency factors of Llama 3.1: factor 8, low 1, high 4, original context 8192."""
    freq = theta ** (-np.arange(0, rope_dim, 2) / rope_dim)
    turns = 8192 * freq / (2 * np.pi)
    smooth = np.clip((turns - 1) / (4 - 1), 0, 1)
    return (1 / ((1 - smooth) / 8 + smooth)).astype(np.float32)


def partial_factors(key_length):
    """Frequency factors of Gemma 4's full layers: a quarter of a head turns."""
    return np.where(np.arange(key_length // 2) < key_length // 8, 1, 1e30)


def model(arch="qwen2", layers=2, embd=256, heads=4, kv_heads=None, head_dim=None, ff=512,
          vocab=1056, mix="Q8_0", tied=True, rope_theta=1e4, ctx=4096, biases=None, qk_norm=None,
          rope_freqs=False, rope_dim=None, rope_scaling=None, swa=0, eps=1e-6, pre="qwen2",
          bos=False, template=CHATML, name=None, seed=1, vector_type="F32", shapes=None, experts=0, experts_used=2,
          expert_ff=None, shared_ff=0, delta=None, conv=None, ssm=None, scales=False, post_norms=False, fused=(), windowed=None, k_is_v=False, shared_kv=0,
          told=0, softcap=0.0, streams=0, sparse=0, latent=None, dense=0, gating=0):
    """-> (kvs, tensors). shapes: [(name, row length, rows, type)] instead of the mix's own."""
    kv_heads = kv_heads or heads
    key_length = head_dim or embd // max(heads, 1)
    rope_dim = rope_dim or key_length
    biases = arch == "qwen2" if biases is None else biases
    qk_norm = arch in ("qwen3", "qwen3moe", "qwen35", "qwen35moe", "lfm2", "gemma3", "gemma3n", "gemma4") if qk_norm is None else qk_norm
    biases = biases or arch == "gpt-oss"
    rng = np.random.default_rng([seed, 2])
    has_window = [bool(windowed) and (i + 1) % windowed[3] != 0 for i in range(layers)]
    kv_heads_of = [windowed[0] if w else kv_heads for w in has_window]
    p = {"turn": 0, "tied": tied, "layers": layers, "fused": "qkv" in fused,
         "with_v": [i for i in range(layers) if has_window[i] or not k_is_v]}
    tensors = []

    def matrix(tensor, n_cols, rows, layer=0):
        tensors.append(Tensor(tensor, [n_cols, rows], matrix_type(mix, tensor, n_cols, layer, p)))

    def stack(tensor, n_cols, rows, layer):  # of the experts
        tensors.append(Tensor(tensor + ".weight", [n_cols, rows, experts], matrix_type(mix, tensor + ".", n_cols, layer, p)))
        if arch == "gpt-oss":
            tensors.append(Tensor(tensor + ".bias", [rows, experts], "F32"))

    def vector(tensor, values, kind=vector_type):
        values = np.asarray(values, dtype=np.float32)
        data = {"F32": lambda v: v, "F16": lambda v: v.astype(np.float16),
                "BF16": lambda v: (v.view(np.uint32) >> 16).astype(np.uint16)}[kind](values)
        tensors.append(Tensor(tensor, [len(values)], kind, data.tobytes()))

    def around_one(n):
        return rng.uniform(0.8, 1.2, n)

    def table(tensor, n_cols, rows):
        tensors.append(Tensor(tensor, [n_cols, rows], "F32", rng.normal(0, 0.5, n_cols * rows).astype(np.float32).tobytes()))

    def attention(b, i):
        width = windowed[1] if has_window[i] else key_length
        n_q, n_kv = heads * width, kv_heads_of[i] * width
        parts = [("k", n_kv), ("q", n_q * (2 if delta else 1))] + [("v", n_kv)] * (i in p["with_v"])
        for part, rows in (("qkv", n_q + 2 * n_kv),) if "qkv" in fused else parts:
            if biases:
                vector(b + f"attn_{part}.bias", rng.normal(0, 0.1, rows))
            matrix(b + f"attn_{part}.weight", embd, rows, i)
        if qk_norm:
            vector(b + "attn_k_norm.weight", around_one(width))
            scale = width ** -0.5 if arch in ("gemma3n", "gemma4") else 1  # its scores have no other
            vector(b + "attn_q_norm.weight", around_one(width) * scale)
        vector(b + "attn_norm.weight", around_one(embd))
        matrix(b + "attn_output.weight", n_q, embd, i)

    def latent_attention(b, i, low, width, key, rotated, value):
        vector(b + "attn_norm.weight", around_one(embd))
        vector(b + "attn_kv_a_norm.weight", around_one(width))
        matrix(b + "attn_kv_a_mqa.weight", embd, width + rotated, i)
        if low:
            vector(b + "attn_q_a_norm.weight", around_one(low))
            matrix(b + "attn_q_a.weight", embd, low, i)
        matrix(b + ("attn_q_b.weight" if low else "attn_q.weight"), low or embd, heads * (key + rotated), i)
        for part, n_cols, rows in (("k", key, width), ("v", width, value)):
            name = f"attn_{part}_b.weight"
            tensors.append(Tensor(b + name, [n_cols, rows, heads], matrix_type(mix, name, n_cols, i, p)))
        matrix(b + "attn_output.weight", heads * value, embd, i)

    def delta_net(b, i, n, keys, size, taps):
        channels = (2 * keys + n) * size
        vector(b + "attn_norm.weight", around_one(embd))
        for part, rows in (("attn_qkv", channels), ("attn_gate", n * size), ("ssm_beta", n), ("ssm_alpha", n)):
            matrix(b + part + ".weight", embd, rows, i)
        table(b + "ssm_conv1d.weight", taps, channels)
        vector(b + "ssm_dt.bias", rng.uniform(-2, 1, n))
        vector(b + "ssm_a", rng.uniform(-1, -0.1, n))
        vector(b + "ssm_norm.weight", around_one(size))
        matrix(b + "ssm_out.weight", n * size, embd, i)

    def short_convolution(b, i, taps):
        vector(b + "attn_norm.weight", around_one(embd))
        matrix(b + "shortconv.in_proj.weight", embd, 3 * embd, i)
        table(b + "shortconv.conv.weight", taps, embd)
        matrix(b + "shortconv.out_proj.weight", embd, embd, i)

    def state_space(b, i, inner, n, groups, size, taps):
        channels = inner + 2 * groups * size
        matrix(b + "ssm_in.weight", embd, inner + channels + n, i)
        table(b + "ssm_conv1d.weight", taps, channels)
        vector(b + "ssm_conv1d.bias", rng.uniform(-0.3, 0.3, channels))
        vector(b + "ssm_dt.bias", rng.uniform(-2, 1, n))
        for name, values in (("ssm_a", rng.uniform(-1, -0.1, n)), ("ssm_d", around_one(n))):
            tensors.append(Tensor(b + name, [1, n], "F32", values.astype(np.float32).tobytes()))
        tensors.append(Tensor(b + "ssm_norm.weight", [inner // groups, groups], "F32", around_one(inner).astype(np.float32).tobytes()))
        matrix(b + "ssm_out.weight", inner, embd, i)

    def feed_forward(b, i, norm):
        matrix(b + "ffn_down.weight", ff, embd, i)
        if "gate_up" not in fused:
            matrix(b + "ffn_gate.weight", embd, ff, i)
        vector(b + norm, around_one(embd))
        matrix(b + "ffn_up.weight", embd, 2 * ff if "gate_up" in fused else ff, i)

    def mixture(b, i, norm):
        vector(b + norm, around_one(embd))
        tensors.append(Tensor(b + "ffn_gate_inp.weight", [embd, experts], "F32"))
        if gating:
            vector(b + "exp_probs_b.bias", rng.uniform(-0.1, 0.1, experts))
        stack(b + "ffn_down_exps", expert_ff or ff, embd, i)
        stack(b + "ffn_gate_exps", embd, expert_ff or ff, i)
        stack(b + "ffn_up_exps", embd, expert_ff or ff, i)
        if shared_ff:
            if not ssm and not latent:
                vector(b + "ffn_gate_inp_shexp.weight", rng.normal(0, 0.02, embd))
            matrix(b + "ffn_down_shexp.weight", shared_ff, embd, i)
            matrix(b + "ffn_gate_shexp.weight", embd, shared_ff, i)
            matrix(b + "ffn_up_shexp.weight", embd, shared_ff, i)

    def mixture_beside(b, i):  # Gemma 4: beside a feed-forward network
        tensors.append(Tensor(b + "ffn_gate_inp.weight", [embd, experts], "F32"))
        vector(b + "ffn_gate_inp.scale", around_one(embd) * embd ** 0.5)  # logits are as wide as other models'
        stack(b + "ffn_down_exps", expert_ff, embd, i)
        vector(b + "ffn_down_exps.scale", around_one(experts))
        stack(b + "ffn_gate_up_exps", embd, 2 * expert_ff, i)
        for norm in ("post_ffw_norm_1", "post_ffw_norm_2", "pre_ffw_norm_2"):
            vector(b + norm + ".weight", around_one(embd))

    def token_input(b, i):  # Gemma 4: what a layer does with what it is told of a token
        matrix(b + "inp_gate.weight", embd, told, i)
        vector(b + "post_norm.weight", around_one(embd))
        matrix(b + "proj.weight", told, embd, i)

    def several_streams(b):  # Gemma 3n, whose quantised files have these as float16
        for name, n_cols, rows in (("laurel_l", embd, 64), ("laurel_r", 64, embd)):
            tensors.append(Tensor(b + name + ".weight", [n_cols, rows], "F16"))
        for name in ("laurel_post_norm", "altup_router_norm", "altup_correct_scale"):
            vector(b + name + ".weight", around_one(embd))
        for name, n_cols, rows, std in (("router", embd, streams, embd ** 0.5), ("predict_coef", streams, streams * streams, 0.02),
                                        ("correct_coef", streams, streams, 0.02)):
            data = rng.normal(0, std, n_cols * rows).astype(np.float32)
            tensors.append(Tensor(b + f"altup_{name}.weight", [n_cols, rows], "F32", data.tobytes()))

    def outer():
        if not tied:
            matrix("output.weight", embd, vocab)
        vector("token_embd_norm.weight" if conv else "output_norm.weight", around_one(embd))
        if rope_freqs:
            vector("rope_freqs.weight", llama3_factors(rope_dim, rope_theta))
        if arch == "gemma4":
            vector("rope_freqs.weight", partial_factors(key_length), "F32")
        matrix("token_embd.weight", embd, vocab)
        if told:
            matrix("per_layer_model_proj.weight", embd, layers * told)
            vector("per_layer_proj_norm.weight", around_one(told))
            matrix("per_layer_token_embd.weight", layers * told, vocab)
        for name in ("altup_proj.weight", "altup_unembd_proj.weight") * bool(streams):
            tensors.append(Tensor(name, [embd, embd, streams - 1], "F16"))

    outer()
    for i in range(layers):
        b = f"blk.{i}."
        if delta and (i + 1) % delta[4]:
            delta_net(b, i, *delta[:4])
        elif conv and i not in conv[1]:
            short_convolution(b, i, conv[0])
        elif ssm and ssm[5] is not None and i not in ssm[5]:
            vector(b + "attn_norm.weight", around_one(embd))
            state_space(b, i, *ssm[:5])
        elif latent:
            latent_attention(b, i, *latent)
        else:
            attention(b, i)
            if ssm and ssm[5] is None:
                state_space(b, i, *ssm[:5])
        if arch == "gpt-oss":
            vector(b + "attn_output.bias", rng.normal(0, 0.1, embd))
            vector(b + "attn_sinks.weight", rng.normal(0, 1, heads))
            vector(b + "ffn_gate_inp.bias", rng.normal(0, 0.1, experts))
        ffn_norm = ("post_attention_norm.weight" if arch == "gpt-oss" or delta
                    else "ffn_norm" if arch == "falcon-h1" else "ffn_norm.weight")
        if experts and arch != "gemma4" and i >= dense:
            mixture(b, i, ffn_norm)
        elif ff:
            feed_forward(b, i, ffn_norm)
        if post_norms:
            vector(b + "post_attention_norm.weight", around_one(embd))
            vector(b + "post_ffw_norm.weight", around_one(embd))
        if told:
            token_input(b, i)
        if streams:
            several_streams(b)
        if arch == "gemma4":
            if experts:
                mixture_beside(b, i)
            vector(b + "layer_output_scale.weight", around_one(1))
    if shapes:
        tensors = retype(tensors, shapes)

    kind = mix if isinstance(mix, str) else mix[0]
    kvs = [
        ("general.architecture", arch),
        ("general.type", "model"),
        ("general.name", name or f"random {arch}"),
        ("general.file_type", FILE_TYPES[kind]),
        ("general.quantization_version", 2),
        (f"{arch}.context_length", ctx),
        (f"{arch}.embedding_length", embd),
        (f"{arch}.block_count", layers),
        (f"{arch}.feed_forward_length", ff),
        (f"{arch}.attention.head_count", heads),
        (f"{arch}.attention.head_count_kv", [kv_heads * (i in conv[1]) for i in range(layers)] if conv
         else [kv_heads * (i in ssm[5]) for i in range(layers)] if ssm and ssm[5]
         else kv_heads_of if len(set(kv_heads_of)) > 1 else kv_heads),
        (f"{arch}.attention.layer_norm_rms_epsilon", eps),
        (f"{arch}.rope.freq_base", rope_theta),
        (f"{arch}.vocab_size", vocab),
    ]
    if latent:
        low, width, key, rotated, value = latent
        kvs += [(f"{arch}.attention.{name}", n) for name, n in (
            ("kv_lora_rank", width), ("key_length", width + rotated), ("value_length", width), ("key_length_mla", key + rotated),
            ("value_length_mla", value))] + [(f"{arch}.attention.q_lora_rank", low)] * bool(low)
        kvs += [(f"{arch}.leading_dense_block_count", dense), (f"{arch}.expert_shared_count", 1), (f"{arch}.expert_weights_norm", bool(gating)),
                (f"{arch}.expert_gating_func", gating)]
    elif heads and (key_length * heads != embd or windowed):
        kvs += [(f"{arch}.attention.key_length", key_length),
                (f"{arch}.attention.value_length", key_length)]
    if rope_dim != key_length or arch in ("llama", "phi3", "gemma4"):
        kvs.append((f"{arch}.rope.dimension_count", rope_dim))
    if rope_scaling:
        kvs += [(f"{arch}.rope.scaling.type", rope_scaling["type"]),
                (f"{arch}.rope.scaling.factor", float(rope_scaling["factor"]))]
        if "orig_ctx" in rope_scaling:
            kvs.append((f"{arch}.rope.scaling.original_context_length", rope_scaling["orig_ctx"]))
        if "attn_factor" in rope_scaling:
            kvs.append((f"{arch}.rope.scaling.attn_factor", float(rope_scaling["attn_factor"])))
    if experts:
        kvs += [(f"{arch}.expert_count", experts), (f"{arch}.expert_used_count", experts_used)]
    if expert_ff:
        kvs.append((f"{arch}.expert_feed_forward_length", expert_ff))
    if swa:
        kvs.append((f"{arch}.attention.sliding_window", swa))
    if windowed:
        kvs += [(f"{arch}.attention.sliding_window_pattern", has_window), (f"{arch}.rope.freq_base_swa", windowed[2])]
        if not streams:
            kvs += [(f"{arch}.{key}_swa", windowed[1]) for key in ("attention.key_length", "attention.value_length", "rope.dimension_count")]
    if streams:
        kvs += [(f"{arch}.altup.num_inputs", streams), (f"{arch}.altup.active_idx", 0),
                (f"{arch}.activation_sparsity_scale", [1.6448536 if i < sparse else float("-inf") for i in range(layers)])]
    if arch in ("gemma3n", "gemma4"):
        kvs += [(f"{arch}.attention.shared_kv_layers", shared_kv), (f"{arch}.embedding_length_per_layer_input", told)]
    if softcap:
        kvs.append((f"{arch}.final_logit_softcapping", softcap))
    if shared_ff:
        kvs.append((f"{arch}.expert_shared_feed_forward_length", shared_ff))
    if delta:
        n, keys, size, taps, interval = delta
        kvs += [(f"{arch}.full_attention_interval", interval), (f"{arch}.ssm.conv_kernel", taps), (f"{arch}.ssm.time_step_rank", n),
                (f"{arch}.ssm.group_count", keys), (f"{arch}.ssm.state_size", size), (f"{arch}.ssm.inner_size", n * size),
                (f"{arch}.rope.dimension_sections", [11, 11, 10, 0])]
    if conv:
        kvs.append((f"{arch}.shortconv.l_cache", conv[0]))
    if ssm:
        kvs += [(f"{arch}.ssm.{key}", n)
                for key, n in zip(("inner_size", "time_step_rank", "group_count", "state_size", "conv_kernel"), ssm)]
    if scales:  # Granite's, which turns no heads either
        kvs += [(f"{arch}.embedding_scale", 12.0), (f"{arch}.residual_scale", 0.22), (f"{arch}.attention.scale", 1 / 128),
                (f"{arch}.logit_scale", 16.0), (f"{arch}.rope.scaling.finetuned", False)]
    kvs += vocabulary(vocab, pre, bos)
    if template:
        kvs.append(("tokenizer.chat_template", template))
    return kvs, tensors


def retype(tensors, shapes):
    """Takes order and types from a list of shapes; the shapes themselves must agree."""
    by_name = {t.name: t for t in tensors}
    out = []
    for name, n_cols, rows, type_name in shapes:
        t = by_name.pop(name, None)
        if t is None:
            sys.exit(f"{name}: no such tensor in a model of these hyper-parameters")
        ne = t.ne if len(t.ne) == 2 else t.ne + [1]
        if ne != [n_cols, rows]:
            sys.exit(f"{name}: {n_cols} x {rows} listed, {ne[0]} x {ne[1]} from the hyper-parameters")
        t.type = type_name
        out.append(t)
    if by_name:
        sys.exit(f"not listed: {', '.join(sorted(by_name))}")
    return out


def read_tsv(path):
    rows = [line.split("\t") for line in pathlib.Path(path).read_text().splitlines()[1:]]
    return [(name, int(n_cols), int(n), kind) for name, n_cols, n, kind in rows]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", nargs="?")
    p.add_argument("--list", action="store_true", help="name the known shapes")
    p.add_argument("--shape", help="SHAPE-MIX, such as qwen2.5-7b-q4_k_m, llama3.1-8b-f16")
    p.add_argument("--tsv", help="tensors: name, row length, rows, type, with a header line")
    p.add_argument("--types", help="a weight type, or several used by turns, or Q4_K_M")
    p.add_argument("--arch", choices=["llama", "qwen2", "qwen3", "qwen3moe", "gpt-oss"])
    for flag in ("layers", "embd", "heads", "kv-heads", "head-dim", "ff", "vocab", "ctx", "swa",
                 "rope-dim", "experts", "experts-used", "expert-ff", "shared-kv"):
        p.add_argument("--" + flag, type=int)
    p.add_argument("--rope-theta", type=float)
    p.add_argument("--eps", type=float)
    p.add_argument("--rope-scaling", metavar="TYPE:FACTOR[:ORIG_CTX[:ATTN_FACTOR]]")
    for flag in ("tied", "biases", "qk-norm", "rope-freqs", "bos"):
        p.add_argument("--" + flag, action=argparse.BooleanOptionalAction)
    p.add_argument("--pre", help="tokenizer.ggml.pre (qwen2)")
    p.add_argument("--vector-type", choices=["F32", "F16", "BF16"], help="of norms and biases")
    p.add_argument("--no-template", action="store_true")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--std", type=float, default=STD, help="of the matrices' weights (%(default)s)")
    p.add_argument("--chain", metavar="CYCLE[:COIN]", help="text that repeats itself: see chain()")
    p.add_argument("--alignment", type=int, default=32)
    p.add_argument("--version", type=int, default=3, choices=[2, 3])
    p.add_argument("--split", type=int, default=1, metavar="N", help="write N files")
    a = p.parse_args()
    if a.list:
        print("\n".join(f"{s}-{m}" for s in SHAPES for m in ("q4_k_m", "q8_0", "f16", "TYPE")))
        return
    if not a.out:
        p.error("OUT is missing")

    options = {"seed": a.seed}
    if a.shape:
        for shape, values in SHAPES.items():
            if a.shape.startswith(shape + "-"):
                options.update(values, mix=a.shape[len(shape) + 1:].upper(), name="random " + a.shape)
        if "mix" not in options:
            p.error(f"unknown shape {a.shape}; --list names them")
        if options["mix"] not in TYPES and options["mix"] not in ("Q4_K_M", "MXFP4_MOE"):
            p.error(f"unknown weight types {options['mix']}; these work: Q4_K_M, MXFP4_MOE, {', '.join(TYPES)}")
    for key in ("arch", "layers", "embd", "heads", "kv_heads", "head_dim", "ff", "vocab", "ctx", "swa",
                "rope_dim", "rope_theta", "eps", "tied", "biases", "qk_norm", "rope_freqs", "bos", "pre",
                "vector_type", "experts", "experts_used", "expert_ff", "shared_kv"):
        if getattr(a, key) is not None:
            options[key] = getattr(a, key)
    if a.types:
        types = a.types.upper().split(",")
        for t in types:
            if t not in TYPES and t != "Q4_K_M":
                p.error(f"unknown weight type {t}; these work: Q4_K_M, {', '.join(TYPES)}")
        options["mix"] = types if len(types) > 1 else types[0]
    if a.rope_scaling:
        kind, factor, *rest = a.rope_scaling.split(":")
        options["rope_scaling"] = {"type": kind, "factor": float(factor)}
        if rest:
            options["rope_scaling"]["orig_ctx"] = int(rest[0])
        if len(rest) > 1:
            options["rope_scaling"]["attn_factor"] = float(rest[1])
    if a.no_template:
        options["template"] = None
    if a.tsv:
        options["shapes"] = read_tsv(a.tsv)
        options["vocab"] = next(rows for n, _, rows, _ in options["shapes"] if n == "token_embd.weight")
    kvs, tensors = model(**options)
    tell_tokens_apart(tensors)
    if a.chain:
        chain(tensors, *[int(n) for n in (a.chain + ":0").split(":")[:2]], a.seed)
    paths = write(a.out, kvs, tensors, a.seed, a.alignment, a.version, a.split, a.std)
    for path in paths:
        print(f"{path}: {os.path.getsize(path):,} bytes")


if __name__ == "__main__":
    main()
