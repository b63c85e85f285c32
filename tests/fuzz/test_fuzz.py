"""Every fuzz target survives the inputs that are kept in corpus/, then a fixed number of runs from them and from the generated
seeds: the same runs every time (scripts/fuzz.sh explores). Needs a build with -Dfuzz=enabled."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("HOKKU_BUILD", HERE.parents[1] / "build-asan"))
sys.path.insert(0, str(HERE))
import make_corpus  # noqa: E402

RUNS = {"config": 15000, "gguf": 60000, "grammar": 5000, "hub": 200000, "request": 60000, "session": 40000, "template": 40000, "terminal": 100000, "tokenizer": 60000}
LIMITS = ["-timeout=60", "-rss_limit_mb=2048"]
# Addresses reach the report of a run: how deep the stack is. Some containers do not allow to fix them.
SAME_ADDRESSES = ["setarch", "-R"] if subprocess.run(["setarch", "-R", "true"], capture_output=True).returncode == 0 else []


def program(target):
    path = BUILD / "tests/fuzz" / f"fuzz_{target}"
    if not path.exists():
        pytest.skip(f"{path.name} is not built (meson setup -Dfuzz=enabled)")
    return path


def kept(target):
    return sorted(p for p in (HERE / "corpus" / target).glob("*") if p.is_file())


def fixed_runs(target, runs, directory):
    """libFuzzer's report. Without -use_cmp=0 it would put the addresses that are compared into inputs."""
    inputs = make_corpus.write(directory / "seeds", target) + kept(target)
    (directory / "inputs").write_text(",".join(map(str, inputs)))  # in this order; that of a directory may be any
    done = subprocess.run(
        [*SAME_ADDRESSES, program(target), f"-runs={runs}", "-seed=1", "-use_cmp=0", *LIMITS, f"-artifact_prefix={directory}/",
         f"-seed_inputs=@{directory}/inputs"], capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stderr


def test_every_target_of_the_build_is_tested():
    sources = {p.stem.removeprefix("fuzz_") for p in HERE.glob("fuzz_*.c")}
    assert sources == set(RUNS) == set(make_corpus.TARGETS)
    assert {p.name for p in (HERE / "corpus").iterdir() if p.is_dir()} <= sources


@pytest.mark.parametrize("target", RUNS)
def test_kept_inputs_are_survived(target):
    inputs = kept(target)
    if inputs:
        done = subprocess.run([program(target), *LIMITS, *inputs], capture_output=True, text=True, errors="replace")
        assert done.returncode == 0, done.stderr[-4000:]
        assert done.stderr.count("Executed ") == len(inputs)


@pytest.mark.parametrize("target", RUNS)
def test_a_fixed_number_of_runs_is_survived(target, tmp_path):
    assert f"Done {RUNS[target]} runs" in fixed_runs(target, RUNS[target], tmp_path)


@pytest.mark.skipif(not SAME_ADDRESSES, reason="setarch -R is not allowed here")
def test_the_runs_are_the_same_every_time(tmp_path):
    def steps():
        return re.findall(r"(?m)^#\d+\t\w+ +cov: \d+ ft: \d+ corp: \S+", fixed_runs("tokenizer", 5000, tmp_path))
    first = steps()
    assert len(first) > 50 and steps() == first


def test_who_explores_stops_at_undefined_behaviour(tmp_path):
    """Which a sanitizer else only writes to the log."""
    seeds = tmp_path / "seeds/config"
    seeds.mkdir(parents=True)
    (seeds / "one").write_text("1")
    target = tmp_path / "fuzz_config"
    target.write_text('#!/bin/sh\ncase "$UBSAN_OPTIONS" in *halt_on_error=1*) exit 0;; esac\nexit 1\n')
    target.chmod(0o755)
    done = subprocess.run([HERE.parents[1] / "scripts/fuzz.sh", "config", "1", tmp_path / "out"], capture_output=True, text=True,
                          env={k: v for k, v in os.environ.items() if k != "UBSAN_OPTIONS"} | {"HOKKU_BUILD": str(tmp_path)})
    assert done.returncode == 0, done
