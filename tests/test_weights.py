"""Weights of samples and of entries: a whole weight is a repetition, a weight of zero is an absence."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from onmf import BatchNMF, DataError, OnlineNMF, Sets
from onmf.coefficients.problem import losses, multiplicative_parts, quadratic_model, scales, slopes
from onmf.divergences import Divergence, get
from onmf.divergences.robust import weighted_median
from onmf.methods.batch import DenseUpdates, StoredUpdates
from onmf.samples import Samples, weighted
from tests.conftest import F, every_divergence, example_id, examples
from tests.learning import K, LogCosh, assert_same_bits, both_kinds, data, memory, quick, streamed

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
N = 60
WEIGHED = [divergence for divergence in (*examples(), LogCosh()) if divergence.weighs_entries]
every_weighed = pytest.mark.parametrize(
    "divergence",
    WEIGHED,
    ids=lambda each: example_id(each) or "logcosh",
)


def batch(divergence: Divergence | str, **settings: Any) -> BatchNMF:
    return BatchNMF(K, divergence=divergence, **({"random_state": 0, "tol": 0.0, "max_iter": 25} | settings))


def counts(rng: np.random.Generator, n: int = N) -> np.ndarray:
    """Whole weights, some of them zero."""
    return np.r_[0, 3, rng.integers(0, 4, n - 2)]


def sparse_data(rng: np.random.Generator) -> np.ndarray:
    return data(N, rng) * (rng.random((N, F)) < 0.4)


# The weighted divergence


def stored_where(present: np.ndarray, X: np.ndarray, weights: np.ndarray) -> Samples:
    """Sparse samples that have entries there; the others are missing."""
    places = np.nonzero(present)
    return Samples(scipy.sparse.csr_matrix((X[places], places), shape=X.shape), weights[places], absent="missing")


@every_weighed
def test_a_weighted_loss_is_the_sum_over_the_entries_that_are_there_and_its_slope_the_derivative_of_that(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    X, Y, weights = rng.uniform(0.3, 3, (3, 7, F))
    weights[rng.random(X.shape) < 0.4] = 0
    weights[2] = 0
    if divergence.separable:
        expected = (weights * divergence.d(np, X, Y)).sum(axis=1)
    else:
        expected = np.sqrt((weights * (X - Y) ** 2).sum(axis=1))
    masked = Samples(X, weights, absent="missing")
    np.testing.assert_allclose(losses(divergence, masked, Y), expected, rtol=1e-12)
    step = 1e-6 * Y
    derivatives = np.empty_like(Y)
    for f in range(F):
        e = step * (np.arange(F) == f)
        up, down = losses(divergence, masked, Y + e), losses(divergence, masked, Y - e)
        derivatives[:, f] = (up - down) / (2 * step[:, f])
    np.testing.assert_allclose(slopes(divergence, masked, Y), derivatives, rtol=1e-5, atol=1e-7)
    if divergence.separable:
        sparse, y = stored_where(weights > 0, X, weights), Y[weights > 0]
        np.testing.assert_allclose(losses(divergence, sparse, y), expected, rtol=1e-12)
        np.testing.assert_allclose(
            slopes(divergence, sparse, y), slopes(divergence, masked, Y)[weights > 0], rtol=1e-12
        )
        for parts in (multiplicative_parts, quadratic_model, partial(quadratic_model, newton=True)):
            for one, other in zip(parts(divergence, sparse, y), parts(divergence, masked, Y), strict=True):
                assert (one is None) == (other is None)
                if one is not None:
                    np.testing.assert_allclose(one, other[weights > 0], rtol=1e-9)


# A whole weight is a repetition


@both_kinds
@pytest.mark.parametrize("divergence", [*examples(), LogCosh()], ids=lambda each: example_id(each) or "logcosh")
def test_batch_a_sample_of_weight_w_counts_as_w_samples(
    divergence: Divergence, stored: Any, rng: np.random.Generator
) -> None:
    X, w = (data(N, rng) if not divergence.domain.x.includes_zero else sparse_data(rng)), counts(rng)
    start = quick("auto", divergence).fit(X)  # without a model, some solvers begin with an online pass
    # Ten iterations: where a fit has converged, rounding decides whether the next step is extrapolated.
    one = batch(divergence, init=start, max_iter=10).fit(stored(X), sample_weight=w)
    other = batch(divergence, init=start, max_iter=10).fit(stored(np.repeat(X, w, axis=0)))
    np.testing.assert_allclose(one.components_, other.components_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(one.history_["loss"], other.history_["loss"], rtol=1e-6)
    assert one.reconstruction_err_ == pytest.approx(other.reconstruction_err_, rel=1e-6)
    np.testing.assert_allclose(
        np.repeat(one.coefficients_, w[w > 0], axis=0), other.coefficients_, rtol=1e-5, atol=1e-9
    )


@pytest.mark.parametrize("init", ["kmeans++", "nndsvda", "uniform"])
def test_batch_starts_from_weighted_samples_as_from_repeated_ones(init: str, rng: np.random.Generator) -> None:
    X, w = data(N, rng), counts(rng)
    settings = {"init": init, "max_iter": 3, "solver": "multiplicative"}  # others begin with an online pass
    one = batch("kl", **settings).fit(X, sample_weight=w)
    other = batch("kl", **settings).fit(np.repeat(X, w, axis=0))
    np.testing.assert_allclose(one.components_, other.components_, rtol=1e-6)


@every_divergence
def test_loss_and_score_of_weighted_samples_are_those_of_repeated_ones(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    X, w = data(N, rng), counts(rng)
    for model in (batch(divergence, max_iter=5).fit(X), quick("auto", divergence).fit(X)):
        expected = model.loss(np.repeat(X, w, axis=0))
        assert model.loss(X, sample_weight=w) == pytest.approx(expected, rel=1e-9)
        assert model.score(X, sample_weight=w / 7) == pytest.approx(-expected, rel=1e-9)


ONLINE = [
    *(("auto", name) for name in ("kl", "is", "squared_l2", "huber:0.5", "l2", "mahalanobis")),
    *((name, "kl") for name in ("em", "sparse_surrogate", "paper")),
]


@pytest.mark.parametrize(("method", "name"), ONLINE)
def test_online_the_held_out_loss_after_weighted_samples_is_that_after_repeated_ones(
    method: str, name: str, rng: np.random.Generator
) -> None:
    divergence = next(each for each in examples() if each.name == name) if name == "mahalanobis" else get(name)
    often, seldom = (np.kron(np.roll(np.eye(3), shift, axis=1), np.ones(F // 3)) + 0.1 for shift in (0, 0))
    seldom = rng.permuted(seldom, axis=1)  # other components, which few samples have

    def drawn(components: np.ndarray, n: int) -> np.ndarray:
        fit = rng.gamma(1.0, 1.0, (n, 3)) @ components
        return fit * rng.gamma(5.0, 0.2, fit.shape) + 0.01

    X, w = np.concatenate([drawn(often, 700), drawn(seldom, 700)]), np.repeat([6, 1], 700)
    shuffled = rng.permutation(len(X))
    X, w, held_out = X[shuffled], w[shuffled], drawn(often, 500)
    start = often + 0.3 * rng.random(often.shape)
    settings = {"init": start, "max_passes": 2}
    one = quick(method, divergence, **settings).fit(X, sample_weight=w)
    repeated = quick(method, divergence, **settings).fit(np.repeat(X, w, axis=0))
    ignored = quick(method, divergence, **settings).fit(X)
    expected = repeated.loss(held_out)
    assert one.loss(held_out) == pytest.approx(expected, rel=0.01)
    assert ignored.loss(held_out) > 1.015 * expected  # the data can tell


# A weight of zero is an absence


@both_kinds
@pytest.mark.parametrize("method", ["auto", "em", "sparse_surrogate", "paper"])
def test_a_sample_of_weight_zero_is_not_there_bit_for_bit(method: str, stored: Any, rng: np.random.Generator) -> None:
    X, w = sparse_data(rng), rng.uniform(0.5, 2.0, N) * (rng.random(N) < 0.7)
    kept, spoilt = w > 0, X.copy()
    spoilt[~kept] = np.nan
    one = quick(method, batch_size=20).fit(stored(spoilt), sample_weight=w)
    assert_same_bits(one, quick(method, batch_size=20).fit(stored(X[kept]), sample_weight=w[kept]))
    one, other = quick(method), quick(method)
    for rows in np.array_split(np.arange(N), 3):
        one.partial_fit(stored(spoilt[rows]), sample_weight=w[rows])
        other.partial_fit(stored(X[rows][kept[rows]]), sample_weight=w[rows][kept[rows]])
    assert_same_bits(one, other)
    assert one.loss(stored(spoilt), sample_weight=w) == one.loss(stored(X[kept]), sample_weight=w[kept])


@both_kinds
@every_divergence
def test_batch_a_sample_of_weight_zero_is_not_there_bit_for_bit(
    divergence: Divergence, stored: Any, rng: np.random.Generator
) -> None:
    X, w = data(N, rng), counts(rng)
    one = batch(divergence, max_iter=5).fit(stored(X), sample_weight=w)
    other = batch(divergence, max_iter=5).fit(stored(X[w > 0]), sample_weight=w[w > 0])
    np.testing.assert_array_equal(one.components_, other.components_)
    np.testing.assert_array_equal(one.coefficients_, other.coefficients_)
    np.testing.assert_array_equal(one.history_["loss"], other.history_["loss"])


def test_bad_entries_are_named_by_the_rows_that_were_given(rng: np.random.Generator) -> None:
    X, w = data(10, rng), np.r_[0, 0, np.ones(8)]
    X[5, 1] = -1
    for fit in (batch("kl").fit, quick().fit, quick().partial_fit):
        with pytest.raises(DataError, match="at row 5, column 1"):
            fit(X, sample_weight=w)


# Weights of entries


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@every_weighed
def test_batch_updates_never_raise_the_weighted_loss(
    divergence: Divergence, sparse: bool, rng: np.random.Generator
) -> None:
    X = data(N, rng)
    X /= X.mean()
    weights = rng.integers(0, 3, X.shape) * rng.uniform(0.5, 1.5, X.shape)
    samples = rng.uniform(0.1, 3, N)
    if sparse and not divergence.separable:
        pytest.skip("is densified")
    masked = stored_where(weights > 0, X, weights) if sparse else Samples(X, weights, absent="missing")
    masked = Samples(masked.matrix, masked.entry_weight, samples, "missing")
    updates = (
        StoredUpdates(divergence, masked)
        if sparse
        else DenseUpdates(divergence, lambda rows: masked[rows], X.shape, samples, masked=True)
    )
    W = rng.random((K, F)) + 1e-3
    H, course = updates.start(W), []
    for _ in range(30):
        loss, H, W = updates.iterate(H, W, True)
        course.append(loss)
    if divergence.absolute_deviations:
        return  # which is rounded off at its kink, and so is what cannot rise
    assert (np.diff(course) <= 1e-9 * course[0]).all()
    assert course[-1] < 0.9 * course[0]


@pytest.mark.parametrize(
    "model", [quick(), quick("paper"), batch("kl", solver="multiplicative")], ids=["auto", "paper", "batch"]
)
def test_entries_that_all_weigh_the_same_learn_what_they_learn_without_weights(
    model: Any, rng: np.random.Generator
) -> None:
    X = data(N, rng)
    loss, plain = model.fit(X).loss(X), model.components_.copy()
    model.fit(X, weights=np.ones(X.shape))
    if isinstance(model, BatchNMF):
        np.testing.assert_allclose(model.components_, plain, rtol=1e-9)
    assert model.loss(X) == pytest.approx(loss, rel=0.03)  # online, one Newton step has Hessians of its own
    loss = model.loss(X)
    assert model.loss(X, weights=np.full(X.shape, 2.0)) == pytest.approx(2 * loss, rel=1e-3)
    assert model.loss(X, weights=np.ones(X.shape)) == pytest.approx(loss, rel=1e-3)


def test_an_entry_of_great_weight_is_fitted_at_the_cost_of_the_others(rng: np.random.Generator) -> None:
    X = data(N, rng)
    X[:, 3] = rng.uniform(0, 5, N)  # which no component explains along with the rest
    weights = np.ones(X.shape)
    weights[:, 3] = 1000
    for model in (quick("auto", "squared_l2", max_passes=5), batch("squared_l2", max_iter=200)):
        plain = model.fit(X).inverse_transform(model.transform(X))
        heavy = model.fit(X, weights=weights).inverse_transform(model.transform(X, weights=weights))
        assert np.square(heavy - X)[:, 3].mean() < 0.1 * np.square(plain - X)[:, 3].mean()
        np.testing.assert_array_equal(model.fit_transform(X, weights=weights), model.transform(X, weights=weights))


def test_sample_weights_and_weights_of_entries_go_together(rng: np.random.Generator) -> None:
    X, w, weights = data(N, rng), 1 + counts(rng), rng.uniform(0, 2, (N, F))
    one = batch("kl").fit(X, sample_weight=w, weights=weights)
    other = batch("kl").fit(np.repeat(X, w, axis=0), weights=np.repeat(weights, w, axis=0))
    np.testing.assert_allclose(one.components_, other.components_, rtol=1e-6)
    spread = batch("kl", init=one.components_).fit(X, weights=weights * w[:, None])
    again = batch("kl", init=one.components_).fit(X, sample_weight=w, weights=weights)
    np.testing.assert_allclose(spread.components_, again.components_, rtol=1e-6)  # the loss is a sum of both


# What raises an error


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({"sample_weight": np.ones(N + 1)}, f"one number per sample, {N} in all"),
        ({"sample_weight": np.ones((N, 1))}, "one number per sample"),
        ({"sample_weight": ["a"] * N}, "one number per sample.*got type <U1"),
        ({"sample_weight": np.full(N, -1.0)}, "not negative"),
        ({"sample_weight": np.full(N, np.nan)}, "finite"),
        ({"sample_weight": np.zeros(N)}, "every sample_weight is zero"),
        ({"weights": np.ones((N, F + 1))}, "the shape of X"),
        ({"weights": np.full((N, F), -1.0)}, "not negative"),
        ({"weights": np.full((N, F), np.inf)}, "finite"),
    ],
)
def test_bad_weights_raise_an_error_with_a_reason(
    weights: dict[str, Any], words: str, rng: np.random.Generator
) -> None:
    X = data(N, rng)
    fitted = quick().fit(X)
    for use in (batch("kl").fit, quick().fit, quick().partial_fit, fitted.loss, fitted.score):
        with pytest.raises(ValueError, match=words):
            use(X, **weights)
    np.testing.assert_array_equal(fitted.components_, quick().fit(X).components_)


@pytest.mark.parametrize(("method", "divergence"), [("lefevre", "is"), ("guan", "squared_l2"), ("wang", "huber:0.5")])
def test_methods_that_cannot_count_weights_say_so(method: str, divergence: str, rng: np.random.Generator) -> None:
    X, w = data(N, rng), counts(rng)
    for given in ({"sample_weight": w}, {"weights": np.ones(X.shape)}):
        for fit in (quick(method, divergence).fit, quick(method, divergence).partial_fit):
            with pytest.raises(ValueError, match=f"'{method}' needs complete samples of equal weight; use 'auto'"):
                fit(X, **given)
    begun = quick(method, divergence).partial_fit(X)
    with pytest.raises(ValueError, match="use 'auto'"):
        begun.partial_fit(X, sample_weight=w)


def test_a_reservoir_and_mahalanobis_raise_an_error_for_what_they_cannot_weigh(rng: np.random.Generator) -> None:
    X, w = data(N, rng), counts(rng)
    mahalanobis = next(each for each in examples() if each.name == "mahalanobis")
    with pytest.raises(ValueError, match="use reservoir=0"):
        quick(reservoir=20).fit(X, sample_weight=w)
    for fit in (quick("auto", mahalanobis).fit, batch(mahalanobis).fit):
        with pytest.raises(ValueError, match="all features of a sample together"):
            fit(X, weights=np.ones(X.shape))


def test_weights_of_a_stream_come_with_the_stream(rng: np.random.Generator) -> None:
    X, w = data(N, rng), counts(rng)
    with pytest.raises(ValueError, match=r"\?weight=COLUMN"):
        quick().fit(iter([X]), sample_weight=w)
    one = streamed(quick(), X, 20)
    assert one.n_samples_seen_ == N


# Scale and precision


def test_weights_have_no_unit_in_batch_and_single_precision_stays_single(rng: np.random.Generator) -> None:
    X, w = data(N, rng), counts(rng)
    one = batch("is").fit(X, sample_weight=w)
    other = batch("is").fit(X, sample_weight=8 * w)  # rounding must not decide where the start is drawn
    np.testing.assert_allclose(one.history_["loss"][-1], other.history_["loss"][-1], rtol=0.2)
    for model in (batch("kl"), quick()):
        model.fit(X.astype(np.float32), sample_weight=w)
        assert model.components_.dtype == model.transform(X.astype(np.float32)).dtype == np.float32


def test_weighted_gives_samples_that_count_alone(rng: np.random.Generator) -> None:
    X, w = data(N, rng), counts(rng)
    found = weighted(X, w, None, "zero")
    np.testing.assert_array_equal(found.matrix, X[w > 0])
    np.testing.assert_array_equal(found.sample_weight, w[w > 0])
    assert found.weight == w.sum()
    assert weighted(X, None, None, "zero").matrix is X
    assert OnlineNMF(sets=Sets()).get_params()["missing"] is None


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "with missing entries"])
@pytest.mark.parametrize(("method", "name"), [*ONLINE, ("auto", "huber")])
def test_a_chunk_of_weighted_samples_leaves_the_statistics_of_repeated_ones(
    method: str, name: str, masked: bool, rng: np.random.Generator
) -> None:
    divergence = next(each for each in examples() if each.name == name) if name == "mahalanobis" else get(name)
    if masked and not divergence.weighs_entries:
        pytest.skip("no entry can be missing")
    X, w = data(N, rng), counts(rng)
    X[rng.random(X.shape) < 0.2] = 0.0 if divergence.domain.x.includes_zero else 1.0
    if masked:
        X[rng.random(X.shape) < 0.3] = np.nan
    settings = {"missing": "nan" if masked else None, "init": 1 - rng.random((K, F))}
    method = f"{'surrogate' if method == 'auto' else method}:tau=10000"
    one = quick(method, divergence, **settings).partial_fit(X, sample_weight=w)
    other = quick(method, divergence, **settings).partial_fit(np.repeat(X, w, axis=0))
    assert one.n_steps_ == other.n_steps_
    assert memory(one).keys() == memory(other).keys()
    for key, array in memory(one).items():
        np.testing.assert_allclose(array, memory(other)[key], rtol=1e-6, atol=1e-9, err_msg=key)
    np.testing.assert_allclose(one.components_, other.components_, rtol=1e-6, atol=1e-9)
    assert one.history_["loss"][0] == pytest.approx(other.history_["loss"][0], rel=1e-6)
    assert divergence.name != "huber" or one.delta_ == pytest.approx(other.delta_)


def test_sparse_weights_that_store_an_entry_twice_are_summed(rng: np.random.Generator) -> None:
    X = data(N, rng)
    twice = scipy.sparse.coo_matrix(
        (np.full(2 * N, 0.5), (np.tile(np.arange(N), 2), np.tile(np.arange(N) % F, 2))), X.shape
    )
    found = weighted(X, None, twice, "zero")
    assert found.matrix.nnz == N
    np.testing.assert_array_equal(found.entry_weight, 1.0)


@pytest.mark.parametrize("kind", ["whole", "ties", "shares", "heavy", "few"])
def test_a_weighted_median_is_that_of_copies_however_many_values_there_are(kind: str, rng: np.random.Generator) -> None:
    n = 40 if kind == "few" else 20_000
    values, weights = rng.gamma(0.3, 1.0, n), rng.integers(0, 4, n).astype(float)
    if kind == "ties":
        values = np.round(2 * values)
    if kind == "heavy":  # where a sample of the values does not see it
        weights[np.argmax(values)] = 2 * weights.sum()
    whole = weights
    if kind == "shares":
        weights = weights / 7
    expected = float(np.median(np.repeat(values, whole.astype(int))))
    assert weighted_median(values.reshape(-1, 20), weights.reshape(-1, 20)) == pytest.approx(expected, rel=1e-3)
    if kind != "shares":  # whose sums are rounded: the two values in the middle may be one
        assert weighted_median(values, weights) == expected


@every_weighed
def test_a_weighted_scale_is_the_loss_of_twice_the_sample(divergence: Divergence, rng: np.random.Generator) -> None:
    X, weights = rng.uniform(0.3, 3, (2, 7, F))
    weights[rng.random(X.shape) < 0.4] = 0
    masked = Samples(X, weights, absent="missing")
    expected = losses(divergence, masked, 2 * X)
    np.testing.assert_allclose(scales(divergence, masked), expected, rtol=1e-12)
    if divergence.separable:
        np.testing.assert_allclose(scales(divergence, stored_where(weights > 0, X, weights)), expected, rtol=1e-12)
