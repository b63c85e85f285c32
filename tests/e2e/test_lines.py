"""--lines: many answers under way at once, each what it is alone; in the order of the lines, or as they are done; spread over processes."""
import contextlib
import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time

import pytest
from conftest import HOKKU, ROOT, wait_until
from terminal import Terminal
from test_places import shim  # noqa: F401 (fixture)
from test_signals import started

BUILTIN = ["-m", ROOT / "builtin/hokku-builtin.gguf", "-t", 2]
SAMPLED = [*BUILTIN, "-s", 7, "--temp", 1.1]
TOO_LONG = "word " * 1200
ENDLESS = {"prompt": "Write a haiku about the sea", "max_tokens": 100000}


def objects(r):
    return [json.loads(l) for l in r.stdout.splitlines()]


def without_times(j):
    return {k: v for k, v in j.items() if k not in ("timings", "cached_tokens", "line")}


def request(prompt, **kw):
    return json.dumps({"prompt": prompt, **kw})


MIXED = [
    "Write a haiku about snow", request("Write a haiku about tea", seed=5), TOO_LONG, "hi " * 300, request("Who are you?", temperature=0),
    request("hi", bogus=1), "What is 3 plus 4? " * 20, request("Tell me more", max_tokens=3), request("x", seed=-1), request("hello", max_tokens=0),
    TOO_LONG, "I am Ann. " * 30 + "What is my name?", request("Write a haiku about rain", seed=9, max_tokens=40), request("x", seed="y"),
    '{"messages": 3}', '{"prompt": "a", "messages": []}', '{"messages": [{"role": "user", "content": "Who are you?"}]}', '{"prompt": 3}',
    '{"messages": [{"role": "assistant", "content": "x"}]}', "ü" * 40,
]


@pytest.mark.parametrize("args", [
    ["-n", 24, "-r", "e\n", "-r", "sea"],
    ["-n", 30, "--repeat-penalty", 1.3, "--frequency-penalty", 0.4, "--dry-multiplier", 0.8, "-sys", "Answer in one word, and be short."],
    ["-n", 12, "--grammar", 'root ::= [A-Z] [a-z ]{3,40} "."']], ids=["stops", "penalties", "grammar"])
def test_an_answer_is_the_same_alone_and_beside_any_others(hokku, args):
    runs = [hokku(*SAMPLED, *args, "--lines", "--json", "-np", np, input="\n".join(MIXED)) for np in (1, 3, 0)]
    first = objects(runs[0])
    failed = [j["line"] for j in first if "error" in j]
    assert len(first) == len(MIXED) and [j["line"] for j in first] == list(range(1, len(MIXED) + 1)) and 9 <= len(failed) <= 11, failed
    for r in runs[1:]:
        assert r.returncode == runs[0].returncode == 1 and sorted(r.stderr.splitlines()) == sorted(runs[0].stderr.splitlines())
        assert [without_times(j) for j in objects(r)] == [without_times(j) for j in first]
    for i in (0, 3, 6, 11, 19):  # and with neither --lines nor anyone else
        alone = hokku(*SAMPLED, *args, "--json", input=MIXED[i])
        assert without_times(json.loads(alone.stdout)) == without_times(first[i])


def test_text_comes_in_the_order_of_the_lines_with_an_empty_one_for_each_that_failed(hokku):
    lines = ["Who are you?", TOO_LONG, request("hi", max_tokens=2), "{\"prompt\":", "Write a haiku about the sea"]
    r = hokku(*SAMPLED, "--lines", "-0", input="\n".join(lines))
    answers = r.stdout.split(b"\0")
    assert r.returncode == 1 and len(answers) == 6 and answers[1] == answers[3] == answers[5] == b"" and b"2 of 5 lines failed" in r.stderr
    assert answers[0] == hokku(*SAMPLED, lines[0]).stdout and answers[4] == hokku(*SAMPLED, lines[4]).stdout


@pytest.mark.parametrize("way", ["--lines", "--turns"])
def test_a_nul_byte_ends_each_object_where_it_is_asked_for(hokku, way):
    """As it ends each text: `xargs -0` reads both. Alone an object is a line, whatever the environment says of many."""
    lines = ["Who are you?", *([TOO_LONG] if way == "--lines" else []), "hi"]
    text, objects = (hokku(*SAMPLED, way, "-0", *more, input="\n".join(lines)) for more in ([], ["--json"]))
    assert text.returncode == objects.returncode == (way == "--lines"), objects.stderr
    assert b"\n" not in objects.stdout and objects.stdout.endswith(b"}\0")
    found = [json.loads(o) for o in objects.stdout.split(b"\0")[:-1]]
    assert [j.get("text", "").encode() for j in found] == text.stdout.split(b"\0")[:-1]
    assert hokku(*SAMPLED, "--json", "hi", env={"HOKKU_NULL": "1"}).stdout.endswith(b"}\n")


def test_what_is_said_of_an_answer_names_its_line(hokku):
    r = hokku(*SAMPLED, "--ignore-eos", "-c", 64, "--lines", "--json", input="hi\n" + request("hi", max_tokens=2) + "\nhi\n")
    said = [l for l in r.stderr.splitlines() if b"is full: the answer is cut" in l]
    assert [l.split(b":")[1] for l in said] == [b" line 1", b" line 3"] and [j["finish_reason"] for j in objects(r)] == ["context", "length", "context"]


def test_unordered_answers_come_when_they_are_done(hokku):
    lines = [request("Write a haiku about the sea", max_tokens=120), request("hi", max_tokens=1), request("hello", max_tokens=1)]
    r = hokku(*SAMPLED, "--ignore-eos", "--lines", "--json", "--unordered", "-np", 3, input="\n".join(lines))
    assert [j["line"] for j in objects(r)] == [2, 3, 1]
    texts = hokku(*SAMPLED, "--ignore-eos", "--lines", "--unordered", "-np", 3, "-0", input="\n".join(lines)).stdout.split(b"\0")
    assert [t.decode() for t in texts[:-1]] == [j["text"] for j in objects(r)]


def test_the_front_line_is_shown_as_it_grows_and_a_slow_line_is_answered_at_once(home):
    with started(home, *SAMPLED, "--lines", "--overflow", "shift", "--ignore-eos", "-q", "-n", 3, stdin=subprocess.PIPE) as p:
        for _ in range(2):
            p.stdin.write(b"hi\n")
            p.stdin.flush()
            assert p.stdout.readline()
        p.stdin.write(json.dumps(ENDLESS).encode() + b"\nhi\n")
        p.stdin.flush()
        assert len(p.stdout.read(300)) == 300  # it never ends


@pytest.mark.parametrize("json_", [True, False])
def test_interrupted_what_is_done_is_printed_and_what_is_not_is_counted(home, json_):
    args = [*SAMPLED, "--lines", "--overflow", "shift", "--ignore-eos", "-n", 5, "-c", 4096, "-np", 3, *(["--json"] if json_ else ["-0"])]
    lines = ["Who are you?", json.dumps(ENDLESS), "hi", json.dumps(ENDLESS), "hello"]
    for seconds in (1, 5, 25):  # until the three short ones are done
        with started(home, *args, stdin=subprocess.PIPE) as p:
            p.stdin.write("\n".join(lines).encode() + b"\n")
            p.stdin.flush()
            time.sleep(seconds)
            p.send_signal(signal.SIGINT)
            out, err = p.communicate(timeout=20)
        if b"interrupted: 2 of the 5 lines read are not answered" in err:
            break
    assert p.returncode == -signal.SIGINT and b"interrupted: 2 of the 5 lines read are not answered" in err, err
    if json_:
        assert [json.loads(l)["line"] for l in out.splitlines()] == [1, 3, 5]
    else:
        answers = out.split(b"\0")
        assert len(answers) == 6 and answers[5] == answers[3] == b"" and len(answers[1]) > 100 and answers[0] and answers[2] and answers[4]


MOST_BYTES = 16 << 20  # of a line


def test_a_line_that_is_too_long_to_be_read_fails_alone(hokku):
    lines = b"hi\n" + b"a" * (MOST_BYTES + 1) + b"\nhello\n" + b" " * (MOST_BYTES + 70000)
    whole = hokku(*SAMPLED, "-n", 4, "--lines", "--json", input=lines)
    first, second, third, fourth = objects(whole)
    assert whole.returncode == 1 and b"2 of 4 lines failed" in whole.stderr
    assert [j["line"] for j in (first, second, third, fourth)] == [1, 2, 3, 4] and third["tokens"] == first["tokens"]
    for j in (second, fourth):
        assert j["error"]["code"] == 1 and "longer than 16,777,216 bytes" in j["error"]["message"], j
    text = hokku(*SAMPLED, "-n", 4, "--lines", "-0", input=lines)
    assert text.returncode == 1 and text.stdout.split(b"\0") == [first["text"].encode(), b"", third["text"].encode(), b"", b""]
    unordered = hokku(*SAMPLED, "-n", 4, "--lines", "--json", "--unordered", input=lines)
    assert unordered.returncode == 1 and sorted(j["line"] for j in objects(unordered)) == [1, 2, 3, 4]
    parts = [hokku(*SAMPLED, "-n", 4, "--lines", "--json", "--shard", f"{i}/2", input=lines) for i in range(2)]
    assert [([j["line"] for j in objects(r)], r.returncode) for r in parts] == [([2, 4], 1), ([1, 3], 0)]
    turns = hokku(*SAMPLED, "-n", 4, "--turns", input=lines)  # what comes after it would answer another conversation
    assert turns.returncode == 1 and b"line 2: longer than 16,777,216 bytes" in turns.stderr and len(turns.stdout.splitlines()) == 1
    more = b"hokku: what comes behind line 2 is not answered\n"
    assert more in turns.stderr and more not in hokku(*SAMPLED, "-n", 4, "--turns", input=lines[:lines.index(b"hello")]).stderr


def test_the_longest_line_that_may_be_is_read(hokku):
    line = request("hi", max_tokens=2).encode()
    r = hokku(*SAMPLED, "--lines", "--json", input=line + b" " * (MOST_BYTES - len(line)) + b"\n" + line)
    first, second = objects(r)
    assert r.returncode == 0 and first["tokens"] == second["tokens"]


def test_a_line_without_end_holds_up_none_before_it_and_ends_at_a_signal(home):
    with started(home, *SAMPLED, "--lines", "--ignore-eos", "-n", 200, "--json", stdin=subprocess.PIPE, bufsize=0) as p:
        p.stdin.write(b"hi\n")
        feed = Endless(p, b"a" * 65536)
        assert json.loads(p.stdout.readline())["generated_tokens"] == 200
        assert "longer than" in json.loads(p.stdout.readline())["error"]["message"]
        before = feed.written
        wait_until(lambda: feed.written > before + 4 * MOST_BYTES)
        assert peak_memory(p) < 120 << 20
        p.send_signal(signal.SIGINT)
        assert p.wait(timeout=20) == -signal.SIGINT


def peak_memory(p):
    """Of a process so far, in bytes."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", open(f"/proc/{p.pid}/status").read())[1]) << 10


ENDLESS_ARGS = [*SAMPLED, "--lines", "--ignore-eos", "--json"]


@pytest.mark.parametrize("more", [["-c", 4096], ["--overflow", "shift"]], ids=["failed", "cut"])
def test_large_lines_behind_a_slow_one_leave_nothing_behind(home, more):
    with started(home, *ENDLESS_ARGS, *more, stdin=subprocess.PIPE, bufsize=0) as p:
        p.stdin.write(json.dumps(ENDLESS).encode() + b"\n")
        for _ in range(25):  # of 2.8 MB of tokens each; when one is written, the one before it is read
            p.stdin.write(b"hi " * 700_000 + b"\n")
        assert peak_memory(p) < 110 << 20


def test_large_answers_behind_a_slow_one_are_as_many_as_there_is_memory_for(home, tmp_path):
    (tmp_path / "in").write_text("\n".join([request("hi", max_tokens=600)] + [request("hi", max_tokens=16)] * 600))  # of 600 KB each
    with open(tmp_path / "in") as lines, open(tmp_path / "out", "wb") as out:
        p = subprocess.Popen([HOKKU, *map(str, ENDLESS_ARGS), "-c", "8192", "-np", "40", "--logprobs", "64"], env=home, stdin=lines, stdout=out)
        _, status, used = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    assert p.returncode == 0 and used.ru_maxrss < 280 << 10, used.ru_maxrss
    assert [json.loads(l)["line"] for l in open(tmp_path / "out")] == list(range(1, 602))


@pytest.mark.parametrize("n_lines,ended,all_read", [(2, True, True), (2, False, False), (300, True, False), (300, False, False)])
def test_interrupted_it_is_said_whether_there_was_more_to_read(home, n_lines, ended, all_read):
    with started(home, *SAMPLED, "--lines", "--ignore-eos", "--overflow", "shift", "-np", 3, stdin=subprocess.PIPE) as p:
        p.stdin.write((json.dumps(ENDLESS) + "\n").encode() * n_lines)
        p.stdin.close() if ended else p.stdin.flush()
        assert p.stdout.read(1)
        p.send_signal(signal.SIGINT)
        p.stdout.read()
        err = p.stderr.read()
        assert p.wait(timeout=20) == -signal.SIGINT
    said, = (l for l in err.splitlines() if b"interrupted" in l)
    n = int(said.split()[2])
    end = b"" if all_read else b", and standard input was not read to its end"
    assert said == b"hokku: interrupted: %d of the %d lines read are not answered%s" % (n, n, end) and (n == n_lines) == (n_lines == 2), err


def long(line, n=1_000_000):
    """The same request in as many bytes."""
    return line.ljust(n)


@contextlib.contextmanager
def held_lines(home, shim, tmp_path, lines, *args):
    """Answers the lines; a file, as long as which exists no long one of them can be prepared."""
    held = tmp_path / "held"
    held.touch()
    (tmp_path / "in").write_text("\n".join(lines))
    with open(tmp_path / "in") as f, started({**home, "LD_PRELOAD": shim, "TEST_JSON_HELD": str(held)}, *args, "--lines", "--json", stdin=f, bufsize=0) as p:
        yield p, held


def test_others_are_answered_while_a_long_line_is_prepared(home, hokku, shim, tmp_path):  # noqa: F811
    lines = [request("hi"), request("hello"), long(request("Who are you?")), request("Write a haiku about tea")]
    with held_lines(home, shim, tmp_path, lines, *SAMPLED, "-n", 20) as (p, held):
        answers = []
        for _ in range(2):
            assert select.select([p.stdout], [], [], 60)[0], "nobody is answered"
            answers.append(json.loads(p.stdout.readline()))
        held.unlink()
        answers += [json.loads(line) for line in p.stdout]
    assert [j["line"] for j in answers] == [1, 2, 3, 4]
    for j, line in zip(answers, lines):
        assert without_times(json.loads(hokku(*SAMPLED, "-n", 20, "--lines", "--json", input=line.strip()).stdout)) == without_times(j)


@pytest.mark.parametrize("lines,ended,said", [
    (b"hi\nthere\n", True, b"hokku: what comes behind line 1 is not answered\n"), (b"hi\n\n", True, b""),
    (b"hi\n", False, b"hokku: standard input was not read to its end\n")])
def test_interrupted_turns_say_what_is_not_answered(home, lines, ended, said):
    with started(home, *SAMPLED, "--turns", "--ignore-eos", "--overflow", "shift", "-n", -1, stdin=subprocess.PIPE) as p:
        p.stdin.write(lines)
        p.stdin.close() if ended else p.stdin.flush()
        assert p.stdout.read(1)
        p.send_signal(signal.SIGINT)
        p.stdout.read()
        err = p.stderr.read()
        assert p.wait(timeout=20) == -signal.SIGINT and err == said, err


def test_interrupted_behind_the_last_answer_it_is_said_that_there_was_more_to_read(home):
    with started(home, *SAMPLED, "--lines", stdin=subprocess.PIPE) as p:
        p.stdin.write(b"hi\n")
        p.stdin.flush()
        assert p.stdout.readline()
        p.send_signal(signal.SIGINT)
        assert p.stderr.read() == b"hokku: interrupted: standard input was not read to its end\n"
        assert p.wait(timeout=20) == -signal.SIGINT


def test_interrupted_a_line_that_is_being_prepared_is_one_that_is_not_answered(home, shim, tmp_path):  # noqa: F811
    lines = [request("hi"), long(json.dumps(ENDLESS))]
    with held_lines(home, shim, tmp_path, lines, *SAMPLED, "--overflow", "shift", "--ignore-eos", "-n", 20) as (p, held):
        assert select.select([p.stdout], [], [], 60)[0]
        p.send_signal(signal.SIGINT)
        held.unlink()
        out, err = p.communicate(timeout=60)
    assert p.returncode == -signal.SIGINT and b"interrupted: 1 of the 2 lines read are not answered" in err and b"not read to its end" not in err
    assert json.loads(out)["line"] == 1


@pytest.mark.parametrize("args", [["--overflow", "shift"], ["--prefill", "I", "--grammar", 'root ::= "I" [a-z ]{3,40} "."']], ids=["cut", "grammar"])
def test_a_long_line_is_answered_as_it_is_alone(hokku, args):
    args = [*SAMPLED, "-n", 20, "--lines", "--json", *args]
    lines = ["hi", "hi " * 200_000, long(request("Who are you?")), "é" * 150_000, long(request("hi", bogus=1)), "hello", request("So " * 100_000)]
    together = hokku(*args, input="\n".join(lines))
    answers = objects(together)
    alone = [hokku(*args, input="\n" * i + line) for i, line in enumerate(lines)]
    assert [without_times(j) for j in answers] == [without_times(objects(r)[0]) for r in alone]
    said = [sorted(re.findall(rb"hokku: line .*", err)) for err in (together.stderr, b"".join(r.stderr for r in alone))]
    assert said[0] == said[1] and len(said[0]) == 4
    assert [j["line"] for j in answers] == [1, 2, 3, 4, 5, 6, 7]


class Endless(threading.Thread):
    """Writes a line to a process for ever; `written` counts the bytes."""

    def __init__(self, p, line):
        super().__init__(daemon=True)
        self.p, self.line, self.written = p, line, 0
        self.start()

    def run(self):
        try:
            while True:
                self.written += self.p.stdin.write(self.line)
        except (BrokenPipeError, ValueError):
            pass


def test_endless_input_takes_bounded_memory_and_ends_with_its_reader(home):
    with started(home, *SAMPLED, "--lines", "-n", 1, "--json", stdin=subprocess.PIPE, bufsize=0) as p:
        feed = Endless(p, b"hi " * 300 + b"\n")
        for i in range(40):
            assert json.loads(p.stdout.readline())["line"] == i + 1
        assert feed.written < 400 * len(feed.line)  # read as it is answered
        p.stdout.close()
        p.stdout = None
        assert p.wait(timeout=60) in (-signal.SIGPIPE, 141)


def test_a_line_without_end_holds_up_no_more_than_there_is_memory_for(home):
    with started(home, *SAMPLED, "--lines", "--ignore-eos", "--overflow", "shift", "--json", stdin=subprocess.PIPE, bufsize=0) as p:
        p.stdin.write(json.dumps(ENDLESS).encode() + b"\n")
        feed = Endless(p, request("hi", max_tokens=0).encode() + b" " * 960 + b"\n")
        end, before = time.time() + 60, -1
        while before != feed.written and time.time() < end:
            before = feed.written
            time.sleep(1)
        assert before == feed.written and 1000 < before / len(feed.line) < 1600, before / len(feed.line)


# ------------------------------------------------------------------------------------------ requests


def test_what_a_request_sets_is_what_the_options_set(hokku):
    prompt = "Write a haiku about the sea"
    lines = [prompt, request(prompt, seed=5), request(prompt, temperature=0), request(prompt, n_predict=4), request(prompt, seed=8, temperature=2, max_tokens=9)]
    got = objects(hokku(*SAMPLED, "--lines", "--json", input="\n".join(lines)))
    for j, args in zip(got, ([], ["-s", 5], ["--temp", 0], ["-n", 4], ["-s", 8, "--temp", 2, "-n", 9])):
        assert without_times(j) == without_times(json.loads(hokku(*SAMPLED, *args, "--json", prompt).stdout)), args
    assert len({tuple(j["tokens"]) for j in got}) == 5 and [j["seed"] for j in got] == [7, 5, 7, 7, 8]


@pytest.mark.parametrize("way,where", [("--lines", b"hokku: line 1: "), ("--turns", b"hokku: ")])
def test_a_nul_byte_in_an_answer_ends_it_for_nobody(hokku, way, where):
    args = [*SAMPLED, way, "--grammar", r'root ::= "a\x00b\x00"']
    r = hokku(*args, "-0", input="one\ntwo\n")
    assert r.stdout.decode().split("\0") == ["a\ufffdb\ufffd"] * 2 + [""]
    said = b"a NUL byte of the answer is written as U+FFFD, since one ends it (-0); with --json it is kept\n"
    assert where + said in r.stderr and r.stderr.count(said) == 2, r
    r = hokku(*args, input="one\n")
    assert r.stdout == b"a\0b\0\n" and said not in r.stderr
    texts = [json.loads(j)["text"] for j in hokku(*args, "-0", "--json", input="one\ntwo\n").stdout.split(b"\0")[:-1]]
    assert texts == ["a\0b\0"] * 2


@pytest.mark.parametrize("seed", [2**53 - 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_the_seed_that_an_answer_says_gives_it_again(hokku, seed):
    args = [*SAMPLED, "-n", 8, "--json"]
    first = json.loads(hokku(*args, "-s", seed, "Write a haiku").stdout)
    assert first["seed"] == (seed if seed < 2**63 else str(seed))
    again, = objects(hokku(*args, "-s", 1, "--lines", input=request("Write a haiku", seed=first["seed"])))
    assert again["seed"] == first["seed"] and again["tokens"] == first["tokens"]


def test_a_seed_that_nobody_named_is_one_that_any_reader_of_json_keeps(hokku):
    seeds = [json.loads(hokku("-n", 1, "--json", "hi").stdout)["seed"] for _ in range(4)]
    assert len(set(seeds)) == 4 and all(type(s) is int and s < 2**53 for s in seeds)


@pytest.mark.parametrize("seed", ['"18446744073709551616"', '"-1"', '" 1"', '""', '"1\\u0000"', "1.0", "-1"])
def test_what_is_no_seed_is_said(hokku, seed):
    r = hokku(*SAMPLED, "--lines", input='{"prompt": "hi", "seed": %s}' % seed)
    assert r.returncode == 1 and b'"seed": found ' in r.stderr and b"expected a whole number, 0 or more (from 2^63 on in quotes)" in r.stderr, r


@pytest.mark.parametrize("temp,expected", [("-1", "a number from 0 to 1000000"), ("1e300", "a number from 0 to 1000000"), ("1000001", "a number from 0 to 1000000"),
                                           ('"1"', "a number from 0 to 1000000"), ("1e-40", "0, or 1e-30 at least"), ("1e-60", "0, or 1e-30 at least")])
def test_a_temperature_that_no_option_takes_no_line_takes(hokku, temp, expected):
    r = hokku(*SAMPLED, "--lines", input='{"prompt": "hi", "temperature": %s}' % temp)
    assert r.returncode == 1 and f'"temperature": found {"1e+300" if temp == "1e300" else temp}, expected {expected}\n'.encode() in r.stderr, r


def test_null_is_no_value_in_a_line_either(hokku):
    message = {"role": "user", "content": "hi"}
    lines = [request("hi"), request("hi", messages=None, seed=None, temperature=None, max_tokens=None, n_predict=None, bogus=None), request("hi", max_tokens=3, n_predict=None),
             json.dumps({"prompt": None, "messages": [{**message, "name": None}]}), json.dumps({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "x": None}]}]})]
    got = objects(hokku(*SAMPLED, "--lines", "--json", input="\n".join(lines)))
    assert len(got) == 5 and all(g["tokens"] == got[0]["tokens"] for g in (got[1], *got[3:])) and len(got[2]["tokens"]) <= 3, got
    r = hokku(*SAMPLED, "--lines", input='{"prompt": null, "seed": 1}')
    assert r.returncode == 1 and b'found neither "prompt" nor "messages"' in r.stderr, r


def test_a_message_may_have_parts_whose_text_it_is(hokku):
    parts = [{"type": "text", "text": t} for t in ("Hi,", " I am ", "Ann")]
    lines = [json.dumps({"messages": [{"role": "user", "content": c}]}) for c in ("Hi, I am Ann", parts, [{"type": "text", "text": "Hi, I am Ann"}])]
    got = objects(hokku(*SAMPLED, "--lines", "--json", input="\n".join(lines)))
    assert got[0]["tokens"] == got[1]["tokens"] == got[2]["tokens"] and len({g["prompt_tokens"] for g in got}) == 1


def test_messages_are_what_the_template_makes_of_them(hokku, tmp_path):
    messages = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "Hi, I am Ann"},
                {"role": "assistant", "content": " Hello <|im_end|> Ann.\n"}, {"role": "user", "content": "What is my name?"}]
    lines = [json.dumps({"messages": messages}), json.dumps({"messages": messages[1:2]}), "Hi, I am Ann", json.dumps({"messages": messages})]
    got = objects(hokku(*SAMPLED, "--lines", "--json", input="\n".join(lines)))
    assert got[1]["tokens"] == got[2]["tokens"] and got[0]["tokens"] == got[3]["tokens"]
    for line, used in ((got[0], messages), (got[2], messages[1:2])):
        (tmp_path / "c.json").write_text(json.dumps({"messages": used, "add_generation_prompt": True}))
        text = hokku("render", *BUILTIN[:2], tmp_path / "c.json").stdout
        (tmp_path / "t.txt").write_bytes(text.replace(b"<|im_end|> Ann", b"(im_end) Ann"))
        n = len(json.loads(hokku("tokenize", *BUILTIN[:2], "--special", "--bos", tmp_path / "t.txt").stdout))
        assert abs(line["prompt_tokens"] - n) <= 8 * (used is messages)  # (the user's own mark is text)
    assert objects(hokku(*SAMPLED, "-sys", "You are terse.", "--lines", "--json", input="Hi, I am Ann"))[0]["tokens"] == \
        objects(hokku(*SAMPLED, "--lines", "--json", input=json.dumps({"messages": messages[:2]})))[0]["tokens"]
    newer = [{**messages[0], "role": "developer"}, *messages[1:]]  # OpenAI's newer word for it, as in serve
    assert objects(hokku(*SAMPLED, "--lines", "--json", input=json.dumps({"messages": newer})))[0]["tokens"] == got[0]["tokens"]


@pytest.mark.parametrize("line,says", [
    (request("x", top_q=1), 'unknown key "top_q": expected prompt or messages'),
    (request("x", temperature="hot"), '"temperature": found "hot", expected a number'),
    (request("x", max_tokens=-2), '"max_tokens": found -2, expected a whole number, -1 or more'),
    (request("x", n_predict="y"), '"n_predict": found "y", expected a whole number, -1 or more'),
    (request("x", max_tokens=1, n_predict=1), "expected one of them"),
    (json.dumps({"messages": []}), "an array of one message or more"),
    (json.dumps({"messages": [{"role": "tool", "content": "x"}]}), 'message 1: "role": found "tool", expected "user"'),
    (json.dumps({"messages": [{"role": "user\0x", "content": "x"}]}), 'message 1: "role": found "user\\u0000x", expected "user"'),
    (json.dumps({"messages": [{"role": "user", "content": ["x"]}]}), 'message 1: "content": found "x", expected a part {"type": "text", "text": ...}'),
    (json.dumps({"messages": [{"role": "user", "content": []}]}), 'message 1: "content": found [], expected a text, or an array of parts'),
    (json.dumps({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]}), 'message 1: "content": found {"type":"image_url","image_url":"x"}, expected a part'),
    (json.dumps({"messages": [{"role": "user"}]}), 'message 1: "content": found no value, expected a text, or an array of parts'),
    (json.dumps({"messages": [{"role": "user", "content": "x", "name": "y"}]}), 'a message with "name"'),
    (json.dumps({"messages": [{"role": "user", "content": "x"}, {"role": "system", "content": "x"}]}), "first of all"),
    ('{"prompt": "x", "prompt": "y"}', "duplicate"),
    ('{"messages": [', "column")])
def test_a_request_that_cannot_be_is_refused_by_name_and_the_rest_go_on(hokku, line, says):
    r = hokku(*SAMPLED, "-n", 2, "--lines", "--json", input=f"hi\n{line}\nhi\n")
    first, wrong, last = objects(r)
    assert r.returncode == 1 and wrong["line"] == 2 and wrong["error"]["code"] == 2 and says in wrong["error"]["message"], wrong
    assert first["tokens"] == last["tokens"]


def test_what_cannot_stand_around_messages_is_said(hokku):
    line = json.dumps({"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "y"}]})
    for args, says in ((["before"], b"messages stand alone"), (["-sys", "x"], b"expected one of them"), (["-no-cnv"], b"need a chat template")):
        r = hokku(*SAMPLED, "-n", 1, "--lines", *args, input=line)
        assert r.returncode == 1 and says in r.stderr, r


# -------------------------------------------------------------------------------------------- shards


def test_shards_together_are_the_whole_and_each_again_is_the_same(hokku):
    lines = "\n".join(["Who are you?", "", "hi", "Write a haiku about snow", TOO_LONG, "hello", "What is 3 plus 4?"])
    run = lambda *args: hokku(*SAMPLED, "-n", 20, "--lines", "--json", *args, input=lines)
    whole = [{**without_times(j), "line": j["line"]} for j in objects(run())]
    parts = [objects(run("--shard", f"{i}/3")) for i in range(3)]
    assert [[j["line"] for j in p] for p in parts] == [[3, 6], [1, 4, 7], [5]]
    merged = sorted((j for p in parts for j in p), key=lambda j: j["line"])
    assert [{**without_times(j), "line": j["line"]} for j in merged] == whole
    again = run("--shard", "1/3", "-np", 1)
    assert [without_times(j) for j in objects(again)] == [without_times(j) for j in parts[1]] and again.returncode == 0


def array(task, first, last, count, step=1, **more):
    """What Slurm says in a job of an array."""
    values = {"ID": task, "MIN": first, "MAX": last, "COUNT": count, "STEP": step}
    return {**{f"SLURM_ARRAY_TASK_{k}": str(v) for k, v in values.items()}, **more}


def script(n_tasks):
    """And in the script of a job with so many tasks."""
    return {"ENVIRONMENT": "BATCH", "SLURM_PROCID": "0", "SLURM_NTASKS": str(n_tasks)}


def srun(task, n_tasks):
    """And in what srun starts there."""
    return {**script(n_tasks), "SLURM_PROCID": str(task), "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": str(n_tasks)}


@pytest.mark.parametrize("env,expected", [
    ({"SLURM_PROCID": "2", "SLURM_NTASKS": "4"}, [2, 6]),
    (srun(2, 4), [2, 6]),
    ({**srun(2, 4), "SLURM_NTASKS": "8"}, [2, 6]),  # srun -n 4 --preserve-env in a job of 8
    (srun(0, 1), [1, 2, 3, 4, 5, 6, 7]),
    (array(6, 5, 7, 3), [1, 4, 7]),
    (array(6, 5, 7, 3, SLURM_PROCID="0"), [1, 4, 7]),
    (array(6, 5, 7, 3, **script(1)), [1, 4, 7]),
    (array(9, 5, 9, 3, 2), [2, 5]),
    (array(6, 5, 7, 3, SLURM_PROCID="1", SLURM_NTASKS="2"), [3]),
    (array(6, 5, 7, 3, **srun(1, 2)), [3])])
def test_shard_auto_is_what_slurm_says(hokku, env, expected):
    r = hokku(*SAMPLED, "-n", 1, "--lines", "--json", "--shard", "auto", env=env, input="hi\n" * 7)
    assert r.returncode == 0 and [j["line"] for j in objects(r)] == expected, r


@pytest.mark.parametrize("way", ["--lines", "--turns"])
def test_a_prompt_is_put_before_each_line(hokku, way):
    one, two = objects(hokku(*SAMPLED, "-n", 8, "--json", way, "Say:", "-f", "-", input="one\ntwo\n"))
    alone = json.loads(hokku(*SAMPLED, "-n", 8, "--json", "Say:\n\none").stdout)
    assert one["tokens"] == alone["tokens"] and one["prompt_tokens"] == alone["prompt_tokens"]
    assert two["prompt_tokens"] == alone["prompt_tokens"] or way == "--turns"


@pytest.mark.parametrize("args,env,says", [
    (["--lines", "--shard", "3/3"], {}, b"found \"3/3\", expected I/N"),
    (["--lines", "--shard", "1"], {}, b"expected I/N"),
    (["--lines", "--shard", "-1/2"], {}, b"expected I/N"),
    (["--lines", "--shard", "auto"], {}, b"found neither SLURM_PROCID"),
    (["--shard", "0/2"], {}, b"--shard is for --lines"),
    (["--unordered", "--turns"], {}, b"--unordered is for --lines"),
    (["-np", "2"], {}, b"--parallel is for --lines"),
    (["--lines", "-np", "257"], {}, b"257")])
def test_wrong_usage_of_many_is_2(hokku, args, env, says):
    r = hokku(*BUILTIN, *args, env=env, input="hi\n")
    assert r.returncode == 2 and says in r.stderr and r.stdout == b"", r


@pytest.mark.parametrize("env,says", [
    *((array(task, 0, 9, 3, step), b"expected an array without gaps: --array=0-2") for task in (0, 2, 9) for step in (1, 2)),  # --array=0,2,9
    (array(8, 5, 7, 3), b"found task 8 of an array of 3 from 5 to 7 in steps of 1"),
    (array(4, 5, 7, 3), b"found task 4 of an array"),
    (array(6, 5, 9, 3, 2), b"found task 6 of an array"),
    (array(5, 5, 9, 3, 0), b"in steps of 0"),
    (array(0, 0, 0, 0), b"an array of 0"),
    (array(2, 2, 2, 1), b"--shard 2/N"),  # --array=2
    (array(2, 2, 2, 1, **script(1)), b"--shard 2/N"),
    (array(2, 2, 2, 1, SLURM_PROCID="0", SLURM_NTASKS="2"), b"--shard 4/N"),
    (array(2, 2, 2, 1, **srun(1, 2)), b"--shard 5/N"),
    ({k: v for k, v in array(6, 5, 7, 3, **srun(1, 2)).items() if k != "SLURM_ARRAY_TASK_COUNT"}, b"found nothing for SLURM_ARRAY_TASK_COUNT"),
    ({**array(6, 5, 7, 3), "SLURM_ARRAY_TASK_MAX": "7x"}, b"found 7x for SLURM_ARRAY_TASK_MAX"),
    (array(65536, 0, 99999, 100000, SLURM_PROCID="1", SLURM_NTASKS="65536"), b"found 100000 jobs of 65536 tasks"),
    ({"SLURM_PROCID": "4", "SLURM_NTASKS": "4"}, b"found task 4 of 4"),
    ({"SLURM_PROCID": "1"}, b"found task 1 of 1"),
    ({"SLURM_PROCID": "0"}, b"found neither SLURM_PROCID"),
    ({"SLURM_NTASKS": "4"}, b"found 4 tasks and no srun"),  # salloc
    (script(4), b"found 4 tasks and no srun, which starts each of them: write srun before hokku"),
    (array(6, 5, 7, 3, **script(4)), b"found 4 tasks and no srun")])
def test_what_slurm_does_not_tell_is_not_guessed(hokku, env, says):
    r = hokku(*BUILTIN, "--lines", "--shard", "auto", env=env, input="hi\n")
    assert r.returncode == 2 and says in r.stderr and r.stdout == b"", r


# -------------------------------------------------------------------------------------------- progress


def test_a_terminal_sees_how_far_it_is_and_no_trace_of_it(home, tmp_path):
    def seen(n_lines):
        """Whether an estimate was shown before all was done."""
        (tmp_path / "in").write_text("Write a haiku about the sea\n" * n_lines)
        command = f"{HOKKU} {' '.join(map(str, SAMPLED))} --ignore-eos -n 40 --lines < {tmp_path}/in > {tmp_path}/out; echo done"
        t = Terminal(["sh", "-c", command], 80, 24, env=home)
        screen = lambda: "\n".join(t.screen.rows())
        try:
            assert t.wait(lambda: "s left" in screen() or "done" in t.screen.rows()[0:1], 60), t.raw
            shown = screen()
            assert t.wait(lambda: "done" in t.screen.rows()[0:1], 240), t.screen.rows()
            assert "lines" not in screen()
        finally:
            t.close()
        assert "s left" not in shown or (" lines · " in shown and "/s · " in shown), shown
        return "s left" in shown
    assert any(seen(n) for n in (30, 300, 3000))  # as many as this machine needs
    assert len((tmp_path / "out").read_bytes()) > 1000


def test_a_line_of_spaces_and_tabs_has_a_number_and_no_answer(hokku):
    lines = [" \t\r", "", "hi", "\f", "\u00a0", request(""), "\t \t"]
    r = hokku(*SAMPLED, "-n", 2, "--lines", "--json", input="\n".join(lines))
    assert r.returncode == 0 and [j["line"] for j in objects(r)] == [3, 4, 5, 6] and b"3 blank lines skipped" in r.stderr, r
    turns = hokku(*SAMPLED, "-n", 2, "--turns", "--json", input="\n".join(lines[:3]))
    assert len(objects(turns)) == 1 and b"2 blank lines skipped" in turns.stderr, turns


BROKEN = ['{"prompt": "hi"', '{"seed": 1, "prompt": "hi"', "{'prompt': 'hi'}", ' { "max_tokens":5,"prompt":"hi",}', '{"temperature": nan, "prompt": "hi"}',
          '{"text": "hi"', '{"id": 3, "prompt": "hi', '{"promp', '{"prompt" ', '{"prompt"\r', '{"id": 1, "id": 2}', '{"a\\": b', "{'name': 'Ann'}", '{"name": "Ann"} Who is it?',
          '{"prompt" "x"}', '{"messages", []}', "{ 'seed' 1}"]


@pytest.mark.parametrize("line", BROKEN)
def test_an_object_that_is_broken_is_an_error_whichever_key_is_first(hokku, line):
    r = hokku(*BUILTIN, "--lines", "-n", 3, input=line)
    assert r.returncode == 1 and b"line 1: column " in r.stderr and r.stdout == b"\n", r


@pytest.mark.parametrize("line,says", [('{"name": "Ann"}', b'unknown key "name": expected prompt or messages'), ('{"name": 1, "prompt": "hi"}', b'unknown key "name"'),
                                       ('{"seed": 5}', b'found neither "prompt" nor "messages"'),
                                       ('{"prompt": "hi", "messages": [{"role": "user", "content": "hi"}]}', b'found both "prompt" and "messages"')])
def test_an_object_that_is_no_request_is_an_error(hokku, line, says):
    r = hokku(*BUILTIN, "--lines", "-n", 3, input=line)
    assert r.returncode == 1 and says in r.stderr and r.stdout == b"\n", r


@pytest.mark.parametrize("line", ["{ x := 1 } what does this do?", '{"a", "b"} is which kind of set?', "{}", "{", "{ }", "{'tis the season}", "{'a', 'b'}", "{a: 1}", '{"prompts" "x"}', "[1, 2]",
                                  '"prompt": "hi"', '{{"prompt": "hi"}}', '{% if "a": %}'])
def test_a_line_that_begins_as_no_object_does_is_a_prompt(hokku, line):
    as_it_is, as_prompt = objects(hokku(*SAMPLED, "-n", 8, "--lines", "--json", input=line + "\n" + request(line)))
    assert as_it_is["tokens"] == as_prompt["tokens"] and as_it_is["prompt_tokens"] == as_prompt["prompt_tokens"]


@pytest.mark.parametrize("first", ["Who are you?", '{"prompt": "Who are you?"}'])
def test_a_byte_order_mark_before_the_first_line_is_no_part_of_it(hokku, first):
    lines = f"{first}\r\n{first}\r\n".encode()
    want, got = ([without_times(j) for j in objects(hokku(*SAMPLED, "--lines", "--json", input=b + lines))] for b in (b"", b"\xef\xbb\xbf"))
    assert len(got) == 2 and got == want
    for way in ("--lines", "--turns"):
        want, got = (hokku(*SAMPLED, way, input=b + b"Who are you?\n").stdout for b in (b"", b"\xef\xbb\xbf"))
        assert got == want
    assert hokku(*SAMPLED, "--lines", input=b"\xef\xbb\xbf").stdout == b""  # nothing behind it
