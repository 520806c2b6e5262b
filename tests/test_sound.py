"""Coefficients of power spectra with entries up to 24 orders of magnitude below the mean, as codecs leave them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.optimize
from sklearn.exceptions import ConvergenceWarning

from onmf import BatchNMF, DomainWarning, OnlineNMF
from onmf.coefficients.problem import scales
from onmf.divergences import get
from onmf.model.units import FLOOR
from onmf.samples import Samples

K, F, N = 6, 150, 240


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    """Harmonic notes of 1e-12 to 1 in loudness, noise, a steep cut-off, fades to silence, and a few zeros."""
    rng = np.random.default_rng(0)
    bins, harmonics = np.arange(F), np.arange(1, 30)
    pitch, decay = rng.uniform(4, 15, (K, 1, 1)), rng.uniform(0.5, 0.9, (K, 1, 1))
    W = (decay ** harmonics[:, None] * np.exp(-0.5 * np.square(bins - pitch * harmonics[:, None]))).sum(axis=1)
    W += 1e-7 * rng.gamma(2.0, 1.0, W.shape)
    H = 10 ** rng.uniform(-12, 0, (N, K)) * (rng.random((N, K)) < 0.7) + 1e-12
    spectra = (H @ W) * rng.exponential(1.0, (N, F))
    spectra[:, 110:] *= 10 ** rng.uniform(-24, -9, (N, F - 110))
    spectra[-20:] *= np.geomspace(1, 1e-18, 20)[:, None]
    spectra[rng.random(spectra.shape) < 0.01] = 0.0
    spectra[100] = 0.0
    return spectra


def raised(X: np.ndarray, mean: float) -> np.ndarray:
    return np.maximum(X, FLOOR * np.maximum(X.mean(axis=1, keepdims=True), mean))


@pytest.fixture(scope="module")
def model(X: np.ndarray) -> OnlineNMF:
    with pytest.warns(DomainWarning, match="zero or nearly zero, where 'is' is not defined"):
        return OnlineNMF(K, divergence="is", random_state=0, max_passes=2).fit(X)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_coefficients_converge_and_scipy_gains_nothing_from_there(
    X: np.ndarray, model: OnlineNMF, dtype: type
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        H = model.transform(X.astype(dtype)).astype(np.float64) / model.scale_
    divergence, W = get("is"), model.components_.astype(np.float64)
    V = raised(X, model.scale_) / model.scale_  # the scale is the mean of the first batch
    losses = divergence.value(V, H @ W)

    def in_logarithms(u: np.ndarray, x: np.ndarray) -> tuple[float, np.ndarray]:
        h = np.exp(u)
        fit = (h @ W)[None]
        return float(divergence.value(x[None], fit)[0]), h * (W @ divergence.grad(x[None], fit)[0])

    bounds = [(np.log(1e-8), np.log(1e8))] * K
    for x, h, loss in zip(V[::3], H[::3], losses[::3], strict=True):
        start = np.clip(np.log(h), *bounds[0])
        options = {"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-10}
        found = scipy.optimize.minimize(
            in_logarithms, start, (x,), jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        assert loss <= found.fun + 2e-4 * scales(divergence, Samples(x[None]))[0]


@pytest.mark.parametrize("name", ["is", "beta:-0.5", "beta:0", "alpha:0"])
def test_the_coefficients_converge_under_every_loss_that_excludes_zeros(X: np.ndarray, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        warnings.simplefilter("ignore", DomainWarning)
        assert np.isfinite(OnlineNMF(K, divergence=name, random_state=0).fit(X).transform(X)).all()


def test_loud_and_soft_recordings_have_the_same_dictionary_and_coefficients(X: np.ndarray, model: OnlineNMF) -> None:
    H = model.transform(X)
    for size in (2.0**-40, 2.0**30):
        with pytest.warns(DomainWarning):
            other = OnlineNMF(K, divergence="is", random_state=0, max_passes=2).fit(size * X)
        np.testing.assert_array_equal(other.components_, model.components_)
        np.testing.assert_array_equal(other.transform(size * X), size * H)


def test_a_frames_coefficients_do_not_depend_on_the_others(X: np.ndarray, model: OnlineNMF) -> None:
    together = model.transform(X)
    alone = np.vstack([model.transform(x[None]) for x in X[::5]])
    losses = [model.loss(x[None]) for x in X[::5]]
    V = raised(X, model.scale_)[::5]
    np.testing.assert_allclose(losses, get("is").value(V, together[::5] @ model.components_), rtol=1e-9)
    np.testing.assert_allclose(alone, together[::5], rtol=1e-6, atol=1e-9 * model.scale_)


def test_batch_updates_see_the_same_spectra(X: np.ndarray) -> None:
    settings = {"divergence": "is", "random_state": 0, "max_iter": 30, "tol": 0}
    with pytest.warns(DomainWarning):
        model = BatchNMF(K, **settings).fit(X)
    with pytest.warns(DomainWarning):  # raising has raised the means
        same = BatchNMF(K, **settings).fit(raised(X, X.mean()))
    np.testing.assert_allclose(model.components_, same.components_, rtol=1e-3, atol=1e-6)
