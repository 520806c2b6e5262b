"""``onmf transform --dask``: workers read samples and write coefficients, partition by partition."""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import onmf
from onmf._support.arrays import Array
from onmf._support.wording import counted, is_or_are
from onmf.cli.as_json import print_json
from onmf.cli.cluster import running_on
from onmf.cli.terminal import console, errors, fail
from onmf.data import sinks as outputs
from onmf.data.arrow import Parquet

KINDS = (".parquet", ".zarr")
MOST_CHUNKS = 100_000


def require_folder(out: Path) -> None:
    """Refuse, before any work, what workers cannot write to together."""
    if out.suffix.lower() not in KINDS:
        fail(f"{out}: with --dask the workers write together, to a folder that ends in {' or '.join(KINDS)}.")
    if out.suffix.lower() == ".zarr" and importlib.util.find_spec("zarr") is None:
        fail(f"{out}: writing Zarr needs zarr; install onmf[zarr].")
    if out.exists() or out.is_symlink():
        fail(f"{out} exists already; give --out another name.")
    if not out.absolute().parent.is_dir():
        fail(f"cannot write {out}: {out.parent} does not exist.")


def write_partitions(
    nmf: onmf.OnlineNMF,
    data: str,
    out: Path,
    address: str,
    watch: AbstractContextManager[Callable[[onmf.Progress], None]],
    as_proportions: bool,
) -> dict[str, Any]:
    """Write all coefficients, and give the facts of it; the folder appears when all of it is there."""
    from onmf.data.columns import Features
    from onmf.data.inputs import require_same_features
    from onmf.distributed import partitioned
    from onmf.distributed.mapped import each
    from onmf.estimators.streaming import Sent

    partitions = partitioned(data, like=nmf.source_)
    learnt = Features.of(nmf.n_features_in_, getattr(nmf, "feature_names_in_", None))
    require_same_features(Features.of(partitions.n_features, partitions.feature_names), learnt, data)
    columns, dtype = tuple(nmf.get_feature_names_out()), nmf.components_.dtype
    unfinished = out.absolute().with_name(f".{out.name}.{os.getpid()}.unfinished")
    started, samples, gaps = time.perf_counter(), 0, 0
    with running_on(address) as client, watch as show:
        from distributed import as_completed

        from onmf.distributed.cluster import failing_machines

        try:
            write = Writing(str(unfinished), columns, partitions.index_name, out.suffix.lower() == ".zarr")
            write.begin(partitions, dtype)
            find = Sent(nmf).proportions if as_proportions else Sent(nmf).coefficients
            skip = nmf.on_error == "skip"
            futures = client.compute(each(partitions, find, "write", skip, dtype, write, len(columns)))
            for done, future in enumerate(as_completed(futures)):
                with failing_machines(client):
                    rows, holes = future.result()
                samples, gaps = samples + rows, gaps + holes
                told = samples, partitions.n_samples, done, time.perf_counter() - started, np.nan, nmf.components_
                show(onmf.Progress(*told, skipped=gaps, new=rows))
            unfinished.rename(out)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    seconds = time.perf_counter() - started
    return {"samples": samples, "gaps": gaps, "unread": 0, "seconds": seconds, "components": len(columns)}


@dataclass(frozen=True)
class Writing:
    """What a worker does with the coefficients of a partition."""

    place: str
    columns: tuple[str, ...]
    index: str | None
    zarr: bool

    def begin(self, partitions: Any, dtype: Any) -> None:
        """The folder: empty, or an array whose chunks no two workers write to."""
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
        """How many rows were written, and how many of them are NaN."""
        if self.zarr:
            import zarr

            array: Any = zarr.open(self.place, mode="r+")
            array[raw.begins : raw.begins + len(H)] = H
        else:
            names = raw.rows if raw.rows.dtype == object else None
            index = None if names is None else self.index or "row"
            place = Path(self.place) / f"part-{number:06d}.parquet"
            with closing(Parquet(place, outputs.Heading(self.columns, H.dtype, index, Path()))) as output:
                output.write(H, names)
        return len(H), int(np.isnan(H[:, 0]).sum())


def tell(facts: dict[str, Any], what: str, as_json: bool) -> None:
    """What was written, and where to."""
    if as_json:
        print_json(facts)
        return
    if facts["gaps"]:
        errors.print(
            f"onmf: {facts['gaps']} of the {counted(facts['samples'], 'row')} {is_or_are(facts['gaps'])} NaN; the "
            "workers' logs say why."
        )
    said = f"{facts[what]}: {what} of {counted(facts['samples'], 'sample')}, {facts['components']} each."
    console.print(said, soft_wrap=True)
