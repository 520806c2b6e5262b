"""How far a summed subgradient moves the dictionary in the paper's Algorithm 1: what all rules share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from onmf._support.arrays import Array
from onmf._support.constants import Constants
from onmf.coefficients.losses import losses, slopes
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence
from onmf.model.penalty import Penalties
from onmf.model.sets import DictionaryBox, DictionarySet
from onmf.model.state import State

Solve: TypeAlias = Callable[[Problem], Array]  # the coefficients of a problem's samples


@dataclass(frozen=True)
class Slopes:
    """Samples X with coefficients H and fits Y: their losses, and g, the derivatives of the losses in the fits."""

    problem: Problem
    H: Array
    Y: Array
    g: Array

    @classmethod
    def of(cls, problem: Problem, H: Array) -> Slopes:
        Y = H @ problem.W
        return cls(problem, H, Y, slopes(problem.divergence, problem.X, Y))

    @property
    def weight(self) -> float:
        """How many samples they count for."""
        return self.problem.X.weight

    @property
    def gradient(self) -> Array:
        """G = H'g, summed over the samples."""
        return self.problem.X.counted(self.H).T @ self.g

    def penalised(self, penalties: Penalties, fixed: int) -> Array:
        """The same with the penalty on the dictionary, once per sample; zeros for the first atoms, which are known."""
        G = self.gradient
        if penalties.on_dictionary:
            G = G + G.dtype.type(self.weight) * penalties.slope(self.problem.W)
        G[:fixed] = 0
        return G

    @property
    def losses(self) -> Array:
        return losses(self.problem.divergence, self.problem.X, self.Y)

    def objective(self, penalties: Penalties) -> float:
        """The sum over the samples of their losses and penalties, the dictionary's once per sample."""
        problem = self.problem
        loss = float(problem.X.counted(self.losses).sum(dtype=np.float64))
        if not penalties:
            return loss
        of_coefficients = problem.X.counted(problem.penalty.value(self.H, problem.l1))
        return loss + float(of_coefficients.sum(dtype=np.float64)) + self.weight * penalties.of_dictionary(problem.W)


@dataclass(frozen=True, repr=False)
class Step(Constants, kind="step"):
    """A rule for the step. A ``name`` makes it ``paper:step=NAME``, followed by its constants."""

    def first_look(self, problem: Problem, state: State, solve: Solve) -> State:
        """The state after a look at the first batch, before anything is learnt."""
        return state

    @abstractmethod
    def after(self, slopes: Slopes, state: State, tau: int, solve: Solve) -> State:
        """The state after one mini-batch, usually of tau samples."""

    def feasible(self, divergence: Divergence, state: State) -> DictionarySet | DictionaryBox:
        """The set that W stays in."""
        return state.C

    def expected(self, divergence: Divergence, state: State) -> dict[str, Array]:
        """Statistics of the shapes and types that the rule keeps in this state."""
        return {}

    def require_sound(self, state: State) -> None:
        """Refuse statistics that the rule could not have made, as a damaged file may hold."""

    @abstractmethod
    def gentler(self) -> Step:
        """The rule to try where the loss rises."""

    def doubts(self, state: State) -> list[str]:
        """What the theorem assumes of the steps and this run does not have."""
        return []
