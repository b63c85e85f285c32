"""`hokku serve`, started for a test, and small clients of it."""
import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
import time

from conftest import HOKKU, ROOT

BUILTIN = ["-m", ROOT / "builtin/hokku-builtin.gguf", "-t", 2]
ENDLESS = [*BUILTIN, "-c", 60000, "-l", "4093-1000", "-l", "4095-1000"]  # its end tokens are out of reach


class Server:
    def __init__(self, env, *args, listen="127.0.0.1:0", model=BUILTIN, **kw):
        self.process = subprocess.Popen([HOKKU, "serve", *map(str, [*model, *(["--listen", listen] if listen else []), *args])], env=env,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        bufsize=0, **kw)  # (else a line behind the first would be lost to communicate)
        self.first = self.process.stderr.readline().decode()
        found = re.search(r" at (?:http://(.*):(\d+)|unix:(\S+)) ", self.first)
        assert found, self.first + self.process.stderr.read().decode()
        self.host, self.port, self.path = found[1], int(found[2] or 0), found[3]
        self.url = f"http://{self.host}:{self.port}"

    def connect(self, timeout=60):
        if self.path:
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(timeout)
            s.connect(self.path)
            return s
        return socket.create_connection((self.host, self.port), timeout)

    def ask(self, path, body=None, headers=None, method=None):
        """Status, headers and body of one request; JSON is read."""
        c = http.client.HTTPConnection(self.host or "localhost", self.port or 80, timeout=60)
        c.sock = self.connect()
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        c.request(method or ("GET" if body is None else "POST"), path, data, headers or {})
        r = c.getresponse()
        text = r.read()
        c.close()
        is_json = r.headers["Content-Type"] == "application/json" and text
        return r.status, r.headers, json.loads(text) if is_json else text

    def chat(self, prompt, **fields):
        status, _, answer = self.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}], **fields})
        assert status == 200, answer
        return answer

    def open(self, path, body):
        """A connection with a request on its way."""
        data = json.dumps(body).encode()
        s = self.connect()
        s.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
        return s

    def metrics(self):
        text = self.ask("/metrics")[2].decode()
        return {name: int(value) for name, value in re.findall(r"^hokku_(\w+) (\d+)$", text, re.M)}

    def wait_for(self, seconds=30, **values):
        """Until the metrics have these values."""
        end = time.monotonic() + seconds
        while (m := self.metrics()) and any(m[k] != v for k, v in values.items()):
            assert time.monotonic() < end, (m, values)
            time.sleep(0.02)
        return m

    def end(self, sig=signal.SIGTERM):
        """Its exit status, and what it said on standard error."""
        self.process.send_signal(sig)
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err.decode()


@contextlib.contextmanager
def serving(env, *args, **kw):
    s = Server(env, *args, **kw)
    try:
        yield s
    finally:
        if s.process.poll() is None:
            s.process.kill()
        s.process.communicate()


def events(raw):
    """The data of a stream of events."""
    assert raw.endswith(b"\n\n"), raw[-80:]
    return [e.removeprefix("data: ") for e in raw.decode().split("\n\n")[:-1] if not e.startswith(":")]


def streamed(raw):
    """Its JSON; that it ends as it should."""
    e = events(raw)
    assert e[-1] == "[DONE]"
    return [json.loads(x) for x in e[:-1]]


def key_file(tmp_path, text="0123456789abcdef-key\n# a comment\n\nanother-key-of-mine\n", mode=0o600):
    path = tmp_path / "keys"
    path.write_text(text)
    path.chmod(mode)
    return path
