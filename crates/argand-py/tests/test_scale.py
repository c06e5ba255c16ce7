"""The recipes of docs/scale.md, with the engines themselves."""

import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import argand
import numpy as np
import pandas as pd
import pytest

pytest.importorskip("ray", reason="Ray is not installed; make test-cluster installs it")

from test_documents import blocks_of, needs

ROOT = Path(__file__).parents[3]
NAMES = [f"x{i}" for i in range(8)]


def recipe(heading):
    text = (ROOT / "docs/scale.md").read_text(encoding="utf-8")
    section = re.search(rf"^## {heading}$(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    (code,) = re.findall(r"^```python\n(.*?)^```$", section.group(1), re.MULTILINE | re.DOTALL)
    return code


@pytest.fixture
def folder(tmp_path):
    """Four files of rows, and the sketch that Spark's recipe begins with."""
    (tmp_path / "rows").mkdir()
    table = rows()
    for part in range(4):
        table[part::4].to_parquet(tmp_path / f"rows/part-{part}.parquet", index=False)
    sketch = argand.PolynomialSketch(degree=2, coef0=1.0, n_components=64, random_state=0)
    sketch.fit(table[NAMES].to_numpy()).save(tmp_path / "sketch.json")
    return tmp_path


def rows():
    values = np.random.default_rng(0).random((4000, len(NAMES)))
    label = np.where(values[:, 0] * values[:, 1] > 0.25, "large", "small")
    return pd.DataFrame(values, columns=NAMES).assign(y=values[:, 0] * values[:, 1], **{"class": label})


def run(code, folder, before="", **environment):
    # The engines stay on this machine.
    environment = {"RAY_DISABLE_IMPORT_WARNING": "1", "SPARK_LOCAL_IP": "127.0.0.1", **environment}
    (folder / "recipe.py").write_text(f"{before}\n{code}", encoding="utf-8")
    found = subprocess.run(
        [sys.executable, "recipe.py"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def same_model():
    table = rows()
    model = argand.Ridge(degree=3, n_components=256, alpha=0.1, random_state=0)
    return model.fit(table[NAMES], table["y"])


def test_dask(folder):
    saved = "\nimport pickle; pickle.dump((model, predicted.compute(), features.compute()), open('found', 'wb'))"
    printed = run(recipe("Dask") + saved, folder)
    model, predicted, features = pickle.loads((folder / "found").read_bytes())
    in_order = pd.concat([rows()[part::4] for part in range(4)])
    np.testing.assert_allclose(predicted, same_model().predict(in_order[NAMES]), rtol=1e-5, atol=1e-7)
    assert features.shape == (4000, 256) and model._gram.rows == 4000
    assert float(printed) == pytest.approx(same_model().score(rows()[NAMES], rows()["y"]))


@pytest.mark.parametrize("block", [block for _, block in blocks_of("README.md") if needs(block) == "dask"])
def test_the_readme_with_dask(block, folder):
    run(block, folder)


def test_ray(folder):
    start = "import ray; ray.init(num_cpus=2, object_store_memory=100_000_000, include_dashboard=False)"
    saved = "\nPath = __import__('pathlib').Path; Path('found').write_bytes(pickle.dumps(model))"
    # Actors find the package where this process does.
    run(recipe("Ray") + saved, folder, start, PYTHONPATH=os.pathsep.join(sys.path))
    model = pickle.loads((folder / "found").read_bytes())
    assert model._gram.rows == 4000
    table = rows()[NAMES]
    np.testing.assert_allclose(model.predict(table), same_model().predict(table), rtol=1e-5, atol=1e-7)


def test_spark(folder):
    assert shutil.which("java"), "Spark needs Java (17 or newer), which is not on the PATH"
    command = Path(os.environ["ARGAND"])
    assert command.is_file(), f"{command} is not there; make test-cluster builds it"
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    submit = "--master local[2] --driver-memory 700m --conf spark.ui.enabled=false pyspark-shell"
    run(recipe("Spark"), folder, PATH=path, PYSPARK_PYTHON=sys.executable, PYSPARK_SUBMIT_ARGS=submit)
    rows().drop(columns="y").to_parquet(folder / "all.parquet", index=False)
    # The sums of all rows in one file give the same predictions.
    for arguments in [
        "gram all.parquet --labels class --spec sketch.json -o whole.gram",
        "fit --from-gram whole.gram --model ridge -o whole.model",
        "predict class.model all.parquet -o parts.csv",
        "predict whole.model all.parquet -o whole.csv",
    ]:
        subprocess.run([command, *arguments.split()], cwd=folder, check=True)
    parts, whole = (pd.read_csv(folder / name) for name in ("parts.csv", "whole.csv"))
    assert len(parts) == 4000 and parts.equals(whole)
    assert "4000 rows" in subprocess.run(
        [command, "info", "all.gram"], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.replace(",", "")
    # Rows that were counted are not counted again.
    again = subprocess.run([command, "merge", "all.gram", "part-0.gram", "-o", "x"], cwd=folder, capture_output=True)
    assert again.returncode != 0 and b"part-0.gram" in again.stderr
