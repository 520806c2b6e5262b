"""Compiled code for both steps: the small problems of the coefficients, and (``dictionary``) the sweeps of W.

Shapes are checked before every call. A module is imported when it is first used, as ``kernels.gram``: it needs Numba,
which takes a while to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onmf.coefficients.kernels import coordinate_descent as coordinate_descent
    from onmf.coefficients.kernels import dictionary as dictionary
    from onmf.coefficients.kernels import gram as gram
    from onmf.coefficients.kernels import interior as interior
    from onmf.coefficients.kernels import multiplicative as multiplicative
    from onmf.coefficients.kernels import simplex as simplex
    from onmf.coefficients.kernels.cache import cached_njit
    from onmf.coefficients.kernels.compiled import VECTOR_SUMS, kernel
    from onmf.coefficients.kernels.dictionary import packed_product
    from onmf.coefficients.kernels.gram import pack

__all__ = ["VECTOR_SUMS", "cached_njit", "kernel", "pack", "packed_product"]

MODULES = ("coordinate_descent", "dictionary", "gram", "interior", "multiplicative", "simplex")
HOMES = {
    "VECTOR_SUMS": "compiled",
    "cached_njit": "cache",
    "kernel": "compiled",
    "pack": "gram",
    "packed_product": "dictionary",
}


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(f"{__name__}.{name}")
    if name in HOMES:
        return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
