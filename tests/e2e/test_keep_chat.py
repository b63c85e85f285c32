"""--keep: a chat on a terminal is done by the process that has the model, and whoever sits there cannot tell."""
import contextlib
import os
import pathlib
import re
import select
import signal
import sys
import termios

import pexpect
import pytest
import session_format
from conftest import HOKKU, ROOT, child_of, wait_until
from terminal import Terminal
from test_keep import FOR_EVER, SAMPLED, gone, keep  # noqa: F401 (fixture)
from test_places import shim  # noqa: F401 (fixture)
from test_repl import ESCAPES

sys.path.insert(0, str(ROOT / "tests"))
import make_gguf  # noqa: E402

CHAT = ["--keep", "5m", *SAMPLED]
# What has an end only when somebody says so.
TALK = [*CHAT, "--ignore-eos", "-c", 64, "--overflow", "shift", "-n", -1]
PROMPT = r"(?:^|\n|\r|\x1b\[\?2004h)[^\n\r\x1b]*> (?=$)"
KEPT = re.compile(r"kept by process (\d+)\r\n")


def modes_of_a_new_terminal():
    """(Of one that a program has begun on, it may have changed them already.)"""
    ends = os.openpty()
    modes = termios.tcgetattr(ends[1])
    for fd in ends:
        os.close(fd)
    return modes


MODES = modes_of_a_new_terminal()


class Chat:
    """A chat on a terminal of its own, and the process that does it."""

    def __init__(self, keep, *args, env=None, command=(), ready=True):
        words = [*command, HOKKU, *map(str, args), "-v"]
        self.p = pexpect.spawn(words[0], words[1:], env={**keep.env, **(env or {})}, dimensions=(50, 200), encoding="utf-8",
                               codec_errors="replace", timeout=60)
        self.p.delaybeforesend = None
        self.modes = MODES
        if ready:
            self.prompt()
            said = KEPT.search(self.p.before)
            assert said, self.p.before
            self.pid = int(said[1])

    def prompt(self):
        self.p.expect(PROMPT)
        return ESCAPES.sub("", self.p.before)

    def say(self, text):
        self.p.send(text + "\r")
        self.p.expect(r"\n")
        return self.prompt()

    def begin(self, text="Tell me a story"):
        """An answer is under way, and has no end."""
        self.p.send(text + "\r")
        self.p.expect(r"\n.{20}")

    def end(self):
        """How it ended, as a shell has it."""
        self.p.expect(pexpect.EOF)
        self.p.close()
        return self.p.exitstatus if self.p.signalstatus is None else -self.p.signalstatus

    def leave(self):
        self.p.send("\x04")
        return self.end()

    def call(self):
        """Of a chat UNDER a shell: its process."""
        return child_of(self.p.pid)

    def ended(self):
        """How that one ended; what is typed is seen, and read by lines, again."""
        self.p.expect(r"code (\d+)")
        self.said, code = self.p.before, int(self.p.match[1])
        if "2004l" not in self.said:  # a paste is not marked any more
            self.p.expect("2004l")
        assert termios.tcgetattr(self.p.child_fd) == self.modes
        return code if code < 128 else 128 - code


# (What a terminal's first process leaves behind, the system undoes when it ends.)
UNDER = ["sh", "-c", 'trap : INT QUIT; "$@"; echo "code $?"; cat', "-"]


@pytest.fixture
def chat(keep):
    made = []

    def start(*args, **kw):
        made.append(Chat(keep, *args, **kw))
        return made[-1]

    yield start
    for c in made:
        c.p.close(force=True)


def saved(keep, turns):
    sessions = pathlib.Path(keep.env["XDG_STATE_HOME"]) / "hokku/sessions"
    [path] = wait_until(lambda: [*sessions.glob("chat-*.session")])
    return session_format.saved(path, turns)


def idle(keep):
    return all(not m["busy"] for m in keep.models())


def test_it_looks_the_same(keep):
    shown = []
    for way in ([], ["--keep", "5m"], ["--keep", "5m"]):
        t = Terminal([HOKKU, *map(str, [*way, *SAMPLED])], env=keep.env)
        for keys in ("Who are you?\r", "\x1b[200~two\rlines\x1b[201~\r", "/stats\r", "/why\r", "/undo\r", "/nothing\r", "/set temp 0\r", "hi\r"):
            wanted = t.screen.display.copy()
            t.wait(lambda: t.raw.endswith("> "))
            t.raw += "|"
            t.send(keys)
            t.wait(lambda: t.screen.display != wanted)
        t.wait(lambda: t.raw.endswith("> "))
        t.send("\x04")
        t.wait(lambda: not t.p.isalive())
        t.pump()
        shown.append(re.sub(r"[\d.,]+ ms|[\d,.]+/s", "T", "\n".join(t.screen.display)))
        t.close()
    assert shown[0].count(">") > 3 and shown[0] == shown[1] == shown[2] and len(keep.sockets()) == 1


def test_it_uses_what_is_kept_and_gives_it_back(keep, chat):
    pid = keep.kept(*SAMPLED, "hi")[1]
    for _ in range(2):
        c = chat(*CHAT)
        assert c.pid == pid
        c.say("Who are you?")
        assert c.leave() == 0
        assert keep.kept(*SAMPLED, "hi")[1] == pid
    assert len(keep.sockets()) == 1


def test_a_chat_may_be_the_first_call(keep, chat):
    c = chat(*CHAT)
    assert c.leave() == 0 and keep.kept(*SAMPLED, "hi")[1] == c.pid


def test_calls_beside_an_open_chat_are_answered_and_never_wait_for_it(keep, chat):
    plain = keep.run(*SAMPLED, "hi").stdout
    first = chat(*CHAT)
    first.say("Who are you?")
    r, pid = keep.kept(*SAMPLED, "hi")
    assert r.stdout == plain and pid != first.pid
    assert {m["pid"]: m["busy"] for m in keep.models()} == {first.pid: True, pid: False}
    assert f"in a chat (process {first.pid})" in keep.run("models").stdout.decode()
    second = chat(*CHAT)
    assert second.pid == pid and "hokku:" not in second.say("Who are you?")
    assert first.leave() == 0
    assert keep.kept(*SAMPLED, "hi")[1] == first.pid  # its name is free
    assert second.leave() == 0
    wait_until(lambda: gone(second.pid))  # one is enough
    assert keep.kept(*SAMPLED, "hi")[1] == first.pid and len(keep.sockets()) == 1


def test_who_waits_for_its_turn_when_a_chat_begins_is_not_held_up(keep, chat):
    with keep.started(*FOR_EVER) as (p, pid):
        assert p.stdout.read(1)
        chat_call = Chat(keep, *TALK, ready=False)
        p.kill()
        chat_call.prompt()
        assert keep.run("--keep", "5m", *FOR_EVER[:2], "-n", 3, "hi").returncode == 0
        assert chat_call.leave() == 0


def test_ctrl_c_stops_an_answer_each_time_and_the_chat_goes_on(keep, chat):
    c = chat(*TALK)
    for _ in range(3):
        c.begin()
        c.p.send("\x03")
        assert "(stopped" in c.prompt()
        c.p.send("\x03")
        assert "Ctrl-D or /bye leaves" in c.prompt()
    assert c.leave() == 0 and keep.kept(*SAMPLED, "hi")[1] == c.pid


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("answers", [False, True])
def test_a_signal_to_the_call_ends_the_chat_which_is_saved(keep, chat, sig, answers):
    c = chat(*TALK, command=UNDER)
    c.begin()
    if not answers:
        c.p.send("\x03")
        c.prompt()
    os.kill(c.call(), sig)
    assert c.ended() == -sig and saved(keep, 1)
    assert keep.kept(*SAMPLED, "hi")[1] == c.pid


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("leaves", [False, True])
def test_a_second_signal_that_nobody_hears_ends_the_call_at_once_and_the_model_stays(keep, chat, shim, tmp_path, sig, leaves):  # noqa: F811
    """A save that waits for the disk hears nothing: in the chat, where it waits for another one, and behind it."""
    held, env = tmp_path / "held", {"LD_PRELOAD": shim, "TEST_DISK_HELD": str(tmp_path / "held")}
    c = chat(*CHAT, "-n", 5, command=UNDER, env=env)
    c.say("Who are you?")
    held.touch()
    c.p.send("/save a\r\x04" if leaves else "/save a\r/save b\r")
    call = c.call()
    for _ in range(100):
        if not c.p.expect([r"code (\d+)", pexpect.TIMEOUT], timeout=0.2):
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(call, sig)  # (signals that come together are one)
    assert int(c.p.match[1]) == 128 + sig and termios.tcgetattr(c.p.child_fd) == c.modes
    [it] = [m for m in keep.models() if m["pid"] == c.pid]
    assert it["busy"]
    held.unlink()
    wait_until(lambda: idle(keep))
    session_format.saved(pathlib.Path(keep.env["XDG_STATE_HOME"]) / "hokku/sessions/a.session", 1)
    assert [m["pid"] for m in keep.models()] == [c.pid]


def test_ctrl_backslash_ends_it(keep, chat):
    for answers in (False, True):
        c = chat(*TALK, command=UNDER)
        if answers:
            c.begin()
        c.p.send("\x1c")
        assert c.ended() == -signal.SIGQUIT
        wait_until(lambda: idle(keep))
    assert saved(keep, 1)


@pytest.mark.parametrize("answers", [False, True])
def test_a_killed_call_leaves_the_terminal_as_it_was_and_the_model_kept(keep, chat, answers):
    c = chat(*TALK, command=UNDER)
    c.begin()
    if not answers:
        c.p.send("\x03")
        c.prompt()
    os.kill(c.call(), signal.SIGKILL)
    wait_until(lambda: idle(keep))
    assert c.ended() == -signal.SIGKILL and saved(keep, 1)
    assert keep.kept(*SAMPLED, "hi")[1] == c.pid


def test_a_terminal_that_is_somebody_elses_by_now_is_left_alone(keep, chat):
    c = chat(*TALK, command=UNDER)
    theirs = [*c.modes[:3], c.modes[3] & ~termios.ECHO, *c.modes[4:]]
    termios.tcsetattr(c.p.child_fd, termios.TCSANOW, theirs)
    os.kill(c.call(), signal.SIGKILL)
    wait_until(lambda: idle(keep))
    assert termios.tcgetattr(c.p.child_fd) == theirs


def test_a_terminal_that_is_closed_ends_the_chat_which_is_saved(keep, chat):
    c = chat(*TALK)
    c.begin()
    os.close(c.p.child_fd)
    c.p.closed, c.p.child_fd = True, -1
    wait_until(lambda: idle(keep))
    c.p.ptyproc.closed = True
    assert saved(keep, 1) and keep.kept(*SAMPLED, "hi")[1] == c.pid


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_keeper_leaves_the_terminal_as_it_was(keep, chat, sig):
    c = chat(*TALK, "-n", 5, command=UNDER)
    c.say("Who are you?")
    saved(keep, 1)
    os.kill(c.pid, sig)
    assert c.ended() == (1 if sig == signal.SIGKILL else -sig)
    assert (f"process {c.pid}, which had the model and this chat, is gone" in c.said) == (sig == signal.SIGKILL)
    assert saved(keep, 1) and keep.kept(*SAMPLED, "hi")[1] != c.pid


def test_sigterm_to_the_keeper_ends_its_chat_and_it(keep, chat):
    c = chat(*TALK, command=UNDER)
    c.begin()
    os.kill(c.pid, signal.SIGTERM)
    wait_until(lambda: gone(c.pid))
    assert c.ended() == -signal.SIGTERM and saved(keep, 1)


def test_after_an_engine_has_failed_it_is_not_kept(keep, chat, tmp_path):
    kvs, tensors = make_gguf.model(layers=1, embd=256, heads=2, ff=64, ctx=512)
    make_gguf.write(tmp_path / "large.gguf", kvs, tensors, std=1e30)
    c = chat("--keep", "5m", "-m", tmp_path / "large.gguf", "-t", 2)
    assert re.search("hokku: .*(NaN|inf)", c.say("hi"), re.I)
    assert c.leave() == 0
    wait_until(lambda: gone(c.pid))


def test_serve_stop_does_not_wait_for_a_chat(keep, chat):
    c = chat(*CHAT)
    r = keep.run("serve", "--stop")
    assert r.returncode == 1 and r.stderr.startswith(b"hokku: 0 kept models let go\nhokku: 1 more: in a chat")
    assert "hokku:" not in c.say("Who are you?") and not gone(c.pid)
    assert c.leave() == 0
    wait_until(lambda: gone(c.pid))
    assert keep.sockets() == []


def test_the_window_may_change(keep):
    text = "one two three four five six seven eight nine ten"
    t = Terminal([HOKKU, *map(str, [*CHAT, "-q"])], cols=80, env=keep.env)
    t.wait(lambda: t.raw.endswith("> "))
    t.send(text)
    t.wait(lambda: "ten" in "".join(t.screen.display))
    t.resize(20, 24)
    t.wait(lambda: len([row for row in t.screen.rows() if row]) >= 3)
    assert "".join(t.screen.rows()) == "".join(printed_rows("> " + text, 20))
    t.close()


def printed_rows(text, cols):
    return [text[i:i + cols].rstrip() for i in range(0, len(text), cols)]


EDITOR = """#!/bin/sh
exec < /dev/tty > /dev/tty
cut -d " " -f 5,8 /proc/$$/stat > "$0.said"
stty -a | grep -q ' icanon' && printf 'from the editor' > "$1"
"""


def test_an_editor_has_the_terminal(keep, chat, tmp_path):
    path = tmp_path / "ed"
    path.write_text(EDITOR)
    path.chmod(0o755)
    c = chat(*TALK, env={"EDITOR": str(path), "VISUAL": str(path)})
    c.p.send("/editor\r")
    c.p.expect("> from the editor")
    group, foreground = (tmp_path / "ed.said").read_text().split()
    assert foreground == group
    c.p.send("\x03")
    c.prompt()
    assert c.leave() == 0
    c = chat(*TALK, env={"EDITOR": "false", "VISUAL": "false"})
    assert 'the editor "false" failed: the message is as it was' in c.say("/editor")
    assert c.leave() == 0


def test_where_the_streams_are_not_all_its_terminal_it_runs_by_itself(keep):
    c = Chat(keep, *CHAT, command=["sh", "-c", '"$@" | cat', "-"], ready=False)
    c.prompt()
    assert "only where all its streams are terminals: this call runs by itself" in c.p.before
    assert c.leave() == 0 and keep.sockets() == []


# ---- jobs of a shell

@pytest.fixture
def shell(keep, tmp_path):
    (tmp_path / "inputrc").write_text("set enable-bracketed-paste off\n")
    env = {**keep.env, "PS1": "sh$ ", "INPUTRC": str(tmp_path / "inputrc")}
    p = pexpect.spawn("bash", ["--norc", "--noprofile", "-i"], env=env, dimensions=(50, 200), encoding="utf-8", codec_errors="replace", timeout=60)
    p.delaybeforesend = None
    p.expect(r"sh\$ ")
    yield p
    p.close(force=True)


def command(args):
    return " ".join(f"'{a}'" for a in [HOKKU, *args])


def test_ctrl_z_at_the_prompt_and_while_it_answers(keep, shell):
    shell.sendline(command(TALK))
    shell.expect(PROMPT)
    shell.send("half a ")
    shell.expect("half a ")
    shell.send("\x1a")
    shell.expect(r"Stopped[^\n]*\n.*sh\$ ")
    shell.sendline("echo $((40 + 2)); stty -a | tr ' ;' '\\n' | grep -x -e icanon -e echo")  # what is typed is the shell's
    shell.expect(r"\r\n42\r\nicanon\r\necho\r\n.*sh\$ ")
    shell.sendline("bg")  # and stays so
    shell.expect(r"Stopped.*|sh\$ ")
    shell.sendline("echo $((50 + 3))")
    shell.expect(r"\r\n53\r\n")
    shell.sendline("fg")
    shell.expect("half a ")
    shell.send("story\r")
    shell.expect(r"\n.{20}")
    shell.send("\x1a")
    shell.expect(r"Stopped[^\n]*\n.*sh\$ ")
    assert not select.select([shell.child_fd], [], [], 0.3)[0]  # nothing more is written
    shell.sendline("fg")
    shell.expect("'-n' '-1'\r\n.{40}")
    shell.send("\x03")
    shell.expect(r"\(stopped")
    shell.expect(PROMPT)
    shell.send("\x04")
    shell.expect(r"sh\$ ")
    shell.sendline("echo $?")
    shell.expect(r"\n0\r\n")
    assert len(keep.sockets()) == 1


def test_a_chat_that_is_stopped_unheard_reads_nothing(keep, shell):
    shell.sendline(command(TALK))
    shell.expect(PROMPT)
    call = child_of(shell.pid)
    os.kill(call, signal.SIGSTOP)
    shell.expect(r"Stopped[^\n]*\n.*sh\$ ")
    for i in range(10):
        shell.sendline(f"echo $((40 + {i}))")
        shell.expect(rf"\r\n{40 + i}\r\n.*sh\$ ")
    shell.sendline("fg")
    shell.expect("--keep")
    shell.send("one")
    shell.expect("one")
    shell.send("\x03")
    shell.expect(PROMPT)
    shell.send("\x04")
    shell.expect(r"sh\$ ")


def test_a_chat_in_the_background_waits_for_the_terminal(keep, shell):
    shell.sendline(command(CHAT) + " &")
    shell.expect(r"\[1\] \d+")
    shell.sendline("sleep 0.3; jobs")
    shell.expect("Stopped")
    shell.sendline("fg")
    shell.expect(r"/help\r\n")
    shell.expect(PROMPT)
    shell.send("\x04")
    shell.expect(r"sh\$ ")
    assert len(keep.sockets()) == 1


def test_a_stopped_chat_that_is_killed_frees_its_keeper(keep, shell):
    shell.sendline(command(TALK))
    shell.expect(PROMPT)
    shell.send("\x1a")
    shell.expect(r"Stopped[^\n]*\n.*sh\$ ")
    shell.sendline("kill -9 %1; echo $((40 + 2))")
    shell.expect(r"\r\n42\r\n")
    wait_until(lambda: idle(keep))
    shell.sendline("echo $((50 + 3))")
    shell.expect(r"\r\n53\r\n")


def test_a_chat_killed_under_its_shell_leaves_the_shell_its_terminal(keep, shell):
    shell.sendline(command(TALK))
    shell.expect(PROMPT)
    os.kill(child_of(shell.pid), signal.SIGKILL)
    shell.expect(r"Killed[^\n]*\n.*sh\$ ")
    wait_until(lambda: idle(keep))
    shell.send("echo $((40 + 2))")  # the shell's own line editor shows what is typed, once
    shell.send("\r")
    shell.expect(r"echo \$\(\(40 \+ 2\)\)\r\n")
    assert shell.before.count("echo") == 0
    shell.expect(r"\A42\r\n")
