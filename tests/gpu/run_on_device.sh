#!/bin/bash
# Builds hokku and its GPU tests with nvcc alone and runs them on the GPU of this machine: the same
# test sources that run on the emulation elsewhere, compute-sanitizer over them, and benchmarks.
#
#   tests/gpu/run_on_device.sh OUT [STEP ...]      steps: build test sanitize bench profile
#
# Results go to the folder OUT: summary.txt, and one log per step. Needs nvcc, a C and C++ compiler,
# and PCRE2, jansson, readline and cmocka; where these are not installed, DEPS=DIR names a folder
# with include/ and lib/ that holds them (static libraries will do).
#   HOKKU_CONFORMANCE  the reference vectors (without them the models are not compared)
#   MODELS             GGUF files to benchmark; default: random ones of real shapes (NumPy)
#   ARCH               sm_90
set -u
cd "$(dirname "$0")/../.."
out=$(mkdir -p "${1:?usage: run_on_device.sh OUT [STEP ...]}" && cd "$1" && pwd)
shift
steps=${*:-build test sanitize bench profile}
work=${WORK:-$out/work}
arch=${ARCH:-sm_90}
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
cuda=$(dirname "$(dirname "$nvcc")")
deps=${DEPS:+-I$DEPS/include}
libs="${DEPS:+-L$DEPS/lib} -lpcre2-8 -ljansson -lreadline -lm -lpthread -ldl"
jobs=$(nproc)
mkdir -p "$work"
summary=$out/summary.txt

say() { echo "$*" | tee -a "$summary"; }

run() { # NAME SECONDS COMMAND...
    local name=$1 limit=$2 rc
    shift 2
    timeout "$limit" "$@" > "$out/$name.log" 2>&1
    rc=$?
    say "$name: exit $rc, $(grep -c '^ok' "$out/$name.log") ok, $(grep -c '^not ok' "$out/$name.log") not ok"
    return $rc
}

build() {
    local c_flags="-std=c17 -O3 -D_GNU_SOURCE -DHOKKU_CUDA -fno-math-errno -ffp-contract=off
        -fno-strict-aliasing -Isrc $deps -DHOKKU_VERSION=\"device\" -DHOKKU_DATADIR=\"/nonexistent\"
        -DHOKKU_SOURCE_DIR=\"$PWD\""
    local cu_flags="-std=c++17 -O3 -lineinfo -arch=$arch --expt-relaxed-constexpr -Xptxas -v
        -Xcompiler -ffp-contract=off,-fno-strict-aliasing -Isrc -Icuda -Itests/gpu"
    {
        echo "all: $work/hokku $work/test_engine $work/test_models $work/test_kernels $work/test_attention $work/test_sampler"
        local host=() device=() f o
        python3 src/template/named_embed.py "$work/named_templates.c" src/template/named/*.jinja
        for f in $(find src -name '*.c' ! -name main.c | sort) "$work/named_templates.c"; do
            o=$work/$(echo "$f" | tr / _).o
            host+=("$o")
            echo "$o: $f"; echo "	cc $(echo $c_flags | sed 's/"/\\"/g') -c $f -o $o"
        done
        local exact # the sampler is bit-equal to the CPU's: no contraction
        for f in cuda/*.cu; do
            o=$work/$(basename "$f").o
            device+=("$o")
            exact=; [ "$f" = cuda/sampler.cu ] && exact=-fmad=false
            echo "$o: $f"; echo "	$nvcc $(echo $cu_flags) $exact -c $f -o $o 2> $o.ptxas || (cat $o.ptxas; false)"
        done
        for f in tests/gpu/*.cu; do
            o=$work/$(basename "$f").o
            echo "$o: $f"; echo "	$nvcc $(echo $cu_flags) -c $f -o $o"
        done
        for f in src/main.c tests/gpu/test_engine.c tests/conformance/test_models.c; do
            o=$work/$(basename "$f").o
            echo "$o: $f"; echo "	cc $(echo $c_flags | sed 's/"/\\"/g') -c $f -o $o"
        done
        local all="${host[*]} ${device[*]}"
        link() { # PROGRAM OBJECTS LIBRARIES
            echo "$work/$1: $2 $all"
            echo "	$nvcc -arch=$arch -o \$@ $2 $all $3 $libs -lcublas"
        }
        link hokku "$work/main.c.o" ""
        link test_engine "$work/test_engine.c.o" -lcmocka
        link test_models "$work/test_models.c.o" -lcmocka
        link test_kernels "$work/test_kernels.cu.o $work/gpu_test.cu.o" ""
        link test_attention "$work/test_attention.cu.o $work/gpu_test.cu.o" ""
        link test_sampler "$work/test_sampler.cu.o" ""
    } > "$work/Makefile"
    make -k -j"$jobs" -f "$work/Makefile" all > "$out/build.log" 2>&1
    say "build: exit $?"
    cat "$work"/*.ptxas > "$out/ptxas.log"
    python3 tests/check_spills.py "$out/ptxas.log" > "$out/spills.log" 2>&1
    say "spills: exit $? ($(tail -1 "$out/spills.log"))"
}

test_() {
    run kernels 300 "$work/test_kernels"
    run attention 300 "$work/test_attention"
    run sampler 300 "$work/test_sampler"
    run engine 300 "$work/test_engine" cuda
    run models 300 "$work/test_models" cuda
}

sanitize() {
    local tool t
    for tool in memcheck racecheck initcheck; do
        for t in kernels attention sampler engine; do
            run "$tool-$t" 240 compute-sanitizer --tool $tool --error-exitcode 99 \
                "$work/test_$t" || true
            grep 'ERROR SUMMARY' "$out/$tool-$t.log" | sed "s/^/  /" | tee -a "$summary"
        done
    done
}

shapes() { # random weights of real models: speed does not depend on their values
    local m
    for m in qwen2.5-0.5b-q4_k_m qwen2.5-7b-q4_k_m qwen2.5-7b-q8_0 llama3.1-8b-q4_k_m; do
        [ -f "$work/$m.gguf" ] ||
            python3 tests/make_gguf.py "$work/$m.gguf" --shape "$m" > "$out/make-$m.log" 2>&1
        [ -f "$work/$m.gguf" ] && echo "$work/$m.gguf"
    done
}

bench() {
    local m
    for m in ${MODELS:-$(shapes)}; do
        run "bench-$(basename "$m" .gguf)" 200 \
            "$work/hokku" bench -m "$m" --device cuda -p 512 -n 128 -o md
        grep '|' "$out/bench-$(basename "$m" .gguf).log" | tee -a "$summary"
    done
}

profile() { # the timeline: no gap in which the GPU waits for the host
    local m
    m=$(echo ${MODELS:-$(shapes)} | cut -d' ' -f1)
    if command -v nsys > /dev/null; then
        run nsys 200 nsys profile -o "$out/decode" --force-overwrite true --cuda-graph-trace=node \
            "$work/hokku" bench -m "$m" --device cuda -p 32 -n 64
        nsys stats "$out/decode.nsys-rep" > "$out/nsys-stats.txt" 2>&1
    elif command -v ncu > /dev/null; then
        run ncu 300 ncu --clock-control none --set basic --launch-skip 200 --launch-count 60 \
            "$work/hokku" bench -m "$m" --device cuda -p 32 -n 16
    else
        say "profile: neither nsys nor ncu here"
    fi
}

{ nvidia-smi; "$nvcc" --version; } > "$out/machine.txt" 2>&1
say "$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>&1 ||
    echo 'no GPU here')"
export LD_LIBRARY_PATH=$cuda/lib64:${LD_LIBRARY_PATH:-}
for step in $steps; do
    say "== $step"
    case $step in
    build) build ;;
    test) test_ ;;
    sanitize) sanitize ;;
    bench) bench ;;
    profile) profile ;;
    *) say "unknown step $step"; exit 2 ;;
    esac
done
