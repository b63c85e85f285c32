"""test.sh itself: which steps a run has, what it says, and that nothing which fails goes unsaid. Its tools are played here:
they write down how they were called, and result files as the real ones do."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

TOOL = r"""#!/usr/bin/env bash
# One tool for all names: $FAIL names words of a call that fails, with a result file and without.
call="$(basename "$0") $*"
echo "$call" >> "$CALLS"
if [[ -n ${SLEEP:-} && $call == *test\ * ]]; then echo $$ >> "$SLEEP"; exec sleep 1000; fi
bad=; [ -z "${FAIL:-}" ] || [[ $call != *$FAIL* ]] || bad='<failure message="x"/>'
result="<testsuite><testcase name=\"a\">$bad</testcase><testcase name=\"b\"/><testcase name=\"c\"><skipped/></testcase></testsuite>"
case $call in
*summary.py*) exec python3 "$@" ;;
"meson test"*--list*conformance*) printf 'hokku:conformance / %s\n' "of-a" "of-b" "of-c"; exit ;;
"meson test"*--list*) printf 'hokku:gpu / %s\n' "a of one" "a of one, otherwise" "b of one" "c of one" "d of one"; exit ;;
"git rev-list"*) [ -n "${TURN:-}" ] && echo "$TURN"; exit ;;
*--junitxml=*) out=${call##*--junitxml=}; out=${out%% *}; mkdir -p .pytest_cache; echo "$RANDOM" > .pytest_cache/nodeids ;;
"meson test"*) out=$3/meson-logs/testlog.junit.xml ;;
"meson setup"*) mkdir -p "$2/meson-logs" && touch "$2/build.ninja" ;;
esac
echo "words of a tool"
[ -z "${out:-}" ] || [ -n "$bad" -a -n "${CRASH:-}" ] || echo "$result" > "$out"
[ -z "$bad" ]
"""


def interruptible():
    """What is begun as a background job ignores interrupts, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def tree(tmp_path):
    """A tree with test.sh, and its tools: test_sh(args..., FAIL=...) -> lines of output, exit code, calls."""
    tree, bin = tmp_path / "tree", tmp_path / "bin"
    for path in ("test.sh", "tests/summary.py", "tests/requirements.txt"):
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tree / path)
    (tree / ".venv/bin").mkdir(parents=True)
    shutil.copy(ROOT / "tests/requirements.txt", tree / ".venv/requirements.stamp")
    (tree / "scripts").mkdir()
    bin.mkdir()
    for path in (bin / "meson", bin / "ninja", bin / "nvcc", bin / "git", tree / ".venv/bin/python", tree / "scripts/install-deps.sh"):
        path.write_text(TOOL)
        path.chmod(0o755)
    old = time.time() - 100
    for path in tree.rglob("*"):
        os.utime(path, (old, old))

    calls = tmp_path / "calls"

    def begin(*args, **env):
        calls.write_text("")
        return subprocess.Popen([str(tree / "test.sh"), *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                start_new_session=True, preexec_fn=interruptible,
                                env={"PATH": f"{bin}:/usr/bin:/bin", "CALLS": str(calls), **env})

    def run(*args, **env):
        p = begin(*args, **env)
        out, _ = p.communicate(timeout=100)
        return out.splitlines(), p.returncode, calls.read_text().splitlines()
    run.tree, run.bin, run.begin = tree, bin, begin
    return run


DEFAULT = ["tests/structure", "meson test -C build ", "tests/conformance tests/e2e", "tests/haiku"]


def suites(calls):
    """The calls of tests, with those of the default run, of which the second runs beside the others, in that order."""
    found = [c for c in calls if "pytest" in c or c.startswith("meson test") and "--list" not in c]
    return sorted(found[:4], key=lambda c: next((i for i, words in enumerate(DEFAULT) if words in c), 4)) + found[4:]


def test_the_default_run_has_every_kind_of_test_and_nothing_sanitized(tree):
    lines, code, calls = tree()
    assert code == 0 and lines[-1] == "8 passed, 0 failed, 4 skipped"  # of each of four files: two passed, one skipped
    assert len(suites(calls)) == len(DEFAULT)
    for call, words in zip(suites(calls), DEFAULT):
        assert words in call
    assert "--no-suite slow" in suites(calls)[1]
    assert not any("asan" in c or "fuzz" in c for c in calls)
    assert sum(line.startswith("== ") and " ok " in line for line in lines) == 9
    assert not any("words of a tool" in line for line in lines)


def test_all_has_more_and_the_same_before_it(tree):
    _, _, default = tree()
    shutil.rmtree(tree.tree / "build")
    lines, code, calls = tree("all")
    assert code == 0 and lines[-1] == "22 passed, 0 failed, 11 skipped"
    assert calls[0] == "install-deps.sh all" and default[0] == "install-deps.sh test"
    assert sorted(calls[1:len(default) - 1]) == sorted(default[1:-1])  # but the sum
    more = suites(calls)[4:]
    kept = [c for c in more if "test_repl.py" in c]  # it runs beside the first of the others
    more = [c for c in more if c not in kept]
    words = ["-C build-asan ", "-C build-asan-gcc ", "-k grammar or json_schema", "--suite slow", "test_tokenizer.py", "tests/fuzz"]
    assert len(kept) == 1 and len(more) == len(words)
    for call, part in zip(more, words):
        assert part in call
    assert [("--no-rebuild" in c) for c in more if c.startswith("meson test")] == [True, False, True]
    assert "--no-suite slow" not in more[0] and "a of one a of one, otherwise b of one c of one d of one" in more[3]
    assert any(re.search(r"-Dgpu_arch=sm_\d+", c) for c in calls)
    assert tree()[0][-1] == "8 passed, 0 failed, 4 skipped"  # what `all` left is not counted


def test_kernels_are_sanitized_a_third_at_a_time_and_compiled_for_others_between(tree):
    def sanitized(**turn):
        calls = tree("all", **turn)[2]
        assert any("-Dgpu_arch=" in c for c in calls) == (turn.get("TURN", "0")[-1] in "02468")
        return [c.split("--timeout-multiplier 2 ")[1] for c in calls if "-C build-asan-gcc" in c and "--list" not in c]
    assert sanitized() == ["a of one a of one, otherwise b of one c of one d of one"]
    assert sanitized(TURN="12") == []
    assert [sanitized(TURN=str(turn)) for turn in (1, 3, 5, 7)] == [
        ["a of one a of one, otherwise d of one"], ["b of one"], ["c of one"], ["a of one a of one, otherwise d of one"]]


def test_of_long_tests_each_commit_has_a_part(tree):
    def parts(turn):
        calls = tree("all", TURN=str(turn))[2]
        units, = [c for c in calls if "-C build-asan " in c and "--list" not in c]
        models, = [c for c in calls if "-C build-asan --list --suite conformance" in c]
        assert ("--no-suite slow" in models) == ("--no-suite slow" in units)
        slow, = [c for c in calls if "--suite slow" in c and "--list" not in c]
        models_of_it = units.split("--timeout-multiplier 2 ")[1].split("d of one ")[1]
        return "--no-suite slow" in units, models_of_it, slow.split("--suite slow ")[1]
    first, second, third = ("of-a", "a of one a of one, otherwise d of one"), ("of-b", "b of one"), ("of-c", "c of one")
    assert [parts(turn) for turn in range(1, 7)] == [
        (True, *first), (False, *second), (True, *second), (False, *third), (True, *third), (False, *first)]


def test_continue_leaves_out_what_passed_until_a_file_changes(tree):
    lines, _, default = tree()
    lines, code, calls = tree("all", "--continue")
    assert code == 0 and lines[-1] == "22 passed, 0 failed, 11 skipped"
    assert len(suites(calls)) == 7 and sum("passed before" in line for line in lines) == 4
    assert suites(tree("all", "--continue")[2]) == []
    (tree.tree / "tests/new.c").write_text("")
    assert len(suites(tree("all", "--continue")[2])) == 11
    assert len(suites(tree()[2])) == 4  # without --continue nothing is left out
    (tree.tree / "tests/new.c").write_text("x")
    assert tree("--continue", FAIL="tests/e2e", CRASH="1")[0][-1] == "6 passed, 1 failed, 3 skipped"


@pytest.mark.parametrize("how", ["a result file that says so", "no result file at all"])
@pytest.mark.parametrize("words", ["tests/structure", "meson test -C build ", "tests/e2e", "tests/haiku"])
def test_a_step_that_fails_is_shown_and_counted_and_the_others_run(tree, words, how):
    tree()  # no result of an earlier run is taken for one of this
    crash = {"CRASH": "1"} if how.startswith("no") else {}
    lines, code, calls = tree(FAIL=words, **crash)
    assert code == 1 and lines[-1] == ("6 passed, 1 failed, 3 skipped" if crash else "7 passed, 1 failed, 4 skipped")
    assert len(suites(calls)) == 4
    assert sum("FAILED" in line and line.startswith("== ") for line in lines) == 1
    assert "words of a tool" in lines
    assert len(suites(tree("--continue")[2])) == 1  # only what failed


def test_a_build_that_fails_ends_the_run(tree):
    lines, code, calls = tree(FAIL="ninja -C build")
    assert code == 1 and suites(calls) == [] and "words of a tool" in lines
    assert not any("passed," in line for line in lines)


def test_python_packages_that_do_not_come_end_the_run(tree):
    (tree.tree / ".venv/requirements.stamp").unlink()
    (tree.bin / "python3").write_text("#!/bin/sh\necho no such network\nexit 1\n")
    (tree.bin / "python3").chmod(0o755)
    lines, code, calls = tree()
    assert code == 1 and suites(calls) == [] and "no such network" in lines
    assert not any("passed," in line for line in lines)


def test_an_interrupted_run_leaves_nothing_behind(tree, tmp_path):
    asleep = tmp_path / "asleep"
    asleep.touch()
    p = tree.begin(SLEEP=str(asleep))
    limit = time.monotonic() + 90
    while len(pids := asleep.read_text().split()) < 2:  # the units, and what runs beside them
        assert time.monotonic() < limit and p.poll() is None
        time.sleep(0.01)
    os.killpg(p.pid, signal.SIGINT)
    assert p.wait(timeout=60) != 0
    while any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_an_unknown_argument_is_wrong_usage(tree):
    _, code, calls = tree("al")
    assert code == 2 and calls == []
