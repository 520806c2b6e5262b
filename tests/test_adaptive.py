"""The step that needs no tuning: its averages, its trial period, its freeze, and what is kept of it in files."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from onmf import OnlineNMF, Progress, load, methods, save
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence, get
from onmf.methods import Adaptive, Canonical, Paper
from onmf.methods.steps import FACTORS, SHARE, STATISTICS, WIDEST, WINDOW, Averages, Slopes, Step
from onmf.model.penalty import NO_PENALTIES
from onmf.model.sets import DictionarySet
from onmf.persistence import file as model_file
from onmf.persistence.file import ModelFileError
from tests.conftest import F, example_id, examples, mahalanobis, require_same_learning
from tests.learning import K, assert_same_bits, data, memory, streamed

pytestmark = pytest.mark.filterwarnings("ignore:The coefficients of:sklearn.exceptions.ConvergenceWarning")
TAU = 10
SHORT = Adaptive(b=200, trial_samples=80)
PHASES = {"trial": 50, "after the trial": 130, "frozen": 250}  # samples seen, under ``SHORT``
every_phase = pytest.mark.parametrize("phase", PHASES)
SOME = [get(name) for name in ("kl", "is", "squared_l2", "huber:0.5", "l1", "beta:0.5")] + mahalanobis()[1:]
some = pytest.mark.parametrize("divergence", SOME, ids=example_id)
# Fits above zero, anywhere, and not separable; with other divergences, the method is tested in test_methods.py.
one_of_each_kind = pytest.mark.parametrize("divergence", [SOME[0], SOME[3], SOME[-1]], ids=example_id)


def model_of(step: Step | str = SHORT, divergence: Divergence | str = "kl", **settings: Any) -> OnlineNMF:
    given = {"method": Paper(step=step), "random_state": 0, "batch_size": TAU, "shuffle": False}
    return OnlineNMF(K, divergence=divergence, **(given | settings))


# Averages


def slopes_of(divergence: Divergence, rng: np.random.Generator, n: int = 30, dtype: type = np.float64) -> Slopes:
    X, W = data(n, rng), rng.uniform(0.1, 0.9, (K, F))
    return Slopes.of(Problem(divergence, X.astype(dtype), W.astype(dtype)), rng.gamma(1.0, 1.0, (n, K)).astype(dtype))


@some
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_averages_are_those_of_the_design(divergence: Divergence, dtype: type, rng: np.random.Generator) -> None:
    slopes = slopes_of(divergence, rng, dtype=dtype)
    X, H, W = (array.astype(float) for array in (slopes.problem.X.matrix, slopes.H, slopes.problem.W))
    ratios = not divergence.domain.x.includes_zero
    expected: dict[str, Any] = dict.fromkeys(STATISTICS, 0.0)
    for x, h in zip(X, H, strict=True):
        y = h @ W
        g = divergence.grad(x[None], y[None])[0]
        unit = x.mean() if ratios else 1.0
        direction = h / np.linalg.norm(h)
        parts = {"residuals": np.outer(h**2, g * (y - x)), "squares": np.outer(h**4, g**2)}
        parts |= {"overlaps": np.outer(direction, direction), "mass": np.array([h.sum() / unit])}
        parts |= {"sizes": np.log(x / unit) if ratios else x, "seen": np.array([len(X)])}
        expected = {name: expected[name] + part / len(X) for name, part in parts.items()}
    found = vars(Averages.of(slopes))
    assert found.keys() == expected.keys()
    for name, array in found.items():
        tolerance = (1e-9 if dtype is np.float64 else 1e-3) * np.abs(expected[name]).max()
        np.testing.assert_allclose(array, expected[name], atol=tolerance, err_msg=name)
        assert array.dtype == np.float64


def test_a_mini_batch_weighs_its_share_of_the_samples_and_then_of_the_window(rng: np.random.Generator) -> None:
    averages = Averages.of(slopes_of(get("kl"), rng, 200))
    expected, seen = vars(averages) | {}, 200
    for n in (10, 3, 10, 1, 150, 60, 10, 499, 501, 2):
        slopes = slopes_of(get("kl"), rng, n)
        averages, seen = averages.after(slopes, TAU), seen + n
        weight = min(1.0, n / min(seen, WINDOW * TAU))
        news = vars(Averages.of(slopes))
        expected = {name: (1 - weight) * old + weight * news[name] for name, old in expected.items()}
        for name in set(STATISTICS) - {"seen"}:
            np.testing.assert_allclose(getattr(averages, name), expected[name], rtol=1e-9, atol=1e-12, err_msg=name)
        assert averages.seen == [seen]


def test_averages_of_few_samples_in_pieces_are_those_of_all_at_once(rng: np.random.Generator) -> None:
    whole = slopes_of(get("kl"), rng, 60)
    pieces = [
        Slopes(Problem(get("kl"), whole.problem.X[rows], whole.problem.W), whole.H[rows], whole.Y[rows], whole.g[rows])
        for rows in (slice(7), slice(7, 31), slice(31, 60))
    ]
    averages = Averages.of(pieces[0])
    for piece in pieces[1:]:
        averages = averages.after(piece, TAU)
    for name, array in vars(Averages.of(whole)).items():
        np.testing.assert_allclose(getattr(averages, name), array, rtol=1e-9, atol=1e-12, err_msg=name)


@some
def test_the_metric_is_that_of_the_design(divergence: Divergence, rng: np.random.Generator) -> None:
    averages = Averages.of(slopes_of(divergence, rng))
    scale = np.sqrt(np.diag(averages.overlaps))
    kappa = np.linalg.eigvalsh(averages.overlaps / np.outer(scale, scale)).max()
    assert averages.overlap == pytest.approx(kappa, rel=1e-12)
    assert 1 <= kappa <= K
    plain = averages.residuals / averages.squares
    if divergence.name == "mahalanobis":
        averages = replace(averages, residuals=np.where(rng.random((K, F)) < 0.2, -1.0, averages.residuals))
        plain = averages.residuals / averages.squares
        assert (plain < 0).any()
    else:  # d is convex in the fit along the line to the sample, so g (y - x) is nowhere negative
        assert (averages.residuals >= 0).all()
    plain[plain <= 0] = np.median(plain[plain > 0])
    np.testing.assert_allclose(averages.metric(), plain / kappa, rtol=1e-12)


def test_entries_without_a_slope_have_the_median_and_none_is_far_from_it(rng: np.random.Generator) -> None:
    averages = Averages.of(slopes_of(get("kl"), rng))
    residuals, squares = np.ones((K, F)), np.ones((K, F))
    residuals[0, :4] = 1e-30, 1e30, 0.0, -3.0
    squares[1, :2], residuals[1, 1] = 0.0, 0.0
    D = replace(averages, residuals=residuals, squares=squares).metric() * averages.overlap
    expected = np.ones((K, F))
    expected[0, :2] = 1 / WIDEST, WIDEST
    np.testing.assert_allclose(D, expected, rtol=1e-12)
    nothing = replace(averages, residuals=0 * residuals, squares=0 * squares)
    np.testing.assert_array_equal(nothing.metric(), 1.0)


def test_components_that_no_sample_shares_do_not_overlap_and_equal_ones_do(rng: np.random.Generator) -> None:
    averages = Averages.of(slopes_of(get("kl"), rng))
    assert replace(averages, overlaps=np.eye(K)).overlap == 1
    assert replace(averages, overlaps=np.ones((K, K))).overlap == pytest.approx(K, rel=1e-12)
    assert np.isfinite(replace(averages, overlaps=np.zeros((K, K))).overlap)  # a component that no sample uses


def test_the_floor_is_a_share_of_the_features_size_per_unit_of_coefficients(rng: np.random.Generator) -> None:
    slopes = slopes_of(get("is"), rng)
    X, H = slopes.problem.X.matrix, slopes.H
    mean = X.mean(axis=0)
    plain = Averages.of(Slopes.of(Problem(get("kl"), X, slopes.problem.W), H))
    np.testing.assert_allclose(plain.low(ratios=False), SHARE * (mean + 0.01 * mean.mean()) / H.sum(axis=1).mean())
    unit = X.mean(axis=1, keepdims=True)
    geometric = np.exp(np.log(X / unit).mean(axis=0))
    expected = SHARE * geometric / (H.sum(axis=1) / unit[:, 0]).mean()
    np.testing.assert_allclose(Averages.of(slopes).low(ratios=True), expected, rtol=1e-9)
    np.testing.assert_array_equal(replace(plain, mass=np.array([1e-30])).low(ratios=False), 0.5)


# The trial period


def mean_losses(model: OnlineNMF, first: int, last: int) -> float:
    samples, losses = model.history_["samples"], model.history_["loss"]
    return float(losses[(first < samples) & (samples <= last)].mean())


@one_of_each_kind
def test_the_winner_of_the_race_is_the_best_of_the_runs_on_their_own_to_the_bit(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    X = data(200, rng)
    seen: list[np.ndarray] = []
    tried = model_of(divergence=divergence, callbacks=[lambda progress: seen.append(progress.W)]).fit(X[:150])
    ways: dict[float, list[np.ndarray]] = {c: [] for c in FACTORS}
    alone = {
        c: model_of(replace(SHORT, c=c), divergence, callbacks=[lambda p, c=c: ways[c].append(p.W)]).fit(X[:150])
        for c in FACTORS
    }
    for number, W in enumerate(seen):
        n = TAU * (number + 1)
        judged = (
            (0, n) if n < SHORT.trial_samples else (SHORT.trial_samples // 2, SHORT.trial_samples)
        )  # so far; at the end, the second half
        best = min(FACTORS, key=lambda c: mean_losses(alone[c], *judged))
        np.testing.assert_array_equal(W, ways[best][number])
    assert memory(tried)["factors"] == [best]
    for name in STATISTICS:
        np.testing.assert_array_equal(memory(tried)[name], memory(alone[best])[name])
    for model in (tried, alone[best]):
        model.partial_fit(X[150:])
    np.testing.assert_array_equal(tried.components_, alone[best].components_)
    np.testing.assert_array_equal(memory(tried)["metric"], memory(alone[best])["metric"])


def test_losses_are_summed_over_each_half_of_the_race(rng: np.random.Generator) -> None:
    X = data(70, rng)
    tried, *alone = (model_of(replace(SHORT, c=c), scale="none").fit(X) for c in (None, *FACTORS))
    expected = [[TAU * model.history_["loss"][rows].sum() for model in alone] for rows in (slice(4), slice(4, 7))]
    np.testing.assert_allclose(memory(tried)["losses"], expected, rtol=1e-12)


def test_a_fit_that_ends_in_the_race_keeps_all_runs_and_shows_the_best(rng: np.random.Generator) -> None:
    X = data(60, rng)
    model = model_of(Adaptive()).fit(X)
    kept = memory(model)
    best = int(np.argmin(kept["losses"].sum(axis=0)))
    np.testing.assert_array_equal(model.components_, kept["runs"][best])
    assert kept["factors"].tolist() == list(FACTORS)
    assert len({run.tobytes() for run in kept["runs"]}) == len(FACTORS)


def test_a_race_longer_than_b_ends_with_the_freeze(rng: np.random.Generator) -> None:
    X = data(60, rng)
    long, equal = (model_of(Adaptive(b=40, trial_samples=trial)).fit(X) for trial in (10**6, 40))
    assert memory(long).keys() == {"metric", "low"}
    np.testing.assert_array_equal(long.components_, equal.components_)
    assert "runs" in memory(model_of(Adaptive(b=40, trial_samples=10**6)).fit(X[:30]))


def test_a_factor_that_is_given_is_not_raced_for(rng: np.random.Generator) -> None:
    assert "runs" not in memory(model_of(Adaptive(c=0.7)).partial_fit(data(20, rng)))


# The freeze, and the sets


@some
def test_metric_and_floor_stay_for_ever_once_frozen_and_the_dictionary_does_not(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    X = data(300, rng)
    model = model_of(divergence=divergence).fit(X[:190])
    assert "metric" not in memory(model)
    frozen = {name: array.copy() for name, array in memory(model.partial_fit(X[190:200])).items()}
    assert frozen.keys() == ({"metric"} if divergence.domain.y.includes_zero else {"metric", "low"})
    W = model.components_
    model.partial_fit(X[200:])
    assert memory(model).keys() == frozen.keys()
    for name, array in frozen.items():
        np.testing.assert_array_equal(memory(model)[name], array)
    assert not np.array_equal(model.components_, W)


@pytest.mark.parametrize("divergence", [get("squared_l2"), get("kl")], ids=example_id)
def test_every_step_takes_up_its_mini_batch_first_and_the_last_one_freezes_what_has_become(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    X, W = data(30, rng) / 4, rng.uniform(0.2, 0.8, (K, F))
    model = model_of(Adaptive(b=30, c=0.3), divergence, scale="none", init=W)
    solve = model.method.coefficient_solver(divergence).solve
    problem = Problem(divergence, X[:TAU], W)
    averages = Averages.of(Slopes.of(problem, solve(problem).H))
    for n in (10, 20, 30):
        problem = Problem(divergence, X[n - TAU : n], W)
        slopes = Slopes.of(problem, solve(problem).H)
        averages = averages.after(slopes, TAU)
        D = 0.3 * averages.metric()
        V = W - 30 / (n + 30) * D * slopes.penalised(NO_PENALTIES, 0) / TAU
        if divergence.name == "kl":
            W = np.clip(np.clip(V, W / 10, 10 * W), averages.low(ratios=False), 1)
        else:
            W = DictionarySet().project(V, D)
        np.testing.assert_allclose(model.partial_fit(X[n - TAU : n]).components_, W, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(memory(model)["metric"], D, rtol=1e-9)
    if divergence.name == "kl":
        np.testing.assert_allclose(memory(model)["low"], averages.low(ratios=False), rtol=1e-9)


def test_a_frozen_step_is_the_papers_in_the_metric(rng: np.random.Generator) -> None:
    X = data(210, rng)
    for divergence in map(get, ("squared_l2", "kl")):
        model = model_of(divergence=divergence, scale="none").fit(X[:200])
        W, D = model.components_, memory(model)["metric"]
        problem = Problem(divergence, X[200:], W)
        H = model.method_.coefficient_solver(divergence).solve(problem).H
        V = W - 200 / (210 + 200) / TAU * D * (H.T @ divergence.grad(X[200:], H @ W))
        if divergence.name == "kl":
            expected = np.clip(np.clip(V, W / 10, 10 * W), memory(model)["low"], 1)
        else:
            expected = DictionarySet().project(V, D)
        np.testing.assert_allclose(model.partial_fit(X[200:]).components_, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("divergence", ["kl", "is", "hellinger"])
def test_where_the_fit_must_be_positive_no_entry_leaves_the_box_or_changes_tenfold(
    divergence: str, rng: np.random.Generator
) -> None:
    X = data(260, rng)
    X[rng.random(X.shape) < 0.3] = 1e-3
    model, ways, lows = model_of(replace(SHORT, c=2.0), divergence), [], []
    for first in range(0, len(X), TAU):
        model.partial_fit(X[first : first + TAU])
        ways.append(model.components_)
        lows.append(model._inference().feasible.low)
    for W, low in zip(ways, lows, strict=True):
        assert (low > 0).all()
        assert ((low <= W) & (W <= 1)).all()
    for before, after, low in zip(ways, ways[1:], lows[1:], strict=False):
        assert (after <= np.maximum(before * 10, low) * (1 + 1e-12)).all()
        assert (after >= before / 10 * (1 - 1e-12)).all()


# Streams, files, threads, precision


@one_of_each_kind
def test_partial_fit_over_the_batches_is_fit_to_the_bit_in_every_phase(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    X = data(250, rng)
    for n in PHASES.values():
        whole = model_of(divergence=divergence, batch_size=25).fit(X[:n])  # mini-batches of 10, 10 and 5
        assert_same_bits(whole, streamed(model_of(divergence=divergence), X[:n].copy(), 25))


@pytest.mark.parametrize(
    ("phase", "settings"),
    [
        *((phase, {}) for phase in PHASES),
        ("after the trial", {"divergence": "huber"}),
        ("frozen", {"reservoir": 20}),
    ],
)
def test_models_saved_and_runs_cut_short_in_any_phase_go_on_to_the_bit(
    phase: str, settings: dict[str, Any], rng: np.random.Generator, tmp_path: Path
) -> None:
    X, n = data(300, rng), PHASES[phase] // (4 if "reservoir" in settings else 1)  # it adds three old samples to a new
    model = model_of(**settings).fit(X[:n])
    assert ("runs" in memory(model), "metric" in memory(model)) == (phase == "trial", phase == "frozen")
    save(model, tmp_path / "m")
    loaded = load(tmp_path / "m")
    require_same_learning(loaded, model)
    for each in (model, loaded):
        each.partial_fit(X[n:])
    require_same_learning(loaded, model)

    def stop(progress: Progress) -> bool:
        if progress.samples >= n:
            raise KeyboardInterrupt
        return False

    whole = model_of(**settings).fit(X)
    with pytest.raises(KeyboardInterrupt):
        model_of(**settings, callbacks=[stop]).fit(X, checkpoint=tmp_path / "c")
    require_same_learning(model_of(**settings).fit(X, checkpoint=tmp_path / "c", resume=True), whole)


def kept_in(phase: str, folder: Path, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    save(model_of().fit(data(PHASES[phase], rng)), folder / phase)
    return model_file.read(folder / phase)


def refusal(arrays: dict[str, np.ndarray], facts: dict[str, Any], folder: Path) -> str:
    model_file.write(folder / "changed", arrays, facts)
    with pytest.raises(ModelFileError) as error:
        load(folder / "changed")
    assert "\n" not in str(error.value)
    return str(error.value)


@every_phase
def test_a_file_with_statistics_that_no_run_could_have_is_refused_by_one_sentence(
    phase: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    arrays, facts = kept_in(phase, tmp_path, rng)
    own = {name for name in arrays if name.startswith("memory.")}
    for name in own:
        array = arrays[name]
        for wrong in (array[:-1], array[None], array.astype(np.float32), array.astype(np.int64)):
            assert "statistics do not fit" in refusal(arrays | {name: np.ascontiguousarray(wrong)}, facts, tmp_path)
        assert "not finite" in refusal(arrays | {name: array * np.nan}, facts, tmp_path)
        assert "not finite" in refusal(arrays | {name: array + np.inf}, facts, tmp_path)
        if name.removeprefix("memory.") in Paper.nonnegative:
            assert "negative" in refusal(arrays | {name: -1 - array}, facts, tmp_path)
        missing = {key: value for key, value in arrays.items() if key != name}
        assert "statistics do not fit" in refusal(missing, facts, tmp_path)
    signed = {"memory.residuals", "memory.overlaps", "memory.sizes"}
    assert {f"memory.{name}" for name in Paper.nonnegative} & own == own - signed
    impossible = {
        "trial": {"runs": (0 * arrays["components"] + 5, arrays["components"][::-1]), "factors": (0,)},
        "after the trial": {"factors": (0,)},
        "frozen": {"metric": (0,)},
    }
    for name, values in impossible[phase].items():
        for value in values:
            array = np.zeros_like(arrays[f"memory.{name}"]) + value
            assert "not such as the step makes" in refusal(arrays | {f"memory.{name}": array}, facts, tmp_path)
    for other in PHASES:
        if other != phase:
            theirs, _ = kept_in(other, tmp_path, rng)
            mixed = {name: array for name, array in arrays.items() if name not in own}
            mixed |= {name: array for name, array in theirs.items() if name.startswith("memory.")}
            assert "statistics do not fit" in refusal(mixed, facts, tmp_path)
    for step in (None, 3, [], "magic", "adaptive:magic=1", "adaptive:b", "canonical:a=0", "canonical"):
        constants = facts["method"]["constants"] | {"step": step}
        refusal(arrays, facts | {"method": facts["method"] | {"constants": constants}}, tmp_path)


@pytest.mark.parametrize("divergence", ["kl", "is", "squared_l2"])
def test_samples_that_are_fitted_exactly_are_learnt_from_saved_and_read(
    divergence: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    """Losses and slopes are rounding alone, of either sign."""
    W = rng.uniform(0.1, 1.0, (K, F))
    X = rng.gamma(2.0, 1.0, (250, K)) @ W
    for n in PHASES.values():
        model = model_of(divergence=divergence, init=W, scale="none").fit(X[:n])
        assert np.isfinite(model.components_).all()
        save(model, tmp_path / "m")
        require_same_learning(load(tmp_path / "m"), model)


@pytest.mark.parametrize("divergence", ["kl", "squared_l2"])
def test_any_number_of_threads_gives_the_same_bits(divergence: str, rng: np.random.Generator) -> None:
    X = data(250, rng, n_features=3000)
    settings = {"n_components": 40, "method": Paper(tau=200, step=SHORT, max_iter=2)}
    assert divergence == "squared_l2" or len(Problem(get(divergence), X[:200], rng.random((40, 3000))).blocks()) > 1
    found = []
    for threads in (1, 3):
        with threadpool_limits(threads):
            found.append(model_of(divergence=divergence).set_params(**settings).fit(X))
    require_same_learning(*found)


@one_of_each_kind
def test_single_precision_stays_single_in_every_phase(divergence: Divergence, rng: np.random.Generator) -> None:
    X = data(250, rng)
    for n in PHASES.values():
        single, double = (model_of(divergence=divergence).fit(X[:n].astype(t)) for t in (np.float32, np.float64))
        for name, array in memory(single).items():
            assert array.dtype == (np.float32 if name in ("runs", "metric", "low") else np.float64), name
        assert single.components_.dtype == np.float32
        assert single.loss(X) == pytest.approx(double.loss(X), rel=0.05)


# Units and learning

REGISTERED = [divergence for divergence in examples() if get(divergence) == divergence]


@some  # and all, in test_methods.py
def test_units_do_not_matter(divergence: Divergence, rng: np.random.Generator) -> None:
    X = data(250, rng)
    model = model_of(divergence=divergence).fit(X)
    for c in (1e-3, 1e3):
        scaled = model_of(divergence=divergence.in_units(1 / c)).fit(c * X)  # parameters in the data's units too
        np.testing.assert_allclose(scaled.components_, model.components_, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("divergence", REGISTERED, ids=example_id)
def test_without_any_tuning_the_loss_falls_far_below_that_of_the_start(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    X, held_out = np.split(data(260, rng), [200])
    still = Paper(step=Canonical(a=1e-12), max_iter=1)
    start, model = (
        OnlineNMF(K, divergence=divergence, method=method, init="uniform", random_state=0).partial_fit(X)
        for method in (still, Paper())
    )
    assert model.loss(held_out) < 0.5 * start.loss(held_out)


# As values and as text

STEPS = [
    Adaptive(),
    Adaptive(c=0.5),
    Adaptive(b=1e3, c=np.float32(0.1), trial_samples=np.int64(7)),
    Adaptive(b=1 / 3),
    Canonical(),
    Canonical(a=3, b=1e22),
    Canonical(a=1e-12, power=0.75),
    Canonical(power=0.3, any_power=True),
    Canonical(any_power=True),
]
every_step = pytest.mark.parametrize("step", STEPS, ids=repr)


@every_step
def test_steps_are_values_and_their_text_leads_back(step: Step) -> None:
    assert Step.get(step.text()) == step
    assert Step.get(step) is step
    assert eval(repr(step), vars(methods) | {"np": np}) == step  # noqa: S307
    assert hash(pickle.loads(pickle.dumps(step))) == hash(step)  # noqa: S301
    for method in (Paper(step=step), Paper(tau=3, step=step, solver="paper", tol=1 / 3, max_iter=7)):
        assert methods.get(method.text()) == method
        assert Paper.make(method.constants()) == method
        assert Paper(step=step.text()) == Paper(step=step)
        assert pickle.loads(pickle.dumps(method)) == method  # noqa: S301
        model = OnlineNMF(method=method)
        assert clone(model).method == method
        assert OnlineNMF().set_params(method="paper", method__step=step).method == Paper(step=step)
        assert OnlineNMF(method="paper").set_params(method__step=step.text()).method == Paper(step=step)
        assert model.get_params()["method__step"] == step


def test_a_step_shows_the_constants_that_are_not_default() -> None:
    assert repr(Adaptive()) == "Adaptive()"
    assert repr(Paper()) == "Paper()"
    assert repr(Paper(step="canonical")) == "Paper(step=Canonical())"
    assert repr(Paper(step="Adaptive:c=2,trial_samples=30")) == "Paper(step=Adaptive(c=2, trial_samples=30))"
    assert Paper(step=Adaptive(c=2, trial_samples=30), tau=5).text() == "paper:tau=5,step=adaptive,c=2,trial_samples=30"
    assert Step.names() == ["adaptive", "canonical"]


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (lambda: Step.get("magic"), "unknown step 'magic'; choose one of adaptive, canonical"),
        (lambda: Paper(step="adaptiv"), r"unknown step 'adaptiv' \(did you mean 'adaptive'\?\)"),
        (
            lambda: Paper(step="adaptive:a=1"),
            "step 'adaptive' has no constant 'a'; its constants are b, c, trial_samples",
        ),
        (
            lambda: Adaptive().with_constants(a=1),
            "step 'adaptive' has no constant 'a'; its constants are b, c, trial_samples",
        ),
        (
            lambda: Paper(step="canonical:c=1"),
            "'canonical' has no constant 'c'; its constants are a, b, power",
        ),
        (lambda: Paper(step="adaptive:c=1,c=2"), "c is given twice"),
        (lambda: Paper(step="adaptive:c"), "write constants as NAME=VALUE"),
        (
            lambda: methods.get("paper:step=canonical,trial_samples=3"),
            "trial_samples is a constant of step=adaptive; write paper:step=adaptive,trial_samples=",
        ),
        (lambda: OnlineNMF(method="paper").set_params(method__step="magic"), "unknown step 'magic'"),
        (lambda: Adaptive(b=0), "needs b > 0, got 0"),
        (lambda: Adaptive(c=np.nan), "needs c > 0, got nan"),
        (lambda: Adaptive(c=True), "needs c > 0, got True"),
        (lambda: Adaptive(trial_samples=0), "trial_samples must be a whole number of at least 1"),
    ],
)
def test_what_is_no_step_is_refused_by_name(attempt: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        attempt()


def test_what_could_not_be_a_step_is_refused_by_its_type() -> None:
    with pytest.raises(TypeError, match="step must be a name or a Step, not int; the names are adaptive, canonical"):
        Paper(step=3)
    with pytest.raises(TypeError, match=r"step is the class Adaptive; write Adaptive\(\)"):
        Paper(step=Adaptive)


def test_where_the_loss_rises_a_gentler_step_is_advised() -> None:
    assert methods.get(Paper().shorter_step()) == Paper(step=Adaptive(c=min(FACTORS) / 10))
    assert methods.get(Paper(step=Adaptive(c=2, b=30)).shorter_step()) == Paper(step=Adaptive(c=0.2, b=30))
    assert methods.get(Paper(step=Canonical(a=50), tau=3).shorter_step()) == Paper(tau=3)


@every_phase
def test_the_theorem_speaks_of_a_frozen_metric_alone(phase: str, rng: np.random.Generator) -> None:
    state = model_of().fit(data(PHASES[phase], rng))._learned.state
    doubts = SHORT.doubts(state)
    assert doubts == [] if phase == "frozen" else f"of which it has seen {PHASES[phase]}" in doubts[0]
