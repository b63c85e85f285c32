"""The tokenizer gives what two independent implementations give on random text: Hugging Face `tokenizers` for byte-level
BPE and `sentencepiece`, over the vocabularies of the reference vectors (tests/vectors).

HOKKU_TOKENIZER_STRINGS is how many strings to try.
"""
import json
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "vectors"))
import oracles  # noqa: E402
from where import BUILD, folders  # noqa: E402

N_STRINGS = int(os.environ.get("HOKKU_TOKENIZER_STRINGS", 1000))
VOCABULARIES = [p for f in folders() for name in [*oracles.PATTERNS, "llama-spm"]
                for p in [f / "tokenizers" / f"{name}.gguf"]]


@pytest.mark.parametrize("path", VOCABULARIES, ids=lambda p: p.stem)
def test_ids_are_those_of_another_implementation(path):
    get, name = oracles.vocabulary(path), path.stem
    strings = oracles.random_strings(name, N_STRINGS)
    done = subprocess.run([BUILD / "tests/conformance/tokenize_cli", path], check=True, capture_output=True,
                          input=b"".join(s.encode() + b"\0" for s in strings))
    got = [json.loads(line) for line in done.stdout.splitlines()]
    expected = (oracles.spm(get) if name == "llama-spm" else oracles.bpe(get, name))(strings)
    assert len(got) == len(expected) == len(strings)
    different = [(s, a, b) for s, a, b in zip(strings, got, expected) if a != b]
    assert not different, (len(different), different[0])
