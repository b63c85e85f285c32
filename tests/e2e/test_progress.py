"""Who waits sees for what: a line while a large model is opened, another while a long prompt is read; both leave no trace."""
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from conftest import HOKKU, ROOT, model
from terminal import Terminal
from test_places import shim  # noqa: F401 (fixture)

LOADING = re.compile(r"loading ([\d.]+ [kMG]?B) of ([\d.]+ MB) · [\d.]+ [kMG]?B/s")
READING = re.compile(r"reading ([\d,]+) of ([\d,]+) tokens · (\d+) s left")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Random weights of 70 MB: large enough to be read in many pieces."""
    path = tmp_path_factory.mktemp("large") / "large.gguf"
    subprocess.run([sys.executable, ROOT / "tests/make_gguf.py", path, *"--arch qwen2 --layers 6 --embd 1024 --heads 8 --ff 3072".split(),
                    *"--types Q8_0 --vocab 1000 --ctx 8192 --no-template".split()], check=True, capture_output=True)
    assert os.path.getsize(path) > 60e6
    return path


@pytest.fixture
def run(home, large, shim):
    """What hokku shows on a terminal, with a disk that is slow."""
    running = []

    def start(*args, cold=100000, cols=80, **env):
        t = Terminal([HOKKU, "-m", large, "-n", 3, "-t", 2, *args], cols, 24,
                     env={**home, "LD_PRELOAD": shim, "TEST_COLD": str(cold), "NO_COLOR": "1", **env})
        running.append(t)
        return t

    yield start
    for t in running:
        t.close()


def test_opening_a_large_model_shows_bytes_and_rate_and_leaves_no_trace(run, large):
    t = run("hi")
    assert t.wait(lambda: LOADING.search("\n".join(t.screen.rows())))
    while t.pump(0.05):
        pass
    seen = [m.group(2) for m in LOADING.finditer(t.raw)]
    assert len(seen) > 3 and set(seen) == {f"{os.path.getsize(large) / 1e6:.1f} MB"}
    assert "loading" not in "\n".join(t.screen.rows())


def test_in_the_chat_the_banner_takes_its_place(run):
    t = run(cols=120)
    assert t.wait(lambda: LOADING.search("\n".join(t.screen.rows())))
    assert t.wait(lambda: ">" in [row[:1] for row in t.screen.rows()])
    rows = t.screen.rows()
    assert rows[rows.index(">") - 1].startswith("hokku ") and "loading" not in "\n".join(rows)


def test_what_is_in_memory_already_is_not_told(run):
    def told():
        t = run("hi", cold=0)
        while t.pump(0.05):
            pass
        return "loading" in t.raw
    assert not all(told() for _ in range(5))  # (a machine that sleeps in between waits, and is told)


@pytest.mark.parametrize("args,env", [(["-q"], {}), ([], {"TERM": "dumb"})], ids=["quiet", "dumb"])
def test_who_wants_none_sees_none(run, args, env):
    t = run(*args, "hi", cold=40000, **env)
    while t.pump(0.05):
        pass
    assert "loading" not in t.raw and "\x1b" not in t.raw.replace("\x1b[m", "")


def test_interrupted_while_opening_it_ends_at_once_and_leaves_no_trace(run):
    t = run("hi")
    assert t.wait(lambda: LOADING.search("\n".join(t.screen.rows())))
    began = time.time()
    t.send("\x03")
    while t.pump(0.05):
        pass
    assert time.time() - began < 5
    t.p.close()
    assert t.p.signalstatus == signal.SIGINT
    assert t.raw.rpartition("loading")[2].count("\x1b[K") == 1


def test_what_is_typed_while_a_model_loads_is_a_message_a_line_and_a_paste_is_one(run):
    t = run()
    assert t.wait(lambda: LOADING.search("\n".join(t.screen.rows())), 30)
    t.send("one\rtwo\r\x1b[200~three\rfour\x1b[201~\r/context\r")
    assert t.wait(lambda: "tokens used" in "\n".join(t.screen.rows()), 60)
    rows = "\n".join(t.screen.rows())
    assert re.search(r"> one\n", rows) and re.search(r"> two\n", rows) and re.search(r"> three\n *four\n", rows), rows
    turns = [int(m.group(1)) for m in re.finditer(r"^ +(\d+) ", rows.rpartition("/context")[2], re.M)]
    assert turns == [1, 2, 3], rows


def test_a_terminal_is_as_it_was_found_when_loading_ends_early(run, tmp_path):
    for key, sig in (("\x03", signal.SIGINT), ("\x1c", signal.SIGQUIT)):
        t = run()
        assert t.wait(lambda: LOADING.search("\n".join(t.screen.rows())), 30)
        t.send(key)
        while t.pump(0.05):
            pass
        t.p.close()
        assert t.p.signalstatus == sig
        assert t.raw.rpartition("\x1b[?2004")[2][0] == "l"


@pytest.mark.parametrize("chat,cols", [(True, 80), (False, 30)], ids=["chat", "one answer"])
def test_a_long_prompt_shows_its_share_and_the_time_left_and_leaves_no_trace(run, tmp_path, chat, cols):
    (tmp_path / "long.txt").write_text("one two three four five six seven\n" * 30)
    t = run("-no-cnv", "-f", tmp_path / "long.txt", *(["-st"] if chat else []), cold=0, cols=cols)
    share = READING if cols == 80 else re.compile(r"([\d,]+)/([\d,]+) · (\d+) s left")
    assert t.wait(lambda: share.search("\n".join(t.screen.rows())), 30)
    while t.pump(0.05):
        pass
    told = [int(m.group(1).replace(",", "")) for m in share.finditer(t.raw)]
    assert len(told) > 3 and told == sorted(told)
    assert not share.search("\n".join(t.screen.rows())) and "left" not in "\n".join(t.screen.rows())


@pytest.mark.parametrize("args", [[], ["-b", 512], ["-b", 4096]], ids=["default", "a batch", "more than there is"])
def test_it_moves_within_a_batch_whatever_its_size(run, tmp_path, args):
    (tmp_path / "long.txt").write_text("one two three four five six seven\n" * 30)
    t = run("-no-cnv", "-f", tmp_path / "long.txt", "--stats", *args, cold=0)
    while t.pump(0.05):
        pass
    told = [int(m.group(1).replace(",", "")) for m in READING.finditer(t.raw)]
    total = int(re.search(r"prefill ([\d,]+) tokens", t.raw)[1].replace(",", ""))
    assert total > 512 and told == sorted(told) and len([n for n in told if n < 512]) >= 4, (told, total)


def test_of_tokens_that_come_one_by_one_it_tells_no_more_than_can_be_read(home, tmp_path):
    (tmp_path / "long.txt").write_text("one two three four five six seven\n" * 150)
    t = Terminal([HOKKU, "-m", model("stories"), "-no-cnv", "--stats", "-n", 1, "-c", 4000, "-b", 1, "-f", tmp_path / "long.txt"], 80, 24,
                 env={**home, "NO_COLOR": "1"})
    began = time.monotonic()
    while t.pump(0.05):
        pass
    took = time.monotonic() - began
    total = int(re.search(r"prefill ([\d,]+) tokens", t.raw)[1].replace(",", ""))
    told = [int(m.group(1).replace(",", "")) for m in READING.finditer(t.raw)]
    assert total > 1000 and told == sorted(told) and 10 <= len(told) <= 102 + 20 * took, (len(told), total, took)
    t.close()


@pytest.fixture
def tool(home, tmp_path):
    """What a tool that takes a while shows on a terminal."""
    (tmp_path / "long.txt").write_text("one two three four five six seven\n" * 600)
    running = []

    def start(*args, **env):
        words = [tmp_path / "long.txt" if a == "TEXT" else a for a in args]
        t = Terminal([HOKKU, *words, "--device", "cpu"], 80, 24, env={**home, **env})
        running.append(t)
        return t

    yield start
    for t in running:
        t.close()


def ends(t):
    while t.pump(0.05):
        pass
    t.p.close()
    return "\n".join(t.screen.rows())


PERPLEXITY = ["perplexity", "-c", 64, "-f", "TEXT"]
BENCH = ["bench", "-p", 64, "-n", 8, "-r", 2, "--batch", 2]


def test_perplexity_says_how_far_it_is_and_leaves_no_trace(tool):
    t = tool(*PERPLEXITY)
    screen = ends(t)
    told = [int(m.group(1)) for m in re.finditer(r"window (\d+) of \d+: perplexity [\d.]+", t.raw)]
    assert len(told) > 3 and told == sorted(told)
    assert re.fullmatch(r"perplexity [\d.]+ [^\n]*\n*", screen), screen


def test_perplexity_that_is_interrupted_leaves_no_trace(tool):
    t = tool(*PERPLEXITY)
    assert t.wait(lambda: "window 2 " in t.raw)
    t.send("\x03")
    screen = ends(t)
    assert t.p.signalstatus == signal.SIGINT and "window" not in screen.replace("^C", ""), screen


def test_bench_says_what_it_runs_and_leaves_no_trace(tool):
    t = tool(*BENCH)
    screen = ends(t)
    for what in ("prefill", "decode", "first token"):
        told = re.findall(rf"{what} at depth 0: (warming up|run \d of 2)", t.raw)
        assert told[:3] == ["warming up", "run 1 of 2", "run 2 of 2"], (what, told)
    assert "| prefill" in screen and "run 2" not in screen and "warming" not in screen, screen


@pytest.mark.parametrize("args", [PERPLEXITY, BENCH, ["replay", "s"]], ids=lambda a: a[0])
def test_a_terminal_without_escape_sequences_gets_none_of_a_tool(tool, hokku, args):
    if args[0] == "replay":
        assert hokku("--session", "s", "-n", 3, "hi").returncode == 0
    t = tool(*args, TERM="dumb")
    screen = ends(t)
    assert t.p.exitstatus == 0 and screen and "\x1b" not in t.raw, t.raw
