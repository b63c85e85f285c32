"""--spec: where guesses of the next tokens come from. What is written does not depend on it."""
import json

import pytest
from test_repl import chat  # noqa: F401

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
    ("--temp", 0, "-r", "speed. speed. sp", "--ignore-eos"),
])
def test_an_answer_is_the_same_with_guesses_and_without(hokku, args):
    want, plain = answer(hokku, *args, "--spec", "off", "-no-cnv", COPY)
    assert plain["drafted_tokens"] == plain["accepted_tokens"] == 0 and plain["tokens_per_step"] == 1
    for spec in ["auto", "ngram"]:
        got, times = answer(hokku, *args, "--spec", spec, "-no-cnv", COPY)
        assert got == want
        assert 0 <= times["accepted_tokens"] <= times["drafted_tokens"] and times["tokens_per_step"] >= 1
        if "--grammar" in args:
            assert times["drafted_tokens"] == 0


def test_lines_take_the_option_and_answer_the_same(hokku):
    lines = [hokku("--lines", "--spec", spec, "--temp", 0.7, "-s", 3, "-n", 20, input="one\ntwo\nthree\n").stdout for spec in ["off", "ngram"]]
    assert lines[0] == lines[1] and lines[0].count(b"\n") >= 3


def test_a_chat_changes_it_between_answers(chat):  # noqa: F811
    """The turns, one taken back in between, are those of a chat without guesses; which replays, too."""
    said = []
    for spec in ["off", "ngram"]:
        c = chat("--temp", 0.6, "-s", 5, "-n", 40, "--ignore-eos", "--spec", spec)
        said.append([c.say("Write a haiku about speed, speed and speed."), c.say("Again, please."), c.say("/undo"), c.say("Once more.")])
        assert "expected one of auto|off|ngram" in c.say("/set spec draft")
        c.say("/set spec off")
        assert "spec" in c.say("/show settings")
        said[-1].append(c.say("And again."))
        assert c.leave() == 0
    assert said[0] == said[1]


def test_another_source_is_refused(hokku):
    r = hokku("--spec", "magic", "hi")
    assert r.returncode == 2 and b"auto|off|ngram" in r.stderr and b"magic" in r.stderr
