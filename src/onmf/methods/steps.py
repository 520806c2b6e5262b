"""How far a summed subgradient moves the dictionary in the paper's Algorithm 1: the rules, and the paper's own."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from onmf._support.arrays import Array
from onmf._support.checks import is_number
from onmf._support.registry import Constants
from onmf.coefficients.problem import Problem, losses, slopes
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
        """Return G with the penalty on the dictionary, once per sample; zeros for the fixed components."""
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


@dataclass(frozen=True, repr=False)
class Canonical(Step, name="canonical"):
    """eta = a / (s + b)^power, where s counts the samples seen; the paper's s is tau t and its power 1.

    Counting samples instead of mini-batches weighs mini-batches of unequal size rightly. The Robbins-Monro
    conditions, sum eta = inf and sum eta^2 < inf, hold for 1/2 < power <= 1 only; other powers have no
    convergence theory and are refused unless ``any_power`` is set. No constants suit all data
    (docs/decisions/0010-a-step-without-tuning.md).
    """

    a: float = 2e4
    b: float = 2e4
    power: float = 1.0
    any_power: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.any_power, (bool, np.bool_)):
            raise ValueError(f"any_power must be True or False, got {self.any_power!r}.")
        for name in ("a", "b"):
            value = getattr(self, name)
            if not is_number(value) or not 0 < value < math.inf:
                raise ValueError(f"the step size a / (samples + b)^power needs {name} > 0, got {value!r}.")
        if (
            not is_number(self.power)
            or not math.isfinite(self.power)
            or (not self.any_power and not self.robbins_monro)
        ):
            raise ValueError(
                f"power = {self.power!r} breaks the Robbins-Monro conditions (sum eta = inf, sum eta^2 < inf), which "
                "need 1/2 < power <= 1; choose such a power, or set any_power=True to go without the theory."
            )

    @property
    def robbins_monro(self) -> bool:
        """Does sum eta diverge, and sum eta^2 converge?"""
        return 0.5 < self.power <= 1

    def eta(self, samples: float) -> float:
        """The step size after ``samples`` samples."""
        with np.errstate(all="ignore"):  # of a very large power: 0, or inf if it is negative
            return float(self.a / (samples + np.float64(self.b)) ** self.power)

    def after(self, slopes: Slopes, state: State, tau: int, solve: Solve) -> State:
        n = slopes.weight
        eta, G = self.eta(state.clock + n), slopes.penalised(state.penalties, state.C.fixed)
        return state.after(n, state.C.project(state.W - eta * G))

    def gentler(self) -> Step:
        """The one that adapts to the data."""
        return Step.find("adaptive")()

    def doubts(self, state: State) -> list[str]:
        return (
            []
            if self.robbins_monro
            else [f"steps must satisfy the Robbins-Monro conditions, and power={self.power:g} does not"]
        )
