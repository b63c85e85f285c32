"""Trains the built-in model: tokenizer, network, checkpoint. One command; minutes on a GPU.

    python3 train.py --out /tmp/hokku-builtin

The dialogues are made while the network learns, by feeder processes that take turns: batch n comes from feeder
n mod N and from its seed alone, so a run repeats (but for the order in which a GPU sums) with the same --feeders.
"""
import argparse
import json
import math
import multiprocessing
import os
import random
import threading
import time
from queue import Queue

import numpy as np
import torch

import bpe as bpe_module
import data
import heldout
from bpe import Bpe
from network import Network, Shape


def orthogonal(g, steps=5):
    """The nearest semi-orthogonal matrix, nearly: quintic Newton-Schulz (Jordan et al. 2024, Muon)."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    for _ in range(steps):
        y = x @ x.mT
        x = a * x + (b * y + c * y @ y) @ x
    return x.mT if tall else x


class Muon:
    """Momentum whose step is made orthogonal; for the matrices inside the blocks."""

    def __init__(self, params, momentum=0.95, decay=0.01):
        self.groups = {}
        for p in params:
            self.groups.setdefault(p.shape, []).append(p)
        self.buffers = {shape: torch.zeros(len(ps), *shape, device=ps[0].device) for shape, ps in self.groups.items()}
        self.momentum, self.decay = momentum, decay

    @torch.no_grad()
    def step(self, lr):
        for shape, ps in self.groups.items():
            g = torch.stack([p.grad for p in ps])
            buf = self.buffers[shape].mul_(self.momentum).add_(g, alpha=1 - self.momentum)
            update = orthogonal(g.lerp_(buf, self.momentum).bfloat16()).float() * max(1.0, shape[0] / shape[1]) ** 0.5
            torch._foreach_mul_(ps, 1 - lr * self.decay)
            torch._foreach_add_(ps, list(update.unbind()), alpha=-lr)


def drill(tokenizer, rng):
    """Nothing but copying, with every entry of the vocabulary: what names and wished words need later.

    A string of random tokens is repeated whole, or from a place that is named by its first tokens.
    Every answered token is one that induction alone can tell, so the skill forms soon.
    """
    n = rng.choice((3, 6, 12, 24, 36))
    top = min(tokenizer.n_ordinary, int(60 * 70 ** rng.random()))  # often only the commoner entries
    text = [rng.choice(tokenizer.by_rank[:top]) for _ in range(n)]
    ask, answer = "repeat: ", text
    if n > 6 and rng.random() < 0.5:
        ask, at = "go on from the last: ", rng.randrange(n - 4)
        answer = text[at + 2:]
        text = text + tokenizer.encode(": ") + text[at:at + 2]
    start, end, newline = tokenizer.ids["<|im_start|>"], tokenizer.ids["<|im_end|>"], tokenizer.encode("\n")
    head = [start] + tokenizer.encode("user\n" + ask) + text + [end] + newline + [start] + tokenizer.encode("assistant\n")
    return head + answer + [end] + newline, [0] * len(head) + [1] * len(answer) + [1] + [0] * len(newline)


def feed(queue, args, index, merges):
    """Process `index` of --feeders: batches of dialogues of like length, padded, for ever.

    A batch is (ids, answered), int16 and bool of (dialogues, length): about --tokens together.
    """
    torch.set_num_threads(1)
    tokenizer = Bpe.start(merges)
    rng = random.Random(args.seed * 1000 + index)
    teacher = data.Teacher(args.seed * 1000 + index, tokenizer.pieces())
    pad, made = tokenizer.ids["<|endoftext|>"], 0
    while True:
        done = made * args.feeders / args.steps
        # first learn to copy, from short talk; then everything
        drills = max(0.02, 0.5 * (1 - done / 0.15))
        teacher.focus = max(0.0, 1 - done / 0.06)
        pool = []
        while sum(len(i) for i, _ in pool) < args.tokens * 12:
            ids, answered = drill(tokenizer, rng) if rng.random() < drills else tokenizer.chat(*teacher.dialogue())
            if len(ids) <= args.limit:
                pool.append((ids, answered))
        pool.sort(key=lambda s: len(s[0]))
        groups, group = [], []
        for sample in pool:
            if group and (len(group) + 1) * len(sample[0]) > args.tokens:
                groups.append(group)
                group = []
            group.append(sample)
        rng.shuffle(groups)
        for group in groups:
            n = -(-max(len(i) for i, _ in group) // 8) * 8
            queue.put((np.array([i + [pad] * (n - len(i)) for i, _ in group], dtype=np.int16),
                       np.array([m + [0] * (n - len(m)) for _, m in group], dtype=bool)))
            made += 1


def batches(args, tokenizer, device):
    """The feeders' batches in turn, moved to the device ahead of need."""
    context = multiprocessing.get_context("spawn")
    queues = [context.Queue(8) for _ in range(args.feeders)]
    for i, queue in enumerate(queues):
        context.Process(target=feed, args=(queue, args, i, tokenizer.merges), daemon=True).start()
    ready = Queue(8)

    def move():
        while True:
            for queue in queues:
                ids, answered = (torch.from_numpy(x) for x in queue.get())
                if device == "cuda":
                    ids, answered = ids.pin_memory(), answered.pin_memory()
                ready.put((ids.to(device, non_blocking=True).long(), answered.to(device, non_blocking=True)))

    threading.Thread(target=move, daemon=True).start()
    while True:
        yield ready.get()


def rate(done, step, warmup=100, hold=0.4):
    """Warm up, hold, then fall in a line to (nearly) nothing."""
    return min(1.0, (step + 1) / warmup) * min(1.0, max(0.005, (1 - done) / (1 - hold)))


@torch.no_grad()
def probe(model, tokenizer, seed=99):
    """A quick look while training: greedy answers, exact match by task; haiku by their word."""
    teacher = data.Teacher(seed)
    stop, result = {tokenizer.ids["<|im_end|>"], tokenizer.ids["<|endoftext|>"]}, {}

    def answer(turns):
        ids, _ = tokenizer.chat(None, turns, answer_open=True)
        return tokenizer.decode(model.generate(ids, 60, stop))

    for task, n in (("manual_turn", 16), ("sum_turn", 16), ("repeat_turn", 12), ("sort_turn", 6), ("calendar_turn", 6)):
        good = 0
        for _ in range(n):
            user, want = getattr(teacher, task)()[0]
            good += answer([(user, None)]) == want
        result[task[:-5]] = round(good / n, 2)
    good = lines = 0
    for word in (heldout.NOUNS + heldout.STRINGS)[::4]:
        text = answer([(f"Write a haiku with the word {word}.", None)])
        good += word in text
        lines += text.count("\n") == 2
    result["haiku"] = (round(good / 11, 2), round(lines / 11, 2), text)
    good = 0
    for name in heldout.NAMES[:10]:
        good += name in answer([(f"My name is {name}.", f"Nice to meet you, {name}."), teacher.sum_turn()[0],
                                teacher.manual_turn()[0], ("What is my name?", None)])
    result["name"] = good / 10
    return result


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--steps", type=int, default=13000)
    ap.add_argument("--minutes", type=float, default=1e9, help="end by then: the rate falls by the share of steps or minutes done, whichever is more")
    ap.add_argument("--tokens", type=int, default=16384, help="per step, padding included")
    ap.add_argument("--layers", type=int, default=7)
    ap.add_argument("--ff", type=int, default=768)
    ap.add_argument("--limit", type=int, default=1024, help="the longest dialogue trained on, tokens")
    ap.add_argument("--lr", type=float, default=0.02, help="of Muon")
    ap.add_argument("--adam-lr", type=float, default=3e-3)
    ap.add_argument("--feeders", type=int, default=14, help="processes that make dialogues")
    ap.add_argument("--probe", type=int, default=3000)
    ap.add_argument("--merges", help="a tokenizer that is there already (merges.json of an earlier run)")
    args = ap.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    os.makedirs(args.out, exist_ok=True)
    torch.manual_seed(args.seed)
    if args.merges:
        tokenizer = Bpe.load(args.merges)
    else:
        teacher = data.Teacher(args.seed + 1000)
        texts = [text for _ in range(20000) for turn in teacher.dialogue()[1] for text in turn]
        tokenizer = Bpe.start(bpe_module.train(texts, 4096))
    tokenizer.save(os.path.join(args.out, "merges.json"))
    stream = batches(args, tokenizer, device)

    shape = Shape(n_vocab=len(tokenizer.tokens), n_layer=args.layers, n_ff=args.ff)
    model, average = Network(shape).to(device), Network(shape).to(device)
    average.load_state_dict(model.state_dict())
    print(f"{sum(p.numel() for p in model.parameters())} parameters on {device}, vocabulary {shape.n_vocab}", flush=True)
    muon = Muon([p for n, p in model.named_parameters() if p.ndim == 2 and n.startswith("blk")])
    adam = torch.optim.AdamW([p for n, p in model.named_parameters() if p.ndim == 1 or not n.startswith("blk")],
                             lr=args.adam_lr, betas=(0.9, 0.98), weight_decay=0.0, fused=device == "cuda")

    log, begin, seen, smooth, saved_at = [], time.time(), 0, None, time.time()
    recent = torch.zeros(2, device=device)  # summed loss, answered tokens: read by the host now and then only

    def note(entry):
        log.append(entry)
        print(json.dumps(entry), flush=True)

    def save():
        target = os.path.join(args.out, "checkpoint.pt")
        torch.save({"shape": vars(shape), "merges": tokenizer.merges, "average": average.state_dict(), "log": log, "args": vars(args)},
                   target + ".new")
        os.replace(target + ".new", target)
        with open(os.path.join(args.out, "log.json"), "w") as f:
            json.dump(log, f, indent=0)

    step, done = 0, 0.0
    while done < 1.0:
        ids, answered = next(stream)
        with torch.autocast(device, torch.bfloat16):
            loss, count = model.loss_sum(ids, answered)
        (loss / count).backward()
        recent += torch.stack((loss.detach(), count.float()))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scale = rate(done, step)
        muon.step(args.lr * scale)
        adam.param_groups[0]["lr"] = args.adam_lr * scale
        adam.step()
        model.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - min(0.998, (step + 1) / (step + 20)))
        step += 1
        seen += ids.numel()
        done = max(step / args.steps, (time.time() - begin) / 60 / args.minutes)
        if step % 50 == 0 or done >= 1.0:
            total, count = recent.tolist()
            recent.zero_()
            if not math.isfinite(total):
                raise RuntimeError("the loss is not a number")
            smooth = total / count if smooth is None else 0.8 * smooth + 0.2 * total / count
            note({"step": step, "tokens": seen, "minutes": round((time.time() - begin) / 60, 2), "loss": round(smooth, 4), "rate": round(scale, 3)})
        if step % args.probe == 0 or done >= 1.0:
            note({"step": step, "probe": probe(average, tokenizer)})
        if time.time() - saved_at > 60 or done >= 1.0:
            save()
            saved_at = time.time()
    print(f"{step} steps, {seen} tokens, {(time.time() - begin) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
