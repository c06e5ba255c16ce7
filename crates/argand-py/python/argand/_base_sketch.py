"""What all sketches share: their spec, their features and their files."""

from __future__ import annotations

import copy
import json
import os
import tempfile
import warnings
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics.pairwise import polynomial_kernel
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted, validate_data

from . import _argand
from ._arguments import (
    SAMPLED_ROWS,
    all_or_nothing,
    check_table,
    comes_in_pairs,
    common_precision,
    integer,
    is_complex,
    is_dask,
    looks_at_rows,
    multiplies_projections,
    native,
    sampled,
    seed_of,
    text,
    threads_of,
)
from ._gpu import gpu_features, gpu_tables, is_on_gpu


class BaseSketch(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of all sketches. Subclasses define which tables they read and which kernel they approximate."""

    __metadata_request__transform = MappingProxyType({"out": UNUSED})

    def _parameters(self, factors: int) -> dict[str, Any]:
        """degree, gamma, coef0, method and craft_dim of the spec, for this many tables."""
        raise NotImplementedError

    def _tables(self, X: Any, *, reset: bool) -> list[Any]:
        """Check the tables in X; ``reset`` stores their sizes, otherwise they must match.

        In fit, all numbers are checked here; in transform, by the compiled part.
        """
        # The features of a sum are shared by what pairs of rows say.
        fewest = 2 if reset and self._parameters(1)["method"].startswith("maclaurin-") else 1
        check = partial(validate_data, self, reset=reset, ensure_min_samples=fewest)
        return [check_table(X, check, finite=reset)]

    def _make_spec(self, tables: list[Any], seed: int) -> str:
        dims, parameters = [table.shape[1] for table in tables], self._parameters(len(tables))
        spec = make_spec(dims, self._is_distinct(), self.n_components, seed, parameters)
        return self._fit_spec(spec, tables[0])

    def _fit_spec(self, spec: str, table: Any) -> str:
        """A spec, fitted to rows if its method looks at them."""
        return fit_spec(spec, table, self.n_jobs, getattr(self, "selection", None), getattr(self, "aim", "kernel"))

    @all_or_nothing
    def fit(self, X: Any, y: Any = None):
        """Draw the random numbers for tables like X.

        Only the number of columns and the precision of X matter, except for methods that look at rows: ``maclaurin-``
        ones share their features by a sample of the rows, and ``nystrom`` takes its landmarks from them.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The rows to sketch.
        y : None
            Ignored.

        Returns
        -------
        self
        """
        threads_of(self.n_jobs)
        on_gpu = is_on_gpu(X)
        if on_gpu:
            self._check_gpu(self._parameters(1)["method"])
        tables_of = self._gpu_tables if on_gpu else self._dask_tables if is_dask(X) else self._tables
        tables = tables_of(X, reset=True)
        seed = seed_of(self.random_state)
        self._look_at(tables[0])
        self._adopt(_argand.Sketch(self._make_spec(tables, seed)))
        if not on_gpu:
            with self._explaining(tables[0]):
                self._sketch.draw(bool(common_precision(tables) == np.float32), threads_of(self.n_jobs))
        return self

    def _look_at(self, table: Any) -> None:
        """Set the attributes that the kernel takes from the rows."""

    def _explaining(self, table: Any) -> AbstractContextManager[None]:
        """Say in errors what it is about the rows that the compiled part does not see."""
        return nullcontext()

    def _with_kernel(self, table: Any) -> Any:
        """The sketch with the kernel of its fit or, before one, a copy with the kernel that a fit would take."""
        if self.__sklearn_is_fitted__():
            return self
        sketch = copy.copy(self)
        sketch._look_at(table)
        return sketch

    def _is_distinct(self) -> bool:
        return False

    def _adopt(self, sketch: _argand.Sketch) -> None:
        spec = json.loads(sketch.spec)
        self._sketch, self._method, self._columns = sketch, spec["method"], spec["features"]
        self._n_features_out = self._columns // 2 if is_complex(self._method) else self._columns
        if comes_in_pairs(self._method):
            # One more is drawn for an odd number.
            self._n_features_out = int(self.n_components)
        self.seed_ = spec["seed"]
        self._on_gpus: dict[int, _argand.CudaSketch] = {}

    def __getstate__(self) -> dict[str, Any]:
        # What is on a GPU is made again where it is needed.
        state = super().__getstate__()
        return {**state, "_on_gpus": {}} if "_on_gpus" in state else state

    def transform(self, X: Any, *, out: np.ndarray | None = None) -> Any:
        """Compute the features of every row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Any numeric type; float32 gives float32 features, anything else float64. C-contiguous arrays and CSR
            matrices of float32 or float64 are read in place, others are copied. CUDA tensors of PyTorch and CuPy
            arrays, of float16, bfloat16, float32 or float64, stay on their GPU, and so do their features. Dask arrays
            and data frames give a Dask array in the same blocks.
        out : ndarray of shape (n_samples, n_components), default=None
            Where to write the features. If it is C-contiguous, nothing is allocated. A wrong argument leaves it
            unchanged; features that are too large for their type, which only their computation shows, may leave it
            partly written.

        Returns
        -------
        Z : ndarray of shape (n_samples, n_components), or the kind of X on a GPU or of Dask
            The features: ``Z @ Z.T`` approximates the kernel matrix. ``complex-`` methods give complex numbers,
            ``n_components / 2`` of them, and ``(Z @ Z.conj().T).real`` approximates it.
        """
        check_is_fitted(self)
        if is_dask(X):
            if out is not None:
                raise TypeError("out: expected None for collections of Dask; their features are computed later")
            return self._features_of_blocks(X)
        if is_on_gpu(X):
            if out is not None:
                raise TypeError("out: expected None for tables on a GPU; features are new arrays there")
            return self._features_on_gpu(self._gpu_tables(X, reset=False))
        return self._features(self._tables(X, reset=False), out)

    def _gpu_tables(self, X: Any, *, reset: bool) -> list[Any]:
        """As ``_tables``, for arrays on a GPU."""
        if isinstance(X, (list, tuple)):
            raise TypeError(f"X: expected one table, got {len(X)}; TensorProductSketch takes several")
        (table,) = gpu_tables(X)
        columns = table.shape[1]
        if reset:
            self.n_features_in_ = columns
            vars(self).pop("feature_names_in_", None)
        elif columns != self.n_features_in_:
            # The words of scikit-learn.
            name = type(self).__name__
            raise ValueError(
                f"X has {columns} features, but {name} is expecting {self.n_features_in_} features as input."
            )
        return [table]

    def _dask_tables(self, X: Any, *, reset: bool) -> list[Any]:
        """As ``_tables``, for collections of Dask. Workers check their numbers."""
        from .dask import DaskTable

        return [DaskTable.checked(self, X, reset=reset)]

    def _features_of_blocks(self, X: Any) -> Any:
        from .dask import call_on_blocks

        container = getattr(self, "_sklearn_output_config", {}).get("transform", get_config()["transform_output"])
        if container != "default":
            raise ValueError(f"set_output: expected the default for collections of Dask, got {container!r}")
        precision = np.result_type(*(table.precision for table in self._dask_tables(X, reset=False)))
        dtype = np.result_type(precision, np.complex64) if is_complex(self._method) else precision
        return call_on_blocks(self, "transform", X, (self._n_features_out,), dtype)

    @staticmethod
    def _check_gpu(method: Any) -> None:
        if isinstance(method, str) and not multiplies_projections(method):
            raise TypeError(f"X: expected an array in the memory of the processor; {method} does not run on a GPU here")

    def _features_on_gpu(self, tables: list[Any]) -> Any:
        self._check_gpu(self._method)
        if is_complex(self._method) and tables[0].dtype not in ("float32", "float64"):
            raise TypeError(f"X: expected float32 or float64 for complex features, got {tables[0].dtype}")
        device = tables[0].device
        if device not in self._on_gpus:
            self._on_gpus[device] = _argand.CudaSketch(self._sketch.spec, device)
        features = gpu_features(self._on_gpus[device], tables, self._columns)
        if is_complex(self._method):
            return features.as_complex()
        columns = features.array
        if self._is_odd():
            # As in _features.
            columns[:, self._columns // 2 - 1] += columns[:, -1]
            columns = columns[:, :-1] + 0
        return columns

    def _features(self, tables: list[Any], out: np.ndarray | None = None) -> np.ndarray:
        if self._method == "srf":
            check_directions(tables[0])
        precision = np.dtype(common_precision(tables))
        dtype = np.result_type(precision, np.complex64) if is_complex(self._method) else precision
        shape = (tables[0].shape[0], self._n_features_out)
        if out is not None:
            check_out(out, shape, dtype)
        arrays = [native(table, precision) for table in tables]
        threads = threads_of(self.n_jobs)
        if out is not None and out.flags.carray and not self._is_odd():
            self._sketch.transform(arrays, out.view(precision), True, threads)
            return out
        # All drawn columns, as real numbers.
        columns = np.empty((shape[0], self._columns), precision)
        self._sketch.transform(arrays, columns, False, threads)
        features = columns.view(dtype)
        if self._is_odd():
            # The last pair's real and imaginary part (cosine and sine), added: cross terms are zero on average.
            features[:, self._columns // 2 - 1] += features[:, -1]
            features = np.ascontiguousarray(features[:, :-1])
        if out is None:
            return features
        out[...] = features
        return out

    def _is_odd(self) -> bool:
        """Whether one more column is drawn than there are features."""
        return comes_in_pairs(self._method) and self._n_features_out % 2 == 1

    def kernel(self, X: Any, Y: Any = None) -> np.ndarray:
        """The exact kernel matrix that features approximate. Needs no fit.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        Y : array-like or sparse matrix of shape (m_samples, n_features), default=None
            X if not given.

        Returns
        -------
        K : ndarray of shape (n_samples, m_samples)
        """
        parameters = self._parameters(1)
        X, Y = check_table(X), None if Y is None else check_table(Y, name="Y")
        return polynomial_kernel(X, Y, *(parameters[name] for name in ("degree", "gamma", "coef0")))

    def expected_error(self, X: Any, *, return_std: bool = False) -> Any:
        """Predict the relative error of the kernel matrix of X before drawing a sketch. Needs no fit.

        The error is :math:`\\sqrt{E ||ZZ^T - K||_F^2} / ||K||_F`, the root mean square over sketches; a typical sketch
        is better. It comes from the closed form of the variance where one is known; otherwise it is measured on
        sketches of some rows. A fitted sketch keeps its kernel, and is not changed; what its method looks for in rows,
        shares of features or landmarks, is that of X.

        Parameters
        ----------
        X : as in transform
            More than 4096 rows are sampled at random. After fit, with the columns of the fit.
        return_std : bool, default=False
            Whether to return the standard error of the prediction as well. It is 0 for closed forms on up to 2048 rows.

        Returns
        -------
        error : float
            For an odd ``n_components`` and features in pairs, the error with one more feature.
        standard_error : float
            Only with ``return_std``.
        """
        tables = self._sample_tables(X)
        sketch = self._with_kernel(tables[0])
        spec = sketch._make_spec(tables, 0)
        population, chosen = tables[0].shape[0], sampled(tables, None, 0, 0)[0]
        arrays = [native(table, common_precision(chosen)) for table in chosen]
        with sketch._explaining(tables[0]):
            error, std, _ = _argand.expected_error(spec, arrays, population, threads_of(self.n_jobs))
        return (error, std) if return_std else error

    def _sample_tables(self, X: Any) -> list[Any]:
        return [self._sample_table(X)]

    def _sample_table(self, X: Any) -> Any:
        """A checked table, after fit with the columns of the fit."""
        if not self.__sklearn_is_fitted__():
            return check_table(X)
        return check_table(X, partial(validate_data, self, reset=False))

    @property
    def spec(self) -> str:
        """The fitted sketch as JSON, which the command line and the Rust library also read."""
        check_is_fitted(self)
        return self._sketch.spec

    def save(self, path: str | os.PathLike) -> None:
        """Save the fitted sketch as its spec, for :meth:`load` and for ``argand transform --spec``.

        The file appears whole or not at all.
        """
        spec = self.spec
        if self._is_odd():
            raise ValueError(
                f"n_components: expected an even number to save, got {self._n_features_out}; pickle the sketch instead"
            )
        path = Path(path)
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=f".{path.name}.", encoding="utf-8", delete=False
        ) as file:
            try:
                file.write(spec)
                file.flush()
                os.fsync(file.fileno())
                os.chmod(file.name, 0o644)
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise

    @classmethod
    def load(cls, path: str | os.PathLike):
        """Load a fitted sketch saved by :meth:`save` or the command line."""
        sketch = _argand.Sketch(Path(path).read_text(encoding="utf-8"))
        spec = json.loads(sketch.spec)
        loaded = cls._from_spec(spec)
        loaded._adopt(sketch)
        loaded.n_features_in_ = int(np.sum(spec["input_dim"]))
        return loaded

    @classmethod
    def _from_spec(cls, spec: dict[str, Any]):
        """An unfitted estimator with the parameters of a spec."""
        raise NotImplementedError

    @staticmethod
    def _kernel_of(spec: dict[str, Any], *names: str) -> dict[str, Any]:
        """The kernel of a spec, if it has one of these names."""
        kernel = spec.get("kernel", {"name": "polynomial"})
        if kernel["name"] not in names:
            product = "TensorProductSketch" if isinstance(spec["input_dim"], list) else "PolynomialSketch"
            able = {"polynomial": product, "gaussian": "GaussianSketch"}.get(kernel["name"], "DotProductSketch")
            raise ValueError(
                f"spec: expected a kernel that is {' or '.join(names)}, got {kernel['name']}; {able} can load it"
            )
        return kernel

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_sketch")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def make_spec(dims: list[int], distinct: bool, n_components: Any, seed: int, parameters: dict[str, Any]) -> str:
    """The JSON of a spec. Features in pairs are rounded up to whole pairs."""
    columns = integer("n_components", n_components)
    columns += columns % 2 * comes_in_pairs(parameters["method"])
    spec = _argand.spec(dims=dims, distinct=distinct, n_components=columns, seed=seed, **parameters)
    if parameters["method"] == "srf":
        fit = spherical_fit(dims[0], *(parameters[name] for name in ("degree", "gamma", "coef0")))
        fields = {**json.loads(spec), "spherical": fit}
        # It was that of the spec without the fit.
        fields.pop("checksum", None)
        spec = json.dumps(fields)
    return spec


def fit_spec(spec: str, table: Any, n_jobs: Any, selection: str | None = None, aim: str = "kernel") -> str:
    """The JSON of a spec, fitted to rows if its method looks at them.

    Landmarks are different rows: there may be fewer than asked for.
    """
    parts = json.loads(spec)
    if not looks_at_rows(parts["method"]):
        return spec
    asked = parts["features"]
    array = some_rows(table, max(SAMPLED_ROWS, 4 * asked), parts["seed"])
    selection = "pivoted" if selection is None else text("selection", selection)
    fitted = _argand.fit_spec(spec, array, selection, text("aim", aim), threads_of(n_jobs))
    found = json.loads(fitted)["features"]
    if found < asked:
        warnings.warn(
            f"n_components: expected at most the {found} different rows of X, got {asked}; there are {found} features",
            UserWarning,
            stacklevel=5,
        )
    return fitted


def choose_spec(spec: str, table: Any, n_components: Any, n_jobs: Any) -> str:
    """The JSON of a spec of a Gaussian kernel with the method that learns better from rows.

    Features in pairs are rounded up to whole pairs.
    """
    array = some_rows(table, SAMPLED_ROWS, json.loads(spec)["seed"])
    return _argand.choose_spec(spec, array, integer("n_components", n_components), threads_of(n_jobs))


def some_rows(table: Any, most: int, seed: int) -> Any:
    """At most so many rows of a table, in their order, for the compiled part."""
    rows = getattr(table, "rows", table.shape[0])
    chosen = np.random.default_rng(seed).choice(rows, most, replace=False) if rows > most else np.arange(rows)
    table = table[np.sort(chosen)]
    return native(table, common_precision([table]))


def aim_of(spec: dict[str, Any]) -> str:
    """What the features of a sum are shared for."""
    return spec.get("maclaurin", {}).get("aim", "kernel")


def in_memory(table: Any) -> bool:
    """Whether a checked table is an array or a sparse matrix, rather than one of Dask."""
    return isinstance(table, np.ndarray) or sp.issparse(table)


def mean_square(table: Any) -> float:
    """The mean of the squares of all numbers of a table; infinite, if it is too large."""
    if not in_memory(table):
        return table.moments()[1]
    with np.errstate(over="ignore"):
        squares = np.square(stored_numbers(table) if sp.issparse(table) else table, dtype=np.float64)
        return float(squares.sum() / (float(table.shape[0]) * table.shape[1]))


def variance(table: Any) -> float:
    """The variance of all numbers of a table; infinite, if it is too large.

    It is about the mean: of the mean square less the square of the mean, nothing may be left.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(table, np.ndarray):
            found = np.var(table, dtype=np.float64)
        elif sp.issparse(table):
            stored, numbers = stored_numbers(table), float(table.shape[0]) * table.shape[1]
            mean = stored.sum() / numbers
            found = (np.square(stored - mean).sum() + (numbers - len(stored)) * mean**2) / numbers
        else:
            found = variance_of_blocks(table)
    return float(np.inf if np.isnan(found) else found)


def variance_of_blocks(table: Any) -> np.float64:
    """As ``variance``, for a table of Dask."""
    mean, square = map(np.float64, table.moments())
    if square - mean**2 > 1e-6 * square:
        return square - mean**2
    # Too little is left: a second look, at what the mean leaves.
    mean, square = map(np.float64, type(table)(table.array.map_blocks(less, mean, dtype=np.float64)).moments())
    return square - mean**2


def less(block: Any, mean: np.float64) -> Any:
    """The numbers of a block less their mean."""
    return (block.toarray() if sp.issparse(block) else block) - mean


def stored_numbers(table: Any) -> np.ndarray:
    """The numbers that a sparse table stores, as float64."""
    table = table.astype(np.float64)
    # Numbers at the same place are one.
    table.sum_duplicates()
    return table.data


def check_out(out: Any, shape: tuple[int, int], dtype: np.dtype) -> None:
    """Refuse a result buffer of another shape or type."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out: expected a NumPy array, got {type(out).__name__}")
    if out.shape != shape:
        raise ValueError(f"out: expected the shape {shape}, got {out.shape}")
    if out.dtype != dtype:
        raise ValueError(f"out: expected the type {dtype}, got {out.dtype}")
    if not out.flags.writeable:
        raise ValueError("out: expected a writable array")


@lru_cache(maxsize=256)
def spherical_fit(dim: int, degree: int, gamma: float, coef0: float) -> dict[str, Any]:
    """The distribution that spherical features draw from, cached because it is the slowest part to compute."""
    kernel: dict[str, Any] = {"degree": degree, "gamma": gamma, "coef0": coef0}
    spec = _argand.spec(dims=[dim], distinct=False, n_components=2, method="srf", craft_dim=0, seed=0, **kernel)
    sketch = _argand.Sketch(spec)
    sketch.draw(True, 1)
    return json.loads(sketch.spec)["spherical"]


def rows_of_zeros(table: Any) -> np.ndarray:
    """The indices of rows of zeros."""
    directed = abs(table).max(axis=1).toarray().ravel() if sp.issparse(table) else table.any(axis=1)
    return np.flatnonzero(directed == 0)


def check_directions(table: Any) -> None:
    """Refuse rows of zeros, which have no direction."""
    zero = rows_of_zeros(table)
    if len(zero):
        raise ValueError(f"X: expected rows that can be scaled to unit norm, got zeros in row {zero[0]}")
