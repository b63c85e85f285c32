"""The haiku proof: the answers come out of the model, through the tokenizer, the weights and the KV cache.

With the built-in model, or any other: HOKKU_TEST_MODEL=file.gguf meson test haiku
"""
import os
import re
import subprocess
import time

import pexpect
import pytest

from conftest import clean_environment
from gguf_edit import Gguf

UNITS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen " \
        "seventeen eighteen nineteen".split()
TENS = ["twenty", "thirty", "forty", "fifty"]
SEEDS = range(1, 21)


def number_word(n):
    return UNITS[n] if n < 20 else TENS[n // 10 - 2] + ("-" + UNITS[n % 10] if n % 10 else "")


def has_word(word, text):
    return re.search(r"(?<![\w-])" + re.escape(word.lower()) + r"(?![\w-])", text.lower()) is not None


def wish(word):
    return f"Write a haiku that contains the word {word}."


@pytest.fixture(scope="module")
def haiku_of_seeds(hokku):
    return [hokku.ask("Write a haiku about the sea.", "-s", str(s)) for s in SEEDS]


def test_the_minute_of_the_clock_appears_in_the_haiku(hokku, builtin):
    word = number_word(time.localtime().tm_min)
    tries = 3 if builtin else 10
    # The built-in model leaves out one word in two hundred: by the seeds from 47 to 60 none of the sixty, on the CPU and on a GPU
    # (H200), so that the test does not hang on the minute in which it runs.
    answers = [hokku.ask(wish(word), "-s", str(s)) for s in range(47, 47 + tries)]
    good = [a for a in answers if has_word(word, a)]
    # another model may ignore a wish now and then; never mostly
    assert len(good) >= (tries if builtin else tries // 3), f"{word!r} is missing: {answers}"
    if builtin:
        assert all(len(a.splitlines()) == 3 for a in answers), answers


def test_the_word_comes_from_the_question(hokku):
    # another minute, the same seed: the word must follow the wish
    a, b = number_word(17), number_word(43)
    first, second = (hokku.ask(wish(w), "-s", "5") for w in (a, b))
    assert first != second
    assert not has_word(b, first) and not has_word(a, second)


def test_twenty_seeds_give_at_least_eighteen_different_haiku(haiku_of_seeds):
    assert all(haiku_of_seeds)
    assert len(set(haiku_of_seeds)) >= 18, haiku_of_seeds


def test_the_same_seed_gives_the_same_haiku(hokku, haiku_of_seeds):
    for seed in (1, 20):
        assert hokku.ask("Write a haiku about the sea.", "-s", str(seed)) == haiku_of_seeds[SEEDS.index(seed)]


def test_no_line_of_any_answer_is_in_the_program_or_the_model_file(hokku, haiku_of_seeds):
    others = ["How do I quit?", "Who are you?", "What does --json do?", "What is 47 + 38?", "What day comes after Monday?", wish("lantern")]
    answers = haiku_of_seeds + [hokku.ask(prompt, "-s", "1") for prompt in others]
    lines = {line.strip() for a in answers for line in a.splitlines() if len(line.strip()) >= 10}
    assert len(lines) > 20
    for path in (hokku.path, hokku.model):
        if os.path.getsize(path) > 1 << 31:
            continue
        with open(path, "rb") as f:
            content = f.read()
        found = [line for line in lines if line.encode() in content]
        assert not found, f"{found} stands in {path}"


def altered_answers(hokku, tmp_path, change, cases, options):
    """The answer of the model and of changed copies; a copy that cannot even be run has changed too."""
    prompt = wish("lantern")
    whole = hokku.ask(prompt, *options)
    assert whole and whole == hokku.ask(prompt, *options)
    for case in cases:
        copy = tmp_path / "altered.gguf"
        change(case, copy)
        run = hokku.run(*options, "-p", prompt, stdin="", model=str(copy), check=False)
        assert run.returncode in (0, 1, 3), f"{case}: exit code {run.returncode}: {run.stderr}"
        yield case, whole, run.stdout.strip()
        copy.unlink()


def test_zeroing_any_weight_tensor_changes_the_answer(hokku, builtin, tmp_path):
    file = Gguf(hokku.model)
    n_layer = 1 + max(int(n.split(".")[1]) for n in file.tensors if n.startswith("blk."))
    middle = n_layer // 2
    names = ["token_embd.weight", "output_norm.weight", "blk.0.attn_q.weight", "blk.0.attn_v.weight", "blk.1.attn_k.weight", f"blk.{middle}.ffn_down.weight",
             f"blk.{middle}.attn_output.weight", f"blk.{n_layer - 1}.ffn_up.weight", f"blk.{n_layer - 1}.attn_v.weight"]
    if builtin:
        names = [n for n in file.tensors if n.endswith(".weight")]
        assert len(names) == 2 + 9 * n_layer
    # a trained model gets over the loss of many a tensor in a short greedy answer: a longer one, drawn with one seed
    options = ("-s", "1", "--temp", "1", "--ignore-eos", "-n", "100")
    for name, whole, other in altered_answers(hokku, tmp_path, file.copy_with_zeroed, names, options):
        assert other != whole, f"the answer does not depend on {name}"


def test_shuffling_the_merges_breaks_the_answer(hokku, tmp_path):
    file = Gguf(hokku.model)
    key = "tokenizer.ggml.merges"
    if key not in file.spans:
        pytest.skip("this model's tokenizer has no merges")
    for _, whole, other in altered_answers(hokku, tmp_path, file.copy_with_shuffled, [key], ("--temp", "0", "-n", "24")):
        assert other != whole
        assert not has_word("lantern", other) or len(other.splitlines()) != 3


def test_a_turn_evaluates_only_its_new_tokens(hokku):
    turns = ["My name is Zebulon.", "Write a haiku about the rain.", "What is 3 + 4?", "What is my name?"]
    answers = hokku.talk(turns, "-s", "3")
    assert len(answers) == len(turns)
    assert answers[0]["cached_tokens"] == 0
    for before, now in zip(answers, answers[1:]):
        # all that was read and written before is reused, but for the last token at most
        known = before["prompt_tokens"] + before["generated_tokens"]
        assert now["cached_tokens"] >= known - 2, (before, now)
        assert now["prompt_tokens"] - now["cached_tokens"] < 64


def test_what_was_said_is_remembered_only_through_the_conversation(hokku, builtin):
    name = "Zebulon" if builtin else "Zebulon Quillfeather"
    options = ("--temp", "0")
    told = hokku.talk([f"My name is {name}.", "What is 3 + 4?", "What is my name?"], *options)
    assert "zebulon" in told[-1]["text"].lower(), told[-1]["text"]
    alone = hokku.talk(["What is 3 + 4?", "What is my name?"], *options)
    assert "zebulon" not in alone[-1]["text"].lower()


def test_after_clear_nothing_is_known(hokku):
    env = clean_environment(TERM="dumb", NO_COLOR="1")
    child = pexpect.spawn(hokku.path, hokku.command("--temp", "0", "-n", "60", "--no-history")[1:], encoding="utf-8", timeout=300, env=env,
                          dimensions=(40, 120))
    try:
        def say(line):
            child.expect(r"> $")
            child.sendline(line)

        say("My name is Zebulon.")
        say("What is my name?")
        child.expect_exact("What is my name?")
        child.expect(r"> $")
        assert "Zebulon" in child.before
        child.sendline("/clear")
        say("What is my name?")
        child.expect_exact("What is my name?")
        child.expect(r"> $")
        assert "Zebulon" not in child.before
        child.sendline("/bye")
        child.expect(pexpect.EOF)
    finally:
        child.close(force=True)


def test_greedy_answers_agree_between_cpu_and_gpu(hokku, gpu):
    for prompt in ("Write a haiku about the sea.", wish(number_word(42)), "How do I quit?"):
        options = ("--temp", "0", "-n", "32")
        assert hokku.ask(prompt, *options, device="cpu") == hokku.ask(prompt, *options, device="cuda")


def test_the_weights_are_in_the_memory_of_the_gpu(hokku, gpu):
    if not gpu:
        pytest.skip("nvidia-smi is not installed")

    def used():
        out = subprocess.run([gpu, "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True)
        return max(int(line) for line in out.stdout.split()) << 20

    before = used()
    child = pexpect.spawn(hokku.path, hokku.command("--no-history", device="cuda")[1:], encoding="utf-8", timeout=300)
    try:
        child.expect("> ")
        rise = used() - before
    finally:
        child.close(force=True)
    assert rise >= Gguf(hokku.model).weight_bytes * 0.99, f"only {rise} bytes more in use"
