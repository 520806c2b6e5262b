"""Messages of a command: for people, for programs as JSON, and one sentence about an error."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

NOT_SHOWN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # codes that steer a terminal, and no characters


def visible(text: str) -> str:
    """Return a text in which codes that would steer a terminal are escaped: names may be chosen by others."""
    return NOT_SHOWN.sub(lambda code: code[0].encode("unicode_escape").decode("ascii"), text)


class SafeConsole(Console):
    """A console on which the texts that are printed, those in tables included, cannot steer the terminal."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a text as Rich draws it."""
        return super().render_str(visible(text), **options)


class ErrorConsole(SafeConsole):
    """A console that falls silent when nobody reads it any more, and leaves the run and its results alone.

    Rich's own would end the process, and close standard output although that may have another reader. Text that cannot
    be written for another reason, as to a full disk, is lost; there may be room for later text.
    """

    def __exit__(self, *raised: Any) -> None:
        """End a print, at which Rich writes."""
        try:
            super().__exit__(*raised)
        except OSError:
            self.begin_capture()
            with suppress(OSError):  # Python tries once more to write what it holds
                self.end_capture()

    def on_broken_pipe(self) -> None:
        """Write nothing more."""
        self.quiet = True
        # The text that Python still holds is not wanted either, and must not fail when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


# No markup and no emoji: file names and messages are printed as they are.
console = SafeConsole(markup=False, emoji=False, highlight=False)
errors = ErrorConsole(stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False)


def fail(message: str) -> NoReturn:
    """Print one sentence and exit with status 2."""
    errors.print(f"onmf: {message}")
    raise typer.Exit(2)


def print_json(facts: Mapping[str, Any]) -> None:
    """Print one line of JSON; a number that is not finite is null, and types that JSON lacks become text."""
    console.print(json.dumps(_as_json(facts), allow_nan=False), soft_wrap=True)


def _as_json(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _as_json(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, (str, int, type(None))) else str(value)


def print_warning(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning in one line, in place of ``warnings.showwarning``."""
    errors.print(f"onmf: {category.__name__}: {message}")


class LogLines(logging.Handler):
    """A handler that prints the library's log, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message alone."""
        errors.print(record.getMessage())


@contextmanager
def first_warnings() -> Iterator[None]:
    """Show the first warning of each kind at the end, since every block of samples repeats them."""
    first: dict[type[Warning], Any] = {}
    counts: Counter[type[Warning]] = Counter()

    def count(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
        first.setdefault(category, message)
        counts[category] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = count
        yield
    for category, message in first.items():
        more = f" (likewise in {counts[category] - 1} more blocks of samples)" if counts[category] > 1 else ""
        print_warning(f"{message}{more}", category)
