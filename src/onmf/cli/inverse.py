"""``onmf inverse``: samples as a model sees them, or its components, as numbers and as pictures."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import onmf
from onmf import data as streams
from onmf._support.arrays import Array
from onmf._support.wording import counted
from onmf.cli import pictures
from onmf.cli.app import app
from onmf.cli.as_json import AsJson, print_json, require_free
from onmf.cli.folder import folder_to_be
from onmf.cli.module import Module
from onmf.cli.options import Model, OnError
from onmf.cli.progress import LogEvery, LogJson, Metrics, announce, watched
from onmf.cli.row_writer import Job, skips
from onmf.cli.terminal import DATA_HELP, console, fail, is_standard_output, require_writable
from onmf.data import sinks as outputs

NUMBERS = 2**24  # in the fits of samples that are read and written at a time, of which each may be long
FILES = ", ".join(outputs.suffixes(of_samples=True))
OUT_HELP = (
    f"The file to write HW to: {FILES}; - writes CSV to standard output. A folder, if the model was learnt from "
    "pictures: one picture per sample."
)
EXAMPLES = (
    "Examples:\n\n"
    "`onmf inverse parts.safetensors images:noisy --out denoised`\n\n"
    "`onmf inverse plant.safetensors readings.csv --out fitted.csv`\n\n"
    "`onmf inverse plant.safetensors weights.npy --coefficients --out fitted.npy`\n\n"
    "`onmf inverse parts.safetensors --components --out components`"
)


@app.command(epilog=EXAMPLES)
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
        typer.Option("--components", help="Instead of DATA: the components as pictures, each as bright as can be."),
    ] = False,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Samples read, solved and written at a time.", show_default="1024; 100 from a pipe"),
    ] = None,
    on_error: OnError = "raise",
    module: Module = None,
    log_every: LogEvery = "30s",
    log_json: LogJson = None,
    metrics: Metrics = None,
    as_json: AsJson = False,
) -> None:
    """Write the fits HW of DATA, in its own units, one row per sample, as the samples come.

    What the dictionary cannot make is gone from them: noise, scratches, outliers. Of pictures they are pictures, in the
    size of the model's, under the names of the files that were read.
    """
    from onmf._support.atomic import replacing
    from onmf.estimators.streaming import usual_size  # as what is asked of ``onmf``: not needed for --help

    skip = skips(on_error)
    if (data is None) != components:
        fail("give DATA or --components, one of them.")
    nmf = onmf.load(model)
    folder = _is_folder(out)
    shape = nmf.source_.picture if folder else None
    if folder and shape is None:
        fail(f"{model} was not learnt from pictures; give --out a file: {FILES}, or -.")
    if data is None:
        if shape is None:
            fail(f"--components writes pictures to a folder, not to {out}.")
        _write_components(nmf.components_, shape, out, as_json)
        return
    require_free(as_json, is_standard_output(out))
    place, standard = streams.path_of(data), is_standard_output(out)
    kind: Any = outputs.kind_of(Path("x.csv") if standard else out)
    if not folder:
        if kind is None or kind.adds_to_data:
            fail(f"{out}: samples are written as {FILES}, or as CSV to -.")
        kind.require(place)
        if not standard:
            require_writable(out, place, model)
    announce(context, f"Fitting {data} by the {counted(len(nmf.components_), 'atom')} of {model}.", log_every)
    source = _opened(data, nmf, str(model), coefficients)
    if shape is not None:
        kind = partial(pictures.Pictures, shape=shape, names=_names(source, out))
    columns = getattr(nmf, "feature_names_in_", [f"feature_{f}" for f in range(nmf.n_features_in_)])
    job = Job(nmf, source, data, "fits", tuple(map(str, columns)), kind, None if standard else out, folder)
    size = batch_size or min(usual_size(source), max(1, NUMBERS // nmf.n_features_in_))
    facts = job.write(
        lambda on_bad: nmf.reconstructed(source, size, on_bad, coefficients),
        folder_to_be(out) if folder else nullcontext(sys.stdout) if standard else replacing(out),
        watched(log_every, log_json, metrics, place, model, out),
        skip,
    )
    job.tell(facts | {"features": len(columns)}, as_json)


def _is_folder(out: Path) -> bool:
    """Is it one, or to be one? Files have a suffix."""
    return str(out) != "-" and (out.is_dir() or not (out.suffix or out.exists()))


def _opened(data: str, nmf: onmf.OnlineNMF, model: str, coefficients: bool) -> streams.Source:
    """The samples, read as the model's were; or coefficients, under the names that they were written with."""
    from onmf.data.columns import Features
    from onmf.data.inputs import require_same_features

    names = tuple(nmf.get_feature_names_out())
    source = streams.open_source(data, like=streams.Spec(names=names) if coefficients else nmf.source_)
    found = Features.of(source.n_features, source.feature_names)
    if not coefficients:
        learnt = Features.of(nmf.n_features_in_, getattr(nmf, "feature_names_in_", None))
        require_same_features(found, learnt, data, model)
    elif found.number != len(names) or (found.names is not None and tuple(found.names) != names):
        fail(f"{data} does not hold coefficients of {model}, whose columns are {names[0]} to {names[-1]}.")
    return source


def _names(source: streams.Source, out: Path) -> list[str] | None:
    """Those of the files, if the source is of pictures, which must not be replaced."""
    if source.spec is None or source.spec.scheme != "images" or source.files is None:
        return None
    for name, path in source.files.items():
        if (out / name).resolve() == path.resolve():
            fail(f"{path} is an input; give --out another folder.")
    return list(source.files)


def _write_components(W: Array, shape: tuple[int, ...], out: Path, as_json: bool) -> None:
    """One picture per atom, its brightest pixel white: atoms have no brightness of their own."""
    digits = max(2, len(str(len(W) - 1)))
    with folder_to_be(out):
        for k, atom in enumerate(W):
            white = atom.max() or 1.0  # an atom that was never used may be zero
            pictures.save(255 * (atom / white).reshape(shape), out / f"component-{k:0{digits}}.png")
    if as_json:
        print_json({"pictures": out, "components": len(W)})
    else:
        console.print(f"{out}: {counted(len(W), 'component')}.", soft_wrap=True)
