"""``onmf transform``: the coefficients of samples in a learnt dictionary."""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import onmf
from onmf import outputs, streams
from onmf._support.wording import counted
from onmf.cli.app import app
from onmf.cli.interrupting import uninterrupted
from onmf.cli.terminal import DATA_HELP, console, errors, fail, is_standard_output, one_line, require_writable
from onmf.cli.watching import LogEvery, LogJson, Metrics, announce, watched

OUT_HELP = (
    f"The file to write H to: {', '.join(outputs.suffixes())}; - writes CSV to standard output. "
    "Text has nine digits of each number."
)
EXAMPLES = (
    "Examples:\n\n"
    "`onmf transform topics.safetensors counts.npz --out weights.npy`\n\n"
    "`tail -f lines.txt | onmf transform topics.safetensors text:- --batch-size 1 --out - | my-program`\n\n"
    "`onmf transform topics.safetensors news.jsonl --proportions --out shares.csv`\n\n"
    "`onmf transform cells.safetensors cells.h5ad --out with-coefficients.h5ad`"
)


@app.command(epilog=EXAMPLES)
def transform(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="A model file written by `onmf fit`.", show_default=False)],
    data: Annotated[str, typer.Argument(help=DATA_HELP, show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help=OUT_HELP, show_default=False)],
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Samples read, solved and written at a time.", show_default="1024; 100 from a pipe"),
    ] = None,
    as_proportions: Annotated[
        bool,
        typer.Option("--proportions", help="Write each atom's share of a sample's fit, rows that sum to one, not H."),
    ] = False,
    on_error: Annotated[
        str, typer.Option(help="What to do with a bad sample: raise (stop with an error) or skip (a row of NaN).")
    ] = "raise",
    log_every: LogEvery = "30s",
    log_json: LogJson = None,
    metrics: Metrics = None,
) -> None:
    """Write the coefficients H of DATA in a learnt dictionary, one row per sample, as the samples come.

    A model that was learnt with --missing or --implicit takes the holes of DATA for unknown, too.
    """
    from onmf.estimators.inputs import require_same_features  # as what is asked of ``onmf``: not needed for --help
    from onmf.estimators.serving import usual_size
    from onmf.learner import Features
    from onmf.learner.usage import proportions
    from onmf.persistence import file

    what = "proportions" if as_proportions else "coefficients"
    if on_error not in ("raise", "skip"):
        fail(f"--on-error must be raise or skip, got {on_error!r}.")
    place = streams.path_of(data)
    standard = is_standard_output(out)
    kind = outputs.kind_of(Path("h.csv") if standard else out)
    if kind is None:
        fail(f"{out}: coefficients are written as {', '.join(outputs.suffixes())}, or as CSV to -.")
    kind.require(place)
    if not standard:
        require_writable(out, place, model)
    nmf = onmf.load(model)
    atoms = counted(len(nmf.components_), "atom")
    announce(context, f"Finding coefficients of {data} in the {atoms} of {model}.", log_every)
    source = streams.open_source(data, like=nmf.source_)
    learnt = Features.of(nmf.n_features_in_, getattr(nmf, "feature_names_in_", None))
    require_same_features(Features.of(source.n_features, source.feature_names), learnt, data, str(model))
    faults, size = _Faults(), batch_size or usual_size(source)
    with (
        _first_warnings(),
        watched(log_every, log_json, metrics, place, model, out) as show,
        ExitStack() as stack,
    ):
        target = stack.enter_context(nullcontext(sys.stdout) if standard else file.replacing(out))
        started, done, named, output = time.perf_counter(), 0, False, None
        # What cannot be read again is kept as far as it came.
        keeps, interrupted = not (standard or source.rewinds), False
        try:
            for rows, H in nmf.served(source, size, faults.add if on_error == "skip" else None):
                H = proportions(H, nmf.components_) if as_proportions else H
                if output is None:
                    named = rows.dtype == object
                    index = (source.index_name or "row") if named else None
                    heading = outputs.Heading(tuple(nmf.get_feature_names_out()), H.dtype, index, place)
                    output = stack.enter_context(closing(kind(target, heading)))
                with uninterrupted() if keeps else nullcontext():
                    output.write(H, rows if named else None)
                    done, faults.gaps = done + len(rows), faults.gaps + int(np.isnan(H[:, 0]).sum())
                told = done, source.n_samples, 0, time.perf_counter() - started, np.nan, nmf.components_
                show(onmf.Progress(*told, skipped=faults.gaps))
        except KeyboardInterrupt:
            if not (keeps and done):
                raise
            interrupted = True
        if output is None or faults.gaps == done:
            fail(f"{data} has no sample that could be read. {faults.first or ''}".rstrip())
        if source.n_samples not in (None, done) and not (faults.first or interrupted):
            fail(f"{data} announced {counted(source.n_samples, 'sample')} but ended after {done}.")
        output.require_whole()
        with uninterrupted() if keeps else nullcontext():
            stack.close()
    if faults.first:
        lost = f", and {faults.unread} could not be read" if named and faults.unread else ""
        gaps = f"{faults.gaps} of the {counted(done, 'row')} {'is' if faults.gaps == 1 else 'are'} NaN"
        errors.print(f"onmf: {gaps}{lost}; the first reason: {faults.first}")
    if interrupted:
        errors.print(f"Interrupted after {counted(done, 'sample')}; their {what} are in {out}.")
        raise typer.Exit(130)
    where = "standard output" if standard else out
    said = f"{where}: {what} of {counted(done, 'sample')}, {len(nmf.components_)} each."
    (errors if standard else console).print(said, soft_wrap=True)


class _Faults:
    """Samples that were left out: how many, and why the first."""

    def __init__(self) -> None:
        self.first: ValueError | None = None
        self.unread = self.gaps = 0  # what a source could not read; rows of NaN

    def add(self, error: ValueError) -> None:
        self.first = self.first or error
        self.unread += isinstance(error, streams.SourceError)


@contextmanager
def _first_warnings() -> Iterator[None]:
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
