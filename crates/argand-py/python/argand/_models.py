"""Models on sketches, as scikit-learn estimators.

Pickles name this module, so public classes stay here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from . import _argand
from ._arguments import is_dask, number, threads_of
from ._base_model import BaseClassifier, BaseModel, BaseRegressor, lazy_on_dask


def check_positive(name: str, value: Any, *, or_zero: bool = False) -> float:
    value = number(name, value)
    if not (np.isfinite(value) and (value > 0 or (or_zero and value == 0))):
        raise ValueError(f"{name}: expected a {'number of at least 0' if or_zero else 'positive number'}, got {value}")
    return value


class BaseRidge(BaseModel):
    """Base of ridge regression and classification: parameters and weights."""

    def __init__(
        self,
        degree: int = 2,
        *,
        gamma: float = 1.0,
        coef0: float = 1.0,
        n_components: int = 1000,
        method: str = "ctr-product-srht",
        craft_dim: int = 32768,
        alpha: float = 1.0,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.n_components = n_components
        self.method = method
        self.craft_dim = craft_dim
        self.alpha = alpha
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _check_parameters(self) -> None:
        check_positive("alpha", self.alpha, or_zero=True)

    def _solve(self) -> _argand.Model:
        return self._gram.ridge(float(self.alpha), threads_of(self.n_jobs))

    @property
    def coef_(self) -> np.ndarray:
        """Weights of the features: one row per target or class, or a single one for a single target."""
        model: Any = self._learnt()
        return self._shaped_weights(model.coefficients[0].reshape(self._n_columns, -1))

    @property
    def intercept_(self) -> Any:
        """One number per target or class, or a single one for a single target."""
        model: Any = self._learnt()
        return self._shaped_weights(model.coefficients[1])

    def _shaped_weights(self, values: np.ndarray) -> Any:
        return values[0] if getattr(self, "_is_single", False) else values


class Ridge(BaseRidge, BaseRegressor):
    """Ridge regression on a sketch: polynomial regression for any number of rows.

    Minimises ``sum((y - z @ w - b) ** 2) + alpha * w @ w`` for the features z of :class:`PolynomialSketch`. Only
    sums of products of features are kept, so rows may come in any number of parts, with ``partial_fit``.

    Parameters
    ----------
    degree, gamma, method, craft_dim, random_state, n_jobs
        Those of :class:`PolynomialSketch`.
    coef0 : float, default=1.0
        The constant added to the inner product; 0 would make x and -x the same for even degrees.
    n_components : int, default=1000
        The number of features D, rounded up to an even number for ``ctr-`` methods.
    alpha : float, default=1.0
        The penalty on weights, at least 0; 0 gives the smallest weights among the best fits.

    Attributes
    ----------
    coef_ : ndarray of shape (n_targets, D), or (D,) for a one-dimensional y
    intercept_ : ndarray of shape (n_targets,), or a number for a one-dimensional y
    seed_ : int
        The seed used.
    n_features_in_ : int
        Columns seen in fit.

    Notes
    -----
    A row costs D² operations, the solution D³/3. Memory is 4 D² bytes, whatever the number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from argand import Ridge
    >>> X = np.random.default_rng(0).random((500, 5))
    >>> y = X[:, 0] * X[:, 1] - X[:, 2] ** 2
    >>> model = Ridge(degree=2, coef0=1.0, n_components=200, alpha=1e-3, random_state=0)
    >>> model.fit(X[:400], y[:400]).score(X[400:], y[400:]) > 0.99
    True
    """


class RidgeClassifier(BaseRidge, BaseClassifier):
    """Ridge classification on a sketch: regression on 1 for members of a class and -1 for others.

    Parameters
    ----------
    degree, gamma, method, craft_dim, random_state, n_jobs
        Those of :class:`PolynomialSketch`.
    coef0 : float, default=1.0
        The constant added to the inner product; 0 would make x and -x the same for even degrees.
    n_components : int, default=1000
        The number of features D, rounded up to an even number for ``ctr-`` methods.
    alpha : float, default=1.0
        The penalty on weights, as in :class:`Ridge`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (n_classes, D)
    intercept_ : ndarray of shape (n_classes,)
    seed_ : int
        The seed used.
    n_features_in_ : int
        Columns seen in fit.

    Examples
    --------
    >>> from argand import RidgeClassifier
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> X, y = load_digits(return_X_y=True)
    >>> X = normalize(X)
    >>> model = RidgeClassifier(degree=3, n_components=500, alpha=0.01, random_state=0).fit(X[:1200], y[:1200])
    >>> model.score(X[1200:], y[1200:]) > 0.93
    True
    """

    _targets = "classes"

    @lazy_on_dask(lambda self: (() if self._n_columns == 2 else (self._n_columns,), np.float64))
    def decision_function(self, X: Any) -> Any:
        """Scores of classes; for two classes, that of the second.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Or a Dask array or data frame; the result is then a Dask array.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes), or (n_samples,) for two classes
        """
        check_is_fitted(self)
        scores = self._means(X)
        return scores[:, 1] if self._n_columns == 2 else scores

    @lazy_on_dask(lambda self: ((), self.classes_.dtype))
    def predict(self, X: Any) -> Any:
        """The class of every row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Or a Dask array or data frame; the result is then a Dask array.

        Returns
        -------
        y : ndarray of shape (n_samples,)
        """
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]


class BaseProcess(BaseModel):
    """Base of Gaussian processes."""

    @property
    def kernel_variance_(self) -> float:
        """The kernel factor used."""
        return self._learnt().settings["variance"]

    @property
    def log_marginal_likelihood_(self) -> float:
        """The log marginal likelihood, summed over classes or targets."""
        return self._learnt().evidence


class GPClassifier(BaseProcess, BaseClassifier):
    """Gaussian process classification on a sketch, with probabilities.

    Classes become regression targets with their own noise (Milios et al. 2018); the kernel is that of
    :class:`PolynomialSketch` times the variance of these targets. One pass over the rows serves all classes.

    Parameters
    ----------
    degree, gamma, method, craft_dim, random_state, n_jobs
        Those of :class:`PolynomialSketch`.
    coef0 : float, default=1.0
        The constant added to the inner product; 0 would make x and -x the same for even degrees.
    n_components : int, default=1000
        The number of features D, rounded up to an even number for ``ctr-`` methods.
    alpha : float, default=0.001
        How certain labels are: classes count as 0 + alpha and 1 + alpha observations.
    kernel_variance : float, default=None
        The factor of the kernel, by default the variance of the transformed labels.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    kernel_variance_ : float
        The kernel factor used.
    log_marginal_likelihood_ : float
        Computed on the transformed labels, summed over classes.
    seed_ : int
        The seed used.
    n_features_in_ : int
        Columns seen in fit.

    Notes
    -----
    A row costs D² operations in fit, and D² per class in predict. The solution costs D³/3 per class; memory is 4 D²
    bytes per class.

    References
    ----------
    Milios, Camoriano, Michiardi, Rosasco, Filippone: Dirichlet-based Gaussian processes for large-scale calibrated
    classification. NeurIPS 2018.

    Examples
    --------
    >>> from argand import GPClassifier
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> X, y = load_digits(return_X_y=True)
    >>> X = normalize(X)
    >>> model = GPClassifier(degree=3, gamma=0.5, coef0=0.5, n_components=500, random_state=0)
    >>> model.fit(X[:1200], y[:1200]).score(X[1200:], y[1200:]) > 0.93
    True
    >>> model.predict_proba(X[1200:]).shape
    (597, 10)
    """

    _targets = "classes apart"

    def __init__(
        self,
        degree: int = 2,
        *,
        gamma: float = 1.0,
        coef0: float = 1.0,
        n_components: int = 1000,
        method: str = "ctr-product-srht",
        craft_dim: int = 32768,
        alpha: float = 0.001,
        kernel_variance: float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.n_components = n_components
        self.method = method
        self.craft_dim = craft_dim
        self.alpha = alpha
        self.kernel_variance = kernel_variance
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _check_parameters(self) -> None:
        check_positive("alpha", self.alpha)
        if self.kernel_variance is not None:
            check_positive("kernel_variance", self.kernel_variance)

    def _solve(self) -> _argand.Model:
        return self._gram.gp_classifier(float(self.alpha), self.kernel_variance, threads_of(self.n_jobs))

    @lazy_on_dask(lambda self: ((self._n_columns,), np.float64))
    def predict_proba(self, X: Any) -> Any:
        """Probabilities of classes: the softmax averaged over 1,000 draws of the latent functions.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Or a Dask array or data frame; the result is then a Dask array.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        found = self._on_blocks(X, lambda model, features, threads: model.probabilities(features, threads))
        return np.concatenate(found).reshape(-1, self._n_columns)

    @lazy_on_dask(lambda self: ((), self.classes_.dtype))
    def predict(self, X: Any) -> Any:
        """The most probable class of every row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Or a Dask array or data frame; the result is then a Dask array.

        Returns
        -------
        y : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        found = self._on_blocks(X, lambda model, features, threads: model.labels(features, threads))
        return self.classes_[np.concatenate(found)]


class GPRegressor(BaseProcess, BaseRegressor):
    """Gaussian process regression on a sketch, with standard deviations.

    Parameters
    ----------
    degree, gamma, method, craft_dim, random_state, n_jobs
        Those of :class:`PolynomialSketch`.
    coef0 : float, default=1.0
        The constant added to the inner product; 0 would make x and -x the same for even degrees.
    n_components : int, default=1000
        The number of features D, rounded up to an even number for ``ctr-`` methods.
    alpha : float, default=None
        The noise variance; by default it maximises the marginal likelihood.
    kernel_variance : float, default=None
        The factor of the kernel; by default it maximises the marginal likelihood.

    Attributes
    ----------
    alpha_, kernel_variance_ : float
        The variances used.
    log_marginal_likelihood_ : float
        Summed over targets.
    seed_ : int
        The seed used.
    n_features_in_ : int
        Columns seen in fit.

    Notes
    -----
    A row costs D² operations in fit, and D² for its standard deviation. The solution costs D³/3, or about 9 D³ with a
    search for variances. Memory is 4 D² bytes, whatever the number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from argand import GPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((500, 5))
    >>> y = X[:, 0] * X[:, 1] - X[:, 2] ** 2 + 0.05 * rng.standard_normal(500)
    >>> model = GPRegressor(degree=2, coef0=1.0, n_components=200, random_state=0).fit(X, y)
    >>> mean, std = model.predict(X, return_std=True)
    >>> 0.03 < model.alpha_**0.5 < 0.07
    True
    """

    _fewest_rows = 2

    def __init__(
        self,
        degree: int = 2,
        *,
        gamma: float = 1.0,
        coef0: float = 1.0,
        n_components: int = 1000,
        method: str = "ctr-product-srht",
        craft_dim: int = 32768,
        alpha: float | None = None,
        kernel_variance: float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.n_components = n_components
        self.method = method
        self.craft_dim = craft_dim
        self.alpha = alpha
        self.kernel_variance = kernel_variance
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _check_parameters(self) -> None:
        for name in ("alpha", "kernel_variance"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))

    def _solve(self) -> _argand.Model:
        return self._gram.gp_regressor(self.kernel_variance, self.alpha, threads_of(self.n_jobs))

    @property
    def alpha_(self) -> float:
        """The noise variance used."""
        return self._learnt().settings["noise"]

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the targets of rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Or a Dask array or data frame; the results are then Dask arrays.
        return_std : bool, default=False
            Whether to return standard deviations of the function as well; observations have ``alpha_`` more variance.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_targets)
        std : ndarray of the same shape
            Only with ``return_std``.
        """
        check_is_fitted(self)
        if not return_std:
            return super().predict(X)
        if is_dask(X):
            both = self._both(X)
            means, deviations = both[:, : self._n_columns], both[:, self._n_columns :]
            return self._shaped(means), self._shaped(deviations)
        found = self._on_blocks(X, lambda model, features, threads: model.means_and_variances(features, threads))
        means, variances = (np.concatenate(parts).reshape(-1, self._n_columns) for parts in zip(*found))
        return self._shaped(means), self._shaped(np.sqrt(variances.clip(0)))

    @lazy_on_dask(lambda self: ((2 * self._n_columns,), np.float64))
    def _both(self, X: Any) -> Any:
        """Means and standard deviations side by side, which Dask computes together."""
        return np.column_stack(self.predict(X, return_std=True))
