"""The command line: ``onmf fit | transform | info | experiments | demo``."""

from __future__ import annotations

import signal
import sys
import time
import warnings
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
from onmf import divergences, experiments_cli, methods, model_file, streams
from onmf.estimator import OnlineNMF
from onmf.fitted import Progress as Report
from onmf.initial import INITS
from onmf.terminal import console, errors, fail, one_line, progress_line, require_writable
from onmf.units import refuse_bad_entries

app = typer.Typer(
    name="onmf",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Online nonnegative matrix factorization with general divergences: X ~ H W, samples as rows.",
)
app.add_typer(experiments_cli.app, name="experiments")

DATA_HELP = "Samples as rows: .npy (memory-mapped), .npz (scipy sparse), .csv or .tsv (a first line may name features)."
DIVERGENCE_HELP = f"One of {', '.join(divergences.names())}, parameters after a colon: beta:1.5, huber:0.1."
BATCH = 1024


@app.command(
    epilog="Examples:\n\n"
    "`onmf fit counts.npz -k 20 --out topics.safetensors`\n\n"
    "`onmf fit spectra.npy -k 12 --divergence is --no-shuffle --reservoir 500 --out music.safetensors`\n\n"
    "`onmf fit pixels.csv --divergence huber --passes 5 --seed 0 --out parts.safetensors`\n\n"
    "`onmf fit spectra.npy --divergence is --method lefevre --option r=0.9 --out old.safetensors`"
)
def fit(
    data: Annotated[Path, typer.Argument(help=DATA_HELP, show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The model file to write.", show_default=False)],
    components: Annotated[int, typer.Option("--components", "-k", min=1, help="Number of atoms K.")] = 40,
    divergence: Annotated[str, typer.Option("--divergence", "-d", help=DIVERGENCE_HELP)] = "kl",
    method: Annotated[
        str, typer.Option(help=f"One of auto, {', '.join(methods.METHODS)}; paper is the one with a theorem.")
    ] = "auto",
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Samples read at a time.", show_default="max(5 K, 200)")
    ] = None,
    passes: Annotated[int, typer.Option(min=1, help="Passes over the data.")] = 1,
    init: Annotated[str, typer.Option(help=f"Initial dictionary: {', '.join(INITS)}.")] = "kmeans++",
    shuffle: Annotated[bool, typer.Option(help="Shuffle each pass; .csv and .tsv are read in their order.")] = True,
    forgetting: Annotated[
        float, typer.Option(help="For streams that drift: the least weight of a new chunk, in [0, 1).")
    ] = 0.0,
    reservoir: Annotated[
        int, typer.Option(min=0, help="For data in temporal order: old samples to keep and mix with new ones.")
    ] = 0,
    a: Annotated[
        float, typer.Option("--a", help="Step of method paper: a / (samples + b); smaller if the loss rises.")
    ] = 2e4,
    b: Annotated[float, typer.Option("--b", help="See --a.")] = 2e4,
    option: Annotated[
        list[str] | None,
        typer.Option(help="A constant of the methods lefevre, guan and wang, as NAME=NUMBER; may be repeated."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Makes the run repeatable to the bit.")] = None,
) -> None:
    """Learn a dictionary from DATA and write it to a model file."""
    require_writable(out, data)
    source = streams.open_file(data)
    model = OnlineNMF(
        components,
        divergence=divergence,
        method=method,
        batch_size=batch_size,
        max_passes=passes,
        shuffle=shuffle,
        init=init,
        forgetting=forgetting,
        reservoir=reservoir,
        a=a,
        b=b,
        options=_numbers(option or []),
        random_state=seed,
    )
    with progress_line() as show:
        model.set_params(callbacks=[show])
        try:
            model.fit(source)
        except KeyboardInterrupt:
            _save_interrupted(model, out)
    model.set_params(callbacks=None)
    onmf.save(model, out)
    history = model.history_
    console.print(
        f"{out}: {len(model.components_)} atoms of {model.n_features_in_} features from {model.n_samples_seen_} "
        f"samples in {history['seconds'][-1]:.1f} s; last batch's loss {history['loss'][-1]:.6g}.",
        soft_wrap=True,
    )


@app.command(epilog="Example:\n\n`onmf transform topics.safetensors counts.npz --out weights.npy`")
def transform(
    model: Annotated[Path, typer.Argument(help="A model file that `onmf fit` wrote.", show_default=False)],
    data: Annotated[Path, typer.Argument(help=DATA_HELP, show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file for H: .npy, .csv or .tsv.", show_default=False)],
) -> None:
    """Write the coefficients H of DATA in a learnt dictionary, one row a sample."""
    if out.suffix.lower() not in {".npy", ".csv", ".tsv"}:
        fail(f"{out}: coefficients are written as .npy, .csv or .tsv.")
    require_writable(out, data, model)
    nmf = onmf.load(model)
    source = streams.open_file(data)
    if source.n_features != nmf.n_features_in_:
        fail(f"{data} has {source.n_features} features, but {model} was learnt from {nmf.n_features_in_}.")
    names = getattr(nmf, "feature_names_in_", None)
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
    from onmf import demo as steps
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
    del version


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
        del first
        with path.open("a", encoding="utf-8") as file:
            np.savetxt(file, block, delimiter=delimiter, fmt="%.9g")

    return write_lines


@contextmanager
def _first_warnings() -> Iterator[None]:
    """Of the warnings that come with every block, show the first of each kind, when all is done."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for category in dict.fromkeys(warning.category for warning in caught):
        alike = [warning.message for warning in caught if warning.category is category]
        more = f" (and so in {len(alike) - 1} more blocks of {BATCH} samples)" if len(alike) > 1 else ""
        one_line(f"{alike[0]}{more}", category)


def _save_interrupted(model: OnlineNMF, out: Path) -> NoReturn:
    """Keep what was learnt before Ctrl-C or SIGTERM."""
    if hasattr(model, "components_"):
        onmf.save(model.set_params(callbacks=None), out)
        errors.print(f"Interrupted after {model.n_samples_seen_} samples; what was learnt is in {out}.")
    else:
        errors.print("Interrupted before anything was learnt.")
    raise typer.Exit(130)


def _numbers(options: list[str]) -> dict[str, float] | None:
    """What ``--option NAME=NUMBER`` has given; whole numbers stay whole."""
    found: dict[str, float] = {}
    for text in options:
        name, equals, value = text.partition("=")
        try:
            number = float(value)
        except ValueError:
            equals = ""
        if not equals:
            fail(f"--option {text}: write NAME=NUMBER, as in --option r=0.9.")
        found[name.strip()] = int(number) if number.is_integer() else number
    return found or None


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
