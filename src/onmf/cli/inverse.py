"""The command ``onmf inverse``: write the fits of samples, or components, as numbers or as pictures."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import onmf
from onmf._support.arrays import Array
from onmf._support.wording import counted
from onmf.cli import command
from onmf.cli.options import DATA_HELP, AsJson, BatchSize, Model, Module, SafeCsv, with_settings
from onmf.cli.output import OutputTarget, Pictures, RowWriter, folder, opened_for, save_picture, tell_of_rows
from onmf.cli.progress import LogEvery, LogJson, Metrics, announce, watched
from onmf.cli.terminal import console, fail, print_json
from onmf.data import Source, Spec, open_source, outputs, path_of
from onmf.insight.features import column_names

NUMBERS = 2**24  # in the fits that are written at a time, of which each may be long
SUFFIXES = outputs.suffixes(of_samples=True)
FILES = ", ".join(SUFFIXES)
OUT_HELP = (
    f"The file for HW: {FILES}; - writes CSV to standard output. For a model learnt from pictures, a folder gets one "
    "picture per sample."
)


@command(
    "Apply a model",
    "onmf inverse parts.safetensors images:noisy --out denoised",
    "onmf inverse plant.safetensors readings.csv --out fitted.csv",
    "onmf inverse plant.safetensors H.npy --coefficients --out fitted.npy",
    "onmf inverse parts.safetensors --components --out components",
)
@with_settings("on_error")
def inverse(
    context: typer.Context,
    model: Model,
    data: Annotated[str | None, typer.Argument(help=DATA_HELP, show_default=False)] = None,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help=OUT_HELP, show_default=False)],
    coefficients: Annotated[
        bool, typer.Option("--coefficients", help="DATA holds coefficients H, as `onmf transform` writes them.")
    ] = False,
    components: Annotated[
        bool,
        typer.Option("--components", help="Write the components as pictures instead, each scaled to full brightness."),
    ] = False,
    batch_size: BatchSize = None,
    module: Module = None,
    log_every: LogEvery = "30s",
    log_json: LogJson = None,
    metrics: Metrics = None,
    safe_csv: SafeCsv = False,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Write the fits HW of DATA in its own units, one row per sample.

    A fit lacks what the components cannot express: noise, scratches, outliers. Fits of pictures are pictures in the
    size that the model learnt, under the names of their files. With --on-error skip, a bad sample is a row of NaN, or
    has no picture.
    """
    from onmf.estimators.streaming import usual_size  # not needed for --help

    if (data is None) != components:
        fail("give either DATA or --components.")
    nmf = onmf.load(model)
    in_folder = _is_folder(out)
    shape = nmf.source_.picture if in_folder else None
    if in_folder and shape is None:
        fail(f"{model} was not learnt from pictures; give --out a file: {FILES}, or -.")
    if data is None:
        if shape is None:
            fail(f"--components writes pictures to a folder, not to {out}.")
        _write_components(nmf.components_, shape, out, as_json)
        return
    place, path = OutputTarget(out, as_json, safe_csv=safe_csv), path_of(data)
    kind: Any = None
    if not in_folder:
        kind = place.kind("samples", SUFFIXES, path)
        place.require_writable(path, model)
    announce(context, f"Fitting {data} by the {counted(len(nmf.components_), 'component')} of {model}.", log_every)
    source = _opened(data, nmf, str(model), coefficients)
    if shape is not None:
        kind = partial(Pictures, shape=shape, names=_names(source, out))
    columns = tuple(column_names(nmf))
    skip = settings["on_error"] == "skip"
    writer = RowWriter(data, source, "fits", columns, place, kind, skip, pictures=in_folder)
    size = batch_size or min(usual_size(source), max(1, NUMBERS // nmf.n_features_in_))
    facts = writer.write(
        lambda on_bad: nmf.reconstructed(source, size, on_bad, coefficients),
        watched(log_every, log_json, metrics, path, model, out),
        folder(out) if in_folder else None,
    )
    tell_of_rows(place, facts | {"features": len(columns)}, len(columns), as_json, pictures=in_folder)


def _is_folder(out: Path) -> bool:
    """Return whether it is a folder, or will be one, since it has no suffix."""
    return str(out) != "-" and (out.is_dir() or not (out.suffix or out.exists()))


def _opened(data: str, nmf: onmf.OnlineNMF, model: str, coefficients: bool) -> Any:
    """Open samples, read as the model's were, or coefficients, under the names that they were written with."""
    if not coefficients:
        return opened_for(nmf, data, model)
    names = tuple(nmf.get_feature_names_out())
    source = open_source(data, like=Spec(names=names))
    if source.n_features != len(names) or (source.feature_names is not None and tuple(source.feature_names) != names):
        fail(f"{data} does not hold coefficients of {model}, whose columns are {names[0]} to {names[-1]}.")
    return source


def _names(source: Source, out: Path) -> list[str] | None:
    """Return the names of the files of a source of pictures, which must not be replaced."""
    if source.spec is None or source.spec.scheme != "images" or source.files is None:
        return None
    for name, path in source.files.items():
        if (out / name).resolve() == path.resolve():
            fail(f"{path} is an input; give --out another folder.")
    return list(source.files)


def _write_components(W: Array, shape: tuple[int, ...], out: Path, as_json: bool) -> None:
    """Write one picture per component, with its brightest pixel white."""
    digits = max(2, len(str(len(W) - 1)))
    with folder(out):
        for k, component in enumerate(W):
            white = component.max() or 1.0  # a component that was never used may be zero
            save_picture(255 * (component / white).reshape(shape), out / f"component-{k:0{digits}}.png")
    if as_json:
        print_json({"pictures": out, "components": len(W)})
    else:
        console.print(f"{out}: {counted(len(W), 'component')}.", soft_wrap=True)
