"""--keep: what comes at the wrong moment is lost on neither side: each is played here, so that the moment is the same every time."""
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest
from conftest import HOKKU
from test_keep import KEEP, MAGIC, MESSAGE, SAMPLED, end, keep, listening, occupied  # noqa: F401 (fixture)
from test_places import shim  # noqa: F401 (fixture)
from test_signals import catches, in_state, stat

RUN, GO, SIGNAL = 1, 2, 3
TAKEN, BEGUN, DONE, STOPPED = 9, 10, 11, 13


class Side:
    """One end of a connection."""

    def __init__(self, connection):
        self.c = connection
        self.c.settimeout(20)

    def say(self, word, number=0, death=0, seconds=0.0, fds=()):
        socket.send_fds(self.c, [MESSAGE.pack(int.from_bytes(MAGIC, sys.byteorder), word, number, death, os.getpid(), 0o22, 0, seconds, 0, 0, b"", b"")], fds)

    def hear(self):
        """Word and number; None: the other end is gone."""
        text, fds, _, _ = socket.recv_fds(self.c, MESSAGE.size, 8)
        for fd in fds:
            os.close(fd)
        return MESSAGE.unpack(text)[1:3] if text else None

    def hear_of_more(self):
        """The same behind SIGTSTP, of which one hears until one says that one has stopped."""
        while (said := self.hear()) == (SIGNAL, signal.SIGTSTP):
            pass
        return said


@contextlib.contextmanager
def given(keep, *args):
    """A call that has given its streams away, to us, and waits for word: its process, and our side."""
    with listening(occupied(keep)) as s:
        for _ in range(20):  # (where we come too late it runs by itself)
            p = subprocess.Popen([HOKKU, *map(str, [*KEEP, *SAMPLED, *args, "hi"])], env=keep.env, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=os.setpgrp)
            try:
                with s.accept()[0] as c:
                    side = Side(c)
                    assert side.hear() == (RUN, 0)
                    side.say(TAKEN)
                    if side.hear() == (GO, 0):
                        in_state(p, lambda p: stat(p)[0] == "S")
                        yield p, side
                        return
            finally:
                end(p)
        raise AssertionError("the machine sleeps")


def stopped(p):
    return stat(p)[0] == "T"


def pending(p, sig):
    status = pathlib.Path(f"/proc/{p.pid}/status").read_text()
    return int(status.split("ShdPnd:")[1].split()[0], 16) >> (sig - 1) & 1


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_as_the_call_begins_is_handed_on(keep, sig):
    """Where the call sees both at once."""
    with given(keep) as (p, keeper):
        p.send_signal(signal.SIGSTOP)
        in_state(p, stopped)
        keeper.say(BEGUN)
        p.send_signal(sig)
        p.send_signal(signal.SIGCONT)
        assert keeper.hear() == (SIGNAL, sig)
        keeper.say(DONE, death=sig)
        assert p.wait(timeout=20) == -sig


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGTSTP])
def test_a_signal_that_comes_before_the_call_begins_is_handed_on(keep, sig):
    with given(keep) as (p, keeper):
        p.send_signal(sig)
        if catches(p, sig):
            in_state(p, lambda p: not pending(p, sig))
        keeper.say(BEGUN)
        assert keeper.hear() == (SIGNAL, sig)
        keeper.say(DONE, number=5)
        assert p.wait(timeout=20) == 5


def test_a_signal_is_not_held_up_by_a_keeper_that_does_not_begin(keep):
    with given(keep) as (p, keeper):
        began = time.monotonic()
        p.send_signal(signal.SIGINT)
        assert p.wait(timeout=20) == -signal.SIGINT and time.monotonic() - began < 5
        assert keeper.hear() is None


def test_a_call_that_is_to_go_on_before_it_has_stopped_does_not_stop(keep):
    with given(keep) as (p, keeper):
        keeper.say(BEGUN)
        p.send_signal(signal.SIGTSTP)
        assert keeper.hear() == (SIGNAL, signal.SIGTSTP)
        p.send_signal(signal.SIGCONT)
        keeper.say(STOPPED)
        assert keeper.hear_of_more() == (SIGNAL, signal.SIGCONT)
        keeper.say(DONE)
        assert p.wait(timeout=20) == 0


def test_a_call_that_is_to_go_on_as_it_hears_that_it_is_to_stop_does_not_stop(keep, shim):  # noqa: F811
    keep.env.update(LD_PRELOAD=shim, TEST_GOES_ON=str(STOPPED))
    with given(keep) as (p, keeper):
        keeper.say(BEGUN)
        p.send_signal(signal.SIGTSTP)
        assert keeper.hear() == (SIGNAL, signal.SIGTSTP)
        keeper.say(STOPPED)
        assert keeper.hear_of_more() == (SIGNAL, signal.SIGCONT)
        keeper.say(DONE)
        assert p.wait(timeout=20) == 0


def stops_goes_on_and_ends(p, keeper):
    keeper.say(STOPPED)
    in_state(p, stopped)
    p.send_signal(signal.SIGCONT)
    assert keeper.hear_of_more() == (SIGNAL, signal.SIGCONT)
    keeper.say(DONE)
    assert p.wait(timeout=20) == 0


def test_a_call_that_is_to_stop_again_before_it_has_stopped_stops(keep):
    with given(keep) as (p, keeper):
        keeper.say(BEGUN)
        p.send_signal(signal.SIGTSTP)
        assert keeper.hear() == (SIGNAL, signal.SIGTSTP)
        for _ in range(3):
            p.send_signal(signal.SIGCONT)
            p.send_signal(signal.SIGTSTP)
        stops_goes_on_and_ends(p, keeper)


def test_a_keeper_that_has_forgotten_that_it_is_to_stop_hears_so_again(keep):
    with given(keep) as (p, keeper):
        keeper.say(BEGUN)
        p.send_signal(signal.SIGTSTP)
        assert keeper.hear() == (SIGNAL, signal.SIGTSTP) == keeper.hear()
        p.send_signal(signal.SIGCONT)
        p.send_signal(signal.SIGTSTP)
        assert keeper.hear() == (SIGNAL, signal.SIGTSTP)
        stops_goes_on_and_ends(p, keeper)


def test_the_end_of_a_call_is_heard_behind_a_signal_that_nobody_took(keep):
    """The connection is reset then."""
    with given(keep) as (p, keeper):
        keeper.say(BEGUN)
        p.send_signal(signal.SIGTSTP)
        assert keeper.c.recv(1, socket.MSG_PEEK)
        p.send_signal(signal.SIGSTOP)
        in_state(p, stopped)
        keeper.say(DONE, number=5)
        keeper.c.close()
        p.send_signal(signal.SIGCONT)
        assert p.wait(timeout=20) == 5 and b"is gone" not in p.stderr.read()


@contextlib.contextmanager
def beginning(keep):
    """A call that we are, and that a keeper begins: it has much to read yet. Our side."""
    keep.kept(*SAMPLED, "hi")
    before, c = (socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2))
    with before, c, open(os.devnull, "rb+") as null:
        for s in (before, c):  # (the first one has the descriptor that the call before had)
            s.connect(str(keep.sockets()[0]))
        words = os.memfd_create("a call")
        n = 20_000_000
        os.write(words, b"%d 0\0" % n + b"\0" * n)
        call = Side(c)
        call.say(RUN, seconds=300.0)
        while call.hear() != (TAKEN, 0):
            pass
        fd = null.fileno()
        call.say(GO, fds=[fd, fd, fd, fd, words])
        os.close(words)
        yield call


def test_a_signal_that_comes_before_the_keeper_begins_is_heard(keep):
    with beginning(keep) as call:
        call.say(SIGNAL, signal.SIGTSTP)
        assert call.hear() == (STOPPED, 0)


def test_a_keeper_that_is_to_stop_before_it_has_gone_on_says_so_again(keep):
    with beginning(keep) as call:
        call.say(SIGNAL, signal.SIGTSTP)
        assert call.hear() == (STOPPED, 0)
        for _ in range(3):
            call.say(SIGNAL, signal.SIGCONT)
            call.say(SIGNAL, signal.SIGTSTP)
            assert call.hear() == (STOPPED, 0)
