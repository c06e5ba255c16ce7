"""Memory for results.

New memory costs more than features do: the system hands out pages one by one and zeroes them first. Results therefore
reuse the memory of earlier results that are no longer referenced. At most ``ARGAND_POOL_BYTES`` bytes (from the
environment; 1 GiB by default, 0 to disable) wait for reuse.
"""

from __future__ import annotations

import math
import os
import threading
import weakref

import numpy as np

#: Smaller results come from NumPy, which allocates them fast.
SMALLEST = 1 << 22


class _Lease(np.ndarray):
    """The memory of one result. It returns to the pool when the last array that uses it is gone."""


class Pool:
    """Blocks of memory waiting for reuse."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._blocks: list[np.ndarray] = []
        # Finalizers may run at any point, even inside `empty` on the same thread.
        self._lock = threading.RLock()

    def empty(self, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
        """As :func:`numpy.empty`, in memory that may have been used before."""
        size = math.prod(shape) * dtype.itemsize
        if not SMALLEST <= size <= self._limit:
            return np.empty(shape, dtype)
        block = self._take(size)
        lease = (np.empty(size, np.uint8) if block is None else block).view(_Lease)
        owner = lease.base
        weakref.finalize(lease, self._give_back, owner).atexit = False
        return np.ndarray(shape, dtype, buffer=lease)

    def _take(self, size: int) -> np.ndarray | None:
        with self._lock:
            fitting = [block for block in self._blocks if size <= block.size <= size + size // 4]
            if not fitting:
                return None
            best = min(fitting, key=lambda block: block.size)
            self._blocks = [block for block in self._blocks if block is not best]
            return best

    def _give_back(self, block: np.ndarray) -> None:
        with self._lock:
            self._blocks.append(block)
            while sum(block.size for block in self._blocks) > self._limit:
                self._blocks.pop(0)

    def waiting(self) -> int:
        """Bytes waiting for reuse."""
        with self._lock:
            return sum(block.size for block in self._blocks)


def _limit() -> int:
    text = os.environ.get("ARGAND_POOL_BYTES", str(1 << 30))
    if not text.isdecimal():
        raise ValueError(f"ARGAND_POOL_BYTES: expected a number of bytes, got {text!r}")
    return int(text)


POOL = Pool(_limit())
