"""Every kind of table that Python users pass, and every kind refused."""

import argand
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

SPARSE_METHODS = ["ctr-product-srht", "tensor-sketch", "rademacher", "gaussian"]


@pytest.fixture
def sketch(X):
    return argand.PolynomialSketch(3, coef0=0.5, n_components=32, random_state=0).fit(X)


def test_layouts(X, sketch, tmp_path):
    Z = sketch.transform(X)
    padded = np.zeros((60, 20))
    padded[:, 3:15] = X
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert not mapped.flags.writeable
    unaligned = np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float64).reshape(X.shape)
    for same in [
        np.asfortranarray(X),
        X[::-1][::-1],
        X[:, ::-1][:, ::-1],
        padded[:, 3:15],
        np.repeat(X, 2, axis=0)[::2],
        np.repeat(X, 3, axis=1)[:, ::3],
        mapped,
        unaligned,
        X.tolist(),
        pd.DataFrame(X),
        X.astype(">f8"),
        X.astype(object),
        X.astype(np.longdouble),
        np.ma.masked_array(X),
    ]:
        np.testing.assert_array_equal(sketch.transform(same), Z)
    np.testing.assert_array_equal(sketch.transform(X[::-1]), Z[::-1])
    np.testing.assert_array_equal(sketch.transform(X[::7]), Z[::7])


@pytest.mark.parametrize("dtype", ["f2", "i1", "u1", "i2", "i4", "u8", "i8", "?", ">i4", ">f8", "g"])
def test_other_types_are_computed_in_float64(dtype, X):
    table = np.rint(3 * X).clip(0, 2).astype(dtype)
    sketch = argand.PolynomialSketch(n_components=8, random_state=0).fit(table)
    Z = sketch.transform(table)
    assert Z.dtype == np.float64
    np.testing.assert_array_equal(Z, sketch.transform(table.astype(np.float64)))


@pytest.mark.parametrize("dtype", ["<f4", ">f4"])
def test_float32_stays_float32(dtype, X, sketch):
    table = X.astype(dtype)
    Z = sketch.transform(table)
    assert Z.dtype == np.float32
    np.testing.assert_array_equal(Z, sketch.transform(X.astype(np.float32)))
    np.testing.assert_allclose(Z, sketch.transform(X), rtol=1e-3, atol=1e-4)
    assert sketch.transform(sp.csr_array(X.astype(np.float32))).dtype == np.float32


@pytest.mark.parametrize("method", SPARSE_METHODS)
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_sparse_is_dense(method, precision, X):
    X = X.astype(precision)
    sketch = argand.PolynomialSketch(3, coef0=0.5, n_components=32, method=method, random_state=0).fit(sp.csr_array(X))
    Z = sketch.transform(X)
    tolerance = 200 * np.finfo(precision).eps * np.abs(Z).max()
    for make in (
        sp.csr_array,
        sp.csr_matrix,
        sp.csc_array,
        sp.csc_matrix,
        sp.coo_array,
        sp.coo_matrix,
        sp.lil_array,
        sp.bsr_array,
    ):
        np.testing.assert_allclose(sketch.transform(make(X)), Z, rtol=0, atol=tolerance)
    wide = sp.csr_array(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    np.testing.assert_allclose(sketch.transform(wide), Z, rtol=0, atol=tolerance)
    np.testing.assert_allclose(sketch.transform(sp.csr_array(X)[5:9]), Z[5:9], rtol=0, atol=tolerance)


@pytest.mark.parametrize("method", SPARSE_METHODS)
def test_sparse_with_duplicates_and_in_any_order(method):
    duplicated = sp.csr_array(
        (np.array([1.0, 2.0, 3.0, 4.0, -4.0]), np.array([4, 1, 4, 0, 0]), np.array([0, 3, 3, 5])), (3, 5)
    )
    sketch = argand.PolynomialSketch(2, coef0=1.0, n_components=16, method=method, random_state=0).fit(duplicated)
    summed = np.array([[0, 2, 0, 0, 4], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]], float)
    np.testing.assert_allclose(sketch.transform(duplicated), sketch.transform(summed), atol=1e-12)
    assert duplicated.nnz == 5  # and X is unchanged


def broken(make, **changes):
    table = make(sp.csr_array(np.arange(12.0).reshape(3, 4)))
    for name, (at, value) in changes.items():
        getattr(table, name)[at] = value
    return table


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (broken(sp.csr_array, indices=(2, 4)), "X.indices: expected indices from 0 to 3, got 4"),
        (broken(sp.csr_array, indices=(2, -1)), "X.indices: expected indices from 0 to 3, got -1"),
        (broken(sp.csr_array, indptr=(1, 9)), "X.indptr: expected 4 numbers that rise from 0 to at most 11"),
        (broken(sp.csr_array, indptr=(3, 1000)), "X.indptr: expected 4 numbers that rise from 0 to at most 11"),
        (broken(sp.csc_array, indices=(2, 3)), "X.indices: expected indices from 0 to 2, got 3"),
        (broken(sp.csc_array, indices=(2, -1)), "X.indices: expected indices from 0 to 2, got -1"),
        (broken(sp.coo_array, row=(2, 3)), "X.row: expected indices from 0 to 2"),
        (broken(sp.coo_array, col=(2, -1)), "X.col: expected indices from 0 to 3"),
    ],
)
def test_broken_sparse_matrices(table, message):
    sketch = argand.PolynomialSketch(n_components=8).fit(np.ones((3, 4)))
    with pytest.raises(ValueError, match=message):
        sketch.transform(table)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (np.ones((3, 4), complex), "X: Complex data not supported"),
        ([[1j, 2, 3, 4]], "X: .*not 'complex'"),
        (sp.csr_array(np.ones((3, 4), complex)), "X: Complex data not supported"),
        (np.array([["1", "2", "3", "4"]]), "X: expected numbers, got <U1"),
        (np.array([[b"1", b"2", b"3", b"4"]]), "X: expected numbers, got |S1"),
        (np.zeros((3, 4), "M8[s]"), "X: expected numbers, got datetime64"),
        (np.array([["a", 1, 2, 3]], object), "X: could not convert string"),
        (np.array([[{}, 1, 2, 3]], object), "X: .*argument must be a string or a real number"),
        (np.array([[1j, 1, 2, 3]], object), "not .*complex"),
    ],
)
def test_what_are_no_numbers_is_a_type_error(table, message):
    sketch = argand.PolynomialSketch(n_components=8).fit(np.ones((3, 4)))
    for use in (sketch.transform, argand.PolynomialSketch().fit, sketch.kernel, sketch.expected_error):
        with pytest.raises(TypeError, match=message):
            use(table)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (np.ones(4), "Expected 2D array"),
        (np.ones((2, 2, 4)), "dim <= 2 is required"),
        (np.ones((0, 4)), "minimum of 1"),
        (np.ones((3, 5)), "X has 5 features, but PolynomialSketch is expecting 4"),
        (np.array([[1, 2, np.nan, 4.0]]), "row 0, column 2 is NaN"),
        (np.array([[1, 2, 3, -np.inf]]), "row 0, column 3 is -inf"),
        (sp.csr_array(np.array([[0, 0, np.nan, 0.0]])), "row 0, column 2 is NaN"),
    ],
)
def test_bad_tables(table, message):
    sketch = argand.PolynomialSketch(n_components=8).fit(np.ones((3, 4)))
    with pytest.raises(ValueError, match=message):
        sketch.transform(table)


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({"degree": 0}, ValueError, "degree: expected 1 to"),
        ({"degree": -1}, ValueError, "degree: expected 0 to .*, got -1"),
        ({"degree": 2.0}, TypeError, "degree: expected an integer, got 2.0"),
        ({"degree": True}, TypeError, "degree: expected an integer"),
        ({"degree": 2**64}, ValueError, "degree: expected 0 to"),
        ({"gamma": -1.0}, ValueError, "gamma: expected a finite number of at least 0"),
        ({"gamma": np.nan}, ValueError, "gamma: expected a finite number"),
        ({"gamma": 10**400}, ValueError, "gamma: expected a number within the range of float64"),
        ({"gamma": "scale"}, TypeError, "gamma: expected a number, got 'scale'"),
        ({"coef0": -0.5}, ValueError, "coef0: expected a finite number of at least 0"),
        ({"coef0": np.inf}, ValueError, "coef0: expected a finite number"),
        ({"n_components": 0}, ValueError, "n_components: expected 1 to"),
        ({"n_components": 2.5}, TypeError, "n_components: expected an integer"),
        ({"n_components": 2**40}, ValueError, "n_components: expected 1 to"),
        ({"n_components": 2**31, "method": "gaussian", "degree": 9}, ValueError, "n_components: would take"),
        ({"method": "countsketch"}, ValueError, 'method: expected .*ctr-product-srht.*, got "countsketch"'),
        ({"method": None}, TypeError, "method: expected a string, got None"),
        ({"method": "craft-complex-gaussian"}, ValueError, "method: expected"),
        ({"method": "srf"}, ValueError, "gamma: expected for srf"),
        ({"method": "craft-gaussian", "craft_dim": 50}, ValueError, "craft_dim: expected an even number"),
        ({"random_state": -1}, ValueError, "random_state: expected 0 to"),
        ({"random_state": 2**64}, ValueError, "random_state: expected 0 to"),
        ({"random_state": "seed"}, ValueError, "random_state: "),
        ({"n_jobs": 0}, ValueError, "n_jobs: expected"),
        ({"n_jobs": 1.5}, TypeError, "n_jobs: expected an integer"),
    ],
)
def test_bad_parameters(keywords, error, message, X):
    with pytest.raises(error, match=message):
        argand.PolynomialSketch(**keywords).fit(X)


def test_a_million_columns_cost_what_their_non_zeros_cost():
    """Ten non-zeros per row: a dense copy of these rows would take 16 GB."""
    rng = np.random.default_rng(0)
    X = sp.csr_array(
        (rng.random(20_000), rng.integers(1_000_000, size=20_000), np.arange(0, 20_001, 10)), (2000, 1_000_000)
    )
    Z = argand.PolynomialSketch(3, n_components=64, method="tensor-sketch", random_state=0).fit_transform(X)
    assert Z.shape == (2000, 64) and np.isfinite(Z).all()


def broken_csr(name):
    """Matrices that SciPy's constructor accepts and its other functions trust."""
    indices, starts = {
        "far": ([10**8, 0], [0, 1, 2]),
        "one too far": ([6, 0], [0, 1, 2]),
        "negative": ([-1, 0], [0, 1, 2]),
        "falling starts": ([0, 1], [0, 2, 1]),
        "starts beyond": ([0, 1], [0, 10**9, 2]),
    }[name]
    return sp.csr_array((np.ones(2), np.array(indices, "i4"), np.array(starts, "i4")), shape=(2, 6))


@pytest.mark.parametrize("name", ["far", "one too far", "negative", "falling starts", "starts beyond"])
def test_broken_csr_is_refused_everywhere(name):
    X = np.random.default_rng(0).random((20, 6))
    bad, keywords = broken_csr(name), {"n_components": 16, "random_state": 0}
    sketch = argand.PolynomialSketch(**keywords).fit(X)
    fused = argand.TensorProductSketch(dims=[3, 3], **keywords).fit(X)
    ridge = argand.Ridge(**keywords).fit(X, X[:, 0])
    spherical = argand.SphericalSketch(**keywords).fit(X)
    calls = [sketch.transform, sketch.fit, sketch.kernel, lambda bad: sketch.kernel(X, bad), fused.transform]
    calls += [ridge.predict, spherical.transform, spherical.kernel]
    calls += [lambda bad: argand.variance(bad, bad, degree=2, n_components=8)]
    for call in calls:
        with pytest.raises(ValueError, match=r"indices|indptr"):
            call(bad)
