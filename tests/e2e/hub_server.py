"""A Hub on the loopback: Debian's nginx in front (ranges, ETags, TLS, redirects to another port), behind it what a
script must decide: the Hub's JSON, who may, and failures at chosen bytes."""
import hashlib
import http.server
import json
import os
import pathlib
import shutil
import socket
import subprocess
import threading
import time

NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin") or "nginx"

CONFIG = """
{user}
daemon off;
master_process off;
worker_processes 1;
pid {dir}/nginx.pid;
error_log {dir}/error.log;
events {{ worker_connections 64; }}
http {{
    client_body_temp_path {dir}/t1; proxy_temp_path {dir}/t2; fastcgi_temp_path {dir}/t3;
    uwsgi_temp_path {dir}/t4; scgi_temp_path {dir}/t5;
    default_type application/octet-stream;
    log_format seen escape=json '{{"port":$server_port,"method":"$request_method","uri":"$request_uri","status":$status,'
        '"auth":"$http_authorization","range":"$http_range","if_range":"$http_if_range","sent":$body_bytes_sent}}';
    access_log {dir}/access.log seen;
    proxy_buffering off;
    proxy_read_timeout 60s;
    proxy_set_header Host $http_host;
    server {{  # the endpoint
        listen 127.0.0.1:{endpoint};
        location / {{ proxy_pass http://127.0.0.1:{backend}; }}
    }}
    server {{  # the CDN
        listen 127.0.0.1:{cdn};
        location /cdn/ {{ proxy_pass http://127.0.0.1:{backend}; }}
        location /blobs/ {{ internal; root {dir}; }}
    }}
    server {{  # an endpoint and a web server with TLS
        listen 127.0.0.1:{tls} ssl;
        ssl_certificate {dir}/cert.pem;
        ssl_certificate_key {dir}/key.pem;
        location /files/ {{ root {dir}; }}
        location /down/ {{ return 302 http://127.0.0.1:{cdn}/cdn/x; }}
        location / {{ proxy_pass http://127.0.0.1:{backend}; }}
    }}
}}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Hub:
    def __init__(self, directory):
        self.dir = pathlib.Path(directory)
        (self.dir / "blobs").mkdir()
        (self.dir / "files").mkdir()
        self.ports = {name: free_port() for name in ("endpoint", "cdn", "tls")}
        self.url = f"http://127.0.0.1:{self.ports['endpoint']}"
        self.tls_url = f"https://localhost:{self.ports['tls']}"
        self.reset()
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                hub.answer(self)

            do_HEAD = do_GET

            def log_message(self, *args):
                pass

        self.backend = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.backend.daemon_threads = True
        threading.Thread(target=self.backend.serve_forever, daemon=True).start()
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost", "-keyout", self.dir / "key.pem", "-out", self.dir / "cert.pem"],
                       check=True, capture_output=True)
        (self.dir / "nginx.conf").write_text(CONFIG.format(
            user="user root;" if os.geteuid() == 0 else "", dir=self.dir, backend=self.backend.server_address[1], **self.ports))
        self.nginx = subprocess.Popen([NGINX, "-c", self.dir / "nginx.conf", "-p", self.dir, "-e", self.dir / "error.log"],
                                      stderr=subprocess.DEVNULL)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.ports["tls"]), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError((self.dir / "error.log").read_text())

    def close(self):
        self.hold.set()
        self.nginx.terminate()
        self.nginx.wait()
        self.backend.shutdown()

    def reset(self):
        """A Hub without repositories, tokens and failures; forgets what was asked."""
        if hasattr(self, "hold"):
            self.hold.set()
        self.hold = threading.Event()  # stalled answers end with it
        self.repos = {}                # "user/repo" -> {path: bytes}
        self.lies = {}                 # (repo, path) -> fields of the listing that are not true
        self.token = None              # required if set
        self.api = None                # an answer of its own: (status, headers, body) or a function of the path
        self.resolve = None            # the same for .../resolve/...
        self.plan = []                 # what happens to the next requests for contents, then all is well
        if (self.dir / "access.log").exists():
            self.settle()
            (self.dir / "access.log").write_text("")

    def settle(self):
        """Until nginx has logged what it did."""
        log, size = self.dir / "access.log", -1
        while log.stat().st_size != size:
            size = log.stat().st_size
            time.sleep(0.05)

    def seen(self, port=None):
        """The requests so far, in the order of their ends."""
        self.settle()
        rows = [json.loads(line) for line in (self.dir / "access.log").read_text().splitlines()]
        return [r for r in rows if port is None or r["port"] == self.ports[port]]

    def add(self, repo, **files):
        for path, data in files.pop("files", {}).items():
            self.repos.setdefault(repo, {})[path] = data
            (self.dir / "blobs" / sha256(data)).write_bytes(data)

    def listing(self, repo):
        rows = [{"type": "directory", "path": "sub", "size": 0, "oid": "0" * 40},
                {"type": "file", "path": "README.md", "size": 12, "oid": "1" * 40}]
        for path, data in self.repos[repo].items():
            row = {"type": "file", "path": path, "size": len(data), "oid": "2" * 40,
                   "lfs": {"oid": sha256(data), "size": len(data), "pointerSize": 134}}
            lie = self.lies.get((repo, path), {})
            row["lfs"].update(lie)
            row.update({k: v for k, v in lie.items() if k == "size"})
            rows.append(row)
        return rows

    # ---------------------------------------------------------------------------------------- the script

    def answer(self, r):
        try:
            path = r.path.split("?")[0]
            if path.startswith("/cdn/"):
                return self.content(r, path[5:])
            if self.token and r.headers.get("Authorization") != f"Bearer {self.token}":
                return self.send(r, 401, {"X-Error-Message": "Invalid username or password."}, b"no")
            if path.startswith("/api/models/"):
                repo = path[len("/api/models/"):].rsplit("/tree/", 1)[0]
                if self.api:
                    return self.send(r, *(self.api(r.path) if callable(self.api) else self.api))
                if repo not in self.repos:
                    return self.send(r, 404, {"X-Error-Message": "Repository not found"}, b"{}")
                return self.send(r, 200, {"Content-Type": "application/json"}, json.dumps(self.listing(repo)).encode())
            if self.resolve:
                return self.send(r, *(self.resolve(r.path) if callable(self.resolve) else self.resolve))
            repo, name = path[1:].split("/resolve/main/")
            data = self.repos[repo][name]
            return self.send(r, 302, {"Location": f"http://127.0.0.1:{self.ports['cdn']}/cdn/{sha256(data)}?signature=1",
                                      "X-Linked-Etag": f'"{sha256(data)}"', "X-Linked-Size": str(len(data)),
                                      "X-Repo-Commit": "a" * 40}, b"moved")
        except (BrokenPipeError, ConnectionResetError):
            pass

    @staticmethod
    def send(r, status, headers, body):
        r.send_response(status)
        for k, v in headers.items():
            r.send_header(k, v)
        r.send_header("Content-Length", str(len(body)))
        r.end_headers()
        r.wfile.write(body)

    def content(self, r, digest):
        what = self.plan.pop(0) if self.plan else ("ok",)
        data = (self.dir / "blobs" / digest).read_bytes()
        start = int(r.headers.get("Range", "bytes=0-")[6:-1])
        if what[0] == "ok":  # nginx itself does ranges and ETags
            r.send_response(200)
            r.send_header("X-Accel-Redirect", f"/blobs/{digest}")
            r.end_headers()
        elif what[0] == "status":
            self.send(r, what[1], what[2] if len(what) > 2 else {}, b"an error page")
        elif what[0] == "body":  # these bytes, as if they were all
            self.send(r, 200, {}, what[1])
        elif what[0] == "no ranges":
            self.send(r, 200, {}, data)
        else:
            # "cut" / "stall" / "slow" after so many bytes of the file; "length": another Content-Length; "shift": another range
            shift = what[1] if what[0] == "shift" else 0
            r.send_response(206 if start else 200)
            if start:
                r.send_header("Content-Range", f"bytes {start + shift}-{len(data) - 1 + shift // 2**64 * 2**64}/{len(data)}")
            if what[0] != "length":
                r.send_header("Content-Length", str(len(data) - start))
            elif what[1] is not None:
                r.send_header("Content-Length", str(what[1]))
            r.send_header("ETag", '"' + digest[:20] + '"')
            r.end_headers()
            if what[0] == "length":
                r.wfile.write(what[2])
            elif what[0] == "slow":
                for i in range(start, len(data), what[1]):
                    r.wfile.write(data[i:i + what[1]])
                    time.sleep(what[2])
            elif what[0] in ("cut", "stall"):
                r.wfile.write(data[start:what[1]])
                r.wfile.flush()
                if what[0] == "stall":
                    self.hold.wait(20)
            else:
                r.wfile.write(data[start:])
