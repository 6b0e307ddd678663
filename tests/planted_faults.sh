#!/usr/bin/env bash
# Builds the CPU backend with each planted fault (src/core/planted_fault.hpp) and demands that the oracle tests turn red on every
# code path of this machine, and `flashmla verify` too.
# Usage: tests/planted_faults.sh [configured build folder, default build/release]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
cmake --build "$build" --target planted_faults

# Cases that between them see every fault: long, causal, with rising keys, with poison in the tail,
# in a pool with other layers.
cases='tokens_7_causal|random_std_100|rising_std_800|length_13|pool_of'
missed=0
for fault in 1 2 3 4 5; do
    program=$build/bin/test_cpu_fault_$fault
    mapfile -t tests < <("$program" --gtest_list_tests |
        awk '/^[^ ]/ {suite = $1} /^  / {print suite $1}' | grep -E "$cases" | grep -v emulated)
    for path in $(printf '%s\n' "${tests[@]}" | sed -nE 's/.*Matches\/(portable|avx2|avx512_bf16|avx512)_.*/\1/p' | sort -u); do
        filter=$(printf '%s\n' "${tests[@]}" | grep "Matches/${path}_" | paste -sd:)
        log=$("$program" --gtest_filter="$filter" --gtest_brief=1 2>&1) && rc=0 || rc=$?
        failed=$(grep -c '^\[  FAILED  \].*GetParam' <<<"$log" || true)
        # A crash or a refused call is no detection.
        if [ "$rc" -eq 1 ] && [ "$failed" -gt 0 ] && ! grep -q 'refused:' <<<"$log"; then
            echo "fault $fault on $path: red, $failed of $(tr : '\n' <<<"$filter" | wc -l) cases"
        else
            echo "fault $fault on $path: NOT DETECTED (exit status $rc, $failed failures)"
            missed=$((missed + 1))
        fi
    done
    program=$build/bin/flashmla_fault_$fault
    if [ ! -x "$program" ]; then continue; fi
    log=$("$program" verify --device cpu --cases 200 --seed 1 2>&1) && rc=0 || rc=$?
    if [ "$rc" -eq 1 ] && grep -q '^ *smallest ' <<<"$log"; then
        echo "fault $fault in flashmla verify: red, $(grep -oE '^ *smallest .*' <<<"$log" | sed 's/^ *smallest *//')"
    else
        echo "fault $fault in flashmla verify: NOT DETECTED (exit status $rc)"
        missed=$((missed + 1))
    fi
done
exit $((missed > 0))
