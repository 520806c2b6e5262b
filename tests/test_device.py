"""PyTorch in place of compiled code: on the processor always, and with CUDA where there is a GPU."""

from __future__ import annotations

import importlib.util
import logging
import pickle
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import onmf
from onmf import Checkpoint, OnlineNMF, divergences
from onmf.coefficients.problem import Problem, scales
from onmf.data import Batches
from onmf.device import choose_device
from onmf.device.choose_device import device_of
from onmf.divergences import Divergence
from onmf.estimators import inference
from onmf.learner import batching as cuts
from onmf.methods import Surrogate, exchange, quadratics
from onmf.model.penalty import Penalties, Penalty
from onmf.model.sets import Box, DictionarySet
from onmf.model.state import State
from onmf.samples import Samples
from tests import processes
from tests.conftest import Run, example_id, examples, require_same_learning
from tests.devices import DEVICES, GPU, F, K, data, quick
from tests.learning import updated

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'onmf[gpu]'")

from onmf.device import engine as engines  # noqa: E402 - they import PyTorch
from onmf.device import problem as problems  # noqa: E402
from onmf.device import surrogate as surrogates  # noqa: E402
from onmf.device import transfer  # noqa: E402
from onmf.device.device_state import HostCopy  # noqa: E402
from onmf.device.engine import DeviceExchangeSamples  # noqa: E402
from onmf.device.problem import xp  # noqa: E402
from onmf.device.quadratic_programmes import descend  # noqa: E402
from onmf.device.surrogate import SurrogateState  # noqa: E402

SEPARABLE = [each for each in examples() if each.separable]

torch.set_num_threads(1)  # processes share the cores


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# The kernel


def test_coordinate_descent_ends_where_scipy_does(device: str) -> None:
    rng = np.random.default_rng(0)
    for number in (1, 7):
        root = rng.normal(size=(number, 9, 6))
        A, b = root.transpose(0, 2, 1) @ root, rng.normal(size=(7, 6))
        low, high = np.full((7, 6), 0.01), rng.uniform(0.2, 2.0, (7, 6))
        given = (torch.as_tensor(each, device=device) for each in (A, b, np.full((7, 6), 0.1), low, high))
        x = descend(*given, 2000).cpu().numpy()
        for p in range(7):
            R = root[p if number > 1 else 0]
            target = np.linalg.lstsq(R.T, b[p], rcond=None)[0]  # |Rx - t|^2 / 2 has the slope A x - b
            expected = scipy.optimize.lsq_linear(R, target, (low[p], high[p]), tol=1e-14).x
            np.testing.assert_allclose(x[p], expected, atol=1e-6)


def test_coordinates_before_the_first_and_without_curvature_stay(device: str) -> None:
    A = torch.diag(torch.tensor([1.0, 2.0, 0.0, 4.0])).to(device)[None]
    b, x = torch.ones((2, 4), device=device), torch.full((2, 4), 0.3, device=device)
    found = descend(A, b, x, 0.0, 1.0, 5, first=1).cpu()
    np.testing.assert_allclose(found, [[0.3, 0.5, 0.3, 0.25]] * 2)
    assert float(x.min()) == pytest.approx(0.3)  # what was given is as it was


# The formulas


@pytest.mark.parametrize("divergence", SEPARABLE, ids=example_id)
def test_formulas_give_the_same_numbers_on_tensors(divergence: Divergence, device: str) -> None:
    X = data(divergence, 20)
    Y = X + np.random.default_rng(1).uniform(0.1, 1.0, X.shape)
    Y[0] = np.maximum(X[0], 1e-3)  # where the chord has no length
    x, y = (torch.as_tensor(each, device=device) for each in (X, Y))
    np.testing.assert_allclose(divergence.d(xp, x, y).sum(dim=1).cpu(), divergence.value(X, Y), rtol=1e-9)
    for newton in (False, True):
        expected = divergence.model(np, X, Y, newton)
        for one, other in zip(divergence.model(xp, x, y, newton), expected, strict=True):
            np.testing.assert_allclose(one.cpu(), other, rtol=1e-9, atol=1e-12)


# Coefficients


@pytest.mark.parametrize("divergence", SEPARABLE, ids=example_id)
def test_precise_coefficients_are_as_good_as_those_of_the_processor(divergence: Divergence, device: str) -> None:
    X = data(divergence, 60)
    model = quick(None, divergence=divergence, method="auto", transform_tol=1e-3).fit(X)
    loss = model.loss(X)
    alike = divergence.convex and divergence.smooth
    assert model.set_params(device=device).loss(X) <= loss * (1.002 if alike else 1.01)
    scale = float(scales(divergence, Samples(X)).mean())
    H, other = (model.set_params(device=each).transform(X) for each in (device, None))
    if alike:
        fits = (each @ model.components_ for each in (H, other))
        one, two = (divergence.value(X, np.maximum(fit, 1e-12)).mean() for fit in fits)
        assert abs(one - two) <= 2e-4 * scale


def test_penalties_and_missing_entries_are_those_of_the_processor(device: str) -> None:
    X = data()
    X[::3, ::4] = np.nan
    model = quick(None, missing="nan", l1_coefficients=0.1, l2_coefficients=0.1).fit(X)
    H = model.transform(X)
    np.testing.assert_allclose(model.set_params(device=device).transform(X), H, rtol=0.05, atol=0.05 * H.max())
    assert model.loss(X) == pytest.approx(model.set_params(device=None).loss(X), rel=1e-3)


@pytest.mark.parametrize("divergence", ["is", "kl"])
def test_samples_that_take_longer_are_collected_from_many_blocks(
    divergence: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = data(divergence, 300)
    model = quick(device, divergence=divergence, transform_tol=1e-7).fit(X)
    whole, sizes, real = model.transform(X), list[int](), problems.descended
    monkeypatch.setattr(problems, "BLOCK", 40)
    monkeypatch.setattr(problems, "QUICK", 4)
    monkeypatch.setattr(problems, "descended", lambda *given: sizes.append(len(given[1])) or real(*given))
    np.testing.assert_allclose(model.transform(X), whole, rtol=1e-3, atol=1e-5 * whole.max())
    assert 8 < len(sizes) <= 12, sizes  # eight blocks, and a few collections of what they left


def test_no_sample_takes_many_steps_under_a_loss_that_is_not_convex(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = data("is", 300, np.float32)
    model = quick(device, divergence="is", transform_tol=1e-4, n_components=8).fit(X)
    steps, real = list[int](), problems.solve
    monkeypatch.setattr(problems, "solve", lambda *given, **more: steps.append(1) or real(*given, **more))
    model.transform(X)
    assert len(steps) <= 40


def test_a_tensor_is_solved_where_it_is(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X = torch.as_tensor(data(n=100, dtype=np.float32), device=device)
    model = quick(device).fit(X)
    monkeypatch.setattr(inference, "on_host", None)
    assert model.transform(X).device == X.device
    assert model.loss(X) > 0


# The dictionary step


def one_step(divergence: Divergence, method: Surrogate, state: State, X: Samples, H: Any) -> State:
    """As the processor makes it."""
    return updated(method, state.copy(), Problem(divergence, X, state.W, Box(), Penalty()), H)


@pytest.mark.parametrize("name", ["kl", "is", "squared_l2", "huber:1", "beta:1.5"])
@pytest.mark.parametrize("kind", ["plain", "weighted", "known", "fixed", "penalised", "diagonal"])
def test_a_step_of_the_dictionary_is_that_of_the_processor(
    name: str, kind: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quadratics, "sweeps", lambda memory, n: 300)  # until nothing moves
    monkeypatch.setattr(surrogates, "SWEEPS", 300)
    divergence, rng = divergences.get(name), np.random.default_rng(2)
    X: Any = data(divergence, 80) + 0.1
    penalties = Penalties(0.1, 0.1, 0.05, 0.05) if kind == "penalised" else Penalties()
    method = Surrogate(tau=40, max_memory=0 if kind == "diagonal" else 2**30, sparse=False)
    C = DictionarySet(fixed=1 if kind == "fixed" else 0)
    start = method.start(divergence, rng.uniform(0.1, 1.0, (K, F)), C, masked=kind == "known")
    state = replace(start, penalties=penalties)
    weights = rng.uniform(0.5, 2.0, 40) if kind == "weighted" else None
    present = rng.uniform(0.0, 2.0, (80, F)) * (rng.random((80, F)) < 0.8) if kind == "known" else None
    for part in (slice(0, 40), slice(40, 80)):
        H = rng.uniform(0.1, 2.0, (40, K))
        some = Samples(X[part], None if present is None else present[part], weights)
        expected = one_step(divergence, method, state, some, H)
        there = torch.as_tensor(H, device=device)
        held = None if present is None else torch.as_tensor(present[part], device=device)
        chunk, before = torch.as_tensor(X[part], device=device), SurrogateState.of(state, device)
        problem = problems.DeviceProblem(divergence, chunk, before.W, Box(), Penalty(), held)
        n = 40.0 if weights is None else float(weights.sum())
        count = None if weights is None else torch.as_tensor(weights, device=device)[:, None]
        clock = state.clock + n
        rho = method.weight(divergence, clock, n)
        fit = problem.fit(there)
        after = before.after(divergence, problem, there, fit, old=1 - rho, new=rho / n, weights=count)
        found = after.after_batch(state, clock, 1)
        for entry in expected.memory:
            wanted = expected.memory[entry]
            np.testing.assert_allclose(found.memory[entry], wanted, rtol=1e-6, atol=1e-9 * np.abs(wanted).max())
        np.testing.assert_allclose(found.W, expected.W, rtol=1e-5, atol=1e-8)
        assert C.contains(found.W)
        np.testing.assert_array_equal(found.W[: C.fixed], state.W[: C.fixed])
        state = expected


@pytest.mark.parametrize("kind", ["packed", "diagonal", "shared"])
def test_a_state_comes_back_from_the_device_as_it_was_and_recombines_as_on_the_processor(
    kind: str, device: str
) -> None:
    X = data(n=200)
    divergence = "squared_l2" if kind == "shared" else "kl"
    model = quick(None, method=f"surrogate:max_memory={0 if kind == 'diagonal' else 2**30}", divergence=divergence)
    learned: Any = model.fit(X)._learned
    there = SurrogateState.of(learned.state, device)
    back = there.after_batch(learned.state, learned.state.clock, 0)
    for name, array in learned.state.memory.items():
        np.testing.assert_array_equal(back.memory[name], array)
    np.testing.assert_array_equal(back.W, learned.state.W)
    assert SurrogateState.of(back, device).W is there.W  # which need not be sent again
    assert SurrogateState.of(replace(back, W=back.W + 1), device).W is not there.W
    T, W = np.random.default_rng(3).uniform(0.1, 1.0, (K, K)), np.random.default_rng(4).uniform(0.1, 1.0, (K, F))
    expected = quadratics.recombined(learned.state.memory, T)
    changed = there.recombined(learned.inside, W, T).after_batch(learned.state, learned.state.clock, 0)
    for name, array in expected.items():
        np.testing.assert_allclose(changed.memory[name], array, rtol=1e-9)


def test_statistics_come_to_the_host_when_somebody_asks_for_them(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[SurrogateState] = []
    real = SurrogateState.on_host

    def noted(state: SurrogateState) -> Any:
        copied.append(state)
        return real(state)

    monkeypatch.setattr(SurrogateState, "on_host", noted)
    model: Any = quick(device, batch_size=100).fit(data(n=600))
    memory = model._learned.state.memory
    assert isinstance(memory, HostCopy)
    assert not copied
    kept = pickle.loads(pickle.dumps(model))._learned.state.memory  # noqa: S301 - our own
    assert (type(kept), len(copied)) == (dict, 1)
    assert list(kept) == list(memory)
    for name, array in memory.items():
        np.testing.assert_array_equal(kept[name], array)
    assert len(copied) == 1


@pytest.mark.parametrize(
    ("name", "kind"), [*product(["kl", "is", "squared_l2", "huber:1"], ["whole", "known"]), ("kl", "sparse")]
)
def test_an_exchange_asks_its_samples_for_the_same_as_on_the_processor(name: str, kind: str, device: str) -> None:
    divergence, rng = divergences.get(name), np.random.default_rng(1)
    X = data(name, 60)
    if kind == "sparse":
        X = X * (rng.random(X.shape) < 0.4)
    present = rng.uniform(0.5, 1.5, X.shape) * (rng.random(X.shape) < 0.8) if kind == "known" else None
    W, H = rng.uniform(0.1, 1.0, (K, F)), rng.uniform(0.5, 1.0, (60, K))
    given = Samples(scipy.sparse.csr_matrix(X) if kind == "sparse" else X, present)
    there, known = (None if each is None else torch.as_tensor(each, device=device) for each in (X, present))
    some = DeviceExchangeSamples(divergence, there, known, Box(), Penalty(), few=kind == "sparse")
    on_host = exchange.HostExchangeSamples(Surrogate(), divergence, State(W, DictionarySet()), given, Box())
    coefficients = torch.as_tensor(H, device=device)
    for found, expected in zip(some.grams(coefficients, W), on_host.grams(H, W), strict=True):
        np.testing.assert_allclose(found / found.mean(), expected / expected.mean(), rtol=1e-9)
    rows = slice(0, None, 2)
    worst = int(np.argmax(X[rows].sum(axis=1)))  # some fit is too small there
    new = some.lacking(rows, coefficients, W, worst)
    wanted = on_host.lacking(rows, H, W, worst)
    assert new is not None
    assert wanted is not None
    np.testing.assert_allclose(new, wanted, rtol=1e-6, atol=1e-12)
    assert some.solved(rows, W)[1].sum() <= 1.01 * some.solved(rows, W * 0.5)[1].sum()


# Learning


@pytest.mark.parametrize("name", ["kl", "is", "squared_l2", "huber:1"])
def test_equal_chunks_end_with_the_loss_of_the_processor(name: str, device: str) -> None:
    X = data(name, 1600, np.float32)
    losses = [quick(each, divergence=name, batch_size=200).fit(X[:1000]).loss(X[1000:]) for each in (None, device)]
    assert losses[1] <= 1.005 * losses[0]  # on many samples, within .2 %: benchmarks.gpu


def test_a_delta_that_is_left_to_the_data_follows_the_residuals(device: str) -> None:
    X = data(n=1500)
    deltas = [quick(each, divergence="huber", batch_size=100).fit(X).delta_ for each in (None, device)]
    assert deltas[1] == pytest.approx(deltas[0], rel=0.1)


def test_chunks_that_grow_learn_too_and_in_single_precision(device: str) -> None:
    X = data(n=1500, dtype=np.float32)
    model = quick(device, method="auto").fit(X)
    assert (model.method_.name, model.components_.dtype) == ("surrogate", np.float32)
    assert model.n_steps_ < 10
    assert model.loss(X) <= 1.05 * quick(None).fit(X).loss(X)


def test_the_same_seed_gives_the_same_bits_and_batches_are_fit(device: str) -> None:
    X = data(n=600)
    first = quick(device, batch_size=150, shuffle=False).fit(X)
    require_same_learning(quick(device, batch_size=150, shuffle=False).fit(X), first)
    batches = quick(device)
    for part in np.split(X, 4):
        batches.partial_fit(part)
    np.testing.assert_array_equal(batches.components_, first.components_)
    np.testing.assert_array_equal(
        quick(device, batch_size=150, shuffle=False).fit(Batches(np.split(X, 4))).components_, first.components_
    )


@pytest.mark.parametrize("method", ["surrogate:tau=50", "em"])
def test_model_files_and_checkpoints_know_no_device(method: str, device: str, tmp_path: Path) -> None:
    X = data(n=900)
    whole_run = quick(device, method=method, batch_size=150).fit(X)
    stopped = quick(device, method=method, batch_size=150, callbacks=[lambda progress: progress.samples >= 450])
    stopped.fit(X, checkpoint=Checkpoint(tmp_path / "run", every=0))
    resumed = quick(device, method=method, batch_size=150).fit(X, checkpoint=tmp_path / "run", resume=True)
    require_same_learning(resumed, whole_run)
    onmf.save(resumed, tmp_path / "model")
    loaded = onmf.load(tmp_path / "model")
    assert loaded.device is None
    on_processor = quick(None, method=method).fit(data(n=400), resume_from=loaded)
    assert on_processor.n_samples_seen_ == 1300
    again = onmf.load(tmp_path / "model").set_params(device=device).partial_fit(X[:100])
    np.testing.assert_array_equal(again.components_, resumed.partial_fit(X[:100]).components_)


def test_weights_count_as_repetitions(device: str) -> None:
    X = data(n=300)
    settings: dict[str, Any] = {"shuffle": False, "batch_size": 300, "init": "uniform", "method": "surrogate:tau=300"}
    counts = np.where(np.arange(300) % 3 == 0, 2.0, 1.0)
    weighted = quick(device, **settings).fit(X, sample_weight=counts)
    expected = quick(None, **settings).fit(X, sample_weight=counts)
    assert weighted.loss(X) == pytest.approx(expected.loss(X), rel=0.02)
    assert weighted.loss(X, sample_weight=counts) == pytest.approx(
        weighted.set_params(device=None).loss(X, sample_weight=counts), rel=1e-3
    )


def test_missing_entries_fixed_components_and_penalties_are_learnt_with(device: str) -> None:
    X = data(n=800)
    missing_some = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
    losses = [quick(each, missing="nan").fit(missing_some).set_params(missing=None).loss(X) for each in (None, device)]
    assert losses[1] <= 1.03 * losses[0]
    component = np.random.default_rng(1).uniform(0.1, 1.0, (1, F))
    component /= component.max()
    model = quick(device, fixed=component).fit(X)
    np.testing.assert_array_equal(model.components_[0], component[0])
    penalties: dict[str, Any] = dict.fromkeys(
        ("l1_coefficients", "l2_coefficients", "l1_dictionary", "l2_dictionary"), 0.02
    )
    both = [quick(each, **penalties).fit(X) for each in (None, device)]
    assert both[1].loss(X) == pytest.approx(both[0].loss(X), rel=0.02)
    assert both[1].components_.sum() == pytest.approx(both[0].components_.sum(), rel=0.05)


def test_sparse_data_are_learnt_as_dense_ones(device: str) -> None:
    X = data(n=400) * (np.random.default_rng(0).random((400, F)) < 0.3)
    X[7] = 0
    dense, sparse = quick(device).fit(X), quick(device).fit(scipy.sparse.csr_matrix(X))
    np.testing.assert_allclose(sparse.components_, dense.components_, rtol=1e-9)
    np.testing.assert_allclose(sparse.transform(scipy.sparse.csr_array(X)), dense.transform(X), rtol=1e-6, atol=1e-9)
    streamed = quick(device).fit(onmf.data.Rows(scipy.sparse.csr_matrix(X)))
    np.testing.assert_allclose(streamed.components_, dense.components_, rtol=1e-9)


def test_a_sparse_matrix_whose_indices_point_outside_raises_an_error(device: str) -> None:
    X = scipy.sparse.csr_matrix(data(n=50))
    X.indices[7] = 99
    with pytest.raises(ValueError, match="The sparse matrix is damaged"):
        quick(device).fit(X)


def test_files_are_read_ahead_with_the_same_bits(device: str, tmp_path: Path) -> None:
    X = data(n=3000)
    np.save(tmp_path / "x.npy", X)
    model = quick(device, method="auto").fit(onmf.data.open_source(tmp_path / "x.npy"))
    np.testing.assert_array_equal(model.components_, quick(device, method="auto").fit(X).components_)
    stopped = quick(device, callbacks=[lambda _: True]).fit(onmf.data.open_source(tmp_path / "x.npy"))
    assert stopped.n_samples_seen_ == 1024
    X[2000, 3] = np.nan
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(onmf.DataError, match="NaN in the data at row 2000, column 3"):
        quick(device, shuffle=False).fit(onmf.data.open_source(tmp_path / "x.npy"))
    skipped = quick(device, on_error="skip").fit(onmf.data.open_source(tmp_path / "x.npy"))
    assert (skipped.n_skipped_, skipped.n_samples_seen_) == (1, 2999)


def test_tensors_are_taken_and_given(device: str) -> None:
    X = data(n=300, dtype=np.float32)
    there = torch.as_tensor(X, device=device)
    model = quick(device).fit(there)
    np.testing.assert_array_equal(model.components_, quick(device).fit(X).components_)
    H = model.transform(there)
    assert (H.device, H.dtype, tuple(H.shape)) == (there.device, torch.float32, (300, K))
    np.testing.assert_array_equal(H.cpu().numpy(), model.transform(X))
    assert tuple(model.inverse_transform(H).shape) == (300, F)
    assert model.proportions(there).sum(dim=1).cpu().numpy() == pytest.approx(1.0, abs=1e-5)
    assert model.loss(there) == pytest.approx(model.loss(X), rel=1e-6)
    by_batches, by_arrays = (quick(device).partial_fit(part[:150]).partial_fit(part[150:]) for part in (there, X))
    np.testing.assert_array_equal(by_batches.components_, by_arrays.components_)
    assert (by_batches.n_features_in_, by_batches.n_samples_seen_) == (F, 300)
    with pytest.raises(ValueError, match="X has 5 features, but the model was learnt from 12"):
        by_batches.partial_fit(there[:, :5])
    spoilt = there.clone()
    spoilt[3, 2] = np.nan
    with pytest.raises(onmf.DataError, match="NaN in the data at row 3, column 2"):
        by_batches.partial_fit(spoilt)
    assert by_batches.n_samples_seen_ == 300
    on_processor = quick(None).fit(torch.as_tensor(X))  # tensors of the processor are arrays
    np.testing.assert_array_equal(on_processor.components_, quick(None).fit(X).components_)
    assert isinstance(on_processor.transform(torch.as_tensor(X)), torch.Tensor)


def test_tensors_whose_coefficients_the_processor_finds_are_taken_and_given(device: str) -> None:
    X = data(n=200)
    there = torch.as_tensor(X, device=device)
    model = quick(device, divergence="l1").fit(there)
    H = model.transform(there)
    assert H.device == there.device
    np.testing.assert_array_equal(H.cpu().numpy(), model.transform(X))
    assert model.loss(there) == model.loss(X)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (torch.ones((2, 3, 4)), "two dimensions, samples by features; got a tensor of shape"),
        (torch.ones((0, 4)), "X is empty"),
        (torch.ones((3, 4)).to_sparse(), "must be a dense tensor of real numbers"),
        (torch.tensor([[1.0, -1.0], [1.0, 2.0]]), "Negative values in data, the first -1, at row 0, column 1"),
    ],
    ids=["deep", "empty", "sparse", "negative"],
)
def test_bad_tensors_raise_an_error(given: Any, sentence: str, device: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        quick(device).fit(given)


def test_tensors_of_other_types_and_bad_ones_are_met_alike_everywhere(device: str) -> None:
    X = data(n=200)
    model = quick(device).fit(X.astype(np.float32))
    for kind in (torch.int64, torch.bfloat16, torch.float16):
        there = torch.as_tensor(X, device=device).to(kind)
        assert quick(device).fit(there).components_.dtype == quick(device).partial_fit(there).components_.dtype
        assert model.transform(there).dtype == torch.float32
    for bad in (-1.0, np.nan, np.inf):
        there = torch.tensor(X, device=device)
        there[3, 2] = bad
        with pytest.raises(onmf.DataError, match="at row 3, column 2"):
            model.transform(there)
    assert model.stationarity(torch.as_tensor(X)) == pytest.approx(model.stationarity(X), rel=1e-3)


@pytest.mark.filterwarnings("ignore:.*raised to:UserWarning")
def test_zero_rows_count_where_they_are_raised_and_an_outlier_does_not_move_delta(device: str) -> None:
    X = data("is", 300)
    X[::2] = 0
    models = [quick(each, divergence="is").fit(X) for each in (None, device)]
    assert models[0]._learned.state.samples == models[1]._learned.state.samples == 300  # type: ignore[union-attr]
    Y = data(n=1100)
    Y[-1] *= 1e3
    deltas = [quick(each, divergence="huber", shuffle=False, method="auto").fit(Y).delta_ for each in (None, device)]
    assert deltas[1] == pytest.approx(deltas[0], rel=0.5)


@pytest.mark.filterwarnings("ignore:Every entry of 2 samples was missing:UserWarning")
def test_samples_of_which_nothing_is_known_or_that_are_empty_teach_nothing(device: str) -> None:
    X = data(n=400) + 1
    unknown = X.copy()
    unknown[[5, 77]] = np.nan
    learned: list[Any] = [quick(each, missing="nan").fit(unknown)._learned for each in (None, device)]
    assert [each.state.samples for each in learned] == [398, 398]
    late, init = np.where(np.arange(400)[:, None] < 300, 0.0, X), np.random.default_rng(0).uniform(0.1, 1.0, (K, F))
    model: Any = quick(device, init=init, batch_size=400, shuffle=False).fit(late)
    assert 0 < model._learned.loss_to_beat < np.inf


def test_upper_bounds_on_coefficients_lead_no_step_up(device: str) -> None:
    rng = np.random.default_rng(1)
    W, divergence = torch.as_tensor(rng.uniform(0.0, 1.0, (5, 30)), device=device), divergences.get("huber:0.3")
    X = torch.as_tensor(rng.gamma(0.7, 1.0, (200, 5)) @ rng.uniform(0.0, 1.0, (5, 30)), device=device)
    problem = problems.DeviceProblem(divergence, X, W, Box(0.0, 0.5), Penalty())
    H, _, losses = problems.rough_coefficients(problem)
    assert float(H.max()) <= 0.5
    assert bool((losses <= problem.losses(problem.fit(problem.start())) + 1e-9).all())


def test_batches_do_not_depend_on_whether_data_stay_on_the_device(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "MOST_BYTES_ON_DEVICE", 2000)
    X = scipy.sparse.csr_matrix(data(n=2000) * (np.random.default_rng(0).random((2000, F)) < 0.3))
    told: list[list[int]] = [[], []]
    for given, seen in zip((X, onmf.data.Rows(X)), told, strict=True):
        quick(device, batch_size=None, callbacks=[lambda progress, seen=seen: seen.append(progress.samples)]).fit(given)
    assert told[0] == told[1]


def test_a_tensor_with_other_features_raises_an_error(device: str) -> None:
    model = quick(device).fit(data())
    with pytest.raises(ValueError, match="X has 5 features, but the model was learnt from 12"):
        model.transform(torch.ones((3, 5)))


# What cannot be done


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"method": "paper"}, "method 'paper' runs on the processor only; leave device out"),
        ({"divergence": "l2"}, "l2 is not a sum over entries"),
        ({"coefficients": "simplex"}, "coefficients on the simplex are found by the processor only"),
        ({"reservoir": 100}, "a reservoir is kept on the processor only"),
        ({"device": "tpu"}, "device must be None, 'auto', 'cpu', 'cuda' or 'cuda:NUMBER', got 'tpu'"),
    ],
    ids=["method", "divergence", "simplex", "reservoir", "name"],
)
def test_what_runs_on_the_processor_only_raises_an_error(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        OnlineNMF(K, **({"device": "cpu"} | settings)).fit(data())


def test_models_of_other_methods_do_not_go_on_here_but_may_be_used() -> None:
    X = data()
    curved = quick(None, method="sparse_surrogate").fit(X)
    with pytest.raises(ValueError, match="method 'sparse_surrogate' runs on the processor only; leave device out"):
        curved.set_params(device="cpu", method="auto").partial_fit(X)
    assert curved.loss(X) == pytest.approx(curved.set_params(device=None).loss(X), rel=1e-3)
    em = quick(None, method="em").fit(X).set_params(device="cpu")
    with pytest.raises(ValueError, match="begun with method 'em' and cannot continue with 'surrogate'"):
        em.set_params(method="surrogate").partial_fit(X)
    assert em.set_params(method="auto").partial_fit(X).method_.name == "em"
    missing_some = np.where(X == 0, np.nan, X)
    with pytest.raises(ValueError, match="method 'em' learns from samples with missing entries on the processor only"):
        quick("cpu", method="em", missing="nan").fit(missing_some)
    begun = quick(None, method="em", missing="nan").fit(missing_some).set_params(device="cpu")
    with pytest.raises(ValueError, match="method 'em' learns from samples with missing entries on the processor only"):
        begun.partial_fit(missing_some)
    shares = quick(None, method="auto", coefficients="simplex").fit(X).set_params(device="cpu")
    with pytest.raises(ValueError, match="solved by the processor only: set_params"):
        shares.transform(X)


def test_without_pytorch_or_a_gpu_the_cure_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec

    def missing(name: str) -> Any:
        return None if name == gone else real(name)

    monkeypatch.setattr(choose_device.importlib.util, "find_spec", missing)
    gone = "torch"
    with pytest.raises(ImportError, match=r"^device='cpu' needs PyTorch; install it with pip install 'onmf\[gpu\]'"):
        device_of("cpu")
    assert device_of("auto") is None
    gone = "triton"
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=r"device='cuda' cannot be used: Triton, .* install triton; or leave device"):
        device_of("cuda")
    monkeypatch.undo()
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    for said, meant in [
        ("Found no NVIDIA driver on your system. Please check that", "there is no NVIDIA driver or no GPU"),
        ("The NVIDIA driver on your system is too old (found version 11040)", "driver is too old for this PyTorch"),
        ("Unexpected error. More of it", r"CUDA does not start \(Unexpected error\)"),
    ]:

        def fail(said: str = said) -> None:
            raise RuntimeError(said)

        monkeypatch.setattr(torch.cuda, "init", fail)
        with pytest.raises(ValueError, match=meant):
            device_of("cuda:1")
        assert device_of("auto") is None


@pytest.mark.skipif(len(DEVICES) > 1, reason="there is a GPU")
def test_this_machine_has_no_gpu_and_says_so(run_main: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"device='cuda' cannot be used: .* leave device out"):
        quick("cuda").fit(data())
    np.save(tmp_path / "x.npy", data())
    status, _, err = run_main("fit", tmp_path / "x.npy", "-k", K, "--device", "cuda", "--out", tmp_path / "m")
    assert (status, err.count("\n")) == (2, 1), err
    assert not (tmp_path / "m").exists()


def test_where_memory_runs_out_chunks_become_smaller_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, sizes = surrogates.rough_coefficients, list[int]()

    def scarce(problem: Any, *arguments: Any, **settings: Any) -> Any:
        sizes.append(len(problem.X))
        if len(problem.X) > most:
            raise torch.cuda.OutOfMemoryError
        return real(problem, *arguments, **settings)

    monkeypatch.setattr(surrogates, "rough_coefficients", scarce)
    monkeypatch.setattr(engines, "_smaller", {})
    X, most = data(n=1000), 100
    with caplog.at_level(logging.WARNING, "onmf"):
        model = quick("cpu", method="auto", init="uniform").fit(X)
    assert (sizes[0], max(sizes[1:]) <= 100, model.n_samples_seen_) == (256, True, 1000)
    assert caplog.messages == ["The memory of cpu is full; continuing with chunks of a quarter of their size."]
    most = 10
    before = model.components_.copy()
    with pytest.raises(MemoryError, match="the memory of cpu is full, even with small chunks; free some of it"):
        model.partial_fit(X)
    np.testing.assert_array_equal(model.components_, before)


def test_numba_is_not_needed() -> None:
    code = """
import sys
sys.modules["numba"] = None
import numpy as np
import scipy.sparse
from onmf import OnlineNMF
X = np.random.default_rng(0).gamma(1.0, 1.0, (200, 6)).astype(np.float32)
few = OnlineNMF(2, device="cpu", random_state=0).fit(scipy.sparse.random(4500, 40, 0.05, "csr", random_state=0))
print(few.method_.name)
for divergence in ("kl", "is", "squared_l2", "huber"):
    model = OnlineNMF(2, divergence=divergence, device="cpu", random_state=0, max_passes=2).fit(X)
    print(model.loss(X) > 0, model.transform(X).shape)
"""
    done = processes.run("-c", code, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "em\n" + "True (200, 2)\n" * 4


def test_the_command_line_computes_on_the_device(device: str, run_main: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", data(n=300))
    common = ["fit", tmp_path / "x.npy", "-k", K, "--seed", 0, "--method", "surrogate:tau=50"]
    status, _, err = run_main(*common, "--device", device, "--out", tmp_path / "m")
    assert status == 0, err
    source = onmf.data.open_source(tmp_path / "x.npy")
    np.testing.assert_array_equal(onmf.load(tmp_path / "m").components_, quick(device).fit(source).components_)
    out = tmp_path / "h.npy"
    status, _, err = run_main("transform", tmp_path / "m", tmp_path / "x.npy", "--device", device, "--out", out)
    assert status == 0, err
    np.testing.assert_allclose(np.load(out), onmf.load(tmp_path / "m").transform(data(n=300)), rtol=0.05, atol=0.1)


def test_partitions_of_dask_are_learnt_on_the_devices_of_workers() -> None:
    da = pytest.importorskip("dask.array")
    import dask

    X = data(n=4200)
    with dask.config.set(scheduler="sync"):
        model = quick("cpu", method="auto").fit(da.from_array(X, chunks=(700, F)))
        shards = [
            quick(each, method="em", init="uniform", batch_size=400).fit(da.from_array(X, chunks=(700, F)))
            for each in (None, "cpu")
        ]
    assert model.loss(X[:500]) <= 1.02 * quick(None).fit(X).loss(X[:500])
    np.testing.assert_allclose(shards[1].components_, shards[0].components_, rtol=1e-6)


@GPU
def test_large_arrays_go_through_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "STAGE", 10_000)
    X = np.random.default_rng(0).random((777, 13))
    np.testing.assert_array_equal(transfer.to_device(X, "cuda:0").cpu(), X)


@GPU
def test_the_kernel_and_the_plain_loop_agree() -> None:
    rng = np.random.default_rng(0)
    for k in (1, 3, 40, 64, 130):
        root = rng.normal(size=(50, k + 5, k)).astype(np.float32)
        A, b = root.transpose(0, 2, 1) @ root, rng.normal(size=(50, k)).astype(np.float32)
        found = [
            descend(*(torch.as_tensor(each, device=device) for each in (A, b, np.ones_like(b))), 0.0, 1e8, 30).cpu()
            for device in ("cpu", "cuda:0")
        ]
        np.testing.assert_allclose(found[1], found[0], rtol=1e-3, atol=1e-4)
