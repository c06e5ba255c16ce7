"""Ten million rows in the memory of one million.

    python scripts/load.py target/release/argand

Streams tables of 1 and 10 million rows of 4 numbers through `argand transform`, `gram` and `predict`, and compares their peak memory. Needs
Linux and 1 GB of disk under ${TMPDIR:-/tmp}.
"""

from __future__ import annotations

import os
import struct
import sys
import tempfile
import time
from pathlib import Path

COLUMNS = 4
# Between two runs of the same command, allocators and threads differ by some megabytes.
SPARE = 16 << 20


def write_table(path: Path, rows: int) -> None:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {COLUMNS}), }}"
    block = b"".join(struct.pack("<f", (i * 37 % 101 - 50) / 50) for i in range(1_003 * COLUMNS))
    left = rows * COLUMNS * 4
    with path.open("wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header.ljust(117).encode() + b"\n")
        while left > 0:
            left -= file.write(block[:left])


def peak(command: list[str]) -> tuple[int, float]:
    """The most memory that a command had, in bytes, and its seconds. The little that this script has counts, too."""
    begun = time.monotonic()
    child = os.posix_spawn(command[0], command, os.environ)
    _, status, usage = os.wait4(child, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"{' '.join(command)}: failed")
    return 1024 * usage.ru_maxrss, time.monotonic() - begun


def main() -> None:
    if len(sys.argv) != 2 or not os.access(sys.argv[1], os.X_OK):
        sys.exit(__doc__)
    argand = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sizes = (1_000_000, 10_000_000)
        for rows in sizes:
            write_table(Path(f"{rows}.npy"), rows)
            with Path(f"{rows}.csv").open("w") as labels:
                for _ in range(rows // 1000):
                    labels.write("a\nb\n" * 500)
        peak([argand, "transform", f"{sizes[0]}.npy", "-o", "z.npy", "--features", "8", "--save-spec", "s.json", "-q"])
        for name, arguments in {
            "transform": "{}.npy -o z.npy --spec s.json -q",
            "gram": "{}.npy --labels {}.csv --header no --spec s.json -o g --quiet",
            "fit": "{}.npy --labels {}.csv --header no --spec s.json --model ridge --lambda 1 -o m -q",
            "predict": "m {}.npy -o p.npy -q",
        }.items():
            found = []
            for rows in sizes:
                found.append(peak([argand, name, *arguments.replace("{}", str(rows)).split()]))
            (small, _), (large, seconds) = found
            print(f"{name}: {small >> 20} MB for {sizes[0]:,} rows, {large >> 20} MB for {sizes[1]:,} rows in {seconds:.1f} s", flush=True)
            if large > small + SPARE:
                sys.exit(f"{name}: memory grows with the number of rows")


if __name__ == "__main__":
    main()
