"""The command ``onmf transform``: write the coefficients of samples, with ``--dask`` by many workers."""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import onmf
from onmf._support.arrays import Array
from onmf._support.wording import counted
from onmf.cli import command
from onmf.cli.cluster import Dask, running_on
from onmf.cli.options import AsJson, BatchSize, Data, Model, Module, SafeCsv, with_settings
from onmf.cli.output import OutputTarget, Rows, RowWriter, opened_for, require_parent, tell_of_rows, tell_of_skipped
from onmf.cli.progress import LogEvery, LogJson, Metrics, Show, announce, done_so_far, watched
from onmf.cli.terminal import fail
from onmf.data import outputs, path_of
from onmf.data.registry import options_of

OUT_HELP = (
    f"The file for H: {', '.join(outputs.suffixes())}; - writes CSV to standard output. An .h5ad that is also DATA "
    "gets H in obsm['X_onmf']. With --dask, give a folder that ends in .parquet or .zarr."
)
TOGETHER = (".parquet", ".zarr")  # folders that workers write to together
MOST_CHUNKS = 100_000


@command(
    "Apply a model",
    "onmf transform topics.safetensors counts.npz --out H.npy",
    "tail -f lines.txt | onmf transform topics.safetensors text:- --batch-size 1 --out - | my-program",
    "onmf transform topics.safetensors news.jsonl --proportions --out shares.csv",
    "onmf transform model.safetensors parquet:counts --dask tcp://10.0.0.1:8786 --out H.parquet",
    "onmf transform programmes.safetensors cells.h5ad --out cells.h5ad",
)
@with_settings("on_error", "device")
def transform(
    context: typer.Context,
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help=OUT_HELP, show_default=False)],
    batch_size: BatchSize = None,
    as_proportions: Annotated[
        bool,
        typer.Option("--proportions", help="Instead of H, write each component's share of the fit; rows sum to one."),
    ] = False,
    dask: Dask = None,
    module: Module = None,
    log_every: LogEvery = "30s",
    log_json: LogJson = None,
    metrics: Metrics = None,
    safe_csv: SafeCsv = False,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Write the coefficients H of DATA, one row per sample: how much of each component it contains.

    Missing entries are treated as in learning (--missing, --implicit). With --on-error skip, a bad sample is a row of
    NaN.
    """
    place, what = OutputTarget(out, as_json, safe_csv=safe_csv), "proportions" if as_proportions else "coefficients"
    if dask is not None:
        if batch_size is not None:
            fail("--batch-size has no effect with --dask, where a partition is solved at a time; leave it out.")
        _require_common_folder(out)
    else:
        kind = coefficient_file(place, data, model)
    nmf = onmf.load(model).set_params(**settings)
    components = counted(len(nmf.components_), "component")
    announce(context, f"Finding {what} of {data} in the {components} of {model}.", log_every)
    watching = log_every, log_json, metrics
    if dask is None:
        watch = watched(*watching, path_of(data), model, out)
        facts = write_coefficients(nmf, model, data, place, kind, watch, batch_size, what)
    else:
        facts = {what: out} | _write_partitions(nmf, data, out, dask, watched(*watching, model), as_proportions)
        if facts["skipped"] and not as_json:
            tell_of_skipped(facts["skipped"], facts["samples"], "NaN; the workers' logs say why.")
    tell_of_rows(place, facts, facts["components"], as_json)


def coefficient_file(place: OutputTarget, data: str, model: Path) -> type[outputs.Output]:
    """Return the kind of file that coefficients of DATA are written to, if it can be written."""
    path = path_of(data)
    kind = place.kind("coefficients", outputs.suffixes(), path)
    place.require_writable(None if kind.adds_to_data else path, model)
    return kind


def write_coefficients(
    nmf: onmf.OnlineNMF,
    model: Path,
    data: str,
    place: OutputTarget,
    kind: type[outputs.Output],
    watch: AbstractContextManager[Show],
    batch_size: int | None = None,
    what: str = "coefficients",
) -> dict[str, Any]:
    """Write the coefficients or proportions of DATA, and return facts about them."""
    from onmf.estimators.description import origin_of  # not needed for --help
    from onmf.estimators.streaming import usual_size

    source = opened_for(nmf, data, str(model))
    columns = tuple(nmf.get_feature_names_out())
    if what == "proportions" and (words := getattr(source, "unknown", None)) is not None:
        words.tells_blank = False  # the writer counts rows without proportions
    origin = origin_of(nmf, options_of(data).get("layer"), what)
    writer = RowWriter(data, source, what, columns, place, kind, nmf.on_error == "skip", origin=origin)

    def rows(on_bad: Any) -> Rows:
        return nmf.served(source, batch_size or usual_size(source), on_bad, shares=what == "proportions")

    return writer.write(rows, watch) | {"components": len(columns)}


# On Dask


def _require_common_folder(out: Path) -> None:
    """Fail, before any work, if workers cannot write there together."""
    if out.suffix.lower() not in TOGETHER:
        fail(f"{out}: with --dask the workers write together, to a folder that ends in {' or '.join(TOGETHER)}.")
    if out.suffix.lower() == ".zarr" and importlib.util.find_spec("zarr") is None:
        fail(f"{out}: writing Zarr needs zarr; install onmf[zarr].")
    if out.exists() or out.is_symlink():
        fail(f"{out} exists already; give --out another name.")
    require_parent(out, out.absolute().parent)


def _write_partitions(
    nmf: onmf.OnlineNMF,
    data: str,
    out: Path,
    address: str,
    watch: AbstractContextManager[Show],
    as_proportions: bool,
) -> dict[str, Any]:
    """Write all coefficients, and return facts about them; the folder appears when it is complete."""
    from onmf.distributed import partitioned
    from onmf.distributed.mapping import tasks_of
    from onmf.estimators.streaming import PicklableModel

    partitions = opened_for(nmf, data, "the model", partitioned)
    columns, dtype = tuple(nmf.get_feature_names_out()), nmf.components_.dtype
    unfinished = out.absolute().with_name(f".{out.name}.{os.getpid()}.unfinished")
    started, samples, skipped = time.perf_counter(), 0, 0
    with running_on(address) as client, watch as show:
        from distributed import as_completed

        from onmf.distributed.cluster import failing_machines

        try:
            write = PartitionWriter(str(unfinished), columns, partitions.index_name, out.suffix.lower() == ".zarr")
            write.begin(partitions, dtype)
            find = PicklableModel(nmf).proportions if as_proportions else PicklableModel(nmf).coefficients
            skip = nmf.on_error == "skip"
            futures = client.compute(tasks_of(partitions, find, "write", skip, dtype, write, len(columns)))
            for future in as_completed(futures):
                with failing_machines(client):
                    rows, without = future.result()
                samples, skipped = samples + rows, skipped + without
                show(done_so_far(samples, partitions.n_samples, started, skipped=skipped, new=rows))
            unfinished.rename(out)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    seconds = time.perf_counter() - started
    return {"samples": samples, "skipped": skipped, "unread": 0, "seconds": seconds, "components": len(columns)}


@dataclass(frozen=True)
class PartitionWriter:
    """A writer of the coefficients of a partition, on the worker that has found them."""

    place: str
    columns: tuple[str, ...]
    index: str | None
    zarr: bool

    def begin(self, partitions: Any, dtype: Any) -> None:
        """Make the folder: empty, or an array whose chunks no two workers write to."""
        if not self.zarr:
            Path(self.place).mkdir()
            return
        import zarr

        n, lengths = partitions.n_samples, partitions.lengths
        rows = int(np.gcd.reduce(lengths[:-1] or lengths)) if n is not None else 0
        if not rows or n / rows > MOST_CHUNKS:
            fail(
                "the partitions of these data are of unequal or unknown lengths, which Zarr cannot have; use .parquet."
            )
        shape, chunks = (n, len(self.columns)), (rows, len(self.columns))
        zarr.create_array(self.place, shape=shape, chunks=chunks, dtype=dtype)

    def __call__(self, number: int, raw: Any, H: Array) -> tuple[int, int]:
        """Write the rows; return their number, and how many of them are NaN."""
        try:
            self._write(number, raw, H)
        except OSError as error:
            raise OSError(f"cannot write {self.place}: {error.strerror or error}.") from None
        return len(H), int(np.isnan(H[:, 0]).sum())

    def _write(self, number: int, raw: Any, H: Array) -> None:
        if self.zarr:
            import zarr

            array: Any = zarr.open(self.place, mode="r+")
            array[raw.begins : raw.begins + len(H)] = H
        else:
            names = raw.rows if raw.rows.dtype == object else None
            index = None if names is None else self.index or "row"
            heading = outputs.Heading(self.columns, H.dtype, index, Path())
            kind: Any = outputs.kind_of(Path("rows.parquet"))
            with closing(kind(Path(self.place) / f"part-{number:06d}.parquet", heading)) as output:
                output.write(H, names)
