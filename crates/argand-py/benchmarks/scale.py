"""Ridge regression on a table in Parquet files: one process beside Dask with one and two workers, in turns.

Prints the table of docs/scale.md. Times are those of a fit, reading included, without the start of processes; processor
times are those of all processes that take part. Files are made in the folder given, and stay there.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import argand
import numpy as np
import pandas as pd
import pyarrow.parquet  # noqa: F401 (pandas would import it at work)

COLUMNS, FILE_ROWS = 784, 10_000
NAMES = [f"x{i}" for i in range(COLUMNS)]


def make_files(folder, rows):
    """Files of pixels, of which four in five are 0, as in handwritten digits."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(rows // FILE_ROWS):
        path = folder / f"part-{number:05}.parquet"
        if path.exists():
            continue
        rng = np.random.default_rng(number)
        pixels = rng.integers(0, 256, (FILE_ROWS, COLUMNS), np.uint8)
        pixels[rng.random(pixels.shape) < 0.8] = 0
        table = pd.DataFrame(pixels, columns=NAMES).assign(y=pixels[:, :2].astype(np.float32).sum(axis=1))
        table.to_parquet(path.with_suffix(".partial"), index=False)
        path.with_suffix(".partial").rename(path)


def model(features, threads=None):
    # Pixels up to 255: 784 of them, and squares of sums.
    return argand.Ridge(
        degree=2, gamma=1e-6, coef0=1.0, n_components=features, alpha=1.0, random_state=0, n_jobs=threads
    )


def files_of(folder, rows):
    return [str(folder / f"part-{number:05}.parquet") for number in range(rows // FILE_ROWS)]


def one_process(folder, rows, features):
    """File by file, with two threads."""
    with Watch() as watch:
        learner = model(features, 2)
        for path in files_of(folder, rows):
            table = pd.read_parquet(path)
            learner.partial_fit(table[NAMES], table["y"])
        answer = learner.coef_
    return {"answer": answer.tolist(), **watch.found()}


def reading(folder, rows, features):
    """The same files as numbers in memory, without learning."""
    with Watch() as watch:
        for path in files_of(folder, rows):
            pd.read_parquet(path).to_numpy(np.float64)
    return watch.found()


def dask_with(workers, threads):
    def fit(folder, rows, features):
        import dask.dataframe as dd
        from distributed import Client, LocalCluster

        options = {"n_workers": workers, "threads_per_worker": threads, "dashboard_address": ":0"}
        with LocalCluster(**options, host="127.0.0.1") as cluster, Client(cluster) as client:
            client.wait_for_workers(workers)
            # As this process has.
            for module in ("argand.dask", "dask.dataframe", "pyarrow.parquet"):
                client.run(importlib.import_module, module)
            with Watch(lambda: client.run(time.process_time)) as idle:
                time.sleep(5)
            with Watch(lambda: client.run(time.process_time)) as watch:
                table = dd.read_parquet(files_of(folder, rows))
                answer = model(features, 2).fit(table[NAMES], table["y"]).coef_
            sent = client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total)
            peaks = client.run(lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        found = {"sent": [*sent.values()], "peaks": [*peaks.values()], "idle": idle.processor / idle.wall}
        return {"answer": answer.tolist(), **watch.found(), **found}

    return fit


class Watch:
    """Wall time, and processor time of this process (with Dask's scheduler in it) and of the workers."""

    def __init__(self, of_workers=dict):
        self.of_workers = of_workers

    def now(self):
        return np.array([time.perf_counter(), time.process_time() + sum(self.of_workers().values())])

    def __enter__(self):
        self.began = self.now()
        return self

    def __exit__(self, *_):
        self.wall, self.processor = self.now() - self.began

    def found(self):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"wall": self.wall, "processor": self.processor, "peaks": [peak]}


def measured(name, arguments):
    """Run in a process of its own."""
    options = [str(option) for option in ("--rows", arguments.rows, "--features", arguments.features)]
    command = [sys.executable, __file__, "--folder", str(arguments.folder), *options, "--only", name]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


WORK = {
    "reading alone": reading,
    "one process, 2 threads": one_process,
    "Dask, 1 worker of 2 threads": dask_with(1, 2),
    "Dask, 2 workers of 1 thread": dask_with(2, 1),
}


DASK = [name for name in WORK if name.startswith("Dask")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("target/scale"))
    parser.add_argument("--only", choices=WORK, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    rows, features = arguments.rows, arguments.features
    if arguments.only:
        print(json.dumps(WORK[arguments.only](arguments.folder, rows, features)))
        return
    make_files(arguments.folder, rows)
    size = sum(Path(path).stat().st_size for path in files_of(arguments.folder, rows))
    print(
        f"{rows:,} x {COLUMNS} in {rows // FILE_ROWS} files of {size / 1e6:,.0f} MB together, D = {features}, ", end=""
    )
    print(f"medians of {arguments.repeats} rounds\n")
    results = {name: [] for name in WORK}
    for _ in range(arguments.repeats):
        for name in WORK:
            results[name].append(measured(name, arguments))
    base = results["one process, 2 threads"]
    answer = np.array(base[0]["answer"])
    for name in DASK:
        for run in results[name]:
            assert run["answer"] == results[DASK[0]][0]["answer"], "other bits"
            np.testing.assert_allclose(run["answer"], answer, rtol=1e-4, atol=1e-6 * np.abs(answer).max())
    heads = ["", "wall", "processor", "beside one process", "memory of a process", "sent by a worker", "sent for a row"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, runs in results.items():
        wall, spent = (statistics.median(run[of] for run in runs) for of in ("wall", "processor"))
        times = [
            statistics.median(run[of] / other[of] for run, other in zip(runs, base)) for of in ("wall", "processor")
        ]
        columns = [name, f"{wall:.0f} s", f"{spent:.0f} s", f"{times[0]:.2f} wall, {times[1]:.2f} processor"]
        columns += [f"{max(max(run['peaks']) for run in runs) >> 10} MB"]
        if name in DASK:
            columns += [f"{max(max(run['sent']) for run in runs) / 1e6:.0f} MB"]
            columns += [f"{statistics.median(sum(run['sent']) for run in runs) / rows:.0f} bytes"]
        print(f"| {' | '.join([*columns, '', ''][: len(heads)])} |")
    for name in DASK:
        idle = statistics.median(run["idle"] for run in results[name])
        print(f"\n{name}: an idle cluster takes {idle:.1%} of a processor, and so it does at work.")


if __name__ == "__main__":
    main()
