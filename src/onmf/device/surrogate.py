"""The surrogate's statistics on a device: what ``onmf.methods.surrogate`` keeps and does, on tensors.

They are kept feature by feature: b (F, K), and A (F, K (K + 1) / 2) packed, or a (F, K); the rest is as on the host. A
chunk is averaged into them by the matrix products that it needs anyway, C' (H (x) H) and (C Y - G)' H.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from onmf._support.arrays import Array
from onmf.device.descent import descend
from onmf.device.device_state import Tensors, Twin, feasible
from onmf.device.problem import Problem, packed, pairs, positive, unpacked
from onmf.device.samples import to_device
from onmf.divergences import Divergence
from onmf.methods import penalised as priced
from onmf.methods import quadratics
from onmf.methods.floors import Floor, floor_of
from onmf.methods.surrogate import HIGHEST
from onmf.model.state import State

SWEEPS = quadratics.MOST_SWEEPS  # the coefficients take longer, whatever the chunk


@dataclass(frozen=True)
class SurrogateTwin(Twin):
    """The surrogate's quadratic models."""

    @classmethod
    def sent(cls, state: State, device: str) -> Tensors:
        memory = super().sent(state, device)
        for name in memory.keys() & {"a", "b"}:
            memory[name] = memory[name].T.contiguous()
        if "A" in memory:
            parts = [quadratics.matrices(state.memory, f) for f in quadratics.blocks(state.memory)]
            memory["A"] = to_device(np.concatenate(parts, axis=1), device).T.contiguous()
        return memory

    def returned(self, before: State) -> dict[str, Array]:
        memory = dict(self.memory)
        for name in memory.keys() & {"a", "b"}:
            memory[name] = memory[name].T.contiguous()
        if "A" in memory:
            memory["A"] = torch.cat([memory["A"][f].T.reshape(-1) for f in quadratics.blocks(before.memory)])
        arrays = replace(self, memory=memory).arrays
        quadratics.rebase(arrays)
        return arrays

    def has_moved(self, memory: dict[str, Array], before: State) -> bool:
        return not np.array_equal(memory["base"], before.memory["base"])

    def after(
        self, divergence: Divergence, problem: Problem, H: Any, Y: Any, *, old: Any, new: Any, weights: Any
    ) -> SurrogateTwin:
        """With a chunk: what is averaged weighs ``old`` so far, and ``new`` per sample.

        ``weights`` are those of its samples (n, 1), if they differ.
        """
        unit, before = self.memory["unit"], self.memory
        H = H / unit
        counted = H if weights is None else H * weights
        memory = dict(before) | self._sizes(divergence, problem, weights, old, new)
        memory["mass"] = old * before["mass"] + new * counted.sum(dim=0)
        if self.penalties:
            memory["squares"] = old * before["squares"] + new * (counted * H).sum(dim=0)
        V = self.W * unit[:, None]
        if "S" in before:
            memory["S"] = old * before["S"] + new * (counted.T @ H)
        if "S" in before and "a" not in before:
            b = (problem.X if weights is None else problem.X * weights).T @ H
        else:
            G, C = problem.model(Y)
            if weights is not None:
                G, C = G * weights, C * weights
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

    def _sizes(self, divergence: Divergence, problem: Problem, weights: Any, old: Any, new: Any) -> Tensors:
        """The running typical sizes of the features."""
        floor, X, present = self._floor(divergence), problem.X, problem.present
        sizes = torch.log(X) if floor.geometric else X
        if present is None:
            total = (sizes if weights is None else sizes * weights).sum(dim=0)
            return {"size": old * self.memory["size"] + new * total}
        count = present if weights is None else present * weights
        weight = count.sum(dim=0)
        known, safe = weight > 0, positive(weight)
        mean = torch.where(known, (X * count).sum(dim=0) / safe, self.memory["mean"])
        size = mean
        if floor.geometric:
            size = torch.where(known, (sizes * count).sum(dim=0) / safe, self.memory["size"])
        return {
            "size": old * self.memory["size"] + (1 - old) * size,
            "mean": old * self.memory["mean"] + (1 - old) * mean,
        }

    def _minimised(self, divergence: Divergence, V: Any, memory: Tensors) -> SurrogateTwin:
        """W where the models are least, in units of its largest weights or those that the penalties make best."""
        unit, b = memory["unit"], memory["b"]
        low = _low(self._floor(divergence), memory["size"], (memory["mass"] * unit).sum())
        least, found = low[:, None] * unit, None
        A, v, fixed = self._matrices(memory), V.T.contiguous(), self.C.fixed
        if self.penalties:
            v, found = self._priced(A, b, v, least, unit)
        elif "a" in memory:  # in units of r the features share S; the floor is applied afterwards
            r = _ratio(memory["a"], memory["S"])
            v = descend(memory["S"][None], b / r, v * r, 0.0, math.inf, SWEEPS, fixed) / r
            v = torch.cat([V.T[:, :fixed], torch.maximum(v, least)[:, fixed:]], dim=1)
        else:
            v = descend(A, b, v, least, math.inf, SWEEPS, fixed)
        V = v.T
        if not divergence.domain.x.closed:  # a weight keeps half of its old value in one step: else the loss spikes
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
        """The A of every feature (F, K, K), or the one of all (1, K, K)."""
        K = len(self.W)
        if "A" in memory:
            return unpacked(memory["A"], K)
        if "a" in memory and self.penalties:
            r = _ratio(memory["a"], memory["S"])
            return r[:, :, None] * memory["S"] * r[:, None, :]
        return memory["S"][None]

    def _priced(self, A: Any, b: Any, v: Any, least: Any, unit: Any) -> tuple[Any, Any]:
        """``priced.swept`` of all features: their weights, and pull and stiffness of those at their bound."""
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

    def _settled(self, V: Any, memory: Tensors, found: Any) -> tuple[Any, Any]:
        """``priced.settled``, which looks at a few numbers per atom, on the host."""
        few = {name: memory[name].cpu().numpy() for name in ("unit", "mass", "squares")}
        swept = [tuple(part.cpu().numpy() for part in found)]
        W, unit = priced.settled(self.penalties, self.C, V.cpu().numpy(), few, swept)
        there = {"dtype": V.dtype, "device": V.device}
        return torch.as_tensor(W, **there), torch.as_tensor(unit, **there)

    def recombined(self, divergence: Divergence, W: Any, T: Any) -> SurrogateTwin:
        """``quadratics.recombined``."""
        W, T = (torch.as_tensor(each, dtype=self.W.dtype, device=self.W.device) for each in (W, T))
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
    """r with diag(r_f) S diag(r_f) having the diagonal a_f: (F, K)."""
    tiny = torch.finfo(S.dtype).tiny
    return torch.sqrt(a / torch.clamp(torch.diagonal(S), min=tiny)) + tiny


def _low(floor: Floor, average: Any, mass: Any) -> Any:
    """What no weight of a feature may fall below."""
    if not floor.share:
        return torch.zeros_like(average)
    size = torch.exp(average) if floor.geometric else average + 0.01 * average.mean()
    return floor.share * size / torch.clamp(mass, min=torch.finfo(average.dtype).tiny)
