"""What was found by those who tried to break it: odd input is read, or refused in one sentence."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from onmf import DataError, OnlineNMF
from onmf.persistence.file import ModelFileError
from onmf.persistence.lock import alone_with
from onmf.streams import Batches, open_source

X = np.random.default_rng(0).random((40, 6)) * (np.random.default_rng(1).random((40, 6)) > 0.3)
FORMATS = ["csr", "csc", "bsr", "coo", "dia", "lil", "dok"]


def lock_of(path: Path) -> Path:
    with alone_with(path):
        (lock,) = path.parent.glob(".onmf-*.lock")
    return lock


def a_link(place: Path) -> None:
    place.symlink_to(place.with_name("precious"))


def a_second_name(place: Path) -> None:
    place.hardlink_to(place.with_name("precious"))


def somebodys_file(place: Path) -> None:
    place.write_text("somebody has kept something under this name")


@pytest.mark.parametrize("put", [a_link, a_second_name, somebodys_file, os.mkfifo, Path.mkdir])
def test_what_lies_where_a_lock_belongs_is_refused_untouched(tmp_path: Path, put: Callable[[Path], Any]) -> None:
    place = lock_of(tmp_path / "model")
    (tmp_path / "precious").write_text("years of work")
    put(place)
    before = place.read_bytes() if place.is_file() else b""
    with pytest.raises(ModelFileError, match=r"is in the way.*remove it"), alone_with(tmp_path / "model"):
        pass
    assert (tmp_path / "precious").read_text() == "years of work"
    assert not before or place.read_bytes() == before


def damaged(kind: str) -> Any:
    matrix = getattr(sp, f"{kind.split()[0]}_matrix")(X)
    match kind:
        case "lil with fewer rows than lists":
            matrix._shape = (3, 6)
        case "lil with a short list":
            matrix.data[3] = matrix.data[3][:1]
        case "lil with an index beyond":
            matrix.rows[3][-1] = 99
        case "lil with a broken index":
            matrix.rows[3][-1] = 1.5
        case "dok with a key beyond":
            matrix._dict[(3, 99)] = 1.0
        case "dok with half a key":
            matrix._dict[(3,)] = 1.0
        case "dia with two diagonals":
            matrix.data = matrix.data[:2]
        case "dia with one diagonal twice":
            matrix.offsets[:] = 0
        case "csr with a list":
            matrix.indptr = list(matrix.indptr)
        case "csr with nothing":
            matrix.indptr = None
        case "coo with floats":
            matrix.coords = (matrix.row.astype(float), matrix.col)
        case "bsr with blocks that do not fit":
            matrix.data = np.ones((len(matrix.indices), 7, 5))
    return matrix


DAMAGES = [
    "lil with fewer rows than lists",
    "lil with a short list",
    "lil with an index beyond",
    "lil with a broken index",
    "dok with a key beyond",
    "dok with half a key",
    "dia with two diagonals",
    "dia with one diagonal twice",
    "csr with a list",
    "csr with nothing",
    "coo with floats",
    "bsr with blocks that do not fit",
]


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_sparse_matrices_of_all_formats_are_refused_or_skipped(kind: str) -> None:
    with pytest.raises(DataError, match="The sparse matrix is damaged"):
        OnlineNMF(2).fit(damaged(kind))
    model = OnlineNMF(2, on_error="skip", batch_size=40).fit(Batches([X, damaged(kind), X]))
    assert (model.n_samples_seen_, model.n_skipped_) == (80, 1)


def odd(kind: str, dtype: Any) -> Any:
    matrix = getattr(sp, f"{kind}_matrix")(X)
    matrix.data = matrix.data.astype(dtype)
    return matrix


@pytest.mark.parametrize("dtype", [">f8", np.float16])
@pytest.mark.parametrize("kind", FORMATS[:5])
def test_types_that_scipy_does_not_compute_with_are_learnt_from(kind: str, dtype: Any) -> None:
    sound = sp.csr_matrix(X.astype(dtype).astype(float))
    for wrapped in (lambda matrix: matrix, lambda matrix: Batches([matrix])):
        model, expected = (OnlineNMF(2, random_state=0).fit(wrapped(each)) for each in (odd(kind, dtype), sound))
        np.testing.assert_allclose(model.components_, expected.components_)


@pytest.mark.parametrize("kind", FORMATS[:3])
def test_indices_of_two_types_are_sound(kind: str) -> None:
    matrix = getattr(sp, f"{kind}_matrix")(X)
    matrix.indptr = matrix.indptr.astype(np.int64)
    model = OnlineNMF(2).fit(Batches([X, matrix, X]))
    assert model.n_samples_seen_ == 120


def test_npz_in_half_precision_is_read(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "half.npz", odd("csr", np.float16))
    assert OnlineNMF(2).fit(open_source(tmp_path / "half.npz")).n_samples_seen_ == 40


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, before the refusal
@pytest.mark.parametrize("init", ["kmeans++", "nndsvda", "samples"])
@pytest.mark.parametrize("divergence", ["is", "alpha:-2", "kl"])
def test_numbers_that_no_start_can_be_made_of_are_a_fault_of_their_batch(divergence: str, init: str) -> None:
    huge = np.full((8, 6), 1.7e308)
    model = OnlineNMF(2, divergence=divergence, init=init, scale="none", on_error="skip", batch_size=8)
    with pytest.raises(DataError, match=r"No batch could be learnt from.*rescale or clip them"):
        model.fit(huge)
    model.fit(Batches([huge, X + 0.1]))
    assert (model.n_samples_seen_, model.n_skipped_) == (40, 1)


def test_an_initial_dictionary_that_does_not_fit_is_no_fault_of_the_batch() -> None:
    with pytest.raises(ValueError, match="the initial dictionary must have shape") as caught:
        OnlineNMF(2, init=np.ones((2, 5)), on_error="skip").fit(X)
    assert not isinstance(caught.value, DataError)
