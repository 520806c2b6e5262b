"""Orders of rows that are drawn as far as they are needed."""

from __future__ import annotations

import numpy as np
import pytest

from onmf.data import in_memory
from onmf.data.in_memory import Permutation


@pytest.mark.parametrize("many", [1, 10**6], ids=["by buckets", "at once"])
@pytest.mark.parametrize("n", [0, 1, 300, 5000])
def test_every_row_comes_once_whatever_the_batches(n: int, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_memory, "MANY", many)
    whole = Permutation(n, np.random.default_rng(0)).part(0, n)
    assert sorted(whole.tolist()) == list(range(n))
    by_parts = Permutation(n, np.random.default_rng(0))
    parts = [by_parts.part(start, min(start + 170, n)) for start in range(0, n, 170)]
    np.testing.assert_array_equal(np.concatenate([np.zeros(0, dtype=int), *parts]), whole)
    resumed = Permutation(n, np.random.default_rng(0))
    np.testing.assert_array_equal(resumed.part(n // 2, n), whole[n // 2 :])


def test_all_orders_are_equally_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_memory, "MANY", 1)
    monkeypatch.setattr(in_memory, "BUCKETS", 2)  # so that rows share one, and some are empty
    rng, draws = np.random.default_rng(1), 12_000
    orders, counts = np.unique([Permutation(3, rng).part(0, 3) for _ in range(draws)], axis=0, return_counts=True)
    assert len(orders) == 6
    expected = draws / 6
    assert float(((counts - expected) ** 2 / expected).sum()) < 20.5  # chi squared with 5 degrees of freedom: p = .001
