"""The documentation site: `make docs`. Its root is that of the repository, so that links work on both."""

from importlib.util import find_spec
from pathlib import Path
from tomllib import loads

import latex2mathml.converter

ROOT = Path(__file__).parents[1]

project = "Argand"
copyright = "the authors of Argand"
version = release = loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
root_doc = "docs/index"
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**"]
exclude_patterns = ["target", "crates", "scripts", "dist", "data", ".venv", ".git", "docs/_build"]
nitpicky = False

myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Argand"


def visit_inline_math(translator, node):
    translator.body.append(latex2mathml.converter.convert(node.astext()))
    raise __import__("docutils").nodes.SkipNode


def visit_displayed_math(translator, node):
    translator.body.append(latex2mathml.converter.convert(node.astext(), display="block"))
    raise __import__("docutils").nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline_math, None), (visit_displayed_math, None))


html_math_renderer = "mathml"
