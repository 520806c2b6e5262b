"""Pictures: each on one Axes, for few components and for many, readable by everybody; whole figures; no Matplotlib."""

from __future__ import annotations

import re
import sys
import warnings
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning

import onmf
from onmf import BatchNMF, OnlineNMF, RankSelection, plots
from onmf.data import open_source
from onmf.insight.convergence import LossCurve
from onmf.insight.features import frame_seconds, labelled_axis, names_of, numeric_axis
from onmf.insight.noise import assumed_power
from onmf.plots.drawing import COLOURS, HEAT, look
from tests.conftest import spread

PNG = b"\x89PNG\r\n\x1a\n"
N, F = 240, 144  # 12 x 12 pixels
FEW_AND_MANY = pytest.mark.parametrize("K", [5, 100])


def data() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.poisson(rng.gamma(0.3, 3, (N, 6)) @ rng.gamma(0.3, 3, (6, F)) + 0.2).astype(float)


X = data()
_models: dict[tuple[int, bool], Any] = {}


def model_of(K: int, *, named: bool = False) -> Any:
    """A model of K components; coefficients need not be precise to be drawn."""
    if (K, named) not in _models:
        given = pd.DataFrame(X, columns=[f"word{f}" for f in range(F)]) if named else X
        model = BatchNMF(K, divergence="kl", max_iter=3, random_state=0, transform_tol=1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            _models[K, named] = model.fit(given)
    return _models[K, named]


def run_of(seed: int, method: str = "auto") -> OnlineNMF:
    return OnlineNMF(5, method=method, batch_size=20, random_state=seed).fit(X)


SELECTION = RankSelection((2, 3, 4), np.array([[3.0, 3.1], [2.0, 2.1], [2.2, 2.4]]), np.array([0.99, 0.95, 0.7]))

PICTURES: dict[str, Callable[[int, Any], Any]] = {
    "components as pictures": lambda K, ax: plots.components(model_of(K), ax, shape=(12, 12)),
    "components in colour": lambda K, ax: plots.components(model_of(K), ax, shape=(6, 8, 3)),
    "components as spectra": lambda K, ax: plots.components(model_of(K), ax),
    "components as bars": lambda K, ax: plots.components(model_of(K, named=True), ax, n_words=2),
    "a matrix": lambda K, ax: plots.components(model_of(K).components_, ax, kind="bars", n_words=2),
    "topics": lambda K, ax: plots.topics(model_of(K, named=True), ax, n_words=4),
    "convergence": lambda K, ax: plots.convergence(model_of(K), ax),
    "reconstructed pictures": lambda K, ax: plots.reconstructions(model_of(K), X, ax, shape=(12, 12)),
    "reconstructed lines": lambda K, ax: plots.reconstructions(model_of(K), X, ax, choose="best"),
    "activations": lambda K, ax: plots.activations(model_of(K), X, ax),
    "activations of coefficients": lambda K, ax: plots.activations(np.ones((3000, K)), ax=ax),
    "residuals": lambda K, ax: plots.residuals(model_of(K), X, ax),
    "rank": lambda K, ax: plots.rank(SELECTION, ax),
}
every_picture = pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)


@pytest.fixture(autouse=True)
def no_figure_stays_open() -> Iterator[None]:
    """As a program without pyplot: figures are bare ones."""
    there = sys.modules.pop("matplotlib.pyplot", None)
    yield
    if there is not None:
        there.close("all")
        sys.modules["matplotlib.pyplot"] = there


def marks(ax: Any) -> int:
    """What is drawn: lines, shades, pictures, bars, words."""
    return len(ax.lines) + len(ax.images) + len(ax.collections) + len(ax.patches) + len(ax.texts)


def words(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts]


@pytest.mark.parametrize(("name", "K"), [("components as pictures", 100), *spread(PICTURES, [5, 100], 2)])
def test_every_picture_is_drawn_on_the_axes_given_and_on_new_ones(name: str, K: int, tmp_path: Path) -> None:
    draw = PICTURES[name]
    figure = plots.new_figure(4, 3)
    other, given = figure.subplots(1, 2)
    assert draw(K, given) is given
    assert marks(given) > 0
    assert marks(other) == 0
    ax = draw(K, None)
    assert ax.figure is not figure
    assert marks(ax) > 0
    ax.figure.savefig(tmp_path / "new.png", dpi=30)  # Matplotlib would warn of what does not fit
    assert (tmp_path / "new.png").read_bytes().startswith(PNG)
    assert "matplotlib.pyplot" not in sys.modules


def test_a_session_that_uses_pyplot_sees_the_new_figure() -> None:
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    ax = plots.components(model_of(5))
    assert set(pyplot.get_fignums()) - set(before) == {ax.figure.number}
    plots.components(model_of(5), plots.new_figure(2, 2).add_subplot())
    assert len(pyplot.get_fignums()) == len(before) + 1  # Axes of one's own leave pyplot alone
    pyplot.close(ax.figure)


def test_an_interactive_session_gets_a_figure_of_pyplot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "ps1", "In [1]: ", raising=False)
    ax = plots.convergence(model_of(5))
    from matplotlib import pyplot

    assert ax.figure.number in pyplot.get_fignums()
    pyplot.close(ax.figure)


# Readable by everybody


def lightness(colour: Any) -> float:
    from matplotlib.colors import to_rgb

    return float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114)))


def test_lines_differ_in_more_than_their_colour() -> None:
    models = {f"run {seed}": run_of(seed) for seed in range(3)} | {"paper": run_of(0, "paper")}
    lines = [line for line in plots.convergence(models).lines if not line.get_label().startswith("_")]
    assert [line.get_label() for line in lines] == list(models)
    assert len({line.get_linestyle() for line in lines}) == len(lines)
    assert len({line.get_marker() for line in lines}) == len(lines)


def test_a_hundred_lines_look_different() -> None:
    assert len({str(look(number)) for number in range(100)}) == 100


def test_neighbouring_colours_differ_in_grey_and_shades_darken_all_the_way() -> None:
    import matplotlib

    greys = [lightness(colour) for colour in COLOURS]
    assert np.abs(np.diff(greys)).min() > 0.07
    shades = [lightness(colour) for colour in matplotlib.colormaps[HEAT](np.linspace(0, 1, 64))]
    assert (np.diff(shades) < 0).all()


def test_the_law_and_the_data_are_told_apart_without_colour() -> None:
    law, found = [line for line in plots.residuals(model_of(5), X).lines if not line.get_label().startswith("_")]
    assert law.get_linestyle() != found.get_linestyle()
    assert found.get_marker() == "o"


# Components


def test_pictures_are_scaled_to_their_own_maximum_and_numbered_by_row_and_column() -> None:
    ax = plots.components(model_of(100), shape=(12, 12))
    sheet = ax.images[0].get_array()
    assert sheet.shape == (10 * 13 - 1, 10 * 13 - 1)
    W = model_of(100).components_
    assert np.allclose(sheet[13:25, 26:38].data, W[12].reshape(12, 12) / W[12].max())
    assert [label.get_text() for label in ax.get_yticklabels()] == [str(k) for k in range(0, 100, 10)]
    assert [label.get_text() for label in ax.get_xticklabels()] == [str(k) for k in range(10)]


def test_a_model_learnt_from_pictures_knows_their_shape(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for k in range(12):
        pixels = np.random.default_rng(k).integers(1, 255, (6, 9, 3), dtype=np.uint8)
        image.fromarray(pixels).save(tmp_path / f"{k}.png")
    source = open_source(f"images:{tmp_path}?colour=rgb")
    ax = plots.components(OnlineNMF(3, random_state=0).fit(source))
    assert ax.images[0].get_array().shape == (6, 3 * 10 - 1, 3)


def test_a_model_learnt_from_sound_has_frequencies_and_seconds(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    noise = np.random.default_rng(0).integers(-9000, 9000, 16000, dtype=np.int16)
    with wave.open(str(tmp_path / "x.wav"), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(noise.tobytes())
    source = open_source(str(tmp_path / "x.wav") + "?window=128&hop=32")
    model = OnlineNMF(3, divergence="is", random_state=0, transform_tol=1.0).fit(source)
    assert frame_seconds(model.source_, names_of(model)) == pytest.approx(32 / 8000)
    spectra, course = plots.components(model), plots.activations(model, source)
    assert spectra.get_xlabel() == "frequency (kHz)"
    assert spectra.get_xlim() == (0, 4)
    assert course.get_xlabel() == "seconds"
    assert course.get_xlim()[1] == pytest.approx(2, abs=0.05)
    assert plots.reconstructions(model, source).get_ylabel() == "row (60 dB each)"


@pytest.mark.parametrize(
    ("names", "told", "label"),
    [
        (["400 nm", "405 nm", "420.5 nm"], True, "wavelength (nm)"),
        (["0 Hz", "1500 Hz", "3000 Hz"], True, "frequency (kHz)"),
        (["1", "2", "4"], True, "feature"),
        (["3 nm", "2 nm", "1 nm"], False, "feature"),
        (["1 nm", "2 Hz", "3 nm"], False, "feature"),
        (["a", "b", "c"], False, "feature"),
        (None, False, "feature"),
    ],
)
def test_names_that_are_numbers_become_the_axis(names: list[str] | None, told: bool, label: str) -> None:
    at, text = labelled_axis(names, 3)
    assert (text, numeric_axis(names) is not None) == (label, told)
    assert (np.diff(at) > 0).all()


def test_kinds_are_chosen_by_what_the_features_are() -> None:
    assert words(plots.components(model_of(5, named=True)))[0] == "component 0"
    assert len(plots.components(model_of(5)).lines) == 5
    assert len(plots.components(model_of(5).components_, shape=(9, 16)).images) == 1
    assert len(plots.components(model_of(5), names=[f"{f} nm" for f in range(F)]).lines) == 5
    assert "b7" in words(plots.components(np.eye(3, 9)[[0, 0, 0]] + np.eye(1, 9, 7), names=[f"b{f}" for f in range(9)]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plots.components(model_of(5), kind="pie"), "kind must be one of auto, images, spectra, bars"),
        (lambda: plots.components(model_of(5), kind="images"), "pictures need the shape of one"),
        (lambda: plots.components(model_of(5), shape=(12, 13)), r"shape \(12, 13\) does not hold the 144 features"),
        (lambda: plots.components(model_of(5), kind="bars", names=["a"]), "names has 1 entries"),
        (lambda: plots.components("model"), "a fitted model or a matrix"),
        (lambda: plots.convergence(model_of(5), x="passes"), "x must be samples or seconds"),
        (lambda: plots.reconstructions(model_of(5), X, choose="random"), "choose must be one of evenly, best, worst"),
        (lambda: plots.activations(model_of(5)), r"activations\(model, X\)"),
        (lambda: plots.residuals(OnlineNMF(2, random_state=0).fit(X[:, :9]), X[:4, :9]), "36 entries are too few"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_sentence(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@FEW_AND_MANY
def test_topics_show_the_heaviest_words_first(K: int) -> None:
    model = model_of(K, named=True)
    shown = words(plots.topics(model, n_words=3, by="weight"))
    for k in range(K):
        leading = [f"word{f}" for f in np.argsort(-model.components_[k], kind="stable")[:3]]
        first = shown.index(f"topic {k}" if K == 5 else str(k)) + 1
        assert shown[first : first + 3] == leading


# Runs, fits, noise


def course(losses: Any, sizes: Any) -> LossCurve:
    samples = np.cumsum(sizes)
    return LossCurve.of({"samples": samples, "seconds": samples / 10, "loss": np.asarray(losses)})


def test_the_running_mean_weighs_batches_by_their_samples() -> None:
    assert course(np.r_[np.full(40, 2.0), 1000.0], np.r_[np.full(40, 100.0), 50]).running_mean[-1] > 70
    assert course(np.r_[np.full(40, 2.0), 1000.0], np.r_[np.full(40, 100.0), 1e-3]).running_mean[-1] < 2.01
    assert np.allclose(course(np.full(50, 3.0), np.ones(50)).running_mean, 3)


def test_a_single_sample_at_the_end_of_a_pass_joins_the_batch_before_it() -> None:
    losses = [9.0, 5.0, 500.0, 4.0, 4.0, 1.0, 4.0, 4.0, 600.0]
    found = course(losses, [200, 200, 1] * 3)
    assert found.samples.tolist() == [200, 401, 601, 802, 1002, 1203]
    assert found.loss == pytest.approx([9, 1500 / 201, 4, 801 / 201, 4, 1400 / 201])
    assert course([3.0, 2.0, 2.5, 1.0], [1000, 10, 10, 10]).samples.tolist() == [1010, 1020, 1030]  # small ones follow


def test_401_samples_in_batches_of_200_show_no_leap_at_the_end_of_a_pass() -> None:
    rows = np.random.default_rng(1).gamma(1.0, 1.0, (401, 8)) * 10 ** np.r_[np.zeros(400), 2][:, None]
    model = OnlineNMF(2, batch_size=200, max_passes=3, shuffle=False, random_state=0).fit(rows)
    loss, sizes = model.history_["loss"], np.diff(model.history_["samples"], prepend=0)
    assert sizes.tolist() == [200, 200, 1] * 3
    assert loss[2] > 20 * loss[1]
    faint, mean = plots.convergence(model).lines
    assert len(faint.get_xdata()) == len(mean.get_xdata()) == 6
    assert faint.get_ydata()[1] == pytest.approx((sizes[1:3] @ loss[1:3]) / 201)
    assert max(mean.get_ydata()[1:]) < loss[2] / 20


def test_axes_are_logarithmic_where_numbers_span_much() -> None:
    def history(*losses: float) -> Any:
        at = np.arange(1, len(losses) + 1) * 1.0
        return SimpleNamespace(history_={"samples": at, "seconds": at / 10, "loss": np.array(losses)})

    steep, flat = plots.convergence(history(1000, 10, *[1.0] * 30)), plots.convergence(history(3, 2.9, 2.8))
    assert (steep.get_xscale(), steep.get_yscale()) == ("log", "log")
    assert (flat.get_xscale(), flat.get_yscale()) == ("linear", "linear")
    assert plots.convergence(history(1.0, 0.0, 0.0)).get_yscale() == "linear"


def test_a_row_of_missing_entries_is_drawn_without_a_warning() -> None:
    missing = X.copy()
    missing[0] = np.nan
    model = OnlineNMF(5, missing="nan", random_state=0).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.reconstructions(model, missing)


def test_the_worst_reconstruction_is_that_of_the_damaged_row() -> None:
    damaged = X.copy()
    damaged[7] = damaged[7, ::-1] * 3 + 20 * (np.arange(F) % 2)
    ax = plots.reconstructions(model_of(5), damaged, n=3, choose="worst", shape=(12, 12))
    assert ax.get_xticklabels()[0].get_text() == "7"
    best = plots.reconstructions(model_of(5), damaged, n=N - 1, choose="best")
    assert "7" not in [label.get_text() for label in best.get_yticklabels()]


@pytest.mark.parametrize("kind", ["frame", "sparse", "anndata"])
def test_data_are_drawn_as_people_have_them(kind: str) -> None:
    anndata = pytest.importorskip("anndata") if kind == "anndata" else None
    frame = pd.DataFrame(X, columns=[f"word{f}" for f in range(F)], index=[f"row{n}" for n in range(N)])
    given = {"frame": frame, "sparse": scipy.sparse.csr_array(X)}
    rows = given[kind] if anndata is None else anndata.AnnData(frame)
    model = model_of(5, named=kind != "sparse")
    for ax in (plots.reconstructions(model, rows), plots.activations(model, rows), plots.residuals(model, rows)):
        assert marks(ax) > 0


def test_long_data_are_averaged_in_bins() -> None:
    H = np.random.default_rng(0).gamma(1, 1, (4500, 3))
    ax = plots.activations(H)
    assert ax.get_xlabel() == "row (means of 5)"
    assert len(ax.lines[0].get_xdata()) == 900
    assert ax.lines[0].get_xdata()[0] == 2


@pytest.mark.parametrize(
    ("divergence", "power"),
    [
        *(("squared_l2", 0), ("kl", 1), ("hellinger", 1), ("alpha:0.3", 1), ("is", 2), ("beta:1.5", 0.5)),
        *(("huber:0.1", 0), ("l1", 0), ("l2", 0)),
    ],
)
def test_the_law_is_that_of_the_divergence(divergence: str, power: float) -> None:
    assert assumed_power(onmf.divergences.get(divergence)) == pytest.approx(power)


@pytest.mark.parametrize(("power", "divergence"), [(0, "squared_l2"), (1, "kl"), (2, "is")])
def test_residuals_follow_the_law_where_the_noise_does(power: int, divergence: str) -> None:
    rng = np.random.default_rng(1)
    mean = rng.gamma(1, 5, (400, 2)) @ rng.gamma(1, 5, (2, 40)) + 30
    noise = {0: lambda: rng.normal(mean, 5), 1: lambda: rng.poisson(mean), 2: lambda: rng.gamma(20, mean / 20)}
    model = OnlineNMF(3, divergence=divergence, max_passes=3, random_state=0, transform_tol=1e-2).fit(
        observed := np.maximum(noise[power](), 1e-3)
    )
    law, found = [line for line in plots.residuals(model, observed).lines if not line.get_label().startswith("_")]
    ratio = np.log(found.get_ydata() / law.get_ydata())
    assert np.abs(ratio).max() < 0.5


@pytest.mark.filterwarnings("ignore", category=ConvergenceWarning)
def test_entries_that_are_unknown_are_not_judged() -> None:
    holes = X.copy()
    holes[::3, ::2] = np.nan
    model = OnlineNMF(4, missing="nan", random_state=0, transform_tol=1e-2).fit(holes)
    assert np.isfinite(plots.residuals(model, holes).lines[-1].get_ydata()).all()
    assert marks(plots.reconstructions(model, holes, shape=(12, 12))) > 0
    ratings = scipy.sparse.csr_array(np.where(np.isnan(holes), 0, holes + 1))
    model = OnlineNMF(4, implicit="missing", random_state=0, transform_tol=1e-2).fit(ratings)
    dots = plots.residuals(model, ratings).lines[0].get_xdata()
    assert len(dots) <= ratings.nnz


def test_the_recommended_rank_is_marked() -> None:
    ax = plots.rank(SELECTION)
    assert ax.get_title() == "recommended rank: 3"
    assert ax.lines[-1].get_xdata()[0] == 3
    assert SELECTION.plot().axes[0].get_title() == "recommended rank: 3"


def test_the_pictures_of_the_page_are_those_that_its_code_writes_and_small() -> None:
    docs = Path(__file__).parent.parent / "docs"
    page = (docs / "gallery.md").read_text()
    shown = set(re.findall(r"\(images/plots/([\w-]+\.png)\)", page))
    assert shown == set(re.findall(r'savefig\("([\w-]+\.png)"\)', page))
    assert shown == {path.name for path in (docs / "images" / "plots").iterdir()}
    assert all(path.stat().st_size < 500_000 for path in (docs / "images").glob("demo*.png"))


@pytest.mark.parametrize("module", ["matplotlib.figure", "matplotlib.backends.backend_agg"])
def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match=r"Matplotlib; install onmf\[plots\]"):
        plots.components(np.ones((2, 3)))


def test_topics_lead_by_what_is_asked_for() -> None:
    X = np.random.default_rng(0).poisson(2.0, (200, 6))
    model = OnlineNMF(2, random_state=0).fit(X)
    by_lift = [name for words in model.top_features(3, "lift") for name, value in words if value > 0]
    shown = [text.get_text() for text in plots.topics(model, n_words=3, by="lift").texts]
    assert [text for text in shown if not text.startswith("topic")] == by_lift
    with pytest.raises(ValueError, match="needs a fitted model"):
        plots.topics(model.components_, by="lift")
