"""Sketches as scikit-learn transformers.

Pickles name this module, so public classes stay here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.metrics.pairwise import euclidean_distances, polynomial_kernel
from sklearn.preprocessing import normalize

from ._arguments import check_table, check_tables, integer, is_list_of_tables, number, text
from ._base_sketch import BaseSketch, aim_of, check_directions, rows_of_zeros
from ._gpu import gpu_tables


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
    aim : {"kernel", "learning"}, default="kernel"
        What ``maclaurin-`` methods share their features for: the lowest error of the kernel matrix, or of the
        predictions of a model on the features.
    random_state : int, RandomState, Generator or None, default=None
        An integer is the seed itself: the same integer gives the same features on the command line and in Rust.
    n_jobs : int or None, default=None
        The number of threads; None and -1 mean one per core, -2 one less. In a worker of joblib, None means its share
        of the cores. It never changes a feature. (This is the convention of scikit-learn's multi-threaded estimators,
        where None is not 1.)

    Attributes
    ----------
    seed_ : int
        The seed used.
    spec : str
        The fitted sketch as JSON.
    n_features_in_ : int
        Columns seen in fit.
    feature_names_in_ : ndarray of str
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
        aim: str = "kernel",
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.n_components = n_components
        self.method = method
        self.craft_dim = craft_dim
        self.aim = aim
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
        cls._kernel_of(spec, "polynomial")
        return cls(
            spec["degree"],
            gamma=spec["gamma"],
            coef0=spec["coef0"],
            n_components=spec["features"],
            method=spec["method"],
            craft_dim=spec.get("craft_dim", 32768),
            aim=aim_of(spec),
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
        if not isinstance(self.dims, Iterable):
            raise TypeError(f"dims: expected the columns of each table, got {self.dims!r}")
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

    def _gpu_tables(self, X: Any, *, reset: bool) -> list[Any]:
        dims = self._given_dims() if reset else self.dims_
        tables = gpu_tables(X)
        distinct = isinstance(X, (list, tuple))
        arrays = self._split([table.array for table in tables], distinct, dims)
        if reset:
            self.dims_ = [array.shape[1] for array in arrays]
            self.n_features_in_ = sum(self.dims_)
            vars(self).pop("feature_names_in_", None)
        return [type(tables[0])(array) for array in arrays]

    def _dask_tables(self, X: Any, *, reset: bool) -> list[Any]:
        from .dask import DaskTable, as_array

        dims = self._given_dims() if reset else self.dims_
        distinct = isinstance(X, (list, tuple))
        if distinct:
            arrays = [as_array(table, f"X[{i}]") for i, table in enumerate(X)]
        else:
            arrays = [DaskTable.checked(self, X, reset=reset).array]
        arrays = self._split(arrays, distinct, dims)
        if reset:
            self.dims_ = [array.shape[1] for array in arrays]
            self.n_features_in_ = sum(self.dims_)
            if distinct:
                vars(self).pop("feature_names_in_", None)
        return [DaskTable(array) for array in arrays]

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
        return [unit_rows(self._sample_table(X))]

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
