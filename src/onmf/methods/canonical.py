"""The paper's own step: W <- P_C(W - eta G) with eta = a / (s + b)^power."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from onmf._support.checks import is_number
from onmf.methods.steps import Slopes, Solve, Step
from onmf.model.state import State


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
