"""``guarantee_`` names exactly those assumptions of the theorem that a run does not meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from onmf import OnlineNMF, load, save
from onmf.divergences import Divergence
from onmf.methods import Adaptive, Canonical, Paper
from tests.conftest import F, Pinball, every_divergence

COVERED = "Covered by theorem A: as the number of samples grows, W converges almost surely to the critical"
UNMET = "Not covered by theorem A yet: "
INEXACT = "coefficients must be found ever more exactly, and "
SHORT = Adaptive(b=100, trial_samples=40)
MET: dict[str, Any] = {"method": Paper(step=SHORT), "l2_coefficients": 1e-2, "random_state": 0}

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::onmf.DomainWarning")


def samples(rng: np.random.Generator, n: int = 150) -> np.ndarray:
    return rng.gamma(1, 1, (n, 3)) @ rng.gamma(1, 1, (3, F)) + 0.1


def said(X: Any, **settings: Any) -> str:
    return OnlineNMF(3, **MET | settings).fit(X).guarantee_


def test_a_run_that_meets_everything_is_told_so(rng: np.random.Generator) -> None:
    text = said(samples(rng))
    assert text.startswith(COVERED)
    assert "on the box low <= W <= 1 within C" in text
    assert text.endswith("provided that the samples are independent draws from one distribution with compact support.")
    assert "on the set C" in said(samples(rng), divergence="squared_l2")


CASES = {
    "strong convexity": (
        {"l2_coefficients": 0.0},
        "the loss must be strongly convex in h, and l2_coefficients was 0 (l2_coefficients=1e-3)",
    ),
    "a fixed tolerance": ({"method": Paper(step=SHORT, tol=1e-9)}, INEXACT + "tol=1e-09 ends that (leave it out)"),
    "iterations": ({"method": Paper(step=SHORT, tol=1e-9, max_iter=1)}, INEXACT + "tol=1e-09, max_iter=1 ends that"),
    "a first-order solver": ({"method": Paper(step=SHORT, solver="armijo")}, INEXACT + "solver=armijo ends that"),
    "a loose active set": (
        {"method": Paper(step=SHORT, tol=1.0), "divergence": "squared_l2"},
        INEXACT + "tol=1.0 ends that",
    ),
    "weights of entries": (
        {"missing": "nan"},
        "coefficients must have bounds that do not depend on W, and where entries are missing or weighted they have",
    ),
    "passes": ({"max_passes": 2}, "samples must be independent, and there were 2 passes over the same"),
    "reservoir": ({"reservoir": 10}, "samples must be independent, and a reservoir shows some of them again"),
    "metric": (
        {"method": Paper()},
        "the step must no longer adapt, and it does for 20000 samples, of which it has seen 150",
    ),
    "powers": (
        {"method": Paper(step=Canonical(a=1, b=100, power=2.0, any_power=True))},
        "steps must satisfy the Robbins-Monro conditions, and power=2 does not",
    ),
}


@pytest.mark.parametrize(("settings", "words"), CASES.values(), ids=CASES)
def test_what_a_run_does_not_meet_is_named_and_nothing_else(
    settings: dict[str, Any], words: str, rng: np.random.Generator
) -> None:
    text = said(samples(rng), **settings)
    assert text.startswith(UNMET + words)
    assert ";" not in text.partition(words)[2]


@pytest.mark.parametrize("divergence", ["kl", "hellinger", "alpha:2", "beta:1.5", "squared_l2", "alpha:-1"])
def test_zeros_in_the_data_do_no_harm(divergence: str, rng: np.random.Generator) -> None:
    X = samples(rng)
    X[100, 2] = 0
    assert said(scipy.sparse.csr_matrix(X), divergence=divergence).startswith(COVERED)


def test_an_active_set_is_exact_whatever_the_tolerance(rng: np.random.Generator) -> None:
    assert said(samples(rng), method=Paper(step=SHORT, tol=1e-3), divergence="squared_l2").startswith(COVERED)


@pytest.mark.parametrize("divergence", ["l1", "l2"])
def test_distances_with_kinks_are_covered_by_their_dual(divergence: str, rng: np.random.Generator) -> None:
    assert said(samples(rng), divergence=divergence).startswith(COVERED)
    assert INEXACT in said(samples(rng), divergence=divergence, method=Paper(step=SHORT, solver="paper"))


def test_a_loss_with_kinks_whose_slopes_nobody_finds_has_no_promise(rng: np.random.Generator) -> None:
    text = said(samples(rng), divergence=Pinball())
    assert text.startswith(
        "None: the theorems are about divergences that are convex in the fit (class D2) and, but for"
    )


def test_single_precision_and_a_loss_that_is_not_strongly_convex_are_told(rng: np.random.Generator) -> None:
    X = samples(rng)
    assert INEXACT + "single precision ends that" in said(X.astype(np.float32))
    model = OnlineNMF(3, **MET | {"l2_coefficients": 0.0}).fit(X)
    assert "l2_coefficients was 0" in model.guarantee_
    with pytest.raises(ValueError, match="l2_coefficients cannot be changed while a model learns; keep it, or begin"):
        model.set_params(l2_coefficients=0.1).partial_fit(X)


@every_divergence
def test_there_is_no_promise_outside_class_d2_or_for_another_method(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    X = samples(rng)
    text = OnlineNMF(3, divergence=divergence, method="paper:max_iter=2", random_state=0).fit(X).guarantee_
    assert text.startswith(UNMET if divergence.convex else "None: ")
    fast = OnlineNMF(3, divergence=divergence, random_state=0).fit(X).guarantee_
    if divergence.convex:
        assert fast.startswith("None: for this divergence the theorems are about method 'paper', ")
        assert ("and about 'auto', 'surrogate' and 'em' with certified" in fast) == divergence.smooth_curvature
    else:
        assert fast.startswith("None: the theorems are about divergences that are convex in the fit")


def test_what_no_theorem_covers_is_said_of_another_method_too(rng: np.random.Generator) -> None:
    text = said(samples(rng), method="auto", missing="nan", l2_coefficients=0.0)
    assert text.startswith("None: for this divergence")
    assert "l2_coefficients was 0" in text
    assert "where entries are missing or weighted they have" in text


@every_divergence
def test_what_a_theorem_is_said_to_ask_for_is_accepted(divergence: Divergence, rng: np.random.Generator) -> None:
    X = samples(rng)
    reason = OnlineNMF(3, divergence=divergence, random_state=0).fit(X).guarantee_
    if "'paper'" in reason:
        assert said(X, divergence=divergence).startswith("Covered by theorem A")
    if "certified" in reason:
        assert said(X, divergence=divergence, method="auto:certified=100").startswith("Covered by theorem B")


def test_a_model_file_keeps_what_the_sentence_is_made_of(rng: np.random.Generator, tmp_path: Any) -> None:
    X = samples(rng)
    X[3] = 0
    model = OnlineNMF(3, **MET, max_passes=2).fit(X)
    save(model, tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors").guarantee_ == model.guarantee_
    with pytest.raises(AttributeError, match="guarantee_ is available only after fit or partial_fit"):
        _ = OnlineNMF().guarantee_
