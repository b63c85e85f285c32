"""Families beside the vectors (tests/vectors/families.py, compared by test_models.c): files that are damaged or hostile are
refused by the name of what is wrong, and inspect says what the layers are."""
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HOKKU_BUILD", ROOT / "build"))
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/vectors")]
import make_gguf  # noqa: E402
from families import FAMILIES, model  # noqa: E402

W, P = "attention.sliding_window", "attention.sliding_window_pattern"
MISSING = object()
# family, what is set (keys without the architecture's name; tensors as shapes), what the refusal says
HOSTILE = [
    ("gemma2", {W: 0}, "gemma2.attention.sliding_window is 0, expected 1 to"),
    ("gemma2", {"attn_logit_softcapping": -1.0}, "attn_logit_softcapping is -1, expected 0 to"),
    ("gemma2", {"final_logit_softcapping": float("inf")}, "final_logit_softcapping is inf"),
    ("gemma2", {"blk.1.post_ffw_norm.weight": MISSING}, "tensor blk.1.post_ffw_norm.weight (48) is missing"),
    ("gemma2", {"blk.1.attn_q_norm.weight": [20]}, "blk.1.attn_q_norm.weight is not one that architecture gemma2 has"),
    ("gemma2", {"residual_scale": 0.5}, "gemma2.residual_scale is not one that hokku knows of architecture gemma2"),
    ("gemma3", {P: 0}, "sliding_window_pattern is 0, expected 1 to"),
    ("gemma3", {P: [True, False]}, "an array of 2 values of type bool, expected a number or a bool for each of 8 layers"),
    ("gemma3", {P: [1] * 8}, "of type uint32, expected a number or a bool for each of 8 layers"),
    ("gemma3", {"rope.freq_base_swa": -1.0}, "rope.freq_base_swa is -1"),
    ("gemma3", {"attention.head_count": 0}, "attention.head_count is 0, expected 1 to"),
    ("gemma3", {"attention.head_count_kv": 3}, "4 attention heads cannot share 3 KV heads evenly"),
    ("gemma3", {"attention.head_count": 2**31}, "expected 1 to 4,096"),
    ("gemma3", {"expert_count": 4}, "4 experts per layer (gemma3.expert_count)"),
    ("phi3-short", {"blk.0.attn_qkv.weight": [48, 95]}, "blk.0.attn_qkv.weight has shape 48 x 95, expected 48 x 96"),
    ("phi3-short", {"blk.2.ffn_up.weight": [48, 80]}, "blk.2.ffn_up.weight has shape 48 x 80, expected 48 x 160"),
    ("phi3-short", {"attention.head_count_kv": 2}, "blk.0.attn_qkv.weight has shape 48 x 96, expected 48 x 80"),
    ("phi3-short", {"blk.0.attn_q.weight": [48, 48]}, "tensor blk.0.attn_k.weight (48 x 24) is missing"),
    ("phi3-short", {"blk.1.ffn_gate.weight": [48, 80]}, "blk.1.ffn_up.weight has shape 48 x 160, expected 48 x 80"),
    ("phi3-short", {"rope_factors_long.weight": MISSING}, "only one of the tensors rope_factors_short and rope_factors_long"),
    ("phi3-short", {"rope_factors_long.weight": [2]}, "rope_factors_long.weight has shape 2, expected 3"),
    ("phi3-short", {"rope.scaling.original_context_length": 0}, "original_context_length is 0, expected 1"),
    ("granite", {"logit_scale": 0.0}, "granite.logit_scale is 0, expected above 0"),
    ("granite", {"logit_scale": MISSING}, "granite.logit_scale is missing"),
    ("granite", {"embedding_scale": float("nan")}, "embedding_scale"),
    ("granite", {"attention.scale": -0.1}, "attention.scale is -0.1, expected above 0"),
    ("mistral3", {"rope.freq_base": 1.0}, "freq_base is 1, expected above 1 with YaRN"),
    ("mistral3", {"rope.scaling.yarn_log_multiplier": -1.0}, "yarn_log_multiplier is -1, expected 0 to"),
    ("mistral3", {"rope.scaling.yarn_ext_factor": 0.5}, "yarn_ext_factor is 0.5"),
    ("mistral3", {"attention.temperature_scale": "much"}, "attention.temperature_scale"),
    ("olmo2", {"blk.0.attn_q_norm.weight": [8]}, "blk.0.attn_q_norm.weight has shape 8, expected 48"),
    ("olmo2", {"blk.0.attn_norm.weight": [48]}, "blk.0.attn_norm.weight is not one that architecture olmo2 has"),
    ("stablelm", {"blk.0.attn_q_norm.weight": MISSING}, "layer 0 has only one of attn_q_norm and attn_k_norm"),
    ("stablelm", {"blk.0.attn_q_norm.weight": [48]}, "blk.0.attn_q_norm.weight has shape 48, expected 8 x 6"),
    ("stablelm", {"attention.layer_norm_epsilon": MISSING}, "stablelm.attention.layer_norm_epsilon is missing"),
    ("nemotron", {"output_norm.bias": MISSING}, "output_norm.bias (48) is missing"),
    ("nemotron", {"blk.0.ffn_gate.weight": [48, 80]}, "blk.0.ffn_gate.weight is not one that"),
    ("apertus", {"xielu.eps": MISSING}, "metadata key xielu.eps is missing"),
    ("apertus", {"xielu.beta": [0.5, 0.5]}, "xielu.beta has 2 values, expected one for each of 3 layers"),
    ("apertus", {"xielu.alpha_p": [0.5, float("nan"), 0.5]}, "xielu.alpha_p is nan at layer 1"),
    ("apertus", {"xielu.alpha_p": 0.5}, "xielu.alpha_p is no array of floats"),
    ("deci", {"attention.head_count": [6, 6, 0, 4]}, "has 4 values, expected one for each of 5 layers"),
    ("deci", {"attention.head_count_kv": [3, 0, 0, 3, 1]}, "4 attention heads cannot share 3 KV heads"),
    ("deci", {"attention.head_count_kv": [3, 1, 0, 4, 1]}, "tensor blk.1.attn_q.weight (48 x 120) is missing"),
    ("deci", {"attention.head_count": [0] * 5, "attention.key_length": MISSING}, "is not a multiple of the 0 heads"),
    ("deci", {"feed_forward_length": [80, 40, 64, 7, 96]}, "tensor blk.3.ffn_norm.weight (48) is missing"),
    ("internlm2", {"attention.head_count_kv": [3, 3, 0]}, "head_count_kv is 0 at layer 2, expected 1 to 4096"),
    ("internlm2", {"attention.clamp_kqv": 3.0}, "internlm2.attention.clamp_kqv is not one that hokku knows"),
]


def write(path, family, edits):
    kvs, tensors = model(**FAMILIES[family][1])
    arch = kvs[0][1]
    values = dict(kvs)
    for name, value in edits.items():
        is_tensor = name.endswith((".weight", ".bias"))
        key = name if is_tensor or name.startswith("xielu") else f"{arch}.{name}"
        if is_tensor:
            tensors = [t for t in tensors if t.name != name]
            if value is not MISSING:
                tensors.append(make_gguf.Tensor(name, value, "F32"))
        elif value is MISSING:
            values.pop(key)
        else:
            values[key] = value
    make_gguf.write(path, list(values.items()), tensors)


@pytest.mark.parametrize("family, edits, message", HOSTILE, ids=[f"{f}: {m}" for f, _, m in HOSTILE])
def test_a_wrong_file_is_refused_by_what_is_wrong(family, edits, message, tmp_path):
    write(tmp_path / "m.gguf", family, edits)
    r = subprocess.run([BUILD / "src/hokku", "-m", tmp_path / "m.gguf", "--device", "cpu", "-n", "1", "x"], capture_output=True,
                       text=True, timeout=60)
    assert (r.returncode, r.stdout) == (3, "") and message in r.stderr, r.stderr


@pytest.mark.parametrize("family, tensor, where", [
    ("gemma2", "blk.3.post_ffw_norm.weight", "blk.3.ffn_down"), ("gemma2", "blk.2.post_attention_norm.weight", "blk.2.attn_output"),
    ("gemma2", "token_embd.weight", "token_embd"), ("deci", "blk.1.ffn_norm.weight", "blk.1.ffn_down"),
    ("deci", "blk.3.attn_norm.weight", "blk.3.attn_output"), ("olmo2", "output_norm.weight", "output")])
def test_a_number_that_is_not_finite_is_told_by_layer(family, tensor, where, tmp_path):
    kvs, tensors = model(**FAMILIES[family][1])
    for t in tensors:
        if t.name == tensor:
            data = np.frombuffer(t.data, dtype={"F16": np.float16, "F32": np.float32}[t.type]).copy()
            data[5::7] = np.nan
            t.data = data.tobytes()
    make_gguf.write(tmp_path / "m.gguf", kvs, tensors)
    r = subprocess.run([BUILD / "src/hokku", "-m", tmp_path / "m.gguf", "--device", "cpu", "-n", "1", "a b c"], capture_output=True,
                       text=True, timeout=60)
    assert r.returncode == 1 and f"comes out of {where}: " in r.stderr, r.stderr


@pytest.mark.parametrize("key, value", [("vocab_size", 640), ("rope.scaling.finetuned", True), ("some.new.thing", 0),
                                        ("some.new.thing", False)])
def test_a_key_that_changes_nothing_refuses_nothing(key, value, tmp_path):
    write(tmp_path / "m.gguf", "gemma2", {key: value})
    r = subprocess.run([BUILD / "src/hokku", "inspect", tmp_path / "m.gguf", "--json"], capture_output=True, text=True)
    assert json.loads(r.stdout)["hokku"]["supported"], r.stdout


@pytest.mark.parametrize("family, lines, layers", [
    ("gemma3", ["layers 0-4, 6-7: 4 heads of 28 sharing 1 KV head, sliding window 21, RoPE theta 20000 over 28 of a head, norms of "
                "each head; feed-forward 80, gated GELU; norms before and after",
                "layer 5: 4 heads of 28 sharing 1 KV head, RoPE theta 300000 over 28 of a head, linear scaling by 3, norms of each "
                "head; feed-forward 80, gated GELU; norms before and after"], [[0, 1, 2, 3, 4, 6, 7], [5]]),
    ("deci", ["layer 1: a matrix in place of attention; feed-forward 40, gated SiLU",
              "layer 2: no attention; feed-forward 64, gated SiLU", "frequency factors; no feed-forward"], [[0], [1], [2], [3], [4]]),
    ("cohere2", ["layer 3: 6 heads of 8 sharing 3 KV heads, not rotated; beside it feed-forward 80, gated SiLU"],
     [[0, 1, 2, 4, 5], [3]]),
])
def test_inspect_says_what_kind_each_layer_is(family, lines, layers, tmp_path):
    write(tmp_path / "m.gguf", family, {})
    text = subprocess.run([BUILD / "src/hokku", "inspect", tmp_path / "m.gguf"], capture_output=True, text=True).stdout
    for line in lines:
        assert line in text, text
    kinds = json.loads(subprocess.run([BUILD / "src/hokku", "inspect", tmp_path / "m.gguf", "--json"], capture_output=True,
                                      text=True).stdout)["hokku"]["layer_kinds"]
    assert [k["layers"] for k in kinds] == layers
