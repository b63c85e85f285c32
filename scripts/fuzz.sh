#!/usr/bin/env bash
# Explores with libFuzzer, for longer than tests do:
#
#   scripts/fuzz.sh TARGET MINUTES [OUT]      TARGET: one of tests/fuzz/fuzz_TARGET.c, or all, in parallel
#
# Every target gets a folder OUT/TARGET:
#   log        what libFuzzer wrote
#   found/     inputs that reached something new; a later run with the same OUT goes on from them
#   artifacts/ what crashed, hung or took too much memory, as it was found
#   add/       what is worth keeping: one input for each way to fail, made smaller, and a few small inputs that cover
#              what nothing before them did
# Without OUT that is build-asan/fuzz-out, and what is worth keeping is copied to tests/fuzz/corpus/TARGET.
# HOKKU_BUILD (build-asan): a Meson build with -Dfuzz=enabled, or any folder with the programs fuzz_TARGET and the seeds in
# seeds/TARGET (tests/fuzz/make_corpus.py writes them): nothing else of this tree is needed then.
# Exit code: 0, or 1 when an input failed.
set -uo pipefail
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 # else what it finds is written to the log, and that is all
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
all=(config gguf grammar hub request session template terminal tokenizer)
most_failures=20 most_new=40 largest_new=4096 # bytes

usage() { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[[ $# =~ ^[23]$ && $2 =~ ^[1-9][0-9]{0,4}$ ]] || usage
[ "$1" = all ] || [[ " ${all[*]} " == *" $1 "* ]] || usage
seconds=$((60 * $2))
add_to_tree=$([ $# -eq 3 ] || echo yes)
build=${HOKKU_BUILD:-$here/build-asan}
out=${3:-$here/build-asan/fuzz-out}
tree=$here/tests/fuzz/corpus # need not be there
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
programs=$build/tests/fuzz
[ -d "$programs" ] || programs=$build
seeds=$build/seeds
if [ ! -d "$seeds" ]; then
    seeds=$out/seeds
    "$here/.venv/bin/python" "$here/tests/fuzz/make_corpus.py" "$seeds" || exit 2
fi

# The frames of a report without addresses: what fails in the same place is the same failure.
signature() { grep -aE '^ +#[0-9]+ |^SUMMARY' | sed 's/0x[0-9a-f]*//g; s/==[0-9]*==//' | head -12 | md5sum | cut -c1-12; }

keep_failures() { # PROGRAM FOLDER
    local input name seen=" " report key
    for input in "$2"/artifacts/{crash,leak,oom,timeout}-*; do
        [ -f "$input" ] || continue
        name=$(basename "$input")
        report=$(timeout 120 "$1" -timeout=25 -rss_limit_mb=2048 "$input" 2>&1)
        key=${name%%-*}-$(signature <<< "$report")
        [[ $seen != *" $key "* ]] || continue
        seen+="$key "
        # A hang cannot be made smaller within a minute: it stays as it is.
        [[ $name == timeout-* ]] || timeout 90 "$1" -minimize_crash=1 -max_total_time=60 -timeout=25 -rss_limit_mb=2048 \
            -exact_artifact_path="$2/add/$key" "$input" > "$2/minimize-$key.log" 2>&1
        [ -f "$2/add/$key" ] || cp "$input" "$2/add/$key"
        printf '%s\n' "$report" > "$2/$key.report"
        echo "$(basename "$2"): FAILED: $key, $(wc -c < "$2/add/$key") bytes, report in $2/$key.report"
    done
}

keep_new() { # PROGRAM FOLDER: of the inputs that cover what `known` does not, a few of every size
    local input new=() n
    rm -rf "$2/merged" && cp -r "$2/known" "$2/merged"
    "$1" -set_cover_merge=1 -timeout=25 -rss_limit_mb=2048 "$2/merged" "$2/found" > "$2/merge.log" 2>&1
    while read -r input; do
        [ -f "$2/known/$input" ] || new+=("$input")
    done < <(find "$2/merged" -type f -size "-${largest_new}c" -printf '%s %f\n' | sort -n | cut -d' ' -f2)
    n=$((${#new[@]} < most_new ? ${#new[@]} : most_new))
    for ((i = 0; i < n; i++)); do
        cp "$2/merged/${new[i * ${#new[@]} / n]}" "$2/add/"
    done
    rm -rf "$2/merged"
}

explore() { # TARGET
    local program=$programs/fuzz_$1 dir=$out/$1 begin=$SECONDS left failures=0
    [ -x "$program" ] || { echo "$1: $program is not there: build with -Dfuzz=enabled, or set HOKKU_BUILD" >&2; return 2; }
    rm -rf "$dir/known" "$dir/add"
    mkdir -p "$dir"/{known,found,artifacts,add}
    cp "$seeds/$1"/* "$dir/known/"
    [ ! -d "$tree/$1" ] || cp "$tree/$1"/* "$dir/known/"
    # A failure ends a run of libFuzzer: it is started again for the time that is left.
    while left=$((seconds - SECONDS + begin)) && [ "$left" -gt 0 ]; do
        "$program" -max_total_time="$left" -timeout=25 -rss_limit_mb=2048 -print_final_stats=1 \
            -artifact_prefix="$dir/artifacts/" "$dir/found" "$dir/known" >> "$dir/log" 2>&1 && break
        failures=$((failures + 1))
        [ "$failures" -lt "$most_failures" ] || break
    done
    keep_failures "$program" "$dir"
    keep_new "$program" "$dir"
    echo "$1: $((SECONDS - begin)) s, $(awk '/stat::number_of_executed_units/ { n += $2 } END { print n + 0 }' "$dir/log") runs" \
        "in all, stopped $failures times by a failure; $(find "$dir/add" -type f | wc -l) inputs worth keeping in $dir/add"
    if [ -n "$add_to_tree" ]; then
        mkdir -p "$tree/$1"
        find "$dir/add" -type f -exec cp -t "$tree/$1" {} +
    fi
    [ "$failures" -eq 0 ]
}

[ "$1" = all ] && targets=("${all[@]}") || targets=("$1")
pids=() failed=0
for target in "${targets[@]}"; do
    explore "$target" &
    pids+=($!)
done
for pid in "${pids[@]}"; do
    wait "$pid" || failed=1
done
exit $failed
