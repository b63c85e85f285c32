"""Sessions: named, saved at every turn, resumed exactly, never damaged, never misread."""
import json
import os
import pathlib
import random
import re
import resource
import signal
import stat
import struct
import subprocess
import time
import zlib

import pexpect
import pytest
from conftest import HOKKU, model
from test_repl import chat, start_long_answer, tiny  # noqa: F401 (fixtures)

SAMPLED = ["-n", "24", "-s", "5", "--temp", "1.1"]


@pytest.fixture
def sessions(home):
    return pathlib.Path(home["XDG_STATE_HOME"]) / "hokku" / "sessions"


def ask(hokku, tiny, name, prompt, *more, **kw):
    r = hokku("-m", tiny, *SAMPLED, "--session", name, "--json", *more, prompt, **kw)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def test_a_resumed_session_goes_on_as_the_uninterrupted_one(hokku, tiny):
    whole = hokku("-m", tiny, *SAMPLED, "--json", "--turns", input="one\ntwo words\nthree\n")
    want = [json.loads(l)["tokens"] for l in whole.stdout.splitlines()]
    got = [ask(hokku, tiny, "x", p) for p in ("one", "two words", "three")]
    assert [g["tokens"] for g in got] == want
    assert got[1]["cached_tokens"] >= 24 and got[2]["cached_tokens"] > got[1]["cached_tokens"]


def test_the_chat_resumes_what_the_chat_saved(chat, tiny):
    args = ["-m", tiny, *SAMPLED]
    whole = chat(*args)
    want = [whole.answer("one"), whole.answer("two"), whole.answer("/retry 9"), whole.answer("/continue")]
    got = []
    for line in ("one", "two", "/retry 9", "/continue"):
        c = chat(*(args if not got else ["-m", tiny]), "--session", "s")  # settings are in the file
        got.append(c.answer(line))
        assert c.leave() == 0
    assert got == want


def test_settings_and_system_prompt_come_back_and_the_command_line_wins(chat, tiny):
    c = chat("-m", tiny, "--session", "s", "-n", 5)
    c.say("/set top-k 17")
    c.say("/set overflow drop")
    c.say("/system You are terse.")
    c.say("hello")
    c.leave()
    c = chat("-m", tiny, "--session", "s", "--top-k", 3)
    settings = c.say("/set")
    assert re.search(r"top-k +3\b", settings) and re.search(r"overflow +drop", settings)
    assert re.search(r"n-predict +5\b", settings)
    assert "You are terse." in c.say("/show system")
    assert "hello" in c.say("/context")


def test_save_load_fork_and_list(chat, tiny, sessions):
    c = chat("-m", tiny, *SAMPLED)
    assert "no saved sessions" in c.say("/sessions")
    first = c.answer("one")
    assert "saved as a" in c.say("/save a")
    assert stat.S_IMODE(os.stat(sessions / "a.session").st_mode) == 0o600
    assert "now in b; a stays" in c.say("/fork b")
    c.say("two")
    out = c.say("/sessions")
    assert re.search(r"a +.*1 turn,", out) and re.search(r"b +.*2 turns,.*here", out)
    assert "already a session a" in c.say("/save a")
    c.say("/load a")
    assert "two" not in c.say("/context") and "one" in c.say("/context")
    assert "no session nope" in c.say("/load nope")
    assert "expected 1 to 100 letters" in c.say("/save ../../etc/passwd")
    c.say("/clear")
    c.say("three")
    c.say("/load a")
    assert "one" in c.say("/context")  # /clear did not touch the saved one


def test_undo_is_saved_too(chat, hokku, tiny):
    c = chat("-m", tiny, *SAMPLED, "--session", "s")
    one = c.answer("one")
    two = c.answer("two")
    c.say("/undo")
    c.leave()
    c = chat("-m", tiny, *SAMPLED, "--session", "s")
    assert c.answer("two") == two


def test_a_second_writer_is_kept_out(chat, hokku, tiny):
    c = chat("-m", tiny, *SAMPLED, "--session", "s")
    r = hokku("-m", tiny, *SAMPLED, "--session", "s", "hi")
    assert r.returncode == 1 and b"in use by another hokku" in r.stderr
    c.leave()
    assert hokku("-m", tiny, *SAMPLED, "--session", "s", "hi").returncode == 0


def test_another_model_is_refused(hokku, tiny, sessions):
    ask(hokku, tiny, "s", "one")
    before = (sessions / "s.session").read_bytes()
    r = hokku("-m", model("qwen3-tiny-q4_k_m"), "--session", "s", "hi")
    assert r.returncode == 1 and b"made with the model" in r.stderr
    assert (sessions / "s.session").read_bytes() == before


def test_another_cache_type_is_read_again(hokku, tiny):
    ask(hokku, tiny, "b", "one", "-ctk", "q8_0")
    r = hokku("-m", tiny, *SAMPLED, "--session", "b", "--json", "two", stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    j = json.loads(r.stdout)
    assert b"cannot be restored" in r.stderr and b"KV cache is of" in r.stderr
    assert j["cached_tokens"] == 0 and len(j["tokens"]) > 0


def describe(path):
    """The META section, read as docs/session-format.md says."""
    data = path.read_bytes()
    assert data[:8] == b"HOKKUSES"
    version, n, size = struct.unpack_from("<IIQ", data, 8)
    assert version == 1 and size == len(data)
    assert struct.unpack_from("<I", data, 24 + 24 * n)[0] == zlib.crc32(data[:24 + 24 * n])
    for i in range(n):
        tag, crc, offset, length = struct.unpack_from("<4sIQQ", data, 24 + 24 * i)
        assert crc == zlib.crc32(data[offset:offset + length])
        if tag == b"META":
            return json.loads(data[offset:offset + length])


def damaged_copies(data):
    rng = random.Random(1)
    for n in [0, 1, 7, 8, 15, 16, 100, 123, 124, len(data) // 2, len(data) - 1]:
        yield f"cut to {n}", data[:n]
    yield "longer", data + b"x"
    places = list(range(0, 124, 3)) + [rng.randrange(124, len(data)) for _ in range(60)]
    for at in places:
        yield f"bit flipped in byte {at}", data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1:]


def test_no_damage_is_taken_for_a_session(hokku, chat, tiny, sessions):
    ask(hokku, tiny, "s", "one")
    path = sessions / "s.session"
    data = path.read_bytes()
    c = chat("-m", tiny, *SAMPLED)
    c.say("hello")
    for what, bad in damaged_copies(data):
        path.write_bytes(bad)
        out = c.say("/load s")
        assert re.search("damaged|not a session|format version|cannot be", out), (what, out)
    assert "hello" in c.say("/context")  # and what was there is still there
    r = hokku("-m", tiny, "--session", "s", "hi")
    assert r.returncode == 1 and r.stdout == b""
    path.write_bytes(data)
    assert "hokku:" not in c.say("/load s")


def test_a_full_disk_leaves_the_old_session_and_says_so(hokku, tiny, sessions, home):
    ask(hokku, tiny, "s", "one")
    path = sessions / "s.session"
    before = path.read_bytes()

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

    r = hokku("-m", tiny, *SAMPLED, "--session", "s", "two", preexec_fn=limit)
    assert r.returncode == 1 and b"not saved" in r.stderr and b"File too large" in r.stderr
    assert r.stdout  # the answer was given all the same
    assert path.read_bytes() == before
    assert [p.name for p in sessions.iterdir() if p.name.endswith(".tmp")] == []


def test_the_chat_survives_a_save_that_fails(chat, tiny, sessions):
    c = chat("-m", tiny, *SAMPLED, "--session", "s")
    one = c.answer("one")
    before = (sessions / "s.session").read_bytes()
    away = sessions.with_name("away")
    os.rename(sessions, away)  # the temporary file cannot be made
    out = c.say("two")
    assert "not saved" in out
    os.rename(away, sessions)
    assert (sessions / "s.session").read_bytes() == before
    assert "not saved" not in c.say("three")


def test_kill_at_any_moment_loses_at_most_the_unfinished_turn(hokku, tiny, sessions, home):
    rng = random.Random(7)
    survived = 0
    for attempt in range(12):
        name = f"k{attempt}"
        p = subprocess.Popen([HOKKU, "-m", tiny, "-n", "6", "-s", "1", "--session", name, "--turns", "--json", "-c", "4096"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=home)
        p.stdin.write("".join(f"turn {i}\n" for i in range(300)).encode())
        p.stdin.flush()
        time.sleep(0.05 + rng.random() * 0.4)
        p.kill()
        answered = p.stdout.read().count(b"\n")
        p.wait()
        path = sessions / f"{name}.session"
        if not path.exists():
            continue
        turns = describe(path)["turns"]
        r = hokku("-m", tiny, "-n", 2, "--session", name, "and now")
        assert r.returncode == 0, r.stderr
        # An answer is shown before it is saved: one may be lost.
        assert answered - 1 <= turns <= answered + 1
        assert describe(path)["turns"] == turns + 1
        survived += 1
    assert survived > 0


def test_sigterm_while_answering_saves_what_there_is(chat, tiny, sessions):
    c = chat("-m", tiny, "-c", 30000, "--ignore-eos", "-n", 25000, "-s", 1, "--session", "s")
    start_long_answer(c)
    time.sleep(0.5)
    c.p.kill(signal.SIGTERM)
    c.p.wait()
    assert c.p.signalstatus == signal.SIGTERM
    c = chat("-m", tiny, "-c", 30000, "--session", "s")
    assert int(re.search(r"(\d+) of 30000", c.say("/context")).group(1)) > 2
    assert "hello" in c.say("/context")


def section(data, want):
    for i in range(4):
        tag, crc, offset, length = struct.unpack_from("<4sIQQ", data, 24 + 24 * i)
        if tag == want:
            return i, offset, length


def resealed(data, tag):
    """The checksums made right again after a change inside a section."""
    data = bytearray(data)
    i, offset, length = section(data, tag)
    struct.pack_into("<I", data, 24 + 24 * i + 4, zlib.crc32(data[offset:offset + length]))
    struct.pack_into("<I", data, 24 + 24 * 4, zlib.crc32(data[:24 + 24 * 4]))
    return bytes(data)


def test_replay_agrees_with_the_recording(hokku, chat, tiny, sessions):
    c = chat("-m", tiny, *SAMPLED, "--session", "s", "--overflow", "shift", "-c", "128")
    for line in ("/system Be kind.", "one", "two", "/retry 77", "/set temp 0.5", "/continue", "three and some more words"):
        c.say(line)
    c.leave()
    r = hokku("replay", sessions / "s.session")
    assert r.returncode == 0 and b"all agree" in r.stdout and b"4 answers" in r.stdout, r
    assert json.loads(hokku("replay", "--json", "s").stdout)["agree"] is True


def test_replay_names_the_first_token_that_differs(hokku, tiny, sessions):
    tokens = ask(hokku, tiny, "s", "one")["tokens"]
    path = sessions / "s.session"
    data = path.read_bytes()
    ids = struct.pack(f"<{len(tokens)}i", *tokens)
    _, offset, length = section(data, b"MSGS")
    at = data.index(ids, offset, offset + length) + 4 * 10
    other = (tokens[10] + 1) % 1000
    path.write_bytes(resealed(data[:at] + struct.pack("<i", other) + data[at + 4:], b"MSGS"))
    r = hokku("replay", "s")
    assert r.returncode == 1
    assert re.search(rf"turn 1, token 11 of \d+ .*recorded {other} .*now {tokens[10]} ".encode(), r.stdout), r.stdout


def test_replay_says_when_the_ground_has_changed(hokku, chat, tiny):
    c = chat("-m", tiny, *SAMPLED, "--session", "s")
    c.say("one")
    c.say("/system Something else.")
    c.say("two")
    c.leave()
    r = hokku("replay", "s")
    assert r.returncode == 0 and b"1 answer not compared" in r.stdout, r


HOSTILE = [("MSGS", lambda n: b"\xff" * n), ("MSGS", lambda n: bytes(n)), ("TIME", lambda n: b"\xff" * n),
           ("META", lambda n: b"[" * n), ("META", lambda n: b"{}" + b" " * (n - 2))]


@pytest.mark.parametrize("tag,fill", HOSTILE)
def test_hostile_sections_with_right_checksums_are_refused(hokku, tiny, sessions, tag, fill):
    ask(hokku, tiny, "s", "one")
    path = sessions / "s.session"
    data = path.read_bytes()
    _, offset, length = section(data, tag.encode())
    path.write_bytes(resealed(data[:offset] + fill(length) + data[offset + length:], tag.encode()))
    r = hokku("-m", tiny, "--session", "s", "hi")
    assert r.returncode == 1 and r.stderr.startswith(b"hokku: ") and r.stdout == b""


def test_hostile_numbers_in_the_messages_never_crash(hokku, tiny, sessions):
    ask(hokku, tiny, "s", "one", "-n", "3")
    path = sessions / "s.session"
    data = path.read_bytes()
    _, offset, length = section(data, b"MSGS")
    rng = random.Random(3)
    for _ in range(40):
        at = offset + 4 * rng.randrange(length // 4)
        value = rng.choice([0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000, rng.randrange(1 << 32)])
        path.write_bytes(resealed(data[:at] + struct.pack("<I", value) + data[at + 4:], b"MSGS"))
        r = hokku("replay", "-q", "s")
        assert r.returncode in (0, 1, 5), r
