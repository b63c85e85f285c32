#!/bin/bash
# Runs the GPU tests on the GPU of this machine, several programs on it at once, compute-sanitizer over the tests, benchmarks and the profiler.
#
#   tests/gpu/run_on_device.sh OUT [STEP ...]      steps: test share sanitize bench profile
#
# Results go to the folder OUT: summary.txt, and one log per step. The programs are those of a Meson build with
# nvcc (ninja -C build src/hokku tests/gpu/test_{ahead,kernels,gemm,blas,rows,states,kept_states,attention,latent,kv_cache,sampler,engine,plan,facts,choice,experts,experts_hopper,shared,sequences,masks,sequences_of_states,windows,drafts,predictions,speculate,exact,numbers,profile,bench,models,builtin} tests/vectors/vectors.stamp); nothing is
# compiled here, so they may come from another machine.
#   BUILD              the folder of that build (build)
#   HOKKU_CONFORMANCE  more reference vectors than those of the build (tests/vectors/README.md)
#   MODELS             GGUF files to benchmark; default: random ones of real shapes (NumPy)
#   SHAPES             which shapes: see tests/make_gguf.py
#   SHARE_SECONDS      how long the programs of the step share run (60)
#   TOOLS, SANITIZE    which tools and tests of the step sanitize; SANITIZE_SECONDS: how long each may take (450)
set -u
cd "$(dirname "$0")/../.."
out=$(mkdir -p "${1:?usage: run_on_device.sh OUT [STEP ...]}" && cd "$1" && pwd)
shift
steps=${*:-test share sanitize bench profile}
build=$(cd "${BUILD:-build}" && pwd)
work=${WORK:-$out/work}
hokku=$build/src/hokku
export HOKKU_VECTORS=$build/tests/vectors
summary=$out/summary.txt
mkdir -p "$work"

say() { echo "$*" | tee -a "$summary"; }

run() { # NAME SECONDS COMMAND...
    local name=$1 limit=$2 rc begin=$SECONDS
    shift 2
    timeout -k 5 "$limit" "$@" > "$out/$name.log" 2>&1
    rc=$?
    say "$name: exit $rc, $(grep -c '^ok' "$out/$name.log") ok, $(grep -c '^not ok' "$out/$name.log") not ok, $((SECONDS - begin)) s"
    return $rc
}

argument() { case $1 in engine | shared | sequences | masks | sequences_of_states | windows | numbers | profile | bench | models) echo cuda ;; builtin) echo builtin/hokku-builtin.gguf ;; esac; }

# Neither tests nor tools measure time, so they share the GPU; but one measures its free memory.
test_() {
    local t
    for t in ahead kernels gemm blas rows states kept_states attention latent kv_cache sampler engine plan facts choice experts experts_hopper sequences masks sequences_of_states windows numbers profile bench models builtin; do
        run "$t" 400 "$build/tests/gpu/test_$t" $(argument $t) &
    done
    for t in falcon-h1 mamba2; do # beside Qwen3.5
        run "sequences_of_states-$t" 400 "$build/tests/gpu/test_sequences_of_states" cuda "$t" &
    done
    for t in qwen3vl gemma3 mixtral deepseek2 qwen35 mamba2 falcon-h1 lfm2; do # the last four: with states
        run "drafts-$t" 400 "$build/tests/gpu/test_drafts" "$t" cuda &
    done
    for t in gemma3 gpt-oss deepseek2 deepseek2-lite mistral4 qwen35 gemma4 olmo2; do
        run "exact-$t" 400 "$build/tests/gpu/test_exact" "$t" cuda &
    done
    for t in glm4moe glm4moe-own qwen35 qwen35-shared; do
        run "predictions-$t" 400 "$build/tests/gpu/test_predictions" "$t" cuda &
    done
    run speculate 400 "$build/tests/gpu/test_speculate" cuda &
    wait
    run shared 400 "$build/tests/gpu/test_shared" $(argument shared)
}

# Four programs decode on one GPU, two of them far into a text and two with settings for which the sampler's blocks wait for
# each other: none may wait for ever, and an answer is the same every time.
share() {
    local i m limit=${SHARE_SECONDS:-60}
    m=$(models | head -1)
    for i in 1 2; do
        run "share-bench-$i" $((limit + 120)) bash -c 'while ((SECONDS < $1)); do
            timeout 60 "$2" bench -m "$3" --device cuda -p 0 -n 128 -d 4000 -r 2 > /dev/null && echo ok || { echo "not ok"; exit 1; }
        done' - "$limit" "$hokku" "$m" &
        run "share-answer-$i" $((limit + 120)) bash -c 'first=
        while ((SECONDS < $1)); do
            answer=$(timeout 60 "$2" -m builtin/hokku-builtin.gguf --device cuda -s "$3" --top-k 0 --temp 1.5 -n 200 "Write a haiku about rain") ||
                { echo "not ok"; exit 1; }
            [ "${first:=$answer}" = "$answer" ] && echo ok || { echo "not ok: another answer"; exit 1; }
        done' - "$limit" "$hokku" "$i" &
    done
    wait
}

# The tests of HOKKU_QUICK are fewer of a kind: the tools slow every access down.
sanitize_one() { # TOOL TEST
    HOKKU_QUICK=1 run "$1-$2" "${SANITIZE_SECONDS:-450}" compute-sanitizer --tool "$1" --error-exitcode 99 \
        "$build/tests/gpu/test_$2" $(argument "$2")
    say "  $1-$2: $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$out/$1-$2.log" || echo 'no summary')"
}

sanitize() {
    local tool t
    for tool in ${TOOLS:-memcheck racecheck initcheck}; do
        for t in ${SANITIZE:-kernels gemm rows states kept_states attention latent kv_cache sampler engine shared sequences masks}; do
            sanitize_one "$tool" "$t" &
        done
    done
    wait
}

models() { # random weights of real models: speed does not depend on their values
    local m
    if [ -n "${MODELS:-}" ]; then
        echo "$MODELS"
        return
    fi
    for m in ${SHAPES:-qwen2.5-0.5b-q4_k_m qwen2.5-0.5b-f16 qwen2.5-7b-q4_k_m qwen2.5-7b-q8_0 qwen2.5-7b-f16 llama3.1-8b-q4_k_m}; do
        [ -f "$work/$m.gguf" ] || python3 tests/make_gguf.py "$work/$m.gguf" --shape "$m" > "$out/make-$m.log" 2>&1
        [ -f "$work/$m.gguf" ] && echo "$work/$m.gguf"
    done
}

bench() {
    local m
    for m in $(models); do
        # shellcheck disable=SC2086 # a list of options
        run "bench-$(basename "$m" .gguf)" 200 "$hokku" bench -m "$m" --device cuda -p 512 -n 128 -o md ${BENCH:-}
        cat "$out/bench-$(basename "$m" .gguf).log" | tee -a "$summary"
    done
}

profile() { # where a token's time goes, kernel by kernel
    local m
    m=$(models | head -1)
    run kernels-of-a-token 200 "$hokku" bench -m "$m" --device cuda --kernels -p 512 -n 128
    cat "$out/kernels-of-a-token.log" | tee -a "$summary"
    if command -v ncu > /dev/null; then
        run ncu 300 ncu --clock-control none --graph-profiling node --launch-skip 200 --launch-count 80 \
            --metrics gpu__time_duration.sum,dram__bytes_read.sum,sm__warps_active.avg.pct_of_peak_sustained_active \
            "$hokku" bench -m "$m" --device cuda -p 32 -n 16 -r 1
    else
        say "profile: ncu is not here"
    fi
}

nvidia-smi > "$out/machine.txt" 2>&1
say "$(nvidia-smi --query-gpu=name,memory.total,driver_version,clocks.sm,clocks.mem --format=csv,noheader 2>&1 ||
    echo 'no GPU here')"
for step in $steps; do
    say "== $step"
    case $step in
    test) test_ ;;
    share) share ;;
    sanitize) sanitize ;;
    bench) bench ;;
    profile) profile ;;
    *) say "unknown step $step"; exit 2 ;;
    esac
done
