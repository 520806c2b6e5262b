"""Shared by all tests: random generators with names, and the divergences of the registry as parameters."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass

import hypothesis
import numpy as np
import pytest

from onmf import divergences
from onmf.divergences import find

# On a build machine every run tries the same cases; elsewhere each run tries new ones.
hypothesis.settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")

F = 12  # features of the registry's examples (Mahalanobis carries a matrix of this size)


def examples(n_features: int = F) -> list[divergences.Divergence]:
    """Every divergence of the registry, with all its example parameters."""
    return [example for name in divergences.names() for example in find(name).examples(n_features)]


def example_id(divergence: divergences.Divergence) -> str:
    values = [v for v in divergence.parameters().values() if not isinstance(v, np.ndarray)]
    return divergence.name + "".join(f":{v:.9g}" for v in values)


@dataclass(frozen=True)
class LogCosh(divergences.Separable):
    """A user's own divergence: not homogeneous, not registered, value and derivative alone."""

    convex = True

    def d(self, xp, x, y):
        r = xp.abs(x - y)
        return r + xp.log1p(0.5 * xp.expm1(-2.0 * r))

    def dy(self, xp, x, y):
        return xp.tanh(y - x)


every_divergence = pytest.mark.parametrize("divergence", examples(), ids=example_id)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator seeded by the test's own name: tests do not change each other's numbers."""
    return np.random.default_rng(zlib.crc32(request.node.name.encode()))
