"""The line editor on terminals of every size: the screen shows what was typed, and the message is what was typed."""
import os
import pathlib
import random
import subprocess
import time

import pytest
from conftest import BUILD, HOKKU, ROOT
from terminal import Terminal, Tmux, printed

CLI = BUILD / "tests/unit/lineedit_cli"
WIDE = "古池や蛙飛びこむ水の音"
FAMILY, FLAGS, MARKS = "👨\u200d👩\u200d👧", "🇯🇵🇫🇷", "e\u0301o\u0308 n\u0303"
PROSE = "The quick brown fox jumps over the lazy dog, and the dog, being lazy, sleeps on until the rain begins. "
TEXTS = {
    "short": "hello",
    "prose": PROSE * 3,
    "lines": "one\ntwo\n\nfour and a half\n",
    "wide": WIDE * 6,
    "mixed": f"a{WIDE}b {FAMILY} x {FLAGS} {MARKS}\n{PROSE}{FAMILY}{WIDE}\nend",
    "exact": "x" * 18 + "\n" + "y" * 20 + "\n" + "z" * 40,
    "code": "".join(f"    if (x[{i}] > {i}) {{ return {i}; }}\n" for i in range(30)),
}
SIZES = [(20, 1), (20, 4), (21, 40), (33, 3), (40, 12), (79, 24), (80, 24), (120, 2), (200, 40)]


class Editor(Terminal):
    def __init__(self, tmp_path, cols=80, rows=24, prompt="> ", initial="", plain=False, before=(), expect=None, **kw):
        self.log = tmp_path / "log"
        command = [CLI, self.log, prompt, initial] + (["plain"] if plain else [])
        if before:
            quoted = " ".join(f"'{c}'" for c in command)
            command = ["/bin/sh", "-c", "".join(f"echo '{b}';" for b in before) + f"exec {quoted}"]
        super().__init__(list(map(str, command)), cols, rows, **kw)
        assert self.wait(lambda: self.raw)  # the terminal is the editor's: it echoes no more by itself
        if cols >= 4:
            assert self.wait(lambda: any(self.screen.rows()[y].startswith((expect or prompt).strip()) for y in range(rows)))

    def messages(self, n=1):
        """(how it ended, the text) of the first n messages."""
        def read():
            lines = self.log.read_text().split("\n")[:-1] if self.log.exists() else []
            return [(l.split(" ")[0], bytes.fromhex(l.split(" ")[2]).decode()) for l in lines]
        self.wait(lambda: len(read()) >= n)
        return read()

    def paste(self, text):
        self.send("\x1b[200~" + text.replace("\n", "\r") + "\x1b[201~")


@pytest.fixture
def editor(tmp_path):
    open_ones = []

    def start(*args, **kw):
        open_ones.append(Editor(tmp_path, *args, **kw))
        return open_ones[-1]
    yield start
    for e in open_ones:
        e.close()


# ------------------------------------------------------------------------------------------- screen


@pytest.mark.parametrize("cols,rows", SIZES)
@pytest.mark.parametrize("name", TEXTS)
def test_the_screen_shows_what_was_pasted_and_the_message_is_it(editor, name, cols, rows):
    text = TEXTS[name]
    e = editor(cols, rows)
    e.paste(text)
    e.shows(printed("> " + text, cols, rows))
    e.send("\r")
    assert e.messages() == [("text", text)]


@pytest.mark.parametrize("cols,rows", [(20, 3), (40, 12), (80, 24)])
def test_typed_one_by_one_or_at_once_it_looks_the_same(editor, cols, rows):
    text = TEXTS["mixed"]
    e = editor(cols, rows)
    e.send(text.replace("\n", "\x1b\r"), step=1, pause=0.001)
    e.shows(printed("> " + text, cols, rows))


@pytest.mark.parametrize("cols,rows", [(1, 1), (1, 5), (2, 3), (3, 1), (4, 4), (7, 100), (400, 2)])
def test_tiny_and_huge_windows(editor, cols, rows):
    text = "abcdefghij\nklm"
    e = editor(cols, rows)
    e.paste(text)
    e.shows(printed("> "[2 - min(2, cols // 2):] + text, cols, rows))
    e.send("\x01\x7f\x7f\x7f\r")
    assert e.messages() == [("text", "abcdefghklm")]


@pytest.mark.parametrize("joins", [True, False])
def test_emoji_whose_width_differs_leave_the_text_beside_them_whole(editor, joins):
    e = editor(40, 6)
    e.screen.joins = joins
    e.send(f"a{FAMILY}bcd{FAMILY}{FAMILY}e")
    e.send("\x1b[D" * 3 + "\x7fX")  # before the second family
    e.pump(0.3)
    y, x = e.screen.cursor.y, e.screen.cursor.x
    cells = e.screen.buffer[0]
    assert "".join(cells[i].data for i in (2, 9, 10, 11, 24)) == "abcXe" and (y, x) == (0, 12)
    assert all(cells[i].data.startswith("👨") for i in (3, 12, 18))
    e.send("\r")
    assert e.messages() == [("text", f"a{FAMILY}bcX{FAMILY}{FAMILY}e")]


HEART = "\u2764\ufe0f"


def test_an_emoji_that_is_erased_after_a_full_row_leaves_the_row_whole(editor):
    e = editor(80, 6)
    for keys in ("a" * 77 + "b", HEART, "\x7f", "x"):
        e.send(keys)
        e.pump(0.1)
    e.shows(printed("> " + "a" * 77 + "bx", 80, 6))


@pytest.mark.parametrize("last", ["b", "古"])
@pytest.mark.parametrize("emoji", [HEART, "🇯🇵", FAMILY], ids=["heart", "flag", "family"])
def test_an_emoji_that_is_pushed_into_the_row_below_leaves_the_full_rows_above_it_whole(editor, emoji, last):
    e = editor(20, 8)
    first = "a" * 16 + last if last == "古" else "a" * 17 + last
    e.send(first + emoji + "\x1b[D")
    for n in range(1, 31):
        letters = "cdefghijklmnopqrstuvwxyzABCDEFG"[:n]
        e.send(letters[-1])
        e.pump(0.02)
        def above_is_whole():
            text = "\n".join(e.screen.rows())
            return e.screen.rows()[0] == "> " + first and text.replace("\n", "").split(emoji[0])[0] == "> " + first + letters
        assert e.wait(above_is_whole, 5), e.screen.rows()
    e.send("\r")
    assert e.messages() == [("text", first + letters + emoji)]


def test_random_keys_leave_the_screen_as_the_text_says(editor):
    """Against an editor that is a list and an index, at a size where everything wraps and scrolls."""
    rng = random.Random(3)
    pieces = ["a", "bc", " ", "古", "é", "\n", "e\u0301", FAMILY, "🇯🇵", "word "]
    for cols, rows in [(20, 6), (23, 30), (41, 3)]:
        e = editor(cols, rows, plain=True)
        text, at = [], 0
        for step in range(120):
            key = rng.randrange(8)
            if key < 4:
                p = rng.choice(pieces)
                units = list(p) if len(p) > 1 and p.isascii() else [p]
                text[at:at] = units
                at += len(units)
                e.send(p.replace("\n", "\x1b\r"))
            elif key == 4 and at:
                at -= 1
                e.send(rng.choice(["\x1b[D", "\x02"]))
            elif key == 5 and at < len(text):
                at += 1
                e.send(rng.choice(["\x1b[C", "\x06", "\x1bOC"]))
            elif key == 6 and at:
                at -= 1
                del text[at]
                e.send("\x7f")
            elif key == 7 and at < len(text):
                del text[at]
                e.send("\x1b[3~")
            if step % 10 == 9 and rows == 30:
                want, _ = printed("> " + "".join(text), cols, rows)
                _, cursor = printed("> " + "".join(text[:at]), cols, rows)
                e.shows((want, cursor))
            elif step % 10 == 9:  # scrolled or not, what is around the cursor is what the text says
                e.pump(0.1)
                want, _ = printed("> " + "".join(text), cols, 200)
                _, (y, x) = printed("> " + "".join(text[:at]), cols, 200)
                def around():
                    (have, (cy, cx)) = e.screen.state()
                    return cx == x and have == (want + [""] * rows)[y - cy:y - cy + rows]
                assert e.wait(around, 5), (e.screen.state(), want, (y, x))
        e.send("\x1b>\r")
        assert e.messages() == [("text", "".join(text))]
        e.close()


def test_a_paste_taller_than_the_window_scrolls_and_is_whole_in_the_end(editor):
    text = "".join(f"pasted line number {i}\n" for i in range(1, 201))
    e = editor(40, 12, before=["above 1", "above 2"])
    e.paste(text)
    e.shows(printed("> " + text, 40, 12))
    e.send("\x1b[A" * 5 + "X")
    e.wait(lambda: "Xpasted line number 196" in e.screen.rows())
    e.send("\x1b<")  # the beginning of the message
    assert e.wait(lambda: e.screen.rows()[0] == "> pasted line number 1")
    assert e.screen.rows()[11] == "pasted line number 12" and e.screen.state()[1] == (0, 2)
    e.send("\x1b[B" * 11)
    assert e.wait(lambda: e.screen.state()[1] == (11, 2))
    e.send("\x1b[6~" * 3)
    e.wait(lambda: e.screen.rows()[11] == "pasted line number 45")
    before = len(e.raw)
    e.send("\r")
    want = text.replace("pasted line number 196\n", "Xpasted line number 196\n")
    assert e.messages() == [("text", want)]
    e.pump(0.2)
    left = e.raw[before:]
    assert all(left.count(f"line number {i}\r\n") == 1 for i in range(1, 190))  # the scrollback has all of it, once


def test_ten_megabytes_pasted_do_not_hang(editor):
    text = (PROSE + "\n") * 100_000
    e = editor(80, 24)
    begin = time.time()
    e.paste(text)
    e.shows(printed("> " + text[-5000:], 80, 24), 60)
    e.send("\x1b[A\x1b[Ax\x7f")
    e.pump(0.5)
    e.send("\r")
    assert e.messages() == [("text", text)]
    assert time.time() - begin < 60


@pytest.mark.parametrize("keys", ["\x03", "\x07"])
def test_a_paste_that_never_ends_does_not_take_the_keyboard(editor, keys):
    e = editor()
    e.send("\x1b[200~never ended" + keys)
    if keys == "\x07":
        e.pump(0.3)
        e.send("\x03")
    e.pump(0.3)
    e.send("again\r")
    assert e.messages(2) == [("interrupt", ""), ("text", "again")]


def test_what_is_pasted_is_text_whatever_it_holds(editor):
    text = "tab\there \x03\x04\x1a\x1c \x1b]0;title\x07 \x7f \u202eevil \x9b31m"
    e = editor(100, 10)
    e.paste(text)
    e.wait(lambda: "evil" in e.screen.rows()[0])
    assert e.screen.rows()[0] == "> tab   here ␃␄␚␜ ␛]0;title␇ ␡ <U+202E>evil <U+009B>31m"
    assert "\x1b]0" not in e.raw
    e.send("\r")
    assert e.messages() == [("text", text)]


def test_input_that_is_not_utf8_is_shown_as_such(editor):
    e = editor()
    os.write(e.p.child_fd, b"caf\xe9 \xff ok")
    e.shows(printed("> caf\ufffd \ufffd ok", 80, 24))
    e.send("\r")
    assert e.messages() == [("text", "caf\ufffd \ufffd ok")]


# ------------------------------------------------------------------------------------------- resizing


RESIZES = [(60, 24), (25, 24), (25, 8), (100, 30), (20, 3), (80, 24)]


@pytest.mark.parametrize("name,answers", [("prose", True), ("lines", True), ("wide", True), ("exact", True), ("prose", False)])
@pytest.mark.parametrize("keys", ["", "\x01", "\x1b[D" * 7], ids=["end", "home", "left"])
def test_resized_a_terminal_that_keeps_its_rows_shows_each_line_once(editor, name, answers, keys):
    text = TEXTS[name]
    e = editor(80, 24, before=["above 1", "above 2"], answers=answers)
    e.paste(text)
    e.shows(printed("above 1\nabove 2\n> " + text, 80, 24))
    e.send(keys)
    e.pump(0.3)
    e.resize(60, 24)
    e.send("X")
    want = {"": text + "X", "\x01": text[:text.rfind("\n") + 1] + "X" + text[text.rfind("\n") + 1:]}.get(keys)
    if want is None:
        want = text[:-7] + "X" + text[-7:]
    if not answers:  # it is taken for one that wraps lines anew; only nothing may be lost
        e.pump(1.5)
        assert "\n".join(printed("> " + want, 60, 24)[0]).strip() in "\n".join(e.screen.rows())
    else:
        rows, _ = printed("above 1\nabove 2\n> " + want, 60, 24)
        assert e.wait(lambda: e.screen.rows() == rows), "\n".join(e.screen.rows())
        for cols, lines in RESIZES[1:]:
            e.resize(cols, lines)
            e.pump(0.2)
            body = "\n".join(printed("> " + want, cols, 100)[0]).rstrip("\n")

            def shows_it_once(body=body):
                shown = "\n".join(e.screen.rows()).rstrip("\n")
                return shown.count(body) == 1 and shown.endswith(body)
            if body.count("\n") < lines:
                assert e.wait(shows_it_once), (cols, lines, e.screen.rows())
    e.send("\r")
    assert e.messages() == [("text", want)]


@pytest.fixture
def tmux(tmp_path):
    open_ones = []

    def start(cols, rows):
        log = tmp_path / "log"
        t = Tmux(f"sh -c \"echo above 1; echo above 2; {CLI} {log} '> ' '' plain; sleep 9\"", cols, rows)
        open_ones.append(t)
        assert t.wait(lambda: t.screen()[-1:] == [">"])
        return t
    yield start
    for t in open_ones:
        t.close()


@pytest.mark.parametrize("name", ["prose", "lines", "wide", "exact", "code"])
def test_resized_a_terminal_that_wraps_anew_shows_each_line_once(tmux, tmp_path, name):
    text = TEXTS[name].strip()
    t = tmux(80, 40)
    t("load-buffer", "-", input=text)
    t("paste-buffer", "-p")
    assert t.wait(lambda: text[-5:] in t.screen()[-1])
    for cols, rows in [(60, 40), (33, 40), (20, 40), (61, 40), (200, 40), (80, 12), (80, 40)]:
        t.resize(cols, rows)
        want = ["above 1", "above 2"] + "\n".join(printed("> " + text, cols, 200)[0]).rstrip("\n").split("\n")
        # tmux moves what is above into its history, and back. What it has moved there of a line of several rows it wraps on its
        # own when the width changes again: then only the window is compared, and that nothing above it is lost.
        everything = lambda: t.screen("-S", "-")
        if name in ("prose", "wide"):
            right = lambda: t.screen() == want[-len(t.screen()):] and everything()[:2] == want[:2]
        else:
            right = lambda: everything() == want
        assert t.wait(right, 5), f"{cols}x{rows}:\n" + "\n".join(everything()) + "\n--- expected:\n" + "\n".join(want)
        time.sleep(0.3)  # for the program to have seen this size, and to check that it stays so
        assert right(), "\n".join(everything())
    # What is copied is the text: lines that the terminal broke are whole.
    joined = t.joined()
    if name in ("code", "lines"):
        assert [l.rstrip() for l in joined.strip().split("\n")][-len(text.split("\n")):] == ("> " + text).split("\n")


def test_ctrl_z_and_fg_show_the_message_again(tmp_path):
    e = Terminal(["bash", "--norc", "--noprofile", "-i"], 60, 12, env={"PS1": "SHELL "})
    try:
        e.send(f"{CLI} {tmp_path}/log '> '\n")
        e.wait(lambda: e.screen.rows()[e.screen.cursor.y] == ">")
        e.send("two\x1b\rlines")
        e.wait(lambda: e.screen.rows()[e.screen.cursor.y] == "lines")
        e.send("\x1a")
        assert e.wait(lambda: any("Stopped" in r for r in e.screen.rows()))
        e.send("fg\n")
        assert e.wait(lambda: e.screen.rows()[e.screen.cursor.y - 1:e.screen.cursor.y + 1] == ["> two", "lines"])
        e.send(" more\r")
        assert e.wait(lambda: (tmp_path / "log").read_text().startswith("text 0 " + "two\nlines more".encode().hex()))
    finally:
        e.close()


# ------------------------------------------------------------------------------------------- keys


@pytest.mark.parametrize("keys,want", [
    ("one two three\x17\x17X", "one X"),
    ("one two\x1bbX", "one Xtwo"),
    ("one\x01X\x05Y", "XoneY"),
    ("one\x1b\rtwo\x01X", "one\nXtwo"),
    ("one\x1b\rtwo\x1b[AX", "oXne\ntwo"),
    ("one\x1b\rtwo\x1b[A\x1b[BX", "one\ntwoX"),
    ("abcdef\x1b\rgh\x1b\rijklmn\x1b[D\x1b[A\x1b[AX", "abcXdef\ngh\nijklmn"),  # Up keeps the column past a shorter line
    ("one two\x01\x0b\x19\x19", "one twoone two"),
    ("ab\x14", "ba"),
    ("one\x15two\x1f\x1f", "one"),
    ("abc\x1b[D\x1b[3~", "ab"),
    ("abc\x02\x04", "ab"),
    ("\x16\x01x", "\x01x"),
    ("one two\x1b[1;5D\x1b[1;5DX", "Xone two"),
    ("one\x1b[13;2utwo", "one\ntwo"),
    ("a古b\x02\x02\x7f", "古b"),
    (FAMILY + "x\x02\x7f", "x"),
    ("\x1b[A", "the newest entry"),
    ("\x1b[A\x1b[A", "two\nlines"),
    ("\x1b[A\x1b[A\x1b[AX", "twoX\nlines"),          # within the message first
    ("\x1b[A\x1b[A\x1b[A\x1b[A", "the oldest entry"),
    ("draft\x1b[A\x1b[B", "draft"),
    ("draft\x1b[AX\x1b[A\x1b[B\x1b[B\x1b[A", "the newest entryX"),  # a changed entry stays changed
    ("\x12old", "the oldest entry"),
    ("\x12e\x12\x12", "the oldest entry"),
    ("\x12entry\x12\x01X", "Xthe oldest entry"),
    ("draft\x12new\x07!", "draft!"),
    ("draft\x12nothing like it\x07!", "draft!"),
    ("\x12newx\x7f\x01X", "Xthe newest entry"),
    ("/cont\tX", "/contX"),
    ("/conti\tX", "/continue X"),
    ("/r\tX", "/read X"),
])
@pytest.mark.parametrize("step,pause", [(None, 0), (1, 0.001)], ids=["at-once", "byte-by-byte"])
def test_keys_people_know(editor, keys, want, step, pause):
    e = editor()
    e.send(keys, step, pause)
    e.pump(0.05)
    e.send("\r")
    assert e.messages() == [("text", want)]


def test_a_key_whose_bytes_come_late_is_still_that_key(editor):
    e = editor()
    e.send("abc")
    e.send("\x1b[1;5D\x1b[200~X\x1b[201~\u53e4", step=1, pause=0.12)
    e.send("\r")
    assert e.messages() == [("text", "X\u53e4abc")]


def test_enter_and_what_follows_is_the_next_message(editor):
    e = editor()
    e.send("one\rtwo\rthree\r")
    assert e.messages(3) == [("text", "one"), ("text", "two"), ("text", "three")]


def test_ctrl_c_leaves_the_screen_in_order(editor):
    e = editor(30, 10)
    e.paste("some text that wraps around the edge\nand goes on")
    e.send("\x1b<\x03")
    e.shows(printed("> some text that wraps around the edge\nand goes on\n> ", 30, 10))
    e.send("\x03")
    e.shows(printed("> some text that wraps around the edge\nand goes on\n> \n> ", 30, 10))
    assert e.messages(2) == [("interrupt", ""), ("interrupt", "")]
    e.send("\x04")
    assert e.messages(3)[2] == ("end", "")


def test_ctrl_l_clears_the_screen_and_shows_the_message(editor):
    e = editor(30, 10, before=["above"])
    e.paste("one\ntwo")
    e.send("\x0c")
    e.shows(printed("> one\ntwo", 30, 10))


def test_candidates_are_listed_below_and_the_message_is_shown_again(editor):
    e = editor(40, 10)
    e.send("/con\t")
    e.shows(printed("> /cont\n/context   /continue\n> /cont", 40, 10))
    e.send("i\t")
    e.wait(lambda: "> /continue" in e.screen.rows())
    e.send("\r")
    assert e.messages() == [("text", "/continue ")]


def test_names_of_files_are_completed_and_cannot_drive_the_terminal(editor, tmp_path):
    (tmp_path / "no\x1b]0;x\x07tes").write_text("x")
    (tmp_path / "no\u00e9").write_text("x")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "inner.txt").write_text("x")
    e = editor(100, 10)
    e.send(f"/read {tmp_path}/su\t\t\r")
    e.send(f"/read {tmp_path}/no\t")
    assert e.wait(lambda: any(r.endswith("/noé") for r in e.screen.rows()))  # the other one is not offered
    assert "\x1b]0" not in e.raw and "tes" not in "".join(e.screen.rows()).replace(str(tmp_path), "")
    assert e.messages() == [("text", f"/read {tmp_path}/sub/inner.txt ")]


@pytest.mark.parametrize("typed,want", [
    ('"{}/my f', '"{}/my file\\"s.txt" '), ("'{}/my f", "'{}/my file\"s.txt' "), ('"{}/a f', '"{}/a folder/'),
    ('"{}/a folder/it', '"{}/a folder/it\'s.txt" '), ("'{}/a folder/it", "'{}/a folder/it"), ('"{}/do', '"{}/double'),
    ('"{}/my file.txt" {}/a', '"{}/my file.txt" {}/a\\ folder/'), ("it's {}/a", "it's {}/a\\ folder/")])
def test_names_begun_with_a_quote_are_completed_in_it(editor, tmp_path, typed, want):
    (tmp_path / "my file\"s.txt").write_text("x")
    (tmp_path / "a folder").mkdir()
    (tmp_path / "a folder" / "it's.txt").write_text("x")  # cannot stand between single quotes
    (tmp_path / "double 1").write_text("x")
    (tmp_path / "double 2").write_text("x")
    e = editor(200, 10)
    e.send("/read " + typed.replace("{}", str(tmp_path)) + "\t")
    e.pump(0.1)
    e.send("\r")
    want = want.replace("{}", str(tmp_path))
    assert e.messages() == [("text", "/read " + (want + " " if want.endswith("double") else want))]


def test_of_a_long_prompt_the_end_is_shown(editor):
    e = editor(24, 5, prompt="[file.txt] session> ", expect="t] session>")
    e.send("a message")
    e.shows(printed("t] session> a message", 24, 5))


# ------------------------------------------------------------------------------------------- the program


def test_the_program_needs_no_readline():
    assert "readline" not in subprocess.run(["ldd", HOKKU], capture_output=True, text=True).stdout


@pytest.mark.parametrize("term", ["dumb", ""])  # (who does not say what it is may be anything)
def test_a_dumb_terminal_gets_plain_lines_and_no_escape_sequence(home, term):
    t = Terminal([HOKKU, "-m", ROOT / "builtin/hokku-builtin.gguf", "-n", 4, "--temp", 0], 80, 24, env={**home, "TERM": term})
    try:
        at_prompt = lambda: t.screen.rows()[t.screen.cursor.y] == ">"
        assert t.wait(at_prompt)
        t.send("hello\n")
        assert t.wait(lambda: "(cut" in t.raw and at_prompt())
        t.send("/edit 1\n")
        assert t.wait(lambda: t.raw.rstrip("> \r\n").endswith("/edit 1\r\nhello") and at_prompt())  # shown, to be typed again
        t.send("half a line")
        t.send("\x03")
        assert t.wait(at_prompt)
        t.send("\x04")
        t.wait(lambda: not t.p.isalive())
        assert t.p.isalive() is False and t.p.exitstatus == 0
        assert "\x1b" not in t.raw
    finally:
        t.close()


def test_a_history_of_large_pastes_keeps_its_newest_entries(home):
    path = pathlib.Path(home["XDG_STATE_HOME"]) / "hokku/history"
    path.parent.mkdir(parents=True)
    path.write_text("x" * (20 << 20) + "\n" + "".join(f"entry {i}\n" for i in range(100)))
    t = Terminal([HOKKU, "-m", ROOT / "builtin/hokku-builtin.gguf"], 80, 24, env=home)
    try:
        assert t.wait(lambda: t.screen.rows()[t.screen.cursor.y] == ">")
        assert "history" not in t.raw
        t.send("\x1b[A")
        assert t.wait(lambda: t.screen.rows()[t.screen.cursor.y] == "> entry 99")
        t.send("\x1b[A" * 99)
        assert t.wait(lambda: t.screen.rows()[t.screen.cursor.y] == "> entry 0")
    finally:
        t.close()
    assert path.stat().st_size < 1 << 20  # what is not read is not kept for ever
