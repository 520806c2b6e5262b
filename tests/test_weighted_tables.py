"""Tables with a column of weights, tables with gaps, and both on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from typer.testing import CliRunner

from onmf import OnlineNMF, load, save
from onmf.cli import main as cli
from onmf.data import SourceError, open_source, prefetch, rebatch, repeat, scale, shuffle, take
from onmf.samples import Samples
from tests.conftest import require_same_learning

rng = np.random.default_rng(5)
N = 120
X = rng.gamma(1.0, 1.0, (N, 3)) @ rng.gamma(1.0, 1.0, (3, 6)) + 0.1
W = rng.integers(0, 4, N) / 2
NAMES = [f"f{column}" for column in range(6)]
SETTINGS: dict[str, Any] = {"n_components": 3, "random_state": 0, "batch_size": 30}
KINDS = ["csv", "tsv", "jsonl", "parquet", "feather", "arrow"]
every_kind = pytest.mark.parametrize("kind", KINDS)
runner = CliRunner()


def written(folder: Path, kind: str, weights: Any = W, data: np.ndarray = X) -> str:
    """A table whose third column is the weight, with the option that says so."""
    columns = [*NAMES[:2], "w", *NAMES[2:]]
    rows = [[*map(float, row[:2]), weight, *map(float, row[2:])] for row, weight in zip(data, weights, strict=True)]
    path = folder / f"x.{kind}"
    if kind in ("csv", "tsv"):
        cells = [columns, *([("" if cell is None else str(cell)) for cell in row] for row in rows)]
        path.write_text("\n".join(("," if kind == "csv" else "\t").join(row) for row in cells))
    elif kind == "jsonl":
        path.write_text("\n".join(json.dumps(dict(zip(columns, row, strict=True))) for row in rows))
    else:
        pa = pytest.importorskip("pyarrow")
        table = pa.table({name: [row[place] for row in rows] for place, name in enumerate(columns)})
        if kind == "parquet":
            pytest.importorskip("pyarrow.parquet").write_table(table, path, row_group_size=17)
        elif kind == "feather":
            pytest.importorskip("pyarrow.feather").write_feather(table, str(path))
        else:
            with pa.ipc.new_stream(str(path), table.schema) as writer:
                writer.write_table(table, max_chunksize=17)
    return f"{path}?weight=w" + (f"&features={','.join(NAMES)}" if kind == "jsonl" else "")


def collected(source: Any, size: int = 25, **options: Any) -> tuple[list[Any], np.ndarray, np.ndarray]:
    batches = list(source.batches(size, **options))
    assert all(isinstance(batch, Samples) and batch.sample_weight is not None for _, batch in batches)
    parts = [np.concatenate([getattr(batch, name) for _, batch in batches]) for name in ("matrix", "sample_weight")]
    return [row for rows, _ in batches for row in rows], *parts


# Weights


@every_kind
def test_a_column_of_weights_is_no_feature_and_weighs_the_samples(kind: str, tmp_path: Path) -> None:
    source = open_source(written(tmp_path, kind))
    assert (source.weighted, source.n_features, source.feature_names) == (True, 6, NAMES)
    rows, found, weights = collected(source)
    assert rows == list(range(N))
    np.testing.assert_array_equal(found, X)
    np.testing.assert_array_equal(weights, W)
    learnt = OnlineNMF(**SETTINGS, shuffle=False).fit(X, sample_weight=W)
    model = OnlineNMF(**SETTINGS).fit(source)
    np.testing.assert_array_equal(model.components_, learnt.components_)
    np.testing.assert_array_equal(model.history_["loss"], learnt.history_["loss"])
    assert "weight" not in model.source_.options


@every_kind
def test_other_data_of_the_model_may_or_may_not_have_the_column(kind: str, tmp_path: Path) -> None:
    text = written(tmp_path, kind)
    model = OnlineNMF(**SETTINGS).fit(open_source(text))
    save(model, tmp_path / "model")
    kept = load(tmp_path / "model")
    expected = OnlineNMF(**SETTINGS, shuffle=False).fit(X, sample_weight=W).transform(X)
    bare = text.partition("?")[0]
    for given in (text, bare):
        found = np.concatenate(list(kept.transform(open_source(given, like=kept.source_))))
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@every_kind
@pytest.mark.parametrize(("bad", "words"), [(-1.0, "-1"), (float("nan"), ""), (None, ""), (float("inf"), "")])
def test_a_bad_weight_costs_its_row_and_names_it(kind: str, bad: Any, words: str, tmp_path: Path) -> None:
    weights = [*W.tolist()]
    weights[41] = bad
    source = open_source(written(tmp_path, kind, weights))
    with pytest.raises(
        SourceError, match=f"{words}.*weight.* row 41.*weights are finite numbers that are not negative"
    ):
        collected(source)
    said: list[str] = []
    rows, found, _ = collected(source, on_bad=lambda error: said.append(str(error)))
    assert rows == [row for row in range(N) if row != 41]
    np.testing.assert_array_equal(found, np.delete(X, 41, axis=0))
    assert len(said) == 1
    model = OnlineNMF(**SETTINGS, on_error="skip").fit(source)
    expected = OnlineNMF(**SETTINGS, shuffle=False).fit(np.delete(X, 41, axis=0), sample_weight=np.delete(W, 41))
    np.testing.assert_array_equal(model.components_, expected.components_)
    assert model.n_skipped_ == 1


@every_kind
def test_a_column_that_is_not_there_is_named(kind: str, tmp_path: Path) -> None:
    text = written(tmp_path, kind).replace("weight=w", "weight=count")
    with pytest.raises(SourceError, match="'count'"):
        collected(open_source(text))


def test_a_weight_that_is_no_number_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,w\n1,2\n3,often\n")
    with pytest.raises(SourceError, match=r"'often' is not a number at row 1, column 1 \(w\)"):
        collected(open_source(f"{tmp_path}/x.csv?weight=w"))
    (tmp_path / "x.jsonl").write_text('{"a": 1, "w": "often"}\n')
    with pytest.raises(SourceError, match="\"often\" is not a number at row 0, field 'w'"):
        collected(open_source(f"{tmp_path}/x.jsonl?features=a&weight=w"))
    with pytest.raises(SourceError, match="both a feature and the weight"):
        open_source(f"{tmp_path}/x.jsonl?features=a&weight=a")
    with pytest.raises(SourceError, match="choose their fields by features="):
        open_source(f"{tmp_path}/x.jsonl?weight=w")
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"a": [1.0], "w": ["often"]}), tmp_path / "x.parquet")
    with pytest.raises(SourceError, match="'w' is of type string"):
        open_source(f"{tmp_path}/x.parquet?weight=w")


def test_a_table_without_names_has_its_weights_by_number_along_with_names_of_rows(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("2,x,1,5\n0.5,y,3,4\n")
    rows, found, weights = collected(open_source(f"{tmp_path}/x.csv?weight=0&index=1"))
    assert (rows, found.tolist(), weights.tolist()) == (["x", "y"], [[1, 5], [3, 4]], [2, 0.5])


def test_weights_stay_with_their_rows_through_the_tools(tmp_path: Path) -> None:
    source = open_source(written(tmp_path, "csv"))
    for made in (prefetch(source), rebatch(source, 7), shuffle(source, 50), repeat(source, 1), take(source, N)):
        assert made.weighted
        rows, found, weights = collected(made)
        order = np.argsort(rows)
        np.testing.assert_array_equal(found[order], X)
        np.testing.assert_array_equal(weights[order], W)
    _, found, weights = collected(scale(source, 2.0))
    np.testing.assert_array_equal(found, 2 * X)
    np.testing.assert_array_equal(weights, W)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("weights", [W, W + 0.5], ids=["some zero", "none zero"])
def test_a_run_on_weighted_samples_goes_on_to_the_bit_and_notices_other_weights(
    kind: str, weights: np.ndarray, tmp_path: Path
) -> None:
    text = written(tmp_path, kind, weights)
    settings = SETTINGS | {"max_passes": 2}
    whole = OnlineNMF(**settings).fit(open_source(text))
    stopped = OnlineNMF(**settings, callbacks=[lambda progress: progress.samples >= 60])
    stopped.fit(open_source(text), checkpoint=tmp_path / "run")
    copy = (tmp_path / "run").read_bytes()
    resumed = OnlineNMF(**settings).fit(open_source(text), checkpoint=tmp_path / "run", resume=True)
    require_same_learning(resumed, whole)
    (tmp_path / "run").write_bytes(copy)
    changed = written(tmp_path, kind, np.where(weights > 0, weights + 1, 0))
    with pytest.raises(SourceError, match="not those of the checkpoint"):
        OnlineNMF(**settings).fit(open_source(changed), checkpoint=tmp_path / "run", resume=True)


def test_rows_of_weight_zero_are_as_if_they_were_not_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "some").mkdir()
    for settings in (SETTINGS, SETTINGS | {"batch_size": None}):
        one = OnlineNMF(**settings).fit(open_source(written(tmp_path, "csv")))
        other = OnlineNMF(**settings).fit(open_source(written(tmp_path / "some", "csv", W[W > 0], X[W > 0])))
        require_same_learning(one, other)


# Gaps


def gaps(folder: Path, kind: str) -> tuple[str, np.ndarray]:
    """A table with gaps as its kind writes them, and its numbers with NaN."""
    known = np.where(rng.random(X.shape) < 0.2, np.nan, X)
    path = folder / f"x.{kind}"
    if kind in ("csv", "tsv"):
        blanks = ["", " ", "nan", "NaN", '""']
        cells = [
            [blanks[(3 * r + c) % 5] if np.isnan(x) else str(x) for c, x in enumerate(row)]
            for r, row in enumerate(known)
        ]
        path.write_text("\n".join(map(("," if kind == "csv" else "\t").join, [NAMES, *cells])))
    elif kind == "jsonl":
        rows = [{name: None if np.isnan(x) else float(x) for name, x in zip(NAMES, row, strict=True)} for row in known]
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        columns = {name: pa.array(known[:, place], from_pandas=True) for place, name in enumerate(NAMES)}
        pq.write_table(pa.table(columns), path)
    return str(path) + (f"?features={','.join(NAMES)}" if kind == "jsonl" else ""), known


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_gaps_are_holes_where_the_model_says_so_and_errors_elsewhere(kind: str, tmp_path: Path) -> None:
    text, known = gaps(tmp_path, kind)
    found = np.concatenate([batch for _, batch in open_source(text).batches(25)])
    np.testing.assert_array_equal(found, known)
    model = OnlineNMF(**SETTINGS, missing="nan").fit(open_source(text))
    expected = OnlineNMF(**SETTINGS, missing="nan", shuffle=False).fit(known)
    np.testing.assert_array_equal(model.components_, expected.components_)
    H = np.concatenate(list(model.transform(open_source(text))))
    np.testing.assert_allclose(H, expected.transform(known), rtol=1e-9)
    with pytest.raises(ValueError, match=r"NaN in the data at row .*missing='nan' \(--missing nan\)"):
        OnlineNMF(**SETTINGS).fit(open_source(text))


def test_gaps_at_the_ends_of_a_line_are_gaps_and_what_is_no_number_is_still_named(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('a,b,c\n,,\n1,,\n,2,\n,,3\n"4","","6"\n')
    found = np.concatenate([batch for _, batch in open_source(tmp_path / "x.csv").batches(2)])
    nan = np.nan
    np.testing.assert_array_equal(found, [[nan] * 3, [1, nan, nan], [nan, 2, nan], [nan, nan, 3], [4, nan, 6]])
    (tmp_path / "x.csv").write_text("a,b,c\n1,,3\n1,NA,3\n,2\n")
    said: list[str] = []
    rows = [list(rows) for rows, _ in open_source(tmp_path / "x.csv").batches(5, on_bad=lambda e: said.append(str(e)))]
    assert rows == [[0]]
    assert ["'NA' is not a number at row 1, column 1 (b)" in said[0], "row 2 has 2 values" in said[1]] == [True, True]


@pytest.mark.parametrize("weight", ["", "&weight=w"], ids=["plain", "weighted"])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_row_that_cannot_be_read_is_skipped_and_no_sample_of_which_nothing_is_known(
    kind: str, weight: str, tmp_path: Path
) -> None:
    rows = [{"id": f"row {n}", "w": 1.0, "a": float(a), "b": float(b)} for n, (a, b) in enumerate(X[:40, :2])]
    rows[7] |= {"a": None}
    rows[20] |= {"b": "x"}
    if kind == "jsonl":
        text = "\n".join(map(json.dumps, rows))
    else:
        cells = [["" if cell is None else str(cell) for cell in row.values()] for row in rows]
        text = "\n".join(map(",".join, [["id", "w", "a", "b"], *cells]))
    (tmp_path / f"x.{kind}").write_text(text)
    chosen = ("features=a,b" if kind == "jsonl" else "columns=a,b") + weight
    source = open_source(f"{tmp_path}/x.{kind}?index=id&{chosen}")
    model = OnlineNMF(2, random_state=0, missing="nan", on_error="skip").fit(source)
    assert (model.n_skipped_, model.n_samples_seen_) == (1, 39)
    assert "x" in model.skipped_[0]
    assert "is not a number at row row 20" in model.skipped_[0]
    said: list[str] = []
    H = np.concatenate([H for _, H in model.served(source, 16, lambda error: said.append(str(error)))])
    assert np.flatnonzero(np.isnan(H).any(axis=1)).tolist() == [20]
    assert len(said) == 1


# The command line


def onmf(*arguments: Any, status: int = 0) -> str:
    result = runner.invoke(cli.app, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output
    return result.output


def test_the_command_line_learns_from_gaps_and_transforms_them(tmp_path: Path) -> None:
    text, known = gaps(tmp_path, "csv")
    out, H = tmp_path / "model.safetensors", tmp_path / "H.npy"
    onmf("fit", text, "-k", 3, "--seed", 0, "--batch-size", 30, "--missing", "nan", "--no-shuffle", "--out", out)
    expected = OnlineNMF(**SETTINGS, missing="nan", shuffle=False).fit(known)
    np.testing.assert_array_equal(load(out).components_, expected.components_)
    onmf("transform", out, text, "--out", H)
    np.testing.assert_allclose(np.load(H), expected.transform(known), rtol=1e-9)
    facts = json.loads(onmf("info", out, "--json"))
    assert facts["other_settings"]["missing"] == "nan"
    assert (facts["features_always_missing"], facts["samples_with_nothing_but_missing_entries"]) == (0, 0)
    onmf("fit", text, "--from", out, "--out", tmp_path / "more.safetensors")
    assert load(tmp_path / "more.safetensors").n_samples_seen_ == 2 * N


def test_the_command_line_learns_from_ratings_and_from_weighted_rows(tmp_path: Path) -> None:
    rated = rng.random(X.shape) < 0.5
    rated[:, 0] = True
    ratings = scipy.sparse.csr_matrix(np.where(rated, X, 0))
    scipy.sparse.save_npz(tmp_path / "ratings.npz", ratings)
    out = tmp_path / "model.safetensors"
    common = "-k", 3, "--seed", 0, "--batch-size", 30, "--out", out
    onmf("fit", tmp_path / "ratings.npz", "--implicit", "missing", *common)
    expected = OnlineNMF(**SETTINGS, implicit="missing").fit(ratings)
    np.testing.assert_array_equal(load(out).components_, expected.components_)
    onmf("transform", out, tmp_path / "ratings.npz", "--out", tmp_path / "H.npy")
    np.testing.assert_allclose(np.load(tmp_path / "H.npy"), expected.transform(ratings), rtol=1e-9)
    onmf("fit", written(tmp_path, "parquet"), *common)
    weighted = OnlineNMF(**SETTINGS, shuffle=False).fit(X, sample_weight=W)
    np.testing.assert_array_equal(load(out).components_, weighted.components_)


@pytest.mark.parametrize("option", [("--missing", "NA"), ("--implicit", "nan")])
def test_the_command_line_refuses_other_values(option: tuple[str, str], tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    result = runner.invoke(cli.app, ["fit", f"{tmp_path}/x.npy", "--out", f"{tmp_path}/m", *option])
    assert result.exit_code == 2
    assert f"Invalid value for '{option[0]}': " in result.output
    assert not (tmp_path / "m").exists()
