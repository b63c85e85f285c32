"""Tokenizers of others, over a vocabulary in a GGUF file or one trained here: Hugging Face `tokenizers` for byte-level BPE,
with the patterns as the models' own tokenizer.json files state them, and `sentencepiece`. And strings to try them on."""
import collections
import io
import json
import random
import re

import sentencepiece
import tokenizers as hf
from sentencepiece import sentencepiece_model_pb2

from numpy_model import Reader

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}HAN]*[\p{Ll}\p{Lm}\p{Lo}\p{M}HAN]+ENDING"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}HAN]+[\p{Ll}\p{Lm}\p{Lo}\p{M}HAN]*ENDING")


def cased(ending="", han=""):
    return CASED.replace("HAN", han).replace("ENDING", ending)


ENDING = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4O = cased(ENDING) + r"|\p{N}{1,3}" + REST
DEEPSEEK_V3 = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
               r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
               r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
BAILING = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
           r"|\s*[\r\n]|\s+(?!\S)|\s+")
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
QWEN2 = LLAMA3.replace("{1,3}", "")
# What is published for each name of tokenizer.ggml.pre. Missing: default and falcon, which are patterns of a converter, and
# deepseek-llm and deepseek-coder, whose published ones take white space where everybody else's reading does not.
PATTERNS = {
    **dict.fromkeys(["gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4", "granite-docling", "trillion"], [GPT2]),
    **dict.fromkeys(["starcoder", "refact", "command-r", "smollm", "codeshell", "minerva-7b", "exaone", "mellum2"], [r"\p{N}", GPT2]),
    **dict.fromkeys(["llama-bpe", "llama3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "dbrx", "smaug-bpe",
                     "glm4", "chatglm-bpe"], [LLAMA3]),
    **dict.fromkeys(["qwen2", "deepseek-r1-qwen", "megrez", "kormo", "stablelm2", "hunyuan", "solar-open", "grok-2"], [QWEN2]),
    "qwen35": [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
               r"|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "tekken": [cased() + r"|\p{N}" + REST],
    **dict.fromkeys(["gpt-4o", "llama4", "kanana2", "minimax-m2"], [GPT4O]),
    "kimi-k2": [r"[\p{Han}]+|" + cased(ENDING, r"&&[^\p{Han}]") + r"|\p{N}{1,3}" + REST.replace("/", "")],
    "youtu": [r"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+", GPT4O.replace("{1,3}", "")],
    **dict.fromkeys(["tiny_aya", "cohere2moe"], [r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O]),
    "minicpm5": [r"\p{N}{1,3}", GPT2],
    **dict.fromkeys(["bailingmoe", "bailingmoe2", "llada-moe"], [BAILING]),
    "seed-coder": [QWEN2.replace(r"]+[\r\n]*", r"\r\n]+")],
    **dict.fromkeys(["deepseek-v3", "hunyuan-dense", "joyai-llm"], DEEPSEEK_V3),
    **dict.fromkeys(["bloom", "poro-chat", "gpt3-finnish"], [BLOOM]),
    "viking": [BLOOM, r"\p{N}"],
    "exaone-moe": [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
                   r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"],
    "afmoe": [r"\p{Nd}{1,510}(?=(?>\p{Nd}{510})*(?:\P{Nd}|$))|\G\p{Nd}{510}", r"\A\p{Nd}{1,2}(?=\p{Nd}{3}+\z)",
              r"\A\p{Nd}{3}|\G\p{Nd}{3}",
              "(?:[\u4E00-\u9FFF\u3040-\u309F\u30A0-\u30FF\u3400-\u4DBF\uf900-\uFAFF\uFF65-\uFF9F\u2F00-\u2FDF]+|[\u0E00-\u0E7F]+"
              "|[\u0E80-\u0EFF]+|[\u1780-\u17FF]+|[\u1000-\u109F\uAA60-\uAA7F\uA9E0-\uA9FF]+|[\uAC00-\uD7AF\u1100-\u11FF]+)",
              DEEPSEEK_V3[2]],
    "jais-2": [LLAMA3.replace(r"|\s+(?!\S)|\s+", "".join(rf"|\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4, "1,2")) + r"|\s{1}")],
    "joined": [],  # none of them: merges of a vocabulary trained with it cross every border
}
# Words that are tokens stay whole, whatever the merges say.
WHOLE_WORDS = {"llama-bpe", "llama3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "tekken", "minicpm5", "youtu"}
# Of random text for the patterns: what one of them parts and another does not.
BORDERS = ["camelCase", "HTTPServer", "X's", "we'LL", "1234567", "12a", "٣٤٥٦", "x/\n", "!!\r\n", "\n \n", "漢字カナ", "漢x", "々", "한글漢",
           "ㄱ한", "한，", "。、漢", "ㄅㄆ漢", "“a”", "नि", "a\u0301B", "(.)", "。x", "'s", "ǅa", "_a", " /", "a b c",
           "ไทย", "ไทยລາວ", "ខ្មែរမြန်မာ", "漢한", "1" * 40 + "２a", " " * 43, "\t" * 9 + "x"]
SPACES = [" ", "  ", "    ", "\t", "\n", "\r\n", "\n\n", "\v", "\f", "\r", "\u0085", "\u00a0", "\u180e", "\u2003",
          "\u2028", "\u200b", "\u3000", "\ufeff"]
WORDS = ["Hello", "world", "HTML5", "naïve", "don't", "I'LL", "they've", "’s", "e\u0301", "👩‍👩‍👧‍👦", "🇫🇷", "नमस्ते", "السلام",
         "สวัสดี", "한국어", "日本語のテキスト", "ǅ", "ß", "½", "²", "Ⅷ", "٣", "१२", "user@example.org", "::=", "/**", "...", "▁"]
RANGES = [(0x20, 0x7F, 8), (1, 0x20, 1), (0x80, 0x250, 3), (0x300, 0x530, 3), (0x531, 0x700, 2), (0x900, 0xE00, 2),
          (0x1E00, 0x2C00, 3), (0x3000, 0xA000, 3), (0xAC00, 0xD7A4, 1), (0xF900, 0xFFFE, 1), (0x1F000, 0x1FB00, 2),
          (0x1D400, 0x1D800, 1), (0x20000, 0x2A6E0, 1), (0xE0000, 0xE01F0, 1)]
CONTROL, USER_DEFINED = 3, 4  # tokenizer.ggml.token_type


def random_strings(seed, n, more=()):
    """more: words beside WORDS, such as control tokens."""
    rng = random.Random(seed)
    words = WORDS + list(more)

    def character():
        lo, hi, _ = rng.choices(RANGES, [r[2] for r in RANGES])[0]
        return chr(rng.randrange(lo, hi))

    def piece():
        kind = rng.random()
        if kind < 0.3:
            return rng.choice(words)
        if kind < 0.5:
            return rng.choice(SPACES) * rng.choice([1, 1, 1, 2, 5])
        if kind < 0.6:
            return "".join(rng.choice("0123456789") for _ in range(rng.randrange(1, 12)))
        return "".join(character() for _ in range(rng.randrange(1, 8)))

    return ["".join(piece() for _ in range(rng.randrange(1, 24))) for _ in range(n)]


def vocabulary(path):
    """get(key): what the file has as tokenizer.ggml.KEY, or None."""
    f = Reader(path).fields
    return lambda key: f["tokenizer.ggml." + key].contents() if "tokenizer.ggml." + key in f else None


def pre_tokenizer(name):
    splits = [hf.pre_tokenizers.Split(hf.Regex(p), "isolated") for p in PATTERNS[name]]
    return hf.pre_tokenizers.Sequence(
        splits + [hf.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def bpe(get, name, special=False):
    """encode(strings) -> lists of ids. special: control tokens are parsed."""
    tokens, kinds = get("tokens"), get("token_type")
    merges = [(m[:m.index(" ", 1)], m[m.index(" ", 1) + 1:]) for m in get("merges")]
    vocab = {t: i for i, t in enumerate(tokens) if special or kinds[i] != CONTROL}
    t = hf.Tokenizer(hf.models.BPE(vocab=vocab, merges=merges, ignore_merges=name in WHOLE_WORDS))
    t.pre_tokenizer = pre_tokenizer(name)
    t.add_tokens([hf.AddedToken(x, normalized=False) for x, k in zip(tokens, kinds)
                  if k == USER_DEFINED and "fim" not in x and x not in ("<|repo_name|>", "<|file_sep|>")])
    if special:
        t.add_special_tokens([hf.AddedToken(x, normalized=False, special=True)
                              for x, k in zip(tokens, kinds) if k == CONTROL])
    return lambda strings: [e.ids for e in t.encode_batch(strings, add_special_tokens=False)]


def gemma4(get, special=False):
    """The same of Gemma 4's: characters and not bytes merge, spaces are U+2581, lines are apart from line breaks, and a run
    of line breaks that is a token is one whatever the merges say."""
    tokens, kinds = get("tokens"), get("token_type")
    merges = [(m[:m.index(" ", 1)], m[m.index(" ", 1) + 1:]) for m in get("merges")]
    plain = {t: i for i, (t, k) in enumerate(zip(tokens, kinds)) if k != CONTROL}
    t = hf.Tokenizer(hf.models.BPE(vocab=plain, merges=merges, byte_fallback=True, unk_token="<unk>"))
    t.normalizer = hf.normalizers.Replace(" ", "\u2581")
    whole = [x for x, k in zip(tokens, kinds) if k == USER_DEFINED or special and k == CONTROL]
    parts = re.compile("(" + "|".join(map(re.escape, sorted(whole, key=len, reverse=True))) + r"|\n+|[^\n]+?(?=$|\n|"
                       + "|".join(map(re.escape, whole)) + "))")

    def encode(text):
        ids = []
        for part in parts.findall(text):
            if part in whole or not part.strip("\n") and part in plain:
                ids.append(tokens.index(part))
            else:
                ids += t.encode(part, add_special_tokens=False).ids
        return ids
    return lambda strings: [encode(s) for s in strings]


def spm(get, special=False):
    """The same of a SentencePiece vocabulary."""
    m = sentencepiece_model_pb2.ModelProto()
    for piece, kind, score in zip(get("tokens"), get("token_type"), get("scores")):
        m.pieces.add(piece=piece, score=float(score), type=kind)
    m.trainer_spec.model_type = 2
    m.trainer_spec.byte_fallback = True
    m.trainer_spec.pad_id = -1
    m.normalizer_spec.name = "identity"
    m.normalizer_spec.remove_extra_whitespaces = False
    reference = sentencepiece.SentencePieceProcessor(model_proto=m.SerializeToString())
    if not special:
        return reference.encode
    control = {t: i for i, (t, k) in enumerate(zip(get("tokens"), get("token_type"))) if k == CONTROL}
    between = re.compile("(" + "|".join(map(re.escape, control)) + ")")
    return lambda strings: [[i for part in between.split(s) if part
                             for i in ([control[part]] if part in control else reference.encode(part))] for s in strings]


def train_bpe(texts, name, n_vocab):
    """tokens and merges, as a GGUF file has them."""
    t = hf.Tokenizer(hf.models.BPE())
    t.pre_tokenizer = pre_tokenizer(name)
    t.train_from_iterator(texts, hf.trainers.BpeTrainer(
        vocab_size=n_vocab, initial_alphabet=hf.pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    trained = json.loads(t.to_str())["model"]
    tokens = sorted(trained["vocab"], key=trained["vocab"].get)
    return tokens, [" ".join(m) for m in trained["merges"]]


def train_gemma4(texts, n_vocab):
    """tokens, kinds and merges, as a GGUF file has them."""
    t = hf.Tokenizer(hf.models.BPE())
    t.normalizer = hf.normalizers.Replace(" ", "\u2581")
    t.pre_tokenizer = hf.pre_tokenizers.Split(hf.Regex(r"[^\n]+|\n+"), "isolated")
    # The alphabet is chosen here: of characters that are as frequent the trainer keeps any.
    n = collections.Counter("".join(texts).replace(" ", "\u2581"))
    alphabet = sorted(n, key=lambda c: (-n[c], c))[:300]
    t.train_from_iterator(texts, hf.trainers.BpeTrainer(vocab_size=n_vocab, initial_alphabet=alphabet,
                                                        limit_alphabet=len(alphabet), show_progress=False))
    trained = json.loads(t.to_str())["model"]
    own = sorted(trained["vocab"], key=trained["vocab"].get)
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    lines = ["\n" * n for n in (3, 7) if "\n" * n not in own]  # which no merge makes
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|tool>", *bytes_, *own, *lines]
    kinds = [CONTROL] * 3 + [2] + [CONTROL] * 4 + [USER_DEFINED] + [6] * 256 + [1] * len(own + lines)
    return tokens, kinds, [" ".join(m) for m in trained["merges"]]


def train_spm(texts, n_vocab):
    """tokens, kinds and scores, as a GGUF file has them. Runs of spaces are the last to be made."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=out, vocab_size=n_vocab, model_type="bpe", byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, allow_whitespace_only_pieces=True,
        character_coverage=0.999, num_threads=1, minloglevel=2)
    m = sentencepiece_model_pb2.ModelProto.FromString(out.getvalue())
    run = [len(p.piece) > 1 and not p.piece.strip("\u2581") for p in m.pieces]
    return ([p.piece for p in m.pieces], [p.type for p in m.pieces],
            [p.score - len(m.pieces) * r for p, r in zip(m.pieces, run)])
