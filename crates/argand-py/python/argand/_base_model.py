"""What all models share: sums over rows, targets and classes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial, wraps
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

from . import _argand
from ._arguments import (
    all_or_nothing,
    check_table,
    integer,
    is_dask,
    native,
    number,
    numpy_labels,
    seed_of,
    text,
    threads_of,
)
from ._base_sketch import check_directions, fit_spec, make_spec

# Messages have at most so many names of columns.
MOST_NAMES = 8


def lazy_on_dask(result: Callable[[Any], tuple[tuple[int, ...], Any]]) -> Callable[..., Any]:
    """A method that gives something for every row: for collections of Dask it is called later, on every block.

    ``result`` gives the shape and the type of what it says about a row.
    """

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def called(self: Any, X: Any, **keywords: Any) -> Any:
            if not is_dask(X):
                return method(self, X, **keywords)
            from .dask import DaskTable, call_on_blocks

            self._learnt()
            DaskTable.checked(self, X, reset=False)
            return call_on_blocks(self, method.__name__, X, *result(self), **keywords)

        return called

    return decorate


class BaseModel(BaseEstimator):
    """A model solved from sums over rows, which are collected in one pass and can grow at any time."""

    # The kind of sums to keep: "values", "classes" or "classes apart".
    _targets = "values"
    _fewest_rows = 1
    _sketch: _argand.Sketch
    _gram: _argand.Gram
    _model: _argand.Model | None
    _n_columns: int
    # Memory to work in, where there are many fits.
    _scratch: _argand.Scratch | None = None

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

    @all_or_nothing
    def fit(self, X: Any, y: Any):
        """Learn from rows and their targets, in one pass.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The rows. A Dask array or data frame is summed up by its workers, block by block.
        y : array-like of shape (n_samples,)
            Their classes or numbers; the regressors also take several columns of numbers. With rows of Dask, an array,
            series or data frame of Dask in the same blocks.

        Returns
        -------
        self
        """
        table, labels = self._check_training(X, y, reset=True, classes=None)
        sketch = self._draw(table)
        gram = self._sum_up(sketch, table, labels)
        if gram.rows < self._fewest_rows:
            fewest = f"{self._fewest_rows} row{'s' * (self._fewest_rows > 1)}"
            raise ValueError(f"X: expected at least {fewest}, got {gram.rows}")
        self._sketch, self._gram = sketch, gram
        self._model = None
        self._learnt()
        return self

    def _check_training(self, X: Any, y: Any, *, reset: bool, classes: Any) -> tuple[Any, np.ndarray]:
        threads_of(self.n_jobs)
        self._check_parameters()
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        if is_dask(X) or is_dask(y):
            return self._check_dask(X, y, reset=reset, classes=classes)
        keywords = {"reset": reset, "ensure_min_samples": self._fewest_rows if reset else 1}
        # The compiled part checks for NaN and infinity.
        table = check_table(X, partial(validate_data, self, **keywords), finite=False)
        labels = self._check_labels(y, reset=reset, classes=classes)
        if len(labels) != table.shape[0]:
            raise ValueError(f"y: expected {table.shape[0]} rows, as X, got {len(labels)}")
        return table, labels

    def _check_dask(self, X: Any, y: Any, *, reset: bool, classes: Any) -> tuple[Any, Any]:
        """As ``_check_training``, for collections of Dask: workers check rows and labels when they sum them up."""
        from .dask import DaskTable, classes_of, labels_of, pairs_of

        table = DaskTable.checked(self, X, reset=reset)
        labels, pairs = labels_of(y), pairs_of(X, y)
        if self._targets == "values":
            some = np.zeros((2, *labels.shape[1:]))
        else:
            known = unique_labels(classes) if classes is not None else None if reset else self.classes_
            # Twice: scikit-learn warns of classes that have one row.
            some = np.repeat(classes_of(labels) if known is None else known, 2)
        self._check_labels(some, reset=reset, classes=classes)
        return table, pairs

    def _check_parameters(self) -> None:
        raise NotImplementedError

    def _check_labels(self, y: Any, *, reset: bool, classes: Any) -> np.ndarray:
        """Classes as numbers from 0, or a table of targets."""
        raise NotImplementedError

    def _draw(self, table: Any) -> _argand.Sketch:
        parameters, seed = self._parameters(), seed_of(self.random_state)
        if "complex-" in parameters["method"]:
            raise ValueError(f"method: expected a method with real features, got {parameters['method']!r}")
        spec = make_spec([table.shape[1]], False, self.n_components, seed, parameters)
        sketch = _argand.Sketch(fit_spec(spec, table, self.n_jobs))
        sketch.draw(True, threads_of(self.n_jobs))
        self.seed_ = seed
        return sketch

    def _blocks(self, sketch: _argand.Sketch, table: Any) -> Iterator[tuple[slice, np.ndarray]]:
        """Features in float32, block by block."""
        threads = threads_of(self.n_jobs)
        for rows, part in self._parts(sketch, table):
            block = np.empty((rows.stop - rows.start, sketch.features), np.float32)
            sketch.transform_block(part, block, threads, rows.start)
            yield rows, block

    def _parts(self, sketch: _argand.Sketch, table: Any) -> Iterator[tuple[slice, Any]]:
        """Rows in float32, as the compiled part reads them, block by block."""
        if sketch.method == "srf":
            check_directions(table)
        check_single_precision(table)
        for start in range(0, table.shape[0], sketch.block_rows):
            rows = slice(start, min(start + sketch.block_rows, table.shape[0]))
            yield rows, native(table[rows], np.float32)

    def _no_sums(self, sketch: _argand.Sketch) -> _argand.Gram:
        return _argand.Gram.empty(sketch.spec, self._targets, self._n_columns)

    def _sum_up(self, sketch: _argand.Sketch, table: Any, labels: Any) -> _argand.Gram:
        if is_dask(labels):
            from .dask import sum_up

            return sum_up(self, sketch, labels)
        gram = self._no_sums(sketch)
        threads = threads_of(self.n_jobs)
        for rows, part in self._parts(sketch, table):
            gram.learn(sketch, part, np.ascontiguousarray(labels[rows]), threads, rows.start, self._scratch)
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
            self._gram = self._gram.merged(gram, threads_of(self.n_jobs))
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

    def _true_and_predicted(self, X: Any, y: Any) -> tuple[Any, Any]:
        """The targets of rows of Dask, in memory."""
        from .dask import labels_of

        return sys.modules["dask"].compute(labels_of(y), self.predict(X))

    def merge(self, other: Any):
        """Learn what another model has learnt from other rows, as if all had come at once (up to rounding).

        Both models need the same sketch: the same parameters of the kernel and the features and, unless one is a copy
        of the other, the same integer ``random_state``. The columns of their rows, if both know the names of theirs,
        and their classes must be the same, in the same order. Other parameters stay those of this model.

        Parameters
        ----------
        other : a fitted model of the same class
            It stays as it is. The caller sees to it that no rows are counted twice.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        if type(other) is not type(self):
            raise TypeError(f"other: expected a {type(self).__name__}, got {type(other).__name__}")
        check_is_fitted(other)
        names, other_names = (getattr(model, "feature_names_in_", None) for model in (self, other))
        if names is not None and other_names is not None and list(names) != list(other_names):
            expected, got = differing_names(list(names), list(other_names))
            raise ValueError(f"other: expected a model of the columns {expected}, got {got}")
        classes = [getattr(model, "classes_", None) for model in (self, other)]
        if not np.array_equal(*classes):
            raise ValueError(f"other: expected the classes {classes[0]!r}, got {classes[1]!r}")
        self._gram = self._gram.merged(other._gram, threads_of(self.n_jobs))
        if names is None and other_names is not None:
            self.feature_names_in_ = other_names
        self._model = None
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_gram")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class BaseRegressor(RegressorMixin, BaseModel):
    def _check_labels(self, y: Any, *, reset: bool, classes: Any) -> np.ndarray:
        try:
            y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        except (TypeError, ValueError) as error:
            raise type(error)(f"y: {error}") from None
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        table = y.reshape(len(y), -1)
        if reset:
            self._n_columns, self._is_single = table.shape[1], y.ndim == 1
        elif table.shape[1] != self._n_columns:
            raise ValueError(f"y: expected {self._n_columns} columns, as before, got {table.shape[1]}")
        return np.require(table, requirements=["C", "A"])

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values[:, 0] if self._is_single else values

    def _of_row(self) -> tuple[tuple[int, ...], Any]:
        return () if self._is_single else (self._n_columns,), np.float64

    @lazy_on_dask(_of_row)
    def predict(self, X: Any) -> Any:
        """Predict the targets of rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Or a Dask array or data frame.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_targets)
            A Dask array for rows of Dask.
        """
        check_is_fitted(self)
        return self._shaped(self._means(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The coefficient of determination R² of predictions.

        Parameters
        ----------
        X, y : as in fit
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        score : float
        """
        if is_dask(X):
            return r2_score(*self._true_and_predicted(X, y), sample_weight=sample_weight)
        return super().score(X, y, sample_weight)

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
        y = column_or_1d(exact_labels(y), warn=True)
        if y.dtype.kind in "fc" and not np.isfinite(y).all():
            raise ValueError("y: expected classes, got NaN or infinity")
        if reset:
            check_classification_targets(y)
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

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows whose class is predicted.

        Parameters
        ----------
        X, y : as in fit
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        score : float
        """
        if is_dask(X):
            return float(accuracy_score(*self._true_and_predicted(X, y), sample_weight=sample_weight))
        return super().score(X, exact_labels(y), sample_weight)

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


def exact_labels(y: Any) -> Any:
    """Labels of which scikit-learn does not make float64, as it does of integers and booleans of pandas' own types."""
    pandas = sys.modules.get("pandas")
    kinds = () if pandas is None else (pandas.Series, pandas.DataFrame, pandas.api.extensions.ExtensionArray)
    return numpy_labels(y) if isinstance(y, kinds) and not np.any(pandas.isna(y)) else y


def differing_names(*lists: list[str]) -> list[str]:
    """Two lists of names that differ, in words: of long ones, some from the first difference on."""
    first = next((at for at, pair in enumerate(zip(*lists)) if pair[0] != pair[1]), min(map(len, lists)))
    start = first if max(map(len, lists)) > MOST_NAMES else 0
    shown = [names[start : start + MOST_NAMES] for names in lists]
    return [
        ", ".join(["..."] * (start > 0) + some + ["..."] * (start + len(some) < len(names)))
        for names, some in zip(lists, shown)
    ]


def check_single_precision(table: Any) -> None:
    """Refuse numbers that are finite, but not in float32."""
    if table.dtype == np.float32 or not table.size:
        return
    largest = max(-table.min(), table.max())
    if np.isfinite(largest) and largest > np.finfo(np.float32).max:
        raise ValueError("X: expected numbers that fit into float32, in which models compute")
