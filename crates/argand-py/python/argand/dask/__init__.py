"""Sketches and models on Dask arrays and data frames.

There is nothing to call here: the estimators of :mod:`argand` take Dask collections as they take NumPy arrays, and
come here with them. Importing ``argand`` does not import Dask.

>>> import argand, dask.array as da
>>> X = da.random.default_rng(0).random((1000, 20), chunks=(250, 20))
>>> y = X[:, 0] * X[:, 1]
>>> model = argand.Ridge(degree=2, n_components=128, alpha=1e-3, random_state=0).fit(X, y)
>>> model.predict(X)
dask.array<predict, shape=(1000,), dtype=float64, chunksize=(250,), chunktype=numpy.ndarray>
>>> argand.PolynomialSketch(degree=2, n_components=64, random_state=0).fit(X).transform(X)
dask.array<transform, shape=(1000, 64), dtype=float64, chunksize=(250, 64), chunktype=numpy.ndarray>

Features and predictions are lazy, block by block. A fit runs at once: every block becomes sums where it is computed,
and the sums are added up in an order that the blocks alone decide, so that the model does not depend on the workers.
"""

import dask

if tuple(map(int, dask.__version__.split(".")[:2])) < (2026, 8):
    raise ImportError(f"argand.dask needs Dask 2026.8 or newer, got {dask.__version__}")

from ._lazy import call_on_blocks
from ._sums import classes_of, labels_of, pairs_of, sum_up
from ._tables import DaskTable, as_array

__all__ = ["DaskTable", "as_array", "call_on_blocks", "classes_of", "labels_of", "pairs_of", "sum_up"]
