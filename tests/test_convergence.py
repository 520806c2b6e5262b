"""The theorems of theory.md, as far as a computer can watch them: stationarity falls with ever more samples."""

from __future__ import annotations

import numpy as np
import pytest

from onmf import OnlineNMF
from onmf.methods import Adaptive, Canonical, Method, Paper, Surrogate

MARKS = [int(100 * 10 ** (third / 3)) for third in range(8)]  # more than two decades of samples
STEPS = [Canonical(a=10, b=400), Adaptive(b=400, trial_samples=200)]
FALLING: list[Method] = [*(Paper(tau=20, step=step) for step in STEPS), Surrogate(certified=200)]
STALLING: list[Method] = [
    Paper(tau=20, step=Canonical(a=0.1, b=400, power=1e-9, any_power=True)),
    Surrogate(certified=200, tol=0.3),
]


def rate(divergence: str, method: Method, rng: np.random.Generator, first: int = 0) -> float:
    """The log-log slope of stationarity against the samples, drawn from a few with replacement, from a mark on."""
    X = rng.gamma(1, 1, (30, 3)) @ rng.gamma(1, 1, (3, 10)) + 0.3 * rng.random((30, 10)) + 0.05
    model = OnlineNMF(3, divergence=divergence, method=method, l2_coefficients=0.1, random_state=0, transform_tol=1e-10)
    seen, stationarities = 0, []
    for mark in MARKS:
        while seen < mark:
            n = max(20, min(5000, mark - seen))
            model.partial_fit(X[rng.integers(len(X), size=n)])
            seen += n
        stationarities.append(model.stationarity(X))
    assert model.guarantee_.startswith(f"Covered by theorem {method.theorem}") == (method in FALLING)
    return float(np.polyfit(np.log(MARKS[first:]), np.log(stationarities[first:]), 1)[0])


@pytest.mark.parametrize("divergence", ["kl", "squared_l2"])
@pytest.mark.parametrize("method", FALLING, ids=["canonical", "adaptive", "surrogate"])
def test_stationarity_falls_as_samples_go_on(divergence: str, method: Method, rng: np.random.Generator) -> None:
    assert rate(divergence, method, rng) < -0.25


@pytest.mark.parametrize("method", STALLING, ids=["steps", "tolerances"])
def test_stationarity_stalls_where_steps_or_tolerances_do_not_vanish(method: Method, rng: np.random.Generator) -> None:
    assert rate("squared_l2" if isinstance(method, Paper) else "kl", method, rng, first=2) > -0.15
