"""The command line ``onmf``, of which each command is one file of this folder that adds itself."""

from __future__ import annotations

from typing import Annotated

import typer

from onmf._support.version import __version__

app = typer.Typer(
    name="onmf",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Online nonnegative matrix factorization with general divergences: X ~ H W, samples as rows.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"onmf {__version__}")
        raise typer.Exit


@app.callback()
def before_the_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options that come before the command."""
