"""Sessions: named, saved at every turn, resumed exactly. (What their files hold: test_session_files.py.)"""
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import time
import urllib.parse

import pexpect
import pytest
from conftest import HOKKU, ROOT, model, wait_until
from session_format import describe, records, redescribe, saved
from test_places import shim  # noqa: F401 (fixture)
from test_repl import chat, tiny  # noqa: F401 (fixtures)
from wcwidth import wcswidth

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


def test_a_single_turn_of_a_resumed_chat_is_an_answer_of_this_call(chat, hokku, tiny):
    ask(hokku, tiny, "s", "one")
    c = chat("-m", tiny, *SAMPLED, "-st", "--session", "s")
    for line in ("", "/context", "/set temp 0", "/undo", "/redo", "/bogus"):
        c.say(line)  # comes back to its prompt
    c.p.send("two\r")
    c.p.expect(pexpect.EOF)
    c.p.close()
    assert c.p.exitstatus == 0, c.p.before
    assert hokku("sessions", "export", "s", "-").stdout.count(b"## You\n") == 2
    again = chat("-m", tiny, "-st", "--session", "s")
    again.p.send("/retry\r")
    again.p.expect(pexpect.EOF)


def test_a_session_opens_with_its_own_model_whatever_model_the_environment_has(hokku, chat, tiny):
    builtin = str(ROOT / "builtin/hokku-builtin.gguf")
    whole = hokku("-m", tiny, *SAMPLED, "--json", "--turns", input="one\ntwo words\n")
    ask(hokku, tiny, "s", "one")
    r = hokku(*SAMPLED, "--session", "s", "--json", "two words", env={"HOKKU_MODEL": builtin})
    assert r.returncode == 0, r.stderr
    assert json.loads(r.stdout)["tokens"] == json.loads(whole.stdout.splitlines()[1])["tokens"]
    assert hokku(*SAMPLED, "--base", "s", "x", env={"HOKKU_MODEL": builtin}).returncode == 0
    r = hokku(*SAMPLED, "--session", "s", "-m", builtin, "three")  # named: an error
    assert r.returncode == 1 and b"made with the model" in r.stderr, r
    assert b"hokku-builtin" in hokku(*SAMPLED, "--session", "new", "-v", "x", env={"HOKKU_MODEL": builtin}).stderr


def test_a_session_whose_model_is_gone_says_what_is_taken_in_its_place(hokku, tiny, tmp_path):
    own, moved, builtin = (str(tmp_path / "own.gguf"), str(tmp_path / "moved.gguf"), str(ROOT / "builtin/hokku-builtin.gguf"))
    shutil.copy(tiny, own)
    ask(hokku, own, "s", "one")
    os.rename(own, moved)
    said = f"hokku: session s: its model {own} cannot be read (No such file or directory): {moved} is taken in its place\n".encode()
    for args in (["--base", "s"], ["--session", "s"], ["--continue"]):
        assert hokku(*SAMPLED, "--base", "s", "-q", "two", env={"HOKKU_MODEL": moved}).stderr == b""
        r = hokku(*SAMPLED, *args, "two", env={"HOKKU_MODEL": moved})
        assert r.returncode == 0 and said in r.stderr, r
        os.rename(moved, own)
        ask(hokku, own, "s", "one")  # (who goes on with it is recorded)
        os.rename(own, moved)
    r = hokku(*SAMPLED, "--session", "s", "three", env={"HOKKU_MODEL": builtin})
    assert r.returncode == 1 and f"its file {own} is gone".encode() in r.stderr and b"made with the model" in r.stderr, r
    r = hokku(*SAMPLED, "--session", "s", "three", env={"HOKKU_MODEL": "/nonexist"})
    assert r.returncode == 3 and f"its model {own} cannot be read".encode() in r.stderr and b"/nonexist" in r.stderr, r


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


def test_stop_texts_come_back_as_other_settings_do(chat, hokku, tiny, sessions):
    ask(hokku, tiny, "s", "one", "-r", "\u00e9\u3042", "-r", b"\xff\x01".decode(errors="surrogateescape"))
    c = chat("-m", tiny, "--session", "s")
    assert 'stop "\u00e9\u3042"' in c.say("/set stop")
    c.say("two")
    c.leave()
    assert describe(sessions / "s.session")["settings"]["reverse-prompt"] == ["\u00c3\u00a9\u00e3\u0081\u0082", "\u00ff\u0001"]
    c = chat("-m", tiny, "--session", "s", "-r", "x")
    assert re.search(r'stop +"x"\s', c.say("/set"))
    c.leave()
    for stops in ("a", [""], [1], ["\u0100"], ["a"] * 65):
        path = sessions / "s.session"
        meta = describe(path)
        meta["settings"]["reverse-prompt"] = stops
        redescribe(path, meta)
        r = hokku("-m", tiny, "--session", "s", "hi")
        assert r.returncode == 1 and b"reverse-prompt: expected an array of at most 64 texts" in r.stderr, (stops, r)
    long = hokku("-m", tiny, *SAMPLED, "--session", "long", "hi", *(w for i in range(8) for w in ("-r", f"{i}" + "\1" * 100000)))
    assert long.returncode == 1 and b"session long is not saved: its description would take 48" in long.stderr


def test_what_stands_around_each_message_comes_back(chat, hokku, tiny, home, sessions):
    (prompts := pathlib.Path(home["XDG_CONFIG_HOME"]) / "hokku" / "prompts").mkdir(parents=True)
    (prompts / "fr.txt").write_text("In \u3042: {{input}}!")
    c = chat("-m", tiny, *SAMPLED, "--session", "s")
    c.say("/system @fr")
    c.say("one")
    c.leave()
    for more in (["two"], ["three", "-sys", "Be brief."], ["four"], ["five", "-sys", "@fr"]):  # (which is in its place)
        ask(hokku, tiny, "s", *more)
    said = hokku("sessions", "export", "s", "-").stdout
    assert all(f"## You\n\n{m}\n".encode() in said for m in ("In \u3042: one!", "In \u3042: two!", "three", "four", "In \u3042: five!")) and b"## System" not in said
    ask(hokku, tiny, "b", "one", "-sys", "@fr")
    c = chat("-m", tiny, *SAMPLED, "--session", "s")
    c.say("/system off")
    c.say("/load b")
    assert "{{input}}" in c.say("/show system")
    c.say("/undo")
    assert "{{input}}" not in c.say("/show system")
    for frame in ("without a message", "", 1, "\u0100{{input}}"):  # a file that somebody else made
        path = sessions / "b.session"
        meta = describe(path)
        meta["settings"]["frame"] = frame
        redescribe(path, meta)
        r = hokku("-m", tiny, "--session", "b", "hi")
        assert r.returncode == 1 and b"frame: expected a text that says {{input}}" in r.stderr, (frame, r)


def test_a_number_comes_back_to_the_last_bit(chat, hokku, tiny, sessions):
    ask(hokku, tiny, "s", "one", "--top-p", "0.8765432", "-l", "5-1.2345678", "--min-p", "1e-7")
    settings = chat("-m", tiny, "--session", "s").say("/set")
    assert re.search(r"top-p +0.8765432\s", settings) and re.search(r"logit-bias +5-1.2345678\s", settings)
    assert re.search(r"min-p +1e-07\s", settings) and re.search(r"temp +1.1\s", settings)


def test_save_load_fork_and_list(chat, tiny, sessions):
    c = chat("-m", tiny, *SAMPLED)
    assert "this chat has no name yet: /save NAME gives it one" in c.say("/save")
    assert "no saved sessions" in c.say("/sessions")
    first = c.answer("one")
    assert "saved as a" in c.say("/save a")
    assert stat.S_IMODE(os.stat(sessions / "a.session").st_mode) == 0o600
    assert "now in b; a stays" in c.say("/fork b")
    c.say("two")
    out = c.say("/sessions")
    assert re.search(r"a +.*1 turn,", out) and re.search(r"b +.*2 turns,.*here", out)
    kb = (sessions / "b.session").stat().st_size / 1000
    assert abs(float(re.search(r"b +.*tokens, ([\d.]+) kB", out).group(1)) - kb) < 0.1
    assert "already a session a" in c.say("/save a")
    c.say("/load a")
    assert "two" not in c.say("/context") and "one" in c.say("/context")
    assert "no session nope" in c.say("/load nope")
    assert "expected 1 to 100 bytes: letters" in c.say("/save ../../etc/passwd")
    c.say("/clear")
    c.say("three")
    c.say("/load a")
    assert "one" in c.say("/context")  # /clear did not touch the saved one


def test_both_lists_have_the_session_that_was_saved_last_first(chat, hokku, tiny):
    for name in "bca":
        ask(hokku, tiny, name, "one")
        time.sleep(1.1)  # the time of saving is in seconds
    ask(hokku, tiny, "b", "two")
    for listed in (hokku("sessions").stdout.decode(), chat("-m", tiny, "--no-history").say("/sessions")):
        assert re.findall(r"(?m)^([abc]) +20", listed) == ["b", "a", "c"], listed


def test_a_list_has_its_columns_and_every_session_whatever_the_names(chat, hokku, tiny, sessions):
    ask(hokku, tiny, "plain", "one")
    for name in ("日本語", "e\u0301te\u0301", b"caf\xe9".decode(errors="surrogateescape")):
        shutil.copy(sessions / "plain.session", sessions / f"{name}.session")
    (sessions / "草.session").write_bytes(b"no session")
    (sessions / "草.session").chmod(0o600)
    names = {"plain", "日本語", "e\u0301te\u0301", "caf\ufffd", "草"}
    for listed in (hokku("sessions").stdout.decode(errors="replace"), chat("-m", tiny, cols=200).say("/sessions")):
        rows = dict(re.findall(r"(?m)^(\S+)( +)(?=20\d\d-|\S*/草)", listed))
        assert set(rows) == names and all(wcswidth(name + blanks) == 21 for name, blanks in rows.items()), listed
    listed = json.loads(hokku("sessions", "--json").stdout)
    assert {s["name"] for s in listed} == names
    # By that a script can name it.
    found = json.loads(hokku("sessions", "search", "one", "--json").stdout)
    for rows in (listed, found):
        assert {s["name"]: s["name_bytes"] for s in rows if "name_bytes" in s} == {"caf\ufffd": "caf%E9"}
    assert hokku("sessions", "rm", os.fsdecode(urllib.parse.unquote_to_bytes("caf%E9"))).returncode == 0


def test_a_folder_of_sessions_that_cannot_be_read_is_not_an_empty_one(chat, hokku, tiny, sessions):
    sessions.parent.mkdir(parents=True)
    for args in (["sessions"], ["sessions", "--json"]):  # there is none: that is no mistake
        assert hokku(*args).returncode == 0
    sessions.write_text("")
    said = f"{sessions}: cannot be read: Not a directory"
    for args in (["sessions"], ["sessions", "--json"], ["sessions", "search", "x"], ["-m", tiny, "--continue", "hi"]):
        r = hokku(*args)
        assert r.returncode == 1 and said in r.stderr.decode() and r.stdout == b"", r
    assert said in chat("-m", tiny, "--no-history").say("/sessions")


def in_terminal(home, columns, *args):
    child = pexpect.spawn(HOKKU, list(args), env=home, dimensions=(24, columns), encoding="utf-8")
    text = child.read()
    child.close()
    assert child.exitstatus == 0, text
    return text.replace("\r\n", "\n")


def test_long_names_are_shortened_in_a_terminal_alone_and_columns_hold(chat, hokku, home, tiny, sessions):
    ask(hokku, tiny, "plain", "one")
    long = ["x" * 60, "日本" * 16, "y" * 40]
    for name in long:
        shutil.copy(sessions / "plain.session", sessions / f"{name}.session")
    whole = hokku("sessions").stdout.decode()
    rows = dict(re.findall(r"(?m)^(\S+)( +)20\d\d-", whole))
    assert set(rows) == {"plain", *long} and {wcswidth(name + blanks) for name, blanks in rows.items()} == {65}, whole
    for columns in (200, 100, 81, 60, 25):
        shown = in_terminal(home, columns, "sessions")
        lines = shown.splitlines()
        assert len(lines) == 4 and max(map(wcswidth, lines)) <= columns, shown
        begins = {wcswidth(re.match(r"\S+ +", line)[0]) for line in lines}
        assert len(begins) == 1 and begins == {min(64, max(20, columns - 56)) + 1}, shown
        assert (shown == whole) == (columns == 200) and ("…" in shown) == (columns < 200), shown
        listed = chat("-m", tiny, cols=columns).say("/sessions") if columns in (200, 81) else shown
        assert all(wcswidth(line) <= columns for line in listed.splitlines()) and len([line for line in listed.splitlines() if re.search(r" 20\d", line)]) == 4, listed


def test_undo_is_saved_too(chat, hokku, tiny):
    c = chat("-m", tiny, *SAMPLED, "--session", "s")
    one = c.answer("one")
    two = c.answer("two")
    c.say("/undo")
    c.leave()
    c = chat("-m", tiny, *SAMPLED, "--session", "s")
    assert c.answer("two") == two


def test_a_chat_without_a_name_that_is_left_with_nothing_in_it_is_not_kept(chat, hokku, tiny, sessions):
    """--continue would take it for the last one."""
    kept = lambda: sorted(p.name for p in sessions.glob("[!.]*"))
    ask(hokku, tiny, "s", "first")
    c = chat("-m", tiny, *SAMPLED)
    c.answer("one")
    c.say("/undo")
    assert len(kept()) == 2  # as long as it is open
    assert "(session s" in c.say("/load s")
    assert kept() == ["s.session"]
    c.say("/clear")
    c.say("/undo")
    assert "is back: 0 turns" in c.say("/redo")
    assert "is back: 1 turn" in c.say("/undo")
    assert kept() == ["s.session"]
    assert "is back: 0 turns" in c.say("/redo")
    c.answer("two")
    assert c.leave() == 0 and len(kept()) == 2


def test_a_second_writer_is_kept_out(chat, hokku, tiny):
    c = chat("-m", tiny, *SAMPLED, "--session", "s")
    r = hokku("-m", tiny, *SAMPLED, "--session", "s", "hi")
    assert r.returncode == 1 and b"in use by another hokku" in r.stderr
    c.leave()
    assert hokku("-m", tiny, *SAMPLED, "--session", "s", "hi").returncode == 0


def test_what_undo_brings_back_is_not_saved_over_what_another_hokku_said_since(chat, hokku, tiny, sessions):
    def said(name):
        return re.findall(r"## You\n\n(.*)\n", hokku("sessions", "export", name, "-").stdout.decode(errors="replace"))

    for leave in ("/load b", "/clear"):
        for name in "ab":
            ask(hokku, tiny, name, f"first of {name}")
        c = chat("-m", tiny, *SAMPLED, "--session", "a")
        c.say(leave)
        for back in ("/undo", "/redo", "/undo"):  # nobody else was there
            out = c.say(back)
            assert "is back: " in out and "another hokku" not in out, out
        assert c.say("/context") and "first of a" in c.say("/context") and said("a") == ["first of a"]
        c.say(leave)
        ask(hokku, tiny, "a", "said elsewhere")
        before = (sessions / "a.session").read_bytes()
        out = c.say("/undo")
        assert "session a was changed by another hokku since; what is back is a chat without a name now" in out, out
        c.answer("second")
        assert c.leave() == 0
        assert (sessions / "a.session").read_bytes() == before and said("a") == ["first of a", "said elsewhere"]
        chats = sorted(p.stem for p in sessions.glob("chat-*.session"))
        assert said(chats[-1]) == ["first of a", "second"]
        for path in sessions.iterdir():
            path.unlink()


def test_what_undo_brings_back_goes_on_under_the_name_that_its_session_was_given_meanwhile(chat, hokku, tiny, sessions):
    c = chat("-m", tiny, *SAMPLED, "--session", "a")
    c.answer("first")
    c.say("/clear")
    assert "(a is now b)" in c.say("/rename a b")
    assert "is back: 1 turn" in c.say("/undo")
    c.answer("second")
    c.say("/redo")
    assert "(b is now c)" in c.say("/rename b c")
    c.say("/undo")
    assert re.search(r"session +c\b", c.say("/show model"))
    assert c.leave() == 0
    assert [p.name for p in sessions.glob("[!.]*")] == ["c.session"]
    assert re.findall(r"## You\n\n(.*)\n", hokku("sessions", "export", "c", "-").stdout.decode(errors="replace")) == ["first", "second"]


def test_what_undo_brings_back_leaves_a_session_alone_that_is_in_use_or_protected(chat, hokku, tiny, sessions):
    ask(hokku, tiny, "a", "first")
    ask(hokku, tiny, "b", "first")
    before = (sessions / "a.session").read_bytes()
    for taken in True, False:
        c = chat("-m", tiny, *SAMPLED, "--session", "a")
        c.say("/load b")
        other = chat("-m", tiny, *SAMPLED, "--session", "a") if taken else (sessions / "a.session").chmod(0o400)
        out = c.say("/undo")
        assert ("session a is in use by another hokku" if taken else "its mode 0400 keeps it as it is") in out, out
        if taken:
            other.leave()
        c.answer("second")
        assert c.leave() == 0
        assert (sessions / "a.session").read_bytes() == before


def test_a_session_whose_lock_another_hokku_looks_at_as_it_begins_is_opened(hokku, tiny, shim):  # noqa: F811
    """Each that opens a session holds the locks of the others for a moment, to see whether they are of killed ones."""
    ask(hokku, tiny, "a", "one", env={"LD_PRELOAD": shim, "TEST_LOCKED": "3"})
    r = hokku("-m", tiny, *SAMPLED, "--session", "a", "two", env={"LD_PRELOAD": shim, "TEST_LOCKED": "1000"})
    assert r.returncode == 1 and b"in use by another hokku" in r.stderr, r


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


def test_other_weights_under_the_same_metadata_are_read_again(hokku, tiny, tmp_path):
    """A file that was trained on, in the place of the one that a session was saved with."""
    path = tmp_path / "m.gguf"
    first = open(tiny, "rb").read()
    trained = first[:len(first) * 3 // 4] + bytes(b ^ 1 for b in first[len(first) * 3 // 4:])
    path.write_bytes(first)
    ask(hokku, path, "s", "one")
    for weights, told in (first, False), (trained, True), (trained, False), (first, True):
        path.unlink()
        path.write_bytes(weights)
        r = hokku("-m", path, *SAMPLED, "--session", "s", "--json", "two", stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        j = json.loads(r.stdout)
        assert (b"cannot be restored (the model's file has other weights now)" in r.stderr) == told, r.stderr
        assert (j["cached_tokens"] == 0) == told and len(j["tokens"]) > 0


def test_a_memory_that_cannot_be_restored_stays_in_the_file_until_something_is_said(chat, hokku, tiny, sessions):
    ask(hokku, tiny, "s", "one")
    path = sessions / "s.session"
    before, tokens = path.read_bytes(), describe(path)["tokens"]
    for leave in (lambda c: None, lambda c: c.say("/set temp 0.5"), lambda c: c.say("/save")):
        c = chat("-m", tiny, "--session", "s", "-ctk", "q8_0")
        assert f"session s: 1 turn, {tokens} tokens" in c.first and "cannot be restored" in c.first, c.first
        leave(c)
        assert c.leave() == 0
        assert path.read_bytes().startswith(before[64:100], 64) and describe(path)["tokens"] == tokens
        assert describe(path)["cache_type_k"] == "f16"
    assert describe(path)["settings"]["temp"] == "0.5"
    assert [t for t, *_ in records(path.read_bytes())].count("KVCH") == 1
    j = ask(hokku, tiny, "s", "two")
    assert j["cached_tokens"] >= tokens - 1


def test_a_session_that_is_only_looked_at_is_not_written_but_is_the_last_one(chat, hokku, tiny, sessions):
    ask(hokku, tiny, "a", "one")
    ask(hokku, tiny, "b", "one")
    before = (sessions / "a.session").read_bytes()
    c = chat("-m", tiny, "--session", "a")
    c.leave()
    assert (sessions / "a.session").read_bytes() == before
    assert "session a: " in chat("-m", tiny, "--continue").first


def test_of_a_memory_that_the_context_has_no_room_for_it_is_said_how_much_is_restored(chat, hokku, tiny, sessions):
    ask(hokku, tiny, "s", "one two three " * 150, "-c", "2048")
    path = sessions / "s.session"
    before, tokens = path.read_bytes(), describe(path)["tokens"]
    assert tokens > 800
    c = chat("-m", tiny, "--session", "s", "-c", "600")
    assert f"{tokens:,} tokens" in c.first and f"of the session's memory 512 of {tokens:,} tokens are restored" in c.first, c.first
    c.leave()
    assert path.read_bytes() == before
    c = chat("-m", tiny, "--session", "s", "-c", "600")
    c.say("/undo")
    c.leave()
    assert describe(path)["turns"] == 0 and describe(path)["tokens"] == 0


def test_the_list_counts_no_tokens_of_a_memory_that_ends_before_the_messages(chat, hokku, tiny, sessions):
    ask(hokku, tiny, "s", "one")
    ask(hokku, tiny, "s", "two")
    path = sessions / "s.session"
    whole = describe(path)["tokens"]
    c = chat("-m", tiny, "--session", "s")
    assert f"2 turns, {whole} tokens" in c.first
    c.say("/undo")
    assert 0 < saved(path, 1)["tokens"] < whole
    c.say("/redo")
    assert c.leave() == 0
    assert describe(path)["turns"] == 2 and describe(path)["tokens"] == 0
    listed = hokku("sessions").stdout.decode()
    assert "2 turns, " in listed and "token" not in listed
    c = chat("-m", tiny, "--session", "s")
    assert "2 turns, restored" in c.first
    c.say("/set temp 0.5")  # changes nothing of that
    assert c.leave() == 0
    assert describe(path)["settings"]["temp"] == "0.5" and describe(path)["tokens"] == 0
    ask(hokku, tiny, "s", "three")
    assert describe(path)["tokens"] > whole


def test_one_token_is_one(hokku, tiny, sessions):
    ask(hokku, tiny, "s", "one")
    path = sessions / "s.session"
    redescribe(path, {**describe(path), "tokens": 1})
    assert ", 1 token, " in hokku("sessions").stdout.decode()


def test_a_file_that_is_no_session_is_said_to_be_none(hokku, stories):
    for args in (["replay", stories], ["--base", stories, "hi"], ["sessions", "export", stories, "-"]):
        r = hokku(*args)
        assert r.returncode == 1 and f"{stories}: it begins as no session of hokku does; hokku sessions lists them" in r.stderr.decode(), r


def test_a_turn_that_is_taken_back_takes_back_what_it_dropped(chat, hokku):
    """Else the answer tried again would not know its own question, and the session could not be read."""
    builtin = ROOT / "builtin/hokku-builtin.gguf"
    c = chat("-m", builtin, "-c", 160, "--overflow", "drop", "--temp", 0, "-n", 24, "--session", "a")
    answers = [c.answer(m) for m in ("Who are you?", "Write a haiku about rain", "What is 3 plus 4?")]
    before = c.say("/context")
    assert "dropped" not in before and "7" in answers[2]
    assert "dropped the oldest 3 turns" in c.say("What is a haiku? " * 20)
    assert c.say("/context").count(" dropped ") == 3
    assert "back to turn 3" in c.say("/undo")
    assert c.say("/context") == before
    c.say("/redo")
    assert c.say("/context").count(" dropped ") == 3
    c.say("/undo")
    assert answers[2].strip() in c.say("/retry 5")  # nothing is random here
    assert c.say("/context") == before
    assert "too many with one for an answer" in c.say("word " * 400)  # what cannot be answered drops nothing
    assert c.say("/context") == before
    assert c.leave() == 0
    assert "= 7" in hokku("sessions", "export", "a", "-").stdout.decode()
    assert hokku("replay", "-m", builtin, "a").returncode == 0


def test_a_system_prompt_is_saved_when_it_is_set(chat, hokku, tiny):
    c = chat("-m", tiny, "-n", 3, "--session", "a")
    c.say("hi")
    for text in ("Be kind.", "Be brief.", "none"):
        c.say(f"/system {text}")
        want = b"" if text == "none" else f"## System\n\n{text}\n\n".encode()
        wait_until(lambda: hokku("sessions", "export", "a", "-").stdout.split(b"## You")[0] == want)
