"""Bring recorded sketches to the host and into shards; from a GPU while the next passes run."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from . import _files

# Page-locked memory for sketches on their way; whoever records waits when there are more.
_ON_THEIR_WAY = 1 << 28


class Writer:
    """Writes the examples of one process from a first one on.

    Sketches of the processor are written at once. Those of a GPU are copied without waiting for it; a thread looks at
    them when they have arrived and writes shards that are full. What goes wrong there is raised by the next call, and
    nothing behind it is kept: ``end`` is the number of the next example.
    """

    def __init__(self, folder: Path, layers: Mapping[str, int], shard_rows: int, first: int) -> None:
        self._folder, self._layers, self._shard_rows = folder, layers, shard_rows
        # What was written, by the first examples of shards.
        self._session: dict[int, _files.Shard] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: deque[tuple[Future[None], int]] = deque()
        self._failed = False
        with _files.alone(folder):
            self._resume(first)

    def take_back(self, example: int) -> bool:
        """Remove what was recorded from this example on, of shards and of what waits; returns whether of shards."""
        with contextlib.suppress(Exception):
            self.wait()
        removed = False
        with _files.alone(self._folder):
            there = _files.shards_of(self._folder)
            # The last first: whenever this is interrupted, no example is missing in between.
            for shard in sorted(self._session.values(), reverse=True):
                if shard not in there or shard.end <= example:
                    # Somebody else went on with it, or it stays.
                    continue
                removed = True
                del self._session[shard.first]
                self._first, self._rows, self._written = shard.first, [], 0
                if shard.first >= example:
                    shard.remove()
                else:
                    rows = np.array(shard.read(sum(self._layers.values()))[: example - shard.first])
                    self._session[shard.first] = _files.write_shard(self._folder, shard.first, rows)
                    self._rows, self._written = [rows], len(rows)
        if self._rows:
            self._rows = [np.concatenate(self._rows)[: max(0, example - self._first)]]
        return removed

    def _resume(self, first: int) -> None:
        """Go on behind the examples that follow ``first``; a short last shard is filled."""
        self._first, last = first, None
        for shard in _files.shards_of(self._folder):
            if shard.first < first < shard.end:
                raise ValueError(
                    f"first: example {first} is in {shard.path().name}, which begins at {shard.first}; begin there, or "
                    f"behind its end, {shard.end}"
                )
            if shard.first == self._first:
                self._first, last = shard.end, shard
        self._rows: list[np.ndarray] = []
        self._written = 0
        if last is not None and last.rows < self._shard_rows:
            self._rows, self._written = [np.array(last.read(sum(self._layers.values())))], last.rows
            self._first = last.first
        # Shards end at this number and multiples of their rows behind it.
        self._origin = self._first

    @property
    def end(self) -> int:
        """The number of the next example."""
        return self._first + sum(map(len, self._rows))

    def fills_a_shard(self, begin: int, end: int) -> bool:
        """Whether one of the examples in between is the last of a shard."""
        return (end - self._origin) // self._shard_rows > (begin - self._origin) // self._shard_rows

    def add(self, rows: Tensor) -> None:
        """Take the next examples."""
        if not rows.is_cuda:
            self._keep(rows.numpy())
            return
        size = 4 * rows.numel()
        while self._under_way and (self._under_way[0][0].done() or self._bytes_under_way() + size > _ON_THEIR_WAY):
            self._wait_for_one()
        host = torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True)
        with torch.cuda.device(rows.device):
            host.copy_(rows, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
        self._expect(host, arrived)

    def _expect(self, host: Tensor, arrived: torch.cuda.Event) -> None:
        """Leave examples that are on their way to the thread."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "argand-attribution")
        self._under_way.append((self._pool.submit(self._receive, host, arrived), 4 * host.numel()))

    def wait(self) -> None:
        """Wait for everything that is on its way."""
        while self._under_way:
            self._wait_for_one()

    def flush(self) -> None:
        """Write everything, the last examples in a shard that may be short; it is filled when there are more."""
        self.wait()
        rows = [rows for rows in self._rows if len(rows)]
        if rows:
            everything = np.concatenate(rows)
            first = self._first
            self._write(everything)
            self._first, self._rows, self._written = first, [everything], len(everything)

    def _bytes_under_way(self) -> int:
        return sum(size for _, size in self._under_way)

    def _wait_for_one(self) -> None:
        try:
            self._under_way.popleft()[0].result()
        except BaseException:
            # Nothing behind a failure is kept.
            while self._under_way:
                self._under_way.popleft()[0].result()
            self._failed = False
            raise

    def _receive(self, host: Tensor, arrived: torch.cuda.Event) -> None:
        if self._failed:
            return
        try:
            arrived.synchronize()
            # Page-locked memory is used again.
            self._keep(host.numpy().copy())
        except BaseException:
            self._failed = True
            raise

    def _keep(self, rows: np.ndarray) -> None:
        """Look at examples, and write shards that are full."""
        if not np.isfinite(rows).all():
            example, column = np.argwhere(~np.isfinite(rows))[0]
            ends = np.cumsum([*self._layers.values()])
            name = [*self._layers][int(np.searchsorted(ends, column, side="right"))]
            raise ValueError(
                f"example {self.end + example}: the gradient of layer {name!r} is NaN or infinite; look at its loss; "
                f"the store goes on at example {self.end}"
            )
        self._rows.append(rows)
        while self.end - self._first >= self._shard_rows:
            everything = np.concatenate(self._rows)
            self._write(everything[: self._shard_rows])
            self._rows = [everything[self._shard_rows :]]

    def _write(self, rows: np.ndarray) -> None:
        with _files.alone(self._folder):
            for shard in _files.shards_of(self._folder):
                # A short shard of ours is filled; somebody else may have done so in the meantime.
                ours = shard.first == self._first and shard.rows == self._written
                if not ours and shard.first < self._first + len(rows) and self._first < shard.end:
                    raise ValueError(
                        f"example {max(shard.first, self._first)} was recorded already, in {shard.path()}; give each "
                        "process examples of its own with first="
                    )
            shard = _files.write_shard(self._folder, self._first, rows)
        self._session[shard.first] = shard
        self._first, self._written = shard.end, 0
