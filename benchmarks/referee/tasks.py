"""What is timed: typical work, with its preparation apart from what is measured."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.referee import library
from benchmarks.referee.data import PENALTIES

FOLDER = tempfile.TemporaryDirectory(prefix="referee-")  # it goes with the process


@dataclass(frozen=True)
class Task:
    """``run`` is measured, again and again on what ``prepare`` has given it."""

    prepare: Callable[[], Any]
    run: Callable[[Any], Any]


@cache
def dense(n: int = 800, features: int = 100, components: int = 10) -> Any:
    """Positive samples of a planted dictionary."""
    rng = np.random.default_rng(0)
    Y = rng.gamma(0.5, 1.0, (n, components)) @ rng.gamma(0.5, 1.0, (components, features)) + 1e-3
    return Y * rng.gamma(10.0, 0.1, Y.shape)


@cache
def texts() -> Any:
    """Sparse counts: 1,000 texts of 1,000 words, 3 % of the entries."""
    rng = np.random.default_rng(0)
    rates = rng.dirichlet(np.full(10, 0.2), 1000) @ rng.dirichlet(np.full(1000, 0.05), 10)
    return scipy.sparse.csr_matrix(rng.poisson(40 * rates).astype(float))


def fit(X: Callable[[], Any], *, given: Callable[[Any], dict[str, Any]] = lambda X: {}, **settings: Any) -> Task:
    """A fit from the beginning; ``given`` are weights."""

    def prepare() -> tuple[Any, dict[str, Any]]:
        return X(), given(X())

    def run(samples: tuple[Any, dict[str, Any]]) -> None:
        library.online(**{"n_components": 10, "random_state": 0} | settings).fit(samples[0], **samples[1])

    return Task(prepare, run)


def sample_weights(X: Any) -> dict[str, Any]:
    """A weight of one to three for every sample."""
    return {"sample_weight": np.random.default_rng(1).integers(1, 4, len(X)).astype(float)}


def entry_weights(X: Any) -> dict[str, Any]:
    """A weight in (0, 1) for every entry."""
    return library.entry_weights(library.online().fit, np.random.default_rng(1).random(X.shape))


def holed() -> Any:
    """Samples of which a fifth of the entries is missing."""
    X = dense().copy()
    X[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    return X


@cache
def fitted(divergence: str) -> Any:
    """A model of 30 features and 5 components."""
    return library.online(n_components=5, divergence=divergence, random_state=0).fit(dense(3000, 30, 5))


def partial_fit(size: int) -> Task:
    """One more batch of that many samples for a fitted model."""
    return Task(lambda: copy.deepcopy(fitted("kl")), lambda model: model.partial_fit(dense(3000, 30, 5)[:size]))


def transform(divergence: str, rows: int) -> Task:
    """The coefficients of that many rows."""
    return Task(partial(fitted, divergence), lambda model: model.transform(dense(5000, 30, 5)[:rows]))


def batch() -> Task:
    """Thirty iterations of ``BatchNMF``."""
    settings = {"n_components": 10, "max_iter": 30, "random_state": 0}
    return Task(dense, lambda X: library.batch(**settings).fit(X))


def reading(name: str) -> Task:
    """A small fit of a file, most of which is reading."""

    def prepare() -> str:
        path, X = Path(FOLDER.name) / name, dense(2000, 20, 5)
        if path.exists():
            return str(path)
        header = [f"f{number}" for number in range(X.shape[1])]
        if name.endswith(".csv"):
            np.savetxt(path, X, fmt="%.6g", delimiter=",", header=",".join(header), comments="")
        elif name.endswith(".npy"):
            np.save(path, X)
        else:
            import pyarrow
            import pyarrow.parquet

            pyarrow.parquet.write_table(pyarrow.table(dict(zip(header, X.T, strict=True))), path)
        return str(path)

    def run(path: str) -> None:
        library.online(n_components=2, divergence="squared_l2", random_state=0).fit(library.open_source(path))

    return Task(prepare, run)


def files() -> Task:
    """A model written and read."""
    import onmf

    path = Path(FOLDER.name) / "model.safetensors"

    def run(model: Any) -> None:
        onmf.save(model, path)
        onmf.load(path)

    return Task(partial(fitted, "kl"), run)


def rounds() -> Task:
    """A fit of dask arrays in rounds, by Dask's scheduler in this thread."""
    import dask
    import dask.array as da

    def run(X: Any) -> None:
        with dask.config.set(scheduler="sync"):
            library.online(n_components=5, shards=4, random_state=0).fit(X)

    return Task(lambda: da.from_array(dense(6000, 30, 5), chunks=(750, -1)), run)


TASKS: dict[str, Callable[[], Task]] = {
    **{f"fit {name}": partial(fit, dense, divergence=name) for name in ("kl", "is", "squared_l2", "huber")},
    "fit l1": partial(fit, partial(dense, 500, 30, 5), n_components=5, divergence="l1"),
    "fit paper kl": partial(fit, partial(dense, 150, 30, 5), n_components=5, method="paper"),
    "fit sparse em": partial(fit, texts, method="em"),
    "fit sparse_surrogate": partial(fit, texts, method="sparse_surrogate"),
    "fit float32": partial(fit, lambda: dense().astype(np.float32)),
    "fit sample weights": partial(fit, dense, given=sample_weights),
    "fit entry weights": partial(fit, dense, given=entry_weights),
    "fit missing": partial(fit, holed, missing="nan"),
    "fit penalties": partial(fit, dense, **PENALTIES),
    "partial_fit 10": partial(partial_fit, 10),
    "partial_fit 200": partial(partial_fit, 200),
    **{
        f"transform {rows} {name}": partial(transform, name, rows)
        for rows in (50, 5000)
        for name in ("kl", "is", "huber", "squared_l2")
    },
    "BatchNMF": batch,
    "read csv": partial(reading, "samples.csv"),
    "read parquet": partial(reading, "samples.parquet"),
    "read npy": partial(reading, "samples.npy"),
    "save and load": files,
    "dask rounds": rounds,
    "torch fit kl": partial(fit, partial(dense, 800, 30, 5), n_components=5, device="cpu"),
}
