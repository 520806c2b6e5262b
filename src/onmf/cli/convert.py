"""``onmf convert``: the dictionary of a model, and coefficients in it, as files that other programs read."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import onmf
from onmf import data as streams
from onmf._support.wording import counted
from onmf.cli.app import app
from onmf.cli.as_json import AsJson, print_json, require_free
from onmf.cli.module import Module
from onmf.cli.options import Model
from onmf.cli.terminal import DATA_HELP, console, errors, fail, is_standard_output, require_writable
from onmf.cli.transform import write_coefficients
from onmf.data import sinks as outputs

SUFFIXES = [suffix for suffix in outputs.suffixes() if suffix != ".h5ad"]  # which holds cells, not a dictionary
OUT_HELP = (
    f"The file to write W to: {', '.join(SUFFIXES)}; - writes CSV to standard output. One row per component, one "
    "column per feature, with their names except in .npy; text has all digits of each number."
)
H_HELP = (
    f"The file to write the coefficients H of --data to: {', '.join(outputs.suffixes())}, as `onmf transform` does."
)
EXAMPLES = (
    "Examples:\n\n"
    "`onmf convert topics.safetensors W.csv`\n\n"
    "`onmf convert topics.safetensors W.npy`\n\n"
    "`onmf convert topics.safetensors W.parquet --data counts.npz --coefficients H.parquet`"
)


@app.command(epilog=EXAMPLES)
def convert(
    context: typer.Context,
    model: Model,
    out: Annotated[Path, typer.Argument(help=OUT_HELP, show_default=False)],
    data: Annotated[str | None, typer.Option(help=f"With --coefficients: {DATA_HELP}", show_default=False)] = None,
    coefficients: Annotated[Path | None, typer.Option(help=H_HELP, show_default=False)] = None,
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """Write the dictionary W of a model, and with --data the coefficients H, for other programs."""
    from onmf._support.atomic import replacing  # not needed for --help

    standard = is_standard_output(out)
    require_free(as_json, standard, "OUT")
    kind = outputs.kind_of(Path("w.csv") if standard else out)
    if kind is None or out.suffix.lower() == ".h5ad":
        fail(f"{out}: a dictionary is written as {', '.join(SUFFIXES)}, or as CSV to -.")
    if (data is None) != (coefficients is None):
        fail("--data names the samples and --coefficients the file for theirs; give both or neither.")
    kind.require(model)
    if not standard:
        require_writable(out, model, *([] if data is None else [streams.path_of(data)]), option="OUT")
    if coefficients is not None and is_standard_output(coefficients):
        fail("--coefficients is the name of a file; `onmf transform --out -` writes H to standard output.")
    if coefficients is not None and coefficients.resolve() == out.resolve():
        fail(f"{out} cannot hold both W and H; give --coefficients another name.")
    nmf = onmf.load(model)
    W, features, index = nmf.components_, _names(nmf), "component_name"
    twice = [name for name, count in Counter(features).items() if count > 1]
    if twice and out.suffix.lower() in (".parquet", ".jsonl"):
        fail(f"several features of {model} are called {twice[0]!r}, which {out} cannot hold; write .csv or .npy.")
    while index in features:
        index += "_"
    facts: dict[str, Any] = {"dictionary": out, "components": len(W), "features": W.shape[1], "type": W.dtype}
    heading = outputs.Heading(tuple(features), W.dtype, index, model, digits=17 if W.dtype == np.float64 else 9)
    if data is not None and coefficients is not None:
        facts |= write_coefficients(context, model, data, coefficients)[1]
    with nullcontext(sys.stdout) if standard else replacing(out) as target, closing(kind(target, heading)) as rows:
        rows.write(W, nmf.get_feature_names_out())
    if as_json:
        print_json(facts)
        return
    where = "standard output" if standard else out
    said = f"{where}: {counted(len(W), 'component')} of {counted(W.shape[1], 'feature')}."
    if coefficients is not None:
        said += f" {coefficients}: coefficients of {counted(facts['samples'], 'sample')}."
    (errors if standard else console).print(said, soft_wrap=True)


def _names(nmf: onmf.OnlineNMF) -> list[str]:
    """Of the features; scikit-learn's where the data had none."""
    names = getattr(nmf, "feature_names_in_", None)
    return [f"x{f}" for f in range(nmf.n_features_in_)] if names is None else [str(name) for name in names]
