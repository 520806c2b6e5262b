"""What the commands share: two consoles, the progress line, and failing with one sentence and exit status 2."""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import onmf
from onmf import data as streams
from onmf._support.wording import plural


class FallsSilent(Console):
    """A console that falls silent when nobody reads it any more, and leaves the run and its results alone.

    Rich's own would end the process, and turn standard output away although that may have another reader. What cannot
    be written for another reason, as to a full disk, is lost; there may be room for what follows.
    """

    def __exit__(self, *raised: Any) -> None:
        """The end of everything that is printed, where Rich writes it."""
        try:
            super().__exit__(*raised)
        except OSError:
            self.begin_capture()
            with suppress(OSError):  # Python tries once more to write what it holds
                self.end_capture()

    def on_broken_pipe(self) -> None:
        self.quiet = True
        # What Python still holds of standard error is not wanted either, and must not fail when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


# No markup and no emoji: file names and messages are printed as they are.
console = Console(markup=False, emoji=False, highlight=False)
errors = FallsSilent(stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False)

STANDARD_OUTPUT = {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}
SCHEMES = [f"{each.name} ({', '.join(each.options)})" if each.options else each.name for each in streams.schemes()]
DATA_HELP = (
    "Samples, one per row: a file whose suffix tells its format, such as x.npy or x.parquet, or "
    "SCHEME:PATH?OPTION=VALUE, such as images:faces?size=32x32 or 'docs.jsonl?field=body&words=5000'. "
    "Standard input is a PATH of -, as in csv:-, npy:- or 'jsonl:-?field=body'; a - alone reads texts, one per line. "
    f"Schemes (and their options): {', '.join(SCHEMES)}."
)


@contextmanager
def progress_line(title: str = "") -> Iterator[Callable[[onmf.Progress], None]]:
    """A live line with samples, samples/s, the running loss and the time left; gives the function that updates it."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[facts]}"), TimeRemainingColumn())
    with Progress(*columns, console=errors) as bar:
        task = bar.add_task(title, total=None, facts="")

        def show(report: onmf.Progress) -> None:
            rate = report.samples / max(report.seconds, 1e-9)
            loss = "" if math.isnan(report.loss) else f" · loss {report.loss:.5g}"
            facts = f"{report.samples:,} {plural(report.samples, 'sample')} · {rate:,.0f}/s{loss}{said(report.phases)}"
            bar.update(task, completed=report.samples, total=report.total, facts=facts)

        yield show


def said(phases: Mapping[str, float] | None) -> str:
    """What the seconds of a run with Dask went to."""
    return " · " + ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in phases.items()) if phases else ""


def give_up_unwritten() -> None:
    """What Python holds of standard error and cannot write must not decide the exit status when the process ends."""
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def is_standard_output(out: Path) -> bool:
    """Is the result to go there? Then it must not be closed."""
    if str(out) not in STANDARD_OUTPUT:
        return False
    if sys.__stdout__ is None:  # what stands there instead is the null device
        fail("standard output is closed; give --out the name of a file.")
    return True


def require_writable(out: Path, *inputs: Path, option: str = "--out") -> None:
    """Find out before hours of work, not after, that the result has nowhere to go."""
    from onmf._support.atomic import require_replaceable  # not needed for --help

    place = require_replaceable(out)
    if place in {Path(os.path.realpath(path)) for path in inputs}:  # unlike resolve, in spite of links in a circle
        fail(f"{out} is an input; give {option} another name.")
    if not place.parent.is_dir():
        fail(f"cannot write {out}: {out.parent} does not exist.")
    try:
        tempfile.TemporaryFile(dir=place.parent).close()
    except OSError as error:
        fail(f"cannot write {out}: {error.strerror}.")


def require_drawable(plot: Path, *inputs: Path, option: str = "--plot") -> None:
    """The same of a picture, whose format must be one that can be drawn."""
    from onmf.insight.plots import require_writable_format

    require_writable(plot, *inputs, option=option)
    require_writable_format(plot)


def seconds_of(text: str, option: str) -> float:
    """What ``30s``, ``5m`` and ``1h`` mean."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = text[:-1], units.get(text[-1:], 0.0)
    if not unit or not number.isascii() or not number.replace(".", "", 1).isdecimal():
        fail(f"{option} {text}: write a number and s, m or h, as in 30s.")
    return float(number) * unit


def fail(message: str) -> NoReturn:
    """Print one sentence and exit with status 2."""
    errors.print(f"onmf: {message}")
    raise typer.Exit(2)


def one_line(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
    """A warning, as ``warnings.showwarning`` shows it."""
    errors.print(f"onmf: {category.__name__}: {message}")
