"""A chat as a job of a shell: stopped, in the background, gone on with, ended; the terminal is whose turn it is."""
import os
import signal
import sys
import termios
import time

import pexpect
import pytest
from conftest import HOKKU, child_of, wait_until
from test_repl import LONG, Chat, ask_hello, start_long_answer, tiny  # noqa: F401 (fixture)


def test_suspend_and_resume(home, tiny):
    # Job control needs a shell: a process without one is never stopped by Ctrl-Z.
    p = pexpect.spawn("bash", ["--norc", "--noprofile", "-i"], env={**home, "PS1": "SHELL "}, encoding="utf-8",
                      codec_errors="replace", timeout=60, dimensions=(50, 200))
    flags = lambda: termios.tcgetattr(p.child_fd)[3]
    p.expect("SHELL ")
    p.send(" ".join([HOKKU, "-m", tiny, *LONG]) + "\n")
    p.expect("/help.*> $")
    ask_hello(p)
    p.expect(r"\w\w\w")
    p.send("\x1a")
    p.expect("Stopped")
    p.expect("SHELL ")
    p.send("stty | grep -c -- -echo\n")
    p.expect("\r0\r")  # bash sets its own modes for typing; what it gives to commands is what hokku left
    p.send("fg\n")
    wait_until(lambda: not flags() & (termios.ICANON | termios.ECHO))
    p.send("\x03")
    p.expect("stopped; /continue")
    p.expect("> $")
    p.send("typed")
    p.expect("typed")
    p.send("\x1a")
    p.expect("Stopped")
    p.expect("SHELL ")
    p.send("fg\n")
    p.expect("> typed")
    p.send("\x15/context\r")
    p.expect("tokens used")
    p.send("/bye\r")
    p.expect("SHELL ")
    p.close(force=True)


class Job:
    """A chat that answers, or waits for a message, as a job of a shell that leaves modes as they are."""

    def __init__(self, home, tiny, when):
        self.p = pexpect.spawn("bash", ["--norc", "--noprofile", "--noediting", "-i"], env={**home, "PS1": "SHELL "}, encoding="utf-8",
                               codec_errors="replace", timeout=60, dimensions=(50, 200))
        self.p.delaybeforesend = None
        self.p.expect("SHELL ")
        self.found = self.flags()
        self.p.send(" ".join([HOKKU, "-m", tiny, *LONG]) + "\n")
        self.p.expect("/help.*> $")
        if when == "answering":
            ask_hello(self.p)
            self.p.expect(r"\w\w\w")
        else:
            self.p.send("typed")
            self.p.expect("typed")
        self.pid = child_of(self.p.pid)
        self.set = self.flags()

    def flags(self):
        found = termios.tcgetattr(self.p.child_fd)
        return found[0] & termios.ICRNL, found[3] & (termios.ICANON | termios.ECHO | termios.ISIG)

    def has_ended(self):
        """Whether the shell has heard of it or not: bash 5.2 does not, once in sixty, of any job that ends as it goes on."""
        try:
            return open(f"/proc/{self.pid}/stat").read().rpartition(")")[2].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    def shell_knows_it_stopped(self):
        self.p.send("jobs\n")
        self.p.expect(r"\[1\]\S* +(Stopped|Running).*SHELL ")
        return self.p.match[1] == "Stopped"

    def shell_has_it(self):
        self.p.send("echo $((40 + 2))\n")
        self.p.expect(r"\r\n42\r\n.*SHELL ")
        assert self.flags() == self.found

    def goes_on(self, when):
        wait_until(lambda: self.flags() == self.set)
        if when == "answering":
            self.p.send("\x03")
            self.p.expect("stopped; /continue")
        else:
            self.p.send(" more\x15")
        self.p.send("/context\r")
        self.p.expect("tokens used")
        self.p.send("/bye\r")
        self.p.expect("SHELL ")
        self.p.close(force=True)


@pytest.fixture(params=["typing", "answering"])
def job(request, home, tiny):
    j = Job(home, tiny, request.param)
    yield j, request.param
    j.p.close(force=True)


def test_in_the_background_a_chat_leaves_the_terminal_to_its_shell(job):
    j, when = job
    j.p.send("\x1a")
    j.p.expect("Stopped.*SHELL ")
    assert j.flags() == j.found
    j.p.send("bg\n")
    j.p.expect("SHELL ")
    # As all do that would have other modes there. The shell hears of it when all threads have stopped; a job that it takes for
    # one that runs gets no SIGCONT by fg.
    wait_until(j.shell_knows_it_stopped)
    j.shell_has_it()
    j.p.send("fg\n")
    j.goes_on(when)


def test_a_chat_that_is_stopped_unheard_goes_on_with_its_modes(job):
    j, when = job
    if os.environ.get("HOKKU_TEST_KEPT"):
        return  # another process has the chat, which hears of it when it reads
    os.kill(j.pid, signal.SIGSTOP)
    j.p.expect("Stopped.*SHELL ")
    j.p.send("stty sane\n")
    j.p.expect("SHELL ")
    j.p.send("fg\n")
    j.goes_on(when)


@pytest.mark.parametrize("how", ["kill %1", "kill -HUP %1; kill -CONT %1", "bg; kill %1; kill -CONT %1"])
def test_a_stopped_chat_ends_when_it_is_to_and_leaves_the_terminal_as_it_is(job, how):
    j, _ = job
    j.p.send("\x1a")
    j.p.expect("Stopped.*SHELL ")
    j.p.send(how + "\n")
    wait_until(j.has_ended)
    j.shell_has_it()


@pytest.mark.parametrize("when", ["typing", "answering"])
def test_a_signal_to_go_on_overtakes_the_one_to_stop(home, tiny, when):
    """Of a job whose parent does not take the terminal as soon as it is stopped."""
    parent = """import os, signal, subprocess, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
p = subprocess.Popen(sys.argv[1:], preexec_fn=lambda: (os.setpgid(0, 0), os.tcsetpgrp(0, os.getpid()), signal.signal(signal.SIGTTOU, signal.SIG_DFL)))
sys.exit(p.wait())"""
    c = Chat(home, "-c", parent, HOKKU, "-m", tiny, *LONG, command=sys.executable)
    if when == "answering":
        start_long_answer(c)
    pid = child_of(c.p.pid)
    for _ in range(100):
        os.kill(pid, signal.SIGTSTP)
        os.kill(pid, signal.SIGCONT)
        c.p.read_nonblocking(65536, 1) if when == "answering" else time.sleep(0.01)
    wait_until(lambda: open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "T", 10)
    if when == "answering":
        c.p.send("\x03")
        c.p.expect("stopped; /continue")
    c.p.send("/context\r")
    c.p.expect("tokens used")
    assert c.leave() == 0
