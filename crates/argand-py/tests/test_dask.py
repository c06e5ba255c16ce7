"""Dask arrays and data frames: lazy features, sums in a fixed order, unknown sizes and bad input, without a cluster."""

import copy
import os
import pickle
import subprocess
import sys
import textwrap
import types

import argand
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning
from sklearn.pipeline import make_pipeline

dask = pytest.importorskip("dask", reason="Dask is not installed; make test-cluster installs it")

import dask.array as da  # noqa: E402
import dask.dataframe as dd  # noqa: E402
import pandas as pd  # noqa: E402
from argand.dask import _lazy, _sums  # noqa: E402

ROWS, COLUMNS = 200, 12
SKETCHES = [
    argand.PolynomialSketch(3, n_components=32, random_state=0),
    argand.PolynomialSketch(3, n_components=31, random_state=0),
    argand.PolynomialSketch(3, n_components=32, method="complex-rademacher", random_state=0),
    argand.PolynomialSketch(2, n_components=32, method="maclaurin-ctr-rademacher", random_state=0),
    argand.TensorProductSketch([5, 7], n_components=32, random_state=0),
    argand.GaussianSketch(gamma=0.5, n_components=32, random_state=0),
    argand.GaussianSketch(gamma="scale", n_components=32, random_state=0),
    argand.DotProductSketch(n_components=32, random_state=0),
    argand.NystromSketch(n_components=16, random_state=0),
    argand.SphericalSketch(n_components=32, random_state=0),
]
MODELS = [argand.Ridge, argand.RidgeClassifier, argand.GPRegressor, argand.GPClassifier]
each_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture
def rows():
    return np.random.default_rng(0).random((ROWS, COLUMNS))


def targets(model, rows):
    is_classifier = "Classifier" in model.__name__
    return rows[:, :5].argmax(axis=1) if is_classifier else rows[:, 0] * rows[:, 1]


def gram_bytes(model):
    return model._gram.to_bytes()


def one_process(model, blocks):
    """The sums of blocks of NumPy arrays, added up by hand: runs of neighbours, then a binary tree."""
    X, y = (np.concatenate(parts) for parts in zip(*blocks))
    model = model.fit(X, y)
    each = _sums.blocks_of_a_run(len(blocks))
    sums = [model._sum_up(model._sketch, x, model._check_labels(t, reset=False, classes=None)) for x, t in blocks]
    runs = []
    for start in range(0, len(sums), each):
        run = sums[start]
        for more in sums[start + 1 : start + each]:
            run = run.merged(more, 1)
        runs.append(run)

    def total(runs):
        if len(runs) == 1:
            return runs[0]
        # The largest power of two below: how neighbours pair up level by level.
        half = 1 << (len(runs) - 1).bit_length() - 1
        return total(runs[:half]).merged(total(runs[half:]), 1)

    model._gram, model._model = total(runs), None
    return model


def test_argand_does_not_import_dask():
    code = "import argand, sys; assert not {'dask', 'distributed'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "sketch", SKETCHES, ids=lambda sketch: f"{type(sketch).__name__}-{sketch.get_params().get('method')}"
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_features_are_lazy_and_those_of_numpy(sketch, dtype, rows, monkeypatch):
    rows = (rows * 8).astype(dtype)
    X = da.from_array(rows, chunks=(60, 5))
    fitted = clone(sketch).fit(X)
    # A fit sees the rows that a fit to NumPy sees; means over blocks may be rounded otherwise.
    expected = clone(sketch).fit(rows).transform(rows)
    with monkeypatch.context() as patch:
        patch.setattr(_lazy, "unpack", lambda _: pytest.fail("called before it is computed"))
        lazy = fitted.transform(X)
    assert (lazy.shape, lazy.dtype, lazy.chunks) == (
        expected.shape,
        expected.dtype,
        ((60, 60, 60, 20), expected.shape[1:]),
    )
    assert type(lazy._meta) is np.ndarray and lazy._meta.dtype == expected.dtype and lazy._meta.ndim == 2
    found = lazy.compute()
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, fitted.transform(rows))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_sample_of_many_rows_is_that_of_numpy():
    # More rows than are looked at.
    rows = np.random.default_rng(0).random((9000, 4))
    sketch = argand.NystromSketch(n_components=8, random_state=3)
    X = da.from_array(rows, chunks=1000)
    assert clone(sketch).fit(X).spec == clone(sketch).fit(rows).spec == clone(sketch).fit(X[X[:, 0] >= 0]).spec


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix, sp.csc_array])
def test_sparse_blocks_have_dense_features(kind, rows):
    rows[rows < 0.7] = 0
    X = da.from_array(rows, chunks=(60, COLUMNS)).map_blocks(kind)
    sketch = argand.PolynomialSketch(3, n_components=32, random_state=0).fit(X)
    lazy = sketch.transform(X)
    assert type(lazy._meta) is np.ndarray
    np.testing.assert_array_equal(lazy.compute(), sketch.transform(sp.csr_array(rows)))
    y = targets(argand.Ridge, rows)
    model = argand.Ridge(n_components=32, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.coef_, clone(model).fit(rows, y).coef_, rtol=1e-6, atol=1e-8)


def test_the_kind_of_arrays_on_a_gpu_is_kept(rows, monkeypatch):
    """Rows of CuPy have features of CuPy; test_gpu.py computes some."""

    class Array(np.ndarray):
        pass

    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(ndarray=Array))
    X = da.from_array(rows.astype(np.float16).view(Array), chunks=(60, 5), asarray=False)
    assert type(X._meta) is Array
    lazy = argand.PolynomialSketch(3, n_components=32, random_state=0).fit(X).transform(X)
    assert type(lazy._meta) is Array and lazy.dtype == lazy._meta.dtype == np.float16


def test_several_tables(rows):
    left, right = da.from_array(rows, chunks=(60, COLUMNS)), da.from_array(rows[:, :5], chunks=(70, 5))
    sketch = argand.TensorProductSketch(n_components=32, random_state=0).fit([left, right])
    lazy = sketch.transform([left, right])
    assert lazy.chunks == ((60, 60, 60, 20), (32,))
    np.testing.assert_array_equal(lazy.compute(), sketch.transform([rows, rows[:, :5]]))
    frame = dd.from_pandas(pd.DataFrame(rows[:, :5]), npartitions=4)
    found = sketch.transform([dd.from_pandas(pd.DataFrame(rows), npartitions=4), frame])
    np.testing.assert_array_equal(found.compute(), sketch.transform([rows, rows[:, :5]]))
    with pytest.raises(ValueError, match=r"X\[1\]: expected 200 rows, as the first table, got 100"):
        sketch.transform([left, right[:100]])
    with pytest.raises(ValueError, match=r"expected tables with \[12, 5\] columns, got \[12, 4\]"):
        sketch.transform([left, right[:, :4]])


def test_tables_whose_blocks_have_different_rows(rows):
    X = da.from_array(rows, chunks=(50, COLUMNS))
    sketch = argand.TensorProductSketch(n_components=32, random_state=0).fit([rows, rows])
    without_block, others = X[da.arange(ROWS, chunks=50) >= 50], X[da.arange(ROWS, chunks=50) >= 25]
    for tables, expected, found in [([without_block, others], 0, 25), ([others, without_block], 25, 0)]:
        with pytest.raises(
            ValueError, match=rf"block 0: X\[1\]: expected {expected} rows, as the first table, got {found}"
        ):
            sketch.transform(tables).compute()


@each_model
@pytest.mark.parametrize(("chunk", "most_runs"), [(ROWS, 1024), (37, 1024), (40, 2), (9, 4), (20, 3)])
def test_fit_has_the_bits_of_one_process(model, chunk, most_runs, rows, monkeypatch):
    monkeypatch.setattr(_sums, "MOST_RUNS", most_runs)
    y = targets(model, rows)
    model = model(n_components=32, random_state=0)
    blocks = [(rows[at : at + chunk], y[at : at + chunk]) for at in range(0, ROWS, chunk)]
    fitted = clone(model).fit(da.from_array(rows, chunks=(chunk, 7)), da.from_array(y, chunks=55))
    assert gram_bytes(fitted) == gram_bytes(one_process(clone(model), blocks))
    with dask.config.set(scheduler="threads", num_workers=4):
        again = clone(model).fit(da.from_array(rows, chunks=(chunk, COLUMNS)), y)
    assert gram_bytes(fitted) == gram_bytes(again)
    if chunk == ROWS:
        assert gram_bytes(fitted) == gram_bytes(clone(model).fit(rows, y))


def test_runs_are_long_where_there_are_many_blocks():
    """Their length depends on the number of blocks alone."""
    lengths = [_sums.blocks_of_a_run(blocks) for blocks in (1, 99, 100, 150, 200, 4096, 4097, 100_000)]
    assert lengths == [1, 1, 2, 3, 4, 4, 5, 98]


def test_long_runs_have_the_bits_of_one_process(rows):
    y, model = targets(argand.Ridge, rows), argand.Ridge(n_components=32, random_state=0)
    blocks = [(rows[at : at + 2], y[at : at + 2]) for at in range(0, ROWS, 2)]
    fitted = clone(model).fit(da.from_array(rows, chunks=(2, COLUMNS)), da.from_array(y, chunks=2))
    assert gram_bytes(fitted) == gram_bytes(one_process(clone(model), blocks))


@pytest.mark.parametrize(
    ("kinds", "precision"),
    [
        (["uint8"], "float32"),
        (["int16", "float32", "bool"], "float32"),
        (["int32"], "float64"),
        (["uint8", "float64"], "float64"),
        (["Int8"], "float64"),
    ],
)
def test_numbers_of_few_bits_are_learnt_from_in_single_precision(kinds, precision):
    """Half the memory, and the same bits."""
    numbers = np.random.default_rng(0).integers(0, 2 if "bool" in kinds else 100, (ROWS, 6))
    frame = pd.DataFrame(numbers, columns=list("abcdef"))
    frame = frame.astype({column: kinds[at % len(kinds)] for at, column in enumerate(frame)})
    X, y = dd.from_pandas(frame, npartitions=1), dd.from_pandas(frame["a"].astype(float), npartitions=1)
    (pair,) = argand.dask.pairs_of(X, y).to_delayed()
    table, _ = pair.compute()
    assert table.dtype == precision == argand.dask.pairs_of(X, y).dtype["X"] and table.flags.c_contiguous
    np.testing.assert_array_equal(table, numbers)
    model = argand.Ridge(n_components=32, random_state=0)
    assert gram_bytes(clone(model).fit(X, y)) == gram_bytes(clone(model).fit(frame, frame["a"].astype(float)))


@pytest.mark.parametrize(
    ("kinds", "precision"),
    [
        (["float32", "int16"], "float32"),
        (["float32", "uint8", "bool"], "float32"),
        (["float16", "float32"], "float32"),
        (["float32", "int32"], "float64"),
        (["float16", "int8"], "float64"),
        (["float32", "Int8"], "float64"),
    ],
)
def test_features_of_data_frames_have_the_type_of_those_in_memory(kinds, precision):
    frame = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (ROWS, 6)), columns=list("abcdef"))
    frame = frame.astype({column: kinds[at % len(kinds)] for at, column in enumerate(frame)})
    sketch = argand.PolynomialSketch(2, n_components=32, random_state=0).fit(frame)
    lazy, expected = sketch.transform(dd.from_pandas(frame, npartitions=3)), sketch.transform(frame)
    found = lazy.compute()
    assert lazy.dtype == lazy._meta.dtype == found.dtype == expected.dtype == precision
    np.testing.assert_array_equal(found, expected)


@each_model
def test_predictions_are_lazy_and_those_of_numpy(model, rows, monkeypatch):
    y = targets(model, rows)
    X = da.from_array(rows, chunks=(60, COLUMNS))
    fitted = model(n_components=32, random_state=0).fit(X, y)
    for method in ("predict", "decision_function", "predict_proba"):
        if hasattr(fitted, method):
            expected = getattr(fitted, method)(rows)
            with monkeypatch.context() as patch:
                patch.setattr(_lazy, "unpack", lambda _: pytest.fail("called before it is computed"))
                lazy = getattr(fitted, method)(X)
            assert (lazy.shape, lazy.dtype, lazy.chunks[0]) == (expected.shape, expected.dtype, X.chunks[0])
            np.testing.assert_array_equal(lazy.compute(), expected)
    if model is argand.GPRegressor:
        np.testing.assert_array_equal(fitted.predict(X, return_std=True), fitted.predict(rows, return_std=True))
    assert fitted.score(X, da.from_array(y, chunks=17)) == fitted.score(rows, y)


def test_several_targets_and_parts(rows):
    Y = np.column_stack([rows[:, 0], rows[:, 1] ** 2])
    X = da.from_array(rows, chunks=(60, COLUMNS))
    model = argand.Ridge(n_components=32, random_state=0).fit(X, da.from_array(Y, chunks=(60, 1)))
    np.testing.assert_array_equal(model.predict(X).compute(), model.predict(rows))
    with pytest.warns(DataConversionWarning) as warned:
        single = argand.Ridge(n_components=32, random_state=0).fit(X, da.from_array(Y[:, :1], chunks=(60, 1)))
    assert len(warned) == 1 and single.predict(X).ndim == 1
    parts = argand.Ridge(n_components=32, random_state=0).partial_fit(X[:100], Y[:100]).partial_fit(X[100:], Y[100:])
    np.testing.assert_allclose(parts.coef_, model.coef_, rtol=1e-6, atol=1e-9)
    classes = argand.RidgeClassifier(n_components=32, random_state=0)
    labels = targets(argand.RidgeClassifier, rows)
    classes.partial_fit(X[:100], labels[:100], classes=range(6)).partial_fit(X[100:], labels[100:])
    assert list(classes.classes_) == list(range(6)) and classes._gram.rows == ROWS


@each_model
def test_data_frames_with_names_and_unknown_sizes(model, rows):
    names = [f"x{i}" for i in range(COLUMNS)]
    y = targets(model, rows)
    label = [f"class {i}" for i in y] if "Classifier" in model.__name__ else y
    table = pd.DataFrame(rows, columns=names).assign(label=label, x3=(rows[:, 3] * 9).astype(int))
    frame = dd.from_pandas(table, npartitions=5)
    some = frame[frame.x0 > 0.3]
    fitted = model(n_components=32, random_state=0).fit(some[names], some["label"])
    assert list(fitted.feature_names_in_) == names
    expected = table[table.x0 > 0.3]
    assert fitted._gram.rows == len(expected)
    lazy = fitted.predict(some[names])
    assert np.isnan(lazy.shape[0])
    np.testing.assert_array_equal(lazy.compute(), fitted.predict(expected[names]))
    assert fitted.score(some[names], some["label"]) == fitted.score(expected[names], expected["label"])
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(some[names[::-1]])
    nullable = some[names].astype("Float64")
    np.testing.assert_array_equal(fitted.predict(nullable).compute(), lazy.compute())


def test_files_that_dask_reads_together(rows, tmp_path):
    """Of few columns, Dask reads several files into one block, and so of y alone: rows and targets must still match."""
    names = [f"x{i}" for i in range(COLUMNS)]
    for part in range(6):
        table = pd.DataFrame(rows[part::6], columns=names).assign(label=rows[part::6, 0] > 0.5)
        table.to_parquet(tmp_path / f"{part}.parquet")
    frame = dd.read_parquet(tmp_path)
    assert frame["label"].optimize().npartitions < frame[names].optimize().npartitions
    in_order = pd.DataFrame(np.concatenate([rows[part::6] for part in range(6)]), columns=names)
    fitted = argand.RidgeClassifier(n_components=32, random_state=0).fit(frame[names], frame["label"])
    assert fitted._gram.rows == ROWS
    again = clone(fitted).fit(in_order, in_order.x0 > 0.5)
    np.testing.assert_allclose(fitted.coef_, again.coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(fitted.predict(frame[names]).compute(), fitted.predict(in_order))
    assert fitted.score(frame[names], frame["label"]) == fitted.score(in_order, in_order.x0 > 0.5)
    with pytest.raises(ValueError, match="y: expected 6 blocks of rows, as X, got 3"):
        fitted.fit(frame[names], frame["label"].repartition(npartitions=3))


def test_unknown_sizes_of_arrays(rows):
    X = da.from_array(rows, chunks=(60, 5))
    some, y = X[X[:, 0] > 0.3], X[:, 1][X[:, 0] > 0.3]
    chosen = rows[rows[:, 0] > 0.3]
    for sketch in SKETCHES:
        fitted = clone(sketch).fit(some)
        np.testing.assert_array_equal(fitted.transform(some).compute(), fitted.transform(chosen))
    model = argand.Ridge(n_components=32, random_state=0).fit(some, y)
    np.testing.assert_array_equal(model.predict(some).compute(), model.predict(chosen))
    with pytest.raises(TypeError, match="y: expected a Dask array"):
        model.fit(some, chosen[:, 1])
    with pytest.raises(ValueError, match="y: expected 4 blocks of rows, as X, got 2"):
        model.fit(some, y.blocks[:2])


def test_empty_blocks_add_nothing(rows):
    X = da.from_array(rows, chunks=(50, COLUMNS))
    # No row of the second block is left.
    kept = da.from_array(np.r_[np.ones(50), np.zeros(50), np.ones(100)] > 0, chunks=50)
    y = X[:, 0] * 2
    for make in MODELS:
        labels = y if "Regressor" in make.__name__ or make is argand.Ridge else (y > 1).astype(int)
        with_empty = make(n_components=32, random_state=0).fit(X[kept], labels[kept])
        assert with_empty._gram.rows == 150
        assert with_empty.predict(X[kept]).compute().shape == (150,)
    sketch = argand.PolynomialSketch(2, n_components=32, random_state=0).fit(X[kept])
    assert sketch.transform(X[kept]).compute().shape == (150, 32)
    with pytest.raises(ValueError, match="X: expected at least 1 row, got 0"):
        argand.Ridge(n_components=32).fit(X[X[:, 0] > 2], y[X[:, 0] > 2])
    for sketch in (argand.GaussianSketch(gamma="scale"), argand.NystromSketch(n_components=8)):
        with pytest.raises(ValueError, match="X: expected at least 1 row, got 0"):
            sketch.fit(X[X[:, 0] > 2])
    with pytest.raises(ValueError, match="expected at least 2 classes, got 0"):
        argand.RidgeClassifier(n_components=32).fit(X[X[:, 0] > 2], y[X[:, 0] > 2])


def test_pipelines_clones_and_pickles(rows):
    X, y = da.from_array(rows, chunks=(60, COLUMNS)), da.from_array(rows[:, 0] * rows[:, 1], chunks=60)
    pipeline = make_pipeline(
        argand.PolynomialSketch(2, n_components=32, random_state=0),
        argand.Ridge(degree=1, n_components=32, random_state=0),
    )
    lazy = clone(pipeline).fit(X, y).predict(X)
    np.testing.assert_allclose(
        lazy.compute(), clone(pipeline).fit(rows, y.compute()).predict(rows), rtol=1e-6, atol=1e-8
    )
    model = argand.Ridge(n_components=32, random_state=0).fit(X, y)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(other.predict(X).compute(), model.predict(rows))
    np.testing.assert_array_equal(model.predict(X.persist()).compute(), model.predict(rows))
    assert gram_bytes(clone(model).fit(X.persist(), y.persist())) == gram_bytes(model)


def test_rows_and_targets_of_one_source_are_read_once(rows):
    reads = []

    def read(block):
        reads.append(len(block))
        return block

    source = da.from_array(rows, chunks=(50, COLUMNS)).map_blocks(read, meta=np.empty((0, 0)))
    argand.Ridge(n_components=32, random_state=0).fit(source[:, :-1], source[:, -1])
    assert reads == [50] * 4


def test_a_block_is_computed_in_the_task_that_adds_it(monkeypatch):
    seen = []
    fused = _sums._fused
    monkeypatch.setattr(_sums, "_fused", lambda *arguments: seen.append(fused(*arguments)) or seen[0])
    monkeypatch.setattr(_sums, "MOST_RUNS", 4)
    source = da.random.default_rng(0).random((ROWS, COLUMNS), chunks=(10, COLUMNS)) * 2
    argand.Ridge(n_components=32, random_state=0).fit(source[:, :-1], source[:, -1])
    graph = dict(seen[0].__dask_graph__())
    kinds = [key[0].rsplit("-", 1)[0] for key in graph if isinstance(key, tuple)]
    assert {kind: kinds.count(kind) for kind in set(kinds) if kind.startswith("argand")} == {
        "argand-sums": 4,
        "argand-more-sums": 16,
        "argand-merged-sums": 3,
    }
    # What is left beside them is the model.
    assert len(graph) == 23 + 1


def test_a_block_of_many_tasks_is_left_to_the_scheduler(rows):
    X = da.from_array(rows, chunks=(2, 3)).map_blocks(lambda block: block + 1, meta=np.empty((0, 0)))
    one = X.rechunk((200, COLUMNS))
    model = argand.Ridge(n_components=32, random_state=0).fit(one, one[:, 0])
    assert gram_bytes(model) == gram_bytes(clone(model).fit(rows + 1, rows[:, 0] + 1))


def test_graphs_of_old_libraries(rows):
    graph = {("old", number, 0): (np.add, rows[at : at + 50], 1) for number, at in enumerate(range(0, ROWS, 50))}
    X = da.Array(graph, "old", chunks=((50,) * 4, (COLUMNS,)), dtype=float)
    model = argand.Ridge(n_components=32, random_state=0).fit(X, rows[:, 0])
    assert gram_bytes(model) == gram_bytes(clone(model).fit(da.from_array(rows + 1, chunks=(50, COLUMNS)), rows[:, 0]))


def test_threads_are_those_of_the_scheduler(monkeypatch):
    assert _lazy.threads_here(None) is None and _lazy.threads_here(3) == 3
    with dask.config.set(num_workers=2):
        assert _lazy.threads_here(None) == 2 and _lazy.threads_here(3) == 2 and _lazy.threads_here(1) == 1
    with dask.config.set(scheduler="processes", num_workers=2):
        assert dask.compute(dask.delayed(_lazy.threads_here)(None)) == (1,)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the allocator is that of Linux")
def test_blocks_are_summed_up_in_memory_that_is_used_again():
    """Dask has allocators keep no memory; fresh memory is cleared by the system, page by page."""
    code = """
        import resource, dask, dask.array as da, numpy as np, argand

        def faults(blocks):
            X = da.zeros((2048 * blocks, 8), chunks=(2048, 8))
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            argand.Ridge(n_components=1024, random_state=0, n_jobs=1).fit(X, X[:, 0])
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

        with dask.config.set(scheduler="synchronous"):
            faults(2)
            print((faults(12) - faults(4)) * resource.getpagesize() / 8)
    """
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"}
    code = [sys.executable, "-c", textwrap.dedent(code)]
    found = subprocess.run(code, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    # A block has sums of 4 MB, and 4 MB more when they are merged; its features would take 8 MB, and 16 MB more in f64.
    assert float(found.stdout) < 12e6


def as_blocks(*blocks, dtype=float, columns=COLUMNS):
    """An array that believes what it is told of its blocks."""
    parts = [da.from_delayed(dask.delayed(block), (len(block), columns), dtype) for block in blocks]
    return da.concatenate(parts)


def broken(rows):
    with_nan = rows[50:100].copy()
    with_nan[7, 3] = np.nan
    return {
        "width": (as_blocks(rows[:50], rows[50:100, :5], rows[100:]), "block 1: .*5 features, but .* expecting 12"),
        "dtype": (
            as_blocks(rows[:50], rows[50:100].astype(np.float32), rows[100:]),
            "block 1: X: expected float64, as the array says, got float32",
        ),
        "text": (as_blocks(rows[:50], rows[50:100].astype(str), rows[100:]), "block 1: X: expected float64.*got <U"),
        "nan": (as_blocks(rows[:50], with_nan, rows[100:]), "block 1: X: row 7, column 3 is NaN"),
        "infinity": (as_blocks(rows[:50], rows[50:100] / 0, rows[100:]), "block 1: X: row 0, column 0 is inf"),
    }


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize(
    ("what", "scheduler"),
    [(what, "synchronous") for what in ("width", "dtype", "text", "nan", "infinity")] + [("nan", "processes")],
)
def test_errors_name_the_block(what, scheduler, rows):
    X, message = broken(rows)[what]
    y = np.arange(ROWS) % 2
    with dask.config.set(scheduler=scheduler, num_workers=2):
        with pytest.raises(ValueError, match=message):
            argand.Ridge(n_components=32, random_state=0).fit(X, y)
        sketch = argand.PolynomialSketch(2, n_components=32, random_state=0).fit(X)
        with pytest.raises(ValueError, match=message):
            sketch.transform(X).compute()


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("what", ["width", "dtype", "text", "nan", "infinity", "rows", "frame"])
def test_looking_at_rows_names_the_block(what, rows):
    others = {
        "width": (broken(rows)["width"][0], "block 1: X: expected 12 columns, as the array says, got 5"),
        "rows": (
            da.concatenate([da.from_array(rows[:50]), da.from_delayed(dask.delayed(rows[:30]), (50, COLUMNS), float)]),
            "block 1: X: expected 50 rows, as the array says, got 30",
        ),
        "frame": (as_blocks(pd.DataFrame(rows)), "block 0: X: expected an array, got DataFrame"),
    }
    X, message = others.get(what) or broken(rows)[what]
    for sketch in (argand.GaussianSketch(gamma="scale", n_components=8), argand.NystromSketch(n_components=8)):
        with pytest.raises((TypeError, ValueError), match=message):
            sketch.fit(X)


@pytest.mark.parametrize("kind", [np.asarray, np.float32, sp.csr_array], ids=["array", "float32", "sparse"])
def test_scales_of_rows_far_from_the_origin(kind):
    times = (1.7e9 + np.random.default_rng(0).uniform(0, 3000, (1000, 1))).astype(np.float64)
    times = np.float32(times) if kind is np.float32 else times
    X = da.from_array(times, chunks=(300, 1)).map_blocks(kind)
    gamma = argand.GaussianSketch("scale", n_components=8, random_state=0).fit(X).gamma_
    assert gamma == pytest.approx(1 / times.var(dtype=np.float64), rel=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda block: block[:, 0], "expected 2 dimensions, got 1"),
        (lambda block: block.tolist(), "expected an array, got list"),
        (lambda block: None, "expected an array, got NoneType"),
        (pd.DataFrame, "expected an array, got DataFrame"),
    ],
    ids=["column", "list", "none", "frame"],
)
def test_a_block_that_is_no_table_is_named(change, message, rows):
    parts = [rows[at : at + 50] for at in range(0, ROWS, 50)]
    blocks = [dask.delayed(lambda part=part: part)() for part in [*parts[:2], change(parts[2]), parts[3]]]
    X = da.concatenate([da.from_delayed(block, (50, COLUMNS), float) for block in blocks])
    y = da.from_array(rows[:, 0], chunks=50)
    fitted = argand.Ridge(n_components=32, random_state=0).fit(rows, rows[:, 0])
    sketch = argand.PolynomialSketch(2, n_components=32, random_state=0).fit(rows)
    uncounted = da.Array(X.dask, X.name, ((np.nan,) * 4, (COLUMNS,)), dtype=float)
    for call in [
        lambda: argand.Ridge(n_components=32, random_state=0).fit(X, y),
        lambda: fitted.predict(X).compute(),
        lambda: sketch.transform(X).compute(),
        lambda: argand.NystromSketch(n_components=8).fit(uncounted),
    ]:
        with pytest.raises((TypeError, ValueError), match=f"block 2: X: {message}"):
            call()


def test_dense_and_sparse_blocks(rows):
    rows[rows < 0.7] = 0
    parts = [sp.csr_array(rows[at : at + 50]) if at == 100 else rows[at : at + 50] for at in range(0, ROWS, 50)]
    X = da.concatenate([da.from_delayed(dask.delayed(part), (50, COLUMNS), float) for part in parts])
    sketch = argand.NystromSketch(n_components=8, random_state=0).fit(X)
    assert sketch.spec == clone(sketch).fit(rows).spec
    np.testing.assert_array_equal(sketch.transform(X).compute()[:100], sketch.transform(rows[:100]))
    model = argand.Ridge(n_components=8, method="nystrom", random_state=0).fit(X, rows[:, 0])
    expected = clone(model).fit(rows, rows[:, 0]).predict(rows)
    np.testing.assert_allclose(model.predict(X).compute(), expected, rtol=1e-4, atol=1e-6)


def test_numbers_of_another_byte_order(rows):
    X = da.from_array(rows.astype(">f4"), chunks=(60, COLUMNS))
    lazy = argand.PolynomialSketch(2, n_components=32, random_state=0).fit(X).transform(X)
    assert lazy.dtype == lazy.compute().dtype == np.float32


def test_errors_of_targets_name_the_block(rows):
    X, y = da.from_array(rows, chunks=(50, COLUMNS)), rows[:, 0].copy()
    y[113] = np.nan
    with pytest.raises(ValueError, match="block 2: y: row 13 is nan"):
        argand.Ridge(n_components=32).fit(X, da.from_array(y, chunks=50))
    with pytest.raises(ValueError, match="block 2: y: row 13 is nan"):
        argand.RidgeClassifier(n_components=32).fit(X, da.from_array(y, chunks=50))
    y[113] = np.inf
    with pytest.raises(ValueError, match="block 2: y: row 13 is inf"):
        argand.Ridge(n_components=32).fit(X, da.from_array(y, chunks=50))
    with pytest.raises(ValueError, match=r"block .: y: could not convert string to float"):
        argand.Ridge(n_components=32).fit(X, da.from_array(np.full(ROWS, "x"), chunks=50))
    with pytest.raises(ValueError, match="y: expected a known number of columns"):
        argand.Ridge(n_components=32).fit(X, X[:, X[0] > 0])
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        argand.RidgeClassifier(n_components=32).fit(X, X[:, 0])
    mixed = np.array([1, "a"] * 100, object)
    with pytest.raises(ValueError, match=r"block .: y: expected classes of one type, got int and str"):
        argand.RidgeClassifier(n_components=32).fit(X, da.from_array(mixed, chunks=50))
    for kind in (object, None):
        text = [np.asarray(part, kind) for part in ([1, 2] * 50, ["a", "b"] * 50)]
        blocks = [da.from_delayed(dask.delayed(part), (100,), object) for part in text]
        with pytest.raises(ValueError, match=r"block 1: y: expected classes of one type, got int\w* and str"):
            argand.RidgeClassifier(n_components=32).fit(X.rechunk((100, COLUMNS)), da.concatenate(blocks))
    some = X[:, 0] > 0.5
    with pytest.raises(ValueError, match=r"block \d: y: expected 50 rows, as X, got"):
        argand.Ridge(n_components=32).fit(X[X[:, 1] >= 0], X[:, 0][some])
    named = da.from_array(np.array(["b", None, "a", "b"] * 50, object), chunks=50)
    with pytest.raises(ValueError, match=r"block \d: y: row \d is None"):
        argand.RidgeClassifier(n_components=32).fit(X, named)
    assert list(argand.RidgeClassifier(n_components=32).fit(X, ["b", "c", "a", "b"] * 50).classes_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="y: expected 1 or 2 dimensions, got 0"):
        argand.Ridge(n_components=32).fit(X, 5)
    with pytest.raises(ValueError, match="y: expected 200 rows, as X, got 100"):
        argand.Ridge(n_components=32).fit(X, X[:100, 0])
    fitted = argand.RidgeClassifier(n_components=32, random_state=0).fit(X, X[:, 0] > 0.5)
    with pytest.raises(ValueError, match=r"block \d: y: expected classes .*got .*2"):
        fitted.partial_fit(X, np.full(ROWS, 2))


def in_pandas(labels, kind):
    """Labels 0 and 1 in a type of pandas."""
    if kind.endswith("categories"):
        labels = {"number": labels, "date": pd.to_datetime(labels), "text": labels.astype(str)}[kind.split()[0]]
        return pd.Series(labels).astype("category")
    return pd.Series(pd.array(labels.astype(bool) if kind.startswith("bool") else labels, dtype=kind))


@pytest.mark.parametrize("kind", ["number categories", "date categories", "text categories", "Sparse[int]"])
def test_labels_that_pandas_encodes_are_those_in_memory(kind, rows):
    data = pd.DataFrame(rows[:, :3], columns=list("abc")).assign(k=in_pandas(np.arange(ROWS) // 3 % 2, kind))
    x, frame = data[["a", "b", "c"]], dd.from_pandas(data, npartitions=3)
    lazy = frame[["a", "b", "c"]]
    for model in [model for model in MODELS if kind[0] in "nS" or "Classifier" in model.__name__]:
        make = lambda model=model: model(n_components=16, random_state=0)
        found, expected = make().fit(lazy, frame.k), make().fit(x, data.k)
        if "Classifier" in model.__name__:
            np.testing.assert_array_equal(found.classes_, expected.classes_)
            assert found.classes_.dtype == expected.classes_.dtype
            np.testing.assert_array_equal(found.predict(x), expected.predict(x))
        else:
            np.testing.assert_allclose(found.predict(x), expected.predict(x), rtol=1e-3)
        assert found.score(lazy, frame.k) == pytest.approx(expected.score(x, data.k), rel=1e-3)


def test_targets_in_columns_that_pandas_encodes(rows):
    k = in_pandas(np.arange(ROWS) % 2, "number categories")
    data = pd.DataFrame(rows[:, :2], columns=list("ab")).assign(k=k, again=k)
    frame = dd.from_pandas(data, npartitions=4)
    found = argand.Ridge(n_components=16, random_state=0).fit(frame[["a", "b"]], frame[["k", "a", "again"]])
    numbers = data[["k", "a", "again"]].astype(float)
    expected = argand.Ridge(n_components=16, random_state=0).fit(data[["a", "b"]], numbers)
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-3, atol=1e-5)


def test_missing_categories_are_named(rows, monkeypatch):
    data = pd.DataFrame(rows[:, :3], columns=list("abc")).assign(k=in_pandas(np.arange(ROWS) % 2, "number categories"))
    data.loc[57, "k"] = None
    frame = dd.from_pandas(data, npartitions=4)
    for model, y in [*((model, frame.k) for model in MODELS), (argand.Ridge, frame[["k", "c"]])]:
        with pytest.raises(ValueError, match="block 1: y: row 7 is nan"):
            model(n_components=16).fit(frame[["a", "b"]], y)
    # Errors of pandas are of a block, too.
    monkeypatch.setattr(_sums, "numpy_labels", lambda y: int("x") if 57 in y.index else y.to_numpy())
    with pytest.raises(ValueError, match="block 1: y: invalid literal"):
        argand.Ridge(n_components=16).fit(frame[["a", "b"]], frame.c)
    with pytest.raises(ValueError, match="block 1: y: invalid literal"):
        argand.Ridge(n_components=16).fit(da.from_array(rows, chunks=(50, COLUMNS)), frame.c)


@pytest.mark.parametrize("kind", ["boolean", "Int64", "UInt8", "int64[pyarrow]", "bool[pyarrow]"])
def test_classes_of_pandas_own_types_are_those_in_memory(kind, rows):
    data = pd.DataFrame(rows[:, :3], columns=list("abc")).assign(k=in_pandas(rows[:, :2].argmax(axis=1), kind))
    x, frame = data[["a", "b", "c"]], dd.from_pandas(data, npartitions=3)
    make = lambda: argand.RidgeClassifier(n_components=16, random_state=0)
    found, expected = make().fit(frame[["a", "b", "c"]], frame.k), make().fit(x, data.k)
    assert found.classes_.dtype == expected.classes_.dtype and expected.classes_.dtype.kind in "biu"
    assert expected.predict(x).dtype == found.predict(frame[["a", "b", "c"]]).compute().dtype
    assert expected.score(x, data.k) == found.score(frame[["a", "b", "c"]], frame.k) > 0.9


def labelled_by(*blocks):
    """Targets that believe what they are told of their blocks."""
    parts = [dask.delayed(lambda block=block: block)() for block in blocks]
    return da.concatenate([da.from_delayed(part, (ROWS // len(blocks),), object) for part in parts])


@pytest.mark.parametrize(
    ("other", "kinds"),
    [
        (np.array([2**53, 2**53 + 1], np.uint64), "int64 and uint64"),
        (np.array([0.0, 1.0]), "int64 and float64"),
        (np.array([False, True]), "int64 and bool"),
        (np.array([0, 1], "datetime64[D]"), "int64 and datetime64"),
        (np.array([b"a", b"b"], object), "int64 and bytes"),
        (np.array(["a", "b"]), "int64 and str_"),
    ],
    ids=["uint64", "float64", "bool", "datetime64", "bytes", "str"],
)
def test_classes_of_blocks_are_of_one_type(other, kinds, rows):
    X = da.from_array(rows, chunks=(50, COLUMNS))
    y = np.array([2**53, 2**53 + 1] * 25)
    model = argand.RidgeClassifier(n_components=32, random_state=0)
    with pytest.raises(ValueError, match=f"block 2: y: expected classes of one type, got {kinds}"):
        model.fit(X, labelled_by(y, y, np.tile(other, 25), y))


def test_classes_of_objects_and_of_other_widths(rows):
    X = da.from_array(rows, chunks=(50, COLUMNS))
    model = argand.RidgeClassifier(n_components=32, random_state=0)
    y, text = np.array([2**53, 2**53 + 1] * 25), np.array([b"a", b"b"] * 25, object)
    with pytest.raises(ValueError, match="block 1: y: expected classes of one type, got int and bytes"):
        model.fit(X, labelled_by(y.astype(object), text, y, y))
    # Numbers of equal signs and any width are exact together.
    model.fit(X, labelled_by(y, y % 2, (y % 2).astype(np.int8), y))
    assert model.classes_.tolist() == [0, 1, 2**53, 2**53 + 1] and model.predict(X).dtype == np.int64


@pytest.mark.parametrize("model", [argand.Ridge, argand.RidgeClassifier], ids=lambda model: model.__name__)
def test_a_block_of_targets_that_is_no_array_is_named(model, rows):
    X, y = da.from_array(rows, chunks=(50, COLUMNS)), np.array([0, 1] * 25)
    for other, message in [
        (y.tolist(), "expected an array of NumPy, got list"),
        (None, "expected an array of NumPy, got NoneType"),
        (sp.csr_array(y[:, None]), "expected an array of NumPy, got csr_array"),
        (y.reshape(5, 5, 2), "expected 1 or 2 dimensions, got 3"),
    ]:
        with pytest.raises((TypeError, ValueError), match=f"block 2: y: {message}"):
            model(n_components=32, random_state=0).fit(X, labelled_by(y, y, other, y))


def test_bad_collections(rows):
    X = da.from_array(rows, chunks=(50, COLUMNS))
    frame = dd.from_pandas(pd.DataFrame(rows[:, :3], columns=list("abc")).assign(name="x"), npartitions=3)
    model, sketch = argand.Ridge(n_components=32), argand.PolynomialSketch(n_components=32)
    for estimator in (model, sketch):
        with pytest.raises(TypeError, match=r"X: expected numbers, got .* in the column 'name'"):
            estimator.fit(frame, frame.a)
        with pytest.raises(TypeError, match="X: expected numbers, got <U1"):
            estimator.fit(da.from_array(np.full((10, 2), "x"), chunks=5), np.zeros(10))
        with pytest.raises(ValueError, match="X: expected 2 dimensions, got 1"):
            estimator.fit(X[:, 0], X[:, 0])
        with pytest.raises(TypeError, match="X: expected a Dask array or data frame, got Delayed"):
            estimator.fit(dask.delayed(rows), X[:, 0])
        assert not hasattr(estimator, "n_features_in_")
    with pytest.raises(TypeError, match="X: expected a Dask array or data frame, got ndarray"):
        model.fit(rows, X[:, 0])
    for y in (frame.a.sum(), frame.index):
        for table in (X, frame[["a", "b"]]):
            with pytest.raises(
                TypeError, match=f"y: expected a Dask array, series or data frame, got {type(y).__name__}"
            ):
                model.fit(table, y)
    fitted = argand.PolynomialSketch(2, n_components=32, random_state=0).fit(X)
    with pytest.raises(ValueError, match="X has 5 features, but PolynomialSketch is expecting 12"):
        fitted.transform(X[:, :5])
    with pytest.raises(ValueError, match=r"n_components: would take .* bytes"):
        argand.Ridge(n_components=10**5).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="set_output: expected the default for collections of Dask, got 'pandas'"):
        clone(fitted).set_output(transform="pandas").fit_transform(X)
    with pytest.raises(TypeError, match="out: expected None"):
        fitted.transform(X, out=np.empty((ROWS, 32)))


def test_a_partition_of_other_columns_is_named(rows):
    parts = [pd.DataFrame(rows[at : at + 50, :3], columns=list("abc")) for at in range(0, ROWS, 50)]
    for change, message in [
        (
            lambda part: part[["c", "b", "a"]],
            r"block 2: X: expected the columns \['a', 'b', 'c'\], got \['c', 'b', 'a'\]",
        ),
        (lambda part: part.astype(np.float32), "block 2: X: expected float64 in the column 'a', got float32"),
        (lambda part: part.assign(b="x"), "block 2: X: expected float64 in the column 'b', got"),
    ]:
        changed = [change(part) if i == 2 else part for i, part in enumerate(parts)]
        frame = dd.from_delayed([dask.delayed(part) for part in changed], meta=parts[0], verify_meta=False)
        with pytest.raises(ValueError, match=message):
            argand.Ridge(n_components=32).fit(frame, frame.a)


def test_merge_learns_what_others_have_learnt(rows):
    y = targets(argand.GPClassifier, rows)
    make = lambda: argand.GPClassifier(n_components=32, random_state=0)
    whole = make().fit(rows, y)
    parts = [make().partial_fit(rows[at : at + 50], y[at : at + 50], classes=range(5)) for at in range(0, ROWS, 50)]
    for part in parts[1:]:
        parts[0].merge(part)
    np.testing.assert_allclose(parts[0].predict_proba(rows), whole.predict_proba(rows), rtol=1e-5, atol=1e-8)
    assert parts[1]._gram.rows == 50
    with pytest.raises(TypeError, match="other: expected a GPClassifier, got Ridge"):
        whole.merge(argand.Ridge())
    with pytest.raises(ValueError, match="other: expected the classes"):
        whole.merge(make().fit(rows, y > 2))
    with pytest.raises(ValueError, match="expected"):
        whole.merge(argand.GPClassifier(n_components=32, random_state=1).fit(rows, y))
