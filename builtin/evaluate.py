"""Evaluates the built-in model with what its training never showed (heldout.py, phrasings.py).

    python3 evaluate.py --hokku ../build/src/hokku --model hokku-builtin.gguf
    python3 evaluate.py --checkpoint DIR/checkpoint.pt      # before there is a GGUF file

The program is asked with its default sampling and fixed seeds. `--quick` takes a fixed subset
that needs less than a minute; `--check` exits with 1 when a promise is not kept.
"""
import argparse
import json
import random
import re
import subprocess
import sys

import heldout
import phrasings
from words import NUMBER_WORDS

PROMISES = {"haiku": 0.95, "recall": 0.95, "sums": 0.90, "manual": 0.90}

HAIKU_PROMPTS = [
    "Write a haiku with the word {w}.", "Write a haiku that contains the word {w}.", "Write a haiku about the sea with the word {w}.",
    "Please write me a haiku containing the word \"{w}\".", "A haiku in which {w} appears, please.", "Write a haiku about GPUs with the word {w}.",
    "Could you compose a haiku using the word {w}?", "Write a haiku. It must contain the word {w}. Answer with the haiku only.",
    "I'd like a haiku that has the word {w} in it.", "Write a haiku about winter that mentions {w}.",
]
OTHER_TALK = ["Write a haiku about the rain.", "What is 3 + 4?", "How do I quit?", "What day comes after Monday?", "Count to five.",
              "What is the opposite of hot?", "Count from 1 to 5.", "What does -c do?", "Write a haiku with the word lantern.", "Thank you!"]
TELL = {
    "name": (["My name is {x}.", "Hi, I am {x}.", "You can call me {x}."], ["What is my name?", "Do you remember my name?", "Who am I?"]),
    "color": (["My favorite color is {x}.", "The color I like best is {x}."], ["What is my favorite color?", "Which color do I like best?"]),
    "number": (["My number is {x}.", "Please remember the number {x}."], ["What is my number?", "Which number did I tell you?"]),
    "city": (["I live in {x}.", "I am from {x}."], ["Where do I live?", "Which city am I from?"]),
    "pet": (["I have a cat called {x}.", "My dog is called {x}."], ["What is my pet called?", "What is the name of my pet?"]),
}


class Program:
    """The real program, on the CPU; one run is one conversation, a turn per line."""

    def __init__(self, hokku, model, device):
        self.command = [hokku, "-m", model, "--device", device, "--turns", "--json", "-n", "100"]

    def talk(self, turns, seed):
        run = subprocess.run(self.command + ["-s", str(seed)], input="\n".join(turns) + "\n", capture_output=True, text=True, timeout=120)
        if run.returncode != 0:
            raise SystemExit(f"hokku ended with {run.returncode}: {run.stderr.strip()}")
        decoder, answers, rest = json.JSONDecoder(), [], run.stdout.lstrip()
        while rest:
            one, end = decoder.raw_decode(rest)
            answers.append(one["text"].strip())
            rest = rest[end:].lstrip()
        if len(answers) != len(turns):
            raise SystemExit(f"{len(turns)} turns, but {len(answers)} answers")
        return answers


class Checkpoint:
    """The same questions to the network in PyTorch, with the weights as Q8_0 holds them."""

    def __init__(self, path, temp):
        import torch
        from bpe import Bpe
        from export import dequantised
        from network import Network, Shape
        self.torch, self.temp = torch, temp
        saved = torch.load(path, map_location="cpu", weights_only=True)
        self.tokenizer = Bpe.start(saved["merges"])
        self.network = Network(Shape(**saved["shape"]))
        self.network.load_state_dict({k: torch.from_numpy(dequantised(v.numpy()).copy()) if v.ndim == 2 else v
                                      for k, v in saved["average"].items()})
        self.stop = {self.tokenizer.ids[t] for t in ("<|im_end|>", "<|endoftext|>")}

    def talk(self, turns, seed):
        history, answers = [], []
        generator = self.torch.Generator().manual_seed(seed)
        for turn in turns:
            ids, _ = self.tokenizer.chat(None, history + [(turn, None)], answer_open=True)
            answer = self.tokenizer.decode(self.network.generate(ids, 100, self.stop, self.temp, generator))
            history.append((turn, answer))
            answers.append(answer.strip())
        return answers


def has_word(word, text):
    return re.search(r"(?<![\w-])" + re.escape(word.lower()) + r"(?![\w])", text.lower()) is not None


def is_haiku(text):
    lines = text.split("\n")
    return len(lines) == 3 and all(line.strip() for line in lines)


def cases(quick):
    """(promise, kind, turns, test of the last answer)"""
    rng = random.Random(2024)
    words = [("noun", w) for w in heldout.NOUNS] + [("string", w) for w in heldout.STRINGS] + [("number", w) for w in NUMBER_WORDS] + \
            [("name", w) for w in heldout.NAMES[:10]] + [("color", w) for w in heldout.COLORS]
    if quick:
        words = words[::3]
    for i, (kind, word) in enumerate(words):
        prompt = HAIKU_PROMPTS[i % len(HAIKU_PROMPTS)].replace("{w}", word)
        yield "haiku", kind, [prompt], lambda a, w=word: is_haiku(a) and has_word(w, a)
    facts = [("name", x) for x in heldout.NAMES] + [("color", x) for x in heldout.COLORS] + \
            [("number", str(n)) for n in rng.sample(range(10, 1000), 15)] + [("city", x) for x in heldout.CITIES] + \
            [("pet", x) for x in heldout.NAMES[:10]]
    if quick:
        facts = facts[::3]
    for i, (kind, x) in enumerate(facts):
        tell, ask = TELL[kind]
        turns = [tell[i % len(tell)].replace("{x}", x)] + rng.sample(OTHER_TALK, 2) + [ask[i % len(ask)]]
        yield "recall", kind, turns, lambda a, x=x: has_word(x, a)
    pairs = [(a, op, b) for op in "+-" for a in range(100) for b in range(100) if heldout.pair(a, op, b) and (op == "+" or a >= b)]
    for i, (a, op, b) in enumerate(rng.sample(pairs, 50 if quick else 150)):
        turn = ("What is {} {} {}?", "{} {} {} =", "How much is {} {} {}?")[i % 3].format(a, op, b)
        result = a + b if op == "+" else a - b
        yield "sums", op, [turn], lambda t, r=result: re.findall(r"-?\d+", t)[-1:] == [str(r)]
    questions = [(kind, *q) for kind in ("first", "second", "third", "fourth") for q in getattr(phrasings, kind.upper())]
    for kind, question, want in questions[::3] if quick else questions:
        yield "manual", kind, [question], lambda a, w=want: re.search(w, a) is not None


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--hokku")
    ap.add_argument("--model")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--checkpoint")
    ap.add_argument("--temp", type=float, default=0.5, help="for --checkpoint; a GGUF file recommends its own")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--check", action="store_true")
    ap.add_argument("--show", action="store_true", help="print every answer, not only the failed ones")
    args = ap.parse_args()
    if args.checkpoint:
        asked = Checkpoint(args.checkpoint, args.temp)
    elif args.hokku and args.model:
        asked = Program(args.hokku, args.model, args.device)
    else:
        ap.error("give --hokku and --model, or --checkpoint")
    good, total = {}, {}
    for i, (promise, kind, turns, test) in enumerate(cases(args.quick)):
        answer = asked.talk(turns, args.seed + i)[-1]
        ok = bool(test(answer))
        for key in {promise, f"{promise}/{kind}"}:
            good[key] = good.get(key, 0) + ok
            total[key] = total.get(key, 0) + 1
        if args.show or not ok:
            print(f"{'ok  ' if ok else 'FAIL'} {' | '.join(turns)} -> {answer!r}", file=sys.stderr)
    failed = False
    for key in sorted(total):
        share = good[key] / total[key]
        short = key in PROMISES and share < PROMISES[key]
        failed |= short
        print(f"{key:16} {good[key]:4} of {total[key]:4}  {100 * share:5.1f} %{'  below ' + str(PROMISES[key]) if short else ''}")
    sys.exit(1 if failed and args.check else 0)


if __name__ == "__main__":
    main()
