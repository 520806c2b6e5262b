"""Named methods: pairs of a coefficient solver and a dictionary update."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from onmf._support.checks import require_at_least, require_whole
from onmf.coefficients import (
    Armijo,
    CoefficientSolver,
    ConstantStep,
    InteriorPoint,
    Multiplicative,
    Newton,
    Polyak,
    Ratios,
)
from onmf.dictionary import CoupledSurrogate, Floor, Guan, Lefevre, OnlineEM, ProjectedSubgradient, Surrogate, Wang
from onmf.divergences import (
    L1,
    L2,
    Alpha,
    Divergence,
    Hellinger,
    Huber,
    ItakuraSaito,
    KullbackLeibler,
    Mahalanobis,
    Separable,
    SquaredL2,
)
from onmf.online import Method
from onmf.reservoir import Reservoir
from onmf.schedules import Averaging, StepSize
from onmf.sets import Box, DictionarySet, require_positive_fit
from onmf.units import FEW_ENTRIES

SOLVERS = ("auto", "armijo", "armijo-literal", "constant", "polyak")


@dataclass(frozen=True)
class Settings:
    """The options of the methods, as ``OnlineNMF`` takes them; its documentation says what each does."""

    solver: str = "auto"
    tol: float = 1e-3
    max_iter: int | None = None
    delta_tol: float = 0.01
    ridge: float = 0.0
    tau: int | None = None
    a: float = 2e4
    b: float = 2e4
    power: float = 1.0
    any_power: bool = False
    eps: float = 1e-8
    eps_prime: float = 1e-8
    U: float = 1e8
    forgetting: float = 0.0
    reservoir: int = 0
    max_memory: float = 2.0**30
    options: Mapping[str, Any] | None = None  # constants of the earlier methods, by name
    n_samples: int | None = None  # of a pass, where that is known

    def __post_init__(self) -> None:
        """Refuse what no method could use, also where the method at hand would not look at it."""
        if self.solver not in SOLVERS:
            raise ValueError(f"unknown solver {self.solver!r}; choose one of {', '.join(SOLVERS)}.")
        require_whole(1, **{name: value for name in ("tau", "max_iter") if (value := getattr(self, name)) is not None})
        require_whole(0, reservoir=self.reservoir)
        require_at_least(0, tol=self.tol, ridge=self.ridge, max_memory=self.max_memory)
        Polyak(delta_tol=self.delta_tol)
        StepSize(self.a, self.b, self.power, self.any_power)
        Averaging(forgetting=self.forgetting)
        DictionarySet(self.eps)
        Box(self.eps_prime, self.U)
        if self.options is not None and not isinstance(self.options, Mapping):
            raise ValueError(f"options must be a dictionary of a method's constants by name, got {self.options!r}.")


def coefficient_solver(divergence: Divergence, settings: Settings) -> CoefficientSolver:
    """The paper's choice for a divergence, or the one that the settings name.

    1/L where one Lipschitz constant serves everywhere (Huber, squared l2, Mahalanobis), the Armijo rule for the other
    smooth ones and for l2, Polyak's step for l1.
    """
    name = settings.solver
    if name == "auto":
        if divergence.lipschitz is not None:
            name = "constant"
        else:
            name = "armijo" if divergence.smooth_unless_exact else "polyak"
    box = Box(settings.eps_prime, settings.U)
    max_iter = settings.max_iter
    if max_iter is None:
        max_iter = 300 if name == "constant" else 100  # an iteration without a line search costs a third
    ridge, tol = settings.ridge, settings.tol
    if name == "constant":
        solver: CoefficientSolver = ConstantStep(box, ridge, tol, max_iter)
    elif name == "polyak":
        solver = Polyak(box, ridge, tol, max_iter, delta_tol=settings.delta_tol)
    else:
        solver = Armijo(box, ridge, tol, max_iter, literal=name == "armijo-literal")
    reason = solver.refuses(divergence)
    if reason is not None:
        raise ValueError(reason)
    return solver


def paper(divergence: Divergence, settings: Settings) -> Method:
    """Algorithms 1 to 3 of the paper: the method with the theorem (convex divergence, ridge > 0, exact h)."""
    _options("paper", settings)
    solver = coefficient_solver(divergence, settings)
    C = DictionarySet(settings.eps)
    require_positive_fit(divergence, C, solver.box)
    step_size = StepSize(settings.a, settings.b, settings.power, settings.any_power)
    return Method(solver, ProjectedSubgradient(_tau(settings, 10), step_size, C), precise=solver)


def surrogate(divergence: Divergence, settings: Settings) -> Method:
    """An averaged quadratic model per feature, and Newton's coefficients: fast for every divergence, no theorem."""
    _options("surrogate", settings)
    C, precise, kept = _fast_parts(divergence, settings)
    # A model that is exact, or nearly, need not be forgotten as fast as one made at a worse dictionary.
    slow = isinstance(divergence, (SquaredL2, L2, Mahalanobis, ItakuraSaito))
    averaging = Averaging(0.75 if slow else 0.6, forgetting=settings.forgetting)
    if isinstance(divergence, Mahalanobis):
        return Method(precise, CoupledSurrogate(divergence, _tau(settings, 30), averaging, C=C), precise, kept)
    if not divergence.domain.x.closed:
        floor, steps = Floor(1e-4, geometric=True), 1
    else:
        floor = Floor(0.0 if divergence.domain.y.closed else 1e-3)
        steps = 3 if divergence.robust else 1
    update = Surrogate(
        _tau(settings, 30),
        averaging,
        floor=floor,
        least_share=0.5 if floor.geometric else 0.0,
        shared=isinstance(divergence, (SquaredL2, L2)),
        max_memory=settings.max_memory,
        C=C,
    )
    solver: CoefficientSolver = precise
    if isinstance(divergence, L1):
        solver, steps = InteriorPoint(precise.box, settings.ridge), 4
    learning = solver.precise(settings.tol, settings.max_iter or steps)
    if isinstance(divergence, ItakuraSaito) and not settings.ridge and settings.max_iter is None:
        learning = Ratios(precise.box)  # Newton's step after it buys nothing that the next samples do not
    return Method(learning, update, solver, kept)


def em(divergence: Divergence, settings: Settings) -> Method:
    """Accumulated multiplicative statistics with revisits: O(F K) memory, O(nnz K) time on sparse data."""
    order = order_of(divergence)
    if order is None:
        raise ValueError(
            f"em refuses {divergence.name}: it serves kl, hellinger and alpha > 0; use method='surrogate'."
        )
    _options("em", settings)
    C, precise, kept = _fast_parts(divergence, settings)
    solver = Multiplicative(precise.box, max_iter=settings.max_iter or 5, order=order)
    averaging = Averaging(0.75, forgetting=settings.forgetting)
    update = OnlineEM(order, _tau(settings, 200), averaging=averaging, patient=settings.max_iter is None, C=C)
    return Method(solver, update, precise, kept)


def order_of(divergence: Divergence) -> float | None:
    """Its alpha, if it belongs to the alpha family with alpha > 0, whose multiplicative updates are linear at zero."""
    if isinstance(divergence, KullbackLeibler):
        return 1.0
    if isinstance(divergence, Hellinger):
        return 0.5
    return divergence.alpha if isinstance(divergence, Alpha) and divergence.alpha > 0 else None


def _fast_parts(divergence: Divergence, settings: Settings) -> tuple[DictionarySet, Newton, Reservoir | None]:
    if settings.solver != "auto":
        raise ValueError(
            f"solver={settings.solver!r} is one of method='paper'; the fast methods have solvers of their own."
        )
    C, box = DictionarySet(settings.eps), Box(settings.eps_prime, settings.U)
    require_positive_fit(divergence, C, box)
    return C, Newton(box, settings.ridge), Reservoir(settings.reservoir) if settings.reservoir else None


def _tau(settings: Settings, default: int) -> int:
    return default if settings.tau is None else settings.tau


def lefevre(divergence: Divergence, settings: Settings) -> Method:
    """Accumulated auxiliary functions with forgetting (Lefevre, Bach and Fevotte 2011): Itakura-Saito."""
    C, precise = _earlier_parts("lefevre", ItakuraSaito, divergence, settings)
    options = _options("lefevre", settings, r=0.7, N=settings.n_samples)
    solver = Multiplicative(precise.box, max_iter=settings.max_iter or 100)
    return Method(solver, Lefevre(_tau(settings, 1000), **options, C=C), precise)


def guan(divergence: Divergence, settings: Settings) -> Method:
    """Robust stochastic approximation from a buffer (Guan, Tao, Luo and Yuan 2012): squared l2."""
    C, precise = _earlier_parts("guan", SquaredL2, divergence, settings)
    options = _options("guan", settings, theta=0.1, buffer=20, steps=50, seed=0)
    return Method(precise, Guan(_tau(settings, 10), **options, C=C), precise)


def wang(divergence: Divergence, settings: Settings) -> Method:
    """Reweighted statistics and projected gradient steps (Wang, Wang and Yeung 2013): Huber."""
    C, precise = _earlier_parts("wang", Huber, divergence, settings)
    options = _options("wang", settings, eta=0.2, rho=0.99, gamma=0.0)
    steps = settings.max_iter or 1000
    solver = Multiplicative(precise.box, tol=settings.tol, max_iter=steps, gamma=options.pop("gamma"), every=10)
    return Method(solver, Wang(_tau(settings, 5), **options, C=C), precise)


def _earlier_parts(
    name: str, serves: type[Divergence], divergence: Divergence, settings: Settings
) -> tuple[DictionarySet, Newton]:
    if not isinstance(divergence, serves):
        raise ValueError(f"{name} refuses {divergence.name}: it serves {serves.name} alone; use method='auto'.")
    refused = {"solver": "auto", "ridge": 0.0, "forgetting": 0.0, "reservoir": 0}
    for setting, without in refused.items():
        if getattr(settings, setting) != without:
            raise ValueError(f"{name} has no {setting}; leave it at {without!r}, or use method='auto'.")
    C, box = DictionarySet(settings.eps), Box(settings.eps_prime, settings.U)
    require_positive_fit(divergence, C, box)
    return C, Newton(box)


def _options(name: str, settings: Settings, **known: Any) -> dict[str, Any]:
    """The method's constants: the given ones, and the defaults of the others."""
    given = dict(settings.options or {})
    unknown = sorted(str(key) for key in set(given) - set(known))
    if unknown:
        has = f"its options are {', '.join(known)}" if known else "it has none"
        raise ValueError(f"{name} does not know the option {unknown[0]!r}; {has}.")
    return known | given


METHODS: dict[str, Callable[[Divergence, Settings], Method]] = {
    "paper": paper,
    "surrogate": surrogate,
    "em": em,
    "lefevre": lefevre,
    "guan": guan,
    "wang": wang,
}
ADAPT = ("surrogate",)  # methods that let a parameter left to the data follow the residuals


def choose(divergence: Divergence, density: float) -> str:
    """What "auto" means, the density being the share of non-zeros in the first batch.

    em where a divergence is linear at zero and few entries are not zero, however the data are stored; the surrogate
    otherwise, whose memory has a limit of its own (``max_memory``). On counts drawn from planted topics em was ahead
    below a tenth in loss and in time, and behind above a fifth.
    """
    linear = isinstance(divergence, Separable) and divergence.slope_at_zero is not None
    return "em" if linear and density < FEW_ENTRIES else "surrogate"


def takes_sparse(name: str, divergence: Divergence) -> bool:
    """Can the method learn from sparse data at O(nnz), or must they be densified batch by batch?"""
    return name == "em" or (name == "surrogate" and isinstance(divergence, SquaredL2))


def build(name: str, divergence: Divergence, settings: Settings) -> Method:
    """The method of a name, for a divergence in internal units."""
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}; choose one of auto, {', '.join(METHODS)}.")
    try:
        return _built(name, divergence, settings)
    except TypeError:  # options, or a user's divergence, that cannot be hashed
        return METHODS[name](divergence, settings)


@lru_cache(maxsize=16)
def _built(name: str, divergence: Divergence, settings: Settings) -> Method:
    """One a batch, always the same: on short batches building it anew is a tenth of the time."""
    return METHODS[name](divergence, settings)
