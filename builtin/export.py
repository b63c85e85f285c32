"""Writes a checkpoint as a GGUF file: Qwen2 architecture, Q8_0 matrices, F32 vectors, all metadata.

    python3 export.py CHECKPOINT.pt hokku-builtin.gguf

The writer follows the GGUF specification, version 3; it needs NumPy and PyTorch only.
"""
import argparse
import struct

import numpy as np
import torch

from bpe import SPECIALS, Bpe

ALIGNMENT = 32
F32, Q8_0 = 0, 8
TEMPLATE = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
            "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(v):
    """Type number and bytes of one metadata value."""
    if isinstance(v, bool):
        return 7, struct.pack("<?", v)
    if isinstance(v, int):
        return 4, struct.pack("<I", v)
    if isinstance(v, np.int32):
        return 5, struct.pack("<i", v)
    if isinstance(v, float):
        return 6, struct.pack("<f", v)
    if isinstance(v, str):
        return 8, text(v)
    if isinstance(v, list):
        kinds = [value(x) for x in v]
        return 9, struct.pack("<IQ", kinds[0][0], len(v)) + b"".join(b for _, b in kinds)
    raise TypeError(type(v))


def q8_0(x):
    """Blocks of 32: one F16 scale, 32 signed bytes. x (rows, n_cols) F32, n_cols % 32 == 0."""
    blocks = x.reshape(-1, 32)
    scale = np.abs(blocks).max(1) / 127.0
    with np.errstate(divide="ignore"):
        inverse = np.where(scale > 0, 1.0 / scale, 0.0)
    q = np.rint(blocks * inverse[:, None]).astype(np.int8)
    out = np.empty(len(blocks), dtype=[("d", "<f2"), ("q", "i1", 32)])
    out["d"], out["q"] = scale.astype(np.float16), q
    return out.tobytes()


def dequantised(x):
    """What q8_0() means: for the evaluation in PyTorch."""
    raw = np.frombuffer(q8_0(x), dtype=[("d", "<f2"), ("q", "i1", 32)])
    return (raw["d"].astype(np.float32)[:, None] * raw["q"]).reshape(x.shape)


def gguf_name(name):
    for vector in ("attn_norm", "ffn_norm"):
        if name.endswith(vector):
            return name + ".weight"
    return name + ".weight" if name == "output_norm" else name


def metadata(shape, tokenizer, n_params, temp, version):
    normal, control = np.int32(1), np.int32(3)
    ids = tokenizer.ids
    return {
        "general.architecture": "qwen2",
        "general.type": "model",
        "general.name": "hokku built-in",
        "general.version": version,
        "general.author": "the hokku authors",
        "general.license": "mit",
        "general.license.name": "MIT License",
        "general.languages": ["en"],
        "general.size_label": f"{n_params / 1e6:.1f}M",
        "general.description": f"A {n_params / 1e6:.1f}-million-parameter model trained on generated text only, here to show that "
                               "everything works: haiku with a wished word, a small manual of hokku, memory, sums below 100.",
        "general.tags": ["haiku", "chat", "demonstration"],
        "general.file_type": 7,  # mostly Q8_0
        "general.quantization_version": 2,
        "general.alignment": ALIGNMENT,
        "general.sampling.temp": temp,
        "general.sampling.top_k": np.int32(40),
        "general.sampling.top_p": 0.95,
        "general.sampling.min_p": 0.05,
        "qwen2.context_length": shape["n_ctx"],
        "qwen2.embedding_length": shape["n_embd"],
        "qwen2.block_count": shape["n_layer"],
        "qwen2.feed_forward_length": shape["n_ff"],
        "qwen2.attention.head_count": shape["n_head"],
        "qwen2.attention.head_count_kv": shape["n_head_kv"],
        "qwen2.attention.layer_norm_rms_epsilon": shape["rms_eps"],
        "qwen2.rope.freq_base": shape["rope_theta"],
        "qwen2.vocab_size": shape["n_vocab"],
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokenizer.tokens,
        "tokenizer.ggml.token_type": [control if t in SPECIALS else normal for t in tokenizer.tokens],
        "tokenizer.ggml.merges": [" ".join(m) for m in tokenizer.merges],
        "tokenizer.ggml.bos_token_id": ids["<|endoftext|>"],
        "tokenizer.ggml.eos_token_id": ids["<|im_end|>"],
        "tokenizer.ggml.padding_token_id": ids["<|endoftext|>"],
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


def write(path, fields, tensors):
    """tensors: name -> F32 array; matrices become Q8_0."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(fields))
    for key, v in fields.items():
        kind, raw = value(v)
        head += text(key) + struct.pack("<I", kind) + raw
    data, offset = [], 0
    for name, x in tensors.items():
        kind = Q8_0 if x.ndim == 2 else F32
        raw = q8_0(x) if kind == Q8_0 else x.astype("<f4").tobytes()
        # dimensions are stored innermost first
        head += text(name) + struct.pack("<I", x.ndim) + b"".join(struct.pack("<Q", n) for n in reversed(x.shape))
        head += struct.pack("<IQ", kind, offset)
        raw += b"\0" * (-len(raw) % ALIGNMENT)
        data.append(raw)
        offset += len(raw)
    head += b"\0" * (-len(head) % ALIGNMENT)
    with open(path, "wb") as f:
        f.write(head)
        for raw in data:
            f.write(raw)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("checkpoint")
    ap.add_argument("gguf")
    ap.add_argument("--temp", type=float, default=0.5, help="the recommended temperature")
    ap.add_argument("--version", default="1.1")
    args = ap.parse_args()
    saved = torch.load(args.checkpoint, map_location="cpu", weights_only=True)
    tensors = {gguf_name(k): v.float().numpy() for k, v in saved["average"].items()}
    tokenizer = Bpe.start(saved["merges"])
    n_params = sum(x.size for x in tensors.values())
    write(args.gguf, metadata(saved["shape"], tokenizer, n_params, args.temp, args.version), tensors)
    print(f"{args.gguf}: {n_params} parameters, {len(tensors)} tensors")


if __name__ == "__main__":
    main()
