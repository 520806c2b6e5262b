"""Batched projected Newton: all Hessians of a chunk as one matrix product, C @ (W (x) W)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from onmf._support.arrays import Array, Mask
from onmf.coefficients import kernels
from onmf.coefficients.base import Coefficients, CoefficientSolver, Descent, iterate
from onmf.coefficients.interior_point import InteriorPoint
from onmf.coefficients.multiplicative import Multiplicative, better_of_two, typical_size
from onmf.coefficients.problem import Problem, packed_diagonal, slopes, takes_sparse
from onmf.divergences import Divergence
from onmf.model.sets import Simplex

BACKTRACKS = 30
EXTENSIONS = 6  # of a step on the simplex
FISHER = (0.25, 1.0)  # shares of positive curvatures in a Hessian that is not positive definite
SUFFICIENT = 1e-4  # of the decrease that the gradient promises
OBJECTIVE = ("X", "l1", "products", "scale")  # the facts about samples that it is computed from
LIFT = 1e-3  # of equal shares in the start on the simplex
RATIO_STEPS, PER_COMPONENT = 20, 0.375  # multiplicative ones, before the first of Newton's, which cost K^2
STEEP_STEPS = 10
ENOUGH = 2  # entries per component that determine a sample's coefficients
SINGULAR = 1e-12  # of the mean diagonal: Gram matrices of fewer entries than components are singular
PIVOTS = 1000  # of an active set at most: ties among the cheapest fits take more than the usual ones
PROBE = 8  # steps from one trial of the least s to the next
KINKED = 50  # steps after which a penalised distance is likely to be at its kink, where Newton's method never ends
FEW_STEPS = Multiplicative(max_iter=5)  # of the same kind, where entries are missing or least squares may be far off


@dataclass(frozen=True)
class Newton(CoefficientSolver, name="newton"):
    """Nonnegative least squares by an active set, then projected Newton steps with a line search on the arc.

    For squared l2, Mahalanobis and l2 (without a penalty the same minimiser) the first part is the solution. For the
    robust losses it would be a bad start: they begin at the uniform one.

    On the simplex the equality is among the free variables of the active set, and every step goes to the minimum of the
    quadratic model on the simplex, or part of the way.

    Where a loss is not convex, a sample whose Hessian is not positive definite mixes a quarter of the curvatures of the
    dictionary's models into it, or takes these alone: Fisher scoring under Itakura-Saito, which creeps past saddles.
    There the first-order bound proves nothing and is met late: it falls like the root of what is left to gain. So a
    sample has converged, too, once it has made a whole step of Newton's that promised no more than the tolerance.

    Under any loss it has also converged when a whole step promises less than rounding can tell: in single precision the
    gradient in the coefficient of a quiet component may be too uncertain for the first-order bound. A distance with a
    penalty, given more than ``KINKED`` steps, must be proved to have, since near its kink rounding hides a lot.
    """

    max_iter: int = 50

    def takes_sparse(self, divergence: Divergence, masked: bool = False) -> bool:
        return takes_sparse(divergence, masked)

    def _prepared(self, problem: Problem) -> Problem:
        return problem.on_gram() or problem

    def _start(self, problem: Problem, H0: Array | None) -> Array:
        """Return room for a start where least squares find one, and else a start."""
        if problem.Q is not None or self._begins_with_least_squares(problem):
            return np.empty((problem.n, problem.K), dtype=problem.W.dtype)
        return super()._start(problem, H0)

    def _begins_with_least_squares(self, problem: Problem) -> bool:
        divergence, plain = problem.divergence, not (problem.X.masked or isinstance(problem.box, Simplex))
        suits = divergence.domain.x.includes_zero and not divergence.robust
        return plain and suits and problem.W.shape[1] >= 2 * problem.K

    def _solve(self, problem: Problem, H: Array) -> Coefficients:
        if problem.Q is not None:
            return self._least_squares(problem)
        if isinstance(problem.box, Simplex):
            H = _start_on_simplex(problem, H)
        elif problem.X.masked:
            if problem.is_penalised_distance:
                return self.finish(problem, _penalised_distances(problem, self.tol, self.max_iter))
            H = _start_of_masked(problem, H)
        elif not problem.divergence.domain.x.includes_zero:
            H, _, _ = better_of_two(problem, H, max(RATIO_STEPS, int(PER_COMPONENT * problem.K)))
        elif not problem.divergence.robust:
            Q, B = problem.W @ problem.W.T, problem.X.matrix @ problem.W.T
            if problem.penalty:  # data are of order one, where divergences do not differ much
                Q, B = Q + problem.penalty.l2 * np.eye(problem.K, dtype=Q.dtype), B - problem.l1
            least = problem.box.project(kernels.gram.nnls_on_gram(Q, B, lift=1e-3))
            H = least if problem.W.shape[1] >= 2 * problem.K else _better(problem, least, _first_steps(problem, H))
            if (problem.divergence.alpha_order or 0) > 1:  # so steep where a fit is too small that it blinds Newton
                H = Multiplicative(max_iter=STEEP_STEPS).solve(problem, H).H
        if self.max_iter <= KINKED or isinstance(problem.box, Simplex) or not problem.is_penalised_distance:
            steps = _Steps(problem, H, self.tol)
            found = iterate(steps, self.max_iter)
            if len(steps.H) < problem.n:  # some have left before the last step, and their fits with them
                return found
            loss = None if problem.penalty else steps.f
            return Coefficients(found.H, found.iterations, found.converged, steps.Y, loss)
        found = iterate(_Steps(problem, H, self.tol), KINKED)
        # In all blocks of samples or in none: see ``_solve_by_blocks``.
        slope, proved = _proved(problem, found.H, self.tol)
        left = np.flatnonzero(~(found.converged & proved))
        if left.size:
            some = problem.rows(left)
            rest = _penalised_distances(some, self.tol, self.max_iter)
            found.H[left], found.converged[left] = _better(some, found.H[left], rest.H), rest.converged
            found.iterations[left] += rest.iterations
            slope[left] = rest.slopes
        return self.finish(problem, replace(found, slopes=slope))

    def _least_squares(self, problem: Problem) -> Coefficients:
        box = problem.box
        Q, B = problem.penalised()
        above = B - Q.dtype.type(box.low) * Q.sum(axis=0)
        if isinstance(box, Simplex):
            H = box.project(box.low + kernels.simplex.least_squares_on_simplex(Q, above, box.free(problem.K)))
        else:
            H = box.project(box.low + kernels.gram.nnls_on_gram(Q, above))
        iterations = np.ones(len(H), dtype=np.int64)
        converged = problem.remaining_gain(H, H @ Q - B) <= problem.tolerance(self.tol)
        # The active set knows no upper bound, and may lose its way where Q is singular.
        return self.finish(problem, Coefficients(H, iterations, converged))

    def finish(self, problem: Problem, found: Coefficients) -> Coefficients:
        """Return what was found, with Newton's steps made in place for the samples that have not converged."""
        left = np.flatnonzero(~found.converged)
        if left.size:
            some = problem.rows(left)
            rest = iterate(_Steps(some, _better(some, found.H[left], some.start(None)), self.tol), self.max_iter)
            converged = rest.converged
            if found.slopes is not None:
                slope, proved = _proved(some, rest.H, self.tol)
                converged = converged & proved
                found.slopes[left[converged]] = slope[converged]
            found.H[left], found.converged[left] = rest.H, converged
            found.iterations[left] += rest.iterations
        return found


class _Steps(Descent):
    G: Array
    curvatures: Array

    def __init__(self, problem: Problem, H: Array, tol: float) -> None:
        super().__init__(problem, H)
        self.Y = problem.fit(H)
        self.f = problem.objective(H, self.Y)
        self.tol = tol
        self.tolerance, self.noise = problem.tolerance(tol), problem.noise

    def test(self, k: int) -> Mask:
        self.G, self.curvatures = self.problem.newton(self.H, self.Y)
        return self.done | self.problem.enough(self.H, self.G, self.f, self.tol, self.tolerance)

    def step(self) -> Mask:
        problem = self.problem
        M = problem.hessians(self.curvatures)
        self.pinned = (M,)  # until there are new ones: see weighted_grams
        directions, positive = self._directions(M, self.G, self.H)
        if not problem.divergence.convex and not positive.all():
            bent = np.flatnonzero(~positive)
            convex = problem.rows(bent).positive_hessians(problem.rows_of(self.Y, ~positive))
            # On the simplex, the mixture ends 1 to 4 % higher where entries are missing.
            for share in FISHER[1:] if isinstance(problem.box, Simplex) else FISHER:
                mixed = M[bent] + share * (convex - M[bent])
                directions[bent], solved = self._directions(mixed, self.G[bent], self.H[bent])
                bent, convex = bent[~solved], convex[~solved]
                if not bent.size:
                    break
        return self._arc_search(directions, positive)

    def _directions(self, M: Array, G: Array, H: Array) -> tuple[Array, Mask]:
        """Return the way to the minimum of the quadratic models, and which of these have one."""
        box = self.problem.box
        if isinstance(box, Simplex):
            return kernels.simplex.directions_on_simplex(M, G, H - H.dtype.type(box.low), box.free(H.shape[1]))
        return kernels.gram.newton_directions(M, G, H, box.low, box.high)

    def _arc_search(self, directions: Array, positive: Mask) -> Mask:
        """Go to P(h + s d) with s = 1, 1/2, 1/4, ... until f falls by enough; all samples at once, each with its s."""
        problem, H, project = self.problem, self.H, self.problem.box.project
        trial = project(H + directions)
        promised = self._promised(trial)
        self.done = np.abs(promised) <= self.noise
        fit = problem.fit(trial)
        value = problem.objective(trial, fit)
        bad = self._too_high(promised, value)
        if not problem.divergence.convex:
            self.done |= positive & ~bad & (promised <= self.tolerance)
        if np.count_nonzero(bad):
            step = np.ones((len(H), 1), dtype=H.dtype)
            for _ in range(BACKTRACKS):
                step[bad] *= 0.5
                shorter = project(H[bad] + step[bad] * directions[bad])
                some = problem.rows(bad, OBJECTIVE)
                trial[bad], value[bad] = shorter, some.objective(shorter, some.fit(shorter))
                bad &= self._too_high(self._promised(trial), value)
                if not bad.any():
                    break
            trial[bad] = H[bad]
            fit = problem.fit(trial)
            value = problem.objective(trial, fit)
        if problem.divergence.robust and isinstance(problem.box, Simplex):
            trial, fit, value = self._farther(directions, trial, fit, value)
        self.H, self.Y, self.f = trial, fit, value
        return bad

    def _farther(self, directions: Array, trial: Array, fit: Array, value: Array) -> tuple[Array, Array, Array]:
        """Go beyond s = 1, four times as far each time, while f falls.

        Where a sample is far from all fits on the simplex, a robust loss is nearly linear, and the minimum of its
        majorant but a small part of the way.
        """
        problem, going = self.problem, np.flatnonzero(value < self.f)
        length, moved = 1.0, False
        for _ in range(EXTENSIONS):
            if not going.size:
                break
            length *= 4.0
            some = problem.rows(going)
            beyond = problem.box.project(self.H[going] + self.H.dtype.type(length) * directions[going])
            values = some.objective(beyond, some.fit(beyond))
            good = values < value[going]
            going, moved = going[good], moved or bool(good.any())
            trial[going], value[going] = beyond[good], values[good]
        return trial, problem.fit(trial) if moved else fit, value  # as a whole: fits of sparse samples have no rows

    def _too_high(self, promised: Array, value: Array) -> Mask:
        return ~(value <= self.f - SUFFICIENT * promised + self.noise)

    def _promised(self, trial: Array) -> Array:
        """Return by how much f would fall at the trial points if it were linear."""
        return (self.G * (self.H - trial)).sum(axis=1)


_LINEAR, _SMOOTH = InteriorPoint(), Newton()  # asked for with every batch


def precise_solver(divergence: Divergence, sparse: bool = False) -> CoefficientSolver:
    """Return the solver that comes nearest to the minimum: for ``transform``, and to compare dictionaries."""
    from onmf.coefficients.coordinate_descent import CoordinateDescent  # which ends with Newton's method

    if sparse and divergence.alpha_order is not None:
        return CoordinateDescent()
    return _LINEAR if divergence.absolute_deviations else _SMOOTH


def _first_steps(problem: Problem, H: Array) -> Array:
    """Return a start where there are nearly as many components as features, or more.

    Their Gram matrix is singular or close to it, and least squares may be far off: losses a thousand times as high.
    """
    return H if FEW_STEPS.why_not(problem.divergence, problem.penalty) else FEW_STEPS.solve(problem, H).H


def _better(problem: Problem, one: Array, other: Array) -> Array:
    """Return for each sample the one of two starts whose objective is lower."""
    values = [problem.objective(H, problem.fit(H)) for H in (one, other)]
    return np.where((values[0] <= values[1])[:, None], one, other)


def _start_of_masked(problem: Problem, H: Array) -> Array:
    """Make multiplicative steps, or solve least squares where these have the same minimum and there is but one."""
    if problem.divergence.least_squares is None:
        return FEW_STEPS.improved(problem, H)
    solved, enough = _least_squares_by_sample(problem)
    if not enough.all():
        solved[~enough] = FEW_STEPS.improved(problem.rows(~enough), H[~enough])
    return solved


def _start_on_simplex(problem: Problem, H: Array) -> Array:
    """Solve least squares, with features of the same size where ratios count, and add a little of every component."""
    if problem.X.masked or (problem.divergence.domain.x.includes_zero and problem.divergence.robust):
        return H
    X, W = problem.X.matrix, problem.W
    if not problem.divergence.domain.x.includes_zero:
        size = typical_size(W)
        X, W = X / size, W / size
    H = kernels.simplex.least_squares_on_simplex(W @ W.T, X @ W.T, 1.0)
    return problem.box.project((H + LIFT / problem.K) / (1 + LIFT))


def _least_squares_by_sample(problem: Problem) -> tuple[Array, Mask]:
    """Return the minima of masked samples, and which have enough entries: others have many minima, some far off."""
    M, B = problem.own_grams, problem.gathered(-problem.squares[0])
    if problem.penalty.l2:
        M = M.copy()
        M[:, packed_diagonal(problem.K)] += problem.penalty.l2
    if problem.penalty.linear:
        B = B - problem.l1
    number = (problem.X.entry_weights > 0).sum(axis=1)
    return problem.box.project(kernels.gram.nnls_on_grams(M, B)), np.asarray(number).ravel() >= ENOUGH * problem.K


def _proved(problem: Problem, H: Array, tol: float) -> tuple[Array, Mask]:
    """Return the slopes in the fits of a distance, and where these prove that at most tol d(x || 2x) is left to gain.

    Newton's method also stops where rounding hides what a step would gain: near the kink that says nothing.
    """
    Y = problem.fit(H)
    slope, left = slopes(problem.divergence, problem.X, Y), problem.remaining_gain(H, problem.gradient(H, Y))
    if problem.penalty.l2:
        left = np.minimum(left, _gap_of_penalty(problem, H, slope))
    return slope, left <= problem.tolerance(tol)


def _penalised_distances(problem: Problem, tol: float, max_iter: int) -> Coefficients:
    """Return the minima of ||x - hW|| + penalty(h) over the box, each until no more than tol ||x|| is left to gain.

    Where fits are exact, as of a masked sample with fewer entries than components or of samples that are all the same,
    the distance ||r|| has its kink: Newton's method finds no slope to follow among them, nor knows the cheapest. But

        ||r|| = min over s > 0 of ||r||^2 / (2 s) + s / 2,

    so that penalised least squares with penalties times s lead there, with s = ||r|| in turn or, in half as many steps,
    twice as far on a logarithmic scale: what s is off by is then multiplied by 2 c - 1, where c in (0, 1) is the share
    of a relative change of s that ||r|| follows. Near 1 that is slow, and near 0 it overshoots for ever. So now and
    then the least s is tried, where exact fits end, and after it s = ||r|| itself, where the others do.

    With r / s as a dual point, or r / ||r|| where that is longer than one, the duality gap says what is left to gain,
    kink or not. So -r / s comes along as the slope. Single precision would prove nothing for a small s.
    """
    dtype = problem.W.dtype
    enough = max(tol, 10 * float(np.finfo(dtype).eps))
    X, W = problem.X.astype(np.float64), problem.W.astype(np.float64)
    problem = Problem(problem.divergence, X, W, problem.box, problem.penalty)
    diagonal, l2, l1, low = packed_diagonal(problem.K), problem.penalty.l2, problem.l1, problem.box.low
    matrices, products = problem.own_grams, problem.gathered(-problem.squares[0])
    fits = problem.fit(np.ones((problem.n, problem.K)))
    products -= low * problem.gathered(problem.squares[1] * fits)  # solved for is what coefficients are above low
    tiny = float(np.finfo(W.dtype).tiny)
    size = problem.scale + tiny
    damping, least = SINGULAR * matrices[:, diagonal].mean(axis=1) + tiny, enough * size
    found = Coefficients.untested(problem.box.project(np.zeros((problem.n, problem.K))), max_iter)
    slope = slopes(problem.divergence, problem.X, problem.fit(found.H))
    s, active = size.copy(), np.flatnonzero(problem.totals > 0)
    found.converged[problem.totals <= 0] = True
    for k in range(max_iter):
        if not active.size:
            break
        probe = k % PROBE == PROBE - 1
        some, own = problem.rows(active), least[active] if probe else s[active]
        M = matrices[active]
        added = np.maximum(damping[active], l2 * own)[:, None]
        M[:, diagonal] += added
        above = kernels.gram.nnls_on_grams(M, products[active] - own[:, None] * l1[active] - low * added, PIVOTS)
        H = problem.box.project(low + above)
        fit = some.fit(H)
        norm = some.loss(H, fit)
        shorter = np.minimum(norm / own, 1.0)
        u = shorter[:, None] * slopes(some.divergence, some.X, fit)
        done = norm * (1 - shorter) + _gap_of_penalty(some, H, u) <= least[active]
        if not l2:  # then nothing tells what larger coefficients would gain
            done &= (low + above <= problem.box.high).all(axis=1)
        write = done if probe else np.ones_like(done)
        rows = active[write]
        found.H[rows], slope[rows] = H[write], u[write]
        found.converged[rows], found.iterations[rows] = done[write], k + 1
        if not probe:
            s[active] = np.maximum(norm if k % PROBE == 0 else norm * (norm / own), least[active])
        active = active[~done]
    return replace(found, H=problem.box.project(found.H.astype(dtype)), slopes=slope.astype(dtype))


def _gap_of_penalty(problem: Problem, H: Array, slope: Array) -> Array:
    """Return by how much q(h) = <W u, h> + penalty(h), with the slopes u in the fits, lies above its least value.

    That is the sum of the most that g d - l2 d^2 / 2 can be, with the gradient g of q, over the steps d that stay in
    the box. Without l2 it is the most over steps down alone: q may fall for ever with larger coefficients.
    """
    l2, low, high = problem.penalty.l2, problem.box.low, problem.box.high
    g = (problem.gathered(slope) + l2 * H + problem.l1).astype(np.float64)
    if not l2:
        return np.asarray((np.maximum(g, 0.0) * (H - low)).sum(axis=1))
    d = H - np.clip(H - g / l2, low, high)
    return np.asarray((g * d - 0.5 * l2 * np.square(d)).sum(axis=1))
