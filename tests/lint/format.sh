#!/usr/bin/env bash
# clang-format 14 over every C++ and CUDA file that git knows; --fix rewrites instead of complaining.
set -euo pipefail
cd "$(dirname "$0")/../.."
mode=(--dry-run --Werror)
if [ "${1:-}" = --fix ]; then mode=(-i); fi
mapfile -t files < <(git ls-files '*.hpp' '*.cpp' '*.h' '*.c' '*.cu' '*.cuh')
clang-format-14 "${mode[@]}" "${files[@]}"
echo "format: ${#files[@]} files"
