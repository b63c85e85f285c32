"""The first Ctrl-C, SIGTERM or SIGHUP is heard in every state of the program, the second one kills; who waits sees which signal it was."""
import contextlib
import json
import os
import pathlib
import pty
import signal
import socket
import subprocess
import sys
import threading
import time

import pexpect
import pytest

from conftest import HOKKU, ROOT, at_work

sys.path.insert(0, str(ROOT / "tests"))
import make_gguf

MODEL = ROOT / "builtin/hokku-builtin.gguf"
PROMPT_S = 10  # far more than a signal takes to be heard, far less than the work it ends
ALL = pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
HEAVY = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@contextlib.contextmanager
def started(env, *args, **kw):
    p = subprocess.Popen([HOKKU, *map(str, args)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)
    try:
        yield p
    finally:
        p.kill()
        p.wait()
        for pipe in (p.stdin, p.stdout, p.stderr):
            if pipe:
                pipe.close()


def in_state(p, test, seconds=20):
    end = time.time() + seconds
    while not test(p):
        assert isinstance(p, pexpect.spawn) or p.poll() is None, p.stderr.read().decode()
        assert time.time() < end, "the program never came to this state"
        time.sleep(0.01)


def catches(p, sig):
    status = pathlib.Path(f"/proc/{p.pid}/status").read_text()
    return int(status.split("SigCgt:")[1].split()[0], 16) >> (sig - 1) & 1


def stat(p):
    return pathlib.Path(f"/proc/{p.pid}/stat").read_text().rsplit(")", 1)[1].split()


def busy(p, hundredths=10):
    """It has signal handlers and has computed for a while: it is past its start."""
    return catches(p, signal.SIGINT) and int(stat(p)[11]) + int(stat(p)[12]) >= hundredths  # of a second


def computes(p):
    return stat(p)[0] == "R"


def waiting(p):
    """It sleeps in a system call."""
    return catches(p, signal.SIGINT) and stat(p)[0] == "S"


def ends_by(p, sig, seconds=PROMPT_S):
    begin = time.time()
    p.send_signal(sig)
    assert p.wait(timeout=seconds) == -sig, p.stderr.read().decode()
    return time.time() - begin


@ALL
def test_while_standard_input_is_awaited(home, sig):
    with started(home, "-m", MODEL, stdin=subprocess.PIPE) as p:
        in_state(p, waiting)
        ends_by(p, sig)


@ALL
def test_while_the_next_line_is_awaited(home, sig):
    with started(home, "-m", MODEL, "--lines", "-n", "1", stdin=subprocess.PIPE) as p:
        p.stdin.write(b"hi\n")
        p.stdin.flush()
        assert p.stdout.readline()
        in_state(p, waiting)
        ends_by(p, sig)


@ALL
@pytest.mark.parametrize("args", [("-f",), ("-sysf",), ("tokenize",), ("render",)])
def test_while_a_named_pipe_has_no_writer(home, tmp_path, sig, args):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with started(home, *args, fifo, *([] if args[0][0] != "-" else ["-m", MODEL]), stdin=subprocess.DEVNULL) as p:
        in_state(p, waiting)
        ends_by(p, sig)


@ALL
def test_while_an_answer_is_written(home, sig):
    with started(home, "-m", MODEL, "--ignore-eos", "--overflow", "shift", "hi", stdin=subprocess.DEVNULL) as p:
        assert p.stdout.read(1)
        ends_by(p, sig)


@ALL
def test_while_a_template_is_rendered(home, tmp_path, sig):
    (tmp_path / "t.jinja").write_text(HEAVY)
    with started(home, "render", "--chat-template-file", tmp_path / "t.jinja", stdin=subprocess.PIPE) as p:
        p.stdin.write(b"{}")
        p.stdin.close()
        in_state(p, busy)
        assert ends_by(p, sig) < 1


@ALL
@pytest.mark.parametrize("args,word", [(["tokenize"], b"the quick brown fox "), (["tokenize"], b"x"),
                                       (["score"], b"one "), (["perplexity", "-f"], b"two ")])
def test_while_a_long_text_is_tokenized(home, tmp_path, sig, args, word):
    (tmp_path / "long.txt").write_bytes(word * (100_000_000 // len(word)))
    with started(home, *args, tmp_path / "long.txt", "-m", MODEL) as p:
        in_state(p, busy)
        assert ends_by(p, sig) < 2


@contextlib.contextmanager
def silent_server():
    """Takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        held = []

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    held.append(s.accept()[0])
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{s.getsockname()[1]}", held
        for c in held:
            c.close()


@ALL
def test_while_a_server_is_silent(home, sig):
    with silent_server() as (url, held), started({**home, "HF_ENDPOINT": url}, "pull", "u/r") as p:
        in_state(p, lambda p: held)
        ends_by(p, sig)


@ALL
def test_while_a_model_is_opened(home, tmp_path, sig):
    """A vocabulary so large that building its tables takes a while: the larger, the longer."""
    for n in (1_000_000, 4_000_000, 16_000_000):
        with started(home, "tokenize", "-m", big_vocabulary(tmp_path, n), "/dev/null") as p:
            while p.poll() is None and not busy(p, hundredths=3):
                time.sleep(0.001)
            p.send_signal(sig)
            if p.wait(timeout=PROMPT_S) == -sig:
                return
            assert p.returncode == 0, p.stderr.read().decode()  # it had ended
    pytest.fail("it is opened sooner than a signal arrives")


def big_vocabulary(directory, n):
    kvs = [("general.architecture", "llama"), ("tokenizer.ggml.model", "llama")]
    kvs += [(f"tokenizer.ggml.{key}", make_gguf.Typed("array", values)) for key, values in (
        ("tokens", ("str", [f"t{i}" for i in range(n)])), ("scores", ("f32", [0.0] * n)), ("token_type", ("i32", [1] * n)))]
    make_gguf.write(directory / "big.gguf", kvs, [])
    return directory / "big.gguf"


def test_a_second_signal_kills_while_the_first_is_not_yet_heard(home, tmp_path):
    """Sent while the program is stopped: both wait for it, and it goes on into its handlers."""
    (tmp_path / "t.jinja").write_text(HEAVY)
    with started(home, "render", "--chat-template-file", tmp_path / "t.jinja", stdin=subprocess.PIPE) as p:
        p.stdin.write(b"{}")
        p.stdin.close()
        in_state(p, busy)
        p.send_signal(signal.SIGSTOP)
        p.send_signal(signal.SIGINT)
        p.send_signal(signal.SIGTERM)
        p.send_signal(signal.SIGCONT)
        assert p.wait(timeout=PROMPT_S) in (-signal.SIGINT, -signal.SIGTERM)


# --------------------------------------------------------------------------------------- in the chat


@pytest.fixture
def heavy_chat(home, tmp_path):
    """A chat whose template takes all the time that a rendering may have."""
    (tmp_path / "t.jinja").write_text(HEAVY)
    p = pexpect.spawn(HOKKU, ["-m", str(MODEL), "--chat-template-file", str(tmp_path / "t.jinja")], env=home, timeout=30,
                      encoding="utf-8", dimensions=(50, 200))
    p.expect("> $")
    p.at_work = at_work(p, home)
    yield p
    p.close(force=True)


def renders(chat):
    return computes(chat.at_work)


def test_in_the_chat_a_rendering_stops_and_the_message_is_taken_back(heavy_chat):
    heavy_chat.send("hello\r")
    heavy_chat.expect("hello\r\n")
    in_state(heavy_chat, renders)
    heavy_chat.send("\x03")
    assert heavy_chat.expect(["taken back", "template uses too much", "template takes too long"]) == 0
    heavy_chat.expect("> $")


def test_in_the_chat_a_template_without_end_is_an_error_and_the_chat_lives(heavy_chat):
    heavy_chat.send("hello\r")
    heavy_chat.expect("template (uses too much|takes too long).*--chat-template")
    heavy_chat.expect("> $")
    heavy_chat.send("/context\r")
    heavy_chat.expect("tokens used")


def test_in_the_chat_a_file_that_never_comes_is_not_waited_for(home, tmp_path, heavy_chat):
    os.mkfifo(tmp_path / "fifo")
    heavy_chat.send(f"/read {tmp_path}/fifo\r")
    heavy_chat.expect("it is a pipe, expected a file")
    heavy_chat.expect("> $")


def test_in_the_chat_sigterm_ends_a_rendering(heavy_chat):
    heavy_chat.send("hello\r")
    heavy_chat.expect("hello\r\n")
    in_state(heavy_chat, renders)
    heavy_chat.kill(signal.SIGTERM)
    heavy_chat.expect(pexpect.EOF)
    heavy_chat.wait()
    assert heavy_chat.signalstatus == signal.SIGTERM


@pytest.mark.parametrize("where", ["pipe", "terminal", "closed"])
def test_a_terminal_that_goes_leaves_a_saved_half_answer(home, where):
    """SIGHUP ends as SIGTERM does: what was said is in the session, also where the answer's stream is the terminal that went."""
    words = [HOKKU, "-s", "1", "--ignore-eos", "-c", "30000", "--session", "gone", "Hi"]
    if where == "pipe":
        p = subprocess.Popen(words, env=home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert p.stdout.read(20)
        p.send_signal(signal.SIGHUP)
        p.communicate()
        assert p.returncode == -signal.SIGHUP
    else:
        pid, fd = pty.fork()
        if pid == 0:
            os.execve(HOKKU, words, home)
        got = b""
        while len(got) < 400:
            got += os.read(fd, 4096)
        if where == "terminal":
            os.kill(pid, signal.SIGHUP)
            with contextlib.suppress(OSError):
                while os.read(fd, 65536):
                    pass
        os.close(fd)
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGHUP
    kept = json.loads(subprocess.run([HOKKU, "sessions", "--json"], env=home, capture_output=True).stdout)
    assert [(s["name"], s["turns"]) for s in kept] == [("gone", 1)] and kept[0]["tokens"] > 15, kept
    r = subprocess.run([HOKKU, "replay", "gone"], env=home, capture_output=True)
    assert r.returncode == 0 and b"all agree" in r.stdout, r


def test_who_is_told_to_ignore_a_hangup_goes_on(home):
    words = [HOKKU, "-s", "1", "--ignore-eos", "-n", "600", "Hi"]
    with subprocess.Popen(["nohup", *words], env=home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          bufsize=0) as p:  # else communicate() does not know of what was read ahead
        begin = p.stdout.read(20)
        p.send_signal(signal.SIGHUP)
        rest, said = p.communicate()
    assert p.returncode == 0 and begin + rest == subprocess.run(words, env=home, stdin=subprocess.DEVNULL, capture_output=True).stdout, said
