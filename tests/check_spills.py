#!/usr/bin/env python3
"""Fails when ptxas reports register spills in a kernel, or that it waits for each wgmma (C7510 and up:
"instructions are serialized"): check_spills.py LOG...

Each log is the stderr of nvcc -Xptxas -v (see nvcc_log.py). A kernel that may spill, because it is
not on the path of a token, is listed in ALLOWED with the reason."""
import re
import shutil
import subprocess
import sys

ALLOWED = {  # part of the demangled name: reason
    "repack_kernel<": "runs once, at load; eight bytes, of IQ3_XXS",
    "attention_prefill_kernel<": "of prompts; three registers where a split of the cache ends",
    "attention_hopper_kernel<256": "the same",
}

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(sm_\w+)'")
SERIAL = re.compile(r"wgmma.mma_async instructions are serialized .* in the function '(\S+)'")
SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def demangle(name):
    if not shutil.which("c++filt"):
        return name
    return subprocess.run(["c++filt", name], capture_output=True, text=True).stdout.strip()


def check(text):
    """Yields (kernel, architecture, bytes of stores, bytes of loads) for every kernel."""
    kernel = arch = None
    for line in text.splitlines():
        if m := ENTRY.search(line):
            kernel, arch = m.groups()
        elif (m := SPILL.search(line)) and kernel:
            yield demangle(kernel), arch, int(m.group(2)), int(m.group(3))
            kernel = None


def main(logs):
    n = bad = 0
    for log in logs:
        with open(log) as f:
            text = f.read()
            for kernel in SERIAL.findall(text):
                bad += 1
                print(f"{log}: {demangle(kernel)}: each wgmma is waited for")
            for kernel, arch, stores, loads in check(text):
                n += 1
                if not (stores or loads):
                    continue
                if any(part in kernel for part in ALLOWED):
                    print(f"allowed: {kernel} ({arch}): {stores}/{loads} bytes")
                    continue
                bad += 1
                print(f"{log}: {kernel} ({arch}) spills: {stores} bytes stored, {loads} loaded")
    if n == 0:
        print("no kernel found in the logs: was nvcc run with -Xptxas -v?")
    print(f"{n} kernels, {bad} spill or are serialized")
    return 1 if bad or n == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
