"""The theorems of theory.md, as far as a computer can watch them: stationarity falls with ever more samples."""

from __future__ import annotations

import numpy as np
import pytest

from onmf import OnlineNMF
from onmf.methods import Adaptive, Canonical, Method, Paper, Surrogate

MARKS = [int(100 * 10 ** (third / 3)) for third in range(8)]  # more than two decades of samples
FIRST = 3  # mark from which slopes are taken
STEPS = [Canonical(a=10, b=400), Adaptive(b=400, trial_samples=200)]
FALLING: list[Method] = [*(Paper(tau=20, step=step) for step in STEPS), Surrogate(certified=200)]
STALLING: list[tuple[str, Method]] = [
    ("squared_l2", Paper(tau=20, step=Canonical(a=0.1, b=400, power=1e-9, any_power=True))),
    ("kl", Paper(tau=20, step=STEPS[1], tol=0.3)),
    ("kl", Surrogate(certified=200, tol=0.3)),
]
BETWEEN = -0.2  # the log-log slope that separates them; those that are seen are below -0.4 and above -0.1


def rate(divergence: str, method: Method) -> float:
    """The log-log slope of stationarity against the samples, from 1,000 on: the mean of two streams of draws."""
    return float(np.mean([slope(divergence, method, np.random.default_rng(seed)) for seed in (0, 1)]))


def slope(divergence: str, method: Method, rng: np.random.Generator) -> float:
    """That of one stream, whose samples are drawn from a few with replacement."""
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
    return float(np.polyfit(np.log(MARKS[FIRST:]), np.log(stationarities[FIRST:]), 1)[0])


@pytest.mark.parametrize("divergence", ["kl", "squared_l2"])
@pytest.mark.parametrize("method", FALLING, ids=["canonical", "adaptive", "surrogate"])
def test_stationarity_falls_as_samples_go_on(divergence: str, method: Method) -> None:
    assert rate(divergence, method) < BETWEEN


@pytest.mark.parametrize(("divergence", "method"), STALLING, ids=["steps", "tolerances", "surrogate's tolerances"])
def test_stationarity_stalls_where_steps_or_tolerances_do_not_vanish(divergence: str, method: Method) -> None:
    assert rate(divergence, method) > BETWEEN
