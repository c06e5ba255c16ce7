"""Ridge regression on a table in Parquet files: one process beside Dask with one and two workers, in turns.

Prints the table of docs/scale.md. Processor times are those of all processes that take part, from their start; wall
times are those of a fit, without the start of a cluster. Files are made in the folder given, and stay there.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import statistics
import threading
import time
from pathlib import Path

import argand
import numpy as np
import pandas as pd
import psutil

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
    learner = model(features, 2)
    for path in files_of(folder, rows):
        table = pd.read_parquet(path)
        learner.partial_fit(table[NAMES], table["y"])
    return learner.coef_, {}


def reading(folder, rows, features):
    """The same, without learning."""
    return sum(int(pd.read_parquet(path).to_numpy(np.float64)[0, 0]) for path in files_of(folder, rows)), {}


def dask_with(workers, threads):
    def fit(folder, rows, features):
        import dask.dataframe as dd
        from distributed import Client, LocalCluster

        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=threads, dashboard_address=":0", host="127.0.0.1"
            ) as cluster,
            Client(cluster) as client,
        ):
            client.wait_for_workers(workers)
            began = time.perf_counter()
            table = dd.read_parquet(files_of(folder, rows), split_row_groups=False)
            learner = model(features, 2).fit(table[NAMES], table["y"])
            known = {
                "fit": time.perf_counter() - began,
                "peaks": list(client.run(lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss).values()),
                "sent": list(client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values()),
            }
        return learner.coef_, known

    return fit


def measured(work, folder, rows, features):
    """Run in a process of its own; return its answer, wall time, processor time and what it knows."""
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=in_process, args=(work, folder, rows, features, queue))
    process.start()
    found = queue.get()
    process.join()
    if isinstance(found, Exception):
        raise found
    return found


def in_process(name, folder, rows, features, queue):
    try:
        spent, stop = {}, threading.Event()

        def watch():
            # Workers are gone when they could be asked.
            while not stop.wait(0.1):
                for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
                    try:
                        times = process.cpu_times()
                    except psutil.NoSuchProcess:
                        continue
                    spent[process.pid] = times.user + times.system

        watcher = threading.Thread(target=watch)
        watcher.start()
        began = time.perf_counter()
        answer, known = WORK[name](folder, rows, features)
        wall = known.pop("fit", time.perf_counter() - began)
        stop.set()
        watcher.join()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        queue.put((answer, wall, sum(spent.values()), {"peaks": [peak], **known}))
    except Exception as error:
        queue.put(error)


WORK = {
    "reading alone": reading,
    "one process, 2 threads": one_process,
    "Dask, 1 worker of 2 threads": dask_with(1, 2),
    "Dask, 2 workers of 1 thread": dask_with(2, 1),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("target/scale"))
    arguments = parser.parse_args()
    rows, features = arguments.rows, arguments.features
    make_files(arguments.folder, rows)
    print(f"{rows:,} x {COLUMNS} in {rows // FILE_ROWS} files, D = {features}, medians of {arguments.repeats} rounds\n")
    results = {name: [] for name in WORK}
    for _ in range(arguments.repeats):
        for name in WORK:
            results[name].append(measured(name, arguments.folder, rows, features))
    answer = results["one process, 2 threads"][0][0]
    for name in list(WORK)[2:]:
        for found, *_ in results[name]:
            np.testing.assert_allclose(found, answer, rtol=1e-4, atol=1e-6 * np.abs(answer).max())
        first = results[name][0][0]
        assert all(np.array_equal(found, first) for found, *_ in results[name]), "other bits"
    heads = ["", "wall", "processor", "beside one process", "memory of a process", "sent by a worker", "sent for a row"]
    print(f"| {' | '.join(heads)} |")
    print("|---|---|---|---|---|---|---|")
    base = results["one process, 2 threads"]
    for name, runs in results.items():
        wall, spent = (statistics.median(run[at] for run in runs) for at in (1, 2))
        ratios = [statistics.median(run[at] / other[at] for run, other in zip(runs, base)) for at in (1, 2)]
        peak = max(max(run[3]["peaks"]) for run in runs) / 1024
        sent = [max(run[3]["sent"]) for run in runs if "sent" in run[3]]
        total = [sum(run[3]["sent"]) for run in runs if "sent" in run[3]]
        columns = [
            f"{wall:.0f} s",
            f"{spent:.0f} s",
            f"{ratios[0]:.2f} wall, {ratios[1]:.2f} processor",
            f"{peak:.0f} MB",
        ]
        columns += [f"{max(sent) / 1e6:.0f} MB", f"{max(total) / rows:.0f} bytes"] if sent else ["", ""]
        print(f"| {name} | " + " | ".join(columns) + " |")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
