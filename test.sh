#!/usr/bin/env bash
# Installs what the tests need (Debian packages, Python packages in .venv), builds hokku and tests it.
#   ./test.sh          what makes a build trustworthy: layers, units, conformance, the kernels on the emulation, end to end, haiku
#   ./test.sh all      also the same code under ASan and UBSan, the slow cases, fuzzing, and the compilers of other GPUs
#   ./test.sh all --continue    leaves out the steps that passed before and after which no file changed
# One line per step; what a step writes goes to build/test-results/STEP.log, its end is shown when it fails.
# The last line is "N passed, N failed", and how many were skipped.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1

results=build/test-results
python=.venv/bin/python
jobs=$(nproc)
no_gpu=yes
if nvidia-smi -L >/dev/null 2>&1; then no_gpu=""; fi
n_failed=0
all="" continue="" packages=test
beside="" # yes: a step runs beside others, and writes its line when it has ended
for argument in "$@"; do
    case $argument in
    all) all=yes packages=all ;;
    --continue) continue=yes ;;
    *) sed -n '3,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done

# step STEP TITLE COMMAND...: one line with the time it took. A step that fails is counted, the others still run.
step() {
    local id=$1 title=$2 begin=$SECONDS log=$results/$1.log passed=$results/$1.passed line
    printf -v line '== %-58s ' "$title"
    shift 2
    if [ -n "$continue" ] && [ -f "$passed" ] && [ -z "$(changed_since "$passed")" ]; then
        echo "${line}passed before"
        return 0
    fi
    rm -f "$passed" "$results/$id.xml"
    touch "$results/$id.begun"
    if [ -z "$beside" ]; then
        printf '%s' "$line"
        line=""
    fi
    if "$@" > "$log" 2>&1; then
        printf '%sok %5d s\n' "$line" $((SECONDS - begin))
        mv "$results/$id.begun" "$passed"
        return 0
    fi
    printf '%sFAILED %d s\n' "$line" $((SECONDS - begin))
    tail -n 60 "$log"
    echo "hokku: step failed: $title (all of it: $log)" >&2
    n_failed=$((n_failed + 1))
    return 1
}
# begin COMMAND...: beside what follows, until `wait`. Who interrupts the run interrupts it, too: a process group of its own, since
# a shell's ordinary background job ignores that.
begun=()
begin() {
    set -m
    "$@" < /dev/null &
    begun+=($!)
    set +m
}
trap 'kill -- "${begun[@]/#/-}" 2>/dev/null; exit 130' INT TERM
trap wait EXIT
must() { continue="" step "$@" || exit 1; } # what the other steps need

changed_since() {
    find . \( -path './build*' -o -path ./.git -o -path ./.venv -o -name '__pycache__' -o -name '.*cache' \) -prune -o \
        -type f -newer "$1" -print -quit
}

python_packages() {
    exec > "$results/pip.log" 2>&1
    cmp -s tests/requirements.txt .venv/requirements.stamp && return
    python3 -m venv .venv && .venv/bin/pip install -q --disable-pip-version-check -r tests/requirements.txt &&
        cp tests/requirements.txt .venv/requirements.stamp
}
python_packages_come() { # waits for them
    local rc
    wait "$packages_job"
    rc=$?
    cat "$results/pip.log"
    return $rc
}

# What needs no Python, which comes from the network meanwhile. A folder that run.sh has set up goes on without -Werror: with
# it every file would be compiled again.
program_build() {
    if [ -f build/build.ninja ]; then
        meson configure build -Dtests=true
    else
        meson setup build
    fi && ninja -C build src/hokku tests/cuda_on_cpu/libhokku_cuda_on_cpu.a
}

sanitized() { # DIRECTORY OPTION...: set up, not built
    [ -f "$1/build.ninja" ] || meson setup "$1" --buildtype=debugoptimized -Db_sanitize=address,undefined -Db_lundef=false \
        -Dcuda=disabled "${@:2}"
}
sanitized_build() { sanitized "$@" && ninja -C "$1"; }
# in_turn PARTS BUILD OPTION...: the names of tests, where there is a history one in so many: by their first words, which the
# variants of a program share.
in_turn() {
    meson test -C "$2" --list "${@:3}" | awk -F ' / ' -v turn="$turn" -v parts="$1" 'NF == 2 { split($2, words, " ")
        if (!(words[1] in n)) n[words[1]] = found++
        if (turn == "" || n[words[1]] % parts == int(turn / 2) % parts) print $2 }'
}
# All units; of conformance, where every test is a model, a third.
sanitized_units() {
    local tests
    mapfile -t tests < <({ in_turn 1 build-asan --suite unit "${fewer[@]}"; in_turn 3 build-asan --suite conformance "${fewer[@]}"; } | sort -u)
    [ ${#tests[@]} -gt 0 ] && units asan build-asan --no-rebuild "${fewer[@]}" --timeout-multiplier 2 "${tests[@]}"
}
# The tests of kernels, a third of them. What these need, and no more, is built by Meson.
sanitized_kernels() {
    local tests
    sanitized build-asan-gcc -Dwerror=false -Doptimization=1 || return
    mapfile -t tests < <(in_turn 3 build-asan-gcc --suite gpu --no-suite slow --no-suite vectors)
    [ ${#tests[@]} -gt 0 ] && units asan-gcc build-asan-gcc --timeout-multiplier 2 "${tests[@]}"
}
slow_tests() { # a third of them
    local tests
    mapfile -t tests < <(in_turn 3 build --suite slow)
    [ ${#tests[@]} -gt 0 ] && units slow build --no-rebuild --suite slow "${tests[@]}"
}

# Whether the kernels compile for a GPU other than the default one: the commits that do take turns, since each takes minutes.
other_gpu() {
    local architectures=(sm_80 sm_86 sm_89 sm_120)
    local arch=${architectures[${turn:-0} / 2 % ${#architectures[@]}]}
    echo "$arch"
    if [ -f build-gpus/build.ninja ]; then
        meson configure build-gpus -Dgpu_arch="$arch"
    else
        meson setup build-gpus -Dcuda=enabled -Dtests=false -Dgpu_arch="$arch"
    fi && ninja -C build-gpus cuda/libhokku_cuda.a
}

units() { # STEP BUILD OPTION...: Meson's tests but the haiku's and those on a GPU, as a JUnit file; without --no-rebuild built first
    local rc
    rm -f "$2/meson-logs/testlog.junit.xml"
    # The suite `device` is what nvcc built, for a GPU.
    meson test -C "$2" --no-suite haiku ${no_gpu:+--no-suite device} --print-errorlogs "${@:3}"
    rc=$?
    cp "$2/meson-logs/testlog.junit.xml" "$results/$1.xml"
    return $rc
}

# A file's tests stay together: some have a server that they share. One more than there are cores: many wait for a terminal.
py() { # STEP FOLDER...
    "$python" -m pytest -q --timeout 300 -n "$((jobs + 1))" --dist loadfile "${@:2}" --junitxml="$results/$1.xml"
}

# Half of what these take is waiting, for a terminal or a socket; compiling the tests and the units leave no processor idle.
# Status: how many failed.
steps_that_wait() {
    step structure "layers and headers" py structure tests/structure
    step e2e "end to end" py e2e tests/conformance tests/e2e
    step haiku "the haiku proof" py haiku tests/haiku
    exit "$n_failed"
}

kept_chats() { # as those
    n_failed=0
    HOKKU_TEST_KEPT=1 step kept "chats, done by a process that keeps the model" \
        py kept tests/e2e/test_{repl,history,repl_sessions,replay,jobs,at_hand,lineedit,kept,other_model,signals}.py
    exit "$n_failed"
}

mkdir -p "$results"
[ -n "$continue" ] || rm -rf "${results:?}"/*
export HOKKU_BUILD=$PWD/build HOKKU=$PWD/build/src/hokku
export OMP_NUM_THREADS=1 # NumPy's products are small, and others want the processors

must packages "Debian packages" scripts/install-deps.sh "$packages"
begin python_packages
packages_job=$!
must program "the program, and its kernels for the emulation" program_build
must python "Python packages (.venv)" python_packages_come
must for_python "what the tests in Python start" ninja -C build for_python
beside=yes
begin steps_that_wait
others=$!
must build "the tests" ninja -C build
step release "units, conformance, kernels on the emulation" units release build --no-rebuild --no-suite slow
wait "$others"
n_failed=$((n_failed + $?))
beside=""

if [ -n "$all" ]; then
    # clang for the host code and the fuzzers, gcc for the kernels, without -Werror, since its warnings see less under
    # sanitizers (clang 14's ASan does not follow the emulation's switching of stacks).
    CC=clang CXX=clang++ must build-asan "ASan + UBSan build (clang)" sanitized_build build-asan -Dfuzz=enabled -Demulation=false
    # Kernels under sanitizers, and for another GPU, take long, and so do all cases of units and all models of conformance under
    # sanitizers: where there is a history, commits take turns.
    turn=$(git rev-list --count HEAD 2>/dev/null)
    sanitize=yes compile=yes fewer=()
    case $turn in
    *[13579]) compile="" fewer=(--no-suite slow) ;;
    *[02468]) sanitize="" ;;
    esac
    beside=yes
    begin kept_chats
    others=$!
    export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
    step asan "units and conformance (ASan + UBSan)" sanitized_units
    # (Whole models are left out: the tests of kernels have all their types and shapes, in a fraction of the time.)
    [ -z "$sanitize" ] ||
        step asan-gcc "kernels on the emulation (ASan + UBSan, gcc)" sanitized_kernels
    wait "$others"
    n_failed=$((n_failed + $?))
    beside=""
    HOKKU_SLOW_TESTS=1 step shapes "10,000 random schemas and their answers" py shapes tests/conformance -k "grammar or json_schema"
    step slow "other orders of threads, whole models on the emulation" slow_tests
    HOKKU_TOKENIZER_STRINGS=4000 HOKKU_TOKENIZER_STRINGS_OF_SIX=20000 \
        step tokens "4,000 random strings for every tokenizer, 20,000 for six" py tokens tests/conformance/test_tokenizer.py
    HOKKU_BUILD=$PWD/build-asan step fuzz "fuzzing, a fixed number of runs" py fuzz tests/fuzz --dist load
    if [ -z "$compile" ]; then
        echo "== kernels for other GPUs: every other commit"
    elif [ -x "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)" ]; then
        step gpus "kernels compiled for another GPU" other_gpu
    else
        echo "== kernels for other GPUs: not compiled, nvcc is not here"
    fi
fi

shopt -s nullglob
"$python" tests/summary.py "$n_failed" "$results"/*.xml
