"""The code in the documents runs."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "crates/argand-py/examples").glob("*.py"))


def python_blocks(path):
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks, f"{path} has no Python code"
    return blocks


def needs_torch(block):
    return "argand.torch" in block


def needs_dask(block):
    """Whether test_scale.py runs it."""
    return "import dask" in block


def run_blocks(path, blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks:
        exec(compile(block, path, "exec"), names)


@pytest.mark.parametrize("path", ["README.md", "docs/python.md"])
def test_code_blocks_run(path, tmp_path, monkeypatch):
    blocks = [block for block in python_blocks(path) if not needs_torch(block) and not needs_dask(block)]
    run_blocks(path, blocks, tmp_path, monkeypatch)


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed; make test-torch installs it")
@pytest.mark.parametrize("path", ["README.md", "docs/torch.md"])
def test_code_blocks_with_torch_run(path, tmp_path, monkeypatch):
    blocks = python_blocks(path)
    chosen = blocks if path == "docs/torch.md" else [block for block in blocks if needs_torch(block)]
    assert chosen
    run_blocks(path, chosen, tmp_path, monkeypatch)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_run(example, tmp_path):
    run = subprocess.run([sys.executable, example], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stdout


def test_there_are_three_examples():
    assert [path.stem for path in EXAMPLES] == ["choose_features", "digits_pipeline", "multimodal_fusion"]
