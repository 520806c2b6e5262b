"""The figures that README and the site begin with, from the stored runs: the tables of docs/evidence/benchmarks.md.

    python -m benchmarks.peers.headlines    # into README.md, docs/index.md and docs/explanation/performance.md

They are those of default settings: each library starts as it does by itself.
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
PEERS = ("sklearn-partial_fit", "sklearn-fit")  # MiniBatchNMF, batch by batch or at once: the one of the lower loss
SPARSE = ("cells", "bbc", "news_counts", "news_tfidf", "text_like", "news_tfidf_10k")
SHORT = ("piano", "piano_ordered")  # seconds of sound: not a stream
TITLES = {
    "synthetic": "the paper's synthetic set",
    "synthetic_wide": "the same, 2,000 features",
    "spectrogram_like": "spectrogram-like",
    "yaleb": "Yale B faces",
    "samson": "Samson, hyperspectral",
    "piano": "piano",
}


@dataclass(frozen=True)
class Result:
    """One pass of ours against one of MiniBatchNMF's: of our loss, and of our time to its loss, the share of its."""

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
                best = min(peers, key=lambda row: _number(row[2]))
                slowest = best[6].rpartition("/")[2].strip()
                yield Result(name, divergence, start, loss / _number(best[2]), _number(slowest))


def _number(cell: str) -> float:
    return math.inf if cell == "never" else float(cell.partition(" ")[0].replace(",", ""))


def span(values: list[float]) -> str:
    """Return the least and the largest, as "0.2 to 0.6"."""
    return f"{min(values):.2f} to {max(values):.2f}"


def sentence(found: list[Result]) -> str:
    """Say what a default fit reaches."""
    own = [each for each in found if each.start == "own" and each.data not in SPARSE and each.data not in SHORT]
    counts = [each for each in found if each.start == "own" and each.data in SPARSE and each.divergence == "kl"]
    if not (own and counts):
        return "There is no run with default settings."
    return (
        f"With default settings, on {len(own)} dense benchmarks, one pass ends at "
        f"{span([each.loss for each in own])} of the held-out loss of scikit-learn's `MiniBatchNMF`. It "
        f"reaches `MiniBatchNMF`'s loss in {span([each.time for each in own])} of the time. On {len(counts)} sets of "
        f"sparse counts the losses are about equal, and onmf takes {span([each.time for each in counts])} of the time."
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


def pages() -> dict[Path, str]:
    """Return the pages as they should be."""
    found = list(results(PAGE.read_text()))
    texts = {"README.md": sentence, "docs/index.md": sentence, "docs/explanation/performance.md": table}
    return {ROOT / name: written((ROOT / name).read_text(), make(found)) for name, make in texts.items()}


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
