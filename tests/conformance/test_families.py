"""Families beside the vectors (tests/vectors/families.py, compared by test_models.c): what their files may say, and inspect says
what the layers are. What is refused: test_wrong_files.py."""
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from family_files import BUILD, FAMILIES, LONGER, MISSING, P, R, ROOT, S, SSM, W, make_gguf, model, write

import session_format
from families import join, join_by_keys

# family, what is set otherwise: the same model
SAME = [
    *((family, {"feed_forward_length": ff}) for family in ("qwen35moe", "qwen3next", "qwen3moe", "gpt-oss", "minimax-m2") for ff in (MISSING, 0)),
    ("gemma3", {"attn_logit_softcapping": 0.0}),
    ("dots1", {"feed_forward_length": [80, 0, 0]}),
    ("deepseek2", {"feed_forward_length": [80, 0, 0]}),
    ("deepseek2", {"attention.temperature_length": 25}),
    *(("deepseek2", {"expert_gating_func": gate}) for gate in (MISSING, 0)),  # files of GLM-4.7-Flash
    ("ernie4_5-moe", {"feed_forward_length": [80, 0, 80, 0, 80]}),
    ("llama4", {"feed_forward_length": [80, 0, 80, 0, 80]}),
    ("lfm2moe", {"feed_forward_length": [80, 0, 0, 0]}),
    ("mixtral", {"feed_forward_length": MISSING, "expert_feed_forward_length": 40}),
    ("qwen2moe", {"expert_feed_forward_length": [24] * 3, "expert_shared_feed_forward_length": [56] * 3}),
    ("gemma4-moe", {"expert_feed_forward_length": [24] * 4}),
    ("gemma3n", {"attention.shared_kv_layers": 5, "final_logit_softcapping": 30.0, "rope.freq_base_swa": 10000.0,
                 P: [True, True, True, True, False] * 2, "altup.correct_scale": True}),
    ("gemma3n", {f"blk.7.attn_{name}": [48, 24] for name in ("k.weight", "v.weight")} | {"blk.7.attn_k_norm.weight": [12]}),
    ("dots1", {"expert_feed_forward_length": [0, 24, 24]}),
    ("ernie4_5-moe", {"expert_feed_forward_length": [0, 24, 7, 24, 0], "expert_shared_feed_forward_length": [0, 40, 0, 40, 9]}),
    ("nemotron_h_moe", {"expert_feed_forward_length": [0, 24, 0, 24], "expert_shared_feed_forward_length": [0, 40, 0, 40]}),
    ("lfm2", {"attention.head_count": [0, 6, 0, 6]}),
    ("lfm2moe", {"attention.head_count": [0, 6, 0, 0]}),
    ("granitehybrid", {"attention.head_count": [0, 6, 0, 6]}),
    ("glm4", {"rope.dimension_sections": [0, 0, 0, 0]}),
    ("qwen35", {R: [True, True, False, True, True]}),
    ("hunyuan-dense", {"rope.scaling.alpha": 0.0}),
    ("olmo", {"attention.clamp_kqv": 0.0}),
    ("hy_v3", {"leading_dense_block_count": 1}),
    *(("exaone-moe", {P: [True, True, True, False, True, last]}) for last in (False, True)),
    *((family, {R: [True, True, False, True]}) for family in ("qwen35moe", "qwen3next")),
    ("qwen3moe", {"blk.0.attn_q.input_scale": [1], "blk.1.ffn_up_exps.input_scale": [9], "blk.2.ffn_down_exps.input_scale": [1]}),
    ("mistral3", {"output.input_scale": [1], "blk.1.ffn_gate.input_scale": [1]}),
    ("deepseek2-lite", {"blk.1.attn_kv_b.input_scale": [1]}), ("phi3-short", {"blk.1.attn_qkv.input_scale": [1]}),
    ("gemma4-moe", {"blk.1.ffn_gate_up_exps.input_scale": [7], "blk.1.ffn_down_exps.input_scale": [7], "blk.0.ffn_gate_inp.input_scale": [1]}),
    *(("olmo3-pattern", {"rope.scaling.yarn_attn_factor": f}) for f in (LONGER, LONGER * 1.0009, LONGER * 0.9991, 1.0)),
    ("olmo3", {"rope.scaling.yarn_attn_factor": 1.2 * LONGER}),
    # Granite 4.0 without state spaces, or without experts
    ("granite", SSM | {"attention.head_count_kv": [3] * 3}), ("granitemoe", SSM | {"attention.head_count_kv": [3] * 3}),
    ("granite", {"expert_shared_feed_forward_length": 80}),
    ("granite", {"deepstack_mapping": make_gguf.Typed("array", ("i32", [-1, 2, 1]))}),  # Granite Vision
    *((family, {"expert_shared_feed_forward_length": 80, "expert_count": 0, "expert_used_count": 0}) for family in ("granite", "granitehybrid")),
    ("granitehybrid", {"expert_shared_feed_forward_length": 80}),
]


def numbers(tmp_path, family, edits, **options):
    write(tmp_path / "m.gguf", family, edits, **options)
    (tmp_path / "t").write_text("one two three four")
    r = subprocess.run([BUILD / "src/hokku", "score", "-m", tmp_path / "m.gguf", "--device", "cpu", tmp_path / "t"], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    return r.stdout


@pytest.mark.parametrize("family, edits", SAME, ids=[f"{f}: {' '.join(e)}" for f, e in SAME])
def test_what_says_nothing_new_refuses_nothing(family, edits, tmp_path):
    """A key that is needless, or that says of layers what they have not: the same numbers."""
    assert numbers(tmp_path, family, edits) == numbers(tmp_path, family, {})


def names(family, **options):
    return [t.name for t in model(**FAMILIES[family][1] | options)[1]]


@pytest.mark.parametrize("family", [f for f, (_, o) in FAMILIES.items() if not o.get("scaled") and not f.endswith("-deep")
                                    and names(f) != names(f, joined=join)])
def test_matrices_of_one_input_may_be_one_tensor(family, tmp_path):
    """Queries, keys and values, and gates and ups of experts, whatever the family: the same numbers."""
    assert numbers(tmp_path, family, {}, joined=join) == numbers(tmp_path, family, {})


def test_gates_may_be_of_another_type_than_queries(tmp_path):
    """Whose rows they lie between, in memory: of floats then, which are the same numbers."""
    kvs, tensors = model(**FAMILIES["afmoe"][1])
    (tmp_path / "t").write_text("one two three four")

    def scores():
        make_gguf.write(tmp_path / "m.gguf", kvs, tensors)
        r = subprocess.run([BUILD / "src/hokku", "score", "-m", tmp_path / "m.gguf", "--device", "cpu", tmp_path / "t"], capture_output=True,
                           text=True, check=True)
        return [p["top"][0] for p in json.loads(r.stdout)["positions"]]

    alike = scores()
    for t in tensors:
        if t.name in ("blk.1.attn_gate.weight", "blk.3.attn_q.weight"):
            t.type, t.data = "F32", np.frombuffer(t.data, np.float16).astype(np.float32).tobytes()
    for (token, logp), (other, its) in zip(alike, scores()):
        assert token == other and abs(logp - its) < 1e-3


def test_delta_nets_of_early_files_are_put_in_order(tmp_path):
    assert numbers(tmp_path, "qwen3next", {}, joined=join_by_keys) == numbers(tmp_path, "qwen3next", {})


@pytest.mark.parametrize("family, edits, options", [
    ("dots1", {"leading_dense_block_count": 3}, {}), ("deepseek2", {"leading_dense_block_count": 3}, {}),
    ("lfm2moe", {"leading_dense_block_count": 4}, {}), ("ernie4_5-moe", {"interleave_moe_layer_step": 9}, {}),
    ("nemotron_h_moe", {}, {"ff": [0] * 4})])
def test_experts_that_no_layer_has_may_be_described(family, edits, options, tmp_path):
    options["experts"] = FAMILIES[family][1]["experts"] | {"layers": ()}
    widths = {key: MISSING for key, _ in model(**FAMILIES[family][1] | options)[0] if "expert_feed" in key or "expert_shared" in key}
    assert widths
    bare = {key.split(".", 1)[1]: value for key, value in widths.items()}
    assert numbers(tmp_path, family, edits, **options) == numbers(tmp_path, family, edits | bare, **options)


@pytest.mark.parametrize("family", ["deepseek2", "deepseek2-lite"])
def test_a_model_without_experts_may_say_how_wide_they_would_be(family, tmp_path):
    """The model all of whose layers are dense."""
    dense, bare = {"leading_dense_block_count": 3}, {"experts": FAMILIES[family][1]["experts"] | {"layers": ()}}
    none = dense | {"expert_count": MISSING, "expert_used_count": MISSING, "expert_shared_count": 0}
    assert numbers(tmp_path, family, none, **bare) == numbers(tmp_path, family, dense, **bare)


@pytest.mark.parametrize("family, edits", [(f, {}) for f in (
    "gemma2-deep", "exaone4-deep", "cohere2", "gpt-oss", "mixtral", "qwen3moe", "deepseek2", "bailingmoe2", "lfm2", "deci", "mamba2", "qwen35")] + [
    ("gemma4-moe", {P: [True, True, False, True, True], "attention.shared_kv_layers": 1}),
    *(("qwen35", {R: [True, True, False, True, True, last]}) for last in (False, True))])
def test_prediction_layers_are_counted_and_left_out(family, edits, tmp_path):
    """The model that has none, whatever the family: also where a fact hangs on how many layers there are."""
    options, alone = FAMILIES[family][1], {key: value[:-1] for key, value in edits.items() if isinstance(value, list)}
    more = {name: value + value[-1:] for name, value in options.items() if name in ("heads", "kv", "ff", "dims") and isinstance(value, list)}
    predicting = numbers(tmp_path, family, edits, layers=options.get("layers", 3) + 1, predict=1, **more)
    assert predicting == numbers(tmp_path, family, edits | alone)


@pytest.mark.parametrize("windowed, width, nobodys", [
    (False, 20, ["attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"]), (True, 12, ["rope_freqs.weight"])])
def test_heads_of_a_kind_that_no_layer_is_may_be_described(windowed, width, nobodys, tmp_path):
    edits, options = {P: [windowed] * 4}, {"dims": [width] * 4, "kv": 2, "no_v": ()}
    assert numbers(tmp_path, "gemma4-moe", edits, **options) == numbers(tmp_path, "gemma4-moe", edits | dict.fromkeys(nobodys, MISSING), **options)


@pytest.mark.parametrize("family, tensor, where", [
    ("gemma2", "blk.3.post_ffw_norm.weight", "blk.3.ffn_down"), ("gemma2", "blk.2.post_attention_norm.weight", "blk.2.attn_output"),
    ("gemma2", "token_embd.weight", "token_embd"), ("deci", "blk.1.ffn_norm.weight", "blk.1.ffn_down"),
    ("deci", "blk.3.attn_norm.weight", "blk.3.attn_output"),
    ("qwen3moe", "blk.1.ffn_gate_inp.weight", "blk.1.ffn_down_exps"), ("qwen3moe", "blk.2.ffn_up_exps.weight", "blk.2.ffn_down_exps"),
    ("gpt-oss", "blk.1.ffn_up_exps.bias", "blk.1.ffn_down_exps"), ("gpt-oss", "blk.1.attn_sinks.weight", "blk.1.attn_output"),
    ("bailingmoe2", "blk.1.exp_probs_b.bias", "blk.1.ffn_down_exps"),
    ("deepseek2", "blk.1.attn_kv_a_norm.weight", "blk.1.attn_output"), ("deepseek2", "blk.0.attn_q_a_norm.weight", "blk.0.attn_output"),
    ("deepseek2-lite", "blk.2.attn_kv_b.weight", "blk.2.attn_output"),
    ("lfm2", "blk.2.shortconv.conv.weight", "blk.2.shortconv.out_proj"),
    ("qwen35", "blk.1.ssm_conv1d.weight", "blk.1.ssm_out"), ("qwen3next", "blk.0.ssm_norm.weight", "blk.0.ssm_out"),
    ("mamba2", "blk.1.ssm_conv1d.bias", "blk.1.ssm_out"), ("mamba2", "blk.2.ssm_norm.weight", "blk.2.ssm_out"),
    ("falcon-h1", "blk.1.ssm_in.weight", "blk.1.ssm_out"), ("nemotron_h_moe-latent", "blk.1.ffn_latent_up.weight", "blk.1.ffn_down_exps"),
    ("gemma4", "blk.2.post_norm.weight", "blk.2.proj"), ("gemma4", "per_layer_proj_norm.weight", "blk.0.proj"),
    ("gemma3n", "altup_proj.weight", "blk.0.altup_predict_coef"), ("gemma3n", "altup_unembd_proj.weight", "output"),
    ("gemma3n", "blk.2.altup_predict_coef.weight", "blk.2.altup_predict_coef"), ("gemma3n", "blk.1.laurel_l.weight", "blk.1.laurel_r"),
    ("gemma3n", "blk.0.ffn_gate.weight", "blk.0.ffn_down"), ("gemma3n", "blk.3.altup_correct_coef.weight", "blk.3.altup_correct_coef"),
    ("gemma3n", "blk.3.altup_correct_scale.weight", "blk.3.proj"),
    ("gemma4-moe", "blk.2.post_ffw_norm_2.weight", "blk.2.ffn_down_exps"), ("gemma4-moe", "blk.1.ffn_gate_inp.scale", "blk.1.ffn_down_exps"),
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


@pytest.mark.parametrize("shape, small, kinds", [
    ("gemma4-26b-a4b-q4_k_m", ["--layers=6", "--expert-ff=256"], [
        ("layers 0-4: 16 heads of 256 sharing 8 KV heads, sliding window 1,024, RoPE theta 10000 over 256", "8 of 128 experts of 256"),
        ("layer 5: 16 heads of 512 sharing 2 KV heads, RoPE theta 1e+06 over 512", "frequency factors, keys that are values", "8 of 128")]),
    ("gemma4-31b-q8_0", ["--layers=6", "--ff=256"], [
        ("layers 0-4: 32 heads of 256 sharing 16 KV heads, sliding window 1,024, RoPE theta 10000",),
        ("layer 5: 32 heads of 512 sharing 4 KV heads, RoPE theta 1e+06", "frequency factors, keys that are values")]),
    ("gemma4-e4b-f16", ["--layers=12", "--shared-kv=6", "--ff=256"], [
        ("layers 0-4: 8 heads of 256 sharing 2 KV heads, sliding window 512, RoPE theta 10000", "told 256 of the token"),
        ("layer 5: 8 heads of 512 sharing 2 KV heads, RoPE theta 1e+06", "frequency factors, norms of each head", "told 256"),
        ("layers 6-10: 8 heads of 256", "keys and values of an earlier layer", "told 256"),
        ("layer 11: 8 heads of 512", "keys and values of an earlier layer", "told 256")]),
])
def test_random_models_of_gemma4_have_the_layers_of_their_names(shape, small, kinds, tmp_path):
    """Narrow ones with few layers here."""
    subprocess.run([sys.executable, ROOT / "tests/make_gguf.py", tmp_path / "m.gguf", "--shape", shape, "--embd=256", "--vocab=1056", *small],
                   check=True, capture_output=True)
    text = subprocess.run([BUILD / "src/hokku", "inspect", tmp_path / "m.gguf"], capture_output=True, text=True).stdout
    layers = [line for line in text.splitlines() if line.startswith("  layer")]
    assert len(layers) == len(kinds) and all(part in line for line, parts in zip(layers, kinds) for part in parts), text
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


def test_keys_and_values_that_no_layer_uses_change_nothing(tmp_path):
    """Files have those that shared layers were trained with."""
    (tmp_path / "t").write_text("The quick brown fox jumps over the lazy dog. " * 2)
    answers = []
    for edits in {}, {"blk.5.attn_k.weight": [48, 12], "blk.5.attn_v.weight": [48, 12], "blk.5.attn_k_norm.weight": [12]}:
        write(tmp_path / "m.gguf", "gemma4", edits)
        answers.append(subprocess.run([BUILD / "src/hokku", "score", "-m", tmp_path / "m.gguf", "--device", "cpu", tmp_path / "t"],
                                      capture_output=True, check=True).stdout)
    assert answers[0] == answers[1]


def test_layers_that_share_keys_and_values_take_no_memory_for_them(tmp_path):
    write(tmp_path / "m.gguf", "gemma4", {})
    plan = [subprocess.run([BUILD / "src/hokku", "-m", tmp_path / "m.gguf", "--device", "cpu", "--dry-run", "-c", str(c)],
                           capture_output=True, text=True).stdout for c in (256, 512)]
    kv = [int(re.search(r"KV ([0-9,]+)", p)[1].replace(",", "")) for p in plan]
    # Of a head 12 and 20 wide: keys as floats, values in 16 bits, padded to 16 and 32, and a scale for each 32 of both.
    heads = 2 * (12 * 4 + 16 * 2 + 2 * 4) + 4 * (20 * 4 + 32 * 2 + 2 * 4)
    assert kv[1] - kv[0] == 256 * heads, plan


def test_a_model_without_attention_takes_memory_for_states_alone(tmp_path):
    """The same for every context: layers times (3 convolved rows of 140, and 84 channels by 14); 256 of them and one that is not read."""
    write(tmp_path / "m.gguf", "mamba2", {})
    for ctx in "256", "4096":
        plan = subprocess.run([BUILD / "src/hokku", "-m", tmp_path / "m.gguf", "--device", "cpu", "--dry-run", "-c", ctx],
                              capture_output=True, text=True).stdout
        assert int(re.search(r"KV ([0-9,]+)", plan)[1].replace(",", "")) == 257 * 3 * (3 * 140 + 84 * 14) * 4, plan


@pytest.mark.parametrize("family", ["mamba2", "falcon-h1", "nemotron_h"])
def test_lines_beside_each_other_have_states_of_their_own(family, tmp_path):
    write(tmp_path / "m.gguf", family, {})
    lines = "".join(f"line {i} of some\n" + "a beginning that many have " * 3 + "word " * 20 * i + "\n" for i in range(6))
    answers = [subprocess.run([BUILD / "src/hokku", "-m", tmp_path / "m.gguf", "--device", "cpu", "--lines", "-np", np, "-n", "12", "--seed", "4", "-c",
                               "4096", "--json"], input=lines, capture_output=True, text=True, check=True).stdout for np in ("1", "5")]
    ids = [[json.loads(line)["tokens"] for line in a.splitlines()] for a in answers]
    assert ids[0] == ids[1] and len(ids[0]) == 12


@pytest.mark.parametrize("np", ["1", "4"])
def test_lines_go_on_from_the_state_where_they_part(np, tmp_path):
    write(tmp_path / "m.gguf", "mamba2", {})
    lines = "".join("a beginning that many have " * 3 + f"and {i}\n" for i in range(6))
    r = subprocess.run([BUILD / "src/hokku", "-m", tmp_path / "m.gguf", "--device", "cpu", "--lines", "-np", np, "-n", "4", "--json"],
                       input=lines, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in r.stdout.splitlines()]
    assert answers[0]["cached_tokens"] == 0
    assert all(a["prompt_tokens"] - a["cached_tokens"] < 16 for a in answers[1:]), answers


def test_steps_of_a_model_without_attention_are_timed(tmp_path):
    write(tmp_path / "m.gguf", "mamba2", {})
    r = subprocess.run([BUILD / "src/hokku", "bench", "-m", tmp_path / "m.gguf", "--device", "cpu", "-p", "16", "-n", "4", "--kernels"],
                       capture_output=True, text=True)
    assert r.returncode == 0 and "scan" in r.stdout and "ssm_in" in r.stdout, r


def test_inspect_says_what_gemma3n_has_beside_its_stream(tmp_path):
    write(tmp_path / "m.gguf", "gemma3n", {})
    inspect = lambda *more: subprocess.run([BUILD / "src/hokku", "inspect", *more, tmp_path / "m.gguf"], capture_output=True, text=True).stdout
    layers = [line for line in inspect().splitlines() if line.startswith("  layer")]
    assert all("beside it a matrix of rank 64" in line and line.endswith("told 18 of the token; 4 streams") for line in layers), layers
    assert [re.search(r"above (\S+) deviations", line)[1] for line in layers[:4]] == ["1", "0.5", "0", "-1"]
    assert not any("deviations" in line for line in layers[4:])
    kinds = json.loads(inspect("--json"))["hokku"]["layer_kinds"]
    assert [k["sparsity"] for k in kinds[1:5]] == [0.5, 0, -1, None]


@pytest.mark.parametrize("family, latent, rotated", [("deepseek2", 42, 8), ("deepseek2-lite", 30, 6)])
def test_the_cache_holds_the_latent_once(family, latent, rotated, tmp_path):
    write(tmp_path / "m.gguf", family, {})
    plan = [subprocess.run([BUILD / "src/hokku", "-m", tmp_path / "m.gguf", "--device", "cpu", "--dry-run", "-c", str(c)],
                           capture_output=True, text=True).stdout for c in (256, 512)]
    kv = [int(re.search(r"KV ([0-9,]+)", p)[1].replace(",", "")) for p in plan]
    assert kv[1] - kv[0] == 3 * 256 * 4 * (latent + rotated + 2), plan  # floats, with a scale for each 32


@pytest.mark.parametrize("family", ["qwen3moe", "llama4", "gpt-oss", "gemma4", "gemma4-moe", "gemma3n", "deepseek2", "deepseek2-lite", "qwen35", "qwen3next", "lfm2moe", "mamba2", "falcon-h1",
                                    "granitehybrid-moe", "nemotron_h_moe-latent"])
def test_a_token_does_not_depend_on_those_beside_it_nor_on_threads(family, tmp_path):
    """Quantised experts, whose rows are grouped otherwise in every chunk: the same bits."""
    wide = {"embd": 96, "heads": 6, "kv": 3}
    if family == "lfm2moe":
        wide["kv"] = [0, 3, 0, 3]
    if "ssm" in FAMILIES[family][1]:
        wide = {"embd": 96}
        if family == "falcon-h1":
            wide["vectors"] = [(f"blk.{l}.ffn_norm", 96, 0.5, 1.5) for l in range(3)]
    if family.startswith("deepseek2"):  # (q, kv, key, rotated, value)
        lite, meta = family.endswith("lite"), FAMILIES[family][1]["meta"]
        wide |= {"kv": 6 if lite else 1, "latent": (0 if lite else 32, 64, 32, 8, 32), "meta": meta | {
            "attention.kv_lora_rank": 64, "rope.dimension_count": 8, "attention.key_length": 40 if lite else 72,
            "attention.value_length": 32 if lite else 64}}
        if not lite:
            wide["meta"] |= {"attention.q_lora_rank": 32, "attention.key_length_mla": 40, "attention.value_length_mla": 32}
    kvs, tensors = model(**FAMILIES[family][1] | wide)
    for t in tensors:
        if t.type == "F16":
            t.type, t.data = "Q8_0", None
            t.type = "Q8_0" if t.ne[0] % 32 == 0 else "F16"
    make_gguf.write(tmp_path / "m.gguf", kvs, tensors, std=0.2)
    (tmp_path / "t").write_text("The quick brown fox jumps over the lazy dog. " * (15 if "latent" in wide else 2))
    answers = {(b, t): subprocess.run([BUILD / "src/hokku", "score", "-m", tmp_path / "m.gguf", "--device", "cpu", "-b", b, "-t", t,
                                       tmp_path / "t"], capture_output=True, check=True).stdout
               for b, t in (("1", "1"), ("2", "3"), ("7", "2"), ("64", "1"))}
    assert len(set(answers.values())) == 1


@pytest.mark.parametrize("family", ["qwen35", "mamba2", "falcon-h1"])
def test_a_saved_conversation_with_a_recurrent_state_goes_on_as_if_it_had_not_ended(family, tmp_path):
    write(tmp_path / "m.gguf", family, {})
    env = os.environ | {"XDG_DATA_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}

    def talk(lines, *more):
        r = subprocess.run([BUILD / "src/hokku", "-m", tmp_path / "m.gguf", "--device", "cpu", "--turns", "-n", "20", "--seed", "4", "--json", *more],
                           input=lines, capture_output=True, check=True, env=env)
        return [[json.loads(line)[k] for k in ("tokens", "cached_tokens", "prompt_tokens")] for line in r.stdout.splitlines()]

    begun, then = talk(b"one two three\nfour five\n", "--session", "s"), talk(b"six\n", "--session", "s")
    assert begun + then == talk(b"one two three\nfour five\nsix\n")  # nor is more evaluated
    assert then[0][1] > 0.8 * then[0][2]
    assert talk(b"six\n", "--session", "s", "--no-kv")[0][1] > 0  # it was saved with the state


def edited(part, **changes):
    tag, begin, end, payload = part
    return tag, changes.get("begin", begin), changes.get("end", end), changes.get("payload", payload)


@pytest.mark.parametrize("edit, code, message", [
    (lambda states: [edited(p, begin=9999, end=9999) for p in states], 1, "its recurrent states are out of order"),
    (lambda states: [edited(p, begin=p[1] - 1) for p in states], 1, "its recurrent states are out of order"),
    (lambda states: [edited(p, begin=0, end=0) for p in states], 1, "its recurrent states are out of order"),
    (lambda states: [p for p in states for _ in range(2)], 1, "its recurrent states are out of order"),
    (lambda states: [edited(p, payload=p[3][:-4]) for p in states], 0, "its recurrent state has another size"),
    (lambda states: [edited(p, payload=b"") for p in states], 0, "its recurrent state has another size"),
    (lambda states: [], 0, ""),
])
def test_states_of_a_session_that_cannot_be_used(edit, code, message, tmp_path):
    """What no save writes refuses the session; what is of another size is said, and made again."""
    write(tmp_path / "m.gguf", "mamba2", {})
    env = os.environ | {"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    argv = [BUILD / "src/hokku", "-m", tmp_path / "m.gguf", "--device", "cpu", "--turns", "-n", "20", "--seed", "4", "--session", "s"]
    path, talk = tmp_path / "hokku/sessions/s.session", lambda line: subprocess.run(argv, input=line, capture_output=True, env=env)
    assert talk(b"one two three\n").returncode == 0
    saved = path.read_bytes()
    good = talk(b"four\n").stdout
    parts = session_format.parts(saved)
    states = [p for p in parts if p[0] == "STAT"]
    assert states
    path.write_bytes(session_format.file([p for p in parts if p[0] != "STAT"] + edit(states)))
    r = talk(b"four\n")
    assert r.returncode == code and message.encode() in r.stderr, r
    assert code or r.stdout == good, r


@pytest.mark.parametrize("key, value", [("vocab_size", 640), ("rope.scaling.finetuned", True), ("some.new.thing", 0),
                                        ("some.new.thing", False)])
def test_a_key_that_changes_nothing_refuses_nothing(key, value, tmp_path):
    write(tmp_path / "m.gguf", "gemma2", {key: value})
    r = subprocess.run([BUILD / "src/hokku", "inspect", tmp_path / "m.gguf", "--json"], capture_output=True, text=True)
    assert json.loads(r.stdout)["hokku"]["supported"], r.stdout


@pytest.mark.parametrize("how", [["a b c"], ["--lines", "-np", "2"]], ids=["one", "lines"])
def test_what_the_file_suppresses_is_never_sampled(how, tmp_path):
    """As with --logit-bias ID-inf, which is the user's where both name a token."""
    def tokens(suppressed, *more):
        write(tmp_path / "m.gguf", "gemma4", {S: make_gguf.Typed("array", ("i32", suppressed))} if suppressed else {})
        r = subprocess.run([BUILD / "src/hokku", "-m", tmp_path / "m.gguf", "--device", "cpu", "-n", "12", "--temp", "0", "--json", *more, *how],
                           input="a b c\n", capture_output=True, text=True)
        assert r.returncode == 0, r.stderr
        return json.loads(r.stdout)["tokens"]

    free = tokens([])
    some = [free[3], free[0]]
    forbidden = [arg for t in some for arg in ("-l", f"{t}-inf")]
    without = tokens([], *forbidden)
    assert not set(without) & set(some)
    assert tokens(some) == without
    assert tokens(some, "-l", f"{some[0]}+0") == tokens([], *forbidden[2:])
    assert tokens(some, *(f"--logit-bias={t}+0" for t in some)) == free


def test_what_is_never_sampled_is_shown_and_takes_room_of_biases(tmp_path):
    some = [437, 50]
    write(tmp_path / "m.gguf", "gemma4", {S: some})
    argv = [BUILD / "src/hokku", "inspect", tmp_path / "m.gguf"]
    text = subprocess.run(argv, capture_output=True, text=True).stdout
    assert re.search(rf"  never sampled: {min(some)} \".*\", {max(some)} \".*\"\n", text), text
    assert json.loads(subprocess.run([*argv, "--json"], capture_output=True).stdout)["tokenizer"]["never_sampled"] == sorted(some)
    many = [f"--logit-bias={i}+0" for i in range(640) if i not in some][:63]
    r = subprocess.run([BUILD / "src/hokku", "-m", tmp_path / "m.gguf", "--device", "cpu", "-n", "1", *many, "x"], capture_output=True, text=True)
    assert r.returncode == 2 and "--logit-bias: 63 of them beside the 2 of tokenizer.ggml.suppress_tokens, expected at most 64" in r.stderr, r


@pytest.mark.parametrize("family, windows", [("gemma3", []), ("olmo3", []), ("exaone4-deep", ["4,096"])])
def test_windows_that_the_file_does_not_say(family, windows, tmp_path):
    """None, but in EXAONE 4 of 64 layers, whose full layers are those that are not rotated."""
    write(tmp_path / "m.gguf", family, {W: MISSING})
    text = subprocess.run([BUILD / "src/hokku", "inspect", tmp_path / "m.gguf"], capture_output=True, text=True).stdout
    assert re.findall(r"sliding window ([0-9,]+),", text) == windows, text
    layers = [line for line in text.splitlines() if line.startswith("  layer")]
    assert all(("not rotated" in line) == (bool(windows) and "window" not in line) for line in layers), text


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
    ("deepseek2", ["layer 0: 6 heads of 11 + 8 sharing a latent of 42, queries from one of 20, RoPE theta 10000 over 8 of a head, yarn scaling "
                   "by 4; feed-forward 80"], [[0], [1, 2]]),
    ("qwen35", ["layers 0-1, 3-4: a delta net of 6 heads of 14 sharing 3 keys, over 4 tokens; feed-forward 80, gated SiLU",
                "layer 2: 6 heads of 20 sharing 3 KV heads, RoPE theta 20000 over 8 of a head, norms of each head, gated; "], [[0, 1, 3, 4], [2]]),
    ("mamba2", ["layers 0-2: a state space of 6 heads of 14 by 14 sharing 2 groups, over 4 tokens, normed; no feed-forward"], [[0, 1, 2]]),
    ("falcon-h1", ["layers 0-2: 6 heads of 12 sharing 3 KV heads, RoPE theta 300000 over 8 of a head; beside it a state space of 4 heads of 18 "
                   "by 10 sharing 2 groups, over 3 tokens; feed-forward 80, gated SiLU"], [[0, 1, 2]]),
    ("granitehybrid-moe", ["layer 1: 6 heads of 8 sharing 3 KV heads, not rotated; 3 of 7 experts of 40"], [[0, 2, 3], [1]]),
    ("nemotron_h", ["layers 0, 3: a state space of 6 heads of 16 by 12 sharing 2 groups, over 4 tokens, normed; no feed-forward",
                    "layer 1: no attention; feed-forward 80, squared ReLU", "layer 2: 4 heads of 20 sharing 2 KV heads, not rotated; no feed-forward"],
     [[0, 3], [1], [2], [4]]),
    ("nemotron_h_moe-latent", ["layers 1, 3: no attention; 3 of 8 experts of 24, squared ReLU, by sigmoid, on a latent of 20, and a shared one of 40"],
     [[0], [1, 3], [2]]),
    ("gptneox", ["layers 0-2: 6 heads of 8 sharing 6 KV heads, RoPE theta 10000 over 2 of a head; beside it feed-forward 80, exact GELU"], [[0, 1, 2]]),
    ("gptneox-sequential", ["layers 0-2: 6 heads of 8 sharing 6 KV heads, RoPE theta 10000 over 2 of a head; feed-forward 80, exact GELU"], [[0, 1, 2]]),
    ("falcon-norms", ["layers 0-2: 6 heads of 8 sharing 3 KV heads, RoPE theta 10000 over 8 of a head; beside it feed-forward 80, exact GELU"],
     [[0, 1, 2]]),
    ("lfm2", ["layers 0, 2: a convolution over 4 tokens; feed-forward 80, gated SiLU"], [[0, 2], [1], [3]]),
    ("gemma4", ["layers 1, 3: 4 heads of 20 sharing 2 KV heads, RoPE theta 300000 over 16 of a head, frequency factors, norms of each head; ",
                "layer 4: 4 heads of 12 sharing 1 KV head, sliding window 21, RoPE theta 20000 over 8 of a head, keys and values of an "
                "earlier layer, norms of each head; feed-forward 80, gated GELU; norms before and after; told 18 of the token"],
     [[0, 2], [1, 3], [4], [5], [6]]),
    ("gemma4-moe", ["layers 0-1, 3: ", "layer 2: 4 heads of 20 sharing 1 KV head, RoPE theta 300000 over 16 of a head, frequency factors, keys that "
                    "are values, norms of each head; feed-forward 80, gated GELU, and 2 of 7 experts of 24, gated GELU, by softmax; norms "
                    "before and after"], [[0, 1, 3], [2]]),
])
def test_inspect_says_what_kind_each_layer_is(family, lines, layers, tmp_path):
    write(tmp_path / "m.gguf", family, {})
    text = subprocess.run([BUILD / "src/hokku", "inspect", tmp_path / "m.gguf"], capture_output=True, text=True).stdout
    for line in lines:
        assert line in text, text
    kinds = json.loads(subprocess.run([BUILD / "src/hokku", "inspect", tmp_path / "m.gguf", "--json"], capture_output=True,
                                      text=True).stdout)["hokku"]["layer_kinds"]
    assert [k["layers"] for k in kinds] == layers
