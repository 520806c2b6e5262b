"""From the records of the races to tables, pictures and docs/benchmarks.md.

    python -m benchmarks.races.report FOLDER [--docs docs]

Without --docs everything is written to FOLDER itself.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.races import tables
from benchmarks.races.data import SOURCES
from benchmarks.races.figures import Figure, all_figures
from benchmarks.races.results import Record, load, races

INTRODUCTION = """\
# Races

Made by `benchmarks/races/report.py` from the records of `make bench`, losses included; nothing here is written by hand.
{machine} {record}

Every contestant gets the same samples in the same batches (of max(5 K, 200), fewer where a pass would have less than
twenty), and runs in a process of its own that has compiled and warmed up before the clock starts. *uniform* and
*nndsvda* are common initial dictionaries, *own* is each contestant's own default. MiniBatchNMF is run with forget
factors of 0.7, 0.9, 0.95 and 0.99 and shown with the best; its Itakura–Saito on data of mean 10⁶. `batch` is
scikit-learn's NMF with 200 iterations (Itakura–Saito: 300), its loss shown in the column of one pass, and
`onmf-batch` is `BatchNMF` with as many. The loss is the mean over held-out samples, with the coefficients of every
dictionary solved by one precise scorer (`src/onmf/experiments/judge.py`) and the floor that suits the dictionary best.
`yaleb_salt` alone is judged on the 64 noisy images that it learns from; `yaleb_salt_stream` learns from 32 copies of
them with fresh noise and is judged on one more. Losses, seconds and memory are medians over {seeds} seed(s); seconds
are processor time at one thread, wall time on all cores. *Passing* is our time until we are at or below the peer's
one-pass loss, divided by the peer's time: min / median / max over the seeds. Memory is the growth of the peak during
the run, beyond the data and the libraries. Runs of less than a second are repeated up to seven times, for every
contestant, and the quickest counts. The library's defaults were chosen while looking at seeds 0 to 2 and frozen before
the races on seeds 3 to 5.
"""


def memory_figures(folder: Path) -> list[Figure]:
    """From benchmarks/races/memory.py, if it ran."""
    file = folder / "memory.json"
    if not file.exists():
        return []
    memory = json.loads(file.read_text())
    (first, last), where = memory["peak_mib"], f"stream of {memory['samples'][1]:,} samples"
    slope, error = memory["bytes_per_sample"], memory["standard_error"]
    growth, steady = last / first, slope <= max(3 * error, 1.0)
    return [
        Figure("memory: peak after ten times the samples / before < 1.05", where, f"{growth:.4f}", growth < 1.05),
        Figure("memory: bytes a sample, zero within noise", where, f"{slope:.2g} ± {error:.1g}", steady),
    ]


def machine(records: list[Record]) -> str:
    """Cores and versions: enough to compare, and nothing else."""
    told = [record for record in records if "versions" in record]
    newest = max(told, key=lambda record: len(record["versions"]))
    versions = ", ".join(f"{name} {version}" for name, version in newest["versions"].items())
    return f"Machine: {newest['machine_cores']} cores; {versions}."


def on_record(records: list[Record]) -> str:
    """What has been run: a race may have been cut short, or resumed with fewer options."""
    starts, seeds, threads = (sorted({str(record[key]) for record in records}) for key in ("start", "seed", "threads"))
    parts = f"starts {', '.join(starts)}; seeds {', '.join(seeds)}; threads {', '.join(threads)}"
    states = len({record["source"] for record in records if record.get("source")})
    mixed = f" Our own runs come from {states} states of the source, the peers' from other hours." if states > 1 else ""
    return f"On record: {len(records)} runs; {parts}. Not every combination need be among them.{mixed}"


def remarks(folder: Path) -> str:
    """What whoever ran the races has to say of the circumstances, from remarks.txt beside the records."""
    file = folder / "remarks.txt"
    return f" {file.read_text().strip()}" if file.exists() else ""


def page(records: list[Record], folder: Path, pictures: list[str]) -> str:
    """The whole of docs/benchmarks.md."""
    found = races(records)
    figures = [*all_figures(found), *memory_figures(folder)]
    marks = [[figure.what, figure.where, figure.measured, "yes" if figure.reached else "**no**"] for figure in figures]
    file = folder / "skipped.json"
    raced = {record[key] for record in records for key in ("data", "contestant")}
    skipped = json.loads(file.read_text()) if file.exists() else {}
    parts = [
        INTRODUCTION.format(
            machine=machine(records),
            record=on_record(records) + remarks(folder),
            seeds=len({record["seed"] for record in records}),
        ),
        *(f"{name}: {reason}\n" for name, reason in skipped.items() if name not in raced),
        *(f"![Held-out loss against seconds]({picture})\n" for picture in pictures),
        "## Figures to reach\n\nThe worst seed of every start counts.\n",
        tables.table(["figure", "where", "measured", "reached"], marks) + "\n",
        "## Where we lose\n\n" + tables.lost(found) + "\n",
        "## All cores\n\n" + tables.cores(found) + "\n",
        "## All results at one thread\n",
    ]
    for name, source in SOURCES.items():
        for divergence in source.divergences:
            group = [race for race in found if (race.data, race.divergence, race.threads) == (name, divergence, "1")]
            shapes = [r for race in group for each in race.records.values() for r in each.values() if "n" in r]
            if shapes:
                n, F, K = (shapes[0][letter] for letter in "nFK")
                parts.append(f"### {name}, {divergence}\n\nn = {n:,}, F = {F:,}, K = {K}\n")
                parts.append(tables.results(group) + "\n")
    return "\n".join(parts)


def main() -> None:
    """Write the page and the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--docs", type=Path, help="the folder of the docs; default: the folder of the records")
    arguments = parser.parse_args()
    records = load(arguments.folder)
    if not records:
        parser.error(f"no records in {arguments.folder / 'runs'}; run the races first")
    from benchmarks.races.curves import draw  # Matplotlib is slow to import, and the tables do without it

    docs = arguments.docs or arguments.folder
    (docs / "images").mkdir(parents=True, exist_ok=True)
    pictures = [f"images/{file.name}" for file in draw(races(records), docs / "images")]
    (docs / "benchmarks.md").write_text(page(records, arguments.folder, pictures))
    print(f"wrote {docs / 'benchmarks.md'}")


if __name__ == "__main__":
    main()
