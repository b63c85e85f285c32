"""The tokenizer gives what two independent implementations give on random text: Hugging Face `tokenizers` for byte-level
BPE and `sentencepiece`, over the vocabularies of the reference vectors (tests/vectors), and with every published pattern.

HOKKU_TOKENIZER_STRINGS is how many strings to try, HOKKU_TOKENIZER_STRINGS_OF_SIX how many with those of the families that came last.
"""
import json
import os
import pathlib
import subprocess
import sys
import unicodedata

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("vectors", ".")]
import make_gguf  # noqa: E402
import oracles  # noqa: E402
from where import BUILD, OWN, folders  # noqa: E402

N_STRINGS = int(os.environ.get("HOKKU_TOKENIZER_STRINGS", 200))
N_OF_SIX = int(os.environ.get("HOKKU_TOKENIZER_STRINGS_OF_SIX", N_STRINGS))
SIX = ["gemma4", "tekken", "gpt-4o", "kimi-k2", "glm4", "minicpm5"]
OTHERS = {"llama-spm": oracles.spm, "gemma4": oracles.gemma4}
VOCABULARIES = [p for f in folders() for name in ["gpt-2", "starcoder", "llama-bpe", "qwen2", *OTHERS]
                for p in [f / "tokenizers" / f"{name}.gguf"] if p.exists()]
PRE = [name for name in oracles.PATTERNS if name != "joined"]
assert set(SIX) <= {p.stem for p in VOCABULARIES} | set(PRE)


def random_strings(name, *words):
    return oracles.random_strings(name, N_OF_SIX if name in SIX else N_STRINGS, *words)


def assert_same_ids(path, strings, expected):
    done = subprocess.run([BUILD / "tests/conformance/tokenize_cli", path], check=True, capture_output=True,
                          input=b"".join(s.encode() + b"\0" for s in strings))
    got = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(got) == len(expected) == len(strings)
    different = [(s, a, b) for s, a, b in zip(strings, got, expected) if a != b]
    assert not different, (len(different), different[0])


@pytest.mark.parametrize("path", VOCABULARIES, ids=lambda p: p.stem)
def test_ids_are_those_of_another_implementation(path):
    get, name = oracles.vocabulary(path), path.stem
    strings = random_strings(name)
    assert_same_ids(path, strings, (OTHERS[name](get) if name in OTHERS else oracles.bpe(get, name))(strings))


@pytest.mark.parametrize("pre", PRE)
def test_words_are_those_of_the_published_pattern(pre, tmp_path):
    """Over one vocabulary, in which everything merges that a pattern does not keep apart."""
    path, joined = tmp_path / "joined.gguf", json.loads((OWN / "tokenizers/joined.json").read_text())
    vocabulary = {"model": "gpt2", "pre": pre, "tokens": joined["tokens"], "merges": joined["merges"],
                  "token_type": [1] * len(joined["tokens"]), "add_bos_token": False}
    make_gguf.write(path, [("general.architecture", "llama")] + [
        (f"tokenizer.ggml.{key}", make_gguf.Typed("array", ("i32", value)) if key == "token_type" else value)
        for key, value in vocabulary.items()], [])
    strings = oracles.BORDERS + random_strings(pre, oracles.BORDERS)
    # What kind of character one is that had none is a matter of whose Unicode is newer.
    strings = ["".join("?" if unicodedata.category(c) == "Cn" else c for c in s) for s in strings]
    assert_same_ids(path, strings, oracles.bpe(vocabulary.get, pre)(strings))
