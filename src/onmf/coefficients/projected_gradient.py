"""Algorithm 2 with the Armijo rule (Algorithm 3), and with the constant step 1/L."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onmf._support.arrays import Array, Mask
from onmf.coefficients.base import Coefficients, CoefficientSolver, atom_reach, remaining_gain
from onmf.divergences import Divergence, Mahalanobis, SquaredL2

# In internal units a gradient reaches 1e16 where the fit is near its floor, and is tiny for loud samples or weak atoms.
SHORTEST, LONGEST = 1e-25, 1e10


@dataclass(frozen=True)
class Armijo(CoefficientSolver):
    """h <- P(h - xi grad) with the step xi found by backtracking: at most q times, xi <- gamma xi.

    A step is taken when f(h(xi)) <= f(h) + alpha <grad, h(xi) - h> at the *projected* trial point h(xi): the condition
    of Calamai and More (1987), whose theorem the paper cites. ``literal`` tests what the paper prints, unprojected
    trial points and ||grad||^2, which stalls at the boundary of H.

    Near the minimum the fall drowns in the rounding of f. There
    <grad f(h(xi)), h - h(xi)> >= alpha <grad f(h), h - h(xi)> is tested instead, which for a convex f implies the
    condition and is not blurred by rounding.

    The first search begins at xi = 1, the others one notch above the step taken last: the steps stay bounded below (no
    step is shorter than gamma times one that the Lipschitz constant allows), which is what convergence needs, for a
    third of the trials; and samples much louder than the average get the longer steps that they need.
    """

    alpha: float = 0.01
    gamma: float = 0.1
    q: int = 10
    literal: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0 < self.alpha < 0.5 and 0 < self.gamma < 1 and self.q >= 1):
            raise ValueError(
                f"Armijo needs 0 < alpha < 0.5, 0 < gamma < 1, q >= 1; got {self.alpha}, {self.gamma}, {self.q}."
            )

    def refuses(self, divergence: Divergence) -> str | None:
        """A line search needs a gradient."""
        if divergence.smooth_unless_exact:
            return None
        return f"Armijo refuses {divergence.name}: it is not smooth, so a gradient step need not descend; use polyak."

    def _solve(self, divergence: Divergence, X: Array, W: Array, H: Array) -> Coefficients:
        n = len(X)
        iterations = np.zeros(n, dtype=np.int64)
        converged = np.zeros(n, dtype=bool)
        result = H
        active = np.arange(n)
        reach, tolerance = atom_reach(X, W), self.tolerance(divergence, X)
        noise = 16 * float(np.finfo(X.dtype).eps) * self.scale(divergence, X)
        Y: Array = H @ W
        f = self.objective(divergence, X, H, Y)
        xi: Array = np.full((n, 1), self.gamma, dtype=X.dtype)
        for _ in range(self.max_iter):
            G = self.gradient(divergence, X, H, Y, W)
            done = np.minimum(remaining_gain(H, G, reach, self.box), f) <= tolerance
            if not done.all():
                xi = np.ones_like(xi) if self.literal else np.minimum(xi / self.gamma, LONGEST)
                H, Y, f, xi, stuck = self._line_search(divergence, X, W, H, Y, f, G, xi, done, noise)
                iterations[active[~done]] += 1
            else:
                stuck = np.zeros_like(done)
            leaving = done | stuck
            if leaving.any():
                converged[active[done]] = True
                result[active[leaving]] = H[leaving]
                stay = ~leaving
                active, X, H, Y, f, xi = active[stay], X[stay], H[stay], Y[stay], f[stay], xi[stay]
                reach, tolerance, noise = reach[stay], tolerance[stay], noise[stay]
                if not active.size:
                    break
        result[active] = H
        return Coefficients(result, iterations, converged)

    def _line_search(
        self,
        divergence: Divergence,
        X: Array,
        W: Array,
        H: Array,
        Y: Array,
        f: Array,
        G: Array,
        xi: Array,
        done: Mask,
        noise: Array,
    ) -> tuple[Array, Array, Array, Array, Mask]:
        """Backtrack from the steps xi for the samples that are not ``done``; the last result says where none served."""
        H, Y, f, xi = H.copy(), Y.copy(), f.copy(), xi.copy()
        pending = np.flatnonzero(~done)
        for _ in range(self.q + 1):
            h, g, step = H[pending], G[pending], xi[pending]
            trial: Array = h - step * g
            if self.literal:
                fall = step[:, 0] * np.square(g).sum(axis=1)
                raw = trial @ W
                with np.errstate(all="ignore"):  # an unprojected trial point may lie outside the domain
                    tested = self.objective(divergence, X[pending], trial, raw)
                tested = np.where(divergence.domain.y.outside(raw).any(axis=1), np.inf, tested)
                trial = self.box.project(trial)
                fit = trial @ W
                value = self.objective(divergence, X[pending], trial, fit)
            else:
                trial = self.box.project(trial)
                fall = (g * (h - trial)).sum(axis=1)
                fit = trial @ W
                value = tested = self.objective(divergence, X[pending], trial, fit)
            good = tested <= f[pending] - self.alpha * fall
            blurred = np.flatnonzero(np.abs(tested - f[pending]) <= noise[pending])
            if blurred.size and not self.literal:
                there = self.gradient(divergence, X[pending[blurred]], trial[blurred], fit[blurred], W)
                still = (there * (h - trial)[blurred]).sum(axis=1)
                good[blurred] = still >= self.alpha * fall[blurred]
            if divergence.domain.y.closed and not divergence.convex:
                # beta > 2: a fit of zero is critical, so that one step too long would end there for good.
                good &= fit.sum(axis=1) >= 0.01 * Y[pending].sum(axis=1)
            hit = pending[good]
            H[hit], Y[hit], f[hit] = trial[good], fit[good], value[good]
            pending = pending[~good]
            if not pending.size:
                break
            xi[pending] *= self.gamma
        stuck = np.zeros(len(X), dtype=bool)
        if pending.size and self.literal:  # as printed, the last step is taken untested
            H[pending] = self.box.project(H[pending] - xi[pending] * G[pending])
            Y[pending] = H[pending] @ W
            f[pending] = self.objective(divergence, X[pending], H[pending], Y[pending])
        elif pending.size:  # the next search goes on from here; at some length it is no step any more
            stuck[pending] = xi[pending, 0] < SHORTEST
        return H, Y, f, xi, stuck


@dataclass(frozen=True)
class ConstantStep(CoefficientSolver):
    """h <- P(h - grad / L) with a Lipschitz constant L of the gradient: majorisation-minimisation, no line search.

    L = (Lipschitz constant of d in y) * (largest eigenvalue of WW') + m. For squared l2 and Mahalanobis the gradient is
    hQ - b with the K x K matrix Q = WAW' and b = xAW', so that a compiled kernel iterates without touching F.
    """

    check_every: int = 10

    def refuses(self, divergence: Divergence) -> str | None:
        """A constant step needs one Lipschitz constant for all fits."""
        if divergence.lipschitz is not None:
            return None
        return (
            f"ConstantStep refuses {divergence.name}: its gradient has no global Lipschitz constant; "
            f"use {'armijo' if divergence.smooth_unless_exact else 'polyak'}."
        )

    def _solve(self, divergence: Divergence, X: Array, W: Array, H: Array) -> Coefficients:
        reach, tolerance = atom_reach(X, W), self.tolerance(divergence, X)
        if isinstance(divergence, (SquaredL2, Mahalanobis)):
            return self._solve_on_gram(divergence, X, W, H, reach, tolerance)
        n = len(X)
        iterations = np.zeros(n, dtype=np.int64)
        converged = np.zeros(n, dtype=bool)
        result = H.copy()
        active = np.arange(n)
        lipschitz = divergence.lipschitz
        if lipschitz is None:  # pragma: no cover - refused before
            raise AssertionError
        step = 1.0 / (lipschitz * largest_eigenvalue(W @ W.T) + self.ridge)
        for k in range(self.max_iter):
            G = self.gradient(divergence, X, H, H @ W, W)
            if k % self.check_every == 0 or k == self.max_iter - 1:
                done = remaining_gain(H, G, reach, self.box) <= tolerance
                if done.any():
                    converged[active[done]] = True
                    result[active[done]] = H[done]
                    stay = ~done
                    active, X, H, G = active[stay], X[stay], H[stay], G[stay]
                    reach, tolerance = reach[stay], tolerance[stay]
                    if not active.size:
                        break
            G *= step
            H = self.box.project(H - G)
            iterations[active] += 1
        result[active] = H
        return Coefficients(result, iterations, converged)

    def _solve_on_gram(
        self, divergence: Divergence, X: Array, W: Array, H: Array, reach: Array, tolerance: Array
    ) -> Coefficients:
        # Imported here: ``import onmf`` must not wait for Numba.
        from onmf.kernels import projected_gradient_on_gram

        AW = -divergence.grad(W, np.zeros_like(W))  # the rows A w_k
        Q = AW @ W.T
        Q = 0.5 * (Q + Q.T)
        Q[np.diag_indices_from(Q)] += self.ridge
        iterations, converged = projected_gradient_on_gram(
            Q,
            X @ AW.T,
            H,
            reach,
            tolerance,
            step=1.0 / largest_eigenvalue(Q),
            low=self.box.low,
            high=self.box.high,
            max_iter=self.max_iter,
        )
        return Coefficients(H, iterations, converged)


def largest_eigenvalue(Q: Array) -> float:
    """The largest eigenvalue of a symmetric positive semidefinite K x K matrix, with room for rounding."""
    largest = float(np.linalg.eigvalsh(Q)[-1]) * (1 + 10 * float(np.finfo(Q.dtype).eps))
    return largest if largest > 0 else 1.0
