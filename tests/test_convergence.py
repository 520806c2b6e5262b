"""The theorem of method "paper", as far as a computer can watch it: stationarity falls as samples go on."""

from __future__ import annotations

import numpy as np
import pytest

from onmf import OnlineNMF
from onmf.methods import Adaptive, Canonical, Paper
from onmf.methods.steps import Step

MARKS = [int(100 * 10 ** (third / 3)) for third in range(8)]  # more than two decades of samples
STEPS = [Canonical(a=10, b=400), Adaptive(b=400, trial_samples=200)]
CONSTANT = Canonical(a=0.1, b=400, power=1e-9, any_power=True)


def rate(divergence: str, step: Step, rng: np.random.Generator) -> float:
    """The log-log slope of stationarity against the samples, which are drawn from a few with replacement."""
    X = rng.gamma(1, 1, (30, 3)) @ rng.gamma(1, 1, (3, 10)) + 0.3 * rng.random((30, 10)) + 0.05
    method = Paper(tau=20, step=step)
    model = OnlineNMF(3, divergence=divergence, method=method, l2_coefficients=0.1, random_state=0, transform_tol=1e-10)
    seen, stationarities = 0, []
    for mark in MARKS:
        while seen < mark:
            n = max(20, min(5000, mark - seen))
            model.partial_fit(X[rng.integers(len(X), size=n)])
            seen += n
        stationarities.append(model.stationarity(X))
    if step is not CONSTANT:
        assert model.guarantee_.startswith("Covered by the theorem")
    return float(np.polyfit(np.log(MARKS), np.log(stationarities), 1)[0])


@pytest.mark.parametrize("step", STEPS, ids=["canonical", "adaptive"])
@pytest.mark.parametrize("divergence", ["kl", "squared_l2"])
def test_stationarity_falls_as_samples_go_on(divergence: str, step: Step, rng: np.random.Generator) -> None:
    assert rate(divergence, step, rng) < -0.25


def test_stationarity_stalls_where_the_steps_do_not_vanish(rng: np.random.Generator) -> None:
    assert rate("squared_l2", CONSTANT, rng) > -0.15
