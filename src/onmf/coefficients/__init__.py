"""Solvers of the coefficient step, h = argmin d(x || hW) + penalty(h) over h in H, found by name."""

import importlib
import pkgutil

from onmf.coefficients.base import Coefficients, CoefficientSolver, Descent, iterate
from onmf.coefficients.problem import Problem

# A solver registers itself when its module is imported, so a new file in this folder is all it takes.
for _module in pkgutil.iter_modules(__path__):
    if not _module.ispkg:
        importlib.import_module(f"{__name__}.{_module.name}")

from onmf.coefficients.coordinate_descent import CoordinateDescent  # noqa: E402
from onmf.coefficients.interior_point import InteriorPoint  # noqa: E402
from onmf.coefficients.multiplicative import Multiplicative, Ratios  # noqa: E402
from onmf.coefficients.newton import Newton, precise_solver  # noqa: E402
from onmf.coefficients.projected_gradient import Armijo, ArmijoLiteral, ConstantStep  # noqa: E402
from onmf.coefficients.subgradient import Polyak  # noqa: E402

__all__ = [
    "Armijo",
    "ArmijoLiteral",
    "CoefficientSolver",
    "Coefficients",
    "ConstantStep",
    "CoordinateDescent",
    "Descent",
    "InteriorPoint",
    "Multiplicative",
    "Newton",
    "Polyak",
    "Problem",
    "Ratios",
    "find",
    "iterate",
    "names",
    "precise_solver",
]

find, names = CoefficientSolver.find, CoefficientSolver.names
