"""``python -m reproduction synthetic | sensitivity | topics | faces``: the paper's experiments."""

from __future__ import annotations

import importlib
import json
import warnings
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    help="Run the paper's experiments: figures, tables, and which of its claims hold.",
)
# No markup and no emoji: file names and messages are printed as they are.
console = Console(markup=False, emoji=False, highlight=False)
errors = Console(stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False)


class Size(StrEnum):
    """The size of an experiment."""

    small = "small"
    paper = "paper"


Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for the results; an interrupted run resumes there.")]
SizeOption = Annotated[Size, typer.Option(help="small: about a minute; paper: the paper's own sizes, hours.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the data and the initial dictionaries.")]
Methods = Annotated[
    str | None,
    typer.Option(
        help="Contestants, separated by commas: ol (the paper's method), ol-exact (with exact coefficients), ol-mean "
        "(and the mean gradient), ol-adaptive (with a step that needs no tuning), ours (onmf's default), batch; some "
        "experiments have ol-lef, ol-guan or ol-wang, too.",
        show_default="all",
    ),
]
Samples = Annotated[
    int | None,
    typer.Option(min=400, help="N, the number of samples; ol's a and b scale with it.", show_default="by size"),
]
Features = Annotated[int | None, typer.Option(min=2, help="F, the number of features.", show_default="by size")]
Starts = Annotated[int | None, typer.Option(min=1, help="Number of initial dictionaries.", show_default="by size")]
Data = Annotated[Path | None, typer.Option(help="Folder of the data sets.", show_default="$ONMF_DATA")]
StandIn = Annotated[bool, typer.Option("--stand-in", help="Try it on data that come with Python and scikit-learn.")]
Only = Annotated[str | None, typer.Option(help="Data sets to run, by title, separated by commas.", show_default="all")]
FreshNoise = Annotated[bool, typer.Option("--fresh-noise", help="Draw new noise for every copy of the data.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, for programs.")]
Subjects = Annotated[int | None, typer.Option(min=1, help="Number of subjects.", show_default="by size")]


@app.command(epilog="Example:\n\n`python -m reproduction synthetic --out synthetic`")
def synthetic(
    out: Out = Path("synthetic"),
    size: SizeOption = Size.small,
    seed: Seed = 0,
    methods: Methods = None,
    only: Only = None,
    samples: Samples = None,
    features: Features = None,
    initialisations: Starts = None,
    as_json: AsJson = False,
) -> None:
    """Six divergences on planted dictionaries: the objective against time (Figure 2)."""
    _run("synthetic", **locals())


@app.command(epilog="Example:\n\n`python -m reproduction sensitivity --methods ol,ol-adaptive --out sensitivity`")
def sensitivity(
    out: Out = Path("sensitivity"),
    size: SizeOption = Size.small,
    seed: Seed = 0,
    methods: Methods = None,
    only: Only = None,
    samples: Samples = None,
    features: Features = None,
    as_json: AsJson = False,
) -> None:
    """Vary tau, K and the step's constants, one at a time (Figures S-1 to S-3)."""
    _run("sensitivity", **locals())


@app.command(
    epilog="Examples:\n\n`python -m reproduction topics --data DATA --out topics`\n\n"
    "`python -m reproduction topics --stand-in`"
)
def topics(
    out: Out = Path("topics"),
    size: SizeOption = Size.small,
    seed: Seed = 0,
    methods: Methods = None,
    only: Only = None,
    data: Data = None,
    stand_in: StandIn = False,
    initialisations: Starts = None,
    as_json: AsJson = False,
) -> None:
    """News topics: keywords, clusterings, running times (Tables 5 to 7)."""
    _run("topics", **locals())


@app.command(
    epilog="Examples:\n\n`python -m reproduction faces --data DATA --out faces`\n\n"
    "`python -m reproduction faces --stand-in`"
)
def faces(
    out: Out = Path("faces"),
    size: SizeOption = Size.small,
    seed: Seed = 0,
    methods: Methods = None,
    only: Only = None,
    data: Data = None,
    stand_in: StandIn = False,
    fresh_noise: FreshNoise = False,
    subjects: Subjects = None,
    initialisations: Starts = None,
    as_json: AsJson = False,
) -> None:
    """Remove noise and shadows from faces: pictures, PSNR, running times (Figure 3, Table 8)."""
    _run("faces", **locals())


def _run(name: str, out: Path, as_json: bool, **settings: Any) -> None:
    """Run an experiment into the folder ``out``, and print its verdicts."""
    from reproduction.datasets.files import DataFolderError

    experiment = getattr(importlib.import_module(f"reproduction.{name}"), name.capitalize())
    settings["methods"] = _chosen(settings["methods"], experiment.methods)
    settings["only"] = tuple(settings["only"].split(",")) if settings["only"] else ()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, TimeRemainingColumn(), console=errors, transient=True) as progress:
            bar = progress.add_task("experiment", total=None)
            report = experiment(**settings).run(
                out, lambda part, done, total: progress.update(bar, description=part, completed=done, total=total)
            )
    except DataFolderError as error:
        fail(f"{error} To try it without the data, add --stand-in.")
    except (ValueError, OSError, ImportError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        errors.print(f"Interrupted; run the same command again to continue from what is finished in {out}.")
        raise typer.Exit(130) from None
    if as_json:
        claims = [{"claim": each.claim, "measured": each.measured, "verdict": each.verdict} for each in report.claims]
        console.print(json.dumps({"folder": str(out), "claims": claims}), soft_wrap=True)
        return
    rows = [claim.row() for claim in report.claims]
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*row.values())
    console.print(table)
    console.print(f"Wrote {out / 'report.html'}; tables and pictures are beside it.", soft_wrap=True)


def _chosen(text: str | None, choices: tuple[str, ...]) -> tuple[str, ...]:
    """Return the methods in a text, which commas separate; all without a text."""
    names = choices if text is None else [name.strip() for name in text.split(",")]
    if wrong := [name for name in names if name not in choices]:
        fail(f"--methods does not know {wrong[0]!r}; choose from {', '.join(choices)}.")
    return tuple(name for name in choices if name in names)


def fail(message: str) -> NoReturn:
    """Print one sentence and exit with status 2."""
    errors.print(f"reproduction: {message}")
    raise typer.Exit(2)


def main() -> None:
    """Run the command line; a warning is one line."""
    warnings.showwarning = lambda message, *_, **__: errors.print(f"reproduction: {message}")
    app(prog_name="python -m reproduction")


if __name__ == "__main__":
    main()
