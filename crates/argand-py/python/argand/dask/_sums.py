"""Sums over the rows of Dask collections, block by block where the blocks lie.

Blocks are summed up in runs of neighbours, one block after the other; the runs are added up in a binary tree. Both
depend on the number of blocks alone, so the order of sums does, too. A run is a chain of tasks, each of which computes
its block and adds it to the sums so far: the sums of a run are all that stays in memory, and all that is sent.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import scipy.sparse as sp
from dask.base import tokenize
from dask.core import get_dependencies
from dask.delayed import Delayed
from sklearn.utils.validation import validate_data

from .. import _argand
from .._arguments import check_table, numpy_labels
from ._lazy import ship, unpack
from ._tables import (
    aligned,
    as_array,
    check_block,
    expected_columns,
    in_single_precision,
    is_frame,
    naming_block,
    numbers,
)

# Enough for hundreds of workers to end together; few enough that sums take less of the network than rows.
MOST_RUNS = 1024

# Several blocks are summed up before anything is sent: few of them, and only if there still are so many runs,
# as workers wait for the last one.
FEW_RUNS = 50
LONG_RUN = 4

# A block that takes more tasks than this is left to the scheduler, which may have them done at the same time.
MOST_FUSED = 32


def labels_of(y: Any) -> da.Array:
    """Targets as an array."""
    if is_frame(y):
        columns = () if y.ndim == 1 else (len(y._meta.columns),)
        # Their type is looked at in the blocks.
        return y.map_partitions(_values, meta=np.empty((0, *columns), object), enforce_metadata=False)
    if not isinstance(y, da.Array):
        if dask.is_dask_collection(y):
            raise TypeError(f"y: expected a Dask array, series or data frame, got {type(y).__name__}")
        y = da.from_array(np.asarray(y), chunks=-1)
    _check_dimensions(y)
    if y.ndim == 2 and np.isnan(y.shape[1]):
        raise ValueError("y: expected a known number of columns; see dask.array.Array.compute_chunk_sizes")
    return y.rechunk({1: -1}) if y.ndim == 2 and y.numblocks[1] > 1 else y


def _check_dimensions(y: Any) -> None:
    if y.ndim not in (1, 2):
        raise ValueError(f"y: expected 1 or 2 dimensions, got {y.ndim}")


def _values(partition: Any, partition_info: Any = None) -> np.ndarray:
    with naming_block(partition_info["number"]):
        try:
            return numpy_labels(partition)
        except (TypeError, ValueError) as error:
            raise type(error)(f"y: {error}") from None


def pairs_of(X: Any, y: Any) -> da.Array:
    """Rows and their targets, a pair of arrays for every block. What both are made of is computed once.

    The type of rows is that of the field X.
    """
    if is_frame(X) and is_frame(y):
        if X.npartitions != y.npartitions:
            raise ValueError(f"y: expected {X.npartitions} blocks of rows, as X, got {y.npartitions}")
        # Models compute in float32.
        expected = in_single_precision(expected_columns(X))
        meta = _no_pairs(expected["dtype"])
        # Dask may read some files together, but those of X and y alike.
        return X.map_partitions(
            _pair_of_partitions, y, **expected, meta=meta, align_dataframes=False, enforce_metadata=False
        )
    table, labels = as_array(X), labels_of(y)
    rows = table.chunks[0]
    if any(map(np.isnan, rows)) and not dask.is_dask_collection(y):
        raise TypeError("y: expected a Dask array, series or data frame, as X does not know the rows of its blocks")
    labels = aligned(labels, rows, "y", "X")
    meta = _no_pairs(table.dtype)
    # The result has all dimensions: along others, Dask puts blocks together, whatever they are.
    result, index = "ijk"[: 1 + labels.ndim], "ik"[: labels.ndim]
    return da.blockwise(_pair, result, table, "ij", labels, index, dtype=meta.dtype, meta=meta, align_arrays=False)


def _no_pairs(dtype: np.dtype) -> np.ndarray:
    return np.empty(0, [("X", dtype), ("y", object)])


def _pair(x: Any, y: Any) -> tuple[Any, Any]:
    return x, y


def _pair_of_partitions(x: Any, y: Any, partition_info: Any = None, **expected: Any) -> tuple[Any, Any]:
    return numbers(x, **expected, partition_info=partition_info), _values(y, partition_info)


def classes_of(labels: da.Array) -> np.ndarray:
    """All different labels."""
    blocks = labels.to_delayed().ravel()
    found = dask.compute(*(_classes(block, number) for number, block in enumerate(blocks)))
    found = {number: some for number, some in enumerate(found) if len(some)}
    first = next(iter(found.values()), np.empty(0))
    for number, some in found.items():
        # NumPy would make text of numbers, and one float64 of two integers.
        if some.dtype.kind != first.dtype.kind or not _have_order(first[0], some[0]):
            kinds = " and ".join(type(label).__name__ for label in (first[0], some[0]))
            raise ValueError(f"block {number}: y: expected classes of one type, got {kinds}")
    return np.unique(np.concatenate([first, *found.values()]))


def _have_order(label: Any, other: Any) -> bool:
    """Whether labels can be sorted: those in arrays of objects may be anything."""
    try:
        return bool(label <= other or other <= label)
    except TypeError:
        return False


@dask.delayed
def _classes(block: Any, number: int) -> np.ndarray:
    with naming_block(number):
        block = _labels_of_block(block)
        try:
            return np.unique(_complete(block))
        except TypeError:
            kinds = sorted({type(label).__name__ for label in block.ravel()})
            raise ValueError(f"y: expected classes of one type, got {' and '.join(kinds)}") from None


def _labels_of_block(block: Any) -> np.ndarray:
    """A block of targets as an array."""
    if not hasattr(block, "dtype") or sp.issparse(block):
        raise TypeError(f"y: expected an array of NumPy, got {type(block).__name__}")
    _check_dimensions(block)
    return np.asarray(block)


def _complete(labels: np.ndarray) -> np.ndarray:
    """Labels, if none is missing or infinite."""
    if labels.dtype.kind == "f":
        missing = np.argwhere(~np.isfinite(labels))
    else:
        missing = np.argwhere((labels != labels) | (np.equal(labels, None) if labels.dtype == object else False))
    if len(missing):
        raise ValueError(f"y: row {missing[0, 0]} is {labels[tuple(missing[0])]}")
    return labels


def sum_up(model: Any, sketch: _argand.Sketch, pairs: da.Array) -> _argand.Gram:
    """The sums of all rows and their targets."""
    # Sums that are too large are refused before any row is read.
    model._no_sums(sketch)
    model = copy.copy(model)
    model._sketch = sketch
    shipped = ship(model)
    # What belongs together is put together below.
    blocks = pairs.to_delayed(optimize_graph=False).ravel()
    token = tokenize(shipped.key, pairs.name)
    blocks_each = blocks_of_a_run(len(blocks))
    runs, steps = [], []
    for start in range(0, len(blocks), blocks_each):
        sums = None
        for number in range(start, min(start + blocks_each, len(blocks))):
            # First blocks have a name of their own, so that the scheduler does not start all runs at once.
            steps.append((f"argand-{'sums' if sums is None else 'more-sums'}-{token}", number))
            sums = _add_block(sums, shipped, blocks[number], pairs.dtype["X"], number, dask_key_name=steps[-1])
        runs.append(sums)
    while len(runs) > 1:
        neighbours = [runs[at : at + 2] for at in range(0, len(runs), 2)]
        key = f"argand-merged-sums-{token}"
        runs = [
            _merge(shipped, *both, dask_key_name=(key, len(runs), at)) if len(both) == 2 else both[0]
            for at, both in enumerate(neighbours)
        ]
    (gram,) = dask.compute(_fused(runs[0], steps))
    return gram


def blocks_of_a_run(blocks: int) -> int:
    """How many neighbours are summed up one after the other: more of them send less, and keep fewer workers busy."""
    return max(1, min(LONG_RUN, blocks // FEW_RUNS), -(-blocks // MOST_RUNS))


@dask.delayed
def _add_block(
    before: _argand.Gram | None, shipped: bytes, block: tuple[Any, Any], dtype: np.dtype, number: int
) -> _argand.Gram:
    model, (x, y) = unpack(shipped), block
    with naming_block(number):
        check_block(x, dtype, on_gpu=False)
        y = _labels_of_block(y)
        if y.shape[0] != x.shape[0]:
            raise ValueError(f"y: expected {x.shape[0]} rows, as X, got {y.shape[0]}")
        if not x.shape[0]:
            return before or model._no_sums(model._sketch)
        table = check_table(x, partial(validate_data, model, reset=False), finite=False)
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        labels = model._check_labels(_complete(y), reset=False, classes=None)
        sums = model._sum_up(model._sketch, table, labels)
    if before is not None:
        sums.follow(before, model.n_jobs)
    return sums


@dask.delayed
def _merge(shipped: bytes, sums: _argand.Gram, others: _argand.Gram) -> _argand.Gram:
    return sums.merged(others, unpack(shipped).n_jobs)


def _fused(total: Delayed, steps: list[Any]) -> Delayed:
    """The same graph, in which a step computes its block itself, unless others need it: blocks are not sent."""
    graph = dict(total.__dask_graph__())
    needs = {key: get_dependencies(graph, key) for key in graph}
    users: dict[Any, set[Any]] = {}
    for key, needed in needs.items():
        for other in needed:
            users.setdefault(other, set()).add(key)
    # What lies on a worker and tasks of old libraries stay what they are.
    can_move = {key for key, node in graph.items() if getattr(node, "key", None) == key} - set(steps)
    for step in steps:
        own = [step]
        # Grows while it is walked.
        for key in own:
            own += [other for other in (needs[key] & can_move) - set(own) if users[other] <= set(own)]
            if len(own) > MOST_FUSED:
                break
        else:
            graph[step] = graph[step].fuse(*(graph.pop(key) for key in reversed(own)))
    return Delayed(total.key, graph)
