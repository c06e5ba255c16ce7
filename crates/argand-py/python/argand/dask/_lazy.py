"""Methods of estimators that Dask calls, block by block."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import sys
from functools import lru_cache
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.layers import ArrayBlockIdDep

from .. import _argand
from .._arguments import threads_of
from .._gpu import is_on_gpu
from ._tables import aligned, as_array, check_block, naming_block


def call_on_blocks(estimator: Any, method: str, X: Any, row_shape: tuple[int, ...], dtype: Any, **keywords: Any) -> Any:
    """The results of a method for every row, lazily: ``row_shape`` is that of the result for a row."""
    several = isinstance(X, (list, tuple))
    tables = [as_array(table, f"X[{i}]") for i, table in enumerate(X)] if several else [as_array(X)]
    first = tables[0]
    tables = [aligned(table, first.chunks[0], f"X[{i}]", "the first table") for i, table in enumerate(tables)]
    # Features are dense, whatever the rows are.
    kind = first._meta if is_on_gpu(first._meta) else np.empty(0)
    return da.blockwise(
        _call,
        "ij"[: 1 + len(row_shape)],
        ArrayBlockIdDep(first.chunks[:1]),
        "i",
        *(part for table in tables for part in (table, "ij")),
        shipped=ship(estimator),
        method=method,
        keywords=keywords,
        types=[table.dtype for table in tables],
        several=several,
        empty=(row_shape, dtype),
        on_gpu=is_on_gpu(first._meta),
        dtype=dtype,
        adjust_chunks={"j": row_shape},
        align_arrays=False,
        meta=np.empty_like(kind, shape=(0,) * (1 + len(row_shape)), dtype=dtype),
        token=method,
    )


def _call(
    block_id: tuple[int],
    *blocks: Any,
    shipped: bytes,
    method: str,
    keywords: dict[str, Any],
    types: list[np.dtype],
    several: bool,
    empty: tuple[tuple[int, ...], Any],
    on_gpu: bool,
) -> Any:
    row_shape, dtype = empty
    if not row_shape:
        # Dask gives lists of all blocks of some rows, of which there is one.
        blocks = tuple(block for (block,) in blocks)
    with naming_block(block_id[0]):
        for block, expected in zip(blocks, types):
            check_block(block, expected, on_gpu)
        rows = blocks[0].shape[0]
        for i, block in enumerate(blocks):
            if block.shape[0] != rows:
                raise ValueError(f"X[{i}]: expected {rows} rows, as the first table, got {block.shape[0]}")
        if not rows:
            return np.empty_like(blocks[0] if on_gpu else np.empty(0), shape=(0, *row_shape), dtype=dtype)
        return getattr(unpack(shipped), method)(list(blocks) if several else blocks[0], **keywords)


def ship(estimator: Any) -> Any:
    """An estimator on its way to the workers: once to each, and without what only further learning needs."""
    copied = copy.copy(estimator)
    # Blocks have no names of columns; those of the collection were compared.
    vars(copied).pop("feature_names_in_", None)
    if hasattr(copied, "_gram"):
        copied._gram = None
    shipped = pickle.dumps(copied)
    return dask.delayed(shipped, name=f"argand-{tokenize(shipped)}", traverse=False)


@lru_cache(maxsize=2)
def unpack(shipped: bytes) -> Any:
    """The estimator: one for all blocks of a process. Its numbers are drawn once, its memory is used again."""
    estimator = pickle.loads(shipped)
    estimator._scratch = _argand.Scratch()
    estimator.n_jobs = threads_here(estimator.n_jobs)
    return estimator


def threads_here(n_jobs: Any) -> int | None:
    """As many threads as Dask gives to this process, or ``n_jobs`` if those are fewer; all its tasks share them."""
    known = (threads for threads in (threads_of(n_jobs), _threads_of_engine()) if threads)
    return min(known, default=None)


def _threads_of_engine() -> int | None:
    distributed = sys.modules.get("distributed")
    if distributed is not None:
        try:
            return distributed.get_worker().state.nthreads
        except ValueError:
            # Not on a worker of a cluster, but with one of Dask's own schedulers: threads, or processes of one thread.
            pass
    return dask.config.get("num_workers", None) if multiprocessing.parent_process() is None else 1
