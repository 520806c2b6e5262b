"""The paper's Algorithm 1: for every chunk of samples, coefficients first, then one step of the dictionary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from onmf.model.state import BatchResult


class Engine(Protocol):
    """Where the arithmetic happens: NumPy and compiled kernels, or PyTorch on a device. It holds the state."""

    def chunks(self) -> Iterator[Any]:
        """Cut the samples of the batch into chunks of the method's sizes."""

    def exchange(self, chunk: Any) -> None:
        """Try to exchange a component, where the method does that, before a chunk is learnt from."""

    def visits(self, chunk: Any) -> int:
        """Return how often the chunk is looked at."""

    def problem(self, chunk: Any) -> Any:
        """Pose the coefficient problem of a chunk with the dictionary as it is now."""

    def solve(self, problem: Any, H: Any) -> Any:
        """Return the coefficients, from those of the last visit on."""

    def update(self, chunk: Any, problem: Any, H: Any) -> None:
        """Make the next state."""

    def keep(self, chunk: Any, H: Any) -> None:
        """Note the coefficients of a chunk."""

    def result(self) -> BatchResult:
        """Return what the batch did."""


def learn(engine: Engine) -> BatchResult:
    """Learn from the samples of a batch.

    Letters are the paper's, transposed: samples are rows, V ~ H W. ``methods.paper`` has its update of W; others make
    better steps. In the paper's method a chunk is visited once, and nothing is exchanged.
    """
    for chunk in engine.chunks():  # v_t, or a mini-batch of tau samples
        engine.exchange(chunk)
        H = None
        for _ in range(engine.visits(chunk)):
            problem = engine.problem(chunk)
            H = engine.solve(problem, H)  # eq:solve_h   h_t = argmin over h in H of d(v_t || h W_{t-1})
            engine.update(chunk, problem, H)  # eq:upd_dict  W_t = P_C(W_{t-1} - eta_t G_t), G_t = h_t' d'(v_t || h_t W)
        engine.keep(chunk, H)
    return engine.result()
