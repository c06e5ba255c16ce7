"""What the sketches compute, and their other methods."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import argand
import numpy as np
import pytest
import scipy.sparse as sp

FIXTURE = Path(__file__).parents[2] / "argand" / "tests" / "fixture"
METHODS = ["ctr-product-srht", "product-srht", "ctr-tensor-srht", "tensor-sketch", "ctr-rademacher", "gaussian"]


def test_the_fixture_agrees_to_the_last_digit():
    """Rust and the command line read the same three files."""
    x = np.loadtxt(FIXTURE / "x.csv", delimiter=",")
    expected = np.loadtxt(FIXTURE / "features.csv", delimiter=",", skiprows=1)
    loaded = argand.PolynomialSketch.load(FIXTURE / "spec.json")
    np.testing.assert_array_equal(loaded.transform(x), expected)
    assert loaded.spec == (FIXTURE / "spec.json").read_text()
    sketch = argand.PolynomialSketch(3, gamma=0.5, coef0=1.0, n_components=16, random_state=42).fit(x)
    np.testing.assert_array_equal(sketch.transform(x), expected)
    assert sketch.spec == loaded.spec


@pytest.mark.parametrize(
    "method", [*METHODS, "chain-ctr-rademacher", "hierarchical-product-srht", "craft-ctr-product-srht"]
)
def test_features_have_the_predicted_error(method, X):
    """The mean squared error of 30 sketches sums many terms: within 40 % of its expectation."""
    keywords = {"degree": 3, "gamma": 0.5, "coef0": 1.0, "n_components": 200, "method": method, "craft_dim": 1024}
    K = argand.PolynomialSketch(**keywords).kernel(X)
    np.testing.assert_allclose(K, (0.5 * X @ X.T + 1) ** 3, rtol=1e-12)
    expected = argand.PolynomialSketch(**keywords).expected_error(X)
    squares, mean = [], np.zeros_like(K)
    for seed in range(30):
        Z = argand.PolynomialSketch(**keywords, random_state=seed).fit_transform(X)
        mean += Z @ Z.T / 30
        squares.append(np.linalg.norm(Z @ Z.T - K) ** 2)
        if seed == 0:
            error = argand.theory.kernel_error(X, Z, degree=3, gamma=0.5, coef0=1.0)
            np.testing.assert_allclose(error, np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K), rtol=1e-9)
    assert 0.6 < np.mean(squares) / (expected * np.linalg.norm(K)) ** 2 < 1.4
    # Also unbiased: the mean of 30 is √30 times closer.
    assert np.linalg.norm(mean - K) / np.linalg.norm(K) < 1.6 * expected / 30**0.5


@pytest.mark.parametrize("method", ["ctr-product-srht", "hierarchical-ctr-gaussian", "ctr-tensor-sketch", "srf"])
def test_adding_up_a_pair_is_unbiased(method, X):
    """Adding every pair, not only the last of an odd number of features, gives the same kernel."""
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    sketch = argand.PolynomialSketch(3, gamma=0.5, coef0=0.5, n_components=4000, method=method, random_state=0)
    cosines, sines = np.hsplit(sketch.fit_transform(X), 2)
    estimate, K = (cosines + sines) @ (cosines + sines).T, sketch.kernel(X)
    if method == "srf":
        K = cosines @ cosines.T + sines @ sines.T  # biased itself
    # Half as many features: √2 times the error, and a factor of two for chance.
    assert np.linalg.norm(estimate - K) < 2 * 2**0.5 * sketch.expected_error(X) * np.linalg.norm(K)


def test_odd_features_come_from_even_ones(X):
    odd = argand.PolynomialSketch(n_components=9, random_state=3).fit_transform(X)
    even = argand.PolynomialSketch(n_components=10, random_state=3).fit_transform(X)
    np.testing.assert_array_equal(odd[:, [0, 1, 2, 3, 5, 6, 7, 8]], even[:, [0, 1, 2, 3, 5, 6, 7, 8]])
    np.testing.assert_array_equal(odd[:, 4], even[:, 4] + even[:, 9])


def test_complex_features(X):
    sketch = argand.PolynomialSketch(2, method="complex-product-srht", n_components=20000, random_state=0).fit(X)
    Z = sketch.transform(X)
    assert Z.dtype == np.complex128 and Z.shape == (60, 10000)
    assert len(sketch.get_feature_names_out()) == 10000
    K = sketch.kernel(X)
    assert np.linalg.norm(Z @ Z.conj().T - K) < 0.05 * np.linalg.norm(K)
    assert sketch.transform(X.astype(np.float32)).dtype == np.complex64
    out = np.empty_like(Z)
    assert sketch.transform(X, out=out) is out
    np.testing.assert_array_equal(out, Z)
    ctr = argand.PolynomialSketch(2, n_components=20000, random_state=0).fit_transform(X)
    np.testing.assert_array_equal(ctr, np.hstack([Z.real, Z.imag]))
    with pytest.raises(ValueError, match="n_components: expected an even number"):
        argand.PolynomialSketch(method="complex-gaussian", n_components=3).fit(X)


def test_tensor_products(X):
    tables = [X, X[:, :5] + 1, X[:, 5:8]]
    sketch = argand.TensorProductSketch(n_components=20000, coef0=0.5, random_state=0).fit(tables)
    assert (sketch.dims_, sketch.n_features_in_) == ([12, 5, 3], 20)
    K = np.prod([x @ x.T + 0.5 for x in tables], axis=0)
    np.testing.assert_allclose(sketch.kernel(tables), K, rtol=1e-12)
    np.testing.assert_allclose(sketch.kernel(tables, [x[:4] for x in tables]), K[:, :4], rtol=1e-12)
    Z = sketch.transform(tables)
    assert np.linalg.norm(Z @ Z.T - K) < 3 * sketch.expected_error(tables) * np.linalg.norm(K)
    np.testing.assert_allclose(
        argand.theory.kernel_error(tables, Z, coef0=0.5), np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K), rtol=1e-9
    )
    # One wide table, nested lists and sparse tables give the same features.
    split = argand.TensorProductSketch([12, 5, 3], 20000, coef0=0.5, random_state=0)
    np.testing.assert_array_equal(split.fit_transform(np.hstack(tables)), Z)
    np.testing.assert_array_equal(split.transform(tables), Z)
    np.testing.assert_array_equal(sketch.transform([table.tolist() for table in tables]), Z)
    np.testing.assert_array_equal(sketch.transform((sp.csr_array(tables[0]), tables[1], sp.coo_array(tables[2]))), Z)
    np.testing.assert_allclose(split.kernel(np.hstack(tables)), K, rtol=1e-12)
    assert split.expected_error(np.hstack(tables)) == sketch.expected_error(tables)
    # float32 only if all tables are.
    assert sketch.transform([x.astype(np.float32) for x in tables]).dtype == np.float32
    assert sketch.transform([x.astype(np.float32) for x in tables[:2]] + tables[2:]).dtype == np.float64


def test_tensor_products_say_what_is_wrong(X):
    sketch = argand.TensorProductSketch([12, 5], 10).fit([X, X[:, :5]])
    with pytest.raises(ValueError, match=r"X: expected tables with \[12, 5\] columns, got \[5, 12\]"):
        sketch.transform([X[:, :5], X])
    with pytest.raises(ValueError, match=r"X\[1\]: expected 60 rows, as the first table, got 59"):
        sketch.transform([X, X[1:, :5]])
    with pytest.raises(ValueError, match="17"):
        sketch.transform(X)
    bad = X[:, :5].copy()
    bad[40, 2] = np.nan
    with pytest.raises(ValueError, match=r"X\[1\]: row 40, column 2 is NaN"):
        sketch.transform([X, bad])
    with pytest.raises(ValueError, match="X: expected 18 columns"):
        argand.TensorProductSketch([12, 6]).fit(X)
    with pytest.raises(ValueError, match="dims"):
        argand.TensorProductSketch([12, 0]).fit(X)
    with pytest.raises(TypeError, match="dims: expected the columns of each table, got 5"):
        argand.TensorProductSketch(5).fit(X)
    with pytest.raises(ValueError, match="method"):
        argand.TensorProductSketch(method="srf").fit(X)


def test_spherical_features(X):
    sketch = argand.SphericalSketch(3, s=2.5, n_components=4000, random_state=0).fit(X)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    K = ((1 - 2 / 2.5**2) + 2 / 2.5**2 * unit @ unit.T) ** 3
    np.testing.assert_allclose(sketch.kernel(X), K, atol=1e-12)
    Z = sketch.transform(X)
    assert 0 < np.linalg.norm(Z @ Z.T - K) / np.linalg.norm(K) < 0.1
    assert "rms_error" in json.loads(sketch.spec)["spherical"]
    same = argand.PolynomialSketch(
        3, gamma=2 / 2.5**2, coef0=1 - 2 / 2.5**2, n_components=4000, method="srf", random_state=0
    )
    np.testing.assert_array_equal(same.fit_transform(X), Z)
    # Rows of zeros are the origin.
    zero = np.vstack([np.zeros(12), X])
    with_origin = sketch.transform(zero)
    np.testing.assert_array_equal(with_origin[1:], Z)
    assert abs(with_origin @ with_origin.T - sketch.kernel(zero)).max() < 0.1
    np.testing.assert_array_equal(sketch.transform(sp.csr_array(zero)), with_origin)
    with pytest.raises(ValueError, match="zeros in row 0"):
        same.transform(zero)
    with pytest.raises(ValueError, match="s: expected"):
        argand.SphericalSketch(s=1.9).fit(X)


@pytest.mark.parametrize("n_jobs", [1, 2, 3, -1, -2])
def test_threads_never_change_a_feature(n_jobs, X):
    many = np.tile(X, (40, 1))
    for method in METHODS:
        sketch = argand.PolynomialSketch(3, n_components=64, method=method, random_state=0).fit(many)
        np.testing.assert_array_equal(
            sketch.set_params(n_jobs=n_jobs).transform(many), np.tile(sketch.transform(X), (40, 1))
        )


def test_save_and_load(X, tmp_path):
    for sketch, tables in [
        (
            argand.PolynomialSketch(
                3, gamma=0.25, coef0=0.1, n_components=12, method="craft-ctr-gaussian", craft_dim=64
            ),
            X,
        ),
        (argand.TensorProductSketch(None, 8, "chain-product-srht", gamma=2.0, coef0=0.25), [X, X[:, :2]]),
        (argand.SphericalSketch(5, s=3.0, n_components=8), X),
    ]:
        Z = sketch.fit_transform(tables)
        sketch.save(tmp_path / "sketch.json")
        assert os.listdir(tmp_path) == ["sketch.json"]
        assert (tmp_path / "sketch.json").read_text() == sketch.spec
        loaded = type(sketch).load(str(tmp_path / "sketch.json"))
        np.testing.assert_array_equal(loaded.transform(tables), Z)
        assert loaded.spec == sketch.spec and loaded.n_features_in_ == sketch.n_features_in_
        # The parameters agree.
        np.testing.assert_array_equal(loaded.fit(tables).transform(tables), Z)
    (tmp_path / "product.json").write_text(argand.TensorProductSketch().fit([X, X]).spec)
    with pytest.raises(ValueError, match="TensorProductSketch can load it"):
        argand.PolynomialSketch.load(tmp_path / "product.json")
    with pytest.raises(ValueError, match="even number to save"):
        argand.PolynomialSketch(n_components=7).fit(X).save(tmp_path / "odd.json")
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises(ValueError, match="spec"):
        argand.PolynomialSketch.load(tmp_path / "broken.json")
    with pytest.raises(FileNotFoundError):
        argand.PolynomialSketch.load(tmp_path / "missing.json")
    with pytest.raises(FileNotFoundError):
        argand.PolynomialSketch().fit(X).save(tmp_path / "missing" / "sketch.json")


def test_unfitted(X):
    from sklearn.exceptions import NotFittedError

    for use in (lambda s: s.transform(X), lambda s: s.spec, lambda s: s.save("never.json")):
        with pytest.raises(NotFittedError):
            use(argand.PolynomialSketch())


def test_out(X):
    sketch = argand.PolynomialSketch(n_components=10, random_state=0).fit(X)
    Z = sketch.transform(X)
    out = np.full((60, 10), np.nan)
    assert sketch.transform(X, out=out) is out
    np.testing.assert_array_equal(out, Z)
    for strided in (np.zeros((60, 20))[:, ::2], np.zeros((60, 10), order="F"), np.zeros((60, 10))[::-1]):
        assert sketch.transform(X, out=strided) is strided
        np.testing.assert_array_equal(strided, Z)
    odd = argand.PolynomialSketch(n_components=9, random_state=0).fit(X)
    assert odd.transform(X, out=out[:, :9]).base is out
    np.testing.assert_array_equal(out[:, :9], odd.transform(X))
    for wrong, error, message in [
        (np.empty((60, 9)), ValueError, r"out: expected the shape \(60, 10\), got \(60, 9\)"),
        (np.empty((60, 10), np.float32), ValueError, "out: expected the type float64, got float32"),
        ([[0.0] * 10] * 60, TypeError, "out: expected a NumPy array, got list"),
    ]:
        with pytest.raises(error, match=message):
            sketch.transform(X, out=wrong)
    read_only = np.zeros((60, 10))
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="out: expected a writable array"):
        sketch.transform(X, out=read_only)
    # Output in the input's memory.
    square = argand.PolynomialSketch(n_components=12).fit(X)
    with pytest.raises(ValueError, match="out: must be writable and not overlap X"):
        square.transform(X, out=X)


def test_out_is_unchanged_after_bad_input():
    X = np.ones((50_000, 8))
    sketch = argand.PolynomialSketch(n_components=16, random_state=0).fit(X)
    X[49_999, 3] = np.inf
    out = np.full((50_000, 16), 7.0)
    with pytest.raises(ValueError, match="X: row 49999, column 3 is inf"):
        sketch.transform(X, out=out)
    assert (out == 7.0).all()
    # Also without out=, where blocks find it.
    with pytest.raises(ValueError, match="X: row 49999, column 3 is inf"):
        sketch.transform(X)


def test_overflow_names_the_row():
    X = np.ones((300, 4), np.float32)
    X[250] = 1e30
    with pytest.raises(ValueError, match=r"row 250 are too large for float32.*float64"):
        argand.PolynomialSketch(2, n_components=8).fit(X).transform(X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inputs_are_read_where_they_are(dtype):
    X, out = np.ones((100_000, 16), dtype), np.empty((100_000, 2), dtype)
    sketch = argand.PolynomialSketch(n_components=2, random_state=0).fit(X)

    def allocated(table, **keywords):
        tracemalloc.start()
        sketch.transform(table, **keywords)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert allocated(X, out=out) < 50_000
    assert out.nbytes <= allocated(X) < out.nbytes + 50_000
    assert allocated(sp.csr_array(X), out=out) < 50_000
    # The measurement notices copies.
    assert allocated(np.asfortranarray(X), out=out) >= X.nbytes


def test_the_lock_is_released():
    """Another thread runs while features are computed."""
    X = np.random.default_rng(0).random((4000, 500))
    sketch = argand.PolynomialSketch(2, method="gaussian", n_components=2000, n_jobs=1, random_state=0).fit(X)
    counts, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counts[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    begun = time.perf_counter()
    sketch.transform(X)
    elapsed = time.perf_counter() - begun
    done.set()
    thread.join()
    assert counts[0] > 50 * elapsed


@pytest.mark.skipif(os.name != "posix", reason="sends a POSIX signal")
@pytest.mark.parametrize(
    "work",
    [
        "sketch.fit(X[:2]).transform(X)",
        "argand.PolynomialSketch(9, method='gaussian', n_components=60_000).fit(X[:2])",
        "argand.plan(X[:5000], degree=12, target_error=1e-3)",
    ],
)
def test_interrupts(work):
    """Ctrl-C ends work of many seconds within one, on a busy machine within three."""
    code = f"""
import os, signal, threading, time
import argand, numpy as np
signal.signal(signal.SIGINT, signal.default_int_handler)
X = np.random.default_rng(0).random((200_000, 800), dtype=np.float32)
sketch = argand.PolynomialSketch(8, method='gaussian', n_components=4000)
sent = []
def interrupt():
    sent.append(time.perf_counter())
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(1.0, interrupt).start()
try:
    {work}
except KeyboardInterrupt:
    print(time.perf_counter() - sent[0], flush=True)
    os._exit(0)
print("finished")
"""
    assert float(run_python(code)) < 3.0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_forked_processes_have_their_own_threads():
    code = """
import os, sys, warnings
import argand, numpy as np
X = np.random.default_rng(0).random((5000, 50))
sketch = argand.PolynomialSketch(n_components=64, random_state=0).fit(X)
Z = sketch.transform(X)
warnings.simplefilter("ignore")
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(sketch.transform(X), Z) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run_python(code).strip() == "0"


def run_python(code):
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.slow
def test_more_than_2_to_the_31_numbers(tmp_path):
    """Input and output in sparse files of 8.6 GB each; only the output takes disk."""
    rows = (1 << 21) + 1000
    X = np.memmap(tmp_path / "x", np.float32, "w+", shape=(rows, 1024))
    X[-1] = np.linspace(0, 1, 1024, dtype=np.float32)
    X.flush()
    X = np.memmap(tmp_path / "x", np.float32, "r", shape=(rows, 1024))
    sketch = argand.PolynomialSketch(n_components=4, coef0=1.0, random_state=0).fit(X[-10:])
    Z = sketch.transform(X)
    np.testing.assert_array_equal(Z[-10:], sketch.transform(X[-10:]))
    np.testing.assert_array_equal(Z[0], Z[-2])
    assert not np.array_equal(Z[-1], Z[-2])
    wide = argand.PolynomialSketch(n_components=1024, coef0=1.0, random_state=0).fit(X[-10:, :3])
    out = np.memmap(tmp_path / "z", np.float32, "w+", shape=(rows, 1024))
    small = np.zeros((rows, 3), np.float32)
    small[-1] = 1
    wide.transform(small, out=out)
    np.testing.assert_array_equal(out[-2:], wide.transform(small[-2:]))


def test_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", argand.__version__)


@pytest.fixture
def interruptible():
    """SIGINT raises KeyboardInterrupt, even in a process started to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


@pytest.mark.skipif(os.name != "posix", reason="sends a POSIX signal")
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_leaves_a_usable_sketch(X):
    sketch = argand.PolynomialSketch(6, method="gaussian", n_components=4000, random_state=0).fit(X)
    many = np.tile(X, (2000, 1))
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()

    def transform_often():  # a fast machine may finish one before the signal comes
        for _ in range(100):
            sketch.transform(many)

    with pytest.raises(KeyboardInterrupt):
        transform_often()
    np.testing.assert_array_equal(sketch.transform(X), argand.PolynomialSketch(**sketch.get_params()).fit_transform(X))


def test_a_failed_refit_changes_nothing():
    rng = np.random.default_rng(0)
    X, y = rng.random((60, 8)), np.arange(60) % 2
    model = argand.GPClassifier(n_components=16, random_state=0).fit(X, y)
    before = model.predict_proba(X)
    with pytest.raises(ValueError):
        model.fit(X * 1e30, np.arange(60) % 3)
    assert np.array_equal(model.predict_proba(X), before)
    with pytest.raises(ValueError):
        model.partial_fit(X * 1e30, y)
    assert np.array_equal(model.predict_proba(X), before)
    sketch = argand.PolynomialSketch(n_components=16, random_state=0).fit(X)
    before = sketch.transform(X)
    with pytest.raises(ValueError):
        sketch.set_params(method="x").fit(X[:, :3])
    assert np.array_equal(sketch.transform(X), before)


def test_a_fitted_product_splits_tables_as_it_was_fitted():
    X = np.random.default_rng(0).random((20, 7))
    parts = [X[:, :3], X[:, 3:]]
    sketch = argand.TensorProductSketch(n_components=16, random_state=0).fit(parts)
    assert np.allclose(sketch.kernel(X), sketch.kernel(parts))
    assert np.isclose(sketch.expected_error(X), sketch.expected_error(parts))


def test_single_rows_are_added():
    X = np.random.default_rng(0).random((20, 5))
    model = argand.GPRegressor(n_components=16, random_state=0)
    model.partial_fit(X[:19], X[:19, 0]).partial_fit(X[19:], X[19:, 0])
    whole = argand.GPRegressor(n_components=16, random_state=0).fit(X, X[:, 0])
    assert np.allclose(model.predict(X), whole.predict(X), atol=1e-3)


def test_rows_that_nobody_scaled_are_learnt_from():
    from sklearn.datasets import load_diabetes
    from sklearn.linear_model import Ridge

    X, y = load_diabetes(return_X_y=True, scaled=False)
    keywords = {"degree": 2, "coef0": 1.0, "n_components": 400, "random_state": 0}
    features = argand.PolynomialSketch(**keywords).fit_transform(X)
    ours, theirs = argand.Ridge(**keywords).fit(X, y).score(X, y), Ridge().fit(features, y).score(features, y)
    assert abs(ours - theirs) < 0.01, (ours, theirs)


def test_specs_of_the_command_line_may_name_their_columns(tmp_path):
    """A recipe is read if names are all that it adds; a changed digit is noticed in either file."""
    sketch = argand.PolynomialSketch(3, n_components=16, random_state=7).fit(np.ones((2, 2)))
    spec = json.loads(sketch.spec)
    assert spec.pop("checksum").startswith("crc32 ")
    plain = {"scaling": "none", "tables": []}
    path = tmp_path / "s.json"

    def write(preparation):
        recipe = {"columns": [["a", "b"]], "preparation": preparation, "spec": spec}
        path.write_text(json.dumps({"format": "argand-recipe", "version": 1, "recipe": recipe}))

    write(plain)
    X = np.random.default_rng(0).random((5, 2))
    np.testing.assert_array_equal(argand.PolynomialSketch.load(path).transform(X), sketch.transform(X))
    write({"scaling": "unit", "tables": [{"shift": [], "scale": []}]})
    with pytest.raises(ValueError, match="scales rows or replaces missing numbers"):
        argand.PolynomialSketch.load(path)
    path.write_text(sketch.spec.replace('"seed": 7', '"seed": 8'))
    with pytest.raises(ValueError, match="the checksum does not match"):
        argand.PolynomialSketch.load(path)
