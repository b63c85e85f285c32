"""hokku serve at its door: keys, addresses and sockets, web pages, and heads of requests that are none."""
import contextlib
import json
import re
import resource
import signal
import socket
import subprocess
import sys
import time

import pytest
from conftest import HOKKU
from server import BUILTIN, ENDLESS, key_file, serving
from test_serve import HAIKU, LONG, USER, alone, any_served, content, served  # noqa: F401 (fixtures)


def test_with_a_key_file_only_its_keys_open(home, tmp_path):
    with serving(home, "--api-key-file", key_file(tmp_path)) as s:
        assert s.ask("/health")[0] == 200
        for value in (None, "Bearer ", "Bearer 0123456789abcdef-kex", "Bearer 0123456789abcdef-key2", "0123456789abcdef-key", "Bearer # a comment"):
            for path, body in (("/v1/models", None), ("/metrics", None), ("/v1/chat/completions", {"messages": USER}), ("/nope", None)):
                status, headers, answer = s.ask(path, body, {"Authorization": value} if value else {})
                assert status == 401 and headers["WWW-Authenticate"] == "Bearer" and answer["error"]["code"] == "invalid_api_key"
        for key in ("0123456789abcdef-key", "another-key-of-mine"):
            assert s.ask("/v1/models", headers={"Authorization": f"Bearer {key}", "Host": "any.example"})[0] == 200


@pytest.mark.parametrize("text, mode, said", [("0123456789abcdef\n", 0o644, "can be read by others"), ("short\n", 0o600, "expected 16 or more"), ("\n", 0o600, "found no key"),
                                              ("#0123456789abcdef\n", 0o600, "found no key, expected one on a line that does not begin with #"),
                                              ("0123456789 abcdef\n", 0o600, "blanks"), (None, 0o600, "No such file")])
def test_a_key_file_that_is_none_is_refused(hokku, tmp_path, text, mode, said):
    path = key_file(tmp_path, text, mode) if text else tmp_path / "none"
    r = hokku("serve", *BUILTIN, "--listen", "127.0.0.1:0", "--api-key-file", path)
    assert r.returncode == 2 and said in r.stderr.decode(), r.stderr


@pytest.mark.parametrize("line, headers, status", [
    (b"/health", b"X: " + b"a" * 24000 + b"\r\n", b"200"), (b"/health", b"".join(b"X%d: abcdefghi\r\n" % i for i in range(200)), b"200"),
    (b"/health", b"X: " + b"a" * 33000 + b"\r\n", b"431"), (b"/" + b"a" * 33000, b"", b"414")])
def test_a_head_has_the_room_that_the_manual_says(any_served, line, headers, status):  # noqa: F811
    c = any_served.connect(20)
    c.sendall(b"GET " + line + b" HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n")
    assert c.recv(4096).startswith(b"HTTP/1.1 " + status)
    c.close()


@pytest.mark.parametrize("parameters", [b"?", b"?a=1", b"?" + b"a=1&" * 600, b"?" + b"a&" * 12000, b"?" + b"&" * 20000, b"?a?b=%00"])
def test_parameters_are_not_read_however_many(any_served, parameters):  # noqa: F811
    c = any_served.connect(20)
    for path, status in ((b"/health", b"200"), (b"/nope", b"404"), (b"/health", b"200")):  # of one connection
        c.sendall(b"GET " + path + parameters + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert c.recv(4096).startswith(b"HTTP/1.1 " + status)
    c.close()


@pytest.mark.parametrize("n, status", [(400, b"200"), (600, b"431"), (4000, b"431")])
def test_cookies_take_the_room_of_headers(any_served, n, status):  # noqa: F811
    c = any_served.connect(20)
    c.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nCookie: " + b"a=1; " * n + b"\r\n\r\n")
    assert c.recv(4096).startswith(b"HTTP/1.1 " + status)
    c.close()


@pytest.mark.parametrize("target, host, status", [
    (b"http://localhost/health", b"localhost", b"200"), (b"HTTP://127.0.0.1:1/health?x", b"localhost", b"200"), (b"http://[::1]:8080/v1/models", b"localhost", b"200"),
    (b"http://localhost/health", b"evil.example", b"200"),  # (a proxy's; that of the target counts)
    (b"http://evil.example/health", b"localhost", b"403"), (b"http://localhost.evil.example/health", b"localhost", b"403"), (b"http://localhost@evil.example/health", b"localhost", b"403"),
    (b"http://localhost:80@evil.example/health", b"localhost", b"403"), (b"/health", b"localhost:80@evil.example", b"403"), (b"/health", b"localhost:x", b"403"), (b"/health", b"localhost:", b"200"),
    (b"http:///health", b"localhost", b"403"), (b"http://localhost", b"localhost", b"404"), (b"http://localhost/nope", b"localhost", b"404"),
    (b"https://localhost/health", b"localhost", b"404"), (b"http:/health", b"localhost", b"404")])
def test_a_request_as_to_a_proxy_is_one_of_the_host_in_it(served, target, host, status):  # noqa: F811
    c = served.connect(20)
    c.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
    assert c.recv(4096).startswith(b"HTTP/1.1 " + status)
    c.close()


def test_a_model_that_is_an_argument_is_told_the_option(hokku):
    r = hokku("serve", "model.gguf")
    assert r.returncode == 2 and b'found the argument "model.gguf", expected none: -m FILE or -hf USER/REPO names the model' in r.stderr, r.stderr


@pytest.mark.parametrize("port", ["80999", "-1", "99999999999999999999"])
def test_a_port_that_is_none_is_said_with_the_range(hokku, port):
    r = hokku("serve", *BUILTIN, "--listen", f"127.0.0.1:{port}")
    assert r.returncode == 2 and b"a PORT from 0 to 65535" in r.stderr, r.stderr


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
def test_an_address_that_others_reach_needs_a_key(hokku, home, tmp_path, listen):
    r = hokku("serve", *BUILTIN, "--listen", listen)
    if r.returncode == 1 and b"not supported" in r.stderr:
        pytest.skip("IPv6 is not allowed here")
    assert r.returncode == 2 and b"--api-key-file" in r.stderr
    with serving(home, "--api-key-file", key_file(tmp_path), listen=listen) as s:
        s.host = "127.0.0.1" if listen[0] == "0" else "::1"
        assert s.ask("/v1/models")[0] == 401


@pytest.mark.parametrize("listen", ["8080", "127.0.0.1", "127.0.0.1:99999", "example.com:80", "127.0.0.1:", ":80", "::1:80", "127.0.0.1:8x", "unix:", "unix:" + "x" * 200])
def test_what_is_no_address_is_wrong_usage(hokku, listen):
    r = hokku("serve", *BUILTIN, "--listen", listen)
    assert r.returncode == 2 and r.stderr.startswith(b"hokku: --listen"), r.stderr


def test_an_address_in_use_is_a_failure(hokku, served):  # noqa: F811
    r = hokku("serve", *BUILTIN, "--listen", f"127.0.0.1:{served.port}")
    assert r.returncode == 1 and b"in use" in r.stderr


def test_no_web_page_reaches_a_server_without_keys(served):  # noqa: F811
    body = {"messages": USER}
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}, {"Host": f"evil.example:{served.port}"}, {"Host": "localhost.evil.example"}):
        status, got, answer = served.ask("/v1/chat/completions", body, headers)
        assert status == 403 and answer["error"]["message"], headers
        assert not [h for h in got if h.lower().startswith("access-control")]
    for host in ("localhost", f"LOCALHOST:{served.port}", f"127.0.0.1:{served.port}", "[::1]:1"):
        assert served.ask("/v1/models", headers={"Host": host})[0] == 200
    status, headers, _ = served.ask("/v1/models", method="OPTIONS")
    assert status == 405 and not [h for h in headers if h.lower().startswith("access-control")]


def test_a_socket_with_a_path_is_its_users_alone(home, tmp_path, hokku):
    path = tmp_path / "s.sock"
    with serving(home, listen=f"unix:{path}") as s:
        assert path.stat().st_mode & 0o777 == 0o600
        assert content(s.chat(HAIKU, seed=2)) == alone(hokku, HAIKU, "-s", 2)
        r = hokku("serve", *BUILTIN, "--listen", f"unix:{path}")
        assert r.returncode == 1 and b"in use" in r.stderr and path.exists()
        s.process.kill()  # what it leaves is no hindrance
        s.process.wait()
        assert path.exists()
    with serving(home, listen=f"unix:{path}") as s:
        assert s.ask("/health")[0] == 200
        s.end()
    assert not path.exists()


def test_a_server_that_ends_leaves_the_socket_of_the_next_one(home, tmp_path):
    path = tmp_path / "s.sock"
    with serving(home, "--grace", 600, listen=f"unix:{path}", model=ENDLESS) as old:
        answer = old.open("/v1/chat/completions", LONG)
        old.wait_for(answers_running=1)
        old.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + 20
        with contextlib.suppress(OSError):  # until nobody answers there
            while time.monotonic() < end:
                old.connect().close()
                time.sleep(0.02)
        with serving(home, listen=f"unix:{path}") as new:
            answer.close()
            assert old.process.wait(60) == -signal.SIGTERM
            assert path.exists() and new.ask("/health")[0] == 200
    with serving(home, listen=f"unix:{path}") as old:
        path.unlink()
        with serving(home, listen=f"unix:{path}") as new:
            old.end()
            assert path.exists() and new.ask("/health")[0] == 200
            new.end()
    assert not path.exists()


AS_SYSTEMD = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1'); os.execv(sys.argv[2], sys.argv[2:])"


def test_a_socket_that_systemd_has_opened_is_taken(home):
    for host, ok in (("127.0.0.1", True), ("0.0.0.0", False)):
        sock = socket.create_server((host, 0))
        p = subprocess.Popen([sys.executable, "-c", AS_SYSTEMD, str(sock.fileno()), HOKKU, "serve", *map(str, BUILTIN)], env=home,
                             pass_fds=[sock.fileno()], stderr=subprocess.PIPE)
        said = p.stderr.readline().decode()
        assert f"{host}:{sock.getsockname()[1]} " in said and ("--api-key-file" in said) != ok, said
        if ok:
            with socket.create_connection(sock.getsockname()) as c:
                c.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert c.recv(100).startswith(b"HTTP/1.1 200")
        p.kill()
        p.communicate()


BODY = b'{"content": "hi"}'
# libmicrohttpd 1.0 refuses some itself, in HTML, before the program sees them.
REFUSES_ITSELF = subprocess.run(["pkg-config", "--atleast-version=1", "libmicrohttpd"], check=False).returncode == 0


@pytest.mark.parametrize("headers", [b"Host: localhost\r\nContent-Length: 17\r\nContent-Length: 5", b"Host: localhost\r\nContent-Length: 5\r\nContent-Length: 17",
                                     b"Host: localhost\r\nContent-Length: 17\r\nContent-Length: 17", b"Host: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
                                     b"Host: localhost\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity", b"Host: localhost\r\nTransfer-Encoding: gzip, chunked",
                                     b"Content-Length: 17", b"Host: localhost\r\nHost: localhost\r\nContent-Length: 17",
                                     b"Host: localhost\r\nContent-Length : 17", b"Host: localhost\r\nContent-Length\t: 17",
                                     b"Host: localhost\r\nTransfer-Encoding : chunked\r\nContent-Length: 27",
                                     b"Host: localhost\r\nX: y\rContent-Length: 17", b"Host: localhost\r\n\x0bContent-Length: 17",
                                     b"Host: localhost\r\nHost : other\r\nContent-Length: 17",
                                     b"Host: localhost\r\nContent-Length: 1\r\n 7", b"Host: localhost\r\nContent-L: 17\r\n\tength", b"Host: localhost\r\nX: y\r\n z\r\nContent-Length: 17",
                                     b"Host: localhost\r\nTransfer-Encoding: chun\r\n ked", b"Ho: localhost\r\n st\r\nContent-Length: 17",
                                     b"Host: localhost\r\nContent-Length: 17\r\nauthorization: Bearer a\r\nAuthorization: Bearer b",
                                     b"Host: localhost\r\nContent-Length: 17\r\nContent-Encoding: identity\r\nContent-Encoding: gzip",
                                     b"Host: localhost\r\nContent-Length: 17\r\nExpect: 100-continue\r\nX: y\r\nExpect: 100-continue",
                                     b"HTTP/1.0\r\nTransfer-Encoding: chunked"])
def test_a_request_that_others_may_read_otherwise_is_refused_and_its_connection_closed(any_served, headers):  # noqa: F811
    c = any_served.connect(10)
    c.sendall(b"POST /tokenize " + (b"" if headers.startswith(b"HTTP") else b"HTTP/1.1\r\n") + headers + b"\r\n\r\n" + (b"11\r\n" + BODY + b"\r\n0\r\n\r\n" if b"chunked" in headers else BODY))
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := c.recv(65536):
            got += piece
    by_library = REFUSES_ITSELF and b"<title>" in got and b"Connection: close" in got
    assert re.match(rb"HTTP/1\.1 (400|501)" if by_library else b"HTTP/1.1 400", got) and len(re.findall(rb"HTTP/1\.1 \d", got)) == 1, got
    assert by_library or (b'"error"' in got and b"expected" in got), got


@pytest.mark.parametrize("length, status", [(b"abc", 400), (b"-5", 400), (b"5, 6", 400), (b"", 400), (b"9" * 30, 413)])
def test_a_length_that_is_none_is_refused_and_its_connection_closed(any_served, length, status):  # noqa: F811
    """By libmicrohttpd (docs/serve.md says how)."""
    c = any_served.connect(10)
    c.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + length + b"\r\n\r\n" + BODY)
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := c.recv(65536):
            got += piece
    assert re.match(rb"HTTP/1\.1 (400|413) " if REFUSES_ITSELF else b"HTTP/1.1 %d " % status, got) and b"Connection: close" in got and b"tokens" not in got, got
    assert any_served.ask("/health")[0] == 200


def test_requests_that_come_one_after_the_other_on_a_connection_are_answered_in_order(served):  # noqa: F811
    c = served.connect()
    body = json.dumps({"messages": [{"role": "user", "content": HAIKU}], "seed": 7, "max_tokens": 20}).encode()
    stream = body[:-1] + b', "stream": true}'
    request = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
    c.sendall(request % (len(body), body) + b"GET /nope HTTP/1.1\r\nHost: localhost\r\n\r\n" + request % (len(stream), stream)
              + b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    got = b"".join(iter(lambda: c.recv(65536), b""))
    assert re.findall(rb"HTTP/1\.1 (\d+) ", got) == [b"200", b"404", b"200", b"200"]
    assert got.index(b"chat.completion\"") < got.index(b"unknown_path") < got.index(b"[DONE]") < got.index(b'"status":"ok"')
    for broken in (b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET " + b"/" * 70000,
                   b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * 20000 + b"\r\n"):
        c = served.connect(1)
        try:
            c.sendall(broken)
            c.shutdown(socket.SHUT_WR)
            while c.recv(65536):
                pass
        except OSError:
            pass
        c.close()
    assert served.ask("/health")[0] == 200


def test_a_crowd_beyond_the_limit_of_connections_leaves_a_server_that_answers(home):
    few = resource.RLIMIT_NOFILE, (24, 24)
    with serving(home, "--device", "cpu", preexec_fn=lambda: resource.setrlimit(*few)) as s:
        crowd = [s.connect() for _ in range(60)]
        time.sleep(0.5)
        for c in crowd:
            c.close()
        assert s.chat("hi", max_tokens=3)["usage"]["completion_tokens"] > 0
        s.process.terminate()
        assert s.process.wait(20) == -signal.SIGTERM
