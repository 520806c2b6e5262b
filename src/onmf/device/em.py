"""The method em on a device, with the chunks, weights, visits and steps of ``onmf.methods.em``.

A chunk costs O(nnz K), as there. Its coefficients are one kernel, its share of N another (``entries``), and the rest is
elementwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from onmf._support.arrays import some_of, times
from onmf.coefficients.problem import CARRIES
from onmf.device.device_state import DeviceState, Tensors, feasible
from onmf.device.engine import ChunkOnDevice, DeviceEngine
from onmf.device.entries import Entries, MultiplicativeSteps
from onmf.device.problem import positive, xp
from onmf.divergences import Divergence
from onmf.methods.em import EM, ENOUGH_EVIDENCE, FLOOR, RARE, divided, order_of


@dataclass(frozen=True)
class EMState(DeviceState):
    """em's averages N (F, K) and D (K,) on a device."""

    def after(
        self, order: float, X: Entries, H: Any, ratio: Any, evidence: Tensors, *, old: Any, new: Any, weights: Any
    ) -> EMState:
        """Return the state after a chunk whose (x / y)^order are ``ratio``.

        What is averaged weighs ``old`` so far, ``new`` per sample. ``weights`` are those of the samples (n, 1), if they
        differ; ``evidence`` is what the floor is made of.
        """
        before, fixed = self.memory, self.C.fixed
        counted = times(H, weights)
        memory = before | evidence
        memory["D"] = D = old * before["D"] + new * counted.sum(dim=0)
        memory["squares"] = squares = old * before["squares"] + new * (counted * H).sum(dim=0)
        N = old * before["N"] + new * X.summed(ratio, counted) * _power(self.W.T, order)
        low = floor(memory)
        divisor = torch.clamp(D, min=torch.finfo(D.dtype).tiny)
        divisor = divisor + order * self.penalties.l1_dictionary if self.penalties else divisor
        Wt = torch.maximum(_power(N / divisor, 1 / order), low[:, None])
        if self.penalties:
            Wt, s = self._penalised(order, Wt, N, divisor, low, memory)
        else:
            s = Wt.amax(dim=0)
        if fixed:
            s = torch.cat([torch.ones_like(s[:fixed]), s[fixed:]])
        W = (Wt if self.penalties else Wt / s).T
        W = torch.cat([self.W[:fixed], W[fixed:]]) if fixed else W
        memory |= {"N": N if order == 1 else N * s ** (1 - order), "D": D * s, "squares": squares * s * s}
        memory["log_unit"] = memory["log_unit"] + torch.log(s)
        return replace(self, W=feasible(W, self.C), memory=memory)

    def _penalised(self, order: float, Wt: Any, N: Any, divisor: Any, low: Any, memory: Tensors) -> tuple[Any, ...]:
        """Return what ``methods.em.divided`` finds on the host."""
        given = (Wt, N, divisor, low, memory["D"], memory["squares"])
        Wt, N, divisor, low, *averages = (each.cpu().numpy() for each in given)
        return self.like(*divided(self.penalties, order, Wt, N, divisor, low, tuple(averages), self.C.fixed))

    def with_evidence(self, X: Entries, weights: Any, samples: float, n: float, new: float) -> Tensors:
        """Return what the floor is made of, after a chunk of the weight n, of which ``new`` was not seen before.

        ``samples`` are those in the averages so far.
        """
        memory, own, above = self.memory, some_of(weights, (X.rows, 0)), (X.values > 0).to(X.values.dtype)
        counts = times(torch.ones_like(memory["size"][:1]).expand(X.shape[0])[:, None], weights)
        totals = {
            "size": X.summed(X.values, counts)[:, 0],
            "entries": torch.stack([times(X.values, own).sum(), times(above, own).sum()]),
        }
        share = n / (samples + n)
        means = {name: torch.lerp(memory[name], total / n, share) for name, total in totals.items()}
        return means | {"evidence": memory["evidence"] + new}

    def recombined(self, divergence: Divergence, W: Any, T: Any) -> EMState:
        W, T = self.like(W, T)
        D, squares = self.memory["D"] @ T.T, (T * T) @ self.memory["squares"]
        N = (W.T ** order_of(divergence) * D).contiguous()
        return replace(self, W=W, memory=self.memory | {"N": N, "D": D, "squares": squares})


def _power(x: Any, order: float) -> Any:
    return x if order == 1 else x**order


def floor(memory: Tensors) -> Any:
    """Return the least weight of each feature, as ``onmf.methods.em.floor`` does."""
    tiny = torch.finfo(memory["size"].dtype).tiny
    typical = memory["entries"][0] / torch.clamp(memory["entries"][1], min=tiny)
    evidence = torch.clamp(memory["evidence"][0], min=1.0)
    share = FLOOR * torch.clamp(ENOUGH_EVIDENCE / evidence, max=1.0)
    return (share * memory["size"] + RARE * typical / evidence) / torch.clamp(memory["D"].sum(), min=tiny)


class EMEngine(DeviceEngine):
    """The engine of em, which learns as on the processor."""

    learns_by = EM
    keeps = EMState
    from_entries: ClassVar[bool] = True

    def size(self, left: int) -> int:
        return max(1, int(self.method.chunk(self.clock, left)) // self.smaller)

    def weight(self, clock: float, n: float) -> float:
        return float(self.method.weight(self.divergence, clock, n))

    def begin_chunk(self, chunk: ChunkOnDevice) -> None:
        super().begin_chunk(chunk)
        n = chunk.weight
        self.before, self.X = self.device_state, self.samples.entries(chunk.rows)
        self.evidence = self.before.with_evidence(self.X, chunk.counts, self.seen, n, 0.0 if self.repeated else n)

    def visits(self, chunk: ChunkOnDevice) -> int:
        return int(self.method.visits(self.clock))

    def problem(self, chunk: ChunkOnDevice) -> tuple[Any, Any]:
        Wt = self.device_state.W.T.contiguous()
        return Wt, Wt.sum(dim=0)

    def solve(self, chunk: ChunkOnDevice, problem: tuple[Any, Any], found: tuple[Any, Any] | None) -> tuple[Any, Any]:
        """Return the coefficients and their fits at the entries."""
        (Wt, mass), order, method, penalty = problem, order_of(self.divergence), self.method, self.penalty
        effort = method.effort(self.clock) * (method.penalised_effort if self.state.penalties else 1)
        count = effort * method.coefficient_solver(self.divergence).max_iter
        bounds = self.box.low, self.box.high
        steps = MultiplicativeSteps(order, order * penalty.l1, order * penalty.l2, *bounds, count)
        return steps.made(self.X, Wt, mass, self._start(mass, None if found is None else found[0]))

    def _start(self, mass: Any, H: Any) -> Any:
        """Return H where its fit has some of the sample's mass, else one coefficient for all components."""
        totals = self.X.totals
        start = (totals / positive(mass.sum()))[:, None].expand(-1, len(mass))
        if H is not None:
            start = torch.where((H @ mass >= CARRIES * totals)[:, None], H, start)
        if self.penalty:
            start = torch.where(mass > 0, start, torch.zeros_like(mass))
        return torch.clamp(start, self.box.low, self.box.high)

    def update(self, chunk: ChunkOnDevice, problem: tuple[Any, Any], found: tuple[Any, Any]) -> None:
        (H, Y), X, order, n = found, self.X, order_of(self.divergence), chunk.weight
        if self.device_state is self.before:
            self.note_loss(chunk, self._loss(H, Y, problem[1], chunk.counts))
        rho, ratio = self.weight(self.clock + n, n), _power(X.values / Y, order)
        here = replace(self.before, W=self.device_state.W)  # the chunk's share is replaced in every visit
        weights = {"old": 1 - rho, "new": rho / n, "weights": chunk.counts}
        self.device_state = here.after(order, X, H, ratio, self.evidence, **weights)

    def _loss(self, H: Any, Y: Any, mass: Any, weights: Any) -> Any:
        """Return the loss at the entries, and the slope at zero times the fit's sum over the zeros."""
        divergence: Any = self.divergence
        slope = divergence.slope_at_zero
        entries = times(divergence.d(xp, self.X.values, Y) - slope * Y, some_of(weights, (self.X.rows, 0)))
        carried = times(slope * (H @ mass), some_of(weights, (slice(None), 0)))
        return entries.sum(dtype=torch.float64) + carried.sum(dtype=torch.float64)
