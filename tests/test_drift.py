"""Streams that change: the change is noticed, told once and kept in files; forgetting helps to follow it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from onmf import OnlineNMF, load, save
from onmf.learner.drift import BEGINNING, Drift

COMPONENTS = 4


class Law:
    """Samples of a planted dictionary."""

    def __init__(self, divergence: str, seed: int, features: slice = slice(0, 30)) -> None:
        self.divergence, self.rng = divergence, np.random.default_rng(seed)
        self.W = np.zeros((COMPONENTS, 60)) + (0.001 if divergence == "is" else 0.0)
        self.W[:, features] += self.rng.gamma(0.5, 1.0, self.W[:, features].shape)

    def draw(self, n: int) -> np.ndarray:
        Y = 5 * self.rng.gamma(1.0, 1.0, (n, COMPONENTS)) @ self.W
        return self.rng.poisson(Y).astype(float) if self.divergence == "kl" else Y * self.rng.gamma(9.0, 1 / 9, Y.shape)


def model_of(divergence: str, **settings: Any) -> OnlineNMF:
    return OnlineNMF(COMPONENTS, divergence=divergence, random_state=0, **settings)


def alarms(divergence: str, batches: Iterator[Any] | list[Any], **settings: Any) -> list[int]:
    """The numbers of the batches that showed a change."""
    told: list[bool] = []
    model = model_of(divergence, **settings, callbacks=[lambda progress: told.append(progress.drifted)])
    for batch in batches:
        model.partial_fit(batch)
    return np.flatnonzero(told).tolist()


@pytest.mark.parametrize("divergence", ["kl", "is", "huber"])
def test_no_alarm_while_nothing_changes_whatever_the_batches(divergence: str) -> None:
    sizes = [30] * 25 + [6] * 8 + [300] * 2 + [30] * 8
    for seed in range(6):
        law = Law(divergence, seed)
        assert alarms(divergence, [law.draw(n) for n in sizes]) == []


@pytest.mark.parametrize("kind", ["normal", "lognormal", "pareto"])
def test_false_alarms_are_rare_in_long_streams(kind: str) -> None:
    """10 streams of 1,000 batches, whose losses have light tails or heavy ones."""
    found = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        drift, sizes = Drift(), rng.choice([10, 30, 300], 1000)
        for n in sizes.tolist():
            losses = {
                "normal": rng.normal(5.0, 1.0, n),
                "lognormal": rng.lognormal(0.0, 1.0, n),
                "pareto": 1 + rng.pareto(3.0, n),
            }[kind]
            drift = drift.after(n, float(np.abs(losses).mean()))
        found += drift.changes
    assert found == 0


@pytest.mark.parametrize(
    ("divergence", "change"),  # Itakura-Saito's loss does not see scales, and the dictionary stays right
    [
        ("kl", "components"),
        ("kl", "scale"),
        ("is", "components"),
        ("squared_l2", "scale"),
        ("huber", "components"),
        ("l2", "scale"),
    ],
)
def test_a_planted_change_is_found_within_some_batches_and_told_once(divergence: str, change: str) -> None:
    for seed in range(2):
        law, other = Law(divergence, seed), Law(divergence, seed + 100)
        before = [law.draw(50) for _ in range(60)]
        after = [other.draw(50) if change == "components" else 4 * law.draw(50) for _ in range(12)]
        found = alarms(divergence, [*before, *after])
        assert len(found) == 1
        assert 60 <= found[0] < 60 + 8


@pytest.mark.parametrize("divergence", ["kl", "squared_l2", "huber", "l2"])
def test_a_loss_that_falls_markedly_is_a_change_and_told_once(
    divergence: str, caplog: pytest.LogCaptureFixture
) -> None:
    law = Law(divergence, 0)
    batches = [*(law.draw(50) for _ in range(60)), *(0.25 * law.draw(50) for _ in range(12))]
    with caplog.at_level(logging.WARNING, logger="onmf"):
        found = alarms(divergence, batches)
    assert len(found) == 1
    assert 60 <= found[0] < 60 + 8
    assert "the model fits new ones far better than earlier ones (change 1)" in caplog.text


def test_drift_and_changes_are_attributes_that_a_file_keeps_and_a_loaded_model_tells_callbacks(tmp_path: Path) -> None:
    law = Law("kl", 0)
    model = model_of("kl")
    for t in range(32):
        model.partial_fit((1 if t < 30 else 4) * law.draw(50))
    assert 0 < model.drift_ < 1
    save(model, tmp_path / "m.safetensors")
    again, told = load(tmp_path / "m.safetensors"), []
    assert (again.drift_, again.n_changes_) == (model.drift_, 0)
    again.set_params(callbacks=[lambda progress: told.append(progress.drifted)])
    for _ in range(4):
        again.partial_fit(4 * law.draw(50))
    assert (sum(told), again.n_changes_) == (1, 1)


def test_a_single_odd_batch_is_no_change() -> None:
    law = Law("kl", 0)
    batches = [law.draw(50) for _ in range(80)]
    batches[50] = 10 * batches[50]
    assert alarms("kl", batches) == []


def test_the_fall_of_the_loss_at_the_start_is_none_either() -> None:
    drift = Drift()
    for t in range(2000):
        drift = drift.after(100, 1000.0 / (1 + t) + 1)
        assert drift.statistic == 0


def test_drift_does_not_depend_on_the_unit_of_the_loss() -> None:
    losses = np.random.default_rng(0).gamma(5.0, 1.0, 200)
    losses[150:] *= 2
    courses = []
    for unit in (1e-80, 1.0, 1e80):
        drift, course = Drift(), []
        for loss in losses.tolist():
            drift = drift.after(30, unit * loss)
            course.append(drift.statistic)
        courses.append(course)
    np.testing.assert_allclose(courses[0], courses[1], rtol=1e-9)
    np.testing.assert_allclose(courses[2], courses[1], rtol=1e-9)
    assert max(courses[1]) == 1.0


@pytest.mark.parametrize("odd", [0.0, float("inf"), 1e308, 5e-324])
def test_odd_losses_leave_the_test_in_numbers(odd: float) -> None:
    drift = Drift()
    for loss in [1.0, odd] * (2 * BEGINNING) + [odd] * 20 + [1.0] * 20:
        drift = drift.after(10, loss)  # refuses what is not finite


def test_a_change_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    law, other = Law("kl", 0), Law("kl", 1)
    with caplog.at_level(logging.WARNING, logger="onmf"):
        alarms("kl", [*(law.draw(50) for _ in range(40)), *(other.draw(50) for _ in range(20))])
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["The stream has changed"]


def test_what_was_seen_of_a_change_is_kept_in_a_file(tmp_path: Path) -> None:
    """Cut between the change and the alarm, the stream goes on to the same alarm."""
    law, other = Law("kl", 0), Law("kl", 1)
    batches = [*(law.draw(50) for _ in range(40)), *(other.draw(50) for _ in range(20))]
    whole, cut = model_of("kl"), model_of("kl")
    for batch in batches:
        whole.partial_fit(batch)
    for batch in batches[:42]:
        cut.partial_fit(batch)
    assert 0 < cut._learned.drift.statistic < 1
    save(cut, tmp_path / "m.safetensors")
    cut = load(tmp_path / "m.safetensors")
    for batch in batches[42:]:
        cut.partial_fit(batch)
    assert cut._learned.drift == whole._learned.drift
    assert whole._learned.drift.changes == 1


# Forgetting


@pytest.mark.parametrize("method", ["surrogate", "sparse_surrogate", "em"])
@pytest.mark.parametrize("features", ["the same", "other"])
def test_forgetting_helps_after_a_change_and_costs_little_before(method: str, features: str) -> None:
    """Right after a change, and later; to features that were in use before, and to others.

    After 8,000 samples the surrogate does as well as a model that has seen nothing else.
    """
    law, other = Law("kl", 0), Law("kl", 100, slice(0, 30) if features == "the same" else slice(30, 60))
    rng = np.random.default_rng(0)

    def draw(law: Law, n: int) -> Any:
        if method == "surrogate":
            return law.draw(n)
        H = rng.dirichlet(np.full(COMPONENTS, 0.2), n)
        return scipy.sparse.csr_matrix(rng.poisson(10 * H @ (law.W / law.W.sum(axis=1, keepdims=True))) * 1.0)

    before, after, later = draw(law, 10_000), draw(other, 2_000), draw(other, 6_000)
    held_out = draw(law, 300), draw(other, 300)
    losses = []
    for forgetting in (0.0, 0.9):
        model = model_of("kl", method=f"{method}:forgetting={forgetting}").partial_fit(before)
        row = [model.loss(held_out[0])]
        row += [model.partial_fit(X).loss(held_out[1]) for X in (after, later)]
        losses.append(row)
    ratio = np.divide(*losses[::-1])
    assert ratio[0] < 1.01
    assert ratio[1] < 1.0
    assert ratio[2] < (1.0 if features == "the same" else 0.9)
    if method == "surrogate":
        fresh = model_of("kl", method=method).partial_fit(after).partial_fit(later).loss(held_out[1])
        assert losses[1][2] < 1.01 * fresh
