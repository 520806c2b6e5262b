"""How a case is run, and what is kept of it."""

from __future__ import annotations

import base64
import hashlib
import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.referee import library
from benchmarks.referee.cases import BATCH, EXTRAS, WAYS, Case
from benchmarks.referee.data import Data, K, planted

N, NEW = 200, 40
ON_DASK = 8000  # samples, so that there are rounds of several shards
SPECIAL = {("lefevre", way): f"lefevre:N={N}" for way in WAYS} | {("em", "dask"): "em:tau=100"}  # N: one pass
BATCHES = (40, 1, 10, 100, 49)  # of partial_fit
Result = dict[str, Any]


class StoppedError(Exception):
    """A fit that is interrupted to be resumed."""


@contextmanager
def cluster() -> Iterator[None]:
    """A cluster of Dask with one worker of one thread, in this process."""
    import dask
    from distributed import Client, LocalCluster

    quiet = {"distributed.worker.memory.target": False, "distributed.worker.memory.spill": False}
    with (
        dask.config.set(quiet),
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0", silence_logs=logging.CRITICAL
        ) as found,
        Client(found),
    ):
        yield


def outcome(case: Case) -> Result:
    """The result of a case, or the built-in type of the exception that it "raises", with its message."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return _result(case)
    except Exception as error:
        known = next(each for each in type(error).__mro__ if each.__module__ == "builtins")
        return {"raises": known.__name__, "message": str(error)}


def _result(case: Case) -> Result:
    kinds = frozenset(case.kind.split("+")) - {"dense"}
    n = ON_DASK if case.way == "dask" else N
    every = planted(kinds, case.divergence, n + NEW)
    data, new = every.rows(0, n), every.rows(n, n + NEW)
    model = _model(case, data)
    if case.way == "partial_fit":
        start = 0
        for size in BATCHES:
            _taught(model.partial_fit, data.rows(start, start + size))
            start += size
    elif case.way == "resume":
        model = _resumed(case, data)
    elif case.way == "dask":
        _taught(model.fit, _partitions(data, n // 8))
        new = _partitions(new, NEW // 2)
    else:
        _taught(model.fit, data)
    return _kept(model, case, data, new)


def _model(case: Case, data: Data) -> Any:
    settings = data.settings | {"n_components": K, "random_state": 0} | EXTRAS.get(case.extra, {})
    settings["divergence"] = library.divergence(case.divergence, data.X.shape[1])
    if case.way == "torch":
        settings["device"] = "cpu"
    if case.method == BATCH:
        return library.batch(**{"max_iter": 30} | settings)
    usual = {"batch_size": 1500, "shards": 4} if case.way == "dask" else {"batch_size": 60, "max_passes": 2}
    method = SPECIAL.get((case.method, case.way), case.method)
    return library.online(**usual | {"method": method} | settings)


def _taught(learn: Any, data: Data, **more: Any) -> None:
    samples = {} if data.sample_weight is None else {"sample_weight": data.sample_weight}
    learn(data.X, **samples, **library.entry_weights(learn, data.weights), **more)


def _resumed(case: Case, data: Data) -> Any:
    """A model whose fit was interrupted in its second pass, resumed by another one, written and read again."""
    import onmf

    def stop(progress: Any) -> None:
        if progress.samples > N:
            raise StoppedError

    with tempfile.TemporaryDirectory() as folder:
        kept = onmf.Checkpoint(Path(folder) / "run", every=0)
        try:
            _taught(_model(case, data).set_params(callbacks=[stop]).fit, data, checkpoint=kept)
        except StoppedError:
            _taught((model := _model(case, data)).fit, data, checkpoint=kept, resume=True)
        onmf.save(model, Path(folder) / "model")
        return onmf.load(Path(folder) / "model")


def _partitions(data: Data, size: int) -> Data:
    import dask.array as da
    import scipy.sparse

    def parts(array: Any) -> Any:
        if array is None:
            return None
        if scipy.sparse.issparse(array):
            blocks = da.from_array(array.toarray(), chunks=(size, array.shape[1]))
            return blocks.map_blocks(scipy.sparse.csr_matrix, dtype=array.dtype)
        return da.from_array(array, chunks=(size, *array.shape[1:]))

    return Data(parts(data.X), parts(data.sample_weight), parts(data.weights), data.settings)


def _kept(model: Any, case: Case, data: Data, new: Data) -> Result:
    """What is compared: W, coefficients of new samples, losses and counts."""
    X = new.X
    if case.way == "torch" and isinstance(X, np.ndarray) and new.weights is None and "missing" not in case.kind:
        import torch

        X = torch.from_numpy(X)
    H = model.transform(X, **library.entry_weights(model.transform, new.weights))
    given = {} if new.sample_weight is None else {"sample_weight": new.sample_weight}
    losses = [float(model.loss(new.X, **given, **library.entry_weights(model.loss, new.weights)))]
    losses += [float(model.history_["loss"][-1]), float(np.sum(model.history_["loss"]))]
    outputs = [H]
    if case.way == "transform":
        outputs += [model.inverse_transform(H)]
        if new.weights is None:
            outputs += [model.proportions(X)]
            if case.kind == "missing":
                outputs += [model.complete(X)]
    arrays = [np.asarray(each) for each in outputs]
    W = model.components_
    counts = {
        name: int(getattr(model, name)) for name in ("n_samples_seen_", "n_steps_", "n_iter_") if hasattr(model, name)
    }
    return {
        "W": base64.b64encode(np.ascontiguousarray(W).tobytes()).decode(),
        "dtype": str(W.dtype),
        "shape": list(W.shape),
        "H": hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in arrays)).hexdigest(),
        "sums": [float(each) for each in np.asarray(arrays[0], dtype=float).sum(axis=0)],
        "losses": losses,
        "counts": counts,
    }
