"""Random numbers: what a ``random_state`` may be, and the generators made of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from onmf._support.checks import is_number


def require_seed(seed: Any) -> None:
    """Refuse anything that cannot be a random state."""
    whole = is_number(seed) and isinstance(seed, (int, np.integer)) and seed >= 0
    if not (whole or seed is None or isinstance(seed, (np.random.RandomState, np.random.Generator))):
        raise ValueError(
            f"random_state must be None, a whole number of at least 0, or a NumPy generator; got {seed!r}."
        )


def generators(seed: Any) -> tuple[np.random.Generator, np.random.Generator]:
    """Two independent generators: the initial dictionary must not depend on whether samples are shuffled."""
    if isinstance(seed, np.random.RandomState):
        seed = int(seed.randint(2**31 - 1))
    if isinstance(seed, np.random.Generator):
        seed = int(seed.integers(2**63))
    first, second = np.random.SeedSequence(seed).spawn(2)
    return np.random.default_rng(first), np.random.default_rng(second)
