"""The coefficient problem on tensors: min over h in the box of d(x || hW) + penalty(h), one problem per row of X.

At the fit y = hW a divergence has the slope g and the curvature c > 0, so that its quadratic model in h is

    h' (sum_f c_f w_f w_f') h / 2 - h' sum_f (c_f y_f - g_f) w_f

All matrices of a chunk are one product, C @ (W (x) W), all right sides another, and ``quadratic_programmes`` does the
rest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from onmf._support.arrays import Counts, some_of, times
from onmf.device.quadratic_programmes import solve
from onmf.device.samples import DeviceBatch
from onmf.device.transfer import moved, to_device
from onmf.divergences import Divergence
from onmf.divergences.base import TINY
from onmf.model.penalty import Penalty
from onmf.model.sets import Box
from onmf.model.units import Units

log = logging.getLogger("onmf")

ROUNDS = 2  # of a chunk while it is learnt from
MOST = 10.0  # times the mass that a sample with missing entries is likely to have, that one component may have
HALVINGS = 30
STIFFER = 4.0
SUFFICIENT = 1e-4  # of the decrease that the slope promises
BLOCK, MOST_ENTRIES = 2**15, 2**27  # samples solved side by side, and numbers of them or of their matrices
QUICK = 6  # steps of a block; the samples that need more are collected


class _Namespace:
    """PyTorch as the array namespace of the divergences' formulas, some of whose arguments may be plain numbers.

    Numbers are never sent to the device, where one would wait for them.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def maximum(x: Any, y: Any) -> Any:
        return torch.clamp(x, min=y) if isinstance(x, torch.Tensor) else torch.clamp(y, min=x)

    @staticmethod
    def minimum(x: Any, y: Any) -> Any:
        return torch.clamp(x, max=y) if isinstance(x, torch.Tensor) else torch.clamp(y, max=x)

    @staticmethod
    def where(condition: Any, x: Any, y: Any) -> Any:
        if not isinstance(y, torch.Tensor):
            return torch.masked_fill(x, ~condition, y)
        return torch.where(condition, x, y) if isinstance(x, torch.Tensor) else torch.masked_fill(y, condition, x)


xp = _Namespace()


class DeviceProblem:
    """The coefficient problems of samples X (n, F) in internal units.

    ``present`` are the weights of their entries, if they differ.
    """

    def __init__(self, divergence: Divergence, X: Any, W: Any, box: Box, penalty: Penalty, present: Any = None) -> None:
        self.divergence: Any = divergence  # a separable one
        self.X, self.W, self.box, self.penalty, self.present = X, W, box, penalty, present
        self.shared = divergence.quadratic and present is None  # do all samples have one matrix?
        self._products: Any = None

    def rows(self, some: Any) -> DeviceProblem:
        """Return the problems of some of the samples."""
        present = some_of(self.present, some)
        part = DeviceProblem(self.divergence, self.X[some], self.W, self.box, self.penalty, present)
        part._products = self.products
        return part

    @property
    def products(self) -> Any:
        """W (x) W, packed: (P, F); or W W' where all samples share it: (1, K, K)."""
        if self._products is None:
            self._products = (self.W @ self.W.T)[None] if self.shared else packed(self.W)
        return self._products

    def fit(self, H: Any) -> Any:
        """Return Y = HW."""
        return H @ self.W

    def losses(self, Y: Any) -> Any:
        """Return d(x || y) per sample."""
        return times(self.divergence.d(xp, self.X, Y), self.present).sum(dim=1)

    def objective(self, H: Any, Y: Any) -> Any:
        """Return d(x || y) with the penalty, per sample."""
        losses = self.losses(Y)
        if not self.penalty:
            return losses
        return losses + 0.5 * self.penalty.l2 * (H * H).sum(dim=1) + self.penalty.l1 * H.sum(dim=1)

    def model(self, Y: Any, newton: bool = False) -> tuple[Any, Any]:
        """Return slopes and curvatures at the fits."""
        slope, curvature = self.divergence.model(xp, self.X, Y, newton)
        return times(slope, self.present), times(curvature, self.present)

    def matrices(self, C: Any) -> Any:
        """Return the matrices of the quadratic models, with the penalty: (n, K, K), or (1, K, K)."""
        M = self.products.clone() if self.shared else unpacked(C @ self.products.T, len(self.W))
        if self.penalty.l2:
            torch.diagonal(M, dim1=1, dim2=2).add_(self.penalty.l2)
        return M

    def minimised(self, H: Any, Y: Any, newton: bool = False, stiffer: Any = None, polish: bool = True) -> Any:
        """Return where the quadratic models at H, which has the fits Y, are least.

        ``stiffer`` are factors (n, 1) of the curvatures, if there are any; without ``polish``, rounding is not mended.
        """
        if self.shared:
            C, b = None, self.X @ self.W.T
        else:
            slope, C = self.model(Y, newton)
            C = C if stiffer is None else C * stiffer
            b = -(torch.addcmul(slope, C, Y, value=-1) @ self.W.T)
        b = b - self.penalty.l1 if self.penalty else b
        return solve(self.matrices(C), b, H, self.box.low, self.high, polish)

    def times_components(self, slope: Any, H: Any) -> Any:
        """Return the slopes of the objective in h from those in the fits: (n, K)."""
        gradient = slope @ self.W.T
        return gradient + self.penalty.l2 * H + self.penalty.l1 if self.penalty else gradient

    def newton_matrices(self, H: Any, Y: Any, G: Any, C: Any) -> Any:
        """Return the matrices of Newton's models, of curvatures C, in the coefficients that slopes G let move.

        Where a loss is not convex and such a matrix is not positive definite, it is that of the dictionary's model.
        """
        M = self.matrices(C)
        if self.divergence.convex:
            return M
        free = ((self.box.low < H) | (G <= 0)).to(M.dtype)
        M = M * free[:, :, None] * free[:, None, :] + torch.diag_embed(1 - free)
        bent = torch.nonzero(torch.linalg.cholesky_ex(M)[1])[:, 0]
        if len(bent):
            some = self.rows(bent)
            M[bent] = some.matrices(some.model(Y[bent])[1])
        return M

    @property
    def mass(self) -> Any:
        """sum_f W_kf per component, or by the weights of a sample's entries: (K,) or (n, K)."""
        return self.W.sum(dim=1) if self.present is None else self.present @ self.W.T

    @property
    def totals(self) -> Any:
        """sum_f x_f per sample."""
        return times(self.X, self.present).sum(dim=1)

    @property
    def unbounded(self) -> bool:
        """Is the upper bound on the coefficients the default, which they should not reach?"""
        return self.present is None and self.box.high >= Box().high

    @property
    def high(self) -> Any:
        """The upper bounds of the coefficients; where entries are missing, as much as a component can carry."""
        if self.present is None:
            return self.box.high
        mass, weight = self.W.sum(dim=1), self.present.sum(dim=1)
        likely = MOST * self.X.shape[1] * self.totals / positive(weight)
        most = likely[:, None] / positive(mass) + self.box.low
        return torch.clamp(most, max=self.box.high)

    def start(self) -> Any:
        """Return one coefficient for all components, such that the fit has the sample's mass."""
        level = self.totals / positive(self.mass.sum(dim=-1))
        H = level[:, None].expand(-1, len(self.W)).clone()
        return torch.clamp(H, self.box.low, self.box.high)


def rough_coefficients(problem: DeviceProblem) -> tuple[Any, Any, Any]:
    """Return coefficients that are good enough to learn from, their fits and losses.

    A sample whose model is least where its loss is higher stays where it is, and is given a stiffer one.
    """
    divergence, H = problem.divergence, problem.start()
    if problem.shared:  # the model is the loss
        H = problem.minimised(H, None)
        Y = problem.fit(H)
        return H, Y, problem.losses(Y)
    Y = problem.fit(H)
    rounds = ROUNDS + 2 * ((divergence.alpha_order or 0) > 1) + divergence.robust
    if divergence.majorised and problem.unbounded:  # no step leads up
        for number in range(rounds):
            H = problem.minimised(H, Y, polish=number == rounds - 1)
            Y = problem.fit(H)
        return H, Y, problem.losses(Y)
    # Under Kullback-Leibler the chord's curvature is as good as the second derivative, and cheaper.
    f, stiffer = problem.objective(H, Y), None
    newton = divergence.convex and divergence.alpha_order != 1
    for number in range(rounds):
        new = problem.minimised(H, Y, newton, stiffer, polish=number == rounds - 1)
        fit = problem.fit(new)
        value = problem.objective(new, fit)
        better = value <= f  # which NaN is not
        H, Y = torch.where(better[:, None], new, H), torch.where(better[:, None], fit, Y)
        f = torch.where(better, value, f)
        factor = STIFFER - (STIFFER - 1) * better.to(f.dtype)[:, None]
        stiffer = factor if stiffer is None else stiffer * factor
    return H, Y, problem.losses(Y) if problem.penalty else f


def descended(problem: DeviceProblem, H: Any, tol: float, steps: int) -> tuple[Any, Any, Any]:
    """Return better coefficients than H, which samples have converged, and the places of those that are not done.

    A sample has converged when at most ``tol`` of d(x || 2x) is left to gain, by the bound of
    ``onmf.coefficients.base``; as there, a step that promises less than rounding can tell is the last. A sample for
    which no step leads down is done, too.
    """
    eps = float(torch.finfo(problem.X.dtype).eps)
    converged = torch.zeros(len(H), dtype=torch.bool, device=H.device)
    found, left = H.clone(), torch.arange(len(H), device=H.device)
    some, h, scale = problem, H, problem.losses(torch.clamp(2 * problem.X, min=TINY))
    good = stuck = torch.zeros_like(converged)
    for number in range(steps + 1):
        y = some.fit(h)
        slope, C = some.model(y, newton=True)
        f, G = some.objective(h, y), some.times_components(slope, h)
        good = good | (torch.minimum(_remaining_gain(some, h, G), f) <= max(tol, 10 * eps) * scale)
        open_ = torch.nonzero(~(good | stuck))[:, 0]
        if len(open_) < len(left):
            found[left], converged[left] = h, good
            left, some, scale = left[open_], some.rows(open_), scale[open_]
            h, y, f, G, C = (each[open_] for each in (h, y, f, G, C))
        if not len(left) or number == steps:
            break
        M = some.newton_matrices(h, y, G, C)
        trial = solve(M, torch.matmul(M, h[:, :, None])[:, :, 0] - G, h, some.box.low, some.high)
        noise, promised = 16 * eps * scale, (G * (h - trial)).sum(dim=1)
        good = promised.abs() <= noise
        h, stuck = _line_search(some, h, y, f, trial, promised, noise)
        stuck = stuck & ~good
    found[left] = h
    return found, converged, left


def _line_search(
    problem: DeviceProblem, h: Any, y: Any, f: Any, trial: Any, promised: Any, noise: Any
) -> tuple[Any, Any]:
    """Return points on the way from h to the trial points where f has fallen enough, and which samples have none."""
    step, fit = torch.ones_like(h[:, :1]), problem.fit(trial)
    for _ in range(HALVINGS):
        reached = torch.lerp(h, trial, step)
        value = problem.objective(reached, torch.lerp(y, fit, step))
        high = ~(value <= f - SUFFICIENT * step[:, 0] * promised + noise)
        if not bool(high.any()):
            return reached, high
        step = torch.where(high[:, None], 0.5 * step, step)
    return torch.where(high[:, None], h, reached), high


def _remaining_gain(problem: DeviceProblem, H: Any, G: Any) -> Any:
    """Return a first-order bound on f(h) - min f per sample."""
    reach = problem.totals[:, None] / positive(problem.mass)
    down = torch.clamp(G, min=0) * (H - problem.box.low)
    up = torch.clamp(-G, min=0) * torch.minimum(torch.maximum(reach - H, H), problem.box.high - H)
    return (down + up).sum(dim=1)


@dataclass(frozen=True)
class SolvedBlock:
    """The coefficients H (n, K) and losses of some samples."""

    numbers: Any  # of the samples: a tensor beside H
    H: Any
    losses: Any
    unsolved: int  # samples that have not converged
    raised: int  # entries outside the domain

    @property
    def rows(self) -> Counts:
        """The numbers of the samples, on the host."""
        rows: Counts = self.numbers.cpu().numpy()
        return rows


@dataclass(frozen=True)
class _Stragglers:
    """Samples that a few steps have not solved: those of many blocks make their later steps together."""

    numbers: Any
    problem: DeviceProblem
    H: Any

    @classmethod
    def joined(cls, parts: list[_Stragglers]) -> _Stragglers:
        """Return the samples of all parts as one."""
        first, present = parts[0].problem, None
        if first.present is not None:
            present = torch.cat([part.problem.present for part in parts])
        X = torch.cat([part.problem.X for part in parts])
        problem = DeviceProblem(first.divergence, X, first.W, first.box, first.penalty, present)
        return cls(torch.cat([part.numbers for part in parts]), problem, torch.cat([part.H for part in parts]))


@dataclass(frozen=True)
class DeviceSolver:
    """A dictionary and all else that the coefficients of samples depend on."""

    W: Any  # (K, F)
    divergence: Divergence  # in the data's units
    inside: Divergence  # in internal ones
    units: Units
    box: Box
    penalty: Penalty
    tol: float
    max_iter: int

    def solved(self, X: Any, device: str) -> Iterator[SolvedBlock]:
        """Yield precise coefficients of samples or of a tensor, block by block, the slowest samples last."""
        K, F = self.W.shape
        size = max(1, min(BLOCK, MOST_ENTRIES // max(F, K * K)))
        W = to_device(self.W, device)
        waiting: list[_Stragglers] = []
        first, scarce = 0, False
        while first < X.shape[0]:
            try:
                block, rest = self._block(X[first : first + size], first, W)
            except torch.cuda.OutOfMemoryError:
                if scarce:
                    raise MemoryError(
                        f"the memory of {device} is full; free some of it, or leave device out to compute on the "
                        "processor."
                    ) from None
                size, scarce = max(1, size // 8), True
                torch.cuda.empty_cache()
                log.warning("The memory of %s is full; continuing with an eighth of the samples at a time.", device)
                continue
            yield block
            waiting += [rest] if len(rest.numbers) else []
            first += size
            if waiting and (first >= X.shape[0] or sum(len(each.numbers) for each in waiting) >= size // 2):
                yield self._finished(waiting)
                waiting.clear()

    def _block(self, X: Any, first: int, W: Any) -> tuple[SolvedBlock, _Stragglers]:
        """Solve samples, the first of which has this number, as far as a few steps go."""
        there = moved(X, W.device, W.dtype)
        numbers = torch.arange(there.shape[0], device=there.device)
        batch = DeviceBatch(there, numbers, self.units, self.divergence, W.dtype)
        V, present = batch[:]
        problem = DeviceProblem(self.inside, V, W, self.box, self.penalty, present)
        H, converged, left = descended(problem, rough_coefficients(problem)[0], self.tol, min(QUICK, self.max_iter))
        rest = _Stragglers(first + left, problem.rows(left), H[left])
        losses = problem.losses(problem.fit(H))
        done = torch.ones_like(converged)
        done[left] = False
        unsolved, raised = int((done & ~converged).sum()), int(batch.raised)
        if not len(left):
            return SolvedBlock(first + numbers, H, losses, unsolved, raised), rest
        return SolvedBlock(first + numbers[done], H[done], losses[done], unsolved, raised), rest

    def _finished(self, waiting: list[_Stragglers]) -> SolvedBlock:
        """Make all the steps that stragglers may take."""
        some = _Stragglers.joined(waiting)
        H, converged, _ = descended(some.problem, some.H, self.tol, self.max_iter - min(QUICK, self.max_iter))
        losses = some.problem.losses(some.problem.fit(H))
        return SolvedBlock(some.numbers, H, losses, int((~converged).sum()), 0)


def positive(x: Any) -> Any:
    """Return x with ones in place of zeros."""
    return x + (x <= 0)


def packed(V: Any) -> Any:
    """Return products of any two of the K rows of V (K, m), each pair once: (K (K + 1) / 2, m)."""
    first, second, _ = pairs(len(V), V.device)
    return V[first] * V[second]


def unpacked(M: Any, K: int) -> Any:
    """Return packed symmetric matrices (n, K (K + 1) / 2) as (n, K, K)."""
    return M.index_select(1, pairs(K, M.device)[2]).view(-1, K, K)


@cache  # recordings read them where they are
def pairs(K: int, device: Any) -> tuple[Any, Any, Any]:
    """Return the rows and columns of packed entries, and the packed place of every entry of a whole matrix."""
    first, second = torch.triu_indices(K, K, device=device)
    places = torch.empty((K, K), dtype=torch.int64, device=device)
    places[first, second] = places[second, first] = torch.arange(len(first), device=device)
    return first, second, places.ravel()
