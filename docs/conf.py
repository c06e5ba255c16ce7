"""The documentation site: `make docs`.

Its root is that of the repository, so that links between documents work there and on the site. `ARGAND_TARGET` is where
Cargo has put the program, whose help becomes the reference of the command line, and the documentation of the crates.
"""

import os
import re
import shutil
import subprocess
import unicodedata
from importlib.util import find_spec
from pathlib import Path

import latex2mathml.converter
import tomllib
from docutils import nodes

ROOT = Path(__file__).parents[1]
TARGET = Path(os.environ["ARGAND_TARGET"])

project = "Argand"
copyright = "the authors of Argand"
release = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
root_doc = "docs/index"
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**"]
exclude_patterns = [
    ".*",
    "crates",
    "data",
    "dist",
    "examples",
    "reproduced",
    "scripts",
    "target",
]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 3

# Optional parts of the package are described without what they need.
autodoc_mock_imports = [name for name in ("torch", "dask", "distributed") if find_spec(name) is None]
autodoc_typehints = "none"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = ["Shape"]

sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "crates/argand-py/examples"),
    "gallery_dirs": str(ROOT / "docs/gallery"),
    "filename_pattern": "",
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
    "min_reported_time": 3600,
    "abort_on_example_error": True,
    "copyfile_regex": r".*\.svg",
}

html_theme = "furo"
html_title = "Argand"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True


def write_commands(app):
    """The help of every command as a page."""
    program = TARGET / "debug/argand"

    def text(*arguments):
        run = subprocess.run([program, *arguments], capture_output=True, text=True, check=True, env={"COLUMNS": "100"})
        return f"```text\n{run.stdout.rstrip()}\n```\n"

    overview = text("--help")
    listed = overview.split("Commands:\n")[1].split("\n\n")[0].splitlines()
    names = [line.split()[0] for line in listed if line.startswith("  ") and line[2] != " "]
    page = (
        "# Command line\n\nWhat `argand COMMAND --help` prints; [the guide](../files.md) is an introduction.\n\n"
        + overview
    )
    for name in names:
        if name != "help":
            page += f"\n## argand {name}\n\n{text(name, '--help')}"
    (ROOT / "docs/reference/commands.md").write_text(page, encoding="utf-8")


def finish(app, exception):
    """Adds the documentation of the crates, and a first page that leads to ours."""
    if exception is None:
        shutil.copytree(TARGET / "doc", Path(app.outdir) / "rust", dirs_exist_ok=True)
        first = '<!doctype html><title>Argand</title><meta http-equiv="refresh" content="0; url=docs/index.html">\n'
        (Path(app.outdir) / "index.html").write_text(first, encoding="utf-8")


def skip_foreign(app, what, name, member, skip, options):
    """Leaves out what comes from scikit-learn, whose own site describes it."""
    return True if (getattr(member, "__module__", None) or "").startswith("sklearn") else None


def double_struck(found):
    """The letter of Unicode: browsers do not draw one for the variant that MathML names."""
    try:
        return f">{unicodedata.lookup(f'DOUBLE-STRUCK CAPITAL {found[1]}')}<"
    except KeyError:
        return f">{unicodedata.lookup(f'MATHEMATICAL DOUBLE-STRUCK CAPITAL {found[1]}')}<"


def mathml(translator, node, display):
    """Math as MathML, which browsers draw without a script."""
    text = latex2mathml.converter.convert(node.astext(), display=display)
    translator.body.append(re.sub(r' mathvariant="double-struck">([A-Z])<', double_struck, text))
    raise nodes.SkipNode


def setup(app):
    app.connect("builder-inited", write_commands)
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("build-finished", finish)
    app.add_html_math_renderer(
        "mathml",
        (lambda translator, node: mathml(translator, node, "inline"), None),
        (lambda translator, node: mathml(translator, node, "block"), None),
    )
