"""docs/evidence/reproduction.md, whole, from the stored records of the paper's experiments.

    python -m benchmarks.reproduction_page                      # the page from reproduction/records
    python -m benchmarks.reproduction_page FOLDER [FOLDER ...]  # finished parts of these runs join the records first
    python -m benchmarks.reproduction_page --resume FOLDER      # put a record's parts into a folder, to run the others

A run is a folder that ``python -m reproduction`` has written; its name is that of the record. A record holds the facts
of every finished part, and all that the page shows is made from them.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from reproduction.claims import IN_WORDS, PAPERS, Claim
from reproduction.contest import TITLES
from reproduction.experiment import AGAIN, Experiment, file_name, to_be_made_again

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "reproduction" / "records"
NAMES = ("synthetic", "sensitivity", "topics", "faces", "faces-fresh")  # in the order of the page
DIGITS = 6
READING = {"ol": "as recorded", "ol-exact": "exact coefficients", "ol-mean": "mean gradient"}
STARTS = {  # that a record is to have; 1 where nothing is said
    "synthetic": {"ol": 5, "ol-exact": 5, "ol-mean": 5},
    "topics": dict.fromkeys(("ol", "ol-exact", "ol-mean", "batch", "ours"), 10),
    "faces": dict.fromkeys(("ol", "ol-exact", "ol-wang", "batch", "ours"), 10),
}

INTRODUCTION = """---
hide: [toc]
---

# The paper's experiments

Made whole by `python -m benchmarks.reproduction_page` from the records in `reproduction/records`, which hold what runs
of `python -m reproduction` found.

The paper's method appears in three readings, each of which differs from the next in one thing:

- **OL**, as recorded: the paper's step `Canonical(a=0.2 * N, b=0.2 * N)`, the gradient *summed* over a mini-batch, and
  the paper's coefficient solvers, which stop after 100 or 300 iterations, and from 60,000 samples on after twice as
  many.
- **OL, exact coefficients**: the same with a solver that reaches its tolerance (`solver="auto"`).
- **OL, mean gradient**: the same again with the *mean* gradient over a mini-batch, which the paper's text allows as
  well ([0002](../decisions/0002-reading-of-the-paper.md)).

"OL, adaptive step" is the library's `method="paper"`, with exact coefficients, too. "Batch" is `BatchNMF` with
multiplicative updates, and "onmf" the library's default (`method="auto"`). OL-Lef, OL-Guan and OL-Wang are
*reconstructions* ([0006](../decisions/0006-earlier-methods.md)): the paper gives none of their constants, and where one
wins or loses it is the reconstruction that does. All start from the same dictionaries. Seconds are processor time spent
learning, on one thread; compare them within a table.

Verdicts follow rules written in `reproduction/claims.py` and the experiments. "Faster" means reaching Batch's final
training loss in two thirds of its time. Training losses are those of the best coefficients, the same judge for all.
"""

OBJECTIVE = """By the paper's own objective, which keeps the coefficients that were found when each sample was seen, OL
as recorded ends above Batch under every divergence ({}, from the starts of Batch), whatever its training loss. The
other verdicts judge the dictionaries, at their best coefficients.

Whether noise is removed from faces depends on how the paper is read. Noise that is the same in all copies of an image
is part of what is to be learnt, and a dictionary that fits better keeps more of it; noise that is drawn anew for every
copy is removed, in what was run. Shadows are in the images themselves, and no method that was run removes them.
"""

SILENT = """## Where the paper is silent

What we chose, and what a verdict may depend on ([0007](../decisions/0007-experiments.md) has the details):

- F, the number of features of the synthetic data: 200.
- Whether the gradient is summed or averaged over a mini-batch: both are run. In which units the data are: divided by
  their mean.
- How exactly coefficients are found: both as its algorithms suggest, with a limit on iterations, and to a tolerance.
- Noise on faces: the paper says "replicate, then add noise" in one section and the reverse in another. Both are run.
- "Uniform distribution U(0, 255)" on faces: symmetric around the pixel, as in its Table 4.
- Over which ranges tau, K and a vary: by the factors in the tables. Its rule of thumb allows tau up to four times ours.
- Huber's delta: a tenth of the mean. When Batch stops: when its loss falls by less than 1e-5 over ten iterations.
- All constants of OL-Lef, OL-Guan and OL-Wang.
- Which of the 20 newsgroups a "general" category has: Space is sci.space, Sports rec.sport.*, Religion alt.atheism,
  soc.religion.christian and talk.religion.misc, Hardware comp.sys.*, Sale misc.forsale.
"""

RUNNING = """## Running them

The experiments are a program beside the library, in the folder `reproduction` of a checkout or of the source
distribution. It uses the library as any user would, through its public interface, and needs `onmf[plots]`.

```
python -m reproduction synthetic               # six divergences (Figure 2)
python -m reproduction sensitivity             # tau, K, step (S-1 to S-3)
python -m reproduction topics --data FOLDER    # texts (Tables 5 to 7)
python -m reproduction faces --data FOLDER     # Yale B (Figure 3, Table 8)
```

Each writes tables, pictures and a `report.html` that sets every claim of the paper beside what was measured, with a
verdict; `--json` prints the verdicts as one object, with `folder` and `claims`. Each takes about a minute; `--size
paper` runs the paper's own sizes, for hours. A run that was interrupted resumes from its finished parts when the same
command is given again, and `--methods`, `--only` and `--initialisations` add parts to it. `--help` shows all options.

The data sets are not part of the library. Without `--data`, their folder is the one that the environment variable
`ONMF_DATA` names; if files are missing, the message says which, and where to get them. Without any data, `--stand-in`
runs on texts and pictures that come with Python and scikit-learn. The loaders are Python functions, too:
`reproduction.datasets.texts.load_bbc(folder)` and `load_newsgroups`, `reproduction.datasets.matlab.load_yaleb`.
"""

SHORT = """## In short

Each claim of the paper, with its verdict. Where the readings of OL differ, or not all of them were run, a verdict names
those it is about. It is about the data sets that were run: where those are not all, the figure names them.
"""

NOT_RUN_YET = f"""## Not run yet

Rows marked {AGAIN} are to be made again: they come from the page of 16 November 2026, which kept of a run only its end
and where it reached Batch's loss. Runs share the two cores of a machine with other work, and were made in several
sittings: the same work took up to 2.2 times as long in one as in another, so a smaller ratio of times says little.

To make the record whole, let `python -m benchmarks.reproduction_page --resume RUNS/NAME` write the finished parts of a
record into a folder `NAME`. Give that folder to the command of its section as `--out`, with `--initialisations 10` for
ten starts, and then to `python -m benchmarks.reproduction_page`. Missing, or to be made again:
"""

FINAL_LOSS = "it was judged by final losses at N = 5,000; as the paper words it, it is about convergence at N = 100,000"
STARTS_NOW = "it was run from one start, and is from ten now"
TEXT = "it was judged by the summed gradient and inexact coefficients alone; both readings are judged now"
BEFORE = {  # verdicts of the page of 16 November 2026 on OL as recorded, or another method, and why it may differ now
    "{} converges significantly faster than Batch for all the divergences": (
        "holds in part",
        "with exact coefficients OL ends below Batch under Huber, too, and only l2 is left; the mean gradient is new",
    ),
    "{} converges as fast as the reconstruction of OL-Wang (Huber)": (
        "does not hold",
        "exact coefficients and the mean gradient are new; all starts are compared, at half a percent above the higher "
        "final loss; OL-Wang's coefficients are compiled now, and take a quarter of the time",
    ),
    "{} converges significantly faster than the reconstruction of OL-Guan (squared l2)": (
        "holds",
        "one start was 1.55 times as fast as OL-Guan, where 1.5 is the limit; all starts are compared now, at half a "
        "percent above the higher final loss",
    ),
    "Different initialisations of {} lead to similar results": ("not examined", "run from several starts now"),
    **{
        f"{{}} is insensitive to {each}: its convergence speed varies little over wide ranges": (
            "holds in part",
            FINAL_LOSS,
        )
        for each in ("tau", "K", "a")
    },
    "BBC News: {} learns 5 distinct topics that coincide with the categories": (
        "does not hold",
        f"{TEXT}, from ten starts",
    ),
    "BBC News: the topics of {} are of comparable quality to Batch's": ("does not hold", TEXT),
    "BBC News: {} is significantly faster than Batch to its loss": ("does not hold", TEXT),
    "20 Newsgroups: the topics of {} correspond to the general categories": (
        "does not hold",
        "the categories are those that the paper names, not the first words of the groups' names; " + TEXT,
    ),
    "20 Newsgroups: the topics of {} are of comparable quality to Batch's": ("does not hold", TEXT),
    "20 Newsgroups: {} is significantly faster than Batch to its loss": ("does not hold", TEXT),
    "noise before copying: {} removes the salt-and-pepper noise": (
        "holds in part",
        "made again with today's code, whose coefficients are closer to exact",
    ),
    "fresh noise in every copy: {} removes the salt-and-pepper noise": (
        "not examined",
        "the other order of noise and copies, which the paper's text has as well",
    ),
    "noise before copying: {} removes shadows": (
        "does not hold",
        "made again with today's code, whose coefficients are closer to exact",
    ),
    "noise before copying: {} is significantly faster than Batch to its loss": (
        "does not hold",
        "made again with today's code, whose coefficients are closer to exact",
    ),
    ("BBC News: {} learns 5 distinct topics that coincide with the categories", "batch"): ("holds", STARTS_NOW),
    ("BBC News: {} learns 5 distinct topics that coincide with the categories", "ours"): ("holds", STARTS_NOW),
    ("20 Newsgroups: the topics of {} correspond to the general categories", "batch"): ("holds", STARTS_NOW),
    ("20 Newsgroups: the topics of {} correspond to the general categories", "ours"): (
        "holds",
        "the categories are those that the paper names, not the first words of the groups' names",
    ),
    ("20 Newsgroups: {} is significantly faster than Batch to its loss", "ours"): (
        "does not hold",
        "made again with today's code",
    ),
}


def take(folder: Path) -> None:
    """Add the finished parts of a run to its record."""
    file = RECORDS / f"{folder.name}.json"
    settings = json.loads((folder / "settings.json").read_text())
    record = json.loads(file.read_text()) if file.exists() else {"settings": settings, "parts": {}}
    if record["settings"] != settings:
        raise SystemExit(f"{folder} was run with other settings than {file.name}: {settings}.")
    for path in sorted((folder / "parts").glob("*.json")):
        record["parts"][path.stem] = packed(json.loads(path.read_text()), settings["seed"])
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(record['parts'][name])}" for name in sorted(record["parts"]))
    file.parent.mkdir(exist_ok=True)
    file.write_text(f'{{"settings": {json.dumps(settings)}, "parts": {{\n{lines}\n}}}}\n')


def put_back(record: Mapping[str, Any], folder: Path, again: bool) -> None:
    """Write a record's parts to a folder, as a run does; without those to be made again unless ``again``."""
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    (folder / "settings.json").write_text(json.dumps(record["settings"]))
    for part, facts in record["parts"].items():
        if again or not to_be_made_again(facts):
            (folder / "parts" / f"{part}.json").write_text(json.dumps(unpacked(facts)))


def packed(facts: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return facts with few digits, the points of a curve by column, and pictures of the first start only."""
    facts = {key: value for key, value in facts.items() if key != "places"}
    if facts.get("start", seed) != seed:
        facts.pop("pictures", None)
    if isinstance(points := facts.get("points"), list):
        columns = [name for name in points[-1] if points[-1][name] is not None]
        facts["points"] = {name: [point[name] for point in points] for name in columns}
    return json.loads(json.dumps(facts), parse_float=lambda text: float(f"{float(text):.{DIGITS}g}"))


def unpacked(facts: dict[str, Any]) -> dict[str, Any]:
    """Return facts as a run has them: the points of a curve one by one."""
    if isinstance(columns := facts.get("points"), dict):
        facts = facts | {
            "points": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        }
    return facts


def experiment(settings: Mapping[str, Any]) -> Experiment:
    """Return the experiment with these settings."""
    own = {key: value for key, value in settings.items() if key != "experiment"}
    name = settings["experiment"]
    return getattr(import_module(f"reproduction.{name}"), name.capitalize())(**own)


def section(name: str, record: Mapping[str, Any], images: Path) -> tuple[str, list[Claim]]:
    """Return the report of a record, its headings one level lower, and its claims; pictures are copied."""
    settings = record["settings"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / name
        put_back(record, folder, again=True)
        report = experiment(settings).report(folder)
        text = (folder / "report.md").read_text()
        for picture in re.findall(r"\]\(([\w.-]+\.png)\)", text):
            shutil.copy(folder / picture, images / f"reproduction-{name}-{picture}")
    text = re.sub(r"\]\(([\w.-]+\.png)\)", rf"](../images/reproduction-{name}-\1)", text)
    text = re.sub(r"^(#+) ", r"#\1 ", text, flags=re.MULTILINE)
    title, _, rest = text.partition("\n")
    options = [
        f"--{key.replace('_', '-')}" + ("" if value is True else f" {value}")
        for key, value in settings.items()
        if value and key != "experiment"
    ]
    fresh = ", fresh noise in every copy" if settings.get("fresh_noise") else ""
    return f"{title}{fresh}\n\n`python -m reproduction {settings['experiment']} {' '.join(options)}`\n{rest}", list(
        report.claims
    )


def in_one_line(claims: list[Claim]) -> dict[str, str]:
    """Return the verdict on one sentence and its figure, for all readings of the paper's method."""
    of = {claim.method: claim for claim in claims}
    named = claims[0].method in PAPERS
    verdicts: dict[str, list[str]] = {}
    for method, claim in of.items():
        verdicts.setdefault(claim.verdict, []).append(READING.get(method, ""))
    whole = not named or (len(verdicts) == 1 and len(of) == len(PAPERS))
    verdict = "; ".join(each if whole else f"{each}: {', '.join(who)}" for each, who in verdicts.items())
    figures = [f"{READING[m]}: {claim.figure}" if named else claim.figure for m, claim in of.items() if claim.figure]
    figure = "; ".join(figures)
    name = "OL" if claims[0].method in PAPERS else IN_WORDS[claims[0].method]
    return {"the paper's claim": claims[0].sentence.format(name), "verdict": verdict, "figure": figure}


def grouped(claims: list[Claim]) -> Iterator[list[Claim]]:
    """Yield the claims on one sentence: those of the readings of the paper's method together, other methods alone."""
    groups: dict[tuple[str, str], list[Claim]] = {}
    for claim in claims:
        if claim.successes:
            groups.setdefault((claim.sentence, "" if claim.method in PAPERS else claim.method), []).append(claim)
    yield from groups.values()


def of_the_paper(claims: list[Claim]) -> list[Claim]:
    """Return the claims that the paper makes, about its own method and about others."""
    return [claim for claim in claims if claim.method in (*PAPERS, "batch", "ol-wang")]


def table(rows: list[dict[str, str]]) -> str:
    """Return rows as a table."""
    if not rows:
        return "None."
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns), *([row[name].replace("|", "\\|") for name in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def changed(claims: list[Claim]) -> list[dict[str, str]]:
    """Return the verdicts that differ from those of before, and why."""
    rows = []
    for group in grouped(claims):
        sentence, method = group[0].sentence, group[0].method
        before, reason = BEFORE.get(sentence if method in PAPERS else (sentence, method), ("", ""))
        line = in_one_line(group)
        if before and {claim.verdict for claim in group} != {before}:
            rows.append({"claim": line["the paper's claim"], "before": before, "now": line["verdict"], "why": reason})
    return rows


def missing(name: str, record: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for every contestant that has not been run as often as planned."""
    parts, run = record["parts"], experiment(record["settings"])
    about = sorted((facts for part, facts in parts.items() if part.endswith("-data")), key=lambda facts: facts["place"])
    lines: dict[str, list[str]] = {}
    for facts in about:
        for who in run.entered(facts["divergence"]):
            method = getattr(who, "method", who)
            wanted = STARTS.get(name, {}).get(method, 1)
            found = [parts.get(file_name(facts["title"], who, start)) for start in range(wanted)]
            done = sum(part is not None and not to_be_made_again(part) for part in found)
            if done < wanted:
                what = f"{run.TITLE}{' (fresh noise)' if name == 'faces-fresh' else ''}, {TITLES[method]}"
                line = lines.setdefault(f"{what}{f', {who.parameter} varied' if method != who else ''}", [])
                text = facts["title"] + (f" ({done} of {wanted} starts)" if done else "")
                line += [] if text in line else [text]
    yield from (f"- {what}: {', '.join(titles)}" for what, titles in lines.items())


def write(docs: Path) -> None:
    """Put the page together, and its pictures."""
    images = docs / "images"
    images.mkdir(parents=True, exist_ok=True)
    (docs / "evidence").mkdir(exist_ok=True)
    for picture in images.glob("reproduction-*.png"):
        picture.unlink()
    files = [(name, RECORDS / f"{name}.json") for name in NAMES]
    records = {name: json.loads(file.read_text()) for name, file in files if file.exists()}
    made = {name: section(name, record, images) for name, record in records.items()}
    claims = [claim for _, found in made.values() for claim in found]
    own = next(claim.figure for claim in claims if "own objective" in claim.sentence and claim.method == "ol")
    text = [
        INTRODUCTION,
        SHORT,
        table([in_one_line(group) for group in grouped(of_the_paper(claims))]) + "\n",
        OBJECTIVE.format(own),
        f"## Verdicts that changed\n\n{table(changed(claims))}\n",
        NOT_RUN_YET,
        "\n".join(line for name, record in records.items() for line in missing(name, record)) + "\n",
        SILENT,
        RUNNING,
        *(found for found, _ in made.values()),
    ]
    (docs / "evidence" / "reproduction.md").write_text("\n".join(text))


def main() -> None:
    """Take runs into the records, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="*")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    parser.add_argument("--resume", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    if arguments.resume:
        put_back(json.loads((RECORDS / f"{arguments.resume.name}.json").read_text()), arguments.resume, again=False)
        return
    for folder in arguments.runs:
        take(folder)
    write(arguments.docs)


if __name__ == "__main__":
    main()
