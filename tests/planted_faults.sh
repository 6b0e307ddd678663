#!/usr/bin/env bash
# Builds the CPU backend with the planted faults (src/core/planted_fault.hpp) and demands that each one turns the oracle tests red
# on every code path of this machine, and those of dense decode `flashmla verify` too.
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
    if [ ! -x "$verify" ] || [ "$fault" -gt 5 ]; then continue; fi
    log=$(FLASHMLA_PLANTED_FAULT=$fault "$verify" verify --device cpu --cases 200 --seed 1 2>&1) && rc=0 || rc=$?
    if [ "$rc" -eq 1 ] && grep -q '^ *smallest ' <<<"$log"; then
        echo "fault $fault in flashmla verify: red, $(grep -oE '^ *smallest .*' <<<"$log" | sed 's/^ *smallest *//')"
    else
        echo "fault $fault in flashmla verify: NOT DETECTED (exit status $rc)"
        missed=$((missed + 1))
    fi
done

# The faults that append can make too, in its own test.
for fault in 6 7; do
    for path in $(printf '%s\n' "${all[@]}" | sed -nE 's/.*CacheAppend\.EveryFormat[A-Za-z]*\/([a-z0-9_]+)$/\1/p'); do
        demand "$fault" "$path (append)" < <(printf '%s\n' "${all[@]}" | grep -E "CacheAppend\.EveryFormat.*/$path\$")
    done
done
exit $((missed > 0))
