#!/usr/bin/env bash
# Instructions per row of every method, counted by callgrind: independent of the machine's load.
# Valgrind lacks AVX-512, so these count the next narrower instruction set.
# usage: instructions.sh PROGRAM, the built example `instructions`
set -euo pipefail
program=$1
rows=64
if ! command -v valgrind >/dev/null; then
    echo "instructions: skipped, valgrind is not installed (Debian: apt install valgrind)"
    exit 0
fi
echo "| method | instructions per row |"
echo "|---|---:|"
for base in gaussian rademacher product-srht tensor-sketch; do
    for method in "$base" "ctr-$base"; do
        count=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*measured*' "$program" "$method" 2>&1 |
            sed -n 's/.*Collected : //p')
        echo "| $method | $((count / rows)) |"
    done
done
