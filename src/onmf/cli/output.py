"""Files, folders and standard output for results, checked before any work, and rows written as they come."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import typer

import onmf
from onmf._support.arrays import Array
from onmf._support.wording import counted, is_or_are
from onmf.cli.progress import Show, done_so_far, opened
from onmf.cli.terminal import console, errors, fail, first_warnings, print_json
from onmf.data import Source, SourceError, open_source, outputs, path_of

LEAST = 2**12  # bytes that any result needs
STANDARD_OUTPUT = {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}
SAVED: dict[str, dict[str, Any]] = {"JPEG": {"quality": 95}, "WEBP": {"lossless": True}}  # better than Pillow's own


# Places


class OutputTarget:
    """The file or standard output that ``--out`` names; messages go to standard error if the result is on the other."""

    def __init__(self, out: Path, as_json: bool = False, option: str = "--out", safe_csv: bool = False) -> None:
        self.out, self.option, self.standard = out, option, str(out) in STANDARD_OUTPUT
        self.safe_csv = safe_csv
        if self.standard and sys.__stdout__ is None:  # the null device stands there instead
            fail(f"standard output is closed; give {option} the name of a file.")
        if self.standard and as_json:
            fail(
                f"--json prints to standard output, where {option} - writes the result; "
                f"give {option} the name of a file."
            )

    def __str__(self) -> str:
        return "standard output" if self.standard else str(self.out)

    def require_writable(self, *inputs: Path | None) -> None:
        """Fail if the result has nowhere to go."""
        if not self.standard:
            require_writable(self.out, *inputs, option=self.option)

    def kind(self, what: str, suffixes: Sequence[str], data: Path) -> type[outputs.Output]:
        """Return the format of the suffix, which must be among these."""
        kind = outputs.kind_of(Path("rows.csv") if self.standard else self.out)
        if kind is None or not (self.standard or self.out.suffix.lower() in suffixes):
            fail(f"cannot write {what} to {self.out}: use {', '.join(suffixes)}, or - for CSV on standard output.")
        kind.require(data)
        return kind

    def no_room(self, size: int) -> str | None:
        """Return why a file of this many bytes cannot be written; of standard output that is not known."""
        return None if self.standard else no_room(self.out, size)

    def opened(self) -> AbstractContextManager[Any]:
        """Open standard output, or a file that takes the place of the old one when all of it is written."""
        from onmf._support.atomic import replacing  # not needed for --help

        return nullcontext(sys.stdout) if self.standard else replacing(self.out)

    def say(self, text: str) -> None:
        """Print a line about the result."""
        (errors if self.standard else console).print(text, soft_wrap=True)


def require_writable(out: Path, *inputs: Path | None, option: str = "--out") -> None:
    """Fail, before hours of work, if the result has nowhere to go."""
    from onmf._support.atomic import require_replaceable  # not needed for --help

    place = require_replaceable(out)
    if place in {Path(os.path.realpath(path)) for path in inputs if path is not None}:  # links in a circle are fine
        fail(f"{out} is an input; give {option} another name.")
    require_parent(out, place.parent)
    if reason := no_room(out, LEAST):
        fail(reason)


def no_room(out: Path, size: int) -> str | None:
    """Return why a file of this many bytes cannot be written to this place; its space is taken for a moment."""
    from onmf._support.atomic import reserve

    try:
        with tempfile.TemporaryFile(dir=out.resolve().parent) as file:
            reserve(file.fileno(), 0, size)
    except OSError as error:
        return f"cannot write {out}: {error.strerror}."
    return None


def require_parent(out: Path, parent: Path) -> None:
    """Fail if the folder of the result does not exist."""
    if not parent.is_dir():
        fail(f"cannot write {out}: there is no folder {out.parent}.")


def require_drawable(plot: Path | None, *inputs: Path, option: str = "--plot") -> None:
    """Fail if a picture, where one is asked for, has nowhere to go or no format that can be drawn."""
    if plot is not None:
        from onmf.plots import require_writable_format

        require_writable(plot, *inputs, option=option)
        require_writable_format(plot)


def save_plot(figure: Any, plot: Path, dpi: int = 100) -> None:
    """Write a figure, in the format of its suffix."""
    from onmf._support.atomic import replacing

    with replacing(plot) as place:
        figure.savefig(place, dpi=dpi, format=plot.suffix[1:])


@contextmanager
def folder(out: Path) -> Iterator[Path]:
    """Make the folder if it is not there, and remove it again if nothing was written to it."""
    if out.exists() and not out.is_dir():
        fail(f"{out} is a file; give --out the name of a folder.")
    require_parent(out, out.absolute().parent)
    made = not out.exists()
    try:
        out.mkdir(exist_ok=True)
    except OSError as error:
        fail(f"cannot write {out}: {error.strerror}.")
    try:
        yield out
    finally:
        if made:
            with suppress(OSError):  # something is in it
                out.rmdir()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM until the block is done; then the first one takes effect."""
    waiting: list[tuple[int, Any]] = []
    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: handler for number, handler in found.items() if callable(handler)}  # not the system's

    def wait(number: int, frame: Any) -> None:
        waiting.append((number, frame))

    try:
        for number in handlers:
            signal.signal(number, wait)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if waiting:
        first, frame = waiting[0]
        handlers[signal.Signals(first)](first, frame)


# Rows

Rows = Iterator[tuple[Any, Array]]  # numbers or names of rows, and the rows of the result


@dataclass
class RowWriter:
    """A writer of the results of a model, row by row as the samples come."""

    data: str  # as the user named it
    source: Source
    what: str  # the name of the results, such as coefficients
    columns: tuple[str, ...]
    place: OutputTarget
    kind: Callable[[Any, outputs.Heading], outputs.Output]
    skip: bool  # bad samples are NaN, and counted
    pictures: bool = False  # results are one file each, and bad samples have none
    origin: outputs.Origin | None = None  # the model, for outputs that describe it
    first_fault: ValueError | None = field(default=None, init=False)
    unread: int = field(default=0, init=False)  # samples that the source could not read
    skipped: int = field(default=0, init=False)  # rows of NaN

    def write(
        self,
        rows_made: Callable[[Callable[[ValueError], None] | None], Rows],
        watch: AbstractContextManager[Show],
        target: AbstractContextManager[Any] | None = None,
    ) -> dict[str, Any]:
        """Write all rows, and return facts about them; ``rows_made`` takes the function that is told of bad samples."""
        source = self.source
        # Rows of samples that cannot be read again are kept at an interrupt.
        keeps, interrupted = not (self.place.standard or source.rewinds), False
        shielded = uninterrupted if keeps else nullcontext
        with first_warnings(), watch as show, ExitStack() as stack:
            place = stack.enter_context(self.place.opened() if target is None else target)
            started, done, named, output = time.perf_counter(), 0, False, None
            try:
                for numbers, found in rows_made(self._note if self.skip else None):
                    rows: Any = source.labels(numbers)
                    if output is None:
                        named = rows.dtype == object
                        output = stack.enter_context(closing(self.kind(place, self._heading(named, found.dtype))))
                    with shielded():
                        output.write(found, rows if named else None)
                        done, self.skipped = done + len(rows), self.skipped + int(np.isnan(found[:, 0]).sum())
                    show(done_so_far(done, source.n_samples, started, skipped=self.skipped))
            except KeyboardInterrupt:
                if not (keeps and done):
                    raise
                interrupted = True
            if output is None or (self.first_fault and self.skipped == done):
                fail(f"{self.data} has no sample that could be read. {self.first_fault or ''}".rstrip())
            if source.n_samples not in (None, done) and not (self.first_fault or interrupted):
                fail(f"{self.data} announced {counted(source.n_samples, 'sample')} but ended after {done}.")
            output.require_whole()
            with shielded():
                stack.close()
        if self.first_fault:
            lost = f", and {self.unread} could not be read" if named and self.unread else ""
            without = "without a picture" if self.pictures else "NaN"
            tell_of_skipped(self.skipped, done, f"{without}{lost}; the first reason: {self.first_fault}")
        elif self.skipped:
            errors.print(
                f"onmf: {self.skipped} of the {counted(done, 'row')} are zeros, so that their proportions are NaN."
            )
        if interrupted:
            errors.print(f"Interrupted after {counted(done, 'sample')}; their {self.what} are in {self.place}.")
            raise typer.Exit(130)
        facts = {self.what: "-" if self.place.standard else self.place.out, "samples": done, "skipped": self.skipped}
        return facts | {"unread": self.unread, "seconds": time.perf_counter() - started}

    def _heading(self, named: bool, dtype: Any) -> outputs.Heading:
        index = (self.source.index_name or "row") if named else None
        safe = self.place.safe_csv
        return outputs.Heading(self.columns, dtype, index, path_of(self.data), origin=self.origin, safe=safe)

    def _note(self, error: ValueError) -> None:
        self.first_fault = self.first_fault or error
        self.unread += isinstance(error, SourceError)


def tell_of_skipped(skipped: int, rows: int, how: str) -> None:
    """Print how many rows have no result, and the reason."""
    errors.print(f"onmf: {skipped} of the {counted(rows, 'row')} {is_or_are(skipped)} {how}")


def tell_of_rows(
    place: OutputTarget, facts: dict[str, Any], columns: int, as_json: bool, pictures: bool = False
) -> None:
    """Print the facts as JSON, or a sentence; the first fact is the name of the results."""
    rows = facts["samples"] - facts["skipped"] if pictures else facts["samples"]
    if as_json:
        print_json(facts)
    else:
        place.say(f"{place}: {next(iter(facts))} of {counted(rows, 'sample')}, {columns} each.")


def opened_for(nmf: onmf.OnlineNMF, data: str, model: str, by: Callable[..., Any] = open_source) -> Any:
    """Open DATA as the model's were, and fail if they have other features than it was learnt from."""
    from onmf.data.columns import Features
    from onmf.data.inputs import require_same_features

    source = opened(data, nmf.source_, by)
    learnt = Features.of(nmf.n_features_in_, getattr(nmf, "feature_names_in_", None))
    require_same_features(Features.of(source.n_features, source.feature_names), learnt, data, model)
    return source


# Pictures


class Pictures(outputs.Output):
    """A folder of pictures of one shape, under the given names or, without them, their numbers.

    Rows of NaN, which stand for samples that were skipped, have no picture.
    """

    def __init__(
        self, place: Path, heading: outputs.Heading, shape: tuple[int, ...], names: Iterable[str] | None
    ) -> None:
        self.folder, self.shape = place, shape
        self.names = (f"sample-{row:06}.png" for row in itertools.count()) if names is None else iter(names)

    def write(self, H: Array, names: Sequence[str] | None) -> None:
        """Save one picture per row."""
        for pixels, name in zip(H, self.names, strict=False):  # in this order, so that no name is lost
            if not np.isnan(pixels).any():
                save_picture(pixels.reshape(self.shape), self.folder / name)

    def close(self) -> None:
        """Do nothing: every picture is complete."""


def save_picture(pixels: Array, path: Path) -> None:
    """Write a picture, grey or RGB, from 0 to 255, in 8 bits, in the format of its suffix."""
    from PIL import Image

    from onmf._support.atomic import replacing

    path.parent.mkdir(parents=True, exist_ok=True)
    form = Image.registered_extensions()[path.suffix.lower()]
    with replacing(path) as place:
        picture = Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8))
        picture.save(place, format=form, **SAVED.get(form, {}))
