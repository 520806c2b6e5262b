"""The surrogate method on a device.

Its statistics are those of ``onmf.methods.surrogate``, kept feature by feature: b (F, K), and A (F, K (K + 1) / 2)
packed, or a (F, K). A chunk is averaged into them by the matrix products that it needs anyway, C' (H (x) H) and
(C Y - G)' H.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from onmf._support.arrays import Array, times
from onmf.device.cuda_graphs import Recorded, recorded
from onmf.device.device_state import DeviceState, Tensors, feasible
from onmf.device.engine import ChunkOnDevice, DeviceEngine
from onmf.device.problem import DeviceProblem, packed, pairs, positive, rough_coefficients, unpacked
from onmf.device.quadratic_programmes import descend
from onmf.device.transfer import to_device
from onmf.divergences import Divergence
from onmf.divergences.base import Separable
from onmf.methods import quadratics
from onmf.methods.base import Averaging, Growing
from onmf.methods.quadratics import Floor, floor_of
from onmf.methods.surrogate import HIGHEST, Surrogate

SWEEPS = quadratics.MOST_SWEEPS  # the coefficients take longer, whatever the chunk
EARLY, LATE = Growing(256, 0.06, 1024), Growing(1, 0.01, 4096)  # the larger of both is the size of a chunk
ROBUST = Growing(64, 0.06, 1024)  # in place of EARLY: what outliers hide takes more updates to be seen
EXPONENT, DELAY, UNIT = 0.65, 10.0, 1024  # of the weights
MOST_ENTRIES = 2**28  # of the samples of a chunk, and of their matrices
FIRST_EXCHANGE, LAST_EXCHANGE = 3000, 200_000  # samples before it


@dataclass(frozen=True)
class SurrogateState(DeviceState):
    """The surrogate's quadratic models on a device."""

    @classmethod
    def sent(cls, memory: Mapping[str, Array], device: str) -> Tensors:
        tensors = super().sent(memory, device)
        for name in tensors.keys() & {"a", "b"}:
            tensors[name] = tensors[name].T.contiguous()
        if "A" in memory:
            parts = [quadratics.matrices(memory, f) for f in quadratics.blocks(memory)]
            tensors["A"] = to_device(np.concatenate(parts, axis=1), device).T.contiguous()
        return tensors

    def on_host(self) -> dict[str, Array]:
        memory = dict(self.memory)
        for name in memory.keys() & {"a", "b"}:
            memory[name] = memory[name].T.contiguous()
        if "A" in memory:
            memory["A"] = torch.cat([memory["A"][f].T.reshape(-1) for f in quadratics.blocks(memory)])
        arrays = DeviceState.on_host(replace(self, memory=memory))
        quadratics.rebase(arrays)
        return arrays

    @property
    def changes_on_host(self) -> bool:
        return bool(quadratics.distant(self.memory["unit"].cpu().numpy()).any())

    def after(
        self, divergence: Divergence, problem: DeviceProblem, H: Any, Y: Any, *, old: Any, new: Any, weights: Any
    ) -> SurrogateState:
        """Return the state after a chunk: what is averaged weighs ``old`` so far, and ``new`` per sample.

        ``weights`` are those of its samples (n, 1), if they differ.
        """
        unit, before = self.memory["unit"], self.memory
        H = H / unit
        counted = times(H, weights)
        memory = dict(before) | self._sizes(divergence, problem, weights, old, new)
        memory["mass"] = old * before["mass"] + new * counted.sum(dim=0)
        if self.penalties:
            memory["squares"] = old * before["squares"] + new * (counted * H).sum(dim=0)
        V = self.W * unit[:, None]
        if "S" in before:
            memory["S"] = old * before["S"] + new * (counted.T @ H)
        if "S" in before and "a" not in before:
            b = times(problem.X, weights).T @ H
        else:
            G, C = (times(each, weights) for each in problem.model(Y))
            b = -((G if "a" in before else torch.addcmul(G, C, Y, value=-1)).T @ H)
        if "A" in before:
            memory["A"] = old * before["A"] + new * (C.T @ packed(H.T).T)
        if "a" in before:
            # The chunk's own model of A V, not A V itself: the slope at V is then the loss's, whatever the model.
            S, a = counted.T @ H, C.T @ (H * H)
            r = _ratio(a, S)
            memory["a"] = old * before["a"] + new * a
            b = b + r * ((r * V.T) @ S)
        memory["b"] = old * before["b"] + new * b
        return self._minimised(divergence, V, memory)

    def _floor(self, divergence: Divergence) -> Floor:
        return floor_of(divergence, "mean" in self.memory)

    def _sizes(self, divergence: Divergence, problem: DeviceProblem, weights: Any, old: Any, new: Any) -> Tensors:
        """Return the running typical sizes of the features."""
        floor, X, present = self._floor(divergence), problem.X, problem.present
        sizes = torch.log(X) if floor.geometric else X
        if present is None:
            total = times(sizes, weights).sum(dim=0)
            return {"size": old * self.memory["size"] + new * total}
        count = times(present, weights)
        weight = count.sum(dim=0)
        seen, safe = weight > 0, positive(weight)
        mean = torch.where(seen, (X * count).sum(dim=0) / safe, self.memory["mean"])
        size = mean
        if floor.geometric:
            size = torch.where(seen, (sizes * count).sum(dim=0) / safe, self.memory["size"])
        return {
            "size": old * self.memory["size"] + (1 - old) * size,
            "mean": old * self.memory["mean"] + (1 - old) * mean,
        }

    def _minimised(self, divergence: Divergence, V: Any, memory: Tensors) -> SurrogateState:
        """Return the state whose W is least in the models, in units of its largest weights or the best ones."""
        unit, b = memory["unit"], memory["b"]
        low = _low(self._floor(divergence), memory["size"], (memory["mass"] * unit).sum())
        least, found = low[:, None] * unit, None
        A, v, fixed = self._matrices(memory), V.T.contiguous(), self.C.fixed
        if self.penalties:
            v, found = self._penalised(A, b, v, least, unit)
        elif "a" in memory:  # in units of r the features share S; the floor is applied afterwards
            r = _ratio(memory["a"], memory["S"])
            v = descend(memory["S"][None], b / r, v * r, 0.0, math.inf, SWEEPS, fixed) / r
            v = torch.cat([V.T[:, :fixed], torch.maximum(v, least)[:, fixed:]], dim=1)
        else:
            v = descend(A, b, v, least, math.inf, SWEEPS, fixed)
        V = v.T
        if not divergence.domain.x.includes_zero:  # a weight keeps half of its value in one step: else the loss spikes
            V = torch.maximum(V, 0.5 * unit[:, None] * self.W)
        if "mean" in memory:
            mass = torch.clamp(memory["mass"], min=torch.finfo(V.dtype).tiny)[:, None]
            most = HIGHEST * (memory["mean"] + 0.01 * memory["mean"].mean()) / mass
            V = torch.cat([V[:fixed], torch.minimum(V, most)[fixed:]])
        if found is not None:
            W, memory["unit"] = self._settled(V, memory, found)
        else:
            largest = V.amax(dim=1)
            largest = torch.where(largest > quadratics.NEGLIGIBLE * unit, largest, unit)
            memory["unit"] = torch.cat([unit[:fixed], largest[fixed:]])
            W = V / memory["unit"][:, None]
        return replace(self, W=feasible(W.contiguous(), self.C), memory=memory)

    def _matrices(self, memory: Tensors) -> Any:
        """Return the A of every feature (F, K, K), or the one of all (1, K, K)."""
        K = len(self.W)
        if "A" in memory:
            return unpacked(memory["A"], K)
        if "a" in memory and self.penalties:
            r = _ratio(memory["a"], memory["S"])
            return r[:, :, None] * memory["S"] * r[:, None, :]
        return memory["S"][None]

    def _penalised(self, A: Any, b: Any, v: Any, least: Any, unit: Any) -> tuple[Any, Any]:
        """Return the weights of all features, and pull and stiffness of those at their bound (``quadratics.swept``)."""
        penalties, high = self.penalties, (unit * self.C.high)[None]
        A = A.clone()
        torch.diagonal(A, dim1=1, dim2=2).add_(penalties.l2_dictionary / (unit * unit))
        b = b - penalties.l1_dictionary / unit
        v = descend(A, b, v, torch.minimum(least, high), high, SWEEPS, self.C.fixed)
        slope = (v @ A[0] if len(A) == 1 else (A * v[:, None, :]).sum(dim=2)) - b
        bounded = v >= high
        diagonal = torch.diagonal(A, dim1=1, dim2=2).expand_as(v)
        pull = (torch.clamp(-slope, min=0) * bounded).sum(dim=0)
        return v, (pull, (diagonal * bounded).sum(dim=0))

    def _settled(self, V: Any, memory: Tensors, found: Any) -> tuple[Any, ...]:
        """Return what ``quadratics.settled`` makes of a few numbers per component, on the host."""
        few = {name: memory[name].cpu().numpy() for name in ("unit", "mass", "squares")}
        swept = [tuple(part.cpu().numpy() for part in found)]
        W, unit = quadratics.settled(self.penalties, self.C, V.cpu().numpy(), few, swept)
        return self.like(W, unit)

    def recombined(self, divergence: Divergence, W: Any, T: Any) -> SurrogateState:
        W, T = self.like(W, T)
        memory, unit, K = dict(self.memory), self.memory["unit"], len(W)
        T = T * unit / unit[:, None]
        memory |= {"b": memory["b"] @ T.T, "mass": T @ memory["mass"], "squares": (T * T) @ memory["squares"]}
        if "a" in memory:
            r = _ratio(memory["a"], self.memory["S"])
            memory["a"] = torch.stack([((row * r) @ self.memory["S"] * (row * r)).sum(dim=1) for row in T], dim=1)
        if "S" in memory:
            memory["S"] = T @ self.memory["S"] @ T.T
        if "A" in memory:
            first, second, _ = pairs(K, W.device)
            memory["A"] = (T @ unpacked(memory["A"], K) @ T.T)[:, first, second].contiguous()
        return replace(self, W=W, memory=memory)


def _ratio(a: Any, S: Any) -> Any:
    """Return r with diag(r_f) S diag(r_f) having the diagonal a_f: (F, K)."""
    tiny = torch.finfo(S.dtype).tiny
    return torch.sqrt(a / torch.clamp(torch.diagonal(S), min=tiny)) + tiny


def _low(floor: Floor, average: Any, mass: Any) -> Any:
    """Return the least weight of each feature."""
    if not floor.share:
        return torch.zeros_like(average)
    size = torch.exp(average) if floor.geometric else average + 0.01 * average.mean()
    return floor.share * size / torch.clamp(mass, min=torch.finfo(average.dtype).tiny)


class SurrogateEngine(DeviceEngine):
    """The engine of the surrogate: chunks of usual sizes on a GPU by recordings, all others plainly.

    Chunks are larger than on the processor: a GPU solves thousands of samples in the time of a few.
    """

    learns_by = Surrogate
    keeps = SurrogateState
    _state: SurrogateState

    def __init__(self, *given: Any, **named: Any) -> None:
        self._recorded: Recorded | None = None
        super().__init__(*given, **named)
        # Recorded formulas must not look at numbers: one without a curvature of its own looks for chords' lengths.
        own: Any = type(self.divergence)
        recordable = own.curvature is not Separable.curvature or self.divergence.absolute_deviations
        self.records = self.H.is_cuda and not self.state.penalties and recordable

    def size(self, left: int) -> int:
        """Return a power of two: there are few of these, so that one recorded CUDA graph serves many chunks."""
        if self.method.tau is not None:
            return min(int(self.method.tau), left)
        K, F = self.state.W.shape
        early = ROBUST if self.divergence.robust else EARLY
        most = min(max(early(self.clock), LATE(self.clock)), MOST_ENTRIES // max(F, K * K))
        most = max(1, most // self.smaller)
        most = 1 << (most.bit_length() - 1)
        return most if left >= most else left

    def weight(self, clock: float, n: float) -> float:
        """Return the weight of n samples; large chunks have little noise, so that the past is forgotten sooner.

        What a dictionary is worth depends on the number of its updates rather than of its samples.
        """
        if self.method.tau is not None:
            return float(self.method.weight(self.divergence, clock, n))
        return Averaging(EXPONENT, DELAY, self.method.forgetting)(clock, n, UNIT)

    def exchange_due(self, after: float) -> bool:
        """Return whether the clock is about to pass a power of four: an exchange costs as much as large chunks do."""
        if np.isfinite(self.method.horizon):
            return super().exchange_due(after)
        fourths = (int(np.log2(max(each, 1.0))) // 2 for each in (self.clock, after))
        return FIRST_EXCHANGE <= self.clock <= LAST_EXCHANGE and next(fourths) < next(fourths)

    @property
    def device_state(self) -> SurrogateState:
        """The state as it is now, in tensors of its own."""
        if self._recorded is not None:
            W, *memory = (each.clone() for each in self._recorded.inputs[2 + self._parameters :])
            self._state = replace(self._state, W=W, memory=dict(zip(self._state.memory, memory, strict=True)))
            self._recorded = None
        return self._state

    @device_state.setter
    def device_state(self, state: SurrogateState) -> None:
        self._state, self._recorded = state, None

    @property
    def _parameters(self) -> int:
        return len(self.divergence.scaled_parameters)

    def problem(self, chunk: ChunkOnDevice) -> tuple[Any, Any]:
        return self.samples[chunk.rows]

    def solve(self, chunk: ChunkOnDevice, problem: tuple[Any, Any], found: None) -> tuple[Any, Any]:
        """Return coefficients and the sum of their losses; the state has made its step, as both are one CUDA graph."""
        X, present = problem
        n, usual = chunk.weight, len(X) & (len(X) - 1) == 0
        rho = self.weight(self.clock + n, n)
        old, new = 1 - rho, rho / n
        if not (usual and self.records and present is None and chunk.counts is None):
            given = X, old, new, present, chunk.counts
            H, loss, self.device_state = self._step(self.divergence, self.device_state, *given)
            return H, loss
        recording = recorded(self._key(X), lambda: self._record(X))
        if recording is not self._recorded:
            divergence, state = self.divergence, self.device_state
            recording.load(2 + self._parameters, [state.W, *state.memory.values()])
            for place, name in zip(recording.inputs[2:], divergence.scaled_parameters, strict=False):
                place.fill_(getattr(divergence, name))
            self._recorded = recording
        recording.inputs[0].copy_(X)
        factors = recording.inputs[1]
        factors[0].fill_(old)
        factors[1].fill_(new)
        H, loss, *_ = recording.run()
        return H, loss

    def update(self, chunk: ChunkOnDevice, problem: tuple[Any, Any], found: tuple[Any, Any]) -> None:
        self.note_loss(chunk, found[1])

    def _step(
        self, divergence: Divergence, state: SurrogateState, X: Any, old: Any, new: Any, present: Any, weights: Any
    ) -> tuple[Any, Any, SurrogateState]:
        """Return coefficients H, the sum of the losses, and the state after a chunk X in internal units.

        ``present`` are the weights of its entries, ``weights`` those of its samples (n, 1); what is averaged weighs
        ``old`` so far and ``new`` per sample.
        """
        problem = DeviceProblem(divergence, X, state.W, self.box, self.penalty, present)
        H, Y, losses = rough_coefficients(problem)
        after = state.after(divergence, problem, H, Y, old=old, new=new, weights=weights)
        return H, times(losses[:, None], weights).sum(dtype=torch.float64), after

    def _key(self, X: Any) -> Hashable:
        divergence, state = self.divergence, self._state
        kind: Hashable = divergence
        if divergence.scaled_parameters:
            others = divergence.parameters().items()
            kind = type(divergence), *(each for each in others if each[0] not in divergence.scaled_parameters)
        rules = kind, self.box, self.penalty, state.C
        return *rules, tuple(state.memory), X.shape, len(state.W), X.dtype, str(X.device)

    def _record(self, X: Any) -> Recorded:
        state, names = self.device_state, self.divergence.scaled_parameters
        places = list(state.memory)

        def function(X: Any, factors: Any, *rest: Any) -> list[Any]:
            values, (W, *memory) = rest[: len(names)], rest[len(names) :]
            divergence = copy.copy(self.divergence)
            for name, value in zip(names, values, strict=True):  # formulas do not tell tensors from numbers
                object.__setattr__(divergence, name, value)
            before = replace(state, W=W, memory=dict(zip(places, memory, strict=True)))
            H, loss, after = self._step(divergence, before, X, factors[0], factors[1], None, None)
            return [H, loss, after.W, *(after.memory[name] for name in places)]

        numbers = [torch.full((), getattr(self.divergence, name), dtype=X.dtype, device=X.device) for name in names]
        factors = torch.full((2,), 0.5, dtype=X.dtype, device=X.device)
        inputs = [X, factors, *numbers, state.W, *state.memory.values()]
        return Recorded(function, inputs, fed_back=1 + len(places))
