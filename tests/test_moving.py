"""What docs/start/moving.md says of scikit-learn's settings, checked with scikit-learn itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import NMF, non_negative_factorization

import onmf
from onmf import BatchNMF, OnlineNMF

N, F, K = 60, 14, 3
rng = np.random.default_rng(0)
X = rng.poisson(6 * rng.gamma(1.0, 1.0, (N, K)) @ rng.gamma(0.5, 1.0, (K, F))) + 1.0
DEGREES = {"squared_l2": 2, "kl": 1}
THEIRS = {"squared_l2": "frobenius", "kl": "kullback-leibler"}


def converted(name: str, alpha_W: float, alpha_H: float, l1_ratio: float) -> dict[str, float]:
    """The penalties of docs/start/moving.md."""
    s, q = X.mean(), DEGREES[name]
    return {
        "l1_coefficients": alpha_W * l1_ratio * F * s ** (1 - q),
        "l2_coefficients": alpha_W * (1 - l1_ratio) * F * s ** (2 - q),
        "l1_dictionary": alpha_H * l1_ratio * s**-q,
        "l2_dictionary": alpha_H * (1 - l1_ratio) * s**-q,
    }


def their_objective(name: str, H: Any, W: Any, alpha_W: float, alpha_H: float, l1_ratio: float) -> float:
    """scikit-learn's, as its documentation of NMF has it; its W are our H."""
    Y = H @ W
    value = 0.5 * np.square(X - Y).sum() if name == "squared_l2" else (X * np.log(X / Y) - X + Y).sum()
    for each, alpha in ((H, alpha_W * F), (W, alpha_H * N)):
        value += alpha * (l1_ratio * each.sum() + 0.5 * (1 - l1_ratio) * np.square(each).sum())
    return float(value)


@pytest.mark.parametrize(
    ("name", "solver", "l1_ratio"), [*(("squared_l2", "cd", ratio) for ratio in (0.0, 0.4, 1.0)), ("kl", "mu", 0.0)]
)
def test_alpha_w_times_the_features_gives_the_same_coefficients(name: str, solver: str, l1_ratio: float) -> None:
    W = OnlineNMF(K, divergence=name, random_state=0).fit(X).components_
    free = OnlineNMF(K, divergence=name, fixed=W, transform_tol=1e-8).fit(X)
    model = OnlineNMF(K, divergence=name, fixed=W, transform_tol=1e-8, **converted(name, 0.5, 0.0, l1_ratio)).fit(X)
    theirs = non_negative_factorization(
        X, H=W, n_components=K, update_H=False, beta_loss=THEIRS[name], solver=solver, init="custom",
        max_iter=20_000, tol=1e-12, alpha_W=0.5, alpha_H=0.0, l1_ratio=l1_ratio,
    )[0]  # fmt: skip
    assert np.abs(theirs - model.transform(X)).max() < 1e-4 * theirs.max()
    assert np.abs(theirs - free.transform(X)).max() > 0.01 * theirs.max()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("name", "solver", "l1_ratio"), [("squared_l2", "cd", 0.5), ("kl", "mu", 1.0)])
def test_alpha_h_for_each_sample_gives_the_same_objective(name: str, solver: str, l1_ratio: float) -> None:
    alphas = 2e-4, 2.0, l1_ratio
    reference = NMF(K, beta_loss=THEIRS[name], solver=solver, init="nndsvda", max_iter=1000, tol=1e-7, random_state=0)
    their_H = reference.set_params(alpha_W=alphas[0], alpha_H=alphas[1], l1_ratio=l1_ratio).fit_transform(X)
    assert reference.components_.max() < 1  # or else our bound would be another problem
    model = BatchNMF(K, divergence=name, solver="multiplicative", init="nndsvda", max_iter=300, random_state=0)
    model.set_params(tol=1e-6, **converted(name, *alphas)).fit(X)
    theirs = their_objective(name, their_H, reference.components_, *alphas)
    assert their_objective(name, model.coefficients_, model.components_, *alphas) == pytest.approx(theirs, rel=5e-3)


def test_the_default_solver_of_scikit_learn_finds_no_better_fit() -> None:
    theirs = NMF(K, init="nndsvda", max_iter=2000, tol=1e-8, random_state=0).fit(X)
    ours = BatchNMF(K, divergence=2, init="nndsvda", max_iter=2000, tol=1e-8, random_state=0).fit(X)
    assert ours.reconstruction_err_ < 1.01 * theirs.reconstruction_err_


@pytest.mark.parametrize(
    ("number", "text"), [(2, "squared_l2"), (1.5, "beta:1.5"), (1, "kl"), (0, "is"), (np.float32(0.5), "beta:0.5")]
)
def test_a_number_is_a_beta_as_in_scikit_learn(number: float, text: str, tmp_path: Any) -> None:
    model = OnlineNMF(2, divergence=number, random_state=0).fit(X)
    assert np.array_equal(model.components_, OnlineNMF(2, divergence=text, random_state=0).fit(X).components_)
    assert model.divergence_ == onmf.divergences.get(text)
    onmf.save(model, tmp_path / "m.safetensors")
    assert onmf.load(tmp_path / "m.safetensors").partial_fit(X).divergence_ == model.divergence_
    with pytest.raises(TypeError, match="divergence must be a name"):
        OnlineNMF(2, divergence=True).fit(X)
