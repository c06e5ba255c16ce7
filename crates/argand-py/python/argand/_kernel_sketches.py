"""Sketches of kernels other than the polynomial one, as scikit-learn transformers.

Pickles name this module, so public classes stay here.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.metrics.pairwise import linear_kernel, polynomial_kernel, rbf_kernel
from sklearn.utils.extmath import row_norms

from . import _argand
from ._arguments import check_table, integer, number, text
from ._base_sketch import BaseSketch, aim_of, choose_spec, in_memory, make_spec, mean_square, variance

# The length scales that the compiled part takes, and gammas that give such ones.
LENGTH_SCALES = 1e-100, 1e100
GAMMAS = 1e-199, 1e199


class KernelSketch(BaseSketch):
    """What sketches of kernels other than the polynomial one share: a length scale or coefficients, found in fit."""

    def _kernel_parameters(self, columns: int) -> dict[str, Any]:
        """The kernel, as keywords of a spec."""
        raise NotImplementedError

    def _parameters(self, factors: int) -> dict[str, Any]:
        return {"method": text("method", self.method), "craft_dim": 32768}

    def _make_spec(self, tables: list[Any], seed: int) -> str:
        parameters = {**self._parameters(1), **self._kernel_parameters(tables[0].shape[1])}
        spec = make_spec([tables[0].shape[1]], False, self.n_components, seed, parameters)
        return self._fit_spec(spec, tables[0])

    @contextmanager
    def _explaining(self, table: Any) -> Iterator[None]:
        try:
            yield
        except ValueError:
            self._check_exponents(table)
            raise

    def _check_exponents(self, table: Any) -> None:
        """Refuse rows whose exponential kernel is infinite: the compiled part finds its matrix singular."""
        kernel = self._kernel_parameters(table.shape[1])
        if kernel.get("exponential", False) and in_memory(table):
            width = "a larger length_scale" if getattr(self, "gamma", None) is None else "a smaller gamma"
            check_exponents(table, kernel["length_scale"], width)

    def kernel(self, X: Any, Y: Any = None) -> np.ndarray:
        """The exact kernel matrix that features approximate.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        Y : array-like or sparse matrix of shape (m_samples, n_features), default=None
            X if not given.

        Returns
        -------
        K : ndarray of shape (n_samples, m_samples)
        """
        X, Y = check_table(X), None if Y is None else check_table(Y, name="Y")
        kernel = self._with_kernel(X)._kernel_parameters(X.shape[1])
        if "length_scale" in kernel and not kernel.get("exponential", False):
            X, Y = around_mean(X, Y)
            return rbf_kernel(X, Y, gamma=0.5 / kernel["length_scale"] ** 2)
        if "degree" in kernel:
            return polynomial_kernel(X, Y, kernel["degree"], kernel["gamma"], kernel["coef0"])
        inner = linear_kernel(X, Y)
        if "length_scale" in kernel:
            return np.exp(inner / kernel["length_scale"] ** 2)
        return np.polynomial.polynomial.polyval(inner, kernel["coefficients"])


class GaussianSketch(KernelSketch):
    """Features of the Gaussian kernel ``exp(-gamma * |x - y|²)``.

    A drop-in replacement for :class:`sklearn.kernel_approximation.RBFSampler`, whose ``gamma`` this is:
    ``gamma = 1 / (2 * length_scale²)``.

    Parameters
    ----------
    gamma : float or "scale", default=1.0
        Inverse width of the kernel, positive; "scale" is ``1 / (n_features * X.var())``.
    length_scale : float, default=None
        The width of the kernel in units of X, instead of ``gamma``.
    n_components : int, default=100
        The number of features.
    method : str, default="sorf"
        ``rff`` (random Fourier features, as in RBFSampler), ``orf`` (orthogonal ones, more accurate), ``sorf``
        (structured orthogonal ones, nearly as accurate and faster for many columns), ``maclaurin-ctr-product-srht``
        (the power series of the kernel around the mean of X, term by term: more accurate for wide kernels), or
        ``nystrom`` (kernels with rows of X; most accurate for few features, and slow). ``auto`` is ``sorf`` or
        ``maclaurin-ctr-product-srht`` with ``aim="learning"``, whichever should learn better from rows like X: it has
        the lower risk for targets of a Gaussian process with this kernel. :attr:`method_` says which.
    selection : {"pivoted", "leverage", "uniform"} or None, default="pivoted"
        How ``nystrom`` selects its landmarks, as in :class:`NystromSketch`.
    aim : {"kernel", "learning"}, default="kernel"
        What ``maclaurin-`` methods share their features for: the lowest error of the kernel matrix, or of the
        predictions of a model on the features.
    random_state : int, RandomState, Generator or None, default=None
        An integer is the seed itself.
    n_jobs : int or None, default=None
        The number of threads, as in :class:`PolynomialSketch`.

    Attributes
    ----------
    seed_ : int
        The seed used.
    gamma_ : float
        The gamma used.
    method_ : str
        The method used.
    spec : str
        The fitted sketch as JSON.
    n_features_in_ : int
        Columns seen in fit.

    Examples
    --------
    >>> import numpy as np
    >>> from argand import GaussianSketch
    >>> X = np.random.default_rng(0).random((50, 10))
    >>> sketch = GaussianSketch(length_scale=1.3, n_components=512, method="maclaurin-ctr-product-srht", random_state=0)
    >>> Z = sketch.fit_transform(X)
    >>> K = sketch.kernel(X)
    >>> bool(np.linalg.norm(Z @ Z.T - K) < 0.01 * np.linalg.norm(K))
    True
    """

    def __init__(
        self,
        gamma: float | str = 1.0,
        *,
        length_scale: float | None = None,
        n_components: int = 100,
        method: str = "sorf",
        selection: str = "pivoted",
        aim: str = "kernel",
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.gamma = gamma
        self.length_scale = length_scale
        self.n_components = n_components
        self.method = method
        self.selection = selection
        self.aim = aim
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _parameters(self, factors: int) -> dict[str, Any]:
        parameters = super()._parameters(factors)
        return {**parameters, "method": "sorf"} if parameters["method"] == "auto" else parameters

    def _fit_spec(self, spec: str, table: Any) -> str:
        # Fewer rows would not tell.
        if self.method == "auto" and getattr(table, "rows", table.shape[0]) >= 4:
            return choose_spec(spec, table, self.n_components, self.n_jobs)
        return super()._fit_spec(spec, table)

    def _adopt(self, sketch: _argand.Sketch) -> None:
        super()._adopt(sketch)
        self.method_ = self._method

    def _with_kernel(self, table: Any) -> Any:
        sketch = super()._with_kernel(table)
        if sketch is self and self.method == "auto":
            # The method is that of the fit, too.
            sketch = copy.copy(self)
            sketch.method, sketch.aim = self.method_, "learning"
        return sketch

    def _look_at(self, table: Any) -> None:
        if self.length_scale is not None:
            # gamma_ would not give it back to the last digit.
            self._length_scale = within("length_scale", self.length_scale, LENGTH_SCALES)
            self.gamma_ = 0.5 / self._length_scale**2
            return
        if isinstance(self.gamma, str):
            if self.gamma != "scale":
                raise ValueError(f'gamma: expected a positive number or "scale", got {self.gamma!r}')
            spread = table.shape[1] * variance(table)
            if spread and not GAMMAS[0] <= spread <= GAMMAS[1]:
                raise ValueError(
                    f'X: expected n_features * X.var() from {GAMMAS[0]:g} to {GAMMAS[1]:g} for gamma="scale", '
                    f"got {spread:.4g}; scale the rows"
                )
            self.gamma_ = 1 / spread if spread else 1.0
        else:
            self.gamma_ = within("gamma", self.gamma, GAMMAS)
        self._length_scale = math.sqrt(0.5 / self.gamma_)

    def _kernel_parameters(self, columns: int) -> dict[str, Any]:
        return {"length_scale": self._length_scale}

    @classmethod
    def _from_spec(cls, spec: dict[str, Any]) -> GaussianSketch:
        loaded = cls(
            length_scale=cls._kernel_of(spec, "gaussian")["length_scale"],
            n_components=spec["features"],
            method=spec["method"],
            selection=None if spec["method"] == "nystrom" else "pivoted",
            aim=aim_of(spec),
            random_state=spec["seed"],
        )
        # This kernel needs no rows.
        loaded._look_at(None)
        return loaded


class DotProductSketch(KernelSketch):
    """Features of a dot-product kernel ``f(<x, y>)`` by its power series.

    The kernel is ``exp(<x, y> / length_scale²)`` or, with ``coefficients``, the sum of ``coefficients[n] * <x, y>**n``.
    Constant and linear term are exact; sketches of the higher powers share the other features such that the expected
    error of the kernel matrix of X is least.

    Parameters
    ----------
    coefficients : array-like of shape (n_powers,), default=None
        Coefficients of the powers from 0 on, at most 65, none negative. None is the exponential kernel.
    length_scale : float, default=None
        The scale of the exponential kernel. None is the root mean square of the norms of the rows in fit.
    n_components : int, default=100
        The number of features.
    method : str, default="maclaurin-ctr-product-srht"
        ``maclaurin-`` and any real or ``ctr-`` method of :class:`PolynomialSketch`, or ``nystrom``.
    aim : {"kernel", "learning"}, default="kernel"
        What ``maclaurin-`` methods share their features for: the lowest error of the kernel matrix, or of the
        predictions of a model on the features.
    random_state : int, RandomState, Generator or None, default=None
        An integer is the seed itself.
    n_jobs : int or None, default=None
        The number of threads, as in :class:`PolynomialSketch`.

    Attributes
    ----------
    seed_ : int
        The seed used.
    length_scale_ : float
        The length scale used, without ``coefficients``.
    spec : str
        The fitted sketch as JSON.
    n_features_in_ : int
        Columns seen in fit.

    Examples
    --------
    >>> import numpy as np
    >>> from argand import DotProductSketch
    >>> X = np.random.default_rng(0).random((50, 10))
    >>> sketch = DotProductSketch([1, 0.5, 0.25, 0.125], n_components=512, random_state=0)
    >>> Z = sketch.fit_transform(X)
    >>> K = sketch.kernel(X)
    >>> bool(np.linalg.norm(Z @ Z.T - K) < 0.1 * np.linalg.norm(K))
    True
    """

    def __init__(
        self,
        coefficients: Any = None,
        *,
        length_scale: float | None = None,
        n_components: int = 100,
        method: str = "maclaurin-ctr-product-srht",
        aim: str = "kernel",
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.coefficients = coefficients
        self.length_scale = length_scale
        self.n_components = n_components
        self.method = method
        self.aim = aim
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _look_at(self, table: Any) -> None:
        if self.length_scale is not None:
            self.length_scale_ = positive("length_scale", self.length_scale)
        elif self.coefficients is None:
            self.length_scale_ = mean_norm(table)

    def _kernel_parameters(self, columns: int) -> dict[str, Any]:
        if self.coefficients is None:
            return {"length_scale": self.length_scale_, "exponential": True}
        return {"coefficients": numbers("coefficients", self.coefficients)}

    @classmethod
    def _from_spec(cls, spec: dict[str, Any]) -> DotProductSketch:
        kernel = cls._kernel_of(spec, "exponential", "series")
        loaded = cls(
            kernel.get("coefficients"),
            length_scale=kernel.get("length_scale"),
            n_components=spec["features"],
            method=spec["method"],
            aim=aim_of(spec),
            random_state=spec["seed"],
        )
        if "length_scale" in kernel:
            loaded.length_scale_ = kernel["length_scale"]
        return loaded


class NystromSketch(KernelSketch):
    """Nyström's features of any kernel: kernels with landmark rows of X, whitened.

    Like :class:`sklearn.kernel_approximation.Nystroem`, with better landmarks by default. Features cost
    ``n_components * (n_features + n_components)`` multiplications per row.

    Parameters
    ----------
    kernel_type : {"rbf", "poly", "exponential", "series"}, default="rbf"
        ``exp(-gamma * |x - y|²)``, ``(gamma <x, y> + coef0) ** degree``, ``exp(gamma <x, y>)``, or the sum of
        ``coefficients[n] * <x, y>**n``.
    gamma : float, default=None
        None is ``1 / n_features``, and for the exponential kernel 1 over the mean square of the norms of the rows in
        fit, as in :class:`DotProductSketch`. Positive; that of the polynomial kernel may be 0.
    length_scale : float, default=None
        The width of the rbf or exponential kernel instead of ``gamma``, as in :class:`GaussianSketch` and
        :class:`DotProductSketch`. Loaded sketches have this one, to the last digit.
    coef0 : float, default=1
        Constant of the polynomial kernel.
    degree : int, default=3
        Degree of the polynomial kernel.
    coefficients : array-like of shape (n_powers,), default=None
        Coefficients of the series.
    n_components : int, default=100
        The number of landmarks, and of features. If X has fewer different rows, there are as many as those, with a
        warning.
    selection : {"pivoted", "leverage", "uniform"} or None, default="pivoted"
        How landmarks are selected: by randomly pivoted Cholesky, by estimated ridge leverage scores, or at random.
        None, which a fit takes for "pivoted", is that of loaded sketches: files have the landmarks, and do not say how
        they were selected.
    random_state : int, RandomState, Generator or None, default=None
        An integer is the seed itself.
    n_jobs : int or None, default=None
        The number of threads, as in :class:`PolynomialSketch`.

    Attributes
    ----------
    seed_ : int
        The seed used.
    gamma_ : float
        The gamma used, except for a series.
    spec : str
        The fitted sketch as JSON, with the landmarks.
    n_features_in_ : int
        Columns seen in fit.

    References
    ----------
    Chen, Epperly, Tropp, Webber: Randomly pivoted Cholesky. 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from argand import NystromSketch
    >>> X = np.random.default_rng(0).random((200, 10))
    >>> sketch = NystromSketch(gamma=0.2, n_components=100, random_state=0)
    >>> Z = sketch.fit_transform(X)
    >>> bool(np.abs(Z @ Z.T - sketch.kernel(X)).max() < 0.05)
    True
    """

    method = "nystrom"

    def __init__(
        self,
        kernel_type: str = "rbf",
        *,
        gamma: float | None = None,
        length_scale: float | None = None,
        coef0: float = 1,
        degree: int = 3,
        coefficients: Any = None,
        n_components: int = 100,
        selection: str = "pivoted",
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.kernel_type = kernel_type
        self.gamma = gamma
        self.length_scale = length_scale
        self.coef0 = coef0
        self.degree = degree
        self.coefficients = coefficients
        self.n_components = n_components
        self.selection = selection
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _look_at(self, table: Any) -> None:
        vars(self).pop("gamma_", None)
        # gamma is this over length_scale².
        share = {"rbf": 0.5, "exponential": 1.0}.get(self.kernel_type)
        if self.length_scale is not None:
            if self.gamma is not None:
                raise ValueError("gamma: expected either this or length_scale")
            if share is None:
                raise ValueError(
                    f"length_scale: expected only for kernel_type rbf or exponential, got {self.kernel_type!r}"
                )
            self._length_scale = within("length_scale", self.length_scale, LENGTH_SCALES)
            self.gamma_ = share / self._length_scale**2
        elif self.gamma is None and self.kernel_type == "exponential":
            self._length_scale = mean_norm(table)
            self.gamma_ = share / self._length_scale**2
        elif self.kernel_type != "series":
            self.gamma_ = 1 / table.shape[1] if self.gamma is None else number("gamma", self.gamma)
            if share is not None:
                self._length_scale = math.sqrt(share / within("gamma", self.gamma_, GAMMAS))

    def _kernel_parameters(self, columns: int) -> dict[str, Any]:
        match self.kernel_type:
            case "rbf":
                return {"length_scale": self._length_scale}
            case "poly":
                return {
                    "degree": integer("degree", self.degree),
                    "gamma": self.gamma_,
                    "coef0": number("coef0", self.coef0),
                }
            case "exponential":
                return {"length_scale": self._length_scale, "exponential": True}
            case "series":
                return {"coefficients": numbers("coefficients", self.coefficients)}
        raise ValueError(f"kernel_type: expected rbf, poly, exponential or series, got {self.kernel_type!r}")

    @classmethod
    def _from_spec(cls, spec: dict[str, Any]) -> NystromSketch:
        if spec["method"] != "nystrom":
            raise ValueError(f"spec: expected the method nystrom, got {spec['method']}")
        kernel = cls._kernel_of(spec, "polynomial", "gaussian", "exponential", "series")
        parameters = {
            "polynomial": lambda: {name: spec[name] for name in ("degree", "gamma", "coef0")},
            "gaussian": lambda: {"length_scale": kernel["length_scale"]},
            "exponential": lambda: {"length_scale": kernel["length_scale"]},
            "series": lambda: {"coefficients": kernel["coefficients"]},
        }[kernel["name"]]()
        names = {"polynomial": "poly", "gaussian": "rbf"}
        loaded = cls(
            names.get(kernel["name"], kernel["name"]),
            n_components=spec["features"],
            selection=None,
            random_state=spec["seed"],
            **parameters,
        )
        # These kernels need no rows.
        loaded._look_at(None)
        return loaded


def around_mean(X: Any, Y: Any) -> tuple[Any, Any]:
    """Tables less the mean of the rows of X, which distances do not see: squares of large numbers would hide them.

    Sparse tables would become dense, and stay as they are.
    """
    if sp.issparse(X) or sp.issparse(Y):
        return X, Y
    mean = X.mean(axis=0, dtype=np.float64)
    return (X - mean).astype(X.dtype), None if Y is None else (Y - mean).astype(Y.dtype)


def check_exponents(table: Any, length_scale: float, advice: str) -> None:
    """Refuse rows whose exponential kernel does not fit into float64."""
    with np.errstate(over="ignore"):
        largest = float(np.max(row_norms(table.astype(np.float64), squared=True))) / length_scale**2
    if largest > np.log(np.finfo(np.float64).max):
        raise ValueError(
            f"X: expected rows whose kernel fits into float64, got exp({largest:.4g}); scale the rows, or use {advice}"
        )


def positive(name: str, value: Any) -> float:
    """A positive number."""
    checked = number(name, value)
    if not 0 < checked < np.inf:
        raise ValueError(f"{name}: expected a positive number, got {value}")
    return checked


def within(name: str, value: Any, limits: tuple[float, float]) -> float:
    """A positive number within limits."""
    checked = positive(name, value)
    if not limits[0] <= checked <= limits[1]:
        raise ValueError(f"{name}: expected a number from {limits[0]:g} to {limits[1]:g}, got {value}")
    return checked


def mean_norm(table: Any) -> float:
    """The root mean square of the norms of rows, as a length scale: 1 for rows of zeros."""
    norm = (mean_square(table) * table.shape[1]) ** 0.5 or 1.0
    if not LENGTH_SCALES[0] <= norm <= LENGTH_SCALES[1]:
        raise ValueError(
            f"X: expected a mean norm of rows from {LENGTH_SCALES[0]:g} to {LENGTH_SCALES[1]:g} as the length scale, "
            f"got {norm:.4g}; scale the rows"
        )
    return norm


def numbers(name: str, values: Any) -> list[float]:
    """A list of real numbers."""
    if values is None:
        raise ValueError(f"{name}: expected numbers, one for every power from 0 on, got None")
    try:
        return [number(name, value) for value in np.asarray(values, dtype=np.float64).ravel().tolist()]
    except (TypeError, ValueError):
        raise TypeError(f"{name}: expected numbers, got {values!r}") from None
