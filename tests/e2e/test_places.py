"""Files that hokku obeys or keeps: opened only when they are the user's own or root's and nobody else can write them,
whatever somebody planted. What belongs to downloads is in test_pull_places.py."""
import json
import os
import pathlib
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import time

import pexpect
import pytest
from conftest import BUILD, HOKKU, ROOT

NOBODY = 65534
STRANGER = 54321  # no such user
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make the files of somebody else")


def make_link(path, text):
    other = path.with_name(path.name + ".target")
    other.write_bytes(text)
    path.symlink_to(other)


def make_fifo(path, text):
    os.mkfifo(path)


def make_directory(path, text):
    path.mkdir()


def make_for_all(path, text):
    path.write_bytes(text)
    path.chmod(0o666)


def make_for_group(path, text):
    path.write_bytes(text)
    os.chown(path, -1, NOBODY)
    path.chmod(0o664)


def make_strangers(path, text):
    path.write_bytes(text)
    os.chown(path, NOBODY, NOBODY)
    path.chmod(0o644)


PLANTED = {
    "symbolic link": make_link,
    "a pipe": make_fifo,
    "a directory": make_directory,
    "lets everybody change it": make_for_all,
    "lets its group change it": make_for_group,
    "belongs to user 65534": make_strangers,
}
planted = pytest.mark.parametrize("says", list(PLANTED))


def make_strangers_link(path, text):
    make_link(path, text)
    os.lchown(path, NOBODY, NOBODY)


# Of what may be a link, as programs make it that keep the files of a home in one place.
PLANTED_LINKED = PLANTED | {"symbolic link of user 65534": make_strangers_link}
del PLANTED_LINKED["symbolic link"]
planted_linked = pytest.mark.parametrize("says", list(PLANTED_LINKED))


def said(r, path, says, code):
    err = r.stderr.decode()
    assert r.returncode == code, (r.returncode, err)
    assert str(path) in err and "refused" in err and says in err, err


@pytest.fixture
def config(home):
    path = pathlib.Path(home["XDG_CONFIG_HOME"]) / "hokku/config"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def state(home):
    path = pathlib.Path(home["XDG_STATE_HOME"]) / "hokku"
    (path / "sessions").mkdir(parents=True)
    return path


@pytest.fixture(scope="session")
def shim(tmp_path_factory):
    """The library of shim.c, where everybody can read it."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="hokku-shim-"))
    directory.chmod(0o755)
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", directory / "shim.so",
                    pathlib.Path(__file__).with_name("shim.c")], check=True)
    yield str(directory / "shim.so")
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def moved():
    """The program as somebody copied it elsewhere, where every user can run it: PREFIX/bin/hokku."""
    prefix = pathlib.Path(tempfile.mkdtemp(prefix="hokku-moved-"))
    prefix.chmod(0o755)
    (prefix / "bin").mkdir()
    shutil.copy(HOKKU, prefix / "bin/hokku")
    yield prefix
    shutil.rmtree(prefix)


# ------------------------------------------------------------------------------------------ what is read


@as_root
@planted_linked
def test_a_planted_configuration_is_refused_by_name(hokku, config, says):
    PLANTED_LINKED[says](config, b"n-predict 3\n")
    for args in (["sessions"], ["--dry-run"]):
        said(hokku(*args, timeout=20), config, says, 2)


def test_what_is_only_printed_needs_no_configuration_that_can_be_read(hokku, config):
    def directory():
        config.mkdir()
    printed = [hokku(*args).stdout for args in PRINTED]
    for make, says in ((directory, b"it is a directory, expected a regular file; each call reads it: mend it, or move it away (XDG_CONFIG_HOME names another place)\n"), (lambda: config.symlink_to("/nonexist"), b"a symbolic link to what cannot be opened"),
                       (lambda: config.write_bytes(b"temp 1\0"), b"config:1: found a NUL byte"), (lambda: config.write_bytes(b"t\xffemp 1"), b"config:1: unknown setting"),
                       (lambda: config.write_text("temp x"), b"config:1: --temp: found"), (lambda: os.mkfifo(config), b"it is a pipe, expected a regular file; each call reads it")):
        make()
        for args, text in zip(PRINTED, printed):
            r = hokku(*args, timeout=20)
            assert (r.returncode, r.stdout, r.stderr) == (0, text, b"") and text, r
        for args in ["hi"], ["sessions"], ["--bogus"]:
            r = hokku(*args, timeout=20)
            assert r.returncode == 2 and r.stderr.startswith(f"hokku: {config}".encode()) and says in r.stderr, r
        config.rmdir() if config.is_dir() else config.unlink()
    r = hokku("--version", env={"HOKKU_TEMP": "x"})
    assert r.returncode == 0 and r.stdout == printed[1], r


def test_a_state_directory_that_cannot_be_made_is_said_with_what_names_another(hokku, tmp_path):
    (tmp_path / "file").write_text("")
    r = hokku("--session", "s", "-n", 1, "hi", env={"XDG_STATE_HOME": tmp_path / "file"})
    assert r.returncode == 1 and r.stdout == b"", r
    assert f"the sessions (XDG_STATE_HOME names another place): {tmp_path}/file/hokku: the directory cannot be made".encode() in r.stderr, r


PRINTED = [["--help"], ["--version"], ["sessions", "--help"], ["--print-completion", "bash"], ["--help", "serve"]]


def test_a_configuration_may_be_a_link_of_ones_own(hokku, config, tmp_path):
    """And so may prompts; what they name is looked at as if it lay there."""
    dotfiles = tmp_path / "dotfiles"
    (config.parent / "prompts").mkdir()
    (dotfiles / "prompts").mkdir(parents=True)
    (dotfiles / "config").write_text("n-predict 1\n")
    (dotfiles / "prompts/mine.txt").write_text("You are mine.")
    config.symlink_to(dotfiles / "config")
    (config.parent / "prompts/mine.txt").symlink_to(dotfiles / "prompts/mine.txt")
    r = hokku("--json", "-sys", "@mine", "hi")
    assert r.returncode == 0 and b'"finish_reason":"length"' in r.stdout, r
    (dotfiles / "config").chmod(0o666)
    said(hokku("sessions"), config, "lets everybody change it", 2)
    (dotfiles / "config").unlink()
    r = hokku("sessions")
    assert r.returncode == 2 and b"symbolic link to what cannot be opened: No such file" in r.stderr, r
    config.unlink()
    (dotfiles / "prompts/mine.txt").unlink()
    r = hokku("-sys", "@mine", "hi")
    assert r.returncode != 0 and b"symbolic link to what cannot be opened: No such file" in r.stderr, r


def test_a_configuration_of_ones_own_is_read(hokku, config):
    config.write_text("n-predict 1\n")
    r = hokku("--json", "hi")
    assert r.returncode == 0 and b'"finish_reason":"length"' in r.stdout


@as_root
def test_the_group_that_only_the_user_is_in_may_write(hokku, config):
    config.write_text("n-predict 1\n")
    config.chmod(0o664)  # root's group is root's alone
    r = hokku("--json", "hi")
    assert r.returncode == 0 and b'"finish_reason":"length"' in r.stdout, r.stderr


@as_root
def test_a_configuration_of_roots_is_read_by_others(home, config, moved):
    config.write_text("nonsense 1\n")
    config.chmod(0o644)
    for p in config.parents:  # up to the folder of everybody's temporary files
        if p.stat().st_mode & stat.S_ISVTX or p == pathlib.Path("/"):
            break
        p.chmod(p.stat().st_mode | 0o755)
    r = run_as(STRANGER, moved, home, "sessions")
    assert r.returncode == 2 and b"nonsense" in r.stderr


@as_root
@planted
def test_a_planted_session_is_refused_by_name(hokku, state, says):
    good = state / "sessions/good.session"
    assert hokku("--session", "good", "-n", 2, "hi").returncode == 0 and good.stat().st_mode & 0o777 == 0o600
    path = state / "sessions/s.session"
    PLANTED[says](path, good.read_bytes())
    said(hokku("--session", "s", "-n", 2, "hi", timeout=20), path, says, 1)
    said(hokku("replay", "s", timeout=20), path, says, 1)


@as_root
@planted
def test_a_planted_lock_of_a_session_is_refused(hokku, state, says):
    path = state / "sessions/.s.lock"
    PLANTED[says](path, b"")
    said(hokku("--session", "s", "-n", 2, "hi", timeout=20), path, says, 1)


def chat(home, *args):
    return pexpect.spawn(HOKKU, ["-n", "1", *args], env=home, encoding="utf-8", timeout=20, dimensions=(24, 200))


@as_root
@planted
def test_a_planted_history_is_neither_read_nor_written(home, state, says):
    path = state / "history"
    PLANTED[says](path, b"stolen line\n")
    before = path.read_bytes() if path.is_file() else None
    mode = path.stat().st_mode if path.exists() else None
    with chat(home) as c:
        c.expect(r"refused: it[^\n]*" + says.replace("lets", ".*lets"))
        c.expect("> ")
        c.sendline("a secret")
        c.expect("the history is not kept")
        c.sendline("/bye")
        c.expect(pexpect.EOF)
    assert mode is None or path.stat().st_mode == mode
    assert before is None or path.read_bytes() == before


def test_a_session_is_written_beside_and_never_through_a_planted_name(hokku, state):
    victim = state / "victim"
    victim.write_text("dear")
    for name in (".s.session.tmp", ".s.session.0123456789abcdef.tmp"):
        (state / "sessions" / name).symlink_to(victim)
    assert hokku("--session", "s", "-n", 2, "hi").returncode == 0
    assert victim.read_text() == "dear"
    left = {p.name for p in (state / "sessions").iterdir()}
    assert left == {".s.session.tmp", "s.session"}  # of its own kind, what was left behind is gone


# -------------------------------------------------------------------------------------------- without a home


def run_as(uid, moved, env, *args, **kw):
    def become():
        if uid is not None:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
    return subprocess.run([moved / "bin/hokku", *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, cwd="/",
                          env=env, preexec_fn=become, **kw)


BARE = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}


@as_root
def test_without_any_home_nothing_is_read_or_kept_and_that_is_said_once(moved):
    planted_home = pathlib.Path("/tmp/hokku-no-home")
    made = not planted_home.exists()
    planted_home.mkdir(exist_ok=True)
    try:
        if made:
            (planted_home / "config").write_text("nonsense 3\n")
            planted_home.chmod(0o755)
        r = run_as(STRANGER, moved, BARE, "--version")
        assert r.returncode == 0 and r.stderr.decode().count("HOME is not set") == 1, r.stderr
        assert run_as(STRANGER, moved, BARE, "-q", "--version").stderr == b""
        model = moved / "model.gguf"
        if not model.exists():
            shutil.copy(ROOT / "builtin/hokku-builtin.gguf", model)
        r = run_as(STRANGER, moved, BARE, "-m", model, "-n", "1", "hi")
        assert r.returncode == 0 and r.stderr.decode().count("HOME is not set") == 1, r.stderr
        for args, word in ((["--session", "s", "hi"], "XDG_STATE_HOME"), (["-hf", "a/b", "hi"], "XDG_CACHE_HOME")):
            r = run_as(STRANGER, moved, BARE, *args, *([] if "-hf" in args else ["-m", model]))
            assert r.returncode == 1 and word in r.stderr.decode() and "54321" in r.stderr.decode(), r.stderr
    finally:
        if made:
            shutil.rmtree(planted_home)


@pytest.mark.parametrize("home_is", [None, "", "relative"])
def test_without_home_the_system_knows_it(hokku, home, tmp_path, shim, home_is):
    env = {k: v for k, v in home.items() if k not in ("HOME", "XDG_CONFIG_HOME")}
    if home_is is not None:
        env["HOME"] = home_is
    (tmp_path / "pw/.config/hokku").mkdir(parents=True)
    (tmp_path / "pw/.config/hokku/config").write_text("nonsense 1\n")
    r = subprocess.run([HOKKU, "sessions"], env={**env, "LD_PRELOAD": shim, "TEST_PW_DIR": str(tmp_path / "pw")},
                       capture_output=True, timeout=20)
    assert r.returncode == 2 and str(tmp_path / "pw/.config/hokku/config") in r.stderr.decode()


# ---------------------------------------------------------------------------------------------- the program


def test_a_moved_program_does_not_look_around_where_it_lies(home, moved):
    prompts = moved / "share/hokku/prompts"
    prompts.mkdir(parents=True, exist_ok=True)
    (prompts / "planted.txt").write_text("You are mine.")
    r = run_as(None, moved, home, "-sys", "@planted", "--dry-run")
    assert r.returncode == 2 and b"no such system prompt" in r.stderr


def test_only_a_program_in_the_build_folder_looks_into_the_source_tree(home, hokku, moved):
    name = next(p.stem for p in (ROOT / "prompts").glob("*.txt"))
    assert hokku("-sys", "@" + name, "--dry-run").returncode == 0
    text = (moved / "bin/hokku").read_bytes()
    assert str(ROOT).encode() in text  # it knows the place
    r = run_as(None, moved, home, "-sys", "@" + name, "--dry-run")
    options = json.loads((BUILD / "meson-info/intro-buildoptions.json").read_text())
    prefix, = (o["value"] for o in options if o["name"] == "prefix")
    if not pathlib.Path(prefix, "share/hokku/prompts", name + ".txt").exists():  # nor is hokku installed there
        assert r.returncode == 2 and b"no such system prompt" in r.stderr
def elf(path):
    """Program headers {type: [(flags, offset, size)]} and the dynamic section [(tag, value)] of a 64-bit ELF file."""
    data = pathlib.Path(path).read_bytes()
    assert data[:5] == b"\x7fELF\x02"
    kind, = struct.unpack_from("<H", data, 16)
    at, = struct.unpack_from("<Q", data, 32)
    size, n = struct.unpack_from("<HH", data, 54)
    segments, dynamic = {}, []
    for i in range(n):
        type_, flags, offset, _, _, filesz = struct.unpack_from("<IIQQQQ", data, at + i * size)
        segments.setdefault(type_, []).append((flags, offset, filesz))
    for _, offset, filesz in segments.get(2, []):
        dynamic = list(struct.iter_unpack("<qQ", data[offset:offset + filesz]))
    return data, kind, segments, dict(dynamic[::-1])


def test_the_program_is_hardened():
    data, kind, segments, dynamic = elf(HOKKU)
    assert kind == 3 and dynamic.get(0x6FFFFFFB, 0) & 0x08000000, "not position independent (PIE)"
    assert 0x6474E552 in segments, "no RELRO"
    assert dynamic.get(30, 0) & 8 or dynamic.get(0x6FFFFFFB, 0) & 1, "not BIND_NOW"
    (flags, _, _), = segments[0x6474E551]
    assert not flags & 1, "an executable stack"
    assert all(flags & 3 != 3 for flags, _, _ in segments[1]), "a segment both writable and executable"
    assert b"\0__stack_chk_fail\0" in data, "no stack protector"
    assert b"_chk\0" in data.replace(b"__stack_chk_fail\0", b""), "no checked functions (_FORTIFY_SOURCE)"


# ---------------------------------------------------------------------------------------------- exhaustion


def test_lines_from_a_directory_end_at_once(hokku, tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    r = hokku("--lines", stdin=fd, timeout=20)
    os.close(fd)
    assert r.returncode == 1 and b"directory" in r.stderr.lower()


def test_a_turn_without_end_is_refused_with_the_limit(hokku):
    with open("/dev/zero", "rb") as zero:
        r = hokku("--turns", stdin=zero, timeout=60)
    assert r.returncode == 1 and b"line 1" in r.stderr and b"16,777,216" in r.stderr, r.stderr


def test_lines_that_come_slowly_or_through_a_nonblocking_pipe_are_answered(home):
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    p = subprocess.Popen([HOKKU, "--lines", "-n", "1"], stdin=ours, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=home)
    time.sleep(1)
    os.write(theirs, b"hi\n")
    os.close(theirs)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0 and out, err


def test_a_prompt_without_end_is_refused_with_the_limit(hokku):
    with open("/dev/zero", "rb") as zero:
        r = hokku(stdin=zero, timeout=60)
    assert r.returncode == 1 and b"larger than 268,435,456 bytes" in r.stderr


# Runs what its arguments say, and writes behind what that says to standard error: the exit code, and the most memory it had. (Small
# itself, since that is counted from the fork on.)
COUNTER = """import os, sys
pid = os.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss, sep="\\n", file=sys.stderr)"""


def peak(home, data, *args):
    """The most memory that the program had, in bytes, and its result."""
    r = subprocess.run([sys.executable, "-S", "-c", COUNTER, HOKKU, *args], input=data, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=home)
    *err, code, most = r.stderr.splitlines()
    return int(most) * 1024, int(code), b"\n".join(err)


@pytest.mark.parametrize("what", ["words", "one word", "one word of all letters", "characters of three bytes", "lines", "spaces"])
def test_a_long_prompt_takes_at_most_eight_bytes_for_each_of_its_own(home, what):
    n = 10_000_000
    piece = {"words": b"the quick brown fox jumps over the lazy dog, ", "one word": b"a",
             "one word of all letters": b"qwertyuiopasdfghjklzxcvbnm", "characters of three bytes": "日本語の".encode(),
             "lines": b"a\n", "spaces": b" "}[what]
    data = piece * (n // len(piece))
    base, code, err = peak(home, b"hi", "-c", "256", "-n", "1")
    assert code == 0, err
    most, code, err = peak(home, data, "-c", "256", "-n", "1")
    assert code == 5 and b"tokens" in err, err
    assert (most - base) / len(data) <= 8, (most - base) / len(data)
