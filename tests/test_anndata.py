"""AnnData objects as X, and objects that nothing can be made of."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from onmf import BatchNMF, OnlineNMF
from onmf.data import Batches, SourceError, open_source
from onmf.insight.plots.samples import fits_of
from tests.conftest import require_same_learning

anndata = pytest.importorskip("anndata")
pandas = pytest.importorskip("pandas")

CELLS, GENES = 60, 9
X = np.random.default_rng(0).poisson(2.0, (CELLS, GENES)).astype(np.float32)
NAMES = [f"gene {k}" for k in range(GENES)]


def cells(matrix: Any = None, names: list[str] | None = None) -> Any:
    names = NAMES if names is None else names
    obs = pandas.DataFrame(index=[f"cell {k}" for k in range(CELLS)])
    return anndata.AnnData(X if matrix is None else matrix, obs=obs, var=pandas.DataFrame(index=names))


def model(**settings: Any) -> OnlineNMF:
    return OnlineNMF(3, random_state=0, **settings)


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix, scipy.sparse.csc_matrix])
def test_cells_are_learnt_from_and_transformed_as_their_matrix_is(kind: Any) -> None:
    started = time.perf_counter()
    learnt, expected = model().fit(cells(kind(X))), model().fit(kind(X))
    require_same_learning(learnt, expected)
    assert learnt.feature_names_in_.tolist() == NAMES
    assert np.array_equal(learnt.transform(cells(kind(X))), expected.transform(kind(X)))
    assert learnt.loss(cells(kind(X))) == expected.loss(kind(X))
    assert np.array_equal(
        model().partial_fit(cells(kind(X))).partial_fit(cells(kind(X))).components_,
        model().partial_fit(kind(X)).partial_fit(kind(X)).components_,
    )
    assert BatchNMF(2, max_iter=3, tol=0, random_state=0).fit(cells(kind(X))).feature_names_in_.tolist() == NAMES
    assert time.perf_counter() - started < 30  # it took minutes to find out that cells are no numbers


def test_a_part_of_the_cells_and_a_layer_are_learnt_from() -> None:
    some = cells()
    some.layers["counts"] = X * 2
    require_same_learning(model().fit(some[10:40]), model().fit(X[10:40]))
    require_same_learning(model().fit(some.layers["counts"]), model().fit(X * 2))


def test_the_genes_of_a_model_are_found_by_their_names() -> None:
    chosen, sparse = cells()[:, [1, 3, 4, 7]], cells(scipy.sparse.csr_matrix(X))
    learnt = model().fit(chosen)
    for adata, alone in ((cells(), chosen), (cells()[:, ::-1], chosen), (sparse, sparse[:, [1, 3, 4, 7]])):
        for call in (learnt.transform, learnt.proportions, learnt.loss, learnt.score):
            assert np.allclose(call(adata), call(alone), rtol=1e-3, atol=1e-4)
    assert np.array_equal(fits_of(learnt, cells(), 5).values, fits_of(learnt, chosen, 5).values)
    again = model().fit(chosen).partial_fit(cells()[:, ::-1])
    assert np.allclose(again.components_, learnt.partial_fit(chosen).components_, rtol=1e-3, atol=1e-4)


def test_genes_that_are_missing_are_refused_by_their_names() -> None:
    learnt = model().fit(cells())
    for call in (learnt.transform, learnt.proportions, learnt.loss, learnt.score, learnt.partial_fit):
        with pytest.raises(ValueError, match=r"has no gene 'gene 4'; .*the model needs all of its 9 genes.* pass"):
            call(cells()[:, :4])
    assert model().fit(X).transform(cells()).shape == (CELLS, 3)  # a model without names takes any
    with pytest.raises(ValueError, match="X has 4 features, but the model was learnt from 9"):
        model().fit(X).transform(cells()[:, :4])


def test_cells_in_a_file_and_cells_without_a_matrix_are_refused_with_the_cure(tmp_path: Path) -> None:
    cells().write_h5ad(tmp_path / "x.h5ad")
    backed = anndata.read_h5ad(tmp_path / "x.h5ad", backed="r")
    with pytest.raises(TypeError, match=r"backed by .*x\.h5ad; pass onmf.data.open_source"):
        model().fit(backed)
    backed.file.close()
    with pytest.raises(TypeError, match="has no X; pass one of its layers"):
        model().fit(anndata.AnnData(obs=pandas.DataFrame(index=["a"]), var=pandas.DataFrame(index=["b"])))


def test_a_file_and_the_object_it_was_written_from_are_learnt_alike(tmp_path: Path) -> None:
    stored = cells(scipy.sparse.csr_matrix(X))
    stored.write_h5ad(tmp_path / "x.h5ad")
    settings: dict[str, Any] = {"shuffle": False, "batch_size": 13}
    learnt = model(**settings).fit(open_source(tmp_path / "x.h5ad"))
    require_same_learning(learnt, model(**settings).fit(stored))
    [H] = learnt.transform(open_source(tmp_path / "x.h5ad"))
    assert np.array_equal(H, learnt.transform(stored))


class Endless:
    """Says that it has a billion rows, and hands them out one by one."""

    shape = (10**9, GENES)

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, row: int) -> Any:
        return X[row % CELLS]


@pytest.mark.parametrize("strange", [Endless(), [Endless()], {"a": 1}, {1, 2}], ids=lambda each: type(each).__name__)
def test_what_does_not_turn_into_an_array_is_refused_at_once(strange: Any) -> None:
    learnt = model().fit(X)
    started = time.perf_counter()
    for call in (learnt.partial_fit, BatchNMF(2).fit):
        with pytest.raises(TypeError, match="cannot be converted to an array; pass an array"):
            call(strange)
    with pytest.raises((TypeError, SourceError), match=r"cannot be converted to an array|a batch must be"):
        learnt.loss(strange)  # a set may be one of batches, as for fit
    with pytest.raises(SourceError, match="cannot be converted to an array"):
        model().fit(Batches([X, strange]))
    assert time.perf_counter() - started < 2


def test_what_turns_into_an_array_is_taken(tmp_path: Path) -> None:
    h5py, zarr = pytest.importorskip("h5py"), pytest.importorskip("zarr")
    expected = model().fit(X)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = X
        require_same_learning(model().fit(file["x"]), expected)
    require_same_learning(model().fit(zarr.array(X)), expected)
    require_same_learning(model().fit(pandas.DataFrame(X, columns=NAMES)), expected)
    same = model().fit(X.astype(np.float64))
    require_same_learning(model().fit([list(map(float, row)) for row in X]), same)
    require_same_learning(model().fit([tuple(row.tolist()) for row in X]), same)
