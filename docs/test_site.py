"""The site that `make docs` has built: links lead somewhere, and pages fit screens of two widths, light and dark.

Screenshots stay in `target/screenshots`. Without Chromium, pages are not looked at, and the test says so.
"""

import os
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[1]
SITE = Path(os.environ.get("ARGAND_SITE", ROOT / "target/site"))
SCREENSHOTS = ROOT / "target/screenshots"
# rustdoc checks its own pages, and those of sources and modules are lists.
PAGES = sorted(page for page in SITE.rglob("*.html") if page.relative_to(SITE).parts[0] not in ("rust", "_static"))
VIEWS = [(width, scheme) for width in (1280, 375) for scheme in ("light", "dark")]


class Page(HTMLParser):
    """The identifiers, links and resources of a page."""

    def __init__(self, path):
        super().__init__()
        self.identifiers, self.links = set(), []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.identifiers.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def dead_links(pages):
    """The links of pages that lead nowhere on the site."""
    known, dead = {}, []
    for path in pages:
        for link in Page(path).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                dead.append(f"{path.relative_to(SITE)}: {link}")
            elif parts.fragment and target.suffix == ".html":
                if target not in known:
                    known[target] = Page(target).identifiers
                if unquote(parts.fragment) not in known[target]:
                    dead.append(f"{path.relative_to(SITE)}: {link}")
    return dead


def test_there_are_pages():
    names = {str(page.relative_to(SITE)) for page in PAGES}
    assert {"index.html", "README.html", "docs/math.html", "docs/reference/python.html"} <= names
    assert sum(name.startswith("docs/gallery/") for name in names) >= 7
    reference = (SITE / "docs/reference/python.html").read_text(encoding="utf-8")
    for name in ("PolynomialSketch.transform", "GPClassifier.predict_proba", "plan", "theory.variance"):
        assert f'id="argand.{name}"' in reference, name
    commands = (SITE / "docs/reference/commands.html").read_text(encoding="utf-8")
    assert "argand evaluate" in commands
    assert "--target-error" in commands
    assert (SITE / "rust/argand/index.html").is_file()


def test_links_lead_somewhere():
    assert dead_links(PAGES) == []


def test_dead_links_are_noticed():
    page = SITE / "broken-for-a-test.html"
    page.write_text('<a href="nowhere.html">a</a><a href="docs/math.html#nothing">b</a><a href="docs/math.html">c</a>')
    try:
        assert [found.split(": ")[1] for found in dead_links([page])] == ["nowhere.html", "docs/math.html#nothing"]
    finally:
        page.unlink()


@pytest.fixture(scope="module")
def browser():
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("NOT RUN: pages were not looked at, for want of a browser: `apt-get install chromium`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        yield browser
        browser.close()


def faults(tab, width, scheme):
    """What is wrong with how a page looks."""
    seen = tab.evaluate(
        """() => ({
            width: document.documentElement.scrollWidth,
            ground: getComputedStyle(document.body).backgroundColor,
            missing: [...document.images].filter(image => !image.naturalWidth).map(image => image.src),
            outside: performance.getEntriesByType("resource").map(entry => entry.name)
                .filter(name => !name.startsWith("file:") && !name.startsWith("data:")),
        })"""
    )
    light = sum(int(part) for part in seen["ground"].removeprefix("rgb(").removesuffix(")").split(",")[:3]) > 3 * 128
    found = [f"no picture: {name}" for name in seen["missing"]] + [
        f"from elsewhere: {name}" for name in seen["outside"]
    ]
    if seen["width"] > width:
        found.append(f"{seen['width']} pixels wide")
    if light != (scheme == "light"):
        found.append(f"the ground is {seen['ground']}")
    return found


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_pages_fit_the_screen(browser, width, scheme):
    folder = SCREENSHOTS / f"{width}-{scheme}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    found = {}
    for page in PAGES:
        if page == SITE / "index.html":
            continue  # it leads to docs/index.html at once
        tab.goto(page.as_uri())
        name = page.relative_to(SITE).with_suffix("")
        tab.screenshot(path=folder / f"{str(name).replace('/', '-')}.png")
        found[str(name)] = faults(tab, width, scheme)
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    # A check that sees nothing would find no fault here, either.
    tab.evaluate('document.body.innerHTML += \'<p style="width: 3000px">wide</p><img src="nothing.png">\'')
    tab.emulate_media(color_scheme="dark" if scheme == "light" else "light")
    tab.wait_for_timeout(200)
    broken = " ".join(faults(tab, width, scheme))
    assert all(words in broken for words in ("no picture", "pixels wide", "the ground is")), broken
    tab.close()
