"""run.sh builds for the GPU that is there: what scripts/gpu-arch.sh makes of nvidia-smi's words."""
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def arch(tmp_path, script):
    if script is not None:
        smi = tmp_path / "nvidia-smi"
        smi.write_text("#!/bin/sh\n" + script)
        smi.chmod(0o755)
    r = subprocess.run(["bash", ROOT / "scripts/gpu-arch.sh"], capture_output=True, text=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert r.returncode == 0 and not r.stderr
    return r.stdout.strip()


@pytest.mark.parametrize("said, expected", [
    ("8.0", "sm_80"), ("8.6", "sm_86"), ("8.7", "sm_86"), ("8.9", "sm_89"), ("9.0", "sm_90"), ("10.0", "sm_100"), ("10.3", "sm_103"),
    ("12.0", "sm_120"), ("12.1", "sm_120"), ("13.0", "ptx"), ("7.5", ""), ("[N/A]", ""), ("9.0\n9.0", "sm_90"), ("8.6\n9.0", "sm_86,sm_90")])
def test_the_build_is_for_the_gpu_that_is_there(tmp_path, said, expected):
    assert arch(tmp_path, f"printf '%s\\n' '{said}'\n") == expected


def test_a_machine_without_a_gpu_gets_the_default(tmp_path):
    assert arch(tmp_path, "echo NVIDIA-SMI has failed because it could not communicate with the driver >&2; exit 9\n") == ""


def test_every_architecture_it_names_is_one_that_the_build_knows(tmp_path):
    choices = re.search(r"option\('gpu_arch'.*?choices: \[(.*?)\]", (ROOT / "meson_options.txt").read_text(), re.S).group(1)
    named = set(re.findall(r"echo (\w+)", (ROOT / "scripts/gpu-arch.sh").read_text()))
    assert named and named <= set(re.findall(r"'(\w+)'", choices))
