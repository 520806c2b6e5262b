"""docs/reproduction.md from finished runs of the paper's experiments.

    python -m benchmarks.reproduction_page build/experiments/synthetic build/experiments/topics ... --docs docs

A run is a folder that ``python -m reproduction`` has written; its report.md becomes a section, its pictures lie in
docs/images.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path

INTRODUCTION = """# The paper's experiments, run here

Sections made by `python -m benchmarks.reproduction_page` from runs of `python -m reproduction`, each with the command
that repeats it. "OL" is the paper's method as the paper sets it (`Paper(step=Canonical(a=0.2 * N, b=0.2 * N),
solver="paper")`), "OL, adaptive step" the same method as the library sets it (`method="paper"`, whose step adapts to
the data), "Batch" multiplicative updates (`BatchNMF`), and "onmf" the library's default (`method="auto"`), all from
the same initial dictionaries. Seconds are processor time spent learning, on one thread; compare them within a table.
Verdicts follow rules written in `reproduction/claims.py`: "faster" means reaching Batch's final training loss in two
thirds of its time.

## Running them

The experiments are a program beside the library, in the folder `reproduction` of a checkout or of the source
distribution. It uses the library as any user would, through its public interface, and needs `onmf[plots]`.

```
python -m reproduction synthetic                 # six divergences, the objective against time (Figure 2)
python -m reproduction sensitivity               # tau, K and the step varied (Figures S-1 to S-3)
python -m reproduction topics --data FOLDER      # BBC and 20 Newsgroups: keywords, clusterings, times (Tables 5 to 7)
python -m reproduction faces --data FOLDER       # Yale B: pictures, PSNR, times (Figure 3, Table 8)
```

Each writes tables, pictures and a `report.html` that sets every claim of the paper beside what was measured, with a
verdict; `--json` prints the verdicts as one object, with `folder` and `claims`. Each takes about a minute; `--size
paper` runs the paper's own sizes, for hours. A run that was interrupted resumes from its finished parts when the same
command is given again. `--help` shows all options.

The data sets are not part of the library. Without `--data`, their folder is the one that the environment variable
`ONMF_DATA` names; if files are missing, the message says which, and where to get them. Without any data, `--stand-in`
runs on texts and pictures that come with Python and scikit-learn. The loaders are Python functions, too:
`reproduction.datasets.texts.load_bbc(folder)` and `load_newsgroups`, `reproduction.datasets.matlab.load_yaleb`.
"""


def command(folder: Path) -> str:
    """What was typed."""
    settings = json.loads((folder / "report.json").read_text())
    options = [f"--size {settings['size']}", f"--seed {settings['seed']}"]
    options += [
        f"--{name} {settings[name]}"
        for name in ("samples", "features", "subjects", "initialisations")
        if settings.get(name)
    ]
    options.append(f"--methods {','.join(settings['methods'])}")
    if settings.get("collections"):
        options.append(f"--collections {','.join(settings['collections'])}")
    options += [f"--{name.replace('_', '-')}" for name in ("fresh_noise", "stand_in") if settings.get(name)]
    return f"python -m reproduction {settings['experiment']} {' '.join(options)}"


def section(folder: Path, images: Path) -> str:
    """The report of a run, its headings one level lower, its pictures copied."""
    text = (folder / "report.md").read_text()
    for name in re.findall(r"\]\(([\w.-]+\.png)\)", text):
        shutil.copy(folder / name, images / f"reproduction-{folder.name}-{name}")
    text = re.sub(r"\]\(([\w.-]+\.png)\)", rf"](images/reproduction-{folder.name}-\1)", text)
    text = re.sub(r"^(#+) ", r"#\1 ", text, flags=re.MULTILINE)
    title, _, rest = text.partition("\n")
    return f"{title}\n\n`{command(folder)}`\n{rest}"


def main() -> None:
    """Put the sections together."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    arguments = parser.parse_args()
    images = arguments.docs / "images"
    images.mkdir(parents=True, exist_ok=True)
    sections = [section(folder, images) for folder in arguments.runs]
    run = {json.loads((folder / "settings.json").read_text())["experiment"] for folder in arguments.runs}
    missing = [name for name in ("synthetic", "sensitivity", "topics", "faces") if name not in run]
    if missing:
        sections.insert(0, f"Not on record yet: {', '.join(missing)}.\n")
    (arguments.docs / "reproduction.md").write_text("\n".join([INTRODUCTION, *sections]))


if __name__ == "__main__":
    main()
