"""em on a device: what ``onmf.methods.em`` keeps and does, on tensors, with the same chunks, weights, visits and steps.

A chunk costs O(nnz K), as there. Its coefficients are one kernel (``multiplicative``), its share of N another
(``entries``), and the rest is elementwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from onmf.coefficients.problem import CARRIES
from onmf.device.device_state import Tensors, Twin, feasible
from onmf.device.engine import Running
from onmf.device.entries import Entries
from onmf.device.multiplicative import Steps
from onmf.device.namespace import xp
from onmf.device.problem import positive
from onmf.device.samples import Chunks
from onmf.divergences import Divergence
from onmf.methods.em import EM, order_of
from onmf.methods.floors import ENOUGH_EVIDENCE, FLOOR, RARE
from onmf.methods.penalised import divided


@dataclass(frozen=True)
class EMTwin(Twin):
    """em's averages N (F, K) and D (K,)."""

    def after(
        self, order: float, X: Entries, H: Any, ratio: Any, evidence: Tensors, *, old: Any, new: Any, weights: Any
    ) -> EMTwin:
        """With a chunk whose (x / y)^order are ``ratio``: what is averaged weighs ``old`` so far, ``new`` per sample.

        ``weights`` are those of its samples (n, 1), if they differ; ``evidence`` is what the floor is made of.
        """
        before, fixed = self.memory, self.C.fixed
        counted = H if weights is None else H * weights
        memory = before | evidence
        memory["D"] = D = old * before["D"] + new * counted.sum(dim=0)
        memory["squares"] = squares = old * before["squares"] + new * (counted * H).sum(dim=0)
        N = old * before["N"] + new * X.summed(ratio, counted) * _power(self.W.T, order)
        low = floor(memory)
        divisor = torch.clamp(D, min=torch.finfo(D.dtype).tiny)
        divisor = divisor + order * self.penalties.l1_dictionary if self.penalties else divisor
        Wt = torch.maximum(_power(N / divisor, 1 / order), low[:, None])
        if self.penalties:
            Wt, s = self._priced(order, Wt, N, divisor, low, memory)
        else:
            s = Wt.amax(dim=0)
        if fixed:
            s = torch.cat([torch.ones_like(s[:fixed]), s[fixed:]])
        W = (Wt if self.penalties else Wt / s).T
        W = torch.cat([self.W[:fixed], W[fixed:]]) if fixed else W
        memory |= {"N": N if order == 1 else N * s ** (1 - order), "D": D * s, "squares": squares * s * s}
        memory["log_unit"] = memory["log_unit"] + torch.log(s)
        return replace(self, W=feasible(W, self.C), memory=memory)

    def _priced(self, order: float, Wt: Any, N: Any, divisor: Any, low: Any, memory: Tensors) -> tuple[Any, Any]:
        """``priced.divided``, on the host."""
        given = (Wt, N, divisor, low, memory["D"], memory["squares"])
        Wt_host, N_host, divisor_host, low_host, *averages = (each.cpu().numpy() for each in given)
        found = divided(self.penalties, order, Wt_host, N_host, divisor_host, low_host, tuple(averages), self.C.fixed)
        there, s = (torch.as_tensor(each, dtype=Wt.dtype, device=Wt.device) for each in found)
        return there, s

    def with_evidence(self, X: Entries, weights: Any, samples: float, n: float, newly: float) -> Tensors:
        """``evidence.evidence_with`` a chunk of the weight n, of which so much is new, after so many samples."""
        memory, values = self.memory, X.values if weights is None else X.values * weights[X.rows, 0]
        counts = torch.ones_like(memory["size"][:1]).expand(X.shape[0])[:, None] if weights is None else weights
        above = (X.values > 0).to(values.dtype)
        totals = {
            "size": X.summed(X.values, counts)[:, 0],
            "entries": torch.stack([values.sum(), (above if weights is None else above * weights[X.rows, 0]).sum()]),
        }
        share = n / (samples + n)
        means = {name: torch.lerp(memory[name], total / n, share) for name, total in totals.items()}
        return means | {"evidence": memory["evidence"] + newly}

    def recombined(self, divergence: Divergence, W: Any, T: Any) -> EMTwin:
        """``EM.recombined``."""
        W, T = (torch.as_tensor(each, dtype=self.W.dtype, device=self.W.device) for each in (W, T))
        D, squares = self.memory["D"] @ T.T, (T * T) @ self.memory["squares"]
        N = (W.T ** order_of(divergence) * D).contiguous()
        return replace(self, W=W, memory=self.memory | {"N": N, "D": D, "squares": squares})


def _power(x: Any, order: float) -> Any:
    return x if order == 1 else x**order


def floor(memory: Tensors) -> Any:
    """``evidence.floor``: what no weight of a feature falls below."""
    tiny = torch.finfo(memory["size"].dtype).tiny
    typical = memory["entries"][0] / torch.clamp(memory["entries"][1], min=tiny)
    evidence = torch.clamp(memory["evidence"][0], min=1.0)
    share = FLOOR * torch.clamp(ENOUGH_EVIDENCE / evidence, max=1.0)
    return (share * memory["size"] + RARE * typical / evidence) / torch.clamp(memory["D"].sum(), min=tiny)


class EMRunning(Running):
    """em, as on the processor."""

    kept = EMTwin
    method: EM

    @property
    def order(self) -> float:
        return order_of(self.divergence)

    def size(self, left: int, smaller: int) -> int:
        return max(1, self.method.chunk(self.clock, left) // smaller)

    def weight(self, clock: float, n: float) -> float:
        return self.method.weight(self.divergence, clock, n)

    def step(self, chunks: Chunks, part: slice, n: float, weights: Any) -> tuple[Any, Any]:
        X, before, H, loss = chunks.entries(part), self.twin, None, None
        evidence = before.with_evidence(X, weights, self.samples, n, 0.0 if self.repeated else n)
        rho, steps = self.weight(self.clock + n, n), self._steps()
        for _ in range(self.method.visits(self.clock)):
            Wt = self.twin.W.T.contiguous()
            mass = Wt.sum(dim=0)
            H, Y = steps.made(X, Wt, mass, self._start(X, mass, H))
            loss = self._loss(X, H, Y, mass, weights) if loss is None else loss
            ratio = _power(X.values / Y, self.order)
            here = replace(before, W=self.twin.W)  # its own share of the statistics is replaced in every visit
            self.twin = here.after(self.order, X, H, ratio, evidence, old=1 - rho, new=rho / n, weights=weights)
        return H, loss

    def _steps(self) -> Steps:
        penalty, order = self.penalty, self.order
        effort = self.method.effort(self.clock) * (self.method.penalised_effort if self.twin.penalties else 1)
        count = effort * self.method.coefficients(self.divergence).max_iter
        return Steps(order, order * penalty.l1, order * penalty.l2, self.box.low, self.box.high, count)

    def _start(self, X: Entries, mass: Any, H: Any) -> Any:
        """``Problem.start``: H where its fit has some of the sample's mass, else the same for all atoms."""
        totals = X.totals
        start = (totals / positive(mass.sum()))[:, None].expand(-1, len(mass))
        if H is not None:
            start = torch.where((H @ mass >= CARRIES * totals)[:, None], H, start)
        if self.penalty:
            start = torch.where(mass > 0, start, torch.zeros_like(mass))
        return torch.clamp(start, self.box.low, self.box.high)

    def _loss(self, X: Entries, H: Any, Y: Any, mass: Any, weights: Any) -> Any:
        """At the entries, and the slope at zero times the fit's sum over the zeros."""
        divergence: Any = self.divergence
        slope = divergence.slope_at_zero
        entries, carried = divergence.d(xp, X.values, Y) - slope * Y, slope * (H @ mass)
        if weights is not None:
            entries, carried = entries * weights[X.rows, 0], carried * weights[:, 0]
        return entries.sum(dtype=torch.float64) + carried.sum(dtype=torch.float64)
