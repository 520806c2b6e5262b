"""The demo: a photograph with 30 % of noise, and the promise that a robust divergence restores it better."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onmf.cli.demo import photograph as demo
from onmf.cli.demo import sound as demo_sound
from onmf.cli.demo import topics as demo_topics


@pytest.fixture(scope="module")
def photograph() -> np.ndarray:
    return demo.photograph()


@given(height=st.integers(demo.SIDE, 25), width=st.integers(demo.SIDE, 25), seed=st.integers(0, 2**32 - 1))
def test_a_picture_comes_back_from_its_patches(height: int, width: int, seed: int) -> None:
    picture = np.random.default_rng(seed).random((height, width))
    rows = demo.patches(picture)
    down, across = (-(-(length - demo.SIDE) // demo.STRIDE) + 1 for length in picture.shape)
    assert rows.shape == (down * across, demo.SIDE**2)
    assert np.allclose(demo.from_patches(rows, picture.shape), picture)


def test_patches_are_the_windows_of_the_picture_row_by_row(rng: np.random.Generator) -> None:
    side, stride = demo.SIDE, demo.STRIDE
    picture = rng.random((side + 2 * stride, side + 3 * stride))
    rows = demo.patches(picture)
    i, j = 2, 1
    window = picture[i * stride : i * stride + side, j * stride : j * stride + side]
    assert np.array_equal(rows[i * 4 + j].reshape(side, side), window)


def test_a_pixel_is_the_mean_over_the_patches_that_show_it_those_count_most_that_have_it_in_their_middle() -> None:
    rows = np.zeros((2, demo.SIDE**2))
    rows[1] = 1.0  # two patches of a picture one pixel wider than they
    row = demo.from_patches(rows, (demo.SIDE, demo.SIDE + 1))[0]
    assert (row[0], row[-1]) == (0, 1)
    assert (np.diff(row) > 0).all()  # no edge where a patch ends
    assert row[demo.SIDE // 2] == pytest.approx(0.5)


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
    assert result.components is None
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
    one = demo.denoise(noisy, "squared l2", 0, lambda progress: seen.append(progress.samples))
    same = demo.denoise(noisy, "squared l2", 0)
    assert seen[-1] == len(demo.patches(noisy))
    assert one.picture.shape == noisy.shape
    assert one.components is not None
    assert one.components.shape == (demo.COMPONENTS, demo.SIDE**2)
    assert np.array_equal(one.picture, same.picture)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_huber_restores_the_photograph_better_than_squared_l2_and_than_a_median_filter(photograph: np.ndarray) -> None:
    middle = photograph[50:170, 80:240]
    noisy = demo.add_noise(middle, np.random.default_rng(0))
    huber, squared = (demo.psnr(demo.denoise(noisy, d, 0).picture, middle) for d in demo.DIVERGENCES)
    assert huber >= squared + 3
    assert huber >= demo.psnr(demo.median(noisy).picture, middle) + 0.5


def test_nothing_of_a_grid_is_left_in_the_sky(photograph: np.ndarray) -> None:
    """A flat patch shows how patches are put together: equal weights would leave steps where they end."""
    sky = photograph[:60, 190:290]
    noisy = demo.add_noise(sky, np.random.default_rng(0))
    restored = demo.denoise(noisy, "Huber's loss", 0).picture
    assert (restored - sky)[14:-14, 14:-14].std() < 0.02
    assert (demo.median(noisy).picture - sky)[14:-14, 14:-14].std() > 0.04


def test_the_topics_of_the_docstrings_belong_to_their_packages() -> None:
    learnt = demo_topics.learn(0)
    assert np.allclose(learnt.shares.sum(axis=1), 1)
    first = {learnt.texts.words[topic.argmax()] for topic in learnt.topics}
    assert {"message", "element"} <= first
    xml = learnt.shares[learnt.texts.label_names.index("xml")]
    assert xml.max() > 0.4
    figure = demo_topics.figure(learnt)
    assert {text.get_text() for text in figure.axes[0].texts} > {"topic 0", "topic 9", *first}


@pytest.mark.parametrize("seed", [0, 1])
def test_every_note_of_the_tune_is_found_and_heard_where_it_is_played(seed: int) -> None:
    learnt = demo_sound.learn(seed)
    bin_width = demo_sound.RATE / demo_sound.WINDOW
    assert np.allclose(learnt.frequencies, list(demo_sound.NOTES.values()), atol=bin_width)
    assert learnt.right > 0.94
    roll = demo_sound.figure(learnt).axes[1]
    assert [label.get_text() for label in roll.get_yticklabels()] == [*list(demo_sound.NOTES)[::-1], "noise"]
    assert len(roll.patches) == len(demo_sound.score())
