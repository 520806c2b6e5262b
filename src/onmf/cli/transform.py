"""``onmf transform``: the coefficients of samples in a learnt dictionary."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

import onmf
from onmf import data as streams
from onmf._support.wording import counted
from onmf.cli.app import app
from onmf.cli.as_json import AsJson, require_free
from onmf.cli.cluster import Dask
from onmf.cli.device import Device
from onmf.cli.module import Module
from onmf.cli.options import Data, Model, OnError
from onmf.cli.progress import LogEvery, LogJson, Metrics, announce, watched
from onmf.cli.row_writer import Job, Pairs, skips
from onmf.cli.terminal import fail, is_standard_output, require_writable
from onmf.cli.transform_dask import require_folder, tell, write_partitions
from onmf.data import sinks as outputs

OUT_HELP = (
    f"The file to write H to: {', '.join(outputs.suffixes())}; - writes CSV to standard output. "
    "Text has nine digits of each number. With --dask: a folder that ends in .parquet or .zarr."
)
EXAMPLES = (
    "Examples:\n\n"
    "`onmf transform topics.safetensors counts.npz --out weights.npy`\n\n"
    "`tail -f lines.txt | onmf transform topics.safetensors text:- --batch-size 1 --out - | my-program`\n\n"
    "`onmf transform topics.safetensors news.jsonl --proportions --out shares.csv`\n\n"
    "`onmf transform model.safetensors parquet:counts --dask tcp://10.0.0.1:8786 --out weights.parquet` (a folder)\n\n"
    "`onmf transform programmes.safetensors cells.h5ad --out cells.h5ad` (an .h5ad alone may be replaced: the "
    'coefficients are added to it, in obsm["X_onmf"], with loadings in varm["onmf"] and settings in uns["onmf"])'
)


@app.command(epilog=EXAMPLES)
def transform(
    context: typer.Context,
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help=OUT_HELP, show_default=False)],
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Samples read, solved and written at a time.", show_default="1024; 100 from a pipe"),
    ] = None,
    as_proportions: Annotated[
        bool,
        typer.Option("--proportions", help="Write each atom's share of a sample's fit, rows that sum to one, not H."),
    ] = False,
    on_error: OnError = "raise",
    dask: Dask = None,
    device: Device = None,
    module: Module = None,
    log_every: LogEvery = "30s",
    log_json: LogJson = None,
    metrics: Metrics = None,
    as_json: AsJson = False,
) -> None:
    """Write the coefficients H of DATA in a learnt dictionary, one row per sample, as the samples come.

    A model that was learnt with --missing or --implicit takes the holes of DATA for unknown, too.
    """
    require_free(as_json, is_standard_output(out))
    watching = log_every, log_json, metrics
    if dask is not None:
        what = "proportions" if as_proportions else "coefficients"
        if batch_size is not None:
            fail("--batch-size has no effect with --dask, where a partition is solved at a time; leave it out.")
        require_folder(out)
        nmf = onmf.load(model).set_params(on_error="skip" if skips(on_error) else "raise", device=device)
        announce(
            context, f"Finding {what} of {data} in the {counted(len(nmf.components_), 'atom')} of {model}.", log_every
        )
        facts = {what: out} | write_partitions(nmf, data, out, dask, watched(*watching, model), as_proportions)
        tell(facts, what, as_json)
        return
    job, facts = write_coefficients(context, model, data, out, batch_size, on_error, watching, as_proportions, device)
    job.tell(facts, as_json)


def write_coefficients(
    context: typer.Context,
    model: Path,
    data: str,
    out: Path,
    batch_size: int | None = None,
    on_error: str = "raise",
    watching: tuple[str, Path | None, str | None] = ("30s", None, None),
    as_proportions: bool = False,
    device: str | None = None,
) -> tuple[Job, dict[str, Any]]:
    """Do so, and give the facts of it."""
    from onmf._support.atomic import replacing
    from onmf.data.columns import Features
    from onmf.data.inputs import require_same_features
    from onmf.estimators.description import origin_of  # as what is asked of ``onmf``: not needed for --help
    from onmf.estimators.streaming import usual_size
    from onmf.learner.usage import proportions

    skip, what = skips(on_error), "proportions" if as_proportions else "coefficients"
    place = streams.path_of(data)
    standard = is_standard_output(out)
    kind = outputs.kind_of(Path("h.csv") if standard else out)
    if kind is None:
        fail(f"{out}: coefficients are written as {', '.join(outputs.suffixes())}, or as CSV to -.")
    kind.require(place)
    if not standard:
        require_writable(out, *(() if kind.adds_to_data else (place,)), model)
    nmf = onmf.load(model).set_params(device=device)
    atoms = counted(len(nmf.components_), "atom")
    announce(context, f"Finding {what} of {data} in the {atoms} of {model}.", watching[0])
    source = streams.open_source(data, like=nmf.source_)
    learnt = Features.of(nmf.n_features_in_, getattr(nmf, "feature_names_in_", None))
    require_same_features(Features.of(source.n_features, source.feature_names), learnt, data, str(model))
    columns = tuple(nmf.get_feature_names_out())
    origin = origin_of(nmf, None if source.spec is None else source.spec.options.get("layer"), what)
    job = Job(nmf, source, data, what, columns, kind, None if standard else out, origin=origin)

    def served(on_bad: Any) -> Pairs:
        for rows, H in nmf.served(source, batch_size or usual_size(source), on_bad):
            yield rows, proportions(H, nmf.components_) if as_proportions else H

    facts = job.write(
        served,
        nullcontext(sys.stdout) if standard else replacing(out),
        watched(*watching, place, model, out),
        skip,
    )
    return job, facts | {"components": len(columns)}
