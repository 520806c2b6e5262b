"""The folder of a run, which keeps finished parts, and its report, a list of blocks, as an HTML page and Markdown."""

from __future__ import annotations

import base64
import csv
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from reproduction.claims import HOLDS, IN_PART, NOT, NOT_EXAMINED, TOO_SHORT, Claim, number

CLASSES = {HOLDS: "holds", IN_PART: "part", NOT: "not", TOO_SHORT: "short", NOT_EXAMINED: "not-examined"}
MARKS = {verdict: f' class="{name}"' for verdict, name in CLASSES.items()}

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1b1b1b }
h1 { font-size: 1.7rem } h2 { font-size: 1.25rem; margin-top: 2.2rem }
figure { margin: 1.5rem 0 } img { max-width: 100%; height: auto } figcaption { color: #555; font-size: .9rem }
.wide { overflow-x: auto } table { border-collapse: collapse; margin: 1rem 0; font-size: .9rem }
th, td { border: 1px solid #ccc; padding: .3rem .6rem; text-align: left; vertical-align: top }
th { background: #f3f3f3 }
.holds { color: #14691e } .part { color: #8a5a00 } .not { color: #a01818 } .short, .not-examined { color: #555 }
"""
PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<style>{style}</style></head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>"""


class Block(NamedTuple):
    """A piece of a report."""

    html: str
    markdown: str


def heading(text: str) -> Block:
    """Make the title of a section."""
    return Block(f"<h2>{escape(text)}</h2>", f"## {text}")


def paragraph(text: str) -> Block:
    """Make a paragraph of plain text."""
    return Block(f"<p>{escape(text)}</p>", text)


def picture(file: Path, caption: str) -> Block:
    """Show a PNG file above its caption."""
    data, text = base64.b64encode(file.read_bytes()).decode("ascii"), escape(caption)
    image = f'<img alt="{text}" src="data:image/png;base64,{data}">'
    return Block(f"<figure>{image}<figcaption>{text}</figcaption></figure>", f"![{caption}]({file.name})")


def table(caption: str, rows: Sequence[Mapping[str, Any]]) -> Block:
    """Make a table of rows, which give cells by column name; missing cells are left empty."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [[shown(row.get(name, "")) for name in columns] for row in rows]
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = ("".join(f"<td{MARKS.get(cell, '')}>{escape(cell)}</td>" for cell in line) for line in lines)
    html = "".join(f"<tr>{row}</tr>\n" for row in (head, *body))
    title = f"<p>{escape(caption)}</p>\n" if caption else ""
    text = (" | ".join(cell.replace("|", "\\|") for cell in line) for line in (columns, ["---"] * len(columns), *lines))
    markdown = "\n".join(f"| {line} |" for line in text)
    return Block(
        f'{title}<div class="wide"><table>{html}</table></div>', f"{caption}\n\n{markdown}" if caption else markdown
    )


@dataclass(frozen=True)
class Report:
    """A title, blocks, and as the last table the claims, below the rule that their verdicts follow."""

    title: str
    blocks: Sequence[Block]
    claims: Sequence[Claim] = ()
    rule: str = ""

    def write(self, folder: Path) -> Path:
        """Write report.html, whose path is returned, and report.md."""
        page, title = folder / "report.html", escape(self.title)
        claims = [heading("Claims of the paper"), table(self.rule, [claim.row() for claim in self.claims])]
        blocks = [*self.blocks, *(claims if self.claims else [])]
        body = "\n".join(block.html for block in blocks)
        text = "\n\n".join([f"# {self.title}", *(block.markdown for block in blocks)])
        for path, content in ((page, PAGE.format(title=title, style=STYLE, body=body)), (folder / "report.md", text)):
            with replacing(path) as temporary:
                temporary.write_text(f"{content}\n", encoding="utf-8")
        return page


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path`` that takes its place when the block ends well: no file is half written."""
    temporary = path.with_name(f".{path.name}.unfinished")
    yield temporary
    temporary.replace(path)


def shown(value: Any) -> str:
    """Return the text of a cell: numbers have four digits."""
    return number(value, 4) if isinstance(value, float) else str(value)


class Folder:
    """Settings, tables, pictures, and for each finished part a file of facts."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path, self.settings = path, dict(settings)
        self._parts, self._settings_file = path / "parts", path / "settings.json"
        if self._settings_file.exists():
            there, wanted = json.loads(self._settings_file.read_text()), json.loads(json.dumps(self.settings))
            if other := [key for key in there | wanted if there.get(key) != wanted.get(key)]:
                listed = ", ".join(f"{key} {there.get(key)!r}, not {wanted.get(key)!r}" for key in other)
                raise ValueError(f"{path} holds a run with other settings ({listed}); give --out another folder.")
        elif path.is_dir() and any(path.iterdir()):
            raise ValueError(f"{path} is not empty and holds no experiment; give --out a new or an empty folder.")

    def _begin(self) -> None:
        """Prepare the folder for writing, and remove the unfinished files of a killed run."""
        if not self._settings_file.exists():
            self._parts.mkdir(parents=True, exist_ok=True)
            with replacing(self._settings_file) as temporary:
                temporary.write_text(json.dumps(self.settings, indent=2) + "\n")
        for litter in self.path.glob(".scratch-*"):
            shutil.rmtree(litter, ignore_errors=True)

    def keep(self, name: str, find: Callable[[Path], dict[str, Any]]) -> None:
        """Find the facts of a part, if they are not here yet; ``find`` is given a temporary folder for large arrays."""
        facts = self._parts / f"{name}.json"
        if not facts.exists():
            self._begin()
            with tempfile.TemporaryDirectory(dir=self.path, prefix=".scratch-") as scratch:
                found = find(Path(scratch))
            with replacing(facts) as temporary:
                temporary.write_text(json.dumps(found) + "\n")

    def parts(self) -> dict[str, dict[str, Any]]:
        """Return the facts of all finished parts, by name."""
        return {path.stem: json.loads(path.read_text()) for path in sorted(self._parts.glob("*.json"))}

    def table(self, name: str, rows: Sequence[Mapping[str, Any]], caption: str = "") -> Block:
        """Write rows as NAME.csv, and give them as a block of the report; missing cells are left empty."""
        self._begin()
        columns = list(dict.fromkeys(key for row in rows for key in row))
        with (
            replacing(self.path / f"{name}.csv") as temporary,
            temporary.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
        return table(caption, rows)

    def picture(self, name: str, figure: Any, caption: str) -> Block:
        """Write a Matplotlib figure as NAME.png and NAME.svg, and give it as a block of the report."""
        for suffix in ("svg", "png"):
            with replacing(self.path / f"{name}.{suffix}") as temporary:
                figure.savefig(temporary, format=suffix, dpi=160)
            figure.set_layout_engine("none")  # computed once: it takes as long as drawing
        return picture(self.path / f"{name}.png", caption)
