"""Choose a method and a number of features before sketching."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils.multiclass import type_of_target

from . import _argand
from ._arguments import check_tables, common_precision, integer, native, number, sampled, seed_of, text, threads_of
from ._base_sketch import BaseSketch
from ._kernel_sketches import DotProductSketch, GaussianSketch, NystromSketch, check_exponents, numbers, positive
from ._sketches import PolynomialSketch, TensorProductSketch

# The most rows with labels that candidates are fitted to and judged by.
LABELLED_ROWS = 16384

# The parameters of each kernel.
KERNELS = {
    "polynomial": ("degree", "gamma", "coef0"),
    "gaussian": ("gamma", "length_scale"),
    "exponential": ("length_scale",),
    "series": ("coefficients",),
}

# What the compiled part advises, and what is meant for kernels without a gamma.
INSTEAD_OF_GAMMA = {
    "exponential": {"a smaller gamma": "a larger length_scale", "a larger gamma": "a smaller length_scale"},
    "series": {"a smaller gamma": "smaller coefficients", "a larger gamma": "larger coefficients"},
}


@dataclass(frozen=True)
class Validation:
    """The error of a model on rows that it was not fitted to.

    Attributes
    ----------
    error : float
        The share of wrong classes, or the root mean squared error in standard deviations of the targets.
    standard_error : float
        Its standard error, due to the choice of rows.
    training_rows : int
        Rows that the model was fitted to.
    rows : int
        Rows on which it was judged.
    """

    error: float
    standard_error: float
    training_rows: int
    rows: int


@dataclass(frozen=True)
class Candidate:
    """One way to reach the goal of a plan.

    Attributes
    ----------
    method : str
        The name of the method.
    n_components : int
        The number of features.
    error : float
        The predicted relative error of the kernel matrix, root mean square over sketches.
    standard_error : float
        The standard error of this prediction.
    median_error : float
        The median over sketches: half of them are better.
    measured : bool
        Whether the error was measured on sketches, because no closed form is known.
    feature_seconds : float
        Seconds for the features of the plan's rows on this machine.
    fit_seconds : float
        Seconds for a least-squares fit on them.
    total_seconds : float
        Seconds for both, and for finding and drawing the map.
    memory_bytes : int
        Memory of the sketch.
    in_time : bool
        Whether it stays within the time budget.
    spec : dict
        The sketch's JSON.
    validation : Validation or None
        What a model on its features makes of labels, if it was fitted.
    """

    method: str
    n_components: int
    error: float
    standard_error: float
    median_error: float
    measured: bool
    feature_seconds: float
    fit_seconds: float
    total_seconds: float
    memory_bytes: int
    in_time: bool
    spec: dict[str, Any]
    validation: Validation | None = None

    def sketch(self) -> BaseSketch:
        """The transformer, unfitted."""
        kernel = self.spec.get("kernel", {"name": "polynomial"})["name"]
        if isinstance(self.spec["input_dim"], list):
            return TensorProductSketch._from_spec(self.spec)
        if self.method == "nystrom":
            # As the plan took them: choosing them well takes time.
            return NystromSketch._from_spec(self.spec).set_params(selection="uniform")
        return {"polynomial": PolynomialSketch, "gaussian": GaussianSketch}.get(kernel, DotProductSketch)._from_spec(
            self.spec
        )


class Plan:
    """A recommendation and its alternatives. Prints as a table.

    Attributes
    ----------
    candidates : list of Candidate
        The best first: those that were fitted by validation error, the others by total time for a target error and
        otherwise by median error.
    rows : int
        The number of rows that times are for.
    recommended : Candidate or None
        The best choice, if any stays within the budgets.
    rejected : list of (method, reason)
        Methods that cannot reach the goal.
    notes : list of str
        Remarks about these rows.
    """

    def __init__(self, text: str, table: str, unmet: str | None) -> None:
        plan = json.loads(text)
        self._table = table.rstrip("\n")
        self._json = text
        self._unmet = unmet
        self.target_error: float | None = plan["target_error"]
        self.target_n_components: int | None = plan["target_features"]
        self.time_budget: float | None = plan["time_budget"]
        self.rows: int = plan["rows"]
        self.candidates = [
            Candidate(
                method=line["spec"]["method"],
                n_components=line["spec"]["features"],
                error=line["predicted_error"],
                standard_error=line["standard_error"],
                median_error=line["median_error"],
                measured=line["measured_sketches"] is not None,
                feature_seconds=line["feature_seconds"],
                fit_seconds=line["fit_seconds"],
                total_seconds=line["total_seconds"],
                memory_bytes=line["memory_bytes"],
                in_time=line["in_time"],
                spec=line["spec"],
                validation=line["validation"] and Validation(**line["validation"]),
            )
            for line in plan["candidates"]
        ]
        place = plan["recommended"]
        self.recommended = None if place is None else self.candidates[place]
        self.rejected: list[tuple[str, str]] = [(method, reason) for method, reason in plan["rejected"]]
        self.notes: list[str] = plan["notes"]

    @property
    def best(self) -> BaseSketch:
        """The recommended sketch, unfitted."""
        if self.recommended is None:
            raise ValueError(f"plan: {self._unmet}")
        return self.recommended.sketch()

    def __repr__(self) -> str:
        return self._table

    def _repr_html_(self) -> str:
        """The plan in a notebook: charts and every method to pick and copy, as ``argand plan --report`` writes them."""
        if self.target_error is not None:
            goal = f"a relative error of {self.target_error:g}"
        elif self.target_n_components is not None:
            goal = "the features asked for"
        else:
            goal = f"a time budget of {self.time_budget:g} s"
        return _argand.plan_html(
            self._json, f"{len(self.candidates)} methods for {goal}, on these rows and this machine"
        )

    def plot(self, ax: Any = None) -> Any:
        """Plot error over total time, one point per candidate: of validation, where candidates were fitted, or of the
        kernel matrix. Needs matplotlib.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            Where to draw; a new figure if not given.

        Returns
        -------
        ax : matplotlib.axes.Axes
        """
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots(figsize=(8, 4.5), layout="constrained")[1]
        judged = any(c.validation for c in self.candidates)
        points = [
            (rank, c, *((c.validation.error, c.validation.standard_error) if c.validation else (c.median_error, 0)))
            for rank, c in enumerate(self.candidates, 1)
            if c.validation or not judged
        ]
        line = self.target_error if not judged else None
        positive = [shown for shown in [line or 0, *(error for _, _, error, _ in points)] if shown > 0]
        # A logarithmic axis has no place for 0.
        floor = min(positive) / 3 if positive else 0
        for rank, c, error, spread in points:
            place, end = max(error, floor), 1.96 * spread
            style = {"color": "tab:red" if c is self.recommended else "tab:blue", "marker": "o"}
            label = f"{rank}  {c.method}, {c.n_components}"
            ends = [[end if error > 0 else 0], [max(error + end - place, 0)]]
            ax.errorbar(c.total_seconds, place, yerr=ends, label=label, **style)
            ax.annotate(str(rank), (c.total_seconds, place), (5, 4), textcoords="offset points", fontsize=8)
        # Names beside the points would overlap.
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8, handlelength=1, frameon=False)
        ax.set(xscale="log", xlabel=f"seconds for features and fit of {self.rows} rows")
        ax.set(**{"yscale": "log"} if positive else {"ylim": (-0.05, 1)})
        ax.set_ylabel("validation error" if judged else "median relative error of the kernel matrix")
        if positive and any(error <= 0 for _, _, error, _ in points):
            ax.axhline(floor, color="gray", linewidth=0.8, linestyle=":")
            beside = {"xycoords": ax.get_yaxis_transform(), "textcoords": "offset points", "ha": "right"}
            ax.annotate("error 0", (1, floor), (-3, 3), fontsize=8, color="gray", **beside)
        if line is not None:
            ax.axhline(line, color="gray", linewidth=0.8)
        return ax


def plan(
    X: Any,
    y: Any = None,
    *,
    task: str = "auto",
    kernel: str = "polynomial",
    degree: int | None = None,
    gamma: float | str | None = None,
    coef0: float | None = None,
    length_scale: float | None = None,
    coefficients: Any = None,
    target_error: float | None = None,
    n_components: int | None = None,
    time_budget: float | None = None,
    rows: int | None = None,
    methods: list[str] | None = None,
    max_components: int = 131072,
    random_state: Any = None,
    n_jobs: int | None = None,
) -> Plan:
    """Choose a method and a number of features for the rows of X.

    Predicts the error of every method from a sample of the rows, measures its time on this machine, and recommends
    one: for a target error, the one with the shortest time for features and a least-squares fit together; within a
    time budget, the one with the lowest error; for a number of features, the fastest among those within 5 % of the
    lowest error. With labels, the best candidate of every kind is also fitted to a sample, and what it learns decides.
    Takes a few seconds, whatever the number of rows.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features), or a list of them
        The rows to sketch; a list has one table per factor of a tensor product.
    y : array-like of shape (n_samples,) or (n_samples, n_targets), default=None
        Labels: classes or numbers, as ``task`` says.
    task : {"auto", "classification", "regression"}, default="auto"
        What a model learns from the labels. "auto" takes numbers with a fraction, or in several columns, for numbers
        and all others for classes; it warns where whole numbers are more than 100 different ones and more than a tenth
        of the rows.
    kernel : {"polynomial", "gaussian", "exponential", "series"}, default="polynomial"
        ``(gamma <x, y> + coef0) ** degree``, ``exp(-|x - y|² / (2 length_scale²))``, ``exp(<x, y> / length_scale²)``,
        or the sum of ``coefficients[n] * <x, y>**n``. A parameter of another kernel is an error.
    degree : int, default=None
        Degree of a polynomial kernel. The default is 2 for one table, and the number of tables for a list.
    gamma : float or "scale", default=None
        Factor of a polynomial kernel, by default 1, or the inverse width of a gaussian one instead of
        ``length_scale``, as in :class:`GaussianSketch`.
    coef0 : float, default=None
        Constant of a polynomial kernel, by default 0.
    length_scale : float, default=None
        The width of a gaussian or exponential kernel.
    coefficients : array-like of shape (n_powers,), default=None
        Coefficients of a series.
    target_error : float, default=None
        The relative error of the kernel matrix to reach.
    n_components : int, default=None
        The number of features to use. One of this, ``target_error`` and ``time_budget`` must be given.
    time_budget : float, default=None
        The most seconds for the features of all rows and a fit on them; alone, the goal is the lowest error in them.
    rows : int, default=None
        The number of rows that times are for. By default those of X.
    methods : list of str, default=None
        Methods to choose from. By default all that suit the kernel.
    max_components : int, default=131072
        The most features to consider.
    random_state : int, RandomState, Generator or None, default=None
        The seed of the recommended sketch, and for sampling rows.
    n_jobs : int or None, default=None
        The number of threads, as in :class:`PolynomialSketch`.

    Returns
    -------
    plan : Plan
        Prints as a table; ``plan.best`` is the recommended sketch, ``plan.plot()`` a chart.

    Examples
    --------
    >>> import argand
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> methods = ["product-srht", "ctr-product-srht"]
    >>> plan = argand.plan(X / 16, degree=2, n_components=512, random_state=0, methods=methods)
    >>> sketch = plan.best.fit(X / 16)
    >>> plan.recommended.method
    'ctr-product-srht'
    >>> plan = argand.plan(X / 16, y, kernel="gaussian", length_scale=2.5, n_components=256, random_state=0)
    >>> plan.recommended.validation.error < 0.1
    True
    """
    tables, distinct = check_tables(X)
    if isinstance(y, int):
        raise TypeError(f"y: expected labels, got {y}; the degree is a keyword")
    if target_error is not None and n_components is not None:
        raise TypeError("plan: expected either target_error or n_components")
    if target_error is None and n_components is None and time_budget is None:
        raise TypeError("plan: expected target_error, n_components or time_budget")
    if isinstance(methods, str):
        raise TypeError(f"methods: expected a list of names, got {methods!r}")
    if task not in ("auto", "classification", "regression"):
        raise ValueError(f"task: expected auto, classification or regression, got {task!r}")
    if task != "auto" and y is None:
        raise ValueError(f"y: expected labels for task={task!r}, got None")
    if rows is not None and integer("rows", rows) < 1:
        raise ValueError(f"rows: expected at least 1, got {rows}")
    labels = None if y is None else check_labels(y, tables[0].shape[0], task)
    seed = seed_of(random_state)
    chosen, labels = sampled(tables, labels, seed, LABELLED_ROWS)
    dims = [table.shape[1] for table in tables]
    given = {
        "degree": degree,
        "gamma": gamma,
        "coef0": coef0,
        "length_scale": length_scale,
        "coefficients": coefficients,
    }
    parameters = kernel_parameters(kernel, tables, given, len(tables) if distinct else 2)
    spec = _argand.spec(
        dims=dims,
        distinct=distinct,
        n_components=2,
        method="gaussian" if kernel == "polynomial" else "nystrom",
        craft_dim=32768,
        seed=seed,
        **parameters,
    )
    with advising(kernel, parameters, chosen[0]):
        found = _argand.plan(
            [native(table, common_precision(chosen)) for table in chosen],
            labels,
            spec=spec,
            target_error=None if target_error is None else number("target_error", target_error),
            n_components=None if n_components is None else integer("n_components", n_components),
            methods=None if methods is None else [text("methods", method) for method in methods],
            rows=None if rows is None else integer("rows", rows),
            time_budget=None if time_budget is None else number("time_budget", time_budget),
            max_components=integer("max_components", max_components),
            population=tables[0].shape[0],
            seed=seed,
            threads=threads_of(n_jobs),
        )
    return Plan(*found)


def kernel_parameters(kernel: str, tables: list[Any], given: dict[str, Any], factors: int) -> dict[str, Any]:
    """The kernel, as keywords of a spec."""
    if text("kernel", kernel) not in KERNELS:
        raise ValueError(f"kernel: expected polynomial, gaussian, exponential or series, got {kernel!r}")
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if name not in KERNELS[kernel]:
            kernels = " or ".join(other for other, names in KERNELS.items() if name in names)
            raise ValueError(f"{name}: expected only for a {kernels} kernel, got kernel={kernel!r}")
    if kernel == "series":
        return {"coefficients": numbers("coefficients", given.get("coefficients"))}
    if kernel == "polynomial":
        return {
            "degree": integer("degree", given.get("degree", factors)),
            "gamma": number("gamma", given.get("gamma", 1.0)),
            "coef0": number("coef0", given.get("coef0", 0.0)),
        }
    if "gamma" in given and "length_scale" in given:
        raise ValueError("gamma: expected either this or length_scale")
    if "gamma" in given:
        return GaussianSketch(given["gamma"])._with_kernel(tables[0])._kernel_parameters(tables[0].shape[1])
    if "length_scale" not in given:
        instead = ", or gamma" if kernel == "gaussian" else ""
        raise TypeError(f"length_scale: expected for the {kernel} kernel{instead}")
    return {"length_scale": positive("length_scale", given["length_scale"]), "exponential": kernel == "exponential"}


@contextmanager
def advising(kernel: str, parameters: dict[str, Any], table: Any) -> Iterator[None]:
    """Advise in errors what changes a kernel that has no gamma."""
    try:
        yield
    except ValueError as error:
        if kernel not in INSTEAD_OF_GAMMA:
            raise
        if kernel == "exponential":
            check_exponents(table, parameters["length_scale"], "a larger length_scale")
        message = str(error)
        for words, others in INSTEAD_OF_GAMMA[kernel].items():
            message = message.replace(words, others)
        raise ValueError(message) from None


def check_labels(y: Any, rows: int, task: str) -> np.ndarray:
    """Classes as numbers from 0 on, or a table of numbers."""
    labels = np.asarray(y)
    if labels.dtype == object and all(isinstance(label, Real) for label in labels.flat):
        labels = labels.astype(np.float64)
    if labels.shape[:1] != (rows,):
        raise ValueError(f"y: expected {rows} labels, one for each row of X, got the shape {labels.shape}")
    if labels.dtype.kind in "fc" and not np.isfinite(labels).all():
        raise ValueError("y: expected labels, got NaN or infinity")
    if task == "regression" and labels.dtype.kind not in "biuf":
        raise ValueError(f'y: expected numbers for task="regression", got {kinds_of(labels)}')
    try:
        continuous = type_of_target(labels, input_name="y").startswith("continuous")
        classes, places = np.unique(labels.ravel(), return_inverse=True)
    except TypeError:
        raise ValueError(f"y: expected labels that are all strings or all numbers, got {kinds_of(labels)}") from None
    if continuous and task == "classification":
        raise ValueError('y: expected classes for task="classification", got numbers with a fraction')
    if continuous or task == "regression":
        return np.ascontiguousarray(labels.reshape(rows, -1), np.float64)
    if labels.size != rows:
        raise ValueError(f"y: expected one class for each row of X, got the shape {labels.shape}")
    if task == "auto" and labels.dtype.kind in "iuf" and len(classes) > max(100, rows / 10):
        warnings.warn(
            f'y: took {len(classes)} different whole numbers for classes; say task="regression" if they are numbers to '
            'predict, or task="classification" if not',
            UserWarning,
            stacklevel=3,
        )
    return places.astype(np.uint32)


def kinds_of(labels: np.ndarray) -> str:
    """The types of labels, in words."""
    if labels.dtype == object:
        return " and ".join(sorted({type(label).__name__ for label in labels.flat}))
    return "strings" if labels.dtype.kind == "U" else str(labels.dtype)
