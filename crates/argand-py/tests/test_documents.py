"""The code in the documents runs."""

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from sklearn.datasets import load_digits

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "crates/argand-py/examples").glob("*.py"))
# The program, for the commands in documents: make test-docs names it.
PROGRAM = os.environ.get("ARGAND_PROGRAM")
# What code with these words needs beside Argand: it runs where that is installed.
OPTIONAL = {"argand.torch": "torch", "import dask": "dask"}
PAGES = [
    "README.md",
    *(f"docs/{name}.md" for name in ("index", "quickstart", "python", "fusion", "planning", "models", "files")),
]


def blocks_of(path):
    """The Python code and the commands of a page, in order."""
    text = (ROOT / path).read_text(encoding="utf-8")
    blocks = re.findall(r"^```(python|sh)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert any(language == "python" for language, _ in blocks), f"{path} has no Python code"
    return blocks


def needs(block):
    """The package that a block needs beside Argand, if any."""
    return next((package for part, package in OPTIONAL.items() if part in block), None)


def run_python(path, block, names):
    exec(compile(block, path, "exec"), names)


def run_commands(block):
    """Runs the lines that begin with `argand`: others install or download."""
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["argand"]:
            run = subprocess.run([PROGRAM, *words[1:]], capture_output=True, text=True, timeout=300)
            assert run.returncode == 0, f"{line}: {run.stderr}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files that documents take for granted: digits, with and without their class."""
    monkeypatch.chdir(tmp_path)
    digits = load_digits(as_frame=True).frame.rename(columns={"target": "class"})
    digits[:1200].to_csv("train.csv", index=False)
    digits[1200:].to_csv("test.csv", index=False)
    digits[1200:].drop(columns="class").to_csv("new.csv", index=False)
    digits[:500].to_csv("table.csv", index=False)
    return tmp_path


@pytest.mark.parametrize("path", PAGES)
def test_python_of_documents_runs(path, folder, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = {}
    for language, block in blocks_of(path):
        if language == "python" and needs(block) is None:
            run_python(path, block, names)


@pytest.mark.skipif(PROGRAM is None, reason="the command line is not built; make test-docs builds it")
@pytest.mark.parametrize(
    "path", [page for page in PAGES if page not in ("docs/index.md", "docs/python.md", "docs/quickstart.md")]
)
def test_commands_of_documents_run(path, folder, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = {}
    commands = [block for language, block in blocks_of(path) if language == "sh" and "argand " in block]
    assert commands, f"{path} has no commands"
    for language, block in blocks_of(path):
        if language == "sh":
            run_commands(block)
        elif needs(block) is None:
            run_python(path, block, names)


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed; make test-torch installs it")
@pytest.mark.parametrize("path", ["README.md", "docs/torch.md", "docs/attribution.md"])
def test_python_with_torch_runs(path, folder):
    blocks = [block for language, block in blocks_of(path) if language == "python"]
    chosen = [block for block in blocks if needs(block) == "torch"] if path == "README.md" else blocks
    assert chosen
    names = {}
    for block in chosen:
        run_python(path, block, names)


@pytest.mark.skipif(find_spec("dask") is None, reason="Dask is not installed; make test-cluster installs it")
def test_python_with_dask_runs(folder):
    chosen = [block for language, block in blocks_of("README.md") if language == "python" and needs(block) == "dask"]
    assert chosen
    for block in chosen:
        run_python("README.md", block, {})


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_run(example, tmp_path):
    run = subprocess.run([sys.executable, example], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stdout


def test_there_are_examples():
    assert len(EXAMPLES) == 6
