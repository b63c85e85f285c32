"""What the end-to-end tests share: the program, run as a person or a script would run it."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types

import ptyprocess
import pytest

# Under nohup, or as a background job, signals arrive ignored and stay so in hokku, as they should. These tests send them.
for _s in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(_s, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_terminate = ptyprocess.PtyProcess.terminate


def _terminate_patiently(process, force=False):
    """What was killed may take longer to go than the tenth of a second that it is given."""
    return _terminate(process, force) or (force and (process.wait(), True)[1])


ptyprocess.PtyProcess.terminate = _terminate_patiently

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HOKKU_BUILD", ROOT / "build"))
HOKKU = str(BUILD / "src/hokku")
sys.path.insert(0, str(ROOT / "tests/vectors"))
from where import OWN, folders  # noqa: E402, F401



@contextlib.contextmanager
def control_group(limit):
    """A control group with so much memory; it goes when its processes have gone. Skips where none may be made."""
    old = [line.split(":")[2].strip() for line in open("/proc/self/cgroup") if ":memory:" in line]
    new = [line.split("::")[1].strip() for line in open("/proc/self/cgroup") if line.startswith("0::")]
    group = pathlib.Path(f"/sys/fs/cgroup/memory{old[0]}" if old else f"/sys/fs/cgroup{new[0]}") / f"hokku-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if old else "memory.max")).write_text(limit)
    except OSError as e:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"a control group is not allowed here: {e}")
    try:
        yield group
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def inside_of(group):
    """The words before a program's that put it into the group."""
    return ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "-"]


MODELS = OWN / "models"
# How the model `stories` goes on from a beginning: another program's word (tests/vectors/make_vectors.py).
STORY = json.loads((MODELS / "stories.json").read_text())


def model(name):
    """The path of a model that the build has written."""
    return str(MODELS / f"{name}.gguf")


def wait_until(test, seconds=60):
    """What test gives, once that is true."""
    end = time.monotonic() + seconds
    while not (got := test()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return got


def child_of(pid):
    """The one process that pid has begun. (A bare Debian has no pgrep.)"""
    children = []
    for stat in pathlib.Path("/proc/").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # one that has ended
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                children.append(int(stat.parent.name))
    [child] = children
    return child


@pytest.fixture
def home(tmp_path):
    """An environment of its own: no configuration, history or sessions of the person who runs the tests."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HOKKU_", "XDG_"))}
    env.update(HOME=str(tmp_path), TERM="xterm-256color", LC_ALL="C.UTF-8", NO_COLOR="1", EDITOR="true", VISUAL="true")
    for name in ("CACHE", "STATE", "CONFIG"):
        env[f"XDG_{name}_HOME"] = str(tmp_path / name.lower())
    if not os.environ.get("HOKKU_TEST_KEPT"):  # else calls that load a model are done by a process that keeps it
        yield env
        return
    directory = tempfile.mkdtemp(prefix="k")  # (a socket's name has room for a hundred bytes)
    yield {**env, "XDG_RUNTIME_DIR": directory, "HOKKU_KEEP": "5m"}
    subprocess.run([HOKKU, "serve", "--stop"], env={**env, "XDG_RUNTIME_DIR": directory}, stderr=subprocess.DEVNULL)
    shutil.rmtree(directory)


# By itself, also with HOKKU_TEST_KEPT: where the limits of a process, or the memory that it leaves, are looked at.
BY_ITSELF = {"HOKKU_KEEP": "0"}


def keepers(home):
    """What is told of each process that keeps a model (HOKKU_TEST_KEPT)."""
    listed = subprocess.run([HOKKU, "models", "--json"], env=home, stdout=subprocess.PIPE, check=True).stdout
    return [types.SimpleNamespace(**m["kept"]) for m in json.loads(listed) if "kept" in m]


def at_work(p, home):
    """What has the `pid` of the process that does a chat's work: p itself, or the only one that keeps a model."""
    if not os.environ.get("HOKKU_TEST_KEPT"):
        return p
    [keeper] = keepers(home)
    return keeper


@pytest.fixture
def hokku(home):
    """hokku(args..., input=bytes or str) -> CompletedProcess with bytes; standard input is /dev/null unless given."""
    def run(*args, input=None, env=None, timeout=120, **kw):
        if isinstance(input, str):
            input = input.encode()
        if input is None and "stdin" not in kw:
            kw["stdin"] = subprocess.DEVNULL
        return subprocess.run([HOKKU, *map(str, args)], input=input, capture_output="stdout" not in kw,
                              env={**home, **(env or {})}, timeout=timeout, **kw)
    return run


@pytest.fixture
def stories():
    return model("stories")
