"""A cluster of worker processes: who works, what is sent, and what happens when one of them fails.

Every test compares sums with those of one process, to the last bit.
"""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import argand
import numpy as np
import pytest

distributed = pytest.importorskip("distributed", reason="Dask is not installed; make test-cluster installs it")

import dask  # noqa: E402
import dask.array as da  # noqa: E402
import psutil  # noqa: E402
from argand.dask import _sums  # noqa: E402
from distributed import Client, LocalCluster, Nanny, Scheduler, SpecCluster  # noqa: E402
from distributed.scheduler import KilledWorker  # noqa: E402

BLOCKS, BLOCK_ROWS, COLUMNS, FEATURES = 24, 50, 6, 64
MEGABYTE = 2**20


@pytest.fixture(scope="module")
def client():
    """Three worker processes of one thread each; nannies start them again when they die."""
    options = {"n_workers": 3, "threads_per_worker": 1, "memory_limit": "1500MB", "dashboard_address": ":0"}
    with LocalCluster(**options, host="127.0.0.1") as cluster, Client(cluster) as client:
        yield client


@pytest.fixture
def workers(client):
    """The process numbers of the three workers, once all are there."""
    client.wait_for_workers(3, timeout=60)
    return lambda: set(client.run(os.getpid).values())


def block_of_rows(number):
    return np.random.default_rng(number).random((BLOCK_ROWS, COLUMNS))


def slow_block(seen, block_id=None):
    """A block that takes its time, and notes who computed it."""
    Path(seen, f"{block_id[0]}-{os.getpid()}-{time.monotonic_ns()}").touch()
    time.sleep(0.25)
    return block_of_rows(block_id[0])


def slow_rows(seen):
    return da.map_blocks(
        slow_block,
        str(seen),
        chunks=((BLOCK_ROWS,) * BLOCKS, (COLUMNS,)),
        dtype=float,
        meta=np.empty((0, 0)),
    )


def rows_in_memory():
    return da.from_array(
        np.concatenate([block_of_rows(number) for number in range(BLOCKS)]), chunks=(BLOCK_ROWS, COLUMNS)
    )


def model():
    return argand.Ridge(n_components=FEATURES, random_state=0)


def gram_bytes(model):
    return model._gram.to_bytes()


@pytest.fixture(scope="module")
def expected():
    """The sums of one process."""
    X = rows_in_memory()
    with dask.config.set(scheduler="synchronous"):
        return gram_bytes(model().fit(X, X[:, 0]))


def in_background(work):
    """Start to work; the function returned waits for the result or raises the error."""
    found = {}

    def run():
        try:
            found["result"] = work()
        except BaseException as error:
            found["error"] = error

    thread = threading.Thread(target=run)
    thread.start()

    def wait(timeout=120):
        thread.join(timeout)
        assert not thread.is_alive(), "still at work"
        if "error" in found:
            raise found["error"]
        return found["result"]

    wait.thread = thread
    return wait


def wait_until(happened, timeout=60):
    end = time.monotonic() + timeout
    while not happened():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def worker_in_the_middle(seen, work, workers):
    """The process of a worker that has computed two blocks while others are left to do."""

    def busy():
        done = [path.name.split("-")[1] for path in seen.iterdir()]
        return next((int(process) for process in done if done.count(process) >= 2), None)

    wait_until(busy)
    assert work.thread.is_alive() and len(list(seen.iterdir())) < BLOCKS
    process = busy()
    assert process in workers
    return process


def test_sums_do_not_depend_on_the_workers(client, workers, expected):
    X = rows_in_memory()
    assert gram_bytes(model().fit(X, X[:, 0])) == expected
    # Blocks that lie on the workers, in any order.
    X, y = client.persist([X, X[:, 0]])
    assert gram_bytes(model().fit(X, y)) == expected
    client.retire_workers([next(iter(client.scheduler_info()["workers"]))], close_workers=False, remove=False)
    assert gram_bytes(model().fit(X, y)) == expected
    client.restart()
    client.wait_for_workers(3, timeout=60)


@pytest.mark.parametrize("kind", [argand.RidgeClassifier, argand.GPRegressor, argand.GPClassifier])
def test_other_models_do_not_depend_on_the_workers(client, workers, kind):
    X = rows_in_memory()
    y = X[:, 0] if kind is argand.GPRegressor else X.argmax(axis=1)
    make = lambda: kind(n_components=FEATURES, random_state=0)
    with dask.config.set(scheduler="synchronous"):
        alone = make().fit(X, y)
        predicted = alone.predict(X).compute()
    fitted = make().fit(X, y)
    assert gram_bytes(fitted) == gram_bytes(alone)
    np.testing.assert_array_equal(fitted.predict(X).compute(), predicted)


def test_a_worker_has_the_threads_that_the_cluster_gives_it(client, workers):
    def threads():
        names = [Path(task, "comm").read_text() for task in Path("/proc/self/task").iterdir()]
        # Work that asked for no number would be on as many threads as there are cores.
        return sum(name.startswith("argand-") for name in names)

    X = rows_in_memory()
    model().fit(X, X[:, 0])
    argand.PolynomialSketch(2, n_components=FEATURES, random_state=0).fit(X).transform(X).compute()
    counts = client.run(threads)
    assert set(counts.values()) <= {0, 1} and any(counts.values())


def test_only_sums_are_sent(client, workers, monkeypatch):
    """A run of blocks stays where it began: what travels does not grow with the rows."""

    def sent():
        client.run(lambda: None)
        return sum(client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values())

    def large(block_id=None):
        return np.random.default_rng(block_id).random((4000, 32))

    monkeypatch.setattr(_sums, "MOST_RUNS", 8)
    X = da.map_blocks(large, chunks=((4000,) * 96, (32,)), dtype=float, meta=np.empty((0, 0)))
    before = sent()
    fitted = argand.Ridge(n_components=256, random_state=0).fit(X, X[:, 0])
    gram = sys.getsizeof(fitted._gram)
    assert fitted._gram.rows == 96 * 4000
    # The sums of eight runs, some of which may move when work is shared out, beside 96 blocks of a megabyte.
    assert sent() - before < 24 * gram + MEGABYTE < 96 * 4000 * 32 * 8 / 4


def test_memory_does_not_grow_with_the_blocks(client, workers):
    def peak():
        return max(client.run(lambda: __import__("resource").getrusage(0).ru_maxrss * 1024).values())

    def fit(blocks):
        def large(block_id=None):
            return np.random.default_rng(block_id).random((1000, 32))

        X = da.map_blocks(large, chunks=((1000,) * blocks, (32,)), dtype=float, meta=np.empty((0, 0)))
        return argand.Ridge(n_components=1024, random_state=0).fit(X, X[:, 0])

    fit(12)
    few = peak()
    gram = sys.getsizeof(fit(120)._gram)
    # The sums of all blocks would take 36 of these more on each of three workers.
    assert peak() - few < 12 * gram


def test_a_worker_is_killed_in_a_fit(client, workers, expected, tmp_path):
    X = slow_rows(tmp_path)
    work = in_background(lambda: model().fit(X, X[:, 0]))
    os.kill(worker_in_the_middle(tmp_path, work, workers()), signal.SIGKILL)
    assert gram_bytes(work()) == expected


def test_a_worker_is_killed_in_a_transform(client, workers, tmp_path):
    sketch = argand.PolynomialSketch(3, n_components=FEATURES, random_state=0)
    X = slow_rows(tmp_path)
    lazy = sketch.fit(X).transform(X)
    work = in_background(lazy.compute)
    os.kill(worker_in_the_middle(tmp_path, work, workers()), signal.SIGKILL)
    np.testing.assert_array_equal(work(), sketch.transform(rows_in_memory().compute()))


def test_a_worker_is_paused_for_ten_seconds(client, workers, expected, tmp_path):
    X = slow_rows(tmp_path)
    work = in_background(lambda: model().fit(X, X[:, 0]))
    process = worker_in_the_middle(tmp_path, work, workers())
    os.kill(process, signal.SIGSTOP)
    try:
        time.sleep(10)
    finally:
        os.kill(process, signal.SIGCONT)
    assert gram_bytes(work()) == expected
    assert process in workers()


def hungry_block(block_id=None):
    """A block that needs 500 MB for a while."""
    held = np.ones(500 * MEGABYTE // 8)
    time.sleep(1)
    del held
    return block_of_rows(block_id[0])


def cluster_of(memory_limits):
    workers = {
        number: {"cls": Nanny, "options": {"nthreads": 1, "memory_limit": limit, "host": "127.0.0.1"}}
        for number, limit in enumerate(memory_limits)
    }
    scheduler = {"cls": Scheduler, "options": {"dashboard_address": ":0", "host": "127.0.0.1", "port": 0}}
    return SpecCluster(workers=workers, scheduler=scheduler, silence_logs=50)


def fit_hungry_rows(blocks):
    X = da.map_blocks(hungry_block, chunks=((BLOCK_ROWS,) * blocks, (COLUMNS,)), dtype=float, meta=np.empty((0, 0)))
    return gram_bytes(model().fit(X, X[:, 0]))


def test_a_worker_runs_out_of_its_memory():
    X = rows_in_memory()[: 6 * BLOCK_ROWS]
    with dask.config.set(scheduler="synchronous"):
        expected = gram_bytes(model().fit(X, X[:, 0]))
    with cluster_of(["500MB", "3GB", "3GB"]) as cluster, Client(cluster) as client:
        client.wait_for_workers(3, timeout=60)
        first = cluster.workers[0].pid
        assert fit_hungry_rows(6) == expected
        assert not psutil.pid_exists(first), "the worker did not run out of its memory"
    with cluster_of(["500MB"]) as cluster, Client(cluster) as client:
        client.wait_for_workers(1, timeout=60)
        # Dask's own words: which task, and that its workers died of it.
        with pytest.raises(KilledWorker, match=r"argand-sums.*workers died while running it"):
            fit_hungry_rows(1)


def test_the_client_dies_and_comes_back(client, workers, expected, tmp_path):
    program = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from distributed import Client
        from test_cluster import model, slow_rows
        if __name__ == "__main__":
            with Client({client.scheduler.address!r}):
                X = slow_rows({str(tmp_path)!r})
                model().fit(X, X[:, 0])
    """
    # Workers find the tests, too.
    client.run(sys.path.insert, 0, str(Path(__file__).parent))
    first = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)])
    try:
        wait_until(lambda: len(list(tmp_path.iterdir())) >= 6)
        assert first.poll() is None
    finally:
        first.kill()
        first.wait()
    X = slow_rows(tmp_path)
    # Nothing of the first is left, and nothing of it disturbs the second.
    assert gram_bytes(model().fit(X, X[:, 0])) == expected
    wait_until(lambda: not client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))
