"""The demo: a photograph with 30 % of noise, and the promise that a robust divergence restores it better."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onmf.experiments import demo


@pytest.fixture(scope="module")
def photograph() -> np.ndarray:
    return demo.photograph()


@given(height=st.integers(demo.SIDE, 25), width=st.integers(demo.SIDE, 25), seed=st.integers(0, 2**32 - 1))
def test_a_picture_comes_back_from_its_patches(height: int, width: int, seed: int) -> None:
    picture = np.random.default_rng(seed).random((height, width))
    rows = demo.patches(picture)
    assert rows.shape == ((height - demo.SIDE + 1) * (width - demo.SIDE + 1), demo.SIDE**2)
    assert np.allclose(demo.from_patches(rows, picture.shape), picture)


def test_patches_are_the_windows_of_the_picture_row_by_row(rng: np.random.Generator) -> None:
    picture = rng.random((12, 15))
    rows = demo.patches(picture)
    i, j = 2, 5
    assert np.array_equal(rows[i * (15 - demo.SIDE + 1) + j].reshape(8, 8), picture[i : i + 8, j : j + 8])


def test_a_pixel_is_the_average_over_the_patches_that_show_it() -> None:
    rows = np.zeros((2, demo.SIDE**2))
    rows[1] = 1.0  # two patches of a picture one pixel wider than they
    picture = demo.from_patches(rows, (demo.SIDE, demo.SIDE + 1))
    assert np.array_equal(picture[0], [0, *[0.5] * (demo.SIDE - 1), 1])


def test_psnr_is_in_decibels_below_the_peak() -> None:
    clean = np.full((10, 10), 0.5)
    assert demo.psnr(clean + 0.1, clean) == pytest.approx(20)
    assert demo.psnr(clean + 0.01, clean) == pytest.approx(40)
    assert demo.psnr(np.full((10, 10), 7.0), np.zeros((10, 10))) == pytest.approx(0)  # clipped at the peak


def test_noise_replaces_its_share_of_the_pixels_and_no_others(rng: np.random.Generator) -> None:
    picture = np.full((200, 300), 0.5)
    noisy = demo.add_noise(picture, rng)
    replaced = noisy != picture
    assert replaced.mean() == pytest.approx(demo.NOISE_SHARE, abs=0.01)
    values = noisy[replaced]
    assert values.min() >= 0
    assert values.max() <= 1
    assert values.mean() == pytest.approx(0.5, abs=0.02)
    assert values.std() == pytest.approx(12**-0.5, abs=0.02)


def test_noise_is_repeatable_and_leaves_the_picture_alone() -> None:
    picture = np.full((20, 30), 0.5)
    one, same = (demo.add_noise(picture, np.random.default_rng(3)) for _ in range(2))
    assert np.array_equal(one, same)
    assert (picture == 0.5).all()


def test_the_median_filter_removes_a_single_wrong_pixel() -> None:
    picture = np.full((9, 9), 0.5)
    picture[4, 4] = 1.0
    result = demo.median(picture)
    assert (result.picture == 0.5).all()
    assert result.atoms is None
    assert result.seconds >= 0


def test_the_photograph_is_grey_and_between_0_and_1(photograph: np.ndarray) -> None:
    assert photograph.shape == (213, 320)
    assert photograph.min() >= 0
    assert photograph.max() <= 1
    assert photograph.std() > 0.1


def test_without_pillow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ModuleNotFoundError, match=r"install onmf\[plots\]"):
        demo.photograph()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_denoising_reports_its_progress_and_is_repeatable(photograph: np.ndarray) -> None:
    noisy = demo.add_noise(photograph[100:130, 100:140], np.random.default_rng(0))
    seen: list[int] = []
    one = demo.denoise(noisy, "squared_l2", 0, lambda progress: seen.append(progress.samples))
    same = demo.denoise(noisy, "squared_l2", 0)
    assert seen[-1] == len(demo.patches(noisy))
    assert one.picture.shape == noisy.shape
    assert one.atoms is not None
    assert one.atoms.shape == (demo.COMPONENTS, demo.SIDE**2)
    assert np.array_equal(one.picture, same.picture)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_huber_restores_the_photograph_better_than_squared_l2_and_than_a_median_filter(photograph: np.ndarray) -> None:
    middle = photograph[50:170, 80:240]
    noisy = demo.add_noise(middle, np.random.default_rng(0))
    huber, squared = (demo.psnr(demo.denoise(noisy, d, 0).picture, middle) for d in ("huber", "squared_l2"))
    assert huber >= squared + 2.5
    assert huber >= demo.psnr(demo.median(noisy).picture, middle) + 0.5
