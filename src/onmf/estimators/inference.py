"""Precise coefficients of samples in a fitted dictionary, found by the processor or by PyTorch on a device."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array, Counts, is_tensor
from onmf._support.threads import cached_property
from onmf.coefficients import precise_solver
from onmf.coefficients.problem import Problem
from onmf.device.tensors import as_array
from onmf.estimators.messages import warn_not_whole, warn_raised, warn_unsolved
from onmf.learner import Fitted, Learned
from onmf.learner.initialise import require_weighs_entries
from onmf.model.penalty import Penalty
from onmf.model.sets import Box, DictionaryBox, DictionarySet, Sets, Simplex
from onmf.model.units import share_of_whole
from onmf.model.validation import DataError, require_below_bound, require_finite_values, require_valid_entries
from onmf.samples import Samples

BLOCK = 1024  # samples solved side by side: enough for BLAS, little memory


@dataclass(frozen=True)
class Inference:
    """A fitted model, and how coefficients are found in its dictionary."""

    fitted: Fitted
    sets: Sets | None  # as the user gave them
    tol: float
    max_iter: int
    device: str | None = None  # a device of PyTorch; None: the compiled code of this package
    told: Counts | None = None  # takes the numbers of what there is to warn of, from a caller that will

    @cached_property
    def _both_sets(self) -> tuple[DictionarySet, Box | Simplex]:
        return (self.sets or Sets()).where("simplex" if self.fitted.shares else "nonnegative")

    @property
    def box(self) -> Box | Simplex:
        """The set H that coefficients lie in."""
        return self._both_sets[1]

    @property
    def feasible(self) -> DictionarySet | DictionaryBox:
        """The part of C that the method keeps the dictionary in."""
        fitted = self.fitted
        C = dataclasses.replace(self._both_sets[0], fixed=fitted.state.C.fixed)
        if not isinstance(fitted, Learned):
            return C
        return fitted.method.feasible(fitted.inside, dataclasses.replace(fitted.state, C=C))

    @property
    def penalty(self) -> Penalty:
        """The penalty on the coefficients."""
        penalties = self.fitted.state.penalties
        return self.fitted.method.penalty(penalties) if isinstance(self.fitted, Learned) else penalties.of_coefficients

    def coefficients(self, X: Any) -> Any:
        """Return H (n, K) of checked samples, or of a tensor: on a device as a tensor beside X."""
        shape = X.shape[0], len(self.fitted.state.W)
        if self.device is not None:
            return self._coefficients_on_device(self.device, X, shape)
        H = np.empty(shape, dtype=_precision(X))
        for rows, found, _ in self.solved(_samples(X)):
            H[rows] = found
        H *= self.fitted.coefficient_unit
        require_finite_values(H, X, self.fitted.units.mean)
        return H

    def _coefficients_on_device(self, device: str, X: Any, shape: tuple[int, int]) -> Any:
        """Return H beside X if that is a tensor, and else as an array."""
        import torch

        dtype = torch.float64 if _precision(X) is np.float64 else torch.float32
        H = torch.empty(shape, dtype=dtype, device=X.device if is_tensor(X) else "cpu")
        for block in self._solved_on_device(device, X):
            H[block.numbers.to(H.device)] = block.H.to(H.device)
        H *= self.fitted.coefficient_unit
        if not bool(H.sum(dtype=torch.float64).isfinite()):
            require_finite_values(H.cpu().numpy(), on_host(X), self.fitted.units.mean)
        return H if is_tensor(X) else H.numpy()

    def loss(self, X: Any) -> float:
        """Return the mean divergence per sample, by its weight, in the data's units."""
        counts = X.sample_weight if isinstance(X, Samples) else None
        n, unit, total = X.shape[0], self._loss_unit, 0.0
        shares = None if counts is None else counts / counts.sum()
        for rows, losses in self._losses(X):
            if not np.isfinite(losses * unit).all():
                require_finite_values(losses * unit, on_host(X[rows]), self.fitted.units.mean, _numbers(rows))
            total += float((losses / n if shares is None else losses * shares[rows]).sum())
        return total * unit

    def _losses(self, X: Any) -> Iterator[tuple[Any, Array]]:
        """Yield the rows of each block and their losses in internal units."""
        if self.device is not None:
            for block in self._solved_on_device(self.device, X):
                yield block.rows, block.losses.cpu().numpy().astype(np.float64)
            return
        for rows, H, problem in self.solved(_samples(X)):
            with threads.own_threads():
                losses = problem.loss(H, problem.fit(H)).astype(np.float64)
            yield rows, losses

    def held_out_losses(self, seen: Samples, held: Samples) -> Array:
        """Return d(x || hW) over the entries ``held`` of each sample, with h found from the entries ``seen`` alone."""
        losses = np.empty(len(seen))
        for rows, H, problem in self.solved(seen):
            part = held[rows] if problem.X.sparse else held[rows].densified()
            V, _ = self.fitted.units.inside(part, self.fitted.divergence)
            there = Problem(problem.divergence, V.astype(H.dtype), problem.W)
            with threads.own_threads():
                losses[rows] = there.loss(H, there.fit(H))
        return losses * self._loss_unit

    def stationarity(self, X: Samples) -> float:
        """Return ||W - P_C(W - grad f(W))||_F in internal units.

        By Danskin's theorem grad f is the mean of h' (d/dy) d(x || hW) at the minimising h; at kinks of the divergence,
        with the slopes that the solver has found with h.
        """
        state, W = self.fitted.state, self.fitted.state.W.astype(X.dtype, copy=False)
        gradient = state.penalties.slope(W)
        for rows, H, problem in self.solved(X):
            with threads.own_threads():
                slope = problem.slopes(H @ W)
                require_finite_values(slope, X[rows], self.fitted.units.mean, _numbers(rows))
                gradient += H.T @ slope / X.shape[0]
        feasible = self.feasible
        gradient[: feasible.fixed] = 0  # fixed components do not move
        distance = float(np.linalg.norm(W - feasible.project(W - gradient)))
        if not np.isfinite(gradient).all() or not np.isfinite(distance):
            raise DataError("The gradient at these data is beyond the range of numbers; rescale or clip them.")
        return distance

    @property
    def _loss_unit(self) -> float:
        return self.fitted.divergence.loss_unit(self.fitted.units.scale)

    def solved(self, X: Samples) -> Iterator[tuple[slice, Array, Problem]]:
        """Yield per block its rows, their coefficients, and the problem that they solve in internal units."""
        fitted, penalty, box = self.fitted, self.penalty, self.box
        divergence, W = fitted.inside, fitted.state.W.astype(X.dtype, copy=False)
        if fitted.units.whole and share_of_whole(X) < 0.5:
            warn_not_whole()
        if X.masked:
            require_weighs_entries(divergence)
        solver = precise_solver(divergence, X.sparse).stopping(self.tol, self.max_iter).within(box)
        sparse = solver.takes_sparse(divergence, X.masked)
        raised = unsolved = 0
        for first in range(0, X.shape[0], BLOCK):
            rows = slice(first, min(first + BLOCK, X.shape[0]))
            given, numbers = X[rows] if sparse else X[rows].densified(), _numbers(rows)
            V, count = fitted.units.inside(given, fitted.divergence, numbers)
            problem = Problem(divergence, V, W, box, penalty)
            with threads.own_threads():
                found = solver.solve(problem)
            self._require_usable(found.H, given, numbers)
            raised += count
            unsolved += int(np.count_nonzero(~found.converged))
            yield rows, found.H, problem
        self.warn(raised, unsolved, X.shape[0], 0 if X.masked else X.shape[0] * X.shape[1])

    def _solved_on_device(self, device: str, X: Any) -> Iterator[Any]:
        from onmf.device.problem import DeviceSolver  # an optional dependency

        fitted, box = self.fitted, self.box
        if not fitted.divergence.separable or not isinstance(box, Box):
            raise ValueError(f"this model is solved by the processor only: set_params(device=None), not {device!r}.")
        if isinstance(X, Samples) and X.masked:
            require_weighs_entries(fitted.divergence)
        W = fitted.state.W.astype(_precision(X), copy=False)
        sets = fitted.units, box, self.penalty
        solver = DeviceSolver(W, fitted.divergence, fitted.inside, *sets, self.tol, self.max_iter)
        raised = unsolved = 0
        for block in solver.solved(X, device):
            if len(block.H) and not bool(block.H.max() < 0.5 * box.high):  # which NaN is not
                given = on_host(X[block.rows])
                require_valid_entries(given, block.rows)
                self._require_usable(block.H.cpu().numpy(), given, block.rows)
            raised, unsolved = raised + block.raised, unsolved + block.unsolved
            yield block
        known = not (isinstance(X, Samples) and X.masked)
        self.warn(raised, unsolved, X.shape[0], X.shape[0] * X.shape[1] if known else 0)

    def _require_usable(self, H: Array, given: Any, numbers: Any) -> None:
        """Raise an error for coefficients that are infinite, or cut off by a bound that the user has not chosen."""
        require_finite_values(H, given, self.fitted.units.mean, numbers)
        if self.sets is None and not self.fitted.shares:
            require_below_bound(H, self.box.high, given, self.fitted.units.scale, numbers)

    def warn(self, raised: int, unsolved: int, n: int, entries: int) -> None:
        """Warn of entries that were raised, and of coefficients that are not precise, of n samples."""
        if self.told is not None:
            self.told[:] += raised, unsolved, n, entries
            return
        if raised and not self.fitted.raised:
            warn_raised(self.fitted.divergence, raised, entries)
        if unsolved:
            warn_unsolved(unsolved, n, self.tol, self.max_iter)


def on_host(X: Any) -> Any:
    """Return a tensor as an array in the host's memory, and anything else as it is."""
    return as_array(X) if is_tensor(X) else X


def _samples(X: Any) -> Samples:
    """Return checked samples as they are, and a tensor as samples in the host's memory."""
    return X if isinstance(X, Samples) else Samples(on_host(X))


def like(X: Any, result: Any) -> Any:
    """Return an array where the user's data are: as a tensor there, if they are a tensor."""
    if not is_tensor(X) or not isinstance(result, np.ndarray):
        return result
    import torch

    return torch.from_numpy(result).to(X.device)


def _precision(X: Any) -> Any:
    """Return the type that coefficients of an array or a tensor are computed in."""
    return np.float64 if str(X.dtype).endswith("float64") else np.float32


def _numbers(rows: Any) -> Any:
    return range(rows.start, rows.stop) if isinstance(rows, slice) else rows
