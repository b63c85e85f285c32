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
    ("qwen3moe", {"expert_count": 0}, "qwen3moe.expert_count is 0, expected 1 to 4,096"),
    ("qwen3moe", {"expert_count": MISSING}, "qwen3moe.expert_count is missing"),
    ("qwen3moe", {"expert_count": 2**31}, "qwen3moe.expert_count is 2,147,483,648, expected 1 to 4,096"),
    ("qwen3moe", {"expert_count": 8}, "tensor blk.0.ffn_gate_inp.weight has shape 48 x 9, expected 48 x 8"),
    ("mixtral", {"expert_count": 0, "expert_used_count": 0}, "tensor blk.0.ffn_gate.weight (48 x 40) is missing"),
    ("mixtral", {"expert_used_count": 6}, "llama.expert_used_count is 6, expected 1 to 5"),
    ("mixtral", {"expert_used_count": 0}, "llama.expert_used_count is 0, expected 1 to 5"),
    ("mixtral", {"expert_used_count": MISSING}, "llama.expert_used_count is missing"),
    ("mixtral", {"blk.1.ffn_gate_inp.weight": MISSING}, "tensor blk.1.ffn_gate_inp.weight (48 x 5) is missing"),
    ("mixtral", {"blk.1.ffn_up_exps.weight": MISSING}, "tensor blk.1.ffn_up_exps.weight (48 x 40 x 5) is missing"),
    ("mixtral", {"blk.1.ffn_up_exps.weight": [48, 40, 4]}, "blk.1.ffn_up_exps.weight has shape 48 x 40 x 4, expected 48 x 40 x 5"),
    ("mixtral", {"blk.2.ffn_down_exps.weight": [40, 240]}, "blk.2.ffn_down_exps.weight has shape 40 x 240, expected 40 x 48 x 5"),
    ("mixtral", {"blk.0.exp_probs_b.bias": [5]}, "blk.0.exp_probs_b.bias is not one that architecture llama has"),
    ("mixtral", {"blk.0.ffn_up_shexp.weight": [48, 40]}, "blk.0.ffn_up_shexp.weight is not one that architecture llama has"),
    ("mixtral", {"expert_gating_func": 3}, "llama.expert_gating_func is 3, expected 0 to 2"),
    ("mixtral", {"expert_weights_scale": float("nan")}, "llama.expert_weights_scale is nan, expected a finite"),
    ("mixtral", {"expert_feed_forward_length": 0}, "llama.expert_feed_forward_length is 0, expected 1 to"),
    ("mixtral", {"leading_dense_block_count": 4}, "llama.leading_dense_block_count is 4, expected 0 to 3"),
    ("mixtral", {"leading_dense_block_count": 1}, "tensor blk.0.ffn_gate.weight (48 x 40) is missing"),
    ("ernie4_5-moe", {"interleave_moe_layer_step": 0}, "interleave_moe_layer_step is 0, expected 1 to"),
    ("ernie4_5-moe", {"expert_shared_feed_forward_length": 41}, "ffn_gate_shexp.weight has shape 48 x 40, expected 48 x 41"),
    ("dots1", {"expert_shared_feed_forward_length": 1 << 24, "expert_shared_count": 4096},
     "shared experts 68719476736 wide, expected at most 16777216"),
    ("bailingmoe2", {"expert_group_count": 5}, "bailingmoe2.expert_count 12 is not a multiple of the 5 groups"),
    ("bailingmoe2", {"expert_group_count": 13}, "bailingmoe2.expert_group_count is 13, expected 0 to 12"),
    ("bailingmoe2", {"expert_group_used_count": 5}, "bailingmoe2.expert_group_used_count is 5, expected 1 to 4"),
    ("bailingmoe2", {"expert_group_used_count": MISSING}, "bailingmoe2.expert_group_used_count is missing"),
    ("bailingmoe2", {"expert_group_used_count": 2, "expert_used_count": 7}, "expert_used_count is 7, expected 1 to 6: the experts of 2 groups of 4"),
    ("glm4moe", {"nextn_predict_layers": 4}, "glm4moe.nextn_predict_layers is 4, expected 0 to 3"),
    ("glm4moe", {"nextn_predict_layers": 0, "blk.3.nextn.enorm.weight": [48]}, "blk.3.nextn.enorm.weight is not one that"),
    ("gpt-oss", {"blk.0.attn_sinks.weight": MISSING}, "tensor blk.0.attn_sinks.weight (6) is missing"),
    ("gpt-oss", {"blk.0.attn_sinks.weight": [3]}, "blk.0.attn_sinks.weight has shape 3, expected 6"),
    ("gpt-oss", {"blk.2.ffn_up_exps.bias": [40, 5]}, "blk.2.ffn_up_exps.bias has shape 40 x 5, expected 40 x 6"),
    ("gpt-oss", {"blk.2.ffn_gate_inp.bias": MISSING}, "tensor blk.2.ffn_gate_inp.bias (6) is missing"),
    ("phimoe", {"output.bias": MISSING}, "tensor output.bias (640) is missing"),
    ("llama4", {W: 0}, "llama4.attention.sliding_window is 0, expected 1 to"),
    ("llama4", {"attention.temperature_length": 0}, "llama4.attention.temperature_length is 0, expected 1 to"),
    ("llama4", {"blk.0.attn_q_norm.weight": [12]}, "blk.0.attn_q_norm.weight is not one that architecture llama4 has"),
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
    ("deci", {"attention.head_count": [0] * 5}, "no layer has attention heads and KV heads, expected one at least"),
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
    ("deci", "blk.3.attn_norm.weight", "blk.3.attn_output"),
    ("qwen3moe", "blk.1.ffn_gate_inp.weight", "blk.1.ffn_down_exps"), ("qwen3moe", "blk.2.ffn_up_exps.weight", "blk.2.ffn_down_exps"),
    ("gpt-oss", "blk.1.ffn_up_exps.bias", "blk.1.ffn_down_exps"), ("gpt-oss", "blk.1.attn_sinks.weight", "blk.1.attn_output"),
    ("bailingmoe2", "blk.1.exp_probs_b.bias", "blk.1.ffn_down_exps"),
    ("olmo2", "output_norm.weight", "output")])
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


def test_layers_of_other_widths_leave_nothing_behind(tmp_path):
    """What a wide layer computed must not reach the scales of a narrow one's input: chunks would show it."""
    kvs, tensors = model("deci", {"attention.layer_norm_rms_epsilon": 0.03}, layers=6, embd=64, heads=[10, 2, 0, 10, 2, 10],
                         kv=[2, 1, 0, 2, 2, 2], head_dim=32, ff=[320, 32, 544, 64, 288, 96])
    for t in tensors:
        if t.type == "F16":
            t.type, t.data = "Q8_0", None
    make_gguf.write(tmp_path / "m.gguf", kvs, tensors, std=0.15)
    (tmp_path / "t").write_text("The quick brown fox jumps over the lazy dog. " * 3)
    answers = {b: subprocess.run([BUILD / "src/hokku", "score", "-m", tmp_path / "m.gguf", "--device", "cpu", "-b", b, tmp_path / "t"],
                                 capture_output=True, check=True).stdout for b in ("1", "7", "64")}
    assert answers["1"] == answers["7"] == answers["64"]


@pytest.mark.parametrize("shape, kind", [("qwen3-30b-a3b-q4_k_m", "8 of 128 experts of 256"), ("mixtral-8x7b-q8_0", "2 of 8 experts of 256"),
                                         ("gpt-oss-20b-mxfp4_moe", "4 of 32 experts of 256"), ("gpt-oss-120b-mxfp4_moe", "4 of 128 experts")])
def test_random_models_with_experts_are_what_their_names_say(shape, kind, tmp_path):
    """Narrow ones here, of the shape otherwise."""
    small = [f"--{k}={v}" for k, v in dict(layers=2, embd=256, ff=256, vocab=1056, heads=4).items()]
    more = ["--expert-ff=256"] if "mixtral" not in shape else []
    subprocess.run([sys.executable, ROOT / "tests/make_gguf.py", tmp_path / "m.gguf", "--shape", shape, "--kv-heads=2", *small, *more],
                   check=True, capture_output=True)
    text = subprocess.run([BUILD / "src/hokku", "inspect", tmp_path / "m.gguf"], capture_output=True, text=True).stdout
    assert kind in text, text
    r = subprocess.run([BUILD / "src/hokku", "-m", tmp_path / "m.gguf", "--device", "cpu", "-n", "3", "-c", "256", "x"], capture_output=True)
    assert r.returncode == 0, r.stderr  # what it says need not be UTF-8


def test_a_token_reads_the_experts_that_it_uses(tmp_path):
    write(tmp_path / "m.gguf", "qwen3moe", {})
    said = json.loads(subprocess.run([BUILD / "src/hokku", "inspect", tmp_path / "m.gguf", "--json"], capture_output=True,
                                     text=True).stdout)["hokku"]
    assert said["weight_bytes"] - said["bytes_per_token"] == 3 * 3 * (9 - 3) * 48 * 40 * 2 - 48 * 2  # and a row of the embedding
    plan = subprocess.run([BUILD / "src/hokku", "-m", tmp_path / "m.gguf", "--device", "cpu", "--dry-run"], capture_output=True, text=True)
    assert f"of the weights a token reads {said['bytes_per_token']:,} bytes" in plan.stdout, plan
    x = said["layer_kinds"][0]["experts"]
    assert (x["count"], x["used"], x["feed_forward"], x["shared_feed_forward"], x["gate"]) == (9, 3, 40, 0, "softmax")


@pytest.mark.parametrize("family", ["qwen3moe", "llama4", "gpt-oss"])
def test_a_token_does_not_depend_on_those_beside_it_nor_on_threads(family, tmp_path):
    """Quantised experts, whose rows are grouped otherwise in every chunk: the same bits."""
    kvs, tensors = model(**FAMILIES[family][1] | {"embd": 96, "heads": 6, "kv": 3})
    for t in tensors:
        if t.type == "F16":
            t.type, t.data = "Q8_0", None
            t.type = "Q8_0" if t.ne[0] % 32 == 0 else "F16"
    make_gguf.write(tmp_path / "m.gguf", kvs, tensors, std=0.2)
    (tmp_path / "t").write_text("The quick brown fox jumps over the lazy dog. " * 2)
    answers = {(b, t): subprocess.run([BUILD / "src/hokku", "score", "-m", tmp_path / "m.gguf", "--device", "cpu", "-b", b, "-t", t,
                                       tmp_path / "t"], capture_output=True, check=True).stdout
               for b, t in (("1", "1"), ("2", "3"), ("7", "2"), ("64", "1"))}
    assert len(set(answers.values())) == 1


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
    ("gpt-oss", ["layers 0, 2: 6 heads of 8 sharing 3 KV heads, sliding window 17, RoPE theta 10000 over 8 of a head, yarn scaling by 4, "
                 "sinks; 2 of 6 experts of 40, gated clamped SwiGLU, by softmax"], [[0, 2], [1, 3]]),
    ("bailingmoe2", ["layer 0: 6 heads of 8 sharing 3 KV heads, RoPE theta 10000 over 4 of a head, norms of each head; feed-forward 80, gated SiLU",
                     "; 3 of 12 experts of 24, gated SiLU, by sigmoid from 2 of 4 groups, and a shared one of 40"], [[0], [1, 2]]),
    ("llama4", ["layers 0, 2, 4: 6 heads of 12 sharing 3 KV heads, chunks of 13, RoPE theta 10000 over 12 of a head, bare norms of each "
                "head; feed-forward 80"], [[0, 2, 4], [1], [3]]),
    ("glm4moe", ["layers 1-2: "], [[0], [1, 2]]),
])
def test_inspect_says_what_kind_each_layer_is(family, lines, layers, tmp_path):
    write(tmp_path / "m.gguf", family, {})
    text = subprocess.run([BUILD / "src/hokku", "inspect", tmp_path / "m.gguf"], capture_output=True, text=True).stdout
    for line in lines:
        assert line in text, text
    kinds = json.loads(subprocess.run([BUILD / "src/hokku", "inspect", tmp_path / "m.gguf", "--json"], capture_output=True,
                                      text=True).stdout)["hokku"]["layer_kinds"]
    assert [k["layers"] for k in kinds] == layers
