"""The report of a run: a list of blocks, written as one self-contained HTML page and as Markdown."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Protocol

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


class Block(Protocol):
    """A piece of a report."""

    def html(self) -> str: ...

    def markdown(self) -> str: ...


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    TAG: ClassVar[str] = "p"
    MARK: ClassVar[str] = ""
    text: str

    def html(self) -> str:
        return f"<{self.TAG}>{escape(self.text)}</{self.TAG}>"

    def markdown(self) -> str:
        return self.MARK + self.text


class Heading(Text):
    """The title of a section."""

    TAG, MARK = "h2", "## "


@dataclass(frozen=True)
class Table:
    """Rows of cells by column name; missing cells are left empty."""

    caption: str
    rows: Sequence[Mapping[str, Any]]

    def html(self) -> str:
        head, *lines = self._lines()
        rows = [
            "".join(f"<th>{escape(cell)}</th>" for cell in head),
            *("".join(f"<td{_mark(cell)}>{escape(cell)}</td>" for cell in line) for line in lines),
        ]
        caption = f"<p>{escape(self.caption)}</p>\n" if self.caption else ""
        body = "".join(f"<tr>{row}</tr>\n" for row in rows)
        return f'{caption}<div class="wide"><table>{body}</table></div>'

    def markdown(self) -> str:
        head, *lines = self._lines()
        lines = [head, ["---"] * len(head), *lines]
        rows = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return f"{self.caption}\n\n{rows}" if self.caption else rows

    def _lines(self) -> list[list[str]]:
        """The names of the columns, then the cells of each row."""
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        return [columns, *([shown(row.get(name, "")) for name in columns] for row in self.rows)]


@dataclass(frozen=True)
class Picture:
    """A PNG file and what it shows."""

    file: Path
    caption: str

    def html(self) -> str:
        data, caption = base64.b64encode(self.file.read_bytes()).decode("ascii"), escape(self.caption)
        picture = f'<img alt="{caption}" src="data:image/png;base64,{data}">'
        return f"<figure>{picture}<figcaption>{caption}</figcaption></figure>"

    def markdown(self) -> str:
        return f"![{self.caption}]({self.file.name})"


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, what was measured here, and whether that bears it out, case by case."""

    claim: str
    measured: str
    successes: Sequence[bool]

    @property
    def verdict(self) -> str:
        """Holds if it does in every case, in part if in some."""
        if not self.successes:
            return UNKNOWN
        return HOLDS if all(self.successes) else IN_PART if any(self.successes) else NOT

    def row(self) -> dict[str, str]:
        return {"the paper's claim": self.claim, "measured here": self.measured, "verdict": self.verdict}


@dataclass(frozen=True)
class Report:
    """A title, blocks, and the claims, which make up the last table."""

    title: str
    blocks: Sequence[Block]
    claims: Sequence[Claim] = ()

    def write(self, folder: Path) -> Path:
        """Write report.html, whose path is returned, and report.md."""
        page, title = folder / "report.html", escape(self.title)
        blocks = list(self.blocks)
        if self.claims:
            blocks += [Heading("Claims of the paper"), Table("", [claim.row() for claim in self.claims])]
        body = "\n".join(block.html() for block in blocks)
        text = "\n\n".join([f"# {self.title}", *(block.markdown() for block in blocks)])
        for path, content in ((page, PAGE.format(title=title, style=STYLE, body=body)), (folder / "report.md", text)):
            with replacing(path) as temporary:
                temporary.write_text(f"{content}\n", encoding="utf-8")
        return page


def shown(value: Any) -> str:
    """A cell: numbers to four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _mark(cell: str) -> str:
    """Verdicts have colours."""
    kinds = {HOLDS: "holds", IN_PART: "part", NOT: "not", UNKNOWN: "unknown"}
    return f' class="{kinds[cell]}"' if cell in kinds else ""
