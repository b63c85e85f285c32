"""The reference dequantiser gives, bit for bit, what the gguf Python package gives.

Blocks are random bytes; half of them are given ordinary scales, the rest keep whatever the bytes
say (subnormal, infinite and NaN scales among them). HOKKU_BUILD names the build directory.
"""
import os
import pathlib
import re
import subprocess
import sys

import gguf
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/vectors"))
from numpy_model import dequantize  # noqa: E402

BUILD = pathlib.Path(os.environ.get("HOKKU_BUILD", ROOT / "build"))
CLI = BUILD / "tests" / "unit" / "dequant_cli"

# byte offsets of the float16 scales in a block
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [], "NVFP4": [],
    "IQ1_S": [0], "IQ1_M": [], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0],
    "TQ1_0": [52], "TQ2_0": [64],
}
PLAIN = ["F32", "F16", "BF16"]


def run(what, data):
    return subprocess.run([CLI, what], input=data, stdout=subprocess.PIPE, check=True).stdout


def same(ours, theirs):
    """Equal bits; any NaN equals any NaN."""
    ours, theirs = ours.ravel(), theirs.astype(np.float32).ravel()
    assert ours.shape == theirs.shape
    different = (ours.view(np.uint32) != theirs.view(np.uint32)) & ~(np.isnan(ours) & np.isnan(theirs))
    assert not different.any(), (np.flatnonzero(different)[:5], ours[different][:5], theirs[different][:5])


@pytest.mark.parametrize("name", list(SCALES) + PLAIN)
def test_dequantised_weights_equal_those_of_the_gguf_package(name):
    rng = np.random.default_rng(7)
    qtype = gguf.GGMLQuantizationType[name]
    block_bytes = gguf.GGML_QUANT_SIZES[qtype][1]
    n = 4096
    blocks = rng.integers(0, 256, (n, block_bytes), dtype=np.uint8)
    blocks[0] = 0
    blocks[1] = 255
    for offset in SCALES.get(name, []):
        scales = rng.uniform(-0.1, 0.1, n // 2).astype(np.float16)
        blocks[: n // 2, offset:offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(blocks, qtype)
    same(np.frombuffer(run(name, blocks.tobytes()), dtype=np.float32), expected)


@pytest.mark.parametrize("name, number", [("Q1_0", 41), ("Q2_0", 42)])
def test_weights_of_one_and_two_bits_are_what_the_format_says(name, number):
    blocks = np.random.default_rng(9).integers(0, 256, (1000, 18), dtype=np.uint8)
    with np.errstate(all="ignore"):
        expected = dequantize(blocks, number)
    same(np.frombuffer(run(name, blocks.tobytes()), dtype=np.float32), expected)


def test_the_grids_are_those_of_the_gguf_package():
    written = subprocess.run([sys.executable, ROOT / "scripts" / "make_grids.py"], capture_output=True, check=True)
    assert written.stdout == (ROOT / "src/gguf/grids.h").read_bytes()


def test_every_type_is_compared():
    rows = re.findall(r"^    X\((\w+), (\d+),", (ROOT / "src/gguf/blocks.h").read_text(), re.MULTILINE)
    assert {name for name, _ in rows} == {*SCALES, *PLAIN, "Q1_0", "Q2_0"}
    for name, number in rows:
        if name in gguf.GGMLQuantizationType.__members__:
            assert gguf.GGMLQuantizationType[name] == int(number)


def test_every_half_becomes_the_same_float():
    halves = np.arange(65536, dtype=np.uint16)
    same(np.frombuffer(run("F16", halves.tobytes()), dtype=np.float32),
         halves.view(np.float16).astype(np.float32))


def test_floats_round_to_halves_as_numpy_rounds():
    rng = np.random.default_rng(8)
    exact = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    exact = exact[np.isfinite(exact)]
    ties = (exact[1:] + exact[:-1]) / 2
    bits = rng.integers(0, 1 << 32, 1 << 20, dtype=np.uint64).astype(np.uint32).view(np.float32)
    small = (rng.standard_normal(1 << 18) * 2.0 ** rng.integers(-28, 18, 1 << 18)).astype(np.float32)
    values = np.concatenate([exact, ties, np.nextafter(ties, np.float32(np.inf)),
                             np.nextafter(ties, np.float32(-np.inf)), bits, small,
                             np.float32([65504, 65519.99, 65520, 65536, np.inf, -np.inf, -0.0])])
    ours = np.frombuffer(run("f32_to_f16", values.tobytes()), dtype=np.float16)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(np.float16)
    nan = np.isnan(values)
    assert np.isnan(ours[nan]).all()
    assert (ours[~nan].view(np.uint16) == expected[~nan].view(np.uint16)).all()
