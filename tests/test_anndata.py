"""AnnData objects as X, and objects that nothing can be made of."""

from __future__ import annotations

import gzip
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from onmf import BatchNMF, OnlineNMF, consensus, select_rank
from onmf.data import Batches, SourceError, examples, open_source
from onmf.insight.features import directions
from onmf.insight.report.views import Terms
from onmf.plots.samples import fits_of
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
    return OnlineNMF(3, **{"random_state": 0, "transform_tol": 1e-8} | settings)


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


def test_a_layer_is_named_and_keeps_the_names_of_the_genes() -> None:
    some = cells(np.log1p(X))
    some.layers["counts"] = X * 2
    learnt = model().fit(some, layer="counts")
    require_same_learning(learnt, model().fit(cells(X * 2)))
    assert learnt.feature_names_in_.tolist() == NAMES
    for call in (learnt.transform, learnt.proportions):
        assert np.array_equal(call(some, layer="counts"), call(cells(X * 2)))
    assert np.array_equal(model().fit_transform(some, layer="counts"), learnt.transform(cells(X * 2)))
    assert BatchNMF(2, max_iter=3, tol=0).fit(some, layer="counts").feature_names_in_.tolist() == NAMES
    found = consensus(some, 2, 2, layer="counts", threshold=2, random_state=0)
    assert np.array_equal(found.components, consensus(cells(X * 2), 2, 2, threshold=2, random_state=0).components)
    ranks: dict[str, Any] = {"n_seeds": 2, "max_passes": 1, "random_state": 0}
    of_layer, of_matrix = select_rank(some, [1, 2], layer="counts", **ranks), select_rank(cells(X * 2), [1, 2], **ranks)
    assert np.array_equal(of_layer.losses, of_matrix.losses)
    with pytest.raises(ValueError, match="there is no layer 'magic'; the layers are counts"):
        learnt.transform(some, layer="magic")
    with pytest.raises(TypeError, match=r"belongs to an AnnData object, got ndarray; .*x.h5ad\?layer=counts"):
        model().fit(X, layer="counts")


def test_a_model_of_counts_warns_of_logarithms_and_one_of_logarithms_does_not_of_counts() -> None:
    learnt = model().fit(cells())
    for call in (learnt.transform, learnt.loss, learnt.proportions):
        with pytest.warns(UserWarning, match="learnt from whole numbers, .* most entries here are not whole"):
            call(cells(np.log1p(X)))
    assert model().fit(cells(np.log1p(X))).transform(cells()).shape == (CELLS, 3)
    assert learnt.transform(cells(2 * X)).shape == (CELLS, 3)


def test_the_genes_of_a_model_are_found_by_their_names() -> None:
    chosen, sparse = cells()[:, [1, 3, 4, 7]], cells(scipy.sparse.csr_matrix(X))
    learnt = model().fit(chosen)
    for adata, alone in ((cells(), chosen), (cells()[:, ::-1], chosen), (sparse, sparse[:, [1, 3, 4, 7]])):
        for call in (learnt.transform, learnt.proportions, learnt.loss, learnt.score):
            assert np.allclose(call(adata), call(alone), rtol=1e-3, atol=1e-4)
    assert np.array_equal(fits_of(learnt, cells(), 5).values, fits_of(learnt, chosen, 5).values)
    again = model().fit(chosen).partial_fit(cells()[:, ::-1])
    assert np.allclose(again.components_, learnt.partial_fit(chosen).components_, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix, scipy.sparse.csc_matrix])
def test_genes_that_are_missing_count_as_zeros_which_a_warning_says(kind: Any, tmp_path: Path) -> None:
    without = X.copy()
    without[:, [0, 5]] = 0
    learnt, without = model().fit(cells()), cells(kind(without))
    few = cells(kind(X))[:, [8, 2, 1, 3, 4, 6, 7]].copy()
    few.write_h5ad(tmp_path / "few.h5ad")
    expected = learnt.transform(without)
    for call in (learnt.transform, learnt.proportions, learnt.loss):
        with pytest.warns(
            UserWarning, match="lacks 2 of the 9 genes of the model, .* as zeros: gene 0, gene 5"
        ) as told:
            found = call(few)
        assert len(told) == 1
        assert np.allclose(found, call(without), rtol=1e-3, atol=1e-4)
    with pytest.warns(UserWarning, match=r"few.h5ad lacks 2 of the 9 genes"):
        source = open_source(tmp_path / "few.h5ad", like=learnt.source_)
    assert np.allclose(np.concatenate(list(learnt.transform(source))), expected, rtol=1e-3, atol=1e-4)
    with pytest.warns(UserWarning, match="lacks 2 of the 9 genes"):
        written = learnt.annotate(few)
    assert np.array_equal(written.varm["onmf"], learnt.components_.T[[8, 2, 1, 3, 4, 6, 7]])


def test_genes_that_are_missing_cannot_be_learnt_from_and_some_must_be_there() -> None:
    learnt = model().fit(cells())
    with pytest.raises(ValueError, match="the AnnData object has no gene 'gene 4'; its genes are gene 0"):
        learnt.partial_fit(cells()[:, :4])
    with pytest.raises(ValueError, match="has no gene 'gene 0'"):
        learnt.transform(cells(names=[f"other {k}" for k in range(GENES)]))
    assert model().fit(X).transform(cells()).shape == (CELLS, 3)  # a model without names takes any
    with pytest.raises(ValueError, match="X has 4 features, but the model was learnt from 9"):
        model().fit(X).transform(cells()[:, :4])


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])
def test_cells_that_a_file_holds_are_read_from_it(kind: Any, tmp_path: Path) -> None:
    cells(kind(X)).write_h5ad(tmp_path / "x.h5ad")
    backed = anndata.read_h5ad(tmp_path / "x.h5ad", backed="r")
    settings: dict[str, Any] = {"shuffle": False, "batch_size": 13}
    learnt = model(**settings).fit(backed)
    require_same_learning(learnt, model(**settings).fit(cells(kind(X))))
    assert learnt.feature_names_in_.tolist() == NAMES
    few = model().fit(cells()[:, [5, 1, 7]])
    for each in (learnt, few):
        assert np.allclose(each.transform(backed), each.transform(cells(kind(X))), rtol=1e-3, atol=1e-4)
    assert np.allclose(learnt.transform(backed[10:20]), learnt.transform(cells(kind(X)))[10:20], rtol=1e-3, atol=1e-4)
    assert learnt.annotate(backed).obsm["X_onmf"].shape == (CELLS, 3)
    assert consensus(backed, 2, 2, threshold=2).model.feature_names_in_.tolist() == NAMES
    with pytest.raises(
        TypeError, match=r"backed by .*x\.h5ad; fit, transform, .* take it as it is; else pass adata.to"
    ):
        learnt.loss(backed)
    backed.file.close()


def test_cells_without_a_matrix_are_refused_with_the_cure() -> None:
    with pytest.raises(TypeError, match="has no X; name one of its layers"):
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


@pytest.mark.filterwarnings("ignore::UserWarning:anndata", "ignore::FutureWarning")
@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix, scipy.sparse.csc_matrix])
def test_cells_in_a_folder_of_zarr_are_read_as_those_in_a_file(kind: Any, tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    stored = cells(kind(X))
    stored.layers["twice"] = kind(2 * X)
    stored.write_zarr(tmp_path / "x.zarr")
    learnt = model().fit(cells()[:, [4, 1, 7]])
    for text, expected in ((f"{tmp_path}/x.zarr", X), (f"h5ad:{tmp_path}/x.zarr?layer=twice", 2 * X)):
        source = open_source(text)
        assert source.feature_names == NAMES
        parts = [scipy.sparse.csr_array(batch).toarray() for _, batch in source.batches(13)]
        assert np.array_equal(np.concatenate(parts), expected)
        H = np.concatenate(list(learnt.transform(open_source(text, like=learnt.source_))))
        assert np.allclose(H, learnt.transform(cells(kind(expected))), rtol=1e-3, atol=1e-4)
    with pytest.raises(SourceError, match=r"has no layer 'thrice'; its layers are twice"):
        open_source(f"{tmp_path}/x.zarr?layer=thrice")


@pytest.mark.parametrize(("end", "genes"), [("", "genes.tsv"), (".gz", "features.tsv")])
def test_a_folder_of_10x_is_read(end: str, genes: str, tmp_path: Path) -> None:
    opened: Any = gzip.open if end else open
    with opened(tmp_path / f"matrix.mtx{end}", "wb") as file:
        scipy.io.mmwrite(file, scipy.sparse.csr_matrix(np.c_[X, X[:, :1]].T.astype(int)))
    names = [*NAMES, NAMES[0]]
    rest = ["Gene Expression"] if end else []
    lines = ["\t".join([f"ENSG{place}", name, *rest]) for place, name in enumerate(names)]
    with opened(tmp_path / f"{genes}{end}", "wt") as file:
        file.write("".join(f"{line}\n" for line in lines))
    for place in (tmp_path, tmp_path / f"matrix.mtx{end}"):
        source = open_source(place)
        assert source.feature_names == [*NAMES, "gene 0-1"]
        [(_, batch)] = source.batches(100)
        assert np.array_equal(batch.toarray(), np.c_[X, X[:, 0]])
    learnt = model().fit(cells()[:, [4, 1, 7]])
    [H] = learnt.transform(open_source(tmp_path, like=learnt.source_))
    assert np.allclose(H, learnt.transform(cells()), rtol=1e-3, atol=1e-4)
    assert Terms(model().fit(source)).ranking == "specificity"
    (tmp_path / f"{genes}{end}").unlink()
    with pytest.raises(SourceError, match=r"has no features.tsv or genes.tsv .* write the names of its rows"):
        open_source(tmp_path)


def test_genes_that_a_model_has_not_learnt_from_get_spectra_and_all_get_scores() -> None:
    planted = examples.cells(300, 100, 3, depth=400)
    adata = planted.anndata()
    learnt = model(max_passes=10).fit(adata[:, ::2].copy())
    learnt.annotate(adata)
    W, scored = adata.varm["onmf"].T, adata.varm["onmf_scores"].T
    assert np.array_equal(W[:, ::2], learnt.components_)
    other, true = directions(W[:, 1::2]), directions(planted.programmes[:, 1::2])
    assert ((other @ true.T).max(axis=1) > 0.95).all()
    for row in scored:
        leading = {planted.genes[gene] for gene in np.argsort(-row)[:8]}
        assert max(len(leading & set(markers)) for markers in planted.markers) >= 7
