"""Losses of whatever ``fit`` takes, and warnings that count all of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from onmf import BatchNMF, DataError, DomainWarning, OnlineNMF
from onmf.data import Batches, Rows, open_source

rng = np.random.default_rng(0)
X = rng.gamma(1.0, 1.0, (3000, 3)) @ rng.gamma(0.5, 1.0, (3, 8)) * rng.gamma(5.0, 0.2, (3000, 8)) + 0.01
NAMES = list("abcdefgh")
MODEL = OnlineNMF(3, random_state=0).fit(X)


def _file(folder: Path) -> Any:
    np.save(folder / "x.npy", X)
    return open_source(folder / "x.npy")


def _table(folder: Path) -> Any:
    pd.DataFrame(X, columns=NAMES).assign(w=1).to_csv(folder / "x.csv", index=False, float_format="%.17g")
    return open_source(f"{folder}/x.csv?weight=w")


SOURCES: dict[str, Callable[[Path], Any]] = {
    "array": lambda folder: X,
    "frame": lambda folder: pd.DataFrame(X),
    "sparse": lambda folder: scipy.sparse.csr_matrix(X),
    "rows": lambda folder: Rows(X),
    "generator": lambda folder: (X[i : i + 700] for i in range(0, 3000, 700)),
    "batches": lambda folder: Batches([X[:10], X[10:]]),
    "file": _file,
    "weighted table": _table,
}


@pytest.mark.parametrize("kind", SOURCES)
def test_losses_and_scores_are_found_wherever_fit_learns(kind: str, tmp_path: Path) -> None:
    expected = MODEL.loss(X)
    assert MODEL.loss(SOURCES[kind](tmp_path)) == pytest.approx(expected, rel=1e-4)
    assert MODEL.score(SOURCES[kind](tmp_path)) == pytest.approx(-expected, rel=1e-4)
    OnlineNMF(3, random_state=0).fit(SOURCES[kind](tmp_path))


def test_rows_count_by_their_weights_and_bad_ones_raise_an_error_or_are_left_out(tmp_path: Path) -> None:
    weights = np.arange(3000) % 3
    pd.DataFrame(X, columns=NAMES).assign(w=weights).to_csv(tmp_path / "x.csv", index=False, float_format="%.17g")
    found = MODEL.loss(open_source(f"{tmp_path}/x.csv?weight=w"))
    assert found == pytest.approx(MODEL.loss(X, sample_weight=weights), rel=1e-6)
    with pytest.raises(ValueError, match="weights are given with arrays"):
        MODEL.loss(Rows(X), sample_weight=weights)
    spoilt = X.copy()
    spoilt[1500, 2] = np.nan
    with pytest.raises(DataError, match="row 1500"):
        MODEL.loss(Rows(spoilt))
    skips = OnlineNMF(3, random_state=0, on_error="skip").fit(X)
    assert skips.loss(Rows(spoilt)) == pytest.approx(skips.loss(np.delete(X, 1500, axis=0)), rel=1e-9)
    batch = BatchNMF(3, max_iter=30, tol=0, random_state=0).fit(X)
    assert batch.loss(Rows(X)) == pytest.approx(batch.loss(X), rel=1e-9)
    with pytest.raises(ValueError, match="has 7 features"):
        MODEL.loss(Rows(X[:, :7]))


def domain_warnings(call: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(each.message) for each in caught if issubclass(each.category, DomainWarning)]


@pytest.mark.parametrize("passes", [1, 3])
def test_a_warning_of_entries_outside_the_domain_counts_those_of_all_batches(passes: int) -> None:
    zeros = X.copy()
    zeros[::100, 0] = 0
    model = OnlineNMF(2, divergence="is", batch_size=250, max_passes=passes, random_state=0)
    for given in (zeros, Rows(zeros)):
        (said,) = domain_warnings(lambda given=given: model.fit(given))
        assert said.startswith(f"30 entries ({100 * 30 / X.size:.3g} %) are zero or nearly zero, where 'is' is not")
    fitted = OnlineNMF(2, divergence="is", random_state=0).fit(X)
    for call in (lambda: fitted.loss(Rows(zeros)), lambda: list(fitted.transform(Rows(zeros)))):
        (said,) = domain_warnings(call)
        assert said.startswith(f"30 entries ({100 * 30 / X.size:.3g} %) are zero or nearly zero, where 'is' is not")
    model = OnlineNMF(2, divergence="is", random_state=0)
    (said,) = domain_warnings(lambda: model.partial_fit(zeros[:250]).partial_fit(zeros[250:500]))
    assert said.startswith("3 entries (")
