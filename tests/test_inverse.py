"""``onmf inverse``: fits in the data's units and under their names, aligned with the samples; pictures as pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import onmf
from onmf import OnlineNMF
from onmf.cli import main as cli
from onmf.data import Rows, open_source

K, N = 3, 60
NAMES = ["iron", "copper, pure", "tin", "lead", "zinc"]
X = 1000 * np.random.default_rng(0).gamma(2.0, 1.0, (N, K)) @ np.random.default_rng(1).random((K, len(NAMES)))
FILES = ["f.csv", "f.tsv", "f.jsonl", "f.parquet", "f.npy"]


def table(rows: np.ndarray, path: str = "x.csv", index: bool = False) -> None:
    names = [f'"{name}"' for name in NAMES]
    lines = [",".join([*(["id"] if index else []), *names])]
    lines += [",".join([*([f"day {n}"] if index else []), *map(repr, row.tolist())]) for n, row in enumerate(rows)]
    Path(path).write_text("\n".join(lines) + "\n")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OnlineNMF:
    """In a folder with its file and its data."""
    monkeypatch.chdir(tmp_path)
    table(X)
    nmf = OnlineNMF(K, random_state=0, divergence="kl").fit(open_source("x.csv"))
    onmf.save(nmf, "m")
    return nmf


def run(*arguments: object, fails: bool = False, given: str | None = None) -> Any:
    result = CliRunner().invoke(cli.app, [*map(str, arguments)], input=given, env={"COLUMNS": "200"})
    assert (result.exception is not None) == fails, result.output
    return result


def read(path: str, names: list[str] = NAMES) -> tuple[np.ndarray, list[str] | None]:
    """The numbers of a file, and the names of its rows."""
    import pandas as pd

    if path.endswith(".npy"):
        return np.load(path), None
    if path.endswith(".jsonl"):
        frame = pd.DataFrame([json.loads(line) for line in Path(path).read_text().splitlines()])
    elif path.endswith(".parquet"):
        frame = pd.read_parquet(path)
    else:
        frame = pd.read_csv(path, sep="\t" if path.endswith(".tsv") else ",")
    index = frame.columns[0] if frame.columns[0] not in names else None
    assert list(frame.columns) == [*([] if index is None else [index]), *names]
    return frame[names].to_numpy(dtype=float), None if index is None else list(frame[index])


def H(model: OnlineNMF) -> np.ndarray:
    """The coefficients of X."""
    import pandas as pd

    return model.transform(pd.DataFrame(X, columns=NAMES))


# Numbers


@pytest.mark.parametrize("out", FILES)
def test_every_output_holds_the_fits_in_the_datas_units_under_its_names(model: OnlineNMF, out: str) -> None:
    said = run("inverse", "m", "x.csv", "-o", out, "--batch-size", 7).stdout
    assert said == f"{out}: fits of {N} samples, {len(NAMES)} each.\n"
    fits = H(model) @ model.components_
    np.testing.assert_allclose(read(out)[0], fits, rtol=1e-6)
    assert np.abs(fits - X).max() < 0.05 * X.max()


@pytest.mark.parametrize("out", FILES)
def test_coefficients_that_transform_has_written_give_the_same_fits(model: OnlineNMF, out: str) -> None:
    table(X, "named.csv", index=True)
    h = out.replace("f.", "h.")
    run("transform", "m", "named.csv?index=id", "-o", h)
    options = "" if out.endswith(".npy") else "?index=id"
    run("inverse", "m", h + options, "--coefficients", "-o", out)
    run("inverse", "m", "named.csv?index=id", "-o", "direct.csv")
    found, names = read(out)
    expected, days = read("direct.csv")
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert names == (None if out.endswith(".npy") else days)
    run("inverse", "m", h, "--coefficients", "-o", out)  # without the names of rows
    np.testing.assert_allclose(read(out)[0], expected, rtol=1e-6)


def test_fits_come_and_go_through_pipes(model: OnlineNMF) -> None:
    result = run("inverse", "m", "csv:-", "-o", "-", given=Path("x.csv").read_text())
    assert f"standard output: fits of {N} samples" in result.stderr
    Path("out.csv").write_text(result.stdout)
    np.testing.assert_allclose(read("out.csv")[0], H(model) @ model.components_, rtol=1e-6)


def test_bad_rows_are_refused_by_number_or_stay_where_they_were_as_nan(model: OnlineNMF) -> None:
    bad = X.copy()
    bad[[4, 59], 2] = [-1.0, np.nan]
    table(bad)
    assert "row 4" in str(run("inverse", "m", "x.csv", "-o", "f.npy", fails=True).exception)
    assert not Path("f.npy").exists()
    said = run("inverse", "m", "x.csv", "-o", "f.npy", "--on-error", "skip").stderr
    assert f"2 of the {N} rows are NaN; the first reason: " in said
    fits = np.load("f.npy")
    assert np.flatnonzero(np.isnan(fits).any(axis=1)).tolist() == [4, 59]
    good = ~np.isnan(fits[:, 0])
    np.testing.assert_allclose(fits[good], (H(model) @ model.components_)[good], rtol=1e-6)
    run("transform", "m", "x.csv", "-o", "h.npy", "--on-error", "skip")
    assert "row 4" in str(run("inverse", "m", "h.npy", "--coefficients", "-o", "g.npy", fails=True).exception)
    run("inverse", "m", "h.npy", "--coefficients", "-o", "g.npy", "--on-error", "skip")
    np.testing.assert_allclose(np.load("g.npy"), fits, rtol=1e-6)


def test_a_source_is_reconstructed_batch_by_batch_in_python(model: OnlineNMF) -> None:
    parts = list(model.reconstructed(Rows(X), 25))
    assert [len(rows) for rows, _ in parts] == [25, 25, 10]
    fits = np.concatenate([fit for _, fit in parts])
    np.testing.assert_allclose(fits, model.inverse_transform(H(model)), rtol=1e-9)
    again = model.reconstructed(Rows(H(model)), 25, coefficients=True)
    np.testing.assert_allclose(np.concatenate([fit for _, fit in again]), fits, rtol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("m -o f.npy", "give either DATA or --components"),
        ("m x.csv --components -o f", "give either DATA or --components"),
        ("m x.csv -o f", "m was not learnt from pictures; give --out a file: .csv, .jsonl, .npy, .parquet, .tsv, or -"),
        ("m --components -o f", "m was not learnt from pictures"),
        ("m --components -o f.npy", "--components writes pictures to a folder"),
        ("m x.csv -o f.h5ad", "cannot write samples to f.h5ad: use .csv, .jsonl, .npy, .parquet, .tsv, or - for CSV"),
        ("m x.csv -o f.xyz", "cannot write samples to f.xyz: use"),
        ("m x.csv -o x.csv", "x.csv is an input"),
        ("m x.npy -o f.npy", "x.npy has 3 features, but m was learnt from 5"),
        (
            "m wide.npy --coefficients -o f.npy",
            "wide.npy does not hold coefficients of m, whose columns are component_0",
        ),
        ("m x.csv --coefficients -o f.npy", "component_0"),
    ],
)
def test_what_cannot_be_reconstructed_is_refused_in_a_sentence(model: OnlineNMF, arguments: str, message: str) -> None:
    np.save("x.npy", X[:, :3])
    np.save("wide.npy", X[:, :4])
    before = sorted(Path().iterdir())
    result = run("inverse", *arguments.split(), fails=True)
    said = result.stderr or str(result.exception)
    assert message in said
    assert "\n" not in said.strip()
    assert sorted(Path().iterdir()) == before


# Pictures


def faces(colour: str, folder: str, suffixes: tuple[str, ...] = (".png",), size: tuple[int, int] = (6, 4)) -> None:
    """A few parts, each present or not; pictures of that width and height."""
    from PIL import Image

    rng = np.random.default_rng(5)
    shape = (size[1], size[0], 3) if colour == "rgb" else (size[1], size[0])
    parts = rng.integers(0, 80, (3, *shape))
    for number in range(24):
        pixels = np.tensordot(rng.integers(0, 2, 3), parts, 1)
        name = Path(folder) / f"face-{number:02}{suffixes[number % len(suffixes)]}"
        name.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(name)


def pixels(path: Path | str) -> np.ndarray:
    from PIL import Image

    with Image.open(path) as picture:
        return np.asarray(picture)


@pytest.fixture
def pictures(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OnlineNMF:
    """A model of pictures, grey or in colour, in a folder with its file."""
    pytest.importorskip("PIL")
    monkeypatch.chdir(tmp_path)
    faces(request.param, "faces")
    data = open_source(f"images:faces?colour={request.param}")
    nmf = OnlineNMF(K, divergence="squared_l2", random_state=0, max_passes=20).fit(data)
    onmf.save(nmf, "m")
    return nmf


@pytest.mark.parametrize("pictures", ["grey", "rgb"], indirect=True)
def test_pictures_are_written_as_pictures_under_their_names(pictures: OnlineNMF) -> None:
    assert (
        run("inverse", "m", "images:faces", "-o", "fits").stdout
        == f"fits: fits of 24 samples, {pictures.n_features_in_} each.\n"
    )
    names = sorted(path.name for path in Path("faces").iterdir())
    assert sorted(path.name for path in Path("fits").iterdir()) == names
    shape = pictures.source_.picture
    samples = np.stack([pixels(f"faces/{name}") for name in names]).astype(np.float32)
    fits = pictures.inverse_transform(pictures.transform(samples.reshape(24, -1))).reshape(24, *shape)
    for name, fit in zip(names, fits, strict=True):
        found = pixels(f"fits/{name}")
        assert (found.shape, found.dtype) == (shape, np.uint8)
        assert np.abs(found - np.clip(fit, 0, 255)).max() <= 0.51
    run("transform", "m", "images:faces", "-o", "h.npy")
    run("inverse", "m", "h.npy", "--coefficients", "-o", "again")
    assert np.array_equal(pixels("again/sample-000007.png"), pixels(f"fits/{names[7]}"))


@pytest.mark.parametrize("pictures", ["grey"], indirect=True)
def test_pictures_of_any_format_size_and_folder_are_brought_to_the_models_and_bad_ones_left_out(
    pictures: OnlineNMF,
) -> None:
    faces("grey", "more/here", (".jpg", ".bmp", ".pgm", ".tif", ".gif", ".webp"), size=(12, 8))
    Path("more/here/face-03.tif").write_bytes(b"no picture")
    run("inverse", "m", "images:more/*/*", "-o", "fits", fails=True)
    said = run("inverse", "m", "images:more/*/*", "-o", "fits", "--on-error", "skip").stderr
    assert "1 of the 24 rows is without a picture; the first reason: more/here/face-03.tif" in said
    names = {path.relative_to("more") for path in Path("more").rglob("face*")} - {Path("here/face-03.tif")}
    assert {path.relative_to("fits") for path in Path("fits").rglob("face*")} == names
    assert {pixels(Path("fits") / name).shape[:2] for name in names} == {(4, 6)}  # WebP has no grey


@pytest.mark.parametrize("pictures", ["grey"], indirect=True)
def test_the_first_picture_of_a_folder_may_be_the_bad_one(pictures: OnlineNMF) -> None:
    faces("grey", "more")
    Path("more/face-00.png").write_bytes(b"")
    skip = ["--on-error", "skip"]
    for command in (["fit", "images:more"], ["transform", "m", "images:more"], ["inverse", "m", "images:more"]):
        said = run(*command, "-o", "out.npy", fails=True)
        assert "more/face-00.png cannot be read as a picture" in said.stderr + str(said.exception)
    said = run("fit", "images:more?size=6x4", "-k", K, "-o", "n", *skip)
    assert "1 sample or batch was skipped" in said.stderr
    assert onmf.load("n").n_samples_seen_ == 23
    run("transform", "m", "images:more", "-o", "h.npy", *skip)
    assert np.isnan(np.load("h.npy")).any(axis=1).tolist() == [True, *[False] * 23]
    said = run("inverse", "m", "images:more", "-o", "fits", *skip)
    assert said.stdout == "fits: fits of 23 samples, 24 each.\n"
    assert "1 of the 24 rows is without a picture; the first reason: more/face-00.png" in said.stderr
    assert sorted(path.name for path in Path("fits").iterdir()) == [f"face-{n:02}.png" for n in range(1, 24)]


@pytest.mark.parametrize("pictures", ["grey"], indirect=True)
def test_pictures_that_are_read_are_never_replaced(pictures: OnlineNMF) -> None:
    before = {path: path.read_bytes() for path in Path("faces").iterdir()}
    said = run("inverse", "m", "images:faces", "-o", "faces", fails=True).stderr
    assert "faces/face-00.png is an input; give --out another folder." in said
    assert {path: path.read_bytes() for path in Path("faces").iterdir()} == before


@pytest.mark.parametrize("pictures", ["grey", "rgb"], indirect=True)
def test_components_are_pictures_as_bright_as_can_be(pictures: OnlineNMF) -> None:
    assert run("inverse", "m", "--components", "-o", "parts").stdout == f"parts: {K} components.\n"
    assert sorted(path.name for path in Path("parts").iterdir()) == [f"component-0{k}.png" for k in range(K)]
    for k, component in enumerate(pictures.components_):
        expected = np.rint(255 * component / component.max()).reshape(pictures.source_.picture)
        assert np.array_equal(pixels(f"parts/component-0{k}.png"), expected)
