#!/usr/bin/env bash
# Installs what the tests need (Debian packages, Python packages in .venv), builds hokku and runs every test:
# the release build's unit, conformance and end-to-end tests, the same unit tests under ASan and UBSan (built with clang),
# and a short fuzzing run. The last line is "N passed, N failed".
#   ./test.sh          everything
#   ./test.sh quick    the release build's tests only
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
mode=${1:-all}
results=build/test-results
failed_steps=0

say() { printf '\n== %s\n' "$*"; }
step() { # step NAME COMMAND...: a failing step is counted, the others still run
    local name=$1
    shift
    say "$name"
    "$@" || { echo "hokku: step failed: $name" >&2; failed_steps=$((failed_steps + 1)); }
}

say "Debian packages"
scripts/install-deps.sh test || exit 1

say "Python packages (.venv)"
stamp=.venv/requirements.stamp
if ! cmp -s tests/requirements.txt "$stamp"; then
    python3 -m venv .venv && .venv/bin/pip install -q --disable-pip-version-check -r tests/requirements.txt &&
        cp tests/requirements.txt "$stamp" || exit 1
else
    echo "already there"
fi

say "release build"
if [ -f build/build.ninja ]; then
    meson configure build -Dtests=true -Dwerror=true || exit 1
else
    meson setup build >/dev/null || exit 1
fi
ninja -C build || exit 1
rm -rf "$results"
mkdir -p "$results"

collect() { # collect NAME BUILD: keeps Meson's results of one build
    cp "$2/meson-logs/testlog.junit.xml" "$results/$1.xml"
}

step "layers and headers" .venv/bin/python -m pytest -q --timeout 300 tests/structure --junitxml="$results/structure.xml"
step "unit and conformance tests (release build)" meson test -C build --no-rebuild --no-suite haiku --print-errorlogs
collect release build
step "end-to-end tests" env HOKKU_BUILD="$PWD/build" \
    .venv/bin/python -m pytest -q --timeout 300 tests/conformance tests/e2e --junitxml="$results/e2e.xml"
step "the haiku proof" env HOKKU="$PWD/build/src/hokku" \
    .venv/bin/python -m pytest -q --timeout 300 tests/haiku --junitxml="$results/haiku.xml"

if [ "$mode" != quick ]; then
    # Two compilers: clang for the host code and the fuzzers, gcc for the kernels, without -Werror, since its
    # warnings see less under sanitizers (clang 14's ASan does not follow the
    # emulation's switching of stacks).
    say "ASan + UBSan builds (clang, gcc)"
    sanitize="--buildtype=debugoptimized -Db_sanitize=address,undefined -Db_lundef=false -Dcuda=disabled"
    # shellcheck disable=SC2086 # a list of options
    [ -f build-asan/build.ninja ] ||
        CC=clang CXX=clang++ meson setup build-asan $sanitize -Dfuzz=enabled -Demulation=false >/dev/null || exit 1
    # shellcheck disable=SC2086
    [ -f build-asan-gcc/build.ninja ] || meson setup build-asan-gcc $sanitize -Dwerror=false >/dev/null || exit 1
    ninja -C build-asan || exit 1
    ninja -C build-asan-gcc || exit 1
    step "unit and conformance tests (ASan + UBSan)" env UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
        meson test -C build-asan --no-rebuild --no-suite haiku --print-errorlogs --timeout-multiplier 4
    collect asan build-asan
    # (The emulation's own tests provoke errors on purpose and watch their reports.)
    step "CUDA kernels on the host (ASan + UBSan)" env UBSAN_OPTIONS=halt_on_error=0 \
        meson test -C build-asan-gcc --no-rebuild --suite gpu --print-errorlogs --timeout-multiplier 4
    collect asan-gcc build-asan-gcc
    step "fuzzing, a short fixed time" env HOKKU_BUILD="$PWD/build-asan" \
        .venv/bin/python -m pytest -q --timeout 300 tests/fuzz --junitxml="$results/fuzz.xml"
fi

.venv/bin/python tests/summary.py "$failed_steps" "$results"/*.xml
