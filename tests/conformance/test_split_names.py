"""The parts of a split model are found by the first one's name, which must say what the metadata says."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOKKU = pathlib.Path(os.environ.get("HOKKU_BUILD", ROOT / "build")) / "src/hokku"
SHAPE = "--arch llama --layers 2 --embd 64 --heads 2 --ff 96 --types F32 --vocab 600 --split 2".split()


@pytest.mark.parametrize("name", ["m-00001-of-0000x", "m-00001_of-00002", "m-0000/-of-00002", "m-0000:-of-00002", "m-00001-of-00002.",
                                  "m", "-00001-of-00003", "m-00001-of-00001"])
def test_a_part_under_another_name_is_refused(tmp_path, name):
    subprocess.run([sys.executable, ROOT / "tests/make_gguf.py", tmp_path / "m.gguf", *SHAPE], check=True, capture_output=True)
    first, other = tmp_path / "m-00001-of-00002.gguf", tmp_path / (name + ".gguf")
    assert subprocess.run([HOKKU, "inspect", first], capture_output=True).returncode == 0
    other.parent.mkdir(exist_ok=True)
    first.rename(other)
    r = subprocess.run([HOKKU, "inspect", other], capture_output=True, text=True)
    assert r.returncode == 3 and r.stdout == "" and "-of-0000" in r.stderr, r.stderr
