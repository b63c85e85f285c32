"""A model's file that is cut while it is in use: one line, exit 3, and the conversation is saved."""
import os
import shutil
import subprocess
import time

import pexpect
import pytest
from conftest import HOKKU, model
from server import serving
from session_format import describe
from test_repl import Chat


@pytest.fixture
def mine(tmp_path):
    return shutil.copy(model("qwen2-tiny-q8_0"), tmp_path / "mine.gguf")


def test_in_the_chat(home, mine, tmp_path):
    c = Chat(home, "-m", mine, "-n", 4, "--session", "s")
    c.say("one")
    os.truncate(mine, os.path.getsize(mine) // 3)
    c.p.send("two\r")
    c.p.expect("mine.gguf: a part of it can no longer be read: the file was cut[^\n]*the conversation is saved")
    c.p.expect(pexpect.EOF)
    c.p.close()
    assert c.p.exitstatus == 3
    assert "Bus error" not in c.p.before and "hokku:" not in c.p.before  # the one line is all
    assert describe(tmp_path / "state/hokku/sessions/s.session")["turns"] == 1


def test_in_the_midst_of_answers_over_http(home, mine):
    with serving(home, model=["-m", mine, "-t", 2, "-c", 30000, "-l", "1053-1000", "-l", "1055-1000"]) as s:  # its end tokens are out of reach
        c = s.open("/v1/completions", {"prompt": "hello", "max_tokens": 25000})
        s.wait_for(answers_running=1)
        os.truncate(mine, 4096)
        data = b"".join(iter(lambda: c.recv(65536), b""))
        _, err = s.process.communicate(timeout=60)
        assert s.process.returncode == 3 and b"can no longer be read" in err and err.count(b"\n") <= 2, err
        assert data.startswith(b"HTTP/1.1 503"), data


def test_in_the_first_answer_of_a_chat_that_begins_with_a_prompt(home, mine):
    c = Chat(home, "-m", mine, "-c", 30000, "--ignore-eos", "-n", 25000, "-cnv", "hello", ready=False)
    c.p.expect("context 30000")
    time.sleep(1)
    os.truncate(mine, 4096)
    c.p.expect("can no longer be read", timeout=30)  # and nobody is asked for anything first
    c.p.expect(pexpect.EOF)
    c.p.close()
    assert c.p.exitstatus == 3


def test_in_the_middle_of_an_answer_what_was_said_is_saved(home, mine, tmp_path):
    c = Chat(home, "-m", mine, "-c", 30000, "--ignore-eos", "-n", 25000, "-s", 1, "--session", "s")
    c.p.send("hello\r")
    time.sleep(1.5)
    os.truncate(mine, 4096)
    c.p.expect("can no longer be read")
    c.p.expect(pexpect.EOF)
    c.p.close()
    assert c.p.exitstatus == 3
    assert describe(tmp_path / "state/hokku/sessions/s.session")["tokens"] > 30


@pytest.mark.parametrize("args", [["--lines"], ["--turns", "--json"], ["bench", "-p", "8", "-n", "4000", "-r", "50"]])
def test_in_a_pipe_and_in_a_tool(home, mine, args):
    tool = args[:1] if args[0] == "bench" else []
    # (Fifty answers of 2,000 tokens that forget what no longer fits: whatever the machine, they do not end in between.)
    more = [] if tool else ["-n", "2000", "--ignore-eos", "-c", "4000", "--overflow", "shift"]
    p = subprocess.Popen([HOKKU, *tool, "-m", mine, *args[len(tool):], *more],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=home)
    if tool:
        time.sleep(1.5)
    else:
        p.stdin.write(b"one\n" * 50)
        p.stdin.flush()
        p.stdout.read(1)
    os.truncate(mine, 0)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 3, (p.returncode, err)
    assert err.count(b"\n") == 1 and b"mine.gguf: a part of it can no longer be read" in err, err
