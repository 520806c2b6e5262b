"""``--module``: a Python file of the user's own, whose divergences and methods are then found by name."""

from __future__ import annotations

import sys
import traceback
import types
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from onmf._support.registry import UnknownNameError
from onmf.cli.terminal import fail

VARIABLE = "ONMF_MODULE"

_given: list[Path] = []  # the files that were executed


def execute(context: typer.Context, module: Path | None) -> None:
    """Run the file, so that the classes in it register themselves; what goes wrong in it is told with its line."""
    if module is None or context.resilient_parsing:  # a shell that completes a command executes nothing
        return
    path = module.resolve()
    if not path.is_file():
        fail(f"{_asked(context, module)}: there is no such file; give a Python file, as in my_losses.py.")
    name = f"onmf_module_{path.stem}"  # of its own, so that a file called json.py does not stand in for Python's
    own = types.ModuleType(name)
    own.__file__ = str(path)
    sys.modules[name] = own  # where dataclasses look
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # it may import its neighbours
    _given.append(path)
    try:
        code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)  # none of this file's own imports
        exec(code, vars(own))  # noqa: S102 (what the user has asked for)
    except (Exception, SystemExit) as error:
        fail(fault_of_module(error) or f"{_asked(context, module)}: {error}")


def _asked(context: typer.Context, module: Path) -> str:
    """How the user has asked for the file."""
    source = context.get_parameter_source("module")
    return f"{VARIABLE}={module}" if source is not None and source.name == "ENVIRONMENT" else f"--module {module}"


def told(error: Exception) -> str:
    """What is wrong and, if a name is unknown and no file was given, how a class of the user's own becomes known."""
    if isinstance(error, UnknownNameError) and not _given:
        return f"{str(error).rstrip('.')}; for one of your own, give --module FILE."
    return str(error)


def fault_of_module(error: BaseException) -> str | None:
    """Where in a file of the user's own an error has come up, and what it is; None: it did not come up there."""
    what = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".: ")
    for path in _given:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        if isinstance(error, SyntaxError) and error.filename == str(path):
            lines, what = [error.lineno], f"{type(error).__name__}: {error.msg}"
        if lines:
            return f"{path.name}, line {lines[-1]}: {what}."
    return None


Module: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--module",
        envvar=VARIABLE,
        callback=execute,
        help="Execute this Python file first: divergences and methods that it defines are then known by their names. "
        "A model remembers their names and parameters, never code, so every command on it needs the file again.",
        show_default=False,
    ),
]
