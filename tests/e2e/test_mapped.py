"""A model's file that is cut while it is in use: one line, exit 3, and the conversation is saved."""
import os
import shutil
import subprocess
import time

import pexpect
import pytest
from conftest import HOKKU, model
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
    p = subprocess.Popen([HOKKU, *tool, "-m", mine, *args[len(tool):], *([] if tool else ["-n", "2000", "--ignore-eos", "-c", "4000"])],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=home)
    if not tool:
        p.stdin.write(b"one\n" * 50)
        p.stdin.flush()
    time.sleep(1.5)
    os.truncate(mine, 0)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 3, (p.returncode, err)
    assert err.count(b"\n") == 1 and b"mine.gguf: a part of it can no longer be read" in err, err
