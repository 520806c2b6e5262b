"""Scenes as people have them: cubes, masked arrays, and the files of MATLAB and ENVI."""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from onmf import BatchNMF, OnlineNMF, plots
from onmf.data import Batches, Rows, SourceError, open_source

ROWS, COLUMNS, BANDS = 4, 10, 7
CUBE = np.random.default_rng(0).gamma(1.0, 1.0, (ROWS, COLUMNS, BANDS))
PIXELS = CUBE.reshape(-1, BANDS)
NODATA = np.zeros(PIXELS.shape, dtype=bool)
NODATA[::3, 2] = True
MASKED = np.ma.masked_array(np.where(NODATA, 9999.0, PIXELS), NODATA)
WITH_NAN = np.where(NODATA, np.nan, PIXELS)


def read(text: str) -> np.ndarray:
    """All rows that a source has, in their order."""
    return np.concatenate([batch for _, batch in open_source(text).batches(9)])


# Masked arrays

given = pytest.mark.parametrize("give", [lambda X: X, Rows, lambda X: Batches([X])], ids=["array", "Rows", "Batches"])


@given
def test_masked_entries_are_missing(give: Callable[[Any], Any]) -> None:
    settings: dict[str, Any] = {"missing": "nan", "shuffle": False, "random_state": 0}
    masked, plain = (OnlineNMF(2, **settings).fit(give(X)) for X in (MASKED, WITH_NAN))
    np.testing.assert_array_equal(masked.components_, plain.components_)
    np.testing.assert_array_equal(masked.transform(MASKED), plain.transform(WITH_NAN))


@given
def test_masked_entries_raise_an_error_with_its_cure_where_nothing_is_missing(give: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match=r"row 0, column 2 .*missing=.nan.*masked"):
        OnlineNMF(2, shuffle=False).fit(give(MASKED))


def test_a_masked_array_without_masked_entries_is_an_array() -> None:
    plain, masked = (OnlineNMF(2, random_state=0).fit(X) for X in (PIXELS, np.ma.masked_array(PIXELS)))
    np.testing.assert_array_equal(plain.components_, masked.components_)


# Cubes


@pytest.mark.parametrize("estimator", [OnlineNMF, BatchNMF])
def test_a_cube_is_its_pixels_row_by_row(estimator: Any) -> None:
    model, plain = (estimator(2, random_state=0).fit(X) for X in (CUBE, PIXELS))
    np.testing.assert_array_equal(model.components_, plain.components_)
    np.testing.assert_array_equal(model.transform(CUBE), plain.transform(PIXELS))
    assert model.loss(CUBE) == plain.loss(PIXELS)


def test_entries_of_a_cube_are_weighed_by_a_cube() -> None:
    weights = np.random.default_rng(1).uniform(0.5, 1, CUBE.shape)
    model = OnlineNMF(2, random_state=0).fit(CUBE, weights=weights)
    plain = OnlineNMF(2, random_state=0).fit(PIXELS, weights=weights.reshape(PIXELS.shape))
    np.testing.assert_array_equal(model.components_, plain.components_)


def test_a_cube_in_a_file_is_its_pixels(tmp_path: Path) -> None:
    np.save(tmp_path / "cube.npy", CUBE)
    np.testing.assert_array_equal(read(f"{tmp_path}/cube.npy"), PIXELS)


# Files of MATLAB

BANDS_FIRST, TALL = np.ascontiguousarray(PIXELS.T), PIXELS


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(
    "name", ["V", "tall", "cube", "counts"]
)  # more pixels than bands, either way; a cube; numbers stored in a shorter type
def test_a_matlab_file_is_its_pixels(tmp_path: Path, name: str, compressed: bool) -> None:
    counts = np.arange(40).reshape(5, 8)
    content = {"V": BANDS_FIRST, "tall": TALL, "cube": CUBE, "counts": counts.astype(float), "nRow": 4.0, "text": "a"}
    scipy.io.savemat(
        tmp_path / "scene.mat", content | {"cell": np.array([1, "b"], dtype=object)}, do_compression=compressed
    )
    expected = {"V": PIXELS, "tall": PIXELS, "cube": PIXELS, "counts": counts.T}[name]
    np.testing.assert_array_equal(read(f"{tmp_path}/scene.mat?variable={name}"), expected)


def test_the_side_of_the_bands_can_be_given(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "few.mat", {"few": PIXELS[:3]})
    np.testing.assert_array_equal(read(f"{tmp_path}/few.mat"), PIXELS[:3].T)
    np.testing.assert_array_equal(read(f"{tmp_path}/few.mat?bands=last"), PIXELS[:3])
    scipy.io.savemat(tmp_path / "cube.mat", {"cube": np.moveaxis(CUBE, -1, 0)})
    np.testing.assert_array_equal(read(f"{tmp_path}/cube.mat?bands=first"), PIXELS)


@pytest.mark.parametrize("cube", [False, True])
def test_a_matlab_file_of_version_7_3_is_its_pixels(tmp_path: Path, cube: bool) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "new.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["V"] = CUBE.T if cube else BANDS_FIRST.T  # MATLAB's axes in reverse order
        file["nRow"] = np.ones((1, 1))
    path.write_bytes(b"MATLAB 7.3 MAT-file" + path.read_bytes()[19:])
    np.testing.assert_array_equal(read(str(path)), PIXELS)


def test_a_matlab_file_of_several_matrices_lists_them(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "two.mat", {"V": BANDS_FIRST, "M": TALL})
    with pytest.raises(SourceError, match=r"the matrices \['V', 'M'\]; name one .*\?variable=NAME"):
        open_source(f"{tmp_path}/two.mat")
    with pytest.raises(SourceError, match=r"the matrices \['V', 'M'\]; name one"):
        open_source(f"{tmp_path}/two.mat?variable=W")


@pytest.mark.parametrize("compressed", [False, True])
def test_a_damaged_matlab_file_raises_one_sentence(tmp_path: Path, compressed: bool) -> None:
    path, rng = tmp_path / "scene.mat", np.random.default_rng(0)
    scipy.io.savemat(path, {"V": BANDS_FIRST, "cell": np.array([1, "b"], dtype=object)}, do_compression=compressed)
    whole = path.read_bytes()
    for _ in range(300):
        damaged = bytearray(whole[: rng.integers(1, len(whole) + 1)] if rng.random() < 0.3 else whole)
        for place in rng.integers(0, min(len(damaged), 400), 3):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        with contextlib.suppress(SourceError):  # no other error, and no crash
            open_source(str(path))


def test_a_small_matlab_file_cannot_claim_all_memory(tmp_path: Path) -> None:
    n = 4_000_000
    flags, shape = struct.pack("<IIII", 6, 8, 6, 0), struct.pack("<IIii", 5, 8, n // 4, 4)
    matrix = flags + shape + struct.pack("<II", 1, 8) + b"bigname1" + struct.pack("<II", 9, 8 * n) + bytes(8 * n)
    packed = zlib.compress(struct.pack("<II", 14, len(matrix)) + matrix)
    header = b"MATLAB 5.0".ljust(124) + struct.pack("<H", 0x0100) + b"IM"
    (tmp_path / "big.mat").write_bytes(header + struct.pack("<II", 15, len(packed)) + packed)
    assert open_source(f"{tmp_path}/big.mat").n_features == 4
    with pytest.raises(SourceError, match="memory"):
        open_source(f"{tmp_path}/big.mat?memory=10MB")


# Scenes of ENVI

CODES = {"u1": 1, "i2": 2, "f4": 4, "f8": 5, "u2": 12}
AXES = {"bsq": (2, 0, 1), "bil": (0, 2, 1), "bip": (0, 1, 2)}


def write_envi(folder: Path, interleave: str, dtype: str = "<f8", offset: int = 0, more: str = "") -> str:
    """Write CUBE and return the name of its header."""
    values = np.round(100 * CUBE) if dtype[1] in "iu" else CUBE
    content = np.ascontiguousarray(values.transpose(AXES[interleave]).astype(dtype)).tobytes()
    (folder / "scene.img").write_bytes(bytes(offset) + content)
    (folder / "scene.hdr").write_text(
        f"ENVI\ndescription = {{\n a scene = of ours}}\nsamples = {COLUMNS}\nlines   = {ROWS}\nbands   = {BANDS}\n"
        f"header offset = {offset}\nfile type = ENVI Standard\ndata type = {CODES[dtype[1:]]}\n"
        f"interleave = {interleave}\nbyte order = {int(dtype[0] == '>')}\n{more}"
    )
    return f"{folder}/scene.hdr"


@pytest.mark.parametrize("dtype", ["<f8", ">f4", "<u2", ">i2"])
@pytest.mark.parametrize("interleave", AXES)
def test_a_scene_of_envi_is_its_pixels(tmp_path: Path, interleave: str, dtype: str) -> None:
    found = read(write_envi(tmp_path, interleave, dtype, offset=12))
    expected = np.round(100 * PIXELS) if dtype[1] in "iu" else PIXELS
    np.testing.assert_array_equal(found, expected.astype(dtype))


def test_a_scene_of_envi_is_learnt_as_its_array_is(tmp_path: Path) -> None:
    source = open_source(write_envi(tmp_path, "bil", more="wavelength = {400, 410, 420,\n 430, 440, 450, 460}\n"))
    models = [OnlineNMF(2, random_state=0).fit(X) for X in (source, Rows(PIXELS))]
    np.testing.assert_array_equal(models[0].components_, models[1].components_)
    assert models[0].feature_names_in_.tolist() == ["400", "410", "420", "430", "440", "450", "460"]


def test_the_nodata_of_envi_is_missing(tmp_path: Path) -> None:
    header = write_envi(tmp_path, "bsq", "<i2", more="data ignore value = 100\n")
    found, expected = read(header), np.round(100 * PIXELS)
    assert np.isnan(found[expected == 100]).all()
    np.testing.assert_array_equal(found[expected != 100], expected[expected != 100])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ENVI\n", "DNVI\n"),
        ("lines   = 4", "lines = 4000000000"),
        ("lines   = 4", "lines = -4"),
        ("lines   = 4", "lines = many"),
        ("bands   = 7\n", ""),
        ("data type = 5", "data type = 6"),
        ("interleave = bsq", "interleave = bqs"),
        ("byte order = 0", "byte order = 7"),
        ("header offset = 0", "header offset = -8"),
    ],
)
def test_a_header_of_envi_that_does_not_fit_raises_one_sentence(tmp_path: Path, old: str, new: str) -> None:
    header = Path(write_envi(tmp_path, "bsq"))
    assert old in header.read_text()
    header.write_text(header.read_text().replace(old, new))
    with pytest.raises(SourceError, match="scene"):
        open_source(str(header))


def test_a_header_of_envi_without_its_scene_says_so(tmp_path: Path) -> None:
    header = write_envi(tmp_path, "bsq")
    (tmp_path / "scene.img").unlink()
    with pytest.raises(SourceError, match="put them beside it"):
        open_source(header)


# Maps


def test_maps_are_the_coefficients_of_the_pixels_where_these_are() -> None:
    H = np.random.default_rng(0).random((ROWS * COLUMNS, 3))
    pictures = H.reshape(ROWS, COLUMNS, 3)
    columnwise = pictures.transpose(1, 0, 2).reshape(-1, 3)
    for ax in (
        plots.maps(H, (ROWS, COLUMNS)),
        plots.maps(pictures),
        plots.maps(columnwise, (ROWS, COLUMNS), order="F"),
    ):
        (image,) = ax.get_images()
        drawn = image.get_array()
        for k in range(3):
            found = drawn[:, k * (COLUMNS + 1) : k * (COLUMNS + 1) + COLUMNS]
            np.testing.assert_allclose(found, pictures[..., k] / pictures[..., k].max())


def test_maps_need_the_shape_of_the_scene() -> None:
    with pytest.raises(ValueError, match=r"shape=\(rows, columns\); got \(40, 3\)"):
        plots.maps(np.ones((40, 3)), (4, 9))
