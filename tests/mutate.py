#!/usr/bin/env python3
"""Do the tests notice? Changes one token of one file at a time, in a copy of the tree, and runs the quick tests of its folder.

    .venv/bin/python tests/mutate.py [--count 40] [--seed 1] [--jobs 1] [FOLDER ...]     # a table, and the survivors, in Markdown

A mutant is killed when a test fails (or crashes, or runs out of its time), it is equivalent when the compiler makes the same
object code of it, and a survivor otherwise: then a test is missing, or what was changed does not matter.
Not part of any suite: a hundred mutants take the better part of an hour. The same seed on the same sources makes the same mutants."""
import argparse
import atexit
import concurrent.futures
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
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORK = ROOT / "build-mutate"  # git ignores it; for each job a copy of the tree, and its build
PYTEST = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout", "120"]


def unit(*names):
    return [[f"tests/unit/test_{n}"] for n in names]


def py(path, *more):
    return [[*PYTEST, path, *more]]


def conformance(*commands):
    """Each a program of tests/conformance and what it is called with."""
    return [[f"tests/conformance/test_{c.split()[0]}", *c.split()[1:]] for c in commands]


def gpu(*names):
    """Tests on the emulation: of kernels, of the engine, or "NAME" of the models with that in their name, in chunks of 64."""
    whole = ("engine", "facts", "sequences", "masks", "numbers", "windows")
    return [["tests/gpu/test_models_emu", "cuda", f"{n[1:]}.p1.", "64"] if n[0] == "@" else
            ["tests/gpu/test_sequences_of_states_emu", "cuda", "qwen35"] if n == "sequences_of_states" else
            [f"tests/gpu/test_{n}_emu", *(["cuda"] if n in whole else []), *(["builtin/hokku-builtin.gguf"] if n == "builtin" else [])]
            for n in names]


# What notices a change, by the file's name: the first row that matches it.
ENGINE_TESTS = [
    (r"schedule", unit("schedule") + unit("guesses")),
    (r"guesses|spec_making|drafter", unit("guesses") + conformance("company count-glm4moe")),
    (r"speculate|ngram", unit("speculate") + conformance("drafts gemma3")),
    (r"constrain|grammar", unit("constrain") + py("tests/conformance/test_grammar.py")),
    (r"room|windows|states|kv_pool|kv_bytes|measure|engine\.c",
     unit("room", "near", "generate", "cpu_decode") + conformance("states cpu mamba2", "windows gemma3", "drafts gemma3", "going_back mamba2")
     + unit("cpu_engine")),
    (r"", unit("generate", "device_choice", "cpu_decode")
     + py("tests/e2e/test_numbers.py", "-k", "plan or scratch or largest") + unit("cpu_engine")),
]
CPU_TESTS = [
    (r"ssm|delta|conv", unit("cpu_kernels") + conformance("states cpu mamba2", "states cpu qwen35", "models cpu mamba2-f16", "models cpu qwen35-f16")),
    (r"latent", unit("cpu_kernels") + conformance("models cpu deepseek2-f16", "models cpu mistral4-f16")),
    (r"experts", unit("cpu_kernels") + conformance("models cpu gpt-oss-f16", "models cpu llama4-f16", "models cpu qwen2moe-f16")),
    (r"", unit("cpu_kernels", "cpu_decode") + conformance("models cpu f16.p1") + unit("cpu_engine")),
]
TERM_TESTS = [
    (r"termout|fence|sink|shape", unit("termout") + py("tests/e2e/test_shape.py") + py("tests/e2e/test_streams.py")),
    (r"lines|line_reader|batch|shelf", unit("line_reader") + py("tests/e2e/test_lines.py")),
    (r"at_hand|attach", py("tests/e2e/test_at_hand.py")),
    (r"", py("tests/e2e/test_kept.py") + py("tests/e2e/test_jobs.py") + py("tests/e2e/test_repl.py", "-n", "2") + py("tests/e2e/test_repl_sessions.py", "-n", "2") + py("tests/e2e/test_replay.py")),
]
CLI_TESTS = [
    (r"others|model_file", py("tests/e2e/test_other_model.py")),
    (r"kept", py("tests/e2e/test_keep.py", "-k", "not kill and not less_memory")),
    (r"", py("tests/e2e/test_usage.py") + py("tests/e2e/test_settings.py") + py("tests/e2e/test_completion.py")
     + py("tests/e2e/test_manual.py") + py("tests/e2e/test_places.py")),
]
SERVE = py("tests/e2e/test_serve.py", "-n", "2", "-k", "not may_end and not kept_of_requests and not flood and not that_waits")
SERVE_TESTS = [
    (r"calls|item", unit("desk") + py("tests/e2e/test_serve_tools.py") + py("tests/e2e/test_serve_edges.py") + SERVE),
    (r"", unit("desk") + py("tests/e2e/test_serve_edges.py") + SERVE + py("tests/e2e/test_serve_tools.py")),
]
DIALOG_TESTS = [
    (r"answering|why", unit("conversation", "thinking") + py("tests/e2e/test_numbers.py", "-k", "why") + py("tests/e2e/test_kept.py")),
    (r"think", unit("think", "thinking")),
    (r"", unit("think", "conversation", "session") + py("tests/e2e/test_numbers.py", "-k", "why") + py("tests/e2e/test_repl_sessions.py", "-k", "not save_that_fails") + py("tests/e2e/test_replay.py")),
]
# What notices a change in cuda/. There, all tests of a folder take minutes.
CUDA_TESTS = [
    (r"attention_wide", gpu("attention", "@deepseek2-f16", "latent", "engine")),
    (r"attention", gpu("attention", "engine", "@gpt-oss-f16", "@gemma3-f16")),
    (r"expert|choice", gpu("choice", "experts", "@gpt-oss-f16", "@llama4-f16", "@qwen2moe-f16", "@minimax-m2-f16")),
    (r"conv|delta|ssm|states", gpu("states", "@qwen35-f16", "@mamba2-f16", "@falcon-h1-f16", "sequences_of_states")),
    (r"latent", gpu("@deepseek2-f16", "@mistral4-f16", "latent")),
    (r"gemm", gpu("engine", "@qwen2-tiny-f16", "gemm")),
    (r"kv_cache|plan", gpu("plan", "kv_cache", "engine", "@gemma4-f16", "@gemma4-moe-f16", "@qwen35-f16", "facts", "sequences", "windows")),
    (r"rows", gpu("rows", "kernels", "engine", "builtin", "@stablelm-f16", "@gemma4-f16", "@qwen35-f16", "sequences")),
    (r"sampler", gpu("sampler", "engine", "masks", "sequences")),
    (r"matvec|quant|repack|layout|activation", gpu("plan", "kernels", "engine", "@apertus-f16", "@nemotron-f16", "gemm")),
    (r"range|finite", gpu("engine", "numbers")),
    (r"device", gpu("shared", "device")),
    (r"facts", gpu("engine", "facts")),
    (r"block|cuda_common|divide", gpu("rows", "kernels", "sampler", "choice", "experts", "states", "engine", "latent", "attention")),
    (r"forward_experts", gpu("@gpt-oss-f16", "@llama4-f16", "@qwen2moe-f16", "@deepseek2-f16", "engine", "facts")),
    (r"forward_latent", gpu("@deepseek2-f16", "@mistral4-f16", "facts", "sequences")),
    (r"forward_states", gpu("@qwen35-f16", "@mamba2-f16", "@falcon-h1-f16", "@lfm2-f16", "sequences_of_states", "facts")),
    (r"forward", gpu("engine", "@gemma4-f16", "@qwen35-f16", "@cohere2-f16", "@deepseek2-f16", "builtin", "facts", "sequences")),
    (r"", gpu("engine", "shared", "device", "numbers", "builtin", "@gemma4-f16", "@qwen35-f16", "facts", "sequences")),
]
# What is mutated, and the tests that should notice, the quickest first: programs of the build, and pytest.
FOLDERS = {
    "engine": (["src/engine/*.c", "!src/engine/sampler.c", "!src/engine/profile.c", "src/cpu/engine.c", "src/cpu/plan.c", "src/cpu/kv.c"],
               ENGINE_TESTS),
    "sampler": (["src/engine/sampler.c"], unit("sampler", "sampler_edges") + py("tests/conformance/test_sampler.py")),
    "grammar": (["src/grammar/*.c"], unit("constrain") + py("tests/conformance/test_json_schema.py") + py("tests/conformance/test_grammar.py")),
    "dialog": (["src/dialog/*.c"], DIALOG_TESTS),
    # Left out are tests that need more memory, or a faster program, than a mutant has.
    "keep": (["src/keep/*.c"], py("tests/e2e/test_keep.py", "tests/e2e/test_keep_moments.py", "-n", "2", "-k", "not less_memory")),
    "serve": (["src/serve/*.c"], SERVE_TESTS),
    "cli": (["src/cli/*.c"], CLI_TESTS),
    "term": (["src/term/*.c"], TERM_TESTS),
    "cpu": (["src/cpu/*.c", *("!src/cpu/" + f for f in ("engine.c", "plan.c", "kv.c", "profile.c", "bandwidth.c"))], CPU_TESTS),
    "template": (["src/jinja/*.c"],
                 unit("template", "template_origin", "template_limits") + [["tests/conformance/test_templates"]] + py("tests/conformance/test_template_edges.py")),
    "gguf": (["src/gguf/*.c"], unit("gguf", "gguf_edges") + py("tests/conformance/test_dequant.py") + py("tests/conformance/test_gguf_files.py")
             + py("tests/conformance/test_split_names.py")),
    "hub": (["src/hub/*.c"], unit("hub", "hub_oom") + py("tests/e2e/test_pull.py", "tests/e2e/test_pull_models.py")),
    "tools": (["src/tools/score.c", "src/tools/bench.c"],
              unit("known_work") + py("tests/e2e/test_numbers.py", "-k", "perplexity or bench or score or alike") + py("tests/e2e/test_bench.py")),
    # Left out: what only measures, and the instructions, which the emulation has in its own words.
    "cuda": (["cuda/*.cu", "cuda/*.cuh", *("!cuda/" + f for f in ("profile.cu", "measure.cu", "clocks.cu", "recorder.cuh", "ptx*.cuh"))], CUDA_TESTS),
}


def tests_of(folder, path=None):
    """The tests that should notice a change of a file, or of any of the folder's."""
    tests = FOLDERS[folder][1]
    if isinstance(tests[0], list):
        return tests
    if path:
        return next(t for pattern, t in tests if re.match(pattern, path.name))
    return list(map(list, dict.fromkeys(tuple(t) for _, row in tests for t in row)))


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

    def __init__(self, folder, job):
        here = WORK / str(job)
        self.folder, self.tree, self.build = folder, here / "tree", here / "build"
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
        self.env.update(HOKKU_BUILD=str(self.build), HOKKU_SOURCE=str(self.tree), HOME=home, HOKKU_QUICK="1",
                        CCACHE_DIR=os.environ.get("CCACHE_DIR", os.path.expanduser("~/.ccache")), CCACHE_BASEDIR=str(here))
        if shutil.which("ccache"):  # what was is compiled again after each mutant
            self.env.update(CC="ccache " + self.env.get("CC", "gcc").split()[-1], CXX="ccache " + self.env.get("CXX", "g++").split()[-1])
        # The compiler's warnings count as a test, as they do for who edits; these are wrong more often at -O1.
        quiet = "-Wno-format-truncation -Wno-maybe-uninitialized -Wno-stringop-truncation -Wno-stringop-overflow -Wno-array-bounds"
        options = [f"-Dc_args={quiet}", "--buildtype=plain", "-Doptimization=1", "-Dwerror=true", "-Dcuda=disabled",
                   f"-Demulation={'true' if folder == 'cuda' else 'false'}"]
        exists = (self.build / "build.ninja").exists()
        self.call(["meson", "configure", self.build, *options] if exists else ["meson", "setup", self.build, self.tree, *options], 600)
        self.targets = self.targets_of(tests_of(folder))
        # The first time everything, for what tests in Python take from the build; of the emulation only what is used.
        more = ["tests/vectors/vectors.stamp", *self.targets] if folder == "cuda" else []
        if self.call(["ninja", "-C", self.build, *more], 3600)[0] != 0:
            sys.exit(f"mutate: the tree does not build; ninja -C {self.build.relative_to(ROOT)} says why")
        # Which object files are made of a source or a header.
        self.objects, made = {}, None
        for line in self.call(["ninja", "-C", self.build, "-t", "deps"], 60)[1].splitlines():
            if not line.startswith(" "):
                made = line.split(":")[0]
            elif made and made.endswith(".o"):
                self.objects.setdefault(os.path.normpath(self.build / line.strip()), set()).add(made)

    def targets_of(self, tests):
        """What the build has to make for some tests."""
        programs = list(dict.fromkeys(t[0] for t in tests if t[0] not in PYTEST))
        more = {"sampler": ["tests/conformance/libsampler_for_tests.so"], "template": ["tests/conformance/template_runner"],
                "gguf": ["tests/unit/dequant_cli"],
                "grammar": ["tests/conformance/libgrammar_for_tests.so"], "engine": ["tests/conformance/libgrammar_for_tests.so"]}.get(self.folder, [])
        return programs + (["src/hokku"] if any(t[0] in PYTEST for t in tests) else []) + more

    def objects_of(self, path, targets):
        """The object files that a change of a file can change: those of the libraries, and of the programs that will run."""
        return sorted(o for o in self.objects.get(str(self.tree / path), []) if ".a.p/" in o or o.split(".p/")[0] in targets)

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

    def test(self, t, seconds):
        return self.call(t if t[0] in PYTEST else [self.build / t[0], *t[1:]], seconds)

    def seconds(self, t):
        """How long a test may take, from what it takes on the tree as it is, where it passes."""
        start = time.monotonic()
        status, out = self.test(t, 1200)
        if status != 0:
            sys.exit(f"mutate: {' '.join(t)} fails without any mutation:\n{out[-2000:]}")
        return 20 + 4 * (time.monotonic() - start) if self.folder == "cuda" else 30 + 8 * (time.monotonic() - start)

    def run(self, m, limits):
        tests = tests_of(self.folder, m.path)
        targets = self.targets_of(tests)
        target = self.tree / m.path
        original, objects = target.read_text(), self.objects_of(m.path, targets)
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
            if self.call(["ninja", "-C", self.build, *targets], 900)[0] != 0:
                m.result, m.why = "killed", "build"  # a program that the build runs
                return
            for t in tests:
                status = self.test(t, limits[tuple(t)])[0]
                if status != 0:
                    m.result = "killed"
                    m.why = ("time, " if status is None else "") + pathlib.Path(next(a for a in t if "test_" in a)).stem + (f" {t[2]}" if "models" in t[0] else "")
                    return
            m.result = "survived"
        finally:
            target.write_text(original)
            self.call(["ninja", "-C", self.build, *objects], 600)


def run_all(copies, mutants, args):
    """The first args.count mutants that compile, each with its result, as they are done."""
    lock, counted, running, begin = threading.Lock(), [], set(), time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(copies)) as pool:
        free = list(copies)

        def limit_of(t):
            with lock:
                copy = free.pop()
            try:
                return tuple(t), copy.seconds(t)
            finally:
                free.append(copy)

        paths = [pathlib.Path(o.split(":")[0]) for o in args.only] if args.only else [None]
        tests = {tuple(t): t for p in paths for t in tests_of(copies[0].folder, p)}
        limits = dict(pool.map(limit_of, tests.values()))

        def work(copy):
            while True:
                with lock:
                    over = args.minutes and time.monotonic() - begin > 60 * args.minutes
                    m = None if over or len(counted) + len(running) >= args.count else next(mutants, None)
                    if not m:
                        return
                    running.add(m)
                copy.run(m, limits)
                with lock:
                    running.remove(m)
                    print(f"{m.result:10} {m.path}:{m.line} {m.kind} {m.why} {m.shown}", file=sys.stderr, flush=True)
                    if m.result != "invalid":
                        counted.append(m)

        mutants = (m for m in mutants if not args.only or f"{m.path}:{m.line}" in args.only)
        for done in [pool.submit(work, c) for c in copies]:
            done.result()
    return counted


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("folders", nargs="*", metavar="FOLDER", help="of " + ", ".join(FOLDERS) + " (default: all but cuda)")
    a.add_argument("--count", type=int, default=40, help="mutants of each that compile")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--minutes", type=float, default=0, help="for each folder; 0: no limit")
    a.add_argument("--only", metavar="FILE:LINE", action="append", help="of these mutants those of a line, to see a new test kill them")
    a.add_argument("--jobs", type=int, default=1, help="mutants at the same time, each with a build of its own")
    args = a.parse_args()
    unknown = set(args.folders) - set(FOLDERS)
    if unknown:
        a.error(f"unknown folder {', '.join(sorted(unknown))}")
    rows, survivors = [], []
    for folder in args.folders or [f for f in FOLDERS if f != "cuda"]:
        copies = [Copy(folder, job) for job in range(args.jobs)]
        counted = run_all(copies, draw(folder, args.seed), args)
        n = {r: sum(m.result == r for m in counted) for r in ("killed", "survived", "equivalent")}
        rows.append(f"| {folder} | {len(counted)} | {n['killed']} | {n['survived']} | {n['equivalent']} |")
        print(rows[-1], file=sys.stderr, flush=True)
        survivors += [f"- {m.path}:{m.line} ({m.kind}): {m.shown}" for m in counted if m.result == "survived"]
    print("| folder | mutants | killed | survived | equivalent |\n|---|---:|---:|---:|---:|")
    print("\n".join(rows))
    print("\nSurvivors:\n" + ("\n".join(survivors) or "none"))


if __name__ == "__main__":
    main()
