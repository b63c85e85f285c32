"""check_spills.py: what ptxas says of a kernel that makes the test of a build fail."""
import pathlib
import subprocess
import sys

import pytest

CHECK = pathlib.Path(__file__).resolve().parents[1] / "check_spills.py"
KERNEL = """ptxas info    : Compiling entry function '{name}' for 'sm_90a'
ptxas info    : Function properties for {name}
    {stores} bytes stack frame, {stores} bytes spill stores, {stores} bytes spill loads
"""
SERIAL = ("ptxas info    : (C7515) Potential Performance Loss: wgmma.mma_async instructions are serialized due to non wgmma "
          "instructions defining accumulator registers of a wgmma between start and end of the pipeline stage in the function '{name}'\n")


@pytest.mark.parametrize("log, code, words", [
    (KERNEL.format(name="a", stores=0), 0, "1 kernels, 0 spill or are serialized"),
    (KERNEL.format(name="a", stores=8), 1, "a (sm_90a) spills: 8 bytes stored, 8 loaded"),
    (KERNEL.format(name="a", stores=0) + SERIAL.format(name="a"), 1, "a: each wgmma is waited for"),
    ("nvcc says nothing", 1, "was nvcc run with -Xptxas -v?"),
])
def test_a_kernel_that_spills_or_waits_is_refused(tmp_path, log, code, words):
    (tmp_path / "log").write_text(log)
    run = subprocess.run([sys.executable, CHECK, tmp_path / "log"], capture_output=True, text=True)
    assert run.returncode == code and words in run.stdout
