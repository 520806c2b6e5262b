"""The figures of a run on a GPU as a section of docs/evidence/benchmarks.md.

python -m benchmarks.gpu.report FOLDER [--docs docs]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.gpu.reference import HERE

HEADING = "## On a GPU"


def section(figures: dict[str, Any], reference: dict[str, Any]) -> str:
    """Its tables, as Markdown."""
    lines = [
        HEADING,
        "",
        f"{figures['device']}, PyTorch {figures['torch']}, Python {figures['python']}; the processor: one thread of "
        f"{reference['processor']}. Losses are of held-out samples at their precise coefficients; times include the "
        "start of `fit` (after an earlier one, which has compiled the kernels), and copying the dictionary after every "
        "batch. Times to the processor's loss are the median of three seeds. Made by `python -m benchmarks.gpu`.",
        "",
        "The paper's synthetic data with F = 1,000, K = 40, in single precision; the truth is the planted dictionary:",
        "",
        "| | samples/s | later on | from host memory | 1.07 of the truth after | the end, of the truth | "
        "the processor's loss after 10⁵ samples, of the truth | its s | ours | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in ("kl", "is", "squared_l2", "huber"):
        each = figures[f"synthetic.{name}"]
        last, before = each["course"][-1], each["course"][-11]
        later = (last[0] - before[0]) / (last[1] - before[1])
        cells = [
            name,
            *(f"{rate / 1e6:.2f} M" for rate in (each["samples_per_second"], later, each["from_host"])),
            f"{each['seconds_to_near']:.2f} s",
            f"{each['end']:.4f}",
            f"{each['cpu_end']:.4f}",
            f"{each['cpu_seconds']:.1f}",
            _seconds(each["seconds_to_cpu_loss"]),
            _ratio(each["cpu_seconds"], each["seconds_to_cpu_loss"]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "`transform` of a tensor on the device to `transform_tol=1e-4`, beside learning from it (4 · 10⁵ samples):",
        "",
        "| | F | K | learnt, samples/s | transformed | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for name in ("kl", "is", "squared_l2", "huber"):
        for row in figures[f"transform.{name}"]:
            rates = " | ".join(f"{row[rate] / 1e6:.2f} M" for rate in ("learnt", "transformed"))
            lines.append(f"| {name} | {row['F']:,} | {row['K']} | {rates} | {row['ratio']:.1f} |")
    lines += [
        "",
        "Real sets, repeated to 10⁵ samples, one pass of the processor against up to 15 of the GPU:",
        "",
        "| | the processor's loss | its s | the GPU's best | at | reached the processor's | ratio | seeds that did |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in ("Yale B", "Samson"):
        each = figures[f"real.{name}"]
        best = min(each["course"], key=lambda entry: entry[2])
        theirs = f"{each['cpu_loss']:.5g} | {each['cpu_seconds']:.2f}"
        reached = each["seconds_to_cpu_loss"]
        ours = f"{best[2]:.5g} | {best[1]:.2f} s | {_seconds(reached)} | {_ratio(each['cpu_seconds'], reached)}"
        times = each["of_all_seeds"]
        lines.append(f"| {name} | {theirs} | {ours} | {sum(t is not None for t in times)} of {len(times)} |")
    cells_found = figures["cells"]
    lines += [
        "",
        f"Counts of 20,000 genes, {100 * cells_found['density']:.1f} % of them above zero, K = 30, kl, from a sparse "
        f"matrix in host memory: {cells_found['cells_per_second']:,.0f} cells per second.",
        "",
        "At other densities, one pass of em on compressed rows, which is what `auto` takes below 8 %, and of the "
        "surrogate on chunks made dense:",
        "",
        "| entries above zero | cells | em, s | its loss | surrogate, s | its loss | had em's loss after |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in figures["densities"]:
        runs = [f"{row[method]['seconds']:.2f} | {row[method]['loss']:.1f}" for method in ("em", "surrogate")]
        there = row["surrogate_there"]
        last = "never" if there is None else f"{there:.2f} s"
        lines.append(f"| {100 * row['density']:.1f} % | {row['cells']:,} | {' | '.join(runs)} | {last} |")
    lines += [
        "",
        "Other libraries on the same GPU, 10⁵ samples of the synthetic data: when they have their best loss of up to "
        "400 iterations (online: ten passes), and when we have the same.",
        "",
        "| | library | their best loss | their s | ours | ratio | our best loss |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in ("kl", "squared_l2", "is"):
        for row in figures[f"peers.{name}"]:
            ratio = _ratio(row["their_seconds"], row["our_seconds"])
            times = f"{row['their_seconds']:.2f} | {_seconds(row['our_seconds'])} | {ratio}"
            lines.append(f"| {name} | {row['peer']} | {row['their_best']:.5g} | {times} | {row['our_best']:.5g} |")
    return "\n".join(lines) + "\n"


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.2f}"


def _ratio(theirs: float, ours: float | None) -> str:
    return "–" if ours is None else f"1/{theirs / ours:.0f}"


def main() -> None:
    """Print the section, or put it into the docs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--docs", type=Path, default=None)
    arguments = parser.parse_args()
    found = section(json.loads((arguments.folder / "figures.json").read_text()), json.loads(HERE.read_text()))
    if arguments.docs is None:
        print(found)
        return
    page = arguments.docs / "evidence" / "benchmarks.md"
    page.write_text(page.read_text().partition(HEADING)[0].rstrip() + "\n\n" + found)


if __name__ == "__main__":
    main()
