"""What a chat has at hand: files in and out, the clipboard, an editor, prompts of one's own, settings that say what they did."""
import base64
import json
import os
import re
import time

import pexpect
import pytest
from conftest import HOKKU, ROOT, model
from session_format import describe
from test_repl import PLAIN, chat, tiny  # noqa: F401 (fixtures)


def test_read_takes_paths_as_people_write_them(chat, home, tiny, tmp_path):
    names = {"a b.txt": ['"{}/a b.txt"', "'{}/a b.txt'", "{}/a\\ b.txt", "~/a\\ b.txt"], "it's.txt": ['"{}/it\'s.txt"']}
    c = chat("-m", tiny, "-n", 2)
    for name, ways in names.items():
        (tmp_path / name).write_text("text")
        for way in ways:
            out = c.say("/read " + way.format(tmp_path))
            assert "(4 bytes of " in out, (way, out)
            c.say("/detach")
    assert "without its end" in c.say('/read "open')


@pytest.mark.parametrize("name, beginning", [("trail .txt ", "trail"), ("two  ", "tw"), ("slash\\", "sla"), ("slash\\ ", "sla"), ("trail .txt ", "'trail"), ("trail .txt ", '"trail')])
def test_a_completed_name_opens_its_file_whatever_it_ends_in(chat, tiny, tmp_path, name, beginning):
    (tmp_path / name).write_text("text")
    c = chat("-m", tiny, "-n", 2, cwd=str(tmp_path))
    assert "(4 bytes of " in c.say(f"/read {beginning}\t")
    assert "(4 bytes of " in c.say(f"/read {beginning}\t  ")


def test_a_file_that_is_no_text_is_refused_at_once_and_others_stay(chat, tiny, tmp_path):
    (tmp_path / "good.txt").write_text("good")
    (tmp_path / "raw.bin").write_bytes(b"ok\xff\xfe")
    (tmp_path / "nul.bin").write_bytes(b"a\0b")
    os.mkfifo(tmp_path / "fifo")
    c = chat("-m", tiny, "-n", 2)
    c.say(f"/read {tmp_path}/good.txt")
    assert "it is no text: byte 3 is 0xFF, expected UTF-8" in c.say(f"/read {tmp_path}/raw.bin")
    assert "byte 2 is 0x00" in c.say(f"/read {tmp_path}/nul.bin")
    assert "it is a pipe, expected a file" in c.say(f"/read {tmp_path}/fifo")
    assert "it is a directory, expected a file" in c.say(f"/read {tmp_path}")
    assert "(good.txt is no longer attached)" in c.say("/detach 1")


def test_files_alone_are_the_message_as_they_are(chat, hokku, tiny, tmp_path):
    (tmp_path / "a").write_text("Once upon a time\n")
    c = chat("-m", tiny, "-no-cnv", "-n", 4, "--session", "s")
    c.say(f"/read {tmp_path}/a")
    c.say(" ")
    assert re.search(r"Once upon a time$", c.say("/context").split("used")[0].strip().splitlines()[-2])
    assert c.leave() == 0
    assert hokku("sessions", "export", "s", "-").stdout.startswith(b"## You\n\nOnce upon a time\n\n## Answer")
    with open(os.path.join(c.env["XDG_STATE_HOME"], "hokku/history")) as history:
        assert history.read() == f"/read {tmp_path}/a\n/context\n"


def test_detach_leaves_one_file_out_or_all(chat, tiny, tmp_path):
    c = chat("-m", tiny, "-n", 2)
    assert "no file is attached" in c.say("/detach")
    for name in "abc":
        (tmp_path / name).write_text(name)
        c.say(f"/read {tmp_path}/{name}")
    assert "expected a number from 1 to 3" in c.say("/detach 4")
    assert "(b is no longer attached)" in c.say("/detach 2")
    c.say("hello")
    c.p.send("/edit\r")
    c.p.expect("a\r?\n.*\n.*c\r?\n.*\n.*hello")


def clipboard(raw):
    return [base64.b64decode(m) for m in re.findall(r"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07", raw)]


def test_copy_gives_the_answer_or_its_code_to_the_clipboard(chat, stories):
    c = chat("-m", stories, *PLAIN, "-n", 3, "-c", 512)
    assert "there is no answer yet" in c.say("/copy")
    c.say("/prefill é first")
    first = c.answer("x").strip()
    c.say('/prefill text ```')
    c.say("y")
    for command, want in (("/copy 1", first), ("/copy", None)):
        c.p.send(command + "\r")
        c.p.expect_exact("given to the terminal's clipboard")
        got, = clipboard(c.p.before)
        if want:
            assert got.decode().strip() == want
        else:
            assert got.startswith(b"text ```")
    c.ready()
    assert "expected a turn from 1 to 2" in c.say("/copy 3")
    assert "no block of code" in c.say("/copy code")


@pytest.mark.parametrize("answer,code", [("a\n```c\none\n```\nb\n```py\ntwo\n  three\n```\nend", b"two\n  three\n"),
                                         ("1. a\n   ```sh\n   ls\n   ```\nend", b"   ls\n"),  # in a list
                                         ("````md\n```c\nx\n```\n````\nend", b"```c\nx\n```\n"),
                                         ("~~~\nx\n~~~", b"x\n"),
                                         ("```c\ncut", b"cut")])
def test_copy_code_is_the_last_block(home, stories, answer, code):
    from test_repl import Chat
    c = Chat(home, "-m", stories, *PLAIN, "-n", 0, "-c", 512, "-cnv", "--chat-template", "chatml", "--prefill", answer, "x")
    c.p.send("/copy code\r")
    c.p.expect_exact("clipboard")
    assert clipboard(c.p.before) == [code]
    c.p.close(force=True)


@pytest.mark.parametrize("answer,command,why", [("<think>\nhm", "/copy", "the answer has no text (what a model thinks is none)"), ("", "/copy", "the answer has no text\n"),
                                                ("<think>\nhm", "/write", "the answer has no text (what a model thinks is none)"),
                                                ("text\n```\n```\n", "/copy code", "the last block of code is empty\n")])
def test_an_answer_without_text_leaves_the_clipboard_and_makes_no_file(home, stories, tmp_path, answer, command, why):
    from test_repl import Chat
    c = Chat(home, "-m", stories, *PLAIN, "-n", 0, "-c", 512, "-cnv", "--chat-template", "chatml", *(["--prefill", answer] if answer else []), "x")
    out = c.say(f"{command} {tmp_path}/out.txt" if command == "/write" else command)
    assert "hokku: " + why in out and "\x1b]52" not in out and not (tmp_path / "out.txt").exists()
    c.p.close(force=True)


def test_write_keeps_the_answer_and_never_replaces_a_file(chat, stories, tmp_path):
    c = chat("-m", stories, *PLAIN, "-n", 8)
    answer = c.answer("Once upon a time").strip()
    c.say(f"/write {tmp_path}/out.txt")
    assert (tmp_path / "out.txt").read_text().strip() == answer
    assert "already such a file" in c.say(f"/write {tmp_path}/out.txt")
    c.say(f"/export {tmp_path}/talk.md")
    assert (tmp_path / "talk.md").read_text().startswith("## You\n\nOnce upon a time\n\n## Answer\n\n")
    for command in "/write", "/export":
        assert "found -, expected a file" in c.say(f"{command} -")


def test_an_editor_that_is_stopped_stops_the_chat_with_it(home, stories, tmp_path):
    script = tmp_path / "stops"
    script.write_text('#!/bin/sh\nkill -TSTP 0\nprintf "after fg" > "$1"\n')  # Ctrl-Z in vi
    script.chmod(0o700)
    shell = pexpect.spawn("bash", ["--norc", "--noediting", "-i"], env={**home, "PS1": "shell: ", "VISUAL": str(script), "TMPDIR": str(tmp_path)},
                          encoding="utf-8", timeout=15, dimensions=(24, 200))
    shell.expect_exact("shell: ")
    shell.sendline(f"{HOKKU} -m {stories} -no-cnv --temp 0 -n 3")
    shell.expect_exact("> ")
    shell.send("before\x18\x05")
    shell.expect("Stopped")
    shell.expect_exact("shell: ")
    shell.sendline("echo the she''ll goes on")
    shell.expect_exact("the shell goes on")
    shell.sendline("fg")
    shell.expect_exact("after fg")
    shell.send("\r")
    shell.expect_exact("(cut after 3 tokens")
    shell.send("\x04")
    shell.expect_exact("shell: ")
    shell.close(force=True)


def test_what_is_empty_is_not_taken_for_something(chat, stories, tmp_path):
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "one").write_text("x\n")
    c = chat("-m", stories, *PLAIN, "-n", 3)
    assert "empty: the file is empty" in c.say(f"/read {tmp_path}/empty")
    assert "no file is attached" in c.say("/detach")
    assert "(1 byte of " in c.say(f"/read {tmp_path}/one")
    for text, n in (b"ab\n\n", 3), (b"ab\r\n", 2), (b"\n\n", 1):
        (tmp_path / "lines").write_bytes(text)
        assert re.search(rf"\({n} bytes? of ", c.say(f"/read {tmp_path}/lines")), text
    c.say("/detach")
    assert "nothing to export" in c.say(f"/export {tmp_path}/talk.md")
    assert not (tmp_path / "talk.md").exists()


@pytest.mark.parametrize("how", ["command", "keys"])
def test_the_editor_changes_the_message(chat, hokku, stories, tmp_path, how):
    script = tmp_path / "ed it.sh"
    script.write_text('#!/bin/sh\nread line < "$1"; printf "%s there\\nand more\\n" "$line" > "$1"\n')
    script.chmod(0o700)
    want = hokku("-m", stories, *PLAIN, "-n", 8, "Once there\nand more").stdout.decode().strip()
    c = chat("-m", stories, *PLAIN, "-n", 8, env={"VISUAL": f"'{script}'", "TMPDIR": str(tmp_path)})
    c.p.send("/editor Once\r" if how == "command" else "Once\x18\x05")
    c.p.expect("Once there\r?\n.*and more")
    assert want in c.say("")
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".hokku")] == []


def test_what_goes_to_the_editor_from_between_three_quotes_is_a_message_still(chat, stories, tmp_path):
    script = tmp_path / "edit.sh"
    script.write_text('#!/bin/sh\necho and more >> "$1"\n')
    script.chmod(0o700)
    c = chat("-m", stories, *PLAIN, "-n", 2, env={"VISUAL": str(script), "TMPDIR": str(tmp_path)})
    c.p.send('"""\r')
    c.p.expect_exact(". ")
    c.p.send("/clear\r")
    c.p.expect_exact(". ")
    c.p.send("\x18\x05")
    c.p.expect("/clear\r?\n.*and more")
    assert "cut after" in c.say("") and "/clear" in c.say("/context")
    assert "cleared" in c.say("/clear")


def test_a_byte_order_mark_of_an_editor_is_left_out(chat, hokku, stories, tmp_path):
    script = tmp_path / "edit.sh"
    script.write_text('#!/bin/sh\nprintf "\\357\\273\\277Once there\n" > "$1"\n')
    script.chmod(0o700)
    want = hokku("-m", stories, *PLAIN, "-n", 8, "Once there").stdout.decode().strip()
    c = chat("-m", stories, *PLAIN, "-n", 8, env={"VISUAL": str(script), "TMPDIR": str(tmp_path)})
    c.p.send("x\x18\x05")
    c.p.expect("Once there")
    assert want in c.say("")


def test_an_editor_that_fails_leaves_the_message(chat, stories):
    c = chat("-m", stories, *PLAIN, "-n", 8, env={"VISUAL": "false"})
    c.p.send("dear words\x18\x05")
    c.p.expect('the editor "false" failed: the message is as it was')
    c.p.expect("dear words")


@pytest.mark.parametrize("script, says", [
    ('rm "$1"', "left no file: the message is as it was"),
    ("printf 'a\\000b\\n' > \"$1\"", "it is no text: byte 2 is 0x00, expected UTF-8;"),
    ("printf 'a\\377b\\n' > \"$1\"", "it is no text: byte 2 is 0xFF, expected UTF-8;")])
def test_an_editor_that_leaves_no_text_leaves_the_message(chat, stories, tmp_path, script, says):
    editor = tmp_path / "edit.sh"
    editor.write_text(f"#!/bin/sh\n{script}\n")
    editor.chmod(0o700)
    c = chat("-m", stories, *PLAIN, "-n", 8, env={"VISUAL": str(editor), "TMPDIR": str(tmp_path)})
    c.p.send("dear words\x18\x05")
    c.p.expect_exact(says)
    c.p.expect("dear words$")
    left = [p for p in tmp_path.iterdir() if p.name.startswith(".hokku")]  # what was written is not thrown away
    assert len(left) == (not script.startswith("rm")) and all(p.read_bytes().startswith(b"a") for p in left)


def test_prompts_of_ones_own_come_first_and_are_completed(chat, hokku, home, tiny, tmp_path):
    d = tmp_path / "config/hokku/prompts"
    d.mkdir(parents=True)
    (d / "mine.txt").write_text("# A heading\nYou are mine.\n")
    (d / "haiku.txt").write_text("Not a haiku.\n")
    c = chat("-m", tiny, "-n", 2, "-sys", "@mine")
    assert re.search("# A heading\r?\n *You are mine.", c.say("/system"))  # (only what comes with hokku has comments)
    c.say("/system @haiku")
    assert "Not a haiku." in c.say("/system")
    c.say("/system @coder")
    out = c.say("/system")
    assert "You are an experienced programmer" in out and "#" not in out
    c.p.send("/system @mi\t\r")
    c.ready()
    assert "You are mine." in c.say("/system")
    assert b"@mine" in hokku("--complete", "prompts").stdout
    os.chmod(d / "mine.txt", 0o666)
    r = hokku("-m", tiny, "-sys", "@mine", "hi")
    assert r.returncode != 0 and b"mine.txt: refused" in r.stderr
    r = hokku("-m", tiny, "-sys", "@nope", "hi")
    assert r.returncode == 2 and b"@mine" in r.stderr and b"@coder" in r.stderr


def test_a_prompt_of_ones_own_hides_none_whose_name_its_own_begins_with(hokku, tiny, tmp_path):
    d = tmp_path / "config/hokku/prompts"
    d.mkdir(parents=True)
    for name in ("coder-rust", "haiku"):
        (d / f"{name}.txt").write_text("Mine.\n")
    names = hokku("--complete", "prompts").stdout.split(b"\0")[:-1]
    assert {b"@coder", b"@coder-rust"} < set(names) and names.count(b"@haiku") == 1
    r = hokku("-m", tiny, "-sys", "@nope", "hi")
    assert {b"@coder", b"@coder-rust"} < set(r.stderr.split(b"there are ")[1].strip().split(b", "))


def test_a_prompt_of_ones_own_may_have_any_name_that_a_session_may_have(hokku, chat, tiny, tmp_path):
    d = tmp_path / "config/hokku/prompts"
    d.mkdir(parents=True)
    for name in ("Review", "code.review-2", "Ü", "N" * 100):
        (d / f"{name}.txt").write_text("Mine.\n")
        r = hokku("-m", tiny, "-n", 1, "-sys", "@" + name, "hi")
        assert r.returncode == 0, r.stderr
        assert b"@" + name.encode() in hokku("--complete", "prompts").stdout.split(b"\0")
    for name in ("two words", "N" * 101, ".hidden", "", "../prompts/Review"):
        if "/" not in name:
            (d / f"{name}.txt").write_text("Mine.\n")
        r = hokku("-m", tiny, "-n", 1, "-sys", "@" + name, "hi")
        assert r.returncode == 2 and b"expected 1 to 100 bytes: letters, digits, '_', '-' or '.', not beginning with '.'" in r.stderr, r.stderr
        listed = r.stderr.split(b"there are ")[1].strip().split(b", ")
        assert b"@Review" in listed and b"@" + name.encode() not in listed
    assert "system prompt set" in chat("-m", tiny, "-n", 1).say("/system @Review")


def test_the_prompts_there_are_come_in_the_order_of_their_names(hokku, tiny, tmp_path):
    """Ones own before those that come with hokku."""
    d = tmp_path / "config/hokku/prompts"
    d.mkdir(parents=True)
    own = [f"{c}-own" for c in "gcahbfed"]
    for name in own:
        (d / f"{name}.txt").write_text("Mine.\n")
    listed = hokku("-m", tiny, "-sys", "@nobody", "hi").stderr.split(b"there are ")[1].decode().strip().replace("@", "").split(", ")
    shipped = sorted(p.stem for p in (ROOT / "prompts").glob("*.txt"))
    assert listed == sorted(own) + shipped


@pytest.mark.parametrize("name", ["n" * 101, "漢" * 34])
@pytest.mark.parametrize("option,mark", [("--session", ""), ("-sys", "@")])
def test_a_name_that_is_too_long_is_cut_between_characters_and_seen_to_be(hokku, tiny, option, mark, name):
    """In bytes: the name of a file has 255 of them."""
    r = hokku("-m", tiny, "-n", 1, option, mark + name, "hi")
    assert r.returncode == 2 and b"expected 1 to 100 bytes: letters," in r.stderr, r.stderr
    shown = re.search(f"({name[0]}+)\\.\\.\\.", r.stderr.decode()).group(1)
    assert 30 <= len(shown) <= 100


def test_a_prompt_of_ones_own_with_a_nul_byte_is_refused(hokku, chat, tiny, tmp_path):
    """What stands around a message would end there."""
    d = tmp_path / "config/hokku/prompts"
    d.mkdir(parents=True)
    (d / "half.txt").write_bytes(b"Say {{input}}\0, and explain.\n")
    r = hokku("-m", tiny, "-n", 1, "-sys", "@half", "hi")
    assert r.returncode == 2 and b"@half: byte 14 is 0x00, expected text" in r.stderr and not r.stdout, r
    c = chat("-m", tiny, "-n", 1)
    assert "@half: byte 14 is 0x00, expected text" in c.say("/system @half") and "(no system prompt)" in c.say("/system")


def test_settings_say_what_they_did_and_speak_of_themselves(chat, stories):
    c = chat("-m", stories, *PLAIN, "-n", 4)
    assert "temp 0.5" in c.say("/set temp 0.5")
    out = c.say("/set temp x")
    assert 'hokku: temp: found "x"' in out and "--temp" not in out
    assert 'stop "END" "two words"' in (c.say("/set stop END"), c.say("/set stop two words"))[1]
    assert "stop off" in c.say("/set stop off")
    assert 'stop " two  words "' in c.say('/set stop " two  words "')  # as it is said, so it may be typed
    refused = c.say('/set stop ""')  # as of -r ""
    assert 'stop: found "", expected a text; /set stop off forgets all' in refused
    assert c.say("/set stop").rstrip().endswith('stop " two  words "')
    assert 'stop " two  words " """"' in c.say('/set stop """"')  # a text of two quotes is quoted itself
    assert re.search(r'\nstop +" two  words "', c.say("/set"))
    c.p.send("/set sto\t")
    c.p.expect_exact("/set stop ")
    c.say("none")
    assert re.search(r"\nstop +off", c.say("/set"))
    assert c.say('/set stop "a b"  "" "c"').rstrip().endswith("/set stop off forgets all") and re.search(r"\nstop +off", c.say("/set"))
    assert c.say('/set stop "a b"  "c"').rstrip().endswith('\nstop "a b" "c"') and "stop off" in c.say("/set stop off")
    assert 'hokku: think: found "maybe", expected one of default|on|off|hide' in c.say("/think maybe")
    assert "think hide" in c.say("/think hide").replace("/think hide", "") and "think hide" in c.say("/think").replace("/think", "", 1)
    c.say("/set n-predict 1")
    assert "(cut after 1 token, as n-predict says" in c.say("One")
    assert 'hokku: think: found "maybe", expected one of default|on|off|hide' in c.say("/set think maybe")
    assert "/think [default|on|off|hide]" in c.say("/help")
    assert "hokku: @nope: no such system prompt" in c.say("/system @nope")
    assert "hokku: schema: line 1, column 1" in c.say("/set schema {")


@pytest.mark.parametrize("word", ["off", "none"])
def test_one_word_clears_every_setting_that_may_be_without_a_value(chat, stories, word):
    c = chat("-m", stories, *PLAIN, "-n", 4)
    for name, value in ("stop", "END"), ("logit-bias", "7+1.5"), ("schema", '{"type":"integer"}'):
        shows = rf"\n{name} +%s\r?\n"
        assert re.search(shows % "off", c.say("/set"))
        c.say(f"/set {name} {value}")
        assert not re.search(shows % "off", c.say("/set"))
        assert re.search(rf"{name} +off\b", c.say(f"/set {name} {word}"))
        assert re.search(shows % "off", c.say("/set"))
    c.say("/system Be kind.")
    assert "no system prompt" in c.say(f"/system {word}")
    assert f'stop "{word}"' in c.say(f'/set stop "{word}"')  # in quotes it is a text
    assert "expected TOKEN_ID" in (out := c.say("/set logit-bias -")) and "/set logit-bias off forgets all" in out
    assert "/set schema off leaves answers free" in c.say("/set schema -")
    said = c.say("/help")
    assert "[TEXT|@NAME|off]" in said and "off clears" in said


def test_a_stop_text_set_in_the_chat_stops(chat, hokku, stories):
    whole = hokku("-m", stories, *PLAIN, "-n", 12, "Once upon a time").stdout.decode()
    word = whole.split()[2]
    c = chat("-m", stories, *PLAIN, "-n", 12)
    c.say(f"/set stop {word}")
    assert c.answer("Once upon a time").strip() == whole[:whole.index(word)].strip()
    assert "the answer is finished" in c.say("/continue")


def test_as_many_stop_texts_as_at_first_can_be_set_when_they_were_forgotten(chat, stories):
    c = chat("-m", stories, *PLAIN, "-n", 4)
    for i in range(64):
        c.say(f"/set stop t{i}")
    assert "no more than 64 stop texts; /set stop off forgets them" in c.say("/set stop more")
    assert "stop off" in c.say("/set stop off")
    assert 'stop "more"' in c.say("/set stop more")


def test_a_stop_text_comes_back_with_the_settings_that_undo_brings_back(chat, hokku, stories):
    assert hokku("-m", stories, *PLAIN, "-n", 4, "--session", "other", "x").returncode == 0
    c = chat("-m", stories, *PLAIN, "-n", 4, "-r", "given")
    c.say("Once upon a time")
    c.say("/set stop first")
    c.say("/load other")
    assert "stop off" in c.say("/set stop off")
    assert 'stop "other"' in c.say("/set stop other")  # (of the same length: where the first one was, had it gone)
    c.say("/undo")
    assert re.search(r'\nstop +"given" "first"', c.say("/set"))
    c.say("/redo")
    assert re.search(r'\nstop +"other"', c.say("/set"))


def test_a_chat_begins_with_all_of_a_file_and_edits_nothing_less(chat, hokku, tiny, tmp_path):
    (tmp_path / "nul.txt").write_bytes(b"before\0behind it\n")
    args = ["-m", tiny, "-n", 3, "--temp", 0, "-f", tmp_path / "nul.txt"]
    one = json.loads(hokku(*args, "--json").stdout)
    c = chat(*args, "-cnv", "--session", "s")
    assert f"{one['prompt_tokens'] + one['generated_tokens']} of " in c.say("/context")
    assert "the message of turn 1 has a NUL byte, which a line cannot have" in c.say("/edit")
    assert c.leave() == 0
    assert b"before\0behind it\n" in hokku("sessions", "export", "s", "-").stdout


def test_a_chat_that_begins_with_a_file_stays_open(home, tiny, tmp_path):
    from test_repl import Chat
    (tmp_path / "notes.txt").write_text("my notes\n")
    c = Chat(home, "-m", tiny, "-n", 3, "-cnv", "-f", tmp_path / "notes.txt")
    assert "my notes" in c.say("/context")
    c.say("more")
    assert c.leave() == 0


def test_sessions_are_renamed_and_removed_from_the_chat(chat, tiny, tmp_path):
    c = chat("-m", tiny, "-n", 2, "--session", "a")
    c.say("hi")
    c.say("/fork b")
    assert "session a has that name already" in c.say("/rename a a")
    assert "this is session b: choose another name for a" in c.say("/rename a b")
    assert "(a is now c)" in c.say("/rename a c")
    assert "this is session b" in c.say("/delete b")
    assert "(session c is removed)" in c.say("/delete c")
    for command in ("/delete c", "/rename c d", "/load c"):
        assert "there is no session c; /sessions lists them" in c.say(command)


@pytest.mark.parametrize("n", [8, -1], ids=["cut", "finished"])
def test_the_counts_of_all_commands_agree_and_have_their_thousands_separated(chat, n):
    """The tokens of the memory, by /context, /stats, /sessions, /undo and /clear; the system prompt is no turn's."""
    builtin = ROOT / "builtin/hokku-builtin.gguf"
    c = chat("-m", builtin, "--temp", 0, "-n", n, "-c", 4096, "-sys", "Be brief.", "--session", "counts")
    number = lambda pattern, text: int(re.search(pattern, text).group(1).replace(",", ""))
    used = []
    for message in ("Who are you? " * 200, "Hello"):
        c.say(message)
        context = c.say("/context")
        used.append(number(r"([\d,]+) of 4,096 tokens used, [\d,]+ left", context))
        assert used[-1] == number(r"context ([\d,]+) of 4,096", c.say("/stats"))
        assert used[-1] == number(r"turns?, ([\d,]+) tokens", c.say("/sessions"))
        parts = [int(x.replace(",", "")) for x in re.findall(r"^ +(?:start|\d+) +([\d,]+)", context, re.M)]
        assert sum(parts) == used[-1] and parts[0] < 20
    assert used[0] > 1000
    assert number(r"turn 1; ([\d,]+) tokens freed", c.say("/undo")) == used[1] - used[0]
    assert number(r"start; ([\d,]+) tokens freed", c.say("/undo")) == used[0]
    c.say("/redo 2")
    c.say("/retry 5")
    again = number(r"([\d,]+) of 4,096 tokens used", c.say("/context"))
    assert number(r"cleared; ([\d,]+) tokens freed", c.say("/clear")) == again


def test_the_counts_agree_also_where_the_memory_has_to_read_again_what_came_back(chat):
    builtin = ROOT / "builtin/hokku-builtin.gguf"
    c = chat("-m", builtin, "--temp", 0)
    number = lambda pattern, text: int(re.search(pattern, text).group(1).replace(",", ""))
    used = [0]
    for message in ("Who are you?", "Hello", "What can you do?"):
        c.say(message)
        used.append(number(r"(\d+) of 1,024 tokens used", c.say("/context")))
    c.say("/undo 3")
    assert number(r"context (\d+) of", c.say("/stats")) == 0
    c.say("/redo 3")
    assert number(r"context (\d+) of", c.say("/stats")) == used[3]
    assert number(r"turn 2; (\d+) tokens freed", c.say("/undo")) == used[3] - used[2]
    c.say("/redo")
    assert number(r"cleared; (\d+) tokens freed", c.say("/clear")) == used[3]
    c.say("/undo")
    assert number(r"turn 1; (\d+) tokens freed", c.say("/undo 2")) == used[3] - used[1]
    c.say(f"/model {builtin}")  # reads all anew
    left = number(r"(\d+) of 1,024 tokens used", c.say("/context"))
    assert left > 20 and number(r"start; (\d+) tokens freed", c.say("/undo")) == left


def test_a_conversation_longer_than_the_context_is_not_said_to_be_in_it(chat):
    c = chat("-m", ROOT / "builtin/hokku-builtin.gguf", "-c", 64, "--overflow", "shift", "--ignore-eos", "-n", 100, "-s", 1)
    c.say("Who are you?")
    assert "114 tokens, the context holds 64" in c.say("/context")
    in_memory = int(re.search(r"context (\d+) of 64", c.say("/stats")).group(1))
    assert 1 < in_memory <= 64
    assert f"start; {in_memory} tokens freed" in c.say("/undo")


def test_tab_completes_names_as_read_takes_them(chat, tiny, tmp_path):
    (tmp_path / "a b.txt").write_text("text")
    (tmp_path / "it's.txt").write_text("text")
    (tmp_path / "my dir").mkdir()
    (tmp_path / "my dir/inner.txt").write_text("text")
    (tmp_path / "two one").write_text("text")
    (tmp_path / "two'one").write_text("text")
    c = chat("-m", tiny, "-n", 2)
    for typed, want in [("~/a\t", "~/a\\ b.txt "), (f"{tmp_path}/it\t", "it\\'s.txt "), ("~/my\t\t", "~/my\\ dir/inner.txt "),
                        ("~/my\\ d\t\t", "~/my\\ dir/inner.txt "), ("~/two\t\\ \t", "~/two\\ one ")]:
        c.p.send("/read " + typed)
        c.p.expect_exact(want.rstrip())
        assert "(4 bytes of " in c.say(""), typed
