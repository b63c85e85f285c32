"""Records the picture of the README: a real run in a real terminal (tmux), drawn as SVG.

    python3 docs/picture/make_picture.py --hokku build/src/hokku --out docs/picture/hokku.svg

What is typed stands in SCRIPT; everything else in the picture is what the program wrote.
"""
import argparse
import html
import os
import re
import shlex
import subprocess
import tempfile
import time

COLUMNS, ROWS = 110, 40
# (what is typed, what the screen shows when it is done: a shell or a chat prompt as the last line)
SCRIPT = [
    ("hokku -s 7", r"^> $"),
    ("Write a haiku about the sea with the word forty-two", r"^> $"),
    ("My name is Zebulon.", r"^> $"),
    ("How do I save this chat?", r"^> $"),
    ("What is my name?", r"^> $"),
    ("/bye", r"^\$ $"),
    ("hokku -s 4 'Write a haiku about GPUs' | tee poem.txt", r"^\$ $"),
    ("echo 'What is 47 + 38?' | hokku -s 1", r"^\$ $"),
]
CELL_W, CELL_H, FONT = 8.4, 19, 14
BACK, FRONT = "#14171f", "#d7dae0"
PALETTE = ["#2b303b", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d7dae0",
           "#6b7280", "#ff7b86", "#b5e08f", "#ffd68a", "#7fc3ff", "#dd92f2", "#6fd3df", "#ffffff"]


class Terminal:
    def __init__(self, folder, program):
        self.socket = os.path.join(folder, "tmux")
        path = os.path.dirname(os.path.abspath(program)) + ":/usr/bin:/bin"
        env = {"PATH": path, "HOME": folder, "TERM": "xterm-256color", "LANG": "C.UTF-8", "PS1": "$ ", "HOKKU_MODEL": os.environ.get("HOKKU_MODEL", "")}
        shell = "env -i " + " ".join(f"{k}={shlex.quote(v)}" for k, v in env.items() if v) + " bash --norc --noprofile"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), "-c", folder, shell)
        self.tmux("set", "-g", "status", "off")

    def tmux(self, *args):
        return subprocess.run(["tmux", "-S", self.socket, *args], check=True, capture_output=True, text=True).stdout

    def screen(self, *options):
        return self.tmux("capture-pane", "-p", *options)

    def wait(self, prompt, seconds=180):
        """Until the last line that is not empty is the prompt, and the screen has come to rest."""
        end, before = time.time() + seconds, None
        while time.time() < end:
            # capture-pane drops trailing blanks: the cursor says whether the prompt's blank is there
            now = self.screen().rstrip("\n")
            last = now.split("\n")[-1] + " "
            if now == before and re.search(prompt, last):
                return
            before = now
            time.sleep(0.4)
        raise SystemExit(f"no prompt {prompt!r} within {seconds} s; the screen:\n{self.screen()}")

    def type(self, text):
        self.tmux("send-keys", "-l", text)
        time.sleep(0.3)
        self.tmux("send-keys", "Enter")
        time.sleep(0.5)

    def close(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], capture_output=True)


def runs(line):
    """(text, style) pieces of one captured line with its SGR sequences."""
    style, out = {}, []
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if not part.startswith("\x1b"):
            if part:
                out.append((part, dict(style)))
            continue
        codes = [int(c or 0) for c in part[2:-1].split(";")]
        while codes:
            c = codes.pop(0)
            if c == 0:
                style.clear()
            elif c in (1, 2, 3, 4):
                style[{1: "bold", 2: "dim", 3: "italic", 4: "under"}[c]] = True
            elif c == 22:
                style.pop("bold", None)
                style.pop("dim", None)
            elif 30 <= c <= 37 or 90 <= c <= 97:
                style["color"] = PALETTE[c - 30 if c < 40 else c - 82]
            elif c == 39:
                style.pop("color", None)
            elif c == 38 and codes[:1] == [5] and len(codes) > 1:
                n = codes[1]
                codes = codes[2:]
                if n < 16:
                    style["color"] = PALETTE[n]
                elif n < 232:
                    n -= 16
                    style["color"] = "#" + "".join(f"{(0, 95, 135, 175, 215, 255)[n // d % 6]:02x}" for d in (36, 6, 1))
                else:
                    style["color"] = "#" + f"{8 + 10 * (n - 232):02x}" * 3
    return out


def svg(lines):
    width, height = COLUMNS * CELL_W + 32, len(lines) * CELL_H + 52
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
           f'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="{FONT}">',
           "<title>A terminal: a chat with hokku, a haiku, a pipe</title>",
           f'<rect width="100%" height="100%" rx="9" fill="{BACK}"/>']
    for i, color in enumerate(("#ff5f57", "#febc2e", "#28c840")):
        out.append(f'<circle cx="{20 + 18 * i}" cy="17" r="5.5" fill="{color}"/>')
    for row, line in enumerate(lines):
        column = 0
        for text, style in runs(line):
            x, y = 16 + column * CELL_W, 52 + row * CELL_H
            column += len(text)
            if not text.strip():
                continue
            look = f'fill="{style.get("color", FRONT)}"'
            look += ' font-weight="bold"' if style.get("bold") else ""
            look += ' font-style="italic"' if style.get("italic") else ""
            look += ' opacity="0.6"' if style.get("dim") else ""
            # each piece is stretched to its cells, so that every font keeps the columns
            out.append(f'<text x="{x:.1f}" y="{y}" textLength="{len(text) * CELL_W:.1f}" xml:space="preserve" {look}>{html.escape(text)}</text>')
    return "\n".join(out) + "\n</svg>\n"


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--hokku", required=True)
    ap.add_argument("--out", required=True)
    args = ap.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        terminal = Terminal(folder, args.hokku)
        try:
            terminal.wait(r"^\$ $")
            for text, prompt in SCRIPT:
                terminal.type(text)
                terminal.wait(prompt)
            lines = terminal.screen("-e").rstrip("\n").split("\n")
        finally:
            terminal.close()
    while lines and lines[-1].strip("$ ") in ("", "\x1b[39m"):
        lines.pop()
    with open(args.out, "w") as f:
        f.write(svg(lines))
    print(f"{args.out}: {len(lines)} lines")


if __name__ == "__main__":
    main()
