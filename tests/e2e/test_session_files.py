"""The file of a session: written whole or not at all, and what is read of one that is damaged, cut, old or hostile."""
import json
import random
import re
import resource
import signal
import struct
import subprocess
import time

import pytest
from conftest import HOKKU, wait_until
from session_format import describe, file, parts, records, redescribe, saved, state, version_1
from test_repl import chat, start_long_answer, tiny  # noqa: F401 (fixtures)
from test_repl_sessions import SAMPLED, ask, sessions  # noqa: F401 (fixture)


def damaged_copies(data):
    rng = random.Random(1)
    for n in [0, 1, 7, 8, 15, 16, 63, 64, 100, len(data) // 2, len(data) - 1]:
        yield f"cut to {n}", data[:n]
    for tag, _, _, at, payload in records(data):
        places = range(at, at + 36) if tag == "META" else [at + rng.randrange(36)]
        if tag != "KVCH" and payload:
            places = [*places, *(at + 36 + rng.randrange(len(payload)) for _ in range(12))]
        for i in places:
            yield f"bit flipped in byte {i} ({tag})", data[:i] + bytes([data[i] ^ 1 << rng.randrange(8)]) + data[i + 1:]
    for i in range(16):
        yield f"bit flipped in byte {i}", data[:i] + bytes([data[i] ^ 1 << rng.randrange(8)]) + data[i + 1:]


def test_no_damage_is_taken_for_a_session(hokku, chat, tiny, sessions):
    ask(hokku, tiny, "s", "one")
    path = sessions / "s.session"
    data = path.read_bytes()
    c = chat("-m", tiny, *SAMPLED)
    c.say("hello")
    for what, bad in damaged_copies(data):
        path.write_bytes(bad)
        out = c.say("/load s")
        assert re.search("damaged|begins as no session|format version|cannot be", out), (what, out)
    assert "hello" in c.say("/context")  # and what was there is still there
    r = hokku("-m", tiny, "--session", "s", "hi")
    assert r.returncode == 1 and r.stdout == b""
    path.write_bytes(data)
    assert "hokku:" not in c.say("/load s")


def test_a_damaged_kv_cache_costs_time_and_no_word(hokku, tiny, sessions):
    want = [ask(hokku, tiny, "w", p)["tokens"] for p in ("one", "two")]
    one = ask(hokku, tiny, "s", "one")
    path = sessions / "s.session"
    data = path.read_bytes()
    at = [at for tag, _, _, at, _ in records(data) if tag == "KVCH"][0]
    path.write_bytes(data[:at + 200] + bytes([data[at + 200] ^ 1]) + data[at + 201:])
    r = hokku("-m", tiny, *SAMPLED, "--session", "s", "--json", "two")
    j = json.loads(r.stdout)
    assert b"its KV cache is damaged" in r.stderr and j["cached_tokens"] == 0
    assert [one["tokens"], j["tokens"]] == want
    assert ask(hokku, tiny, "s", "three")["cached_tokens"] > 0  # what is saved after that is whole again


def test_killed_at_any_byte_of_a_save_the_state_before_or_after_is_there(hokku, tiny, sessions):
    """A save appends, then makes what it appended count with one slot: every beginning of that is tried, and every byte of the
    slot."""
    ask(hokku, tiny, "s", "one", "-n", 2)
    path = sessions / "s.session"
    before = path.read_bytes()
    ask(hokku, tiny, "s", "two", "-n", 2)
    after = path.read_bytes()
    assert after[64:len(before)] == before[64:]
    changed = [i for i in range(64) if before[i] != after[i]]
    assert changed and (max(changed) < 40 or min(changed) >= 40)  # one slot, not both
    steps = [before[:64] + after[64:n] for n in range(len(before), len(after) + 1, 97)]
    slot = range(min(changed), max(changed) + 1)
    steps += [after[:i] + before[i:64] + after[64:] for i in slot]
    for step in [*steps, after]:
        path.write_bytes(step)
        r = hokku("replay", "--json", "s")
        assert r.returncode == 0, r.stderr
        assert json.loads(r.stdout)["answers"] == (2 if step[:64] == after[:64] else 1)


def test_cut_at_any_byte_it_is_refused_or_an_older_state_and_said(hokku, chat, tiny, sessions):
    r = hokku("-m", tiny, "--no-kv", "-n", 2, "one")
    assert r.returncode == 2 and b"--no-kv is for what is saved, and nothing is" in r.stderr, r
    ask(hokku, tiny, "s", "one", "-n", 2, "--no-kv")
    path = sessions / "s.session"
    n_before = path.stat().st_size
    ask(hokku, tiny, "s", "two", "-n", 2, "--no-kv")
    data = path.read_bytes()
    for n in [*range(0, 80), *range(80, len(data), 41), n_before - 1, n_before, n_before + 1, len(data) - 1]:
        path.write_bytes(data[:n])
        r = hokku("-m", tiny, "--session", "s", "--no-kv", "-n", 1, "more")
        if n < n_before:
            assert r.returncode == 1 and r.stdout == b"" and b"damaged" in r.stderr, (n, r)
        else:
            assert r.returncode == 0 and b"not all there" in r.stderr, (n, r)
            assert describe(path)["turns"] == 2


def test_the_first_version_of_the_format_is_read_and_written_anew(hokku, tiny, sessions):
    want = [ask(hokku, tiny, "w", p)["tokens"] for p in ("one", "two")]
    assert ask(hokku, tiny, "s", "one")["tokens"] == want[0]
    path = sessions / "s.session"
    old = version_1(path.read_bytes())
    path.write_bytes(old)
    r = hokku("replay", "s")
    assert r.returncode == 0 and b"all agree" in r.stdout, r
    j = ask(hokku, tiny, "s", "two")
    assert j["tokens"] == want[1] and j["cached_tokens"] > 20
    assert describe(path)["turns"] == 2
    for i in [*range(0, 124, 5), *range(124, len(old), len(old) // 50)]:
        path.write_bytes(old[:i] + bytes([old[i] ^ 4]) + old[i + 1:])
        r = hokku("-m", tiny, "--session", "s", "hi")
        assert r.returncode == 1 and r.stdout == b"", i


def test_a_save_writes_what_is_new(hokku, tiny, sessions, home):
    """The bytes written for 20 tokens are the same behind a short conversation and behind a long one."""
    grew = []
    path = sessions / "s.session"
    for prompt in ("short", "word " * 900, "again"):
        ask(hokku, tiny, "s", prompt, "-c", 4096, "-n", 20)
        before = path.stat().st_size
        ask(hokku, tiny, "s", "next", "-c", 4096, "-n", 20)
        grew.append(path.stat().st_size - before)
    assert grew[1] < 1.5 * grew[0] and grew[2] < 1.5 * grew[0], grew
    assert path.stat().st_size > 20 * grew[0]


def test_the_file_is_written_anew_when_half_of_it_is_dead(chat, tiny, sessions):
    c = chat("-m", tiny, "--session", "s", "-n", 4, "-c", 4096)
    path = sessions / "s.session"
    c.say("word " * 300)
    c.say("/undo")
    sizes = []
    for i in range(12):
        c.say("word " * 300 + f"and {i}")
        c.say("/undo")
        saved(path, 0)
        sizes.append(path.stat().st_size)
    meta, _, messages, ids, kv = state(path.read_bytes())
    assert max(sizes) < 4 * sizes[0], sizes
    assert messages == [] and meta["turns"] == 0
    c.say("one")
    c.leave()
    assert [e for b, e, u, p in state(path.read_bytes())[4]] and describe(path)["turns"] == 1


def test_without_kv_the_text_is_saved_and_read_again(hokku, tiny, sessions):
    want = [ask(hokku, tiny, "w", p)["tokens"] for p in ("one", "two")]
    got = [ask(hokku, tiny, "s", "one", "--no-kv")["tokens"]]
    path = sessions / "s.session"
    assert path.stat().st_size < 20000 < (sessions / "w.session").stat().st_size
    r = hokku("-m", tiny, *SAMPLED, "--session", "s", "--json", "two")
    j = json.loads(r.stdout)
    assert [*got, j["tokens"]] == want and j["cached_tokens"] == 0 and r.stderr == b""
    assert state(path.read_bytes())[4]  # from now on with it
    ask(hokku, tiny, "s", "three", "--no-kv")
    assert not state(path.read_bytes())[4]


def test_nothing_but_sessions_is_left_behind(chat, hokku, tiny, sessions):
    c = chat("-m", tiny, *SAMPLED, "--session", "s")
    c.say("one")
    assert (sessions / ".s.lock").exists()
    # It is saved in the background; what a save leaves the next one takes away.
    wait_until(lambda: {p.name for p in sessions.iterdir()} == {".s.lock", "s.session"})
    c.kill()
    ask(hokku, tiny, "t", "one")
    assert sorted(p.name for p in sessions.iterdir()) == ["s.session", "t.session"]


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


def largest_file(chat, n_bytes):
    resource.prlimit(chat.at_work().pid, resource.RLIMIT_FSIZE, (n_bytes, resource.RLIM_INFINITY))


def test_the_chat_survives_a_save_that_fails(chat, tiny, sessions):
    c = chat("-m", tiny, *SAMPLED, "--session", "s")
    c.answer("one")
    saved(sessions / "s.session", 1)
    before = (sessions / "s.session").read_bytes()
    largest_file(c, len(before) + 100)
    out = c.say("two") + c.say("/save")  # which waits for a slow disk's answer
    assert "not saved" in out
    assert (sessions / "s.session").read_bytes() == before
    largest_file(c, resource.RLIM_INFINITY)
    assert "not saved" not in c.say("three")
    saved(sessions / "s.session", 3)


def test_a_session_whose_file_is_taken_away_is_written_again(chat, tiny, sessions):
    path = sessions / "s.session"
    c = chat("-m", tiny, *SAMPLED, "--session", "s")
    c.answer("one")
    saved(path, 1)
    path.unlink()
    assert "hokku: " not in c.say("two")
    now = saved(path, 2)
    assert now["kv_positions"] >= now["tokens"] - 1
    assert c.leave() == 0
    assert "2 turns" in chat("-m", tiny, *SAMPLED, "--session", "s").first


@pytest.mark.parametrize("how", ["renamed over it", "written into it"])
def test_what_another_program_put_in_its_place_is_not_overwritten(chat, hokku, tiny, sessions, how):
    path = sessions / "s.session"
    ask(hokku, tiny, "other", "something else")
    other = (sessions / "other.session").read_bytes()
    c = chat("-m", tiny, *SAMPLED, "--session", "s")
    c.answer("one")
    saved(path, 1)
    if how == "renamed over it":
        (sessions / "other.session").rename(path)
    else:
        path.write_bytes(other)
    assert "session s is not saved" in c.say("two") + c.say("/save")
    assert path.read_bytes() == other
    assert "(saved as t, " in c.say("/save t")
    assert c.leave() == 0
    assert path.read_bytes() == other and describe(sessions / "t.session")["turns"] == 2


LONG = "a message of some more words, " * 8


def test_where_the_disk_has_no_room_for_the_memory_the_text_is_saved(chat, hokku, tiny, sessions):
    c = chat("-m", tiny, *SAMPLED, "--session", "s")
    c.answer("one")
    saved(sessions / "s.session", 1)
    room = (sessions / "s.session").stat().st_size + 15000
    largest_file(c, room)
    out = c.say(LONG) + c.say("/save")
    assert out.count("hokku: ") == 1 and "File too large" in out and "the text alone of session s is saved" in out
    want = c.answer("two")
    assert "hokku: " not in c.say("three")
    now = saved(sessions / "s.session", 4)
    assert 0 < now["kv_positions"] < now["tokens"]  # what was there stays
    assert c.leave() == 0
    c = chat("-m", tiny, *SAMPLED, "--session", "s")
    said = c.first.replace("hokku: no NVIDIA GPU", "")
    assert "4 turns" in said and "hokku: " not in said
    largest_file(c, resource.RLIM_INFINITY)  # (a process that keeps the model has that of the chat before)
    c.say("/undo 2")
    assert c.answer("two").endswith(want)  # behind what is shown while it is read again

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (15000, 15000))

    r = hokku("-m", tiny, *SAMPLED, "--session", "t", LONG, preexec_fn=limit)  # without a terminal, too
    assert r.returncode == 0 and r.stdout and b"the text alone of session t is saved" in r.stderr, r
    assert describe(sessions / "t.session")["turns"] == 1


def test_a_chat_ends_with_1_when_the_session_asked_for_is_not_saved(chat, tiny, sessions):
    for name, status in ((["--session", "s"], 1), ([], 0)):
        c = chat("-m", tiny, *SAMPLED, *name)
        largest_file(c, resource.RLIM_INFINITY)  # (a process that keeps the model has that of the chat before)
        c.answer("one")
        largest_file(c, 100)
        n = 0
        while "not saved" not in c.say("two"):  # it comes behind the next turn where the disk is slow
            n += 1
            assert n < 9
        assert c.leave() == status
        assert c.p.before.count("not saved") == 1


def test_kill_at_any_moment_loses_at_most_the_unfinished_turn(hokku, tiny, sessions, home):
    rng = random.Random(7)
    survived = 0
    for attempt in range(12):
        name = f"k{attempt}"
        p = subprocess.Popen([HOKKU, "-m", tiny, "-n", "6", "-s", "1", "--session", name, "--turns", "--json", "-c", "4096"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=home)
        p.stdin.write("".join(f"turn {i}\n" for i in range(300)).encode())
        p.stdin.flush()
        answered = rng.randrange(7)
        for _ in range(answered):
            p.stdout.readline()
        time.sleep(rng.random() * 0.05)
        p.kill()
        answered += p.stdout.read().count(b"\n")
        p.wait()
        path = sessions / f"{name}.session"
        if not path.exists():
            assert answered <= 1
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
    assert int(re.search(r"([\d,]+) of 30,000", c.say("/context")).group(1).replace(",", "")) > 2
    assert "hello" in c.say("/context")


@pytest.mark.parametrize("generations", [(1, 2), (3, 2), (2, 3), (7, 4), (5, 5), (0, 1), (2**64 - 1, 1), (2**64 - 3, 2**64 - 2)])
def test_the_newest_slot_counts_and_is_gone_on_with_wherever_it_is(hokku, tiny, sessions, generations):
    ask(hokku, tiny, "s", "one")
    path = sessions / "s.session"
    path.write_bytes(file(parts(path.read_bytes()), generations))
    for turns in (2, 3, 4):
        got = ask(hokku, tiny, "s", "two")
        assert got["cached_tokens"] > 20 * (turns - 1)
        assert describe(path)["turns"] == turns
        assert b"changed it" not in hokku("sessions").stderr


def test_impossible_values_of_the_description_are_refused_with_what_was_expected(hokku, tiny, sessions):
    ask(hokku, tiny, "s", "one")
    path = sessions / "s.session"
    meta = describe(path)
    number, types = "a whole number from 1 to 2147483647", '"f16" or "q8_0"'
    bad = [("n_ctx", 1 << 40, number), ("n_ctx", -1, number), ("n_ctx", 0, number), ("n_ctx", "x", number), ("n_ctx", 64.0, number),
           ("n_ctx", None, number), ("cache_type_k", "q3", types), ("cache_type_v", 8, types), ("now", "x", "a whole number"),
           ("exact", "y", "true or false"), ("plain", 1, "true or false"), ("dropped", -1, "a whole number of at least 0"),
           ("first_kept", [], "a whole number of at least 0"), ("template_crc", 1 << 32, "a whole number from 0 to 4294967295"),
           ("settings", "x", "an object"), ("model", 1, "a text"), ("kv_format", {"a": 1}, "a text")]
    for key, value, expected in bad:
        redescribe(path, {**meta, key: value})
        written = path.read_bytes()
        found = json.dumps(value, separators=(",", ":"))
        said = f"hokku: {path}: the session is damaged: {key} of its description is {found}, expected {expected}; restore the file".encode()
        for args in (["replay", "s"], ["-m", tiny, "--session", "s", "hi"], ["--session", "s", "hi"]):
            r = hokku(*args)
            assert r.returncode == 1 and r.stdout == b"" and said in r.stderr, (key, value, args, r)
        assert path.read_bytes() == written
    for left_out in ("n_ctx", "cache_type_k", "cache_type_v", "settings", "saved_at", "exact", "system_merged", "tokens"):  # of an older program
        redescribe(path, {k: v for k, v in meta.items() if k != left_out})
        assert hokku("replay", "s").returncode == 0


HOSTILE = [("MSGS", lambda n: b"\xff" * n), ("MSGS", lambda n: bytes(n)), ("TIME", lambda n: b"\xff" * n),
           ("META", lambda n: b"[" * n), ("META", lambda n: b"{}" + b" " * (n - 2)), ("TIME", lambda n: b"\x01" * (n - 1)),
           ("TMPL", lambda n: b"{" * (17 << 20))]


@pytest.mark.parametrize("tag,fill", HOSTILE)
def test_hostile_records_with_right_checksums_are_refused(hokku, tiny, sessions, tag, fill):
    ask(hokku, tiny, "s", "one")
    path = sessions / "s.session"
    path.write_bytes(file((t, b, e, fill(len(p)) if t == tag else p) for t, b, e, p in parts(path.read_bytes())))
    r = hokku("-m", tiny, "--session", "s", "hi")
    assert r.returncode == 1 and r.stderr.startswith(b"hokku: ") and r.stdout == b""


@pytest.mark.parametrize("fill", [b"\xff", b"\xff\x7b"])  # no numbers, and such as become infinite
def test_a_hostile_kv_cache_with_right_checksums_costs_time_and_no_word(hokku, tiny, sessions, fill):
    want = [ask(hokku, tiny, "w", p)["tokens"] for p in ("one", "two", "three")]
    ask(hokku, tiny, "s", "one")
    path = sessions / "s.session"
    path.write_bytes(file((t, b, e, (fill * len(p))[:len(p)] if t == "KVCH" else p) for t, b, e, p in parts(path.read_bytes())))
    r = hokku("-m", tiny, *SAMPLED, "--session", "s", "--json", "two")
    j = json.loads(r.stdout)
    assert b"no token comes of the session's memory: it is read again" in r.stderr and j["cached_tokens"] == 0
    assert [j["tokens"], ask(hokku, tiny, "s", "three")["tokens"]] == want[1:]


@pytest.mark.parametrize("tag", ["MSGS", "TIME", "KVCH"])
def test_records_in_impossible_places_are_refused(hokku, tiny, sessions, tag):
    ask(hokku, tiny, "s", "one")
    path = sessions / "s.session"
    good = parts(path.read_bytes())
    for begin, end in ((1 << 40, (1 << 40) + 1), (5, 3), (0, 1 << 60), (2**64 - 1, 2**64 - 1)):
        path.write_bytes(file((t, begin, end, p) if t == tag else (t, b, e, p) for t, b, e, p in good))
        r = hokku("-m", tiny, "--session", "s", "-n", 1, "hi")
        if r.returncode == 0:
            assert tag == "KVCH" and b"cannot be restored" in r.stderr, (begin, end, r)
        else:
            assert r.returncode == 1 and b"damaged" in r.stderr and r.stdout == b"", (begin, end, r)


def test_hostile_numbers_in_the_messages_never_crash(hokku, tiny, sessions):
    ask(hokku, tiny, "s", "one", "-n", "3")
    path = sessions / "s.session"
    good = parts(path.read_bytes())
    rng = random.Random(3)
    for _ in range(40):
        value = rng.choice([0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000, rng.randrange(1 << 32)])
        bad = []
        for t, b, e, p in good:
            if t == "MSGS":
                at = 4 * rng.randrange(len(p) // 4)
                p = p[:at] + struct.pack("<I", value) + p[at + 4:]
            bad.append((t, b, e, p))
        path.write_bytes(file(bad))
        r = hokku("replay", "-q", "s")
        assert r.returncode in (0, 1, 5), r
