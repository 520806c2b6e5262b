from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from onmf.schedules import StepSize


@pytest.mark.parametrize(
    ("step_size", "samples", "expected"),
    [
        (StepSize(), 0, 1.0),
        (StepSize(), 20_000, 0.5),
        (StepSize(a=3.0, b=5.0), 10, 0.2),
        (StepSize(a=1.0, b=1.0, power=0.75), 15, 0.125),
    ],
)
def test_step_size_is_the_printed_formula(step_size: StepSize, samples: int, expected: float) -> None:
    assert step_size(samples) == pytest.approx(expected, rel=1e-15)
    assert type(step_size(samples)) is float


def test_the_papers_canonical_step_is_counted_in_samples() -> None:
    a, b, tau = 2e4, 2e4, 10
    for t in (1, 7, 1000):
        assert StepSize(a, b)(tau * t) == pytest.approx(a / (tau * t + b), rel=1e-15)


@pytest.mark.parametrize("power", [0.51, 0.75, 1.0])
def test_powers_that_satisfy_robbins_monro_are_accepted_and_fall(power: float) -> None:
    values = [StepSize(power=power)(samples) for samples in range(0, 10**6, 10**5)]
    assert np.all(np.diff(values) < 0)


@pytest.mark.parametrize("power", [0.5, 0.0, -1.0, 1.01, 2.0])
def test_powers_that_break_robbins_monro_are_refused_unless_asked_for(power: float) -> None:
    with pytest.raises(ValueError, match=r"breaks the Robbins-Monro conditions.*or set any_power=True"):
        StepSize(power=power)
    assert StepSize(a=2.0, b=3.0, power=power, any_power=True)(1) == pytest.approx(2.0 / 4.0**power)


@pytest.mark.parametrize("power", [np.nan, np.inf, -np.inf])
def test_a_power_that_is_no_number_is_always_refused(power: float) -> None:
    with pytest.raises(ValueError, match="power = "):
        StepSize(power=power, any_power=True)


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_constants_that_are_not_positive_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"needs {name} > 0"):
        StepSize(**{name: value})


def test_step_size_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        StepSize().a = 1.0
