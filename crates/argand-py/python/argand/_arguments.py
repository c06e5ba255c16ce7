"""Convert users' arguments for the compiled part."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from numbers import Integral, Real
from typing import Any

import joblib
import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array, check_random_state

PRECISIONS = [np.float64, np.float32]

# Statistics of all pairs use at most this many rows; larger tables are sampled at random.
SAMPLED_ROWS = 4096

# More threads only cost memory; they never change a result.
MOST_THREADS = 512


class NotNumbersError(TypeError, ValueError):
    """A table does not hold real numbers: a ``TypeError`` in Python, a ``ValueError`` in scikit-learn."""


def integer(name: str, value: Any) -> int:
    """An integer of at least 0, as the compiled part expects."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name}: expected an integer, got {value!r}")
    value = int(value)
    if not 0 <= value < 2**63:
        raise ValueError(f"{name}: expected 0 to 2**63 - 1, got {value}")
    return value


def number(name: str, value: Any) -> float:
    """A real number."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name}: expected a number, got {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name}: expected a number within the range of float64, got a larger one") from None


def text(name: str, value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected a string, got {value!r}")
    return value


def seed_of(random_state: Any) -> int:
    """An integer is the seed itself, as in a spec and on the command line; anything else draws one."""
    if isinstance(random_state, Integral) and not isinstance(random_state, bool):
        if not 0 <= int(random_state) < 2**64:
            raise ValueError(f"random_state: expected 0 to 2**64 - 1, got {random_state}")
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**32))
    try:
        return int(check_random_state(random_state).randint(2**32, dtype=np.uint64))
    except ValueError as error:
        raise ValueError(f"random_state: {error}") from None


def all_or_nothing(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that changes an estimator completely or, when it fails or is interrupted, not at all."""

    @wraps(method)
    def guarded(self: Any, *arguments: Any, **keywords: Any) -> Any:
        before = dict(vars(self))
        try:
            return method(self, *arguments, **keywords)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return guarded


def threads_of(n_jobs: Any) -> int | None:
    """The number of threads; None means one per core, and in a worker of joblib its share of the cores."""
    if n_jobs is None:
        return share_of_worker()
    if n_jobs == -1:
        return None
    if not isinstance(n_jobs, Integral) or isinstance(n_jobs, bool):
        raise TypeError(f"n_jobs: expected an integer or None, got {n_jobs!r}")
    if n_jobs == 0:
        raise ValueError("n_jobs: expected a number of threads, -1 or None for all cores, got 0")
    return min(int(n_jobs), MOST_THREADS) if int(n_jobs) > 0 else max(1, joblib.cpu_count() + 1 + int(n_jobs))


def share_of_worker() -> int | None:
    """The threads that joblib leaves to each of its workers; None outside of them."""
    backend, _ = joblib.parallel.get_active_backend()
    if not backend.nesting_level:
        return None
    # Set by joblib for the processes that it starts. Workers that are threads share one process, and all of its cores.
    share = os.environ.get("OMP_NUM_THREADS", "")
    return min(max(1, int(share)), MOST_THREADS) if re.fullmatch("[0-9]{1,9}", share) else 1


def comes_in_pairs(method: str) -> bool:
    """Whether the real features of a method are pairs: real and imaginary part, or cosine and sine."""
    return method in ("srf", "rff", "orf", "sorf") or (
        "ctr-" in method and not method.startswith(("craft-", "maclaurin-"))
    )


def looks_at_rows(method: str) -> bool:
    """Whether a method is fitted to rows before it is drawn."""
    return method == "nystrom" or method.startswith("maclaurin-")


def multiplies_projections(method: str) -> bool:
    """Whether a method is a product of projections. Those run on a GPU, and are linear in each factor."""
    return not looks_at_rows(method) and method not in ("srf", "rff", "orf", "sorf", "exact")


def is_complex(method: str) -> bool:
    """Whether the features of a method are complex numbers."""
    return "complex-" in method


def is_dask(X: Any) -> bool:
    """Whether X is a Dask collection, or a list that has one. Whoever has one has imported Dask."""
    dask = sys.modules.get("dask")
    tables = X if isinstance(X, (list, tuple)) else [X]
    return dask is not None and any(dask.is_dask_collection(table) for table in tables)


def is_list_of_tables(X: Any) -> bool:
    """Whether X has one table per factor, rather than being one table (perhaps a list of rows)."""
    return isinstance(X, (list, tuple)) and len(X) > 0 and all(_dimensions(table) == 2 for table in X)


def _dimensions(table: Any) -> int:
    shape = getattr(table, "shape", None)
    if shape is not None:
        return len(shape)
    is_row = isinstance(table, (list, tuple)) and len(table) > 0
    return 2 if is_row and isinstance(table[0], (list, tuple, np.ndarray)) and len(table[0]) > 0 else 1


def check_table(X: Any, check: Callable[..., Any] = check_array, name: str = "X", *, finite: bool = True) -> Any:
    """Check a table as scikit-learn does; return an array or CSR matrix of float64 or float32.

    ``finite=False`` leaves the check for NaN and infinity to the compiled part.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(X, torch.Tensor) and X.layout == torch.strided and not X.is_meta:
        X = X.detach().resolve_conj().resolve_neg()
        X = (X.float() if X.dtype in (torch.float16, torch.bfloat16) else X).numpy()
    dtype = getattr(X, "dtype", None)
    if isinstance(dtype, np.dtype):
        if dtype.kind == "c":
            raise NotNumbersError(f"{name}: Complex data not supported, got {dtype}")
        if dtype.kind not in "fiubO":
            raise NotNumbersError(f"{name}: expected numbers, got {dtype}")
        if not sp.issparse(X) and not dtype.isnative:
            X = X.astype(dtype.newbyteorder("="))
    if sp.issparse(X):
        _check_indices(X, name)
    try:
        return check(X, accept_sparse="csr", dtype=PRECISIONS, ensure_all_finite=finite)
    except TypeError as error:
        raise NotNumbersError(f"{name}: {error}") from None
    except ValueError as error:
        if "Complex data" in str(error) or "could not convert" in str(error):
            raise NotNumbersError(f"{name}: {error}") from None
        raise


def numpy_labels(y: Any) -> np.ndarray:
    """A series, array or data frame of pandas in types of NumPy: NaN where a label is missing."""
    if y.ndim == 2:
        y = y.copy(deep=False)
        for place, dtype in enumerate(y.dtypes):
            if _lies_encoded(dtype):
                y.isetitem(place, np.asarray(y.iloc[:, place]))
    elif _lies_encoded(y.dtype):
        y = sys.modules["pandas"].Series(np.asarray(y))
    return y.to_numpy(na_value=np.nan)


def _lies_encoded(dtype: Any) -> bool:
    """Whether pandas would look for a code of NaN, also where nothing is missing: integers have none."""
    pandas = sys.modules["pandas"]
    return isinstance(dtype, (pandas.CategoricalDtype, pandas.SparseDtype))


def _check_indices(X: Any, name: str) -> None:
    """Check indices: SciPy trusts them, and would read or write beyond its arrays."""
    if X.format in ("csr", "csc", "bsr"):
        major, minor = X.shape[::-1] if X.format == "csc" else X.shape
        if X.format == "bsr":
            major, minor = major // X.blocksize[0], minor // X.blocksize[1]
        starts = X.indptr
        stored = min(len(X.indices), len(X.data))
        if len(starts) != major + 1 or starts[0] != 0 or not _rises(starts) or starts[-1] > stored:
            raise ValueError(f"{name}.indptr: expected {major + 1} numbers that rise from 0 to at most {stored}")
        _check_range(f"{name}.indices", X.indices[: starts[-1]], minor)
    if X.format == "coo":
        _check_range(f"{name}.row", X.row, X.shape[0])
        _check_range(f"{name}.col", X.col, X.shape[1])


def _rises(starts: np.ndarray) -> bool:
    # Piece by piece: a comparison of all rows could need too much memory.
    pieces = (starts[at : at + 2**14 + 1] for at in range(0, len(starts) - 1, 2**14))
    return all((piece[1:] >= piece[:-1]).all() for piece in pieces)


def _check_range(name: str, indices: np.ndarray, size: int) -> None:
    if len(indices) and (indices.min() < 0 or indices.max() >= size):
        bad = indices.min() if indices.min() < 0 else indices.max()
        raise ValueError(f"{name}: expected indices from 0 to {size - 1}, got {bad}")


def native(table: Any, dtype: Any) -> Any:
    """A checked table as the compiled part reads it, copied only if its layout or precision differs."""
    if sp.issparse(table):
        indices = [_unsigned(table.indptr), _unsigned(table.indices)]
        return (*indices, np.require(table.data, dtype, ["C", "A"]), table.shape[1])
    return np.require(table, dtype, ["C", "A"])


def _unsigned(indices: np.ndarray) -> np.ndarray:
    """View indices as unsigned; negative ones become large, which is also out of range."""
    if indices.dtype.itemsize not in (4, 8):
        indices = indices.astype(np.int64)
    return np.ascontiguousarray(indices).view(np.uint32 if indices.dtype.itemsize == 4 else np.uint64)


def common_precision(tables: Sequence[Any]) -> Any:
    """float32 if all tables have it."""
    return np.float32 if all(table.dtype == np.float32 for table in tables) else np.float64


def sampled(tables: list[Any], labels: Any, seed: int, labelled: int) -> tuple[list[Any], Any]:
    """The tables, or a random sample of the rows of long ones, and their labels, if there are any.

    There are up to ``labelled`` rows with labels.
    """
    rows, most = tables[0].shape[0], SAMPLED_ROWS if labels is None else labelled
    if rows <= most:
        return tables, labels
    chosen = np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))
    return [table[chosen] for table in tables], None if labels is None else np.ascontiguousarray(labels[chosen])


def check_tables(X: Any, name: str = "X", *, finite: bool = True) -> tuple[list[Any], bool]:
    """One table or a list of them, checked, and whether it was a list."""
    distinct = is_list_of_tables(X)
    named = [(f"{name}[{i}]", table) for i, table in enumerate(X)] if distinct else [(name, X)]
    tables = [check_table(table, name=name, finite=finite) for name, table in named]
    rows = tables[0].shape[0]
    for (name, _), table in zip(named, tables):
        if table.shape[0] != rows:
            raise ValueError(f"{name}: expected {rows} rows, as the first table, got {table.shape[0]}")
    return tables, distinct
