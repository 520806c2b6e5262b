"""The documentation as a site: built without a warning, complete, and readable without a network."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))
PROSE = [*(page.name for page in ROOT.glob("*.md")), "packaging", "docs", "src", "tests", "benchmarks", "mkdocs.yml"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Links, anchors and names in the reference are checked by the build, which ends with the first warning."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_every_page_is_built_and_fetches_nothing(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix(".html")
        name = name.with_name("index.html") if name.name == "README.html" else name
        html = (site / name).read_text()
        fetched = re.findall(r"<(?:script|img|iframe|source)[^>]*src=[\"']?(https?:[^\"' >]*)", html)
        fetched += re.findall(
            r"<link[^>]*rel=[\"']?(?:stylesheet|preconnect|preload)[^>]*href=[\"']?(https?:[^\"' >]*)", html
        )
        assert not fetched, f"{name}: {fetched}"


def articles(site: Path) -> Iterator[tuple[str, str]]:
    """The name of each page, and what is between its sidebars."""
    for page in sorted(site.rglob("*.html")):
        if found := re.search(r"<article.*?</article>", page.read_text(), re.DOTALL):
            yield str(page.relative_to(site)), found[0]


def test_no_page_shows_markup_or_code_that_is_cut(site: Path) -> None:
    """A list without its blank line becomes one paragraph; 76 characters of code fit between the sidebars."""
    left, cut = [], []
    for name, article in articles(site):
        code = re.compile(r"<pre[^>]*>.*?</pre>", re.DOTALL)
        blocks = [html.unescape(re.sub(r"<[^>]+>", "", block)) for block in code.findall(article)]
        cut += [(name, line) for block in blocks for line in block.splitlines() if len(line) > 76]
        left += [(name, remains) for remains in re.findall(r"``.{20}", code.sub("", article))]
        text = re.sub(r"<code.*?</code>|<script.*?</script>", "X", code.sub("", article), flags=re.DOTALL)
        left += [(name, remains) for remains in re.findall(r"[.:;] - .{20}|\n *- .{20}|\*\*.{9}|.{9}\]\(|```", text)]
    assert (left, cut) == ([], [])


WIDER = """return [...document.querySelectorAll('.md-typeset__scrollwrap, pre > code')]
    .filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.innerText.slice(0, 60))"""


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_into_the_window(browser: Any, site: Path, width: int) -> None:
    """At 1280 pixels nothing is cut; at 390 wide tables and code scroll alone."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wider = {}
    for name, _ in articles(site):
        browser.get((site / name).as_uri())
        found = browser.execute_script(WIDER) if width == 1280 else []
        if browser.execute_script("return document.documentElement.scrollWidth") > width:
            found.append("the page")
        if found:
            wider[name] = found
    assert wider == {}


def test_every_command_is_in_the_reference(site: Path) -> None:
    text = (site / "reference" / "commands.html").read_text()
    files = (ROOT / "src" / "onmf" / "cli").glob("*.py")
    commands = [path.stem for path in files if "@command(" in path.read_text()]
    assert len(commands) >= 10
    for command in commands:
        assert f'id="onmf-{command}"' in text


def test_the_built_reference_has_an_entry_for_each_of_these_names_and_for_no_other(site: Path) -> None:
    hooks: Any = pytest.importorskip("hooks")
    names = hooks.names()
    built = {
        entry
        for page in (site / "reference").glob("*.html")
        for entry in re.findall(r'<h\d id="(onmf\.[\w.]+)"', page.read_text())
    }
    assert built - {"onmf.topics"} == names.keys() - {"onmf.topics"}
    assert not [name for name in built if any(part.startswith("_") for part in name.split("."))]
    index = (site / "reference" / "index.html").read_text()
    assert [name for name in names if f'#{name}"' not in index] == []


def test_guides_with_code_are_notebooks_too(site: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    for guide in (ROOT / "docs" / "guides").glob("*.md"):
        blocks = re.findall(r"^```python(?: title=\S+)?\n(.*?)^```", guide.read_text(), re.DOTALL | re.MULTILINE)
        assert blocks, guide.name
        notebook = nbformat.read(site / "notebooks" / f"{guide.stem}.ipynb", as_version=4)
        nbformat.validate(notebook)
        cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
        assert [re.sub(r"^%%writefile .*\n", "", cell) for cell in cells] == [block.strip() for block in blocks]
        assert f"notebooks/{guide.stem}.ipynb" in (site / "guides" / f"{guide.stem}.html").read_text()


def test_every_page_is_in_the_sidebar_under_its_first_heading(site: Path) -> None:
    """A page that the sidebar lacks, and pages with links that lead nowhere, end the build."""
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "omitted_files: warn" in settings
    assert dict(re.findall(r"- ([^:\n]+): (\S+\.md)", settings)) == {"Home": "index.md", "Gallery": "gallery.md"}
    for name, article in articles(site):
        headings = re.findall(r"<h1[^>]*>(.*?)(?:<a|</h1>)", article)
        assert len(headings) == 1, name
        assert "Not run." not in article


def test_a_notebook_writes_the_modules_that_its_cells_import() -> None:
    nbformat, hooks = pytest.importorskip("nbformat"), pytest.importorskip("hooks")
    notebook = nbformat.reads(hooks.notebook(ROOT / "docs/guides/own-divergence.md", None), as_version=4)
    first, *others = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert first.startswith("%%writefile my_losses.py\n")
    assert len(others) == 2
    assert all("my_losses" in other and "%%" not in other for other in others)


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("docs/**/*.md")) + sorted(ROOT.glob("*.md")), ids=lambda page: page.name
)
def test_a_blank_line_precedes_every_fence(page: Path) -> None:
    """Without one a fence becomes part of the paragraph above it, on the site."""
    inside, above, found = False, "", []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if re.match(r" *```", line):
            if not inside and above.strip():
                found.append(number)
            inside = not inside
        above = line
    assert found == []


def test_guides_say_what_they_are_for_show_a_result_of_their_code_and_lead_on() -> None:
    make_images: Any = pytest.importorskip("make_images")
    for guide in (ROOT / "docs" / "guides").glob("*.md"):
        _, goal, *rest = guide.read_text().split("\n\n")
        assert re.match(r"\w|`onmf|`pip", goal), f"{guide.name} begins with {goal[:20]!r}"
        assert re.search(r"\]\([\w./#-]+\.md", "\n".join(rest)), guide.name
        assert [each for each in make_images.made_by(guide).values() if each.suffix == ".png"], guide.name


@pytest.mark.parametrize("address", [None, "https://example.invalid/docs/"])
def test_a_notebook_holds_its_pictures_and_its_links_lead_to_the_site(address: str | None) -> None:
    nbformat, hooks = pytest.importorskip("nbformat"), pytest.importorskip("hooks")
    pictures, links = 0, set()
    for guide in hooks.guides():
        notebook = nbformat.reads(hooks.notebook(guide, address), as_version=4)
        for cell in (cell for cell in notebook.cells if cell.cell_type == "markdown"):
            assert "<audio" not in cell.source
            targets = re.findall(r"\]\(([^)]*)\)", cell.source)
            held = {target.removeprefix("attachment:") for target in targets if target.startswith("attachment:")}
            assert held == set(cell.get("attachments", {}))
            pictures += len(held)
            own = [target for target in targets if target.startswith(str(address)) or "https://" not in target]
            links |= {target for target in own if not target.startswith("attachment:")}
    assert pictures > 8
    assert all(link.startswith(str(address)) and ".html" in link for link in links)
    assert ("https://example.invalid/docs/evidence/measurements.html#topics" in links) == bool(address)


def test_words_are_spelt_as_in_a_dictionary() -> None:
    pytest.importorskip("codespell_lib")
    found = subprocess.run([sys.executable, "-m", "codespell_lib", *PROSE], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
