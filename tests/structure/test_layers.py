"""The order of the house: a lower layer never includes a higher one, every header compiles alone, src/ names no CUDA."""
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRC = ROOT / "src"


def layers():
    """Each layer and those it may include besides itself, as docs/architecture.md says."""
    rows = re.findall(r"^\| `(?:src/)?(\w+)(?:/|\.c)` \|.*\| ([^|]*) \|$", (ROOT / "docs/architecture.md").read_text(), re.M)
    return {name: set(re.findall(r"\w+", "" if may == "nothing" else may)) for name, may in rows}


LAYERS = layers()
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.M)


def layer_of(path):
    """The layer of a file path relative to src/ (or below cuda/)."""
    parts = pathlib.PurePath(path).parts
    return parts[0] if len(parts) > 1 else pathlib.PurePath(path).stem.split("_")[0]


def sources():
    yield from (p for p in SRC.rglob("*") if p.suffix in (".c", ".h"))
    yield from (p for p in (ROOT / "cuda").rglob("*") if p.suffix in (".cu", ".cuh", ".h"))


def included(path, quote, name):
    """The file that the compiler takes for an include: beside the including one (in quotes only), else below src/, then
    cuda/. None: a system's header, or a generated one."""
    places = ([path.parent] if quote == '"' else []) + [SRC, ROOT / "cuda"]
    return next((f.resolve() for f in (place / name for place in places) if f.is_file()), None)


def wrong_includes(path, text):
    layer = "cuda" if path.is_relative_to(ROOT / "cuda") else layer_of(path.relative_to(SRC))
    for quote, name in INCLUDE.findall(text):
        target = included(path, quote, name)
        if target is None:
            continue
        if target.is_relative_to(ROOT / "cuda"):
            other = "cuda"
        elif target.is_relative_to(SRC):
            other = layer_of(target.relative_to(SRC))
        else:
            other = "outside of src/ and cuda/"
        if other != layer and other not in LAYERS[layer]:
            yield f"{path.relative_to(ROOT)} includes {name} ({other})"


def test_the_order_of_the_layers_has_no_circle():
    assert set(LAYERS) == {layer_of(p.relative_to(SRC)) for p in SRC.rglob("*.[ch]")} | {"cuda"}
    assert set().union(*LAYERS.values()) <= set(LAYERS)
    left = dict(LAYERS)
    while left:
        low = [name for name, may in left.items() if not may & set(left)]
        assert low, f"a circle among {sorted(left)}"
        for name in low:
            del left[name]


def test_no_layer_includes_a_higher_one():
    wrong = [w for path in sources() for w in wrong_includes(path, path.read_text())]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("line", ['#include "term/term.h"', '#include "../term/term.h"', '#include "../base/../term/term.h"',
                                  '  #  include "../term/term.h" // why', "#include <term/term.h>", '#include"../term/term.h"',
                                  '#include "../../cuda/cuda_common.cuh"', '#include "../../tests/unit/test.h"'])
def test_an_include_is_found_whatever_path_names_it(line):
    line = line.replace("term/term.h", f"term/{next((SRC / 'term').glob('*.h')).name}")
    assert list(wrong_includes(SRC / "base/buf.c", "// a file\n" + line + "\n"))
    assert not list(wrong_includes(SRC / "base/buf.c", '#include "../base/buf.h"\n#include "buf.h"\n#include <stdio.h>\n'))


# Headers that only some layers may include although they are above.
PRIVATE = {SRC / "engine/backend.h": {"engine", "cpu", "cuda"}}


def private_includes(path, text):
    layer = "cuda" if path.is_relative_to(ROOT / "cuda") else layer_of(path.relative_to(SRC))
    return [name for quote, name in INCLUDE.findall(text) if layer not in PRIVATE.get(included(path, quote, name), {layer})]


def test_nobody_reaches_through_the_engine():
    wrong = [f"{path.relative_to(ROOT)} includes {name}" for path in sources() for name in private_includes(path, path.read_text())]
    assert not wrong, "\n".join(wrong)
    assert private_includes(SRC / "dialog/why.c", '#include "../engine/backend.h"\n')
    assert not private_includes(SRC / "cpu/engine.c", '#include "engine/backend.h"\n')


def test_src_names_no_cuda_symbol_but_in_main():
    wrong = []
    for path in SRC.rglob("*.[ch]"):
        text = re.sub(r"//.*", "", path.read_text())
        if re.search(r"\bcuda[A-Z]\w*\(|\bcublas\w*\(|__CUDA_ARCH__|<cuda", text):
            wrong.append(str(path.relative_to(ROOT)))
        elif re.search(r"\bcuda_engine_\w+|\bcuda_device_count", text) and path.name not in ("main.c", "engine.h"):
            wrong.append(str(path.relative_to(ROOT)))
    assert not wrong, wrong


@pytest.mark.parametrize("compiler", [c for c in ("gcc", "clang") if shutil.which(c)])
def test_every_header_compiles_alone(compiler):
    flags = subprocess.run(["pkg-config", "--cflags", "jansson", "libpcre2-8"], capture_output=True, text=True).stdout.split()
    for header in sorted(SRC.rglob("*.h")):
        if "simd" in header.name:
            continue  # instruction-set variants need their own flags
        r = subprocess.run([compiler, "-std=c17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
                            "-I", str(SRC), "-x", "c", *flags, "-"], capture_output=True, text=True,
                           input=f'#include "{header.relative_to(SRC)}"\n')
        assert r.returncode == 0, r.stderr


def outside_of_c(text):
    """The functions that a header for C and C++ declares outside of its extern "C"."""
    guard = re.compile(r'#ifdef __cplusplus\nextern "C" \{\n#endif.*#ifdef __cplusplus\n\}\n#endif', re.S)
    return re.findall(r"^\w[^;{}()#]*\([^;{}]*\);", guard.sub("", text), re.M)


# nvcc's build links for minutes until it says this.
def test_what_cuda_calls_has_the_names_of_c():
    wrong = [f"{p.relative_to(ROOT)}: {line}" for p in SRC.rglob("*.h") if 'extern "C"' in (text := p.read_text())
             for line in outside_of_c(text)]
    assert not wrong, "\n".join(wrong)
    profile = (SRC / "engine/profile.h").read_text()
    assert outside_of_c(profile.replace("\n#endif\n#endif\n", "\n#endif\n\nbool late(const struct model *m,\n          int n);\n#endif\n"))


def test_nothing_committed_names_a_machine_path():
    files = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True).stdout.split()
    needles = ["/" + "work/", "/" + "root/"]
    wrong = [f for f in files if (ROOT / f).is_file() and (ROOT / f).stat().st_size < 1 << 20
             and any(n in (ROOT / f).read_text(errors="ignore") for n in needles)]
    assert not wrong, wrong


def families():
    table = re.findall(r'^    \{"([a-z0-9_-]+)"', (SRC / "model/arch.c").read_text(), re.M)
    assert {"llama", "qwen2", "qwen3"} <= set(table)
    return table


# text/ knows tokenizers, jinja/ templates, of which some have the names of families; Qwen2.5 is a model in examples.
def test_only_model_names_a_family():
    # (of the Hub's users one is called as a family: OWNER/NAME)
    name = re.compile(r"(?<![a-z0-9])(" + "|".join(re.escape(f) for f in families()) + r")(?![a-z0-9]|\.[0-9]|/[A-Z])", re.I)
    wrong = []
    for path in sources():
        if path.is_relative_to(ROOT / "cuda") or path.relative_to(SRC).parts[0] not in ("model", "text", "jinja"):
            code = re.sub(r"//.*", "", path.read_text())
            wrong += [f"{path.relative_to(ROOT)}: {m.group()}" for m in name.finditer(code)]
    assert not wrong, wrong


def test_every_family_is_in_the_list_of_models_and_in_the_vectors():
    models, oracle = ((ROOT / p).read_text() for p in ("docs/models.md", "tests/vectors/families.py"))
    for name in families():
        assert f"`{name}`" in models
        assert name in ("llama", "qwen2", "qwen3") or f'arch="{name}"' in oracle
