"""Where tasks run: on the workers of the current client or, where there is none, by Dask's default scheduler."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

import dask
from dask.base import get_scheduler
from dask.delayed import Delayed

from onmf._support.version import __version__

log = logging.getLogger("onmf")

PATIENCE = 30.0  # seconds without a worker, after which that is said
LOST = ("error", "cancelled", "lost")


class ClusterError(OSError):
    """Machines failed, not the computation: it may be tried again."""


class Cluster:
    """What the driver asks of Dask. Tasks have names that the dashboard shows, and are tried again by the scheduler
    when a worker dies; what it has given up is a ``ClusterError``.
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
        """Can something be computed while the driver goes on?"""
        return self.client is not None

    def task(self, what: str, function: Callable[..., Any], *inputs: Any) -> Delayed:
        """A call to be made somewhere; arguments of our own are ``Sealed``, others are tasks."""
        self._tasks += 1
        key = f"onmf-{what}-{self.token}-{self._tasks}"
        return dask.delayed(function, pure=False, traverse=False)(*inputs, dask_key_name=key)

    def hold(self, tasks: list[Delayed]) -> list[Delayed]:
        """The tasks, begun and kept where they are computed; without a client, computed."""
        if self.client is None:
            return list(dask.persist(*tasks))
        held: list[Delayed] = self.client.persist(tasks, priority=-1)  # what rounds wait for comes first
        return held

    def value(self, task: Delayed, held: bool = False) -> Any:
        """What comes of it, brought here; of a task that is ``held``, what it has come to."""
        if self.client is None:
            return dask.compute(task)[0]
        from distributed import KilledWorker, futures_of, wait

        with _large_graphs():
            future = futures_of(task)[0] if held else self.client.compute(task, priority=1)
        try:
            while True:
                try:
                    wait(future, timeout=PATIENCE)
                    return future.result()
                except TimeoutError:
                    self._say_if_nobody_works()
        except (KilledWorker, CancelledError) as error:
            raise _of_machines(self.client, error) from error
        except ImportError as error:
            raise ImportError(
                f"Dask's workers lack something that this process has: {error}; install the same there."
            ) from error
        finally:
            if not held:
                future.release()

    def is_lost(self, held: Delayed) -> bool:
        """Has the scheduler given up what was held?"""
        if self.client is None:
            return False
        from distributed import futures_of

        return any(future.status in LOST for future in futures_of(held))

    def forget(self, *held: Delayed) -> None:
        """Let go of it, so that what it stood on is tried anew: while somebody wants it, it stays given up.

        It is not cancelled: that breaks the connection to the scheduler where something stands on it in turn.
        """
        if self.client is not None:
            from distributed import futures_of

            for future in futures_of(list(held)):
                future.release()

    def _say_if_nobody_works(self) -> None:
        if self.client is not None and not self.client.nthreads():
            log.warning("Dask has no workers now; waiting for some.")


def _of_machines(client: Any, error: BaseException) -> OSError:
    """What to raise where a worker or the scheduler is at fault."""
    if client.status != "running":
        return ConnectionError(
            "the connection to Dask's scheduler was lost; what was learnt until then is kept in the checkpoint, if "
            "there is one."
        )
    return ClusterError(str(error).partition(". ")[0] or type(error).__name__)


@contextmanager
def failing_machines(client: Any) -> Iterator[None]:
    """What machines do to a result is an OSError, with a sentence."""
    from distributed import KilledWorker

    try:
        yield
    except (KilledWorker, CancelledError) as error:
        raise _of_machines(client, error) from error


def _require_same_version(client: Any) -> None:
    """Refuse workers that would compute something else, or nothing; those that come later are trusted."""
    found = client.get_versions(packages=["onmf"])["workers"]
    for worker, versions in sorted(found.items()):
        version = versions["packages"].get("onmf")
        if version != __version__:
            has = "has no onmf" if version is None else f"has onmf {version}"
            raise ImportError(f"the worker {worker} {has}; install onmf {__version__} there, as it is here.")


@contextmanager
def _large_graphs() -> Any:
    """A state may be large, and is sent as an argument: what is scattered is lost with the worker that has it."""
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
        yield
