"""Missing values: everything sees only what is there, whatever stands in their places and however X is stored."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from onmf import BatchNMF, DataError, OnlineNMF, load, save
from onmf.data import Batches
from onmf.divergences import Divergence
from onmf.persistence import file
from onmf.persistence.file import ModelFileError
from tests.conftest import DISTINCT, F, LogCosh, example_id, require_same_learning, spread
from tests.learning import METHODS, PAIRS, K, assert_same_bits, data, mixed, quick

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
N = 60
WEIGHING = [name for name in METHODS if name not in ("lefevre", "guan", "wang", "canonical")]
ONLINE = [(name, label, d) for name, label, d in PAIRS if name in WEIGHING and d.weighs_entries]
every_pair = pytest.mark.parametrize(
    ("method", "divergence"), [pytest.param(name, d, id=f"{name}-{label}") for name, label, d in ONLINE]
)
every_weighed = pytest.mark.parametrize(
    "divergence",
    [divergence for divergence in (*DISTINCT, LogCosh()) if divergence.weighs_entries],
    ids=lambda divergence: example_id(divergence) or "logcosh",
)
USUAL = [
    ("auto", "kl"),
    ("auto", "squared_l2"),
    ("auto", "is"),
    ("em", "kl"),
    ("sparse_surrogate", "kl"),
    ("paper", "kl"),
]
usual = pytest.mark.parametrize(("method", "divergence"), USUAL)


def batch(divergence: Divergence | str = "kl", **settings: Any) -> BatchNMF:
    return BatchNMF(K, divergence=divergence, **({"random_state": 0, "tol": 0.0, "max_iter": 25} | settings))


def missing_at(rng: np.random.Generator, shape: tuple[int, int] = (N, F), share: float = 0.35) -> np.ndarray:
    """Where entries are missing; of every sample and of every feature there is one."""
    gone = rng.random(shape) < share
    gone[np.arange(shape[0]), np.arange(shape[0]) % shape[1]] = False
    return gone


def with_nan(X: np.ndarray, gone: np.ndarray) -> np.ndarray:
    return np.where(gone, np.nan, X).astype(X.dtype)


def stored(X: np.ndarray, gone: np.ndarray) -> Any:
    """The entries that are there, be they zero, as a sparse matrix."""
    places = np.nonzero(~gone)
    return scipy.sparse.csr_matrix((X[places], places), shape=X.shape)


# One meaning in three ways of writing it


def assert_alike(make: Any, X: np.ndarray, gone: np.ndarray, rng: np.random.Generator) -> None:
    one = make(missing="nan").fit(with_nan(X, gone))
    garbage = np.where(gone, rng.choice([-7.0, 0.0, np.nan, np.inf, 1e200], X.shape), X)
    other = make().fit(garbage, weights=~gone)
    np.testing.assert_array_equal(one.components_, other.components_)
    np.testing.assert_array_equal(one.history_["loss"], other.history_["loss"])
    sparse = make(implicit="missing").fit(stored(X, gone))
    np.testing.assert_allclose(sparse.components_, one.components_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(sparse.history_["loss"], one.history_["loss"], rtol=1e-6)
    assert one.scale_ == pytest.approx(1.0 if one.divergence_.degree is None else X[~gone].mean())
    H = one.transform(with_nan(X, gone))
    np.testing.assert_array_equal(H, other.transform(garbage, weights=~gone))
    loss = one.loss(with_nan(X, gone))
    assert loss == other.loss(garbage, weights=~gone)
    assert sparse.loss(stored(X, gone)) == pytest.approx(loss, rel=1e-3)
    Y = one.inverse_transform(H)
    divergence = one.divergence_
    if divergence.separable:
        fitted = np.where(gone, 0, divergence.d(np, X, np.maximum(Y, 1e-30))).sum(axis=1).mean()
        assert loss == pytest.approx(fitted, rel=1e-5)


@every_pair
def test_nan_a_weight_of_zero_and_what_a_sparse_matrix_does_not_store_are_the_same(
    method: str, divergence: Divergence, rng: np.random.Generator
) -> None:
    assert_alike(lambda **settings: quick(method, divergence, **settings), data(N, rng), missing_at(rng), rng)


@pytest.mark.parametrize("divergence", ["kl", "squared_l2"])
def test_where_nearly_all_is_missing_the_layout_of_x_decides_nothing(divergence: str, rng: np.random.Generator) -> None:
    """Chunks are larger for few entries: 5 % are few in a dense X with NaN, too."""
    X, gone = data(600, rng), missing_at(rng, (600, F), 0.97)
    dense = quick("auto", divergence, missing="nan").fit(with_nan(X, gone))
    sparse = quick("auto", divergence, implicit="missing").fit(stored(X, gone))
    assert dense.method_ == sparse.method_
    np.testing.assert_array_equal(dense.history_["samples"], sparse.history_["samples"])
    np.testing.assert_allclose(dense.components_, sparse.components_, rtol=1e-6, atol=1e-8)


@every_weighed
def test_batch_nan_a_weight_of_zero_and_what_a_sparse_matrix_does_not_store_are_the_same(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    assert_alike(lambda **settings: batch(divergence, **settings), data(N, rng), missing_at(rng), rng)


def test_zeros_that_are_known_are_not_missing_at(rng: np.random.Generator) -> None:
    X, gone = data(N, rng), missing_at(rng)
    X[rng.random(X.shape) < 0.2] = 0
    for make in (quick, batch):
        assert_alike(lambda make=make, **settings: make(divergence="kl", **settings), X, gone, rng)


def test_nan_in_a_sparse_matrix_is_missing_too_whatever_is_not_stored(rng: np.random.Generator) -> None:
    X, gone = data(N, rng), missing_at(rng)
    X[rng.random(X.shape) < 0.5] = 0
    nan = with_nan(X, gone)
    for make in (quick, batch):
        dense = make(divergence="kl", missing="nan").fit(nan)
        sparse = make(divergence="kl", missing="nan").fit(scipy.sparse.csr_matrix(nan))
        np.testing.assert_array_equal(dense.components_, sparse.components_)
        both = scipy.sparse.csr_matrix(nan)
        known = make(divergence="kl", missing="nan", implicit="missing").fit(both)
        only = make(divergence="kl", implicit="missing").fit(stored(X, gone | (X == 0)))
        np.testing.assert_array_equal(known.components_, only.components_)


# What is learnt


@pytest.mark.parametrize(
    "model",
    [*(quick(method, divergence, max_passes=20) for method, divergence in USUAL[:3]), batch("kl", max_iter=300)],
    ids=["auto-kl", "auto-squared_l2", "auto-is", "batch"],
)
def test_missing_entries_are_filled_nearly_as_well_as_the_true_dictionary_fills_them(
    model: Any, rng: np.random.Generator
) -> None:
    components = np.kron(np.eye(K), np.ones(F // K)) + 0.2 + rng.random((K, F))
    X = mixed(400, components, rng, noise=100.0)
    gone = missing_at(rng, X.shape, 0.4)
    model = model.set_params(missing="nan").fit(with_nan(X, gone))
    filled = model.complete(with_nan(X, gone))
    np.testing.assert_array_equal(filled[~gone], X[~gone])
    error = np.abs(filled - X)[gone].mean()
    true = type(model)(**model.get_params(deep=False) | {"init": components / components.max(axis=1, keepdims=True)})
    true.set_params(**({"max_iter": 1} if isinstance(model, BatchNMF) else {"max_passes": 1}))
    best = np.abs(true.fit(with_nan(X, gone)).complete(with_nan(X, gone)) - X)[gone].mean()
    mean = np.nanmean(with_nan(X, gone), axis=0)
    assert error < 1.2 * best
    assert error < 0.5 * np.abs(mean - X)[gone].mean()


def test_complete_fills_what_a_sparse_matrix_does_not_store_and_needs_to_know_what_is_missing(
    rng: np.random.Generator,
) -> None:
    X, gone = data(N, rng), missing_at(rng)
    model = quick(implicit="missing").fit(stored(X, gone))
    filled = model.complete(stored(X, gone))
    np.testing.assert_array_equal(filled[~gone], X[~gone])
    np.testing.assert_allclose(filled[gone], model.inverse_transform(model.transform(stored(X, gone)))[gone])
    np.testing.assert_allclose(model.complete(np.zeros(X.shape), weights=np.zeros(X.shape)), 0, atol=1e-6)
    plain = quick().fit(X)
    np.testing.assert_allclose(plain.complete(X, weights=~gone)[~gone], X[~gone])
    with pytest.raises(ValueError, match="missing='nan'"):
        plain.complete(X)
    with pytest.raises(ValueError, match=r'X is dense, .*; set missing="nan" and write NaN where a value is missing'):
        model.complete(X)


@pytest.mark.parametrize("make", [quick, lambda **settings: BatchNMF(K, max_iter=3, tol=0, **settings)])
def test_a_dense_x_of_which_nothing_can_be_implicit_is_warned_of_with_the_cure(
    make: Any, rng: np.random.Generator
) -> None:
    X, gone = data(N, rng), missing_at(rng)
    with pytest.warns(UserWarning, match=r'X is dense, .*; set missing="nan" and write NaN') as told:
        make(implicit="missing").fit(X)
    assert told[0].filename == __file__  # where the call is
    make(implicit="missing", missing="nan").fit(with_nan(X, gone))
    make(implicit="missing").fit(X, weights=~gone)
    make(implicit="missing").fit(stored(X, gone))  # all without a warning, which here would be an error


@usual
def test_x_times_a_constant_learns_the_same_dictionary(method: str, divergence: str, rng: np.random.Generator) -> None:
    X = with_nan(data(N, rng), missing_at(rng))
    one, other = (quick(method, divergence, missing="nan").fit(c * X) for c in (1.0, 1024.0))
    np.testing.assert_allclose(one.components_, other.components_, rtol=1e-9)
    one, other = (batch(divergence, missing="nan").fit(c * X) for c in (1.0, 1024.0))
    np.testing.assert_allclose(one.components_, other.components_, rtol=1e-9)
    np.testing.assert_allclose(1024 * one.coefficients_, other.coefficients_, rtol=1e-9)


@usual
def test_single_precision_stays_single_and_the_same_seed_gives_the_same_bits(
    method: str, divergence: str, rng: np.random.Generator
) -> None:
    X = with_nan(data(N, rng), missing_at(rng))
    assert_same_bits(*(quick(method, divergence, missing="nan").fit(X) for _ in range(2)))
    single = X.astype(np.float32)
    for model in (quick(method, divergence, missing="nan"), batch(divergence, missing="nan")):
        loss = model.fit(X).loss(X)
        model.fit(single)
        assert model.components_.dtype == model.transform(single).dtype == model.complete(single).dtype == np.float32
        assert model.loss(single) == pytest.approx(loss, rel=0.1)


@usual
def test_fixed_components_stay_beside_those_that_are_learnt_from_samples_with_missing_entries(
    method: str, divergence: str, rng: np.random.Generator
) -> None:
    components = rng.uniform(0.1, 1.0, (2, F))
    X, gone = data(N, rng), missing_at(rng)
    for model in (
        quick(method, divergence, missing="nan", fixed=components),
        batch(divergence, missing="nan", fixed=components),
    ):
        W = model.fit(with_nan(X, gone)).components_
        np.testing.assert_array_equal(W[:2], components)
        sparse = model.set_params(missing=None, implicit="missing").fit(stored(X, gone))
        np.testing.assert_allclose(sparse.components_, W, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("method", "divergence"),
    spread(["auto", "paper"], ["squared_l2", "kl", "huber:0.1", "is", "l1", "l2"], 2),
)
def test_coefficients_on_the_simplex_are_found_from_what_is_there(
    method: str, divergence: str, rng: np.random.Generator
) -> None:
    X = rng.dirichlet(np.ones(K), N) @ rng.gamma(1.0, 1.0, (K, F)) + 0.05
    gone = missing_at(rng)
    model = quick(method, divergence, missing="nan", coefficients="simplex").fit(with_nan(X, gone))
    H = model.transform(with_nan(X, gone))
    np.testing.assert_allclose(H.sum(axis=1), 1, rtol=1e-9)
    sparse = quick(method, divergence, implicit="missing", coefficients="simplex").fit(stored(X, gone))
    np.testing.assert_allclose(sparse.components_, model.components_, rtol=1e-6, atol=1e-8)
    weighted = quick(method, divergence, coefficients="simplex").fit(X, sample_weight=rng.integers(0, 3, N))
    np.testing.assert_allclose(weighted.transform(X).sum(axis=1), 1, rtol=1e-9)


# Streams and files


@usual
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_batch_by_batch_is_as_a_whole(method: str, divergence: str, sparse: bool, rng: np.random.Generator) -> None:
    X, gone = data(N, rng), missing_at(rng)
    settings = {"implicit": "missing"} if sparse else {"missing": "nan"}
    given = stored(X, gone) if sparse else with_nan(X, gone)
    whole = quick(method, divergence, batch_size=20, shuffle=False, **settings).fit(given)
    parts, streamed = quick(method, divergence, **settings), quick(method, divergence, batch_size=20, **settings)
    for first in range(0, N, 20):
        parts.partial_fit(given[first : first + 20])
    streamed.fit(Batches([given[first : first + 7] for first in range(0, N, 7)]))
    assert_same_bits(parts, whole)
    assert_same_bits(streamed, whole)


@usual
def test_files_and_checkpoints_resume_bit_for_bit(
    method: str, divergence: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    X = with_nan(data(N, rng), missing_at(rng))
    settings = {"batch_size": 20, "max_passes": 2, "missing": "nan"}
    whole = quick(method, divergence, **settings).fit(X)
    stopped = quick(method, divergence, **settings, callbacks=[lambda progress: progress.samples >= 80])
    stopped.fit(X, checkpoint=tmp_path / "run")
    resumed = quick(method, divergence, **settings).fit(X, checkpoint=tmp_path / "run", resume=True)
    require_same_learning(resumed, whole)
    save(whole, tmp_path / "model")
    again = load(tmp_path / "model")
    assert (again.missing, again.implicit) == ("nan", "zero")
    require_same_learning(again.partial_fit(X), whole.partial_fit(X))
    np.testing.assert_array_equal(again.transform(X), whole.transform(X))
    np.testing.assert_array_equal(again._learned.coverage.features, whole._learned.coverage.features)


def test_a_file_that_does_not_say_which_features_have_had_entries_raises_an_error(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    save(quick(missing="nan").fit(with_nan(data(N, rng), missing_at(rng))), tmp_path / "model")
    arrays, facts = file.read(tmp_path / "model")
    covered = arrays["covered_features"]
    for wrong in ({"covered_features": covered[1:]}, {"covered_features": covered.astype(np.float64)}):
        file.write(tmp_path / "wrong", arrays | wrong, facts)
        with pytest.raises(ModelFileError, match="which features have had entries"):
            load(tmp_path / "wrong")
    for blank in (-1, "many", None):
        file.write(tmp_path / "wrong", arrays, facts | {"blank": blank})
        with pytest.raises(ModelFileError):
            load(tmp_path / "wrong")


def test_a_model_begun_on_whole_samples_raises_an_error_for_samples_with_missing_entries(
    rng: np.random.Generator,
) -> None:
    X, gone = data(N, rng), missing_at(rng)
    model = quick().partial_fit(X)
    before = model.components_.copy()
    with pytest.raises(ValueError, match="begin a new model"):
        model.set_params(missing="nan").partial_fit(with_nan(X, gone))
    np.testing.assert_array_equal(model.components_, before)


# Samples and features without any entry


@pytest.mark.parametrize("make", [quick, batch], ids=["online", "batch"])
@pytest.mark.parametrize("divergence", ["kl", "is", "squared_l2", "huber:0.5", "l1", "l2", "beta:0.5"])
def test_samples_and_features_without_any_entry_are_handled_and_said(
    make: Any, divergence: str, rng: np.random.Generator
) -> None:
    X, gone = data(N, rng), missing_at(rng)
    gone[[4, 17]] = True
    gone[:, 2] = True
    with pytest.warns(
        UserWarning,
        match=r"Feature \d+ was missing .* learnt of it\. Every entry of 2 samples was missing",
    ):
        model = make(divergence=divergence, missing="nan").fit(with_nan(X, gone))
    assert np.isfinite(model.components_).all()
    filled = model.complete(with_nan(X, gone))
    assert np.isfinite(filled).all()
    np.testing.assert_allclose(filled[[4, 17]], 0, atol=1e-5)
    assert np.isfinite(model.loss(with_nan(X, gone)))
    sparse = make(divergence=divergence, implicit="missing")
    with pytest.warns(UserWarning, match="Every entry of 2 samples was missing"):
        sparse.fit(stored(X, gone))
    np.testing.assert_allclose(sparse.components_, model.components_, rtol=1e-6, atol=1e-8)


def test_no_warning_where_every_sample_and_feature_has_entries(rng: np.random.Generator) -> None:
    X = with_nan(data(N, rng), missing_at(rng))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch(missing="nan", max_iter=1, tol=0.0).fit(X)


def test_data_without_any_entry_raise_an_error(rng: np.random.Generator) -> None:
    X = np.full((N, F), np.nan)
    for fit in (quick(missing="nan").fit, batch(missing="nan").fit):
        with pytest.raises(DataError, match="first batch"):
            fit(X)


# What raises an error


def test_nan_is_an_error_that_names_the_cure(rng: np.random.Generator) -> None:
    X = with_nan(data(N, rng), missing_at(rng))
    fitted = quick().fit(data(N, rng))
    for use in (quick().fit, quick().partial_fit, batch().fit, fitted.transform, fitted.loss):
        with pytest.raises(DataError, match="missing='nan'"):
            use(X)


@pytest.mark.parametrize(("method", "divergence"), [("lefevre", "is"), ("guan", "squared_l2"), ("wang", "huber:0.5")])
def test_methods_that_need_whole_samples_say_so(method: str, divergence: str, rng: np.random.Generator) -> None:
    X = with_nan(data(N, rng), missing_at(rng))
    with pytest.raises(ValueError, match=f"'{method}' needs complete samples of equal weight; use 'auto'"):
        quick(method, divergence, missing="nan").fit(X)


def test_mahalanobis_and_a_reservoir_need_whole_samples(rng: np.random.Generator) -> None:
    X = with_nan(data(N, rng), missing_at(rng))
    mahalanobis = next(each for each in DISTINCT if each.name == "mahalanobis")
    for fit in (quick("auto", mahalanobis, missing="nan").fit, batch(mahalanobis, missing="nan").fit):
        with pytest.raises(ValueError, match="all features of a sample together"):
            fit(X)
    with pytest.raises(ValueError, match="use reservoir=0"):
        quick(reservoir=20, missing="nan").fit(X)


@pytest.mark.parametrize("settings", [{"missing": "NaN"}, {"missing": True}, {"implicit": None}, {"implicit": "nan"}])
def test_other_values_of_the_settings_raise_an_error(settings: dict[str, Any], rng: np.random.Generator) -> None:
    for model in (OnlineNMF(K, **settings), batch(**settings)):
        with pytest.raises(ValueError, match=next(iter(settings))):
            model.fit(data(N, rng))


def test_infinite_and_negative_entries_raise_an_error_where_they_are_not_missing(rng: np.random.Generator) -> None:
    X, gone = data(N, rng), missing_at(rng)
    gone[7, 3] = False
    for bad, word in ((-1.0, "Negative"), (np.inf, "Infinity")):
        X[7, 3] = bad
        for model in (quick(missing="nan"), batch(missing="nan")):
            with pytest.raises(DataError, match=f"{word}.* row 7, column 3"):
                model.fit(with_nan(X, gone))
    skipping = quick(missing="nan", on_error="skip").fit(with_nan(X, gone))
    assert (skipping.n_skipped_, skipping.n_samples_seen_) == (1, N - 1)


def test_a_first_batch_without_any_entry_is_not_called_zero() -> None:
    with pytest.raises(DataError, match="All of the first batch is missing"):
        OnlineNMF(2, missing="nan").fit(np.full((20, 5), np.nan))
