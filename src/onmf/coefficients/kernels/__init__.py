"""Compiled solvers of the small K x K problems, and sparse products. Shapes are checked before every call."""

from onmf.coefficients.kernels import compiled  # noqa: F401 - logs a line when something has to be compiled
from onmf.coefficients.kernels.dictionary import averaged_steps, blend, curved_step, pack, packed_product, sweep
from onmf.coefficients.kernels.gram import nnls_on_gram, nnls_on_grams, projected_gradient_on_gram
from onmf.coefficients.kernels.multiplicative import (
    accumulate,
    divide,
    gather,
    multiplicative_iteration,
    multiplicative_steps,
)
from onmf.coefficients.kernels.newton import newton_directions, sampled_hessians, sampled_product
from onmf.coefficients.kernels.simplex import directions_on_simplex, least_squares_on_simplex

__all__ = [
    "accumulate",
    "averaged_steps",
    "blend",
    "curved_step",
    "directions_on_simplex",
    "divide",
    "gather",
    "least_squares_on_simplex",
    "multiplicative_iteration",
    "multiplicative_steps",
    "newton_directions",
    "nnls_on_gram",
    "nnls_on_grams",
    "pack",
    "packed_product",
    "projected_gradient_on_gram",
    "sampled_hessians",
    "sampled_product",
    "sweep",
]
