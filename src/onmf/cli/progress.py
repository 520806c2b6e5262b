"""How a long run is watched: a bar in a terminal, else a line now and then; JSON Lines; figures for Prometheus."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

import onmf
from onmf._support.wording import plural
from onmf.cli.metrics import serving
from onmf.cli.terminal import errors, fail, progress_line, said, seconds_of

AT_ONCE = 1.0  # seconds

LINES_HELP = (
    "Outside a terminal: how often to write a line about the run to standard error, as in 30s, 5m; never: no lines at "
    "all, not even on what has begun."
)
Every = Annotated[str, typer.Option(help=LINES_HELP)]  # of a command without --log-json
LogEvery = Annotated[
    str,
    typer.Option(help=f"{LINES_HELP} Also how often --log-json writes; never: at the first batch and at the end only."),
]
LogJson = Annotated[
    Path | None, typer.Option(help="Append figures of the run to this file, as JSON Lines.", show_default=False)
]
Metrics = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT",
        help="Serve figures of the run to Prometheus, on this machine only unless a host is given.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Figures:
    """A run at one moment."""

    time: str
    samples: int
    total: int | None
    seconds: float  # since the command has begun
    samples_per_second: float  # since the last report
    loss: float | None  # of the last batch
    drift: float
    changes: int  # of the stream, found in this run
    skipped: int
    memory_bytes: int
    phases: Mapping[str, float] | None = None  # with Dask: seconds that went to reading, learning and merging

    def line(self) -> str:
        """For people."""
        of = f" of {self.total:,}" if self.total else ""
        loss = "" if self.loss is None else f" · loss {self.loss:.5g}"
        memory = f"{self.memory_bytes / 2**20:,.0f} MiB"
        rate = f"{self.samples_per_second:,.0f}/s"
        samples = f"{self.samples:,}{of} {plural(self.total or self.samples, 'sample')}"
        return f"{self.time} {samples} · {rate}{loss}{said(self.phases)} · {self.skipped} skipped · {memory}"


class Watch:
    """Follows a run through its callback, from which any thread may ask for figures."""

    def __init__(self) -> None:
        self.began = self.reported = time.monotonic()
        self.told: tuple[Any, ...] | None = None  # not the arrays: they would be kept longer
        self.phases: Mapping[str, float] | None = None
        self.known = self.changes = 0  # samples at the last report
        self.lock = threading.Lock()

    def __call__(self, progress: onmf.Progress) -> None:
        """The callback of ``fit``."""
        with self.lock:
            if self.told is None:  # a run that goes on has not learnt its first samples now
                self.known = progress.samples - progress.new if progress.new else 0
            self.changes += progress.drifted
            self.told = progress.samples, progress.total, float(progress.loss), progress.drift, progress.skipped
            self.phases = progress.phases

    def figures(self, report: bool = True) -> Figures | None:
        """As they are now; None before the first batch. With ``report``, the rate begins anew."""
        with self.lock:
            if self.told is None:
                return None
            now, (samples, total, loss, drift, skipped) = time.monotonic(), self.told
            rate = (samples - self.known) / max(now - self.reported, 1e-9)
            if report:
                self.reported, self.known = now, samples
            moment = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            known_loss = loss if math.isfinite(loss) else None
            run = samples, total, now - self.began, rate, known_loss, drift, self.changes, skipped
            return Figures(moment, *run, memory_in_use(), self.phases)


def announce(context: typer.Context, what: str, every: str) -> None:
    """Say what has begun, if the command is not over within a second: a pipe may be silent for long.

    A terminal has the bar, and what goes wrong at once is one sentence, not two.
    """
    if errors.is_terminal or _interval(every) == math.inf:
        return
    saying = threading.Timer(AT_ONCE, errors.print, [what])
    saying.daemon = True
    saying.start()
    context.call_on_close(saying.cancel)


def _interval(every: str) -> float:
    """Seconds between two lines."""
    return math.inf if every in ("0", "never") else seconds_of(every, "--log-every") or math.inf


@contextlib.contextmanager
def watched(
    every: str, log: Path | None, metrics: str | None, *files: Path
) -> Iterator[Callable[[onmf.Progress], None]]:
    """Watch a run as the options say; gives its callback. ``files`` are those that the log must not be appended to."""
    interval, watch = _interval(every), Watch()
    with contextlib.ExitStack() as stack:
        journal = None if log is None else stack.enter_context(Journal(log, files))
        if metrics is not None:
            stack.enter_context(serving(metrics, lambda: watch.figures(report=False)))
        bar = stack.enter_context(progress_line()) if errors.is_terminal else None
        over = threading.Event()

        def report(figures: Figures | None) -> None:
            if figures is None:
                return
            if journal is not None:
                journal.write(figures)
            if bar is None and not over.is_set():
                with contextlib.suppress(ValueError):  # standard error may be closed
                    errors.print(figures.line())

        def now_and_then() -> None:
            while not over.wait(min(interval, threading.TIMEOUT_MAX)):
                report(watch.figures())

        def show(progress: onmf.Progress) -> None:
            first = watch.told is None
            watch(progress)
            if bar is not None:
                bar(progress)
            if first and journal is not None and (figures := watch.figures(report=False)):
                journal.write(figures)

        clock = threading.Thread(target=now_and_then, name="onmf-watch", daemon=True)
        clock.start()
        try:
            yield show
        finally:
            over.set()
            clock.join()
            report(watch.figures())


class Journal:
    """Appends figures to a file, one line each. A disk that is full costs lines and one warning, not the run."""

    def __init__(self, path: Path, files: tuple[Path, ...]) -> None:
        if path.resolve() in {each.resolve() for each in files}:
            fail(f"--log-json {path} is a file of the run itself; give it another name.")
        try:
            self.file = open(path, "ab", buffering=0, opener=_without_waiting)  # noqa: SIM115 (closed by __exit__)
        except OSError as error:
            if error.errno == errno.ENXIO:
                fail(f"--log-json {path} is a pipe that nobody reads; start its reader first.")
            fail(f"cannot write {path}: {error.strerror}.")
        self.path, self.torn, self.warned = path, False, False
        self.lock = threading.Lock()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: Any) -> None:
        with contextlib.suppress(OSError):
            self.file.close()

    def write(self, figures: Figures) -> None:
        """One line, at once."""
        line = json.dumps(asdict(figures), allow_nan=False).encode() + b"\n"
        with self.lock:
            content, reason = b"\n" * self.torn + line, ""
            try:
                written = self.file.write(content)
                self.torn = 0 < (written or 0) < len(content)
                if written != len(content):
                    reason = "its reader does not keep up" if written is None else "the disk is full"
            except OSError as error:
                reason = error.strerror or str(error)
            if reason and not self.warned:
                self.warned = True
                with contextlib.suppress(ValueError):
                    errors.print(f"onmf: cannot write {self.path}: {reason}; the run goes on without these lines.")


def _without_waiting(path: str, flags: int) -> int:
    """A pipe must hold up the run neither until somebody reads it, nor when it is full."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)


def memory_in_use() -> int:
    """The resident memory of this process, in bytes; where the system does not tell, its peak."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        import resource
        import sys

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak
