"""Dask collections as arrays whose blocks hold whole rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import validate_data

from .._arguments import NotNumbersError, check_table
from .._gpu import is_on_gpu


class DaskTable:
    """Rows of a Dask array or data frame, of which only what is asked for is computed."""

    def __init__(self, array: da.Array) -> None:
        self.array = array
        self.dtype = array.dtype
        # The number of rows may not be known; ``rows`` finds out.
        self.shape = array.shape

    @classmethod
    def checked(cls, estimator: Any, X: Any, *, reset: bool) -> DaskTable:
        """The table, if its columns are what the estimator expects; ``reset`` makes them so."""
        array = as_array(X)
        if is_frame(X):
            validate_data(estimator, X._meta, reset=reset, skip_check_array=True)
        else:
            # Numbers of this kind: blocks are checked where they are.
            some = np.zeros((2, array.shape[1]), array.dtype)
            check_table(some, partial(validate_data, estimator, reset=reset))
        return cls(array)

    @cached_property
    def lengths(self) -> list[int]:
        """The rows of every block."""
        known = self.array.chunks[0]
        if not any(map(np.isnan, known)):
            return list(known)
        on_gpu = is_on_gpu(self.array._meta)
        return list(dask.compute(*(_length(block, i, self.dtype, on_gpu) for i, block in enumerate(self.blocks))))

    @property
    def blocks(self) -> list[Any]:
        return list(self.array.to_delayed().ravel())

    @property
    def rows(self) -> int:
        """Their number, of which there is at least one."""
        if not sum(self.lengths):
            raise ValueError("X: expected at least 1 row, got 0")
        return sum(self.lengths)

    @property
    def precision(self) -> np.dtype:
        """The type of features: on a GPU that of the rows."""
        dtype = self.dtype.newbyteorder("=")
        return dtype if is_on_gpu(self.array._meta) or dtype == np.float32 else np.dtype(np.float64)

    @property
    def looked_at(self) -> Iterator[Any]:
        """The blocks as tables in memory, later, if they are what the array says."""
        on_gpu, columns = is_on_gpu(self.array._meta), self.shape[1]
        for number, (block, rows) in enumerate(zip(self.blocks, self.lengths)):
            yield partial(_look, block, number, (rows, columns), self.dtype, on_gpu)

    def __getitem__(self, rows: np.ndarray) -> Any:
        """Some rows, in memory, by indices that rise."""
        starts = np.cumsum([0, *self.lengths])
        bounds = np.searchsorted(rows, starts)
        taken = [
            look(_take, rows=rows[low:high] - start)
            for look, start, low, high in zip(self.looked_at, starts, bounds, bounds[1:])
            if low < high
        ]
        taken = dask.compute(*taken)
        return sp.vstack(taken, "csr") if any(map(sp.issparse, taken)) else np.concatenate(taken)

    def moments(self) -> tuple[float, float]:
        """The mean of all numbers and that of their squares."""
        numbers = self.rows * self.shape[1]
        seen = [found for found in dask.compute(*(look(_moments) for look in self.looked_at)) if found]
        sums, squares = zip(*seen)
        # The exact sum of blocks, rounded once.
        return math.fsum(sums) / numbers, math.fsum(squares) / numbers


@dask.delayed
def _length(block: Any, number: int, dtype: np.dtype, on_gpu: bool) -> int:
    with naming_block(number):
        check_block(block, dtype, on_gpu)
    return block.shape[0]


@dask.delayed
def _look(
    block: Any, number: int, shape: tuple[int, int], dtype: np.dtype, on_gpu: bool, see: Any, **keywords: Any
) -> Any:
    """What is seen of a block that has rows."""
    with naming_block(number):
        check_block(block, dtype, on_gpu)
        for what, expected, found in zip(("rows", "columns"), shape, block.shape):
            if found != expected:
                raise ValueError(f"X: expected {expected} {what}, as the array says, got {found}")
        return see(check_table(block, finite=False), **keywords) if block.shape[0] else None


def _take(table: Any, rows: np.ndarray) -> Any:
    return finite(table[rows], rows)


def _moments(table: Any) -> tuple[float, float]:
    finite(table)
    values = np.asarray(table.data if sp.issparse(table) else table, np.float64)
    return float(values.sum()), float(np.square(values).sum())


def finite(table: Any, rows: np.ndarray | None = None) -> Any:
    """The table, if its numbers are finite; the message counts rows as ``rows`` does."""
    coordinates = table.tocoo() if sp.issparse(table) else None
    bad = np.flatnonzero(~np.isfinite(table.data)) if coordinates is not None else np.argwhere(~np.isfinite(table))
    if len(bad):
        row, column = (coordinates.row[bad[0]], coordinates.col[bad[0]]) if coordinates is not None else bad[0]
        value = "NaN" if np.isnan(table[row, column]) else table[row, column]
        row = row if rows is None else rows[row]
        raise ValueError(f"X: row {row}, column {column} is {value}; only finite numbers can be sketched")
    return table


@contextmanager
def naming_block(number: int) -> Iterator[None]:
    """Say in errors which block they come from."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = type(error) if type(error) in (NotNumbersError, TypeError) else ValueError
        raise kind(f"block {number}: {error}") from error


def is_frame(X: Any) -> bool:
    """Whether a collection is a data frame or a series."""
    # Scalars and indices of data frames have partitions, too.
    return hasattr(X, "map_partitions") and hasattr(getattr(X, "_meta", None), "dtypes")


def as_array(X: Any, name: str = "X") -> da.Array:
    """A table as a Dask array whose blocks have all columns."""
    if is_frame(X) and X.ndim == 2:
        expected = expected_columns(X, name)
        meta = np.empty((0, len(X._meta.columns)), expected["dtype"])
        return X.map_partitions(numbers, **expected, meta=meta, enforce_metadata=False)
    if not isinstance(X, da.Array):
        raise TypeError(f"{name}: expected a Dask array or data frame, got {type(X).__name__}")
    if X.ndim != 2:
        raise ValueError(f"{name}: expected 2 dimensions, got {X.ndim}")
    if np.isnan(X.shape[1]):
        raise ValueError(f"{name}: expected a known number of columns; see dask.array.Array.compute_chunk_sizes")
    return X.rechunk({1: -1}) if X.numblocks[1] > 1 else X


def aligned(array: da.Array, rows: tuple[int, ...], name: str, other: str) -> da.Array:
    """The array in these blocks of rows. Where rows are not counted, blocks must match one by one."""
    if any(map(np.isnan, (*rows, *array.chunks[0]))):
        if array.numblocks[0] != len(rows):
            raise ValueError(f"{name}: expected {len(rows)} blocks of rows, as {other}, got {array.numblocks[0]}")
        return array
    if array.shape[0] != sum(rows):
        raise ValueError(f"{name}: expected {sum(rows)} rows, as {other}, got {array.shape[0]}")
    return array.rechunk({0: rows})


def expected_columns(X: Any, name: str = "X") -> dict[str, Any]:
    """The names and types of the columns of a data frame, all of them numbers, and the type of these as one array."""
    from pandas.api.types import is_numeric_dtype

    types = {str(column): str(dtype) for column, dtype in X._meta.dtypes.items()}
    for column, dtype in X._meta.dtypes.items():
        if not is_numeric_dtype(dtype) or dtype.kind == "c":
            raise NotNumbersError(f"{name}: expected numbers, got {dtype} in the column {column!r}")
    # As scikit-learn has it for columns in memory.
    dtype = np.dtype(np.float32 if _common_type(np.bool_, types) == np.float32 else np.float64)
    return {"name": name, "types": types, "dtype": dtype}


def in_single_precision(expected: dict[str, Any]) -> dict[str, Any]:
    """Expected columns whose numbers become float32, if all of them are the same in it: half the memory."""
    return {**expected, "dtype": _common_type(np.float32, expected["types"])}


def _common_type(least: Any, types: dict[str, str]) -> np.dtype:
    """The type of NumPy that holds numbers of the least type and all columns."""
    # Names of pandas' own types (Int8, say), are no names for NumPy.
    kinds = [np.dtype(kind) if kind in np.sctypeDict else np.float64 for kind in set(types.values())]
    return np.result_type(least, *kinds)


def numbers(partition: Any, name: str, types: dict[str, str], dtype: np.dtype, partition_info: Any = None) -> Any:
    """A partition as an array, if it has the expected columns."""
    with naming_block(partition_info["number"]):
        found = {str(column): str(found) for column, found in partition.dtypes.items()}
        if list(found) != list(types):
            raise ValueError(f"{name}: expected the columns {list(types)}, got {list(found)}")
        for column, expected in types.items():
            if found[column] != expected:
                raise NotNumbersError(f"{name}: expected {expected} in the column {column!r}, got {found[column]}")
        # Of one type of NumPy, this is a view, and numbers are copied once.
        one = len(set(types.values())) == 1 and isinstance(partition.dtypes.iloc[0], np.dtype)
        return np.ascontiguousarray(partition.to_numpy() if one else partition.to_numpy(dtype, na_value=np.nan), dtype)


def check_block(block: Any, expected: np.dtype, on_gpu: bool) -> None:
    """Refuse a block that is not what its array says: features would not be, either."""
    if not hasattr(block, "dtype"):
        raise TypeError(f"X: expected an array, got {type(block).__name__}")
    if block.ndim != 2:
        raise ValueError(f"X: expected 2 dimensions, got {block.ndim}")
    if block.dtype != expected:
        raise NotNumbersError(f"X: expected {expected}, as the array says, got {block.dtype}")
    if is_on_gpu(block) != on_gpu:
        raise TypeError(f"X: expected an array {'on a GPU' if on_gpu else 'of NumPy or SciPy'}, got {type(block)}")
