"""Cells in .h5ad files and AnnData objects: what is written beside them, and that nothing else changes."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from typer.testing import CliRunner

import onmf
from onmf import BatchNMF, OnlineNMF
from onmf._support.version import __version__
from onmf.cli import main as cli
from onmf.data import SourceError, examples, open_source
from onmf.data.h5ad import H5ad
from tests import processes
from tests.conftest import spread

anndata = pytest.importorskip("anndata")
pandas = pytest.importorskip("pandas")
h5py = pytest.importorskip("h5py")

K, GENES, CELLS = 3, 30, 80
PLANTED = examples.cells(CELLS, GENES, K)
NAMED_OR_NOT = ("?index=obs_names", "")
COMPONENTS = [f"component_{k}" for k in range(K)]


def cells() -> Any:
    """With something in every place that an AnnData object has."""
    adata = PLANTED.anndata()
    adata.obs["type"] = pandas.Categorical(["a", "b"] * (CELLS // 2))
    adata.var["symbol"] = [f"S{k}" for k in range(GENES)]
    adata.layers["counts"] = adata.X * 2
    adata.obsp["near"] = adata.X @ adata.X.T
    adata.varm["PCs"] = np.ones((GENES, 2))
    adata.uns["colours"] = {"a": "red", "sizes": np.arange(3)}
    adata.raw = adata
    return adata


@pytest.fixture(scope="module")
def model() -> OnlineNMF:
    return OnlineNMF(K, max_passes=3, random_state=0).fit(cells())


@pytest.fixture
def place(tmp_path: Path, model: OnlineNMF, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and its cells."""
    onmf.save(model, tmp_path / "m")
    cells().write_h5ad(tmp_path / "x.h5ad")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*arguments: Any) -> Any:
    return CliRunner().invoke(cli.app, list(map(str, arguments)))


def transform(data: str = "x.h5ad", out: str = "x.h5ad") -> Any:
    result = command("transform", "m", data, "--out", out)
    assert result.exit_code == 0, result.output
    return anndata.read_h5ad(out)


def contents(path: str) -> dict[str, Any]:
    """Everything in an HDF5 file, but for what onmf writes."""
    found: dict[str, Any] = {}

    def note(name: str, item: Any) -> None:
        if "onmf" not in name:
            value = item[()] if isinstance(item, h5py.Dataset) else None
            attributes = {key: np.asarray(attribute).tolist() for key, attribute in item.attrs.items()}
            found[name] = (None if value is None else np.asarray(value).tolist(), attributes)

    with h5py.File(path) as file:
        file.visititems(note)
    return found


# The command


def test_two_commands_write_usages_loadings_and_settings_into_the_file(place: Path) -> None:
    with h5py.File("x.h5ad", "r+") as file:
        file.create_group("of another program")["numbers"] = np.arange(5)
    before, mode = contents("x.h5ad"), Path("x.h5ad").stat().st_mode
    assert command("fit", "x.h5ad", "-k", K, "--seed", 0, "--out", "own").exit_code == 0
    result = command("transform", "own", "x.h5ad", "--out", "x.h5ad")
    assert result.exit_code == 0
    assert contents("x.h5ad") == before
    assert Path("x.h5ad").stat().st_mode == mode
    with h5py.File("x.h5ad", "r+") as file:
        del file["of another program"]  # which anndata itself refuses
    own, written = onmf.load("own"), anndata.read_h5ad("x.h5ad")
    np.testing.assert_allclose(written.obsm["X_onmf"], own.transform(cells()), rtol=1e-5)
    np.testing.assert_allclose(written.obsm["X_onmf_shares"], own.proportions(cells()), rtol=1e-5)
    assert np.array_equal(written.varm["onmf"], own.components_.T)
    told = written.uns["onmf"]
    assert told["component_names"].tolist() == COMPONENTS
    assert (told["divergence"], told["n_components"], told["version"]) == ("kl", K, __version__)
    assert (told["n_samples_seen"], told["settings"], told["method"]) == (CELLS, {"random_state": 0}, "surrogate")
    assert sorted(path.name for path in place.iterdir()) == ["m", "own", "x.h5ad"]
    assert written.raw.X.shape == (CELLS, GENES)
    assert written.obs["type"].dtype == "category"


def test_again_replaces_what_an_older_model_has_written_and_does_not_grow_the_file(place: Path) -> None:
    onmf.save(OnlineNMF(K + 2, divergence="beta:1.5", random_state=1).fit(cells()), "other")
    assert command("transform", "other", "x.h5ad", "--out", "x.h5ad").exit_code == 0
    assert anndata.read_h5ad("x.h5ad").uns["onmf"]["divergence_parameters"] == {"beta": 1.5}
    transform()
    size = Path("x.h5ad").stat().st_size
    for _ in range(2):
        written = transform()
    assert Path("x.h5ad").stat().st_size < size + 20_000
    assert written.obsm["X_onmf"].shape == (CELLS, K)
    assert written.varm["onmf"].shape == (GENES, K)
    assert written.uns["onmf"]["divergence_parameters"] == {}


def test_a_link_to_the_cells_is_followed_and_other_formats_are_still_never_replaced(place: Path) -> None:
    Path("link.h5ad").symlink_to("x.h5ad")
    assert "X_onmf" in transform("link.h5ad", "link.h5ad").obsm
    assert Path("link.h5ad").is_symlink()
    assert "X_onmf" in anndata.read_h5ad("x.h5ad").obsm
    shutil.copy("m", "m.h5ad")
    result = command("transform", "m.h5ad", "x.h5ad", "--out", "m.h5ad")
    assert "m.h5ad is an input; give --out another name." in result.stderr


def test_genes_are_found_by_name_and_others_have_spectra_in_memory(place: Path, model: OnlineNMF) -> None:
    more = anndata.AnnData(np.ones((CELLS, 2), np.float32), var={"var_names": ["new", "newer"]})
    more.obs_names = cells().obs_names
    wide = anndata.concat([PLANTED.anndata(), more], axis=1)[:, ::-1].copy()
    wide.write_h5ad("x.h5ad")
    written = transform()
    np.testing.assert_allclose(written.obsm["X_onmf"], model.transform(cells()), rtol=1e-3)
    assert np.isnan(written.varm["onmf"][:2]).all()
    assert np.array_equal(written.varm["onmf"][2:][::-1], model.components_.T)
    annotated = model.annotate(wide).varm["onmf"]
    assert np.array_equal(annotated[2:], written.varm["onmf"][2:])
    assert np.isfinite(annotated).all()
    np.testing.assert_allclose(wide.obsm["X_onmf"], written.obsm["X_onmf"], rtol=1e-6)


def test_a_file_without_genes_of_the_model_is_refused_and_left_alone(place: Path) -> None:
    other = cells()
    other.var_names = [f"other{k:02d}" for k in range(GENES)]
    other.write_h5ad("x.h5ad")
    before = Path("x.h5ad").read_bytes()
    result = command("transform", "m", "x.h5ad", "--out", "x.h5ad")
    assert "x.h5ad has no gene 'gene00'; its genes are other00, other01" in str(result.exception)
    assert Path("x.h5ad").read_bytes() == before


@pytest.mark.parametrize("kind", ["dense", "csr", "csc"])
def test_columns_chooses_genes_in_any_order(place: Path, kind: str) -> None:
    adata = cells()
    X = adata.X.toarray()
    adata.X = X if kind == "dense" else adata.X.asformat(kind)
    adata.write_h5ad("y.h5ad")
    source = open_source("y.h5ad?columns=gene07,gene02")
    assert source.feature_names == ["gene07", "gene02"]
    found = np.concatenate([getattr(part, "toarray", lambda part=part: part)() for _, part in source.batches(33)])
    assert np.array_equal(found, X[:, [7, 2]])
    with pytest.raises(SourceError, match=r"y\.h5ad: the gene 'gene02' is asked for 2 times"):
        open_source("y.h5ad?columns=gene02,gene02")


def test_a_layer_belongs_to_the_file_and_not_to_the_model(place: Path) -> None:
    assert command("fit", "x.h5ad?layer=counts", "-k", K, "--seed", 0, "--out", "m").exit_code == 0
    learnt, other = onmf.load("m"), cells()
    other.X = other.layers.pop("counts")
    other.write_h5ad("y.h5ad")
    of_layer, of_matrix = transform("x.h5ad?layer=counts"), transform("y.h5ad", "y.h5ad")
    assert of_layer.uns["onmf"]["layer"] == "counts"
    assert "layer" not in of_matrix.uns["onmf"]
    np.testing.assert_allclose(of_layer.obsm["X_onmf"], of_matrix.obsm["X_onmf"], rtol=1e-6)
    annotated = learnt.annotate(cells(), layer="counts")
    assert annotated.uns["onmf"]["layer"] == "counts"
    np.testing.assert_allclose(of_layer.obsm["X_onmf"], annotated.obsm["X_onmf"], rtol=1e-6)


def test_a_model_of_counts_applied_to_logarithms_says_so(place: Path) -> None:
    adata = cells()
    adata.X = adata.X.log1p()
    adata.write_h5ad("x.h5ad")
    result = command("transform", "m", "x.h5ad", "--out", "x.h5ad")
    assert "learnt from whole numbers, such as counts, but most entries here are not" in result.stderr.replace(
        "\n", " "
    )


def test_a_model_without_names_goes_by_the_order_of_the_genes_and_one_of_other_features_says_nothing_of_them(
    place: Path,
) -> None:
    onmf.save(OnlineNMF(K, random_state=0).fit(cells().X), "m")
    assert not np.isnan(transform().varm["onmf"]).any()
    onmf.save(OnlineNMF(K, random_state=0).fit(PLANTED.usages), "m")
    written = transform("hdf5:x.h5ad?name=obsm/usages")
    assert "onmf" not in written.varm
    assert written.obsm["X_onmf"].shape == (CELLS, K)


# What can go wrong

KILLED = """
import os, resource, signal, sys
import onmf.cli.main as cli
import h5py, numba, onmf.estimators.description, onmf.estimators.files, onmf.coefficients.kernels.gram  # once
from onmf.persistence import file
from onmf.data import h5ad

h5ad.require_harmless = lambda *_: None  # a process of its own, which takes a second
old = open("x.h5ad", "rb").read()

def ended(prepare):
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.argv = ["onmf", "transform", "m", "x.h5ad", "--out", "x.h5ad"]
        prepare()
        try:
            cli.main()
        finally:
            os._exit(sys.exc_info()[1].code or 0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def watching(die_at, note=None):
    # Functions of the writer begin and end, and so does the one that puts the new file in its place.
    seen = 0
    def count(frame, event, argument):
        nonlocal seen
        where, name = frame.f_code.co_filename, frame.f_code.co_name
        if event in ("call", "return") and (where in (file.__file__, h5ad.__file__) or name == "replace"):
            seen += 1
            if note is not None:
                os.write(note, b"r" if name == "replace" else b".")
            if seen == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
    return lambda: sys.setprofile(count)

room = len(old) + 2000
print("full", ended(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))), end=" ")
print(open("x.h5ad", "rb").read() == old, sorted(os.listdir()))
heard, said = os.pipe()
print("finished", ended(watching(0, said)), open("x.h5ad", "rb").read() != old)
os.close(said)
events = os.read(heard, 100_000).decode()
replaced = events.rindex("rr") + 1
for moment in (len(events) // 2, replaced, replaced + 1):
    open("x.h5ad", "wb").write(old)
    status, now = ended(watching(moment)), open("x.h5ad", "rb").read()
    with h5ad.open_hdf5("x.h5ad") as cells:
        there = "X_onmf" in cells["obsm"], "onmf" in cells["varm"], "onmf" in cells["uns"]
        print("killed", status, "old" if now == old else "new" if all(there) else "broken")
"""


def test_a_kill_at_any_moment_leaves_the_old_file_or_the_new_one_and_a_full_disk_the_old(place: Path) -> None:
    done = processes.run("-c", KILLED, text=True)
    full, finished, *killed = done.stdout.splitlines()
    assert full == "full 2 True ['m', 'x.h5ad']"
    assert "onmf: cannot write a copy of x.h5ad with its coefficients: File too large.\n" in done.stderr
    assert "Traceback" not in done.stderr
    assert finished == "finished 0 True"
    assert killed == ["killed -9 old", "killed -9 old", "killed -9 new"]


def test_a_file_that_another_program_writes_to_is_refused_in_a_sentence(place: Path) -> None:
    with Path("x.h5ad").open("rb+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        for arguments in (["fit", "x.h5ad", "--out", "n"], ["transform", "m", "x.h5ad", "--out", "x.h5ad"]):
            result = command(*arguments)
            assert str(result.exception) == "x.h5ad is open for writing in another program; close it there first."


def test_what_another_program_writes_in_the_meantime_is_not_lost(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = H5ad.write

    def meanwhile(self: H5ad, *arguments: Any) -> None:
        os.utime("x.h5ad", (0, 0))
        write(self, *arguments)

    monkeypatch.setattr(H5ad, "write", meanwhile)
    before = Path("x.h5ad").read_bytes()
    result = command("transform", "m", "x.h5ad", "--out", "x.h5ad")
    assert "another program has changed x.h5ad since it was read; nothing is written" in str(result.exception)
    assert Path("x.h5ad").read_bytes() == before
    assert sorted(os.listdir()) == ["m", "x.h5ad"]


def without_cells(file: Any) -> None:
    del file["obs"]


def of_an_old_format(file: Any) -> None:
    del file["obsm"]
    file["obsm"] = np.zeros(CELLS, dtype=[("X_pca", float, 2)])


def with_links_in_a_circle(file: Any) -> None:
    del file["obs"]
    file["obs"] = h5py.SoftLink("/obs")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (with_links_in_a_circle, "x.h5ad cannot be read as AnnData: "),
        (without_cells, "x.h5ad has no names of cells"),
        (of_an_old_format, "in a format of anndata before 0.7; write it"),
    ],
)
def test_an_odd_file_is_refused_in_a_sentence_and_left_alone(
    place: Path, damage: Callable[[Any], None], words: str
) -> None:
    with h5py.File("x.h5ad", "r+") as file:
        damage(file)
    before = Path("x.h5ad").read_bytes()
    assert words in str(command("transform", "m", "x.h5ad", "--out", "x.h5ad").exception)
    assert Path("x.h5ad").read_bytes() == before
    assert sorted(os.listdir()) == ["m", "x.h5ad"]


def test_coefficients_are_found_in_the_file_again_whichever_list_of_names_is_damaged(place: Path) -> None:
    with h5py.File("x.h5ad", "r+") as file:
        del file["obsm"]
        file.create_group("obsm")  # an empty one is listed well even if its names are damaged
    good, said = Path("x.h5ad").read_bytes(), set()
    heaps = [at for at in range(0, len(good), 8) if good[at : at + 4] == b"HEAP"]
    for heap in heaps:
        names = int.from_bytes(good[heap + 24 : heap + 32], "little")
        Path(f"{heap}.h5ad").write_bytes(good[:names] + b"\x80" + good[names + 1 :])
        result = command("transform", "m", f"{heap}.h5ad", "--out", "new.h5ad")
        if result.exception is not None:
            said.add(str(result.exception).partition(": ")[2])
            continue
        with h5py.File("new.h5ad") as file:
            assert "obsm/X_onmf" in file
    assert "they are not found in it again, so that the file is damaged." in said


# AnnData objects


def test_annotate_writes_what_the_command_writes(place: Path, model: OnlineNMF) -> None:
    adata = cells()
    assert model.annotate(adata) is adata
    written = transform()
    np.testing.assert_allclose(adata.obsm["X_onmf"], written.obsm["X_onmf"], rtol=1e-6)
    assert np.array_equal(adata.varm["onmf"], written.varm["onmf"])
    adata.write_h5ad("y.h5ad")
    told, again = written.uns["onmf"], anndata.read_h5ad("y.h5ad").uns["onmf"]
    assert told.pop("component_names").tolist() == again.pop("component_names").tolist() == COMPONENTS
    assert told == again
    assert told["settings"] == {"max_passes": 3, "random_state": 0}
    frame = pandas.DataFrame(adata.varm["onmf"], adata.var_names, COMPONENTS)
    assert frame.loc["gene05", "component_1"] == model.components_[1, 5]


def test_scores_of_an_older_model_do_not_stay_beside_new_loadings(place: Path, model: OnlineNMF) -> None:
    old = OnlineNMF(K + 1, random_state=0).fit(cells()).annotate(cells())
    assert old.varm["onmf_scores"].shape == (GENES, K + 1)
    old.write_h5ad("x.h5ad")
    written = transform()
    assert written.varm["onmf"].shape == (GENES, K)
    assert "onmf_scores" not in written.varm  # which annotate writes
    assert model.annotate(old).varm["onmf_scores"].shape == (GENES, K)


def test_a_layer_of_a_file_without_layers_is_to_be_left_out(place: Path) -> None:
    plain = cells()
    plain.layers.clear()
    plain.write_h5ad("plain.h5ad")
    with pytest.raises(SourceError, match=r"^plain.h5ad has no layers; leave out \?layer= to read X\.$"):
        open_source("plain.h5ad?layer=counts")


def test_a_key_and_a_layer_can_be_named(model: OnlineNMF) -> None:
    adata = model.annotate(cells(), key="programmes", layer="counts")
    assert {"X_programmes", "X_programmes_shares"} == {key for key in adata.obsm if key.startswith("X_")}
    np.testing.assert_allclose(adata.obsm["X_programmes_shares"].sum(axis=1), 1, rtol=1e-6)
    assert "programmes" in adata.varm
    assert adata.uns["programmes"]["layer"] == "counts"
    np.testing.assert_allclose(adata.obsm["X_programmes"], 2 * model.transform(cells()), rtol=1e-3, atol=1e-4)


def test_other_models_and_outputs_annotate_too(model: OnlineNMF) -> None:
    batch = BatchNMF(2, max_iter=20, tol=0, random_state=0).fit(cells())
    assert batch.annotate(cells()).obsm["X_onmf"].shape == (CELLS, 2)
    assert "method" not in batch.annotate(cells()).uns["onmf"]
    frames = onmf.OnlineNMF(K, random_state=0).set_output(transform="pandas").fit(cells())
    assert isinstance(frames.annotate(cells()).obsm["X_onmf"], np.ndarray)


def test_what_cannot_be_annotated_is_refused_with_the_cure(model: OnlineNMF) -> None:
    with pytest.raises(TypeError, match="annotate takes an AnnData object, got ndarray; transform takes arrays"):
        model.annotate(PLANTED.usages)
    with pytest.raises(ValueError, match="there is no layer 'magic'; the layers are counts"):
        model.annotate(cells(), layer="magic")
    with pytest.raises(ValueError, match=r"OnlineNMF instance is not fitted yet"):
        OnlineNMF(K).annotate(cells())


# The simulation


def test_simulated_cells_are_made_by_their_programmes() -> None:
    many = examples.cells(4000, 30, 3, depth=1000, seed=1)
    assert many.counts.shape == (4000, 30)
    np.testing.assert_allclose(many.programmes.sum(axis=1), 1)
    np.testing.assert_allclose(many.usages.sum(axis=1), 1)
    shares = many.counts.sum(axis=0) / many.counts.sum()
    np.testing.assert_allclose(np.ravel(shares), many.usages.mean(axis=0) @ many.programmes, rtol=0.1)
    assert many.counts.sum() / 4000 == pytest.approx(1000, rel=0.05)
    assert many.usages.mean(axis=0).argmin() == 2
    raised = many.programmes / np.median(many.programmes, axis=0)
    assert all(raised[k, many.genes.index(gene)] > 2 for k in range(3) for gene in many.markers[k][:1])


@pytest.mark.parametrize(
    ("kind", "out"),
    spread([np.asarray, scipy.sparse.csr_matrix, scipy.sparse.csc_matrix], ["h.csv", "h.tsv", "h.jsonl"], 3),
)
def test_tables_of_coefficients_have_the_names_of_the_cells(place: Path, kind: Any, out: str) -> None:
    adata = cells()
    adata.X = kind(adata.X if isinstance(adata.X, np.ndarray) else adata.X.toarray())
    adata.write_h5ad("y.h5ad")
    assert command("transform", "m", "y.h5ad?index=obs_names", "--out", out, "--batch-size", 7).exit_code == 0
    lines = Path(out).read_text().splitlines()
    if out == "h.jsonl":
        assert [json.loads(line)["obs_names"] for line in lines] == adata.obs_names.tolist()
    else:
        assert [re.split("[,\t]", line)[0] for line in lines] == ["obs_names", *adata.obs_names]


def test_names_of_cells_change_nothing_of_what_is_learnt(place: Path) -> None:
    adata = cells()
    adata.X = scipy.sparse.csr_matrix(adata.X)
    adata.write_h5ad("y.h5ad")
    named, plain = (OnlineNMF(K, random_state=0).fit(open_source(f"y.h5ad{options}")) for options in NAMED_OR_NOT)
    np.testing.assert_array_equal(named.components_, plain.components_)


def test_an_index_that_is_not_the_names_of_cells_is_refused(place: Path) -> None:
    with pytest.raises(SourceError, match=r"x\.h5ad: index must be obs_names, the names of the cells; got 'batch'"):
        open_source("x.h5ad?index=batch")
    with h5py.File("x.h5ad", "r+") as file:
        del file["obs"]
    with pytest.raises(SourceError, match=r"has no names of cells .*; leave out index="):
        open_source("x.h5ad?index=obs_names")
