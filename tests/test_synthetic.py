from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from onmf.data.examples import NOISE_OF, NOISES, NoisySamples, Planted
from onmf.divergences import names

F, K = 200, 40  # the paper's shapes


def drawn(noise: str, rng: np.random.Generator, n: int = 300) -> NoisySamples:
    return Planted.draw(F, K, noise, rng).sample(n, rng)


@pytest.mark.parametrize("noise", ["gamma", "poisson", "gaussian"])
def test_the_ratio_of_signal_to_noise_is_30_decibels(noise: str, rng: np.random.Generator) -> None:
    batch = drawn(noise, rng)
    ratio = 20 * np.log10(np.linalg.norm(batch.clean) / np.linalg.norm(batch.V - batch.clean))
    assert ratio == pytest.approx(30, abs=1.5)


@pytest.mark.parametrize("noise", ["gamma", "poisson", "gaussian"])
def test_the_noise_has_no_bias_and_the_variance_of_its_kind(noise: str, rng: np.random.Generator) -> None:
    batch = drawn(noise, rng)
    deviation = batch.V - batch.clean
    variance = {"gamma": batch.clean**2 / 1000, "poisson": batch.clean, "gaussian": np.full_like(batch.clean, 900.0)}
    standardised = deviation / np.sqrt(variance[noise])
    assert standardised.mean() == pytest.approx(0, abs=0.02)
    assert standardised.var() == pytest.approx(1, rel=0.03)


def test_poisson_samples_are_counts(rng: np.random.Generator) -> None:
    V = drawn("poisson", rng, n=20).V
    assert V.dtype == np.float64
    np.testing.assert_array_equal(V, np.round(V))


@pytest.mark.parametrize("n_features", [10, 37, 200])
def test_three_tenths_of_every_sample_are_outliers_of_bounded_size(n_features: int, rng: np.random.Generator) -> None:
    batch = Planted.draw(n_features, K, "outliers", rng).sample(500, rng)
    hit = batch.clean != batch.V
    assert (hit.sum(axis=1) == round(0.3 * n_features)).all()
    np.testing.assert_allclose(hit.mean(axis=0), round(0.3 * n_features) / n_features, atol=0.12)
    size = np.abs(batch.V - batch.clean)
    assert 1900 < size.max() <= 2000


@pytest.mark.parametrize("noise", NOISES)
def test_samples_lie_in_the_papers_compact_set(noise: str, rng: np.random.Generator) -> None:
    batch = Planted.draw(50, 160, noise, rng).sample(200, rng)
    assert batch.clean.max() > 4000
    assert batch.V.min() >= 0
    assert batch.V.max() == 4000
    assert batch.V.shape == batch.clean.shape == (200, 50)


def test_the_mean_entry_is_that_of_the_papers_model(rng: np.random.Generator) -> None:
    expected = K * (1 + 5 * np.sqrt(2 / np.pi)) ** 2
    assert expected == pytest.approx(1000, rel=0.01)
    means = [drawn("gaussian", rng).clean.mean() for _ in range(5)]
    assert np.mean(means) == pytest.approx(expected, rel=0.02)


def test_the_dictionary_is_shifted_half_normal_and_lies_beneath_the_samples(rng: np.random.Generator) -> None:
    planted = Planted.draw(F, K, "gamma", rng)
    assert planted.W.shape == (K, F)
    assert planted.W.min() >= 1
    assert planted.W.mean() == pytest.approx(1 + 5 * np.sqrt(2 / np.pi), rel=0.03)
    clean = planted.sample(100, rng).clean
    assert np.linalg.matrix_rank(clean) == K
    H = np.linalg.lstsq(planted.W.T, clean.T, rcond=None)[0].T
    np.testing.assert_allclose(H @ planted.W, clean, rtol=1e-8)
    assert H.min() >= 1 - 1e-6


@pytest.mark.parametrize("noise", NOISES)
def test_a_stream_is_the_samples_in_batches(noise: str, rng: np.random.Generator) -> None:
    planted = Planted.draw(20, 5, noise, rng)
    batches = list(planted.stream(25, 10, np.random.default_rng(7)))
    again = np.random.default_rng(7)
    assert [len(batch) for batch in batches] == [10, 10, 5]
    for batch in batches:
        np.testing.assert_array_equal(batch, planted.sample(len(batch), again).V)


def test_a_stream_is_lazy(rng: np.random.Generator) -> None:
    stream = Planted.draw(20, 5, "gamma", rng).stream(10**15, 10, rng)
    assert next(stream).shape == (10, 20)


def test_the_same_seed_gives_the_same_data() -> None:
    one, other = (drawn("outliers", np.random.default_rng(3), n=5) for _ in range(2))
    np.testing.assert_array_equal(one.V, other.V)


def test_unknown_noise_is_refused_with_the_list(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="unknown noise 'pink'; choose one of gamma, poisson, gaussian, outliers"):
        Planted.draw(3, 2, "pink", rng)


def test_the_noises_of_the_divergences_exist() -> None:
    assert set(NOISE_OF) <= set(names())
    assert set(NOISE_OF.values()) == set(NOISES)


def test_a_planted_dictionary_cannot_be_changed(rng: np.random.Generator) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Planted.draw(3, 2, "gamma", rng).noise = "poisson"
