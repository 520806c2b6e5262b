"""The paper's dictionary step (Algorithm 1): stochastic projected subgradient descent."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from onmf._support.arrays import Array
from onmf._support.checks import require_whole
from onmf.dictionary.base import DictionaryUpdate, State, Statistics
from onmf.divergences import Divergence
from onmf.schedules import StepSize
from onmf.sets import DictionarySet


@dataclass(frozen=True)
class ProjectedSubgradient(DictionaryUpdate):
    """W <- P_C(W - eta_t G), G = sum over the mini-batch of the subgradients h' (d/dy) d(x || hW).

    The gradient is *summed* over the chunk's tau samples, not averaged, and so chunks must stay small: a sum over
    many samples is too long a step (docs/decisions/0002-reading-of-the-paper.md).
    """

    chunk: int = 10  # the paper's tau
    step_size: StepSize = field(default_factory=StepSize)
    C: DictionarySet = field(default_factory=DictionarySet)

    def __post_init__(self) -> None:
        require_whole(1, tau=self.chunk)

    def start(self, W: Array) -> State:
        """W_0 may be any element of C; one outside is brought in by a change of units."""
        return State(self.C.rescale_into(W))

    def local(self, divergence: Divergence, X: Array, H: Array, W: Array) -> Statistics:
        """The summed subgradient in W."""
        Y = H @ W
        loss = float(divergence.value(X, Y).sum(dtype=np.float64))
        return Statistics({"gradient": H.T @ divergence.grad(X, Y)}, samples=len(X), loss=loss)

    def apply(self, state: State, statistics: Statistics) -> State:
        """One projected step, its length set by the samples seen."""
        samples = state.samples + statistics.samples
        W = self.C.project(state.W - self.step_size(samples) * statistics.parts["gradient"])
        return State(W, samples=samples, steps=state.steps + 1)
