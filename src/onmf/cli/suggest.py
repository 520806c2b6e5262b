"""``onmf suggest``: which divergence suits the data."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from onmf import streams
from onmf.cli.app import app
from onmf.cli.terminal import DATA_HELP, console, require_writable

if TYPE_CHECKING:
    from onmf.suggesting.suggestion import Suggestion

EXAMPLES = (
    "Examples:\n\n"
    "`onmf suggest counts.npz`\n\n"
    "`onmf suggest 'audio:song.flac?window=2048' --plot noise.png`\n\n"
    '`onmf fit spectra.npy --divergence "$(onmf suggest spectra.npy --json | jq -r .divergence)" --out m.safetensors`'
)


@app.command(epilog=EXAMPLES)
def suggest(
    data: Annotated[str, typer.Argument(help=DATA_HELP, show_default=False)],
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the variance of the noise against the mean into this file (.png, .pdf, .svg, ...)."),
    ] = None,
    missing: Annotated[
        str | None, typer.Option(help="nan: such entries are unknown, not an error.", show_default=False)
    ] = None,
    implicit: Annotated[
        str, typer.Option(help="What sparse data do not store: zero, or missing (unknown), as in ratings.")
    ] = "zero",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Suggest a divergence for DATA from how its noise behaves, and say why. Some hundred samples are looked at."""
    from onmf.suggesting.suggestion import suggest_divergence  # not needed for --help

    if plot is not None:
        from onmf.plots import require_writable_format

        require_writable(plot, streams.path_of(data), option="--plot")
        require_writable_format(plot)
    suggestion = suggest_divergence(streams.open_source(data), missing=missing, implicit=implicit)
    if as_json:
        console.print(json.dumps({name: _plain(value) for name, value in vars(suggestion).items()}), soft_wrap=True)
    else:
        console.print(_table(data, suggestion))
        console.print(suggestion.reason)
    if plot is not None:
        suggestion.plot().savefig(plot, dpi=110)
        if not as_json:
            console.print(f"Wrote {plot}.", soft_wrap=True)


def _table(title: str, found: Suggestion) -> Table:
    table = Table(title=Text(title), show_header=False)
    table.add_row("divergence", found.divergence if found.decided else f"{found.divergence} (the data do not tell)")
    table.add_row("then", ", ".join(found.ranking[1:]))
    measured = not math.isnan(found.power)
    table.add_row("variance ~ mean^", f"{found.power:.2f} ± {found.power_error:.2f}" if measured else "not measured")
    table.add_row("outliers", "not measured" if math.isnan(found.outliers) else f"{100 * found.outliers:.2g} %")
    table.add_row("zeros", f"{100 * found.zeros:.2g} %")
    table.add_row("whole numbers", "yes" if found.whole_numbers else "no")
    table.add_row("looked at", f"{found.rows} rows x {found.columns} columns, with a fit of rank {found.rank}")
    return table


def _plain(value: Any) -> Any:
    """A value as JSON takes it; a number that was not measured is null."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return None if isinstance(value, float) and math.isnan(value) else value
