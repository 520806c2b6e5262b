"""em with PyTorch, against em as it is on the processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import onmf
from onmf import divergences
from onmf.coefficients import Multiplicative
from onmf.coefficients.problem import Problem
from onmf.methods import exchange
from onmf.model.penalty import Penalty
from onmf.model.sets import Box
from tests.conftest import require_same_learning
from tests.devices import DEVICES, F, K, data, quick

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'onmf[gpu]'")

from onmf.device import transfer  # noqa: E402 - they import PyTorch
from onmf.device.em import EMState  # noqa: E402
from onmf.device.entries import Entries, MultiplicativeSteps  # noqa: E402

torch.set_num_threads(1)  # processes share the cores


def rounding(device: str) -> float:
    """How far a result may be off: kernels in Triton take plain numbers, such as penalties, in single precision."""
    return 1e-9 if device == "cpu" else 1e-6


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def sparse_counts(n: int = 300, dtype: Any = np.float64) -> Any:
    """A third of the entries above zero, and a sample and a feature without any."""
    X = data(n=n, dtype=dtype) * (np.random.default_rng(0).random((n, F)) < 0.35)
    X[7], X[:, 5] = 0, 0
    return scipy.sparse.csr_matrix(X)


def test_sums_over_entries_are_products_of_matrices(device: str) -> None:
    X, H = sparse_counts(), np.random.default_rng(1).uniform(0.1, 1.0, (300, K))
    numbers = np.array([4, 7, 2, 250])
    some = transfer.moved(X, device).entries(torch.as_tensor(numbers, device=device))
    part = torch.as_tensor(H[:4], device=device)
    for entries in (some, Entries.of_dense(torch.as_tensor(X[numbers].toarray(), device=device))):
        np.testing.assert_allclose(entries.summed(entries.values, part).cpu(), X[numbers].T @ H[:4], rtol=1e-12)
        np.testing.assert_allclose(entries.totals.cpu(), X[numbers].sum(axis=1).A1, rtol=1e-12)
    nothing = transfer.moved(X, device).entries(torch.as_tensor([7], device=device))
    assert not nothing.summed(nothing.values, part[:1]).any()


@pytest.mark.parametrize("penalty", [Penalty(), Penalty(l1=0.2), Penalty(l1=0.2, l2=0.3)], ids=["plain", "l1", "both"])
@pytest.mark.parametrize("order", [0.5, 1.0, 1.7])
def test_multiplicative_steps_are_those_of_the_processor(order: float, penalty: Penalty, device: str) -> None:
    rng, X = np.random.default_rng(3), sparse_counts()
    X = X[np.diff(X.indptr) > 0]
    W, H = rng.uniform(0.1, 1.0, (K, F)), rng.uniform(0.1, 1.0, (X.shape[0], K))
    problem = Problem(divergences.get(f"alpha:{order}"), X, W, Box(), penalty)
    expected = Multiplicative(max_iter=7).solve(problem, H).H
    entries = transfer.moved(X, device).entries(torch.arange(X.shape[0], device=device))
    steps = MultiplicativeSteps(order, order * penalty.l1, order * penalty.l2, Box().low, Box().high, 7)
    Wt, start = torch.as_tensor(W.T.copy(), device=device), torch.as_tensor(H, device=device)
    found, fits = steps.made(entries, Wt, Wt.sum(dim=0), start)
    np.testing.assert_allclose(found.cpu(), expected, rtol=rounding(device))
    np.testing.assert_allclose(fits.cpu(), problem.fit(expected), rtol=rounding(device))


@pytest.mark.parametrize("name", ["kl", "hellinger", "alpha:1.7"])
@pytest.mark.parametrize("kind", ["sparse", "dense", "weighted", "fixed", "penalised", "clipped"])
def test_em_learns_what_it_learns_on_the_processor(
    name: str, kind: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "due", lambda *_: False)  # there they are judged by more exact coefficients
    X = sparse_counts(900)
    settings: dict[str, Any] = {"divergence": name, "method": "em", "batch_size": 400, "max_passes": 2}
    if kind == "fixed":
        settings["fixed"] = np.random.default_rng(1).uniform(0.1, 1.0, (1, F))
    elif kind == "penalised":
        settings |= dict.fromkeys(("l1_coefficients", "l2_coefficients", "l1_dictionary", "l2_dictionary"), 0.02)
    elif kind == "clipped":
        settings["clip"] = (0.01, 20.0)
    weights = np.random.default_rng(2).uniform(0.5, 2.0, 900) if kind == "weighted" else None
    given = X.toarray() if kind == "dense" else X
    init = np.random.default_rng(4).uniform(0.1, 1.0, (2 if kind == "fixed" else 3, F))
    both = [quick(each, init=init, **settings).fit(given, sample_weight=weights) for each in (None, device)]
    np.testing.assert_allclose(both[1].components_, both[0].components_, rtol=rounding(device), atol=1e-12)
    states: list[Any] = [model._learned for model in both]
    assert states[0].state.memory.keys() == states[1].state.memory.keys()
    for entry, array in states[0].state.memory.items():
        np.testing.assert_allclose(states[1].state.memory[entry], array, rtol=rounding(device), atol=1e-12)
    assert states[1].history.entries[-1][2] == pytest.approx(states[0].history.entries[-1][2], rel=rounding(device))
    assert states[1].method == states[0].method


def test_a_model_from_a_file_exchanges_the_same_components(device: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = scipy.sparse.csr_matrix(
        rng.poisson(rng.gamma(0.3, 1, (3000, 6)) @ rng.gamma(0.3, 1, (6, 200)) * 0.1).astype(np.float32)
    )
    init = rng.uniform(0.1, 1, (6, 200)).astype(np.float32)
    init[1:5] = init[0]  # which of them are merged, rounding decides
    here = quick(device, n_components=6, method="em", init=init).partial_fit(X[:200])
    onmf.save(here, tmp_path / "model")
    read = onmf.load(tmp_path / "model").set_params(device=device)
    np.testing.assert_array_equal(read.partial_fit(X[200:900]).components_, here.partial_fit(X[200:900]).components_)


def test_auto_takes_em_where_data_are_sparse_and_the_model_goes_on_anywhere(device: str, tmp_path: Path) -> None:
    wide = scipy.sparse.random(6000, 80, 0.06, "csr", np.float32, random_state=0)
    model = quick(device, method="auto").fit(wide)
    assert model.method_.name == "em"
    assert quick(device, method="auto").fit(wide.toarray()).method_.name == "em"
    assert quick(device, method="auto", divergence="is").fit(wide.toarray() + 0.1).method_.name == "surrogate"
    assert model.loss(wide) <= 1.05 * quick(None, method="em").fit(wide).loss(wide)
    require_same_learning(quick(device, method="auto").fit(wide), model)
    onmf.save(model, tmp_path / "model")
    elsewhere = onmf.load(tmp_path / "model").partial_fit(wide[:500])
    here = model.partial_fit(wide[:500])
    np.testing.assert_allclose(here.components_, elsewhere.components_, rtol=1e-3, atol=1e-5)
    T = np.random.default_rng(3).uniform(0.1, 1.0, (K, K)).astype(np.float32)
    state, inside = elsewhere._learned.state, elsewhere._learned.inside  # type: ignore[union-attr]
    changed = EMState.of(state, device).recombined(inside, state.W, T).after_batch(state, state.clock, 0)
    for name, array in elsewhere.method_.recombined(inside, state, state.W, T).memory.items():
        np.testing.assert_allclose(changed.memory[name], array, rtol=1e-5)
