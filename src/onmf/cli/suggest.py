"""The command ``onmf suggest``: say which divergence suits the data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from onmf.cli import command
from onmf.cli.options import AsJson, Data, with_settings
from onmf.cli.output import require_drawable, save_plot
from onmf.cli.terminal import console, print_json
from onmf.data import open_source, path_of

if TYPE_CHECKING:
    from onmf.selection.divergence import Suggestion


@command(
    "Before learning",
    "onmf suggest counts.npz",
    "onmf suggest 'audio:song.flac?window=2048' --plot noise.png",
    "onmf suggest spectra.npy --json | jq -r .divergence",
)
@with_settings("missing", "implicit")
def suggest(
    data: Data,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Plot the variance of the noise against the mean (.png, .pdf, .svg, ...).", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Suggest a divergence for DATA from the noise of a few hundred samples, and say why."""
    from onmf.selection.divergence import suggest_divergence  # not needed for --help

    require_drawable(plot, path_of(data))
    suggestion = suggest_divergence(open_source(data), **settings)
    if as_json:
        print_json(vars(suggestion))
    else:
        console.print(_table(data, suggestion))
        console.print(suggestion.reason)
    if plot is not None:
        save_plot(suggestion.plot(), plot)
        if not as_json:
            console.print(f"Wrote {plot}.", soft_wrap=True)


def _table(title: str, found: Suggestion) -> Table:
    table = Table(title=title, show_header=False)
    table.add_row("divergence", found.divergence if found.decided else f"{found.divergence} (inconclusive)")
    table.add_row("runners-up", ", ".join(found.ranking[1:]))
    measured = not math.isnan(found.power)
    table.add_row("variance ~ mean^", f"{found.power:.2f} ± {found.power_error:.2f}" if measured else "not measured")
    table.add_row("outliers", "not measured" if math.isnan(found.outliers) else f"{100 * found.outliers:.2g} %")
    table.add_row("zeros", f"{100 * found.zeros:.2g} %")
    table.add_row("whole numbers", "yes" if found.whole_numbers else "no")
    table.add_row("examined", f"{found.rows} rows x {found.columns} columns, with a fit of rank {found.rank}")
    return table
