#!/usr/bin/env bash
# clang-tidy over the C++ files that changed since LINT_BASE (default: the last commit a day before HEAD; all files while there is none).
#   tests/lint/clang_tidy.sh BUILD_FOLDER      the build's compile_commands.json says how each file is compiled
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$1
day_before=$(($(git log -1 --format=%ct) - 86400))
base=${LINT_BASE:-$(git rev-list -1 --before="$day_before" HEAD)}
if [ -n "$base" ]; then
    mapfile -t files < <(git diff --name-only --diff-filter=d "$base" -- src cli bench examples | grep '\.cpp$' || true)
else
    mapfile -t files < <(git ls-files src cli bench examples | grep '\.cpp$')
fi
# Only what this build compiles: the CUDA rooms are left out of a build without CUDA.
known=()
for file in "${files[@]}"; do
    if grep -qF "\"file\": \"$PWD/$file\"" "$build/compile_commands.json"; then known+=("$file"); fi
done
if [ ${#known[@]} -gt 0 ]; then
    printf '%s\0' "${known[@]}" | xargs -0 -P "$(nproc)" -n 1 clang-tidy-14 --quiet -p "$build" 2> >(grep -vE 'warnings? generated|^Suppressed|^Use -header' >&2)
fi
echo "clang-tidy: ${#known[@]} files${base:+ changed since $base}"
