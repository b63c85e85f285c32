#!/usr/bin/env bash
# The architectures to compile kernels for on this machine, as -Dgpu_arch takes them ("sm_86" or "sm_80,sm_90"), from the
# compute capabilities that nvidia-smi names. Prints nothing where there is no GPU that hokku runs on.
set -u
nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | while read -r capability; do
    case $capability in
    8.0) echo sm_80 ;;
    8.6 | 8.7) echo sm_86 ;; # code for x.y also runs on x.z, z > y
    8.9) echo sm_89 ;;
    9.0) echo sm_90 ;;
    10.0) echo sm_100 ;;
    10.3) echo sm_103 ;;
    12.*) echo sm_120 ;;
    1[3-9].*) echo ptx ;; # newer than this list: its driver compiles
    esac
done | sort -u | paste -sd,
