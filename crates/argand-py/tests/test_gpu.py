"""Tables on a GPU give the features of the processor, and stay there. Needs a GPU with PyTorch or CuPy.

Without one, or without the library, tests are skipped and say so; with ARGAND_NEEDS_GPU=1 they fail instead.
"""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from argand import PolynomialSketch, SphericalSketch, TensorProductSketch, _argand

NEEDED = os.environ.get("ARGAND_NEEDS_GPU") == "1"
METHODS = [
    "product-srht",
    "ctr-product-srht",
    "tensor-srht",
    "ctr-tensor-srht",
    "tensor-sketch",
    "gaussian",
    "ctr-gaussian",
    "rademacher",
    "ctr-rademacher",
    "hierarchical-ctr-product-srht",
    "chain-tensor-sketch",
    "craft-ctr-product-srht",
    "complex-product-srht",
]


def absent(why):
    if NEEDED:
        pytest.fail(why)
    pytest.skip(why)


class Torch:
    def __init__(self):
        try:
            import torch
        except ImportError:
            absent("PyTorch is not installed")
        self.torch = torch
        if not self.torch.cuda.is_available():
            absent("PyTorch finds no GPU")

    def array(self, x, dtype=None):
        return self.torch.tensor(x, device="cuda", dtype=dtype and getattr(self.torch, dtype))

    def numpy(self, z):
        return (z.float() if z.dtype in (self.torch.bfloat16, self.torch.float16) else z).cpu().numpy()

    def is_own(self, z):
        return isinstance(z, self.torch.Tensor) and z.is_cuda

    def other_stream(self):
        return self.torch.cuda.stream(self.torch.cuda.Stream())


class Cupy:
    def __init__(self):
        try:
            import cupy
        except ImportError:
            absent("CuPy is not installed")
        self.cupy = cupy
        try:
            cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError:
            absent("CuPy finds no GPU")

    def array(self, x, dtype=None):
        return self.cupy.asarray(x, dtype=dtype)

    def numpy(self, z):
        return self.cupy.asnumpy(z)

    def is_own(self, z):
        return isinstance(z, self.cupy.ndarray)

    def other_stream(self):
        return self.cupy.cuda.Stream(non_blocking=True)


@pytest.fixture(params=[Torch, Cupy], ids=["torch", "cupy"])
def library(request):
    return request.param()


def close(got, want, bound):
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    assert np.abs(got - want).max() <= bound * np.abs(want).max()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-5), ("float64", 1e-12)])
def test_features_are_those_of_the_processor(library, X, method, dtype, bound):
    X = X.astype(dtype)
    sketch = PolynomialSketch(3, coef0=0.5, n_components=64, method=method, craft_dim=128, random_state=0).fit(X)
    Z = sketch.transform(library.array(X))
    assert library.is_own(Z)
    close(library.numpy(Z), sketch.transform(X), bound)


def test_fit_on_a_gpu_draws_the_same(library, X):
    fitted = PolynomialSketch(2, n_components=32, random_state=5)
    Z = fitted.fit_transform(library.array(X))
    assert fitted.spec == PolynomialSketch(2, n_components=32, random_state=5).fit(X).spec
    close(library.numpy(Z), fitted.transform(X), 1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(library, X, dtype):
    if dtype == "bfloat16" and isinstance(library, Cupy):
        pytest.skip("CuPy has no bfloat16")
    sketch = PolynomialSketch(2, n_components=64, random_state=0).fit(X)
    rounded = library.array(X.astype("float32"), dtype)
    want = sketch.transform(library.numpy(rounded).astype("float32"))
    Z = sketch.transform(rounded)
    assert dtype in str(Z.dtype)
    bound = 2**-8 if dtype == "bfloat16" else 2**-10
    assert np.abs(library.numpy(Z).astype("float32") - want).max() <= bound * np.abs(want).max()


def test_odd_numbers_of_features(library, X):
    sketch = PolynomialSketch(2, n_components=33, random_state=0).fit(X)
    close(library.numpy(sketch.transform(library.array(X))), sketch.transform(X), 1e-12)


def test_products_of_tables_and_of_columns_side_by_side(library, X):
    tables = [X[:, :5].copy(), X[:, 5:].copy()]
    sketch = TensorProductSketch([5, 7], 64, random_state=0).fit(tables)
    want = sketch.transform(tables)
    close(library.numpy(sketch.transform([library.array(table) for table in tables])), want, 1e-12)
    close(library.numpy(sketch.transform(library.array(X))), want, 1e-12)


def test_tables_with_strides(library, X):
    sketch = PolynomialSketch(2, n_components=64, random_state=0).fit(X[:, :6])
    on_gpu = library.array(X)
    close(library.numpy(sketch.transform(on_gpu[:, :6])), sketch.transform(X[:, :6]), 1e-12)
    close(library.numpy(sketch.transform(on_gpu[::2, ::2])), sketch.transform(X[::2, ::2]), 1e-12)


def test_the_current_stream_is_used(library):
    X = np.random.default_rng(0).random((4096, 256), dtype=np.float32)
    sketch = PolynomialSketch(2, n_components=512, random_state=0).fit(X)
    want = sketch.transform(X + X)
    sketch.transform(library.array(X))
    with library.other_stream():
        # The sum may still be under way when transform is called.
        doubled = library.array(X)
        for _ in range(20):
            doubled = doubled + 0
        got = library.numpy(sketch.transform(doubled + doubled))
    close(got, want, 1e-5)


def test_no_rows(library, X):
    sketch = PolynomialSketch(2, n_components=64, random_state=0).fit(X)
    assert library.numpy(sketch.transform(library.array(X[:0]))).shape == (0, 64)


def test_bad_tables_are_refused(library, X):
    sketch = PolynomialSketch(2, n_components=64, random_state=0).fit(X)
    on_gpu = library.array(X)
    with pytest.raises(ValueError, match="X has 11 features, but PolynomialSketch is expecting 12"):
        sketch.transform(on_gpu[:, :11])
    with pytest.raises(ValueError, match="X: expected 2 dimensions, got 1"):
        sketch.transform(on_gpu[0])
    with pytest.raises(TypeError, match=r"X: expected float16.* got .*int"):
        sketch.transform(library.array((X * 9).astype(int)))
    with pytest.raises(TypeError, match="out: expected None"):
        sketch.transform(on_gpu, out=np.empty((60, 64)))
    bad = X.copy()
    bad[7, 3] = np.nan
    with pytest.raises(ValueError, match="X: row 7, column 3 is nan"):
        sketch.transform(library.array(bad))
    with pytest.raises(ValueError, match="features of row 2 are too large for float32"):
        sketch.transform(library.array((X * np.where(np.arange(60) == 2, 1e25, 1)[:, None]).astype("float32")))
    sketch.transform(on_gpu)
    product = TensorProductSketch([12, 12], 64, random_state=0).fit([X, X])
    with pytest.raises(ValueError, match=r"X\[1\]: expected the rows of the first table, 60, got 59"):
        product.transform([on_gpu, on_gpu[:59]])
    with pytest.raises(TypeError, match=r"X\[1\]: expected an array on the GPU"):
        product.transform([on_gpu, X])
    with pytest.raises(TypeError, match="srf"):
        SphericalSketch(n_components=64, random_state=0).fit(X).transform(on_gpu)


def test_pickles_leave_the_gpu(library, X):
    sketch = PolynomialSketch(2, n_components=64, random_state=0).fit(X)
    on_gpu = library.array(X)
    want = library.numpy(sketch.transform(on_gpu))
    again = pickle.loads(pickle.dumps(sketch))
    assert not again._on_gpus
    assert np.array_equal(library.numpy(again.transform(on_gpu)), want)


def test_without_a_gpu_the_error_says_why(X):
    try:
        count = _argand.cuda_devices()
        expected = f"cuda:{count}: not found"
    except RuntimeError:
        count, expected = 0, "install NVIDIA's driver"
    with pytest.raises(RuntimeError, match=expected):
        _argand.CudaSketch(PolynomialSketch(2, n_components=64, random_state=0).fit(X).spec, count)


def test_importing_argand_imports_no_other_library():
    code = "import argand, sys; assert not {'torch', 'cupy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_blocks_of_dask_stay_on_their_gpu():
    da = pytest.importorskip("dask.array", reason="Dask is not installed")
    library = Cupy()
    rows = np.random.default_rng(0).random((200, 12)).astype(np.float32)
    X = da.from_array(library.array(rows, "float32"), chunks=(60, 5), asarray=False)
    sketch = PolynomialSketch(3, n_components=64, random_state=0).fit(X)
    lazy = sketch.transform(X)
    assert library.is_own(lazy._meta) and (lazy.shape, lazy.dtype) == ((200, 64), np.float32)
    features = lazy.compute()
    assert library.is_own(features)
    np.testing.assert_allclose(library.numpy(features), sketch.transform(rows), rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeError, match="block 0: X: expected an array of NumPy or SciPy"):
        sketch.transform(X.map_blocks(lambda block: block, meta=np.empty((0, 0), np.float32))).compute()
