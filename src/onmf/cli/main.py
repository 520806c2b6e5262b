"""The command line: ``onmf fit | transform | info | experiments | demo``."""

from __future__ import annotations

import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import numpy as np
import typer
from rich.table import Table
from rich.text import Text
from sklearn.exceptions import ConvergenceWarning

import onmf
from onmf import streams
from onmf.cli import experiments as experiments_cli
from onmf.cli import fit as fit_cli
from onmf.cli.fit import DATA_HELP
from onmf.cli.terminal import console, errors, fail, one_line, progress_line, require_writable
from onmf.estimators.base import Progress as Report
from onmf.estimators.online import OnlineNMF
from onmf.persistence import file as model_file
from onmf.units import refuse_bad_entries

app = typer.Typer(
    name="onmf",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Online nonnegative matrix factorization with general divergences: X ~ H W, samples as rows.",
)
app.command(epilog=fit_cli.EXAMPLES)(fit_cli.fit)
app.add_typer(experiments_cli.app, name="experiments")

BATCH = 1024


@app.command(epilog="Example:\n\n`onmf transform topics.safetensors counts.npz --out weights.npy`")
def transform(
    model: Annotated[Path, typer.Argument(help="A model file that `onmf fit` wrote.", show_default=False)],
    data: Annotated[str, typer.Argument(help=DATA_HELP, show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file for H: .npy, .csv or .tsv.", show_default=False)],
) -> None:
    """Write the coefficients H of DATA in a learnt dictionary, one row a sample."""
    if out.suffix.lower() not in {".npy", ".csv", ".tsv"}:
        fail(f"{out}: coefficients are written as .npy, .csv or .tsv.")
    require_writable(out, streams.path_of(data), model)
    nmf = onmf.load(model)
    names = getattr(nmf, "feature_names_in_", None)
    source = streams.open_source(data, None if names is None else names.tolist())
    if source.n_samples is None and out.suffix.lower() == ".npy":
        fail(f"{data} does not tell how many samples it has; write coefficients as .csv or .tsv.")
    if source.n_features != nmf.n_features_in_:
        fail(f"{data} has {source.n_features} features, but {model} was learnt from {nmf.n_features_in_}.")
    if names is not None:
        if source.feature_names is not None and source.feature_names != names.tolist():
            fail(f"{data} has other feature names, or another order of them, than {model} was learnt from.")
        del nmf.feature_names_in_  # compared here: batches carry no names
    with _first_warnings(), progress_line() as show, model_file.replacing(out) as temporary:
        started, done = time.perf_counter(), 0
        write = _writer(temporary, out.suffix.lower(), int(source.n_samples or 0), nmf)
        for rows, batch in source.batches(BATCH):
            refuse_bad_entries(batch, rows)
            write(done, nmf.transform(batch))
            done += len(rows)
            show(Report(done, source.n_samples, 0, time.perf_counter() - started, np.nan, nmf.components_))
        if source.n_samples not in (None, done):
            fail(f"{data} announced {source.n_samples} samples and ended after {done}.")
    console.print(f"{out}: coefficients of {done} samples, {len(nmf.components_)} each.", soft_wrap=True)


@app.command(epilog="Example:\n\n`onmf info topics.safetensors`")
def info(model: Annotated[Path, typer.Argument(help="A model file.", show_default=False)]) -> None:
    """Say what a model file holds."""
    nmf = onmf.load(model)
    history = nmf.history_
    parameters = nmf.divergence_.parameters()
    facts = {
        "divergence": " ".join([nmf.divergence_.name, *(f"{k}={_short(v)}" for k, v in parameters.items())]),
        "method": nmf.method_,
        "atoms": len(nmf.components_),
        "features": nmf.n_features_in_,
        "type": nmf.components_.dtype,
        "samples seen": nmf.n_samples_seen_,
        "dictionary updates": nmf.n_steps_,
        "scale (mean of the first batch)": f"{nmf.scale_:.6g}",
        "loss of the first batch": f"{history['loss'][0]:.6g}",
        "loss of the last batch": f"{history['loss'][-1]:.6g}",
        "seconds": f"{history['seconds'][-1]:.1f}",
    }
    table = Table(title=Text(str(model)), show_header=False)
    for name, value in facts.items():
        table.add_row(name, str(value))
    console.print(table)


@app.command(epilog="Example:\n\n`onmf demo --out demo.png`")
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="The picture to write.")] = Path("demo.png"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the noise and of the initial dictionaries.")] = 0,
) -> None:
    """Denoise a photograph, 30 % of whose pixels are noise, with Huber's loss and with squared l2."""
    from onmf.experiments import demo as steps
    from onmf.plots import gallery, require_writable_format, tiles

    require_writable(out)
    require_writable_format(out)
    clean = steps.photograph()
    noisy = steps.add_noise(clean, np.random.default_rng(seed))
    n = len(steps.patches(noisy))
    console.print(
        f"A photograph of {clean.shape[1]} x {clean.shape[0]} pixels, 30 % of them replaced by noise: "
        f"{n} patches of {steps.SIDE} x {steps.SIDE} pixels, streamed once through {steps.COMPONENTS} atoms."
    )
    results = []
    with warnings.catch_warnings():
        # The reconstruction needs no more than the demo asks of the solver; `transform` says so of every sample.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for divergence in steps.DIVERGENCES:
            with progress_line(divergence) as show:
                results.append(steps.denoise(noisy, divergence, seed, show))
    results.append(steps.median(noisy))

    table = Table("", "PSNR, dB", "seconds", "patches/s")
    table.add_row("noisy", f"{steps.psnr(noisy, clean):.1f}", "", "")
    for result in results:
        rate = f"{n / result.seconds:,.0f}" if result.atoms is not None else ""
        table.add_row(result.name, f"{steps.psnr(result.picture, clean):.1f}", f"{result.seconds:.1f}", rate)
    console.print(table)
    titled = [("clean", clean), (f"noisy, {steps.psnr(noisy, clean):.1f} dB", noisy)]
    titled += [(f"{r.name}, {steps.psnr(r.picture, clean):.1f} dB", r.picture) for r in results]
    atoms = results[0].atoms
    if atoms is not None:
        titled.append((f"the {len(atoms)} parts learnt with huber", tiles(atoms, steps.SIDE)))
    gallery(titled, out)
    console.print(f"Wrote {out}.", soft_wrap=True)


def _version(wanted: bool) -> None:
    if wanted:
        console.print(f"onmf {onmf.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version and exit.")
    ] = False,
) -> None:
    """Options of all commands."""


def _writer(path: Path, suffix: str, n_samples: int, nmf: OnlineNMF) -> Callable[[int, Any], None]:
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
    """Of the warnings that come with every block, show the first of each kind, when all is done."""
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
        more = f" (and so in {counts[category] - 1} more blocks of {BATCH} samples)" if counts[category] > 1 else ""
        one_line(f"{message}{more}", category)


def _short(value: Any) -> str:
    return f"matrix {value.shape}" if isinstance(value, np.ndarray) else f"{value:.6g}"


def _terminated(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; errors are one sentence and exit status 2."""
    warnings.showwarning = one_line
    signal.signal(signal.SIGTERM, _terminated)
    try:
        sys.exit(app(standalone_mode=False))
    except (ValueError, OSError, MemoryError, ModuleNotFoundError) as error:
        errors.print(f"onmf: {str(error) or type(error).__name__}")
        sys.exit(2)
    except Exception as error:
        # Typer's own refusals of arguments; told by their method, since Typer keeps its Click where it likes.
        if not hasattr(error, "format_message"):
            raise
        text = error.format_message()
        if text.startswith("Usage:") or not text.strip():  # no command given: the help has been asked for
            console.print(text)
        else:
            errors.print(f"onmf: {text.rstrip('.')}. See onmf --help.")
        sys.exit(2)
