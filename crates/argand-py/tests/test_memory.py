"""Results reuse the memory of earlier ones, but never of one still in use."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys

import numpy as np
import pytest
from argand import PolynomialSketch
from argand._memory import SMALLEST, Pool

ROWS = 3000


@pytest.fixture
def pool() -> Pool:
    return Pool(4 * SMALLEST)


def fill(pool: Pool, value: int, size: int = SMALLEST) -> np.ndarray:
    result = pool.empty((size // 4, 1), np.dtype(np.float32))
    result[...] = value
    return result


def test_memory_is_used_again(pool: Pool) -> None:
    first = fill(pool, 1)
    address = first.ctypes.data
    del first
    assert pool.waiting() == SMALLEST
    second = fill(pool, 2)
    assert second.ctypes.data == address
    assert pool.waiting() == 0


def test_memory_that_is_held_is_left_alone(pool: Pool) -> None:
    first = fill(pool, 1)
    view = first[10:20, 0]
    del first
    gc.collect()
    assert pool.waiting() == 0
    second = fill(pool, 2)
    assert (view == 1).all()
    assert not np.shares_memory(view, second)


def test_the_pool_is_bounded(pool: Pool) -> None:
    results = [fill(pool, value) for value in range(8)]
    del results
    assert pool.waiting() == 4 * SMALLEST
    # Larger than the pool, and too small to pool.
    large, small = fill(pool, 1, 5 * SMALLEST), fill(pool, 1, SMALLEST // 2)
    assert large.base is None
    assert small.base is None


def test_blocks_that_are_much_larger_are_not_taken(pool: Pool) -> None:
    first = fill(pool, 1, 2 * SMALLEST)
    del first
    second = fill(pool, 2)
    assert pool.waiting() == 2 * SMALLEST
    assert (second == 2).all()


def test_results_survive_the_sketch_and_pickle() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, ROWS, 20)).astype(np.float32)
    sketch = PolynomialSketch(n_components=512, random_state=1).fit(X)
    first = sketch.transform(X)
    assert first.nbytes >= SMALLEST
    copy = first.copy()
    others = [sketch.transform(Y) for _ in range(3)]
    assert (first == copy).all()
    assert all((other == others[0]).all() for other in others)
    assert (pickle.loads(pickle.dumps(first)) == first).all()
    del first, others
    assert (sketch.transform(X) == copy).all()


def test_a_wrong_limit_is_named() -> None:
    run = subprocess.run(
        [sys.executable, "-c", "import argand"],
        env={"ARGAND_POOL_BYTES": "much"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ARGAND_POOL_BYTES: expected a number of bytes, got 'much'" in run.stderr
