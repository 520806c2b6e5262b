"""Compiled solvers of the small K x K problems, and sparse products. Shapes are checked before every call."""

from onmf.coefficients.kernels.cache import cached_njit
from onmf.coefficients.kernels.compiled import kernel
from onmf.coefficients.kernels.dictionary import packed_product
from onmf.coefficients.kernels.gram import pack

__all__ = ["cached_njit", "kernel", "pack", "packed_product"]
