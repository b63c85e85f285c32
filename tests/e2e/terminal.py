"""A terminal to test against: pyte draws what a program writes on a pseudo-terminal, and answers where the cursor is."""
import os
import re
import subprocess
import time

import pexpect
import pyte
from wcwidth import wcwidth


def width(c):
    return 1 if "\U0001F1E6" <= c <= "\U0001F1FF" else wcwidth(c)  # a flag is two letters of one column


pyte.screens.wcwidth = width

CHARACTER = re.compile("[\U0001F1E6-\U0001F1FF]{2}|(?:[\U0001F300-\U0001FAFF]\u200d)*.[\u0300-\u036f]*", re.S)


class Screen(pyte.Screen):
    """pyte's screen, with what it leaves out: marks join the character before them, a wide one that does not fit goes to the next
    line, and a lower window keeps the line of the cursor. It does not wrap lines anew, as xterm does not."""

    answer = None
    joins = False  # draws joined emoji as one of two columns, as some terminals do

    def draw(self, data):
        for c in data:
            w = width(c)
            before = self.buffer[self.cursor.y][self.cursor.x - 2].data if self.cursor.x > 1 else ""
            if w > 0 and not (self.joins and before.endswith("\u200d")):
                if self.cursor.x + w > self.columns:
                    if self.columns < w:
                        continue
                    self.cursor.x = 0
                    self.linefeed()
                super().draw(c)
                continue
            line = self.buffer[self.cursor.y]
            x = self.cursor.x - 1
            while x > 0 and line[x].data == "":
                x -= 1
            if x >= 0:
                line[x] = line[x]._replace(data=line[x].data + c)

    def report_device_status(self, mode, **kw):
        if mode == 6 and self.answer:
            self.answer(f"\x1b[{self.cursor.y + 1};{min(self.cursor.x, self.columns - 1) + 1}R")

    def resize(self, lines, columns):
        lost = max(0, self.cursor.y - (lines - 1))
        for y in range(lines if lost == 0 else 0, self.lines):
            if lost == 0:
                self.buffer.pop(y, None)
        if lost:
            self.buffer = type(self.buffer)(self.buffer.default_factory, {y - lost: l for y, l in self.buffer.items() if y >= lost})
            self.cursor.y -= lost
        for line in self.buffer.values():
            for x in range(columns, self.columns):
                line.pop(x, None)
        self.lines, self.columns = lines, columns
        self.cursor.x = min(self.cursor.x, columns - 1)
        self.set_margins()

    def rows(self):
        return ["".join(self.buffer[y][x].data for x in range(self.columns)).rstrip() for y in range(self.lines)]

    def state(self):
        return self.rows(), (self.cursor.y, self.cursor.x)


def printed(text, cols, rows):
    """What a terminal shows when `text` is simply printed, and where its cursor is. A full line followed by a line
    break, or by nothing, leaves the cursor on a line of its own."""
    screen = Screen(cols, rows)
    stream = pyte.Stream(screen)
    for c in CHARACTER.findall(text):
        if c == "\n" and screen.cursor.x == cols:
            stream.feed(" \r\x1b[K")
        elif c != "\n" and screen.cursor.x + sum(map(width, c)) > cols:
            stream.feed("\r\n")  # nobody cuts a character in two
        stream.feed("\r\n" if c == "\n" else c)
    if screen.cursor.x == cols:
        stream.feed(" \r\x1b[K")
    return screen.state()


class Terminal:
    def __init__(self, command, cols=80, rows=24, env=None, answers=True):
        self.screen = Screen(cols, rows)
        self.stream = pyte.Stream(self.screen)
        self.raw = ""
        self.p = pexpect.spawn(command[0], list(map(str, command[1:])), dimensions=(rows, cols), encoding="utf-8",
                               codec_errors="replace", timeout=20, env={**os.environ, "TERM": "xterm-256color", **(env or {})})
        self.p.delaybeforesend = None
        if answers:
            self.screen.answer = self.p.send

    def send(self, keys, step=None, pause=0.0):
        if step is None:
            self.p.send(keys)
            return
        for i in range(0, len(keys), step):
            self.p.send(keys[i:i + step])
            self.pump(pause)

    def pump(self, seconds=0.05):
        end = time.time() + seconds
        while True:
            try:
                got = self.p.read_nonblocking(65536, timeout=max(0, min(0.02, end - time.time())))
                self.raw += got
                self.stream.feed(got)
            except pexpect.TIMEOUT:
                pass
            except pexpect.EOF:
                return False
            if time.time() >= end:
                return True

    def wait(self, condition, seconds=20):
        end = time.time() + seconds
        while not condition() and time.time() < end:
            if not self.pump(0.02):
                break
        return condition()

    def shows(self, state, seconds=10):
        """Waits until the screen is as expected; asserts with both."""
        self.wait(lambda: self.screen.state() == state, seconds)
        self.pump(0.03)  # and stays so
        assert self.screen.state() == state, f"shown:\n{self.screen.state()}\nexpected:\n{state}\nwritten:\n{self.raw[-400:]!r}"

    def resize(self, cols, rows):
        self.pump(0.05)
        self.screen.resize(rows, cols)
        self.p.setwinsize(rows, cols)

    def close(self):
        self.p.close(force=True)


class Tmux:
    """A terminal that wraps lines anew when its width changes. Each has a server of its own: one that is being killed still answers under its name."""

    count = 0

    def __init__(self, command, cols, rows):
        Tmux.count += 1
        self.name = f"hokku-{os.getpid()}-{Tmux.count}"
        self("new-session", "-d", "-x", str(cols), "-y", str(rows), command, check=True)
        self("set-option", "-g", "status", "off")

    def __call__(self, *args, **kw):
        return subprocess.run(["tmux", "-u", "-L", self.name, "-f", "/dev/null", *args], capture_output=True, text=True, **kw).stdout

    def screen(self, *args):
        return re.sub(r"\n+$", "", self("capture-pane", "-p", *args)).split("\n")

    def joined(self):
        """All that was shown, with the lines that the terminal had wrapped in one piece."""
        return self("capture-pane", "-p", "-J", "-S", "-")

    def resize(self, cols, rows):
        self("resize-window", "-x", str(cols), "-y", str(rows))

    def wait(self, condition, seconds=30):
        end = time.time() + seconds
        while not condition() and time.time() < end:
            time.sleep(0.05)
        return condition()

    def close(self):
        self("kill-server")
