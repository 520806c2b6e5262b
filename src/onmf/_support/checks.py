"""Checks of settings, all worded alike, and the generators that a ``random_state`` stands for."""

import math
import sys
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np

RandomState: TypeAlias = int | np.random.RandomState | np.random.Generator | None
MOST = 2**53  # for anything that is counted: beyond it, floats cannot tell neighbouring integers apart


def is_number(value: Any) -> bool:
    """Return whether it is a real number that fits in a double, neither a bool nor a string."""
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
    """Raise an error unless these settings are finite numbers of at least ``low``.

    Parameters
    ----------
    low : float
        The least number that is allowed.
    **settings
        Settings by their names.

    Examples
    --------
    >>> onmf.methods.require_at_least(0, eta=-1)
    Traceback (most recent call last):
    ValueError: eta must be a finite number of at least 0, got -1.
    """
    for name, value in settings.items():
        if not is_number(value) or not low <= value < math.inf:
            raise ValueError(f"{name} must be a finite number of at least {low:g}, got {value!r}.")


def require_whole(low: int, **settings: Any) -> None:
    """Raise an error unless these settings are whole numbers of at least ``low``.

    Parameters
    ----------
    low : int
        The least number that is allowed.
    **settings
        Settings by their names.

    Examples
    --------
    >>> onmf.methods.require_whole(1, tau=2.5)
    Traceback (most recent call last):
    ValueError: tau must be a whole number of at least 1, got 2.5.
    """
    for name, value in settings.items():
        if not is_number(value) or not isinstance(value, Integral) or value < low:
            raise ValueError(f"{name} must be a whole number of at least {low}, got {value!r}.")
        if int(value) >= MOST:
            raise ValueError(f"{name} is too large a number: {value!r}.")


def require_seed(seed: Any) -> None:
    """Raise an error unless it can be a random state."""
    whole = is_number(seed) and isinstance(seed, (int, np.integer)) and seed >= 0
    if not (whole or seed is None or isinstance(seed, (np.random.RandomState, np.random.Generator))):
        raise ValueError(
            f"random_state must be None, a whole number of at least 0, or a NumPy generator; got {seed!r}."
        )


def generators(seed: Any) -> tuple[np.random.Generator, np.random.Generator]:
    """Return two independent generators: shuffling the samples must not change the initial dictionary."""
    if isinstance(seed, np.random.RandomState):
        seed = int(seed.randint(2**31 - 1))
    if isinstance(seed, np.random.Generator):
        seed = int(seed.integers(2**63))
    first, second = np.random.SeedSequence(seed).spawn(2)
    return np.random.default_rng(first), np.random.default_rng(second)
