"""Every fuzz target survives a fixed number of runs from a fixed seed. Needs a build with -Dfuzz=enabled."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HOKKU_BUILD", ROOT / "build-asan"))
sys.path.insert(0, str(ROOT / "tests"))


def gguf_seeds(directory):
    import make_gguf
    for arch in ("llama", "qwen2", "qwen3"):
        kvs, tensors = make_gguf.model(
            arch=arch, layers=1, embd=32, heads=2, kv_heads=1, ff=32, vocab=260, mix=["Q4_0", "F16", "Q8_0"],
            rope_freqs=True, rope_scaling={"type": "yarn", "factor": 4, "orig_ctx": 32})
        make_gguf.write(directory / f"{arch}.gguf", kvs, tensors)


def tokenizer_seeds(directory):
    """Two bytes of options and length, a text, then a GGUF with a vocabulary (see fuzz_tokenizer.c)."""
    import make_gguf
    text = "Hello <s>world</s> \u00e9\U0001f980  12\r\n<|im_end|>".encode()
    for arch in ("llama", "qwen2"):
        kvs, _ = make_gguf.model(arch=arch, layers=1, embd=32, heads=2, kv_heads=1, ff=32, vocab=300, mix=["F16"])
        path = directory / f"{arch}.tok"
        make_gguf.write(path, kvs, [])
        gguf = path.read_bytes()
        for flags in (0, 0xFF):
            (directory / f"{arch}{flags}.tok").write_bytes(bytes([flags, len(text)]) + text + gguf)
        path.unlink()


# target: (what fills its corpus, runs, more options)
TARGETS = {
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
