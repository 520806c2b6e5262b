"""Pictures: atoms as tiles, galleries as files, and a plain word where Matplotlib is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from onmf.plots import gallery, tiles

PNG = b"\x89PNG\r\n\x1a\n"


def test_tiles_stand_in_rows_with_a_gap_of_one_grey_pixel(rng: np.random.Generator) -> None:
    atoms = rng.random((6, 9)) * 0.5
    sheet = tiles(atoms, side=3, columns=4)
    assert sheet.shape == (2 * 4 - 1, 4 * 4 - 1)
    assert (sheet[3] == 0.5).all()
    assert (sheet[:, 3::4] == 0.5).all()
    for k, atom in enumerate(atoms):
        top, left = 4 * (k // 4), 4 * (k % 4)
        assert np.allclose(sheet[top : top + 3, left : left + 3], atom.reshape(3, 3) / atom.max())
    assert (sheet[4:, 8:] == 0.5).all()  # no atoms there


@pytest.mark.parametrize(("K", "columns", "rows"), [(1, 4, 1), (4, 4, 1), (5, 4, 2), (3, 1, 3)])
def test_tiles_take_as_many_rows_as_they_need(K: int, columns: int, rows: int) -> None:
    assert tiles(np.ones((K, 4)), side=2, columns=columns).shape == (rows * 3 - 1, columns * 3 - 1)


def test_every_tile_is_scaled_to_its_own_maximum_and_an_empty_one_is_black() -> None:
    sheet = tiles(np.array([[0.0, 0.001], [0.0, 1.0], [0.0, 0.0]]).repeat(2, axis=1), side=2, columns=3)
    assert [sheet[:2, left : left + 2].max() for left in (0, 3, 6)] == [1, 1, 0]


@pytest.mark.parametrize("count", [1, 3, 4])
def test_a_gallery_is_a_png_file(tmp_path: Path, rng: np.random.Generator, count: int) -> None:
    path = tmp_path / "gallery.png"
    gallery([(f"picture {k}", rng.random((6, 8))) for k in range(count)]).savefig(path)
    assert path.read_bytes().startswith(PNG)


def test_a_gallery_shows_its_pictures_as_they_are(tmp_path: Path) -> None:
    matplotlib_image = pytest.importorskip("matplotlib.image")
    path = tmp_path / "gallery.png"
    gallery([("black", np.zeros((10, 10))), ("white", np.ones((10, 10)))], columns=2).savefig(path)
    picture = matplotlib_image.imread(path)[..., :3]
    height, width, _ = picture.shape
    assert (picture[height // 2, width // 4] == 0).all()
    assert (picture[height // 2, 3 * width // 4] == 1).all()


@pytest.mark.parametrize("module", ["matplotlib.figure", "matplotlib.backends.backend_agg"])
def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match=r"Matplotlib; install onmf\[plots\]"):
        gallery([("one", np.ones((2, 2)))])
