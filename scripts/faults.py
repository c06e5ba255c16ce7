"""Faults against the command line: damaged files, kills at random moments, failing disks, two writers.

    python scripts/faults.py target/release/argand [--kills N] [--only PATTERN] [--seed S] [--docs]

Every case has an answer that is right or an error that names the file; anything else ends the run. Prints a table of counts;
with --docs it replaces the one in docs/reliability.md. The seed is printed, so that a run can be repeated.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

MEMORY = 512 << 20
ROOT = Path(__file__).resolve().parent.parent


def npy(rows: int, columns: int, seed: int) -> bytes:
    numbers = random.Random(seed)
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}"
    data = struct.pack(f"<{rows * columns}f", *(numbers.uniform(-1, 1) for _ in range(rows * columns)))
    return b"\x93NUMPY\x01\x00\x76\x00" + f"{header:<117}\n".encode() + data


def limited() -> None:
    """At most so much memory that is touched; address space is cheap, and threads reserve much of it."""
    resource.setrlimit(resource.RLIMIT_DATA, (4 * MEMORY, 4 * MEMORY))


class Suite:
    def __init__(self, binary: Path, folder: Path, seed: int, only: str) -> None:
        self.binary, self.folder, self.only = binary, folder, only
        self.random = random.Random(seed)
        self.counts: list[tuple[str, int, str]] = []

    def path(self, name: str) -> Path:
        return self.folder / name

    def run(self, arguments: str, limit=limited) -> subprocess.CompletedProcess:
        command = [self.binary, *arguments.split()]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=300, preexec_fn=limit)

    def succeed(self, arguments: str) -> str:
        done = self.run(arguments, None)
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout

    def wants(self, what: str) -> bool:
        return re.search(self.only, what) is not None

    def names(self) -> set[str]:
        return set(os.listdir(self.folder))

    def record(self, what: str, count: int, found: str) -> None:
        self.counts.append((what, count, found))
        print(f"{what}: {count}; {found}", flush=True)

    def prepare(self) -> None:
        self.path("x.npy").write_bytes(npy(3000, 4, 1))
        labels = "y\n" + "".join(f"{'ab'[row % 2]}\n" for row in range(3000))
        self.path("y.csv").write_text(labels)
        self.path("x.csv").write_text("a,b\n" + "".join(f"{row},{row % 7}.5\n" for row in range(40)))
        self.succeed("transform x.csv -o z.npy --features 8 --scaling standard --save-spec recipe.json")
        self.succeed("transform x.npy -o z.npy --features 8 --save-spec spec.json")
        self.succeed("fit x.npy --labels y.csv --model ridge -o model --features 8")
        self.succeed("fit x.npy --labels y.csv --model ridge -o model1 --features 8 --seed 1")
        self.succeed("fit x.npy --labels y.csv --model ridge -o model2 --features 16 --seed 2")
        softmax = "fit x.npy --labels y.csv --model softmax -o other --features 8 --epochs 2 --checkpoint state"
        self.succeed(softmax)
        # Sums, and fewer rows than features, which are kept; parts of the rows, to be merged.
        self.succeed("gram x.npy --labels y.csv --spec spec.json -o sums.gram")
        self.path("few.npy").write_bytes(npy(6, 4, 2))
        self.path("few.csv").write_text("y\na\nb\na\nb\na\nb\n")
        self.succeed("gram few.npy --labels few.csv --spec spec.json -o rows.gram")
        for version in (1, 2):
            self.succeed(f"transform x.npy -o z.npy --features 64 --seed {version} --save-spec spec{version}.json")
            self.path(f"part{version}.npy").write_bytes(npy(3000, 4, 10 + version))
            for part in ("x", f"part{version}"):
                self.succeed(f"gram {part}.npy --labels y.csv --spec spec{version}.json -o {part}.{version}.gram")
        self.succeed("transform x.csv -o x.parquet --features 4")
        self.path("x.libsvm").write_text("".join(f"1 1:{row} 3:{row % 5}.25\n" for row in range(20)))
        self.path("x.idx.gz").write_bytes(gzip_of(b"\0\0\x08\x02" + struct.pack(">II", 20, 3) + bytes(range(60))))

    def damage(self) -> None:
        """Every cut, and flipped bits: of small files all, of larger ones a random choice."""
        for name, command in [
            ("spec.json", "info {}"),
            ("recipe.json", "info {}"),
            ("model", "info {}"),
            ("state", "info {}"),
            ("sums.gram", "info {}"),
            ("rows.gram", "info {}"),
        ]:
            if not self.wants(name):
                continue
            whole = self.path(name).read_bytes()
            meaning = self.run(command.format(name)).stdout
            cuts = range(len(whole)) if len(whole) < 900 else sorted(self.random.sample(range(len(whole)), 300))
            flips = [(at, bit) for at in range(len(whole)) for bit in range(8)]
            flips = flips if len(flips) < 3000 else self.random.sample(flips, 1500)
            accepted = 0
            for kind, places in (("cut", cuts), ("flip", flips)):
                for place in places:
                    damaged = bytearray(whole)
                    if kind == "cut":
                        damaged = damaged[:place]
                    else:
                        damaged[place[0]] ^= 1 << place[1]
                    self.path("damaged").write_bytes(damaged)
                    done = self.run(command.format("damaged"))
                    assert done.returncode in (0, 2) and "panicked" not in done.stderr, (name, kind, place, done)
                    if done.returncode == 0:
                        accepted += 1
                        assert done.stdout == meaning, f"{name} {kind} {place}: read as something else"
            self.record(f"cuts and flipped bits of {name}", len(list(cuts)) + len(flips), f"{accepted} read, all as the original")
        for name in ("x.npy", "x.csv", "x.parquet", "x.libsvm", "x.idx.gz"):
            whole = self.path(name).read_bytes()
            suffix = name[1:]
            if not self.wants(name):
                continue
            refused = 0
            for attempt in range(400):
                damaged = bytearray(whole)
                if attempt % 2:
                    damaged = damaged[: self.random.randrange(len(whole))]
                else:
                    for _ in range(1 + attempt % 5):
                        damaged[self.random.randrange(min(len(whole), 2000))] ^= 1 << self.random.randrange(8)
                self.path(f"damaged{suffix}").write_bytes(damaged)
                done = self.run(f"transform damaged{suffix} -o out.npy --features 2 --degree 1")
                assert done.returncode in (0, 2) and "panicked" not in done.stderr, (name, attempt, done)
                assert (done.returncode == 0) == self.path("out.npy").exists(), (name, attempt, done)
                self.path("out.npy").unlink(missing_ok=True)
                refused += done.returncode == 2
            self.record(f"damaged {suffix} tables", 400, f"{refused} refused, the others read as numbers; no panic")

    def kills(self, kills: int) -> None:
        writes = {
            "features as .npy with their spec": ("transform x.npy -o k.npy --features 64 --seed {} --save-spec k.json -q", ["k.npy", "k.json"]),
            "features as .csv": ("transform x.npy -o k.csv --features 16 --seed {} -q", ["k.csv"]),
            "features as .parquet": ("transform x.npy -o k.parquet --features 64 --seed {} -q", ["k.parquet"]),
            "models": ("fit x.npy --labels y.csv --model ridge -o k.model --features 64 --seed {} -q", ["k.model"]),
            "sums": ("gram x.npy --labels y.csv --spec spec{0}.json -o k.gram", ["k.gram"]),
            "merged sums": ("merge x.{0}.gram part{0}.{0}.gram -o k.all.gram", ["k.all.gram"]),
            "predictions": ("predict model{} x.npy -o k.predicted.csv -q", ["k.predicted.csv"]),
        }
        for what, (command, outputs) in writes.items():
            if not self.wants(what):
                continue
            versions = []
            for version in (1, 2):
                began = time.monotonic()
                self.succeed(command.format(version))
                whole = time.monotonic() - began
                versions.append([self.path(name).read_bytes() for name in outputs])
            before = self.names()
            tally = {"old": 0, "new": 0, "without a spec": 0}
            signals = [signal.SIGKILL, signal.SIGTERM]
            for attempt in range(kills):
                for name, contents in zip(outputs, versions[0]):
                    self.path(name).write_bytes(contents)
                child = subprocess.Popen(
                    [self.binary, *command.format(2).split()], cwd=self.folder, stderr=subprocess.DEVNULL
                )
                time.sleep(self.random.uniform(0, 1.15 * whole))
                child.send_signal(signals[attempt % 2])
                child.wait()
                found = [self.path(name).read_bytes() if self.path(name).exists() else None for name in outputs]
                if found == versions[0]:
                    tally["old"] += 1
                elif found == versions[1]:
                    tally["new"] += 1
                elif len(found) == 2 and found[1] is None and found[0] in (versions[0][0], versions[1][0]):
                    tally["without a spec"] += 1
                else:
                    raise AssertionError(f"{what}: neither the old nor the new files after attempt {attempt}")
                left = {name for name in self.names() - before if not name.startswith(".argand-")}
                assert not left, left
            temporary = [name for name in self.names() if name.startswith(".argand-")]
            for name in temporary:
                os.utime(self.path(name), (0, 0))
            self.succeed(command.format(2))
            assert not [name for name in self.names() if name.startswith(".argand-")], "not swept"
            tallied = ", ".join(f"{count} {name}" for name, count in tally.items() if count)
            self.record(f"kills (-9 and TERM) while writing {what}", kills, f"{tallied}; {len(temporary)} temporary files, all swept")
        if not self.wants("training"):
            return
        # Training goes on where it was, and gives the same model.
        fit = "fit x.npy --labels y.csv --model softmax -o {} --features 64 --epochs 6 -q"
        self.succeed(fit.format("straight"))
        resumed = 0
        for _ in range(max(kills // 20, 5)):
            for name in ("state", "resumed"):
                self.path(name).unlink(missing_ok=True)
            command = [self.binary, *fit.format("resumed").split(), "--checkpoint", "state"]
            for _ in range(40):
                child = subprocess.Popen(command, cwd=self.folder, stderr=subprocess.DEVNULL)
                time.sleep(self.random.uniform(0.02, 0.3))
                if child.poll() is None:
                    child.kill()
                    resumed += 1
                child.wait()
                if self.path("resumed").exists():
                    break
            if not self.path("resumed").exists():
                subprocess.run(command, cwd=self.folder, check=True)
            assert self.path("resumed").read_bytes() == self.path("straight").read_bytes(), "a resumed model differs"
        self.record("kills of training that was then resumed", resumed, "the same model to the last bit")

    def writes(self) -> None:
        """Files that may not grow, folders that may not be written to, and two writers."""
        failed = 0
        for limit in [0, 1, 100, 127, 128, 1000, 4096, 65536, 262144, 300000] * 2:
            def no_growth(limit=limit) -> None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

            self.path("w.npy").write_bytes(b"precious")
            done = self.run("transform x.npy -o w.npy --features 64 -q", no_growth)
            assert done.returncode == 1 and "cannot write" in done.stderr, (limit, done)
            assert self.path("w.npy").read_bytes() == b"precious"
            failed += 1
        self.record("write errors (files that may not grow)", failed, "each an error, the old file unchanged")
        small = self.path("small")
        small.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", small], capture_output=True)
        if mounted.returncode == 0:
            try:
                (small / "w.csv").write_bytes(b"precious")
                full = 0
                for output in ("w.csv", "w.npy", "w.parquet"):
                    done = self.run(f"transform x.csv -o small/{output} --features 2000 -q")
                    assert done.returncode in (1, 2), done
                    assert os.listdir(small) == ["w.csv"] and (small / "w.csv").read_bytes() == b"precious"
                    full += 1
                self.record("full disks", full, "each an error, the old file unchanged, nothing left behind")
            finally:
                subprocess.run(["umount", small], check=True)
        else:
            print("not tested: full disks; a file system of 200 kB cannot be mounted here", file=sys.stderr)
        locked = self.path("locked")
        locked.mkdir()
        (locked / "w.npy").write_bytes(b"precious")
        locked.chmod(0o555)
        if os.geteuid() == 0:
            print("not tested: read-only folders; root may write to them", file=sys.stderr)
        else:
            done = self.run("transform x.npy -o locked/w.npy --features 8 -q")
            assert done.returncode == 2 and (locked / "w.npy").read_bytes() == b"precious"
            self.record("read-only folders", 1, "an error")
        locked.chmod(0o755)
        commands = [f"transform x.npy -o two.npy --features 64 --seed {seed} -q" for seed in (1, 2)]
        results = []
        for command in commands:
            self.succeed(command)
            results.append(self.path("two.npy").read_bytes())
        for _ in range(40):
            children = [subprocess.Popen([self.binary, *command.split()], cwd=self.folder) for command in commands]
            assert [child.wait() for child in children] == [0, 0]
            assert self.path("two.npy").read_bytes() in results
        self.record("two writers of one file", 40, "the whole file of one of them, always")


def gzip_of(data: bytes) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    return compressor.compress(data) + compressor.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", type=Path)
    parser.add_argument("--kills", type=int, default=1000, help="kills for every kind of write")
    parser.add_argument("--only", default="", help="files, kinds of writes, writes and training that match this regular expression")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--docs", action="store_true", help="write the table to docs/reliability.md")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(arguments.binary.resolve(), Path(folder), seed, arguments.only)
        suite.prepare()
        suite.damage()
        if suite.wants("writes"):
            suite.writes()
        suite.kills(arguments.kills)
    lines = ["| what was tried | times | what happened |", "|---|---:|---|"]
    lines += [f"| {what} | {count:,} | {found} |" for what, count, found in suite.counts]
    total = sum(count for _, count, _ in suite.counts)
    table = "\n".join(lines) + f"\n\n{total:,} cases on {datetime.date.today()}, seed {seed}.\n"
    print(json.dumps({"cases": total, "seed": seed}))
    if arguments.docs:
        page = ROOT / "docs/reliability.md"
        start, rest = page.read_text().split("<!-- faults -->\n", 1)
        _, end = rest.split("<!-- end of faults -->", 1)
        page.write_text(f"{start}<!-- faults -->\n{table}<!-- end of faults -->{end}")


if __name__ == "__main__":
    main()
