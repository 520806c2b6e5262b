"""The command line ``onmf``: each command is one file of this folder, and registers itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from onmf._support.version import __version__

Function = TypeVar("Function", bound=Callable[..., Any])

PANELS = ("Before learning", "Learn", "Look at a model", "Apply a model")  # of commands, in this order
METAVARS = {bool: "", int: "N", float: "NUMBER", Path: "FILE", str: "TEXT"}
START = (
    "Start here:\n\n"
    "`onmf suggest data.csv` (which divergence suits the noise)\n\n"
    "`onmf fit data.csv -k 5 --out model` (learn five components)\n\n"
    "`onmf report model data.csv --out report.html` (see what they are, and how well they fit)\n\n"
    "For one command, run `onmf COMMAND --help`; for the data it reads, `onmf formats`."
)


class Plain:
    """Help in which an argument is DATA, not {data}, and no type stands beside it or a flag."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters; the flags that Typer adds are flags like ours."""
        params = super().get_params(ctx)  # type: ignore[misc]
        for each in params:
            if getattr(each, "is_flag", False):
                each.metavar = ""
            if each.param_type_name == "argument":
                each.display_type_rich = lambda ctx: None
        return params

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the line of usage."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]  # type: ignore[misc]


class Command(Plain, TyperCommand):
    """One command."""


class Group(Plain, TyperGroup):
    """All commands."""


app = typer.Typer(
    name="onmf",
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    epilog=START,
    help="Online nonnegative matrix factorization explains each sample, a row of X, as a weighted sum of K components, "
    "the rows of W: X ≈ H W. It learns them in one pass, under the divergence that suits the noise.",
)


def command(panel: str, *examples: str) -> Callable[[Function], Function]:
    """Make a function a command, which the help lists in this panel and explains with these examples, five at most."""

    def add(function: Function) -> Function:
        signature = inspect.signature(function, eval_str=True)
        for name, each in signature.parameters.items():
            if get_origin(each.annotation) is Annotated:
                kind, about = get_args(each.annotation)
                if about.metavar is None:
                    about.metavar = name.upper() if isinstance(about, typer.models.ArgumentInfo) else _metavar(kind)
        function.__signature__ = signature  # type: ignore[attr-defined]
        title = "Example" if len(examples) == 1 else "Examples"
        epilog = "\n\n".join([f"{title}:", *(f"`{each}`" for each in examples)])
        return app.command(cls=Command, epilog=epilog, rich_help_panel=panel)(function)

    return add


def _metavar(kind: Any) -> str:
    """Return the word that stands for the value of an option of this type."""
    if kind in METAVARS:
        return METAVARS[kind]
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    return _metavar(next(each for each in get_args(kind) if each is not NoneType))


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
