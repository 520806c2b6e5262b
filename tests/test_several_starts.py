"""Several starts and the lowest loss are one argument."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onmf
from onmf import BatchNMF, OnlineNMF
from onmf.data import Batches, Rows
from tests.conftest import Run

rng = np.random.default_rng(0)
X = rng.gamma(0.3, 1.0, (120, 4)) @ rng.gamma(0.3, 1.0, (4, 9)) + 0.01
STARTS = 4
BATCH = partial(BatchNMF, tol=1e-2)
both = pytest.mark.parametrize("estimator", [OnlineNMF, BATCH], ids=["online", "batch"])


def learn(estimator: Any, data: Any = X, **settings: Any) -> Any:
    return estimator(4, init="uniform", random_state=0, **settings).fit(data)


@both
def test_the_start_with_the_lowest_loss_is_kept(estimator: Any) -> None:
    model = learn(estimator, n_init=STARTS)
    seeds = np.random.default_rng(np.random.SeedSequence(0).spawn(2)[0]).integers(2**53, size=STARTS).tolist()
    losses = [estimator(4, init="uniform", random_state=seed).fit(X).loss(X) for seed in seeds]
    assert len(set(losses)) == STARTS
    assert model.loss(X) == min(losses)
    assert (model.n_init, model.random_state) == (STARTS, 0)


def test_rows_of_a_source_are_learnt_alike() -> None:
    np.testing.assert_array_equal(
        learn(OnlineNMF, Rows(X), n_init=STARTS).components_, learn(OnlineNMF, n_init=STARTS).components_
    )


@both
def test_an_error_leaves_the_model_as_it_was(estimator: Any) -> None:
    model = learn(estimator)
    before = model.components_
    with pytest.raises(ValueError, match="Negative"):
        model.set_params(n_init=STARTS).fit(-X)
    np.testing.assert_array_equal(model.components_, before)
    with pytest.raises(ValueError, match="n_init must be a whole number of at least 1"):
        model.set_params(n_init=0).fit(X)


def test_what_has_only_one_start_says_why(tmp_path: Path) -> None:
    model = OnlineNMF(4, n_init=2)
    with pytest.raises(ValueError, match=r"partial_fit continues one model, .* set n_init=1"):
        model.partial_fit(X)
    with pytest.raises(ValueError, match=r"checkpoint .* set n_init=1"):
        model.fit(X, checkpoint=tmp_path / "run")
    with pytest.raises(ValueError, match="gives them once: set n_init=1"):
        model.fit(Batches(iter([X])))


def test_the_command_line_takes_it_and_the_file_tells(run_main: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    options = "-k", 4, "--init", "uniform", "--n-init", STARTS, "--seed", 0, "--out", tmp_path / "m"
    assert run_main("fit", tmp_path / "x.npy", *options)[0] == 0
    model = onmf.load(tmp_path / "m")
    assert model.n_init == STARTS
    np.testing.assert_array_equal(model.components_, learn(OnlineNMF, n_init=STARTS).components_)
