"""The studies in examples/torch run, on data of their formats made up here, and report."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; make test-torch installs it")

STUDIES = Path(__file__).parents[3] / "examples/torch"


def idx(path, array):
    path.write_bytes(bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes() + array.tobytes())


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("data")
    for name in ("mnist", "fashion-mnist", "cifar10-conv", "moby-dick"):
        (folder / name).mkdir()
    (folder / "moby-dick/data.txt").write_text("Call me Ishmael. Some years ago, never mind how long. " * 100)
    for part, count in (("train", 300), ("test", 100)):
        labels = rng.integers(10, size=count, dtype=np.uint8)
        rows = rng.random((count, 512)) + (np.arange(512) % 10 == labels[:, None])
        np.save(folder / f"cifar10-conv/{part}-features.npy", rows.astype(np.float16))
        np.save(folder / f"cifar10-conv/{part}-labels.npy", labels)
        for name in ("mnist", "fashion-mnist"):
            prefix = f"{name}/{'t10k' if part == 'test' else 'train'}"
            idx(folder / f"{prefix}-images-idx3-ubyte", rng.integers(256, size=(count, 28, 28), dtype=np.uint8))
            idx(folder / f"{prefix}-labels-idx1-ubyte", labels)
    return folder


@pytest.mark.parametrize(
    ("study", "methods"),
    [
        ("online", ["ctr-product-srht, Argand", "tensor-sketch, plain PyTorch"]),
        ("pooling", ["full bilinear pooling", "compact, ctr-product-srht"]),
        ("attribution", ["two-sided", "ctr-product-srht", "forward and backward"]),
        ("gradients", ["blocks.1.fc2", "forward and backward", "ctr-product-srht"]),
    ],
)
def test_studies_run(study, methods, data, tmp_path):
    command = [sys.executable, STUDIES / f"{study}.py", "--small", "--data", data, "--device", "cpu"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    assert all(f"| {method} |" in run.stdout for method in methods)
    assert "nan" not in run.stdout
    header, *rows = (tmp_path / f"{study}.csv").read_text().splitlines()
    assert rows
    assert all(row.count(",") >= header.count(",") for row in rows)
