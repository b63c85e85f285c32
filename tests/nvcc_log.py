#!/usr/bin/env python3
"""Runs a compiler command and keeps what it says: nvcc_log.py LOG COMMAND...

ptxas reports registers and spills per kernel on stderr; tests/check_spills.py reads them from the
log. Warnings and errors are passed on, the report is not."""
import subprocess
import sys

log, command = sys.argv[1], sys.argv[2:]
r = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
with open(log, "w") as f:
    f.write(r.stderr)
for line in r.stderr.splitlines():
    report = line.startswith("ptxas info") or "bytes stack frame" in line
    if r.returncode or not report:
        print(line, file=sys.stderr)
sys.exit(r.returncode)
