"""`hokku inspect` on whole files: it reads what the gguf Python package reads, and refuses what is broken.

The files are the reference vectors, what tests/make_gguf.py generates, and mutations of them.
"""
import collections
import hashlib
import json
import math
import os
import pathlib
import resource
import struct
import subprocess
import sys

import gguf
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HOKKU_BUILD", ROOT / "build"))
HOKKU = BUILD / "src/hokku"
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/vectors")]
import make_gguf  # noqa: E402
import random_weights  # noqa: E402
from numpy_model import dequantize  # noqa: E402
from where import folders  # noqa: E402

REFERENCE = [p for f in folders() for kind in ("models", "tokenizers") for p in sorted((f / kind).glob("*.gguf"))]


def inspect(path, *options, limit=None):
    def limited():
        if limit:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return subprocess.run([HOKKU, "inspect", path, *options], capture_output=True, timeout=60,
                          preexec_fn=limited)


def inspected(path):
    done = inspect(path, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def generate(path, split=1, alignment=32, version=3, seed=1, **options):
    kvs, tensors = make_gguf.model(seed=seed, **options)
    return make_gguf.write(path, kvs, tensors, seed, alignment, version, split)


def refused(path):
    """The message of a file that is refused with exit code 3."""
    done = inspect(path)
    assert done.returncode == 3, (done.returncode, done.stdout[-300:], done.stderr)
    assert done.stdout == b""
    return done.stderr.decode()


# --- agreement with the gguf package ---

def same_value(ours, field):
    theirs = field.contents()
    if isinstance(ours, dict):
        assert ours["count"] == len(theirs)
        assert ours["array_of"] == field.types[-1].name.lower()
        for a, b in zip(ours["first"], theirs):
            assert a == pytest.approx(b, rel=1e-7) if isinstance(b, float) else a == b
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=1e-7)
    else:
        assert ours == theirs


def compare(path):
    report, reader = inspected(path), gguf.GGUFReader(path)
    fields = {k: f for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    assert list(report["metadata"]) == list(fields)
    for key, field in fields.items():
        same_value(report["metadata"][key], field)
    assert report["alignment"] == reader.alignment
    assert len(report["tensors"]) == len(reader.tensors)
    for ours, theirs in zip(report["tensors"], reader.tensors):
        assert ours["name"] == theirs.name
        assert ours["shape"] == list(theirs.shape)
        assert ours["type"] == theirs.tensor_type.name
        assert ours["bytes"] == theirs.n_bytes
        assert ours["offset"] == theirs.data_offset
    assert report["totals"]["parameters"] == sum(int(t.n_elements) for t in reader.tensors)
    return report, reader


@pytest.mark.parametrize("path", REFERENCE, ids=lambda p: p.stem)
def test_reference_files_read_as_the_gguf_package_reads_them(path):
    # The package takes 20 s for the largest vocabularies, so those are only read by hokku.
    report = compare(path)[0] if path.stat().st_size < 2e6 else inspected(path)
    assert report["tokenizer"]["supported"]
    assert report["hokku"]["supported"] == (path.parent.name == "models"), report["hokku"]


@pytest.mark.parametrize("options", [
    dict(arch="llama", layers=3, embd=96, heads=3, ff=160, mix=["Q8_0", "Q4_0", "F16"], vocab=300, tied=False),
    dict(arch="qwen2", embd=7 * 32, heads=7, kv_heads=1, ff=224, mix=["Q5_0", "Q5_1", "IQ4_NL", "BF16", "F32"]),
    dict(arch="qwen3", head_dim=128, kv_heads=2, mix=["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"],
         vector_type="F16"),
    dict(arch="llama", rope_freqs=True, rope_scaling={"type": "yarn", "factor": 4, "orig_ctx": 1024}, swa=16,
         biases=True, mix="Q4_1", vector_type="BF16", alignment=64, version=2, rope_dim=32),
], ids=["llama", "qwen2", "qwen3", "extras"])
def test_generated_files_are_read_and_run(tmp_path, options):
    path, = generate(tmp_path / "m.gguf", **options)
    report, _ = compare(path)
    verdict = report["hokku"]
    assert verdict["supported"], verdict
    assert verdict["architecture"] == options["arch"]
    assert verdict["tied_head"] == options.get("tied", True)
    assert verdict["sliding_window"] == options.get("swa", 0)
    assert verdict["rope_frequency_factors"] == options.get("rope_freqs", False)
    assert report["version"] == options.get("version", 3)


def test_fingerprint_is_sha256_of_metadata_and_tensor_table(tmp_path):
    path, = generate(tmp_path / "m.gguf")
    report, reader = compare(path)
    last = reader.tensors[-1].field
    end = last.offset + sum(part.nbytes for part in last.parts)
    digest = hashlib.sha256(pathlib.Path(path).read_bytes()[:end]).hexdigest()
    assert report["hokku"]["fingerprint"] == digest


def test_a_split_model_is_the_same_model(tmp_path):
    whole = inspected(generate(tmp_path / "whole.gguf", layers=4)[0])
    parts = generate(tmp_path / "parts.gguf", layers=4, split=3)
    for part in parts:
        report = inspected(part)
        assert len(report["files"]) == 3
        assert report["totals"] == whole["totals"]
        assert [t["name"] for t in report["tensors"]] == [t["name"] for t in whole["tensors"]]
        assert {t["file"] for t in report["tensors"]} == {0, 1, 2}
        assert report["hokku"]["supported"]


def test_text_report_says_what_hokku_would_do(tmp_path):
    path, = generate(tmp_path / "m.gguf", arch="qwen2", mix="Q4_K_M")
    text = inspect(path).stdout.decode()
    for words in ("metadata (", "tensors (", "parameters", "tokenizer\n  gpt2 (qwen2), 1,056 tokens",
                  "runs it as qwen2", "head tied to the embedding", "chat template present"):
        assert words in text, words


# --- files that can be read but not run: shown, with the reason ---

def foreign(path, arch, type_name=None, u64=()):
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(1)
    for i, n in enumerate(u64):
        writer.add_uint64(f"of.{i}", n)
    if type_name:
        qtype = gguf.GGMLQuantizationType[type_name]
        size = gguf.GGML_QUANT_SIZES[qtype][1]
        writer.add_tensor("token_embd.weight", np.zeros((4, size), dtype=np.uint8), raw_dtype=qtype)
    else:
        writer.add_tensor("token_embd.weight", np.zeros((4, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_numbers_of_64_bits_are_whole(tmp_path):
    numbers = [2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1]
    foreign(tmp_path / "m.gguf", "llama", u64=numbers)
    metadata = inspected(tmp_path / "m.gguf")["metadata"]
    assert [metadata[f"of.{i}"] for i in range(4)] == [n if n < 2**63 else str(n) for n in numbers]


def test_json_has_numbers_and_keys_as_they_are(tmp_path):
    f64, f32 = [0.1, 1 / 3, 1e-300, 123456789.123456789, 5e-324, 1.0], [0.1, 1 / 3, 3.4e38, 10000.0]
    keys = ["k\x1b[31m\x7f", "é\u200b", "\t\"\\", "k" * 300, "k" * 300 + "l", "n\0ul"]
    head, _ = make_gguf.header([("f64", make_gguf.Typed("array", ("f64", f64))), ("one", make_gguf.Typed("f64", 0.1)),
                                ("f32", make_gguf.Typed("array", ("f32", f32)))] + [(k, make_gguf.Typed("u8", i)) for i, k in enumerate(keys)], [], 32, 3)
    (tmp_path / "m.gguf").write_bytes(head)
    done = inspect(tmp_path / "m.gguf", "--json")
    metadata = json.loads(done.stdout)["metadata"]
    assert metadata["f64"]["first"] == f64[:len(metadata["f64"]["first"])] and metadata["one"] == 0.1
    assert b'"first":[0.1,0.33333334,3.4e+38,10000.0]' in done.stdout, done.stdout
    assert [metadata[k.replace("\0", "\\x00")] for k in keys] == list(range(len(keys)))
    assert b"\x1b" not in done.stdout


def test_unsupported_architecture_is_named_with_those_that_work(tmp_path):
    foreign(tmp_path / "m.gguf", "mamba")
    report = inspected(tmp_path / "m.gguf")
    assert not report["hokku"]["supported"]
    assert report["hokku"]["reason"].startswith('architecture "mamba" is not supported; these are: llama, qwen2, qwen2vl, ')
    assert b"cannot run it: architecture" in inspect(tmp_path / "m.gguf").stdout


@pytest.mark.parametrize("type_name", ["Q8_K", "I32"])
def test_unsupported_weight_types_are_named_with_those_that_work(tmp_path, type_name):
    foreign(tmp_path / "m.gguf", "llama", type_name)
    compare(tmp_path / "m.gguf")
    reason = inspected(tmp_path / "m.gguf")["hokku"]["reason"]
    assert f"tensor token_embd.weight has weight type {type_name}, which is not supported" in reason
    for works in make_gguf.TYPES:
        assert works in reason


# --- broken files ---

@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path, = generate(tmp_path_factory.mktemp("small") / "m.gguf", layers=1, embd=32, heads=2, kv_heads=1, ff=32,
                     vocab=260, mix=["Q8_0", "Q4_0", "F16"])
    return pathlib.Path(path).read_bytes()


def test_truncated_download_is_named_with_both_sizes(tmp_path, small):
    path = tmp_path / "m.gguf"
    path.write_bytes(small)
    last = max(inspected(path)["tensors"], key=lambda t: t["offset"])
    end = last["offset"] + last["bytes"]
    path.write_bytes(small[:end - 1])
    assert (f"m.gguf: tensor {last['name']} ends at byte {end:,} but the file has {end - 1:,} "
            "(truncated download?)") in refused(path)


def test_every_kind_of_truncation_is_refused(tmp_path, small):
    path = tmp_path / "m.gguf"
    for n in [1, 3, 4, 8, 12, 23, 24, 25, 100, 1000, 5000, len(small) // 2, len(small) - 1100]:
        path.write_bytes(small[:n])
        refused(path)


def test_big_endian_file_is_named_as_such(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", endianess=gguf.GGUFEndian.BIG)
    writer.add_tensor("a", np.zeros(8, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert "big-endian" in refused(tmp_path / "m.gguf")


def test_missing_file_directory_and_empty_file(tmp_path):
    (tmp_path / "empty.gguf").touch()
    os.mkfifo(tmp_path / "fifo.gguf")
    assert "cannot open: No such file" in refused(tmp_path / "absent.gguf")
    assert "is a directory" in refused(tmp_path)
    assert "is empty" in refused(tmp_path / "empty.gguf")
    assert "is a pipe" in refused(tmp_path / "fifo.gguf")
    assert "not a regular file" in refused("/dev/null")


def test_names_in_messages_cannot_drive_a_terminal(tmp_path):
    hostile = "\x1b]0;owned\x07\x1b[2J%s%n"
    head, _ = make_gguf.header([(hostile, make_gguf.Typed("u8", 1))] * 2, [], 32, 3)
    (tmp_path / "m.gguf").write_bytes(head)
    message = refused(tmp_path / "m.gguf")
    assert "\\x1B]0;owned\\x07\\x1B[2J%s%n appears twice" in message
    assert "\x1b" not in message


SANITIZED = b"__asan_init" in HOKKU.read_bytes() if HOKKU.exists() else False


@pytest.mark.skipif(SANITIZED, reason="ASan reserves more address space than the limit")
def test_memory_stays_within_the_size_of_the_file(tmp_path, small):
    """An absurd count must be refused before memory is asked for: 64 MB of address space beside the program are enough."""
    path = tmp_path / "m.gguf"
    limit = (64 << 20) + HOKKU.stat().st_size # which has kernels in it where it is built with nvcc
    path.write_bytes(small)
    assert inspect(path, limit=limit).returncode == 0
    at = small.index(b"tokenizer.ggml.tokens") + len(b"tokenizer.ggml.tokens") + 8
    for count in (1 << 20, 1 << 24, 1 << 32, 1 << 61, (1 << 64) - 1):
        for offset in (8, 16, at):  # tensors, keys, elements of an array
            path.write_bytes(small[:offset] + struct.pack("<Q", count) + small[offset + 8:])
            assert inspect(path, limit=limit).returncode == 3, (count, offset)


@pytest.mark.skipif(SANITIZED, reason="the unit tests run many more under ASan")
def test_mutated_files_neither_crash_nor_take_memory(tmp_path, small):
    rng = np.random.default_rng(5)
    path = tmp_path / "m.gguf"
    head = small.rindex(b".weight") + 100
    codes = set()
    for _ in range(200):
        data = bytearray(small)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(head))
            kind = rng.integers(4)
            if kind == 0:
                data[at] ^= 1 << int(rng.integers(8))
            elif kind == 1:
                data[at:at + 8] = struct.pack("<Q", int(rng.choice([0, 1, 255, 2**31, 2**32, 2**61, 2**63])))
            elif kind == 2:
                del data[at:at + int(rng.integers(1, 40))]
            else:
                data[at:at] = data[at:at + int(rng.integers(1, 40))]
        path.write_bytes(data)
        done = inspect(path, limit=(64 << 20) + HOKKU.stat().st_size)
        codes.add(done.returncode)
        assert done.returncode in (0, 3), (done.returncode, done.stderr)
        assert (done.returncode == 3) == bool(done.stderr)
    assert codes == {0, 3}


# --- the generator ---

@pytest.mark.parametrize("type_name", list(make_gguf.TYPES))
def test_generated_weights_have_the_promised_spread(type_name):
    n = 4096
    blocks = random_weights.draw_blocks(type_name, n, np.random.default_rng(3))
    blocks = np.frombuffer(blocks, dtype=np.uint8).reshape(n, -1)
    weights = dequantize(blocks, make_gguf.TYPES[type_name][0])
    assert weights.std() == pytest.approx(0.02, rel=0.05)
    assert abs(weights.mean()) < 0.002


# As the files on the Hugging Face Hub are: row lengths, layers, and those whose attn_v and ffn_down have more bits in Q4_K_M.
DISTRIBUTED = {
    "qwen2.5-0.5b": (896, 4864, 128, 24, {0, 1, 2, 5, 8, 11, 14, 17, 20, 21, 22, 23}),
    "qwen2.5-7b": (3584, 18944, 512, 28, {0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27}),
}
# Q4_K_M: most matrices, attn_v of those layers, ffn_down of the others, token_embd.
MIXED = {"qwen2.5-0.5b": ("Q5_0", "Q8_0", "Q4_K", "Q8_0"), "qwen2.5-7b": ("Q4_K", "Q6_K", "Q4_K", "Q4_K")}


@pytest.mark.parametrize("shape", ["qwen2.5-0.5b", "qwen2.5-7b"])
@pytest.mark.parametrize("mix", ["q8_0", "q4_k_m"])
def test_mixes_are_those_of_the_distributed_files(shape, mix):
    _, tensors = make_gguf.model(**make_gguf.SHAPES[shape], mix=mix.upper())
    embd, ff, kv, layers, more = DISTRIBUTED[shape]
    plain, some, down, embedding = ("Q8_0",) * 4 if mix == "q8_0" else MIXED[shape]
    want = {("output_norm.weight", embd, 1, "F32"), ("token_embd.weight", embd, 151936, embedding)}
    if shape == "qwen2.5-7b":
        want.add(("output.weight", embd, 151936, "Q8_0" if mix == "q8_0" else "Q6_K"))
    for i in range(layers):
        v, d = (some, "Q6_K") if mix == "q4_k_m" and i in more else (plain, down)
        for name, cols, rows, kind in [
                ("attn_norm.weight", embd, 1, "F32"), ("ffn_norm.weight", embd, 1, "F32"), ("attn_q.bias", embd, 1, "F32"),
                ("attn_k.bias", kv, 1, "F32"), ("attn_v.bias", kv, 1, "F32"), ("attn_q.weight", embd, embd, plain),
                ("attn_k.weight", embd, kv, plain), ("attn_v.weight", embd, kv, v), ("attn_output.weight", embd, embd, plain),
                ("ffn_gate.weight", embd, ff, plain), ("ffn_up.weight", embd, ff, plain), ("ffn_down.weight", ff, embd, d)]:
            want.add((f"blk.{i}.{name}", cols, rows, kind))
    assert {(t.name, t.ne[0], (t.ne + [1])[1], t.type) for t in tensors} == want


# As loaders print them of distributed files: tensors of each type, and for all parameters.
@pytest.mark.parametrize("shape, mix, types, parameters", [
    ("gemma4-26b-a4b", "Q4_K_M", {"F32": 392, "Q5_0": 32, "Q8_0": 28, "Q4_K": 192, "Q6_K": 14}, 25.23),
    ("gemma4-31b", "Q8_0", {"F32": 422, "Q8_0": 411}, 30.70),
    ("gemma4-e4b", "Q4_K_M", {"F32": 339, "Q4_K": 336, "Q6_K": 44, "BF16": 1}, 7.52),
])
def test_gemma4_has_as_many_tensors_of_each_type_as_its_files(shape, mix, types, parameters):
    _, tensors = make_gguf.model(**make_gguf.SHAPES[shape], mix=mix)
    assert collections.Counter(t.type for t in tensors) == types
    assert sum(math.prod(t.ne) for t in tensors) / 1e9 == pytest.approx(parameters, abs=0.005)


def test_same_arguments_give_the_same_file(tmp_path):
    a, = generate(tmp_path / "a.gguf", seed=4)
    b, = generate(tmp_path / "b.gguf", seed=4)
    c, = generate(tmp_path / "c.gguf", seed=5)
    assert pathlib.Path(a).read_bytes() == pathlib.Path(b).read_bytes()
    assert pathlib.Path(a).read_bytes() != pathlib.Path(c).read_bytes()
