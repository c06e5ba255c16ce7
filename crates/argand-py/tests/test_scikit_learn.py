"""The estimators within scikit-learn."""

import pickle

import argand
import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from argand._arguments import threads_of
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import PolynomialCountSketch
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

SKETCHES = [argand.PolynomialSketch, argand.TensorProductSketch, argand.SphericalSketch]


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([sketch(n_components=20) for sketch in SKETCHES])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_every_parameter_of_polynomial_count_sketch_has_its_default():
    ours = argand.PolynomialSketch().get_params()
    theirs = PolynomialCountSketch().get_params()
    assert {name: ours[name] for name in theirs} == theirs


@pytest.mark.parametrize("sketch", SKETCHES)
def test_pickle_and_clone(sketch, X):
    fitted = sketch(n_components=30, random_state=7).fit(X)
    Z = fitted.transform(X)
    pickled = pickle.dumps(fitted)
    # By spec: a drawn Gaussian sketch of this size would be megabytes.
    assert len(pickled) < 5000
    np.testing.assert_array_equal(pickle.loads(pickled).transform(X), Z)
    np.testing.assert_array_equal(clone(fitted).fit(X).transform(X), Z)
    odd = sketch(n_components=7, random_state=7).fit(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(odd)).transform(X), odd.transform(X))


def test_pickles_do_not_grow_with_the_sketch():
    fitted = argand.PolynomialSketch(method="gaussian", n_components=2000, random_state=0).fit(np.ones((2, 500)))
    assert len(pickle.dumps(fitted)) < 2000


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("argand._sketches", ["PolynomialSketch", "SphericalSketch", "TensorProductSketch"]),
        ("argand._kernel_sketches", ["DotProductSketch", "GaussianSketch", "NystromSketch"]),
        ("argand._models", ["GPClassifier", "GPRegressor", "Ridge", "RidgeClassifier"]),
        ("argand._plan", ["Candidate", "Plan"]),
    ],
)
def test_pickles_name_modules_that_stay(module, names):
    for name in names:
        # How old pickles name a class, and how new ones do.
        assert pickle.loads(f"c{module}\n{name}\n.".encode()) is getattr(argand, name)
        assert getattr(argand, name).__module__ == module


def test_random_state(X):
    features = lambda random_state: argand.PolynomialSketch(random_state=random_state).fit_transform(X)
    assert argand.PolynomialSketch(random_state=42).fit(X).seed_ == 42
    np.testing.assert_array_equal(features(3), features(np.int64(3)))
    assert not np.array_equal(features(3), features(4))
    assert not np.array_equal(features(None), features(None))
    for make in (np.random.RandomState, np.random.default_rng):
        np.testing.assert_array_equal(features(make(5)), features(make(5)))
        state = make(5)
        assert not np.array_equal(features(state), features(state))
    np.random.seed(0)
    first = features(None)
    np.random.seed(0)
    np.testing.assert_array_equal(features(None), first)
    largest = argand.PolynomialSketch(random_state=2**64 - 1).fit(X)
    assert '"seed": 18446744073709551615' in largest.spec


@pytest.mark.parametrize("sketch", SKETCHES)
def test_frames_in_and_out(sketch, X):
    names = [f"column {i}" for i in range(12)]
    fitted = sketch(n_components=6, random_state=0).fit(pd.DataFrame(X, columns=names))
    assert list(fitted.feature_names_in_) == names
    Z = fitted.transform(pd.DataFrame(X, columns=names))
    assert isinstance(Z, np.ndarray)
    np.testing.assert_array_equal(fitted.transform(pl.DataFrame(X, schema=names)), Z)
    prefix = sketch.__name__.lower()
    assert list(fitted.get_feature_names_out()) == [f"{prefix}{i}" for i in range(6)]
    frame = fitted.set_output(transform="pandas").transform(pd.DataFrame(X, columns=names, index=range(100, 160)))
    assert isinstance(frame, pd.DataFrame) and list(frame.columns) == [f"{prefix}{i}" for i in range(6)]
    assert list(frame.index) == list(range(100, 160))
    np.testing.assert_array_equal(frame.to_numpy(), Z)
    frame = fitted.set_output(transform="polars").transform(pl.DataFrame(X, schema=names))
    assert isinstance(frame, pl.DataFrame) and frame.columns == [f"{prefix}{i}" for i in range(6)]
    with pytest.raises(ValueError, match="feature names"):
        fitted.transform(pd.DataFrame(X, columns=names[::-1]))
    with pytest.warns(UserWarning, match="valid feature names"):
        fitted.transform(X)


def test_pipelines():
    X, y = load_digits(return_X_y=True)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    pipeline = make_pipeline(argand.PolynomialSketch(3, n_components=500, random_state=0), RidgeClassifier(alpha=1e-3))
    assert pipeline.fit(X[:1200], y[:1200]).score(X[1200:], y[1200:]) > 0.93
    search = GridSearchCV(pipeline, {"polynomialsketch__degree": [1, 2], "polynomialsketch__gamma": [0.5, 1.0]}, cv=2)
    assert search.fit(X[:600], y[:600]).best_params_["polynomialsketch__degree"] == 2
    halves = ColumnTransformer(
        [("top", argand.PolynomialSketch(), slice(0, 32)), ("rest", "passthrough", slice(32, 64))]
    )
    assert halves.fit_transform(X).shape == (len(X), 132)
    fused = make_pipeline(argand.TensorProductSketch([32, 32], 256, random_state=0), RidgeClassifier())
    assert fused.fit(X[:1200], y[:1200]).score(X[1200:], y[1200:]) > 0.8


def test_sparse_output_of_another_step_is_read(X):
    from sklearn.preprocessing import OneHotEncoder

    categories = np.arange(60).reshape(-1, 1) % 7
    pipeline = make_pipeline(OneHotEncoder(), argand.PolynomialSketch(n_components=8, random_state=0))
    Z = pipeline.fit_transform(categories)
    assert sp.issparse(pipeline[0].transform(categories)) and Z.shape == (60, 8)
    np.testing.assert_array_equal(Z[0], Z[7])


def test_workers_of_joblib_share_the_cores(monkeypatch):
    """As many threads as joblib leaves to each worker, all cores outside of them, and always what was asked for."""

    def in_workers(n_jobs, **options):
        return joblib.Parallel(n_jobs=2, **options)(joblib.delayed(threads_of)(n_jobs) for _ in range(3))

    assert threads_of(None) is None
    assert in_workers(None) == [max(1, joblib.cpu_count() // 2)] * 3
    assert in_workers(None, backend="threading") == [1] * 3
    with joblib.parallel_config(backend="loky", inner_max_num_threads=3):
        assert in_workers(None) == [3] * 3
    assert in_workers(7) == [7] * 3
    assert in_workers(-1) == [None] * 3
    assert joblib.Parallel(n_jobs=1)(joblib.delayed(threads_of)(None) for _ in range(2)) == [None] * 2
    for share, threads in {"4": 4, "0": 1, "many": 1, "99999": 512, "9" * 5000: 1}.items():
        monkeypatch.setenv("OMP_NUM_THREADS", share)
        assert in_workers(None, backend="threading") == [threads] * 3
