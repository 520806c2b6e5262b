"""Send tasks to the workers of the current client or, where there is none, to Dask's default scheduler."""

from __future__ import annotations

import logging
import pickle
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

import dask
import numpy as np
from dask.base import get_scheduler
from dask.delayed import Delayed

from onmf._support.version import __version__

log = logging.getLogger("onmf")

PATIENCE = 30.0  # seconds without a worker, after which a warning is logged
LOST = ("error", "cancelled", "lost")


class ClusterError(OSError):
    """Raised when machines fail, not the computation: it may be tried again."""


class Sealed:
    """A value that is passed on as it is, and opened where it is needed.

    Dask does not look for tasks in it. The user's own classes, from a notebook or a file of --module, travel with
    it; a worker that lacks a package fails at the task, and not while it listens to the scheduler.
    """

    def __init__(self, content: Any, packed: tuple[bytes, list[Any]] | None = None) -> None:
        self._content = content
        self._packed = packed

    @property
    def content(self) -> Any:
        """Return the value."""
        if self._packed is not None:
            payload, buffers = self._packed
            self._content, self._packed = pickle.loads(payload, buffers=buffers), None  # noqa: S301 (Dask's own way)
        return self._content

    def __reduce__(self) -> tuple[Any, ...]:
        if self._packed is not None:
            payload, given = self._packed
            return Sealed, (None, (payload, [pickle.PickleBuffer(buffer) for buffer in given]))
        import cloudpickle

        buffers: list[pickle.PickleBuffer] = []
        payload = cloudpickle.dumps(self._content, protocol=5, buffer_callback=buffers.append)
        return Sealed, (None, (payload, buffers))

    def __sizeof__(self) -> int:
        if self._packed is None:
            return size_in_bytes(self._content)
        return sum(memoryview(buffer).nbytes for buffer in self._packed[1])


def size_in_bytes(content: Any) -> int:
    """Return the bytes of the arrays in a value, by which Dask decides which values to move."""
    if isinstance(content, np.ndarray):
        return content.nbytes
    if isinstance(content, dict):
        return sum(map(size_in_bytes, content.values()))
    if isinstance(content, (list, tuple)):
        return sum(map(size_in_bytes, content))
    inside = getattr(content, "__dict__", None)
    return 64 + (size_in_bytes(inside) if inside else 0)


class Cluster:
    """The parts of Dask that the driver needs.

    Tasks have names that the dashboard shows, and the scheduler tries them again when a worker dies; one that it has
    given up raises a ``ClusterError``.
    """

    def __init__(self) -> None:
        client = getattr(get_scheduler(), "__self__", None)
        self.client = client if hasattr(client, "scheduler_info") else None
        if self.client is not None:
            _require_same_version(self.client)
        self.token = uuid.uuid4().hex[:8]
        self._tasks = 0

    @property
    def reads_ahead(self) -> bool:
        """Tell whether tasks can be computed while the driver does something else."""
        return self.client is not None

    def task(self, function: Callable[..., Any], *inputs: Any) -> Delayed:
        """Return a call to be made on a worker; its arguments are ``Sealed`` values and tasks."""
        self._tasks += 1
        key = f"onmf-{function.__name__}-{self.token}-{self._tasks}"
        return dask.delayed(function, pure=False, traverse=False)(*inputs, dask_key_name=key)

    def hold(self, tasks: list[Delayed]) -> list[Delayed]:
        """Begin tasks, and keep their values where they are computed; without a client, compute them."""
        if self.client is None:
            return list(dask.persist(*tasks))
        held: list[Delayed] = self.client.persist(tasks, priority=-1)  # tasks that rounds wait for come first
        return held

    def value(self, task: Delayed, held: bool = False) -> Any:
        """Compute a task, or wait for one that is ``held``, and return its value."""
        if self.client is None:
            return dask.compute(task)[0]
        from distributed import wait

        # A state may be large, and is sent as an argument: a scattered value is lost with the worker that holds it.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
            future = self._futures(task)[0] if held else self.client.compute(task, priority=1)
        try:
            while True:
                try:
                    with failing_machines(self.client):
                        wait(future, timeout=PATIENCE)
                        return future.result()
                except TimeoutError:
                    if not self.client.nthreads():
                        log.warning("Dask has no workers now; waiting for some.")
        finally:
            if not held:
                future.release()

    def is_lost(self, held: Delayed) -> bool:
        """Tell whether the scheduler has given up a value that was held."""
        return any(future.status in LOST for future in self._futures(held))

    def forget(self, *held: Delayed) -> None:
        """Release values that are held, so that they can be computed again; as long as one is held, it stays lost.

        They are not cancelled: that breaks the connection to the scheduler where other tasks depend on them.
        """
        for future in self._futures(*held):
            future.release()

    def _futures(self, *held: Delayed) -> list[Any]:
        if self.client is None:
            return []
        from distributed import futures_of

        return list(futures_of(list(held)))


SCHEDULER_LOST = (
    "the connection to Dask's scheduler was lost; what was learnt until then is in the checkpoint, if there is one."
)


@contextmanager
def failing_machines(client: Any) -> Iterator[None]:
    """Turn the failures of workers and of the scheduler into errors of one sentence."""
    from distributed import KilledWorker

    try:
        yield
    except (KilledWorker, CancelledError) as error:
        if client.status != "running":
            raise ConnectionError(SCHEDULER_LOST) from error
        raise ClusterError(str(error).partition(". ")[0] or type(error).__name__) from error
    except ImportError as error:
        raise ImportError(
            f"Dask's workers lack something that this process has: {error}; install the same there."
        ) from error


def _require_same_version(client: Any) -> None:
    """Raise an error for workers with another version; workers that join later are not checked."""
    found = client.get_versions(packages=["onmf"])["workers"]
    for worker, versions in sorted(found.items()):
        version = versions["packages"].get("onmf")
        if version != __version__:
            has = "has no onmf" if version is None else f"has onmf {version}"
            raise ImportError(f"the worker {worker} {has}; install onmf {__version__} there, as it is here.")
