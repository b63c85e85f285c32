"""The whole forward pass against a straightforward NumPy transformer in double precision, over odd shapes: what the models
of tests/vectors do not have (MQA, biases on llama, head_dim 80, linear and YaRN scaling, sliding windows ...)."""
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HOKKU_BUILD", ROOT / "build"))
sys.path.insert(0, str(ROOT / "tests/vectors"))
from numpy_model import Model  # noqa: E402

TEXT = "The quick brown fox jumps over the lazy dog 1234567890 times; then 東京 and München. " * 2

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
    "llama-codes": "--arch llama --layers 2 --embd 192 --heads 6 --kv-heads 2 --ff 320 --types MXFP4,NVFP4,Q8_0 --vocab 700",
    "qwen2-grids": "--arch qwen2 --layers 2 --embd 256 --heads 4 --kv-heads 2 --ff 768 "
                   "--types IQ3_S,IQ1_S,IQ2_XXS,IQ3_XXS,IQ1_M,IQ2_XS,IQ2_S --vocab 700",
    "qwen3-ternary": "--arch qwen3 --layers 2 --embd 256 --heads 4 --kv-heads 2 --head-dim 96 --ff 768 "
                     "--types TQ2_0,TQ1_0,Q1_0 --vocab 700 --no-tied",
}


@pytest.mark.parametrize("kv", ["f16", "q8_0"])
@pytest.mark.parametrize("name", SHAPES)
def test_log_probabilities_agree_with_numpy(name, kv, tmp_path):
    path = tmp_path / "m.gguf"
    subprocess.run([sys.executable, ROOT / "tests/make_gguf.py", path, "--std", "0.08", *SHAPES[name].split()], check=True, capture_output=True)
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
    assert len(got["tokens"]) > 60 and np.std(want) > 0.5
    assert np.mean(diff) <= mean and np.max(diff) <= worst, (np.mean(diff), np.max(diff))
