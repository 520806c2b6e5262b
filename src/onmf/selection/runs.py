"""Many fits of the same data: several at a time, and remembered in a file, so that what was stopped is resumed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import xxhash

from onmf._support.arrays import Array
from onmf._support.checks import generators
from onmf.data import Rows, Source
from onmf.data.base import read_from
from onmf.data.inputs import matrix_of
from onmf.learner.update import as_floats
from onmf.persistence import file
from onmf.samples import as_samples

Result = TypeVar("Result")

FIRST = 200  # samples by which data are recognised


@dataclass(frozen=True)
class FitProgress:
    """The progress of many fits, given to a callback after each of them.

    Attributes
    ----------
    rank : int
        Components of the fit.
    loss : float
        Per held-out entry; for consensus, per sample.
    done : int
        Fits so far.
    total : int
        Fits at most.

    Examples
    --------
    >>> def show(progress):
    ...     print(f"{progress.done} of {progress.total}: {progress.rank}")
    >>> found = onmf.select_rank(X, [2, 3], n_seeds=2, callback=show)
    1 of 4: 2
    2 of 4: 2
    3 of 4: 3
    4 of 4: 3
    """

    rank: int
    loss: float
    done: int
    total: int


def each_done(tasks: Mapping[int, Callable[[], Result]], n_jobs: int) -> Iterator[tuple[int, Result]]:
    """Yield the results of the tasks with their numbers, ``n_jobs`` tasks at a time.

    The warnings of the first are shown; those of the others would repeat them.
    """
    if n_jobs == 1:
        for number, task in tasks.items():
            yield number, task()
            warnings.simplefilter("ignore")
        return
    with ThreadPoolExecutor(n_jobs) as pool:
        running = {pool.submit(task): number for number, task in tasks.items()}
        try:
            for done in as_completed(running):
                yield running[done], done.result()
                warnings.simplefilter("ignore")
        finally:
            pool.shutdown(cancel_futures=True)


@dataclass
class Ledger:
    """What the fits have found so far; if there is a ``path``, it is written there each time that more is kept."""

    path: Path | None
    identity: dict[str, str]  # of the data and the settings
    arrays: dict[str, Array]
    seeds: list[int]  # of all runs: those of the file, if it has some, where the user chose none

    @classmethod
    def opened(
        cls, checkpoint: str | Path | None, resume: bool, X: Any, seeds: Seeds, settings: Mapping[str, Any]
    ) -> Ledger:
        """Return the ledger in a file, if it is to be resumed, or an empty one."""
        if checkpoint is None:
            if resume:
                raise ValueError("resume=True continues what a checkpoint holds; pass checkpoint= as well.")
            return cls(None, {}, {}, seeds.drawn)
        identity = _identity(X if isinstance(X, Source) else Rows(matrix_of(X)[0]), settings)
        path = Path(checkpoint)
        if not path.exists():
            return cls(path, identity, {}, seeds.drawn)
        if not resume:
            raise ValueError(
                f"{path} exists already; continue it with resume=True (--resume), or name another checkpoint."
            )
        arrays, found = file.read(path)
        other = [name for name in identity if found.get(name) != identity[name]]
        if other:
            raise ValueError(f"{path} holds fits with other {' and '.join(other)}; name another checkpoint.")
        return cls(path, identity, arrays, seeds.after(arrays["seeds"].tolist(), path))

    def keep(self, arrays: Mapping[str, Array]) -> None:
        """Keep more arrays, in place of those of the same names."""
        self.arrays |= arrays
        if self.path is not None:
            self.arrays["seeds"] = np.array(self.seeds, dtype=np.int64)
            file.write(self.path, self.arrays, self.identity)


@dataclass(frozen=True)
class Seeds:
    """The seeds of runs, and whether the user chose the number that they were drawn from."""

    drawn: list[int]
    chosen: bool

    @classmethod
    def draw(cls, random_state: Any, n: int) -> Seeds:
        """Return n seeds; of two numbers, the smaller gives the first ones of the larger."""
        drawn = generators(random_state)[0].integers(2**31, size=n).tolist()
        return cls(drawn, random_state is not None)

    def after(self, earlier: list[int], path: Path) -> list[int]:
        """Return the seeds of runs that continue earlier ones, as many as those or more."""
        n = min(len(earlier), len(self.drawn))
        if self.chosen and earlier[:n] != self.drawn[:n]:
            raise ValueError(
                f"{path} holds fits with another seed; leave the seed out, which continues them, or name another "
                "checkpoint."
            )
        return earlier + self.drawn[len(earlier) :]


def _identity(source: Source, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return what tells whether fits were made of the same data with the same settings."""
    names = None if source.feature_names is None else tuple(source.feature_names)
    digest = xxhash.xxh64(repr((source.n_samples, source.n_features, names)).encode())
    _, first = next(read_from(source, FIRST, None, None, 0))
    X = as_samples(as_floats(first)).matrix
    for part in (X,) if isinstance(X, np.ndarray) else (X.data, X.indices, X.indptr):
        digest.update(np.ascontiguousarray(part).tobytes())
    return {"data": digest.hexdigest(), "settings": repr(sorted(settings.items()))}
