"""The application; the commands of this folder add themselves to it."""

from __future__ import annotations

from typing import Annotated

import typer

from onmf._support.version import __version__
from onmf.cli.terminal import console

app = typer.Typer(
    name="onmf",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Online nonnegative matrix factorization with general divergences: X ~ H W, samples as rows.",
)


def _version(wanted: bool) -> None:
    if wanted:
        console.print(f"onmf {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that come before the command."""
