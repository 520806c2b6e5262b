"""Run the command line, in which errors become one sentence, and signals an exit status."""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
import signal
import sys
import warnings
from typing import Any, NoReturn

from onmf import cli
from onmf.cli import PANELS, app
from onmf.cli.options import explained, fault_in_module
from onmf.cli.terminal import LogLines, console, errors, print_warning
from onmf.data.pipes import not_utf8

for _module in pkgutil.iter_modules(cli.__path__):
    importlib.import_module(f"onmf.cli.{_module.name}")
# They are listed by panel and name, whichever imports another.
app.registered_commands.sort(key=lambda one: (PANELS.index(one.rich_help_panel), getattr(one.callback, "__name__", "")))


INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM  # as shells count
UNREAD = 128 + 13  # SIGPIPE, which not every system has: nobody reads what is written


def main() -> None:
    """Run the command line; errors are one sentence and exit status 2. SIGTERM stops a command as Ctrl-C does."""
    interrupted = INTERRUPTED

    def terminate(*_: Any) -> NoReturn:
        nonlocal interrupted
        interrupted = TERMINATED
        raise KeyboardInterrupt

    warnings.showwarning = print_warning
    logging.basicConfig(handlers=[LogLines()])
    # Every result is checked, and one that is not finite raises an error; how it became so helps nobody.
    warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"onmf\.")
    signal.signal(signal.SIGTERM, terminate)
    status = _run()
    try:
        sys.stdout.flush()  # here, where a failure can be handled
    except BrokenPipeError:
        status = UNREAD
    except OSError as error:
        status = status or _tell(error)
        _discard(sys.stdout)
    if status == UNREAD:  # nobody wants the rest
        _discard(sys.stdout)
    try:
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)
    sys.exit(interrupted if status == INTERRUPTED else status)


def _discard(stream: Any) -> None:
    """Drop what could not be written, which must not decide the exit status when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run() -> int:
    """Run the command and return its exit status."""
    for word in sys.argv[1:]:
        if not_utf8(word):
            errors.print(f"onmf: {word} is not UTF-8; rename the file.")
            return 2
    try:
        return int(app(standalone_mode=False, prog_name="onmf") or 0)  # also for python -m onmf
    except SystemExit as stop:  # from completion, or from Rich and Typer when nobody reads their output
        return int(stop.code or 0) if "_ONMF_COMPLETE" in os.environ or not stop.code else UNREAD
    except (ValueError, OSError, MemoryError, ImportError) as error:
        return _tell(error)
    except Exception as error:
        if fault := fault_in_module(error):
            errors.print(f"onmf: {fault}")
            return 2
        # Typer's own errors about arguments; recognised by their method, since Typer keeps its Click where it likes.
        if not hasattr(error, "format_message"):
            raise
        text = error.format_message().replace("Value error, ", "")  # which Typer puts before some of its reasons
        if text.startswith("Usage:") or not text.strip():  # no command given: the help has been asked for
            console.print(text)
        else:
            context = getattr(error, "ctx", None)
            where = context.command_path if context is not None else "onmf"
            errors.print(f"onmf: {text if text.endswith(('.', '?')) else text + '.'} See {where} --help.")
    return 2


def _tell(error: Exception) -> int:
    """Print an error in one sentence, and return the exit status."""
    fault = None if error.__cause__ is None else fault_in_module(error.__cause__)
    errors.print(f"onmf: {fault or explained(error) or type(error).__name__}")
    return 2
