"""Where tasks run: on the workers of the current client or, where there is none, by Dask's default scheduler."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import dask
from dask.base import get_scheduler
from dask.delayed import Delayed

log = logging.getLogger("onmf")

PATIENCE = 30.0  # seconds without a worker, after which that is said
LOST = ("error", "cancelled", "lost")  # what a task is whose result no retry of the scheduler brings back


class ClusterError(RuntimeError):
    """Machines failed, not the computation: it may be tried again."""


class Cluster:
    """What the driver asks of Dask. Tasks have names that the dashboard shows, and are tried again by the scheduler
    when a worker dies; what it has given up is a ``ClusterError``.
    """

    def __init__(self) -> None:
        client = getattr(get_scheduler(), "__self__", None)
        self.client = client if hasattr(client, "scheduler_info") else None
        self.token = uuid.uuid4().hex[:8]
        self._tasks = 0

    @property
    def reads_ahead(self) -> bool:
        """Can something be computed while the driver goes on?"""
        return self.client is not None

    def task(self, what: str, function: Callable[..., Any], *inputs: Any) -> Delayed:
        """A call to be made somewhere; arguments of our own are ``Sealed``, others are tasks."""
        self._tasks += 1
        key = f"onmf-{what}-{self.token}-{self._tasks}"
        return dask.delayed(function, pure=False, traverse=False)(*inputs, dask_key_name=key)

    def hold(self, task: Delayed, urgent: bool = False) -> Delayed:
        """The task, begun and kept where it was computed; without a client, computed."""
        with _large_graphs():
            if self.client is None:
                return dask.persist(task)[0]
            return self.client.persist(task, priority=0 if urgent else -1)

    def value(self, task: Delayed) -> Any:
        """What comes of it, brought here."""
        if self.client is None:
            return dask.compute(task)[0]
        from distributed import KilledWorker, wait
        from distributed.client import FutureCancelledError

        with _large_graphs():
            future = self.client.compute(task, priority=1)
        try:
            while True:
                try:
                    wait(future, timeout=PATIENCE)
                    return future.result()
                except TimeoutError:
                    self._say_if_nobody_works()
        except (KilledWorker, FutureCancelledError) as error:
            if self.client.status != "running":
                raise ConnectionError(
                    "the connection to Dask's scheduler was lost; what was learnt until then is kept in the "
                    "checkpoint, if there is one."
                ) from error
            raise ClusterError(str(error) or type(error).__name__) from error
        finally:
            future.cancel() if not future.done() else future.release()

    def is_lost(self, held: Delayed) -> bool:
        """Has the scheduler given up what was held?"""
        if self.client is None:
            return False
        from distributed import futures_of

        return any(future.status in LOST for future in futures_of(held))

    def _say_if_nobody_works(self) -> None:
        if self.client is not None and not self.client.nthreads():
            log.warning("Dask has no workers now; waiting for some.")


@contextmanager
def _large_graphs() -> Any:
    """A state may be large, and is sent as an argument: what is scattered is lost with the worker that has it."""
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
        yield
