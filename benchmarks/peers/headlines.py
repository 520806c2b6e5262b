"""The figures that README and the site begin with, from the stored runs: the tables of docs/evidence/benchmarks.md.

    python -m benchmarks.peers.headlines    # into README.md and the pages of the site that show them

Each library starts as it does by itself. ``MiniBatchNMF`` has the best of three forget factors.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "evidence" / "benchmarks.md"
BEGIN, END = "<!-- benchmarks/peers/headlines.py writes this -->", "<!-- and no more -->"
PEERS = ("sklearn-partial_fit", "sklearn-fit")  # MiniBatchNMF, batch by batch or at once
SPARSE = ("cells", "bbc", "news_counts", "news_tfidf", "text_like", "news_tfidf_10k")
TITLES = {
    "synthetic": "the paper's synthetic set",
    "synthetic_wide": "the same, 2,000 features",
    "spectrogram_like": "spectrogram-like",
    "yaleb": "Yale B faces",
    "samson": "Samson, hyperspectral",
    "piano": "piano",
    "cells": "simulated cells, 15,000 genes",
    "bbc": "BBC News, TF-IDF of 1,000 words",
    "news_counts": "20 Newsgroups, counts of 10,000 words",
    "news_tfidf": "20 Newsgroups, TF-IDF of 1,000 words",
    "text_like": "simulated texts",
}


@dataclass(frozen=True)
class Result:
    """One pass of ours against MiniBatchNMF's: our loss / the lower of its two, and the worse of our times to them."""

    data: str
    divergence: str
    start: str
    loss: float
    time: float


def results(text: str) -> Iterator[Result]:
    """Read the tables of the page: medians of losses, and of times the slowest seed."""
    for name, divergence, table in re.findall(r"^### (\w+), (\w+)\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL):
        rows = [
            [cell.strip(" *") for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")
        ]
        ours = {row[0]: _number(row[2]) for row in rows if row[1] == "onmf"}
        for start, loss in ours.items():
            if peers := [row for row in rows if row[0] == start and row[1] in PEERS and row[6] != "–"]:
                lowest = min(_number(row[2]) for row in peers)
                slowest = max(_number(row[6].rpartition("/")[2].strip()) for row in peers)
                yield Result(name, divergence, start, loss / lowest, slowest)


def _number(cell: str) -> float:
    return math.inf if cell == "never" else float(cell.partition(" ")[0].replace(",", ""))


def span(values: list[float]) -> str:
    """Return the least and the largest, as "0.2 to 0.6"."""
    return f"{min(values):.2f} to {max(values):.2f}"


def sentence(found: list[Result]) -> str:
    """Say what a default fit reaches."""
    own = [each for each in found if each.start == "own"]
    dense, sparse = ([each for each in own if (each.data in SPARSE) is kind] for kind in (False, True))
    if not (dense and sparse):
        return "There is no run in which each library has its own start."
    return (
        f"One pass on one thread, each library with its own start: on {len(dense)} dense benchmarks, onmf ends at "
        f"{span([each.loss for each in dense])} of the held-out loss of scikit-learn's `MiniBatchNMF`, and reaches "
        f"that library's loss in {span([each.time for each in dense])} of its time. On {len(sparse)} sparse ones, it "
        f"ends at {span([each.loss for each in sparse])} of the loss and needs {span([each.time for each in sparse])} "
        "of the time."
    )


def table(found: list[Result]) -> str:
    """Set both starts side by side."""
    cases: dict[tuple[str, str], dict[str, Result]] = {}
    for each in found:
        if each.data in TITLES:
            cases.setdefault((each.data, each.divergence), {})[each.start] = each
    lines = [
        "| data | divergence | loss: own starts | loss: uniform start | time: own starts | time: uniform start |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for (data, divergence), starts in cases.items():
        cells = [
            f"{getattr(starts[start], what):.2f}" if start in starts else "–"
            for what in ("loss", "time")
            for start in ("own", "uniform")
        ]
        lines.append(f"| {TITLES[data]} | {divergence} | {' | '.join(cells)} |")
    return "\n".join(lines)


def written(text: str, new: str) -> str:
    """Return a page with the text between the marks replaced."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{new}\n\n{END}{after}"


def short(page: str) -> str:
    """Return the page of benchmarks with its first section renewed."""
    before, heading, rest = page.partition("## In short\n")
    return f"{before}{heading}\n{sentence(list(results(page)))}\n\n## How{rest.partition('## How')[2]}"


def pages() -> dict[Path, str]:
    """Return the pages as they should be."""
    page = PAGE.read_text()
    found = list(results(page))
    texts = {"README.md": sentence, "docs/index.md": sentence, "docs/explanation/performance.md": table}
    return {PAGE: short(page)} | {
        ROOT / name: written((ROOT / name).read_text(), make(found)) for name, make in texts.items()
    }


def write() -> None:
    """Write the pages."""
    for path, text in pages().items():
        path.write_text(text)


def main() -> None:
    """Write them from a shell."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    write()


if __name__ == "__main__":
    main()
