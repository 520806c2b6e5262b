"""The report of a run: a list of blocks, written as one HTML page that needs nothing else, and as Markdown."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from onmf.persistence.file import replacing

HOLDS, IN_PART, NOT, UNKNOWN = "holds", "holds in part", "does not hold", "not examined"

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1b1b1b }
h1 { font-size: 1.7rem } h2 { font-size: 1.25rem; margin-top: 2.2rem }
figure { margin: 1.5rem 0 } img { max-width: 100%; height: auto } figcaption { color: #555; font-size: .9rem }
.wide { overflow-x: auto } table { border-collapse: collapse; margin: 1rem 0; font-size: .9rem }
th, td { border: 1px solid #ccc; padding: .3rem .6rem; text-align: left; vertical-align: top }
th { background: #f3f3f3 }
.holds { color: #14691e } .part { color: #8a5a00 } .not { color: #a01818 } .unknown { color: #555 }
"""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, what was measured here, and the verdict."""

    claim: str
    measured: str
    verdict: str


@dataclass(frozen=True)
class Heading:
    """The title of a section."""

    text: str


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Table:
    """Rows of cells by the names of their columns; missing cells are empty."""

    caption: str
    rows: Sequence[Mapping[str, Any]]

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def cells(self) -> list[list[str]]:
        return [[shown(row.get(name, "")) for name in self.columns] for row in self.rows]


@dataclass(frozen=True)
class Picture:
    """A PNG file and what it shows."""

    file: Path
    caption: str


Block: TypeAlias = Heading | Text | Table | Picture


@dataclass(frozen=True)
class Report:
    """A title, blocks, and the claims, which come as one table at the end."""

    title: str
    blocks: Sequence[Block]
    claims: Sequence[Claim] = ()

    def write(self, folder: Path) -> Path:
        """report.html and report.md; the path of the former."""
        page = folder / "report.html"
        for path, text in ((page, self.as_html()), (folder / "report.md", self.as_markdown())):
            with replacing(path) as temporary:
                temporary.write_text(text, encoding="utf-8")
        return page

    def as_html(self) -> str:
        body = "\n".join(_html(block) for block in self._all())
        title = html.escape(self.title)
        return (
            f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title>\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<link rel="icon" href="data:,">\n<style>{STYLE}</style></head>\n<body>\n'
            f"<h1>{title}</h1>\n{body}\n</body>\n</html>\n"
        )

    def as_markdown(self) -> str:
        return "\n\n".join([f"# {self.title}", *(_markdown(block) for block in self._all())]) + "\n"

    def _all(self) -> list[Block]:
        rows = [
            {"the paper's claim": each.claim, "measured here": each.measured, "verdict": each.verdict}
            for each in self.claims
        ]
        return [*self.blocks, Heading("Claims of the paper"), Table("", rows)] if rows else list(self.blocks)


def verdict(successes: Sequence[bool]) -> str:
    """Holds if all do, in part if some do."""
    if not successes:
        return UNKNOWN
    return HOLDS if all(successes) else IN_PART if any(successes) else NOT


def shown(value: Any) -> str:
    """A cell: numbers to four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _html(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h2>{html.escape(block.text)}</h2>"
    if isinstance(block, Text):
        return f"<p>{html.escape(block.text)}</p>"
    if isinstance(block, Picture):
        data = base64.b64encode(block.file.read_bytes()).decode("ascii")
        caption = html.escape(block.caption)
        picture = f'<img alt="{caption}" src="data:image/png;base64,{data}">'
        return f"<figure>{picture}<figcaption>{caption}</figcaption></figure>"
    head = "".join(f"<th>{html.escape(name)}</th>" for name in block.columns)
    rows = "".join("<tr>" + "".join(_html_cell(cell) for cell in cells) + "</tr>\n" for cells in block.cells())
    caption = f"<p>{html.escape(block.caption)}</p>\n" if block.caption else ""
    return f'{caption}<div class="wide"><table><tr>{head}</tr>\n{rows}</table></div>'


def _html_cell(cell: str) -> str:
    kinds = {HOLDS: "holds", IN_PART: "part", NOT: "not", UNKNOWN: "unknown"}
    mark = f' class="{kinds[cell]}"' if cell in kinds else ""
    return f"<td{mark}>{html.escape(cell)}</td>"


def _markdown(block: Block) -> str:
    if isinstance(block, Heading):
        return f"## {block.text}"
    if isinstance(block, Text):
        return block.text
    if isinstance(block, Picture):
        return f"![{block.caption}]({block.file.name})"
    lines = [block.columns, ["---"] * len(block.columns), *block.cells()]
    rows = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"{block.caption}\n\n{rows}" if block.caption else rows
