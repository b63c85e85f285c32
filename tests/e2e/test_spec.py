"""--spec: where guesses of the next tokens come from. What is written does not depend on it."""
import concurrent.futures
import json
import re
import resource
import sys

import pytest
from conftest import BY_ITSELF, OWN, ROOT, model
from server import ENDLESS, serving
from test_places import shim  # noqa: F401 (fixture)
from test_repl import chat  # noqa: F401

sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/vectors")]
import families  # noqa: E402
import make_gguf  # noqa: E402
import predictions  # noqa: E402

COARSE, BUILTIN = OWN / "drafts/coarse.gguf", ROOT / "builtin/hokku-builtin.gguf"
PREDICTS = OWN / "predictions"

COPY = "Repeat: speed. speed. speed. speed. hokku bench measures the speed. hokku bench measures the speed."


def answer(hokku, *args):
    """All of an answer but its times, and these."""
    r = json.loads(hokku("--json", "--logprobs", 2, "-s", 7, "-n", 150, *args).stdout)
    assert len(r["tokens"]) > 0
    return r, r.pop("timings")


@pytest.mark.parametrize("args", [
    ("--temp", 0, "--ignore-eos"),
    ("--temp", 0.8, "--ignore-eos"),
    ("--temp", 1.5, "--top-k", 0, "--ignore-eos"),
    ("--temp", 0, "-c", 64, "--overflow", "shift", "--ignore-eos"),
    ("--temp", 0.4, "--grammar", 'root ::= ("speed" | "." | " ")+'),
    ("--temp", 1, "--json-close", "-j", '{"type":"object","properties":{"temperature":{"type":"integer"},"words":{"type":"array","items":{"type":"string"}}},'
                                        '"required":["temperature","words"],"additionalProperties":false}'),
    ("--temp", 0, "-r", "speed. speed. sp", "--ignore-eos"),
])
def test_an_answer_is_the_same_with_guesses_and_without(hokku, args):
    want, plain = answer(hokku, *args, "--spec", "off", "-no-cnv", COPY)
    assert plain["drafted_tokens"] == plain["accepted_tokens"] == 0 and plain["tokens_per_step"] == 1
    for spec in [("auto",), ("ngram",), ("draft", "-md", COARSE), ("auto", "-md", BUILTIN)]:
        got, times = answer(hokku, *args, "--spec", *spec, "-no-cnv", COPY)
        assert got == want
        assert 0 <= times["accepted_tokens"] <= times["drafted_tokens"] and times["tokens_per_step"] >= 1


def test_a_text_that_must_come_and_has_a_byte_that_is_no_token_is_no_failure(hokku, tmp_path):
    """The character is a token, whose bytes are none."""
    kvs, tensors = families.model(seed=1, **families.FAMILIES["internlm2"][1])
    kvs = dict(kvs)
    tokens, merges = (kvs[f"tokenizer.ggml.{key}"].value[1] for key in ("tokens", "merges"))
    tokens[tokens.index("Ã")], tokens[tokens.index("©")] = "Ã©", "no byte"
    merges[:] = [m for m in merges if not {"Ã", "©"} & set(m)]
    make_gguf.write(tmp_path / "m.gguf", list(kvs.items()), tensors)
    args = ("-m", tmp_path / "m.gguf", "--grammar", 'root ::= "abcdéa" [xy]', "-no-cnv")
    want, got = (answer(hokku, *args, "--spec", spec, "hello")[0] for spec in ("off", "auto"))
    assert got == want and got["text"][:-1] == "abcdéa", (got, want)


QUOTES = [f"{COPY} {word}" for word in ["one", "two", "three", "four"]] + ["What is a token?", COPY[20:], "Write a haiku about rain."]


def of_lines(hokku, lines, *args, **how):
    """All of the answers but their times, and these. (Who comes when finds more or less of a prompt evaluated by others.)"""
    r = hokku("--lines", "--json", "--logprobs", 2, "-s", 3, "-n", 100, *args, input="\n".join(lines) + "\n", **how)
    answers = [json.loads(line) for line in r.stdout.splitlines()]
    times = [a.pop("timings", None) for a in answers if a.pop("cached_tokens", 0) is not None]
    return (r.returncode, answers), [t for t in times if t]


@pytest.mark.parametrize("args", [
    ("--temp", 0, "--ignore-eos"),
    ("--temp", 0.8, "--ignore-eos"),
    ("--temp", 1.5, "--top-k", 0, "--ignore-eos"),
    ("--temp", 0.7, "--repeat-penalty", 1.1, "--ignore-eos"),
    ("--temp", 0.4, "--grammar", 'root ::= ("speed. " | "rain. "){30}'),
    ("--temp", 0.8, "--json-close", "-j", '{"type":"object","properties":{"temperature":{"type":"integer"},"words":{"type":"array","items":{"type":"string"}}},'
                                          '"required":["temperature","words"],"additionalProperties":false}'),
    ("--temp", 0, "-r", "speed. speed. sp", "--ignore-eos"),
    ("--temp", 0, "-c", 300, "--ignore-eos"),  # the memory holds two or three of them
])
@pytest.mark.parametrize("np", [1, 4])
def test_lines_take_the_option_and_answer_the_same(hokku, shim, args, np):  # noqa: F811
    """Also beside others, of which one fails. By the clock of this test a guess costs nothing, so that what is right is made on every machine."""
    lines = [*QUOTES[:3], COPY * 100, *QUOTES[3:]]
    args = ("-np", np, *args, *(() if "-c" in args else ("-c", 1000)))
    want, plain = of_lines(hokku, lines, *args, "--spec", "off")
    assert len(want[1]) == 8 and all(t["drafted_tokens"] == 0 and t["tokens_per_step"] == 1 for t in plain)
    for spec in [("auto",), ("ngram",), ("draft", "-md", BUILTIN), ("auto", "-md", COARSE)]:
        got, times = of_lines(hokku, lines, *args, "--spec", *spec, env={"LD_PRELOAD": shim, "TEST_CLOCK": "1"})
        assert got == want and all(t["accepted_tokens"] <= t["drafted_tokens"] and t["tokens_per_step"] >= 1 for t in times)
        assert sum(t["accepted_tokens"] > 0 for t in times) > 1 and max(t["tokens_per_step"] for t in times) > 1.05, times


@pytest.mark.parametrize("spec", [("ngram",), ("draft", "-md", BUILTIN)], ids=["ngram", "draft"])
@pytest.mark.parametrize("np", [1, 4])
def test_no_step_checks_more_guesses_than_are_asked_for(hokku, shim, spec, np):  # noqa: F811
    """The text stays what it is. (A model that guesses for itself is always right: without a limit steps have more tokens than with one.)"""
    args, most = ("-np", np, "--temp", 0, "--ignore-eos", "-c", 1000), {}
    want, _ = of_lines(hokku, QUOTES, *args, "--spec", "off")
    for n in (1, 3, 7, None):
        limit = () if n is None else ("--spec-max", n)
        got, times = of_lines(hokku, QUOTES, *args, "--spec", *spec, *limit, env={"LD_PRELOAD": shim, "TEST_CLOCK": "1"})
        most[n] = max(t["tokens_per_step"] for t in times)
        assert got == want and sum(t["accepted_tokens"] for t in times) > 0
    assert 1 < most[1] <= 2 < most[7] == most[None] and most[3] <= 4, most


def test_the_most_guesses_of_a_step_are_a_number_in_its_range(hokku):
    for n in (0, 8, -1, "x", ""):
        r = hokku("--spec-max", n, "hi")
        assert r.returncode == 2 and b"--spec-max" in r.stderr, r
    assert b"did you mean --spec-max" in hokku("--draft-max", 4, "hi").stderr
    a, b = (answer(hokku, "--temp", 0, *more, "-no-cnv", COPY) for more in ((), ("--spec-max", 1, "-j", "true")))
    assert b[1]["tokens_per_step"] <= 2  # what a form leaves no choice about is guessed, too
    assert hokku("-n", 3, "hi", env={"HOKKU_SPEC_MAX": "2"}).returncode == 0


@pytest.mark.parametrize("name, right", [("count-glm4moe", True), ("count-qwen35", True), ("twin-glm4moe", False), ("qwen35", False)])
@pytest.mark.parametrize("args", [
    ("--temp", 0),
    ("--temp", 0.8, "-b", 32),
    ("--temp", 1.5, "--repeat-penalty", 1.2),
    ("--temp", 0.7, "-c", 700),  # the memory holds two or three of them
])
def test_lines_are_the_same_with_a_prediction_layer(hokku, shim, name, right, args):  # noqa: F811
    """Beside others, of which one fails."""
    lines = [f"{word} of them went to the river to see a boat and a house" for word in ["one", "two", "three", "four", "five", "six"]]
    lines.insert(3, lines[0] * 100)
    args = ("-m", PREDICTS / f"{name}.gguf", "-np", 4, "-n", 200, "--ignore-eos", *args, *(() if "-c" in args else ("-c", 1500)))
    want, _ = of_lines(hokku, lines, *args, "--spec", "off")
    assert len(want[1]) == 7 and sum("error" in a for a in want[1]) == 1
    for spec in ["mtp", "auto"]:
        got, times = of_lines(hokku, lines, *args, "--spec", spec, env={"LD_PRELOAD": shim, "TEST_CLOCK": "1"})
        assert got == want and all(t["accepted_tokens"] <= t["drafted_tokens"] for t in times)
        assert sum(t["drafted_tokens"] for t in times) > 0, times
        assert not right or sum(t["accepted_tokens"] > 100 for t in times) > 1, times


COUNTING = ["-m", PREDICTS / "count-qwen35.gguf", "-t", 2, "-c", 60000, "-l", "637-1000", "-l", "639-1000"]  # the same


@pytest.mark.parametrize("name, how", [(ENDLESS, ()), (ENDLESS, ("-md", BUILTIN, "--spec", "draft")), (COUNTING, ("--spec", "mtp")), (ENDLESS, ("--spec", "off"))])
def test_answers_of_a_server_are_the_same_with_guesses_while_others_come_and_leave(home, shim, name, how):  # noqa: F811
    """Each that came to its end is what it is alone; the metrics count what came true."""
    def answer(s, prompt):
        return s.ask("/v1/completions", {"prompt": prompt, "temperature": 0.8, "seed": 3, "max_tokens": 100})[2]["choices"]

    with serving(home, "--spec", "off", model=name) as s:
        want = [answer(s, q) for q in QUOTES]
    with serving({**home, "LD_PRELOAD": shim, "TEST_CLOCK": "1"}, *how, model=name) as s, concurrent.futures.ThreadPoolExecutor(8) as pool:
        leaving = [s.open("/v1/completions", {"prompt": COPY, "max_tokens": 50000}) for _ in range(2)]
        got = [pool.submit(answer, s, q) for q in QUOTES]
        leaving[0].close()
        assert [g.result() for g in got] == want
        leaving[1].close()
        s.wait_for(answers_running=0, cancelled_total=2)
        s.ask("/v1/completions", {"prompt": COPY, "temperature": 0, "max_tokens": 1000})  # long enough that any source is tried
        m = s.metrics()
    assert ("off" in how) == (m["accepted_tokens_total"] == 0) and m["accepted_tokens_total"] <= m["drafted_tokens_total"], m


def test_a_chat_changes_it_between_answers(chat):  # noqa: F811
    """The turns, one taken back in between, are those of a chat without guesses; which replays, too."""
    said = []
    for spec in ["off", "ngram"]:
        c = chat("--temp", 0.6, "-s", 5, "-n", 40, "--ignore-eos", "--spec", spec)
        said.append([c.say("Write a haiku about speed, speed and speed."), c.say("Again, please."), c.say("/undo"), c.say("Once more.")])
        assert "expected one of auto|off|ngram|draft|mtp" in c.say("/set spec magic")
        assert "expected -md FILE" in c.say("/set spec draft")
        assert "found no prediction layer" in c.say("/set spec mtp")
        c.say("/set spec off")
        assert "spec" in c.say("/show settings")
        said[-1].append(c.say("And again."))
        assert c.leave() == 0
    assert said[0] == said[1]


def test_a_draft_model_follows_a_chat_wherever_it_goes(chat):  # noqa: F811
    said = []
    for args in [("--spec", "off"), ("-md", str(COARSE)), ("-md", str(BUILTIN), "--spec", "draft")]:
        c = chat("--temp", 0.8, "-s", 5, "-n", 30, "-c", 400, "--overflow", "shift", *args)
        said.append([c.say("Write a haiku about rain."), c.say("And one about snow."), c.say("/undo"), c.say("/redo"), c.say("/retry 9"),
                     c.say("Who are you?"), c.say("/undo 2"), c.say("Write a haiku about rain, please."), c.say("/continue"),
                     c.say("/clear"), c.say("What does --temp do?")])
        c.say("/set spec off")
        said[-1].append(c.say("Once more."))
        c.say("/set spec auto")
        said[-1] += [c.say("Again, once more."), c.say("How do I save a chat?")]
        assert c.leave() == 0
    assert said[0] == said[1] == said[2]


def test_a_chat_that_begins_without_guesses_may_have_a_draft_model(chat):  # noqa: F811
    c = chat("--spec", "off", "-md", str(COARSE), "-n", 20)
    c.say("Write a haiku about rain.")
    assert "expected" not in c.say("/set spec draft")
    c.say("And one about snow.")
    assert c.leave() == 0


def test_a_chat_is_resumed_without_its_draft_model(chat, hokku):  # noqa: F811
    c = chat("--session", "s", "-md", str(COARSE), "--spec", "draft", "-n", 10)
    c.say("Hello")
    assert c.leave() == 0
    r = hokku("--session", "s", "-n", 10, "Hello again")
    assert r.returncode == 0 and r.stdout


def test_another_model_in_a_chat_needs_the_draft_models_vocabulary(chat):  # noqa: F811
    c = chat("-md", str(COARSE), "-n", 10)
    c.say("Hello")
    assert "has another vocabulary" in c.say("/model " + model("stories"))
    assert "built-in" in c.say("/show model")
    assert "built-in" in c.say(f"/model {BUILTIN}")
    c.say("Who are you?")
    assert c.leave() == 0


def changed(tmp_path, key, value):
    """The built-in model with another number at a key."""
    raw = bytearray(BUILTIN.read_bytes())
    at = raw.index(key) + len(key) + 4
    raw[at:at + 4] = value.to_bytes(4, "little")
    (tmp_path / "other.gguf").write_bytes(raw)
    return tmp_path / "other.gguf"


def test_a_draft_model_with_other_tokens_is_refused(hokku, tmp_path):
    for file, why in [(model("stories"), b"its tokenizer is \"llama\", expected \"gpt2\""),
                      (model("qwen2-tiny-q8_0"), b"expected"),
                      (changed(tmp_path, b"tokenizer.ggml.bos_token_id", 5), b"its BOS token is 5, expected 4093")]:
        r = hokku("-md", file, "hi")
        assert r.returncode == 3 and why in r.stderr and b"--model-draft" in r.stderr and str(file).encode() in r.stderr and not r.stdout
    r = hokku("-md", tmp_path / "none.gguf", "hi")
    assert r.returncode == 3 and b"--model-draft" in r.stderr and b"none.gguf" in r.stderr


@pytest.mark.parametrize("spec", ["off", "ngram", "mtp"])
def test_a_draft_model_that_would_not_be_asked_is_refused(hokku, spec):
    said = f"--model-draft is for --spec auto or draft, found --spec {spec}: leave one of them out".encode()
    for args in (["-n", 1, "hi"], ["--dry-run"], ["--lines"], ["serve"]):
        serve = ["serve"] * (args == ["serve"])
        r = hokku(*serve, "--spec", spec, "-md", "/nonexist", *args[len(serve):], input=b"")
        assert (r.returncode, r.stdout) == (2, b"") and said in r.stderr, r
    if spec == "mtp":
        return
    # What a configuration has of either waits for another call.
    for args, env in ((["--spec", spec], {"HOKKU_MODEL_DRAFT": "/nonexist"}), (["-md", "/nonexist"], {"HOKKU_SPEC": spec}), ([], {"HOKKU_MODEL_DRAFT": "/nonexist", "HOKKU_SPEC": spec})):
        r = hokku(*args, "-n", 1, "hi", env=env)
        assert r.returncode == 0 and r.stdout, r


def test_a_draft_model_is_named_wherever_options_are(hokku, home):
    plan = json.loads(hokku("--dry-run", "--json").stdout)
    assert "draft" not in plan
    config = home["XDG_CONFIG_HOME"] + "/hokku"
    __import__("os").makedirs(config)
    for how in ["option", "environment", "configuration"]:
        args, env = ["--dry-run", "--json"], {}
        if how == "option":
            args += ["-md", COARSE]
        elif how == "environment":
            env = {"HOKKU_MODEL_DRAFT": str(COARSE)}
        else:
            with open(config + "/config", "w") as f:
                f.write(f"model-draft = {COARSE}\n")
        with_draft = json.loads(hokku(*args, env=env).stdout)
        draft = with_draft["draft"]
        assert draft["weights"] == plan["weights"] and draft["kv"] == plan["kv"] and draft["n_ctx"] == plan["n_ctx"]
    assert "draft" not in json.loads(hokku("--dry-run", "--json", "--spec", "off").stdout)
    assert json.loads(hokku("--dry-run", "--json", "-c", 256).stdout)["draft"]["n_ctx"] == 256
    # Beside each other answers have what the draft model was trained for, each.
    several = json.loads(hokku("--dry-run", "--json", "--lines", "-np", 4, "-c", 30000).stdout)
    assert several["n_ctx"] == 30000 and several["draft"]["n_ctx"] == 4 * plan["n_ctx"] and several["draft"]["kv"] == 4 * draft["kv"]
    assert b"draft model beside it" in hokku("--dry-run").stdout
    assert b"draft model " + str(COARSE).encode() in hokku("-v", "-n", 3, "hi").stderr


def test_a_plan_beside_a_draft_model_takes_the_context_that_it_leaves(hokku, tmp_path, shim):  # noqa: F811
    memory, took = tmp_path / "meminfo", ("weights", "kv", "scratch", "other")
    whole = json.loads(hokku("--dry-run", "--json").stdout)
    need = sum(whole[k] for k in took)

    def run(n_bytes, *args):
        memory.write_text(f"MemAvailable: {n_bytes // 1024} kB\n")
        return hokku(*args, env={"LD_PRELOAD": shim, "TEST_MEMINFO": str(memory)})

    def plan(n_bytes, *args):
        return run(n_bytes, "--dry-run", *args)

    room = 2 * need - whole["kv"] // 2
    r = json.loads(plan(room, "--json", "-md", COARSE, "-c", 0).stdout)
    assert r["fits"] and r["n_ctx"] == r["n_ctx_max"] == r["draft"]["n_ctx"] == whole["n_ctx"] * 3 // 4, r
    assert sum(r[k] + r["draft"][k] for k in took) <= r["available"] == room // 1024 * 1024
    assert contexts(run(room, "-md", COARSE, "-v", "-n", 1, "hi")) == [r["n_ctx"]] * 2
    for args in (("-c", whole["n_ctx"]), ("--dry-run", "-c", whole["n_ctx"])):
        more = run(room, "-md", COARSE, *args, "hi")
        assert more.returncode == 4 and b"does not fit beside the draft model: try a smaller -c, or no --model-draft" in more.stderr, more
    larger = plan(room, "-md", COARSE, "-c", whole["n_ctx"])
    assert larger.returncode == 4 and b"does not fit beside the draft model" in larger.stderr
    assert plan(2 * need + 1024, "-md", COARSE).returncode == 0
    none = plan(need // 2)
    assert none.returncode == 4 and b"whatever the context" in none.stderr and b"-c 0" not in none.stderr, none


def contexts(r):
    """Those that -v says, of the draft model first."""
    assert r.returncode == 0, r
    return [int(n) for n in re.findall(rb"context (\d+)", r.stderr)]


@pytest.mark.parametrize("limit", [resource.RLIMIT_AS, resource.RLIMIT_DATA])
def test_under_a_limit_both_models_have_the_context_that_was_planned(hokku, tmp_path, limit):
    path = tmp_path / "long.gguf"
    kvs, tensors = make_gguf.model(layers=2, embd=256, heads=4, ff=256, ctx=1 << 20)
    make_gguf.write(path, kvs, tensors)

    def limited(*more):
        return hokku("-m", path, "-md", path, "-t", 2, "--device", "cpu", *more, preexec_fn=lambda: resource.setrlimit(limit, (400 << 20, 400 << 20)))

    plan = json.loads(limited("--dry-run", "--json").stdout)
    assert plan["fits"] and 1 << 14 < plan["n_ctx"] == plan["draft"]["n_ctx"] < 1 << 19
    both = contexts(limited("-v", "-n", 2, "hi"))  # a process that answers takes some kilobytes more, here and there 256 tokens
    assert both[0] == both[1] and plan["n_ctx"] - 512 <= both[0] <= plan["n_ctx"]


def test_where_no_draft_model_is_used_none_is_taken(hokku, home):
    for args in [("hi",), ("--lines",)]:
        r = hokku("--spec", "draft", *args)
        assert r.returncode == 2 and b"expected -md FILE" in r.stderr
    r = hokku("serve", "--spec", "draft")
    assert r.returncode == 2 and b"expected -md FILE" in r.stderr
    r = hokku("-v", "--keep", "1m", "-md", COARSE, "-n", 3, "hi")
    assert r.returncode == 0 and b"one model is kept" in r.stderr


def test_another_source_is_refused(hokku):
    r = hokku("--spec", "magic", "hi")
    assert r.returncode == 2 and b"auto|off|ngram|draft" in r.stderr and b"magic" in r.stderr


@pytest.mark.parametrize("name", ["count-qwen35", "twin-glm4moe", "glm4moe-own"])
def test_an_answer_is_the_same_with_a_prediction_layer(hokku, name):
    for args in [("--temp", 0), ("--temp", 1.2, "--repeat-penalty", 1.2), ("--temp", 0.7, "-c", 64, "--overflow", "shift")]:
        args = ("-m", PREDICTS / f"{name}.gguf", *args, "--ignore-eos")
        want, _ = answer(hokku, *args, "--spec", "off", "A boat")
        for spec in ["mtp", "auto"]:
            got, times = answer(hokku, *args, "--spec", spec, "A boat")
            assert got == want and times["accepted_tokens"] <= times["drafted_tokens"]


def test_a_prediction_layer_follows_a_chat_wherever_it_goes(chat):  # noqa: F811
    said = []
    for spec in ["off", "mtp"]:
        c = chat("-m", str(PREDICTS / "twin-glm4moe.gguf"), "--temp", 0.8, "-s", 5, "-n", 200, "-c", 512, "--overflow", "shift", "--spec", spec)
        said.append([c.say("A boat"), c.say("and a house"), c.say("/undo"), c.say("/redo"), c.say("/retry 9"), c.say("/undo 2"), c.say("A river"),
                     c.say("/clear"), c.say("A lake")])
        c.say("/set spec ngram")
        said[-1].append(c.say("more"))
        c.say(f"/set spec {spec}")
        said[-1].append(c.say("and more"))
        assert c.leave() == 0
    assert said[0] == said[1]


def test_a_session_goes_on_with_a_prediction_layer_and_without(hokku):
    """Of what was saved no hidden states are known; another model has no such layer."""
    texts = []
    for spec in ["off", "mtp"]:
        args = ("--session", spec, "--spec", spec, "--temp", 0.5, "-s", 3, "-n", 120)
        texts.append([hokku("-m", PREDICTS / "count-qwen35.gguf", *args, text).stdout for text in ["one", "two", "three"]])
    assert texts[0] == texts[1] and all(texts[0])
    assert hokku("-m", PREDICTS / "count-qwen35.gguf", "--session", "mtp", "-n", 4, "four").returncode == 0


def changed_tensors(tmp_path, change):
    """The file of a model with a prediction layer, blk.2, with other tensors."""
    kvs, tensors = families.model(**predictions.MODELS["glm4moe"][2])
    tensors = {t.name: t for t in tensors}
    change(tensors)
    make_gguf.write(tmp_path / "other.gguf", kvs, list(tensors.values()))
    return tmp_path / "other.gguf"


def of_zeros(name, *shape):
    n = 1
    for d in shape:
        n *= d
    return make_gguf.Tensor(name, list(shape), "F32", bytes(4 * n))


N = "blk.2.nextn."
BROKEN = {
    "no eh_proj": (lambda t: t.pop(N + "eh_proj.weight"), b"tensor blk.2.nextn.eh_proj.weight (96 x 48) is missing"),
    "no enorm": (lambda t: t.pop(N + "enorm.weight"), b"tensor blk.2.nextn.enorm.weight (48) is missing"),
    "no hnorm": (lambda t: t.pop(N + "hnorm.weight"), b"tensor blk.2.nextn.hnorm.weight (48) is missing"),
    "no attention": (lambda t: t.pop("blk.2.attn_k.weight"), b"tensor blk.2.attn_k.weight (48 x 36) is missing"),
    "a narrow eh_proj": (lambda t: t.update({N + "eh_proj.weight": of_zeros(N + "eh_proj.weight", 48, 48)}),
                         b"tensor blk.2.nextn.eh_proj.weight has shape 48 x 48, expected 96 x 48"),
    "another vocabulary": (lambda t: t.update({N + "shared_head_head.weight": of_zeros(N + "shared_head_head.weight", 48, 600)}),
                           b"tensor blk.2.nextn.shared_head_head.weight has shape 48 x 600, expected 48 x 640"),
    "a long norm": (lambda t: t.update({N + "shared_head_norm.weight": of_zeros(N + "shared_head_norm.weight", 49)}),
                    b"tensor blk.2.nextn.shared_head_norm.weight has shape 49, expected 48"),
    "something more": (lambda t: t.update({N + "other.weight": of_zeros(N + "other.weight", 48)}),
                       b"tensor blk.2.nextn.other.weight is not one that architecture glm4moe has in a prediction layer"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_prediction_layer_that_is_none_is_refused_by_name_where_it_is_named(hokku, tmp_path, name):
    change, why = BROKEN[name]
    path = changed_tensors(tmp_path, change)
    for more in [(), ("--dry-run",)]:
        r = hokku("-m", path, "--spec", "mtp", *more, "hi")
        assert r.returncode == 3 and b"--spec mtp: " + why in r.stderr and not r.stdout
    r = hokku("-m", path, "-n", 3, "-v", "hi")
    assert r.returncode == 0 and b"prediction layer is not used: " + why in r.stderr
    assert why not in hokku("-m", path, "-n", 3, "hi").stderr
    assert b"not used: " + why in hokku("inspect", path).stdout


def test_a_model_without_prediction_layers_is_refused_where_they_are_named(hokku):
    r = hokku("--spec", "mtp", "hi")
    assert r.returncode == 3 and b"--spec mtp: found no prediction layers in this model" in r.stderr and not r.stdout
    r = hokku("--spec", "mtp", "--lines", "-n", 3, input="hi\n")
    assert r.returncode == 3 and b"--spec mtp: found no prediction layers in this model" in r.stderr and not r.stdout
    r = hokku("serve", "--spec", "mtp")
    assert r.returncode == 3 and b"--spec mtp: found no prediction layers in this model" in r.stderr


def test_a_prediction_layer_is_counted_and_said(hokku):
    args = ("-m", PREDICTS / "glm4moe-own.gguf")
    own = 0
    import gguf
    for t in gguf.GGUFReader(args[1]).tensors:
        own += t.n_bytes if t.name.startswith("blk.2.") else 0
    plans = {spec: json.loads(hokku(*args, "--dry-run", "--json", "--spec", spec, "-c", 1024).stdout) for spec in ["off", "auto", "mtp", "ngram"]}
    assert plans["auto"]["predictor"] == plans["mtp"]["predictor"] and "predictor" not in plans["off"] and "predictor" not in plans["ngram"]
    counted = plans["mtp"]["predictor"]
    assert counted["weights"] == own and counted["n_ctx"] == 1024 and counted["kv"] * 2 == plans["mtp"]["kv"]
    assert counted["other"] >= plans["mtp"]["other"] + 1024 * 48 * 4  # hidden states
    several = json.loads(hokku(*args, "--dry-run", "--json", "--lines", "-np", 4, "-c", 1024).stdout)
    assert several["predictor"]["other"] >= several["other"] + 4 * 1024 * 48 * 4
    assert b"prediction layer beside it: weights" in hokku(*args, "--dry-run").stdout
    assert b"the model's prediction layer \xc2\xb7" in hokku(*args, "-n", 3, "-v", "hi").stderr
    assert b"2 prediction layers, " in hokku("inspect", args[1]).stdout
    assert json.loads(hokku("inspect", "--json", args[1]).stdout)["hokku"]["prediction_layers"] == 2
    # Named, a draft model is not passed over without a word.
    r = hokku(*args, "-md", args[1], "-n", 3, "hi")
    assert r.returncode == 0 and b"is not used: the model has a prediction layer of its own" in r.stderr
    r = hokku(*args, "-md", args[1], "--spec", "draft", "-n", 3, "-v", "hi")
    assert r.returncode == 0 and b"draft model " in r.stderr and b"not used" not in r.stderr


def test_a_model_goes_on_without_a_prediction_layer_that_does_not_fit_beside_it(hokku, tmp_path, shim):  # noqa: F811
    memory, took = tmp_path / "meminfo", ("weights", "kv", "scratch", "other")
    args = ("-m", PREDICTS / "glm4moe-own.gguf", "-c", 1024, "-t", 1)
    whole = json.loads(hokku(*args, "--dry-run", "--json").stdout)
    model_alone, layer = (sum(plan[k] for k in took) for plan in (whole, whole["predictor"]))
    for rest, fits in [(layer // 2, False), (layer + 2048, True)]:
        memory.write_text(f"MemAvailable: {(model_alone + rest) // 1024} kB\n")
        env = {**BY_ITSELF, "LD_PRELOAD": shim, "TEST_MEMINFO": str(memory)}
        plan = hokku(*args, "--dry-run", "--json", env=env)
        assert plan.returncode == 0 and ("predictor" in json.loads(plan.stdout)) == fits
        r = hokku(*args, "-n", 3, "-v", "hi", env=env)
        assert r.returncode == 0 and r.stdout
        assert (b"prediction layer is not used: it does not fit beside the model" in r.stderr) != fits
        for more in [("--dry-run",), ("-n", 3, "hi")]:
            r = hokku(*args, "--spec", "mtp", *more, env=env)
            assert r.returncode == (0 if fits else 4)
            assert fits or b"--spec mtp: it does not fit beside the model: a smaller -c leaves room for it" in r.stderr
