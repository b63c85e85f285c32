"""What is typed is understood, or answered with what was found and expected."""
import json
import re
import subprocess

import pytest
from conftest import HOKKU, model

PLAIN = ["-no-cnv", "--temp", "0"]


@pytest.mark.parametrize("args", [["-n5"], ["-n=5"], ["-n", "5"], ["--n-predict=5"]])
def test_values_may_be_joined_to_their_option(hokku, stories, args):
    r = hokku("-m", stories, "-no-cnv", "--temp=0", "--json", *args, "Once")
    assert r.returncode == 0 and json.loads(r.stdout)["generated_tokens"] == 5, r


@pytest.mark.parametrize("args,says", [
    (["--temperature", "1"], b"unknown option --temperature, did you mean --temp?"[:-1]),
    (["--max-tokens", "5"], b"did you mean --n-predict"), (["--ctx", "5"], b"did you mean --ctx-size"),
    (["--stop", "x"], b"did you mean --reverse-prompt"), (["--lora", "x"], b"--lora is not needed, or not there: adapters"),
    (["-ngl", "99"], b"-ngl is not needed"), (["-fa"], b"-fa is not needed"), (["--mlock"], b"--mlock is not needed"),
    (["--no-mmap"], b"--no-mmap is not needed"), (["-i"], b"-i is not needed"), (["--repeat-penality", "1"], b"did you mean --repeat-penalty"),
    (["-n5x"], b'--n-predict: found "5x"'), (["inspct", "x"], b'unknown tool "inspct", did you mean hokku inspect?'),
    (["two", "words"], b"2 prompts given"), ([""], b"no prompt: it is empty")])
def test_what_others_have_is_answered_with_one_line(hokku, stories, args, says):
    r = hokku("-m", stories, *args) if args[0] != "inspct" else hokku(*args)
    assert r.returncode == 2 and says in r.stderr and r.stderr.count(b"\n") == 1 and r.stdout == b"", r


def test_an_empty_prompt_is_the_same_however_it_is_empty(hokku, stories, tmp_path):
    (tmp_path / "empty").write_text("")
    for args, kw in (([""], {}), ([], {"input": ""}), (["-f", tmp_path / "empty"], {}), (["-no-cnv", ""], {})):
        r = hokku("-m", stories, *args, **kw)
        assert r.returncode == 2 and b"no prompt: " in r.stderr, r


def test_a_closed_standard_input_is_an_empty_one(home, stories):
    r = subprocess.run(["/bin/sh", "-c", f"exec {HOKKU} -m {stories} -no-cnv --temp 0 -n 3 hi <&-"], env=home, capture_output=True)
    assert r.returncode == 0 and r.stdout, r


def test_a_context_beyond_the_training_is_said(hokku, stories):
    r = hokku("-m", stories, *PLAIN, "-n", 1, "-c", 100000, "hi")
    assert r.returncode == 0 and b"a context of 100000 tokens: the model was trained on " in r.stderr
    assert hokku("-m", stories, *PLAIN, "-n", 1, "-c", 64, "hi").stderr == b""


def test_answers_of_lines_can_be_told_apart_and_blank_lines_are_counted(hokku, stories):
    r = hokku("-m", stories, *PLAIN, "-n", 8, "--lines", "-0", input="Once\n\n \t\nThe dog\n")
    one = hokku("-m", stories, *PLAIN, "-n", 8, "Once").stdout
    two = hokku("-m", stories, *PLAIN, "-n", 8, "The dog").stdout
    assert r.stdout == one + b"\0" + two + b"\0" and b"2 blank lines skipped" in r.stderr
    r = hokku("-m", stories, *PLAIN, "-n", 8, "--lines", "--json", "-q", input="\nOnce\n\n")
    assert len(r.stdout.splitlines()) == 1 and r.stderr == b""


def test_one_line_of_statistics_everywhere_with_thousands_parted(hokku):
    m = model("qwen2-tiny-q8_0")
    r = hokku("-m", m, "-n", 2, "--stats", "word " * 500)
    line = r.stderr.decode()
    assert re.search(r"prefill \d,\d{3} tokens", line)
    assert " of 4,096" in line


def test_json_is_described_for_each_tool(hokku):
    helps = {t: hokku(t, "--help").stdout.decode().split("--json")[-1].split("\n")[0] for t in
             ("inspect", "models", "sessions", "replay", "perplexity")}
    assert len(set(helps.values())) == 5 and not any("finish_reason" in h for h in helps.values())


def test_inspect_tells_what_matters_first_and_tensors_when_asked(hokku, stories):
    short, long = (hokku("inspect", *a, stories).stdout.decode() for a in ((), ("-v",)))
    assert short.index("fingerprint") < short.index("metadata (") < short.index("-v lists them")
    assert "blk.0.attn_q.weight" in long and "blk.0.attn_q.weight" not in short


def test_a_session_that_is_not_there_is_named_once(hokku):
    r = hokku("replay", "nope.session")
    assert r.returncode == 1 and r.stderr.count(b"nope.session") == 1, r.stderr
