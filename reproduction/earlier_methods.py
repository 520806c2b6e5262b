"""The three earlier online methods that the paper compares with, each for one divergence.

They are custom methods: importing this module, or ``onmf fit --module reproduction/earlier_methods.py``,
registers them, so that ``method="guan"`` means one, and model files that were learnt with it load. What was taken from
their papers, and what had to be chosen, is in docs/decisions/0006-earlier-methods.md.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from onmf.coefficients import Coefficients, CoefficientSolver, Multiplicative, Problem, precise_solver
from onmf.coefficients.kernels import VECTOR_SUMS, cached_njit, kernel, pack, packed_product
from onmf.divergences import Divergence, Huber
from onmf.methods import DictionarySet, Method, Penalties, Penalty, Samples, State, require_at_least, require_whole

Array: TypeAlias = npt.NDArray[np.floating[Any]]
Counts: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
TINY = 1e-30  # stands for zero where something is divided by it


class EarlierMethod(Method):
    """A method for one divergence that gives its components a size of its own, so that no penalty can change it."""

    keeps_fixed: ClassVar[bool] = True
    weighs: ClassVar[bool] = False
    only: ClassVar[str]  # the name of the divergence

    @abstractmethod
    def serves(self, divergence: Divergence) -> bool:
        """Tell whether it can learn this divergence."""

    def why_not(self, divergence: Divergence, penalties: Penalties | None = None, masked: bool = False) -> str | None:
        penalties = penalties or Penalties()
        if not self.serves(divergence):
            only = f"supports only the divergence {self.only!r}, not {divergence.name!r}"
            return f"method {self.name!r} {only}; use method 'auto'."
        reason = super().why_not(divergence, penalties, masked)
        if reason is None and penalties.on_dictionary:
            size = "it fixes the size of its components"
            return f"method {self.name!r} takes no l1_dictionary or l2_dictionary: {size}; use method 'auto'."
        return reason


def _component_sizes(W: Array, C: DictionarySet) -> Array:
    """Return what components are divided by to have unit sum: their sums, or one if they are fixed."""
    sums = np.maximum(W.sum(axis=1, keepdims=True), TINY)
    sums[: C.fixed] = 1
    return sums


# Lefevre, Bach and Fevotte


@dataclass(frozen=True, repr=False)
class Lefevre(EarlierMethod, name="lefevre"):
    """The method of Lefevre, Bach and Fevotte (2011): accumulated auxiliary functions of Itakura-Saito.

    For fixed H the loss is majorised around the old W by sum_kf A_kf / W_kf + B_kf W_kf, whose minimiser is
    sqrt(A / B). Online, both sums forget exponentially: what lies N samples back weighs r; None forgets nothing. A
    mini-batch has tau samples (or those of the batch, if it is smaller), whose coefficients are found by ``max_iter``
    multiplicative steps.
    """

    tau: int = 1000
    r: float = 0.7
    N: float | None = None
    max_iter: int = 100

    only: ClassVar[str] = "is"
    nonnegative: ClassVar[tuple[str, ...]] = ("A", "B")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(1, max_iter=self.max_iter)
        require_at_least(0, r=self.r)
        if not 0 < self.r <= 1:
            raise ValueError(f"r must lie in (0, 1], got {self.r!r}.")
        if self.N is not None:
            require_at_least(1, N=self.N)

    def serves(self, divergence: Divergence) -> bool:
        return divergence.sees_ratios

    def coefficient_solver(self, divergence: Divergence, masked: bool = False) -> CoefficientSolver:
        return Multiplicative(max_iter=self.max_iter)

    def start(self, divergence: Divergence, W: Array, C: DictionarySet, masked: bool = False) -> State:
        """Return components of unit sum, but for the fixed ones, and no past yet."""
        W = C.project(W / _component_sizes(W, C))
        return State(W, C, memory={"A": np.zeros_like(W), "B": np.zeros_like(W)})

    def update(self, state: State, problem: Problem, H: Array, Y: Array, new: int) -> State:
        """Forget, add the auxiliary function, minimise, and give all components that are learnt unit sum."""
        inverse = 1.0 / np.maximum(Y, TINY)
        rho, memory = self.r ** (len(H) / (self.N or np.inf)), state.memory
        A = rho * memory["A"] + (H.T @ (problem.X.matrix * np.square(inverse))) * np.square(problem.W)
        B = rho * memory["B"] + H.T @ inverse
        W = np.where(B > 0, np.sqrt(A / np.maximum(B, TINY)), state.W)
        W[: state.C.fixed] = state.W[: state.C.fixed]
        s = _component_sizes(W, state.C)
        return state.after(len(H), state.C.project(W / s), {"A": A / s, "B": B * s})


# Guan, Tao, Luo and Yuan


@dataclass(frozen=True, repr=False)
class Guan(EarlierMethod, name="guan"):
    """The method of Guan, Tao, Luo and Yuan (2012), OR-NMF: robust stochastic approximation under squared l2.

    A buffer holds the last ``buffer`` samples with the coefficients they had. After each chunk of tau samples, W makes
    ``steps`` projected gradient steps (Nemirovski et al. 2009) of length theta D / (M sqrt k), on samples drawn from
    the buffer by ``seed`` and the chunk's number, and its new value is their average weighted by these lengths. A
    reconstruction: the paper's text was not at hand.
    """

    tau: int = 10
    theta: float = 0.1
    buffer: int = 20
    steps: int = 50
    seed: int = 0

    only: ClassVar[str] = "squared_l2"
    skips_empty: ClassVar[bool] = True
    frozen_constants: ClassVar[tuple[str, ...]] = ("buffer",)
    nonnegative: ClassVar[tuple[str, ...]] = ("X", "H")
    why_not_on_shards: ClassVar[str] = "it keeps samples; use 'auto'"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(1, buffer=self.buffer, steps=self.steps)
        require_whole(0, seed=self.seed)
        require_at_least(0, theta=self.theta)
        if self.theta == 0:
            raise ValueError("theta must be greater than 0: steps of no length learn nothing.")

    def serves(self, divergence: Divergence) -> bool:
        return divergence.quadratic and divergence.metric is None

    def coefficient_solver(self, divergence: Divergence, masked: bool = False) -> CoefficientSolver:
        return precise_solver(divergence)

    def start(self, divergence: Divergence, W: Array, C: DictionarySet, masked: bool = False) -> State:
        """Return an empty buffer, and components of unit sum, but for the fixed ones."""
        W = C.project(W / _component_sizes(W, C))
        K, F = W.shape
        return State(W, C, memory={"X": np.zeros((self.buffer, F), W.dtype), "H": np.zeros((self.buffer, K), W.dtype)})

    def update(self, state: State, problem: Problem, H: Array, Y: Array, new: int) -> State:
        """Let the oldest samples give way, make the steps, and average them."""
        n = len(H)
        memory = {
            name: np.concatenate([state.memory[name], rows])[-self.buffer :]
            for name, rows in (("X", problem.X.matrix), ("H", H))
        }
        filled = min(int(state.samples + n), self.buffer)
        X, H = (memory[name][-filled:] for name in ("X", "H"))
        J = state.C.fixed
        if J:  # the components that are learnt fit what the fixed ones leave
            X, H = X - H[:, :J] @ state.W[:J], np.ascontiguousarray(H[:, J:])
        # ||grad|| = ||h|| ||hW - x|| <= ||h|| (||h||_1 + ||x||) on the simplex, whose diameter is sqrt(2 K).
        largest = np.sqrt(np.square(H).sum(axis=1)) * (H.sum(axis=1) + np.sqrt(np.square(X).sum(axis=1)))
        bound = float(np.sqrt(np.mean(np.square(largest, dtype=np.float64))))
        length = self.theta * np.sqrt(2.0 * (len(state.W) - J)) / max(bound, TINY)
        drawn = np.random.default_rng([self.seed, state.steps]).integers(filled, size=self.steps)
        W = np.concatenate([state.W[:J], averaged_steps(state.W[J:], X, H, drawn, length)])
        return state.after(n, state.C.project(W), memory)


def averaged_steps(W: Array, X: Array, H: Array, drawn: Counts, length: float) -> Array:
    """Return the mean of the dictionaries after each gradient step, weighted by the lengths r = length / sqrt(step).

    A step is W <- P(W - r h' (hW - x)) with (x, h) the drawn rows of X and H, and P the projection of every component
    on the simplex.
    """
    if drawn.min() < 0 or drawn.max() >= len(X):
        raise ValueError("a row was drawn that X does not have.")
    average = np.zeros_like(W, order="C")
    _averaged_steps(np.array(W, order="C"), X, H, drawn, average, length)
    return average


@kernel("KF* nF nK s KF*")
def _averaged_steps(W: Array, X: Array, H: Array, drawn: Counts, average: Array, length: float) -> None:
    K, F = W.shape
    r = np.empty(F, dtype=W.dtype)
    weights = length - length
    for step in range(len(drawn)):
        x, h = X[drawn[step]], H[drawn[step]]
        rate = length / np.sqrt(W.dtype.type(step + 1))
        for f in range(F):
            r[f] = -x[f]
        for k in range(K):
            if h[k] != 0:
                w = W[k]
                for f in range(F):
                    r[f] += h[k] * w[f]
        for k in range(K):
            if h[k] != 0:
                w, a = W[k], rate * h[k]
                for f in range(F):
                    w[f] -= a * r[f]
                _project_on_simplex(w)
            w, mean = W[k], average[k]
            for f in range(F):
                mean[f] += rate * w[f]
        weights += rate
    for k in range(K):
        for f in range(F):
            average[k, f] /= weights


@cached_njit()
def _project_on_simplex(w: Array) -> None:
    """Lower all entries by the same amount and drop those below zero, until none is (Michelot 1986)."""
    least = w[0]
    for f in range(len(w)):  # compiled in a fifth of the time of w.min()
        least = min(least, w[f])
    threshold, count = least - 1, len(w) + 1
    while True:
        total = threshold - threshold
        above = 0
        for f in range(len(w)):
            if w[f] > threshold:
                total += w[f]
                above += 1
        if above >= count or above == 0:  # rounding must not bring any back
            break
        count = above
        threshold = (total - 1) / above
    for f in range(len(w)):
        w[f] = max(w[f] - threshold, 0)


# Wang, Wang and Yeung


@dataclass(frozen=True)
class PenaltyByLength(Penalty):
    """A further gamma ||x|| ||h||_1, in proportion to the sample's length: Wang, Wang and Yeung's all have length 1."""

    gamma: float = 0.0

    def __bool__(self) -> bool:
        return True

    @property
    def linear(self) -> bool:
        return True

    def per_unit(self, X: Samples) -> Array:
        return super().per_unit(X) + self.gamma * np.sqrt(X.per_sample(np.square(X.values)))[:, None]


@dataclass(frozen=True)
class UntilStill(CoefficientSolver):
    """Multiplicative steps under Huber's loss, until ten lower a sample's objective by ``tol`` of it at most.

    A step is that of least squares reweighted by c = min(1, delta / |r|): h <- h o cxW' / (cyW' + penalty). As in
    ``Multiplicative``, the share of l2 in the denominator shortens it.
    """

    shares: ClassVar[bool] = False

    def _solve(self, problem: Problem, H: Array) -> Coefficients:
        X, W, l1, box, found = problem.X, problem.W, problem.l1[:, 0], problem.box, Coefficients.untested(H)
        weights = X.entry_weights if X.masked else np.ones_like(X.matrix)
        delta = cast(float, cast(Huber, problem.divergence).delta)
        numbers = delta, problem.penalty.l2, box.low, box.high, self.tol
        steps_until_still(X.matrix, weights, W, l1, H, found.iterations, found.converged, *numbers, self.max_iter)
        return found


@kernel("nF nF KF n nK* n* n*", fastmath=VECTOR_SUMS, error_model="numpy")
def steps_until_still(
    X: Array,
    weights: Array,
    W: Array,
    l1: Array,
    H: Array,
    iterations: Counts,
    converged: Mask,
    delta: float,
    l2: float,
    low: float,
    high: float,
    tol: float,
    most: int,
) -> None:
    """Make the steps of ``UntilStill`` in place in H, ``most`` of them at most."""
    K, F = W.shape
    zero, half, tiny = W.dtype.type(0), W.dtype.type(0.5), W.dtype.type(TINY)
    y, above, below = np.empty_like(W[0]), np.empty_like(W[0]), np.empty_like(W[0])
    for i in range(len(H)):
        x, weight, h, before = X[i], weights[i], H[i], zero
        for step in range(most + 1):
            for f in range(F):
                y[f] = tiny
            for k in range(K):
                share, w = h[k], W[k]
                for f in range(F):
                    y[f] += share * w[f]
            iterations[i] = step
            if step > 0 and step % 10 == 0:
                now = zero
                for f in range(F):
                    r = abs(x[f] - y[f])
                    c = min(r, delta)
                    now += weight[f] * c * (r - half * c)
                for k in range(K):
                    now += (l1[i] + half * l2 * h[k]) * h[k]
                if step > 10 and before - now <= tol * before:
                    converged[i] = True
                    break
                before = now
            if step == most:
                break
            for f in range(F):
                c = weight[f] * delta / max(abs(x[f] - y[f]), delta)
                above[f], below[f] = c * x[f], c * y[f]
            for k in range(K):
                w, up, down = W[k], zero, zero
                for f in range(F):
                    up += above[f] * w[f]
                    down += below[f] * w[f]
                down = max(down + l2 * h[k] + l1[i], tiny)
                factor = up / down
                if l2 > 0:
                    factor **= down / (down + l2 * h[k])
                h[k] = min(max(h[k] * factor, low), high)


@dataclass(frozen=True, repr=False)
class Wang(EarlierMethod, name="wang"):
    """The method of Wang, Wang and Yeung (2013), for visual tracking: robust NMF with the Huber loss.

    The loss is reweighted least squares with weights min(1, delta / |r|). Their statistics, one K x K matrix and one
    K-vector a feature, keep rho of the past after each sample, and W makes one projected gradient step of length eta
    per tau samples. The step suits samples of unit length: the mean length of the first chunk's samples is taken for
    the unit. ``gamma`` weighs the l1 norm of the coefficients, which are found by multiplicative steps until the loss
    falls by less than ``tol`` of itself, ``max_iter`` at most.
    """

    tau: int = 5
    eta: float = 0.2
    rho: float = 0.99
    gamma: float = 0.0
    tol: float = 1e-3
    max_iter: int = 1000

    only: ClassVar[str] = "huber"
    skips_empty: ClassVar[bool] = True
    nonnegative: ClassVar[tuple[str, ...]] = ("A", "B", "unit")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(0, eta=self.eta, rho=self.rho, gamma=self.gamma, tol=self.tol)
        require_whole(1, max_iter=self.max_iter)
        if self.rho > 1:
            raise ValueError(f"rho must lie in [0, 1], got {self.rho!r}.")

    def serves(self, divergence: Divergence) -> bool:
        return isinstance(divergence, Huber)

    def coefficient_solver(self, divergence: Divergence, masked: bool = False) -> CoefficientSolver:
        return UntilStill(self.tol, self.max_iter)

    def penalty(self, penalties: Penalties) -> Penalty:
        usual = super().penalty(penalties)
        return PenaltyByLength(usual.l2, usual.l1, self.gamma) if self.gamma else usual

    def start(self, divergence: Divergence, W: Array, C: DictionarySet, masked: bool = False) -> State:
        """Return components of at most unit length, but for the fixed ones, and no past yet."""
        W = C.project(np.concatenate([W[: C.fixed], _in_the_ball(W[C.fixed :])]))
        K, F = W.shape
        memory = {"A": np.zeros((K * (K + 1) // 2, F), W.dtype), "B": np.zeros_like(W), "unit": np.zeros(1, W.dtype)}
        return State(W, C, memory=memory)

    def update(self, state: State, problem: Problem, H: Array, Y: Array, new: int) -> State:
        """Forget, add, one step, and back into the set; a component that would vanish stays as it was."""
        n, memory, X = len(H), state.memory, problem.X.matrix
        _, weights = problem.divergence.model(np, X, Y)
        unit = memory["unit"]
        if not unit.any():
            unit = np.sqrt(np.square(X).sum(axis=1)).mean(keepdims=True) + TINY
        X, H = X / unit, H / unit
        weights = weights * (self.rho ** np.arange(n - 1, -1, -1, dtype=X.dtype))[:, None]
        past, Ht = self.rho**n, np.ascontiguousarray(H.T)
        A = past * memory["A"] + pack(Ht) @ weights
        B = past * memory["B"] + Ht @ (weights * X)
        W = _in_the_ball(np.maximum(state.W - self.eta * (packed_product(A, state.W) - B), 0.0))
        W = np.where(W.any(axis=1, keepdims=True), W, state.W)
        W[: state.C.fixed] = state.W[: state.C.fixed]
        return state.after(n, state.C.project(W), {"A": A, "B": B, "unit": unit})

    def shorter_step(self) -> str:
        return f"wang:eta={self.eta / 10:g}"


def _in_the_ball(W: Array) -> Array:
    """Return components, those longer than one at unit length."""
    return W / np.maximum(np.sqrt(np.square(W).sum(axis=1, keepdims=True)), 1.0)
