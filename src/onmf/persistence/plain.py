"""Values as JSON takes them, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from onmf._support.constants import Constants


def plain(value: Any) -> Any:
    """A value as JSON takes it: NumPy's numbers become Python's, tuples lists, infinity a word."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, Constants):
        return value.text()
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    return str(value) if isinstance(value, float) and np.isinf(value) else value


def read_back(value: Any) -> Any:
    """The value that ``plain`` was given, but for the types that JSON does not have."""
    if isinstance(value, dict):
        return {key: read_back(part) for key, part in value.items()}
    if isinstance(value, list):
        return [read_back(part) for part in value]
    return float(value) if value in ("inf", "-inf") else value


def texts(value: Any) -> tuple[str, ...]:
    """A list of texts that was read; anything else is refused."""
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError(f"it has {value!r} where texts belong")
    return tuple(value)
