"""A model that answers every prompt with the same pieces: each token's row of the output has the next one at its top."""
import sys

import numpy as np
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests"))
import make_gguf  # noqa: E402

CONTROL = 3
EMBD = 512


def write(path, pieces, template, control=(), ctx=4096):
    """pieces: texts, or bytes, each a token of its own, after whichever the next comes; the last one is followed by the end.
    The prompt must end with a line break. control: those of the pieces that are control tokens."""
    letter = make_gguf.byte_alphabet()
    kvs, tensors = make_gguf.model(arch="llama", layers=1, embd=EMBD, heads=4, ff=64, vocab=EMBD, mix="F32", tied=False, template=template, ctx=ctx)
    metadata = dict(kvs)
    tokens, kinds = (metadata[f"tokenizer.ggml.{name}"].value[1] for name in ("tokens", "token_type"))
    n_plain, ids = tokens.index("<|endoftext|>"), []
    tokens[256:n_plain] = [f"zq{i}" for i in range(256, n_plain)]  # (to which no merges lead any more)
    for i, piece in enumerate(pieces):
        text = piece if piece in control else "".join(letter[b] for b in (piece if isinstance(piece, bytes) else piece.encode()))
        ids.append(tokens.index(text) if text in tokens else 256 + i)
        tokens[ids[-1]] = text
        kinds[ids[-1]] = CONTROL if piece in control else 1
    metadata["tokenizer.ggml.merges"] = make_gguf.Typed("array", ("str", []))
    chain = [tokens.index(letter[10]), *ids, metadata["tokenizer.ggml.eos_token_id"]]
    output = np.zeros((EMBD, EMBD), np.float32)
    for a, b in zip(chain, chain[1:]):
        output[b, a] = 1
    data = {"token_embd.weight": np.eye(EMBD, dtype=np.float32), "output.weight": output, "output_norm.weight": np.ones(EMBD, np.float32)}
    for t in tensors:
        if t.name in data:
            t.data = data[t.name].tobytes()
        elif t.name.endswith(("attn_output.weight", "ffn_down.weight")):
            t.data = bytes(t.n_bytes)
    make_gguf.write(path, list(metadata.items()), tensors)
    return path
