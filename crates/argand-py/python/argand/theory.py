"""The theorems of the paper as functions: the error to expect of a sketch.

Functions of pairs take two tables ``x`` and ``y`` with a pair in each row and return an array with one number per pair,
or take two single rows and return one number. Everything is computed in float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from . import _argand
from ._arguments import check_table, check_tables, common_precision, integer, native, number, text, threads_of

__all__ = [
    "Order",
    "gaussian_advantage",
    "kernel_error",
    "matrix_product_features",
    "moment_constant",
    "norm_rows",
    "pseudo_variance",
    "rademacher_advantage",
    "spectral_error",
    "spectral_features",
    "statistical_dimension",
    "variance",
]


class Order(NamedTuple):
    """The two terms of D = O(max(...)), without the constant that the paper leaves open."""

    quadratic: float
    """The term in epsilon ** -2."""
    linear: float
    """The term in epsilon ** -1."""

    @property
    def expression(self) -> float:
        """The larger of the two."""
        return max(self)


def _pairs(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray, bool]:
    """Two tables of float64, and whether they were single rows."""
    single = np.ndim(x) == 1 and np.ndim(y) == 1
    if single:
        x, y = np.asarray(x)[None], np.asarray(y)[None]
    tables = []
    for name, table in (("x", x), ("y", y)):
        table = check_table(table, name=name)
        tables.append(native(table if isinstance(table, np.ndarray) else table.toarray(), np.float64))
    return *tables, single


def _spec(dims: list[int], distinct: bool, degree: Any, n_components: Any, method: Any, gamma: Any, coef0: Any) -> str:
    return _argand.spec(
        dims=dims,
        distinct=distinct,
        degree=integer("degree", degree),
        gamma=number("gamma", gamma),
        coef0=number("coef0", coef0),
        n_components=integer("n_components", n_components),
        method=text("method", method),
        craft_dim=32768,
        seed=0,
    )


def _moment(place: int, x: Any, y: Any, **keywords: Any) -> Any:
    x, y, single = _pairs(x, y)
    found = _argand.moments(_spec([x.shape[1]], False, **keywords), [x], [y])
    if found is None:
        raise ValueError(
            f"method: no closed form is known for {keywords['method']}; a sketch's expected_error measures it"
        )
    return float(found[place][0]) if single else found[place]


def variance(
    x: Any,
    y: Any,
    *,
    degree: int,
    n_components: int,
    method: str = "ctr-product-srht",
    gamma: float = 1.0,
    coef0: float = 0.0,
) -> Any:
    """The variance of the kernel estimate of pairs of rows, over sketches.

    Parameters
    ----------
    x, y : array-like of shape (n_pairs, n_features), or (n_features,)
        The pairs, row by row.
    degree, gamma, coef0 : int and float
        The kernel.
    n_components : int
        The number of features.
    method : str, default="ctr-product-srht"
        Any with a closed form: not CRAFT, ``srf`` or chains, nor, from degree 3, ``hierarchical-`` except Gaussian.

    Returns
    -------
    variance : ndarray of shape (n_pairs,), or float
        E|k̂ - k|² for the estimate k̂ of the kernel k.

    References
    ----------
    Table 1 and Eq. 7 of the paper; for TensorSketch and trees, ``docs/math.md``.

    Examples
    --------
    >>> import argand
    >>> argand.variance([1, 0], [1, 0], degree=2, n_components=10, method="gaussian")  # (3² - 1) / 10
    0.8
    >>> argand.variance([[1, 1], [1, 0]], [[1, 0], [1, 1]], degree=1, n_components=4, method="rademacher")
    array([0.25, 0.25])
    """
    keywords = {"degree": degree, "n_components": n_components, "method": method, "gamma": gamma, "coef0": coef0}
    return _moment(1, x, y, **keywords)


def pseudo_variance(
    x: Any,
    y: Any,
    *,
    degree: int,
    n_components: int,
    method: str = "complex-product-srht",
    gamma: float = 1.0,
    coef0: float = 0.0,
) -> Any:
    """E(k̂ - k)² for the estimate k̂ of the kernel k, without a modulus: the variance except for ``complex-`` methods.

    A Complex-to-Real sketch has half the sum of variance and pseudo-variance of the complex one. Parameters are those
    of :func:`variance`.

    Examples
    --------
    >>> from argand.theory import pseudo_variance
    >>> pseudo_variance([1, 0], [1, 0], degree=1, n_components=8, method="complex-gaussian")  # (2 - 1) / 4
    0.25
    """
    keywords = {"degree": degree, "n_components": n_components, "method": method, "gamma": gamma, "coef0": coef0}
    return _moment(2, x, y, **keywords)


def _advantage(method: str, x: Any, y: Any, degree: Any, n_components: Any, gamma: Any, coef0: Any) -> Any:
    x, y, single = _pairs(x, y)
    found = _argand.advantage(_spec([x.shape[1]], False, degree, n_components, method, gamma, coef0), x, y)
    return float(found[0]) if single else found


def rademacher_advantage(
    x: Any, y: Any, *, degree: int, n_components: int, gamma: float = 1.0, coef0: float = 0.0
) -> Any:
    """How much lower the variance of ``ctr-rademacher`` is than that of ``rademacher`` (Theorem 3.4).

    Negative where it is higher. Parameters are those of :func:`variance`.

    Examples
    --------
    >>> from argand import theory
    >>> theory.rademacher_advantage([1, 2], [2, 1], degree=2, n_components=8)
    34.0
    """
    return _advantage("rademacher", x, y, degree, n_components, gamma, coef0)


def gaussian_advantage(
    x: Any, y: Any, *, degree: int, n_components: int, gamma: float = 1.0, coef0: float = 0.0
) -> Any:
    """How much lower the variance of ``ctr-gaussian`` is than that of ``gaussian`` (Theorem 3.5). Never negative.

    Parameters are those of :func:`variance`.

    Examples
    --------
    >>> from argand import theory
    >>> theory.gaussian_advantage([1, 0], [1, 0], degree=2, n_components=2)
    1.0
    """
    return _advantage("gaussian", x, y, degree, n_components, gamma, coef0)


def moment_constant(method: str, t: float) -> float:
    """The constant C of Lemma 3.1: the t-th moment of one projection of a unit vector is at most C ** t.

    Parameters
    ----------
    method : {"gaussian", "rademacher", "complex-gaussian", "complex-rademacher"}
    t : float
        At least 2.

    Examples
    --------
    >>> from argand import theory
    >>> round(theory.moment_constant("gaussian", 4) ** 4, 10)
    3.0
    >>> round(theory.moment_constant("complex-rademacher", 4) ** 4, 10)
    2.0
    """
    return _argand.moment_constant(text("method", method), number("t", t))


def norm_rows(method: str, *, degree: int, epsilon: float, delta: float) -> Order:
    """The order of the size that keeps norms up to a factor 1 ± epsilon with probability 1 - delta (Theorem 3.2).

    An order compares sketches and shows how the need grows; it is not a number of features to use. For that, see
    :func:`argand.plan`.

    Parameters
    ----------
    method : str
        A method; only whether it is real, ``complex-`` or ``ctr-`` matters.
    degree : int
    epsilon : float
        Positive.
    delta : float
        Below exp(-2).

    Examples
    --------
    >>> from argand import theory
    >>> real = theory.norm_rows("gaussian", degree=4, epsilon=0.1, delta=0.05).quadratic
    >>> real / theory.norm_rows("ctr-gaussian", degree=4, epsilon=0.1, delta=0.05).quadratic  # (3/2)⁴
    5.0625...
    """
    return _guarantee("norm", method, degree, epsilon, delta)


def matrix_product_features(method: str, *, degree: int, epsilon: float, delta: float) -> Order:
    """The order of features that keeps matrix products up to epsilon times the Frobenius norms (Corollary 3.3).

    Parameters are those of :func:`norm_rows`.
    """
    return _guarantee("matrix product", method, degree, epsilon, delta)


def spectral_features(method: str, *, degree: int, epsilon: float, delta: float, statistical_dimension: float) -> Order:
    """The order of features that keeps the spectrum of K + alpha I (Eq. 6 of the paper).

    It depends on the :func:`statistical_dimension` of K. The other parameters are those of :func:`norm_rows`.
    """
    return _guarantee(
        "spectrum", method, degree, epsilon, delta, number("statistical_dimension", statistical_dimension)
    )


def _guarantee(of: str, method: Any, degree: Any, epsilon: Any, delta: Any, dimension: float = 0.0) -> Order:
    numbers = number("epsilon", epsilon), number("delta", delta), dimension
    return Order(*_argand.guarantee(of, text("method", method), integer("degree", degree), *numbers))


def statistical_dimension(K: Any, alpha: float) -> float:
    """Tr K (K + alpha I)⁻¹ of a kernel matrix.

    Parameters
    ----------
    K : array-like of shape (n, n)
        Symmetric and positive semi-definite.
    alpha : float
        At least 0; at 0 it is the rank.

    Examples
    --------
    >>> from argand import theory
    >>> theory.statistical_dimension([[3, 0], [0, 1]], 1)  # 3/4 + 1/2
    1.25
    """
    return _argand.statistical_dimension(_matrix("K", K), number("alpha", alpha))


def spectral_error(K: Any, approximation: Any, alpha: float) -> float:
    """The smallest e with (1 - e)(K + alpha I) ≤ approximation + alpha I ≤ (1 + e)(K + alpha I) (Eq. 6 of the paper).

    Parameters
    ----------
    K, approximation : array-like of shape (n, n)
        Symmetric.
    alpha : float
        Large enough for K + alpha I to be positive definite.

    Examples
    --------
    >>> from argand import theory
    >>> round(theory.spectral_error([[1, 0], [0, 1]], [[1.5, 0], [0, 1]], 1), 12)
    0.25
    """
    return _argand.spectral_error(_matrix("K", K), _matrix("approximation", approximation), number("alpha", alpha))


def _matrix(name: str, matrix: Any) -> np.ndarray:
    matrix = check_table(matrix, name=name)
    if not isinstance(matrix, np.ndarray):
        matrix = matrix.toarray()
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name}: expected a square matrix, got the shape {matrix.shape}")
    return native(matrix, np.float64)


def kernel_error(
    X: Any, Z: Any, *, degree: int | None = None, gamma: float = 1.0, coef0: float = 0.0, n_jobs: int | None = None
) -> float:
    """The relative Frobenius error of the kernel matrix of any features, from Argand or elsewhere.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features), or a list of them
        The rows, or one table per factor of a tensor product.
    Z : array-like of shape (n_samples, n_components)
        Their real features.
    degree : int, default=None
        Degree of the kernel. The default is 2 for one table, and the number of tables for a list.
    gamma, coef0 : float, default=1.0 and 0.0
        The other parameters of the kernel.
    n_jobs : int or None, default=None
        The number of threads, as in :class:`argand.PolynomialSketch`.

    Returns
    -------
    error : float
        ``norm(Z @ Z.T - K) / norm(K)``, computed in blocks.

    Examples
    --------
    >>> import numpy as np
    >>> from argand import theory
    >>> X = np.eye(3)
    >>> theory.kernel_error(X, X, degree=2), theory.kernel_error(X, 2 * X, degree=2)
    (0.0, 3.0)
    """
    tables, distinct = check_tables(X)
    if degree is None:
        degree = len(tables) if distinct else 2
    Z = check_table(Z, name="Z")
    if not isinstance(Z, np.ndarray):
        Z = Z.toarray()
    if Z.shape[0] != tables[0].shape[0]:
        raise ValueError(f"Z: expected {tables[0].shape[0]} rows, as X, got {Z.shape[0]}")
    spec = _spec([table.shape[1] for table in tables], distinct, degree, Z.shape[1], "gaussian", gamma, coef0)
    dtype = common_precision([*tables, Z])
    return _argand.kernel_error(spec, [native(table, dtype) for table in tables], native(Z, dtype), threads_of(n_jobs))
