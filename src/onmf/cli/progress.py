"""The progress of a long run: a bar in a terminal or a line now and then, JSON Lines, and Prometheus."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

import onmf
from onmf._support.wording import counted, plural
from onmf.cli.terminal import errors, fail, visible
from onmf.data import Spec, open_source, shuffle

Show: TypeAlias = "Callable[[onmf.Progress], None]"

AT_ONCE = 1.0
LOOPBACK = "127.0.0.1"
MOST_CLIENTS = 16  # of --metrics, at a time
DURATION = re.compile(r"(\d+\.?\d*|\.\d+)(ms|s|m|h)", re.ASCII)
PATIENCE = 5.0  # seconds, with a client that is silent
SHUFFLED = 10_000  # lines, some ten megabytes of texts
LINES = {"csv", "jsonl", "text", "tsv"}  # formats that are often sorted, and are read from their beginning anyway
NOTHING = np.empty((0, 0))  # stands for the dictionary where nothing is learnt

PANEL = "Progress"  # of the help
LINES_HELP = (
    "Outside a terminal, write a line about the run to standard error this often, such as 30s or 5m; 'never' turns "
    "these lines off."
)
Every = Annotated[str, typer.Option(help=LINES_HELP, metavar="TIME", rich_help_panel=PANEL)]  # without --log-json
LogEvery = Annotated[
    str,
    typer.Option(
        help=f"{LINES_HELP} --log-json follows the same interval; with 'never' it writes after the first batch and at "
        "the end.",
        metavar="TIME",
        rich_help_panel=PANEL,
    ),
]
LogJson = Annotated[
    Path | None,
    typer.Option(
        help="Append statistics of the run to this file, as JSON Lines.", show_default=False, rich_help_panel=PANEL
    ),
]
Metrics = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT",
        help="Serve statistics of the run to Prometheus, on this machine only unless you name a host.",
        rich_help_panel=PANEL,
        show_default=False,
    ),
]


def seconds_of(text: str, option: str) -> float:
    """Return the seconds of ``300ms``, ``30s``, ``5m`` and ``1h``."""
    units = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
    found = DURATION.fullmatch(text)
    if found is None:
        fail(f"{option} {text}: write a number and ms, s, m or h, as in 30s.")
    return float(found[1]) * units[found[2]]


def _interval(every: str) -> float:
    """Return the seconds between two lines."""
    return math.inf if every in ("0", "never") else seconds_of(every, "--log-every") or math.inf


def announce(context: typer.Context, what: str, every: str) -> None:
    """Say what the command does, if it is not over within a second: a pipe may be silent for long.

    A terminal has the bar, and an error within the second is one sentence, not two.
    """
    if errors.is_terminal or _interval(every) == math.inf:
        return
    saying = threading.Timer(AT_ONCE, errors.print, [what])
    saying.daemon = True
    saying.start()
    context.call_on_close(saying.cancel)


def opened(data: str, like: Spec | None, by: Callable[..., Any] = open_source) -> Any:
    """Open DATA by this function, with a sign of life in a terminal: counting the words of many texts takes a while."""
    with errors.status(Text(visible(f"Opening {data}"))) if errors.is_terminal else contextlib.nullcontext():
        return by(data, like=like)


def mixed(source: Any, seed: int | None) -> Any:
    """Return the source with its rows in random order as far as a little memory goes, if it has lines of a file.

    Lines come by author, subject, class or date, and components learnt in that order are poor.
    """
    of_lines = source.spec is not None and source.spec.scheme in LINES
    return shuffle(source, SHUFFLED, seed or 0) if of_lines and source.rewinds and not source.any_order else source


def done_so_far(samples: int, total: int | None, started: float, **more: Any) -> onmf.Progress:
    """Return the progress of a command that reads samples and learns nothing."""
    return onmf.Progress(samples, total, 0, time.perf_counter() - started, math.nan, NOTHING, **more)


# The bar


@contextlib.contextmanager
def progress_line(title: str = "") -> Iterator[Show]:
    """Show a live line with samples, samples/s, the running loss and the time left; give the function to update it."""
    with progress_bar(TextColumn("{task.fields[facts]}")) as bar:
        task = bar.add_task(title, total=None, facts="")

        def show(report: onmf.Progress) -> None:
            samples, rate = counted(report.samples, "sample", ","), report.samples / max(report.seconds, 1e-9)
            facts = _facts(samples, rate, None if math.isnan(report.loss) else report.loss, report.phases)
            bar.update(task, completed=report.samples, total=report.total, facts=facts)

        yield show


def progress_bar(*columns: ProgressColumn) -> Progress:
    """Return a bar on standard error, with these columns between it and the time left."""
    return Progress(TextColumn("{task.description}"), BarColumn(), *columns, TimeRemainingColumn(), console=errors)


@contextlib.contextmanager
def fits_watched() -> Iterator[Callable[[Any], None]]:
    """Show a bar of many fits in a terminal, elsewhere a line after every fit."""
    if not errors.is_terminal:
        yield lambda trial: errors.print(f"fit {trial.done} of {trial.total}: rank {trial.rank}, loss {trial.loss:.6g}")
        return
    with progress_bar(MofNCompleteColumn()) as bar:
        task = bar.add_task("fits", total=None)

        def show(trial: Any) -> None:
            said = f"rank {trial.rank} · loss {trial.loss:.5g}"
            bar.update(task, description=said, completed=trial.done, total=trial.total)

        yield show


def _facts(samples: str, rate: float, loss: float | None, phases: Mapping[str, float] | None) -> str:
    """Return the facts that a bar and a line have in common; ``phases`` are the seconds of a run with Dask."""
    facts = f"{samples} · {rate:,.0f}/s" + ("" if loss is None else f" · loss {loss:.5g}")
    spent = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in (phases or {}).items())
    return f"{facts} · {spent}" if spent else facts


# Figures

Figures = dict[str, Any]  # a run at one moment


def _line(now: Figures) -> str:
    """Return a line of figures for people."""
    of = f" of {now['total']:,}" if now["total"] else ""
    samples = f"{now['samples']:,}{of} {plural(now['total'] or now['samples'], 'sample')}"
    facts = _facts(samples, now["samples_per_second"], now["loss"], now["phases"])
    return f"{now['time']} {facts} · {now['skipped']} skipped · {now['memory_bytes'] / 2**20:,.0f} MiB"


class Watch:
    """A callback that follows a run; any thread may ask it for figures."""

    def __init__(self, keep: onmf.Checkpoint | None = None) -> None:
        self.keep, self.began = keep, time.monotonic()
        self.reported = self.began
        self.last: onmf.Progress | None = None  # without its arrays, which would be kept longer
        self.seen = self.changes = 0  # samples at the last report
        self.lock = threading.Lock()

    def __call__(self, progress: onmf.Progress) -> None:
        """Take the progress of a batch."""
        with self.lock:
            if self.last is None:  # a run that is resumed has not learnt its first samples now
                self.seen = progress.samples - progress.new if progress.new else 0
            self.changes += progress.drifted
            self.last = replace(progress, W=NOTHING, H=None)

    def figures(self, report: bool = True) -> Figures | None:
        """Return the figures as they are now; None before the first batch. With ``report``, the rate begins anew."""
        with self.lock:
            now, last = time.monotonic(), self.last
            if last is None:
                return None
            rate = (last.samples - self.seen) / max(now - self.reported, 1e-9)
            if report:
                self.reported, self.seen = now, last.samples
            return {
                "time": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
                "samples": last.samples,
                "total": last.total,
                "seconds": now - self.began,  # since the command has begun
                "samples_per_second": rate,  # since the last report
                "loss": float(last.loss) if math.isfinite(last.loss) else None,  # of the last batch
                "drift": last.drift,
                "changes": self.changes,  # of the stream, found in this run
                "skipped": last.skipped,
                "memory_bytes": memory_in_use(),
                "checkpoint_age_seconds": self.keep and self.keep.age,
                "phases": last.phases,  # with Dask: seconds that went to reading, learning and merging
            }


@contextlib.contextmanager
def watched(
    every: str, log: Path | None, metrics: str | None, *files: Path | None, keep: onmf.Checkpoint | None = None
) -> Iterator[Show]:
    """Watch a run as the options say, and give its callback; the log must not be one of ``files``."""
    interval, watch = _interval(every), Watch(keep)
    with contextlib.ExitStack() as stack:
        json_log = None if log is None else stack.enter_context(JsonLog(log, files))
        if metrics is not None:
            stack.enter_context(serve_metrics(metrics, lambda: watch.figures(report=False)))
        bar = stack.enter_context(progress_line()) if errors.is_terminal else None
        over = threading.Event()

        def report(figures: Figures | None) -> None:
            if figures is None:
                return
            if json_log is not None:
                json_log.write(figures)
            if bar is None and not over.is_set():
                with contextlib.suppress(ValueError):  # standard error may be closed
                    errors.print(_line(figures))

        def now_and_then() -> None:
            while not over.wait(min(interval, threading.TIMEOUT_MAX)):
                report(watch.figures())

        def show(progress: onmf.Progress) -> None:
            first = watch.last is None
            watch(progress)
            if bar is not None:
                bar(progress)
            if first and json_log is not None and (figures := watch.figures(report=False)):
                json_log.write(figures)

        clock = threading.Thread(target=now_and_then, name="onmf-watch", daemon=True)
        clock.start()
        try:
            yield show
        finally:
            over.set()
            clock.join()
            report(watch.figures())


def memory_in_use() -> int:
    """Return the resident memory of this process, in bytes; where the system does not tell, its peak."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


# JSON Lines


class JsonLog(contextlib.AbstractContextManager["JsonLog"]):
    """A file of figures, one line each; a disk that is full costs lines and one warning, not the run.

    A file that was moved or removed, as by logrotate, is opened anew under its name.
    """

    def __init__(self, path: Path, files: tuple[Path | None, ...]) -> None:
        if path.resolve() in {each.resolve() for each in files if each is not None}:
            fail(f"--log-json {path} is a file of the run itself; give it another name.")
        try:
            self.file = open(path, "ab", buffering=0, opener=_without_waiting)  # noqa: SIM115 (closed by __exit__)
        except OSError as error:
            if error.errno == errno.ENXIO:
                fail(f"--log-json {path} is a pipe that nobody reads; start its reader first.")
            fail(f"cannot write {path}: {error.strerror}.")
        self.path, self.torn, self.warned = path, False, False
        self.lock = threading.Lock()

    def __exit__(self, *_: Any) -> None:
        with contextlib.suppress(OSError):
            self.file.close()

    def write(self, figures: Figures) -> None:
        """Write one line, at once."""
        line = json.dumps(figures, allow_nan=False).encode() + b"\n"
        with self.lock:
            reason = ""
            try:
                self._reopen_if_moved()
                content = b"\n" * self.torn + line
                written = self.file.write(content)
                self.torn = 0 < (written or 0) < len(content)
                if written != len(content):
                    reason = "its reader does not keep up" if written is None else "the disk is full"
            except OSError as error:
                reason = error.strerror or str(error)
            if reason and not self.warned:
                self.warned = True
                with contextlib.suppress(ValueError):
                    errors.print(f"onmf: cannot write {self.path}: {reason}; the run continues without these lines.")

    def _reopen_if_moved(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(self.path), os.fstat(self.file.fileno())):
                return
        new = open(self.path, "ab", buffering=0, opener=_without_waiting)  # noqa: SIM115 (closed by __exit__)
        self.file.close()
        self.file, self.torn = new, False


def _without_waiting(path: str, flags: int) -> int:
    """Open a file or a pipe without blocking: the run waits neither for a reader nor for room in a full pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)


# Prometheus

GAUGES = {
    "checkpoint_age_seconds": "Seconds since the checkpoint was written, as it is whenever something was learnt since",
    "loss": "Mean loss of the last batch before it was learnt from",
    "drift": "How much worse, or far better, new samples are fitted than earlier ones, up to 1: the stream has changed",
    "memory_bytes": "Resident memory",
    "samples_per_second": "Samples per second since the last line of the log",
}
COUNTERS = {
    "samples": "Samples learnt from, or transformed",
    "skipped": "Samples or batches left out",
    "changes": "Changes of the stream that were found",
}


class MetricsServer(ThreadingHTTPServer):
    """A server for a few clients at a time, whose faults are silent and never end the run.

    A client that finds no place is hung up on, so that neither descriptors nor threads run out.
    """

    request_queue_size = 128  # clients that wait in the system, and take nothing

    def __init__(self, host: str, port: int, handler: Any) -> None:
        self.places = threading.Semaphore(MOST_CLIENTS)
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), handler)

    def get_request(self) -> Any:
        """Accept a client; if that is not possible, as without descriptors, let some time pass before the next try."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(AT_ONCE)
            raise

    def verify_request(self, *_: Any) -> bool:
        """Tell whether there is a place for this client, and take it."""
        return self.places.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a client, and give its place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.places.release()

    def handle_error(self, *_: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serve_metrics(address: str, figures: Callable[[], Figures | None]) -> Iterator[None]:
    """Serve the figures in Prometheus' text format at this [HOST:]PORT, as they are at the time of a request."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or LOOPBACK
    if not (port.isascii() and port.isdecimal() and int(port) < 2**16):
        fail(f"--metrics {address}: write a port, or HOST:PORT, as in 9100 or 0.0.0.0:9100.")
    try:
        from prometheus_client import CollectorRegistry, MetricsHandler
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    except ModuleNotFoundError:
        fail("--metrics needs prometheus_client; install onmf[metrics].")

    class Run:
        """The collector that the library asks for figures."""

        def collect(self) -> Iterator[Any]:
            now = figures()
            for kinds, family in ((GAUGES, GaugeMetricFamily), (COUNTERS, CounterMetricFamily)):
                for name, meaning in kinds.items():
                    value = None if now is None else now[name]
                    if value is not None:  # there is no loss before the first batch, and none of a transform
                        yield family(f"onmf_{name}", meaning, value=value)

    registry = CollectorRegistry()
    registry.register(Run())
    handler = type("Handler", (MetricsHandler,), {"registry": registry, "timeout": PATIENCE})
    try:
        server = MetricsServer(host, int(port), handler)
    except OSError as error:
        fail(f"--metrics {address}: cannot listen on {host}, port {port}: {error.strerror}; give another one.")
    thread = threading.Thread(target=server.serve_forever, name="onmf-metrics", daemon=True)
    thread.start()
    shown = f"[{host}]" if ":" in host else host
    errors.print(f"Metrics at http://{shown}:{server.server_port}/metrics.")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
