"""Choose a method and a number of features before sketching."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from . import _argand
from ._arguments import check_tables, common_precision, integer, native, number, sample_rows, seed_of, text, threads_of
from ._sketches import PolynomialSketch, TensorProductSketch


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
    measured : bool
        Whether the error was measured on sketches, because no closed form is known.
    feature_seconds : float
        Seconds for the features of a million rows on this machine.
    fit_seconds : float
        Seconds for a least-squares fit on them.
    memory_bytes : int
        Memory of the sketch.
    in_time : bool
        Whether it stays within the time budget.
    spec : dict
        The sketch's JSON.
    """

    method: str
    n_components: int
    error: float
    standard_error: float
    measured: bool
    feature_seconds: float
    fit_seconds: float
    memory_bytes: int
    in_time: bool
    spec: dict[str, Any]

    def sketch(self) -> PolynomialSketch | TensorProductSketch:
        """The transformer, unfitted."""
        cls = TensorProductSketch if isinstance(self.spec["input_dim"], list) else PolynomialSketch
        return cls._from_spec(self.spec)


class Plan:
    """A recommendation and its alternatives. Prints as a table.

    Attributes
    ----------
    candidates : list of Candidate
        The best first: for a target error by the time for features and fit together, otherwise by error.
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
        self.candidates = [
            Candidate(
                method=line["spec"]["method"],
                n_components=line["spec"]["features"],
                error=line["predicted_error"],
                standard_error=line["standard_error"],
                measured=line["measured_sketches"] is not None,
                feature_seconds=line["feature_seconds_per_million_rows"],
                fit_seconds=line["fit_seconds_per_million_rows"],
                memory_bytes=line["memory_bytes"],
                in_time=line["in_time"],
                spec=line["spec"],
            )
            for line in plan["candidates"]
        ]
        place = plan["recommended"]
        self.recommended = None if place is None else self.candidates[place]
        self.rejected: list[tuple[str, str]] = [(method, reason) for method, reason in plan["rejected"]]
        self.notes: list[str] = plan["notes"]

    @property
    def best(self) -> PolynomialSketch | TensorProductSketch:
        """The recommended sketch, unfitted."""
        if self.recommended is None:
            raise ValueError(f"plan: {self._unmet}")
        return self.recommended.sketch()

    def __repr__(self) -> str:
        return self._table

    def _repr_html_(self) -> str:
        """The plan in a notebook: charts and every method to pick and copy, as ``argand plan --report`` writes them."""
        goal = (
            f"a relative error of {self.target_error:g}" if self.target_error is not None else "the features asked for"
        )
        return _argand.plan_html(
            self._json, f"{len(self.candidates)} methods for {goal}, on these rows and this machine"
        )

    def plot(self, ax: Any = None) -> Any:
        """Plot error over time, one point per candidate. Needs matplotlib.

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
        for rank, c in enumerate(self.candidates, 1):
            seconds = c.feature_seconds + c.fit_seconds
            style = {"color": "tab:red" if c is self.recommended else "tab:blue", "marker": "o"}
            label = f"{rank}  {c.method}, {c.n_components}"
            ax.errorbar(seconds, c.error, yerr=1.96 * c.standard_error, label=label, **style)
            ax.annotate(str(rank), (seconds, c.error), (5, 4), textcoords="offset points", fontsize=8)
        # Names beside the points would overlap.
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8, handlelength=1, frameon=False)
        ax.set(xscale="log", yscale="log", xlabel="seconds per million rows, features and fit")
        ax.set_ylabel("predicted relative error of the kernel matrix")
        if self.target_error is not None:
            ax.axhline(self.target_error, color="gray", linewidth=0.8)
        return ax


def plan(
    X: Any,
    degree: int | None = None,
    *,
    gamma: float = 1.0,
    coef0: float = 0.0,
    target_error: float | None = None,
    n_components: int | None = None,
    methods: list[str] | None = None,
    time_budget: float | None = None,
    max_components: int = 131072,
    random_state: Any = None,
    n_jobs: int | None = None,
) -> Plan:
    """Choose a method and a number of features for the rows of X.

    Predicts the error of every method from a sample of the rows, measures its time on this machine, and recommends
    one: for a target error, the one with the shortest time for features and a least-squares fit together; for
    a number of features, the fastest among those within 5 % of the lowest error. Takes a few seconds, whatever the
    number of rows.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features), or a list of them
        The rows to sketch; a list has one table per factor of a tensor product.
    degree : int, default=None
        Degree of the kernel. The default is 2 for one table, and the number of tables for a list.
    gamma, coef0 : float, default=1.0 and 0.0
        The other parameters of the kernel.
    target_error : float, default=None
        The relative error of the kernel matrix to reach. Either this or ``n_components`` must be given.
    n_components : int, default=None
        The number of features to use.
    methods : list of str, default=None
        Methods to choose from. By default those of the paper, and chains.
    time_budget : float, default=None
        The most seconds that the features of a million rows may take.
    max_components : int, default=131072
        The most features to consider for a target error.
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
    >>> X = load_digits().data / 16
    >>> plan = argand.plan(X, degree=2, n_components=512, random_state=0, methods=["product-srht", "ctr-product-srht"])
    >>> sketch = plan.best.fit(X)
    >>> plan.recommended.method
    'ctr-product-srht'
    """
    tables, distinct = check_tables(X)
    if degree is None:
        degree = len(tables) if distinct else 2
    if (target_error is None) == (n_components is None):
        raise TypeError("plan: expected either target_error or n_components")
    if isinstance(methods, str):
        raise TypeError(f"methods: expected a list of names, got {methods!r}")
    seed = seed_of(random_state)
    chosen = sample_rows(tables, seed)
    found = _argand.plan(
        [native(table, common_precision(chosen)) for table in chosen],
        distinct=distinct,
        dims=[table.shape[1] for table in tables],
        degree=integer("degree", degree),
        gamma=number("gamma", gamma),
        coef0=number("coef0", coef0),
        target_error=None if target_error is None else number("target_error", target_error),
        n_components=None if n_components is None else integer("n_components", n_components),
        methods=None if methods is None else [text("methods", method) for method in methods],
        time_budget=None if time_budget is None else number("time_budget", time_budget),
        max_components=integer("max_components", max_components),
        population=tables[0].shape[0],
        seed=seed,
        threads=threads_of(n_jobs),
    )
    return Plan(*found)
