"""No conversation is lost: chats without a name are kept, what is replaced comes back, a base is never changed."""
import contextlib
import fcntl
import json
import os
import re
import signal
import stat
import time

import pytest
from conftest import model, wait_until
from session_format import describe, saved, state
from test_places import shim  # noqa: F401 (fixture)
from test_repl import chat, start_long_answer, tiny  # noqa: F401 (fixtures)
from test_repl_sessions import SAMPLED, ask, sessions  # noqa: F401 (fixtures)


def kept(sessions):
    return sorted(sessions.glob("chat-*.session"))


# ------------------------------------------------------------------------------------------- --base


def test_each_line_begins_with_the_base_which_never_changes(hokku, tiny, sessions):
    ask(hokku, tiny, "doc", "a long document")
    path = sessions / "doc.session"
    before = path.read_bytes()
    one = json.loads(hokku("-m", tiny, *SAMPLED, "--base", "doc", "--json", "what is one").stdout)
    r = hokku("-m", tiny, *SAMPLED, "--base", "doc", "--lines", "--json", input="what is two\nwhat is one\nwhat is one\n")
    lines = [json.loads(l) for l in r.stdout.splitlines()]
    assert r.returncode == 0 and [l["tokens"] for l in lines[1:]] == [one["tokens"]] * 2
    assert one["prompt_tokens"] > 30 and all(l["cached_tokens"] >= 24 for l in [one, *lines])  # its KV is shared
    assert path.read_bytes() == before and [p.name for p in sessions.iterdir()] == ["doc.session"]
    # as a file, with --turns, with another limit of tokens
    turns = hokku("-m", tiny, *SAMPLED, "--base", path, "--turns", "--json", input="what is one\nand\n")
    got = [json.loads(l) for l in turns.stdout.splitlines()]
    assert got[0]["tokens"] == one["tokens"] and got[1]["cached_tokens"] > one["prompt_tokens"]
    assert path.read_bytes() == before


def test_a_chat_that_begins_with_a_base_is_one_of_its_own(hokku, chat, tiny, sessions):
    ask(hokku, tiny, "doc", "a long document")
    before = (sessions / "doc.session").read_bytes()
    c = chat("-m", tiny, "--base", "doc", *SAMPLED)
    assert "session doc: 1 turn" in c.first and "> a long document" in c.first
    c.say("more")
    assert "2" in c.say("/context")
    c.leave()
    assert (sessions / "doc.session").read_bytes() == before
    assert describe(kept(sessions)[0])["turns"] == 2


@pytest.mark.parametrize("args,says", [
    (["--session", "s", "--lines"], b"--session and --lines cannot be combined: each line is a conversation of its own; --base NAME"),
    (["--continue", "--lines"], b"--continue and --lines cannot"),
    (["--lines", "-f", "x"], b"-f and --lines cannot be combined: the lines are those of standard input: < FILE"),
    (["-f", "x", "--turns"], b"-f and --turns cannot be combined: the lines are those of standard input: < FILE"),
    (["-st", "--lines"], b"-st and --lines cannot be combined: every line has its answer"), (["--turns", "-st"], b"-st and --turns cannot be combined: every line has"),
    (["--session", "s", "--base", "t"], b"--session and --base cannot be combined: expected one of them"),
    (["--base", "nope", "hi"], b"there is no session nope")])
def test_pairs_that_mean_nothing_are_refused_by_name(hokku, tiny, args, says):
    r = hokku("-m", tiny, *args, input="one\n")
    assert r.returncode == (1 if "nope" in args else 2) and says in r.stderr and r.stdout == b"", r


def test_outside_a_chat_a_full_context_names_options(hokku, stories):
    args = ["-m", stories, "--session", "sm"]
    assert hokku(*args, "-n", 20, "--ignore-eos", "hi").returncode == 0
    r = hokku(*args, "-c", 20, "hi")
    assert r.returncode == 5 and b"; a larger -c, --overflow drop (forgets the oldest turns) or --overflow shift would make room" in r.stderr, r
    r = hokku(*args, "-c", 20, "word " * 100)  # which no older turn's place would be enough for
    found = re.search(rb"takes (\d+) tokens without the turns before it and the context holds 20: (\d+) too many with one for an answer; shorten it", r.stderr)
    assert r.returncode == 5 and found and int(found[1]) + 1 - 20 == int(found[2]) and b"overflow" not in r.stderr, r
    dropped = hokku(*args, "-c", 20, "--overflow", "drop", "word " * 100)
    assert dropped.returncode == 5 and b"takes %s tokens" % found[1] in dropped.stderr, dropped
    assert b"/" not in r.stderr.replace(b"\n", b"")


def test_a_session_that_is_protected_from_being_written_is_not_gone_on_with(chat, hokku, tiny, sessions):
    args = ["-m", tiny, "-n", 3]
    path = sessions / "a.session"
    assert hokku(*args, "--session", "a", "hi").returncode == 0
    path.chmod(0o400)
    before = path.read_bytes()
    r = hokku(*args, "--session", "a", "and?")
    assert r.returncode == 1 and r.stdout == b"" and f"{path}: its mode 0400 keeps it as it is: chmod u+w".encode() in r.stderr, r
    assert "its mode 0400 keeps it as it is" in chat(*args).say("/load a")
    for reads in ((*args, "--base", "a", "and?"), ("replay", "a"), ("sessions", "export", "a", "-")):
        assert hokku(*reads).returncode == 0
    assert path.read_bytes() == before and stat.S_IMODE(path.stat().st_mode) == 0o400


def test_once_the_context_is_full_most_turns_read_only_what_is_new(hokku):
    """What stays when turns are dropped is read again: however short the answers, that must not be at every turn."""
    r = hokku("-c", 256, "--turns", "--json", "--overflow", "drop", "-n", 2, "-s", 1, input="".join(f"hi {i}\n" for i in range(60)))
    answers = [json.loads(line) for line in r.stdout.splitlines()]
    again = [a for a in answers[1:] if a["cached_tokens"] < a["prompt_tokens"] / 4]
    assert r.returncode == 0 and len(answers) == 60 and r.stderr.count(b"dropped the oldest") == len(again)
    assert 1 < len(again) < 20 and all(a["prompt_tokens"] <= 256 - 256 // 4 for a in again)


# ------------------------------------------------------------------------------------------- --continue


def test_a_chat_without_a_name_is_kept_and_gone_on_with(chat, hokku, tiny, sessions):
    c = chat("-m", tiny, *SAMPLED)
    whole = [c.answer("one"), c.answer("two")]
    c.leave()
    name, = kept(sessions)
    assert stat.S_IMODE(os.stat(name).st_mode) == 0o600 and state(name.read_bytes())[4] == []  # the text alone
    d = chat("--continue", *SAMPLED)  # with its own model
    assert "2 turns" in d.first and d.first.rstrip().split("\n")[-1] != ""
    assert whole[1].strip().split("\n")[0][:20] in d.first
    three = re.sub(r"^(reading \d+ of \d+ tokens( · \d+ s left)?)*", "", d.answer("three"))
    d.leave()
    e = chat("-m", tiny, *SAMPLED, "--no-history")
    assert [e.answer("one"), e.answer("two"), e.answer("three")] == [*whole, three]
    e.leave()
    assert kept(sessions) == [name] and describe(name)["turns"] == 3
    r = hokku("--continue", *SAMPLED, "four")  # also from a script
    assert r.returncode == 0 and describe(name)["turns"] == 4


def test_of_chats_that_begin_in_the_same_second_each_is_kept(chat, tiny, sessions):
    sessions.mkdir(parents=True)
    with contextlib.ExitStack() as held:  # the names of a minute, as other chats would hold them
        for t in range(60):
            name = time.strftime("chat-%Y%m%d-%H%M%S", time.localtime(time.time() + t))
            fcntl.flock(held.enter_context(open(sessions / f".{name}.lock", "w")), fcntl.LOCK_EX)
        c = chat("-m", tiny, *SAMPLED)
        c.say("one")
        assert c.leave() == 0
        name, = kept(sessions)
        assert name.stem.endswith("-2") and describe(name)["turns"] == 1


def test_why_the_last_chat_cannot_be_gone_on_with(chat, hokku, tiny, stories):
    c = chat("-m", tiny, *SAMPLED)
    c.say("one")
    r = hokku("--continue", "two")
    assert r.returncode == 1 and re.search(rb"--continue: the last chat .*: session chat-\S+ is in use by another hokku: leave it there first, or choose another$", r.stderr), r
    c.leave()
    r = hokku("--continue", "-m", stories, "two")
    assert r.returncode == 1 and b"--continue: the last chat" in r.stderr and b"open it with that model, or choose another session" in r.stderr, r


@pytest.mark.parametrize("sig", [signal.SIGHUP, signal.SIGTERM, signal.SIGKILL, "closed"])
def test_however_it_ends_it_is_there(chat, tiny, sessions, sig):
    c = chat("-m", tiny, *SAMPLED)
    c.say("one")
    if sig == signal.SIGKILL:
        saved(wait_until(lambda: kept(sessions))[0], 1)
    c.p.send("two")
    time.sleep(0.3)
    if sig == "closed":
        c.p.ptyproc.fileobj.close()
        c.p.ptyproc.wait()
    elif sig == signal.SIGKILL:
        c.kill()
    else:
        c.p.kill(sig)
        c.p.wait()
    d = chat("--continue", *SAMPLED)
    assert "1 turn" in d.first
    d.leave()


def test_a_half_answer_is_there_after_sighup(chat, tiny, sessions):
    c = chat("-m", tiny, "-c", 30000, "--ignore-eos", "-n", 25000, "-s", 1)
    start_long_answer(c)
    c.p.kill(signal.SIGHUP)
    c.p.wait()
    assert describe(kept(sessions)[0])["tokens"] > 10


def test_the_twenty_latest_are_kept(chat, hokku, tiny, sessions):
    ask(hokku, tiny, "named", "one", "-n", 2)
    data = (sessions / "named.session").read_bytes()
    for i in range(25):
        p = sessions / f"chat-20200101-0000{i:02}.session"
        p.write_bytes(data)
        os.chmod(p, 0o600)
    for _ in range(2):  # one in which nothing is said takes nobody's place
        c = chat("-m", tiny, "-n", 2)
        c.say("/clear")
        c.leave()
    assert len(kept(sessions)) == 25
    c = chat("-m", tiny, "-n", 2)
    c.say("hi")
    c.leave()
    names = [p.name for p in kept(sessions)]
    assert len(names) == 20 and names[0] == "chat-20200101-000006.session"
    assert (sessions / "named.session").exists()
    r = hokku("-m", tiny, "--session", "chat-20990101-000000", "hi")
    assert r.returncode == 2 and b"a name that chats without one have" in r.stderr


def test_nothing_said_and_no_history_keep_nothing(chat, tiny, sessions):
    chat("-m", tiny).leave()
    c = chat("-m", tiny, "--no-history", "-n", 2)
    c.say("hi")
    c.leave()
    assert not sessions.exists() or list(sessions.iterdir()) == []


def test_a_chat_that_was_taken_back_is_not_the_last_one(chat, tiny, sessions):
    c = chat("-m", tiny, *SAMPLED)
    c.say("something to go on with")
    c.leave()
    first = kept(sessions)
    c = chat("-m", tiny, *SAMPLED)
    c.say("a mistake")
    c.say("/undo")
    c.leave()
    assert kept(sessions) == first
    assert "something to go on with" in chat("-m", tiny, *SAMPLED, "--continue").first


def test_continue_without_a_chat_says_so(hokku, tiny):
    r = hokku("-m", tiny, "--continue", "hi")
    assert r.returncode == 1 and b"--continue: found no chat in" in r.stderr


def test_save_gives_an_unnamed_chat_its_name(chat, tiny, sessions):
    c = chat("-m", tiny, *SAMPLED)
    c.say("one")
    wait_until(lambda: len(kept(sessions)) == 1)
    c.say("/save work")
    assert kept(sessions) == [] and (sessions / "work.session").exists()
    c.say("two")
    c.leave()
    assert describe(sessions / "work.session")["turns"] == 2
    assert sorted(p.name for p in sessions.iterdir()) == ["work.session"]


# ------------------------------------------------------------------------------------------- /undo


def turns(c):
    return re.findall(r"^ +(\d+) +\d+  (.*)$", c.say("/context"), re.M)


def test_an_edit_is_taken_back_with_the_turns_it_replaced(chat, tiny):
    c = chat("-m", tiny, "-n", 6, "-s", 5, "-c", 4096)
    for word in ("one", "two", "three"):
        c.say(word)
    before = turns(c)
    assert [t for _, t in before] == ["one", "two", "three"]
    c.p.send("/edit 1\r")
    c.p.expect("one$")
    c.say(" more")
    after = turns(c)
    assert [t for _, t in after] == ["one more"]
    assert "3 turns" in c.say("/undo")
    assert turns(c) == before
    c.say("/redo")
    assert turns(c) == after
    c.say("/undo")
    c.say("/undo")
    assert turns(c) == before[:2]
    c.say("/redo")
    assert turns(c) == before


def test_undo_with_a_number_takes_back_so_many_turns_whatever_was_replaced(chat, tiny):
    c = chat("-m", tiny, "-n", 6, "-s", 5, "-c", 4096)
    for word in ("one", "two", "three"):
        c.say(word)
    before = turns(c)
    c.p.send("/edit 3\r")
    c.p.expect("three$")
    c.say(" more")
    after = turns(c)
    assert "turn 2;" in c.say("/undo 1")
    assert turns(c) == before[:2]
    assert "start;" in c.say("/undo 99")  # no more than there is
    assert "nothing to undo: /undo alone" in c.say("/undo 1")
    c.say("/redo 3")
    assert turns(c) == after
    assert "start;" in c.say("/undo 3")
    assert "3 turns" in c.say("/undo")  # nothing is lost by that: neither what was replaced
    assert turns(c) == before
    c.say("/redo")  # nor what replaced it
    assert turns(c) == after
    c.say("/undo 2")
    for word in ("four", "five"):
        c.say(word)
    c.say("/undo")
    assert [t for _, t in turns(c)] == ["one", "four"]  # what came later goes first
    c.say("/undo")
    assert "3 turns" in c.say("/undo")
    assert turns(c) == before


@pytest.mark.parametrize("replace", ("/clear", "/load b", "/retry 6", "/edit 1"))
def test_redo_brings_back_all_that_undo_took_also_across_what_was_replaced(chat, hokku, tiny, replace):
    ask(hokku, tiny, "b", "other")
    c = chat("-m", tiny, "-n", 6, "-s", 5, "-c", 4096, "--session", "a")
    c.say("one")
    steps = [turns(c)]
    if replace == "/edit 1":
        c.p.send("/edit 1\r")
        c.p.expect("one$")
        c.say(" more")
    else:
        c.say(replace)
    for word in (None, "two", "three"):
        if word:
            c.say(word)
        steps.append(turns(c))
    assert [len(step) for step in steps] == ([1, 0, 1, 2] if replace == "/clear" else [1, 1, 2, 3])
    for _ in range(2):
        for step in steps[-2::-1]:
            c.say("/undo")
            assert turns(c) == step
        for step in steps[1:]:
            c.say("/redo")
            assert turns(c) == step
        assert "nothing to redo" in c.say("/redo")
    assert "start;" in c.say("/undo 3")
    c.say("/undo")  # at the start it brings back what was replaced
    assert turns(c) == steps[0]
    for step in steps[1:]:
        c.say("/redo")
        assert turns(c) == step
    c.leave()
    assert b"three" in hokku("sessions", "search", "three").stdout


def test_a_retry_or_continue_that_fails_leaves_what_can_be_redone(chat, tiny):
    c = chat("-m", tiny, "-n", 6, "-s", 5, "-c", 512)
    for word in ("one", "two", "three"):
        c.say(word)
    before = turns(c)
    assert "turn 1;" in c.say("/undo 2")
    c.say("/prefill " + "word " * 600)
    assert "with one for an answer" in c.say("/retry") and "with one for an answer" in c.say("/retry 9")
    assert "seed 5\n" in c.say("/set seed")
    c.say("/prefill off")
    c.say('/set schema {"type":"integer"}')
    assert re.search(r"obeys the grammar for \d+ of its", c.say("/continue"))
    c.say("/set schema off")
    assert turns(c) == before[:1]
    assert "2 turns brought back" in c.say("/redo 2")
    assert turns(c) == before


def test_a_retry_is_taken_back(chat, hokku, tiny, sessions):
    c = chat("-m", tiny, "--session", "s", "-n", 12, "-s", 5, "--temp", 1.5)
    c.say("one")
    path = sessions / "s.session"
    saved(path, 1)
    messages = lambda: state(path.read_bytes())[2]
    first = messages()
    c.say("/retry 6")
    wait_until(lambda: messages() != first)
    second = messages()
    c.say("/undo")
    wait_until(lambda: messages() == first)
    c.say("/redo")
    wait_until(lambda: messages() == second)


def test_a_cleared_conversation_comes_back_with_its_session(chat, tiny, sessions):
    c = chat("-m", tiny, "-n", 6, "--session", "s")
    c.say("one")
    assert "/undo brings it back" in c.say("/clear")
    c.say("/undo")
    assert [t for _, t in turns(c)] == ["one"]
    c.say("/clear")
    c.say("other")
    c.say("/undo")
    assert turns(c) == []
    assert "back: 1 turn" in c.say("/undo")
    c.say("two")
    c.leave()
    assert describe(sessions / "s.session")["turns"] == 2


def test_what_load_replaced_comes_back(chat, hokku, tiny, sessions):
    ask(hokku, tiny, "b", "other")
    c = chat("-m", tiny, "-n", 6)
    c.say("one")
    c.say("/load b")
    assert [t for _, t in turns(c)] == ["other"]
    c.say("/undo")
    assert [t for _, t in turns(c)] == ["one"]
    c.say("/redo")
    assert [t for _, t in turns(c)] == ["other"]
    c.leave()
    assert describe(sessions / "b.session")["turns"] == 1
    assert describe(kept(sessions)[0])["turns"] == 1
    assert not list(sessions.glob(".*"))


# ------------------------------------------------------------------------------------------- hokku sessions


def test_what_lies_in_the_folder_is_not_taken_for_a_session_of_that_name(hokku, tiny, sessions, tmp_path):
    ask(hokku, tiny, "work", "one")
    ask(hokku, tiny, "other", "another")
    here = tmp_path / "here"
    here.mkdir()
    ways = [["sessions", "export", "work", "-"], ["replay", "work"], ["--base", "work", *SAMPLED, "more"]]
    want = [hokku(*args, cwd=here) for args in ways]
    assert [r.returncode for r in want] == [0, 0, 0] and b"one" in want[0].stdout, want
    for make in (lambda p: p.mkdir(), lambda p: p.write_bytes((sessions / "other.session").read_bytes()), lambda p: p.write_text("no session")):
        make(here / "work")
        assert [hokku(*args, cwd=here).stdout for args in ways] == [r.stdout for r in want]
        (here / "work").rmdir() if (here / "work").is_dir() else (here / "work").unlink()
    (here / "file").write_bytes((sessions / "other.session").read_bytes())
    (here / "folder").mkdir()
    assert b"another" in hokku("sessions", "export", "file", "-", cwd=here).stdout and b"another" in hokku("sessions", "export", "./file", "-", cwd=here).stdout
    for name in ("folder", "nothing"):
        r = hokku("--base", name, "hi", cwd=here)
        assert r.returncode == 1 and f"there is no session {name}, and no such file".encode() in r.stderr, r


def test_what_is_found_behind_a_nul_byte_is_shown(hokku, tiny):
    assert hokku("-m", tiny, "-n", "1", "--session", "s", input=b"before\0the needle is here\n").returncode == 0
    assert hokku("sessions", "search", "needle").stdout == b"s turn 1 you: before\0the needle is here\n"


@pytest.mark.parametrize("before,after", [("", ""), ("", "ab " * 30), ("ab " * 30, ""), ("ab " * 30, "ab " * 30), ("é" * 50, "漢" * 50)],
                         ids=["whole", "its end", "its beginning", "both", "wide"])
def test_what_is_left_out_of_a_line_that_was_found_is_seen_to_be(hokku, tiny, before, after):
    """Other lines of the message are not told of."""
    ask(hokku, tiny, "b", f"one\n{before}needle{after}\ntwo")
    text = hokku("sessions", "search", "needle").stdout.decode().removeprefix("b turn 1 you: ").removesuffix("\n")
    shown = json.loads(hokku("sessions", "search", "needle", "--json").stdout)[0]["text"]
    assert text == ("…" if before else "") + shown + ("…" if after else "") and shown in before + "needle" + after


def test_sessions_are_listed_renamed_exported_searched_and_removed(hokku, tiny, sessions, tmp_path):
    ask(hokku, tiny, "b", "a Word that is found", "-sys", "Be kind.")
    ask(hokku, tiny, "a", "another")
    os.utime(sessions / "b.session", (1, 1))
    out = hokku("sessions").stdout.decode()
    assert re.search(r"^a .*· 1 turn, \d+ tokens, [\d.]+ kB · ", out, re.M) and len(out.splitlines()) == 2
    assert hokku("sessions", "list").stdout.decode() == out
    rows = json.loads(hokku("sessions", "--json").stdout)
    assert {r["name"]: r["bytes"] for r in rows} == {n: (sessions / f"{n}.session").stat().st_size for n in "ab"}
    r = hokku("sessions", "search", "word THAT")
    assert r.stdout == b"b turn 1 you: a Word that is found\n"
    r = hokku("sessions", "search", "word THAT", "--json")
    assert json.loads(r.stdout) == [{"name": "b", "turn": 1, "role": "user", "text": "a Word that is found"}]
    r = hokku("sessions", "search", "nowhere")
    assert r.returncode == 1 and b'no saved session has the text "nowhere"' in r.stderr and r.stdout == b""
    r = hokku("sessions", "search", "nowhere", "--json")  # for a program that reads an array it is one
    assert r.returncode == 1 and b'no saved session has the text "nowhere"' in r.stderr and r.stdout == b"[]\n"
    md = tmp_path / "b.md"
    for command in ("rm", "b"), ("mv", "b", "c"), ("export", "b", "-"):
        r = hokku("sessions", *command, "--json")
        assert r.returncode == 2 and b"--json, which is for list and search" in r.stderr, r
    assert hokku("sessions", "export", "b", md).returncode == 0
    text = md.read_bytes()
    assert text.startswith(b"## System\n\nBe kind.\n\n## You\n\na Word that is found\n\n## Answer\n\n")
    assert hokku("sessions", "export", "b", "-").stdout == text
    r = hokku("sessions", "export", "b", md)
    assert r.returncode == 1 and b"already such a file" in r.stderr
    r = hokku("sessions", "export", "b", "")
    assert r.returncode == 1 and r.stderr == b"hokku: found an empty name, expected a new file's\n", r
    assert hokku("sessions", "mv", "b", "c").returncode == 0
    r = hokku("sessions", "mv", "c", "a")
    assert r.returncode == 1 and b"already a session a" in r.stderr
    assert hokku("sessions", "rm", "a", "c").returncode == 0
    r = hokku("sessions")
    assert list(sessions.iterdir()) == [] and r.returncode == 0 and r.stdout == b"" and r.stderr == b"no saved sessions\n"
    r = hokku("sessions", "rm", "a")
    assert r.returncode == 1 and b"there is no session a" in r.stderr


def test_of_sessions_to_remove_all_are_or_none(hokku, chat, tiny, sessions):
    for name in "abc":
        ask(hokku, tiny, name, "a word")
    c = chat("-m", tiny, "--session", "c", "-n", 2)
    (sessions / "folder.session").mkdir()
    protected = sessions / "kept.session"
    protected.write_bytes((sessions / "a.session").read_bytes())
    protected.chmod(0o400)
    for wrong, says in (("nope", b"there is no session nope"), ("c", b"in use by another hokku"), ("no/name", b""),
                        ("folder", b"folder.session: found a folder, expected a session"), ("kept", b"its mode 0400 keeps it as it is: chmod u+w to remove it")):
        r = hokku("sessions", "rm", "a", wrong, "b")
        assert r.returncode != 0 and b"hokku: nothing is removed: " in r.stderr and says in r.stderr, r
        assert {p.name for p in sessions.glob("[abc]*")} == {"a.session", "b.session", "c.session"}
    c.leave()
    (sessions / "folder.session").rmdir()
    (sessions / "leads-nowhere.session").symlink_to("nowhere")
    protected.chmod(0o600)
    assert hokku("sessions", "rm", "a", "b", "a", "c", "kept", "leads-nowhere").returncode == 0 and not list(sessions.iterdir())


@pytest.mark.parametrize("text,what,found", [
    ("Grüße aus KÖLN", "gRÜSSE", False), ("Grüße aus KÖLN", "grüße AUS köln", True), ("Ωmega ΣΊΣΥΦΟς", "ωMEGA σίσυφος", True), ("привет", "ПРИВЕТ", True),
    ("ſtraße K", "STRAßE k", True), ("𐐀", "𐐨", True), ("ok Ünïcödé", "ünïCÖDÉ", True), ("a e\u0301", "É", False), ("xqxqxqz9", "XqZ9", True), ("日本語", "本", True), ("日本語", "木", False)])
def test_sessions_are_searched_whatever_the_case_of_letters(hokku, tiny, text, what, found):
    ask(hokku, tiny, "b", text)
    r = hokku("sessions", "search", what)
    assert (r.returncode, r.stdout) == ((0, f"b turn 1 you: {text}\n".encode()) if found else (1, b"")), r


def test_a_search_names_the_sessions_that_it_could_not_read(hokku, tiny, sessions):
    for name in "abc":
        ask(hokku, tiny, name, "a word")
    os.truncate(sessions / "b.session", 40)
    (sessions / "c.session").write_text("garbage")
    said = [f"hokku: {sessions}/{n}.session: the session is damaged" for n in "bc"]
    for what, code, out, more in (("word", 0, b"a turn 1 you: a word\n", 0), ("nowhere", 1, b"", 1)):
        r = hokku("sessions", "search", what)
        lines = r.stderr.decode().splitlines()
        assert (r.returncode, r.stdout, len(lines)) == (code, out, 2 + more) and all(map(str.startswith, lines, said)), r
    assert lines[2] == 'hokku: no saved session that can be read has the text "nowhere"'


def test_a_session_that_cannot_be_removed_is_not_renamed_and_not_there_twice(hokku, sessions, shim):  # noqa: F811
    assert hokku("-n", 1, "--session", "a", "hi").returncode == 0
    r = hokku("sessions", "mv", "a", "b", env={"LD_PRELOAD": shim, "TEST_STAYS": "/a.session"})
    assert r.returncode == 1 and b"a.session: cannot be removed: Input/output error" in r.stderr, r
    assert [p.name for p in sessions.glob("*.session")] == ["a.session"]


@pytest.mark.parametrize("args,says", [(["rmm"], b'found "rmm", expected list, rm'), (["mv", "a"], b"found 1 argument, expected NAME NEW"),
                                       (["rm"], b"expected NAME, one or more"), (["search", ""], b"found an empty TEXT")])
def test_a_wrong_use_of_sessions_says_what_is_expected(hokku, args, says):
    r = hokku("sessions", *args)
    assert r.returncode == 2 and says in r.stderr


def test_a_session_in_use_is_not_removed(hokku, chat, tiny, sessions):
    c = chat("-m", tiny, "--session", "s", "-n", 2)
    c.say("hi")
    saved(sessions / "s.session", 1)
    for args in (["rm", "s"], ["mv", "s", "t"]):
        r = hokku("sessions", *args)
        assert r.returncode == 1 and b"in use by another hokku" in r.stderr
    assert (sessions / "s.session").exists()
