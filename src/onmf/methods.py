"""Named methods: pairs of a coefficient solver and a dictionary update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onmf.coefficients import Armijo, CoefficientSolver, ConstantStep, Polyak
from onmf.dictionary import ProjectedSubgradient
from onmf.divergences import Divergence
from onmf.online import Method
from onmf.schedules import StepSize
from onmf.sets import Box, DictionarySet, require_positive_fit

SOLVERS = ("auto", "armijo", "armijo-literal", "constant", "polyak")


@dataclass(frozen=True)
class Settings:
    """The options of the methods, as ``OnlineNMF`` takes them; its documentation says what each does."""

    solver: str = "auto"
    tol: float = 1e-3
    max_iter: int | None = None
    delta_tol: float = 0.01
    ridge: float = 0.0
    tau: int = 10
    a: float = 2e4
    b: float = 2e4
    power: float = 1.0
    any_power: bool = False
    eps: float = 1e-8
    eps_prime: float = 1e-8
    U: float = 1e8


def coefficient_solver(divergence: Divergence, settings: Settings) -> CoefficientSolver:
    """The paper's choice for a divergence, or the one that the settings name.

    1/L where one Lipschitz constant serves everywhere (Huber, squared l2, Mahalanobis), the Armijo rule for the other
    smooth ones and for l2, Polyak's step for l1.
    """
    if settings.solver not in SOLVERS:
        msg = f"unknown solver {settings.solver!r}; choose one of {', '.join(SOLVERS)}."
        raise ValueError(msg)
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
    solver = coefficient_solver(divergence, settings)
    C = DictionarySet(settings.eps)
    require_positive_fit(divergence, C, solver.box)
    step_size = StepSize(settings.a, settings.b, settings.power, settings.any_power)
    return Method(solver, ProjectedSubgradient(settings.tau, step_size, C))


METHODS: dict[str, Callable[[Divergence, Settings], Method]] = {"paper": paper}


def build(name: str, divergence: Divergence, settings: Settings) -> Method:
    """The method of a name, for a divergence in internal units."""
    if name not in METHODS:
        msg = f"unknown method {name!r}; choose one of {', '.join(METHODS)}."
        raise ValueError(msg)
    return METHODS[name](divergence, settings)
