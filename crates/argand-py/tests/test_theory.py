"""Theory and plans."""

import re
import warnings

import argand
import numpy as np
import pytest
import scipy.sparse as sp
from argand import theory

METHODS = ["gaussian", "ctr-rademacher", "product-srht", "complex-tensor-sketch", "hierarchical-ctr-gaussian"]


@pytest.mark.parametrize("method", METHODS)
def test_variance_is_vectorised_over_pairs(method, X):
    keywords = {"degree": 3, "n_components": 16, "method": method, "gamma": 0.5, "coef0": 0.25}
    for function in (argand.variance, theory.pseudo_variance):
        many = function(X[:30], X[30:], **keywords)
        assert many.shape == (30,)
        one_by_one = [function(x, y, **keywords) for x, y in zip(X[:30], X[30:])]
        np.testing.assert_array_equal(many, one_by_one)
        assert isinstance(one_by_one[0], float)


@pytest.mark.parametrize("method", ["gaussian", "ctr-rademacher", "ctr-product-srht", "tensor-sketch"])
def test_variance_is_that_of_sketches(method, X):
    """2000 sketches give the variance to about 10 %, for most of 30 pairs."""
    keywords = {"degree": 2, "n_components": 8, "method": method, "gamma": 0.5, "coef0": 0.25}
    estimates = []
    for seed in range(2000):
        Z = argand.PolynomialSketch(**keywords, random_state=seed, n_jobs=1).fit(X[:1]).transform(X)
        estimates.append((Z[:30] * Z[30:]).sum(axis=1))
    ratio = np.var(estimates, axis=0) / argand.variance(X[:30], X[30:], **keywords)
    assert 0.85 < np.median(ratio) < 1.15 and ratio.min() > 0.5 and ratio.max() < 2


def test_expected_error_is_the_sum_of_variances(X):
    sketch = argand.PolynomialSketch(3, coef0=0.5, n_components=64)
    i, j = np.indices((60, 60)).reshape(2, -1)
    variances = argand.variance(X[i], X[j], degree=3, coef0=0.5, n_components=64)
    expected = np.sqrt(variances.sum()) / np.linalg.norm(sketch.kernel(X))
    error, std = sketch.expected_error(X, return_std=True)
    np.testing.assert_allclose(error, expected, rtol=1e-10)
    assert std == 0 and sketch.expected_error(sp.csc_array(X)) == pytest.approx(error)
    # Measured where there is no closed form, on a sample of many rows.
    error, std = sketch.set_params(method="chain-ctr-product-srht").expected_error(X, return_std=True)
    assert 0 < std < 0.3 * error
    many = np.random.default_rng(0).standard_normal((10_000, 12)) / 3
    error, std = sketch.set_params(method="ctr-product-srht").expected_error(many, return_std=True)
    half = sketch.expected_error(many[:2000])
    assert 0 < std < 0.1 * error and abs(error - half) < 0.2 * error


def test_advantages_are_differences_of_variances(X):
    keywords = {"degree": 3, "n_components": 16, "gamma": 0.5, "coef0": 0.25}
    for base, advantage in [("gaussian", theory.gaussian_advantage), ("rademacher", theory.rademacher_advantage)]:
        real, ctr = (argand.variance(X[:30], X[30:], method=f"{field}{base}", **keywords) for field in ("", "ctr-"))
        np.testing.assert_allclose(advantage(X[:30], X[30:], **keywords), real - ctr, rtol=1e-6, atol=1e-12)
    assert theory.gaussian_advantage(X[0], X[1], degree=2, n_components=4) >= 0


def test_matrices(X):
    K = X @ X.T
    values = np.linalg.eigvalsh(K)
    assert theory.statistical_dimension(K, 0.1) == pytest.approx((values / (values + 0.1)).sum())
    assert theory.spectral_error(K, 1.5 * K, 0.1) == pytest.approx(0.5 * values.max() / (values.max() + 0.1))
    features = theory.matrix_product_features("ctr-gaussian", degree=2, epsilon=0.1, delta=0.01)
    rows = theory.norm_rows("ctr-gaussian", degree=2, epsilon=0.1, delta=0.01)
    assert features.quadratic == pytest.approx(2 * rows.quadratic) and features.expression == max(features)
    spectrum = theory.spectral_features("ctr-gaussian", degree=2, epsilon=0.1, delta=0.01, statistical_dimension=3.0)
    assert spectrum.linear == pytest.approx(9 * features.linear)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: argand.variance(x, x[1:], degree=2, n_components=4), ValueError, "y: expected 60 x 12 numbers"),
        (
            lambda x: argand.variance(x, x, degree=2, n_components=3),
            ValueError,
            "n_components: expected an even number",
        ),
        (lambda x: argand.variance(x, x, degree=3, n_components=4, method="srf"), ValueError, "srf"),
        (
            lambda x: argand.variance(x, x, degree=3, n_components=4, method="chain-gaussian"),
            ValueError,
            "method: no closed form",
        ),
        (lambda x: argand.variance(x * np.nan, x, degree=2, n_components=4), ValueError, "NaN"),
        (lambda x: theory.moment_constant("product-srht", 4), ValueError, "method: expected .*, got product-srht"),
        (lambda x: theory.moment_constant("gaussian", 1), ValueError, "t: expected"),
        (lambda x: theory.norm_rows("gaussian", degree=2, epsilon=0.1, delta=0.9), ValueError, "delta: expected"),
        (lambda x: theory.statistical_dimension(x, 1.0), ValueError, "K: expected a square matrix"),
        (lambda x: theory.statistical_dimension(np.eye(2), -1.0), ValueError, "alpha: expected"),
        (lambda x: theory.statistical_dimension([[1, 2], [0, 1]], 1.0), ValueError, "K: expected a symmetric matrix"),
        (lambda x: theory.spectral_error(np.eye(2), np.eye(3), 1.0), ValueError, "approximation: expected 4 numbers"),
        (lambda x: theory.kernel_error(x, x[1:]), ValueError, "Z: expected 60 rows, as X, got 59"),
        (lambda x: theory.kernel_error(0 * x, x), ValueError, "X: expected rows whose kernel is not zero"),
        (lambda x: argand.plan(x), TypeError, "target_error, n_components or time_budget"),
        (lambda x: argand.plan(x, 3, n_components=10), TypeError, "the degree is a keyword"),
        (lambda x: argand.plan(x, x[:5, 0], n_components=10), ValueError, "y: expected 60 labels"),
        (lambda x: argand.plan(x, x[:, 0] * np.nan, n_components=10), ValueError, "y: expected labels, got NaN"),
        (lambda x: argand.plan(x, np.ones(60, int), n_components=10), ValueError, "two classes"),
        (lambda x: argand.plan(x, kernel="gaussian", n_components=10), TypeError, "length_scale: expected for"),
        (
            lambda x: argand.plan(x, length_scale=1.0, n_components=10),
            ValueError,
            "length_scale: expected only for a gauss",
        ),
        (lambda x: argand.plan(x, kernel="gaussian", degree=3, n_components=10), ValueError, "degree: expected only"),
        (lambda x: argand.plan(x, kernel="exponential", gamma=1, n_components=10), ValueError, "gamma: expected only"),
        (lambda x: argand.plan(x, kernel="series", coef0=0, n_components=10), ValueError, "coef0: expected only"),
        (
            lambda x: argand.plan(x, coefficients=[1], n_components=10),
            ValueError,
            "coefficients: expected only for a s",
        ),
        (
            lambda x: argand.plan(x, kernel="gaussian", gamma=1.0, length_scale=1.0, n_components=10),
            ValueError,
            "gamma: expected either this or length_scale",
        ),
        (
            lambda x: argand.plan(x, kernel="gaussian", gamma=0, n_components=10),
            ValueError,
            "gamma: expected a positive",
        ),
        (lambda x: argand.plan(x, kernel="series", n_components=10), ValueError, "coefficients: expected numbers"),
        (lambda x: argand.plan(x, kernel=["series"], n_components=10), TypeError, "kernel: expected a string"),
        (lambda x: argand.plan(x, x[:, 0], task="fit", n_components=10), ValueError, "task: expected auto, class"),
        (lambda x: argand.plan(x, task="regression", n_components=10), ValueError, "y: expected labels for task"),
        (
            lambda x: argand.plan(x, ["a", "b"] * 30, task="regression", n_components=10),
            ValueError,
            'y: expected numbers for task="regression", got strings',
        ),
        (
            lambda x: argand.plan(x, x[:, 0], task="classification", n_components=10),
            ValueError,
            "y: expected classes for task",
        ),
        (lambda x: argand.plan(x, np.array([None, "a"] * 30), n_components=10), ValueError, "got NoneType and str"),
        (lambda x: argand.plan(x, np.array([1, "a"] * 30, object), n_components=10), ValueError, "got int and str"),
        (lambda x: argand.plan(x, np.array([1, np.nan] * 30, object), n_components=10), ValueError, "labels, got NaN"),
        (lambda x: argand.plan(x, kernel="sine", n_components=10), ValueError, "kernel: expected polynomial"),
        (lambda x: argand.plan(x, time_budget=-1.0), ValueError, "time_budget: expected a positive"),
        (lambda x: argand.plan(x, n_components=10, rows=0), ValueError, "rows: expected at least 1"),
        (lambda x: argand.plan(x, target_error=0.1, n_components=10), TypeError, "either target_error or n_components"),
        (lambda x: argand.plan(x, target_error=-0.1), ValueError, "target_error: expected a positive number"),
        (lambda x: argand.plan(x, n_components=64, methods=["complex-gaussian"]), ValueError, "methods: expected real"),
        (lambda x: argand.plan(x, n_components=64, methods="gaussian"), TypeError, "methods: expected a list"),
        (lambda x: argand.plan(x, n_components=64, methods=["nonsense"]), ValueError, "methods: expected"),
        (lambda x: argand.plan(x, n_components=7, methods=["ctr-gaussian"]), ValueError, "n_components: .* an even"),
        (lambda x: argand.plan(x, n_components=64, time_budget=0), ValueError, "time_budget: expected a positive"),
        (
            lambda x: argand.plan(x, target_error=0.1, max_components=1),
            ValueError,
            "max_components: expected at least 2",
        ),
        (lambda x: argand.plan(x * np.inf, n_components=64), ValueError, "NaN|infinity"),
        (lambda x: argand.plan([x, x], degree=3, n_components=64), ValueError, "dims: expected one entry per factor"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_wrong_arguments(call, error, message, X):
    with pytest.raises(error, match=message):
        call(X)


def test_plans(X):
    X = np.abs(X)
    plan = argand.plan(
        X, degree=3, target_error=0.2, random_state=0, methods=["ctr-product-srht", "gaussian", "chain-product-srht"]
    )
    assert [c.error + 1.96 * c.standard_error <= 0.2 for c in plan.candidates] == [True] * 3
    text = repr(plan)
    assert "* ctr-product-srht" in text and text == str(plan) and "predicted error" in text
    assert {c.method: c.measured for c in plan.candidates}["chain-product-srht"]
    sketch = plan.best
    assert isinstance(sketch, argand.PolynomialSketch)
    assert (sketch.degree, sketch.n_components, sketch.random_state) == (3, plan.recommended.n_components, 0)
    np.testing.assert_allclose(sketch.expected_error(X), plan.recommended.error, rtol=1e-9)
    assert sketch.fit_transform(X).shape == (60, sketch.n_components)


def test_errors_of_a_sample_are_those_of_all_rows(monkeypatch):
    """Rows that are nearly orthogonal: the diagonal, whose share depends on the number of rows, decides."""
    rows = np.random.default_rng(0).normal(size=(500, 40))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    sketch = argand.PolynomialSketch(degree=3, n_components=64, method="gaussian", random_state=0).fit(rows)

    def predicted():
        found = argand.plan(rows, degree=3, n_components=64, random_state=0, methods=["gaussian"]).recommended
        return found.error, sketch.expected_error(rows)

    of_all = predicted()
    monkeypatch.setattr("argand._arguments.SAMPLED_ROWS", 100)
    of_some = predicted()
    np.testing.assert_allclose(of_some, of_all, rtol=0.1)
    alone = argand.plan(rows[:100], degree=3, n_components=64, random_state=0, methods=["gaussian"]).recommended
    assert not 0.8 < alone.error / of_all[0] < 1.25


def test_plans_for_products_and_their_picture(X):
    import matplotlib

    matplotlib.use("Agg")
    plan = argand.plan(
        [X, sp.csr_array(X[:, :4])], n_components=64, random_state=1, methods=["ctr-gaussian", "tensor-sketch"]
    )
    sketch = plan.best
    assert isinstance(sketch, argand.TensorProductSketch) and sketch.dims == [12, 4]
    assert sketch.fit_transform([X, X[:, :4]]).shape == (60, 64)
    axes = plan.plot()
    names = {text.get_text().split(maxsplit=1)[1] for text in axes.get_legend().get_texts()}
    assert names == {"ctr-gaussian, 64", "tensor-sketch, 64"}
    assert {text.get_text() for text in axes.texts} == {"1", "2"}
    assert plan.plot(ax=axes) is axes


def test_errors_of_zero_are_in_the_picture():
    import matplotlib

    matplotlib.use("Agg")
    X = np.random.default_rng(0).random((100, 9))
    keywords = {"degree": 2, "coef0": 1.0, "n_components": 64, "random_state": 0}

    def drawn(plan):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            axes = plan.plot()
            axes.figure.canvas.draw()
        low, high = axes.get_ylim()
        places = [points.lines[0].get_ydata()[0] for points in axes.containers]
        assert all(low < place < high for place in places)
        return axes, places

    plan = argand.plan(X, methods=["exact", "ctr-product-srht"], **keywords)
    errors = [c.median_error for c in plan.candidates]
    axes, places = drawn(plan)
    assert errors[0] == 0 < errors[1] and places == [errors[1] / 3, errors[1]]
    assert axes.get_yscale() == "log" and axes.texts[-1].get_text() == "error 0"
    # The line of the target error is above that of 0, too.
    plan.target_error = errors[1] / 10
    assert drawn(plan)[1] == [plan.target_error / 3, errors[1]]
    y = X[:, 0] > 0.5
    plan = argand.plan(X + 5 * y[:, None], y, methods=["exact", "ctr-product-srht"], **keywords)
    axes, places = drawn(plan)
    assert places == [0, 0] and axes.get_yscale() == "linear" and axes.texts[-1].get_text() == "2"


@pytest.mark.parametrize("labels", ["classes", "numbers"])
def test_labels_decide(labels):
    X = np.random.default_rng(0).random((400, 5)).astype(np.float32)
    product = (X[:, 0] - 0.5) * (X[:, 1] - 0.5)
    y = np.where(product > 0, "same", "other") if labels == "classes" else product
    plan = argand.plan(X, y, kernel="gaussian", length_scale=0.7, n_components=64, rows=10**6, random_state=0)
    judged = [c for c in plan.candidates if c.validation]
    assert len(judged) == 3 and plan.rows == 10**6
    assert [c.validation.error for c in judged] == sorted(c.validation.error for c in judged)
    assert judged[0].validation.error < 0.5 and (judged[0].validation.rows, judged[0].validation.training_rows) == (
        200,
        200,
    )
    assert plan.recommended.total_seconds >= plan.recommended.feature_seconds + plan.recommended.fit_seconds
    assert isinstance(plan.best, argand.GaussianSketch | argand.NystromSketch)
    assert plan.best.fit_transform(X).shape == (400, 64)
    assert "validation error" in repr(plan)
    sums = next(c for c in plan.candidates if c.method.startswith("maclaurin"))
    # Both aims were tried.
    assert sums.sketch().aim == sums.spec["maclaurin"].get("aim", "kernel")


def test_whole_numbers_are_classes_or_numbers():
    rng = np.random.default_rng(0)
    X = rng.random((400, 3))
    prices = (1e6 * X[:, 0]).astype(int)
    keywords = {"n_components": 8, "random_state": 0, "methods": ["product-srht"], "coef0": 1.0}
    with pytest.warns(UserWarning, match="y: took .* different whole numbers for classes; say task="):
        as_classes = argand.plan(X, prices, **keywords)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        said = argand.plan(X, prices, task="classification", **keywords)
        numbers = argand.plan(X, prices, task="regression", **keywords)
        objects = argand.plan(X, prices.astype(object), task="regression", **keywords)
        several = argand.plan(X, prices[:, None] * [1, 2], task="regression", **keywords)
        argand.plan(X, prices % 40, **keywords)
    errors = [p.candidates[0].validation.error for p in (as_classes, said, numbers, objects, several)]
    assert errors[0] == errors[1] > 0.9 and errors[2] == errors[3] < 0.5 and errors[4] == pytest.approx(errors[2])


def test_plans_for_gamma_are_those_for_its_length_scale(X):
    keywords = {"kernel": "gaussian", "n_components": 32, "random_state": 0, "methods": ["rff", "nystrom"]}

    def scale(**kernel):
        plan = argand.plan(X, **kernel, **keywords)
        return {candidate.spec["kernel"]["length_scale"] for candidate in plan.candidates}

    assert scale(gamma=0.125) == scale(length_scale=2.0) == {2.0}
    assert scale(gamma="scale").pop() == pytest.approx((0.5 * 12 * X.var()) ** 0.5)


def test_landmarks_of_a_constant_kernel(X):
    plan = argand.plan(X, degree=3, gamma=0.0, coef0=1.0, n_components=4, random_state=0, methods=["nystrom"])
    for candidate in plan.candidates:
        sketch = candidate.sketch()
        Z = sketch.fit_transform(X)
        np.testing.assert_allclose(Z @ Z.T, np.ones((60, 60)), rtol=1e-4)


def test_a_plan_that_fails(X):
    plan = argand.plan(X, degree=3, target_error=1e-4, max_components=64, random_state=0, methods=["gaussian"])
    assert plan.candidates == [] and plan.rejected[0][0] == "gaussian" and plan.rejected[0][1] in repr(plan)
    assert repr(plan).startswith(f"Note: {plan.notes[-1]}")
    with pytest.raises(ValueError, match="no method reaches the goal"):
        plan.best


def test_advice_is_about_parameters_of_the_kernel(X):
    with pytest.raises(ValueError, match=r"got exp\(.*\); scale the rows, or use a larger length_scale"):
        argand.plan(5 * X, kernel="exponential", length_scale=0.05, target_error=0.05)
    large = {"kernel": "series", "coefficients": [1e300] * 3, "n_components": 64, "methods": ["nystrom"]}
    with pytest.raises(ValueError, match=r"too large for float64; scale .* or use smaller coefficients$"):
        argand.plan(np.random.default_rng(0).random((200, 5)), **large)


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        ({"target_error": 0.5}, "a relative error of 0.5"),
        ({"n_components": 16, "time_budget": 60}, "the features asked for"),
        ({"time_budget": 60}, "a time budget of 60 s"),
    ],
    ids=["error", "features", "time"],
)
def test_a_plan_in_a_notebook_says_its_goal(goal, words, X):
    plan = argand.plan(X, methods=["ctr-product-srht"], random_state=0, **goal)
    assert f"1 methods for {words}, on these rows" in plan._repr_html_()


def test_a_plan_shows_itself_in_a_notebook():
    x = np.abs(np.random.default_rng(0).normal(size=(100, 6)))
    plan = argand.plan(x, degree=2, n_components=64, methods=["ctr-product-srht", "tensor-sketch"])
    html = plan._repr_html_()
    assert html.count("<details") == len(plan.candidates) == 2
    for candidate in plan.candidates:
        assert f"<b>{candidate.method}</b>" in html
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")
    # What it says in Python makes the same sketch.
    line = re.search(r"<pre>(argand\.PolynomialSketch.*?)</pre>", html).group(1).replace("&quot;", '"')
    features = eval(line).fit_transform(x)
    np.testing.assert_array_equal(features, plan.candidates[0].sketch().fit_transform(x))
