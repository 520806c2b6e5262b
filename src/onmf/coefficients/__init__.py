"""Solvers of the coefficient step, h = argmin d(x || hW) + penalty(h) over h in H."""

from onmf.coefficients.base import Coefficients, CoefficientSolver
from onmf.coefficients.interior_point import InteriorPoint
from onmf.coefficients.multiplicative import Multiplicative
from onmf.coefficients.newton import Newton
from onmf.coefficients.projected_gradient import Armijo, ConstantStep
from onmf.coefficients.ratios import Ratios
from onmf.coefficients.subgradient import Polyak
from onmf.divergences import Divergence

__all__ = [
    "Armijo",
    "CoefficientSolver",
    "Coefficients",
    "ConstantStep",
    "InteriorPoint",
    "Multiplicative",
    "Newton",
    "Polyak",
    "Ratios",
    "precise",
]


def precise(divergence: Divergence) -> CoefficientSolver:
    """The solver that comes nearest to the minimum: for ``transform``, and for whoever compares dictionaries."""
    return InteriorPoint() if divergence.absolute_deviations else Newton()
