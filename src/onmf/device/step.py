"""What a chunk does: coefficients first, then the dictionary, as one function of tensors."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import torch

from onmf.device.cuda_graphs import Recorded, recordings
from onmf.device.engine import Running
from onmf.device.problem import Problem, hurried
from onmf.device.samples import Chunks
from onmf.device.surrogate import SurrogateTwin
from onmf.divergences import Divergence
from onmf.methods.schedules import Averaging, Growing
from onmf.methods.surrogate import Surrogate
from onmf.model.penalty import Penalty
from onmf.model.sets import Box

EARLY, LATE = Growing(256, 0.06, 1024), Growing(1, 0.01, 4096)  # the larger of both is the size of a chunk
ROBUST = Growing(64, 0.06, 1024)  # in place of EARLY: what outliers hide takes more updates to be seen
EXPONENT, DELAY, UNIT = 0.65, 10.0, 1024  # of the weights
MOST_ENTRIES = 2**28  # of the samples of a chunk, and of their matrices


@dataclass(frozen=True)
class Rules:
    """What a step follows besides tensors."""

    divergence: Divergence  # in internal units, of whole samples
    box: Box
    penalty: Penalty

    def step(self, twin: SurrogateTwin, X: Any, old: Any, new: Any, present: Any = None, weights: Any = None) -> Any:
        """Coefficients H, the sum of the losses, and the twin after a chunk X in internal units.

        ``present`` are the weights of its entries, ``weights`` those of its samples (n, 1); what is averaged weighs
        ``old`` so far and ``new`` per sample.
        """
        problem = Problem(self.divergence, X, twin.W, self.box, self.penalty, present)
        H, Y, losses = hurried(problem)
        losses = losses if weights is None else losses * weights[:, 0]
        after = twin.after(self.divergence, problem, H, Y, old=old, new=new, weights=weights)
        return H, losses.sum(dtype=torch.float64), after


class SurrogateRunning(Running):
    """The surrogate: chunks of usual sizes on a GPU by recordings, all others plainly.

    Chunks are larger than on the processor: a GPU solves thousands of samples in the time of a few.
    """

    kept = SurrogateTwin
    method: Surrogate

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.rules = Rules(self.divergence, self.box, self.penalty)
        self._recorded: Recorded | None = None
        self.records = self._twin.W.is_cuda and not self._twin.penalties and _is_recordable(self.divergence)

    def size(self, left: int, smaller: int) -> int:
        """A power of two, of which there are few, so that steps are recorded once for many."""
        if self.method.tau is not None:
            return min(self.method.tau, left)
        K, F = self._twin.W.shape
        early = ROBUST if self.divergence.robust else EARLY
        most = min(max(early(self.clock), LATE(self.clock)), MOST_ENTRIES // max(F, K * K))
        most = max(1, most // smaller)
        most = 1 << (most.bit_length() - 1)
        return most if left >= most else left

    def weight(self, clock: float, n: float) -> float:
        """What a dictionary is worth depends on the number of its updates rather than of its samples, and large chunks
        have little noise: the past can be forgotten sooner than where chunks are small.
        """
        if self.method.tau is not None:
            return self.method.weight(self.divergence, clock, n)
        return Averaging(EXPONENT, DELAY, self.method.forgetting)(clock, n, UNIT)

    @property
    def twin(self) -> SurrogateTwin:
        """As it is now, in tensors of its own."""
        if self._recorded is not None:
            W, *memory = (each.clone() for each in self._recorded.inputs[2 + self._parameters :])
            self._twin = replace(self._twin, W=W, memory=dict(zip(self._twin.memory, memory, strict=True)))
            self._recorded = None
        return self._twin

    @twin.setter
    def twin(self, twin: SurrogateTwin) -> None:
        self._twin, self._recorded = twin, None

    @property
    def _parameters(self) -> int:
        return len(self.rules.divergence.scaled_parameters)

    def step(self, chunks: Chunks, part: slice, n: float, weights: Any) -> tuple[Any, Any]:
        X, present = chunks[part]
        rho, usual = self.weight(self.clock + n, n), len(X) & (len(X) - 1) == 0
        old, new = 1 - rho, rho / n
        if not (usual and self.records and present is None and weights is None):
            H, loss, self._twin = self.rules.step(self.twin, X, old, new, present, weights)
            return H, loss
        recorded = recordings.get(self._key(X), lambda: self._record(X))
        if recorded is not self._recorded:
            divergence, twin = self.rules.divergence, self.twin
            recorded.load(2 + self._parameters, [twin.W, *twin.memory.values()])
            for place, name in zip(recorded.inputs[2:], divergence.scaled_parameters, strict=False):
                place.fill_(getattr(divergence, name))
            self._recorded = recorded
        recorded.inputs[0].copy_(X)
        factors = recorded.inputs[1]
        factors[0].fill_(old)
        factors[1].fill_(new)
        H, loss, *_ = recorded.run()
        return H, loss

    def _key(self, X: Any) -> Hashable:
        divergence, twin = self.rules.divergence, self._twin
        kind: Hashable = divergence
        if divergence.scaled_parameters:
            others = divergence.parameters().items()
            kind = type(divergence), *(each for each in others if each[0] not in divergence.scaled_parameters)
        rules = kind, self.rules.box, self.rules.penalty, twin.C
        return *rules, tuple(twin.memory), X.shape, len(twin.W), X.dtype, str(X.device)

    def _record(self, X: Any) -> Recorded:
        twin, rules, names = self.twin, self.rules, self.rules.divergence.scaled_parameters
        places = list(twin.memory)

        def function(X: Any, factors: Any, *rest: Any) -> list[Any]:
            values, (W, *memory) = rest[: len(names)], rest[len(names) :]
            mine = replace(rules, divergence=with_tensors(rules.divergence, dict(zip(names, values, strict=True))))
            before = SurrogateTwin(W, twin.C, dict(zip(places, memory, strict=True)), twin.penalties)
            H, loss, after = mine.step(before, X, factors[0], factors[1])
            return [H, loss, after.W, *(after.memory[name] for name in places)]

        numbers = [torch.full((), getattr(rules.divergence, name), dtype=X.dtype, device=X.device) for name in names]
        factors = torch.full((2,), 0.5, dtype=X.dtype, device=X.device)
        inputs = [X, factors, *numbers, twin.W, *twin.memory.values()]
        return Recorded(function, inputs, fed_back=1 + len(places))


def with_tensors(divergence: Divergence, values: dict[str, Any]) -> Divergence:
    """The divergence with tensors for numbers, which its formulas do not tell apart."""
    if not values:
        return divergence
    mine = copy.copy(divergence)
    for name, value in values.items():
        object.__setattr__(mine, name, value)
    return mine


def _is_recordable(divergence: Divergence) -> bool:
    """Do its formulas run without looking at numbers? One without a curvature of its own looks for chords' lengths."""
    from onmf.divergences.separable import Separable

    own = isinstance(divergence, Separable) and type(divergence).curvature is not Separable.curvature
    return own or divergence.absolute_deviations
