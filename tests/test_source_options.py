"""A model knows how the features of its source were made: data for it are read alike, and contradictions refused."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from typer.testing import CliRunner

from onmf import OnlineNMF, load, save
from onmf.cli import main as cli
from onmf.data import (
    Rows,
    Source,
    SourceError,
    Spec,
    open_source,
    prefetch,
    rebatch,
    register,
    registry,
    repeat,
    scale,
    shuffle,
    take,
)

from .test_texts import lines, written

rng = np.random.default_rng(0)


def texts(folder: Path) -> str:
    return str(written(folder, lines()))


def pictures(folder: Path) -> str:
    image = pytest.importorskip("PIL.Image")
    for number, width in enumerate((6, 9, 9, 9)):
        image.fromarray(rng.integers(1, 255, (5, width, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    return f"images:{folder}"


def sound(folder: Path) -> str:
    pytest.importorskip("soundfile").write(folder / "x.wav", rng.normal(size=3000) / 9, 8000)
    return f"{folder}/x.wav"


def invoke(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, [*map(str, arguments)], env={"COLUMNS": "200"})
    assert isinstance(result.exception, (SystemExit, SourceError, type(None))), result.exception
    return result.exit_code, f"{result.output}{result.exception}"


def whole(source: Source) -> np.ndarray:
    return np.concatenate([scipy.sparse.csr_array(batch).toarray() for _, batch in source.batches(9)])


CASES: dict[str, tuple[Callable[[Path], str], str, dict[str, Any], str]] = {
    # what writes the data; the options it is learnt with, as they are remembered; one that contradicts them
    "words": (texts, "words=8&max_df=0.5", {"words": 8, "max_df": 0.5, "ngrams": 1, "tfidf": False}, "words=9"),
    "weights": (texts, "words=8&tfidf=yes&stop=english", {"tfidf": True, "stop": "english"}, "tfidf=no"),
    "pairs": (texts, "words=30&ngrams=2", {"words": 30, "ngrams": 2}, "hashed=30"),
    "hashed": (texts, "hashed=32&stop=english", {"hashed": 32, "stop": "english"}, "hashed=64"),
    "words by themselves": (texts, "", {"words": 10_000, "min_df": 1}, "words=5"),
    "size": (pictures, "size=4x3&colour=rgb", {"size": "4x3", "colour": "rgb"}, "colour=grey"),
    "size of the first": (pictures, "", {"size": "6x5", "colour": "grey"}, "size=9x5"),
    "window": (sound, "window=64&hop=16", {"window": 64, "hop": 16}, "hop=32"),
    "hop by itself": (sound, "window=64", {"window": 64, "hop": 32}, "window=128"),
}


@pytest.mark.parametrize("case", CASES)
def test_transform_reads_data_as_the_model_did(case: str, tmp_path: Path) -> None:
    write, options, remembered, contradiction = CASES[case]
    data, out, H = write(tmp_path), tmp_path / "m.safetensors", tmp_path / "h.csv"
    given = f"{data}?{options}" if options else data
    code, output = invoke("fit", given, "-k", 2, "--batch-size", 20, "--out", out)
    assert code == 0, output
    spec = load(out).source_
    assert remembered.items() <= spec.options.items()
    rows = {}
    for where in (data, given):  # left out, or given again
        source = open_source(where, like=spec)
        np.testing.assert_array_equal(whole(source), whole(open_source(given)))
        assert source.spec == spec
        assert invoke("transform", out, where, "--out", H)[0] == 0
        rows[where] = H.read_text()
    assert rows[data] == rows[given]
    name = contradiction.partition("=")[0]
    kept = {True: "yes"}.get(spec.options.get(name), spec.options.get(name))
    expected = f"no {name}=" if kept is None else f"{name}={kept}"
    code, output = invoke("transform", out, f"{data}?{contradiction}", "--out", H)
    assert code != 0
    assert f"{contradiction} contradicts the model, which was learnt with {expected}; leave it out" in output


def test_a_field_of_json_is_remembered(tmp_path: Path) -> None:
    path = written(tmp_path, [f'{{"body": "{each}"}}' for each in lines()], "x.jsonl")
    spec = open_source(f"{path}?field=body&words=5").spec
    assert spec is not None
    assert whole(open_source(path, like=spec)).shape == (60, 5)
    assert whole(open_source(texts(tmp_path), like=spec)).shape == (60, 5)  # plain lines have no field
    with pytest.raises(SourceError, match="field=title contradicts the model, which was learnt with field=body"):
        open_source(f"{path}?field=title", like=spec)


def test_options_may_be_longer_than_the_name_of_a_file(tmp_path: Path) -> None:
    names = [f"sensor_{number}" for number in range(100)]
    (tmp_path / "x.jsonl").write_text(json.dumps(dict.fromkeys(names, 1)) + "\n")
    source = open_source(f"{tmp_path}/x.jsonl?features={','.join(names)}")
    assert source.feature_names == names


def test_what_does_not_shape_the_features_may_differ(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("1,2\n3,4\n")
    spec = open_source(f"{tmp_path}/a.csv?header=no").spec
    assert open_source(f"{tmp_path}/b.csv?header=yes", like=spec).n_samples == 1
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a"], file["b"] = np.ones((3, 2)), np.ones((4, 2))
    spec = open_source(f"{tmp_path}/x.h5?name=a").spec
    assert open_source(f"{tmp_path}/x.h5?name=b", like=spec).n_samples == 4


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A scheme that chooses columns by their names, and a file for it."""
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))

    @register("named", [".named"], feature_options=["columns", "factor"])
    def named(path: Path, columns: list[str] | None = None, factor: float = 1.0) -> Source:
        known = ["a", "b, c", "d"]
        source = Rows(np.array([[1.0, 2.0, 3.0]])[:, [known.index(name) for name in columns or known]] * factor)
        source.feature_names = columns or known
        return source

    (tmp_path / "x.named").touch()
    return f"{tmp_path}/x.named"


def test_columns_are_found_by_the_names_that_the_model_has(table: str) -> None:
    assert whole(open_source(f'{table}?columns="b, c",a&factor=2')).tolist() == [[4, 2]]
    for like in (Spec("parquet", {}, ("d", "a")), Spec(names=("d", "a")), open_source(f"{table}?columns=d,a").spec):
        for where in (table, f"{table}?columns=a,d"):
            source = open_source(where, like=like)
            assert (source.feature_names, whole(source).tolist()) == (["d", "a"], [[3, 1]])
        with pytest.raises(SourceError, match=r'columns=a,"b, c" contradicts the model, .* with columns=d,a;'):
            open_source(f'{table}?columns=a,"b, c"', like=like)


def test_of_another_scheme_only_what_both_have_is_applied(table: str, tmp_path: Path) -> None:
    assert whole(open_source(table, like=Spec("other", {"factor": 3, "size": "2x2"}))).tolist() == [[3, 6, 9]]
    with pytest.raises(SourceError, match=r"factor=2 contradicts the model, which was learnt with factor=3"):
        open_source(f"{table}?factor=2", like=Spec("other", {"factor": 3}))
    assert whole(open_source(f"{table}?factor=2", like=Spec("other"))).tolist() == [[2, 4, 6]]
    for odd in ("large", True, ["1"]):
        with pytest.raises(SourceError, match=r"the model has factor=.*, where named takes a number"):
            open_source(table, like=Spec("other", {"factor": odd}))


def test_weights_that_a_damaged_model_has_are_refused(tmp_path: Path) -> None:
    path = texts(tmp_path)
    for idf in (None, 3, "high", [1.0], [1.0, "high"], [1.0, -1.0], [1, 1]):
        options = {"tfidf": True} if idf is None else {"tfidf": True, "idf": idf}
        with pytest.raises(SourceError, match="does not have the weights of its words"):
            open_source(path, like=Spec("text", options, ("cat", "dog")))
    with pytest.raises(SourceError, match="names that occur twice"):
        open_source(path, like=Spec("text", {}, ("cat", "cat")))


def test_tools_files_and_pickles_keep_how_features_are_made(tmp_path: Path) -> None:
    source = open_source(f"{texts(tmp_path)}?words=8&tfidf=yes")
    tools = (
        prefetch(source),
        rebatch(source, 5),
        scale(source, 2),
        repeat(source, 2),
        take(source, 9),
        shuffle(source),
    )
    assert all(tool.spec is source.spec for tool in tools)
    model = OnlineNMF(2, random_state=0).fit(shuffle(source))
    save(model, tmp_path / "m.safetensors")
    for again in (model, load(tmp_path / "m.safetensors"), pickle.loads(pickle.dumps(model))):  # noqa: S301
        assert again.source_ == source.spec
        assert again.partial_fit(np.ones((2, 8))).source_ == source.spec
    assert OnlineNMF(2).fit(np.ones((9, 4))).source_ == Spec()


def test_a_checkpoint_keeps_how_features_are_made(tmp_path: Path) -> None:
    source = open_source(f"{texts(tmp_path)}?hashed=16")
    OnlineNMF(2, random_state=0).fit(source, checkpoint=tmp_path / "run.safetensors")
    assert load(tmp_path / "run.safetensors").source_ == source.spec
    again = OnlineNMF(2, random_state=0).fit(source, checkpoint=tmp_path / "run.safetensors", resume=True)
    assert again.source_ == source.spec


def test_info_shows_how_features_are_made(tmp_path: Path) -> None:
    out = tmp_path / "m.safetensors"
    assert invoke("fit", f"{texts(tmp_path)}?words=9&tfidf=yes", "-k", 2, "--out", out)[0] == 0
    assert re.search(r"source .* text, ngrams=1, tfidf=yes, words=9 ", invoke("info", out)[1])
    save(OnlineNMF(2).fit(np.ones((9, 4))), out)
    assert re.search(r"source .* arrays ", invoke("info", out)[1])


TABLES = ("x.csv", "x.csv?drop=time", "x.csv?columns=c,b,a", "y.csv", "y.csv?index=time", "plain.csv", "x.jsonl")


@pytest.mark.parametrize("learnt", ["x.csv?drop=time", "x.csv?columns=a,b,c", "x.jsonl?features=a,b,c", "x.parquet"])
def test_tables_are_aligned_by_the_names_that_a_model_has(learnt: str, tmp_path: Path) -> None:
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(rng.random((20, 3)).round(3), columns=["a", "b", "c"])
    frame.to_csv(tmp_path / "plain.csv", index=False, header=False)
    frame.to_parquet(tmp_path / "x.parquet", index=False)
    frame["time"] = range(20)
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame[["c", "time", "b", "a"]].to_csv(tmp_path / "y.csv", index=False)
    frame.to_json(tmp_path / "x.jsonl", orient="records", lines=True)
    like = open_source(f"{tmp_path}/{learnt}").spec
    for where in (*TABLES, "x.parquet"):
        found = whole(open_source(f"{tmp_path}/{where}", like=like))
        np.testing.assert_allclose(found, frame[["a", "b", "c"]], err_msg=where)


def test_columns_without_names_are_remembered_by_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,2,3\n4,5,6\n")
    like = open_source(f"{tmp_path}/x.csv?drop=1").spec
    for options in ("", "?drop=1", "?columns=0,2"):
        assert whole(open_source(f"{tmp_path}/x.csv{options}", like=like)).tolist() == [[1, 3], [4, 6]]


def test_a_source_of_pictures_knows_their_shape(tmp_path: Path) -> None:
    folder = pictures(tmp_path)
    for options, shape in (("", (5, 6)), ("?size=4x3&colour=rgb", (3, 4, 3))):
        source = open_source(f"{folder}{options}")
        assert source.spec is not None
        assert source.spec.picture == shape
        assert next(iter(source.batches(1)))[1].size == np.prod(shape)
    assert Spec("audio", {"window": 64}).picture is None
    assert Spec("images", {}).picture is None
