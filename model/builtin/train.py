"""Trains the built-in model: tokenizer, network, checkpoint. One command, any machine.

    python3 train.py --out /tmp/hokku-builtin            # on a GPU: minutes
    python3 train.py --out DIR --minutes 90 --workers 2 --parts 3  # on a processor: what there is time for

The learning rate follows the share of the work that is done (steps or minutes, whichever is
further), so a run that was given less time still ends with its rate at nothing.
"""
import argparse
import json
import math
import os
import random
import threading
import time

import torch

import bpe as bpe_module
import data
import heldout
import induction
from bpe import Bpe
from network import Network, Shape


def orthogonal(g, steps=4):
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
            g = g.lerp_(buf, self.momentum)
            kind = torch.bfloat16
            update = orthogonal(g.to(kind)).float() * max(1.0, shape[0] / shape[1]) ** 0.5
            for p, u in zip(ps, update):
                p.mul_(1 - lr * self.decay).add_(u, alpha=-lr)


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


def batches(teacher, tokenizer, budget, limit, rng):
    """Dialogues of like length together, padded; about `budget` tokens at a time, for ever."""
    pad = tokenizer.ids["<|endoftext|>"]
    while True:
        pool = []
        while sum(len(i) for i, _ in pool) < budget * 12:
            if rng.random() < teacher.drill:
                ids, mask = drill(tokenizer, rng)
            else:
                ids, mask = tokenizer.chat(*teacher.dialogue())
            if len(ids) <= limit:
                pool.append((ids, mask))
        pool.sort(key=lambda s: len(s[0]))
        groups, group = [], []
        for sample in pool:
            if group and (len(group) + 1) * len(sample[0]) > budget:
                groups.append(group)
                group = []
            group.append(sample)
        rng.shuffle(groups)
        for group in groups:
            n = max(len(i) for i, _ in group)
            yield (torch.tensor([i + [pad] * (n - len(i)) for i, _ in group]),
                   torch.tensor([m + [0] * (n - len(m)) for _, m in group]))


def rate(done, step, warmup=60, hold=0.35):
    """Warm up, hold, then fall in a line to (nearly) nothing."""
    return min(1.0, (step + 1) / warmup) * min(1.0, max(0.01, (1 - done) / (1 - hold)))


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


def replica(model, shape):
    """The same weights in memory, other gradients."""
    other = Network(shape)
    for a, b in zip(other.parameters(), model.parameters()):
        a.data = b.data
        a.requires_grad_(b.requires_grad)
    return other


class Run:
    """The state of a training run, shared by its workers."""

    JUDGED = 400  # tokens: scales the summed loss to about a mean; only the clipping sees it

    def __init__(self, args, model, average, muon, adam, tokenizer, stream, teacher, device, prepared):
        self.args, self.model, self.average, self.muon, self.adam = args, model, average, muon, adam
        self.tokenizer, self.stream, self.teacher, self.device = tokenizer, stream, teacher, device
        self.lock = threading.Lock()
        self.step = self.seen = self.gathered = self.judged = 0
        self.loss, self.smooth, self.log = 0.0, None, []
        self.begin = self.saved_at = time.time()
        self.done, self.failure, self.prepared = 0.0, None, prepared

    def work(self, network):
        if self.device == "cpu" and self.args.workers > 1:
            torch.set_num_threads(1)
        try:
            while self.done < 1.0 and not self.failure:
                with self.lock:
                    ids, mask = next(self.stream)
                ids, mask = ids.to(self.device), mask.to(self.device)
                with torch.autocast(self.device, torch.bfloat16):
                    loss, count = network.loss_sum(ids, mask)
                (loss / self.JUDGED).backward()
                with self.lock:
                    if network is not self.model:
                        for mine, p in zip(network.parameters(), self.model.parameters()):
                            if mine.grad is None:
                                continue
                            if p.grad is None:
                                p.grad, mine.grad = mine.grad, None
                            else:
                                p.grad.add_(mine.grad)
                                mine.grad.zero_()
                    self.gathered += ids.numel()
                    self.loss += loss.item()
                    self.judged += count
                    if self.gathered >= self.args.tokens * 0.9 and self.done < 1.0:
                        self.update()
        except Exception as e:  # a thread's exception must end the run, not only the thread
            self.failure = e

    def update(self):
        args = self.args
        self.done = max(self.step / args.steps, (time.time() - self.begin) / 60 / args.minutes)
        # first learn to copy, from short talk; then everything
        self.teacher.drill = max(0.02, self.args.drill * (1 - self.done / 0.25))
        self.teacher.focus = max(0.0, 1 - self.done / 0.10) if not args.resume else 0.0
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        scale = rate(min(self.done, 1.0), self.step)
        self.muon.step(args.lr * scale)
        for group in self.adam.param_groups:
            group["lr"] = args.adam_lr * scale
        self.adam.step()
        self.model.zero_grad(set_to_none=False)
        keep = min(0.995, (self.step + 1) / (self.step + 20))
        with torch.no_grad():
            for a, p in zip(self.average.parameters(), self.model.parameters()):
                a.lerp_(p, 1 - keep)
        self.step += 1
        self.seen += self.gathered
        loss = self.loss / max(1, self.judged)
        if not math.isfinite(loss):
            raise RuntimeError("the loss is not a number")
        self.smooth = loss if self.smooth is None else 0.95 * self.smooth + 0.05 * loss
        self.gathered = self.judged = 0
        self.loss = 0.0
        if self.step % 20 == 0:
            self.note({"step": self.step, "tokens": self.seen, "minutes": round((time.time() - self.begin) / 60, 2),
                       "loss": round(self.smooth, 4), "rate": round(scale, 3), "norm": round(float(norm), 2)})
        if self.step % args.probe == 0 or self.done >= 1.0:
            self.note({"step": self.step, "probe": probe(self.average, self.tokenizer)})
        if time.time() - self.saved_at > 120 or self.done >= 1.0:
            self.save()

    def note(self, entry):
        self.log.append(entry)
        print(json.dumps(entry), flush=True)

    def save(self):
        self.saved_at = time.time()
        target = os.path.join(self.args.out, "checkpoint.pt")
        torch.save({"shape": vars(self.model.s), "merges": self.tokenizer.merges, "raw": self.model.state_dict(),
                    "average": self.average.state_dict(), "log": self.log, "args": vars(self.args), "seen": self.seen, "prepared": self.prepared}, target + ".new")
        os.replace(target + ".new", target)
        with open(os.path.join(self.args.out, "log.json"), "w") as f:
            json.dump(self.log, f, indent=0)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--steps", type=int, default=8000)
    ap.add_argument("--minutes", type=float, default=1e9)
    ap.add_argument("--tokens", type=int, default=4096, help="per step, padding included")
    ap.add_argument("--layers", type=int, default=7)
    ap.add_argument("--ff", type=int, default=768)
    ap.add_argument("--limit", type=int, default=640, help="the longest dialogue trained on")
    ap.add_argument("--lr", type=float, default=0.02)
    ap.add_argument("--adam-lr", type=float, default=3e-3)
    ap.add_argument("--workers", type=int, default=1, help="on a processor: one per core, each single-threaded")
    ap.add_argument("--parts", type=int, default=1, help="batches that make one step")
    ap.add_argument("--probe", type=int, default=600)
    ap.add_argument("--merges", help="a tokenizer that is there already (merges.json of an earlier run)")
    ap.add_argument("--prepare", action="store_true", help="begin with an induction head (induction.py): for runs with few tokens")
    ap.add_argument("--drill", type=float, default=0.5, help="share of copying drills at the start")
    ap.add_argument("--resume", help="a checkpoint to go on from (its weights and tokenizer)")
    args = ap.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    os.makedirs(args.out, exist_ok=True)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)

    merges_path = os.path.join(args.out, "merges.json")
    if args.resume:
        saved = torch.load(args.resume, map_location="cpu", weights_only=True)
        tokenizer = Bpe([bpe_module.BYTES[b] for b in range(256)], [tuple(m) for m in saved["merges"]])
    elif args.merges:
        tokenizer = Bpe.load(args.merges)
    else:
        teacher = data.Teacher(args.seed + 1000)
        texts = [text for _ in range(20000) for turn in teacher.dialogue()[1] for text in turn]
        tokenizer = Bpe([bpe_module.BYTES[b] for b in range(256)], bpe_module.train(texts, 4096))
    tokenizer.save(merges_path)

    shape = Shape(n_vocab=len(tokenizer.tokens), n_layer=args.layers, n_ff=args.ff)
    model = Network(shape)
    prepared = args.prepare or bool(args.resume and saved.get("prepared"))
    if args.resume:
        model = Network(Shape(**saved["shape"]))
        model.load_state_dict(saved["raw"])
        shape = model.s
    elif args.prepare:
        induction.prepare(model)
    model = model.to(device)
    for name, p in model.named_parameters():
        p.requires_grad_(not (prepared and induction.frozen(name)))
    average = Network(shape).to(device)
    average.load_state_dict(model.state_dict())
    n_params = sum(p.numel() for p in model.parameters())
    print(f"{n_params} parameters on {device}, vocabulary {shape.n_vocab}", flush=True)

    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    matrices = [p for n, p in trained if p.ndim == 2 and n.startswith("blk")]
    others = [p for n, p in trained if p.ndim == 1 or not n.startswith("blk")]
    muon = Muon(matrices)
    adam = torch.optim.AdamW(others, lr=args.adam_lr, betas=(0.9, 0.98), weight_decay=0.0)

    teacher = data.Teacher(args.seed, tokenizer.pieces())
    stream = batches(teacher, tokenizer, args.tokens // args.parts, args.limit, rng)
    run = Run(args, model, average, muon, adam, tokenizer, stream, teacher, device, prepared)
    if args.workers > 1:
        # Each worker has its own gradients for the shared weights. A step is due when enough tokens
        # have come together, whoever brought them: on a busy machine nobody waits for a slow one
        # (its gradients join the next step), at the price that such a run does not repeat bit for bit.
        threads = [threading.Thread(target=run.work, args=(replica(model, shape),)) for _ in range(args.workers)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    else:
        run.work(model)
    if run.failure:
        raise run.failure
    print(f"{run.step} steps, {run.seen} tokens, {(time.time() - run.begin) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
