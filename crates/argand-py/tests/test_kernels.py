"""Sketches of Gaussian and dot-product kernels, and Nyström's features."""

import json
import math
import pickle
import warnings

import argand
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

SKETCHES = [
    argand.GaussianSketch(n_components=20),
    argand.GaussianSketch(n_components=20, gamma="scale", method="maclaurin-ctr-product-srht"),
    argand.GaussianSketch(n_components=20, method="orf"),
    argand.GaussianSketch(n_components=20, method="auto"),
    argand.DotProductSketch(n_components=20),
    argand.DotProductSketch([1.0, 0.5, 0.25], n_components=20),
    argand.NystromSketch(n_components=20),
    argand.NystromSketch("poly", n_components=20, selection="uniform"),
    argand.NystromSketch("exponential", n_components=20),
]


@pytest.fixture
def rows():
    return np.random.default_rng(5).normal(size=(80, 6)) * 0.5 + 1


def relative_error(sketch, X):
    Z, K = sketch.fit_transform(X), sketch.kernel(X)
    return np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K)


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(SKETCHES)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_every_parameter_of_rbf_sampler_has_its_default():
    ours, theirs = argand.GaussianSketch().get_params(), RBFSampler().get_params()
    assert {name: ours[name] for name in theirs} == theirs


@pytest.mark.parametrize(
    ("sketch", "largest"),
    [
        (argand.GaussianSketch(gamma=0.3, method="rff"), None),
        (argand.GaussianSketch(gamma=0.3, method="orf"), None),
        (argand.GaussianSketch(gamma=0.3, method="sorf"), None),
        (argand.GaussianSketch(length_scale=1.3, method="maclaurin-ctr-product-srht"), None),
        (argand.GaussianSketch(gamma="scale", method="nystrom"), 1e-5),
        (argand.DotProductSketch(), None),
        (argand.DotProductSketch(length_scale=4.0), None),
        (argand.DotProductSketch([1, 1, 0.5], method="maclaurin-ctr-rademacher"), None),
        (argand.NystromSketch(), 1e-5),
        (argand.NystromSketch("poly", degree=2, gamma=0.1), 1e-4),
        (argand.NystromSketch("exponential", gamma=0.1, selection="leverage"), 1e-4),
        (argand.NystromSketch("series", coefficients=[0, 1, 0.5], selection="uniform"), 1e-4),
        (argand.PolynomialSketch(degree=3, coef0=1, method="exact", n_components=84), 1e-12),
        (argand.PolynomialSketch(degree=3, coef0=1, method="maclaurin-ctr-product-srht", n_components=600), None),
    ],
    ids=str,
)
def test_features_approximate_the_kernel(sketch, largest, rows):
    sketch = clone(sketch).set_params(random_state=0)
    if sketch.n_components == 100:
        # As many landmarks as rows are exact.
        sketch.set_params(n_components=80 if "nystrom" in str(sketch).lower() else 1024)
    # What is not exact is random, and has the error that is expected.
    assert relative_error(sketch, rows) < (2 * sketch.expected_error(rows) if largest is None else largest)


def test_kernels_are_scikit_learns(rows):
    Y = rows[:7] + 1
    np.testing.assert_allclose(argand.GaussianSketch(gamma=0.7).kernel(rows, Y), rbf_kernel(rows, Y, 0.7))
    np.testing.assert_allclose(argand.NystromSketch().kernel(rows, Y), rbf_kernel(rows, Y))
    np.testing.assert_allclose(argand.NystromSketch("poly").kernel(rows, Y), polynomial_kernel(rows, Y))
    np.testing.assert_allclose(
        argand.DotProductSketch(length_scale=2.0).kernel(rows, Y), np.exp(rows @ Y.T / 4), rtol=1e-12
    )
    np.testing.assert_allclose(argand.DotProductSketch([1, 2, 3]).kernel(rows), 1 + 2 * (G := rows @ rows.T) + 3 * G**2)
    # The scale of the rows is learnt in fit.
    scale = argand.DotProductSketch(n_components=20, random_state=0).fit(rows).length_scale_
    assert scale == pytest.approx(np.sqrt((rows**2).sum(1).mean()))
    gamma = argand.GaussianSketch("scale", random_state=0).fit(rows).gamma_
    assert gamma == pytest.approx(RBFSampler(gamma="scale").fit(rows)._gamma)


@pytest.mark.parametrize("sketch", SKETCHES, ids=str)
def test_files_pickles_and_sparse_rows(sketch, rows, tmp_path):
    rows = np.where(rows < 0.7, 0, rows).astype(np.float32)
    fitted = clone(sketch).set_params(random_state=3, n_components=20).fit(rows)
    Z = fitted.transform(rows)
    assert Z.dtype == np.float32
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).transform(rows), Z)
    np.testing.assert_allclose(fitted.transform(sp.csr_array(rows)), Z, atol=2e-3)
    np.testing.assert_array_equal(fitted.get_feature_names_out().shape, (20,))
    fitted.save(tmp_path / "spec.json")
    loaded = type(sketch).load(tmp_path / "spec.json")
    np.testing.assert_array_equal(loaded.transform(rows), Z)
    np.testing.assert_allclose(loaded.kernel(rows), fitted.kernel(rows), rtol=1e-6)
    for other in (argand.SphericalSketch, argand.PolynomialSketch, argand.TensorProductSketch):
        if not (other is argand.PolynomialSketch and "poly" in str(sketch)):
            with pytest.raises(ValueError, match="spec: "):
                other.load(tmp_path / "spec.json")


def test_expected_errors(rows):
    sketch = argand.GaussianSketch(gamma=0.1, n_components=64, method="maclaurin-ctr-product-srht", random_state=0)
    expected = sketch.expected_error(rows)
    errors = [relative_error(clone(sketch).set_params(random_state=seed), rows) for seed in range(200)]
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(
    "sketch",
    [
        argand.GaussianSketch(gamma="scale"),
        argand.GaussianSketch(gamma="scale", method="auto"),
        argand.DotProductSketch(),
        argand.NystromSketch("exponential", n_components=20),
        argand.PolynomialSketch(),
        argand.SphericalSketch(),
        argand.TensorProductSketch(),
    ],
    ids=str,
)
def test_expected_errors_change_nothing(sketch, rows):
    fresh = clone(sketch).set_params(random_state=0)
    before = dict(vars(fresh))
    fresh.expected_error(rows)
    fresh.kernel(rows)
    assert vars(fresh) == before
    fitted = fresh.fit(rows)
    before, spec, K = dict(vars(fitted)), fitted.spec, fitted.kernel(rows)
    # Rows in other units would have another scale.
    wide = 3 * rows
    error = fitted.expected_error(wide)
    assert vars(fitted) == before and fitted.spec == spec
    np.testing.assert_array_equal(fitted.kernel(rows), K)
    with pytest.raises(ValueError, match=r"has 5 features, but|expected tables with|expected 6 columns"):
        fitted.expected_error(rows[:, :5])
    if isinstance(sketch, argand.GaussianSketch):
        same = argand.GaussianSketch(gamma=fitted.gamma_, method=fitted.method_, aim="learning")
        assert error == pytest.approx(same.expected_error(wide)) != fresh.set_params().fit(wide).expected_error(wide)


def test_a_method_is_chosen_for_the_rows(rows):
    """A sum for a wide kernel of many columns, Fourier features for a narrow one of few."""
    rng = np.random.default_rng(0)
    many, few = rng.random((300, 60)), rng.random((300, 2))
    wide = argand.GaussianSketch(length_scale=3.0, n_components=256, method="auto", random_state=0).fit(many)
    assert (wide.method_, wide.method) == ("maclaurin-ctr-product-srht", "auto")
    assert json.loads(wide.spec)["maclaurin"]["aim"] == "learning"
    same = argand.GaussianSketch(
        length_scale=3.0, n_components=256, method=wide.method_, aim="learning", random_state=0
    ).fit(many)
    np.testing.assert_array_equal(wide.transform(many), same.transform(many))
    narrow = argand.GaussianSketch(length_scale=0.1, n_components=64, method="auto", random_state=0).fit(few)
    assert narrow.method_ == "sorf"
    # As many features as asked for, whatever is chosen: sums take any number, Fourier features are pairs.
    for rows_of, length_scale, asked in ((many, 3.0, 255), (few, 0.1, 63)):
        odd = argand.GaussianSketch(length_scale=length_scale, n_components=asked, method="auto", random_state=0)
        assert odd.fit_transform(rows_of).shape == (300, asked)
    # Too few rows to compare.
    assert argand.GaussianSketch(method="auto", n_components=8).fit(rows[:3]).method_ == "sorf"


def test_scales_of_rows_far_from_the_origin_or_large():
    """1 / (n_features * X.var()), as in scikit-learn, whatever the mean, the units and the type of the rows."""
    rng = np.random.default_rng(0)
    gamma = lambda X: argand.GaussianSketch("scale", random_state=0).fit(X).gamma_
    times = 1.7e9 + rng.uniform(0, 30, (1000, 1))
    assert gamma(times) == 1 / times.var()
    assert gamma(sp.csr_array(times)) == pytest.approx(1 / times.var(), rel=1e-9)
    large = (1e25 * rng.normal(size=(200, 3)) * (rng.random((200, 3)) < 0.5)).astype(np.float32)
    expected = 1 / (3 * large.astype(np.float64).var())
    assert gamma(large) == gamma(large.astype(np.float64)) == pytest.approx(expected)
    assert gamma(sp.csr_array(large)) == pytest.approx(expected)
    twice = sp.csr_array((np.ones(4), [0, 0, 1, 1], [0, 2, 4]), (2, 2))
    assert gamma(twice) == pytest.approx(1 / (2 * twice.toarray().var()))
    assert gamma(np.full((5, 2), 1.7e9)) == gamma(sp.csr_array((5, 2))) == 1.0
    norm = argand.DotProductSketch(random_state=0).fit(sp.csr_array(large)).length_scale_
    assert norm == pytest.approx(np.sqrt(np.square(large, dtype=np.float64).sum(axis=1).mean()))
    for X in (1e200 * rng.normal(size=(50, 3)), sp.csr_array(1e200 * np.eye(5)), 1e-120 * rng.normal(size=(50, 3))):
        with pytest.raises(ValueError, match=r"X: expected n_features \* X.var\(\) from"):
            gamma(X)
        with pytest.raises(ValueError, match="X: expected a mean norm of rows"):
            argand.DotProductSketch(n_components=8).fit(X)


def test_files_do_not_say_how_landmarks_were_selected(rows, tmp_path):
    path = tmp_path / "spec.json"
    for sketch in (argand.NystromSketch, lambda **keywords: argand.GaussianSketch(method="nystrom", **keywords)):
        fitted = sketch(selection="leverage", n_components=8, random_state=0).fit(rows)
        fitted.save(path)
        loaded = type(fitted).load(path)
        assert loaded.get_params()["selection"] is None
        # A fit needs one.
        again, pivoted = clone(loaded).fit(rows), clone(loaded).set_params(selection="pivoted").fit(rows)
        assert again.spec == pivoted.spec != loaded.spec


@pytest.mark.parametrize(
    "sketch",
    [
        argand.GaussianSketch(method="nystrom", n_components=4, random_state=0),
        argand.NystromSketch(n_components=4, random_state=0),
        argand.NystromSketch("exponential", n_components=4, random_state=0),
        argand.DotProductSketch(method="nystrom", n_components=4, random_state=0),
    ],
    ids=str,
)
def test_length_scales_keep_their_last_digit(sketch, rows, tmp_path):
    length_scale_of = lambda sketch: json.loads(sketch.spec)["kernel"]["length_scale"]
    for scale in [3.909184636244557, *np.random.default_rng(0).uniform(0.5, 20, 50).tolist()]:
        fitted = clone(sketch).set_params(length_scale=scale).fit(rows)
        fitted.save(tmp_path / "sketch.json")
        loaded = type(sketch).load(tmp_path / "sketch.json")
        both = [length_scale_of(s) for s in (fitted, clone(loaded).fit(rows))]
        assert both == [scale, scale]
        np.testing.assert_array_equal(loaded.kernel(rows), fitted.kernel(rows))


def test_gammas_give_the_length_scales_of_the_command_line(rows):
    # Rounded once for the quotient and once for the root.
    for gamma in np.random.default_rng(0).uniform(0, 10, 2000).tolist():
        for sketch, scale in [
            (argand.GaussianSketch(gamma), math.sqrt(0.5 / gamma)),
            (argand.NystromSketch(gamma=gamma), math.sqrt(0.5 / gamma)),
            (argand.NystromSketch("exponential", gamma=gamma), math.sqrt(1 / gamma)),
        ]:
            assert sketch._with_kernel(rows)._kernel_parameters(6)["length_scale"] == scale
    mean = argand.NystromSketch("exponential")._with_kernel(rows)._kernel_parameters(6)
    assert mean == argand.DotProductSketch()._with_kernel(rows)._kernel_parameters(6)


def test_plans_keep_length_scales(rows):
    scale = 3.909184636244557
    for kernel, method in [("gaussian", "nystrom"), ("gaussian", "sorf"), ("exponential", "nystrom")]:
        keywords = {"kernel": kernel, "methods": [method], "n_components": 4, "random_state": 0}
        best = argand.plan(rows, length_scale=scale, **keywords).best
        assert json.loads(best.fit(rows).spec)["kernel"]["length_scale"] == scale


@pytest.mark.parametrize(("dtype", "away"), [(np.float64, 2**40), (np.float32, 2**20)], ids=["float64", "float32"])
def test_kernels_of_rows_far_from_the_origin(dtype, away):
    near = np.random.default_rng(0).integers(0, 8, (60, 4)).astype(dtype)
    for sketch in (argand.GaussianSketch(0.1), argand.NystromSketch(gamma=0.1)):
        for other in (None, near[:7] + 1):
            far = sketch.kernel(near + dtype(away), None if other is None else other + dtype(away))
            assert far.dtype == dtype
            np.testing.assert_allclose(far, sketch.kernel(near, other), rtol=1e-5)


def test_a_kernel_that_is_infinite(rows):
    wide = 20 * rows
    with pytest.raises(ValueError, match=r"kernel fits into float64, got exp\(.*or use a smaller gamma"):
        argand.NystromSketch("exponential", gamma=1.0, n_components=8, random_state=0).fit(wide)
    with pytest.raises(ValueError, match=r"kernel fits into float64, got exp\(.*or use a larger length_scale"):
        argand.DotProductSketch(length_scale=1.0, method="nystrom", n_components=8, random_state=0).fit(wide)
    with pytest.raises(ValueError, match="kernel fits into float64"):
        argand.NystromSketch("exponential", gamma=1.0, n_components=8).expected_error(wide)
    sketch = argand.NystromSketch("exponential", n_components=8, random_state=0).fit(wide)
    assert sketch.gamma_ == pytest.approx(argand.DotProductSketch(random_state=0).fit(wide).length_scale_ ** -2)


def test_models_and_pipelines():
    X, y = load_digits(return_X_y=True)
    X = X.astype(np.float32)
    for features in (
        argand.GaussianSketch(length_scale=30.0, n_components=500, method="maclaurin-ctr-product-srht", random_state=0),
        argand.NystromSketch(gamma=1 / 1800, n_components=300, random_state=0),
    ):
        model = make_pipeline(features, RidgeClassifier(1e-3)).fit(X[:1200], y[:1200])
        assert model.score(X[1200:], y[1200:]) > 0.94
    for method in ("maclaurin-ctr-product-srht", "nystrom"):
        model = argand.RidgeClassifier(degree=3, gamma=1e-3, coef0=1.0, n_components=500, method=method, random_state=0)
        assert model.fit(X[:1200], y[:1200]).score(X[1200:], y[1200:]) > 0.94


def test_fewer_landmarks_than_asked_for():
    X = np.repeat(np.eye(4), 3, axis=0)
    with pytest.warns(UserWarning, match="n_components: expected at most the 4"):
        assert argand.NystromSketch(n_components=20).fit_transform(X).shape == (12, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert argand.NystromSketch(n_components=3, random_state=0).fit(X).transform(X).shape == (12, 3)


def test_better_landmarks_than_at_random():
    X = load_digits().data
    ours = argand.NystromSketch(gamma=1 / 1000, n_components=200, random_state=0)
    theirs = Nystroem(gamma=1 / 1000, n_components=200, random_state=0)
    K = rbf_kernel(X, gamma=1 / 1000)
    errors = [np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K) for Z in (s.fit_transform(X) for s in (ours, theirs))]
    assert errors[0] < errors[1]


@pytest.mark.parametrize(
    ("sketch", "match"),
    [
        (argand.GaussianSketch(gamma=0), "gamma: expected a positive number, got 0"),
        (argand.GaussianSketch(gamma="wide"), "gamma: expected"),
        (argand.GaussianSketch(length_scale=-1.0), "length_scale: expected a positive number"),
        (argand.GaussianSketch(length_scale=1e-3, method="maclaurin-ctr-product-srht"), "X: expected rows on which"),
        (argand.GaussianSketch(method="ctr-gaussian"), "method: expected maclaurin-"),
        (argand.GaussianSketch(method="nystrom", selection="best"), "selection: expected uniform"),
        (argand.DotProductSketch([1, -1]), "coefficients: expected finite numbers of at least 0"),
        (argand.DotProductSketch([]), "coefficients: expected 1 to 65 numbers"),
        (argand.DotProductSketch(np.ones(70)), "coefficients"),
        (argand.DotProductSketch(length_scale=0.0), "length_scale"),
        (argand.GaussianSketch(length_scale=1e-300), "length_scale: expected a number from 1e-100"),
        (argand.GaussianSketch(length_scale=1e300), "length_scale: expected a number from 1e-100"),
        (argand.GaussianSketch(gamma=1e-300), "gamma: expected a number from 1e-199 .*got 1e-300"),
        (argand.NystromSketch(gamma=1e300), "gamma: expected a number from 1e-199"),
        (argand.NystromSketch("poly", gamma=-1.0), "gamma: expected"),
        (argand.NystromSketch("series"), "coefficients: expected numbers, one for every power"),
        (argand.NystromSketch(gamma=1.0, length_scale=1.0), "gamma: expected either this or length_scale"),
        (argand.NystromSketch("poly", length_scale=1.0), "length_scale: expected only for kernel_type rbf or exp"),
        (argand.NystromSketch("sine"), "kernel_type: expected rbf"),
        (argand.NystromSketch(gamma=np.nan), "gamma"),
        (argand.PolynomialSketch(method="exact"), "n_components: expected 21, all monomials"),
    ],
    ids=str,
)
def test_wrong_arguments(sketch, match, rows):
    with pytest.raises(ValueError, match=match):
        sketch.fit(rows)
    with pytest.raises(TypeError, match="coefficients: expected numbers"):
        argand.DotProductSketch(["a"]).fit(rows)


def test_specs_are_small_but_for_landmarks(rows):
    spec = argand.GaussianSketch(method="maclaurin-ctr-product-srht", n_components=2000).fit(rows).spec
    assert len(spec) < 2500 and json.loads(spec)["version"] == 2
