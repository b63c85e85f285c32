"""Every number that hokku tells a person, computed again from the file: by NumPy (tests/vectors/numpy_model.py), or by hand."""
import json
import math
import pathlib
import re
import subprocess
import sys

import gguf
import numpy as np
import pytest
from conftest import ROOT, STORY, model
from test_repl import chat  # noqa: F401

sys.path.insert(0, str(ROOT / "tests/vectors"))
from numpy_model import Model, log_softmax  # noqa: E402

BUILTIN = ROOT / "builtin/hokku-builtin.gguf"
SHAPES = {
    "untied-f32": "--arch llama --layers 2 --embd 96 --heads 6 --kv-heads 2 --head-dim 16 --ff 160 --types F32 --vocab 700 --no-tied",
    "tied-q8": "--arch qwen2 --layers 3 --embd 96 --heads 3 --kv-heads 1 --head-dim 40 --ff 160 --types Q8_0 --vocab 700 --tied",
    "experts": "--arch qwen3moe --layers 2 --embd 256 --heads 4 --kv-heads 2 --head-dim 64 --ff 256 --vocab 700 --experts 4"
               " --experts-used 2 --expert-ff 256",
    # windows in layers 0, 2 and 4
    "windowed": "--arch gpt-oss --layers 5 --embd 96 --heads 6 --kv-heads 2 --head-dim 32 --ff 64 --types F16 --vocab 700 --swa 40"
                " --experts 4 --experts-used 2 --expert-ff 64 --ctx 200000",
}
HAIKU = "Write a haiku about the sea, the moon and an old boat.\n" * 12


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """made(name, more options) -> path of a generated model."""
    folder = tmp_path_factory.mktemp("models")

    def make(name, *more):
        path = folder / ("-".join([name, *map(str, more)]) + ".gguf")
        if not path.exists():
            subprocess.run([sys.executable, ROOT / "tests/make_gguf.py", path, "--std", "0.08", *SHAPES[name].split(),
                            *map(str, more)], check=True, capture_output=True)
        return path
    return make


@pytest.fixture(params=["untied-f32", "tied-q8", "stories", "built-in"])
def path(request, made):
    """stories: SentencePiece, every text begins with BOS."""
    return BUILTIN if request.param == "built-in" else model("stories") if request.param == "stories" else made(request.param)


def ids_of(hokku, path, file, *options):
    return json.loads(hokku("tokenize", "-m", path, *options, file).stdout)


# ------------------------------------------------------------------------------------------- probabilities


@pytest.mark.parametrize("window", [32, 33])
def test_perplexity_is_that_of_the_transformer(hokku, path, tmp_path, window):
    """Windows side by side, each begun with BOS where the model wants one, the second half scored."""
    file = tmp_path / "t"
    file.write_text(HAIKU)
    r = hokku("perplexity", "-m", path, "-f", file, "-c", window, "-b", 20, "--json", "--device", "cpu")
    assert r.returncode == 0, r.stderr
    got = json.loads(r.stdout)
    ids, oracle = ids_of(hokku, path, file, "--bos"), Model(path)
    bos = oracle_bos(path)
    nll = []
    for at in range(0, len(ids) - window + 1, window):
        w = np.array(ids[at:at + window])
        if bos is not None:
            w[0] = bos
        p = oracle.logprobs(w)
        nll += [-p[i, w[i + 1]] for i in range(window // 2, window - 1)]
    assert len(nll) > 60 and np.std(nll) > 0.3
    assert (got["window"], got["windows"], got["scored_tokens"]) == (window, len(ids) // window, len(nll))
    assert abs(got["nll"] - np.mean(nll)) < 0.004, (got["nll"], np.mean(nll))
    assert abs(got["perplexity"] / math.exp(np.mean(nll)) - 1) < 0.004
    error = np.std(nll, ddof=1) / math.sqrt(len(nll)) * math.exp(np.mean(nll))
    assert abs(got["error"] / error - 1) < 0.01, (got["error"], error)
    said = hokku("perplexity", "-m", path, "-f", file, "-c", window, "-b", 20, "--device", "cpu").stdout.decode()
    assert said.startswith(f"perplexity {got['perplexity']:.4f} +/- {got['error']:.4f} ({got['windows']} windows of {window} tokens")


def test_scores_are_those_of_the_transformer(hokku, path, tmp_path):
    """Of every token that it has, if more are asked for; the same in one chunk and in two that end with the text."""
    file = tmp_path / "t"
    file.write_text(HAIKU[:80])
    ids = ids_of(hokku, path, file, "--bos", "--special")
    want = Model(path).logprobs(np.array(ids))
    said = set()
    for batch in (len(ids), len(ids) // 2):
        r = hokku("score", "-m", path, "--top", want.shape[1] + 1 if want.shape[1] <= 64 else 5, "-b", batch, "--device", "cpu", file)
        assert r.returncode == 0, r.stderr
        said.add(re.sub(rb'-?[0-9]+[.][0-9]+', b"", r.stdout))
        got = json.loads(r.stdout)
        assert got["tokens"] == ids and len(got["positions"]) == len(ids)
        for i, position in enumerate(got["positions"]):
            order = np.argsort(-want[i])
            assert all(abs(p - want[i, t]) < 0.02 for t, p in position["top"])
            assert abs(position["top"][0][1] - want[i, order[0]]) < 0.02 and abs(position["top"][-1][1] - want[i, order[len(position["top"]) - 1]]) < 0.02
            assert ("next" in position) == (i + 1 < len(ids))
        nll = -np.mean([want[i, t] for i, t in enumerate(ids[1:])])
        assert abs(got["nll_per_token"] - nll) < 0.004


def test_many_rows_of_an_expert_have_the_bits_of_few(hokku, made, tmp_path):
    """From 16 rows of one expert on its input is packed (src/cpu/tiles.h); pieces of 8 tokens never have as many."""
    (tmp_path / "t").write_text(HAIKU)
    for kind in ("Q4_K", "Q8_0"):
        path = made("experts", "--types", kind)
        said = {hokku("score", "-m", path, "--device", "cpu", "-b", batch, tmp_path / "t").stdout for batch in (8, 100, 512)}
        assert len(said) == 1 and len(json.loads(said.pop())["tokens"]) > 100


def test_a_text_that_cannot_be_scored_is_refused(hokku, made, tmp_path):
    path, file = made("tied-q8"), tmp_path / "t"
    file.write_text("")
    r = hokku("score", "-m", path, "--device", "cpu", file)
    assert (r.returncode, r.stdout) == (2, b"") and b"the text is empty" in r.stderr
    file.write_text("a b c d e f g h i j k l")
    n = len(ids_of(hokku, path, file))
    full = hokku("score", "-m", path, "--device", "cpu", "-c", n, file)
    assert full.returncode == 0, full.stderr
    r = hokku("score", "-m", path, "--device", "cpu", "-c", n - 1, file)
    assert (r.returncode, r.stdout) == (5, b"") and f"{n} tokens but the context holds {n - 1}".encode() in r.stderr
    file.write_text("a")
    (one,) = ids_of(hokku, path, file)
    alone = json.loads(hokku("score", "-m", path, "--device", "cpu", file).stdout)
    assert alone["tokens"] == [one] and len(alone["positions"]) == 1 and "next" not in alone["positions"][0]
    assert alone["nll_per_token"] is None  # nothing was predicted, and nothing is no perfect score


def test_perplexity_wants_two_windows_of_four(hokku, made, tmp_path):
    path, file = made("tied-q8"), tmp_path / "t"
    file.write_text("a b c d e f g h")
    n = len(ids_of(hokku, path, file))
    assert n % 2 == 0 or n > 9
    whole = n // 2
    r = hokku("perplexity", "-m", path, "-f", file, "-c", whole, "--json", "--device", "cpu")
    assert r.returncode == 0 and json.loads(r.stdout)["windows"] == 2, r.stderr
    for window, why in ((whole + 1, f"{n} tokens: expected at least two windows of {whole + 1}"), (3, "a window of 3 tokens: expected at least 4 (-c)")):
        r = hokku("perplexity", "-m", path, "-f", file, "-c", window, "--device", "cpu")
        assert (r.returncode, r.stdout) == (2, b"") and why.encode() in r.stderr


@pytest.mark.parametrize("letter", "abcdefgh")
def test_windows_that_are_all_alike_have_no_spread(hokku, made, tmp_path, letter):
    """The variance is a difference of two equal numbers, which may come out below 0."""
    path, file = made("tied-q8"), tmp_path / "t"
    file.write_text(f" {letter}" * 40)
    r = hokku("perplexity", "-m", path, "-f", file, "-c", 4, "--json", "--device", "cpu")
    assert 0 <= json.loads(r.stdout)["error"] < 1e-4, r.stdout


@pytest.mark.parametrize("json_too", [[], ["--json"]], ids=["", "json"])
def test_a_perplexity_that_no_number_holds_is_an_error(hokku, made, tmp_path, json_too):
    """Logits of thousands: "inf" would be no JSON."""
    path, file = made("untied-f32", "--std", "400"), tmp_path / "t"
    file.write_text(HAIKU)
    r = hokku("perplexity", "-m", path, "-f", file, "-c", 32, "--device", "cpu", *json_too)
    assert (r.returncode, r.stdout) == (1, b"") and re.search(rb"the perplexity, e to the [0-9.]+, is more than a number holds", r.stderr), r
    assert hokku("score", "-m", path, "--device", "cpu", file).returncode == 0


def oracle_bos(path):
    """The id that begins a text, or None."""
    f = gguf.GGUFReader(path).fields
    get = lambda key: f["tokenizer.ggml." + key].contents() if "tokenizer.ggml." + key in f else None
    add = get("add_bos_token")
    if add is None:
        add = get("model") == "llama"
    return get("bos_token_id") if add else None


def percent_said(p):
    """A probability, as /why may show it: the least and the most."""
    return max(p - 0.06 - 0.01 * p, 0), p + 0.06 + 0.01 * p


def test_why_says_the_probabilities_of_the_transformer(chat, hokku, path, tmp_path):  # noqa: F811
    """The answer's tokens are drawn with a temperature, so that unlikely ones are among them: the probabilities are the model's."""
    begin = "the old boat"
    (tmp_path / "t").write_text(begin)
    sampling = ["-no-cnv", "--temp", "2.5", "--top-k", "0", "--top-p", "1", "--min-p", "0", "-s", "4", "-n", "12", "--ignore-eos",
                "--device", "cpu"]
    one = json.loads(hokku("-m", path, *sampling, "--json", "--logprobs", "3", begin).stdout)
    answer = one["tokens"]
    ids = ids_of(hokku, path, tmp_path / "t", "--bos") + answer
    logp = Model(path).logprobs(np.array(ids))[-len(answer) - 1:-1]
    # --logprobs
    assert len(one["logprobs"]) == len(answer) == 12
    for said, p, i in zip(one["logprobs"], logp, answer):
        assert abs(said["logprob"] - p[i]) < 0.02
        for t in said["top"]:
            assert abs(t["logprob"] - p[t["id"]]) < 0.02
        assert abs(said["top"][0]["logprob"] - p.max()) < 0.02 and len(said["top"]) == 3
    # /why
    c = chat("-m", str(path), *sampling)
    c.say(begin)
    rows = [line for line in c.say("/why 3").split("\n") if line.startswith('"')]
    assert len(rows) == len(answer)
    assert min(math.exp(p[i]) for p, i in zip(logp, answer)) < 0.1  # something unlikely is there to be seen
    for row, p, i in zip(rows, 100 * np.exp(logp), answer):
        numbers = [0 if m.startswith("<") else float(m) for m in re.findall(r"(<?[\d.]+)%(?=  | *$)", row)]
        others = sorted(np.delete(p, i), reverse=True)[:3]
        want = [p[i], *others][:len(numbers)]
        assert len(numbers) >= 3, row
        for got, expected in zip(numbers, want):
            low, high = percent_said(expected)
            assert low <= got <= high, (row, expected)


@pytest.mark.parametrize("name", ["untied-f32", "tied-q8", "qwen3-tiny-q4_k_m", "stories", "built-in"])
def test_every_greedy_token_is_the_likeliest(hokku, made, name, tmp_path):
    """Also after a near tie, where another program may go on differently: what is compared is each token after those that
    hokku took, 60 of each model."""
    path = BUILTIN if name == "built-in" else made(name) if name in SHAPES else model(name)
    begin = STORY["begin"] if name == "stories" else "the old boat"
    (tmp_path / "t").write_text(begin)
    r = hokku("-m", path, "-no-cnv", "--temp", 0, "-n", 60, "--ignore-eos", "--json", "--device", "cpu", begin)
    answer = json.loads(r.stdout)["tokens"]
    logp = Model(path).logprobs(np.array(ids_of(hokku, path, tmp_path / "t", "--bos") + answer))[-len(answer) - 1:-1]
    assert len(answer) == 60
    behind = np.array([p.max() - p[i] for p, i in zip(logp, answer)])
    assert behind.max() < 0.05, behind
    assert (behind == 0).sum() >= 55


@pytest.mark.parametrize("b", [1, 7, 64])
def test_a_seed_gives_the_same_answer_for_every_batch_size(hokku, path, b):
    """Bit for bit: the probabilities, too."""
    ask = ["-m", path, "-no-cnv", "--temp", 1.5, "-s", 11, "-n", 40, "--ignore-eos", "--json", "--logprobs", 4, "--device", "cpu", HAIKU[:75]]
    first, other = (json.loads(hokku(*ask, "-b", n).stdout) for n in (512, b))
    assert len(first["tokens"]) == 40 and len(set(first["tokens"])) > 4
    assert (first["tokens"], first["text"], first["logprobs"]) == (other["tokens"], other["text"], other["logprobs"])


# ------------------------------------------------------------------------------------------- memory


PLAN = re.compile(r"weights ([\d,]+) \+ KV ([\d,]+) \+ scratch ([\d,]+) \+ other ([\d,]+) bytes for a context of (\d+) tokens; "
                  r"free ([\d,]+) bytes: (fits|does not fit)\n"
                  r"(?:of the KV ([\d,]+) of ([\d,]+) layers keep the last ([\d,]+) tokens: they see no more than a window\n)?"
                  r"(?:of the weights a token reads [^\n]*\n)?"
                  r"largest context that fits, up to the model's own: (\d+) tokens, with -ctk q8_0 -ctv q8_0: (\d+)\n")


class Plan:
    def __init__(self, hokku, path, *options):
        self.r = hokku("-m", path, "--dry-run", "--device", "cpu", "-t", 1, *options)
        said = PLAN.fullmatch(self.r.stdout.decode())
        assert said, (self.r.stdout, self.r.stderr)
        number = [int(x.replace(",", "")) if x and x[0].isdigit() else x for x in said.groups()]
        self.weights, self.kv, self.scratch, self.other, self.n_ctx, self.free, self.verdict = number[:7]
        self.near = number[7:10]  # None: nothing is said of windows
        self.most, self.most_q8 = number[10:]
        self.total = self.weights + self.kv + self.scratch + self.other


class Facts:
    """Of a file, by the gguf package."""

    def __init__(self, path):
        r = gguf.GGUFReader(path)
        self.tensors = {t.name: t for t in r.tensors}
        get = lambda key: r.fields[arch + "." + key].contents() if arch + "." + key in r.fields else None
        arch = r.fields["general.architecture"].contents()
        self.layers, self.heads, self.kv_heads = get("block_count"), get("attention.head_count"), get("attention.head_count_kv")
        self.embd, self.ff, self.trained = get("embedding_length"), get("feed_forward_length"), get("context_length")
        self.dim = get("attention.key_length") or self.embd // self.heads
        self.rope = get("rope.dimension_count") or self.dim
        self.vocab = self.tensors["token_embd.weight"].shape[1]
        self.weights = sum(int(t.n_bytes) for t in r.tensors)
        self.window = get("attention.sliding_window")
        self.float_keys = self.tensors["blk.0.attn_k.weight"].tensor_type.name in ("F32", "F16", "BF16")

    def key_bytes(self, q8):
        return 1 if q8 else 4 if self.float_keys else 2

    def kv(self, n_ctx, q8k=False, q8v=False):
        """Numbers and a float scale for 32 of them; positions in blocks of 256, values padded to 16; a head begins at 64 bytes."""
        up = lambda n, m: -(-n // m) * m
        scales = up(self.dim, 32) // 32 * 4
        key = (self.dim * self.key_bytes(q8k) + scales) * up(n_ctx, 256)
        value = (up(self.dim, 16) * (1 if q8v else 2) + scales) * up(n_ctx, 256)
        return (up(key, 64) + up(value, 64)) * self.kv_heads * self.layers

    def near_positions(self, n_ctx, batch=512):
        """The window and as much behind it, 1024 at most, which begin and end within blocks of 256, and a batch, or 512."""
        up = lambda n: -(-n // 256) * 256
        return min(up(self.window) + up(min(self.window, 1024)) + 2 * 256 + up(min(max(batch, 512), n_ctx)), up(n_ctx))


KV_TYPES = [(k, v) for k in ("f16", "q8_0") for v in ("f16", "q8_0")]


def test_a_plan_says_what_the_file_holds_and_what_the_cache_takes(hokku, path):
    facts = Facts(path)
    for n_ctx in (1, 16, 17, 100):
        for k, v in KV_TYPES:
            plan = Plan(hokku, path, "-c", n_ctx, "-ctk", k, "-ctv", v)
            assert plan.weights == facts.weights
            assert plan.kv == facts.kv(n_ctx, k == "q8_0", v == "q8_0"), (n_ctx, k, v)
            assert plan.other == 8 * n_ctx + 20 * facts.vocab
            assert (plan.n_ctx, plan.verdict, plan.r.returncode) == (n_ctx, "fits", 0)
            assert plan.most == plan.most_q8 == facts.trained and plan.total < plan.free
    assert Plan(hokku, path).n_ctx == facts.trained


def test_a_plan_counts_what_layers_with_a_window_keep(hokku, made):
    path = made("windowed")
    facts = Facts(path)
    for n_ctx, batch in (600, 512), (1280, 512), (1281, 512), (8192, 512), (100_000, 64), (8192, 8192):
        near = facts.near_positions(n_ctx, batch)
        for k, v in KV_TYPES:
            plan = Plan(hokku, path, "-c", n_ctx, "-b", batch, "-ctk", k, "-ctv", v)
            types = (k == "q8_0", v == "q8_0")
            assert plan.kv == (3 * facts.kv(near, *types) + 2 * facts.kv(n_ctx, *types)) // 5, (n_ctx, batch, k, v)
            assert plan.near == ([3, 5, near] if near < n_ctx else [None] * 3), (n_ctx, batch)


def test_what_a_window_gave_up_is_read_again_and_said(made, chat):
    """What was undone within reach is there; what is further back is not, and counted by /stats."""
    c = chat("-m", made("windowed"), "--temp", 0, "-n", 6, "--ignore-eos", "-c", 8192, "-t", 1)
    number = lambda pattern, text: int(re.search(pattern, text).group(1).replace(",", ""))
    used = []
    for message in ("ab cd " * 40, "ef gh " * 400, "ij kl " * 400):
        c.say(message)
        used.append(number(r"([\d,]+) of 8,192 tokens used", c.say("/context")))
        assert "read again" not in c.say("/stats")
    assert used[2] - used[1] > 1280 < used[1] - used[0]  # more than is kept
    c.say("/undo")
    c.say("kl")
    assert "read again" not in c.say("/stats")
    c.say("/undo 2")
    c.say("mn")
    stats = c.say("/stats")
    assert used[0] - 3 <= number(r"read again ([\d,]+)", stats) <= used[0]  # the last tokens of an answer may differ
    assert number(r"reused ([\d,]+)", stats) == 0
    c.leave()


def test_a_session_goes_on_with_the_windows_that_there_are(made, chat):
    """The file lacks what was given up before it was saved; read again, that is saved, too: by another program than the first."""
    options = ["-m", made("windowed"), "--temp", 0, "-n", 6, "--ignore-eos", "-c", 8192, "-t", 1, "--session", "windows"]
    number = lambda pattern, text: int(re.search(pattern, text).group(1).replace(",", ""))
    used = lambda c: number(r"([\d,]+) of 8,192 tokens used", c.say("/context"))
    c = chat(*options)
    c.say("ab cd " * 400 + "ef gh " * 400)
    before = used(c)
    assert before > 2 * 1280
    c.leave()
    for undo, messages in ("", ["ij"]), ("/undo 2", ["ab cd " * 100 + "kl"]), ("", ["mn", "op"]):
        c = chat(*options)
        if undo:
            c.say(undo)
        for message in messages:
            c.say(message)
            stats = c.say("/stats")
            assert undo or number(r"reused ([\d,]+)", stats) >= before - 3, stats
            assert undo or "read again" not in stats, stats
            before = used(c)
        c.leave()


def test_scratch_grows_with_batch_threads_and_context_as_it_must(hokku, path):
    """What one more token of a batch takes: its vectors in float32, a 16-bit copy of each input of a product in blocks of
    256 with a scale each and 16 sums, once more as many tokens read it (src/cpu/tiles.h), and the number of its sequence in 16
    bits; each array begins at 64 bytes."""
    facts, up = Facts(path), lambda n: -(-n // 256) * 256
    q, kv = facts.heads * facts.dim, facts.kv_heads * facts.dim
    copies = sum(up(n) * (4 + 2 + 2) + 2 * (up(n) // 256 * 4 + up(n) // 16 * 4) for n in (facts.embd, q, facts.ff, facts.embd))
    token = 4 * (facts.rope + facts.embd + q + 2 * kv + facts.ff) + copies + 2
    at = {b: Plan(hokku, path, "-c", 512, "-b", b).scratch for b in (64, 128, 512)}
    assert at[128] - at[64] == 64 * token and at[512] - at[128] == 384 * token
    fixed = at[64] - 64 * token
    dim = -(-facts.dim // 16) * 16
    parts = facts.heads * (512 // 256 + 1)
    want = 4 * facts.rope // 2 + 4 * dim * max(parts, 16) + 8 * parts + 4 * 8 * facts.vocab
    assert want <= fixed <= want + 64 * 20
    more = Plan(hokku, path, "-c", 512, "-b", 64, "-t", 7).scratch - at[64]
    assert more == 4 * dim * (max(parts, 7 * 16) - max(parts, 16))


def test_the_largest_context_fits_and_256_more_do_not(hokku, made):
    path = made("untied-f32", "--layers", 16, "--ctx", 1 << 30)
    plan = Plan(hokku, path)
    assert plan.n_ctx == plan.most < plan.most_q8 < 1 << 30
    for largest, kv in (plan.most, "f16"), (plan.most_q8, "q8_0"):
        types = ["-ctk", kv, "-ctv", kv]
        assert largest >= 256 and largest % 256 == 0
        assert Plan(hokku, path, "-c", largest, *types).total <= plan.free < Plan(hokku, path, "-c", largest + 256, *types).total
    too_much = Plan(hokku, path, "-c", 1 << 30)
    assert too_much.verdict == "does not fit" and too_much.r.returncode == 4
    assert f"try -c {too_much.most}".encode() in too_much.r.stderr
    meminfo = dict(re.findall(r"(\w+): +(\d+) kB", pathlib.Path("/proc/meminfo").read_text()))
    assert 0 < plan.free <= int(meminfo["MemTotal"]) * 1024


def test_bench_counts_the_bytes_of_a_token_from_the_file(hokku, path):
    """Every weight once, but of an embedding that is not the head, too, only one row; and the keys and values up to the middle of
    the answer, without their padding."""
    facts = Facts(path)
    r = hokku("bench", "-m", path, "-p", 0, "-n", 6, "-r", 1, "-d", "0,9", "-c", 64, "-o", "json", "--device", "cpu")
    assert r.returncode == 0, r.stderr
    j = json.loads(r.stdout)
    embedding = facts.tensors["token_embd.weight"]
    weights = facts.weights + int(embedding.n_bytes) // facts.vocab
    if "output.weight" in facts.tensors:
        weights -= int(embedding.n_bytes)
    scales = -(-facts.dim // 32) * 4
    position = (facts.dim * (facts.key_bytes(False) + 2) + 2 * scales) * facts.kv_heads * facts.layers
    rows = {x["depth"]: x for x in j["results"] if x["test"] == "decode"}
    for depth in (0, 9):
        x = rows[depth]
        assert x["bytes_per_token"] == weights + (depth + 3) * position
        assert x["tokens_per_second"] == pytest.approx(6 / x["median_ms"] * 1e3)
        assert x["bytes_per_second"] == pytest.approx(x["bytes_per_token"] * x["tokens_per_second"])
    assert j["weight_bytes"] == facts.weights
