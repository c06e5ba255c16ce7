"""Models on sketches, as scikit-learn estimators."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

from . import _argand
from ._arguments import all_or_nothing, check_table, integer, native, number, seed_of, text, threads_of
from ._sketches import check_directions, make_spec


class BaseModel(BaseEstimator):
    """A model solved from sums over rows, which are collected in one pass and can grow at any time."""

    # The kind of sums to keep: "values", "classes" or "classes apart".
    _targets = "values"
    _fewest_rows = 1
    _sketch: _argand.Sketch
    _gram: _argand.Gram
    _model: _argand.Model | None
    _n_columns: int

    def _parameters(self) -> dict[str, Any]:
        return {
            "degree": integer("degree", self.degree),
            "gamma": number("gamma", self.gamma),
            "coef0": number("coef0", self.coef0),
            "method": text("method", self.method),
            "craft_dim": integer("craft_dim", self.craft_dim),
        }

    def _solve(self) -> _argand.Model:
        """The model for the sums so far."""
        raise NotImplementedError

    def _columns(self, y: np.ndarray) -> int:
        """Number of target columns, or of classes."""
        raise NotImplementedError

    @all_or_nothing
    def fit(self, X: Any, y: Any):
        """Learn from rows and their targets, in one pass.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The rows.
        y : array-like of shape (n_samples,)
            Their classes or numbers; the regressors also take several columns of numbers.

        Returns
        -------
        self
        """
        table, labels = self._check_training(X, y, reset=True, classes=None)
        sketch = self._draw(table)
        gram = self._sum_up(sketch, table, labels)
        self._sketch, self._gram = sketch, gram
        self._model = None
        self._learnt()
        return self

    def _check_training(self, X: Any, y: Any, *, reset: bool, classes: Any) -> tuple[Any, np.ndarray]:
        threads_of(self.n_jobs)
        self._check_parameters()
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        keywords = {"reset": reset, "ensure_min_samples": self._fewest_rows if reset else 1}
        # The compiled part checks for NaN and infinity.
        table = check_table(X, partial(validate_data, self, **keywords), finite=False)
        labels = self._check_labels(y, reset=reset, classes=classes)
        if len(labels) != table.shape[0]:
            raise ValueError(f"y: expected {table.shape[0]} rows, as X, got {len(labels)}")
        return table, labels

    def _check_parameters(self) -> None:
        raise NotImplementedError

    def _check_labels(self, y: Any, *, reset: bool, classes: Any) -> np.ndarray:
        """Classes as numbers from 0, or a table of targets."""
        raise NotImplementedError

    def _draw(self, table: Any) -> _argand.Sketch:
        parameters, seed = self._parameters(), seed_of(self.random_state)
        if "complex-" in parameters["method"]:
            raise ValueError(f"method: expected a method with real features, got {parameters['method']!r}")
        sketch = _argand.Sketch(make_spec([table.shape[1]], False, self.n_components, seed, parameters))
        sketch.draw(True)
        self.seed_ = seed
        return sketch

    def _blocks(self, sketch: _argand.Sketch, table: Any) -> Iterator[tuple[slice, np.ndarray]]:
        """Features in float32, block by block."""
        if self.method == "srf":
            check_directions(table)
        check_single_precision(table)
        features, step = sketch.features, sketch.block_rows
        threads = threads_of(self.n_jobs)
        for start in range(0, table.shape[0], step):
            rows = slice(start, min(start + step, table.shape[0]))
            block = np.empty((rows.stop - start, features), np.float32)
            sketch.transform([native(table[rows], np.float32)], block, False, threads, start)
            yield rows, block

    def _sum_up(self, sketch: _argand.Sketch, table: Any, labels: np.ndarray) -> _argand.Gram:
        gram = _argand.Gram.empty(sketch.spec, self._targets, self._columns(labels))
        for rows, features in self._blocks(sketch, table):
            gram.update(features, np.ascontiguousarray(labels[rows]), threads_of(self.n_jobs))
        return gram

    @all_or_nothing
    def _partial_fit(self, X: Any, y: Any, classes: Any = None):
        first = not hasattr(self, "_gram")
        table, labels = self._check_training(X, y, reset=first, classes=classes)
        sketch = self._draw(table) if first else self._sketch
        # All rows count or, after an error or an interrupt, none.
        gram = self._sum_up(sketch, table, labels)
        if first:
            self._sketch, self._gram = sketch, gram
        else:
            self._gram.merge(gram)
        self._model = None
        return self

    def _learnt(self) -> _argand.Model:
        """The model; after partial_fit it is solved when first needed."""
        check_is_fitted(self, "_gram")
        if self._model is None:
            self._model = self._solve()
        return self._model

    def _on_blocks(self, X: Any, compute: Any) -> list[Any]:
        """Apply a function to the features of every block of rows."""
        model = self._learnt()
        table = check_table(X, partial(validate_data, self, reset=False), finite=False)
        threads = threads_of(self.n_jobs)
        return [compute(model, features, threads) for _, features in self._blocks(self._sketch, table)]

    def _means(self, X: Any) -> np.ndarray:
        means = self._on_blocks(X, lambda model, features, threads: model.means(features, threads))
        return np.concatenate(means).reshape(-1, self._n_columns)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_gram")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class BaseRegressor(RegressorMixin, BaseModel):
    def _check_labels(self, y: Any, *, reset: bool, classes: Any) -> np.ndarray:
        y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        table = y.reshape(len(y), -1)
        if reset:
            self._n_columns, self._is_single = table.shape[1], y.ndim == 1
        elif table.shape[1] != self._n_columns:
            raise ValueError(f"y: expected {self._n_columns} columns, as before, got {table.shape[1]}")
        return np.require(table, requirements=["C", "A"])

    def _columns(self, y: np.ndarray) -> int:
        return y.shape[1]

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values[:, 0] if self._is_single else values

    def predict(self, X: Any) -> np.ndarray:
        """Predict the targets of rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_targets)
        """
        check_is_fitted(self)
        return self._shaped(self._means(X))

    def partial_fit(self, X: Any, y: Any):
        """Learn from more rows, exactly as if all had come at once (up to rounding).

        The first call draws the sketch. The model is solved when it is next needed.

        Parameters
        ----------
        X, y : as in fit

        Returns
        -------
        self
        """
        return self._partial_fit(X, y)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class BaseClassifier(ClassifierMixin, BaseModel):
    def _check_labels(self, y: Any, *, reset: bool, classes: Any) -> np.ndarray:
        y = column_or_1d(y, warn=True)
        if y.dtype.kind in "fc" and not np.isfinite(y).all():
            raise ValueError("y: expected classes, got NaN or infinity")
        check_classification_targets(y)
        if reset:
            found = np.unique(y) if classes is None else unique_labels(classes)
            if len(found) < 2:
                raise ValueError(f"y: expected at least 2 classes, got {len(found)} class: {found!r}")
            self.classes_ = found
        elif classes is not None and not np.array_equal(unique_labels(classes), self.classes_):
            raise ValueError(f"classes: expected those of the first call, {self.classes_!r}, got {classes!r}")
        self._n_columns = len(self.classes_)
        places = np.searchsorted(self.classes_, y).clip(0, len(self.classes_) - 1)
        unknown = y[self.classes_[places] != y]
        if len(unknown):
            raise ValueError(f"y: expected classes {self.classes_!r}, got {unknown[0]!r}")
        return places.astype(np.uint32)

    def _columns(self, y: np.ndarray) -> int:
        return len(self.classes_)

    def partial_fit(self, X: Any, y: Any, classes: Any = None):
        """Learn from more rows, exactly as if all had come at once (up to rounding).

        The first call draws the sketch. The model is solved when it is next needed.

        Parameters
        ----------
        X, y : as in fit
        classes : array-like of shape (n_classes,), default=None
            All classes to expect, in the first call; by default those in its y.

        Returns
        -------
        self
        """
        return self._partial_fit(X, y, classes)


def check_single_precision(table: Any) -> None:
    """Refuse numbers that are finite, but not in float32."""
    if table.dtype == np.float32 or not table.size:
        return
    largest = max(-table.min(), table.max())
    if np.isfinite(largest) and largest > np.finfo(np.float32).max:
        raise ValueError("X: expected numbers that fit into float32, in which models compute")


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
        coef0: float = 0.0,
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
        """Weights of the features, one row per target or class."""
        model: Any = self._learnt()
        return model.coefficients[0].reshape(self._n_columns, -1)

    @property
    def intercept_(self) -> np.ndarray:
        """One number per target or class."""
        model: Any = self._learnt()
        return model.coefficients[1]


class Ridge(BaseRidge, BaseRegressor):
    """Ridge regression on a sketch: polynomial regression for any number of rows.

    Minimises ``sum((y - z @ w - b) ** 2) + alpha * w @ w`` for the features z of :class:`PolynomialSketch`. Only
    sums of products of features are kept, so rows may come in any number of parts, with ``partial_fit``.

    Parameters
    ----------
    degree, gamma, coef0, method, craft_dim, random_state, n_jobs
        Those of :class:`PolynomialSketch`.
    n_components : int, default=1000
        The number of features D, rounded up to an even number for ``ctr-`` methods.
    alpha : float, default=1.0
        The penalty on weights, at least 0; 0 gives the smallest weights among the best fits.

    Attributes
    ----------
    coef_ : ndarray of shape (n_targets, D)
    intercept_ : ndarray of shape (n_targets,)
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
    degree, gamma, coef0, method, craft_dim, random_state, n_jobs
        Those of :class:`PolynomialSketch`.
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

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of classes; for two classes, that of the second.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes), or (n_samples,) for two classes
        """
        check_is_fitted(self)
        scores = self._means(X)
        return scores[:, 1] if self._n_columns == 2 else scores

    def predict(self, X: Any) -> np.ndarray:
        """The class of every row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

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
    degree, gamma, coef0, method, craft_dim, random_state, n_jobs
        Those of :class:`PolynomialSketch`.
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
        coef0: float = 0.0,
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

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of classes: the softmax averaged over 1,000 draws of the latent functions.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        found = self._on_blocks(X, lambda model, features, threads: model.probabilities(features, threads))
        return np.concatenate(found).reshape(-1, self._n_columns)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of every row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        y : ndarray of shape (n_samples,)
        """
        places = self.predict_proba(X).argmax(axis=1)
        return self.classes_[places]


class GPRegressor(BaseProcess, BaseRegressor):
    """Gaussian process regression on a sketch, with standard deviations.

    Parameters
    ----------
    degree, gamma, coef0, method, craft_dim, random_state, n_jobs
        Those of :class:`PolynomialSketch`.
    n_components : int, default=1000
        The number of features D, rounded up to an even number for ``ctr-`` methods.
    alpha : float, default=None
        The noise variance.
    kernel_variance : float, default=None
        The factor of the kernel. If either variance is missing, both maximise the marginal likelihood.

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
        coef0: float = 0.0,
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
        if (self.alpha is None) != (self.kernel_variance is None):
            given, other = ("kernel_variance", "alpha") if self.alpha is None else ("alpha", "kernel_variance")
            message = f"{given}: not used without {other}; both are chosen by the marginal likelihood"
            warnings.warn(message, UserWarning, stacklevel=4)

    def _solve(self) -> _argand.Model:
        given = None if self.alpha is None or self.kernel_variance is None else (self.kernel_variance, self.alpha)
        return self._gram.gp_regressor(given, threads_of(self.n_jobs))

    @property
    def alpha_(self) -> float:
        """The noise variance used."""
        return self._learnt().settings["noise"]

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the targets of rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
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
        found = self._on_blocks(X, lambda model, features, threads: model.means_and_variances(features, threads))
        means, variances = (np.concatenate(parts).reshape(-1, self._n_columns) for parts in zip(*found))
        return self._shaped(means), self._shaped(np.sqrt(variances.clip(0)))
