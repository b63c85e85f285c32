"""The tokenizer gives what two independent implementations give on random text: Hugging Face `tokenizers` for byte-level
BPE, with the patterns as the models' own tokenizer.json files state them, and `sentencepiece`.

Both are optional packages (pip install tokenizers sentencepiece protobuf). HOKKU_BUILD names the build directory,
HOKKU_CONFORMANCE the reference vectors, HOKKU_TOKENIZER_STRINGS how many strings to try.
"""
import json
import os
import pathlib
import random
import subprocess

import pytest

gguf = pytest.importorskip("gguf")
ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HOKKU_BUILD", ROOT / "build"))
VECTORS = pathlib.Path(os.environ.get("HOKKU_CONFORMANCE", ROOT.parent / "shared" / "conformance")) / "tokenizers"
N_STRINGS = int(os.environ.get("HOKKU_TOKENIZER_STRINGS", 1000))

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
PATTERNS = {
    "gpt-2": [GPT2],
    "starcoder": [r"\p{N}", GPT2],
    "llama-bpe": [LLAMA3],
    "qwen2": [LLAMA3.replace("{1,3}", "")],
}
SPACES = [" ", "  ", "    ", "\t", "\n", "\r\n", "\n\n", "\v", "\f", "\r", "\u0085", "\u00a0", "\u180e", "\u2003",
          "\u2028", "\u200b", "\u3000", "\ufeff"]
WORDS = ["Hello", "world", "HTML5", "naïve", "don't", "I'LL", "they've", "’s", "e\u0301", "👩‍👩‍👧‍👦", "🇫🇷", "नमस्ते", "السلام",
         "สวัสดี", "한국어", "日本語のテキスト", "ǅ", "ß", "½", "²", "Ⅷ", "٣", "१२", "user@example.org", "::=", "/**", "...", "▁"]
RANGES = [(0x20, 0x7F, 8), (1, 0x20, 1), (0x80, 0x250, 3), (0x300, 0x530, 3), (0x531, 0x700, 2), (0x900, 0xE00, 2),
          (0x1E00, 0x2C00, 3), (0x3000, 0xA000, 3), (0xAC00, 0xD7A4, 1), (0xF900, 0xFFFE, 1), (0x1F000, 0x1FB00, 2),
          (0x1D400, 0x1D800, 1), (0x20000, 0x2A6E0, 1), (0xE0000, 0xE01F0, 1)]


def random_strings(seed):
    rng = random.Random(seed)

    def character():
        lo, hi, _ = rng.choices(RANGES, [r[2] for r in RANGES])[0]
        return chr(rng.randrange(lo, hi))

    def piece():
        kind = rng.random()
        if kind < 0.3:
            return rng.choice(WORDS)
        if kind < 0.5:
            return rng.choice(SPACES) * rng.choice([1, 1, 1, 2, 5])
        if kind < 0.6:
            return "".join(rng.choice("0123456789") for _ in range(rng.randrange(1, 12)))
        return "".join(character() for _ in range(rng.randrange(1, 8)))

    return ["".join(piece() for _ in range(rng.randrange(1, 24))) for _ in range(N_STRINGS)]


def ours(vocabulary, strings):
    done = subprocess.run([BUILD / "tests/conformance/tokenize_cli", vocabulary], check=True, capture_output=True,
                          input=b"".join(s.encode() + b"\0" for s in strings))
    return [json.loads(line) for line in done.stdout.splitlines()]


def fields(name):
    path = VECTORS / f"{name}.gguf"
    if not path.exists():
        pytest.skip(f"no reference vocabulary at {path}")
    f = gguf.GGUFReader(path).fields
    get = lambda key: f["tokenizer.ggml." + key].contents() if "tokenizer.ggml." + key in f else None  # noqa: E731
    return path, get


def check(strings, got, expected):
    assert len(got) == len(expected) == len(strings)
    different = [(s, a, b) for s, a, b in zip(strings, got, expected) if a != b]
    assert not different, (len(different), different[0])


@pytest.mark.parametrize("name", PATTERNS)
def test_byte_level_bpe_equals_hugging_face(name):
    hf = pytest.importorskip("tokenizers")
    path, get = fields(name)
    tokens, kinds = get("tokens"), get("token_type")
    merges = [(m[:m.index(" ", 1)], m[m.index(" ", 1) + 1:]) for m in get("merges")]
    vocab = {t: i for i, t in enumerate(tokens) if kinds[i] != 3}
    t = hf.Tokenizer(hf.models.BPE(vocab=vocab, merges=merges, ignore_merges=name == "llama-bpe"))
    splits = [hf.pre_tokenizers.Split(hf.Regex(p), "isolated") for p in PATTERNS[name]]
    t.pre_tokenizer = hf.pre_tokenizers.Sequence(
        splits + [hf.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.add_tokens([hf.AddedToken(x, normalized=False) for x, k in zip(tokens, kinds) if k == 4 and "fim" not in x
                  and x not in ("<|repo_name|>", "<|file_sep|>")])
    strings = random_strings(name)
    check(strings, ours(path, strings), [e.ids for e in t.encode_batch(strings, add_special_tokens=False)])


def test_sentencepiece_equals_sentencepiece():
    spm = pytest.importorskip("sentencepiece")
    pytest.importorskip("google.protobuf")
    from sentencepiece import sentencepiece_model_pb2
    path, get = fields("llama-spm")
    m = sentencepiece_model_pb2.ModelProto()
    for piece, kind, score in zip(get("tokens"), get("token_type"), get("scores")):
        m.pieces.add(piece=piece, score=float(score), type=kind)
    m.trainer_spec.model_type = 2
    m.trainer_spec.byte_fallback = True
    m.trainer_spec.pad_id = -1
    m.normalizer_spec.name = "identity"
    m.normalizer_spec.remove_extra_whitespaces = False
    reference = spm.SentencePieceProcessor(model_proto=m.SerializeToString())
    strings = random_strings("llama-spm")
    check(strings, ours(path, strings), reference.encode(strings))
