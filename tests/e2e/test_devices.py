"""--devices: one model on several GPUs, which are those of the emulation (tests/cuda_on_cpu)."""
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import BUILD, ROOT, model
from gguf import GGUFReader

EMULATED = BUILD / "tests/gpu/hokku_emu"
ASK = ["-no-cnv", "--temp", "0", "-n", "6", "-c", "128", "-b", "32", "Once upon a time"]


@pytest.fixture
def emulated(tmp_path):
    if not EMULATED.exists():
        pytest.skip("a build without emulated GPUs (-Demulation=false)")

    def run(*args, of=model("stories"), **env):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("HOKKU", "XDG"))}
        return subprocess.run([EMULATED, *map(str, args), "-m", of], capture_output=True, timeout=300, stdin=subprocess.DEVNULL,
                              env={**clean, "HOME": str(tmp_path), "HOKKU_EMU_DEVICES": "3", **env})
    return run


def test_several_devices_say_what_one_says_run_after_run(emulated):
    one = emulated(*ASK, "--device", "cuda")
    assert one.returncode == 0 and one.stdout.strip() and one.stderr == b""
    for devices, seeds in (("0,1", "123"), ("all", "1")):
        for seed in seeds:
            r = emulated(*ASK, "--devices", devices, HOKKU_EMU_SEED=seed)
            assert (r.returncode, r.stdout, r.stderr) == (0, one.stdout, b"")


def test_the_plan_shows_what_each_device_holds(emulated):
    r = emulated("--devices", "0,2", "--dry-run")
    assert r.returncode == 0 and r.stdout.count(b"\ndevice ") == 2 and b"\ndevice 2: weights " in r.stdout
    plan = json.loads(emulated("--devices", "0,2", "--dry-run", "--json").stdout)
    assert [d["device"] for d in plan["devices"]] == [0, 2]
    for part in ("weights", "kv", "scratch", "other", "available"):
        assert plan[part] == sum(d[part] for d in plan["devices"])
    assert "devices" not in json.loads(emulated("--device", "cuda:1", "--dry-run", "--json").stdout)
    # of one device there is nothing to split
    assert "devices" not in json.loads(emulated("--devices", "1", "--dry-run", "--json").stdout)


def test_the_bytes_of_a_token_are_a_table_or_json(emulated):
    """`bench --plan`, which asks the CUDA engine's layouts."""
    table = emulated("bench", "--plan", "-d", "0,100", "--device", "cuda").stdout.decode()
    r = emulated("bench", "--plan", "-d", "0,100", "--device", "cuda", "-o", "json")
    assert r.returncode == 0, r
    plan = json.loads(r.stdout)["plan"]
    assert [p["depth"] for p in plan] == [0, 100]
    for p, lines in zip(plan, table.split("depth ")[1:]):
        rows = [[c.strip() for c in line.split("|")[1:-2]] for line in lines.splitlines() if line.startswith("| ")][1:]
        assert [[k["kernel"], k["weight"], k["type"], str(k["moved_bytes"]), str(k["needed_bytes"])] for k in p["kernels"]] == rows[:-1]
        assert rows[-1] == ["token", "", "", str(p["moved_bytes"]), str(p["needed_bytes"])]
        assert p["moved_bytes"] == sum(k["moved_bytes"] for k in p["kernels"]) > 0


def test_a_conversation_is_checked_beside_others_where_that_is_promised(emulated, tmp_path):
    """With --exact; without, the engine of a conversation has passes of one, and says that it was not tried."""
    env, way = {"XDG_STATE_HOME": str(tmp_path)}, "beside other answers"
    for exact in (["--exact"], []):
        r = emulated("--device", "cuda", *exact, "-no-cnv", "-s", 3, "--temp", 0.8, "-n", 6, "-c", 512, "-b", 32, "--session", "s" + "x" * len(exact),
                     "Once upon a time", **env)
        assert r.returncode == 0, r
        said = json.loads(emulated("replay", "--check", "--json", "--device", "cuda", "s" + "x" * len(exact), **env).stdout)
        assert (said["agree"], said["answers"], said["tokens"]) == (True, 1, 6), said
        assert (way in said["also"]) == bool(exact) and (way in said.get("not_tried", {})) != bool(exact), said


@pytest.mark.parametrize("args, status, words", [
    (["--devices", "0,3"], 1, b"--devices 0,3: found 3 CUDA devices, numbered from 0"),
    (["--devices", "0;1"], 2, b"--devices: found \"0;1\", expected all, or 1 to 8 different numbers"),
    (["--devices", "0,1", "--device", "cpu"], 2, b"--devices beside --device"),
    (["--devices", "0,1", "-c", "2000000000"], 4, b"device 0: "),
])
def test_what_cannot_be_had_is_said(emulated, args, status, words):
    r = emulated(*args, "-n", 1, "hi")
    assert (r.returncode, r.stdout) == (status, b"") and words in r.stderr


def test_devices_that_do_not_reach_each_other_are_slower_and_that_is_said(emulated):
    r = emulated(*ASK, "--devices", "0,1", HOKKU_EMU_MACHINE="no-peers")
    assert r.returncode == 0 and r.stdout == emulated(*ASK, "--devices", "0,1").stdout
    assert r.stderr.count(b"\n") == 1 and b"goes through the host's, which is slower" in r.stderr
    assert emulated(*ASK, "-q", "--devices", "0,1", HOKKU_EMU_MACHINE="no-peers").stderr == b""


def test_guesses_leave_the_text_as_it_is(emulated):
    text = [*ASK[:-1], "-n", "24", "--devices", "0,1", "--exact", "Tom saw a red ball. Tom saw a red ball. Tom saw"]
    plain, guessed = (emulated(*text, "--json", "--spec", spec) for spec in ("off", "ngram"))
    assert plain.returncode == guessed.returncode == 0, guessed.stderr
    plain, guessed = (json.loads(r.stdout) for r in (plain, guessed))
    assert plain["text"] == guessed["text"] and plain["tokens"] == guessed["tokens"]


def test_inspect_shows_what_each_device_has(hokku):
    """Devices that need not be there: of the kinds of layers what a slice of the model is."""
    path = model("stories")
    one, two = (json.loads(hokku("inspect", path, "--json", *more).stdout)["hokku"] for more in ([], ["--devices", "0,2"]))
    assert one["max_devices"] == two["max_devices"] >= 2 and "devices" not in one
    assert [d["device"] for d in two["devices"]] == [0, 2] and sum(d["head"] for d in two["devices"]) == one["vocab"]
    for fact in ("heads", "kv_heads", "feed_forward"):
        kinds = [d["layer_kinds"] for d in two["devices"]]
        assert [sum(k[fact] for k in at) for at in zip(*kinds)] == [k[fact] for k in one["layer_kinds"]]
    assert one["weight_bytes"] < sum(d["weight_bytes"] for d in two["devices"]) < 2 * one["weight_bytes"]
    text = hokku("inspect", path, "--devices", "0,2").stdout
    assert b"\n  up to %d GPUs (--devices)" % one["max_devices"] in text and text.count(b" bytes of weights, ") == 2 and b"\n  device 2: " in text
    assert b"device 0" not in hokku("inspect", path).stdout
    assert hokku("inspect", path, "--devices", "0;2").returncode == 2


def test_a_session_goes_on_with_other_devices(emulated, tmp_path):
    first = emulated(*ASK[:-1], "--session", "s", "--devices", "0,1", "Once upon a time")
    assert first.returncode == 0, first.stderr
    for args in (["--devices", "0,1"], ["--devices", "all"], ["--device", "cuda"], ["--device", "cpu"]):
        r = emulated("--session", "s", *args, "-n", 2, "-c", 128, "and")
        assert r.returncode == 0, r.stderr


@pytest.mark.parametrize("family, norm, value", [
    ("llama-biases", "ffn_norm", 1e12), ("qwen3moe", "ffn_norm", 1e12), ("gemma2-deep", "ffn_norm", 1e12), ("gemma3n", "ffn_norm", 1e12),
    ("deepseek2", "ffn_norm", 1e12), ("qwen35-broad", "post_attention_norm", 1e12), ("starcoder2", "ffn_norm", 1e21)])
def test_what_overflows_is_no_token(emulated, tmp_path, family, norm, value):
    """Of finite numbers whose squares are infinite norms would make zeros, and these pass for results."""
    damaged = tmp_path / "damaged.gguf"
    shutil.copyfile(BUILD / f"tests/vectors/families/{family}-f16.gguf", damaged)
    reader = GGUFReader(damaged, "r+")
    next(t for t in reader.tensors if t.name == f"blk.0.{norm}.weight").data[:] = np.float32(value)
    reader.data.flush()
    for device in ("cpu", "cuda"):
        r = emulated("--device", device, "-n", 1, "-no-cnv", "-c", 64, "hello there", of=damaged)
        assert r.returncode == 1 and not r.stdout.strip() and b"expected a finite number" in r.stderr, (device, r)


def test_heads_that_are_too_wide_for_a_gpu_are_named(emulated, tmp_path):
    wide = tmp_path / "wide.gguf"
    subprocess.run([sys.executable, ROOT / "tests/make_gguf.py", wide, "--arch", "llama", "--layers", "2", "--embd", "64", "--heads", "1",
                    "--head-dim", "520", "--ff", "64", "--types", "F16"], check=True, capture_output=True)
    assert emulated("--device", "cpu", "-n", 1, "-no-cnv", "-c", 64, "hi", of=wide).returncode == 0
    r = emulated("--device", "cuda", "-n", 1, "-no-cnv", "-c", 64, "hi", of=wide)
    assert r.returncode == 3 and b"layer 0: heads of 520 numbers" in r.stderr and b"1 to 512 on a GPU; --device cpu" in r.stderr, r
