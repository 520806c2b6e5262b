"""Checks of settings, all worded alike."""

from __future__ import annotations

import math
import sys
from numbers import Integral, Real
from typing import Any

MOST = 2**53  # for anything that is counted: beyond it, floats cannot tell neighbouring integers apart


def is_number(value: Any) -> bool:
    """Is it a real number that fits in a double, neither a bool nor a string?"""
    if type(value) is float:  # the common kinds first: settings are checked again with every batch
        return value == value
    if type(value) is int:
        return abs(value) <= sys.float_info.max
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return not math.isnan(float(value))
    except OverflowError:
        return False


def require_at_least(low: float, **settings: Any) -> None:
    """Refuse settings that are not finite numbers of at least ``low``."""
    for name, value in settings.items():
        if not is_number(value) or not low <= value < math.inf:
            raise ValueError(f"{name} must be a finite number of at least {low:g}, got {value!r}.")


def require_whole(low: int, **settings: Any) -> None:
    """Refuse settings that are not whole numbers of at least ``low``."""
    for name, value in settings.items():
        if not is_number(value) or not isinstance(value, Integral) or value < low:
            raise ValueError(f"{name} must be a whole number of at least {low}, got {value!r}.")
        if int(value) >= MOST:
            raise ValueError(f"{name} is too large a number: {value!r}.")
