"""Models from a Hub that may be slow, broken or hostile: what is downloaded, what is refused, and what is said. No outside
network: the server is hub_server.py on the loopback."""
import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import time

import pexpect
import pytest
from conftest import HOKKU, STORY, model, wait_until
from hub_server import Hub, sha256

REPO = "someone/Some-Model-GGUF"


def data(seed, n=1_500_000):
    return random.Random(seed).randbytes(n)


Q4, Q8 = data(1), data(2)


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    hub = Hub(tmp_path_factory.mktemp("hub"))
    yield hub
    hub.close()


@pytest.fixture
def hub(server):
    server.reset()
    server.add(REPO, files={"some-model-q8_0.gguf": Q8, "some-model-q4_k_m.gguf": Q4, "mmproj-some-model-f16.gguf": b"p" * 1000})
    return server


@pytest.fixture
def env(home, hub):
    env = {k: v for k, v in home.items() if not k.startswith("HF_") and not k.lower().endswith("_proxy")}
    env.update(HF_ENDPOINT=hub.url, NO_PROXY="*")
    return env


@pytest.fixture
def cache(home):
    return pathlib.Path(home["XDG_CACHE_HOME"]) / "hokku"


@pytest.fixture
def hokku(env):
    def run(*args, more={}, timeout=60, **kw):
        return subprocess.run([HOKKU, *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env={**env, **more}, timeout=timeout, **kw)
    return run


def parts(cache):
    return sorted(cache.rglob("*.part"))


def ggufs(cache):
    return sorted(str(p.relative_to(cache)) for p in cache.rglob("*.gguf"))


def ok(r):
    assert r.returncode == 0, r.stderr
    return pathlib.Path(r.stdout.splitlines()[-1])


def refused(r, *words, code=1):
    assert r.returncode == code, (r.returncode, r.stderr)
    assert r.stdout == ""
    last = r.stderr.splitlines()[-1]
    assert last.startswith("hokku: ")
    for w in words:
        assert w in last
    return last


# --------------------------------------------------------------------------------------- what is downloaded


def test_pull_downloads_verifies_and_prints_the_path(hokku, hub, cache):
    path = ok(hokku("pull", REPO))
    assert path == cache / "hub" / REPO / "some-model-q4_k_m.gguf" and path.read_bytes() == Q4
    assert ggufs(cache) == [f"hub/{REPO}/some-model-q4_k_m.gguf"] and not parts(cache)
    assert [r["status"] for r in hub.seen("cdn")] == [200]


def test_a_second_pull_asks_but_downloads_nothing(hokku, hub):
    first = ok(hokku("pull", REPO))
    assert ok(hokku("pull", REPO + ":Q4_K_M")) == first
    assert len(hub.seen("cdn")) == 1


@pytest.mark.parametrize("quant", ["q8_0", "Q8_0", "some-model-q8_0.gguf"])
def test_a_quant_is_named_in_any_case_or_by_its_file(hokku, quant):
    assert ok(hokku("pull", f"{REPO}:{quant}")).read_bytes() == Q8


def test_a_missing_quant_lists_the_choices(hokku, cache):
    refused(hokku("pull", REPO + ":q5_k_m"), "q5_k_m", "Q8_0, Q4_K_M")
    assert not cache.exists()


def test_an_ambiguous_quant_lists_the_files(hokku, hub):
    hub.add(REPO, files={"other-q4_k_m.gguf": data(3, 100)})
    refused(hokku("pull", REPO), "some-model-q4_k_m.gguf, other-q4_k_m.gguf")
    assert ok(hokku("pull", REPO + ":other-Q4_K_M.gguf")).read_bytes() == data(3, 100)


def test_without_q4_k_m_the_nearest_below_8_bits_is_taken(hokku, hub):
    hub.repos[REPO] = {}
    hub.add(REPO, files={f"m-{q}.gguf": data(q, 100) for q in ("f16", "q8_0", "q2_k", "q4_k_s", "q6_k")})
    assert ok(hokku("pull", REPO)).name == "m-q4_k_s.gguf"


def test_a_repository_without_gguf_says_so(hokku, hub):
    hub.repos[REPO] = {"model.safetensors": b"x"}
    refused(hokku("pull", REPO), "no GGUF")


def test_a_model_whose_name_is_not_taken_is_told_of(hokku, hub):
    hub.repos[REPO] = {}
    hub.add(REPO, files={"модель-q8_0.gguf": Q8})
    refused(hokku("pull", REPO), "has the GGUF file модель-q8_0.gguf, whose name is not taken: expected ASCII")
    hub.add(REPO, files={"model-q4_k_m.gguf": Q4})
    refused(hokku("pull", f"{REPO}:q8_0"), "Q4_K_M", "without модель-q8_0.gguf, whose name is not taken")
    assert hokku("pull", REPO).returncode == 0


def test_all_files_of_a_split_model_are_fetched(hokku, hub, cache):
    files = {f"Q6_K/m-q6_k-0000{i}-of-00003.gguf": data(i, 1000 * i) for i in (1, 2, 3)}
    hub.add(REPO, files=files)
    path = ok(hokku("pull", REPO + ":Q6_K"))
    assert path.name == "m-q6_k-00001-of-00003.gguf"
    assert {str(p.relative_to(cache / "hub" / REPO)): p.read_bytes() for p in cache.rglob("*.gguf")} == files
    (path.parent / "m-q6_k-00002-of-00003.gguf").unlink()
    ok(hokku("pull", REPO + ":Q6_K"))
    assert len(hub.seen("cdn")) == 4


def test_a_split_model_with_a_missing_part_is_refused(hokku, hub):
    hub.add(REPO, files={"m-q6_k-00001-of-00002.gguf": b"1"})
    refused(hokku("pull", REPO + ":Q6_K"), "part 2 of 2")


@pytest.mark.parametrize("name", ["m-00000-of-00000.gguf", "m-00003-of-00002.gguf"])
def test_parts_with_impossible_numbers_are_refused(hokku, hub, cache, trust, name):
    numbers = f"{int(name[2:7])} of {int(name[11:16])}"
    hub.repos[REPO] = {}
    hub.add(REPO, files={name: data(1, 100)})
    refused(hokku("pull", REPO), name, numbers)
    (hub.dir / "files" / name).write_bytes(data(1, 100))
    refused(hokku("pull", f"{hub.tls_url}/files/{name}", more=trust), name, numbers)
    assert ggufs(cache) == []


def test_a_record_that_names_an_impossible_part_is_no_download(hokku, hub, cache):
    path = ok(hokku("pull", REPO))
    record = path.parent / ".hokku.json"
    record.write_text(record.read_text().replace("some-model-q4_k_m.gguf", "m-00000-of-00000.gguf"))
    refused(hokku("pull", "--offline", REPO), "--offline")
    assert "m-00000-of-00000" not in "".join(ggufs(cache))


def test_the_list_of_files_may_have_pages(hokku, hub):
    rows = hub.listing(REPO)
    hub.api = lambda path: ((200, {}, json.dumps(rows[3:]).encode()) if "cursor=" in path else
                            (200, {"Link": f'<{hub.url}/api/models/{REPO}/tree/main?cursor=2>; rel="next"'}, json.dumps(rows[:3]).encode()))
    assert ok(hokku("pull", REPO)).read_bytes() == Q4


def test_hf_downloads_once_and_runs(hokku, hub):
    stories = pathlib.Path(model("stories")).read_bytes()
    hub.add("someone/stories", files={"stories-f16.gguf": stories})
    args = ["-hf", "someone/stories", "-no-cnv", "--temp", 0, "-n", 20, STORY["begin"]]
    first = hokku(*args)
    assert first.returncode == 0 and first.stdout and STORY["continues"].startswith(first.stdout), first.stderr
    n = len(hub.seen())
    second = hokku(*args)
    assert second.stdout == first.stdout and second.stderr == ""
    assert len(hub.seen()) == n  # no request at all
    assert hokku(*args, "--offline").stdout == first.stdout


def test_pull_fetches_a_newer_version(hokku, hub, cache):
    path = ok(hokku("pull", REPO))
    hub.add(REPO, files={"some-model-q4_k_m.gguf": data(9)})
    assert ok(hokku("pull", REPO)) == path and path.read_bytes() == data(9)
    assert not parts(cache)


def test_a_file_put_there_by_hand_is_adopted_if_it_is_the_right_one(hokku, hub, cache):
    path = cache / "hub" / REPO / "some-model-q4_k_m.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(Q4)
    ok(hokku("pull", REPO))
    assert not hub.seen("cdn")
    path.write_bytes(Q8)
    (path.parent / ".hokku.json").unlink()
    ok(hokku("pull", REPO))
    assert path.read_bytes() == Q4


# ---------------------------------------------------------------------------------------------- what is shown


def test_plain_lines_when_stderr_is_no_terminal(hokku):
    r = hokku("pull", REPO)
    assert [line.split(",")[0] for line in r.stderr.splitlines()] == [
        "downloading some-model-q4_k_m.gguf", "downloaded some-model-q4_k_m.gguf"]
    assert "\r" not in r.stderr and "\033" not in r.stderr and "1.5 MB" in r.stderr


def test_quiet_is_silent_but_for_the_path(hokku, hub):
    hub.plan = [("cut", 500_000)]
    r = hokku("pull", "-q", REPO)
    assert ok(r).read_bytes() == Q4 and r.stderr == ""


def test_a_terminal_gets_a_bar_with_rate_and_time_left(env, hub):
    hub.plan = [("slow", 150_000, 0.2)]
    env["TERM"] = "xterm-256color"
    with pexpect.spawn(HOKKU, ["pull", REPO], env=env, encoding="utf-8", timeout=20, dimensions=(24, 120)) as p:
        p.expect(r"\r[^\n]*\d+ % .*\[#+ +\][^\n]* of 1\.5 MB, [\d.]+ [kM]B/s, 0:0\d left")
        p.expect("downloaded some-model-q4_k_m.gguf, 1.5 MB in 0:0")
        p.expect(pexpect.EOF)


def test_a_terminal_without_escape_sequences_gets_plain_lines(env, hub):
    hub.plan = [("slow", 150_000, 0.1)]
    env["TERM"] = "dumb"
    with pexpect.spawn(HOKKU, ["pull", REPO], env=env, encoding="utf-8", timeout=20, dimensions=(24, 120)) as p:
        out = p.read()
    assert "downloaded some-model-q4_k_m.gguf, 1.5 MB in 0:0" in out and "\x1b" not in out and "#" not in out, out


# --------------------------------------------------------------------------------- interrupted and broken transfers


def test_ctrl_c_leaves_the_part_and_the_next_run_goes_on(env, hokku, hub, cache):
    hub.plan = [("stall", 700_000)]
    p = subprocess.Popen([HOKKU, "pull", REPO], env=env, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: parts(cache) and parts(cache)[0].stat().st_size == 700_000)
    p.send_signal(signal.SIGINT)
    begin = time.time()
    _, err = p.communicate(timeout=10)
    assert p.returncode == -signal.SIGINT and time.time() - begin < 3 and "goes on" in err
    assert ggufs(cache) == [] and parts(cache)[0].read_bytes() == Q4[:700_000]
    r = hokku("pull", REPO)
    assert ok(r).read_bytes() == Q4 and "going on after 700.0 kB" in r.stderr
    last = hub.seen("cdn")[-1]
    assert last["range"] == "bytes=700000-" and last["status"] == 206 and last["sent"] == 800_000
    assert not parts(cache)


@pytest.fixture
def leave_part(env, hub, cache):
    """A download that was killed after so many bytes."""
    def leave(n, name=REPO):
        hub.plan = [("stall", n)]
        p = subprocess.Popen([HOKKU, "pull", "-q", name], env=env)
        wait_until(lambda: parts(cache) and parts(cache)[0].stat().st_size == n)
        p.kill()
        p.wait()
    return leave


def test_a_killed_download_goes_on(hokku, hub, leave_part):
    leave_part(900_000)
    assert ok(hokku("pull", REPO)).read_bytes() == Q4
    assert hub.seen("cdn")[-1]["range"] == "bytes=900000-"


def test_early_closes_are_retried_from_where_they_were(hokku, hub):
    hub.plan = [("cut", 400_000), ("cut", 400_000), ("cut", 1_000_000)]
    r = hokku("pull", REPO)
    assert ok(r).read_bytes() == Q4 and r.stderr.count("trying again") == 3
    seen = hub.seen("cdn")
    assert [s["range"] for s in seen] == ["", "bytes=400000-", "bytes=400000-", "bytes=1000000-"]
    assert seen[1]["if_range"] == f'"{sha256(Q4)[:20]}"'  # of the answer that the part came from


def test_a_server_without_ranges_starts_over(hokku, hub):
    hub.plan = [("cut", 400_000), ("no ranges",)]
    assert ok(hokku("pull", REPO)).read_bytes() == Q4


def test_another_file_under_the_same_range_is_never_mixed_in(hokku, hub):
    # nginx answers 200 with the whole file because its ETag is not the one of the first answer
    hub.plan = [("cut", 400_000)]
    assert ok(hokku("pull", REPO)).read_bytes() == Q4
    assert [s["status"] for s in hub.seen("cdn")][-1] == 200


def test_a_server_that_closes_for_ever_is_given_up_on(hokku, hub, cache):
    hub.plan = [("cut", 100_000 + 10 * i) for i in range(9)]  # a little more each time is no progress
    refused(hokku("pull", REPO, more={"HF_HUB_DOWNLOAD_TIMEOUT": "3"}), "after 5 tries")
    assert ggufs(cache) == [] and 100_000 <= parts(cache)[0].stat().st_size <= 100_080


def test_a_silent_server_is_given_up_on_and_tried_again(hokku, hub):
    hub.plan = [("stall", 300_000)]
    r = hokku("pull", REPO, more={"HF_HUB_DOWNLOAD_TIMEOUT": "1"})
    assert ok(r).read_bytes() == Q4 and "sent nothing for" in r.stderr


def test_a_list_that_does_not_come_is_asked_for_again(hokku, hub):
    def wait(path):
        hub.api = None
        hub.hold.wait(20)
        return 200, {}, b"[]"
    hub.api = wait
    r = hokku("pull", REPO, more={"HF_HUB_DOWNLOAD_TIMEOUT": "1"})
    assert ok(r).read_bytes() == Q4 and "sent nothing for" in r.stderr


def test_passing_trouble_is_waited_out(hokku, hub):
    hub.plan = [("status", 503, {"Retry-After": "1"}), ("status", 429, {"Retry-After": "1"}), ("status", 502)]
    r = hokku("pull", REPO)
    assert ok(r).read_bytes() == Q4 and r.stderr.count("trying again in 1 s") == 2


def test_a_long_wait_is_not_waited_out(hokku, hub):
    hub.api = (429, {"Retry-After": "900"}, b"")
    refused(hokku("pull", REPO), "429", "too many requests", "900 s")


@pytest.mark.parametrize("status, says", [(401, "HF_TOKEN"), (403, "not allowed"), (404, "no such"), (410, "no such"), (418, "418")])
def test_what_will_not_change_is_said_at_once(hokku, hub, cache, status, says):
    hub.api = (status, {}, b"<html>")
    refused(hokku("pull", REPO), REPO, str(status), says)
    assert len(hub.seen()) == 1 and not cache.exists()


def test_trouble_that_stays_is_exit_1(hokku, hub):
    hub.api = (500, {"Retry-After": "1"}, b"")
    refused(hokku("pull", REPO), "500", "after 5 tries")
    assert len(hub.seen()) == 5


def test_no_network_is_said_at_once(hokku):
    begin = time.time()
    refused(hokku("pull", REPO, more={"HF_ENDPOINT": "http://127.0.0.1:1"}), "cannot be reached", "--offline")
    refused(hokku("pull", REPO, more={"HF_ENDPOINT": "https://no-such-host.invalid"}), "cannot be reached")
    assert time.time() - begin < 20


# -------------------------------------------------------------------------------------------------- lies


def test_content_with_a_wrong_checksum_never_gets_its_name(hokku, hub, cache):
    hub.plan = [("body", Q8)]
    refused(hokku("pull", REPO), "SHA-256", sha256(Q4)[:16])
    assert ggufs(cache) == [] and not parts(cache)


def test_a_damaged_part_is_thrown_away_and_fetched_again(hokku, leave_part, cache):
    leave_part(500_000)
    parts(cache)[0].write_bytes(b"x" * 500_000)
    r = hokku("pull", REPO)
    assert ok(r).read_bytes() == Q4 and "from the beginning" in r.stderr


def test_a_part_longer_than_the_file_starts_over(hokku, leave_part, cache):
    leave_part(500_000)
    parts(cache)[0].write_bytes(b"x" * 2_000_000)
    assert ok(hokku("pull", REPO)).read_bytes() == Q4


@pytest.mark.parametrize("length", [10, 1_499_999, 1_500_001, 10**18])
def test_a_length_that_is_not_the_announced_one_is_refused(hokku, hub, cache, length):
    hub.plan = [("length", length, b"x" * 10)]
    refused(hokku("pull", REPO), "1,500,000", f"{length:,}")
    assert ggufs(cache) == []


def test_more_bytes_than_announced_are_refused(hokku, hub, cache):
    hub.plan = [("length", None, Q4 + b"more")]
    refused(hokku("pull", REPO), "more than the 1,500,000 bytes")
    assert ggufs(cache) == [] and all(p.stat().st_size <= 1_500_000 for p in parts(cache))


@pytest.mark.parametrize("shift", [7, 2**64])  # the second is the right one in 64 bits
def test_another_range_than_asked_for_is_refused(hokku, hub, cache, shift):
    hub.plan = [("cut", 500_000), ("shift", shift)]
    refused(hokku("pull", REPO), "sends others")
    assert ggufs(cache) == []


def test_a_listing_and_a_file_that_disagree_are_refused(hokku, hub, cache):
    hub.lies[REPO, "some-model-q4_k_m.gguf"] = {"oid": sha256(Q8)}
    refused(hokku("pull", REPO), "not that of its list")
    assert ggufs(cache) == []


def test_without_a_checksum_nothing_is_downloaded(hokku, hub):
    hub.lies[REPO, "some-model-q4_k_m.gguf"] = {"oid": "abc"}
    refused(hokku("pull", REPO), "no SHA-256")
    assert not hub.seen("cdn")


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b"[[]]", b"[{}]", b"[" * 100_000, b'[{"type":"file","path":"a.gguf"}]',
                                  b'[{"type":"file","path":"a.gguf","size":-1}]', b'[{"type":"file","path":"a\\u0000.gguf","size":1}]'])
def test_a_listing_that_is_none_is_refused(hokku, hub, body):
    hub.api = (200, {}, body)
    refused(hokku("pull", REPO), "list of files" if b"size" not in body and b"a.gguf" not in body else "server")


@pytest.mark.parametrize("path", ["../evil.gguf", "/etc/evil.gguf", "a/../../../evil.gguf", "a//evil.gguf", "./evil.gguf",
                                  "..\\evil.gguf", "a/\x1b[31m.gguf", "a/..", "a/../b.gguf"])
def test_names_from_the_server_never_leave_the_cache(hokku, hub, cache, tmp_path, path):
    before = set(tmp_path.rglob("*"))
    hub.api = (200, {}, json.dumps([{"type": "file", "path": path, "size": 5,
                                     "lfs": {"oid": sha256(b"12345"), "size": 5}}]).encode())
    refused(hokku("pull", REPO), "GGUF" if path == "a/.." else "leave the cache")
    assert set(tmp_path.rglob("*")) == before and not hub.seen("cdn")


@pytest.mark.parametrize("name", ["../x/y", "..", "a/..", "a/b/c", "a", "/a/b", "a/b:", "a/b:../..\\x", "a b/c", "-a/b", ""])
def test_names_from_the_user_are_checked(hokku, hub, name):
    for names in ([name], [REPO, name]):
        refused(hokku("pull", "--", *names), "USER/REPO", code=2)
    assert not hub.seen()


def test_the_servers_words_cannot_drive_the_terminal(env, hub):
    hub.api = (404, {"X-Error-Message": "\x1b]0;owned\x07\x1b[2J"}, b"")
    with pexpect.spawn(HOKKU, ["pull", REPO], env=env, timeout=20) as p:
        out = p.read()
    assert b"404" in out and b"\x1b" not in out and b"\x07" not in out


# ------------------------------------------------------------------------------------------ the token, and TLS


def test_the_token_goes_to_the_endpoint_alone(hokku, hub):
    hub.token = "hf_secret"
    r = hokku("pull", REPO, more={"HF_TOKEN": "hf_secret"})
    assert ok(r).read_bytes() == Q4
    assert [s["auth"] for s in hub.seen("endpoint")] == ["Bearer hf_secret"] * 3
    assert [s["auth"] for s in hub.seen("cdn")] == [""]


def test_the_token_file_is_read(hokku, hub, tmp_path):
    hub.token = "hf_from_file"
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf/token").write_text("hf_from_file\n")
    ok(hokku("pull", REPO, more={"HF_HOME": str(tmp_path / "hf")}))


def test_a_token_file_that_cannot_be_read_is_said(hokku, hub, tmp_path):
    hub.token = "hf_from_file"
    (tmp_path / "large").write_text("x" * 5000)
    for name, said in (("large", "larger than 4,096 bytes"), (".", "directory")):
        r = hokku("pull", REPO, more={"HF_TOKEN_PATH": str(tmp_path / name)})
        refused(r, "401")
        assert f"hokku: {tmp_path / name}: " in r.stderr and said in r.stderr
    r = hokku("pull", REPO, more={"HF_TOKEN_PATH": str(tmp_path / "none")})
    refused(r, "401")
    assert str(tmp_path / "none") not in r.stderr


def test_a_wrong_token_is_refused_and_never_shown(hokku, hub):
    hub.token = "hf_right"
    r = hokku("pull", REPO, more={"HF_TOKEN": "hf_wrong"})
    refused(r, "401", "the token does not open it")
    assert "hf_wrong" not in r.stderr


def test_a_token_with_a_newline_cannot_add_headers(hokku, hub):
    refused(hokku("pull", REPO, more={"HF_TOKEN": "hf_a\r\nX-Evil: 1"}), "token", code=2)
    assert not hub.seen()


def test_no_option_takes_a_token(hokku):
    text = "".join(hokku(*tool, "--help").stdout for tool in ([], ["pull"], ["models"])).lower()
    assert "--offline" in text and not [w for w in text.split() if w.startswith("-") and ("token" in w or w.startswith("--hf-t"))]


def test_pages_at_another_server_are_refused(hokku, hub):
    hub.api = (200, {"Link": f'<http://127.0.0.1:{hub.ports["cdn"]}/cdn/x>; rel="next"'}, b"[]")
    refused(hokku("pull", REPO, more={"HF_TOKEN": "hf_secret"}), "another server")
    assert not hub.seen("cdn")


def test_a_redirect_loop_ends(hokku, hub):
    hub.resolve = lambda path: (302, {"Location": path}, b"")
    refused(hokku("pull", REPO), "more than 10 redirects")
    assert len(hub.seen()) == 13  # the list, what the model is, the file, 10 more


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/", "http://user:pw@127.0.0.1/x", "http://"])
def test_redirects_to_anything_but_the_web_are_refused(hokku, hub, target):
    hub.resolve = (302, {"Location": target}, b"")
    refused(hokku("pull", REPO), "")
    assert not hub.seen("cdn")


def test_an_untrusted_certificate_is_refused(hokku, hub):
    (hub.dir / "files/m.gguf").write_bytes(Q4)
    refused(hokku("pull", f"{hub.tls_url}/files/m.gguf"), "TLS")
    assert not hub.seen("tls")
    refused(hokku("pull", REPO, more={"HF_ENDPOINT": hub.tls_url}), "TLS")


def test_a_certificate_for_another_name_is_refused(hokku, hub):
    url = hub.tls_url.replace("localhost", "127.0.0.1")
    refused(hokku("pull", f"{url}/files/m.gguf", more={"SSL_CERT_FILE": str(hub.dir / "cert.pem")}), "TLS")
    assert not hub.seen("tls")


def test_https_never_goes_down_to_http(hokku, hub):
    r = hokku("pull", f"{hub.tls_url}/down/m.gguf", more={"SSL_CERT_FILE": str(hub.dir / "cert.pem")})
    refused(r, "plain http")
    assert not hub.seen("cdn")


def test_plain_http_addresses_are_no_models(hokku, hub):
    refused(hokku("pull", f"http://127.0.0.1:{hub.ports['cdn']}/cdn/x.gguf"), "or an https:// address", code=2)
    refused(hokku("-m", f"http://127.0.0.1:{hub.ports['cdn']}/cdn/x.gguf", "hi"), code=3)
    assert not hub.seen()


# ------------------------------------------------------------------------------------------------ addresses


@pytest.fixture
def trust(hub):
    return {"SSL_CERT_FILE": str(hub.dir / "cert.pem")}


def test_an_https_address_is_downloaded_once(hokku, hub, cache, trust):
    (hub.dir / "files/m.gguf").write_bytes(Q8)
    url = f"{hub.tls_url}/files/m.gguf"
    r = hokku("pull", url, more={**trust, "HF_TOKEN": "hf_secret"})
    path = ok(r)
    assert path.read_bytes() == Q8 and "no checksum" in r.stderr and not parts(cache)
    assert all(s["auth"] == "" for s in hub.seen("tls"))
    n = len(hub.seen())
    refused(hokku("-m", url, "hi"), "m.gguf", code=3)  # no GGUF, but found without the network
    refused(hokku("inspect", url), f"{path}: ", code=3)  # as an argument, too
    assert len(hub.seen()) == n
    assert url in hokku("models").stdout
    assert hokku("models", "rm", url).returncode == 0 and ggufs(cache) == []


@pytest.mark.parametrize("begin", [b"<!doctype html>", b"\n  <html>"])
def test_the_page_of_a_model_is_no_model(hokku, hub, cache, trust, begin):
    (hub.dir / "files/page.gguf").write_bytes(begin + b"Some Model" * 1000)
    for args in ("pull", f"{hub.tls_url}/files/page.gguf"), ("-m", f"{hub.tls_url}/files/page.gguf", "hi"):
        refused(hokku(*args, more=trust), "page.gguf: found a web page, expected a model's file", "hokku pull USER/REPO", "/resolve/ where that of its page has /blob/")
        assert not parts(cache) and not ggufs(cache)
    (hub.dir / "files/page.gguf").write_bytes(Q8)
    assert ok(hokku("pull", f"{hub.tls_url}/files/page.gguf", more=trust)).read_bytes() == Q8


def test_all_parts_of_an_https_address_are_fetched(hokku, hub, trust):
    for i in (1, 2):
        (hub.dir / f"files/s-0000{i}-of-00002.gguf").write_bytes(data(i, 1000))
    path = ok(hokku("pull", f"{hub.tls_url}/files/s-00001-of-00002.gguf?x=1", more=trust))
    assert (path.parent / "s-00002-of-00002.gguf").read_bytes() == data(2, 1000)


def test_an_https_address_is_resumed_only_if_the_file_is_the_same(hokku, hub, cache, trust):
    file = hub.dir / "files/r.gguf"
    url = f"{hub.tls_url}/files/r.gguf"

    def limited():  # the disk is full after 700,000 bytes
        resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, 700_000))
    file.write_bytes(Q8)
    refused(hokku("pull", url, more=trust, preexec_fn=limited, restore_signals=False), "cannot be written")
    assert parts(cache)[0].stat().st_size <= 700_000
    ok(hokku("pull", url, more=trust))
    assert hub.seen("tls")[-1]["status"] == 206 and hub.seen("tls")[-1]["if_range"]
    hokku("models", "rm", url)
    refused(hokku("pull", url, more=trust, preexec_fn=limited, restore_signals=False), "cannot be written")
    file.write_bytes(Q4)
    os.utime(file, (1, 1))
    assert ok(hokku("pull", url, more=trust)).read_bytes() == Q4


# ------------------------------------------------------------------------------------ disk, cache, processes


def test_disk_space_is_checked_before_anything_is_downloaded(hokku, hub, cache):
    hub.lies[REPO, "some-model-q4_k_m.gguf"] = {"size": 10**16}
    refused(hokku("pull", REPO), "10.0 PB", "free", "XDG_CACHE_HOME")
    assert ggufs(cache) == []
    assert all(s["sent"] < 1000 or s["port"] == hub.ports["endpoint"] for s in hub.seen())


def test_a_full_disk_is_said_and_the_download_goes_on_later(hokku, hub, cache):
    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (800_000, 800_000))
    refused(hokku("pull", REPO, preexec_fn=limited, restore_signals=False), ".part", "cannot be written")
    assert ggufs(cache) == [] and 0 < parts(cache)[0].stat().st_size <= 800_000
    assert ok(hokku("pull", REPO)).read_bytes() == Q4
    assert hub.seen("cdn")[-1]["range"].startswith("bytes=")


def test_a_cache_that_cannot_be_made_is_said(hokku):
    refused(hokku("pull", REPO, more={"XDG_CACHE_HOME": "/proc/nowhere"}), "/proc/nowhere", "XDG_CACHE_HOME")


def test_a_cache_that_cannot_be_written_still_serves(hokku, hub, cache):
    ok(hokku("pull", REPO))
    for p in [*cache.rglob("*"), cache]:
        p.chmod(0o555 if p.is_dir() else 0o444)
    try:
        assert ok(hokku("pull", REPO)).read_bytes() == Q4
        assert ok(hokku("pull", "--offline", REPO)).read_bytes() == Q4
    finally:
        for p in [cache, *cache.rglob("*")]:
            p.chmod(0o755)


def test_two_processes_download_once(env, hub, cache):
    hub.plan = [("slow", 300_000, 0.2)]
    ps = [subprocess.Popen([HOKKU, "pull", REPO], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
          for _ in range(3)]
    outs = [p.communicate(timeout=30) for p in ps]
    assert [p.returncode for p in ps] == [0, 0, 0], outs
    assert len({out for out, _ in outs}) == 1 and pathlib.Path(outs[0][0].strip()).read_bytes() == Q4
    assert len(hub.seen("cdn")) == 1
    assert any("waiting" in err for _, err in outs)
    assert not parts(cache)


def test_offline_asks_nobody(hokku, hub):
    refused(hokku("pull", "--offline", REPO), "--offline", "not downloaded")
    refused(hokku("--offline", "-hf", REPO, "hi"), "--offline")
    refused(hokku("--offline", "-m", f"{hub.tls_url}/files/m.gguf", "hi"), "--offline")
    assert not hub.seen()
    ok(hokku("pull", REPO + ":q8_0"))
    n = len(hub.seen())
    assert ok(hokku("pull", "--offline", REPO)).read_bytes() == Q8
    refused(hokku("pull", "--offline", REPO + ":q4_k_m"), "Q8_0")
    assert len(hub.seen()) == n


@pytest.fixture
def hf_cache(home):
    """As Hugging Face's own programs lay it out."""
    repo = pathlib.Path(home["XDG_CACHE_HOME"]) / "huggingface/hub/models--someone--Some-Model-GGUF"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs/main").write_text("c" * 40)

    def put(name, content, blob=None):
        (repo / "blobs").mkdir(exist_ok=True)
        (repo / "blobs" / (blob or sha256(content))).write_bytes(content)
        link = repo / "snapshots" / ("c" * 40) / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../../blobs/{blob or sha256(content)}")
        return link
    return put


def test_an_existing_hugging_face_cache_is_used(hokku, hub, cache, hf_cache):
    link = hf_cache("some-model-q4_k_m.gguf", Q4)
    assert ok(hokku("pull", REPO)) == link
    assert not hub.seen("cdn") and not cache.exists()
    n = len(hub.seen())
    refused(hokku("-hf", REPO, "hi"), str(link), code=3)  # no GGUF, but that file, and without the network
    assert ok(hokku("pull", "--offline", REPO)) == link
    assert len(hub.seen()) == n


def test_another_version_in_the_hugging_face_cache_is_not_used_by_pull(hokku, hub, cache, hf_cache):
    hf_cache("some-model-q4_k_m.gguf", data(5))
    assert cache in ok(hokku("pull", REPO)).parents


def test_hf_hub_cache_names_another_place(hokku, hub, home, hf_cache, tmp_path):
    hf_cache("some-model-q4_k_m.gguf", Q4)
    os.rename(pathlib.Path(home["XDG_CACHE_HOME"]) / "huggingface/hub", tmp_path / "elsewhere")
    assert tmp_path / "elsewhere" in ok(hokku("pull", REPO, more={"HF_HUB_CACHE": str(tmp_path / "elsewhere")})).parents


@pytest.mark.parametrize("record", [b"", b"{", b"[]", b'{"files": 1, "choices": []}', b"\xff" * 100,
                                    b'{"choices": {"": "../../../secret.gguf"}, "files": {"../../../secret.gguf": {"size": 6, "sha256": "%s"}}}'
                                    % (b"a" * 64), b'{"files": {"some-model-q4_k_m.gguf": {"size": -1, "sha256": 7}}}'])
def test_a_damaged_record_costs_a_hash_and_nothing_else(hokku, hub, cache, record):
    path = ok(hokku("pull", REPO))
    (cache.parent / "secret.gguf").write_bytes(b"secret")
    (path.parent / ".hokku.json").write_bytes(record)
    refused(hokku("pull", "--offline", REPO), "--offline")
    assert ok(hokku("pull", REPO)) == path and len(hub.seen("cdn")) == 1
    assert ok(hokku("pull", "--offline", REPO)) == path


@pytest.mark.parametrize("told", ["lumma", "llama", None, 7, "status", "no json"])
def test_an_architecture_that_cannot_run_is_said_before_the_download(hokku, hub, told):
    def api(path):
        if "/tree/" in path:
            return 200, {"Content-Type": "application/json"}, json.dumps(hub.listing(REPO)).encode()
        assert path == f"/api/models/{REPO}?expand%5B%5D=gguf"
        if told == "status":
            return 500, {}, b"{}"
        return 200, {}, b"{" if told == "no json" else json.dumps({"id": REPO, "gguf": {"architecture": told}}).encode()

    hub.api = api
    r = hokku("pull", REPO)
    ok(r)  # the user decides: the Hub may have looked at another file
    lines = [line for line in r.stderr.splitlines() if "cannot run" in line]
    assert len(lines) == (told == "lumma")
    if lines:
        assert lines[0].startswith(f'hokku: {REPO} cannot run here, says the Hub: architecture "lumma" is not supported')
        assert r.stderr.index("cannot run") < r.stderr.index("downloading")
    before = r.stderr
    again = hokku("pull", REPO)  # nothing is downloaded, nothing is said
    ok(again)
    assert "cannot run" not in again.stderr, before
