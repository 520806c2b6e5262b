"""The command ``onmf convert``: write the dictionary of a model, and coefficients, for other programs."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import onmf
from onmf._support.wording import counted
from onmf.cli import command
from onmf.cli.options import DATA_HELP, AsJson, Model, Module, SafeCsv
from onmf.cli.output import OutputTarget
from onmf.cli.progress import announce, watched
from onmf.cli.terminal import fail, print_json
from onmf.cli.transform import coefficient_file, write_coefficients
from onmf.data import outputs, path_of
from onmf.insight.features import column_names

SUFFIXES = [suffix for suffix in outputs.suffixes() if suffix != ".h5ad"]  # which holds cells, not a dictionary
OUT_HELP = (
    f"The file for W: {', '.join(SUFFIXES)}; - writes CSV to standard output. It has one row per component and one "
    "column per feature, with their names except in .npy. Text has all digits of each number."
)
H_HELP = f"The file for the coefficients H of --data: {', '.join(outputs.suffixes())}."


@command(
    "Apply a model",
    "onmf convert topics.safetensors W.csv",
    "onmf convert topics.safetensors W.npy",
    "onmf convert topics.safetensors W.parquet --data counts.npz --coefficients H.parquet",
)
def convert(
    context: typer.Context,
    model: Model,
    out: Annotated[Path, typer.Argument(help=OUT_HELP, show_default=False)],
    data: Annotated[str | None, typer.Option(help=DATA_HELP, metavar="DATA", show_default=False)] = None,
    coefficients: Annotated[Path | None, typer.Option(help=H_HELP, show_default=False)] = None,
    module: Module = None,
    safe_csv: SafeCsv = False,
    as_json: AsJson = False,
) -> None:
    """Write the components W of a model for other programs; with --data, the coefficients H too."""
    place = OutputTarget(out, as_json, "OUT", safe_csv)
    H_place = None if coefficients is None else OutputTarget(coefficients, option="--coefficients", safe_csv=safe_csv)
    kind = place.kind("a dictionary", SUFFIXES, model)
    if (data is None) != (coefficients is None):
        fail("--data names the samples and --coefficients the file for theirs; give both or neither.")
    place.require_writable(model, None if data is None else path_of(data))
    if data is not None and H_place is not None:
        if H_place.standard:
            fail("--coefficients is the name of a file; `onmf transform --out -` writes H to standard output.")
        if H_place.out.resolve() == out.resolve():
            fail(f"{out} cannot hold both W and H; give --coefficients another name.")
        H_kind = coefficient_file(H_place, data, model)
    nmf = onmf.load(model).set_params(on_error="raise")
    W, features, index = nmf.components_, column_names(nmf), "component_name"
    twice = [name for name, count in Counter(features).items() if count > 1]
    if twice and out.suffix.lower() in (".parquet", ".jsonl"):
        fail(f"several features of {model} are called {twice[0]!r}, which {out} cannot hold; write .csv or .npy.")
    while index in features:
        index += "_"
    facts: dict[str, Any] = {"dictionary": out, "components": len(W), "features": W.shape[1], "type": W.dtype}
    digits = 17 if W.dtype == np.float64 else 9
    heading = outputs.Heading(tuple(features), W.dtype, index, model, digits, safe=safe_csv)
    if data is not None and H_place is not None:
        announce(context, f"Finding coefficients of {data} in the {counted(len(W), 'component')} of {model}.", "30s")
        facts |= write_coefficients(nmf, model, data, H_place, H_kind, watched("30s", None, None))
    with place.opened() as target, closing(kind(target, heading)) as rows:
        rows.write(W, nmf.get_feature_names_out())
    if as_json:
        print_json(facts)
        return
    said = f"{place}: {counted(len(W), 'component')} of {counted(W.shape[1], 'feature')}."
    if data is not None:
        said += f" {coefficients}: coefficients of {counted(facts['samples'], 'sample')}."
    place.say(said)
