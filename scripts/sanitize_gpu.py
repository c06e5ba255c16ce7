"""Runs the tests of `make test-gpu` under compute-sanitizer: memcheck and racecheck. `make sanitize-gpu` calls it.

    python scripts/sanitize_gpu.py BINARY... [--python FOLDER] [--only PATTERN] [--minutes 60] [--logs FOLDER]

The tests of a binary run in processes of their own, several at a time; those of every method are shared among PARTS.
With --python, the tests in that folder that name CUDA run, too, under memcheck: racecheck would judge PyTorch's kernels
with ours. Runs that were clean are listed in the folder of logs and not repeated with the same binaries: what was cut off goes
on. Exits with 1 if a tool found something, a test failed, or one did not finish.
"""

import argparse
import concurrent.futures
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import time

# Parts that the tests of every method, and those of Python, are shared out in.
PARTS = 64
TORCH_TESTS = [f"tests/test_{name}.py" for name in ("gpu", "torch", "torch_layers", "attribution_store")]
TOOLS = ["memcheck", "racecheck"]
# Racecheck looks at every access to shared memory: features of a table, at least two rows of them. Larger sketches that
# have a kernel of their own do not go step by step, too.
NUMBERS = 2_000
# Tests whose cases ARGAND_GPU_PART shares out.
SHARED = "features_and_gradients"


def jobs_of(binary: str) -> list[tuple[str, list[str], dict[str, str]]]:
    """Name, command and environment of every run of one binary."""
    listed = subprocess.run([binary, "--list"], capture_output=True, text=True, check=True).stdout
    jobs = []
    for test in re.findall(r"^(\S+): test$", listed, re.MULTILINE):
        for tool in TOOLS:
            sanitizer = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "99"]
            command = [*sanitizer, binary, "--exact", test, "--nocapture"]
            parts = range(PARTS) if SHARED in test else [None]
            for part in parts:
                shared = {} if part is None else {"ARGAND_GPU_PART": f"{part}/{PARTS}"}
                if tool == "racecheck":
                    shared["ARGAND_GPU_NUMBERS"] = str(NUMBERS)
                jobs.append((f"{tool} {test} {shared.get('ARGAND_GPU_PART', '')}".strip(), command, shared))
    return jobs


def jobs_of_python(folder: str) -> list[tuple[str, list[str], dict[str, str]]]:
    """The same for the Python tests that name CUDA."""
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    listed = subprocess.run(
        [*pytest, "--collect-only", *TORCH_TESTS], capture_output=True, text=True, check=True, cwd=folder
    )
    tests = [line for line in listed.stdout.splitlines() if "::" in line and ("cuda" in line or "test_gpu" in line)]
    command = ["compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "99", "--target-processes", "all"]
    return [
        (
            f"memcheck Python {part}/{PARTS}, {len(tests[part::PARTS])} tests",
            [*command, *pytest, *tests[part::PARTS]],
            {},
        )
        for part in range(PARTS)
        if tests[part::PARTS]
    ]


def main() -> None:
    """Runs everything and prints a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", nargs="+")
    parser.add_argument("--python", help="the folder of the Python package")
    parser.add_argument("--only", default="", help="a pattern: runs whose names match, like 'racecheck .*single'")
    parser.add_argument("--minutes", type=float, default=60, help="for all runs; those that take longer do not finish")
    parser.add_argument("--logs", type=pathlib.Path, default=pathlib.Path("target/sanitizer"))
    given = parser.parse_args()
    given.logs.mkdir(parents=True, exist_ok=True)
    jobs = [(job, None) for binary in given.binaries for job in jobs_of(str(pathlib.Path(binary).resolve()))]
    if given.python:
        jobs += [(job, given.python) for job in jobs_of_python(given.python)]

    jobs = [job for job in jobs if re.search(given.only, job[0][0])]
    digest = hashlib.sha256(b"".join(pathlib.Path(binary).read_bytes() for binary in given.binaries)).hexdigest()[:12]
    record, deadline = given.logs / f"clean-{digest}.txt", time.monotonic() + 60 * given.minutes
    known = set(record.read_text().splitlines()) if record.exists() else set()
    print(f"{sum(job[0][0] in known for job in jobs)} of {len(jobs)} runs were clean before", flush=True)

    def run(numbered: tuple[int, tuple]) -> bool:
        number, ((name, command, extra), folder) = numbered
        if name in known:
            return True
        log, began = given.logs / f"{number}.log", time.monotonic()
        if began > deadline:
            return False
        with log.open("w") as out:
            try:
                environment = {**os.environ, "ARGAND_NEEDS_GPU": "1", **extra}
                code = subprocess.run(
                    command, stdout=out, stderr=out, env=environment, cwd=folder, timeout=deadline - began, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                code = None
        text = log.read_text(errors="replace")
        summary = [line for line in text.splitlines() if "SUMMARY" in line]
        clean = code == 0 and bool(summary) and all(re.search(r"SUMMARY: 0 ", line) for line in summary)
        if "before first instrumented API call" in text and "test result: ok" in text:
            clean, summary = True, ["uses no GPU"]
        verdict = "clean" if clean else "did not finish" if code is None else f"exit {code}, {log}"
        if clean:
            with record.open("a") as lines:
                lines.write(name + "\n")
        print(f"{verdict}: {name} ({time.monotonic() - began:.0f} s) {' '.join(summary).strip('= ')}", flush=True)
        return clean

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        clean = list(pool.map(run, enumerate(jobs)))
    print(f"{sum(clean)} of {len(clean)} runs are clean")
    sys.exit(0 if all(clean) else 1)


if __name__ == "__main__":
    main()
