"""Options and arguments that several commands have; those of the estimator's settings come from its table."""

from __future__ import annotations

import inspect
import sys
import traceback
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import numpy as np
import typer

import onmf
from onmf import divergences, methods
from onmf._support.arrays import Array
from onmf._support.atomic import NO_ROOM
from onmf._support.registry import UnknownNameError
from onmf.cli.terminal import fail
from onmf.model.settings import setting

Command = TypeVar("Command", bound=Callable[..., Any])

CHECKPOINTS = "Checkpoints"  # a panel of the help
NAMES = {"divergence": divergences.names, "method": methods.names}  # settings that take a registered name
DATA_HELP = (
    "Samples, one per row: a file or folder, perhaps with options, as in 'docs.jsonl?field=body'. "
    "`onmf formats` explains them."
)
Data: TypeAlias = Annotated[str, typer.Argument(help=DATA_HELP, show_default=False)]
Model: TypeAlias = Annotated[
    Path, typer.Argument(help="A model file that `onmf fit` wrote, or a checkpoint.", show_default=False)
]
BatchSize: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, help="Samples to read, solve and write at a time.", show_default="1024; 100 from a pipe"),
]
SafeCsv: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--safe-csv",
        help="In .csv and .tsv, put ' before names that begin with =, +, - or @, which a spreadsheet would run as a "
        "formula.",
    ),
]
Jobs: TypeAlias = Annotated[int, typer.Option(min=1, help="Fits to run at the same time, in threads.")]
RunsCheckpoint: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        help="Keep finished fits in this file, for --resume.",
        show_default=False,
        rich_help_panel=CHECKPOINTS,
    ),
]
Resume: TypeAlias = Annotated[
    bool,
    typer.Option("--resume", help="Do not repeat the fits in the checkpoint.", rich_help_panel=CHECKPOINTS),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")]


# The estimator's settings


def with_settings(*names: str, **defaults: Any) -> Callable[[Command], Command]:
    """Give a command the options of these settings, which arrive by their names in its ``**settings``.

    They come after the arguments and options that must be given. ``defaults`` replace those of the table.
    """

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        required = [each for each in own if each.default is each.empty]
        optional = [each for each in own if each.default is not each.empty]
        options = [_option(name, defaults.get(name, setting(name).default)) for name in names]
        together = [each.replace(kind=each.KEYWORD_ONLY) for each in (*required, *options, *optional)]
        command.__signature__ = signature.replace(parameters=together)  # type: ignore[attr-defined]
        return command

    return decorate


def _option(name: str, default: Any) -> inspect.Parameter:
    """Return the parameter of a command that Typer makes the option of a setting from."""
    option = setting(name)
    if not option.help:
        raise ValueError(f"{name} has no option; give it a help text in onmf.model.settings.")
    flags, kind, help_text, complete = option.flags, option.type, option.help, None
    if kind is bool:
        flags = (f"{flags[0]}/--no-{flags[0].lstrip('-')}", *flags[1:])
    if option.choices:
        kind = Literal[option.choices] if default is not None else Literal[option.choices] | None
    if name in NAMES:
        help_text, complete = help_text.format(names=", ".join(NAMES[name]())), _completion(NAMES[name])
    shown = typer.Option(
        *flags,
        help=help_text,
        min=option.low,
        metavar=option.metavar,
        rich_help_panel=option.panel,
        show_default=option.show_default,
        autocompletion=complete,
    )
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, shown])


def _completion(names: Callable[[], list[str]]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def given_settings(context: typer.Context, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that are given on the command line."""

    def is_given(name: str) -> bool:
        where = context.get_parameter_source(name)
        return where is not None and where.name == "COMMANDLINE"

    return {name: value for name, value in settings.items() if is_given(name)}


def aligned_fixed_components(models: Sequence[onmf.OnlineNMF], source: Any) -> Array | None:
    """Return the components of the models of ``--fixed``, their features in the order of the data's names."""
    from onmf.model.sets import aligned  # not needed for --help

    for model in models:
        if model.n_features_in_ != source.n_features:
            fail(
                f"the components of --fixed have {model.n_features_in_} features, the data {source.n_features}; "
                "read the data as that model's were read, or learn its components from data like these."
            )
    found = [aligned(m.components_, getattr(m, "feature_names_in_", None), source.feature_names) for m in models]
    return np.concatenate(found) if found else None


# A Python file of the user's own

VARIABLE = "ONMF_MODULE"
_executed: list[Path] = []  # files of --module


def _execute(context: typer.Context, module: Path | None) -> None:
    """Run the file, so that its classes register themselves; an error in it is reported with its line."""
    if module is None or context.resilient_parsing:  # a shell that completes a command executes nothing
        return
    source = context.get_parameter_source("module")
    by_variable = source is not None and source.name == "ENVIRONMENT"
    asked = f"{VARIABLE}={module}" if by_variable else f"--module {module}"
    path = module.resolve()
    if not path.is_file():
        fail(f"{asked}: no such file; name a Python file, such as my_losses.py.")
    name = f"onmf_module_{path.stem}"  # of its own, so that a file called json.py does not stand in for Python's
    own = types.ModuleType(name)
    own.__file__ = str(path)
    sys.modules[name] = own  # where dataclasses look
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # it may import its neighbours
    _executed.append(path)
    try:
        code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)  # none of this file's own imports
        exec(code, vars(own))  # noqa: S102 (what the user has asked for)
    except (Exception, SystemExit) as error:
        fail(fault_in_module(error) or f"{asked}: {error}")


def explained(error: Exception) -> str:
    """Return the message of an error; for an unknown name it mentions --module, for a class of one's own."""
    if isinstance(error, UnknownNameError) and not _executed:
        return f"{str(error).rstrip('.')}; for one of your own, give --module FILE."
    if isinstance(error, OSError) and error.errno in NO_ROOM and error.filename is None:  # files name themselves
        return f"cannot write standard output: {error.strerror}."
    return str(error)


def fault_in_module(error: BaseException) -> str | None:
    """Return the error and its line if it comes from a file of ``--module``, else None."""
    what = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".: ")
    for path in _executed:
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
        callback=_execute,
        help="Run this Python file first; it defines divergences or methods of your own. A model file stores no code, "
        "so name the file again in every command on the model.",
        rich_help_panel="Your own code",
        show_default=False,
    ),
]
