#!/usr/bin/env bash
# Builds the CPU backend with the planted faults (src/core/planted_fault.hpp) and demands that each one turns the oracle tests red
# on every code path of this machine, and `flashmla verify` of the operations that it breaks.
# Usage: tests/planted_faults.sh [configured build folder, default build/release]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
cmake --build "$build" --target planted_faults
program=$build/bin/test_cpu_planted
verify=$build/bin/flashmla_planted

# Cases that between them see a fault, by its number. Dense decode: long, causal, with rising keys, with poison in the tail, in a
# pool with other layers. Then two formats with scales; a sink; an extra cache; sparse prefill.
dense='tokens_7_causal|random_std_100|rising_std_800|length_13|pool_of'
records='std_100_percent_fp8_(656|584)'
cases=([1]=$dense [2]=$dense [3]=$dense [4]=$dense [5]=$dense [6]=$records [7]=$records
    [8]='lengths_2_fp8_656' [9]='lengths_1_fp8_656' [10]='SparsePrefill.*Matches')
mapfile -t all < <("$program" --gtest_list_tests | awk '/^[^ ]/ {suite = $1} /^  / {print suite $1}' | grep -v emulated)
missed=0

# fault, path, names of tests: they pass without the fault, and at least one fails with it.
demand() {
    local filter log rc failed
    filter=$(paste -sd:)
    if ! "$program" --gtest_filter="$filter" --gtest_brief=1 >/dev/null 2>&1; then
        echo "fault $1 on $2: its cases fail without it"
        missed=$((missed + 1))
        return
    fi
    log=$(FLASHMLA_PLANTED_FAULT=$1 "$program" --gtest_filter="$filter" --gtest_brief=1 2>&1) && rc=0 || rc=$?
    failed=$(grep -c '^\[  FAILED  \].*GetParam' <<<"$log" || true)
    # A crash or a refused call is no detection.
    if [ "$rc" -eq 1 ] && [ "$failed" -gt 0 ] && ! grep -q 'refused:' <<<"$log"; then
        echo "fault $1 on $2: red, $failed of $(tr : '\n' <<<"$filter" | wc -l) cases"
    else
        echo "fault $1 on $2: NOT DETECTED (exit status $rc, $failed failures)"
        missed=$((missed + 1))
    fi
}

for fault in "${!cases[@]}"; do
    mapfile -t tests < <(printf '%s\n' "${all[@]}" | grep -E "${cases[$fault]}")
    for path in $(printf '%s\n' "${tests[@]}" | sed -nE 's/.*Matches\/(portable|avx2|avx512_bf16|avx512)_.*/\1/p' | sort -u); do
        demand "$fault" "$path" < <(printf '%s\n' "${tests[@]}" | grep "Matches/${path}_")
    done
done

# Tests that go through many cases themselves, one for each path: fault, part of the name.
while read -r fault name; do
    for path in $(printf '%s\n' "${all[@]}" | sed -nE "s/.*$name[A-Za-z]*\/([a-z0-9_]+)$/\1/p"); do
        demand "$fault" "$path (${name/\\/})" < <(printf '%s\n' "${all[@]}" | grep -E "$name[A-Za-z]*/$path\$")
    done
done <<'END'
6 CacheAppend\.EveryFormat
7 CacheAppend\.EveryFormat
11 PrefillBackward\.FollowsTheOracle
12 MergePaths\.FollowsTheOracle
13 AbsorbPaths\.FollowTheOracle
END

# What `flashmla verify` has to find.
verified=([1]='decode decode_formats dense_prefill' [2]='decode decode_formats' [3]=decode [4]=decode
    [5]=decode [6]='append decode_formats sparse_decode' [7]='sparse_decode' [8]='sparse_decode sparse_prefill'
    [10]=sparse_prefill [11]=dense_prefill_backward [12]=merge [13]='absorb_query project_output')
if [ -x "$verify" ]; then
    for fault in "${!verified[@]}"; do
        for operation in ${verified[$fault]}; do
            log=$(FLASHMLA_PLANTED_FAULT=$fault "$verify" verify "$operation" --device cpu --cases 200 --seed 1 2>&1) && rc=0 || rc=$?
            # A failure is shown as its case; that of decode after it was made smaller.
            found=$(sed -nE 's/^(FAIL  case|      smallest) +//p' <<<"$log")
            if [ "$rc" -eq 1 ] && [ -n "$found" ]; then
                echo "fault $fault in flashmla verify $operation: red, $found"
            else
                echo "fault $fault in flashmla verify $operation: NOT DETECTED (exit status $rc)"
                missed=$((missed + 1))
            fi
        done
    done
fi
exit $((missed > 0))
