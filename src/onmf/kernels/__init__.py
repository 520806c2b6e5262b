"""Compiled solvers of the small K x K problems. They know no divergence; every shape is checked before a call."""

from onmf.kernels.gram import nnls_on_gram, projected_gradient_on_gram
from onmf.kernels.newton import newton_directions
from onmf.kernels.sampled import sampled_hessians, sampled_product
from onmf.kernels.sweep import pack, sweep

__all__ = [
    "newton_directions",
    "nnls_on_gram",
    "pack",
    "projected_gradient_on_gram",
    "sampled_hessians",
    "sampled_product",
    "sweep",
]
