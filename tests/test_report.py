"""The report: one page that works alone, says what is so, warns of what is wrong, and can be read and used by all."""

from __future__ import annotations

import json
import re
import warnings
from copy import copy
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import plotly.graph_objects
import pytest
import scipy.sparse
import soundfile
from PIL import Image
from sklearn.exceptions import ConvergenceWarning
from typer.testing import CliRunner

import onmf
from onmf import BatchNMF, OnlineNMF
from onmf.cli import main as cli
from onmf.data import Rows, Spec, examples, open_source
from onmf.estimators.description import as_source, write_report
from onmf.insight.convergence import LossCurve
from onmf.insight.report import charts, page
from onmf.insight.report.advice import advice
from onmf.insight.report.assessment import MOST_STRETCHES, RandomSample, Stretches, assess
from onmf.insight.report.views import Terms
from onmf.learner import Usage
from tests.small import made_dense

HOSTILE = "</td><script>alert(1)</script>&'\""
NAMES = [HOSTILE, *(f"col {i}" for i in range(1, 12))]
TRUTH = np.random.default_rng(0).gamma(0.4, 1.0, (3, 12))


def counts(n: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.poisson(40 * rng.gamma(0.7, 1.0, (n, 3)) @ TRUTH).astype(float)


def frame(X: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=NAMES)


@pytest.fixture(scope="module")
def good() -> OnlineNMF:
    return OnlineNMF(3, max_passes=4, random_state=0).fit(frame(counts(600)))


@pytest.fixture(scope="module")
def written(good: OnlineNMF, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return good.report(frame(counts(300, 2)), tmp_path_factory.mktemp("report") / "report.html")


def codes(model: Any, X: Any = None, notes: bool = False) -> list[str]:
    found = None if X is None else assess(model, as_source(model, X, "X"), "X")
    return [each.code for each in advice(model, found) if each.note == notes]


def said(model: Any, found: Any = None) -> dict[str, str]:
    return {each.code: each.text for each in advice(model, found)}


def with_usage(model: OnlineNMF, *shares: float) -> OnlineNMF:
    other = copy(model)
    other._learned = replace(model._fitted, usage=Usage(np.array(shares)))
    return other


# The page


class Checked(HTMLParser):
    """Every element that is opened is closed, in order; ids are met once."""

    VOID = ("meta", "link", "img", "col", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def read(path: Path) -> Checked:
    found = Checked()
    text = path.read_text()
    found.feed(re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL))
    return found


def test_the_page_is_sound_html_that_names_no_other_file(written: Path) -> None:
    found = read(written)
    assert found.open == []
    assert len(found.ids) == len(set(found.ids))
    for tag, attributes in found.attributes:
        for name in ("src", "href"):
            target = attributes.get(name) or "#"
            assert target.startswith(("#", "data:")), (tag, target)
        if tag == "img":
            assert attributes["alt"] is not None
    (policy,) = (each["content"] for tag, each in found.attributes if each.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    links = {each["href"] for tag, each in found.attributes if tag == "a"}
    assert {str(link).removeprefix("#") for link in links} <= set(found.ids)


def test_names_of_features_files_and_titles_are_text_whatever_they_hold(good: OnlineNMF, tmp_path: Path) -> None:
    path = good.report(frame(counts(20)), tmp_path / "x.html", title=HOSTILE)
    text = path.read_text()
    assert HOSTILE not in text
    assert "&lt;/td&gt;&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert read(path).open == []


def test_the_page_says_what_was_run(good: OnlineNMF, written: Path) -> None:
    text = written.read_text()
    for fact in (
        "2,400",
        "surrogate",
        "max_passes=4, random_state=0",
        f"onmf {onmf.__version__}",
        "arrays in memory",
    ):
        assert fact in text, fact
    assert good.guarantee_.replace("'", "&#39;") in text
    assert page.promise(good.guarantee_).startswith("No theorem covers this run.")
    assert page.promise("Covered by").startswith("A theorem covers")
    assert "yet" in page.promise("Not covered by the paper's theorem yet: ...")
    assert "cannot rise" in page.promise(None)


def test_every_chart_is_one_that_plotly_takes(good: OnlineNMF) -> None:
    found = assess(good, Rows(counts(300, 2)), "X")
    drawn = [
        charts.convergence(good),
        charts.activations(found, range(3)),
        charts.losses(found),
        charts.residuals(found),
    ]
    for chart in drawn:
        assert chart is not None
        plotly.graph_objects.Figure(chart.data, chart.layout)  # which refuses what is wrong
        json.dumps(chart.data, allow_nan=False)


# What it says of data


def test_losses_and_shares_are_those_of_the_model(good: OnlineNMF) -> None:
    X = counts(300, 2)
    found = assess(good, Rows(X), "X")
    assert found.loss == pytest.approx(good.loss(frame(X)))
    parts = good.transform(frame(X)) * good.components_.sum(axis=1)
    np.testing.assert_allclose(found.shares, good.proportions(frame(X)).mean(axis=0))  # as `onmf topics` has them
    np.testing.assert_allclose(found.stretches.means[0], parts[: found.stretches.length].mean(axis=0))
    assert found.gain > 0.5


@pytest.mark.parametrize("name", ["kl", "is", "squared_l2", "huber:5", "l1"])
def test_the_single_component_to_compare_with_is_nearly_the_best_one(name: str) -> None:
    X = counts(300, 2) + 1
    single = BatchNMF(1, divergence=name, random_state=0, max_iter=3000).fit(X)
    assert assess(single, Rows(X), "X").single == pytest.approx(single.loss(X), rel=0.1)
    X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    holes = single.set_params(missing="nan").fit(X)
    assert assess(holes, Rows(X), "X").single == pytest.approx(holes.loss(X), rel=0.1)


def test_weights_of_samples_count(good: OnlineNMF, tmp_path: Path) -> None:
    X, weights = frame(counts(60, 2)), np.arange(60) % 3
    X.assign(w=weights).to_csv(tmp_path / "x.csv", index=False)
    found = assess(good, open_source(f"{tmp_path / 'x.csv'}?weight=w", like=good.source_), "x.csv")
    assert found.loss == pytest.approx(good.loss(X, sample_weight=weights))


def test_without_data_the_largest_in_all_that_was_learnt_from_come_first(good: OnlineNMF) -> None:
    text = page.rendered(page.Report(with_usage(good, 0.2, 0.5, 0.3), None, []), "title")
    assert re.findall(r'id="component-(\d)"', text) == ["1", "2", "0"]
    assert "50 %" in text
    assert codes(with_usage(good, 0.5, 0.4999, 0.0001)) == ["unused"]


def test_the_worst_and_the_best_samples_are_found(good: OnlineNMF) -> None:
    X = counts(300, 2)
    X[17] = np.random.default_rng(3).permutation(X[X.sum(axis=1).argmax()])
    found = assess(good, Rows(X), "X")
    assert found.worst[0].name == "row 17"
    relative = [each.relative for each in (*found.worst, *found.best[::-1])]
    assert relative == sorted(relative, reverse=True)
    np.testing.assert_allclose(found.worst[0].fit, good.inverse_transform(found.worst[0].h[None])[0])


def test_the_same_of_a_stream_as_of_an_array_and_what_is_kept_does_not_grow(good: OnlineNMF) -> None:
    X = counts(3000, 2)
    whole = assess(good, Rows(X), "X")
    parts = assess(good, as_source(good, (X[i : i + 70] for i in range(0, 3000, 70)), "X"), "X")
    assert (whole.samples, parts.samples) == (3000, 3000)
    assert parts.loss == pytest.approx(whole.loss)
    assert parts.X.shape == (300, 12)
    assert len(parts.stretches.means) <= MOST_STRETCHES


def test_sums_over_stretches_are_those_of_all_rows_however_many() -> None:
    rows = np.random.default_rng(0).random((5000, 2))
    stretches = Stretches(2)
    for first in range(0, 5000, 333):
        stretches.add(rows[first : first + 333])
    assert stretches.length == 32
    np.testing.assert_allclose(stretches.means[:156], rows[: 156 * 32].reshape(156, 32, 2).mean(axis=1))
    np.testing.assert_allclose(stretches.sums.sum(axis=0), rows.sum(axis=0))
    few = Stretches(2)
    few.add(rows[:300])
    np.testing.assert_allclose(few.means[-1], rows[298:300].mean(axis=0))


def test_a_random_sample_keeps_every_row_with_the_same_chance() -> None:
    kept = np.zeros(60)
    for seed in range(400):
        sample = RandomSample(6, np.random.default_rng(seed))
        for first in range(0, 60, 7):
            sample.add(min(7, 60 - first), range(first, 60).__getitem__)
        kept[sample.kept] += 1
    assert kept.sum() == 400 * 6
    assert np.abs(kept - 40).max() < 5 * np.sqrt(40)


def test_residuals_show_the_law_that_the_noise_has() -> None:
    rng = np.random.default_rng(0)
    mean = 40 * rng.gamma(0.7, 1.0, (800, 3)) @ TRUTH + 1e-3
    for name, X, power in (("kl", rng.poisson(mean), 1.0), ("is", mean * rng.gamma(20.0, 0.05, mean.shape), 2.0)):
        model = OnlineNMF(3, divergence=name, random_state=0, max_passes=3).fit(X.astype(float) + 1e-9)
        chart = charts.residuals(assess(model, Rows(X.astype(float) + 1e-9), "X"))
        assert chart is not None
        said = re.search(r"here the power is ([\d.]+), which is close", chart.text)
        assert said is not None, chart.text
        assert float(said[1]) == pytest.approx(power, abs=0.35)


# In the user's terms


def terms_of(W: np.ndarray, names: list[str] | None = None) -> Terms:
    data = np.random.default_rng(0).gamma(1.0, 1.0, (50, len(W))) @ W
    model = OnlineNMF(len(W), init=W, random_state=0).fit(pd.DataFrame(data, columns=names) if names else data)
    return Terms(model)


def test_named_features_are_words_numbers_an_axis_and_smooth_rows_curves() -> None:
    rough, smooth = np.random.default_rng(0).random((2, 40)), np.sin(np.linspace(0, 3, 40)) * np.ones((2, 1)) + 0.1
    assert terms_of(rough, [f"word{i}" for i in range(40)]).kind == "bars"
    spectrum = terms_of(rough, [f"{400 + 10 * i} nm" for i in range(40)])
    assert (spectrum.kind, spectrum.unit) == ("lines", "nm")
    peak = np.eye(40)[7]
    assert spectrum.words(peak) == "peaks at 470 nm"
    assert spectrum.view(peak, "x").ends == ("400 nm", "595 nm", "790 nm")
    assert terms_of(smooth).kind == "lines"
    assert terms_of(rough).kind == "bars"
    bars = terms_of(rough).view(np.eye(40)[3] * 2 + np.eye(40)[5], "x").bars
    assert [(bar.name, bar.length) for bar in bars] == [("feature 3", 100.0), ("feature 5", 50.0)]


def test_numbers_without_a_unit_are_an_axis_only_where_neighbours_are_alike() -> None:
    rough, smooth = np.random.default_rng(0).random((2, 40)), np.sin(np.linspace(0, 3, 40)) * np.ones((2, 1)) + 0.1
    ids = [str(i) for i in range(1, 41)]
    assert terms_of(rough, ids).kind == "bars"  # movies, not wavelengths
    assert terms_of(rough, ids).words(np.eye(40)[6]) == "7"
    assert terms_of(smooth, ids).kind == "lines"


def test_genes_of_cells_are_ranked_by_specificity_on_the_page(tmp_path: Path) -> None:
    cells = examples.cells()
    cells.anndata().write_h5ad(tmp_path / "x.h5ad")
    model = OnlineNMF(4, max_passes=3, random_state=0).fit(open_source(tmp_path / "x.h5ad"))
    terms, W = Terms(model), model.components_
    shown = page._components(model, terms, model.usage_, range(4))
    expected = [[name for name, _ in genes] for genes in model.top_features(5, by="specificity")]
    assert [each["words"].split(", ") for each in shown] == expected
    assert [[bar.name for bar in each["view"].bars[:5]] for each in shown] == expected
    assert [terms.words(row).split(", ") for row in W] != expected  # by weight
    assert "how much more of them each has" in page.rendered(page.Report(model, None, []), "title")


def test_pictures_are_shown_as_pictures_and_sound_by_hertz_and_seconds(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(20):
        Image.fromarray(rng.integers(0, 255, (6, 5, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
    source = open_source(f"images:{tmp_path}?colour=rgb")
    model = OnlineNMF(2, random_state=0).fit(source)
    text = model.report(source, tmp_path / "pictures.html").read_text()
    assert text.count('<img src="data:image/png;base64,') >= 2 * 2 + 2 * 4
    time = np.arange(16000) / 8000
    soundfile.write(tmp_path / "a.wav", 0.5 * np.sin(2 * np.pi * 1000 * time) + 0.001 * rng.normal(size=16000), 8000)
    sound = open_source(tmp_path / "a.wav")
    model = OnlineNMF(1, random_state=0).fit(sound)
    assert Terms(model).words(model.components_[0]) == "peaks at 1000 Hz"
    found = assess(model, sound, "a.wav")
    chart = charts.activations(found, [0])
    assert chart.layout["xaxis"]["title"]["text"] == "seconds"
    assert chart.data[0]["x"][-1] == pytest.approx(2.0, abs=0.2)


@pytest.mark.parametrize("K", [5, 100])
def test_few_components_are_all_shown_and_of_many_the_largest(K: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BatchNMF(K, max_iter=1, random_state=0).fit(rng.gamma(1.0, 1.0, (120, 50)))
    text = model.report(rng.gamma(1.0, 1.0, (30, 50)), tmp_path / "x.html").read_text()
    assert text.count('id="component-') == K
    assert ("The other 88 components" in text) == (K == 100)
    assert "The loss cannot rise" in text


def _holes() -> tuple[Any, Any]:
    X = counts(100)
    X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    return OnlineNMF(3, missing="nan", random_state=0), X


KINDS: dict[str, Any] = {
    "batch": lambda: (BatchNMF(3, random_state=0, max_iter=2000), counts(80)),
    "missing": _holes,
    "ratings": lambda: (OnlineNMF(2, implicit="missing", divergence="squared_l2"), scipy.sparse.csr_matrix(counts(60))),
    "simplex": lambda: (OnlineNMF(3, coefficients="simplex", divergence="squared_l2"), counts(80)),
    "sparse": lambda: (OnlineNMF(3, random_state=0), scipy.sparse.csr_matrix(counts(80))),
    "sparse, dense solver": lambda: (OnlineNMF(3, divergence="huber"), scipy.sparse.csr_matrix(counts(80))),
    "zeros under is": lambda: (OnlineNMF(2, divergence="is"), counts(80)),
    "l1": lambda: (OnlineNMF(2, divergence="l1"), counts(80)),
    "anndata": lambda: (OnlineNMF(2), anndata.AnnData(counts(50).astype(np.float32), var=pd.DataFrame(index=NAMES))),
    "one sample": lambda: (OnlineNMF(1), counts(1) + 1),
    "five features": lambda: (OnlineNMF(2), counts(50)[:, :5] + 1),
    "nothing but zeros in some": lambda: (OnlineNMF(2), np.vstack([counts(50), np.zeros((50, 12))])),
}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_and_data_has_a_page(kind: str, tmp_path: Path) -> None:
    model, X = KINDS[kind]()
    path = model.fit(X).report(X, tmp_path / "x.html")
    assert read(path).open == []
    assert model.report(path=path) == path
    assert "How it fits" not in path.read_text()


def test_fixed_components_are_marked(tmp_path: Path) -> None:
    model = OnlineNMF(3, fixed=TRUTH[:1] / TRUTH[0].max(), random_state=0).fit(counts(200))
    text = model.report(path=tmp_path / "x.html").read_text()
    assert text.count(">fixed</span>") == 2  # in the gallery and in the table
    assert "3, 1 of them fixed" in text


def test_features_never_known_are_no_part_of_a_sample(tmp_path: Path) -> None:
    X = counts(100)
    X[:, 4] = np.nan
    with pytest.warns(UserWarning, match="missing in every sample"):
        model = OnlineNMF(3, missing="nan", random_state=0).fit(frame(X))
    found = assess(model, Rows(X), "X")
    assert np.isnan(found.worst[0].x).nonzero()[0].tolist() == [4]
    shown = page._samples(Terms(model), found, found.worst)
    assert NAMES[4] not in [bar.name for each in shown for bar in each["view"].bars]


# Warnings


def test_a_good_model_has_no_warnings(good: OnlineNMF) -> None:
    assert codes(good) == []
    assert codes(good, frame(counts(300, 2))) == []


def test_a_model_that_the_theorem_covers_has_no_notes_either() -> None:
    model = OnlineNMF(3, method="paper:step=canonical,a=20", l2_coefficients=1e-3, random_state=0)
    assert codes(model.fit(counts(300) + 1), notes=True) == []
    assert model.guarantee_.startswith("Covered")


def test_no_theorem_is_a_note_that_says_what_one_asks_for(good: OnlineNMF) -> None:
    (note,) = advice(good)
    assert (note.code, note.note) == ("no theorem", True)
    assert note.cure.startswith("For this divergence the theorems are about method 'paper'")


def test_equal_components_are_named_in_groups() -> None:
    X = np.random.default_rng(0).gamma(2.0, 1.0, (300, 1)) * TRUTH[:1] * 50 + 1
    model = OnlineNMF(3, random_state=0, method="surrogate", init=np.tile(TRUTH[:1], (3, 1)) + 0.01).fit(X)
    given = next(each for each in advice(model) if each.code == "equal")
    assert re.match(r"Components \d(, 1)? and \d are nearly equal\.", given.text)
    assert given.cure.startswith("Try fewer")
    other, W = copy(model), np.random.default_rng(0).random((6, 12))
    state = replace(model._fitted.state, W=W[[0, 0, 1, 1, 0, 2]])
    other._learned = replace(model._fitted, state=state, usage=Usage(np.ones(6)))
    assert said(other)["equal"] == "Components 0, 1 and 4 are nearly equal; so are components 2 and 3."
    other._learned = replace(other._fitted, state=replace(state, steps=1))
    given = next(each for each in advice(other) if each.code == "equal")
    assert given.cure.startswith("If more passes leave them so, try fewer")


def test_unused_components_are_named() -> None:
    X, lone = counts(300), np.eye(12)[:1]
    X[:, 0] = 0.0
    model = OnlineNMF(4, fixed=lone, random_state=0, max_passes=4).fit(X)
    assert codes(model, X) == ["unused"]


def test_of_more_passes_only_spectra_of_a_scene_may_gain_nothing() -> None:
    slow = OnlineNMF(3, init="uniform", method="paper:step=canonical,a=10,b=1000", batch_size=20, random_state=0)
    cures = {each.code: each.cure for each in advice(slow.fit(counts(400)))}
    assert cures["falling"] == "More passes (max_passes=2, --passes 2) or more data fit better."
    slow._learned = replace(slow._fitted, source=Spec("envi"))
    cures = {each.code: each.cure for each in advice(slow)}
    assert cures["falling"].endswith("or more data fit better, but do not always find truer spectra.")


def few_rows(n: int = 40) -> np.ndarray:
    rng = np.random.default_rng(1)
    return rng.poisson(10 * rng.gamma(0.7, 1.0, (n, 6)) @ rng.gamma(0.4, 1.0, (6, 100))).astype(float)


def test_a_run_of_few_updates_is_told_with_more_passes_as_the_cure(tmp_path: Path) -> None:
    X = few_rows()
    once = OnlineNMF(8, random_state=0).fit(X)
    (said,) = advice(once)[:1]
    assert said.text == "The model was updated only once, too little to judge."
    assert said.cure.startswith("Make more passes: --passes 20 (max_passes=20)")
    assert "few updates" in codes(once, X)
    text = once.report(X, tmp_path / "x.html").read_text()
    assert said.text in text
    assert "What to be careful about" in text
    assert "The model was updated only 5 times" in next(
        each.text for each in advice(OnlineNMF(8, max_passes=5, random_state=0).fit(X))
    )


@pytest.mark.parametrize("passes", [10, 20, 50])
def test_few_samples_learnt_from_many_times_are_enough_updates(passes: int) -> None:
    assert "few updates" not in codes(OnlineNMF(8, max_passes=passes, random_state=0).fit(few_rows()))


def test_few_updates_are_enough_where_the_loss_has_settled_or_all_is_fixed() -> None:
    X = few_rows()
    start = BatchNMF(8, random_state=0, max_iter=2000).fit(X).components_
    assert "few updates" not in codes(OnlineNMF(8, init=start, max_passes=3, random_state=0).fit(X))
    assert "few updates" not in codes(OnlineNMF(8, fixed=start, random_state=0).fit(X))


def test_one_pass_over_a_long_stream_is_enough() -> None:
    model = OnlineNMF(3, random_state=0)
    for first in range(0, 3000, 500):
        model.partial_fit(counts(3000)[first : first + 500])
    assert codes(model) == []


def test_a_single_batch_has_no_curve_from_its_first_to_its_end() -> None:
    text = charts.convergence(OnlineNMF(8, random_state=0).fit(few_rows())).text
    assert "All 40 samples came in one batch" in text
    assert "went from" not in text


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "model", [OnlineNMF(40, max_passes=12, random_state=0), BatchNMF(40, max_iter=5, random_state=0)]
)
def test_components_for_fewer_than_twice_as_many_samples_are_told(model: Any) -> None:
    X = few_rows()
    texts = said(model.fit(X))
    assert texts["few samples"].startswith("40 components for only 40 samples can fit almost anything")
    assert "few samples" not in said(model.set_params(n_components=20).fit(X))
    fixed = TRUTH / TRUTH.max(axis=1, keepdims=True)
    assert "few samples" not in said(OnlineNMF(3, fixed=fixed).fit(counts(5) + 1))


def test_noise_unlike_that_of_the_divergence_stands_where_the_warnings_do(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = (40 * rng.gamma(0.7, 1.0, (800, 3)) @ TRUTH + 1e-3) * rng.gamma(20.0, 0.05, (800, 12))
    model = OnlineNMF(3, random_state=0, max_passes=3).fit(X)
    notes = {each.code: each for each in advice(model, assess(model, Rows(X), "X")) if each.note}
    assert re.search(r"‘kl’ assumes .* power 1; here the power is (1\.[6-9]|2\.)", notes["noise"].text)
    top = model.report(X, tmp_path / "x.html").read_text().partition('id="run"')[0]
    assert notes["noise"].text in top
    assert "no fault" not in top


def test_a_loss_that_still_falls_is_told() -> None:
    slow = OnlineNMF(3, init="uniform", method="paper:step=canonical,a=10,b=1000", batch_size=20, random_state=0)
    assert "falling" in codes(slow.fit(counts(400)))
    with pytest.warns(ConvergenceWarning, match="still falls"):
        batch = BatchNMF(3, max_iter=12, random_state=0).fit(counts(100))
    assert codes(batch) == ["falling"]


def test_a_loss_that_went_up_is_told_with_a_shorter_step() -> None:
    with pytest.warns(ConvergenceWarning, match="too long"):
        model = OnlineNMF(3, divergence="kl", method="paper:step=canonical,a=1e7", random_state=0).fit(counts(400))
    assert "diverged" in codes(model)


def test_samples_left_out_are_told() -> None:
    X = counts(300)
    X[7, 0] = -1
    model = OnlineNMF(3, on_error="skip", random_state=0, max_passes=4).fit(X)
    assert codes(model) == ["skipped"]


def test_a_stream_that_has_changed_is_told() -> None:
    other = np.random.default_rng(5).poisson(np.random.default_rng(6).gamma(0.3, 100.0, (1500, 12)))
    X = np.vstack([counts(1500), other.astype(float)])
    model = OnlineNMF(3, shuffle=False, batch_size=25, random_state=0).fit(X)
    assert "drift" in codes(model)


def test_missing_features_and_samples_are_told() -> None:
    X = counts(300)
    X[:, 4] = np.nan
    X[3] = np.nan
    with pytest.warns(UserWarning, match="missing in every sample"):
        model = OnlineNMF(3, missing="nan", random_state=0, max_passes=4).fit(frame(X))
    assert codes(model) == ["missing features", "blank samples"]
    assert "col 4" in advice(model)[0].text
    assert codes(model) == ["missing features", "blank samples"]
    assert "col 4" in advice(model)[0].text


def test_bad_samples_of_the_data_are_told_and_the_others_shown(good: OnlineNMF) -> None:
    X = counts(300, 2)
    X[5, 3] = -1
    assert codes(good, frame(X)) == ["bad samples"]
    with pytest.raises(ValueError, match=r"X has no sample that could be used\. Negative"):
        codes(good, frame(X[5:6]))


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_data_in_other_units_are_told(good: OnlineNMF, factor: float) -> None:
    assert codes(good, frame(factor * counts(300, 2))) == ["units"]


def test_coefficients_that_were_not_found_are_told(good: OnlineNMF) -> None:
    coarse = OnlineNMF(3, max_passes=4, random_state=0, transform_max_iter=1, transform_tol=1e-9)
    assert "imprecise" in codes(coarse.fit(counts(600)), counts(300, 2))


def test_samples_that_are_fitted_badly_are_told_and_huber_is_the_cure(good: OnlineNMF) -> None:
    X = counts(300, 2)
    X[::30] = np.random.default_rng(0).poisson(np.random.default_rng(1).gamma(0.3, 300.0, (10, 12)))
    assert codes(good, frame(X)) == ["outliers"]
    found = assess(good, Rows(X), "X")
    assert "huber" in next(each.cure for each in advice(good, found) if each.code == "outliers")


def test_a_model_that_is_no_better_than_one_component_is_told(good: OnlineNMF) -> None:
    rng = np.random.default_rng(0)
    assert "poor" in codes(good, frame(rng.poisson(rng.gamma(5.0, 10.0, (300, 1)) * rng.permutation(TRUTH[1]))))


def test_a_model_that_is_hardly_better_than_one_component_is_told() -> None:
    rng = np.random.default_rng(0)
    X = frame(rng.poisson(40 * rng.gamma(5.0, 1.0, (600, 1)) @ (TRUTH[:1] + 1)).astype(float))
    model = OnlineNMF(2, max_passes=3, random_state=0).fit(X)
    found = assess(model, as_source(model, X, "X"), "X")
    found.gain = 0.006
    assert "hardly better than a single component, by 0.6 % of the loss" in said(model, found)["poor"]
    found.gain = 0.05
    assert "poor" not in said(model, found)


def test_quiet_components_are_in_use_where_loud_and_quiet_count_alike() -> None:
    rng = np.random.default_rng(0)
    W = np.vstack([np.r_[np.full(6, 1e6), np.full(6, 1e-3)], np.r_[np.full(6, 1e-3), rng.uniform(1, 2, 6)]])
    X = rng.gamma(2.0, 1.0, (300, 2)) @ W * rng.gamma(20.0, 0.05, (300, 12))
    model = BatchNMF(2, divergence="is", fixed=W / W.max(axis=1, keepdims=True)).fit(X)
    assert assess(model, Rows(X), "X").shares.min() < 1e-3
    assert codes(model, X) == []


def test_a_single_component_to_compare_with_does_not_know_the_sample_that_it_fits() -> None:
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(3000, 0.05), 5)
    train, test = (rng.poisson(60 * rng.dirichlet(np.full(5, 0.2), n) @ topics).astype(float) for n in (2000, 60))
    model = OnlineNMF(5, random_state=0, max_passes=2).fit(train)
    found = assess(model, Rows(test), "X")
    assert found.gain > 0.3
    assert "poor" not in codes(model, test)


# The command


def test_a_table_becomes_a_report_in_two_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    frame(counts(300)).to_csv("sales.csv", index=False)
    runner = CliRunner()
    fitted = ["fit", "sales.csv", "-k", "3", "--passes", "5", "--seed", "0", "-o", "m.safetensors"]
    assert runner.invoke(cli.app, fitted).exit_code == 0
    result = runner.invoke(cli.app, ["report", "m.safetensors", "sales.csv", "-o", "r.html"])
    assert result.exit_code == 0
    assert "r.html: no warnings." in result.stdout
    assert "Report on m.safetensors" in Path("r.html").read_text()
    assert "How it fits sales.csv" in Path("r.html").read_text()
    said = json.loads(runner.invoke(cli.app, ["report", "m.safetensors", "sales.csv", "--json"]).stdout)
    assert Path(said["report"]).name == "report.html"
    assert (said["warnings"], [each["code"] for each in said["notes"]]) == ([], ["no theorem"])
    assert said["loss"] == pytest.approx(onmf.load("m.safetensors").loss(frame(counts(300))))
    assert json.loads(runner.invoke(cli.app, ["report", "m.safetensors", "--json"]).stdout).keys() == {
        *("report", "warnings", "notes")
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["m.safetensors", "-o", "m.safetensors"], "is an input"),
        (["m.safetensors", "-o", "nowhere/r.html"], "there is no folder nowhere"),
        (["m.safetensors", "other.csv"], "sales"),
        (["nothing.safetensors"], "nothing.safetensors"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_reported_is_refused_in_one_sentence(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(counts(30)[:, :2], columns=["sales", "costs"]).to_csv("sales.csv", index=False)
    pd.DataFrame(counts(30)[:, :1], columns=["other"]).to_csv("other.csv", index=False)
    onmf.save(OnlineNMF(2, random_state=0).fit(pd.read_csv("sales.csv")), "m.safetensors")
    before = Path("m.safetensors").read_bytes()
    monkeypatch.setattr("sys.argv", ["onmf", "report", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert Path("m.safetensors").read_bytes() == before
    assert not Path("report.html").exists()


def test_without_the_libraries_the_extra_is_named(good: OnlineNMF, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    with pytest.raises(ModuleNotFoundError, match=r"install onmf\[report\]"):
        good.report(path="x.html")


# In a browser


DRAWN = """return Object.fromEntries([...document.querySelectorAll('.plot')].map(
    plot => [plot.id, plot.querySelectorAll('svg .point, svg path.js-line, svg image').length]))"""


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_draws_every_chart_without_an_error_or_a_request_at_any_width(
    browser: Any, written: Path, width: int
) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(written.as_uri())
    drawn = browser.execute_script(DRAWN)
    assert drawn.keys() == {"convergence", "losses", "residuals", "activations"}
    assert min(drawn.values()) > 0
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width  # wide tables scroll alone


def test_keyboard_theme_and_paper(browser: Any, written: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser.get(written.as_uri())
    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "Skip to the contents"
    for _ in range(60):  # by the tabulator alone to the table's first button
        if (now := browser.switch_to.active_element).tag_name == "button" and now.text == "component":
            break
        browser.switch_to.active_element.send_keys(Keys.TAB)
    head = browser.switch_to.active_element
    for order, numbers in (("ascending", ["0", "1", "2"]), ("descending", ["2", "1", "0"])):
        head.send_keys(Keys.ENTER)
        assert browser.execute_script("return arguments[0].closest('th').ariaSort", head) == order
        rows = browser.find_elements(By.CSS_SELECTOR, ".sortable tbody th")
        assert [row.text for row in rows] == numbers
    colour = "return getComputedStyle(document.querySelector('#convergence .xtick text')).fill"
    toggle, before = browser.find_element(By.ID, "theme"), browser.execute_script(colour)
    toggle.send_keys(Keys.SPACE)
    assert toggle.get_attribute("aria-pressed") == "true"
    assert browser.execute_script(colour) != before  # the charts follow
    switch = browser.find_element(By.CSS_SELECTOR, "[data-log=convergence]")
    switch.send_keys(Keys.ENTER)
    assert browser.execute_script("return document.getElementById('convergence').layout.yaxis.type") == "log"
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script(colour) == before  # paper is light
    assert (
        browser.execute_script(
            "return Math.max(...[...document.querySelectorAll('.main-svg')].map(s => s.clientWidth))"
        )
        <= 660
    )
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert browser.execute_script(colour) != before
    assert browser.get_log("browser") == []


def test_more_components_than_features_are_warned_of(tmp_path: Path) -> None:
    X = np.random.default_rng(0).gamma(1.0, 1.0, (100, 3))
    model = OnlineNMF(5, random_state=0).fit(X)
    codes = [each.code for each in write_report(model, None, tmp_path / "r.html", "r").advice]
    assert "many" in codes


def test_a_loss_falls_by_all_of_itself_at_most() -> None:
    samples = np.arange(1.0, 41.0)
    curve = LossCurve.of({"loss": np.geomspace(1.0, 1e-6, 40), "samples": samples, "seconds": samples})
    assert 0.5 < (curve.still_falls() or 0) <= 1


@pytest.mark.parametrize("divergence", ["kl", "hellinger"])
def test_the_fit_of_sparse_counts_is_assessed_without_making_them_dense(
    divergence: str, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    counts = scipy.sparse.random(
        600, 2000, 0.02, format="csr", random_state=0, data_rvs=lambda n: rng.poisson(2, n) + 1.0
    )
    model = OnlineNMF(3, divergence=divergence, random_state=0).fit(counts)
    whole = assess(model, Rows(counts.toarray()), "dense")
    shown = charts._entries(whole)[0]
    sizes = made_dense(monkeypatch)
    found = assess(model, Rows(counts), "sparse")
    assert np.array_equal(charts._entries(found)[0], shown)
    assert max(sizes) <= 300 * charts.COLUMNS  # entries that are drawn
    assert found.single == pytest.approx(whole.single, rel=1e-9)
    assert found.gain == pytest.approx(whole.gain, rel=1e-3)


def test_a_single_sample_at_the_end_is_no_fall_of_the_loss() -> None:
    rows = counts(401)
    rows[400] = TRUTH[0] * 40  # one that is fitted well
    model = OnlineNMF(3, batch_size=200, max_passes=2, shuffle=False, random_state=0).fit(rows)
    loss = model.history_["loss"]
    assert model.history_["samples"].tolist() == [200, 400, 401, 601, 801, 802]
    assert loss[-1] < 0.5 * loss[-2]
    assert "falling" not in codes(model)
    end = re.search(r"to ([\d.]+) at the end, over 802 samples", charts.convergence(model).text)
    assert end is not None
    assert float(end[1]) == pytest.approx((200 * loss[-2] + loss[-1]) / 201, rel=1e-3)


def falls(losses: Any, sizes: Any, pass_began: int = 0) -> float | None:
    samples = np.cumsum(sizes)
    return LossCurve.of({"loss": np.asarray(losses), "samples": samples, "seconds": samples}).still_falls(pass_began)


def test_a_fall_from_one_small_batch_to_the_next_may_be_chance_and_from_a_large_one_is_none() -> None:
    assert falls([500, 400, 320], [20, 20, 20]) is None
    assert falls([500, 400, 320], [2000, 2000, 2000]) == pytest.approx(0.2)
    assert falls([500, 400, 320], [100, 2000, 100]) is None


def test_passes_are_compared_where_there_are_several_whatever_the_order_of_the_samples() -> None:
    ordered = np.linspace(100, 20, 10)
    assert falls(np.r_[1.2 * ordered, ordered], np.full(20, 500), 5000) == pytest.approx(1 / 6)
    assert falls(np.r_[1.01 * ordered, ordered], np.full(20, 500), 5000) is None
    X = counts(4000)
    X = X[np.argsort(-X.sum(axis=1))]  # the last are small, and their losses too
    assert "falling" not in codes(OnlineNMF(3, max_passes=3, shuffle=False, random_state=0).fit(X))
