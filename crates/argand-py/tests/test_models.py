"""Ridge regression and Gaussian processes on sketches."""

import pickle
import sys

import argand
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from argand import _argand
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import normalize
from sklearn.utils.estimator_checks import parametrize_with_checks

MODELS = [argand.GPClassifier, argand.GPRegressor, argand.Ridge, argand.RidgeClassifier]
KEYWORDS = {"degree": 2, "coef0": 1.0, "n_components": 300, "random_state": 0}


# With the default kernel: <x, y>² would not tell x from -x.
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([model(n_components=60) for model in MODELS])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return normalize(X), y


@pytest.fixture
def regression():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 6)) / 3
    y = X[:, 0] * X[:, 1] + np.sin(X[:, 2]) + 0.1 * rng.standard_normal(1000)
    return X, y


def test_ridge_is_that_of_scikit_learn_on_the_features(regression):
    X, y = regression
    Y = np.column_stack([y, X[:, 3] ** 2 - 1])
    Z = argand.PolynomialSketch(2, coef0=1.0, n_components=300, random_state=0).fit_transform(X)
    for targets in (y, Y):
        ours = argand.Ridge(**KEYWORDS, alpha=0.1).fit(X, targets)
        theirs = Ridge(alpha=0.1).fit(Z, targets)
        np.testing.assert_allclose(ours.predict(X), theirs.predict(Z), atol=2e-4)
        assert ours.coef_.shape == theirs.coef_.shape and np.shape(ours.intercept_) == np.shape(theirs.intercept_)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-3)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=2e-3)
        assert ours.predict(X).shape == targets.shape


def test_ridge_approximates_kernel_ridge(regression):
    X, y = regression
    exact = KernelRidge(alpha=0.5, kernel="polynomial", degree=2, gamma=1.0, coef0=1.0).fit(X, y - y.mean())
    model = argand.Ridge(2, coef0=1.0, n_components=4000, alpha=0.5, random_state=0).fit(X, y)
    difference = model.predict(X) - (exact.predict(X) + y.mean())
    assert np.sqrt(np.mean(difference**2)) < 0.02 * y.std()


def test_ridge_classifier(digits):
    X, y = digits
    model = argand.RidgeClassifier(3, n_components=600, alpha=0.01, random_state=0).fit(X[:1200], y[:1200])
    assert model.score(X[1200:], y[1200:]) > 0.94
    scores = model.decision_function(X)
    assert scores.shape == (len(X), 10)
    np.testing.assert_array_equal(model.predict(X), scores.argmax(axis=1))
    Z = argand.PolynomialSketch(3, coef0=1.0, n_components=600, random_state=0).fit_transform(X)
    theirs = Ridge(alpha=0.01).fit(Z[:1200], 2 * (y[:1200, None] == np.arange(10)) - 1)
    np.testing.assert_allclose(scores, theirs.predict(Z), atol=2e-3)
    binary = argand.RidgeClassifier(**KEYWORDS).fit(X, np.where(y < 5, "low", "high"))
    scores = binary.decision_function(X)
    assert scores.shape == (len(X),)
    np.testing.assert_array_equal(binary.predict(X) == "low", scores > 0)


def test_gp_regression_is_that_of_the_features(regression):
    """A Gaussian process with the linear kernel of the features, in double precision."""
    X, y = regression
    Z = argand.PolynomialSketch(2, coef0=1.0, n_components=300, random_state=0).fit_transform(X)
    model = argand.GPRegressor(**KEYWORDS, alpha=0.01, kernel_variance=2.0).fit(X[:700], y[:700])
    kernel = ConstantKernel(2.0, "fixed") * DotProduct(0.0, "fixed")
    exact = GaussianProcessRegressor(kernel, alpha=0.01).fit(Z[:700], y[:700] - y[:700].mean())
    mean, std = model.predict(X, return_std=True)
    exact_mean, exact_std = exact.predict(Z, return_std=True)
    np.testing.assert_allclose(mean, exact_mean + y[:700].mean(), atol=1e-3)
    np.testing.assert_allclose(std, exact_std, atol=1e-3)
    np.testing.assert_array_equal(model.predict(X), mean)
    likelihood = exact.log_marginal_likelihood_value_
    assert model.log_marginal_likelihood_ == pytest.approx(likelihood, abs=0.01 * abs(likelihood))


def test_gp_regression_finds_the_noise(regression):
    X, y = regression
    model = argand.GPRegressor(**KEYWORDS).fit(X, y)
    assert 0.09 < model.alpha_**0.5 < 0.11 and model.score(X, y) > 0.8
    for alpha, kernel_variance in [
        (2 * model.alpha_, model.kernel_variance_),
        (model.alpha_, 3 * model.kernel_variance_),
    ]:
        other = argand.GPRegressor(**KEYWORDS, alpha=alpha, kernel_variance=kernel_variance).fit(X, y)
        assert other.log_marginal_likelihood_ < model.log_marginal_likelihood_
    Y = np.column_stack([y, -2 * y + 1])
    mean, std = argand.GPRegressor(**KEYWORDS).fit(X, Y).predict(X[:50], return_std=True)
    assert mean.shape == std.shape == (50, 2)
    np.testing.assert_allclose(mean[:, 1], -2 * mean[:, 0] + 1, atol=1e-6)


def test_gp_regression_honours_one_given_variance(regression):
    """The other is the best for it: no other has a larger likelihood."""
    X, y = regression
    for given in ({"alpha": 0.05}, {"kernel_variance": 0.3}):
        model = argand.GPRegressor(**KEYWORDS, **given).fit(X, y)
        found = {"alpha": model.alpha_, "kernel_variance": model.kernel_variance_}
        assert all(found[name] == pytest.approx(value, rel=1e-9) for name, value in given.items())
        (other,) = found.keys() - given.keys()
        for factor in (0.8, 1.25):
            worse = argand.GPRegressor(**KEYWORDS, **given, **{other: factor * found[other]}).fit(X, y)
            assert worse.log_marginal_likelihood_ < model.log_marginal_likelihood_


@pytest.mark.parametrize("model", MODELS)
def test_defaults_tell_a_row_from_its_negative(model):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    y = X[:, 0] > 0
    fitted = model(n_components=100, random_state=0).fit(X, y if "Classifier" in model.__name__ else X[:, 0])
    assert fitted.score(X, y if "Classifier" in model.__name__ else X[:, 0]) > 0.95


def test_gp_classification(digits):
    X, y = digits
    model = argand.GPClassifier(3, gamma=0.5, coef0=0.5, n_components=600, random_state=0).fit(X[:1200], y[:1200])
    assert model.score(X[1200:], y[1200:]) > 0.94
    probabilities = model.predict_proba(X[1200:])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert (probabilities >= 0).all()
    np.testing.assert_array_equal(model.predict(X[1200:]), probabilities.argmax(axis=1))
    assert -np.log(probabilities[np.arange(597), y[1200:]]).mean() < 0.25
    # From the transformed labels alone: v = log(1 + 1 / (y + a)), t = log(y + a) - v / 2, minus each class's mean.
    labels = (y[:1200, None] == np.arange(10)) + 0.001
    targets = np.log(labels) - np.log1p(1 / labels) / 2
    shares = np.log((y[:1200, None] == np.arange(10)).mean(axis=0))
    variance = np.var(targets - shares - (targets - shares).mean())
    assert model.kernel_variance_ == pytest.approx(variance)
    given = argand.GPClassifier(3, n_components=100, kernel_variance=2.5, random_state=0).fit(X, y)
    assert given.kernel_variance_ == 2.5 and given.log_marginal_likelihood_ < 0


def fitted(model, digits, regression):
    X, y = digits if "Classifier" in model.__name__ else regression
    return X, y, clone(model(**KEYWORDS))


@pytest.mark.parametrize("model", MODELS)
def test_partial_fit_is_exact(model, digits, regression):
    X, y, estimator = fitted(model, digits, regression)
    whole = clone(estimator).fit(X, y)
    parts = clone(estimator)
    for start in range(0, len(X), 250):
        parts.partial_fit(X[start : start + 250], y[start : start + 250])
    np.testing.assert_allclose(parts.predict(X[:200]), whole.predict(X[:200]), rtol=1e-4, atol=1e-4)
    if hasattr(model, "predict_proba"):
        np.testing.assert_allclose(parts.predict_proba(X[:200]), whole.predict_proba(X[:200]), atol=1e-3)
    # Also after fit, and after a batch that fails.
    parts = clone(estimator).fit(X[:500], y[:500])
    bad = X[500:].copy()
    bad[7, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        parts.partial_fit(bad, y[500:])
    parts.partial_fit(sp.csr_array(X[500:]), y[500:])
    np.testing.assert_allclose(parts.predict(X[:200]), whole.predict(X[:200]), rtol=1e-4, atol=1e-4)


def test_classes_of_partial_fit(digits):
    X, y = digits
    low = np.flatnonzero(y < 5)
    for model in (argand.GPClassifier, argand.RidgeClassifier):
        estimator = model(3, n_components=200, random_state=0).partial_fit(X[low], y[low], classes=np.arange(10))
        with pytest.raises(ValueError, match="classes: expected those of the first call"):
            estimator.partial_fit(X, y, classes=[1, 2])
        if model is argand.GPClassifier:
            with pytest.raises(ValueError, match="y: expected at least one row of every class, got none of class 5"):
                estimator.predict(X)
        estimator.partial_fit(X[y >= 5], y[y >= 5])
        assert estimator.score(X, y) > 0.9
        short = model(n_components=20).partial_fit(X[low], y[low])
        with pytest.raises(ValueError, match=r"y: expected classes .*, got "):
            short.partial_fit(X, y)


@pytest.mark.parametrize("model", MODELS)
def test_pickle_and_threads(model, digits, regression):
    X, y, estimator = fitted(model, digits, regression)
    estimator.fit(X, y)
    copy = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(copy.predict(X), estimator.predict(X))
    copy.partial_fit(X, y)
    single = clone(estimator).set_params(n_jobs=1).fit(X, y)
    np.testing.assert_allclose(single.predict(X), estimator.predict(X), rtol=1e-6, atol=1e-6)
    assert np.mean(cross_val_score(clone(estimator), X, y, cv=2)) > 0.5


def test_long_tables_go_through_blocks():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40_000, 4)).astype(np.float32)
    y = X[:, 0] * X[:, 1]
    model = argand.Ridge(2, n_components=64, alpha=1e-2, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.999
    np.testing.assert_array_equal(model.predict(X)[-5:], model.predict(X[-5:]))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: argand.Ridge(alpha=-1.0), ValueError, "alpha: expected a number of at least 0, got -1"),
        (lambda: argand.Ridge(alpha=10**400), ValueError, "alpha: expected a number within the range of float64"),
        (lambda: argand.Ridge(alpha=None), TypeError, "alpha: expected a number, got None"),
        (lambda: argand.GPRegressor(alpha=0.0), ValueError, "alpha: expected a positive number, got 0"),
        (lambda: argand.GPRegressor(kernel_variance=np.nan), ValueError, "kernel_variance: expected a positive number"),
        (lambda: argand.Ridge(n_components=0), ValueError, "n_components: expected 1 to"),
        (lambda: argand.Ridge(n_components=1 << 20), ValueError, "n_components: would take"),
        (lambda: argand.Ridge(method="complex-gaussian"), ValueError, "method: expected a method with real features"),
        (lambda: argand.Ridge(degree=-2), ValueError, "degree: expected"),
        (lambda: argand.Ridge(n_jobs=0), ValueError, "n_jobs: expected"),
        (lambda: argand.Ridge(random_state=-1), ValueError, "random_state: expected"),
    ],
)
def test_bad_parameters(make, error, message, regression):
    with pytest.raises(error, match=message):
        make().fit(*regression)


@pytest.mark.parametrize("model", MODELS)
def test_rows_that_are_too_large(model):
    """In a later block of rows, whatever the type."""
    X = np.ones((9000, 3))
    X[:, 0] = np.arange(9000) % 7
    y = np.arange(9000) % 7 > 3
    X[8500, 1] = 1e25
    message = "the features of row 8500 are too large for float32, in which models compute; scale .* a smaller gamma$"
    with pytest.raises(ValueError, match=message):
        model(n_components=8, random_state=0).fit(X, y.astype(int))
    X[8500, 1] = 1e300
    for table in (X, sp.csr_array(X)):
        with pytest.raises(ValueError, match="X: expected numbers that fit into float32"):
            model(n_components=8, random_state=0).fit(table, y.astype(int))


def test_bad_targets(regression):
    X, y = regression
    for model in MODELS:
        with pytest.raises(ValueError, match="y: expected 1000 rows, as X, got 999"):
            model().fit(X, (y[1:] > 0).astype(int))
    for model in (argand.Ridge, argand.GPRegressor):
        with pytest.raises(ValueError, match="y contains NaN"):
            model().fit(X, y * np.nan)
        with pytest.raises(ValueError, match="y: expected 1 columns, as before, got 2"):
            model(n_components=10).fit(X, y).partial_fit(X, np.column_stack([y, y]))
    for model in (argand.RidgeClassifier, argand.GPClassifier):
        with pytest.raises(ValueError, match="Unknown label type"):
            model().fit(X, y)
        with pytest.raises(ValueError, match="y: expected at least 2 classes, got 1 class"):
            model().fit(X, np.zeros(1000, int))
    tiny, none = (argand.Ridge(n_components=100, alpha=alpha, random_state=0).fit(X, y) for alpha in (1e-30, 0))
    np.testing.assert_allclose(tiny.predict(X), none.predict(X), rtol=1e-6)
    with pytest.raises(ValueError, match="y: expected targets that vary"):
        argand.GPRegressor(n_components=10).fit(X, np.ones(1000))
    for keywords in ({}, {"alpha": 1.0, "kernel_variance": 1.0}):
        with pytest.raises(ValueError, match=r"y: expected targets whose squares, .*, got larger ones; scale them"):
            argand.GPRegressor(n_components=10, **keywords).fit(X, y * 1e200)
    with pytest.raises(ValueError, match="X: expected rows whose features are not all zero"):
        argand.GPRegressor(coef0=0.0, n_components=10).fit(0 * X, y)
    with pytest.raises(ValueError, match=r"alpha: expected a positive number below 9e15 .*, got 1e300"):
        argand.GPClassifier(n_components=10, alpha=1e300).fit(X, y > 0)
    for keywords in ({"kernel_variance": 1e30}, {"kernel_variance": 1e30, "alpha": 1e-3}):
        model = argand.GPClassifier if len(keywords) == 1 else argand.GPRegressor
        with pytest.raises(ValueError, match=r"kernel_variance: .* is singular .*; use a smaller kernel_variance"):
            model(n_components=100, **keywords).fit(X, (y > 0).astype(int))


def test_rows_are_checked_for_the_fitted_method(regression):
    X, y = regression
    model = argand.Ridge(n_components=8, random_state=0).fit(X, y).set_params(method="srf")
    assert np.isfinite(model.predict(0 * X)).all()
    model.partial_fit(0 * X, y)
    keywords = {"method": "srf", "gamma": 0.5, "coef0": 0.5}
    model = argand.Ridge(n_components=8, **keywords).fit(X, y).set_params(method="gaussian")
    with pytest.raises(ValueError, match="X: expected rows that can be scaled to unit norm, got zeros in row 0"):
        model.predict(0 * X)


def test_zero_alpha_is_least_squares(regression):
    X, y = regression
    model = argand.Ridge(1, coef0=1.0, n_components=100, alpha=0.0, random_state=0).fit(X, y)
    design = np.column_stack([X, np.ones(1000)])
    best = design @ np.linalg.lstsq(design, y)[0]
    np.testing.assert_allclose(model.predict(X), best, atol=1e-3)


def test_what_is_not_a_model_is_refused():
    """Unknown kinds of sums and of files are errors, not something else."""
    spec = _argand.spec(
        dims=[3], distinct=False, degree=2, gamma=1.0, coef0=0.0, n_components=8, method="gaussian", craft_dim=0, seed=0
    )
    with pytest.raises(ValueError, match="expected values, classes or classes apart, got rows"):
        _argand.Gram.empty(spec, "rows", 2)
    gram = _argand.Gram.empty(spec, "classes", 2)
    with pytest.raises(ValueError, match=r'expected a file of kind ridge, .*, got "gram"'):
        _argand.Model(gram.to_bytes())
    features = np.eye(2, 8, dtype=np.float32)
    table, classes = np.eye(2, 3, dtype=np.float32), np.array([0, 1], np.uint32)
    with pytest.raises(ValueError, match="expected 2 rows, as X, got 1"):
        gram.learn(_argand.Sketch(spec), table, classes[:1], None, 0, None)
    gram.learn(_argand.Sketch(spec), table, classes, None, 0, None)
    model = gram.ridge(1.0, None)
    assert model.settings == {"lambda": 1.0} and model.evidence is None
    for ask in (model.probabilities, model.means_and_variances):
        with pytest.raises(TypeError, match="a ridge model has no"):
            ask(features, None)


def resident():
    """Resident memory in kilobytes, where the system tells."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells how much memory is resident")
def test_memory_does_not_grow_with_the_number_of_estimators():
    X = np.random.default_rng(0).random((200, 12))

    def cycle(seed):
        sketch = argand.PolynomialSketch(3, n_components=256, random_state=seed).fit(X)
        model = argand.Ridge(n_components=64, random_state=seed).fit(X, X[:, 0])
        return sketch.transform(X)[0, 0] + model.predict(X)[0]

    for seed in range(50):
        cycle(seed)
    before = resident()
    for seed in range(50, 1050):
        cycle(seed)
    # A leak of one in ten would take 100 times 200 kB and more.
    assert resident() < before + 16_000


def test_models_of_other_columns_do_not_merge():
    rows = np.random.default_rng(0).normal(size=(200, 3))
    make = lambda X: argand.Ridge(n_components=32, alpha=0.01, random_state=0).partial_fit(X, rows[:, 0] * rows[:, 1])
    named = lambda *names: pd.DataFrame(rows, columns=names)
    of_all = make(named("a", "b", "c"))
    weights = of_all.coef_
    for names, message in [
        (("c", "b", "a"), "other: expected a model of the columns a, b, c, got c, b, a"),
        (("a", "b", "x"), "other: expected a model of the columns a, b, c, got a, b, x"),
    ]:
        with pytest.raises(ValueError, match=message):
            of_all.merge(make(named(*names)))
    np.testing.assert_array_equal(of_all.coef_, weights)
    # Only one of them knows its names.
    for model, other in [(of_all, make(rows)), (make(rows), of_all)]:
        assert list(model.merge(other).feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names should match"):
        make(rows).merge(of_all).predict(named("c", "b", "a"))


def test_long_lists_of_columns_that_differ():
    names = [f"c{i}" for i in range(30)]
    make = lambda names: argand.Ridge(n_components=8, random_state=0).fit(
        pd.DataFrame(np.eye(4, len(names)), columns=names), np.arange(4)
    )
    shown = ", ".join(names[20:28])
    for others, message in [
        ([*names[:20], "x", *names[21:]], f"columns ..., {shown}, ..., got ..., x, c21, "),
        (names[:20], f"columns ..., {shown}, ..., got ...$"),
    ]:
        with pytest.raises(ValueError, match=message):
            make(names).merge(make(others))


def test_classes_of_pandas_own_types_stay_what_they_are():
    X, y = np.random.default_rng(0).random((60, 3)), np.arange(60) % 2
    large = y + 2**53
    for labels, classes in [
        (pd.array(y.astype(bool), dtype="boolean"), np.array([False, True])),
        (pd.Series(y, dtype="UInt8"), np.array([0, 1], np.uint8)),
        (pd.Series(large, dtype="Int64"), np.array([2**53, 2**53 + 1])),
        (pd.Series(large).astype("category"), np.array([2**53, 2**53 + 1])),
    ]:
        model = argand.RidgeClassifier(n_components=16, random_state=0).fit(X, labels)
        np.testing.assert_array_equal(model.classes_, classes)
        assert model.predict(X).dtype == model.classes_.dtype == classes.dtype
        assert model.score(X, labels) == np.mean(model.predict(X) == np.asarray(labels))
    for kind in ("boolean", "Int64"):
        with pytest.raises(ValueError, match="y: expected classes, got NaN"):
            model.fit(X, pd.Series([None, *y[1:]], dtype=kind))
