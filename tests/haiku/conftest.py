import json
import os
import shutil
import subprocess

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILTIN = os.path.join(ROOT, "builtin", "hokku-builtin.gguf")


def clean_environment(**more):
    """The user's own settings must not reach the tests."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("HOKKU_", "XDG_"))}
    return {**keep, "XDG_CONFIG_HOME": "/nonexistent", "XDG_STATE_HOME": "/nonexistent", **more}


class Hokku:
    """The program, asked in scripts: every answer comes with its own counters."""

    def __init__(self, path, model, device):
        self.path, self.model, self.device = path, model, device

    def command(self, *options, model=None, device=None):
        return [self.path, "-m", model or self.model, "--device", device or self.device, *options]

    def run(self, *options, stdin, check=True, **where):
        # a model that was damaged on purpose may answer with bytes that are no text
        run = subprocess.run(self.command(*options, **where), input=stdin, capture_output=True, text=True, errors="replace", timeout=600, env=clean_environment())
        if check:
            assert run.returncode == 0, f"exit code {run.returncode}: {run.stderr}"
        return run

    def ask(self, prompt, *options, **where):
        """One answer as text, exactly as a pipe gets it."""
        return self.run("-n", "120", *options, "-p", prompt, stdin="", **where).stdout.strip()

    def talk(self, turns, *options, **where):
        """A conversation: one JSON object per turn."""
        out = self.run("--turns", "--json", "-n", "120", *options, stdin="\n".join(turns) + "\n", **where).stdout
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture(scope="session")
def model():
    return os.environ.get("HOKKU_TEST_MODEL") or BUILTIN


@pytest.fixture(scope="session")
def builtin(model):
    """The small model is held to more: it was made for this."""
    return os.path.exists(BUILTIN) and os.path.samefile(model, BUILTIN)


@pytest.fixture(scope="session")
def hokku(model):
    path = os.environ.get("HOKKU") or os.path.join(ROOT, "build", "src", "hokku")
    assert os.path.exists(path), f"{path} does not exist: build first, or name the program in HOKKU"
    if not os.path.exists(model):
        pytest.fail(f"{model} does not exist")
    return Hokku(path, model, os.environ.get("HOKKU_TEST_DEVICE") or "auto")


@pytest.fixture(scope="session")
def gpu(hokku):
    """Skips where this build or this machine has no usable GPU."""
    run = hokku.run("-n", "1", "-p", "hi", stdin="", device="cuda", check=False)
    if run.returncode != 0:
        pytest.skip("no GPU here: " + run.stderr.strip().splitlines()[-1])
    return shutil.which("nvidia-smi")
