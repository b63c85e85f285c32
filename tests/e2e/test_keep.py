"""--keep: a model that stays in memory changes no byte of any call, and never stands in the way of one."""
import contextlib
import fcntl
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time

import pytest
from conftest import HOKKU, OWN, ROOT, control_group, inside_of, wait_until
from server import ENDLESS
from terminal import Terminal
from test_lines import MIXED, without_times
from test_places import shim  # noqa: F401 (fixture)
from test_signals import catches, in_state, stat

sys.path.insert(0, str(ROOT / "tests"))
import make_gguf

MODEL = ["-m", ROOT / "builtin/hokku-builtin.gguf", "-t", 2]
SAMPLED = [*MODEL, "-s", 7, "--temp", 1.1]
FOR_EVER = [*ENDLESS, "--overflow", "shift", "Tell me a story"]
KEEP = ["--keep", "5m", "-v"]
MESSAGE = struct.Struct("=IIiiiIIxxxxddQ1024s128s")  # struct keep_message
SIZE, MAGIC = MESSAGE.size, b"\x01\x6f\x6b\x6b"
BY = re.compile(rb"kept by process (\d+)\n")
F_SETPIPE_SZ = 1031
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


class Keep:
    """A directory for sockets, and calls that have their model kept there."""

    def __init__(self, home, directory):
        self.env = {**home, "XDG_RUNTIME_DIR": directory}
        self.env.pop("HOKKU_KEEP", None)  # of HOKKU_TEST_KEPT: here a call has its model kept where it says so
        self.directory = pathlib.Path(directory)
        self.place = self.directory / "hokku"

    def run(self, *args, input=None, env=None, timeout=120, command=(HOKKU,), **kw):
        if isinstance(input, str):
            input = input.encode()
        if input is None and "stdin" not in kw:
            kw["stdin"] = subprocess.DEVNULL
        return subprocess.run([*command, *map(str, args)], input=input, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env={**self.env, **(env or {})}, timeout=timeout, **kw)

    def kept(self, *args, **kw):
        """The same by a keeper, and its process. (A machine that sleeps for a second has calls run by themselves.)"""
        for _ in range(20):
            r = self.run(*KEEP, *args, **kw)
            if found := BY.search(r.stderr):
                return r, int(found[1])
        raise AssertionError(r.stderr)

    def alone(self, *args, **kw):
        r = self.run(*KEEP, *args, **kw)
        assert b"this call runs by itself" in r.stderr, r.stderr
        return r

    def start(self, *args, stdin=subprocess.DEVNULL, **kw):
        """A call under way: its process, and its keeper's."""
        for _ in range(20):
            p = subprocess.Popen([HOKKU, *map(str, [*KEEP, *args])], env=self.env, stdin=stdin, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, bufsize=0, **kw)
            said = b""
            while not BY.search(said) and b"by itself" not in said:  # (what the keeper says may come before what the call itself says)
                said += p.stderr.read(1)
                assert p.poll() is None, said
            if found := BY.search(said):
                return p, int(found[1])
            end(p)
        raise AssertionError(said)

    @contextlib.contextmanager
    def started(self, *args, **kw):
        p, pid = self.start(*args, **kw)
        try:
            yield p, pid
        finally:
            end(p)

    def sockets(self):
        return sorted(self.place.glob("*")) if self.place.exists() else []

    def models(self):
        return [m["kept"] for m in json.loads(self.run("models", "--json").stdout) if "kept" in m]


def end(p):
    p.kill()
    p.wait()
    for pipe in (p.stdin, p.stdout, p.stderr):
        if pipe:
            pipe.close()


def gone(pid):
    with contextlib.suppress(FileNotFoundError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    return True


@pytest.fixture
def keep(home):
    directory = tempfile.mkdtemp(prefix="k")  # (a socket's name has room for a hundred bytes)
    k = Keep(home, directory)
    yield k
    k.directory.chmod(0o700)
    with contextlib.suppress(OSError):
        k.place.chmod(0o700)
    k.run("serve", "--stop")
    shutil.rmtree(directory)


def same(a, b, *, json_lines=False):
    """Streams and exit code of two calls, but for what names keepers, and times."""
    if json_lines:
        assert [without_times(json.loads(x)) for x in a.stdout.splitlines()] == [without_times(json.loads(x)) for x in b.stdout.splitlines()]
    else:
        assert a.stdout == b.stdout
    said = [[re.sub(rb"[\d.]+ ms \([\d.,]+/s\)|[\d.,]+ (m?s|tokens/s)\b", b"T", line) for line in r.stderr.splitlines() if not BY.search(line + b"\n")]
            for r in (a, b)]
    assert said[0] == said[1]
    assert a.returncode == b.returncode


CALLS = {
    "one answer": ([*SAMPLED, "Write a haiku about the sea"], None, 0),
    "from a pipe": ([*SAMPLED], "Who are you?\n", 0),
    "all of it": ([*SAMPLED, "--json", "--logprobs", 3, "--stats", "-sys", "Be short.", "hi"], None, 0),
    "why": ([*SAMPLED, "--logprobs", 2, "-n", 5, "hi"], None, 0),
    "lines": ([*SAMPLED, "--lines", "--json"], "\n".join(MIXED), 1),
    "lines that end well": ([*SAMPLED, "--lines", "-0", "-np", 3], "a\nb\n\nc\n", 0),
    "turns": ([*SAMPLED, "--turns", "--json"], "I am Ann.\nWhat is my name?\n", 0),
    "a grammar": ([*SAMPLED, "--grammar", 'root ::= [A-Z] [a-z ]{3,40} "."', "hi"], None, 0),
    "a schema": ([*SAMPLED, "-j", '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}', "-n", 40, "--json-close", "hi"], None, 0),
    "a context that shifts": ([*SAMPLED, "-c", 64, "--overflow", "shift", "--ignore-eos", "-n", 200, "hi"], None, 0),
    "no template": ([*SAMPLED, "-no-cnv", "--special", "-n", 20, "<|im_start|>user"], None, 0),
    "too long": ([*SAMPLED, "word " * 1200], None, 5),
    "wrong usage": ([*SAMPLED, "--top-k", "many", "hi"], None, 2),
    "no prompt": ([*SAMPLED], "", 2),
    "no such model": (["-m", "/nowhere.gguf", "hi"], None, 3),
    "a name that is no session": ([*SAMPLED, "--base", "none", "hi"], None, None),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_bytes_are_those_of_a_call_that_runs_by_itself(keep, name):
    args, given, code = CALLS[name]
    is_json = "--json" in args
    plain = keep.run("-v", *args, input=given)
    assert code is None or plain.returncode == code, plain.stderr
    if name in ("wrong usage",):  # (is found out before anybody is asked)
        same(plain, keep.run(*KEEP, *args, input=given))
        return
    for _ in range(2):  # when its keeper begins, or has done others; and again
        same(plain, keep.kept(*args, input=given)[0], json_lines=is_json)
        keep.kept(*MODEL, "Tell me more")


def test_calls_follow_each_other_in_one_process(keep):
    pids = {keep.kept(*args, input=given)[1] for args, given, code in CALLS.values() if code in (0, 5)}
    assert len(pids) == 1 and len(keep.sockets()) == 1


def test_sessions_are_the_same_files(keep, tmp_path):
    names = {}
    for way in ("alone", "kept"):
        env = {"XDG_STATE_HOME": str(tmp_path / way)}
        call = keep.run if way == "alone" else lambda *a, **kw: keep.kept(*a, **kw)[0]
        answers = [call(*SAMPLED, "--session", "a", "I am Ann.", env=env), call(*SAMPLED, "--session", "a", "What is my name?", env=env),
                   call(*SAMPLED, "--base", "a", "--lines", input="Who am I?\nWho are you?\n", env=env),
                   call(*MODEL, "--continue", "hi", env=env), keep.run("sessions", "export", "a", tmp_path / f"{way}.md", env=env)]
        names[way] = [(r.returncode, r.stdout) for r in answers[:3]] + [(tmp_path / f"{way}.md").read_bytes(), answers[3].returncode]
    assert names["alone"] == names["kept"]


def test_directory_streams_mask_and_environment_are_the_calls(keep, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "prompt.txt").write_text("Who are you?")
    plain, first = keep.run(*SAMPLED, "Who are you?"), keep.kept(*SAMPLED, "hi")[1]
    r, pid = keep.kept(*SAMPLED, "-f", "prompt.txt", cwd=other)
    assert (r.stdout, pid) == (plain.stdout, first)
    with open(other / "out", "wb") as out:
        subprocess.run([HOKKU, *map(str, [*KEEP, *SAMPLED, "-f", "prompt.txt"])], cwd=other, env=keep.env, stdin=subprocess.DEVNULL, stdout=out)
    assert (other / "out").read_bytes() == plain.stdout
    for way, call in (("alone", keep.run), ("kept", keep.kept)):  # the directory of sessions is made with the call's mask
        call(*SAMPLED, "--session", "a", "hi", env={"XDG_STATE_HOME": str(tmp_path / way)}, preexec_fn=lambda: os.umask(0o177))
    assert (tmp_path / "alone").stat().st_mode == (tmp_path / "kept").stat().st_mode
    r, pid = keep.kept(*MODEL, "-s", 7, "Who are you?", env={"HOKKU_TEMP": "1.1"})
    assert (r.stdout, pid) == (plain.stdout, first)


def test_the_name_of_the_variable_is_that_of_the_option(keep):
    assert any(BY.search(keep.run("-v", *SAMPLED, "hi", env={"HOKKU_KEEP": "5m"}).stderr) for _ in range(20))
    r = keep.run("-v", "--keep", 0, *SAMPLED, "hi", env={"HOKKU_KEEP": "5m"})
    assert b"kept" not in r.stderr and b"by itself" not in r.stderr


@pytest.mark.parametrize("value", ["", "x", "10x", "-1", "128", "1.5m", "31d", "5 m", "99999999999999999999s", "10mm"])
def test_a_time_that_is_none_is_refused(keep, value):
    r = keep.run("--keep", value, *SAMPLED, "hi")
    assert r.returncode == 2 and b"--keep: found" in r.stderr and b"expected a time" in r.stderr


def test_nothing_is_kept_unless_asked(keep):
    assert keep.run(*SAMPLED, "hi").returncode == 0 and keep.run("--keep", 0, *SAMPLED, "hi").returncode == 0
    r = keep.run("--keep", "5m", "--dry-run", "-v", *SAMPLED)
    assert r.returncode == 0 and r.stderr.startswith(b"hokku: --keep: --dry-run loads no model: this call runs by itself\n"), r
    assert not keep.place.exists()


# ---- ending it

@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_answer_and_the_model_stays(keep, sig):
    with keep.started(*FOR_EVER) as (p, pid):
        assert p.stdout.read(1)
        p.send_signal(sig)
        assert p.wait(timeout=60) == -sig
    assert keep.kept(*ENDLESS, "-n", 3, "hi")[1] == pid


def test_a_signal_is_heard_while_standard_input_is_awaited(keep):
    first = keep.kept(*SAMPLED, "hi")[1]  # (a prompt is read before its model is loaded)
    with keep.started(*SAMPLED, stdin=subprocess.PIPE) as (p, pid):
        assert pid == first
        p.send_signal(signal.SIGINT)
        assert p.wait(timeout=60) == -signal.SIGINT
    assert keep.kept(*SAMPLED, "hi")[1] == pid


def test_a_killed_caller_frees_its_keeper(keep):
    with keep.started(*FOR_EVER) as (p, pid):
        assert p.stdout.read(1)
        p.kill()
        wait_until(lambda: not keep.models()[0]["busy"])
    assert keep.kept(*ENDLESS, "-n", 3, "hi")[1] == pid


def sleeps_begun(pid):
    """Times that its first thread has waited for something."""
    return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1])


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_killed_caller_frees_its_keeper_also_where_nobody_reads(keep, interrupted):
    """The pipe is full, and stays open."""
    with keep.started(*FOR_EVER) as (p, pid):
        room = fcntl.fcntl(p.stdout, F_SETPIPE_SZ, 4096)
        wait_until(lambda: int.from_bytes(fcntl.ioctl(p.stdout, termios.FIONREAD, b"\0" * 4), sys.byteorder) > room - 200)
        keeper = type("", (), {"pid": pid, "poll": lambda self: None})()
        in_state(keeper, lambda p: "pipe_write" in pathlib.Path(f"/proc/{pid}/wchan").read_text() or stat(p)[0] == "S", seconds=60)
        if interrupted:
            before = sleeps_begun(pid)
            p.send_signal(signal.SIGINT)
            wait_until(lambda: sleeps_begun(pid) > before)
        p.kill()
        wait_until(lambda: not keep.models()[0]["busy"])
        assert keep.kept(*ENDLESS, "-n", 3, "hi")[1] == pid


@pytest.mark.parametrize("args,given", [(FOR_EVER, b""), ([*FOR_EVER[:-1], "--lines"], b"one\ntwo\n"), ([*FOR_EVER[:-1], "--turns"], b"one\ntwo\n")])
def test_a_reader_that_goes_ends_the_call_quietly_and_the_model_stays(keep, tmp_path, args, given):
    (tmp_path / "given").write_bytes(given)
    with open(tmp_path / "given") as f, keep.started(*args, stdin=f) as (p, pid):
        assert p.stdout.read(1)
        p.stdout.close()
        assert p.wait(timeout=60) == -signal.SIGPIPE
        assert b"hokku: standard output" not in p.stderr.read()
        p.stdout = open(os.devnull)
    assert keep.kept(*ENDLESS, "-n", 3, "hi")[1] == pid


def test_a_stopped_call_writes_no_more_until_it_goes_on(keep):
    # (The system stops nobody whose group has no parent outside of it in the session: a group of its own has.)
    with keep.started(*FOR_EVER, preexec_fn=os.setpgrp) as (p, pid):
        assert p.stdout.read(1)
        p.send_signal(signal.SIGTSTP)
        in_state(p, lambda p: stat(p)[0] == "T")
        end = time.monotonic() + 60
        while select.select([p.stdout], [], [], 0.3)[0]:  # what was written before
            assert os.read(p.stdout.fileno(), 65536) and time.monotonic() < end
        p.send_signal(signal.SIGCONT)
        for _ in range(3):
            assert os.read(p.stdout.fileno(), 1)
        p.send_signal(signal.SIGINT)
        assert p.wait(timeout=60) == -signal.SIGINT
    assert keep.kept(*ENDLESS, "-n", 3, "hi")[1] == pid


def test_a_killed_keeper_ends_its_call_with_a_message_and_no_later_one(keep):
    plain = keep.run(*SAMPLED, "hi")
    with keep.started(*FOR_EVER) as (p, pid):
        assert p.stdout.read(1)
        os.kill(pid, signal.SIGKILL)
        assert p.wait(timeout=60) == 1
        assert f"process {pid}, which had the model and did this call, is gone".encode() in p.stderr.read()
    wait_until(lambda: gone(pid))
    r, other = keep.kept(*SAMPLED, "hi")  # its socket is still there
    assert r.stdout == plain.stdout and other != pid and len(keep.sockets()) == 2 - (FOR_EVER[1] == SAMPLED[1])


def test_kills_at_any_moment_leave_answers_whole_or_say_so(keep):
    plain = keep.run(*SAMPLED, "--ignore-eos", "-n", 60, "hi").stdout
    for delay in (0, .001, .002, .004, .008, .016, .03):
        p = subprocess.Popen([HOKKU, *map(str, ["--keep", "5m", *SAMPLED, "--ignore-eos", "-n", 60, "hi"])], env=keep.env, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(delay)
        for k in keep.models():
            with contextlib.suppress(ProcessLookupError):
                os.kill(k["pid"], signal.SIGKILL)
        out, err = p.communicate(timeout=60)
        assert (p.returncode, out) == (0, plain) or (p.returncode == 1 and b"is gone" in err and plain.startswith(out)), (p.returncode, err)


def test_it_ends_when_nobody_comes(keep):
    pid = keep.kept("--keep", "1s", *SAMPLED, "hi")[1]
    wait_until(lambda: gone(pid))
    assert keep.sockets() == []


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_keeper_ends_it(keep, sig):
    pid = keep.kept(*SAMPLED, "hi")[1]
    os.kill(pid, sig)
    wait_until(lambda: gone(pid))
    assert keep.sockets() == []
    with keep.started(*FOR_EVER) as (p, pid):  # and the call with it, as if it had been the call's own
        assert p.stdout.read(1)
        os.kill(pid, sig)
        assert p.wait(timeout=60) == -sig
    wait_until(lambda: gone(pid))


def test_a_keeper_whose_socket_was_removed_ends(keep):
    pid = keep.kept(*SAMPLED, "hi")[1]
    keep.sockets()[0].unlink()
    wait_until(lambda: gone(pid))


def test_serve_stop_lets_go_of_what_is_kept(keep):
    r = keep.run("serve", "--stop")
    assert (r.returncode, r.stderr) == (0, b"hokku: 0 kept models let go\n")
    pid = keep.kept(*SAMPLED, "hi")[1]
    for beside in (["-m", "other.gguf"], ["--listen", "127.0.0.1:0"], ["other.gguf"]):
        r = keep.run("serve", "--stop", *beside)
        assert r.returncode == 2 and f'found "{beside[0].replace("-m", "--model")}" beside it'.encode() in r.stderr, r
    assert [m["pid"] for m in keep.models()] == [pid]
    r = keep.run("serve", "--stop", env={"HOKKU_MODEL": "other.gguf"})
    assert (r.returncode, r.stderr, keep.sockets()) == (0, b"hokku: 1 kept model let go\n", [])
    wait_until(lambda: gone(pid))


def test_serve_stop_lets_an_answer_end(keep):
    """A keeper that is told to go takes no more calls, and goes when its answer is whole."""
    with keep.started(*FOR_EVER) as (p, pid):
        assert p.stdout.read(1)
        stop = subprocess.Popen([HOKKU, "serve", "--stop"], env=keep.env, stderr=subprocess.DEVNULL)
        wait_until(lambda: keep.sockets() == [])
        assert keep.kept(*ENDLESS, "-n", 2, "hi")[1] != pid and p.poll() is None
        p.send_signal(signal.SIGINT)
        assert p.wait(timeout=60) == -signal.SIGINT and stop.wait(timeout=60) in (0, 1)
    wait_until(lambda: gone(pid))


def test_serve_stop_says_who_answers_still(keep):
    with keep.started(*FOR_EVER) as (p, pid):
        assert p.stdout.read(1)
        stop = subprocess.Popen([HOKKU, "serve", "--stop"], env=keep.env, stderr=subprocess.PIPE)
        wait_until(lambda: keep.sockets() == [])
        stop.send_signal(signal.SIGINT)  # (it would wait for ten seconds)
        assert stop.communicate(timeout=60)[1].startswith(b"hokku: 0 kept models let go\n") and stop.returncode == -signal.SIGINT


# ---- who stands in the way

def occupied(keep):
    """The name that a keeper has for this model; nobody is there."""
    pid = keep.kept(*SAMPLED, "hi")[1]
    name = keep.sockets()[0]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: gone(pid))
    name.unlink(missing_ok=True)
    return name


@contextlib.contextmanager
def listening(path, uid=None):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.bind(str(path))
    if uid:
        os.seteuid(uid)
    try:
        s.listen(1)
    finally:
        if uid:
            os.seteuid(0)
    with s:
        yield s


def test_what_does_not_answer_is_not_waited_for(keep):
    plain, name = keep.run(*SAMPLED, "hi"), occupied(keep)
    with listening(name):
        assert keep.alone(*SAMPLED, "hi").stdout == plain.stdout
        full = []  # and so many wait already that nobody else can
        for _ in range(8):
            full.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            full[-1].setblocking(False)
            with contextlib.suppress(BlockingIOError):
                full[-1].connect(str(name))
        assert keep.alone(*SAMPLED, "hi").stdout == plain.stdout
        for s in full:
            s.close()


@pytest.mark.parametrize("word", [b"", b"x", b"\0" * SIZE, MAGIC * (SIZE // 4), b"HTTP/1.1 200 OK\r\n\r\n"])
def test_what_talks_otherwise_is_not_used(keep, word):
    plain, name = keep.run(*SAMPLED, "hi"), occupied(keep)
    with listening(name) as s:
        p = subprocess.Popen([HOKKU, *map(str, [*KEEP, *SAMPLED, "hi"])], env=keep.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        c = s.accept()[0]
        with contextlib.suppress(BrokenPipeError):
            c.send(word) if word else None
        c.close()
        out, err = p.communicate(timeout=60)
    assert (p.returncode, out) == (0, plain.stdout) and b"runs by itself" in err


def test_a_stopped_keeper_is_not_waited_for(keep):
    plain = keep.run(*SAMPLED, "hi")
    pid = keep.kept(*SAMPLED, "hi")[1]
    os.kill(pid, signal.SIGSTOP)
    # (Its threads go on until one of them has seen the signal.)
    wait_until(lambda: all(t.read_text().rsplit(")", 1)[1].split()[0] == "T" for t in pathlib.Path(f"/proc/{pid}/task").glob("*/stat")))
    try:
        assert keep.alone(*SAMPLED, "hi").stdout == plain.stdout
    finally:
        os.kill(pid, signal.SIGCONT)
    assert keep.kept(*SAMPLED, "hi")[1] == pid


@pytest.mark.parametrize("what", ["a file", "a directory", "a link"])
def test_what_is_no_socket_is_in_nobodys_way(keep, what):
    plain, name = keep.run(*SAMPLED, "hi"), occupied(keep)
    {"a file": name.touch, "a directory": name.mkdir, "a link": lambda: name.symlink_to("/nowhere")}[what]()
    r = keep.run(*KEEP, *SAMPLED, "hi")
    assert (r.returncode, r.stdout) == (0, plain.stdout)
    if what == "a directory":
        name.rmdir()


def test_nonsense_from_callers_is_borne(keep):
    plain, pid = keep.kept(*SAMPLED, "hi")
    name, held = keep.sockets()[0], []
    for word in (b"", b"x", os.urandom(SIZE), MAGIC + b"\1\0\0\0" + b"\0" * (SIZE - 8), b"y" * 5000, MAGIC * (SIZE // 4)):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.settimeout(60)
        s.connect(str(name))
        null = [os.open(os.devnull, os.O_RDWR) for _ in range(5)]
        with contextlib.suppress(BrokenPipeError):
            socket.send_fds(s, [word or b"z"], null[:len(word) % 6])
        for fd in null:
            os.close(fd)
        held.append(s)
    for _ in range(80):  # and as many as it has places for say nothing at all
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            s.connect(str(name))
        held.append(s)
    r = keep.run(*KEEP, *SAMPLED, "hi")
    assert (r.returncode, r.stdout) == (0, plain.stdout)
    for s in held:
        s.close()
    assert keep.kept(*SAMPLED, "hi")[1] == pid


@pytest.mark.parametrize("wrong", ["unset", "relative", "missing", "open to others", "a link", "inner open to others", "too long"])
def test_without_a_directory_of_its_own_nothing_is_kept(keep, tmp_path, wrong):
    plain, env = keep.run(*SAMPLED, "hi"), {}
    if wrong == "unset":
        del keep.env["XDG_RUNTIME_DIR"]
    elif wrong in ("relative", "missing"):
        env = {"XDG_RUNTIME_DIR": {"relative": "k", "missing": str(tmp_path / "none")}[wrong]}
    elif wrong == "open to others":
        keep.directory.chmod(0o755)
    elif wrong == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        keep.place.symlink_to(tmp_path / "elsewhere")
    elif wrong == "inner open to others":
        keep.place.mkdir()
        keep.place.chmod(0o750)
    else:
        deep = keep.directory / ("d" * 100)
        deep.mkdir(mode=0o700)
        env = {"XDG_RUNTIME_DIR": str(deep)}
    r = keep.alone(*SAMPLED, "hi", env=env)
    assert (r.returncode, r.stdout) == (0, plain.stdout)
    said = keep.run("--keep", "5m", *SAMPLED, "hi", env=env).stderr.decode()  # it was asked for
    assert re.fullmatch(r"hokku: --keep: [^\n]+: nothing is kept\n", said), said
    for args, more in ((["--keep", "5m", "-q"], {}), ([], {"HOKKU_KEEP": "5m"})):
        assert keep.run(*args, *SAMPLED, "hi", env={**env, **more}).stderr == b""
    assert keep.run("models", env=env).returncode == 0
    if wrong == "a link":
        keep.place.unlink()


@as_root
def test_a_directory_of_somebody_else_is_not_used(keep):
    plain = keep.run(*SAMPLED, "hi")
    os.chown(keep.directory, 65534, 65534)
    assert keep.alone(*SAMPLED, "hi").stdout == plain.stdout
    os.chown(keep.directory, 0, 0)
    keep.place.mkdir(mode=0o700)
    os.chown(keep.place, 65534, 65534)
    assert keep.alone(*SAMPLED, "hi").stdout == plain.stdout


@as_root
def test_a_process_of_somebody_else_is_given_nothing(keep):
    plain, name = keep.run(*SAMPLED, "hi"), occupied(keep)
    with listening(name, uid=65534) as s:
        assert keep.alone(*SAMPLED, "hi").stdout == plain.stdout
        s.settimeout(0)
        c = s.accept()[0]
        assert c.recv(10) == b""


@as_root
def test_a_caller_of_somebody_else_is_given_nothing(keep):
    """Even if it comes past the modes of directory and socket."""
    pid = keep.kept(*SAMPLED, "hi")[1]
    name = keep.sockets()[0]
    for path in (keep.directory, keep.place, name):
        path.chmod(0o777)
    code = (f"import os, socket; os.setgid(65534); os.setuid(65534); s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.settimeout(60)\n"
            f"s.connect({str(name)!r})\ntry: s.send(b'x'); print(s.recv(10))\nexcept (BrokenPipeError, ConnectionResetError): print(b'')")
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout == b"b''\n"
    for path in (keep.directory, keep.place):
        path.chmod(0o700)
    assert keep.kept(*SAMPLED, "hi")[1] == pid


# ---- which model

def test_another_file_of_the_same_name_is_another_model(keep, tmp_path, stories):
    path = tmp_path / "m.gguf"
    call = ["-m", path, "-t", 2, "-s", 3, "-n", 20, "Once"]
    shutil.copy(MODEL[1], path)
    first, pid = keep.kept(*call)
    assert keep.kept(*call)[1] == pid
    path.rename(tmp_path / "old.gguf")
    shutil.copy(stories, path)
    other = keep.kept(*call)[0]
    assert other.stdout == keep.run(*call).stdout != first.stdout
    with open(path, "r+b") as f:  # the same inode, other contents
        f.truncate(0)
        f.write(pathlib.Path(MODEL[1]).read_bytes())
    assert keep.kept(*call)[0].stdout == first.stdout == keep.run(*call).stdout


def test_the_engine_is_opened_as_the_call_says(keep):
    for args in (["-c", 256], ["-c", 512], [], ["-ctk", "q8_0"], [], ["-ctv", "q8_0"], ["-b", 64], ["-t", 1], ["--lines", "-np", 4], []):
        given = "hi\n" if args[:1] == ["--lines"] else None
        call = [*SAMPLED, *args, "--ignore-eos", "--stats", "-n", 8, *([] if given else ["hi"])]
        same(keep.run("-v", *call, input=given), keep.kept(*call, input=given)[0])


def test_other_surroundings_have_a_keeper_of_their_own(keep):
    pid = keep.kept(*SAMPLED, "hi")[1]
    assert keep.kept(*SAMPLED, "hi", env={"LD_BIND_NOW": "1"})[1] != pid
    assert keep.kept(*SAMPLED, "hi", command=["bash", "-c", 'ulimit -n 200; exec "$@"', "-", HOKKU])[1] != pid
    assert len(keep.sockets()) == 3 and keep.kept(*SAMPLED, "hi")[1] == pid


def test_a_small_stack_is_enough_for_a_keeper_too(keep):
    want = keep.run(*SAMPLED, "-n", 4, "hi").stdout
    for _ in range(2):  # the call that begins it, and one that finds it
        assert keep.kept(*SAMPLED, "-n", 4, "hi", command=["bash", "-c", 'ulimit -s 64; exec "$@"', "-", HOKKU])[0].stdout == want


def test_another_control_group_has_a_keeper_of_its_own(keep):
    """What it may take of memory is for all in it together."""
    first = keep.kept(*SAMPLED, "hi")[1]
    with control_group("2G") as group:
        try:
            inside = [*inside_of(group), HOKKU]
            pid = keep.kept(*SAMPLED, "hi", command=inside)[1]
            assert pid != first and keep.kept(*SAMPLED, "hi", command=inside)[1] == pid and keep.kept(*SAMPLED, "hi")[1] == first
        finally:
            keep.run("serve", "--stop")


def test_another_program_has_a_keeper_of_its_own(keep, tmp_path):
    pid = keep.kept(*SAMPLED, "hi")[1]
    copy = tmp_path / "hokku"
    shutil.copy(HOKKU, copy)
    assert keep.kept(*SAMPLED, "hi", command=[copy])[1] != pid


@pytest.fixture
def wide(tmp_path):
    """No machine has memory for its context: it is reduced to what fits."""
    kvs, tensors = make_gguf.model(layers=8, embd=256, heads=2, ff=64, ctx=1 << 30)
    make_gguf.write(tmp_path / "wide.gguf", kvs, tensors)
    return ["-m", tmp_path / "wide.gguf", "-t", 2, "-n", 1]


def test_a_call_that_finds_less_memory_has_what_is_kept_make_room(keep, wide):
    pid = keep.kept(*SAMPLED, "hi")[1]
    assert keep.run(*wide, "hi").returncode == 0
    wait_until(lambda: gone(pid))
    first = keep.kept(*SAMPLED, "hi")[1]  # the same where the call is another keeper's, which stays
    pid = keep.kept(*wide, "hi")[1]
    wait_until(lambda: gone(first))
    assert keep.kept(*wide, "hi")[1] == pid


def test_a_keeper_that_answers_does_not_hold_up_who_has_some_memory(keep, wide):
    with keep.started(*FOR_EVER) as (p, pid):
        assert p.stdout.read(1)
        assert keep.run(*wide, "hi").returncode == 0
        assert p.poll() is None and [k["pid"] for k in keep.models()] == [pid]


def test_a_prediction_layer_that_has_no_room_beside_a_kept_model_is_left_out(keep, tmp_path, shim):  # noqa: F811
    memory, took = tmp_path / "meminfo", ("weights", "kv", "scratch", "other")
    args = ("-m", OWN / "predictions/glm4moe-own.gguf", "-c", 1024, "-t", 1, "-s", 1, "-n", 3)
    whole = json.loads(keep.run(*args, "--dry-run", "--json").stdout)
    needs = sum(plan[k] for plan in (whole, whole["predictor"]) for k in took)
    keep.env.update(LD_PRELOAD=shim, TEST_MEMINFO=str(memory))
    for free, fits in [(needs - sum(whole[k] for k in took) // 2, False), (needs + 2048, True)]:
        memory.write_text(f"MemAvailable: {free // 1024} kB\n")
        plain = keep.run("-v", *args, "hi")
        r = keep.kept(*args, "hi")[0]
        for x in plain, r:
            assert (x.returncode, x.stdout) == (0, plain.stdout) and (b"is not used: it does not fit beside the model" in x.stderr) != fits, x
        keep.run("serve", "--stop")
        r = keep.kept("--spec", "mtp", *args, "hi")[0]
        assert r.returncode == (0 if fits else 4), r
        assert fits or r.stderr.endswith(b"--spec mtp: it does not fit beside the model: a smaller -c leaves room for it\n"), r
        keep.run("serve", "--stop")


def test_before_the_first_answer_has_ended_no_size_is_told(keep):
    with keep.started(*FOR_EVER) as (_, pid):
        assert [(m["pid"], m["bytes"]) for m in keep.models()] == [(pid, None)]
        said = keep.run("models").stdout.decode()
        assert re.search(rf"\.gguf  answers \(process {pid}\)\n", said), said


def test_models_lists_what_is_kept(keep):
    assert keep.models() == [] and b"kept" not in keep.run("models").stdout
    pid = keep.kept(*SAMPLED, "hi")[1]
    [m] = [m for m in json.loads(keep.run("models", "--json").stdout) if "kept" in m]
    assert m["path"] == str(MODEL[1]) and m["kept"]["pid"] == pid and not m["kept"]["busy"] and 0 < m["kept"]["seconds_left"] <= 300
    assert m["kept"]["bytes"] > 6e6
    table = keep.run("models").stdout.decode()
    assert re.search(rf"^{re.escape(str(MODEL[1]))}  [\d.]+ MB  for [1-5] minutes? \(process {pid}\)$", table, re.M), table
    keep.run("--keep", "50s", *SAMPLED, "hi")
    assert re.search(rb"  for [1-5]?\d seconds? \(process", keep.run("models").stdout)
    with keep.started(*FOR_EVER) as (p, pid):
        assert p.stdout.read(1)
        assert any(k["busy"] for k in keep.models()) and "answers" in keep.run("models").stdout.decode()


def test_models_tells_of_a_kept_file_where_it_is_not_how_it_was_called(keep, tmp_path):
    (tmp_path / "m.gguf").symlink_to(MODEL[1])  # (not what a link leads to, as in the cache of other programs)
    keep.kept("-m", "m.gguf", "-n", 1, "hi", cwd=tmp_path)
    [m] = [m for m in json.loads(keep.run("models", "--json", cwd="/").stdout) if "kept" in m]
    assert (m["name"], m["path"]) == ("m.gguf", str(tmp_path / "m.gguf"))
    assert keep.run("models", cwd="/").stdout.decode().splitlines()[-1].startswith(f"{tmp_path}/m.gguf  ")


# ---- several at once, and what is left

def test_calls_that_come_together_are_all_answered(keep):
    plain = [keep.run(*SAMPLED, "-n", 30, f"Tell me about {i}").stdout for i in range(8)]
    calls = [subprocess.Popen([HOKKU, *map(str, ["--keep", "5m", *SAMPLED, "-n", 30, f"Tell me about {i}"])], env=keep.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) for i in range(8)]
    assert [(p.communicate(timeout=60), p.returncode) for p in calls] == [((text, b""), 0) for text in plain]


def test_calls_that_come_together_begin_one_keeper(keep):
    for _ in range(8):
        calls = [subprocess.Popen([HOKKU, *map(str, [*KEEP, *SAMPLED, "-n", 1, "hi"])], env=keep.env, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(6)]
        pids = {int(n) for p in calls for n in BY.findall(p.communicate(timeout=60)[1])}
        [m] = keep.models()
        assert all(gone(pid) for pid in pids - {m["pid"]})
        keep.run("serve", "--stop")
        wait_until(lambda: gone(m["pid"]))


def test_who_may_not_begin_a_keeper_runs_by_itself(keep):
    """While another call begins one, or is stopped as it does."""
    keep.place.mkdir(mode=0o700)
    fd = os.open(keep.place, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    keep.alone(*SAMPLED, "hi")
    assert keep.sockets() == []
    os.close(fd)
    keep.kept(*SAMPLED, "hi")


def test_while_a_keeper_is_busy_a_call_is_answered(keep):
    plain = keep.run(*ENDLESS, "-s", 3, "-n", 5, "hi").stdout
    with keep.started(*FOR_EVER) as (p, pid):
        assert p.stdout.read(1)
        assert keep.alone(*ENDLESS, "-s", 3, "-n", 5, "hi").stdout == plain
        assert p.poll() is None


@pytest.mark.parametrize("args", [["Write a haiku about the sea"], ["--stats", "hi"], ["-no-cnv", "--color", "always", "Once"]])
def test_on_a_terminal_an_answer_is_the_same(keep, args):
    shown = []
    for way in ([], ["--keep", "5m"], ["--keep", "5m"]):
        t = Terminal([HOKKU, *map(str, [*way, *SAMPLED, *args])], env=keep.env)
        t.wait(lambda: not t.p.isalive())
        t.pump()
        loaded = re.sub(r"(\r\x1b\[Kloading[^\r]*)+\r\x1b\[K", "", t.raw)  # where that took a while
        shown.append(re.sub(r"[\d.,]+ ms|[\d,.]+/s", "T", loaded))
        t.close()
    assert shown[0] and shown[0] == shown[1] == shown[2] and len(keep.sockets()) == 1


def test_nothing_of_the_first_call_stays_with_the_keeper(keep):
    reads, writes = os.pipe()
    pid = keep.kept(*SAMPLED, "my secret prompt", pass_fds=[writes])[1]
    os.close(writes)
    assert os.read(reads, 1) == b""  # nobody else has the other end
    os.close(reads)
    proc = pathlib.Path(f"/proc/{pid}")
    assert b"secret" not in (proc / "cmdline").read_bytes() and os.readlink(proc / "cwd") == "/"
    assert {os.readlink(proc / "fd" / str(fd)) for fd in range(3)} == {"/dev/null"}
    assert os.getsid(pid) == pid and catches(type("", (), {"pid": pid}), signal.SIGTERM)


def test_the_socket_is_its_users_alone(keep):
    keep.kept(*SAMPLED, "hi")
    assert keep.place.stat().st_mode & 0o777 == 0o700 and keep.sockets()[0].stat().st_mode & 0o777 == 0o600
