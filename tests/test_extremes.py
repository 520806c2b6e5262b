"""Numbers as large, small and unequal as floating point allows: a finite answer, or one sentence with the cure."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from onmf import BatchNMF, DataError, OnlineNMF, Sets, load, save
from onmf.divergences import Divergence, Huber
from tests.conftest import F, covering
from tests.learning import DIVERGENCES as SERVED
from tests.learning import METHODS, quick, usual

pytestmark = pytest.mark.filterwarnings("ignore")  # of overflow, and of coefficients that are not precise
BASE = np.random.default_rng(0).gamma(2.0, 1.0, (40, 3)) @ np.random.default_rng(1).gamma(1.0, 1.0, (3, F)) + 0.1
BASE /= BASE.max()
SCALES = {np.float64: (1e-300, 1e-150, 1.0, 1e150, 1e300), np.float32: (1e-44, 1.0, 3e38)}
DIVERGENCES = [*SERVED, ("huber", Huber())]
every_divergence = pytest.mark.parametrize("divergence", [pytest.param(each, id=name) for name, each in DIVERGENCES])
every_dtype = pytest.mark.parametrize("dtype", SCALES)
CURES = ("rescale", "clip", "begin with some that have positive entries")


@pytest.fixture(autouse=True)
def quietly() -> Iterator[None]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def scaled(scale: float, dtype: Any, n: int = 40) -> np.ndarray:
    return (BASE[:n] * scale).astype(dtype)


def answer(call: Callable[[], Any]) -> Any:
    """What a call gives, which has to be finite; None if it raises an error, in one sentence with a cure."""
    try:
        found = call()
    except DataError as error:
        assert "\n" not in str(error)  # noqa: PT017
        assert len(str(error)) < 500  # noqa: PT017
        assert any(cure in str(error) for cure in CURES), str(error)  # noqa: PT017
        return None
    numbers = found.values() if isinstance(found, dict) else [found]
    assert all(np.isfinite(np.asarray(each, dtype=float)).all() for each in numbers)
    return found


def require_finite_attributes(model: OnlineNMF | BatchNMF) -> None:
    for name in ("components_", "scale_", "history_", "reconstruction_err_", "delta_"):
        if hasattr(model, name):
            assert answer(lambda name=name: getattr(model, name)) is not None, name


def ask(model: OnlineNMF | BatchNMF, X: Any) -> None:
    """All that a model can be asked."""
    H = answer(lambda: model.transform(X))
    assert (answer(lambda: model.proportions(X)) is None) == (H is None)
    answer(lambda: model.score(X))  # minus the loss
    answer(lambda: model.stationarity(X))
    for coefficients in (H, np.full((2, 3), np.finfo(X.dtype).max, dtype=X.dtype)):
        if coefficients is not None:
            answer(lambda coefficients=coefficients: model.inverse_transform(coefficients))


@every_dtype
@every_divergence
def test_no_call_of_a_model_gives_anything_but_finite_numbers(divergence: Divergence, dtype: Any) -> None:
    told: list[float] = []
    settings = {"divergence": divergence, "random_state": 0, "transform_max_iter": 5}
    listen = {"callbacks": [lambda progress: told.append(progress.loss)]}
    for first in SCALES[dtype]:
        model = OnlineNMF(3, batch_size=20, **settings, **listen)
        batch = BatchNMF(3, max_iter=3, **settings, **listen)
        X = scaled(first, dtype)
        for each in (model, batch):
            if answer(lambda each=each, X=X: each.fit(X).components_) is None:
                assert not hasattr(each, "components_")
                continue
            require_finite_attributes(each)
            for scale in SCALES[dtype][::2]:
                ask(each, scaled(scale, dtype, 2))
        for scale in SCALES[dtype] if hasattr(model, "components_") else ():
            answer(lambda model=model, scale=scale: model.partial_fit(scaled(scale, dtype, 5)).components_)
            require_finite_attributes(model)
            ask(model, X[:3])
    assert np.isfinite(told).all()


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_learns_is_finite_and_can_be_read_again(name: str, tmp_path: Path) -> None:
    divergence = usual(name)
    for form, rescale, first in covering((np.asarray, scipy.sparse.csr_matrix), ("mean", "none"), (1e-300, 1.0, 1e300)):
        model = quick(name, divergence, scale=rescale, reservoir=5, transform_max_iter=5)
        for scale in (first, 1e-300, 1.0, 1e300):
            X = form(scaled(scale, float, 20))
            answer(lambda model=model, X=X: model.partial_fit(X).components_)
            if hasattr(model, "components_"):
                require_finite_attributes(model)
                save(model, tmp_path / "m")
                np.testing.assert_array_equal(load(tmp_path / "m").components_, model.components_)
        if hasattr(model, "components_"):
            ask(model, X)


def test_a_sample_that_is_out_of_range_raises_an_error_by_its_row() -> None:
    model = OnlineNMF(3, random_state=0).fit(BASE * 1e-100)
    X = np.tile(BASE * 1e-100, (40, 1))
    X[1300] = BASE[0] * 1e250
    for call in (model.transform, model.loss, model.proportions, model.score, model.stationarity):
        for form in (np.asarray, scipy.sparse.csr_matrix):
            with pytest.raises(DataError, match=r"row 1300 \(counted from 0\), .*e\+\d+, .*; rescale or clip them\."):
                call(form(X))
    with pytest.raises(DataError, match=r"rows 0 to 39, has a loss beyond the range of numbers"):
        OnlineNMF(3, divergence="squared_l2", random_state=0).fit(BASE * 1e200)


BAD_FIRST = {
    "all zeros": np.zeros((20, F)),
    "constant": np.full((20, F), 3.0),
    "a single row": BASE[:1],
    "one number": np.eye(20, F) * (np.arange(20) == 3)[:, None],
    "one tiny number": np.eye(20, F) * (np.arange(20) == 3)[:, None] * 1e-320,
    "tiny": BASE[:20] * 1e-318,
    "denormal": np.full((20, F), 5e-324),
    "huge": BASE[:20] * 1.7e308,
    "unequal": BASE[:20] * np.geomspace(1e-300, 1e300, 20)[:, None],
}


@every_divergence
def test_an_error_of_the_first_batch_is_one_of_the_data_whatever_the_divergence(divergence: Divergence) -> None:
    for name, bad in BAD_FIRST.items():
        strict = OnlineNMF(3, divergence=divergence, random_state=0)
        raised = answer(lambda strict=strict, bad=bad: strict.partial_fit(bad).components_) is None
        patient = OnlineNMF(3, divergence=divergence, random_state=0, on_error="skip", transform_max_iter=20)
        patient.partial_fit(bad).partial_fit(BASE)
        if name in ("all zeros", "tiny", "denormal", "one tiny number"):
            assert raised, name
        if raised:
            assert patient.n_skipped_ == 1, name
            assert answer(lambda strict=strict: strict.partial_fit(BASE).components_) is not None
            np.testing.assert_array_equal(patient.components_, strict.components_)
        require_finite_attributes(patient)


def test_a_later_batch_that_overflows_is_skipped_under_every_divergence() -> None:
    for name, divergence in DIVERGENCES:
        model = OnlineNMF(3, divergence=divergence, random_state=0, on_error="skip").partial_fit(BASE)
        for scale in (1e-300, 1e300):
            model.partial_fit(BASE * scale)
        require_finite_attributes(model)
        model.partial_fit(BASE)
        assert model.n_samples_seen_ + 40 * model.n_skipped_ == 160, name


@pytest.mark.parametrize("divergence", ["kl", "is", "squared_l2", "huber"])
def test_samples_beyond_the_bound_of_the_coefficients_raise_an_error_by_row_not_cut_off(divergence: str) -> None:
    X = np.random.default_rng(0).gamma(1.0, 1.0, (60, 6)) + 0.1
    model = OnlineNMF(2, divergence=divergence, random_state=0, batch_size=30).fit(X)
    large = np.vstack([X[:3], 1e12 * X[:1]])
    kept = model.components_.copy()
    for call in (model.transform, model.loss, model.partial_fit):
        with pytest.raises(DataError, match=r"Row 3 .* beyond their upper bound, 1e\+08 times .*Sets\(U="):
            call(large)
    np.testing.assert_array_equal(model.components_, kept)
    wide = model.set_params(sets=Sets(U=1e16)).transform(large)
    assert 0.5 < model.inverse_transform(wide)[3].sum() / large[3].sum() < 2
