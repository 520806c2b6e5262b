"""How good a dictionary is, and when a run got there."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onmf import divergences
from onmf.device.problem import DeviceSolver
from onmf.model.penalty import NO_PENALTY
from onmf.model.sets import Box
from onmf.model.units import Units


def loss(W: Any, divergence: str, held_out: Any, device: str) -> float:
    """The mean loss of the held-out samples at their precise coefficients in W, in the data's units."""
    found = divergences.get(divergence)
    units = Units(scale=float(held_out.mean()), mean=float(held_out.mean()), whole=False)
    inside = found.in_units(units.scale)
    W = np.maximum(np.asarray(W, dtype=np.float64), 0)
    W = (W / np.maximum(W.max(axis=1, keepdims=True), 1e-30)).astype(np.float32)
    W = np.maximum(W, np.float32(1e-6) if not found.domain.y.includes_zero else 0)
    blocks = DeviceSolver(W, found, inside, units, Box(), NO_PENALTY, 1e-4, 500).solved(held_out, device)
    total = sum(float(block.losses.double().sum()) for block in blocks)
    return total / len(held_out) * found.loss_unit(units.scale)


@dataclass
class Course:
    """The dictionaries of a run, and when it had them; copying them is part of its time."""

    began: float = field(default_factory=time.perf_counter)
    seconds: list[float] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    dictionaries: list[Any] = field(default_factory=list)

    def __call__(self, progress: Any) -> None:
        """A callback of ``fit``."""
        self.note(progress.W, progress.samples)

    def note(self, W: Any, samples: int = 0) -> None:
        self.seconds.append(time.perf_counter() - self.began)
        self.samples.append(samples)
        self.dictionaries.append(np.array(W, dtype=np.float32))

    def losses(self, divergence: str, held_out: Any, device: str) -> list[float]:
        return [loss(W, divergence, held_out, device) for W in self.dictionaries]

    def reached(self, divergence: str, held_out: Any, device: str, target: float) -> float | None:
        """When it first had the target, or None; what comes later is not scored."""
        scores = (loss(W, divergence, held_out, device) for W in self.dictionaries)
        return next((second for second, score in zip(self.seconds, scores, strict=False) if score <= target), None)


def middle(found: list[float | None]) -> float | None:
    """The median, never being later than any time."""
    return sorted(found, key=lambda each: np.inf if each is None else each)[len(found) // 2]


def first_at(seconds: list[float], losses: list[float], target: float) -> float | None:
    """When a run first had the target, or None."""
    return next((second for second, value in zip(seconds, losses, strict=True) if value <= target), None)
