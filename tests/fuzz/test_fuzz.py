"""Every fuzz target survives a fixed number of runs from a fixed seed. Needs a build with -Dfuzz=enabled."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HOKKU_BUILD", ROOT / "build-asan"))
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/fuzz")]


def gguf_seeds(directory):
    import make_gguf
    for arch in ("llama", "qwen2", "qwen3"):
        kvs, tensors = make_gguf.model(
            arch=arch, layers=1, embd=32, heads=2, kv_heads=1, ff=32, vocab=260, mix=["Q4_0", "F16", "Q8_0"],
            rope_freqs=True, rope_scaling={"type": "yarn", "factor": 4, "orig_ctx": 32})
        make_gguf.write(directory / f"{arch}.gguf", kvs, tensors)


def tokenizer_seeds(directory):
    """A byte of flags, a byte n, n bytes of text, then a GGUF with a vocabulary (see fuzz_tokenizer.c)."""
    import make_gguf
    from make_gguf import Typed
    byte_level = make_gguf.model(arch="qwen2", layers=1, embd=32, heads=2, kv_heads=1, ff=32, vocab=300, mix=["F16"])[0]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "<X>", "\u2581", "H", "e", "l", "o",
              "ll", "llo", "He", "\u2581He", "\u2581\u2581", "\u00e9", "\U0001f980"]
    kinds = [2, 3, 3] + [6] * 256 + [4] + [1] * (len(tokens) - 260)
    sentence_piece = [
        ("tokenizer.ggml.model", "llama"),
        ("tokenizer.ggml.tokens", Typed("array", ("str", tokens))),
        ("tokenizer.ggml.token_type", Typed("array", ("i32", kinds))),
        ("tokenizer.ggml.scores", Typed("array", ("f32", [-float(len(t)) for t in tokens]))),
        ("tokenizer.ggml.add_eos_token", True),
    ]
    text = "Hello  <s>Hello</s><X> \u00e9\U0001f980 12\r\n<|im_end|>".encode()
    for name, kvs in ("bpe", byte_level), ("spm", sentence_piece):
        path = directory / name
        make_gguf.write(path, kvs, [])
        for flags in (0, 0xFF, 0x08):
            (directory / f"{name}{flags}").write_bytes(bytes([flags, len(text)]) + text + path.read_bytes())
        path.unlink()


def template_seeds(directory):
    """Templates with their variables (see fuzz_template.c)."""
    import make_corpus
    make_corpus.write(directory, os.environ.get("HOKKU_CONFORMANCE"))


def session_seeds(directory):
    """The MSGS section of a session (docs/session-format.md): a system prompt, a turn, an answer in two runs."""
    import struct
    run = lambda first: (struct.pack("<QIIIQQIQQ", first, 0, 0, 1, 0, 0, 2, 7, 42) +
                         struct.pack("<fi7fi4fii", .8, 40, .95, .05, 1, -1, 0, .1, 1, 64, 0, 0, 0, 1.75, 2, -1) +
                         struct.pack("<Iif", 1, 5, -1.5) + bytes([1, 2, 4, 9]) + bytes(12))
    text = lambda role, flags, t: struct.pack("<IIQ", role, flags, len(t)) + t
    answer = text(2, 1, b"<think>x</think>yes") + struct.pack("<QQQQQ5iQ", 0, 7, 8, 16, 5, 1, 2, 3, 4, 999, 2) + run(0) + run(3)
    (directory / "turn").write_bytes(struct.pack("<Q", 3) + text(0, 0, b"Be kind.") + text(1, 0, b"hi") + answer)
    (directory / "empty").write_bytes(struct.pack("<Q", 0))


def terminal_seeds(directory):
    """A byte of width, a byte of choices, then what a model wrote (see fuzz_terminal.c)."""
    texts = [b"# Title\n**bold** `code` and a sentence that is longer than the line\n```c\nint x;\n```\n",
             b"<think>hm</think>\n\x1b]52;c;aGk=\x07\x1b[2J\xc2\x9b\xe2\x80\xae", "古池や蛙 🦀\t\r\n".encode() * 4]
    for i, text in enumerate(texts):
        for width, choices in ((80, 0x30), (10, 0x71), (0, 0)):
            (directory / f"{i}.{width}").write_bytes(bytes([width, choices]) + text)


def hub_seeds(directory):
    """A line (name, Link header or checksum), then a list of files (see fuzz_hub.c)."""
    import json
    names = ["m-q4_k_m.gguf", "Q8_0/m-00001-of-00002.gguf", "Q8_0/m-00002-of-00002.gguf", "mmproj-f16.gguf", "a b-UD-Q2_K_XL.gguf"]
    rows = [{"type": "file", "path": n, "size": 9, "oid": "0", "lfs": {"oid": "ab" * 32, "size": 9}} for n in names]
    rows += [{"type": "directory", "path": "Q8_0"}, {"type": "file", "path": "README.md", "size": 1}]
    for i, line in enumerate(["u/r:q8_0", "u/r", '<https://h/?c=1>; rel="next"', '"' + "ab" * 32 + '"']):
        (directory / f"list{i}").write_text(line + "\n" + json.dumps(rows[i:]))
    (directory / "escape").write_text("u/r:x\n" + json.dumps([{"type": "file", "path": "../x.gguf", "size": 1}]))


def config_seeds(directory):
    (directory / "all").write_text("# settings\ntemp 0.7\n--top-k = 20\nno-cnv\nlogit-bias 5-inf\nreverse-prompt a b\r\n"
                                   "samplers top_k;temp\nctx_size\t100\nthink=hide\ncache-type-k q8_0\n")
    (directory / "wrong").write_text("tmp 1\ntemp x\nseed -1\n")


# target: (what fills its corpus, runs, more options)
TARGETS = {
    "hub": (hub_seeds, 200000, ["-max_len=4000"]),
    "config": (config_seeds, 20000, ["-max_len=2000"]),
    "template": (template_seeds, 60000, ["-max_len=8000"]),
    "session": (session_seeds, 200000, ["-max_len=4000"]),
    "terminal": (terminal_seeds, 200000, ["-max_len=2000"]),
    "gguf": (gguf_seeds, 60000, ["-max_len=20000"]),
    "tokenizer": (tokenizer_seeds, 60000, ["-max_len=20000"]),
}


@pytest.mark.parametrize("target", TARGETS)
def test_target_survives_its_runs(target, tmp_path):
    program = BUILD / "tests/fuzz" / f"fuzz_{target}"
    if not program.exists():
        pytest.skip(f"{program.name} is not built (meson setup -Dfuzz=enabled)")
    fill, runs, options = TARGETS[target]
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    if fill:
        fill(corpus)
    done = subprocess.run([program, f"-runs={runs}", "-seed=1", "-timeout=60", "-rss_limit_mb=2048",
                           f"-artifact_prefix={tmp_path}/", *options, corpus], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
