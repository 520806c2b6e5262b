"""The numbers that divergences have as parameters, checked."""

from __future__ import annotations

import math

from onmf._support.checks import is_number

LARGEST_ORDER = 100  # of a family: the power of a ratio of a thousand is 1e300


def order(owner: str, value: float) -> float:
    """The order of a family, its exponent, as a Python float; one whose powers nobody can compute is refused."""
    order = finite_number(owner, owner, value)
    if abs(order) > LARGEST_ORDER:
        raise ValueError(f"{owner}: {owner} must lie between -{LARGEST_ORDER} and {LARGEST_ORDER}, got {value!r}.")
    return order


def finite_number(owner: str, field: str, value: float) -> float:
    """The parameter as a Python float, which keeps single precision single; anything but a finite number is refused."""
    if not is_number(value) or not math.isfinite(value):
        raise ValueError(f"{owner}: {field} must be a finite number, got {value!r}.")
    return float(value)
