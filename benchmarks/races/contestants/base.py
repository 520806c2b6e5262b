"""What a contestant is: a class that is given a task, and yields its dictionary after every step it can be stopped at.

The clock runs outside, only while the generator works: what ``__init__`` does (a change of format or of units) is free.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from benchmarks.races.data.base import STARTS

BETA = {"squared_l2": 2.0, "kl": 1.0, "is": 0.0}  # the losses of scikit-learn


@dataclass(frozen=True)
class Task:
    """The same for all contestants: samples, their order in every pass, batches, K, and the initial dictionary."""

    X: Any  # (n, F), dense or CSR
    K: int
    divergence: str
    W0: np.ndarray | None  # (K, F) with entries in [0, 1]; None: the contestant's own default start
    orders: tuple[np.ndarray, ...]  # the rows in the order of every pass
    batch_size: int
    seed: int
    threads: int = 1

    def batches(self, passes: int) -> Iterator[tuple[int, Any]]:
        """(samples seen including this batch, batch) of the first passes."""
        seen = 0
        for order in self.orders[:passes]:
            for first in range(0, len(order), self.batch_size):
                rows = order[first : first + self.batch_size]
                seen += len(rows)
                yield seen, self.X[rows]

    def in_first_order(self) -> Any:
        """All samples, ordered as in the first pass: for contestants that take them at once."""
        return self.X[self.orders[0]]

    def head(self, n: int) -> Task:
        """The same task on n samples, one pass: to compile and to warm up before the clock starts."""
        rows = self.orders[0][:n]
        return replace(self, X=self.X[rows], orders=(np.arange(len(rows)),), batch_size=n)


class Contestant(ABC):
    """A way to learn a dictionary, with fixed settings."""

    name: ClassVar[str]
    package: ClassVar[str | None] = None  # to be imported; absent from the base installation
    variants: ClassVar[tuple[float | None, ...]] = (None,)  # all are run, the best final loss counts
    from_scratch: ClassVar[bool] = False  # cannot be stopped on its way: run once for every number of passes
    most_passes: ClassVar[int] = 1_000_000
    starts: ClassVar[tuple[str, ...]] = STARTS
    threaded: ClassVar[bool] = True  # worth a second race on all cores
    only_on: ClassVar[tuple[str, ...]] = ()  # data sets; empty: all
    divergences: ClassVar[tuple[str, ...]] = ()  # that it minimises, by names without parameters; empty: all

    @classmethod
    def missing(cls) -> str | None:
        """Why the contestant cannot start on this machine; None if it can."""
        if cls.package is None or importlib.util.find_spec(cls.package) is not None:
            return None
        return "skipped: install onmf[bench]"

    @classmethod
    def serves(cls, divergence: str, sparse: bool) -> bool:
        """Can it minimise this divergence on such data? Itakura-Saito admits no zeros, hence no sparse data."""
        return (not cls.divergences or divergence in cls.divergences) and not (sparse and divergence == "is")

    @abstractmethod
    def __init__(self, task: Task, variant: float | None = None) -> None:
        """Prepare, off the clock."""

    @abstractmethod
    def run(self, passes: int) -> Iterator[tuple[int, np.ndarray]]:
        """(samples seen, dictionary (K, F)) at every possible stop; the dictionary may be overwritten later."""

    def notes(self) -> dict[str, Any]:
        """What else is worth writing down after a run."""
        return {}


def mean_of(X: Any) -> float:
    """The mean entry of dense or sparse data."""
    return float(X.sum()) / (X.shape[0] * X.shape[1])


def unit_norm(W0: np.ndarray) -> np.ndarray:
    """The atoms with Euclidean norm one, as methods for sparse coding want them."""
    return W0 / np.linalg.norm(W0, axis=1, keepdims=True)
