"""Every command with hostile names and contents, on a terminal: nothing but hokku's own sequences arrives there."""
import json
import os
import pathlib
import pty
import re
import subprocess
import sys
import threading

import pexpect
import pytest
import session_format
from conftest import HOKKU, ROOT

sys.path.insert(0, str(ROOT / "tests"))
import make_gguf  # noqa: E402

BUILTIN = str(ROOT / "builtin" / "hokku-builtin.gguf")
# Title, clipboard, clear, colour that hides, C1 as UTF-8, bidirectional controls, an invisible tag, DEL, backspace, return.
EVIL = ("owned\x1b]0;t\x07\x1b[2J\x1b[8m\x1b[38;5;201m\u009b31m\u009d52;c;x\u009c\u202evil\u2066\u2069\u200b\u061c"
        "\U000e0041\x7f\x08\rx")
EVIL_RAW = EVIL.encode() + b"\x9b2J\xff\xe2\x80"
NAME = EVIL_RAW.replace(b"/", b"")  # as a file's name
# What hokku itself may write beside text: the styles it has, cursor left, a line erased, bracketed paste, line ends.
OURS = re.compile(r"\x1b\[0(?:;1)?(?:;2)?(?:;36)?m|\x1b\[3[123]m|\x1b\[\d+D|\r(?:\x1b\[K)?|\x1b\[K|\x1b\[\?2004[hl]|\n|\t")
RAW = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
                 "\U000e0000-\U000e007f]")


def check(shown):
    text = shown.decode()  # ill-formed UTF-8 fails here
    left = RAW.findall(OURS.sub("", text))
    assert not left, (left, text)
    return text


def on_terminal(env, *args, input=None, stdout=True, stderr=True, cwd=None):
    """Runs hokku with the streams on a terminal -> (exit code, what the terminal got, what the other stream got)."""
    master, slave = pty.openpty()
    got = bytearray()

    def read():
        try:
            while piece := os.read(master, 65536):
                got.extend(piece)
        except OSError:
            pass
    reader = threading.Thread(target=read)
    reader.start()
    p = subprocess.Popen([HOKKU, *args], env=env, cwd=cwd, stdin=subprocess.PIPE,
                         stdout=slave if stdout else subprocess.PIPE, stderr=slave if stderr else subprocess.PIPE)
    os.close(slave)
    out, err = p.communicate(input or b"", timeout=60)
    reader.join(timeout=10)
    os.close(master)
    return p.returncode, bytes(got), out if stderr else err


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with a hostile name, full of hostile files."""
    d = pathlib.Path(os.fsdecode(os.fsencode(tmp_path_factory.mktemp("door")) + b"/" + NAME[:60]))
    d.mkdir()

    def gguf(name, template=None, **change):
        kvs, tensors = make_gguf.model(embd=64, heads=2, ff=64, layers=1, ctx=256, name=EVIL, template=template or make_gguf.CHATML)
        kvs = [(k, change.pop(k, v)) for k, v in kvs] + list(change.items())
        make_gguf.write(str(d / name), kvs, tensors)
        return str(d / name)
    evil = EVIL_RAW
    tokens = dict(make_gguf.vocabulary(1056, "qwen2", False))["tokenizer.ggml.tokens"].value[1]
    merges = dict(make_gguf.vocabulary(1056, "qwen2", False))["tokenizer.ggml.merges"].value[1]
    gguf("good.gguf", **{"general.author": EVIL, "evil." + EVIL: evil, "general.tags": [EVIL, "x"]})
    gguf("pre.gguf", **{"tokenizer.ggml.pre": evil})
    gguf("model.gguf", **{"tokenizer.ggml.model": evil})
    gguf("arch.gguf", **{"general.architecture": evil})
    gguf("merges.gguf", **{"tokenizer.ggml.merges": make_gguf.Typed("array", ("str", [EVIL, *merges[1:]]))})
    gguf("twice.gguf", **{"tokenizer.ggml.tokens": make_gguf.Typed("array", ("str", [*tokens[:300], EVIL, EVIL, *tokens[302:]]))})
    gguf("types.gguf", **{"general.name": 7, "qwen2.context_length": EVIL})
    gguf("template.gguf", template="{{ '" + EVIL.replace("\r", "") + "' }}{{ text }}")
    gguf("broken.gguf", template="{% " + EVIL)
    kvs, tensors = make_gguf.model(embd=64, heads=2, ff=64, layers=1)
    tensors[0].name = EVIL.encode()[:64].decode(errors="ignore")
    make_gguf.write(str(d / "tensor.gguf"), kvs, tensors)
    (d / "cut.gguf").write_bytes((d / "good.gguf").read_bytes()[:5000])
    pathlib.Path(os.fsdecode(os.fsencode(d) + b"/" + NAME[:80])).write_bytes((d / "good.gguf").read_bytes())
    (d / "echo.jinja").write_text("{{ text }}")
    (d / "raise.jinja").write_text("{{ raise_exception(text) }}")
    (d / "bad.jinja").write_text("{{ x." + EVIL)
    (d / "context.json").write_text(json.dumps({"text": EVIL}))
    (d / "bad.json").write_text('{"now": ' + json.dumps(EVIL) + "}")
    (d / "worse.json").write_text("{" + EVIL)
    (d / "text").write_bytes(EVIL_RAW * 20)
    return d


def tool(*args, words=True):
    return pytest.param(args, words, id=" ".join(args)[:60].encode("ascii", "backslashreplace").decode())


@pytest.mark.parametrize("args,words", [
    *[tool("inspect", f"{name}.gguf", *more) for more in (["-v"], ["--json"])
      for name in ("good", "pre", "model", "arch", "merges", "twice", "types", "tensor", "template")],
    tool("inspect", "good.gguf", words=False), tool("inspect", "cut.gguf", words=False),
    tool("inspect", os.fsdecode(NAME[:80])), tool("inspect", os.fsdecode(NAME[:80]), "--json"), tool("inspect", EVIL),
    tool("tokenize", "-m", EVIL, "text"), tool("tokenize", "-m", "good.gguf", EVIL), tool("tokenize", "-m", "pre.gguf", "text"),
    tool("render", "--chat-template-file", "echo.jinja", "context.json"),
    tool("render", "--chat-template-file", "raise.jinja", "context.json"),
    tool("render", "--chat-template-file", "bad.jinja", "context.json"),
    tool("render", "--chat-template-file", "echo.jinja", "bad.json"),
    tool("render", "--chat-template-file", "echo.jinja", "worse.json"),
    tool("render", "--chat-template", EVIL, "context.json"), tool("render", "-m", "template.gguf", "context.json"),
    tool("score", "-m", "good.gguf", "text", words=False), tool("score", "-m", "merges.gguf", "text"),
    tool("perplexity", "-m", "good.gguf", "-f", "text", "-c", "32", words=False), tool("perplexity", "-m", "good.gguf", "-f", EVIL),
    tool("perplexity", "-v", "-m", os.fsdecode(NAME[:80]), "-f", "text", "-c", "32"),
    tool("bench", "-m", "good.gguf", "-p", "8", "-n", "2", "-r", "1"),
    tool("bench", "-m", "good.gguf", "-p", "8", "-n", "2", "-r", "1", "-o", "json"), tool("bench", "-d", EVIL),
    tool("replay", EVIL), tool("replay", "text", words=False), tool("pull", EVIL), tool("pull", "https://" + EVIL), tool("models", EVIL),
    tool("models", "rm", EVIL),
    tool("-m", EVIL, "hi"), tool("-m", "good.gguf", "--prefill", EVIL, "-n", "2", "hi"),
    tool("-m", "good.gguf", "--prefill", EVIL, "-n", "2", "--json", "hi"),
    tool("-m", "good.gguf", "--prefill", EVIL, "-n", "2", "--lines"), tool("-m", "good.gguf", "-n", "4", "--logprobs", "3", "hi", words=False),
    tool("-m", "good.gguf", "-n", "4", "--stats", "-v", "hi", words=False), tool("-m", os.fsdecode(NAME[:80]), "-v", "-n", "1", "hi"),
    tool("-m", "good.gguf", "-f", EVIL), tool("-m", "good.gguf", "-sys", "@" + EVIL, "hi"), tool("-m", "good.gguf", "-sysf", EVIL, "hi"),
    tool("-m", "good.gguf", "--session", EVIL, "hi"), tool("-m", "broken.gguf", "hi"), tool("-m", "template.gguf", "-n", "2", "hi", words=False),
    tool("-m", "good.gguf", "--chat-template", EVIL, "hi"), tool("-m", "good.gguf", "--device", EVIL, "hi"),
    tool("-m", "good.gguf", "--dry-run", words=False), tool("--" + EVIL), tool("--temp", EVIL), tool("--samplers", EVIL, "hi"),
    tool("--complete", EVIL), tool("-l", EVIL, "hi"), tool(EVIL, EVIL), tool("--print-completion", EVIL), tool("-n", "1", "--offline", "-hf", EVIL, "hi"),
    tool("--help", words=False), tool("--version", words=False),
])
def test_no_command_lets_names_or_contents_drive_the_terminal(home, files, args, words):
    args = [a.encode("utf-8", "surrogateescape") for a in args]
    code, shown, _ = on_terminal(home, *args, input=b"hi\n" if b"--lines" in args else None, cwd=files)
    assert code >= 0, (code, shown)
    text = check(shown)
    assert not words or "owned" in text, text  # the attack was there


def json_lines(data):
    return [json.loads(line) for line in data.decode().splitlines()]


@pytest.mark.parametrize("args", [["inspect", "good.gguf", "--json"], ["-m", "good.gguf", "--prefill", EVIL, "-n", "2", "--json", "-s", "1", "hi"]])
def test_json_on_a_terminal_is_valid_and_means_the_same(home, files, args):
    code, shown, _ = on_terminal(home, *args, cwd=files, stderr=False)
    assert code == 0
    raw = subprocess.run([HOKKU, *args], env=home, cwd=files, capture_output=True, stdin=subprocess.DEVNULL).stdout
    on_screen, exact = json_lines(shown.replace(b"\r\n", b"\n")), json_lines(raw)
    for one in on_screen + exact:
        one.pop("timings", None)
    assert on_screen == exact
    assert "\u202e" in raw.decode() and b"\\u202e" in shown and b"\\udb40\\udc41" in shown


def test_pipes_and_files_get_the_exact_bytes(home, files, tmp_path):
    """Each stream is judged by itself: the other one being a terminal changes nothing."""
    context, template = str(files / "context.json"), str(files / "echo.jinja")
    exact = EVIL.encode()
    code, shown, out = on_terminal(home, "render", "--chat-template-file", template, context, stdout=False)
    assert (code, shown, out) == (0, b"", exact)
    with open(tmp_path / "out", "wb") as f:
        subprocess.run([HOKKU, "render", "--chat-template-file", template, context], env=home, stdout=f, check=True)
    assert (tmp_path / "out").read_bytes() == exact
    code, shown, err = on_terminal(home, "render", "--chat-template-file", str(files / "raise.jinja"), context, stderr=False)
    assert code == 1 and shown == b"" and exact.split(b"\r")[0] in err


def test_what_cannot_be_written_is_a_failure_as_ever(home, files):
    args = [HOKKU, "render", "--chat-template-file", str(files / "echo.jinja"), str(files / "context.json")]
    for command in (args, [HOKKU, "--help"], [HOKKU, "-m", str(files / "good.gguf"), "--dry-run"]):
        with open("/dev/full", "wb") as full:
            r = subprocess.run(command, env=home, stdout=full, stderr=subprocess.PIPE)
        assert r.returncode == 1 and b"standard output: cannot be written: No space left on device" in r.stderr
        r = subprocess.run(["bash", "-c", 'trap "" PIPE; "$@" | { exec 0<&-; sleep .2; }; exit ${PIPESTATUS[0]}', "-", *command], env=home,
                           capture_output=True)
        assert r.returncode in (0, 141) and r.stderr == b""  # 0: written before the reader had gone


def test_configuration_and_environment_cannot_drive_the_terminal(home, tmp_path):
    config = tmp_path / "config" / "hokku"
    config.mkdir(parents=True)
    for line in (EVIL, "temp " + EVIL, "think = " + EVIL):
        (config / "config").write_text(line)
        code, shown, _ = on_terminal(home, "hi")
        assert code == 2 and "owned" in check(shown)
    (config / "config").unlink()
    code, shown, _ = on_terminal({**home, "HOKKU_TEMP": EVIL}, "hi")
    assert code == 2 and "owned" in check(shown)
    code, shown, _ = on_terminal({**home, "HF_ENDPOINT": EVIL, "HF_HUB_DOWNLOAD_TIMEOUT": EVIL}, "pull", "a/b")
    assert code == 2 and "owned" in check(shown)
    code, shown, _ = on_terminal({**home, "HF_ENDPOINT": "https://" + EVIL}, "pull", "a/b")
    assert code != 0 and "owned" in check(shown)


def test_the_cache_of_models_cannot_drive_the_terminal(home, tmp_path):
    cache = tmp_path / "cache" / "hokku"
    for sub in (os.fsencode(cache) + b"/hub/" + NAME[:50] + b"/" + NAME[:50], os.fsencode(cache) + b"/url/" + NAME[:50]):
        os.makedirs(sub)
        for name in (b"m.gguf", NAME[:60] + b".gguf", b"half.gguf.part"):
            pathlib.Path(os.fsdecode(sub + b"/" + name)).write_bytes(b"GGUF")
        pathlib.Path(os.fsdecode(sub + b"/.hokku.json")).write_text(json.dumps({
            "url": "https://x/" + EVIL, "files": {n: {"sha256": "0" * 64, "size": 4} for n in ("m.gguf", EVIL + ".gguf")}}))
    for args in (["models"], ["models", "--json"], ["models", "rm", "x"], ["--offline", "-hf", "owned/owned", "hi"]):
        code, shown, _ = on_terminal(home, *args)
        assert "owned" in check(shown) or "-hf" in args, shown


# ------------------------------------------------------------------------------------------- the chat


@pytest.fixture
def sessions(home, tmp_path, files):
    """Sessions with hostile names and contents beside a good one."""
    d = tmp_path / "state" / "hokku" / "sessions"
    r = subprocess.run([HOKKU, "-m", str(files / "good.gguf"), "-n", "2", "--session", "good", EVIL], env=home, capture_output=True,
                       stdin=subprocess.DEVNULL)
    assert r.returncode == 0, r.stderr
    good = (d / "good.session").read_bytes()
    for name in (NAME[:60], b"$(id>PWNED)", b"a b\nc", b"go\x9bd", "go\u202ed".encode(), b"-x"):
        with open(os.fsencode(d) + b"/" + name + b".session", "wb") as f:
            f.write(good)
    (d / "text.session").write_bytes(EVIL_RAW)
    return d


def change_meta(source, target, **change):
    """A copy whose description says something else: as docs/session-format.md has it, with the right checksums."""
    target.write_bytes(source.read_bytes())
    session_format.redescribe(target, {**session_format.describe(source), **change})


def test_session_names_and_contents_cannot_drive_the_terminal(home, files, sessions):
    model = str(files / "good.gguf")
    code, shown, _ = on_terminal(home, "-m", model, "-n", "1", "--session", b"new\x9b2J", "hi")
    assert code == 0 and "new session new" in check(shown)
    code, shown, _ = on_terminal(home, "-m", model, "-n", "1", "--session", "new\u009b2J\u202e", "hi")
    assert code == 0 and "new session new" in check(shown)
    code, shown, _ = on_terminal(home, "-m", model, "-n", "1", "--session", "text", "hi")
    assert code == 1
    check(shown)
    check(on_terminal(home, "replay", "good")[1])
    check(on_terminal(home, "replay", "--json", "good")[1])
    # The device and the KV format of another machine are a session's words.
    change_meta(sessions / "good.session", sessions / "evil.session", kv_format=EVIL, device=EVIL)
    code, shown, _ = on_terminal(home, "-m", model, "-n", "1", "-ctk", "q8_0", "--session", "evil", "hi")
    assert "owned" in check(shown)
    check(on_terminal(home, "replay", "-m", model, "evil")[1])


def test_the_chat_cannot_drive_the_terminal(home, files, sessions):
    p = pexpect.spawn(HOKKU, ["-m", "good.gguf", "-n", "4", "--session", "good"], env=home, dimensions=(40, 100), timeout=30,
                      echo=False, cwd=str(files))
    p.delaybeforesend = None
    seen = b""

    def send(keys, until=rb"> (?=$)"):
        nonlocal seen
        p.send(keys)
        p.expect(until)
        seen += p.before + p.after
    p.expect(rb"good> ")
    seen += p.before + p.after
    for line in ("/sessions", "/show model", "/show template", "/context", "/why", "/stats", "/logprobs", "/load nobody", "/retry", "/show settings"):
        send(line + "\r", rb"good> (?=$)")
    for keys in (b"/load \t\t", b"/load go\t\t", b"/load own\t\t", b"/read \t\t", b"/read own\t\t"):
        send(keys + b"\x15/stats\r", rb"context \d+ of \d+\r\n.*good> (?=$)")
    p.sendeof()
    p.expect(pexpect.EOF)
    seen += p.before
    text = seen.decode()
    for attack in ("\x1b]0", "\x1b[2J", "\x1b[8m", "\x1b[38;5", "\u009b", "\u009d", "\u202e", "\u2066", "\u200b", "\U000e0041"):
        assert attack not in text, (attack, text)
