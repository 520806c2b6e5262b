"""The command ``onmf rank``: recommend how many components the data support."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import onmf
from onmf.cli import command
from onmf.cli.options import (
    AsJson,
    Data,
    Jobs,
    Module,
    Resume,
    RunsCheckpoint,
    aligned_fixed_components,
    with_settings,
)
from onmf.cli.output import require_drawable, require_writable, save_plot
from onmf.cli.progress import fits_watched, mixed
from onmf.cli.terminal import console, fail, print_json
from onmf.data import open_source, path_of

MOST_RANKS = 10_000
SETTINGS = (
    *("divergence", "method", "max_passes", "fixed", "coefficients", "missing", "implicit", "random_state"),
    *("l1_coefficients", "l2_coefficients", "l1_dictionary", "l2_dictionary"),
)


@command(
    "Before learning",
    "onmf rank counts.npz --ranks 2..30",
    "onmf rank spectra.npy --ranks 2,4,8,16 --divergence is --plot ranks.png",
    "onmf rank ratings.npz --ranks 5..40 --divergence squared_l2 --implicit missing --seeds 5 --json",
    "onmf rank pixels.npy --ranks 2..8 --coefficients simplex",
    "onmf rank cells.h5ad --ranks 2..30 --jobs 3 --checkpoint ranks --resume",
)
@with_settings(*SETTINGS, max_passes=5)
def rank(
    data: Data,
    ranks: Annotated[
        str,
        typer.Option(help="Numbers of components to try: 2..30, or 2,4,8, or 2..10,15,20.", show_default=False),
    ],
    seeds: Annotated[
        int, typer.Option(min=2, help="Fits per rank, each with its own start and its own held-out entries.")
    ] = 3,
    held_out: Annotated[float, typer.Option(help="The share of entries to hold out, up to 0.5.")] = 0.1,
    patience: Annotated[
        int, typer.Option(min=0, help="Stop once this many ranks in a row are worse for every seed; 0 tries them all.")
    ] = 5,
    jobs: Jobs = 1,
    checkpoint: RunsCheckpoint = None,
    resume: Resume = False,
    module: Module = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write a plot of the result (.png, .pdf, .svg, ...).", show_default=False)
    ] = None,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Recommend how many components to learn: as many as help to predict held-out entries of DATA.

    For every seed, reads DATA --passes times, then four times per rank.
    """
    tried, fixed = _ranks(ranks), settings.pop("fixed") or []
    require_drawable(plot, path_of(data))
    if checkpoint is not None:
        require_writable(checkpoint, path_of(data), option="--checkpoint")
    fixed_models = [onmf.load(each) for each in fixed]
    source = mixed(open_source(data, next((each.source_ for each in fixed_models), None)), settings["random_state"])
    settings["fixed"] = aligned_fixed_components(fixed_models, source)
    with fits_watched() as show:
        found = onmf.select_rank(
            source,
            tried,
            n_seeds=seeds,
            held_out=held_out,
            patience=patience or None,
            n_jobs=jobs,
            checkpoint=checkpoint,
            resume=resume,
            callback=show,
            **settings,
        )
    if plot is not None:
        save_plot(found.plot(), plot)
    if as_json:
        facts = {"recommended": found.recommended, "best": found.best, "reason": found.reason, **found.table}
        print_json(facts | {"not_tried": found.not_tried})
        return
    console.print(str(found))
    if plot is not None:
        console.print(f"Wrote {plot}.", soft_wrap=True)


def _ranks(text: str) -> list[int]:
    """Return the ranks of ``2..30`` and ``2,4,8``."""
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
