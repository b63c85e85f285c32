"""The chat in a terminal, driven as a person drives it: keys, commands, signals, what is on the screen."""
import os
import re
import signal
import subprocess
import termios
import time

import pexpect
import pytest
from conftest import HOKKU, STORY, at_work, keepers, model, wait_until
from terminal import Tmux

PLAIN = ["-no-cnv", "--temp", "0"]
WORDS = " ".join(STORY["continues"].split()[:4])  # what follows STORY["begin"]
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Chat:
    """A REPL on a pseudo-terminal. say() types a line and gives what came before the next prompt."""

    def __init__(self, env, *args, cols=200, rows=50, ready=True, command=HOKKU, **kw):
        self.p = pexpect.spawn(command, list(map(str, args)), env=env, dimensions=(rows, cols), encoding="utf-8",
                               codec_errors="replace", timeout=60, echo=True, **kw)
        self.p.delaybeforesend = None
        self.env = env
        self.first = self.ready() if ready else ""

    def ready(self):
        self.p.expect(r"(?:^|\n|\r|\x1b\[\?2004h)[^\n\r\x1b]*> (?=$)")
        return ESCAPES.sub("", self.p.before)

    def say(self, text, end="\r"):
        self.p.send(text + end)
        time.sleep(0.05)
        out = self.ready()
        return out.replace("\n\n", "\n")

    def answer(self, text):
        """The lines of the answer alone: without the echo of the line typed and without notices."""
        out = self.say(text)
        lines = out.split("\n")[1:]
        return "\n".join(l for l in lines if not l.startswith("("))

    def leave(self):
        self.p.send("\x04")
        self.p.expect(pexpect.EOF)
        self.p.close()
        return self.p.exitstatus

    def at_work(self):
        return at_work(self.p, self.env)

    def kill(self):
        """And whoever did its work has let go of it."""
        self.p.kill(signal.SIGKILL)
        self.p.wait()
        wait_until(lambda: not any(k.busy for k in keepers(self.env)))

    def lflag(self):
        return termios.tcgetattr(self.p.child_fd)[3]


@pytest.fixture
def chat(home):
    open_ones = []

    def start(*args, env=None, **kw):
        c = Chat({**home, **(env or {})}, *args, **kw)
        open_ones.append(c)
        return c

    yield start
    for c in open_ones:
        c.p.close(force=True)


@pytest.fixture
def tiny():
    return model("qwen2-tiny-q8_0")


# ------------------------------------------------------------------------------------------- typing


def test_an_answer_and_the_next_prompt(chat, stories):
    c = chat("-m", stories, *PLAIN, "-n", 12)
    assert "hokku" in c.first and "context 128" in c.first and "/help" in c.first
    assert WORDS in c.say(STORY["begin"])
    assert c.leave() == 0


def test_a_chat_has_no_json_and_says_so(chat, stories):
    c = chat("-m", stories, "--json", ready=False)
    c.p.expect(pexpect.EOF)
    c.p.close()
    assert "--json is for a prompt, a pipe, --lines or --turns" in c.p.before and c.p.exitstatus == 2, c.p.before
    assert WORDS in chat("-m", stories, *PLAIN, "-n", 12, env={"HOKKU_JSON": "1"}).say(STORY["begin"])  # (there it waits for a prompt)


@pytest.mark.parametrize("keys", ['"""one line\rand another"""', '"""\rone line\rand another\r"""', "one line\\\rand another",
                                  "one line\nand another", "one line\x1b\rand another", "one line\x1b\nand another",
                                  "\x1b[200~one line\rand another\x1b[201~"],
                         ids=["quotes", "quotes-alone", "backslash", "ctrl-j", "alt-enter", "alt-ctrl-j", "paste"])
def test_every_way_to_type_two_lines_is_one_message(chat, hokku, stories, keys):
    want = hokku("-m", stories, *PLAIN, "-n", 16, "one line\nand another").stdout.decode()
    c = chat("-m", stories, *PLAIN, "-n", 16)
    if "\r" in keys and not keys.startswith("\x1b[200") and "\x1b\r" not in keys:
        first, *rest = keys.split("\r")
        c.p.send(first + "\r")
        for part in rest[:-1]:
            c.p.expect(r"\. $")
            c.p.send(part + "\r")
        c.p.expect(r"\. $")
        out = c.say(rest[-1])
    else:
        out = c.say(keys)
    assert want.strip() in out


def test_lines_typed_while_a_command_works_are_lines_of_their_own(chat, stories, tmp_path):
    os.mkfifo(tmp_path / "slow")
    c = chat("-m", stories, *PLAIN, "-n", 3)
    c.p.send(f"/set schema @{tmp_path}/slow\r")
    time.sleep(0.3)  # it waits for the file now
    c.p.send("/set temp 0.3\r/set top-k 5\r")
    time.sleep(0.3)
    (tmp_path / "slow").write_text('{"type":"integer"}')
    c.p.expect(r"(?:\n|2004h)temp 0\.3\r\n", timeout=10)
    c.p.expect(r"(?:\n|2004h)top-k 5\r\n", timeout=10)


def test_ctrl_c_ends_the_wait_for_a_schema_that_never_comes(chat, stories, tmp_path):
    os.mkfifo(tmp_path / "never")
    c = chat("-m", stories, *PLAIN, "-n", 3)
    c.p.send(f"/set schema @{tmp_path}/never\r")
    time.sleep(0.3)
    c.p.send("\x03")
    c.p.expect_exact("(stopped)", timeout=5)
    c.ready()
    assert re.search(r"schema +off", c.say("/set"))


def test_ctrl_j_typed_slowly_is_a_line_break(chat, hokku, stories):
    want = hokku("-m", stories, *PLAIN, "-n", 16, "one\ntwo").stdout.decode()
    c = chat("-m", stories, *PLAIN, "-n", 16)
    for part in ("one", "\n", "two"):
        c.p.send(part)
        time.sleep(0.1)
    assert want.strip() in c.say("")


def test_wide_characters_are_edited_as_characters(chat, hokku, stories):
    want = hokku("-m", stories, *PLAIN, "-n", 16, "古池や 蛙").stdout.decode()
    c = chat("-m", stories, *PLAIN, "-n", 16)
    assert want.strip() in c.say("古池やxé\x7f\x7f 蛙")


def test_utf8_is_edited_as_characters_in_any_locale(chat, hokku, stories):
    want = hokku("-m", stories, *PLAIN, "-n", 16, "\u00e9\u53e4 dog").stdout.decode()
    c = chat("-m", stories, *PLAIN, "-n", 16, env={"LC_ALL": "C", "LANG": "C"})
    out = c.say("\u00e9\u53e4\u00fc\x7f dog")
    assert want.strip() in out and "\u53e4" in out


def test_tab_completes_commands_settings_choices_and_files(chat, stories, tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    c = chat("-m", stories, *PLAIN, "-n", 4)
    # what is wanted begins behind what it has in common with the line before: if both are drawn at once, the rest alone is
    for typed, want in [("/conti\t", "continue"), ("/set xtc-t\t", "xtc-threshold"), ("/set overflow dr\t", "overflow drop"),
                        ("/show tem\t", "template"), (f"/read {tmp_path}/no\t", "notes.txt"), ("/think h\t", "hide")]:
        c.p.send(typed)
        c.p.expect_exact(want)
        c.p.send("\x15")
        time.sleep(0.05)


# ------------------------------------------------------------------------------------------ commands


def test_unknown_commands_and_settings_name_the_nearest(chat, stories):
    c = chat("-m", stories, *PLAIN, "-n", 4)
    assert "did you mean /retry" in c.say("/rety")
    assert "did you mean /stats" in c.say("/stat")
    assert "unknown command /SAVE, did you mean /save" in c.say("/SAVE x") and "did you mean /help" in c.say("/Help")
    assert "did you mean temp" in c.say("/set tmep 1")
    assert "did you mean temp;" in c.say("/set temperature 1") and "did you mean n-predict" in c.say("/set max_tokens 1")
    for typed, meant in [("/regen", "/retry"), ("/new", "/clear"), ("/open x", "/read"), ("/List", "/sessions"), ("/q", "/quit"), ("/set system Be brief", "/system TEXT"),
                         ("/set parameter temperature 1", "/set NAME VALUE"), ("/set format json", "/set schema @FILE"), ("/set verbose", "/stats"),
                         ("/set model x.gguf", "/model FILE"), ("/set prefill x", "/prefill TEXT"), ("/seed 5", "/set seed"), ("/resume x", "/load"),
                         ("/ls", "/sessions"), ("/rm x", "/delete"), ("/cp x", "/fork"), ("/info", "/show"), ("/attach x", "/read"), ("/set -n 5", "n-predict")]:
        assert f", did you mean {meant};" in c.say(typed), typed
    for typed in ("/cancel", "/opne", "/stp", "/xyz"):  # that a command of as many letters is no nearer than a word is
        assert "did you mean" not in c.say(typed), typed
    for typed, option in [("/set num_ctx 4096", "--ctx-size"), ("/set ctx-size 4096", "--ctx-size"), ("/set device cpu", "--device"), ("/set session x", "--session")]:
        assert f"{option} is for the command line, where hokku starts; /set lists what the chat can change" in c.say(typed), typed
    assert "expected one of error|drop|shift" in c.say("/set overflow dorp")
    assert "takes no argument" in c.say("/stats now")
    assert "needs an argument" in c.say("/load")
    assert "/continue" in c.say("/help") and c.leave() == 0


def test_every_command_of_the_help_exists_and_says_something_sensible(chat, tiny):
    c = chat("-m", tiny, "-n", 4, "-s", 1)
    names = re.findall(r"^\s+(/\w+)", c.say("/help"), re.M)
    assert len(names) >= 20
    for n in names:
        if n != "/bye":
            assert "unknown" not in c.say(n)


@pytest.mark.parametrize("columns", [72, 80, 60, 40])
def test_the_help_breaks_lines_between_words(chat, tiny, columns):
    wide = chat("-m", tiny, "-n", 4).say("/help")
    said = chat("-m", tiny, "-n", 4, cols=columns).say("/help").replace("\r", "")
    assert [line for line in said.split("\n") if len(line) > columns and " " in line.strip()] == []
    assert said.split() == wide.split()


def test_settings_change_what_comes_next(chat, stories):
    c = chat("-m", stories, *PLAIN, "-n", 4)
    c.say("/set n-predict 9")
    assert "n-predict 9" in c.say("/set n_predict")
    assert "cut after 9 tokens" in c.say("Once upon a time")
    assert re.search(r"temp +0\b", c.say("/set"))


def test_a_seed_that_was_named_is_random_again_when_asked(chat, stories):
    c = chat("-m", stories, "-no-cnv", "-n", 2)
    seed = lambda text: int(re.search(r"seed (\d+)", text)[1])
    c.say("Once")
    c.say("/retry 7")
    assert seed(c.say("/set seed")) == 7
    drawn = {seed(c.say("/set seed random")) for _ in range(3)}
    assert len(drawn) == 3 and 7 not in drawn
    assert 'found "0", expected a number of turns, 1 or more' in c.say("/undo 0")
    assert "/set seed random" in c.say("/help")


def test_undo_redo_and_retry(chat, stories):
    c = chat("-m", stories, *PLAIN, "-n", 8, "-c", 512)
    first = c.answer("Once upon a time")
    second = c.answer("The dog")
    assert "back to turn 1" in c.say("/undo")
    assert c.answer("The dog") == second
    assert "back to the start" in c.say("/undo 2")
    assert "nothing to undo" in c.say("/undo")
    assert "2 turns brought back" in c.say("/redo 2")
    assert "nothing to redo" in c.say("/redo")
    assert "2 " in c.say("/context")
    c.say("/undo 5")
    assert c.answer("Once upon a time") == first
    c.say("/set temp 1.2")
    a, b = c.answer("/retry 7"), c.answer("/retry 8")
    assert a != b
    assert c.answer("/retry 7") == a


def test_edit_puts_the_old_text_on_the_line(chat, stories):
    c = chat("-m", stories, *PLAIN, "-n", 8, "-c", 512)
    want = c.answer("Once upon a time, Tom")
    c.say("/clear")
    c.say("Once upon a time, Lily")
    c.say("The dog")
    c.p.send("/edit 1\r")
    c.p.expect("Lily")
    assert want.split("\n")[0] in c.say("\x7f\x7f\x7f\x7fTom")
    assert " 1 " in c.say("/context") and " 2 " not in c.say("/context").split("tokens used")[0]


def test_what_began_with_a_slash_is_edited_and_no_command(chat, tiny):
    c = chat("-m", tiny, "-n", 2, "-cnv", "/clear the table")
    c.p.send("/edit\r")
    c.p.expect("the table")
    assert "cut after" in c.say(", please")
    assert "/clear the table, please" in c.say("/context")
    c.p.send("/edit\r")
    c.p.expect("please")
    assert "cleared" not in c.say("\x03") and "cleared" in c.say("/clear")


def test_three_quotes_make_a_message_of_what_begins_with_a_slash(chat, tiny):
    c = chat("-m", tiny, "-n", 2)
    assert "cut after" in c.say('"""/clear the table"""') and "cut after" in c.say('\x1b[200~"""\n/clear\nit\n"""\x1b[201~')
    for keys in ("\x1b[A", "\x1b[A\x1b[A"):  # and of what the history brings back
        assert "cut after" in c.say(keys)
    assert c.say("/context").count("/clear the table") == 1 and c.say("/context").count("/clear\u240ait") == 3
    c.p.send("/edit\r")
    c.p.expect_exact("/clear")
    assert "cut after" in c.say(", please") and "cut after" in c.say("\x1b[A") and "cleared" in c.say("/clear")


def test_continue_goes_on_exactly_where_the_answer_was_cut(chat, stories):
    c = chat("-m", stories, *PLAIN, "-n", 30)
    whole = c.answer("Once upon a time")
    c.say("/undo")
    c.say("/set n-predict 10")
    parts = [c.answer("Once upon a time"), c.answer("/continue"), c.answer("/continue")]
    assert "".join(parts).replace("\n", "") == whole.replace("\n", "")
    # with no token to go on with it is not the model that ends
    c.say("/undo")
    c.say("/set n-predict 0")
    why = "(n-predict is 0; with /set n-predict N, /continue goes on)"
    assert why in c.say("Once upon a time")
    said = c.say("/continue")
    assert why in said and "nothing to add" not in said
    c.say("/set n-predict 10")
    assert c.answer("/continue").strip() == parts[0].strip()


@pytest.mark.parametrize("args, why", [(["-n", 10], "(cut after 10 tokens, as n-predict says)"), (["-n", 0], "(n-predict is 0)"),
                                       (["-c", 32], "(cut: the context of 32 tokens is full; a larger -c, or --overflow shift)")])
def test_a_chat_of_one_turn_names_no_command_behind_its_answer(chat, stories, args, why):
    c = chat("-m", stories, *PLAIN, "-st", *args)
    c.p.send("Once upon a time\r")
    c.p.expect(pexpect.EOF)
    c.p.close()
    assert why in c.p.before and "/" not in ESCAPES.sub("", c.p.before) and c.p.exitstatus == 0, c.p.before


def test_a_start_of_the_answer_is_shown_taken_back_and_kept_for_the_answer_that_begins_with_it(chat, stories):
    c = chat("-m", stories, *PLAIN, "-n", 4, "--no-history")
    free = c.answer("Once upon a time")
    c.say("/undo")
    assert "Well then" in c.say("/prefill Well then") and "Well then" in c.say("/prefill").split("\n")[1]
    c.say("/prefill off")
    assert "Well then" not in c.say("/prefill").split("\n")[1] and c.answer("Once upon a time") == free
    c.say("/prefill Well then")
    c.say("/continue")  # goes on with the answer that is there
    assert c.answer("Once upon a time").startswith("Well then")
    c.say("/undo")
    assert not c.answer("Once upon a time").startswith("Well then")


def test_a_message_that_does_not_fit_is_refused_with_both_lengths(chat, stories):
    c = chat("-m", stories, *PLAIN, "-n", 20, "-c", 64)
    out = c.say("word " * 200)
    assert re.search(r"takes \d+ tokens and the context holds 64", out)
    assert "0 of 64 tokens used" in c.say("/context")
    c.say("Once upon a time")
    c.say("there was a dog and it")
    assert "a larger -c, /undo, /clear, /set overflow drop (forgets the oldest turns)" in c.say("and then everybody went to the very big park and they all played")
    alone = c.say("word " * 200)
    assert "without the turns before it" in alone and "shorten it" in alone and "/undo" not in alone
    c.say("/set overflow drop")
    assert "dropped the oldest" in c.say("and then everybody went to the very big park and they all played")
    assert "dropped" in c.say("/context")


@pytest.mark.parametrize("overflow, helps", [("error", "drop or shift"), ("drop", "shift")])
def test_an_answer_cut_by_the_context_names_what_is_not_set_already(chat, stories, overflow, helps):
    c = chat("-m", stories, *PLAIN, "-c", 32, "--ignore-eos", "--overflow", overflow)
    assert f"(cut: the context of 32 tokens is full; /undo, /clear, a larger -c, or /set overflow {helps})" in c.say("Once upon a time")


def test_read_puts_a_file_before_the_message(chat, hokku, stories, tmp_path):
    (tmp_path / "notes.txt").write_text("Lily had a dog.\n")
    want = hokku("-m", stories, *PLAIN, "-n", 8, "Lily had a dog.\n\nOne day").stdout.decode().strip()
    c = chat("-m", stories, *PLAIN, "-n", 8)
    assert "15 bytes" in c.say(f"/read {tmp_path}/notes.txt")
    assert want in c.say("One day")
    assert "cannot be opened" in c.say("/read /nonexistent")


def test_a_file_that_does_not_fit_is_put_aside_and_an_edit_that_fails_changes_nothing(chat, stories, tmp_path):
    (tmp_path / "big.txt").write_text("word " * 500)
    (tmp_path / "raw.bin").write_bytes(b"\xff\xfe")
    c = chat("-m", stories, *PLAIN, "-n", 8)
    c.say("Once upon a time")
    c.say("The dog")
    before = c.say("/context")
    c.say(f"/read {tmp_path}/big.txt")
    out = c.say("Summarise")
    assert "context holds 128" in out and "big.txt is no longer attached" in out
    assert c.say("/context") == before
    c.p.send("/edit 1\r")
    c.p.expect("Once upon a time")
    assert "context holds 128" in c.say(" word" * 300)
    assert c.say("/context") == before


def test_ctrl_c_at_an_empty_prompt_leaves_files_attached(chat, stories, tmp_path):
    (tmp_path / "long.txt").write_text("word")
    c = chat("-m", stories, *PLAIN, "-n", 3)
    c.say(f"/read {tmp_path}/long.txt")
    for _ in range(2):
        c.p.send("\x03")
        c.p.expect("/detach leaves files out, /help lists")
        c.ready()
    assert "no file is attached any more" in c.say("/detach")
    c.p.send("\x03")
    c.p.expect("/bye leaves, /help lists")


def test_why_shows_probabilities_that_agree_with_the_json(chat, hokku, stories):
    import json
    import math
    j = json.loads(hokku("-m", stories, *PLAIN, "-n", 5, "--json", "--logprobs", 3, "Once upon a time").stdout)
    c = chat("-m", stories, *PLAIN, "-n", 5)
    c.say("Once upon a time")
    rows = [l for l in c.say("/why 2").split("\n") if l.startswith('"')]
    assert len(rows) == 5
    for row, t in zip(rows, j["logprobs"]):
        percent = float(re.search(r"([\d.]+)%", row).group(1))
        assert abs(percent - 100 * math.exp(t["logprob"])) < 0.11


# ------------------------------------------------------------------------------------------- signals


LONG = ["-c", "30000", "--ignore-eos", "-n", "25000", "-s", "1"]


def ask_hello(p):
    """Up to where the answer follows: before that are letters, too, as of "[?2004l", which ends the reading of the line."""
    p.send("hello\r")
    p.expect(r"hello\r\n")
    p.expect(r"\x1b\[\?2004h")  # a paste now waits for the next prompt


def start_long_answer(c):
    ask_hello(c.p)
    c.p.expect(r"\w\w")
    assert not c.lflag() & termios.ICANON and not c.lflag() & termios.ECHO


def test_ctrl_c_keeps_the_partial_answer(chat, tiny):
    c = chat("-m", tiny, *LONG)
    start_long_answer(c)
    c.p.send("\x03")
    c.p.expect("stopped; /continue goes on")
    c.ready()
    used = int(re.search(r"([\d,]+) of 30,000", c.say("/context")).group(1).replace(",", ""))
    assert used > 2
    c.say("/set n-predict 5")
    assert "cut after 5" in c.say("/continue")
    assert int(re.search(r"([\d,]+) of 30,000", c.say("/context")).group(1).replace(",", "")) == used + 5


def test_ctrl_c_while_the_prompt_is_read_takes_the_message_back(chat, tiny):
    c = chat("-m", tiny, "-c", 30000, "-n", 5)
    c.p.send("\x1b[200~" + "hello world " * 2500 + "\x1b[201~")
    c.p.expect("hello world .*hello world ", timeout=60)
    time.sleep(2)
    c.p.send("\r")
    c.p.expect("reading")
    begin = time.time()
    c.p.send("\x03")
    c.p.expect("taken back")
    assert time.time() - begin < 1
    c.ready()
    assert "0 of 30,000" in c.say("/context")


def test_ctrl_c_in_the_same_write_as_enter_interrupts_the_answer(chat, tiny):
    c = chat("-m", tiny, *LONG)
    for typed in "hello\r\x03", "hello\rtyped ahead\r\x03":
        c.p.send(typed)
        c.p.expect("taken back|stopped; /continue goes on")
        c.ready()
    c.p.send("\x03")
    c.p.expect("Ctrl-D or /bye leaves")
    c.ready()
    c.say("/set n-predict 3")
    c.p.send("hi\r\x1b[200~pasted \x03\x1b[201~\r") # a key of what is pasted interrupts nothing
    c.p.expect("(?s)cut after 3.*cut after 3")
    c.ready()


def test_ctrl_c_at_the_prompt(chat, stories):
    c = chat("-m", stories, *PLAIN)
    c.p.send("\x03")
    c.p.expect("Ctrl-D or /bye leaves")
    c.ready()
    c.p.send("half a line")
    time.sleep(0.2)
    c.p.send("\x03")
    c.ready()
    assert "tokens used" in c.say("/context")
    c.p.send('"""open\r')
    c.p.expect(r"\. $")
    c.p.send("\x03")
    c.ready()
    assert "0 of 128" in c.say("/context")


def test_ctrl_d_between_quotes_loses_nothing_at_once(chat, tiny):
    c = chat("-m", tiny, "-n", 2)
    c.p.send('"""one\r')
    c.p.expect(r"\. $")
    c.p.send("\x04")
    c.p.expect_exact('(""" ends the message, Ctrl-D once more leaves)')
    c.p.expect(r"\. $")
    c.p.send('two"""\r')
    c.p.expect("cut after")
    c.ready()
    c.p.send("/edit\r")
    c.p.expect(r"one\r?\n[^\n]*two")
    c.p.send("\x03")
    c.ready()
    c.p.send('"""one\r')
    c.p.expect(r"\. $")
    c.p.send("\x04\x04")
    c.p.expect(pexpect.EOF)


def test_a_paste_that_begins_with_three_quotes_is_sent_as_it_is(chat, tiny):
    c = chat("-m", tiny, "-n", 2)
    c.p.send('\x1b[200~"""What it does."""\nimport os\x1b[201~\r')
    c.p.expect("cut after")
    c.ready()
    c.p.send("/edit\r")
    c.p.expect_exact('"""What it does."""')
    c.p.send("\x03")
    c.ready()
    c.say('\x1b[200~"""\nbetween\n"""\x1b[201~')  # but a block as it is typed is one
    c.p.send("/edit\r")
    c.p.expect(r"\x1b\[\?2004h[^\n]*> between")
    c.p.send("\x03")
    c.ready()


@pytest.mark.parametrize("keys", ['/system """Be brief.\rBe kind."""', '/system """\rBe brief.\rBe kind.\r"""', "/system Be brief.\\\rBe kind.",
                                  '/system \033[200~"""Be brief.\nBe kind."""\033[201~'])
def test_a_system_prompt_of_two_lines_is_typed_as_a_message_is(chat, tiny, keys):
    c = chat("-m", tiny, "-n", 2)
    assert "(system prompt set)" in c.say(keys)
    assert c.say("/system").replace("\r", "").endswith("/system\nBe brief.\nBe kind.\n")
    assert "(system prompt set)" in c.say('/system """"One""" of them"""')
    assert c.say("/system").rstrip().endswith('/system\n"One""" of them')


def test_a_message_taken_for_a_command_is_told_how_to_be_one(chat, tiny):
    c = chat("-m", tiny, "-n", 2)
    assert "unknown command /proc/version; /help lists them; a message takes a space before its /" in c.say("/proc/version is what?")
    assert "unknown command /hlep, did you mean /help; /help lists them" in c.say("/hlep")
    assert "cut after" in c.say(" /proc/version is what?")


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT, signal.SIGUSR1, signal.SIGALRM,
                                 signal.SIGXCPU, signal.SIGRTMIN + 3])
@pytest.mark.parametrize("when", ["typing", "answering"])
def test_the_terminal_is_restored_whatever_kills(chat, tiny, sig, when):
    c = chat("-m", tiny, *LONG)
    fresh = os.openpty()  # as the terminal was before the program, which may be faster than a look at its own
    before = termios.tcgetattr(fresh[1])[3]
    for fd in fresh:
        os.close(fd)
    assert not c.lflag() & termios.ICANON
    keep = os.open(os.readlink(f"/proc/{c.p.pid}/fd/0"), os.O_RDWR | os.O_NOCTTY)
    try:
        if when == "answering":
            start_long_answer(c)
        c.p.kill(sig)
        c.p.wait()
        until = time.monotonic() + 30  # where another process does the chat, that one restores it
        while termios.tcgetattr(keep)[3] != before and time.monotonic() < until:
            time.sleep(0.01)
        assert termios.tcgetattr(keep)[3] == before
        assert c.p.signalstatus == sig
    finally:
        os.close(keep)


def test_typing_ahead_waits_for_the_prompt(chat, tiny):
    c = chat("-m", tiny, *LONG)
    start_long_answer(c)
    c.p.send("/stats\r")
    time.sleep(0.2)
    c.p.send("\x03")
    # Ctrl-C throws away what was typed ahead, as terminals do; without it the line is run.
    c.p.expect("stopped")
    c.ready()
    c.say("/set n-predict 4000")
    c.p.send("again\r/stats\r")
    c.p.expect("cut after 4000")
    c.p.expect("decode 4,000 tokens")


def test_a_paste_during_an_answer_is_one_message(chat, tiny):
    c = chat("-m", tiny, "-c", 30000, "--ignore-eos", "-n", 2500, "-s", 1)
    c.p.send("hello\r")
    c.p.expect(r"\x1b\[\?2004h")
    time.sleep(0.3)
    c.p.send("\x1b[200~one\rtwo\rthree\x1b[201~")
    c.p.expect("cut after 2500")
    c.p.expect("three")
    c.p.send("\r")
    c.p.expect("cut after")
    c.ready()
    out = c.say("/context")
    assert "one" in out and re.search(r"\n +2 ", out) and not re.search(r"\n +3 ", out)


# ------------------------------------------------------------------------------------------- streams


def test_stdout_has_the_answers_alone_when_it_is_no_terminal(home, hokku, stories, tmp_path):
    want = hokku("-m", stories, *PLAIN, "-n", 12, "Once upon a time").stdout
    out = tmp_path / "out"
    p = pexpect.spawn("/bin/sh", ["-c", f"exec {HOKKU} -m {stories} -q -no-cnv --temp 0 -n 12 > {out}"], env=home,
                      encoding="utf-8", timeout=20)
    p.expect("> $")
    p.send("Once upon a time\r")
    p.expect("cut after")
    p.expect("> $")
    p.send("/stats\r")
    p.expect("prefill")
    p.send("/bye\r")
    p.expect(pexpect.EOF)
    assert out.read_bytes() == want + b"\n"


def test_prompts_and_notices_stay_out_of_files(home, stories, tmp_path):
    log = tmp_path / "log"
    p = pexpect.spawn("/bin/sh", ["-c", f"exec {HOKKU} -m {stories} -q -no-cnv --temp 0 -n 12 2> {log}"], env=home,
                      encoding="utf-8", timeout=20)
    p.send(STORY["begin"] + "\r")
    p.expect_exact(WORDS)
    time.sleep(0.3)
    p.send("/bye\r")
    p.expect(pexpect.EOF)
    text = log.read_text()
    assert "\x1b" not in text and "> " not in text


def test_what_is_typed_ahead_of_a_chat_without_a_line_editor_is_read(home, stories, tmp_path):
    """At any moment of the start, in steps of two milliseconds."""
    for i in range(20):
        p = pexpect.spawn("/bin/sh", ["-c", f"exec {HOKKU} -m {stories} -q -no-cnv --temp 0 -n 12 2> {tmp_path / 'log'}"], env=home,
                          encoding="utf-8", timeout=20)
        p.delaybeforesend = None
        time.sleep(0.002 * i)
        p.send(STORY["begin"] + "\r")
        p.expect_exact(WORDS)
        p.close(force=True)


ATTACKS = ["\x1b]52;c;aGVsbG8=\x07", "\x1b]8;;http://evil\x1b\\", "\x1b[2J\x1b[H", "\x1bP$qm\x1b\\", "\x9b2J", "\x1b[", "\u202eevil"]


@pytest.mark.parametrize("attack", ATTACKS, ids=["osc52", "osc8", "csi", "dcs", "c1", "unterminated", "bidi"])
def test_model_output_cannot_drive_the_terminal(home, hokku, stories, attack):
    p = pexpect.spawn(HOKKU, ["-m", stories, *PLAIN, "-n", "3", "--prefill", attack, "--color", "never", "Hello"], env=home,
                      encoding="utf-8", timeout=20, dimensions=(24, 200))
    p.expect(pexpect.EOF)
    shown = re.sub("\r\x1b\\[K(loading [^\r]*)?", "", p.before)  # the program's own, where loading takes long
    assert attack not in shown and not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e]", shown)
    # a pipe gets the exact bytes
    assert hokku("-m", stories, *PLAIN, "-n", 3, "--prefill", attack, "Hello").stdout.startswith(attack.encode())


def test_file_names_cannot_drive_the_terminal(chat, stories):
    c = chat("-m", stories, *PLAIN, "-n", 3)
    c.p.send("/read /x\x16\x1b]0;owned\x16\x07\r")  # Ctrl-V quotes
    c.p.expect("cannot be opened")
    assert "\x1b]0;" not in c.p.before


def test_a_line_longer_than_a_plain_terminal_gives_is_not_sent_in_part(chat, stories):
    c = chat("-m", stories, *PLAIN, "-n", 3, env={"TERM": "dumb"})
    c.p.send("word " * 1500 + "\r")
    c.p.expect_exact("hokku: the line is longer than the 4,095 bytes that this terminal gives")
    c.ready()
    assert "0 of 128 tokens" in c.say("/context")
    c.p.send('"""\r' + "word " * 1500 + '\r"""\r')
    c.p.expect_exact("hokku: the line is longer")
    c.ready()
    assert "0 of 128 tokens" in c.say("/context")
    assert "cut after" in c.say("word " * 15)


def test_on_a_plain_terminal_keys_that_are_no_text_are_left_out(chat, hokku, stories):
    want = hokku("-m", stories, *PLAIN, "-n", 8, "Once upon a time").stdout.decode()
    c = chat("-m", stories, *PLAIN, "-n", 8, env={"TERM": "dumb"})
    c.p.send("\x1b[DOnce \x1b[Aupon\x1bOC a\x1b]11;rgb:1e1e/1e1e/1e1e\x07 time\x1b[3~\r")
    c.p.expect_exact(want.strip(), timeout=20)


def test_no_color_means_no_color(chat, stories):
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb", "NO_COLOR": ""}):
        c = chat("-m", stories, *PLAIN, "-n", 8, env=env)
        c.p.send("Once upon a time\r")
        c.p.expect("cut after")
        assert not re.search(r"\x1b\[[0-9;]*m", c.p.before)


def test_prompt_notice_error_and_answer_look_different(home, stories):
    colors = {**home, "NO_COLOR": ""}
    c = pexpect.spawn(HOKKU, ["-m", stories, *PLAIN, "-n", "4", "-q"], env=colors, encoding="utf-8", timeout=20, dimensions=(24, 100))
    prompt = "\x1b[0;1;36m>\x1b[0m "
    c.expect_exact(prompt)
    c.send("Once\r")
    c.expect_exact(prompt)
    assert re.search(r"\x1b\[0;2m\(cut after 4 tokens[^\x1b]*\x1b\[0m\r\n", c.before), c.before
    c.send("/nope\r")
    c.expect_exact("\x1b[31mhokku:\x1b[0m unknown command /nope")
    c.close(force=True)
    c = pexpect.spawn(HOKKU, ["-m", stories, *PLAIN, "-n", "4", "-q", "--color", "always"], env=home, encoding="utf-8", timeout=20)
    c.expect_exact(prompt)  # asked for by name, it wins
    c.close(force=True)


# -------------------------------------------------------------------------------------------- screen


MIXED = ("A sentence that is longer than any of the windows, with **bold**, `code` and a word-that-does-not-fit-anywhere-at-all.\n"
         "古池や蛙飛び込む水の音、古池や蛙飛び込む水の音、古池や蛙飛び込む水の音 and 한국어 다람쥐 헌 쳇바퀴에 타고파 in one line\n"
         "family 👨‍👩‍👧 flags 🇯🇵🇫🇷 marks e\u0301 a\u0308 n\u0303 and more text so that it wraps e\u0301 and wraps\n"
         "```python\ndef f(x): return [x for x in range(100) if x % 2 == 0]  # a long line of code\n```\n\n"
         "| name | what it is, at some length |\n|:---|---:|\n| a | `x` and 古池や蛙飛び込む水の音 |\n| longer than the head | 1 |\n\nend")


@pytest.mark.parametrize("columns", [20, 37, 80, 200])
def test_what_is_copied_from_the_screen_is_what_was_written(home, stories, tmp_path, columns):
    """The lines that tmux joins again are the model's own, also after the window has changed; halfway through the answer, too."""
    text = tmp_path / "text"
    text.write_text(MIXED)
    t = Tmux(f"env HOME={home['HOME']} {HOKKU} -m {stories} -q -no-cnv --temp 0 -n 0 -c 1024 --prefill \"$(cat {text})\" begin; sleep 100", columns, 40)
    try:
        joined = lambda: [l.rstrip() for l in t.joined().split("begin\n")[-1].strip().split("\n")]
        assert t.wait(lambda: joined()[-1] == "end"), t.screen()
        for width in (columns, columns + 13, max(20, columns // 2)):
            t.resize(width, 40)
            assert t.wait(lambda: joined() == MIXED.split("\n")), (width, joined())
    finally:
        t.close()


def test_an_answer_resized_in_the_middle_is_copied_whole(home, hokku, stories):
    want = hokku("-m", stories, *PLAIN, "-n", 70, "Once upon a time").stdout.decode().strip()
    t = Tmux(f"env HOME={home['HOME']} NO_COLOR=1 {HOKKU} -m {stories} -q -no-cnv --temp 0 -n 70 -q", 60, 40)
    try:
        assert t.wait(lambda: t.screen()[0].startswith(">")), t.screen()
        t("send-keys", "Once upon a time", "Enter")
        for width in (31, 90, 45):
            t.resize(width, 40)
            time.sleep(0.05)
        assert t.wait(lambda: "(cut" in t.joined()), t.screen()
        joined = t.joined()
    finally:
        t.close()
    assert joined.split("Once upon a time\n", 1)[1].split("(cut")[0].strip() == want
