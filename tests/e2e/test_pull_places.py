"""What others may have put into the places of downloads, and what a server or an address may not get out of them."""
import fcntl
import hashlib
import os
import pathlib
import signal
import subprocess
import time

import pytest
from hub_server import sha256
from test_places import PLANTED, as_root, planted, shim  # noqa: F401
from test_pull import Q4, Q8, REPO, cache, env, ggufs, hf_cache, hokku, hub, leave_part, ok, parts, refused, server, trust  # noqa: F401

from conftest import HOKKU

FILE = "some-model-q4_k_m.gguf"


def part_name(sha):
    return f"{FILE}.{hashlib.sha256(sha.encode()).hexdigest()[:16]}.part"


@pytest.fixture
def repo(cache):
    path = cache / "hub" / REPO
    path.mkdir(parents=True)
    return path


def why(r, path, says):
    refused(r, str(path), "refused", says)


# ------------------------------------------------------------------------------------------------ planted files


@as_root
@planted
def test_a_planted_part_is_refused(hokku, hub, repo, says):
    path = repo / part_name(sha256(Q4))
    PLANTED[says](path, Q4[:1000])
    why(hokku("pull", REPO, timeout=20), path, says)
    assert ggufs(repo) == []


@as_root
@planted
def test_a_planted_record_is_refused(hokku, repo, says):
    path = repo / ".hokku.json"
    PLANTED[says](path, b'{"files": {}, "choices": {}}')
    why(hokku("pull", REPO, timeout=20), path, says)
    why(hokku("--offline", "-hf", REPO, "hi", timeout=20), path, says)


@as_root
@planted
def test_a_planted_lock_is_refused(hokku, repo, says):
    path = repo / ".hokku.lock"
    PLANTED[says](path, b"")
    why(hokku("pull", REPO, timeout=20), path, says)


@as_root
@pytest.mark.parametrize("says", ["symbolic link", "lets everybody change it", "lets its group change it", "belongs to user 65534"])
def test_a_model_that_others_could_change_is_refused(hokku, hub, says):
    path = ok(hokku("pull", REPO))
    path.unlink()
    PLANTED[says](path, Q4)
    for args in (["pull", REPO], ["pull", "--offline", REPO], ["-hf", REPO, "hi"]):
        why(hokku(*args), path, says)


@as_root
@planted
def test_a_planted_token_is_not_used(hokku, hub, tmp_path, says):
    hub.token = "hf_planted"
    path = tmp_path / "hf/token"
    path.parent.mkdir()
    PLANTED[says](path, b"hf_planted\n")
    r = hokku("pull", REPO, more={"HF_HOME": str(tmp_path / "hf")}, timeout=20)
    refused(r, "401")
    assert str(path) in r.stderr and says in r.stderr


def test_what_is_kept_is_private(hokku, cache, leave_part):
    os.umask(0o022)
    leave_part(300_000)
    assert parts(cache)[0].stat().st_mode & 0o777 == 0o600
    path = ok(hokku("pull", REPO))
    for p in [path, path.parent / ".hokku.json", path.parent / ".hokku.lock"]:
        assert p.stat().st_mode & 0o777 == 0o600, p
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_the_record_is_never_written_through_a_planted_link(hokku, repo, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("dear")
    now = int(subprocess.run(["sh", "-c", "echo $$"], capture_output=True).stdout)
    for pid in range(now, now + 2000):
        (repo / f".hokku.json.{pid}.tmp").symlink_to(victim)
    ok(hokku("pull", REPO))
    assert victim.read_text() == "dear"


# ------------------------------------------------------------------------------------------------------- locks


@pytest.mark.parametrize("which", ["record", "part"])
def test_waiting_for_a_lock_is_said_and_can_be_ended(env, hokku, repo, which):
    path = repo / (".hokku.lock" if which == "record" else part_name(sha256(Q4)))
    path.touch(0o600)
    with open(path, "r+b") as f:
        fcntl.lockf(f, fcntl.LOCK_EX)
        p = subprocess.Popen([HOKKU, "pull", REPO], env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        line = ""
        while "waiting" not in line:
            line = p.stderr.readline()
            assert line, "ended without a word"
        assert f"process {os.getpid()}" in line and (path.name in line)
        begin = time.time()
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=10)
        assert p.returncode == -signal.SIGINT and time.time() - begin < 3
        p = subprocess.Popen([HOKKU, "pull", REPO], env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while "waiting" not in p.stderr.readline():
            pass
        fcntl.lockf(f, fcntl.LOCK_UN)
        f.close()
        p.communicate(timeout=20)
        assert p.returncode == 0


def test_who_can_only_read_the_directory_cannot_hold_a_download_up(hokku, repo):
    fd = os.open(repo, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        ok(hokku("pull", REPO, timeout=20))
    finally:
        os.close(fd)


# ------------------------------------------------------------------------------------- other programs' caches


def test_a_blob_is_hashed_once_and_again_when_it_changed(hokku, hub, hf_cache):
    link = hf_cache(FILE, Q4)
    r = hokku("pull", "--offline", REPO)
    assert ok(r) == link and "checking" in r.stderr
    r = hokku("pull", "--offline", REPO)
    assert ok(r) == link and "checking" not in r.stderr
    before = link.stat()
    link.resolve().write_bytes(Q8)  # as long as the other
    os.utime(link, ns=(before.st_atime_ns, before.st_mtime_ns))
    r = hokku("pull", "--offline", REPO)
    refused(r, "not downloaded")
    assert "checking" in r.stderr and "SHA-256" in r.stderr


def test_a_blob_with_another_content_than_its_name_is_never_used(hokku, hub, cache, hf_cache):
    link = hf_cache(FILE, Q8, blob=sha256(Q4))
    r = hokku("--offline", "-hf", REPO, "hi")
    refused(r, "not downloaded")
    assert str(link.resolve()) in r.stderr and "SHA-256" in r.stderr
    assert cache in ok(hokku("pull", REPO)).parents  # asked, the Hub says the same


@as_root
@pytest.mark.parametrize("says", ["lets everybody change it", "belongs to user 65534"])
def test_a_blob_of_others_is_used_only_when_the_hub_says_what_it_is(hokku, hub, hf_cache, says):
    link = hf_cache(FILE, Q4)
    link.resolve().unlink()
    PLANTED[says](link.resolve(), Q4)
    r = hokku("pull", "--offline", REPO)
    refused(r, "not downloaded")
    assert str(link.resolve()) in r.stderr and says in r.stderr
    assert ok(hokku("pull", REPO)) == link and not hub.seen("cdn")


@as_root
@planted
def test_a_planted_reference_is_not_followed(hokku, hub, hf_cache, says):
    link = hf_cache(FILE, Q4)
    ref = link.parents[2] / "refs/main"
    ref.unlink()
    PLANTED[says](ref, b"c" * 40)
    r = hokku("pull", "--offline", REPO, timeout=20)
    refused(r, "not downloaded")
    assert str(ref) in r.stderr and says in r.stderr


@as_root
@planted
def test_planted_hashes_are_refused(hokku, hub, home, hf_cache, says):
    hf_cache(FILE, Q4)
    path = pathlib.Path(home["XDG_STATE_HOME"]) / "hokku/verified.json"
    path.parent.mkdir(parents=True)
    PLANTED[says](path, b"{}")
    r = hokku("pull", "--offline", REPO, timeout=20)
    refused(r, "not downloaded")
    assert str(path) in r.stderr and says in r.stderr


# ----------------------------------------------------------------------------------------------------- secrets


def kept(directory):
    return b"".join(p.read_bytes() for p in directory.rglob("*") if p.is_file() and p.suffix != ".gguf") + \
        "\n".join(map(str, directory.rglob("*"))).encode()


def test_a_query_is_neither_kept_nor_shown(hokku, hub, cache, tmp_path, trust):
    (hub.dir / "files/m.gguf").write_bytes(Q8)
    url = f"{hub.tls_url}/files/m.gguf"
    secret = url + "?token=s3cret&x=1#s3cret"
    r = hokku("pull", "-v", secret, more=trust)
    ok(r)
    said = r.stderr + r.stdout + hokku("models").stdout + hokku("models", "--json").stdout
    assert "s3cret" not in said and url in said and b"s3cret" not in kept(tmp_path)
    n = len(hub.seen())
    assert "s3cret" in hub.seen()[-1]["uri"]  # the server did get it
    refused(hokku("-m", secret, "hi"), "m.gguf", code=3)
    assert len(hub.seen()) == n  # found without the network
    other = ok(hokku("pull", url + "?id=2", more=trust))  # another query may be another file
    assert other.read_bytes() == Q8 and len(ggufs(cache)) == 2
    assert hokku("models", "rm", url).returncode == 0 and ggufs(cache) == []


@pytest.mark.parametrize("url", ["{tls}/files/none.gguf?token=s3cret", "https://u:s3cret@localhost/x.gguf", "https://127.0.0.1:1/x?k=s3cret",
                                 "http://localhost/x.gguf?token=s3cret", "ftp://u:s3cret@localhost/x.gguf?token=s3cret"])
def test_a_query_or_password_is_in_no_message(hokku, hub, trust, tmp_path, url):
    url = url.format(tls=hub.tls_url)
    for args in (["pull", url], ["-m", url, "hi"], ["pull", REPO]):
        more = {**trust, "HF_HUB_DOWNLOAD_TIMEOUT": "1", **({"HF_ENDPOINT": url} if args[1] == REPO else {})}
        r = hokku(*args, more=more)
        assert r.returncode and ("s3cret" not in r.stderr or args == ["-m", url, "hi"] and url.startswith("ftp")), r.stderr
    assert b"s3cret" not in kept(tmp_path)


def test_a_redirect_with_a_signature_is_not_shown(hokku, hub, trust):
    hub.resolve = (302, {"Location": "ftp://127.0.0.1/x?signature=s3cret"}, b"")
    assert "s3cret" not in refused(hokku("pull", REPO), "ftp://127.0.0.1/x")


def test_the_token_crosses_no_network_in_clear(hokku, hub):
    more = {"HF_TOKEN": "hf_secret", "HF_ENDPOINT": "http://192.0.2.1", "HF_HUB_DOWNLOAD_TIMEOUT": "1"}
    begin = time.time()
    refused(hokku("pull", REPO, more=more), "HF_TOKEN", "in clear", "--allow-http", code=2)
    assert time.time() - begin < 0.9  # nobody was asked
    for host in ("127.evil.example", "localhost.evil.example", "[::2]"):
        refused(hokku("pull", REPO, more={**more, "HF_ENDPOINT": f"http://{host}"}), "in clear", code=2)
    assert "in clear" not in refused(hokku("pull", "--allow-http", REPO, more=more), "192.0.2.1")
    assert "in clear" not in refused(hokku("pull", REPO, more={**more, "HF_TOKEN": ""}), "192.0.2.1")


def test_the_token_for_this_machine_passes_no_proxy(hokku, hub):
    hub.token = "hf_secret"
    more = {"HF_TOKEN": "hf_secret", "http_proxy": f"http://127.0.0.1:{hub.ports['cdn']}", "NO_PROXY": "", "no_proxy": ""}
    assert ok(hokku("pull", REPO, more=more)).read_bytes() == Q4
    assert all(s["auth"] == "" for s in hub.seen("cdn"))


# -------------------------------------------------------------------------------------------------- exhaustion


def endless(hub, n):
    """The address of a file that the server gives without telling its length."""
    (hub.dir / "blobs" / sha256(Q8)).write_bytes(Q8)
    hub.plan = [("length", None, b""), ("length", None, Q8[:n])]
    return f"{hub.tls_url}/cdn/{sha256(Q8)}"


def test_a_download_of_unknown_length_is_bounded_by_max_size(hokku, hub, cache, trust):
    url = endless(hub, len(Q8))
    refused(hokku("pull", "--max-size", "1M", url, more=trust), "1,000,000", "--max-size")
    assert parts(cache)[0].stat().st_size <= 1_000_000
    parts(cache)[0].unlink()
    endless(hub, len(Q8))
    assert ok(hokku("pull", "--max-size", "1.5MB", url, more=trust)).read_bytes() == Q8


def test_a_download_of_unknown_length_leaves_the_disk_some_room(hokku, hub, trust, shim):  # noqa: F811
    url = endless(hub, len(Q8))
    refused(hokku("pull", url, more={**trust, "LD_PRELOAD": shim, "TEST_FREE": "50000000"}), "does not say how long", "50.0 MB free")


def test_no_more_than_max_size_is_even_begun(hokku, hub, cache):
    refused(hokku("pull", "--max-size", "1499999", REPO), "1,500,000", "--max-size")
    assert not parts(cache) and not hub.seen("cdn")


@pytest.mark.parametrize("size", ["", "x", "-1", "1X", "0", "1e99", "nan", "inf", "5 M", "0x10"])
def test_sizes_are_checked(hokku, size):
    refused(hokku("pull", "--max-size", size, REPO), "--max-size", code=2)


def test_a_server_that_only_drips_is_given_up_on_and_gone_on_from(hokku, hub, cache):
    hub.plan = [("slow", 100, 0.25)] * 5  # 400 bytes a second
    begin = time.time()
    r = hokku("pull", REPO, more={"HF_HUB_DOWNLOAD_TIMEOUT": "1"})
    refused(r, "after 5 tries", "expected at least 1000")
    assert time.time() - begin < 50
    kept_bytes = parts(cache)[0].stat().st_size
    assert kept_bytes > 100
    r = hokku("pull", REPO)
    assert ok(r).read_bytes() == Q4 and "going on after" in r.stderr
