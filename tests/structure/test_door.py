"""One door to the terminal: outside it, nothing in src/ or cuda/ can write to standard output or standard error."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The door, and those who own the terminal while a line is edited: what they write are keys' echoes and modes.
ALLOWED = ("src/base/out.c", "src/base/out.h", "src/editor/")
# What the painters write to is given to them by its number, never through C's streams or the filter's back.
FORBIDDEN = re.compile(
    r"\b(?:v?printf|puts|putchar|putw|perror|psignal|psiginfo|v?dprintf|v?fprintf|fputs|fputc|putc|fwrite|"  # C's streams
    r"(?:puts|putc|putchar|fputs|fputc|fwrite)_unlocked|v?fwprintf|v?wprintf|fputws|fputwc|putwc|putwchar|"
    r"v?(?:err|warn)x?|error_at_line|json_dumpf|json_dumpfd|backtrace_symbols_fd|malloc_stats|setvbuf|"
    r"fdopen|freopen|dup|dup2|dup3|sendfile|splice|tee|vmsplice)\s*\("
    r"|\b(?:stdout|stderr|STDOUT_FILENO|STDERR_FILENO)\b"
    r"|\b(?:p?writev?|fd_write_all|syscall|isatty|ioctl)\s*\(\s*(?:1|2|OUT_STDOUT|OUT_STDERR)\b"
    r"|/dev/(?:tty|fd|std(?:out|err|in))|/proc/self/fd")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


def findings(text):
    text = COMMENT.sub(lambda m: "\n" * m.group().count("\n"), text)
    return [(text.count("\n", 0, m.start()) + 1, m.group()) for m in FORBIDDEN.finditer(text)]


def test_nothing_writes_to_the_terminal_but_through_the_door():
    wrong = []
    for folder in ("src", "cuda"):
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix not in (".c", ".h", ".cu", ".cuh") or name.startswith(ALLOWED):
                continue
            wrong += [f"{name}:{line}: {what}" for line, what in findings(path.read_text())]
    assert not wrong, "use base/out.h:\n" + "\n".join(wrong)


def test_the_search_finds_every_way_to_write_that_we_know():
    for way in ('printf("x")', 'puts(s)', 'putchar(c)', 'fprintf(stderr, "x")', 'fwrite(s, 1, n, stdout)', "write(1, s, n)",
                "write(STDERR_FILENO, s, n)", "perror(s)", 'dprintf(2, "x")', "fputs(s, f)", "vfprintf(f, fmt, ap)",
                'fd_write_all(OUT_STDERR, "standard error", s, n, NULL)', 'open("/dev/tty", O_WRONLY)', "dup2(fd, 3)",
                "json_dumpf(j, f, 0)", "writev(2, v, 1)", "FILE *f = stderr;"):
        assert findings(way), way
    for other in ("snprintf(s, n, fmt)", "buf_printf(&b, fmt)", "buf_puts(&b, s)", "write(fd, s, n)", "fd_write_all(fd, path, s, n, err)",
                  "// printf(x)", "out_text(OUT_STDOUT, s, n, err)", "view_say(v, fmt)", "strdup(s)"):
        assert not findings(other), other
