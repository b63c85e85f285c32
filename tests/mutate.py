#!/usr/bin/env python3
"""Do the tests notice? Changes one token of one file at a time, in a copy of the tree, and runs the quick tests of its folder.

    .venv/bin/python tests/mutate.py [--count 40] [--seed 1] [FOLDER ...]     # a table, and the survivors, in Markdown

A mutant is killed when a test fails (or crashes, or runs out of its time), it is equivalent when the compiler makes the same
object code of it, and a survivor otherwise: then a test is missing, or what was changed does not matter.
Not part of any suite: a hundred mutants take the better part of an hour. The same seed on the same sources makes the same mutants."""
import argparse
import atexit
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORK = ROOT / "build-mutate"  # git ignores it; the copy of the tree, and its build
PYTEST = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout", "120"]


def unit(*names):
    return [[f"tests/unit/test_{n}"] for n in names]


def py(path, *more):
    return [[*PYTEST, path, *more]]


# What is mutated, and the tests that should notice, the quickest first: programs of the build, and pytest.
FOLDERS = {
    "engine": (["src/engine/*.c", "!src/engine/sampler.c", "!src/engine/profile.c", "src/cpu/engine.c", "src/cpu/plan.c", "src/cpu/kv.c"],
               unit("generate", "device_choice", "cpu_decode")
               + py("tests/e2e/test_numbers.py", "-k", "plan or scratch or largest") + unit("cpu_engine")),
    "sampler": (["src/engine/sampler.c"], unit("sampler", "sampler_edges") + py("tests/conformance/test_sampler.py")),
    "dialog": (["src/dialog/conversation.c", "src/dialog/prefix.c", "src/dialog/session_*.c", "src/dialog/why.c", "src/dialog/think.c"],
               unit("think", "conversation", "session") + py("tests/e2e/test_numbers.py", "-k", "why") + py("tests/e2e/test_repl_sessions.py")),
    "template": (["src/jinja/*.c"],
                 unit("template", "template_origin", "template_limits") + [["tests/conformance/test_templates"]] + py("tests/conformance/test_template_edges.py")),
    "gguf": (["src/gguf/*.c"], unit("gguf", "gguf_edges") + py("tests/conformance/test_dequant.py") + py("tests/conformance/test_gguf_files.py")
             + py("tests/conformance/test_split_names.py")),
    "hub": (["src/hub/*.c"], unit("hub", "hub_oom") + py("tests/e2e/test_pull.py")),
    "tools": (["src/tools/score.c", "src/tools/bench.c"],
              unit("known_work") + py("tests/e2e/test_numbers.py", "-k", "perplexity or bench or score or alike") + py("tests/e2e/test_bench.py")),
    "cuda": (["cuda/*.cu"], [["tests/gpu/test_kernels_emu"], ["tests/gpu/test_attention_emu"], ["tests/gpu/test_sampler_emu"],
                             ["tests/gpu/test_engine_emu", "cuda"], ["tests/gpu/test_device_emu"]]),
}

TOKEN = re.compile(r"""
    (?P<skip> //[^\n]* | /\*.*?\*/ | ^[ \t]*\#(?:[^\n\\]|\\.|\\\n)* | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' )
  | (?P<number> \b(?:0[xX][0-9a-fA-F]+|\d+)(?P<suffix>[uUlL]*)\b(?![.\w]) )
  | (?P<float> \b\d[\w.]*(?:[eE][+-]?\d+)?\w* )
  | (?P<word> [A-Za-z_]\w* )
  | (?P<op> <<= | >>= | -> | \+\+ | -- | && | \|\| | [-+*/%&|^<>=!]= | << | >> | \.\.\. | [-+*/%&|^<>=!~?:;,.(){}\[\]] )
""", re.X | re.S | re.M)
SWAP = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+", "*": "/",
        "/": "*", "%": "/", "&": "|", "|": "&", "<<": ">>", ">>": "<<", "+=": "-=", "-=": "+=", "++": "--", "--": "++", "|=": "&=",
        "&=": "|="}
BORDERS = {"<", "<=", ">", ">=", "==", "!="}


def tokens(text):
    found = [m for m in TOKEN.finditer(text) if m.lastgroup != "skip"]
    return [(m.group(), m.start(), m.end(), "number" if m.group("number") else m.lastgroup) for m in found]


def close(toks, i):
    """Index of the bracket that closes toks[i]."""
    depth = 0
    for j in range(i, len(toks)):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(toks[j][0], 0)
        if depth == 0:
            return j
    return len(toks) - 1


def arguments(text, toks, i):
    """Of the call whose bracket is toks[i]: (begin, end) in the text of each argument."""
    end, parts, begin, j = close(toks, i), [], toks[i][2], i + 1
    while j <= end:
        if toks[j][0] in "([{":
            j = close(toks, j)
        elif toks[j][0] == "," or j == end:
            part = text[begin:toks[j][1]]
            parts.append((begin + len(part) - len(part.lstrip()), begin + len(part.rstrip())))
            begin = toks[j][2]
        j += 1
    return parts


def mutations(text):
    """kind -> [(begin, end, replacement)] for the functions of a C or CUDA source."""
    out = {k: [] for k in ("border", "operator", "constant", "statement", "condition", "arguments", "truth")}
    toks, depth, message = tokens(text), 0, 0
    for i, (t, begin, end, kind) in enumerate(toks):
        if t in ("error_set", "error_oom", "assert") and toks[i + 1][0] == "(":
            message = max(message, close(toks, i + 1))  # what an error says of itself, and assertions, are left alone
        depth += {"{": 1, "}": -1}.get(t, 0)
        before, after = toks[i - 1][0] if i else "", toks[i + 1][0] if i + 1 < len(toks) else ""
        if depth == 0 or i <= message:
            continue
        spaced = text[begin - 1].isspace() and text[end:end + 1].isspace()  # a pointer's star has one space
        if t in BORDERS and spaced:
            out["border"].append((begin, end, SWAP[t]))
        elif t in SWAP and (spaced or t in ("++", "--")):
            out["operator"].append((begin, end, SWAP[t]))
        elif t == "!" and after != "=":
            out["operator"].append((begin, end, ""))
        elif kind == "number":
            digits = re.match(r"0[xX][0-9a-fA-F]+|\d+", t).group()
            n = int(digits, 16 if "x" in digits.lower() else 8 if digits[0] == "0" else 10)
            out["constant"].append((begin, end, str(n + 1)))
            if n > 0:
                out["constant"].append((begin, end, str(n - 1)))
        elif t in ("true", "false"):
            out["truth"].append((begin, end, "false" if t == "true" else "true"))
        elif t in ("if", "while") and after == "(":
            j = close(toks, i + 1)
            out["condition"].append((toks[i + 1][2], toks[j][1], "!(" + text[toks[i + 1][2]:toks[j][1]] + ")"))
        elif kind == "word" and after == "(" and t not in ("for", "switch", "return", "sizeof", "if", "while"):
            args = arguments(text, toks, i + 1)
            for (b1, e1), (b2, e2) in zip(args, args[1:]):
                if text[b1:e1] != text[b2:e2]:
                    out["arguments"].append((b1, e2, text[b2:e2] + text[e1:b2] + text[b1:e1]))
        if kind == "word" and (before in (";", "{", "}", ")", "else") or (before == ":" and "?" not in text[begin - 40:begin])) \
                and t not in ("return", "if", "for", "while", "do", "switch", "case", "default", "else", "goto", "struct", "enum",
                              "const", "static", "union", "typedef"):
            j = i
            while j < len(toks) and toks[j][0] not in (";", "{", "}"):
                j = close(toks, j) + 1 if toks[j][0] in "([" else j + 1
            is_call_or_assignment = after in ("(", "->", ".", "=", "[", "++", "--", "+=", "-=", "|=", "&=") or t in ("break", "continue")
            if j < len(toks) and toks[j][0] == ";" and is_call_or_assignment:
                out["statement"].append((begin, toks[j][1], "(void)0"))
    return {k: v for k, v in out.items() if v}


class Mutant:
    def __init__(self, path, text, kind, edit):
        begin, end, new = edit
        self.path, self.kind, self.text = path, kind, text[:begin] + new + text[end:]
        # The lines stay where they are, so that nothing but the mutation changes the object code.
        self.text = self.text if self.text.count("\n") == text.count("\n") else \
            text[:begin] + new + "\n" * (text[begin:end].count("\n") - new.count("\n")) + text[end:]
        self.line = text.count("\n", 0, begin) + 1
        first, last = text.rfind("\n", 0, begin) + 1, text.find("\n", end)
        short = lambda s: " ".join(s.split())
        self.shown = f"`{short(text[first:last])}` → `{short(text[first:begin] + new + text[end:last])}`".replace("|", "\\|")
        self.result = self.why = ""


def draw(folder, seed):
    """Mutants of a folder without end: a kind, then a file by its length, then a place."""
    rng = random.Random(f"{seed} {folder}")
    patterns = FOLDERS[folder][0]
    paths = {p for g in patterns if g[0] != "!" for p in ROOT.glob(g)} - {p for g in patterns if g[0] == "!" for p in ROOT.glob(g[1:])}
    for g in patterns:
        if not list(ROOT.glob(g.lstrip("!"))):
            sys.exit(f"mutate: {g} names no file: FOLDERS in tests/mutate.py should say where {folder} lives now")
    places = {}
    for p in sorted(paths):
        text = p.read_text()
        for kind, edits in mutations(text).items():
            places.setdefault(kind, []).extend((p.relative_to(ROOT), text, kind, e) for e in edits)
    seen = set()
    kinds = sorted(places)
    while any(len(v) for v in places.values()):
        kind = rng.choice(kinds)
        if places[kind]:
            m = Mutant(*places[kind].pop(rng.randrange(len(places[kind]))))
            if (m.path, m.text) not in seen:
                seen.add((m.path, m.text))
                yield m


def limit():
    resource.setrlimit(resource.RLIMIT_DATA, (12 << 30,) * 2)  # not _AS: the emulation reserves addresses
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Copy:
    """The tree and its build: -O1, nothing that slows down."""

    def __init__(self, folder):
        self.tree, self.build = WORK / "tree", WORK / "build"
        self.tree.mkdir(parents=True, exist_ok=True)
        home = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
        for name in files.stdout.splitlines():
            source, target = ROOT / name, self.tree / name
            if source.is_file() and not (target.exists() and target.read_bytes() == source.read_bytes()):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
                os.utime(target)
        if (ROOT / ".venv").exists() and not (self.tree / ".venv").exists():
            (self.tree / ".venv").symlink_to((ROOT / ".venv").resolve())
        # Programs that a mutant has made dangerous find nothing of the person who runs this.
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("HOKKU_", "XDG_"))}
        self.env.update(HOKKU_BUILD=str(self.build), HOKKU_SOURCE=str(self.tree), HOME=home,
                        CCACHE_DIR=os.environ.get("CCACHE_DIR", os.path.expanduser("~/.ccache")))
        # The compiler's warnings count as a test, as they do for who edits; these are wrong more often at -O1.
        quiet = "-Wno-format-truncation -Wno-maybe-uninitialized -Wno-stringop-truncation -Wno-stringop-overflow -Wno-array-bounds"
        options = [f"-Dc_args={quiet}", "--buildtype=plain", "-Doptimization=1", "-Dwerror=true", "-Dcuda=disabled",
                   f"-Demulation={'true' if folder == 'cuda' else 'false'}"]
        exists = (self.build / "build.ninja").exists()
        self.call(["meson", "configure", self.build, *options] if exists else ["meson", "setup", self.build, self.tree, *options], 600)
        if self.call(["ninja", "-C", self.build], 3600)[0] != 0:
            sys.exit("mutate: the tree does not build; ninja -C build-mutate/build says why")
        listed = self.call(["ninja", "-C", self.build, "-t", "targets", "all"], 60)[1]
        self.objects = {}
        for target in re.findall(r"^(\S+\.o): ", listed, re.M):
            self.objects.setdefault(re.sub(r"^.*?\.p/|\.o$", "", target), []).append(target)
        self.tests = [c if c[0] in PYTEST else [str(self.build / c[0]), *c[1:]] for c in FOLDERS[folder][1]]
        programs = [c[0] for c in FOLDERS[folder][1] if c[0] not in PYTEST]
        self.targets = programs + (["src/hokku"] if any(c[0] in PYTEST for c in self.tests) else [])
        if folder == "sampler":
            self.targets.append("tests/conformance/libsampler_for_tests.so")
        if folder == "template":
            self.targets.append("tests/conformance/template_runner")
        if folder == "gguf":
            self.targets.append("tests/unit/dequant_cli")

    def call(self, command, seconds):
        """(exit status or None when the time was over, output)"""
        p = subprocess.Popen(list(map(str, command)), cwd=self.tree, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=limit)
        try:
            out = p.communicate(timeout=seconds)[0]
            return p.returncode, out.decode(errors="replace")
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            p.communicate()
            return None, ""

    def baseline(self):
        """Every test passes on the tree as it is; how long each took limits it later."""
        self.seconds = []
        for t in self.tests:
            start = time.monotonic()
            status, out = self.call(t, 1200)
            if status != 0:
                sys.exit(f"mutate: {' '.join(t)} fails without any mutation:\n{out[-2000:]}")
            self.seconds.append(30 + 8 * (time.monotonic() - start))

    def objects_of(self, path):
        """The object files made of a source; Meson names them by its path with _ for /."""
        tail = [str(path).replace("/", "_"), str(path.relative_to(path.parts[0])).replace("/", "_"), path.name + ".cpp"]
        return [o for t in tail for o in self.objects.get(t, [])]

    def run(self, m):
        target = self.tree / m.path
        original, objects = target.read_text(), self.objects_of(m.path)
        assert objects, f"no object file of {m.path}"
        try:
            before = [(self.build / o).read_bytes() for o in objects]
            target.write_text(m.text)
            if self.call(["ninja", "-C", self.build, *objects], 600)[0] != 0:
                m.result = "invalid"  # the compiler's errors and warnings notice: not counted
                return
            if [(self.build / o).read_bytes() for o in objects] == before:
                m.result = "equivalent"
                return
            if self.call(["ninja", "-C", self.build, *self.targets], 900)[0] != 0:
                m.result, m.why = "killed", "build"  # a program that the build runs
                return
            for t, seconds in zip(self.tests, self.seconds):
                status = self.call(t, seconds)[0]
                if status != 0:
                    m.result = "killed"
                    m.why = ("time, " if status is None else "") + pathlib.Path(next(a for a in t if "test_" in a)).stem
                    return
            m.result = "survived"
        finally:
            target.write_text(original)
            self.call(["ninja", "-C", self.build, *objects], 600)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("folders", nargs="*", metavar="FOLDER", help="of " + ", ".join(FOLDERS) + " (default: all but cuda)")
    a.add_argument("--count", type=int, default=40, help="mutants of each that compile")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--minutes", type=float, default=0, help="for each folder; 0: no limit")
    a.add_argument("--only", metavar="FILE:LINE", action="append", help="of these mutants those of a line, to see a new test kill them")
    args = a.parse_args()
    unknown = set(args.folders) - set(FOLDERS)
    if unknown:
        a.error(f"unknown folder {', '.join(sorted(unknown))}")
    rows, survivors = [], []
    for folder in args.folders or [f for f in FOLDERS if f != "cuda"]:
        copy = Copy(folder)
        copy.baseline()
        counted, n_drawn, begin = [], 0, time.monotonic()
        for m in draw(folder, args.seed):
            if n_drawn >= args.count or (args.minutes and time.monotonic() - begin > 60 * args.minutes):
                break
            if args.only and f"{m.path}:{m.line}" not in args.only:
                continue
            copy.run(m)
            n_drawn += m.result != "invalid"
            print(f"{m.result:10} {m.path}:{m.line} {m.kind} {m.why} {m.shown}", file=sys.stderr, flush=True)
            if m.result != "invalid":
                counted.append(m)
        n = {r: sum(m.result == r for m in counted) for r in ("killed", "survived", "equivalent")}
        rows.append(f"| {folder} | {len(counted)} | {n['killed']} | {n['survived']} | {n['equivalent']} |")
        print(rows[-1], file=sys.stderr, flush=True)
        survivors += [f"- {m.path}:{m.line} ({m.kind}): {m.shown}" for m in counted if m.result == "survived"]
    print("| folder | mutants | killed | survived | equivalent |\n|---|---:|---:|---:|---:|")
    print("\n".join(rows))
    print("\nSurvivors:\n" + ("\n".join(survivors) or "none"))


if __name__ == "__main__":
    main()
