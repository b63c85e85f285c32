"""Would the comparison with the reference vectors notice a family whose facts are misread? Of each, a copy of its file with one
fact deliberately wrong is off by more than the tolerance; the file as it is is not."""
import json
import os
import pathlib
import struct
import subprocess
import sys

import gguf
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "vectors"))
from where import BUILD, folders  # noqa: E402

twice, half = lambda old: old * 2, lambda old: old // 2
one_more = lambda old: old + 1
other = lambda old: not old
RMS, EPS = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"
WINDOW, BASE = "attention.sliding_window", "rope.freq_base"
USED, TURNED, FACTOR = "expert_used_count", "rope.dimension_count", "rope.scaling.factor"
# The file's name without its weight type: a key without its architecture's name, and what it becomes. What the file has not is
# added. Of an array the first element changes.
WRONG = {
    "afmoe": ("expert_weights_scale", twice),
    "apertus": ("xielu.beta", twice),
    "arcee": (BASE, 200.0),
    "baichuan": (BASE, 200.0),
    "bailingmoe": ("expert_weights_scale", twice),
    "bailingmoe2": ("expert_group_used_count", twice),
    "chatglm": (TURNED, twice),
    "cohere2": (WINDOW, half),
    "cohere2-full": ("attention.sliding_window_pattern", 2),
    "cohere2moe": (WINDOW, half),
    "cohere2moe-rms": (USED, one_more),
    "command-r": ("logit_scale", twice),
    "deci": (BASE, 200.0),
    "deepseek": (USED, one_more),
    "deepseek2": ("expert_weights_norm", False),
    "deepseek2-lite": ("rope.scaling.yarn_log_multiplier", twice),
    "deepseek2-temperature": ("attention.temperature_scale", twice),
    "deepseek2-v3": ("expert_group_used_count", twice),
    "dots1": ("expert_gating_func", 1),
    "ernie4_5": (BASE, 200.0),
    "ernie4_5-moe": (USED, one_more),
    "exaone": (BASE, 200.0),
    "exaone-moe": (WINDOW, half),
    "exaone4": (BASE, 200.0),
    "exaone4-64": (WINDOW, half),
    "exaone4-deep": (WINDOW, half),
    "falcon": (BASE, 200.0),
    "falcon-h1": (BASE, 200.0),
    "falcon-h1-normed": (RMS, twice),
    "falcon-norms": (EPS, twice),
    "gemma": (BASE, 200.0),
    "gemma2": ("attn_logit_softcapping", twice),
    "gemma2-deep": ("final_logit_softcapping", twice),
    "gemma3": (FACTOR, twice),
    "gemma3-full": ("final_logit_softcapping", twice),
    "gemma3-pattern": ("attention.sliding_window_pattern", 2),
    "gemma3n": ("activation_sparsity_scale", float("-inf")),
    "gemma3n-pattern": ("rope.freq_base_swa", 200.0),
    "gemma4": ("rope.freq_base_swa", 200.0),
    "gemma4-moe": (WINDOW, half),
    "glm4": (TURNED, lambda old: old - 2),
    "glm4-sections": (BASE, 200.0),
    "glm4moe": ("expert_weights_scale", twice),
    "glm4moe-sections": (BASE, 200.0),
    "gpt-oss": (WINDOW, half),
    "gpt-oss-joined": (WINDOW, half),
    "gpt2": (EPS, twice),
    "gptneox": ("use_parallel_residual", other),
    "gptneox-sequential": ("use_parallel_residual", other),
    "granite": ("residual_scale", twice),
    "granite-biases": ("residual_scale", twice),
    "granite-unrotated": ("rope.scaling.finetuned", other),
    "granitehybrid": ("attention.scale", twice),
    "granitehybrid-moe": ("embedding_scale", twice),
    "granitemoe": ("logit_scale", twice),
    "granitemoe-unrotated": ("rope.scaling.finetuned", other),
    "hunyuan-dense": (BASE, 200.0),
    "hunyuan-moe": (USED, one_more),
    "hunyuan_vl": ("rope.scaling.alpha", 1.0),
    "hy_v3": ("expert_weights_scale", twice),
    "internlm2": (BASE, 200.0),
    "internlm2-biases": (BASE, 200.0),
    "jais2": (BASE, 200.0),
    "lfm2": (BASE, 200.0),
    "lfm2moe": ("expert_gating_func", 1),
    "llama-biases": (BASE, 200.0),
    "llama-tiny": (RMS, 0.03),
    "llama4": (USED, one_more),
    "mamba2": (RMS, twice),
    "mamba2-wide": (RMS, twice),
    "mellum": (WINDOW, half),
    "mellum-base": ("rope.freq_base_swa", 5e5),
    "minicpm": ("residual_scale", twice),
    "minicpm-implied": (BASE, 200.0),
    "minicpm3": ("logit_scale", 1.0),
    "minimax-m2": (TURNED, half),
    "mistral3": (FACTOR, twice),
    "mistral4": ("attention.temperature_scale", twice),
    "mixtral": (USED, one_more),
    "nemotron": (TURNED, half),
    "nemotron_h": (RMS, twice),
    "nemotron_h_moe": ("expert_weights_norm", False),
    "nemotron_h_moe-latent": ("expert_weights_scale", twice),
    "olmo": (EPS, twice),
    "olmo-clamped": ("attention.clamp_kqv", twice),
    "olmo2": (BASE, 200.0),
    "olmo3": (FACTOR, twice),
    "olmo3-pattern": ("attention.sliding_window_pattern", other),
    "olmoe": (USED, one_more),
    "orion": (BASE, 200.0),
    "pangu-embedded": (BASE, 200.0),
    "phi2": (TURNED, twice),
    "phi3-long": ("rope.scaling.attn_factor", 1.0),
    "phi3-short": ("rope.scaling.original_context_length", 64),
    "phimoe": ("rope.scaling.attn_factor", 1.0),
    "plm": (RMS, twice),
    "qwen": (BASE, 200.0),
    "qwen2-tiny": (BASE, 200.0),
    "qwen2moe": (USED, one_more),
    "qwen2moe-widths": (USED, one_more),
    "qwen2vl": (BASE, 200.0),
    "qwen2vl-joined": (BASE, 200.0),
    "qwen3-tiny": (BASE, 200.0),
    "qwen35": (BASE, 200.0),
    "qwen35-broad": (BASE, 200.0),
    "qwen35-wide": (BASE, 200.0),
    "qwen35moe": (USED, one_more),
    "qwen35moe-joined": (USED, one_more),
    "qwen3moe": (USED, one_more),
    "qwen3moe-odd": (USED, one_more),
    "qwen3next": (USED, one_more),
    "qwen3next-by_keys": (USED, one_more),
    "qwen3vl": (BASE, 200.0),
    "qwen3vlmoe": (USED, one_more),
    "seed_oss": (BASE, 200.0),
    "smollm3": (BASE, 200.0),
    "stablelm": (EPS, twice),
    "stablelm-parallel": (EPS, twice),
    "starcoder": (EPS, twice),
    "starcoder2": (EPS, twice),
    "stories": (BASE, 200.0),
    "stories260K": (BASE, 200.0),
}
KINDS = {bool: (gguf.GGUFValueType.BOOL, "?"), int: (gguf.GGUFValueType.UINT32, "I"), float: (gguf.GGUFValueType.FLOAT32, "f")}


def files():
    """(family, file): of each folder's families the first file."""
    found = {}
    for folder in folders():
        for path in sorted(folder.glob("*/*.gguf")):
            if path.parent.name in ("models", "families"):
                found.setdefault((folder, path.stem.rsplit("-", 1)[0]), path)
    return [pytest.param(name, path, id=f"{name}-{i}") for i, ((_, name), path) in enumerate(found.items())]


def write_wrong(source, target, name, wrong):
    """A copy in which the key `name` is wrong: that, or what it makes of the value that is right."""
    reader = gguf.GGUFReader(source)
    name = name if name.startswith("xielu") else f"{reader.fields['general.architecture'].contents()}.{name}"
    data, field = bytearray(source.read_bytes()), reader.fields.get(name)
    if field:
        part = field.parts[field.data[0]]
        at = field.offset + sum(p.nbytes for p in field.parts[:field.data[0]])
        old = part[0].item()
        new = wrong(old) if callable(wrong) else wrong
        assert new != old
        data[at:at + part.nbytes] = part.dtype.type(new).tobytes()
    else:
        kind, how = KINDS[type(wrong)]
        added = struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I" + how, kind, wrong)
        last = reader.tensors[-1].field
        end = last.offset + sum(p.nbytes for p in last.parts)
        n_keys = int(reader.fields["GGUF.kv_count"].contents())
        head = data[:16] + struct.pack("<Q", n_keys + 1) + added + data[24:end]
        data = head + bytes(-len(head) % reader.alignment) + data[reader.data_offset:]
    target.write_bytes(data)


def difference(path, folder, expected):
    """-> mean and largest one of the log-probabilities of the listed tokens."""
    r = subprocess.run([BUILD / "src/hokku", "score", "-m", path, "--device", "cpu", "-c", "2048", "--top", "64", folder / "models/p1.txt"],
                       capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    got = json.loads(r.stdout)
    assert got["tokens"] == expected["tokens"]
    off = []
    for mine, its in zip(got["positions"], expected["positions"]):
        top = dict(map(tuple, mine["top"]))
        if not its.get("near_tie"):  # (one that is not among the 64 best is at least so far off)
            off += [abs(top.get(token, min(top.values())) - want) for token, want in its["top"]]
    return sum(off) / len(off), max(off)


@pytest.mark.parametrize("name, path", files())
def test_a_wrong_fact_is_seen(name, path, tmp_path):
    name = name.removesuffix("-scaled")
    assert name in WRONG, f"{name} has vectors, but no wrong fact in the table above"
    folder = path.parents[1]
    expected = json.loads((path.parent / "expected" / f"{path.stem}.p1.json").read_text())
    mean, worst = (0.002, 0.012) if path.stem.endswith(("-f16", "-f32", "-bf16", "stories", "stories260K")) else (0.03, 0.16)
    right = difference(path, folder, expected)
    assert right[0] <= mean and right[1] <= worst, right
    write_wrong(path, tmp_path / "wrong.gguf", *WRONG[name])
    wrong = difference(tmp_path / "wrong.gguf", folder, expected)
    assert wrong[0] > 2 * mean and wrong[1] > 2 * worst, wrong
