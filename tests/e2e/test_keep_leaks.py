"""--keep: nothing of one call, or of who made it, is found in a later one."""
import os
import pathlib
import resource
import shutil
import signal
import subprocess

import pytest
from conftest import HOKKU, wait_until
from test_keep import BY, FOR_EVER, KEEP, MODEL, SAMPLED, as_root, keep, same  # noqa: F401 (a fixture)

BLOCKED = {signal.SIGINT, signal.SIGTERM, signal.SIGTSTP, signal.SIGPIPE}


def test_the_time_zone_is_the_calls(keep, tmp_path):
    template = tmp_path / "zone.jinja"
    template.write_text('{{ strftime_now("%Z") }} {{ messages[0].content }}')
    call = [*SAMPLED, "-n", 8, "--stats", "--chat-template-file", template, "hi"]
    for zone in ("AAA0", "LONGERNAME0", "AAA0"):
        same(keep.run("-v", *call, env={"TZ": zone}), keep.kept(*call, env={"TZ": zone})[0])


@pytest.mark.parametrize("where", ["/dev/fd/{}", "/proc/self/fd/{}"])
def test_a_descriptor_that_only_the_call_has_can_be_named(keep, where):
    """As shells do it: -f <(git diff)."""
    plain = keep.run(*SAMPLED, "Who are you?").stdout
    keep.kept(*SAMPLED, "hi")
    for name, words in (("-f", []), ("HOKKU_FILE", None)):
        reads, writes = os.pipe()
        os.write(writes, b"Who are you?\n")
        os.close(writes)
        path = where.format(reads)
        r = keep.run(*KEEP, *SAMPLED, *(["-f", path] if words is not None else []), pass_fds=[reads], env={} if words is not None else {name: path})
        os.close(reads)
        assert (r.returncode, r.stdout) == (0, plain), r.stderr


def test_what_the_first_call_blocked_the_next_one_hears(keep):
    """And what it blocked it does not hear itself."""
    keep.run(*KEEP, *SAMPLED, "hi", preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED))
    with keep.started(*FOR_EVER) as (p, _):
        assert p.stdout.read(1)
        p.send_signal(signal.SIGINT)
        assert p.wait(timeout=60) == -signal.SIGINT
    wait_until(lambda: not any(k["busy"] for k in keep.models()))
    with keep.started(*FOR_EVER) as (p, _):
        p.stdout.close()
        assert p.wait(timeout=60) == -signal.SIGPIPE
        p.stdout = open(os.devnull)


def test_the_environment_of_the_first_call_does_not_stay(keep):
    pid = keep.kept(*SAMPLED, "hi", env={"SECRET_OF_THE_FIRST": "x"})[1]
    assert b"SECRET_OF_THE_FIRST" not in pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    same(keep.run("-v", *SAMPLED, "hi"), keep.kept(*SAMPLED, "hi")[0])


@pytest.mark.parametrize("what, limit", [(resource.RLIMIT_CPU, 600), (resource.RLIMIT_AS, 8 << 30), (resource.RLIMIT_DATA, 8 << 30)])
def test_where_the_time_or_memory_of_a_process_is_limited_calls_run_by_themselves(keep, what, limit):
    """What many calls took together must not end one of them; nor may keeping take what a call needs."""
    plain = keep.run(*SAMPLED, "hi")
    r = keep.alone(*SAMPLED, "hi", preexec_fn=lambda: resource.setrlimit(what, (limit, limit)))
    assert (r.returncode, r.stdout) == (0, plain.stdout) and keep.sockets() == []


def test_a_model_that_was_written_to_is_loaded_anew_whatever_its_time_says(keep, tmp_path):
    path = tmp_path / "m.gguf"
    shutil.copy(MODEL[1], path)
    call = ["-m", path, "-t", 2, "-s", 7, "-n", 4, "hi"]
    first, before = keep.kept(*call)[0], path.stat()
    data = path.read_bytes()
    assert first.stdout.startswith(b"Good") and b"Good" in data
    with open(path, "r+b") as f:
        f.write(data.replace(b"Good", b"Goot"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    plain, r = keep.run("-v", *call), keep.kept(*call)[0]
    assert plain.stdout != first.stdout
    same(plain, r)


@as_root
def test_what_a_call_may_not_do_is_not_done_for_it(keep, tmp_path):
    """Of two processes of one user one has lost its capabilities."""
    secret = tmp_path / "secret"
    secret.write_text("Who are you?")
    os.chown(secret, 65534, 65534)
    secret.chmod(0o600)
    strong, pid = keep.kept(*SAMPLED, "-f", secret)
    assert strong.returncode == 0
    weak = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", HOKKU]
    for way in ([], KEEP):
        r = subprocess.run([*weak, *map(str, [*way, *SAMPLED, "-f", secret])], env=keep.env, stdin=subprocess.DEVNULL, capture_output=True)
        assert r.returncode == 1 and b"Permission denied" in r.stderr
    r = subprocess.run(["setpriv", "--no-new-privs", HOKKU, *map(str, [*KEEP, *SAMPLED, "hi"])], env=keep.env, stdin=subprocess.DEVNULL, capture_output=True)
    assert r.returncode == 0 and int(BY.search(r.stderr)[1]) != pid
