"""``onmf experiments synthetic | sensitivity | topics | faces``: the paper's experiments from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from onmf.cli.app import app
from onmf.cli.terminal import console, errors, fail
from onmf.experiments.watch import Watch

experiments = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Run the paper's experiments: figures, tables, and which of its claims hold.",
)
app.add_typer(experiments, name="experiments")


SMALL_RUN = "A small run takes a minute and shows how the experiment works; use --size paper to test the claims."


class Size(StrEnum):
    """How much of an experiment is run."""

    small = "small"
    paper = "paper"


Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for the results; an interrupted run continues there.")]
SizeOption = Annotated[Size, typer.Option(help="small: about a minute; paper: the paper's own sizes, hours.")]
Seed = Annotated[int, typer.Option(min=0, help="Random seed of the data and the initial dictionaries.")]
Methods = Annotated[str | None, typer.Option(help="Contestants, separated by commas.", show_default="all")]
Samples = Annotated[
    int | None,
    typer.Option(min=400, help="N, the number of samples; a and b keep their ratios to it.", show_default="by size"),
]
Features = Annotated[int | None, typer.Option(min=2, help="F, the number of features.", show_default="by size")]
Starts = Annotated[
    int | None, typer.Option("--initialisations", min=1, help="Number of initial dictionaries.", show_default="by size")
]
Data = Annotated[Path | None, typer.Option(help="Folder of the data sets.", show_default="$ONMF_DATA")]
StandIn = Annotated[
    bool, typer.Option("--stand-in", help="A trial run on data that come with Python and scikit-learn.")
]


@experiments.command(epilog="Example:\n\n`onmf experiments synthetic --out synthetic`")
def synthetic(
    out: Out = Path("synthetic"),
    size: SizeOption = Size.small,
    seed: Seed = 0,
    methods: Methods = None,
    samples: Samples = None,
    features: Features = None,
) -> None:
    """Six divergences on planted dictionaries: the objective against time (Figure 2)."""
    from onmf.experiments import synthetic as experiment

    chosen = _chosen(methods, experiment.METHODS)
    _run(experiment, experiment.Settings(size.value, seed, chosen, samples, features), out)


@experiments.command(epilog="Example:\n\n`onmf experiments sensitivity --methods ol --out sensitivity`")
def sensitivity(
    out: Out = Path("sensitivity"),
    size: SizeOption = Size.small,
    seed: Seed = 0,
    methods: Methods = None,
    samples: Samples = None,
    features: Features = None,
) -> None:
    """Vary tau, K and a, one at a time (Figures S-1 to S-3)."""
    from onmf.experiments import sensitivity as experiment

    chosen = _chosen(methods, experiment.METHODS)
    _run(experiment, experiment.Settings(size.value, seed, chosen, samples, features), out)


@experiments.command(
    epilog="Examples:\n\n`onmf experiments topics --data DATA --out topics`\n\n`onmf experiments topics --stand-in`"
)
def topics(
    out: Out = Path("topics"),
    size: SizeOption = Size.small,
    seed: Seed = 0,
    methods: Methods = None,
    data: Data = None,
    stand_in: StandIn = False,
    collections: Annotated[
        str, typer.Option(help="bbc, 20newsgroups or both, separated by a comma.")
    ] = "bbc,20newsgroups",
    initialisations: Starts = None,
) -> None:
    """News topics: keywords, clusterings, running times (Tables 5 to 7)."""
    from onmf.experiments import topics as experiment

    chosen = _chosen(methods, experiment.METHODS)
    corpora = ("stand-in",) if stand_in else _chosen(collections, ("bbc", "20newsgroups"), "--collections")
    with _offering_a_stand_in():
        _run(experiment, experiment.Settings(size.value, seed, chosen, data, initialisations, corpora), out)


@experiments.command(
    epilog="Examples:\n\n`onmf experiments faces --data DATA --out faces`\n\n`onmf experiments faces --stand-in`"
)
def faces(
    out: Out = Path("faces"),
    size: SizeOption = Size.small,
    seed: Seed = 0,
    methods: Methods = None,
    data: Data = None,
    stand_in: StandIn = False,
    fresh_noise: Annotated[
        bool, typer.Option("--fresh-noise", help="Draw new noise for every copy of the data.")
    ] = False,
    subjects: Annotated[int | None, typer.Option(min=1, help="Number of subjects.", show_default="by size")] = None,
    initialisations: Starts = None,
) -> None:
    """Removing noise and shadows from faces: pictures, PSNR, running times (Figure 3, Table 8)."""
    from onmf.experiments import faces as experiment

    chosen = _chosen(methods, experiment.METHODS)
    with _offering_a_stand_in():
        settings = experiment.Settings(size.value, seed, chosen, data, initialisations, stand_in, fresh_noise, subjects)
        _run(experiment, settings, out)


def _chosen(text: str | None, known: tuple[str, ...], option: str = "--methods") -> tuple[str, ...]:
    """The names between the commas."""
    names = known if text is None else tuple(name.strip() for name in text.split(","))
    unknown = [name for name in names if name not in known]
    if unknown:
        fail(f"{option} does not know {unknown[0]!r}; choose from {', '.join(known)}.")
    return tuple(name for name in known if name in names)


def _plain(settings: Any) -> dict[str, Any]:
    """What the report was made with, without the folder of the data."""
    return {name: value for name, value in vars(settings).items() if name != "data"}


def _run(experiment: Any, settings: Any, out: Path) -> None:
    """Run, write the report, and print its verdicts."""
    from onmf.experiments.folder import Folder
    from onmf.experiments.report import Text
    from onmf.plots import new_figure

    new_figure(1, 1)  # if Matplotlib is missing, fail now and not after hours
    # The data may move, and contestants or initial dictionaries may be added: finished parts remain valid. All other
    # settings must stay the same.
    free = ("data", "methods", "initialisations")
    facts = {name: value for name, value in vars(settings).items() if name not in free}
    name = experiment.__name__.rpartition(".")[2]
    try:
        folder = Folder(out, {"experiment": name} | facts)
        with _bars() as watch:
            report = experiment.run(settings, folder, watch)
    except KeyboardInterrupt:
        errors.print(f"Interrupted; run the same command again to continue from what is finished in {out}.")
        raise typer.Exit(130) from None
    if settings.size == "small":
        report = replace(report, blocks=[Text(SMALL_RUN), *report.blocks])
    page = report.write(out)
    (out / "report.json").write_text(json.dumps({"experiment": name} | _plain(settings), indent=2) + "\n")
    table = Table("the paper's claim", "measured here", "verdict")
    for claim in report.claims:
        table.add_row(claim.claim, claim.measured, claim.verdict)
    console.print(table)
    console.print(f"Wrote {page}; tables and pictures are beside it.", soft_wrap=True)


@contextmanager
def _offering_a_stand_in() -> Iterator[None]:
    from onmf.datasets.folder import DataFolderError

    try:
        yield
    except DataFolderError as error:
        fail(f"{error} For a trial run without it, add --stand-in.")


class _Bars(Watch):
    """Two bars: the parts of the experiment, and the one that runs."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.all = progress.add_task("experiment", total=None)
        self.now = progress.add_task("", total=1.0)
        self.begun = 0

    def begin(self, parts: int) -> None:
        self.progress.update(self.all, total=parts)

    def part(self, title: str) -> None:
        self.progress.update(self.all, completed=self.begun)
        self.progress.reset(self.now, description=title)
        self.begun += 1

    def step(self, share: float) -> None:
        self.progress.update(self.now, completed=share)

    def say(self, text: str) -> None:
        errors.print(text)


@contextmanager
def _bars() -> Iterator[Watch]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=errors) as progress:
        bars = _Bars(progress)
        yield bars
        progress.update(bars.all, completed=bars.begun)
