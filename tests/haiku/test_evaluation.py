"""What the README of the built-in model claims: held-out things are held out, and the promises are kept."""
import os
import re
import subprocess
import sys

import pytest

from conftest import BUILTIN, ROOT

FOLDER = os.path.join(ROOT, "builtin")
sys.path.insert(0, FOLDER)


@pytest.fixture(scope="module")
def dialogues():
    """A sample of what training draws, and all of the questions that were worded one by one."""
    import data
    import manual
    teacher = data.Teacher(77)
    return [turn for _ in range(12000) for turn in teacher.dialogue()[1]] + \
           [(question, answer) for answer, questions in manual.ASKED.items() for question in questions]


def test_held_out_words_never_occur_in_the_training_data(dialogues):
    import heldout
    words = {w for user, answer in dialogues for w in re.findall(r"[^\W\d_]+", (user + " " + answer).lower())}
    seen = words & heldout.WORDS
    assert not seen


def test_held_out_sums_and_phrasings_never_occur_in_the_training_data(dialogues):
    import heldout
    import phrasings
    sums = 0
    for user, answer in dialogues:
        assert phrasings.plain(user) not in phrasings.HELD_OUT
        asked = re.search(r"(\d+) ?([+-]|plus|minus) ?(\d+)", user)
        if asked:
            sums += 1
            a, op, b = asked.groups()
            assert not heldout.pair(int(a), {"plus": "+", "minus": "-"}.get(op, op), int(b)), user
    assert sums > 500


def test_every_wished_word_is_in_the_haiku_that_is_taught(dialogues):
    wished = 0
    for user, answer in dialogues:
        asked = re.search(r"haiku .*(?:containing|with|contains|includes|uses) the word [\"']?([^\s\"'.,:?]+)", user)
        if asked:
            wished += 1
            assert asked.group(1) in answer and answer.count("\n") == 2, (user, answer)
    assert wished > 300


def test_the_manual_names_only_options_and_commands_that_exist(hokku):
    import manual
    known = hokku.run("--help", stdin="").stdout
    commands = set(re.findall(r"/[a-z]+", open(os.path.join(ROOT, "src", "term", "commands.c")).read()))
    for answer, *_ in manual.FACTS:
        for option in re.findall(r"(?<![\w$/.-])--?[a-z][a-z-]*", answer):
            assert re.search(r"(?<![\w-])" + re.escape(option) + r"(?![\w-])", known), f"{option}: {answer}"
        for command in re.findall(r"(?<![\w.])/[a-z]+", answer):
            if command not in ("/hokku", "/history"):
                assert command in commands or command[1:] in known or command in known, f"{command}: {answer}"


def test_the_promises_hold_on_a_subset(hokku, builtin):
    if not builtin:
        pytest.skip("the promises are those of the built-in model")
    run = subprocess.run([sys.executable, os.path.join(FOLDER, "evaluate.py"), "--quick", "--check", "--hokku", hokku.path, "--model", BUILTIN],
                         capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
