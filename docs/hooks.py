"""What MkDocs does besides: pages from the files at the root, the commands' help, and the guides as notebooks."""

from __future__ import annotations

import base64
import inspect
import io
import pydoc
import re
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import nbformat
from mkdocs.structure.files import File, Files
from typer.testing import CliRunner

from onmf.cli.main import app

ROOT = Path(__file__).parent.parent
FROM_ROOT = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
SHIM = re.compile(
    r"https://unpkg\.com/iframe-worker/shim(?:\.min\.js)?"
)  # what the theme would fetch to search from a disk
STATUS = {  # of decisions: the date and the rest, from the table of all
    name: (date, status)
    for name, date, status in re.findall(
        r"^\| \[\d+\]\(([^)]+)\) \|.*\| ([\d-]+) \| (.*) \|$",
        (ROOT / "docs/decisions/README.md").read_text(),
        re.MULTILINE,
    )
}
NAME = re.compile(r"^::: (\S+)(?:\n    options:\n      members: \[(.*)\])?", re.MULTILINE)
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are written elsewhere."""
    for source, page in FROM_ROOT.items():
        text = (ROOT / source).read_text().replace("](docs/", "](").replace("](README.md", "](index.md")
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "reference/commands.md", content=commands()))
    files.append(File.generated(config, "reference/index.md", content=index()))
    for guide in guides():
        files.append(File.generated(config, f"notebooks/{guide.stem}.ipynb", content=notebook(guide, config.site_url)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Every guide with code offers itself as a notebook."""
    markdown = moved(markdown)
    path = ROOT / "docs" / page.file.src_uri
    if path.parent.name == "decisions" and (found := STATUS.get(path.name)):
        title, _, rest = markdown.partition("\n")
        return f"{title}\n\n*{found[0]}: {found[1]}.*\n{rest}"
    if path not in guides():
        return markdown
    title, _, rest = markdown.partition("\n")
    return f"{title}\n\n[This page as a notebook](../notebooks/{path.stem}.ipynb){{ download }}\n{rest}"


def moved(markdown: str) -> str:
    """A page as it is in the repository, with the places that links have on the site."""
    for up in ("", "../"):
        markdown = markdown.replace(f"]({up}../CONTRIBUTING.md", f"]({up}contributing.md")
    return markdown


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Search by our own script, which is beside the page."""
    return SHIM.sub("../" * page.url.count("/") + "assets/search.js", output)


def guides() -> list[Path]:
    """The pages whose code is worth running in a notebook."""
    return [path for path in sorted((ROOT / "docs" / "guides").glob("*.md")) if BLOCK.search(path.read_text())]


def notebook(page: Path, site: str | None) -> str:
    """A page as a notebook: its Python blocks are cells of code, all between them cells of text.

    It is read elsewhere, so it holds its pictures, and its links lead to the site; without an address they are words.
    Players stay behind: the code writes their sounds.
    """
    here = urljoin(site or "", "guides/")
    cells = []
    for place, part in enumerate(BLOCK.split(moved(page.read_text()))):
        if place % 2:
            cells.append(nbformat.v4.new_code_cell(part.strip(), id=f"cell-{place}"))
            continue
        text = re.sub(r'<div class="players".*?</div>', "", part, flags=re.DOTALL)
        pictures = {name: page.parent / path for path, name in re.findall(r"\]\(((?:[^()]*/)?([^()/]+\.png))\)", text)}
        text = re.sub(r"\]\((?:[^()]*/)?([^()/]+\.png)\)", r"](attachment:\1)", text)
        text = text.replace("](#", f"]({page.name}#")  # links within the page
        linked = re.compile(r"(?<!!)\[([^\]]+)\]\((?!\w+:)([^)]*?)\.md(#[^)]*)?\)")
        text = linked.sub(
            lambda each: f"[{each[1]}]({urljoin(here, each[2])}.html{each[3] or ''})" if site else each[1], text
        )
        if text.strip():
            cells.append(nbformat.v4.new_markdown_cell(text.strip(), id=f"cell-{place}"))
            for name, path in pictures.items():
                held = base64.b64encode(path.read_bytes()).decode()
                cells[-1].setdefault("attachments", {})[name] = {"image/png": held}
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    out = io.StringIO()
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), out)
    return out.getvalue()


def names() -> dict[str, str]:
    """The names in the reference, as the user writes them, and the page of each."""
    found = {}
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        for name, members in NAME.findall(page.read_text()):
            inside = [each.strip() for each in (members or "").split(",") if each.strip()]
            for each in [name, *(f"{name}.{member}" for member in inside)]:
                found[each] = page.name
    return found


def index() -> str:
    """A line for each name in the reference: what it is for, in the first sentence of its docstring."""
    lines = []
    for name, page in sorted(names().items(), key=lambda each: each[0].lower()):
        first = (
            (inspect.getdoc(pydoc.locate(name)) or "")
            .partition("\n")[0]
            .replace("|", "\\|")
            .replace("*", "\\*")
            .replace("``", "`")
        )
        lines.append(f"| [`{name.removeprefix('onmf.')}`]({page}#{name}) | {first} |")
    return (
        "# Reference\n\nEvery public name of the library.\n\n| `onmf.` | what it is |\n|---|---|\n"
        + "\n".join(lines)
        + "\n"
    )


def commands() -> str:
    """The help of every command, as it is printed."""
    listed = [getattr(each.callback, "__name__", "") for each in app.registered_commands]
    parts = [f"## onmf {name}\n\n```\n{said(name, '--help')}\n```\n" for name in listed]
    return "# Command line\n\n```\n" + said("--help") + "\n```\n\n" + "\n".join(parts)


def said(*arguments: str) -> str:
    """What the command prints, 76 columns wide and without colours."""
    width = {"COLUMNS": "76", "TERM": "dumb", "NO_COLOR": "1"}
    done = CliRunner().invoke(app, arguments, prog_name="onmf", env=width, catch_exceptions=False)
    if done.exit_code:
        raise RuntimeError(done.output)
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())
