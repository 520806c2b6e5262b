"""``onmf transform``: the coefficients of samples in a learnt dictionary."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import onmf
from onmf import streams
from onmf.cli.app import app
from onmf.cli.terminal import DATA_HELP, console, fail, one_line, require_writable
from onmf.cli.watching import LogEvery, LogJson, Metrics, watched
from onmf.units import refuse_bad_entries

BATCH = 1024


@app.command(epilog="Example:\n\n`onmf transform topics.safetensors counts.npz --out weights.npy`")
def transform(
    model: Annotated[Path, typer.Argument(help="A model file written by `onmf fit`.", show_default=False)],
    data: Annotated[str, typer.Argument(help=DATA_HELP, show_default=False)],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The file to write H to: .npy, .csv or .tsv.", show_default=False)
    ],
    log_every: LogEvery = "30s",
    log_json: LogJson = None,
    metrics: Metrics = None,
) -> None:
    """Write the coefficients H of DATA in a learnt dictionary, one row per sample."""
    from onmf.persistence import file  # as what is asked of ``onmf``: not needed for --help

    if out.suffix.lower() not in {".npy", ".csv", ".tsv"}:
        fail(f"{out}: coefficients are written as .npy, .csv or .tsv.")
    require_writable(out, streams.path_of(data), model)
    nmf = onmf.load(model)
    names = getattr(nmf, "feature_names_in_", None)
    source = streams.open_source(data, None if names is None else names.tolist())
    if source.n_samples is None and out.suffix.lower() == ".npy":
        fail(f"{data} does not say how many samples it has, which .npy has to know; write .csv or .tsv instead.")
    if source.n_features != nmf.n_features_in_:
        fail(f"{data} has {source.n_features} features, but {model} was learnt from {nmf.n_features_in_}.")
    if names is not None and source.feature_names is not None and source.feature_names != names.tolist():
        fail(f"the feature names of {data} differ from those that {model} was learnt from, or are in another order.")
    files = streams.path_of(data), model, out
    with _first_warnings(), watched(log_every, log_json, metrics, *files) as show, file.replacing(out) as temporary:
        started, done = time.perf_counter(), 0
        write = _writer(temporary, out.suffix.lower(), int(source.n_samples or 0), nmf)
        for rows, batch in source.batches(BATCH):
            refuse_bad_entries(batch, rows)
            write(done, nmf.transform(batch))
            done += len(rows)
            show(onmf.Progress(done, source.n_samples, 0, time.perf_counter() - started, np.nan, nmf.components_))
        if source.n_samples not in (None, done):
            fail(f"{data} announced {source.n_samples} samples but ended after {done}.")
    console.print(f"{out}: coefficients of {done} samples, {len(nmf.components_)} each.", soft_wrap=True)


def _writer(path: Path, suffix: str, n_samples: int, nmf: onmf.OnlineNMF) -> Callable[[int, Any], None]:
    """A function that appends rows of H to the file, without holding the earlier ones."""
    if suffix == ".npy":
        H: Any = None

        def write_rows(first: int, block: Any) -> None:
            nonlocal H
            if H is None:
                H = np.lib.format.open_memmap(path, "w+", dtype=block.dtype, shape=(n_samples, block.shape[1]))
            H[first : first + len(block)] = block

        return write_rows
    delimiter = "\t" if suffix == ".tsv" else ","
    path.write_text(delimiter.join(nmf.get_feature_names_out()) + "\n", encoding="utf-8")

    def write_lines(first: int, block: Any) -> None:
        with path.open("a", encoding="utf-8") as file:
            np.savetxt(file, block, delimiter=delimiter, fmt="%.9g")

    return write_lines


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
        warnings.filterwarnings("ignore", message="X does not have valid feature names")  # compared with the source's
        warnings.showwarning = count
        yield
    for category, message in first.items():
        more = f" (likewise in {counts[category] - 1} more blocks of {BATCH} samples)" if counts[category] > 1 else ""
        one_line(f"{message}{more}", category)
