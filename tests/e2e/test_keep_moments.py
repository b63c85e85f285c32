"""--keep: what comes at the wrong moment is lost on neither side: each is played here, so that the moment is the same every time."""
import os
import signal
import socket
import struct

from test_keep import SAMPLED, keep  # noqa: F401 (fixture)

MESSAGE = struct.Struct("=IIiiiIIxxxxddQ1024s128s")  # struct keep_message
MAGIC = 0x6b6b6f01
RUN, GO, SIGNAL = 1, 2, 3
TAKEN, BEGUN, DONE, STOPPED = 9, 10, 11, 13


class Side:
    """One end of a connection."""

    def __init__(self, connection):
        self.c = connection
        self.c.settimeout(20)

    def say(self, word, number=0, death=0, seconds=0.0, fds=()):
        socket.send_fds(self.c, [MESSAGE.pack(MAGIC, word, number, death, os.getpid(), 0o22, 0, seconds, 0, 0, b"", b"")], fds)

    def hear(self):
        """Word and number; None: the other end is gone."""
        text, fds, _, _ = socket.recv_fds(self.c, MESSAGE.size, 8)
        for fd in fds:
            os.close(fd)
        return MESSAGE.unpack(text)[1:3] if text else None


def test_a_signal_that_comes_before_the_keeper_begins_is_heard(keep):
    """It has much to read yet."""
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
        call.say(SIGNAL, signal.SIGTSTP)
        os.close(words)
        assert call.hear() == (STOPPED, 0)
