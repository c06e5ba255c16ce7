#!/usr/bin/env bash
# Runs `argand transform` on a 4 GB file; fails if it needs more than 300 MB of memory, or if killing it
# half-way leaves anything behind. Then fits models to a 1 GB Parquet file within a quarter of its
# size. Takes the path to the program:
#
#   scripts/memory-test.sh target/release/argand
#
# Needs Linux, Python 3 and 5 GB of disk under ${TMPDIR:-/tmp}.
set -euo pipefail

if [[ $# -ne 1 || ! -x $1 ]]; then
    echo "usage: $0 ARGAND, the path to the program" >&2
    exit 2
fi
argand=$(realpath "$1")
limit_mb=300
flags=(--degree 3 --features 64 --seed 1)

folder=$(mktemp -d "${TMPDIR:-/tmp}/argand-memory-test.XXXXXX")
trap 'rm -rf "$folder"' EXIT
cd "$folder"

echo "writing 1,000,000 rows x 1,000 columns of f32"
python3 - <<'PYTHON'
import array, random, struct, sys

ROWS, COLUMNS = 1_000_000, 1_000
random.seed(1)
# More numbers than a chunk holds; every chunk starts elsewhere, so rows do not repeat.
numbers = array.array("f", (random.uniform(-1, 1) for _ in range(1_500_007)))
if sys.byteorder == "big":
    numbers.byteswap()
pool = memoryview(numbers).cast("B")
chunk = 1_000 * COLUMNS * numbers.itemsize
header = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }" % (ROWS, COLUMNS)
with open("x.npy", "wb") as file:
    file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header.ljust(117).encode() + b"\n")
    for index in range(ROWS // 1_000):
        start = index * 7_919 % 500_000 * numbers.itemsize
        file.write(pool[start : start + chunk])
PYTHON
stat --format '%n: %s bytes' x.npy

# Runs the program and prints its seconds and its peak resident memory in bytes.
measure() {
    python3 - "$@" <<'PYTHON'
import resource, subprocess, sys, time

begun = time.monotonic()
subprocess.run(sys.argv[1:], check=True)
seconds = time.monotonic() - begun
print(f"{seconds:.1f}", 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
PYTHON
}

for output in z.npy z.parquet; do
    measured=$(measure "$argand" transform x.npy --output "$output" --quiet "${flags[@]}")
    read -r seconds peak <<<"$measured"
    echo "x.npy to $output: $((peak / 1000000)) MB of memory, $seconds s, $(stat --format %s "$output") bytes written"
    if ((peak > limit_mb * 1000000)); then
        echo "failed: the limit is $limit_mb MB" >&2
        exit 1
    fi
    rm "$output"

    "$argand" transform x.npy --output "$output" --save-spec sketch.json --quiet "${flags[@]}" &
    sleep "$(python3 -c "print($seconds / 2)")"
    kill -KILL $!
    status=0
    wait $! 2>/dev/null || status=$?
    if ((status != 128 + 9)); then
        echo "failed: expected it to be killed, but it exited with $status" >&2
        exit 1
    fi
    left=$(ls -A)
    if [[ $left != x.npy ]]; then
        echo "failed: killed half-way, it left" $left >&2
        exit 1
    fi
    echo "killed half-way: nothing left of $output"
done

# A Parquet file of a million rows, incompressible because random, and classes for them.
"$argand" transform x.npy --output z.parquet --quiet --degree 1 --features 256
rm x.npy
python3 - <<'PYTHON'
import array, random, struct

random.seed(2)
header = "{'descr': '<i4', 'fortran_order': False, 'shape': (1000000,), }"
with open("y.npy", "wb") as file:
    file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header.ljust(117).encode() + b"\n")
    array.array("i", (random.randrange(4) for _ in range(1_000_000))).tofile(file)
PYTHON
size=$(stat --format %s z.parquet)
for model in "ridge --lambda 1" "gp" "softmax --epochs 1"; do
    # shellcheck disable=SC2086 # the model and its options
    measured=$(measure "$argand" fit z.parquet --labels y.npy --model $model --scaling standard --features 256 \
        --output fitted.model --quiet)
    read -r seconds peak <<<"$measured"
    echo "z.parquet, $size bytes, to a model ($model): $((peak / 1000000)) MB of memory, $seconds s"
    if ((peak > size / 4)); then
        echo "failed: the limit is $((size / 4000000)) MB, a quarter of the file" >&2
        exit 1
    fi
done
