"""Byte-level BPE with the `qwen2` pre-tokenizer: the trainer and the encoder of the built-in model.

The merges are learned in two stages. First inside words, without the space (or the quote)
before them; then, for frequent words only, the space joins the whole word. So an unknown
word has the same pieces after a space, after a quote and at the start of a line, which is
what a small model needs to copy it.
"""
import json
from collections import Counter, defaultdict

import regex

PATTERN = regex.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_alphabet():
    """Printable stand-ins for the 256 bytes (the GPT-2 table): byte -> character."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, extra = {}, 0
    for b in range(256):
        if b in keep:
            table[b] = chr(b)
        else:
            table[b] = chr(256 + extra)
            extra += 1
    return table


BYTES = byte_alphabet()
BACK = {c: b for b, c in BYTES.items()}


def visible(text):
    return "".join(BYTES[b] for b in text.encode())


def merge_word(symbols, pair, joined):
    out, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == pair:
            out.append(joined)
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


def learn(counts, n):
    """The n most frequent merges, one at a time; ties fall to the smaller pair."""
    words = [list(w) for w in counts]
    freq = list(counts.values())
    pairs, where = Counter(), defaultdict(set)
    for i, w in enumerate(words):
        for p in zip(w, w[1:]):
            pairs[p] += freq[i]
            where[p].add(i)
    merges = []
    while len(merges) < n and pairs:
        best = min(pairs, key=lambda p: (-pairs[p], p))
        if pairs[best] < 2:
            break
        merges.append(best)
        joined = best[0] + best[1]
        for i in where.pop(best):
            old, new = words[i], merge_word(words[i], best, joined)
            for p in zip(old, old[1:]):
                pairs[p] -= freq[i]
                if pairs[p] <= 0:
                    del pairs[p]
            for p in zip(new, new[1:]):
                pairs[p] += freq[i]
                where[p].add(i)
            words[i] = new
        pairs.pop(best, None)
    return merges


def train(texts, n_vocab, inner_share=0.66):
    counts = Counter()
    for text in texts:
        counts.update(PATTERN.findall(text))
    n_merges = n_vocab - 256 - len(SPECIALS)
    inner = Counter()
    for word, n in counts.items():
        split = len(word) > 1 and not word[0].isalpha() and word[1].isalpha() and word[1:].isalpha()
        inner[visible(word[1:] if split else word)] += n
    merges = learn(inner, int(n_merges * inner_share))
    bpe = Bpe([BYTES[b] for b in range(256)], merges)
    known = set(a + b for a, b in merges)
    for word, n in counts.most_common():
        if len(merges) == n_merges:
            break
        w = visible(word)
        if n < 40:
            break
        # short strings are often pieces of unknown words: they must be very frequent
        long_enough = len(word) > 3 or n > 1000
        if long_enough and word[0] == " " and word[1:].isalpha() and w not in known:
            if bpe.word(word[1:]) == [w[1:]]:
                merges.append((w[0], w[1:]))
                known.add(w)
    if len(merges) < n_merges:
        # rarely used room: more pieces inside words
        have = set(merges)
        more = [m for m in learn(inner, n_merges * 2) if m not in have and m[0] + m[1] not in known]
        merges += more[:n_merges - len(merges)]
    return merges


class Bpe:
    def __init__(self, base, merges):
        self.merges = [tuple(m) for m in merges]
        self.rank = {m: i for i, m in enumerate(self.merges)}
        self.tokens = list(base) + [a + b for a, b in self.merges] + SPECIALS
        self.n_ordinary = len(self.tokens) - len(SPECIALS)
        # letters first, then the merges in their order, then the other bytes
        letters = [BYTES[b] for b in b"etaoinshrdlucmfwypvbgkjqxz"]
        rest = [t for t in self.tokens[256:self.n_ordinary]] + [t for t in self.tokens[:256] if t not in letters]
        index = {t: i for i, t in enumerate(self.tokens)}
        self.by_rank = [index[t] for t in letters + rest]
        self.ids = {t: i for i, t in enumerate(self.tokens)}
        assert len(self.ids) == len(self.tokens), "a token appears twice"
        self.cache = {}

    @staticmethod
    def start(merges):
        """The tokenizer of these merges over the 256 bytes."""
        return Bpe([BYTES[b] for b in range(256)], merges)

    def word(self, word):
        symbols = list(visible(word))
        while len(symbols) > 1:
            best = min(zip(symbols, symbols[1:]), key=lambda p: self.rank.get(p, 1 << 30))
            if best not in self.rank:
                break
            symbols = merge_word(symbols, best, best[0] + best[1])
        return symbols

    def encode(self, text):
        out = []
        for word in PATTERN.findall(text):
            ids = self.cache.get(word)
            if ids is None:
                ids = [self.ids[s] for s in self.word(word)]
                if len(self.cache) < 200000:
                    self.cache[word] = ids
            out += ids
        return out

    def decode(self, ids):
        return bytes(BACK[c] for i in ids if i < len(self.tokens) - len(SPECIALS) for c in self.tokens[i]) \
            .decode("utf-8", "replace")

    def pieces(self):
        """Vocabulary entries that are plain lower-case letters: building blocks for unseen words."""
        return [t for t in self.tokens if t.isascii() and t.isalpha() and t.islower()]

    def save(self, path):
        with open(path, "w") as f:
            json.dump([" ".join(m) for m in self.merges], f, indent=0, ensure_ascii=False)

    @staticmethod
    def load(path):
        with open(path) as f:
            return Bpe.start([tuple(m.split(" ")) for m in json.load(f)])

    # -- ChatML -----------------------------------------------------------------------------

    def chat(self, system, turns, answer_open=False):
        """ids and a mask that is 1 on every token that an assistant must produce."""
        start, end = self.ids["<|im_start|>"], self.ids["<|im_end|>"]
        newline = self.encode("\n")
        ids, mask = [], []

        def say(role, text, judged):
            head = [start] + self.encode(role + "\n")
            body = self.encode(text) + [end]
            ids.extend(head + body + newline)
            mask.extend([0] * len(head) + [judged] * len(body) + [0] * len(newline))

        if system is not None:
            say("system", system, 0)
        for user, answer in turns:
            say("user", user, 0)
            if answer is not None:
                say("assistant", answer, 1)
        if answer_open:
            ids.extend([start] + self.encode("assistant\n"))
            mask.extend([0] * (len(ids) - len(mask)))
        return ids, mask
