"""Sketches as scikit-learn transformers."""

from __future__ import annotations

import json
import os
import tempfile
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics.pairwise import euclidean_distances, polynomial_kernel
from sklearn.preprocessing import normalize
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted, validate_data

from . import _argand
from ._arguments import (
    all_or_nothing,
    check_table,
    check_tables,
    comes_in_pairs,
    common_precision,
    integer,
    is_complex,
    is_list_of_tables,
    native,
    number,
    sample_rows,
    seed_of,
    text,
    threads_of,
)


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
        return [check_table(X, partial(validate_data, self, reset=reset), finite=reset)]

    def _make_spec(self, tables: list[Any], seed: int) -> str:
        dims, parameters = [table.shape[1] for table in tables], self._parameters(len(tables))
        return make_spec(dims, self._is_distinct(), self.n_components, seed, parameters)

    @all_or_nothing
    def fit(self, X: Any, y: Any = None):
        """Draw the random numbers for tables like X. Only the number of columns and the precision of X matter.

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
        tables = self._tables(X, reset=True)
        seed = seed_of(self.random_state)
        self._adopt(_argand.Sketch(self._make_spec(tables, seed)))
        self._sketch.draw(bool(common_precision(tables) == np.float32))
        return self

    def _is_distinct(self) -> bool:
        return False

    def _adopt(self, sketch: _argand.Sketch) -> None:
        spec = json.loads(sketch.spec)
        self._sketch, self._method, self._columns = sketch, spec["method"], spec["features"]
        self._n_features_out = self._columns // 2 if is_complex(self._method) else int(self.n_components)
        self.seed_ = spec["seed"]

    def transform(self, X: Any, *, out: np.ndarray | None = None) -> Any:
        """Compute the features of every row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Any numeric type; float32 gives float32 features, anything else float64. C-contiguous arrays and CSR
            matrices of float32 or float64 are read in place, others are copied.
        out : ndarray of shape (n_samples, n_components), default=None
            Where to write the features. If it is C-contiguous, nothing is allocated. A wrong argument leaves it
            unchanged.

        Returns
        -------
        Z : ndarray of shape (n_samples, n_components)
            The features: ``Z @ Z.T`` approximates the kernel matrix. ``complex-`` methods give complex numbers,
            ``n_components / 2`` of them, and ``(Z @ Z.conj().T).real`` approximates it.
        """
        check_is_fitted(self)
        return self._features(self._tables(X, reset=False), out)

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
        sketches of some rows.

        Parameters
        ----------
        X : as in transform
            More than 4096 rows are sampled at random.
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
        spec = self._make_spec(tables, 0)
        population, chosen = tables[0].shape[0], sample_rows(tables, 0)
        arrays = [native(table, common_precision(chosen)) for table in chosen]
        error, std, _ = _argand.expected_error(spec, arrays, population, threads_of(self.n_jobs))
        return (error, std) if return_std else error

    def _sample_tables(self, X: Any) -> list[Any]:
        return [check_table(X)]

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
        spec = json.dumps({**json.loads(spec), "spherical": fit})
    return spec


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
    sketch.draw(True)
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


class PolynomialSketch(BaseSketch):
    """Random features of the polynomial kernel ``(gamma <x, y> + coef0) ** degree``.

    A drop-in replacement for :class:`sklearn.kernel_approximation.PolynomialCountSketch` with the same names and
    defaults: an order of magnitude faster, and more accurate with more features than columns. Inner products of
    features approximate the kernel without bias.

    Parameters
    ----------
    degree : int, default=2
        Degree of the kernel.
    gamma : float, default=1.0
        Factor of the inner product, at least 0.
    coef0 : float, default=0.0
        Constant of the kernel, at least 0.
    n_components : int, default=100
        The number of features D. For an odd number, methods whose features come in pairs (``ctr-`` ones and ``srf``)
        draw one more and add the last pair, which keeps them unbiased. ``complex-`` methods need an even number.
    method : str, default="ctr-product-srht"
        ``[craft-][hierarchical-|chain-][ctr-|complex-]BASE`` with BASE one of ``product-srht``, ``tensor-srht``,
        ``tensor-sketch``, ``rademacher`` and ``gaussian``, or ``srf``. :func:`argand.plan` helps to choose. The user
        guide describes them.
    craft_dim : int, default=32768
        The number of features that ``craft-`` methods project down to ``n_components``.
    random_state : int, RandomState, Generator or None, default=None
        An integer is the seed itself: the same integer gives the same features on the command line and in Rust.
    n_jobs : int or None, default=None
        The number of threads; None and -1 mean one per core, -2 one less. It never changes a feature. (This is the
        convention of scikit-learn's multi-threaded estimators, where None is not 1.)

    Attributes
    ----------
    seed_ : int
        The seed used.
    spec : str
        The fitted sketch as JSON.
    n_features_in_ : int
        Columns seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if they are all strings.

    Notes
    -----
    A row costs ``degree`` projections; with the default method, each takes d log d + D operations for d columns.
    With ``tensor-sketch``, the cost of sparse rows depends only on their non-zeros. Sketches are pickled as their spec
    and drawn again, with the same numbers.

    References
    ----------
    Wacker, Ohana, Filippone: Complex-to-Real Sketches for Tensor Products with Applications to the Polynomial Kernel.
    AISTATS 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from argand import PolynomialSketch
    >>> X = np.random.default_rng(0).random((50, 10))
    >>> sketch = PolynomialSketch(degree=2, n_components=4096, random_state=0)
    >>> Z = sketch.fit_transform(X)
    >>> K = sketch.kernel(X)
    >>> float(np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K)) < 0.05
    True
    """

    def __init__(
        self,
        degree: int = 2,
        *,
        gamma: float = 1.0,
        coef0: float = 0.0,
        n_components: int = 100,
        method: str = "ctr-product-srht",
        craft_dim: int = 32768,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.n_components = n_components
        self.method = method
        self.craft_dim = craft_dim
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _parameters(self, factors: int) -> dict[str, Any]:
        return {
            "degree": integer("degree", self.degree),
            "gamma": number("gamma", self.gamma),
            "coef0": number("coef0", self.coef0),
            "method": text("method", self.method),
            "craft_dim": integer("craft_dim", self.craft_dim),
        }

    @classmethod
    def _from_spec(cls, spec: dict[str, Any]) -> PolynomialSketch:
        if isinstance(spec["input_dim"], list):
            raise ValueError("spec: describes a product of several tables; TensorProductSketch can load it")
        return cls(
            spec["degree"],
            gamma=spec["gamma"],
            coef0=spec["coef0"],
            n_components=spec["features"],
            method=spec["method"],
            craft_dim=spec.get("craft_dim", 32768),
            random_state=spec["seed"],
        )


class TensorProductSketch(BaseSketch):
    """Random features of the tensor product of several tables, row by row.

    Inner products of features approximate ``(gamma <x1, y1> + coef0) * ... * (gamma <xp, yp> + coef0)`` without bias,
    and the product, of d1 * ... * dp numbers per row, is never formed.

    Parameters
    ----------
    dims : sequence of int or None, default=None
        Columns of each table. If None, fit takes them from its tables.
    n_components : int, default=100
        The number of features D, as in :class:`PolynomialSketch`.
    method : str, default="ctr-product-srht"
        As in :class:`PolynomialSketch`, except ``srf``.
    gamma : float, default=1.0
        Factor of the inner products, at least 0.
    coef0 : float, default=0.0
        Constant of each factor, at least 0. If positive, the features also contain products of fewer
        tables.
    craft_dim : int, default=32768
        The number of features that ``craft-`` methods project down to ``n_components``.
    random_state : int, RandomState, Generator or None, default=None
        An integer is the seed itself.
    n_jobs : int or None, default=None
        The number of threads, as in :class:`PolynomialSketch`.

    Attributes
    ----------
    dims_ : list of int
        Columns of each table.
    seed_ : int
        The seed used.
    spec : str
        The fitted sketch as JSON.
    n_features_in_ : int
        Columns of all tables together.

    Notes
    -----
    Every method takes either a list with one table per factor or, as in a pipeline, one table with the columns of
    all of them side by side; then ``dims`` says how many belong to each (without ``dims``, the table is the only
    factor).

    Examples
    --------
    >>> import numpy as np
    >>> from argand import TensorProductSketch
    >>> rng = np.random.default_rng(0)
    >>> image, text = rng.random((50, 30)), rng.random((50, 20))
    >>> sketch = TensorProductSketch(n_components=256, random_state=0).fit([image, text])
    >>> sketch.transform([image, text]).shape
    (50, 256)
    >>> np.allclose(sketch.kernel([image, text]), (image @ image.T) * (text @ text.T))
    True
    """

    def __init__(
        self,
        dims: Any = None,
        n_components: int = 100,
        method: str = "ctr-product-srht",
        *,
        gamma: float = 1.0,
        coef0: float = 0.0,
        craft_dim: int = 32768,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.dims = dims
        self.n_components = n_components
        self.method = method
        self.gamma = gamma
        self.coef0 = coef0
        self.craft_dim = craft_dim
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _parameters(self, factors: int) -> dict[str, Any]:
        if self.method == "srf":
            raise ValueError("method: expected a method for products of tables, got 'srf'")
        return {
            "degree": factors,
            "gamma": number("gamma", self.gamma),
            "coef0": number("coef0", self.coef0),
            "method": text("method", self.method),
            "craft_dim": integer("craft_dim", self.craft_dim),
        }

    def _is_distinct(self) -> bool:
        return True

    def _given_dims(self) -> list[int] | None:
        if self.dims is None:
            return None
        dims = [integer("dims", dim) for dim in self.dims]
        if not dims or 0 in dims:
            raise ValueError(f"dims: expected the columns of each table, got {self.dims}")
        return dims

    def _split(self, tables: list[Any], distinct: bool, dims: list[int] | None, name: str = "X") -> list[Any]:
        """One table per factor, with the expected columns."""
        if not distinct and dims is not None:
            if tables[0].shape[1] != sum(dims):
                raise ValueError(f"{name}: expected {sum(dims)} columns for dims={dims}, got {tables[0].shape[1]}")
            ends = np.cumsum(dims)
            return [tables[0][:, end - dim : end] for dim, end in zip(dims, ends)]
        found = [table.shape[1] for table in tables]
        if dims is not None and found != dims:
            raise ValueError(f"{name}: expected tables with {dims} columns, got {found}")
        return tables

    def _tables(self, X: Any, *, reset: bool) -> list[Any]:
        distinct = is_list_of_tables(X)
        dims = self._given_dims() if reset else self.dims_
        if distinct:
            tables, _ = check_tables(X, finite=reset)
        else:
            tables = super()._tables(X, reset=reset)
        tables = self._split(tables, distinct, dims)
        if reset:
            self.dims_: list[int] = [table.shape[1] for table in tables]
            self.n_features_in_ = sum(self.dims_)
            if distinct and hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
        return tables

    def _known_dims(self) -> list[int] | None:
        """The columns of each table, as given or, after fit, as seen."""
        given = self._given_dims()
        return getattr(self, "dims_", None) if given is None else given

    def _sample_tables(self, X: Any) -> list[Any]:
        return self._split(*check_tables(X), self._known_dims())

    def kernel(self, X: Any, Y: Any = None) -> np.ndarray:
        """The exact kernel matrix that features approximate. Needs no fit.

        Parameters
        ----------
        X : list of tables, or one table
            As in transform.
        Y : list of tables, or one table, default=None
            X if not given.

        Returns
        -------
        K : ndarray of shape (n_samples, m_samples)
        """
        left = self._split(*check_tables(X), self._known_dims())
        right = left if Y is None else self._split(*check_tables(Y, "Y"), [table.shape[1] for table in left], "Y")
        parameters = self._parameters(len(left))
        factors = [polynomial_kernel(x, y, 1, parameters["gamma"], parameters["coef0"]) for x, y in zip(left, right)]
        return np.prod(factors, axis=0)

    @classmethod
    def _from_spec(cls, spec: dict[str, Any]) -> TensorProductSketch:
        if not isinstance(spec["input_dim"], list):
            raise ValueError("spec: describes a sketch of one table; PolynomialSketch can load it")
        loaded = cls(
            spec["input_dim"],
            spec["features"],
            spec["method"],
            gamma=spec["gamma"],
            coef0=spec["coef0"],
            craft_dim=spec.get("craft_dim", 32768),
            random_state=spec["seed"],
        )
        loaded.dims_ = spec["input_dim"]
        return loaded


class SphericalSketch(BaseSketch):
    """Spherical random features of the kernel ``(1 - |x - y|² / s²) ** degree`` of rows of unit norm.

    Rows are scaled to unit norm and lose their norms; rows of zeros stay zero. For rows of unit norm the kernel is
    ``(gamma <x, y> + coef0) ** degree`` with ``gamma = 2 / s²`` and ``coef0 = 1 - gamma``. Features are cosines and
    sines; unlike those of :class:`PolynomialSketch` they are biased, and bounded.

    Parameters
    ----------
    degree : int, default=3
        Degree of the kernel.
    s : float, default=2.0
        Radius at which the kernel vanishes, at least 2.
    n_components : int, default=100
        The number of features D, as in :class:`PolynomialSketch`.
    random_state : int, RandomState, Generator or None, default=None
        An integer is the seed itself.
    n_jobs : int or None, default=None
        The number of threads, as in :class:`PolynomialSketch`.

    Attributes
    ----------
    seed_ : int
        The seed used.
    spec : str
        The fitted sketch as JSON, with the distribution fitted to the kernel.
    n_features_in_ : int
        Columns seen in fit.

    References
    ----------
    Pennington, Yu, Kumar: Spherical Random Features for Polynomial Kernels. NeurIPS 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from argand import SphericalSketch
    >>> X = np.random.default_rng(0).random((50, 10))
    >>> Z = SphericalSketch(degree=3, n_components=512, random_state=0).fit_transform(X)
    >>> np.allclose((Z**2).sum(axis=1), 1)
    True
    """

    def __init__(
        self,
        degree: int = 3,
        *,
        s: float = 2.0,
        n_components: int = 100,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.degree = degree
        self.s = s
        self.n_components = n_components
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _parameters(self, factors: int) -> dict[str, Any]:
        s = number("s", self.s)
        if not 2 <= s <= 1e6:
            raise ValueError(f"s: expected 2 to 1e6, got {self.s}")
        gamma = 2 / s**2
        return {
            "degree": integer("degree", self.degree),
            "gamma": gamma,
            "coef0": 1 - gamma,
            "method": "srf",
            "craft_dim": 0,
        }

    def kernel(self, X: Any, Y: Any = None) -> np.ndarray:
        """The exact kernel matrix of the rows, scaled to unit norm. Needs no fit.

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
        X, Y = normalize(check_table(X)), None if Y is None else normalize(check_table(Y, name="Y"))
        return (1 - euclidean_distances(X, Y, squared=True) / self.s**2) ** parameters["degree"]

    def _features(self, tables: list[Any], out: np.ndarray | None = None) -> np.ndarray:
        zero = rows_of_zeros(tables[0])
        if len(zero):
            # Any direction works: their features are overwritten by those of the origin, cosines and sines of 0.
            entries = np.ones(len(zero), tables[0].dtype), (zero, np.zeros_like(zero))
            directions = sp.csr_array(entries, tables[0].shape)
            tables = [tables[0] + (directions if sp.issparse(tables[0]) else directions.toarray())]
        features = super()._features(tables, out)
        cosines = (self._n_features_out + 1) // 2
        features[zero, :cosines], features[zero, cosines:] = cosines**-0.5, 0
        return features

    def _sample_tables(self, X: Any) -> list[Any]:
        return [unit_rows(check_table(X))]

    @classmethod
    def _from_spec(cls, spec: dict[str, Any]) -> SphericalSketch:
        if spec["method"] != "srf":
            raise ValueError(f"spec: expected the method srf, got {spec['method']}")
        return cls(
            spec["degree"], s=(2 / spec["gamma"]) ** 0.5, n_components=spec["features"], random_state=spec["seed"]
        )


def unit_rows(table: Any) -> Any:
    """Scale rows to unit norm."""
    check_directions(table)
    return normalize(table)
