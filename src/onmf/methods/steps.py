"""Rules for the step length in the paper's Algorithm 1: the paper's own and an adaptive one."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TypeAlias

import numpy as np

from onmf._support.arrays import Array
from onmf._support.checks import is_number, require_whole
from onmf._support.registry import Constants
from onmf.coefficients.problem import Problem, losses
from onmf.divergences import Divergence
from onmf.model.penalty import Penalties
from onmf.model.sets import DictionaryBox, DictionarySet
from onmf.model.state import State

Solve: TypeAlias = Callable[[Problem], Array]  # the coefficients of a problem's samples


@dataclass(frozen=True)
class Slopes:
    """The slopes g of the losses in the fits Y of samples, with the coefficients H that they were found at."""

    problem: Problem
    H: Array
    Y: Array
    g: Array

    @classmethod
    def of(cls, problem: Problem, H: Array) -> Slopes:
        Y = H @ problem.W
        return cls(problem, H, Y, problem.slopes(Y))

    @property
    def weight(self) -> float:
        """The sum of the weights of the samples."""
        return self.problem.X.weight

    def penalised(self, penalties: Penalties, fixed: int) -> Array:
        """Return G = H'g, with the penalty on the dictionary once per sample; zeros for the fixed components."""
        G = self.problem.X.times_sample_weight(self.H).T @ self.g
        if penalties.on_dictionary:
            G = G + G.dtype.type(self.weight) * penalties.slope(self.problem.W)
        G[:fixed] = 0
        return G

    def objective(self, penalties: Penalties) -> float:
        """Return the sum over the samples of their losses and penalties, the dictionary's once per sample."""
        problem = self.problem
        loss = float(problem.X.times_sample_weight(losses(problem.divergence, problem.X, self.Y)).sum(dtype=np.float64))
        if not penalties:
            return loss
        of_coefficients = problem.X.times_sample_weight(problem.penalty.value(self.H, problem.l1))
        return loss + float(of_coefficients.sum(dtype=np.float64)) + self.weight * penalties.of_dictionary(problem.W)


@dataclass(frozen=True, repr=False)
class Step(Constants, kind="step"):
    """A rule for the length of a step; its ``name`` is used as ``paper:step=NAME``, followed by its constants."""

    def first_look(self, problem: Problem, state: State, solve: Solve) -> State:
        """Return the state after a look at the first batch, before anything is learnt."""
        return state

    @abstractmethod
    def after(self, slopes: Slopes, state: State, tau: int, solve: Solve) -> State:
        """Return the state after one mini-batch, usually of tau samples."""

    def feasible(self, divergence: Divergence, state: State) -> DictionarySet | DictionaryBox:
        """Return the set that W stays in."""
        return state.C

    def expected(self, divergence: Divergence, state: State) -> dict[str, Array]:
        """Return statistics of the shapes and types that the rule keeps in this state."""
        return {}

    def require_sound(self, state: State) -> None:
        """Raise an error for statistics that the rule could not have made, as a damaged file may hold."""

    @abstractmethod
    def gentler(self) -> Step:
        """Return the rule to try where the loss rises."""

    def doubts(self, state: State) -> list[str]:
        """Return which assumptions of the theorem the steps of this run do not meet."""
        return []


@dataclass(frozen=True, repr=False)
class Canonical(Step, name="canonical"):
    """eta = a / (s + b)^power, where s counts the samples seen; the paper's s is tau t and its power 1.

    Counting samples instead of mini-batches weighs mini-batches of unequal size rightly. No constants suit all data:
    ``Adaptive`` needs none.

    Parameters
    ----------
    a : float
        The numerator.
    b : float
        The samples before steps begin to shrink.
    power : float
        The Robbins-Monro conditions, sum eta = inf and sum eta^2 < inf, hold for 1/2 < power <= 1 only; other powers
        have no convergence theory and raise an error unless ``any_power`` is set.
    any_power : bool
        Whether other powers are allowed.

    Examples
    --------
    >>> onmf.methods.Paper(step=onmf.methods.Canonical(a=200)).step.a
    200
    """

    a: float = 2e4
    b: float = 2e4
    power: float = 1.0
    any_power: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.any_power, (bool, np.bool_)):
            raise ValueError(f"any_power must be True or False, got {self.any_power!r}.")
        for name in ("a", "b"):
            value = getattr(self, name)
            if not is_number(value) or not 0 < value < math.inf:
                raise ValueError(f"the step size a / (samples + b)^power needs {name} > 0, got {value!r}.")
        finite = is_number(self.power) and math.isfinite(self.power)
        if not finite or not (self.any_power or self.robbins_monro):
            raise ValueError(
                f"power = {self.power!r} breaks the Robbins-Monro conditions (sum eta = inf, sum eta^2 < inf), which "
                "need 1/2 < power <= 1; choose a power in that range, or set any_power=True to go without the theory."
            )

    @property
    def robbins_monro(self) -> bool:
        """Does sum eta diverge, and sum eta^2 converge?"""
        return 0.5 < self.power <= 1

    def eta(self, samples: float) -> float:
        """Return the step size after ``samples`` samples."""
        with np.errstate(all="ignore"):  # of a very large power: 0, or inf if it is negative
            return float(self.a / (samples + np.float64(self.b)) ** self.power)

    def after(self, slopes: Slopes, state: State, tau: int, solve: Solve) -> State:
        n = slopes.weight
        eta, G = self.eta(state.clock + n), slopes.penalised(state.penalties, state.C.fixed)
        return state.after(n, state.C.project(state.W - eta * G))

    def gentler(self) -> Step:
        """Return the rule that adapts to the data."""
        return Step.find("adaptive")()

    def doubts(self, state: State) -> list[str]:
        doubt = f"steps must satisfy the Robbins-Monro conditions, and power={self.power:g} does not"
        return [] if self.robbins_monro else [doubt]


WINDOW = 100  # mini-batches that the running means reach back
SHARE = 1e-3  # of a feature's typical size that every component keeps
WIDEST = 1e12  # how far entries of the metric may be from their median


@dataclass(frozen=True)
class Averages:
    """Running means over the samples, in double precision: squared slopes leave the range of single precision."""

    residuals: Array  # S1 (K, F): of h^2 (x) g (y - x)
    squares: Array  # S2 (K, F): of h^4 (x) g^2
    overlaps: Array  # M (K, K): of hh' with h at unit length
    sizes: Array  # (F,): of x, or of its logarithm where zeros are outside the domain
    mass: Array  # (1,): of the sum of h
    seen: Array  # (1,): the samples in them

    @classmethod
    def of(cls, slopes: Slopes) -> Averages:
        """Return the means over some samples."""
        problem, ratios = slopes.problem, not slopes.problem.divergence.domain.x.includes_zero
        weighed, n = problem.X.times_sample_weight, problem.X.weight
        X = problem.X.matrix  # missing entries have no derivative
        H, g, r = (array.astype(np.float64) for array in (slopes.H, slopes.g, slopes.Y - X))
        squared = np.square(H)
        unit = np.maximum(X.mean(axis=1, dtype=np.float64), np.finfo(np.float64).tiny) if ratios else np.ones(len(X))
        sizes = np.log(X / unit[:, None]) if ratios else X
        directions = H / np.maximum(np.sqrt(squared.sum(axis=1, keepdims=True)), np.finfo(np.float64).tiny)
        return cls(
            residuals=weighed(squared).T @ (g * r) / n,
            squares=weighed(np.square(squared)).T @ np.square(g) / n,
            overlaps=weighed(directions).T @ directions / n,
            sizes=weighed(sizes).mean(axis=0, dtype=np.float64) * (len(X) / n),
            mass=np.array([weighed(H.sum(axis=1) / unit).mean() * (len(X) / n)]),
            seen=np.array([float(n)]),
        )

    def after(self, slopes: Slopes, tau: int) -> Averages:
        """Return the means with one more mini-batch, whose weight is its share of the window."""
        news = Averages.of(slopes)
        seen = float(self.seen[0] + news.seen[0])
        weight = min(1.0, float(news.seen[0]) / min(seen, WINDOW * tau))
        means = {name: old + weight * (getattr(news, name) - old) for name, old in vars(self).items()}
        return Averages(**means | {"seen": np.array([seen])})

    def metric(self) -> Array:
        """Return D = S1 / (kappa S2); entries without a positive value have the median of the others."""
        good = (self.residuals > 0) & (self.squares > 0)
        if not good.any():
            return np.ones_like(self.squares)  # every fit is exact, and no gradient left to scale
        D = np.divide(self.residuals, self.squares, out=np.zeros_like(self.squares), where=good)
        median = float(np.median(D[good]))
        D = np.clip(np.where(good, D, median), median / WIDEST, median * WIDEST)
        return D / self.overlap

    @property
    def overlap(self) -> float:
        """kappa: 1 if no two components share a sample, K if all samples use all components in equal proportions."""
        scale = np.sqrt(np.maximum(np.diag(self.overlaps), np.finfo(np.float64).tiny))
        correlations = self.overlaps / np.outer(scale, scale)
        return max(1.0, float(np.linalg.eigvalsh(correlations)[-1]))

    def low(self, ratios: bool) -> Array:
        """Return low_f: a share of the feature's typical size and of the mean of all, per unit of coefficients."""
        typical = np.exp(self.sizes) if ratios else self.sizes + 0.01 * self.sizes.mean()
        return np.minimum(SHARE * typical / max(float(self.mass[0]), np.finfo(np.float64).tiny), 0.5)


STATISTICS = tuple(field.name for field in fields(Averages))
FACTORS = (0.5, 1.0, 2.0, 0.125)  # of the step, in the trial period; the first leads until the losses differ
MOST_CHANGE = 10.0  # of an entry in one step, where the fit must be positive


@dataclass(frozen=True, repr=False)
class Adaptive(Step, name="adaptive"):
    """A step that needs no tuning: c b/(n + b) times a metric learnt from the first b samples.

    The factor c is found in a trial period of ``trial_samples`` samples, or given.

    The curvatures of single entries of W differ by orders of magnitude, so that no constant step suits most data
    ([measured](../decisions/0010-a-step-without-tuning.md)). With Y = HW, g = d'(X, Y), the gradient G = H'g summed
    over the tau samples of a mini-batch, and n the samples seen (* and / elementwise):

    1. **Statistics**, from the first batch on and then at every step: running means S1 of h^2 (x) g*(y - x), S2 of
       h^4 (x) g^2, both K x F, and M of hh' with h at unit length.
    2. **Metric** D = S1 / (kappa S2), kappa being the largest eigenvalue of M at unit diagonal: how much components
       overlap. S1/S2 is the step that minimises the sum of ((y - x) - D h^2 g)^2, and needs only the derivative.
    3. **Step** W <- P(W - c b/(n + b) D*G/tau), P projecting in the metric: the paper's schedule with the paper's b.
    4. **Trial** of c: four runs with different c learn from the same samples, and the one with the lowest objective
       over the second half of the trial period continues.
    5. **Sets**: where the fit must be positive (kl, is, alpha, beta < 2), the box {low_f <= W_kf <= 1} within C, and no
       entry changes by more than a factor of ten in a step. Elsewhere the paper's C.
    6. **Freeze**: from n = b on, metric, c and low stay as they are for ever.

    **Why the theorem still covers it.** Given what happened up to n = b, later samples are independent of D, c and the
    box. With U = W / sqrt(D) the step is the paper's with a scalar step, on f(sqrt(D) * U) over a set that is again
    compact and convex, and critical points are the same. The factor of ten is inactive in the end, since steps vanish
    while W >= low > 0. A metric that adapted for ever would break the argument.

    Parameters
    ----------
    b : float
        The samples before steps begin to shrink, and after which the metric stays as it is.
    c : float or None
        The factor of the step; None: the best of four in the trial period.
    trial_samples : int
        The length of the trial period.

    Examples
    --------
    >>> method = onmf.methods.Paper(step=onmf.methods.Adaptive(c=0.5))
    >>> OnlineNMF(3, method=method, random_state=0).fit(X).method_.step
    Adaptive(c=0.5)
    """

    b: float = 2e4
    c: float | None = None
    trial_samples: int = 2000

    def __post_init__(self) -> None:
        for name, value in (("b", self.b), ("c", 1.0 if self.c is None else self.c)):
            if not is_number(value) or not 0 < value < math.inf:
                raise ValueError(f"the step size c b / (samples + b) needs {name} > 0, got {value!r}.")
        require_whole(1, trial_samples=self.trial_samples)

    def first_look(self, problem: Problem, state: State, solve: Solve) -> State:
        """Average over the first batch, or its beginning if that is long, at W_0: the same for all runs."""
        problem = problem.rows(slice(0, max(5 * problem.K, 200)))
        averages = Averages.of(Slopes.of(problem, solve(problem)))
        W = _own_set(problem.divergence, state.C, averages, len(state.W)).project(state.W).astype(state.W.dtype)
        factors = FACTORS if self.c is None else (self.c,)
        return replace(state, W=W, memory=_memory([_Run(W, c, averages) for c in factors], np.zeros((2, len(factors)))))

    def after(self, slopes: Slopes, state: State, tau: int, solve: Solve) -> State:
        problem, memory = slopes.problem, state.memory
        n = state.clock + slopes.weight
        rate = 1 / (1 + n / float(self.b)) / tau
        if "metric" in memory:
            metric, own = memory["metric"], self.feasible(problem.divergence, state)
            return state.after(slopes.weight, _moved(slopes, rate, metric, own, state.penalties))
        runs, losses = _runs(state), memory["losses"].copy()
        if len(runs) == 1:
            runs = [runs[0].after(slopes, rate, state, tau)]
        else:
            half, leader = int(n > min(self.trial_samples, self.b) / 2), _leader(losses)
            for number, run in enumerate(runs):
                if number == leader:
                    its = slopes
                else:
                    posed = Problem(problem.divergence, problem.X, run.W, problem.box, problem.penalty)
                    its = Slopes.of(posed, solve(posed))
                losses[half, number] += its.objective(state.penalties)
                runs[number] = run.after(its, rate, state, tau)
            if n >= min(self.trial_samples, self.b):
                chosen = _least(losses[half])
                runs, losses = [runs[chosen]], losses[:, [chosen]]
        best = runs[_leader(losses)]
        if n < self.b:
            return state.after(slopes.weight, best.W, _memory(runs, losses))
        frozen = {"metric": (best.c * best.averages.metric()).astype(best.W.dtype)}
        if not problem.divergence.domain.y.includes_zero:
            frozen["low"] = _low(problem.divergence, state.C, best.averages, len(best.W)).astype(best.W.dtype)
        return state.after(slopes.weight, best.W, frozen)

    def feasible(self, divergence: Divergence, state: State) -> DictionarySet | DictionaryBox:
        """Return the box where the fit must be positive, else C."""
        if "low" in state.memory:  # eps may have been raised since
            low = np.maximum(state.memory["low"], state.C.least_mean(len(state.W)))
            return DictionaryBox(low, state.C.fixed, state.C.high)
        if "metric" in state.memory:
            return state.C
        averages = _runs(state)[_leader(state.memory["losses"])].averages
        return _own_set(divergence, state.C, averages, len(state.W))

    def expected(self, divergence: Divergence, state: State) -> dict[str, Array]:
        W = state.W
        K, F = W.shape
        if state.clock >= self.b:
            floor = {} if divergence.domain.y.includes_zero else {"low": np.empty(F, W.dtype)}
            return {"metric": np.empty((K, F), W.dtype)} | floor
        on_trial = self.c is None and state.clock < self.trial_samples
        averages = Averages(*map(np.empty, ((K, F), (K, F), (K, K), (F,), (1,), (1,))))
        runs = [_Run(W, 1.0, averages)] * (len(FACTORS) if on_trial else 1)
        return _memory(runs, np.empty((2, len(runs))))

    def require_sound(self, state: State) -> None:
        memory = state.memory
        if "metric" in memory:
            sound = bool((memory["metric"] > 0).all())
        else:
            runs = _runs(state)
            sound = all(run.c > 0 and state.C.contains(run.W) for run in runs)
            sound = sound and np.array_equal(runs[_leader(memory["losses"])].W, state.W)
        if not sound:
            raise ValueError("its statistics are not such as the step makes")

    def gentler(self) -> Step:
        return replace(self, c=(min(FACTORS) if self.c is None else self.c) / 10)

    def doubts(self, state: State) -> list[str]:
        if state.clock >= self.b:
            return []
        return [
            f"the step must no longer adapt, and it does for {self.b:.0f} samples, of which it has seen "
            f"{state.clock:.0f}"
        ]


@dataclass(frozen=True)
class _Run:
    """A dictionary with its own factor and averages: one candidate of the trial period, or the chosen one."""

    W: Array
    c: float
    averages: Averages

    def after(self, slopes: Slopes, rate: float, state: State, tau: int) -> _Run:
        """Average first, this mini-batch included; then make the step."""
        averages = self.averages.after(slopes, tau)
        own = _own_set(slopes.problem.divergence, state.C, averages, len(self.W))
        metric = self.c * averages.metric()
        return _Run(_moved(slopes, rate, metric, own, state.penalties), self.c, averages)


def _moved(
    slopes: Slopes, rate: float, metric: Array, own: DictionarySet | DictionaryBox, penalties: Penalties
) -> Array:
    """Return P(W - rate D*G). The penalty's curvature l2 shortens the step, as 1/D is about that of the loss."""
    W = slopes.problem.W
    if penalties.l2_dictionary:
        metric = metric / (1 + penalties.l2_dictionary * metric)
    V = W - rate * metric * slopes.penalised(penalties, own.fixed)
    if isinstance(own, DictionaryBox):
        V = np.clip(V, W / MOST_CHANGE, W * MOST_CHANGE)
    return own.project(V, metric).astype(W.dtype, copy=False)


def _own_set(divergence: Divergence, C: DictionarySet, averages: Averages, K: int) -> DictionarySet | DictionaryBox:
    return C if divergence.domain.y.includes_zero else DictionaryBox(_low(divergence, C, averages, K), C.fixed, C.high)


def _low(divergence: Divergence, C: DictionarySet, averages: Averages, K: int) -> Array:
    """Return low_f, raised where the box would not lie within C."""
    return np.maximum(averages.low(ratios=not divergence.domain.x.includes_zero), C.least_mean(K))


def _memory(runs: list[_Run], losses: Array) -> dict[str, Array]:
    """Return runs as stacked arrays, and the sums of their losses over both halves of the trial period."""
    memory = {name: np.stack([getattr(run.averages, name) for run in runs]) for name in STATISTICS}
    memory |= {"factors": np.array([run.c for run in runs]), "losses": losses}
    return memory | ({"runs": np.stack([run.W for run in runs])} if len(runs) > 1 else {})


def _runs(state: State) -> list[_Run]:
    """Return the runs that ``_memory`` was given."""
    memory = state.memory
    dictionaries = memory.get("runs", state.W[None])
    averages = (Averages(*arrays) for arrays in zip(*(memory[name] for name in STATISTICS), strict=True))
    return [_Run(W, float(c), each) for W, c, each in zip(dictionaries, memory["factors"], averages, strict=True)]


def _leader(losses: Array) -> int:
    """Return the number of the run with the lowest loss so far."""
    return _least(losses.sum(axis=0))


def _least(losses: Array) -> int:
    return int(np.argmin(np.where(np.isnan(losses), np.inf, losses)))
