"""The long runs of ``make soak``, cut short: they must at least begin well."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.fuzz_readers import fuzz
from benchmarks.soak import stream_round

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("reader", ["csv", "npz", "h5ad, CSR", "zarr"])
def test_damaged_files_are_refused_or_learnt_from(reader: str) -> None:
    counts, faults = fuzz(reader, 4, seed=1)
    assert not faults
    assert sum(counts.values()) == 4


def test_a_stream_with_bad_batches_is_learnt_from(rng: np.random.Generator) -> None:
    with np.errstate(all="ignore"):
        said, faults = stream_round(rng, 0.5)
    assert not faults, said
