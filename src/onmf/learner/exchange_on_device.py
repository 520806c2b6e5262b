"""What an exchange of atoms asks of its samples, where these are on a device."""

from __future__ import annotations

from typing import Any

import torch

from onmf._support.arrays import Array
from onmf.device.problem import Problem, hurried, positive
from onmf.divergences import Divergence
from onmf.divergences.base import TINY
from onmf.learner.exchange import ROUNDS, Judges, with_background
from onmf.model.penalty import Penalty
from onmf.model.sets import Box


class SamplesThere(Judges):
    """Dense samples X (n, F) in internal units; ``present`` are the weights of their entries, if they differ.

    ``few`` says that most entries are zero, where there is no curvature.
    """

    def __init__(self, divergence: Divergence, X: Any, present: Any, box: Box, penalty: Penalty, few: bool) -> None:
        self.divergence, self.X, self.present, self.number = divergence, X, present, len(X)
        self.box, self.penalty, self.few = box, penalty, few

    def _problem(self, rows: slice, W: Array) -> Problem:
        there = torch.as_tensor(W, device=self.X.device)
        present = None if self.present is None else self.present[rows]
        return Problem(self.divergence, self.X[rows], there, self.box, self.penalty, present)

    def solved(self, rows: slice, W: Array) -> tuple[Any, Array, Array]:
        problem = self._problem(rows, W)
        H, Y, _ = hurried(problem)
        objective = problem.objective(H, Y)
        scale = problem.losses(torch.clamp(2 * problem.X, min=TINY))
        values = torch.stack([objective, objective / scale]).cpu().numpy()
        return H, values[0], values[1]

    def grams(self, H: Any, W: Array) -> tuple[Array, Array]:
        problem = self._problem(slice(None), W)
        tiny = torch.finfo(H.dtype).tiny
        r, d = torch.ones_like(H[:, :1]), torch.ones_like(problem.W[0])
        if self.few:
            C = problem.model(problem.fit(H))[1] * (self.X > 0)
            r, d = C.sum(dim=1, keepdim=True), C.mean(dim=0) / C.mean()
        elif not problem.shared:
            C = problem.model(problem.fit(H))[1].expand_as(self.X)
            if self.present is not None:  # what is not known says nothing of the curvature that it would have
                C = torch.where(self.present > 0, C, torch.ones_like(C))
            logs = torch.log(torch.clamp(C, min=tiny))
            r, d = torch.exp(logs.mean(dim=1, keepdim=True)), torch.exp(logs.mean(dim=0) - logs.mean())
        S, Q = (H * r).T @ H / len(H), (problem.W * d) @ problem.W.T
        both: Array = torch.stack([S, Q]).cpu().numpy()
        return both[0], both[1]

    def lacking(self, rows: slice, H: Any, W: Array, worst: int) -> Array | None:
        problem = self._problem(rows, W)
        slope, C = problem.model(problem.fit(H[rows]))
        C, tiny = C.expand_as(slope), torch.finfo(slope.dtype).tiny
        slope = -slope * (problem.X > 0).any(dim=0)  # where there are no entries, no fit is too small
        u = torch.clamp(slope[worst] / (C[worst] + tiny), min=0)
        for _ in range(ROUNDS):
            g = torch.clamp(slope @ u, min=0) / (C @ (u * u) + tiny)
            u = torch.clamp(g @ slope, min=0) / ((g * g) @ C + tiny)
            u = u / positive(u.max())
        new: Array = u.cpu().numpy()
        return with_background(self.divergence, new, W) if new.any() else None
