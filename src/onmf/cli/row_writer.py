"""``onmf transform`` and ``onmf inverse`` alike: what a model makes of each sample, written as the samples come."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer

import onmf
from onmf import data as streams
from onmf._support.arrays import Array
from onmf._support.wording import counted
from onmf.cli.as_json import print_json
from onmf.cli.interrupting import uninterrupted
from onmf.cli.terminal import console, errors, fail, one_line
from onmf.data import sinks as outputs

Pairs = Iterator[tuple[Any, Array]]  # numbers or names of rows, and what was made of them
Serve = Callable[[Callable[[ValueError], None] | None], Pairs]  # told of bad rows, if they are to be skipped


@dataclass(frozen=True)
class Job:
    """Rows of DATA that a model makes something of, and where it goes."""

    model: onmf.OnlineNMF
    source: streams.Source
    data: str  # as the user named it
    what: str  # the rows of the result are
    columns: tuple[str, ...]
    kind: Callable[[Any, outputs.Heading], outputs.Output]
    out: Path | None  # None: standard output
    pictures: bool = False  # one file each, and none of bad rows, which are NaN elsewhere
    origin: outputs.Origin | None = None  # for outputs that tell of the model

    def write(
        self,
        serve: Serve,
        place: AbstractContextManager[Any],
        watch: AbstractContextManager[Callable[[onmf.Progress], None]],
        skip: bool,
    ) -> dict[str, Any]:
        """Write all rows, and give the facts of it; under ``skip``, bad ones are NaN and counted at the end."""
        source, faults = self.source, Faults()
        with first_warnings(), watch as show, ExitStack() as stack:
            target = stack.enter_context(place)
            started, done, named, output = time.perf_counter(), 0, False, None
            # What cannot be read again is kept as far as it came.
            keeps, interrupted = self.out is not None and not source.rewinds, False
            try:
                for rows, found in serve(faults.add if skip else None):
                    if output is None:
                        named = rows.dtype == object
                        index = (source.index_name or "row") if named else None
                        data = streams.path_of(self.data)
                        heading = outputs.Heading(self.columns, found.dtype, index, data, origin=self.origin)
                        output = stack.enter_context(closing(self.kind(target, heading)))
                    with uninterrupted() if keeps else nullcontext():
                        output.write(found, rows if named else None)
                        done, faults.gaps = done + len(rows), faults.gaps + int(np.isnan(found[:, 0]).sum())
                    told = done, source.n_samples, 0, time.perf_counter() - started, np.nan, self.model.components_
                    show(onmf.Progress(*told, skipped=faults.gaps))
            except KeyboardInterrupt:
                if not (keeps and done):
                    raise
                interrupted = True
            if output is None or faults.gaps == done:
                fail(f"{self.data} has no sample that could be read. {faults.first or ''}".rstrip())
            if source.n_samples not in (None, done) and not (faults.first or interrupted):
                fail(f"{self.data} announced {counted(source.n_samples, 'sample')} but ended after {done}.")
            output.require_whole()
            with uninterrupted() if keeps else nullcontext():
                stack.close()
        self._tell_of_gaps(done, named, faults, interrupted)
        facts = {self.what: self.out or "-", "samples": done, "gaps": faults.gaps}
        return facts | {"unread": faults.unread, "seconds": time.perf_counter() - started}

    def _tell_of_gaps(self, done: int, named: bool, faults: Faults, interrupted: bool) -> None:
        if faults.first:
            lost = f", and {faults.unread} could not be read" if named and faults.unread else ""
            gaps = f"{faults.gaps} of the {counted(done, 'row')} {'is' if faults.gaps == 1 else 'are'} "
            gaps += "without a picture" if self.pictures else "NaN"
            errors.print(f"onmf: {gaps}{lost}; the first reason: {faults.first}")
        if interrupted:
            errors.print(f"Interrupted after {counted(done, 'sample')}; their {self.what} are in {self.out}.")
            raise typer.Exit(130)

    def tell(self, facts: dict[str, Any], as_json: bool) -> None:
        """What was written, and where to."""
        if as_json:
            print_json(facts)
            return
        where = "standard output" if self.out is None else self.out
        written = facts["samples"] - facts["gaps"] if self.pictures else facts["samples"]
        said = f"{where}: {self.what} of {counted(written, 'sample')}, {len(self.columns)} each."
        (errors if self.out is None else console).print(said, soft_wrap=True)


class Faults:
    """Samples that were left out: how many, and why the first."""

    def __init__(self) -> None:
        self.first: ValueError | None = None
        self.unread = self.gaps = 0  # what a source could not read; rows of NaN

    def add(self, error: ValueError) -> None:
        """Count it, and remember the first."""
        self.first = self.first or error
        self.unread += isinstance(error, streams.SourceError)


def skips(on_error: str) -> bool:
    """Are bad samples to be skipped?"""
    if on_error not in ("raise", "skip"):
        fail(f"--on-error must be raise or skip, got {on_error!r}.")
    return on_error == "skip"


@contextmanager
def first_warnings() -> Iterator[None]:
    """Of warnings that every block repeats, show the first of each kind, once all is done."""
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
        one_line(f"{message}{more}", category)
