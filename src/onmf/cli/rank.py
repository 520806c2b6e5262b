"""``onmf rank``: how many atoms the data support."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import onmf
from onmf import data as streams
from onmf.cli.app import app
from onmf.cli.as_json import AsJson, print_json
from onmf.cli.fixed import Fixed, atoms_for
from onmf.cli.module import Module
from onmf.cli.options import (
    Coefficients,
    Data,
    Divergence,
    Implicit,
    L1Coefficients,
    L1Dictionary,
    L2Coefficients,
    L2Dictionary,
    Method,
    Missing,
    Seed,
)
from onmf.cli.terminal import console, errors, fail, require_drawable

if TYPE_CHECKING:
    from onmf.selection.rank import Trial

MOST_RANKS = 10_000
EXAMPLES = (
    "Examples:\n\n"
    "`onmf rank counts.npz --ranks 2..30`\n\n"
    "`onmf rank spectra.npy --ranks 2,4,8,16 --divergence is --plot ranks.png`\n\n"
    "`onmf rank ratings.npz --ranks 5..40 --divergence squared_l2 --implicit missing --seeds 5 --json`\n\n"
    "`onmf rank pixels.npy --ranks 2..8 --coefficients simplex`"
)


@app.command(epilog=EXAMPLES)
def rank(
    data: Data,
    ranks: Annotated[
        str,
        typer.Option(help="The numbers of atoms to try: 2..30, or 2,4,8, or both: 2..10,15,20.", show_default=False),
    ],
    divergence: Divergence = "kl",
    method: Method = "auto",
    seeds: Annotated[
        int, typer.Option(min=2, help="Fits per rank, each with another start and other held-out entries.")
    ] = 3,
    held_out: Annotated[float, typer.Option(help="The share of entries that no fit sees, up to 0.5.")] = 0.1,
    passes: Annotated[int, typer.Option(min=1, help="Passes of every fit over the data.")] = 5,
    patience: Annotated[
        int, typer.Option(min=0, help="Stop once this many ranks in a row are worse for every seed; 0 tries all.")
    ] = 5,
    fixed: Fixed = None,
    coefficients: Coefficients = "nonnegative",
    l1_coefficients: L1Coefficients = 0.0,
    l2_coefficients: L2Coefficients = 0.0,
    l1_dictionary: L1Dictionary = 0.0,
    l2_dictionary: L2Dictionary = 0.0,
    missing: Missing = None,
    implicit: Implicit = "zero",
    seed: Seed = None,
    module: Module = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write a picture of it (.png, .pdf, .svg, ...).", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recommend the number of atoms: which predicts held-out entries of DATA best, and are its atoms stable?

    DATA are read once per rank, seed and pass.
    """
    tried = _ranks(ranks)
    if plot is not None:
        require_drawable(plot, streams.path_of(data))
    fixed_in = None if fixed is None else onmf.load(fixed)
    source = streams.open_source(data, fixed_in and fixed_in.source_)
    with _watched() as show:
        found = onmf.select_rank(
            source,
            tried,
            n_seeds=seeds,
            held_out=held_out,
            max_passes=passes,
            patience=patience or None,
            random_state=seed,
            callback=show,
            divergence=divergence,
            method=method,
            fixed=fixed_in and atoms_for(source, fixed_in),
            coefficients=coefficients,
            l1_coefficients=l1_coefficients,
            l2_coefficients=l2_coefficients,
            l1_dictionary=l1_dictionary,
            l2_dictionary=l2_dictionary,
            missing=missing,
            implicit=implicit,
        )
    if plot is not None:
        found.plot().savefig(plot, dpi=100)
    if as_json:
        facts = {"recommended": found.recommended, "best": found.best, "reason": found.reason, **found.table}
        print_json(facts | {"not_tried": found.not_tried})
        return
    console.print(_table(found))
    console.print(found.reason)
    if plot is not None:
        console.print(f"Wrote {plot}.", soft_wrap=True)


def _table(found: onmf.RankSelection) -> Table:
    table = Table("rank", "held-out loss", "spread", "above the best", "stability", "")
    columns = found.table.values()
    for place, (K, loss, spread, excess, error, stability) in enumerate(zip(*columns, strict=True)):
        above = "" if found.ranks[place] == found.best else f"{excess:.4g} ± {error:.2g}"
        mark = "recommended" if found.recommended == K else ""
        table.add_row(str(K), f"{loss:.6g}", f"{spread:.2g}", above, f"{stability:.3f}", mark)
    return table


def _ranks(text: str) -> list[int]:
    """What ``2..30`` and ``2,4,8`` mean."""
    tried: set[int] = set()
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        ends = [first, last] if dots else [first, first]
        if not all(end.isascii() and end.isdecimal() and len(end) < 10 for end in ends):
            fail(f"--ranks {text}: write 2..30, or 2,4,8, or both: 2..10,15,20.")
        low, high = map(int, ends)
        if not 1 <= low <= high:
            fail(f"--ranks {text}: {part.strip()} must lead from a rank of at least 1 upwards, as in 2..30.")
        if high - low >= MOST_RANKS:
            fail(f"--ranks {text}: each rank is learnt several times, and these are {high - low + 1}; name fewer.")
        tried.update(range(low, high + 1))
    if len(tried) == 1:
        fail(f"--ranks {text}: ranks are compared with each other; name at least two, as in 2..30.")
    return sorted(tried)


@contextmanager
def _watched() -> Iterator[Callable[[Trial], None]]:
    """A bar in a terminal, elsewhere a line after every fit."""
    if not errors.is_terminal:
        yield lambda trial: errors.print(
            f"fit {trial.done} of {trial.total}: rank {trial.rank}, held-out loss {trial.loss:.6g}"
        )
        return
    facts = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*facts, console=errors) as bar:
        task = bar.add_task("fits", total=None)

        def show(trial: Trial) -> None:
            said = f"rank {trial.rank} · held-out loss {trial.loss:.5g}"
            bar.update(task, description=said, completed=trial.done, total=trial.total)

        yield show
