"""What is made of rows of which some may be refused: those are found by halving."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf.model.validation import DataError

OnBad = Callable[[ValueError], None]
Solve = Callable[[Any, Any], Array]  # of rows' numbers or names, and the rows


def each_solved(rows: Any, X: Any, on_bad: OnBad | None, solve: Solve, width: int) -> Array:
    """What ``solve`` makes of the rows; NaN of those that it refuses, found by halving until they are alone."""
    try:
        return solve(rows, X)
    except DataError as error:
        if on_bad is None:
            raise
        if len(rows) == 1:
            on_bad(error)
            return np.full((1, width), np.nan, X.dtype)
    half = len(rows) // 2
    parts = [each_solved(rows[part], X[part], on_bad, solve, width) for part in (slice(None, half), slice(half, None))]
    return np.concatenate(parts)
