"""What a chunk does: coefficients first, then the dictionary, as one function of tensors."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import torch

from onmf.device.problem import Problem, hurried
from onmf.device.recording import Recorded, recordings
from onmf.device.twin import Twin
from onmf.divergences import Divergence
from onmf.problem import Penalty
from onmf.sets import Box


@dataclass(frozen=True)
class Rules:
    """What a step follows besides tensors."""

    divergence: Divergence  # in internal units, of whole samples
    box: Box
    penalty: Penalty

    def step(self, twin: Twin, X: Any, old: Any, new: Any, present: Any = None, weights: Any = None) -> Any:
        """Coefficients H, the sum of the losses, and the twin after a chunk X in internal units.

        ``present`` are the weights of its entries, ``weights`` those of its samples (n, 1); what is averaged weighs
        ``old`` so far and ``new`` per sample.
        """
        problem = Problem(self.divergence, X, twin.W, self.box, self.penalty, present)
        H, Y, losses = hurried(problem)
        losses = losses if weights is None else losses * weights[:, 0]
        after = twin.after(self.divergence, problem, H, Y, old=old, new=new, weights=weights)
        return H, losses.sum(dtype=torch.float64), after


class Running:
    """A twin that is learnt on: chunks of usual sizes on a GPU by recordings, all others plainly."""

    def __init__(self, rules: Rules, twin: Twin) -> None:
        self.rules, self._twin = rules, twin
        self._recorded: Recorded | None = None
        self.records = twin.W.is_cuda and not twin.penalties and _is_recordable(rules.divergence)

    @property
    def twin(self) -> Twin:
        """As it is now, in tensors of its own."""
        if self._recorded is not None:
            W, *memory = (each.clone() for each in self._recorded.inputs[2 + self._parameters :])
            self._twin = Twin(W, self._twin.C, dict(zip(self._twin.memory, memory, strict=True)), self._twin.penalties)
            self._recorded = None
        return self._twin

    @twin.setter
    def twin(self, twin: Twin) -> None:
        self._twin, self._recorded = twin, None

    @property
    def _parameters(self) -> int:
        return len(self.rules.divergence.scaled_parameters)

    def step(self, X: Any, old: float, new: float, present: Any, weights: Any, usual: bool) -> tuple[Any, Any]:
        """Coefficients and the sum of the losses of a chunk; what is given is overwritten by the next."""
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
            before = Twin(W, twin.C, dict(zip(places, memory, strict=True)), twin.penalties)
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
